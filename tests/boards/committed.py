"""The boards as they are committed, and what stands in them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from lora_watch.boards.files import BOARDS, path_of

ROOT = Path(__file__).parents[2]
COMMITTED = {board.uid: json.loads((ROOT / path_of(board)).read_text(encoding="utf-8")) for board in BOARDS}


def panels(board: dict) -> Iterator[dict]:
    """Every panel that draws something, those inside collapsed rows as well."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def expressions(board: dict) -> Iterator[tuple[str, str]]:
    """Each expression of a board, with what it is for: panels, annotations, variables."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for mark in board["annotations"]["list"]:
        yield f"annotation {mark['name']}", mark["target"]["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])[1]


def filled_in(expr: str, **values: str) -> str:
    """The expression with Grafana's variables replaced; those that are not given mean everything."""
    told = {"__rate_interval": "5m", "__range": "1h", **values}
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: told.get(match[1] or match[2], ".*"), expr)
