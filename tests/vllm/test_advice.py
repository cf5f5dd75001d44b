"""What the recommendation promises of a real engine is what that engine then does: more slots, and adapters loaded ahead."""

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import tiny_server
from story import ADAPTERS
from tiny_client import Traffic

from lora_watch.config import Settings, parse
from lora_watch.derive.locality import came
from lora_watch.explore.advice import Advised, advised, window_until
from lora_watch.explore.advice_words import for_target
from lora_watch.model import DAY, MINUTE
from lora_watch.recommend.advice import Advice, Kind, Verdict
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS
from lora_watch.service import Service
from lora_watch.sources.configured import sources_of
from lora_watch.store.tables import Store

pytestmark = pytest.mark.vllm

NAMES = ADAPTERS[:6]
FEW, COUNT, SEED = 2, 300, 11
MORE = 2
"""Slots more, of those that are advised: not so many that nothing is left to be promised."""


@dataclass(frozen=True)
class Ran:
    """The tables of one run, and when its traffic began (µs UTC)."""

    store: Store
    began: int

    def requests(self) -> pl.DataFrame:
        """Its traffic in order of arrival."""
        rows = self.store.rows(REQUESTS).with_columns(came=came()).sort("came")
        return rows.filter(pl.col("came") >= self.began)

    def swaps(self, since: int) -> int:
        """Adapters that left a slot for another one from a moment on."""
        left = (pl.col("kind") == "evict") & (pl.col("tier") == "gpu") & (pl.col("reason") == "lru")
        return self.store.rows(ADAPTER_EVENTS, where=left & (pl.col("at") >= since)).height


def run(venv: Path, model: Path, to: Path, slots: int, preload: tuple[str, ...] = ()) -> Ran:
    """The same traffic, one request after the other, on so many slots, behind one short request for each that is preloaded."""
    port = tiny_server.free_port()
    modules = {name: model / "adapters" / name for name in NAMES}
    environment = {"LORA_WATCH_LOG_DIR": str(to / "events")}
    to.mkdir()
    server = tiny_server.serve(
        venv, model / "model", port, to / "server.log", environment, modules, slots=slots, cpu_places=len(NAMES)
    )
    try:
        ahead, traffic = Traffic(port, seed=1), Traffic(port, seed=SEED)

        async def drive() -> int:
            for name in preload:
                await ahead.ask(name, tokens=1)
            await traffic.one_by_one(NAMES, COUNT)
            return round(traffic.asked[0].sent * 1e6)

        began = asyncio.run(drive())
    finally:
        server.stop()
    settings = parse(f"event_logs: [{{folder: '{to}/events', pod: tiny}}]\nstore: {{folder: '{to}/data'}}\nexporter: {{port: 0}}")
    service = Service(settings, sources_of(settings, lambda: began + DAY), clock=lambda: began + DAY)
    service.tick()
    return Ran(service.store, began)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advice")


@pytest.fixture(scope="module")
def before(venv: Path, model: Path, folder: Path) -> Ran:
    """The run with too few slots."""
    return run(venv, model, folder / "before", FEW)


@pytest.fixture(scope="module")
def told(before: Ran) -> Advised:
    """What is recommended from its tables alone."""
    (found,) = advised(before.store, window_until(before.store, "1h", None, before.began + DAY), Settings())
    return found


@pytest.fixture(scope="module")
def slots(told: Advised) -> Advice:
    """The advice that is taken."""
    return next(one for one in told.recommendation.advice if one.kind is Kind.SLOTS and one.amount == MORE)


@pytest.fixture(scope="module")
def after(venv: Path, model: Path, folder: Path, slots: Advice) -> Ran:
    """The run with the slots that were advised, and the most asked for loaded ahead."""
    words = shlex.split(slots.how.partition(",")[0])
    assert words[0] == "--max-loras"
    return run(venv, model, folder / "after", int(words[1]), preload=NAMES[: FEW + MORE])


def judged_from(one: Ran, other: Ran, advice: Advice) -> int:
    """When, in the other run, the request came with which the judged time of the one began (µs UTC)."""
    assert advice.judged is not None
    number = one.requests().filter(pl.col("came") < advice.judged.start).height
    return int(other.requests()["came"][number])


def test_more_slots_are_advised(slots: Advice):
    assert slots.verdict is Verdict.ADVISED


def test_the_replay_of_the_present_is_what_the_engine_did(before: Ran, slots: Advice):
    assert before.swaps(judged_from(before, before, slots)) == pytest.approx(slots.effect.base_swaps, rel=0.02, abs=1)


def test_the_engine_then_swaps_as_often_as_was_promised(before: Ran, after: Ran, slots: Advice):
    assert after.requests()["adapter"].to_list() == before.requests()["adapter"].to_list()
    assert after.swaps(judged_from(before, after, slots)) == pytest.approx(slots.effect.swaps, rel=0.02, abs=1)
    assert 0 < (slots.effect.swaps or 0) < (slots.effect.base_swaps or 0)


def test_what_is_loaded_ahead_is_there_when_it_is_asked_for(after: Ran):
    traffic = after.store.rows(ADAPTER_EVENTS, where=pl.col("at") >= after.began).sort("at", "seq")
    loads = traffic.filter((pl.col("kind") == "load") & (pl.col("tier") == "gpu"))
    assert loads["adapter"][0] not in NAMES[: FEW + MORE]
    uses = traffic.filter((pl.col("kind") == "use") & (pl.col("at") < loads["at"][0]))
    assert set(uses["lookup"]) == {"hot"}


def test_the_file_for_the_engine_has_flags_that_it_takes(told: Advised):
    assert "--max-loras" in for_target([told], "vllm")
    assert told.recommendation.window.end - told.recommendation.window.start < 10 * MINUTE
