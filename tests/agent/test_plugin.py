import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

OUTSIDE = """
import sys
sys.path.insert(0, {root!r})
from lora_watch.agent import plugin
plugin.register()
ours = ("lora_watch", "lora_watch.agent")
allowed = set(sys.stdlib_module_names) | {{"__main__", "sitecustomize"}}
strange = sorted(
    name for name in sys.modules
    if name.split(".")[0] not in allowed and name not in ours
    and not name.startswith(("lora_watch.agent.", "_"))
)
print(strange)
"""

FAKE = """
class Worker:
    def execute_model(self, scheduler_output):
        return scheduler_output
    def sample_tokens(self, grammar_output):
        return grammar_output
"""


def python(code, *, environment=None):
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def hooked(tmp_path, *, before="", after="", environment=None):
    """Is Worker.execute_model hooked, in a process where a module of that name can be imported?"""
    package = tmp_path / "site" / "vllm" / "v1" / "worker"
    package.mkdir(parents=True)
    (package / "gpu_worker.py").write_text(FAKE)
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path / "site")!r}]
from lora_watch.agent import plugin
{before}
plugin.register()
{after}
from vllm.v1.worker.gpu_worker import Worker
method = Worker.execute_model
twice = hasattr(method.__wrapped__, "__wrapped__") if hasattr(method, "__wrapped__") else None
print(hasattr(method, "__lora_watch__"), Worker().execute_model(7), twice)
"""
    return python(code, environment=environment)


def test_the_plug_in_imports_the_standard_library_only():
    assert python(OUTSIDE.format(root=str(ROOT))) == "[]"


def test_a_module_imported_later_is_hooked(tmp_path):
    assert hooked(tmp_path) == "True 7 False"


def test_a_module_imported_before_is_hooked(tmp_path):
    assert hooked(tmp_path, before="import vllm.v1.worker.gpu_worker") == "True 7 False"


def test_registering_twice_hooks_once(tmp_path):
    assert hooked(tmp_path, after="plugin.register()") == "True 7 False"


def test_the_kill_switch_leaves_everything_alone(tmp_path):
    assert hooked(tmp_path, environment={"LORA_WATCH_AGENT": "off"}) == "False 7 None"


def test_a_wrong_setting_is_said_and_stops_nothing(tmp_path):
    assert hooked(tmp_path, environment={"LORA_WATCH_LOG_MAX_BYTES": "lots"}) == "False 7 None"


def test_a_process_that_records_nothing_leaves_no_file(tmp_path):
    hooked(tmp_path, environment={"LORA_WATCH_LOG_DIR": str(tmp_path / "log")})
    assert not (tmp_path / "log").exists()


def test_a_module_that_fails_to_import_fails_as_before(tmp_path):
    (tmp_path / "vllm" / "lora").mkdir(parents=True)
    (tmp_path / "vllm" / "lora" / "model_manager.py").write_text("raise ZeroDivisionError('theirs')")
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]
from lora_watch.agent import plugin
plugin.register()
try:
    import vllm.lora.model_manager
except ZeroDivisionError as error:
    print(error)
"""
    assert python(code) == "theirs"
