"""Prefill and decode pods that do not match: one side swaps, or lacks an adapter that the other holds."""

from collections.abc import Iterator

import polars as pl

from lora_watch.diagnose.finding import Confidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.heads import flagged, head, names, said, together
from lora_watch.diagnose.words import listed
from lora_watch.model import Window


def swapping_side(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each deployment of which one side swaps, from :func:`lora_watch.derive.sides.swapping_sides`."""
    for (row,) in together(flagged(found), []):
        side = row["swapping_side"]
        other = "prefill" if side == "decode" else "decode"
        rates = {name: row[f"{name}_swaps_per_second_per_pod"] for name in ("prefill", "decode")}
        yield Finding(
            kind="prefill-decode-mismatch",
            severity=Severity.WARN,
            summary=f"{side.capitalize()} pods swap and {other} pods do not: {rates[side]:.3g} against {rates[other]:.2g} swaps "
            "per second and pod",
            cause=f"A request needs its adapter on both sides; the {side} pods have fewer slots for it than are wanted there.",
            confidence=Confidence.HIGH,
            weight=float(rates[side]),
            evidence=tuple(
                said(
                    [row], f"{name}_swaps_per_second_per_pod", rate, f"{name}: {rate:.3g} swaps per second and pod", "per second"
                )
                for name, rate in rates.items()
            ),
            remedies=(
                Remedy("slots", f"give the {side} pods as many slots as the {other} pods have"),
                Remedy("routing", f"route by adapter among the {side} pods", Possible.ROUTER),
            ),
            avoid=(f"Changing the {other} pods: they are well.",),
            scope="swaps",
            **head([row], window),
        )


def one_side(found: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """One finding for each side that lacks adapters which the other holds, from :func:`lora_watch.derive.sides.one_sided`."""
    for group in together(flagged(found), ["missing_on"]):
        side = group[0]["missing_on"]
        who = names(group, "adapters")
        yield Finding(
            kind="one-sided-residency",
            severity=Severity.INFORMATION,
            summary=f"{listed(who)} {'is' if len(who) == 1 else 'are'} resident on one side only: missing on {side} pods",
            cause="A KV cache belongs to its adapter, so both sides need it: each request loads it on the side that lacks it.",
            confidence=Confidence.MEDIUM,
            weight=float(len(who)),
            evidence=(said(group, "adapters", len(who), f"{len(who)} adapters are on the other side most of the time"),),
            remedies=(Remedy("slots", f"more slots on the {side} pods", of="loads"),),
            scope=f"missing on {side}",
            **head(group, window),
        )
