"""
The explorer's frame: who may see it, its pages, the window, and the page itself. Started by ``lora-watch explore``.

It stands in a folder beside ``pages/``, not above it: of a script above a folder of that name Streamlit takes the pages to be
scripts of their own, and opens them without this frame.
"""

from pathlib import Path

import streamlit as st

from widgets import heart, pages, picker, scene, sign_in, style

# the icon has to be set before st.navigation: without one of its own, Streamlit asks another host for a page's symbol
st.set_page_config(page_title="lora_watch", page_icon=str(Path(__file__).parent / "icon.png"), layout="wide")
style.apply()
sign_in.required()
page = st.navigation(pages.made(), position="top")
pages.title(page)
scene.begin()
picker.show()
page.run()
heart.beat()
