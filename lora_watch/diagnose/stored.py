"""The told states of findings as rows of their table, and back."""

import json
import math
from collections.abc import Iterable
from typing import Any

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Severity, as_dict, from_dict
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.schema import COMPUTED, FINDINGS

SOURCE = "diagnose"
UNREADABLE = "the details of this state cannot be read"


def rows(states: Iterable[State]) -> pl.DataFrame:
    """States as rows of FINDINGS. The whole finding is ASCII JSON in ``detail``: whatever a name holds, it is text there."""
    schema = {name: dtype for name, dtype in FINDINGS.schema.items() if name not in COMPUTED}
    return FINDINGS.conform(pl.DataFrame([_row(state) for state in states], schema=schema, orient="row"))


def states(frame: pl.DataFrame) -> list[State]:
    """
    Rows of FINDINGS as states, in the order of their times.

    A row whose details cannot be read (an import, a newer version) is told from its other columns, and says so in ``unknown``; a
    state or change that this version does not know is ``open`` and ``still there``.
    """
    return [_state(row) for row in frame.sort("at", "id").iter_rows(named=True)]


def _row(state: State) -> dict[str, Any]:
    finding = state.finding
    return {
        "at": state.at,
        "cluster": _text(finding.cluster),
        "pool": _text(finding.pool),
        "role": _text(finding.role),
        "id": state.id,
        "finding": _text(finding.kind),
        "scope": _text(finding.scope),
        "state": str(state.phase),
        "change": str(state.change),
        "severity": str(finding.severity),
        "confidence": str(finding.confidence),
        "weight": _finite(finding.weight),
        "told_weight": _finite(state.told_weight),
        "since": finding.since,
        "until": finding.until,
        "opened": state.opened,
        "seen": state.seen,
        "missed": state.missed,
        "blind_from": state.blind_from,
        "summary": _text(finding.summary),
        "detail": json.dumps(_clean(as_dict(finding)), allow_nan=False),
        "provenance": finding.provenance,
        "source": SOURCE,
    }


def _state(row: dict[str, Any]) -> State:
    return State(
        at=row["at"],
        id=row["id"],
        phase=Phase(row["state"]) if row["state"] in list(Phase) else Phase.OPEN,
        change=Change(row["change"]) if row["change"] in list(Change) else Change.STILL,
        opened=_or(row["opened"], row["at"]),
        seen=_or(row["seen"], row["at"]),
        missed=row["missed"],
        blind_from=row["blind_from"],
        told_weight=_or(row["told_weight"], math.nan),
        finding=_finding(row),
    )


def _finding(row: dict[str, Any]) -> Finding:
    try:
        told = json.loads(row["detail"] or "")
        finding = from_dict({**told, "weight": _or(told["weight"], math.nan)})
    except (ValueError, KeyError, TypeError, RecursionError):
        finding = None
    if finding is not None and isinstance(finding.since, int):
        return finding
    severity, confidence = row["severity"], row["confidence"]
    return Finding(
        kind=row["finding"] or "",
        severity=Severity(severity) if severity in list(Severity) else Severity.INFORMATION,
        cluster=row["cluster"] or "",
        pool=row["pool"] or "",
        role=row["role"] or "",
        since=_or(row["since"], row["at"]),
        summary=row["summary"] or "",
        cause="",
        confidence=Confidence(confidence) if confidence in list(Confidence) else Confidence.LOW,
        weight=_or(row["weight"], math.nan),
        until=row["until"],
        scope=row["scope"] or "",
        unknown=(UNREADABLE,),
    )


def _clean(value: Any) -> Any:
    """JSON has no NaN and no infinity: such a number is null."""
    if isinstance(value, dict):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(one) for one in value]
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(text: str) -> str:
    """Text that a column can hold: half a surrogate pair becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
