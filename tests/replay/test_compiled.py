import os
import subprocess
import sys
from pathlib import Path

from lora_watch.replay.compiled import compiled

SCRIPT = """
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
print(type(replay.__globals__["_run"]).__name__, replay(Trace([0, 1, 0, 2, 0]), Fleet(1)).loads)
"""


def test_where_nothing_can_be_kept_a_kernel_is_compiled_all_the_same():
    scope: dict[str, object] = {}
    exec("def double(x):\n    return 2 * x\n", scope)  # a function of no file: numba finds no folder for it
    double = scope["double"]
    assert callable(double)
    assert compiled(double)(21) == 42


def test_without_jit_the_very_same_functions_run():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    told = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["function", "5"]


def test_an_edit_to_a_part_in_another_file_is_not_missed(tmp_path: Path):
    part = tmp_path / "pieces.py"
    (tmp_path / "kernels.py").write_text(
        "from lora_watch.replay.compiled import compiled\nimport pieces\n\n@compiled\ndef run(x):\n    return pieces.step(x)\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0"}
    for written_at, factor in ((1, 2), (None, 3)):
        part.write_text(f"from lora_watch.replay.compiled import part\n\n@part\ndef step(x):\n    return {factor} * x\n")
        if written_at is not None:
            os.utime(part, (written_at, written_at))
        command = [sys.executable, "-B", "-c", "import kernels; print(kernels.run(7))"]
        told = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert told.stdout.split() == [str(7 * factor)]
        assert len(list(tmp_path.glob("__pycache__/*.nbi"))) == 1
