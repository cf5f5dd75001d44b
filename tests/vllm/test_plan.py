"""What `plan` says of real files is what the library that wrote them says."""

import json
import subprocess
from pathlib import Path

import pytest

from lora_watch.config import CostSettings
from lora_watch.explore.plan import Asked, make

pytestmark = pytest.mark.vllm

COUNT = """
import json, sys
from pathlib import Path
from safetensors import safe_open
told = {}
for file in sorted(Path(sys.argv[1]).rglob("*.safetensors")):
    with safe_open(file, "pt") as opened:
        tensors = [opened.get_tensor(name) for name in opened.keys()]
    told[file.parent.name] = [sum(t.numel() for t in tensors), sum(t.numel() * t.element_size() for t in tensors)]
print(json.dumps(told))
"""


def counted(venv: Path, folder: Path) -> dict[str, list[int]]:
    done = subprocess.run([venv / "bin/python", "-c", COUNT, folder], check=True, capture_output=True, text=True)
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def test_bytes_and_parameters_of_adapters_and_model_are_those_that_the_library_loads(venv: Path, model: Path):
    plan = make(Asked(str(model / "model"), adapters=(model / "adapters",)), CostSettings())
    assert {one.name: [one.parameters, one.bytes] for one in plan.adapters} == counted(venv, model / "adapters")
    assert [plan.parameters, plan.weight_bytes] == counted(venv, model / "model")["model"]
