"""Direct scrape of vLLM pods, for installations without Prometheus: one `GET /metrics` per pod and tick."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lora_watch import names
from lora_watch.errors import SourceError
from lora_watch.model import SECOND
from lora_watch.schema import SAMPLES, Batch
from lora_watch.sources import vllm
from lora_watch.sources.base import Turns, printable, stream
from lora_watch.sources.exposition import parse_page
from lora_watch.sources.http import HttpDoor
from lora_watch.sources.series import sample_frame, sample_row
from lora_watch.sources.targets import Target, Targets

_ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"


class PodMetrics:
    """
    Samples of every target with a ``metrics_url``; provenance: see vllm.py.

    Stream ``scrape/<cluster>/<pod>``: the exclusive end (µs UTC) of the last look, good or bad. A pod looked at less than half an
    ``interval`` (µs) before ``until`` is passed over: services that share a store share the work. All rows of one read bear the
    time ``until`` − 1. Each look leaves a row ``lora_watch:scrape_up{endpoint="metrics"}``, 1 or 0; a pod that fails is a problem
    and never stops the others. ``known`` gives adapter names that may hold commas (the registered ones).
    """

    def __init__(
        self,
        name: str,
        targets: Targets,
        interval: int = 15 * SECOND,
        *,
        known: Callable[[], Collection[str]] = tuple,
        threads: int = 8,
        timeout: tuple[float, float] = (3.0, 10.0),
        deadline_seconds: float = 15.0,
        max_bytes: int = 64 << 20,
    ) -> None:
        self.name = name
        self.table = SAMPLES
        self._targets = targets
        self._interval = interval
        self._known = known
        self._threads = threads
        self._timeout = timeout
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes
        self._turns = Turns(threads)

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        """One look at each pod that is due."""
        targets, problems = self._targets.read()
        streams = {stream("scrape", target.cluster, target.pod): target for target in targets if target.metrics_url}
        due = {name: target for name, target in streams.items() if 2 * (until - positions.get(name, 0)) >= self._interval}
        known = self._known()
        waiting = self._turns.waiting(list(due))
        picked = self._turns.pick(list(due))
        with ThreadPoolExecutor(self._threads) as pool:
            looks = list(pool.map(lambda name: self._look(due[name], until, known), picked))
        self._turns.settle({name: rows[-1]["value"] == 1.0 for name, (rows, _) in zip(picked, looks, strict=True)}, streams)
        rows = [row for look, _ in looks for row in look]
        found = [problem for _, look in looks for problem in look]
        return Batch(sample_frame(rows), dict.fromkeys(picked, until), (*problems, *waiting, *found))

    def _look(self, target: Target, until: int, known: Collection[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """The rows and problems of one pod."""
        rows: list[dict[str, Any]] = []
        problems: tuple[str, ...] = ()
        up = 1.0
        try:
            door = HttpDoor(target.metrics_url, target.credentials, self._timeout, self._deadline_seconds, self._max_bytes)
            with door.open(accept=_ACCEPT) as (headers, chunks):
                page = parse_page(
                    chunks,
                    vllm.WANTED,
                    newest={names.LORA_REQUESTS_INFO: lambda value: vllm.gauge_time(value, until / SECOND)},
                    content_type=headers.get("content-type", ""),
                )
            rows, problems = vllm.read_page(page, target.pod_id, until - 1, until, self.name, known)
        except SourceError as error:
            up, problems = 0.0, (str(error),)
        rows.append(sample_row(target.pod_id, until - 1, names.SAMPLE_SCRAPE_UP, up, {"endpoint": "metrics"}, self.name))
        return rows, [f"pod {printable(target.pod)}: {problem}" for problem in problems]
