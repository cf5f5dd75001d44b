"""Snapshots: long lists as several records, each short enough for a line."""

from collections.abc import Iterable, Sequence
from typing import Any

ROWS_BYTES = 48_000
"""Bytes of rows in one record, if every character took the six bytes of a JSON escape; one long row may take more, alone."""


def in_parts(rows: Iterable[tuple[str, Sequence[Any]]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """
    ``rows``, each under the list it belongs to, as the bodies of as few records as keep a line short; at least one.

    ``part`` counts from 1 to ``parts``: part 1 replaces what was known, the others add to it. Every body has all of ``keys``.

    >>> in_parts([("cpu", ["a", 1])], ("gpu", "cpu"))
    [{'gpu': [], 'cpu': [['a', 1]], 'part': 1, 'parts': 1}]
    """
    bodies: list[dict[str, Any]] = [{key: [] for key in keys}]
    size = 0
    for key, row in rows:
        weight = 48 + 6 * sum(len(cell.encode("utf-8", "replace")) for cell in row if isinstance(cell, str))
        if size and size + weight > ROWS_BYTES:
            bodies.append({key: [] for key in keys})
            size = 0
        size += weight
        bodies[-1][key].append(list(row))
    return [{**body, "part": number, "parts": len(bodies)} for number, body in enumerate(bodies, 1)]
