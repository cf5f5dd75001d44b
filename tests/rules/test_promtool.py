"""The committed tests of alerts, run by the real promtool; those of the raw install hold of the full one, but for `_raw`."""

import subprocess
from pathlib import Path

import pytest

ALERTS = Path(__file__).parents[2] / "alerts"
FILES = sorted((ALERTS / "tests").glob("*.yaml"))
pytestmark = pytest.mark.slow


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_alerts_do_what_their_tests_say(file: Path):
    done = run(file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if "rules/raw" in file.read_text(encoding="utf-8") and not file.stem.endswith("_raw")],
    ids=lambda file: file.stem,
)
def test_where_the_exporter_is_silent_the_full_install_does_the_same(tmp_path: Path, file: Path):
    text = file.read_text(encoding="utf-8").replace("../rules/raw", f"{ALERTS}/rules/full")
    (tmp_path / file.name).write_text(text, encoding="utf-8")
    done = run(tmp_path / file.name)
    assert done.returncode == 0, done.stdout + done.stderr
