"""Rules as the text of files: what Prometheus reads, and the same as resources of the Prometheus operator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from lora_watch import links
from lora_watch.rules.catalogue import groups
from lora_watch.rules.pace import Pace
from lora_watch.rules.rule import Alert, Group, Install, Profile, Recording, Tier
from lora_watch.rules.say import finding

WIDTH = 1000
"""No line of a text is broken."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """
    Where annotations point to: the folder of the runbooks, and the explorer. They become parts of templates, so ValueError where
    one is no address, or bears what a template would read.
    """

    runbooks: str = links.RUNBOOKS
    explorer: str = links.EXPLORER

    def __post_init__(self) -> None:
        for text in (self.runbooks, self.explorer):
            if not text.startswith(("http://", "https://")):
                raise ValueError(f"an address begins with http:// or https://, not {text[:80]!r}")
            if any(part in text for part in ("{{", " ", "?", "#")) or not text.isprintable():
                raise ValueError(
                    f"this address bears no space, query or '{{{{', and nothing that cannot be printed: {text[:80]!r}"
                )


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def rules(
    install: Install, profile: Profile = Profile.DEFAULT, pace: Pace | None = None, addresses: Addresses | None = None
) -> str:
    """A rule file of Prometheus."""
    return _head(install, profile, pace) + _dumped(_document(install, profile, pace, addresses))


def prometheus_rule(
    install: Install, profile: Profile = Profile.DEFAULT, pace: Pace | None = None, addresses: Addresses | None = None
) -> str:
    """The same rules as a PrometheusRule, which the Prometheus operator reads."""
    name = "-".join(["lora-watch", install, *([profile] if profile is not Profile.DEFAULT else [])])
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "lora-watch"}},
        "spec": _document(install, profile, pace, addresses),
    }
    return _head(install, profile, pace) + _dumped(resource)


def _head(install: Install, profile: Profile, pace: Pace | None) -> str:
    beside = f" To be loaded beside {install}.yaml." if profile is Profile.ARTICLE else ""
    scaled = "" if pace is None or pace.time_scale == 1 else f" For a clock that runs {pace.time_scale:g} times as fast."
    return f"# Rendered from lora_watch/rules, install {install}, profile {profile}.{beside}{scaled} Do not edit.\n"


def _dumped(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)


def _document(install: Install, profile: Profile, pace: Pace | None, addresses: Addresses | None) -> dict[str, Any]:
    pace, addresses = pace or Pace(), addresses or Addresses()
    return {"groups": [_group(group, install, pace, addresses) for group in groups(install, profile, pace)]}


def _group(group: Group, install: Install, pace: Pace, addresses: Addresses) -> dict[str, Any]:
    recorded = [_recording(one, text) for one in group.recordings if (text := one.expression(install)) is not None]
    raised = [_alert(one, install, pace, addresses) for one in group.alerts]
    return {"name": group.name, "interval": pace.interval(group.interval), "rules": [*recorded, *raised]}


def _recording(one: Recording, expression: str) -> dict[str, Any]:
    return {"record": one.name, "expr": expression, **({"labels": dict(one.labels)} if one.labels else {})}


def _alert(one: Alert, install: Install, pace: Pace, addresses: Addresses) -> dict[str, Any]:
    condition = one.condition
    keep = {"keep_firing_for": pace.span(condition.keep)} if condition.keep else {}
    return {
        "alert": one.name,
        "expr": condition.promql,
        "for": pace.span(condition.for_),
        **keep,
        "labels": {
            "lora_watch": "true",
            "severity": str(one.severity),
            **({"watcher": "true"} if one.tier is Tier.WATCHER else {}),
        },
        "annotations": {
            "summary": one.summary,
            "description": _why(one),
            **(_words(one) if install is Install.FULL and one.findings else {}),
            "runbook_url": f"{addresses.runbooks.rstrip('/')}/{one.runbook}.md",
            "explorer_url": _explorer(one, addresses),
        },
    }


def _why(one: Alert) -> str:
    """Each limit with its reason."""
    told = {f"{each.series} {each.operator} {each.threshold.value:g}: {each.threshold.reason}" for each in one.condition.compares}
    return ". ".join(sorted(told)) + "."


def _words(one: Alert) -> dict[str, str]:
    """What the service's open finding says; looked up when the alert is evaluated, so it is no older than the last look."""
    parts = {"cause": ("summary", "cause"), "evidence": ("evidence",), "remedy": ("remedy",)}
    return {part: finding(one.findings, *labels) for part, labels in parts.items()}


def _explorer(one: Alert, addresses: Addresses) -> str:
    """The explorer at the last hour of whom the alert is about; what the labels hold is made safe when it is filled in."""
    named = {name: f"{{{{ urlquery $labels.{name} }}}}" for name in one.condition.on if name in links.NAMES}
    return links.explorer(addresses.explorer.rstrip("/"), {**named, "last": "1h"})


def _whole(make: Callable[[Install, Profile], str], install: Install, profile: Profile) -> Callable[[str], str]:
    return lambda _: make(install, profile)


FILES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        f"alerts/rules/{prefix}{install}{suffix}.yaml": _whole(make, install, profile)
        for prefix, make in (("", rules), ("prometheusrule-", prometheus_rule))
        for install in Install
        for profile, suffix in ((Profile.DEFAULT, ""), (Profile.ARTICLE, "-article"))
    }
)
"""Path in the checkout → what the file should be, whatever it is."""
