"""A real Prometheus and a real Alertmanager around a simulated cluster, and a webhook that keeps what people would be told."""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).parents[1] / "alerts"


@dataclass(frozen=True)
class Message:
    """What a receiver was told, and when (seconds UTC)."""

    receiver: str
    at: float
    body: dict[str, Any]

    @property
    def firing(self) -> list[str]:
        return [one["labels"]["alertname"] for one in self.body["alerts"] if one["status"] == "firing"]

    @property
    def resolved(self) -> list[str]:
        return [one["labels"]["alertname"] for one in self.body["alerts"] if one["status"] == "resolved"]


@dataclass
class Told:
    """All messages so far, oldest first."""

    url: str
    messages: list[Message] = field(default_factory=list)

    def of(self, receiver: str) -> list[Message]:
        return [one for one in self.messages if one.receiver == receiver]

    def over(self, receiver: str) -> bool:
        """Whether it was told that all of a message is resolved: that comes with the group's next turn."""
        return any(one.resolved and not one.firing for one in self.of(receiver))

    def firing(self, *names: str) -> list[Message]:
        return [one for one in self.messages if set(names) & set(one.firing)]


@contextmanager
def webhook() -> Iterator[Told]:
    """A server that takes Alertmanager's messages; the path says the receiver."""
    told = Told("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.messages.append(Message(self.path.strip("/"), time.time(), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def faster(text: str, scale: float) -> str:
    """A duration of Alertmanager's configuration, divided."""
    unit = {"s": 1, "m": 60, "h": 3600}[text[-1]]
    return f"{max(round(float(text[:-1]) * unit / scale * 1000), 1)}ms"


def alertmanager_config(url: str, scale: float) -> str:
    """The committed configuration with every receiver a webhook of its name and every wait divided; all else as it is."""
    told = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())

    def scaled(route: dict[str, Any]) -> None:
        for name in ("group_wait", "group_interval", "repeat_interval"):
            if name in route:
                route[name] = faster(route[name], scale)
        for child in route.get("routes", ()):
            scaled(child)

    scaled(told["route"])
    told["global"]["resolve_timeout"] = faster(told["global"]["resolve_timeout"], scale)
    told["templates"] = [str(ALERTS / "templates" / "*.tmpl")]
    told["receivers"] = [
        {"name": one["name"], "webhook_configs": [{"url": f"{url}/{one['name']}", "send_resolved": True}]}
        for one in told["receivers"]
    ]
    return yaml.safe_dump(told)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@contextmanager
def running(folder: Path, name: str, arguments: Sequence[str], url: str) -> Iterator[str]:
    """A server of somebody else's until it is no longer needed; yields its address once it is ready."""
    log = (folder / f"{name}.log").open("w+")
    with subprocess.Popen([name, *arguments], stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: ready(url), 60, lambda: (folder / f"{name}.log").read_text()[-3000:])
            yield url
        finally:
            process.send_signal(signal.SIGKILL)
            log.close()


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
            return True
    except OSError:
        return False


def wait_for(true: Callable[[], bool], seconds: float, said: Callable[[], object]) -> None:
    """Until it is so; AssertionError with what is ``said`` where it is not after so long."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, said()
        time.sleep(0.1)


@contextmanager
def alertmanager(folder: Path, url: str, scale: float) -> Iterator[str]:
    file = folder / "alertmanager.yml"
    file.write_text(alertmanager_config(url, scale))
    port = free_port()
    arguments = [f"--config.file={file}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]
    with running(
        folder, "prometheus-alertmanager", [*arguments, f"--web.listen-address=127.0.0.1:{port}"], f"http://127.0.0.1:{port}"
    ) as at:
        yield at


def jobs(addresses: dict[str, Any], exporter: Callable[[], str] | str) -> list[dict[str, Any]]:
    """The scrape jobs of a cluster as README has them: engines, sidecars, router, GPUs, the service."""

    def job(name: str, targets: list[tuple[str, dict[str, str]]]) -> dict[str, Any]:
        static = [
            {"targets": [urllib.parse.urlsplit(url).netloc], "labels": {k: v for k, v in labels.items() if v}}
            for url, labels in targets
        ]
        return {"job_name": name, "honor_labels": True, "static_configs": static}

    where = {"cluster": addresses["cluster"]}
    pods = [({**where, "pool": one["pool"], "role": one["role"] or "", "pod": one["pod"]}, one) for one in addresses["pods"]]
    told = [
        job("vllm", [(one["metrics"], labels) for labels, one in pods]),
        job("lora-watch-agent", [(one["agent"], labels) for labels, one in pods]),
        job("epp", [(addresses["router"], where)]),
        job("dcgm", [(addresses["gpus"], where)]),
    ]
    return [*told, job("lora-watch", [(exporter if isinstance(exporter, str) else exporter(), where)])]


@contextmanager
def prometheus(folder: Path, rules: str, scrape: list[dict[str, Any]], manager: str, interval: str = "1s") -> Iterator[str]:
    """A Prometheus that scrapes, evaluates the rules (a text) and tells Alertmanager."""
    (folder / "rules.yaml").write_text(rules)
    told = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": scrape,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [urllib.parse.urlsplit(manager).netloc]}]}]},
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(told))
    port = free_port()
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--rules.alert.resend-delay=1s",
    ]
    with running(folder, "prometheus", [*arguments, f"--web.listen-address=127.0.0.1:{port}"], f"http://127.0.0.1:{port}") as at:
        yield at


def query(prometheus: str, expr: str) -> list[dict[str, Any]]:
    return list(get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expr})}")["data"]["result"])


def alerts(manager: str) -> list[dict[str, Any]]:
    """What Alertmanager holds now."""
    return list(get(f"{manager}/api/v2/alerts"))


def problems(prometheus: str) -> list[str]:
    """Rules that could not be evaluated."""
    groups = get(f"{prometheus}/api/v1/rules")["data"]["groups"]
    return [f"{rule['name']}: {rule['lastError']}" for group in groups for rule in group["rules"] if rule.get("lastError")]


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)
