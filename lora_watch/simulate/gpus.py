"""
What a GPU shows of a simulated pod, as dcgm-exporter tells it: averages over the exporter's interval, none of them inference.

How a counter stands to what the pod did. It is what hardware of this kind does, not what a reader wishes for:

* In a **step** kernels follow each other, but for gaps in which the GPU waits for the host: 1 % while some prompt is read (long
  kernels), 4 % in decode (short ones). GR_ENGINE_ACTIVE does not count them.
* A **load** reads and copies: copy engines, disk and host, none of which GR_ENGINE_ACTIVE counts. But the drained batch of the
  profile ``article`` still computes, and so does its warm-up: the compute engine is busy, with nothing that is inference. The
  profile ``vllm`` has neither.
* Of the time in which kernels run, some multiprocessor has a warp (SM_ACTIVE) in 90 % while prompts are read, 75 % in decode;
  tensor pipes are busy 50 % and 4 % (decode waits for memory), the memory interface 30 % and 60 %. A drain is like decode.
* GPU_UTIL counts the seconds of the interval in which any kernel ran at all, in whole percent. It saturates.
* The exporter collects every 30 s, each at a second of its own, and shows the last collection until the next: at any moment a
  value tells of the interval that ended up to 30 s ago.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import SECOND
from lora_watch.schema import bucket_of
from lora_watch.simulate.meters import Meter
from lora_watch.simulate.pace import covered
from lora_watch.simulate.scenario import Scenario
from lora_watch.simulate.traffic import Catalogue

Times = NDArray[np.int64]

COLLECT = 30 * SECOND
"""µs between two collections of the exporter, by default."""
MEMORY_MIB = 73_400
"""FB_USED: what an engine that takes nine tenths of 80 GB holds, whatever it does."""
NAMESPACE = "llm"
_ON_HOST_SECONDS = 0.025
"""Of a load of the profile ``article``: deallocation and initialisation, in which nothing computes."""
_ACTIVE: Mapping[str, tuple[float, float, float]] = {
    names.GPU_ENGINE_ACTIVE: (0.99, 0.96, 1.0),
    names.GPU_SM_ACTIVE: (0.99 * 0.9, 0.96 * 0.75, 0.75),
    names.GPU_TENSOR_ACTIVE: (0.99 * 0.5, 0.96 * 0.04, 0.04),
    names.GPU_DRAM_ACTIVE: (0.99 * 0.3, 0.96 * 0.6, 0.6),
}
"""Share of time in steps with a prompt, in other steps, and in the computing part of loads."""
SHOWN = (names.GPU_UTIL, names.GPU_ENGINE_ACTIVE, names.GPU_TENSOR_ACTIVE, names.GPU_DRAM_ACTIVE)
"""The counters of activity that the exporter shows unless it is asked for SM_ACTIVE too."""


class Gpu:
    """The one GPU of a pod. ``interval`` (µs, whole seconds): between two collections of its exporter."""

    def __init__(self, scenario: Scenario, known: Catalogue, pod: str, interval: int = COLLECT) -> None:
        if interval < SECOND or interval % SECOND:
            raise ValueError(f"an exporter collects every whole number of seconds, not every {interval} µs")
        self.pod, self.interval = pod, interval
        self._loads, self._bytes = scenario.loads, known.bytes
        self._phase = 13 * bucket_of(scenario.cluster, pod) * SECOND % interval

    def labels(self, *, kubernetes: bool = True) -> dict[str, str]:
        """The exporter's labels of this GPU; without ``kubernetes`` they don't say whose it is."""
        digits = blake2b(self.pod.encode(), digest_size=16).hexdigest()
        uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        labels = {
            "gpu": "0",
            "UUID": f"GPU-{uuid}",
            "pci_bus_id": "00000000:3B:00.0",
            "device": "nvidia0",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"node-of-{self.pod}",
        }
        return {**labels, "container": "vllm", "namespace": NAMESPACE, "pod": self.pod} if kubernetes else labels

    def collected(self, at: Times) -> tuple[Times, Times]:
        """By moment, begin and end of the interval that was collected last; both are whole seconds."""
        end = (at - self._phase) // self.interval * self.interval + self._phase
        return end - self.interval, end

    def spent(self, meters: Sequence[Meter], at: Times) -> NDArray[np.int64]:
        """µs before each moment in steps with a prompt, in other steps, and in computing parts of loads: three rows."""
        sums = np.zeros((3, len(at)), dtype=np.int64)
        for meter in meters:
            inside = np.clip(at, meter.life.begin, meter.life.end)
            steps, prefills = meter.worked(inside)
            sums += np.stack([prefills, steps - prefills, covered(self._computing(meter), inside)])
        return sums

    def values(self, at: Times, seconds: Times, spent: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """
        By counter, what the exporter shows at the moments ``at``: means over the interval collected last, in six digits.

        ``seconds``: every whole second (µs UTC) that those intervals cover, their ends included; ``spent`` up to each of them.
        """
        start, end = ((edges - seconds[0]) // SECOND for edges in self.collected(at))
        parts = spent[:, end] - spent[:, start]
        used = np.concatenate([[0], np.cumsum(np.diff(spent.sum(axis=0)) > 0)])
        util = np.floor(100 * (used[end] - used[start]) / (self.interval // SECOND))
        means = {
            metric: np.round((first * parts[0] + second * parts[1] + third * parts[2]) / self.interval, 6)
            for metric, (first, second, third) in _ACTIVE.items()
        }
        return {names.GPU_UTIL: util, **means}

    def _computing(self, meter: Meter) -> tuple[Times, Times]:
        """The parts of loads in which the compute engine is busy, put at their begins."""
        loaded = meter.life.loaded
        length = np.zeros(len(loaded.done), dtype=np.int64)
        if self._loads.profile == "article":
            copied = self._bytes[meter.life.adapter[loaded.place]] / self._loads.gpu_bytes_per_second
            length = np.maximum(loaded.gpu_part - (copied + _ON_HOST_SECONDS) * SECOND, 0).astype(np.int64)
        return loaded.began, loaded.began + length


def whole_seconds(first: int, last: int) -> Times:
    """Every whole second (µs UTC) from ``first``, which is one, to ``last``."""
    return np.arange(first, last + 1, SECOND, dtype=np.int64)
