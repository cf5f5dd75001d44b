"""The command line. Each command imports what it needs when it runs, so that `--help` and the agent stay light."""

import io
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lora_watch.errors import LoraWatchError
from lora_watch.rules.choices import Install, Profile

if TYPE_CHECKING:
    from polars import DataFrame

    from lora_watch.config import Settings
    from lora_watch.explore.situation import Finder
    from lora_watch.report.scheduled import Scheduled
    from lora_watch.store.tables import Store

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
config_app = typer.Typer(no_args_is_help=True, help="Read, check and explain the configuration.")
app.add_typer(config_app, name="config")
import_app = typer.Typer(no_args_is_help=True, help="Read the past into the store; the same command goes on where it stopped.")
app.add_typer(import_app, name="import")

incidents_app = typer.Typer(help="What happened, when, on which pool: stored findings as incidents.")
app.add_typer(incidents_app, name="incidents")

rules_app = typer.Typer(help="Prometheus rules: what is recorded, and what alerts.")
app.add_typer(rules_app, name="rules")

ConfigFile = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]
DEFAULT_CONFIG = Path("lora-watch.yaml")
DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the tables, instead of the configuration's.")]
Last = Annotated[str, typer.Option("--last", help="Length of the window, such as 1d or 30d.")]
At = Annotated[str | None, typer.Option("--at", help="End of the window, ISO 8601 with a zone; now if absent.")]
AtOrData = Annotated[str | None, typer.Option("--at", help="End, ISO 8601 with a zone; where the data end if absent.")]


class Format(StrEnum):
    """How a command answers."""

    TABLE = "table"
    JSON = "json"


class Form(StrEnum):
    """How one incident is written out."""

    MARKDOWN = "md"
    TEXT = "text"
    JSON = "json"


class CheckFormat(StrEnum):
    """How `check` answers."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


class Precision(StrEnum):
    """Of a weight."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


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


class RulesFor(StrEnum):
    """Who reads the rules."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"


InstallOption = Annotated[Install, typer.Option("--install", help="raw: no service in the path; full: with the exporter.")]
ProfileOption = Annotated[Profile, typer.Option("--profile", help="article: its limits, to be loaded beside the default.")]
ScaleOption = Annotated[
    float, typer.Option("--time-scale", help="How fast the watched clock runs: lengths of time are divided by it.", min=1)
]
ForOption = Annotated[RulesFor, typer.Option("--for", help="A rule file, or a resource of the Prometheus operator.")]
RunbooksOption = Annotated[str | None, typer.Option("--runbooks", help="Address of the folder of the runbooks.")]
ExplorerOption = Annotated[str | None, typer.Option("--explorer", help="Address of the explorer.")]


class FailOn(StrEnum):
    """From which severity on `check` fails."""

    WARN = "warn"
    HARM = "harm"


def _print_version(*, asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def lora_watch(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.", show_default=False)
    ] = False,
) -> None:
    """Which LoRA adapters sit on the GPU, what swapping them costs, and whether the cluster thrashes."""


@app.command()
def serve(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Collect, store, derive, diagnose and publish until told to stop (SIGTERM or Ctrl-C)."""
    from functools import cache

    from lora_watch.service import Service, set_up_logging, wall_clock
    from lora_watch.sources.configured import sources_of

    settings = _load(config)
    set_up_logging(settings.log)
    sources = sources_of(settings, wall_clock)
    if not sources:
        _fail(f"{config} names nothing to watch: add `targets`, `target_files`, `event_logs`, `routers`, `gpus` or `prometheus`")

    @cache
    def finder() -> "Finder":
        from lora_watch.explore.signals import signals
        from lora_watch.explore.situation import Finder  # its kernels take a second to load: collecting need not wait for it

        return Finder(
            service.store,
            settings,
            lambda problems: service.report("files of diagnose", problems),
            see=lambda told, found: service.exporter.publish_signals(signals(service.store, told, found)),
        )

    @cache
    def reporter() -> "Scheduled":
        from lora_watch.report.scheduled import Scheduled

        return Scheduled(service.store, settings)

    def advice(now: int) -> "DataFrame":
        from lora_watch.explore.stored_advice import apart

        return apart(service.store, settings, now)

    report = (lambda now: reporter().run(now)) if settings.report.enabled else None
    service = Service(settings, sources, find=lambda window: finder()(window), report=report, advise=advice)
    _guarded(service.run)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def agent(context: typer.Context) -> None:
    """Run the sidecar beside an engine (the same as `lora-watch-agent`; its own --help tells more)."""
    from lora_watch.agent.main import main as agent_main

    raise typer.Exit(agent_main(context.args))


@app.command()
def status(
    config: ConfigFile = DEFAULT_CONFIG,
    data: Annotated[Path | None, typer.Option(help="Folder of the tables, instead of the configuration's.")] = None,
    last: Annotated[str, typer.Option(help="Length of the window, such as 15m or 7d.")] = "1h",
    at: AtOrData = None,
    adapters: Annotated[int, typer.Option(help="Adapters to list a pod; 0 lists none.", min=0)] = 10,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Residency, swaps, occupancy, misses and inference share, per pod and adapter, from what is stored."""
    from lora_watch.explore import status as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = _store(config, data)
        window = view.window_of(last, at)
        shown = view.read(store, window, lookback=lookback, now=wall_clock())
        if format is Format.JSON:
            sys.stdout.write(view.as_json(shown) + "\n")
        else:
            view.show(shown, adapters=adapters)

    _guarded(run)


@app.command()
def check(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    prometheus: Annotated[str | None, typer.Option(help="Address of a Prometheus to look at.")] = None,
    pod: Annotated[list[str] | None, typer.Option(help="An engine's page, http://HOST:PORT/metrics; several times.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="A sidecar, http://HOST:PORT; the n-th is the n-th pod's.")] = None,
    history: Annotated[
        list[Path] | None, typer.Option(help="A file or folder: Parquet, CSV, JSON lines, event logs; several times.")
    ] = None,
    last: Last = "1h",
    at: AtOrData = None,
    watch: Annotated[float, typer.Option(help="Seconds between two looks at pods, for rates.", min=0, max=3600)] = 15,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with 1 if a finding is as grave as this.")] = None,
    format: Annotated[CheckFormat, typer.Option(help="For people, for programs, or for a ticket.")] = CheckFormat.TABLE,
) -> None:
    """Is it thrashing now, why, and what will help? One look; no service is needed.

    Without --data, --prometheus, --pod, --agent or --history it looks at the configuration's store, or, where that is empty,
    at its targets.
    """
    from lora_watch import check as look

    def run() -> int:
        asked = look.Asked(data, prometheus, tuple(pod or ()), tuple(agent or ()), tuple(history or ()), last, at, watch)
        settings = _settings(config, needed=asked.nothing)
        return look.run(settings, asked, format=format, fail_on=fail_on)

    _exit_with(run)


@app.command()
def cost(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: AtOrData = None,
    price: Annotated[
        float | None, typer.Option(help="Of a GPU for an hour, instead of the configuration's.", min=0, max=1e9)
    ] = None,
    adapters: Annotated[int, typer.Option(help="Adapters to list; 0 lists none.", min=0)] = 10,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """How much GPU time, money and latency did swaps cost?"""
    from lora_watch.explore import cost as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = _store(config, data)
        settings = _settings(config, needed=False)
        priced = settings.cost if price is None else settings.cost.model_copy(update={"gpu_hour_price": price})
        told = view.read(store, last, at, lookback, priced, now=wall_clock())
        if format is Format.JSON:
            sys.stdout.write(view.as_json(told) + "\n")
        else:
            view.show(told, adapters=adapters)

    _guarded(run)


@app.command("what-if")
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
        store, _ = _store(config, data)
        settings = _settings(config, needed=False)
        asked = view.Asked(slots, pods, tuple(pin or ()), routing, add_adapters, split_of, share, rate, zipf, rank, load_seconds)
        told = view.answers(store, last, at, wall_clock(), settings, asked, pool=pool)
        if format is Format.JSON:
            sys.stdout.write(view.as_json(told) + "\n")
        else:
            view.show(told)
        return int(view.fails(told, fail_on))

    _exit_with(run)


@app.command()
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
        settings = _settings(config, needed=False).cost
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

    _guarded(run)


@app.command()
def recommend(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "30d",
    at: AtOrData = None,
    pool: Annotated[str | None, typer.Option(help="Only the pool of this name.")] = None,
    price: Annotated[
        float | None, typer.Option(help="Of a GPU for an hour, instead of the configuration's.", min=0, max=1e9)
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
        store, _ = _store(config, data)
        settings = _settings(config, needed=False)
        if price is not None:
            settings = settings.model_copy(update={"cost": settings.cost.model_copy(update={"gpu_hour_price": price})})
        window = view.window_until(store, last, at, wall_clock())
        with bar("reading") as told:
            found = list(view.advised(store, window, settings, pool=pool, told=told))
        if format is AdviceFormat.JSON:
            sys.stdout.write(words.as_json(found, target) + "\n")
        elif format is AdviceFormat.YAML:
            sys.stdout.write(words.as_yaml(found, target))
        elif target is not None:
            sys.stdout.write(words.for_target(found, target))
        else:
            for one in found:
                words.show(one.recommendation)

    _guarded(run)


@app.command()
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
        store, _ = _store(config, data)
        settings = _settings(config, needed=False)
        end = window_until(store, "1d", at, wall_clock()).end
        with bar("reading") as told:
            found = list(view.backtested(store, weeks, end, settings, pool=pool, told=told))
        if format is Format.JSON:
            sys.stdout.write(view.as_json(found) + "\n")
        else:
            for one in found:
                view.show(one)

    _guarded(run)


@app.command()
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
        store, _ = _store(config, data)
        settings = _settings(config, needed=send)
        form = None if format is None else str(format)
        return command.run(store, settings, command.Asked(week, pool, form, out, send), now=wall_clock)

    _exit_with(run)


@incidents_app.callback(invoke_without_command=True)
def incidents(
    context: typer.Context,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: At = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """What happened, when, on which pool: stored findings as incidents, the newest first. `incidents show ID` tells one."""
    if context.invoked_subcommand is None:
        _list_incidents(config, data, last, at, format)


@incidents_app.command("list")
def incidents_list(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "7d",
    at: At = None,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """The same as `incidents` alone."""
    _list_incidents(config, data, last, at, format)


@incidents_app.command("show")
def incidents_show(
    name: Annotated[str, typer.Argument(metavar="ID", help="An incident, or one of its findings.")],
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Last = "30d",
    at: At = None,
    format: Annotated[Form, typer.Option(help="Draft of a post-mortem (md), the same as text, or all of it (json).")] = Form.TEXT,
) -> None:
    """One incident: its timeline, cause, evidence, what helps and what does not; `--format md` drafts the post-mortem."""
    from lora_watch.explore import findings as view
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = _store(config, data)
        now = wall_clock()
        window = view.window_until(last, at, now)
        sys.stdout.write(view.rendered(view.one(store, name, window, min(now, window.end)), str(format)))

    _guarded(run)


@rules_app.callback(invoke_without_command=True)
def rules(
    context: typer.Context,
    install: InstallOption = Install.RAW,
    profile: ProfileOption = Profile.DEFAULT,
    time_scale: ScaleOption = 1.0,
    form: ForOption = RulesFor.PROMETHEUS,
    runbooks: RunbooksOption = None,
    explorer: ExplorerOption = None,
) -> None:
    """Prometheus rules: what is recorded, and what alerts. Alone it prints them, as `rules show` does."""
    if context.invoked_subcommand is None:
        _show_rules(install, profile, time_scale, form, runbooks, explorer)


@rules_app.command("show")
def rules_show(
    install: InstallOption = Install.RAW,
    profile: ProfileOption = Profile.DEFAULT,
    time_scale: ScaleOption = 1.0,
    form: ForOption = RulesFor.PROMETHEUS,
    runbooks: RunbooksOption = None,
    explorer: ExplorerOption = None,
) -> None:
    """Print the rules as YAML: for a file under Prometheus' rule_files, or for kubectl apply."""
    _show_rules(install, profile, time_scale, form, runbooks, explorer)


@rules_app.command("calibrate")
def rules_calibrate(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    last: Annotated[str, typer.Option(help="Length of the history, such as 28d.")] = "28d",
    at: AtOrData = None,
    profile: ProfileOption = Profile.DEFAULT,
    harm: Annotated[float, typer.Option(help="Harm episodes in 28 days that are not too many.", min=0)] = 1,
    cause: Annotated[float, typer.Option(help="Cause episodes in 28 days, of one alert, that are not too many.", min=0)] = 8,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Replay every alert over stored history: its episodes, which never stop or never could, and limits that would do."""
    from rich.console import Console
    from rich.progress import Progress

    from lora_watch.explore import calibration as view
    from lora_watch.explore.status import window_of
    from lora_watch.model import Window
    from lora_watch.rules.rule import Tier
    from lora_watch.schema import REQUESTS

    def run() -> None:
        store, _ = _store(config, data)
        length, end = window_of(last, at)
        end = store.newest(REQUESTS) if end is None else end
        if end is None:
            raise LoraWatchError(f"{store.root} holds no requests: nothing to replay rules over")
        wanted = {Tier.HARM: harm, Tier.CAUSE: cause}
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("replaying", total=1.0)
            judged, window = view.calibrated(
                store, Window(end - length, end + 1), profile, wanted, lambda done: bar.update(task, completed=done)
            )
        if format is Format.JSON:
            sys.stdout.write(view.as_json(judged, window) + "\n")
        else:
            view.show(judged, window)

    _guarded(run)


@app.command()
def expect(
    adapters: Annotated[list[str], typer.Argument(help="Names of new adapters; `*` stands for anything.")],
    begin: Annotated[str, typer.Option("--from", help="When it starts, ISO 8601 with a zone.")],
    end: Annotated[str, typer.Option("--to", help="When it ends, likewise.")],
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    file: Annotated[Path | None, typer.Option(help="The file to add it to, instead of the configuration's.")] = None,
) -> None:
    """Announce an experiment: its new adapters are then told as expected, not as a warning."""
    from lora_watch.explore import expect as plan

    def run() -> None:
        where = file if file is not None else _settings(config, needed=False).diagnose.expected
        count = plan.announce(where, plan.announcement(adapters, begin, end, note))
        typer.echo(f"{count} announcement{'' if count == 1 else 's'} in {where}")
        if file is None and not config.exists():
            typer.echo(plan.WITHOUT_CONFIGURATION)

    _guarded(run)


@app.command()
def doctor(
    config: ConfigFile = DEFAULT_CONFIG,
    format: Annotated[Format, typer.Option(help="For people or for programs.")] = Format.TABLE,
) -> None:
    """Can each target be reached, what can be known from it, what is missing, how to get it. Exit code 1: one is out of reach."""
    from lora_watch.explore import doctor as view
    from lora_watch.service import wall_clock

    settings = _load(config)

    def run() -> None:
        report = view.examine(settings, wall_clock)
        if format is Format.JSON:
            sys.stdout.write(view.as_json(report) + "\n")
        else:
            view.show(report)
        if not report.reachable:
            raise typer.Exit(1)

    _guarded(run)


@app.command()
def explore(
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65_535)] = 8501,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    base_path: Annotated[str, typer.Option(help="Path under which a reverse proxy shows it, such as /lora-watch.")] = "",
) -> None:
    """Show it in a browser: now, over time, by adapter, what swaps cost, what would help. It reads, and changes nothing."""
    from lora_watch.explore import start

    def run() -> None:
        named = config if data is None or config != DEFAULT_CONFIG or config.exists() else None
        if named is not None:
            _load(named)
        _store(config, data)
        program = start.command(host, port, base_path)
        path = f"/{base_path.strip('/')}" if base_path.strip("/") else ""
        typer.echo(f"explorer  http://{f'[{host}]' if ':' in host else host}:{port}{path}")
        start.run(program, start.environment(os.environ, named, data))

    _guarded(run)


@app.command()
def demo(
    scenario: Annotated[str, typer.Option(help="Name of a scenario that comes along, or a YAML file.")] = "thursday",
    speed: Annotated[float, typer.Option(help="How many times as fast as time it runs.")] = 60.0,
    days: Annotated[int, typer.Option(help="Days of history that are laid meanwhile; 0: none.")] = 30,
    stay: Annotated[
        bool | None,
        typer.Option("--stay/--no-stay", help="Go on once the change was told; by default on a terminal only."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that keeps the tables; by default they are removed at the end.")
    ] = None,
    *,
    residency_gauges: Annotated[
        bool, typer.Option("--residency-gauges", help="Its engines show who is in their slots, as an open proposal to vLLM does.")
    ] = False,
) -> None:
    """Start a simulated cluster and the ordinary service against it, and show what it sees."""
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")  # what polars frees goes back at once
    from lora_watch.demo import run

    staying = sys.stdin.isatty() if stay is None else stay
    _guarded(lambda: run(data, scenario=scenario, speed=speed, days=days, stay=staying, residency_gauges=residency_gauges))


@app.command()
def simulate(
    scenario: Annotated[str, typer.Option(help="Name of a scenario that comes along, or a YAML file.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables and truth.json; it must hold no tables yet.")],
    days: Annotated[float | None, typer.Option(help="How many days; the scenario's own number where absent.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.", min=0)] = 1,
) -> None:
    """Lay the tables of a simulated cluster whose truth is known, to try everything else on."""

    def run() -> None:
        from rich.console import Console
        from rich.progress import Progress

        from lora_watch.simulate.scenario import load
        from lora_watch.simulate.write import give_memory_back
        from lora_watch.simulate.write import simulate as lay

        give_memory_back()
        chosen = load(scenario)
        length = chosen.days if days is None else days
        if not 0 < length <= 366:
            _fail(f"a simulation takes up to 366 days, not {length:g}")
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"simulating {length:g} days of {chosen.name}", total=1.0)
            laid = lay(chosen, length, seed, out, told=lambda share: bar.update(task, completed=share))
        what = f"{laid.requests:,} requests, {laid.events:,} adapter events, {laid.samples:,} samples"
        typer.echo(f"{chosen.name}: {what} in {out}; what is true of it in {out / 'truth.json'}")
        end = datetime.fromtimestamp(laid.window.end / 1e6, UTC).isoformat()
        typer.echo(f"look: lora-watch status --data {out} --at {end} --last 1h")

    _guarded(run)


@app.command("derive")
def derive_hours(config: ConfigFile = DEFAULT_CONFIG, data: DataFolder = None) -> None:
    """Work out what every closed hour says, so that wide windows of the explorer open at once; `serve` does it by itself."""
    from functools import partial

    from rich.console import Console
    from rich.progress import track

    from lora_watch.explore import hours
    from lora_watch.explore.queries import newest
    from lora_watch.jobs import close_hours
    from lora_watch.model import HOUR
    from lora_watch.service import wall_clock

    def run() -> None:
        store, lookback = _store(config, data)
        now = wall_clock()
        end = newest(store, now)
        if end is not None and now - end > HOUR:  # nothing is written any more: the hour in which the data end is closed too
            end += HOUR - 1
        days = [] if end is None else hours.stale(store, end)
        for day in track(days[::-1], "working out days", console=Console(stderr=True), transient=True):
            close_hours(store, lambda _, day=day: [day], partial(hours.of_day, store, lookback=lookback), until=day.end)  # type: ignore[misc]  # a lambda's default has no type
        typer.echo(f"{len(days)} days worked out in {store.root}; the others were already")

    _guarded(run)


@import_app.command("prometheus")
def import_prometheus(
    begin: Annotated[str, typer.Option("--from", help="Where the span begins: a date, or a moment with a zone.")],
    end: Annotated[str | None, typer.Option("--to", help="Where it ends; where the service's own reading began, or now.")] = None,
    server: Annotated[
        str | None, typer.Option(help="Name of the server in the configuration; needed where it has several.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a server that the configuration does not name.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Every raw sample of a span of time that a Prometheus holds."""
    from lora_watch import import_history as history
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = _destination(config, data)
        chosen = history.server_of(settings, server, url)
        window = history.span(begin, end, history.begun(store, chosen, wall_clock()))
        with history.bar() as show:
            return history.finish(history.from_prometheus(settings, chosen, window, store, wall_clock, show))

    _exit_with(run)


@import_app.command("table")
def import_table(
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV or JSON lines.")],
    table: Annotated[str, typer.Option(help="The table: adapter_events, requests, samples or findings.")],
    provenance: Annotated[str | None, typer.Option(help="How rows are known that do not say it, such as observed.")] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Rows in the form of one of our own tables."""
    from lora_watch import import_history as history
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = _destination(config, data)
        filling = history.filling(settings.cluster, provenance)
        with history.bar() as show:
            return history.finish(history.from_tables(files, history.table_named(table), filling, store, wall_clock, show))

    _exit_with(run)


@import_app.command("events")
def import_events(
    paths: Annotated[list[Path], typer.Argument(help="Folders of segments, or files of one process each.")],
    pod: Annotated[str, typer.Option(help="The pod that wrote them.")],
    pool: Annotated[str, typer.Option(help="Its pool.")] = "",
    role: Annotated[str, typer.Option(help="Its role.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Event logs that an agent wrote."""
    from lora_watch import import_history as history
    from lora_watch.model import PodId
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = _destination(config, data)
        whose = PodId(settings.cluster, pod, pool, role)
        with history.bar() as show:
            return history.finish(history.from_event_logs(paths, whose, store, wall_clock, show))

    _exit_with(run)


@import_app.command("requests")
def import_requests(
    files: Annotated[list[str], typer.Argument(help="Request logs, compressed (.gz) or not.")],
    format: Annotated[str, typer.Option(help="openai, litellm, envoy, or one of request_log_formats.")],
    pod: Annotated[str, typer.Option(help="The pod of the lines that name none.")],
    pool: Annotated[str, typer.Option(help="Its pool.")] = "",
    role: Annotated[str, typer.Option(help="Its role.")] = "",
    config: ConfigFile = DEFAULT_CONFIG,
    data: DataFolder = None,
) -> None:
    """Request logs of a server, a gateway or a proxy."""
    from lora_watch import import_history as history
    from lora_watch.model import PodId
    from lora_watch.service import wall_clock

    def run() -> int:
        settings, store = _destination(config, data)
        reader = history.reader_of(settings, format, PodId(settings.cluster, pod, pool, role))
        with history.bar() as show:
            return history.finish(history.from_request_logs(files, reader, store, wall_clock, show))

    _exit_with(run)


@config_app.command("check")
def config_check(config: ConfigFile = DEFAULT_CONFIG) -> None:
    """Say whether the configuration is right, and if not, what is wrong where."""
    settings = _load(config)
    counts = (
        (len(settings.targets), "target", "targets"),
        (len(settings.target_files), "group of target files", "groups of target files"),
        (len(settings.event_logs), "event log", "event logs"),
        (len(settings.prometheus), "Prometheus server", "Prometheus servers"),
        (len(settings.routers), "router", "routers"),
        (len(settings.gpus.exporters), "GPU exporter", "GPU exporters"),
    )
    what = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)
    typer.echo(f"{config} is right: {what or 'nothing to watch yet'}; data in {settings.store.folder}")


@config_app.command("example")
def config_example() -> None:
    """Print a configuration to start from."""
    from lora_watch.config import EXAMPLE

    typer.echo(EXAMPLE, nl=False)


@config_app.command("reference")
def config_reference() -> None:
    """Print every key with its default and meaning, as Markdown."""
    from lora_watch.config import reference

    typer.echo(reference(), nl=False)


@app.command()
def version() -> None:
    """Print the version."""
    from lora_watch import __version__

    typer.echo(__version__)


def main() -> None:
    """The console script ``lora-watch``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a name's letters shows their numbers
    app()


def _load(file: Path) -> "Settings":
    from lora_watch.config import load

    try:
        settings = load(file)
        if settings.request_logs:
            from lora_watch.sources.configured import request_logs_of

            request_logs_of(settings)  # their formats are known
    except LoraWatchError as error:
        _fail(str(error))
    return settings


def _show_rules(
    install: Install,
    profile: Profile,
    time_scale: float,
    form: RulesFor,
    runbooks: str | None,
    explorer: str | None,
) -> None:
    from lora_watch.rules import render
    from lora_watch.rules.pace import Pace

    usual = render.Addresses()
    make = render.prometheus_rule if form is RulesFor.OPERATOR else render.rules
    try:
        addresses = render.Addresses(runbooks or usual.runbooks, explorer or usual.explorer)
        pace = Pace(time_scale)
    except ValueError as error:
        _fail(str(error))
    sys.stdout.write(make(install, profile, pace, addresses))


def _list_incidents(config: Path, data: Path | None, last: str, at: str | None, format: Format) -> None:
    from lora_watch.explore import findings as view
    from lora_watch.schema import FINDINGS
    from lora_watch.service import wall_clock

    def run() -> None:
        store, _ = _store(config, data)
        now = wall_clock()
        window = view.window_until(last, at, now)
        found = view.told(store, window, min(now, window.end))
        if format is Format.JSON:
            sys.stdout.write(view.list_as_json(found) + "\n")
        else:
            view.show(found, window, None if found else store.newest(FINDINGS))

    _guarded(run)


def _settings(config: Path, *, needed: bool) -> "Settings":
    """The settings; the defaults where nobody needs a configuration and there is none."""
    from lora_watch.config import Settings

    return Settings() if not needed and config == DEFAULT_CONFIG and not config.exists() else _load(config)


def _store(config: Path, data: Path | None) -> "tuple[Store, int]":
    from lora_watch.config import DeriveSettings
    from lora_watch.model import SECOND
    from lora_watch.store import tables

    folder, derive = (data, DeriveSettings()) if data is not None else ((settings := _load(config)).store.folder, settings.derive)
    try:
        there = folder.is_dir()
    except OSError as error:
        _fail(f"cannot look into {folder}: {error.strerror or error}")
    if not there:
        _fail(f"there is no data in {folder}: run `lora-watch serve`, or name the folder with --data")
    return tables.Store(folder), round(derive.lookback.total_seconds() * SECOND)


def _destination(config: Path, data: Path | None) -> "tuple[Settings, Store]":
    """The settings and the store to write to; with --data alone there need be no configuration."""
    from lora_watch.config import Settings
    from lora_watch.store.tables import Store

    settings = Settings() if data is not None and config == DEFAULT_CONFIG and not config.exists() else _load(config)
    return settings, Store(data or settings.store.folder)


def _exit_with(run: Callable[[], int]) -> None:
    def exits() -> None:
        if code := run():
            raise typer.Exit(code)

    _guarded(exits)


def _guarded(run: Callable[[], None]) -> None:
    try:
        run()
    except LoraWatchError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(f"lora-watch: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
