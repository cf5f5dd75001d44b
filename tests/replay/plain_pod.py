"""One pod, written for reading: lists in order of use, a queue, every microsecond looked at. What the kernels must agree with."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class PlainPod:
    """vLLM's two LRU tiers and its waiting queue; ``gpu`` and ``cpu`` hold adapters from the least to the most recently used."""

    slots: int
    cpu_capacity: int
    seats: int = 256
    pins: Sequence[int] = ()
    warm_load: int = 0
    cold_load: int = 0
    gpu: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    ready: dict[int, int] = field(default_factory=dict)
    running: list[tuple[int, int, int]] = field(default_factory=list)  # end, request, adapter
    waiting: list[tuple[int, int, int]] = field(default_factory=list)  # request, adapter, hold
    told: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # lookup, victim, start, end

    def __post_init__(self) -> None:
        self.gpu, self.cpu = sorted(self.pins), sorted(self.pins)

    def evictable(self, tier: list[int]) -> list[int]:
        busy = {adapter for _, _, adapter in self.running}
        return [adapter for adapter in tier if adapter not in busy and adapter not in self.pins]

    def touch(self, adapter: int) -> None:
        for tier in (self.gpu, self.cpu):
            tier.remove(adapter)
            tier.append(adapter)

    def start(self, request: int, adapter: int, hold: int, now: int) -> bool:
        if len(self.running) >= self.seats:
            return False
        lookup, victim, end = -1, -1, now + hold
        if adapter >= 0:
            lookup = 0 if adapter in self.gpu else 1 if adapter in self.cpu else 2
            if lookup and len(self.gpu) == self.slots and not self.evictable(self.gpu):
                return False
            if lookup == 2 and len(self.cpu) == self.cpu_capacity:
                dropped = self.evictable(self.cpu)[0]
                self.cpu.remove(dropped)
                if dropped in self.gpu:
                    victim = dropped
                    self.gpu.remove(dropped)
            if lookup and len(self.gpu) == self.slots:
                victim = self.evictable(self.gpu)[0]
                self.gpu.remove(victim)
            if lookup == 2:
                self.cpu.append(adapter)
            if lookup:
                self.gpu.append(adapter)
                self.ready[adapter] = now + (self.warm_load, self.cold_load)[lookup - 1]
            end = max(now, self.ready.get(adapter, now)) + hold
            self.touch(adapter)
        if end > now:
            self.running.append((end, request, adapter))
        self.told[request] = (lookup, victim, now, end)
        return True

    def admit(self, now: int) -> None:
        for item in list(self.waiting):
            if self.start(*item, now):
                self.waiting.remove(item)

    def end(self, now: int) -> None:
        for item in sorted(self.running):
            if item[0] == now:
                self.running.remove(item)
                if item[2] >= 0:
                    self.touch(item[2])

    def play(self, adapter: Sequence[int], at: Sequence[int], hold: Sequence[int]) -> list[tuple[int, int, int, int]]:
        now, coming = 0, list(zip(range(len(adapter)), adapter, hold, at, strict=True))
        while coming or self.waiting or self.running:
            self.end(now)
            self.admit(now)
            while coming and coming[0][3] == now:
                self.waiting.append(coming.pop(0)[:3])
                self.admit(now)
            now += 1
        return [self.told[request] for request in range(len(adapter))]
