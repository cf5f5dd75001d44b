"""One adapter read again and again, in place: nothing has to leave for it."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, said, together
from lora_watch.diagnose.words import named
from lora_watch.model import Window


def reload_loop(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pod and adapter in a loop, from :func:`lora_watch.derive.reload_loops.reload_loops`."""
    rows = flagged(found).with_columns(adapter=pl.col("adapters").list.first(), pod=pl.col("pods").list.first())
    for group in together(rows, ["pod", "adapter"]):
        worst = max(group, key=lambda row: row["reloads"])
        steps, rate = worst["steps_per_second"], worst["reloads_per_second"]
        often = f"{rate:.3g} times a second" if rate is not None else f"{worst['reloads']} times at once"
        yield Finding(
            kind="reload-loop",
            severity=Severity.WARN,
            summary=f"Reload loop of one adapter: {named(worst['adapter'])} is loaded in place {often} on {named(worst['pod'])}",
            cause="The adapter is read again while it runs, and nothing leaves a slot for it: something asks for it in place "
            "(load_inplace) with each use.",
            confidence=Confidence.HIGH,
            weight=float(worst["reloads"] if rate is None else rate),
            evidence=(
                said(group, "reloads", worst["reloads"], f"{worst['reloads']} loads in place, {worst['disk_reads']} from disk"),
                said(group, "lru_evictions", worst["lru_evictions"], f"{worst['lru_evictions']} adapters had to leave meanwhile"),
                *(
                    []
                    if steps is None
                    else [said(group, "steps_per_second", steps, f"{steps:.3g} engine steps a second", "per second")]
                ),
            ),
            remedies=(
                Remedy(
                    "engine", "switch load_inplace off for it, or find the caller that loads it again", Possible.NOW, of="loads"
                ),
            ),
            avoid=("More slots: nothing makes room for these loads.",),
            scope=f"{worst['pod']}/{worst['adapter']}",
            **head(group, window),
        )
