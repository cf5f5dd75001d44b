"""
What llm-d's Endpoint Picker (EPP) says on its `/metrics`, as rows of `samples`. GAIE 0.3 … 1.5, llm-d-router 0.4 … 0.10.

Tells, observed: requests, errors and queue by adapter; scheduling attempts by adapter **and** pod (the only series that joins the
two); the queue of each pod as the router sees it; pool averages. Tells, as activity: requests running by adapter or pod. Does
not tell: which adapter is resident, anywhere, in any version.

Its traps, each a test:

* every count is exported under two names, a new and a deprecated one: the newest present counts, they are never added;
* several routers of one pool each count their own requests: the router's name stays a label, so they never become one series;
* the endpoint is called `endpoint_name`, `pod_name`, `model_server_endpoint` or `model_server_pod`, and `<pod>-rank-<N>` is
  engine N of a pod;
* a failed attempt has no endpoint: it is the router's own row;
* `target_model_name` is the adapter, or the base model: those in ``base_models`` are no adapters; `model_name` is what the client
  asked for, which a rewrite may turn into another, so it is never taken for the adapter;
* Prometheus renames a label that its own target has too (`exported_namespace`): the renamed one is the router's;
* past 1,000 names the router says `other`, except in attempts, which are not capped: there it is a name like any other.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from lora_watch import names
from lora_watch.model import PodId, Provenance
from lora_watch.sources.placed import Place

FAMILIES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        family[0]: family
        for family in (
            names.EPP_REQUESTS,
            names.EPP_ERRORS,
            names.EPP_RUNNING,
            names.EPP_QUEUE,
            names.EPP_ATTEMPTS,
            names.EPP_POD_QUEUE,
            names.EPP_POD_IN_FLIGHT,
            names.EPP_READY,
            names.EPP_POOL_QUEUE,
            names.EPP_POOL_RUNNING,
            names.EPP_POOL_KV_CACHE,
        )
    }
)
"""Stored name → its names, newest first."""
ENDPOINT_LABELS = ("endpoint_name", "pod_name", "model_server_endpoint", "model_server_pod")
POOL_LABELS = ("inference_pool", "name")
ADAPTER_LABEL = "target_model_name"
FOLDED = "other"
"""What the router calls every name past its cap."""
_ACTIVITY = frozenset({names.EPP_RUNNING[0], names.EPP_POD_IN_FLIGHT[0]})
_BY_POD = frozenset({names.EPP_ATTEMPTS[0], names.EPP_POD_QUEUE[0], names.EPP_POD_IN_FLIGHT[0]})
_KEPT = ("model_name", ADAPTER_LABEL, "priority", "fairness_id", "status", "error_code", "producer_name")
_ADDRESS = ("namespace", "port")
"""Labels of an endpoint; elsewhere a label of that name is the scraping Prometheus' own."""
_WITH_ADDRESS = frozenset({names.EPP_ATTEMPTS[0], names.EPP_POD_IN_FLIGHT[0]})
_EXPORTED = "exported_"
_RANK = re.compile(r"(?P<pod>.+)-rank-(?P<engine>\d{1,9})", re.DOTALL | re.ASCII)


def endpoint(text: str) -> tuple[str, str | None]:
    """
    Pod and data-parallel engine of an endpoint's name.

    >>> endpoint("vllm-0-rank-3"), endpoint("vllm-0"), endpoint("-rank-1")
    (('vllm-0', '3'), ('vllm-0', None), ('-rank-1', None))
    """
    match = _RANK.fullmatch(text)
    return (match["pod"], str(int(match["engine"]))) if match else (text, None)


class Epp:
    """The router as a system; ``base_models`` are served names that are no adapters."""

    name = "router"
    families = FAMILIES

    def __init__(self, base_models: Collection[str] = ()) -> None:
        self._base = frozenset(base_models)

    def place(self, metric: str, labels: Mapping[str, str], exporter: PodId) -> Place | str:
        """The endpoint's pod where there is one, else the router itself; the pool is the exporter's, else the one it names."""
        labels = {**labels, **{name.removeprefix(_EXPORTED): text for name, text in labels.items() if name.startswith(_EXPORTED)}}
        pool = exporter.pool or next((labels[label] for label in POOL_LABELS if labels.get(label)), "")
        wanted = (*_KEPT, *_ADDRESS) if metric in _WITH_ADDRESS else _KEPT
        kept = {label: labels[label] for label in wanted if labels.get(label)}
        kept["router"] = exporter.pod
        where = next((labels[label] for label in ENDPOINT_LABELS if labels.get(label)), "") if metric in _BY_POD else ""
        pod, engine = endpoint(where) if where else (exporter.pod, None)
        if not pod:
            return f"{metric}: a series names neither an endpoint nor the router's pod"
        if engine is not None:
            kept["engine"] = engine
        return Place(
            PodId(exporter.cluster, pod, pool, exporter.role if pod == exporter.pod else ""),
            kept,
            self._adapter(metric, labels),
            Provenance.ACTIVITY if metric in _ACTIVITY else Provenance.OBSERVED,
        )

    def _adapter(self, metric: str, labels: Mapping[str, str]) -> str | None:
        name = labels.get(ADAPTER_LABEL) or None
        if name in self._base or (name == FOLDED and metric != names.EPP_ATTEMPTS[0]):
            return None
        return name
