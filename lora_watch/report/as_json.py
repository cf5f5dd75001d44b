"""The report as JSON: the value itself, field by field, for programs."""

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from lora_watch.diagnose.incidents import utc
from lora_watch.model import Window
from lora_watch.report.weekly import WeeklyReport
from lora_watch.report.weeks import Week

MOMENTS = frozenset({"at", "start", "end", "looked", "made_at", "learning_cut"})
"""Fields that are moments, µs UTC: told as ISO 8601."""
FORM = 1
"""Of the shape: it grows by fields; a change of meaning counts it up."""


def as_json(report: WeeklyReport) -> str:
    """One JSON object in ASCII, indented; unknown, and what is not finite, is null; shares are ratios, times ISO 8601 in UTC."""
    return json.dumps({"form": FORM, **tree(report)}, indent=1, allow_nan=False) + "\n"


def tree(report: WeeklyReport) -> dict[str, Any]:
    """The same as a tree of plain values."""
    made = _plain(report)
    assert isinstance(made, dict)
    return made


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, Week):
        return {"name": value.name, **_plain(value.window)}
    if isinstance(value, Window):
        return {"start": utc(value.start), "end": utc(value.end)}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name), one.name) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if name in MOMENTS and isinstance(value, int):
        return utc(value)
    return value
