"""Real servers on 127.0.0.1: one that takes posts, and one that takes mail as far as the tests need SMTP (RFC 5321)."""

import base64
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class Posted:
    """A server of webhooks: what it answers, and what came."""

    url: str = ""
    status: int = 200
    answer: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain"})
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    sent_headers: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def webhook() -> Iterator[Posted]:
    """A running one."""
    told = Posted()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            told.paths.append(self.path)
            told.sent_headers.append({name.lower(): text for name, text in self.headers.items()})
            self.send_response(told.status)
            for name, text in told.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(told.answer)))
            self.end_headers()
            self.wfile.write(told.answer)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    told.url = f"http://127.0.0.1:{http.server_port}/services/T0/very-secret"
    yield told
    http.shutdown()
    http.server_close()


@dataclass
class Mailbox:
    """A mail server: whom it refuses with which code, what it offers, and what came, as (recipient, mail)."""

    port: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    greeting: str = "220 test"
    password: str | None = None
    starttls: bool = True
    mails: list[tuple[str, bytes]] = field(default_factory=list)
    signed_in: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)


Start = Callable[..., Mailbox]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of its own making for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=mail"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def mail_server(certificate: tuple[Path, Path]) -> Iterator[Start]:
    """Start one; ``tls``: encrypted from the first byte."""
    running: list[socketserver.ThreadingTCPServer] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def start(*, tls: bool = False, **options: object) -> Mailbox:
        box = Mailbox(**options)  # type: ignore[arg-type]  # what a test says of it

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                if tls:
                    self._encrypt()
                to = ""
                self.say(box.greeting)
                while line := self.rfile.readline():
                    word, _, rest = line.decode().strip().partition(" ")
                    match word.upper():
                        case "EHLO":
                            offers = ["STARTTLS"] if box.starttls and not tls else []
                            self.say("\r\n".join([f"250-{one}" for one in ("test", *offers)] + ["250 AUTH PLAIN"]))
                        case "STARTTLS":
                            self.say("220 go on")
                            self._encrypt()
                        case "AUTH":
                            _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                            box.signed_in.append(user)
                            self.say("235 in" if password == box.password else f"535 no, {password} is wrong")
                        case "RCPT":
                            to = rest.partition("<")[2].partition(">")[0]
                            code = box.refused.get(to, 250)
                            self.say(f"{code} as said")
                        case "DATA":
                            self.say("354 go on")
                            mail = b""
                            while (part := self.rfile.readline()) != b".\r\n":
                                mail += part
                            box.mails.append((to, mail))
                            box.encrypted.append(isinstance(self.connection, ssl.SSLSocket))
                            self.say("250 taken")
                        case "QUIT":
                            self.say("221 bye")
                            return
                        case _:
                            self.say("250 well")

            def finish(self) -> None:
                super().finish()
                self.connection.close()

            def _encrypt(self) -> None:
                self.connection = context.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)

            def say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is what some tests are about
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        box.port = server.server_address[1]
        return box

    yield start
    for server in running:
        server.shutdown()
        server.server_close()
