"""What Grafana reads at its start: the data source, the boards' folder, rules, contact points, policies."""

from typing import Any

import yaml

from lora_watch.boards import alerts, uids

HEAD = "# Rendered from lora_watch/boards. Do not edit: copy it, or change the values and run `make render`.\n"
WIDTH = 1000
"""No line of a text is broken."""
SCRAPE = "15s"
"""How often Prometheus scrapes: Grafana takes rates over four times as long."""
BOARDS_FOLDER = "/etc/grafana/dashboards/lora-watch"
HARM, CHAT, MAIL = "page", "chat", "mail"
"""Contact points, named as the receivers in alerts/alertmanager.yml."""
CLUSTERS_WITHOUT_ON_CALL = "(dev|staging|test)(-.*)?"


def text(document: dict[str, Any], *notes: str) -> str:
    """A provisioning file."""
    head = HEAD + "".join(f"# {note}\n" for note in notes)
    return head + yaml.safe_dump(document, sort_keys=False, width=WIDTH, allow_unicode=True)


def datasource() -> str:
    """The Prometheus that scrapes agents, engines and the service, and evaluates the recording rules."""
    source = {
        "name": "lora_watch",
        "uid": uids.SOURCE,
        "orgId": 1,
        "type": "prometheus",
        "access": "proxy",
        "url": "http://127.0.0.1:9090",
        "isDefault": False,
        "editable": False,
        "jsonData": {"httpMethod": "POST", "timeInterval": SCRAPE, "manageAlerts": False, "prometheusType": "Prometheus"},
    }
    return text({"apiVersion": 1, "datasources": [source]}, "Fill in: url, and timeInterval where Prometheus scrapes otherwise.")


def dashboards() -> str:
    """Where the boards lie."""
    provider = {
        "name": "lora-watch",
        "orgId": 1,
        "folder": uids.FOLDER_TITLE,
        "folderUid": uids.FOLDER,
        "type": "file",
        "disableDeletion": False,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 60,
        "options": {"path": BOARDS_FOLDER, "foldersFromFilesStructure": False},
    }
    return text({"apiVersion": 1, "providers": [provider]}, "Fill in: path, the folder with the files of grafana/dashboards.")


def rules() -> str:
    """The alerts as Grafana-managed rules."""
    return text(
        alerts.document(),
        "Either these or the alerts in alerts/rules: with both, everything is said twice.",
        "They read what alerts/rules records, so Prometheus evaluates those files all the same.",
    )


def contact_points() -> str:
    """Who is told. Secrets come out of the environment of Grafana."""
    points = (
        (HARM, "pagerduty", {"integrationKey": "$LORA_WATCH_PAGERDUTY_KEY", "severity": "critical"}),
        (CHAT, "slack", {"url": "$LORA_WATCH_SLACK_URL"}),
        (MAIL, "email", {"addresses": "llm-serving@example.org", "singleEmail": True}),
    )
    told = [
        {"orgId": 1, "name": name, "receivers": [{"uid": f"lora-watch-{name}", "type": kind, "settings": settings}]}
        for name, kind, settings in points
    ]
    return text(
        {"apiVersion": 1, "contactPoints": told},
        "Set LORA_WATCH_PAGERDUTY_KEY and LORA_WATCH_SLACK_URL for Grafana: it does not start with an empty one.",
    )


def policies() -> str:
    """Who is told what: as alerts/alertmanager.yml, but for inhibition, which Grafana's own Alertmanager has not."""
    by_pool = ["cluster", "pool"]
    routes = [
        {"receiver": CHAT, "object_matchers": [["cluster", "=~", CLUSTERS_WITHOUT_ON_CALL]]},
        {"receiver": CHAT, "object_matchers": [["watcher", "=", "true"]], "group_by": ["cluster", "alertname"]},
        {"receiver": HARM, "object_matchers": [["severity", "=", "page"]], "repeat_interval": "4h"},
        {"receiver": CHAT, "object_matchers": [["severity", "=", "warn"]]},
        {
            "receiver": MAIL,
            "object_matchers": [["severity", "=", "info"]],
            "group_by": ["cluster"],
            "repeat_interval": "168h",
            "active_time_intervals": [WORKING_HOURS],
        },
    ]
    ours = {"receiver": CHAT, "object_matchers": [["lora_watch", "=", "true"]], "group_by": by_pool, "routes": routes}
    root = {
        "orgId": 1,
        "receiver": CHAT,
        "group_by": by_pool,
        "group_wait": "30s",
        "group_interval": "5m",
        "repeat_interval": "12h",
        "routes": [ours],
    }
    return text(
        {"apiVersion": 1, "policies": [root]},
        "Replaces the whole tree of policies of the organisation: where you have one, copy the route of lora_watch into it.",
    )


WORKING_HOURS = "lora-watch-working-hours"


def mute_times() -> str:
    """When configuration is worth a mail."""
    hours = {
        "orgId": 1,
        "name": WORKING_HOURS,
        "time_intervals": [
            {"times": [{"start_time": "08:00", "end_time": "18:00"}], "weekdays": ["monday:friday"], "location": "UTC"}
        ],
    }
    return text({"apiVersion": 1, "muteTimes": [hours]})
