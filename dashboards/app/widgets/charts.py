"""A figure, which can be taken away too."""

from dataclasses import replace

import plotly.graph_objects as go
import streamlit as st

from lora_watch.explore.marked import marked
from lora_watch.explore.view import View
from widgets import scene


def chart(name: str, figure: go.Figure, told: str) -> None:
    """Draw a figure; ``told`` is what it shows, in a sentence, for who cannot see it. It can be saved as SVG from its corner."""
    st.plotly_chart(
        figure,
        key=f"lw_chart_{name}",
        alt=told,
        config={
            "displaylogo": False,
            "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
            "toImageButtonOptions": {"format": "svg", "filename": f"lora_watch_{name}"},
        },
    )


def brushed(name: str, figure: go.Figure, told: str, view: View) -> None:
    """The same, where a span that is marked with the pointer becomes the window. What is marked belongs to one view."""
    key = f"lw_chart_{name}_{view.digest}"

    def chosen() -> None:
        span = marked(st.session_state[key]["selection"])
        if span is not None:
            scene.change(replace(view, span=span, live=False))

    st.plotly_chart(
        figure,
        key=key,
        alt=told,
        on_select=chosen,
        selection_mode="box",
        config={
            "displaylogo": False,
            "modeBarButtonsToRemove": ["lasso2d", "zoom2d", "zoomIn2d", "zoomOut2d", "pan2d", "autoScale2d", "resetScale2d"],
            "toImageButtonOptions": {"format": "svg", "filename": f"lora_watch_{name}"},
        },
    )
