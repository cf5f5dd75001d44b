"""From stored rows to a diagnosis: what is read, what is remembered between looks, and what people say beside the data."""

from pathlib import Path

import polars as pl
import pytest
from builders import rows, snapshot
from lru_pod import Pod
from stored import stored

from lora_watch import names
from lora_watch.config import DiagnoseSettings, Settings
from lora_watch.derive.expected import Expected
from lora_watch.diagnose.diagnosis import State
from lora_watch.diagnose.finding import Severity
from lora_watch.errors import ConfigError, LoraWatchError
from lora_watch.explore.cards import as_markdown
from lora_watch.explore.situation import Finder, Memory, diagnosis, given, situation
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch
from lora_watch.sources.router_setup import RouterSetup
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
WINDOW = Window(END - HOUR, END)
BLIND = RouterSetup("epp.yaml", {"default": {"queue-scorer": 1.0}})


def busy(pod: Pod, name: str = "lora-") -> Pod:
    """A request a second for six adapters in turn, for ten minutes up to the end."""
    for number in range(600):
        pod.ask(END - (600 - number) * SECOND, f"{name}{number % 6}", hold=0.2)
    return pod


def with_past(pod: Pod) -> Pod:
    """Two adapters, all day long: what is usual."""
    for number in range(26 * 60):
        pod.ask(END - 26 * HOUR - 15 * MINUTE + number * MINUTE, f"old-{number % 2}", hold=0.2)
    return pod


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A pod with two adapters for a day, and six more in the last ten minutes; nobody writes here."""
    pod = with_past(Pod(slots=4, load=0.05).start(END - 27 * HOUR))
    pod.events.append(snapshot("old-0:0@ old-1:1@", at=END - 5 * HOUR, slots=4, cpu_capacity=64))
    for number in range(600):
        pod.ask(END - (600 - number) * SECOND, f"t{number % 6}-experiment", hold=0.2)
    return stored(tmp_path_factory.mktemp("grown"), events=pod.event_rows(), requests=pod.request_rows())


def look(store: Store, **said):
    return diagnosis(Memory(store, 2 * DAY), WINDOW, **said)


def kinds(told) -> dict:
    return {one.kind: one for one in told.findings}


def test_an_empty_store_has_neither_pools_nor_findings(tmp_path: Path):
    told = look(Store(tmp_path))
    assert (told.pools, told.findings, told.gaps) == ((), (), ())


def test_new_adapters_are_told_as_the_cause_of_the_thrash_they_bring(grown: Store):
    found = kinds(look(grown))
    assert "6 new adapters (`*-experiment`)" in found["thrash"].summary
    assert found["new-adapters"].severity is Severity.WARN
    assert "misses 0 % → 100 %" in found["new-adapters"].summary
    assert set(found["new-adapters"].adapters) == {f"t{n}-experiment" for n in range(6)}


def test_an_announced_experiment_informs(grown: Store):
    said = Expected(adapters=("*-experiment",), start="2024-10-04T11:00:00Z", end="2024-10-04T13:00:00Z", note="A/B test")
    assert kinds(look(grown, expected=[said]))["new-adapters"].severity is Severity.INFORMATION


def test_the_facts_of_a_pool_are_its_own(tmp_path: Path):
    one, two = busy(Pod(slots=4).start(END - HOUR)), busy(Pod(slots=8, name="pod-1").start(END - HOUR), name="other-")
    for row in two.events + two.requests:
        row["pool"] = "q"
    store = stored(
        tmp_path,
        events=pl.concat([one.event_rows(), two.event_rows()]),
        requests=pl.concat([one.request_rows(), two.request_rows()]),
    )
    told = situation(Memory(store, DAY), WINDOW)
    assert {(facts.pool, facts.slots, facts.names) for facts in told.pools} == {("p", 4, ("pod-0",)), ("q", 8, ("pod-1",))}
    assert all(name.startswith("other-") for facts in told.pools if facts.pool == "q" for name in facts.adapters["adapter"])
    states = {pool.pool: pool.state for pool in diagnosis(Memory(store, DAY), WINDOW).pools}
    assert (states["p"], states["q"]) == (State.WATCH, State.HEALTHY)


def test_a_pod_with_a_slot_for_each_adapter_is_predicted_to_miss_nothing(tmp_path: Path):
    pods = [busy(Pod(slots=4).start(END - HOUR)), busy(Pod(slots=12, name="pod-1").start(END - HOUR))]
    for pod in pods:
        for number in range(600):  # the ten minutes before: by now nothing is asked for the first time
            pod.requests.append({"at": END - (1200 - number) * SECOND, "adapter": f"lora-{number % 6}"})
    store = stored(
        tmp_path,
        events=pl.concat([pod.event_rows() for pod in pods]),
        requests=pl.concat([pod.request_rows() for pod in pods]),
    )
    (facts,) = situation(Memory(store, DAY), WINDOW).pools
    assert facts.warned("predicted_miss_ratio") == pytest.approx(0.5, abs=0.01)  # one pod misses all, the other nothing


def test_a_pool_younger_than_a_day_has_nothing_new(tmp_path: Path):
    pod = busy(Pod(slots=8).start(END - HOUR))
    told = look(stored(tmp_path, events=pod.event_rows(), requests=pod.request_rows()))
    assert "new-adapters" not in kinds(told)
    assert "which adapters are new" in {gap.what for gap in told.gaps}


def test_waits_that_loads_explain_are_no_starvation(tmp_path: Path):
    pod = Pod(slots=3, load=0.5).start(END - HOUR)
    for number in range(600):
        adapter = "abcdef"[number % 6]
        pod.ask(END - (600 - number) * SECOND, adapter, wait=0.1 if adapter in "abc" else 20.0)
    told = look(stored(tmp_path, events=pod.event_rows(), requests=pod.request_rows()))
    assert "starvation" not in kinds(told)
    assert "thrash" in kinds(told)


def test_a_router_that_does_not_look_at_adapters_is_told_in_front_of_a_short_pool(grown: Store):
    assert "no-lora-scorer" in kinds(look(grown, routers=[BLIND]))
    assert "no-lora-scorer" not in kinds(look(grown))


def test_pods_of_which_only_the_page_tells_are_set_up_too(tmp_path: Path):
    sample = {"at": END - MINUTE, "metric": names.SAMPLE_MAX_LORA, "value": 2.0, "series": "s", "labels": "{}"}
    told = situation(Memory(stored(tmp_path, samples=rows(SAMPLES, [sample])), DAY), WINDOW)
    assert told.setup.select("pod", "slots", "known", "max_rank").rows() == [("pod-0", 2, None, None)]


def test_a_page_beside_an_agent_adds_no_second_pod(tmp_path: Path):
    sample = {"at": END - MINUTE, "metric": names.SAMPLE_MAX_LORA, "value": 2.0, "series": "s", "labels": "{}"}
    store = stored(tmp_path, events=Pod(slots=4).start(END - HOUR).event_rows(), samples=rows(SAMPLES, [sample]))
    assert situation(Memory(store, DAY), WINDOW).setup.select("pod", "slots").rows() == [("pod-0", 4)]


def test_the_worst_finding_that_goes_on_is_the_diagnosis(grown: Store):
    told = look(grown)
    assert told.worst is max((one.severity for one in told.findings if one.until is None), key=lambda one: one.rank)
    assert [one.until is None for one in told.findings] == sorted((one.until is None for one in told.findings), reverse=True)


def test_the_same_look_says_the_same_twice(grown: Store):
    assert look(grown) == look(grown)


def test_a_memory_that_is_kept_says_what_a_new_one_does(grown: Store):
    kept = Memory(grown, 2 * DAY)
    diagnosis(kept, Window(WINDOW.start - 10 * MINUTE, END - 10 * MINUTE))
    assert diagnosis(kept, WINDOW).findings == look(grown).findings


def test_a_memory_reads_only_what_came_since(tmp_path: Path):
    def asked(at: int, adapter: str, seq: int) -> None:
        row = rows(REQUESTS, [{"at": at, "adapter": adapter, "seq": seq, "stream": "s"}])
        store.ledger(REQUESTS).append(Batch(row, {"s": seq}), at=1)

    store = Store(tmp_path)
    memory = Memory(store, DAY)
    asked(END - 3 * HOUR, "a", 1)
    assert memory.first_seen(END)["adapter"].to_list() == ["a"]
    asked(END + MINUTE, "b", 2)
    assert set(memory.first_seen(END + 2 * MINUTE)["adapter"]) == {"a", "b"}


def test_hours_are_whole_and_counted_once(tmp_path: Path):
    made = [{"at": END - HOUR + n * MINUTE, "adapter": "a"} for n in range(70)]
    memory = Memory(stored(tmp_path, requests=rows(REQUESTS, made)), DAY)
    assert memory.hours(END + 30 * MINUTE)["requests"].sum() == 60


def routed(per_second: float, adapters: int) -> pl.DataFrame:
    """A stock page of one pod, and its router's counters of the last quarter of an hour; no request and no load is told."""
    many = [
        {"at": END - n * 15 * SECOND, "metric": names.EPP_ATTEMPTS[0], "pool": "router's word", "adapter": f"lora-{name}",
         "series": f"epp/{name}", "value": (60 - n) * 15 * per_second, "labels": "{}"}
        for n in range(1, 60) for name in range(adapters)
    ]  # fmt: skip
    page = [
        {"at": END - n * 15 * SECOND, "metric": names.SAMPLE_MAX_LORA, "value": 4.0, "series": "page", "labels": "{}"}
        for n in range(1, 60)
    ]
    return rows(SAMPLES, [*many, *page])


def test_where_only_router_and_page_tell_che_foretells_the_misses_and_its_name_stands_beside(tmp_path: Path):
    told = look(stored(tmp_path, samples=routed(0.05, 8)))
    (pool,) = told.pools
    known = {margin.name: margin for margin in pool.margins}
    assert (known["predicted_miss_ratio"].text, known["pressure"].value) == (
        "requests predicted to miss: 50 %",
        pytest.approx(2.0),
    )
    assert known["predicted_miss_ratio"].method.startswith("che: within 0.01 for independent requests")
    thrash = kinds(told)["thrash"]
    assert thrash.summary.startswith("Thrash, by the router's counters: 8 adapters are in use on 4 slots (4 per pod); 50 % of")
    assert (pool.state, thrash.confidence) == (State.WATCH, "low")


def test_where_only_router_and_page_tell_and_all_fit_nobody_warns(tmp_path: Path):
    told = look(stored(tmp_path, samples=routed(0.05, 4)))
    assert told.pools[0].state is State.UNKNOWN
    assert told.pools[0].sentence.endswith("by the router's counters 0 % of requests would miss")
    assert told.worst is not Severity.WARN


def lived(days: int, every: int) -> Pod:
    """A pod of two slots with three adapters in turn, two at a time for most of it: it misses one in ``every``, day and night."""
    pod = Pod(slots=2, load=0.001).start(END - days * DAY - HOUR)
    for number in range(days * 24 * 60):
        name = "c" if number % every == 0 else "ab"[number % 2]
        for _ in range(4):
            pod.ask(END - days * DAY + number * MINUTE, name, hold=0.01)
    return pod


@pytest.mark.parametrize("days", [3, 8])
def test_a_week_of_misses_teaches_the_pools_own_limit_and_less_does_not(tmp_path: Path, days: int):
    pod = lived(days, 4)
    (facts,) = situation(Memory(stored(tmp_path, events=pod.event_rows(), requests=pod.request_rows()), DAY), WINDOW).pools
    if days == 3:
        assert facts.miss_limit_said == (
            "20 %, the same for all pools: 3.0 days of this pool's misses are held, 7 days would teach its own"
        )
    else:
        assert facts.usual is not None
        assert facts.usual.learned
        assert 0.1 < facts.miss_limit.enter < 0.2
        assert facts.miss_limit_said.endswith("learned from 8 days of this pool")


def test_a_pod_with_few_requests_is_judged_by_all_that_it_had_since_the_first_look(tmp_path: Path):
    pod = Pod(slots=2, load=0.001).start(END - 5 * HOUR)
    for number in range(1200):  # one in nine seconds, three adapters in turn: every one misses
        pod.ask(END - 3 * HOUR + number * 9 * SECOND, "abc"[number % 3], hold=0.01)
    store = stored(tmp_path, events=pod.event_rows(), requests=pod.request_rows())
    short = situation(Memory(store, DAY), WINDOW).pools[0]
    assert (short.warning or {})["method"] == "arrivals"  # an hour and the one before are too few for the histogram
    kept = Memory(store, DAY)
    for end in range(END - 3 * HOUR + MINUTE, END + 1, 30 * MINUTE):
        situation(kept, Window(end - HOUR, end))
    long = situation(kept, WINDOW).pools[0]
    assert (long.warning or {})["method"] == "reuse histogram"
    assert long.warned("predicted_miss_ratio") == pytest.approx(1.0, abs=0.03)
    assert situation(kept, Window(END - 2 * HOUR, END - HOUR)).pools[0].warned("predicted_miss_ratio") is not None


def test_a_finder_gives_the_findings_of_its_settings(grown: Store, tmp_path: Path):
    (tmp_path / "epp.yaml").write_text(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]\n"
    )
    looks = DiagnoseSettings(router_configs=(tmp_path / "epp.yaml",), expected=tmp_path / "none.yaml")
    found = Finder(grown, Settings(diagnose=looks))(WINDOW)
    assert {"thrash", "no-lora-scorer"} <= {one.kind for one in found}


def test_a_file_that_breaks_is_told_at_each_look_and_holds_up_no_finding(grown: Store, tmp_path: Path):
    for name in ("epp.yaml", "expected.yaml"):
        (tmp_path / name).write_text("{")
    (tmp_path / "adapters").mkdir()
    looks = DiagnoseSettings(
        router_configs=(tmp_path / "epp.yaml",),
        expected=tmp_path / "expected.yaml",
        adapter_folders=(tmp_path / "adapters",),
    )
    told: list[set[str]] = []
    finder = Finder(grown, Settings(diagnose=looks), told.append)
    assert "thrash" in {one.kind for one in finder(WINDOW)}
    assert len(told[0]) == 3


def test_what_was_read_before_a_file_broke_still_holds(grown: Store, tmp_path: Path):
    router = tmp_path / "epp.yaml"
    router.write_text("kind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n")
    looks = DiagnoseSettings(router_configs=(router,), expected=tmp_path / "none.yaml")
    told: list[set[str]] = []
    finder = Finder(grown, Settings(diagnose=looks), told.append)
    first = {one.kind for one in finder(WINDOW)}
    router.write_text("{")
    assert {one.kind for one in finder(WINDOW)} == first
    assert "no-lora-scorer" in first
    assert [len(problems) for problems in told] == [0, 1]


def test_what_people_say_is_read_where_the_configuration_says(tmp_path: Path):
    told = given(DiagnoseSettings(expected=tmp_path / "none.yaml"))
    assert (told["expected"], told["routers"], told["files"]) == ((), (), ())


def test_what_people_say_and_cannot_be_read_is_an_error(tmp_path: Path):
    (tmp_path / "epp.yaml").write_text("{")
    (tmp_path / "adapters" / "a").mkdir(parents=True)
    (tmp_path / "adapters" / "a" / "adapter_config.json").write_text("{")
    none = tmp_path / "none.yaml"
    with pytest.raises(LoraWatchError, match=r"epp\.yaml"):
        given(DiagnoseSettings(expected=none, router_configs=(tmp_path / "epp.yaml",)))
    with pytest.raises(ConfigError, match="no adapter could be read"):
        given(DiagnoseSettings(expected=none, adapter_folders=(tmp_path / "adapters",)))


def test_a_window_of_one_second_is_a_window(grown: Store):
    told = diagnosis(Memory(grown, 2 * DAY), Window(END - SECOND, END))
    assert told.pools[0].slots == 4


def test_events_without_a_pool_or_role_are_a_pool(tmp_path: Path):
    start = {"at": END - MINUTE, "kind": "start", "slots": 2, "clock": "host", "pool": None, "role": None}
    (pool,) = look(stored(tmp_path, events=rows(ADAPTER_EVENTS, [start]))).pools
    assert (pool.pool, pool.role, pool.slots) == ("", "", 2)


@pytest.mark.parametrize("hours", [1, 24])
def test_rows_that_name_no_pod_are_of_one_pod_without_a_name(tmp_path: Path, hours: int):
    pod = Pod(slots=2, load=0.05).start(END - 2 * HOUR)
    nameless = {"pod": pl.lit(None, dtype=pl.String)}
    events, requests = busy(pod).event_rows().with_columns(**nameless), busy(pod).request_rows().with_columns(**nameless)
    told = diagnosis(Memory(stored(tmp_path, events=events, requests=requests), 2 * DAY), Window(END - hours * HOUR, END))
    assert [state.pods for state in told.pools] == [1]
    assert {name for one in told.findings for name in one.pods} == {""}
    assert "thrash" in as_markdown(told)
