"""
Time and memory of a month of eight pods, simulated and stored: ``python benchmarks/simulate_speed.py``.

30 days × 8 pods × about 11 million requests of 79 adapters, with sessions, time zones, weekends, drift, a nightly scan, new
adapters and an A/B split; ``--days 3`` makes a small run, ``--pods 100`` has as many with the same requests each, ``--keep DIR``
leaves the tables. Memory is the process's high-water mark.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from lora_watch.simulate.scenario import Onboard, Pool, Restart, Scan, Scenario, Split, Traffic, Truth
from lora_watch.simulate.write import give_memory_back, simulate

MONTH = Scenario(
    name="month",
    about="A month of ordinary life.",
    days=30,
    pools=(Pool(name="vllm", pods=8, slots=4, cpu_capacity=64),),
    traffic=Traffic(
        requests_per_second=4.5,
        adapters=54,
        daily_swing=0.6,
        weekend=0.7,
        zones=(0, 8, -8),
        drift=0.2,
        session_requests=3,
        growth_per_day=0.001,
    ),
    events=(
        Scan(kind="scan", start=2),
        Onboard(kind="onboard", start=240, adapters=5),
        Restart(kind="restart", start=300, pod=3),
        Split(kind="split", start=562.25, top=20),
    ),
    truth=Truth(),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=MONTH.days)
    parser.add_argument("--pods", type=int, default=MONTH.pools[0].pods)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    traffic = MONTH.traffic
    rate = traffic.requests_per_second * asked.pods / MONTH.pools[0].pods
    scenario = MONTH.model_copy(
        update={
            "pools": (MONTH.pools[0].model_copy(update={"pods": asked.pods}),),
            "traffic": traffic.model_copy(update={"requests_per_second": rate}),
        }
    )
    give_memory_back()  # as the command does
    with tempfile.TemporaryDirectory() as scratch:
        began, processor = time.perf_counter(), time.process_time()
        laid = simulate(scenario, asked.days, 1, asked.keep or Path(scratch) / "data")
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        stored = sum(file.stat().st_size for file in (asked.keep or Path(scratch)).rglob("*.parquet"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(
        f"{asked.days:g} days, {asked.pods} pods, {laid.requests:,} requests, {laid.events:,} events, {laid.samples:,} samples, "
        f"{stored / laid.requests:.0f} bytes a request on disk"
    )
    print(f"{seconds:.1f} s wall, {processor:.1f} s processor time, peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
