"""Groups that stay together, tenants with pods of their own, and pins by the hour of the week."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.model import DAY, HOUR, SECOND
from lora_watch.recommend.advice import Setup, Verdict
from lora_watch.recommend.groups import Pair, advise_groups, chance, connected, pairs
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.schedule import BLOCK, BLOCKS, Path, advise_schedule, path, pin_changes
from lora_watch.recommend.split import advise_split, shared_out
from lora_watch.recommend.trial import trial
from lora_watch.replay.routers import RANDOM
from lora_watch.replay.trace import Trace
from tests.histories import MONDAY, drawn, history

SGLANG = Setup("chat", engine="sglang")


def judged(one, now=None):
    return trial(one, present(one) if now is None else now)


def pipeline(steps: int = 600, gap: int = 120 * SECOND):
    """One in four runs asks for draft and 2 s later for check; the others for anybody."""
    random = np.random.default_rng(3)
    asked, at = [], []
    for n in range(steps):
        moment = MONDAY + n * gap + int(random.integers(0, gap // 2))
        if n % 4 == 0:
            asked += ["draft", "check"]
            at += [moment, moment + 2 * SECOND]
        else:
            asked.append(f"other-{random.integers(0, 6)}")
            at.append(moment)
    return history(asked, at=at, pods=2, days=steps * gap / DAY)


def test_the_steps_of_a_pipeline_are_found_and_nobody_else():
    one = pipeline()
    assert [(one.names[found.first], one.names[found.second]) for found in pairs(one)] == [("draft", "check")]


def test_independent_requests_make_no_group():
    assert pairs(history(drawn("abcdef", 3000))) == []


def test_a_group_has_a_home_and_its_effect_is_a_replay():
    (only,) = advise_groups(judged(pipeline(), Present("random", RANDOM, 0, 0)), SGLANG)
    assert only.adapters == ("check", "draft")
    assert len({place.pod for place in only.places}) == 1
    assert only.effect.swaps_removed is not None


def test_one_pod_keeps_everybody_together_already():
    one = history(["a", "b"] * 1000)
    assert list(advise_groups(judged(one), SGLANG)) == []


@given(st.integers(1, 60), st.floats(0.05, 40))
def test_chance_is_that_of_a_poisson_variable(count, mean):
    below, term = 0.0, np.exp(-mean)
    for k in range(count):
        below += term
        term *= mean / (k + 1)
    assert chance(count, mean) == pytest.approx(1 - below, abs=1e-9)


def test_what_no_chance_brings_is_none():
    assert (chance(3, 0.0), chance(0, 0.0)) == (0.0, 1.0)


def test_pairs_that_share_an_adapter_are_one_group():
    assert connected([Pair(0, 1, 9, 1.0, 0.9), Pair(2, 1, 9, 1.0, 0.9), Pair(4, 5, 9, 1.0, 0.9)]) == [(0, 1, 2), (4, 5)]


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 8))
def test_every_tenant_and_every_pod_is_in_one_part(work, pods):
    parts = shared_out(work, pods)
    assert sorted(name for members, _ in parts for name in members) == sorted(work)
    assert sorted(pod for _, mine in parts for pod in mine) == list(range(pods))
    assert all(members and mine for members, mine in parts)


def test_tenants_on_their_own_pods_end_what_they_did_to_each_other():
    asked = [f"{'acme' if n % 2 else 'beta'}-{name}" for n, name in enumerate(drawn("xy", 4000))]
    one = history(asked, pod=np.random.default_rng(1).integers(0, 2, 4000), pods=2)
    (only,) = advise_split(judged(one, Present("random", RANDOM, 0, 0)), SGLANG)
    assert (only.verdict, only.effect.swaps_removed) == (Verdict.ADVISED, 1.0)
    assert len(only.places) == 4


@pytest.mark.parametrize("asked", [["a", "b"] * 1000, ["acme-x", "acme-y"] * 1000])
def test_names_that_tell_of_no_tenants_split_nothing(asked):
    one = history(asked, pods=2)
    assert list(advise_split(judged(one, Present("random", RANDOM, 0, 0)), SGLANG)) == []


@given(
    st.lists(st.lists(st.integers(-6, 6), min_size=2, max_size=2), min_size=2, max_size=5),
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
)
def test_a_path_is_the_best_of_all(reward, cost):
    table, price = np.array(reward, dtype=np.float64), np.array(cost, dtype=np.float64)

    def worth(walk):
        return sum(
            (0 if a < 0 else table[at, a]) - (price[a] if a >= 0 and a != walk[at - 1] else 0) for at, a in enumerate(walk)
        )

    walk, gain = path(table, price)
    assert gain == worth(walk)
    assert gain == max(worth(other) for other in product((-1, 0, 1), repeat=len(reward)))


def weekly(days: int = 28):
    """One adapter has half of the requests by day and another by night; the rest goes to twelve that are rarely asked for."""
    random = np.random.default_rng(5)
    at = np.sort(random.integers(0, days * DAY, 4_000 * days)) + MONDAY
    by_day = at % DAY // (12 * HOUR) == 0
    hot = random.random(len(at)) < 0.5
    common = np.where(by_day, "day", "night")
    rare = random.choice([f"rare-{n}" for n in range(12)], len(at))
    return history(np.where(hot, common, rare).tolist(), at=at, days=days, slots=3)


def test_who_is_wanted_by_day_is_pinned_by_day_and_that_is_learned_before_it_is_judged():
    (only,) = advise_schedule(judged(weekly()), SGLANG)
    assert (only.verdict, only.can) == (Verdict.ADVISED, True)
    assert only.learned.end == only.judged.start
    hours = {place.adapter: {hour % 24 for hour in place.hours} for place in only.places}
    assert hours == {"day": set(range(12)), "night": set(range(12, 24))}


def test_how_much_of_a_schedule_is_pinned_is_chosen_in_another_week_than_the_one_that_promises():
    (only,) = advise_schedule(judged(weekly(22)), SGLANG)
    assert "best in the week before the judged one" in only.why


def test_a_schedule_chosen_by_the_week_that_promises_says_so():
    (only,) = advise_schedule(judged(weekly(20)), SGLANG)
    assert "best in the same week, of 3 that were tried" in only.why


def test_a_schedule_is_not_chosen_by_a_week_before_the_mix_changed():
    one = judged(weekly(28))
    (only,) = advise_schedule(one, SGLANG, since=one.judged.start - 10 * DAY)
    assert "in the same week" in only.why


def test_a_week_is_too_short_to_learn_a_schedule_from():
    assert list(advise_schedule(judged(history(["a", "b", "c"] * 1000, days=13)), SGLANG)) == []


def test_who_goes_makes_room_before_another_comes():
    day = [0] * 3 + [1] * 3
    one = Path(0, tuple(day * 7), 1.0)
    changes = pin_changes([one], history(["a"], days=7).window)
    assert [(change.adapter, change.pinned) for change in changes[:3]] == [(0, True), (0, False), (1, True)]
    assert changes[1].at == changes[2].at == MONDAY + 3 * BLOCK


def test_a_path_that_stays_is_pinned_once():
    changes = pin_changes([Path(0, (4,) * BLOCKS, 1.0)], history(["a"], days=21).window)
    assert [(change.at, change.adapter) for change in changes] == [(MONDAY, 4)]


def test_pairs_bear_the_codes_of_the_history_however_busy_they_are():
    one = pipeline()
    rarely = replace(one, trace=Trace(one.trace.adapter + 3, adapters=one.trace.adapters + 3, at=one.trace.at))
    assert [(found.first - 3, found.second - 3) for found in pairs(rarely)] == [
        (found.first, found.second) for found in pairs(one)
    ]


def test_one_request_follows_nobody():
    assert pairs(history(["a", ""])) == []


def test_a_pool_that_nothing_is_wanted_of_by_the_hour_has_no_schedule():
    assert list(advise_schedule(judged(history(["a", "b"] * 2000, days=28)), SGLANG)) == []


def test_a_schedule_goes_beside_the_pins_there_are():
    one = weekly()
    pinned = replace(one, pinned=((0, one.names.index("rare-0")),))
    for advice in advise_schedule(judged(pinned), SGLANG):
        assert advice.amount == 1


def test_with_one_slot_nothing_can_be_pinned():
    assert list(advise_schedule(judged(replace(weekly(), slots=(1,))), SGLANG)) == []


def test_a_schedule_behind_a_router_is_learned_where_the_router_sends():
    one = weekly()
    spread = replace(
        one, trace=Trace(one.trace.adapter, adapters=one.trace.adapters, pods=2, at=one.trace.at), pods=("x", "y"), slots=(3, 3)
    )
    found = list(advise_schedule(judged(spread, Present("random", RANDOM, 0, 0)), SGLANG))
    assert all(place.pod in {"x", "y"} for advice in found for place in advice.places)
