"""Figures of the page *Capacity*: the miss-ratio curve, and the working set W(T)."""

import plotly.graph_objects as go
import polars as pl

from lora_watch.explore import colours
from lora_watch.explore.figures import figure

HEIGHT = 320


def miss_ratio_curve(curve: pl.DataFrame, slots: tuple[int, int], plan: tuple[int, float] | None = None) -> go.Figure:
    """
    Misses of a pool by slots per pod, one pool's rows of :class:`lora_watch.explore.capacity.Room`. ``slots`` are the fewest and
    the most that a pod has now; ``plan`` is a plan's slots and its replayed miss ratio.
    """
    drawn = figure(height=HEIGHT, y_title="miss ratio")
    drawn.add_scatter(
        x=curve["slots"].to_list(),
        y=curve["miss_ratio"].to_list(),
        mode="lines",
        line={"color": colours.LINE, "width": 2},
        hovertemplate="%{x} slots per pod: %{y:.1%} missed<extra>exact curve</extra>",
    )
    first, last = slots
    word = f"now: {first}" if first == last else f"now: {first} … {last}"
    if first == last:
        drawn.add_vline(x=first, line={"color": colours.GREY, "width": 1, "dash": "dot"}, annotation_text=word)
    else:
        drawn.add_vrect(x0=first, x1=last, fillcolor=colours.GREY, opacity=0.15, line_width=0, annotation_text=word)
    marked = curve.filter(pl.col("slots").is_between(first, last + 4))
    drawn.add_scatter(
        x=marked["slots"].to_list(),
        y=marked["miss_ratio"].to_list(),
        mode="markers+text",
        marker={"color": colours.LINE, "size": 8},
        text=[f"{ratio:.1%}" for ratio in marked["miss_ratio"].to_list()],
        textposition="top right",
        hoverinfo="skip",
    )
    if plan is not None:
        drawn.add_scatter(
            x=[plan[0]],
            y=[plan[1]],
            mode="markers",
            marker={"color": colours.LOADING, "size": 12, "symbol": "diamond"},
            hovertemplate="the plan: %{y:.1%} missed<extra>replay</extra>",
        )
    drawn.update_xaxes(title="slots per pod", rangemode="tozero", range=[0, min(max(4 * last, 12), curve["slots"].max() or 12)])
    drawn.update_yaxes(tickformat=".0%")
    return drawn


def working_set(wanted: pl.DataFrame, slots: int | None) -> go.Figure:
    """W(T) of one pool, and how many slots it has on all pods together."""
    drawn = figure(height=HEIGHT, y_title="adapters asked for within T")
    known = wanted.filter(pl.col("adapters").is_not_null())
    drawn.add_scatter(
        x=known["span_seconds"].to_list(),
        y=known["adapters"].to_list(),
        mode="lines+markers",
        line={"color": colours.LINE, "width": 2},
        marker={"size": 6},
        hovertemplate="within %{x:,.0f} s: %{y:.1f} adapters<extra></extra>",
    )
    if slots is not None:
        drawn.add_hline(
            y=slots,
            line={"color": colours.GREY, "width": 1, "dash": "dot"},
            annotation={"text": f"slots of all pods: {slots}", "font": {"size": 11}},
            annotation_position="top left",
        )
    drawn.update_xaxes(
        title="T in seconds",
        type="log",
        tickvals=[5, 10, 30, 60, 300, 600, 1800],
        ticktext=["5", "10", "30", "60", "300", "600", "1,800"],
    )
    return drawn
