"""
Figures as values: frames in, plotly out. Nothing here reads, and nothing here knows a page.

Every figure begins with :func:`figure`, so that all look alike: no frame, few lines, the unit beside the axis, times in UTC, and
no legend where a word at the line does. Colours of text and grid are the page's own, in the light and in the dark: set none.
Names of adapters pass through :func:`label`, since plotly reads tags and ``$`` in text.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import plotly.graph_objects as go

from lora_watch.explore import colours
from lora_watch.explore.markup import shown
from lora_watch.model import SECOND, Window

HEIGHT = 240
"""Pixels of a figure with one line of axes."""
LABEL = 28
"""Characters of a name beside a line or a bar; the whole of it is in the table and where the pointer rests."""


def figure(*, height: int = HEIGHT, y_title: str = "", window: Window | None = None) -> go.Figure:
    """
    An empty figure. ``y_title`` is what the vertical axis counts, with its unit. With ``window`` the horizontal axis is time,
    from its begin to its end: hand over times as :func:`moments` makes them.
    """
    drawn = go.Figure()
    drawn.update_layout(
        height=height,
        margin={"l": 8, "r": 12, "t": 28 if y_title else 8, "b": 8},
        showlegend=False,
        hovermode="x unified" if window is not None else "closest",
        hoverlabel={"namelength": LABEL},
        uirevision="kept",
        xaxis={"automargin": True, "showgrid": False, "zeroline": False},
        yaxis={"automargin": True, "zeroline": False, "rangemode": "tozero", "fixedrange": True},
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


def band(drawn: go.Figure, start: int, end: int, colour: str = colours.LIMIT, text: str = "") -> None:
    """A span of time (µs UTC) behind the lines: an incident, a gap."""
    first, last = moments([start, end])
    drawn.add_vrect(x0=first, x1=last, fillcolor=colour, opacity=0.12, line_width=0, layer="below", annotation_text=text or None)
