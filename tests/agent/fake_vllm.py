"""
A stand-in for the part of vLLM that the agent hooks: the classes, the order of their calls, and nothing else.

``FakeVllm`` makes classes of its own each time, under the module names they have in vLLM 0.32: a test hooks them without
touching the next.
"""

import asyncio
import types
from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(eq=False)
class FakeRequest:
    """Equal by name, like vLLM's LoRARequest."""

    lora_name: str
    lora_int_id: int
    lora_path: str = "/adapters/x"
    load_inplace: bool = False

    def __eq__(self, other):
        return self.lora_name == other.lora_name

    def __hash__(self):
        return hash(self.lora_name)


@dataclass
class FakeTensor:
    nbytes: int


@dataclass
class FakeWeights:
    lora_a: object
    lora_b: object


@dataclass
class FakeModel:
    id: int
    rank: int = 8
    loras: dict = field(
        default_factory=lambda: {
            "q": FakeWeights(FakeTensor(10), FakeTensor(20)),
            "kv": FakeWeights([FakeTensor(1), None], [FakeTensor(2)]),
        }
    )


@dataclass
class FakeScheduled:
    total_num_scheduled_tokens: int


@dataclass
class FakeError:
    message: str
    code: int


@dataclass
class FakeErrorResponse:
    error: FakeError


@dataclass
class FakeStats:
    arrival_time: float = 1000.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    num_generation_tokens: int = 5
    num_preemptions: int = 0


@dataclass
class FakeRequestState:
    request_id: str
    external_req_id: str
    lora_name: str | None = None
    stats: FakeStats | None = field(default_factory=FakeStats)
    prompt_len: int = 7
    num_cached_tokens: int = 0
    parent_req: object = None
    request_index: int = 0


class FakeVllm:
    """One fresh set of hookable classes; ``modules`` maps module names to them. ``disk`` holds the ids that can't be read."""

    def __init__(self, *, slot_after_copy=False):
        broken: set[int] = set()
        self.broken = broken

        class AdapterLRUCache:
            def __init__(self, capacity, deactivate_fn):
                self.capacity = capacity
                self.deactivate_fn = deactivate_fn
                self.cache = OrderedDict()
                self.pinned_items = set()

            def __contains__(self, key):
                return key in self.cache

            def __len__(self):
                return len(self.cache)

            def __setitem__(self, key, value):
                self.cache[key] = value
                self.cache.move_to_end(key)

            def __getitem__(self, key):
                return self.cache[key]

            def touch(self, key):
                self.cache.move_to_end(key)

            def pop(self, key):
                if key in self.cache:
                    value = self.cache.pop(key)
                    self.pinned_items.discard(key)
                    self._on_remove(key, value)

            def remove_oldest(self, *, remove_pinned=False):
                for key in self.cache:
                    if remove_pinned or key not in self.pinned_items:
                        self.pop(key)
                        return
                raise RuntimeError("All items are pinned, cannot remove oldest from the cache.")

            def clear(self):
                while self.cache:
                    self.remove_oldest(remove_pinned=True)

            def _on_remove(self, key, value):
                self.deactivate_fn(key)

        class LoRAModelManager:
            def __init__(self, slots, capacity, vllm_config=None):
                self.lora_slots = slots
                self.capacity = capacity
                self.lora_config = types.SimpleNamespace(max_lora_rank=16)
                self._registered_adapters = AdapterLRUCache(capacity, self.deactivate_adapter)
                self._active_adapters = AdapterLRUCache(slots, self._deactivate_adapter)
                self.lora_index_to_id = [None] * slots
                self.fail_copy = False

            def activate_adapter(self, lora_id):
                if lora_id in self._active_adapters:
                    return False
                index = self.lora_index_to_id.index(None)
                if not slot_after_copy:
                    self._active_adapters[lora_id] = None
                    self.lora_index_to_id[index] = lora_id
                if self.fail_copy:
                    raise MemoryError("copy failed")
                if slot_after_copy:
                    self._active_adapters[lora_id] = None
                    self.lora_index_to_id[index] = lora_id
                return True

            def _deactivate_adapter(self, lora_id):
                if lora_id in self.lora_index_to_id:
                    self.lora_index_to_id[self.lora_index_to_id.index(lora_id)] = None

            def deactivate_adapter(self, lora_id):
                if lora_id not in self._active_adapters:
                    return False
                self._deactivate_adapter(lora_id)
                self._active_adapters.pop(lora_id)
                return True

            def _add_adapter(self, lora):
                self._registered_adapters[lora.id] = lora

            def remove_adapter(self, adapter_id):
                self.deactivate_adapter(adapter_id)
                if adapter_id not in self._registered_adapters:
                    return False
                self._registered_adapters.pop(adapter_id)
                return True

            def remove_all_adapters(self):
                self._registered_adapters.clear()
                self._active_adapters.clear()
                self.lora_index_to_id = [None] * self.lora_slots

        class LRUCacheLoRAModelManager(LoRAModelManager):
            def add_adapter(self, lora):
                if lora.id not in self._registered_adapters:
                    self._add_adapter(lora)
                    return True
                self._registered_adapters.touch(lora.id)
                return False

            def activate_adapter(self, lora_id):
                if lora_id not in self._active_adapters and len(self._active_adapters) >= self.lora_slots:
                    self._active_adapters.remove_oldest()
                result = super().activate_adapter(lora_id)
                self._active_adapters.touch(lora_id)
                return result

            def pin_adapter(self, lora_id):
                if lora_id not in self._registered_adapters:
                    raise ValueError(f"Pinning failed. LoRA {lora_id} is not registered.")
                self._registered_adapters.pinned_items.add(lora_id)
                if lora_id not in self._active_adapters:
                    self.activate_adapter(lora_id)
                self._active_adapters.pinned_items.add(lora_id)
                return True

        class WorkerLoRAManager:
            def __init__(self, slots, capacity, vllm_config=None):
                self._adapter_manager = LRUCacheLoRAModelManager(slots, capacity, vllm_config=vllm_config)

            def _load_adapter(self, lora_request):
                if lora_request.lora_int_id in broken:
                    raise FileNotFoundError(f"No adapter found for {lora_request.lora_path}")
                return FakeModel(lora_request.lora_int_id)

            def add_dummy_lora(self, lora_request, rank):
                if lora_request.lora_int_id in self._adapter_manager._registered_adapters:
                    return False
                return self._adapter_manager.add_adapter(FakeModel(lora_request.lora_int_id, rank))

            def pin_adapter(self, adapter_id):
                return self._adapter_manager.pin_adapter(adapter_id)

            def set_active_adapters(self, requests, mapping=None):
                self._apply_adapters(requests)

            def remove_adapter(self, adapter_id):
                return self._adapter_manager.remove_adapter(adapter_id)

            def remove_all_adapters(self):
                self._adapter_manager.remove_all_adapters()

        class LRUCacheWorkerLoRAManager(WorkerLoRAManager):
            def _apply_adapters(self, lora_requests):
                for request in {r.lora_int_id: r for r in lora_requests}.values():
                    self.add_adapter(request)

            def add_adapter(self, request):
                manager = self._adapter_manager
                if request.lora_int_id not in manager._registered_adapters or request.load_inplace:
                    lora = self._load_adapter(request)
                    manager.remove_adapter(lora.id)
                    if len(manager._registered_adapters) + 1 > manager.capacity:
                        manager._registered_adapters.remove_oldest()
                    loaded = manager.add_adapter(lora)
                else:
                    manager._registered_adapters.touch(request.lora_int_id)
                    loaded = True
                manager.activate_adapter(request.lora_int_id)
                return loaded

        class Worker:
            def __init__(self, slots=2, capacity=4, vllm_config=None):
                self.lora_manager = LRUCacheWorkerLoRAManager(slots, capacity, vllm_config=vllm_config)
                self.requests = set()
                self.fail = None

            def execute_model(self, scheduler_output):
                if scheduler_output.total_num_scheduled_tokens:
                    self.lora_manager.set_active_adapters(set(self.requests))
                if self.fail is not None:
                    raise self.fail

            def sample_tokens(self, grammar_output):
                return "tokens"

            def add_lora(self, lora_request):
                return self.lora_manager.add_adapter(lora_request)

            def shutdown(self):
                pass

        class OpenAIServingModels:
            def __init__(self, engine_client):
                self.engine_client = engine_client
                self.lora_requests = {}
                self.resolvable = {}
                self.count = 0

            async def load_lora_adapter(self, request, base_model_name=None):
                if request.lora_path.startswith("/nowhere"):
                    return FakeErrorResponse(FakeError(f"No adapter found for {request.lora_path}", 404))
                self.count += 1
                self.lora_requests[request.lora_name] = FakeRequest(request.lora_name, self.count, request.lora_path)
                return "Success"

            async def unload_lora_adapter(self, request):
                if request.lora_name not in self.lora_requests:
                    return FakeErrorResponse(FakeError("cannot be found", 404))
                del self.lora_requests[request.lora_name]
                return "Success"

            async def resolve_lora(self, lora_name):
                if lora_name in self.lora_requests:
                    return self.lora_requests[lora_name]
                if lora_name not in self.resolvable:
                    return FakeErrorResponse(FakeError("does not exist", 404))
                if self.resolvable[lora_name] is None:
                    return FakeErrorResponse(FakeError("found but could not be loaded", 400))
                self.lora_requests[lora_name] = FakeRequest(lora_name, 99, self.resolvable[lora_name])
                return self.lora_requests[lora_name]

        class OutputProcessor:
            def __init__(self):
                self.request_states = {}
                self.children = {}

            def finish(self, request_id, reason):
                self._update_stats_from_finished(self.request_states.pop(request_id), reason, None)

            def _update_stats_from_finished(self, req_state, finish_reason, iteration_stats):
                return None

            def propagate_error(self, error):
                pass

            def abort_requests(self, request_ids, internal=False):
                aborted = []
                for request_id in request_ids:
                    if request_id in self.children:
                        aborted += self.abort_requests(self.children.pop(request_id), internal=True)
                    elif self.request_states.pop(request_id, None) is not None:
                        aborted.append(request_id)
                return aborted

        self.modules = {
            "vllm.lora.model_manager": _module(
                "vllm.lora.model_manager", AdapterLRUCache, LoRAModelManager, LRUCacheLoRAModelManager
            ),
            "vllm.lora.worker_manager": _module("vllm.lora.worker_manager", WorkerLoRAManager, LRUCacheWorkerLoRAManager),
            "vllm.v1.worker.gpu_worker": _module("vllm.v1.worker.gpu_worker", Worker),
            "vllm.entrypoints.openai.models.serving": _module("vllm.entrypoints.openai.models.serving", OpenAIServingModels),
            "vllm.v1.engine.output_processor": _module("vllm.v1.engine.output_processor", OutputProcessor),
        }
        self.Worker = Worker
        self.OpenAIServingModels = OpenAIServingModels
        self.OutputProcessor = OutputProcessor


def _module(name, *classes):
    module = types.ModuleType(name)
    for cls in classes:
        cls.__module__ = name
        setattr(module, cls.__name__, cls)
    return module


def step(worker, *requests, sample=True):
    """One engine step with these adapters in the batch; none stands for the step after the last request."""
    worker.requests = set(requests)
    result = worker.execute_model(FakeScheduled(8 if requests else 0))
    return worker.sample_tokens(None) if result is None and sample else result


def run(coroutine):
    """The result of a coroutine, in a loop of its own."""
    return asyncio.run(coroutine)
