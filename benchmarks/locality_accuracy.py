"""
How far off locality and early warning are, and what a round costs: ``python benchmarks/locality_accuracy.py``, or with one or
more of ``curves``, ``saturation`` and ``cost``.

``curves``: the histogram and Che's approximation against the exact miss-ratio curve, on traffic whose truth is known.
``saturation``: rho of every fifth minute of simulated days, of both profiles, against whether latency bends and a queue stands.
``cost``: one minute's round at 100 pods with 40 requests a second each.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.derive.che import characteristic_seconds, loads
from lora_watch.derive.first_seen import first_seen, no_first_seen
from lora_watch.derive.forecast import hourly
from lora_watch.derive.groups import POD
from lora_watch.derive.miss_ratio_curve import miss_ratio_curve
from lora_watch.derive.reuse_histogram import MEMORY, ReuseHistogram, ReuseHistograms
from lora_watch.derive.warning import SPAN, alarms, warning
from lora_watch.derive.working_set import working_set
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.replay.stack import stack_distances
from lora_watch.replay.trace import Trace
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.scenario import Loads, Pool, Scenario, Traffic, Truth, load
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

Floats = NDArray[np.float64]


def zipf(adapters: int, alpha: float) -> Floats:
    """Shares of adapters."""
    weights = np.arange(1, adapters + 1, dtype=np.float64) ** -alpha
    return np.asarray(weights / weights.sum())


def workload(name: str, seed: int = 3) -> tuple[NDArray[np.int32], Floats, int]:
    """Adapters and arrival seconds of a day at 4 requests a second, and how many adapters there are."""
    random = np.random.default_rng(seed)
    count = 345_600
    seconds = np.sort(random.random(count)) * 86_400
    adapters = 1000 if name == "1000 adapters" else 60
    shares = zipf(adapters, 1.0)
    drawn = random.choice(adapters, count, p=shares).astype(np.int32)
    if name.startswith("sessions"):
        length, users = int(name.split()[-1]), 30
        now, which = drawn[:users].copy(), random.integers(0, users, count)
        fresh = random.random(count) < 1 / length
        for i in range(count):
            if fresh[i]:
                now[which[i]] = drawn[i]
            drawn[i] = now[which[i]]
    if name == "three zones":
        zone = np.arange(adapters) % 3
        for hour in range(24):
            inside = (seconds >= hour * 3600) & (seconds < (hour + 1) * 3600)
            awake = shares * (1 + 0.95 * np.cos(2 * np.pi * (hour + 8 * zone - 14) / 24))
            drawn[inside] = random.choice(adapters, int(inside.sum()), p=awake / awake.sum())
    if name == "batch scans":
        for start in range(0, count - 2000, 20_000):
            drawn[start : start + 1800] = np.repeat(random.permutation(adapters), 30)
    return drawn, seconds, adapters


def curves() -> None:
    """The largest absolute error of the miss ratio over 1 … 48 slots (every eighth up to 512 for 1000 adapters)."""
    print(f"{'traffic':<16} {'exact at 8/32':>14} {'histogram':>10} {'fading':>8} {'che, 10 min':>12} {'che, 1 day':>11}")
    for name in ("independent", "1000 adapters", "three zones", "sessions of 3", "sessions of 12", "batch scans"):
        codes, seconds, adapters = workload(name)
        slots = np.arange(8, 513, 8) if adapters > 100 else np.arange(1, 49)
        distance = stack_distances(Trace(codes, adapters=adapters))

        def exact(weights: Floats, distance: NDArray[np.int32] = distance, slots: NDArray[np.int64] = slots) -> Floats:
            return np.array([weights[(distance < 0) | (distance >= c)].sum() for c in slots]) / weights.sum()

        even = np.ones(len(codes))
        truth = exact(even)
        whole, fading = ReuseHistogram(10**9), ReuseHistogram(MEMORY)
        whole.update(codes)
        worst = 0.0
        step = len(codes) // 12
        for end in range(step, len(codes) + 1, step):
            fading.update(codes[end - step : end])
            weights = np.where(np.arange(len(codes)) < end, np.exp((np.arange(len(codes)) - end) / MEMORY), 0.0)
            worst = max(worst, float(np.abs(fading.curve(slots.tolist()) - exact(weights)).max()))
        ten = np.zeros(len(slots))
        for start in range(0, 86_400, 600):
            mine = codes[(seconds >= start) & (seconds < start + 600)]
            ten += missed(np.bincount(mine, minlength=adapters) / 600, slots) * len(mine)
        day = missed(np.bincount(codes, minlength=adapters) / 86_400, slots)
        at = [f"{exact(even, slots=np.array([c]))[0]:.3f}" for c in (8, 32)]
        print(
            f"{name:<16} {'/'.join(at):>14} {np.abs(whole.curve(slots.tolist()) - truth).max():>10.4f} {worst:>8.4f}"
            f" {furthest(ten / len(codes) - truth):>+12.4f} {furthest(day - truth):>+11.4f}"
        )


def furthest(difference: Floats) -> float:
    """The difference that is furthest from 0, with its sign."""
    return float(difference[np.argmax(np.abs(difference))])


def missed(rates: Floats, slots: NDArray[np.int64]) -> Floats:
    """Che's miss ratio at each number of slots."""
    times = [characteristic_seconds(rates, int(c)) for c in slots]
    return np.array([0.0 if np.isinf(t) else loads(rates[rates > 0], t) / rates.sum() for t in times])


Router = Literal["article", "llm-d", "residency", "round-robin", "random", "home"]


def day(
    name: str, pods: int, slots: int, rps: float, adapters: int, alpha: float, tokens: int, router: Router,
    profile: Literal["vllm", "article"], seats: int = 180, warm: float = 0.003,
) -> Scenario:  # fmt: skip
    """A day that swings between a fifth and nine fifths of its mean rate."""
    return Scenario(
        name=name,
        about="A day with a peak.",
        days=1,
        pools=(Pool(name="vllm", pods=pods, slots=slots, cpu_capacity=64, router=router, seats=seats),),
        loads=Loads(profile=profile, warm_seconds=warm),
        traffic=Traffic(requests_per_second=rps, adapters=adapters, zipf=alpha, daily_swing=0.8, generated_tokens=tokens),
        truth=Truth(),
    )


def scenarios() -> Iterator[tuple[Scenario, int, int | None]]:
    """What is simulated, with which seed, and the seats that the formula is told (null: it isn't)."""
    for name in ("thursday", "healthy", "one-slot-short"):
        yield load(name).model_copy(update={"loads": Loads(profile="article")}), 1, None
    yield load("thursday").model_copy(update={"name": "thursday, vllm", "loads": Loads(profile="vllm")}), 1, None
    yield load("hard-cliff"), 1, None
    yield day("slots, vllm", 8, 4, 45, 40, 1.0, 60, "article", "vllm"), 2, None
    yield day("round robin, vllm", 4, 8, 16, 40, 1.0, 60, "round-robin", "vllm"), 2, None
    yield day("long, vllm", 4, 8, 3, 60, 0.8, 400, "llm-d", "vllm"), 2, None
    yield day("slow loads, vllm", 4, 4, 20, 60, 0.6, 10, "round-robin", "vllm", warm=0.15), 2, None
    yield day("slow loads, article", 4, 8, 10, 60, 0.8, 30, "round-robin", "article"), 2, None
    yield day("seats, vllm", 4, 8, 24, 6, 1.0, 100, "article", "vllm", seats=12), 2, 12


def saturation() -> None:
    """rho by bins; the formula that takes the highest rate without a queue for the capacity stands beside it."""
    parts = []
    for scenario, seed, seats in scenarios():
        with tempfile.TemporaryDirectory() as folder:
            simulate(scenario, scenario.days, seed, Path(folder))
            told = minutes(scenario, Store(folder), seats)
        parts.append(told)
        first = {name: told.filter(name)["hour"].min() for name in ("bend", "queue", "alarm", "other_alarm")}
        peak = told.filter(~(pl.col("bend") | pl.col("queue"))).select(pl.col("rho").max(), pl.col("highest_rate").max()).row(0)
        words = ", ".join(f"{name} from hour {hour:.2f}" if hour is not None else f"no {name}" for name, hour in first.items())
        print(f"{scenario.name:<20} highest without bend or queue: rho {peak[0]:.2f}, other {peak[1]:.2f}; {words}", flush=True)
    whole = pl.concat(parts)
    for column in ("rho", "highest_rate"):
        lower = (pl.col(column) * 10).floor().clip(0, 12) / 10
        print(column)
        for row in (
            whole.group_by(bin=lower)
            .agg(
                minutes=pl.len() * 5,
                bend=pl.col("bend").mean(),
                queue=pl.col("queue").mean(),
                p95=(pl.col("p95") / pl.col("base")).median(),
            )
            .sort("bin")
            .iter_rows()
        ):
            print("  {:.1f}  {:>6}  bend {:.3f}  queue {:.3f}  p95 x {:.2f}".format(*row))


def minutes(scenario: Scenario, store: Store, seats: int | None) -> pl.DataFrame:
    """Every fifth minute: rho as of then, and whether it lies in a bend (P95 TTFT > 2 × usual for ten minutes) or a queue."""
    start = scenario.begin
    whole = Window(start, start + round(scenario.days * DAY))
    requests = store.rows(REQUESTS, whole).filter(pl.col("adapter").is_not_null()).sort("at")
    events = store.rows(ADAPTER_EVENTS, whole, pl.col("kind").is_in(["load", "steps"])).sort("at")
    samples = store.rows(SAMPLES, whole, pl.col("metric") == names.REQUESTS_WAITING)
    pool = scenario.pools[0]
    fleet = requests.select(POD).unique().with_columns(slots=pl.lit(pool.slots), seats=pl.lit(seats, dtype=pl.Int64))
    ttft = (pl.col("first_token") - pl.coalesce("queued", "arrived")) / SECOND
    by_minute = (
        requests.group_by(minute=pl.coalesce("queued", "arrived") // MINUTE)
        .agg(p95=ttft.quantile(0.95))
        .join(samples.group_by(minute=pl.col("at") // MINUTE).agg(waiting=pl.col("value").mean()), on="minute", how="left")
        .sort("minute")
    )
    base = by_minute["p95"].head(600).median()
    held = by_minute.with_columns(
        bend=(pl.col("p95") > 2 * pl.lit(base)).cast(pl.Int8).rolling_min(10).rolling_max(10).shift(-9).fill_null(0) > 0,
        queue=(pl.col("waiting") >= 1).cast(pl.Int8).rolling_min(10).rolling_max(10).shift(-9).fill_null(0) > 0,
    )
    seen = first_seen(no_first_seen(), requests.lazy())
    history = hourly(requests.lazy(), whole)
    rows, states = [], None
    for end in range(start + 30 * MINUTE, int(requests["at"].max() or 0), 5 * MINUTE):
        part, moved = (
            frame.slice(
                frame["at"].search_sorted(end - SPAN), frame["at"].search_sorted(end) - frame["at"].search_sorted(end - SPAN)
            )
            for frame in (requests, events)
        )
        past = history.filter(pl.col("hour") + HOUR <= end)
        told = warning(part.lazy(), end, fleet.lazy(), seen, events=moved.lazy(), history=past)
        if told.is_empty():
            continue
        states = alarms(states, told)
        one = told.row(0, named=True)
        firing = states.filter((pl.col("signal") == "rho_peak") & pl.col("on")).height > 0
        rows.append(
            (
                (end - MINUTE) // MINUTE,
                (end - start) / HOUR,
                one["requests_per_second"],
                one["load_share"],
                one["rho_now"],
                firing,
            )
        )
    frame = pl.DataFrame(rows, schema=["minute", "hour", "rate", "share", "rho", "alarm"], orient="row")
    joined = frame.join(held, on="minute").with_columns(pl.col("rho", "share", "rate").cast(pl.Float64), base=pl.lit(base))
    busiest = pl.col("rate").filter(~pl.col("queue")).max()
    return joined.with_columns(highest_rate=pl.col("rate") / (busiest * (1 - pl.col("share").clip(0, 0.95)))).with_columns(
        other_alarm=pl.col("highest_rate") > 0.7
    )


def stream(pods: int, rate: float, seconds: int, adapters: int = 200) -> pl.DataFrame:
    """Finished requests of so many seconds, as the store hands them out."""
    random = np.random.default_rng(1)
    count = int(pods * rate * seconds)
    adapter, pod = random.choice(adapters, count, p=zipf(adapters, 1.0)), random.integers(0, pods, count)
    at = np.sort(random.integers(0, seconds * SECOND, count)) + 30 * DAY
    named, where = pl.Series([f"tenant-{n}" for n in range(adapters)]), pl.Series([f"vllm-{n}" for n in range(pods)])
    frame = pl.DataFrame({"at": at, "seq": np.arange(count), "adapter": named.gather(adapter), "pod": where.gather(pod)})
    constant = {"cluster": "c", "pool": "p", "role": "", "engine": "0", "provenance": "observed"}
    return frame.with_columns(
        *(pl.lit(text).alias(name) for name, text in constant.items()),
        stream="agent/c/" + pl.col("pod") + "/boot",
        arrived=pl.col("at") - SECOND,
        queued=pl.col("at") - SECOND,
        scheduled=pl.col("at") - SECOND,
        finished=pl.col("at"),
    )


def cost() -> None:
    """CPU seconds of each part of a round; every kernel is compiled first, of three runs the least counts."""

    def timed(label: str, work: Callable[[], object], runs: int = 3) -> None:
        best = float("inf")
        for _ in range(runs):
            begin = time.process_time()
            work()
            best = min(best, time.process_time() - begin)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{label:<66} {best:6.2f} s CPU   {peak:5.2f} GiB so far", flush=True)

    ten = stream(100, 40, 600)
    end = 30 * DAY + 600 * SECOND
    minute = ten.filter(pl.col("at") >= end - MINUTE)
    fleet = ten.select(POD).unique().with_columns(slots=pl.lit(8)).lazy()
    seen = first_seen(no_first_seen(), ten.lazy())
    for by in (("cluster", "pool"), POD):
        ReuseHistograms(by).update(minute.head(1000).lazy(), end)
    print(f"{ten.height:,} requests in ten minutes, {minute.height:,} in one")
    timed("first seen, a minute", lambda: first_seen(seen, minute.lazy()))
    timed("histogram of the pool, a minute", lambda: ReuseHistograms().update(minute.lazy(), end))
    timed("histograms of 100 pods, a minute", lambda: ReuseHistograms(POD).update(minute.lazy(), end))
    timed("warning, ten minutes", lambda: warning(ten.lazy(), end, fleet, seen))
    window = Window(end - SPAN, end)
    timed("exact curve of the pool, ten minutes", lambda: miss_ratio_curve(ten.lazy(), window), 1)
    timed("exact curves of 100 pods, ten minutes", lambda: miss_ratio_curve(ten.lazy(), window, POD), 1)
    timed(
        "exact W(300 s) over five minutes",
        lambda: working_set(ten.lazy(), Window(end - 300 * SECOND, end), spans=[300.0], held_from=end - SPAN),
        1,
    )


def main() -> None:
    """Measure and print."""
    works = {"curves": curves, "saturation": saturation, "cost": cost}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=list(works), default=[])
    for name in parser.parse_args().what or works:
        works[name]()


if __name__ == "__main__":
    main()
