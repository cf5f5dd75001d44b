"""The bar above every page: the window, and of whom."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from lora_watch.errors import LoraWatchError
from lora_watch.explore.extent import ago
from lora_watch.explore.markup import shown, tag
from lora_watch.explore.view import PRESETS, View, moment
from lora_watch.links import NAMES
from lora_watch.model import SECOND, Window
from widgets import notes, questions, scene

_PRESET, _LIVE = "lw_preset", "lw_live"
_TITLES = {"cluster": "Cluster", "pool": "Pool", "role": "Role", "pod": "Pod", "adapter": "Adapter"}
_ALWAYS = ("pool", "pod", "adapter")
"""Kinds of names that can always be chosen; the others where there are several."""
_FORM = "%Y-%m-%d %H:%M"


def show() -> None:
    """Draw the bar; what is changed in it is in the view, and in the address, at the next run."""
    view = scene.view()
    try:
        end = scene.end_of_data()
    except LoraWatchError:
        return  # the page says what is wrong
    if end is None:
        return
    window = view.window(end)
    names = _names(end, view)
    kinds = [kind for kind in NAMES if kind in _ALWAYS or len(names[kind]) > 1]
    with st.container(horizontal=True, vertical_alignment="bottom", key="lw_bar"):
        st.session_state[_PRESET] = view.last if view.span is None and view.last in PRESETS else None
        st.segmented_control("Window", list(PRESETS), key=_PRESET, on_change=_preset)
        with st.popover("Other", help="A window from and to a moment"):
            _span(window)
        for kind in kinds:
            key = f"lw_{kind}"
            st.session_state[key] = list(getattr(view, kind))
            st.multiselect(
                _TITLES[kind],
                names[kind],
                key=key,
                on_change=_chosen,
                args=(kind,),
                placeholder="all",
                format_func=shown,
                width=190 if kind != "adapter" else 230,
            )
        st.session_state[_LIVE] = view.live
        st.toggle("Live", key=_LIVE, on_change=_live, disabled=view.span is not None, help="Follow the end of the data")
    late = ago(end, scene.now())
    st.html(
        tag(
            "div",
            tag("b", moment(window.start)),
            " … ",
            tag("b", moment(window.end)),
            " UTC",
            f" · the data end {late}" if late else "",
            class_="lw-window",
        )
    )


def _names(end: int, view: View) -> dict[str, list[str]]:
    """What can be chosen of each kind: what the window holds, and what is chosen already."""
    page = scene.scene_of(scene.told(), view, end)
    pods, adapters = page.ask(questions.pods(page)), page.ask(questions.adapters(page))
    found: dict[str, list[str]] = {}
    for kind in NAMES:
        promised: Any = adapters if kind == "adapter" else pods
        known: list[str] = []
        if not promised.done():
            scene.awaited().append(promised)
        elif promised.exception() is None:
            known = promised.result() if kind == "adapter" else promised.result()[kind].unique().sort().to_list()
        found[kind] = list(dict.fromkeys([*known, *getattr(view, kind)]))
    return found


def _span(window: Window) -> None:
    with st.form("lw_span", border=False):
        start = st.text_input("From (UTC)", moment(window.start))
        end = st.text_input("To (UTC)", moment(window.end))
        if st.form_submit_button("Show"):
            try:
                first, last = (
                    round(datetime.strptime(text.strip(), _FORM).replace(tzinfo=UTC).timestamp()) for text in (start, end)
                )
                told = Window(first * SECOND, last * SECOND)
            except ValueError as error:
                notes.trouble(f"This is no window: {error}. Write both like 2026-11-30 10:15.")
                return
            scene.change(replace(scene.view(), span=told, live=False))
            st.rerun()


def _preset() -> None:
    chosen = st.session_state[_PRESET]
    if chosen is not None:
        scene.change(replace(scene.view(), last=chosen, span=None))


def _chosen(kind: str) -> None:
    scene.change(scene.view().of(kind, st.session_state[f"lw_{kind}"]))


def _live() -> None:
    scene.change(replace(scene.view(), live=st.session_state[_LIVE]))
