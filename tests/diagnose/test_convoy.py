"""Pods that stand still together."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.convoy import convoy

ROW = {
    "adapters": [],
    "pods": ["pod-0", "pod-1"],
    "many_pods": 3,
    "pool_pods": 8,
    "most_pods_at_once": 6,
    "many_loading_seconds": 12.0,
    "expected_seconds": 1.5,
    "ratio": 8.0,
    "swap_share": 0.2,
}


def told(*rows):
    return list(convoy(found("convoys", *rows), WINDOW))


def test_a_convoy_says_how_many_pods_load_at_once_and_how_unlikely_that_is():
    (one,) = told(ROW)
    assert one.summary.startswith("Convoy: up to 6 pods of 8 load at the same time, 8.0 times the time expected")


def test_convoys_of_a_pool_are_one_finding():
    (one,) = told(ROW, {**ROW, "ratio": 9.0})
    assert [it.value for it in one.evidence if it.name == "convoys"] == [2.0]


def test_convoys_of_two_pools_are_two_findings():
    assert {one.pool for one in told(ROW, {**ROW, "pool": "q"})} == {"p", "q"}


def test_a_convoy_where_chance_gives_none_needs_no_ratio():
    (one,) = told({**ROW, "ratio": None, "expected_seconds": 0.0})
    assert "None" not in text(one)
    assert "which independent pods never would" in one.summary


def test_pods_that_are_busy_apart_are_no_convoy():
    assert told({**ROW, "flagged": False}) == []


def test_more_gpus_are_not_advised():
    (one,) = told(ROW)
    assert not {"pods", "slots"} & {it.lever for it in one.remedies}
    assert "GPU utilisation" in one.avoid[0]
