"""Commands that advise: plan, what-if, recommend, backtest, report."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lora_watch.cli.options import DEFAULT_CONFIG, AtOrData, ConfigFile, DataFolder, FailOn, Format, Last
from lora_watch.cli.settings import exit_with, guarded, open_store, wanted_settings


class Precision(StrEnum):
    """Of a weight."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


class Engine(StrEnum):
    """What serves adapters, of which it is known how it is told."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LORAX = "lorax"


class AdviceFormat(StrEnum):
    """How `recommend` answers."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class ReportFormat(StrEnum):
    """How the weekly report is written out."""

    HTML = "html"
    MD = "md"
    JSON = "json"


def what_if(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: AtOrData = None,
    pool: Annotated[str | None, typer.Option(help="The pool; needed where there are several.")] = None,
    slots: Annotated[str | None, typer.Option(help="Slots of every pod: 5, or +1 for one more.")] = None,
    pods: Annotated[str | None, typer.Option(help="Pods: 10, or +2 for two more.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Adapters to pin, with commas between them; several times.")] = None,
    routing: Annotated[
        str | None, typer.Option(help="affinity, llm-d, residency, round-robin or random; as now where absent.")
    ] = None,
    add_adapters: Annotated[int | None, typer.Option(help="Adapters that are not there yet.", min=1, max=100_000)] = None,
    split_of: Annotated[str | None, typer.Option(help="Whose requests they share: 'top 20', or names.")] = None,
    share: Annotated[float, typer.Option(help="Of these requests, the share that goes to the new ones.", min=0, max=1)] = 0.5,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second that they bring instead, all together.", min=0, max=1e9)
    ] = None,
    zipf: Annotated[float, typer.Option(help="How uneven these are; 0: all alike.", min=0, max=10)] = 1.0,
    rank: Annotated[int | None, typer.Option(help="Rank of the new ones.", min=1, max=100_000)] = None,
    load_seconds: Annotated[
        float | None, typer.Option(help="What a load of them takes; as others where absent.", min=0, max=86_400)
    ] = None,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with 1 if the plan does so much harm.")] = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """What would slots, pods, pins, another routing or more adapters have done? By a replay of the pool's own requests.

    With --add-adapters and --fail-on it is a check before a deployment: exit code 1 says that the plan does harm.
    """
    from lora_watch.explore import what_if as view
    from lora_watch.service import wall_clock

    def run() -> int:
        store, _ = open_store(config, data)
        settings = wanted_settings(config, needed=False)
        asked = view.Asked(slots, pods, tuple(pin or ()), routing, add_adapters, split_of, share, rate, zipf, rank, load_seconds)
        told = view.answers(store, last, at, wall_clock(), settings, asked, pool=pool)
        if format is Format.JSON:
            sys.stdout.write(view.as_json(told) + "\n")
        else:
            view.show(told)
        return int(view.fails(told, fail_on))

    exit_with(run)


def plan(
    model: Annotated[str, typer.Option(help="Folder with config.json, the file itself, or a preset such as llama-3.1-70b.")],
    adapter: Annotated[
        list[Path] | None, typer.Option(help="An adapter's folder, or one that holds many; several times.")
    ] = None,
    rank: Annotated[list[int] | None, typer.Option(help="A rank, where there are no files yet; several times.", min=1)] = None,
    modules: Annotated[str, typer.Option(help="What adapters of a rank change, such as q,v or all.")] = "q,v",
    count: Annotated[int | None, typer.Option(help="How many adapters there will be.", min=1)] = None,
    dtype: Annotated[Precision, typer.Option(help="Precision of adapters.")] = Precision.FP16,
    weights: Annotated[Precision | None, typer.Option(help="Precision of the model, instead of its own.")] = None,
    kv_dtype: Annotated[Precision, typer.Option(help="Precision of the KV cache.")] = Precision.FP16,
    gpu_memory: Annotated[float, typer.Option(help="GB of one GPU.", min=1, max=10_000)] = 80.0,
    gpus: Annotated[int, typer.Option(help="GPUs of all pods.", min=1, max=1_000_000)] = 1,
    gpus_per_pod: Annotated[
        int | None, typer.Option(help="Tensor parallelism; the least that fits where absent.", min=1, max=1024)
    ] = None,
    requests_per_second: Annotated[float, typer.Option(help="Of all adapters together.", min=1e-6, max=1e9)] = 1.0,
    zipf: Annotated[float, typer.Option(help="How uneven demand is; 0: all alike.", min=0, max=10)] = 1.0,
    shares: Annotated[str | None, typer.Option(help="Shares of requests by adapter instead, such as 60,30,10.")] = None,
    slots: Annotated[int | None, typer.Option(help="Slots per pod; those worth their memory where absent.", min=1)] = None,
    cpu_slots: Annotated[
        int | None, typer.Option(help="Adapters in host memory per pod (--max-cpu-loras); all where absent.", min=1)
    ] = None,
    pod_requests_per_second: Annotated[float | None, typer.Option(help="What one pod can carry.", min=1e-6)] = None,
    gpu_hour_price: Annotated[
        float | None, typer.Option(help="Of a GPU for an hour, instead of the configuration's.", min=0, max=1e9)
    ] = None,
    disk_gb_per_second: Annotated[float, typer.Option(help="Where adapters are read from.", min=1e-3, max=1e3)] = 5.0,
    workspace: Annotated[float, typer.Option(help="GB of a GPU for activations and buffers.", min=0, max=1_000)] = 5.0,
    utilization: Annotated[float, typer.Option(help="vLLM's --gpu-memory-utilization.", min=0.01, max=1)] = 0.92,
    config: ConfigFile = DEFAULT_CONFIG,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Before deployment: bytes of adapters, slots that fit, KV cache left, misses to expect, cost of loads, the bill."""
    from lora_watch.explore import plan as view

    def run() -> None:
        settings = wanted_settings(config, needed=False).cost
        if gpu_hour_price is not None:
            settings = settings.model_copy(update={"gpu_hour_price": gpu_hour_price})
        asked = view.Asked(
            model,
            tuple(adapter or ()),
            tuple(rank or ()),
            tuple(part.strip() for part in modules.split(",") if part.strip()),
            count,
            str(dtype),
            None if weights is None else str(weights),
            str(kv_dtype),
            gpu_memory,
            gpus,
            gpus_per_pod,
            requests_per_second,
            zipf,
            view.shares_of(shares),
            slots,
            cpu_slots,
            pod_requests_per_second,
            utilization,
            workspace,
            disk_gb_per_second,
        )
        made = view.make(asked, settings)
        if format is Format.JSON:
            sys.stdout.write(view.as_json(made) + "\n")
        else:
            view.show(made)

    guarded(run)


def recommend(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "30d",
    at: AtOrData = None,
    pool: Annotated[str | None, typer.Option(help="Only the pool of this name.")] = None,
    price: Annotated[
        float | None, typer.Option(help="Of a GPU for an hour, instead of the configuration's.", min=0, max=1e9)
    ] = None,
    engine: Annotated[
        Engine | None, typer.Option(help="What the pods run, where it is not recorded: it decides what can be done, and how.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What to tell vllm, sglang, lorax, kserve, aibrix, production_stack or llm_d, as text; you apply it."),
    ] = None,
    format: Annotated[AdviceFormat, typer.Option(help="For people or for programs.")] = AdviceFormat.TABLE,
) -> None:
    """What would help, and by how much: every lever, judged by a replay of the last week. It is told, never done."""
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")  # what polars frees goes back at once
    from lora_watch.explore import advice as view
    from lora_watch.explore import advice_words as words
    from lora_watch.explore.progress import bar
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = open_store(config, data)
        settings = wanted_settings(config, needed=False)
        if price is not None:
            settings = settings.model_copy(update={"cost": settings.cost.model_copy(update={"gpu_hour_price": price})})
        window = view.window_until(store, last, at, wall_clock())
        with bar("reading") as told:
            found = list(view.advised(store, window, settings, pool=pool, engine=engine, told=told))
        if format is AdviceFormat.JSON:
            sys.stdout.write(words.as_json(found, target) + "\n")
        elif format is AdviceFormat.YAML:
            sys.stdout.write(words.as_yaml(found, target))
        elif target is not None:
            sys.stdout.write(words.for_target(found, target))
        else:
            for one in found:
                words.show(one.recommendation)

    guarded(run)


def backtest(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    weeks: Annotated[int, typer.Option(help="Held-out weeks, the newest.", min=1, max=52)] = 4,
    at: AtOrData = None,
    pool: Annotated[str | None, typer.Option(help="Only the pool of this name.")] = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """What last weeks' advice on pins would have done, beside what it promised, rules of thumb and bounds."""
    from lora_watch.explore import backtest as view
    from lora_watch.explore.advice import window_until
    from lora_watch.explore.progress import bar
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = open_store(config, data)
        settings = wanted_settings(config, needed=False)
        end = window_until(store, "1d", at, wall_clock()).end
        with bar("reading") as told:
            found = list(view.backtested(store, weeks, end, settings, pool=pool, told=told))
        if format is Format.JSON:
            sys.stdout.write(view.as_json(found) + "\n")
        else:
            for one in found:
                view.show(one)

    guarded(run)


def report(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    week: Annotated[str, typer.Option(help="An ISO week, UTC, such as 2026-W48; last: the last one that has ended.")] = "last",
    pool: Annotated[str | None, typer.Option(help="Only the pool of this name.")] = None,
    format: Annotated[
        ReportFormat | None, typer.Option(help="By the file's ending where absent; Markdown on the terminal.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; standard output where absent.")] = None,
    *,
    send: Annotated[bool, typer.Option("--send", help="Send it to whom `report` in the configuration names.")] = False,
) -> None:
    """The week: incidents, what they cost, who, what to do, and what last week's advice would have done."""
    from lora_watch.report import command
    from lora_watch.service import wall_clock

    def run() -> int:
        store, _ = open_store(config, data)
        settings = wanted_settings(config, needed=send)
        form = None if format is None else str(format)
        return command.run(store, settings, command.Asked(week, pool, form, out, send), now=wall_clock)

    exit_with(run)
