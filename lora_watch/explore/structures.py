"""From stored rows to the structures in them, and the findings they make."""

from collections.abc import Iterator

import polars as pl

from lora_watch import names
from lora_watch.derive.cascades import cascades
from lora_watch.derive.clocks import clock_offsets
from lora_watch.derive.convoys import convoys
from lora_watch.derive.families import families
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
from lora_watch.derive.swaps import swaps
from lora_watch.diagnose.batch_scan import batch_scan
from lora_watch.diagnose.cascade import cascade
from lora_watch.diagnose.convoy import convoy
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.ghost_pins import ghost_pins
from lora_watch.diagnose.imbalance import imbalance as imbalanced
from lora_watch.diagnose.kv_pressure import kv_pressure as kv_pressed
from lora_watch.diagnose.phantom import phantom
from lora_watch.diagnose.prefix_reuse import prefix_reuse as reuse_lost
from lora_watch.diagnose.reload_loop import reload_loop
from lora_watch.diagnose.sides import one_side, swapping_side
from lora_watch.diagnose.slow_load import slow_load
from lora_watch.diagnose.stampede import stampede
from lora_watch.diagnose.starvation import starvation as starved
from lora_watch.explore.queries import POD
from lora_watch.model import Window


def structures(
    events: pl.LazyFrame,
    stays: pl.LazyFrame,
    requests: pl.LazyFrame,
    samples: pl.LazyFrame,
    window: Window,
    usual: pl.LazyFrame,
) -> Iterator[Finding]:
    """
    Every structure of the window, as findings.

    ``events`` with the pins and names from before it, ``requests`` also from before: what is usual is learned from them.
    ``usual``: what loads took before the window (:func:`lora_watch.derive.slow_loads.usual_load_seconds`).
    """
    inside = requests.filter(pl.col("at") >= window.start)
    offsets = clock_offsets(samples.filter(pl.col("metric") == names.SAMPLE_CLOCK_OFFSET))
    registry = events.filter(pl.col("kind").is_in(["register", "unregister", "start"]))
    waiting = samples.filter(pl.col("metric") == names.WAITING_BY_REASON)
    related = families(inside, window)
    yield from stampede(stampedes(events, window, offsets=offsets).collect(), window)
    yield from convoy(convoys(events, window, offsets=offsets).collect(), window)
    yield from reload_loop(reload_loops(events, window).collect(), window)
    yield from phantom(phantoms(registry, stays, window).collect(), window)
    yield from imbalanced(imbalance(inside, window, events=events, pods=events.select(POD).unique()).collect(), window)
    yield from starved(starvation(requests, window, samples=waiting).collect(), window)
    yield from slow_load(slow_loads(events, window, usual=usual).collect(), window)
    yield from ghost_pins(ghosts(events, stays, window, requests=requests).collect(), window)
    yield from batch_scan(scans(inside, window).collect(), window)
    yield from kv_pressed(kv_pressure(samples, window, stays=stays).collect(), window)
    yield from swapping_side(swapping_sides(swaps(events, window, by=POD), window).collect(), window)
    yield from one_side(one_sided(stays, window).collect(), window)
    yield from reuse_lost(prefix_reuse(inside, related, window).collect(), window)


def chains(events: pl.LazyFrame, window: Window) -> Iterator[Finding]:
    """Cascades, which explain a thrash."""
    yield from cascade(cascades(events, window).collect(), window)
