"""
Derivations at scale, against the same derivations in DuckDB over the same files: ``python benchmarks/derive_scale.py``.

Lays 20 million events (30 days × 100 pods, true LRU order) and their requests as the store does, then measures in fresh
  processes, engines interleaved:
residency + swaps + misses of all pods and adapters; one day of one pod; the service's round each minute over a busy hour, first
  (reading the past) and third.
  Results are compared column
by column: integers exactly, floats to 1e-9. ``--events 2e6`` makes a small run, ``--keep DIR`` reuses the data.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from lora_watch.derive.misses import misses, request_lookups
from lora_watch.derive.residency import residency
from lora_watch.derive.shards import by_shards
from lora_watch.derive.stays import stays
from lora_watch.derive.swaps import swaps, swaps_per_minute
from lora_watch.explore.queries import Past, overview
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Batch, bucket_of
from lora_watch.store.tables import Store

PODS, ADAPTERS, SLOTS, DAYS, WARM = 100, 200, 8, 30, 64
BEGIN = 1_796_083_200 * SECOND  # 2026-12-01
WINDOW = Window(BEGIN, BEGIN + DAYS * DAY)
KINDS = ("start", "load_cpu", "evict_cpu", "evict", "load", "use", "release")
ROW_GROUP = 128 * 1024


def simulate(steps: int, span: int, seed: int = 7) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Compact events and requests: each pod serves ``steps`` Zipf(1.0) requests in ``span`` µs under LRU and restarts once."""
    random = np.random.default_rng(seed)
    weights = np.cumsum(1 / np.arange(1, ADAPTERS + 1))
    order = np.argsort(random.random((PODS, ADAPTERS)), axis=1)
    slots = np.full((PODS, SLOTS), -1)
    used = np.zeros((PODS, SLOTS), dtype=np.int64)
    seen = np.full((PODS, ADAPTERS), -WARM - 1)
    pods = np.arange(PODS)
    wanted, evicted, slot_of, cold = (np.empty((steps, PODS), dtype=np.int16) for _ in range(4))
    for step in range(steps):
        if step == steps // 2:
            slots[:], used[:], seen[:] = -1, 0, -WARM - 1
        adapter = order[pods, np.searchsorted(weights, random.random(PODS) * weights[-1])]
        here = slots == adapter[:, None]
        hit = here.any(axis=1)
        place = np.where(hit, here.argmax(axis=1), used.argmin(axis=1))
        wanted[step], slot_of[step] = adapter, place
        evicted[step] = np.where(hit, -2, slots[pods, place])
        cold[step] = (step - seen[pods, adapter] > WARM) & ~hit
        slots[pods, place], used[pods, place], seen[pods, adapter] = adapter, step + 1, step
    gaps = random.exponential(1.0, (steps, PODS)) * (1.5 + np.sin(np.arange(steps) / steps * DAYS * 2 * np.pi))[:, None]
    times = np.cumsum(gaps, axis=0)
    scheduled = (BEGIN + 10 * SECOND + times / times[-1] * (span - 40 * SECOND)).astype(np.int64) // 1000 * 1000
    scheduled = np.maximum.accumulate(scheduled + np.arange(steps)[:, None], axis=0)
    events, requests = [], []
    for pod in range(PODS):
        at, boot = scheduled[:, pod], (np.arange(steps) >= steps // 2).astype(np.int8)
        miss, gone, iced = evicted[:, pod] > -2, evicted[:, pod] >= 0, cold[:, pod] > 0
        took = np.where(iced, 180_000, 20_000) * random.uniform(0.5, 1.5, steps)
        took = np.where(miss, took, 0).astype(np.int64)
        ready = at + took
        first = ready + 30_000
        finished = first + random.integers(200_000, 4_000_000, steps)
        begins = np.array([BEGIN, at[steps // 2] - 1])
        empty = np.full(2, -1, dtype=np.int16)
        parts = [
            (begins, 0, np.array([0, 1], dtype=np.int8), empty, empty, np.zeros(2)),
            (ready[iced] - 2000, 1, boot[iced], wanted[iced, pod], empty[:1].repeat(iced.sum()), took[iced] * 0.9),
            (
                ready[iced & gone] - 1500,
                2,
                boot[iced & gone],
                evicted[iced & gone, pod],
                empty[:1].repeat((iced & gone).sum()),
                None,
            ),
            (ready[gone] - 1000, 3, boot[gone], evicted[gone, pod], slot_of[gone, pod], None),
            (ready[miss], 4, boot[miss], wanted[miss, pod], slot_of[miss, pod], took[miss] * 0.1),
            (ready, 5, boot, wanted[:, pod], slot_of[:, pod], np.where(iced, 2.0, miss)),
            (finished, 6, boot, wanted[:, pod], empty[:1].repeat(steps), None),
        ]
        frame = pl.concat(
            pl.DataFrame(
                {
                    "at": moment,
                    "kind": np.full(len(moment), kind, dtype=np.int8),
                    "boot": which,
                    "adapter": adapter,
                    "slot": slot,
                    "extra": np.zeros(len(moment)) if extra is None else extra.astype(float),
                }
            )
            for moment, kind, which, adapter, slot, extra in parts
        )
        frame = frame.sort("boot", "at", "kind").with_columns(
            pod=pl.lit(pod, dtype=pl.Int16), seq=(pl.int_range(pl.len()).over("boot") + 1).cast(pl.Int64)
        )
        events.append(frame.sort("at", "boot", "seq"))
        requests.append(
            pl.DataFrame(
                {
                    "at": finished,
                    "seq": np.arange(1, steps + 1),
                    "adapter": wanted[:, pod],
                    "queued": at - np.where(miss, 5000, 0),
                    "scheduled": at,
                    "first_token": first,
                }
            ).with_columns(pod=pl.lit(pod, dtype=pl.Int16))
        )
    return pl.concat(events), pl.concat(requests)


def stored(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Compact rows as rows of the stored table, in the order of a closed day."""
    where = pl.DataFrame(
        {
            "pod": range(PODS),
            "pod_name": [f"vllm-{pod}" for pod in range(PODS)],
            "bucket": [bucket_of("prod", f"vllm-{pod}") for pod in range(PODS)],
        },
        schema_overrides={"pod": pl.Int16, "bucket": pl.Int32},
    )
    names = pl.DataFrame(
        {"adapter": range(ADAPTERS), "adapter_name": [f"adapter-{n}" for n in range(ADAPTERS)]},
        schema_overrides={"adapter": pl.Int16},
    )
    frame = frame.join(where, on="pod", how="left").join(names, on="adapter", how="left")
    common = {
        "at": pl.col("at"),
        "date": pl.from_epoch("at", time_unit="us").dt.date(),
        "bucket": pl.col("bucket"),
        "cluster": pl.lit("prod"),
        "pool": pl.lit("pool"),
        "role": pl.lit(""),
        "pod": pl.col("pod_name"),
        "engine": pl.lit("0"),
        "seq": pl.col("seq"),
        "adapter": pl.col("adapter_name"),
        "provenance": pl.lit("observed"),
        "source": pl.lit("agent"),
    }
    if table == REQUESTS.name:
        special = {
            "stream": pl.format("agent/prod/{}/api", "pod_name"),
            **{name: pl.col(name) for name in ("queued", "scheduled", "first_token")},
            "arrived": pl.col("queued"),
            "finished": pl.col("at"),
            "generated_tokens": pl.lit(100),
        }
        schema = REQUESTS.schema
    else:
        kind = pl.col("kind").replace_strict(dict(enumerate(KINDS)), return_dtype=pl.String)
        load, evict = kind.str.starts_with("load"), kind.str.starts_with("evict")
        gpu = (kind == "load") | (kind == "evict")
        extra = pl.col("extra")
        special = {
            "stream": pl.format("agent/prod/{}/{}", "pod_name", "boot"),
            "kind": kind.str.replace("_cpu", ""),
            "tier": pl.when(gpu).then(pl.lit("gpu")).when(load | evict).then(pl.lit("cpu")),
            "from_tier": pl.when(kind == "load_cpu")
            .then(pl.lit("disk"))
            .when(kind == "load")
            .then(pl.when(extra > 9_000).then(pl.lit("disk")).otherwise(pl.lit("cpu"))),
            "adapter_id": pl.when(pl.col("adapter") >= 0).then(pl.col("adapter").cast(pl.Int64) + 1),
            "slot": pl.when(pl.col("slot") >= 0).then(pl.col("slot").cast(pl.Int64)),
            "lookup": pl.when(kind == "use").then(
                extra.cast(pl.Int8).replace_strict({0: "hot", 1: "warm", 2: "cold"}, default=None, return_dtype=pl.String)
            ),
            "seconds": pl.when(load).then(extra / 1e6),
            "reason": pl.when(load).then(pl.lit("demand")).when(evict).then(pl.lit("lru")),
            "in_step": pl.when(load | evict).then(pl.lit(value=True)),
            "ok": pl.when(load).then(pl.lit(value=True)),
            "slots": pl.when(kind == "start").then(SLOTS),
            "cpu_capacity": pl.when(kind == "start").then(WARM),
        }
        schema = ADAPTER_EVENTS.schema
    columns = {**common, **special}
    rows = frame.select(
        columns[name].cast(dtype).alias(name) if name in columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
    )
    return rows.sort("bucket", "pod", "at", "seq")


def lay(folder: Path, frame: pl.DataFrame, table: str) -> None:
    """One file per day, sorted, under hive folders."""
    frame = frame.with_columns(day=(pl.col("at") - BEGIN) // DAY)
    for (day,), part in frame.partition_by("day", as_dict=True).items():
        rows = stored(part, table)
        path = folder / table / f"date={rows['date'][0]}"
        path.mkdir(parents=True, exist_ok=True)
        rows.drop("date").write_parquet(
            path / f"day-{day}.parquet", compression="zstd", compression_level=3, row_group_size=ROW_GROUP
        )


def scan(folder: Path, table: str) -> pl.LazyFrame:
    return pl.scan_parquet(folder / table / "**" / "*.parquet", hive_partitioning=True)


WHO = ("bucket", "cluster", "pool", "role", "pod", "engine", "adapter", "stream", "seq", "at", "provenance")
EVENT_COLUMNS = (
    *WHO,
    *("kind", "tier", "from_tier", "adapter_id", "slot", "reason", "ok", "seconds", "slots", "cpu_capacity", "count", "detail"),
)
REQUEST_COLUMNS = (*WHO, "queued", "scheduled", "first_token", "finished")
POD_ADAPTER = ("cluster", "pod", "adapter")


def all_polars(folder: Path) -> dict[str, pl.DataFrame]:
    def derivation(events: pl.LazyFrame, requests: pl.LazyFrame) -> dict[str, pl.LazyFrame]:
        known = stays(events).collect(engine="streaming").lazy()
        return {
            "residency": residency(known, WINDOW, POD_ADAPTER),
            "residency_pod": residency(known, WINDOW),
            "swaps": swaps(events, WINDOW, POD_ADAPTER),
            "misses": misses(requests, request_lookups(requests, known), WINDOW, POD_ADAPTER),
        }

    events = scan(folder, ADAPTER_EVENTS.name).select(EVENT_COLUMNS)
    requests = scan(folder, REQUESTS.name).select(REQUEST_COLUMNS)
    return by_shards(derivation, (events, requests))


def all_duckdb(folder: Path) -> dict[str, pl.DataFrame]:
    base = duckdb.connect()
    base.execute("set threads = 2")
    base.execute(f"set temp_directory = '{folder}/spill'")
    base.execute(
        f"create view events as from read_parquet('{folder}/{ADAPTER_EVENTS.name}/**/*.parquet', hive_partitioning = true)"
    )
    base.execute(f"create view requests as from read_parquet('{folder}/{REQUESTS.name}/**/*.parquet', hive_partitioning = true)")
    base.execute(
        """
        create temp table ends as
        select stream, lead(started_at) over (partition by cluster, pod, engine order by started_at) as ended, started_at
        from (select stream, any_value(cluster) as cluster, any_value(pod) as pod, any_value(engine) as engine, min("at")
          as started_at
              from events where kind = 'start' group by stream);
        create temp table chain as
        select cluster, pod, engine, adapter, stream, seq, "at", kind, slot, from_tier, provenance,
               lead(kind) over w next_kind, lead("at") over w next_at, lag(kind) over w previous_kind
        from (select distinct on (stream, seq) * from events where tier = 'gpu' and kind in ('load', 'evict') and ok is
          distinct from false
              and reason is distinct from 'warmup')
        window w as (partition by stream, coalesce(adapter_id::varchar, adapter) order by seq);
        create temp table stays as
        select c.cluster, c.pod, c.engine, c.adapter, "at" as loaded_at, from_tier, c.provenance,
               coalesce(next_at, ended) as left_at,
               case when next_kind = 'evict' then 'evict' when next_kind = 'load' then 'reload' when ended is not null then
                 'restart' end left_by
        from chain c left join ends using (stream) where kind = 'load';
        """
    )

    def ask(sql: str) -> pl.DataFrame:
        base.execute(f"copy ({sql}) to '{folder}/answer.parquet' (format parquet)")
        return pl.read_parquet(folder / "answer.parquet", memory_map=False)

    results = {}
    for name, keys in (("residency", "cluster, pod, adapter"), ("residency_pod", "cluster, pod")):
        results[name] = ask(
            f"""
            with inside as (
              select *, coalesce(left_by = 'evict', false) and left_at < {WINDOW.end} as event,
                     (least(coalesce(left_at, {WINDOW.end}), {WINDOW.end}) - greatest(loaded_at, {WINDOW.start})) / 1e6 as
                       weight,
                     greatest({WINDOW.start} - loaded_at, 0) - 1 as entry, least(coalesce(left_at, {WINDOW.end}),
                       {WINDOW.end}) - loaded_at as age
              from stays where loaded_at < {WINDOW.end} and coalesce(left_at, {WINDOW.end}) >= {WINDOW.start}),
            steps as (
              select {keys}, entry as age, 1 as enters, 0 as leaves, 0 as events, 0.0::double as done, 0.0::double as open
                from inside
              union all
              select {keys}, age, 0, 1, event::int, case when event then weight else 0 end, case when event then 0 else
                weight end from inside),
            summed as (
              select {keys}, age, sum(enters) enters, sum(leaves) leaves, sum(events) events, sum(done) done, sum(open) open
              from steps group by all),
            risk as (
              select *, sum(enters) over w - enters - sum(leaves) over w + leaves as at_risk
              from summed window w as (partition by {keys} order by age)),
            curve as (
              select *, case when max((events = at_risk and events > 0)::int) over w = 1 then 0.0
                    else exp(sum(case when events > 0 and events < at_risk then ln(1 - events / at_risk) else 0 end) over
                      w) end as survival
              from risk where leaves > 0 window w as (partition by {keys} order by age)),
            weighted as (
              select *, 1 - (sum(done) over w + sum(open) over w - sum(case when survival > 0 then 0 else open end) over w
                    - survival * sum(case when survival > 0 then open / survival else 0 end) over w) / sum(done + open)
                      over (partition by {keys})
                    as longer
              from curve window w as (partition by {keys} order by age)),
            quantiles as (
              select {keys}, min(age) filter (survival <= 0.5 + 1e-9) / 1e6 p50_seconds, min(age) filter (survival <= 0.05
                + 1e-9) / 1e6 p95_seconds,
                     min(age) filter (longer <= 0.5 + 1e-9) / 1e6 slot_time_p50_seconds, min(age) filter (longer <= 0.05 +
                       1e-9) / 1e6 slot_time_p95_seconds,
                     case when bool_or(age >= 30e6) or min(longer) filter (age < 30e6) <= 1e-9
                       then 1 - coalesce(min(longer) filter (age < 30e6), 1) end slot_time_under_30s_ratio,
                     case when bool_or(age >= 300e6) or min(longer) filter (age < 300e6) <= 1e-9
                       then 1 - coalesce(min(longer) filter (age < 300e6), 1) end slot_time_under_5min_ratio,
                     max(age) / 1e6 oldest
              from weighted group by all),
            counts as (
              select {keys}, count(*) filter (loaded_at >= {WINDOW.start}) loads, count(*) filter (event) completed,
                     count(*) filter (not event) censored, count(*) filter (loaded_at < {WINDOW.start}) entered_before,
                       sum(weight) occupied_slot_seconds
              from inside group by all)
            select {keys}, p50_seconds, p95_seconds, case when p50_seconds is null then oldest end p50_lower_bound_seconds,
                   case when p95_seconds is null then oldest end p95_lower_bound_seconds, slot_time_p50_seconds,
                     slot_time_p95_seconds,
                   slot_time_under_30s_ratio, slot_time_under_5min_ratio, case when loads > 0 then occupied_slot_seconds /
                     loads end mean_seconds,
                   loads, completed, censored, entered_before, occupied_slot_seconds
            from counts join quantiles using ({keys})
            """
        )
    results["swaps"] = ask(
        f"""
        with rows as (
          select *, lag(kind) over w as before, "at" - lag("at") over w as since
          from (select distinct on (stream, seq) * from events where tier = 'gpu' and kind in ('load', 'evict') and reason
            is distinct from 'warmup')
          window w as (partition by stream order by seq))
        select cluster, pod, adapter, count(*) filter (kind = 'evict' and reason = 'lru') swaps,
               count(*) filter (kind = 'load' and ok is distinct from false) loads,
               count(*) filter (kind = 'load' and from_tier = 'cpu') warm, count(*) filter (kind = 'load' and from_tier =
                 'disk') cold,
               count(*) filter (kind = 'load' and not (coalesce(before, '') = 'evict' and since <= 60000000)) fills
        from rows where "at" >= {WINDOW.start} and "at" < {WINDOW.end} group by all
        """
    )
    results["misses"] = ask(
        f"""
        with wanted as (select distinct on (stream, seq) * from requests where adapter is not null),
        hot as (
          select w.*, s.left_at, s.left_by, s.loaded_at is not null and w.scheduled < coalesce(s.left_at, 1::bigint << 62)
            as resident
          from wanted w asof left join stays s
          on w.cluster = s.cluster and w.pod = s.pod and w.engine = s.engine and w.adapter = s.adapter and s.loaded_at <=
            w.scheduled),
        found as (
          select h.*, s.loaded_at as next_at, s.from_tier
          from hot h asof left join stays s
          on h.cluster = s.cluster and h.pod = s.pod and h.engine = s.engine and h.adapter = s.adapter and s.loaded_at >=
            h.scheduled),
        judged as (
          select *, not resident and next_at <= first_token + 50000 as waited from found)
        select cluster, pod, adapter, count(*) requests, count(*) filter (resident) hot, count(*) filter (waited and
          from_tier = 'cpu') warm,
               count(*) filter (waited and from_tier = 'disk') cold, count(*) filter (not resident and waited is not true)
                 unknown,
               count(*) filter (resident and left_by = 'evict' and left_at - scheduled <= 30000000) ghost_hits,
               case when count(*) filter (resident or waited) > 0
                 then count(*) filter (waited) / count(*) filter (resident or waited) end miss_ratio
        from judged where scheduled >= {WINDOW.start} and scheduled < {WINDOW.end} group by all
        """
    )
    return results


def one_day(folder: Path) -> dict[str, pl.DataFrame]:
    """One pod on one day: stays, residency by adapter, swaps by minute."""
    day = Window(BEGIN + 17 * DAY, BEGIN + 18 * DAY)
    here = (
        (pl.col("date") == pl.lit(day.start).cast(pl.Datetime("us")).dt.date())
        & (pl.col("bucket") == bucket_of("prod", "vllm-42"))
        & (pl.col("pod") == "vllm-42")
    )
    events = scan(folder, ADAPTER_EVENTS.name).filter(here).collect(engine="streaming").lazy()
    known = stays(events).collect(engine="streaming").lazy()
    frames = [residency(known, day, POD_ADAPTER), swaps_per_minute(events, day)]
    return dict(zip(("residency", "swaps"), pl.collect_all(frames, engine="streaming"), strict=True))


def lay_store(folder: Path, events: pl.DataFrame, requests: pl.DataFrame) -> None:
    """A store of its own, as a service fills it: one commit a table."""
    store = Store(folder)
    for table, frame in ((ADAPTER_EVENTS, events), (REQUESTS, requests)):
        rows = stored(frame, table.name).sort("at", "stream", "seq")
        positions = dict(rows.group_by("stream").agg(pl.col("seq").max()).rows())
        store.ledger(table).append(Batch(rows, positions), at=BEGIN + HOUR)


def rounds(store: Path) -> list[dict[str, float]]:
    """What the service does each minute: ``overview`` of the last hour, three times, each a minute after the one before."""
    kept, past, took = Store(store), Past(Store(store), HOUR), []
    for minute in range(3):
        window = Window(BEGIN + minute * MINUTE, BEGIN + HOUR + minute * MINUTE)
        wall, cpu = time.perf_counter(), time.process_time()
        overview(kept, window, past)
        took.append({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu})
    return took


JOBS = {"all_polars": all_polars, "all_duckdb": all_duckdb, "one_day": one_day}
HOURS = {"round": 1000, "busy_round": 2000}
"""Requests a pod serves in the hour before a round."""


def measured(job: str, folder: Path) -> dict[str, float]:
    """Run one job in a fresh process and say what it took."""
    command = [sys.executable, __file__, "--job", job, "--keep", str(folder)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def run_job(job: str, folder: Path) -> None:
    """In the fresh process: one cold run, measured; one more, to tell warm caches from first use."""
    if job in HOURS:
        times = [(took["wall"], took["cpu"]) for took in rounds(folder / job)]
    else:
        times = []
        for _ in range(1 if job.startswith("all") else 3):
            wall, cpu = time.perf_counter(), time.process_time()
            results = JOBS[job](folder)
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
        for name, frame in results.items():
            frame.write_parquet(folder / f"result-{job}-{name}.parquet")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) / 1024**2  # ru_maxrss would carry the parent's peak over exec
    print(
        json.dumps(
            {
                "wall": times[0][0],
                "cpu": times[0][1],
                "wall_again": min(t[0] for t in times),
                "cpu_again": min(t[1] for t in times),
                "rss_gib": peak,
            }
        )
    )


def differences(folder: Path) -> list[str]:
    """Columns on which the two engines disagree: integers exactly, floats to 1e-9 relative."""
    found = []
    for name in ("residency", "residency_pod", "swaps", "misses"):
        ours, theirs = (pl.read_parquet(folder / f"result-{job}-{name}.parquet") for job in ("all_polars", "all_duckdb"))
        keys = [key for key in POD_ADAPTER if key in theirs.columns]
        if len(ours) != len(theirs):
            found.append(f"{name}: {len(ours)} rows, {len(theirs)} in DuckDB")
        both = ours.join(theirs, on=keys, suffix="_theirs")
        for column in theirs.columns:
            if column in keys:
                continue
            mine, other = both[column], both[f"{column}_theirs"]
            if mine.dtype.is_float():
                same = ((mine - other).abs() <= 1e-9 * pl.select(pl.max_horizontal(mine.abs(), other.abs(), 1.0)).to_series()) | (
                    mine.is_null() & other.is_null()
                )
                same = same.fill_null(value=False)
            else:
                same = mine.eq_missing(other.cast(mine.dtype))
            if not same.all():
                found.append(f"{name}.{column}: {(~same).sum()} of {len(both)} differ")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("--events", type=float, default=20e6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--job", choices=(*JOBS, *HOURS))
    arguments = parser.parse_args()
    if arguments.job:
        run_job(arguments.job, arguments.keep)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        if not (folder / ADAPTER_EVENTS.name).exists():
            began = time.perf_counter()
            events, requests = simulate(int(arguments.events / PODS / 4.35), DAYS * DAY)
            lay(folder, events, ADAPTER_EVENTS.name)
            lay(folder, requests, REQUESTS.name)
            print(f"laid {len(events):,} events, {len(requests):,} requests in {time.perf_counter() - began:.0f} s")
        for job, steps in HOURS.items():
            if not (folder / job).exists():
                events, requests = simulate(steps * 62 // 60, HOUR + 2 * MINUTE, seed=8)
                lay_store(folder / job, events, requests)
                print(f"{job}: {len(events):,} events, {len(requests):,} requests in 62 minutes")
        rows: dict[str, list[dict[str, float]]] = {}
        for _ in range(arguments.rounds):
            for job in (*JOBS, *HOURS):
                rows.setdefault(job, []).append(measured(job, folder))
        print(f"load average {os.getloadavg()[0]:.1f}; best of {arguments.rounds}, fresh processes, page cache warm")
        print(f"{'job':12} {'wall s':>8} {'CPU s':>8} {'again wall':>11} {'again CPU':>10} {'peak GiB':>9}")
        best = {}
        for job, runs in rows.items():
            best[job] = {key: min(run[key] for run in runs) for key in runs[0]}
            figures = zip(best[job].values(), ("8.2f", "8.2f", "11.3f", "10.3f", "9.2f"), strict=True)
            print(f"{job:12} " + " ".join(format(value, form) for value, form in figures))
        ours, theirs = best["all_polars"], best["all_duckdb"]
        ratios = {key: round(theirs[key] / ours[key], 2) for key in ("wall", "cpu", "rss_gib")}
        print(f"DuckDB ÷ ours: {ratios}")
        unequal = differences(folder)
        print("results equal" if not unequal else "DIFFERENT: " + "; ".join(unequal))
        sys.exit(bool(unequal))


if __name__ == "__main__":
    main()
