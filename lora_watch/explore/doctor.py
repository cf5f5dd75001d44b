"""What ``lora-watch doctor`` finds: which targets can be reached, what each will tell, what is missing and how to get it."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch import names
from lora_watch.config import Settings
from lora_watch.errors import SourceError
from lora_watch.schema import Batch
from lora_watch.sources.agent import AgentEvents, AgentRequests, AgentStatus
from lora_watch.sources.base import Source
from lora_watch.sources.configured import doors_of, pod_metrics_of, sources_of, targets_of
from lora_watch.sources.targets import Target, Targets

GLANCE = 2_000
"""Records of each log that are looked at: the first ones say what kind of process writes it."""
PER_TARGET = frozenset({"pods", "agents-events", "agents-requests", "agents-status"})
"""Sources that are looked at target by target."""
FROM_ITS_LOG = "clock none"
"""What a log that was made from the engine's own log lines says of its clock: nothing in it was timed."""
INSTALL_AGENT = (
    "install the agent in the engine's image (`pip install --no-deps lora-watch`), run `lora-watch-agent` beside it and name it "
    "as `agent`; without a plug-in, `lora-watch-agent --vllm-log` reads vLLM's own DEBUG lines"
)
EMPTY_SIDECAR = (
    "start the engine with --enable-lora and with lora-watch installed; where it runs: give both the same LORA_WATCH_LOG_DIR, "
    "and name `lora_watch` in VLLM_PLUGINS if that is set"
)
START_SIDECAR = (
    "start `lora-watch-agent` beside the engine and name where it listens, such as http://10.0.0.7:9465; "
    "it is asked from another machine only with --host 0.0.0.0"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer about one target: what was asked, whether it is well, what was found, and what would help ("" where nothing)."""

    target: str
    asked: str
    well: bool
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings; ``reachable`` is False where an address that the configuration names cannot be read."""

    findings: tuple[Finding, ...]
    reachable: bool


def examine(settings: Settings, clock: Callable[[], int]) -> Report:
    """Look once at everything the settings name. ``clock`` gives µs UTC. Nothing is stored."""
    targets, problems = targets_of(settings).read()
    findings = [Finding("targets", "list", well=False, found=problem) for problem in problems]
    reached = True
    for target in targets:
        for finding, is_reach in _target(settings, target, clock):
            findings.append(finding)
            reached = reached and (finding.well or not is_reach)
    for source in sources_of(settings, clock):
        if source.name in PER_TARGET:
            continue
        finding = _other(source, clock())
        findings.append(finding)
        reached = reached and finding.well
    if not findings:
        findings.append(Finding("configuration", "targets", well=False, found="nothing is named", remedy="add `targets`"))
    return Report(tuple(findings), reached and not problems)


def show(report: Report, console: Console | None = None) -> None:
    """Print the findings as a table, what is missing with what to do about it."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    grid = Grid(header_style="bold", show_lines=False)
    for heading in ("target", "asked", "", "found", "what would help"):
        grid.add_column(heading, overflow="fold")
    said: set[tuple[str, str]] = set()
    for one in report.findings:
        remedy = "as above" if one.remedy and (one.target, one.remedy) in said else one.remedy
        said.add((one.target, one.remedy))
        texts = [escape(plain(text)) for text in (one.target, one.asked, one.found, remedy)]
        grid.add_row(texts[0], texts[1], "yes" if one.well else "NO", *texts[2:])
    console.print(grid)
    bad = sum(not one.well for one in report.findings)
    console.print("Everything can be known." if not bad else f"{bad} of {len(report.findings)} answers are no.", highlight=False)


def plain(text: str) -> str:
    """``text`` with its control characters escaped: a name must not move a terminal's cursor."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def as_json(report: Report) -> str:
    """The findings for programs, in ASCII so that any terminal and pipe takes them."""
    return json.dumps({"reachable": report.reachable, "findings": [asdict(one) for one in report.findings]})


def _target(settings: Settings, target: Target, clock: Callable[[], int]) -> Iterator[tuple[Finding, bool]]:
    """Findings of one target, each with whether it is about reaching an address."""
    alone, name = Targets([target]), f"{target.cluster}/{target.pod}"
    page: set[str] = set()
    if target.metrics_url:
        batch, problem = _glance(pod_metrics_of(settings, alone), clock())
        up = batch.rows.filter(pl.col("metric") == names.SAMPLE_SCRAPE_UP)["value"].to_list() == [1.0]
        page = set(batch.rows["metric"].to_list()) if up else set()
        series = batch.rows.height - 1
        yield Finding(name, "engine's page", up, f"{series} samples" if up else problem or "; ".join(batch.problems)), True
        if up and batch.problems:
            yield Finding(name, "page is sound", well=False, found="; ".join(batch.problems)), False
    logs: set[str] = set()
    agent = INSTALL_AGENT
    if target.agent_url:
        doors = doors_of(settings)
        status, problem = _glance(AgentStatus("doctor", alone, clock, 0, doors=doors), clock())
        offset = status.rows.filter(pl.col("metric") == names.SAMPLE_CLOCK_OFFSET)["value"].to_list()
        up = status.rows.filter(pl.col("metric") == names.SAMPLE_SCRAPE_UP)["value"].to_list() == [1.0]
        said = f"its clock is {offset[0]:+.3f} s from ours" if offset else "its clock cannot be told"
        agent = EMPTY_SIDECAR if up else START_SIDECAR
        found = said if up else problem or "; ".join(status.problems)
        yield Finding(name, "agent's sidecar", up, found, "" if up else agent), True
        if up:
            events, _ = _glance(AgentEvents("doctor", alone, records_per_stream=GLANCE, doors=doors), clock())
            requests, _ = _glance(AgentRequests("doctor", alone, records_per_stream=GLANCE, doors=doors), clock())
            logs = _logs(events, requests)
    for finding in knowable(name, page, logs, agent):
        yield finding, False


def _logs(events: Batch, requests: Batch) -> set[str]:
    rows = events.rows
    logs = set()
    if rows.filter(pl.col("slots").is_not_null() | pl.col("kind").is_in(["load", "evict", "use"])).height:
        logs.add("worker")
    if requests.rows.height:
        logs.add("requests")
    if requests.rows.height or rows.filter(pl.col("kind").is_in(["register", "unregister"])).height:
        logs.add("api")
    return logs | {f"clock {clock}" for clock in rows["clock"].drop_nulls().unique().to_list()}


def knowable(name: str, page: set[str], logs: set[str], agent: str) -> Iterator[Finding]:
    """What can be known of a target with these metrics on its page and these logs at its sidecar; ``agent`` brings more logs."""
    for asked, answer in (("residency, swaps", _residency), ("misses per request", _misses), ("inference share", _share)):
        well, found, remedy = answer(page, logs, agent)
        yield Finding(name, asked, well, found, remedy)
    requests = _tells_requests(logs)
    if requests or names.WAITING_BY_REASON in page:
        source = "requests" if requests else "waiting requests that the engine deferred"
        yield Finding(name, "swap queue", well=True, found=f"from {source}")
    else:
        remedy = "vLLM 0.20 or newer tells on its page why requests wait" if page else agent
        yield Finding(name, "swap queue", well=False, found="unknown", remedy=remedy)


def _tells_requests(logs: set[str]) -> bool:
    """Whether requests are or will be recorded: an engine's own log (``FROM_ITS_LOG``) names adapters, never requests."""
    return "requests" in logs or ("api" in logs and FROM_ITS_LOG not in logs)


def _residency(page: set[str], logs: set[str], agent: str) -> tuple[bool, str, str]:
    if FROM_ITS_LOG in logs:
        return True, "observed: every load and eviction, from the engine's own log", ""
    if "worker" in logs:
        return True, "observed: every load and eviction, from inside the engine", ""
    if {names.ADAPTER_LOADED, names.CACHE_ADAPTERS, names.GPU_ADAPTERS} & page:
        return True, "observed at each scrape: what comes and goes in between is missed", agent
    if logs:
        remedy = "start the engine with --enable-lora; its worker's log begins when it builds the adapter manager"
        return False, "the agent has no worker's log yet", remedy
    if page:
        return False, "unknown: the page lists adapters with requests in flight, which is not residency", agent
    return False, "unknown", agent


def _misses(_page: set[str], logs: set[str], agent: str) -> tuple[bool, str, str]:
    if _tells_requests(logs):
        return True, "observed: every finished request with its adapter and times", ""
    if FROM_ITS_LOG in logs:
        return False, "unknown: the engine's own log tells of loads, not of requests", agent
    if "worker" in logs:
        remedy = "run the API server with the plug-in too and without --disable-log-stats, then send a request"
        return False, "no request was recorded; uses stand in for requests", remedy
    return False, "unknown", agent


def _share(page: set[str], logs: set[str], agent: str) -> tuple[bool, str, str]:
    if "clock cuda" in logs:
        return True, "grade A: steps timed by the GPU", ""
    if "clock host" in logs:
        return True, "grade A-: steps timed by the host", ""
    if names.REQUESTS_RUNNING in page:
        return True, "grade D: an upper bound from running requests", agent
    return False, "unknown", agent


def _other(source: Source, now: int) -> Finding:
    batch, problem = _glance(source, now)
    trouble = problem or "; ".join(batch.problems)
    return Finding(source.name, "can be read", not trouble, trouble or f"{batch.rows.height} rows at a glance")


def _glance(source: Source, until: int) -> tuple[Batch, str]:
    """One read from nothing, and what is wrong if it failed."""
    try:
        return source.read({}, until), ""
    except SourceError as error:
        return Batch(source.table.empty()), str(error)
