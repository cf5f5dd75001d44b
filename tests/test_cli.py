import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from builders import events, requests
from event_logs import worker, write_log
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from lora_watch import __version__
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.cli import app
from lora_watch.explore.status import read, show
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Batch
from lora_watch.store.tables import Store

HOSTILE = "</script>[bold]\n🦙" + "x" * 10_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    seen = events(f"a:1-30 b!:10- c:31-50 a:55-90 {'h'}:91-", start_at=0, slots=2)
    seen = seen.with_columns(adapter=seen["adapter"].replace({"h": HOSTILE}))
    store.ledger(ADAPTER_EVENTS).append(Batch(seen, {seen["stream"][0]: seen["seq"].max()}), at=1)
    asked = requests("a:0.5/0.5/1.2/5 b:9/9.9/10.1/20 a:20/20/21/22", stream="agent/c/pod-0/api")
    store.ledger(REQUESTS).append(Batch(asked, {"agent/c/pod-0/api": 3}), at=1)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_status_is_a_table_for_people(data: Path):
    code, text, _ = run("status", "--data", str(data), "--last", "2m")
    assert code == 0
    assert "3/2" not in text.split("pod-0")[0]
    assert "66.7 %" in text
    assert "observed" in text
    assert max(len(line) for line in text.splitlines()) <= 161


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_a_narrow_terminal_shows_every_name_and_number_whole(data: Path, width: int):
    written = StringIO()
    shown = read(Store(data), (120 * SECOND, None), lookback=SECOND)
    show(shown, adapters=10, console=Console(file=written, width=width))
    lines = written.getvalue().splitlines()
    assert "pod-0" in written.getvalue()
    assert "66.7 %" in written.getvalue()
    assert max(cell_len(line) for line in lines) <= width
    assert not [line for line in lines if "…" in line and line.startswith("│") and "xxx" not in line]


def test_a_share_that_is_an_upper_bound_is_never_shown_as_a_value(data: Path):
    shown = read(Store(data), (120 * SECOND, None), lookback=SECOND)
    bound = shown.pods.with_columns(share_low=pl.lit(0.0), share_high=pl.lit(0.0), grade=pl.lit("D"))
    written = StringIO()
    show(replace(shown, pods=bound), adapters=0, console=Console(file=written, width=160))
    assert "≤ 0.0 % (D)" in written.getvalue()


def test_loads_that_nobody_saw_are_one_dash(data: Path):
    shown = read(Store(data), (120 * SECOND, None), lookback=SECOND)
    unseen = shown.pods.with_columns(warm=pl.lit(None, pl.Int64), cold=pl.lit(None, pl.Int64))
    written = StringIO()
    show(replace(shown, pods=unseen), adapters=0, console=Console(file=written, width=160))
    assert "–+–" not in written.getvalue()


def test_two_pods_of_one_name_are_told_apart_by_their_cluster(data: Path):
    shown = read(Store(data), (120 * SECOND, None), lookback=SECOND)
    other = shown.pods.with_columns(cluster=pl.lit("east"))
    written = StringIO()
    show(replace(shown, pods=pl.concat([shown.pods, other])), adapters=0, console=Console(file=written, width=160))
    assert "│ c/" in written.getvalue()
    assert "│ east/" in written.getvalue()


@pytest.mark.parametrize("window", [["--last", "99999999d"], ["--last", "4000d"], ["--at", "0001-01-01T00:10:00Z"]])
def test_a_window_beyond_all_data_is_refused_in_a_sentence(data: Path, window: list[str]):
    code, _, said = run("status", "--data", str(data), *window)
    assert code == 2
    assert said.startswith("lora-watch: ")
    assert len(said.splitlines()) == 1


def test_status_is_json_for_programs_with_names_whole(data: Path):
    code, text, _ = run("status", "--data", str(data), "--last", "2m", "--format", "json")
    answer = json.loads(text)
    assert code == 0
    assert answer["window"]["seconds"] == 120
    assert HOSTILE in [row["adapter"] for row in answer["adapters"]]
    assert answer["pods"][0]["miss_ratio"] == pytest.approx(2 / 3)
    assert answer["pods"][0]["share_high"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--last", "soon"], "'soon' is not a length of time"),
        (["--last", "0s"], "no length of time"),
        (["--at", "2026-11-30T10:00:00"], "no time zone"),
        (["--at", "yesterday"], "cannot read the window: 'yesterday' is no moment"),
    ],
)
def test_a_window_that_cannot_be_read_is_said(data: Path, arguments: list[str], message: str):
    code, _, errors = run("status", "--data", str(data), *arguments)
    assert code == 2
    assert message in errors


def test_status_without_data_says_what_to_do(tmp_path: Path):
    assert "run `lora-watch serve`" in run("status", "--data", str(tmp_path / "none"))[2]
    assert "doctor" in run("status", "--data", str(tmp_path))[2]


def test_doctor_says_once_for_each_target_what_would_help(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("targets: [{pod: a, agent: 'http://127.0.0.1:9'}, {pod: b, agent: 'http://127.0.0.1:9'}]\n")
    code, text, _ = run("doctor", "--config", str(file))
    assert code == 1
    assert text.count("start `lora-watch-agent`") == 2
    assert text.count("as above") == 8
    assert "install the agent" not in text


def test_doctor_tells_an_empty_sidecar_from_none(tmp_path: Path):
    file = tmp_path / "c.yaml"
    with Sidecar(Logs(tmp_path / "logs", 1 << 30), port=0) as sidecar:
        file.write_text(f"targets: [{{pod: a, agent: '{sidecar.url}'}}]\n")
        findings = json.loads(run("doctor", "--config", str(file), "--format", "json")[1])["findings"]
    assert [one["asked"] for one in findings if one["well"]] == ["agent's sidecar"]
    assert all("same LORA_WATCH_LOG_DIR" in one["remedy"] for one in findings if not one["well"])


def test_doctor_does_not_promise_requests_of_an_engine_that_only_its_own_log_tells_of(tmp_path: Path):
    at = 1_796_000_000 * SECOND
    common = {"at": at, "engine": "0", "tp_rank": 0}
    write_log(tmp_path / "logs", "11111111-1111-4111-8111-111111111111", [{**next(worker(1, start=at)), "clock": "none"}])
    api = [
        {**common, "kind": "start", "role": "api"},
        {**common, "kind": "register", "adapter": "a", "adapter_id": 1, "ok": True},
    ]
    write_log(tmp_path / "logs", "22222222-2222-4222-8222-222222222222", api)
    file = tmp_path / "c.yaml"
    with Sidecar(Logs(tmp_path / "logs", 1 << 30), port=0) as sidecar:
        file.write_text(f"targets: [{{pod: a, agent: '{sidecar.url}'}}]\n")
        findings = json.loads(run("doctor", "--config", str(file), "--format", "json")[1])["findings"]
    found = {one["asked"]: one["found"] for one in findings}
    assert found["residency, swaps"] == "observed: every load and eviction, from the engine's own log"
    assert found["misses per request"] == "unknown: the engine's own log tells of loads, not of requests"
    assert found["swap queue"] == "unknown"


def test_doctor_says_nothing_of_a_page_it_could_not_read(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("targets: [{pod: a, metrics: 'http://127.0.0.1:9/metrics'}]\n")
    text = run("doctor", "--config", str(file), "--format", "json")[1]
    assert "in flight" not in text


def test_config_check_says_what_is_there(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("targets: [{agent: http://x:1}]\n")
    assert "is right: 1 target;" in run("config", "check", "--config", str(file))[1]
    file.write_text("targets: [{agent: http://x:1}, {agent: http://y:1}]\n")
    assert "is right: 2 targets;" in run("config", "check", "--config", str(file))[1]
    file.write_text("targts: []\n")
    code, _, errors = run("config", "check", "--config", str(file))
    assert (code, "did you mean `targets`?" in errors) == (2, True)


def test_the_example_passes_its_own_check(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text(run("config", "example")[1])
    assert run("config", "check", "--config", str(file))[0] == 0


def test_serve_with_nothing_to_watch_says_so(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("cluster: x\n")
    code, _, errors = run("serve", "--config", str(file))
    assert (code, "names nothing to watch" in errors) == (2, True)


@pytest.mark.parametrize("command", [["serve"], ["agent"], ["status"], ["doctor"], ["demo"], ["config", "check"], ["version"]])
def test_every_command_has_help(command: list[str]):
    result = subprocess.run(
        [sys.executable, "-m", "lora_watch.cli", *command, "--help"], capture_output=True, text=True, check=True
    )
    assert "--help" in result.stdout


def test_the_version_is_a_command_and_an_option():
    assert run("--version") == run("version") == (0, f"{__version__}\n", "")


def test_help_imports_neither_polars_nor_pydantic():
    script = "import sys; from lora_watch import cli; print(sorted({'polars', 'pydantic', 'deltalake'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
