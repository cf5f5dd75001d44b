"""Experiments that were announced: what is new because it was planned informs and does not warn."""

from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lora_watch.errors import ConfigError

Glob = Annotated[str, Field(min_length=1)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Expected(BaseModel):
    """
    New adapters that are planned: names (``*``, ``?`` and ``[…]`` stand for any) between ``start`` and ``end``, half-open.

    Times bear a zone (``2026-03-05T10:00:00Z``); ``note`` says what for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: AwareDatetime
    end: AwareDatetime
    adapters: tuple[Glob, ...] = Field(min_length=1)
    note: str = ""

    @field_validator("start", "end", mode="before")
    @classmethod
    def _written_out(cls, value: object) -> object:
        if isinstance(value, (int, float)):
            raise ValueError(f"write a time like 2026-03-05T10:00:00Z, not {value}")
        return value

    @field_validator("adapters", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> "Expected":
        for name, moment in (("start", self.start), ("end", self.end)):
            try:
                moment.astimezone(UTC)
            except OverflowError:
                raise ValueError(f"{name} is not within the years 1 to 9999 of UTC") from None
        if self.end <= self.start:
            raise ValueError(f"it ends at {self.end.isoformat()}, before it starts at {self.start.isoformat()}")
        return self

    def matches(self, adapter: str, at: int) -> bool:
        """Whether the adapter is announced at this time (µs UTC). Upper and lower case differ."""
        return _us(self.start) <= at < _us(self.end) and any(fnmatchcase(adapter, glob) for glob in self.adapters)


def announced(expected: Sequence[Expected], adapter: str, at: int) -> Expected | None:
    """The first announcement that names the adapter at this time (µs UTC); None where there is none."""
    return next((one for one in expected if one.matches(adapter, at)), None)


def parse(text: str, where: str = "expected experiments") -> tuple[Expected, ...]:
    """
    Announcements from YAML: a list of ``start``, ``end``, ``adapters`` (a name or a list of them) and ``note``.

    An empty file announces nothing.

    Raises ConfigError that says which entry and key is wrong, and why; a time without a zone is wrong.

    >>> parse("- {start: 2026-03-05T10:00Z, end: 2026-03-05T18:00Z, adapters: ['*-experiment']}")[0].adapters
    ('*-experiment',)
    """
    try:
        tree = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError, KeyError, AttributeError) as error:  # a value that its tag does not fit
        raise ConfigError(f"{where} is not YAML: {error}") from None
    if tree is None:
        return ()
    if not isinstance(tree, list):
        raise ConfigError(f"{where} is a list of entries, each with start, end and adapters, not a {type(tree).__name__}")
    entries, wrong = [], []
    for place, entry in enumerate(tree, 1):
        try:
            entries.append(Expected.model_validate(entry))
        except ValidationError as error:
            wrong += [
                f"  entry {place}, {'.'.join(map(str, one['loc'])) or 'as a whole'}: {one['msg']}" for one in error.errors()
            ]
    if wrong:
        raise ConfigError("\n".join([f"{where}:", *wrong]))
    return tuple(entries)


def append(text: str, expected: Expected, where: str = "expected experiments") -> str:
    """
    The text of such a file with one more announcement at its end; what stands there, comments included, is left as it is.

    Raises ConfigError where the text is wrong already, or is written in brackets, to which nothing can be appended.
    """
    before = parse(text, where)
    tree = {
        "start": _text(expected.start),
        "end": _text(expected.end),
        "adapters": list(expected.adapters),
        **({"note": expected.note} if expected.note else {}),
    }
    kept = text if before or not text.strip() or text.strip().startswith("#") else ""
    for readable in (True, False):  # YAML reads a few characters as line breaks (U+0085) that it writes as they are
        block = yaml.dump([tree], Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=readable, width=1000)
        whole = kept + ("\n" if kept and not kept.endswith("\n") else "") + block
        if _is(whole, (*before, expected)):
            return whole
    raise ConfigError(f"{where}: write one entry after the other, each beginning with '- ', so that another can follow")


def _is(text: str, expected: Sequence[Expected]) -> bool:
    """Whether a text says just these."""
    try:
        return parse(text) == tuple(expected)
    except ConfigError:
        return False


def _us(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class _Loader(yaml.SafeLoader):
    """YAML without its own idea of times, which forgets whether a zone was written."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
