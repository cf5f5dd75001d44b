"""What the page *Sources* shows: who was heard, how late, how well, what it can't tell and how to get it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import POD, ranked_provenance
from lora_watch.explore.around import RESIDENT
from lora_watch.explore.doctor import INSTALL_AGENT, knowable
from lora_watch.explore.queries import FIGURES, Frames, Past
from lora_watch.model import HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Table
from lora_watch.store.tables import Store

STRIPS = 72
"""Steps of time in which it is shown who could be reached."""
SHORTEST_STEP = MINUTE
ENDPOINTS = {"agent": "sidecar", "metrics": "page"}
"""What was looked at, by the label of a look, and what it is called."""
_WORKER = ("load", "evict", "use")
_API = ("register", "unregister")


@dataclass(frozen=True, slots=True)
class Heard:
    """
    Of the last hour of a window. ``pods``, a row a pod: ``page`` and ``sidecar`` (share of looks that reached it; null: nobody
    looked), ``events_lag_seconds``, ``requests_lag_seconds``, ``samples_lag_seconds`` (its newest row to the end of the window;
    null: none), ``events_provenance``, ``requests_provenance``, ``clock_offset_seconds`` (pod − ours, the newest),
    ``little_residual_ratio``, ``lost``. ``gaps``, a row a pod and question it can't answer: what, why, how. ``sources``, a row a
    source and table: rows, pods, lag_seconds, provenance.
    """

    window: Window
    pods: pl.DataFrame
    gaps: pl.DataFrame
    sources: pl.DataFrame


def heard(store: Store, window: Window, lookback: int) -> Heard:
    """StoreError where a table can't be read."""
    last = Window(max(window.start, window.end - HOUR), window.end)
    events, requests, samples = (store.scan(table, last) for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES))
    of_events = _collected(
        events.group_by(POD).agg(
            newest_event=pl.col("at").max(),
            events_provenance=ranked_provenance().max().cast(pl.String),
            kinds=pl.col("kind").unique(),
            clocks=pl.col("clock").drop_nulls().unique(),
            has_slots=pl.col("slots").is_not_null().any(),
            lost=pl.col("count").filter(pl.col("kind") == "lost").sum(),
        )
    )
    of_requests = _collected(
        requests.group_by(POD).agg(
            newest_request=pl.col("at").max(),
            requests_provenance=ranked_provenance().max().cast(pl.String),
            requests=pl.len().cast(pl.Int64),
        )
    )
    of_samples = _collected(
        samples.group_by(POD).agg(
            newest_sample=pl.col("at").max(),
            metrics=pl.col("metric").unique(),
            clock_offset_seconds=pl.col("value").filter(pl.col("metric") == names.SAMPLE_CLOCK_OFFSET).last(),
            page=_reached("metrics"),
            sidecar=_reached("agent"),
        )
    )
    read = Frames(store, last, Past(store, min(lookback, RESIDENT), brief=True))
    little = FIGURES["little"](read, POD).select(*POD, little_residual_ratio="residual_ratio").collect()
    whole = of_events
    for part in (of_requests, of_samples, little):
        whole = whole.join(part, on=list(POD), how="full", coalesce=True, nulls_equal=True)
    lags = (
        ((last.end - pl.col(f"newest_{one}")) / SECOND).round(1).alias(f"{one}s_lag_seconds")
        for one in ("event", "request", "sample")
    )
    told = whole.with_columns(lags).sort(POD)
    return Heard(last, told.drop("kinds", "clocks", "has_slots", "metrics"), _gaps(told), _sources(store, last))


def reached(window: Window, store: Store, step: int) -> pl.DataFrame:
    """
    Who could be reached when: a row a pod, endpoint and ``step`` µs (``at``, counted from 1970), with ``up`` (share of ``looks``
    that reached it). StoreError where the table can't be read.
    """
    looks = store.scan(SAMPLES, window).filter(pl.col("metric") == names.SAMPLE_SCRAPE_UP)
    return _collected(
        looks.group_by(*POD, endpoint=_endpoint(), at=pl.col("at") // step * step).agg(
            up=pl.col("value").mean(), looks=pl.len().cast(pl.Int64)
        )
    ).sort(*POD, "endpoint", "at")


def lost(window: Window, store: Store) -> pl.DataFrame:
    """Losses: a row a pod and reason, with ``records``, ``first`` and ``last`` (µs UTC). StoreError where it is damaged."""
    gone = store.scan(ADAPTER_EVENTS, window).filter((pl.col("kind") == "lost") & (pl.col("count") > 0))
    return _collected(
        gone.unique(["stream", "seq"], keep="any")
        .group_by(*POD, "reason")
        .agg(records=pl.col("count").sum(), first=pl.col("at").min(), last=pl.col("at").max())
    ).sort(*POD, "reason")


def losses(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """The losses of several windows as those of the whole."""
    whole = pl.concat(parts).group_by(*POD, "reason")
    return whole.agg(pl.col("records").sum(), pl.col("first").min(), pl.col("last").max()).sort("last", descending=True)


def step_of(window: Window) -> int:
    """µs in which :func:`reached` is asked about a window: whole minutes."""
    return max(-(-(window.end - window.start) // STRIPS // MINUTE) * MINUTE, SHORTEST_STEP)


def partial(pods: pl.DataFrame) -> list[str]:
    """What holds for a part of the pods only, in sentences."""
    total = pods.height
    agentless = pods.filter(pl.col("events_provenance").ne_missing("observed")).height
    silent = pods.filter(pl.col("requests_lag_seconds").is_null()).height
    sentences = []
    if agentless:
        sentences.append(f"No agent's events on {agentless} of {total} pods: residency there is inferred, or unknown.")
    if silent:
        sentences.append(f"No finished request of {silent} of {total} pods is held: misses and waits there are unknown.")
    return sentences


def _gaps(told: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for row in told.iter_rows(named=True):
        for finding in knowable(str(row["pod"]), set(row["metrics"] or ()), _logs(row), INSTALL_AGENT):
            if not finding.well:
                rows.append(
                    {**{name: row[name] for name in POD}, "what": finding.asked, "why": finding.found, "how": finding.remedy}
                )
    schema = dict.fromkeys((*POD, "what", "why", "how"), pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row")


def _logs(row: Mapping[str, Any]) -> set[str]:
    """What is written at the pod, as :func:`~lora_watch.explore.doctor.knowable` calls it."""
    kinds = set(row["kinds"] or ())
    logs = {f"clock {clock}" for clock in row["clocks"] or ()}
    if kinds & {*_WORKER} or row["has_slots"]:
        logs.add("worker")
    if row["requests"]:
        logs |= {"requests", "api"}
    if kinds & {*_API}:
        logs.add("api")
    return logs


def _sources(store: Store, window: Window) -> pl.DataFrame:
    return pl.concat([_source(store, table, window) for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)]).sort("source", "table")


def _source(store: Store, table: Table, window: Window) -> pl.DataFrame:
    return _collected(
        store.scan(table, window)
        .group_by("source")
        .agg(
            table=pl.lit(table.name),
            rows=pl.len().cast(pl.Int64),
            pods=pl.struct("cluster", "pod").n_unique().cast(pl.Int64),
            lag_seconds=((window.end - pl.col("at").max()) / SECOND).round(1),
            provenance=ranked_provenance().max().cast(pl.String),
        )
    )


def _reached(endpoint: str) -> pl.Expr:
    looks = (pl.col("metric") == names.SAMPLE_SCRAPE_UP) & (_endpoint() == endpoint)
    return pl.col("value").filter(looks).mean()


def _endpoint() -> pl.Expr:
    return pl.col("labels").str.json_path_match("$.endpoint").fill_null("metrics")


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    return frame.collect(engine="streaming")
