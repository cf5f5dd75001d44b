"""
The hooks inside a worker: what enters and leaves the tiers, what runs, and how long steps take.

Each ``around_*`` method takes a method of the engine and returns its wrapper. The wrapper passes the engine's result and
exceptions through untouched; our own part runs guarded. Results are trusted, side effects are not: from 0.33 on the engine fills
a slot after the copy, before it did so ahead of it.

A worker runs its steps and its API calls on one thread, so the tables here need no lock.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lora_watch.agent.guard import Guard
from lora_watch.agent.lines import MAX_ERROR, MAX_NAME, WORKER, clip
from lora_watch.agent.recorder import Recorder
from lora_watch.agent.snapshots import in_parts
from lora_watch.agent.timing import WINDOW_SECONDS, StepTimes, cuda_events

Method = Callable[..., Any]


class WorkerHooks:
    """
    The tables of one worker and the hooks that keep them.

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

    # --- records ---------------------------------------------------------------------------------------------------------------

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

    def stop(self) -> None:
        """Account for the steps of the last part of a second; called before ``stop`` is written."""
        with self.guard:
            if self.enabled and self.times.count:
                self._record("steps", self.times.take(final=True), ends=1)

    def around_shutdown(self, original: Method) -> Method:
        """
        ``Worker.shutdown``: the engine ends in good order.

        Some ways to end a worker process run no exit handler, so it is said here.
        """

        @functools.wraps(original)
        def wrapper(worker: Any, *args: Any, **kwargs: Any) -> Any:
            if self.enabled:
                with self.guard:
                    self.recorder.close()
                self.enabled = False
            return original(worker, *args, **kwargs)

        return wrapper

    # --- the manager is built --------------------------------------------------------------------------------------------------

    def around_manager(self, original: Method) -> Method:
        """``LoRAModelManager.__init__``: a new engine, every slot empty. From here on this process records, if it is rank 0."""

        @functools.wraps(original)
        def wrapper(manager: Any, *args: Any, **kwargs: Any) -> None:
            original(manager, *args, **kwargs)
            with self.guard:
                self._forget()
                self.enabled = self._ranks() == (0, 0)
                if not self.enabled:
                    return
                self.slots = int(manager.lora_slots)
                self.cpu_capacity = int(manager.capacity)
                facts = self._describe(manager, args, kwargs)
                self.recorder.engine = str(facts.get("engine", "0"))
                body = {key: value for key, value in facts.items() if key != "engine"}
                self._record("start", {"role": "worker", "slots": self.slots, "cpu_capacity": self.cpu_capacity, **body})

        return wrapper

    # --- steps -----------------------------------------------------------------------------------------------------------------

    def around_execute(self, original: Method) -> Method:
        """``Worker.execute_model``: one engine step, or its first half where ``sample_tokens`` exists."""
        now = self.times.now

        @functools.wraps(original)
        def wrapper(worker: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(worker, *args, **kwargs)
            start = now()
            try:
                self._step_begins(start)
            except Exception as error:  # noqa: BLE001 - the guard, spelled out: a context manager costs a tenth of the budget
                self.guard.failed(error)
            try:
                return original(worker, *args, **kwargs)
            finally:
                try:
                    self._step_ends(start, now(), args[0] if args else kwargs.get("scheduler_output"))
                except Exception as error:  # noqa: BLE001
                    self.guard.failed(error)

        return wrapper

    def around_sample(self, original: Method) -> Method:
        """``Worker.sample_tokens``: the second half of a step (from 0.11.2 on)."""
        times, now = self.times, self.times.now

        @functools.wraps(original)
        def wrapper(worker: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(worker, *args, **kwargs)
            start = now()
            try:
                if times.make_event is not None:
                    times.start()
            except Exception as error:  # noqa: BLE001
                self.guard.failed(error)
            try:
                return original(worker, *args, **kwargs)
            finally:
                try:
                    end = now()
                    if times.make_event is None:
                        times.execute_seconds += end - start
                        times.last_end = end
                    else:
                        times.end(end - start, end, counts=False)
                except Exception as error:  # noqa: BLE001
                    self.guard.failed(error)

        return wrapper

    def _step_begins(self, start: float) -> None:
        times = self.times
        if start - times.last_end >= WINDOW_SECONDS:
            self._after_idleness(start)
        if self._fresh:
            self._settle()
        self.in_step = True
        self._applied = False
        self.recorder.held = True
        if times.make_event is not None:
            times.start()

    def _after_idleness(self, start: float) -> None:
        """The first step ever, or after a second without one: what was summed up before is recorded as of its last step."""
        times = self.times
        if times.count:
            idle = int((start - times.last_end) * 1e6)
            self._record("steps", times.take(), ends=1, at=self.recorder.now() - idle)
        times.window_start = start
        if not self._timing_known:
            self._timing_known = True
            times.make_event = cuda_events()

    def _step_ends(self, start: float, end: float, scheduled: Any) -> None:
        self.in_step = False
        times = self.times
        try:
            tokens = getattr(scheduled, "total_num_scheduled_tokens", 1)
            if not tokens and self.batch and not self._applied:
                self._requests = set()
                for adapter_id in list(self.batch):
                    self._leaves(adapter_id)
            first = not times.count
            times.end(end - start, end, counts=tokens != 0)
            if self._fresh or self._read:
                self._settle()
            if first and times.count:
                self.recorder.begin()
            if end - times.window_start >= WINDOW_SECONDS and times.count:
                self._record("steps", times.take(), ends=1)
        finally:
            self.recorder.held = False
            if self.recorder.waiting:
                self.recorder.write()

    def around_apply(self, original: Method) -> Method:
        """``_apply_adapters``: the adapters of this step's batch are made resident."""
        now = self.times.now

        @functools.wraps(original)
        def wrapper(manager: Any, requests: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.in_step:
                return original(manager, requests, *args, **kwargs)
            start = now()
            entering: Mapping[int, str] | None = None
            try:
                if not self._applied or requests != self._requests:
                    entering = self._changes(requests)
            except Exception as error:  # noqa: BLE001
                self.guard.failed(error)
            failures = self._failures
            try:
                result = original(manager, requests, *args, **kwargs)
            except Exception as error:
                with self.guard:
                    if self._failures == failures:
                        self._unplaced(requests, error)
                raise
            try:
                if entering:
                    self._enters(entering)
                elif self._fresh:
                    self._enters(self._changes(requests) or {})
                self.times.adapter(now() - start)
            except Exception as error:  # noqa: BLE001
                self.guard.failed(error)
            return result

        return wrapper

    def _changes(self, requests: Any) -> Mapping[int, str] | None:
        """Who enters the batch, and how each was found; who left is recorded. None where nothing changed."""
        first, self._applied = not self._applied, True
        if requests == self._requests and not self._fresh:
            return None
        batch = {}
        for request in requests:
            if request:
                adapter_id = request.lora_int_id
                batch[adapter_id] = self._learn(request)
        if first:  # a multimodal step applies again, for a part of the batch
            self._requests = set(requests)
            for adapter_id in [i for i in self.batch if i not in batch]:
                self._leaves(adapter_id)
        return {i: self._found(i) for i in batch if i not in self.batch}

    def _found(self, adapter_id: int) -> str:
        if adapter_id in self._fresh:
            return "cold"
        return "hot" if adapter_id in self.gpu else "warm" if adapter_id in self.cpu else "cold"

    def _learn(self, request: Any) -> str:
        name = self.names[request.lora_int_id] = clip(str(request.lora_name), MAX_NAME)
        return name

    def _enters(self, entering: Mapping[int, str]) -> None:
        for adapter_id, lookup in entering.items():
            name = self.batch[adapter_id] = self._name(adapter_id)
            slot = self.gpu.get(adapter_id, (None, 0))[0]
            self._record("use", {"adapter": name, "adapter_id": adapter_id, "slot": slot, "lookup": lookup})

    def _leaves(self, adapter_id: int) -> None:
        name = self.batch.pop(adapter_id)
        self._record("release", {"adapter": name, "adapter_id": adapter_id})

    def _unplaced(self, requests: Any, error: Exception) -> None:
        """The engine could not make room (every slot pinned, say): the first adapter without a slot is the one that failed."""
        for request in requests:
            if request and request.lora_int_id not in self.gpu and request.lora_int_id not in self._read:
                self._learn(request)
                self._load(request.lora_int_id, "gpu", None, None, error=error)
                return

    # --- loads -----------------------------------------------------------------------------------------------------------------

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

    def around_read(self, original: Method) -> Method:
        """``_load_adapter``: weights come from the disk; they are in the CPU tier only after ``_add_adapter``."""
        now = self.times.now

        @functools.wraps(original)
        def wrapper(manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(manager, request, *args, **kwargs)
            start = now()
            with self.guard:
                self._learn(request)
                if request.lora_int_id in self.cpu:
                    self._inplace.add(request.lora_int_id)
                self.dummies.discard(request.lora_int_id)
                self.recorder.begin()
            try:
                model = original(manager, request, *args, **kwargs)
            except Exception as error:
                with self.guard:
                    self._load(request.lora_int_id, "cpu", now() - start, None, ends=1, error=error)
                    self._inplace.discard(request.lora_int_id)
                    if request.lora_int_id not in self.cpu:
                        self.names.pop(request.lora_int_id, None)
                raise
            with self.guard:
                self._read[request.lora_int_id] = (now() - start, request.lora_int_id in self.cpu)
                self._fresh.add(request.lora_int_id)
            return model

        return wrapper

    def around_add(self, original: Method) -> Method:
        """``LoRAModelManager._add_adapter``: weights entered the CPU tier."""
        now = self.times.now

        @functools.wraps(original)
        def wrapper(manager: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(manager, model, *args, **kwargs)
            start = now()
            result = original(manager, model, *args, **kwargs)
            with self.guard:
                read = self._read.pop(model.id, None)
                self.cpu[model.id] = self._name(model.id)
                seconds = now() - start + (read[0] if read else 0.0)
                self._load(model.id, "cpu", seconds, model, ends=1 if read else 0)
            return result

        return wrapper

    def around_activate(self, original: Method) -> Method:
        """
        ``LoRAModelManager.activate_adapter``:

        True means that weights were copied into a slot. Runs for every adapter in every step.
        """
        now, gpu = self.times.now, self.gpu

        @functools.wraps(original)
        def short(manager: Any, lora_id: int) -> Any:
            if lora_id in gpu:
                result = original(manager, lora_id)
                if result:
                    unseen(manager, lora_id)
                return result
            return wrapper(manager, lora_id)

        def unseen(manager: Any, adapter_id: int) -> None:  # the engine loaded what we held for resident
            with self.guard:
                self._activated(manager, adapter_id, None, ends=0)

        @functools.wraps(original)
        def wrapper(manager: Any, adapter_id: int, *args: Any, **kwargs: Any) -> Any:
            if adapter_id in gpu or not self.enabled:
                result = original(manager, adapter_id, *args, **kwargs)
                if result and self.enabled:
                    unseen(manager, adapter_id)
                return result
            start = now()
            with self.guard:
                self.recorder.begin()
                self.times.adapter_begins()
            try:
                result = original(manager, adapter_id, *args, **kwargs)
            except Exception as error:
                with self.guard:
                    self._load(adapter_id, "gpu", now() - start, None, ends=1, error=error)
                raise
            with self.guard:
                self.times.adapter_ends()
                if result:
                    self._activated(manager, adapter_id, now() - start)
                else:
                    self.recorder.begin(-1)
            return result

        # passing on whatever may come costs a third of the budget for an adapter, so not where the signature is the one we know
        known = list(inspect.signature(original).parameters) == ["self", "lora_id"]
        return short if known else wrapper

    def _activated(self, manager: Any, adapter_id: int, seconds: float | None, *, ends: int = 1) -> None:
        slots = manager.lora_index_to_id
        slot = slots.index(adapter_id) if adapter_id in slots else None
        models = getattr(manager._registered_adapters, "cache", None)  # a view: asking the cache itself would touch it
        model = models.get(adapter_id) if models is not None else None
        self._load(adapter_id, "gpu", seconds, model, ends=ends, slot=slot)
        self.gpu[adapter_id] = (slot, self.recorder.last_at)

    def _settle(self) -> None:
        """An operation is over: what was read from the disk and entered no tier failed."""
        for adapter_id, (seconds, _) in list(self._read.items()):
            self._load(adapter_id, "cpu", seconds, None, ends=1, error=RuntimeError("read, but did not enter the CPU cache"))
        self._read.clear()
        self._fresh.clear()
        self._inplace.clear()

    # --- evictions -------------------------------------------------------------------------------------------------------------

    def around_remove(self, original: Method) -> Method:
        """``AdapterLRUCache._on_remove``: weights left a tier; which one, the cache's ``deactivate_fn`` tells."""

        @functools.wraps(original)
        def wrapper(cache: Any, key: int, *args: Any, **kwargs: Any) -> Any:
            result = original(cache, key, *args, **kwargs)
            if self.enabled:
                with self.guard:
                    tier = "gpu" if cache.deactivate_fn.__name__ == "_deactivate_adapter" else "cpu"
                    self._evicted(key, tier)
            return result

        return wrapper

    def _evicted(self, adapter_id: int, tier: str) -> None:
        fields: dict[str, Any] = {"tier": tier, "adapter": self._name(adapter_id), "adapter_id": adapter_id}
        if tier == "gpu":
            fields["slot"] = self.gpu.pop(adapter_id, (None, 0))[0]
        else:
            self.cpu.pop(adapter_id, None)
        dummy = adapter_id in self.dummies
        fields["reason"] = "warmup" if dummy else self._removing or "lru"
        fields["in_step"] = self.in_step
        self._record("evict", fields)
        if adapter_id in self.pinned:
            self.pinned.discard(adapter_id)
            self._record("unpin", {"adapter": self._name(adapter_id), "adapter_id": adapter_id, "ok": True})
        if tier == "cpu":
            self.dummies.discard(adapter_id)
            if adapter_id not in self.batch and adapter_id not in self._fresh:
                self.names.pop(adapter_id, None)

    def around_manager_removal(self, original: Method) -> Method:
        """``LoRAModelManager.remove_adapter``: the engine drops one adapter; ahead of an in-place load, that is why."""

        @functools.wraps(original)
        def wrapper(manager: Any, adapter_id: int, *args: Any, **kwargs: Any) -> Any:
            inplace = adapter_id in self._read
            return self._while_removing("inplace" if inplace else "explicit", original, manager, adapter_id, *args, **kwargs)

        return wrapper

    def around_worker_removal(self, original: Method) -> Method:
        """``WorkerLoRAManager.remove_adapter``: an operator's removal, or the plain (not LRU) manager making room in a step."""

        @functools.wraps(original)
        def wrapper(manager: Any, *args: Any, **kwargs: Any) -> Any:
            return self._while_removing("lru" if self.in_step else "explicit", original, manager, *args, **kwargs)

        return wrapper

    def around_remove_all(self, original: Method) -> Method:
        """``LoRAModelManager.remove_all_adapters``: after warm-up, and when the base weights are replaced."""

        @functools.wraps(original)
        def wrapper(manager: Any, *args: Any, **kwargs: Any) -> Any:
            return self._while_removing("restart", original, manager, *args, **kwargs)

        return wrapper

    def _while_removing(self, reason: str, original: Method, *args: Any, **kwargs: Any) -> Any:
        before = self._removing
        self._removing = before or reason
        try:
            return original(*args, **kwargs)
        finally:
            self._removing = before

    # --- API calls -------------------------------------------------------------------------------------------------------------

    def around_dummy(self, original: Method) -> Method:
        """``add_dummy_lora``: the engine's own warm-up; its ids are those of real adapters to come."""

        @functools.wraps(original)
        def wrapper(manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self.enabled:
                with self.guard:
                    if request.lora_int_id not in self.cpu:
                        self._learn(request)
                        self.dummies.add(request.lora_int_id)
            return original(manager, request, *args, **kwargs)

        return wrapper

    def around_preload(self, original: Method) -> Method:
        """``Worker.add_lora``: an API call loads an adapter ahead of any request."""

        @functools.wraps(original)
        def wrapper(worker: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(worker, request, *args, **kwargs)
            failures, before = self._failures, self._calling
            self._calling = "preload"
            try:
                return original(worker, request, *args, **kwargs)
            except Exception as error:
                with self.guard:
                    if self._failures == failures:
                        self._unplaced((request,), error)
                raise
            finally:
                with self.guard:
                    self._settle()
                self._calling = before

        return wrapper

    def around_pin(self, original: Method) -> Method:
        """``WorkerLoRAManager.pin_adapter``: exempt from eviction until it is removed."""

        @functools.wraps(original)
        def wrapper(manager: Any, adapter_id: int, *args: Any, **kwargs: Any) -> Any:
            if not self.enabled:
                return original(manager, adapter_id, *args, **kwargs)
            before, self._calling = self._calling, "preload"
            try:
                result = original(manager, adapter_id, *args, **kwargs)
            except Exception as error:
                with self.guard:
                    text = clip(f"{type(error).__name__}: {error}", MAX_ERROR)
                    body = {"adapter": self._name(adapter_id), "adapter_id": adapter_id, "ok": False, "error": text}
                    self._record("pin", body)
                raise
            finally:
                self._calling = before
            with self.guard:
                self.pinned.add(adapter_id)
                self._record("pin", {"adapter": self._name(adapter_id), "adapter_id": adapter_id, "ok": bool(result)})
            return result

        return wrapper


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
