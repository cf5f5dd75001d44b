"""The four numbers of a pool as tiles."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from lora_watch.diagnose.words import count, percent, span
from lora_watch.explore import colours
from lora_watch.explore.markup import Markup
from lora_watch.explore.now import SUPPORTED, Limits
from lora_watch.explore.tiles import between, tile, tiles


def numbers(row: Mapping[str, Any], course: pl.DataFrame, limits: Limits) -> Markup:
    """``row`` and ``course`` are those of one pool, of :class:`~lora_watch.explore.now.Now`."""
    return tiles(
        [_residency(row, course, limits), _swaps(row, course, limits), _active(row, course), _share(row, course, limits)]
    )


def _residency(row: Mapping[str, Any], course: pl.DataFrame, limits: Limits) -> Markup:
    at_risk = row["at_risk_min"]
    few = f" · rests on {count(at_risk, 'stay')}" if at_risk is not None and at_risk < SUPPORTED else ""
    cut = f", {row['censored']:,} not over" if row["censored"] else ""
    stays = "no stay was over" if row["completed"] is None else f"{count(row['completed'], 'stay')}{cut}{few}"
    return tile(
        "Residency, median",
        _quantile(row, "p50"),
        note=f"p95 {_quantile(row, 'p95')} · {stays}",
        provenance=row["residency_provenance"],
        course=_values(course, "p50_seconds"),
        limit_text=""
        if limits.mean_stay_seconds is None
        else f"at the limit of swaps a stay lasts {span(limits.mean_stay_seconds)} on average",
        bad=_is_above(row["swaps_per_second_per_pod"], limits.swaps_per_second),
    )


def _swaps(row: Mapping[str, Any], course: pl.DataFrame, limits: Limits) -> Markup:
    rate = row["swaps_per_second_per_pod"]
    missing = "" if row["miss_ratio"] is None else f"{percent(row['miss_ratio'])} of {count(row['requests'], 'request')} miss"
    return tile(
        "Swaps per second and pod",
        "unknown" if rate is None else f"{rate:.3g}",
        unit="" if rate is None else "/s",
        note=missing,
        provenance=row["swaps_provenance"],
        course=_values(course, "swaps_per_second_per_pod"),
        limit=limits.swaps_per_second,
        limit_text=""
        if limits.swaps_per_second is None
        else f"trouble from {limits.swaps_per_second:.3g}/s at this rate of requests",
        bad=_is_above(rate, limits.swaps_per_second),
    )


def _active(row: Mapping[str, Any], course: pl.DataFrame) -> Markup:
    ratio = row["active_per_slot_ratio"]
    known = None if row["active_adapters"] is None or row["slots"] is None else (row["active_adapters"], row["slots"])
    return tile(
        "Active adapters per slot",
        "unknown" if ratio is None else f"{ratio:.2f}",
        note="slots are not known" if known is None else f"{known[0]:,} adapters in an hour, {known[1]:,} slots",
        provenance=row["occupancy_provenance"],
        course=_values(course, "active_per_slot_ratio"),
        limit=1.0,
        limit_text="above 1 not all fit at once: needed for thrash, not enough for it",
    )


def _share(row: Mapping[str, Any], course: pl.DataFrame, limits: Limits) -> Markup:
    high = row["share_high"]
    low = high if row["share_low"] is None else row["share_low"]
    return tile(
        "GPU time spent on inference",
        "unknown" if high is None else between(low, high),
        note="nothing measures it"
        if high is None
        else f"grade {row['grade']}"
        if row["adapter_share"] is None
        else f"loads took {percent(row['adapter_share'])} · grade {row['grade']}",
        provenance=row["inference_share_provenance"],
        course=_values(course, "share_high"),
        limit=limits.inference_share,
        limit_text="" if limits.inference_share is None else f"trouble below {percent(limits.inference_share)}",
        colour=colours.INFERENCE,
        bad=high is not None and _is_above(limits.inference_share, high),
    )


def _quantile(row: Mapping[str, Any], name: str) -> str:
    known, least = row[f"{name}_seconds"], row[f"{name}_lower_bound_seconds"]
    return span(known) if known is not None else f"> {span(least)}" if least is not None else "unknown"


def _values(course: pl.DataFrame, column: str) -> list[float | None]:
    return course.sort("at")[column].to_list()


def _is_above(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit
