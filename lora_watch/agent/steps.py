"""The hooks around an engine step: what runs in it, how long it takes, and how much of that goes to adapters."""

import functools
from collections.abc import Mapping
from typing import Any

from lora_watch.agent.tables import Method, Tables
from lora_watch.agent.timing import WINDOW_SECONDS, cuda_events


class StepHooks(Tables):
    """Steps, and the adapters that enter and leave the running batch."""

    def stop(self) -> None:
        """Account for the steps of the last part of a second; called before ``stop`` is written."""
        with self.guard:
            if self.enabled and self.times.count:
                self._record("steps", self.times.take(final=True), ends=1)

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

    def _enters(self, entering: Mapping[int, str]) -> None:
        for adapter_id, lookup in entering.items():
            name = self.batch[adapter_id] = self._name(adapter_id)
            slot = self.gpu.get(adapter_id, (None, 0))[0]
            self._record("use", {"adapter": name, "adapter_id": adapter_id, "slot": slot, "lookup": lookup})

    def _leaves(self, adapter_id: int) -> None:
        name = self.batch.pop(adapter_id)
        self._record("release", {"adapter": name, "adapter_id": adapter_id})
