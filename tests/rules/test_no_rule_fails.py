"""
Rules over a fleet as fleets are: everything twice, names that are not unique, labels that only some bear.

A rule that joins what is not unique fails as a whole, and every alert behind it is silent for everybody.
"""

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml

from lora_watch import names
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install, Profile

pytestmark = pytest.mark.slow
PODS = (
    ("eu", "chat", "", "vllm-0"),
    ("eu", "chat", "", "vllm-1"),
    ("eu", "code", "", "vllm-0"),  # another pool's pod of the same name
    ("eu", "chat", "decode", "vllm-1"),  # its role was added while it ran
    ("us", "chat", "", "vllm-0"),
    ("", "", "", "lonely"),  # nothing but its name
)
GROWS, STAYS = "0+60x14", "4+0x14"
ENGINE_GAUGES = (
    names.MAX_GPU_ADAPTERS,
    names.GPU_ADAPTERS,
    names.REQUESTS_RUNNING,
    names.KV_CACHE_USAGE,
    names.KV_CACHE_USAGE_OLD,
)
POOL_GAUGES = (
    names.POOL_ACTIVE_ADAPTERS,
    names.PRESSURE,
    names.PREDICTED_MISS_RATIO,
    names.NEWMASS,
    names.RHO_PEAK,
    names.RHO_NOW,
    names.PEAK_REQUESTS,
    names.IN_FLIGHT_PER_SLOT,
    names.POOL_PHANTOM_SLOTS,
)


def one(name: str, **labels: str) -> str:
    told = ",".join(f'{key}="{text}"' for key, text in labels.items() if text)
    return f"{name}{{{told}}}"


def whose(pod: tuple[str, str, str, str]) -> dict[str, str]:
    return dict(zip(("cluster", "pool", "role", "pod"), pod, strict=True))


def engines() -> Iterator[tuple[str, str]]:
    """Two engines a pod under two names of their base model, each page scraped by two jobs."""
    for pod, job, engine, base in product(PODS, "ab", "01", ("base", "other-base")):
        where = {**whose(pod), "job": job, "engine": engine, "model_name": base}
        yield from ((one(name, **where), STAYS) for name in ENGINE_GAUGES)
        yield from ((one(names.WAITING_BY_REASON, **where, reason=why), STAYS) for why in ("capacity", "deferred"))
        yield from ((one(names.REQUEST_SUCCESS, **where, finished_reason=why), GROWS) for why in ("stop", "length"))
        for part in ("sum", "count"):
            yield from ((one(f"{name}_{part}", **where), GROWS) for name in names.HISTOGRAMS[-2:])
            yield from ((one(f"{names.LOAD_SECONDS}_{part}", **where, transition=how), GROWS) for how in ("load", "activate"))
        for tier, name in product(("gpu", "cpu"), (names.CACHE_LOOKUPS, names.CACHE_HITS)):
            yield one(name, **where, tier=tier), GROWS
        yield from ((one(name, **where, tier="gpu"), STAYS) for name in (names.CACHE_ADAPTERS, names.CACHE_USAGE))


def agents() -> Iterator[tuple[str, str]]:
    for pod, instance in product(PODS, "ab"):
        where = {**whose(pod), "instance": instance}
        yield one(names.AGENT_STEPS, **where), GROWS
        yield one(names.AGENT_REQUESTS, **where, finish_reason="stop"), GROWS
        yield one(names.AGENT_LOST, **where, reason="cap"), GROWS
        yield one(names.AGENT_EVICTIONS, **where, tier="gpu", reason="lru"), GROWS
        for source in ("cpu", "disk"):
            yield one(names.AGENT_LOADS, **where, tier="gpu", from_tier=source, reason="demand"), GROWS
        for clock, name in product(("cuda", "host"), (names.AGENT_ADAPTER_SECONDS, names.AGENT_EXECUTE_SECONDS)):
            yield one(name, **where, clock=clock), GROWS
        for tier, part in product(("gpu", "cpu"), ("sum", "count")):
            yield one(f"{names.AGENT_LOAD_SECONDS}_{part}", **where, tier=tier), GROWS


def others() -> Iterator[tuple[str, str]]:
    """Two GPU exporters, that name pods in either way; two routers a cluster, under every name of their counter."""
    for (cluster, _, _, pod), gpu, exporter in product(PODS, "01", "xy"):
        where = {"cluster": cluster, "gpu": gpu, "instance": "node"}
        if pod != "vllm-0" or cluster == "us":
            yield one(names.GPU_UTIL, **where, exported_pod=pod, pod=f"dcgm-{exporter}"), STAYS
            yield one(names.GPU_ENGINE_ACTIVE, **{**where, "instance": exporter}, pod=pod), STAYS
    counters = product(names.EPP_ATTEMPTS, ("endpoint_name", "pod_name"))
    for (name, label), cluster, instance in product(counters, ("eu", "us", ""), "ab"):
        for pod, adapter, status in product(
            ("vllm-0", "vllm-1", "lonely", "gone"), ("a", "base", "a\\nb"), ("success", "failure")
        ):
            labels = {"cluster": cluster, "instance": instance, label: pod, "target_model_name": adapter, "status": status}
            yield one(name, **labels), GROWS


def services() -> Iterator[tuple[str, str]]:
    """Two services that watch the same pods, whose figures change their provenance."""
    recent = [text for name, text in vars(names).items() if name.startswith("RECENT_")]
    for pod, instance, provenance in product(PODS, "ab", ("observed", "inferred")):
        where = {**whose(pod), "instance": instance, "provenance": provenance}
        yield from ((one(name, **where), STAYS) for name in (*recent, names.SLOTS))
        yield from ((one(name, **{**where, "pod": ""}), STAYS) for name in POOL_GAUGES)
    for instance, job, outcome in product("ab", ({"job": "diagnose"}, {"exported_job": "diagnose"}), ("succeeded", "failed")):
        yield one(names.JOB_RUNS, instance=instance, outcome=outcome, **job), GROWS
    for instance, source in product("ab", "st"):
        yield one(names.SOURCE_LAG, instance=instance, source=source), STAYS


@pytest.mark.parametrize("install", Install)
def test_no_rule_fails_on_a_fleet_where_everything_is_twice(tmp_path: Path, install: Install):
    series = dict((*engines(), *agents(), *others(), *(services() if install is Install.FULL else ())))
    for profile in Profile:
        (tmp_path / f"{profile}.yaml").write_text(rules(install, profile), encoding="utf-8")
    told = 'count(count by (pool) ({__name__=~"pool:lora_(swaps_per_pod|gpu_busy|predicted_misses|rho_peak):.+"}))'
    test = {
        "interval": "1m",
        "input_series": [{"series": text, "values": values} for text, values in series.items()],
        "promql_expr_test": [{"expr": told, "eval_time": "12m", "exp_samples": [{"labels": "{}", "value": 3}]}],
    }
    file = tmp_path / "test.yaml"
    document = {"rule_files": [f"{profile}.yaml" for profile in Profile], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
