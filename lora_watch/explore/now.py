"""
What the page *Now* shows: the four numbers of each pool, how they went in the last hour, and what its GPUs were busy with.

Numbers are of the last hour of the window, which is their usual span; each point of a course is of its own bin, but for the
active adapters, which are those of the hour up to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from lora_watch.derive.groups import POOL
from lora_watch.diagnose.diagnosis import Margin
from lora_watch.explore.around import RESIDENT
from lora_watch.explore.queries import FIGURES, LONGEST_STEPS, Frames, Past
from lora_watch.model import HOUR, MINUTE, SECOND, Window
from lora_watch.store.tables import Store

BINS = 12
"""Points of a course: five minutes each in an hour."""
SHORTEST_BIN = MINUTE
SAMPLES_NEAR = 20 * MINUTE
"""Samples so far from a bin say what held in it: a few looks, however rare."""
SUPPORTED = 8
"""Stays that have to be watched at every age up to the median for it to be told without a word of caution."""
_KEPT: Mapping[str, tuple[str, ...]] = {
    "residency": (
        *("p50_seconds", "p95_seconds", "p50_lower_bound_seconds", "p95_lower_bound_seconds", "completed", "censored"),
        "at_risk_min",
    ),
    "swaps": ("swaps", "loads", "cold", "pods", "swaps_per_second_per_pod"),
    "misses": ("requests", "miss_ratio"),
    "occupancy": ("slots", "active_adapters", "active_per_slot_ratio"),
    "inference_share": ("share_low", "share_high", "grade", "adapter_share", "busy_ratio"),
}
"""What is kept of each figure."""
_COURSE: Mapping[str, tuple[str, ...]] = {
    "residency": ("p50_seconds",),
    "swaps": ("swaps_per_second_per_pod",),
    "inference_share": ("share_high", "busy_ratio"),
}


@dataclass(frozen=True, slots=True)
class Now:
    """
    ``pools``, a row a pool: the columns of ``_KEPT`` with ``<figure>_provenance``; ``course``, a row a pool and bin: ``at`` (its
    end, µs UTC) with p50_seconds, swaps_per_second_per_pod, active_per_slot_ratio, share_high, busy_ratio. Unknown is null.
    """

    window: Window
    pools: pl.DataFrame
    course: pl.DataFrame


def now(store: Store, window: Window, lookback: int) -> Now:
    """The numbers of the end of a window. StoreError where a table can't be read."""
    last = Window(max(window.start, window.end - HOUR), window.end)
    wide = Window(last.start - HOUR, last.end)
    read = Frames(store, wide, Past(store, min(lookback, RESIDENT), brief=True))
    bins = _bins(last)
    asked = {(name, last): _figure(_In(read, last), name, columns) for name, columns in _KEPT.items()}
    steps = read.steps.filter(pl.col("kind").is_in(["steps", "load"]) | (pl.col("at") < wide.start)).collect().lazy()
    parts_of = [_Bin(read, part, steps, wide.start) for part in bins if part != last]
    asked |= {(name, one.window): _figure(one, name, columns) for name, columns in _COURSE.items() for one in parts_of}
    told = {which: figure.collect() for which, figure in asked.items()}
    parts = {name: told[name, last] for name in _KEPT}
    courses = [
        pl.concat([told[name, part].select(*POOL, *columns).with_columns(at=part.end) for part in bins])
        for name, columns in _COURSE.items()
    ]
    active = _active(read.requests, bins).join(parts["occupancy"].select(*POOL, "slots"), on=POOL, how="left", nulls_equal=True)
    courses.append(active.select(*POOL, "at", active_per_slot_ratio=pl.col("active") / pl.col("slots")))
    return Now(last, _joined(list(parts.values()), POOL), _joined(courses, (*POOL, "at")))


def _figure(read: "_In", name: str, columns: Sequence[str]) -> pl.LazyFrame:
    figure = FIGURES[name](read, POOL)  # type: ignore[arg-type]  # all that a figure reads of frames
    return figure.select(*POOL, *columns, pl.col("provenance").alias(f"{name}_provenance"))


def _active(requests: pl.LazyFrame, bins: Sequence[Window]) -> pl.DataFrame:
    """Distinct adapters of each pool that were asked for in the hour up to the end of each bin, as far as requests tell."""
    asked = requests.filter(pl.col("adapter").is_not_null()).select(
        *POOL, "adapter", begin=pl.coalesce("queued", "arrived", "finished"), end="at"
    )
    spans = asked.group_by(*POOL, "adapter", minute=pl.col("end") // MINUTE).agg(pl.col("begin").min(), pl.col("end").max())
    held = spans.collect(engine="streaming")
    counted = [
        held.filter((pl.col("begin") < part.end) & (pl.col("end") >= part.end - HOUR))
        .group_by(POOL)
        .agg(active=pl.col("adapter").n_unique().cast(pl.Int64))
        .with_columns(at=part.end)
        for part in bins
    ]
    return pl.concat(counted)


class _In:
    """Frames of a wide window, asked about a part of it."""

    def __init__(self, read: Frames, window: Window) -> None:
        self._read = read
        self.window = window

    def __getattr__(self, name: str) -> object:
        return getattr(self._read, name)


class _Bin(_In):
    """
    A small part: of steps and samples those around it, and what from before ``begin`` tells that an engine is there at all. Each
    of many parts would else put all of them in order.
    """

    def __init__(self, read: Frames, window: Window, steps: pl.LazyFrame, begin: int) -> None:
        super().__init__(read, window)
        at = pl.col("at")
        self.steps = steps.filter((at < begin) | at.is_between(window.start, window.end + LONGEST_STEPS))
        self.samples = read.samples.filter(at.is_between(window.start - SAMPLES_NEAR, window.end + SAMPLES_NEAR))


def _bins(window: Window) -> list[Window]:
    step = max((window.end - window.start) // BINS, SHORTEST_BIN)
    return [Window(max(end - step, window.start), end) for end in range(window.end, window.start, -step)][::-1]


def _joined(parts: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.join(part, on=list(keys), how="full", coalesce=True, nulls_equal=True)
    return whole.sort(keys)


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on each number is trouble, as the diagnosis has it; None: not known, or no such limit."""

    swaps_per_second: float | None = None
    mean_stay_seconds: float | None = None
    inference_share: float | None = None


def limits(margins: Sequence[Margin], row: Mapping[str, object]) -> Limits:
    """
    The limits of a pool in the units of its numbers, from those of its margins and its row of :class:`Now`.

    Swaps: the limit of swaps per request × requests per second and pod. Stays: by Little's law, slots per pod ÷ that rate:
    shorter ones on average mean more swaps. Inference: what is left of the GPU's time at the limit of the time spent on loads.
    """
    known = {margin.name: margin.limit for margin in margins}
    requests, pods, slots = (row.get(name) for name in ("requests", "pods", "slots"))
    swaps = None
    if (share := known.get("swaps_per_request")) and isinstance(requests, int) and isinstance(pods, int) and pods and requests:
        swaps = share * requests / pods / (HOUR / SECOND)
    stay = slots / pods / swaps if swaps and isinstance(slots, int) and isinstance(pods, int) else None
    stall = known.get("stall_share")
    return Limits(swaps, stay, None if stall is None else 1 - stall)
