"""Names that are withdrawn while their weights stay: the registry and the slots disagree."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, names, said, together
from lora_watch.diagnose.words import count, listed, span
from lora_watch.model import Window


def phantom(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each pool with weights of withdrawn names, from :func:`lora_watch.derive.phantoms.phantoms`."""
    for group in together(flagged(found), ["kind"]):
        still = [row for row in group if row["slots_held"]]
        held = sum(row["slots_held"] for row in group)
        longest = max(row["longest_seconds"] for row in group)
        who = names(still or group, "adapters")
        one = len(who) == 1
        weights = f"the weights are still in {count(held, 'slot')}" if held else "the weights stayed in their slots for a while"
        yield Finding(
            kind="phantom",
            severity=Severity.INFORMATION,
            summary=f"Registry and residency {'disagree' if held else 'disagreed'}: {listed(who)} {'is' if one else 'are'} no "
            f"longer served, {weights}",
            cause="Withdrawing a name frees no slot: the weights leave when another adapter needs the room.",
            confidence=Confidence.HIGH,
            weight=float(held),
            evidence=(
                said(group, "slots_held", held, f"{count(held, 'slot')} held at the end of the window"),
                said(group, "longest_seconds", longest, f"for up to {span(longest)}", "seconds"),
            ),
            remedies=(
                Remedy("unpin", "nothing, unless the slots are short: the next load takes their place", Possible.NOW, of="slots"),
                Remedy("engine", "restart the pod to be rid of the weights at once", Possible.RESTART, of="slots"),
            ),
            avoid=("Taking a withdrawn name for a freed slot.",),
            **head(group, window),
        )
