"""Direct scrape: many pods, some of them bad."""

import pytest
from sources.conftest import Reply

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.sources.base import parse_stream, stream
from lora_watch.sources.scrape import PodMetrics
from lora_watch.sources.targets import Target, Targets

NOW = 1_796_026_840 * SECOND


def pods(*urls: str) -> Targets:
    return Targets([Target("c", f"pod-{number}", metrics_url=url) for number, url in enumerate(urls)])


def up(batch) -> dict[str, float]:
    return dict(batch.rows.filter(metric=names.SAMPLE_SCRAPE_UP).select("pod", "value").iter_rows())


def test_a_pod_gives_its_rows_before_until_and_a_position(serve, data):
    server = serve(Reply(data("vllm-0.32.0-two-in-flight.prom")))
    batch = PodMetrics("vllm", pods(server.url)).read({}, NOW)
    assert batch.problems == ()
    assert batch.positions == {"scrape/c/pod-0": NOW}
    assert set(batch.rows["at"]) == {NOW - 1}
    assert batch.rows.filter(metric=names.SAMPLE_IN_FLIGHT)["adapter"].to_list() == ["adapter-a", "adapter-b"]


def test_one_bad_pod_never_stops_the_others(serve, play, closed_port, data):
    page = data("vllm-0.32.0-after.prom")
    good = serve(Reply(page))
    html = serve(Reply(b"<html>", headers={"Content-Type": "text/html"}))
    cut = serve(Reply(page[:-7]))
    gone = serve(Reply(b"", 404))

    def hang(connection, over):
        over.wait()

    source = PodMetrics(
        "vllm", pods(closed_port, good.url, html.url, cut.url, gone.url, play(hang), "nonsense"), timeout=(1.0, 0.1)
    )
    batch = source.read({}, NOW)
    assert up(batch) == {f"pod-{number}": float(number == 1) for number in range(7)}
    assert [problem.split(":")[0] for problem in batch.problems] == [f"pod 'pod-{number}'" for number in (0, 2, 3, 4, 5, 6)]
    assert len(batch.positions) == 7


def test_a_pod_that_was_just_looked_at_is_passed_over(serve, data):
    server = serve(Reply(data("vllm-0.32.0-after.prom")))
    source = PodMetrics("vllm", pods(server.url), 10 * SECOND)
    assert source.read({"scrape/c/pod-0": NOW - 5 * SECOND + 1}, NOW).positions == {}
    assert source.read({"scrape/c/pod-0": NOW - 5 * SECOND}, NOW).positions == {"scrape/c/pod-0": NOW}
    assert len(server.requests) == 1


def test_a_page_of_garbage_is_up_with_its_lines_as_problems(serve):
    batch = PodMetrics("vllm", pods(serve(Reply(b"!!\nvllm:num_requests_running 1\n")).url)).read({}, NOW)
    assert up(batch) == {"pod-0": 1.0}
    assert batch.rows.filter(metric=names.REQUESTS_RUNNING)["value"].to_list() == [1.0]
    assert "not a sample" in batch.problems[0]


def test_a_page_that_never_ends_is_given_up(play):
    def endless(connection, over):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.is_set():
            connection.sendall(b"a 1\n" * 10_000)

    batch = PodMetrics("vllm", pods(play(endless)), max_bytes=1_000_000).read({}, NOW)
    assert up(batch) == {"pod-0": 0.0}


@pytest.mark.parametrize("name", ["a/b", "../x", "a%2Fb", "pod 0", "🦙", 'q"', "x\ny", "", "\ud800"])
def test_a_hostile_pod_name_parses_back_from_its_stream(name):
    assert parse_stream(stream("scrape", name, name)) == ("scrape", name, name)


def test_known_names_keep_a_comma(serve):
    line = 'vllm:lora_requests_info{max_lora="2",running_lora_adapters="a,b",waiting_lora_adapters="a,b"} 1796026839\n'
    source = PodMetrics("vllm", pods(serve(Reply(line.encode())).url), known=lambda: ["a,b"])
    assert source.read({}, NOW).rows.filter(metric=names.SAMPLE_IN_FLIGHT)["adapter"].to_list() == ["a,b"]
