"""The draft says what is known, marks what is not, and no name of an adapter becomes markup."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.incidents import Incident, incidents
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.diagnose.postmortem import FOR_PEOPLE, as_markdown, as_text, inline
from lora_watch.model import HOUR, MINUTE

START = 1_796_000_000_000_000
HOSTILE = "a|b `c` </script><img src=x onerror=y> [x](javascript:1) ![i](http://e.x/p.png) **b**\n# h\n| c | d |\x1b[2J&lt;"
FINDING = Finding(
    "thrash",
    Severity.HARM,
    "c",
    "p",
    "",
    START,
    "60 adapters compete for 32 slots",
    "an experiment brought 20 adapters",
    Confidence.HIGH,
    0.26,
    evidence=(Evidence("60 adapters in 1 h", "active_adapters", 60.0, "adapters", "observed", "distinct"),),
    remedies=(
        Remedy("pins", "pin the top 10", effect=0.08, low=0.05, high=0.11, method="replay"),
        Remedy("slots", "one more slot a pod", effect=0.33, method="replay"),
        Remedy("unpin", "unpin ghosts", Possible.NOW),
    ),
    avoid=("Do not restart the pods: every slot would be cold.",),
    pods=("vllm-0",),
    adapters=("legal-v2",),
    unknown=("Nobody knows who started the experiment.",),
)


def incident(*found: Finding, closed: bool = True) -> Incident:
    states = []
    for finding in found:
        first = State(
            START, f"{finding.key}-{START}", Phase.OPEN, Change.OPENED, START, START, None, None, finding.weight, finding
        )
        states.append(first)
        if closed:
            end = START + HOUR
            states.append(
                replace(first, at=end + 10 * MINUTE, phase=Phase.CLOSED, change=Change.CLOSED, seen=end - MINUTE, missed=end)
            )
    (one,) = incidents(states, START + 2 * HOUR)
    return one


def hostile() -> Incident:
    evidence = tuple(replace(one, text=HOSTILE, name=HOSTILE, unit=HOSTILE, method=HOSTILE) for one in FINDING.evidence)
    remedies = tuple(replace(one, text=HOSTILE, why=HOSTILE, method=HOSTILE, of=HOSTILE) for one in FINDING.remedies)
    texts = {"summary": HOSTILE, "cause": HOSTILE, "pool": HOSTILE, "role": HOSTILE, "kind": HOSTILE, "cluster": HOSTILE}
    whole = replace(FINDING, evidence=evidence, remedies=remedies, avoid=(HOSTILE,), unknown=(HOSTILE,), **texts)
    return incident(replace(whole, pods=(HOSTILE,), adapters=(HOSTILE,)))


def flat(text: str) -> list[Token]:
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    return [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]


def test_the_draft_has_every_part():
    text = as_markdown(incident(FINDING))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## {name}"
        for name in (
            "Summary",
            "Impact",
            "Timeline",
            "Cause",
            "Evidence",
            "Remedies",
            "What not to do",
            "Open questions",
        )
    ]
    for said in ("60 adapters compete", "an experiment brought", "1 h 00 min", "observed", "Do not restart", "Nobody knows who"):
        assert said in text


def test_the_remedy_that_removes_most_comes_first_and_says_how_much():
    text = as_text(incident(FINDING))
    assert text.index("one more slot") < text.index("pin the top 10") < text.index("unpin ghosts")
    assert "33 % of swaps" in text
    assert "8 % (5 % … 11 %) of swaps" in text
    assert "not predicted" in text


def test_what_only_people_know_is_marked():
    assert as_markdown(incident(FINDING)).count(FOR_PEOPLE) >= 6


def test_roles_are_kept_apart_in_the_evidence():
    text = as_markdown(incident(replace(FINDING, role="prefill"), replace(FINDING, role="decode")))
    assert text.index("### role decode") < text.index("### role prefill")


def test_an_open_incident_has_no_end():
    text = as_markdown(incident(FINDING, closed=False))
    assert "nobody told of it since" in text
    assert "does it go on?" in text


def test_no_text_of_a_finding_becomes_markup():
    text = as_markdown(hostile())
    kinds = {token.type for token in flat(text)}
    assert kinds.isdisjoint({"html_inline", "html_block", "link_open", "image", "code_inline", "fence", "code_block", "em_open"})
    assert kinds.isdisjoint({"strong_open", "s_open", "blockquote_open", "hr", "entity"})
    assert "\x1b" not in text


def test_no_text_of_a_finding_adds_a_row_or_a_column():
    def shape(text: str) -> list[int]:
        cells: list[int] = []
        for token in flat(text):
            if token.type == "tr_open":
                cells.append(0)
            elif token.type in ("th_open", "td_open"):
                cells[-1] += 1
        return cells

    text = as_markdown(hostile())
    assert set(shape(text)) == {5, 7}
    assert [token.tag for token in flat(text) if token.type == "heading_open"].count("h1") == 1
    assert text.count("\n# ") == 0


@pytest.mark.parametrize("text", ["- a", "1. a", "1) a", "+ a", "= a", "# a", "> a", "| a", "    a", "", "\n\n"])
def test_a_text_that_begins_like_a_list_or_a_heading_is_a_text(text: str):
    kinds = [token.type for token in flat(f"- {inline(text)}\n")]
    assert kinds.count("bullet_list_open") == 1
    assert "ordered_list_open" not in kinds
    assert "heading_open" not in kinds


@given(some.text(max_size=80))
def test_any_text_is_shown_as_itself(text: str):
    shown = "".join(token.content for token in flat(f"x {inline(text)}") if token.type in ("text", "text_special"))
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text).strip() or "–"
    assert shown == f"x {plain}"


def test_a_name_of_ten_kilobytes_is_cut():
    assert len(as_markdown(incident(replace(FINDING, summary="x" * 10_000)))) < 12_000


def test_the_text_for_a_terminal_has_nothing_that_a_terminal_obeys():
    text = as_text(hostile())
    assert all(char.isprintable() or char == "\n" for char in text)
