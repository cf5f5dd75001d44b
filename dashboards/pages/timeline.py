"""Timeline: what happened, when, on which pod?"""

from dataclasses import replace

import polars as pl
import streamlit as st

from lora_watch.diagnose.postmortem import as_markdown
from lora_watch.explore import chains, findings, happened
from lora_watch.explore.colours import SEVERITIES
from lora_watch.explore.markup import badge, tag
from lora_watch.explore.timeline import MOST_STAYS, Part, together
from lora_watch.explore.timeline_figures import barred, lanes, timeline_figure
from lora_watch.explore.view import View
from widgets import charts, notes, pages, questions, scene, tables

page = scene.scene()
view, window = page.view, page.window


def show(chosen: View) -> None:
    scene.change(chosen)
    st.rerun()


with st.container(horizontal=True, gap="small", vertical_alignment="center", key="lw_move"):
    for name, span in happened.moves(window, page.end):
        if st.button(name, key=f"lw_move_{name}", disabled=span is None) and span is not None:
            show(replace(view, span=span, live=False))
    notes.plain("Mark a span in the figure to zoom in; click a bar, or a name, to follow an adapter over pods.")

there, spans = page.told(questions.pods(page)), page.told(questions.closed(page))
parts: list[Part] = []
if questions.is_wide(page) and spans == []:
    notes.unworked()
if there is not None and spans is not None:
    pods = there if page.chosen is None else there.filter(page.chosen)
    bin, asked = questions.timeline(page, pods.height, spans)
    parts = page.parts(asked)
incidents = page.later("incidents", findings.told, page.whole, window, page.end, of="incidents") or ()
incidents = tuple(one for one in incidents if not view.pool or one.pool in view.pool)

if parts:
    whole = together(parts)
    followed = view.adapter
    if whole.cells.is_empty() and whole.course.is_empty():
        notes.nothing(
            "Nothing happened in this window, as far as is stored: no load, no eviction, no request of the chosen pods."
        )
    else:
        st.html(happened.legend(whole, view))
        bands = [(one.start, window.end if one.end is None else one.end, SEVERITIES[one.severity]) for one in incidents]
        drawn = timeline_figure(whole, window, bin, followed=followed, bands=bands)
        charts.brushed("timeline", drawn, happened.sentence(whole, window), view, barred(whole))
        untold = whole.pods.filter(~pl.col("told"))
        notes.plain(
            badge(whole.provenance),
            " ",
            happened.drawn(whole, lanes(whole).left_out),
        )
        if not untold.is_empty():
            notes.plain(happened.untold(whole.pods))
        with st.expander("The numbers: stays, and the lines"):
            if whole.stays is not None:
                tables.table("stays", whole.stays, happened.STAYS)
            else:
                notes.plain(f"{whole.count:,} stays: they are listed one by one where there are {MOST_STAYS:,} or fewer.")
            tables.table("course", whole.course, happened.COURSE)

    if followed:
        notes.heading("Followed")
        rows = happened.followed(whole, followed, window)
        if rows.is_empty():
            notes.nothing("None of the chosen adapters sat in a slot in this window, as far as is known.")
        else:
            tables.table("followed", rows, happened.FOLLOWED)
            pages.link("adapters", "More about it", view)

notes.heading("Incidents")
if not incidents:
    serve = tag("code", "lora-watch serve")
    notes.plain("No incident is stored that reaches into this window; ", serve, " stores findings as it makes them.")
for one in incidents:
    st.html(happened.incident(one))
    with st.container(horizontal=True, gap="medium", vertical_alignment="center", key=f"lw_incident_{one.id}"):
        if st.button("Show it", key=f"lw_show_{one.id}", type="tertiary"):
            show(replace(view, span=happened.around(one, page.end), live=False))
        st.download_button(
            "Post-mortem (Markdown)",
            as_markdown(one),
            f"post-mortem-{one.id}.md",
            "text/markdown",
            key=f"lw_postmortem_{one.id}",
            type="tertiary",
            on_click="ignore",
        )

notes.heading("Chains of swaps")
if window.end - window.start > chains.LONGEST:
    notes.plain("Chains are told in windows of three hours or less: mark a span to zoom in.")
else:
    found = page.later("chains", chains.chains, page.store, window, page.lookback, of="chains of swaps")
    if found is not None and found.is_empty():
        notes.plain("No adapter was loaded again, at another's cost, within 30 s of its eviction, three times in a row.")
    elif found is not None:
        st.html(happened.chains(found))
        tables.table("chains", found, happened.CHAINS)
