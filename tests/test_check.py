"""`lora-watch check` from end to end: at whatever there is it looks once, says what it sees, and exits accordingly."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from builders import rows
from event_logs import write_log
from lru_pod import Pod
from sources.test_history import Real, real, series
from stored import stored
from typer.testing import CliRunner

from lora_watch import check, names
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.check import Asked
from lora_watch.cli import app
from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, TABLES
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
AT = ("--at", datetime.fromtimestamp(END / SECOND, UTC).isoformat())
BOOTS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
assert real  # the fixture: a Prometheus that takes remote writes


def pod(*, slots: int = 4, load: float = 0.6) -> Pod:
    """Six adapters of 2 GB in turn for some minutes, a request a second; the data end at ``END``."""
    made = Pod(slots=slots, load=load, size=2 * 10**9).start(END - HOUR)
    for number in range(400):
        made.ask(END - 400 * SECOND + number * SECOND, f"lora-{number % 6}", hold=0.3)
    made.events.append({"at": END - 1, "kind": "steps", "count": 1, "wall_seconds": 1.0, "clock": "host"})
    return made


@pytest.fixture(scope="module")
def thrashing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a pod that swaps with each request; nobody writes here."""
    folder, made = tmp_path_factory.mktemp("thrashing"), pod()
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a pod with a slot for each adapter."""
    folder, made = tmp_path_factory.mktemp("healthy"), pod(slots=8)
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The event logs of the same pod."""
    folder, made = tmp_path_factory.mktemp("logs"), pod()
    write_log(folder, BOOTS[0], made.worker_log())
    write_log(folder, BOOTS[1], [{"at": END - HOUR, "kind": "start", "role": "api", "engine": "0"}, *made.server_log()])
    return folder


@pytest.fixture
def closed_port() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as people run it, in a folder without a configuration."""
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "lora_watch.cli", "check", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def answer(*arguments: str) -> dict:
    code, text, error = run(*arguments, "--format", "json")
    assert (code, error) == (0, "")
    return json.loads(text)


def kinds(told: dict) -> set[str]:
    return {one["kind"] for one in told["findings"]}


# what it looks at


def test_tables_are_looked_at_up_to_where_they_end(thrashing: Path, tmp_path: Path):
    done = process(tmp_path, "--data", str(thrashing))
    assert (done.returncode, done.stderr) == (0, "")
    assert "2024-10-04T11:00:00Z … 2024-10-04T12:00:00Z (60 min)" in done.stdout
    assert "c/p: HARM  1 pod, 4 slots: Thrash: 6 adapters are in use on 4 slots" in done.stdout
    assert "do      +2 slots per pod (--max-loras 4 → 6): removes 100 % of the swaps" in done.stdout


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_history_is_read_as_what_its_columns_say(tmp_path: Path, kind: str):
    made, files = pod(), []
    for name, frame in (("events", made.event_rows()), ("requests", made.request_rows())):
        file = tmp_path / f"{name}.{kind}"
        write: dict[str, Callable[[Path], object]] = {
            "parquet": frame.write_parquet,
            "csv": frame.write_csv,
            "jsonl": frame.write_ndjson,
        }
        write[kind](file)
        files += ["--history", str(file)]
    told = answer(*files)
    assert "thrash" in kinds(told)
    assert told["worst"] == "harm"


def test_a_table_that_a_spreadsheet_wrote_is_history_too(tmp_path: Path):
    file = tmp_path / "requests.csv"
    file.write_bytes(b"\xef\xbb\xbf" + pod().request_rows().write_csv().replace("\n", "\r\n").encode())
    assert answer("--history", str(file))["pools"][0]["pods"] == 1


def test_a_folder_of_event_logs_is_history_too(logs: Path):
    told = answer("--history", str(logs))
    assert "thrash" in kinds(told)
    assert told["pools"][0]["pods"] == 1


def test_one_file_of_an_event_log_is_history_too(logs: Path):
    told = answer("--history", str(logs / f"{BOOTS[0]}.000000000001.jsonl"))
    assert told["pools"][0]["slots"] == 4


def test_a_folder_with_our_tables_is_history_too(thrashing: Path):
    assert "thrash" in kinds(answer("--history", str(thrashing)))


def test_a_sidecar_is_asked_for_all_that_it_holds(logs: Path, tmp_path: Path):
    with Sidecar(Logs(logs, 1 << 30), port=0) as sidecar:
        done = process(tmp_path, "--agent", sidecar.url, "--watch", "0", "--format", "json", *AT)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert "thrash" in kinds(told)
    assert told["pools"][0]["slots"] == 4


def test_a_prometheus_is_asked_for_the_window_and_what_it_cannot_tell_is_said(real: Real, tmp_path: Path):
    end = END // SECOND
    for name in ("a", "b", "c"):
        lists = {"max_lora": "1", "running_lora_adapters": name, "waiting_lora_adapters": name}
        where = {"__name__": names.LORA_REQUESTS_INFO, "pod": "vllm-0", "instance": "vllm-0:8000", **lists}
        start = end - 1200 + 300 * "abc".index(name)
        real.write(series(where, [(at, float(at)) for at in range(start, start + 300, 15)]))
    done = process(tmp_path, "--prometheus", real.url, "--format", "json", *AT)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert "vllm-0: 3 adapters are served from 1 slot" in {one["summary"] for one in told["findings"]}
    assert told["pools"][0]["state"] != "healthy"
    assert any(one["what"].startswith("residency") for one in told["gaps"])


def test_a_prometheus_with_stock_pages_and_the_router_foretells_misses_by_rates(real: Real, tmp_path: Path):
    times = range(END // SECOND - 1800, END // SECOND, 15)
    for pod_name in ("vllm-0", "vllm-1"):
        lists = {"max_lora": "4", "running_lora_adapters": "a0", "waiting_lora_adapters": ""}
        page = {"__name__": names.LORA_REQUESTS_INFO, "pod": pod_name, "instance": f"{pod_name}:8000", **lists}
        real.write(series(page, [(at, float(at)) for at in times]))
        for number in range(8):
            where = {"pod": "epp-0", "instance": "epp-0:9090", "endpoint_name": pod_name, "namespace": "llm", "port": "8000"}
            told = {"status": "success", "target_model_name": f"a{number}", **where}
            counted = [(at, 0.1 * (at - times.start)) for at in times]
            real.write(*(series({"__name__": name, **told}, counted) for name in names.EPP_ATTEMPTS[:2]))
    done = process(tmp_path, "--prometheus", real.url, "--format", "json", *AT)
    assert (done.returncode, done.stderr) == (0, "")
    (pool,) = json.loads(done.stdout)["pools"]
    margins = {one["name"]: one for one in pool["margins"]}
    assert margins["predicted_miss_ratio"]["value"] == pytest.approx(0.5, abs=0.01)  # eight alike on four slots
    assert margins["predicted_miss_ratio"]["method"].startswith("che: within 0.01 for independent requests")
    assert margins["pressure"]["value"] == pytest.approx(1.0, abs=0.01)
    assert "by the router's counters" in pool["sentence"]


def test_the_configurations_store_is_looked_at_where_nothing_is_named(thrashing: Path, tmp_path: Path):
    (tmp_path / "lora-watch.yaml").write_text(f"store: {{folder: '{thrashing}'}}\n")
    assert "thrash" in kinds(answer("--config", str(tmp_path / "lora-watch.yaml")))


def test_the_configurations_targets_are_looked_at_where_its_store_is_empty(logs: Path, tmp_path: Path):
    config = tmp_path / "lora-watch.yaml"
    config.write_text(f"event_logs: [{{folder: '{logs}', pod: vllm-0}}]\nstore: {{folder: '{tmp_path}/none'}}\n")
    told = answer("--config", str(config), "--watch", "0", *AT)
    assert "thrash" in kinds(told)
    assert not (tmp_path / "none").exists()


def test_what_is_read_for_a_look_is_gone_afterwards(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    answer("--history", str(logs))
    assert list(tmp_path.iterdir()) == []


# what it answers


@pytest.mark.parametrize(("grave", "code"), [("warn", 1), ("harm", 1)])
def test_harm_fails_where_it_is_asked_to(thrashing: Path, grave: str, code: int):
    assert run("--data", str(thrashing), "--fail-on", grave)[0] == code


def test_a_warning_fails_only_where_warnings_do(tmp_path: Path):
    made = pod(load=0.01)
    stored(tmp_path, events=made.event_rows(), requests=made.request_rows())
    codes = [run("--data", str(tmp_path), "--fail-on", grave)[0] for grave in ("warn", "harm")]
    assert codes == [1, 0]


def test_a_healthy_pool_fails_nothing_and_is_told_with_margins(healthy: Path, tmp_path: Path):
    done = process(tmp_path, "--data", str(healthy), "--fail-on", "warn")
    assert (done.returncode, done.stderr) == (0, "")
    assert "HEALTHY" in done.stdout
    assert "Nothing was found." in done.stdout
    assert "swaps per request: 0 %" in done.stdout


def test_markdown_is_a_ticket(thrashing: Path):
    code, text, _ = run("--data", str(thrashing), "--format", "md")
    assert code == 0
    assert text.startswith("# Check 2024-10-04T11:00:00Z")
    assert "## HARM: Thrash" in text
    assert "**What to do**" in text


def test_json_is_one_object_on_one_line(thrashing: Path):
    text = run("--data", str(thrashing), "--format", "json")[1]
    assert text.count("\n") == 1
    assert set(json.loads(text)) == {"window", "worst", "pools", "findings", "gaps"}


def test_the_window_may_be_any(thrashing: Path):
    told = answer("--data", str(thrashing), "--last", "10m", "--at", "2024-10-04T11:30:00+00:00")
    assert told["window"] == {"start": "2024-10-04T11:20:00Z", "end": "2024-10-04T11:30:00Z", "seconds": 600.0}
    assert told["pools"][0]["state"] == "unknown"


def test_a_window_after_all_data_is_unknown_and_not_healthy(thrashing: Path):
    states = {one["state"] for one in answer("--data", str(thrashing), "--at", "2025-01-01T00:00:00Z")["pools"]}
    assert states <= {"unknown"}


# what goes wrong


def refused(*arguments: str) -> str:
    """What a run that fails says: one line, no trace of the code."""
    code, text, error = run(*arguments)
    assert (code, text) == (2, "")
    assert error.startswith("lora-watch: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return error


def test_a_folder_without_tables_says_so(tmp_path: Path):
    assert f"there are no tables in {tmp_path}" in refused("--data", str(tmp_path))


def test_tables_without_a_row_say_so(tmp_path: Path):
    stored(tmp_path, events=ADAPTER_EVENTS.empty())
    (tmp_path / "adapter_events").mkdir(exist_ok=True)
    assert "there is no data to look at" in refused("--data", str(tmp_path))


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_a_table_that_is_no_table_is_named(tmp_path: Path, thrashing: Path, name: str):
    for table in (ADAPTER_EVENTS, REQUESTS):
        if table.name != name:
            (tmp_path / table.name).symlink_to(thrashing / table.name)
    (tmp_path / name / "_delta_log").mkdir(parents=True)
    (tmp_path / name / "_delta_log" / "00000000000000000000.json").write_text("not json\n")
    if name == "findings":
        assert run("--data", str(tmp_path))[0] == 0
    else:
        assert name in refused("--data", str(tmp_path))


def test_two_things_to_look_at_are_one_too_many(thrashing: Path):
    for other in (("--history", "x"), ("--agent", "http://127.0.0.1:1"), ("--prometheus", "http://127.0.0.1:1")):
        assert "name one thing to look at" in refused("--data", str(thrashing), *other)


def test_a_sidecar_for_each_page(tmp_path: Path):
    text = refused("--pod", "http://127.0.0.1:1/metrics", "--agent", "http://127.0.0.1:1", "--agent", "http://127.0.0.1:2")
    assert "1 pages and 2 sidecars" in text


@pytest.mark.parametrize("wrong", [("--last", "soon"), ("--last", "0s"), ("--at", "noon"), ("--at", "2024-10-04")])
def test_a_window_that_cannot_be_read_is_refused(thrashing: Path, wrong: tuple[str, str]):
    refused("--data", str(thrashing), *wrong)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    assert "there is no file" in refused("--history", str(tmp_path / "gone.parquet"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.parquet", b"PAR1 not really"),
        ("x.csv", b"a,b\n1,2\n"),
        ("x.jsonl", b'{"a": 1}\n'),
        ("x.jsonl", b"[" * 100_000),
        ("x.bin", bytes(range(256))),
        ("empty.csv", b""),
        ("x.jsonl", b'{"stream": "s", "seq": ' + b"9" * 5_000 + b"}"),
    ],
)
def test_a_file_that_is_something_else_is_named(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    assert name in refused("--history", str(tmp_path / name))


def test_a_name_that_no_file_can_have_is_said():
    refused("--history", "x" * 5_000)
    refused("--data", "x" * 5_000)


def test_a_pipe_is_no_history(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "to a file first" in refused("--history", str(tmp_path / "pipe"))


def test_sigterm_clears_up(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        looking = subprocess.Popen(
            [sys.executable, "-m", "lora_watch.cli", "check", "--agent", f"http://127.0.0.1:{listener.getsockname()[1]}"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        listener.settimeout(120)
        asked, _ = listener.accept()  # and never answers
        with asked:
            held = list(tmp_path.glob("lora-watch-check-*"))
            looking.terminate()
            _, error = looking.communicate(timeout=60)
    assert len(held) == 1
    assert (looking.returncode, error, list(tmp_path.iterdir())) == (128 + signal.SIGTERM, "", [])


def test_an_empty_folder_is_no_history(tmp_path: Path):
    refused("--history", str(tmp_path))


def test_an_address_where_nobody_listens_is_named(closed_port: str):
    assert closed_port.removeprefix("http://") in refused("--agent", closed_port, "--watch", "0")
    assert closed_port.removeprefix("http://") in refused("--prometheus", closed_port, *AT)


@pytest.mark.parametrize("address", ["127.0.0.1:9465", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "", "x\ny"])
def test_an_address_that_is_none_is_refused(address: str):
    for option in ("--agent", "--pod", "--prometheus"):
        assert "configuration" not in refused(option, address, "--watch", "0", *AT)


def test_one_of_two_sidecars_that_does_not_answer_is_a_gap_and_holds_nothing_up(logs: Path, closed_port: str):
    with Sidecar(Logs(logs, 1 << 30), port=0) as sidecar:
        told = answer("--agent", sidecar.url, "--agent", closed_port, "--watch", "0", *AT)
    assert "thrash" in kinds(told)
    assert any(closed_port.removeprefix("http://") in gap["why"] for gap in told["gaps"])


# little data


@pytest.mark.parametrize("table", [ADAPTER_EVENTS, REQUESTS, SAMPLES], ids=lambda table: table.name)
def test_one_table_is_enough_to_look(tmp_path: Path, table: object):
    made = pod()
    sample = {"at": END - SECOND, "metric": names.SAMPLE_MAX_LORA, "value": 4.0, "series": "s", "labels": "{}"}
    given = {
        ADAPTER_EVENTS: {"events": made.event_rows()},
        REQUESTS: {"requests": made.request_rows()},
        SAMPLES: {"samples": rows(SAMPLES, [sample])},
    }
    stored(tmp_path, **given[table])
    (pool,) = answer("--data", str(tmp_path))["pools"]
    assert pool["state"] == {ADAPTER_EVENTS: "harm", REQUESTS: "unknown", SAMPLES: "unknown"}[table]


def test_one_event_is_looked_at(tmp_path: Path):
    stored(tmp_path, events=rows(ADAPTER_EVENTS, [{"at": 5, "kind": "start", "slots": 1, "clock": "host"}]))
    (pool,) = answer("--data", str(tmp_path))["pools"]
    assert (pool["slots"], pool["state"]) == (1, "unknown")


def test_a_pod_whose_clock_is_ahead_does_not_move_the_window(tmp_path: Path):
    made = pod()
    ahead = rows(ADAPTER_EVENTS, [{"at": END + 365 * DAY, "kind": "stop"}], pod="ahead", stream="ahead")
    stored(tmp_path, events=pl.concat([made.event_rows(), ahead]), requests=made.request_rows())
    gathered = check.Gathered(Store(tmp_path))
    told = check.look(gathered, Settings(), Asked(data=tmp_path), END + HOUR)
    assert abs(told.window.end - END) < MINUTE
    assert "thrash" in {one.kind for one in told.findings}


def test_where_all_clocks_are_ahead_the_data_are_looked_at_all_the_same(tmp_path: Path):
    made = pod()
    stored(tmp_path, events=made.event_rows(), requests=made.request_rows())
    told = check.look(check.Gathered(Store(tmp_path)), Settings(), Asked(data=tmp_path), END - 365 * DAY)
    assert "thrash" in {one.kind for one in told.findings}


@pytest.mark.parametrize("at", [-1, 0, 2**53, 2**62])
def test_times_that_are_none_end_in_a_sentence_or_an_answer(tmp_path: Path, at: int):
    file = tmp_path / "events.csv"
    file.write_text(f"stream,seq,at,kind,pod,cluster\ns,1,{at},start,p,c\n")
    code, _, error = run("--history", str(file))
    assert code in {0, 2}
    assert code == 0 or error.startswith("lora-watch: ")


def test_no_source_at_all_is_said(tmp_path: Path):
    with pytest.raises(LoraWatchError, match="nothing to look at"):
        check.from_targets(Store(tmp_path), Settings(), lambda: END, watch=0)


def test_rates_of_pages_take_a_second_look_after_the_time_told(logs: Path, tmp_path: Path):
    slept: list[float] = []
    with Sidecar(Logs(logs, 1 << 30), port=0) as sidecar:
        named = check.pods((), (sidecar.url,), Settings())
        done = check.from_targets(Store(tmp_path), named, lambda: END, watch=7, sleep=slept.append)
    assert (slept, done.problems) == ([7], [])


def test_pods_are_called_by_their_address():
    named = check.pods(("http://10.0.0.1:8000/metrics",), ("http://10.0.0.1:9465",), Settings())
    assert [(one.pod, one.agent) for one in named.targets] == [("10.0.0.1:8000", "http://10.0.0.1:9465")]
    assert PodId("default", "10.0.0.1:8000").pod == named.targets[0].pod


def test_pods_behind_one_host_are_called_by_their_path_too():
    named = check.pods(("http://h/a/metrics", "http://h/b/metrics", "http://i/metrics"), (), Settings())
    assert [one.pod for one in named.targets] == ["h/a/metrics", "h/b/metrics", "i"]


def test_a_pod_that_is_named_twice_is_refused():
    assert "stands there twice" in refused("--pod", "http://h/metrics", "--pod", "http://h/metrics")
