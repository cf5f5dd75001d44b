"""Figures about one adapter: when it is asked for, and whom it takes slots from or loses them to."""

import plotly.graph_objects as go
import polars as pl

from lora_watch.explore import colours
from lora_watch.explore.figures import figure, label

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST = 10
"""Others that are named."""
ROW_PIXELS = 24


def hours_of_week(hours: pl.DataFrame, colour: str) -> go.Figure:
    """Mean requests an hour by hour of the week, UTC, as :func:`lora_watch.explore.adapters.hours_of_week` has them."""
    grid = hours.sort("weekday", "hour")["mean"].to_list()
    drawn = figure(height=250)
    drawn.add_heatmap(
        z=[grid[day * 24 : day * 24 + 24] for day in range(7)],
        x=[f"{hour:02d}" for hour in range(24)],
        y=list(DAYS),
        colorscale=[[0.0, "rgba(128,128,128,0.10)"], [1.0, colour]],
        zmin=0,
        xgap=2,
        ygap=2,
        hoverongaps=False,
        colorbar={"thickness": 8, "outlinewidth": 0, "title": {"text": "an hour", "font": {"size": 11}}, "nticks": 4},
        hovertemplate="%{y} %{x}:00 UTC: %{z:,.0f} requests an hour<extra></extra>",
    )
    drawn.update_yaxes(autorange="reversed", rangemode="normal", showgrid=False)
    drawn.update_xaxes(type="category", showgrid=False)
    return drawn


def others(pairs: pl.DataFrame, column: str, unit: str) -> go.Figure:
    """Bars of how often, by the other adapter in ``column``: most first."""
    top = pairs.sort("count", column, descending=[True, False]).head(MOST)
    names = top[column].fill_null("").to_list()
    drawn = figure(height=max(ROW_PIXELS * len(names) + 40, 90))
    drawn.add_bar(
        orientation="h",
        x=top["count"].to_list(),
        y=list(range(len(names))),
        marker={"color": [colours.colour_of(name) for name in names]},
        text=[f"{count:,}" for count in top["count"].to_list()],
        textposition="auto",
        textangle=0,
        hovertext=[label(name, 60) for name in names],
        hovertemplate=f"%{{hovertext}}: %{{x:,}} {unit}<extra></extra>",
    )
    drawn.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[label(name) for name in names],
        autorange="reversed",
        rangemode="normal",
        showgrid=False,
    )
    drawn.update_xaxes(showgrid=False, showticklabels=False)
    return drawn
