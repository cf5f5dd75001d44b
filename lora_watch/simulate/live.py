"""
A simulated cluster behind the real interfaces: each pod's sidecar and its engine's ``/metrics`` page, on loopback.

Its time runs on a clock of its own, as many times as fast as one likes. Nothing is pressed together for that: every record
keeps its time and its true duration, so whoever reads must use the same clock, and look that much more often.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import polars as pl

from lora_watch.agent import checkpoint
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.agent.state import State
from lora_watch.model import MINUTE, PodId
from lora_watch.simulate.feed import SEGMENT_BYTES, SEGMENTS, Feed, PodLogs, Told, records_of
from lora_watch.simulate.pages import CONTENT_TYPE, EnginePages, GpuPage, RouterPage
from lora_watch.simulate.piecewise import Pod
from lora_watch.sources.base import parse_stream

TICK_SECONDS = 0.25
"""Between two looks at what has happened."""
MOST_SERIES = 4_000
"""Of an engine's gauge of adapters. All of a Thursday's are 12,000 four hours after the split: 21 MB a look at eight engines."""
LOOK_BACK = 3 * MINUTE
"""A GPU's page is of up to a minute before, and what was told last may be late."""
_OF_THE_PAST = ("start", "stop", "load", "evict", "pin", "register", "unregister")
"""Kinds from which a sidecar's state is made where the logs begin."""


class Clock:
    """
    Simulated time, µs UTC: ``start`` plus ``speed`` times what has passed since it was made, and never past ``end``.

    ``nanoseconds`` is a clock that only goes forward.
    """

    def __init__(self, start: int, speed: float, end: int, *, nanoseconds: Callable[[], int] = time.monotonic_ns) -> None:
        self._start, self._speed, self._end = start, speed, end
        self._nanoseconds = nanoseconds
        self._began = nanoseconds()

    def __call__(self) -> int:
        return min(self._start + round((self._nanoseconds() - self._began) * self._speed / 1000), self._end)


@dataclass(frozen=True, slots=True)
class Served:
    """Where a pod of the simulated cluster is served."""

    pod: PodId
    agent_url: str
    metrics_url: str


class Cluster:
    """
    The pods of a feed. What lies before its ``plan.start`` is handed in with ``skip``; then, as a context, it serves the rest.

    ``settle`` (µs): pages are of the moment so long ago, to which a reader that settles so long dates them. Of the past they are
    kept no longer than that twice, and ``LOOK_BACK``. ``residency_gauges``: engines have those of vllm-54830.
    """

    def __init__(self, feed: Feed, folder: Path, *, settle: int = 0, residency_gauges: bool = False) -> None:
        scenario = feed.plan.scenario
        pods = [
            PodId(scenario.cluster, f"{pool.name}-{n}", pool.name, pool.role) for pool in scenario.pools for n in range(pool.pods)
        ]
        self.feed = feed
        self._settle = settle
        self._logs = {pod: PodLogs(folder / str(number)) for number, pod in enumerate(pods)}
        self._told = {pod.pod: Pod(pod.pool, pod.pod, len(feed.known), 2 * settle + LOOK_BACK) for pod in pods}
        self._engines = {
            name: EnginePages(pod, feed.known, residency=residency_gauges, most_series=MOST_SERIES)
            for name, pod in self._told.items()
        }
        self._gpus = GpuPage(scenario, feed.known, list(self._told.values()), sm_active=scenario.sm_active)
        self._router = RouterPage(scenario, feed.known, list(self._told.values()))
        self._before: dict[tuple[PodId, str], State] = {}
        self._positions: list[tuple[int, dict[str, int]]] = []
        self._stack = ExitStack()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.pods: tuple[Served, ...] = ()
        self.gpus_url = self.router_url = ""
        self.servers: frozenset[str] = frozenset()

    def skip(self, told: Told) -> None:
        """Take note of what lies before the start: who lives, and what is in whose slots."""
        for part in told.parts:
            events = part.events.filter(pl.col("kind").is_in(_OF_THE_PAST))
            found = records_of(events, part.requests.clear())
            for key, records in found.items():
                if records[-1]["kind"] == "stop":
                    self._before.pop(key, None)
                    continue
                state = self._before.setdefault(key, State())
                for record in records:
                    state.fold(record)
        self._show(told)
        self._note(told)

    def positions(self, moment: int) -> Mapping[str, int] | None:
        """How far each log had come at the first window's end that is not before ``moment``; None: not told so far yet."""
        index = bisect_left(self._positions, moment, key=lambda entry: entry[0])
        return self._positions[index][1] if index < len(self._positions) else None

    def serve(self, clock: Callable[[], int]) -> None:
        """Open the doors, and tell what happens as the clock goes."""
        self.open(clock)
        self._thread = threading.Thread(target=self._run, args=(clock,), name="lora-watch-cluster", daemon=True)
        self._thread.start()
        self._stack.callback(self._thread.join)
        self._stack.callback(self._stopped.set)

    def open(self, clock: Callable[[], int]) -> None:
        """Open the doors; nothing happens but by ``tell``. Leave the context to shut them."""
        last = self._positions[-1][1] if self._positions else {}
        for (pod, boot), state in self._before.items():
            name = next(name for name in last if parse_stream(name)[-1] == boot)
            logs = self._logs[pod]
            logs.begin(boot, state.role or "", state.since or 0)
            state.complete = False
            checkpoint.save(logs.folder, boot, state, last[name])
        with ExitStack() as opening:
            served = []
            for pod, logs in self._logs.items():
                opening.callback(logs.close)
                reading = Logs(logs.folder, 2 * SEGMENTS * SEGMENT_BYTES, reader=logs.reader())
                sidecar = opening.enter_context(Sidecar(reading, port=0, clock=clock))
                page = opening.enter_context(Page(self._paged(self._engines[pod.pod].at, clock)))
                served.append(Served(pod, sidecar.url, page.url))
            self.pods = tuple(served)
            self.router_url = opening.enter_context(Page(self._paged(self._router.at, clock))).url
            self.gpus_url = opening.enter_context(Page(self._paged(self._gpus.at, clock))).url
            self._stack = opening.pop_all()

    def tell(self, now: int) -> None:
        """Let all happen that has by ``now`` (µs UTC)."""
        for told in self.feed.due(now):
            self._write(told)
            if self._stopped.is_set():
                return

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def goes_on(self) -> bool:
        """Is the cluster still told? Not after the end of its plan, nor where telling it failed."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self, clock: Callable[[], int]) -> None:
        while self.feed.told_until < self.feed.plan.until and not self._stopped.wait(TICK_SECONDS):
            self.tell(clock())

    def _write(self, told: Told) -> None:
        self._show(told)
        for part in told.parts:
            for (pod, boot), records in records_of(part.events, part.requests).items():
                self._logs[pod].write(boot, records)
        self._note(told)

    def _note(self, told: Told) -> None:
        self.servers |= {name for part in told.parts for name in part.request_positions}
        before = self._positions[-1][1] if self._positions else {}
        self._positions.append((told.window.end, {**before, **told.positions}))

    def _show(self, told: Told) -> None:
        for life in told.lives:
            self._told[f"{life.pool.name}-{life.pod}"].go_on(life, told.window)

    def _paged(self, page: Callable[[int], str], clock: Callable[[], int]) -> Callable[[], str]:
        return lambda: page(clock() - self._settle)


class Page:
    """A page of an exporter at ``/metrics`` on a free port of 127.0.0.1, made anew for each request; 404 where it is empty."""

    def __init__(self, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode() if self.path == "/metrics" else b""
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: the service says what it reads."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"

    def __enter__(self) -> "Page":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
