"""What rules read of a pool: numbers that are unknown are None, never zero."""

import pytest
from diagnose.told import WINDOW, adapters, facts, lever, minutes, pods

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.usual_misses import MissLimit
from lora_watch.diagnose.facts import RECENT, REPLAYED
from lora_watch.model import MINUTE, Window
from lora_watch.recommend.levers import Levers

QUIET, BUSY = {"requests": 100, "loads": 3, "swaps": 2}, {"requests": 100, "loads": 40, "swaps": 30, "stall_seconds": 6.0}


def test_the_onset_is_when_swaps_per_request_passed_the_limit():
    assert facts(lines=minutes((40, QUIET), (20, BUSY))).onset == WINDOW.end - 20 * MINUTE


def test_swaps_that_are_over_have_no_onset():
    assert facts(lines=minutes((20, QUIET), (20, BUSY), (20, QUIET))).onset is None


def test_rates_are_those_of_the_last_ten_minutes():
    told = facts(lines=minutes((50, QUIET), (10, BUSY)), told=pods({}, {"pod": "pod-1"}))
    assert told.loads_per_request == pytest.approx(0.4)
    assert told.swaps_per_request == pytest.approx(0.3)
    assert told.swaps_per_second == pytest.approx(300 / 2 / 600)
    assert told.stall_share == pytest.approx(60 / 2 / 600)


def test_below_ten_requests_there_is_no_ratio():
    assert facts(lines=minutes((9, {"requests": 1, "loads": 1}))).loads_per_request is None


def test_where_no_pod_tells_its_loads_none_is_not_zero():
    told = facts(told=pods({"loads": None}), lines=minutes((60, {"requests": 100})))
    unknown = (told.loads_per_request, told.swaps_per_request, told.stall_share, told.swaps_per_second)
    assert unknown == (None, None, None, None)
    assert told.before(WINDOW.end, "loads", "requests") is None
    assert told.recent("requests") == 1000


def test_loads_without_a_length_have_no_share_of_the_time():
    assert facts(lines=minutes((60, {**BUSY, "stall_seconds": 0.0}))).stall_share is None
    assert facts(lines=minutes((60, {"requests": 100}))).stall_share == 0


def test_a_pool_that_nothing_was_heard_of_has_no_rates():
    told = facts(lines=minutes())
    assert (told.recent("loads"), told.loads_per_request, told.stall_share, told.onset) == (None, None, None, None)


def test_what_was_before_a_moment_needs_ten_minutes_of_it():
    told = facts(lines=minutes((40, QUIET), (20, BUSY)))
    assert told.before(WINDOW.end - 20 * MINUTE, "loads", "requests") == pytest.approx(0.03)
    assert told.before(WINDOW.end - 51 * MINUTE, "loads", "requests") is None


def test_the_minute_of_a_moment_is_not_before_it():
    told = facts(lines=minutes((40, QUIET), (20, BUSY)))
    assert told.before(WINDOW.end - 20 * MINUTE + 1, "loads", "requests") == pytest.approx(0.03)


def test_newcomers_come_with_their_share_the_most_asked_for_first():
    known = (
        adapters("old", requests=50)
        .vstack(adapters("x", requests=20, first_seen=WINDOW.start))
        .vstack(adapters("y", requests=30, first_seen=WINDOW.start))
    )
    assert facts(known=known).newcomers(WINDOW.start) == (("y", "x"), 0.5)


def test_while_a_pool_is_learned_nobody_is_new():
    assert facts(known=adapters("x", first_seen=WINDOW.start), learning=True).newcomers(WINDOW.start) == ((), 0.0)


def test_newcomers_without_recent_requests_have_no_share():
    known = adapters("x", requests=0, first_seen=WINDOW.start)
    assert facts(known=known).newcomers(WINDOW.start) == (("x",), 0.0)


def test_slots_are_those_of_all_pods_and_of_the_pod_with_fewest():
    told = facts(told=pods({"slots": 4}, {"pod": "pod-1", "slots": 8}))
    assert (told.slots, told.slots_per_pod, told.names) == (12, 4, ("pod-0", "pod-1"))
    assert told.slots_said == "12 slots"


def test_a_part_of_the_slots_is_at_least_so_many_and_never_the_whole():
    told = facts(told=pods({"slots": 4}, {"pod": "pod-1", "slots": None}))
    assert (told.slots, told.slots_per_pod) == (None, 4)
    assert told.slots_said == "at least 4 slots (those of 1 pod are unknown)"
    nobody = facts(told=pods({"slots": None}))
    assert (nobody.slots, nobody.slots_said) == (None, "an unknown number of slots")


def test_the_limit_of_the_misses_says_where_it_comes_from():
    fixed = facts()
    assert fixed.miss_limit.enter == 0.2
    assert fixed.miss_limit_said == (
        "20 %, the same for all pools: no history of this pool's misses is held, 7 days would teach its own"
    )
    few = facts(usual=MissLimit(Limits(0.2, 0.14), 2.5, learned=False))
    assert "2.5 days of this pool's misses are held" in few.miss_limit_said
    own = facts(usual=MissLimit(Limits(0.31, 0.2), 8.0, learned=True))
    assert (own.miss_limit.enter, own.miss_limit_said) == (0.31, "31 %, learned from 8 days of this pool")


def test_the_method_of_a_prediction_is_told_with_how_far_it_can_be_off():
    assert facts(warning={"method": "che", "error_class": "within 0.01"}).method == "che: within 0.01"
    assert facts().method == ""


def test_levers_are_replayed_once_over_the_time_since_the_onset():
    asked: list[Window] = []

    def replay(part: Window) -> Levers:
        asked.append(part)
        return Levers((lever("slots", 1, 0.3),), 1, None, None, None)

    told = facts(lines=minutes((40, QUIET), (20, BUSY)))
    object.__setattr__(told, "replay", replay)
    assert (told.removed("slots", 1), told.removed("slots", 2), told.removed("pods", 1)) == (0.3, None, None)
    assert asked == [Window(WINDOW.end - 20 * MINUTE, WINDOW.end)]
    assert asked[0].end - asked[0].start <= REPLAYED


def test_without_an_onset_levers_are_those_of_the_last_ten_minutes():
    asked: list[Window] = []
    told = facts()
    object.__setattr__(told, "replay", lambda part: asked.append(part) or Levers((), 0, None, None, None))
    assert told.removed("slots", 1) is None
    assert asked == [Window(WINDOW.end - RECENT, WINDOW.end)]


def test_a_signal_is_an_alarm_only_while_it_is_on():
    told = facts(alarms=["newmass"], warning={"rho_now": None, "rho_peak": 2, "provenance": "activity"})
    assert (told.alarm("newmass"), told.alarm("rho_peak")) == (WINDOW.end - 5 * MINUTE, None)
    assert (told.warned("rho_now"), told.warned("rho_peak"), told.warned("other")) == (None, 2.0, None)
    assert told.provenance == "activity"


def test_a_pool_nobody_tells_of_is_inferred_at_best():
    assert facts(lines=minutes()).provenance == "inferred"
