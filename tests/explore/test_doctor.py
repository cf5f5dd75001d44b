import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from event_logs import api_server, worker, write_log
from rich.console import Console

from lora_watch.agent.sidecar import Logs, Sidecar
from lora_watch.config import parse
from lora_watch.explore.doctor import Finding, Report, as_json, examine, show
from lora_watch.model import SECOND

NOW = 1_796_000_000 * SECOND
STOCK = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 0.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="2",running_lora_adapters="a",waiting_lora_adapters="a"} 1796000000.0
"""
RESIDENT = (
    STOCK + '# TYPE vllm:lora_adapter_loaded gauge\nvllm:lora_adapter_loaded{adapter_name="a",level="gpu",pinned="false"} 1.0\n'
)


@contextmanager
def page(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def look(target: str) -> Report:
    return examine(parse(f"targets: [{{pod: p, {target}}}]"), lambda: NOW)


def answers(report: Report) -> dict[str, tuple[bool, str, str]]:
    return {one.asked: (one.well, one.found, one.remedy) for one in report.findings}


def test_a_stock_page_gives_activity_and_never_residency():
    with page(STOCK) as url:
        report = look(f"metrics: '{url}'")
    found = answers(report)
    assert report.reachable
    assert found["residency, swaps"][0] is False
    assert "not residency" in found["residency, swaps"][1]
    assert "pip install --no-deps lora-watch" in found["residency, swaps"][2]
    assert "grade D" in found["inference share"][1]
    assert found["swap queue"][0] is True


def test_residency_gauges_give_residency_at_each_scrape():
    with page(RESIDENT) as url:
        found = answers(look(f"metrics: '{url}'"))
    assert found["residency, swaps"][0] is True
    assert "at each scrape" in found["residency, swaps"][1]


def test_an_agent_gives_everything_with_its_grade(tmp_path: Path):
    write_log(tmp_path, "11111111-1111-4111-8111-111111111111", worker(50, start=NOW))
    write_log(tmp_path, "22222222-2222-4222-8222-222222222222", api_server(5, start=NOW))
    with Sidecar(Logs(tmp_path, 1 << 30), port=0) as sidecar:
        found = answers(look(f"agent: '{sidecar.url}'"))
    assert found["agent's sidecar"][0] is True
    assert found["residency, swaps"] == (True, "observed: every load and eviction, from inside the engine", "")
    assert found["misses per request"][0] is True


def test_an_agent_without_a_log_says_what_the_engine_lacks(tmp_path: Path):
    with Sidecar(Logs(tmp_path, 1 << 30), port=0) as sidecar:
        found = answers(look(f"agent: '{sidecar.url}'"))
    assert found["residency, swaps"][0] is False
    assert found["misses per request"][0] is False


@pytest.mark.parametrize("key", ["metrics", "agent"])
def test_what_cannot_be_reached_is_said_and_makes_the_report_bad(key: str):
    report = look(f"{key}: 'http://127.0.0.1:9/metrics'")
    assert not report.reachable
    assert "127.0.0.1:9" in report.findings[0].found


def test_a_prometheus_whose_name_begins_like_one_of_our_sources_is_looked_at():
    report = examine(parse("prometheus: [{name: pods-eu, url: 'http://127.0.0.1:9'}]"), lambda: NOW)
    assert [(one.target, one.well) for one in report.findings] == [("pods-eu", False)]


def test_a_name_cannot_move_the_cursor_of_a_terminal():
    console = Console(record=True, width=200)
    show(Report((Finding("c/\x1b[2Jpod", "list", well=False, found="\x9b31m[bold]x"),), reachable=True), console)
    text = console.export_text()
    assert "\\x1b[2Jpod" in text
    assert "\\x9b31m[bold]x" in text


def test_nothing_named_is_said():
    report = examine(parse(""), lambda: NOW)
    assert report.findings[0].remedy == "add `targets`"


def test_an_event_log_folder_that_is_not_there_is_out_of_reach(tmp_path: Path):
    report = examine(parse(f"event_logs: [{{folder: '{tmp_path}/none', pod: p}}]"), lambda: NOW)
    assert not report.reachable


def test_the_report_is_a_table_and_json():
    with page(STOCK) as url:
        report = look(f"metrics: '{url}'")
    console = Console(record=True, width=200)
    show(report, console)
    assert "answers are no" in console.export_text()
    assert len(json.loads(as_json(report))["findings"]) == len(report.findings)
