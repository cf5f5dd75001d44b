"""The explorer's pages, and the ways from one to another."""

from pathlib import Path
from typing import NamedTuple

import streamlit as st
from streamlit.navigation.page import Page

from lora_watch.explore.view import View

FOLDER = Path(__file__).parents[2] / "pages"


class Entry(NamedTuple):
    """``file`` under ``pages/`` is also the end of the page's address."""

    file: str
    title: str


PAGES = (
    Entry("now", "Now"),
    Entry("timeline", "Timeline"),
    Entry("adapters", "Adapters"),
    Entry("latency", "Latency"),
    Entry("capacity", "Capacity"),
    Entry("sources", "Sources"),
)
"""In the order in which they stand there; one arrives at the first."""


def made() -> list[Page]:
    """What ``st.navigation`` is given."""
    return [
        st.Page(FOLDER / f"{entry.file}.py", title=entry.title, url_path=None if not at else entry.file, default=not at)
        for at, entry in enumerate(PAGES)
    ]


def link(file: str, label: str, view: View) -> None:
    """A link to a page that shows this view. ``label`` is ours: never a name, since it is read as Markdown."""
    if any(entry.file == file for entry in PAGES):
        st.page_link(FOLDER / f"{file}.py", label=label, query_params=view.query())
