"""The traps of a real vLLM page, on pages captured from vLLM 0.32.0 with two slots and six adapters."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch import names
from lora_watch.model import SECOND, PodId
from lora_watch.schema import SAMPLES
from lora_watch.sources import vllm
from lora_watch.sources.exposition import parse_page
from lora_watch.sources.series import sample_frame

POD = PodId("c", "p", "pool", "decode")
NOW = 1_796_026_840  # seconds: just after the captures
TWO_SERVERS = 1_796_027_310


def rows(page: bytes, now: float = NOW, known=()):
    parsed = parse_page([page], vllm.WANTED)
    found, problems = vllm.read_page(parsed, POD, int(now * SECOND) - 1, int(now * SECOND), "s", known)
    return sample_frame(found), problems


def of(frame: pl.DataFrame, metric: str) -> list[tuple[str | None, float]]:
    return list(frame.filter(metric=metric).select("adapter", "value").iter_rows())


def gauge(running: str, value: float, waiting: str | None = None, slots: str = "2") -> bytes:
    lists = f'running_lora_adapters="{running}",waiting_lora_adapters="{running if waiting is None else waiting}"'
    return f'{names.LORA_REQUESTS_INFO}{{max_lora="{slots}",{lists}}} {value}\n'.encode()


def test_an_idle_server_that_never_served_says_nothing_about_adapters(data):
    frame, problems = rows(data("vllm-0.32.0-idle.prom"))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == of(frame, names.SAMPLE_MAX_LORA) == []
    assert problems == ()


def test_only_the_newest_series_counts(data):
    frame, _ = rows(data("vllm-0.32.0-six-wanted.prom"))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [("adapter-e", 1.0), ("adapter-f", 1.0)]


def test_an_empty_list_is_nobody_in_flight_and_no_word_on_residency(data):
    frame, _ = rows(data("vllm-0.32.0-after.prom"))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [(None, 0.0)]
    assert not any(metric in frame["metric"] for metric in vllm.RESIDENCY_GAUGES)


def test_both_lists_are_one_set_in_flight(data):
    frame, _ = rows(data("vllm-0.32.0-two-in-flight.prom"))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [("adapter-a", 1.0), ("adapter-b", 1.0)]


def test_what_is_in_flight_has_provenance_activity_and_the_rest_is_observed(data):
    frame, _ = rows(data("vllm-0.32.0-two-in-flight.prom"))
    found = dict(frame.select("metric", "provenance").unique().iter_rows())
    assert found.pop(names.SAMPLE_IN_FLIGHT) == "activity"
    assert set(found.values()) == {"observed"}


def test_the_number_of_slots_is_read_from_its_label(data):
    frame, _ = rows(data("vllm-0.32.0-after.prom"))
    assert of(frame, names.SAMPLE_MAX_LORA) == [(None, 2.0)]


def test_time_stamps_added_up_by_two_servers_are_taken_apart(data):
    page = data("vllm-0.32.0-two-api-servers.prom")
    frame, problems = rows(page, TWO_SERVERS)
    # The greatest value, 3.592e9, is an older series set by both; the newest is set by one.
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [("adapter-a", 1.0), ("adapter-c", 1.0)]
    assert problems == ()


def test_counters_histograms_and_queue_reasons_are_kept_with_their_labels(data):
    frame, _ = rows(data("vllm-0.32.0-six-wanted.prom"))
    reasons = {row["labels"] for row in frame.filter(metric=names.WAITING_BY_REASON).iter_rows(named=True)}
    assert '{"engine":"0","model_name":"tiny","reason":"deferred"}' in reasons
    for histogram in names.HISTOGRAMS:
        assert {histogram + suffix for suffix in ("_sum", "_count", "_bucket")} <= set(frame["metric"])
    assert of(frame, names.GENERATION_TOKENS) == [(None, 1772.0)]


def test_every_row_fits_the_table_and_no_series_is_there_twice(data):
    frame, _ = rows(data("vllm-0.32.0-six-wanted.prom"))
    assert frame.schema == dict(SAMPLES.schema)
    assert frame["series"].n_unique() == frame.height


def test_the_old_name_of_the_cache_gauge_is_stored_under_the_present_one():
    frame, _ = rows(b'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n')
    assert of(frame, names.KV_CACHE_USAGE) == [(None, 0.5)]


def test_an_engine_that_exports_both_names_of_the_cache_gauge_has_it_once():
    frame, problems = rows(b'vllm:gpu_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n')
    assert of(frame, names.KV_CACHE_USAGE) == [(None, 0.5)]
    assert problems == ()


def test_named_residents_are_observed_and_then_the_stock_gauge_is_not_read():
    page = b'vllm:lora_adapter_loaded{adapter_name="a",level="gpu",pinned="false",rank="8"} 1\n' + gauge("b", NOW)
    frame, _ = rows(page)
    assert of(frame, names.ADAPTER_LOADED) == [("a", 1.0)]
    assert of(frame, names.SAMPLE_IN_FLIGHT) == []
    assert of(frame, names.SAMPLE_MAX_LORA) == [(None, 2.0)]


def test_the_rival_proposal_counts_residents_without_names_so_the_stock_gauge_still_tells_who_runs():
    frame, _ = rows(b'vllm:lora_cache_num_adapters{tier="gpu"} 2\n' + gauge("b", NOW))
    assert of(frame, names.CACHE_ADAPTERS) == [(None, 2.0)]
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [("b", 1.0)]


def test_before_0_11_who_only_waits_is_marked():
    frame, _ = rows(gauge("a", NOW, waiting="b"))
    found = frame.filter(metric=names.SAMPLE_IN_FLIGHT).select("adapter", "labels").rows()
    assert found == [("a", "{}"), ("b", '{"state":"waiting"}')]


def test_a_gauge_not_set_while_requests_run_is_said_to_be_stale():
    page = gauge("a", NOW - 3600) + b'vllm:num_requests_running{engine="0"} 3\n'
    assert "stale" in rows(page)[1][0]
    assert rows(page.replace(b"} 3", b"} 0"))[1] == ()


@pytest.mark.parametrize("value", [0.0, -1.0, 12.0, 4_102_444_800.0, math.nan, math.inf])
def test_a_time_stamp_of_1970_or_2100_gives_no_adapter_and_a_problem(value):
    frame, problems = rows(gauge("a", value))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == []
    assert "clock" in problems[0]


def test_nan_and_infinity_are_left_out_and_counted():
    frame, problems = rows(
        b'vllm:num_requests_running{engine="0"} NaN\nvllm:kv_cache_usage_perc +Inf\nvllm:num_requests_waiting 1\n'
    )
    assert frame["metric"].to_list() == [names.REQUESTS_WAITING]
    assert problems == ("2 values are NaN or infinite and were left out",)


def test_a_page_that_is_no_vllm_says_so():
    assert "is this a vLLM server" in rows(b"up 1\n")[1][0]


def test_slots_that_are_no_number_are_a_problem_and_the_names_still_count():
    frame, problems = rows(gauge("a", NOW, slots="many"))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [("a", 1.0)]
    assert "max_lora" in problems[0]


@pytest.mark.parametrize(
    ("text", "known", "found"),
    [
        ("", (), ()),
        ("a,b", (), ("a", "b")),
        ("a,b,a", (), ("a", "b")),
        ("a,b,c", {"a,b", "c"}, ("a,b", "c")),
        ("a,b,c", {"a", "a,b,c", "a,b"}, ("a,b,c",)),
        ("new,x,y", {"x,y"}, ("new", "x,y")),
        (",", {","}, (",",)),
    ],
)
def test_names_with_commas_are_found_by_the_longest_known_one(text, known, found):
    assert vllm.adapter_names(text, known) == (found, None)


def test_names_that_no_list_resolves_are_kept_whole_and_said():
    found, problem = vllm.adapter_names("x,y,a,b", {"a,b"})
    assert found == ("x,y", "a,b")
    assert problem is not None


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda name: "," not in name), unique=True, max_size=6))
def test_plain_names_joined_with_commas_come_apart_again(adapters):
    assert vllm.adapter_names(",".join(adapters), adapters) == (tuple(adapters), None)


@given(st.floats(0, 3 * 86_400), st.integers(1, 16))
def test_a_sum_of_equal_time_stamps_gives_the_time_stamp(age, servers):
    assert vllm.gauge_time(servers * (NOW - age), NOW) == pytest.approx(NOW - age)


@given(st.lists(st.one_of(st.floats(), st.floats(0, 70 * NOW)), min_size=1))
def test_times_of_a_column_are_those_of_its_values(column):
    frame = pl.DataFrame({"value": pl.Series(column, dtype=pl.Float64)})
    found = frame.select(vllm.gauge_times(pl.col("value"), pl.lit(float(NOW)))).to_series().to_list()
    assert found == [vllm.gauge_time(value, NOW) for value in column]


@pytest.mark.parametrize("name", ['a"b', "new\nline", "</script>", "../x", "x" * 10_000, "‮rtl", "🦙", "b}{"])
def test_a_hostile_name_in_flight_is_a_row_with_just_that_name(name):
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    frame, problems = rows(gauge(escaped, NOW))
    assert of(frame, names.SAMPLE_IN_FLIGHT) == [(name, 1.0)]
    assert problems == ()


@pytest.mark.parametrize(("engines", "whose"), [(("0",), "0"), (("0", "1"), None)])
def test_the_stock_gauge_is_about_the_engine_of_its_page_where_there_is_one(engines, whose):
    running = "".join(f'{names.REQUESTS_RUNNING}{{engine="{engine}"}} 1\n' for engine in engines).encode()
    frame, _ = rows(running + gauge("a", NOW))
    assert set(frame.filter(metric=names.SAMPLE_IN_FLIGHT)["engine"].to_list()) == {whose}
