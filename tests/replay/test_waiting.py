from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import BASE, Trace


def test_an_adapter_in_flight_is_not_evicted():
    told = replay(Trace([0, 1, 2], at=[0, 1, 2], hold=[10, 0, 0]), Fleet(2))
    assert told.victim.tolist() == [-1, -1, 1]


def test_a_request_that_finds_every_slot_in_flight_starts_when_one_ends():
    told = replay(Trace([0, 1, 2], at=[0, 0, 1], hold=[10, 5, 1]), Fleet(2))
    assert (told.start.tolist(), told.victim.tolist()) == ([0, 0, 5], [-1, -1, 1])
    assert told.blocked.tolist() == [False, False, True]


def test_a_request_for_a_resident_adapter_passes_one_that_waits_for_a_slot():
    told = replay(Trace([0, 1, 0], at=[0, 1, 2], hold=[10, 1, 10]), Fleet(1))
    assert told.start.tolist() == [0, 12, 2]


def test_those_who_wait_for_one_adapter_start_together():
    told = replay(Trace([0, 1, 2, 1], at=[0, 1, 2, 3], hold=[10, 4, 4, 4]), Fleet(1))
    assert told.start.tolist() == [0, 10, 14, 10]
    assert told.lookup.tolist() == [2, 2, 2, 0]


def test_an_adapter_counts_as_used_until_its_last_request_ended():
    told = replay(Trace([0, 1, 2], at=[0, 1, 10], hold=[5, 1, 0]), Fleet(2))
    assert told.victim.tolist() == [-1, -1, 1]


def test_a_pin_that_is_idle_is_no_place_to_load_into():
    told = replay(Trace([1, 2], at=[0, 1], hold=[9, 1]), Fleet(2, pins=[(0, 0)]))
    assert told.start.tolist() == [0, 9]


def test_requests_wait_for_a_seat_in_order():
    told = replay(Trace([0, BASE, 0], at=[0, 1, 2], hold=[4, 4, 4]), Fleet(1, seats=1))
    assert told.start.tolist() == [0, 4, 8]


def test_a_load_takes_time_and_its_requests_wait_for_it_in_the_batch():
    told = replay(Trace([0, 0], at=[0, 1], hold=[2, 2]), Fleet(1, warm_load=1, cold_load=6))
    assert (told.start.tolist(), told.end.tolist()) == ([0, 1], [8, 8])


def test_what_ends_at_the_same_microsecond_makes_room_for_an_arrival():
    assert replay(Trace([0, 1], at=[0, 5], hold=[5, 1]), Fleet(1)).start.tolist() == [0, 5]
