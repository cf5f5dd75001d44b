"""The page *Adapters* in words: its columns, who is new, what is known of one adapter."""

import polars as pl

from lora_watch.diagnose.words import percent
from lora_watch.explore import colours
from lora_watch.explore.adapters import NEW, Known
from lora_watch.explore.columns import Column
from lora_watch.explore.markup import Markup, badge, tag
from lora_watch.explore.markup import name as named
from lora_watch.explore.view import moment
from lora_watch.model import HOUR

SHOWN = 10
"""New adapters that are named."""
ROWS = {
    "adapter": Column("Adapter", width="medium"),
    "mark": Column("New", help="asked for first in the last 24 hours of the window", width="small"),
    "share": Column("Share of requests", "bar", "of all requests for adapters of its pool in the window"),
    "requests": Column("Requests", "count"),
    "pods": Column("Pods", "count", "on so many it sat in a slot"),
    "slots_held": Column("Slots", "number", "slots that it held on average, on all pods together"),
    "stays": Column("Stays", "count"),
    "p50_seconds": Column("Residency p50", "seconds", "half of its stays are longer; empty: fewer than half have ended"),
    "p95_seconds": Column("p95", "seconds"),
    "hot_ratio": Column("Hot", "percent", "requests that found it in a slot, of those of which that is known"),
    "warm_ratio": Column("Warm", "percent", "requests that had it loaded from the CPU cache"),
    "cold_ratio": Column("Cold", "percent", "requests that had it loaded from disk"),
    "load_seconds": Column("Load", "seconds", "median time of a load into a slot"),
    "bytes": Column("Bytes", "bytes"),
    "rank": Column("Rank", "count"),
    "first_seen": Column("First seen", "at", "its first request in the window or the 30 days before"),
    "family": Column("Variant of"),
    "kind": Column("Kind", help="what its name says that it is"),
    "pinned": Column("Pinned on", "count", "pods"),
    "pool": Column("Pool"),
    "role": Column("Role"),
    "provenance": Column("Known"),
}
"""What the table shows; everything else is in the file to take away."""
PODS = {
    "pod": Column("Pod"),
    "share": Column("Of the time in a slot", "bar"),
    "stays": Column("Stays", "count"),
    "now": Column("Now"),
    "provenance": Column("Known"),
}


def rows(known: Known, search: str) -> pl.DataFrame:
    """The rows whose adapter, family or pool has the text in it, whatever its case, with the column ``mark``."""
    marked = known.rows.with_columns(mark=pl.when("new").then(pl.lit("new")).otherwise(pl.lit("")))
    if not search.strip():
        return marked
    text = search.strip().casefold()
    keep = [
        any(text in (value or "").casefold() for value in values)
        for values in marked.select("adapter", "family", "pool").iter_rows()
    ]
    return marked.filter(pl.Series(keep, dtype=pl.Boolean))


def new(known: Known) -> Markup:
    """Who is new, since when, and how much of the traffic is theirs."""
    if known.learning:
        return tag(
            "div",
            "Who is new is unknown: nothing is stored from more than 24 hours before the end of this window.",
            class_="lw-note",
        )
    if known.new.is_empty():
        return tag("div", f"No adapter was asked for first in the last {NEW // HOUR} hours.", class_="lw-note")
    since = known.new["first_seen"].min()
    assert isinstance(since, int)
    asked, of = (int(frame["requests"].sum()) for frame in (known.new, known.rows))
    share = asked / max(of, 1)
    chips = [
        tag("span", tag("i", "", style=f"background:{colours.colour_of(name)}"), named(name), class_="lw-chip")
        for name in known.new["adapter"].head(SHOWN).to_list()
    ]
    more = known.new.height - SHOWN
    return tag(
        "div",
        tag(
            "div",
            tag("b", f"{known.new.height} new"),
            f" since {moment(since)} UTC, with {percent(share)} of the requests for adapters in this window ",
            badge("observed"),
        ),
        tag("div", chips, tag("span", f"and {more} more", class_="lw-when") if more > 0 else Markup(""), class_="lw-legend"),
        class_="lw-new",
    )


def title(adapter: str, row: dict[str, object] | None) -> Markup:
    """The adapter, and what is known of it in a line."""
    parts: list[str] = []
    if row is not None:
        if row["family"]:
            parts.append(f"by its name a variant ({row['kind']}) of {row['family']}")
        if isinstance(row["first_seen"], int):
            parts.append(f"first seen {moment(row['first_seen'])} UTC")
        if isinstance(row["bytes"], int):
            parts.append(f"{row['bytes'] / 1e6:,.1f} MB")
        if row["rank"] is not None:
            parts.append(f"rank {row['rank']}")
        if isinstance(row["load_seconds"], float):
            parts.append(f"a load takes {row['load_seconds']:.3g} s")
    return tag(
        "div",
        tag("i", "", style=f"background:{colours.colour_of(adapter)}", class_="lw-swatch"),
        tag("b", named(adapter)),
        tag("span", " · ".join(parts), class_="lw-when"),
        class_="lw-adapter-title",
    )


def pods(frame: pl.DataFrame) -> pl.DataFrame:
    """Where one adapter sat, with ``now`` in words."""
    now = pl.when(pl.col("resident") == 1).then(pl.lit("in a slot")).otherwise(pl.lit("not in a slot"))
    return frame.sort("share", "pod", descending=[True, False]).with_columns(now=now)
