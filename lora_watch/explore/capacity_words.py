"""The page *Capacity* in words and tiles: what a plan would do, beside the present, and how each number is known."""

from collections.abc import Mapping

import polars as pl

from lora_watch.diagnose.words import percent, span
from lora_watch.explore.columns import Column
from lora_watch.explore.markup import Markup, tag
from lora_watch.explore.routing import SCORERS, Scored
from lora_watch.explore.tiles import tile
from lora_watch.explore.view import moment
from lora_watch.model import SECOND, Window
from lora_watch.recommend.levers import Foretold, Levers, Plan

LEVERS = {
    "what": Column("Lever"),
    "effect": Column("Loads it removes", "percent", "of the loads of the replayed hour; below zero it adds some"),
    "low": Column("at least", "percent", "95 % interval, from blocks of ten minutes drawn anew"),
    "high": Column("at most", "percent"),
    "loads": Column("Loads left", "count"),
    "wait_seconds": Column("Wait for a slot, p95", "seconds", "of the replay; without the time that loads take"),
    "method": Column("Method"),
    "adapters": Column("Adapters"),
}
ROUTED = {
    "pod": Column("Pod"),
    "resident": Column("In a slot"),
    "in_flight": Column("Its requests running", "count"),
    "queued": Column("Its requests waiting", "count"),
    "running": Column("All running", "count"),
    "waiting": Column("All waiting", "count"),
    "filled": Column("Slots filled", "count"),
    "slots": Column("Slots", "count"),
    **{column: Column(title, "number", "empty: its filter drops this pod") for column, title, _ in SCORERS},
    "went": Column("Really went here", "count", "requests for it that came within a minute before or after"),
}
CURVE = {
    "slots": Column("Slots per pod", "count"),
    "miss_ratio": Column("Miss ratio", "percent"),
    "misses": Column("Misses", "count"),
    "requests": Column("Requests", "count"),
    "method": Column("Method"),
    "error_class": Column("Error class"),
    "provenance": Column("Known"),
}
WANTED = {
    "span_seconds": Column("T", "seconds"),
    "adapters": Column("Adapters", "number"),
    "averaged_seconds": Column("Averaged over", "seconds"),
    "method": Column("Method"),
    "error_class": Column("Error class"),
    "provenance": Column("Known"),
}


def lever_rows(told: Levers) -> pl.DataFrame:
    """A row a lever, what helps most first."""
    rows = [
        {
            "what": one.what,
            "effect": one.effect,
            "low": one.low,
            "high": one.high,
            "loads": one.loads,
            "wait_seconds": one.wait_seconds,
            "method": one.method,
            "adapters": ", ".join(one.adapters),
        }
        for one in sorted(told.levers, key=lambda one: (_waits(told) and (one.wait_seconds or 0.0), -one.effect))
    ]
    schema = {
        "what": pl.String,
        **dict.fromkeys(("effect", "low", "high"), pl.Float64),
        "loads": pl.Int64,
        "wait_seconds": pl.Float64,
    }
    return pl.DataFrame(rows, schema={**schema, "method": pl.String, "adapters": pl.String})


def _waits(told: Levers) -> bool:
    """Whether requests wait for slots at present: then that is what hurts, and not the number of loads."""
    return any(one.waiting for one in told.levers)


def crowded(told: Levers) -> str | None:
    """A word of caution where requests wait for slots."""
    if not _waits(told):
        return None
    now = next(one.base_wait_seconds for one in told.levers)
    return (
        f"At present requests wait for a slot: 5 % of them {span(now or 0.0)} or longer, in the replay. Those that wait for one "
        "adapter enter together and share its load. A lever that ends the waiting can therefore add loads and still be right, "
        "and one that removes loads can be wrong: look at the wait first, by which the levers are sorted here. The curve of "
        "misses knows nothing of waiting."
    )


def replayed(window: Window, slots: Mapping[str, int], unknown: int) -> str:
    """What is replayed: when, on how many pods with how many slots."""
    total = sum(slots.values())
    left_out = (
        f" {unknown} {_many(unknown, 'pod')} of unknown slots {'is' if unknown == 1 else 'are'} left out." if unknown else ""
    )
    return (
        f"{moment(window.start)} … {moment(window.end)} UTC is replayed; "
        f"{len(slots)} {_many(len(slots), 'pod')} with {total} {_many(total, 'slot')}.{left_out}"
    )


def plan_of(plan: Plan) -> str:
    """A plan in words."""
    parts = [
        f"+{plan.slots} {_many(plan.slots, 'slot')} per pod" if plan.slots else "",
        f"+{plan.pods} {_many(plan.pods, 'pod')}" if plan.pods else "",
        f"{plan.pins} {_many(plan.pins, 'pin')}" if plan.pins else "",
        f"routing by {plan.router}" if plan.router else "",
        f"{plan.variants} more {_many(plan.variants, 'adapter')}" if plan.variants else "",
    ]
    return ", ".join(part for part in parts if part) or "as it is now"


def tiles(plan: Plan, told: Foretold, month: tuple[float | None, float | None], currency: str, largest: int | None) -> Markup:
    """
    The plan beside the present. ``month``: what the GPUs cost now and then; ``largest``: bytes of the largest adapter, which is
    what one more slot takes at least.
    """
    seconds, known = told.seconds, told.provenance
    changed = plan != Plan()

    def beside(now: str, then: str) -> tuple[str, str]:
        return (then, f"now {now}") if changed else (now, "")

    def rate(count: int, pods: int) -> str:
        return f"{count / seconds / pods:.3g}"

    ratio = beside(percent(told.base_loads / max(told.requests, 1)), percent(told.loads / max(told.requests, 1)))
    swaps = beside(rate(told.base_swaps, told.base_pods), rate(told.swaps, told.pods))
    drawn = [
        tile("Miss ratio", ratio[0], note=_and(ratio[1], f"{told.requests:,} requests"), provenance=known),
        tile("Swaps", swaps[0], unit="/s a pod", note=_and(swaps[1], f"{told.loads:,} loads in all"), provenance=known),
        tile(
            "Loads it removes",
            "unknown" if told.effect is None else percent(told.effect) if changed else "–",
            note="too few loads to tell"
            if told.effect is None
            else f"95 % interval {percent(told.low or 0.0)} … {percent(told.high or 0.0)}"
            if changed
            else "nothing is changed yet",
            provenance=known,
            bad=told.effect is not None and told.effect < 0,
        ),
    ]
    waits = beside(_seconds(told.base_wait_seconds), _seconds(told.wait_seconds))
    drawn.append(
        tile("Wait for a slot, p95", waits[0], note=_and(waits[1], "without the time that loads take"), provenance=known)
    )
    if month[0] is not None and month[1] is not None:
        money = beside(f"{month[0]:,.0f}", f"{month[1]:,.0f}")
        drawn.append(tile("GPUs a month", money[0], unit=f" {currency}", note=_and(money[1], "730 hours")))
    if largest is not None:
        more = plan.slots * largest
        drawn.append(
            tile(
                "Memory for slots",
                f"+{more / 1e6:,.0f}" if more else "0",
                unit=" MB a pod",
                note=f"at least: the largest adapter that was loaded has {largest / 1e6:,.1f} MB; it is taken from the KV cache",
            )
        )
    return tag("div", drawn, class_="lw-tiles")


def method(told: Foretold, plan: Plan, present: str | None) -> str:
    """How the plan's numbers are known, and what they leave out."""
    parts = [f"{told.method[:1].upper()}{told.method[1:]}, of the same requests both times."]
    if plan.pins and told.pinned < plan.pins:
        parts.append(f"Only {told.pinned} pins found room: one slot of a pod is always left free.")
    if plan.variants:
        parts.append("Each new adapter takes half of the requests of one of the most asked for.")
    if plan.router and present is None:
        parts.append(
            "No router comes near the recorded loads, so the present is replayed on the recorded pods: "
            "what routing changes is rough."
        )
    parts.append("That loads take time, and slow the others down, is not in it.")
    return " ".join(parts)


def stood(told: Scored) -> str:
    """What the scores are of, and what they leave out."""
    left_out = f" {told.untold} {_many(told.untold, 'pod')} of unknown slots left out." if told.untold else ""
    return (
        f"Each pod as it stood at {moment(told.at)}:{told.at // SECOND % 60:02d} UTC, by the stored requests and events. "
        "How full the KV cache was is not known: its part of a score is left out, and running ÷ 256 stands for the load. "
        f"A router sees the pods as they were when it looked last, some seconds before.{left_out}"
    )


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else span(value)


def _and(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _many(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
