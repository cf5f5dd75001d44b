"""The values that rules are: a recording, an alert, a group of both."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from lora_watch import names
from lora_watch.rules.choices import Install as Install
from lora_watch.rules.choices import Profile as Profile
from lora_watch.rules.condition import Condition
from lora_watch.rules.thresholds import LOOKS_OFTEN


class Severity(StrEnum):
    """What an alert asks for."""

    PAGE = "page"  # users feel it, or will within hours
    WARN = "warn"  # a cause, a mechanism, or a watcher that sees less: look at it today
    INFO = "info"  # a configuration that costs: when there is time


class Tier(StrEnum):
    """What an alert is about; a cause is silent under a harm of its pool."""

    HARM = "harm"
    CAUSE = "cause"
    CONFIGURATION = "configuration"
    WATCHER = "watcher"


LOOKING = f"{names.WATCH_LOOKS_RECORD} > {LOOKS_OFTEN.value:g}"
"""A sample while the service's exporter is scraped and its looks end well and often, so that its figures are of now."""


@dataclass(frozen=True, slots=True)
class Recording:
    """
    A recorded series: the same name and meaning in both installs, from different sources.

    ``both``: from recorded series alone. ``raw``: from agents, engines, the router and GPU exporters. ``full``: from the
    exporter. None: that install can't tell it so. ``labels`` are added to what is recorded. ``of_watcher``: about the service
    itself, so that what ``full`` says counts whatever it does.
    """

    name: str
    what: str
    both: str | None = None
    raw: str | None = None
    full: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    of_watcher: bool = False

    def expression(self, install: Install) -> str | None:
        """
        What it is computed from in an install, None where it can't be.

        With the exporter, either it counts or what ``raw`` says, as a whole, so that no pod is told twice where the two spell its
        labels differently. What a service exports that no longer looks is of the past and does not count.
        """
        if self.both is not None:
            return self.both
        if install is Install.RAW or self.full is None:
            return self.raw
        if self.of_watcher:
            return self.full
        told = f"{self.full}\nand on ()\n{LOOKING}"
        return told if self.raw is None else f"{told}\nor\n(\n{_indented(self.raw)}\n)\nunless on ()\n{LOOKING}"


@dataclass(frozen=True, slots=True)
class Alert:
    """
    An alert: its condition, what it is called, and what its annotations say.

    ``summary`` is one sentence with names and numbers (a template of Prometheus'). ``findings`` are the kinds of findings that
    may tell more of it. ``only``: the one install that can have it, with the reason in
    ``why_only``.
    """

    name: str
    severity: Severity
    tier: Tier
    condition: Condition
    summary: str
    findings: tuple[str, ...] = ()
    only: Install | None = None
    why_only: str = ""
    profile: Profile = Profile.DEFAULT

    @property
    def runbook(self) -> str:
        """The stem of its runbook; the article's limits share one."""
        return "LoraArticleLimits" if self.profile is Profile.ARTICLE else self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other, every ``interval`` of the watched clock."""

    name: str
    interval: timedelta
    recordings: tuple[Recording, ...] = ()
    alerts: tuple[Alert, ...] = ()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
