"""
Every scenario that ships is diagnosed as its truth file says: what a finding must say is said in these words, and what none may
say stands in no finding.

The words of a truth's ``must_say`` are looked for in summary, cause and remedies, as they are. ``must_not_say`` are things, not
words (a finding may say *pinned* without saying *pin*), so each has a predicate here; a new one without a predicate fails.
"""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lora_watch.diagnose.finding import Finding, Severity
from lora_watch.explore.situation import Memory, diagnosis
from lora_watch.model import DAY, HOUR, Window
from lora_watch.simulate.scenario import load, shipped
from lora_watch.simulate.write import TRUTH, simulate
from lora_watch.store.tables import Store


class Look(NamedTuple):
    """At which hour of the scenario somebody looks, at how long a window."""

    hour: float
    hours: float


LOOKS = {
    "batch-scan": Look(26.5, 25),
    "benign-growth": Look(35.5, 2),
    "cascade": Look(3, 1),
    "convoy": Look(6, 2),
    "ghost-pins": Look(9, 3),
    "hard-cliff": Look(3.5, 1),
    "healthy": Look(30, 4),
    "imbalance": Look(3, 1),
    "night-shift": Look(24, 24),
    "no-warm-tier": Look(2, 1),
    "one-slot-short": Look(3, 1),
    "phantom": Look(9, 2),
    "prefill-decode-mismatch": Look(2, 1),
    "reload-loop": Look(5, 2),
    "slow-load": Look(10, 3),
    "stampede": Look(3.5, 2),
    "tenant-onboarding": Look(36.5, 2),
    "thursday": Look(34.5, 2),
}


def by_kind(*kinds: str) -> Callable[[Finding], bool]:
    return lambda one: one.kind in kinds


def by_lever(*levers: str) -> Callable[[Finding], bool]:
    """A remedy with such a lever that can be done and is not predicted to do nothing."""
    return lambda one: any(
        remedy.lever in levers and remedy.possible != "not here" and (remedy.effect is None or remedy.effect > 0)
        for remedy in one.remedies
    )


def by_words(pattern: str) -> Callable[[Finding], bool]:
    return lambda one: re.search(pattern, said(one), re.IGNORECASE) is not None


MUST_NOT: dict[str, Callable[[Finding], bool]] = {
    "add replicas": lambda one: bool(one.remedies) and one.remedies[0].lever == "pods",
    "add slots": by_lever("slots"),
    "add slots for it": lambda one: one.kind == "batch-scan" and by_lever("slots")(one),
    "an average over both roles": lambda one: one.kind == "thrash" and not one.role,
    "gpu shortage": by_words(r"gpu short|more gpus|too few gpus|not enough gpus"),
    "growth alone": by_words(r"growth|traffic (has )?grow|more traffic"),
    "loads are slow": by_kind("slow-load"),
    "more adapters than slots as the cause": by_kind("thrash", "one-slot-short"),
    "new adapters": by_kind("new-adapters"),
    "pin": by_lever("pins"),
    "pin by a month's counts": by_lever("pins"),
    "pin more": by_lever("pins"),
    "raise max_loras": by_lever("slots"),
    "swaps as the cause": by_kind("thrash"),
    "thrash": by_kind("thrash"),
}
"""What no finding may say, each as a test of one finding."""


def said(one: Finding) -> str:
    """What a finding says, as one text."""
    return " ".join([one.kind, one.summary, one.cause, *(remedy.text for remedy in one.remedies)]).replace("-", " ")


@pytest.fixture(scope="module", params=sorted(LOOKS))
def diagnosed(request, tmp_path_factory):
    """The findings of a scenario at its moment, and its truth."""
    look, scenario = LOOKS[request.param], load(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    simulate(scenario, look.hour / 24, 3, folder)
    truth = json.loads((folder / TRUTH).read_text(encoding="utf-8"))
    end = scenario.begin + round(look.hour * HOUR)
    told = diagnosis(Memory(Store(folder), DAY), Window(end - round(look.hours * HOUR), end))
    return told, truth


def test_every_scenario_is_looked_at():
    assert set(LOOKS) == set(shipped())


def test_what_must_be_said_is_said(diagnosed):
    told, truth = diagnosed
    text = " ".join(said(one) for one in told.findings).lower()
    assert [words for words in truth["findings"]["must_say"] if words.lower().replace("-", " ") not in text] == []


def test_what_must_not_be_said_is_not(diagnosed):
    told, truth = diagnosed
    wrong = {words: [one.summary for one in told.findings if MUST_NOT[words](one)] for words in truth["findings"]["must_not_say"]}
    assert {words: found for words, found in wrong.items() if found} == {}


def test_a_healthy_pool_has_nothing_above_information(diagnosed):
    told, truth = diagnosed
    if truth["findings"]["healthy"]:
        assert [one.summary for one in told.findings if one.severity is not Severity.INFORMATION] == []
    else:
        assert told.findings


def test_what_happened_to_adapters_is_told_of_those_adapters(diagnosed):
    told, truth = diagnosed
    kinds = {"split": "new-adapters", "onboard": "new-adapters", "reload": "reload-loop"}
    for event in truth["events"]:
        if event["kind"] in kinds:
            named = {name for one in told.findings if one.kind == kinds[event["kind"]] for name in one.adapters}
            assert set(event["adapters"]) & named, event["kind"]


def test_a_change_is_told_since_it_happened(diagnosed):
    told, truth = diagnosed
    starts = [event["start"] for event in truth["events"] if event["kind"] == "split"]
    for start in starts:
        since = {one.kind: one.since for one in told.findings}
        assert abs(since["new-adapters"] - start) < 60_000_000
        assert abs(since["thrash"] - start) < 3 * 60_000_000
