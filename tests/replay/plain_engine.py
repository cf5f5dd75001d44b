"""One engine that works in steps, written for reading: lists in order of use and true sets. What ``batches`` must agree with."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Name:
    """An adapter with a hash of its own."""

    adapter: int
    hashed: int

    def __hash__(self) -> int:
        return self.hashed


@dataclass
class PlainEngine:
    """``gpu`` and ``cpu`` hold adapters from the least to the most recently used, ``slot`` the place of those in ``gpu``."""

    slots: int
    cpu_capacity: int
    hashes: Sequence[int]
    seats: int = 256
    pins: Sequence[int] = ()
    warm_load: int = 0
    cold_load: int = 0
    gpu: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    slot: dict[int, int] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    batch: list[int] = field(default_factory=list)  # adapters in the order in which they entered
    running: list[tuple[int, int, int]] = field(default_factory=list)  # end, request, adapter
    waiting: list[tuple[int, int, int]] = field(default_factory=list)  # request, adapter, hold
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)  # lookup, slot, victim, cpu_victim, start, end
    reloads: list[tuple[int, ...]] = field(default_factory=list)  # at, adapter, lookup, slot, victim, cpu_victim

    def __post_init__(self) -> None:
        self.gpu, self.cpu = sorted(self.pins), sorted(self.pins)
        self.slot = {adapter: place for place, adapter in enumerate(self.gpu)}

    def oldest(self, tier: list[int]) -> int:
        return next(adapter for adapter in tier if adapter not in self.pins)

    def evict(self, adapter: int) -> int:
        self.gpu.remove(adapter)
        del self.slot[adapter]
        return adapter

    def load(self, adapter: int, now: int) -> tuple[int, int, int, int]:
        lookup, victim, cpu_victim = 1, -1, -1
        if adapter not in self.cpu:
            lookup = 2
            if len(self.cpu) == self.cpu_capacity:
                cpu_victim = self.oldest(self.cpu)
                self.cpu.remove(cpu_victim)
                if cpu_victim in self.gpu:
                    victim = self.evict(cpu_victim)
            self.cpu.append(adapter)
        if len(self.gpu) == self.slots:
            victim = self.evict(self.oldest(self.gpu))
        self.gpu.append(adapter)
        self.slot[adapter] = next(place for place in range(self.slots) if place not in self.slot.values())
        self.ready[adapter] = now + (self.warm_load, self.cold_load)[lookup - 1]
        return lookup, self.slot[adapter], victim, cpu_victim

    def admit(self) -> list[tuple[int, int, int]]:
        started: list[tuple[int, int, int]] = []
        for item in list(self.waiting):
            adapter = item[1]
            taken = {*self.batch, *self.pins}
            if len(self.running) + len(started) < self.seats and (adapter < 0 or adapter in taken or len(taken) < self.slots):
                started.append(item)
                self.waiting.remove(item)
                if adapter >= 0 and adapter not in self.batch:
                    self.batch.append(adapter)
        return started

    def step(self, now: int) -> None:
        before = list(self.batch)
        started = self.admit()
        loaded: dict[int, tuple[int, int, int, int]] = {}
        names = [Name(adapter, self.hashes[adapter]) for adapter in self.batch]
        for adapter in [name.adapter for name in set(names)]:
            if adapter not in self.gpu:
                loaded[adapter] = self.load(adapter, now)
                if adapter in before:
                    self.reloads.append((now, adapter, *loaded.pop(adapter)))
            for tier in (self.gpu, self.cpu):
                tier.remove(adapter)
                tier.append(adapter)
        for request, adapter, hold in started:
            hot = (0, self.slot[adapter], -1, -1) if adapter >= 0 else (-1, -1, -1, -1)
            end = max(now, self.ready.get(adapter, now)) + hold
            self.told[request] = (*loaded.pop(adapter, hot), now, end)
            self.running.append((end, request, adapter))

    def play(self, adapter: Sequence[int], at: Sequence[int], hold: Sequence[int]) -> list[tuple[int, ...]]:
        now, coming = 0, list(zip(range(len(adapter)), adapter, hold, at, strict=True))
        while coming or self.waiting or self.running:
            ended = [item for item in self.running if item[0] == now]
            came = [item for item in coming if item[3] == now]
            self.running = [item for item in self.running if item not in ended]
            self.batch = [a for a in self.batch if any(item[2] == a for item in self.running)]
            coming = coming[len(came) :]
            self.waiting += [item[:3] for item in came]
            if ended or came:
                self.step(now)
            else:
                now += 1
        return [self.told[request] for request in range(len(adapter))]
