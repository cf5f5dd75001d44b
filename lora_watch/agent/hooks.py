"""
The hooks inside a worker: what enters and leaves the tiers (tiers.py), what runs and how long steps take (steps.py), and here the
engine's beginning and end and the calls of its API.

Each ``around_*`` method takes a method of the engine and returns its wrapper. The wrapper passes the engine's result and
exceptions through untouched; our own part runs guarded.
"""

import functools
from typing import Any

from lora_watch.agent.lines import MAX_ERROR, clip
from lora_watch.agent.steps import StepHooks
from lora_watch.agent.tables import Method
from lora_watch.agent.tiers import TierHooks


class WorkerHooks(StepHooks, TierHooks):
    """Every hook of one worker, over one set of tables."""

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
