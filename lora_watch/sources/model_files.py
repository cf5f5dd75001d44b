"""
Models and adapters as they lie on disk, for a plan: dimensions from a model's ``config.json``, the exact tensors of an adapter
and the bytes of a model's weights from the headers of safetensors files. No tensor is ever loaded.

What is broken, cut off, too large or made to mislead is refused with SourceRejected, which names the file and what is wrong.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_watch.errors import SourceRejected
from lora_watch.sources import adapter_files

CONFIG = "config.json"
LARGEST_DIMENSION = 1 << 24
"""No dimension of a real model is larger; what is, is a mistake or made to overflow a sum."""
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}  # fmt: skip
"""Bits of an element by the type's name in a safetensors header."""
GATED = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "granite", "olmo2", "phi3"})
"""``model_type`` of the families that are built as sizes are worked out: q, k, v, o and a gated MLP in every layer."""
EMBEDDED = frozenset({"llama", "mistral", "granite", "phi3", "qwen3"})
"""Families in which vLLM gives embeddings and the head room for adapters as well (``embedding_modules`` of its model classes)."""
_TYPES = {"float16": 16, "bfloat16": 16, "float32": 32, "float8_e4m3fn": 8}
_OTHER_LAYOUTS = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "kv_lora_rank": "multi-head latent attention",
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """
    The dimensions of a decoder whose layers have q, k, v, o and gate, up, down projections.

    ``kv_heads`` < ``heads`` is grouped-query attention; ``head_dim`` may differ from ``hidden / heads``. ``tied``: the head
    shares the embedding's weights. ``bits`` of one weight as it is served; ``weight_bytes`` as its files have them (None: no
    files, the dimensions tell). ``embedded``: the engine gives embeddings and head room for adapters too. ``assumed`` says what
    was taken for granted.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = False
    bits: int = 16
    weight_bytes: int | None = None
    embedded: bool = True
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdapterTensors:
    """
    One adapter, tensor by tensor: ``bytes`` and ``parameters`` are exactly those of its safetensors file, None where there is
    none. ``rank`` is the largest of its configuration and its tensors, ``modules`` the last names of what it changes (q_proj, …),
    ``refused`` why a released vLLM will not load it.
    """

    name: str
    folder: Path
    rank: int
    bytes: int | None
    parameters: int | None
    tensors: int
    dtypes: tuple[str, ...]
    modules: tuple[str, ...]
    saved: tuple[str, ...]
    base_model: str | None
    refused: tuple[str, ...] = ()


def read_model(path: Path) -> ModelShape:
    """The model whose ``config.json``, or folder with one, this is. SourceRejected says what is wrong or not understood."""
    file = path / CONFIG if path.is_dir() else path
    doing = f"reading the model {path}"
    try:
        tree = adapter_files.configuration(file)
        weights = _weight_bytes(path) if path.is_dir() else None
        return _shape(tree, path.name if path.is_dir() else file.parent.name or file.stem, weights)
    except OSError as error:
        raise SourceRejected(f"{doing}: {error.strerror or error}; name its folder, its {CONFIG} or a preset") from None
    except ValueError as error:
        raise SourceRejected(f"{doing}: {error}") from None


def read_adapter(folder: Path) -> AdapterTensors:
    """The adapter in a folder with ``adapter_config.json``. SourceRejected says what is wrong with it."""
    try:
        return _adapter(folder)
    except OSError as error:
        raise SourceRejected(f"reading the adapter {folder}: {error.strerror or error} ({error.filename})") from None
    except ValueError as error:
        raise SourceRejected(f"reading the adapter {folder}: {error}") from None


def _adapter(folder: Path) -> AdapterTensors:
    told = adapter_files.read(folder)
    tree = adapter_files.configuration(folder / adapter_files.CONFIG)
    parameters, count, rank, size = 0, 0, told.rank, 0
    modules: set[str] = set()
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        for name, tensor in _tensors(file):
            shape = _shape_of(file.name, name, tensor)
            first, last = tensor["data_offsets"]
            parameters, count, size = parameters + math.prod(shape), count + 1, size + last - first
            if found := re.search(r"(?:^|\.)([^.]+)\.lora_(?:embedding_)?([AB])(?:\.|$)", name):
                modules.add(found[1])
                if found[2] == "A" and len(shape) == 2:
                    rank = max(rank, shape[0])
    saved = tree.get("modules_to_save") or []
    if not isinstance(saved, list) or not all(isinstance(one, str) for one in saved):
        raise ValueError(f"{adapter_files.CONFIG}: modules_to_save is a list of names, not {saved!r:.100}")
    return AdapterTensors(
        folder.name or str(folder),
        folder,
        rank,
        size if files else None,
        parameters if files else None,
        count,
        told.dtypes,
        tuple(sorted(modules)) or told.modules,
        tuple(saved),
        told.base_model,
        _refused(tree, saved, rank),
    )


def _refused(tree: dict[str, Any], saved: list[str], rank: int) -> tuple[str, ...]:
    """Why vLLM refuses an adapter (its checks of 0.32), in words."""
    reasons = []
    if others := [one for one in saved if one not in ("classifier", "score")]:
        reasons.append(f"it saves whole modules ({', '.join(others)[:80]})")
    if tree.get("use_dora"):
        reasons.append("it is a DoRA adapter")
    if tree.get("lora_bias") or tree.get("bias") not in (None, "none"):
        reasons.append("it trains biases")
    if rank > 512:
        reasons.append(f"rank {rank} is above 512, its largest max_lora_rank")
    return tuple(reasons)


def _tensors(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The tensors of a safetensors file in the order of their bytes. ValueError where they overlap or leave a hole."""
    found = [(name, tensor) for name, tensor in adapter_files.header(file).items() if name != "__metadata__"]
    found.sort(key=lambda one: tuple(one[1]["data_offsets"]))
    end = 0
    for name, tensor in found:
        if tensor["data_offsets"][0] != end:
            raise ValueError(
                f"{file.name}: tensor {name[:80]!r} begins at {tensor['data_offsets'][0]}, the one before ends at {end}"
            )
        end = tensor["data_offsets"][1]
    return found


def _shape_of(file: str, name: str, tensor: dict[str, Any]) -> list[int]:
    """The shape of a tensor whose bytes are those that shape and type say; ValueError where they are not."""
    shape, dtype = tensor.get("shape"), tensor["dtype"]
    if not isinstance(shape, list) or not all(type(side) is int and 0 <= side <= 1 << 40 for side in shape) or len(shape) > 16:
        raise ValueError(f"{file}: tensor {name[:80]!r} has the shape {shape!r:.80}")
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    size = tensor["data_offsets"][1] - tensor["data_offsets"][0]
    if bits is not None and math.prod(shape) * bits != size * 8:
        raise ValueError(f"{file}: tensor {name[:80]!r} of {dtype} {shape} has {size} bytes")
    return shape


def _weight_bytes(folder: Path) -> int | None:
    """Bytes of all tensors of a model's safetensors files, those of an adapter left out; None where there are none."""
    files = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("adapter_")]
    total = 0
    for file in files:
        for _, tensor in _tensors(file):
            total += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    return total if files else None


def _shape(tree: dict[str, Any], name: str, weights: int | None) -> ModelShape:
    inner = tree.get("text_config")
    text = inner if "hidden_size" not in tree and isinstance(inner, dict) else tree
    for key, what in _OTHER_LAYOUTS.items():
        count = text.get(key)
        if isinstance(count, int) and count > 1:
            raise ValueError(f"{CONFIG} describes {what} ({key} {count}), whose sizes are not worked out here")
    told = text.get("model_type", tree.get("model_type"))
    family = told if isinstance(told, str) else None
    heads = _count(text, "num_attention_heads")
    hidden = _count(text, "hidden_size")
    kv_heads = _count(text, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise ValueError(f"{CONFIG}: {heads} attention heads can't share {kv_heads} key-value heads")
    if text.get("head_dim") is None and hidden % heads:
        raise ValueError(f"{CONFIG}: hidden_size {hidden} is no multiple of {heads} heads, and head_dim is not said")
    bits, assumed = _bits(tree, text)
    if family not in GATED:
        assumed = (*assumed, f"layers like Llama's (model_type {str(told)[:40]!r} is not one that is known)")
    return ModelShape(
        name,
        _count(text, "num_hidden_layers"),
        hidden,
        _count(text, "intermediate_size"),
        heads,
        kv_heads,
        _count(text, "head_dim", hidden // heads),
        _count(text, "vocab_size"),
        _tied(text.get("tie_word_embeddings", tree.get("tie_word_embeddings"))),
        bits,
        weights,
        family in EMBEDDED,
        assumed,
    )


def _bits(tree: dict[str, Any], text: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Bits of a weight, from its quantization or type, and what was assumed for want of both."""
    quantization = tree.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantization, dict):
        bits = quantization.get("bits", quantization.get("w_bit"))
        if type(bits) is int and 1 <= bits <= 32:
            return bits, ()
        if "fp8" in str(quantization.get("quant_method")):
            return 8, ()
        return 16, (f"16 bits a weight (quantization {str(quantization.get('quant_method'))[:40]!r} says none)",)
    told = tree.get("dtype", tree.get("torch_dtype", text.get("dtype", text.get("torch_dtype"))))
    if isinstance(told, str) and told in _TYPES:
        return _TYPES[told], ()
    return 16, (f"16 bits a weight (its type is {str(told)[:40]!r})",)


def _tied(told: object) -> bool:
    """Whether the head shares the embedding's weights; ValueError where it is neither said nor left out."""
    if told is not None and not isinstance(told, bool):
        raise ValueError(f"{CONFIG}: tie_word_embeddings is true or false, not {told!r:.60}")
    return bool(told)


def _count(tree: dict[str, Any], key: str, otherwise: int | None = None) -> int:
    """A dimension; ``otherwise`` where it is absent or null. ValueError where it is none."""
    value = tree.get(key)
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        raise ValueError(f"{CONFIG} has no {key}: is it the configuration of a decoder?")
    if type(value) is not int or not 1 <= value <= LARGEST_DIMENSION:
        raise ValueError(f"{CONFIG}: {key} is a whole number of 1 … {LARGEST_DIMENSION}, not {value!r:.60}")
    return value
