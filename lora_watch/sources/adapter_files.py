"""
Adapters as they lie on disk: rank and bytes from ``adapter_config.json`` and the headers of their safetensors files.

Nothing but headers is read: a header is a JSON object behind its length (8 bytes, little-endian), as the format's own
description says, and each tensor's bytes are the difference of its two offsets.
"""

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = "adapter_config.json"
LARGEST_CONFIG = 16 << 20
"""Bytes of a configuration that is still read: real ones have kilobytes."""
LARGEST_HEADER = 100 << 20
"""The format's own limit: a longer header is refused."""


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """
    One adapter: its folder's name, its rank (the largest of its modules), the bytes of its tensors, and what it applies to.

    ``bytes`` is None where there is no safetensors file (an older ``adapter_model.bin`` says nothing without loading it).
    """

    name: str
    rank: int
    bytes: int | None
    dtypes: tuple[str, ...]
    modules: tuple[str, ...]
    base_model: str | None


Kept = dict[Path, tuple[tuple[tuple[str, int, int], ...], AdapterFile]]
"""What was read of each folder before, with name, time of change (ns) and size of each file that told it."""


def read_all(folder: Path, kept: Kept | None = None) -> tuple[list[AdapterFile], list[str]]:
    """
    Every adapter at or below a folder, sorted by name, and what went wrong with those that could not be read.

    With ``kept``, which is brought up to date, an adapter whose files did not change is not read again: to look at 200 of them is
    then one stat a file.
    """
    adapters, problems = [], []
    for one in folders(folder):
        try:
            adapters.append(read(one) if kept is None else _kept(one, kept))
        except (OSError, ValueError) as error:
            problems.append(f"{one}: {error}")
    if not adapters and not problems:
        problems.append(f"{folder} holds no {CONFIG}, at any depth")
    return adapters, problems


def read(folder: Path) -> AdapterFile:
    """The adapter in a folder. OSError where a file can't be read, ValueError says what in it is wrong."""
    tree = configuration(folder / CONFIG)
    pattern, modules = tree.get("rank_pattern") or {}, tree.get("target_modules") or []
    if not isinstance(pattern, dict):
        raise ValueError(f"{CONFIG}: rank_pattern maps modules to ranks, it is no {type(pattern).__name__}")
    if not isinstance(modules, (str, list)):
        raise ValueError(f"{CONFIG}: target_modules is a name or a list of names, not a {type(modules).__name__}")
    ranks = [tree.get("r"), *pattern.values()]
    if not all(isinstance(rank, int) and not isinstance(rank, bool) and rank > 0 for rank in ranks):
        raise ValueError(f"{CONFIG}: a rank is a whole number above 0; r and those of rank_pattern are {ranks!r:.200}")
    sizes, dtypes = 0, set()
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        for name, tensor in header(file).items():
            if name != "__metadata__":
                sizes += tensor["data_offsets"][1] - tensor["data_offsets"][0]
                dtypes.add(str(tensor["dtype"]))
    base = tree.get("base_model_name_or_path")
    return AdapterFile(
        folder.name,
        max(ranks),
        sizes if files else None,
        tuple(sorted(dtypes)),
        (modules,) if isinstance(modules, str) else tuple(sorted(map(str, modules))),
        base if isinstance(base, str) else None,
    )


def header(file: Path) -> dict[str, Any]:
    """
    The header of a safetensors file: tensor → ``dtype``, ``shape``, ``data_offsets``. ValueError where it is none.

    A file shorter than its offsets say is refused too: it was not copied whole.
    """
    if file.exists() and not file.is_file():
        raise ValueError(f"{file.name} is no file")
    with file.open("rb") as stream:
        raw = stream.read(8)
        if len(raw) < 8:
            raise ValueError(f"{file.name} is no safetensors file: it has {len(raw)} bytes")
        (length,) = struct.unpack("<Q", raw)
        if length > LARGEST_HEADER:
            raise ValueError(f"{file.name} is no safetensors file: its header would have {length} bytes")
        tree = json_object(stream.read(length), file.name)
    end = 0
    for name, tensor in tree.items():
        if name == "__metadata__":
            continue
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(x, int) for x in offsets)):
            raise ValueError(f"{file.name}: tensor {name!r} has no data_offsets")
        if not 0 <= offsets[0] <= offsets[1] or "dtype" not in tensor:
            raise ValueError(f"{file.name}: tensor {name!r} has data_offsets {offsets} and dtype {tensor.get('dtype')!r}")
        end = max(end, offsets[1])
    if file.stat().st_size < 8 + length + end:
        raise ValueError(f"{file.name} ends early: {file.stat().st_size} bytes, where its header promises {8 + length + end}")
    return tree


def _kept(folder: Path, kept: Kept) -> AdapterFile:
    files = [folder / CONFIG, *sorted(folder.glob("*.safetensors"))]
    stamp = tuple((file.name, (told := file.stat()).st_mtime_ns, told.st_size) for file in files)
    if folder not in kept or kept[folder][0] != stamp:
        kept[folder] = (stamp, read(folder))
    return kept[folder][1]


def folders(folder: Path) -> list[Path]:
    """The folders at or below this one that hold an adapter. Links are followed; a folder that several lead to counts once."""
    found, seen = [], set()
    for here, below, files in os.walk(folder, followlinks=True):
        where = os.path.realpath(here)
        if where in seen:
            below.clear()
            continue
        seen.add(where)
        below.sort()
        if CONFIG in files:
            found.append(Path(here))
    return sorted(found)


def configuration(file: Path) -> dict[str, Any]:
    """The object in a JSON file. OSError where it can't be read, ValueError where it is none or too large to be one."""
    size = file.stat().st_size
    if not file.is_file():
        raise ValueError(f"{file.name} is no file")
    if size > LARGEST_CONFIG:
        raise ValueError(f"{file.name} has {size} bytes: that is no configuration")
    return json_object(file.read_bytes(), file.name)


def json_object(text: bytes, where: str) -> dict[str, Any]:
    """The object that a JSON text in UTF-8 is; ValueError, which names ``where``, if it is none."""
    try:
        tree = json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise ValueError(f"{where} is not JSON: {str(error)[:100]}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{where} holds a {type(tree).__name__}, not an object")
    return tree
