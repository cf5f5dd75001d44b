"""Pinned adapters that nobody asks for: they hold slots that others need."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, names, said, together
from lora_watch.diagnose.words import count, listed, span
from lora_watch.model import Window


def ghost_pins(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool with ghosts, from :func:`lora_watch.derive.ghosts.ghosts`."""
    for group in together(flagged(found), []):
        who, held = names(group, "adapters"), sum(row["slots_held"] for row in group)
        idle = min(row["least_idle_seconds"] for row in group)
        told = head(group, window)
        yield Finding(
            kind="ghost-pins",
            severity=Severity.WARN,
            summary=f"{listed(who)} {'is' if len(who) == 1 else 'are'} pinned and no longer used: {count(held, 'slot')} on "
            f"{count(len(told['pods']), 'pod')} held for nobody",
            cause="A pin keeps an adapter in its slot whatever is asked for, and nobody asks for these any more.",
            confidence=Confidence.HIGH,
            weight=float(held),
            evidence=(
                said(group, "slots_held", held, f"{count(held, 'slot')} held"),
                said(group, "least_idle_seconds", idle, f"no use for {span(idle)} or longer", "seconds"),
            ),
            remedies=(
                Remedy(
                    "unpin",
                    f"unpin {listed(who)}",
                    of="slots",
                    why="vLLM has no call for it: take the pin out of what starts the pods",
                ),
            ),
            avoid=("Adding slots before these are free.",),
            **{**told, "until": None},
        )
