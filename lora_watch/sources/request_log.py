"""
Lines of other people's request logs as rows of `requests`: which field is which column is a mapping, kept in
``request_log_formats.yaml``.

Tells, observed: who asked for which adapter, when, how long it took, tokens. Does not tell when a request was scheduled, so
neither whether its adapter was in a slot. Pure but for ``load_formats``: where lines come from is request_log_files.py's
business.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from lora_watch.config import Part
from lora_watch.errors import ConfigError
from lora_watch.model import SECOND, PodId, Provenance
from lora_watch.sources.base import printable
from lora_watch.sources.event_log import EARLIEST, LATEST, decode

Unit = Literal["iso", "iso_utc", "s", "ms", "us", "ns"]
TimeName = Literal["arrived", "queued", "scheduled", "first_token", "finished"]
CountName = Literal["prompt_tokens", "generated_tokens", "cached_tokens", "preemptions"]
ORDER: tuple[TimeName, ...] = ("arrived", "queued", "scheduled", "first_token", "finished")
"""The times of a request, in the order in which they come."""
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST = (1 << 53) - 1
_FARTHEST = 1 << 61  # µs: twice that still fits a column
LONGEST_NAME = 65_536
"""Characters of a model's name: a longer one is a body in the wrong place."""


class TimeField(Part):
    """Where one time stands, and in which unit."""

    field: str = Field(description="its field", min_length=1)
    unit: Unit = Field(description="how it is written")
    after: TimeName | None = Field(None, description="it is a length that begins at this time")
    before: TimeName | None = Field(None, description="it is a length that ends at this time")

    @model_validator(mode="after")
    def _length_or_moment(self) -> "TimeField":
        if self.after and self.before:
            raise ValueError("a length begins or ends at another time, not both")
        if (self.after or self.before) and self.unit.startswith("iso"):
            raise ValueError("a length is a number: give it the unit s, ms, us or ns")
        return self


class Format(Part):
    """One kind of log: which field is which column."""

    about: str = Field("", description="what writes such logs")
    adapter: tuple[str, ...] = Field(description="fields that name the model asked for", min_length=1)
    strip: tuple[str, ...] = Field((), description="beginnings of that name that are a provider's, no adapter's")
    request_id: tuple[str, ...] = Field((), description="fields that name the request")
    pod: tuple[str, ...] = Field((), description="fields that say where it ran")
    times: Mapping[TimeName, tuple[TimeField, ...]] = Field(description="its times")
    counts: Mapping[CountName, tuple[str, ...]] = Field(default_factory=dict, description="its counts")
    finish_reason: tuple[str, ...] = Field((), description="fields that say how it ended")

    @model_validator(mode="after")
    def _has_an_end(self) -> "Format":
        if "finished" not in self.times:
            raise ValueError("times.finished is required: a row of `requests` is a request that has finished")
        return self


def load_formats(extra: Path | None = None) -> Mapping[str, Format]:
    """
    The formats by name: those that come with lora_watch, with those of the file ``extra`` added or in their place.

    Raises ConfigError naming the file and what is wrong with it.
    """
    known = dict(_shipped())
    if extra is not None:
        try:
            text = extra.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the formats of request logs in {extra}: {error}") from error
        known |= _parse(text, str(extra))
    return MappingProxyType(known)


@cache
def _shipped() -> Mapping[str, Format]:
    file = resources.files("lora_watch.sources") / "request_log_formats.yaml"
    return _parse(file.read_text(encoding="utf-8"), file.name)


def _parse(text: str, where: str) -> dict[str, Format]:
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} holds no mapping of names to formats")
    found: dict[str, Format] = {}
    for name, body in tree.items():
        try:
            found[str(name)] = Format.model_validate(body)
        except ValidationError as error:
            said = "; ".join(
                f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}"
                for one in error.errors(include_url=False, include_input=False)
            )
            raise ConfigError(f"{where}: format {printable(str(name))}: {said}") from None
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """
    How the lines of one log are read: its format, the pod of a line that names none, names that are base models, and the pods
    behind the addresses that lines name.
    """

    format: Format
    pod: PodId
    source: str
    base_models: Collection[str] = frozenset()
    pods: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def row(self, line: bytes) -> dict[str, Any] | str | None:
        """
        The row of a line, without stream and seq; a text says why it can't be read; None: it is no request.

        ``at`` is ``finished``. A count that is none is left null. Times out of their order, or outside 2000 … 2100, mean that a
        unit or a clock is wrong: the line is refused.
        """
        record = decode(line)
        if record is None:
            return "not a JSON object"
        model = _found(record, self.format.adapter)
        if model is None:
            return None
        if not isinstance(model, str) or len(model) > LONGEST_NAME:
            return f"the model's name is {printable(str(model))}"
        times = self._times(record)
        if isinstance(times, str):
            return times
        pod = _text(record, self.format.pod)
        where = self.pod.pod if pod is None else self.pods.get(pod, pod)
        return {
            "at": times["finished"],
            "cluster": self.pod.cluster,
            "pool": self.pod.pool,
            "role": self.pod.role,
            "pod": where,
            "engine": None,
            "request_id": _text(record, self.format.request_id),
            "adapter": self._adapter(model),
            **times,
            **{name: _count(_found(record, self.format.counts.get(name, ()))) for name in COUNTS},
            "finish_reason": _text(record, self.format.finish_reason),
            "provenance": str(Provenance.OBSERVED),
            "source": self.source,
        }

    def _adapter(self, model: str) -> str | None:
        name = next((model.removeprefix(start) for start in self.format.strip if model.startswith(start)), model)
        return None if name in self.base_models or model in self.base_models else name

    def _times(self, record: Mapping[str, Any]) -> dict[str, int | None] | str:
        known: dict[str, int | None] = dict.fromkeys(ORDER)
        trouble = ""
        for _ in ORDER:  # a length may wait for its beginning to be found
            for name, fields in self.format.times.items():
                if known[name] is None:
                    known[name], said = _time(record, fields, known)
                    trouble = said or trouble
        if known["finished"] is None:
            return trouble or "it has no time at which it finished"
        there = [(name, at) for name in ORDER if (at := known[name]) is not None]
        for name, at in there:
            if not EARLIEST <= at < LATEST:
                return f"{name} is not between 2000 and 2100: is the unit right?"
        for (first, begin), (second, end) in pairwise(there):
            if begin > end:
                return f"{second} lies before {first}"
        return known


COUNTS: tuple[CountName, ...] = ("prompt_tokens", "generated_tokens", "cached_tokens", "preemptions")


def _found(record: Mapping[str, Any], fields: Collection[str]) -> Any:
    """The first of the fields that is there; None where none is."""
    for name in fields:
        value = record.get(name)
        if value is None and "." in name:
            value = record
            for key in name.split("."):
                value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value not in ("", "-"):
            return value
    return None


def _text(record: Mapping[str, Any], fields: Collection[str]) -> str | None:
    value = _found(record, fields)
    return value if isinstance(value, str) else None if value is None else str(value)[:LONGEST_NAME]


def _number(value: Any) -> float | int | None:
    """A number, or the number that a text spells; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = int(value) if isinstance(value, int) or (isinstance(value, str) and len(value) < 20) else float(value)
    except ValueError:
        try:
            number = float(value)
        except ValueError:
            return None
    return number if abs(number) < 1e30 else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= _LARGEST and number == int(number) else None


def _time(record: Mapping[str, Any], fields: Collection[TimeField], known: Mapping[str, int | None]) -> tuple[int | None, str]:
    """The first of the fields that gives a time (µs UTC), and what was wrong with the others that are there."""
    trouble = ""
    for one in fields:
        value = _found(record, (one.field,))
        base = one.after or one.before
        start = 0 if base is None else known[base]
        if value is None or start is None:
            continue
        moment = _micros(value, one.unit)
        if moment is None or (base is not None and moment < 0):
            trouble = f"{one.field} is {printable(str(value))}, no {'time' if base is None else 'length'} in {one.unit}"
            continue
        return (start - moment if one.before else start + moment), ""
    return None, trouble


def _micros(value: Any, unit: Unit) -> int | None:
    """
    A value in µs; None where it is none of its unit.

    >>> _micros("1970-01-01T00:00:01.5Z", "iso"), _micros("2.5", "ms"), _micros("1970-01-01 00:00:01", "iso")
    (1500000, 2500, None)
    """
    if unit in ("iso", "iso_utc"):
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            return None
        if moment is not None and moment.tzinfo is None and unit == "iso_utc":
            moment = moment.replace(tzinfo=UTC)
        if moment is None or moment.tzinfo is None:
            return None
        try:
            return (moment - _EPOCH) // timedelta(microseconds=1)
        except OverflowError:
            return None
    number = _number(value)
    if number is None:
        return None
    per_second = _PER_SECOND[unit]
    micros = number * (SECOND // per_second) if per_second <= SECOND else number / (per_second // SECOND)
    return round(micros) if abs(micros) < _FARTHEST else None
