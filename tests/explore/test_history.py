"""What the recommendation reads of a store: requests in order, pods that are there now, and what is known of them."""

import numpy as np
import pytest

from lora_watch.derive.expected import parse
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore.history import held
from lora_watch.model import DAY, HOUR, SECOND, Window
from lora_watch.names import SAMPLE_MAX_LORA
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from tests.builders import rows
from tests.stored import stored

START = 1_790_553_600_000_000
WINDOW = Window(START, START + 2 * DAY)
DETAIL = '{"max_rank":32,"model":"meta-llama/Llama-3.1-8B","role":"worker","vllm":"0.32.0"}'


def asked(adapter, at, pod="pod-0", seconds=1.0, **more):
    """A request that came ``at`` seconds after the start and took so long."""
    came = START + round(at * SECOND)
    end = came + round(seconds * SECOND)
    times = dict.fromkeys(("arrived", "queued", "scheduled"), came) | dict.fromkeys(("at", "finished"), end)
    return {"adapter": adapter, "pod": pod, **times, **more}


def started(pod="pod-0", at=0, slots=2, **more):
    return {
        "pod": pod,
        "at": START + at,
        "kind": "start",
        "slots": slots,
        "cpu_capacity": 8,
        "clock": "host",
        "detail": DETAIL,
        **more,
    }


def loaded(adapter, at, seconds=0.5, tier="gpu", rank=16, pod="pod-0", **more):
    said = {"kind": "load", "tier": tier, "adapter": adapter, "seconds": seconds, "rank": rank, "bytes": 1_000_000 * rank}
    return {**said, "pod": pod, "at": START + round(at * SECOND), "ok": True, "reason": "demand", **more}


def numbered(records):
    """Records with a seq of their own in each pod's stream."""
    return [{**record, "seq": n, "stream": f"agent/c/{record['pod']}/boot"} for n, record in enumerate(records, 1)]


def store_of(folder, requests, events=(), samples=()):
    return stored(
        folder,
        requests=rows(REQUESTS, numbered(requests)) if requests else None,
        events=rows(ADAPTER_EVENTS, numbered(events)) if events else None,
        samples=rows(SAMPLES, samples) if samples else None,
    )


def read(store, window=WINDOW, **options):
    return list(held(store, window, lookback=7 * DAY, **options))


def test_requests_stand_in_the_order_in_which_they_came(tmp_path):
    requests = [asked("b", 20, seconds=100), asked("a", 10, seconds=300), asked("c", 30)]
    (one,) = read(store_of(tmp_path, requests, [started()]))
    assert [one.history.names[code] for code in one.history.trace.adapter] == ["a", "b", "c"]
    assert one.history.trace.hold.tolist() == [300 * SECOND, 100 * SECOND, SECOND]


def test_who_came_before_midnight_and_finished_after_it_has_its_place(tmp_path):
    midnight = DAY // SECOND
    requests = [asked("late", midnight - 10, seconds=60), asked("quick", midnight - 5), asked("next", midnight + 1)]
    (one,) = read(store_of(tmp_path, requests, [started()]))
    assert (np.diff(one.history.trace.at) > 0).all()
    assert [one.history.names[code] for code in one.history.trace.adapter] == ["late", "quick", "next"]
    assert one.history.trace.hold.tolist() == [60 * SECOND, SECOND, SECOND]


def test_the_base_model_has_requests_and_no_name(tmp_path):
    (one,) = read(store_of(tmp_path, [asked(None, 1), asked("a", 2)], [started()]))
    assert (one.history.names, one.history.trace.adapter.tolist()) == (("a",), [-1, 0])


def test_slots_are_those_that_a_pod_said_last(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started(slots=2), started(slots=5, at=DAY)]))
    assert one.history.slots == (5,)


def test_engines_of_one_pod_add_up(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started(engine="0", slots=2), started(engine="1", slots=2)]))
    assert one.history.slots == (4,)


def test_of_pods_with_other_slots_the_fewest_and_the_most_are_told(tmp_path):
    events = [started(slots=2), started(pod="pod-1", slots=4)]
    (one,) = read(store_of(tmp_path, [asked("a", 1), asked("a", 2, pod="pod-1")], events))
    assert (one.setup.slots, one.setup.most_slots) == (2, 4)


def test_a_page_tells_slots_where_no_agent_does(tmp_path):
    end = WINDOW.end - HOUR // 2
    page = {"at": end, "metric": SAMPLE_MAX_LORA, "value": 4.0, "series": "s", "labels": "{}"}
    (one,) = read(store_of(tmp_path, [asked("a", 2 * DAY / SECOND - 1800)], samples=[page]))
    assert one.history.slots == (4,)


def test_a_pod_of_unknown_slots_is_left_out_and_said(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1), asked("b", 2, pod="dumb")], [started()]))
    assert (one.history.pods, one.history.names) == (("pod-0",), ("a",))
    assert one.history.gaps == ("nobody told the slots of 1 pod (dumb): 1 request is left out with it",)


def test_slots_that_nobody_told_are_no_history(tmp_path):
    with pytest.raises(NotEnoughHistory, match="nobody told the slots"):
        read(store_of(tmp_path, [asked("a", 1)]))


def test_an_empty_store_says_what_brings_requests(tmp_path):
    with pytest.raises(NotEnoughHistory, match="advice is learned from them"):
        read(store_of(tmp_path, []))


def test_an_empty_window_is_told_from_an_empty_store(tmp_path):
    with pytest.raises(NotEnoughHistory, match="choose another"):
        read(store_of(tmp_path, [asked("a", 1)], [started()]), Window(START - 2 * DAY, START - DAY))


def test_a_pool_that_is_not_there_is_told_with_those_that_are(tmp_path):
    with pytest.raises(NotEnoughHistory, match="there are p"):
        read(store_of(tmp_path, [asked("a", 1)], [started()]), pool="q")


def test_pools_come_apart_and_the_busiest_first(tmp_path):
    requests = [asked("a", 1), *(asked("b", n, pod="big-0", pool="big") for n in range(3))]
    found = read(store_of(tmp_path, requests, [started(), started(pod="big-0", pool="big")]))
    assert [(one.setup.pool, len(one.history.trace)) for one in found] == [("c/big", 3), ("c/p", 1)]


def test_what_a_pod_that_is_gone_served_is_replayed_on_the_one_that_followed(tmp_path):
    late = DAY / SECOND
    requests = [
        asked("b", 0, pod="stays"),
        asked("a", 1, pod="old"),
        asked("c", late, pod="new"),
        asked("d", late + 1, pod="stays"),
    ]
    (one,) = read(store_of(tmp_path, requests, [started(pod=pod) for pod in ("old", "stays", "new")]))
    assert one.history.pods == ("new", "stays")
    assert one.history.trace.pod.tolist() == [1, 0, 0, 1]
    assert "1 pod is gone since" in one.history.gaps[0]


def test_a_load_takes_what_the_copy_and_the_read_before_it_take(tmp_path):
    events = [started(), loaded("a", 1, 2.0, tier="cpu"), loaded("a", 1, 1.0), loaded("a", 9, 1.0)]
    (one,) = read(store_of(tmp_path, [asked("a", 1)], events))
    assert one.history.load_seconds.tolist() == [2.0]


def test_a_load_that_nobody_timed_takes_what_those_of_its_rank_do(tmp_path):
    events = [started(), loaded("a", 1, 0.2, rank=8), loaded("b", 2, 0.6, rank=64), loaded("c", 3, None, rank=64)]
    (one,) = read(store_of(tmp_path, [asked(name, 5) for name in "abcd"], events))
    assert one.history.load_seconds.tolist() == pytest.approx([0.2, 0.6, 0.6, 0.4])


def test_loads_that_nobody_timed_are_unknown(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started(), loaded("a", 1, None)]))
    assert np.isnan(one.history.load_seconds).all()


def test_a_slot_is_as_large_as_the_largest_rank_wants_it(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started(), loaded("a", 1, rank=16)]))
    assert (one.setup.max_rank, one.setup.slot_bytes) == (32, 32_000_000)
    assert (one.setup.engine, one.setup.version, one.setup.base_model) == ("vllm", "0.32.0", "meta-llama/Llama-3.1-8B")


def test_an_adapter_that_was_asked_for_before_the_window_is_older_than_it(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1), asked("a", DAY / SECOND + 5)], [started()]), Window(START + DAY, WINDOW.end))
    assert one.history.first_seen.tolist() == [START + 2 * SECOND]


def test_experiments_are_named_or_announced(tmp_path):
    requests = [asked(name, n) for n, name in enumerate(("legal", "legal-experiment", "trial-7", "other"))]
    said = parse("- {start: 2026-09-28T00:00Z, end: 2026-09-28T12:00Z, adapters: ['trial-*']}")
    (one,) = read(store_of(tmp_path, requests, [started()]), expected=said)
    assert {name for name, is_one in zip(one.history.names, one.history.experiment, strict=True) if is_one} == {
        "legal-experiment",
        "trial-7",
    }


def pin(adapter, at, kind="pin", **more):
    return {"pod": "pod-0", "at": START + at, "kind": kind, "adapter": adapter, "ok": True, "tier": "gpu", **more}


def test_a_pin_holds_until_it_is_taken_out_or_its_adapter_leaves(tmp_path):
    events = [
        started(slots=8),
        *(pin(name, 1) for name in "abcd"),
        pin("b", 2, "unpin"),
        pin("c", 3, "evict"),
        pin("d", 4, ok=False),
    ]
    (one,) = read(store_of(tmp_path, [asked(name, 5) for name in "abcd"], events))
    assert one.history.pinned == ((0, 0), (0, 3))


def test_pins_of_every_slot_leave_one_free_in_the_replay(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1), asked("b", 2)], [started(slots=1), pin("a", 1)]))
    assert one.history.pinned == ()


def test_registered_names_and_their_paths_are_those_of_the_newest_server(tmp_path):
    said = {"pod": "pod-0", "kind": "register", "ok": True}
    events = [
        started(),
        {**said, "at": START + 1, "adapter": "a", "detail": '{"path":"/adapters/a"}'},
        {**said, "at": START + 2, "adapter": "unused"},
    ]
    (one,) = read(store_of(tmp_path, [asked("a", 3)], events))
    assert (one.history.registered, one.paths) == (("a", "unused"), {"a": "/adapters/a"})


def test_who_is_registered_is_unknown_where_nobody_told(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started()]))
    assert one.history.registered is None


def test_a_hostile_name_and_a_broken_detail_are_only_names_and_unknown(tmp_path):
    name = "[red]'\"; drop\n</script>" + "x" * 10_000
    (one,) = read(store_of(tmp_path, [asked(name, 1)], [started(detail='{"role":"worker"'), started(detail="[1]")]))
    assert one.history.names == (name,)
    assert one.setup.base_model is None


def test_the_worst_provenance_is_the_historys(tmp_path):
    requests = [asked("a", 1), asked("b", 2, provenance="activity")]
    (one,) = read(store_of(tmp_path, requests, [started()]))
    assert one.history.provenance == "activity"


def test_reading_tells_how_far_it_is(tmp_path):
    told = []
    read(store_of(tmp_path, [asked("a", 1)], [started()]), told=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_rows_in_another_order_are_the_same_history(tmp_path):
    requests = [asked(name, n % 7, pod=f"pod-{n % 2}") for n, name in enumerate("abcabcabcd")]
    events = [started(), started(pod="pod-1")]
    frame = rows(REQUESTS, numbered(requests))
    one, other = (
        read(stored(tmp_path / name, requests=part, events=rows(ADAPTER_EVENTS, numbered(events))))[0].history
        for name, part in (("there", frame), ("back", frame.reverse()))
    )
    assert one.trace.adapter.tolist() == other.trace.adapter.tolist()
    assert one.trace.at.tolist() == other.trace.at.tolist()


def test_a_history_that_began_with_time_has_nothing_before_it(tmp_path):
    requests = [{**asked("a", 1), **dict.fromkeys(("at", "arrived", "queued", "scheduled", "finished"), 5)}]
    events = [{**started(), "at": 1}]
    (one,) = read(store_of(tmp_path, requests, events), Window(0, DAY))
    assert one.history.first_seen.tolist() == [5]


def test_a_detail_that_is_no_json_tells_nothing_of_the_model(tmp_path):
    (one,) = read(store_of(tmp_path, [asked("a", 1)], [started(detail='{"role":"worker","x":"\\ud800"}')]))
    assert (one.setup.engine, one.setup.max_rank) == (None, None)


@pytest.mark.parametrize("slots", [0, -3, 10**15])
def test_a_number_of_slots_that_no_engine_has_is_none(tmp_path, slots):
    with pytest.raises(NotEnoughHistory, match="nobody told the slots"):
        read(store_of(tmp_path, [asked("a", 1)], [started(slots=slots)]))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0, 1e300])
def test_a_page_that_tells_no_number_tells_no_slots(tmp_path, value):
    page = {"at": WINDOW.end - 1, "metric": SAMPLE_MAX_LORA, "value": value, "series": "s", "labels": "{}"}
    with pytest.raises(NotEnoughHistory, match="nobody told the slots"):
        read(store_of(tmp_path, [asked("a", 1)], samples=[page]))


@pytest.mark.parametrize("rank", ["0", "-1", "1e3", "true", '"16"', "1" + "0" * 40])
def test_a_rank_that_no_engine_has_sizes_no_slot(tmp_path, rank):
    events = [started(detail=f'{{"max_rank":{rank},"role":"worker"}}'), loaded("a", 1, rank=8)]
    (one,) = read(store_of(tmp_path, [asked("a", 1)], events))
    assert one.setup.slot_bytes in {8_000_000, 1_000_000}


def test_a_size_of_any_number_overflows_nothing(tmp_path):
    events = [started(), loaded("a", 1, rank=1, bytes=2**62)]
    (one,) = read(store_of(tmp_path, [asked("a", 1)], events))
    assert one.setup.slot_bytes >= 2**62


def test_requests_of_the_base_model_alone_name_no_adapter(tmp_path):
    (one,) = read(store_of(tmp_path, [asked(None, 1), asked(None, 2)], [started()]))
    assert (one.history.names, one.history.trace.adapters) == ((), 0)


@pytest.mark.parametrize("name", ["", "x" * 10_000, "\ud800", "a\x00b"])
def test_any_text_is_an_adapter(tmp_path, name):
    name = name.encode("utf-8", "replace").decode()
    (one,) = read(store_of(tmp_path, [asked(name, 1)], [started()]))
    assert one.history.names == (name,)
