from typing import Any

import polars as pl
import pytest
from builders import events
from scenes import QUIET, quiet, scene

from lora_watch.derive.sides import one_sided, swapping_sides
from lora_watch.derive.stays import stays
from lora_watch.derive.swaps import swaps
from lora_watch.model import SECOND, Window

HUNDRED = Window(0, 100 * SECOND)
BY_POD = ("cluster", "pool", "role", "pod")


def side(role: str, text: str, pod: str = "0", **common: Any) -> pl.DataFrame:
    return events(text, role=role, pod=f"{role}-{pod}", **common)


def held(*parts: pl.DataFrame) -> list[dict[str, Any]]:
    return one_sided(stays(pl.concat(parts).lazy()), HUNDRED).collect().to_dicts()


def rates(*parts: pl.DataFrame) -> list[dict[str, Any]]:
    return swapping_sides(swaps(pl.concat(parts).lazy(), HUNDRED, BY_POD), HUNDRED).collect().to_dicts()


def churn(count: int) -> str:
    return " ".join(f"{'abcdef'[n % 6]}:{n}-{n + 1}" for n in range(count))


def test_an_adapter_that_one_side_holds_and_the_other_does_not_is_flagged():
    row_a, row_b = held(side("prefill", "a:0- b:0-"), side("decode", "a:0- b:0-30"))
    assert (row_a["adapter"], row_a["missing_on"], row_a["flagged"]) == ("a", None, False)
    assert (row_b["adapter"], row_b["missing_on"], row_b["flagged"]) == ("b", "decode", True)
    assert (row_b["prefill_share"], row_b["decode_share"]) == (1.0, 0.3)
    assert (row_b["pods"], row_b["prefill_pods"], row_b["decode_pods"]) == (["decode-0", "prefill-0"], 1, 1)


def test_it_may_be_the_prefill_side_and_the_other_may_not_have_it_at_all():
    (row, _) = held(side("decode", "a:0-"), side("prefill", "b:0-"))
    assert (row["adapter"], row["missing_on"], row["prefill_share"], row["prefill_pods"]) == ("a", "prefill", 0.0, 0)


def test_pods_that_hold_it_in_turn_hold_it_together():
    rows = held(side("prefill", "a:0-"), side("decode", "a:0-60", "0"), side("decode", "a:40-", "1"))
    assert (rows[0]["decode_share"], rows[0]["decode_pods"], rows[0]["flagged"]) == (1.0, 2, False)


def test_what_no_side_holds_for_long_is_rarely_used():
    assert not any(row["flagged"] for row in held(side("prefill", "a:0-40"), side("decode", "z:0-")) if row["adapter"] == "a")


def test_one_side_alone_and_other_roles_have_no_row():
    assert held(side("prefill", "a:0-")) == []
    assert held(side("", "a:0-"), side("both", "a:0-")) == []


def test_a_pool_with_both_roles_is_compared_within_itself():
    rows = held(*(side(role, "a:0-", pool, pool=pool) for role in ("prefill", "decode") for pool in ("p", "q")))
    assert [row["pool"] for row in rows] == ["p", "q"]
    assert [row["pool"] for row in held(side("prefill", "a:0-", pool="x"), side("decode", "a:0-", pool="y"))] == [""]


def test_a_side_that_swaps_while_the_other_does_not_is_flagged_with_its_pods():
    (row,) = rates(side("prefill", "a:0-"), side("decode", churn(50)), side("decode", "a:0-", "1"))
    assert (row["swapping_side"], row["flagged"], row["pods"]) == ("decode", True, ["decode-0", "decode-1"])
    assert (row["prefill_swaps_per_second_per_pod"], row["decode_swaps_per_second_per_pod"]) == (0.0, 0.25)
    assert (row["prefill_pods"], row["decode_pods"]) == (1, 2)


def test_it_may_be_the_prefill_side_that_swaps():
    (row,) = rates(side("decode", "a:0-"), side("prefill", churn(50)))
    assert (row["swapping_side"], row["pods"]) == ("prefill", ["prefill-0"])


def test_sides_that_both_swap_or_hardly_do_are_not_flagged():
    (row,) = rates(side("prefill", churn(40)), side("decode", churn(50)))
    assert (row["swapping_side"], row["flagged"], row["pods"]) == (None, False, [])
    assert not rates(side("prefill", "a:0-"), side("decode", "z:0-"))[0]["flagged"]


def test_a_side_without_a_known_pod_makes_no_row():
    assert rates(side("prefill", churn(40))) == []


def test_the_simulated_decode_side_swaps_and_lacks_adapters():
    played = scene("prefill-decode-mismatch", 0.0, 0.5)
    window = played.hours(0.1, 0.5)
    (row,) = swapping_sides(swaps(played.events_of(window), window, BY_POD), window).collect().to_dicts()
    assert (row["swapping_side"], row["flagged"]) == ("decode", True)
    assert row["pods"] == [f"decode-{n}" for n in range(4)]
    lacking = one_sided(stays(played.events), window).collect().filter("flagged")
    assert lacking["missing_on"].unique().to_list() == ["decode"]


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_sides(name: str):
    played, window = quiet(name)
    assert one_sided(stays(played.events), window).collect().height == 0
    assert swapping_sides(swaps(played.events_of(window), window, BY_POD), window).collect().height == 0
