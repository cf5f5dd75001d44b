"""
The explorer as a web server: Streamlit with its pages told where the server is, and kept from asking any other host for anything.

``streamlit run start.py`` serves ``server``; run as a program with Streamlit's options it does just that.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config, net_util
from streamlit.web import cli

from widgets import warm

HERE = Path(__file__).parent
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
    )
)
"""What a browser is told to refuse whatever a page asks for: everything that is not from here."""
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}

DRAWERS = ("PlotlyChart", "DataFrame")
"""What Streamlit's browser part draws figures and tables with: it asks for them when it meets the first one, which is late."""


def _ahead() -> bytes:
    """Has a browser fetch them while the page is still being made."""
    files = sorted(
        file.name for name in DRAWERS for file in (Path(st.__file__).parent / "static" / "static" / "js").glob(f"{name}.*.js")
    )
    return "".join(f'<link rel="modulepreload" crossorigin href="./static/js/{name}">' for name in files).encode()


AHEAD = _ahead()


class Told:
    """
    Every answer with ``HEADERS``; in a page, where the server is.

    Without the latter a page whose address is not the first one's asks for the server at its own address, too, in vain, and the
    browser notes an error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "text/html" in Headers(scope=scope).get("accept", ""):  # a page is small: uncompressed it can be read here
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]}
        prefix = Headers(scope=scope).get("x-forwarded-prefix", "") or config.get_option("server.baseUrlPath")
        begun: list[Message] = []

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers.update(HEADERS)
                if headers.get("content-type", "").startswith("text/html") and "content-encoding" not in headers:
                    begun.append(message)
                    return
            elif begun:
                body = begun[0].setdefault("body", bytearray())
                body += message.get("body", b"")
                if message.get("more_body", False):
                    return
                start = begun.pop()
                page = bytes(start.pop("body")).replace(b"<head>", b"<head>" + _where(prefix) + AHEAD, 1)
                headers = MutableHeaders(raw=start["headers"])
                if "content-length" in headers and scope["method"] != "HEAD":
                    headers["content-length"] = str(len(page))
                for name in ("etag", "last-modified"):  # they are of the file, not of what is sent
                    del headers[name]
                await send(start)
                message = {**message, "body": page}
            await send(message)

        await self._app(scope, receive, sent)


def _where(prefix: str) -> bytes:
    """``prefix`` is the path under which a browser sees the server: a proxy that takes it away says so in a header of its own."""
    path = json.dumps("/" + prefix.strip("/")).replace("<", "\\u003c")
    return f"<script>window.__streamlit={{BACKEND_BASE_URL:window.location.origin+{path}}}</script>".encode()


def _nobody() -> None:
    """In place of a question to a host on the internet for our own address, which Streamlit asks to judge a strange origin."""


net_util.get_external_ip = _nobody


@asynccontextmanager
async def _begun(_: st.App) -> AsyncIterator[None]:
    warm.begin()
    yield


server = st.App(HERE / "main.py", middleware=[Middleware(Told)], lifespan=_begun)

if __name__ == "__main__":
    sys.argv = ["streamlit", "run", str(Path(__file__)), *sys.argv[1:]]
    sys.exit(cli.main(prog_name="lora-watch explore"))
