"""The router's page and its twins in Prometheus: no count twice, every attempt at its pod."""

import json
import re
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources.conftest import Reply

from lora_watch import names
from lora_watch.config import parse
from lora_watch.model import SECOND
from lora_watch.sources.configured import sources_of
from lora_watch.sources.epp import FAMILIES, Epp, endpoint
from lora_watch.sources.placed import PlacedPages, PlacedSamples
from lora_watch.sources.prometheus import PodLabels, Prometheus, Reading
from lora_watch.sources.targets import Target, Targets

NOW = 1_796_026_840 * SECOND
ATTEMPTS, REQUESTS = names.EPP_ATTEMPTS[0], names.EPP_REQUESTS[0]


def routers(*urls: str, **more: str) -> Targets:
    return Targets([Target("c", f"epp-{number}", metrics_url=url, **more) for number, url in enumerate(urls)])


def pages(targets: Targets, base_models: tuple[str, ...] = ()) -> PlacedPages:
    return PlacedPages("routers", targets, Epp(base_models))


@pytest.fixture
def both(serve, data):
    return pages(routers(serve(Reply(data("epp-both-names.prom"))).url), ("llama",)).read({}, NOW)


def test_of_two_names_of_one_count_the_newer_counts_and_they_are_not_added(both):
    found = both.rows.filter(metric=REQUESTS, adapter="legal-v2")
    assert found["value"].to_list() == [41.0]
    assert not [name for name in both.rows["metric"].unique() if name.startswith("inference_")]


def test_the_older_name_is_stored_under_the_newer_one_where_it_is_alone(serve, data):
    rows = pages(routers(serve(Reply(data("epp-old-names.prom"))).url)).read({}, NOW).rows
    assert rows.filter(metric=REQUESTS)["value"].to_list() == [41.0]
    assert rows.filter(metric=ATTEMPTS).select("pod", "adapter", "value").rows() == [("vllm-0", "legal-v2", 30.0)]
    assert rows.filter(metric=names.EPP_POD_QUEUE[0])["pod"].to_list() == ["vllm-0"]
    assert rows.filter(metric=names.EPP_READY[0])["value"].to_list() == [2.0]


def test_attempts_join_adapter_and_pod(both):
    found = both.rows.filter(metric=ATTEMPTS, adapter="legal-v2").sort("pod")
    assert found.select("pod", "value").rows() == [("epp-0", 2.0), ("vllm-0", 30.0), ("vllm-1", 11.0)]


def test_an_attempt_that_found_no_pod_is_the_routers_own_and_says_failure(both):
    labels = json.loads(both.rows.filter(metric=ATTEMPTS, pod="epp-0")["labels"].item())
    assert labels["status"] == "failure"


def test_a_rank_is_an_engine_of_the_pod(both):
    found = both.rows.filter(metric=names.EPP_POD_QUEUE[0]).sort("engine")
    assert found.select("pod", "engine", "value").rows() == [("vllm-0", "0", 5.0), ("vllm-0", "1", 6.0)]


def test_a_base_model_is_no_adapter(both):
    found = both.rows.filter(metric=REQUESTS, value=7.0)
    assert found["adapter"].to_list() == [None]
    assert json.loads(found["labels"].item())["target_model_name"] == "llama"


def test_other_is_a_fold_in_requests_and_a_name_in_attempts(both):
    assert both.rows.filter(metric=REQUESTS, value=3.0)["adapter"].to_list() == [None]
    assert both.rows.filter(metric=ATTEMPTS, value=3.0)["adapter"].to_list() == ["other"]


def test_what_the_client_asked_for_is_never_taken_for_the_adapter(serve, data):
    rows = pages(routers(serve(Reply(data("epp-old-names.prom"))).url)).read({}, NOW).rows
    assert rows.filter(metric=names.EPP_RUNNING[0]).select("adapter", "provenance").rows() == [(None, "activity")]


def test_counts_are_observed_and_running_requests_are_activity(both):
    assert set(both.rows.filter(metric=ATTEMPTS)["provenance"]) == {"observed"}
    assert set(both.rows.filter(metric=names.EPP_RUNNING[0])["provenance"]) == {"activity"}


def test_pool_averages_are_the_routers_rows_of_the_pool_it_names(both):
    row = both.rows.filter(metric=names.EPP_POOL_QUEUE[0]).row(0, named=True)
    assert (row["pod"], row["pool"], row["value"]) == ("epp-0", "chat", 5.5)


def test_an_average_of_nothing_is_unknown_and_said(both):
    assert both.rows.filter(metric=names.EPP_POOL_KV_CACHE[0]).is_empty()
    assert both.problems == ("router 'epp-0': 1 values are NaN or infinite and were left out",)


def test_two_routers_count_apart(serve, data):
    page = data("epp-both-names.prom")
    batch = pages(routers(serve(Reply(page)).url, serve(Reply(page)).url)).read({}, NOW)
    found = batch.rows.filter(metric=ATTEMPTS, pod="vllm-0")
    assert found["series"].n_unique() == 2
    assert found["value"].sum() == 60.0


def test_a_router_that_is_gone_stops_no_other_and_says_so(serve, closed_port, data):
    batch = pages(routers(closed_port, serve(Reply(data("epp-old-names.prom"))).url)).read({}, NOW)
    up = batch.rows.filter(metric=names.SAMPLE_SCRAPE_UP)
    assert dict(up.select("pod", "value").rows()) == {"epp-0": 0.0, "epp-1": 1.0}
    assert set(batch.positions) == {"scrape-router/c/epp-0", "scrape-router/c/epp-1"}
    assert len(batch.problems) == 1


def test_a_page_of_another_system_is_said(serve, data):
    batch = pages(routers(serve(Reply(data("vllm-0.32.0-after.prom"))).url)).read({}, NOW)
    assert "no metric of a router is on the page" in batch.problems[0]


def test_a_hostile_adapter_passes_whole(serve):
    name = 'a"b,</script>{}🦙\\'
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    line = f'{ATTEMPTS}{{endpoint_name="v",status="success",target_model_name="{escaped}"}} 1\n'
    assert pages(routers(serve(Reply(line.encode())).url)).read({}, NOW).rows.filter(metric=ATTEMPTS)["adapter"].item() == name


@given(pod=st.text(min_size=1), engine=st.integers(0, 10**6))
def test_an_endpoint_comes_apart_as_it_was_put_together(pod, engine):
    assert endpoint(f"{pod}-rank-{engine}") == (pod, str(engine))


def test_no_name_belongs_to_two_families():
    every = [name for family in FAMILIES.values() for name in family]
    assert len(every) == len(set(every))


def prometheus(serve, series) -> PlacedSamples:
    """A Prometheus that answers with those of ``series`` whose name the query asks for."""

    def answer(request) -> Reply:
        asked = parse_qs(request.body.decode())["query"][0]
        wanted = re.search(r'__name__=~"([^"]+)"', asked)[1]
        found = [one for one in series if re.fullmatch(wanted, one["metric"]["__name__"])]
        return Reply(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode())

    labels = PodLabels(default_cluster="c")
    reading = Reading(history=600 * SECOND, settle=0)
    return PlacedSamples("p-router", Prometheus(serve(answer).url, retries=0), Epp(), pod_labels=labels, reading=reading)


def attempts(name: str, endpoint_label: str, router: str, *values: tuple[float, float]) -> dict:
    labels = {"__name__": name, endpoint_label: "vllm-0", "pod": router, "instance": f"{router}:9090", "target_model_name": "a"}
    return {"metric": labels, "values": [[NOW / SECOND + at, str(value)] for at, value in values]}


def test_a_server_that_sends_what_was_not_asked_for_is_told_and_the_rest_is_read(serve):
    strange = {"metric": {"pod": "x", "__name__": "go\nroutines"}, "values": [[NOW / SECOND - 30, "1"]]}
    nameless = {"metric": {"pod": "x"}, "values": [[NOW / SECOND - 30, "1"]]}
    wanted = attempts(names.EPP_ATTEMPTS[0], "endpoint_name", "epp-0", (-30, 5.0))
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [strange, wanted, nameless]}}).encode()
    labels, reading = PodLabels(default_cluster="c"), Reading(history=600 * SECOND, settle=0)
    source = PlacedSamples("p-router", Prometheus(serve(Reply(body)).url, retries=0), Epp(), pod_labels=labels, reading=reading)
    batch = source.read({}, NOW)
    assert batch.rows["value"].to_list() == [5.0]
    assert any(r"another name: 'go\nroutines'" in problem for problem in batch.problems)


def test_in_prometheus_the_newer_name_counts_from_the_instant_it_is_there(serve):
    old = attempts(names.EPP_ATTEMPTS[-1], "pod_name", "epp-0", (-60, 1), (-45, 2), (-30, 3))
    new = attempts(names.EPP_ATTEMPTS[0], "endpoint_name", "epp-0", (-45, 2), (-30, 3))
    rows = prometheus(serve, [old, new]).read({}, NOW).rows.sort("at")
    assert rows["value"].to_list() == [1.0, 2.0, 3.0]
    assert rows["series"].n_unique() == 1


def test_in_prometheus_an_old_router_counts_beside_a_new_one(serve):
    old = attempts(names.EPP_ATTEMPTS[-1], "pod_name", "epp-0", (-30, 3))
    new = attempts(names.EPP_ATTEMPTS[0], "endpoint_name", "epp-1", (-30, 4))
    rows = prometheus(serve, [old, new]).read({}, NOW).rows
    assert sorted(rows["value"]) == [3.0, 4.0]
    assert set(rows["pod"]) == {"vllm-0"}


def test_a_page_and_a_prometheus_tell_the_same_series(serve, data):
    line = f'{ATTEMPTS}{{endpoint_name="vllm-0",target_model_name="a"}} 3\n'
    page = pages(routers(serve(Reply(line.encode())).url)).read({}, NOW).rows.filter(metric=ATTEMPTS)
    asked = prometheus(serve, [attempts(ATTEMPTS, "endpoint_name", "epp-0", (-30, 3))]).read({}, NOW).rows
    assert page["series"].to_list() == asked["series"].to_list()


def test_the_namespace_of_the_scrape_is_not_taken_for_the_endpoints(serve):
    line = f'{ATTEMPTS}{{endpoint_name="vllm-0",namespace="llm",target_model_name="a"}} 3\n'
    page = pages(routers(serve(Reply(line.encode())).url)).read({}, NOW).rows.filter(metric=ATTEMPTS)
    scraped = attempts(ATTEMPTS, "endpoint_name", "epp-0", (-30, 3))
    scraped["metric"] |= {"namespace": "gateway", "exported_namespace": "llm"}
    requests = {"metric": {"__name__": REQUESTS, "pod": "epp-0", "namespace": "gateway"}, "values": scraped["values"]}
    rows = prometheus(serve, [scraped, requests]).read({}, NOW).rows
    assert rows.filter(metric=ATTEMPTS)["series"].to_list() == page["series"].to_list()
    assert json.loads(rows.filter(metric=REQUESTS)["labels"].item()) == {"router": "epp-0"}


def test_the_configuration_brings_routers_gpus_request_logs_and_what_a_prometheus_knows_of_them(serve, data, tmp_path):
    router, gpu = serve(Reply(data("epp-both-names.prom"))), serve(Reply(data("dcgm-mixed.prom")))
    (tmp_path / "requests.log").write_bytes(data("requests-openai.jsonl"))
    settings = parse(
        f"""
        base_models: [llama]
        routers: [{{metrics: "{router.url}", pool: chat}}]
        gpus: {{exporters: [{{metrics: "{gpu.url}"}}], pods: [{{host: node-1, gpu: 1, pod: vllm-9}}]}}
        request_logs: [{{files: ["*.log"], format: openai, pod: gateway}}]
        prometheus: [{{name: p, url: "http://127.0.0.1:1", systems: [router, gpu]}}]
        """,
        folder=tmp_path,
    )
    sources = {source.name: source for source in sources_of(settings, lambda: NOW)}
    assert set(sources) == {"routers", "gpus", "request-logs", "p-router", "p-gpu"}
    attempted = sources["routers"].read({}, NOW).rows.filter(metric=ATTEMPTS, pod="vllm-0")
    assert attempted.select("cluster", "pool", "adapter").rows() == [("default", "chat", "legal-v2")]
    assert "vllm-9" in sources["gpus"].read({}, NOW).rows["pod"].to_list()
    assert sources["request-logs"].read({}, NOW).rows["adapter"].to_list() == ["legal-v2", None]
