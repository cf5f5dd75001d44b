"""How what is drawn as HTML looks, in the light and in the dark."""

from pathlib import Path

import streamlit as st

SHEET = Path(__file__).parents[1] / "style.css"


def apply() -> None:
    """Put the sheet into the page."""
    st.html(SHEET)
