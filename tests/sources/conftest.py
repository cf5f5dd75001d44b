"""Real servers on 127.0.0.1 for the doors: one that answers from a table, and one that plays any bytes."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import settings

settings.register_profile("sources", deadline=None)  # the machine may be busy; what must be quick says so itself
settings.load_profile("sources")

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Request:
    """What a server was asked."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What a server answers."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain"})


Handler = Callable[[Request], Reply]


@dataclass
class Server:
    """A running server: its address, and what it was asked so far."""

    url: str
    requests: list[Request] = field(default_factory=list)


@pytest.fixture
def serve() -> Iterator[Callable[[Handler | Reply], Server]]:
    """Start a server that answers every request by the function given."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: Handler | Reply) -> Server:
        server = Server("")

        class Door(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                request = Request(parts.path, query, {k.lower(): v for k, v in self.headers.items()}, body)
                server.requests.append(request)
                reply = answer(request) if callable(answer) else answer
                self.send_response(reply.status)
                for name, text in reply.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        http = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is what some tests are about
        running.append(http)
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        return server

    yield start
    for http in running:
        http.shutdown()
        http.server_close()


@pytest.fixture
def play() -> Iterator[Callable[[Callable[[socket.socket, threading.Event], None]], str]]:
    """Start a server that hands each connection to the function given, with an event that is set when the test is over."""
    over = threading.Event()
    listeners: list[socket.socket] = []

    def start(act: Callable[[socket.socket, threading.Event], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.recv(65536)
                    act(connection, over)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    over.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def closed_port() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def data() -> Callable[[str], bytes]:
    """A captured payload by name."""
    return lambda name: (DATA / name).read_bytes()
