"""``lora-watch recommend``: a table for people, JSON and YAML for programs, text for engines; hostile names stay names."""

import io
import json

import numpy as np
import polars as pl
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import Settings
from lora_watch.errors import LoraWatchError, NotEnoughHistory
from lora_watch.explore.advice import Advised, advised, prices_of, token_bytes_of, window_until
from lora_watch.explore.advice_words import as_json, as_yaml, for_target, lines, row, show, tree
from lora_watch.explore.progress import bar
from lora_watch.model import DAY, SECOND, Window
from lora_watch.recommend.advice import Advice, Effect, Kind, Recommendation, Setup, Verdict
from lora_watch.recommend.targets import TARGETS
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.store.tables import Store
from tests.builders import rows
from tests.stored import stored

START = 1_790_553_600_000_000
HOSTILE = "[red]x[/red]\n</script>'; rm -rf \x1b[31m $(id) {{"
COUNT = 6000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixteen days of two pods with two slots, which four adapters, one with a hostile name, come to in turn."""
    names = np.array(["legal", "sql", "support", HOSTILE])
    random = np.random.default_rng(1)
    at = START + np.arange(COUNT, dtype=np.int64) * (16 * DAY // COUNT)
    pods = np.array(["pod-0", "pod-1"])[np.arange(COUNT) % 2]
    times = dict.fromkeys(("arrived", "queued", "scheduled"), at) | dict.fromkeys(("at", "finished"), at + SECOND)
    requests = pl.DataFrame(
        {
            **times,
            **{name: "" if name == "role" else name for name in ("cluster", "pool", "role")},
            "pod": pods,
            "engine": "0",
            "stream": "agent/" + pl.Series(pods) + "/api",
            "seq": np.arange(1, COUNT + 1),
            "adapter": names[random.integers(0, 4, COUNT)],
            "provenance": "observed",
            "source": "test",
        }
    )
    here = {"cluster": "cluster", "pool": "pool", "role": "", "at": START}
    detail = '{"max_rank":16,"model":"meta-llama/Llama-3.1-70B","role":"worker","vllm":"0.32.0"}'
    start = {**here, "kind": "start", "slots": 2, "cpu_capacity": 8, "clock": "host", "detail": detail}
    loads = [
        {**here, "kind": "load", "tier": "gpu", "adapter": name, "seconds": 0.1, "rank": 16, "bytes": 65_536_000, "ok": True}
        for name in names.tolist()
    ]
    register = {**here, "kind": "register", "ok": True, "adapter": "legal", "detail": '{"path":"/adapters/legal"}'}
    events = [{**start, "pod": "pod-0"}, *({**one, "pod": "pod-0"} for one in (*loads, register)), {**start, "pod": "pod-1"}]
    where = tmp_path_factory.mktemp("store")
    stored(where, requests=REQUESTS.conform(requests), events=rows(ADAPTER_EVENTS, events))
    return where


@pytest.fixture(scope="module")
def found(folder):
    store = Store(folder)
    return list(advised(store, window_until(store, "30d", None, START + 17 * DAY), Settings()))


def printed(one: Advised) -> str:
    out = io.StringIO()
    show(one.recommendation, Console(file=out, width=150, color_system=None))
    return out.getvalue()


def test_the_table_begins_with_the_sentence_and_ranks_what_is_proven_first(found):
    text = printed(found[0])
    assert found[0].recommendation.sentence[:40] in text
    assert text.index("ADVISED") < text.index("how ")


def test_the_articles_rule_is_in_the_table(found):
    assert "article" in printed(found[0])


def test_the_price_of_a_slot_is_known_by_the_models_name(found):
    slots = [one for one in found[0].recommendation.advice if one.kind == "slots"]
    assert slots[0].cost.startswith("200 KV-cache tokens") or "KV-cache tokens" in slots[0].cost


def test_a_hostile_name_is_neither_markup_nor_a_line_nor_an_escape(found):
    text = printed(found[0])
    assert "\x1b" not in text
    assert "\n</script>" not in text


def test_json_holds_all_of_it_in_ascii(found):
    text = as_json(found)
    assert text.isascii()
    (told,) = json.loads(text)["recommendations"]
    assert [one["what"] for one in told["advice"]] == [one.what for one in found[0].recommendation.advice]
    assert told["window"]["end"].startswith("2026-10-1")
    assert told["advice"][0]["verdict"] == "advised"


def test_yaml_says_the_same(found):
    assert yaml.safe_load(as_yaml(found)) == json.loads(as_json(found))


@pytest.mark.parametrize("target", list(TARGETS))
def test_every_target_is_told_as_text(found, target):
    text = for_target(found, target)
    assert text.startswith("# cluster/pool: ")
    assert "\x1b" not in text


def test_a_target_is_in_the_json_where_it_is_asked_for(found):
    (told,) = json.loads(as_json(found, "vllm"))["recommendations"]
    assert told["target"]["name"] == "vllm"
    assert "--max-loras" in json.dumps(told["target"]["files"])


def test_a_target_that_is_none_is_told_with_those_that_are(found):
    with pytest.raises(LoraWatchError, match="vllm, sglang"):
        for_target(found, "nobody")


def test_help_names_every_target():
    shown = CliRunner().invoke(app, ["recommend", "--help"], env={"COLUMNS": "200"}).output
    assert all(name in shown for name in TARGETS)


def test_the_command_prints_a_table(folder):
    told = CliRunner().invoke(app, ["recommend", "--data", str(folder), "--at", "2026-10-14T00:00:00Z"])
    assert told.exit_code == 0, told.output
    assert "per pod" in told.stdout


@pytest.mark.parametrize(("more", "reads"), [(["--format", "json"], json.loads), (["--format", "yaml"], yaml.safe_load)])
def test_the_command_answers_programs(folder, more, reads):
    asked = ["recommend", "--data", str(folder), "--at", "2026-10-14T00:00:00Z", "--last", "9d", "--pool", "pool", *more]
    told = CliRunner().invoke(app, asked)
    assert reads(told.stdout)["recommendations"][0]["setup"]["pool"] == "cluster/pool"


def test_what_can_be_done_is_of_the_engine_that_is_named(folder):
    told = CliRunner().invoke(app, ["recommend", "--data", str(folder), "--engine", "sglang", "--format", "json"])
    slots = next(one for one in json.loads(told.stdout)["recommendations"][0]["advice"] if one["kind"] == "slots")
    assert slots["how"].startswith("--max-loras-per-batch")


def test_the_command_prints_files_for_an_engine(folder):
    asked = ["recommend", "--data", str(folder), "--at", "2026-10-14T00:00:00Z", "--last", "9d", "--target", "vllm"]
    assert "--max-loras" in CliRunner().invoke(app, asked).stdout


def test_a_pool_of_which_too_little_is_held_takes_nothing_from_the_others(folder, tmp_path):
    store = Store(folder)
    few = store.rows(REQUESTS).head(5).with_columns(pool=pl.lit("small"), pod=pl.lit("s-0"), stream=pl.lit("agent/s"))
    start = store.rows(ADAPTER_EVENTS, where=pl.col("kind") == "start").head(1)
    start = start.with_columns(pool=pl.lit("small"), pod=pl.lit("s-0"), stream=pl.lit("agent/w"))
    both = [
        pl.concat([store.rows(table), rows]).drop("date", "bucket") for table, rows in ((REQUESTS, few), (ADAPTER_EVENTS, start))
    ]
    joined = stored(tmp_path, requests=REQUESTS.conform(both[0]), events=ADAPTER_EVENTS.conform(both[1]))
    told = list(advised(joined, window_until(joined, "30d", None, START + 17 * DAY), Settings()))
    assert [one.pool[1] for one in told] == ["pool", "small"]
    assert told[1].recommendation.sentence.startswith("Nothing is advised: of ")
    assert "Nothing is advised" in printed(told[1])


def test_where_too_little_is_held_of_every_pool_that_is_said(tmp_path, folder):
    few = REQUESTS.conform(Store(folder).rows(REQUESTS).head(5).drop("date", "bucket"))
    start = Store(folder).rows(ADAPTER_EVENTS, where=pl.col("kind") == "start").drop("date", "bucket")
    store = stored(tmp_path, requests=few, events=ADAPTER_EVENTS.conform(start))
    with pytest.raises(NotEnoughHistory, match="any change is chance"):
        list(advised(store, window_until(store, "30d", None, START + 17 * DAY), Settings()))


def test_what_is_missing_is_one_sentence_and_exit_code_2(tmp_path):
    told = CliRunner().invoke(app, ["recommend", "--data", str(tmp_path)])
    assert told.exit_code == 2
    assert "nothing is stored yet" in told.stderr


def test_a_price_turns_pods_into_money(folder):
    asked = [
        "recommend",
        "--data",
        str(folder),
        "--at",
        "2026-10-14T00:00:00Z",
        "--last",
        "9d",
        "--price",
        "2",
        "--format",
        "json",
    ]
    told = json.loads(CliRunner().invoke(app, asked).stdout)["recommendations"][0]
    assert any("1,460 USD" in one["cost"] for one in told["advice"] if one["kind"] == "pods")


def test_a_window_ends_where_the_data_end(folder):
    window = window_until(Store(folder), "2d", None, START + 30 * DAY)
    assert window == Window(window.end - 2 * DAY, window.end)
    assert window.end <= START + 16 * DAY + SECOND


def test_prices_are_the_configurations():
    told = prices_of(Settings.model_validate({"cost": {"gpu_hour_price": 3.0, "gpus_per_pod": 4}}), None)
    assert (told.gpus_per_pod, told.gpu_hour, told.token_bytes) == (4, 3.0, None)


def test_a_model_of_unknown_shape_has_no_price_in_tokens():
    assert token_bytes_of("our/own-model") is None


def test_a_bar_is_drawn_on_a_terminal_only():
    out = io.StringIO()
    with bar("reading", Console(file=out, force_terminal=False)) as told:
        told("[red]half", 0.5)
    assert out.getvalue() == ""


def test_a_bar_shows_names_as_they_are():
    out = io.StringIO()
    with bar("reading", Console(file=out, force_terminal=True, width=100)) as told:
        told("[red]half\n", 0.5)
    assert "[red]half\\n" in out.getvalue()


def one_of(what="do it", *, effect=None, **more):
    told = {"why": "", "method": "replay", "cost": "", "risk": "", "can": None, "how": "", "judged": None, "learned": None}
    return Advice(Kind.SLOTS, Verdict.ADVISED, what, effect=effect or Effect(0.5, 0.4, 0.6, 5, 10), **{**told, **more})


def test_a_recommendation_of_little_is_printed_all_the_same():
    bare = Recommendation(Setup("p"), Window(START, START + DAY), "Do it.", (one_of(), one_of("more")), None, gaps=("[b]a gap",))
    text = printed(Advised(("", "p", ""), bare, {}))
    assert "engine unknown" in text
    assert "not in it  [b]a gap" in text
    assert "proof   replay; 5 swaps instead of 10" in text


def test_what_waits_is_named_and_what_gets_slower_is_below_zero():
    told = row(one_of(effect=Effect(0.1, 0.0, 0.2, 9, 10, -0.25, 1.5, 0.8, 0.7, 0.9)))
    assert told[2:6] == ("80 % of waiting for slots", "70 % … 90 %", "-250 ms", "1.5")


def test_what_is_unknown_is_a_dash():
    assert row(one_of(effect=Effect(None, None, None, None, None)))[2:6] == ("unknown", "–", "–", "–")


def test_a_bound_far_below_zero_is_told_as_that():
    assert row(one_of(effect=Effect(0.8, -20.5, 1.0, 9, 10)))[3] == "< -1000 % … 100 %"


def test_what_nobody_feels_is_nothing_saved():
    assert row(one_of(effect=Effect(0.1, 0.0, 0.2, 9, 10, 0.00003, 3.806)))[4:6] == ("0", "3.8")
    assert row(one_of(effect=Effect(0.1, 0.0, 0.2, 9, 10, -0.00003, -0.001)))[4:6] == ("0", "0.0")


def test_what_the_columns_are_of_is_said_below_them(found):
    assert "effects do not add up" in printed(found[0])


def test_no_swaps_are_told_where_nobody_counted_them():
    assert lines(one_of(effect=Effect(None, None, None, None, None)))[-1] == "proof   replay"


def test_a_number_that_is_none_is_null():
    told = Recommendation(Setup("p"), Window(0, 1), "", (), None, bounds={"x": float("nan")}, learning_cut=0)
    assert (tree(told)["bounds"], tree(told)["learning_cut"]) == ({"x": None}, "1970-01-01T00:00:00Z")
