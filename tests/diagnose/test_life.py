"""What is told of a finding from its opening to its close, and what a restart, a second service or a gap does to it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.diagnose.life import Change, Lived, Phase, Rules, State, advance, remember
from lora_watch.model import HOUR, MINUTE

START = 1_796_000_000_000_000
RULES = Rules()
FINDING = Finding("thrash", Severity.WARN, "c", "p", "", START - HOUR, "it swaps", "too few slots", Confidence.HIGH, 1.0)


def looks(*found: Finding | None, start: int = START, step: int = MINUTE) -> list[State]:
    """What looks a minute apart tell that find these; None finds nothing."""
    told, _ = lived(*found, start=start, step=step)
    return told


def lived(*found: Finding | None, start: int = START, step: int = MINUTE) -> tuple[list[State], tuple[Lived, ...]]:
    told: list[State] = []
    lives: tuple[Lived, ...] = ()
    for number, finding in enumerate(found):
        at = start + number * step
        done = advance(lives, [finding] if finding else [], at, RULES, looked=at - step if number else None)
        told += done.states
        lives = done.lives
    return told, lives


def changes(told: list[State]) -> list[str]:
    return [str(state.change) for state in told]


def weighing(weight: float) -> Finding:
    return replace(FINDING, weight=weight)


def test_a_finding_opens_once_and_is_named_by_its_key_and_when():
    told = looks(FINDING, FINDING, FINDING)
    assert changes(told) == ["opened"]
    assert told[0].id == f"{FINDING.key}-{START}"


def test_a_finding_closes_ten_minutes_after_the_first_look_that_missed_it():
    told = looks(FINDING, *[None] * 11)
    assert changes(told) == ["opened", "closed"]
    closed = told[1]
    assert (closed.seen, closed.missed, closed.at) == (START, START + MINUTE, START + 11 * MINUTE)


def test_one_that_flickers_stays_one_life():
    told = looks(FINDING, *([None] * 9 + [FINDING]) * 5)
    assert {state.id for state in told} == {told[0].id}
    assert Change.CLOSED not in {state.change for state in told}


def test_one_that_comes_back_after_its_close_is_another_life():
    told = looks(FINDING, *[None] * 11, FINDING)
    assert changes(told) == ["opened", "closed", "opened"]
    assert told[2].id != told[0].id


def test_half_as_much_again_for_three_minutes_is_worse():
    told = looks(FINDING, *[weighing(1.5)] * 4)
    assert [(state.at - START, state.phase) for state in told] == [(0, Phase.OPEN), (4 * MINUTE, Phase.WORSENING)]


def test_a_short_peak_is_not_told():
    assert changes(looks(FINDING, *[weighing(9.0)] * 3, *[FINDING] * 5)) == ["opened"]


def test_a_third_less_for_three_minutes_is_better():
    told = looks(FINDING, *[weighing(0.6)] * 4)
    assert told[-1].phase is Phase.EASING


def test_worse_is_measured_from_what_was_told():
    told = looks(FINDING, *[weighing(1.6)] * 5, *[weighing(2.3)] * 5, *[weighing(2.5)] * 5)
    assert [state.finding.weight for state in told] == [1.0, 1.6, 2.5]


def test_a_slow_creep_is_told_though_it_is_small_between_two_reminders():
    told = looks(*[weighing(1.0 + number / 100) for number in range(60)])
    assert Change.WORSENED in {state.change for state in told}


def test_a_higher_severity_is_told_at_once_and_a_lower_one_after_three_minutes():
    harm = replace(FINDING, severity=Severity.HARM)
    told = looks(FINDING, harm, *[FINDING] * 4)
    assert [(state.change, state.at - START) for state in told] == [
        (Change.OPENED, 0),
        (Change.RAISED, MINUTE),
        (Change.LOWERED, 5 * MINUTE),
    ]


def test_a_severity_that_flickers_is_told_once():
    harm = replace(FINDING, severity=Severity.HARM)
    assert changes(looks(FINDING, *[harm, FINDING] * 10)) == ["opened", "raised"]


def test_a_life_without_news_is_told_every_half_hour():
    told = looks(*[FINDING] * 62)
    assert [(state.change, (state.at - START) // MINUTE) for state in told[1:]] == [(Change.STILL, 30), (Change.STILL, 60)]


def test_what_stays_as_bad_as_it_became_is_open_again_at_the_next_reminder():
    told = looks(FINDING, *[weighing(2.0)] * 40)
    assert [state.phase for state in told] == [Phase.OPEN, Phase.WORSENING, Phase.OPEN]


def test_of_two_findings_of_one_key_the_worse_counts():
    done = advance((), [FINDING, replace(FINDING, severity=Severity.HARM), weighing(7.0)], START)
    assert [state.finding.severity for state in done.states] == [Severity.HARM]


def test_a_weight_that_is_not_a_number_is_neither_worse_nor_better():
    assert changes(looks(FINDING, *[weighing(float("nan"))] * 5, *[weighing(float("inf"))] * 5)) == ["opened"]


def test_a_weight_of_nothing_becomes_worse_by_anything():
    assert changes(looks(weighing(0.0), *[weighing(0.1)] * 4)) == ["opened", "worsened"]


def test_a_clock_set_back_tells_nothing_until_it_has_caught_up():
    told, lives = lived(FINDING)
    done = advance(lives, [], START - HOUR, RULES, looked=START)
    assert (done.states, done.lives) == ((), lives)
    assert changes(list(advance(lives, [FINDING], START + MINUTE, RULES, looked=START).states)) == []
    assert told[0].at == START


def test_what_is_found_before_and_after_three_hours_without_a_look_is_one_life_and_says_so():
    _, lives = lived(FINDING)
    done = advance(lives, [FINDING], START + 3 * HOUR, RULES, looked=START)
    assert [(state.change, state.blind_from, state.id) for state in done.states] == [
        (Change.FOUND_AGAIN, START, f"{FINDING.key}-{START}")
    ]


def test_what_ended_while_nobody_looked_closes_with_both_bounds():
    _, lives = lived(FINDING)
    back, looked, told = START + 3 * HOUR, START, []
    for at in range(back, back + 11 * MINUTE, MINUTE):
        done = advance(lives, [], at, RULES, looked=looked)
        lives, looked = done.lives, at
        told += done.states
    assert [(state.change, state.seen, state.missed, state.at) for state in told] == [
        (Change.CLOSED, START, back, back + 10 * MINUTE)
    ]


def test_a_gap_counts_for_no_absence():
    _, lives = lived(FINDING, None)
    done = advance(lives, [], START + HOUR, RULES, looked=START + MINUTE)
    assert done.states == ()


def test_a_finding_that_is_over_opens_and_closes_with_its_own_end():
    past = replace(FINDING, until=START - MINUTE)
    told = looks(*[past] * 60)
    assert [(state.change, state.seen, state.missed) for state in told] == [
        (Change.OPENED, START - MINUTE, None),
        (Change.CLOSED, START - MINUTE, START - MINUTE),
    ]


def test_a_past_whose_end_is_told_a_little_otherwise_opens_no_second_life():
    ends = [replace(FINDING, until=START - MINUTE + number * 1_000_000) for number in range(60)]
    assert changes(looks(*ends)) == ["opened", "closed"]


def test_a_restart_that_knows_only_what_was_told_tells_nothing_twice():
    told, _ = lived(*[FINDING] * 5)
    done = advance(remember(told), [FINDING], START + 5 * MINUTE, RULES, looked=START + 4 * MINUTE)
    assert done.states == ()


def test_a_restart_loses_no_close():
    told, _ = lived(*[FINDING] * 5)
    lives, closed = remember(told), []
    for at in range(START + 5 * MINUTE, START + 20 * MINUTE, MINUTE):
        done = advance(lives, [], at, RULES, looked=at - MINUTE)
        lives = done.lives
        closed += done.states
    assert changes(closed) == ["closed"]


def test_what_another_service_closed_is_closed_here():
    told, lives = lived(FINDING, *[None] * 5)
    closed = replace(told[0], at=START + 5 * MINUTE, phase=Phase.CLOSED, change=Change.CLOSED)
    after = remember([closed], lives)
    assert advance(after, [], START + 20 * MINUTE, RULES, looked=START + 19 * MINUTE).states == ()


def test_what_closed_is_forgotten_after_a_day():
    _, lives = lived(FINDING, *[None] * 11)
    assert advance(lives, [], START + 25 * HOUR, RULES, looked=START + 24 * HOUR).lives == ()


found_or_not = some.lists(
    some.one_of(some.none(), some.floats(0, 10), some.sampled_from(list(Severity))), min_size=1, max_size=80
)


def _finding(what: float | Severity | None) -> list[Finding]:
    if what is None:
        return []
    return [weighing(what)] if isinstance(what, float) else [replace(FINDING, severity=what)]


@given(found_or_not)
def test_every_life_opens_first_and_closes_last_and_once(found: list[float | Severity | None]):
    lives: tuple[Lived, ...] = ()
    told: list[State] = []
    for number, what in enumerate(found):
        at = START + number * MINUTE
        done = advance(lives, _finding(what), at, RULES, looked=at - MINUTE if number else None)
        lives = done.lives
        told += done.states
    for name in {state.id for state in told}:
        mine = [state.change for state in told if state.id == name]
        assert mine[0] is Change.OPENED
        assert Change.OPENED not in mine[1:]
        assert Change.CLOSED not in mine[:-1]
    assert len({(state.id, state.at) for state in told}) == len(told)
    assert sum(not life.closed for life in lives) <= 1


@given(found_or_not, some.data())
def test_two_services_in_turn_with_restarts_tell_each_opening_and_close_once(
    found: list[float | Severity | None], data: some.DataObject
):
    told: list[State] = []
    memories: list[tuple[Lived, ...]] = [(), ()]
    read = [0, 0]
    for number, what in enumerate(found):
        at = START + number * MINUTE
        mine = data.draw(some.integers(0, 1))
        if data.draw(some.booleans()):
            memories[mine], read[mine] = (), 0
        lives = remember(told[read[mine] :], memories[mine])
        done = advance(lives, _finding(what), at, RULES, looked=at - MINUTE if number else None)
        told += done.states
        memories[mine], read[mine] = done.lives, len(told)
    for name in {state.id for state in told}:
        mine_told = [state.change for state in told if state.id == name]
        assert mine_told.count(Change.OPENED) == 1
        assert mine_told.count(Change.CLOSED) <= 1
    opened = [state for state in told if state.change is Change.OPENED]
    closed = [state for state in told if state.change is Change.CLOSED]
    assert len(opened) - len(closed) in (0, 1)
