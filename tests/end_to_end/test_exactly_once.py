"""Whatever is killed whenever, the tables end up as if nothing had happened."""

import random
import socket
import time
from pathlib import Path

import polars as pl
import pytest
from event_logs import api_server, worker, write_log
from processes import Process

from lora_watch.errors import LoraWatchError
from lora_watch.jobs import collect
from lora_watch.model import SECOND
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, Table
from lora_watch.sources.agent import AgentEvents, AgentRequests
from lora_watch.sources.targets import Target, Targets
from lora_watch.store.tables import Store

START = 1_796_000_000 * SECOND
LATER = START + 86_400 * SECOND
KILLS = 100


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def record(folder: Path, events: int, requests: int) -> None:
    write_log(folder, "11111111-1111-4111-8111-111111111111", worker(events, start=START))
    write_log(folder, "22222222-2222-4222-8222-222222222222", api_server(requests, start=START))


def sidecar(folder: Path, port: int, log: Path) -> Process:
    return Process("lora_watch.agent.main", "--log-dir", str(folder), "--port", str(port), word="agent", log=log)


def service(config: Path, log: Path) -> Process:
    return Process("lora_watch.cli", "serve", "--config", str(config), word="metrics", log=log)


def rows(store: Store, table: Table) -> pl.DataFrame:
    return store.scan(table).collect(engine="streaming").sort("stream", "seq").drop("source")


def undisturbed(folder: Path, root: Path, log: Path) -> Store:
    store = Store(root)
    with sidecar(folder, 0, log) as beside:
        targets = Targets([Target("default", "vllm-0", agent_url=beside.address)])
        for source in (AgentEvents("e", targets), AgentRequests("r", targets)):
            ledger = store.ledger(source.table)
            while collect(source, ledger, until=LATER, now=LATER).rows:
                pass
    assert rows(store, ADAPTER_EVENTS).height > rows(store, REQUESTS).height > 0
    return store


def settings(path: Path, port: int, data: str, *, per_tick: int = 100) -> Path:
    path.write_text(
        f"targets: [{{pod: vllm-0, agent: 'http://127.0.0.1:{port}'}}]\n"
        f"collect: {{interval: 100ms, settle: 1ms, events_per_tick: {per_tick}, connect_timeout: 1s, read_timeout: 2s}}\n"
        f"derive: {{interval: 1h}}\nstore: {{folder: {data}, maintenance: 1s}}\nexporter: {{port: 0}}\n"
    )
    return path


def wait_for_commits(root: Path, more: int, seconds: float = 60.0) -> None:
    """Until so many commits were made to the events from now on."""
    log, end = root / "adapter_events" / "_delta_log", time.monotonic() + seconds
    before = len(list(log.glob("*.json")))
    while len(list(log.glob("*.json"))) < before + more:
        assert time.monotonic() < end, "the service commits nothing: " + (root.parent / "stderr.log").read_text()[-3000:]
        time.sleep(0.01)


def wait_for(store: Store, expected: dict[Table, int], seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while any(rows(store, table).height < count for table, count in expected.items()):
        assert time.monotonic() < end, {table.name: rows(store, table).height for table in expected}
        time.sleep(0.2)


@pytest.mark.slow
def test_a_hundred_kills_of_service_and_sidecar_leave_the_tables_of_an_undisturbed_run(tmp_path: Path):
    rng, log = random.Random(7), tmp_path / "stderr.log"
    record(tmp_path / "logs", events=60_000, requests=20_000)
    wanted = undisturbed(tmp_path / "logs", tmp_path / "undisturbed", log)
    port = free_port()
    config = settings(tmp_path / "lora-watch.yaml", port, "data")
    store = Store(tmp_path / "data")
    counts = {table: rows(wanted, table).height for table in (ADAPTER_EVENTS, REQUESTS)}
    progress = []
    for _ in range(KILLS):
        with sidecar(tmp_path / "logs", port, log) as beside, service(config, log) as watching:
            wait_for_commits(tmp_path / "data", rng.randint(0, 4))
            time.sleep(rng.uniform(0.0, 0.1))
            doomed = [beside, watching]
            rng.shuffle(doomed)
            for process in doomed:
                process.kill()
                time.sleep(rng.uniform(0.0, 0.05))
        progress.append(store.scan(ADAPTER_EVENTS).select(pl.len()).collect(engine="streaming").item())
    assert 0 < progress[KILLS // 2] < progress[-1] < counts[ADAPTER_EVENTS], "the kills must fall into the reading"
    with sidecar(tmp_path / "logs", port, log), service(settings(config, port, "data", per_tick=5_000), log):
        wait_for(store, counts)
    for table in counts:
        assert rows(store, table).equals(rows(wanted, table))


@pytest.mark.slow
def test_two_services_on_one_store_leave_no_row_twice_and_none_missing(tmp_path: Path):
    log = tmp_path / "stderr.log"
    record(tmp_path / "logs", events=20_000, requests=5_000)
    wanted = undisturbed(tmp_path / "logs", tmp_path / "undisturbed", log)
    store = Store(tmp_path / "data")
    counts = {table: rows(wanted, table).height for table in (ADAPTER_EVENTS, REQUESTS)}
    with sidecar(tmp_path / "logs", 0, log) as beside:
        port = int(beside.address.rpartition(":")[2])
        config = settings(tmp_path / "lora-watch.yaml", port, "data", per_tick=500)
        with service(config, log), service(config, log):
            wait_for(store, counts)
    for table in counts:
        assert rows(store, table).equals(rows(wanted, table))


def test_a_sidecar_that_is_gone_is_said_and_reading_goes_on_when_it_is_back(tmp_path: Path):
    log = tmp_path / "stderr.log"
    record(tmp_path / "logs", events=300, requests=10)
    port = free_port()
    store, targets = Store(tmp_path / "data"), Targets([Target("default", "vllm-0", agent_url=f"http://127.0.0.1:{port}")])
    source = AgentEvents("agents-events", targets)
    ledger = store.ledger(ADAPTER_EVENTS)
    with pytest.raises(LoraWatchError, match="none of 1 agents could be read"):
        collect(source, ledger, until=LATER, now=LATER)
    with sidecar(tmp_path / "logs", port, log):
        collect(source, ledger, until=LATER, now=LATER)
    worker_rows = rows(store, ADAPTER_EVENTS).filter(pl.col("stream").str.contains("1111"))
    assert worker_rows["seq"].to_list() == list(range(1, worker_rows.height + 1))
    assert worker_rows["kind"].to_list()[-1] == "stop"
