"""Opens the explorer as Streamlit's own test runner does, and waits for what its pages wait for."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from lora_watch.explore.opened import CONFIG, DATA

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
PAGES = sorted(file.stem for file in (DASHBOARDS / "pages").glob("*.py"))
LONGEST_RUNS = 400
"""Runs after which a page that still waits is stuck; each of them waits for its answers."""


def opened(folder: Path, page: str, patch: pytest.MonkeyPatch, query: Mapping[str, str] | None = None) -> AppTest:
    """The page once everything is there that it asked for."""
    patch.delenv(CONFIG, raising=False)
    patch.setenv(DATA, str(folder))
    test = AppTest.from_file(DASHBOARDS / "app" / "main.py", default_timeout=60)
    for key, value in (query or {}).items():
        test.query_params[key] = value
    test.run()
    if page != "now":
        test.switch_page(str(DASHBOARDS / "pages" / f"{page}.py"))
    return settled(test.run())


def settled(test: AppTest) -> AppTest:
    """The same after as many runs as it takes."""
    for _ in range(LONGEST_RUNS):
        if not test.session_state["lw_awaited"]:
            return test
        test.run()
    raise AssertionError("the page still waits")


def html(test: AppTest) -> str:
    """All that is drawn as HTML, but the style sheet."""
    return "\n".join(block.proto.body for block in test.get("html") if not block.proto.body.startswith("<style"))
