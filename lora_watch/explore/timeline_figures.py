"""The figure of the page *Timeline*: slots, swaps, latency and requests above one another, on one axis of time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
from numpy.typing import NDArray

from lora_watch.derive.groups import ENGINE, POOL
from lora_watch.explore import colours
from lora_watch.explore.figures import NUMBERS_MARGIN, figure, label, moments
from lora_watch.explore.pixels import data_url, opaque, png
from lora_watch.explore.timeline import LANE, Part
from lora_watch.model import MINUTE, SECOND, Window

MOST_LANES = 480
"""Slots that are drawn; the rest is reached by choosing pods."""
MOST_NAMED = 30_000
"""Cells up to which each says its adapter where the pointer rests; more are one picture, which says nothing."""
MOST_WRITTEN = 250
"""Bars up to which the adapter's name stands in them."""
LANE_PIXELS = (2.0, 18.0)
"""A slot is drawn no thinner and, where there is room, no thicker."""
SLOTS_PIXELS = 460
NAME_PIXELS = 13
"""Names of pods stand no nearer to one another; of more pods every second, third … is named."""
ROW_PIXELS = 120
GAP_PIXELS = 44
STRIP_PIXELS = 4
LETTER_PIXELS, MOST_MARGIN = 6.6, 240
MARKED = 60
"""Points up to which each has a mark."""
PALE = "rgba(138,143,152,0.28)"
"""Of adapters that are not followed while others are."""
PALE_PIXEL = (138, 143, 152, 71)
"""The same as a picture has it."""
GAP = 0.4
"""Lanes between two pods."""
PIXELS = 5
"""Of a picture of cells, a lane's: a gap's are whole ones too."""
PICTURE_PIXELS = 1440
"""A picture is about so wide; a browser smooths what it has to stretch."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """
    Where each slot is drawn: ``middle`` of its lane by its key; ``pods``: that of a pod by its name; ``top`` of each engine;
    ``left_out``: so many slots are not.
    """

    middle: Mapping[tuple[object, ...], float]
    pods: Mapping[str, float]
    top: Mapping[tuple[object, ...], float]
    bottom: float
    left_out: int


def lanes(whole: Part) -> Lanes:
    """Slots under one another by engine, engines by name, with a gap between."""
    keys = whole.cells.select(LANE).unique().sort(LANE, nulls_last=True).rows()
    several = whole.cells.select(ENGINE[:-1]).n_unique() < whole.cells.select(ENGINE).n_unique()
    pools = whole.cells.select(POOL).n_unique() > 1
    middle: dict[tuple[object, ...], float] = {}
    tops: dict[tuple[object, ...], float] = {}
    names: dict[str, float] = {}
    at, before = 0.0, None
    for key in keys[:MOST_LANES]:
        engine = key[:-1]
        if engine != before:
            at += 0.0 if before is None else GAP
            tops[engine] = at
            before = engine
        middle[key] = at + 0.5
        at += 1.0
    for engine, top in tops.items():
        held = [place for key, place in middle.items() if key[:-1] == engine]
        name = " / ".join(str(part) for part in (engine[1] if pools else "", engine[2], engine[3]) if part) or "''"
        name += f" · {engine[4]}" if several else ""
        names[f"{name}{' ' * sum(one.rstrip(' ') == name for one in names)}"] = (top + held[-1] + 0.5) / 2
    return Lanes(middle, names, tops, at, max(len(keys) - MOST_LANES, 0))


def timeline_figure(
    whole: Part,
    window: Window,
    bin: int,
    *,
    followed: Sequence[str] = (),
    bands: Iterable[tuple[int, int, str]] = (),
) -> go.Figure:
    """
    The four rows. Stays are bars where all are held, else cells; ``followed`` adapters keep their colours while the others turn
    pale; ``bands`` are spans (µs UTC) with a colour behind everything. A span that is marked with the pointer is a selection.
    """
    placed = lanes(whole)
    thick = min(max(SLOTS_PIXELS / max(placed.bottom, 1.0), LANE_PIXELS[0]), LANE_PIXELS[1])
    heights = [max(placed.bottom * thick, 40.0), ROW_PIXELS, ROW_PIXELS, ROW_PIXELS]
    total = sum(heights) + GAP_PIXELS * 4
    every = math.ceil(NAME_PIXELS * len(placed.pods) / heights[0])
    drawn = figure(height=round(total + 30), window=window)
    top = 1.0
    titles = ("slots, by adapter", "swaps a second and pod", "seconds to the first token", "requests a second")
    for number, (height, title) in enumerate(zip(heights, titles, strict=True), start=1):
        top -= GAP_PIXELS / total if number > 1 else 0.0
        low = max(top - height / total, 0.0)
        axis = {
            "domain": [low, top],
            "zeroline": False,
            "fixedrange": True,
            "rangemode": "tozero",
            "nticks": 5,
        }
        drawn.update_layout({f"yaxis{number if number > 1 else ''}": axis})
        drawn.add_annotation(
            text=title, x=0, y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=3, showarrow=False
        )
        top = low
    drawn.update_layout(
        yaxis={
            "range": [max(placed.bottom, 1.0), 0],
            "tickvals": list(placed.pods.values())[::every],
            "ticktext": [label(name) for name in placed.pods][::every],
            "showgrid": False,
            "rangemode": "normal",
        },
        xaxis={"anchor": "y4", "showgrid": True},
        hovermode="closest",
        dragmode="select",
        selectdirection="h",
        margin={"t": 30, "l": _margin(placed.pods)},
        bargap=0,
    )
    for start, end, colour in bands:
        if max(start, window.start) < min(end, window.end):
            first, last = moments([max(start, window.start), min(end, window.end)])
            _band(drawn, first, last, colour)
    if whole.stays is not None:
        _bars(drawn, whole.stays, placed, set(followed))
    else:
        _raster(drawn, whole, placed, window, set(followed))
    _restarts(drawn, whole.restarts, placed)
    _lines(drawn, whole.course, window, bin)
    return drawn


def _margin(names: Mapping[str, float]) -> int:
    """Pixels in which the longest name stands: what the browser finds out by itself has it draw everything twice."""
    longest = max((len(label(name)) for name in names), default=0)
    return round(min(max(longest * LETTER_PIXELS + 14, NUMBERS_MARGIN[0]), MOST_MARGIN))


def _band(drawn: go.Figure, start: datetime, end: datetime, colour: str) -> None:
    """A span through all rows, and a strip above them, since cells leave nothing of what lies behind."""
    rect = {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "line": {"width": 0}, "fillcolor": colour}
    drawn.add_shape(**rect, y0=0, y1=1, opacity=0.12, layer="below")
    drawn.add_shape(**rect, y0=1, y1=1 + STRIP_PIXELS / drawn.layout.height, opacity=1)


def barred(whole: Part) -> list[str]:
    """The adapters of the bars, in their order; empty where cells are drawn."""
    return [] if whole.stays is None else [row["adapter"] for row in _placed(whole.stays, lanes(whole))]


def _placed(sat: pl.DataFrame, placed: Lanes) -> list[dict[str, Any]]:
    return [row for row in sat.iter_rows(named=True) if tuple(row[name] for name in LANE) in placed.middle]


def _bars(drawn: go.Figure, sat: pl.DataFrame, placed: Lanes, followed: set[str]) -> None:
    rows = _placed(sat, placed)
    if not rows:
        return
    middle = [placed.middle[tuple(row[name] for name in LANE)] for row in rows]
    names = [row["adapter"] for row in rows]
    written = len(rows) <= MOST_WRITTEN
    drawn.add_bar(
        orientation="h",
        base=moments([row["start"] for row in rows]),
        x=[(row["end"] - row["start"]) / 1000 for row in rows],
        y=middle,
        width=0.86,
        marker={
            "color": [_colour(name, followed) for name in names],
            "line": {"width": 0.5, "color": "rgba(255,255,255,0.55)"},
        },
        text=[label(name) if written else "" for name in names],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        textfont={"size": 10, "color": "#fff"},
        constraintext="none",
        customdata=list(range(len(rows))),
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        hovertext=[_stay(row) for row in rows],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    loads = [(row, place) for row, place in zip(rows, middle, strict=True) if row["loaded_at"] is not None and row["seconds"]]
    loads = [(row, place) for row, place in loads if row["loaded_at"] == row["start"]]
    if loads:
        drawn.add_bar(
            orientation="h",
            base=moments([row["loaded_at"] - round(row["seconds"] * SECOND) for row, _ in loads]),
            x=[row["seconds"] * 1000 for row, _ in loads],
            y=[place for _, place in loads],
            width=0.3,
            marker={"color": colours.LOADING, "line": {"width": 0}},
            hovertext=[
                f"load of {label(row['adapter'])}: {_span(row['seconds'])} from {row['from_tier'] or '?'}" for row, _ in loads
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    swapped = [(row, place) for row, place in zip(rows, middle, strict=True) if row["left_by"] == "evict"]
    cut = [(row, place) for row, place in zip(rows, middle, strict=True) if row["left_by"] not in (None, "evict")]
    for some, symbol, size, text in ((swapped, "line-ns", 8, "evicted: "), (cut, "x-thin", 7, "left by ")):
        if some:
            drawn.add_scatter(
                x=moments([row["end"] for row, _ in some]),
                y=[place for _, place in some],
                mode="markers",
                marker={"symbol": symbol, "size": size, "line": {"width": 1.2, "color": colours.GREY}},
                hovertext=[
                    text + (label(row["adapter"]) if symbol == "line-ns" else f"{row['left_by']}: {label(row['adapter'])}")
                    for row, _ in some
                ],
                hovertemplate="%{hovertext}<br>%{x}<extra></extra>",
            )


def _raster(drawn: go.Figure, whole: Part, placed: Lanes, window: Window, followed: set[str]) -> None:
    first, last = window.start // whole.step, (window.end - 1) // whole.step
    rows: dict[tuple[object, ...], int] = {}
    edges = [0.0]
    for key, middle in placed.middle.items():
        if middle - 0.5 > edges[-1] + 1e-9:
            edges.append(middle - 0.5)
        rows[key] = len(edges) - 1
        edges.append(middle + 0.5)
    schema = {name: whole.cells.schema[name] for name in LANE}
    where = pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(row=pl.Series(list(rows.values()), dtype=pl.Int64))
    known = whole.cells["adapter"].unique().to_list()
    pale = len(colours.PALETTE)
    told = pl.DataFrame(
        {
            "adapter": known,
            "shade": [pale if followed and name not in followed else _code(name) for name in known],
            "word": [label(name) for name in known],
        },
        schema={"adapter": pl.String, "shade": pl.Float32, "word": pl.String},
    )
    held = (
        whole.cells.filter(pl.col("cell").is_between(first, last))
        .join(where, on=list(LANE), nulls_equal=True)
        .join(told, on="adapter")
    )
    place, column = held["row"].to_numpy(), held["cell"].to_numpy() - first
    begin = first * whole.step
    if held.height > MOST_NAMED:
        pixels: NDArray[np.uint8] = np.zeros((len(edges) - 1, last - first + 1), dtype=np.uint8)
        pixels[place, column] = held["shade"].to_numpy() + 1
        _picture(drawn, pixels, edges, begin, whole.step)
        return
    shades: NDArray[np.float32] = np.full((len(edges) - 1, last - first + 1), np.nan, dtype=np.float32)
    shades[place, column] = held["shade"].to_numpy()
    scale = [*colours.PALETTE, PALE]
    steps = [[(number + end) / len(scale), shade] for number, shade in enumerate(scale) for end in (0, 1)]
    more = pl.when(pl.col("adapters") > 1).then(pl.format("<br>and {} more in this cell", pl.col("adapters") - 1))
    words = held.select(pl.concat_str("word", more.otherwise(pl.lit("")))).to_series()
    text = np.full(shades.shape, "", dtype=object)
    text[place, column] = words.to_numpy()
    drawn.add_heatmap(
        z=shades,
        x0=moments([begin + whole.step // 2])[0],
        dx=whole.step / 1000,
        y=edges,
        zmin=0,
        zmax=len(scale),
        colorscale=steps,
        showscale=False,
        hoverongaps=False,
        text=text,
        hovertemplate="%{text}<br>%{x}<extra></extra>",
    )


def _picture(drawn: go.Figure, pixels: NDArray[np.uint8], edges: Sequence[float], begin: int, step: int) -> None:
    """Cells as one picture, which a browser draws at once: numbers of colours, 0 where nobody is. Names come closer up."""
    thick = np.round(np.diff(edges) * PIXELS).astype(np.int64)
    wide = max(round(PICTURE_PIXELS / pixels.shape[1]), 1)
    shades = [(0, 0, 0, 0), *(opaque(shade) for shade in colours.PALETTE), PALE_PIXEL]
    drawn.add_layout_image(
        source=data_url(png(np.repeat(np.repeat(pixels, thick, axis=0), wide, axis=1), shades)),
        xref="x",
        yref="y",
        x=moments([begin])[0],
        y=0,
        sizex=pixels.shape[1] * step / 1000,
        sizey=edges[-1],
        sizing="stretch",
        layer="below",
    )
    drawn.add_scatter(x=moments([begin]), y=[None], hoverinfo="skip")  # a row of axes without any trace is not drawn


def _restarts(drawn: go.Figure, restarts: pl.DataFrame, placed: Lanes) -> None:
    known = [(row, placed.top[row[:-1]]) for row in restarts.iter_rows() if row[:-1] in placed.top]
    if known:
        drawn.add_scatter(
            x=moments([row[-1] for row, _ in known]),
            y=[top for _, top in known],
            mode="markers",
            marker={"symbol": "triangle-down", "size": 10, "color": colours.LIMIT},
            hovertext=[f"start of {label(row[3] or '')}" for row, _ in known],
            hovertemplate="%{hovertext}<br>%{x}<extra></extra>",
        )


def _lines(drawn: go.Figure, course: pl.DataFrame, window: Window, bin: int) -> None:
    """Swaps, latency and requests of each pool; a bin of which nothing is known is a gap."""
    several = course.select(POOL).n_unique() > 1
    ordered = sorted(course.partition_by(POOL, as_dict=True).items(), key=lambda pair: tuple(part or "" for part in pair[0]))
    for number, (key, rows) in enumerate(ordered):
        colour = colours.HUES[number % len(colours.HUES)] if several else colours.LINE
        name = label(" / ".join(str(part) for part in key if part) or "pool")
        known = _with_gaps(rows, bin)
        broken = known.height > rows.height  # a point between two gaps is no line
        x = moments((known["at"] + bin // 2).to_list())
        told = f"{name}: " if several else ""
        for axis, column, style, unit in (
            ("y2", "swaps_per_second", {"width": 1.6}, "swaps/s a pod"),
            ("y3", "p50_seconds", {"width": 1.6}, "s, p50"),
            ("y3", "p95_seconds", {"width": 1.2, "dash": "dot"}, "s, p95"),
            ("y4", "requests_per_second", {"width": 1.6}, "requests/s"),
        ):
            drawn.add_scatter(
                x=x,
                y=known[column].to_list(),
                yaxis=axis,
                mode="lines+markers" if known.height <= MARKED or broken else "lines",
                marker={"size": 3 if known.height <= 40 else 1.6},
                line={**style, "color": colour},
                connectgaps=False,
                customdata=known["latency_of" if axis == "y3" else "requests"].to_list(),
                hovertemplate=f"{told}%{{y:.3g}} {unit} (of %{{customdata:,}} requests)<br>%{{x}}<extra></extra>",
            )
        if axis_end := _last(known, "p95_seconds"):
            drawn.add_annotation(
                x=moments([axis_end[0] + bin // 2])[0], y=axis_end[1], yref="y3", text="p95", showarrow=False, xanchor="right",
                yanchor="bottom", font={"size": 11},
            )  # fmt: skip
    drawn.update_layout(xaxis={"range": moments([window.start, window.end])})


def _with_gaps(rows: pl.DataFrame, bin: int) -> pl.DataFrame:
    """The rows with an empty one wherever the next is further than a bin away."""
    ordered = rows.sort("at")
    breaks = ordered.filter(pl.col("at").shift(-1) - pl.col("at") > bin).select(at=pl.col("at") + bin)
    return pl.concat([ordered, breaks], how="diagonal").sort("at")


def _last(rows: pl.DataFrame, column: str) -> tuple[int, float] | None:
    known = rows.filter(pl.col(column).is_not_null())
    return None if known.is_empty() else (known["at"][-1], known[column][-1])


def _code(adapter: str) -> int:
    colour = colours.colour_of(adapter)
    return colours.PALETTE.index(colour)


def _colour(adapter: str, followed: set[str]) -> str:
    return PALE if followed and adapter not in followed else colours.colour_of(adapter)


def _stay(row: Mapping[str, object]) -> str:
    start, end = row["start"], row["end"]
    assert isinstance(start, int)
    assert isinstance(end, int)
    ended = {None: "goes on", "evict": "then evicted"}.get(row["left_by"], f"then left by {row['left_by']}")  # type: ignore[call-overload]  # a key may be anything
    return f"{label(str(row['adapter']), 60)}<br>slot {row['slot']}, {_span((end - start) / SECOND)}, {ended}"


def _span(seconds: object) -> str:
    assert isinstance(seconds, float)
    return f"{seconds:.3g} s" if seconds < 2 * MINUTE / SECOND else f"{seconds / 60:.3g} min"
