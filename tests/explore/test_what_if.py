"""The command `what-if`: a plan beside the present in words and JSON, and the check that a pipeline runs before a deployment."""

import json
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from lru_pod import Pod
from rich.console import Console
from stored import stored
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError
from lora_watch.explore.what_if import Asked, answers, fails, number, planned, show, split_of, verdict_lines
from lora_watch.model import DAY, HOUR, SECOND
from lora_watch.recommend.what_if import Added, Number, WhatIf
from lora_watch.store.tables import Store

END = 20_000 * DAY + 12 * HOUR
NAMES = ("legal", "sql", "we,ird </b>[bold]\n")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters in turn on two slots, one a second for twenty minutes; a load takes 0.2 s."""
    made = Pod(slots=2, load=0.2).start(END - HOUR)
    for at in range(1200):
        made.ask(END - (1200 - at) * SECOND, NAMES[at % 3], hold=0.1)
    folder = tmp_path_factory.mktemp("ring")
    stored(folder, events=made.event_rows(), requests=made.request_rows())
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters on four slots: nobody ever leaves. A load takes a second; slots are of rank 16, as all adapters are."""
    made = Pod(slots=4, load=1.0).start(END - HOUR)
    made.events[0]["detail"] = '{"role":"worker","max_rank":16}'
    for at in range(1200):
        made.ask(END - (1200 - at) * SECOND, NAMES[at % 3], hold=0.1)
    folder = tmp_path_factory.mktemp("calm")
    rows = made.event_rows().with_columns(rank=pl.when(pl.col("kind") == "load").then(16).cast(pl.Int64))
    stored(folder, events=rows, requests=made.request_rows())
    return folder


def run(data: Path, *arguments: str):
    result = CliRunner().invoke(app, ["what-if", "--data", str(data), "--last", "1h", *arguments])
    return result.exit_code, result.stdout, result.stderr


def answer(data: Path, **asked):
    (told,) = answers(Store(data), "1h", None, END + HOUR, Settings(), Asked(**asked))
    return told


def printed(told, width: int = 130) -> str:
    written = StringIO()
    show([told], Console(file=written, width=width))
    return written.getvalue()


def test_a_plan_stands_beside_the_present(ring: Path):
    code, text, _ = run(ring, "--slots", "3")
    assert code == 0
    assert "3 slots per pod" in text
    assert "100 % fewer swaps" in text
    assert "No limit is passed" in text


def test_json_tells_both_sides_and_how_it_is_known(ring: Path):
    _, text, _ = run(ring, "--slots", "+1", "--format", "json")
    told = json.loads(text)
    (pool,) = told["pools"]
    assert told["verdict"] == "fine"
    assert (pool["now"]["miss_ratio"], pool["then"]["miss_ratio"]) == (1.0, 0.0)
    assert (pool["provenance"], pool["judged"]["end"]) == ("observed", "2024-10-04T11:59:59Z")
    assert pool["method"].startswith("replay")


def test_adapters_that_do_no_harm_pass_the_check(calm: Path):
    code, text, _ = run(calm, "--add-adapters", "1", "--split-of", "top 1", "--fail-on", "warn")
    assert code == 0
    assert "no harm foreseen" in text


def test_adapters_that_do_harm_fail_the_check_in_words(calm: Path):
    code, text, _ = run(calm, "--add-adapters", "6", "--split-of", "top 3", "--share", "0.9", "--fail-on", "harm")
    assert code == 1
    assert "HARM: pods stand still for loads" in text
    assert "WARNING:" in text


def test_the_check_tells_a_pipeline_why_in_json(calm: Path):
    code, text, _ = run(calm, "--add-adapters", "6", "--split-of", "top 3", "--fail-on", "harm", "--format", "json")
    told = json.loads(text)
    signs = {sign["signal"]: sign for sign in told["pools"][0]["signs"]}
    assert (code, told["verdict"]) == (1, "harm")
    assert signs["stall_share"]["harm"]
    assert signs["stall_share"]["value"] > signs["stall_share"]["limit"] > signs["stall_share"]["now"]


def test_without_fail_on_harm_is_told_and_nothing_fails(calm: Path):
    code, text, _ = run(calm, "--add-adapters", "6", "--split-of", "top 3")
    assert code == 0
    assert "HARM" in text


def test_a_warning_fails_only_who_asks_for_warnings(calm: Path):
    told = answer(calm, add=6, split_of="top 3", load_seconds=0.0)
    assert told.verdict == "warn"
    assert (fails([told], "harm"), fails([told], "warn"), fails([told], None)) == (False, True, False)


def test_what_is_harmful_already_and_gets_no_worse_is_no_harm_of_the_plan(ring: Path):
    told = answer(ring, pins=("legal",))
    assert told.verdict == "fine"
    assert any(line.endswith("and the plan makes it no worse") and "now 100 %" in line for line in told.before)
    assert "Past its limit already: " in printed(told)


def test_a_rank_above_the_engines_limit_is_harm(calm: Path):
    told = answer(calm, add=1, split_of="top 1", rank=64)
    assert told.verdict == "harm"
    assert "HARM: rank 64 is above --max-lora-rank 16" in printed(told)


def test_a_load_of_a_rank_takes_what_its_bytes_say(calm: Path):
    told = answer(calm, add=1, split_of="top 1", share=1.0, rank=8)
    assert told.foreseen.plan.added.load_seconds == pytest.approx(0.5)


def test_what_a_load_of_a_rank_takes_is_unknown_without_a_rank_of_the_slots(ring: Path):
    told = answer(ring, add=1, split_of="top 1", rank=8)
    assert any("what a load of that rank takes" in line for line in told.unknown)


def test_pins_without_room_are_told(ring: Path):
    told = answer(ring, pins=("legal", "sql"))
    assert any(line.startswith("1 pin is in no pod of the plan: ") for line in told.unknown)
    assert "not known: 1 pin is in no pod" in printed(told)


def test_swaps_that_there_are_none_of_yet_are_counted(calm: Path):
    assert "swaps, where there is none now." in printed(answer(calm, slots="2"))


def test_harm_is_said_first(calm: Path):
    first, _ = verdict_lines(answer(calm, add=6, split_of="top 3"))[:2]
    assert first.startswith("HARM")


def test_the_verdict_stands_before_its_numbers(ring: Path):
    text = printed(answer(ring, slots="3"))
    assert text.index("100 % fewer swaps") < text.index("requests that miss")


def test_harm_by_loads_cannot_be_foreseen_where_nobody_measured_any(tmp_path: Path):
    made = Pod(slots=2, load=0.2).start(END - HOUR)
    for at in range(600):
        made.ask(END - (600 - at) * SECOND, NAMES[at % 3], hold=0.1)
    stored(tmp_path, events=made.event_rows().with_columns(seconds=pl.lit(None, pl.Float64)), requests=made.request_rows())
    told = answer(tmp_path, slots="3")
    assert any("how long loads take" in line for line in told.unknown)
    assert told.foreseen.now.load_share is None


def test_where_no_router_is_like_the_present_one_that_is_told(tmp_path: Path):
    """Two pods, each with adapters of its own: no router that is known keeps them apart."""
    pods = [Pod(slots=2, load=0.2, name=f"pod-{n}").start(END - HOUR) for n in range(2)]
    for at in range(1200):
        pods[at % 2].ask(END - (1200 - at) * SECOND, f"{at % 2}-{at // 2 % 3}", hold=0.1)
    for pod in pods:
        events = pod.event_rows().with_columns(stream=pl.lit(f"agent/c/{pod.name}/boot"))
        stored(tmp_path, events=events, requests=pod.request_rows())
    told = answer(tmp_path, slots="3")
    known = any("which router routes" in line for line in told.unknown)
    assert known == (told.foreseen.router is None)


def test_traffic_of_their_own_is_counted(calm: Path):
    told = answer(calm, add=2, rate=1.0)
    assert told.foreseen.moved == pytest.approx(0.5, abs=0.06)


def test_a_hostile_name_is_a_name_commas_and_all(ring: Path):
    told = answer(ring, pins=(NAMES[2],))
    assert [one.adapter for one in told.foreseen.pins] == [NAMES[2]]
    assert "[bold]" in printed(told)


def test_a_pin_that_is_named_twice_is_one(ring: Path):
    assert printed(answer(ring, pins=("legal", "legal,sql"))).startswith("c/p: legal and sql pinned")


def test_names_may_stand_with_commas_between_them(ring: Path):
    told = answer(ring, add=2, split_of="legal, sql", share=1.0)
    assert told.foreseen.moved == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slots", "many"], "--slots is a number"),
        (["--pods", "١"], "--pods is a number"),
        (["--slots", "0"], "too few"),
        (["--pods", "3"], "name --routing"),
        (["--routing", "best"], "is no routing"),
        (["--pin", "nobody"], "asks for 'nobody'"),
        (["--add-adapters", "3"], "need traffic"),
        (["--add-adapters", "3", "--split-of", "top 1", "--rate", "1"], "give one of them"),
        (["--split-of", "top 1"], "say how many"),
        (["--pool", "elsewhere"], "no pool 'elsewhere'"),
        (["--rank", "8"], "say how many"),
        (["--load-seconds", "1"], "say how many"),
    ],
)
def test_what_is_impossible_is_refused_in_one_sentence(ring: Path, arguments: list[str], said: str):
    code, _, text = run(ring, *arguments)
    assert code == 2
    assert said in text
    assert len(text.splitlines()) == 1


def test_an_empty_store_is_told(tmp_path: Path):
    code, _, text = run(tmp_path, "--slots", "3")
    assert code == 2
    assert "nothing is stored" in text


def test_of_several_pools_one_has_to_be_named(tmp_path: Path):
    for pool in ("chat", "code"):
        made = Pod(slots=2, load=0.2, name=f"{pool}-0").start(END - HOUR)
        for at in range(400):
            made.ask(END - (400 - at) * SECOND, NAMES[at % 3], hold=0.1)
        named = pl.lit(pool)
        stored(tmp_path, events=made.event_rows().with_columns(pool=named), requests=made.request_rows().with_columns(pool=named))
    with pytest.raises(LoraWatchError, match="--pool chat and code"):
        answer(tmp_path, slots="3")
    (told,) = answers(Store(tmp_path), "1h", None, END + HOUR, Settings(), Asked(slots="3"), pool="chat")
    assert told.foreseen.then.slots == 3


@pytest.mark.parametrize("width", [60, 130])
def test_no_line_is_wider_than_the_terminal(ring: Path, width: int):
    assert max(map(len, printed(answer(ring, slots="3", pins=(NAMES[2],)), width).splitlines())) <= width


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (WhatIf(), "nothing changed"),
        (WhatIf(slots=Number(-1, more=True)), "−1 slot per pod"),
        (WhatIf(pods=Number(1), router="affinity"), "1 pod, affinity routing"),
        (WhatIf(pins=("a", "b")), "a and b pinned"),
        (WhatIf(added=Added(20, 20)), "20 adapters more, 50 % of the requests of the top 20"),
        (WhatIf(added=Added(1, ("a",), 0.1)), "1 adapter more, 10 % of the requests of a"),
        (WhatIf(added=Added(2, rate=0.5)), "2 adapters more with 0.5 requests/s"),
    ],
)
def test_a_plan_is_told_in_words(plan, words):
    assert planned(plan) == words


@pytest.mark.parametrize("text", ["", "+", "1.5", "1e3", "--1", "99999999", "5 6"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(LoraWatchError, match="is a number"):
        number(text, "slots")


def test_a_name_that_begins_with_top_is_a_name():
    assert split_of("topology", []) == ("topology",)
    assert split_of("top 3 b", ["top 3 b"]) == ("top 3 b",)
