"""What hypothesis draws for replays: short traces over few adapters, where everything happens soon."""

from hypothesis import settings
from hypothesis import strategies as st

from lora_watch.replay.trace import Trace

QUICK = settings(deadline=None, max_examples=50)
"""The first use of a kernel compiles it, which takes seconds; traces of up to 60 uses of 7 adapters find what there is."""

ADAPTERS = 7
uses = st.lists(st.integers(0, ADAPTERS - 1), max_size=60)


@st.composite
def placed(draw: st.DrawFn, pods: int = 3) -> Trace:
    """Uses without length, on given pods."""
    adapter = draw(uses)
    pod = draw(st.lists(st.integers(0, pods - 1), min_size=len(adapter), max_size=len(adapter)))
    gaps = draw(st.lists(st.integers(0, 400_000_000), min_size=len(adapter), max_size=len(adapter)))
    return Trace(adapter, adapters=ADAPTERS, pod=pod, pods=pods, at=[sum(gaps[: i + 1]) for i in range(len(gaps))])


@st.composite
def held(draw: st.DrawFn, longest: int = 12) -> Trace:
    """Requests of one pod that take a few µs each, some at the same µs, some for the base model."""
    adapter = draw(st.lists(st.integers(-1, ADAPTERS - 1), max_size=40))
    gaps = draw(st.lists(st.integers(0, 4), min_size=len(adapter), max_size=len(adapter)))
    hold = draw(st.lists(st.integers(0, longest), min_size=len(adapter), max_size=len(adapter)))
    return Trace(adapter, adapters=ADAPTERS, at=[sum(gaps[: i + 1]) for i in range(len(gaps))], hold=hold)
