"""Values of ours as programs read them: trees of what JSON and YAML know."""

import math
from enum import Enum
from typing import Any

from lora_watch.diagnose.incidents import utc


def plain(value: Any) -> Any:
    """
    What :func:`dataclasses.asdict` made, with windows as ISO 8601, enums as what they stand for, and null for what is not finite.

    >>> plain({"judged": {"start": 0, "end": 1_000_000}, "saved": float("nan"), "of": ("a",)})
    {'judged': {'start': '1970-01-01T00:00:00Z', 'end': '1970-01-01T00:00:01Z'}, 'saved': None, 'of': ['a']}
    """
    if isinstance(value, dict):
        if set(value) == {"start", "end"}:
            return {"start": utc(value["start"]), "end": utc(value["end"])}
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.value if isinstance(value, Enum) else value
