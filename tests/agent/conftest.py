"""What the tests of the agent share: a clock that goes when told, a log in a temporary folder, and a hooked engine."""

import json
from dataclasses import dataclass, field

import pytest
from agent.fake_vllm import FakeVllm

from lora_watch.agent.guard import Guard
from lora_watch.agent.hooks import WorkerHooks
from lora_watch.agent.log import LogReader
from lora_watch.agent.plugin import hook_module, hook_table
from lora_watch.agent.recorder import SEGMENT_BYTES, Place, Recorder
from lora_watch.agent.server_hooks import ServerHooks
from lora_watch.agent.timing import StepTimes


@dataclass
class Clock:
    """Seconds that pass only when told."""

    seconds: float = 1000.0

    def wall(self):
        return round(self.seconds * 1e6)

    def monotonic(self):
        return self.seconds


@dataclass
class HookedEngine:
    """A fake vLLM with the agent inside."""

    directory: object
    clock: Clock = field(default_factory=Clock)
    fake: FakeVllm = field(default_factory=FakeVllm)
    ranks: tuple = (0, 0)
    recorder: object = None
    segment_bytes: int = SEGMENT_BYTES

    def __post_init__(self):
        self.guard = Guard()
        snapshot = lambda: [*self.worker.snapshot(), *self.server.snapshot()]  # noqa: E731
        place = Place(self.directory, segment_bytes=self.segment_bytes)
        self.recorder = self.recorder or Recorder(place, snapshot, clock=self.clock.wall, monotonic=self.clock.monotonic)
        self.worker = WorkerHooks(
            self.recorder,
            self.guard,
            ranks=lambda: self.ranks,
            describe=lambda *_: {"engine": "0", "model": "tiny", "vllm": "0.32.0"},
            times=StepTimes(self.clock.monotonic),
        )
        self.server = ServerHooks(self.recorder, self.guard, version=lambda: "0.32.0", monotonic=self.clock.monotonic)
        self.recorder.before_stop = self.worker.stop
        for name, hooks in hook_table(self.worker, self.server).items():
            if name in self.fake.modules:
                hook_module(self.fake.modules[name], hooks, self.guard)

    def records(self):
        """What was written so far, in order."""
        return read_all(self.directory)

    def short(self, *, after=0):
        """Each record as a few words: ``load gpu disk a 0 demand``."""
        fields = ("kind", "tier", "from_tier", "adapter", "slot", "lookup", "reason")
        rows = [" ".join(str(r[name]) for name in fields if r.get(name) is not None) for r in self.records() if r["seq"] > after]
        return [row + (" failed" if r.get("ok") is False else "") for row, r in zip(rows, self.records()[after:], strict=True)]


def read_all(directory):
    """Every record of every log in ``directory``, as a reader in the writer's own process gets them."""
    reader = LogReader(directory, alive=lambda _path: True)
    return [json.loads(line) for boot in reader.boots() for line in reader.read(boot.boot)[0]]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path):
    return HookedEngine(tmp_path)
