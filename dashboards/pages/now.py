"""Now: is it thrashing, why, what will help; and is the dashboard lying?"""

from dataclasses import replace

import polars as pl
import streamlit as st

from lora_watch.diagnose.diagnosis import PoolState
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.life import Phase
from lora_watch.explore import panels
from lora_watch.explore.now import Limits, limits
from lora_watch.explore.now_tiles import numbers
from lora_watch.explore.runbooks import runbook
from lora_watch.explore.tiles import share_bar
from lora_watch.model import MINUTE, Window
from widgets import notes, pages, questions, scene

AROUND = 10 * MINUTE
"""So much before and behind a finding is shown of it elsewhere."""


def is_chosen(one: PoolState | Finding) -> bool:
    view = page.view
    wanted = ((view.cluster, one.cluster), (view.pool, one.pool), (view.role, one.role))
    return all(not names or name in names for names, name in wanted)


@st.dialog("Runbook", width="large")
def read_runbook(kind: str) -> None:
    st.markdown(runbook(kind) or "There is none of this kind.")


def card(found: Finding, phase: Phase | None) -> None:
    with st.container(key=f"lw_finding_{found.key}", gap="small"):
        st.html(panels.finding(found, page.window.end, str(phase) if phase else ""))
        with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
            until = page.window.end if found.until is None else found.until
            span = Window(min(found.since, until - MINUTE) - AROUND, until + AROUND)
            pages.link(
                "timeline", "Timeline", replace(page.view, span=span, live=False, pod=found.pods, adapter=found.adapters[:20])
            )
            pages.link("latency", "What it cost", replace(page.view, span=span, live=False))
            if runbook(found.kind) is not None and st.button("Runbook", key=f"lw_runbook_{found.key}", type="tertiary"):
                read_runbook(found.kind)


page = scene.scene()
# the numbers first: a look for findings takes longer, and would hold them up
told = page.told(questions.numbers(page))
known = page.told(questions.stored(page)) or []
look = None
if told is not None:
    look = page.told(questions.findings(page, scene.looks()))

states = {} if look is None else {(one.cluster, one.pool, one.role): one for one in look.diagnosis.pools if is_chosen(one)}
rows = (
    {} if told is None else {tuple(row[name] or "" for name in ("cluster", "pool", "role")): row for row in told.pools.to_dicts()}
)
if look is not None:
    for problem in look.problems:
        notes.trouble(problem)
if told is not None and not rows and not states:
    notes.nothing("No pod was seen in the last hour of this window.")
for key in dict.fromkeys([*states, *rows]):
    notes.heading(panels.pool_title(*key))
    if key in states:
        st.html(panels.state(states[key]))
    if told is not None and key in rows:
        course = told.course.filter(
            pl.all_horizontal(
                pl.col(name).fill_null("") == part for name, part in zip(("cluster", "pool", "role"), key, strict=True)
            )
        )
        st.html(numbers(rows[key], course, limits(states[key].margins, rows[key]) if key in states else Limits()))
        if bar := share_bar(rows[key]):
            st.html(bar)
if look is None and known:  # what a service told, until the page has looked itself
    notes.heading("Findings")
    notes.plain("As they were stored; a look of this page's own is being made.")
    for state in known:
        if is_chosen(state.finding):
            card(state.finding, state.phase)
if look is not None:
    found = [one for one in look.diagnosis.findings if is_chosen(one)]
    notes.heading("Findings")
    if not found and states:
        notes.plain("Nothing was found.")
    for one in found:
        card(one, look.phases.get(one.key))
    if look.diagnosis.gaps:
        with st.expander("What can't be told, and what would tell it"):
            st.html(panels.gaps(look.diagnosis.gaps))
