"""Folders of adapters and models, written by hand: configurations, and safetensors files whose tensors are zeros."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def write_tensors(file: Path, tensors: Mapping[str, Sequence[int]], dtype: str = "BF16", size: int = 2) -> None:
    """A safetensors file with these tensors by name and shape, their bytes all zero."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        length = size
        for side in shape:
            length *= side
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + length]}
        end += length
    write_header(file, entries, end)


def write_header(file: Path, entries: Any, length: int = 0) -> None:
    """A safetensors file with this header, whatever it says, and so many bytes behind it."""
    text = json.dumps(entries).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(length))


def write_model(folder: Path, **changes: Any) -> Path:
    """A folder with the ``config.json`` of a small model; a key changed to None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = {key: value for key, value in {**MODEL, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(tree))
    return folder


def write_adapter(folder: Path, rank: int = 8, layers: int = 2, dtype: str = "BF16", size: int = 2, **config: Any) -> Path:
    """An adapter of the small model for q (256 → 256) and v (256 → 128)."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "target_modules": ["q_proj", "v_proj"], **config}))
    tensors = {}
    for layer in range(layers):
        for module, outputs in (("q_proj", 256), ("v_proj", 128)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_"
            tensors |= {f"{name}A.weight": (rank, 256), f"{name}B.weight": (outputs, rank)}
    write_tensors(folder / "adapter_model.safetensors", tensors, dtype, size)
    return folder
