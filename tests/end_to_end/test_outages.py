"""A full disk, an hour without Prometheus, a clock set back: said once, and made good by itself."""

import logging
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from builders import rows as build
from event_logs import worker, write_log

from lora_watch import names
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.config import parse
from lora_watch.model import HOUR, SECOND
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES, Batch
from lora_watch.service import Service
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

START = 1_796_000_000  # s
BOOT = "11111111-1111-4111-8111-111111111111"


class Clock:
    """A clock that is set by hand, µs UTC."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Prometheus:
    """A real Prometheus on a fixed port, over three hours of one gauge; may be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lines = ["# TYPE vllm:num_requests_running gauge"]
        lines += [f'vllm:num_requests_running{{pod="vllm-0"}} {n % 3} {START + 15 * n}' for n in range(720)]
        self.lay("\n".join([*lines, "# EOF", ""]))
        (folder / "prometheus.yml").write_text("scrape_configs: []\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._process: subprocess.Popen[str] | None = None

    def lay(self, openmetrics: str) -> None:
        """Put more samples into its past."""
        (self._folder / "history.om").write_text(openmetrics)
        files = [str(self._folder / "history.om"), str(self._folder / "data")]
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", *files], check=True, capture_output=True)

    def start(self) -> None:
        address = self.url.removeprefix("http://")
        options = [f"--config.file={self._folder / 'prometheus.yml'}", f"--storage.tsdb.path={self._folder / 'data'}"]
        options += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y"]
        self._process = subprocess.Popen(["prometheus", *options], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "ready to receive web requests" in line:
                return
        raise AssertionError("prometheus did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=30)
            self._process = None


@pytest.fixture
def prometheus(tmp_path: Path):
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Prometheus(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="lora_watch")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "lora_watch"]


def test_an_hour_without_prometheus_is_said_once_and_read_when_it_is_back(tmp_path: Path, prometheus: Prometheus, lines):
    settings = parse(f"prometheus: [{{url: '{prometheus.url}', history: 10m}}]\nstore: {{folder: '{tmp_path}/data'}}")
    clock = Clock((START + 3600) * SECOND)
    service = Service(settings, sources_of(settings, clock), clock=clock)
    service.tick()
    prometheus.stop()
    for _ in range(6):
        clock.now += 600 * SECOND
        service.tick()
    prometheus.start()
    service.tick()
    clock.now += 60 * SECOND
    service.tick()
    assert len([line for line in lines() if "no connection" in line]) == 1
    assert lines()[-1] == "all is well again"
    stored = Store(tmp_path / "data").scan(SAMPLES).collect(engine="streaming")
    at = [t // SECOND for t in sorted(stored.filter(stored["metric"] == names.REQUESTS_RUNNING)["at"].to_list())]
    begin, end = START + 3600 - 600, START + 3600 + 3660 - 2
    assert at == list(range(at[0], end, 15))
    assert at[0] <= begin < at[0] + 120


def test_a_full_disk_is_said_and_nothing_is_missing_when_there_is_room_again(tmp_path: Path, small_disk: Path, lines):
    write_log(tmp_path / "logs", BOOT, worker(3_000, start=START * SECOND))
    with Sidecar(Logs(tmp_path / "logs", 1 << 30), port=0) as sidecar:
        where = f"targets: [{{pod: p, agent: '{sidecar.url}'}}]\nstore: {{folder: '{small_disk}/data'}}\n"
        settings = parse(where + "collect: {events_per_tick: 1000}")
        clock = Clock((START + 3600) * SECOND)
        service = Service(settings, sources_of(settings, clock), clock=clock)
        service.tick()
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"x" * (8 << 20))
        for _ in range(3):
            clock.now += 15 * SECOND
            service.tick()
        full = [line for line in lines() if "no space is left" in line]
        filler.unlink()
        for _ in range(4):
            clock.now += 15 * SECOND
            service.tick()
    assert 1 <= len(full) <= 4, "once for each job that writes"
    stored = Store(small_disk / "data").scan(ADAPTER_EVENTS).collect(engine="streaming").sort("seq")
    assert stored["seq"].to_list() == list(range(1, stored.height + 1))
    assert stored["kind"].to_list()[-1] == "stop"


def test_a_clock_set_back_loses_no_event_and_repeats_none(tmp_path: Path, lines):
    with Sidecar(Logs(tmp_path / "logs", 1 << 30), port=0) as sidecar:
        settings = parse(f"targets: [{{pod: p, agent: '{sidecar.url}'}}]\nstore: {{folder: '{tmp_path}/data'}}")
        clock = Clock((START + 3600) * SECOND)
        service = Service(settings, sources_of(settings, clock), clock=clock)
        records = list(worker(400, start=START * SECOND))
        write_log(tmp_path / "logs", BOOT, records[:200])
        service.tick()
        clock.now -= HOUR
        write_log(tmp_path / "logs", BOOT, records)
        service.tick()
        clock.now += 2 * HOUR
        service.tick()
    assert any("the clock was set back" in line for line in lines())
    stored = Store(tmp_path / "data").scan(ADAPTER_EVENTS).collect(engine="streaming").sort("seq")
    assert stored["seq"].to_list() == list(range(1, stored.height + 1))
    assert stored["kind"].to_list()[-1] == "stop"


def test_a_late_sample_within_the_lag_is_stored_once(tmp_path: Path):
    store, row = Store(tmp_path), {"series": "s", "metric": "m", "labels": "{}", "value": 1.0}
    ledger = store.ledger(SAMPLES)
    ledger.append(Batch(build(SAMPLES, [{**row, "at": 10}, {**row, "at": 30}]), {"prom/x": 40}), at=1)
    ledger.append(Batch(build(SAMPLES, [{**row, "at": 20}, {**row, "at": 30}]), {"prom/x": 50}), at=1)
    assert sorted(store.scan(SAMPLES).collect(engine="streaming")["at"].to_list()) == [10, 20, 30]


def test_a_sample_later_than_the_lag_is_stored_counted_and_said(tmp_path: Path, prometheus: Prometheus, lines):
    settings = parse(f"prometheus: [{{url: '{prometheus.url}', history: 10m, lag: 1m}}]\nstore: {{folder: '{tmp_path}/data'}}")
    clock = Clock((START + 3600) * SECOND)
    service = Service(settings, sources_of(settings, clock), clock=clock)
    service.tick()
    late = "\n".join(
        ["# TYPE vllm:num_requests_waiting gauge"]
        + [f'vllm:num_requests_waiting{{pod="vllm-0"}} 1 {START + 3300 + n}' for n in range(5)]
        + ["# EOF", ""]
    )
    prometheus.stop()
    prometheus.lay(late)
    prometheus.start()
    for _ in range(3):
        clock.now += 300 * SECOND
        service.tick()
    stored = Store(tmp_path / "data").scan(SAMPLES).collect(engine="streaming")
    assert stored.filter(stored["metric"] == names.REQUESTS_WAITING).height == 5
    assert service.exporter.registry.get_sample_value(names.SOURCE_LATE, {"source": "prometheus"}) == 5
    assert any("5 samples came after their time had been read" in line for line in lines())
