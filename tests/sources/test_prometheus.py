"""Raw samples from a real Prometheus, and from servers that answer what a real one answers only on bad days."""

import json
import signal
import socket
import subprocess
from itertools import pairwise
from urllib.parse import parse_qs

import pytest
from sources.conftest import Reply

from lora_watch import names
from lora_watch.errors import SourceRejected, SourceUnavailable
from lora_watch.model import SECOND, Window
from lora_watch.sources.http import Credentials
from lora_watch.sources.prometheus import PodLabels, Prometheus, PrometheusSamples, Reading

START = 1_796_000_000  # s; a scrape every 15 s from here, aligned
SCRAPES = 40
HOSTILE = 'a"b,</script>{}🦙'


def openmetrics() -> str:
    """Ten minutes of two pods: a running total, the stock gauge with two combinations, and one series that goes away."""
    escaped = HOSTILE.replace('"', '\\"')
    lines = ["# TYPE vllm:generation_tokens counter"]
    for pod in ("vllm-0", "vllm-1"):
        labels = f'engine="0",instance="{pod}:8000",job="vllm",pod="{pod}",pool="chat"'
        lines += [f"vllm:generation_tokens_total{{{labels}}} {n} {START + 15 * n}" for n in range(SCRAPES)]
    lines.append("# TYPE vllm:lora_requests_info gauge")
    for pod, (early, late) in {"vllm-0": ("a", "b"), "vllm-1": ("", escaped)}.items():
        for running, first in ((early, 0), (late, SCRAPES // 2)):
            where = f'instance="{pod}:8000",job="vllm",max_lora="2",pod="{pod}",pool="chat"'
            labels = f'{where},running_lora_adapters="{running}",waiting_lora_adapters="{running}"'
            # The first combination is set until the second one comes, and then keeps its last value for ever.
            for n in range(first, SCRAPES):
                update = START + 15 * (min(n, SCRAPES // 2 - 1) if first == 0 else n) - 1
                lines.append(f"vllm:lora_requests_info{{{labels}}} {update} {START + 15 * n}")
    lines += ["# TYPE vllm:num_requests_running gauge"]
    lines += [f'vllm:num_requests_running{{pod="vllm-0"}} {value} {START + 15 * n}' for n, value in enumerate(("1", "NaN", "2"))]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The address of a Prometheus that holds those ten minutes."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "history.om").write_text(openmetrics())
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.om"), str(folder / "data")]
    subprocess.run(make, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--query.max-samples=100"]
    with subprocess.Popen(["prometheus", *options], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "ready to receive web requests" in line:
                break
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGKILL)
        process.stderr.read()


def raw(url: str, metric: str, start: float, end: float):
    found = Prometheus(url).raw(metric, Window(int(start * SECOND), int(end * SECOND)))
    return sorted(at // SECOND for part in found for at in part.samples["at"])


def source(url: str, **options) -> PrometheusSamples:
    reading = options.pop("reading", Reading(history=600 * SECOND, settle=0, lag=30 * SECOND))
    return PrometheusSamples("p1", Prometheus(url), reading=reading, **options)


def test_a_window_holds_its_start_and_not_its_end(real):
    found = raw(real, 'vllm:generation_tokens_total{pod="vllm-0"}', START + 15, START + 60)
    assert found == [START + 15, START + 30, START + 45]


def test_windows_next_to_each_other_add_up_without_gap_or_overlap(real):
    metric = 'vllm:generation_tokens_total{pod="vllm-0"}'
    cuts = [START, START + 1, START + 15, START + 29.999, START + 30, START + 30.001, START + 300, START + 601]
    parts = [at for start, end in pairwise(cuts) for at in raw(real, metric, start, end)]
    assert parts == raw(real, metric, START, START + 601) == [START + 15 * n for n in range(SCRAPES)]


def test_an_answer_above_the_servers_sample_limit_is_asked_for_in_parts(real):
    parts = Prometheus(real).raw('{__name__=~"vllm:.+"}', Window(START * SECOND, (START + 601) * SECOND))
    assert len(parts) > 1
    assert sum(part.samples.height for part in parts) == 5 * SCRAPES + 3  # above --query.max-samples


def test_a_query_that_is_wrong_is_rejected_in_prometheus_own_words(real):
    with pytest.raises(SourceRejected, match="parse error"):
        Prometheus(real).raw("}{", Window(START * SECOND, (START + 15) * SECOND))


def test_counters_come_with_their_pod_and_their_other_labels(real):
    batch = source(real, metrics=[names.GENERATION_TOKENS]).read({}, (START + 600) * SECOND)
    assert batch.positions == {"prom/p1/vllm%3Ageneration_tokens_total": (START + 600) * SECOND}
    assert batch.rows.height == 2 * SCRAPES
    row = batch.rows.filter(pod="vllm-1").sort("at").row(3, named=True)
    assert (row["at"], row["value"], row["pool"], row["engine"], row["cluster"]) == (
        (START + 45) * SECOND,
        3.0,
        "chat",
        "0",
        "default",
    )
    assert row["labels"] == '{"engine":"0","instance":"vllm-1:8000","job":"vllm"}'


def test_ticks_bring_what_one_long_read_brings_and_repeat_only_the_lag(real):
    whole = source(real).read({}, (START + 600) * SECOND).rows
    positions: dict[str, int] = {}
    parts = []
    for tick in range(60, 601, 60):
        reading = Reading(history=60 * SECOND, settle=0, lag=30 * SECOND)
        batch = source(real, reading=reading).read(positions, (START + tick) * SECOND)
        parts += batch.rows.select("series", "at").rows()
        positions |= batch.positions
    assert set(parts) == set(whole.select("series", "at").rows())
    assert whole.select("series", "at").is_unique().all()


def test_of_the_stock_gauge_only_the_newest_series_counts_at_each_instant(real):
    batch = source(real, metrics=[names.LORA_REQUESTS_INFO], known=lambda: [HOSTILE]).read({}, (START + 600) * SECOND)
    found = batch.rows.filter(metric=names.SAMPLE_IN_FLIGHT).sort("at")
    half = (START + 15 * SCRAPES // 2) * SECOND
    seen = {(pod, at >= half, adapter, value) for pod, at, adapter, value in found.select("pod", "at", "adapter", "value").rows()}
    assert seen == {
        ("vllm-0", False, "a", 1.0),
        ("vllm-0", True, "b", 1.0),
        ("vllm-1", False, None, 0.0),
        ("vllm-1", True, HOSTILE, 1.0),
    }
    assert found.height == 2 * SCRAPES
    assert set(batch.rows.filter(metric=names.SAMPLE_MAX_LORA)["value"]) == {2.0}
    assert set(found["provenance"]) == {"activity"}


def test_values_that_are_not_finite_are_left_out_and_said(real):
    batch = source(real, metrics=[names.REQUESTS_RUNNING]).read({}, (START + 600) * SECOND)
    assert batch.rows.sort("at")["value"].to_list() == [1.0, 2.0]
    assert "1 values are NaN" in batch.problems[0]


def test_a_metric_that_is_not_there_is_no_rows_and_an_advance(real):
    batch = source(real, metrics=[names.PREEMPTIONS]).read({}, (START + 600) * SECOND)
    assert (batch.rows.height, batch.problems, len(batch.positions)) == (0, (), 1)


def test_matchers_narrow_what_is_read(real):
    batch = source(real, metrics=[names.GENERATION_TOKENS], matchers='pod="vllm-1"').read({}, (START + 600) * SECOND)
    assert set(batch.rows["pod"]) == {"vllm-1"}


def test_a_catch_up_is_bounded_by_a_span_each_tick(real):
    reading = Reading(history=600 * SECOND, settle=0, lag=0, span=60 * SECOND)
    chosen = source(real, metrics=[names.GENERATION_TOKENS], reading=reading)
    position = chosen.read({}, (START + 600) * SECOND).positions
    assert list(position.values()) == [(START + 60) * SECOND]


def test_labels_of_other_names_are_mapped_and_strangers_counted(real):
    labels = PodLabels(pod=("instance",), pool=("job",), default_cluster="eu")
    metrics = [names.GENERATION_TOKENS, names.REQUESTS_RUNNING]
    batch = source(real, metrics=metrics, pod_labels=labels).read({}, (START + 600) * SECOND)
    assert set(batch.rows.select("cluster", "pool", "pod").rows()) == {
        ("eu", "vllm", "vllm-0:8000"),
        ("eu", "vllm", "vllm-1:8000"),
    }
    assert "1 series have none of the labels instance" in " ".join(batch.problems)


@pytest.mark.parametrize("closed", [True, False], ids=["2.x closed", "3.x left-open"])
def test_both_readings_of_a_range_give_the_same_half_open_window(serve, closed):
    held = [START * 1000 + ms for ms in (-1, 0, 1, 14_999, 15_000, 59_999, 60_000)]

    def answer(request) -> Reply:
        asked = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        end = round(float(asked["time"]) * 1000)
        start = end - int(asked["query"].removeprefix("up[").removesuffix("ms]"))
        values = [[at / 1000, "1"] for at in held if (start <= at if closed else start < at) and at <= end]
        return matrix({"metric": {}, "values": values})

    found = Prometheus(serve(answer).url).raw("up", WINDOW)[0].samples["at"] // 1000 - START * 1000
    assert found.to_list() == [0, 1, 14_999, 15_000, 59_999]


# --- bad days ---


def matrix(*series: dict, **more) -> Reply:
    return Reply(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}, **more}).encode())


def failure(status: int, kind: str, text: str) -> Reply:
    return Reply(json.dumps({"status": "error", "errorType": kind, "error": text}).encode(), status)


WINDOW = Window(START * SECOND, (START + 60) * SECOND)


def ask(url: str, **options):
    return Prometheus(url, backoff_seconds=0, **options).raw("up", WINDOW)


def test_the_query_travels_in_the_body_of_a_post_uncompressed(serve):
    server = serve(matrix())
    ask(server.url)
    request = server.requests[0]
    assert request.query == {}
    assert b"query=up%5B60000ms%5D" in request.body
    assert f"time={START + 59}.999".encode() in request.body
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(serve, status):
    replies = iter([Reply(b"", status), Reply(b"", status), matrix()])
    server = serve(lambda _: next(replies))
    assert ask(server.url)[0].labels == ()
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_unavailable_with_its_own_words(serve):
    server = serve(failure(503, "timeout", "query timed out in expression evaluation"))
    with pytest.raises(SourceUnavailable, match="timed out in expression"):
        ask(server.url)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_repeated(serve, status):
    server = serve(failure(status, "bad_data", "no"))
    with pytest.raises(SourceRejected):
        ask(server.url)
    assert len(server.requests) == 1


def test_warnings_are_kept_as_problems(serve):
    parts = ask(serve(matrix(warnings=["store 3 is down: partial answer"])).url)
    assert "partial answer" in parts[0].problems[0]


def test_a_native_histogram_is_a_problem_and_its_neighbours_are_read(serve):
    native = {"metric": {"pod": "a"}, "histograms": [[START, {"count": "1", "sum": "2", "buckets": [[0, "0", "1", "1"]]}]]}
    plain = {"metric": {"pod": "b"}, "values": [[START, "1"]]}
    part = ask(serve(matrix(native, plain)).url)[0]
    assert part.samples["value"].to_list() == [1.0]
    assert "native histograms" in part.problems[0]


def test_times_keep_their_milliseconds(serve):
    part = ask(serve(matrix({"metric": {}, "values": [[START + 0.001, "1"], [START + 59.999, "2"], [START + 60, "3"]]})).url)[0]
    assert part.samples["at"].to_list() == [START * SECOND + 1000, START * SECOND + 59_999_000]


def test_an_answer_that_is_too_much_is_asked_for_in_halves(serve):
    def answer(request) -> Reply:
        if b"%5B60000ms%5D" in request.body:
            return failure(422, "execution", "query processing would load too many samples into memory in query execution")
        return matrix({"metric": {}, "values": [[START + 10, "1"], [START + 40, "2"]]})

    server = serve(answer)
    parts = ask(server.url)
    assert [part.samples["value"].to_list() for part in parts] == [[1.0], [2.0]]
    assert len(server.requests) == 3


def test_what_is_too_much_in_a_second_is_rejected(serve):
    with pytest.raises(SourceRejected, match="even one second"):
        ask(serve(failure(422, "execution", "too many samples")).url)


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Reply(b"<html>", headers={"Content-Type": "text/html"}), "sign-in"),
        (Reply(b"{}"), "not the answer of a Prometheus"),
        (Reply(b'{"status":"success","data":{"resultType":"scalar","result":[]}}'), "no range"),
        (Reply(b"[" * 100_000), "not the answer"),
    ],
)
def test_what_is_no_prometheus_is_rejected(serve, reply, word):
    with pytest.raises(SourceRejected, match=word):
        ask(serve(reply).url)


def test_nobody_there_is_unavailable_for_the_whole_source(closed_port):
    with pytest.raises(SourceUnavailable):
        PrometheusSamples("p", Prometheus(closed_port, backoff_seconds=0)).read({}, START * SECOND)


def test_an_answer_that_trickles_ends_with_the_deadline(play):
    def trickle(connection, over):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.wait(0.01):
            connection.sendall(b" ")

    with pytest.raises(SourceUnavailable, match="not finished"):
        ask(play(trickle), deadline_seconds=0.2)


def test_one_metric_refused_is_a_problem_and_the_others_are_read(serve):
    def answer(request) -> Reply:
        return failure(422, "execution", "no") if b"preemptions" in request.body else matrix()

    chosen = [names.PREEMPTIONS, names.PROMPT_TOKENS]
    batch = PrometheusSamples("p", Prometheus(serve(answer).url), metrics=chosen).read({}, START * SECOND)
    assert list(batch.positions) == ["prom/p/vllm%3Aprompt_tokens_total"]
    assert names.PREEMPTIONS in batch.problems[0]


def test_a_metric_that_always_takes_too_long_does_not_stop_the_others_and_is_asked_for_less(serve):
    slow = failure(503, "timeout", "query timed out")
    server = serve(lambda request: slow if b"preemptions" in request.body else matrix())
    prometheus = Prometheus(server.url, retries=0)
    reading = Reading(history=3600 * SECOND, lag=0, settle=0)
    chosen = PrometheusSamples("p", prometheus, metrics=[names.PREEMPTIONS, names.PROMPT_TOKENS], reading=reading)
    for _ in range(2):
        assert list(chosen.read({}, START * SECOND).positions) == ["prom/p/vllm%3Aprompt_tokens_total"]
    asked = [request.body.decode() for request in server.requests if b"preemptions" in request.body]
    assert ["3600000ms" in asked[0], "1800000ms" in asked[1]] == [True, True]


def test_a_server_that_never_answers_is_asked_only_a_few_times(serve):
    server = serve(failure(503, "unavailable", "starting"))
    with pytest.raises(SourceUnavailable):
        PrometheusSamples("p", Prometheus(server.url, retries=0)).read({}, START * SECOND)
    assert len(server.requests) == 3


def test_where_residents_are_named_the_stock_gauge_only_tells_slots(serve):
    def answer(request) -> Reply:
        if b"lora_adapter_loaded" in request.body:
            return matrix({"metric": {"pod": "a", "adapter_name": "x", "level": "gpu"}, "values": [[START, "1"]]})
        lists = {"max_lora": "2", "running_lora_adapters": "y", "waiting_lora_adapters": "y"}
        return matrix(*({"metric": {"pod": pod, **lists}, "values": [[START, str(START)]]} for pod in ("a", "b")))

    chosen = [names.LORA_REQUESTS_INFO, names.ADAPTER_LOADED]
    reading = Reading(history=60 * SECOND, settle=0, lag=0)
    batch = PrometheusSamples("p", Prometheus(serve(answer).url), metrics=chosen, reading=reading).read({}, (START + 30) * SECOND)
    found = batch.rows.select("pod", "metric", "adapter").rows()
    assert ("a", names.ADAPTER_LOADED, "x") in found
    assert [row for row in found if row[1] == names.SAMPLE_IN_FLIGHT] == [("b", names.SAMPLE_IN_FLIGHT, "y")]


def test_a_clock_set_back_asks_for_nothing(serve):
    server = serve(matrix())
    chosen = PrometheusSamples("p", Prometheus(server.url), metrics=[names.PREEMPTIONS])
    assert chosen.read({"prom/p/vllm%3Anum_preemptions_total": (START + 999) * SECOND}, START * SECOND).positions == {}
    assert server.requests == []


def test_a_token_is_sent_and_never_shown(serve, monkeypatch):
    monkeypatch.setenv("TOKEN", "tok-3n")
    server = serve(failure(403, "bad_data", "no"))
    prometheus = Prometheus(server.url, Credentials(bearer_env="TOKEN"))
    with pytest.raises(SourceRejected) as caught:
        prometheus.raw("up", WINDOW)
    assert server.requests[0].headers["authorization"] == "Bearer tok-3n"
    assert "tok-3n" not in f"{caught.value!r}{prometheus!r}"
