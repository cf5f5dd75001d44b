"""
A recording of a real vLLM, played again behind the real interfaces.

A recording is a folder with ``events/`` (segments of event log v1, as the agent wrote them) and ``metrics/`` (pages of the
engine's own ``/metrics``, named by the µs UTC at which they were read). Playing moves every time in it by one and the same
offset, so that the recording ends ``ahead`` from now: what lies in the past is there at once, the rest comes when its time has
come. Nothing is stretched: durations, rates and order are those of the engine.
"""

import json
import re
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lora_watch import names
from lora_watch.agent.recorder import DEFAULT_MAX_BYTES
from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.errors import LoraWatchError
from lora_watch.model import SECOND, Window

RECORDING = Path(__file__).parent / "recording"
"""The recording that ships with the package."""
_TIMES = ("at", "arrived", "queued", "scheduled", "first_token", "finished")
_GAUGE = re.compile(rf"^({re.escape(names.LORA_REQUESTS_INFO)}\{{.*\}}) (\S+)$", re.MULTILINE)
_STEP = 0.2
"""Seconds between two looks for records whose time has come."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The records of each segment file, and the pages with the times they were read (µs UTC, sorted)."""

    segments: dict[str, list[dict[str, Any]]]
    pages: tuple[tuple[int, str], ...]

    @property
    def window(self) -> Window:
        """From the first record to just past the last."""
        times = [record["at"] for records in self.segments.values() for record in records]
        return Window(min(times), max(times) + 1)


@dataclass(frozen=True, slots=True)
class Playing:
    """Where a recording is being played, and the span it takes there."""

    agent_url: str
    metrics_url: str
    window: Window


def load(folder: Path = RECORDING) -> Recording:
    """The recording in a folder. Raises LoraWatchError where there is none."""
    segments = {
        file.name: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in sorted((folder / "events").glob("*.jsonl"))
    }
    if not any(segments.values()):
        raise LoraWatchError(f"there is no recording in {folder}: it has no events/*.jsonl")
    pages = [(int(file.stem), file.read_text(encoding="utf-8")) for file in sorted((folder / "metrics").glob("*.prom"))]
    return Recording(segments, tuple(sorted(pages)))


@contextmanager
def playing(recording: Recording, *, ahead: float) -> Iterator[Playing]:
    """Serve a recording that ends ``ahead`` seconds from now, on free ports of 127.0.0.1, until the block is left."""
    offset = time.time_ns() // 1000 + round(ahead * SECOND) - recording.window.end
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-watch-recording-")))
        feeder = _Feeder(recording, folder, offset)
        stack.callback(feeder.stop)
        feeder.start()
        page = stack.enter_context(_pages(recording, offset))
        agent = stack.enter_context(Sidecar(Logs(folder, DEFAULT_MAX_BYTES), port=0))
        window = Window(recording.window.start + offset, recording.window.end + offset)
        yield Playing(agent.url, page, window)


class _Feeder(threading.Thread):
    """Appends each record to its segment once its moved time has come; what is past is written before ``start`` returns."""

    def __init__(self, recording: Recording, folder: Path, offset: int) -> None:
        super().__init__(name="lora-watch-recording", daemon=True)
        self._folder = folder
        waiting = [
            (record["at"] + offset, number, name, _moved(record, offset))
            for name, records in recording.segments.items()
            for number, record in enumerate(records)
        ]
        self._waiting = sorted(waiting, key=lambda entry: entry[:2], reverse=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        self._write()
        super().start()

    def run(self) -> None:
        while self._waiting and not self._stopped.wait(_STEP):
            self._write()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _write(self) -> None:
        now, due = time.time_ns() // 1000, dict[str, list[str]]()
        while self._waiting and self._waiting[-1][0] <= now:
            _, _, name, line = self._waiting.pop()
            due.setdefault(name, []).append(line)
        for name, lines in due.items():
            with (self._folder / name).open("a", encoding="utf-8") as file:
                file.write("".join(lines))


def _moved(record: dict[str, Any], offset: int) -> str:
    moved = {**record, **{name: record[name] + offset for name in _TIMES if isinstance(record.get(name), int)}}
    if "gpu" in record:  # a snapshot: each entry ends with the time of its load
        moved["gpu"] = [[*entry[:-1], entry[-1] + offset if isinstance(entry[-1], int) else entry[-1]] for entry in record["gpu"]]
    return json.dumps(moved, ensure_ascii=False, separators=(",", ":")) + "\n"


@contextmanager
def _pages(recording: Recording, offset: int) -> Iterator[str]:
    """Serve, as ``/metrics``, the newest page whose moved time has come; 404 where there is none yet."""
    times = [at + offset for at, _ in recording.pages]
    moved = [_GAUGE.sub(lambda m: f"{m[1]} {float(m[2]) + offset / SECOND!r}", text).encode() for _, text in recording.pages]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index = bisect_right(times, time.time_ns() // 1000) - 1
            body = moved[index] if index >= 0 and self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the service says what it reads."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
