"""The page *Timeline* in words and small tables: what is drawn, whom it is about, incidents, chains of swaps."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

import polars as pl

from lora_watch.derive.groups import POD
from lora_watch.diagnose.incidents import Incident
from lora_watch.diagnose.words import listed
from lora_watch.explore import colours
from lora_watch.explore.columns import Column
from lora_watch.explore.markup import Markup, tag
from lora_watch.explore.markup import name as named
from lora_watch.explore.panels import pool_title
from lora_watch.explore.timeline import LANE, MOST_STAYS, Part
from lora_watch.explore.view import LONGEST, View, moment
from lora_watch.model import MINUTE, SECOND, Window

SHOWN = 12
"""Adapters of a legend: those that sat longest; every one has its colour."""
CHAINS_SHOWN = 8
LINKS_SHOWN = 8
MOST_ADDRESS = 4_000
"""Characters of an address that every browser and proxy takes."""
AROUND = 10 * MINUTE
"""So much before and behind an incident is shown of it."""

STAYS = {
    "pod": Column("Pod"),
    "slot": Column("Slot", "count"),
    "adapter": Column("Adapter"),
    "start": Column("From", "at", "the beginning of the window where it was there before"),
    "end": Column("Until", "at"),
    "seconds": Column("Load took", "seconds"),
    "from_tier": Column("Loaded from"),
    "left_by": Column("Ended by", help="evict: another needed its slot; empty: it goes on"),
    "provenance": Column("Known"),
}
COURSE = {
    "pool": Column("Pool"),
    "role": Column("Role"),
    "at": Column("From", "at"),
    "requests_per_second": Column("Requests/s", "number"),
    "swaps_per_second": Column("Swaps/s a pod", "number"),
    "loads_per_second": Column("Loads/s a pod", "number"),
    "p50_seconds": Column("First token p50", "seconds"),
    "p95_seconds": Column("First token p95", "seconds", "unknown where fewer than 20 requests tell it"),
    "latency_of": Column("of requests", "count"),
    "pods": Column("Pods", "count"),
    "provenance": Column("Known"),
}
FOLLOWED = {
    "adapter": Column("Adapter"),
    "pod": Column("Pod"),
    "share": Column("Of the time in a slot", "bar"),
    "stays": Column("Stays", "count"),
    "first": Column("First there", "at"),
    "last": Column("Last there", "at"),
}
CHAINS = {
    "pod": Column("Pod"),
    "start": Column("From", "at"),
    "seconds": Column("Lasted", "seconds"),
    "swaps": Column("Swaps", "count"),
    "distinct_adapters": Column("Adapters", "count"),
    "mean_reload_seconds": Column("Back after", "seconds", "mean time from an eviction to the reload"),
    "provenance": Column("Known"),
}


def moves(window: Window, end: int) -> Iterator[tuple[str, Window | None]]:
    """
    Windows near this one, each with its name: none where it would be later than the data, which end at ``end`` (µs UTC), or
    longer than a window can be.
    """
    length = window.end - window.start
    later = min(length, end - window.end)
    wide = Window(max(window.start - length, 0), min(window.end + length, max(end, window.end)))
    middle = (window.start + window.end) // 2
    yield "← Earlier", Window(window.start - length, window.end - length) if window.start >= length else None
    yield "Later →", Window(window.start + later, window.end + later) if later > 0 else None
    yield "Zoom out", wide if wide.end - wide.start <= LONGEST else None
    yield "Zoom in", Window(middle - length // 4, middle + length // 4) if length >= 4 * SECOND else None


def legend(whole: Part, view: View) -> Markup:
    """
    Who sat in the slots for longest, each in its colour; those that are followed first. A name is a link that follows it, or no
    longer.
    """
    followed = view.adapter
    held = whole.held.group_by("adapter").agg(pl.col("micros").sum()).sort("micros", "adapter", descending=[True, False])
    order = [*followed, *(name for name in held["adapter"] if name not in followed)]
    rest = len(order) - SHOWN
    chips = [
        tag(
            "a",
            tag("i", "", style=f"background:{colours.colour_of(name)}"),
            named(name),
            class_="lw-chip lw-followed" if name in followed else "lw-chip",
            href=_following(view, name),
            target="_self",
        )
        for name in order[:SHOWN]
    ]
    marks = (("lw-mark-load", "load"), ("lw-mark-evict", "eviction")) if whole.stays is not None else ()
    signs = [tag("span", tag("i", "", class_=kind), text, class_="lw-chip") for kind, text in marks]
    if not whole.restarts.is_empty():
        signs.append(tag("span", tag("i", "▼", class_="lw-mark-start"), "start of an engine", class_="lw-chip"))
    more = [tag("span", f"and {rest} more", class_="lw-chip lw-when")] if rest > 0 else []
    return tag("div", chips, more, signs, class_="lw-legend")


def _following(view: View, name: str) -> str | None:
    """The address of the same view with this adapter followed, or no longer; None of a name too long for one."""
    others = [one for one in view.adapter if one != name]
    query = urlencode(
        view.of("adapter", others if name in view.adapter else [*others, name]).query(), doseq=True, errors="replace"
    )
    return f"?{query}" if len(query) <= MOST_ADDRESS else None


def sentence(whole: Part, window: Window) -> str:
    """The figure for who cannot see it."""
    pods, slots = whole.cells.select(POD).n_unique(), whole.cells.select(LANE).n_unique()
    adapters = whole.held["adapter"].n_unique()
    return (
        f"From {moment(window.start)} to {moment(window.end)} UTC: {adapters} adapters in {slots} slots of {pods} pods, "
        f"{whole.count} stays, {whole.restarts.height} starts of engines; below it swaps, latency and requests."
    )


def drawn(whole: Part, left_out: int) -> str:
    """How the slots are drawn, and what is not."""
    if whole.stays is not None:
        how = f"{whole.count:,} stays, each a bar from its load to its leave."
    else:
        how = (
            f"{whole.count:,} stays, in cells of {_length(whole.step)}: the colour is of the adapter that was there longest. "
            f"With {MOST_STAYS:,} stays or fewer each is drawn by itself."
        )
    if _gaps(whole):
        how += " What is blank was empty, or held who was loaded before anything that is stored tells it."
    less = f" {left_out} more slots are not drawn: choose pods." if left_out else ""
    return how + less


def _gaps(whole: Part) -> bool:
    """Whether a slot that is drawn is blank anywhere."""
    lanes = whole.cells.select(LANE).n_unique()
    spent = lanes * (whole.window.end - whole.window.start)
    return bool(whole.held["micros"].sum() < 0.995 * spent)


def untold(pods: pl.DataFrame) -> str:
    """Of which pods nobody knows who sat in their slots."""
    missing = pods.filter(~pl.col("told"))["pod"].to_list()
    return (
        f"Who sat in the slots of {len(missing)} of {pods.height} pods is unknown, and not drawn: {listed(missing, 5)}. "
        "No load or eviction of theirs is stored; an agent beside the engine would tell."
    )


def followed(whole: Part, names: Sequence[str], window: Window) -> pl.DataFrame:
    """Where the chosen adapters sat: by adapter and pod the share of the window, when first and when last (µs UTC)."""
    share = pl.col("micros") / (window.end - window.start)
    mine = whole.held.filter(pl.col("adapter").is_in(list(names)))
    return mine.with_columns(share=share).drop("micros").sort("adapter", "share", "pod", descending=[False, True, False])


def incident(one: Incident) -> Markup:
    """What, when, how long, why."""
    colour = colours.SEVERITIES[one.severity]
    until = {"open": "goes on", "unknown": "whether it goes on is unknown"}.get(
        one.status, "" if one.end is None else f"until {moment(one.end)}, {_length(one.end - one.start)}"
    )
    return tag(
        "div",
        tag(
            "div",
            tag("span", str(one.severity), class_="lw-state", style=f"background:{colour}"),
            tag("span", pool_title(one.cluster, one.pool, None), class_="lw-kind"),
            tag("span", f"{moment(one.start)} UTC · {until}", class_="lw-when"),
            tag("span", one.id, class_="lw-method"),
            class_="lw-card-head",
        ),
        tag("div", one.title, class_="lw-summary"),
        tag("div", one.cause, class_="lw-cause") if one.cause else Markup(""),
        tag(
            "div",
            f"{len(one.lives)} findings: {listed(list(dict.fromkeys(life.worst.kind for life in one.lives)), 6)}",
            class_="lw-takes",
        ),
        class_="lw-card",
        style=f"border-left-color:{colour}",
    )


def around(one: Incident, end: int) -> Window:
    """The window in which an incident is seen whole, as far as the data go (``end``, µs UTC)."""
    last = min(end, one.end if one.end is not None else end)
    return Window(max(one.start - AROUND, 0), max(last, one.start + MINUTE) + AROUND)


def chains(found: pl.DataFrame) -> Markup:
    """The longest of them, adapter by adapter in the order in which they were loaded."""
    return tag("div", (_chain(row) for row in found.head(CHAINS_SHOWN).iter_rows(named=True)), class_="lw-chains")


def _chain(row: dict[str, object]) -> Markup:
    adapters, swaps, start, seconds = (row[key] for key in ("adapters", "swaps", "start", "seconds"))
    assert isinstance(adapters, list)
    assert isinstance(start, int)
    assert isinstance(seconds, float)
    links: list[Markup] = []
    for name in adapters[:LINKS_SHOWN]:
        links.append(tag("span", tag("i", "", style=f"background:{colours.colour_of(name)}"), named(name), class_="lw-chip"))
        links.append(tag("span", "→", class_="lw-when"))
    end = tag("span", f"{len(adapters) - LINKS_SHOWN} more", class_="lw-when") if len(adapters) > LINKS_SHOWN else Markup("")
    head = tag(
        "span",
        named(str(row["pod"] or "")),
        f" · {_clock(start)} UTC · {swaps} swaps in {seconds:.3g} s",
        class_="lw-chain-head",
    )
    return tag("div", head, tag("div", links if end else links[:-1], end, class_="lw-legend"), class_="lw-chain")


def _clock(at: int) -> str:
    return f"{moment(at)}:{at // SECOND % 60:02d}"


def _length(micros: int) -> str:
    seconds = micros / SECOND
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
