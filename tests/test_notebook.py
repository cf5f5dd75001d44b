"""The store in a notebook: windows and groups as people write them, the same figures as everywhere else."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import events, requests
from polars.testing import assert_frame_equal

import lora_watch
from lora_watch.derive.residency import residency
from lora_watch.derive.stays import stays
from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.errors import ConfigError, LoraWatchError
from lora_watch.explore.around import STRUCTURES
from lora_watch.explore.notebook import GROUPS, Notebook
from lora_watch.explore.queries import FIGURES
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Batch, Table
from lora_watch.store.tables import Store

START = 1_795_996_800 * SECOND
"""2026-11-30T00:00:00Z."""
END = START + 100 * SECOND
TIMES = ("at", "arrived", "queued", "scheduled", "first_token", "finished")
PODS = ("pod-0", "pod-1", "pod-2")
LAST = "100s"


def put(store: Store, table: Table, frame: pl.DataFrame) -> None:
    later = frame.drop("date", "bucket").with_columns(pl.col(name) + START for name in TIMES if name in frame.columns)
    store.ledger(table).append(Batch(table.conform(later), {frame["stream"][0]: frame["seq"].max()}), at=END)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pods in two pools with loads, evictions and requests, and a finding; nobody writes here."""
    where = tmp_path_factory.mktemp("data")
    store = Store(where)
    for number, pod in enumerate(PODS):
        who = {"pod": pod, "pool": "chat" if number < 2 else "code"}
        seen = events(f"a:1-30 b!:10- c:31-{50 + number} a:55-90 d:91-", start_at=0, slots=2, stream=f"agent/c/{pod}/boot", **who)
        put(store, ADAPTER_EVENTS, seen)
        asked = requests("a:0.5/0.5/1.2/5 b:9/9.9/10.1/20 a:20/20/21/22 c:30/31/32/100", stream=f"agent/c/{pod}/api", **who)
        put(store, REQUESTS, asked)
    finding = Finding("thrash", Severity.HARM, "c", "chat", "", START, "it swaps", "too few slots", Confidence.HIGH, 1.0)
    Diagnoser(store, lambda window: [finding]).look(Window(START, START + 60 * SECOND), now=END)
    return where


@pytest.fixture(scope="module")
def data(folder: Path) -> Notebook:
    return lora_watch.open(folder)


@pytest.mark.parametrize(
    ("name", "by"), [*((name, "adapter") for name in FIGURES), *(("misses", by) for by in GROUPS if by != "adapter")]
)
def test_every_figure_has_a_method_and_rows_by_every_group(data: Notebook, name: str, by: str):
    if (name, by) == ("inference_share", "adapter"):
        with pytest.raises(LoraWatchError, match="no rows by adapter"):
            data.inference_share(LAST, by=by)
        return
    frame = getattr(data, name)(LAST, by=by)
    assert isinstance(frame, pl.DataFrame)
    assert set(GROUPS[by]) <= set(frame.columns) | {"role"}
    assert frame.height >= {"pod": 3, "pool": 2, "adapter": 4, "cluster": 1}[by]
    assert "provenance" in frame.columns


def test_a_figure_by_pool_is_that_of_all_its_pods_at_once(data: Notebook, folder: Path):
    window = Window(START, END)
    at_once = stays(Store(folder).scan(ADAPTER_EVENTS, window)).collect().lazy()
    keys = ("cluster", "pool", "role")
    expected = residency(at_once, window, keys).collect().sort(keys)
    assert_frame_equal(data.residency(start=START, end=END, by="pool"), expected, check_row_order=True)


def test_a_figure_by_pod_is_the_one_that_status_shows(data: Notebook):
    shown = data.overview(LAST).pods
    own = data.swaps(LAST)
    assert own["swaps"].to_list() == shown["swaps"].to_list() == [3, 3, 3]
    assert data.misses(LAST)["miss_ratio"].to_list() == shown["miss_ratio"].to_list()


def test_groups_can_be_joined(data: Notebook):
    frame = data.residency(LAST, by=("pod", "adapter"))
    assert frame.select("pod", "adapter").n_unique() == frame.height == 12


def test_a_pod_whose_requests_name_another_pool_is_still_one_pod(tmp_path: Path):
    store = Store(tmp_path)
    put(store, ADAPTER_EVENTS, events("a:1-", start_at=0, pool="chat"))
    put(store, REQUESTS, requests("a:2/2/3/4", pool="", stream="gateway"))
    found = lora_watch.open(tmp_path).misses(start=START, end=START + 5 * SECOND, by="adapter")
    assert found.select("pool", "hot").rows() == [("", 1)]


@pytest.mark.parametrize(
    "window",
    [
        {"last": "100s"},
        {"start": START + 1, "end": END + 1},
        {"start": datetime(2026, 11, 30, 0, 0, 0, 1, tzinfo=UTC)},
        {"start": "2026-11-30T01:00:00.000001+01:00", "end": "2026-11-30T00:01:40.000001Z"},
        {"start": datetime(2026, 11, 30, 1, 0, 0, 1, tzinfo=timezone(timedelta(hours=1))), "end": END + 1},
        {"last": "100s", "end": END + 1},
    ],
)
def test_a_window_can_be_written_in_many_ways(data: Notebook, window: dict[str, Any]):
    assert data.window(**window) == Window(START + 1, END + 1)


def test_without_a_word_the_window_is_the_last_hour(data: Notebook):
    assert data.window() == Window(END + 1 - HOUR, END + 1)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"last": "soon"}, "not a length of time"),
        ({"last": "1h", "start": 0}, "not `last` and `start`"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001  # that is the point
        ({"end": "noon"}, "`end` cannot be read"),
        ({"start": True}, "is a moment"),
        ({"start": END + 10 * DAY}, "begins before it ends"),
        ({"start": 1.5}, "`start` cannot be read"),
        ({"start": -(10**18)}, "longer than 3660 days"),
        ({"last": "999999999d"}, "longer than 3660 days"),
        ({"end": 2**63}, "behind the year 9999"),
        ({"end": datetime.max.replace(tzinfo=UTC), "last": "36600d"}, "longer than 3660 days"),
    ],
)
def test_a_window_that_makes_no_sense_says_what_would(data: Notebook, window: dict[str, Any], said: str):
    with pytest.raises(LoraWatchError, match=said):
        data.window(**window)


@pytest.mark.parametrize("by", ["pods", "", (), ("pod", "hour")])
def test_a_group_that_nobody_knows_names_those_there_are(data: Notebook, by: Any):
    with pytest.raises(LoraWatchError, match="pod, pool, adapter, cluster"):
        data.swaps(LAST, by=by)


def test_evictions_have_no_rows_by_adapter_and_that_is_said(data: Notebook):
    with pytest.raises(LoraWatchError, match="choose pod, pool or cluster"):
        data.around_evictions(LAST, by="adapter")


def test_rows_come_as_they_are_stored(data: Notebook):
    assert data.requests(LAST).height == 12
    assert data.events(LAST)["kind"].unique().sort().to_list() == ["evict", "load"]  # the starts are just before the window
    assert data.samples(LAST, metric="x").is_empty()
    assert data.scan("requests").select(pl.len()).collect().item() == 12
    with pytest.raises(LoraWatchError, match="there is no table 'request'"):
        data.scan("request")


def test_findings_and_incidents_are_frames(data: Notebook):
    assert data.findings(LAST)["change"].to_list() == ["opened"]
    (row,) = data.incidents(LAST).to_dicts()
    assert (row["title"], row["status"], row["findings"]) == ("it swaps", "open", ["thrash"])
    assert data.postmortem(row["id"]).startswith(f"# Incident {row['id']}")
    assert data.incidents(start=START - DAY, end=START - HOUR).schema == data.incidents(LAST).schema


def test_what_is_asked_of_requests_alone_has_its_methods(data: Notebook):
    assert data.miss_ratio_curve(LAST, by="pod")["pod"].n_unique() == 3
    assert data.working_set(LAST)["pool"].n_unique() == 2
    assert data.swaps_per_minute(LAST)["pod"].n_unique() == 3
    with pytest.raises(LoraWatchError, match="adapters share the slots"):
        data.miss_ratio_curve(LAST, by="adapter")


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_every_structure_has_a_method_and_rows_that_begin_alike(data: Notebook, name: str):
    assert getattr(data, name)(LAST).columns[:3] == ["cluster", "pool", "role"]


def test_pods_that_load_one_adapter_at_once_are_a_stampede(data: Notebook):
    frame = data.stampedes(start=START, end=END)
    assert {"a"} <= {name for names in frame["adapters"].to_list() for name in names}


def test_an_empty_folder_says_that_nothing_is_stored(tmp_path: Path):
    empty = lora_watch.open(tmp_path)
    with pytest.raises(LoraWatchError, match="nothing is stored"):
        empty.residency("7d")
    assert all(getattr(empty, name)(start=0, end=MINUTE, by=by).is_empty() for name in ("swaps", "misses") for by in GROUPS)
    assert "empty" in repr(empty)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(LoraWatchError, match="there is no folder"):
        lora_watch.open(tmp_path / "nothing")


def test_a_configuration_names_the_folder(folder: Path, tmp_path: Path):
    file = tmp_path / "lora-watch.yaml"
    file.write_text(f"store: {{folder: '{folder}'}}\n")
    assert lora_watch.open(file).requests(LAST).height == 12
    file.write_text("stores: {}\n")
    with pytest.raises(ConfigError, match="did you mean `store`"):
        lora_watch.open(str(file))


def test_importing_the_package_imports_nothing_large():
    code = "import lora_watch, sys; print('polars' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("figure", ["residency_interval", "timeline", "attribution", "around_evictions", "cost"])
def test_figures_of_time_and_money_have_a_row_for_each_pool(data, figure):
    frame = getattr(data, figure)(LAST)
    assert set(frame["pool"]) <= {"chat", "code"}
    assert {"cluster", "pool", "role"} <= set(frame.columns)


def test_waits_for_loads_are_told_by_request(data):
    assert data.load_waits(LAST).height == data.requests("110s", end=END + 10 * SECOND).height


def test_gpu_hours_grow_with_the_gpus_of_a_pod(data):
    one, two = (data.cost(LAST, gpus_per_pod=gpus)["gpu_hours_lost_lower_bound"].sum() for gpus in (1, 2))
    assert two == pytest.approx(2 * one)
