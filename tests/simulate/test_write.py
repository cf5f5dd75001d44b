import json
from pathlib import Path

import polars as pl
import pytest
from simulate.small import MIXED, laid, shrunk
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.errors import StoreError
from lora_watch.model import HOUR
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate.engines import lives
from lora_watch.simulate.rows import Rows
from lora_watch.simulate.scenario import MONDAY, Scenario, Traffic, Truth
from lora_watch.simulate.traffic import catalogue, everything
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

QUIET = Scenario(name="quiet", about="", traffic=Traffic(requests_per_second=0.01, adapters=3), truth=Truth())


def rows(folder: Path) -> list[pl.DataFrame]:
    return [Store(folder).scan(table).collect().sort(table.key) for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)]


def test_the_same_seed_lays_the_same_rows_and_another_others(tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        laid(MIXED.model_copy(update={"days": 1 / 24}), tmp_path / name, seed)
    first, again, other = (rows(tmp_path / name) for name in "abc")
    assert [one.equals(two) for one, two in zip(first, again, strict=True)] == [True] * 3
    assert [one.equals(two) for one, two in zip(first, other, strict=True)] == [False] * 3
    assert (tmp_path / "a" / "truth.json").read_bytes() == (tmp_path / "b" / "truth.json").read_bytes()


def test_what_is_stored_does_not_depend_on_how_much_is_simulated_at_once(tmp_path: Path):
    short = MIXED.model_copy(update={"days": 2 / 24})
    told: list[float] = []
    simulate(short, short.days, 1, tmp_path / "whole")
    simulate(short, short.days, 1, tmp_path / "bits", at_once=2000, told=told.append)
    assert len(told) > 4
    assert told == sorted(told)
    assert told[-1] == 1
    assert [one.equals(two) for one, two in zip(rows(tmp_path / "whole"), rows(tmp_path / "bits"), strict=True)] == [True] * 3
    assert (tmp_path / "whole" / "truth.json").read_bytes() == (tmp_path / "bits" / "truth.json").read_bytes()


def test_a_simulation_of_no_days_or_of_nothing_at_once_is_refused(tmp_path: Path):
    for days, at_once in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="takes longer"):
            simulate(QUIET, days, 1, tmp_path, at_once=at_once)


def test_a_second_simulation_joins_no_other_data(tmp_path: Path):
    simulate(QUIET, 0.1, 1, tmp_path)
    with pytest.raises(StoreError, match="holds a table adapter_events already"):
        simulate(QUIET, 0.1, 1, tmp_path)


def test_it_goes_on_over_midnight_and_tells_how_far_it_is(tmp_path: Path):
    told: list[float] = []
    done = simulate(QUIET, 2.5, 1, tmp_path, told=told.append)
    assert told == pytest.approx([0.4, 0.8, 1.0])
    asked = Store(tmp_path).scan(REQUESTS).collect()
    assert asked["date"].n_unique() == 3
    assert asked.height == done.requests


def test_positions_go_on_from_part_to_part_and_reach_the_last_row(tmp_path: Path):
    simulate(MIXED, 3 / 24, 1, tmp_path)
    for table in (ADAPTER_EVENTS, REQUESTS):
        last = Store(tmp_path).scan(table).group_by("stream").agg(pl.col("seq").max()).collect()
        positions = Store(tmp_path).ledger(table).refresh()
        assert all(positions[stream] >= seq for stream, seq in last.iter_rows())


def test_a_part_holds_whole_pods_and_lies_in_the_order_of_a_closed_day():
    known = catalogue(MIXED, 1)
    until = MONDAY + 3 * HOUR
    served = list(lives(MIXED, known, everything(MIXED, known, 3 / 24, 1), 3 / 24, 1))
    parts = list(Rows(MIXED, known, served, until, 1).parts())
    assert len(parts) == 1
    for frame, last in ((parts[0].events, "seq"), (parts[0].requests, "seq"), (parts[0].samples, "series")):
        order = ["bucket", "pod", "at", *(["stream"] if last == "seq" else []), last]
        assert frame.equals(frame.sort(order))


def test_prefill_and_decode_pods_share_the_requests(tmp_path: Path):
    run = laid(shrunk("prefill-decode-mismatch"), tmp_path)
    by_role = run.store.scan(REQUESTS).group_by("role").agg(pl.len(), pl.col("generated_tokens").max()).collect()
    counts = {role: (rows, generated) for role, rows, generated in by_role.iter_rows()}
    assert counts["prefill"][1] == 1
    assert counts["decode"][1] > 1
    assert counts["decode"][0] == pytest.approx(counts["prefill"][0], abs=5)


def test_a_withdrawn_name_stays_in_its_slot(tmp_path: Path):
    run = laid(shrunk("phantom"), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    (event,) = truth["events"]
    events = run.store.scan(ADAPTER_EVENTS).collect()
    withdrawn = events.filter(pl.col("kind") == "unregister")
    assert sorted(set(withdrawn["adapter"])) == sorted(event["adapters"])
    assert set(withdrawn["at"]) == {event["start"]}
    left = events.filter((pl.col("kind") == "evict") & (pl.col("at") == event["start"]))
    assert left.is_empty()
    late = run.store.scan(REQUESTS).filter(pl.col("arrived") >= event["start"]).collect()
    assert not set(late["adapter"]) & set(event["adapters"])


def test_a_reload_in_place_makes_no_room(tmp_path: Path):
    run = laid(shrunk("reload-loop"), tmp_path)
    again = run.store.scan(ADAPTER_EVENTS).filter(pl.col("reason") == "inplace").collect()
    assert again["adapter"].n_unique() == again["pod"].n_unique() == 1
    assert again.filter((pl.col("kind") == "load") & (pl.col("tier") == "gpu")).height > 100
    assert again.filter(pl.col("kind") == "evict").height == again.height / 3


def test_samples_of_adapters_are_activity_and_an_idle_pod_says_so(tmp_path: Path):
    simulate(QUIET, 0.2, 1, tmp_path)
    seen = Store(tmp_path).scan(SAMPLES).filter(pl.col("metric") == "lora_watch:adapter_in_flight").collect()
    assert seen["provenance"].unique().to_list() == ["activity"]
    assert seen.filter(pl.col("adapter").is_null())["value"].unique().to_list() == [0.0]
    assert seen.filter(pl.col("adapter").is_not_null())["value"].unique().to_list() == [1.0]


def test_the_command_lays_a_scenario_and_says_where_to_look(tmp_path: Path):
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["simulate", "--scenario", "one-slot-short", "--days", "0.05", "--out", str(out)])
    assert result.exit_code == 0, result.stderr
    assert f"lora-watch status --data {out}" in result.stdout
    assert json.loads((out / "truth.json").read_text())["scenario"] == "one-slot-short"
    looked = CliRunner().invoke(app, ["status", "--data", str(out), "--at", "2026-03-02T01:00:00Z", "--format", "json"])
    assert looked.exit_code == 0, looked.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("--scenario", "mars"), "no scenario 'mars'"), (("--scenario", "healthy", "--days", "0"), "not 0")],
)
def test_a_wrong_command_is_refused_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...], complaint: str):
    result = CliRunner().invoke(app, ["simulate", *arguments, "--out", str(tmp_path / "out")])
    assert (result.exit_code, complaint in result.stderr) == (2, True)
