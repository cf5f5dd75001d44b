import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.agent.lines import API, WORKER, Header, segment_name, to_line
from lora_watch.agent.log import LogReader

BOOT = "0f0e0d0c-0000-4000-8000-000000000001"


def line(seq, kind="use", boot=BOOT, **fields):
    return to_line({"v": 1, "boot": boot, "seq": seq, "at": 1000 + seq, "kind": kind, "engine": "0", "tp_rank": 0, **fields})


def write(folder, segments, header=None, boot=BOOT):
    """Segments as {first seq: bytes}; the header as it stood."""
    for first, data in segments.items():
        (folder / segment_name(boot, first)).write_bytes(data)
    if header is not None:
        (folder / f"{boot}.head").write_bytes(header.to_bytes())


def reader(folder, *, alive=True):
    return LogReader(folder, alive=lambda _path: alive)


def read(folder, *, alive=True, boot=BOOT, **options):
    lines, position = reader(folder, alive=alive).read(boot, **options)
    return [json.loads(text) for text in lines], position


def losses(records):
    return [tuple(r[name] for name in ("seq", "first", "last", "count", "reason")) for r in records if r["kind"] == "lost"]


def test_lines_are_served_as_they_were_written(tmp_path):
    data = line(1, adapter="ü\x00") + line(2, seconds=0.1)
    write(tmp_path, {1: data})
    assert b"".join(reader(tmp_path).read(BOOT)[0]) == data


@given(st.lists(st.sampled_from(["good", "torn", "gone"]), max_size=30), st.integers(1, 4))
def test_parsed_records_are_what_the_lines_say_read_a_few_at_a_time(tmp_path_factory, fates, limit):
    folder = tmp_path_factory.mktemp("log")
    text = {"good": line, "torn": lambda seq: line(seq)[:30] + b"\n", "gone": lambda seq: b""}
    write(folder, {1: b"".join(text[fate](seq) for seq, fate in enumerate(fates, 1))}, Header(issued=len(fates), role=WORKER))
    log, whole, found, position = reader(folder, alive=False), read(folder, alive=False)[0], [], 0
    for _ in range(len(fates) + 2):
        records, position = log.records(BOOT, position, limit)
        found += records
    assert found == whole


def test_a_torn_last_line_is_not_served_until_it_is_whole(tmp_path):
    write(tmp_path, {1: line(1) + line(2)[:-5]})
    log = reader(tmp_path)
    assert log.read(BOOT)[1] == 1
    write(tmp_path, {1: line(1) + line(2)})
    lines, position = log.read(BOOT, after=1)
    assert (lines, position) == ([line(2)], 2)


def test_garbage_in_the_place_of_a_record_is_a_loss(tmp_path):
    write(tmp_path, {1: line(1) + line(2)[:20] + b"\n" + line(3)})
    records, position = read(tmp_path)
    assert (losses(records), position) == ([(2, 2, 2, 1, "garbage")], 3)


def test_garbage_where_nothing_is_missing_is_passed_over(tmp_path):
    write(tmp_path, {1: line(1) + b"\xff\x00 garbage\n\n[]\n" + line(2)})
    assert losses(read(tmp_path)[0]) == []


def test_a_missing_record_is_a_gap(tmp_path):
    write(tmp_path, {1: line(1) + line(4)})
    assert losses(read(tmp_path)[0]) == [(3, 2, 3, 2, "gap")]


def test_deleted_segments_are_lost_to_the_cap_for_who_had_not_come_so_far(tmp_path):
    write(tmp_path, {11: line(11) + line(12)})
    assert losses(read(tmp_path)[0]) == [(10, 1, 10, 10, "cap")]
    assert losses(read(tmp_path, after=4)[0]) == [(10, 5, 10, 6, "cap")]
    assert losses(read(tmp_path, after=10)[0]) == []


def test_a_loss_the_writer_owned_up_to_is_not_reported_twice(tmp_path):
    write(tmp_path, {1: line(1) + line(5, "lost", first=2, last=5, count=4, reason="disk") + line(6)})
    assert losses(read(tmp_path)[0]) == [(5, 2, 5, 4, "disk")]


@pytest.mark.parametrize(
    ("issued", "opened", "expected"),
    [(2, 0, (3, 3, 2, 0)), (2, 1, (3, 3, 3, 1)), (5, 2, (7, 3, 7, 5))],
)
def test_a_death_is_told_once_and_the_same_at_every_reading(tmp_path, issued, opened, expected):
    write(tmp_path, {1: line(1) + line(2) + b'{"v":1,"bo'}, Header(issued=issued, open=opened, role=WORKER))
    records, position = read(tmp_path, alive=False)
    assert losses(records) == [(*expected, "killed")]
    assert (records[-1]["at"], position) == (1002, expected[0])
    assert read(tmp_path, alive=False, after=1)[0][-1] == records[-1]
    assert read(tmp_path, alive=False, after=position) == ([], position)
    assert reader(tmp_path, alive=False).boots()[0].last_seq == position


def test_an_orderly_end_is_no_death(tmp_path):
    write(tmp_path, {1: line(1) + line(2, "stop")}, Header(issued=2, stopped=1))
    assert read(tmp_path, alive=False)[1] == 2


def test_a_dead_log_whose_segments_are_all_gone_is_lost_to_the_cap(tmp_path):
    write(tmp_path, {}, Header(issued=9, open=1, started_at=77))
    records, position = read(tmp_path, alive=False, after=4)
    assert (losses(records), records[0]["at"], position) == ([(10, 5, 10, 6, "cap")], 77, 10)


def test_a_log_cut_to_nothing_and_written_on_is_read_on(tmp_path):
    write(tmp_path, {1: line(1) + line(2) + line(3)})
    log = reader(tmp_path)
    assert log.read(BOOT)[1] == 3
    os.truncate(tmp_path / segment_name(BOOT, 1), 0)
    (tmp_path / segment_name(BOOT, 1)).write_bytes(line(5))
    lines, position = log.read(BOOT, after=3)
    assert (losses([json.loads(text) for text in lines]), position) == ([(4, 4, 4, 1, "gap")], 5)


def test_a_log_cut_to_nothing_and_grown_past_its_old_size_is_read_from_its_beginning(tmp_path):
    write(tmp_path, {1: b"".join(line(i) for i in range(1, 10))})
    log = reader(tmp_path)
    assert log.read(BOOT)[1] == 9
    write(tmp_path, {1: b"".join(line(i, adapter="é" * 9) for i in range(10, 40))})
    lines, position = log.read(BOOT, after=9)
    assert ([json.loads(text)["seq"] for text in lines], position) == (list(range(10, 40)), 39)


def test_a_filter_passes_over_and_still_advances(tmp_path):
    write(tmp_path, {1: line(1) + line(2, "request") + line(3)})
    records, position = read(tmp_path, kinds={"request"})
    assert ([r["seq"] for r in records], position) == ([2], 3)


def test_a_limit_says_how_far_the_answer_came(tmp_path):
    write(tmp_path, {1: b"".join(line(i) for i in range(1, 10))})
    assert [read(tmp_path, after=after, limit=4)[1] for after in (0, 4, 8)] == [4, 8, 9]


def test_a_line_without_end_costs_no_memory(tmp_path):
    write(tmp_path, {1: line(1) + b"x" * (3 << 20) + b"\n" + line(2)})
    assert [r["seq"] for r in read(tmp_path)[0]] == [1, 2]


def test_a_line_of_another_process_is_garbage(tmp_path):
    write(tmp_path, {1: line(1) + line(2, boot=BOOT[:-1] + "2") + line(3)})
    assert losses(read(tmp_path)[0]) == [(2, 2, 2, 1, "garbage")]


def test_what_is_no_log_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    os.mkfifo(tmp_path / segment_name(BOOT, 1))
    (tmp_path / segment_name(BOOT, 7)).symlink_to("/etc/passwd")
    (tmp_path / f"{BOOT}.head").write_bytes(b"short")
    assert reader(tmp_path).boots() == []


def test_a_folder_that_is_not_there_holds_no_logs(tmp_path):
    assert LogReader(tmp_path / "none").boots() == []
    assert LogReader(tmp_path / "none").read(BOOT, after=3) == ([], 3)


def test_boots_come_oldest_first_with_role_and_reach(tmp_path):
    other = BOOT[:-1] + "2"
    write(tmp_path, {1: line(1), 2: line(2)}, Header(issued=2, role=WORKER, started_at=50))
    write(tmp_path, {1: line(1, boot=other)}, Header(issued=1, role=2, started_at=20), boot=other)
    rows = [(boot.boot, boot.role, boot.first_seq, boot.last_seq, boot.started_at) for boot in reader(tmp_path).boots()]
    assert rows == [(other, "api", 1, 1, 20), (BOOT, "worker", 1, 2, 50)]


def test_a_process_that_is_worker_and_api_server_is_both(tmp_path):
    write(tmp_path, {1: line(1)}, Header(issued=1, role=WORKER | API))
    assert [boot.role for boot in reader(tmp_path).boots()] == ["both"]


def test_a_log_of_many_blocks_is_read_from_near_the_place(tmp_path):
    count = 9000
    write(tmp_path, {1: b"".join(line(i, adapter="a" * 60) for i in range(1, count + 1))})
    log = reader(tmp_path)
    assert log.read(BOOT, limit=100_000)[1] == count
    assert [json.loads(text)["seq"] for text in log.read(BOOT, after=count - 2)[0]] == [count - 1, count]


@st.composite
def logs(draw):
    """Segments with records left out, garbage thrown in, and lines torn: what may be on a disk."""
    count = draw(st.integers(1, 30))
    kept = draw(st.sets(st.integers(1, count)))
    cuts = sorted(draw(st.sets(st.integers(2, count), max_size=3)) if count > 1 else [])
    segments = {}
    for first, end in zip([1, *cuts], [*cuts, count + 1], strict=True):
        parts = []
        for seq in range(first, end):
            if seq in kept:
                parts.append(line(seq, draw(st.sampled_from(["use", "request"])), adapter=draw(st.text(max_size=5))))
            if draw(st.booleans()) and draw(st.booleans()):
                parts.append(
                    draw(st.sampled_from([b"\n", b"\x00\xff\n", b'{"v":1,\n', line(seq)[: draw(st.integers(1, 40))] + b"\n"]))
                )
        segments[first] = b"".join(parts)
    return count, kept, segments


@settings(deadline=None)
@given(logs(), st.integers(1, 7), st.booleans())
def test_every_seq_is_served_or_accounted_for_exactly_once(tmp_path_factory, made, limit, dead):
    count, kept, segments = made
    folder = tmp_path_factory.mktemp("log")
    write(folder, segments, Header(issued=count, role=WORKER, started_at=1))
    log, after, seen = reader(folder, alive=not dead), 0, []
    while True:
        lines, position = log.read(BOOT, after, limit)
        for record in map(json.loads, lines):
            seen += range(record["first"], record["last"] + 1) if record["kind"] == "lost" else [record["seq"]]
        if position == after:
            break
        after = position
    reach = count if dead else max(kept, default=0)
    assert seen == list(range(1, reach + 1))


@settings(deadline=None)
@given(logs(), st.integers(0, 30))
def test_reading_in_pieces_is_reading_at_once(tmp_path_factory, made, split):
    count, _, segments = made
    folder = tmp_path_factory.mktemp("log")
    write(folder, segments, Header(issued=count))
    whole, end = reader(folder, alive=False).read(BOOT)
    places = [0, *(json.loads(text)["seq"] for text in whole)]
    at = places[min(split, len(places) - 1)]
    rest, again = reader(folder, alive=False).read(BOOT, after=at)
    assert (rest, again) == (whole[min(split, len(places) - 1) :], end)
