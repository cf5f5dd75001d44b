"""
What a worker's hooks know of its tiers, and how they say it: the tables, and the records that more than one hook writes.

A worker runs its steps and its API calls on one thread, so the tables here need no lock.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lora_watch.agent.guard import Guard
from lora_watch.agent.lines import MAX_ERROR, MAX_NAME, WORKER, clip
from lora_watch.agent.recorder import Recorder
from lora_watch.agent.snapshots import in_parts
from lora_watch.agent.timing import StepTimes

Method = Callable[..., Any]


class Tables:
    """
    The tables of one worker.

    ``ranks`` says (tensor, pipeline) parallel rank once the engine knows them: only (0, 0) records, since the other ranks do the
    same at the same time, and a later pipeline stage has slots of its own that we do not follow.
    """

    def __init__(
        self,
        recorder: Recorder,
        guard: Guard,
        *,
        ranks: Callable[[], tuple[int, int]],
        describe: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Mapping[str, Any]],
        times: StepTimes | None = None,
    ) -> None:
        self.recorder = recorder
        self.guard = guard
        self.times = times or StepTimes()
        self._ranks = ranks
        self._describe = describe
        self.enabled = False
        self.in_step = False
        self.gpu: dict[int, tuple[int | None, int]] = {}  # id: slot, loaded_at; one object for good, see around_activate
        self._forget()

    def _forget(self) -> None:
        self.gpu.clear()
        self.cpu: dict[int, str] = {}
        self.pinned: set[int] = set()
        self.names: dict[int, str] = {}
        self.batch: dict[int, str] = {}
        self.dummies: set[int] = set()
        self.slots: int | None = None
        self.cpu_capacity: int | None = None
        self._requests: set[Any] = set()
        self._applied = False
        self._read: dict[int, tuple[float, bool]] = {}  # id: seconds on the disk, in place; read but not yet in the CPU cache
        self._fresh: set[int] = set()  # came from the disk in this operation
        self._inplace: set[int] = set()
        self._failures = 0
        self._calling: str | None = None  # reason of the API call that runs
        self._removing: str | None = None  # reason of the removal that runs
        self._timing_known = False

    def _record(self, kind: str, fields: Mapping[str, Any], *, ends: int = 0, at: int | None = None) -> None:
        self.recorder.record(kind, fields, ends=ends, at=at, role=WORKER)

    def _name(self, adapter_id: int) -> str:
        return self.names.get(adapter_id) or f"id:{adapter_id}"

    def _reason(self, adapter_id: int) -> str:
        if adapter_id in self.dummies:
            return "warmup"
        if adapter_id in self._inplace:
            return "inplace"
        return self._calling or ("demand" if self.in_step else "preload")

    def snapshot(self) -> Iterator[Mapping[str, Any]]:
        """
        The bodies of the ``snapshot`` records that say how the tiers are, in as many parts as keep a line short.

        Part 1 replaces what was known; further parts add to it. Warm-up dummies are left out.
        """
        if not self.enabled:
            return
        rows: list[tuple[str, list[Any]]] = [
            *(("gpu", [slot, self._name(i), i, at]) for i, (slot, at) in self.gpu.items() if i not in self.dummies),
            *(("cpu", [name, i]) for i, name in self.cpu.items() if i not in self.dummies),
            *(("pinned", [self._name(i), i]) for i in sorted(self.pinned)),
            *(("in_batch", [name, i]) for i, name in self.batch.items()),
        ]
        for body in in_parts(rows, ("gpu", "cpu", "pinned", "in_batch")):
            yield {**body, "slots": self.slots, "cpu_capacity": self.cpu_capacity}

    def _learn(self, request: Any) -> str:
        name = self.names[request.lora_int_id] = clip(str(request.lora_name), MAX_NAME)
        return name

    def _load(
        self,
        adapter_id: int,
        tier: str,
        seconds: float | None,
        model: Any,
        *,
        ends: int = 0,
        error: Exception | None = None,
        slot: int | None = None,
    ) -> None:
        cold = tier == "cpu" or adapter_id in self._fresh or adapter_id not in self.cpu
        fields: dict[str, Any] = {
            "tier": tier,
            "from_tier": "disk" if cold else "cpu",
            "adapter": self._name(adapter_id),
            "adapter_id": adapter_id,
        }
        if tier == "gpu":
            fields["slot"] = slot
        fields["seconds"] = None if seconds is None else round(seconds, 7)
        if model is not None:
            fields["rank"] = getattr(model, "rank", None)
            fields["bytes"] = weight_bytes(model)
        fields |= {"reason": self._reason(adapter_id), "in_step": self.in_step, "ok": error is None}
        if error is not None:
            self._failures += 1
            fields["error"] = clip(f"{type(error).__name__}: {error}", MAX_ERROR)
        self._record("load", fields, ends=ends)

    def _unplaced(self, requests: Any, error: Exception) -> None:
        """The engine could not make room (every slot pinned, say): the first adapter without a slot is the one that failed."""
        for request in requests:
            if request and request.lora_int_id not in self.gpu and request.lora_int_id not in self._read:
                self._learn(request)
                self._load(request.lora_int_id, "gpu", None, None, error=error)
                return

    def _settle(self) -> None:
        """An operation is over: what was read from the disk and entered no tier failed."""
        for adapter_id, (seconds, _) in list(self._read.items()):
            self._load(adapter_id, "cpu", seconds, None, ends=1, error=RuntimeError("read, but did not enter the CPU cache"))
        self._read.clear()
        self._fresh.clear()
        self._inplace.clear()


def weight_bytes(model: Any) -> int | None:
    """
    Bytes of an adapter's weights as the engine holds them: the sum over its tensors, or None where the model has another shape.

    A module's ``lora_a`` and ``lora_b`` are a tensor or, where modules are packed, a list with gaps.
    """
    layers = getattr(model, "loras", None)
    if not isinstance(layers, dict):
        return None
    total = 0
    for layer in layers.values():
        for weight in (getattr(layer, "lora_a", None), getattr(layer, "lora_b", None)):
            for tensor in weight if isinstance(weight, list | tuple) else (weight,):
                total += int(getattr(tensor, "nbytes", 0) or 0)
    return total
