import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from agent.test_log import BOOT, line, reader, write
from prometheus_client.parser import text_string_to_metric_families

from lora_watch import names
from lora_watch.agent import checkpoint
from lora_watch.agent.lines import API, WORKER, Header, segment_name
from lora_watch.agent.log import LogReader
from lora_watch.agent.main import main, parser
from lora_watch.agent.metrics import MAX_ADAPTERS, EnginePage, page
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.agent.state import State

HOSTILE = 'a "b"\\\n</script>{}'
STORY = [
    ("start", {"role": "worker", "slots": 2, "cpu_capacity": 4, "model": "tiny"}),
    (
        "load",
        {"tier": "cpu", "from_tier": "disk", "adapter": HOSTILE, "adapter_id": 1, "seconds": 0.2, "reason": "demand", "ok": True},
    ),
    (
        "load",
        {
            "tier": "gpu",
            "from_tier": "disk",
            "adapter": HOSTILE,
            "adapter_id": 1,
            "slot": 0,
            "seconds": 0.02,
            "reason": "demand",
            "ok": True,
        },
    ),
    ("use", {"adapter": HOSTILE, "adapter_id": 1, "slot": 0, "lookup": "cold"}),
    (
        "load",
        {
            "tier": "gpu",
            "from_tier": "cpu",
            "adapter": "w",
            "adapter_id": 2,
            "slot": 1,
            "seconds": 1,
            "reason": "warmup",
            "ok": True,
        },
    ),
    ("pin", {"adapter": HOSTILE, "adapter_id": 1, "ok": True}),
    ("steps", {"count": 9, "wall_seconds": 1.0, "execute_seconds": 0.5, "adapter_seconds": 0.25, "clock": "host"}),
    (
        "load",
        {"tier": "cpu", "from_tier": "disk", "adapter": "b", "adapter_id": 3, "seconds": 0.1, "reason": "demand", "ok": False},
    ),
]


def story():
    return b"".join(line(seq, kind, **fields) for seq, (kind, fields) in enumerate(STORY, 1))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, {1: story()}, Header(issued=len(STORY), role=WORKER, started_at=5))
    return tmp_path


def serve(folder, *, alive=True, max_bytes=1 << 30, **options):
    return Sidecar(Logs(folder, max_bytes, reader=reader(folder, alive=alive)), port=0, clock=lambda: 4242, **options)


def get(sidecar, path, **headers):
    host, port = sidecar.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def values(text, name):
    return {
        tuple(s.labels.values()): s.value
        for f in text_string_to_metric_families(text.decode())
        for s in f.samples
        if s.name == name
    }


def test_events_without_a_boot_lists_the_processes_and_the_clock(folder):
    with serve(folder) as sidecar:
        answer = json.loads(get(sidecar, "/events")[2])
    assert answer["now"] == 4242
    assert answer["boots"] == [
        {"boot": BOOT, "role": "worker", "first_seq": 1, "last_seq": 8, "alive": True, "started_at": 5, "engine": "0"}
    ]


def test_events_are_the_lines_of_the_log_with_their_position(folder):
    with serve(folder) as sidecar:
        status, headers, body = get(sidecar, f"/events?boot={BOOT}&after=3&limit=2")
    assert (status, headers["X-Lora-Watch-Last-Seq"], headers["X-Lora-Watch-Now"]) == (200, "5", "4242")
    assert headers["Content-Type"] == "application/x-ndjson"
    assert body == b"".join(story().splitlines(keepends=True)[3:5])


def test_kinds_filter_and_the_position_passes_over_the_rest(folder):
    with serve(folder) as sidecar:
        _, headers, body = get(sidecar, f"/events?boot={BOOT}&kinds=use,steps")
    assert ([json.loads(text)["kind"] for text in body.splitlines()], headers["X-Lora-Watch-Last-Seq"]) == (["use", "steps"], "8")


@pytest.mark.parametrize(
    "query",
    [
        "boot=../../etc/passwd",
        f"boot={BOOT}&after=-1",
        f"boot={BOOT}&after=1e3",
        f"boot={BOOT}&after=%D9%A3",
        f"boot={BOOT}&limit=0",
        f"boot={BOOT}&limit=100001",
        f"boot={BOOT}&after=" + "9" * 5000,
        f"boot={BOOT}&boot={BOOT}",
        f"boot={BOOT}&colour=red",
        f"boot={BOOT}&kinds=,",
        "after=3",
        "&".join(f"a{i}=1" for i in range(50)),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_in_a_sentence(folder, query):
    with serve(folder) as sidecar:
        status, _, body = get(sidecar, f"/events?{query}")
    assert status == 400
    assert 10 < len(body) < 300


def test_an_unknown_boot_is_empty_and_an_unknown_page_is_not_found(folder):
    with serve(folder) as sidecar:
        status, headers, body = get(sidecar, f"/events?boot={BOOT[:-1]}9&after=7")
        assert (status, headers["X-Lora-Watch-Last-Seq"], body) == (200, "7", b"")
        assert get(sidecar, "/nothing")[0] == 404


def test_a_token_opens_everything_and_health_needs_none(folder):
    with serve(folder, token="s3cret-é") as sidecar:
        right = "Bearer s3cret-é".encode().decode("latin-1")
        for path in ("/events", "/state", "/metrics"):
            assert get(sidecar, path)[0] == 401
            assert get(sidecar, path, Authorization="Bearer wrong")[0] == 401
            assert get(sidecar, path, Authorization=right)[0] == 200
        assert get(sidecar, "/healthz")[0] == 200


def test_state_shows_slots_cache_pins_and_batch(folder):
    with serve(folder) as sidecar:
        state = json.loads(get(sidecar, "/state")[2])["boots"][BOOT]
    assert state["gpu"] == [{"slot": 0, "adapter": HOSTILE, "adapter_id": 1, "loaded_at": 1003, "pinned": True}]
    assert state["cpu"] == [{"adapter": HOSTILE, "adapter_id": 1, "pinned": True}]
    assert state["in_batch"] == [{"adapter": HOSTILE, "adapter_id": 1}]
    assert (state["slots"], state["cpu_capacity"], state["alive"]) == (2, 4, True)


def test_metrics_count_what_happened_and_leave_warm_up_out(folder):
    with serve(folder) as sidecar:
        _, headers, body = get(sidecar, "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert values(body, names.AGENT_LOADS) == {("disk", "demand", "cpu"): 1, ("disk", "demand", "gpu"): 1}
    assert values(body, names.AGENT_FAILED_LOADS) == {("disk", "demand", "cpu"): 1}
    assert values(body, names.AGENT_USES) == {("cold",): 1}
    assert values(body, names.AGENT_STEPS) == {(): 9}
    assert values(body, names.AGENT_ADAPTER_SECONDS) == {("host",): 0.25}
    assert values(body, names.AGENT_LOAD_SECONDS + "_sum") == {("disk", "cpu"): 0.2, ("disk", "gpu"): 0.02}


def test_residents_are_republished_under_the_names_proposed_upstream(folder):
    with serve(folder) as sidecar:
        body = get(sidecar, "/metrics")[2]
    families = {f.name: f for f in text_string_to_metric_families(body.decode())}
    loaded = [
        (s.labels["adapter_name"], s.labels["level"], s.labels["pinned"], s.value) for s in families[names.ADAPTER_LOADED].samples
    ]
    assert sorted(loaded) == [(HOSTILE, "cpu", "true", 1), (HOSTILE, "gpu", "true", 1)]
    assert [s.value for s in families[names.MAX_GPU_ADAPTERS].samples] == [2]
    assert [s.value for s in families[names.GPU_ADAPTERS].samples] == [1]
    counts = {s.labels["transition"]: s.value for s in families[names.LOAD_SECONDS].samples if s.name.endswith("_count")}
    assert counts == {"load": 1, "activate": 1}


def test_an_evicted_adapter_has_no_series(folder):
    evicted = line(9, "evict", tier="gpu", adapter=HOSTILE, adapter_id=1, slot=0, reason="lru")
    with serve(folder) as sidecar:
        get(sidecar, "/metrics")
        write(folder, {1: story() + evicted})
        body = get(sidecar, "/metrics")[2]
    assert [key[2] for key in values(body, names.ADAPTER_LOADED)] == ["cpu"]
    assert values(body, names.AGENT_EVICTIONS) == {("lru", "gpu"): 1}


def test_a_dead_engine_has_no_residents_and_keeps_its_counters(folder):
    with serve(folder, alive=False) as sidecar:
        body = get(sidecar, "/metrics")[2]
    assert values(body, names.ADAPTER_LOADED) == {}
    assert values(body, names.AGENT_USES) == {("cold",): 1}


def test_a_sidecar_started_again_says_the_same(folder):
    with serve(folder, alive=False) as first:
        get(first, "/state")
        before = [get(first, path)[2] for path in ("/state", "/metrics")]
    with serve(folder, alive=False) as second:
        assert [get(second, path)[2] for path in ("/state", "/metrics")] == before


def test_counters_that_begin_late_say_since_when(tmp_path):
    snapshot = line(
        50, "snapshot", role="worker", gpu=[[0, "a", 1, 7]], cpu=[["a", 1]], pinned=[], slots=2, cpu_capacity=4, part=1, parts=1
    )
    write(tmp_path, {50: snapshot}, Header(issued=50, role=WORKER))
    with serve(tmp_path) as sidecar:
        state = json.loads(get(sidecar, "/state")[2])["boots"][BOOT]
    assert (state["counters"]["complete"], state["counters"]["since"], state["counters"]["lost"]) == (False, 1050, {"cap": 49})
    assert [row["adapter"] for row in state["gpu"]] == ["a"]


def test_a_record_that_makes_no_sense_is_counted_and_the_next_is_read(tmp_path):
    bad = line(1, "load", tier="gpu", adapter_id=["a"], ok=True) + line(2, "snapshot", gpu=7) + line(3, "steps", count="many")
    write(tmp_path, {1: bad + line(4, "use", adapter_id=1, lookup="hot")}, Header(issued=4, role=WORKER))
    with serve(tmp_path) as sidecar:
        state = json.loads(get(sidecar, "/state")[2])["boots"][BOOT]
    assert (state["counters"]["unreadable"], state["counters"]["uses"]) == (3, {"hot": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "steps", "count": 1e999, "clock": "host"},
        {"kind": "steps", "count": 1, "execute_seconds": float("nan"), "clock": "host"},
        {"kind": "lost", "count": -1, "reason": "gap"},
        {"kind": "load", "tier": "gpu", "adapter_id": 1, "slot": 0, "seconds": 10**400, "ok": True},
        {"kind": "load", "tier": "gpu", "adapter_id": 1, "slot": "x", "ok": True},
        {"kind": "start", "role": "worker", "slots": "x"},
        {"kind": "snapshot", "slots": [1]},
        {"kind": "snapshot", "gpu": [[{}, "a", 1, 5]]},
    ],
)
def test_a_record_with_a_wild_value_stops_neither_state_nor_metrics_nor_pruning(tmp_path, fields):
    write(tmp_path, {1: line(1, **fields) + line(2, "use", adapter_id=1, lookup="hot")}, Header(issued=2, role=WORKER))
    with serve(tmp_path) as sidecar:
        state = json.loads(get(sidecar, "/state")[2])["boots"][BOOT]
        assert values(get(sidecar, "/metrics")[2], names.AGENT_USES) == {("hot",): 1}
    assert (state["counters"]["unreadable"], state["counters"]["loads"], state["counters"]["steps"]) == (1, [], 0)
    assert Logs(tmp_path, 1 << 30, reader=reader(tmp_path)).prune() == 0


def test_half_a_surrogate_pair_in_a_name_does_not_stop_the_metrics(tmp_path):
    load = {"tier": "gpu", "from_tier": "cpu", "adapter": "a\ud800", "adapter_id": 1, "slot": 0, "seconds": 1, "reason": "\udfff"}
    start = line(1, "start", role="worker", slots=2, model="\udc00")
    write(tmp_path, {1: start + line(2, "load", ok=True, **load)}, Header(issued=2, role=WORKER))
    with serve(tmp_path) as sidecar:
        body = get(sidecar, "/metrics")[2]
    assert values(body, names.ADAPTER_LOADED) == {("a?", "0", "gpu", "?", "false", "0"): 1}
    assert values(body, names.AGENT_LOADS) == {("cpu", "?", "gpu"): 1}


def test_the_registry_is_what_was_accepted_and_not_withdrawn(tmp_path):
    records = [
        ("start", {"role": "api"}),
        ("register", {"adapter": "a", "adapter_id": 1, "path": "/a", "ok": True}),
        ("register", {"adapter": "b", "adapter_id": 2, "path": "/b", "ok": True}),
        ("register", {"adapter": "c", "adapter_id": None, "path": "/c", "ok": False}),
        ("unregister", {"adapter": "a", "adapter_id": 1, "ok": True}),
    ]
    write(
        tmp_path,
        {1: b"".join(line(i, kind, **fields) for i, (kind, fields) in enumerate(records, 1))},
        Header(issued=5, role=API),
    )
    with serve(tmp_path) as sidecar:
        state = json.loads(get(sidecar, "/state")[2])["boots"][BOOT]
    assert (state["role"], state["registered"]) == ("api", [{"adapter": "b", "adapter_id": 2, "path": "/b"}])


def test_adapters_past_the_cap_are_one_series():
    state = State(role="worker", model="m")
    for i in range(MAX_ADAPTERS + 5):
        state.cpu[i] = f"a{i:05d}"
    loaded = values(page({"x": state}, 0), names.ADAPTER_LOADED)
    assert len(loaded) == MAX_ADAPTERS + 1
    assert [value for key, value in loaded.items() if "other" in key] == [5]


class Engine(BaseHTTPRequestHandler):
    """An engine's metrics page."""

    text = b""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_):
        pass


@pytest.fixture
def engine_page():
    """Serves what it is called with, on a port of its own; gives the address."""
    servers = []

    def start(text):
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Engine,), {"text": text}))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_engines_page_is_merged_as_it_came_and_no_type_stands_twice(folder, engine_page):
    theirs = (
        f"# HELP {names.ADAPTER_LOADED} Theirs.\n# TYPE {names.ADAPTER_LOADED} gauge\n{names.ADAPTER_LOADED} 7.0\nx 1.0".encode()
    )
    with serve(folder, engine=EnginePage(engine_page(theirs))) as sidecar:
        body = get(sidecar, "/metrics")[2]
    assert body.endswith(theirs + b"\n")
    types = re.findall(rb"^# TYPE (\S+)", body, re.MULTILINE)
    assert len(types) == len(set(types))
    assert values(body, names.ADAPTER_LOADED) == {(): 7}
    assert values(body, names.AGENT_ENGINE_UP) == {(): 1}


def test_an_engine_that_is_down_is_said_and_ours_is_served(folder):
    with serve(folder, engine=EnginePage("http://127.0.0.1:9/metrics")) as sidecar:
        body = get(sidecar, "/metrics")[2]
    assert values(body, names.AGENT_ENGINE_UP) == {(): 0}
    assert values(body, names.AGENT_STEPS) == {(): 9}


def test_an_engine_page_past_the_limit_is_not_passed_on(folder, engine_page):
    with serve(folder, engine=EnginePage(engine_page(b"x 1\n" * 100), max_bytes=100)) as sidecar:
        assert values(get(sidecar, "/metrics")[2], names.AGENT_ENGINE_UP) == {(): 0}


@pytest.mark.parametrize(
    "answer",
    [
        b"mail.example.org ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nvllm:num_requests_running 12",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nvllm:num_requests_running 12",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"",
    ],
)
def test_an_engine_that_answers_no_http_or_breaks_off_is_down_and_ours_is_served(folder, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once, daemon=True)
        thread.start()
        engine = EnginePage(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        with serve(folder, engine=engine) as sidecar:
            body = get(sidecar, "/metrics")[2]
        thread.join()
    assert values(body, names.AGENT_ENGINE_UP) == {(): 0}
    assert values(body, names.AGENT_STEPS) == {(): 9}
    assert b"num_requests_running" not in body


def test_an_engine_that_trickles_is_given_up(folder):
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not over.wait(0.02):
                    connection.sendall(b"#")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        assert EnginePage(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", seconds=0.3).read() is None
        over.set()
        thread.join()


def test_pruning_counts_first_and_keeps_to_the_cap(folder):
    write(folder, {9: line(9, "use", lookup="hot", adapter_id=1)}, Header(issued=9, role=WORKER))
    os.utime(folder / f"{BOOT}.000000000001.jsonl", (1, 1))
    logs = Logs(folder, 300, reader=reader(folder))
    assert logs.prune() > 0
    assert [path.name for path in folder.glob("*.jsonl")] == [f"{BOOT}.000000000009.jsonl"]
    assert logs.fold(lambda states: dict(states[BOOT].uses)) == {"cold": 1, "hot": 1}


def test_what_was_counted_of_a_forgotten_process_stays_counted_and_its_loss_is_said(folder):
    later = BOOT[:-1] + "2"
    use = line(1, "use", boot=later, adapter_id=1, lookup="hot")
    write(folder, {1: use}, Header(issued=1, role=WORKER, started_at=6), boot=later)
    logs = Logs(folder, 1 << 30, max_dead=1, reader=reader(folder, alive=False))
    with Sidecar(logs, port=0) as sidecar:
        before = get(sidecar, "/metrics")[2]
        logs.prune()
        after = get(sidecar, "/metrics")[2]
        assert [boot["boot"] for boot in json.loads(get(sidecar, "/events")[2])["boots"]] == [later]
        assert list(json.loads(get(sidecar, "/state")[2])["boots"]) == [later]
    for name in (names.AGENT_LOADS, names.AGENT_USES, names.AGENT_STEPS, names.AGENT_LOST, names.AGENT_EXECUTE_SECONDS):
        assert values(after, name) == values(before, name)
    assert values(after, names.AGENT_LOAD_SECONDS + "_count") == values(before, names.AGENT_LOAD_SECONDS + "_count")
    assert (values(before, names.AGENT_FORGOTTEN), values(after, names.AGENT_FORGOTTEN)) == ({(): 0}, {(): 1})
    assert sorted(path.name[36:] for path in folder.iterdir()) == [".000000000001.jsonl", ".counts", ".head"]


def prunable(folder):
    """A log of two segments of which the first may be deleted, with what the sidecar reads it by."""
    write(folder, {9: line(9, "use", lookup="hot", adapter_id=1)}, Header(issued=9, role=WORKER))
    os.utime(folder / f"{BOOT}.000000000001.jsonl", (1, 1))
    return Logs(folder, 300, reader=reader(folder))


def test_a_sidecar_started_again_counts_on_from_where_it_was_though_the_log_was_pruned(folder):
    assert prunable(folder).prune() > 0
    with Sidecar(Logs(folder, 300, reader=reader(folder)), port=0) as again:
        write(folder, {9: line(9, "use", lookup="hot", adapter_id=1) + line(10, "use", lookup="warm", adapter_id=1)})
        body, state = get(again, "/metrics")[2], json.loads(get(again, "/state")[2])["boots"][BOOT]
    assert values(body, names.AGENT_USES) == {("cold",): 1, ("hot",): 1, ("warm",): 1}
    assert values(body, names.AGENT_LOAD_SECONDS + "_sum") == {("disk", "cpu"): 0.2, ("disk", "gpu"): 0.02}
    assert values(body, names.AGENT_LOST) == {}
    assert (state["counters"]["complete"], [row["adapter"] for row in state["gpu"]]) == (True, [HOSTILE])


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"v":1}', b"\xff", b"[" * 100_000, b'{"v":2,"position":9}'])
def test_counts_that_make_no_sense_are_counted_again_from_the_log(folder, damage):
    Logs(folder, 1 << 30, reader=reader(folder)).prune()
    (folder / f"{BOOT}.counts").write_bytes(damage)
    logs = Logs(folder, 1 << 30, reader=reader(folder))
    assert logs.fold(lambda states: (dict(states[BOOT].uses), states[BOOT].steps)) == ({"cold": 1}, 9)


def test_a_state_comes_back_from_its_file_as_it_was(tmp_path):
    state = State()
    for seq, (kind, fields) in enumerate(
        [*STORY, ("register", {"adapter": "\ud800", "adapter_id": 7, "path": None, "ok": True})], 1
    ):
        state.fold({"seq": seq, "at": 1000 + seq, "kind": kind, **fields})
    checkpoint.save(tmp_path, BOOT, state, 9)
    assert checkpoint.load(tmp_path, BOOT) == (state, 9)
    assert (tmp_path / f"{BOOT}.counts").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_none_is_said_and_the_server_goes_on(tmp_path):
    (tmp_path / "log").write_text("in the way")
    with serve(tmp_path / "log") as sidecar:
        assert get(sidecar, "/events")[0] == 503
        assert get(sidecar, "/healthz")[0] == 200


def test_a_log_that_can_not_be_read_is_named_and_stops_no_other(folder):
    other = BOOT[:-1] + "2"
    write(folder, {1: line(1, "use", boot=other, adapter_id=1, lookup="hot")}, Header(issued=1, role=WORKER), boot=other)
    locked = []

    def alive(path):
        if path.stem in locked:
            raise PermissionError(13, "Permission denied")
        return True

    logs = Logs(folder, 1 << 30, reader=LogReader(folder, alive=alive))
    with Sidecar(logs, port=0) as sidecar:
        before = values(get(sidecar, "/metrics")[2], names.AGENT_USES)
        locked.append(other)
        answer = json.loads(get(sidecar, "/events")[2])
        assert ([boot["boot"] for boot in answer["boots"]], answer["unreadable"]) == ([BOOT], {other: "Permission denied"})
        assert values(get(sidecar, "/metrics")[2], names.AGENT_USES) == before
        locked.clear()
        assert values(get(sidecar, "/metrics")[2], names.AGENT_USES) == before


def test_many_clients_at_once_get_whole_answers(folder):
    with serve(folder) as sidecar:
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(get(sidecar, f"/events?boot={BOOT}")[2])) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [story()] * 20


def test_an_ipv6_address_is_listened_on(folder):
    with Sidecar(Logs(folder, 1 << 30), host="::1", port=0) as sidecar:
        port = int(re.fullmatch(r"http://\[::1\]:(\d+)", sidecar.url)[1])
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_a_connection_too_many_is_turned_away_and_the_next_is_served(folder):
    with serve(folder, connections=1) as sidecar:
        host, port = sidecar.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert idle.recv(4096).startswith(b"HTTP/1.1 200")
            assert get(sidecar, "/healthz")[0] == 503
            idle.shutdown(socket.SHUT_RDWR)
        assert any(get(sidecar, "/healthz")[0] == 200 for _ in range(1000))


def test_the_command_prints_its_address_serves_and_ends_in_good_order(folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    command = [sys.executable, "-m", "lora_watch.agent.main", "--log-dir", folder, "--port", "0", "--token-file", token]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:
        first = process.stdout.readline()
        url = re.fullmatch(r"agent     (http://127\.0\.0\.1:\d+)\n", first)[1]
        host, port = url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("GET", "/events", headers={"Authorization": "Bearer s3cret"})
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, "s3cret" in err) == (0, "", False)


def test_a_token_file_that_is_missing_or_empty_is_an_error(tmp_path, capsys):
    assert main(["--token-file", str(tmp_path / "none")]) == 1
    (tmp_path / "empty").write_text(" \n")
    assert main(["--token-file", str(tmp_path / "empty")]) == 1
    assert "empty" in capsys.readouterr().err


def test_a_token_of_blanks_is_an_error_rather_than_an_open_door(tmp_path):
    command = [sys.executable, "-m", "lora_watch.agent.main", "--log-dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        command, env={**os.environ, "LORA_WATCH_AGENT_TOKEN": " \n"}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "LORA_WATCH_AGENT_TOKEN is blank\n")


@pytest.mark.parametrize("flags", [["--port", "x"], ["--max-bytes", "0"], ["--engine-metrics", "ftp://x"], ["--colour"]])
def test_a_wrong_flag_is_refused(flags, capsys):
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 2
    assert capsys.readouterr().err


def test_the_environment_gives_the_defaults():
    options = parser({"LORA_WATCH_LOG_DIR": "/x", "LORA_WATCH_AGENT_PORT": "1", "LORA_WATCH_LOG_MAX_BYTES": "5"}).parse_args([])
    assert (str(options.log_dir), options.port, options.max_bytes, options.host) == ("/x", 1, 5, "127.0.0.1")


class Growing(LogReader):
    """A log whose writer is as fast as its reader: each reading finds one record more."""

    written = 1

    def records(self, boot, after, limit):
        self.written += 1
        with (self._directory / segment_name(boot, 1)).open("ab") as out:
            out.write(line(self.written, "steps", count=1))
        return super().records(boot, after, limit)


def test_a_page_is_answered_though_the_log_grows_as_fast_as_it_is_read(tmp_path):
    write(tmp_path, {1: line(1, "steps", count=1)})
    logs = Logs(tmp_path, 1 << 30, reader=Growing(tmp_path, alive=lambda _path: True))
    assert logs.fold(lambda states: states[BOOT].steps) == 2
    assert logs.fold(lambda states: states[BOOT].steps) == 2
