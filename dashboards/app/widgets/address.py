"""A page's own choices in its address, so that a link reproduces them."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from lora_watch.explore.view import View
from widgets import scene

_APPLIED = "lw_own_applied"


class Address:
    """
    What the address says of a page's own widgets, and what it shall say.

    Before a widget is drawn, :meth:`number` or :meth:`choice` puts there what an address that is new says of it; behind it,
    :meth:`keep` notes what is not as usual, and :meth:`write` at the end of the page has the address say just that.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._told = dict(view.own)
        self._kept: dict[str, str] = {}
        self.anew = st.session_state.get(_APPLIED) != view.own

    def number(self, name: str, key: str | None, least: int, most: int) -> int | None:
        """A whole number from ``least`` to ``most``, put into the widget ``key``; None where the address says none."""
        text = self._told.get(name, "")
        known = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
        value = known if known is not None and least <= known <= most else None
        if key is not None and (self.anew or key not in st.session_state):
            st.session_state[key] = least if value is None else value
        return value

    def choice(self, name: str, key: str, options: Sequence[str]) -> None:
        """One of some, put into the widget ``key``; the first where the address says none of them."""
        if self.anew or st.session_state.get(key) not in options:
            st.session_state[key] = self._told[name] if self._told.get(name) in options else options[0]

    def keep(self, name: str, value: str) -> None:
        """The address shall say this."""
        self._kept[name] = value

    def leave(self, *names: str) -> None:
        """What it says of these stays: their widgets are not there yet."""
        self._kept |= {name: self._told[name] for name in names if name in self._told}

    def write(self) -> None:
        """Have the address say what was kept, and nothing else."""
        own = tuple(sorted(self._kept.items()))
        st.session_state[_APPLIED] = own
        if own != self._view.own:
            scene.change(replace(self._view, own=own))
