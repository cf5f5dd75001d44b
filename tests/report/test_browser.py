"""
The page in a browser: a simulated Thursday as a user reports on it, and a page that is all hostile names. It draws, logs no
error, opens no dialog and asks nobody.

Screenshots are left in ``artifacts/report/``.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report.examples import hostile
from typer.testing import CliRunner

from lora_watch.cli import app
from lora_watch.report.html import html

pytestmark = pytest.mark.slow
SHOTS = Path(__file__).parents[2] / "artifacts" / "report"
CHROMIUM = "/usr/bin/chromium"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")


@pytest.fixture(scope="module")
def thursday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on the week of the simulated Thursday, with a little of its traffic, four hours after its test began."""
    folder = tmp_path_factory.mktemp("thursday")
    scenario = folder / "thin.yaml"
    whole = (files("lora_watch.simulate") / "scenarios" / "thursday.yaml").read_text(encoding="utf-8")
    scenario.write_text(whole.replace("requests_per_second: 24", "requests_per_second: 1").replace("slots: 4", "slots: 2"))
    page = folder / "report.html"
    for words in (
        ("simulate", "--scenario", str(scenario), "--days", "1.6", "--out", str(folder / "data")),
        ("report", "--data", str(folder / "data"), "--week", "2026-W10", "--out", str(page)),
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


class Watched:
    """A page, and what it did that it should not have."""

    def __init__(self, browser: Browser, file: Path, scheme: str = "light") -> None:
        self.page: Page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        self.wrong: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda asked: self.wrong.append(asked.message))
        self.page.on("request", lambda asked: self._asked(asked.url, file))
        self.page.goto(file.as_uri())

    def _asked(self, url: str, file: Path) -> None:
        if url != file.as_uri():
            self.wrong.append(url)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def test_the_report_of_a_thursday_opens_in_light_and_dark_and_asks_nobody(thursday: Path, browser: Browser):
    for scheme in ("light", "dark"):
        watched = Watched(browser, thursday, scheme)
        expect(watched.page.get_by_role("heading", name="LoRA adapters, week 2026-W10")).to_be_visible()
        expect(watched.page.get_by_text("*-experiment").first).to_be_visible()
        expect(watched.page.get_by_role("img").first).to_be_visible()
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        watched.shot(f"thursday-{scheme}")
        assert watched.wrong == []
        watched.page.close()


def test_its_sections_are_reached_by_their_links_and_keys(thursday: Path, browser: Browser):
    watched = Watched(browser, thursday)
    watched.page.keyboard.press("Tab")
    assert watched.page.evaluate("document.activeElement.tagName") == "A"
    watched.page.get_by_role("link", name="Other eviction policies, on your own log").click()
    expect(watched.page.get_by_role("heading", name="Other eviction policies, on your own log")).to_be_in_viewport()
    assert watched.wrong == []
    watched.page.close()


def test_hostile_names_are_text_on_the_page_and_do_nothing(tmp_path: Path, browser: Browser):
    file = tmp_path / "hostile.html"
    file.write_text(html(hostile()), encoding="utf-8")
    watched = Watched(browser, file)
    expect(watched.page.get_by_role("rowheader", name="<script>alert(1)</script>", exact=True).first).to_be_visible()
    assert watched.page.locator("script, img, iframe, object").count() == 0
    assert re.search(r"default-src 'none'", watched.page.locator("meta[http-equiv]").get_attribute("content") or "")
    watched.shot("hostile")
    assert watched.wrong == []
    watched.page.close()
