"""Advice as the service stores it and as pages read it."""

import polars as pl
import pytest

from lora_watch import jobs
from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError, NotEnoughHistory
from lora_watch.explore.advice import Advised
from lora_watch.explore.stored_advice import FRESH, TABLE, apart, latest, of_pool, rows, table, worked_out
from lora_watch.model import DAY
from lora_watch.recommend.advice import Setup
from lora_watch.recommend.recommend import recommend
from lora_watch.schema import ADVICE, Batch
from lora_watch.store.tables import Store
from tests.histories import drawn, history

NOW = 1_800_000_000_000_000
POOL = ("c", "chat", "")


@pytest.fixture(scope="module")
def found():
    one = history(drawn("abcdef", 4000), pods=2, days=16)
    told = recommend(one, Setup("c/chat", engine="vllm", slots=2))
    return [Advised(POOL, told, {})]


def store_with(folder, frame, at=NOW):
    store = Store(folder)
    store.ledger(ADVICE).append(Batch(frame, {jobs.GIVEN: at}), at=at)
    return store


def test_what_was_stored_comes_back_whole(found, tmp_path):
    (given,) = latest(store_with(tmp_path, rows(found, NOW)), NOW + 1)
    assert (given.pool, given.at, given.sentence) == (POOL, NOW, found[0].recommendation.sentence)
    assert [one["what"] for one in given.detail["advice"]] == [one.what for one in found[0].recommendation.advice]


def test_the_newest_counts(found, tmp_path):
    store = store_with(tmp_path, pl.concat([rows(found, NOW - DAY), rows(found, NOW)]))
    assert [one.at for one in latest(store, NOW + 1)] == [NOW]
    assert [one.at for one in latest(store, NOW)] == [NOW - DAY]


def test_pools_whose_names_read_alike_have_advice_of_their_own(found, tmp_path):
    alike = [("a", "b/c", ""), ("a/b", "c", ""), ("a", "b", "c"), ("a", None, "b/c")]
    store = store_with(tmp_path, rows([Advised(pool, found[0].recommendation, {}) for pool in alike], NOW))
    given = latest(store, NOW + 1)
    assert {one.pool for one in given} == set(alike)
    assert all(of_pool(given, pool) is not None for pool in alike)


def test_old_advice_is_none(found, tmp_path):
    assert latest(store_with(tmp_path, rows(found, NOW)), NOW + FRESH + 1) == ()


def test_without_a_table_there_is_none(tmp_path):
    assert latest(Store(tmp_path), NOW) == ()


@pytest.mark.parametrize("detail", [None, "", "{", "[]", '{"advice": 1}'])
def test_what_cannot_be_read_is_left_out(found, tmp_path, detail):
    broken = rows(found, NOW).with_columns(detail=pl.lit(detail, dtype=pl.String))
    assert latest(store_with(tmp_path, broken), NOW + 1) == ()


def test_the_table_has_a_row_a_change_and_the_articles_rule_last(found, tmp_path):
    (given,) = latest(store_with(tmp_path, rows(found, NOW)), NOW + 1)
    told = table(given)
    assert told.columns == list(TABLE)
    assert told.height == len(found[0].recommendation.advice) + 1
    assert "article" in told["what"][-1]


def test_pins_stand_alone_beside_the_articles_rule(found, tmp_path):
    (given,) = latest(store_with(tmp_path, rows(found, NOW)), NOW + 1)
    told = table(given, ["pins"])
    assert told.height == 2
    assert "article" in told["what"][-1]


def test_slots_alone_have_no_article(found, tmp_path):
    (given,) = latest(store_with(tmp_path, rows(found, NOW)), NOW + 1)
    assert not any("article" in what for what in table(given, ["slots"])["what"])


def test_the_advice_on_a_pool_is_found_by_its_name(found, tmp_path):
    given = latest(store_with(tmp_path, rows(found, NOW)), NOW + 1)
    assert of_pool(given, POOL) is given[0]
    assert of_pool(given, ("c", "other", "")) is None


def test_an_empty_store_has_too_little_for_advice(tmp_path):
    with pytest.raises(NotEnoughHistory):
        worked_out(Store(tmp_path), Settings(), NOW)


def test_what_a_process_of_its_own_raises_is_raised_here(tmp_path):
    with pytest.raises(NotEnoughHistory):
        apart(Store(tmp_path), Settings(), NOW)


def give_twice(store, found, later):
    count = []

    def give():
        count.append(1)
        return rows(found, NOW)

    told = [jobs.advise(store, give, now=at, every=DAY) for at in (NOW, NOW + later)]
    return told, len(count)


def test_advice_is_given_once_a_day(found, tmp_path):
    assert give_twice(Store(tmp_path), found, DAY - 1) == ([1, 0], 1)


def test_advice_is_given_again_the_next_day(found, tmp_path):
    store = Store(tmp_path)
    assert jobs.advise(store, lambda: rows(found, NOW), now=NOW, every=DAY) == 1
    assert jobs.advise(store, lambda: rows(found, NOW + DAY), now=NOW + DAY, every=DAY) == 1


def test_what_another_service_gave_meanwhile_stands(found, tmp_path):
    store = Store(tmp_path)

    def slowly():
        jobs.advise(store, lambda: rows(found, NOW), now=NOW, every=DAY)
        return rows(found, NOW + 1)

    assert jobs.advise(store, slowly, now=NOW + 1, every=DAY) == 0
    assert [one.at for one in latest(store, NOW + 2)] == [NOW]


def test_a_failure_to_give_leaves_it_due(tmp_path, found):
    store = Store(tmp_path)

    def fails():
        raise LoraWatchError("no")

    with pytest.raises(LoraWatchError, match="no"):
        jobs.advise(store, fails, now=NOW, every=DAY)
    assert jobs.advise(store, lambda: rows(found, NOW), now=NOW, every=DAY) == 1
