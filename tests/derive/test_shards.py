import polars as pl
import pytest
from builders import events

from lora_watch.derive.residency import residency
from lora_watch.derive.shards import bucket_ranges, by_shards
from lora_watch.derive.stays import stays
from lora_watch.derive.swaps import swaps
from lora_watch.model import HOUR, Window
from lora_watch.schema import BUCKETS

WINDOW = Window(0, HOUR)


def test_ranges_cover_every_bucket_once():
    covered = [bucket for low, high in bucket_ranges(7) for bucket in range(low, high)]
    assert covered == list(range(BUCKETS))


def test_more_shards_than_buckets_are_one_a_bucket():
    assert len(list(bucket_ranges(1000))) == BUCKETS


def test_no_shards_are_refused():
    with pytest.raises(ValueError, match="at least one shard"):
        bucket_ranges(0)


def test_shards_put_together_are_the_whole():
    log = pl.concat([events(f"a:0-{10 + n} b:5-{20 + n}", pod=f"pod-{n}") for n in range(6)]).lazy()

    def derivation(part: pl.LazyFrame) -> dict[str, pl.LazyFrame]:
        return {"residency": residency(stays(part), WINDOW), "swaps": swaps(part, WINDOW)}

    few = by_shards(derivation, [log])
    sharded = by_shards(derivation, [log], shards=5)
    assert few["swaps"].sort("pod").equals(sharded["swaps"].sort("pod"))
    assert sharded["residency"].sort("pod").equals(residency(stays(log), WINDOW).sort("pod").collect())
    assert sharded["swaps"].sort("pod").equals(swaps(log, WINDOW).sort("pod").collect())
