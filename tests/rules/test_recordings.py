"""Every recorded series on a real Prometheus that was fed a simulated cluster, in both installs."""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from rules.laid import KV_CACHE, NEWMASS, Laid, Real, lay, prometheus, wait_for

from lora_watch import names
from lora_watch.rules.catalogue import groups
from lora_watch.rules.history import History, replayed
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install

pytestmark = pytest.mark.slow
ONLY_IN_TROUBLE = {names.WATCH_SILENT_RECORD}
"""Series that are there only while something is amiss."""
OF_THE_ROUTER = {
    names.ADAPTER_REQUESTS_RECORD,
    names.ADAPTER_SEEN_RECORD,
    names.POOL_WORKING_SET_LOADS_RECORD,
    names.POD_IN_FLIGHT_RECORD,
}
OF_ENGINES = {names.POD_SERVICE_RECORD, names.POD_QUEUED_REQUESTS_RECORD, names.POOL_CAPACITY_RECORD}


@pytest.fixture(scope="module")
def past(laid: Laid) -> History:
    """The same from the tables."""
    return replayed(laid.store, laid.window)


def recorded(install: Install) -> list[str]:
    """Names of what an install records, in order."""
    found = [one.name for group in groups(install) for one in group.recordings if one.expression(install) is not None]
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Laid:
    return lay(tmp_path_factory.mktemp("laid"))


@pytest.fixture(scope="module")
def raw(laid: Laid, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """The raw install: agents, engines, the router and the GPU exporter."""
    with prometheus(tmp_path_factory.mktemp("raw") / "at", laid.raw, rules(Install.RAW)) as real:
        missing = set(recorded(Install.RAW)) - ONLY_IN_TROUBLE
        wait_for(lambda: all(real.query(name) for name in missing), 60)
        yield real


@pytest.fixture(scope="module")
def full(laid: Laid, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """The full install where nothing but the exporter is scraped."""
    with prometheus(tmp_path_factory.mktemp("full") / "at", laid.full, rules(Install.FULL)) as real:
        missing = set(recorded(Install.FULL)) - ONLY_IN_TROUBLE - OF_THE_ROUTER - OF_ENGINES
        wait_for(lambda: all(real.query(name) for name in missing), 60)
        yield real


@pytest.mark.parametrize("name", [name for name in recorded(Install.RAW) if name not in ONLY_IN_TROUBLE])
def test_the_raw_install_records_it(raw: Real, name: str):
    assert raw.query(name) != []


@pytest.mark.parametrize(
    "name", [name for name in recorded(Install.FULL) if name not in ONLY_IN_TROUBLE | OF_THE_ROUTER | OF_ENGINES]
)
def test_the_full_install_records_it_from_the_exporter_alone(full: Real, name: str):
    assert full.query(name) != []


@pytest.mark.parametrize("name", sorted(OF_THE_ROUTER | OF_ENGINES))
def test_what_only_the_router_and_the_engines_tell_is_absent_without_them(full: Real, name: str):
    assert full.query(name) == []


def test_no_rule_fails(raw: Real, full: Real):
    assert raw.problems() == full.problems() == []


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        (names.POOL_SLOTS_RECORD, 0.0),
        (names.POOL_PODS_RECORD, 0.0),
        (names.POOL_ACTIVE_RECORD, 0.0),
        (names.POOL_ACTIVE_PER_SLOT_RECORD, 0.0),
        (names.POOL_SWAPS_RECORD, 0.15),
        (names.POOL_LOADS_RECORD, 0.15),
        (names.POOL_LOADING_RECORD, 0.15),
        (names.POOL_RESIDENCY_RECORD, 0.15),
        (names.POOL_GPU_BUSY_RECORD, 0.1),
        (names.POOL_INFERENCE_RECORD, 0.15),
        (names.POOL_PRESSURE_RECORD, 0.1),
        (names.POOL_KV_CACHE_RECORD, 0.0),
    ],
)
def test_both_installs_say_about_the_same(raw: Real, full: Real, name: str, tolerance: float):
    assert raw.value(name) == pytest.approx(full.value(name), rel=tolerance)


def test_series_are_no_more_than_the_manual_states(raw: Real, full: Real):
    """The figures of docs/rules.md, by the level that a name begins with."""
    text = " ".join((Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8").split())
    each_pod, each_pool = map(
        int, re.findall(r"Series that are recorded: (\d+) for each pod, (\d+) for each pool, two for", text)[0]
    )
    pods, pools = raw.value(f"count({names.POD_SLOTS_RECORD})"), raw.value(f"count({names.POOL_SLOTS_RECORD})")
    adapters = raw.value(f"count({names.ADAPTER_SEEN_RECORD})")
    most = {"pod": each_pod * pods, "pool|pool_phase": each_pool * pools, "pool_adapter": 2 * adapters, "watch": 3}
    for real in (raw, full):
        for level, bound in most.items():
            assert sum(value for _, value in real.query(f'count({{__name__=~"({level}):lora_.+"}})')) <= bound, level


def test_the_base_model_is_no_adapter(raw: Real):
    assert "simulated" not in {labels["adapter"] for labels, _ in raw.query(names.ADAPTER_REQUESTS_RECORD)}


def test_a_count_under_two_names_counts_once(raw: Real):
    adapters = raw.value(f"sum({names.ADAPTER_REQUESTS_RECORD})")
    assert adapters == pytest.approx(0.9 * raw.value(names.POOL_REQUESTS_RECORD), rel=0.25)


def test_new_adapters_are_those_that_nobody_had_asked_for_before(raw: Real):
    fresh = raw.value(f'sum({names.ADAPTER_REQUESTS_RECORD}{{adapter=~".*-experiment"}})')
    whole = raw.value(f"sum({names.ADAPTER_REQUESTS_RECORD})")
    assert raw.value(names.POOL_NEWMASS_RECORD) == pytest.approx(fresh / whole, rel=0.05)


def test_predicted_misses_are_those_of_che_up_to_the_grid(raw: Real):
    import numpy as np

    from lora_watch.derive.che import characteristic_seconds, loads

    rate = np.array([value for _, value in raw.query(names.ADAPTER_REQUESTS_RECORD)])
    slots = raw.value(names.POOL_SLOTS_RECORD)
    exact = loads(rate, characteristic_seconds(rate, slots)) / rate.sum()
    assert raw.value(names.POOL_PREDICTED_RECORD) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        (names.POOL_SLOTS_RECORD, 0.0),
        (names.POOL_PODS_RECORD, 0.0),
        (names.POOL_REQUESTS_RECORD, 0.1),
        (names.POOL_SWAPS_RECORD, 0.1),
        (names.POOL_LOADS_RECORD, 0.1),
        (names.POOL_MISSES_RECORD, 0.1),
        (names.POOL_LOADING_RECORD, 0.1),
        (names.POOL_INFERENCE_RECORD, 0.1),
        (names.POOL_RESIDENCY_RECORD, 0.1),
        (names.POOL_ACTIVE_RECORD, 0.0),
        (names.POOL_PRESSURE_RECORD, 0.05),
        (names.POOL_PREDICTED_RECORD, 0.1),
        (names.POOL_IN_FLIGHT_RECORD, 0.25),  # the tables lack the requests that had not ended yet
        (names.POOL_SWAP_QUEUE_RECORD, 0.25),
        (names.POOL_SATURATION_RECORD, 0.15),
        (names.POOL_RHO_PEAK_RECORD, 0.15),
    ],
)
def test_history_replayed_says_the_same_as_prometheus(raw: Real, past: History, name: str, tolerance: float):
    (line,) = past.lines[name].values()
    assert raw.value(f"max by (pool) ({name})") == pytest.approx(line[-1], rel=tolerance)


def test_the_exporter_says_what_the_look_measured(full: Real, laid: Laid):
    told = laid.signals.pools.row(0, named=True)
    assert full.value(names.POOL_PREDICTED_RECORD) == pytest.approx(told["predicted_miss_ratio"])
    assert full.value(names.POOL_RHO_PEAK_RECORD) == pytest.approx(told["rho_peak"])
    assert full.value(names.POOL_NEWMASS_RECORD) == NEWMASS
    assert full.value(f"max({names.POD_KV_CACHE_RECORD})") == KV_CACHE
    each = laid.signals.pods.select(pl.col("swaps_per_second").mean()).item()
    assert full.value(names.POOL_SWAPS_RECORD) == pytest.approx(each)
