"""The hooks inside an API server: which names it accepts, and one record for each finished request."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lora_watch.agent.guard import Guard
from lora_watch.agent.lines import API, MAX_ERROR, MAX_NAME, MAX_PATH, clip
from lora_watch.agent.recorder import Recorder
from lora_watch.agent.snapshots import in_parts

Method = Callable[..., Any]
_CLOSE = 50e-6
"""Seconds within which two clocks are read at the same time; a thread that is put aside in between takes milliseconds."""
_TRIES = 4


class ServerHooks:
    """
    The registry of one API server and the hooks that record it.

    ``monotonic`` is the clock of the engine core, which stamps a request's times on the same host.
    """

    def __init__(
        self,
        recorder: Recorder,
        guard: Guard,
        *,
        version: Callable[[], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recorder = recorder
        self.guard = guard
        self._version = version
        self._monotonic = monotonic
        self.registered: dict[str, tuple[int | None, str | None]] = {}  # by the name as clients send it
        self._aborting = False
        self._failed: set[Any] = set()  # recorded as failed, and perhaps aborted later

    def _record(self, kind: str, fields: Mapping[str, Any]) -> None:
        self.recorder.record(kind, fields, role=API)

    def snapshot(self) -> Iterator[Mapping[str, Any]]:
        """The bodies of the ``snapshot`` records that say which names are registered, in as many parts as keep a line short."""
        rows = [("registered", [clip(name, MAX_NAME), *known]) for name, known in self.registered.items()]
        if rows:
            yield from in_parts(rows, ("registered",))

    # --- names -----------------------------------------------------------------------------------------------------------------

    def around_models(self, original: Method) -> Method:
        """``OpenAIServingModels.__init__``: an API server is up."""

        @functools.wraps(original)
        def wrapper(models: Any, *args: Any, **kwargs: Any) -> None:
            original(models, *args, **kwargs)
            with self.guard:
                client = kwargs.get("engine_client") or (args[0] if args else None)
                parallel = getattr(getattr(client, "vllm_config", None), "parallel_config", None)
                if self.recorder.boot == "" and int(getattr(parallel, "data_parallel_size", 1)) > 1:
                    self.recorder.engine = ""  # one server for several engines: a request does not say which ran it
                self.registered = {}
                self._record("start", {"role": "api", "vllm": self._version(), "pid": os.getpid()})

        return wrapper

    def around_load(self, original: Method) -> Method:
        """``load_lora_adapter``, which static ``--lora-modules`` pass as well."""

        @functools.wraps(original)
        async def wrapper(models: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            result = await original(models, request, *args, **kwargs)
            with self.guard:
                path = getattr(request, "lora_path", None)
                inplace = bool(getattr(request, "load_inplace", False))
                self._registers(models, request.lora_name, path, result, inplace=inplace)
            return result

        return wrapper

    def around_resolve(self, original: Method) -> Method:
        """
        ``resolve_lora``: a name nobody registered is looked for at its first use.

        An unknown name is no event: any client can send one.
        """

        @functools.wraps(original)
        async def wrapper(models: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            known = True
            with self.guard:
                known = name in models.lora_requests
            result = await original(models, name, *args, **kwargs)
            if not known:
                with self.guard:
                    path = getattr(result, "lora_path", None)
                    if path is not None or _status(result) != 404:
                        self._registers(models, name, path, result, inplace=False)
            return result

        return wrapper

    def _registers(self, models: Any, name: str, path: str | None, result: Any, *, inplace: bool) -> None:
        ok = isinstance(result, str) or hasattr(result, "lora_int_id")
        request = models.lora_requests.get(name) if ok else None
        adapter_id = getattr(request, "lora_int_id", None)
        path = None if path is None else clip(str(path), MAX_PATH)
        fields: dict[str, Any] = {
            "adapter": clip(str(name), MAX_NAME),
            "adapter_id": adapter_id,
            "path": path,
            "ok": ok,
            "inplace": inplace,
        }
        if ok:
            self.registered[str(name)] = (adapter_id, path)
        else:
            fields["error"] = _error(result)
        self._record("register", fields)

    def around_unload(self, original: Method) -> Method:
        """``unload_lora_adapter``: the name is withdrawn; nothing is evicted."""

        @functools.wraps(original)
        async def wrapper(models: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            adapter_id = None
            with self.guard:
                adapter_id = getattr(models.lora_requests.get(request.lora_name), "lora_int_id", None)
            result = await original(models, request, *args, **kwargs)
            with self.guard:
                ok = isinstance(result, str)
                fields: dict[str, Any] = {"adapter": clip(str(request.lora_name), MAX_NAME), "adapter_id": adapter_id, "ok": ok}
                if ok:
                    self.registered.pop(str(request.lora_name), None)
                else:
                    fields["error"] = _error(result)
                self._record("unregister", fields)
            return result

        return wrapper

    # --- requests --------------------------------------------------------------------------------------------------------------

    def around_finished(self, original: Method) -> Method:
        """``OutputProcessor._update_stats_from_finished``: once for every request that ran to an end."""

        @functools.wraps(original)
        def wrapper(processor: Any, state: Any, finish_reason: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(processor, state, finish_reason, *args, **kwargs)
            finally:
                with self.guard:
                    self._finished(state, str(finish_reason))

        return wrapper

    def around_abort(self, original: Method) -> Method:
        """``OutputProcessor.abort_requests``: what a client gave up never reaches ``_update_stats_from_finished``."""

        @functools.wraps(original)
        def wrapper(processor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._aborting:  # it calls itself for the samples of a parent
                return original(processor, *args, **kwargs)
            before: dict[Any, Any] = {}
            with self.guard:
                before = dict(processor.request_states)
            self._aborting = True
            try:
                return original(processor, *args, **kwargs)
            finally:
                self._aborting = False
                with self.guard:
                    for key, state in before.items():
                        if key in processor.request_states:
                            continue
                        if key in self._failed:
                            self._failed.discard(key)
                        else:
                            self._finished(state, "abort")

        return wrapper

    def around_failure(self, original: Method) -> Method:
        """``OutputProcessor.propagate_error``: the engine died, and with it every request in flight."""

        @functools.wraps(original)
        def wrapper(processor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(processor, *args, **kwargs)
            finally:
                with self.guard:
                    for key, state in list(processor.request_states.items()):
                        if key not in self._failed:
                            self._failed.add(key)
                            self._finished(state, "error")

        return wrapper

    def _clocks(self) -> tuple[int, float]:
        """
        The wall clock (µs UTC), and by how many seconds it is ahead of the engine's.

        One is read between two looks at the other, again where these are far apart; the nearest pair counts.
        """
        best: tuple[float, int, float] | None = None
        for _ in range(_TRIES):
            before = self._monotonic()
            now = self.recorder.now()
            after = self._monotonic()
            if best is None or after - before < best[0]:
                best = (after - before, now, now / 1e6 - (before + after) / 2)
            if best[0] <= _CLOSE:
                break
        assert best is not None
        return best[1:]

    def _finished(self, state: Any, finish_reason: str) -> None:
        stats = getattr(state, "stats", None)
        now, offset = self._clocks()

        def wall(name: str) -> int | None:
            stamp = getattr(stats, name, None)
            return round((stamp + offset) * 1e6) if stamp else None  # 0.0 is vLLM's "not yet"

        arrival = getattr(stats, "arrival_time", None)
        ended = wall("last_token_ts") if finish_reason not in {"abort", "error"} else None
        name = getattr(state, "lora_name", None)
        fields: dict[str, Any] = {
            "request_id": clip(str(getattr(state, "external_req_id", None) or state.request_id), 500),
            "adapter": None if name is None else clip(str(name), MAX_NAME),
            "arrived": round(arrival * 1e6) if arrival else None,
            "queued": wall("queued_ts"),
            "scheduled": wall("scheduled_ts"),
            "first_token": wall("first_token_ts"),
            "finished": min(ended, now) if ended is not None else now,
            "prompt_tokens": getattr(state, "prompt_len", None),
            "generated_tokens": _generated(state, stats),
            "cached_tokens": getattr(state, "num_cached_tokens", None),
            "preemptions": getattr(stats, "num_preemptions", None),
            "finish_reason": finish_reason,
        }
        if getattr(state, "parent_req", None) is not None:
            fields["sample"] = getattr(state, "request_index", None)
        self._record("request", fields)


def _generated(state: Any, stats: Any) -> int | None:
    if stats is not None:
        count: int | None = getattr(stats, "num_generation_tokens", None)
        return count
    detokenizer = getattr(state, "detokenizer", None)
    return None if detokenizer is None else int(detokenizer.num_output_tokens())


def _status(result: Any) -> int | None:
    """HTTP status in an error answer; it moved into ``error`` in later versions."""
    code = getattr(getattr(result, "error", None), "code", getattr(result, "code", None))
    return int(code) if isinstance(code, int) else None


def _error(result: Any) -> str:
    message = getattr(getattr(result, "error", None), "message", getattr(result, "message", None))
    return clip(str(message if message is not None else result), MAX_ERROR)
