"""Following a vLLM log into an event-log directory: nothing twice, nothing torn, whatever is done to the file."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_watch.agent.debug_log import Converter, convert
from lora_watch.agent.follow import QUIET_POLLS, SEGMENT_BYTES, Follower, Tail
from lora_watch.agent.following import Following
from lora_watch.agent.lines import Header, writer_lives
from lora_watch.agent.log import LogReader

CAPTURE = Path(__file__).parents[1] / "data" / "vllm-debug-0.28.jsonl"
NOW = 1_796_030_000_000_000


def follower(log: Path, directory: Path) -> Follower:
    return Follower(log, directory, Converter(now=NOW))


def settle(follower: Follower) -> None:
    """Poll until what is held for more lines is said."""
    for _ in range(QUIET_POLLS + 1):
        follower.poll()


def written(directory: Path) -> list[dict]:
    """Every record in the directory, boot by boot."""
    return [json.loads(line) for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()]


def expected(lines: list[str]) -> list[dict]:
    return sorted(convert(lines, now=NOW), key=lambda r: (r["boot"], r["seq"]))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "vllm.jsonl"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events"


def test_a_log_that_grows_is_told_as_it_grows(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    follow = follower(log, events)
    follow.poll()
    for i in range(0, len(lines), 10):
        with log.open("a") as out:
            out.writelines(lines[i : i + 10])
        follow.poll()
    settle(follow)
    assert written(events) == expected(lines)
    follow.close()


def test_half_a_line_waits_for_its_other_half(log, events):
    text = CAPTURE.read_bytes()
    follow = follower(log, events)
    for end in (1000, 1001, 1500, len(text)):
        log.write_bytes(text[:end])
        follow.poll()
    settle(follow)
    assert written(events) == expected(CAPTURE.read_text().splitlines())
    follow.close()


def test_started_again_it_writes_nothing_twice(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:70]))
    first = follower(log, events)
    settle(first)
    first.close()
    log.write_text("".join(lines))
    second = follower(log, events)
    settle(second)
    second.close()
    assert written(events) == expected(lines)


def test_a_torn_record_of_a_follower_that_died_is_written_again(log, events):
    log.write_bytes(CAPTURE.read_bytes())
    first = follower(log, events)
    settle(first)
    first.close()
    segment = max(events.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    os.truncate(segment, segment.stat().st_size - 10)
    second = follower(log, events)
    settle(second)
    second.close()
    assert written(events) == expected(CAPTURE.read_text().splitlines())


def test_rotation_by_renaming_loses_nothing(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:60]))
    follow = follower(log, events)
    follow.poll()
    with log.open("a") as out:
        out.writelines(lines[60:80])
    log.rename(log.with_suffix(".1"))
    log.write_text("".join(lines[80:]))
    settle(follow)
    assert written(events) == expected(lines)
    follow.close()


def test_rotation_by_copy_and_truncation_loses_nothing_that_was_read(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:80]))
    follow = follower(log, events)
    follow.poll()
    os.truncate(log, 0)
    follow.poll()
    with log.open("a") as out:
        out.writelines(lines[80:])
    settle(follow)
    assert written(events) == expected(lines)
    follow.close()


def test_a_log_that_is_not_there_yet_is_waited_for(log, events):
    follow = follower(log, events)
    assert follow.poll() == 0
    log.write_bytes(CAPTURE.read_bytes())
    assert follow.poll() == 139
    follow.close()


def test_a_full_segment_is_followed_by_one_that_begins_with_a_snapshot(log, events):
    def line(at: float, message: str) -> str:
        fields = {
            "created": at,
            "process": 7,
            "processName": "VllmWorker-0",
            "name": "vllm.lora.model_manager",
            "levelname": "DEBUG",
        }
        return json.dumps({**fields, "message": message}) + "\n"

    with log.open("w") as out:
        for i in range(1, 25_000):
            adapter_id = 1 + i % 2
            out.write(line(1_796_000_000 + i * 20, f"Removing adapter int id: {3 - adapter_id}"))
            out.write(line(1_796_000_000 + i * 20, f"Activating LoRA. int id: {adapter_id}, slot index: 0"))
    follow = follower(log, events)
    settle(follow)
    follow.close()
    first, second = sorted(events.glob("*.jsonl"))
    assert first.stat().st_size >= SEGMENT_BYTES
    assert json.loads(second.read_text().splitlines()[0])["kind"] == "snapshot"
    assert [r["seq"] for r in written(events)] == list(range(1, len(written(events)) + 1))


def test_headers_count_what_was_written_and_are_locked_while_the_run_lasts(log, events):
    log.write_bytes(CAPTURE.read_bytes())
    code = (
        "import sys; from pathlib import Path\n"
        "from lora_watch.agent.follow import Follower; from lora_watch.agent.debug_log import Converter\n"
        f"f = Follower(Path(sys.argv[1]), Path(sys.argv[2]), Converter(now={NOW}))\n"
        "[f.poll() for _ in range(20)]; print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, log, events], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdout.readline()
        heads = sorted(events.glob("*.head"))
        assert [writer_lives(head) for head in heads] == [True, True]
    child.wait()
    assert [writer_lives(head) for head in heads] == [False, False]
    counts = {path.stem: header.issued for path in heads if (header := Header.read(path))}
    assert sum(counts.values()) == len(written(events))


def test_a_restarted_server_lets_go_of_the_boots_before_it(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    log.write_text("".join(lines))
    follow = follower(log, events)
    settle(follow)
    with log.open("a") as out:
        out.writelines(line.replace('"process": 17', '"process": 99') for line in lines)
    settle(follow)
    follow.close()
    assert len({r["boot"] for r in written(events)}) == 4


def test_the_command_says_ready_and_ends_at_sigterm(log, events):
    log.write_bytes(CAPTURE.read_bytes())
    command = [sys.executable, "-m", "lora_watch.agent.follow", log, events]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(3, 50))
def test_a_tail_gives_each_whole_line_once_however_the_bytes_arrive(tmp_path_factory, parts, step):
    path = tmp_path_factory.mktemp("tail") / "log"
    whole = b"".join(part.replace(b"\n", b"") + b"\n" for part in parts)
    tail, lines = Tail(path), []
    for end in range(0, len(whole) + step, step):
        path.write_bytes(whole[:end])
        lines += tail.lines()
    tail.close()
    assert lines == [part.replace(b"\n", b"").decode("utf-8", "replace") for part in parts]


def test_a_line_beyond_a_mebibyte_is_passed_over_without_harm(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"before\n" + b"x" * (3 << 20) + b"\nafter\n")
    tail = Tail(path)
    assert list(tail.lines()) == ["before", "after"]
    tail.close()


def ask(url: str, path: str) -> bytes:
    """The body of a page."""
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def test_the_sidecar_serves_what_a_vllm_log_says(log, events):
    log.write_bytes(CAPTURE.read_bytes())
    command = [sys.executable, "-m", "lora_watch.agent.main", "--vllm-log", log, "--log-dir", events, "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        url = child.stdout.readline().split()[-1]
        boots = {boot["role"]: boot for boot in json.loads(ask(url, "/events"))["boots"]}
        lines = ask(url, f"/events?boot={boots['worker']['boot']}&after=0&kinds=load,evict").splitlines()
        page = ask(url, "/metrics").decode()
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    assert [boot["alive"] for boot in boots.values()] == [True, True]
    moves = [r for r in convert(CAPTURE.read_text().splitlines(), now=NOW) if r["kind"] in ("load", "evict")]
    assert [json.loads(line) for line in lines] == moves
    assert 'adapter_name="adapter-a"' in page


def process_that_has(word: str) -> psutil.Process:
    """The child of ours that was started with ``word``."""
    (child,) = [child for child in psutil.Process().children() if word in child.cmdline()]
    return child


def test_nobody_is_declared_dead_while_no_process_follows_the_log(log, events):
    lines = CAPTURE.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:60]))
    following = Following(log, events)
    reader = LogReader(events, alive=following.alive)
    try:
        assert following.start()
        assert following.caught_up(60)
        ended = {boot.boot: boot.last_seq for boot in reader.boots()}
        child = process_that_has(str(log))
        child.kill()
        child.wait(30)
        assert not following.caught_up()
        assert {boot.boot: (boot.last_seq, boot.alive) for boot in reader.boots()} == {b: (seq, True) for b, seq in ended.items()}
        with log.open("a") as out:
            out.writelines(lines[60:])
        assert following.start()
        assert not following.start()
        assert following.caught_up(60)
        assert {boot.alive for boot in reader.boots()} == {True}
    finally:
        following.close()
    assert {boot.alive for boot in LogReader(events).boots()} == {False}
    assert {boot for boot, seq in ended.items()} <= {record["boot"] for record in written(events)}
    for boot in ended:
        seqs = [record["seq"] for record in written(events) if record["boot"] == boot]
        assert seqs == list(range(1, len(seqs) + 1))


def test_a_follower_that_does_not_end_is_killed(tmp_path):
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    following = Following(tmp_path, tmp_path, command=(sys.executable, "-c", deaf, str(tmp_path)))
    following.start()
    assert following.caught_up(60)
    child = process_that_has(str(tmp_path))
    following.close()
    assert not child.is_running()


def test_a_log_that_is_a_pipe_or_a_directory_in_the_way_ends_the_follower_with_a_sentence(tmp_path, events):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    for log, directory in ((tmp_path / "pipe", events), (tmp_path / "file", tmp_path / "file")):
        command = [sys.executable, "-m", "lora_watch.agent.follow", str(log), str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert re.fullmatch(r".* can't be followed into .*\n", done.stderr)


def test_the_shipped_logging_configuration_is_printed_and_writes_what_is_read(tmp_path):
    code = (
        "import json, logging, logging.config, sys\n"
        "config = json.loads(sys.stdin.read())\n"
        "config['handlers']['lora_watch']['filename'] = sys.argv[1]\n"
        # the JSON formatter is a dependency of vLLM, not of ours
        "config['formatters']['lora_watch'] = {'format': '%(levelname)s %(name)s %(message)s'}\n"
        "logging.config.dictConfig(config)\n"
        "logging.getLogger('vllm.lora.model_manager').debug('seen')\n"
        "logging.getLogger('vllm.entrypoints.openai.models.serving').info('seen')\n"
        "logging.getLogger('vllm.v1.engine').info('not for the file')\n"
    )
    log = tmp_path / "lora.jsonl"
    printed = subprocess.run(
        [sys.executable, "-m", "lora_watch.agent.main", "--print-logging-config"], capture_output=True, check=True
    )
    console = subprocess.run(
        [sys.executable, "-c", code, log], input=printed.stdout, capture_output=True, check=True
    ).stdout.decode()
    assert log.read_text().splitlines() == [
        "DEBUG vllm.lora.model_manager seen",
        "INFO vllm.entrypoints.openai.models.serving seen",
    ]
    assert [line.rsplit("] ", 1)[1] for line in console.splitlines()] == ["seen", "not for the file"]
