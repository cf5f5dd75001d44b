"""Adapters: who is there, who is new, and what becomes of each?"""

from dataclasses import replace

import polars as pl
import streamlit as st

from lora_watch.explore import adapter_figures, adapter_words
from lora_watch.explore.adapters import WEEK, Known, Sat, hours_of_week, joined, known
from lora_watch.explore.colours import colour_of
from lora_watch.explore.view import moment
from lora_watch.model import Window
from widgets import advice, charts, notes, pages, questions, scene, tables

PICKED = "lw_adapters_picked"


def about(number: int, adapter: str, told: Sat, whole: Known, wide: Window, requests: pl.DataFrame) -> None:
    mine = whole.rows.filter(pl.col("adapter") == adapter)
    st.html(adapter_words.title(adapter, mine.row(0, named=True) if mine.height else None))
    where, when = st.columns([2, 3], gap="large")
    with where:
        notes.heading("Where it sat", level=4)
        held = told.pods.filter(pl.col("adapter") == adapter)
        if held.is_empty():
            notes.nothing("It sat in no slot in this time, as far as is known.")
        else:
            tables.table(f"adapter_pods_{number}", adapter_words.pods(held), adapter_words.PODS)
    with when:
        notes.heading(f"When it is asked for, {moment(wide.start)} … {moment(wide.end)} UTC", level=4)
        hours = hours_of_week(requests, adapter, wide)
        if not hours["mean"].sum():
            notes.nothing("It was not asked for in this time.")
        else:
            told_so = "Mean requests an hour by hour of the week"
            charts.chart(f"hours_{number}", adapter_figures.hours_of_week(hours, colour_of(adapter)), told_so)
    losing, taking = st.columns(2, gap="large")
    for column, mine_is, other, title, unit in (
        (losing, "adapter", "by", "Who evicts it", "times it was evicted for this one"),
        (taking, "by", "adapter", "Whom it evicts", "times this one was evicted for it"),
    ):
        with column:
            pairs = told.pairs.filter(pl.col(mine_is) == adapter).group_by(other).agg(pl.col("count").sum())
            notes.heading(f"{title}: {pairs['count'].sum():,} swaps", level=4)
            if pairs.is_empty():
                notes.nothing("Nobody, in this time.")
            else:
                charts.chart(f"swaps_{other}_{number}", adapter_figures.others(pairs, other, unit), title)
    pages.link("timeline", "Follow it on the timeline", page.view.of("adapter", [adapter]))


page = scene.scene()
view, window = page.view, page.window
wide = Window(max(min(window.start, window.end - WEEK), 0), window.end)
told = page.told(questions.slots(page))
earlier = page.told(questions.earlier(page))
spans = page.told(questions.closed(page))
if questions.is_wide(page) and spans == []:
    notes.unworked()
inside = page.parts(questions.requests(page, spans)) if spans is not None else []

if told is not None and earlier is not None:
    requests = joined(inside)
    whole = known(told, requests, earlier, window)
    if whole.rows.is_empty():
        notes.nothing("No request for an adapter, and no adapter in a slot, is stored of this window and these pods.")
    else:
        st.html(adapter_words.new(whole))
        search = st.text_input("Search", key="lw_adapters_search", placeholder="a part of a name, a family or a pool", width=420)
        shown = adapter_words.rows(whole, search)
        cut = f"Slots, residency and loads are of {moment(told.window.start)} … {moment(told.window.end)} UTC" + (
            ", the last hours of the window; requests are of all of it." if told.window.start > window.start else "."
        )
        notes.plain(f"{shown.height:,} of {whole.rows.height:,} adapters. {cut} Choose a row to see more of it.")
        picked = tables.table("adapters", shown, adapter_words.ROWS, pick=True)
        chosen = tuple(shown["adapter"][row] for row in picked)
        if chosen != st.session_state.get(PICKED, ()):
            st.session_state[PICKED] = chosen
            scene.change(view.of("adapter", chosen))
            st.rerun()
        advice.show(page, "What to pin", ("pins", "preload", "unpin"))
        if view.adapter:
            week = replace(page, window=wide)
            closed = week.told(questions.closed(week))
            longer = joined(week.parts(questions.requests(week, closed or ())))
            begun = min((at for at in (earlier.begun, longer["first"].min()) if isinstance(at, int)), default=wide.start)
            of = Window(max(wide.start, min(begun, wide.end - 1)), wide.end)
            for number, adapter in enumerate(view.adapter[:3]):
                about(number, adapter, told, whole, of, longer)
                if len(view.adapter) > 1:
                    st.divider()
