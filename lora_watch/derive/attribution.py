"""How much latency and how many slow requests adapters' loads caused: by replay, and by three estimates to hold beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.bootstrap import (
    BLOCK,
    REPLICATES,
    Floats,
    Interval,
    block_weights,
    interval,
    quantiles,
    ratio_interval,
    standardised,
)
from lora_watch.derive.contrast import LEVEL, WARNING, contrast, places, tail_edges
from lora_watch.derive.groups import BY_POD, group_columns, ranked_provenance, said_once, worst_provenance
from lora_watch.derive.stalls import stalls
from lora_watch.derive.stays import counted
from lora_watch.model import SECOND, Window

Measure = Literal["ttft", "e2e"]
EXPOSURE = SECOND
"""µs from the begin of an eviction in which requests that come count as exposed to it."""
IN_FLIGHT_CLASSES, ARRIVAL_CLASSES = 12, 4
"""Classes of how many others a request came upon, and of arrivals in the second before; fewer where many are alike."""
_HOST = ["cluster", "pod", "engine"]
MOST_UNREPLAYED = 0.01
"""Share of requests without a replay above which nothing is said by replay."""
AROUND_SECONDS = (-5.0, 15.0, 0.5)
"""From, to and step of :func:`around_evictions`, seconds."""


def attribution(
    replayed: pl.DataFrame,
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    slow_seconds: float | None = None,
    measure: Measure = "ttft",
    replicates: int = REPLICATES,
    seed: int = 0,
) -> pl.DataFrame:
    """
    What loads did to the latency of the requests queued in the window, one row per group.

    ``replayed`` are rows of :func:`~lora_watch.derive.queue_replay.queue_replay`, ``events`` those it was made from.
    ``measure`` is the latency that counts: to the first token, or to the last. Columns, after the group's:

    * ``requests`` (with a known latency, on an engine whose loads are told), ``unknown`` (the others: left out), ``replayed``
      (of the requests: with a latency without stalls), ``unknown_loads``, ``blocks``;
    * ``slow_seconds``: the latency above which a request is slow: as given (a service's objective), else the P95 of the
      latency without stalls, so that a twentieth is slow even in a world without loads; ``slow``: how many were;
    * ``p95_seconds``, ``p95_without_seconds`` and their difference ``p95_effect_seconds``; ``mean_delay_seconds``: latency minus
      latency without, per request; ``own_wait_seconds``: of it the mean wait for the own adapter's load. The rest is what
      loads of others and the queues behind them cost;
    * ``attributable_fraction``: slow requests that would not have been slow without stalls ÷ slow requests;
    * ``own_wait_fraction``: the same by taking each request's own load wait off its latency, nothing else: what one sees
      without a replay, and too little;
    * ``risk_ratio_fraction``: ``P(exposed | slow) · (1 − 1 ÷ RR)``, RR being P(slow | exposed) ÷ P(slow | not exposed); exposed:
      an eviction on the engine that began in the last second, or the request's adapter not in a slot when it was queued. In
      terms of counts: slow and exposed minus those expected there at the risk of the others, ÷ slow; in this form it is summed
      over strata (as in :class:`~lora_watch.derive.contrast.Contrast`), so that busy moments are compared with busy moments. It
      needs no replay, and falls short under queueing. Below 0: the exposed fared better;
    * ``p95_with_eviction_raw_seconds``, ``p95_with_eviction_placebo_seconds``, ``p95_with_eviction_stratified_seconds`` and
      ``p95_with_eviction_warning``: see :class:`~lora_watch.derive.contrast.Contrast`; never show one without the others;
    * ``…_low``, ``…_high`` of each estimate: 95 % interval by block bootstrap, blocks of ten minutes over all pods of the group,
      ``replicates`` draws, the same for the same ``seed``. ``slow_seconds`` is held fixed. Null with fewer than six blocks;
    * ``replay_error_seconds``: P95 of how far the replay with stalls missed the recorded ends (absolute): beside a small
      effect it must be smaller still; ``provenance``.

    Edge cases. Groups are those with a request queued in the window. A fraction is null where nothing was slow. Where more than
    ``MOST_UNREPLAYED`` of the requests met a load of unknown length (all of them may, in a log made from an engine's own lines)
    whatever needs the replay is null: those that met none are the lucky ones. What is left is the risk ratio, against a given
    ``slow_seconds``, and the contrast.
    """
    keys = group_columns(by)
    schema: dict[str, _Type] = {**dict.fromkeys(keys, pl.String), **SCHEMA}
    parts = []
    for key, asked in _asked(replayed, events, window, keys, measure):
        told = _estimates(asked, slow_seconds, block_weights(asked.blocks, replicates, seed) if asked.blocks else None)
        parts.append(dict(zip(keys, key, strict=True)) | told)
    return pl.DataFrame(parts, schema=schema).sort(keys)


_INTERVALS = (
    "p95_effect_seconds",
    "mean_delay_seconds",
    "own_wait_seconds",
    "attributable_fraction",
    "own_wait_fraction",
    "risk_ratio_fraction",
    "p95_with_eviction_raw_seconds",
    "p95_with_eviction_placebo_seconds",
    "p95_with_eviction_stratified_seconds",
)
_Type = pl.DataType | type[pl.DataType]
SCHEMA: Mapping[str, _Type] = {
    "requests": pl.Int64,
    "unknown": pl.Int64,
    "replayed": pl.Int64,
    "unknown_loads": pl.Int64,
    "blocks": pl.Int64,
    "slow_seconds": pl.Float64,
    "slow": pl.Int64,
    "p95_seconds": pl.Float64,
    "p95_without_seconds": pl.Float64,
    **{f"{name}{suffix}": pl.Float64 for name in _INTERVALS for suffix in ("", "_low", "_high")},
    "p95_with_eviction_warning": pl.String,
    "replay_error_seconds": pl.Float64,
    "provenance": pl.String,
}
"""Columns of :func:`attribution` behind the group's."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The requests of a group with a known latency, as arrays, and counts of the rest; ``without`` is NaN where unknown."""

    latency: Floats
    without: Floats
    own_wait: Floats
    hit: NDArray[np.bool_]
    exposed: NDArray[np.bool_]
    exposed_next: NDArray[np.bool_]
    stratum: NDArray[np.int64]
    block: NDArray[np.int64]
    blocks: int
    error: Floats
    unknown: int
    unknown_loads: int
    provenance: str | None


def _asked(
    replayed: pl.DataFrame, events: pl.LazyFrame, window: Window, keys: Sequence[str], measure: Measure
) -> Iterator[tuple[tuple[object, ...], _Asked]]:
    inside = replayed.filter(pl.coalesce("queued", "at").is_between(window.start, window.end, closed="left"))
    latency, without = f"{measure}_seconds", f"{measure}_without_seconds"
    known = pl.col(latency).is_not_null() & pl.col("own_miss").is_not_null()
    rows = inside.filter(known)
    rows = _with_residents(rows, events).with_columns(_exposures(rows, evictions(events)))
    groups = inside.group_by(keys).agg(worst_provenance(), unknown=(~known).sum(), unknown_loads=pl.col("unknown_loads").sum())
    by_key = rows.partition_by(keys, as_dict=True)
    for row in groups.iter_rows(named=True):
        key = tuple(row[name] for name in keys)
        part = by_key.get(key, rows.clear())
        block = (part["queued"].to_numpy() - window.start) // BLOCK
        numbers, block = np.unique(block, return_inverse=True)
        yield (
            key,
            _Asked(
                part[latency].to_numpy(),
                part[without].fill_null(np.nan).to_numpy(),
                part["own_load_seconds"].fill_null(np.nan).to_numpy(),
                ~part["own_miss"].to_numpy().astype(np.bool_),
                (part["exposed"] | (part["own_miss"] & ~part["resident"])).to_numpy().astype(np.bool_),
                part["exposed_next"].to_numpy().astype(np.bool_),
                _strata(part),
                block,
                len(numbers),
                part["replay_error_seconds"].abs().fill_null(np.nan).to_numpy(),
                row["unknown"],
                row["unknown_loads"],
                row["provenance"],
            ),
        )


def evictions(events: pl.LazyFrame) -> pl.DataFrame:
    """
    When each engine began to make room: cluster, pod, engine, ``at`` (µs UTC), sorted; one row per eviction from a slot.

    An eviction is told when the load behind it is nearly or wholly done, so ``at`` is the begin of the stall that it fell into
    (loads without a gap between them are one stall); where no load's length is known there, the time of its record.
    """
    gone = (pl.col("kind") == "evict") & (pl.col("tier") == "gpu") & (pl.col("reason").fill_null("lru") == "lru") & counted()
    told = events.filter(gone).filter(said_once()).select(*_HOST, "at")
    spans = (
        stalls(events)
        .filter(pl.col("start") < pl.col("end"))
        .sort(*_HOST, "start")
        .with_columns(fresh=(pl.col("start") > pl.col("end").shift(1).over(_HOST)).fill_null(value=True))
        .with_columns(number=pl.col("fresh").cum_sum())
        .group_by(*_HOST, "number")
        .agg(pl.col("start").min(), pl.col("end").max())
        .select(*_HOST, "start", "end")
    )
    return (
        told.sort("at")
        .join_asof(spans.sort("start"), left_on="at", right_on="start", by=_HOST, strategy="backward", check_sortedness=False)
        .select(*_HOST, at=pl.when(pl.col("at") <= pl.col("end")).then("start").otherwise("at"))
        .sort(*_HOST, "at")
        .collect()
    )


def _with_residents(rows: pl.DataFrame, events: pl.LazyFrame) -> pl.DataFrame:
    """The rows with ``resident``: what was last said of the adapter before the request was queued is that it entered a slot."""
    said = events.filter(
        pl.col("kind").is_in(["load", "evict"]) & (pl.col("tier") == "gpu") & pl.col("ok").ne_missing(False) & counted()
    )
    last = said.select(*_HOST, "adapter", said_at="at", resident=pl.col("kind") == "load").sort("said_at", "resident").collect()
    joined = (
        rows.with_row_index("place")
        .sort("queued")
        .join_asof(
            last, left_on="queued", right_on="said_at", by=[*_HOST, "adapter"], strategy="backward", check_sortedness=False
        )
    )
    return joined.sort("place").drop("place", "said_at").with_columns(pl.col("resident").fill_null(value=False))


def _exposures(rows: pl.DataFrame, gone: pl.DataFrame) -> list[pl.Series]:
    """Whether an eviction on its engine began in the second before a request was queued, and in that after; arrivals before."""
    before, after = np.zeros(rows.height, dtype=np.bool_), np.zeros(rows.height, dtype=np.bool_)
    recent = np.zeros(rows.height, dtype=np.int64)
    evicted = {key: part["at"].to_numpy() for key, part in gone.partition_by(_HOST, as_dict=True).items()}
    for key, part in rows.with_row_index("place").partition_by(_HOST, as_dict=True).items():
        at, place = part["queued"].to_numpy(), part["place"].to_numpy()
        came = np.sort(at)
        recent[place] = np.searchsorted(came, at, side="left") - np.searchsorted(came, at - EXPOSURE, side="right")
        if key in evicted:
            times = evicted[key]
            here = np.searchsorted(times, at, side="right")
            before[place] = here > np.searchsorted(times, at - EXPOSURE, side="right")
            after[place] = np.searchsorted(times, at + EXPOSURE, side="right") > here
    return [pl.Series("exposed", before), pl.Series("exposed_next", after), pl.Series("recent", recent)]


def _strata(rows: pl.DataFrame) -> NDArray[np.int64]:
    """A number for each engine and class of how busy it was: requests there already, arrivals in the last second."""
    if not rows.height:
        return np.empty(0, dtype=np.int64)
    there = _classes(rows["in_flight_before"].to_numpy(), IN_FLIGHT_CLASSES)
    recent = _classes(rows["recent"].to_numpy(), ARRIVAL_CLASSES)
    engines = rows.select(pl.struct(_HOST).rank("dense")).to_series().to_numpy().astype(np.int64)
    code = (engines * IN_FLIGHT_CLASSES + there) * ARRIVAL_CLASSES + recent
    return np.asarray(np.unique(code, return_inverse=True)[1])


def _classes(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    edges = np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[1:-1], method="lower"))
    return np.asarray(np.searchsorted(edges, values, side="left"))


def _estimates(asked: _Asked, slow_seconds: float | None, weights: Floats | None) -> dict[str, object]:
    replayed = ~np.isnan(asked.without)
    told: dict[str, object] = dict.fromkeys(SCHEMA)
    told |= {
        "requests": len(asked.latency),
        "unknown": asked.unknown,
        "replayed": int(replayed.sum()),
        "unknown_loads": asked.unknown_loads,
        "blocks": asked.blocks,
        "provenance": asked.provenance,
        "p95_with_eviction_warning": WARNING,
        "slow_seconds": slow_seconds,
    }
    if weights is None:
        return told
    told["p95_seconds"] = _p95(asked.latency)
    limit = slow_seconds
    if replayed.mean() >= 1 - MOST_UNREPLAYED:
        limit = _p95(asked.without[replayed]) if limit is None else limit
        told |= _by_replay(asked, replayed, limit, weights)
    if limit is not None:
        slow = asked.latency > limit
        told |= {"slow_seconds": limit, "slow": int(slow.sum())}
        _put(told, "risk_ratio_fraction", *_risk_ratio_fraction(asked, slow, weights))
    hit = asked.hit
    three = contrast(
        asked.latency[hit],
        exposed=asked.exposed[hit],
        exposed_next=asked.exposed_next[hit],
        stratum=asked.stratum[hit],
        block=asked.block[hit],
        weights=weights,
    )
    for name in ("raw", "placebo", "stratified"):
        _put(told, f"p95_with_eviction_{name}_seconds", getattr(three, name), getattr(three, f"{name}_interval"))
    return told


def _by_replay(asked: _Asked, replayed: NDArray[np.bool_], limit: float, weights: Floats) -> dict[str, object]:
    """What needs a latency without stalls, from the requests that have one."""
    latency, without, own = asked.latency[replayed], asked.without[replayed], asked.own_wait[replayed]
    block = asked.block[replayed]
    slow = latency > limit
    told: dict[str, object] = {
        "p95_without_seconds": _p95(without),
        "replay_error_seconds": _p95(asked.error[replayed]),
    }
    for name, above, below in (
        ("mean_delay_seconds", latency - without, np.ones(len(slow))),
        ("own_wait_seconds", own, np.ones(len(slow))),
        ("attributable_fraction", slow & (without <= limit), slow),
        ("own_wait_fraction", slow & (latency - own <= limit), slow),
    ):
        sums = [np.bincount(block, part.astype(np.float64), asked.blocks) for part in (above, below)]
        value = float(sums[0].sum() / sums[1].sum()) if sums[1].sum() else None
        _put(told, name, value, ratio_interval(weights, *sums))
    _put(told, "p95_effect_seconds", *_effect(latency, without, block, weights))
    return told


def _p95(values: Floats) -> float:
    return float(np.quantile(values, LEVEL, method="higher"))


def _put(told: dict[str, object], name: str, value: float | None, span: Interval) -> None:
    told |= {name: value, f"{name}_low": span.low, f"{name}_high": span.high}


def _effect(latency: Floats, without: Floats, block: NDArray[np.int64], weights: Floats) -> tuple[float, Interval]:
    """P95 as it was minus P95 without stalls."""
    both = np.concatenate([without, latency])
    edges = tail_edges(without, latency)
    histograms = standardised(
        weights,
        block=np.tile(block, 2),
        stratum=np.zeros(len(both), dtype=np.int64),
        exposed=np.arange(len(both)) >= len(without),
        place=places(edges, both),
    )
    difference = quantiles(histograms[:, 1], edges, LEVEL) - quantiles(histograms[:, 0], edges, LEVEL)
    return _p95(latency) - _p95(without), interval(difference, blocks=weights.shape[1])


def _risk_ratio_fraction(asked: _Asked, slow: NDArray[np.bool_], weights: Floats) -> tuple[float | None, Interval]:
    """Slow and exposed minus what was to be expected there, ÷ all slow; strata without both kinds give nothing."""
    all_once = np.vstack([np.ones(weights.shape[1]), weights])
    histograms = standardised(
        all_once, block=asked.block, stratum=asked.stratum, exposed=asked.exposed, place=slow.astype(np.int64)
    )
    every = all_once @ np.bincount(asked.block, slow, asked.blocks)
    if histograms.shape[2] < 2 or every[0] == 0:
        return None, Interval(None, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(every > 0, (histograms[:, 1, 1] - histograms[:, 0, 1]) / every, np.nan)
    return float(values[0]), interval(values[1:], blocks=asked.blocks)


def around_evictions(
    replayed: pl.DataFrame,
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    measure: Measure = "ttft",
    replicates: int = REPLICATES,
    seed: int = 0,
) -> pl.DataFrame:
    """
    Mean latency of hits by how long before or after an eviction on their engine they were queued: a picture, not an estimate.

    Columns: the group's, ``lag_seconds`` (the step's begin; below 0: before the eviction), ``latency_seconds`` with ``_low`` and
    ``_high`` (95 %, block bootstrap by the evictions' blocks), ``without_seconds`` (mean latency of the same requests without
    stalls), ``pairs`` (of an eviction and a request; a request near two evictions counts twice), ``provenance``. A dip just
    before 0 is selection: an engine loads at once when it is idle. Steps without a pair have no row.

    Formula: with requests sorted by time and C their running sums, the sum over evictions e of
    ``C(e + lag + step) − C(e + lag)``.
    """
    keys = group_columns(by)
    if "adapter" in keys:
        raise ValueError("an eviction is an event of an engine: group by pod or pool, not by adapter")
    first, last, step = (round(value * SECOND) for value in AROUND_SECONDS)
    lags = np.arange(first, last + 1, step, dtype=np.int64)
    hits = replayed.filter(
        ~pl.col("own_miss") & pl.col(f"{measure}_seconds").is_not_null() & pl.col(f"{measure}_without_seconds").is_not_null()
    ).sort("queued")
    gone = {key: part["at"].to_numpy() for key, part in evictions(events).partition_by(_HOST, as_dict=True).items()}
    blocks = int(-(-(window.end - window.start) // BLOCK))
    sums: dict[tuple[object, ...], NDArray[np.float64]] = {}
    worst: dict[tuple[object, ...], str | None] = {}
    group = [*keys, *(name for name in _HOST if name not in keys)]
    for key, part in hits.partition_by(group, as_dict=True).items():
        named = dict(zip(group, key, strict=True))
        at = gone.get(tuple(named[name] for name in _HOST), np.empty(0, dtype=np.int64))
        at = at[(at >= window.start) & (at < window.end)]
        running = np.zeros((3, part.height + 1))
        running[0, 1:] = np.arange(1, part.height + 1)
        for row, name in ((1, f"{measure}_seconds"), (2, f"{measure}_without_seconds")):
            running[row, 1:] = np.cumsum(part[name].to_numpy())
        places = np.searchsorted(part["queued"].to_numpy(), at[:, None] + lags[None, :])
        found = np.diff(running[:, places], axis=2)  # (3, evictions, steps)
        own = sums.setdefault(key[: len(keys)], np.zeros((3, blocks, len(lags) - 1)))
        np.add.at(own.swapaxes(0, 1), (at - window.start) // BLOCK, found.swapaxes(0, 1))
        provenance = part.select(worst_provenance()).item()
        worst[key[: len(keys)]] = max(
            (one for one in (worst.get(key[: len(keys)]), provenance) if one is not None),
            key=lambda one: pl.Series([one]).to_frame("provenance").select(ranked_provenance().to_physical()).item(),
            default=None,
        )
    weights = block_weights(blocks, replicates, seed)
    rows = []
    for key, own in sorted(sums.items(), key=lambda item: tuple(map(str, item[0]))):
        for place in np.flatnonzero(own[0].sum(axis=0)).tolist():
            pairs, total, without = own[:, :, place].sum(axis=1)
            span = ratio_interval(weights, own[1, :, place], own[0, :, place])
            rows.append(
                dict(zip(keys, key, strict=True))
                | {
                    "lag_seconds": lags[place] / SECOND,
                    "latency_seconds": total / pairs,
                    "latency_seconds_low": span.low,
                    "latency_seconds_high": span.high,
                    "without_seconds": without / pairs,
                    "pairs": int(pairs),
                    "provenance": worst[key],
                }
            )
    names = ("lag_seconds", "latency_seconds", "latency_seconds_low", "latency_seconds_high", "without_seconds")
    schema = dict.fromkeys(keys, pl.String) | dict.fromkeys(names, pl.Float64) | {"pairs": pl.Int64, "provenance": pl.String}
    return pl.DataFrame(rows, schema=schema)
