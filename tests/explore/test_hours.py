"""What closed hours say is what their rows say, is worked out once, and no longer believed when rows came later."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import requests, rows
from lru_pod import Pod
from polars.testing import assert_frame_equal
from stored import stored
from typer.testing import CliRunner

from lora_watch import names
from lora_watch.cli import app
from lora_watch.explore import hours, timeline
from lora_watch.explore.adapters import KEYS, asked
from lora_watch.explore.heard import lost, reached
from lora_watch.jobs import close_hours
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, HOURS, REQUESTS, SAMPLES, Table
from lora_watch.store.days import replace_day
from lora_watch.store.tables import Store

BEGIN = 20_000 * DAY
TWO_DAYS = Window(BEGIN, BEGIN + 2 * DAY)


def laid(folder: Path) -> Store:
    """Two pods: five adapters in turn on two slots, one every seven minutes for two days; losses, and looks at the pods."""
    made = [Pod(slots=2, load=0.1, name=f"pod-{number}").start(BEGIN) for number in range(2)]
    for number, pod in enumerate(made):
        for turn in range(2 * DAY // (7 * MINUTE) - 1):
            pod.ask(BEGIN + (turn + 1) * 7 * MINUTE, f"lora-{(turn * (number + 1)) % 5}", wait=0.01 * (turn % 9), hold=0.3)
    gone = [{"at": BEGIN + 30 * HOUR, "kind": "lost", "count": 7, "reason": "disk", "seq": 9_999, "pod": "pod-0"}]
    up = {"metric": names.SAMPLE_SCRAPE_UP, "series": "up", "labels": '{"endpoint":"agent"}'}
    looks = [{**up, "at": BEGIN + 10 * MINUTE * n, "value": float(n % 4 > 0)} for n in range(2 * DAY // (10 * MINUTE))]
    events = pl.concat([*(pod.event_rows() for pod in made), rows(ADAPTER_EVENTS, gone)])
    served = pl.concat([pod.request_rows() for pod in made])
    return stored(folder, events=events, requests=served, samples=rows(SAMPLES, looks))


def late(at: int) -> pl.DataFrame:
    """A request that finished then, of an adapter that nobody else asks for."""
    return rows(REQUESTS, [{"at": at, "adapter": "late", "stream": "late", "arrived": at - 2, "first_token": at - 1}])


def close(store: Store, until: int = TWO_DAYS.end) -> int:
    return close_hours(store, lambda at: hours.stale(store, at), lambda day: hours.of_day(store, day, DAY), until=until)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """For who only reads it."""
    store = laid(tmp_path_factory.mktemp("closed"))
    assert close(store) == 2
    return store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return laid(tmp_path)


def by_rows(store: Store) -> timeline.Part:
    return timeline.part(TWO_DAYS, store, DAY, HOUR, HOUR)


def test_cells_are_those_of_the_rows(closed: Store):
    told = hours.slots(TWO_DAYS, closed, HOUR, HOUR)
    days = timeline.together([timeline.part(day, closed, DAY, HOUR, HOUR) for day in TWO_DAYS.split(DAY)])
    assert_frame_equal(told.cells, days.cells, check_row_order=False)


def test_who_sat_where_and_for_how_long_is_that_of_the_rows(closed: Store):
    told = hours.slots(TWO_DAYS, closed, HOUR, HOUR)
    assert_frame_equal(told.held, by_rows(closed).held)
    assert told.count == by_rows(closed).count


def test_requests_loads_and_swaps_are_those_of_the_rows(closed: Store):
    columns = ["pool", "at", "requests", "loads", "swaps", "pods", "latency_of", "swaps_per_second", "provenance"]
    told = hours.slots(TWO_DAYS, closed, HOUR, HOUR).course
    assert_frame_equal(told.select(columns), by_rows(closed).course.select(columns))


def test_a_wide_bin_adds_its_hours_up(closed: Store):
    told = hours.slots(TWO_DAYS, closed, 6 * HOUR, 6 * HOUR)
    whole = timeline.part(TWO_DAYS, closed, DAY, 6 * HOUR, 6 * HOUR)
    assert told.course["requests"].to_list() == whole.course["requests"].to_list()
    assert told.cells.height == whole.cells.height


def test_quantiles_are_off_by_half_a_step_of_the_histogram_at_most(closed: Store):
    told = hours.slots(TWO_DAYS, closed, 6 * HOUR, 6 * HOUR).course
    whole = timeline.part(TWO_DAYS, closed, DAY, 6 * HOUR, 6 * HOUR)
    ratio = told["p95_seconds"] / whole.course["p95_seconds"]
    assert ratio.is_between(1 / hours.GROWTH, hours.GROWTH).all()


def test_of_some_pods_the_latency_is_read_of_their_requests(closed: Store):
    mine = closed.part(where=pl.col("pod") == "pod-1")
    told = hours.slots(TWO_DAYS, mine, HOUR, HOUR).course
    assert_frame_equal(told, timeline.part(TWO_DAYS, mine, DAY, HOUR, HOUR).course)


def test_who_was_asked_for_is_that_of_the_rows(closed: Store):
    order = [*KEYS, "hour"]
    assert_frame_equal(hours.wanted(TWO_DAYS, closed).sort(order), asked(TWO_DAYS, closed).sort(order))


def test_who_could_be_reached_and_what_was_lost_is_that_of_the_rows(closed: Store):
    assert_frame_equal(hours.looked_at(TWO_DAYS, closed, 6 * HOUR), reached(TWO_DAYS, closed, 6 * HOUR))
    assert_frame_equal(hours.gone(TWO_DAYS, closed), lost(TWO_DAYS, closed))


def test_when_adapters_were_asked_for_first_is_known_with_and_without_closed_hours(closed: Store, store: Store):
    moment = BEGIN + 40 * HOUR + 20 * MINUTE
    with_hours, without = hours.before(closed, moment), hours.before(store, moment)
    assert with_hours.begun == without.begun
    assert_frame_equal(with_hours.firsts, without.firsts, check_row_order=False)


def test_a_store_without_closed_hours_covers_nothing(store: Store):
    assert hours.covered(store, TWO_DAYS) == []
    assert hours.rest(TWO_DAYS, []) == [TWO_DAYS]


def test_doing_it_twice_is_doing_it_once(store: Store):
    close(store)
    before = store.rows(HOURS)
    assert close(store) == 0
    for day in TWO_DAYS.split(DAY):
        close_hours(store, lambda _, day=day: [day], lambda day: hours.of_day(store, day, DAY), until=TWO_DAYS.end)
    assert_frame_equal(store.rows(HOURS), before, check_row_order=False)


def test_an_hour_that_goes_on_is_not_worked_out_and_the_day_goes_on_with_the_next(store: Store):
    close(store, BEGIN + 30 * HOUR + 59 * MINUTE)
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN, BEGIN + 30 * HOUR)]
    close(store, BEGIN + 31 * HOUR)
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN, BEGIN + 31 * HOUR)]


def test_a_part_of_an_hour_is_not_covered(closed: Store):
    window = Window(BEGIN + 20 * MINUTE, BEGIN + 3 * HOUR + 20 * MINUTE)
    spans = hours.covered(closed, window)
    assert spans == [Window(BEGIN + HOUR, BEGIN + 3 * HOUR)]
    assert hours.rest(window, spans) == [Window(window.start, BEGIN + HOUR), Window(BEGIN + 3 * HOUR, window.end)]


@pytest.mark.parametrize("until", [2 * DAY, 30 * HOUR])
def test_a_day_whose_rows_grew_is_read_again_until_it_has_been_worked_out_anew(store: Store, until: int):
    close(store, BEGIN + until)
    stored(store.root, requests=late(BEGIN + 26 * HOUR))
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN, BEGIN + DAY)]
    assert [day.start for day in hours.stale(store, BEGIN + until)] == [BEGIN + DAY]
    assert close(store, BEGIN + until) == 1
    assert "late" in hours.wanted(TWO_DAYS, store)["adapter"].to_list()


def test_a_day_is_worked_out_anew_when_events_of_a_day_before_came_late(store: Store):
    close(store)
    came = Pod(slots=2, load=0.1, name="pod-late").start(BEGIN + HOUR)
    came.ask(BEGIN + 2 * HOUR, "lora-late")
    stored(store.root, events=came.event_rows())
    assert hours.covered(store, TWO_DAYS) == []
    assert close(store) == 2
    days = timeline.together([timeline.part(day, store, DAY, HOUR, HOUR) for day in TWO_DAYS.split(DAY)])
    assert_frame_equal(hours.slots(TWO_DAYS, store, HOUR, HOUR).cells, days.cells, check_row_order=False)


def test_a_day_before_that_is_dropped_because_it_is_old_leaves_the_next_as_it_is(store: Store):
    close(store)
    replace_day(store, ADAPTER_EVENTS, BEGIN, ADAPTER_EVENTS.empty())
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN + DAY, BEGIN + 2 * DAY)]


class Growing(Store):
    """A store that gets a late request once somebody has opened its requests."""

    def scan(self, table: Table, window: Window | None = None, **how: Any) -> pl.LazyFrame:
        found = super().scan(table, window, **how)
        if table is REQUESTS:
            stored(self.root, requests=late(BEGIN + 26 * HOUR))
        return found


def test_rows_that_come_while_a_day_is_worked_out_make_it_stale(store: Store):
    close_hours(
        store, lambda at: hours.stale(store, at)[1:], lambda day: hours.of_day(Growing(store.root), day, DAY), until=TWO_DAYS.end
    )
    assert hours.covered(store, TWO_DAYS) == []


def test_today_is_believed_as_far_as_it_was_read_though_rows_come_behind(store: Store):
    close(store, BEGIN + 30 * HOUR)
    stored(store.root, requests=late(BEGIN + 33 * HOUR))
    assert hours.covered(store, TWO_DAYS)[-1].end == BEGIN + 30 * HOUR


def test_the_newest_day_is_worked_out_first_and_the_rest_at_the_next_look(store: Store):
    stale, of_day = (lambda at: hours.stale(store, at)), (lambda day: hours.of_day(store, day, DAY))
    assert close_hours(store, stale, of_day, until=TWO_DAYS.end, goes_on=lambda: False) == 1
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN + DAY, TWO_DAYS.end)]
    assert close_hours(store, stale, of_day, until=TWO_DAYS.end, goes_on=lambda: False) == 1
    assert hours.covered(store, TWO_DAYS) == [TWO_DAYS]


def test_the_command_works_out_all_of_a_store_that_nobody_writes(store: Store):
    done = CliRunner().invoke(app, ["derive", "--data", str(store.root)])
    assert done.exit_code == 0, done.output
    assert "2 days worked out" in done.output
    assert hours.covered(store, TWO_DAYS) == [Window(BEGIN, BEGIN + 2 * DAY)]
    assert "0 days worked out" in CliRunner().invoke(app, ["derive", "--data", str(store.root)]).output


def test_a_day_without_any_row_is_no_day(store: Store):
    assert [day.start for day in hours.stale(store, BEGIN + 5 * DAY)] == [BEGIN, BEGIN + DAY]


def test_a_request_whose_first_token_came_before_it_is_counted_as_the_shortest(tmp_path: Path):
    begin = BEGIN // SECOND
    store = stored(tmp_path, requests=requests(f"a:{begin + 10}/{begin + 11}/{begin + 5}/{begin + 20}"))
    assert close(store) == 1
    told = hours.slots(Window(BEGIN, BEGIN + DAY), store, HOUR, HOUR).course
    assert told["p50_seconds"][0] == pytest.approx(hours.SHORTEST_SECONDS, rel=0.1)
    assert told["latency_of"].to_list() == [1]
