"""A real Prometheus that holds what a simulated cluster showed until just now, and that evaluates rules over it."""

import json
import signal
import socket
import struct
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from simulate.small import shrunk

from lora_watch.agent.metrics import page as agent_page
from lora_watch.agent.state import State
from lora_watch.explore.queries import Past, overview
from lora_watch.exporter import Exporter
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, PodId, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.simulate.engines import lives
from lora_watch.simulate.feed import records_of
from lora_watch.simulate.pages import EnginePages, GpuPage, RouterPage, metered
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue, catalogue, everything
from lora_watch.simulate.write import simulate
from lora_watch.sources.exposition import parse_page
from lora_watch.store.tables import Store

SCENARIO = "prefill-decode-mismatch"
"""Two pools of different roles, and enough swaps that every series has something to say."""
SPAN, EVERY = 75 * MINUTE, 15 * SECOND
Install = Literal["raw", "full"]
Labels = tuple[tuple[str, str], ...]
Samples = dict[Labels, list[tuple[float, float]]]


# --- remote write, by hand -----------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def series(labels: Labels, samples: Sequence[tuple[float, float]]) -> bytes:
    """A `TimeSeries` of (seconds, value)."""
    body = b"".join(field(1, field(1, name.encode()) + field(2, text.encode())) for name, text in sorted(labels))
    points = []
    for at, value in samples:
        point = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(round(at * 1000))
        points.append(b"\x12" + varint(len(point)) + point)
    return field(1, body + b"".join(points))


def snappy(body: bytes) -> bytes:
    """Snappy's form of literals alone: nothing is made shorter."""
    parts = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    return varint(len(body)) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)


# --- what was scraped ----------------------------------------------------------------------------------------------------------


class Simulated:
    """A small cluster's pages as Prometheus would have scraped them, its time moved so that it ends at ``now`` (seconds)."""

    def __init__(self, folder: Path, now: float, scenario: Scenario | None = None, seed: int = 1) -> None:
        self.scenario = scenario or shrunk(SCENARIO, 2.0)
        self.window = simulate(self.scenario, self.scenario.days, seed, folder).window
        self.store = Store(folder)
        self._shift = now - self.window.end / SECOND
        self._known: Catalogue = catalogue(self.scenario, seed)
        days = self.scenario.days
        self._meters = metered(
            list(lives(self.scenario, self._known, everything(self.scenario, self._known, days, seed), days, seed))
        )

    @property
    def pods(self) -> list[PodId]:
        return [
            PodId(self.scenario.cluster, f"{pool.name}-{n}", pool.name, pool.role)
            for pool in self.scenario.pools
            for n in range(pool.pods)
        ]

    def raw(self) -> Samples:
        """Engines, sidecars, the router and the GPU exporters."""
        found: Samples = {}
        moments = range(self.window.end - SPAN, self.window.end, EVERY)
        cluster = {"cluster": self.scenario.cluster}
        for pod in self.pods:
            meters = [m for m in self._meters if f"{m.life.pool.name}-{m.life.pod}" == pod.pod]
            where = {**cluster, "pool": pod.pool, "role": pod.role, "pod": pod.pod}
            engine = EnginePages(meters, self._known)
            for moment in moments:
                self._scrape(found, engine.at(moment), {**where, "job": "vllm", "instance": f"{pod.pod}:8000"}, moment)
        for pod, states in self._sidecars(moments).items():
            where = {**cluster, "pool": pod.pool or "", "role": pod.role or "", "pod": pod.pod}
            for moment, text in states:
                self._scrape(found, text, {**where, "job": "lora-watch-agent", "instance": f"{pod.pod}:9465"}, moment)
        router = RouterPage(self.scenario, self._known, self._meters)
        gpus = GpuPage(self.scenario, self._known, self._meters, sm_active=True)
        for moment in moments:
            self._scrape(found, router.at(moment), {**cluster, "job": "epp", "instance": "epp:9090"}, moment)
            self._scrape(found, gpus.at(moment), {**cluster, "job": "dcgm", "instance": "gpus:9400"}, moment)
        return found

    def full(self, exporter: Exporter | None = None, looks: int = 6) -> Samples:
        """The service's exporter, once a minute."""
        found: Samples = {}
        exporter = exporter or Exporter(adapters=100)
        past = Past(self.store, DAY)
        for look in reversed(range(looks)):
            end = self.window.end - look * MINUTE - EVERY
            exporter.publish(overview(self.store, Window(end - HOUR, end), past))
            self._scrape(found, told(exporter.registry), {"job": "lora-watch", "instance": "lora-watch:9466"}, end)
        return found

    def _sidecars(self, moments: Sequence[int]) -> dict[PodId, list[tuple[int, str]]]:
        """Each pod's sidecar page at each moment."""
        logs = records_of(self._rows(ADAPTER_EVENTS), self._rows(REQUESTS))
        pages: dict[PodId, list[tuple[int, str]]] = {}
        for pod in {pod for pod, _ in logs}:
            processes = [(boot, iter(records), State()) for (of, boot), records in logs.items() if of == pod]
            waiting = {boot: next(records, None) for boot, records, _ in processes}
            pages[pod] = []
            for moment in moments:
                for boot, records, state in processes:
                    while (record := waiting[boot]) is not None and record["at"] < moment:
                        state.fold(record)
                        waiting[boot] = next(records, None)
                text = agent_page({boot: state for boot, _, state in processes if state.since is not None}, 1_000_000)
                pages[pod].append((moment, text.decode()))
        return pages

    def _rows(self, table) -> pl.DataFrame:
        return self.store.rows(table, self.window)

    def _scrape(self, found: Samples, text: str, target: Mapping[str, str], moment: int) -> None:
        """Labels of the page win over those of the target, as ``honor_labels`` has it."""
        wanted = {line.split("{")[0].split()[0] for line in text.splitlines() if line and not line.startswith("#")}
        page = parse_page([text.encode()], wanted)
        assert page.problems == ()
        at = moment / SECOND + self._shift
        for sample in page.samples:
            labels = {**target, **{name: value for name, value in sample.labels.items() if value}, "__name__": sample.name}
            found.setdefault(tuple(sorted(labels.items())), []).append((at, sample.value))
        found.setdefault(tuple(sorted({**target, "__name__": "up"}.items())), []).append((at, 1.0))


def told(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


# --- the server ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fed:
    """A running Prometheus."""

    url: str

    def write(self, samples: Samples) -> None:
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        body = snappy(b"".join(series(labels, points) for labels, points in samples.items()))
        ask = urllib.request.Request(f"{self.url}/api/v1/write", body, headers, method="POST")
        with urllib.request.urlopen(ask, timeout=60) as answer:
            assert answer.status == 204

    def query(self, expr: str, at: float | None = None) -> list[dict]:
        """The result of an instant query."""
        form = {"query": expr, **({} if at is None else {"time": repr(at)})}
        return self._ask("query", form)["result"]

    def rules(self) -> list[dict]:
        """Every rule that is evaluated, in the order of groups."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def _ask(self, what: str, form: Mapping[str, str]) -> dict:
        ask = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(form)}"
        with urllib.request.urlopen(ask, timeout=60) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(folder: Path, rules: Sequence[str] = ()) -> Iterator[Fed]:
    """A Prometheus that takes samples by remote write and evaluates these rule files (texts) each second."""
    files = []
    for number, text in enumerate(rules):
        groups = yaml.safe_load(text)
        for group in groups["groups"]:
            group["interval"] = "1s"
        files.append(folder / f"rules-{number}.yaml")
        files[-1].write_text(yaml.safe_dump(groups))
    setting = {"rule_files": list(map(str, files)), "storage": {"tsdb": {"out_of_order_time_window": "3d"}}}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(setting))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"]
    with subprocess.Popen(["prometheus", *options], stderr=(log := (folder / "log").open("w+")), text=True) as process:
        fed = Fed(f"http://127.0.0.1:{port}")
        try:
            fed_is_ready(fed, process)
            yield fed
        finally:
            process.send_signal(signal.SIGKILL)
            log.close()


def fed_is_ready(fed: Fed, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{fed.url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("Prometheus does not come up")


def evaluated(fed: Fed, recorded: Sequence[str], seconds: float = 60.0) -> set[str]:
    """Those of the recorded names that have series, as soon as all have, or after so long."""
    end = time.monotonic() + seconds
    while True:
        known = {name for name in recorded if fed.query(f"count({name})")}
        if len(known) == len(set(recorded)) or time.monotonic() > end:
            return known
        time.sleep(0.5)
