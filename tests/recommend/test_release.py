from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.release import releases
from lora_watch.replay.cluster import PinChange
from tests.recommend.months import month, ring

WEEK = Window(7 * DAY, 14 * DAY)


def test_pins_that_are_asked_for_stay():
    assert releases(month(ring(4, 14), 14), WEEK, [(0, 1), (0, 2)]) == ()


def test_a_pin_without_a_request_for_a_day_goes():
    codes = [n % 2 if n < 10 * 40 else 0 for n in range(14 * 40)]
    last = 399 * 14 * DAY // 560
    assert releases(month(codes, 14), WEEK, [(0, 0), (0, 1)]) == (PinChange(last + DAY, 0, 1, False),)


def test_one_that_is_never_asked_for_goes_after_a_day():
    assert releases(month(ring(2, 14), 14, adapters=3), WEEK, [(0, 2)]) == (PinChange(8 * DAY, 0, 2, False),)


def test_all_go_when_new_adapters_come():
    per_day = 24 * 60
    codes = [n % 3 if n < 10 * per_day else n % 4 for n in range(14 * per_day)]
    since = [-(1 << 50), -(1 << 50), -(1 << 50), 10 * DAY]
    assert releases(month(codes, 14, first_seen=since), WEEK, [(0, 0), (0, 1)]) == (
        PinChange(10 * DAY + HOUR, 0, 0, False),
        PinChange(10 * DAY + HOUR, 0, 1, False),
    )


def test_an_adapter_that_was_known_before_is_not_new():
    per_day = 24 * 60
    codes = [n % 3 if n < 10 * per_day else n % 4 for n in range(14 * per_day)]
    assert releases(month(codes, 14), WEEK, [(0, 0)]) == ()


def test_a_few_requests_for_something_new_let_nothing_go():
    codes = [n % 3 if n < 10 * 40 else n % 4 for n in range(14 * 40)]
    assert releases(month(codes, 14, first_seen=[0, 0, 0, 10 * DAY]), WEEK, [(0, 0)]) == ()


def test_pins_that_the_pool_has_already_stay():
    assert releases(month(ring(2, 14), 14, adapters=3, pinned=((0, 2),)), WEEK, [(0, 2)]) == ()
