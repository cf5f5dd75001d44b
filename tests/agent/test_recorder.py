import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from agent.conftest import Clock, read_all

from lora_watch.agent.lines import Header, clip, parse, to_line, writer_lives
from lora_watch.agent.log import LogReader
from lora_watch.agent.recorder import Place, Recorder
from lora_watch.agent.retention import forget, prune

ROOT = Path(__file__).parents[2]


def recorder(directory, clock=None, *, snapshot=tuple, **sizes):
    clock = clock or Clock()
    return Recorder(Place(directory, **sizes), snapshot, clock=clock.wall, monotonic=clock.monotonic)


def seqs(directory):
    return [record["seq"] for record in read_all(directory)]


def test_records_are_numbered_from_one_without_gaps(tmp_path):
    log = recorder(tmp_path)
    for _ in range(3):
        log.record("use", {"adapter": "a"})
    assert seqs(tmp_path) == [1, 2, 3]


def test_a_record_is_one_json_line_that_names_its_process(tmp_path):
    log = recorder(tmp_path)
    log.record("use", {"adapter": 'a "b"\n</script>', "slot": None})
    (path,) = tmp_path.glob("*.jsonl")
    assert path.name == f"{log.boot}.000000000001.jsonl"
    assert json.loads(path.read_text()) == {
        "v": 1,
        "boot": log.boot,
        "seq": 1,
        "at": 1_000_000_000,
        "kind": "use",
        "engine": "0",
        "tp_rank": 0,
        "adapter": 'a "b"\n</script>',
        "slot": None,
    }


def test_half_a_surrogate_pair_survives(tmp_path):
    recorder(tmp_path).record("use", {"adapter": "a\udc80"})
    assert read_all(tmp_path)[0]["adapter"] == "a\udc80"


def test_time_never_goes_back_within_a_boot(tmp_path):
    clock = Clock(50.0)
    log = recorder(tmp_path, clock)
    for clock.seconds in (50.0, 40.0, 60.0):
        log.record("use", {})
    assert [record["at"] for record in read_all(tmp_path)] == [50_000_000, 50_000_000, 60_000_000]


def test_held_records_wait_and_are_written_in_order(tmp_path):
    log = recorder(tmp_path)
    log.record("start", {})
    log.held = True
    log.record("use", {})
    log.record("release", {})
    assert seqs(tmp_path) == [1]
    log.held = False
    log.write()
    assert seqs(tmp_path) == [1, 2, 3]


def test_the_folder_and_its_files_are_the_owners_alone(tmp_path):
    recorder(tmp_path / "log").record("use", {})
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}


def test_the_header_counts_what_was_issued_and_what_is_open(tmp_path):
    log = recorder(tmp_path)
    log.begin()
    log.record("start", {})
    log.begin()
    log.record("load", {}, ends=1)
    header = Header.read(tmp_path / f"{log.boot}.head")
    assert (header.issued, header.open, header.stopped) == (2, 1, 0)


def test_a_stop_is_the_last_record_and_closes_the_header(tmp_path):
    log = recorder(tmp_path)
    log.record("start", {})
    boot = log.boot
    log.close()
    assert read_all(tmp_path)[-1]["kind"] == "stop"
    assert Header.read(tmp_path / f"{boot}.head").stopped == 1


def test_nothing_recorded_leaves_nothing(tmp_path):
    recorder(tmp_path / "log").close()
    assert not (tmp_path / "log").exists()


def test_a_process_with_little_to_tell_says_every_six_hours_how_things_are(tmp_path):
    clock = Clock(50.0)
    log = recorder(tmp_path, clock, snapshot=lambda: [{"gpu": [[0, "a", 1, 5]]}])
    for hours in (0, 5.9, 6.1, 7, 12, 12.2):
        clock.seconds = 50.0 + 3600 * hours
        log.record("use", {"adapter": "a"})
    assert [record["kind"] for record in read_all(tmp_path)] == ["use"] * 3 + ["snapshot"] + ["use"] * 3 + ["snapshot"]


def test_a_full_segment_is_followed_by_one_that_begins_with_a_snapshot(tmp_path):
    log = recorder(tmp_path, snapshot=lambda: [{"gpu": []}], segment_bytes=1000)
    for _ in range(12):
        log.record("use", {"adapter": "a" * 50})
    heads = [json.loads(path.read_bytes().split(b"\n")[0]) for path in sorted(tmp_path.glob("*.jsonl"))]
    assert [head["kind"] for head in heads] == ["use"] + ["snapshot"] * (len(heads) - 1)
    assert len(heads) > 1
    assert seqs(tmp_path) == list(range(1, 12 + len(heads)))


def test_the_oldest_segments_go_when_the_cap_is_reached(tmp_path):
    log = recorder(tmp_path, snapshot=lambda: [{"gpu": []}], segment_bytes=1000, max_bytes=3000)
    for _ in range(100):
        log.record("use", {"adapter": "a" * 50})
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) < 5000
    first, *rest = read_all(tmp_path)
    assert (first["kind"], first["reason"], first["first"]) == ("lost", "cap", 1)
    assert [record["seq"] for record in rest] == list(range(first["last"] + 1, first["last"] + 1 + len(rest)))


@pytest.mark.parametrize("harm", ["delete", "rename", "delete the folder"])
def test_a_log_taken_away_is_begun_anew_within_a_second(tmp_path, harm):
    clock, folder = Clock(), tmp_path / "log"
    log = recorder(folder, clock, snapshot=lambda: [{"gpu": []}])
    log.record("start", {})
    (path,) = folder.glob("*.jsonl")
    if harm == "delete":
        path.unlink()
    elif harm == "rename":
        path.rename(path.with_suffix(".jsonl.1"))
    else:
        shutil.rmtree(folder)
    clock.seconds += 1.5
    log.record("use", {})
    assert [record["kind"] for record in read_all(folder)] == ["lost", "use", "snapshot"]
    assert (folder / f"{log.boot}.head").exists()


def test_a_log_cut_to_nothing_goes_on(tmp_path):
    clock = Clock()
    log = recorder(tmp_path, clock)
    log.record("start", {})
    (path,) = tmp_path.glob("*.jsonl")
    os.truncate(path, 0)
    clock.seconds += 1.5
    log.record("use", {})
    assert [(r["kind"], r["seq"]) for r in read_all(tmp_path)] == [("lost", 1), ("use", 2)]


def test_a_header_cut_to_nothing_harms_nobody(tmp_path):
    log = recorder(tmp_path)
    log.record("start", {})
    os.truncate(tmp_path / f"{log.boot}.head", 0)
    log.record("use", {})
    assert Header.read(tmp_path / f"{log.boot}.head").issued == 2


def test_a_folder_that_cannot_be_made_is_counted_and_made_up_for(tmp_path):
    clock, folder = Clock(), tmp_path / "log"
    folder.write_text("in the way")
    log = recorder(folder, clock, snapshot=lambda: [{"gpu": []}])
    for _ in range(3):
        log.record("use", {})
    folder.unlink()
    clock.seconds += 1.5
    log.record("use", {})
    rows = [(r["kind"], r["seq"], r.get("first"), r.get("last"), r.get("reason")) for r in read_all(folder)]
    assert rows == [("lost", 3, 1, 3, "disk"), ("use", 4, None, None, None), ("snapshot", 5, None, None, None)]


def test_threads_leave_no_gap(tmp_path):
    log = recorder(tmp_path)
    threads = [threading.Thread(target=lambda: [log.record("use", {}) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seqs(tmp_path) == list(range(1, 801))


def child(code, *arguments, **options):
    """A process that runs ``code`` with our package; its output."""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


OPEN = """
import os, signal, sys
from pathlib import Path
from lora_watch.agent.recorder import Place, Recorder
log = Recorder(Place(Path(sys.argv[1])), lambda: [{"gpu": []}])
"""


def test_a_forked_child_has_a_log_of_its_own_and_does_not_repeat_its_parents(tmp_path):
    code = f"""{OPEN}
log.record("start", {{}})
log.held = True
log.record("use", {{}})
if os.fork() == 0:
    log.record("release", {{}})
    os._exit(0)
os.wait()
log.held = False
log.write()
log.record("use", {{}})
"""
    assert child(code, tmp_path).returncode == 0
    boots = LogReader(tmp_path).boots()
    kinds = sorted([json.loads(line)["kind"] for line in LogReader(tmp_path).read(boot.boot)[0]] for boot in boots)
    assert kinds == [["release", "lost"], ["start", "use", "use", "stop"]]


def test_a_killed_process_is_known_to_be_dead_and_what_it_had_in_hand_is_counted(tmp_path):
    code = f"""{OPEN}
log.record("start", {{}})
log.held = True
log.record("use", {{}})
log.record("use", {{}})
log.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert child(code, tmp_path).returncode == -signal.SIGKILL
    (boot,) = LogReader(tmp_path).boots()
    lines, position = LogReader(tmp_path).read(boot.boot)
    lost = json.loads(lines[-1])
    assert (boot.alive, boot.last_seq, position) == (False, 4, 4)
    assert [lost[name] for name in ("seq", "count", "first", "last", "reason")] == [4, 3, 2, 4, "killed"]


def test_a_process_killed_while_it_writes_loses_nothing_silently(tmp_path):
    code = f"""{OPEN}
import itertools
for n in itertools.count():
    log.begin()
    log.record("load", {{"n": n, "adapter": "a" * 100}}, ends=1)
    if n == 500:
        print("on", flush=True)
"""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.kill()
    (boot,) = LogReader(tmp_path).boots()
    *records, death = [json.loads(line) for line in LogReader(tmp_path).read(boot.boot, limit=100_000)[0]]
    header = Header.read(tmp_path / f"{boot.boot}.head")
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert (death["reason"], death["count"]) == ("killed", header.issued + header.open - len(records))


def test_a_writer_at_work_holds_its_lock_and_lets_go_at_its_end(tmp_path):
    code = f"""{OPEN}
log.record("start", {{}})
print(log.boot, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        path = tmp_path / f"{process.stdout.readline().strip()}.head"
        assert writer_lives(path)
        process.communicate("")
    assert not writer_lives(path)


def _limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))


def test_a_disk_that_refuses_in_the_middle_of_a_line_costs_a_count_and_no_more(tmp_path):
    """The limit on a file's size cuts a write short, as a full disk does; raising it is space coming back."""
    code = f"""{OPEN}
import resource
for i in range(40):
    log.record("use", {{"adapter": "a" * 40, "n": i}})
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for i in range(40, 43):
    log.record("use", {{"adapter": "a" * 40, "n": i}})
"""
    done = child(code, tmp_path, preexec_fn=_limit)
    assert done.returncode == 0, done.stderr
    (boot,) = LogReader(tmp_path).boots()
    records = [json.loads(line) for line in LogReader(tmp_path).read(boot.boot)[0]]
    (lost,) = [record for record in records if record["kind"] == "lost"]
    assert (lost["reason"], lost["last"]) == ("disk", 40)
    assert lost["count"] == 40 - lost["first"] + 1
    assert [r["n"] for r in records if r["kind"] == "use"] == [*range(lost["first"] - 1), 40, 41, 42]
    assert [r["seq"] for r in records] == [*range(1, lost["first"]), 40, 41, 42, 43, 44, 45]
    assert [r["kind"] for r in records[-5:]] == ["use", "snapshot", "use", "use", "stop"]


def test_pruning_keeps_the_newest_segment_of_a_living_writer(tmp_path):
    boots = [f"{i:08d}-0000-0000-0000-000000000000" for i in range(2)]
    for boot in boots:
        for seq in (1, 5):
            path = tmp_path / f"{boot}.{seq:012d}.jsonl"
            path.write_bytes(b"x" * 100)
            os.utime(path, (seq, seq))
    assert prune(tmp_path, 0, keep=boots[:1]) == 300
    assert [path.name for path in tmp_path.iterdir()] == [f"{boots[0]}.000000000005.jsonl"]


def test_of_the_processes_that_ended_the_oldest_are_forgotten_whole(tmp_path):
    boots = [f"{i:08d}-0000-0000-0000-000000000000" for i in range(4)]
    for boot in boots:
        (tmp_path / f"{boot}.head").write_bytes(b"")
        (tmp_path / f"{boot}.000000000001.jsonl").write_bytes(b"")
    (tmp_path / f"{boots[0]}.000000000001.jsonl").unlink()
    assert forget(tmp_path, boots[:3], 1) == boots[:2]
    assert sorted(path.name[:8] for path in tmp_path.iterdir()) == ["00000002"] * 2 + ["00000003"] * 2
    assert forget(tmp_path, boots[2:3], 1) == []


def test_a_cap_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="LORA_WATCH_LOG_MAX_BYTES"):
        Place.from_environment({"LORA_WATCH_LOG_MAX_BYTES": "-1"})


def test_a_torn_start_before_a_record_does_not_hide_it():
    boot = "00000000-0000-0000-0000-000000000000"
    line = to_line({"v": 1, "boot": boot, "seq": 2, "at": 1, "kind": "use", "adapter": '{"v":1,'})
    assert parse(b'{"v":1,"boot":"0000' + line, boot)["adapter"] == '{"v":1,'


def test_a_cut_name_fits_its_limit():
    for text in ("\x00" * 30_000, "é" * 50_000, "😀" * 20_000):
        assert len(json.dumps(clip(text, 5000), ensure_ascii=False).encode()) <= 5000
