"""`lora-watch cost`: GPU time, money and latency, with what is unknown said, whatever adapters are called."""

import json
from io import StringIO
from pathlib import Path

import pytest
from builders import rows
from diagnose.told import HOSTILE
from lru_pod import Pod
from rich.console import Console
from stored import stored
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import CostSettings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.cost import as_json, read, show
from lora_watch.model import DAY, HOUR, MINUTE, SECOND
from lora_watch.schema import ADAPTER_EVENTS
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
PRICED = CostSettings(gpu_hour_price=4.0, gpus_per_pod=2, currency="EUR")


def pod(*, adapters: int = 6, load: float = 0.36, name: str = "lora-") -> Pod:
    """An adapter a second in turn on four slots for ten minutes, loading each time; it started an hour before the end."""
    made = Pod(slots=4, load=load).start(END - HOUR)
    for number in range(600):
        made.ask(END - 600 * SECOND + number * SECOND, f"{name}{number % adapters}", hold=0.2)
    made.events.append({"at": END - 1, "kind": "steps", "count": 1, "wall_seconds": 1.0, "clock": "host"})
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("cost"), pod()
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


def told(folder: Path, settings: CostSettings = PRICED, last: str = "1h"):
    return read(Store(folder), last, None, DAY, settings, now=END + DAY)


def printed(folder: Path, settings: CostSettings = PRICED, *, adapters: int = 10, width: int = 130) -> str:
    written = StringIO()
    show(told(folder, settings), adapters=adapters, console=Console(file=written, width=width))
    return written.getvalue()


def test_loads_cost_the_time_that_all_gpus_of_the_pod_stood_still(data: Path):
    (row,) = told(data).pools.to_dicts()
    assert row["loads"] == 600
    assert row["gpu_hours_lost"] == pytest.approx(600 * 0.36 * 2 / 3600)
    assert row["money_lost"] == pytest.approx(row["gpu_hours_lost"] * 4.0)


def test_adapters_share_what_their_pool_lost(data: Path):
    cost = told(data)
    assert cost.adapters["gpu_hours_lost"].sum() == pytest.approx(cost.pools["gpu_hours_lost"].sum())


def test_the_adapter_that_cost_most_comes_first(tmp_path: Path):
    made = pod()
    for row in made.events:
        row["seconds"] = 2.0 if row.get("adapter") == "lora-5" and row["kind"] == "load" else row.get("seconds")
    stored(tmp_path, events=made.event_rows())
    assert told(tmp_path).adapters["adapter"].to_list()[0] == "lora-5"


def test_people_read_hours_shares_and_money(data: Path):
    text = printed(data)
    assert "2024-10-04T11:00:00Z … 2024-10-04T12:00:00Z (60 min)" in text
    assert "c/p" in text
    assert "0.48 EUR" in text
    assert "600" in text
    assert "latency, last 60 min" in text


def test_without_a_price_there_is_no_money_and_that_is_no_zero(data: Path):
    text = printed(data, CostSettings())
    assert "USD" not in text
    assert json.loads(as_json(told(data, CostSettings())))["pools"][0]["money_lost"] is None


def test_loads_without_a_length_are_a_lower_bound(tmp_path: Path):
    made = pod()
    made.events = [{**row, "seconds": None} if row["at"] > END - MINUTE else row for row in made.events]
    stored(tmp_path, events=made.event_rows())
    (row,) = told(tmp_path).pools.to_dicts()
    assert row["gpu_hours_lost"] is None
    assert "> 0.1" in printed(tmp_path)


def test_a_list_of_no_adapters_is_left_out(data: Path):
    assert "by the adapter" not in printed(data, adapters=0)


@pytest.mark.parametrize("width", [60, 130])
def test_it_fits_the_terminal(data: Path, width: int):
    assert max(len(line) for line in printed(data, width=width).splitlines()) <= width


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_obeys_or_floods_a_terminal(tmp_path: Path, name: str):
    load = {"kind": "load", "tier": "gpu", "adapter": name, "ok": True, "reason": "demand", "seconds": 1.0, "in_step": True}
    start = {"at": END - HOUR, "kind": "start", "slots": 2, "clock": "host"}
    stored(tmp_path, events=rows(ADAPTER_EVENTS, [start, {**load, "at": END - MINUTE}], pool=name, cluster="c", stream="s"))
    text = printed(tmp_path)
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert len(text) < 5_000
    assert as_json(told(tmp_path)).isascii()


def test_nothing_stored_is_an_error_in_a_sentence(tmp_path: Path):
    with pytest.raises(LoraWatchError, match="nothing is stored yet"):
        told(tmp_path)


def test_the_command_takes_a_price_and_answers_programs(data: Path):
    result = CliRunner().invoke(app, ["cost", "--data", str(data), "--last", "1h", "--price", "10", "--format", "json"])
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["pools"][0]["money_lost"] == pytest.approx(600 * 0.36 / 3600 * 10)
    assert answer["window"]["seconds"] == 3600


@pytest.mark.parametrize("wrong", [("--last", "soon"), ("--at", "noon"), ("--price", "-1")])
def test_what_makes_no_sense_is_refused(data: Path, wrong: tuple[str, str]):
    assert CliRunner().invoke(app, ["cost", "--data", str(data), *wrong]).exit_code == 2
