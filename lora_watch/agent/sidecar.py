"""The sidecar's HTTP server beside the engine: events, state, metrics and health from the logs in one directory."""

import contextlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from lora_watch.agent import checkpoint
from lora_watch.agent.lines import BOOT
from lora_watch.agent.log import DEFAULT_LIMIT, MAX_LIMIT, LogReader
from lora_watch.agent.metrics import CONTENT_TYPE, EnginePage, page
from lora_watch.agent.retention import MAX_DEAD, forget, prune
from lora_watch.agent.state import State

_KNOWN: Mapping[str, Collection[str]] = {
    "/events": {"boot", "after", "limit", "kinds"},
    "/state": (),
    "/metrics": (),
    "/healthz": (),
}
_FOLD_RECORDS = 5_000
"""Records read at once for the state: few enough that a reader of events is not kept waiting."""

GONE = "gone"
CONNECTIONS = 64
"""Connections served at once; one that is idle for 30 s is closed."""

T = TypeVar("T")


class BadParameter(ValueError):
    """A request asks for something that makes no sense; the text says what does."""


class Logs:
    """
    The logs of one directory, and the state folded from them so far. Thread-safe.

    ``prune`` keeps what was counted beside the logs (see ``checkpoint``), so a restart goes on from there. Where that file is
    lost, the log is folded again to the same state; counters then begin with the oldest record left. Folding a long log takes a
    while (about 3 s for 100 MiB); events are served meanwhile, state and metrics wait for it.
    """

    def __init__(self, directory: Path, max_bytes: int, *, max_dead: int = MAX_DEAD, reader: LogReader | None = None) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._max_dead = max_dead
        self._reader = reader or LogReader(directory)
        self._reading = threading.Lock()
        self._folding = threading.Lock()
        self._states: dict[str, State] = {}
        self._positions: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self._gone = State()
        self._forgotten = 0

    def boots(self) -> dict[str, Any]:
        """The ``boots`` as ``/events`` lists them, and the ``unreadable`` ones with the reason, if any."""
        with self._reading:
            boots = [boot.to_json() for boot in self._reader.boots()]
            return {"boots": boots} | ({"unreadable": self._reader.unreadable} if self._reader.unreadable else {})

    def read(self, boot: str, after: int, limit: int, kinds: Collection[str] | None = None) -> tuple[list[bytes], int]:
        """As ``LogReader.read``."""
        with self._reading:
            return self._reader.read(boot, after, limit, kinds)

    def fold(self, use: Callable[[Mapping[str, State]], T]) -> T:
        """
        What ``use`` makes of the state by boot, which is brought up to date first and stands still meanwhile.

        Under ``GONE`` are the counters of the processes whose logs have been deleted since we began, so that no sum goes down.
        """
        with self._folding:
            with self._reading:
                boots = self._reader.boots()
                there = {boot.boot for boot in boots} | set(self._reader.unreadable)
            for boot in boots:
                state = self._state(boot.boot)
                # up to what there was when we came: a busy engine writes as fast as it is read, and the page would never be done
                while (before := self._positions.get(boot.boot, 0)) < boot.last_seq:
                    with self._reading:
                        records, position = self._reader.records(boot.boot, before, _FOLD_RECORDS)
                    for record in records:
                        state.fold(record)
                    self._positions[boot.boot] = position
                    if position == before:
                        break
                state.alive = boot.alive
            for gone in set(self._states) - there:
                self._gone.absorb(self._states.pop(gone))
                self._positions.pop(gone, None)
                self._saved.pop(gone, None)
            return use({**self._states, GONE: self._gone})

    def _state(self, boot: str) -> State:
        if boot not in self._states:
            state, position = checkpoint.load(self._directory, boot) or (State(), 0)
            self._states[boot], self._positions[boot], self._saved[boot] = state, position, position
        return self._states[boot]

    def _save(self, except_for: Collection[str]) -> None:
        for boot, position in self._positions.items():
            if position != self._saved[boot] and boot not in except_for:
                checkpoint.save(self._directory, boot, self._states[boot], position)
                self._saved[boot] = position

    def size(self) -> int:
        """Bytes of log on disk."""
        with self._reading:
            return self._reader.size()

    @property
    def forgotten(self) -> int:
        """Processes whose logs were deleted with their headers since we began: see ``retention.forget``."""
        return self._forgotten

    def prune(self) -> int:
        """
        Delete the oldest segments past the cap, the newest of a living writer excepted, and all of the processes that ended
        longest ago past ``MAX_DEAD``. Returns the bytes of the former.

        What is deleted has been counted first, and the counts are saved. OSError where they can't be; room is made all the same.
        """

        def delete(_states: Mapping[str, State]) -> int:
            with self._reading:
                boots = self._reader.boots()
                forgotten = forget(self._directory, [boot.boot for boot in boots if not boot.alive], self._max_dead)
                deleted = prune(
                    self._directory,
                    self._max_bytes,
                    keep=[*(boot.boot for boot in boots if boot.alive), *self._reader.unreadable],
                )
            self._forgotten += len(forgotten)
            self._save(except_for=forgotten)  # last: on a full disk the deletion is what makes room for it
            return deleted

        return self.fold(delete)


class Sidecar:
    """
    The server. ``port`` 0 takes a free one; ``url`` says which.

    ``token``, if any, must come as ``Authorization: Bearer …`` with everything but ``/healthz``.
    """

    def __init__(
        self,
        logs: Logs,
        *,
        host: str = "127.0.0.1",
        port: int = 9465,
        token: str | None = None,
        engine: EnginePage | None = None,
        connections: int = CONNECTIONS,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._server = _Server((host, port), _Handler, connections)
        self._server.logs, self._server.token, self._server.engine, self._server.clock = logs, token, engine, clock
        bound = self._server.server_address
        self.url = f"http://{_bracketed(str(bound[0]))}:{bound[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="lora-watch-agent", daemon=True)

    def __enter__(self) -> "Sidecar":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    logs: Logs
    token: str | None
    engine: EnginePage | None
    clock: Callable[[], int]
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], connections: int) -> None:
        self._free = threading.BoundedSemaphore(connections)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection; one too many is turned away, so that clients can't have all our memory."""
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # no thread is to be had; the server closes the connection and goes on
                self._free.release()
                raise
            return
        with contextlib.suppress(OSError):
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 30.0  # a client that sends nothing gives its thread back
    server_version = "lora-watch-agent"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        url = urlsplit(self.path)
        if url.path not in _KNOWN:
            self._text(404, f"there is no such page; there are {', '.join(_KNOWN)}")
            return
        if url.path != "/healthz" and not self._allowed():
            self._text(401, "this needs the agent's token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
            return
        try:
            query = _query(url.query, _KNOWN[url.path])
            if url.path == "/events":
                self._events(query)
            elif url.path == "/state":
                states = self.server.logs.fold(
                    lambda states: {boot: state.to_json() for boot, state in states.items() if boot != GONE}
                )
                self._json({"now": self.server.clock(), "boots": states})
            elif url.path == "/metrics":
                self._metrics()
            else:
                self._text(200, "ok")
        except BadParameter as error:
            self._text(400, str(error))
        except OSError as error:
            self._text(503, f"the logs can't be read: {error.strerror}")

    def _allowed(self) -> bool:
        if self.server.token is None:
            return True
        sent = self.headers.get("Authorization", "").encode("latin-1", "replace")  # as http.server decoded it
        return hmac.compare_digest(sent, b"Bearer " + self.server.token.encode())

    def _events(self, query: Mapping[str, str]) -> None:
        boot = query.get("boot")
        if boot is None:
            if query:
                raise BadParameter(f"{', '.join(sorted(query))} needs boot=…; without it, /events lists the boots there are")
            self._json({"now": self.server.clock(), **self.server.logs.boots()})
            return
        if not BOOT.fullmatch(boot):
            raise BadParameter("boot is a UUID as /events lists it")
        after = _number(query, "after", 0, 0, 1 << 62)
        limit = _number(query, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        kinds = None
        if "kinds" in query:
            kinds = {kind for kind in query["kinds"].split(",") if kind}
            if not kinds:
                raise BadParameter("kinds is a list of record kinds, separated by commas")
        lines, position = self.server.logs.read(boot, after, limit, kinds)
        headers = {"X-Lora-Watch-Last-Seq": str(position), "X-Lora-Watch-Now": str(self.server.clock())}
        self._send(200, b"".join(lines), "application/x-ndjson", headers)

    def _metrics(self) -> None:
        body, up = None, None
        if self.server.engine is not None:
            body = self.server.engine.read()
            up = body is not None
        size = self.server.logs.size()
        logs = self.server.logs
        text = logs.fold(lambda states: page(states, size, logs.forgotten, engine=body, engine_up=up))
        self._send(200, text, CONTENT_TYPE)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _text(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, text.encode("utf-8", "replace") + b"\n", "text/plain; charset=utf-8", headers)

    def _send(self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # the client left; nobody is there to be told
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: requests are many, and their query is none of the log's business."""


def _query(text: str, known: Collection[str]) -> dict[str, str]:
    try:
        pairs = parse_qs(text, keep_blank_values=True, max_num_fields=16)
    except ValueError:
        raise BadParameter("the query can't be read") from None
    for name, values in pairs.items():
        if name not in known:
            raise BadParameter(f"{name[:80]!r} is no parameter here; known: {', '.join(sorted(known)) or 'none'}")
        if len(values) > 1:
            raise BadParameter(f"{name} is given {len(values)} times")
    return {name: values[0] for name, values in pairs.items()}


def _number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or not low <= int(text) <= high:
        raise BadParameter(f"{name} is a whole number from {low} to {high}, got {text[:40]!r}")
    return int(text)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
