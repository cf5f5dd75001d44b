"""What is simulated: a cluster, its traffic, what happens to both, and what is true of it. One YAML file each."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lora_watch.errors import ConfigError
from lora_watch.model import HOUR
from lora_watch.replay.routers import ARTICLE, LLM_D, LLM_D_RESIDENCY, RANDOM, ROUND_ROBIN, Router

MONDAY = 1_772_409_600_000_000
"""2026-03-02 00:00 UTC: where scenarios begin unless told otherwise."""
ROUTERS: Mapping[str, Router | None] = {
    "article": ARTICLE,
    "llm-d": LLM_D,
    "residency": LLM_D_RESIDENCY,
    "round-robin": ROUND_ROBIN,
    "random": RANDOM,
    "home": None,
}
"""Routers by the names that scenarios use; ``home`` sends adapter n to pod n mod pods, always."""
RANK_16_BYTES, RANK_64_BYTES = 65_536_000, 356_515_840
"""FP16 bytes of a rank-16 adapter on Q and V, and of a rank-64 one on Q, K and V, of Llama-3.1-70B."""

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
Code = Annotated[int, Field(ge=0)]
Hours = Annotated[float, Field(ge=1 / 60, le=10_000)]
MOST_ADAPTERS = 10_000
"""Adapters of a scenario, variants and later ones included."""


class Part(BaseModel):
    """A frozen piece of a scenario that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Pin(Part):
    """An adapter that is loaded when its pods start and never evicted. ``pods``: these, or all of the pool where empty."""

    adapter: int = Field(ge=0)
    pods: tuple[Code, ...] = ()


class Pool(Part):
    """Pods that are alike. ``cpu_capacity`` is by default as many as slots, as in vLLM: then there is no warm tier."""

    name: str = "pool"
    role: Literal["", "prefill", "decode"] = ""
    pods: int = Field(default=8, ge=1, le=1000)
    slots: int = Field(default=4, ge=1, le=10_000)
    cpu_capacity: int | None = Field(default=None, ge=1, le=1_000_000)
    seats: int = Field(default=180, ge=1, le=100_000)
    router: Literal["article", "llm-d", "residency", "round-robin", "random", "home"] = "article"
    scrape_seconds: float = Field(default=0, ge=0, le=86_400)
    pins: tuple[Pin, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> "Pool":
        if self.cpu_capacity is not None and self.cpu_capacity < self.slots:
            raise ValueError(f"what is in a slot is in the CPU cache: {self.cpu_capacity} places cannot hold {self.slots} slots")
        if any(pod >= self.pods for pin in self.pins for pod in pin.pods):
            raise ValueError(f"a pin is on pods 0 … {self.pods - 1}")
        most = max(len({pin.adapter for pin in self.pins if not pin.pods or p in pin.pods}) for p in range(self.pods))
        if most >= self.slots:
            raise ValueError(f"a pod needs a slot without a pin: {most} pins on {self.slots} slots")
        return self


class Loads(Part):
    """
    How long a load takes. ``vllm``: it stalls the step. ``article``: five phases, with the batch drained first.

    vllm: warm ``warm_seconds + bytes ÷ gpu_bytes_per_second``; cold ``cold_seconds + bytes ÷ disk_bytes_per_second`` more; each
    times 0.8 … 1.2. article: drain 0 … ``drain_seconds``, deallocation 5 ms, the transfer as above without the fixed parts,
    initialisation 20 ms, warm-up 50 … 100 ms.
    """

    profile: Literal["vllm", "article"] = "vllm"
    warm_seconds: float = Field(default=0.003, ge=0.001, le=300)
    cold_seconds: float = Field(default=0.02, ge=0, le=300)
    gpu_bytes_per_second: float = Field(default=20e9, ge=1e6, le=1e15)
    disk_bytes_per_second: float = Field(default=2.5e9, ge=1e6, le=1e15)
    drain_seconds: float = Field(default=0.5, ge=0, le=300)


class Pipeline(Part):
    """A request for ``first`` is followed by one for ``then``, with this probability, after an exponential delay."""

    first: int = Field(ge=0)
    then: int = Field(ge=0)
    probability: Share = 0.8
    delay_seconds: float = Field(default=4.0, gt=0, le=86_400)


class Traffic(Part):
    """
    Who asks for what. ``requests_per_second`` is the mean of a weekday over the cluster; adapter n (from 0) has the weight
    ``(n + 1) ** -zipf``, or the one that ``weights`` says, times ``exp(N(0, drift))`` drawn anew each day.

    ``daily_swing`` s: the rate is ``1 + s · cos(2π (hour − 14.67) ÷ 24)`` of the mean, in the adapter's zone (adapter n lives
    in ``zones[n mod len]``, hours ahead of UTC). ``weekend`` multiplies Saturdays and Sundays. Requests of one adapter come in
    sessions of ``session_requests`` (geometric mean), ``session_gap_seconds`` apart (exponential). Tokens are geometric. A
    request takes ``prompt ÷ prefill_tokens_per_second + generated · seconds_per_token``, once its adapter is there.
    """

    requests_per_second: float = Field(default=3.7, gt=0, le=100_000)
    adapters: int = Field(default=40, ge=1, le=5000)
    zipf: float = Field(default=1.0, ge=0, le=50)
    weights: tuple[Positive, ...] = ()
    drift: float = Field(default=0.0, ge=0, le=10)
    daily_swing: Share = 0.0
    weekend: float = Field(default=1.0, ge=0, le=1000)
    zones: tuple[Annotated[float, Field(ge=-24, le=24)], ...] = Field(default=(0.0,), min_length=1)
    session_requests: float = Field(default=1.0, ge=1, le=10_000)
    session_gap_seconds: float = Field(default=20.0, gt=0, le=86_400)
    base_share: float = Field(default=0.0, ge=0, lt=1)
    large_share: Share = 0.0
    growth_per_day: float = Field(default=0.0, gt=-1, le=10)
    prompt_tokens: float = Field(default=500, ge=1, le=5000)
    generated_tokens: float = Field(default=60, ge=1, le=5000)
    prefill_tokens_per_second: float = Field(default=5000, ge=1, le=1e9)
    seconds_per_token: float = Field(default=0.015, gt=0, le=60)
    pipelines: tuple[Pipeline, ...] = ()


class Event(Part):
    """Something that happens ``start`` hours after the begin (and lasts until ``end``; for good where absent)."""

    start: float = Field(ge=0, le=1_000_000)
    end: float | None = Field(default=None, le=1_000_000)

    def during(self, begin: int) -> tuple[int, int]:
        """First and last µs UTC (exclusive) for a scenario that begins at ``begin``."""
        return begin + round(self.start * HOUR), begin + round(self.end * HOUR) if self.end is not None else 1 << 60


class Split(Event):
    """
    An A/B test: of the ``top`` adapters, ``share`` of the requests go to a variant of each instead, and traffic is multiplied by
    ``growth``. Both are reached in a straight line over ``ramp_hours``, at once where that is 0.
    """

    kind: Literal["split"]
    top: int = Field(default=20, ge=1)
    share: Share = 0.5
    suffix: str = "-experiment"
    growth: float = Field(default=1.05, gt=0, le=1000)
    ramp_hours: float = Field(default=0.0, ge=0, le=10_000)

    def progress(self, at: NDArray[np.int64], begin: int) -> NDArray[np.float64]:
        """How much of the way is gone at these times (µs UTC), 0 … 1, in a scenario that begins at ``begin``; 0 outside of it."""
        start, end = self.during(begin)
        gone = np.ones(len(at)) if not self.ramp_hours else np.minimum((at - start) / (self.ramp_hours * HOUR), 1.0)
        return np.asarray(np.where((at >= start) & (at < end), gone, 0.0))


class Scan(Event):
    """A batch job: every ``every_hours`` it asks for each adapter in turn, ``requests`` times, spread over ``seconds``."""

    kind: Literal["scan"]
    every_hours: Hours = 24.0
    seconds: float = Field(default=600.0, gt=0, le=86_400)
    requests: int = Field(default=3, ge=1, le=10_000)


class Onboard(Event):
    """New adapters, which from then on carry ``share`` of what the others do."""

    kind: Literal["onboard"]
    adapters: int = Field(default=5, ge=1, le=5000)
    share: float = Field(default=0.1, gt=0, le=1000)


class Retire(Event):
    """Nobody asks for these adapters any more. ``unregister``: their names are withdrawn too, which frees no slot."""

    kind: Literal["retire"]
    adapters: tuple[Code, ...] = Field(min_length=1)
    unregister: bool = False


class Burst(Event):
    """Within ``seconds``, ``requests`` for each of these adapters."""

    kind: Literal["burst"]
    adapters: tuple[Code, ...] = Field(min_length=1)
    requests: int = Field(default=50, ge=1, le=1_000_000)
    seconds: float = Field(default=2.0, gt=0, le=86_400)
    every_hours: Hours | None = None


class Grow(Event):
    """Traffic is multiplied."""

    kind: Literal["grow"]
    factor: float = Field(default=1.2, gt=0, le=1000)


class SlowDisk(Event):
    """A read from disk takes ``factor`` times as long."""

    kind: Literal["slow-disk"]
    factor: float = Field(default=40.0, gt=0, le=1e6)


class Restart(Event):
    """A pod of a pool starts anew."""

    kind: Literal["restart"]
    pod: int = Field(ge=0)
    pool: int = Field(default=0, ge=0)


class Reload(Event):
    """While ``adapter`` runs on ``pod``, it is read from disk again, in place, every ``every_seconds``."""

    kind: Literal["reload"]
    adapter: int = Field(ge=0)
    pod: int = Field(ge=0)
    pool: int = Field(default=0, ge=0)
    every_seconds: float = Field(default=0.1, ge=0.005, le=3600)


AnyEvent = Annotated[Split | Scan | Onboard | Retire | Burst | Grow | SlowDisk | Restart | Reload, Field(discriminator="kind")]


class Truth(Part):
    """What a finding must say about the scenario, and what none may say."""

    healthy: bool = False
    must_say: tuple[str, ...] = ()
    must_not_say: tuple[str, ...] = ()


class Scenario(Part):
    """
    All of it. ``days`` is how long it has to be to show what it is for.

    What is stored of scrapes besides, straight into the tables: ``whole_pages``, an engine's histograms and remaining counters;
    ``router_attempts``, what the router tells of each pod (a row a sample for each pair of adapter and pod); ``sm_active``, the
    GPU counter that an exporter shows only when asked.
    """

    name: str
    about: str
    days: float = Field(default=2.0, gt=0, le=366)
    begin: int = Field(default=MONDAY, ge=946_684_800_000_000, le=4_000_000_000_000_000)
    cluster: str = "simulated"
    pools: tuple[Pool, ...] = Field(default=(Pool(),), min_length=1, max_length=2)
    loads: Loads = Loads()
    traffic: Traffic = Traffic()
    events: tuple[AnyEvent, ...] = ()
    truth: Truth
    steps_seconds: float = Field(default=10.0, ge=1, le=60)
    sample_seconds: float = Field(default=30.0, ge=1, le=3600)
    whole_pages: bool = False
    router_attempts: bool = False
    sm_active: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "Scenario":
        roles = [pool.role for pool in self.pools]
        if len(roles) == 2 and roles != ["prefill", "decode"]:
            raise ValueError(f"two pools are one for prefill and, behind it, one for decode; got {roles}")
        if len({pool.name for pool in self.pools}) < len(self.pools):
            raise ValueError("pools have names of their own")
        known = self.traffic.adapters
        every = known + sum(event.top for event in self.events if isinstance(event, Split))
        every += sum(event.adapters for event in self.events if isinstance(event, Onboard))
        if every > MOST_ADAPTERS:
            raise ValueError(f"there may be {MOST_ADAPTERS} adapters, not {every}")
        if self.traffic.weights and len(self.traffic.weights) != known:
            raise ValueError(f"weights are one for each of {known} adapters, got {len(self.traffic.weights)}")
        named = [pin.adapter for pool in self.pools for pin in pool.pins]
        named += [adapter for line in self.traffic.pipelines for adapter in (line.first, line.then)]
        restarts: set[tuple[int, int, float]] = set()
        for event in self.events:
            if isinstance(event, (Retire, Burst)):
                named += event.adapters
            if isinstance(event, (Restart, Reload)) and not (
                event.pool < len(self.pools) and event.pod < self.pools[event.pool].pods
            ):
                raise ValueError(f"{event.kind}: there is no pod {event.pod} in pool {event.pool}")
            if isinstance(event, Restart):
                moment = (event.pool, event.pod, event.start)
                if event.start == 0 or moment in restarts:
                    raise ValueError(f"restart: pod {event.pod} can't start anew at {event.start} h, when it starts anyway")
                restarts.add(moment)
            if isinstance(event, Reload):
                named.append(event.adapter)
            if (
                isinstance(event, Split)
                and sum(isinstance(other, Split) and other.suffix == event.suffix for other in self.events) > 1
            ):
                raise ValueError(f"split: the suffix {event.suffix} is used twice")
            if isinstance(event, Split) and event.top > known:
                raise ValueError(f"split: there are {known} adapters, not {event.top}")
            if event.end is not None and event.end <= event.start:
                raise ValueError(f"{event.kind} ends at {event.end} h, before it starts at {event.start} h")
        if named and max(named) >= known:
            raise ValueError(f"adapters are numbered 0 … {known - 1}, got {max(named)}")
        return self


def parse(text: str, where: str = "scenario") -> Scenario:
    """A scenario from YAML. Raises ConfigError naming each wrong key and why."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} holds a {type(tree).__name__}, not a mapping of keys")
    try:
        return Scenario.model_validate(tree)
    except ValidationError as error:
        wrong = [f"  {'.'.join(map(str, one['loc'])) or 'as a whole'}: {one['msg']}" for one in error.errors()]
        raise ConfigError("\n".join([f"{where}:", *wrong])) from None


def shipped() -> tuple[str, ...]:
    """The names of the scenarios that come with the package."""
    folder = files("lora_watch.simulate") / "scenarios"
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")))


def load(name: str) -> Scenario:
    """
    A shipped scenario by its name, or one's own by the path of its file (``.yaml``).

    Raises ConfigError, with the names there are, where there is none of that name; OSError's words where a file can't be read.
    """
    if name.endswith((".yaml", ".yml")):
        try:
            return parse(Path(name).read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the scenario {name}: {error}") from error
    if name not in shipped():
        raise ConfigError(f"there is no scenario {name!r}; there are {', '.join(shipped())}")
    text = (files("lora_watch.simulate") / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
    return parse(text, f"scenario {name}")
