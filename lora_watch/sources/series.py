"""Rows of the table `samples`: how a series is named and a sample becomes a row."""

import json
import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import polars as pl

from lora_watch.model import PodId, Provenance
from lora_watch.schema import SAMPLES

COLUMNS: Mapping[str, pl.DataType] = {name: dtype for name, dtype in SAMPLES.schema.items() if name not in {"date", "bucket"}}
"""What a row is given; ``date`` and ``bucket`` are computed when it is conformed."""

ADAPTER_LABELS = ("adapter_name", "lora_name", "adapter")
"""Labels that name an adapter, the first one present counts: the upstream proposals and our own agent."""


def labels_json(labels: Mapping[str, str]) -> str:
    """
    Labels as the column ``labels`` holds them: a JSON object, keys sorted, no spaces, text as it is.

    >>> labels_json({"b": "1", "a": "é"})
    '{"a":"é","b":"1"}'
    """
    return json.dumps(dict(labels), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def series_id(cluster: str, pod: str, metric: str, labels: str, adapter: str | None) -> str:
    """
    A stable 96-bit name of a series: BLAKE2b over the JSON array of its identity, as 24 hexadecimal digits.

    The array keeps the parts apart, so no choice of names makes two series one.

    >>> series_id("c", "p", "m", "{}", None)
    'd64eee350d80b3548f565cb2'
    """
    identity = json.dumps([cluster, pod, metric, labels, adapter])
    return blake2b(identity.encode(), digest_size=12).hexdigest()


def sample_row(
    pod: PodId,
    at: int,
    metric: str,
    value: float,
    labels: Mapping[str, str],
    source: str,
    *,
    adapter: str | None = None,
    provenance: Provenance = Provenance.OBSERVED,
) -> dict[str, Any]:
    """One row of `samples`. ``adapter`` defaults to the label that names one; ``engine`` is the label of that name, else null."""
    if adapter is None:
        adapter = next((labels[label] for label in ADAPTER_LABELS if label in labels), None)
    text = labels_json(labels)
    return {
        "at": at,
        "cluster": pod.cluster,
        "pool": pod.pool,
        "role": pod.role,
        "pod": pod.pod,
        "engine": labels.get("engine"),
        "series": series_id(pod.cluster, pod.pod, metric, text, adapter),
        "metric": metric,
        "adapter": adapter,
        "labels": text,
        "value": value,
        "provenance": str(provenance),
        "source": source,
    }


def sample_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a conformed frame of `samples`; none gives the empty one."""
    return SAMPLES.conform(pl.DataFrame(list(rows), schema=dict(COLUMNS), orient="row"))


def is_finite(value: float) -> bool:
    """Can the value be stored? NaN and infinities say "unknown", and unknown is no row at all."""
    return math.isfinite(value)
