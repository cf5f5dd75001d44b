"""
Sizes and prices before there is traffic: bytes of an adapter and of a slot, what is left for KV cache, how long a load takes,
how often one is to be expected, and what the GPUs cost. Pure formulas, each with where it comes from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lora_watch.derive.che import characteristic_seconds, loads
from lora_watch.recommend.advice import MONTH_HOURS
from lora_watch.sources.model_files import ModelShape

GB = 1_000_000_000
"""Decimal, as disks and data sheets count; a card sold as 80 GB has a little more."""
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM 0.32 takes for ``--max-lora-rank``."""
UTILIZATION = 0.92
"""``--gpu-memory-utilization`` of vLLM 0.32 by default: the share of a GPU's memory that the engine may fill."""
WORKSPACE_GB = 5.0
"""What activations, graphs and communication buffers take beside weights and cache: the article's figure."""
DISK_GB_PER_SECOND = 5.0
"""NVMe: the article's 50 MB in 10 ms. A network file system has a tenth of it or less."""
HOST_GB_PER_SECOND = 5.0
"""Parsing tensors and copying them to host memory, one thread: an assumption, a memory copy with its page faults."""
PCIE_GB_PER_SECOND = 17.0
"""Host to GPU in practice: the article's 50 MB in 3 ms. Its 64 GB/s are PCIe 5's limit in data sheets."""
LEAST_TOKENS = 8192
"""KV-cache tokens that must be left for a model to count as fitting: one long request."""
PRESETS: Mapping[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape("llama-3.1-8b", 32, 4096, 14_336, 32, 8, 128, 128_256),
        ModelShape("llama-3.1-70b", 80, 8192, 28_672, 64, 8, 128, 128_256),
        ModelShape("mistral-7b", 32, 4096, 14_336, 32, 8, 128, 32_768),
        ModelShape("qwen2.5-7b", 28, 3584, 18_944, 28, 4, 128, 152_064, embedded=False),
    )
}
"""Models by name, as plain dimensions (those of their published ``config.json``)."""


class Matrix(NamedTuple):
    """One weight matrix that an adapter can change: its sides, and which of them tensor parallelism cuts (None: neither)."""

    inputs: int
    outputs: int
    cut: str | None


LAYER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EMBEDDING = ("embed_tokens", "lm_head")
MODULES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*LAYER, *EMBEDDING)},
    **{name.removesuffix("_proj"): (name,) for name in LAYER},
    "qkv_proj": LAYER[:3],
    "qkv": LAYER[:3],
    "qkvo": LAYER[:4],
    "gate_up_proj": LAYER[4:6],
    "mlp": LAYER[4:],
    "all": LAYER,
    "all-linear": LAYER,
}
"""Names of modules as people write them."""


def module_names(asked: Iterable[str]) -> tuple[str, ...]:
    """
    Modules by their full names, each once, in the order of a layer. ValueError names one that is none.

    >>> module_names(["v", "q"]), module_names(["qkv"])
    (('q_proj', 'v_proj'), ('q_proj', 'k_proj', 'v_proj'))
    """
    found: set[str] = set()
    for name in asked:
        if name not in MODULES:
            raise ValueError(f"{name[:40]!r} is no module; known are {', '.join(sorted(MODULES))}")
        found.update(MODULES[name])
    return tuple(name for name in (*LAYER, *EMBEDDING) if name in found)


def matrix(model: ModelShape, module: str) -> Matrix:
    """The matrix behind a module's name; with grouped-query attention k and v are narrower than q. KeyError: there is none."""
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return {
        "q_proj": Matrix(model.hidden, query, "outputs"),
        "k_proj": Matrix(model.hidden, key, "outputs"),
        "v_proj": Matrix(model.hidden, key, "outputs"),
        "o_proj": Matrix(query, model.hidden, "inputs"),
        "gate_proj": Matrix(model.hidden, model.intermediate, "outputs"),
        "up_proj": Matrix(model.hidden, model.intermediate, "outputs"),
        "down_proj": Matrix(model.intermediate, model.hidden, "inputs"),
        "embed_tokens": Matrix(model.vocab, model.hidden, None),
        "lm_head": Matrix(model.hidden, model.vocab, None),
    }[module]


def adapter_parameters(model: ModelShape, rank: int, modules: Iterable[str]) -> int:
    """
    ``Σ rank × (inputs + outputs)``, over the modules and, but for embeddings and head, the layers: A is rank × inputs, B is
    outputs × rank.

    >>> adapter_parameters(PRESETS["llama-3.1-70b"], 16, ["q_proj", "v_proj"])
    32768000
    """
    total = 0
    for module in modules:
        one = matrix(model, module)
        total += rank * (one.inputs + one.outputs) * (1 if module in EMBEDDING else model.layers)
    return total


def adapter_bytes(model: ModelShape, rank: int, modules: Iterable[str], bits: int = 16) -> int:
    """
    Bytes of an adapter's weights: the article's rank-16 Q+V and rank-64 Q+K+V on Llama-3.1-70B in FP16 are 65.5 and 356.5 MB.

    >>> adapter_bytes(PRESETS["llama-3.1-70b"], 64, ["q_proj", "k_proj", "v_proj"])
    356515840
    """
    return adapter_parameters(model, rank, modules) * bits // 8


def slot_rank(rank: int) -> int:
    """
    The least ``--max-lora-rank`` of vLLM that holds a rank. ValueError above 512.

    >>> slot_rank(16), slot_rank(20)
    (16, 32)
    """
    for allowed in VLLM_RANKS:
        if rank <= allowed:
            return allowed
    raise ValueError(f"vLLM holds adapters up to rank {VLLM_RANKS[-1]}, not {rank}")


def slot_modules(model: ModelShape, only: Iterable[str] | None = None) -> tuple[str, ...]:
    """
    The modules that a slot of vLLM has room for: all that the model supports, or with ``--lora-target-modules`` those and what is
    packed with them (q, k, v are one matrix there, and gate and up).

    >>> slot_modules(PRESETS["llama-3.1-8b"], ["q_proj"])
    ('q_proj', 'k_proj', 'v_proj')
    """
    every = (*LAYER, *(EMBEDDING if model.embedded else ()))
    if only is None:
        return every
    asked = set(only)
    for packed in (LAYER[:3], LAYER[4:6]):
        asked.update(packed if asked & set(packed) else ())
    return tuple(module for module in every if module in asked)


def slot_bytes(model: ModelShape, rank: int, bits: int = 16, tensor_parallel: int = 1, only: Iterable[str] | None = None) -> int:
    """
    Bytes that one slot of vLLM takes on each GPU, whatever lies in it: A and B at ``--max-lora-rank`` of *every* module in
    :func:`slot_modules`, so that ``max_loras`` of them are uniform.

    With tensor parallelism the cut side is shared out (B of q, k, v, gate, up; A of o and down), the other is whole on each GPU,
    and so are embeddings and head (``fully_sharded_loras`` off, the default). Read in vLLM 0.32, and equal to what a running one
    allocated (311,296 bytes for the small model of our tests).
    """
    total = 0
    for module in slot_modules(model, only):
        one = matrix(model, module)
        inputs = -(-one.inputs // tensor_parallel) if one.cut == "inputs" else one.inputs
        outputs = -(-one.outputs // tensor_parallel) if one.cut == "outputs" else one.outputs
        total += rank * (inputs + outputs) * (1 if module in EMBEDDING else model.layers)
    return total * bits // 8


def model_parameters(model: ModelShape) -> int:
    """
    Parameters of the dense model: embedding, head unless it is tied, layers with two norms each, a last norm. Biases and norms of
    heads, which some families have, are left out: less than 0.01 %.

    >>> model_parameters(PRESETS["llama-3.1-8b"])
    8030261248
    """
    return _layers(model) + _rest(model)


def weight_bytes(model: ModelShape, bits: int | None = None) -> int:
    """
    Bytes of the model's weights: those of its files, unless ``bits`` asks for another precision; else layers at that many bits,
    and embedding, head and norms at 16 where layers are quantized (the article's 35 GB for 70B in INT4 leave these out).
    """
    if bits is None and model.weight_bytes is not None:
        return model.weight_bytes
    each = model.bits if bits is None else bits
    return _layers(model) * each // 8 + _rest(model) * max(each, 16) // 8


def _layers(model: ModelShape) -> int:
    sides = [matrix(model, module) for module in LAYER]
    return model.layers * sum(one.inputs * one.outputs for one in sides)


def _rest(model: ModelShape) -> int:
    return model.vocab * model.hidden * (1 if model.tied else 2) + (2 * model.layers + 1) * model.hidden


def kv_bytes_per_token(model: ModelShape, bits: int = 16, tensor_parallel: int = 1) -> int:
    """
    ``2 × layers × key-value heads × head_dim`` elements: a key and a value of each layer, on each GPU. Heads that tensor
    parallelism can't cut further are there twice.

    >>> kv_bytes_per_token(PRESETS["llama-3.1-70b"])
    327680
    """
    heads = -(-model.kv_heads // tensor_parallel)
    return 2 * model.layers * heads * model.head_dim * bits // 8


@dataclass(frozen=True, slots=True)
class Memory:
    """One GPU's memory, in bytes: what the engine may fill, and what of it is gone before slots and KV cache."""

    usable: int
    weights: int
    workspace: int
    slot: int
    kv_token: int

    @property
    def room(self) -> int:
        """For slots and KV cache; below 0 the model does not fit."""
        return self.usable - self.weights - self.workspace

    def tokens(self, slots: int) -> int:
        """KV-cache tokens left beside so many slots, for all requests of a pod together; 0 where the slots do not fit."""
        return max(self.room - slots * self.slot, 0) // self.kv_token

    def slots(self, share: float) -> int:
        """The most slots that leave this share of the KV cache that there would be without any."""
        return max(math.floor(self.room * (1 - share) / self.slot + 1e-9), 0)


def memory(
    model: ModelShape,
    rank: int,
    *,
    gpu_gb: float,
    tensor_parallel: int,
    bits: int = 16,
    weights: int,
    kv_bits: int = 16,
    utilization: float = UTILIZATION,
    workspace_gb: float = WORKSPACE_GB,
) -> Memory:
    """The memory of each GPU of a pod. ``rank`` is that of the slots, ``bits`` an adapter's precision, ``weights`` in bytes."""
    return Memory(
        int(gpu_gb * GB * utilization),
        -(-weights // tensor_parallel),
        int(workspace_gb * GB),
        slot_bytes(model, rank, bits, tensor_parallel),
        kv_bytes_per_token(model, kv_bits, tensor_parallel),
    )


def fewest_gpus(model: ModelShape, rank: int, most: int, **options: float) -> int | None:
    """
    The least tensor parallelism, a power of two that divides the heads, at which the model, one slot and ``LEAST_TOKENS`` of KV
    cache fit; None where it is more than ``most``. ``options`` as for :func:`memory`.
    """
    size = 1
    while size <= most and model.heads % size == 0:
        if memory(model, rank, tensor_parallel=size, **options).tokens(1) >= LEAST_TOKENS:  # type: ignore[arg-type]  # floats for ints
            return size
        size *= 2
    return None


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a load, in seconds: as vLLM does it, and the least and most that the article gives for it (None: nothing)."""

    name: str
    cold_only: bool
    vllm: float
    article: tuple[float, float] | None = None


def load_phases(
    size: int,
    *,
    disk: float = DISK_GB_PER_SECOND,
    host: float = HOST_GB_PER_SECOND,
    pcie: float = PCIE_GB_PER_SECOND,
) -> tuple[Phase, ...]:
    """
    What a load of ``size`` bytes consists of, rates in GB/s. Cold: from disk or network, through host memory; warm: from host
    memory on. vLLM copies into a slot that is there and drains nothing; its step waits meanwhile.

    The article's phases: drain 0 … 500 ms, deallocation 5, transfer, initialization 20, warm-up 50 … 100.
    """
    return (
        Phase("disk or network", True, size / (disk * GB), (size / (disk * GB), size / (disk * GB))),
        Phase("host memory", True, size / (host * GB), None),
        Phase("transfer (PCIe)", False, size / (pcie * GB), (size / (64 * GB), size / (pcie * GB))),
        Phase("activation", False, 0.0, (0.075, 0.125)),
        Phase("drain", False, 0.0, (0.0, 0.5)),
    )


def load_seconds(phases: Sequence[Phase], *, cold: bool) -> float:
    """The whole load as vLLM does it."""
    return sum(phase.vllm for phase in phases if cold or not phase.cold_only)


def load_seconds_article(phases: Sequence[Phase], *, cold: bool) -> tuple[float, float]:
    """The least and the most by the article's phases."""
    told = [phase.article for phase in phases if phase.article is not None and (cold or not phase.cold_only)]
    return sum(low for low, _ in told), sum(high for _, high in told)


def zipf_shares(count: int, alpha: float) -> NDArray[np.float64]:
    """
    Shares of requests by adapter, the most asked for first: ``i^-alpha``, scaled to 1. ``alpha`` 0 is all alike.

    >>> zipf_shares(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -alpha
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Misses:
    """Expected misses under LRU: ``ratio`` of requests, ``per_second`` on each pod. ``cold_ratio`` of requests read the disk."""

    ratio: float
    cold_ratio: float
    per_second: float


def expected_misses(
    shares: NDArray[np.float64], requests_per_second: float, pods: int, slots: int, cpu_slots: int, *, affinity: bool
) -> Misses:
    """
    Che's approximation (:mod:`lora_watch.derive.che`). With ``affinity`` pods share their adapters out, as one cache of all their
    slots (right to 0.011 under llm-d's scorer in simulation); without, as round robin does, each pod sees all of them.

    Right to 0.01 where requests are independent of each other; sessions make it less. First uses are not counted. ``cpu_slots``
    is the CPU cache of a pod (``--max-cpu-loras``, at least ``slots``).
    """
    ratios = []
    for places in (slots, max(cpu_slots, slots)):
        rates = shares * requests_per_second / (1 if affinity else pods)
        seconds = characteristic_seconds(rates, places * (pods if affinity else 1))
        ratios.append(0.0 if math.isinf(seconds) else loads(rates[rates > 0], seconds) / float(rates.sum()))
    return Misses(ratios[0], ratios[1], ratios[0] * requests_per_second / pods)


def separate_pods(shares: NDArray[np.float64], requests_per_second: float, pod_requests_per_second: float) -> int:
    """Pods if every adapter had its own, none of them shared: at least one each, more where one cannot carry its requests."""
    return int(np.maximum(np.ceil(shares * requests_per_second / pod_requests_per_second - 1e-9), 1).sum())


def monthly_bill(pods: int, gpus_per_pod: int, price: float) -> float:
    """
    Of so many pods, 730 hours at ``price`` a GPU-hour.

    >>> monthly_bill(5, 1, 3.5)
    12775.0
    """
    return pods * gpus_per_pod * price * MONTH_HOURS
