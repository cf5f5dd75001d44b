"""
Event log v1 from the log of an unmodified vLLM: the channel for people who can install nothing into the engine.

Two forms of the same lines are read: JSON lines of the shipped logging configuration (``vllm-logging.json``, to be named by
``VLLM_LOGGING_CONFIG_PATH``), and the plain text vLLM prints with ``VLLM_LOGGING_LEVEL=DEBUG``. Only four texts matter:

* ``Adding lora. Model id: 3, int id: 3`` (worker, DEBUG): weights entered the CPU cache;
* ``Activating LoRA. int id: 3, slot index: 0`` (worker, DEBUG): weights entered a slot;
* ``Removing adapter int id: 3`` (worker, DEBUG): weights left the CPU cache **or** a slot, the text does not say which;
* ``Loaded new LoRA adapter: name 'legal', path '…'`` and its kin (API server, INFO): a name was accepted or withdrawn.

What the lines can tell is *observed*; what they cannot is absent: no durations, no ranks, no sizes, no uses, no failed loads.
A load in place of a registered name that is not in the CPU cache looks like any other load, and is called ``demand``.

**Which tier a removal is about.** Removals are held until the next line of that worker. Followed by ``Adding``: the CPU
cache; followed by ``Activating``: the slot that is being filled. The same id twice in a row left both tiers, the slot first:
the CPU cache's own eviction logs itself before it empties the slot, but is done after it.

A removal that has nothing close behind it, or comes while the CPU cache has room, was an operator's: reason ``explicit``.

**Which name an id has.** Ids are given in order of registration, a failed load consumes one, and no line holds both. A name
accepted by the API server belongs to the oldest id that was activated for the first time and has no name yet; a name that is
registered already was reloaded in place and keeps its id; a name withdrawn and registered again gets a new id while the old
one may sit in its slot. Records of an id without a name wait for it, five seconds of log time at most; then the adapter is
called ``id:<n>``. Adapters that come and go before the first name are the engine's own warm-up dummies (their ids collide
with real ones): reason ``warmup``.

**Where a boot begins.** A new worker process, a new start line of the server, or ``Adding`` of id 1 while id 1 is there.
Boots and seqs depend on nothing but the lines, so reading a file again gives the same records.
"""

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lora_watch.agent.debug_lines import Line, has_header, parse

Record = dict[str, Any]

HOLD = 5_000_000
"""µs of log time that a record waits for the name of its id."""
ADJACENT = 250_000
"""µs between a removal and the line it makes room for, at most: in the engine a few instructions lie between them, but the
process may be out of the processor. An operator's removal is an API call of its own. In plain text, dated to the second: one."""
SNAPSHOT_EVERY = 20_000
"""Records of a boot between two snapshots, so that the state is known where a log has lost its beginning."""
WARMUP_HOLD = 600_000_000
"""The same before the first name of a boot: profiling and graph capture run between a dummy's load and its removal."""
LONGEST_NAME_LINES = 64
"""Lines of plain text over which a name with line breaks may stretch."""

_ADDING = re.compile(r"Adding lora\. Model id: \d{1,18}, int id: (\d{1,18})")
_ACTIVATING = re.compile(r"Activating LoRA\. int id: (\d{1,18}), slot index: (\d{1,9})")
_REMOVING = re.compile(r"Removing adapter int id: (\d{1,18})")
_LOADED = re.compile(r"Loaded new LoRA adapter: name '(.*)', path '(.*)'", re.DOTALL)
_RESOLVED = re.compile(r"Resolved and loaded LoRA adapter '(.*)' using \S+", re.DOTALL)
_REMOVED = re.compile(r"Removed LoRA adapter: name '(.*)'", re.DOTALL)
_BEGINS = ("Loaded new LoRA adapter: name '", "Resolved and loaded LoRA adapter '", "Removed LoRA adapter: name '")
_ARGUMENTS = "non-default args: "
_CAPACITY = re.compile(r"'(max_loras|max_cpu_loras)': (\d{1,9})")
_RANK = re.compile(r"(?:TP|PP|rank=|VllmWorker-)(\d+)")
_ENGINE = re.compile(r"DP(\d+)")


@dataclass(slots=True)
class _Boot:
    """One process: its identity, and the records that wait for their turn."""

    boot: str
    engine: str
    waiting: list[Record] = field(default_factory=list)
    seq: int = 0
    last_at: int = 0


@dataclass(slots=True)
class _Worker(_Boot):
    """The tiers of one worker as far as the lines tell."""

    gpu: dict[int, int] = field(default_factory=dict)  # slot → id
    since: dict[int, int] = field(default_factory=dict)  # slot → µs of that load
    cpu: set[int] = field(default_factory=set)
    removals: list[tuple[int, int]] = field(default_factory=list)  # (at, id) whose tier is not known yet
    fresh: int | None = None  # id that was added and not yet activated: its weights come from disk
    reason: str = "demand"  # of the load under way
    snapshot_due: int = SNAPSHOT_EVERY
    whole: bool = False  # the log was read from this worker's first load


@dataclass(slots=True)
class _Server:
    """What one run of the server shares: its registry. Ids are given by the API server, so every worker sees the same."""

    slots: int | None = None
    cpu_capacity: int | None = None
    names: dict[int, str] = field(default_factory=dict)
    registered: dict[str, int] = field(default_factory=dict)
    unnamed: dict[int, int] = field(default_factory=dict)  # id → until when its records wait
    activated: list[int] = field(default_factory=list)  # unnamed ids in order of first activation
    highest: int = 0
    workers: dict[int, _Worker] = field(default_factory=dict)  # by pid
    frontends: dict[int, _Boot] = field(default_factory=dict)


class Converter:
    """Log lines in, records of event log v1 out, as soon as they are certain. One converter reads one log from its beginning."""

    def __init__(self, *, now: int, utc_offset_seconds: int = 0) -> None:
        self.now = now
        self._offset = utc_offset_seconds
        self._server = _Server()
        self._open: tuple[Line, int] | None = None  # an API line whose name has a line break, and how many lines it has so far

    @property
    def boots(self) -> set[str]:
        """The boots of the run that is under way: all others have ended."""
        return {boot.boot for boot in (*self._server.workers.values(), *self._server.frontends.values())}

    def feed(self, text: str) -> list[Record]:
        """The records that this line made certain; none for a line that is not one of ours."""
        line = parse(text, now=self.now, utc_offset_seconds=self._offset)
        if line is None and self._open is not None and not has_header(text):
            line = self._open[0]._replace(message=text.rstrip("\n"))  # of a formatter that doesn't repeat the header
        if line is None:
            return []
        out: list[Record] = []
        if line.worker:
            self._on_worker(line, out)
        else:
            self._on_api(line, out)
        self._release(line.at, out)
        return out

    def flush(self) -> list[Record]:
        """The records still held, taken as they stand: the log has been quiet, or is at its end."""
        out: list[Record] = []
        for worker in self._server.workers.values():
            self._settle(worker, None, None)
        self._server.unnamed.clear()
        self._server.activated.clear()
        self._release(0, out)
        return out

    # --- the worker's lines ---------------------------------------------------------------------------------------------------

    def _on_worker(self, line: Line, out: list[Record]) -> None:
        rank = _RANK.search(line.process)
        if rank and int(rank[1]) > 0:
            return
        if match := _ADDING.fullmatch(line.message):
            worker = self._worker(line, out, int(match[1]))
            self._adding(worker, line.at, int(match[1]))
        elif match := _ACTIVATING.fullmatch(line.message):
            worker = self._worker(line, out, None)
            self._activating(worker, line.at, int(match[1]), int(match[2]))
        elif match := _REMOVING.fullmatch(line.message):
            worker = self._worker(line, out, None)
            self._settle_old(worker, line.at)
            worker.removals.append((line.at, int(match[1])))

    def _worker(self, line: Line, out: list[Record], adding: int | None) -> _Worker:
        """The worker of this line; a new run of the server begins where the lines say so."""
        worker = self._server.workers.get(line.pid)
        engine = match[1] if (match := _ENGINE.search(line.process)) else "0"
        if worker is not None:
            gone = {adapter_id for _, adapter_id in worker.removals}
            if not (adding == 1 and 1 in worker.cpu and 1 not in gone):
                return worker
        if worker is not None or any(other.engine == engine for other in self._server.workers.values()):
            self._restart(out)
        boot = str(uuid.uuid5(uuid.NAMESPACE_OID, f"lora_watch vllm log worker {line.pid} {line.at}"))
        worker = _Worker(boot, engine, whole=adding == 1)
        self._server.workers[line.pid] = worker
        start = {"kind": "start", "role": "worker", "slots": self._server.slots, "cpu_capacity": self._server.cpu_capacity}
        self._say(worker, line.at, {**start, "pid": line.pid, "clock": "none"})
        return worker

    def _restart(self, out: list[Record]) -> None:
        """Everything known of the run before is said, then forgotten; the capacities stand until the next start line."""
        out += self.flush()
        self._server = _Server(self._server.slots, self._server.cpu_capacity)

    def _adding(self, worker: _Worker, at: int, adapter_id: int) -> None:
        self._settle_old(worker, at)
        in_place = any(removed == adapter_id for _, removed in worker.removals)
        self._settle(worker, adapter_id, None)
        if adapter_id in worker.cpu:
            self._gap(worker, at)
            self._forget(worker, adapter_id)
        self._meet(worker, at, adapter_id)
        worker.cpu.add(adapter_id)
        worker.fresh = adapter_id
        worker.reason = "inplace" if in_place else "demand"
        self._load(worker, at, adapter_id, tier="cpu", from_tier="disk")

    def _activating(self, worker: _Worker, at: int, adapter_id: int, slot: int) -> None:
        self._settle_old(worker, at)
        self._settle(worker, None, slot)
        if (worker.whole and adapter_id not in worker.cpu) or slot in worker.gpu or adapter_id in worker.gpu.values():
            self._gap(worker, at)
            for held in [s for s, resident in worker.gpu.items() if s == slot or resident == adapter_id]:
                del worker.gpu[held]
            self._snapshot(worker, at)
        self._meet(worker, at, adapter_id)
        if adapter_id in self._server.unnamed and adapter_id not in self._server.activated:
            self._server.activated.append(adapter_id)
        worker.cpu.add(adapter_id)
        worker.gpu[slot], worker.since[slot] = adapter_id, at
        cold = worker.fresh == adapter_id
        worker.reason = worker.reason if cold else "demand"
        self._load(worker, at, adapter_id, tier="gpu", from_tier="disk" if cold else "cpu", slot=slot)
        worker.fresh = None

    def _meet(self, worker: _Worker, at: int, adapter_id: int) -> None:
        """An id higher than all before is new: its name is to come."""
        server = self._server
        if adapter_id > server.highest:
            server.highest = adapter_id
            server.unnamed[adapter_id] = at + (HOLD if server.names or not worker.whole else WARMUP_HOLD)

    def _settle_old(self, worker: _Worker, at: int) -> None:
        """Removals that lie too far back to have made room for what comes now were an operator's."""
        if worker.removals:
            whole_seconds = at % 1_000_000 == 0 and worker.removals[-1][0] % 1_000_000 == 0
            if at - worker.removals[-1][0] > (1_000_000 if whole_seconds else ADJACENT):
                self._settle(worker, None, None)

    def _settle(self, worker: _Worker, adding: int | None, slot: int | None) -> None:
        """Say what the removals held so far were about, now that the line after them is known (None: none followed)."""
        removals, worker.removals = worker.removals, []
        tiers: tuple[str, ...]
        i = 0
        while i < len(removals):
            adapter_id = removals[i][1]
            twice = i + 1 < len(removals) and removals[i + 1][1] == adapter_id
            last = i + 1 == len(removals)
            if twice:
                tiers = ("gpu", "cpu")
                reason = self._why(worker, adapter_id, adding)
            elif slot is not None and last and worker.gpu.get(slot, adapter_id) == adapter_id:
                tiers, reason = ("gpu",), "lru"
            else:
                tiers, reason = ("cpu",), self._why(worker, adapter_id, adding)
            dummy = reason == "explicit" and adapter_id in self._server.unnamed and not self._server.names
            for tier, (when, _) in zip(tiers, removals[i:], strict=False):
                self._evict(worker, when, adapter_id, tier, "warmup" if dummy else reason)
            if dummy:
                self._dismiss(worker, adapter_id)
            i += len(tiers)

    def _why(self, worker: _Worker, adapter_id: int, adding: int | None) -> str:
        """Why an adapter left the CPU cache ahead of ``adding``: the cache makes room only where it is full."""
        if adding == adapter_id:
            return "inplace"
        capacity = self._server.cpu_capacity
        full = capacity is None or not worker.whole or len(worker.cpu) >= capacity
        return "lru" if adding is not None and full else "explicit"

    def _evict(self, worker: _Worker, at: int, adapter_id: int, tier: str, reason: str) -> None:
        record: Record = {"kind": "evict", "tier": tier, "adapter": None, "adapter_id": adapter_id}
        if tier == "gpu":
            slot = next((s for s, resident in worker.gpu.items() if resident == adapter_id), None)
            record["slot"] = slot
            if slot is not None:
                del worker.gpu[slot]
        else:
            worker.cpu.discard(adapter_id)
        self._say(worker, at, {**record, "reason": reason})

    def _dismiss(self, worker: _Worker, adapter_id: int) -> None:
        """The engine's own dummy: tag what it did, and forget its id, which a real adapter will bear."""
        for record in worker.waiting:
            if record.get("adapter_id") == adapter_id:
                record.update(adapter=f"id:{adapter_id}", reason="warmup")
                record.pop("in_step", None)
        server = self._server
        server.unnamed.pop(adapter_id, None)
        server.activated = [unnamed for unnamed in server.activated if unnamed != adapter_id]
        server.highest = max(server.unnamed, default=0)

    def _load(self, worker: _Worker, at: int, adapter_id: int, **fields: Any) -> None:
        reason = worker.reason
        record: Record = {"kind": "load", **fields, "adapter": None, "adapter_id": adapter_id, "reason": reason, "ok": True}
        if reason == "demand":
            record["in_step"] = True
        self._say(worker, at, record)

    def _gap(self, worker: _Worker, at: int) -> None:
        """A line is missing: what follows contradicts what was known."""
        self._say(worker, at, {"kind": "lost", "count": 1, "reason": "gap"})

    def _forget(self, worker: _Worker, adapter_id: int) -> None:
        worker.cpu.discard(adapter_id)
        for slot in [s for s, resident in worker.gpu.items() if resident == adapter_id]:
            del worker.gpu[slot]
        self._snapshot(worker, worker.waiting[-1]["at"])

    def _snapshot(self, worker: _Worker, at: int) -> None:
        gpu = [[slot, adapter_id, worker.since[slot]] for slot, adapter_id in sorted(worker.gpu.items())]
        self._say(worker, at, {"kind": "snapshot", "gpu": gpu, "cpu": sorted(worker.cpu)})

    # --- the API server's lines -----------------------------------------------------------------------------------------------

    def _on_api(self, line: Line, out: list[Record]) -> None:
        if self._open is not None:
            line = self._joined(line)
        if line.message.startswith(_ARGUMENTS):
            self._start(line, out)
        elif match := _LOADED.fullmatch(line.message):
            self._accepted(line, match[1], match[2])
        elif match := _RESOLVED.fullmatch(line.message):
            self._accepted(line, match[1], None)
        elif match := _REMOVED.fullmatch(line.message):
            adapter_id = self._server.registered.pop(match[1], None)
            self._registry(line, {"kind": "unregister", "adapter": match[1], "adapter_id": adapter_id, "ok": True})
        elif line.message.startswith(_BEGINS):
            lines = self._open[1] + 1 if self._open else 1
            self._open = (line, lines) if lines < LONGEST_NAME_LINES else None
            return
        self._open = None

    def _joined(self, line: Line) -> Line:
        """A name with line breaks stretches over lines of the same process and moment, each with the header of the first."""
        first, _ = self._open or (line, 0)
        if (line.pid, line.at) != (first.pid, first.at) or line.message.startswith((*_BEGINS, _ARGUMENTS)):
            return line
        return first._replace(message=first.message.removesuffix("\r") + "\n" + line.message)

    def _start(self, line: Line, out: list[Record]) -> None:
        """The server's start line: a run begins. What it does not name has vLLM's default: one slot, a CPU cache of as many."""
        if self._server.workers or self._server.names:
            self._restart(out)
        if "'enable_lora': True" in line.message:
            # adapter names come before the capacities and may hold anything: the last mention counts
            capacity = {key: int(value) for key, value in _CAPACITY.findall(line.message)}
            self._server.slots = capacity.get("max_loras", 1)
            self._server.cpu_capacity = capacity.get("max_cpu_loras", self._server.slots)

    def _accepted(self, line: Line, name: str, path: str | None) -> None:
        server = self._server
        inplace = name in server.registered
        adapter_id = server.registered.get(name)
        if not inplace:
            adapter_id = server.activated.pop(0) if server.activated else None
        if adapter_id is not None:
            server.names[adapter_id] = name
            if server.unnamed.pop(adapter_id, None) is not None:
                for worker in server.workers.values():
                    for record in worker.waiting:
                        if record.get("adapter_id") == adapter_id and record["kind"] == "load" and record["reason"] == "demand":
                            record.update(reason="preload", in_step=False)
            server.registered[name] = adapter_id
        record = {"kind": "register", "adapter": name, "adapter_id": adapter_id, "path": path, "ok": True, "inplace": inplace}
        self._registry(line, record)

    def _registry(self, line: Line, record: Record) -> None:
        frontend = self._server.frontends.get(line.pid)
        if frontend is None:
            name = f"lora_watch vllm log api {line.pid} {line.at}"
            frontend = self._server.frontends[line.pid] = _Boot(str(uuid.uuid5(uuid.NAMESPACE_OID, name)), "0")
            self._say(frontend, line.at, {"kind": "start", "role": "api", "pid": line.pid})
        self._say(frontend, line.at, record)

    # --- out ------------------------------------------------------------------------------------------------------------------

    def _say(self, boot: _Boot, at: int, record: Record) -> None:
        boot.last_at = max(boot.last_at, at)
        boot.waiting.append({"at": boot.last_at, **record})

    def _release(self, at: int, out: list[Record]) -> None:
        """Move out what waits for nothing any more, in order."""
        server = self._server
        for adapter_id in [i for i, until in server.unnamed.items() if until < at]:
            del server.unnamed[adapter_id]
            server.activated = [unnamed for unnamed in server.activated if unnamed != adapter_id]
        for boot in [*server.workers.values(), *server.frontends.values()]:
            ready = next((i for i, record in enumerate(boot.waiting) if self._waits(record)), len(boot.waiting))
            for record in boot.waiting[:ready]:
                boot.seq += 1
                out.append(self._finished(boot, record))
            del boot.waiting[:ready]
            if isinstance(boot, _Worker) and not boot.waiting and not boot.removals and boot.seq >= boot.snapshot_due:
                boot.snapshot_due = boot.seq + SNAPSHOT_EVERY
                self._snapshot(boot, boot.last_at)

    def _waits(self, record: Record) -> bool:
        return (
            record["kind"] in ("load", "evict")
            and record.get("reason") != "warmup"
            and record["adapter_id"] in self._server.unnamed
        )

    def _finished(self, boot: _Boot, record: Record) -> Record:
        head = {"v": 1, "boot": boot.boot, "seq": boot.seq, "at": record.pop("at"), "engine": boot.engine, "tp_rank": 0}
        if record["kind"] in ("load", "evict") and record["adapter"] is None:
            record["adapter"] = self._name(record["adapter_id"])
        if record["kind"] == "lost":
            record.update(first=boot.seq, last=boot.seq)
        if record["kind"] == "snapshot":
            record["gpu"] = [[slot, self._name(i), i, since] for slot, i, since in record["gpu"]]
            record["cpu"] = [[self._name(i), i] for i in record["cpu"]]
            record.update(pinned=[], slots=self._server.slots, cpu_capacity=self._server.cpu_capacity)
        return {**head, **record}

    def _name(self, adapter_id: int) -> str:
        return self._server.names.get(adapter_id, f"id:{adapter_id}")


def convert(lines: Iterable[str], *, now: int, utc_offset_seconds: int = 0) -> Iterator[Record]:
    """
    Records of event log v1 from a whole log, in the order in which each boot had them.

    ``now`` (µs UTC) and ``utc_offset_seconds`` date plain text lines, which carry neither year nor zone; JSON lines need neither.
    Lines that are not vLLM's LoRA lines are passed over; a missing line shows as a `lost` record where what follows contradicts.
    """
    converter = Converter(now=now, utc_offset_seconds=utc_offset_seconds)
    for line in lines:
        yield from converter.feed(line)
    yield from converter.flush()
