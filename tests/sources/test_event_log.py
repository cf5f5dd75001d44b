"""Lines of event log v1 as rows: every seq is accounted for, whatever the lines look like."""

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.model import PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources.event_log import Origin, conformed, frame, read_records, take

AT = 1_796_026_995_769_677
ORIGIN = Origin(PodId("c", "p", "pool", "r"), "b", "agent/c/p/b", "s")


def line(seq, kind="evict", at=None, **fields) -> bytes:
    return json.dumps({"v": 1, "boot": "b", "seq": seq, "at": AT + seq if at is None else at, "kind": kind, **fields}).encode()


def read(*lines, table=ADAPTER_EVENTS, after=0, complete=None, limit=1000):
    taken = take(read_records(lines, "b", after, limit=limit, complete=complete), ORIGIN, table, after, AT, complete)
    return conformed(table, [frame(table, taken.rows)]), taken


def told(rows) -> list[tuple]:
    return list(rows.select("seq", "kind", "count", "reason").iter_rows())


def test_a_load_keeps_every_field_in_its_column():
    rows, taken = read(
        line(1, "load", tier="gpu", from_tier="cpu", adapter="legal", adapter_id=3, slot=0, seconds=0.0028, rank=16)[:-1]
        + b',"bytes":65536000,"reason":"demand","in_step":true,"engine":"0","tp_rank":0,"ok":true}'
    )
    row = rows.row(0, named=True)
    assert {
        name: row[name] for name in ("cluster", "pod", "pool", "role", "engine", "stream", "seq", "at", "provenance", "source")
    } == {
        "cluster": "c",
        "pod": "p",
        "pool": "pool",
        "role": "r",
        "engine": "0",
        "stream": "agent/c/p/b",
        "seq": 1,
        "at": AT + 1,
        "provenance": "observed",
        "source": "s",
    }
    assert (row["tier"], row["from_tier"], row["adapter"], row["adapter_id"], row["slot"]) == ("gpu", "cpu", "legal", 3, 0)
    assert (row["seconds"], row["rank"], row["bytes"], row["in_step"], row["ok"]) == (0.0028, 16, 65536000, True, True)
    assert (row["detail"], taken.position, taken.problems) == (None, 1, ())


def test_what_has_no_column_and_kinds_nobody_knows_are_kept_as_detail():
    rows, taken = read(line(1, "start", slots=4, vllm="0.32.0", pid=7), line(2, "teleport", to="mars", deep={"a": [1]}))
    assert rows["detail"].to_list() == ['{"pid":7,"vllm":"0.32.0"}', '{"deep":{"a":[1]},"to":"mars"}']
    assert (rows["slots"].to_list(), taken.problems) == ([4, None], ())


def test_a_request_is_a_row_of_the_other_table_and_no_loss_in_this_one():
    lines = (line(1), line(2, "request", adapter=None, finished=AT + 9, arrived=AT, prompt_tokens=5), line(3))
    events, taken = read(*lines)
    assert (told(events), taken.problems) == ([(1, "evict", None, None), (3, "evict", None, None)], ())
    requests, taken = read(*lines, table=REQUESTS)
    row = requests.row(0, named=True)
    assert (row["seq"], row["adapter"], row["at"], row["arrived"], row["prompt_tokens"]) == (2, None, AT + 9, AT, 5)
    assert (requests.height, taken.position, taken.problems) == (1, 3, ())


def test_order_does_not_matter_and_what_came_before_is_passed_over():
    rows, taken = read(line(4), line(3), line(3), line(1), line(2), after=2)
    assert told(rows) == [(3, "evict", None, None), (4, "evict", None, None)]
    assert taken.problems == ("3 records came twice and were passed over",)


def test_a_gap_becomes_a_lost_row_with_the_last_seq_it_stands_for():
    rows, taken = read(line(1), line(5))
    assert told(rows) == [(1, "evict", None, None), (4, "lost", 3, "gap"), (5, "evict", None, None)]
    assert rows["at"].to_list() == [AT + 1, AT + 5, AT + 5]
    assert "3 records are missing" in taken.problems[0]


def test_a_gap_that_the_writer_declared_is_not_counted_again():
    rows, taken = read(line(1), line(4, "lost", count=3, first=2, last=4, reason="disk"), line(5))
    assert told(rows) == [(1, "evict", None, None), (4, "lost", 3, "disk"), (5, "evict", None, None)]
    assert taken.problems == ("3 records were lost: 'disk'",)


def test_only_what_a_declaration_leaves_open_is_counted():
    rows, _ = read(line(1), line(6, "lost", count=2, first=5, last=6, reason="cap"))
    assert told(rows) == [(1, "evict", None, None), (5, "lost", 3, "gap"), (6, "lost", 2, "cap")]


def test_records_missing_at_the_end_of_a_complete_answer_are_lost():
    rows, taken = read(line(1), complete=3)
    assert (told(rows), taken.position) == ([(1, "evict", None, None), (3, "lost", 2, "gap")], 3)


def test_garbage_lines_are_lost_records_with_that_reason():
    rows, taken = read(line(1), b"\x00\xff{{{", b'{"half":', b"[]", b"", line(4))
    assert told(rows) == [(1, "evict", None, None), (3, "lost", 2, "garbage"), (4, "evict", None, None)]
    assert taken.problems[0] == "3 lines are no records"


@pytest.mark.parametrize(
    "fields",
    [{"slot": "0"}, {"slot": True}, {"adapter": 5}, {"seconds": "fast"}, {"ok": 1}, {"adapter_id": 2**70}, {"engine": 0}],
    ids=str,
)
def test_a_field_of_a_wrong_type_costs_that_record_and_no_other(fields):
    rows, taken = read(line(1), line(2, "load", **fields), line(3))
    assert told(rows) == [(1, "evict", None, None), (2, "lost", 1, "garbage"), (3, "evict", None, None)]
    assert next(iter(fields)) in taken.problems[0]


@pytest.mark.parametrize("at", [0, 12_345, 4_102_444_800_000_000, "now", None, True, 1.5])
def test_a_time_outside_2000_to_2100_is_kept_out_and_counted(at):
    bad = json.dumps({"v": 1, "boot": "b", "seq": 2, "at": at, "kind": "evict"}).encode()
    rows, taken = read(line(1), bad, line(3))
    assert told(rows)[1] == (2, "lost", 1, "garbage")
    assert rows["at"].to_list() == [AT + 1, AT + 3, AT + 3]
    assert "2000 and 2100" in taken.problems[0]


def test_a_request_with_a_bad_time_is_a_problem_only():
    rows, taken = read(line(1, "request", arrived="x"), line(2, "request", arrived=AT), table=REQUESTS)
    assert (rows["seq"].to_list(), taken.position) == ([2], 2)
    assert "arrived" in taken.problems[0]


def test_a_log_of_another_version_waits_for_a_newer_reader():
    rows, taken = read(line(1).replace(b'"v": 1', b'"v": 2'))
    assert (rows.height, taken.position) == (0, 0)
    assert "version 2" in taken.problems[0]


def test_a_stray_record_of_another_version_does_not_hold_the_log_up():
    rows, taken = read(line(1), line(2).replace(b'"v": 1', b'"v": 9'), line(3))
    assert told(rows)[1] == (2, "lost", 1, "garbage")
    assert taken.position == 3


def test_a_seq_beyond_what_the_writer_has_is_garbage_and_does_not_jump_the_stream():
    assert read(line(1), line(10**18))[1].position == 1
    assert read(line(1), line(9), complete=2)[1].position == 2


def test_a_record_of_another_boot_is_garbage():
    assert read(line(1).replace(b'"boot": "b"', b'"boot": "x"'))[1].problems == ("1 lines are no records",)


def test_the_second_of_two_records_torn_onto_one_line_is_read():
    whole = b'{"v":1,"boot":"b","seq":2,"at":%d,"kind":"evict"}' % AT
    rows, _ = read(line(1), b'{"v":1,"boot":"b","seq":1,"at":17' + whole)
    assert told(rows) == [(1, "evict", None, None), (2, "evict", None, None)]


@pytest.mark.parametrize(
    "bomb", [b"[" * 60_000, b'{"a":' * 10_000, b"{" + b" " * 70_000 + b"}"], ids=["arrays", "objects", "long"]
)
def test_a_line_made_to_hurt_is_garbage(bomb):
    assert read(bomb, line(2))[1].problems[0] == "1 lines are no records"


@pytest.mark.parametrize("name", ['q"', "a,b", "x\ny", "{}", "</script>", "../..", "x" * 10_000, "‮rtl", "🦙", "\x00"])
def test_a_hostile_adapter_name_arrives_as_it_is(name):
    rows, _ = read(line(1, adapter=name))
    assert rows["adapter"].to_list() == [name]


def test_names_that_differ_in_half_a_surrogate_pair_stay_two():
    rows, taken = read(line(1, adapter="x\ud800y"), line(2, adapter="x\udc01y"), line(3, adapter="🦙"))
    assert (rows["adapter"].to_list(), taken.problems) == (["x\\ud800y", "x\\udc01y", "🦙"], ())


@given(st.data())
def test_rows_and_lost_counts_together_account_for_every_seq(data):
    seqs = data.draw(st.sets(st.integers(1, 40)))
    bad = data.draw(st.sets(st.sampled_from(sorted(seqs)))) if seqs else set()
    noise = data.draw(st.lists(st.binary(max_size=20), max_size=3))
    lines = [line(seq, slot="bad" if seq in bad else 1) for seq in seqs]
    lines = data.draw(st.permutations(lines + noise))
    rows, _ = read(*lines, complete=40)
    lost = rows.filter(kind="lost")["count"].sum()
    assert rows.filter(kind="evict").height + lost == 40
    assert rows["seq"].is_unique().all()
    assert rows["seq"].is_sorted()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ["v", "at", "kind", "slot", "adapter", "seconds", "ok", "count", "first", "last", "engine", "finished", "tp_rank", "x"]


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), json_values), max_size=6), st.sampled_from(["lost", "request", "load"]))
def test_no_json_at_all_makes_it_crash_or_breaks_the_table(bodies, kind):
    lines = [json.dumps({"v": 1, "boot": "b", "seq": seq, "at": AT, "kind": kind, **body}) for seq, body in enumerate(bodies, 1)]
    for table in (ADAPTER_EVENTS, REQUESTS):
        rows, taken = read(*(text.encode() for text in lines), table=table)
        assert rows["seq"].is_unique().all()
        assert taken.position <= len(bodies)


def test_a_log_made_to_be_slow_is_read_in_time():
    lines = []
    for seq in range(3, 120_000, 6):
        lines += [line(seq), line(seq + 3, "lost", count=1, first=seq + 3, last=seq + 3)]
    started = process_time()
    rows, taken = read(*lines, limit=100_000)
    assert process_time() - started < 5
    assert rows.filter(kind="lost")["count"].sum() + rows.filter(kind="evict").height == taken.position
    assert taken.problems[-1].endswith("more problems")
