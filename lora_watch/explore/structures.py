"""The structures of a window as findings: which rule reads which frame."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import polars as pl

from lora_watch.derive.groups import POOL
from lora_watch.diagnose.batch_scan import batch_scan
from lora_watch.diagnose.cascade import cascade
from lora_watch.diagnose.convoy import convoy
from lora_watch.diagnose.finding import Finding
from lora_watch.diagnose.ghost_pins import ghost_pins
from lora_watch.diagnose.imbalance import imbalance
from lora_watch.diagnose.kv_pressure import kv_pressure
from lora_watch.diagnose.phantom import phantom
from lora_watch.diagnose.prefix_reuse import prefix_reuse
from lora_watch.diagnose.reload_loop import reload_loop
from lora_watch.diagnose.shifting import shifting
from lora_watch.diagnose.sides import one_side, swapping_side
from lora_watch.diagnose.slow_load import slow_load
from lora_watch.diagnose.stampede import stampede
from lora_watch.diagnose.starvation import starvation
from lora_watch.explore.around import STRUCTURES, Around
from lora_watch.model import Window

Rule = Callable[[pl.DataFrame, Window], Iterator[Finding]]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "stampedes": stampede,
        "convoys": convoy,
        "reload_loops": reload_loop,
        "phantoms": phantom,
        "imbalance": imbalance,
        "starvation": starvation,
        "slow_loads": slow_load,
        "ghosts": ghost_pins,
        "scans": batch_scan,
        "shifts": shifting,
        "kv_pressure": kv_pressure,
        "swapping_sides": swapping_side,
        "one_sided": one_side,
        "prefix_reuse": prefix_reuse,
    }
)
"""The rule for each frame of ``around.STRUCTURES`` that can raise a finding by itself."""


_NAMED = pl.col("pods").list.eval(pl.element().fill_null(""))
"""A pod without a name is one too."""


def of_requests(read: Around) -> dict[str, pl.DataFrame]:
    """The frames that take long in a long window: those that read each of its requests. StoreError where one can't be read."""
    return {name: _frame(read, name) for name in ("scans", "shifts", "prefix_reuse")}


def structures(
    read: Around, thrashing: pl.DataFrame, made: Mapping[str, pl.DataFrame] = MappingProxyType({})
) -> Iterator[Finding]:
    """
    Every structure of the window, as findings; chains of swaps only in the pools of ``thrashing`` (cluster, pool, role), which
    they explain. Frames that are ``made`` already are not made again.
    """
    for name, rule in RULES.items():
        yield from rule(made[name] if name in made else _frame(read, name), read.window)
    if not thrashing.is_empty():
        chains = STRUCTURES["cascades"](read).join(thrashing.lazy(), on=POOL, how="semi", nulls_equal=True)
        yield from cascade(chains.with_columns(_NAMED).collect(), read.window)


def _frame(read: Around, name: str) -> pl.DataFrame:
    with read.reading():
        return STRUCTURES[name](read).with_columns(_NAMED).collect()
