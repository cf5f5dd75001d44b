"""
The explorer in a browser, started as a user starts it: each page draws, asks nobody outside, and logs no error.

Screenshots are left in ``artifacts/explorer/``.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from dashboards.opening import PAGES
from playwright.sync_api import Browser, Page, expect, sync_playwright
from processes import Process
from requests.adapters import HTTPAdapter
from typer.testing import CliRunner
from urllib3.util.retry import Retry

from lora_watch.cli import app

pytestmark = pytest.mark.slow
SHOTS = Path(__file__).parents[2] / "artifacts" / "explorer"
CHROMIUM = "/usr/bin/chromium"
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 120_000
"""ms in which whatever a page waits for has come."""


@pytest.fixture(scope="module")
def thursday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated Thursday, twenty minutes into its experiment."""
    folder = tmp_path_factory.mktemp("browser") / "thursday"
    done = CliRunner().invoke(app, ["simulate", "--scenario", "thursday", "--days", "1.441", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def explorer(thursday: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it is, under a path as behind a reverse proxy."""
    log = tmp_path_factory.mktemp("explorer") / "log"
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    asked = ("lora_watch.cli", "explore", "--data", str(thursday), "--port", str(port), "--base-path", "/lora")
    with Process(*asked, word="explorer", log=log) as started:
        patient = requests.Session()
        patient.mount("http://", HTTPAdapter(max_retries=Retry(120, backoff_factor=0.2, backoff_max=1)))
        with patient:
            patient.get(f"{started.address}/_stcore/health", timeout=10).raise_for_status()
        yield started.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


class Watched:
    """A page, and what it did that it should not have."""

    def __init__(self, browser: Browser, scheme: str = "light") -> None:
        self.page: Page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        self.wrong: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda asked: self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if urlsplit(url).hostname not in ("127.0.0.1", None):
            self.wrong.append(url)

    def settled(self) -> Page:
        """The page once everything that it waits for is there."""
        expect(self.page.locator(".lw-settled")).to_have_count(1, timeout=PATIENCE)
        expect(self.page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=PATIENCE)
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=PATIENCE)
        return self.page

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        tall = self.page.evaluate("document.querySelector('[data-testid=\"stMain\"]').scrollHeight")
        self.page.set_viewport_size({"width": 1440, "height": max(900, min(tall + 40, 6000))})
        self.page.screenshot(path=SHOTS / f"{name}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_draws_logs_no_error_and_asks_nobody_outside(page: str, scheme: str, explorer: str, browser: Browser):
    watched = Watched(browser, scheme)
    watched.page.goto(f"{explorer}/{'' if page == 'now' else page}?last=1h")
    expect(watched.settled().get_by_test_id("stException")).to_have_count(0)
    watched.shot(f"{page}-{scheme}")
    assert watched.wrong == []
    watched.page.close()


def test_the_morning_is_told_on_the_first_page_and_its_cost_is_one_click_away(explorer: str, browser: Browser):
    watched = Watched(browser)
    watched.page.goto(f"{explorer}/")
    page = watched.settled()
    expect(page.get_by_text("new-adapters").first).to_be_visible()
    expect(page.get_by_text("-experiment").first).to_be_visible()
    page.get_by_role("link", name="What it cost").first.click()
    expect(page.get_by_text("Slow requests that loads made slow")).to_be_visible(timeout=PATIENCE)
    assert "/latency?" in page.url
    assert "from=" in page.url
    assert watched.wrong == []
    page.close()


def test_the_story_of_a_thursday_from_the_finding_to_one_slot_more(explorer: str, browser: Browser):
    watched = Watched(browser)
    watched.page.goto(f"{explorer}/")
    page = watched.settled()
    cards = page.locator('[class*="st-key-lw_finding_"]')
    cards.filter(has_text="-experiment").first.get_by_role("link", name="Timeline").click()
    page.wait_for_url("**/timeline?from=*")
    watched.settled()
    found = span_of(page.url)
    plot = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert plot is not None
    left, middle = plot["x"] + plot["width"] * 0.25, plot["y"] + plot["height"] / 2
    page.mouse.move(left, middle)
    page.mouse.down()
    page.mouse.move(left + plot["width"] * 0.25, middle, steps=6)
    page.mouse.up()
    page.wait_for_function("found => !location.search.includes(found)", arg=f"from={found[0]}")
    watched.settled()
    start, end = span_of(page.url)
    assert found[0] < start < end < found[1]
    assert end - start == pytest.approx((found[1] - found[0]) / 4, rel=0.2)
    expect(page.locator(".lw-waiting")).to_have_count(0, timeout=PATIENCE)
    expect(page.locator('[data-stale="true"]')).to_have_count(0, timeout=PATIENCE)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=PATIENCE)
    watched.shot("thursday-timeline")
    page.get_by_role("link", name="More about it").click()
    page.wait_for_url("**/adapters?*")
    expect(watched.settled().get_by_text("Who evicts it").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".lw-new")).to_contain_text("-experiment")
    watched.shot("thursday-adapters")
    page.get_by_role("link", name="Capacity").click()
    watched.settled()
    page.get_by_role("slider", name="More slots per pod").first.press("ArrowRight")
    expect(page.get_by_text("+1 slot per pod.").first).to_be_visible(timeout=PATIENCE)
    watched.settled()
    watched.shot("thursday-capacity")
    assert span_of(page.url) == (start, end)
    assert watched.wrong == []
    page.close()


def span_of(url: str) -> tuple[int, int]:
    """``from`` and ``to`` of an address, ms since 1970."""
    asked = parse_qs(urlsplit(url).query)
    return int(asked["from"][-1]), int(asked["to"][-1])


def test_a_window_that_is_chosen_is_in_the_address_and_a_page_keeps_it(explorer: str, browser: Browser):
    watched = Watched(browser)
    watched.page.goto(f"{explorer}/sources?pod=vllm-3")
    page = watched.settled()
    page.get_by_text("15m", exact=True).click()
    page.wait_for_url("**/sources?last=15m&pod=vllm-3")
    watched.settled()
    page.get_by_role("link", name="Latency").click()
    page.wait_for_url("**/latency?last=15m&pod=vllm-3")
    expect(watched.settled().get_by_text("13 min").or_(page.get_by_text("15 min")).first).to_be_visible()
    assert watched.wrong == []
    page.close()


REACHED = """() => {
  const focused = document.activeElement, inside = name => focused.closest(`[data-testid="${name}"]`);
  const where = ['stTopNavLink', 'stButtonGroup', 'stMultiSelect'].find(inside);
  if (!where) return null;
  const marked = element => {
    const style = getComputedStyle(element);
    return (style.outlineStyle !== 'none' && style.outlineWidth !== '0px') || style.boxShadow !== 'none';
  };
  const label = where === 'stMultiSelect' ? ` ${focused.getAttribute('aria-label')}` : '';
  return [where + label, marked(focused) || marked(inside(where))];
}"""
"""What has the keyboard, of what matters, and whether that is seen."""


def test_the_keyboard_reaches_pages_windows_and_pods_and_is_seen_there(explorer: str, browser: Browser):
    watched = Watched(browser)
    watched.page.goto(f"{explorer}/?last=1h")
    page = watched.settled()
    reached = {}
    for _ in range(40):
        page.keyboard.press("Tab")
        if told := page.evaluate(REACHED):
            reached.setdefault(*told)
    assert set(reached) >= {"stTopNavLink", "stButtonGroup", "stMultiSelect Pool", "stMultiSelect Pod"}
    assert all(reached.values())
    page.close()
