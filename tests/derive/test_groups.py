import polars as pl
import pytest

from lora_watch.derive.groups import group_columns, overlap_seconds, worst_provenance


def test_a_word_that_is_no_provenance_counts_as_the_worst():
    frame = pl.DataFrame({"provenance": ["observed", "gossip"]})
    assert frame.select(worst_provenance()).item() == "desired"


def test_no_provenance_at_all_stays_unknown():
    frame = pl.DataFrame({"provenance": [None]}, schema={"provenance": pl.String})
    assert frame.select(worst_provenance()).item() is None


def test_role_is_kept_where_pods_share_a_row_and_not_where_they_do_not():
    assert group_columns(("pool",)) == ["pool", "role"]
    assert group_columns(("adapter", "pod", "cluster")) == ["cluster", "pod", "adapter"]


def test_an_unknown_column_is_refused_by_name():
    with pytest.raises(ValueError, match="cannot group by 'node', 'zone'"):
        group_columns(("zone", "node", "pod"))


@pytest.mark.parametrize(
    ("start", "end", "seconds"), [(0, 5, 0.0), (0, 15, 5.0), (12, 15, 3.0), (12, None, 8.0), (25, None, 0.0)]
)
def test_overlap_is_what_lies_inside_the_window(start: int, end: int | None, seconds: float):
    frame = pl.DataFrame(
        {"s": [start * 1_000_000], "e": [None if end is None else end * 1_000_000]}, schema={"s": pl.Int64, "e": pl.Int64}
    )
    assert frame.select(overlap_seconds(pl.col("s"), pl.col("e"), 10_000_000, 20_000_000)).item() == seconds
