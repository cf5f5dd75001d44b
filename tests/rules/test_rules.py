"""What holds of every rule, in both installs and profiles, at any time scale."""

import re
import subprocess
from datetime import timedelta
from pathlib import Path

import promql_parser
import pytest
import yaml
from typer.testing import CliRunner

from lora_watch import names
from lora_watch.cli import app
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.rules.catalogue import alerts
from lora_watch.rules.pace import Pace
from lora_watch.rules.render import Addresses, prometheus_rule, rules
from lora_watch.rules.rule import Alert, Install, Profile, Recording, Severity

ROOT = Path(__file__).parents[2]
EVERY = [(install, profile) for install in Install for profile in Profile]
HISTOGRAMS = (*names.HISTOGRAMS, names.LOAD_SECONDS, names.AGENT_LOAD_SECONDS)
KNOWN = {
    *(text for text in vars(names).values() if isinstance(text, str)),
    *(name for text in vars(names).values() if isinstance(text, tuple) for name in text),
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count", "bucket")),
}
RECORDED = {text for name, text in vars(names).items() if name.endswith("_RECORD")}
TESTS = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "alerts" / "tests").glob("*.yaml")}


def document(install: Install, profile: Profile, **options) -> list[dict]:
    """The rules of a rendered file."""
    return [rule for group in yaml.safe_load(rules(install, profile, **options))["groups"] for rule in group["rules"]]


def metrics(expression: str) -> set[str]:
    """Names that a query reads."""

    def read(node: object) -> set[str]:
        if isinstance(node, promql_parser.VectorSelector):
            return {node.name} if node.name else set()
        parts = [getattr(node, part, None) for part in ("expr", "lhs", "rhs", "param", "vector_selector")]
        parts += getattr(node, "args", None) or []
        return {name for part in parts if part is not None for name in read(part)}

    return read(promql_parser.parse(expression))


def every_alert() -> dict[str, Alert]:
    return {one.name: one for install, profile in EVERY for one in alerts(install, profile)}


def test_the_reader_of_queries_finds_every_name():
    text = "sum by (a) (rate(x[5m])) > on (a) group_left () max_over_time(y:z[8h] offset 1h) and absent(q) or topk(3, (w))"
    text += " + min_over_time(r[5m:1m])"
    assert metrics(text) == {"x", "y:z", "q", "w", "r"}


@pytest.mark.parametrize(("install", "profile"), EVERY)
def test_rules_read_only_known_metrics(install: Install, profile: Profile):
    read = {name for rule in document(install, profile) for name in metrics(rule["expr"])}
    assert read <= KNOWN
    assert read


@pytest.mark.parametrize(("install", "profile"), EVERY)
def test_alerts_read_recorded_series_of_their_install_only(install: Install, profile: Profile):
    recorded = {rule["record"] for rule in document(install, Profile.DEFAULT) if "record" in rule}
    read = {name for rule in document(install, profile) if "alert" in rule for name in metrics(rule["expr"])}
    assert read <= recorded


def test_every_recorded_name_is_recorded_and_has_the_form_of_one():
    recorded = {rule["record"] for install in Install for rule in document(install, Profile.DEFAULT) if "record" in rule}
    assert recorded == RECORDED
    assert all(re.fullmatch(r"[a-z_]+:lora_[a-z_]+:[a-z0-9_]+", name) for name in RECORDED)


def test_the_raw_install_reads_nothing_of_the_service():
    told = {names.SLOTS, names.JOB_RUNS, names.FINDING_INFO, names.OPEN_FINDING, names.RECENT_SWAPS, names.PREDICTED_MISS_RATIO}
    text = "".join(rules(Install.RAW, profile) for profile in Profile)
    assert [name for name in told if name in text] == []


def test_both_installs_record_the_same_but_for_what_one_cannot_know():
    raw, full = ({rule["record"] for rule in document(install, Profile.DEFAULT) if "record" in rule} for install in Install)
    assert raw - full == set()
    assert full - raw == {names.POOL_PHANTOM_RECORD, names.WATCH_LAG_RECORD, names.WATCH_LOOKS_RECORD}


def test_an_alert_that_one_install_cannot_have_says_why():
    raw, full = ({one.name: one for one in alerts(install)} for install in Install)
    assert set(raw) - set(full) == set()
    assert {name: bool(full[name].why_only) for name in set(full) - set(raw)} == {
        "LoraPhantomAdapters": True,
        "LoraWatchLate": True,
    }


@pytest.mark.parametrize("alert", every_alert().values(), ids=lambda one: one.name)
def test_an_alert_waits_for_two_looks_at_least_and_each_limit_has_its_reason(alert: Alert):
    assert alert.condition.for_ >= timedelta(minutes=1)
    assert all(one.threshold.reason for one in alert.condition.compares)


@pytest.mark.parametrize("alert", every_alert().values(), ids=lambda one: one.name)
def test_an_alert_has_promtool_tests_that_it_fires_and_does_not(alert: Alert):
    for install in Install if alert.only is None else [alert.only]:
        (rule,) = [one for one in document(install, alert.profile) if one.get("alert") == alert.name]
        assert {"severity", "lora_watch"} <= set(rule["labels"])
        assert {"summary", "description", "runbook_url", "explorer_url"} <= set(rule["annotations"])
    asked = [
        check["exp_samples"]
        for text in TESTS.values()
        for test in yaml.safe_load(text)["tests"]
        for check in test["promql_expr_test"]
        if f'"{alert.name}"' in check["expr"]
    ]
    assert [] in asked
    assert any(asked)


def test_only_harm_pages():
    paged = {name for name, one in every_alert().items() if one.severity is Severity.PAGE and one.profile is Profile.DEFAULT}
    assert paged == {"LoraSaturation", "LoraGpuBusyNotInferring", "LoraHardCliff"}


def test_limits_that_findings_have_too_are_the_same_numbers():
    told = {one.series: one.threshold.value for alert in alerts(Install.RAW) for one in alert.condition.compares}
    assert told[names.POOL_RHO_PEAK_RECORD] == LIMITS["rho_peak"].enter
    assert told[names.POOL_PREDICTED_RECORD] == LIMITS["predicted_miss_ratio"].enter
    assert told[names.POOL_NEWMASS_RECORD] == LIMITS["newmass"].enter
    assert told[names.POOL_IN_FLIGHT_RECORD] == LIMITS["hard_cliff"].enter
    (saturation,) = [one for one in alerts(Install.RAW) if one.name == "LoraSaturation"]
    assert [clause.main.threshold.value for clause in saturation.condition.any_of] == [LIMITS["rho_peak"].enter, HARM_SHARE]


def test_the_limits_of_the_article_are_its_figures():
    told = sorted(one.threshold.value for alert in alerts(Install.RAW, Profile.ARTICLE) for one in alert.condition.compares)
    assert told == sorted([0.8, 0.5, 1.0, 300, 60, 0.1, 0.2, 0.85, 0.9, 0.95])


def test_labels_of_an_alert_hold_no_text_that_changes():
    assert all("{{" not in str(rule["labels"]) for where in EVERY for rule in document(*where) if "alert" in rule)


@pytest.mark.parametrize("scale", [1.0, 7.0, 60.0, 3600.0])
@pytest.mark.parametrize(("install", "profile"), EVERY)
def test_prometheus_takes_the_rules_at_any_time_scale(tmp_path: Path, install: Install, profile: Profile, scale: float):
    file = tmp_path / "rules.yaml"
    file.write_text(rules(install, profile, pace=Pace(scale)), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", "--lint-fatal", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_time_scale_divides_lengths_and_makes_rates_those_of_the_watched_clock():
    (rule,) = [one for one in document(Install.RAW, Profile.DEFAULT, pace=Pace(60)) if one.get("alert") == "LoraSaturation"]
    assert (rule["for"], rule["keep_firing_for"]) == ("2s", "10s")
    text = rules(Install.RAW, pace=Pace(60))
    assert f"rate({names.AGENT_REQUESTS}[10s]) / 60" in text
    assert "[10m]" not in text
    assert "offset 2h40m" in text  # 160 h


@pytest.mark.parametrize("scale", [0.5, 0.0, -1.0, float("inf"), float("nan")])
def test_a_time_scale_that_is_none_is_refused(scale: float):
    with pytest.raises(ValueError, match="1 or more"):
        Pace(scale)


def test_a_resource_of_the_operator_holds_the_same_groups():
    resource = yaml.safe_load(prometheus_rule(Install.FULL))
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert resource["spec"] == yaml.safe_load(rules(Install.FULL))
    assert re.fullmatch(r"[a-z0-9-]+", resource["metadata"]["name"])


def test_addresses_are_those_one_is_told():
    text = rules(Install.RAW, addresses=Addresses("https://git.example/runbooks/", "https://lora.example/"))
    assert "https://git.example/runbooks/LoraSaturation.md" in text
    assert "https://lora.example/?cluster=" in text


@pytest.mark.parametrize("option", ["--runbooks", "--explorer"])
def test_an_address_with_quotes_is_taken_as_it_is(tmp_path: Path, option: str):
    result = CliRunner().invoke(app, ["rules", option, "https://h/a'b\"c: - [x]&<y>%s/日本".replace(" ", "%20")])
    assert result.exit_code == 0
    (tmp_path / "rules.yaml").write_text(result.stdout)
    told = yaml.safe_load(result.stdout)["groups"]
    shown = [text for group in told for rule in group["rules"] for text in rule.get("annotations", {}).values()]
    assert any(text.startswith("https://h/a'b\"c:%20-%20[x]&<y>%s/日本/") for text in shown)
    subprocess.run(["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("option", ["--runbooks", "--explorer"])
@pytest.mark.parametrize(
    "address",
    ["{{", "http://h/{{ .x }}", "https://h/a b", "http://h/a\nb", "http://h/\x01", "http://h/\udcff", "h", "http://h/?q=1"],
)
def test_an_address_that_a_template_would_read_or_nobody_could_open_is_refused(option: str, address: str):
    result = CliRunner().invoke(app, ["rules", option, address])
    assert result.exit_code == 2
    assert "address" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", [["rules"], ["rules", "show"]])
def test_the_command_prints_the_committed_files(command: list[str]):
    for install, profile in EVERY:
        name = install if profile is Profile.DEFAULT else f"{install}-{profile}"
        for form, prefix in (("prometheus", ""), ("operator", "prometheusrule-")):
            done = CliRunner().invoke(app, [*command, "--install", install, "--profile", profile, "--for", form])
            assert done.exit_code == 0
            assert done.stdout == (ROOT / "alerts" / "rules" / f"{prefix}{name}.yaml").read_text(encoding="utf-8")


def test_a_recording_that_reads_recorded_series_only_is_the_same_in_both_installs():
    one = Recording("x:y:z", "", both="a")
    assert one.expression(Install.RAW) == one.expression(Install.FULL) == "a"


def test_what_an_install_cannot_tell_has_no_expression():
    assert Recording("x:y:z", "", full="a").expression(Install.RAW) is None
