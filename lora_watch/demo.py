"""``lora-watch demo``: the ordinary service watches a recording of a real vLLM being played."""

import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from lora_watch.config import parse
from lora_watch.explore import status
from lora_watch.explore.queries import Overview, Past, overview
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
store: {{folder: "{data}"}}
exporter: {{port: 0}}
log: {{level: warning}}
"""


def run(data: Path | None, *, stay: bool) -> None:
    """Play, watch, and print what was seen; with ``stay`` keep serving until SIGTERM or Ctrl-C. Raises LoraWatchError."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-watch-demo-")))
        play = stack.enter_context(playing(load(), ahead=AHEAD_SECONDS))
        settings = parse(_CONFIGURATION.format(metrics=play.metrics_url, agent=play.agent_url, data=folder.resolve()))
        set_up_logging(settings.log)
        service = Service(settings, sources_of(settings, wall_clock))
        console.print("A recording of a real vLLM (2 slots, 4 places in CPU memory) is played; the ordinary service watches it.")
        console.print(f"engine    {play.metrics_url}\nagent     {play.agent_url}")
        narrator = threading.Thread(target=_narrate, args=(service, folder, play.window, console, stay), daemon=True)
        narrator.start()
        service.run()
        narrator.join(timeout=10)


def _narrate(service: Service, folder: Path, window: Window, console: Console, stay: bool) -> None:  # noqa: FBT001
    store, step = Store(folder), round(SLICE_SECONDS * SECOND)
    console.print("\n   time   active/slots   swaps/s   miss    residency p50", style="bold")
    for part in window.split(step):
        while wall_clock() < part.end + 2 * SECOND:
            time.sleep(0.2)
        console.print(_line(overview(store, part, Past(store, part.end - window.start + step))))
    console.print()
    whole = Window(window.start, window.end + SECOND)
    status.show(overview(store, whole, Past(store, SECOND)), adapters=12, console=console)
    console.print("Each row says how it is known. `lora-watch status --help` tells how to ask for other windows.")
    if stay:
        console.print("Still serving; Ctrl-C ends it.")
    else:
        service.stop()


def _line(part: Overview) -> str:
    start = time.strftime("%H:%M:%S", time.gmtime(part.window.start / SECOND))
    if part.pods.is_empty():
        return f"{start}   nothing was recorded"
    row = part.pods.row(0, named=True)
    miss = "–" if row["miss_ratio"] is None else f"{100 * row['miss_ratio']:.0f} %"
    rate = "–" if row["swaps_per_second"] is None else f"{row['swaps_per_second']:.2f}"
    active, p50 = f"{row['active_adapters'] or 0}/{row['slots'] or '?'}", status.quantile(row, "p50")
    return f"{start}   {active:>12}   {rate:>7}   {miss:>4}   {p50:>15}"
