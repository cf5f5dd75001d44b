"""``lora-watch backtest``: the stored weeks of a pool, held out one at a time, in a table and as JSON."""

import io
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import Settings
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore.backtest import RULES, as_json, backtested, sentence, show, window_of
from lora_watch.model import DAY, SECOND
from lora_watch.recommend.advice import Verdict
from lora_watch.recommend.backtest import Backtest
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store
from tests.builders import rows
from tests.stored import stored

START = 1_790_553_600_000_000
HOSTILE = "[red]x[/red]\n</script>\x1b[31m $(id) {{"
DAYS, PER_DAY = 23, 80
END = START + DAYS * DAY


def laid(folder, days: int) -> Store:
    """One pod with two slots, which three adapters come to in turn: LRU misses every time, one pin saves a third."""
    count = days * PER_DAY
    names = np.array(["legal", "sql", HOSTILE])
    at = START + np.arange(count, dtype=np.int64) * (DAY // PER_DAY)
    times = dict.fromkeys(("arrived", "queued", "scheduled"), at) | dict.fromkeys(("at", "finished"), at + SECOND)
    requests = pl.DataFrame(
        {
            **times,
            "cluster": "cluster",
            "pool": "[b]pool",
            "role": "",
            "pod": "pod-0",
            "engine": "0",
            "stream": "agent/pod-0/api",
            "seq": np.arange(1, count + 1),
            "adapter": names[np.arange(count) % 3],
            "provenance": "observed",
            "source": "test",
        }
    )
    here = {"cluster": "cluster", "pool": "[b]pool", "role": "", "pod": "pod-0", "at": START}
    start = {**here, "kind": "start", "slots": 2, "cpu_capacity": 8, "clock": "host", "detail": '{"role":"worker"}'}
    return stored(folder, requests=REQUESTS.conform(requests), events=rows(ADAPTER_EVENTS, [start]))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return laid(tmp_path_factory.mktemp("store"), DAYS)


@pytest.fixture(scope="module")
def found(store):
    heard = []
    told = list(backtested(store, 4, END, Settings(), told=lambda what, share: heard.append((what, share))))
    assert [share for _, share in heard] == sorted(share for _, share in heard)
    assert heard[-1] == ("cluster/[b]pool: week 3 of 3", pytest.approx(1.0))
    return told


def printed(one) -> str:
    out = io.StringIO()
    show(one, Console(file=out, width=190, color_system=None))
    return out.getvalue()


def test_each_week_that_has_two_days_before_it_is_held_out(found):
    assert [(week.window.start - START) // DAY for week in found[0].found.weeks] == [2, 9, 16]
    assert [week.advice.verdict for week in found[0].found.weeks] == [Verdict.UNPROVEN, Verdict.ADVISED, Verdict.ADVISED]


def test_the_sentence_says_what_pins_did_and_whether_they_kept_their_promise(found):
    told = sentence(found[0].found)
    assert told.startswith(
        "Pins would have been advised in 2 of 3 held-out weeks: they would have removed 33 % of the swaps there"
    )
    assert "kept their promise in 2" in told
    assert "top 5 of 30 days, pinned every week" in told


def test_the_table_has_a_line_for_each_week_with_rules_and_bounds(found):
    text = printed(found[0])
    assert "[b]pool" in text
    assert all(heading in text for heading in (*RULES.values(), "promised", "realised", "Belady"))
    assert "too early" in text
    assert "on the recorded pods" in text


def test_json_has_all_of_it(found):
    told = json.loads(as_json(found))["backtests"][0]
    assert told["pool"] == "cluster/[b]pool"
    assert told["weeks"][0]["advice"]["verdict"] == "unproven"
    assert told["weeks"][2]["window"]["start"] == "2026-10-14T00:00:00Z"
    pinned = {name for week in told["weeks"] for name in week["advice"]["adapters"]}
    assert pinned
    assert pinned <= {"legal", "sql", HOSTILE}


def test_the_command_answers_in_both_forms(store):
    asked = ["backtest", "--data", str(store.root), "--weeks", "1"]
    table, plain = CliRunner().invoke(app, asked), CliRunner().invoke(app, [*asked, "--format", "json"])
    assert table.exit_code == plain.exit_code == 0
    assert "1 held-out week" in table.stdout
    assert "\x1b[31m" not in table.stdout
    assert len(json.loads(plain.stdout)["backtests"][0]["weeks"]) == 1


def test_without_advice_and_without_swaps_the_sentence_says_so(found):
    week = found[0].found.weeks[0]
    unproven = replace(week, advice=replace(week.advice, verdict=Verdict.UNPROVEN))
    assert sentence(Backtest((unproven,), "observed")).startswith("In 1 held-out week no pins would have been advised. The top 5")
    idle = {name: replace(effect, swaps=0, base_swaps=0) for name, effect in week.rules.items()}
    assert sentence(Backtest((replace(unproven, rules=idle),), None)) == "In 1 held-out week no pins would have been advised."


def test_a_store_of_eight_days_has_no_week_to_hold_out(tmp_path):
    with pytest.raises(NotEnoughHistory, match="nine in all"):
        list(backtested(laid(tmp_path, 8), 4, START + 8 * DAY, Settings()))


def test_the_articles_rule_counts_thirty_days_before_the_first_week():
    assert (window_of(4, END).end, END - window_of(4, END).start) == (END, 58 * DAY)
