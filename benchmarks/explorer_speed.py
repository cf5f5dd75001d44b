"""
How quickly the explorer answers in a browser, over thirty days of a hundred pods: ``python benchmarks/explorer_speed.py FOLDER``.

The folder gets the month once and keeps it (18 million requests of 500 adapters, 34 million events, 10 million samples, with the
hours worked out; 1.4 GB, about eight minutes), unless it holds tables. Then the explorer is started, an empty Streamlit page
beside it with the same options, and Debian's chromium opens both in turns, each time with an empty cache:

* of every page: seconds to the first text, to the first chart, and until nothing is awaited any more, as medians of ``--rounds``
  and as multiples of the first text of the empty page;
* clicks, from the click until all that it asked for is there: windows, pools, pods, adapters, pages, sliders;
* the explorer's memory, over ``--minutes`` of such clicks in a random order, always the same.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import psutil
import requests
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

from lora_watch.explore.start import OPTIONS
from lora_watch.schema import REQUESTS
from lora_watch.simulate.scenario import Pool, Scenario, Split, Traffic, Truth
from lora_watch.simulate.write import give_memory_back, simulate

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PAGES = ("now", "timeline", "adapters", "latency", "capacity", "sources")
PATIENCE = 120.0
WARM_SECONDS = 90.0
"""After its start the explorer asks the usual questions by itself; nobody is measured meanwhile."""
WATCH = """() => {
  const all = s => [...document.querySelectorAll(s)];
  const seen = window.lwSeen = {};
  const fresh = () => !all('[data-stale="true"]').length && !all('[data-testid=stSkeleton]').length;
  const drawn = () => all('.stPlotlyChart').every(e => e.querySelector('.main-svg'));
  const tests = {
    text: () => all('.lw-title, .stMarkdown').length > 0,
    chart: () => all('.js-plotly-plot .main-svg, .lw-course, canvas').length > 0,
    settled: () => fresh() && all('.lw-settled').length > 0 && drawn(),
  };
  window.lwSettled = tests.settled;
  new MutationObserver(() => {
    for (const [name, test] of Object.entries(tests)) if (!(name in seen) && test()) seen[name] = performance.now() / 1000;
  }).observe(document, {subtree: true, childList: true, attributes: true});
}"""
"""Notes, in a page, how many seconds after it was asked for there was what is looked for."""
RUN = "() => Math.max(-1, ...[...document.querySelectorAll('.lw-settled')].map(e => +e.dataset.run))"
"""The number of the run after which nothing was awaited, −1 while something is."""


def laid(folder: Path) -> None:
    """The tables of the month, unless they are there."""
    if not (folder / REQUESTS.name).is_dir():
        scenario = Scenario(
            name="month",
            about="Thirty days of a hundred pods.",
            days=30,
            pools=(Pool(name="vllm", pods=100, slots=4, cpu_capacity=64),),
            traffic=Traffic(requests_per_second=8, adapters=500, zipf=1.0, daily_swing=0.5, weekend=0.5, drift=0.1),
            events=(Split(kind="split", start=706, top=40, share=0.5, growth=1.05),),
            steps_seconds=60,
            sample_seconds=300,
            truth=Truth(),
        )
        give_memory_back()
        simulate(scenario, scenario.days, 1, folder)
    subprocess.run([sys.executable, "-m", "lora_watch.cli", "derive", "--data", str(folder)], check=True)


@contextmanager
def served(*command: str, port: int, path: str = "") -> Iterator[tuple[str, psutil.Process]]:
    """A server, once it answers: its address and its process."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
        address = f"http://127.0.0.1:{port}{path}"
        try:
            while True:
                try:
                    requests.get(f"{address}/_stcore/health", timeout=5).raise_for_status()
                    break
                except requests.RequestException:
                    if process.poll() is not None:
                        raise SystemExit(f"{command} ended with {process.returncode}") from None
                    time.sleep(0.1)
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=30)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def opened(browser: Browser, address: str, wanted: tuple[str, ...]) -> dict[str, float]:
    """Seconds from asking for a page, with an empty cache, until each of these is seen."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(f"({WATCH})()")
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.wait_for_function(f"() => window.lwSeen && '{wanted[-1]}' in window.lwSeen", timeout=PATIENCE * 1000)
    if page.get_by_test_id("stException").count():
        raise SystemExit(f"{address} ended with an exception: {page.get_by_test_id('stException').first.inner_text()}")
    found: dict[str, float] = page.evaluate("window.lwSeen")
    context.close()
    return found


def settle(page: Page, before: int) -> None:
    """Wait until nothing is awaited in a later run than that."""
    page.wait_for_function(f"before => ({RUN})() > before && window.lwSettled()", arg=before, timeout=PATIENCE * 1000, polling=20)


class Clicks:
    """Somebody who clicks: what can be done, and how long each took until all was there that it asked for."""

    def __init__(self, page: Page, address: str, seed: int) -> None:
        self._page = page
        self._address = address
        self._random = random.Random(seed)
        self.seconds: list[tuple[str, float]] = []
        self.failed = 0
        page.add_init_script(f"({WATCH})()")
        page.goto(f"{address}/?last=1h")
        settle(page, -1)

    def one(self) -> None:
        """Do one thing."""
        kind, act = self._random.choice(
            (
                ("window", self._window),
                ("window", self._window),
                ("page", self._to_page),
                ("page", self._to_page),
                ("pool or pod", self._pods),
                ("adapter", self._adapter),
                ("slider", self._slider),
            )
        )
        before = self._page.evaluate(RUN)
        began = time.perf_counter()
        try:
            if act():
                settle(self._page, before)
                self.seconds.append((kind, time.perf_counter() - began))
        except TimeoutError:
            self.failed += 1
            self._page.goto(f"{self._address}/?last=1h")
            settle(self._page, -1)

    def _window(self) -> bool:
        preset = self._random.choice(("15m", "1h", "6h", "24h", "7d", "30d"))
        button = self._page.get_by_test_id("stButtonGroup").get_by_role("radio", name=preset, exact=True).first
        if button.get_attribute("aria-checked") == "true":
            return False
        button.click()
        return True

    def _to_page(self) -> bool:
        name = self._random.choice(PAGES).capitalize()
        before = self._page.locator(".lw-title h2").inner_text()
        if name == before:
            return False
        self._page.get_by_test_id("stTopNavLink").filter(has_text=name).first.click()
        return True

    def _pods(self) -> bool:
        return self._pick(self._random.choice(("Pool", "Pod")))

    def _adapter(self) -> bool:
        return self._pick("Adapter")

    def _pick(self, label: str) -> bool:
        box = self._page.get_by_test_id("stMultiSelect").filter(has=self._page.get_by_text(label, exact=True)).first
        clear = box.get_by_label("Clear all")
        if clear.count():
            clear.first.click()
            return True
        box.get_by_role("combobox").click()
        options = self._page.get_by_role("option")
        options.first.wait_for(timeout=5000)
        options.nth(self._random.randrange(min(options.count(), 6))).click()
        self._page.keyboard.press("Escape")
        return True

    def _slider(self) -> bool:
        sliders = self._page.get_by_role("slider", name="More slots per pod")
        if not sliders.count() or sliders.first.is_disabled():
            return False
        slider = sliders.first
        moves = {"0": ("ArrowRight",), "8": ("ArrowLeft",)}.get(slider.input_value(), ("ArrowRight", "ArrowLeft"))
        slider.press(self._random.choice(moves))
        return True


def mebibytes(process: psutil.Process) -> float:
    """Resident memory of the explorer."""
    return float(process.memory_info().rss) / (1 << 20)


def times(browser: Browser, explorer: str, empty: str, rounds: int) -> None:
    """The table of pages."""
    wanted = ("text", "chart", "settled")
    asked = [(page, last) for last in ("1h", "30d") for page in PAGES]
    bare: list[float] = []
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for page, last in asked:
            bare.append(opened(browser, empty, ("text",))["text"])
            address = f"{explorer}/{'' if page == 'now' else page}?last={last}"
            found.setdefault((page, last), []).append(opened(browser, address, wanted))
    base = median(bare)
    print(f"empty page: first text after {base:.2f} s (median of {len(bare)})\n")
    print("| page | window | first text s | × | first chart s | × | all there s | × |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (page, last), seen in found.items():
        cells = []
        for what in wanted:
            known = median(one.get(what, PATIENCE) for one in seen)
            cells += [f"{known:.2f}", f"{known / base:.1f}"]
        print(f"| {page} | {last} | {' | '.join(cells)} |", flush=True)


def clicked(browser: Browser, explorer: str, process: psutil.Process, minutes: float, clicks: int) -> None:
    """The table of clicks, and the memory beside them."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    somebody = Clicks(page, explorer, seed=1)
    before, most = mebibytes(process), 0.0
    began = time.perf_counter()
    while len(somebody.seconds) < clicks or time.perf_counter() - began < minutes * 60:
        somebody.one()
        most = max(most, mebibytes(process))
    kinds = sorted({kind for kind, _ in somebody.seconds})
    print("\n| click | times | median s | p90 s | longest s |\n| --- | --- | --- | --- | --- |")
    for kind in (*kinds, "all"):
        took = [seconds for one, seconds in somebody.seconds if kind in (one, "all")]
        p90 = quantiles(took, n=10)[-1] if len(took) > 1 else took[0]
        print(f"| {kind} | {len(took)} | {median(took):.2f} | {p90:.2f} | {max(took):.2f} |")
    print(
        f"\nmemory: {before:.0f} MiB before, {mebibytes(process):.0f} MiB after {(time.perf_counter() - began) / 60:.1f} minutes "
        f"and {len(somebody.seconds)} clicks, at most {most:.0f} MiB; {somebody.failed} clicks without an answer"
    )


def main() -> None:
    """Measure, and print the tables."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--clicks", type=int, default=60)
    asked.add_argument("--minutes", type=float, default=0.0)
    told = asked.parse_args()
    laid(told.data)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text('import streamlit as st\n\nst.write("empty")\n')
        first, second = free_port(), free_port()
        options = [f"--{name}={value}" for name, value in OPTIONS.items()]
        bare = ("-m", "streamlit", "run", str(script), *options, f"--server.port={second}", "--server.address=127.0.0.1")
        explore = ("-m", "lora_watch.cli", "explore", "--data", str(told.data.absolute()), "--port", str(first))
        with (
            served(*explore, port=first) as (explorer, process),
            served(*bare, port=second) as (empty, _),
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
            time.sleep(WARM_SECONDS)
            print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; explorer {mebibytes(process):.0f} MiB")
            times(browser, explorer, empty, told.rounds)
            clicked(browser, explorer, process, told.minutes, told.clicks)
            browser.close()


if __name__ == "__main__":
    main()
