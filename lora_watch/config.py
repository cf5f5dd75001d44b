"""
The configuration: one YAML file, read once into a frozen tree and handed down in parts.

An unknown key is refused with the nearest known one; every error names the file and the path of the key. Secrets never stand in
the file: it names an environment variable or a file that holds them.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from lora_watch import links
from lora_watch.errors import ConfigError

DEFAULT_FILE = Path("lora-watch.yaml")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_duration(text: object) -> timedelta:
    """
    A length of time written the way Prometheus does: ``15s``, ``1h30m``, ``30d``; a bare number is seconds. ValueError otherwise.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(text, timedelta):
        return text
    try:
        if isinstance(text, (int, float)) and not isinstance(text, bool):
            return timedelta(seconds=text)
        return _parse_text(str(text))
    except OverflowError:
        raise ValueError(f"{str(text)[:40]!r} is longer than time itself; the longest here is 999999999d") from None


def _parse_text(text: str) -> timedelta:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f"{text!r} is not a length of time; write it like 15s, 5m, 1h30m or 30d")
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


def show_duration(value: timedelta) -> str:
    """
    The inverse of ``parse_duration``.

    >>> show_duration(timedelta(days=1, minutes=5)), show_duration(timedelta(0))
    ('1d5m', '0s')
    """
    rest, text = round(value.total_seconds() * 1000), ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a length of time here is more than nothing")
    return value


Duration = Annotated[
    timedelta, BeforeValidator(parse_duration), AfterValidator(_positive), PlainSerializer(show_duration, return_type=str)
]


def _address(text: str) -> str:
    scheme, found, rest = text.partition("://")
    if not found or scheme not in ("http", "https") or not rest.strip("/"):
        raise ValueError("an address begins with http:// or https:// and names a host")
    if "@" in rest.partition("/")[0]:
        raise ValueError("no user or password belongs in an address: name them in `credentials`")
    return text


Address = Annotated[str, AfterValidator(_address)]


class Part(BaseModel):
    """A part of the configuration: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class CredentialSettings(Part):
    """How to identify ourselves to a server. Secrets are named, never written here."""

    bearer_env: str | None = Field(None, description="environment variable that holds a bearer token")
    bearer_file: Path | None = Field(None, description="file that holds a bearer token; read at each use, so it may be rotated")
    basic_user: str | None = Field(None, description="user of HTTP basic authentication")
    basic_password_env: str | None = Field(None, description="environment variable that holds its password")
    basic_password_file: Path | None = Field(None, description="file that holds its password")
    ca_file: Path | None = Field(None, description="certificate authorities to trust instead of the system's")
    cert_file: Path | None = Field(None, description="client certificate")
    key_file: Path | None = Field(None, description="key of the client certificate")
    verify: bool = Field(True, description="check the server's certificate")
    headers: Mapping[str, str] = Field(
        default_factory=dict, description="further headers; `${NAME}` is replaced by that environment variable"
    )

    @model_validator(mode="after")
    def _one_way_in(self) -> "CredentialSettings":
        if self.bearer_env and self.bearer_file:
            raise ValueError("give bearer_env or bearer_file, not both")
        if (self.bearer_env or self.bearer_file) and self.basic_user:
            raise ValueError("give a bearer token or basic authentication, not both")
        if bool(self.basic_user) != bool(self.basic_password_env or self.basic_password_file):
            raise ValueError("basic authentication needs basic_user and one of basic_password_env, basic_password_file")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs cert_file")
        return self


class TargetSettings(Part):
    """One engine replica."""

    pod: str | None = Field(None, description="its name; host and port of the first address where absent", min_length=1)
    pool: str = Field("", description="the InferencePool it belongs to")
    role: str = Field("", description="`prefill` or `decode` where the two are apart; never averaged together")
    metrics: Address | None = Field(None, description="address of the engine's own page, such as `http://10.0.0.7:8000/metrics`")
    agent: Address | None = Field(None, description="address of the agent's sidecar, such as `http://10.0.0.7:9465`")
    credentials: str | None = Field(None, description="name of an entry of `credentials`")

    @model_validator(mode="after")
    def _reachable(self) -> "TargetSettings":
        if not (self.metrics or self.agent):
            raise ValueError("a target needs `metrics`, `agent` or both")
        return self


class TargetFileSettings(Part):
    """
    Targets in files of Prometheus' `file_sd` form, read again when they change.

    Labels of an entry say more: ``cluster``, ``pool``, ``role``, ``pod``, ``agent_url``, ``__scheme__``, ``__metrics_path__``.
    """

    files: tuple[str, ...] = Field(description="paths; a `*` matches any name in the last part")
    agent_port: int | None = Field(None, description="port of the sidecar beside each target; absent: no agent", ge=1, le=65_535)
    credentials: str | None = Field(None, description="name of an entry of `credentials`")


class RouterSettings(Part):
    """One replica of llm-d's Endpoint Picker (EPP)."""

    pod: str | None = Field(None, description="its name; host and port of its address where absent", min_length=1)
    pool: str = Field("", description="the InferencePool it routes for; the one it names itself where absent")
    metrics: Address = Field(description="address of its page, such as `http://10.0.0.9:9090/metrics`")
    credentials: str | None = Field(None, description="name of an entry of `credentials`; it asks for a bearer token by default")


class GpuExporterSettings(Part):
    """One dcgm-exporter: one host's GPUs."""

    pod: str | None = Field(None, description="its name; host and port of its address where absent", min_length=1)
    metrics: Address = Field(description="address of its page, such as `http://10.0.0.7:9400/metrics`")
    credentials: str | None = Field(None, description="name of an entry of `credentials`")


class GpuPodSettings(Part):
    """Which pod a GPU works for, where the exporter's labels do not say it."""

    host: str = Field(description="the exporter's label `Hostname`")
    gpu: str = Field(description="its label `gpu`", coerce_numbers_to_str=True)
    instance: str = Field(
        "", description="its label `GPU_I_ID`; absent: every MIG instance of the GPU", coerce_numbers_to_str=True
    )
    pod: str = Field(description="the pod", min_length=1)
    pool: str = Field("", description="its pool")
    role: str = Field("", description="its role")


class GpuSettings(Part):
    """What dcgm-exporter says of the GPUs."""

    exporters: tuple[GpuExporterSettings, ...] = Field((), description="exporters read directly")
    pods: tuple[GpuPodSettings, ...] = Field((), description="whose a GPU is; beats the exporter's own labels")


class EventLogSettings(Part):
    """Event logs read from a folder on this machine instead of over HTTP."""

    folder: Path = Field(description="folder with the segments of one pod's event log")
    pod: str = Field(description="the pod they are of", min_length=1)
    pool: str = Field("", description="its pool")
    role: str = Field("", description="its role")


class RequestLogSettings(Part):
    """Request logs on this machine: JSON lines of a server, a gateway or a proxy."""

    files: tuple[str, ...] = Field(description="paths; a `*` matches any name in the last part", min_length=1)
    format: str = Field(description="`openai`, `litellm`, `envoy`, or one of `request_log_formats`")
    pod: str = Field(description="the pod of the requests whose lines do not name one; of a gateway, its name", min_length=1)
    pool: str = Field("", description="its pool")
    role: str = Field("", description="its role")
    pods: Mapping[str, str] = Field(default_factory=dict, description="pods by the address or name that the lines give them")


class PrometheusSettings(Part):
    """A Prometheus server that already scrapes the engines."""

    name: str = Field(
        "prometheus", description="names its streams in the store; keep it once data was read", pattern=r"^[A-Za-z0-9_.-]+$"
    )
    url: Address = Field(description="its address, such as `http://prometheus:9090`")
    selector: str = Field("", description='label matchers added to every query, such as `namespace="llm"`')
    cluster_label: str = Field("cluster", description="label that names the cluster; `cluster` of this file where it is absent")
    pool_label: str = Field("pool", description="label that names the pool")
    role_label: str = Field("role", description="label that names the role")
    systems: tuple[Literal["vllm", "router", "gpu"], ...] = Field(
        ("vllm",), description="what to read of it: any of `vllm`, `router` (llm-d's EPP), `gpu` (dcgm-exporter)", min_length=1
    )
    pod_label: str = Field("pod", description="label that names the pod; `instance` where it is absent")
    lag: Duration = Field(timedelta(minutes=1), description="read again this far back each time, for samples that come late")
    history: Duration = Field(timedelta(hours=1), description="how far back to begin in an empty store")
    credentials: str | None = Field(None, description="name of an entry of `credentials`")


class CollectSettings(Part):
    """How often to look, and how far to go at once."""

    interval: Duration = Field(timedelta(seconds=15), description="between two looks at every source")
    settle: Duration = Field(timedelta(seconds=2), description="leave the newest data this long before reading it")
    connect_timeout: Duration = Field(timedelta(seconds=3), description="to wait for a connection")
    read_timeout: Duration = Field(timedelta(seconds=10), description="to wait for an answer to begin or go on")
    deadline: Duration = Field(timedelta(seconds=20), description="for one answer in all")
    page_bytes: int = Field(64 << 20, description="refuse a page larger than this", ge=1 << 10)
    events_per_tick: int = Field(
        50_000, description="records of one stream read at once, so that catching up never starves the others", ge=100
    )
    threads: int = Field(8, description="pods read at the same time", ge=1, le=64)


class DeriveSettings(Part):
    """What the exporter publishes."""

    interval: Duration = Field(timedelta(seconds=60), description="between two computations")
    window: Duration = Field(timedelta(hours=1), description="span the published figures are about")
    lookback: Duration = Field(timedelta(hours=24), description="how far before the window a load may lie and still be known")


class DiagnoseSettings(Part):
    """Finding what is wrong, and telling it."""

    # rules go by a service that looks twice in ten minutes at least
    interval: Duration = Field(timedelta(seconds=60), description="between two looks for findings", le=timedelta(minutes=3))
    window: Duration = Field(timedelta(hours=1), description="span that a look is about")
    close_after: Duration = Field(timedelta(minutes=10), description="a finding closes once it was not found for so long")
    lookback: Duration = Field(timedelta(days=30), description="an open finding told of in this span goes on after an outage")
    expected: Path = Field(
        Path("lora-watch-expected.yaml"),
        description="file of announced experiments (`lora-watch expect`); a relative path is relative to this file",
    )
    router_configs: tuple[Path, ...] = Field((), description="configurations of routers (EndpointPickerConfig) to check")
    adapter_folders: tuple[Path, ...] = Field((), description="folders of adapters, whose ranks and bytes are read")


class CostSettings(Part):
    """What a GPU costs: with a price, time lost to loads is told in money too."""

    gpu_hour_price: float | None = Field(None, description="of one GPU for an hour", ge=0, allow_inf_nan=False)
    currency: str = Field("USD", description="what the price is in", min_length=1, max_length=20)
    gpus_per_pod: int = Field(1, description="GPUs of one engine; all stand still while it loads an adapter", ge=1, le=10_000)


def _mail_address(text: str) -> str:
    if len(text) > 254 or not re.fullmatch(r"[^\s@<>()\[\],;:\\\"\x00-\x1f\x7f]+@[^\s@<>()\[\],;:\\\"\x00-\x1f\x7f]+", text):
        raise ValueError(f"{text[:60]!r} is no address of mail; write it like team@example.com")
    return text


MailAddress = Annotated[str, AfterValidator(_mail_address)]


class WebhookSettings(Part):
    """Where the weekly report is posted to. An address that is a secret is named, never written here."""

    name: str = Field(
        description=("what it is called in logs; keep it: what was sent is remembered by it"), min_length=1, max_length=60
    )
    url: Address | None = Field(None, description="its address")
    url_env: str | None = Field(None, description="or the environment variable that holds it")
    url_file: Path | None = Field(None, description="or the file that holds it")
    body: Literal["json", "text"] = Field(
        "json", description='`json`: the whole report; `text`: its five lines as `{"text": …}`, which chat services take'
    )
    credentials: str | None = Field(None, description="name of an entry of `credentials`")

    @model_validator(mode="after")
    def _one_address(self) -> "WebhookSettings":
        if sum(one is not None for one in (self.url, self.url_env, self.url_file)) != 1:
            raise ValueError("a webhook has one of url, url_env, url_file")
        return self


class MailSettings(Part):
    """A mail server (SMTP) and whom the weekly report is sent to through it. The password is named, never written here."""

    host: str = Field(description="its name", min_length=1, pattern=r"^[^\s/@]+$")
    port: int | None = Field(
        None, description=("587 with `starttls`, 465 with `tls`, 25 with `none`, where absent"), ge=1, le=65_535
    )
    tls: Literal["starttls", "tls", "none"] = Field("starttls", description="how the connection is encrypted")
    ca_file: Path | None = Field(None, description="certificate authorities to trust instead of the system's")
    user: str | None = Field(None, description="who signs in; absent: nobody", min_length=1)
    password_env: str | None = Field(None, description="environment variable that holds the password")
    password_file: Path | None = Field(None, description="file that holds the password")
    sender: MailAddress = Field(description="whom it is from")
    to: tuple[MailAddress, ...] = Field(description="whom it is to; each gets a mail of their own", min_length=1)
    timeout: Duration = Field(timedelta(seconds=30), description="for each answer of the server")

    @model_validator(mode="after")
    def _signed_in_safely(self) -> "MailSettings":
        if bool(self.user) != (sum(one is not None for one in (self.password_env, self.password_file)) == 1):
            raise ValueError("to sign in, give user and one of password_env, password_file")
        if self.user and self.tls == "none":
            raise ValueError("a password goes over an encrypted connection only: set tls to starttls or tls")
        return self


class ReportSettings(Part):
    """The weekly report, made by the service. Off unless told."""

    enabled: bool = Field(False, description="make a report of each week that has ended")
    weekday: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] = Field(
        "monday", description="on which day after the week's end (Sunday, midnight UTC)"
    )
    hour: int = Field(6, description="at which hour, UTC; a missed one is made up", ge=0, le=23)
    formats: tuple[Literal["html", "md", "json"], ...] = Field(
        ("html",), description="what is written into the folder", min_length=1
    )
    folder: Path = Field(
        Path("lora-watch-reports"), description="folder of the reports; a relative path is relative to this file"
    )
    webhooks: tuple[WebhookSettings, ...] = Field((), description="where it is posted to")
    mail: tuple[MailSettings, ...] = Field((), description="mail servers, and whom it is sent to")


class StoreSettings(Part):
    """Where the tables are and how long they are kept."""

    folder: Path = Field(Path("lora-watch-data"), description="folder of the tables; a relative path is relative to this file")
    retention: Duration = Field(timedelta(days=180), description="rows older than this are dropped, by whole days")
    maintenance: Duration = Field(timedelta(hours=1), description="between two rounds of merging, sorting and dropping")


class ExporterSettings(Part):
    """The service's own `/metrics`."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(9466, description="port; 0 picks a free one", ge=0, le=65_535)
    explorer: Address = Field(links.EXPLORER, description="address of the explorer, for the links of findings")
    adapters: int = Field(200, description="adapters with series of their own per pod; the rest is summed as `other`", ge=0)


class LogSettings(Part):
    """What the service says on standard error."""

    format: Literal["text", "json"] = Field("text", description="one line a state change, for people or for machines")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least important line to show")


RESERVED = frozenset(
    {
        "pods",
        "agents-events",
        "agents-requests",
        "agents-status",
        "files-events",
        "files-requests",
        "request-logs",
        "routers",
        "gpus",
        "clock",
        "derive",
        "diagnose",
        "findings",
        "maintain",
        "report",
    }
)
"""What sources and jobs of our own are called: a Prometheus server of that name would be taken for one of them."""


class Settings(Part):
    """The whole file."""

    cluster: str = Field("default", description="name of the cluster, a label of everything", min_length=1)
    targets: tuple[TargetSettings, ...] = Field((), description="the engine replicas, one by one")
    target_files: tuple[TargetFileSettings, ...] = Field((), description="or in files")
    event_logs: tuple[EventLogSettings, ...] = Field((), description="event logs on this machine")
    request_logs: tuple[RequestLogSettings, ...] = Field((), description="request logs on this machine")
    request_log_formats: Path | None = Field(None, description="file with further formats of request logs, or other ones")
    routers: tuple[RouterSettings, ...] = Field((), description="the replicas of the router, one by one")
    base_models: tuple[str, ...] = Field((), description="served names that are base models, no adapters")
    gpus: GpuSettings = Field(GpuSettings(), description=GpuSettings.__doc__)
    prometheus: tuple[PrometheusSettings, ...] = Field((), description="Prometheus servers to read from")
    credentials: Mapping[str, CredentialSettings] = Field(
        default_factory=dict, description="by name, for use in the sections above"
    )
    collect: CollectSettings = Field(CollectSettings(), description=CollectSettings.__doc__)
    derive: DeriveSettings = Field(DeriveSettings(), description=DeriveSettings.__doc__)
    diagnose: DiagnoseSettings = Field(DiagnoseSettings(), description=DiagnoseSettings.__doc__)
    cost: CostSettings = Field(CostSettings(), description=CostSettings.__doc__)
    report: ReportSettings = Field(ReportSettings(), description=ReportSettings.__doc__)
    store: StoreSettings = Field(StoreSettings(), description=StoreSettings.__doc__)
    exporter: ExporterSettings = Field(ExporterSettings(), description=ExporterSettings.__doc__)
    log: LogSettings = Field(LogSettings(), description=LogSettings.__doc__)

    @model_validator(mode="after")
    def _names_resolve(self) -> "Settings":
        named = {kind: getattr(self, kind) for kind in ("targets", "target_files", "prometheus", "routers")}
        named |= {"gpus.exporters": self.gpus.exporters, "report.webhooks": self.report.webhooks}
        for kind, entries in named.items():
            for i, entry in enumerate(entries):
                if entry.credentials is not None and entry.credentials not in self.credentials:
                    known = ", ".join(self.credentials) or "none are defined"
                    raise ValueError(f"{kind}[{i}].credentials names {entry.credentials!r}, which `credentials` lacks ({known})")
        sources = [
            server.name if system == "vllm" else f"{server.name}-{system}"
            for server in self.prometheus
            for system in server.systems
        ]
        if taken := sorted(RESERVED & {*sources, *(server.name for server in self.prometheus)}):
            raise ValueError(f"prometheus name {taken[0]!r} is one of our own sources' and jobs'; choose another")
        for what, names in (
            ("prometheus name", [p.name for p in self.prometheus]),
            ("source of a Prometheus", sources),
            ("GPU", [f"{gpu.gpu} of host {gpu.host} {gpu.instance}".strip() for gpu in self.gpus.pods]),
            ("router", [router.pod for router in self.routers if router.pod is not None]),
            ("pod", [t.pod for t in self.targets if t.pod is not None]),
            ("webhook", [webhook.name for webhook in self.report.webhooks]),
        ):
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{what} {repeated[0]!r} stands there twice; each needs a name of its own")
        return self


def load(file: Path) -> Settings:
    """
    Settings from a YAML file; relative folders in it become relative to the file's own folder.

    Raises ConfigError naming the file, each wrong key and what would be right.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration at {file}; `lora-watch config example > {file}` writes one to start from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {file}: {error}") from error
    return parse(text, where=str(file), folder=file.parent)


class _Strict(yaml.SafeLoader):
    """YAML whose keys stand there once each: of two, the last would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} stands there twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse(text: str, *, where: str = "configuration", folder: Path = Path()) -> Settings:
    """Settings from YAML text; ``folder`` is what relative paths are relative to. Raises ConfigError."""
    try:
        tree = yaml.load(text, Loader=_Strict)  # a safe loader
    except yaml.MarkedYAMLError as error:  # its own text quotes the line, which may hold what nobody should see in a log
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{place} is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError, KeyError, AttributeError) as error:  # a value that its tag does not fit
        raise ConfigError(f"{where} is not YAML: {error}") from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} holds a {type(tree).__name__}, not a mapping of keys")
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join([f"{where}:", *(f"  {line}" for line in _explain(error))])) from None
    store = settings.store.model_copy(update={"folder": folder / settings.store.folder})
    looks = settings.diagnose
    diagnose = looks.model_copy(
        update={
            "expected": folder / looks.expected,
            "router_configs": tuple(folder / name for name in looks.router_configs),
            "adapter_folders": tuple(folder / name for name in looks.adapter_folders),
        }
    )
    report = settings.report.model_copy(update={"folder": folder / settings.report.folder})
    logs = tuple(entry.model_copy(update={"folder": folder / entry.folder}) for entry in settings.event_logs)
    files = tuple(
        entry.model_copy(update={"files": tuple(str(folder / name) for name in entry.files)}) for entry in settings.target_files
    )
    request_logs = tuple(
        entry.model_copy(update={"files": tuple(str(folder / name) for name in entry.files)}) for entry in settings.request_logs
    )
    formats = None if settings.request_log_formats is None else folder / settings.request_log_formats
    return settings.model_copy(
        update={
            "store": store,
            "diagnose": diagnose,
            "report": report,
            "event_logs": logs,
            "target_files": files,
            "request_logs": request_logs,
            "request_log_formats": formats,
        }
    )


def _explain(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=False):
        path = _path(problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _fields_at(Settings, problem["loc"][:-1])
            nearest = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.5)
            hint = f"did you mean `{nearest[0]}`?" if nearest else f"known here: {', '.join(known)}"
            yield f"{path}: no such key; {hint}"
        elif problem["type"] == "missing":
            yield f"{path}: is required"
        else:
            yield f"{path or 'file'}: {problem['msg'].removeprefix('Value error, ')}"


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None and (inner := _part_of(field.annotation)) is not None:
            model = inner
    return list(model.model_fields)


def _part_of(annotation: Any) -> type[Part] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Part) else None
    return next((part for inner in get_args(annotation) if (part := _part_of(inner)) is not None), None)


def reference() -> str:
    """Every key with its default and meaning, as Markdown: the README's configuration reference is this text."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]

    def walk(model: type[Part], prefix: str) -> None:
        for name, field in model.model_fields.items():
            inner = _part_of(field.annotation)
            repeated = get_origin(field.annotation) is tuple
            mapped = get_origin(field.annotation) is not None and not repeated and inner is not None
            key = f"{prefix}{name}" + ("[]" if repeated and inner else ".<name>" if mapped else "")
            if inner is None or repeated or mapped:
                lines.append(f"| `{key}` | {_default(field)} | {field.description} |")
            if inner is not None:
                walk(inner, f"{key}.")

    walk(Settings, "")
    return "\n".join(lines) + "\n"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        return f"`{show_duration(value)}`"
    if value in (None, "", ()) or value == {}:
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


EXAMPLE = """\
# lora_watch configuration. Every key is optional; `lora-watch config check` reads this file and says what is wrong.
cluster: default

targets:                                  # engine replicas, one by one
  - pod: vllm-0
    pool: chat
    metrics: http://127.0.0.1:8000/metrics
    agent: http://127.0.0.1:9465          # the sidecar: leave out where no agent is installed
  # credentials: cluster-token

# target_files:                           # or Prometheus file_sd files
#   - files: [targets/*.json]
#     agent_port: 9465

# prometheus:                             # or a Prometheus that already scrapes them
#   - url: http://prometheus:9090
#     selector: namespace="llm"

# request_logs:                           # JSON lines of a gateway or proxy: openai, litellm, envoy
#   - {files: [/var/log/litellm/requests.jsonl], format: litellm, pod: litellm}

# routers:                                # llm-d's Endpoint Picker: who was sent where
#   - pod: epp-0
#     pool: chat
#     metrics: http://epp:9090/metrics

# gpus:                                   # dcgm-exporter: how busy the GPUs were
#   exporters:
#     - metrics: http://node-1:9400/metrics
#   pods:
#     - {host: node-1, gpu: 0, pod: vllm-0}

# credentials:
#   cluster-token:
#     bearer_file: /var/run/secrets/token

# report:                                 # of each week, on Monday at 6:00 UTC: see docs/report.md
#   enabled: true
#   webhooks:
#     - {name: chat, url_env: CHAT_WEBHOOK, body: text}

store:
  folder: ./lora-watch-data
"""
"""What ``lora-watch config example`` prints."""
