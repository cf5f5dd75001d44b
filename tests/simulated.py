"""
A simulated cluster and the service that watches it, as two processes on one clock that runs faster than time.

``python -m simulated cluster FILE`` serves it and prints where; ``python -m simulated service FILE`` is what ``lora-watch serve``
runs, with that clock instead of the wall's. ``FILE`` is what :class:`Played` says, as JSON.
"""

import json
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from lora_watch.config import parse
from lora_watch.explore.signals import signals
from lora_watch.explore.situation import Finder
from lora_watch.model import SECOND
from lora_watch.schema import TABLES
from lora_watch.service import Service
from lora_watch.simulate.feed import Feed
from lora_watch.simulate.live import Clock, Cluster
from lora_watch.simulate.meters import MODEL
from lora_watch.simulate.plan import Plan
from lora_watch.simulate.scenario import load
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

STEP_SECONDS = 0.25
SETTLE_SECONDS = 2.0


@dataclass(frozen=True)
class Played:
    """
    A scenario played from ``start`` (µs after its begin) to its end at ``speed``. ``began``: reading of the monotonic clock
    at the start, set by the cluster. ``data``: folder of the service's tables, ``logs``: of the pods' logs.
    """

    scenario: str
    start: int
    speed: float
    began: int
    data: str
    logs: str

    @property
    def plan(self) -> Plan:
        chosen = load(self.scenario)
        return Plan(chosen, chosen.begin + self.start, chosen.begin + round(chosen.days * 86_400) * SECOND, 1)

    @property
    def settle(self) -> int:
        return round(SETTLE_SECONDS * self.speed * SECOND)

    def clock(self) -> Clock:
        clock = Clock(self.plan.start, self.speed, self.plan.until)
        clock._began = self.began
        return clock

    def save(self, file: Path) -> Path:
        file.write_text(json.dumps(asdict(self)))
        return file


def cluster(played: Played, file: Path) -> None:
    """Lay what lies before, say where the pods are in ``addresses.json``, wait for the beginning and serve until SIGTERM."""
    plan = played.plan
    feed = Feed(plan, round(STEP_SECONDS * played.speed * SECOND))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Cluster(feed, Path(played.logs), settle=played.settle) as served:
        store = Store(Path(played.data))
        ledgers = {table.name: store.ledger(table) for table in TABLES}
        for told in feed.past():
            for table, batch in told.batches():
                ledgers[table.name].append(batch, at=told.window.end)
            served.skip(told)
        played = replace(played, began=time.monotonic_ns())
        played.save(file)
        served.serve(played.clock())
        pods = [
            {"pod": p.pod.pod, "pool": p.pod.pool, "role": p.pod.role, "metrics": p.metrics_url, "agent": p.agent_url}
            for p in served.pods
        ]
        told = {"cluster": plan.scenario.cluster, "pods": pods, "router": served.router_url, "gpus": served.gpus_url}
        (Path(played.logs) / "addresses.json").write_text(json.dumps(told))
        sys.stdout.write("cluster   ready\n")
        sys.stdout.flush()
        stop.wait()


def service(played: Played, file: Path) -> None:
    """Watch until told to stop."""
    told = json.loads((Path(played.logs) / "addresses.json").read_text())
    settings = parse(
        json.dumps(
            {
                "cluster": told["cluster"],
                "targets": told["pods"],
                "routers": [{"pod": "router", "metrics": told["router"]}],
                "base_models": [MODEL],
                "gpus": {"exporters": [{"pod": "gpus", "metrics": told["gpus"]}]},
                "collect": {"interval": 1.0, "settle": played.settle / SECOND, "events_per_tick": 10_000},
                "derive": {"interval": 2.0, "window": "10m", "lookback": "4h"},
                "diagnose": {"interval": 2.0},
                "store": {"folder": played.data},
                "exporter": {"port": 0},
                "log": {"level": "warning"},
            }
        )
    )
    clock = played.clock()

    @cache
    def finder() -> Finder:
        return Finder(
            watching.store,
            settings,
            see=lambda told, found: watching.exporter.publish_signals(signals(watching.store, told, found)),
        )

    watching = Service(settings, sources_of(settings, clock), clock=clock, find=lambda window: finder()(window))
    watching.run()


if __name__ == "__main__":
    asked = Path(sys.argv[2])
    {"cluster": cluster, "service": service}[sys.argv[1]](Played(**json.loads(asked.read_text())), asked)
