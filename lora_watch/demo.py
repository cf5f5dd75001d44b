"""``lora-watch demo``: the ordinary service watches a recording of a real vLLM being played."""

import json
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from lora_watch.config import parse
from lora_watch.explore import status
from lora_watch.explore.queries import Past, overview
from lora_watch.model import SECOND, Window
from lora_watch.service import Service, set_up_logging, wall_clock
from lora_watch.simulate.recorded import load, playing
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

AHEAD_SECONDS = 25.0
"""How much of the recording comes while one looks on; the rest is there at once."""
SLICE_SECONDS = 15.0
_CONFIGURATION = """\
cluster: demo
targets: [{{pod: tiny-vllm, pool: recorded, metrics: "{metrics}", agent: "{agent}"}}]
collect: {{interval: 1s, settle: 200ms}}
derive: {{interval: 2s, window: 5m}}
store: {{folder: {data}}}
exporter: {{port: 0}}
log: {{level: warning}}
"""


def run(data: Path | None, *, stay: bool) -> None:
    """Play, watch, and print what was seen; with ``stay`` keep serving until SIGTERM or Ctrl-C. Raises LoraWatchError."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    told: list[str] = []

    def narrate(*about: Any) -> None:
        try:
            told.append(_narrate(*about))
            if stay or data:
                console.print(f"Other windows: `lora-watch status --data {folder} --last 1m`", soft_wrap=True)
            else:
                console.print("The tables were temporary: --data FOLDER keeps them, --stay goes on serving.")
            if stay:
                console.print("Still serving; Ctrl-C ends it.")
        finally:  # an error is shown by the thread itself; nobody would watch on
            if not (told and stay):
                service.stop()

    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-watch-demo-")))
        play = stack.enter_context(playing(load(), ahead=AHEAD_SECONDS))
        settings = parse(
            _CONFIGURATION.format(metrics=play.metrics_url, agent=play.agent_url, data=json.dumps(str(folder.resolve())))
        )
        set_up_logging(settings.log)
        service = Service(settings, sources_of(settings, wall_clock))
        console.print("A recording of a real vLLM (2 slots, 4 places in CPU memory) is played; the ordinary service watches it.")
        console.print(f"engine    {play.metrics_url}\nagent     {play.agent_url}")
        threading.Thread(target=narrate, args=(folder, play.window, console), daemon=True).start()
        service.run()


def _narrate(folder: Path, window: Window, console: Console) -> str:
    """Print a line for each slice as it ends, then what changed, then everything; returns what changed."""
    store, step = Store(folder), round(SLICE_SECONDS * SECOND)
    seen: list[dict[str, Any]] = []
    for part in window.split(step):
        while wall_clock() < part.end + 2 * SECOND:
            time.sleep(0.2)
        pods = overview(store, part, Past(store, part.end - window.start + step)).pods
        if pods.is_empty() or not pods["requests"][0]:
            continue  # the engine was starting, or at rest
        if not seen:
            console.print("\n    time   active/slots   swaps/s   miss   residency p50", style="bold")
        seen.append(pods.row(0, named=True))
        console.print(_line(part, seen[-1]))
    change = _change(seen[0], seen[-2]) if len(seen) > 2 else "The recording was too short to compare its halves."
    console.print(f"\n{change}\n")
    whole = Window(window.start, window.end + SECOND)
    status.show(overview(store, whole, Past(store, SECOND)), adapters=12, console=console)
    console.print("\nEach row says how it is known.")
    return change


def _line(part: Window, row: dict[str, Any]) -> str:
    start = time.strftime("%H:%M:%S", time.gmtime(part.start / SECOND))
    active, p50 = f"{_known(row['active_adapters'])}/{_known(row['slots'])}", status.quantile(row, "p50")
    return f"{start}   {active:>12}   {_rate(row):>7}   {_miss(row):>4}   {p50:>13}"


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    """One sentence: what changed between two slices of the recording."""
    return (
        f"{after['active_adapters']} adapters want {after['slots']} slots, where {before['active_adapters']} did before: "
        f"swaps per second {_rate(before)} → {_rate(after)}, misses {_miss(before)} → {_miss(after)}, "
        f"an adapter stays {status.quantile(before, 'p50')} → {status.quantile(after, 'p50')} (median)."
    )


def _rate(row: dict[str, Any]) -> str:
    return "–" if row["swaps_per_second"] is None else f"{row['swaps_per_second']:.2f}"


def _miss(row: dict[str, Any]) -> str:
    return "–" if row["miss_ratio"] is None else f"{100 * row['miss_ratio']:.0f} %"


def _known(count: int | None) -> str:
    return "–" if count is None else str(count)
