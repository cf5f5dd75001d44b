"""What can't be told, and what would tell it."""

from diagnose.told import facts, minutes, pods

from lora_watch.diagnose.gaps import gaps

ALL_KNOWN = {
    "residency_provenance": "observed",
    "swaps_provenance": "observed",
    "busy_ratio": 0.5,
    "adapter_share": 0.1,
}


def told(*rows, **given):
    return list(gaps([facts(told=pods(*({**ALL_KNOWN, **row} for row in rows)), **given)]))


def test_a_pool_of_which_all_is_known_has_no_gap():
    assert told({}) == []


def test_a_pod_without_slots_is_named():
    (one,) = told({}, {"pod": "pod-1", "slots": None})
    assert (one.what, one.pods) == ("which adapters are in a slot", ("pod-1",))


def test_residency_where_only_activity_is_seen_is_a_lower_bound():
    (one,) = told({"residency_provenance": "activity"})
    assert one.what.startswith("residency")
    assert "lower bound" in one.why


def test_loads_that_no_pod_tells_are_a_gap_in_the_words_of_what_is_seen():
    for lines, why in (
        (minutes(), "only requests in flight are seen"),
        (minutes((9, {"requests": 5})), "requests are seen there"),
    ):
        one = told({"loads": None}, lines=lines)[0]
        assert one.why.startswith(why)


def test_inferred_stays_say_so():
    (one,) = told({"residency_provenance": "inferred"})
    assert one.why == "stays there are inferred from uses"


def test_no_finished_request_means_no_misses():
    (one,) = told({}, lines=minutes((60, {"loads": 5, "stall_seconds": 1.0})))
    assert "who misses" in one.what


def test_where_neither_requests_nor_loads_are_held_the_way_to_each_is_told():
    two = told({"loads": None}, lines=minutes())[1]
    assert two.why == "neither a request nor a load is held of the window"
    assert "scheduler_attempts_total" in two.how


def test_a_router_that_counts_requests_does_not_tell_when_they_came():
    (one,) = told({}, lines=minutes(), routed=True)
    assert one.why.startswith("only the router's counters")


def test_loads_without_lengths_have_no_cost():
    (one,) = told({"loads": 40, "adapter_share": None}, lines=minutes((60, {"requests": 5, "loads": 5})))
    assert one.what == "what loads cost"


def test_a_dark_gpu_is_a_gap():
    (one,) = told({"busy_ratio": None})
    assert "dcgm-exporter" in one.how


def test_while_a_pool_is_learned_nobody_knows_what_is_new():
    (one,) = told({}, learning=True)
    assert one.what == "which adapters are new"


def test_a_frame_without_provenance_is_no_error():
    told_ = facts(told=pods(ALL_KNOWN).drop("residency_provenance", "swaps_provenance"))
    assert list(gaps([told_])) == []
