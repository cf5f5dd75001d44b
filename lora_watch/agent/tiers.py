"""The hooks around what enters and leaves a tier: reads from the disk, copies into slots, evictions."""

import functools
import inspect
from typing import Any

from lora_watch.agent.tables import Method, Tables


class TierHooks(Tables):
    """
    Loads and evictions.

    Results are trusted, side effects are not: from 0.33 on the engine fills a slot after the copy, before it did so ahead of it.
    """

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
        held, self.recorder.held = self.recorder.held, True  # a snapshot that heads the next segment must know of this load
        self._load(adapter_id, "gpu", seconds, model, ends=ends, slot=slot)
        self.gpu[adapter_id] = (slot, self.recorder.last_at)
        self.recorder.held = held
        if not held:
            self.recorder.write()

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
