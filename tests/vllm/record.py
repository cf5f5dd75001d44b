"""
Records two minutes of a real vLLM for the demonstration. Usage: python tests/vllm/record.py VENV MODEL DIRECTORY

MODEL is what ``make_model.py`` wrote, VENV has vLLM and the wheel. Three adapters share two slots in the first minute, twelve
in the second.
DIRECTORY gets ``events/`` (an event-log directory) and ``metrics/`` (the engine's own page every five seconds, named by µs UTC).
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import tiny_server
from story import ADAPTERS
from tiny_client import Traffic, call

from lora_watch import names

PER_SECOND = 4.0
MINUTE_SECONDS = 60.0
SCRAPE_SECONDS = 5.0


def shortened(page: str) -> str:
    """What lora_watch reads of the engine's page."""
    known = (*vars(names).values(), *names.HISTOGRAMS)
    read = tuple(name for name in known if isinstance(name, str) and name.startswith("vllm:"))
    lines = page.splitlines(keepends=True)
    return "".join(line for line in lines if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(read))


@contextlib.asynccontextmanager
async def scraping(port: int, to: Path) -> AsyncIterator[None]:
    """Keep the engine's page every few seconds while the block runs."""
    to.mkdir()

    async def scrape() -> None:
        while True:
            at = time.time_ns() // 1000
            _, page = await call(port, "/metrics")
            (to / f"{at}.prom").write_text(shortened(page.decode()), encoding="utf-8")
            await asyncio.sleep(SCRAPE_SECONDS)

    task = asyncio.create_task(scrape())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def drive(port: int, to: Path) -> Traffic:
    """The traffic: the mix of adapters widens half-way."""
    traffic = Traffic(port, seed=7)
    async with scraping(port, to):
        await traffic.poisson(ADAPTERS[:3], PER_SECOND, MINUTE_SECONDS)
        await traffic.poisson(ADAPTERS, PER_SECOND, MINUTE_SECONDS)
    return traffic


def main() -> None:
    """Serve, drive, stop."""
    venv, model, directory = (Path(word).absolute() for word in sys.argv[1:4])
    directory.mkdir(parents=True, exist_ok=True)
    port = tiny_server.free_port()
    log = directory.parent / "record-server.log"
    environment = {"LORA_WATCH_LOG_DIR": str(directory / "events")}
    modules = {name: model / "adapters" / name for name in ADAPTERS}
    server = tiny_server.serve(venv, model / "model", port, log, environment, modules)
    try:
        traffic = asyncio.run(drive(port, directory / "metrics"))
    finally:
        server.stop()
    print(f"{len(traffic.asked)} requests, {sum(asked.status == 200 for asked in traffic.asked)} of them answered with 200")


if __name__ == "__main__":
    main()
