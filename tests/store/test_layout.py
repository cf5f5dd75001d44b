from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from builders import rows
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from lora_watch.errors import StoreError
from lora_watch.model import DAY, HOUR
from lora_watch.schema import ADAPTER_EVENTS, Batch
from lora_watch.store.layout import FILES_BEFORE_MERGE, Layout
from lora_watch.store.tables import Store

NOW = 20_000 * DAY + HOUR


def append(store: Store, at: int, *, stream: str, pod: str = "pod-0", seq: int | None = None) -> None:
    frame = rows(ADAPTER_EVENTS, [{"at": at, "seq": seq or at, "kind": "use", "adapter": "a", "stream": stream, "pod": pod}])
    store.ledger(ADAPTER_EVENTS).append(Batch(frame, {stream: seq or at}), at=NOW)


def files(root: Path) -> int:
    return len(DeltaTable(root / "adapter_events").file_uris())


def keys(store: Store) -> list[tuple[int, str, int]]:
    return store.scan(ADAPTER_EVENTS).select("bucket", "pod", "at").collect(engine="streaming").rows()


def test_a_closed_day_is_sorted_by_bucket_pod_and_time_and_keeps_every_row(tmp_path: Path):
    store = Store(tmp_path)
    for i in range(6):
        append(store, NOW - DAY + (7 * i) % 6, stream=f"s{i}", pod=f"pod-{i % 3}")
    before = keys(store)
    done = Layout(store, retention_days=180).maintain(NOW)
    assert done.sorted == [f"adapter_events/{date.fromordinal(date(1970, 1, 1).toordinal() + NOW // DAY - 1)}"]
    assert keys(store) == sorted(before)
    assert files(tmp_path) == 1
    assert Layout(store, retention_days=180).maintain(NOW).sorted == []


def test_a_late_row_makes_its_day_sorted_again(tmp_path: Path):
    store, layout = Store(tmp_path), None
    append(store, NOW - DAY + 5, stream="s1")
    layout = Layout(store, retention_days=180)
    layout.maintain(NOW)
    append(store, NOW - DAY + 1, stream="s2")
    assert len(layout.maintain(NOW).sorted) == 1
    assert keys(store) == sorted(keys(store))


def test_today_is_merged_once_it_has_many_files(tmp_path: Path):
    store = Store(tmp_path)
    for i in range(FILES_BEFORE_MERGE):
        append(store, NOW + i, stream=f"s{i}")
    assert len(Layout(store, retention_days=180).maintain(NOW).merged) == 1
    assert files(tmp_path) == 1
    assert len(keys(store)) == FILES_BEFORE_MERGE


def test_days_past_the_retention_are_dropped_and_positions_are_kept(tmp_path: Path):
    store = Store(tmp_path)
    append(store, NOW - 10 * DAY, stream="old")
    append(store, NOW - 2 * DAY, stream="new")
    assert len(Layout(store, retention_days=5).maintain(NOW).dropped) == 1
    assert len(keys(store)) == 1
    assert Store(tmp_path).ledger(ADAPTER_EVENTS).refresh()["old"] == NOW - 10 * DAY


def test_rows_that_come_while_a_day_is_rewritten_are_never_lost(tmp_path: Path):
    """The sort reads a version and overwrites the day; an append in between must make it fail, by the table's own rules."""
    store = Store(tmp_path)
    append(store, NOW - DAY + 2, stream="s1")
    stale = DeltaTable(tmp_path / "adapter_events")
    frame = pl.scan_delta(stale).collect(engine="streaming")
    append(store, NOW - DAY + 1, stream="s2")
    day = date.fromordinal(date(1970, 1, 1).toordinal() + NOW // DAY - 1)
    with pytest.raises(CommitFailedError):
        write_deltalake(stale, frame, mode="overwrite", predicate=f"date = '{day}'")
    assert len(keys(store)) == 2


def test_an_empty_folder_needs_no_maintenance(tmp_path: Path):
    done = Layout(Store(tmp_path / "nothing"), retention_days=1).maintain(NOW)
    assert (done.merged, done.sorted, done.dropped, done.problems) == ([], [], [], [])


def test_a_broken_table_does_not_stop_the_others(tmp_path: Path):
    store = Store(tmp_path)
    append(store, NOW - DAY, stream="s1")
    append(store, NOW - DAY + 1, stream="s2")
    broken = tmp_path / "samples" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("{half")
    done = Layout(store, retention_days=180).maintain(NOW)
    assert len(done.sorted) == 1
    assert any("samples" in problem for problem in done.problems)


def parquet(root: Path) -> list[Path]:
    return sorted((root / "adapter_events").glob("date=*/*.parquet"))


def test_a_file_that_is_gone_is_struck_and_said_and_the_rest_is_read(tmp_path: Path):
    store = Store(tmp_path)
    append(store, NOW + 1, stream="s1")
    gone = parquet(tmp_path)[0]
    append(store, NOW + 2, stream="s2")
    gone.unlink()
    with pytest.raises(StoreError, match="reading table adapter_events"):
        store.rows(ADAPTER_EVENTS)
    done = Layout(store, retention_days=180).maintain(NOW)
    assert ["1 files with 1 rows are gone or damaged" in problem for problem in done.problems] == [True]
    assert store.rows(ADAPTER_EVENTS)["stream"].to_list() == ["s2"]
    assert Layout(store, retention_days=180).repair() == []


def test_a_file_cut_by_a_power_failure_is_kept_aside_and_the_rest_is_read(tmp_path: Path):
    store = Store(tmp_path)
    append(store, NOW + 1, stream="s1")
    cut = parquet(tmp_path)[0]
    append(store, NOW + 2, stream="s2")
    cut.write_bytes(b"")
    with pytest.raises(StoreError, match="reading table adapter_events"):
        store.newest(ADAPTER_EVENTS)
    assert len(Layout(store, retention_days=180).repair()) == 1
    assert store.rows(ADAPTER_EVENTS)["stream"].to_list() == ["s2"]
    assert cut.with_name(f"{cut.name}.damaged").exists()


def test_two_that_merge_at_once_leave_every_row_once(tmp_path: Path):
    store = Store(tmp_path)
    for i in range(FILES_BEFORE_MERGE):
        append(store, NOW + i, stream=f"s{i}")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Layout(store, retention_days=180).maintain(NOW), range(8)))
    assert sorted(at for _, _, at in keys(store)) == [NOW + i for i in range(FILES_BEFORE_MERGE)]


def test_a_merge_that_began_before_another_ended_changes_nothing(tmp_path: Path):
    """Of two rewrites from one version the second fails, by the table's own rules; the library's compaction would not."""
    store = Store(tmp_path)
    for i in range(3):
        append(store, NOW + i, stream=f"s{i}")
    stale = DeltaTable(tmp_path / "adapter_events")
    frame = pl.scan_delta(stale).collect(engine="streaming")
    day = date.fromordinal(date(1970, 1, 1).toordinal() + NOW // DAY)
    write_deltalake(DeltaTable(tmp_path / "adapter_events"), frame, mode="overwrite", predicate=f"date = '{day}'")
    with pytest.raises(CommitFailedError):
        write_deltalake(stale, frame, mode="overwrite", predicate=f"date = '{day}'")
    assert len(keys(store)) == 3
