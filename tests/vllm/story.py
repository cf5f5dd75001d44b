"""
One run of the real vLLM with the agent inside, from the first start over a kill to the clean end: what every test here reads.

The first server logs through the shipped logging configuration (JSON lines, and DEBUG text on its console), the second one,
after the kill, as vLLM does by itself at ``VLLM_LOGGING_LEVEL=DEBUG``. One sidecar watches both.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiny_server
from tiny_client import Asked, Traffic, call

ADAPTERS = tuple(f"adapter-{i:02d}" for i in range(12))
HOSTILE = 'a"b,c\nd\'e\\f {x="1"} 🦙 \u202eevil </script> ../../etc'
HOSTILE_2 = "../adapter-00', path '/etc"


@dataclass(frozen=True)
class Sample:
    """What the sidecar said between two moments; ``held`` are the ids in the engine's own CPU cache, None if it was not asked."""

    start: float
    end: float
    metrics: str
    state: Mapping[str, Any]
    held: frozenset[int] | None


@dataclass
class Story:
    """Everything that was seen."""

    directory: Path
    names: dict[int, str] = field(default_factory=dict)  # id → name, as ids must have been given
    asked: list[Asked] = field(default_factory=list)  # answered in peace
    broken: list[Asked] = field(default_factory=list)  # sent into the kill
    after_restart: list[Asked] = field(default_factory=list)
    quiet: dict[str, Sample] = field(default_factory=dict)
    busy: list[Sample] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)  # status of each operation
    before_kill: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    after_kill: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # boot → records, at the end
    boots: list[dict[str, Any]] = field(default_factory=list)
    exit_status: int | None = None

    @property
    def json_log(self) -> Path:
        """LoRA lines of the first server, JSON."""
        return self.directory / "first.jsonl"

    @property
    def first_log(self) -> Path:
        """Console of the first server."""
        return self.directory / "first.log"

    @property
    def second_log(self) -> Path:
        """Console of the second server."""
        return self.directory / "second.log"

    def workers(self) -> list[list[dict[str, Any]]]:
        """Records of each worker boot, in order of start."""
        boots = [records for records in self.records.values() if records[0].get("role") == "worker"]
        return sorted(boots, key=lambda records: int(records[0]["at"]))

    def apis(self) -> list[list[dict[str, Any]]]:
        """Records of each API server boot, in order of start."""
        boots = [records for records in self.records.values() if records[0].get("role") == "api"]
        return sorted(boots, key=lambda records: int(records[0]["at"]))


class Sidecar:
    """The sidecar of the same environment, on a free port."""

    def __init__(self, venv: Path, directory: Path, *flags: str) -> None:
        log = directory / "sidecar.log"
        log.unlink(missing_ok=True)
        command = [venv / "bin/python", "-m", "lora_watch.agent.main", "--log-dir", directory / "events", "--port", "0", *flags]
        self.process = tiny_server.spawn(command, log, {"PYTHONUNBUFFERED": "1"})
        end = time.monotonic() + 30
        while (match := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
            if time.monotonic() > end or not self.process.alive():
                raise RuntimeError(f"the sidecar did not start:\n{log.read_text()}")
            time.sleep(0.1)
        self.port = int(match[1])

    async def boots(self) -> list[dict[str, Any]]:
        """The boots it holds."""
        boots: list[dict[str, Any]] = json.loads((await call(self.port, "/events"))[1])["boots"]
        return boots

    async def records(self) -> dict[str, list[dict[str, Any]]]:
        """Every record of every boot."""
        out = {}
        for boot in await self.boots():
            _, body = await call(self.port, f"/events?boot={boot['boot']}&after=0&limit=100000")
            out[boot["boot"]] = [json.loads(line) for line in body.decode().split("\n") if line]
        return out

    async def sample(self, engine: int | None) -> Sample:
        """Its metrics and state now; with the engine's port also what the engine says it holds."""
        held, start = None, time.time()
        _, metrics = await call(self.port, "/metrics")
        _, state = await call(self.port, "/state")
        end = time.time()
        if engine is not None:
            _, body = await call(engine, "/collective_rpc", {"method": "list_loras"})
            held = frozenset(json.loads(body)["results"][0])
        return Sample(start, end, metrics.decode(), json.loads(state), held)


def logging_configuration(to: Path, log: Path) -> Path:
    """The shipped configuration with another file name, and DEBUG on the console too."""
    shipped = json.loads((Path(__file__).parents[2] / "lora_watch/agent/vllm-logging.json").read_text())
    shipped["handlers"]["lora_watch"]["filename"] = str(log)
    shipped["handlers"]["console"]["level"] = shipped["loggers"]["vllm"]["level"] = "DEBUG"
    to.write_text(json.dumps(shipped))
    return to


async def first_server(story: Story, port: int, sidecar: Sidecar, adapters: Path) -> None:
    """Traffic and every operation an operator has, one after another, with a sample at each quiet moment."""
    traffic = Traffic(port, seed=1)
    story.asked = traffic.asked

    async def quiet(label: str) -> None:
        await asyncio.sleep(0.3)
        story.quiet[label] = await sidecar.sample(port)

    async def watch() -> None:
        while True:
            story.busy.append(await sidecar.sample(None))
            await asyncio.sleep(1)  # the sidecar shares the processors with what is timed

    async def load(label: str, name: str, path: Path, *, expect_id: int | None = None, inplace: bool = False) -> None:
        body = {"lora_name": name, "lora_path": str(path), "load_inplace": inplace}
        story.answers[label], _ = await call(port, "/v1/load_lora_adapter", body)
        if expect_id is not None:
            story.names[expect_id] = name

    async def unload(label: str, name: str) -> None:
        story.answers[label], _ = await call(port, "/v1/unload_lora_adapter", {"lora_name": name})

    story.names.update({i + 1: name for i, name in enumerate(ADAPTERS)})
    await quiet("started")
    watcher = asyncio.create_task(watch())
    await traffic.one_by_one(ADAPTERS, 150)
    await traffic.bursts(ADAPTERS, count=8, size=12)
    await traffic.poisson(ADAPTERS, per_second=15, seconds=8)
    watcher.cancel()
    await quiet("after traffic")

    await traffic.ask("adapter-03")
    await quiet("before unregister")
    await unload("unregister", "adapter-03")
    await quiet("after unregister")
    await load("register again", "adapter-03", adapters / "adapter-03", expect_id=13)
    await traffic.ask("adapter-03")
    await quiet("after register again")

    await load("bad path", "nowhere", adapters / "nowhere")  # consumes id 14
    await quiet("after bad path")
    await load("preload", "preloaded", adapters / "adapter-05", expect_id=15)
    await quiet("after preload")
    await load("hostile", HOSTILE, adapters / "adapter-06", expect_id=16)
    await traffic.ask(HOSTILE)
    await load("hostile 2", HOSTILE_2, adapters / "adapter-07", expect_id=17)
    await traffic.ask(HOSTILE_2)
    await quiet("after hostile names")
    await asyncio.gather(
        load("twin a", "twin-a", adapters / "adapter-08", expect_id=18),
        load("twin b", "twin-b", adapters / "adapter-09", expect_id=19),
    )
    await traffic.bursts(("twin-a", "twin-b"), count=2, size=4)
    await quiet("after twins")

    await load("inplace", "adapter-04", adapters / "adapter-04", inplace=True)
    story.moments["storm begins"] = time.time()
    await traffic.ask("adapter-04", tokens=50)
    story.moments["storm ends"] = time.time()
    await quiet("after storm")
    await unload("calm down", "adapter-04")
    await load("calm again", "adapter-04", adapters / "adapter-04", expect_id=20)
    await call(port, "/collective_rpc", {"method": "remove_lora", "args": [20]})
    await quiet("after explicit removal")
    await asyncio.sleep(2)  # plain text is dated to the second: what follows at once might be taken for the removal's reason
    await traffic.bursts(ADAPTERS, count=4, size=12)
    await quiet("at the end")


async def kill(story: Story, server: tiny_server.Process, port: int, sidecar: Sidecar) -> None:
    """SIGKILL to every process of the server in the middle of traffic."""
    traffic = Traffic(port, seed=2)
    story.before_kill = await sidecar.records()
    driving = asyncio.create_task(traffic.poisson(ADAPTERS, per_second=20, seconds=4))
    await asyncio.sleep(2)
    story.moments["kill"] = time.time()
    server.kill()
    await driving
    story.broken = traffic.asked
    story.after_kill = await sidecar.records()


async def second_server(story: Story, port: int) -> None:
    """Traffic after the restart."""
    traffic = Traffic(port, seed=3)
    story.after_restart = traffic.asked
    await traffic.one_by_one(ADAPTERS, 60)
    await traffic.bursts(ADAPTERS, count=4, size=12)


def tell(venv: Path, model: Path, directory: Path, port: int) -> Story:
    """The whole run; three to four minutes on two cores."""
    story = Story(directory)
    events = directory / "events"
    events.mkdir(mode=0o700)
    modules = {name: model / "adapters" / name for name in ADAPTERS}
    agent = {"LORA_WATCH_LOG_DIR": str(events)}
    configuration = logging_configuration(directory / "logging.json", story.json_log)
    environment = {**agent, "VLLM_LOGGING_CONFIG_PATH": str(configuration)}
    sidecar = Sidecar(venv, directory)
    try:
        server = tiny_server.serve(venv, model / "model", port, story.first_log, environment, modules)
        try:
            asyncio.run(first_server(story, port, sidecar, model / "adapters"))
            asyncio.run(kill(story, server, port, sidecar))
        finally:
            server.kill()
        environment = {**agent, "VLLM_LOGGING_LEVEL": "DEBUG"}
        server = tiny_server.serve(venv, model / "model", port, story.second_log, environment, modules)
        try:
            asyncio.run(second_server(story, port))
        finally:
            story.exit_status = server.stop()
        story.boots = asyncio.run(sidecar.boots())
        story.records = asyncio.run(sidecar.records())
    finally:
        sidecar.process.stop()
    return story
