"""llm-d: scorers of the Endpoint Picker."""

from collections.abc import Mapping, Sequence

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.targets.output import File, Output
from lora_watch.recommend.targets.text import as_yaml
from lora_watch.recommend.targets.wanted import sentences, wanted

WEIGHTS: Mapping[str, int] = {
    "lora-affinity-scorer": 4,
    "queue-scorer": 2,
    "kv-cache-utilization-scorer": 2,
    "prefix-cache-scorer": 3,
}
"""The picker's own defaults, and the scorer that they lack at the weight that KServe gives it."""
PICKER = "max-score-picker"
_CANNOT = {
    Kind.PINS: "the picker pins nothing: it scores pods, and an adapter's place follows from where requests went",
    Kind.PRELOAD: "the picker sends requests and loads nothing ahead: see preload.sh of the target vllm",
    Kind.SLOTS: "slots are the engine's: see vllm.args of the target vllm",
    Kind.UNPIN: "there is no pin to take away in the picker",
    Kind.RETIRE: "adapters to retire: the engines' registry; the picker only follows it",
}


def llm_d(setup: Setup, advice: Sequence[Advice], paths: Mapping[str, str]) -> Output:
    """
    ``endpointpicker.yaml`` (``EndpointPickerConfig``) where routing is advised: released scorers, with the one that looks at
    adapters. ``lora-load-state-scorer``, which looks at residency itself, is proposed and not in a release, so it is not told.
    """
    del paths
    want = wanted(setup, advice)
    told = sentences(want, {**_CANNOT, Kind.ROUTING: _ROUTING}, engine="the engine")
    if Kind.ROUTING not in want.kinds:
        return Output((), tuple(told))
    tree = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*({"type": name} for name in WEIGHTS), {"type": PICKER}],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [*({"pluginRef": name, "weight": weight} for name, weight in WEIGHTS.items()), {"pluginRef": PICKER}],
            }
        ],
    }
    told.append("the picker of llm-d's own releases names the group llm-d.ai/v1alpha1; change apiVersion there")
    told.append("where prefill and decode have profiles of their own the scorer belongs into both")
    return Output((File("endpointpicker.yaml", as_yaml(tree)),), tuple(told))


_ROUTING = (
    "the released lora-affinity-scorer sees requests in flight, not residents: an idle adapter is out of its sight; "
    "lora-load-state-scorer, which the advice may have been judged with, is a proposal and in no release"
)
