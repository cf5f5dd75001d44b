"""Ghosts, unused names, versions, experiments: what changing them would save, and when nothing is said."""

import numpy as np
import pytest

from lora_watch.model import DAY, HOUR
from lora_watch.recommend.advice import Setup, Verdict
from lora_watch.recommend.cap import advise_cap
from lora_watch.recommend.merge import advise_merge, small_variants
from lora_watch.recommend.present import present
from lora_watch.recommend.retire import advise_retire
from lora_watch.recommend.trial import trial
from lora_watch.recommend.unpin import advise_unpin
from tests.histories import drawn, history

VLLM = Setup("chat", engine="vllm", slots=3)
SGLANG = Setup("chat", engine="sglang", slots=3)


def judged(one):
    return trial(one, present(one))


def named(letters, count=3000, **words):
    """Requests for the letters, some of which have longer names."""
    return [words.get(letter, letter) for letter in drawn(letters, count)]


def test_a_ghost_holds_a_slot_that_a_ring_is_short_of():
    asked = ["ghost", *["a", "b", "c"] * 1000]
    (only,) = advise_unpin(judged(history(asked, slots=3, pinned=((0, 3),))), SGLANG)
    assert (only.verdict, only.adapters, only.effect.swaps_removed, only.can) == (Verdict.ADVISED, ("ghost",), 1.0, True)


def test_vllm_unpins_by_a_restart_only():
    asked = ["ghost", *["a", "b", "c"] * 1000]
    (only,) = advise_unpin(judged(history(asked, slots=3, pinned=((0, 3),))), VLLM)
    assert only.can is True
    assert "no call for it over HTTP" in only.how
    assert "restart" in only.how


def test_nobody_is_a_ghost_of_two_days():
    asked = ["ghost", *["a", "b", "c"] * 1000]
    (only,) = advise_unpin(judged(history(asked, days=2, slots=3, pinned=((0, 3),))), VLLM)
    assert only.what == "unpin all pins (1 on 1 pod)"


def test_pins_that_are_asked_for_are_judged_together():
    (only,) = advise_unpin(judged(history(["a", "b", "c"] * 1000, pinned=((0, 0),))), VLLM)
    assert only.what.startswith("unpin all pins")


def test_without_pins_nothing_is_unpinned():
    assert list(advise_unpin(judged(history(["a", "b", "c"] * 1000)), VLLM)) == []


def test_a_registered_name_that_nobody_asks_for_is_to_go_and_no_replay_proves_it():
    one = history(["a", "b"] * 1000, registered=("a", "b", "old"))
    (only,) = advise_retire(judged(one), VLLM)
    assert (only.adapters, only.verdict, only.effect.swaps_removed) == (("old",), Verdict.UNPROVEN, None)


@pytest.mark.parametrize("known", [{"registered": None}, {"registered": ("a", "b")}, {"registered": ("old",), "days": 2}])
def test_names_that_are_used_unknown_or_only_rare_stay(known):
    assert list(advise_retire(judged(history(["a", "b"] * 1000, **known)), VLLM)) == []


def test_a_version_with_a_tenth_of_the_requests_goes_where_its_sibling_is():
    asked = named("ab" * 20 + "c", c="a-v2")
    one = history(asked, slots=2)
    assert [(one.names[small], one.names[large]) for small, large in small_variants(one)] == [("a-v2", "a")]
    (only,) = advise_merge(judged(one), VLLM)
    assert (only.verdict, only.effect.swaps_removed) == (Verdict.ADVISED, 1.0)


def test_a_version_that_is_asked_for_as_much_stays():
    assert list(advise_merge(judged(history(named("abc", c="a-v2"))), VLLM)) == []


def test_an_old_adapter_goes_into_the_version_that_followed_it():
    one = history(named("ab" * 20 + "c", a="x-v2", c="x"))
    assert [(one.names[small], one.names[large]) for small, large in small_variants(one)] == [("x", "x-v2")]


def test_experiments_are_judged_with_and_without():
    asked = named("abcd", c="a-experiment", d="b-experiment")
    one = history(asked, experiment=np.array([False, True, False, True]))
    by_what = {advice.what: advice for advice in advise_cap(judged(one), VLLM)}
    assert by_what["end all 2 experiments"].effect.swaps_removed == 1.0
    assert by_what["at most 1 of 2 experiments at a time"].effect.swaps_removed < 1.0


def test_experiments_of_no_known_parent_cannot_go_back():
    one = history(drawn("abcd", 3000), experiment=np.array([False, False, True, True]))
    assert list(advise_cap(judged(one), VLLM)) == []


def test_experiments_that_began_yesterday_are_judged_from_then():
    days, half = 10, 5000
    asked = [*(["a", "b"] * half), *named("abcd", 1000, c="a-experiment", d="b-experiment")]
    start = history(["a"]).window.start
    at = [start + n * (9 * DAY) // (2 * half) for n in range(2 * half)] + [start + 9 * DAY + n * DAY // 1000 for n in range(1000)]
    one = history(asked, days=days, at=at, experiment=np.array([False, True, False, True]))
    (ended, *_) = advise_cap(judged(one), VLLM)
    assert ended.judged.end - ended.judged.start < DAY + HOUR
    assert ended.verdict is Verdict.ADVISED


def test_without_experiments_none_is_capped():
    assert list(advise_cap(judged(history(drawn("abcd", 3000))), VLLM)) == []


def test_experiments_on_few_pods_are_tried_where_a_router_places_the_rest():
    asked = named("abcdefgh", 4000, g="a-experiment", h="b-experiment")
    one = history(asked, pods=4, experiment=np.array([False, True, False, True, False, False, False, False]))
    assert "all 2 experiments on 1 of 4 pods" in {advice.what for advice in advise_cap(judged(one), VLLM)}


def test_an_experiment_is_no_version():
    assert small_variants(history(named("ab" * 20 + "c", c="a-experiment"))) == []
