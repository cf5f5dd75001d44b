from lora_watch.model import DAY
from lora_watch.recommend.candidates import candidates
from tests.recommend.months import month, ring


def test_what_is_asked_for_and_known_for_a_week_is_a_candidate():
    assert candidates(month(ring(2, 10), 10)).tolist() == [True, True]


def test_what_was_not_asked_for_in_three_days_is_none():
    codes = [0, 1] * 120 + [0] * 60  # 1 is asked for during the first eight of ten days… and not in the last two
    assert candidates(month(codes, 10)).tolist() == [True, True]
    assert candidates(month([0, 1] * 60 + [0] * 120, 10)).tolist() == [True, False]


def test_what_is_younger_than_a_week_is_none():
    assert candidates(month(ring(3, 10), 10, first_seen=[0, 3 * DAY, 3 * DAY + 1])).tolist() == [True, True, False]


def test_what_was_there_when_requests_began_to_be_held_is_known():
    assert candidates(month(ring(3, 4), 4, first_seen=[0, DAY, DAY + 1])).tolist() == [True, True, False]


def test_an_experiment_is_none_unless_it_is_opted_in():
    history = month(ring(3, 10), 10, experiment=[False, True, True], first_seen=[0, 0, 9 * DAY])
    assert candidates(history).tolist() == [True, False, False]
    assert candidates(history, ["a2", "nobody"]).tolist() == [True, False, True]


def test_requests_for_the_base_model_make_no_candidate():
    assert candidates(month([-1] * 40, 10, adapters=1)).tolist() == [False]
