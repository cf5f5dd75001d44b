"""What docs/report.md shows can be typed and configured."""

import re
import shlex
from pathlib import Path

import typer

from lora_watch.cli import app
from lora_watch.config import parse

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_its_commands_have_these_options():
    (block,) = re.findall(r"```\n(lora-watch .*?)```", PAGE, re.DOTALL)
    command = typer.main.get_command(app).commands["report"]  # type: ignore[attr-defined]  # a group
    known = {option for parameter in command.params for option in parameter.opts}
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        assert words[:2] == ["lora-watch", "report"]
        assert {word for word in words if word.startswith("--")} <= known


def test_its_configuration_is_right():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    told = parse(f"{block}credentials: {{archive: {{bearer_env: TOKEN}}}}").report
    assert (told.enabled, told.weekday, told.hour, len(told.webhooks), len(told.mail)) == (True, "monday", 6, 2, 1)
