"""Whatever goes wrong in the agent, the server serves: with a recorder that always raises, and with the agent switched off."""

import asyncio
import concurrent.futures
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_server
from story import ADAPTERS
from tiny_client import Asked, complete

pytestmark = pytest.mark.vllm

BROKEN = """
from lora_watch.agent.recorder import Recorder

def broken(*args, **kwargs):
    raise RuntimeError("the recorder is broken on purpose")

for name, method in list(vars(Recorder).items()):
    if not name.startswith("_"):
        setattr(Recorder, name, property(broken) if isinstance(method, property) else broken)
"""


@dataclass(frozen=True)
class Served:
    """One short run of a server: what it answered, its log, and the directory its events would be in."""

    asked: list[Asked]
    log: str
    events: Path
    exit_status: int


def serve(venv: Path, model: Path, directory: Path, environment: dict[str, str]) -> Served:
    """Ask for each adapter in turn, and for all of them at once."""
    directory.mkdir()
    port, events = tiny_server.free_port(), directory / "events"
    environment = {**environment, "LORA_WATCH_LOG_DIR": str(events)}
    modules = {name: model / "adapters" / name for name in ADAPTERS}

    async def ask() -> list[Asked]:
        asked = [await complete(port, name, f"one-{name}") for name in ADAPTERS]
        return asked + await asyncio.gather(*(complete(port, name, f"all-{name}") for name in ADAPTERS))

    server = tiny_server.serve(venv, model / "model", port, directory / "server.log", environment, modules)
    try:
        asked = asyncio.run(ask())
    finally:
        exit_status = server.stop()
    return Served(asked, server.log.read_text(errors="replace"), events, exit_status)


@pytest.fixture(scope="module")
def both(venv: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, Served]:
    """(with a broken recorder, with the agent off), side by side: most of a start is waiting."""
    directory = tmp_path_factory.mktemp("guard")
    (directory / "site").mkdir()
    (directory / "site/sitecustomize.py").write_text(BROKEN)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        broken = pool.submit(serve, venv, model, directory / "broken", {"PYTHONPATH": str(directory / "site")})
        off = pool.submit(serve, venv, model, directory / "off", {"LORA_WATCH_AGENT": "off"})
        return broken.result(), off.result()


def test_a_recorder_that_always_raises_leaves_every_answer_right(both):
    broken, off = both
    assert {a.status for a in broken.asked} == {200}
    one_by_one = slice(len(ADAPTERS))
    assert [a.text for a in broken.asked[one_by_one]] == [a.text for a in off.asked[one_by_one]]


def test_no_two_adapters_answer_alike_so_that_a_wrong_slot_would_show(both):
    texts = [a.text for a in both[1].asked[: len(ADAPTERS)]]
    assert len(set(texts)) == len(texts)


def test_a_recorder_that_always_raises_is_said_and_does_not_flood_the_log(both):
    said = both[0].log.count("lora_watch could not record something")
    assert 1 <= said < 100


def test_a_server_with_a_broken_recorder_stops_in_good_order(both):
    assert both[0].exit_status == 0


def test_switched_off_the_agent_leaves_nothing_behind(both):
    assert {a.status for a in both[1].asked} == {200}
    assert not both[1].events.exists()
