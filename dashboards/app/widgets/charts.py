"""A figure, which can be taken away too."""

from collections.abc import Callable
from dataclasses import replace

import plotly.graph_objects as go
import streamlit as st

from lora_watch.explore.marked import adapter_of, marked
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


def picked(name: str, figure: go.Figure, told: str, view: View, clicked: Callable[[View, str], View] | None = None) -> None:
    """
    The same, where a marked span becomes the window, and a clicked bar's adapter what ``clicked`` makes of it.

    What is marked belongs to one view: in the next one nothing is.
    """
    key = f"lw_chart_{name}_{view.query()}"

    def chosen() -> None:
        state = st.session_state[key]["selection"]
        span = marked(state)
        adapter = adapter_of(state)
        if span is not None:
            scene.change(replace(view, span=span, live=False))
        elif adapter is not None and clicked is not None:
            scene.change(clicked(view, adapter))

    st.plotly_chart(
        figure,
        key=key,
        alt=told,
        on_select=chosen,
        selection_mode=("points", "box"),
        config={
            "displaylogo": False,
            "scrollZoom": False,
            "modeBarButtonsToRemove": ["lasso2d", "zoom2d", "zoomIn2d", "zoomOut2d", "pan2d", "autoScale2d", "resetScale2d"],
            "toImageButtonOptions": {"format": "svg", "filename": f"lora_watch_{name}"},
        },
    )
