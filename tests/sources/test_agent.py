"""Sidecars over HTTP, and the same logs from a disk."""

import json
import os
import struct
import subprocess
import sys

import pytest
from sources.conftest import Reply

from lora_watch import names
from lora_watch.errors import SourceRejected, SourceUnavailable
from lora_watch.model import MINUTE, SECOND, PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources.agent import AgentEvents, AgentRequests, AgentStatus, Doors
from lora_watch.sources.agent_files import AgentLogFiles, LogFolder
from lora_watch.sources.targets import Target, Targets

NOW = 1_796_027_000 * SECOND
POD = PodId("c", "pod-0")


def record(seq: int, kind: str = "evict", boot: str = "b1", **fields) -> dict:
    return {"v": 1, "boot": boot, "seq": seq, "at": NOW + seq, "kind": kind, "engine": "0", "tp_rank": 0, **fields}


def to_line(item: dict) -> bytes:
    return json.dumps(item, separators=(",", ":")).encode() + b"\n"


class Sidecar:
    """Serves records the way docs/event-log-v1.md says."""

    def __init__(self, records: list[dict], role: str = "worker", now: int = NOW) -> None:
        self.records, self.role, self.now = records, role, now

    def __call__(self, request) -> Reply:
        assert request.path == "/events"
        if "boot" not in request.query:
            boots = {item["boot"]: item["seq"] for item in self.records}
            listed = [{"boot": boot, "role": self.role, "first_seq": 1, "last_seq": last} for boot, last in boots.items()]
            return Reply(json.dumps({"now": self.now, "boots": listed}).encode())
        after, limit = int(request.query["after"]), int(request.query["limit"])
        kinds = request.query.get("kinds")
        found = [item for item in self.records if item["boot"] == request.query["boot"] and item["seq"] > after]
        passed = [item for item in found if kinds is None or item["kind"] in kinds.split(",")]
        cut = passed[:limit]
        last = cut[-1]["seq"] if len(cut) < len(passed) else max([after, *(item["seq"] for item in found)])
        return Reply(b"".join(map(to_line, cut)), headers={"X-Lora-Watch-Last-Seq": str(last)})


def targets(*urls: str) -> Targets:
    return Targets([Target("c", f"pod-{number}", agent_url=url) for number, url in enumerate(urls)])


def test_events_come_with_the_stream_of_their_boot_and_its_last_seq(serve):
    server = serve(Sidecar([record(1), record(2), record(1, boot="b2")]))
    batch = AgentEvents("agent", targets(server.url)).read({}, NOW)
    assert batch.positions == {"agent/c/pod-0/b1": 2, "agent/c/pod-0/b2": 1}
    assert batch.rows.select("stream", "seq").rows() == [
        ("agent/c/pod-0/b1", 1),
        ("agent/c/pod-0/b1", 2),
        ("agent/c/pod-0/b2", 1),
    ]


def test_reading_again_from_the_new_positions_asks_for_nothing_old(serve):
    server = serve(Sidecar([record(1), record(2)]))
    source = AgentEvents("agent", targets(server.url))
    first = source.read({}, NOW)
    again = source.read(first.positions, NOW)
    assert (again.rows.height, again.positions, len(server.requests)) == (0, {}, 3)


def test_requests_and_events_share_a_log_and_split_its_records(serve):
    server = serve(Sidecar([record(1, "register"), record(2, "request", finished=NOW), record(3, "register")], role="api"))
    assert AgentEvents("a", targets(server.url)).read({}, NOW).rows["seq"].to_list() == [1, 3]
    batch = AgentRequests("r", targets(server.url)).read({}, NOW)
    assert (batch.rows["seq"].to_list(), batch.positions) == ([2], {"agent/c/pod-0/b1": 3})


def test_a_worker_is_not_asked_for_requests(serve):
    server = serve(Sidecar([record(1)]))
    assert AgentRequests("r", targets(server.url)).read({}, NOW).positions == {}
    assert len(server.requests) == 1


def test_an_engine_inside_the_api_server_is_asked_for_requests(serve):
    server = serve(Sidecar([record(1, "request", adapter="a", finished=NOW)], role="both"))
    assert AgentRequests("r", targets(server.url)).read({}, NOW).rows["adapter"].to_list() == ["a"]


def test_pods_that_do_not_answer_are_asked_in_turn_and_hold_up_nobody(serve, closed_port):
    live = serve(Sidecar([record(1)]))
    everyone = targets(live.url, *[closed_port] * 5)
    events, status = (
        AgentEvents("a", everyone, doors=Doors(threads=2)),
        AgentStatus("s", everyone, lambda: NOW, doors=Doors(threads=2)),
    )
    for source in (events, status):
        first, *later = [source.read({}, NOW) for _ in range(4)]
        assert sum("pod-" in problem for problem in first.problems) == 5
        assert [sum("pod-" in problem for problem in batch.problems) for batch in later] == [2, 2, 2]
        assert all("3 more pods that did not answer wait for their turn" in batch.problems for batch in later)
        asked = {problem.split("'")[1] for batch in later for problem in batch.problems if "pod-" in problem}
        assert asked == {f"pod-{number}" for number in range(1, 6)}
        assert all(batch.rows["pod"].is_in(["pod-0"]).any() for batch in later)


def test_a_pod_with_much_to_tell_is_read_a_bounded_part_at_a_time(serve):
    server = serve(Sidecar([record(seq) for seq in range(1, 26)]))
    source = AgentEvents("a", targets(server.url), records_per_stream=10)
    positions: dict[str, int] = {}
    seen: list[int] = []
    for expected in (10, 20, 25):
        batch = source.read(positions, NOW)
        positions |= batch.positions
        seen += batch.rows["seq"].to_list()
        assert positions == {"agent/c/pod-0/b1": expected}
    assert seen == list(range(1, 26))


def test_a_pod_with_many_logs_is_read_its_share_at_a_time_the_oldest_first(serve):
    logs = [record(seq, boot=f"b{boot:03d}") for boot in range(150) for seq in range(1, 11)]
    server = serve(Sidecar(logs))
    source = AgentEvents("a", targets(server.url, *[f"http://127.0.0.1:9/{n}" for n in range(499)]))
    positions, heights = {}, []
    for _ in range(3):
        batch = source.read(positions, NOW)
        positions |= batch.positions
        heights.append(batch.rows.height)
    assert heights == [1_000, 500, 0]
    assert len(positions) == 150


def test_one_bad_agent_is_a_problem_and_the_others_are_read(serve, closed_port):
    good = serve(Sidecar([record(1)]))
    page = serve(Reply(b"<html>", headers={"Content-Type": "text/html"}))
    other = serve(Reply(b'{"now": "soon"}'))
    batch = AgentEvents("a", targets(closed_port, good.url, page.url, other.url)).read({}, NOW)
    assert batch.positions == {"agent/c/pod-1/b1": 1}
    assert len(batch.problems) == 3


def test_a_log_that_the_sidecar_may_not_read_is_a_problem_and_the_others_are_read(serve):
    sidecar = Sidecar([record(1)])

    def answer(request) -> Reply:
        reply = sidecar(request)
        if "boot" in request.query:
            return reply
        return Reply(json.dumps({**json.loads(reply.body), "unreadable": {"b2": "Permission denied\x1b"}}).encode())

    batch = AgentEvents("a", targets(serve(answer).url)).read({}, NOW)
    assert batch.positions == {"agent/c/pod-0/b1": 1}
    assert batch.problems == ("agent of pod 'pod-0': the log 'b2' can't be read there: 'Permission denied\\x1b'",)


def test_when_no_agent_can_be_read_the_source_says_so(serve, closed_port):
    with pytest.raises(SourceUnavailable):
        AgentEvents("a", targets(closed_port)).read({}, NOW)
    with pytest.raises(SourceRejected):
        AgentEvents("a", targets(serve(Reply(b"", 401)).url)).read({}, NOW)


def test_an_answer_cut_off_loses_nothing_of_the_answers_before_it(serve):
    sidecar = Sidecar([record(seq) for seq in range(1, 5)])
    server = serve(lambda request: Reply(b"", 503) if request.query.get("after") == "2" else sidecar(request))
    source = AgentEvents("a", targets(server.url), records_per_stream=2)
    first = source.read({}, NOW)
    assert first.positions == {"agent/c/pod-0/b1": 2}
    with pytest.raises(SourceUnavailable):
        source.read(first.positions, NOW)


def test_boots_whose_names_are_hostile_have_streams_that_parse_back(serve):
    server = serve(Sidecar([record(1, boot="../a b&x=1/é")]))
    assert AgentEvents("a", targets(server.url)).read({}, NOW).positions == {"agent/c/pod-0/..%2Fa%20b%26x%3D1%2F%C3%A9": 1}


def test_the_clock_offset_is_their_time_less_the_middle_of_ours(serve, closed_port):
    server = serve(Sidecar([], now=NOW + 3 * SECOND))
    ticks = iter([NOW, NOW + SECOND])
    source = AgentStatus("s", Targets([Target("c", "up", agent_url=server.url)]), lambda: next(ticks))
    rows = source.read({}, NOW).rows
    assert dict(rows.select("metric", "value").iter_rows()) == {names.SAMPLE_CLOCK_OFFSET: 2.5, names.SAMPLE_SCRAPE_UP: 1.0}
    down = AgentStatus("s", targets(closed_port), lambda: NOW).read({}, NOW)
    assert (down.rows["value"].to_list(), len(down.problems)) == ([0.0], 1)


def test_a_slow_answer_tells_no_offset(serve):
    ticks = iter([NOW, NOW + 3 * SECOND])
    rows = AgentStatus("s", targets(serve(Sidecar([])).url), lambda: next(ticks)).read({}, NOW).rows
    assert rows["metric"].to_list() == [names.SAMPLE_SCRAPE_UP]


# --- from a disk ---------------------------------------------------------------------------------------------------------------


BOOT = "0b0e4a11-2222-4333-8444-555555555555"
STREAM = f"agent/c/pod-0/{BOOT}"


def logged(seq: int, kind: str = "evict", **fields) -> dict:
    return record(seq, kind, BOOT, **fields)


def segment(folder, records, boot=BOOT) -> None:
    (folder / f"{boot}.{records[0]['seq']:012d}.jsonl").write_bytes(b"".join(map(to_line, records)))


def from_disk(path, table=ADAPTER_EVENTS, **options) -> AgentLogFiles:
    return AgentLogFiles("files", table, [LogFolder(path, POD)], **options)


def test_segments_are_read_in_the_order_of_their_first_seq(tmp_path):
    segment(tmp_path, [logged(3), logged(4)])
    segment(tmp_path, [logged(1), logged(2)])
    batch = from_disk(tmp_path).read({}, NOW)
    assert (batch.rows["seq"].to_list(), batch.positions, batch.problems) == ([1, 2, 3, 4], {STREAM: 4}, ())
    assert from_disk(tmp_path).read({STREAM: 3}, NOW).rows["seq"].to_list() == [4]


def test_segments_deleted_by_the_cap_are_a_lost_row(tmp_path):
    segment(tmp_path, [logged(11)])
    rows = from_disk(tmp_path).read({STREAM: 4}, NOW).rows
    assert rows.select("seq", "kind", "count").rows() == [(10, "lost", 6), (11, "evict", None)]


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path):
    file = tmp_path / f"{BOOT}.000000000001.jsonl"
    whole = to_line(logged(1)) + to_line(logged(2))
    file.write_bytes(whole[:-9])
    first = from_disk(tmp_path).read({}, NOW)
    assert (first.positions, first.problems) == ({STREAM: 1}, ())
    file.write_bytes(whole)
    assert from_disk(tmp_path).read(first.positions, NOW).rows["seq"].to_list() == [2]


def test_a_line_beyond_the_limit_is_garbage_and_not_held(tmp_path):
    file = tmp_path / f"{BOOT}.000000000001.jsonl"
    file.write_bytes(to_line(logged(1)) + b"x" * 300_000 + b"\n" + to_line(logged(3)))
    batch = from_disk(tmp_path).read({}, NOW)
    assert batch.rows.select("seq", "kind", "reason").rows() == [(1, "evict", None), (2, "lost", "garbage"), (3, "evict", None)]
    assert "1 records were lost: 'garbage'" in batch.problems[0]


def test_a_file_of_any_name_is_a_log_of_the_boot_it_speaks_of(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b"garbage\n" + to_line(logged(1)) + to_line(logged(2, "request", finished=NOW)))
    assert from_disk(tmp_path / "events.jsonl").read({}, NOW).positions == {STREAM: 2}
    assert from_disk(tmp_path / "events.jsonl", REQUESTS).read({}, NOW).rows["seq"].to_list() == [2]


def test_a_bounded_part_is_read_at_a_time_from_a_disk_too(tmp_path):
    segment(tmp_path, [logged(seq) for seq in range(1, 8)])
    positions: dict[str, int] = {}
    for expected in (3, 6, 7):
        positions |= from_disk(tmp_path, records_per_stream=3).read(positions, NOW).positions
        assert positions == {STREAM: expected}


def test_a_folder_that_is_not_there_is_unavailable(tmp_path):
    with pytest.raises(SourceUnavailable, match="No such file"):
        from_disk(tmp_path / "nothing").read({}, NOW)


def header(folder, issued: int, unfinished: int, stopped: int = 0) -> None:
    (folder / f"{BOOT}.head").write_bytes(
        struct.pack("<8Q", int.from_bytes(b"lorawtch", "little"), 1, issued, unfinished, 1, 0, 0, stopped)
    )
    for file in folder.iterdir():
        os.utime(file, (NOW / SECOND - 3600,) * 2)


def test_a_killed_writer_is_told_once_with_what_it_could_not_write(tmp_path):
    segment(tmp_path, [logged(1), logged(2)])
    header(tmp_path, issued=4, unfinished=1)
    batch = from_disk(tmp_path).read({}, NOW)
    assert batch.rows.select("seq", "kind", "count", "reason").rows()[-1] == (5, "lost", 3, "killed")
    again = from_disk(tmp_path).read(batch.positions, NOW)
    assert (again.rows.height, again.positions) == (0, {})


def test_a_writer_killed_after_all_was_read_is_told_too(tmp_path):
    segment(tmp_path, [logged(1), logged(2)])
    header(tmp_path, issued=2, unfinished=0)
    batch = from_disk(tmp_path).read({STREAM: 2}, NOW)
    assert batch.rows.select("seq", "kind", "count", "reason").rows() == [(3, "lost", 0, "killed")]


def test_a_log_that_ended_in_good_order_lost_nothing(tmp_path):
    segment(tmp_path, [logged(1), logged(2, "stop")])
    header(tmp_path, issued=2, unfinished=0, stopped=1)
    assert from_disk(tmp_path).read({}, NOW).rows["kind"].to_list() == ["evict", "stop"]


def test_a_log_that_was_written_to_lately_is_not_taken_for_dead(tmp_path):
    segment(tmp_path, [logged(1)])
    header(tmp_path, issued=9, unfinished=0)
    assert from_disk(tmp_path).read({}, NOW - 3600 * SECOND + MINUTE).rows["kind"].to_list() == ["evict"]


def test_a_writer_that_holds_its_lock_is_alive(tmp_path):
    segment(tmp_path, [logged(1)])
    header(tmp_path, issued=9, unfinished=0)
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / f"{BOOT}.head")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"held\n"
        assert from_disk(tmp_path).read({}, NOW).rows["kind"].to_list() == ["evict"]
        writer.stdin.close()
    assert from_disk(tmp_path).read({}, NOW).rows["kind"].to_list() == ["evict", "lost"]
