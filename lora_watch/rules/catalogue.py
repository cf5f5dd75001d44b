"""All groups of rules, in the order in which they need each other: the one place where the composition is read."""

from datetime import timedelta

from lora_watch.rules import (
    adapters,
    article,
    configuration,
    hard_cliff,
    new_adapters,
    not_inferring,
    pods,
    predicted_misses,
    saturation,
    slow_load,
    watcher,
)
from lora_watch.rules.pace import Pace
from lora_watch.rules.rule import Alert, Group, Install, Profile

OFTEN = timedelta(seconds=30)
SELDOM = timedelta(minutes=1)
"""What reads a series for each pod and adapter."""


def groups(install: Install, profile: Profile = Profile.DEFAULT, pace: Pace | None = None) -> tuple[Group, ...]:
    """
    The groups of an install: what is recorded, and the alerts, which read recorded series only.

    The article's are alerts alone, to be loaded beside the install's default rules.
    """
    pace = pace or Pace()
    if profile is Profile.ARTICLE:
        return (Group("lora-article", OFTEN, alerts=article.alerts()),)
    return (
        Group(
            "lora-pods",
            OFTEN,
            (
                *watcher.looks(pace),
                *pods.recordings(pace),
                *not_inferring.recordings(pace),
                *slow_load.recordings(pace),
                *configuration.recordings(pace),
                *watcher.recordings(pace),
            ),
        ),
        Group(
            "lora-adapters",
            SELDOM,
            (
                *adapters.recordings(pace),
                *new_adapters.recordings(pace),
                *predicted_misses.recordings(),
                *saturation.recordings(pace),
            ),
        ),
        Group("lora-harm", OFTEN, alerts=_of(install, *saturation.alerts(), *not_inferring.alerts(), *hard_cliff.alerts())),
        Group("lora-cause", OFTEN, alerts=_of(install, *new_adapters.alerts(), *predicted_misses.alerts(), *slow_load.alerts())),
        Group("lora-configuration", OFTEN, alerts=_of(install, *configuration.alerts())),
        Group("lora-watcher", OFTEN, alerts=_of(install, *watcher.alerts())),
    )


def alerts(install: Install, profile: Profile = Profile.DEFAULT) -> tuple[Alert, ...]:
    """The alerts of an install, group by group: what calibration replays."""
    return tuple(alert for group in groups(install, profile) for alert in group.alerts)


def _of(install: Install, *all_: Alert) -> tuple[Alert, ...]:
    return tuple(one for one in all_ if one.only in (None, install))
