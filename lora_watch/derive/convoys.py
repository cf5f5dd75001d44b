"""Many pods loading at once, more often than pods that know nothing of each other would."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.clocks import on_one_clock
from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POD, POOL, PROVENANCE, of_pool, ranked_provenance
from lora_watch.derive.load_spans import load_spans
from lora_watch.model import MINUTE, SECOND, Window

BIN = MINUTE
"""What is judged at once: long enough for some loads, short enough that traffic is the same throughout."""
NEIGHBOURS = 5
"""Bins before, and after, that say how much of its time a pod loads anyway."""
RARE_SHARE = 0.01
"""Share of time in which independent pods would load at once in such numbers that it is called many."""
FLAGGED_RATIO = 3.0
FLAGGED_SHARE = 0.10
"""Both from simulations: 1.7 times on a healthy cluster, 1.2 in a thrash, so three; and below a tenth it costs little."""
FLAGGED_CHANCE = 1e-6
"""A bin is one of 1,440 a day and pool. Simulated: 5e-5 at least in 950 minutes without, less in 12 of 15 with a convoy."""


def convoys(events: pl.LazyFrame, window: Window, *, offsets: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """
    Stretches in which many pods of a pool were loading at once, one row for each run of such bins.

    Columns, between the head (pods and adapters: those that loaded in it) and provenance: ``many_pods`` (m), ``pool_pods``,
    ``most_pods_at_once``, ``many_loading_seconds`` (time with m pods or more loading), ``expected_seconds`` (the same if pods
    were independent), ``ratio`` of the two, ``swap_share`` (pod-time spent loading ÷ pod-time), ``loads``, ``chance`` (of the
    least likely bin) and ``tolerance_seconds``.

    Formula. The window is cut into bins of a minute. Around each, pod i loads for a share ``p_i`` of the time (the union of
    its loads; of the five bins before, the five after, or the whole window, whichever has most); independent pods would have
    k of them loading for the share that the Poisson-binomial distribution of the p gives k. ``m`` is two or more, and a
    number that they would reach for at most ``RARE_SHARE`` of the time (all pods if even these are often loading together):
    of those that were reached the one of the least chance, and that chance times how many were tried. The shares are those of
    the minutes around, so neither a step in the load nor a pool that swaps all day is a convoy; loading *together* is. A bin
    is flagged if time x with m or more is over 3 times what is expected, ``swap_share`` over 10 %, and chance below 1e-6.
    Chance: together-times of independent pods come by a Poisson process, ``N = expected ÷ τ`` in a bin, and last ``τ = Σ l² ÷
    Σ l ÷ m`` in the mean (l: lengths of loads; long ones meet more often), taken as exponential; so ``chance = Σ_j Poisson(j;
    x ÷ τ) · P(Poisson(N) > j)``. Flagged bins side by side make one row; a bin that has m pods at once and is not flagged has
    a row of its own.

    Edge cases. A pool with one loading pod has no row. A pool whose pods load nearly all the time can't be told: even all of
    them together are expected, and the ratio can't reach 3; that is thrash, not a convoy. Times are put on one clock
    (:func:`~lora_watch.derive.clocks.clock_offsets`); what remains is ``tolerance_seconds``, well below a convoy's length. Loads
    of unknown length are moments and add nothing; rows that name no pod are those of one pod without a name; reloads in place are
    another structure. A load counts where it happened, also before its end; hand over events from a minute after the window for
    those that end behind it.
    """
    spans = load_spans(events).filter((pl.col("reason") != "inplace").fill_null(value=True))
    loads = (
        on_one_clock(spans, offsets, "began", "at")
        .filter((pl.col("at") > window.start) & (pl.col("began") < window.end) & (pl.col("began") < pl.col("at")))
        .with_columns(began=pl.max_horizontal("began", pl.lit(window.start)), at=pl.min_horizontal("at", pl.lit(window.end)))
        .collect()
    )
    # a pod that is named in no load of the window can't be part of a convoy, but its time counts in the swap share
    pool_pods = events.select(POD).unique().group_by(POOL).agg(pool_pods=pl.len().cast(pl.Int64))
    bins = pl.concat(
        [_bins_of(loads.filter(of_pool(key)), key, window) for key in loads.select(POOL).unique().iter_rows()] or [_NONE]
    )
    said = _said(loads, window)
    whole = (
        bins.lazy()
        .join(pool_pods, on=POOL, how="left", nulls_equal=True)
        .join(said.lazy(), on=[*POOL, "bin"], how="left", nulls_equal=True)
        .with_columns(seconds=_bin_seconds(window))
        .with_columns(bin_share=pl.col("loading_seconds") / (pl.col("pool_pods") * pl.col("seconds")))
        .with_columns(
            flagged=(pl.col("many_loading_seconds") > FLAGGED_RATIO * pl.col("expected_seconds"))
            & (pl.col("bin_share") > FLAGGED_SHARE)
            & (pl.col("chance") < FLAGGED_CHANCE)
        )
        .sort(*POOL, "bin")
        .with_columns(run=_run())
    )
    merged = whole.group_by("run").agg(
        *(pl.col(column).first() for column in (*POOL, "flagged", "pool_pods")),
        pods=pl.col("pods").explode(empty_as_null=False, keep_nulls=False).unique().sort(),
        adapters=pl.col("adapters").explode(empty_as_null=False, keep_nulls=False).unique().sort(),
        start=pl.col("first").min(),
        end=pl.col("last").max(),
        many_pods=pl.col("many_pods").max(),
        most_pods_at_once=pl.col("most_pods_at_once").max(),
        many_loading_seconds=pl.col("many_loading_seconds").sum(),
        expected_seconds=pl.col("expected_seconds").sum(),
        swap_share=pl.col("loading_seconds").sum() / (pl.col("pool_pods") * pl.col("seconds")).sum(),
        loads=pl.col("loads").sum(),
        chance=pl.col("chance").min(),
        tolerance_seconds=pl.col("tolerance_seconds").max(),
        provenance=pl.col("provenance").cast(PROVENANCE).max().cast(pl.String),
    )
    return structures(
        merged.with_columns(ratio=pl.col("many_loading_seconds") / pl.col("expected_seconds")),
        (
            "many_pods",
            "pool_pods",
            "most_pods_at_once",
            "many_loading_seconds",
            "expected_seconds",
            "ratio",
            "swap_share",
            "loads",
            "chance",
            "tolerance_seconds",
        ),
    )


_NONE = pl.DataFrame(
    schema={
        **dict.fromkeys(POOL, pl.String()),
        "bin": pl.Int64(),
        "many_pods": pl.Int64(),
        "most_pods_at_once": pl.Int64(),
        "many_loading_seconds": pl.Float64(),
        "expected_seconds": pl.Float64(),
        "loading_seconds": pl.Float64(),
        "chance": pl.Float64(),
        "first": pl.Int64(),
        "last": pl.Int64(),
    }
)


def _bin_seconds(window: Window) -> pl.Expr:
    """Length of each bin: a minute, the last one may be shorter."""
    return pl.min_horizontal(pl.lit(BIN), window.end - window.start - pl.col("bin") * BIN) / SECOND


def _run() -> pl.Expr:
    """A number for each row that the next one shares if both are flagged and side by side."""
    goes_on = pl.col("flagged") & pl.col("flagged").shift(1) & (pl.col("bin") == pl.col("bin").shift(1) + 1)
    same_pool = pl.all_horizontal(*(pl.col(column).eq_missing(pl.col(column).shift(1)) for column in POOL))
    return (~(goes_on & same_pool)).fill_null(value=True).cast(pl.Int64).cum_sum()


def _said(loads: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Of each pool and bin: which pods and adapters loaded in it, how often, and how well it is known."""
    first, last = (pl.col("began") - window.start) // BIN, (pl.col("at") - 1 - window.start) // BIN
    return (
        loads.with_columns(bin=pl.int_ranges(first, last + 1))
        .explode("bin", empty_as_null=False, keep_nulls=False)
        .group_by(*POOL, "bin")
        .agg(
            pods=names_of("pod"),
            adapters=names_of("adapter"),
            loads=(last == pl.col("bin")).sum().cast(pl.Int64),
            tolerance_seconds=2 * pl.col("clock_error").max() / SECOND,
            provenance=ranked_provenance().max().cast(pl.String),
        )
    )


def _bins_of(loads: pl.DataFrame, key: tuple[str | None, ...], window: Window) -> pl.DataFrame:
    """The bins of one pool in which m pods or more were loading at once, with what independent pods would have done."""
    busy = _unions(loads)
    count = -(-(window.end - window.start) // BIN)
    pods, place = np.unique(busy["pod"].fill_null("").to_numpy(), return_inverse=True)
    begin = busy["began"].to_numpy() - window.start
    end = busy["at"].to_numpy() - window.start
    length = np.minimum(BIN, window.end - window.start - np.arange(count) * BIN)
    spent = _spent(place, begin, end, len(pods), count)
    together = _together(begin, end, len(pods), count)
    most = np.where(together > 0, np.arange(len(pods) + 1)[:, None], 0).max(axis=0)
    independent = _poisson_binomial(_around(spent / length))
    at_least = np.cumsum(independent[::-1], axis=0)[::-1]  # row k: k pods or more
    rare = at_least <= RARE_SHARE
    rare[:2] = False
    fewest = np.where(rare.any(axis=0), rare.argmax(axis=0), len(pods))
    lengths = (end - begin).astype(np.float64)
    together_for = np.cumsum(together[::-1], axis=0)[::-1] / SECOND
    expected_for = at_least * length / SECOND
    chances = np.ones_like(expected_for)
    for many in range(2, int(most.max()) + 1):
        each = float((lengths**2).sum() / lengths.sum()) / SECOND / many
        tried = np.flatnonzero((fewest <= many) & (most >= many))
        chances[many, tried] = _chance(together_for[many, tried] / each, expected_for[many, tried] / each)
    chosen = np.flatnonzero((most >= fewest) & (fewest >= 2))
    number = chances[:, chosen].argmin(axis=0)
    number = np.maximum(number, fewest[chosen])
    edges = window.start + chosen * BIN
    return pl.DataFrame(
        {
            "bin": chosen,
            "many_pods": number,
            "most_pods_at_once": most[chosen],
            "many_loading_seconds": together_for[number, chosen],
            "expected_seconds": expected_for[number, chosen],
            "loading_seconds": spent.sum(axis=0)[chosen] / SECOND,
            "chance": np.minimum(chances[number, chosen] * (most - fewest + 1)[chosen], 1.0),
            "first": edges,
            "last": np.minimum(edges + BIN, window.end),
        },
        schema={name: dtype for name, dtype in _NONE.schema.items() if name not in POOL},
    ).select(*(pl.lit(value, dtype=pl.String).alias(column) for column, value in zip(POOL, key, strict=True)), pl.all())


def _unions(loads: pl.DataFrame) -> pl.DataFrame:
    """Stretches in which each pod was loading: its overlapping loads as one, whatever their engine."""
    opens = (pl.col("began") > pl.col("at").cum_max().shift(1).over("pod")).fill_null(value=True)
    return (
        loads.sort("pod", "began")
        .with_columns(stretch=opens.cast(pl.Int64).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("pod").first(), pl.col("began").min(), pl.col("at").max())
    )


def _spent(
    place: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64], pods: int, bins: int
) -> NDArray[np.float64]:
    """µs that each pod (row) was loading in each bin (column)."""
    first, last = begin // BIN, (end - 1) // BIN
    widths = last - first + 1
    row = np.repeat(place, widths)
    column = np.repeat(first, widths) + np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
    inside = np.minimum(np.repeat(end, widths), (column + 1) * BIN) - np.maximum(np.repeat(begin, widths), column * BIN)
    return np.bincount(row * bins + column, weights=inside, minlength=pods * bins).reshape(pods, bins).astype(np.float64)


def _together(begin: NDArray[np.int64], end: NDArray[np.int64], pods: int, bins: int) -> NDArray[np.float64]:
    """µs in which exactly k pods (row) were loading, by bin (column); ``begin`` and ``end`` of one pod never overlap."""
    cuts = np.arange(bins + 1) * BIN
    moments = np.concatenate([begin, end, cuts])
    steps = np.concatenate([np.ones(len(begin)), -np.ones(len(end)), np.zeros(len(cuts))]).astype(np.int64)
    order = np.argsort(moments, kind="stable")
    moments, height = moments[order], np.cumsum(steps[order])
    lasted = np.diff(moments)
    real = np.flatnonzero(lasted > 0)
    inside = real[moments[real] < cuts[-1]]
    where = height[inside] * bins + moments[inside] // BIN
    return np.bincount(where, weights=lasted[inside], minlength=(pods + 1) * bins).reshape(pods + 1, bins).astype(np.float64)


def _around(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    The greatest of the mean shares of ``NEIGHBOURS`` bins before each bin, of as many after it, and of all bins.

    What lies past the window is left out. The mean of all is there for pods that load seldom: a few minutes without a load do
    not make one unexpected.
    """
    pods, bins = shares.shape
    sums = np.concatenate([np.zeros((pods, 1)), np.cumsum(shares, axis=1)], axis=1)
    place = np.arange(bins)
    low, high = np.maximum(place - NEIGHBOURS, 0), np.minimum(place + 1 + NEIGHBOURS, bins)
    before = (sums[:, place] - sums[:, low]) / np.maximum(place - low, 1)
    after = (sums[:, high] - sums[:, place + 1]) / np.maximum(high - place - 1, 1)
    around: NDArray[np.float64] = np.clip(np.maximum(np.maximum(before, after), shares.mean(axis=1, keepdims=True)), 0.0, 1.0)
    return around


def _chance(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    That a Poisson number of exponential times of mean 1, ``expected`` of them, adds up to ``observed`` or more.

    Formula: ``Σ_j Poisson(j; observed) · P(Poisson(expected) > j)``. Beyond 300 observed is taken as 300: the chance is small
    already.
    """
    observed = np.minimum(observed, 300.0)
    chance = np.zeros(len(observed))
    more = -np.expm1(-expected)  # P(Poisson(expected) > j)
    here, there = np.exp(-observed), np.exp(-expected)
    for j in range(600):
        chance += here * more
        here = here * observed / (j + 1)
        there = there * expected / (j + 1)
        more = np.maximum(more - there, 0.0)
    return chance


def _poisson_binomial(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability (row k) that k of independent pods are loading; ``shares`` is pods × bins."""
    pods, bins = shares.shape
    probability = np.zeros((pods + 1, bins))
    probability[0] = 1.0
    for pod in range(pods):  # each pod moves what was known one up with its share
        probability[1:] = probability[1:] * (1 - shares[pod]) + probability[:-1] * shares[pod]
        probability[0] *= 1 - shares[pod]
    return probability
