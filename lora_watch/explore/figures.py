"""
Figures as values: frames in, plotly out. Nothing here reads, and nothing here knows a page.

Every figure begins with :func:`figure`, so that all look alike: no frame, few lines, the unit beside the axis, times in UTC, and
no legend where a word at the line does. Colours of text and grid are the page's own, in the light and in the dark: set none.
Names of adapters pass through :func:`label`, since plotly reads tags and ``$`` in text.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go
import polars as pl

from lora_watch.explore import colours
from lora_watch.explore.heard import ENDPOINTS
from lora_watch.explore.markup import shown
from lora_watch.model import MINUTE, SECOND, Window

HEIGHT = 240
"""Pixels of a figure with one line of axes."""
LABEL = 28
"""Characters of a name beside a line or a bar; the whole of it is in the table and where the pointer rests."""


NUMBERS_MARGIN = (56, 40)
"""Pixels left of numbers and below times: a margin that the browser has to find has it draw everything twice."""


def figure(*, height: int = HEIGHT, y_title: str = "", window: Window | None = None) -> go.Figure:
    """
    An empty figure. ``y_title`` is what the vertical axis counts, with its unit. With ``window`` the horizontal axis is time,
    from its begin to its end: hand over times as :func:`moments` makes them.
    """
    drawn = go.Figure()
    timed = window is not None
    left, bottom = NUMBERS_MARGIN if timed else (8, 8)
    drawn.update_layout(
        height=height,
        margin={"l": left, "r": 12, "t": 28 if y_title else 8, "b": bottom},
        showlegend=False,
        hovermode="x unified" if timed else "closest",
        hoverlabel={"namelength": LABEL},
        uirevision="kept",
        xaxis={"automargin": not timed, "showgrid": False, "zeroline": False},
        yaxis={"automargin": not timed, "zeroline": False, "rangemode": "tozero", "fixedrange": True},
    )
    if y_title:  # above the axis, where it is read without turning one's head
        drawn.add_annotation(
            text=y_title, x=0, y=1, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=6, showarrow=False
        )
    if window is not None:
        drawn.update_xaxes(type="date", range=moments([window.start, window.end]), hoverformat="%Y-%m-%d %H:%M:%S UTC")
    return drawn


def moments(times: Sequence[int]) -> list[datetime]:
    """Times (µs UTC) for an axis: without a zone, which a browser would turn into its own."""
    return [datetime.fromtimestamp(at / SECOND, UTC).replace(tzinfo=None) for at in times]


def label(name: str, length: int = LABEL) -> str:
    """
    A name as text in a figure: inert, on one line, cut.

    >>> label("<b>x</b>"), label("a" * 40, 5)
    ('&lt;b&gt;x&lt;/b&gt;', 'aaaa…')
    """
    clean = shown(name) or "''"
    cut = clean if len(clean) <= length else f"{clean[: length - 1]}…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")


def limit(drawn: go.Figure, at: float, text: str) -> None:
    """A dotted line at the value from which on it is trouble, with a word."""
    drawn.add_hline(
        y=at,
        line={"color": colours.LIMIT, "width": 1, "dash": "dot"},
        annotation={"text": text, "font": {"color": colours.LIMIT, "size": 11}},
        annotation_position="top right",
    )


def latency_course(course: pl.DataFrame, window: Window) -> go.Figure:
    """P95 to the first token by minute, as it was and as it would have been without loads: what is between them is their cost."""
    drawn = figure(height=260, y_title="P95 to the first token, seconds", window=window)
    minutes = pl.DataFrame({"at": range(window.start, window.end, MINUTE)}, schema={"at": pl.Int64})
    told = minutes.join(course.select("at", "p50_seconds", "p95_seconds", "p95_without_seconds"), on="at", how="left").sort("at")
    at = moments(told["at"].to_list())
    for column, name, colour, fill in (
        ("p95_without_seconds", "P95 without loads", colours.INFERENCE, None),
        ("p95_seconds", "P95", colours.LOADING, "tonexty"),
        ("p50_seconds", "median", colours.GREY, None),
    ):
        line = {"color": colour, "width": 1 if column == "p50_seconds" else 2}
        drawn.add_scatter(
            x=at, y=told[column].to_list(), name=name, mode="lines", line=line, fill=fill, fillcolor="rgba(213, 94, 0, .16)"
        )
        _at_the_end(drawn, at, told[column].to_list(), name, colour)
    return drawn


def estimates(rows: Sequence[tuple[str, float | None, float | None, float | None]], title: str, *, percents: bool) -> go.Figure:
    """Estimates under one another, each (label, value, low, high) with its interval; unknown has none and says so."""
    drawn = figure(height=52 + 44 * len(rows), y_title=title)
    scale = 100 if percents else 1
    for label_text, value, low, high in reversed(rows):
        known = value is not None
        spread = {
            "type": "data",
            "symmetric": False,
            "array": [0 if high is None or value is None else scale * (high - value)],
            "arrayminus": [0 if low is None or value is None else scale * (value - low)],
            "color": colours.LINE,
            "thickness": 2,
        }
        drawn.add_scatter(
            x=[scale * value if value is not None else 0],
            y=[label_text],
            error_x=spread if known else None,
            mode="markers+text",
            text=[f"{scale * value:.3g} {'%' if percents else 's'}" if value is not None else "unknown"],
            textposition="top center",
            marker={"color": colours.LINE if known else colours.GREY, "size": 11, "symbol": "circle" if known else "circle-open"},
            hoverinfo="skip",
            cliponaxis=False,
        )
    drawn.update_xaxes(zeroline=True, showgrid=True, rangemode="tozero", ticksuffix=" %" if percents else " s")
    drawn.update_yaxes(rangemode="normal", type="category", range=[-0.6, len(rows) - 0.3])
    return drawn


def around_evictions(told: pl.DataFrame) -> go.Figure:
    """Mean latency of hits by how long before or after an eviction they were queued, with its interval; a picture."""
    drawn = figure(height=260, y_title="mean seconds to the first token")
    at = told["lag_seconds"].to_list()
    grey = {"width": 0}
    drawn.add_scatter(x=at, y=told["latency_seconds_high"].to_list(), mode="lines", line=grey, hoverinfo="skip")
    drawn.add_scatter(
        x=at,
        y=told["latency_seconds_low"].to_list(),
        mode="lines",
        line=grey,
        fill="tonexty",
        fillcolor="rgba(213, 94, 0, .18)",
        hoverinfo="skip",
    )
    mean = told["latency_seconds"].to_list()
    drawn.add_scatter(x=at, y=mean, name="mean", mode="lines", line={"color": colours.LOADING, "width": 2})
    drawn.add_vline(x=0, line={"width": 1, "dash": "dot", "color": colours.GREY}, annotation_text="eviction")
    drawn.update_xaxes(title="seconds after the eviction (below 0: before it)", ticksuffix=" s")
    drawn.update_layout(hovermode="x unified")
    return drawn


def worst_waits(worst: pl.DataFrame, most: int = 25) -> go.Figure:
    """The longest waits for a first token, each cut into what it waited for."""
    rows = worst.head(most).reverse()
    names = [f"{label(row['adapter'] or 'base model')} on {label(row['pod'] or '', 18)}" for row in rows.iter_rows(named=True)]
    drawn = figure(height=70 + 21 * rows.height, y_title="")
    at = list(range(rows.height))
    rest = pl.max_horizontal(
        pl.col("ttft_seconds") - pl.sum_horizontal(pl.col("own_load_seconds", "other_load_seconds").fill_null(0)), 0
    )
    for values, name, colour in (
        (rows["own_load_seconds"], "load of its own adapter", "#d55e00"),
        (rows["other_load_seconds"], "loads of others", "#e69f00"),
        (rows.select(rest=rest)["rest"], "queue and prefill", colours.GREY),
    ):
        drawn.add_bar(
            y=at, x=values.to_list(), name=name, orientation="h", marker={"color": colour}, hovertemplate="%{x:.3g} s " + name
        )
    drawn.update_layout(
        barmode="stack",
        bargap=0.25,
        showlegend=True,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )
    drawn.update_yaxes(tickvals=at, ticktext=names, showgrid=False)
    drawn.update_xaxes(showgrid=True, ticksuffix=" s")
    return drawn


def _at_the_end(drawn: go.Figure, at: Sequence[Any], values: Sequence[float | None], name: str, colour: str) -> None:
    """The name of a line behind its last point."""
    last = next((place for place in range(len(values) - 1, -1, -1) if values[place] is not None), None)
    if last is not None:
        drawn.add_annotation(
            x=at[last],
            y=values[last],
            text=name,
            xanchor="left",
            xshift=4,
            showarrow=False,
            font={"color": colour, "size": 12},
        )
        drawn.update_layout(margin={"r": 120})


def reached(looks: pl.DataFrame, window: Window, step: int) -> go.Figure:
    """
    Who could be reached when, a row a pod and endpoint: green every look, red none, empty where nobody looked.

    ``looks`` are rows of :func:`~lora_watch.explore.heard.reached`.
    """
    names = looks.select("cluster", "pod", "endpoint").unique().sort("cluster", "pod", "endpoint")
    steps = list(range(window.start // step * step, window.end, step))
    held = {
        (row[0], row[1], row[2], row[3]): row[4] for row in looks.select("cluster", "pod", "endpoint", "at", "up").iter_rows()
    }
    rows = list(names.iter_rows())
    drawn = figure(height=60 + 18 * len(rows), window=window)
    drawn.add_heatmap(
        x=moments(steps),
        y=[f"{label(pod or '', 24)} {ENDPOINTS.get(endpoint, endpoint)}" for _, pod, endpoint in rows],
        z=[[held.get((*row, at)) for at in steps] for row in rows],
        zmin=0,
        zmax=1,
        colorscale=[[0, "#d7301f"], [0.5, "#e6a800"], [0.999, "#9ccc9c"], [1, "#1a9850"]],
        showscale=False,
        xgap=1,
        ygap=2,
        hovertemplate="%{y} %{x}: %{z:.0%} of the looks<extra></extra>",
    )
    drawn.update_layout(hovermode="closest")
    drawn.update_yaxes(autorange="reversed", rangemode="normal", showgrid=False)
    return drawn
