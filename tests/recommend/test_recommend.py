"""The composition: everything that could be changed, judged, in one ranked list, and what it comes to in one line."""

from dataclasses import replace

import numpy as np
import pytest

from lora_watch.errors import NotEnoughHistory
from lora_watch.model import DAY, Window
from lora_watch.recommend.advice import Advice, Effect, Kind, Setup, Verdict
from lora_watch.recommend.means import means
from lora_watch.recommend.recommend import Prices, in_order, recommend
from lora_watch.recommend.sentence import GENTLE, chosen, removed, sentence
from tests.histories import drawn, history

VLLM = Setup("chat", engine="vllm", slots=2, slot_bytes=65_536_000)


def made(kind, low, amount=None, verdict=Verdict.ADVISED, can=True, what="do it"):
    effect = Effect(low, low, low, 50, 100)
    return Advice(kind, verdict, what, "", effect, None, None, "", "a restart", "", can, "", amount)


@pytest.fixture(scope="module")
def told():
    """Six adapters on two pods of two slots, whose requests come to them in turn."""
    one = history(drawn("abcdef", 6000), pods=2, days=16, pinned=((0, 5),), registered=(*"abcdef", "idle"))
    return recommend(one, VLLM, prices=Prices(token_bytes=327_680))


def test_every_lever_that_applies_is_in_the_list(told):
    kinds = {one.kind for one in told.advice}
    assert kinds >= {Kind.SLOTS, Kind.PODS, Kind.ROUTING, Kind.PINS, Kind.UNPIN, Kind.RETIRE}


def test_what_is_proven_stands_first(told):
    verdicts = [one.verdict for one in told.advice]
    assert verdicts == sorted(verdicts, key=[Verdict.ADVISED, Verdict.NOT_WORTH, Verdict.UNPROVEN, Verdict.HARMFUL].index)


def test_the_articles_rule_stands_beside_ours(told):
    assert told.article_rule is not None
    assert "article" in told.article_rule.what


def test_what_nothing_could_do_better_than_is_told(told):
    assert set(told.bounds) == {"pooled Belady", "Belady on the recorded pods", "hindsight-static pins"}


def test_pins_that_vllm_cannot_be_told_say_so(told):
    assert told.article_rule.can is False


def test_the_same_history_gives_the_same_advice(told):
    one = history(drawn("abcdef", 6000), pods=2, days=16, pinned=((0, 5),), registered=(*"abcdef", "idle"))
    assert recommend(one, VLLM, prices=Prices(token_bytes=327_680)) == told


def test_no_advice_pins_every_slot(told):
    for one in told.advice:
        for pod in {place.pod for place in one.places}:
            for hour in range(168):
                held = {place.adapter for place in one.places if place.pod == pod and (not place.hours or hour in place.hours)}
                assert one.kind not in {Kind.PINS, Kind.PRELOAD} or len(held) < 2


def test_a_pool_without_swaps_is_told_to_change_nothing():
    assert recommend(history(["a", "b"] * 2000), VLLM).sentence.startswith("Change nothing")


def test_a_slot_short_is_told_in_one_line():
    told = recommend(history(["a", "b", "c"] * 1500), VLLM, prices=Prices(token_bytes=327_680))
    assert told.sentence.startswith(
        "Add 1 slot per pod: −100 % swaps (96 … 100 %), for 200 KV-cache tokens (66 MB) a pod at least, a rolling restart."
    )


def test_loads_that_nobody_feels_are_said_to_be_not_urgent():
    one = history(["a", "b", "c"] * 1500)
    assert (
        "Nothing is urgent: loads take 0.1 % of pods' time"
        in recommend(replace(one, load_seconds=np.full(3, 0.2)), VLLM).sentence
    )
    assert "urgent" not in recommend(replace(one, load_seconds=np.full(3, 9.0)), VLLM).sentence
    assert "urgent" not in recommend(replace(one, load_seconds=np.full(3, np.nan)), VLLM).sentence


def test_next_to_no_time_is_told_without_a_zero():
    cheap = replace(history(["a", "b", "c"] * 1500), load_seconds=np.full(3, 0.001))
    assert "loads take less than 0.1 % of pods' time" in recommend(cheap, VLLM).sentence


def test_five_days_are_judged_and_pins_are_not():
    told = recommend(history(["a", "b", "c"] * 1500, days=5), VLLM)
    assert [one.verdict for one in told.advice if one.kind is Kind.PINS] == [Verdict.UNPROVEN]
    assert any("judged by 4.4 days" in gap for gap in told.gaps)
    assert told.advice[0].kind is Kind.SLOTS


def test_days_before_the_first_request_are_no_history():
    one = history(["a", "b", "c"] * 1500, days=5)
    early = replace(one, window=Window(one.window.start - 25 * DAY, one.window.end))
    told = recommend(early, VLLM)
    assert told.window == one.window
    assert [one.verdict for one in told.advice if one.kind is Kind.PINS] == [Verdict.UNPROVEN]


def test_no_request_is_not_enough():
    with pytest.raises(NotEnoughHistory):
        recommend(history([]), VLLM)


def test_only_base_model_requests_are_not_enough():
    with pytest.raises(NotEnoughHistory):
        recommend(history([""] * 1000), VLLM)


def test_what_is_worked_on_is_told_in_order():
    shares = []
    recommend(history(["a", "b", "c"] * 300), VLLM, told=lambda _what, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[0] == 0.0


def test_a_change_of_the_mix_in_the_last_week_is_said_and_judged_from():
    one = history(["a", "b", "c"] * 1500, days=16)
    told = recommend(replace(one, changes=(one.window.end - 3 * DAY,)), VLLM)
    assert told.advice[0].judged.start == one.window.end - 3 * DAY
    assert any("the mix of adapters changed" in gap for gap in told.gaps)


def test_a_history_of_one_adapter_swaps_nothing():
    assert recommend(history(["a"] * 1000, slots=1), VLLM).advice[0].verdict is not Verdict.ADVISED


def test_the_least_of_more_of_the_same_is_chosen_where_the_next_adds_little():
    slots = [made(Kind.SLOTS, 0.9, 3), made(Kind.SLOTS, 0.85, 2), made(Kind.SLOTS, 0.4, 1)]
    assert chosen(slots).amount == 2


def test_the_chosen_number_stands_before_the_others_of_its_kind():
    ranked = in_order([made(Kind.SLOTS, 0.9, 3), made(Kind.PODS, 0.88, 1), made(Kind.SLOTS, 0.85, 2)])
    assert [(one.kind, one.amount) for one in ranked] == [(Kind.SLOTS, 2), (Kind.SLOTS, 3), (Kind.PODS, 1)]


def test_of_what_comes_to_the_same_the_gentlest_is_chosen():
    cap, slots = made(Kind.CAP, 0.96, 0), made(Kind.SLOTS, 0.94, 1)
    assert chosen([cap, slots]) is slots
    assert in_order([cap, slots]) == (slots, cap)
    assert chosen([cap, made(Kind.SLOTS, 0.92, 1)]) is cap


def test_every_kind_of_change_has_its_place_among_the_gentle():
    assert sorted(GENTLE) == sorted(Kind)


def test_what_cannot_be_done_is_not_chosen():
    assert chosen([made(Kind.ROUTING, 0.9, can=False), made(Kind.SLOTS, 0.2, 1)]).kind is Kind.SLOTS


def test_nothing_proven_is_said():
    assert "nothing that was tried" in sentence([made(Kind.SLOTS, 0.01, 1, Verdict.NOT_WORTH)])


def test_pins_that_are_not_proven_are_told_not_to_be_made():
    pins = made(Kind.PINS, 0.0, 0, Verdict.NOT_WORTH, what="pin nothing")
    assert sentence([made(Kind.SLOTS, 0.5, 1, what="+1 slot per pod"), pins]).startswith("Pin nothing; add 1 slot per pod: −50 %")


def test_proven_pins_are_told_beside_what_is_better():
    told = sentence([made(Kind.SLOTS, 0.5, 1, what="+1 slot per pod"), made(Kind.PINS, 0.1, 3, what="pin 3 adapters", can=False)])
    assert told == (
        "Add 1 slot per pod: −50 % swaps (50 … 50 %), for a restart. To pin 3 adapters instead: −10 % swaps (10 … 10 %), "
        "which this engine can't be told."
    )


def test_proven_pins_that_are_best_are_the_sentence():
    assert sentence([made(Kind.PINS, 0.1, 3, what="pin 3 adapters")]).startswith("Pin 3 adapters: −10 % swaps")


def test_pins_that_do_harm_are_named_before_what_costs_something():
    pins = made(Kind.PINS, 0.0, 0, Verdict.NOT_WORTH, what="pin nothing")
    held = replace(made(Kind.UNPIN, 0.7, 8, what="unpin ghosts (8 on 4 pods)"), cost="nothing")
    assert sentence([made(Kind.SLOTS, 0.9, 1, what="+1 slot per pod"), held, pins]) == (
        "Unpin ghosts (8 on 4 pods): −70 % swaps (70 … 70 %), for nothing. "
        "Or add 1 slot per pod: −90 % swaps (90 … 90 %), for a restart."
    )


def test_replicas_are_told_as_they_are_to_be():
    assert means(Kind.PODS, VLLM, 10) == (True, "replicas of the deployment: 10")


def test_waiting_is_named_where_it_is_what_hurts():
    assert (
        removed(Effect(0.1, 0.0, 0.2, 9, 10, waits_removed=0.8, waits_low=0.7, waits_high=0.9))
        == "−80 % waiting for slots (70 … 90 %)"
    )


def test_what_is_unknown_is_said():
    assert removed(Effect(None, None, None, None, None)) == "swaps: unknown"


def test_an_engine_of_which_nothing_is_known_is_named():
    assert means(Kind.SLOTS, Setup("chat", engine="dynamo"), 3) == (None, "nothing is known of how dynamo is told")


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("engine", [None, "vllm", "sglang", "lorax"])
def test_every_change_has_its_means(kind, engine):
    _, how = means(kind, Setup("chat", engine=engine, slots=4), 5)
    assert how
    assert "{" not in how


def test_advice_is_unchanged_by_unknown_load_times_but_for_hours():
    one = history(["a", "b", "c"] * 1500)
    unknown = recommend(replace(one, load_seconds=np.full(3, np.nan)), VLLM)
    known = recommend(one, VLLM)
    assert [advice.verdict for advice in unknown.advice] == [advice.verdict for advice in known.advice]
    assert unknown.advice[0].effect.gpu_hours_saved is None
