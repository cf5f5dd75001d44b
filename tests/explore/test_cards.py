"""A diagnosis on a terminal, as Markdown and as JSON: whole, bounded, and inert whatever adapters are called."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from diagnose.told import HOSTILE, WINDOW, adapters, facts, found, lever, minutes, pods
from hypothesis import given
from hypothesis import strategies as some
from markdown_it import MarkdownIt
from rich.console import Console

from lora_watch.diagnose.diagnosis import Diagnosis, Gap, Margin, PoolState, State, in_order
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.gaps import gaps
from lora_watch.diagnose.health import pool_state
from lora_watch.diagnose.new_adapters import new_adapters
from lora_watch.diagnose.saturation import hard_cliff
from lora_watch.diagnose.thrash import thrash
from lora_watch.explore.cards import as_json, as_markdown, effect, markdown_text, show
from lora_watch.explore.structures import RULES

FINDING = Finding(
    "thrash",
    Severity.HARM,
    "c",
    "p",
    "",
    WINDOW.start,
    "60 adapters compete",
    "an experiment",
    Confidence.HIGH,
    0.3,
    evidence=(Evidence("26 % of requests miss", "loads_per_request", 0.26, "ratio", "observed", "counted"),),
    remedies=(
        Remedy("slots", "one more slot", effect=0.33, low=0.3, high=0.36, method="replay"),
        Remedy("experiment", "pause it", Possible.NOW),
    ),
    avoid=("Adding replicas.",),
    unknown=("What a load costs.",),
)
MARGINS = (
    Margin("rho_peak", "rho: 120 %", 1.2, 0.8, "", "observed", "seasonal", over="next 8 h", trouble="trouble from 80 %"),
    Margin("stall_share", "pod time spent on loads: unknown", None, 0.1, why="nothing that is held tells it"),
)
POOL = PoolState("c", "p", "", 1, 4, 60, State.HARM, "1 pod, 4 slots: 60 adapters compete", MARGINS)
GAP = Gap("what loads cost", "no lengths", "install the agent", ("pod-0", "pod-1", "pod-2", "pod-3"))
TOLD = Diagnosis(WINDOW, (POOL,), (FINDING,), (GAP,))
LONG = ("x" * 59, "x" * 61)


def printed(told: Diagnosis, width: int = 130) -> str:
    written = StringIO()
    show(told, Console(file=written, width=width))
    return written.getvalue()


def test_a_card_has_the_cause_evidence_remedies_what_to_avoid_and_what_is_unknown():
    text = printed(TOLD)
    for part in (
        "c/p: HARM  1 pod, 4 slots: 60 adapters compete",
        "HARM · thrash · since 2024-10-04T00:00:00Z",
        "why     an experiment  [high confidence]",
        "seen    26 % of requests miss  [observed, counted]",
        "do      one more slot: removes 33 % of the swaps (95 % interval 30 … 36); takes a restart of the pods; replay",
        "do      pause it",
        "avoid   Adding replicas.",
        "unknown What a load costs.",
        "what loads cost (pod-0, pod-1, pod-2 and 1 more): no lengths → install the agent",
    ):
        assert part in text


def test_margins_say_how_far_trouble_is_and_unknown_ones_why():
    text = printed(TOLD)
    assert re.search(r"rho: 120 % +next 8 h +trouble from 80 % +observed +seasonal", text)
    assert "unknown, since nothing that is held tells it: pod time spent on loads" in text


def test_a_pool_of_which_no_number_is_known_has_no_empty_table():
    text = printed(replace(TOLD, pools=(replace(POOL, margins=MARGINS[1:]),)))
    assert "60 adapters compete\n  unknown, since" in text


def test_how_far_a_method_can_be_off_is_told_once_below_the_numbers():
    method = "che: within 0.01 for independent requests; too high for sessions"
    rough = tuple(Margin(name, f"{name}: 40 %", 0.4, None, method=method) for name in ("predicted_miss_ratio", "pressure"))
    text = printed(replace(TOLD, pools=(replace(POOL, margins=rough),)))
    assert text.count(method) == 1
    assert re.search(r"pressure: 40 % +che *\n", text)


def test_a_healthy_pool_is_told_in_a_word_and_that_nothing_was_found():
    healthy = replace(POOL, state=State.HEALTHY, sentence="1 pod, 4 slots, 3 adapters in use")
    text = printed(replace(TOLD, pools=(healthy,), findings=(), gaps=()))
    assert "HEALTHY  1 pod, 4 slots, 3 adapters in use" in text
    assert "Nothing was found." in text


def test_no_data_are_not_told_as_nothing_found():
    text = printed(Diagnosis(WINDOW, (), (), ()))
    assert "Nothing was found" not in text
    assert "Nothing tells of any pod in this window" in text


def test_nothing_found_where_not_all_is_seen_says_so():
    blind = replace(POOL, state=State.UNKNOWN)
    assert "Nothing was found, where not all can be seen" in printed(replace(TOLD, pools=(blind,), findings=()))


def test_a_finding_that_is_over_has_an_end():
    over = replace(FINDING, until=WINDOW.start + 60_000_000)
    assert "2024-10-04T00:00:00Z … 2024-10-04T00:01:00Z" in printed(replace(TOLD, findings=(over,)))


@pytest.mark.parametrize("width", [40, 80, 130])
def test_cards_fit_the_terminal(width: int):
    assert max(len(line) for line in printed(TOLD, width).splitlines()) <= width


def test_json_has_all_numbers_and_no_number_is_null():
    told = json.loads(as_json(TOLD))
    assert told["worst"] == "harm"
    assert told["pools"][0]["margins"][1]["value"] is None
    assert told["findings"][0]["since"] == "2024-10-04T00:00:00Z"
    assert told["findings"][0]["remedies"][1]["effect"] is None
    assert told["gaps"][0]["pods"] == list(GAP.pods)
    assert told["window"]["seconds"] == 3600


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_json_of_a_number_that_is_none_is_null(value: float):
    odd = replace(FINDING, weight=value, evidence=(Evidence("t", "n", value, "", "observed"),))
    (one,) = json.loads(as_json(replace(TOLD, findings=(odd,))))["findings"]
    assert (one["weight"], one["evidence"][0]["value"]) == (None, None)


def test_markdown_has_a_heading_for_each_pool_and_finding_and_ranked_remedies():
    lines = as_markdown(TOLD).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Check 2024-10-04T00:00:00Z … 2024-10-04T01:00:00Z",
        "## c/p: harm",
        "## HARM: 60 adapters compete",
        "## What can't be told",
    ]
    assert next(line for line in lines if line.startswith(("1.", "2."))).startswith("1. one more slot: removes 33 %")


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (Remedy("slots", "t"), ""),
        (Remedy("slots", "t", effect=0.3), "removes 30 % of the swaps"),
        (Remedy("slots", "t", effect=-0.05, low=-0.1, high=-0.01), "adds 5.0 % of the swaps (95 % interval 1 … 10)"),
        (
            Remedy("slots", "t", effect=0.02, low=-0.1, high=0.1, of="loads"),
            "removes 2.0 % of the loads (95 % interval -10 … 10)",
        ),
        (Remedy("slots", "t", effect=1.0, low=1.0, high=1.0), "removes 100 % of the swaps"),
    ],
)
def test_an_effect_is_told_with_its_direction_and_interval(remedy: Remedy, words: str):
    assert effect(remedy) == words


# hostile names, through every rule that puts a name into a sentence


NUMBERS: dict[str, dict[str, Any]] = {
    "stampedes": {"loads": 4, "pods_loading": 3, "span_seconds": 1.0, "load_seconds": 1.0, "expected_by_chance": 0.0},
    "convoys": {
        "many_pods": 3,
        "pool_pods": 8,
        "most_pods_at_once": 6,
        "many_loading_seconds": 1.0,
        "expected_seconds": 0.1,
        "ratio": 10.0,
        "swap_share": 0.2,
    },
    "reload_loops": {"reloads": 30, "reloads_per_second": 1.0, "disk_reads": 3, "lru_evictions": 0},
    "phantoms": {"kind": "weights still in engine", "slots_held": 1, "longest_seconds": 60.0},
    "imbalance": {
        "what": "requests",
        "pool_pods": 4,
        "mean_per_pod": 4.0,
        "max_per_pod": 12,
        "max_to_mean_ratio": 3.0,
        "max_share": 0.75,
        "gini_ratio": 0.5,
    },
    "starvation": {"requests": 30, "gave_up": 0, "wait_p95_seconds": 9.0, "typical_p95_seconds": 1.0},
    "slow_loads": {
        "phase": "disk",
        "loads": 9,
        "slow_loads": 9,
        "p50_seconds": 1.0,
        "p95_seconds": 2.0,
        "usual_loads": 0,
        "allowed_seconds": 1.0,
        "slow_seconds": 9.0,
    },
    "ghosts": {"slots_held": 1, "least_idle_seconds": 4000.0},
    "scans": {"scanned_adapters": 9, "pool_adapters": 9, "requests_per_adapter": 1.0},
    "shifts": {
        "blocks": 6,
        "least_overlap_ratio": 0.1,
        "neighbour_overlap_ratio": 0.5,
        "pool_adapters": 9,
        "block_adapters": 4.0,
        "least_from": WINDOW.start,
        "least_to": WINDOW.end,
    },
    "kv_pressure": {"tier": 3, "critical_seconds": 60.0, "max_ratio": 0.99},
    "swapping_sides": {
        "prefill_swaps_per_second_per_pod": 0.5,
        "decode_swaps_per_second_per_pod": 0.0,
        "swapping_side": "prefill",
    },
    "one_sided": {"missing_on": "decode"},
    "prefix_reuse": {"cached_share_before": 0.5, "cached_share_after": 0.1, "recomputed_tokens": 9.0},
}


def named_by(name: str) -> Diagnosis:
    """Every rule over rows and facts in which all names are this one."""
    made: list[Finding] = []
    who = {"adapters": [name, name + "2"], "pods": [name], "cluster": name, "pool": name, "role": "decode"}
    for structure, rule in RULES.items():
        extra = {"parent": name} if structure == "prefix_reuse" else {}
        made += rule(found(structure, {**who, **NUMBERS[structure], **extra}), WINDOW)
    busy = minutes((40, {"requests": 100}), (20, {"requests": 100, "loads": 30, "swaps": 30, "stall_seconds": 3.0}))
    known = adapters(*(f"{name}{n}" for n in range(6)), first_seen=WINDOW.end - 60_000_000)
    pool = facts(
        told=pods({"pod": name, "loads": 600}),
        lines=busy,
        known=known,
        warning={"hard_cliff": 1.2, "fullest_pod": name},
        alarms=["hard_cliff"],
        levers=[lever("slots", 1, 0.3)],
        pool=name,
    )
    made += [*thrash(pool), *new_adapters(pool), *hard_cliff(pool)]
    return Diagnosis(WINDOW, (pool_state(pool, made),), in_order(made), tuple(gaps([pool])))


def test_every_rule_is_tried_with_hostile_names():
    assert set(NUMBERS) == set(RULES)
    assert len({one.kind for one in named_by("x").findings}) >= len(RULES) + 3


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_obeys_or_floods_a_terminal(name: str):
    text = printed(named_by(name))
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert len(text) < 60_000


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_every_sentence_is_one_bounded_line(name: str):
    for one in named_by(name).findings:
        told = [one.summary, one.cause, *(it.text for it in one.evidence), *(it.text for it in one.remedies), *one.avoid]
        assert [text for text in told if not text.isprintable() or len(text) > 700] == []


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_becomes_markup_in_markdown(name: str):
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    text = as_markdown(named_by(name))
    tokens = [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "em_open", "s_open", "code_inline", "table_open"}
    ours = {"Cause.", "What to do", "What not to do"}
    strong = [after.content for before, after in pairwise(tokens) if before.type == "strong_open"]
    assert set(strong) <= ours
    assert len(text) < 100_000


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_json_is_one_line_of_ascii_and_keeps_the_name_whole(name: str):
    text = as_json(named_by(name))
    assert text.isascii()
    assert "\n" not in text
    named = {other for one in json.loads(text)["findings"] for other in one["adapters"]}
    assert not name or name in named


WRITERS: tuple[Callable[[Diagnosis], str], ...] = (printed, as_markdown, as_json)


@given(some.text(max_size=40))
def test_any_text_in_any_place_is_inert(text: str):
    hostile = replace(
        FINDING,
        summary=text,
        cause=text,
        pool=text,
        adapters=(text,),
        evidence=(Evidence(text, text, 1.0, text, "observed", text),),
        remedies=(Remedy("slots", text, why=text, method=text, of=text, effect=0.1),),
        avoid=(text,),
        unknown=(text,),
    )
    told = Diagnosis(WINDOW, (replace(POOL, pool=text, sentence=text),), (hostile,), (Gap(text, text, text, (text,)),))
    for write in WRITERS:
        assert all(char.isprintable() or char == "\n" for char in write(told))


@given(some.text(max_size=60))
def test_escaped_text_is_that_text_and_nothing_else(text: str):
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    inline = [child for token in parser.parse("x" + markdown_text(text) + "x") for child in token.children or ()]
    assert {child.type for child in inline} == {"text"} or {child.type for child in inline} == {"text", "text_special"}
