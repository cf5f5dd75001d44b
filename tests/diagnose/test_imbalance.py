"""Pods that get far more than their share."""

from diagnose.told import WINDOW, found

from lora_watch.diagnose.imbalance import imbalance

ROW = {
    "pods": ["pod-3"],
    "adapters": ["hot"],
    "what": "requests",
    "total": 1600,
    "pool_pods": 4,
    "mean_per_pod": 400.0,
    "max_per_pod": 1200,
    "max_to_mean_ratio": 3.0,
    "max_share": 0.75,
    "gini_ratio": 0.6,
}


def told(*rows):
    return list(imbalance(found("imbalance", *rows), WINDOW))


def test_the_busiest_pod_is_named_with_its_share():
    (one,) = told(ROW)
    assert one.summary == "Imbalance between pods: pod-3 gets 75 % of the requests of 4 pods, 3 times the mean"
    assert one.adapters == ("hot",)


def test_waits_there_and_elsewhere_stand_beside_it():
    (one,) = told({**ROW, "busiest_wait_p95_seconds": 8.0, "others_wait_p95_seconds": 0.2})
    assert "its requests wait 8 s (p95), the others' 200 ms" in one.cause


def test_unknown_waits_are_not_told_as_none():
    (one,) = told(ROW)
    assert "wait" not in one.cause


def test_affinity_alone_is_no_imbalance():
    assert told({**ROW, "flagged": False}) == []


def test_scaling_out_is_warned_of():
    (one,) = told(ROW)
    assert "Scaling out" in one.avoid[0]
    assert "pods" not in {it.lever for it in one.remedies}
