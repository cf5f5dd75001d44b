import os
import subprocess
import sys

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
