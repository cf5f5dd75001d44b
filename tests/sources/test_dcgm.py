"""GPUs and the pods they work for."""

import json

import pytest
from builders import rows
from sources.conftest import Reply

from lora_watch import names
from lora_watch.explore.queries import Past, overview
from lora_watch.model import DAY, SECOND, PodId, Window
from lora_watch.schema import ADAPTER_EVENTS, SAMPLES, Batch
from lora_watch.sources.dcgm import Dcgm
from lora_watch.sources.placed import Place, PlacedPages, PlacedSamples
from lora_watch.sources.prometheus import Prometheus, Reading
from lora_watch.sources.targets import Target, Targets
from lora_watch.store.tables import Store

NOW = 1_796_026_840 * SECOND
EXPORTER = PodId("c", "dcgm-exporter-x7")


def read(serve, page: bytes, system: Dcgm | None = None):
    targets = Targets([Target("c", "dcgm-exporter-x7", metrics_url=serve(Reply(page)).url)])
    return PlacedPages("gpus", targets, system or Dcgm()).read({}, NOW)


def test_each_gpu_is_the_pod_that_holds_it(serve, data):
    rows = read(serve, data("dcgm-mixed.prom")).rows
    assert rows.filter(metric=names.GPU_UTIL).select("pod", "value").rows() == [("vllm-0", 94.0)]
    assert rows.filter(metric=names.GPU_DRAM_ACTIVE)["value"].to_list() == [0.31]
    assert set(rows.filter(pod="vllm-0")["provenance"]) == {"observed"}


def test_a_gpu_without_a_pod_is_said_by_name_and_once(serve, data):
    (problem,) = read(serve, data("dcgm-mixed.prom")).problems
    assert problem.startswith("gpu 'dcgm-exporter-x7': GPU '1' of host 'node-1' belongs to no pod: no container holds it")


def test_a_configured_pod_takes_a_gpu_without_one(serve, data):
    batch = read(serve, data("dcgm-mixed.prom"), Dcgm({("node-1", "1", ""): PodId("c", "vllm-9", "chat")}))
    assert batch.problems == ()
    assert set(batch.rows.filter(pod="vllm-9")["pool"]) == {"chat"}


def test_a_configured_pod_beats_the_labels():
    system = Dcgm({("node-1", "0", ""): PodId("c", "mine")})
    place = system.place(names.GPU_UTIL, {"Hostname": "node-1", "gpu": "0", "pod": "theirs"}, EXPORTER)
    assert isinstance(place, Place)
    assert place.pod.pod == "mine"


def test_a_gpu_that_two_exporters_tell_of_counts_once_and_is_said(serve):
    url = serve(Reply(f'{names.GPU_UTIL}{{gpu="0",UUID="GPU-a",Hostname="n",pod="v"}} 94\n'.encode())).url
    batch = PlacedPages("gpus", Targets([Target("c", name, metrics_url=url) for name in ("x", "y")]), Dcgm()).read({}, NOW)
    assert batch.rows.filter(metric=names.GPU_UTIL).height == 1
    assert batch.problems == ("gpu 'y': another exporter told 1 of its series already",)


def test_a_gpu_that_two_labels_nobody_keeps_tell_apart_counts_once_and_is_said(serve):
    line = f'{names.GPU_UTIL}{{gpu="0",pod="v",color="%s"}} 94\n'
    batch = read(serve, (line % "red" + line % "blue").encode())
    assert batch.rows.filter(metric=names.GPU_UTIL).height == 1
    assert "two series of 'v' are one" in batch.problems[0]


def test_a_gpu_without_a_pod_and_a_value_that_is_none_are_said_of_a_prometheus_too(serve):
    def answer(request):
        labels = {"__name__": names.GPU_UTIL, "gpu": "0", "Hostname": "n", "pod": "dcgm-exporter-1"}
        values = [[NOW / SECOND - 30, "94"], [NOW / SECOND - 15, "NaN"]]
        result = [{"metric": labels, "values": values[:1]}, {"metric": {**labels, "exported_pod": "v"}, "values": values}]
        here = result if names.GPU_UTIL.encode() in request.body else []
        return Reply(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": here}}).encode())

    door = Prometheus(serve(answer).url, retries=0)
    batch = PlacedSamples("p-gpu", door, Dcgm(), reading=Reading(history=60 * SECOND, settle=0)).read({}, NOW)
    assert batch.rows["pod"].to_list() == ["v"]
    assert [problem[:30] for problem in batch.problems] == ["GPU '0' of host 'n' belongs to", f"{names.GPU_UTIL}: 1 values"[:30]]


def test_mig_instances_are_gpus_of_their_own(serve, data):
    rows = read(serve, data("dcgm-mixed.prom")).rows.filter(metric=names.GPU_ENGINE_ACTIVE).sort("pod")
    assert rows.select("pod", "value").rows() == [("vllm-0", 0.91), ("vllm-1", 0.5), ("vllm-2", 0.25)]
    assert json.loads(rows["labels"][1])["GPU_I_ID"] == "1"


def test_a_configured_instance_beats_its_whole_gpu():
    system = Dcgm({("n", "2", ""): PodId("c", "whole"), ("n", "2", "1"): PodId("c", "part")})
    pods = [system.place("m", {"hostname": "n", "gpu": "2", "GPU_I_ID": one}, EXPORTER).pod.pod for one in ("1", "2")]
    assert pods == ["part", "whole"]


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({"exported_pod": "vllm-0", "pod": "dcgm-exporter-x7"}, "vllm-0"),
        ({"pod": "vllm-0"}, "vllm-0"),
        ({"pod": "dcgm-exporter-x7"}, None),
        ({"exported_pod": "", "pod": "nvidia-dcgm-exporter-q"}, None),
        ({}, None),
    ],
)
def test_the_exporters_own_pod_holds_no_gpu(labels, pod):
    place = Dcgm().place(names.GPU_UTIL, {"gpu": "0", "Hostname": "n", **labels}, EXPORTER)
    assert (place.pod.pod if isinstance(place, Place) else None) == pod


def test_prometheus_and_page_tell_the_same_series(serve, data):
    labels = {"gpu": "0", "UUID": "GPU-aa", "device": "nvidia0", "modelName": "NVIDIA H100", "Hostname": "node-1"}
    scraped = {"__name__": names.GPU_UTIL, **labels, "exported_pod": "vllm-0", "pod": "dcgm-exporter-x7", "cluster": "c"}
    result = [{"metric": {**scraped, "instance": "10.0.0.7:9400"}, "values": [[NOW / SECOND - 30, "94"]]}]
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def answer(request):
        here = names.GPU_UTIL.encode() in request.body
        return Reply(json.dumps(body if here else {**body, "data": {"resultType": "matrix", "result": []}}).encode())

    door = Prometheus(serve(answer).url, retries=0)
    asked = PlacedSamples("p-gpu", door, Dcgm(), reading=Reading(history=60 * SECOND, settle=0)).read({}, NOW)
    page = read(serve, data("dcgm-mixed.prom")).rows.filter(metric=names.GPU_UTIL)
    assert asked.rows["series"].to_list() == page["series"].to_list()
    assert asked.problems == ()


def test_what_the_gpus_say_stands_beside_the_inference_share(serve, data, tmp_path):
    store = Store(tmp_path)
    boot = rows(ADAPTER_EVENTS, [{"at": NOW - 120 * SECOND, "kind": "start", "slots": 4}], pod="vllm-0", cluster="c")
    store.ledger(ADAPTER_EVENTS).append(Batch(boot, {boot["stream"][0]: 1}), at=NOW)
    targets = Targets([Target("c", "dcgm-exporter-x7", metrics_url=serve(Reply(data("dcgm-mixed.prom"))).url)])
    source, ledger = PlacedPages("gpus", targets, Dcgm()), store.ledger(SAMPLES)
    for seconds in (60, 30, 0):
        ledger.append(source.read(ledger.refresh(), NOW - seconds * SECOND), at=NOW)
    window = Window(NOW - 60 * SECOND - 1, NOW)
    pod = overview(store, window, Past(store, DAY)).pods.filter(pod="vllm-0").row(0, named=True)
    assert (pod["grade"], round(pod["share_low"], 3), pod["share_high"], round(pod["busy_ratio"], 3)) == ("B", 0.91, 1.0, 0.94)
    assert pod["pool"] == "p"


def test_exporters_that_do_not_answer_are_asked_in_turn(closed_port):
    targets = Targets([Target("c", f"dead-{number}", metrics_url=closed_port) for number in range(5)])
    source = PlacedPages("gpus", targets, Dcgm(), threads=2)
    first, *later = [source.read({}, NOW) for _ in range(3)]
    assert len(first.positions) == 5
    assert [len(batch.positions) for batch in later] == [2, 2]
    assert all("3 more pods that did not answer wait for their turn" in batch.problems for batch in later)
