"""The README's example of `recommend` is what it prints, and its commands run."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lora_watch.cli import app

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## What would help: `recommend`")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("readme") / "small"
    laid = CliRunner().invoke(app, ["simulate", "--scenario", "one-slot-short", "--days", "0.02", "--out", str(folder)])
    assert laid.exit_code == 0
    out = []
    for line in re.findall(r"^lora-watch (.*)$", SECTION, re.MULTILINE):
        words = [str(folder) if word == "small" else word for word in shlex.split(line, comments=True)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        out.append(done.stdout)
    return out


def test_the_example_of_recommend_is_what_it_prints(printed):
    shown = re.search(r"```text\n(.*?)```", SECTION, re.DOTALL)
    assert shown is not None
    assert shown[1].strip() in printed[0]


def test_every_form_of_the_answer_is_shown(printed):
    assert printed[1].startswith("recommendations:")
    assert "--max-loras 8" in printed[2]


def test_every_kind_of_advice_stands_on_its_page():
    page = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8").casefold()
    assert all(word in page for word in ("slots", "pods", "routing", "pins", "ghosts", "experiments", "groups", "tenants"))
