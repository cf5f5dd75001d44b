"""Boards of 20 pools, 200 pods and 500 adapters: no panel draws thousands of series, on a real Prometheus."""

import re
from collections.abc import Iterator, Mapping

import pytest
from boards.committed import COMMITTED, expressions, filled_in, panels
from boards.test_boards import KNOWN, read
from rules.laid import Line, Real, prometheus

from lora_watch import names

pytestmark = pytest.mark.slow
POOLS, PODS, ADAPTERS, SLOTS, CAP = 20, 200, 500, 32, 50
"""``CAP``: adapters that the exporter names on each pod."""
MOST_SERIES = 100
"""A panel of lines is full with fewer."""
EACH = {
    names.RESIDENCY_SECONDS: [{"quantile": "0.5"}, {"quantile": "0.95"}],
    names.ADAPTER_STAY_SECONDS: [{"quantile": "0.5"}, {"quantile": "0.95"}],
    names.POOL_WORKING_SET_RECORD: [{"seconds": str(5 * 2**k)} for k in range(11)],
    names.AGENT_LOADS: [{"tier": "gpu", "from_tier": "cpu"}, {"tier": "gpu", "from_tier": "disk"}],
    names.AGENT_EVICTIONS: [{"tier": "gpu", "reason": "lru"}],
    names.WAITING_BY_REASON: [{"reason": "capacity"}, {"reason": "deferred"}],
    names.OPEN_FINDING: [{"finding": f"f{n}", "kind": "thrash", "severity": "warn"} for n in range(5)],
    names.FINDING_INFO: [{"finding": f"f{n}", "kind": "thrash", "summary": "s", "provenance": "observed"} for n in range(5)],
    names.ALERTS: [{"alertname": "LoraSaturation", "alertstate": "firing", "severity": "page", "lora_watch": "true"}],
}
"""What a series has beside who it is about."""


def who(metric: str) -> Iterator[dict[str, str]]:
    """The labels of everybody that a metric is about."""
    pods = ({"cluster": f"c{n % 2}", "pool": f"p{n % POOLS}", "role": "", "pod": f"pod-{n}"} for n in range(PODS))
    if metric.startswith(("pool:", "pool_adapter:")) or metric in (names.OPEN_FINDING, names.FINDING_INFO, names.ALERTS):
        pools = [{"cluster": f"c{n % 2}", "pool": f"p{n}", "role": ""} for n in range(POOLS)]
        named = [{"adapter": f"adapter-{n}"} for n in range(ADAPTERS)] if metric.startswith("pool_adapter:") else [{}]
        yield from ({**pool, **one} for pool in pools for one in named)
    elif metric == names.ADAPTER_LOADED:
        yield from (
            {**pod, "adapter_name": f"adapter-{(n * 7 + slot * 3) % ADAPTERS}", "level": "gpu"}
            for n, pod in enumerate(pods)
            for slot in range(SLOTS)
        )
    elif metric in (names.ADAPTER_RESIDENT, names.ADAPTER_STAY_SECONDS, names.ADAPTER_LOADS, names.ADAPTER_REQUESTS):
        yield from ({**pod, "adapter": f"adapter-{n}", "provenance": "observed"} for pod in pods for n in range(CAP))
    elif metric.startswith(("lora_watch_source", "lora_watch_job")):
        yield from ({"source": f"s{n}", "job": f"j{n}"} for n in range(10))
    elif metric.startswith("watch:"):
        yield {}
    else:
        yield from pods


def laid() -> Iterator[Line]:
    """Each series that a board reads, three times."""
    metrics = {selector.name for board in COMMITTED.values() for _, expr in expressions(board) for selector in read(expr)}
    assert metrics <= KNOWN
    for metric in sorted(metrics):
        number = 0
        for labels in who(metric):
            for further in EACH.get(metric, [{}]):
                number += 1
                bounds: list[Mapping[str, str]] = [{"le": "0.1"}, {"le": "+Inf"}] if metric.endswith("_bucket") else [{}]
                for bound in bounds:
                    told = ",".join(f'{name}="{value}"' for name, value in {**labels, **further, **bound}.items() if value)
                    for ago in (60.0, 30.0, 0.0):
                        yield f"{metric}{{{told}}} {number % 97 + 1}", ago


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    with prometheus(tmp_path_factory.mktemp("large") / "at", tuple(laid()), "groups: []\n") as real:
        yield real


@pytest.mark.parametrize("uid", COMMITTED)
def test_no_panel_of_a_large_fleet_draws_too_much(uid: str, large: Real):
    for panel in panels(COMMITTED[uid]):
        for target in panel["targets"]:
            expr = filled_in(target["expr"], pod="pod-7", adapter="adapter-7")
            found = large.query(expr)
            assert 0 < len(found) <= MOST_SERIES, f"{panel['title']}: {len(found)} series of {expr}"


def test_a_timeline_of_a_large_fleet_is_as_short(large: Real):
    (panel,) = [one for one in panels(COMMITTED["lora-watch-adapter"]) if one["type"] == "state-timeline"]
    found = large.query(filled_in(panel["targets"][0]["expr"], adapter=".*"))
    assert len(found) == int(re.search(r"topk\((\d+)", panel["targets"][0]["expr"])[1])
