"""A figure, which can be taken away too."""

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go
import streamlit as st

from lora_watch.explore.marked import clicked, marked
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


def brushed(name: str, figure: go.Figure, told: str, view: View, adapters: Sequence[str] = ()) -> None:
    """
    The same, where a span that is marked with the pointer becomes the window, and the adapter of a bar that is clicked is
    followed, or no longer; ``adapters`` are those of the bars. What is marked belongs to one view.
    """
    key = f"lw_chart_{name}_{view.digest}"

    def chosen() -> None:
        selection = st.session_state[key]["selection"]
        span, adapter = marked(selection), clicked(selection, adapters)
        if span is not None:
            scene.change(replace(view, span=span, live=False))
        elif adapter is not None:
            others = tuple(one for one in view.adapter if one != adapter)
            scene.change(view.of("adapter", others if adapter in view.adapter else (*others, adapter)))

    st.plotly_chart(
        figure,
        key=key,
        alt=told,
        on_select=chosen,
        selection_mode=("points", "box"),
        config={
            "displaylogo": False,
            "modeBarButtonsToRemove": ["lasso2d", "zoom2d", "zoomIn2d", "zoomOut2d", "pan2d", "autoScale2d", "resetScale2d"],
            "toImageButtonOptions": {"format": "svg", "filename": f"lora_watch_{name}"},
        },
    )
