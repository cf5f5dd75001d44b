"""
How often the 95 % intervals of residency hold the truth: ``python benchmarks/residency_coverage.py``.

Two clusters in a steady state, 8 pods × 4 slots, Zipf(1.0), 3.7 requests a second: 40 adapters, and 60 with 5 % more traffic,
some days each. Truth is the curve of all stays of these days; windows are drawn at random, the same for the same seed.
``--windows 50`` makes a small study. Beside the blocks that the product takes stand others, to show why.
"""

import argparse
import time
from typing import Literal

import numpy as np
import polars as pl

from lora_watch.derive.residency import residency
from lora_watch.derive.residency_interval import residency_interval
from lora_watch.derive.stays import stays
from lora_watch.model import DAY, MINUTE, SECOND, Window
from lora_watch.simulate.engines import lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import Pool, Scenario, Traffic, Truth
from lora_watch.simulate.traffic import catalogue, everything

POOL, POD = ("cluster", "pool"), ("cluster", "pod")
LENGTHS = (300, 900, 3600)
SETTLING = 3600 * SECOND
"""µs after the begin that are left out: the slots were empty."""


def steady(adapters: int, rate: float, router: Literal["article", "round-robin"]) -> Scenario:
    return Scenario(
        name=f"{adapters} adapters, {router}",
        about="",
        pools=(Pool(pods=8, slots=4, cpu_capacity=64, router=router),),
        traffic=Traffic(requests_per_second=rate, adapters=adapters),
        truth=Truth(),
    )


def sat(scenario: Scenario, days: float, seed: int) -> tuple[pl.DataFrame, Window]:
    """All stays, and the window in which the cluster was in its steady state."""
    known = catalogue(scenario, seed)
    served = list(lives(scenario, known, everything(scenario, known, days, seed), days, seed))
    window = Window(scenario.begin, scenario.begin + round(days * DAY))
    telling = pl.col("kind").is_in(["load", "evict", "start"]) & pl.col("tier").ne_missing("cpu")
    parts = [part.events.filter(telling) for part in Rows(scenario, known, served, window.end, seed).parts()]
    return stays(pl.concat(parts).lazy()).collect(), Window(window.start + SETTLING, window.end)


def coverage(all_stays: pl.DataFrame, whole: Window, seconds: int, windows: int, block: int | None, by: tuple[str, ...]) -> str:
    """Share of intervals that hold the truth, p50 and p95; in brackets the share without an upper end, and how many there are."""
    true = residency(all_stays.lazy(), whole, by=by).collect()
    random = np.random.default_rng(seconds)
    held: dict[str, list[bool]] = {"p50": [], "p95": []}
    open_ended = {"p50": 0, "p95": 0}
    asked = 0
    starts = random.integers(whole.start, whole.end - seconds * SECOND, windows)
    for start in starts.tolist():
        window = Window(start, start + seconds * SECOND)
        left = pl.col("left_at")
        near = all_stays.filter((pl.col("resident_from") < window.end) & (left.is_null() | (left >= window.start)))
        told = residency_interval(near.lazy(), window, by=by, block=block).join(true, on=list(by))
        asked += told.height
        for row in told.iter_rows(named=True):
            for name in held:
                low, high, truth = row[f"{name}_low_seconds"], row[f"{name}_high_seconds"], row[f"{name}_seconds"]
                if low is not None:
                    open_ended[name] += high is None
                    held[name].append(low <= truth and (high is None or truth <= high))
    return " | ".join(
        f"{np.mean(held[name]):.3f} ({open_ended[name] / asked:.2f}, {len(held[name])})" if held[name] else "none"
        for name in held
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=400)
    parser.add_argument("--days", type=float, default=4.0)
    asked = parser.parse_args()
    began = time.perf_counter()
    print("| cluster | of | window | blocks | p50 | p95 |\n| --- | --- | --- | --- | --- | --- |")
    for scenario in (steady(40, 3.7, "article"), steady(60, 3.7 * 1.05, "article"), steady(60, 3.7 * 1.05, "round-robin")):
        all_stays, whole = sat(scenario, asked.days, 1)
        for seconds in LENGTHS:
            choices: list[tuple[str, int | None]] = [("the product's", None)]
            if seconds > 300:
                choices += [("pod × 1 min", MINUTE), ("pod × a fifth", seconds * SECOND // 5)]
            for name, block in choices:
                told = coverage(all_stays, whole, seconds, asked.windows, block, POOL)
                print(f"| {scenario.name} | pool | {seconds} s | {name} | {told} |", flush=True)
            told = coverage(all_stays, whole, seconds, max(asked.windows // 8, 1), None, POD)
            print(f"| {scenario.name} | one pod | {seconds} s | the product's | {told} |", flush=True)
    print(f"\n{asked.windows} windows, {asked.days:g} days, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
