"""KServe: sizes in an ``LLMInferenceService``."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import File, Output
from lora_watch.recommend.targets.text import as_yaml, kubernetes_name
from lora_watch.recommend.targets.wanted import sentences, wanted

_CANNOT = {
    Kind.PINS: "KServe passes no pins on, and vLLM below it takes none over HTTP",
    Kind.PRELOAD: "KServe registers adapters and loads none ahead: send requests to the pods, as the target vllm does",
    Kind.UNPIN: "a pin set in an engine goes with its process: restart it",
    Kind.RETIRE: "adapters to retire: take them out of spec.model.lora.adapters; the pods roll then",
}


def kserve(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``llminferenceservice.yaml``, a merge patch with the sizes of slots, host cache and rank, and the replicas where pods are to
    be added. Adapters themselves are not in it: a list in a patch replaces the whole list.
    """
    del paths
    want = wanted(setup, advice)
    spec: dict[str, object] = {}
    if want.slots is not None and want.cpu is not None:
        sizes = {"maxAdapters": want.slots, "maxCpuAdapters": want.cpu}
        spec["model"] = {"lora": sizes if setup.max_rank is None else {**sizes, "maxRank": setup.max_rank}}
    cannot = dict(_CANNOT)
    if want.more_pods and setup.pods is not None:
        spec["replicas"] = setup.pods + want.more_pods
        cannot[Kind.PODS] = "replicas are told; an autoscaler that owns them sets its own"
    told = sentences(want, cannot, engine="vLLM")
    if not spec:
        return Output((), tuple(told))
    tree = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": kubernetes_name(setup.pool)},
        "spec": spec,
    }
    told.append(
        "metadata.name is the pool's name: set the service's; apply it as a patch (kubectl patch --type merge --patch-file)"
    )
    told.append("every change of these rolls the pods")
    return Output((File("llminferenceservice.yaml", as_yaml(tree)),), tuple(told))
