"""The README's examples of `plan` and `what-if` are what these print, and the commands of their pages run."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lora_watch.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("plan", "what-if")


def examples(text: str) -> list[list[str]]:
    """The commands of a text, without `lora-watch` and what follows a hash."""
    lines = re.findall(r"^lora-watch (.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def section(title: str) -> str:
    return README.split(f"## {title}")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the commands of both sections print."""
    folder = tmp_path_factory.mktemp("readme") / "small"
    laid = CliRunner().invoke(app, ["simulate", "--scenario", "one-slot-short", "--days", "0.02", "--out", str(folder)])
    assert laid.exit_code == 0
    out = []
    for words in examples(section("Before deployment: `plan`") + section("A plan, replayed: `what-if`")):
        done = CliRunner().invoke(app, [str(folder) if word == "small" else word for word in words])
        assert done.exit_code == int("--fail-on" in words), done.output
        out.append(done.stdout)
    return "\n".join(out)


@pytest.mark.parametrize("title", ["Before deployment: `plan`", "A plan, replayed: `what-if`"])
def test_every_line_of_the_example_is_printed(printed: str, title: str):
    (example,) = re.findall(r"```text\n(.*?)```", section(title), re.DOTALL)
    assert [line for line in example.splitlines() if line not in printed] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_have_these_options(page: str):
    command = typer.main.get_command(app).commands[page]  # type: ignore[attr-defined]  # a group
    known = {option for parameter in command.params for option in parameter.opts}
    for name, *words in examples((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        assert name == page
        assert {word for word in words if word.startswith("--")} <= known


def test_a_plan_of_the_page_without_files_runs():
    first, *_ = examples((ROOT / "docs" / "plan.md").read_text(encoding="utf-8"))
    assert CliRunner().invoke(app, first).exit_code == 0


def test_every_target_is_on_its_page():
    from lora_watch.recommend.targets import TARGETS

    page = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    assert [name for name in TARGETS if f"| `{name}` |" not in page] == []
