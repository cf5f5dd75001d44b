"""What stored history was, as recorded series: rows that tell nonsense cost themselves and nothing else."""

import math
from pathlib import Path

import numpy as np
import pytest
from builders import rows
from stored import stored

from lora_watch import names
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.rules.history import replayed
from lora_watch.rules.lines import Line
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS

BEGIN = 20_000 * DAY
WINDOW = Window(BEGIN, BEGIN + 2 * HOUR)
POD, POOL = ("c", "p", "", "pod-0"), ("c", "p", "")
NONSENSE = [math.nan, math.inf, -math.inf, -5.0, 1e308]


def recorded(folder: Path, name: str, *bad_events: dict, bad_requests: tuple[dict, ...] = ()) -> Line:
    """A pod that loads an adapter for half a second and runs two requests of a second, each minute; and what is wrong."""
    events = [{"at": BEGIN, "kind": "start", "slots": 4, "cpu_capacity": 8, "clock": "host"}]
    requests = []
    for at in range(BEGIN + SECOND, WINDOW.end, MINUTE):
        load = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "adapter": "a", "ok": True, "reason": "demand", "seconds": 0.5}
        events += [
            {"at": at, **load},
            {"at": at + 1, "kind": "steps", "wall_seconds": 1.0, "execute_seconds": 1.0, "adapter_seconds": 0.5, "clock": "host"},
            {"at": at + 2, "kind": "lost", "count": 1},
        ]
        for arrived in (at, at + SECOND):
            times = {"arrived": arrived, "scheduled": arrived, "finished": arrived + SECOND}
            requests.append({"at": arrived + SECOND, "adapter": "a", **times})
    store = stored(
        folder, events=rows(ADAPTER_EVENTS, [*events, *bad_events]), requests=rows(REQUESTS, [*requests, *bad_requests])
    )
    lines = replayed(store, WINDOW).lines[name]
    return lines[POD if name.startswith("pod:") else POOL][30:]


@pytest.mark.parametrize("value", NONSENSE)
def test_a_step_of_a_length_that_is_none_spoils_no_other(tmp_path: Path, value: float):
    bad = {"at": BEGIN + 20 * MINUTE, "kind": "steps", "adapter_seconds": value, "execute_seconds": value, "clock": "host"}
    assert recorded(tmp_path / "a", names.POD_LOADING_RECORD, bad) == pytest.approx(0.5 / 60)
    assert recorded(tmp_path / "b", names.POD_INFERENCE_RECORD, bad) == pytest.approx(0.5 / 60)


@pytest.mark.parametrize("value", NONSENSE)
def test_a_load_of_a_length_that_is_none_is_a_load_of_unknown_length(tmp_path: Path, value: float):
    load = {"kind": "load", "tier": "gpu", "from_tier": "cpu", "adapter": "a", "ok": True, "reason": "demand"}
    bad = {"at": BEGIN + 35 * MINUTE, "seconds": value, **load}
    lines = recorded(tmp_path, names.POD_LOADS_RECORD, bad)
    assert lines[:5] == pytest.approx(1 / 60)
    assert lines[6:15] == pytest.approx(1.1 / 60)


@pytest.mark.parametrize("count", [-5, 2**62])
def test_a_loss_of_a_number_that_is_none_spoils_no_other(tmp_path: Path, count: int):
    bad = {"at": BEGIN + 20 * MINUTE, "kind": "lost", "count": count}
    assert recorded(tmp_path, names.POOL_LOST_RECORD, bad) == pytest.approx(10)


@pytest.mark.parametrize(("scheduled", "finished"), [(BEGIN + HOUR, BEGIN), (BEGIN, 0), (0, BEGIN), (-(2**62), 2**62)])
def test_a_request_that_ends_before_it_begins_or_lasts_for_ever_has_no_length(tmp_path: Path, scheduled: int, finished: int):
    at = BEGIN + 50 * MINUTE
    bad = {"at": at, "adapter": "a", "arrived": at, "scheduled": scheduled, "finished": finished}
    assert recorded(tmp_path, names.POD_SERVICE_RECORD, bad_requests=(bad,)) == pytest.approx(1.0)


@pytest.mark.parametrize("arrived", [None, 0, 2**62, -(2**62)])
def test_a_request_that_came_who_knows_when_counts_where_it_ended(tmp_path: Path, arrived: int | None):
    at = BEGIN + 35 * MINUTE
    bad = {"at": at, "adapter": "a", "arrived": arrived, "scheduled": at - SECOND, "finished": at}
    assert recorded(tmp_path / "a", names.POD_REQUESTS_RECORD, bad_requests=(bad,))[6:15] == pytest.approx(2.1 / 60)
    assert np.isfinite(recorded(tmp_path / "b", names.POD_IN_FLIGHT_RECORD, bad_requests=(bad,))).all()
