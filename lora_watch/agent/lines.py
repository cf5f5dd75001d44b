"""One record as one line of event log v1, and the header that outlives its writer: the bytes both sides agree on."""

import fcntl
import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LINE = 65_536
"""Bytes of a line, with its newline."""
MAX_NAME = 61_440
"""Bytes a name may take once it is JSON: 10 kB of control characters, six bytes each, fit."""
MAX_PATH = 2_000
MAX_ERROR = 1_000

BOOT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SEGMENT = re.compile(rf"({BOOT.pattern})\.(\d{{12,20}})\.jsonl")

WORKER, API = 1, 2
"""Bits of the header's role: a process may be both where the engine runs inside the API server."""

_MAGIC = int.from_bytes(b"lorawtch", "little")
_HEADER = struct.Struct("<8Q")
_decode = json.JSONDecoder().raw_decode  # of text: given bytes, json would look for their encoding each time
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def to_line(record: Mapping[str, Any]) -> bytes:
    """
    ``record`` as one line, newline included.

    A lone surrogate (half of a pair, legal in a Python string and not in UTF-8) is written as its JSON escape, so it survives
    the trip. The caller clips long text (see ``clip``); the line is then shorter than ``MAX_LINE``.
    """
    return _encode(record).encode("utf-8", "backslashreplace") + b"\n"


def clip(text: str, limit: int) -> str:
    """
    ``text`` whole if its JSON form is at most ``limit`` bytes, else its beginning with a mark that says how long it was.

    The mark carries a digest of the whole text, so two long names that begin alike stay two names; the result depends on nothing
    but ``text`` and ``limit``, so an adapter keeps one name in every record.

    >>> clip("legal-v2", 40)
    'legal-v2'
    >>> clip("a" * 100, 60)
    'aaaaaaaaaaaaaaaaaa…[cut: 100 characters, 2816597888e4a0]'
    """
    if len(text) * 6 + 2 <= limit:
        return text
    raw = _encode(text).encode("utf-8", "backslashreplace")
    if len(raw) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:14]
    mark = f"…[cut: {len(text)} characters, {digest}]"
    kept = text[: max(limit - len(mark.encode()) - 2, 0)]
    while kept and len(_encode(kept).encode("utf-8", "backslashreplace")) + len(mark.encode()) > limit:
        kept = kept[: len(kept) * 9 // 10]
    return kept + mark


def segment_name(boot: str, seq: int) -> str:
    """File name of the segment of ``boot`` whose first record is ``seq``."""
    return f"{boot}.{seq:012d}.jsonl"


def parse(line: bytes, boot: str) -> dict[str, Any] | None:
    """
    The record in ``line``, or None where it is no record of ``boot``.

    What stands before the last start of a record on the line is dropped: a torn write may have no newline of its own. That is
    sound, since inside a JSON string the quotes of ``{"v":1,`` would be escaped.
    """
    start = line.rfind(b'{"v":1,')
    if start < 0:
        return None
    try:
        text = line[start:].decode("utf-8", "surrogatepass")
        record, end = _decode(text)
    except (ValueError, RecursionError):
        return None
    if (
        text[end:].strip()
        or not isinstance(record, dict)
        or record.get("boot") != boot
        or type(record.get("seq")) is not int
        or record["seq"] < 1
    ):
        return None
    return record if isinstance(record.get("kind"), str) and type(record.get("at")) is int else None


@dataclass(slots=True)
class Header:
    """
    What the writer keeps beside its log, so that a kill loses nothing silently.

    ``issued`` records were given a seq, ``open`` operations will be a record but are not yet, ``stopped`` is 1 after an orderly
    end.
    """

    issued: int = 0
    open: int = 0
    role: int = 0
    started_at: int = 0
    engine: int = 0
    stopped: int = 0

    def to_bytes(self) -> bytes:
        """The 64 bytes of the file."""
        return _HEADER.pack(_MAGIC, 1, self.issued, self.open, self.role, self.started_at, self.engine, self.stopped)

    @classmethod
    def read(cls, path: Path) -> "Header | None":
        """The header at ``path``; None where there is none or it is damaged."""
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        if len(raw) < _HEADER.size:
            return None
        magic, version, *fields = _HEADER.unpack_from(raw)
        return cls(*fields) if (magic, version) == (_MAGIC, 1) else None


def writer_lives(path: Path) -> bool:
    """
    Is the lock on the header at ``path`` held by another process?

    A process can't see its own locks this way (and would drop them): ask from outside the writer only.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
