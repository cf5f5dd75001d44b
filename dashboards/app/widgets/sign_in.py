"""Streamlit's own sign-in, where it is switched on."""

from pathlib import Path

import streamlit as st

SECTION = "auth"
"""Of Streamlit's secrets: where it stands there, nobody sees anything before signing in."""


def required() -> None:
    """Stop here with a button where a sign-in is needed and has not been."""
    if not _switched_on() or st.user.get("is_logged_in"):
        return
    st.title("lora_watch")
    st.write("Sign in to see it.")
    st.button("Sign in", type="primary", on_click=st.login)
    st.stop()


def _switched_on() -> bool:
    """A file of secrets that cannot be read ends the page: what it switches on is not known."""
    there = any(Path(file).exists() for file in st.get_option("secrets.files"))
    return (there or bool(st.secrets.load_if_toml_exists())) and SECTION in st.secrets
