"""What a look for findings knows that rules need as numbers: the last ten minutes of each pod, and where each pool stands."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.groups import ENGINE, POD, POOL, ranked_provenance
from lora_watch.derive.inference_share import GPU_METRICS, inference_share
from lora_watch.derive.rates import rates
from lora_watch.derive.slow_loads import FEWEST, load_phases
from lora_watch.derive.timeline import timeline
from lora_watch.derive.warning import SPAN
from lora_watch.derive.working_set import working_set_from_rates
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.diagnose.finding import Finding
from lora_watch.explore.situation import Situation
from lora_watch.model import Window
from lora_watch.rules.adapters import HORIZONS, PRESSURE_SECONDS
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES
from lora_watch.store.tables import Store

KINDS = ("start", "stop", "load", "evict", "steps", "lost")
"""Events that are read of the ten minutes; uses are most of the others, and nothing here depends on them."""
METRICS = (
    names.REQUESTS_RUNNING,
    names.GENERATION_TOKENS,
    names.WAITING_BY_REASON,
    names.KV_CACHE_USAGE,
    *GPU_METRICS,
)
_WARNED = {
    "pressure": "pressure",
    "predicted_miss_ratio": "predicted_miss_ratio",
    "rho_peak": "rho_peak",
    "rho_now": "rho_now",
    "peak_rps": "peak_rps",
    "in_flight_per_slot": "hard_cliff",
}
_POOL_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(POOL, pl.String()),
    "active_adapters": pl.Float64(),
    **dict.fromkeys((*_WARNED, "newmass", "new_adapters", "phantom_slots"), pl.Float64()),
    "provenance": pl.String(),
}


@dataclass(frozen=True, slots=True)
class Signals:
    """
    As of the end of a look. Unknown is null, and a row is there only where something is known.

    ``pods``, of the last ten minutes: those of ``POD``, ``swaps_per_second``, ``loads_per_second``, ``cold_loads_per_second``,
    ``requests_per_second`` (for an adapter), ``miss_ratio`` (loads per request), ``stall_share`` (of time, in loads),
    ``swap_queue``, ``share_high`` (time in inference, at the most), ``busy_ratio``, ``kv_cache``, ``lost``, ``provenance``.
    ``pools``: those of ``POOL``, ``active_adapters``, what the early warning says, ``phantom_slots``, ``provenance``.
    ``working_set``: ``POOL``, ``seconds``, ``adapters`` (W, by the rates of ten minutes). ``load_seconds``: ``POOL``, ``phase``,
    ``load_seconds`` (mean; phases with fewer than five loads are left out). Both with provenance.
    """

    pods: pl.DataFrame
    pools: pl.DataFrame
    working_set: pl.DataFrame
    load_seconds: pl.DataFrame


def signals(store: Store, told: Situation, findings: Iterable[Finding]) -> Signals:
    """The signals of a situation and of what was found in it. StoreError where a table can't be read."""
    window = Window(max(told.window.start, told.window.end - SPAN), told.window.end)
    events = store.rows(ADAPTER_EVENTS, window, pl.col("kind").is_in(KINDS))
    samples = store.rows(SAMPLES, window, pl.col("metric").is_in(METRICS))
    requests = told.requests.lazy()
    return Signals(
        _pods(told.overview.pods, events, requests, samples, window),
        _pools(told.pools, tuple(findings)),
        _working_set(requests, window),
        _load_seconds(events.lazy()),
    )


def _pods(
    known: pl.DataFrame, events: pl.DataFrame, requests: pl.LazyFrame, samples: pl.DataFrame, window: Window
) -> pl.DataFrame:
    """Figures that need loads are null of pods that tell none, for there no load is no zero."""
    inside = requests.filter(pl.col("at") >= window.start)
    lines = timeline(events.lazy(), inside, window, bin=window.end - window.start, by=POD).drop("pods").collect()
    shares = inference_share(
        events.lazy(), window, POD, boots=boots(events.lazy()).collect().lazy(), samples=samples.lazy()
    ).collect()
    lost = events.group_by(*POD).agg(lost=pl.col("count").filter(pl.col("kind") == "lost").sum().cast(pl.Float64))
    engines = known.select(*POD, told=pl.col("loads").is_not_null(), engines=_column(known, "engines_observed"))
    parts = (
        shares.select(*POD, "share_high", "busy_ratio", share_provenance="provenance"),
        _queue(samples),
        _cache(samples),
        lost,
    )
    whole = engines.join(lines, on=POD, how="left", nulls_equal=True)
    for part in parts:
        whole = whole.join(part, on=POD, how="left", nulls_equal=True)
    each = pl.col("engines").fill_null(1).clip(lower_bound=1)
    timed = (pl.col("stall_seconds") > 0) | (pl.col("loads") == 0)  # loads that took no time are loads of unknown length
    knowing = pl.when("told")
    return whole.select(
        *POD,
        swaps_per_second=knowing.then(pl.col("swaps") / window.seconds),
        loads_per_second=knowing.then(pl.col("loads") / window.seconds),
        cold_loads_per_second=knowing.then(pl.col("cold_loads") / window.seconds),
        requests_per_second=pl.col("requests") / window.seconds,
        miss_ratio=knowing.then("loads_per_request"),
        stall_share=pl.when(pl.col("told") & timed).then(pl.col("stall_seconds") / window.seconds / each),
        swap_queue="swap_queue",
        share_high="share_high",
        busy_ratio="busy_ratio",
        kv_cache="kv_cache",
        lost="lost",
        provenance=pl.max_horizontal(
            ranked_provenance(name) for name in ("provenance", "share_provenance", "queue_provenance", "cache_provenance")
        ).cast(pl.String),
    ).sort(*POD)


def _column(frame: pl.DataFrame, name: str) -> pl.Expr:
    return pl.col(name) if name in frame.columns else pl.lit(None, dtype=pl.Int64)


def _queue(samples: pl.DataFrame) -> pl.DataFrame:
    """Requests that wait for a slot: mean of the looks, engines added up."""
    deferred = pl.col("labels").str.json_path_match("$.reason") == "deferred"
    return (
        samples.filter((pl.col("metric") == names.WAITING_BY_REASON) & deferred)
        .group_by(*ENGINE)
        .agg(pl.col("value").mean(), ranked=ranked_provenance().max())
        .group_by(*POD)
        .agg(swap_queue=pl.col("value").sum(), queue_provenance=pl.col("ranked").max().cast(pl.String))
    )


def _cache(samples: pl.DataFrame) -> pl.DataFrame:
    """KV cache in use: mean of the looks, of the fullest engine. More than all of it is a percentage of something else."""
    return (
        samples.filter((pl.col("metric") == names.KV_CACHE_USAGE) & pl.col("value").is_between(0.0, 1.0))
        .group_by(*ENGINE)
        .agg(pl.col("value").mean(), ranked=ranked_provenance().max())
        .group_by(*POD)
        .agg(kv_cache=pl.col("value").max(), cache_provenance=pl.col("ranked").max().cast(pl.String))
    )


def _pools(pools: Iterable[PoolFacts], findings: tuple[Finding, ...]) -> pl.DataFrame:
    rows = []
    for facts in pools:
        held = sum(
            one.weight
            for one in findings
            if one.kind == "phantom"
            and one.until is None
            and (one.cluster, one.pool, one.role) == (facts.cluster, facts.pool, facts.role)
        )
        learning = facts.learning or bool((facts.warning or {}).get("learning"))
        new = (facts.warned("newmass"), facts.warned("new_count")) if not learning else (None, None)
        warned = [facts.warned(name) for name in _WARNED.values()]
        rows.append(
            (facts.cluster, facts.pool, facts.role, float(facts.active_adapters), *warned, *new, held or None, facts.provenance)
        )
    return pl.DataFrame(rows, schema=_POOL_SCHEMA, orient="row")


def _working_set(requests: pl.LazyFrame, window: Window) -> pl.DataFrame:
    asked = rates(requests, window).collect().lazy()
    spans = sorted((*HORIZONS, PRESSURE_SECONDS))
    told = working_set_from_rates(asked, spans=spans)
    shown = {span: f"{span:g}" for span in spans}
    seconds = pl.col("span_seconds").replace_strict(shown, return_dtype=pl.String)
    return told.select(*POOL, seconds.alias("seconds"), "adapters", "provenance")


def _load_seconds(events: pl.LazyFrame) -> pl.DataFrame:
    return (
        load_phases(events)
        .group_by(*POOL, "phase")
        .agg(
            load_seconds=pl.col("seconds").mean(),
            loads=pl.len(),
            provenance=pl.col("ranked").max().cast(pl.String),
        )
        .filter(pl.col("loads") >= FEWEST)
        .drop("loads")
        .sort(*POOL, "phase")
        .collect()
    )
