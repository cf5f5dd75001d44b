"""Answers are worked out once, in the background, and forgotten in the order in which they were last asked for."""

from concurrent.futures import wait
from threading import Event

import polars as pl
import pytest

from lora_watch.errors import LoraWatchError, StoreError
from lora_watch.explore.answers import Answers, weight_of


@pytest.fixture
def answers():
    made = Answers(keep=2, workers=1)
    yield made
    made.close()


def test_the_same_question_is_worked_out_once(answers: Answers):
    asked: list[int] = []
    first = answers.ask("q", lambda: asked.append(1))
    again = answers.ask("q", lambda: asked.append(2))
    wait([first, again])
    assert asked == [1]


def test_who_asks_does_not_wait(answers: Answers):
    gate = Event()
    promised = answers.ask("slow", gate.wait)
    assert not promised.done()
    gate.set()
    assert promised.result(timeout=10)


def test_what_was_not_asked_for_longest_is_forgotten(answers: Answers):
    for question in ("a", "b", "a", "c"):
        answers.ask(question, lambda question=question: question).result(timeout=10)
    assert answers.ask("a", lambda: "new").result(timeout=10) == "a"
    assert answers.ask("b", lambda: "new").result(timeout=10) == "new"
    assert len(answers) == 2


def test_answers_that_hold_more_than_there_is_room_for_are_forgotten():
    answers = Answers(room=3000, workers=1)
    rows = pl.DataFrame({"at": range(200)})  # 1,600 bytes
    for question in ("a", "b"):
        answers.ask(question, lambda: (rows,)).result(timeout=10)
    answers.close()
    assert len(answers) == 1
    assert answers.bytes < 3000


def test_an_answer_larger_than_all_the_room_is_kept_until_the_next():
    answers = Answers(room=1000, workers=1)
    first = answers.ask("a", lambda: pl.DataFrame({"at": range(200)}))
    assert answers.ask("a", lambda: None) is first
    answers.ask("b", lambda: None).result(timeout=10)
    answers.close()
    assert len(answers) == 1


def test_the_newest_of_a_line_is_not_kept_where_it_is_too_large():
    answers = Answers(room=1000)
    answers.keep("line", 1, pl.DataFrame({"at": range(200)}))
    answers.keep("other", 1, "small")
    assert answers.newest("line") is None
    assert answers.newest("other") == (1, "small")
    answers.close()


def test_what_an_answer_holds_is_counted_through_all_that_hold_it():
    rows = pl.DataFrame({"at": range(1000)})
    assert weight_of({"a": [(rows,), rows]}) > 16_000


def test_what_is_forgotten_before_its_turn_is_not_worked_out(answers: Answers):
    gate = Event()
    answers.ask("first", gate.wait)
    dropped = answers.ask("second", lambda: "worked out")
    answers.ask("third", lambda: None)
    answers.ask("fourth", lambda: None)
    assert dropped.cancelled()
    gate.set()


def test_a_failure_is_told_and_then_tried_again(answers: Answers):
    def fails() -> str:
        raise StoreError("a file of it is gone")

    wait([answers.ask("q", fails)])
    with pytest.raises(LoraWatchError, match="is gone"):
        answers.ask("q", lambda: "well").result(timeout=10)
    assert answers.ask("q", lambda: "well").result(timeout=10) == "well"
