"""What every source promises, run over all of them: a new source is covered by being listed here."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

import pytest
from sources.conftest import DATA, Reply

from lora_watch.errors import SourceUnavailable
from lora_watch.model import SECOND, PodId
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.sources.agent import AgentEvents, AgentRequests, AgentStatus
from lora_watch.sources.agent_files import AgentLogFiles, LogFolder
from lora_watch.sources.base import Source, parse_stream
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.epp import Epp
from lora_watch.sources.placed import PlacedPages, PlacedSamples
from lora_watch.sources.prometheus import Prometheus, PrometheusSamples, Reading
from lora_watch.sources.request_log import Reader, load_formats
from lora_watch.sources.request_log_files import RequestLog, RequestLogs
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, Targets

NOW = 1_796_026_900 * SECOND
LOG = [
    {"v": 1, "boot": "b", "seq": seq, "at": NOW - SECOND, "kind": kind, "adapter": "a", "finished": NOW - SECOND}
    for seq, kind in enumerate(("register", "request", "unregister", "request"), 1)
]


def system(request) -> Reply:
    """A pod, its sidecar and a Prometheus in one server."""
    if request.path == "/metrics":
        return Reply((DATA / "vllm-0.32.0-two-in-flight.prom").read_bytes())
    if request.path == "/epp/metrics":
        return Reply((DATA / "epp-old-names.prom").read_bytes())
    if request.path == "/dcgm/metrics":
        return Reply(b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n",pod="pod-0"} 94\n')
    if request.path == "/api/v1/query":
        series = {
            "metric": {"__name__": asked(request), "pod": "pod-0", "max_lora": "2"},
            "values": [[NOW / SECOND - 10, str(NOW / SECOND - 11)]],
        }
        return Reply(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}).encode())
    if "boot" not in request.query:
        return Reply(json.dumps({"now": NOW, "boots": [{"boot": "b", "role": "api", "last_seq": 4}]}).encode())
    kinds = request.query.get("kinds", "register,unregister,request").split(",")
    lines = [json.dumps(item) + "\n" for item in LOG if item["seq"] > int(request.query["after"]) and item["kind"] in kinds]
    return Reply("".join(lines).encode(), headers={"X-Lora-Watch-Last-Seq": "4"})


def asked(request) -> str:
    """The first name that a query asks for."""
    return re.search(r'__name__=~?"([^"|]+)', parse_qs(request.body.decode())["query"][0])[1]


def nothing(request) -> Reply:
    """The same, with nothing to tell."""
    if request.path == "/api/v1/query":
        return Reply(b'{"status":"success","data":{"resultType":"matrix","result":[]}}')
    return Reply(b"\n" if request.path.endswith("/metrics") else b'{"now": 1, "boots": []}')


@dataclass(frozen=True)
class Member:
    """A source, and how to make one that reads from an address or a folder."""

    name: str
    make: Callable[[str, object], Source]


def targets(url: str) -> Targets:
    return Targets([Target("c", "pod-0", metrics_url=f"{url}/metrics", agent_url=url)])


MINUTE = Reading(history=60 * SECOND)


def prometheus(url: str, folder: object) -> Source:
    return PrometheusSamples("p", Prometheus(url, retries=0), reading=MINUTE)


def files(table) -> Callable[[str, object], Source]:
    return lambda url, folder: AgentLogFiles("f", table, [LogFolder(folder, PodId("c", "pod-0"))])


def request_logs(url: str, folder) -> Source:
    reader = Reader(load_formats()["openai"], PodId("c", "pod-0"), "l")
    return RequestLogs("l", [RequestLog(str(folder / "requests.log"), reader)])


MEMBERS = [
    Member("scrape", lambda url, folder: PodMetrics("s", targets(url))),
    Member("agent events", lambda url, folder: AgentEvents("e", targets(url))),
    Member("agent requests", lambda url, folder: AgentRequests("r", targets(url))),
    Member("agent status", lambda url, folder: AgentStatus("t", targets(url), lambda: NOW)),
    Member("prometheus", prometheus),
    Member("router", lambda url, folder: PlacedPages("o", targets(f"{url}/epp"), Epp())),
    Member("router in prometheus", lambda url, folder: PlacedSamples("q", Prometheus(url, retries=0), Epp(), reading=MINUTE)),
    Member("gpu", lambda url, folder: PlacedPages("g", targets(f"{url}/dcgm"), Dcgm())),
    Member("request logs", request_logs),
    Member("event files", files(ADAPTER_EVENTS)),
    Member("request files", files(REQUESTS)),
]
TELLS_UP = {"scrape", "agent status", "router", "gpu"}
"""Sources that leave a row for each pod they could not read, and so never fail as a whole."""
every = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)


@pytest.fixture
def folder(tmp_path):
    boot = "0b0e4a11-2222-4333-8444-555555555555"
    lines = [json.dumps({**item, "boot": boot}, separators=(",", ":")) + "\n" for item in LOG]
    (tmp_path / f"{boot}.000000000001.jsonl").write_text("".join(lines))
    log = {"model": "a", "created": NOW // SECOND - 20, "duration_ms": 1500, "request_id": "r"}
    (tmp_path / "requests.log").write_text(json.dumps(log) + "\n")
    return tmp_path


@every
def test_it_brings_rows_of_just_its_table(member, serve, folder):
    source = member.make(serve(system).url, folder)
    batch = source.read({}, NOW)
    assert batch.rows.height > 0
    assert batch.rows.schema == dict(source.table.schema)
    assert batch.rows.select(source.table.key).is_unique().all()
    assert batch.problems == ()


@every
def test_every_row_lies_before_until_and_says_where_it_is_from(member, serve, folder):
    source = member.make(serve(system).url, folder)
    rows = source.read({}, NOW).rows
    assert rows["at"].max() < NOW
    assert set(rows["source"]) == {source.name}
    assert rows["provenance"].null_count() == 0


@every
def test_positions_belong_to_streams_that_parse_back(member, serve, folder):
    positions = member.make(serve(system).url, folder).read({}, NOW).positions
    assert positions
    assert all(len(parse_stream(name)) >= 2 and isinstance(position, int) for name, position in positions.items())


@every
def test_reading_on_from_the_new_positions_never_goes_back_and_brings_nothing_new(member, serve, folder):
    source = member.make(serve(system).url, folder)
    first = source.read({}, NOW)
    again = source.read(first.positions, NOW)
    assert again.positions == {}
    keys = set(first.rows.select(source.table.key).rows())
    assert set(again.rows.select(source.table.key).rows()) <= keys


@every
def test_reading_twice_from_the_same_positions_gives_the_same_rows(member, serve, folder):
    source = member.make(serve(system).url, folder)
    assert source.read({}, NOW).rows.equals(source.read({}, NOW).rows)


@every
def test_an_empty_answer_is_an_empty_frame_of_the_table_or_says_why(member, serve, tmp_path):
    (tmp_path / "requests.log").touch()
    source = member.make(serve(nothing).url, tmp_path)
    batch = source.read({}, NOW)
    assert batch.rows.schema == dict(source.table.schema)
    assert batch.rows.filter(batch.rows["adapter"].is_not_null()).height == 0


@pytest.mark.parametrize("member", [m for m in MEMBERS if m.name not in TELLS_UP], ids=lambda member: member.name)
def test_a_system_that_is_gone_is_unavailable(member, closed_port, tmp_path):
    with pytest.raises(SourceUnavailable):
        member.make(closed_port, tmp_path / "gone").read({}, NOW)


@pytest.mark.parametrize("member", [m for m in MEMBERS if m.name in TELLS_UP], ids=lambda member: member.name)
def test_a_pod_that_is_gone_is_a_row_that_says_so_and_a_problem(member, closed_port, tmp_path):
    batch = member.make(closed_port, tmp_path).read({}, NOW)
    assert batch.rows["value"].to_list() == [0.0]
    assert len(batch.problems) == 1
