"""The committed tests of alerts, run by the real promtool; those of the raw install hold of the full one, but for `_raw`."""

import subprocess
from pathlib import Path

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "alerts"
FILES = sorted((ALERTS / "tests").glob("*.yaml"))
pytestmark = pytest.mark.slow


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)


def scraped(test: dict) -> bool:
    """Whether a test is fed anything that is scraped; the rest is about conditions, which are the same in both installs."""
    return any(":" not in one["series"].removeprefix("vllm:").split("{")[0] for one in test["input_series"])


def of_both(file: Path) -> bool:
    """Whether tests of the raw install hold of the full one as well, and are not of conditions alone."""
    tests = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw = any("raw" in one for one in tests["rule_files"])
    return raw and not file.stem.endswith("_raw") and any(map(scraped, tests["tests"]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_alerts_do_what_their_tests_say(file: Path):
    done = run(file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if of_both(file)],
    ids=lambda file: file.stem,
)
def test_where_the_exporter_is_silent_the_full_install_does_the_same(tmp_path: Path, file: Path):
    tests = yaml.safe_load(file.read_text(encoding="utf-8"))
    tests["rule_files"] = [f"{ALERTS}/rules/{Path(one).name.replace('raw', 'full')}" for one in tests["rule_files"]]
    tests["tests"] = [test for test in tests["tests"] if scraped(test)]
    (tmp_path / file.name).write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = run(tmp_path / file.name)
    assert done.returncode == 0, done.stdout + done.stderr
