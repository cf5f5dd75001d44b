"""What can't be told from the sources there are, why, and what would make it known."""

from collections.abc import Iterator, Sequence

import polars as pl

from lora_watch.diagnose.diagnosis import Gap
from lora_watch.diagnose.facts import PoolFacts
from lora_watch.model import Provenance

AGENT = "install the agent in the engine's image (`pip install --no-deps lora-watch`) and run `lora-watch-agent` beside it"
TIMED = "install the agent instead of reading the engine's own log lines: those say when, not how long"
PAGE = "read the engine's /metrics page, which tells how many"
REQUESTS = "run the agent, with the engine's statistics on (no --disable-log-stats), or read a request log"
ROUTER = "short of that, the counters of llm-d's router by adapter (scheduler_attempts_total) tell how many would miss"
DCGM = "name a dcgm-exporter under `gpus`"


def gaps(pools: Sequence[PoolFacts]) -> Iterator[Gap]:
    """One for each thing that some pods can't tell; a pod of which all is known has none."""
    for facts in pools:
        pods = facts.pods
        blind = _named(pods, pl.col("slots").is_null())
        if blind:
            yield Gap(
                "which adapters are in a slot",
                "no agent, page or log says how many slots there are",
                f"{PAGE}, or {AGENT}",
                blind,
            )
        weak = _named(pods, _provenance(pods, "residency_provenance", "swaps_provenance").is_in([Provenance.ACTIVITY]))
        inferred = _named(pods, _provenance(pods, "residency_provenance", "swaps_provenance").is_in([Provenance.INFERRED]))
        unseen = _named(pods, pl.col("slots").is_not_null() & pl.col("loads").is_null())
        if weak or unseen:
            names = tuple(sorted({*weak, *unseen}))
            asked = facts.timeline["requests"].sum() > 0 and not weak
            seen = "requests are seen there, loads are not" if asked else "only requests in flight are seen, a lower bound"
            yield Gap("residency: loads, evictions and stays", seen, AGENT, names)
        if inferred:
            yield Gap("when adapters really entered and left", "stays there are inferred from uses", AGENT, inferred)
        if facts.routed:
            yield Gap(
                "what a request waited for, which adapters are new, what more slots would remove",
                "only the router's counters tell of requests: how many for each adapter and pod, not when",
                REQUESTS,
                facts.names,
            )
        elif facts.timeline["requests"].sum() == 0:
            why = "no finished request is held" if facts.timeline.height else "neither a request nor a load is held of the window"
            yield Gap("who misses, what waits, what slots would change", why, f"{REQUESTS}; {ROUTER}", facts.names)
        untimed = _named(pods, (pl.col("loads") > 0) & pl.col("adapter_share").is_null())
        if untimed and facts.timeline["stall_seconds"].sum() == 0:
            yield Gap("what loads cost", "loads are seen there, their lengths are not", TIMED, untimed)
        dark = _named(pods, pl.col("busy_ratio").is_null())
        if dark:
            yield Gap("whether the GPU reads busy while it swaps", "nothing says how busy the GPU is there", DCGM, dark)
        if facts.learning and facts.timeline.height:
            yield Gap(
                "which adapters are new", "less than a day of requests is held: everything is new", "wait, or import history"
            )


def _named(pods: pl.DataFrame, which: pl.Expr) -> tuple[str, ...]:
    return tuple(pods.filter(which.fill_null(value=False))["pod"].sort())


def _provenance(pods: pl.DataFrame, *columns: str) -> pl.Expr:
    return pl.coalesce(*(pl.col(column) for column in columns if column in pods.columns), pl.lit(None, dtype=pl.String))
