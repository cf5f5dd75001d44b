import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
from simulate.small import MIXED

from lora_watch.model import DAY, HOUR
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.simulate import past
from lora_watch.simulate.past import Laid, lay
from lora_watch.simulate.plan import Plan
from lora_watch.store.tables import Store

QUIET = MIXED.traffic.model_copy(update={"requests_per_second": 0.02})
LIVE = Plan(MIXED.model_copy(update={"traffic": QUIET, "begin": MIXED.begin + 3 * DAY}), MIXED.begin + 3 * DAY + HOUR, 0, 1)
ROOM = 1 << 40


def laid_of(store: Store, number: int) -> int | None:
    begin = LIVE.day_before(number).scenario.begin
    return store.ledger(SAMPLES).refresh().get(f"laid/{begin}")


def test_days_are_laid_the_newest_first_and_each_is_whole(tmp_path: Path):
    store = Store(tmp_path)
    said = list(lay(LIVE, 2, store, free=lambda: ROOM))
    assert [(one.days, one.of, one.full) for one in said] == [(1, 2, False), (2, 2, False)]
    assert 0 < said[0].size < said[1].size
    assert [laid_of(store, number) for number in (1, 2)] == [LIVE.scenario.begin, LIVE.scenario.begin - DAY]
    at = store.rows(REQUESTS)["at"]
    assert LIVE.scenario.begin - 2 * DAY <= at.min()
    assert at.max() < LIVE.scenario.begin
    starts = store.rows(ADAPTER_EVENTS).filter(pl.col("kind") == "start")
    assert set(starts["at"]) == {LIVE.scenario.begin - DAY, LIVE.scenario.begin - 2 * DAY}
    assert starts["stream"].n_unique() == starts.height == 2 * 2 * MIXED.pools[0].pods


def test_a_day_that_is_cut_short_is_not_marked_as_whole(tmp_path: Path):
    store, left = Store(tmp_path), iter([True, True, False])
    assert list(lay(LIVE, 2, store, free=lambda: ROOM, goes_on=lambda: next(left), most=200)) == []
    assert laid_of(store, 1) is None
    assert 0 < store.rows(REQUESTS)["at"].max() - (LIVE.scenario.begin - DAY) < DAY // 2


def test_no_day_is_begun_for_which_the_disk_has_no_room(tmp_path: Path):
    room = iter([ROOM, past.KEPT_FREE + 1])
    said = list(lay(LIVE, 5, Store(tmp_path), free=lambda: next(room)))
    assert [(one.days, one.full) for one in said] == [(1, False), (1, True)]
    assert said[1] == Laid(1, 5, said[0].size, full=True)


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path):
    asked = {"scenario": "thursday", "now": LIVE.start, "seed": 1, "days": 3, "data": str(tmp_path), "parent": os.getpid() + 1}
    done = subprocess.run(
        [sys.executable, "-m", "lora_watch.simulate.past", json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert Store(tmp_path).rows(REQUESTS).is_empty()
