"""
The entry point of ``vllm.general_plugins``: vLLM calls ``register`` in every process it starts, before any engine object exists.

Nothing of vLLM is imported here: a module that is already there is hooked at once, any other when it is imported (loading the
worker's modules takes a second, and the API server needs few of them).
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from lora_watch.agent.guard import Guard
from lora_watch.agent.hooks import WorkerHooks
from lora_watch.agent.lines import MAX_NAME, clip
from lora_watch.agent.recorder import Place, Recorder
from lora_watch.agent.server_hooks import ServerHooks
from lora_watch.agent.timing import cuda_events

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
Hooks = Mapping[str, Sequence[tuple[str, str, Around]]]
"""Module: (class, method, what to put around it). What a version lacks is passed over."""

_MARK = "__lora_watch__"


def register() -> None:
    """
    Hook this process. Safe to call again, in any process, with or without LoRA; never raises.

    ``LORA_WATCH_AGENT=off`` makes it do nothing.
    """
    guard = Guard()
    with guard:
        if os.environ.get("LORA_WATCH_AGENT", "").strip().lower() in {"off", "0", "false", "no"}:
            return
        if any(isinstance(finder, HookFinder) for finder in sys.meta_path):
            return
        install(hooks_of(Place.from_environment(os.environ), guard), guard)


def hooks_of(place: Place, guard: Guard) -> Hooks:
    """Every hook, by the module it belongs to; the recorder behind them writes to ``place``."""
    recorder = Recorder(place, lambda: [*worker.snapshot(), *server.snapshot()])
    worker = WorkerHooks(recorder, guard, ranks=parallel_ranks, describe=describe)
    server = ServerHooks(recorder, guard, version=engine_version)
    recorder.before_stop = worker.stop
    return hook_table(worker, server)


def hook_table(worker: WorkerHooks, server: ServerHooks) -> Hooks:
    """What is hooked, and where each class lived in the versions 0.9.2 … 0.33.0."""
    cache = (("AdapterLRUCache", "_on_remove", worker.around_remove),)
    manager = (
        *cache,
        ("LoRAModelManager", "__init__", worker.around_manager),
        ("LoRAModelManager", "activate_adapter", worker.around_activate),
        ("LoRAModelManager", "_add_adapter", worker.around_add),
        ("LoRAModelManager", "remove_adapter", worker.around_manager_removal),
        ("LoRAModelManager", "remove_all_adapters", worker.around_remove_all),
    )
    worker_manager = (
        ("WorkerLoRAManager", "_load_adapter", worker.around_read),
        ("WorkerLoRAManager", "_apply_adapters", worker.around_apply),
        ("LRUCacheWorkerLoRAManager", "_apply_adapters", worker.around_apply),
        ("WorkerLoRAManager", "remove_adapter", worker.around_worker_removal),
        ("WorkerLoRAManager", "add_dummy_lora", worker.around_dummy),
        ("WorkerLoRAManager", "pin_adapter", worker.around_pin),
    )
    engine = (
        ("Worker", "execute_model", worker.around_execute),
        ("Worker", "sample_tokens", worker.around_sample),
        ("Worker", "add_lora", worker.around_preload),
        ("Worker", "shutdown", worker.around_shutdown),
    )
    # CPUWorker and others inherit from Worker; where one overrides a method it calls super() or stands for itself
    cpu = tuple(("CPUWorker", method, around) for _, method, around in engine)
    models = (
        ("OpenAIServingModels", "__init__", server.around_models),
        ("OpenAIServingModels", "load_lora_adapter", server.around_load),
        ("OpenAIServingModels", "unload_lora_adapter", server.around_unload),
        ("OpenAIServingModels", "resolve_lora", server.around_resolve),
    )
    output = (
        ("OutputProcessor", "_update_stats_from_finished", server.around_finished),
        ("OutputProcessor", "abort_requests", server.around_abort),
        ("OutputProcessor", "propagate_error", server.around_failure),
    )
    return {
        "vllm.adapter_commons.models": cache,
        "vllm.lora.models": manager,
        "vllm.lora.model_manager": manager,
        "vllm.lora.worker_manager": worker_manager,
        "vllm.v1.worker.gpu_worker": engine,
        "vllm.v1.worker.cpu_worker": cpu,
        "vllm.entrypoints.openai.serving_models": models,
        "vllm.entrypoints.openai.models.serving": models,
        "vllm.v1.engine.output_processor": output,
    }


def install(hooks: Hooks, guard: Guard, modules: Mapping[str, ModuleType] | None = None) -> None:
    """Hook the ``modules`` that are loaded (default: this process's), and have the others hooked when they are imported."""
    loaded = sys.modules if modules is None else modules
    sys.meta_path.insert(0, HookFinder(hooks, guard))
    for name in hooks:
        if name in loaded:
            hook_module(loaded[name], hooks[name], guard)


def hook_module(module: ModuleType, hooks: Sequence[tuple[str, str, Around]], guard: Guard) -> None:
    """
    Put ``hooks`` around the methods that classes of ``module`` define themselves.

    An inherited method is left alone (its owner is hooked), so is one that is hooked already, and a class that was only imported
    into the module and belongs to another.
    """
    for class_name, method, around in hooks:
        with guard:
            owner = getattr(module, class_name, None)
            original = vars(owner).get(method) if isinstance(owner, type) and owner.__module__ == module.__name__ else None
            if not callable(original) or hasattr(original, _MARK):
                continue
            wrapper = around(original)
            setattr(wrapper, _MARK, True)
            setattr(owner, method, wrapper)


class HookFinder(importlib.abc.MetaPathFinder):
    """Lets the ordinary finders find a module, and has it hooked once its code has run."""

    def __init__(self, hooks: Hooks, guard: Guard) -> None:
        self._hooks = hooks
        self._guard = guard

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec the next finder has for ``fullname``, with our hooks behind its loader; None for all other modules."""
        if fullname not in self._hooks:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                with self._guard:
                    self._hook_after(spec)
                return spec
        return None

    def _hook_after(self, spec: importlib.machinery.ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            hook_module(module, self._hooks[spec.name], self._guard)

        loader.exec_module = exec_module  # on this one loader: it is made for this module alone


def parallel_ranks() -> tuple[int, int]:
    """(tensor, pipeline) parallel rank of this process; (0, 0) where vLLM has set up no groups."""
    state = sys.modules.get("vllm.distributed.parallel_state")
    if state is None or getattr(state, "_TP", None) is None:
        return 0, 0
    pipeline = getattr(state, "_PP", None)
    return int(state.get_tensor_model_parallel_rank()), 0 if pipeline is None else int(pipeline.rank_in_group)


def engine_version() -> str | None:
    """The version vLLM says it has, or None."""
    return getattr(sys.modules.get("vllm.version"), "__version__", None) or getattr(sys.modules.get("vllm"), "__version__", None)


def describe(manager: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker's ``start`` record says beside its capacities; a fact that this version does not give is None."""
    config = kwargs.get("vllm_config") or next((arg for arg in args if hasattr(arg, "model_config")), None)
    if config is None and (module := sys.modules.get("vllm.config")) is not None:
        current = getattr(module, "get_current_vllm_config_or_none", None)
        config = current() if current is not None else None
    model = getattr(config, "model_config", None)
    names = getattr(model, "served_model_name", None)
    name = names[0] if isinstance(names, list) and names else names or getattr(model, "model", None)
    parallel = getattr(config, "parallel_config", None)
    return {
        "engine": str(getattr(parallel, "data_parallel_index", None) or getattr(parallel, "data_parallel_rank", None) or 0),
        "max_rank": getattr(getattr(manager, "lora_config", None), "max_lora_rank", None),
        "vllm": engine_version(),
        "model": None if name is None else clip(str(name), MAX_NAME // 2),
        "pid": os.getpid(),
        "clock": "host" if cuda_events() is None else "cuda",
    }
