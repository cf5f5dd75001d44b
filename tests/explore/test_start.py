"""How the explorer is started: what listens where, with which options, and that an installed wheel brings its pages."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.errors import ConfigError, LoraWatchError
from lora_watch.explore.opened import CONFIG, DATA, opened
from lora_watch.explore.start import FRUGAL, command, environment, folder

ROOT = Path(__file__).parents[2]


def options(*arguments: object) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in command(*arguments)[2:])  # type: ignore[arg-type]
    return {name: value for name, _, value in pairs}


def test_it_listens_where_it_is_told_and_tells_nobody():
    told = options("127.0.0.1", 8501, "")
    assert (told["server.address"], told["server.port"]) == ("127.0.0.1", "8501")
    assert told["browser.gatherUsageStats"] == "false"
    assert told["server.fileWatcherType"] == "none"


def test_a_path_of_a_reverse_proxy_is_written_as_one_likes():
    assert options("::1", 1, "/lora-watch/")["server.baseUrlPath"] == options("::1", 1, "lora-watch")["server.baseUrlPath"]


@pytest.mark.parametrize("port", [0, 70_000])
def test_a_port_that_is_none_is_refused(port: int):
    with pytest.raises(LoraWatchError, match=str(port)):
        command("127.0.0.1", port, "")


def test_what_to_show_is_told_in_absolute_paths_and_nothing_old_is_left():
    told = environment({"PATH": "/bin", CONFIG: "/old"}, None, Path("data"))
    assert told == {**FRUGAL, "PATH": "/bin", DATA: str(Path.cwd() / "data")}


def test_what_somebody_says_of_memory_goes_before_ours():
    assert environment({"MALLOC_ARENA_MAX": "8"}, None, None)["MALLOC_ARENA_MAX"] == "8"


def test_the_folder_goes_before_the_configurations(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("store: {folder: x}\nderive: {lookback: 2h}\n")
    told = opened({CONFIG: str(tmp_path / "c.yaml"), DATA: str(tmp_path)})
    assert told.store.root == tmp_path
    assert told.lookback == 2 * 3600 * 10**6
    assert opened({CONFIG: str(tmp_path / "c.yaml")}).store.root == tmp_path / "x"


def test_a_wrong_configuration_is_said(tmp_path: Path):
    with pytest.raises(ConfigError):
        opened({CONFIG: str(tmp_path / "none.yaml")})
    with pytest.raises(LoraWatchError, match="lora-watch explore"):
        opened({})


def test_without_data_it_does_not_start(tmp_path: Path):
    done = CliRunner().invoke(app, ["explore", "--data", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "there is no data" in done.output


def test_the_pages_of_a_checkout_are_found():
    assert (folder() / "pages" / "now.py").is_file()


@pytest.mark.slow
def test_a_wheel_brings_pages_and_runbooks_and_finds_them(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    asked = (
        "from lora_watch.explore.start import folder; from lora_watch.explore.runbooks import runbook; "
        "print(folder(), bool(runbook('thrash')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [str(site / "lora_watch" / "dashboards"), "True"]
    assert sorted(file.name for file in (site / "lora_watch" / "dashboards" / "pages").iterdir()) == sorted(
        file.name for file in (ROOT / "dashboards" / "pages").glob("*.py")
    )
