"""More slots, more pods, another router: what each removes, and what it says of itself."""

import pytest

from lora_watch.recommend.advice import Kind, Setup, Verdict
from lora_watch.recommend.pods import advise_pods
from lora_watch.recommend.present import Present, present
from lora_watch.recommend.routing import advise_routing
from lora_watch.recommend.slots import advise_slots, price
from lora_watch.recommend.trial import trial
from lora_watch.replay.routers import ARTICLE, LLM_D_RESIDENCY
from tests.histories import drawn, history

VLLM = Setup("chat", engine="vllm", slots=2, slot_bytes=65_536_000)
RING = ["a", "b", "c"] * 1000


def judged(one):
    return trial(one, present(one))


@pytest.fixture(scope="module")
def scattered():
    """Four adapters whose requests two pods of two slots take in turn."""
    return judged(history(drawn("abcd", 4000), pods=2))


def test_the_slot_that_is_missing_is_advised_and_no_more():
    (only,) = advise_slots(judged(history(RING)), VLLM)
    assert (only.verdict, only.amount, only.effect.swaps_removed) == (Verdict.ADVISED, 1, 1.0)


def test_slots_are_added_until_the_gain_ends():
    told = list(advise_slots(judged(history(drawn("abcdef", 4000))), VLLM))
    assert [one.amount for one in told] == [1, 2, 3, 4]
    assert told[-1].effect.swaps_removed == 1.0


def test_more_slots_never_remove_less_on_given_pods():
    shares = [one.effect.swaps_removed for one in advise_slots(judged(history(drawn("abcdef", 4000))), VLLM)]
    assert shares == sorted(shares)


def test_where_nothing_swaps_a_slot_proves_nothing():
    told = list(advise_slots(judged(history(["a", "b"] * 1000)), VLLM))
    assert {one.verdict for one in told} == {Verdict.UNPROVEN}


def test_slots_are_told_by_the_engines_own_flag():
    (only,) = advise_slots(judged(history(RING)), VLLM)
    assert (only.can, only.how) == (True, "--max-loras 3, with a rolling restart")


def test_an_unknown_engine_is_said_to_be_unknown():
    (only,) = advise_slots(judged(history(RING)), Setup("chat"))
    assert only.can is None
    assert "not known" in only.how


def test_the_price_of_slots_is_in_tokens_where_the_model_is_known():
    assert price(2, VLLM, 327_680) == "400 KV-cache tokens (131 MB) a pod at least, a rolling restart"


def test_the_price_of_slots_is_in_bytes_where_it_is_not():
    assert price(1, VLLM, None).startswith("66 MB of the KV cache")


def test_the_price_of_slots_is_unknown_where_no_load_told_bytes():
    assert "unknown" in price(1, Setup("chat"), 327_680)


def test_one_pod_gets_no_second_one():
    assert list(advise_pods(judged(history(RING)), VLLM)) == []


def test_a_pod_more_helps_a_router_that_knows_adapters_and_costs_its_gpus(scattered):
    advice = list(advise_pods(scattered, VLLM, gpu_hour_price=2.0, currency="EUR"))
    assert advice[0].kind is Kind.PODS
    assert advice[0].cost == "1 GPU, 1,460 EUR a month"


def test_a_second_pod_more_is_tried_only_where_the_first_is_advised(scattered):
    advice = list(advise_pods(scattered, VLLM))
    assert len(advice) == (2 if advice[0].verdict is Verdict.ADVISED else 1)


def test_affinity_cures_what_turns_do_to_two_pods(scattered):
    best = max(advise_routing(scattered, VLLM), key=lambda one: one.effect.swaps_removed)
    assert best.verdict is Verdict.ADVISED
    assert best.effect.low > 0.9


def test_a_scorer_that_is_only_proposed_cannot_be_had(scattered):
    proposed = [one for one in advise_routing(scattered, VLLM) if "proposed" in one.what]
    assert [one.can for one in proposed] == [False]


def test_whether_a_picker_is_there_to_be_told_is_unknown(scattered):
    released = [one for one in advise_routing(scattered, VLLM) if "proposed" not in one.what]
    assert [one.can for one in released] == [None]


def test_one_pod_needs_no_routing():
    assert list(advise_routing(judged(history(RING)), VLLM)) == []


def test_no_pod_has_more_slots_than_there_are_adapters():
    told = list(advise_slots(judged(history(["a"] * 500, slots=1)), VLLM))
    assert [one.amount for one in told] == [1]


def test_slots_that_hold_everybody_are_not_added_to():
    assert list(advise_slots(judged(history(["a"] * 500, slots=9)), VLLM)) == []


def test_a_scorer_that_routes_already_is_not_tried():
    one = history(drawn("abcd", 2000), pods=2)
    now = Present("llm-d's residency scorer", LLM_D_RESIDENCY, 0, 0)
    assert ["proposed" in advice.what for advice in advise_routing(trial(one, now), VLLM)] == [False]


def test_two_pods_more_are_the_most_that_is_tried():
    one = trial(history(drawn("abcdefghijkl", 4000), pods=2), Present("the article's affinity router", ARTICLE, 0, 0))
    advice = list(advise_pods(one, VLLM))
    assert [one.what for one in advice] == ["one more pod", "2 more pods"]
