"""Who is asked for soon after whom, against a count by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.replay.following import followers
from lora_watch.replay.trace import Trace


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 5)), max_size=40), st.integers(0, 8))
def test_each_pair_is_counted_once_a_request(drawn, span):
    at = [sum(gap for _, gap in drawn[: n + 1]) for n in range(len(drawn))]
    codes = [code for code, _ in drawn]
    counted = [[0] * 5 for _ in range(5)]
    for i, a in enumerate(codes):
        soon = {codes[j] for j in range(i + 1, len(codes)) if at[j] - at[i] <= span}
        for b in soon - {a, -1}:
            if a >= 0:
                counted[a][b] += 1
    assert followers(Trace(codes, adapters=5, at=at), span).tolist() == counted


def test_a_span_is_not_negative():
    with pytest.raises(ValueError, match="0 or more"):
        followers(Trace([0]), -1)
