"""AIBrix: a ``ModelAdapter`` for each adapter that belongs somewhere."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import UNKNOWN_PATH, File, Output
from lora_watch.recommend.targets.text import as_yaml, kubernetes_name
from lora_watch.recommend.targets.wanted import sentences, wanted

_CANNOT = {
    Kind.PINS: "AIBrix places adapters and pins none: an adapter leaves its slot on the pod where it was placed as before",
    Kind.PRELOAD: "AIBrix registers an adapter on its pods at once, not by the hour",
    Kind.SLOTS: "AIBrix leaves slots to the engine: see vllm.args of the target vllm",
    Kind.UNPIN: "there is no pin to take away in AIBrix",
    Kind.RETIRE: "adapters to retire: delete their ModelAdapter",
}


def aibrix(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``modeladapters.yaml``: ``replicas: 1`` for an adapter that belongs on one pod; without ``replicas``, which means all pods,
    for one that belongs on every pod of the pool. Others can't be told and stand as one replica.
    """
    want = wanted(setup, advice)
    placed = want.loads_on()
    base = kubernetes_name(setup.base_model or "REPLACE_WITH_BASE_MODEL")
    documents, renamed, several = [], 0, 0
    for adapter, pods in placed.items():
        every = setup.pods is not None and len(pods) >= setup.pods > 1
        name = kubernetes_name(adapter)
        renamed += name != adapter
        several += len(pods) > 1 and not every
        spec: dict[str, object] = {
            "baseModel": setup.base_model or "REPLACE_WITH_BASE_MODEL",
            "podSelector": {"matchLabels": {"model.aibrix.ai/name": base}},
            "artifactURL": paths.get(adapter, UNKNOWN_PATH),
        }
        documents.append(
            {
                "apiVersion": "model.aibrix.ai/v1alpha1",
                "kind": "ModelAdapter",
                "metadata": {"name": name, "annotations": {"lora-watch/adapter": adapter}},
                "spec": spec if every else {**spec, "replicas": 1},
            }
        )
    told = sentences(want, _CANNOT, engine="the engine")
    if documents:
        told.append("AIBrix chooses the pod itself: which one an adapter belongs to cannot be told, only one or all")
    if several:
        told.append(f"adapters that belong on several pods, but not on all: {several}; AIBrix knows one replica or all of them")
    if renamed:
        told.append(f"AIBrix serves an adapter under its resource's name: {renamed} names are not valid there and were changed")
    if any(adapter not in paths for adapter in placed):
        told.append(f"{UNKNOWN_PATH} stands for addresses of adapters that are not known here")
    return Output((File("modeladapters.yaml", as_yaml(*documents)),) if documents else (), tuple(told))
