"""Requests as (second, adapter) or drawn, for tests about what came when: each takes no time and its engine serves it at once."""

from collections.abc import Iterable

import polars as pl
from builders import rows
from hypothesis import settings
from hypothesis import strategies as st

from lora_watch.model import SECOND
from lora_watch.schema import REQUESTS

QUICK = settings(deadline=None, max_examples=40)
"""The first use of a kernel compiles it; up to sixty requests for six adapters on two pods find what there is."""
ADAPTERS = "abcdef"


def asked(records: Iterable[tuple[float, str | None]], *, takes: float = 0.0, **common: object) -> pl.DataFrame:
    """Requests that come at these seconds, each ``takes`` seconds long; None asks for the base model."""
    return rows(
        REQUESTS,
        [
            {
                "at": round((second + takes) * SECOND),
                "adapter": name,
                "queued": round(second * SECOND),
                "scheduled": round(second * SECOND),
                "finished": round((second + takes) * SECOND),
            }
            for second, name in records
        ],
        **common,
    )


def named(text: str, **common: object) -> pl.DataFrame:
    """One request a second for each letter of ``text``, from second 0."""
    return asked(enumerate(text), **common)  # type: ignore[arg-type]


@st.composite
def traffic(draw: st.DrawFn) -> pl.DataFrame:
    """Requests on two pods within about a hundred seconds, some at the same µs, some for the base model."""
    drawn = draw(
        st.lists(st.tuples(st.integers(0, 100), st.sampled_from([*ADAPTERS, None]), st.integers(0, 1)), min_size=1, max_size=60)
    )
    parts = [asked([(at, name) for at, name, pod in drawn if pod == which], pod=f"pod-{which}") for which in (0, 1)]
    return pl.concat(parts)
