"""Every page of a hundred pods with five hundred adapters over thirty days: few rows, but of the right shape."""

from pathlib import Path

import polars as pl
import pytest
from builders import rows
from dashboards.opening import PAGES, html, opened
from stored import stored

from lora_watch.explore import hours
from lora_watch.jobs import close_hours
from lora_watch.model import DAY, HOUR, MINUTE, SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import Store

BEGIN, DAYS, PODS, ADAPTERS, EVERY = 20_000 * DAY, 30, 100, 500, 12 * HOUR


def laid(folder: Path) -> Store:
    """Each pod loads another adapter every twelve hours, in a slot of four, and answers two requests for it."""
    events, requests, samples = [], [], []
    for pod in range(PODS):
        who = {"pod": f"vllm-{pod}", "stream": f"agent/c/vllm-{pod}/boot"}
        events.append({**who, "at": BEGIN, "seq": 1, "kind": "start", "slots": 4, "cpu_capacity": 64, "clock": "host"})
        for turn in range(DAYS * DAY // EVERY):
            at = BEGIN + turn * EVERY + (1 + pod) * MINUTE
            adapter = f"lora-{(pod * 7 + turn * 13) % ADAPTERS}"
            here = {**who, "adapter": adapter, "tier": "gpu", "slot": turn % 4, "in_step": True, "ok": True}
            if turn >= 4:
                gone = f"lora-{(pod * 7 + (turn - 4) * 13) % ADAPTERS}"
                events.append({**here, "at": at, "seq": 2 * turn + 2, "kind": "evict", "adapter": gone, "reason": "lru"})
            load = {"kind": "load", "from_tier": "cpu", "reason": "demand", "seconds": 0.01, "bytes": 65_536_000, "rank": 16}
            events.append({**here, **load, "at": at, "seq": 2 * turn + 3})
            for number in (1, 2):
                times = dict.fromkeys(("arrived", "queued", "scheduled"), at + number * SECOND)
                done = at + (number + 1) * SECOND
                request = {"at": done, "first_token": at + number * SECOND + 100_000, "finished": done, **times}
                requests.append({**who, **request, "adapter": adapter, "seq": 2 * turn + number})
            looked = {"metric": "lora_watch:scrape_up", "labels": '{"endpoint":"agent"}', "series": f"up-{pod}", "value": 1.0}
            samples.append({"pod": who["pod"], "at": at, **looked})
    return stored(folder, events=rows(ADAPTER_EVENTS, events), requests=rows(REQUESTS, requests), samples=_samples(samples))


def _samples(records: list[dict[str, object]]) -> pl.DataFrame:
    filled = [
        {"cluster": "c", "pool": "p", "role": "", "engine": "", "provenance": "observed", "source": "t", **one} for one in records
    ]
    return SAMPLES.conform(pl.DataFrame(filled))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The month, all but its newest day worked out by the hour."""
    folder = tmp_path_factory.mktemp("wide")
    store = laid(folder)
    until = BEGIN + (DAYS - 1) * DAY
    done = close_hours(store, lambda at: hours.stale(store, at)[-2:], lambda day: hours.of_day(store, day, DAY), until=until)
    assert done == 2
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_hundred_pods_over_thirty_days_opens(page: str, wide: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(wide, page, monkeypatch, {"last": "30d"})
    assert not test.exception
    assert "lw-trouble" not in html(test)


def test_every_adapter_of_the_month_has_a_row(wide: Path, monkeypatch: pytest.MonkeyPatch):
    frame = opened(wide, "adapters", monkeypatch, {"last": "30d"}).dataframe[0].value
    assert len(frame) == ADAPTERS
    assert frame["requests"].sum() == PODS * DAYS * 2 * 2
