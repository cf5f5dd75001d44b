import numpy as np
import pytest

from lora_watch.derive.bootstrap import Interval
from lora_watch.derive.contrast import FEWEST, WARNING, Contrast, contrast

SIZE = 30_000


def made(*, effect: float, busy_more_exposed: bool = True) -> Contrast:
    """Hits in 20 blocks: half come upon a busy engine, which adds 3 s to some and makes an eviction before them likelier."""
    random = np.random.default_rng(5)
    busy = random.random(SIZE) < 0.5
    likely = np.where(busy, 0.6, 0.1) if busy_more_exposed else np.full(SIZE, 0.3)
    exposed = random.random(SIZE) < likely
    exposed_next = random.random(SIZE) < likely
    latency = random.exponential(1, SIZE) + 3 * busy * (random.random(SIZE) < 0.3) + effect * exposed
    block = np.sort(random.integers(0, 20, SIZE))
    return contrast(latency, exposed=exposed, exposed_next=exposed_next, stratum=busy.astype(np.int64), block=block)


def inside(span: Interval, value: float) -> bool:
    assert span.low is not None
    assert span.high is not None
    return span.low <= value <= span.high


def test_without_an_effect_the_raw_difference_and_the_placebo_show_one():
    told = made(effect=0.0)
    assert told.raw is not None
    assert told.raw > 0.3
    assert not inside(told.raw_interval, 0)
    assert not inside(told.placebo_interval, 0)


def test_without_an_effect_the_stratified_difference_shows_none():
    assert inside(made(effect=0.0).stratified_interval, 0)


def test_an_effect_shows_in_the_stratified_difference():
    told = made(effect=1.0)
    assert told.stratified == pytest.approx(1.0, abs=0.3)
    assert not inside(told.stratified_interval, 0)


def test_where_nothing_is_mixed_up_all_three_agree():
    told = made(effect=0.0, busy_more_exposed=False)
    assert [told.raw, told.placebo, told.stratified] == pytest.approx([0, 0, 0], abs=0.3)


def test_the_warning_goes_with_the_figures():
    assert made(effect=1.0).warning == WARNING == "understates under queueing"


@pytest.mark.parametrize("exposed", [FEWEST - 1, 0])
def test_few_on_one_side_say_nothing(exposed: int):
    which = np.arange(200) < exposed
    zeros = np.zeros(200, dtype=np.int64)
    told = contrast(np.ones(200), exposed=which, exposed_next=which, stratum=zeros, block=zeros)
    assert (told.raw, told.placebo, told.stratified) == (None, None, None)


def test_no_requests_say_nothing():
    nothing = np.empty(0, dtype=np.int64)
    none = nothing.astype(bool)
    told = contrast(np.empty(0), exposed=none, exposed_next=none, stratum=nothing, block=nothing)
    assert (told.raw, told.raw_interval) == (None, Interval(None, None))


def test_one_block_gives_figures_without_an_interval():
    which = np.arange(200) % 2 == 0
    zeros = np.zeros(200, dtype=np.int64)
    told = contrast(np.where(which, 2.0, 1.0), exposed=which, exposed_next=which, stratum=zeros, block=zeros)
    assert (told.raw, told.raw_interval) == (1.0, Interval(None, None))
