"""From a store to the report: what is counted, what is missing, and what is not known."""

import re
from pathlib import Path

import pytest
from builders import events, requests, rows
from stored import stored
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.config import CostSettings, Settings
from lora_watch.diagnose.finding import Confidence, Finding, Severity
from lora_watch.errors import NotEnoughHistory
from lora_watch.explore import week as reading
from lora_watch.jobs import Diagnoser
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, Window
from lora_watch.recommend.advice import Kind, Verdict
from lora_watch.report.command import Asked, form_of
from lora_watch.report.gather import gather
from lora_watch.report.weekly import WeeklyReport
from lora_watch.report.weeks import week_named
from lora_watch.report.written import FORMS
from lora_watch.schema import REQUESTS
from lora_watch.store.tables import Store

WEEK = week_named("1970-W02")
"""Its second 0 is ``START`` seconds since 1970."""
START = 4 * 86_400
NOW = WEEK.window.end + HOUR


def at(*seconds: float) -> str:
    """Times of a request in that week."""
    return "/".join(str(START + one) for one in seconds)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two adapters take turns in one slot: three loads of 10 ms, two swaps; four requests in two hours, a silent one between."""
    spans = f"a:{START + 10}-{START + 30} b:{START + 31}-{START + 7300} a!:{START + 7301}-"
    asked = f"a:{at(10, 10, 11, 20)} a:{at(20, 20, 21, 29)} b:{at(31, 31, 32, 40)} a:{at(7301, 7301, 7302, 7310)}"
    return stored(tmp_path_factory.mktemp("small"), events=events(spans, start_at=START + 1, slots=1), requests=requests(asked))


@pytest.fixture(scope="module")
def told(small: Store) -> WeeklyReport:
    return gather(small, Settings(cost=CostSettings(gpu_hour_price=36.0, gpus_per_pod=2)), WEEK, now=NOW)


def test_a_pool_is_counted_by_hour_and_the_hours_add_up(told: WeeklyReport):
    (pool,) = told.pools
    assert (pool.pool, pool.pods, pool.adapters) == ("c / p", 1, 2)
    assert (pool.requests, pool.loads, pool.swaps) == (4, 3, 2)
    assert [(hour.at // HOUR - START // 3600, hour.requests, hour.loads) for hour in pool.hours] == [(0, 3, 2), (2, 1, 1)]
    assert (pool.missed, pool.known) == (0, 4)


def test_what_is_held_of_the_week_is_said(told: WeeklyReport):
    assert told.head.held == Window((START + 1) * SECOND, (START + 7310) * SECOND + 1)
    assert told.head.complete
    assert told.quality.held_ratio == pytest.approx(7309 / (7 * 86_400), rel=0.01)
    assert told.quality.provenance == "observed"
    (quiet,) = told.quality.quiet
    assert (quiet.hours, quiet.start) == (1, (START + 3600) * SECOND)
    assert "Only" in told.summary[4]


def test_gpu_hours_and_money_are_those_of_all_gpus_of_the_engine(told: WeeklyReport):
    (lost,) = told.lost
    assert lost.loads == 3
    assert lost.gpu_hours_lost == pytest.approx(3 * 0.01 * 2 / 3600)
    assert lost.money_lost == pytest.approx(36.0 * 3 * 0.01 * 2 / 3600)
    assert lost.currency == "USD"


def test_offenders_are_ranked_by_the_time_of_their_loads_and_nobody_knows_who_is_new(told: WeeklyReport):
    assert [(one.name, one.loads, one.requests) for one in told.offenders.adapters] == [("a", 2, 3), ("b", 1, 1)]
    assert told.offenders.adapters[0].load_share == pytest.approx(2 / 3)
    assert [one.new for one in told.offenders.adapters] == [None, None]


def test_a_week_of_four_requests_has_no_advice_and_says_why(told: WeeklyReport):
    assert [one.recommendation for one in told.advice] == [None]
    assert told.advice[0].why
    assert told.promises[0].outcomes == ()
    assert told.promises[0].why
    assert "tell policies apart by chance" in told.policies[0].why
    assert told.summary[3].startswith("No advice: ")


def test_where_nobody_looked_one_look_at_the_end_says_how_pools_stand(told: WeeklyReport):
    assert not told.incidents.told
    assert [one.pool for one in told.incidents.standing] == ["c / p"]


def test_a_quiet_week_in_which_a_service_looked_is_told_as_such(tmp_path: Path):
    store = stored(
        tmp_path, events=events(f"a:{START + 10}-", start_at=START, slots=2), requests=requests(f"a:{at(10, 10, 11, 20)}")
    )
    at_noon = (START + 43_200) * SECOND
    Diagnoser(store, lambda _window: []).look(Window(at_noon - HOUR, at_noon), now=at_noon)
    made = gather(store, Settings(), WEEK, now=NOW)
    assert made.incidents.looked == at_noon
    assert made.summary[0].startswith("Nothing was found; ")
    assert "as far as a service looked (last Mon 5 Jan 12:00)" in FORMS["md"](made).replace("\\", "")


def test_a_week_of_which_nothing_is_held_names_the_newest_rows(small: Store):
    with pytest.raises(NotEnoughHistory, match=r"nothing of week 1970-W03; the newest rows are of 1970-01-05T02:01:50Z"):
        gather(small, Settings(), week_named("1970-W03"), now=NOW + 7 * DAY)


def test_a_pool_that_is_not_there_is_said(small: Store):
    with pytest.raises(NotEnoughHistory, match="of a pool 'none' of week 1970-W02; no other rows of it are stored"):
        gather(small, Settings(), WEEK, now=NOW, pool="none")


def test_rows_that_all_lie_ahead_of_the_clock_are_said_to(small: Store):
    with pytest.raises(NotEnoughHistory, match="all rows are ahead of this clock"):
        gather(small, Settings(), WEEK, now=WEEK.window.start + 1)


def test_an_empty_store_is_said(tmp_path: Path):
    with pytest.raises(NotEnoughHistory, match="nothing is stored at all"):
        gather(Store(tmp_path), Settings(), WEEK, now=NOW)


def test_a_week_that_goes_on_is_told_up_to_now(small: Store):
    early = gather(small, Settings(), WEEK, now=(START + 3600) * SECOND)
    assert not early.head.complete
    assert early.pools[0].requests == 3
    assert early.quality.late_seconds == pytest.approx(3600 - 40, abs=1)


def test_incidents_are_told_with_their_harm_inside_the_week(tmp_path: Path, small: Store):
    folder = tmp_path / "told"
    store = stored(
        folder, events=events(f"a:{START + 10}-", start_at=START, slots=2), requests=requests(f"a:{at(10, 10, 11, 20)}")
    )
    begin = (START + 600) * SECOND
    finding = Finding("thrash", Severity.HARM, "c", "p", "", begin, "60 adapters compete", "an A/B test", Confidence.HIGH, 1.0)
    diagnoser = Diagnoser(store, lambda window: [finding] if window.end < begin + 30 * MINUTE else [])
    for minute in range(45):
        diagnoser.look(Window(begin + minute * MINUTE - HOUR, begin + minute * MINUTE), now=begin + minute * MINUTE)
    made = gather(store, Settings(), WEEK, now=NOW)
    (one,) = made.incidents.found
    assert (one.severity, one.harm_seconds, one.seconds) == ("harm", 1800.0, 1800.0)
    assert made.summary[0] == "1 incident, 30 min of harm. From Mon 5 Jan 00:10 on: an A/B test."


def test_days_add_up_to_their_week(small: Store):
    whole = reading.counted(small, WEEK.window, DAY, CostSettings())
    cut = [
        reading.counted(small, one, DAY, CostSettings())
        for one in WEEK.window.split(DAY)
        if one.start < (START + 86_400) * SECOND
    ]
    assert whole.adapters["loads"].sum() == sum(one.adapters["loads"].sum() for one in cut) == 3
    assert whole.hours["requests"].sum() == 4


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> WeeklyReport:
    """
    Five adapters in turn on four slots, a request every ten minutes for 16 days: each misses, and one slot more ends it. The
    report is of the last seven.
    """
    week = week_named("1970-W04")
    first = week.window.start // SECOND - 9 * 86_400
    seconds = [first + 600 * number for number in range(16 * 144)]
    asked = rows(
        REQUESTS,
        [
            {
                "adapter": f"adapter-{number % 5}",
                "at": (second + 10) * SECOND,
                **dict.fromkeys(("arrived", "queued", "scheduled"), second * SECOND),
                "first_token": (second + 1) * SECOND,
                "finished": (second + 10) * SECOND,
            }
            for number, second in enumerate(seconds)
        ],
    )
    started = events(f"x:{first - 5}-", start_at=first - 9, slots=4)
    store = stored(tmp_path_factory.mktemp("cycle"), events=started, requests=asked)
    return gather(store, Settings(), week, now=week.window.end + HOUR)


def test_what_is_advised_is_judged_on_the_week_and_the_usual_rule_beside_it(cycle: WeeklyReport):
    (one,) = cycle.advice
    assert one.recommendation is not None
    slots = next(each for each in one.recommendation.advice if (each.kind, each.amount) == (Kind.SLOTS, 1))
    assert slots.verdict is Verdict.ADVISED
    assert slots.effect.swaps_removed == pytest.approx(1.0)
    assert cycle.article[0].pool == "c / p"


def test_last_weeks_advice_is_held_against_the_week(cycle: WeeklyReport):
    (one,) = cycle.promises
    mine = {each.rule: each for each in one.outcomes if each.mine}
    assert mine["ours: slots"].promised == pytest.approx(1.0)
    assert mine["ours: slots"].removed == pytest.approx(1.0)
    assert {each.rule for each in one.outcomes if not each.mine} >= {"top 5 of 30 days", "+1 slot per pod", "pooled Belady"}


def test_a_whole_week_is_told_beside_the_whole_one_before(cycle: WeeklyReport, told: WeeklyReport):
    assert cycle.before is not None
    assert (cycle.before.requests, cycle.before.p95_seconds) == (1008, 1.0)
    assert told.before is None


def test_who_was_loaded_days_ago_and_never_left_is_found_in_its_slot(tmp_path: Path):
    day = 86_400
    told = events(f"a:{START - 3 * day}- b:{START + 10}-", start_at=START - 3 * day - 9, slots=2)
    asked = " ".join(f"a:{at(n * day + 50, n * day + 50, n * day + 51, n * day + 60)}" for n in range(7))
    counted = reading.counted(stored(tmp_path, events=told, requests=requests(asked)), WEEK.window, DAY, CostSettings())
    assert counted.hours["hot"].sum() == 7
    assert counted.hours["unknown"].sum() == 0


def test_totals_are_those_that_are_counted(small: Store):
    totals = reading.totals(small, WEEK.window)
    assert totals.select("requests", "loads", "swaps").rows() == [(4, 3, 2)]


def test_policies_are_compared_on_the_weeks_own_log_and_nothing_beats_the_bound(cycle: WeeklyReport):
    (one,) = cycle.policies
    told = {row.policy: row for row in one.rows}
    assert list(told) == ["LRU", "LFU", "time-weighted", "Belady's MIN"]
    assert told["LRU"].loads == told["LRU"].base > 0
    bound = told["Belady's MIN"]
    assert bound.loads == pytest.approx(bound.base / 4, rel=0.05)
    assert all(row.loads >= bound.loads for row in one.rows)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["report", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_writes_the_form_that_the_files_ending_names(small: Store, tmp_path: Path):
    code, out, _ = run("--data", str(small.root), "--week", "1970-W02", "--out", str(tmp_path / "new" / "week.HTML"))
    assert (code, out) == (0, "")
    assert (tmp_path / "new" / "week.HTML").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("out", "form", "meant"), [(None, None, "md"), ("a.json", None, "json"), ("a.htm", None, "html"), ("a.txt", "md", "md")]
)
def test_the_form_is_that_of_the_option_else_of_the_file_else_markdown(out: str | None, form: str | None, meant: str):
    assert form_of(Asked("last", None, form, None if out is None else Path(out), send=False)) == meant


def test_the_command_prints_markdown_and_says_what_is_missing(small: Store):
    code, out, _ = run("--data", str(small.root), "--week", "1970-W02", "--pool", "p")
    assert code == 0
    assert re.search(r"^Mon 5 Jan – Sun 11 Jan 1970, UTC · pool p$", out, re.MULTILINE)
    code, _, err = run("--data", str(small.root))
    assert code == 2
    assert "the newest rows are of 1970-01-05" in err
    code, _, err = run("--data", str(small.root), "--week", "1970-W60")
    assert (code, "there is no week" in err) == (2, True)
    code, _, err = run("--data", str(small.root), "--week", "1970-W02", "--out", "report.pdf")
    assert (code, "say which with --format" in err) == (2, True)


def test_to_send_it_needs_somebody(small: Store, tmp_path: Path):
    config = tmp_path / "lora-watch.yaml"
    config.write_text(f"store: {{folder: '{small.root}'}}")
    code, _, err = run("--config", str(config), "--week", "1970-W02", "--send")
    assert (code, "needs somebody to send to" in err) == (2, True)


def test_who_is_not_reached_is_named_and_the_others_get_it(small: Store, tmp_path: Path, webhook):
    config = tmp_path / "lora-watch.yaml"
    config.write_text(
        f"store: {{folder: '{small.root}'}}\n"
        f"report: {{webhooks: [{{name: gone, url_env: NOT_SET_AT_ALL}}, {{name: there, url: '{webhook.url}'}}]}}\n"
    )
    code, out, err = run("--config", str(config), "--week", "1970-W02", "--send")
    assert (code, out) == (1, "")
    assert "NOT_SET_AT_ALL" in err
    assert "sent to webhook 'there'" in err
    assert len(webhook.bodies) == 1
