"""Sources: who is heard, how late, how well; what they can't tell, and how to get it."""

import polars as pl

from lora_watch.diagnose.words import count, listed
from lora_watch.explore import figures
from lora_watch.explore.columns import Column
from lora_watch.explore.heard import losses, partial
from widgets import charts, notes, questions, scene, tables

PODS = {
    "pool": Column("Pool"),
    "role": Column("Role"),
    "pod": Column("Pod"),
    "page": Column("Page reached", "bar", "share of the looks at the engine's page that reached it; empty: nobody looked"),
    "sidecar": Column("Sidecar reached", "bar", "the same of the agent's sidecar"),
    "events_lag_seconds": Column("Events behind", "seconds", "from its newest event to the end of the window"),
    "requests_lag_seconds": Column("Requests behind", "seconds"),
    "samples_lag_seconds": Column("Samples behind", "seconds"),
    "events_provenance": Column("Events known", help="the worst provenance of its events; empty: it has none"),
    "requests_provenance": Column("Requests known"),
    "clock_offset_seconds": Column("Clock off by", "seconds", "the pod's clock − ours"),
    "little_residual_ratio": Column(
        "Little residual", "percent", "occupied slots against load rate × mean stay: far from 0, events are missing"
    ),
    "lost": Column("Lost records", "count", "in the last hour; empty: no event"),
}
SOURCES = {
    "source": Column("Source"),
    "table": Column("Table"),
    "rows": Column("Rows in the last hour", "count"),
    "pods": Column("Pods", "count"),
    "lag_seconds": Column("Newest row behind", "seconds"),
    "provenance": Column("Known", help="the worst of its rows"),
}
GAPS = {
    "what": Column("Not known"),
    "pods": Column("On", width="medium"),
    "why": Column("Because"),
    "how": Column("How to get it", width="large"),
}
LOST = {
    "pod": Column("Pod"),
    "reason": Column("Reason"),
    "records": Column("Records", "count"),
    "first": Column("First", "at"),
    "last": Column("Last", "at"),
}

page = scene.scene()
told = page.told(questions.who(page))
if told is not None:
    if told.pods.is_empty():
        notes.nothing("No pod was heard in the last hour of this window.")
    else:
        notes.heading(f"{count(told.pods.height, 'pod')} in the last hour")
        for sentence in partial(told.pods):
            notes.plain(sentence)
        tables.table("pods", told.pods, tables.telling(told.pods, PODS))
    notes.heading("What they can't tell, and how to get it")
    if told.gaps.is_empty():
        notes.plain("Everything that can be known of them is known.")
    else:
        by = told.gaps.group_by("what", "why", "how", maintain_order=True).agg(names=pl.col("pod").fill_null(""))
        named = [f"{count(len(one), 'pod')}: {listed(one, 4)}" for one in by["names"].to_list()]
        tables.table("gaps", by.with_columns(pods=pl.Series(named, dtype=pl.String)).drop("names"), GAPS)

spans = page.told(questions.closed(page))
if questions.is_wide(page) and spans == []:
    notes.unworked()
step, asked = questions.looks_at(page, spans or ())
looks = page.parts(asked) if spans is not None else []
seen = pl.concat(looks) if looks else pl.DataFrame()
notes.heading("Who could be reached")
if seen.is_empty():
    notes.nothing(
        "No look at a target is stored in this window: the rows were imported, or read from a Prometheus or from files."
    )
else:
    charts.chart("reached", figures.reached(seen, page.window, step), "Share of looks that reached each pod, over time")

gone = page.parts(questions.lost_records(page, spans)) if spans is not None else []
notes.heading("Records that were lost")
if not gone or losses(gone).is_empty():
    notes.plain("None in this window, as far as the logs tell.")
else:
    tables.table("lost", losses(gone), LOST)
if told is not None and not told.sources.is_empty():
    notes.heading("Where the rows came from")
    tables.table("sources", told.sources, SOURCES)
