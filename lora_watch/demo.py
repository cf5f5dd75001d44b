"""``lora-watch demo``: the ordinary service watches a simulated cluster over HTTP, and what it sees is told as it happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from lora_watch.config import Settings, parse
from lora_watch.errors import LoraWatchError, StoreError
from lora_watch.explore import changes
from lora_watch.explore.changes import Line
from lora_watch.explore.queries import Past, overview
from lora_watch.model import HOUR, MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, TABLES
from lora_watch.service import Service, set_up_logging, wall_clock
from lora_watch.simulate.feed import Feed
from lora_watch.simulate.live import Clock, Cluster
from lora_watch.simulate.meters import MODEL
from lora_watch.simulate.plan import plan
from lora_watch.simulate.scenario import Scenario, load
from lora_watch.simulate.write import give_memory_back
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

SEED = 1
COLLECT_SECONDS = 2.0
"""Between two looks, of real time."""
STEP_SECONDS = 0.5
"""The cluster is told so much real time at once."""
SETTLE_SECONDS = 4.0
"""Of real time: what happened so long ago has been told, looked for and read."""
LINE_SECONDS = 5.0
"""Between two lines on the screen, of real time."""
PATIENCE = 150 * MINUTE
"""Without anything that changes for so long, the demo ends (simulated time)."""
POLL_SECONDS = 0.5
RECORDS_AT_ONCE = 4_000
"""Of a process, in one look: several times what comes meanwhile, and little memory where one has to catch up."""
BEFORE = 4
"""Lines with which the newest is compared."""
SLOWEST, FASTEST = 1.0, 3600.0
LONGEST_DAYS = 366


def run(
    data: Path | None,
    *,
    scenario: str,
    speed: float,
    days: int,
    stay: bool,
    residency_gauges: bool = False,
    now: Callable[[], int] = wall_clock,
) -> None:
    """
    Lay what lies before, start the cluster and the service, and print what is seen, until it is told or, with ``stay``, stopped.
    With ``residency_gauges`` the engines' pages have the gauges of an open proposal too.

    Raises LoraWatchError: no such scenario, a speed or days out of bounds, tables in the folder already.
    """
    if not SLOWEST <= speed <= FASTEST:
        raise LoraWatchError(f"the demo runs {SLOWEST:.0f} to {FASTEST:.0f} times as fast as time, not {speed:g}")
    if not 0 <= days <= LONGEST_DAYS:
        raise LoraWatchError(f"the history has 0 to {LONGEST_DAYS} days, not {days}")
    chosen = load(scenario)
    moment = now()
    live = plan(chosen, moment, SEED)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=True)
    with ExitStack() as stack, _ending_in_order():
        give_memory_back()
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-watch-demo-")))
        if data and any((data / table.name).exists() for table in TABLES):
            raise StoreError(f"{data} holds tables already: name another folder, what is simulated joins no other data")
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-watch-demo-logs-")))
        store = Store(folder)
        settle = round(max(SETTLE_SECONDS * speed, 2.0) * SECOND)
        console.print(f"scenario  {chosen.name}: {chosen.about}")
        feed = Feed(live, round(STEP_SECONDS * speed * SECOND))
        cluster = stack.enter_context(Cluster(feed, logs, settle=settle, residency_gauges=residency_gauges))
        ledgers = {table.name: store.ledger(table) for table in TABLES}
        for told in feed.past():
            for table, batch in told.batches():
                ledgers[table.name].append(batch, at=told.window.end)
            cluster.skip(told)
        clock = Clock(live.start, speed, live.until)
        cluster.serve(clock)
        for one in cluster.pods:
            console.print(f"pod       {one.pod.pod}   engine {one.metrics_url}   agent {one.agent_url}")
        console.print(f"router    {cluster.router_url}")
        console.print(f"gpus      {cluster.gpus_url}")
        settings = _settings(cluster, live.scenario, folder, settle, speed, live.start - live.scenario.begin)
        set_up_logging(settings.log)
        service = Service(settings, sources_of(settings, clock), clock=clock)
        past = _History(folder, scenario, moment, days)
        stack.callback(past.stop)
        teller = _Teller(
            store, cluster, service, clock, past, console, speed=speed, settle=settle, stay=stay, kept=data is not None
        )
        with ThreadPoolExecutor(1) as beside:
            telling = beside.submit(teller.run, Window(live.start, live.until))
            service.run()
            teller.stop()
        telling.result()


def _settings(cluster: Cluster, scenario: Scenario, folder: Path, settle: int, speed: float, warm: int) -> Settings:
    """The configuration of the ordinary service: every length in simulated time, but how often it looks and computes."""
    derive = max(6.0, 60 / speed)
    return parse(
        json.dumps(
            {
                "cluster": scenario.cluster,
                "targets": [
                    {
                        "pod": one.pod.pod,
                        "pool": one.pod.pool,
                        "role": one.pod.role,
                        "metrics": one.metrics_url,
                        "agent": one.agent_url,
                    }
                    for one in cluster.pods
                ],
                "routers": [{"pod": "router", "metrics": cluster.router_url}],
                "base_models": [MODEL],
                "gpus": {"exporters": [{"pod": "gpus", "metrics": cluster.gpus_url}]},
                "collect": {
                    "interval": COLLECT_SECONDS,
                    "settle": settle / SECOND,
                    "events_per_tick": RECORDS_AT_ONCE,
                },
                "derive": {"interval": derive, "window": "10m", "lookback": (warm + HOUR) / SECOND},
                "store": {"folder": str(folder.resolve())},
                "exporter": {"port": 0},
                "log": {"level": "error"},
            }
        )
    )


class _Teller:
    """Says what is seen, in a thread beside the service, and ends it when all is said."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        service: Service,
        clock: Clock,
        past: "_History",
        console: Console,
        *,
        speed: float,
        settle: int,
        stay: bool,
        kept: bool,
    ) -> None:
        self._store, self._cluster, self._service, self._clock = store, cluster, service, clock
        self._past_days, self._console = past, console
        self._settle, self._stay, self._kept = settle, stay, kept
        self._step = max(round(LINE_SECONDS * speed / 60), 1) * MINUTE
        self._read = Past(store, 4 * HOUR)
        self._ledgers = {table.name: store.ledger(table) for table in (ADAPTER_EVENTS, REQUESTS)}
        self._known: dict[str, frozenset[str]] = {}
        self._before: dict[str, list[Line]] = {}
        self._pending: dict[str, int] = {}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make ``run`` return soon."""
        self._stopped.set()

    def run(self, window: Window) -> None:
        """Tell the window bit by bit as it passes, what lies before it first. LoraWatchError where that ends too early."""
        try:
            self._tell(window)
        finally:
            self._service.stop()

    def _tell(self, window: Window) -> None:
        print_ = self._console.print
        for line in changes.lines(overview(self._store, Window(window.start - HOUR, window.start), self._read)):
            self._known[line.pool] = frozenset(line.adapters)
        if self._stay or self._kept:
            print_(f"look      lora-watch status --data {self._store.root} --last 15m")
        start = window.start - self._step
        print_(f"\n{_at(start, 'date')}\n        {changes.HEADING}", style="bold")
        self._line(Window(start, window.start))
        self._past_days.start()
        said, quiet_since = False, window.start
        for part in window.split(self._step):
            if not self._await(part.end):
                break
            found = self._line(part)
            if found:
                said, quiet_since = True, part.end
                for sentence in found:
                    print_(f"\n{sentence}\n", style="bold")
            if not self._stay and (said or part.end - quiet_since >= PATIENCE):
                break
        if not said and not self._stopped.is_set():
            print_("\nNothing changed.")
        self._close()

    def _close(self) -> None:
        if self._stopped.is_set():
            return
        if self._stay:
            self._console.print(f"The simulation ends at {_at(self._clock())}; still serving until Ctrl-C.")
            self._stopped.wait()
        elif not self._kept:
            self._console.print("The tables were temporary: --data FOLDER keeps them.")

    def _line(self, part: Window) -> list[str]:
        """Print the line of each pool; what changed with it, as sentences."""
        sentences = []
        several = len(self._known) > 1
        for line in changes.lines(overview(self._store, part, self._read)):
            known, before = self._known.get(line.pool, frozenset()), self._before.setdefault(line.pool, [])
            late = self._late(part.end) if before else ""
            note = f"   {line.pool}" if several else ""
            self._console.print(f"{_at(part.start)}   {changes.text(line)}{note}{late}{self._past_days.news()}")
            changed = changes.change(before, line, known)
            if changed and line.pool not in self._pending:
                self._pending[line.pool] = part.start  # the next line is of the change alone
                continue
            if changed:
                sentences.append(f"Since {_at(self._pending.pop(line.pool))}: {changed}")
                before.clear()
            else:
                self._pending.pop(line.pool, None)
            self._known[line.pool] = known | frozenset(line.adapters)
            before.append(line)
            del before[:-BEFORE]
        return sentences

    def _await(self, moment: int) -> bool:
        """Wait until all that happened before a moment is stored; False where that is no use any more."""
        while not self._stopped.wait(POLL_SECONDS):
            wanted = self._cluster.positions(moment)
            if wanted is not None and self._stored(wanted):
                return True
            if wanted is None and not self._cluster.goes_on:
                raise LoraWatchError("the simulated cluster came to a halt before its end; what is above says why")
        return False

    def _stored(self, wanted: Mapping[str, int]) -> bool:
        events, requests = (self._ledgers[table.name].refresh() for table in (ADAPTER_EVENTS, REQUESTS))
        return all(
            events.get(name, 0) >= seq and (name not in self._cluster.servers or requests.get(name, 0) >= seq)
            for name, seq in wanted.items()
        )

    def _late(self, moment: int) -> str:
        behind = self._clock() - moment - 2 * self._settle
        return f"   (read {behind / MINUTE:.0f} min late: it is more than this machine can follow)" if behind > self._step else ""


class _History:
    """The days before, laid by a process of its own; its news for the screen."""

    def __init__(self, folder: Path, scenario: str, now: int, days: int) -> None:
        self._asked = {"data": str(folder.resolve()), "scenario": scenario, "now": now, "seed": SEED, "days": days}
        self._process: subprocess.Popen[str] | None = None
        self._news = ""

    def start(self) -> None:
        """Begin to lay them, if any are asked for."""
        if not self._asked["days"]:
            return
        asked = json.dumps({**self._asked, "parent": os.getpid()})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lora_watch.simulate.past", asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def news(self) -> str:
        """What is new since it was asked last."""
        news, self._news = self._news, ""
        return f"   history: {news}" if news else ""

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            laid = json.loads(line)
            done, of, size = laid["days"], laid["of"], laid["size"] / 1e6
            if laid["full"]:
                self._news = f"{done} days, {_size(size)}; the disk has no room for more"
            else:
                whole = f", about {_size(size / done * of)} in all" if done < of else ""
                self._news = f"{done} of {of} days, {_size(size)}{whole}"


def _size(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"


def _at(moment: int, form: str = "time") -> str:
    pattern = "%H:%M" if form == "time" else "%A %Y-%m-%d, UTC"
    return time.strftime(pattern, time.gmtime(moment / SECOND))


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Until the service takes signals itself, SIGTERM ends with the same clearing up as Ctrl-C does."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
