"""What makes a page go on by itself: answers that are awaited, and the end of the data in live mode."""

from concurrent.futures import FIRST_COMPLETED, wait

import streamlit as st

from lora_watch.explore.markup import tag
from widgets import scene

AWAITED_SECONDS = 0.1
"""Between two looks whether an answer has come."""
LOOK_SECONDS = 0.4
"""So long a look itself waits: an answer that comes meanwhile is drawn at once."""
_SETTLED = "lw_settled"
LIVE_SECONDS = 15.0
"""Between two looks whether the data go on."""


def beat() -> None:
    """
    Draw the page again once there is something new to draw: the last thing that a run does. A page that waits for nothing any
    more ends with an element of the class ``lw-settled``, with the number of such ends in ``data-run``.
    """
    if scene.awaited():
        st.fragment(_answered, run_every=AWAITED_SECONDS)()
        return
    st.session_state[_SETTLED] = number = st.session_state.get(_SETTLED, 0) + 1
    st.html(tag("div", "", class_="lw-settled", hidden="hidden", data_run=str(number)))
    if scene.view().live:
        st.fragment(_went_on, run_every=LIVE_SECONDS)()


def _answered() -> None:
    if wait(scene.awaited(), timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
        st.rerun()


def _went_on() -> None:
    if scene.end_of_data() != scene.end():
        st.rerun()
