"""Cards of findings as HTML: everything that a finding says stands in it, and nothing of it is markup."""

from html.parser import HTMLParser

import pytest
from diagnose.told import HOSTILE

from lora_watch.diagnose.diagnosis import Gap, Margin, PoolState, State
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity
from lora_watch.explore import panels
from lora_watch.model import DAY, MINUTE

AT = 20_000 * DAY


class Read(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def finding(text: str = "60 adapters on 32 slots", **changed: object) -> Finding:
    told = {
        "kind": "thrash",
        "severity": Severity.HARM,
        "cluster": text,
        "pool": text,
        "role": "",
        "since": AT,
        "summary": text,
        "cause": text,
        "confidence": Confidence.HIGH,
        "weight": 1.0,
        "evidence": (Evidence(text, "x", 1.0, "", "observed", text),),
        "remedies": (Remedy("slots", text, Possible.RESTART, 0.33, 0.28, 0.41, why=text, method=text),),
        "avoid": (text,),
        "unknown": (text,),
    }
    return Finding(**{**told, **changed})  # type: ignore[arg-type]  # a field each


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_anywhere_in_a_finding_is_text(text: str):
    drawn = panels.finding(finding(text), AT + MINUTE, text)
    assert Read(drawn).tags <= {"div", "span", "h5", "ul", "ol", "li", "code"}
    assert not [char for char in drawn if not char.isprintable()]


def test_a_card_says_when_why_what_to_do_by_how_much_and_what_not():
    text = Read(panels.finding(finding(), AT + MINUTE)).text
    for part in (
        "harm",
        "thrash",
        "since 2024-10-04 00:00 UTC",
        "removes 33 % of the swaps (95 % interval 28 … 41)",
        "restart",
        "not to do",
    ):
        assert part in text


def test_a_remedy_that_makes_it_worse_is_drawn_as_such():
    worse = finding(remedies=(Remedy("slots", "fewer", effect=-0.4),))
    assert "lw-worse" in panels.finding(worse, AT)
    assert "lw-worse" not in panels.finding(finding(), AT)


def test_a_remedy_that_is_not_possible_here_is_still_told():
    told = finding(remedies=(Remedy("pins", "pin the top 10", Possible.NOT_HERE),))
    assert "not possible here" in Read(panels.finding(told, AT)).text


def test_what_is_over_has_its_end():
    assert panels.since(finding(until=AT + 5 * MINUTE), AT + DAY) == "2024-10-04 00:00 … 2024-10-04 00:05 UTC"


def test_what_is_so_now_and_nobody_knows_since_when_is_as_of_now():
    assert panels.since(finding(), AT) == "as of 2024-10-04 00:00 UTC"


def test_a_pool_is_told_with_its_margins_and_what_is_unknown():
    margins = (
        Margin("m", "requests that miss: 3 %", 0.03, 0.2, trouble="trouble from 20 %"),
        Margin("n", "rho: unknown", None, 0.8, why="no week"),
    )
    text = Read(panels.state(PoolState("c", "p", "", 2, 8, 6, State.HEALTHY, "all is well", margins))).text
    for part in ("healthy", "all is well", "requests that miss: 3 %", "trouble from 20 %", "rho: unknown, since no week"):
        assert part in text


def test_what_stands_between_backticks_is_code_and_one_alone_is_not():
    assert panels.prose("run `lora-watch <x>` now") == "run <code>lora-watch &lt;x&gt;</code> now"
    assert panels.prose("a ` b") == "a ` b"


def test_a_gap_says_what_why_and_how():
    text = Read(panels.gaps([Gap("residency", "no agent runs", "install it", ("pod-1", "pod-2"))])).text
    assert "residency (pod-1 and pod-2)" in text
    assert "install it" in text
