"""Early warning, one row per pool: the cause (new adapters), the mechanism (misses) and the harm (saturation at the peak)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from lora_watch.derive.che import che
from lora_watch.derive.cusum import THRESHOLD, Evidence, Pool
from lora_watch.derive.expected import Expected
from lora_watch.derive.first_seen import USUAL, Newness, newmass
from lora_watch.derive.forecast import HISTORY_SCHEMA, HORIZON, forecast
from lora_watch.derive.groups import POD, POOL, ranked_provenance
from lora_watch.derive.hysteresis import Limits, State, step
from lora_watch.derive.rates import at_pods_of, rates, rates_from_attempts
from lora_watch.derive.saturation import in_flight, load_seconds, saturation
from lora_watch.derive.working_set import working_set_from_rates
from lora_watch.model import MINUTE, Window

SPAN = 10 * MINUTE
"""What rates are taken over: shorter is noise, longer hides that traffic moves."""
PRESSURE_SECONDS = 300.0
"""The stay that slots should allow: where more adapters than slots are asked for within it, no mean stay is that long."""
QUEUE_MINUTES = 2.0
"""
Minutes a pod, of those over which :func:`~lora_watch.derive.capacity.capacity` looked, that must have had a queue before what it
says is believed. Behind a load some requests wait at any sample, so a healthy pool that swaps has a few such minutes now and
then, and its usual rate would be taken for its limit (benchmarks/README.md, *detection*).
"""
LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "newmass": Limits(0.01, 0.005, 0, 10 * MINUTE),
        # a fifth of requests: the least that hurts and the most that no pool should live with; where a week of its misses is held
        # a pool has its own (derive/usual_misses.py)
        "predicted_miss_ratio": Limits(0.2, 0.14, 2 * MINUTE, 10 * MINUTE),
        # below 0.8 no queue stood in any simulated minute, above it in two of three: benchmarks/README.md, *saturation*
        "rho_peak": Limits(0.8, 0.65, 2 * MINUTE, 10 * MINUTE),
        "hard_cliff": Limits(0.9, 0.75, 2 * MINUTE, 10 * MINUTE),
        "cusum": Limits(THRESHOLD, 0.7 * THRESHOLD, 0, 10 * MINUTE),
    }
)
"""The signals and when each begins and ends to be an alarm."""
ALARMS_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys((*POOL, "signal"), pl.String()),
    "on": pl.Boolean(),
    "since": pl.Int64(),
    "pending": pl.Int64(),
    "at": pl.Int64(),
    "value": pl.Float64(),
    "enter": pl.Float64(),
    "leave": pl.Float64(),
}


def warning(
    requests: pl.LazyFrame,
    end: int,
    fleet: pl.LazyFrame,
    seen: pl.DataFrame,
    *,
    events: pl.LazyFrame | None = None,
    history: pl.DataFrame | None = None,
    curves: pl.DataFrame | None = None,
    capacity: pl.DataFrame | None = None,
    attempts: pl.LazyFrame | None = None,
    expected: Sequence[Expected] = (),
    newness: Newness = USUAL,
    horizon: int = HORIZON,
) -> pl.DataFrame:
    """
    What is coming, as of ``end`` (µs UTC), one row per pool with a request in the ten minutes (``SPAN``) before it.

    A pool without requests has a row by the router's counters where ``attempts`` holds them (samples of these ten minutes):
    rates by adapter and pod stand for requests, Che tells the misses of each pod. Who is new and what waits are unknown then.

    Inputs: ``requests`` and ``events`` that cover these ten minutes (more does no harm); ``fleet``, one row a pod with its
    columns, ``slots`` and, where known, ``seats``; ``seen`` (:func:`~lora_watch.derive.first_seen.first_seen`, up to ``end``);
    ``history`` (:func:`~lora_watch.derive.forecast.hourly`); ``curves``, miss ratios by slots
    (:class:`~lora_watch.derive.reuse_histogram.ReuseHistograms` or :func:`~lora_watch.derive.miss_ratio_curve.miss_ratio_curve`,
    by pool or by pod), without which Che's approximation takes their place; ``capacity``
    (:func:`~lora_watch.derive.capacity.capacity`), believed from ``QUEUE_MINUTES`` a pod on; ``expected`` announcements.

    Columns, after the pool's and ``at`` (``end``); each null where something it needs is unknown:

    * cause: ``newmass``, ``new_adapters``, ``new_count``, ``new_since``, ``expected_newmass``, ``expected_adapters``,
      ``learning``, ``learning_until``: see :func:`~lora_watch.derive.first_seen.newmass`;
    * mechanism: ``predicted_miss_ratio`` at the slots there are, ``…_one_slot_more`` and ``…_one_slot_fewer`` (a pod); by curves
      of pods, their mean by requests, right for the routing there is; by pool or Che, as one cache of all slots, right with
      affinity routing (see ``method`` and ``error_class``); ``pressure = W(300 s) ÷ slots`` (above 1 a mean stay of 300 s is
      impossible), ``slots``, ``pods``, ``requests_per_second``;
    * harm: ``peak_rps``, ``peak_at``, ``peak_method`` (:func:`~lora_watch.derive.forecast.forecast`), ``stall_seconds`` (a load),
      ``load_share`` (of a pod's time, now), ``rho_peak`` and ``bottleneck`` at that peak, ``rho_now`` and ``now_bottleneck``
      (:func:`~lora_watch.derive.saturation.saturation`), ``hard_cliff`` (adapters in flight ÷ slots of the fullest pod, now) and
      ``fullest_pod``;
    * ``provenance``, the worst of all that went in.
    """
    window = Window(end - SPAN, end)
    pods = fleet.select(*POD, *(name for name in ("slots", "seats") if name in fleet.collect_schema())).collect()
    asked = rates(requests, window).collect()
    routed = _routed(attempts, window, pods, asked)
    rate = pl.concat([asked, routed.group_by(*POOL, "adapter").agg(_summed()).select(asked.columns)])
    pools = rate.group_by(*POOL).agg(_summed()).select(*POOL, "requests_per_second", "provenance").sort(*POOL)
    size = pods.group_by(*POOL).agg(
        pods=pl.len().cast(pl.Int64), slots=pl.when(pl.col("slots").is_not_null().all()).then(pl.col("slots").sum())
    )
    whole = (
        _beside(pools, size)
        .pipe(_beside, newmass(requests, seen, end, expected=expected, newness=newness).drop("requests", "provenance"))
        .pipe(_beside, pl.concat([_predicted(asked, pods, size, curves), _predicted_by_rates(routed, pods, size)]))
        .pipe(_beside, working_set_from_rates(rate.lazy(), spans=[PRESSURE_SECONDS]).select(*POOL, adapters_in_span="adapters"))
        .pipe(_beside, _loads(events, window))
        .pipe(_beside, _peaks(pools, history, end, horizon))
        .pipe(_beside, _capacity(capacity, size))
        .with_columns(
            pressure=pl.when(pl.col("slots") > 0).then(pl.col("adapters_in_span") / pl.col("slots")),
            load_share=pl.when(pl.col("pods") > 0).then(pl.col("load_seconds") / (pl.col("pods") * window.seconds)),
        )
    )
    flight = in_flight(requests, window).collect()
    at_peak, now = (
        saturation(
            flight.lazy(),
            pods.lazy(),
            whole.lazy().select(
                *POOL,
                "stall_seconds",
                "load_share",
                "capacity_rps",
                growth=pl.col(asked) / pl.col("requests_per_second"),
                rate=asked,
                miss_ratio="predicted_miss_ratio",
            ),
        )
        for asked in ("peak_rps", "requests_per_second")
    )
    provenances = [name for name in whole.columns if name.endswith("provenance")]
    return (
        whole.pipe(_beside, at_peak.select(*POOL, "bottleneck", rho_peak="rho"))
        .pipe(
            _beside,
            now.select(*POOL, "fullest_pod", rho_now="rho", now_bottleneck="bottleneck", hard_cliff="fullest_pod_rho_slots"),
        )
        .select(
            *POOL,
            pl.lit(end).alias("at"),
            "requests_per_second",
            "pods",
            "slots",
            "newmass",
            "new_adapters",
            "new_count",
            "new_since",
            "expected_newmass",
            "expected_adapters",
            "learning",
            "learning_until",
            "predicted_miss_ratio",
            "predicted_miss_ratio_one_slot_more",
            "predicted_miss_ratio_one_slot_fewer",
            "pressure",
            "peak_rps",
            "peak_at",
            "peak_method",
            "stall_seconds",
            "load_share",
            "rho_peak",
            "bottleneck",
            "rho_now",
            "now_bottleneck",
            "hard_cliff",
            "fullest_pod",
            "method",
            "error_class",
            provenance=pl.max_horizontal(ranked_provenance(name) for name in provenances).cast(pl.String),
        )
        .sort(*POOL)
    )


def alarms(
    held: pl.DataFrame | None,
    warnings: pl.DataFrame,
    *,
    evidence: Mapping[Pool, Evidence] = MappingProxyType({}),
    limits: Mapping[str, Limits] = LIMITS,
    own: Mapping[Pool, Mapping[str, Limits]] = MappingProxyType({}),
) -> pl.DataFrame:
    """
    Which signals of each pool are alarms after this round, with hysteresis; carry the answer to the next round as ``held``.

    Columns: the pool's, ``signal``, ``on``, ``since`` (µs UTC of the last change), ``pending``, ``at``, ``value``, ``enter``,
    ``leave``: see :class:`~lora_watch.derive.hysteresis.State`. ``evidence`` is that of
    :func:`~lora_watch.derive.cusum.cusum`; ``own`` limits of a pool go before ``limits``. While a pool is learning its
    ``newmass`` is unknown. A signal whose value is unknown, or whose pool has no row, stays as it is: silence ends no alarm.
    """
    before: dict[tuple[str | None, ...], State] = {}
    kept: dict[tuple[str | None, ...], tuple[float | None, float, float]] = {}
    if held is not None:
        for row in held.iter_rows(named=True):
            key = tuple(row[column] for column in (*POOL, "signal"))
            before[key] = State(row["on"], row["since"], row["pending"], row["at"])
            kept[key] = (row["value"], row["enter"], row["leave"])
    after = dict(before)
    for row in warnings.iter_rows(named=True):
        pool = tuple(row[column] for column in POOL)
        values = {name: row[name] for name in limits if name in row}
        if row["learning"]:
            values["newmass"] = None
        if pool in evidence:
            values["cusum"] = evidence[pool].total
        for signal, value in values.items():
            key = (*pool, signal)
            limit = own.get(pool, {}).get(signal, limits[signal])
            after[key] = step(before.get(key, State()), limit, row["at"], value)
            kept[key] = (value, limit.enter, limit.leave)
    rows = [(*key, state.on, state.since, state.pending, state.at, *kept[key]) for key, state in after.items()]
    return pl.DataFrame(rows, schema=ALARMS_SCHEMA, orient="row").sort(*POOL, "signal")


def _beside(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """``right``'s columns beside the pools of ``left``."""
    return left.join(right, on=POOL, how="left", nulls_equal=True)


def _summed() -> list[pl.Expr]:
    """Of a group of rates: their sums, and the worst provenance."""
    return [pl.col("requests", "requests_per_second").sum(), ranked_provenance().max().cast(pl.String)]


def _routed(attempts: pl.LazyFrame | None, window: Window, pods: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Rates by pod and adapter from the router's counters, of the pools without a request; none where all have some."""
    others = pods.join(asked, on=POOL, how="anti", nulls_equal=True)
    schema = {name: asked.schema[name] if name in asked.schema else pl.String() for name in (*POD, *asked.columns)}
    if attempts is None or others.is_empty():
        return pl.DataFrame(schema=schema)
    return at_pods_of(rates_from_attempts(attempts, window, POD), others.lazy()).select(*schema).collect()


def _predicted_by_rates(rate: pl.DataFrame, pods: pl.DataFrame, size: pl.DataFrame) -> pl.DataFrame:
    """As :func:`_predicted`, by Che's approximation of each pod from rates by pod."""
    known = pods["slots"].drop_nulls().unique()
    slots = sorted({count for each in known for count in (each - 1, each, each + 1) if count >= 0})
    curves = che(rate.lazy(), slots).with_columns(requests=pl.col("requests_per_second"))
    return _predicted(rate, pods, size, curves)


def _predicted(rate: pl.DataFrame, pods: pl.DataFrame, size: pl.DataFrame, curves: pl.DataFrame | None) -> pl.DataFrame:
    """Miss ratios at the slots there are, and at one more and one fewer a pod."""
    by_pod = curves is not None and "pod" in curves.columns
    owner = list(POD) if by_pod else list(POOL)
    each = pods.select(*POD, "slots", pods=1) if by_pod else size.select(*POOL, "slots", "pods")
    moves = pl.DataFrame({"move": ["", "_one_slot_more", "_one_slot_fewer"], "by": [0, 1, -1]})
    wanted = each.join(moves, how="cross").with_columns(slots=pl.col("slots") + pl.col("by") * pl.col("pods"))
    if curves is None:
        curves = che(rate.lazy(), wanted.lazy().select(*POOL, "slots").filter(pl.col("slots") >= 0).unique())
        curves = curves.with_columns(requests=pl.lit(1.0))
    told = (
        wanted.join(
            curves.select(
                *owner, pl.col("slots").cast(pl.Int64), "miss_ratio", "requests", "method", "error_class", "provenance"
            ),
            on=[*owner, "slots"],
            nulls_equal=True,
        )
        .filter(pl.col("miss_ratio").is_not_null())
        .group_by(*POOL, "move")
        .agg(
            miss_ratio=(pl.col("miss_ratio") * pl.col("requests")).sum() / pl.col("requests").sum(),
            method=pl.col("method").first(),
            error_class=pl.col("error_class").sort().last(),
            curve_provenance=ranked_provenance().max().cast(pl.String),
        )
    )
    now = told.filter(pl.col("move") == "").select(*POOL, "method", "error_class", "curve_provenance")
    for move in moves["move"]:
        column = told.filter(pl.col("move") == move).select(*POOL, pl.col("miss_ratio").alias(f"predicted_miss_ratio{move}"))
        now = _beside(now, column)
    return now


def _loads(events: pl.LazyFrame | None, window: Window) -> pl.DataFrame:
    """Seconds of loads by pool; unknown everywhere without events."""
    columns = {"load_seconds": pl.Float64(), "stall_seconds": pl.Float64(), "event_provenance": pl.String()}
    if events is None:
        return pl.DataFrame(schema={**dict.fromkeys(POOL, pl.String()), **columns})
    return load_seconds(events, window).rename({"provenance": "event_provenance"}).select(*POOL, *columns).collect()


def _peaks(pools: pl.DataFrame, history: pl.DataFrame | None, end: int, horizon: int) -> pl.DataFrame:
    """The forecast; from the current rate alone where there is no history."""
    past = pl.DataFrame(schema=HISTORY_SCHEMA) if history is None else history
    return forecast(past, pools, end, horizon=horizon).select(
        *POOL, "peak_rps", "peak_at", peak_method="method", peak_provenance="provenance"
    )


def _capacity(capacity: pl.DataFrame | None, size: pl.DataFrame) -> pl.DataFrame:
    """What pods were seen to manage; unknown where nobody has looked, or where a queue stood for too few minutes."""
    if capacity is None:
        return pl.DataFrame(schema={**dict.fromkeys(POOL, pl.String()), "capacity_rps": pl.Float64()})
    return (
        capacity.join(size.select(*POOL, "pods"), on=POOL, nulls_equal=True)
        .filter(pl.col("minutes") >= QUEUE_MINUTES * pl.col("pods"))
        .select(*POOL, "capacity_rps", capacity_provenance="provenance")
    )
