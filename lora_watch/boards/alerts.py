"""
The alerts of ``rules`` as Grafana-managed rules, in the shape that Grafana's file provisioning reads.

They read the recorded series, so Prometheus still evaluates the recording rules. A template of Grafana's cannot ask Prometheus
anything, so each figure that a summary tells becomes a query of the rule; its value is that of the alert's own labels.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml
from grafana_foundation_sdk.builders import alerting, expr, prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.alerting import RelativeTimeRange

from lora_watch.boards import uids
from lora_watch.boards.overview import BOARD
from lora_watch.boards.panel import Kind, stable_id
from lora_watch.rules.catalogue import alerts
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install

EXPRESSIONS = "__expr__"
"""What Grafana calls its own evaluation of expressions, among data sources."""
LOOK = RelativeTimeRange(from_val=600, to=0)
"""The window of an instant query, in seconds; only its end matters."""
CONDITION = "C"
FIGURES = "DEFGHIJKLMNOPQRSTUVWXYZ"
"""Queries of the figures in a summary."""
_LOOKUP = re.compile(
    r'\{\{ with (?:printf )?"(?P<series>(?:100 \* )?[\w:]+)(?:\{(?P<by>(?:[^"\\]|\\.)*)\})?"(?: \$labels\.\w+)* \| query \}\}'
    r"\{\{ \. \| first \| value \| (?P<shown>[^{}]+) \}\}\{\{ else \}\}unknown\{\{ end \}\}"
)
_NAMES = re.compile(r' ?\(busiest: \{\{ with printf "topk.*?\{\{ else \}\}unknown\{\{ end \}\}\)')
"""Names of adapters are labels that the alert has not; the board names them."""


SERIES = {alert.name: alert.condition.any_of[0].main.series for alert in alerts(Install.FULL)}
"""Alert → the recorded series that it is about."""


def document() -> dict[str, Any]:
    """The file: each group of alerts, of the full install; what that one alone can tell has no series in the raw one."""
    told = yaml.safe_load(rules(Install.FULL))
    groups = [{**group, "rules": [rule for rule in group["rules"] if "alert" in rule]} for group in told["groups"]]
    return {"apiVersion": 1, "groups": [_provisioned(group) for group in groups if group["rules"]]}


def _provisioned(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of Prometheus' as files have it."""
    return {
        "orgId": 1,
        "name": group["name"],
        "folder": uids.FOLDER_TITLE,
        "interval": group["interval"],
        "rules": [_provisioned_rule(json.loads(json.dumps(_rule(one).build(), cls=JSONEncoder))) for one in group["rules"]],
    }


def _provisioned_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The SDK writes the shape of Grafana's interface, which has more keys than files and spells one otherwise."""
    kept = {key: value for key, value in rule.items() if key not in ("folderUID", "orgID", "ruleGroup", "keep_firing_for")}
    return {**kept, **({"keepFiringFor": rule["keep_firing_for"]} if "keep_firing_for" in rule else {})}


def _rule(alert: Mapping[str, Any]) -> alerting.Rule:
    words = {name: alert["annotations"][name] for name in ("summary", "description", "runbook_url", "explorer_url")}
    summary, figures = figures_of(words["summary"])
    built = (
        alerting.Rule(alert["alert"])
        .uid(uid_of(alert["alert"]))
        .condition(CONDITION)
        .with_query(_query("A", f"({' '.join(alert['expr'].split())}) ^ 0"))
        .with_query(_expression("B", expr.TypeReduce().expression("A").reducer("last")))
        .with_query(_expression(CONDITION, _above("B", 0)))
        .no_data_state("OK")  # no series is how it looks while nothing is wrong; LoraWatchBlind tells the other case
        .exec_err_state("Error")
        .for_val(alert["for"])
        .labels({name: value.replace("$", "$$") for name, value in alert["labels"].items()})
        .annotations({**words, "summary": summary, **_panel_of(alert["alert"])})
    )
    for ref, series in zip(FIGURES, figures, strict=False):
        built = built.with_query(_query(ref, f"{series} * 1"))
    return built.keep_firing_for(alert["keep_firing_for"]) if "keep_firing_for" in alert else built


def figures_of(summary: str) -> tuple[str, tuple[str, ...]]:
    """
    A summary as Grafana can fill it in, and the recorded series whose values stand in it, in the order of their queries.

    ValueError where it asks for something that a query of the rule cannot tell.

    >>> figures_of('{{ with printf "x:y{pool=%q}" $labels.pool | query }}'
    ...            '{{ . | first | value | humanize }}{{ else }}unknown{{ end }} swaps')
    ('{{ if $values.D.Labels }}{{ $values.D.Value | humanize }}{{ else }}unknown{{ end }} swaps', ('x:y',))
    """
    found: dict[str, str] = {}

    def filled(match: re.Match[str]) -> str:
        if match["by"] and "=%q" not in match["by"]:
            raise ValueError(f"not of the alert's own labels: {match[0]}")
        ref = found.setdefault(match["series"], FIGURES[len(found)])
        return (
            f"{{{{ if $values.{ref}.Labels }}}}{{{{ $values.{ref}.Value | {match['shown']} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
        )

    text = _LOOKUP.sub(filled, _NAMES.sub("", summary))
    if "query" in text:
        raise ValueError(f"Grafana can't ask: {text}")
    return text, tuple(found)


def uid_of(name: str) -> str:
    """
    The stable address of a rule.

    >>> uid_of("LoraHardCliff")
    'lora-hard-cliff'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _query(ref: str, promql: str) -> alerting.Query:
    model = prometheus.Dataquery().expr(promql).instant().ref_id(ref)
    return alerting.Query(ref).datasource_uid(uids.SOURCE).relative_time_range(LOOK).model(model)


def _expression(ref: str, model: expr.TypeReduce | expr.TypeThreshold) -> alerting.Query:
    return alerting.Query(ref).datasource_uid(EXPRESSIONS).relative_time_range(LOOK).model(model.ref_id(ref))


def _above(ref: str, limit: float) -> expr.TypeThreshold:
    evaluator = expr.ExprTypeThresholdConditionsEvaluator().type("gt").params([limit])
    return expr.TypeThreshold().expression(ref).conditions([expr.ExprTypeThresholdConditions().evaluator(evaluator)])


def _panel_of(alert: str) -> dict[str, str]:
    """The panel of lines that draws what the alert is about, where there is one: annotations that Grafana knows."""
    for row in BOARD.rows:
        for panel in row.panels:
            if panel.kind is Kind.LINES and any(SERIES[alert] in query.expr for query in panel.queries):
                return {"__dashboardUid__": BOARD.uid, "__panelId__": str(stable_id(BOARD.uid, panel.title))}
    return {}
