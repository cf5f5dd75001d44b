"""Every expression of every board returns series on a real Prometheus that holds a simulated cluster, in both installs."""

import re
from collections.abc import Iterator

import pytest
import yaml
from boards.committed import COMMITTED, ROOT, filled_in, panels
from prometheus_client import generate_latest
from rules.laid import Laid, Line, Real, lay, lines, prometheus, wait_for

from lora_watch import names
from lora_watch.boards.files import BOARDS
from lora_watch.boards.panel import Install
from lora_watch.exporter import Exporter
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install as Rules

pytestmark = pytest.mark.slow
PANELS = {
    (board.uid, panel.title): panel
    for board in BOARDS
    for panel in (*board.first, *(p for row in board.rows for p in row.panels))
}
ASKED = [(*key, install) for key, panel in PANELS.items() for install in panel.installs]
POD = "vllm-0"
MOST_SERIES = 200
"""No panel draws more, of however many pods and adapters."""
FIRING = f'{names.ALERTS}{{alertstate="firing"}}'


def healthy() -> list[Line]:
    """What the service tells about itself, over ten minutes."""
    exporter = Exporter(adapters=1)
    for source in ("agents-events", "engines"):
        exporter.source_lag.labels(source).set(2.0)
        exporter.source_success.labels(source).set(1.0)
        for counter in (exporter.source_rows, exporter.source_errors, exporter.source_lost, exporter.source_late):
            counter.labels(source)
    for job in ("diagnose", "derive"):
        exporter.job_success.labels(job).set(1.0)
        for outcome in ("succeeded", "failed"):
            exporter.job_runs.labels(job, outcome)
    told: list[Line] = []
    for ago in range(600, -1, -30):
        exporter.job_seconds.labels("diagnose").observe(0.7)
        exporter.job_seconds.labels("derive").observe(1.2)
        page = generate_latest(exporter.registry).decode()
        told += lines(page, {"instance": "lora-watch-2", "job": "lora-watch"}, float(ago))
    return told


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Laid:
    return lay(tmp_path_factory.mktemp("laid"))


@pytest.fixture(scope="module")
def servers(laid: Laid, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Install, Real]]:
    """A Prometheus of each install; alerts fire as soon as their condition holds."""
    folder = tmp_path_factory.mktemp("servers")
    both = (*laid.raw, *laid.full, *healthy())
    with (
        prometheus(folder / "raw", laid.raw, at_once(Rules.RAW)) as raw,
        prometheus(folder / "full", both, at_once(Rules.FULL)) as full,
    ):
        for server in (raw, full):
            wait_for(lambda server=server: bool(server.query(names.POOL_RHO_PEAK_RECORD) and server.query(FIRING)), 60)
        yield {Install.RAW: raw, Install.FULL: full}


def at_once(install: Rules) -> str:
    return re.sub(r"(?m)^( +(?:for|keep_firing_for)): .*$", r"\1: 0s", rules(install))


@pytest.mark.parametrize(("uid", "title", "install"), ASKED, ids=[f"{install}-{title}" for _, title, install in ASKED])
def test_every_query_of_a_panel_returns_series_but_not_too_many(
    uid: str, title: str, install: Install, servers: dict[Install, Real]
):
    (drawn,) = [one for one in panels(COMMITTED[uid]) if one["title"] == title]
    for query, target in zip(PANELS[uid, title].queries, drawn["targets"], strict=True):
        if install in query.installs:
            found = servers[install].query(filled_in(target["expr"], pod=POD))
            assert 0 < len(found) <= MOST_SERIES, f"{query.name}: {target['expr']}"


@pytest.mark.parametrize("install", Install)
@pytest.mark.parametrize("uid", COMMITTED)
def test_every_variable_has_values(uid: str, install: Install, servers: dict[Install, Real]):
    for variable in COMMITTED[uid]["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            found = servers[install].query(filled_in(selector))
            assert found, variable["name"]
            assert label == "role" or all(labels.get(label) for labels, _ in found)


def test_findings_and_alerts_are_marked(servers: dict[Install, Real]):
    marks = {mark["name"]: filled_in(mark["target"]["expr"]) for mark in COMMITTED["lora-watch-overview"]["annotations"]["list"]}
    assert servers[Install.FULL].query(marks["Findings"])
    assert all(server.query(marks["Alerts"]) for server in servers.values())


def test_figures_of_a_rule_have_the_labels_of_its_alert(servers: dict[Install, Real]):
    raised = 0
    for group in yaml.safe_load((ROOT / "grafana/provisioning/alerting/rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            asked = {one["refId"]: one["model"]["expr"] for one in rule["data"] if "expr" in one["model"]}
            found = {ref: [labels for labels, _ in servers[Install.FULL].query(expr)] for ref, expr in asked.items()}
            for labels in found.pop("A"):
                raised += 1
                assert "__name__" not in labels
                assert all(labels in others for others in found.values()), rule["title"]
    assert raised


def test_rules_of_grafana_are_raised_where_those_of_prometheus_are(servers: dict[Install, Real]):
    server = servers[Install.FULL]
    asked = {
        rule["title"]: rule["data"][0]["model"]["expr"]
        for group in yaml.safe_load((ROOT / "grafana/provisioning/alerting/rules.yaml").read_text())["groups"]
        for rule in group["rules"]
    }

    def raised() -> tuple[set[str], set[str]]:
        ours = {title for title, expr in asked.items() if any(value > 0 for _, value in server.query(expr))}
        return ours, {labels["alertname"] for labels, _ in server.query(FIRING)}

    def agreed() -> bool:
        ours, theirs = raised()
        return ours == theirs

    assert wait_for(agreed, 30), raised()
