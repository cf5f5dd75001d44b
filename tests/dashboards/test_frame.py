"""The frame around the pages: who may see them, what they are made of, what a browser is told."""

import ast
import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from dashboards.opening import DASHBOARDS, html
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from streamlit import config, net_util
from streamlit.testing.v1 import AppTest

from lora_watch.explore.opened import DATA
from start import Told

PAGES_AND_WIDGETS = sorted([*(DASHBOARDS / "pages").glob("*.py"), *(DASHBOARDS / "app" / "widgets").glob("*.py")])


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }


@pytest.mark.parametrize("file", [file for file in PAGES_AND_WIDGETS if file.parent.name == "pages"], ids=lambda file: file.stem)
def test_a_page_reads_only_through_explore(file: Path):
    reading = {
        name for name in imported(file) if name.startswith(("lora_watch.store", "lora_watch.sources", "lora_watch.simulate"))
    }
    assert reading == set()


@pytest.mark.parametrize("file", PAGES_AND_WIDGETS, ids=lambda file: file.stem)
def test_nothing_is_ever_drawn_as_html_that_was_not_escaped(file: Path):
    text = file.read_text(encoding="utf-8")
    assert "unsafe_allow" not in text
    assert "components.v1" not in text


def test_where_a_sign_in_is_switched_on_nobody_sees_anything_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(DATA, str(tmp_path))
    test = AppTest.from_file(DASHBOARDS / "app" / "main.py", default_timeout=60)
    test.secrets["auth"] = {"client_id": "x"}
    test.run()
    assert [button.label for button in test.button] == ["Sign in"]
    assert html(test) == ""


def test_a_file_of_secrets_that_cannot_be_read_shows_nobody_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(DATA, str(tmp_path))
    (tmp_path / "secrets.toml").write_text("[auth")
    before = config.get_option("secrets.files")
    config.set_option("secrets.files", [str(tmp_path / "secrets.toml")])
    try:
        test = AppTest.from_file(DASHBOARDS / "app" / "main.py", default_timeout=60).run()
    finally:
        config.set_option("secrets.files", before)
    assert test.exception
    assert html(test) == ""


def answered(
    response: Response, *, path: str = "", method: str = "GET", accept: str = "text/html", prefix: str = ""
) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer of a server that gives this response, under a path."""
    config.set_option("server.baseUrlPath", path)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append({**message, "headers": list(message.get("headers", ()))})

    headers = [(b"accept", accept.encode()), (b"accept-encoding", b"gzip")]
    headers += [(b"x-forwarded-prefix", prefix.encode())] if prefix else []
    scope = {"type": "http", "method": method, "path": "/", "headers": headers, "asgi": {"spec_version": "2.4"}}
    asyncio.run(Told(response)(scope, receive, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return told, b"".join(message.get("body", b"") for message in sent[1:])


def test_a_browser_is_told_to_ask_nobody_else():
    headers, body = answered(PlainTextResponse("x"))
    assert "default-src 'self'" in headers["content-security-policy"]
    assert body == b"x"


def test_a_page_knows_where_its_server_is_whatever_its_own_address():
    headers, body = answered(HTMLResponse("<html><head></head>é</html>"), path="lora")
    assert b'BACKEND_BASE_URL:window.location.origin+"/lora"' in body
    assert int(headers["content-length"]) == len(body)


def test_a_proxy_that_takes_the_path_away_says_which():
    _, body = answered(HTMLResponse("<html><head></head></html>"), prefix="/ops/lora")
    assert b'BACKEND_BASE_URL:window.location.origin+"/ops/lora"' in body


@pytest.mark.parametrize("prefix", ["//elsewhere.example", "</script><script>x", '"+alert(1)+"'])
def test_whatever_a_header_says_the_server_is_this_one(prefix: str):
    _, body = answered(HTMLResponse("<html><head></head></html>"), prefix=prefix)
    said = body.partition(b"BACKEND_BASE_URL:window.location.origin+")[2].partition(b"}")[0]
    assert json.loads(said) == "/" + prefix.strip("/")
    assert body.count(b"</script>") == 1


def test_what_figures_are_drawn_with_is_fetched_ahead():
    _, body = answered(HTMLResponse("<html><head></head></html>"))
    assert body.count(b'<link rel="modulepreload"') == 2


def test_a_path_cannot_end_the_script_that_tells_it():
    _, body = answered(HTMLResponse("<html><head></head></html>"), path="</script><script>x")
    assert body.count(b"</script>") == 1


def test_a_page_that_comes_in_parts_is_whole():
    async def parts() -> AsyncIterator[bytes]:
        yield b"<html><head>"
        yield b"</head></html>"

    _, body = answered(StreamingResponse(parts(), media_type="text/html"))
    assert body.endswith(b"</head></html>")
    assert b"BACKEND_BASE_URL" in body


def test_the_program_asks_nobody_on_the_internet_for_its_own_address():
    assert net_util.get_external_ip() is None
