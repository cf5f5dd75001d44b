"""
What NVIDIA's dcgm-exporter says of each GPU, as rows of `samples` of the pod that the GPU works for.

Tells, observed: how busy a GPU was, whoever kept it busy: inference, adapter loads, collective waits and other processes look
alike. `DCGM_FI_DEV_GPU_UTIL` is percent and says only that some kernel ran; the profiling ratios (0 … 1) say more, and
`DCGM_FI_PROF_SM_ACTIVE` is off unless asked for. Samples are means over the exporter's interval, 30 s by default.

Its traps, each a test:

* Prometheus renames the workload's labels to `exported_pod`, … unless it honours them: then `pod` is the exporter's own;
* a GPU that no container holds has no pod: said by name, never dropped silently; ``gpus`` may say whose it is, and beats labels;
* under MIG each instance is a GPU of its own (`GPU_I_ID`), and GPU_UTIL is not there;
* the host is called `Hostname` or `hostname`, by version.
"""

from collections.abc import Mapping
from types import MappingProxyType

from lora_watch import names
from lora_watch.model import PodId
from lora_watch.sources.base import printable
from lora_watch.sources.placed import Place

FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: (name,)
        for name in (
            names.GPU_ENGINE_ACTIVE,
            names.GPU_SM_ACTIVE,
            names.GPU_TENSOR_ACTIVE,
            names.GPU_DRAM_ACTIVE,
            names.GPU_UTIL,
        )
    }
)
POD_LABELS = ("exported_pod", "pod", "pod_name")
HOST_LABELS = ("Hostname", "hostname")
OWN = "dcgm-exporter"
"""A pod with this in its name is the exporter's own: it holds no GPU to compute on."""
_KEPT = ("UUID", "gpu", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID")

GpuKey = tuple[str, str, str]
"""Host, number of the GPU, MIG instance ("" where there is none)."""


class Dcgm:
    """
    The GPU exporter as a system; ``gpus`` says whose a GPU is where labels can't.

    An entry with a MIG instance is of that instance only; one without is of the GPU and of every instance of it.
    """

    name = "gpu"
    families = FAMILIES

    def __init__(self, gpus: Mapping[GpuKey, PodId] = MappingProxyType({})) -> None:
        self._gpus = dict(gpus)

    def place(self, _metric: str, labels: Mapping[str, str], exporter: PodId) -> Place | str:
        """The pod configured for the GPU, else the one that Kubernetes' labels name."""
        host = next((labels[label] for label in HOST_LABELS if labels.get(label)), "")
        gpu, instance = labels.get("gpu", ""), labels.get("GPU_I_ID", "")
        kept = {label: labels[label] for label in _KEPT if labels.get(label)} | ({"hostname": host} if host else {})
        configured = self._gpus.get((host, gpu, instance)) or self._gpus.get((host, gpu, ""))
        if configured is not None:
            return Place(configured, kept)
        pod = next((labels[label] for label in POD_LABELS if labels.get(label)), "")
        if not pod or OWN in pod:
            part = f", MIG instance {printable(instance)}" if instance else ""
            return (
                f"GPU {printable(gpu)} of host {printable(host)}{part} belongs to no pod: no container holds it, or the exporter "
                "runs without Kubernetes' labels; `gpus.pods` may name its pod"
            )
        return Place(PodId(exporter.cluster, pod, exporter.pool, exporter.role), kept)
