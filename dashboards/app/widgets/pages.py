"""The explorer's pages, and the ways from one to another."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import streamlit as st
from streamlit.navigation.page import Page

from lora_watch.explore.markup import tag
from lora_watch.explore.view import View

FOLDER = Path(__file__).parents[2] / "pages"


class Entry(NamedTuple):
    """``file`` under ``pages/`` is also the end of the page's address."""

    file: str
    title: str
    question: str


PAGES = (
    Entry("now", "Now", "Is it thrashing, why, and what will help?"),
    Entry("timeline", "Timeline", "What happened, when, on which pod?"),
    Entry("adapters", "Adapters", "Who is there, who is new, and what becomes of each?"),
    Entry("latency", "Latency", "What did swaps cost, in waiting and in GPU time?"),
    Entry("capacity", "Capacity", "What if there were more slots, pods, pins, or another router?"),
    Entry("sources", "Sources", "Who is heard, how late, how well, and what can't be told?"),
)
"""In the order in which they stand there; one arrives at the first."""


def made() -> list[Page]:
    """What ``st.navigation`` is given."""
    return [
        st.Page(FOLDER / f"{entry.file}.py", title=entry.title, url_path=None if not at else entry.file, default=not at)
        for at, entry in enumerate(PAGES)
    ]


def title(page: Page) -> None:
    """What the page answers: there before anything is read."""
    for entry in PAGES:
        if entry.title == page.title:
            st.html(tag("div", tag("h2", entry.title), tag("span", entry.question), class_="lw-title"))


def link(file: str, label: str, view: View) -> None:
    """A link to a page that shows this view. ``label`` is ours: never a name, since it is read as Markdown."""
    if any(entry.file == file for entry in PAGES):
        st.page_link(FOLDER / f"{file}.py", label=label, query_params=replace(view, own=()).query())
