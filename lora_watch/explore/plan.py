"""What ``lora-watch plan`` shows before anything is deployed: sizes, slots that fit, expected misses, cost of loads, the bill."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from lora_watch.config import CostSettings
from lora_watch.diagnose.words import count as counted
from lora_watch.diagnose.words import listed, named, percent, span
from lora_watch.errors import LoraWatchError
from lora_watch.recommend import sizing
from lora_watch.recommend.sizing import Memory, Misses, Phase
from lora_watch.sources import adapter_files
from lora_watch.sources.model_files import AdapterTensors, ModelShape, read_adapter, read_model

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}
"""Precisions by name."""
KV_SHARE = 0.9
"""Slots that leave so much of the KV cache are cheap: the plan takes no more of it unless told."""
FEW_MISSES = 0.01
"""A miss ratio that is low enough not to pay for more slots."""
MOST_ADAPTERS = 100_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What to plan for, as the command line says it. Absent is None or empty; ``shares`` beat ``zipf``."""

    model: str
    adapters: tuple[Path, ...] = ()
    ranks: tuple[int, ...] = ()
    modules: tuple[str, ...] = ("q", "v")
    count: int | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv_dtype: str = "fp16"
    gpu_memory: float = 80.0
    gpus: int = 1
    gpus_per_pod: int | None = None
    requests_per_second: float = 1.0
    zipf: float = 1.0
    shares: tuple[float, ...] = ()
    slots: int | None = None
    cpu_slots: int | None = None
    pod_requests_per_second: float | None = None
    utilization: float = sizing.UTILIZATION
    workspace: float = sizing.WORKSPACE_GB
    disk: float = sizing.DISK_GB_PER_SECOND


@dataclass(frozen=True, slots=True)
class Sized:
    """
    One adapter, or one kind of them: ``bytes`` are its file's where ``from_file`` (None: it has no safetensors file), else what
    rank and modules come to. ``refused`` says why vLLM will not load it.
    """

    name: str
    rank: int
    modules: tuple[str, ...]
    parameters: int | None
    bytes: int | None
    from_file: bool
    adapters: int = 1
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A number of slots per pod and what comes of it; misses by pods that share adapters out, and by round robin."""

    slots: int
    bytes: int
    kv_tokens: int
    kv_share: float
    affinity: Misses
    round_robin: Misses
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """GPUs and money a month, shared base against a pod for every adapter. Money is None without a price."""

    shared_gpus: int
    separate_gpus: int
    shared: float | None
    separate: float | None
    currency: str
    pod_requests_per_second: float
    capacity_assumed: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Everything a plan says. ``rank`` is that of the slots, ``slot_bytes`` what one takes on each GPU, ``slot_bytes_only`` if the
    engine is told the modules in use (``only``). ``fit`` slots leave no KV cache at all, ``cheap`` leave ``KV_SHARE`` of it.
    ``largest`` is the bytes of the largest adapter, which ``phases`` are of.
    """

    model: ModelShape
    parameters: int
    weight_bytes: int
    adapters: tuple[Sized, ...]
    count: int
    rank: int
    slot_bytes: int
    slot_bytes_only: int
    only: tuple[str, ...]
    pods: int
    gpus_per_pod: int
    memory: Memory
    fit: int
    cheap: int
    choices: tuple[Choice, ...]
    cpu_slots: int
    largest: int
    phases: tuple[Phase, ...]
    bill: Bill
    requests_per_second: float
    notes: tuple[str, ...] = field(default=())

    @property
    def chosen(self) -> Choice:
        """The number of slots that the plan is about."""
        return next(choice for choice in self.choices if choice.chosen)


def make(asked: Asked, settings: CostSettings) -> Plan:
    """The plan. SourceRejected where a file can't be read, LoraWatchError where something asked for is impossible."""
    model = model_of(asked.model)
    try:
        adapters, modules = _adapters(asked, model)
        rank = sizing.slot_rank(max(one.rank for one in adapters))
    except ValueError as error:
        raise LoraWatchError(f"planning adapters: {error}") from None
    shares = _shares(asked, sum(one.adapters for one in adapters))
    weights = sizing.weight_bytes(model, None if asked.weights is None else BITS[asked.weights])
    bits = BITS[asked.dtype]
    options: dict[str, Any] = {
        "gpu_gb": asked.gpu_memory,
        "bits": bits,
        "weights": weights,
        "kv_bits": BITS[asked.kv_dtype],
        "utilization": asked.utilization,
        "workspace_gb": asked.workspace,
    }
    size = asked.gpus_per_pod or sizing.fewest_gpus(model, rank, asked.gpus, **options)
    if size is None:
        raise LoraWatchError(
            f"{model.name} does not fit: its weights are {_bytes(weights)}, and {counted(asked.gpus, 'GPU')} of "
            f"{asked.gpu_memory:g} GB leave no room for one slot and {sizing.LEAST_TOKENS:,} tokens of KV cache; "
            "give more --gpus, or --weights int4"
        )
    if asked.gpus < size:
        raise LoraWatchError(f"a pod of {counted(size, 'GPU')} needs as many: --gpus {asked.gpus} is less")
    room = sizing.memory(model, rank, tensor_parallel=size, **options)
    if room.tokens(0) == 0:
        raise LoraWatchError(f"{model.name} does not fit on {counted(size, 'GPU')} of {asked.gpu_memory:g} GB each")
    pods = asked.gpus // size
    fit, cheap = room.slots(0.0), room.slots(KV_SHARE)
    if asked.slots is not None and asked.slots > fit:
        raise LoraWatchError(f"{asked.slots} slots of {_bytes(room.slot)} do not fit: at most {fit} do, with no KV cache left")
    total = len(shares)
    cpu_slots = total if asked.cpu_slots is None else asked.cpu_slots
    chosen = asked.slots or _enough(shares, asked.requests_per_second, pods, max(min(cheap, fit, total), 1), cpu_slots)
    grid = sorted({one for one in (1, 2, 4, 8, 16, 32, 64, min(cheap, total), total) if 1 <= one <= min(fit, total)} | {chosen})
    choices = tuple(_choice(one, room, shares, asked.requests_per_second, pods, cpu_slots, chosen=one == chosen) for one in grid)
    largest = max(one.bytes or sizing.adapter_bytes(model, one.rank, sizing.LAYER, bits) for one in adapters)
    return Plan(
        model,
        sizing.model_parameters(model),
        weights,
        adapters,
        total,
        rank,
        room.slot,
        sizing.slot_bytes(model, rank, bits, size, modules),
        sizing.slot_modules(model, modules),
        pods,
        size,
        room,
        fit,
        cheap,
        choices,
        cpu_slots,
        largest,
        sizing.load_phases(largest, disk=asked.disk),
        _bill(asked, settings, shares, pods, size),
        asked.requests_per_second,
        tuple(_notes(asked, model, adapters, size, pods, modules)),
    )


def shares_of(text: str | None) -> tuple[float, ...]:
    """
    Shares as they stand on a command line; none where absent. LoraWatchError where one is no number.

    >>> shares_of("60, 30,10")
    (60.0, 30.0, 10.0)
    """
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise LoraWatchError(f"--shares are numbers with commas between them, not {text[:60]!r}") from None


def model_of(name: str) -> ModelShape:
    """A preset by name, else the model that the path is. SourceRejected where it is neither."""
    preset = sizing.PRESETS.get(name.lower())
    if preset is not None:
        return preset
    try:
        return read_model(Path(name))
    except LoraWatchError as error:
        raise type(error)(f"{error} ({', '.join(sizing.PRESETS)})") from None


def _adapters(asked: Asked, model: ModelShape) -> tuple[tuple[Sized, ...], tuple[str, ...]]:
    """The adapters, and the modules of a layer or beside them that they change. ValueError says what is wrong."""
    if asked.adapters:
        if asked.ranks:
            raise ValueError("give --adapter or --rank, not both")
        found = [_from_file(read_adapter(folder)) for folder in _folders(asked.adapters)]
        more = (asked.count or len(found)) - len(found)
        if more < 0:
            raise ValueError(f"--count {asked.count} is less than the {len(found)} adapters that were found")
        if more:
            most = max(found, key=lambda one: one.bytes or 0)
            found.append(
                Sized(f"{more} more like {most.name}", most.rank, most.modules, most.parameters, most.bytes, False, more)
            )
        known = {name for one in found for name in one.modules if name in (*sizing.LAYER, *sizing.EMBEDDING)}
        return tuple(found), sizing.module_names(known)
    modules = sizing.module_names(asked.modules)
    if not modules:
        raise ValueError("--modules names none")
    ranks = asked.ranks or (16,)
    total = asked.count or len(ranks)
    if total < len(ranks):
        raise ValueError(f"--count {total} adapters can't have {len(ranks)} ranks")
    kinds = []
    for number, rank in enumerate(ranks):
        size = sizing.adapter_bytes(model, rank, modules, BITS[asked.dtype])
        parameters = sizing.adapter_parameters(model, rank, modules)
        times = total // len(ranks) + (number < total % len(ranks))
        kinds.append(Sized(f"rank {rank}", rank, modules, parameters, size, False, times))
    return tuple(kinds), modules


def _from_file(one: AdapterTensors) -> Sized:
    return Sized(one.name, one.rank, one.modules, one.parameters, one.bytes, True, refused=one.refused)


def _folders(paths: Sequence[Path]) -> list[Path]:
    """Folders of adapters at or below those named, each once. ValueError where there is none."""
    found: dict[Path, None] = {}
    for path in paths:
        here = [path] if (path / adapter_files.CONFIG).exists() else adapter_files.folders(path)
        if not here:
            raise ValueError(f"{path} holds no {adapter_files.CONFIG}, at any depth")
        found.update(dict.fromkeys(here))
    return list(found)


def _shares(asked: Asked, total: int) -> NDArray[np.float64]:
    if total > MOST_ADAPTERS:
        raise LoraWatchError(f"a plan is for up to {MOST_ADAPTERS:,} adapters, not {total:,}")
    if not asked.shares:
        return sizing.zipf_shares(total, asked.zipf)
    given = np.array(asked.shares, dtype=np.float64)
    if len(given) != total:
        raise LoraWatchError(f"--shares names {len(given)} shares, and there are {total} adapters")
    whole = float(given.sum())
    if not np.isfinite(given).all() or (given < 0).any() or min(abs(whole - 1), abs(whole - 100) / 100) > 1e-3:
        raise LoraWatchError(f"--shares are 0 or more and add up to 1, or to 100: these come to {whole:g}")
    return np.asarray(given / whole, dtype=np.float64)


def _choice(
    slots: int,
    room: Memory,
    shares: NDArray[np.float64],
    rps: float,
    pods: int,
    cpu: int,
    *,
    chosen: bool,
) -> Choice:
    whole = room.tokens(0)
    return Choice(
        slots,
        slots * room.slot,
        room.tokens(slots),
        room.tokens(slots) / whole,
        sizing.expected_misses(shares, rps, pods, slots, cpu, affinity=True),
        sizing.expected_misses(shares, rps, pods, slots, cpu, affinity=False),
        chosen,
    )


def _enough(shares: NDArray[np.float64], rps: float, pods: int, most: int, cpu: int) -> int:
    """The fewest slots, up to ``most``, with which few requests miss where pods share adapters out; ``most`` where none do."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if sizing.expected_misses(shares, rps, pods, middle, cpu, affinity=True).ratio <= FEW_MISSES:
            high = middle
        else:
            low = middle + 1
    return low


def _bill(asked: Asked, settings: CostSettings, shares: NDArray[np.float64], pods: int, size: int) -> Bill:
    told = asked.pod_requests_per_second
    capacity = told if told is not None else asked.requests_per_second / pods
    separate = sizing.separate_pods(shares, asked.requests_per_second, capacity)
    price = settings.gpu_hour_price
    return Bill(
        pods * size,
        separate * size,
        None if price is None else sizing.monthly_bill(pods, size, price),
        None if price is None else sizing.monthly_bill(separate, size, price),
        settings.currency,
        capacity,
        told is None,
    )


def _notes(asked: Asked, model: ModelShape, adapters: Sequence[Sized], size: int, pods: int, modules: Sequence[str]) -> list[str]:
    """What was assumed, and what is wrong with adapters, in sentences."""
    notes = [f"assumed of the model: {one}" for one in model.assumed]
    refused = [one for one in adapters if one.refused]
    notes += [f"vLLM will not load {named(one.name)}: {'; '.join(one.refused)}" for one in refused[:5]]
    if len(refused) > 5:
        notes.append(f"… nor {len(refused) - 5} more")
    if unknown := [one.name for one in adapters if one.bytes is None]:
        notes.append(f"bytes are unknown without a safetensors file: {listed(unknown)}; all modules at their rank stand for them")
    others = sorted({name for one in adapters for name in one.modules} - {*sizing.LAYER, *sizing.EMBEDDING})
    if others:
        notes.append(f"modules that sizes of slots leave out: {listed(others)}")
    if asked.gpus_per_pod is None and size > 1:
        notes.append(f"a pod is {size} GPUs (--tensor-parallel-size {size}): the fewest on which the model fits")
    if asked.gpus > pods * size:
        notes.append(f"{counted(asked.gpus - pods * size, 'GPU')} left over: pods have {size}")
    if asked.cpu_slots is None:
        told = f"planned with --max-cpu-loras {sum(one.adapters for one in adapters)}"
        notes.append(f"{told}: without it vLLM keeps in host memory only what is in a slot, and every miss reads the disk")
    if asked.shares == ():
        notes.append(f"demand by Zipf's law, alpha {asked.zipf:g}; requests independent: with sessions fewer miss")
    if model.embedded and not set(modules) & set(sizing.EMBEDDING):
        notes.append("slots hold room for embeddings and the head too, which these adapters do not change")
    return notes


def as_json(plan: Plan) -> str:
    """One JSON object in ASCII, sizes in bytes, times in seconds."""
    tree = asdict(plan)
    tree["memory"] |= {"room": plan.memory.room, "kv_tokens_without_slots": plan.memory.tokens(0)}
    tree["load_seconds"] = {
        tier: {
            "vllm": sizing.load_seconds(plan.phases, cold=tier == "cold"),
            "article": sizing.load_seconds_article(plan.phases, cold=tier == "cold"),
        }
        for tier in ("warm", "cold")
    }
    tree["chosen"] = asdict(plan.chosen)
    return json.dumps(tree, allow_nan=False)


def show(plan: Plan, console: Console | None = None) -> None:
    """Print the plan: sizes, slots, loads, bill, and what was assumed."""
    console = console or Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130, highlight=False)
    for line in _heading(plan):
        console.print(line, markup=False, highlight=False)
    console.print(_adapter_grid(plan))
    console.print(_slot_grid(plan))
    for line in _said(plan):
        console.print(line, markup=False, highlight=False)
    console.print(_phase_grid(plan))
    for line in (*_loads(plan), "", *_billed(plan)):
        console.print(line, markup=False, highlight=False)
    if plan.notes:
        console.print("\nAssumed and noticed", style="bold")
        for note in plan.notes:
            console.print(f"  · {note}", markup=False, highlight=False)


def _heading(plan: Plan) -> list[str]:
    model, memory = plan.model, plan.memory
    what = f"{named(model.name)}: {plan.parameters / 1e9:.3g} B parameters, weights {_bytes(plan.weight_bytes)}"
    shape = f"{model.layers} layers, {model.heads} heads on {model.kv_heads} of keys and values"
    where = f"{counted(plan.pods, 'pod')} of {counted(plan.gpus_per_pod, 'GPU')}; on each GPU {_bytes(memory.usable)} may be used"
    taken = f"weights {_bytes(memory.weights)}, workspace {_bytes(memory.workspace)}"
    return [f"{what}, {shape}", f"{where}: {taken}, so {_bytes(memory.room)} for slots and KV cache"]


def _adapter_grid(plan: Plan) -> Grid:
    grid = Grid(title="Adapters", title_justify="left", header_style="bold")
    for heading in ("adapter", "how many", "rank", "modules", "parameters", "bytes", "size", "known from"):
        grid.add_column(heading, justify="left" if heading in {"adapter", "modules", "known from"} else "right")
    for one in plan.adapters[:20]:
        grid.add_row(
            escape(named(one.name)),
            str(one.adapters),
            str(one.rank),
            escape(listed([name.removesuffix("_proj") for name in one.modules], 7)),
            "–" if one.parameters is None else f"{one.parameters:,}",
            "–" if one.bytes is None else f"{one.bytes:,}",
            "–" if one.bytes is None else _bytes(one.bytes),
            "its file" if one.from_file else "rank and modules",
        )
    if len(plan.adapters) > 20:
        grid.add_row(f"… {len(plan.adapters) - 20} more", *[""] * 7)
    return grid


def _slot_grid(plan: Plan) -> Grid:
    grid = Grid(title="Slots per pod (--max-loras)", title_justify="left", header_style="bold")
    for heading in (
        "slots",
        "HBM a GPU",
        "KV tokens left",
        "of them",
        "misses, affinity",
        "misses, round robin",
        "loads/s a pod",
    ):
        grid.add_column(heading, justify="right")
    for one in plan.choices:
        grid.add_row(
            f"{one.slots}{' ←' if one.chosen else ''}",
            _bytes(one.bytes),
            f"{one.kv_tokens:,}",
            percent(one.kv_share),
            percent(one.affinity.ratio),
            percent(one.round_robin.ratio),
            _between(one.affinity.per_second, one.round_robin.per_second),
        )
    return grid


def _said(plan: Plan) -> list[str]:
    size = f"A slot takes {_bytes(plan.slot_bytes)} on each GPU, the largest adapter has {_bytes(plan.largest)} in all"
    lines = [
        f"{size}: vLLM makes slots alike, at --max-lora-rank {plan.rank} for every module.",
        f"At most {plan.fit} fit, and then no KV cache is left; {plan.cheap} cost a tenth of it.",
    ]
    if plan.slot_bytes_only < plan.slot_bytes and plan.only:
        named_modules = " ".join(plan.only)
        lines.insert(1, f"With --lora-target-modules {named_modules} it takes {_bytes(plan.slot_bytes_only)}.")
    chosen = plan.chosen
    if chosen.slots * plan.pods >= plan.count:
        lines.append(f"{chosen.slots} slots on {counted(plan.pods, 'pod')} hold all {plan.count} adapters at once.")
    elif chosen.affinity.ratio > FEW_MISSES:
        fewer = f"{counted(chosen.slots * plan.pods, 'slot')} in all, fewer than the {plan.count} adapters"
        lines.append(f"{fewer}: {percent(chosen.affinity.ratio)} of requests miss even if pods share adapters out.")
    return lines


def _phase_grid(plan: Plan) -> Grid:
    title = f"One load of the largest adapter ({_bytes(plan.largest)})"
    grid = Grid(title=title, title_justify="left", header_style="bold")
    for heading in ("phase", "only cold", "vLLM", "the article's figures"):
        grid.add_column(heading, justify="left" if heading == "phase" else "right")
    for phase in plan.phases:
        grid.add_row(phase.name, "yes" if phase.cold_only else "", span(phase.vllm), _range(phase.article))
    for tier in ("warm", "cold"):
        cold = tier == "cold"
        seconds = sizing.load_seconds(plan.phases, cold=cold)
        grid.add_row(
            f"{tier} in all", "", span(seconds), _range(sizing.load_seconds_article(plan.phases, cold=cold)), style="bold"
        )
    return grid


def _loads(plan: Plan) -> list[str]:
    one = plan.chosen
    lines = []
    for how, misses in (("affinity routing", one.affinity), ("round robin", one.round_robin))[: 2 if plan.pods > 1 else 1]:
        cold = misses.cold_ratio * plan.requests_per_second / plan.pods
        warm = max(misses.per_second - cold, 0.0)
        low = warm * sizing.load_seconds(plan.phases, cold=False) + cold * sizing.load_seconds(plan.phases, cold=True)
        high = (
            warm * sizing.load_seconds_article(plan.phases, cold=False)[1]
            + cold * sizing.load_seconds_article(plan.phases, cold=True)[1]
        )
        missed = f"{percent(misses.ratio)} of requests miss, {percent(misses.cold_ratio)} from disk"
        stalled = f"loads stall {_share(low)} of a pod's time as vLLM loads, {_share(high)} at the article's worst"
        lines.append(f"{counted(one.slots, 'slot')}, {how}: {missed}; {stalled}.")
    return lines


def _billed(plan: Plan) -> list[str]:
    bill = plan.bill
    shared = f"{counted(bill.shared_gpus, 'GPU')}{_money(bill.shared, bill)}"
    separate = f"{counted(bill.separate_gpus, 'GPU')}{_money(bill.separate, bill)}"
    lines = [f"Shared base model: {shared}. A deployment for each adapter: {separate}."]
    if bill.separate_gpus > bill.shared_gpus:
        lines.append(f"Sharing takes {percent(1 - bill.shared_gpus / bill.separate_gpus)} fewer GPUs.")
    elif bill.separate_gpus < bill.shared_gpus:
        lines.append("Deployments of their own take fewer GPUs here: there are more pods than adapters need.")
    how = "assumed: what these pods get; say --pod-requests-per-second" if bill.capacity_assumed else "as told"
    lines.append(f"A pod carries {bill.pod_requests_per_second:.3g} requests/s ({how}). Spare pods are not counted.")
    if bill.shared is None:
        lines.append("Money is unknown without a price: --gpu-hour-price, or cost.gpu_hour_price in the configuration.")
    return lines


def _money(amount: float | None, bill: Bill) -> str:
    return "" if amount is None else f", {amount:,.0f} {bill.currency} a month"


def _range(told: tuple[float, float] | None) -> str:
    if told is None:
        return "–"
    low, high = told
    return span(low) if low == high else f"{span(low)} … {span(high)}"


def _between(low: float, high: float) -> str:
    return f"{low:.3g}" if math.isclose(low, high, rel_tol=0.005) else f"{low:.3g} … {high:.3g}"


def _share(ratio: float) -> str:
    return "more than all" if ratio > 1 else percent(ratio)


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"
