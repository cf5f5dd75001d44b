from typing import Any

import polars as pl
import pytest
from builders import events, requests
from hypothesis import given
from hypothesis import strategies as st
from scenes import QUIET, quiet, scene
from strategies import QUICK

from lora_watch.derive.imbalance import imbalance
from lora_watch.model import SECOND, Window
from lora_watch.schema import REQUESTS

MINUTES = Window(0, 600 * SECOND)


def served(*counts: int, wait: float = 0.0, busiest_wait: float | None = None) -> pl.LazyFrame:
    """So many requests on pod-0, pod-1, …; those of the first wait ``busiest_wait``."""
    frames = []
    for pod, count in enumerate(counts):
        waited = busiest_wait if busiest_wait is not None and pod == 0 else wait
        text = " ".join(f"a{n % 2}:{100 - waited}/100/101/102" for n in range(count))
        if text:
            frames.append(requests(text, pod=f"pod-{pod}"))
    return pl.concat(frames).lazy()


def told(asked: pl.LazyFrame, **more: Any) -> dict[str, Any]:
    (row,) = imbalance(asked, MINUTES, **more).collect().filter(pl.col("what") == "requests").to_dicts()
    return row


def test_one_pod_with_most_requests_is_flagged_and_named_with_its_adapters():
    row = told(served(140, 20, 20, 20))
    assert (row["pods"], row["adapters"], row["flagged"]) == (["pod-0"], ["a0", "a1"], True)
    assert (row["total"], row["mean_per_pod"], row["max_per_pod"], row["min_per_pod"]) == (200, 50.0, 140, 20)
    assert (row["max_to_mean_ratio"], row["max_share"], row["sigmas"]) == (2.8, 0.7, pytest.approx(90 / 50**0.5))
    assert row["gini_ratio"] == pytest.approx((-3 * 20 - 20 + 20 + 3 * 140) / (4 * 200))


def test_equal_pods_are_not():
    row = told(served(50, 50, 50, 50))
    assert (row["pods"], row["flagged"], row["gini_ratio"], row["max_to_mean_ratio"]) == ([], False, 0.0, 1.0)


def test_what_affinity_does_is_not_flagged_unless_it_makes_users_wait():
    assert not told(served(90, 30, 30, 30))["flagged"]
    row = told(served(90, 30, 30, 30, busiest_wait=5.0))
    assert (row["flagged"], row["busiest_wait_p95_seconds"], row["others_wait_p95_seconds"]) == (True, 5.0, 0.0)
    assert not told(served(90, 30, 30, 30, wait=4.0, busiest_wait=5.0))["flagged"]


def test_few_requests_say_nothing():
    assert not told(served(14, 2, 2, 2))["flagged"]


def test_a_pod_that_was_up_and_got_nothing_counts_as_none():
    pods = pl.LazyFrame({"cluster": ["c"], "pool": ["p"], "role": [""], "pod": ["pod-9"]})
    row = told(served(50, 50), pods=pods)
    assert (row["pool_pods"], row["min_per_pod"]) == (3, 0)
    assert told(served(50, 50))["pool_pods"] == 2


def test_loads_have_a_row_that_is_never_flagged():
    loads = pl.concat([events("a:1- b:2- c:3-", pod="pod-0"), events("a:1-", pod="pod-1")]).lazy()
    frame = imbalance(served(50, 50), MINUTES, events=loads).collect()
    (row,) = frame.filter(pl.col("what") == "loads").to_dicts()
    assert (row["max_per_pod"], row["min_per_pod"], row["adapters"], row["flagged"]) == (3, 1, ["a", "b", "c"], False)
    assert row["busiest_wait_p95_seconds"] is None


def test_a_single_pod_and_an_empty_window_have_no_row():
    assert imbalance(served(50), MINUTES).collect().height == 0
    assert imbalance(REQUESTS.empty().lazy(), MINUTES).collect().height == 0


def test_base_model_requests_count_and_name_no_adapter():
    base = served(140, 20, 20, 20).with_columns(adapter=pl.lit(None, dtype=pl.String))
    assert (told(base)["adapters"], told(base)["flagged"]) == ([], True)


@QUICK
@given(st.lists(st.integers(0, 12), min_size=2, max_size=6).filter(any))
def test_gini_is_half_the_mean_difference_over_the_mean(counts: list[int]):
    pods = {"cluster": "c", "pool": "p", "role": "", "pod": [f"pod-{n}" for n in range(len(counts))]}
    row = told(served(*counts), pods=pl.LazyFrame(pods))
    differences = sum(abs(a - b) for a in counts for b in counts)
    assert row["gini_ratio"] == pytest.approx(differences / (2 * len(counts) * sum(counts)))


def test_the_simulated_imbalance_is_found_on_the_busiest_pod():
    played = scene("imbalance", 1.0, 0.5)
    row = imbalance(played.requests, played.window, events=played.events).collect().filter("flagged").to_dicts()[0]
    truth = {pod: sum(told["requests"]) for pod, told in played.truth["pods"].items()}
    assert row["pods"][0] == max(truth, key=lambda pod: truth[pod]) == "vllm-0"


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_is_not_flagged(name: str):
    played, window = quiet(name)
    frame = imbalance(played.requests, window, events=played.events, pods=played.events).collect()
    assert not frame["flagged"].any()
