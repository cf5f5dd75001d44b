"""Prefill and decode pods compared: an adapter that only one side holds, and a side that swaps while the other does not."""

import polars as pl

from lora_watch.derive.found import NONE_NAMED, names_of, structures
from lora_watch.derive.groups import PROVENANCE, overlap_seconds, ranked_provenance
from lora_watch.model import Window

SIDES = ("prefill", "decode")
FLAGGED_SHARE = 0.5
"""Of the window: an adapter that one side always holds and the other less than half of the time has its loads there."""
HELD_SHARE = 0.9
FLAGGED_RATIO = 10.0
FLAGGED_PER_SECOND = 0.01
"""Swaps per second and pod below which a side does not swap: one in a hundred seconds."""
_SCOPE = ("cluster", "scope")


def one_sided(stays: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    How long each adapter was on each side, one row per deployment and adapter of clusters with prefill and decode pods.

    Columns, between the head (role is empty; pods: those that held it; pool: the pool that has both roles, or empty where each
    side is a pool of its own) and provenance: ``adapter``, ``prefill_share`` and ``decode_share`` (of the window in which at
    least one pod of the side held it), ``missing_on`` (prefill, decode or null), ``prefill_pods`` and ``decode_pods`` (that
    held it at some time).

    A KV cache belongs to its adapter, so both sides need it: ``missing_on`` is the side with a share below 0.5 where the other
    has 0.9 or more. Flagged: those.

    Edge cases. Pods without one of the two roles are left out; a cluster with one side only has no row. An adapter that no side
    holds for long is rarely used and not flagged. Several pools with one role each, in one cluster, are taken to be one
    deployment. Unions of stays, so two pods at once count once.
    """
    placed = _placed(stays.filter(pl.col("adapter").is_not_null()))
    held = placed.filter(
        (pl.col("resident_from") < window.end) & (pl.col("left_at").is_null() | (pl.col("left_at") > window.start))
    ).with_columns(
        start=pl.max_horizontal("resident_from", pl.lit(window.start)),
        end=pl.min_horizontal(pl.col("left_at").fill_null(window.end), pl.lit(window.end)),
    )
    who = [*_SCOPE, "adapter", "role"]
    fresh = (pl.col("start") > pl.col("end").cum_max().shift(1).over(who)).fill_null(value=True)
    unions = (
        held.sort(*who, "start")
        .with_columns(stretch=fresh.cast(pl.Int64).cum_sum())
        .group_by(*who, "stretch")
        .agg(pl.col("start").min(), pl.col("end").max(), names_of("pod").alias("pods"), ranked_provenance().max())
        .group_by(who)
        .agg(
            share=overlap_seconds(pl.col("start"), pl.col("end"), window.start, window.end).sum() / window.seconds,
            pods=pl.col("pods").explode(empty_as_null=False, keep_nulls=False).unique().sort(),
            ranked=pl.col("provenance").max(),
        )
    )
    sides = _by_side(unions, [*_SCOPE, "adapter"], share=0.0)
    prefill, decode = pl.col("prefill_share"), pl.col("decode_share")
    missing = (
        pl.when((decode < FLAGGED_SHARE) & (prefill >= HELD_SHARE))
        .then(pl.lit("decode"))
        .when((prefill < FLAGGED_SHARE) & (decode >= HELD_SHARE))
        .then(pl.lit("prefill"))
    )
    return structures(
        sides.join(_two_sided(placed), on=_SCOPE, how="semi").with_columns(
            pool="scope",
            role=pl.lit(""),
            adapters=pl.concat_list("adapter"),
            start=pl.lit(window.start),
            end=pl.lit(window.end),
            missing_on=missing,
            flagged=missing.is_not_null(),
        ),
        ("adapter", "prefill_share", "decode_share", "missing_on", "prefill_pods", "decode_pods"),
        by=("adapter",),
    )


def swapping_sides(swaps: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Whether one side swaps and the other does not, one row per deployment (as in :func:`one_sided`) with both.

    ``swaps`` is :func:`~lora_watch.derive.swaps.swaps` of the window by cluster, pool, role and pod. Columns, between
    the head (pods: those of the side that swaps, if flagged) and provenance: ``prefill_pods``, ``decode_pods`` (counts),
    ``prefill_swaps_per_second_per_pod``, ``decode_swaps_per_second_per_pod``, ``swapping_side``.

    Flagged: one side has ten times the rate of the other or more, and over one swap in 100 s and pod. The two are never
    averaged: prefill pods serve a request in a tenth of the time, and need other slots.

    Edge cases. Pods whose swaps are unknown are left out of both counts; a side without a known pod makes no row.
    """
    placed = _placed(swaps.filter(pl.col("swaps").is_not_null()))
    rates = placed.group_by(*_SCOPE, "role").agg(
        share=pl.col("swaps").sum() / pl.len() / window.seconds, pods=names_of("pod"), ranked=ranked_provenance().max()
    )
    sides = _by_side(rates, [*_SCOPE], share=None).join(_two_sided(placed), on=_SCOPE, how="semi")
    prefill, decode = pl.col("prefill_share"), pl.col("decode_share")
    swapping = (
        pl.when((decode >= FLAGGED_PER_SECOND) & (decode >= FLAGGED_RATIO * prefill))
        .then(pl.lit("decode"))
        .when((prefill >= FLAGGED_PER_SECOND) & (prefill >= FLAGGED_RATIO * decode))
        .then(pl.lit("prefill"))
    )
    named = (
        pl.when(pl.col("swapping_side") == "decode")
        .then("decode_names")
        .when(pl.col("swapping_side") == "prefill")
        .then("prefill_names")
        .otherwise(NONE_NAMED)
    )
    return structures(
        sides.with_columns(swapping_side=swapping).with_columns(
            pool="scope",
            role=pl.lit(""),
            pods=named,
            adapters=NONE_NAMED,
            start=pl.lit(window.start),
            end=pl.lit(window.end),
            flagged=pl.col("swapping_side").is_not_null(),
            prefill_swaps_per_second_per_pod=prefill,
            decode_swaps_per_second_per_pod=decode,
        ),
        (
            "prefill_pods",
            "decode_pods",
            "prefill_swaps_per_second_per_pod",
            "decode_swaps_per_second_per_pod",
            "swapping_side",
        ),
    )


def _placed(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of both sides with their ``scope``: the pool, where it has both roles, else empty for the whole cluster."""
    ours = rows.filter(pl.col("role").is_in(SIDES))
    both = ours.group_by("cluster", "pool").agg(both=pl.col("role").n_unique() == 2)
    return ours.join(both, on=["cluster", "pool"], how="left", nulls_equal=True).with_columns(
        scope=pl.when("both").then(pl.col("pool").fill_null("")).otherwise(pl.lit(""))
    )


def _two_sided(placed: pl.LazyFrame) -> pl.LazyFrame:
    """The scopes in which both roles have a row."""
    return placed.group_by(_SCOPE).agg(sides=pl.col("role").n_unique()).filter(pl.col("sides") == 2).select(_SCOPE)


def _by_side(rows: pl.LazyFrame, keys: list[str], *, share: float | None) -> pl.LazyFrame:
    """One row per key with what each side's row says, side by side; ``share`` where a side has none."""
    prefill, decode = pl.col("role") == "prefill", pl.col("role") == "decode"
    return (
        rows.group_by(keys)
        .agg(
            prefill_share=pl.col("share").filter(prefill).sum() if share is not None else pl.col("share").filter(prefill).first(),
            decode_share=pl.col("share").filter(decode).sum() if share is not None else pl.col("share").filter(decode).first(),
            prefill_names=pl.col("pods").filter(prefill).explode(empty_as_null=False, keep_nulls=False),
            decode_names=pl.col("pods").filter(decode).explode(empty_as_null=False, keep_nulls=False),
            pods=pl.col("pods").explode(empty_as_null=False, keep_nulls=False).unique().sort(),
            provenance=pl.col("ranked").cast(PROVENANCE).max().cast(pl.String),
        )
        .with_columns(
            prefill_pods=pl.col("prefill_names").list.len().cast(pl.Int64),
            decode_pods=pl.col("decode_names").list.len().cast(pl.Int64),
        )
    )
