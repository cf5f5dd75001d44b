"""A figure, which can be taken away too."""

import plotly.graph_objects as go
import streamlit as st


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
