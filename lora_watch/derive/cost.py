"""GPU time and money that went into loading adapters instead of serving."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.boots import boots
from lora_watch.derive.groups import BY_POD, ENGINE, GROUPS, group_columns, overlap_seconds, ranked_provenance
from lora_watch.derive.stalls import stalls
from lora_watch.model import HOUR, SECOND, Window

_HOUR_SECONDS = HOUR / SECOND


def cost(
    events: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    gpus_per_pod: int = 1,
    gpu_hour_price: float | None = None,
    currency: str = "",
) -> pl.LazyFrame:
    """
    What loads cost in the window, one row per group. By adapter it is the adapter that was loaded who pays.

    Columns, after the group's:

    * ``loads`` (of any tier, failed and in place too) that were complete in the window, ``unknown_loads`` (of them: nobody said
      how long they took);
    * ``stall_seconds``: time in which engines of the group stood still for loads, null where any length is unknown, and then
      ``stall_seconds_lower_bound`` is what is known; the two are the same where both are there;
    * ``gpu_hours_lost`` and ``gpu_hours_lost_lower_bound``: ``stall seconds · gpus_per_pod ÷ 3600``, all GPUs of an engine stand
      still together;
    * ``gpu_hours``: engine time in the window ``· gpus_per_pod``, and ``lost_ratio``, their quotient; both null by adapter, whose
      engines are not its own;
    * ``money_lost``, ``money_lost_lower_bound``, ``currency``: hours times ``gpu_hour_price``; null without a price;
    * ``provenance``.

    A load that the window cuts counts with its part. Stall seconds add up over adjoining windows and over adapters, since
    overlapping loads share no time (:func:`~lora_watch.derive.stalls.stalls`). What is not in it: the longer queues behind a
    stall (:func:`~lora_watch.derive.attribution.attribution` says what they did to latency), and the memory of the slots. A load
    while nothing ran is in it although nobody waited: the GPU could not serve.

    Edge cases. Groups are those with an engine that was up in the window (grouped by adapter: those with a load); an engine
    without loads lost 0, which is known. ``gpus_per_pod`` counts the GPUs of one engine; where a pod holds several data-parallel
    engines each counts so many. ValueError for less than one GPU or a price below 0.
    """
    if gpus_per_pod < 1:
        raise ValueError(f"a pod has one GPU at least, got {gpus_per_pod}")
    if gpu_hour_price is not None and not 0 <= gpu_hour_price < float("inf"):
        raise ValueError(f"a GPU hour costs 0 or more, got {gpu_hour_price}")
    keys = group_columns(by)
    unknown, complete = pl.col("start").is_null(), pl.col("at").is_between(window.start, window.end, closed="left")
    there = complete | ((pl.col("start") < window.end) & (pl.col("end") > window.start)).fill_null(value=False)
    lost = (
        stalls(events)
        .filter(there)
        .group_by(keys)
        .agg(
            loads=complete.sum().cast(pl.Int64),
            unknown_loads=(complete & unknown).sum().cast(pl.Int64),
            seconds=overlap_seconds(pl.col("start"), pl.col("end"), window.start, window.end).filter(~unknown).sum(),
            load_provenance=ranked_provenance().max(),
        )
    )
    if "adapter" in keys:
        whole = lost.with_columns(up_seconds=pl.lit(None, dtype=pl.Float64), up_provenance="load_provenance")
    else:
        whole = _up(events, window, keys).join(lost, on=keys, how="full", coalesce=True, nulls_equal=True)
    seconds, hours = pl.col("seconds").fill_null(0.0), gpus_per_pod / _HOUR_SECONDS
    known = pl.col("unknown_loads").fill_null(0) == 0
    price = pl.lit(gpu_hour_price, dtype=pl.Float64)
    return whole.select(
        *keys,
        pl.col("loads", "unknown_loads").fill_null(0),
        stall_seconds=pl.when(known).then(seconds),
        stall_seconds_lower_bound=seconds,
        gpu_hours_lost=pl.when(known).then(seconds * hours),
        gpu_hours_lost_lower_bound=seconds * hours,
        gpu_hours=pl.col("up_seconds") * hours,
        lost_ratio=pl.when(known & (pl.col("up_seconds") > 0)).then(seconds / pl.col("up_seconds")),
        money_lost=pl.when(known).then(seconds * hours * price),
        money_lost_lower_bound=seconds * hours * price,
        currency=pl.lit(currency if gpu_hour_price is not None else None, dtype=pl.String),
        provenance=pl.max_horizontal("load_provenance", "up_provenance").cast(pl.String),
    )


def _up(events: pl.LazyFrame, window: Window, keys: list[str]) -> pl.LazyFrame:
    """Seconds of the window in which the engines of each group were up: boots of one engine that overlap count once."""
    since, until = pl.coalesce("started_at", "first_at"), pl.col("ended_at")
    engine = [*ENGINE]
    spans = (
        boots(events)
        .filter((since < window.end) & (until.is_null() | (until > window.start)))
        .with_columns(
            start=pl.max_horizontal(since, pl.lit(window.start)),
            end=pl.min_horizontal(until.fill_null(window.end), pl.lit(window.end)),
        )
        .sort(*engine, "start")
        .with_columns(before=pl.col("end").cum_max().shift(1).over(engine))
        .with_columns(start=pl.min_horizontal(pl.max_horizontal("start", "before"), "end"))
    )
    return spans.group_by([name for name in GROUPS if name in keys]).agg(
        up_seconds=(pl.col("end") - pl.col("start")).sum() / SECOND, up_provenance=ranked_provenance().max()
    )
