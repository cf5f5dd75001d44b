"""Pages run in this process, as Streamlit's own tests of apps do."""

import sys
from collections.abc import Iterator

import pytest

MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def _the_main_module_stays() -> Iterator[None]:
    """A page that runs is ``__main__`` and stays it; a process that a later test begins would run the page anew."""
    yield
    sys.modules["__main__"] = MAIN
