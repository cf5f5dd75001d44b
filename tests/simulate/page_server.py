"""The pages of a simulated cluster on a free port of 127.0.0.1, as they are at a moment that the test sets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Protocol

from lora_watch.model import PodId
from lora_watch.sources.targets import Target, Targets


class Page(Protocol):
    def at(self, moment: int) -> str: ...


@dataclass
class Cluster:
    """Where pages are served by name, and the moment (µs UTC) they are of."""

    url: str
    moment: int = 0

    def targets(self, *pods: PodId) -> Targets:
        return Targets(Target(pod.cluster, pod.pod, pod.pool, pod.role, f"{self.url}/{pod.pod}/metrics", "") for pod in pods)


@contextmanager
def serving_pages(pages: Mapping[str, Page]) -> Iterator[Cluster]:
    """``/<name>/metrics`` for each page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path.split("/")[1]].at(cluster.moment).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster = Cluster(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
