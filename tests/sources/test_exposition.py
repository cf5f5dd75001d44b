"""The parser of pages: what is kept, what is said, what is refused."""

import math
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from lora_watch.errors import SourceUnavailable
from lora_watch.sources.base import MAX_PROBLEMS
from lora_watch.sources.exposition import parse_page

HOSTILE = [
    'quote"',
    "comma,name",
    "new\nline",
    "back\\slash",
    "brace}name{",
    "</script><script>alert(1)</script>",
    "../../etc/passwd",
    "x" * 10_000,
    '"' * 10_000,
    "‮lave",
    "🦙🔥",
    "tab\tand # hash",
    "= 1 # {",
    "\u2028\x85\r",
    "",
]


def values(text: bytes, *wanted: str, **options):
    page = parse_page([text], wanted, **options)
    return [(sample.name, dict(sample.labels), sample.value) for sample in page.samples]


def test_only_wanted_names_come_out():
    assert values(b'a{x="1"} 2\nab 3\na 4\nb 5\n', "a") == [("a", {"x": "1"}, 2.0), ("a", {}, 4.0)]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_any_label_text_survives_both_formats(name):
    registry = CollectorRegistry()
    Gauge("g", "h", ["n"], registry=registry).labels(name).set(1)
    for page in (generate_latest(registry), generate_openmetrics(registry)):
        assert values(page, "g") == [("g", {"n": name}, 1.0)]


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=30), st.floats(allow_nan=False), max_size=5),
    st.integers(1, 50),
)
def test_what_a_client_writes_comes_back_however_it_is_cut_into_pieces(series, size):
    registry = CollectorRegistry()
    gauge = Gauge("g", "h", ["n"], registry=registry)
    for name, value in series.items():
        gauge.labels(name).set(value)
    page = generate_latest(registry)
    found = parse_page([page[i : i + size] for i in range(0, len(page), size)], {"g"})
    assert {sample.labels["n"]: sample.value for sample in found.samples} == series
    assert found.problems == ()


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_it_crash(noise):
    parse_page([noise + b"\n"], {"a", "b"}, newest={"b": lambda value: value})


def test_nan_and_infinities_are_passed_on_as_they_are():
    found = values(b'a{x="1"} NaN\na{x="2"} +Inf\na{x="3"} -Inf\n', "a")
    assert math.isnan(found[0][2])
    assert [value for _, _, value in found[1:]] == [math.inf, -math.inf]


def test_a_time_stamp_and_an_exemplar_are_ignored():
    page = b'a_bucket{le="1"} 2 1796026995769\nb_bucket{le="1"} 3 # {trace="}x"} 0.5\n'
    assert values(page, "a_bucket", "b_bucket") == [("a_bucket", {"le": "1"}, 2.0), ("b_bucket", {"le": "1"}, 3.0)]


def test_windows_line_ends_and_leading_blanks_are_read():
    assert values(b"  a 1\r\n\r\n  # comment\r\n \t\r\n", "a") == [("a", {}, 1.0)]


def test_each_garbage_line_is_a_problem_and_the_rest_is_kept():
    page = parse_page([b'a{x="1} 2\na{x="1"} two\n!!!\n\xff\xfe\na{x="ok"} 3\na\n'], {"a"})
    assert [dict(sample.labels) for sample in page.samples] == [{"x": "ok"}]
    assert len(page.problems) == 5


def test_beyond_a_number_problems_are_only_counted():
    page = parse_page([b"!\n" * 1000], {"a"})
    assert len(page.problems) == MAX_PROBLEMS + 1
    assert page.problems[-1].startswith(f"{1000 - MAX_PROBLEMS} more")


def test_of_a_series_given_twice_the_first_counts_and_it_is_said():
    page = parse_page([b'a{x="1",y="2"} 1\na{y="2",x="1"} 5\n'], {"a"})
    assert [sample.value for sample in page.samples] == [1.0]
    assert "twice" in page.problems[0]


def test_a_page_cut_in_the_middle_is_refused_whole():
    with pytest.raises(SourceUnavailable, match="cut off"):
        parse_page([b"a 1\na 2"], {"a"})


def test_an_openmetrics_page_without_its_end_is_refused_whole():
    with pytest.raises(SourceUnavailable, match="EOF"):
        parse_page([b"a 1\n"], {"a"}, content_type="application/openmetrics-text; version=1.0.0")


def test_the_end_of_an_openmetrics_page_needs_no_newline():
    assert values(b"a 1\n# EOF", "a", content_type="application/openmetrics-text") == [("a", {}, 1.0)]


def test_an_empty_page_has_no_samples_and_no_problem():
    assert parse_page([], {"a"}) == parse_page([b""], {"a"}) == parse_page([b"\n"], {"a"})


def test_only_the_newest_of_a_family_is_parsed():
    page = parse_page([b'i{n="}"} 5\ni{n="b"} 7\ni{n="c"} 6\n'], {"i"}, newest={"i": lambda value: value})
    assert [dict(sample.labels) for sample in page.samples] == [{"n": "b"}]


def test_values_that_are_no_times_are_counted_in_one_problem():
    page = parse_page([b'i{n="a"} 5\ni{n="b"} 7\n'], {"i"}, newest={"i": lambda value: None})
    assert page.samples == ()
    assert len(page.problems) == 1
    assert "2 values" in page.problems[0]


def test_a_line_without_end_is_given_up():
    with pytest.raises(SourceUnavailable, match="line of more than"):
        parse_page((b"a" * 65536 for _ in range(10_000)), {"a"})


def test_labels_made_to_be_slow_cost_a_problem_and_no_time():
    started = process_time()
    page = parse_page([b'a{x="' + b'\\"' * 1_000_000 + b'"} 1\nb 1\n'], {"a", "b"})
    assert process_time() - started < 2
    assert [sample.name for sample in page.samples] == ["b"]
    assert "too long" in page.problems[0]


def test_fifty_megabytes_of_other_metrics_cost_little():
    line = b'vllm:other_thing_bucket{engine="0",le="1.0",model_name="tiny"} 12345.0\n'
    started = process_time()
    page = parse_page([line * 900] * 800 + [b"a 1\n"], {"a"})
    assert process_time() - started < 3
    assert len(page.samples) == 1
