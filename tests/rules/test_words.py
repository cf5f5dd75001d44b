"""What alerts say, filled in by the real promtool: whole percentages, names that do no harm, nothing where nothing is known."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from lora_watch import names
from lora_watch.rules.render import rules
from lora_watch.rules.rule import Install

POOL = 'cluster="eu",pool="chat"'
LONG = "x" * 10_000
MEASURED = {
    f"{names.POOL_NEWMASS_RECORD}{{{POOL}}}": 0.2817,
    f"{names.POOL_ACTIVE_RECORD}{{{POOL}}}": 60,
    f"{names.POOL_SLOTS_RECORD}{{{POOL}}}": 32,
}


def said(tmp_path: Path, series: Mapping[str, float], expected: Mapping[str, str]) -> None:
    """AssertionError unless LoraNewAdapters fires with these annotations, the same in every run."""
    text = rules(Install.FULL)
    (rule,) = [one for group in yaml.safe_load(text)["groups"] for one in group["rules"] if one.get("alert") == "LoraNewAdapters"]
    (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
    fixed = {name: rule["annotations"][name] for name in ("description", "runbook_url")}
    told = {**fixed, "explorer_url": "http://127.0.0.1:8501/?cluster=eu&pool=chat&role=&last=1h", **expected}
    labels = {"severity": "warn", "lora_watch": "true", "cluster": "eu", "pool": "chat"}
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": f"{value}+0x6"} for one, value in series.items()],
        "alert_rule_test": [
            {"eval_time": "5m", "alertname": rule["alert"], "exp_alerts": [{"exp_labels": labels, "exp_annotations": told}]}
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def summary(busiest: str, adapters: int = 60, slots: int = 32) -> str:
    return (
        f"Adapters first seen within the hour carry 28 % of the requests of pool chat; {adapters} adapters are in use on "
        f"{slots} slots (busiest: {busiest})."
    )


def asked(adapter: str) -> str:
    return f'{names.ADAPTER_REQUESTS_RECORD}{{{POOL},adapter="{adapter}"}}'


def open_finding(cause: str) -> str:
    words = f'summary="20 new adapters",cause="{cause}",evidence="events of 8 pods",remedy=""'
    return f'{names.FINDING_INFO}{{finding="f1",kind="new-adapters",{POOL},{words}}}'


def test_without_a_router_and_a_finding_nothing_is_made_up(tmp_path: Path):
    said(tmp_path, MEASURED, {"summary": summary("unknown"), "cause": "", "evidence": "", "remedy": ""})


def test_the_busiest_come_first_and_a_name_is_on_one_line_and_cut(tmp_path: Path):
    series = {asked("legal"): 1.234, asked(LONG): 2, asked("a\\nb"): 3, asked("{{ $labels }}"): 0.5}
    series |= {f"{names.POOL_NEWMASS_RECORD}{{{POOL}}}": 0.2817, f"{names.POOL_SLOTS_RECORD}{{{POOL}}}": 2}
    busiest = f"a b 3.00/s, {LONG[:60]}… 2.00/s, legal 1.23/s"
    said(tmp_path, series, {"summary": summary(busiest, 4, 2), "cause": "", "evidence": "", "remedy": ""})


@pytest.mark.parametrize(("cause", "told"), [("", "20 new adapters"), ("an A/B test", "20 new adapters. an A/B test")])
def test_a_finding_says_what_it_knows_and_no_more(tmp_path: Path, cause: str, told: str):
    series = {**MEASURED, open_finding(cause): 1.0}
    said(tmp_path, series, {"summary": summary("unknown"), "cause": told, "evidence": "events of 8 pods", "remedy": ""})
