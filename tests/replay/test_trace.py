import numpy as np
import pytest

from lora_watch.replay.cluster import replay
from lora_watch.replay.fleet import Fleet
from lora_watch.replay.trace import LONGEST, Trace


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"adapter": [0, 5], "adapters": 5}, "adapter codes are -1 … 4"),
        ({"adapter": [-2]}, "adapter codes are"),
        ({"adapter": [0.5]}, "adapter is integers, got float64"),
        ({"adapter": [1 << 40]}, "adapter does not fit int32"),
        ({"adapter": [[0]]}, "2 dimensions"),
        ({"adapter": [0], "pod": [1], "pods": 1}, "pod codes are 0 … 0, got 1"),
        ({"adapter": [0], "pod": [-1]}, "pod codes are"),
        ({"adapter": [0], "pods": 0}, "pod codes are"),
        ({"adapter": [0, 0], "at": [1]}, "at is one value a request: 2 requests, 1 values"),
        ({"adapter": [0, 0, 0], "at": [0, 2, 1]}, "at falls behind request 1"),
        ({"adapter": [0], "hold": [-1]}, "a hold is 0"),
        ({"adapter": [0], "hold": [LONGEST + 1]}, "a hold is 0"),
        ({"adapter": [0], "at": [LONGEST + 1]}, "within"),
        ({"adapter": [0], "at": np.array([1 << 63], dtype=np.uint64)}, "at does not fit int64"),
        ({"adapter": [True]}, "adapter is integers, got bool"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(arguments: dict[str, object], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        Trace(**arguments)


def test_an_empty_trace_is_replayed():
    assert replay(Trace([]), Fleet(1)).loads == 0
    assert replay(Trace([], adapters=3, pods=2), Fleet(1), restarts=[(0, 0)]).uses == 0


def test_arrays_that_cannot_be_written_to_are_taken():
    adapter = np.array([0, 1, 0], dtype=np.int32)
    adapter.flags.writeable = False
    assert replay(Trace(adapter), Fleet(2)).loads == 2


def test_every_second_value_of_an_array_is_taken():
    assert replay(Trace(np.array([0, 9, 1, 9, 0])[::2]), Fleet(2)).loads == 2


def test_the_largest_times_do_not_overflow():
    told = replay(Trace([0], at=[LONGEST], hold=[LONGEST]), Fleet(1, cold_load=LONGEST))
    assert told.end.tolist() == [3 * LONGEST]
