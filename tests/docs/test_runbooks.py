"""Every finding has a runbook, with all its parts, and whose commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from lora_watch import names
from lora_watch.cli import app
from lora_watch.explore.notebook import Notebook
from lora_watch.rules.catalogue import alerts
from lora_watch.rules.rule import Install, Profile

ROOT = Path(__file__).parents[2]
BOOKS = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "alerts" / "runbooks").glob("*.md")}
PARTS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "What not to do"]
KNOWN = {name for name in vars(names).values() if isinstance(name, str)} | {"up"}
METRIC = re.compile(r"(?:\b(?:vllm|pod|pool|pool_adapter|pool_phase|watch):\w[\w:]*|\blora_watch_\w+|^up$)")
KIND = re.compile(r'(?:kind=|return Lint\(\s*|\bFinding\(\s*)"([a-z][a-z-]+)"')


def kinds() -> set[str]:
    """Every kind that the source of a rule names."""
    files = (ROOT / "lora_watch" / "diagnose").glob("*.py")
    return {kind for file in files for kind in KIND.findall(file.read_text(encoding="utf-8"))}


def lines(text: str) -> list[str]:
    """The lines of its blocks of code."""
    blocks = re.findall(r"^ *```\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def alert_books() -> set[str]:
    """The runbook of every alert, of either profile and install."""
    return {one.runbook for install in Install for profile in Profile for one in alerts(install, profile)}


def test_every_kind_of_finding_and_every_alert_has_a_runbook_and_no_runbook_is_about_nothing():
    assert kinds() | alert_books() == set(BOOKS)
    assert len(BOOKS) >= 25


@pytest.mark.parametrize("name", sorted(BOOKS))
def test_a_runbook_has_its_parts_in_order_and_each_says_something(name: str):
    head, *parts = re.split(r"^## (.+)$", BOOKS[name], flags=re.MULTILINE)
    assert head.strip() == f"# {name}"
    assert parts[::2] == PARTS
    assert all(part.strip() for part in parts[1::2])


@pytest.mark.parametrize("name", sorted(BOOKS))
def test_a_runbooks_commands_exist_with_these_options(name: str):
    commands = typer.main.get_command(app)
    assert lines(BOOKS[name])
    for line in lines(BOOKS[name]):
        program, *words = shlex.split(line)
        if program == "promtool":
            assert words[:2] == ["query", "instant"]
            assert METRIC.findall(words[3]), line
            assert set(METRIC.findall(words[3])) <= KNOWN, line
            continue
        if program == "python":
            (method,) = re.findall(r"\)\.(\w+)\(", words[1])
            assert callable(getattr(Notebook, method))
            continue
        assert program == "lora-watch"
        command = commands
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        assert command is not commands, line
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("name", sorted(BOOKS))
def test_links_between_runbooks_lead_somewhere(name: str):
    assert set(re.findall(r"\]\(([^)#]+)\)", BOOKS[name])) <= {f"{other}.md" for other in BOOKS}
