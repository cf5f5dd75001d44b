import polars as pl
from derive.asked import QUICK, asked, traffic
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.expected import parse
from lora_watch.derive.first_seen import SHOWN, Newness, first_seen, newmass, no_first_seen
from lora_watch.model import DAY, HOUR, MINUTE, SECOND

OLD = first_seen(no_first_seen(), asked([(0, "old"), (1, None)]).lazy())
NOW = 2 * DAY


def at(seconds_ago: float, *names: str | None, **common: object) -> pl.DataFrame:
    return asked([(NOW / SECOND - seconds_ago, name) for name in names], **common)


def test_the_first_time_stays_whatever_comes_later():
    later = first_seen(OLD, asked([(50, "old"), (60, "new")]).lazy())
    assert later.select("adapter", "first_seen").rows() == [(None, SECOND), ("new", 60 * SECOND), ("old", 0)]


def test_what_is_handed_over_again_or_late_moves_nothing_but_the_past():
    assert first_seen(OLD, asked([(0, "old")]).lazy()).equals(OLD)
    assert (
        first_seen(first_seen(no_first_seen(), asked([(9, "a")]).lazy()), asked([(3, "a")]).lazy())["first_seen"].item()
        == 3 * SECOND
    )


@QUICK
@given(traffic(), st.integers(0, 60))
def test_parts_merge_to_the_whole_in_either_order(frame: pl.DataFrame, cut: int):
    whole = first_seen(no_first_seen(), frame.lazy())
    one, two = (first_seen(no_first_seen(), part.lazy()) for part in (frame.head(cut), frame.tail(max(frame.height - cut, 0))))
    assert first_seen(one, two.lazy()).equals(whole)
    assert first_seen(two, one.lazy()).equals(whole)


def test_new_mass_is_the_share_of_requests_on_adapters_of_the_last_hour():
    frame = at(30, "old", "old", "old", "x-experiment", None)
    row = newmass(frame.lazy(), first_seen(OLD, frame.lazy()), NOW).row(0, named=True)
    assert (row["requests"], row["newmass"], row["new_adapters"], row["new_count"]) == (5, 0.2, ["x-experiment"], 1)
    assert (row["new_since"], row["learning"], row["provenance"]) == (NOW - 30 * SECOND, False, "observed")


def test_after_an_hour_it_is_not_new_any_more():
    frame = at(30, "x")
    seen = first_seen(OLD, at(3600, "x").lazy())
    assert newmass(frame.lazy(), seen, NOW)["newmass"].item() == 0.0


def test_only_the_last_two_minutes_count():
    frame = pl.concat([at(121, "x"), at(119, "old", stream="s")])
    assert newmass(frame.lazy(), first_seen(OLD, frame.lazy()), NOW).select("requests", "newmass").rows() == [(1, 0.0)]


def test_an_adapter_nobody_has_recorded_is_new_and_the_base_model_never_is():
    row = newmass(at(5, "x", None).lazy(), OLD, NOW).row(0, named=True)
    assert (row["newmass"], row["new_adapters"]) == (0.5, ["x"])
    assert newmass(at(5, None).lazy(), no_first_seen(), NOW)["newmass"].item() == 0.0


def test_on_its_first_day_a_pool_is_learned():
    frame = at(60, "x")
    row = newmass(frame.lazy(), first_seen(no_first_seen(), frame.lazy()), NOW).row(0, named=True)
    assert (row["newmass"], row["learning"], row["learning_until"]) == (1.0, True, NOW - MINUTE + DAY)
    quick = Newness(learning=MINUTE)
    assert not newmass(frame.lazy(), first_seen(no_first_seen(), frame.lazy()), NOW, newness=quick)["learning"].item()


def test_nothing_recorded_at_all_is_learning_too():
    assert newmass(at(5, "x").lazy(), no_first_seen(), NOW)["learning"].item()


def test_what_was_announced_stands_beside_and_not_in_the_new_mass():
    plan = parse("- {start: 1970-01-02T23:00Z, end: 1970-01-03T01:00Z, adapters: ['*-experiment']}")
    row = newmass(at(5, "a-experiment", "b", "old", "old").lazy(), OLD, NOW, expected=plan).row(0, named=True)
    assert (row["newmass"], row["new_adapters"]) == (0.25, ["b"])
    assert (row["expected_newmass"], row["expected_adapters"]) == (0.25, ["a-experiment"])


def test_pools_are_apart_and_the_most_asked_come_first():
    frame = pl.concat([at(5, "x", "y", "y"), at(5, "old", pool="q", stream="q")])
    told = newmass(frame.lazy(), OLD, NOW)
    assert told.select("pool", "new_adapters").rows() == [("p", ["y", "x"]), ("q", ["old"])]


def test_names_are_cut_and_counted():
    row = newmass(at(5, *(f"n{i}" for i in range(SHOWN + 5))).lazy(), OLD, NOW).row(0, named=True)
    assert (len(row["new_adapters"]), row["new_count"]) == (SHOWN, SHOWN + 5)


def test_rows_said_twice_count_once_and_silence_has_no_row():
    frame = at(5, "x", "old")
    assert newmass(pl.concat([frame, frame]).lazy(), OLD, NOW)["requests"].item() == 2
    assert newmass(frame.lazy(), OLD, NOW + HOUR).is_empty()
