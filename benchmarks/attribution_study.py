"""
What attribution says beside what is true, in simulated clusters: ``python benchmarks/attribution_study.py``.

Truth is the same traffic on the same pods in a world where a load takes no time: a request is slow because of loads if it is slow
as it was and not slow there. ``--runs 10`` makes a small study, ``--hours`` says how long each cluster runs.

Three tables: fractions and P95 effects against truth; coverage of the truth by intervals, over seeds; and clusters in which
loads take no time at all, over seeds: what is claimed there is wrong.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.attribution import attribution
from lora_watch.derive.queue_replay import queue_replay
from lora_watch.model import DAY, SECOND, Window
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import Trace
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.simulate.engines import Life, lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Loads, Pool, Scenario, Traffic, Truth, load
from lora_watch.simulate.traffic import Catalogue, Requests, catalogue, everything

SINGLE = {"prompt_tokens": 500.0, "generated_tokens": 8.0, "adapters": 60}
POOL = ("cluster", "pool")


@dataclass(frozen=True)
class World:
    """A simulated cluster as rows, and the latencies it would have had without stalls, by number of request."""

    window: Window
    events: pl.DataFrame
    requests: pl.DataFrame
    ttft: NDArray[np.float64]
    e2e: NDArray[np.float64]


def queueing(rate: float, *, seats: int, pods: int = 8) -> Scenario:
    """Engines that serve ``seats`` requests at once, the article's loads (0.1 … 0.7 s)."""
    return Scenario(
        name=f"{rate:g}/s, {seats} seats",
        about="",
        pools=(Pool(pods=pods, slots=4, cpu_capacity=64, seats=seats),),
        loads=Loads(profile="article"),
        traffic=Traffic(requests_per_second=rate, **SINGLE),
        truth=Truth(),
    )


def work(scenario: Scenario, asked: Requests) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """µs of each request's prefill and of all its work."""
    prefill = (asked.prompt * (SECOND / scenario.traffic.prefill_tokens_per_second)).astype(np.int64)
    decode = (asked.generated * (scenario.traffic.seconds_per_token * SECOND)).astype(np.int64)
    return prefill, np.maximum(prefill + decode, 1)


def laid(scenario: Scenario, days: float, seed: int) -> World:
    """The scenario, and its truth: the same requests on the same pods in the replay of a fleet that loads in no time."""
    known = catalogue(scenario, seed)
    asked = everything(scenario, known, days, seed)
    served = list(lives(scenario, known, asked, days, seed))
    window = Window(scenario.begin, scenario.begin + round(days * DAY))
    parts = list(Rows(scenario, known, served, window.end, seed).parts())
    ttft, e2e = without(scenario, known, asked, served)
    return World(window, pl.concat([part.events for part in parts]), pl.concat([part.requests for part in parts]), ttft, e2e)


def without(
    scenario: Scenario, known: Catalogue, asked: Requests, served: list[Life]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds to the first and to the last token where loads take no time."""
    (pool,) = scenario.pools
    pod = np.zeros(len(asked), dtype=np.int32)
    for life in served:
        pod[life.asked.number[life.number]] = life.pod
        pod[life.asked.number[life.refused]] = life.pod
    prefill, whole = work(scenario, asked)
    trace = Trace(asked.adapter, adapters=len(known), pod=pod, pods=pool.pods, at=asked.at, hold=whole)
    start = replay(trace, Fleet(pool.slots, pool.cpu_capacity, pool.seats)).start
    return (start - asked.at + prefill) / SECOND, (start - asked.at + whole) / SECOND


def without_effect(scenario: Scenario, days: float, seed: int) -> World:
    """The same traffic where loads take no time, with its loads and evictions on record: nothing is due to them."""
    known = catalogue(scenario, seed)
    asked = everything(scenario, known, days, seed)
    (pool,) = scenario.pools
    prefill, whole = work(scenario, asked)
    pod = np.random.default_rng([seed, 9]).integers(0, pool.pods, len(asked)).astype(np.int32)
    trace = Trace(asked.adapter, adapters=len(known), pod=pod, pods=pool.pods, at=asked.at, hold=whole)
    told = replay(trace, Fleet(pool.slots, pool.cpu_capacity, pool.seats))
    names = pl.Series(known.names)
    where = {"cluster": pl.lit("c"), "pool": pl.lit("pool"), "engine": pl.lit("0"), "source": pl.lit("study")}
    every = pl.DataFrame(
        {
            "pod": pl.Series([f"p{n}" for n in range(pool.pods)]).gather(pod),
            "adapter": names.gather(asked.adapter),
            "victim": names.gather(pl.Series(told.victim).set(pl.Series(told.victim < 0), None)),
            "start": told.start,
            "at": told.end,
            "queued": asked.at,
            "scheduled": told.start,
            "first_token": told.start + prefill,
            "finished": told.end,
            "loaded": told.lookup > 0,
        }
    ).with_columns(provenance=pl.lit("observed"), stream=pl.lit("requests"), seq=pl.int_range(pl.len()), **where)
    columns = ["at", "cluster", "pool", "pod", "engine", "adapter", "provenance", "source"]
    loads = every.filter("loaded").with_columns(at="start")
    events = pl.concat(
        [
            loads.select(*columns, seconds=pl.lit(0.0), kind=pl.lit("load"), reason=pl.lit("demand")),
            loads.filter(pl.col("victim").is_not_null())
            .with_columns(adapter="victim")
            .select(*columns, seconds=pl.lit(None, dtype=pl.Float64), kind=pl.lit("evict"), reason=pl.lit("lru")),
        ]
    ).with_columns(tier=pl.lit("gpu"), stream="pod", seq=pl.int_range(pl.len()))
    requests = REQUESTS.conform(every.with_columns(request_id=pl.format("x-{}", "seq")).drop("start", "victim", "loaded"))
    window = Window(scenario.begin, scenario.begin + round(days * DAY))
    nothing = np.empty(0)
    return World(window, ADAPTER_EVENTS.conform(events), requests, nothing, nothing)


def estimates(world: World, measure: str, seed: int = 0) -> Mapping[str, float]:
    """What attribution says of the whole pool, and the truth beside it."""
    replayed = queue_replay(world.requests.lazy(), world.events.lazy())
    told = attribution(replayed, world.events.lazy(), world.window, by=POOL, measure=measure, seed=seed)  # type: ignore[arg-type]  # a Literal
    row = told.row(0, named=True)
    if len(world.ttft):
        number = pl.col("request_id").str.extract(r"(\d+)$").cast(pl.Int64)
        rows = replayed.join(world.requests.select("stream", "seq", number=number), on=["stream", "seq"])
        rows = rows.filter(pl.col(f"{measure}_seconds").is_not_null())
        latency = rows[f"{measure}_seconds"].to_numpy()
        true = (world.ttft if measure == "ttft" else world.e2e)[rows["number"].to_numpy()]
        limit = np.quantile(true, 0.95, method="higher")
        row["true_fraction"] = float((true[latency > limit] <= limit).mean())
        row["true_effect"] = float(np.quantile(latency, 0.95) - np.quantile(true, 0.95))
        row["true_delay"] = float((latency - true).mean())
        row["swaps"] = world.events.filter((pl.col("kind") == "evict") & (pl.col("tier") == "gpu")).height
    return row


def against_truth(days: float) -> None:
    """Table one."""
    print("| cluster | latency | slow because of loads: true / replay [95 %] / own wait only / risk ratio", end="")
    print(" | P95 effect, ms: true / replay [95 %] | with − without an eviction, ms: raw / placebo / stratified |")
    print("| --- | --- | --- | --- | --- |")
    thursday = load("thursday").model_copy(update={"begin": load("thursday").begin + DAY})
    busy = thursday.model_copy(
        update={"events": tuple(event.model_copy(update={"start": 0.0}) for event in thursday.events), "name": "thursday, A/B"}
    )
    worlds = [queueing(rate, seats=1) for rate in (6, 14, 20)] + [queueing(32, seats=4), busy]
    for scenario in worlds:
        world = laid(scenario, days, 1)
        for measure in ("ttft", "e2e"):
            row = estimates(world, measure)
            ms = {name: f"{1000 * value:.0f}" for name, value in row.items() if isinstance(value, float)}
            print(
                f"| {scenario.name} | {measure} | **{row['true_fraction']:.3f}** / **{row['attributable_fraction']:.3f}** "
                f"[{row['attributable_fraction_low']:.3f}, {row['attributable_fraction_high']:.3f}] / "
                f"{row['own_wait_fraction']:.3f} / {row['risk_ratio_fraction']:.3f} | {ms['true_effect']} / "
                f"{ms['p95_effect_seconds']} [{ms['p95_effect_seconds_low']}, {ms['p95_effect_seconds_high']}] | "
                f"{ms['p95_with_eviction_raw_seconds']} / {ms['p95_with_eviction_placebo_seconds']} / "
                f"{ms['p95_with_eviction_stratified_seconds']} |",
                flush=True,
            )


ZERO = (
    "attributable_fraction",
    "p95_effect_seconds",
    "risk_ratio_fraction",
    "p95_with_eviction_raw_seconds",
    "p95_with_eviction_placebo_seconds",
    "p95_with_eviction_stratified_seconds",
)


def zero_effect(runs: int, days: float) -> None:
    """Table two."""
    print("| no effect at all | " + " | ".join(ZERO) + " |\n| --- |" + " --- |" * len(ZERO))
    for scenario in (queueing(7, seats=1, pods=4), queueing(10, seats=1, pods=4), queueing(30, seats=4, pods=4)):
        rows = [estimates(without_effect(scenario, days, seed), "ttft", seed) for seed in range(runs)]
        cells = []
        for name in ZERO:
            held = np.mean([row[f"{name}_low"] <= 0 <= row[f"{name}_high"] for row in rows])
            cells.append(f"{held:.2f} (mean {np.mean([row[name] for row in rows]):.4f})")
        print(f"| {scenario.name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--hours", type=float, default=12.0)
    asked = parser.parse_args()
    began = time.perf_counter()
    against_truth(asked.hours / 24)
    print()
    zero_effect(asked.runs, asked.hours / 24 / 2)
    print(f"\n{asked.runs} runs, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
