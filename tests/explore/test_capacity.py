"""The page Capacity: curves, plans and scores of pods small enough to count by hand."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from builders import events, requests, rows
from lru_pod import Pod
from stored import stored

from lora_watch.config import CostSettings
from lora_watch.explore import capacity_figures, capacity_words
from lora_watch.explore.capacity import Pool, compared, month_of, planned, pooled, room, slots_of
from lora_watch.explore.routing import routed
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.recommend.levers import Foretold, Lever, Levers, Plan
from lora_watch.schema import REQUESTS
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
WINDOW = Window(END - HOUR, END)
POOL: Pool = ("c", "p", "")


@pytest.fixture
def ring(tmp_path: Path) -> Store:
    """Three adapters in turn on two slots, one a second for ten minutes: each request misses, with three slots none but three."""
    made = Pod(slots=2, load=0.001).start(END - HOUR)
    for number in range(600):
        made.ask(END - (600 - number) * SECOND, "abc"[number % 3], hold=0.1)
    return stored(tmp_path, events=made.event_rows(), requests=made.request_rows())


def test_a_curve_counts_the_misses_at_every_number_of_slots(ring: Store):
    curve = room(ring, WINDOW, DAY).curve
    assert curve.select("slots", "misses", "first_uses").rows() == [(1, 600, 3), (2, 600, 3), (3, 3, 3)]
    assert curve["error_class"].unique().to_list() == ["exact"]


def test_the_present_slots_are_those_of_each_pod(ring: Store):
    assert slots_of(room(ring, WINDOW, DAY), POOL) == {"pod-0": 2}


def test_curves_of_pods_add_up_and_a_short_one_goes_on():
    head = {"cluster": "c", "pool": "p", "role": "", "method": "arrivals", "error_class": "exact", "provenance": "observed"}
    counts = [("x", 1, 10, 8), ("x", 2, 10, 2), ("y", 1, 5, 1)]
    told = [{**head, "pod": p, "slots": s, "requests": r, "misses": m, "first_uses": 1} for p, s, r, m in counts]
    assert pooled(pl.DataFrame(told)).select("slots", "requests", "misses").rows() == [(1, 15, 9), (2, 15, 3)]


def test_what_is_wanted_is_told_for_every_span(ring: Store):
    wanted = room(ring, WINDOW, DAY).wanted
    assert dict(wanted.select("span_seconds", "adapters").iter_rows())[5.0] == pytest.approx(3 * 600 / 3600, abs=0.01)


def test_an_empty_store_has_no_curves(tmp_path: Path):
    told = room(Store(tmp_path), WINDOW, DAY)
    assert (told.pods.height, told.curve.height, told.wanted.height) == (0, 0, 0)
    assert compared(Store(tmp_path), WINDOW, POOL, {}).levers == ()
    assert planned(Store(tmp_path), WINDOW, POOL, {}, Plan(), None) is None


def test_a_plan_of_one_more_slot_is_foretold(ring: Store):
    told = planned(ring, WINDOW, POOL, {"pod-0": 2}, Plan(slots=1), None)
    assert told is not None
    assert (told.base_loads, told.loads, told.effect) == (450, 0, 1.0)


def test_a_pool_costs_its_gpus_and_nothing_is_told_without_a_price():
    assert month_of(8, CostSettings()) is None
    assert month_of(8, CostSettings(gpu_hour_price=2.0, gpus_per_pod=4)) == 8 * 4 * 2 * 730


def test_levers_are_sorted_by_what_they_remove_where_nobody_waits():
    found = capacity_words.lever_rows(Levers((lever("a", 0.1, 0.0), lever("b", 0.5, 0.1)), 1, 0.1, None, "observed"))
    assert found["what"].to_list() == ["b", "a"]


def test_levers_are_sorted_by_the_wait_where_requests_wait_for_slots():
    told = Levers((lever("a", 0.5, 60.0, 20.0), lever("b", -0.4, 1.0, 20.0)), 1, 0.1, None, "observed")
    assert capacity_words.lever_rows(told)["what"].to_list() == ["b", "a"]
    assert "look at the wait first" in (capacity_words.crowded(told) or "")


def test_nothing_is_said_of_waiting_where_nobody_waits():
    assert capacity_words.crowded(Levers((lever("a", 0.5, 0.0),), 1, 0.1, None, "observed")) is None


def lever(what: str, effect: float, wait: float, base_wait: float = 0.0) -> Lever:
    return Lever("slots", 1, what, effect, effect, effect, 1, 2, "replay", (), wait, base_wait)


FUTURE = Foretold(1000, 100.0, 2, 2, 50, 100, 40, 90, 0.5, 3.0, 0, 0.5, 0.4, 0.6, "replay with random", "observed")


def test_a_plan_stands_beside_the_present():
    text = capacity_words.tiles(Plan(slots=2), FUTURE, (100.0, 200.0), "EUR", 1_000_000)
    for part in ("5.0 %", "now 10 %", "0.2", "now 0.45", "50 %", "40 % … 60 %", "200", "EUR", "now 100", "+2", "now 3 s"):
        assert part in text


def test_without_a_plan_only_the_present_is_told():
    text = capacity_words.tiles(Plan(), FUTURE, (None, None), "EUR", None)
    assert "now " not in text
    assert "EUR" not in text


def test_too_few_loads_are_said():
    assert "too few loads" in capacity_words.tiles(Plan(slots=1), replace(FUTURE, effect=None), (None, None), "", None)


def test_a_plan_is_told_in_words():
    assert (
        capacity_words.plan_of(Plan(1, 2, 1, "random", 3))
        == "+1 slot per pod, +2 pods, 1 pin, routing by random, 3 more adapters"
    )
    assert capacity_words.plan_of(Plan()) == "as it is now"


def test_the_method_says_what_is_rough():
    text = capacity_words.method(FUTURE, Plan(pins=3, router="random", variants=1), None)
    for part in ("Replay with random", "Only 0 pins", "half of the requests", "rough", "not in it"):
        assert part in text


def test_a_curve_marks_the_present_and_the_plan(ring: Store):
    drawn = capacity_figures.miss_ratio_curve(room(ring, WINDOW, DAY).curve, (2, 2), (3, 0.005))
    line, points, plan = drawn.data
    assert (list(line.x), list(points.text), list(plan.y)) == ([1, 2, 3], ["100.0%", "0.5%"], [0.005])


def test_pods_with_different_slots_are_a_band(ring: Store):
    (shape,) = capacity_figures.miss_ratio_curve(room(ring, WINDOW, DAY).curve, (1, 2)).layout.shapes
    assert (shape.x0, shape.x1) == (1, 2)


def test_the_working_set_has_a_line_at_the_slots(ring: Store):
    wanted = room(ring, WINDOW, DAY).wanted
    assert len(capacity_figures.working_set(wanted, 2).layout.shapes) == 1
    assert len(capacity_figures.working_set(wanted, None).layout.shapes) == 0


def test_scores_are_of_the_pods_as_they_stood(tmp_path: Path):
    at = END // SECOND - 60
    first = events(f"a:{at - 50}- b:{at - 40}-", start_at=at - 100, slots=2, pod="x")
    second = events(f"b:{at - 30}-", start_at=at - 100, slots=2, pod="y")
    asked = pl.concat(
        [
            requests(f"a:{at - 5}/{at - 5}/{at - 4}/{at + 5}", pod="x", stream="api/x"),
            requests(f"b:{at - 5}/{at + 2}/{at + 3}/{at + 5}", pod="y", stream="api/y"),
        ]
    )
    store = stored(tmp_path, events=pl.concat([first, second]), requests=asked)
    told = routed(store, POOL, {"x": 2, "y": 2}, "a", at * SECOND, DAY)
    x, y = told.pods.to_dicts()
    assert (x["resident"], x["in_flight"], x["running"], x["filled"], x["went"]) == (True, 1, 1, 2, 1)
    assert (y["resident"], y["queued"], y["waiting"], y["filled"], y["went"]) == (False, 0, 1, 1, 0)
    assert x["article"] == pytest.approx(0.5 + 0.15 + 0.15 * 255 / 256)
    assert y["article"] == pytest.approx(0.5 * 0.3 + 0.15 * 7 / 8 + 0.15)
    assert x["released"] == pytest.approx(4.0 + 2.0 + 2.0 * 255 / 256)
    assert y["released"] == pytest.approx(0.0 + 0.0 + 2.0)
    assert y["residency"] == pytest.approx(4.0 * 0.6 + 0.0 + 2.0)


def test_what_runs_is_in_a_slot_whether_an_event_says_so_or_not(tmp_path: Path):
    at = END // SECOND - 60
    store = stored(tmp_path, requests=requests(f"a:{at - 5}/{at - 5}/{at - 4}/{at + 5}"))
    (pod,) = routed(store, POOL, {"pod-0": 2}, "a", at * SECOND, DAY).pods.to_dicts()
    assert (pod["resident"], pod["in_flight"]) == (True, 1)


def test_a_pod_whose_queue_is_full_has_no_score_of_the_article(tmp_path: Path):
    at = END - MINUTE
    waiting = [
        {"at": at + 9 * SECOND, "adapter": "a", "pod": "x", "seq": n + 1, "stream": "api/x", "arrived": at - 1, "queued": at - 1}
        | {"scheduled": at + SECOND, "first_token": at + 2 * SECOND, "finished": at + 9 * SECOND}
        for n in range(8)
    ]
    told = routed(stored(tmp_path, requests=rows(REQUESTS, waiting)), POOL, {"x": 2, "y": 2}, "a", at, DAY)
    assert told.pods["article"].to_list()[0] is None
    assert told.pods["article"].to_list()[1] is not None


def test_a_pod_of_unknown_slots_is_counted_and_left_out(tmp_path: Path):
    at = END // SECOND - 60
    store = stored(tmp_path, requests=requests(f"a:{at - 5}/{at - 5}/{at - 4}/{at + 5}"))
    told = routed(store, POOL, {"other": 2}, "a", at * SECOND, DAY)
    assert (told.untold, told.pods["pod"].to_list()) == (1, ["other"])
    assert "1 pod of unknown slots" in capacity_words.stood(told)
