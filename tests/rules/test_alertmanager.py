"""The routes and messages for Alertmanager, by its own tool."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "alerts"
CONFIG = ALERTS / "alertmanager.yml"
HOSTILE = '"><script>alert(1)</script> <!channel> & *bold* {{ .Labels }} \u202e'


def amtool(*arguments: str) -> str:
    done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alert(status: str = "firing", **annotations: str) -> dict[str, object]:
    return {
        "status": status,
        "labels": {"alertname": "LoraSaturation", "severity": "page", "cluster": "eu", "pool": "chat"},
        "annotations": {"summary": "pool chat needs more than it has", **annotations},
        "startsAt": "2026-11-30T10:16:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example/graph",
    }


def rendered(name: str, tmp_path: Path, *alerts: dict[str, object], kind: str = "text") -> str:
    data = {
        "receiver": "chat",
        "status": "firing" if any(one["status"] == "firing" for one in alerts) else "resolved",
        "alerts": alerts,
        "groupLabels": {"cluster": "eu", "pool": "chat"},
        "commonLabels": {"severity": "page", "cluster": "eu", "pool": "chat"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example",
    }
    file = tmp_path / "data.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return amtool(
        *("template", "render", f"--template.glob={ALERTS}/templates/*.tmpl", f"--template.data={file}"),
        *(f"--template.type={kind}", f'--template.text={{{{ template "lora_watch.{name}" . }}}}'),
    )


def test_amtool_accepts_the_configuration():
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


def test_amtool_accepts_what_an_installed_package_has(tmp_path: Path):
    project = tomllib.loads((ALERTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in packed.items():
        if target.startswith("lora_watch/alertmanager"):
            (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ALERTS.parent / source).is_dir() else shutil.copy
            copy(ALERTS.parent / source, tmp_path / target)
    told = amtool("check-config", str(tmp_path / "lora_watch" / "alertmanager" / "alertmanager.yml"))
    assert "SUCCESS" in told
    assert "1 templates" in told


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ("severity=page cluster=eu-1 pool=chat", "page"),
        ("severity=page cluster=staging-2 pool=chat", "chat"),
        ("severity=warn cluster=eu-1 pool=chat", "chat"),
        ("severity=info cluster=eu-1 pool=chat", "mail"),
        ("severity=page watcher=true cluster=eu-1", "chat"),
        ("severity=warn watcher=true cluster=eu-1", "chat"),
    ],
)
def test_each_severity_reaches_its_receiver(labels: str, receivers: str):
    amtool(
        "config",
        "routes",
        "test",
        f"--config.file={CONFIG}",
        f"--verify.receivers={receivers}",
        "lora_watch=true",
        *labels.split(),
    )


def test_alerts_of_other_programs_never_page():
    amtool("config", "routes", "test", f"--config.file={CONFIG}", "--verify.receivers=chat", "severity=page", "alertname=Other")


def test_every_template_that_the_configuration_uses_is_defined():
    defined = (ALERTS / "templates" / "lora_watch.tmpl").read_text(encoding="utf-8")
    used = {part.split('"')[0] for part in CONFIG.read_text(encoding="utf-8").split('{{ template "')[1:]}
    assert used
    assert all(f'{{{{ define "{name}" -}}}}' in defined for name in used)


def test_nothing_secret_and_no_outside_address_stands_in_the_configuration():
    told = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    assert all("api_url" not in slack for one in told["receivers"] for slack in one.get("slack_configs", ()))
    assert all("routing_key" not in duty for one in told["receivers"] for duty in one.get("pagerduty_configs", ()))


def test_a_message_says_what_why_how_it_is_known_and_what_helps(tmp_path: Path):
    told = alert(
        cause="20 new adapters", evidence="events of 8 pods", remedy="+1 slot", runbook_url="https://r", explorer_url="http://e"
    )
    for name in ("text", "slack", "html"):
        text = rendered(name, tmp_path, told)
        for part in ("needs more than it has", "20 new adapters", "events of 8 pods", "+1 slot", "https://r", "http://e"):
            assert part in text, (name, part)


def test_a_title_of_several_says_how_many_and_a_long_one_is_cut(tmp_path: Path):
    assert rendered("title", tmp_path, alert(), alert(), alert()) == "pool chat needs more than it has (and 2 more)"
    assert len(rendered("title", tmp_path, alert(summary="x" * 5000))) == 201


def test_the_headline_is_what_still_fires(tmp_path: Path):
    over, open_ = alert("resolved", summary="slow loads"), alert(summary="pool code is full", explorer_url="http://code")
    assert rendered("title", tmp_path, over, open_) == "pool code is full"
    assert rendered("link", tmp_path, over, open_) == "http://code"


def test_what_is_not_known_has_no_line(tmp_path: Path):
    told = alert(cause="", evidence="", remedy="", description="")
    for name in ("text", "slack", "html"):
        text = rendered(name, tmp_path, told)
        assert all(word not in text for word in ("Why", "Known from", "What helps")), name


def test_what_is_over_is_said_to_be(tmp_path: Path):
    assert rendered("title", tmp_path, alert("resolved")).startswith("Resolved: ")
    assert rendered("color", tmp_path, alert("resolved")) == "good"


def test_hostile_names_are_text_in_html_and_in_slack(tmp_path: Path):
    told = alert(summary=HOSTILE, cause=HOSTILE, evidence=HOSTILE, remedy=HOSTILE, description=HOSTILE)
    html = rendered("html", tmp_path, told, kind="html")
    assert "<script" not in html
    assert not {"<", ">"} & set(rendered("title", tmp_path, told))
    slack = rendered("slack", tmp_path, told)
    assert "<!channel>" not in slack
    assert "<script" not in slack


def test_an_alert_without_annotations_is_still_a_message(tmp_path: Path):
    bare = alert()
    bare["annotations"] = {}
    for name in ("title", "text", "slack", "html", "link"):
        rendered(name, tmp_path, bare)
    assert rendered("link", tmp_path, bare) == "http://prometheus.example/graph"
