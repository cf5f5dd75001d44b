"""What Grafana's loaders of provisioning files require, and that the rules are those of Prometheus."""

import re
from datetime import timedelta

import promql_parser
import pytest
import yaml
from boards.committed import COMMITTED, ROOT, panels

from lora_watch import names
from lora_watch.boards.alerts import figures_of
from lora_watch.config import show_duration
from lora_watch.rules.catalogue import alerts
from lora_watch.rules.rule import Install

FOLDER = ROOT / "grafana" / "provisioning"
TEXTS = {str(file.relative_to(FOLDER)): file.read_text(encoding="utf-8") for file in sorted(FOLDER.rglob("*.yaml"))}
FILES = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
RULES = [(group, rule) for group in FILES["alerting/rules.yaml"]["groups"] for rule in group["rules"]]
RULE = pytest.mark.parametrize("rule", [rule for _, rule in RULES], ids=[rule["title"] for _, rule in RULES])
OF_A_RULE = {"uid", "title", "condition", "data", "for", "keepFiringFor", "noDataState", "execErrState", "annotations", "labels"}
BEAT = 10
"""Grafana's scheduler beats every so many seconds; intervals are multiples of it."""


def seconds(text: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    parts = re.findall(r"(\d+)([smhd])", text)
    assert "".join(number + unit for number, unit in parts) == text
    return sum(int(number) * units[unit] for number, unit in parts)


def test_every_file_says_its_version():
    assert all(file["apiVersion"] == 1 for file in FILES.values())


def test_there_is_a_rule_for_every_alert_with_its_times():
    ours = {
        alert.name: (show_duration(alert.condition.for_), show_duration(alert.condition.keep) if alert.condition.keep else None)
        for alert in alerts(Install.FULL)
    }
    assert {rule["title"]: (rule["for"], rule.get("keepFiringFor")) for _, rule in RULES} == ours


def test_addresses_and_titles_are_different_and_short_enough():
    uids = [rule["uid"] for _, rule in RULES]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid) for uid in uids)
    titles = [(group["folder"], rule["title"]) for group, rule in RULES]
    assert len(set(titles)) == len(titles)


def test_groups_beat_with_the_scheduler():
    for group, _ in RULES:
        assert {"orgId", "name", "folder", "interval", "rules"} == set(group)
        assert seconds(group["interval"]) % BEAT == 0


@RULE
def test_a_rule_has_what_the_loader_requires_and_nothing_it_does_not_know(rule: dict):
    assert set(rule) <= OF_A_RULE
    assert {"uid", "title", "condition", "data", "noDataState", "execErrState"} <= set(rule)
    assert rule["noDataState"] in ("OK", "NoData", "Alerting", "KeepLast")
    assert rule["execErrState"] in ("OK", "Error", "Alerting", "KeepLast")
    assert rule["condition"] in {query["refId"] for query in rule["data"]}
    for query in rule["data"]:
        assert query["datasourceUid"] in ("__expr__", FILES["datasources/lora-watch.yaml"]["datasources"][0]["uid"])
        assert query["refId"] == query["model"]["refId"]
        assert query["relativeTimeRange"]["from"] > query["relativeTimeRange"]["to"] >= 0


@RULE
def test_what_a_rule_asks_is_promql_over_known_series(rule: dict):
    for query in rule["data"]:
        if query["datasourceUid"] == "__expr__":
            assert query["model"]["expression"] in {other["refId"] for other in rule["data"]}
            continue
        promql_parser.parse(query["model"]["expr"])
        for series in re.findall(r"\b\w+:lora_\w+:\w+", query["model"]["expr"]):
            assert series in vars(names).values()


@RULE
def test_annotations_ask_nothing_and_every_figure_in_them_has_its_query(rule: dict):
    told = rule["annotations"]
    assert {"summary", "description", "runbook_url", "explorer_url"} <= set(told)
    assert "query" not in told["summary"]
    assert set(re.findall(r"\$values\.(\w+)", told["summary"])) <= {query["refId"] for query in rule["data"]}
    assert not re.search(r"\$\{|\$[A-Z]", "".join(told.values()))


@RULE
def test_dollars_in_labels_are_doubled_for_grafana_expands_them(rule: dict):
    assert all("$" not in value.replace("$$", "") for value in rule["labels"].values())


@RULE
def test_the_panel_of_a_rule_is_there(rule: dict):
    told = rule["annotations"]
    if "__panelId__" in told:
        assert int(told["__panelId__"]) in {panel["id"] for panel in panels(COMMITTED[told["__dashboardUid__"]])}


def test_policies_name_contact_points_and_times_that_are_there():
    points = {point["name"] for point in FILES["alerting/contact-points.yaml"]["contactPoints"]}
    times = {entry["name"] for entry in FILES["alerting/mute-times.yaml"]["muteTimes"]}
    waiting = list(FILES["alerting/policies.yaml"]["policies"])
    while waiting:
        route = waiting.pop()
        assert route["receiver"] in points
        assert set(route.get("active_time_intervals", [])) <= times
        assert all(operator in ("=", "!=", "=~", "!~") for _, operator, _ in route.get("object_matchers", []))
        waiting += route.get("routes", [])


def routed(labels: dict[str, str]) -> str:
    """The contact point that labels lead to."""
    route = FILES["alerting/policies.yaml"]["policies"][0]
    while True:
        fits = [
            one
            for one in route.get("routes", [])
            if all(
                re.fullmatch(value, labels.get(name, "")) if operator == "=~" else labels.get(name) == value
                for name, operator, value in one["object_matchers"]
            )
        ]
        if not fits:
            return route["receiver"]
        route = fits[0]


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"severity": "page", "cluster": "eu-1"}, "page"),
        ({"severity": "page", "cluster": "staging-1"}, "chat"),
        ({"severity": "warn", "cluster": "eu-1"}, "chat"),
        ({"severity": "warn", "watcher": "true"}, "chat"),
        ({"severity": "info", "cluster": "eu-1"}, "mail"),
    ],
)
def test_harm_pages_where_somebody_is_on_call_and_nothing_else_does(labels: dict[str, str], receiver: str):
    assert routed({"lora_watch": "true", **labels}) == receiver


def test_contact_points_are_those_of_alertmanager_and_hold_no_secret():
    points = FILES["alerting/contact-points.yaml"]["contactPoints"]
    theirs = yaml.safe_load((ROOT / "alerts" / "alertmanager.yml").read_text(encoding="utf-8"))["receivers"]
    assert {point["name"] for point in points} <= {receiver["name"] for receiver in theirs}
    for receiver in (receiver for point in points for receiver in point["receivers"]):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", receiver["uid"])
        secret = receiver["settings"].get("integrationKey") or receiver["settings"].get("url")
        assert secret is None or re.fullmatch(r"\$LORA_WATCH_\w+", secret)


def test_boards_come_from_files_and_are_not_changed_in_the_browser():
    (provider,) = FILES["dashboards/lora-watch.yaml"]["providers"]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
    assert provider["options"]["path"].startswith("/")
    assert {group["folder"] for group, _ in RULES} == {provider["folder"]}


def test_a_figure_that_no_query_can_tell_is_refused():
    with pytest.raises(ValueError, match="can't ask"):
        figures_of('{{ with printf "topk(1, x)" | query }}{{ end }}')
    with pytest.raises(ValueError, match="own labels"):
        figures_of('{{ with printf "x{a=\\"b\\"}" | query }}{{ . | first | value | humanize }}{{ else }}unknown{{ end }}')


def test_durations_are_read():
    assert seconds("1h30m") == timedelta(minutes=90).total_seconds()
