import json

import polars as pl
import pytest
from builders import events, requests, rows

from lora_watch import names
from lora_watch.derive.boots import boots
from lora_watch.derive.horizon import GRACE, unseen
from lora_watch.derive.occupancy import occupancy
from lora_watch.derive.stays import stays
from lora_watch.model import HOUR, MINUTE, SECOND, Window
from lora_watch.schema import REQUESTS, SAMPLES

END = 4 * HOUR
WINDOW = Window(END - HOUR, END)
LOG = events("a:10-", start_at=0, source="polled")


def looks(*minutes_and_values: tuple[float, float]) -> pl.LazyFrame:
    label = json.dumps({"endpoint": "agent"})
    records = [
        {"at": END - round(minutes * MINUTE), "metric": names.SAMPLE_SCRAPE_UP, "labels": label, "series": "s", "value": value}
        for minutes, value in minutes_and_values
    ]
    return rows(SAMPLES, records).lazy()


def ends(log: pl.DataFrame, samples: pl.LazyFrame, asked: pl.DataFrame | None = None) -> list[tuple[str, int, int]]:
    asked = REQUESTS.empty() if asked is None else asked
    found = unseen(log.lazy(), asked.lazy(), samples, WINDOW, polled="polled").collect()
    assert found.schema == log.schema
    return found.select("kind", "at", "seq").rows()


def test_an_idle_pod_whose_sidecar_answers_is_known_to_the_end():
    assert ends(LOG, looks((50, 1), (1, 1))) == []


def test_a_pod_whose_sidecar_stopped_answering_ends_at_its_last_good_look():
    assert ends(LOG, looks((50, 1), (40, 1), (30, 0), (1, 0))) == [("stop", END - 40 * MINUTE, 3)]


def test_a_pod_that_nobody_asked_any_more_ends_with_its_last_record():
    assert ends(LOG, looks()) == [("stop", 10 * SECOND, 3)]


def test_a_short_silence_is_no_end():
    assert ends(LOG, looks((GRACE / MINUTE - 0.5, 1), (1, 0))) == []


def test_rare_looks_make_for_patience():
    assert ends(LOG, looks((50, 1), (40, 1), (30, 1), (20, 1))) == []


def test_a_log_from_files_is_not_judged_by_looks():
    assert ends(events("a:10-", start_at=0, source="files"), looks()) == []


def test_a_request_that_finished_later_shows_that_the_log_was_read():
    assert ends(LOG, looks(), requests(f"a:0/1/2/{END // SECOND + 60}")) == []


def test_nothing_is_said_of_the_time_after_the_horizon():
    gone = unseen(LOG.lazy(), REQUESTS.empty().lazy(), looks((30, 1)), WINDOW, polled="polled").collect()
    log = pl.concat([LOG, gone]).lazy()
    said = occupancy(stays(log), boots(log), WINDOW, events=log).collect().row(0, named=True)
    assert (said["observed_seconds"], said["occupancy_ratio"]) == (pytest.approx(1800), pytest.approx(0.25))
