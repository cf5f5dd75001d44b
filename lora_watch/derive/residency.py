"""How long adapters stay in a GPU slot: Kaplan-Meier over stays, per stay and weighted by slot time."""

from collections.abc import Sequence

import polars as pl

from lora_watch.derive.groups import BY_POD, group_columns, overlap_seconds, worst_provenance
from lora_watch.model import SECOND, Window

_ROUNDING = 1e-9
"""A survival this close to a level has reached it: products of n fractions are off by about n · 1e-16."""
SHORT_SECONDS = (("30s", 30.0), ("5min", 300.0))
"""Stays shorter than this are the ones to worry about: the first is the length of a reload loop, the second a usual target."""


def kaplan_meier(subjects: pl.LazyFrame, group: Sequence[str] = ()) -> pl.LazyFrame:
    """
    The survival curve of each group: one row per distinct age at which something happened.

    ``subjects`` holds ``entry``, ``exit`` (ages in one unit, entry ≤ exit) and ``event`` (True: it ended at ``exit``; False:
    it was only watched until then), beside the columns of ``group``. Result: the group, ``age``, ``at_risk``, ``events``,
    ``survival``, sorted by group and age.

    Formula. At age t: ``n(t) = #{entry < t ≤ exit}`` subjects are watched, ``d(t) = #{exit = t, event}`` of them end, and
    ``S(t) = Π_{u ≤ t} (1 − d(u) / n(u))``: the share of stays longer than t. One watched until t counts as watched at t.

    Proof. Let h(u) be the chance that a stay which has reached age u ends there. One watched over the ages (entry, exit]
    contributes ``Π_{entry < u < exit} (1 − h(u))`` times ``h(exit)`` or ``1 − h(exit)`` to the likelihood, given that it had
    reached ``entry`` (delayed entry: what ended before was never seen, and asking *given* its entry age removes that bias).
    So the likelihood is ``Π_u h(u)^d(u) (1 − h(u))^(n(u) − d(u))``; each factor is greatest at ``h(u) = d(u) / n(u)``, and a
    stay is longer than t when it ends at no age ≤ t, which gives S. ∎

    Edge cases. Ages with no event keep S. A subject with entry = exit is watched at no age: its event is in no risk set and
    changes nothing. When every subject at a young age ends there, S is 0 from there on, however few they were: with delayed
    entry look at ``at_risk``. No subjects: no rows. Source: facts of survival analysis since Kaplan and Meier (1958); checked
    against statsmodels.
    """
    keys = list(group)
    watched = pl.col("entry") < pl.col("exit")
    zero, one = pl.lit(0, pl.Int64), pl.lit(1, pl.Int64)
    ended = pl.col("event").cast(pl.Int64)
    steps = pl.concat(
        [
            subjects.filter(watched).select(*keys, age="entry", enters=one, leaves=zero, events=zero),
            subjects.filter(watched).select(*keys, age="exit", enters=zero, leaves=one, events=ended),
        ]
    )
    # Everyone who enters leaves, so running sums over the sorted whole are back at zero where the next group begins.
    before = pl.col("enters").cum_sum() - pl.col("enters") - pl.col("leaves").cum_sum() + pl.col("leaves")
    survives = pl.when(pl.col("events") > 0).then(1 - pl.col("events") / pl.col("at_risk")).otherwise(1.0)
    return (
        steps.group_by(*keys, "age")
        .agg(pl.col("enters", "leaves", "events").sum())
        .sort(*keys, "age")
        .with_columns(at_risk=before)
        .with_columns(survival=survives.cum_prod().over(keys) if keys else survives.cum_prod())
        .filter(pl.col("leaves") > 0)
        .select(*keys, "age", "at_risk", "events", "survival")
    )


def residency(stays: pl.LazyFrame, window: Window, by: Sequence[str] = BY_POD) -> pl.LazyFrame:
    """
    How long stays last, from what was seen of them in the window: quantiles with what they leave out, one row per group.

    Columns, after the group's (seconds unless said):

    * ``p50_seconds``, ``p95_seconds``: the least age t with S(t) ≤ 0.5, 0.05; null where the curve does not come down so far.
      Then ``p50_lower_bound_seconds``, ``p95_lower_bound_seconds`` hold the greatest age watched: say "> x". Null where the
      quantile is known.
    * ``slot_time_p50_seconds``, ``slot_time_p95_seconds``: the same of G(x), the share of the window's slot-time spent in
      stays longer than x.
    * ``slot_time_under_30s_ratio``, ``slot_time_under_5min_ratio``: share of slot-time in stays shorter than that, ``1 − G``
      just below it; null where no stay was watched for so long and some are still open (then nobody knows).
    * ``mean_seconds``: by Little's law, ``occupied_slot_seconds / loads``; null without loads. Equals the mean stay only over
      a long window.
    * ``at_risk_min``: the least ``n(t)`` of :func:`kaplan_meier` at an age t ≤ p50 at which a stay ended (any such age where
      p50 is not reached); null where none ended. Each such age takes its share ``1 / n`` off the curve for good, so a p50 over
      ``at_risk_min`` of 3 may hang on three stays, however many came later;
    * ``loads`` (recorded ones), ``completed`` (evicts in the window, load time known), ``censored`` (watched, no evict in
      the window), ``entered_before`` (of both, loaded before the window: delayed entry), ``left_truncated`` (load time
      unknown: left out of the curves), ``occupied_slot_seconds`` (all stays), ``provenance``.

    S is :func:`kaplan_meier` over stays that overlap the window: ``entry = max(0, window.start − loaded_at)``, exit at
    ``left_at`` with event where ``left_by = evict`` inside the window, else watched until ``min(left_at, window.end)``. The
    window holds its first instant, so a stay from before enters 1 µs earlier. A pod's restart censors: it says nothing about
    how long the stay would have been.

    G gives each stay i its slot-time in the window ``w_i`` and asks S for what is unknown (Efron's redistribution to the
    right): ``G(x) = Σ w_i P_i(x) / Σ w_i``, with ``P_i(x) = [exit_i > x]`` for a completed stay, and for one watched until c
    ``1`` up to c, ``S(x) / S(c)`` after. With ``w_i = 1`` and no delayed entry G is S itself (S is the only self-consistent
    curve), so both tell the same story; on complete data it is the plain weighted share. Where S(c) is 0 nothing is known
    beyond c, and the stay counts as longer.

    Edge cases. Groups are those with a stay that overlaps the window; no group, no row. A stay that has not left is taken to
    last to the window's end: end the window where collection ends. loads, completed and slot-seconds add up over adjoining
    windows. The 1 h, 60 s and 300 s accuracy of the method and the bias of the simpler ones (mean of completed, ages of
    residents): docs of the metric. Stays on a pod are dependent, so quantiles of few stays are rough: ``completed`` is beside
    them.
    """
    keys = group_columns(by)
    left = pl.col("left_at")
    inside = stays.filter((pl.col("resident_from") < window.end) & (left.is_null() | (left >= window.start))).with_columns(
        weight=overlap_seconds(pl.col("resident_from"), left, window.start, window.end),
        event=(pl.col("left_by") == "evict").fill_null(value=False) & (left < window.end),
    )
    known = inside.filter(pl.col("loaded_at").is_not_null()).with_columns(
        entry=pl.max_horizontal(window.start - pl.col("loaded_at"), 0) - 1,
        exit=pl.min_horizontal(left.fill_null(window.end), window.end) - pl.col("loaded_at"),
    )
    loaded = pl.col("loaded_at")
    counts = inside.group_by(keys).agg(
        loads=((pl.col("known_by") == "load") & loaded.is_between(window.start, window.end, closed="left")).sum(),
        completed=(pl.col("event") & loaded.is_not_null()).sum(),
        censored=(~pl.col("event") & loaded.is_not_null()).sum(),
        entered_before=(loaded < window.start).sum(),
        left_truncated=loaded.is_null().sum(),
        occupied_slot_seconds=pl.col("weight").sum(),
        provenance=worst_provenance(),
    )
    numbers = inside.select(keys).unique().sort(keys).with_row_index("group")  # sorting by one number costs a third
    curve = _slot_time_curve(known.join(numbers, on=keys, nulls_equal=True))
    quantiles = curve.group_by("group").agg(
        *(_reached("survival", level).alias(f"{name}_seconds") for name, level in (("p50", 0.5), ("p95", 0.05))),
        *(_reached("longer", level).alias(f"slot_time_{name}_seconds") for name, level in (("p50", 0.5), ("p95", 0.05))),
        *(_share_under(limit).alias(f"slot_time_under_{name}_ratio") for name, limit in SHORT_SECONDS),
        oldest=pl.col("age").max() / SECOND,
        at_risk_min=pl.when((pl.col("events") > 0) & (pl.col("survival_before") > 0.5 + _ROUNDING)).then("at_risk").min(),
    )
    count_names = ("loads", "completed", "censored", "entered_before", "left_truncated")
    return (
        counts.join(numbers, on=keys, nulls_equal=True)
        .join(quantiles, on="group", how="left")
        .select(
            *keys,
            "p50_seconds",
            "p95_seconds",
            *(
                pl.when(pl.col(f"{name}_seconds").is_null()).then("oldest").alias(f"{name}_lower_bound_seconds")
                for name in ("p50", "p95")
            ),
            "slot_time_p50_seconds",
            "slot_time_p95_seconds",
            *(f"slot_time_under_{name}_ratio" for name, _ in SHORT_SECONDS),
            pl.when(pl.col("loads") > 0).then(pl.col("occupied_slot_seconds") / pl.col("loads")).alias("mean_seconds"),
            "at_risk_min",
            *(pl.col(name).cast(pl.Int64) for name in count_names),
            "occupied_slot_seconds",
            "provenance",
        )
    )


def _slot_time_curve(known: pl.LazyFrame) -> pl.LazyFrame:
    """
    The curve of :func:`kaplan_meier` per ``group``, with ``longer``, the G of :func:`residency`, at each age where a stay was
    last watched, and ``survival_before``, the S of the age before it.
    """
    curve = kaplan_meier(known, ["group"])
    slot_time = known.group_by("group", "exit").agg(
        done=pl.when("event").then("weight").otherwise(0.0).sum(), open=pl.when("event").then(0.0).otherwise("weight").sum()
    )
    shared = pl.when(pl.col("survival") > 0).then(pl.col("open") / pl.col("survival")).otherwise(0.0)
    beyond = pl.when(pl.col("survival") > 0).then(0.0).otherwise(pl.col("open"))

    def so_far(expression: pl.Expr) -> pl.Expr:
        return expression.cum_sum().over("group")

    total = (pl.col("done") + pl.col("open")).sum().over("group")
    known_shorter = so_far(pl.col("done")) + so_far(pl.col("open")) - so_far(beyond) - pl.col("survival") * so_far(shared)
    return (
        curve.join(slot_time, left_on=["group", "age"], right_on=["group", "exit"], how="left")
        .sort("group", "age")
        .with_columns(
            longer=pl.when(total > 0).then(1 - known_shorter / total),
            survival_before=pl.col("survival").shift(1, fill_value=1.0).over("group"),
        )
    )


def _reached(column: str, level: float) -> pl.Expr:
    """The least age, in seconds, at which the curve is down to ``level``; null if it never is."""
    return pl.when(pl.col(column) <= level + _ROUNDING).then("age").min() / SECOND


def _share_under(limit: float) -> pl.Expr:
    """``1 − G`` just below ``limit`` seconds; null where no stay was watched for so long though some have not ended."""
    young = pl.col("age") < limit * SECOND
    longer = pl.when(young).then("longer").min()  # faster than a filter within each of many groups
    watched = (pl.col("age").max() >= limit * SECOND) | (longer <= _ROUNDING)
    measured = pl.col("longer").is_not_null().any()
    return pl.when(measured & watched.fill_null(value=False)).then(1 - longer.fill_null(1.0)).clip(0.0, 1.0)
