"""``lora-watch expect``: an announcement more, and nothing that stands there is lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.expect import announced_in

TIMES = ("--from", "2026-12-01T10:00:00Z", "--to", "2026-12-01T18:00:00+01:00")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["expect", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "expected.yaml"


def test_an_experiment_is_announced_in_a_file_that_is_made(file: Path):
    code, text, _ = run("*-experiment", "legal-v3", *TIMES, "--note", "A/B: </b>\n- x", "--file", str(file))
    (one,) = announced_in(file)
    assert (code, one.adapters, one.note) == (0, ("*-experiment", "legal-v3"), "A/B: </b>\n- x")
    assert one.end.isoformat() == "2026-12-01T17:00:00+00:00"
    assert "1 announcement in" in text


def test_another_one_follows_and_comments_stay(file: Path):
    run("a", *TIMES, "--file", str(file))
    file.write_text("# of the platform team\n" + file.read_text())
    file.chmod(0o640)
    assert "2 announcements in" in run("b", *TIMES, "--file", str(file))[1]
    assert file.read_text().startswith("# of the platform team\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.adapters for one in announced_in(file)] == [("a",), ("b",)]


def test_the_configuration_names_the_file(tmp_path: Path):
    config = tmp_path / "lora-watch.yaml"
    config.write_text("diagnose: {expected: planned/expected.yaml}\n")
    (tmp_path / "planned").mkdir()
    assert run("a", *TIMES, "--config", str(config))[0] == 0
    assert len(announced_in(tmp_path / "planned/expected.yaml")) == 1


def test_without_a_configuration_it_goes_where_check_reads_it_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, text, _ = run("a", *TIMES)
    assert (code, len(announced_in(Settings().diagnose.expected))) == (0, 1)
    assert "1 announcement in lora-watch-expected.yaml" in text
    assert "when it runs in this folder" in text


def test_a_configuration_that_is_named_and_not_there_is_no_reason_to_write_elsewhere(tmp_path: Path):
    code, _, text = run("a", *TIMES, "--config", str(tmp_path / "mine.yaml"))
    assert code == 2
    assert "mine.yaml" in text


@pytest.mark.parametrize(
    "times",
    [
        ("--from", "2026-12-01T10:00:00", "--to", "2026-12-02T10:00:00Z"),
        ("--from", "tomorrow", "--to", "2026-12-02T10:00:00Z"),
        ("--from", "2026-12-03T10:00:00Z", "--to", "2026-12-02T10:00:00Z"),
    ],
)
def test_times_that_make_no_sense_are_refused_and_nothing_is_written(file: Path, times: tuple[str, ...]):
    code, _, text = run("a", *times, "--file", str(file))
    assert (code, file.exists()) == (2, False)
    assert "write times like" in text


def test_a_file_that_is_wrong_stays_as_it_is(file: Path):
    file.write_text("- {start: soon}\n")
    code, _, text = run("a", *TIMES, "--file", str(file))
    assert (code, file.read_text()) == (2, "- {start: soon}\n")
    assert "entry 1" in text


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path):
    assert "cannot write" in run("a", *TIMES, "--file", str(tmp_path / "nowhere" / "x.yaml"))[2]
    with pytest.raises(LoraWatchError, match="cannot read"):
        announced_in(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(LoraWatchError, match="not UTF-8"):
        announced_in(tmp_path / "latin")


def test_two_that_announce_at_once_both_do(file: Path):
    command = [sys.executable, "-m", "lora_watch.cli", "expect", *TIMES, "--file", str(file)]
    running = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in "abcd"]
    assert [one.wait() for one in running] == [0, 0, 0, 0]
    assert sorted(one.adapters[0] for one in announced_in(file)) == ["a", "b", "c", "d"]
