import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from builders import events, rows
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.errors import SchemaMismatch, StoreConflict, StoreError, StoreFull
from lora_watch.model import SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch, bucket_of
from lora_watch.store.tables import Store

STREAM = "agent/c/pod-0/boot"
HOSTILE = ["'", '"', "a,b", "new\nline", "{}", "</script>", "../../etc/passwd", "x" * 10_000, "ابجد", "🦙", "", " ", "\x00"]


def uses(*seqs: int, at: int = 0, **common: object) -> pl.DataFrame:
    return rows(ADAPTER_EVENTS, [{"at": at + seq, "seq": seq, "kind": "use", "adapter": f"a{seq}"} for seq in seqs], **common)


def sample(at: int, value: float, series: str = "s") -> dict[str, object]:
    return {"at": at, "series": series, "metric": "m", "labels": "{}", "value": value}


def stored(store: Store) -> list[int]:
    return sorted(store.scan(ADAPTER_EVENTS).select("seq").collect(engine="streaming")["seq"].to_list())


def test_a_table_nobody_wrote_reads_as_empty_with_all_columns(tmp_path: Path):
    frame = Store(tmp_path).scan(REQUESTS).collect(engine="streaming")
    assert frame.is_empty()
    assert frame.columns == list(REQUESTS.schema)


def test_rows_come_out_as_they_went_in(tmp_path: Path):
    store, frame = Store(tmp_path), events("a:0-30 b!:10- c:-20", start_at=0)
    store.ledger(ADAPTER_EVENTS).append(Batch(frame, {STREAM: 5}), at=1)
    assert store.scan(ADAPTER_EVENTS).collect(engine="streaming").sort("seq").equals(frame)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_passes_through_unchanged(tmp_path: Path, name: str):
    store = Store(tmp_path)
    stream = f"agent/c/{name}/boot"
    frame = rows(ADAPTER_EVENTS, [{"at": 1, "kind": "use", "adapter": name, "pod": name, "stream": stream}])
    ledger = store.ledger(ADAPTER_EVENTS)
    ledger.append(Batch(frame, {stream: 1}), at=1)
    back = store.scan(ADAPTER_EVENTS, pods=pl.DataFrame({"cluster": ["c"], "pod": [name]})).collect(engine="streaming")
    assert back["adapter"].to_list() == [name]
    assert Store(tmp_path).ledger(ADAPTER_EVENTS).refresh()[stream] == 1


def test_a_pod_of_the_same_name_in_another_cluster_is_another_pod(tmp_path: Path):
    same = next(f"c{i}" for i in range(1000) if i != 1 and bucket_of(f"c{i}", "p") == bucket_of("c1", "p"))
    store, ledger = Store(tmp_path), Store(tmp_path).ledger(ADAPTER_EVENTS)
    for cluster in ("c1", same):
        ledger.append(Batch(uses(1, cluster=cluster, pod="p", stream=cluster), {cluster: 1}), at=1)
    asked = pl.DataFrame({"cluster": [same], "pod": ["p"]})
    assert store.scan(ADAPTER_EVENTS, pods=asked).collect(engine="streaming")["cluster"].to_list() == [same]
    assert store.scan(ADAPTER_EVENTS, pods=asked.clear()).collect(engine="streaming").is_empty()


def test_writing_twice_is_writing_once(tmp_path: Path):
    store = Store(tmp_path)
    ledger = store.ledger(ADAPTER_EVENTS)
    first = ledger.append(Batch(uses(1, 2, 3), {STREAM: 3}), at=1)
    second = ledger.append(Batch(uses(1, 2, 3), {STREAM: 3}), at=1)
    assert (first.rows, second.rows, second.duplicates, second.regressed) == (3, 0, 3, (STREAM,))
    assert stored(store) == [1, 2, 3]


def test_a_position_that_goes_back_is_refused_with_its_rows(tmp_path: Path):
    store = Store(tmp_path)
    ledger = store.ledger(ADAPTER_EVENTS)
    ledger.append(Batch(uses(5), {STREAM: 5}), at=1)
    assert ledger.append(Batch(uses(6), {STREAM: 4}), at=1).regressed == (STREAM,)
    assert ledger.refresh()[STREAM] == 5
    assert stored(store) == [5]


def test_a_stream_that_moved_without_rows_is_remembered(tmp_path: Path):
    Store(tmp_path).ledger(ADAPTER_EVENTS).append(Batch(ADAPTER_EVENTS.empty(), {STREAM: 7}), at=1)
    assert Store(tmp_path).ledger(ADAPTER_EVENTS).refresh()[STREAM] == 7


def test_how_far_a_stream_has_come_is_read_without_making_a_table(tmp_path: Path):
    store = Store(tmp_path)
    assert store.position(REQUESTS, "s") is None
    assert not (tmp_path / REQUESTS.name).exists()
    store.ledger(REQUESTS).append(Batch(REQUESTS.empty(), {"s": 7}), at=1)
    assert (store.position(REQUESTS, "s"), store.position(REQUESTS, "other")) == (7, None)


def test_two_writers_of_one_stream_conflict_and_the_second_stores_nothing(tmp_path: Path):
    one, two = Store(tmp_path).ledger(ADAPTER_EVENTS), Store(tmp_path).ledger(ADAPTER_EVENTS)
    one.refresh(), two.refresh()
    one.append(Batch(uses(1, 2), {STREAM: 2}), at=1)
    with pytest.raises(StoreConflict, match="another writer"):
        two.append(Batch(uses(1, 2), {STREAM: 2}), at=1)
    assert two.refresh()[STREAM] == 2
    assert stored(Store(tmp_path)) == [1, 2]


def test_a_position_moved_by_another_writer_is_not_remembered_from_before(tmp_path: Path):
    one, two = Store(tmp_path).ledger(ADAPTER_EVENTS), Store(tmp_path).ledger(ADAPTER_EVENTS)
    assert one.refresh().get(STREAM) is None
    two.append(Batch(uses(1, 2), {STREAM: 2}), at=1)
    one.append(
        Batch(uses(1, at=9, stream="other"), {"other": 1}), at=1
    )  # another stream: no conflict, but the handle has moved on
    assert one.append(Batch(uses(1, 2), {STREAM: 2}), at=1).rows == 0
    assert stored(Store(tmp_path)) == [1, 1, 2]


def test_a_sample_read_again_within_the_lag_is_stored_once(tmp_path: Path):
    store = Store(tmp_path)
    ledger = store.ledger(SAMPLES)
    first = rows(SAMPLES, [sample(1, 1.0), sample(2, 2.0)])
    again = rows(SAMPLES, [sample(2, 2.0), sample(3, 3.0), sample(3, 3.0)])
    assert ledger.append(Batch(first, {"prom/x": 3}), at=1).rows == 2
    assert ledger.append(Batch(again, {"prom/x": 4}), at=1).duplicates == 2
    assert sorted(store.scan(SAMPLES).collect(engine="streaming")["at"].to_list()) == [1, 2, 3]


def test_nan_and_infinity_survive(tmp_path: Path):
    store = Store(tmp_path)
    store.ledger(SAMPLES).append(Batch(rows(SAMPLES, [sample(1, float("nan")), sample(2, float("inf"))]), {"prom/x": 3}), at=1)
    assert [str(v) for v in store.scan(SAMPLES).collect(engine="streaming").sort("at")["value"].to_list()] == ["nan", "inf"]


def test_a_scan_opens_only_the_window(tmp_path: Path):
    store = Store(tmp_path)
    frame = uses(1, 2, 3, at=10 * SECOND)
    store.ledger(ADAPTER_EVENTS).append(Batch(frame, {STREAM: 3}), at=1)
    window = Window(10 * SECOND + 2, 10 * SECOND + 3)
    assert store.scan(ADAPTER_EVENTS, window).collect(engine="streaming")["seq"].to_list() == [2]


def test_a_frame_with_a_column_nobody_declared_is_refused_by_name():
    with pytest.raises(SchemaMismatch, match="has no column 'surprise'"):
        ADAPTER_EVENTS.conform(uses(1).with_columns(surprise=1))


def test_a_frame_with_a_value_of_another_type_is_refused_by_table():
    with pytest.raises(SchemaMismatch, match="adapter_events: a value does not fit"):
        ADAPTER_EVENTS.conform(uses(1).with_columns(seq=pl.lit("one")))


def test_a_frame_with_a_null_key_is_refused_by_column():
    with pytest.raises(SchemaMismatch, match="'seq' is never null"):
        ADAPTER_EVENTS.conform(uses(1).with_columns(seq=pl.lit(None, dtype=pl.Int64)))


def test_a_table_of_a_newer_version_is_refused(tmp_path: Path):
    store = Store(tmp_path)
    store.ledger(SAMPLES)
    from deltalake import DeltaTable, Field

    DeltaTable(tmp_path / "samples").alter.add_columns([Field("later", "string")])
    with pytest.raises(SchemaMismatch, match="newer version"):
        Store(tmp_path).ledger(SAMPLES)


def test_a_broken_log_says_which_table(tmp_path: Path):
    store = Store(tmp_path)
    store.ledger(SAMPLES)
    (tmp_path / "samples" / "_delta_log" / f"{0:020}.json").write_text("{half")
    with pytest.raises(StoreError, match="table samples"):
        Store(tmp_path).scan(SAMPLES).collect()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), max_size=12), st.randoms(use_true_random=False))
def test_any_overlap_of_reads_leaves_every_row_once(tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, int]], rng):
    store = Store(tmp_path_factory.mktemp("store"))
    ledger, last = store.ledger(ADAPTER_EVENTS), 0
    for start, length in reads:
        first = min(start, last + 1)
        seqs = list(range(first, first + length))
        rng.shuffle(seqs)
        ledger.append(Batch(uses(*seqs), {STREAM: max(seqs)}), at=1)
        last = max(last, max(seqs))
    assert stored(store) == list(range(1, last + 1))


def write_all(root: str, total: int) -> None:
    from builders import rows as build

    ledger = Store(root).ledger(ADAPTER_EVENTS)
    while (position := ledger.refresh().get(STREAM, 0)) < total:
        seqs = range(position + 1, min(position + 8, total + 1))
        frame = build(ADAPTER_EVENTS, [{"at": seq, "seq": seq, "kind": "use", "adapter": "a"} for seq in seqs])
        try:
            ledger.append(Batch(frame, {STREAM: seqs[-1]}), at=1)
        except StoreConflict:
            continue


def test_two_processes_writing_one_store_leave_no_row_twice_and_none_missing(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_all, args=(str(tmp_path), 300)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert stored(Store(tmp_path)) == list(range(1, 301))


def test_a_killed_writer_leaves_rows_and_position_or_neither(tmp_path: Path):
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    script = f"import sys; sys.path[:0] = {folders!r}; import test_tables; test_tables.write_all({str(tmp_path)!r}, 10**6)"
    Store(tmp_path).ledger(ADAPTER_EVENTS)
    seen = 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", script])
        while (now := len(os.listdir(tmp_path / "adapter_events" / "_delta_log"))) < seen + 5:
            assert process.poll() is None
        seen = now
        process.send_signal(signal.SIGKILL)
        process.wait()
        position = Store(tmp_path).ledger(ADAPTER_EVENTS).refresh()[STREAM]
        assert stored(Store(tmp_path)) == list(range(1, position + 1))


def test_a_full_disk_is_said_and_the_next_append_works(small_disk: Path):
    store = Store(small_disk)
    ledger = store.ledger(ADAPTER_EVENTS)
    ledger.append(Batch(uses(1), {STREAM: 1}), at=1)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (4 << 20))
    for _ in range(3):
        with pytest.raises(StoreFull, match="no space is left"):
            ledger.append(Batch(uses(2, 3), {STREAM: 3}), at=1)
    filler.unlink()
    ledger.refresh()
    assert ledger.append(Batch(uses(2, 3), {STREAM: 3}), at=1).rows == 2
    assert stored(store) == [1, 2, 3]


def test_a_ledger_whose_folder_was_deleted_says_so_and_a_new_one_begins_anew(tmp_path: Path):
    store, old = Store(tmp_path), Store(tmp_path).ledger(ADAPTER_EVENTS)
    old.append(Batch(uses(1), {STREAM: 1}), at=0)
    old.append(Batch(uses(2), {STREAM: 2}), at=0)
    shutil.rmtree(tmp_path / "adapter_events")
    with pytest.raises(StoreError, match="deleted or replaced"):
        old.refresh()
    again = store.ledger(ADAPTER_EVENTS)
    assert dict(again.refresh()) == {}
    with pytest.raises(StoreError, match="deleted or replaced"):
        old.refresh()


def test_a_column_that_an_older_version_did_not_write_reads_as_null(tmp_path: Path):
    write_deltalake(str(tmp_path / "adapter_events"), uses(1, 2).drop("clock", "lookup"), partition_by=["date"])
    store = Store(tmp_path)
    assert store.rows(ADAPTER_EVENTS, columns=["clock"])["clock"].to_list() == [None, None]
    assert store.rows(ADAPTER_EVENTS, Window(0, 10), pl.col("clock").is_null())["adapter"].to_list() == ["a1", "a2"]


@pytest.mark.parametrize(
    "frame",
    [
        uses(1).with_columns(pl.col("at").cast(pl.String)),
        uses(1).with_columns(pl.col("seconds").cast(pl.String)),
        uses(1).drop("seq"),
    ],
)
def test_a_table_of_others_is_told_from_ours_by_its_columns(tmp_path: Path, frame: pl.DataFrame):
    write_deltalake(str(tmp_path / "adapter_events"), frame, partition_by=["date"])
    with pytest.raises(SchemaMismatch, match="none of ours"):
        Store(tmp_path).newest(ADAPTER_EVENTS)


def test_a_damaged_log_is_told_with_what_to_do(tmp_path: Path):
    write_deltalake(str(tmp_path / "adapter_events"), uses(1), partition_by=["date"])
    next((tmp_path / "adapter_events" / "_delta_log").glob("*.json")).write_text('{"x')
    with pytest.raises(StoreError, match="put the folder back from a copy"):
        Store(tmp_path).newest(ADAPTER_EVENTS)
