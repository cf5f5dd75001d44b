"""Rules judged over history: what would have fired, and what limit would have done."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch import names
from lora_watch.model import MINUTE
from lora_watch.rules.calibrate import Verdict, _of, judged
from lora_watch.rules.condition import Clause, Compare, Condition, episodes
from lora_watch.rules.history import History
from lora_watch.rules.rule import Alert, Severity, Tier
from lora_watch.rules.thresholds import Threshold

POOL = ("c", "chat", "")
DAYS = 28
SERIES = names.POOL_RHO_PEAK_RECORD


def history(minutes: int = DAYS * 1440, **lines: np.ndarray) -> History:
    told = History(np.arange(minutes + 1, dtype=np.int64) * MINUTE)
    for name, line in lines.items():
        told.put(getattr(names, name), POOL, line)
    return told


def alert(
    limit: float = 0.8, *, series: str = SERIES, operator: str = ">", also: tuple[Compare, ...] = (), minutes: int = 2
) -> Alert:
    condition = Condition(
        (Clause(Compare(series, operator, Threshold(limit, "")), also=also),), timedelta(minutes=minutes), timedelta(minutes=10)
    )
    return Alert("Some", Severity.PAGE, Tier.HARM, condition, "")


def spikes(count: int, height: float, minutes: int = DAYS * 1440) -> np.ndarray:
    line = np.full(minutes + 1, 0.3)
    for n in range(count):
        line[(n + 1) * minutes // (count + 1) :][:30] = height
    return line


def test_an_alert_that_fires_once_a_month_is_fine():
    told = judged(alert(), history(POOL_RHO_PEAK_RECORD=spikes(1, 0.9)))
    assert (told.verdict, len(told.episodes)) == (Verdict.FINE, 1)
    ((case, episode),) = told.episodes
    assert case == POOL
    assert (episode.end - episode.start) // MINUTE == 38  # of 30 minutes the first two wait, then ten more are kept


def test_one_that_fires_five_times_gets_a_limit_above_what_was_seen():
    told = judged(alert(), history(POOL_RHO_PEAK_RECORD=spikes(5, 0.9)))
    assert told.verdict is Verdict.OFTEN
    assert told.limits[0].proposed == pytest.approx(0.9)


def test_the_proposed_limit_lets_through_no_more_than_is_wanted():
    line = spikes(5, 0.9)
    line[2000:2030] = 0.95
    seen = history(POOL_RHO_PEAK_RECORD=line)
    (limit,) = judged(alert(), seen).limits
    assert len(judged(alert(limit.proposed), seen).episodes) <= 1
    assert judged(alert(limit.proposed), seen).verdict is not Verdict.OFTEN


def test_one_that_never_stops_is_marked_whatever_the_number_of_its_episodes():
    told = judged(alert(0.2), history(POOL_RHO_PEAK_RECORD=spikes(0, 0)))
    assert (told.verdict, len(told.episodes)) == (Verdict.ALWAYS, 1)
    assert told.share > 0.99


def test_more_swaps_than_requests_can_never_be():
    line = np.full(DAYS * 1440 + 1, 0.1)
    seen = history(POOL_SWAPS_RECORD=line)
    seen.put(names.POD_REQUESTS_RECORD, (*POOL, "p"), line * 4)
    assert judged(alert(1.0, series=names.POOL_SWAPS_RECORD), seen).verdict is Verdict.NEVER
    assert judged(alert(0.3, series=names.POOL_SWAPS_RECORD), seen).verdict is Verdict.QUIET


def test_a_series_that_is_not_there_leaves_the_alert_unjudged():
    told = judged(
        alert(also=(Compare(names.POOL_GPU_BUSY_RECORD, ">", Threshold(0.7, "")),)), history(POOL_RHO_PEAK_RECORD=spikes(1, 0.9))
    )
    assert (told.verdict, told.unknown) == (Verdict.UNKNOWN, (names.POOL_GPU_BUSY_RECORD,))


def test_what_is_wanted_is_scaled_to_the_length_of_the_history():
    fortnight = DAYS * 720
    told = judged(alert(), history(fortnight, POOL_RHO_PEAK_RECORD=spikes(4, 0.9, fortnight)), {Tier.HARM: 8})
    assert (told.wanted, told.verdict) == (4, Verdict.FINE)


def test_unknown_minutes_hold_no_condition():
    line = np.full(DAYS * 1440 + 1, np.nan)
    line[:100] = 0.9
    told = judged(alert(), history(POOL_RHO_PEAK_RECORD=line))
    assert len(told.episodes) == 1
    assert told.episodes[0][1].end == 110 * MINUTE


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 5))
def test_the_edges_alone_give_the_episodes_of_every_minute(held: list[bool], wait: int, keep: int):
    mask, marks = np.array(held), np.arange(len(held), dtype=np.int64) * MINUTE
    condition = Condition((Clause(Compare(SERIES, ">", Threshold(0, ""))),), timedelta(minutes=wait), timedelta(minutes=keep))
    every = episodes(zip(marks.tolist(), held, strict=True), condition.for_, condition.keep)
    assert list(_of(mask, condition, marks)) == list(every)
