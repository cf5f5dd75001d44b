"""vLLM's production-stack: a ``LoraAdapter`` for each adapter that belongs somewhere."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import UNKNOWN_PATH, File, Output
from lora_watch.recommend.targets.text import as_yaml, kubernetes_name
from lora_watch.recommend.targets.wanted import sentences, wanted

_CANNOT = {
    Kind.PINS: "production-stack registers adapters on pods and pins none; vLLM below it takes no pin over HTTP",
    Kind.PRELOAD: "production-stack loads when the resource is made, not by the hour",
    Kind.SLOTS: "slots are the engine's: see vllm.args of the target vllm, and put it into vllmConfig.extraArgs",
    Kind.UNPIN: "there is no pin to take away in production-stack",
    Kind.RETIRE: "adapters to retire: delete their LoraAdapter; the engine keeps the weights until others push them out",
}


def production_stack(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """``loraadapters.yaml``: each adapter with as many replicas as pods it belongs on; its name is kept as it is."""
    want = wanted(setup, advice)
    placed = want.loads_on()
    documents = [
        {
            "apiVersion": "production-stack.vllm.ai/v1alpha1",
            "kind": "LoraAdapter",
            "metadata": {"name": kubernetes_name(adapter)},
            "spec": {
                "baseModel": setup.base_model or "REPLACE_WITH_BASE_MODEL",
                "adapterSource": _source(adapter, paths.get(adapter, UNKNOWN_PATH)),
                "loraAdapterDeploymentConfig": {"algorithm": "default", "replicas": len(pods)},
            },
        }
        for adapter, pods in placed.items()
    ]
    told = sentences(want, _CANNOT, engine="vLLM")
    if documents:
        told.append("the operator chooses the pods: how many is told, which ones cannot be")
    if any(adapter not in paths for adapter in placed):
        told.append(f"{UNKNOWN_PATH} stands for paths of adapters that are not known here")
    return Output((File("loraadapters.yaml", as_yaml(*documents)),) if documents else (), tuple(told))


def _source(adapter: str, path: str) -> dict[str, str]:
    """Where an adapter comes from, by the beginning of its path."""
    for start, kind in (("s3://", "s3"), ("http://", "http"), ("https://", "http")):
        if path.startswith(start):
            return {"type": kind, "adapterName": adapter, "repository": path}
    if path.startswith("hf://"):
        return {"type": "huggingface", "adapterName": adapter, "repository": path.removeprefix("hf://")}
    return {"type": "local", "adapterName": adapter, "adapterPath": path}
