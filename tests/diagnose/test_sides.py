"""Prefill and decode pods that do not match."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.finding import Severity
from lora_watch.diagnose.sides import one_side, swapping_side

RATES = {"prefill_swaps_per_second_per_pod": 0.001, "decode_swaps_per_second_per_pod": 0.4, "swapping_side": "decode"}


def test_the_side_that_swaps_is_named_beside_the_one_that_does_not():
    (one,) = swapping_side(found("swapping_sides", RATES), WINDOW)
    assert one.summary == "Decode pods swap and prefill pods do not: 0.4 against 0.001 swaps per second and pod"


def test_rates_of_both_sides_are_evidence_and_never_averaged():
    (one,) = swapping_side(found("swapping_sides", RATES), WINDOW)
    assert [it.value for it in one.evidence] == [0.001, 0.4]


def test_the_well_side_is_left_alone():
    (one,) = swapping_side(found("swapping_sides", RATES), WINDOW)
    assert one.avoid == ("Changing the prefill pods: they are well.",)


def test_sides_that_swap_alike_are_no_mismatch():
    assert list(swapping_side(found("swapping_sides", {**RATES, "flagged": False}), WINDOW)) == []


def test_adapters_on_one_side_only_are_named_with_the_side_that_lacks_them():
    rows = [{"adapters": [name], "adapter": name, "missing_on": "decode"} for name in ("a", "b")]
    (one,) = one_side(found("one_sided", *rows), WINDOW)
    assert one.summary == "a and b are resident on one side only: missing on decode pods"
    assert one.severity is Severity.INFORMATION


def test_each_side_that_lacks_some_has_a_finding():
    rows = [{"adapters": [name], "adapter": name, "missing_on": side} for name, side in (("a", "decode"), ("b", "prefill"))]
    assert {one.scope for one in one_side(found("one_sided", *rows), WINDOW)} == {"missing on decode", "missing on prefill"}
