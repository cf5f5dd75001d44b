"""
Does advice on pins hold? ``python benchmarks/backtest_study.py``: months of requests whose making is known, week by week.

``greedy`` compares the greedy order with the best of all pin sets on small pools; ``study`` is the backtest of all workloads,
with what-ifs beside the truth; ``levers`` asks the same of slots, pods, routing and schedules (``lever_study.py``); ``large`` is
the time and memory of advice on 30 days of 11 million requests. Without a word: all.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import lever_study
import numpy as np
from backtest_workloads import START, WORKLOADS, Workload, history

from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Verdict
from lora_watch.recommend.backtest import ONE_SLOT, TOP_5, TOP_5_WEEK, TOP_10, Week, held_out
from lora_watch.recommend.bounds import HINDSIGHT, PER_POD, POOLED
from lora_watch.recommend.change_points import changes
from lora_watch.recommend.greedy import pooled_order
from lora_watch.recommend.history import History
from lora_watch.recommend.judge import judged
from lora_watch.recommend.pins import WEEK, advise_pins
from lora_watch.recommend.present import present
from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.routers import ARTICLE, ROUND_ROBIN, Router, Rule
from lora_watch.replay.trace import Trace

WORTH = 0.05
"""Hindsight's gain from which on ours is measured against it."""


def greedy(instances: int = 300) -> None:
    """Small pools: the best prefix of the greedy order against the best set that there is."""
    kept = []
    for seed in range(instances):
        random = np.random.default_rng(seed)
        adapters, slots = int(random.integers(5, 9)), int(random.integers(2, 6))
        weights = 1 / np.arange(1, adapters + 1) ** random.choice([0.6, 1.0, 1.5])
        stream = random.choice(adapters, 400, p=weights / weights.sum())
        night = np.arange(400) // 50 % 2 == 1
        stream = np.where(night & (random.random(400) < 0.5), adapters - 1 - stream, stream)
        base = _small(stream, adapters, slots)
        every = np.ones(adapters, dtype=np.bool_)
        order = pooled_order(base, every, None)
        loads = {pins: _loads(base, pins) for count in range(slots) for pins in combinations(range(adapters), count)}
        best = loads[()] - min(loads.values())
        ours = loads[()] - min(_loads(base, tuple(order[:count])) for count in range(min(len(order), slots - 1) + 1))
        if best > 0:
            kept.append(ours / best)
    print(f"greedy against the best of all pin sets, {len(kept)} pools where pins save a load:")
    print(
        f"  mean share of its gain {np.mean(kept):.3f}, all of it in {np.mean(np.array(kept) == 1):.1%}, least {min(kept):.2f}\n"
    )


def _small(stream: np.ndarray, adapters: int, slots: int) -> History:
    at = START + np.arange(len(stream)) * (7 * DAY // len(stream))
    return History(
        Window(START, START + 7 * DAY),
        Trace(stream, adapters=adapters, pods=1, at=at),
        tuple(map(str, range(adapters))),
        ("pod",),
        (slots,),
        np.full(adapters, np.nan),
        np.full(adapters, -1),
        np.zeros(adapters, dtype=np.int64),
        np.zeros(adapters, dtype=np.bool_),
    )


def _loads(base: History, pins: tuple[int, ...]) -> int:
    return replay(base.trace, Fleet(base.slots, pins=[(0, a) for a in pins])).loads + len(pins)


def study(requests: int, seeds: int, out: Path) -> None:
    """Every workload and seed, week by week, into ``out``; then the tables."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as told:
        for name, workload in WORKLOADS.items():
            for seed in range(1, seeds + 1):
                month = history(replace(workload, requests=requests), seed)
                for row in _weeks(month, workload):
                    told.write(json.dumps({"workload": name, "seed": seed} | row) + "\n")
                    told.flush()
                del month
    tables(out)


def _weeks(month: History, workload: Workload) -> Iterator[dict[str, Any]]:
    for n in range(3, 0, -1):
        week = Window(month.window.end - n * WEEK, month.window.end - (n - 1) * WEEK)
        found = held_out(month, week)
        row = _row(found, workload.router)
        yield row | {"what_if": dict(_what_ifs(month, week, found, workload.router))}


def _row(found: Week, router: Router) -> dict[str, Any]:
    promised = found.advice.effect
    return {
        "day": (found.window.start - START) // DAY,
        "miss": found.miss_ratio,
        "pins": found.advice.amount,
        "verdict": found.advice.verdict,
        "promised": promised.swaps_removed,
        "low": promised.low,
        "high": promised.high,
        "realised": found.realised.swaps_removed,
        "unreleased": found.unreleased.swaps_removed,
        "kept": found.kept,
        "rules": {name: effect.swaps_removed for name, effect in found.rules.items()},
        "bounds": found.bounds,
        "found": found.router,
        "right": found.router == _name(router),
    }


def _name(router: Router) -> str:
    from lora_watch.recommend.present import ROUTERS

    return next(name for name, one in ROUTERS.items() if one == router)


def _what_ifs(month: History, week: Window, found: Week, true: Router) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Miss ratios: what was foretold on the same requests, on those of the week before, and the truth (ties drawn elsewhere)."""
    from lora_watch.recommend.present import ROUTERS

    router = None if found.router is None else ROUTERS[found.router]
    other = ROUND_ROBIN if true.rule in (Rule.ARTICLE, Rule.RESIDENCY) else ARTICLE
    before = Window(week.start - WEEK, week.start)
    for name, now, then, how in (
        ("as it is", router, true, {}),
        ("+1 slot per pod", router, true, {"more_slots": 1}),
        ("+2 slots per pod", router, true, {"more_slots": 2}),
        ("+1 pod", router, true, {"more_pods": 1}),
        ("another router", other, other, {}),
    ):
        same = judged(month, week, now, **how).miss_ratio
        past = judged(month, before, now, **how).miss_ratio
        truth = judged(month, week, replace(then, seed=77), **how).miss_ratio
        assert same is not None
        assert past is not None
        assert truth is not None
        yield name, (same, past, truth)


def tables(out: Path) -> None:
    """What the README quotes."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    columns = (
        "miss",
        "ours (range)",
        "promised",
        "held all week",
        "top 5",
        "top 10",
        "top 5, 7 d",
        "hindsight",
        "+1 slot",
        "per pod",
        "pooled",
    )
    print(f"| {len(rows)} held-out weeks | " + " | ".join(columns) + " |")
    print("| --- " * (len(columns) + 1) + "|")
    for name in WORKLOADS:
        mine = [row for row in rows if row["workload"] == name]
        if mine:
            print(f"| {name} | " + " | ".join(_cells(mine)) + " |")
    advised = [row for row in rows if row["verdict"] == Verdict.ADVISED]
    worth = [row for row in rows if row["bounds"][HINDSIGHT] > WORTH]
    print(f"\npins advised in {len(advised)} of {len(rows)} weeks; router found in {sum(row['right'] for row in rows)}")
    least, held = min(row["realised"] for row in rows), min(row["unreleased"] for row in rows)
    print(f"least realised: {least:+.3f}; if nobody releases pins: {held:+.3f}")
    shares = [row["realised"] / row["bounds"][HINDSIGHT] for row in worth]
    print(
        f"share of hindsight-static's gain where that is above 5 %: median {median(shares):.2f} of {len(shares)} weeks", end="; "
    )
    proven = [row["realised"] / row["bounds"][HINDSIGHT] for row in worth if row["verdict"] == Verdict.ADVISED]
    print(f"of those with advice {median(proven):.2f} of {len(proven)}")
    kept, width = [row["kept"] for row in advised], [row["high"] - row["low"] for row in advised]
    print(
        f"promise kept: {sum(kept)} of {len(kept)} weeks ({np.mean(kept):.0%}); mean width of its interval {np.mean(width):.3f}"
    )
    promised, realised = (np.mean([row[column] for row in advised]) for column in ("promised", "realised"))
    print(f"mean promised {promised:.3f}, realised {realised:.3f}\n")
    print(
        "| what if, error of the miss ratio in points | same requests: mean, most | foretold from the week before: mean, most |"
    )
    print("| --- | --- | --- |")
    for name in rows[0]["what_if"]:
        told = np.array([row["what_if"][name] for row in rows]) * 100
        same, past = np.abs(told[:, 0] - told[:, 2]), np.abs(told[:, 1] - told[:, 2])
        print(f"| {name} | {same.mean():.2f}, {same.max():.2f} | {past.mean():.2f}, {past.max():.2f} |")


def _cells(rows: list[dict[str, Any]]) -> Iterator[str]:
    def mean(values: list[float]) -> str:
        return f"{100 * np.mean(values):.1f}"

    ours = [row["realised"] for row in rows]
    promised = [row["promised"] for row in rows if row["verdict"] == Verdict.ADVISED]
    yield f"{np.mean([row['miss'] for row in rows]):.3f}"
    yield f"**{mean(ours)}** ({100 * min(ours):.1f} … {100 * max(ours):.1f})"
    yield f"{mean(promised)} in {len(promised)} of {len(rows)}" if promised else "never"
    yield mean([row["unreleased"] for row in rows])
    for rule in (TOP_5, TOP_10, TOP_5_WEEK):
        yield mean([row["rules"][rule] for row in rows])
    yield mean([row["bounds"][HINDSIGHT] for row in rows])
    yield mean([row["rules"][ONE_SLOT] for row in rows])
    yield mean([row["bounds"][PER_POD] for row in rows])
    yield mean([row["bounds"][POOLED] for row in rows])


def large(requests: int) -> None:
    """Advice on a month of 11 million requests: time, and memory beyond the history."""
    small = history(replace(WORKLOADS["no sessions"], requests=20_000), 1)
    advise_pins(small, present(small))
    month = history(replace(WORKLOADS["no sessions"], requests=requests), 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    wall, begin = time.perf_counter(), time.process_time()
    month = replace(month, changes=changes(month))
    now = present(month)
    found = time.process_time() - begin
    told = advise_pins(month, now)
    cpu, took = time.process_time() - begin, time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{len(month.trace):,} requests, 30 days, 8 x 4 slots, {month.trace.adapters} adapters: {cpu:.1f} s of CPU, {took:.1f} s",
        end="",
    )
    print(f" (router and changes {found:.1f} s); {told.advice.what}")
    print(f"memory: {held / 2**20:.0f} MiB held before; peak of the process {before / 1024:.0f} -> {after / 1024:.0f} MiB")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["greedy", "study", "levers", "tables", "large"])
    parser.add_argument("--requests", type=float, default=1.5e6)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=1, help="the first seed of levers")
    parser.add_argument("--large", type=float, default=11e6)
    parser.add_argument("--out", type=Path, default=Path("artifacts/backtest_study.jsonl"))
    asked = parser.parse_args()
    if asked.what in (None, "greedy"):
        greedy()
    if asked.what in (None, "large"):
        large(int(asked.large))
    if asked.what in (None, "study"):
        study(int(asked.requests), asked.seeds, asked.out)
    levers = asked.out.with_name("lever_study.jsonl")
    if asked.what in (None, "levers"):
        lever_study.study(int(asked.requests), range(asked.first, asked.first + asked.seeds), levers)
        lever_study.tables(levers)
    if asked.what == "tables":
        tables(asked.out)
        if levers.exists():
            lever_study.tables(levers)


if __name__ == "__main__":
    main()
