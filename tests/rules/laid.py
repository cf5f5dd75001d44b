"""
A simulated cluster's pages as a Prometheus would have scraped them, laid into a real one that evaluates our rules.

Everything a scrape sees is the simulator's, but for what it does not simulate: a KV cache, and a withdrawn name; and for a memory
of adapters a day old, which the rules themselves would have recorded.
"""

import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from prometheus_client import generate_latest

from lora_watch import names
from lora_watch.config import parse
from lora_watch.explore.queries import Past, overview
from lora_watch.explore.signals import Signals, signals
from lora_watch.explore.situation import Finder
from lora_watch.exporter import Exporter
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.simulate.feed import Feed
from lora_watch.simulate.live import Cluster
from lora_watch.simulate.plan import Plan
from lora_watch.simulate.scenario import Loads, Pool, Scenario, Split, Traffic, Truth
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

STEP = 30
LENGTH = 80 * MINUTE
SPLIT = 65 * MINUTE
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
KV_CACHE = 0.5
NEWMASS = 0.4
SMALL = Scenario(
    name="small",
    about="A Thursday made small, on pods with a few seats too few for it.",
    days=LENGTH / DAY,
    pools=(Pool(name="vllm", pods=2, slots=4, cpu_capacity=10, seats=6, scrape_seconds=30),),
    loads=Loads(profile="article"),
    traffic=Traffic(requests_per_second=4.1, adapters=12, generated_tokens=150, base_share=0.1, daily_swing=0.0),
    events=(Split(kind="split", start=SPLIT / HOUR, top=6, share=0.5),),
    truth=Truth(must_say=("new adapters",)),
    whole_pages=True,
    router_attempts=True,
)

Line = tuple[str, float]
"""A sample without its time, and its time in seconds before the end."""


@dataclass(frozen=True)
class Laid:
    """What was scraped of the cluster and of the service, what the last look for findings measured, and the tables it read."""

    raw: tuple[Line, ...]
    full: tuple[Line, ...]
    signals: Signals
    store: Store
    window: Window


def lay(folder: Path, scenario: Scenario = SMALL) -> Laid:
    """Play the scenario to its end, scraped every ``STEP`` seconds, and look at it as the service does."""
    plan = Plan(scenario, scenario.begin, scenario.begin + LENGTH, 1)
    clock = Standing(plan.start)
    raw: list[Line] = []
    (folder / "logs").mkdir()
    with Cluster(Feed(plan, STEP * SECOND), folder / "logs") as cluster:
        cluster.open(clock)
        for moment in range(plan.start + STEP * SECOND, plan.until + 1, STEP * SECOND):
            clock.at = moment
            cluster.tell(moment)
            for page, labels in pages(cluster):
                raw += lines(page, labels, (plan.until - moment) / SECOND)
        known = [name for name in cluster.feed.known.names if not name.endswith("-experiment")]
    raw += memory(scenario.cluster, known)
    simulate(scenario, LENGTH / DAY, 1, folder / "data")
    store = Store(folder / "data")
    seen, full = service(store, plan.until)
    return Laid(tuple(raw), tuple(full), seen, store, Window(plan.start, plan.until))


@dataclass
class Standing:
    """A clock that stands where it is put."""

    at: int

    def __call__(self) -> int:
        return self.at


def pages(cluster: Cluster) -> Iterator[tuple[str, dict[str, str]]]:
    """Every page with its target's labels."""
    for one in cluster.pods:
        pod = {"cluster": one.pod.cluster, "pool": one.pod.pool, "pod": one.pod.pod}
        kv = f'{names.KV_CACHE_USAGE}{{engine="0",model_name="simulated"}} {KV_CACHE}\n'
        yield get(one.metrics_url) + kv, {**pod, "job": "vllm", "instance": one.metrics_url}
        yield get(f"{one.agent_url}/metrics"), {**pod, "job": "agent", "instance": one.agent_url}
    whose = {"cluster": cluster.pods[0].pod.cluster}
    yield get(cluster.router_url), {**whose, "job": "router", "instance": "router", "pod": "router-7f"}
    yield get(cluster.gpus_url), {**whose, "job": "gpus", "instance": "gpus"}


def lines(page: str, labels: Mapping[str, str], ago: float) -> Iterator[Line]:
    """A page's samples with a target's labels, behind those that the page has itself."""
    for line in page.splitlines():
        match = SAMPLE.match(line)
        if match is None or line.startswith(names.LORA_REQUESTS_INFO):
            continue
        name, own, value = match.groups()
        whose = [f'{key}="{text}"' for key, text in labels.items() if f'{key}="' not in (own or "")]
        yield f"{name}{{{','.join([*([own] if own else []), *whose])}}} {value}", ago


def memory(cluster: str, adapters: Iterable[str]) -> Iterator[Line]:
    """What the rules recorded a day ago of adapters that are not new."""
    for name in adapters:
        yield f'{names.ADAPTER_SEEN_RECORD}{{cluster="{cluster}",pool="vllm",adapter="{name}"}} 1', 24.5 * 3600


def service(store: Store, end: int) -> tuple[Signals, list[Line]]:
    """What the service measures at the end, and its exporter's page over the last half an hour."""
    exporter = Exporter(adapters=50)
    window = Window(end - HOUR, end)
    exporter.publish(overview(store, window, Past(store, 2 * HOUR)))
    seen: list[Signals] = []
    finder = Finder(
        store,
        parse(f"store: {{folder: '{store.root}'}}"),
        see=lambda told, found: seen.append(signals(store, told, found)),
    )
    diagnoser = Diagnoser(store, finder)
    diagnoser.look(window, now=end)
    exporter.publish_findings(diagnoser.open)
    exporter.publish_signals(
        replace(
            seen[-1],
            pods=seen[-1].pods.with_columns(kv_cache=pl.lit(KV_CACHE)),
            pools=seen[-1].pools.with_columns(newmass=pl.lit(NEWMASS), phantom_slots=pl.lit(1.0)),
        )
    )
    exporter.source_lag.labels("agents-events").set(2.0)
    told: list[Line] = []
    for ago in range(1800, -1, -STEP):
        exporter.job_runs.labels("diagnose", "succeeded").inc()
        page = generate_latest(exporter.registry).decode()
        told += lines(page, {"instance": "lora-watch", "job": "lora-watch"}, float(ago))
    return seen[-1], told


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


class Real:
    """A real Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query now. AssertionError with the server's words where it is refused."""
        asked = urllib.parse.urlencode({"query": expression}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query", data=asked, timeout=30) as answer:
                result = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return [(one["metric"], float(one["value"][1])) for one in result]

    def value(self, expression: str) -> float:
        """The value of the one series that a query yields."""
        ((_, value),) = self.query(expression)
        return value

    def problems(self) -> list[str]:
        """What rules could not be evaluated."""
        groups = json.loads(get(f"{self.url}/api/v1/rules"))["data"]["groups"]
        return [f"{rule['name']}: {rule['lastError']}" for group in groups for rule in group["rules"] if rule.get("lastError")]


def wait_for(true: Callable[[], bool], seconds: float) -> bool:
    """Until it is so, or the time is over: whether it is."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


@contextmanager
def prometheus(folder: Path, history: Iterable[Line], rules: str) -> Iterator[Real]:
    """A Prometheus over a history that ends now, with rules that are evaluated every second."""
    folder.mkdir()
    now = time.time()
    with (folder / "history.om").open("w", encoding="utf-8") as file:
        file.writelines(f"{text} {now - ago:.3f}\n" for text, ago in history)
        file.write("# EOF\n")
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.om"), str(folder / "data")]
    subprocess.run(make, check=True, capture_output=True)
    (folder / "rules.yaml").write_text(re.sub(r"interval: \w+", "interval: 1s", rules))
    (folder / "prometheus.yml").write_text("rule_files: [rules.yaml]\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y"]
    real = Real(f"http://127.0.0.1:{port}")
    with (folder / "log").open("w") as log, subprocess.Popen(["prometheus", *options], stderr=log) as process:
        try:
            assert wait_for(lambda: _ready(real), 60), (folder / "log").read_text()
            yield real
        finally:
            process.send_signal(signal.SIGKILL)


def _ready(real: Real) -> bool:
    try:
        return bool(get(f"{real.url}/-/ready"))
    except OSError:
        return False
