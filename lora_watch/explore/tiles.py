"""One number as a tile: what it is, how it is known, how it went, and from where on it is trouble."""

from collections.abc import Mapping, Sequence
from typing import Any

from lora_watch.diagnose.words import percent
from lora_watch.explore import colours
from lora_watch.explore.markup import Markup, badge, tag, together


def tile(
    label: str,
    value: str,
    *,
    unit: str = "",
    note: str = "",
    provenance: str | None = None,
    course: Sequence[float | None] = (),
    limit: float | None = None,
    limit_text: str = "",
    colour: str = colours.LINE,
    bad: bool = False,
) -> Markup:
    """
    A tile. ``value`` is a number in words, ``note`` stands below it, ``course`` are its values from the oldest on (None:
    unknown), ``limit`` is drawn among them.
    """
    return tag(
        "div",
        tag("div", tag("span", label), badge(provenance), class_="lw-tile-head"),
        tag("div", value, tag("small", unit) if unit else Markup(""), class_=f"lw-tile-value{' lw-bad' if bad else ''}"),
        tag("div", note, class_="lw-tile-note") if note else Markup(""),
        bars(course, limit=limit, colour=colour),
        tag("div", limit_text, class_="lw-tile-limit") if limit_text else Markup(""),
        class_="lw-tile",
    )


def bars(values: Sequence[float | None], *, limit: float | None = None, colour: str = colours.LINE) -> Markup:
    """
    A course as small bars from zero up, the newest at the right: unknown is no bar, 0 is a thin one; nothing without values.
    The limit is a dotted line.
    """
    known = [value for value in values if value is not None]
    if not known:
        return Markup("")
    top = max(*known, limit or 0.0, 1e-12) * 1.08
    drawn = [
        tag("i", style="height:0")
        if value is None
        else tag("i", style=f"height:{max(100 * min(value, top) / top, 2.0):.1f}%;background:{colour}")
        for value in values
    ]
    if limit is not None:
        drawn.append(tag("b", style=f"bottom:{100 * limit / top:.1f}%;border-color:{colours.LIMIT}"))
    return tag("div", drawn, class_="lw-course", aria_hidden="true")


def tiles(made: Sequence[Markup]) -> Markup:
    """Tiles side by side, as many as fit."""
    return tag("div", together(made), class_="lw-tiles")


def share_bar(row: Mapping[str, Any]) -> Markup:
    """
    What GPUs read as busy, and how much of their time was inference, as one bar: so that the lie is visible.

    ``row`` has the columns of :func:`~lora_watch.derive.inference_share.inference_share`. Inference is one colour, time lost to
    adapters another, what reads busy and is neither is grey, idle is empty; where only bounds of the share are known what lies
    between them is hatched. Empty where nothing is known.
    """
    high, busy, lost = row["share_high"], row["busy_ratio"], row["adapter_share"]
    if high is None:
        return Markup("")
    low = high if row["share_low"] is None else row["share_low"]
    words = between(low, high)
    rest = 0.0 if busy is None else max(busy - high - (lost or 0.0), 0.0)
    parts = [
        _stretch(low, "lw-inference", f"inference {words}"),
        _stretch(high - low, "lw-perhaps", "not known whether it was inference"),
        _stretch(lost or 0.0, "lw-lost", "" if lost is None else f"loads of adapters {percent(lost)}"),
        _stretch(rest, "lw-rest", f"reads busy, and is neither: {percent(rest)}"),
    ]
    reads = "read: unknown, since no GPU exporter is named" if busy is None else ("read busy ", tag("b", percent(busy)))
    key = [
        tag("span", tag("i", class_="lw-inference"), "inference ", tag("b", words)),
        tag("span", tag("i", class_="lw-lost"), "loads of adapters ", tag("b", percent(lost)))
        if lost is not None
        else Markup(""),
        tag("span", tag("i", class_="lw-rest"), "busy with neither ", tag("b", percent(rest))) if rest >= 0.005 else Markup(""),
    ]
    told = f"grade {row['grade']}" if row["grade"] else ""
    return tag(
        "div",
        tag(
            "div",
            tag("span", "GPUs ", reads),
            tag("span", told, " ", badge(row["inference_share_provenance"])),
            class_="lw-share-head",
        ),
        tag("div", parts, class_="lw-share", role="img", aria_label=f"inference {words} of GPU time"),
        tag("div", key, class_="lw-share-key"),
        class_="lw-share-box",
    )


def between(low: float, high: float) -> str:
    """
    A ratio of which bounds are known, in words.

    >>> between(0.5, 0.5), between(0.2, 0.5), between(0.0, 0.5)
    ('50 %', '20 % … 50 %', '≤ 50 %')
    """
    if high - low < 0.005:
        return percent(high)
    return f"{percent(low)} … {percent(high)}" if low > 0 else f"≤ {percent(high)}"


def _stretch(share: float, kind: str, text: str) -> Markup:
    return tag("div", class_=kind, style=f"width:{100 * min(max(share, 0.0), 1.0):.2f}%", title=text)
