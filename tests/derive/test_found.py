"""What holds of every structure, whatever it is about."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import polars as pl
import pytest
from builders import rows
from scenes import Scene, scene

from lora_watch import names
from lora_watch.derive.cascades import cascades
from lora_watch.derive.clocks import clock_offsets
from lora_watch.derive.convoys import convoys
from lora_watch.derive.families import families
from lora_watch.derive.found import HEAD
from lora_watch.derive.ghosts import ghosts
from lora_watch.derive.imbalance import imbalance
from lora_watch.derive.kv_pressure import kv_pressure
from lora_watch.derive.phantoms import phantoms
from lora_watch.derive.prefix_reuse import prefix_reuse
from lora_watch.derive.reload_loops import reload_loops
from lora_watch.derive.scans import scans
from lora_watch.derive.sides import one_sided, swapping_sides
from lora_watch.derive.slow_loads import slow_loads
from lora_watch.derive.stampedes import stampedes
from lora_watch.derive.starvation import starvation
from lora_watch.derive.stays import stays
from lora_watch.derive.swaps import swaps
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES

BY_POD = ("cluster", "pool", "role", "pod")
Found = Callable[[pl.LazyFrame, pl.LazyFrame, pl.LazyFrame, Window], pl.LazyFrame]
STRUCTURES: Mapping[str, Found] = MappingProxyType(
    {
        "stampedes": lambda e, r, s, w: stampedes(e, w, offsets=clock_offsets(s)),
        "convoys": lambda e, r, s, w: convoys(e, w, offsets=clock_offsets(s)),
        "cascades": lambda e, r, s, w: cascades(e, w),
        "families": lambda e, r, s, w: families(r, w),
        "reload_loops": lambda e, r, s, w: reload_loops(e, w),
        "phantoms": lambda e, r, s, w: phantoms(e, stays(e), w),
        "imbalance": lambda e, r, s, w: imbalance(r, w, events=e, pods=e),
        "starvation": lambda e, r, s, w: starvation(r, w, samples=s),
        "slow_loads": lambda e, r, s, w: slow_loads(e, w),
        "ghosts": lambda e, r, s, w: ghosts(e, stays(e), w, requests=r, idle=MINUTE),
        "scans": lambda e, r, s, w: scans(r, w),
        "kv_pressure": lambda e, r, s, w: kv_pressure(s, w, stays=stays(e)),
        "one_sided": lambda e, r, s, w: one_sided(stays(e), w),
        "swapping_sides": lambda e, r, s, w: swapping_sides(swaps(e, w, BY_POD), w),
        "prefix_reuse": lambda e, r, s, w: prefix_reuse(r, families(r, w), w),
    }
)
EVERY = pytest.mark.parametrize("name", STRUCTURES)
HOSTILE = ("", "-", "a\nb", "'; DROP TABLE x", "</script>", "🦙-v2", "🦙", "x" * 10_000, "x" * 10_000 + "-v2", "\x00")


def frames() -> tuple[pl.LazyFrame, pl.LazyFrame, pl.LazyFrame]:
    """Rows in which everything is null that may be, names are anything, and times run backwards."""
    adapters = [None, *HOSTILE]
    events, requests, samples = [], [], []
    for n, adapter in enumerate(adapters * 4):
        where = {"pod": f"pod-{n % 3}", "role": [None, "prefill", "decode"][n % 3], "cluster": None, "pool": None, "engine": None}
        for kind in ("load", "evict", "use", "pin", "register", "unregister", "start", "steps", "nonsense"):
            more = {"reason": [None, "lru", "?"][n % 3], "from_tier": "disk", "seconds": [None, -1.0, float("nan"), 1e300][n % 4]}
            events.append({**where, **more, "at": (500 - n) * SECOND, "kind": kind, "tier": "gpu", "adapter": adapter})
        requests.append({**where, "adapter": adapter, "at": (400 - n) * SECOND, "queued": n * SECOND if n % 2 else None})
        value = [float("nan"), -1.0, 0.95, 1e300][n % 4]
        for metric in (names.KV_CACHE_USAGE, names.WAITING_BY_REASON, names.SAMPLE_CLOCK_OFFSET):
            told = {"metric": metric, "value": value, "series": f"{metric}{n % 3}", "labels": "not json", "adapter": adapter}
            samples.append({**where, **told, "at": n * SECOND})
    return rows(ADAPTER_EVENTS, events).lazy(), rows(REQUESTS, requests).lazy(), rows(SAMPLES, samples).lazy()


def busy() -> Scene:
    return scene("prefill-decode-mismatch", 0.0, 0.5)


@EVERY
def test_nothing_in_makes_no_row_and_all_columns(name: str):
    empty = [table.empty().lazy() for table in (ADAPTER_EVENTS, REQUESTS, SAMPLES)]
    frame = STRUCTURES[name](*empty, Window(0, 1800 * SECOND)).collect()
    assert frame.height == 0
    assert frame.columns[: len(HEAD)] == list(HEAD)
    assert frame.columns[-1] == "provenance"
    lists = pl.List(pl.String)
    assert [frame.schema[column] for column in HEAD[3:]] == [lists, lists, pl.Int64, pl.Int64, pl.Boolean]


@EVERY
def test_any_names_and_nulls_pass_and_rows_lie_in_the_window(name: str):
    window = Window(10 * SECOND, 1800 * SECOND)
    frame = STRUCTURES[name](*frames(), window).collect()
    assert frame["flagged"].null_count() == 0
    assert frame["start"].null_count() == frame["end"].null_count() == frame["provenance"].null_count() == 0
    assert (frame["start"] < frame["end"]).all()
    assert (frame["start"] >= window.start).all()
    assert (frame["end"] <= window.end).all()


@EVERY
def test_the_order_of_rows_does_not_matter_and_twice_is_once(name: str):
    played = busy()
    window = played.hours(0.1, 0.5)
    told = (played.events_of(window), played.requests, played.samples)
    once = STRUCTURES[name](*told, window).collect()
    shuffled = [frame.collect().sample(fraction=1, shuffle=True, seed=3).lazy() for frame in told]
    assert STRUCTURES[name](*shuffled, window).collect().equals(once)
    twice = [pl.concat([frame, frame]) for frame in told]
    assert STRUCTURES[name](*twice, window).collect().equals(once)


@EVERY
def test_a_row_is_no_better_known_than_its_worst_input(name: str):
    played = busy()
    window = played.hours(0.1, 0.5)
    told = (played.events_of(window), played.requests, played.samples)
    worse = [frame.with_columns(provenance=pl.lit("inferred")) for frame in told]
    assert set(STRUCTURES[name](*worse, window).collect()["provenance"]) <= {"inferred"}
