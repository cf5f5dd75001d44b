"""Latency: what did swaps cost, in waiting and in GPU time?"""

from typing import Any

import polars as pl
import streamlit as st

from lora_watch.derive.contrast import WARNING
from lora_watch.diagnose.words import count, span
from lora_watch.explore import figures, panels
from lora_watch.explore.columns import Column
from lora_watch.explore.latency import Latency, summary
from widgets import charts, notes, questions, scene, tables

POOL = ("cluster", "pool", "role")
ESTIMATES = (
    ("by replay: without loads it had not been slow", "attributable_fraction"),
    ("its own load alone, taken off: too little", "own_wait_fraction"),
    ("by risk: slow more often near loads", "risk_ratio_fraction"),
)
CONTRAST = (
    ("raw", "p95_with_eviction_raw_seconds"),
    ("placebo: an eviction after it", "p95_with_eviction_placebo_seconds"),
    ("stratified: as busy a moment", "p95_with_eviction_stratified_seconds"),
)
WORST = {
    "queued": Column("Queued", "at"),
    "pod": Column("Pod"),
    "adapter": Column("Adapter", help="empty: the base model"),
    "ttft_seconds": Column("First token after", "seconds"),
    "own_load_seconds": Column("Own load", "seconds", "time in which the engine stood still for this adapter"),
    "other_load_seconds": Column("Others' loads", "seconds", "time in which it stood still for others"),
    "ttft_without_seconds": Column("Without loads", "seconds", "by replay"),
    "own_miss": Column("Missed"),
    "provenance": Column("Known"),
}


def three(row: dict[str, Any], rows: tuple[tuple[str, str], ...]) -> list[tuple[str, float | None, float | None, float | None]]:
    return [(label, row[name], row[f"{name}_low"], row[f"{name}_high"]) for label, name in rows]


def of_pool(frame: pl.DataFrame, row: dict[str, Any]) -> pl.DataFrame:
    return frame.filter(pl.all_horizontal(pl.col(name).eq_missing(row[name]) for name in POOL))


def shown(told: Latency, row: dict[str, Any], number: int) -> None:
    notes.heading(panels.pool_title(*(row[name] for name in POOL)))
    st.html(summary(row))
    course = of_pool(told.course, row)
    if course.is_empty():
        notes.nothing("No request with a known latency is held of this hour: the agent, or a request log, would tell.")
        return
    charts.chart(
        f"course_{number}", figures.latency_course(course, told.window), "P95 to the first token, with and without loads"
    )
    left, right = st.columns(2, gap="large")
    with left:
        notes.heading("How much of the slowness is loads?", level=4)
        charts.chart(
            f"estimates_{number}",
            figures.estimates(three(row, ESTIMATES), "share of the slow requests", percents=True),
            "Three estimates",
        )
    with right:
        notes.heading("P95 with an eviction in the second before, minus without", level=4)
        charts.chart(
            f"contrast_{number}",
            figures.estimates(three(row, CONTRAST), "difference of P95", percents=False),
            "Three figures side by side",
        )
        warning = row["p95_with_eviction_warning"] or WARNING
        notes.plain(f"None of the three stands alone: what is not 0 for the placebo is no effect, and it {warning}.")
    around = of_pool(told.around, row)
    left, right = st.columns(2, gap="large")
    with left:
        notes.heading("Around an eviction", level=4)
        if around.is_empty():
            notes.nothing("No eviction with requests around it.")
        else:
            charts.chart(f"around_{number}", figures.around_evictions(around), "Mean latency around evictions")
            notes.plain("A picture, not an estimate. A dip just before 0 is selection: an idle engine loads at once.")
    with right:
        notes.heading("The longest waits", level=4)
        worst = of_pool(told.worst, row)
        charts.chart(f"worst_{number}", figures.worst_waits(worst, 12), "What the longest waits were for")
    with st.expander(f"The {count(worst.height, 'longest wait')} one by one"):
        tables.table(f"waits_{number}", worst, WORST)


page = scene.scene()
told = page.told(questions.cost(page))
if told is not None:
    notes.plain(f"Of the last {span(told.window.seconds)} of the window: each request is replayed as if loads took no time.")
    if told.pools.is_empty():
        notes.nothing("No request and no load is held of this time.")
    for number, row in enumerate(told.pools.to_dicts()):
        shown(told, row, number)
