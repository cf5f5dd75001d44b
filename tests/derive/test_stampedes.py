import polars as pl
import pytest
from builders import rows
from scenes import QUIET, quiet, scene

from lora_watch import names
from lora_watch.derive.clocks import clock_offsets
from lora_watch.derive.found import HEAD
from lora_watch.derive.stampedes import stampedes
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES

HOUR_ONE = Window(0, 3600 * SECOND)


def loads(text: str, **common: object) -> pl.LazyFrame:
    """``0:a@10+2`` is pod-0 loading a from 10 s on for 2 s; ``reason`` and others for all."""
    records = []
    for word in text.split():
        pod, _, rest = word.partition(":")
        adapter, _, span = rest.partition("@")
        began, _, seconds = span.partition("+")
        where = {"pod": f"pod-{pod}", "stream": f"agent/c/pod-{pod}/boot"}
        took = {"at": round((float(began) + float(seconds)) * SECOND), "seconds": float(seconds)}
        records.append(
            {**where, **took, "kind": "load", "tier": "gpu", "from_tier": "cpu", "adapter": adapter, "reason": "demand", **common}
        )
    return rows(ADAPTER_EVENTS, records).lazy()


def found(text: str, **common: object) -> list[dict[str, object]]:
    return stampedes(loads(text, **common), HOUR_ONE).collect().to_dicts()


def offset(pod: str, seconds: float) -> dict[str, object]:
    return {"at": 0, "pod": pod, "metric": names.SAMPLE_CLOCK_OFFSET, "value": seconds, "series": pod, "labels": "{}"}


def test_overlapping_loads_of_one_adapter_on_three_pods_are_a_flagged_stampede():
    (row,) = found("0:a@10+2 1:a@11+2 2:a@12+1 3:b@10+5")
    assert (row["pods"], row["adapters"], row["flagged"]) == (["pod-0", "pod-1", "pod-2"], ["a"], True)
    assert (row["start"], row["end"]) == (10 * SECOND, 13 * SECOND + 1)
    assert (row["loads"], row["pods_loading"], row["most_loads_at_once"], row["pool_pods"]) == (3, 3, 3, 4)
    assert (row["span_seconds"], row["load_seconds"], row["tolerance_seconds"]) == (3.0, 5.0, 0.1)


def test_two_pods_of_many_explain_and_are_not_flagged():
    (row,) = found("0:a@10+2 1:a@11+2 2:b@50+1")
    assert (row["pods_loading"], row["flagged"]) == (2, False)


def test_two_pods_are_all_in_a_pool_of_two():
    (row,) = found("0:a@10+0.1 1:a@10.05+0.1")
    assert row["flagged"]


def test_loads_apart_or_of_one_pod_or_of_other_adapters_are_none():
    assert found("0:a@10+1 1:a@11.2+1 0:b@20+1 0:b@20.5+1 1:c@30+1 2:d@30+1") == []


def test_what_comes_often_meets_by_chance_and_is_not_flagged():
    steady = " ".join(f"{pod}:a@{pod + 4 * n}+5" for pod in range(4) for n in range(100))
    assert not any(row["flagged"] for row in found(steady))


@pytest.mark.parametrize("reason", ["preload", "inplace"])
def test_preloads_and_reloads_in_place_are_no_stampede(reason: str):
    assert found("0:a@10+2 1:a@11+2 2:a@12+1", reason=reason) == []


def test_failed_loads_and_warm_up_are_left_out():
    assert found("0:a@10+2 1:a@11+2 2:a@12+1", ok=False) == []
    assert found("0:a@10+2 1:a@11+2 2:a@12+1", reason="warmup") == []


def test_measured_clocks_put_loads_in_their_place():
    """The second pod's clock is 5 s ahead: what looks like overlapping was one after another."""
    events = loads("0:a@10+1 1:a@10.5+1 2:z@99+1")
    samples = rows(SAMPLES, [offset("pod-0", 0.0), offset("pod-1", 5.0)]).lazy()
    assert stampedes(events, HOUR_ONE, offsets=clock_offsets(samples)).collect().height == 0
    later = loads("0:a@10+1 1:a@15.5+1 2:z@99+1")
    (row,) = stampedes(later, HOUR_ONE, offsets=clock_offsets(samples)).collect().to_dicts()
    assert (row["tolerance_seconds"], row["most_loads_at_once"]) == (0.01, 2)


def test_roles_and_clusters_are_not_mixed():
    events = pl.concat([loads("0:a@10+2", cluster="x"), loads("1:a@11+2", cluster="y"), loads("2:a@11+2", role="decode")])
    assert stampedes(events, HOUR_ONE).collect().height == 0


def test_a_load_belongs_to_the_window_in_which_it_ended():
    early = stampedes(loads("0:a@10+2 1:a@10.5+2"), Window(0, 11 * SECOND)).collect()
    assert early.height == 0
    late = stampedes(loads("0:a@10+2 1:a@10.5+2"), Window(11 * SECOND, 60 * SECOND)).collect()
    assert (late["start"].item(), late["span_seconds"].item()) == (11 * SECOND, 2.5)


def test_nothing_in_makes_an_empty_frame_with_all_columns():
    frame = stampedes(ADAPTER_EVENTS.empty().lazy(), HOUR_ONE).collect()
    assert (frame.height, frame.columns[: len(HEAD)]) == (0, list(HEAD))


def test_the_simulated_stampede_is_found_when_it_happens_on_most_pods():
    played = scene("stampede", 2.5, 1.0)
    burst = played.of("burst")
    frame = stampedes(played.events, played.hours(2.6, 3.5)).collect().filter("flagged")
    (row,) = frame.to_dicts()
    assert row["adapters"] == burst["adapters"]
    assert burst["start"] <= row["start"] < row["end"] < burst["start"] + 3 * SECOND
    assert row["pods_loading"] >= 6
    assert row["cold_loads"] == row["loads"]


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_cluster_has_no_stampede(name: str):
    played, window = quiet(name)
    assert not stampedes(played.events_of(window), window).collect()["flagged"].any()
