"""Prefix-cache reuse that variants have cost."""

from diagnose.told import WINDOW, found, text

from lora_watch.diagnose.finding import Confidence, Severity
from lora_watch.diagnose.prefix_reuse import prefix_reuse

ROW = {
    "adapters": ["legal", "legal-experiment"],
    "parent": "legal",
    "cached_share_before": 0.6,
    "cached_share_after": 0.35,
    "recomputed_tokens": 12_000.0,
}


def told(*rows):
    return list(prefix_reuse(found("prefix_reuse", *rows), WINDOW))


def test_lost_reuse_says_whose_and_how_much():
    (one,) = told(ROW)
    assert one.summary == "Prefix-cache reuse lost to variants of legal: 60 % → 35 % of prompt tokens come from the cache"
    assert "12,000 tokens prefilled again" in text(one)


def test_families_of_a_pool_are_one_finding_that_adds_their_tokens():
    (one,) = told(ROW, {**ROW, "parent": "sql", "recomputed_tokens": 8_000.0})
    assert one.weight == 20_000


def test_it_informs_with_low_confidence_since_prompts_change_too():
    (one,) = told(ROW)
    assert (one.severity, one.confidence) == (Severity.INFORMATION, Confidence.LOW)


def test_reuse_as_before_is_no_finding():
    assert told({**ROW, "flagged": False}) == []
