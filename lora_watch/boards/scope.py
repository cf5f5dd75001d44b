"""What every board is asked about: its variables, and the matchers and links that hold their values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lora_watch import links, names

DATASOURCE = "${datasource}"
POOL = 'cluster=~"$cluster",pool=~"$pool",role=~"$role"'
"""Matchers of the pools that are chosen; prefill and decode are kept apart by ``role``."""
POD = f'{POOL},pod=~"$pod"'
ADAPTER = f'{POOL},adapter=~"$adapter"'
BY_POOL = "cluster, pool, role"
BY_POD = f"{BY_POOL}, pod"
MEDIAN, P95 = 'quantile="0.5"', 'quantile="0.95"'
WHOLE = ".*"
"""The value of a variable when all are chosen; it matches series that lack the label as well."""


def of(metric: str, matchers: str = POOL, further: str = "") -> str:
    """
    The selector of a metric's series that are chosen.

    >>> of("up", 'pod=~"$pod"', 'state="open"')
    'up{pod=~"$pod",state="open"}'
    """
    return f"{metric}{{{','.join(filter(None, (matchers, further)))}}}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable whose values are those of a label: of the series ``within`` the ones chosen before it."""

    label: str
    title: str
    description: str
    within: str

    @property
    def query(self) -> str:
        """Grafana's query for its values."""
        return f"label_values({self.within}, {self.label})"


VARIABLES: Mapping[str, Variable] = {
    "cluster": Variable("cluster", "Cluster", "Clusters whose pods are watched", names.POD_SLOTS_RECORD),
    "pool": Variable("pool", "Pool", "Pools of the chosen clusters", of(names.POD_SLOTS_RECORD, 'cluster=~"$cluster"')),
    "role": Variable(
        "role",
        "Role",
        "Prefill, decode, or neither: never averaged together",
        of(names.POD_SLOTS_RECORD, 'cluster=~"$cluster",pool=~"$pool"'),
    ),
    "pod": Variable("pod", "Pod", "Pods of the chosen pools", of(names.POD_SLOTS_RECORD)),
    "adapter": Variable(
        "adapter",
        "Adapter",
        "Adapters of the chosen pools; those past the cap are called other",
        of(names.ADAPTER_REQUESTS_RECORD),
    ),
}
"""By name, in the order in which each needs the ones before it."""


TEXTS: Mapping[str, tuple[str, str, str]] = {
    "explorer": ("Explorer", links.EXPLORER, "Where lora_watch's explorer is served; panels link to it"),
    "runbooks": ("Runbooks", links.RUNBOOKS, "Where the runbooks are served, one page a kind of finding and a file a page"),
}
"""Text boxes: name → title, what stands in it at first, description."""
RUNBOOK = "${runbooks}/${__value.raw}.md"
"""The runbook of the kind of finding in the cell that was clicked on."""


def chosen(variables: tuple[str, ...]) -> Iterator[tuple[str, Variable]]:
    """These variables with their names, each after the ones it needs."""
    for name, variable in VARIABLES.items():
        if name in variables:
            yield name, variable


def explorer_link(variables: tuple[str, ...], **instead: str) -> str:
    """The explorer at the board's window and at what is chosen; ``instead`` replaces a variable's value by another's."""
    window = {"from": "${__from}", "to": "${__to}"}
    values = {name: f"${{{name}:percentencode}}" for name, _ in chosen(variables)}
    return links.explorer("${explorer}", {**window, **values, **instead})


def series_label(label: str) -> str:
    """Grafana's placeholder for a label of the series that was clicked on."""
    return f"${{__field.labels.{label}:percentencode}}"


def row_value(title: str) -> str:
    """Grafana's placeholder for a column of the table's row that was clicked on."""
    return f'${{__data.fields["{title}"]:percentencode}}'


def exactly(placeholder: str) -> str:
    """For the explorer: this name, whatever it looks like (``.*`` and ``{a,b}`` are names too)."""
    return f"={placeholder}"


def board_link(uid: str, values: Mapping[str, str]) -> str:
    """
    Another board at the same window and choice of pools, with these variables.

    A series or row may lack the label of a pool or role, so what is chosen is handed on, not what stands in it.
    """
    kept = "".join(f"&${{{name}:queryparam}}" for name in ("datasource", *TEXTS, "cluster", "pool", "role"))
    told = "".join(f"&var-{name}={value}" for name, value in values.items())
    return f"/d/{uid}?${{__url_time_range}}{kept}{told}"
