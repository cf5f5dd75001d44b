"""Streamlit's own sign-in, where it is switched on."""

import streamlit as st

SECTION = "auth"
"""Of Streamlit's secrets: where it stands there, nobody sees anything before signing in."""


def required() -> None:
    """Stop here with a button where a sign-in is needed and has not been."""
    if not _switched_on() or st.user.is_logged_in:
        return
    st.title("lora_watch")
    st.write("Sign in to see it.")
    st.button("Sign in", type="primary", on_click=st.login)
    st.stop()


def _switched_on() -> bool:
    return bool(st.secrets.load_if_toml_exists()) and SECTION in st.secrets
