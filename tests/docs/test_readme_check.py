"""The README's example of `check` is what `check` prints."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lora_watch.cli import app

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.split("## One look: `check`")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("readme") / "small"
    simulated = CliRunner().invoke(app, ["simulate", "--scenario", "one-slot-short", "--days", "0.02", "--out", str(folder)])
    assert simulated.exit_code == 0
    return CliRunner().invoke(app, ["check", "--data", str(folder), "--last", "20m"]).stdout


def test_every_line_of_the_example_is_printed(printed: str):
    (example,) = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
    assert [line for line in example.splitlines() if line not in printed] == []


def test_the_options_it_names_exist():
    text = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).stdout)
    named = set(re.findall(r"(?<![\w-])--[a-z-]+", SECTION)) - {"--max-loras"}
    assert {option for option in named if option not in text} == set()
