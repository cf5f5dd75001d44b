"""Sentences about the page itself: what is missing, what is being read, what went wrong. Any text is only text here."""

from pathlib import Path

import streamlit as st

from lora_watch.explore.markup import Markup, tag
from lora_watch.explore.view import moment
from lora_watch.model import SECOND


def heading(text: str, *, level: int = 3) -> None:
    """The title of a part of a page."""
    st.html(tag(f"h{level}", text, class_="lw-heading"))


def waiting(what: str) -> None:
    """Something is being worked out."""
    st.html(tag("div", tag("span", "", class_="lw-dot"), f"Reading {what} …", class_="lw-note lw-waiting", role="status"))


def trouble(text: str) -> None:
    """Something could not be done."""
    st.html(tag("div", text, class_="lw-note lw-trouble", role="alert"))


def plain(*parts: str | Markup) -> None:
    """A sentence beside what is shown: what is partial, what is inferred."""
    st.html(tag("div", *parts, class_="lw-note"))


def nothing(*parts: str | Markup) -> None:
    """Nothing is there to be shown, and why."""
    st.html(tag("div", *parts, class_="lw-note lw-nothing"))


def older(at: int, what: str) -> None:
    """What stands here was said of a moment ago (µs UTC): the newer is being worked out."""
    until = f"{moment(at)}:{at // SECOND % 60:02d} UTC"
    told = (tag("span", "", class_="lw-dot"), f"Of {what}: as it was until {until}; the newer is being worked out.")
    st.html(tag("div", *told, class_="lw-note lw-waiting", role="status"))


def unworked() -> None:
    """A long window of which no hour is worked out: why it takes long, and what helps."""
    plain(
        "No closed hour of this window is worked out, so its rows are read. ",
        tag("code", "lora-watch derive"),
        " works them out, as ",
        tag("code", "lora-watch serve"),
        " does by itself: then long windows are quick.",
    )


def empty(folder: Path) -> None:
    """Nothing is stored at all."""
    st.html(
        tag(
            "div",
            tag("b", "Nothing is stored yet"),
            tag("p", "There are no rows in ", tag("code", str(folder)), "."),
            tag("p", tag("code", "lora-watch doctor"), " says which targets can be reached, ", tag("code", "lora-watch serve")),
            tag(
                "p",
                "collects from them, and ",
                tag("code", "lora-watch simulate --scenario thursday --out DIR"),
                " lays data to try.",
            ),
            class_="lw-note lw-nothing",
        )
    )
