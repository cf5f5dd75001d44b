import polars as pl
import pytest
from derive.asked import QUICK, asked, named, traffic
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.derive.groups import POD, POOL
from lora_watch.derive.rates import rates
from lora_watch.derive.working_set import working_set, working_set_from_rates
from lora_watch.model import SECOND, Window


def test_it_counts_adapters_and_not_requests():
    told = working_set(named("abab" * 10).lazy(), Window(0, 40 * SECOND), spans=[2.0])
    assert told.select("span_seconds", "adapters", "method", "error_class", "provenance").rows() == [
        (2.0, 2.0, "arrivals", "exact", "observed")
    ]


def test_requests_from_before_the_window_let_all_of_it_count():
    frame = named("ab" * 20).lazy()
    alone = working_set(frame, Window(20 * SECOND, 40 * SECOND), spans=[5.0])
    warm = working_set(frame, Window(20 * SECOND, 40 * SECOND), spans=[5.0], held_from=0)
    assert (alone["averaged_seconds"].item(), warm["averaged_seconds"].item()) == (15.0, 20.0)
    assert warm["adapters"].item() == 2.0


def test_a_span_as_long_as_what_is_held_is_unknown():
    told = working_set(named("ab").lazy(), Window(0, 10 * SECOND), spans=[10.0])
    assert told.select("adapters", "averaged_seconds").rows() == [(None, 0.0)]


def test_a_pod_sees_its_own_requests_only():
    frame = pl.concat([named("aaaaaaaa", pod="x"), named("bcbcbcbc", pod="y")]).lazy()
    window = Window(0, 8 * SECOND)
    assert working_set(frame, window, POD, spans=[2.0])["adapters"].to_list() == [1.0, 2.0]
    assert working_set(frame, window, POOL, spans=[2.0])["adapters"].item() == 3.0


@pytest.mark.parametrize("spans", [[], [0.0], [5.0, -1.0]])
def test_spans_without_a_length_are_refused(spans: list[float]):
    with pytest.raises(ValueError, match="at least 1 µs"):
        working_set(named("a").lazy(), Window(0, SECOND), spans=spans)


def test_nothing_in_nothing_out():
    assert working_set(named("").lazy(), Window(0, SECOND)).is_empty()
    assert working_set(asked([(1, None)]).lazy(), Window(0, SECOND)).is_empty()


@QUICK
@given(traffic(), st.floats(1, 20))
def test_it_rises_and_bends_down(frame: pl.DataFrame, step: float):
    window = Window(-SECOND, 200 * SECOND)  # all there is, and the longest span behind it
    told = working_set(frame.lazy(), window, spans=[step, 2 * step, 3 * step], held_from=-100 * SECOND)
    for one, two, three in told.group_by("pool").agg("adapters")["adapters"].to_list():
        assert -1e-6 <= three - two <= two - one + 1e-6 <= one + 2e-6


def test_independent_rates_make_the_same_curve_by_their_formula():
    told = working_set_from_rates(rates(named("ab" * 50).lazy(), Window(0, 100 * SECOND)), spans=[2.0])
    assert told["adapters"].item() == pytest.approx(2 * (1 - 0.36788), abs=1e-4)
    assert told.select("method", "provenance").rows() == [("che", "observed")]


def test_the_base_model_fills_no_working_set():
    frame = pl.concat([named("aaaa"), asked([(1, None)])]).lazy()
    told = working_set_from_rates(rates(frame, Window(0, 4 * SECOND)), spans=[1000.0])
    assert told["adapters"].item() == pytest.approx(1.0)
