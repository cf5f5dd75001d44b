"""Advice as text: every target is read back by a schema of our own, and no name escapes from it."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from lora_watch.recommend.advice import Advice, Effect, Kind, Place, Setup, Verdict
from lora_watch.recommend.targets import TARGETS
from lora_watch.recommend.targets.output import UNKNOWN_PATH
from lora_watch.recommend.targets.text import LONGEST_LABEL, kubernetes_name
from lora_watch.sources.router_setup import read as read_router

HOSTILE = (
    "legal'; touch owned; '",
    'a"b\\c',
    "two\nlines",
    "$(touch owned)",
    "`touch owned`",
    "</script><b>",
    "- yaml: [1",
    "法律-v2",
    "x" * 10_000,
    "@/etc/passwd",
    "--flag",
    "\x00nul",
    "true",
    "",
)
LABEL = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=LONGEST_LABEL)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: LABEL
    annotations: dict[str, str] = {}


class LoraSizes(Strict):
    maxAdapters: Annotated[int, Field(ge=1)]  # the resource's own
    maxCpuAdapters: Annotated[int, Field(ge=1)]
    maxRank: Annotated[int, Field(ge=1)] | None = None


class ServiceModel(Strict):
    lora: LoraSizes


class ServiceSpec(Strict):
    model: ServiceModel | None = None
    replicas: int | None = None


class Service(Strict):
    apiVersion: Literal["serving.kserve.io/v1alpha2"]
    kind: Literal["LLMInferenceService"]
    metadata: Metadata
    spec: ServiceSpec


class Selector(Strict):
    matchLabels: dict[str, LABEL]


class ModelAdapterSpec(Strict):
    baseModel: str
    podSelector: Selector
    artifactURL: Annotated[str, Field(min_length=1)]
    replicas: Literal[1] | None = None


class ModelAdapter(Strict):
    apiVersion: Literal["model.aibrix.ai/v1alpha1"]
    kind: Literal["ModelAdapter"]
    metadata: Metadata
    spec: ModelAdapterSpec


class AdapterSource(Strict):
    type: Literal["local", "s3", "http", "huggingface"]
    adapterName: str
    adapterPath: str | None = None
    repository: str | None = None


class Deployment(Strict):
    algorithm: Literal["default", "ordered", "equalized"]
    replicas: Annotated[int, Field(ge=1)]


class LoraAdapterSpec(Strict):
    baseModel: str
    adapterSource: AdapterSource
    loraAdapterDeploymentConfig: Deployment


class LoraAdapter(Strict):
    apiVersion: Literal["production-stack.vllm.ai/v1alpha1"]
    kind: Literal["LoraAdapter"]
    metadata: Metadata
    spec: LoraAdapterSpec


class SglangLoad(Strict):
    lora_name: str
    lora_path: str
    pinned: bool


SETUP = Setup("chat", "vllm", "0.32.0", pods=2, slots=4, cpu_capacity=16, max_rank=16, base_model="llama")


def advice(kind: Kind, *, verdict: Verdict = Verdict.ADVISED, **changes: Any) -> Advice:
    effect = Effect(0.4, 0.3, 0.5, 60, 100)
    return Advice(kind, verdict, "what", "why", effect, None, None, "replay", "", "", can=True, how="", **changes)


def pins(*names: str, pod: str = "pod-0") -> Advice:
    return advice(Kind.PINS, places=tuple(Place(name, pod) for name in names), adapters=names)


def output(target: str, *given: Advice, setup: Setup = SETUP, **paths: str):
    made = TARGETS[target](setup, given, paths)
    return {file.name: file.content for file in made.files}, made.told


def posts(script: str) -> list[tuple[str, dict[str, Any]]]:
    """Where a script posts what: its ``post`` lines as a shell reads them."""
    words = shlex.split(script, comments=True)
    found = []
    for at, word in enumerate(words):
        if word == "post" and words[at + 1].startswith("http"):
            found.append((words[at + 1], json.loads(words[at + 2])))
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_without_advice_nothing_is_written_and_that_is_told(target):
    files, told = output(target)
    assert files == {}
    assert told == ("nothing is advised, so there is nothing to change",)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("verdict", [Verdict.NOT_WORTH, Verdict.HARMFUL, Verdict.UNPROVEN])
def test_only_what_is_advised_is_written(target, verdict):
    files, _ = output(target, advice(Kind.SLOTS, verdict=verdict, amount=1), advice(Kind.ROUTING, verdict=verdict))
    assert files == {}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_advice_is_written_or_told_as_what_cannot_be(target, kind):
    one = advice(kind, amount=1, adapters=("a",), places=(Place("a", "pod-0"),))
    files, told = output(target, one, a="/adapters/a")
    assert files or told


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_advice_gives_the_same_bytes_in_any_order_of_places(target):
    one = advice(Kind.PINS, places=(Place("a", "p"), Place("b", "q")))
    other = advice(Kind.PINS, places=(Place("b", "q"), Place("a", "p")))
    assert output(target, one) == output(target, other)


@pytest.mark.parametrize("target", TARGETS)
def test_pins_that_cannot_be_told_are_said_not_to_be(target):
    _, told = output(target, pins("a"))
    assert target == "sglang" or any("pin" in one for one in told)


@pytest.mark.parametrize("target", TARGETS)
def test_changes_that_were_judged_apart_are_not_to_be_made_at_once(target):
    _, told = output(target, advice(Kind.SLOTS, amount=1), pins("a"))
    assert any("each change was judged by itself" in one for one in told)


def test_vllm_gets_the_slots_and_a_host_cache_that_is_not_smaller():
    files, _ = output("vllm", advice(Kind.SLOTS, amount=2))
    assert shlex.split(files["vllm.args"]) == [
        "--enable-lora",
        "--max-loras",
        "6",
        "--max-cpu-loras",
        "16",
        "--max-lora-rank",
        "16",
    ]


def test_the_host_cache_grows_with_the_slots_where_it_is_not_known():
    files, told = output("vllm", advice(Kind.SLOTS, amount=2), setup=Setup("chat", slots=4))
    assert shlex.split(files["vllm.args"]) == ["--enable-lora", "--max-loras", "6", "--max-cpu-loras", "6"]
    assert any("--max-cpu-loras is not known" in one for one in told)


def test_of_two_numbers_of_slots_the_first_counts():
    files, _ = output("vllm", advice(Kind.SLOTS, amount=1), advice(Kind.SLOTS, amount=4))
    assert "--max-loras 5 " in files["vllm.args"]


@pytest.mark.parametrize("target", ["vllm", "sglang", "kserve"])
def test_unknown_slots_are_added_to_in_words(target):
    files, told = output(target, advice(Kind.SLOTS, amount=1), setup=Setup("chat"))
    assert files == {}
    assert any("how many slots pods have now is not known: add 1" in one for one in told)


@pytest.mark.parametrize("target", ["vllm", "sglang", "kserve"])
def test_slots_that_differ_between_pods_are_added_to_in_words(target):
    files, told = output(target, advice(Kind.SLOTS, amount=2), setup=Setup("chat", pods=2, slots=2, most_slots=4))
    assert not any("6" in text or "4" in text for text in files.values())
    assert "pods have 2 to 4 slots: add 2 to what each was started with" in told


def test_vllm_loads_a_pin_with_one_short_request_to_its_pod():
    files, told = output("vllm", pins("legal"))
    assert posts(files["preload.sh"]) == [
        ("http://pod-0:8000/v1/completions", {"model": "legal", "prompt": "a", "max_tokens": 1})
    ]
    assert any("no pin over HTTP" in one for one in told)


def test_a_preload_by_hours_posts_in_its_hours_only(tmp_path):
    files, _ = output("vllm", advice(Kind.PRELOAD, places=(Place("a", "pod-0", (8, 33)), Place("b", "pod-1"))))
    said = {hour: ran(files["preload.sh"], tmp_path, str(hour)) for hour in (8, 9, 33)}
    assert [[json.loads(one)["model"] for one in said[hour]] for hour in (8, 9, 33)] == [["b", "a"], ["b"], ["b", "a"]]


def test_without_an_hour_the_script_takes_that_of_now(tmp_path):
    every = tuple(range(168))
    files, _ = output("vllm", advice(Kind.PRELOAD, places=(Place("a", "pod-0", every),)))
    assert len(ran(files["preload.sh"], tmp_path)) == 1


def test_vllm_unloads_retired_adapters_on_the_pods_that_are_named(tmp_path):
    files, told = output("vllm", advice(Kind.RETIRE, adapters=("b", "a")))
    assert [json.loads(one) for one in ran(files["retire.sh"], tmp_path, "h:1", "h:2")] == [
        {"lora_name": "a"},
        {"lora_name": "b"},
    ] * 2
    assert any("weights stay in memory" in one for one in told)


def test_sglang_is_told_pins_on_their_pod_now_and_for_the_next_start():
    files, _ = output("sglang", pins("legal"), legal="/adapters/legal")
    load = {"lora_name": "legal", "lora_path": "/adapters/legal", "pinned": True}
    assert posts(files["pins.sh"]) == [
        ("http://pod-0:30000/unload_lora_adapter", {"lora_name": "legal"}),
        ("http://pod-0:30000/load_lora_adapter", load),
    ]
    pod, flag, told = shlex.split(files["pins.args"])
    assert (json.loads(pod), flag, json.loads(told)) == ("pod-0", "--lora-paths", load)
    SglangLoad.model_validate_json(told)


def test_sglang_is_told_what_is_no_longer_pinned():
    files, _ = output("sglang", advice(Kind.UNPIN, places=(Place("old", "pod-1"),)), old="/x")
    assert posts(files["pins.sh"])[-1][1] == {"lora_name": "old", "lora_path": "/x", "pinned": False}


def test_what_is_to_be_pinned_is_not_unpinned_again():
    held = advice(Kind.UNPIN, places=(Place("legal", "pod-0"), Place("old", "pod-0")))
    files, _ = output("sglang", pins("legal"), held, legal="/l", old="/o")
    assert {one["lora_name"]: one["pinned"] for _, one in posts(files["pins.sh"]) if "pinned" in one} == {
        "legal": True,
        "old": False,
    }


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_pins_by_the_hour_become_loads_that_promise_nothing(target):
    files, told = output(target, advice(Kind.PRELOAD, places=(Place("legal", "pod-0", (9,)),)))
    assert "preload.sh" in files
    assert any("do not count on what pins by the hour" in one for one in told)


@pytest.mark.parametrize("target", ["sglang", "aibrix", "production_stack"])
def test_a_path_that_nobody_told_has_a_mark_in_its_place(target):
    files, told = output(target, pins("legal"))
    assert any(UNKNOWN_PATH in content for content in files.values())
    assert any(UNKNOWN_PATH in one for one in told)


def test_no_pod_gets_all_its_slots_pinned():
    files, told = output("sglang", pins(*"abcdef"))
    assert sum(one["pinned"] for _, one in posts(files["pins.sh"]) if "pinned" in one) == 3
    assert any("3 pins are left out" in one for one in told)


def test_lorax_names_each_adapter_once_for_all_replicas():
    places = (Place("b", "p"), Place("b", "q"), Place("a", "p"))
    files, told = output("lorax", advice(Kind.PINS, places=places), a="org/a")
    assert shlex.split(files["lorax.args"]) == ["--preloaded-adapter-ids=org/a", "--preloaded-adapter-ids=b"]
    assert any("every replica" in one for one in told)


def test_kserve_gets_sizes_and_replicas():
    files, _ = output("kserve", advice(Kind.SLOTS, amount=1), advice(Kind.PODS, amount=1))
    told = Service.model_validate(yaml.safe_load(files["llminferenceservice.yaml"]))
    assert told.spec.model is not None
    assert (told.spec.model.lora.maxAdapters, told.spec.model.lora.maxCpuAdapters, told.spec.replicas) == (5, 16, 3)


def test_aibrix_gets_one_replica_or_all():
    places = (Place("one", "pod-0"), Place("all", "pod-0"), Place("all", "pod-1"))
    files, _ = output("aibrix", advice(Kind.PINS, places=places))
    told = {one["metadata"]["name"]: one["spec"].get("replicas") for one in yaml.safe_load_all(files["modeladapters.yaml"])}
    assert told == {"one": 1, "all": None}


def test_aibrix_cannot_be_told_two_pods_of_three_and_says_so():
    places = (Place("a", "pod-0"), Place("a", "pod-1"))
    _, told = output("aibrix", advice(Kind.PINS, places=places), setup=Setup("chat", pods=3))
    assert any("on several pods, but not on all: 1;" in one for one in told)


def test_production_stack_gets_as_many_replicas_as_pods():
    files, _ = output("production_stack", advice(Kind.PINS, places=(Place("a", "p"), Place("a", "q"))), a="s3://b/a")
    (told,) = (LoraAdapter.model_validate(one) for one in yaml.safe_load_all(files["loraadapters.yaml"]))
    assert (told.spec.loraAdapterDeploymentConfig.replicas, told.spec.adapterSource.type) == (2, "s3")


@pytest.mark.parametrize(("path", "kind"), [("hf://o/a", "huggingface"), ("https://h/a", "http"), ("/adapters/a", "local")])
def test_production_stack_is_told_where_an_adapter_comes_from(path, kind):
    files, _ = output("production_stack", pins("a"), a=path)
    assert yaml.safe_load(files["loraadapters.yaml"])["spec"]["adapterSource"]["type"] == kind


def test_llm_d_gets_the_scorer_that_looks_at_adapters(tmp_path):
    files, told = output("llm_d", advice(Kind.ROUTING))
    (tmp_path / "config.yaml").write_text(files["endpointpicker.yaml"])
    assert read_router(tmp_path / "config.yaml").profiles["default"]["lora-affinity-scorer"] == 4
    assert any("in no release" in one for one in told)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_come_back_as_they_were_and_nothing_else(target, name, tmp_path):
    places = (Place(name, "pod-0"), Place(name, "pod-1", (3,)))
    given = (advice(Kind.PINS, places=places[:1]), advice(Kind.PRELOAD, places=places), advice(Kind.RETIRE, adapters=(name,)))
    files, _ = output(target, *given, setup=Setup(name, pods=2, slots=4, base_model=name))
    for file, content in files.items():
        if file.endswith(".sh"):
            for one in ran(content, tmp_path, "3"):
                tree = json.loads(one)
                assert name in (tree.get("model"), tree.get("lora_name"), tree.get("lora_path"))
        elif file == "lorax.args":
            assert shlex.split(content) == [f"--preloaded-adapter-ids={name}"]
        elif file.endswith(".yaml"):
            for tree in yaml.safe_load_all(content):
                RESOURCE.validate_python(tree)
    assert not list(tmp_path.glob("**/owned"))


@pytest.mark.parametrize("pod", ["$(touch owned)", "a b", "x/../y", "'", "\n", "10.0.0.7:8000", "pod;ls"])
def test_a_hostile_pod_is_one_word_of_an_address(pod):
    files, _ = output("vllm", pins("a", pod=pod))
    ((url, _),) = posts(files["preload.sh"])
    assert url.startswith("http://")
    assert url.count("/") == 4
    assert not set(url) & set(" $`'\"\n;()")


@given(names=st.lists(st.text(max_size=100), unique=True, max_size=20))
def test_kubernetes_names_are_valid_and_never_shared(names):
    made = [TypeAdapter(LABEL).validate_python(kubernetes_name(name)) for name in names]
    assert len(set(made)) == len(made)


def test_a_name_that_looks_like_one_of_ours_is_not_taken_for_it():
    made = kubernetes_name("Legal")
    assert kubernetes_name(made) != made


RESOURCE: TypeAdapter[Any] = TypeAdapter(Service | ModelAdapter | LoraAdapter)


def ran(script: str, folder: Path, *arguments: str) -> list[str]:
    """Run a script with a ``curl`` that only writes down what it would post; what it was told to post, in order."""
    (folder / "bin").mkdir(exist_ok=True)
    log = folder / "posted"
    log.unlink(missing_ok=True)
    curl = folder / "bin" / "curl"
    curl.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --data-raw ] && printf "%s\\n" "$2" >> "$LOG"; shift; done\n')
    curl.chmod(0o755)
    file = folder / "script.sh"
    file.write_text(script)
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "LOG": str(log)}
    done = subprocess.run(["sh", str(file), *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    return log.read_text().splitlines() if log.exists() else []
