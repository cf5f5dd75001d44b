import polars as pl
from builders import events
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.carry import carry
from lora_watch.derive.stays import stays
from lora_watch.model import SECOND

MOVES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50), st.integers(1, 30), st.booleans()), max_size=12)


def trace(moves: list[tuple[str, int, int, bool]]) -> pl.LazyFrame:
    """Stays of each adapter one after the other; the last may stay open."""
    words, free = [], dict.fromkeys("abcd", 0)
    for name, gap, length, closed in moves:
        if free[name] < 0:
            continue
        start, end = free[name] + gap, free[name] + gap + length
        words.append(f"{name}:{start}-{end if closed else ''}")
        free[name] = end + 1 if closed else -1
    return events(" ".join(words), start_at=0).lazy()


def still_there(frame: pl.LazyFrame, moment: int) -> pl.DataFrame:
    columns = ["adapter", "loaded_at", "left_at", "left_by"]
    alive = stays(frame).filter(pl.col("left_at").is_null() | (pl.col("left_at") >= moment))
    return alive.select(columns).collect().sort(columns)


@given(MOVES, st.integers(0, 100))
def test_stays_that_reach_into_the_window_are_the_same_from_what_is_carried(moves, moment: int):
    frame, at = trace(moves), moment * SECOND
    assert still_there(carry(frame, at), at).equals(still_there(frame, at))


@given(MOVES, st.integers(0, 60), st.integers(0, 60))
def test_carrying_on_from_an_earlier_moment_is_carrying_from_the_beginning(moves, first: int, more: int):
    frame, early, late = trace(moves), first * SECOND, (first + more) * SECOND
    held = carry(frame.filter(pl.col("at") < early), early)
    on = carry(pl.concat([held, frame.filter(pl.col("at") >= early)]), late)
    assert on.collect().sort("stream", "seq").equals(carry(frame, late).collect().sort("stream", "seq"))


def test_a_long_past_leaves_a_row_for_each_resident_and_the_start():
    words = " ".join(f"a:{2 * i}-{2 * i + 1}" for i in range(100))
    kept = carry(events(f"{words} b:500-", start_at=0).lazy(), 1000 * SECOND).collect()
    assert sorted(kept["kind"].to_list()) == ["load", "start"]


def test_nothing_carried_from_nothing():
    assert carry(events("").lazy(), 5).collect().is_empty()
