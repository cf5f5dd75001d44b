"""The real vLLM: an environment of its own with our wheel in it, and the one run that every test reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import story as story_module
import tiny_server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
collect_ignore = ["make_model.py"]  # needs the packages of the other environment


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment named by LORA_WATCH_VLLM_VENV, installed if it is not there, with the wheel of this very code."""
    venv = Path(os.environ.get("LORA_WATCH_VLLM_VENV") or ROOT / ".venv-vllm").absolute()
    python = venv / "bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import vllm"], capture_output=True).returncode:
        subprocess.run([HERE / "install.sh", venv], check=True)
    to = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", to], cwd=ROOT, check=True)
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", *to.glob("*.whl")]
    subprocess.run(install, check=True)
    return venv


@pytest.fixture(scope="session")
def model(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model/`` and twelve ``adapters/``."""
    to = tmp_path_factory.mktemp("model")
    subprocess.run([venv / "bin/python", HERE / "make_model.py", to, "12"], check=True)
    return to


@pytest.fixture(scope="session")
def story(venv: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> story_module.Story:
    """The run."""
    return story_module.tell(venv, model, tmp_path_factory.mktemp("story"), tiny_server.free_port())
