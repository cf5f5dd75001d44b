"""Which adapters are variants of which, by their names: ``x`` and ``x-experiment``, ``x_v2``, ``x-2026-03-05``."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from lora_watch.derive.found import NONE_NAMED, structures
from lora_watch.derive.groups import POOL, ranked_provenance
from lora_watch.model import Window

SEPARATORS = "-_.@:/+~# "
"""Characters between a name and its suffix."""
LONGEST_SUFFIX = 8
"""Separators from the end of a name that are looked at: a name may be 10 kB of them."""
SHARED_BY = 3
"""Parents that must bear the same unknown suffix for it to name a variant: an A/B test has a name of its own."""
_WORDS = re.compile("[" + re.escape(SEPARATORS) + "]")
_EXPERIMENT = frozenset(
    {"experiment", "experimental", "exp", "expt", "ab", "abtest", "test", "testing", "canary", "candidate", "cand", "challenger"}
    | {"champion", "control", "ctrl", "treatment", "variant", "var", "trial", "pilot", "shadow", "holdout", "a", "b", "alpha"}
    | {"beta", "rc", "dev", "staging", "stage", "preview", "next", "new", "old", "tmp", "draft", "debug", "final", "latest"}
    | {"stable", "prod", "production", "backup", "copy", "retrain", "retrained", "hotfix", "fix", "dpo", "sft", "rlhf"}
)
_NUMBERED = re.compile(r"(?:experiment|exp|test|variant|var|arm|group|cand|rc|beta|alpha)\d{1,4}")
_VERSION = re.compile(r"(?:v|ver|version|r|rev|release)\d{1,6}")
_DATE = re.compile(r"20\d\d(?:(?:0[1-9]|1[0-2])(?:(?:0[1-9]|[12]\d|3[01])(?:t?\d{4,6}z?)?)?)?")
_REVISION = re.compile(r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}")
_SMALL = re.compile(r"\d{1,2}")
_CLOCK = re.compile(r"t?\d{1,6}z?")


@dataclass(frozen=True, slots=True)
class Relative:
    """
    A name that reads as a variant.

    ``base`` is the name without any suffix that is known, ``parent`` the longest existing name that it is a variant of (None:
    there is none), ``suffix`` what follows the parent, or the base where there is none, with its separator. ``kind``:
    ``experiment``, ``version``, ``date``, ``revision`` (of a commit), or ``shared`` (unknown, and several parents have it).
    """

    name: str
    base: str
    parent: str | None
    suffix: str
    kind: str


def relatives(names: Iterable[str]) -> list[Relative]:
    """
    The names that are variants of others, sorted.

    A name is read from its end: what follows a separator is a variant's suffix if it is made of words for experiments (also
    numbered: ``exp3``), versions (``v2``, ``v2.1``), dates (``2026``, ``20260305``, ``2026-03-05``) or a revision (seven hex
    digits or more with a letter and a digit). Parent is the longest existing name of which the rest is such a suffix. Any other
    rest names a variant only if ``SHARED_BY`` existing names or more have a relative with exactly that rest. A name without an
    existing parent is listed if another one without has the same base. Counts of requests play no part: from counts alone the
    parent is found one time in four.

    Edge cases. ``x-7`` and ``x-de`` are not variants of ``x``: numbers count customers and words are languages, unless they are
    shared. Upper and lower case are one in suffixes and two in the rest. Any text is a name; an empty one is nobody's parent.

    >>> [(r.name, r.parent, r.kind) for r in relatives(["x", "x-experiment", "x_v2", "x-2026-03-05", "x-de", "y-v2"])]
    [('x-2026-03-05', 'x', 'date'), ('x-experiment', 'x', 'experiment'), ('x_v2', 'x', 'version')]
    """
    known = frozenset(names)
    read: dict[str, tuple[str, str | None, str]] = {}
    unknown: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in known:
        base, parent, kind = name, None, ""
        for prefix, suffix in _cuts(name):
            said = _kind(suffix[1:])
            if said:
                base, kind = prefix, kind or said
                parent = parent or (prefix if prefix in known else None)
            elif prefix in known:
                unknown[suffix].append((name, prefix))
        if base != name:
            read[name] = (base, parent, kind)
    found: dict[str, Relative] = {}
    for suffix, pairs in unknown.items():
        if len({parent for _, parent in pairs}) >= SHARED_BY:
            for name, parent in pairs:
                longest = found.get(name)
                if name not in read and (longest is None or len(parent) > len(longest.parent or "")):
                    found[name] = Relative(name, read.get(parent, (parent,))[0], parent, suffix, "shared")
    siblings: dict[str, int] = defaultdict(int)
    for base, parent, _ in read.values():
        siblings[base] += parent is None
    for name, (base, parent, kind) in read.items():
        if parent is not None or siblings[base] > 1:
            stem = parent if parent is not None else base
            found[name] = Relative(name, base, parent, name[len(stem) :], kind)
    return [found[name] for name in sorted(found)]


def families(seen: pl.LazyFrame, window: Window) -> pl.LazyFrame:
    """
    Variants among the adapters of each pool, one row each, by their names alone (:func:`relatives`).

    ``seen`` are rows with cluster, pool, role, adapter, at and provenance: requests, events or both. Columns, between the head
    (adapters: parent, where there is one, and variant; pods: none; start and end: first and last row of the variant in the
    window) and provenance: ``variant``, ``parent``, ``base``, ``suffix``, ``kind``, ``variant_rows`` and ``parent_rows`` (rows
    in the window: requests, if those were given). Never flagged: that variants are there is no trouble; see the early warning
    for what they do.

    Edge cases. Names count that have a row before the window's end, in what was handed over; a variant without a row in the
    window has none here. Roles are pools of their own.
    """
    inside = pl.col("at") >= window.start
    rows = (
        seen.filter(pl.col("adapter").is_not_null() & (pl.col("at") < window.end))
        .group_by(*POOL, "adapter")
        .agg(
            start=pl.col("at").filter(inside).min(),
            end=pl.col("at").filter(inside).max() + 1,
            rows=inside.sum().cast(pl.Int64),
            ranked=ranked_provenance().max(),
        )
        .with_columns(provenance=pl.col("ranked").cast(pl.String))
        .drop("ranked")
        .collect(engine="streaming")
        .lazy()
    )
    named = rows.group_by(POOL).agg("adapter").with_columns(said=pl.col("adapter").map_batches(_read_lists, return_dtype=_SAID))
    said = named.drop("adapter").explode("said", empty_as_null=False, keep_nulls=False).unnest("said")
    parents = rows.select(*POOL, parent="adapter", parent_rows="rows")
    return structures(
        said.join(rows.rename({"adapter": "variant"}), on=[*POOL, "variant"], nulls_equal=True)
        .filter(pl.col("start").is_not_null())
        .join(parents, on=[*POOL, "parent"], how="left", nulls_equal=False)
        .with_columns(
            pods=NONE_NAMED,
            adapters=pl.concat_list("parent", "variant").list.drop_nulls(),
            flagged=pl.lit(value=False),
            variant_rows="rows",
        ),
        ("variant", "parent", "base", "suffix", "kind", "variant_rows", "parent_rows"),
        by=("start", "variant"),
    )


_RELATIVE = {name: pl.String() for name in ("variant", "parent", "base", "suffix", "kind")}
_SAID = pl.List(pl.Struct(_RELATIVE))


def _read_lists(lists: pl.Series) -> pl.Series:
    """The relatives in each list of names."""
    found = [
        [
            {"variant": one.name, "parent": one.parent, "base": one.base, "suffix": one.suffix, "kind": one.kind}
            for one in relatives(names)
        ]
        for names in lists.to_list()
    ]
    return pl.Series(lists.name, found, dtype=_SAID)


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """The name cut before each of its last separators: (what is before, the rest with the separator), shortest rest first."""
    place = len(name)
    for _ in range(LONGEST_SUFFIX):
        place = max(name.rfind(separator, 0, place) for separator in SEPARATORS)
        if place <= 0:
            return
        yield name[:place], name[place:]


def _kind(suffix: str) -> str | None:
    """What kind of variant a suffix names, None where it names none."""
    words = _WORDS.split(suffix.casefold())
    kinds: list[str] = []
    for word in words:
        before = kinds[-1] if kinds else None
        if word in _EXPERIMENT or _NUMBERED.fullmatch(word):
            kinds.append("experiment")
        elif _VERSION.fullmatch(word):
            kinds.append("version")
        elif _DATE.fullmatch(word):
            kinds.append("date")
        elif _REVISION.fullmatch(word):
            kinds.append("revision")
        elif before and (_SMALL.fullmatch(word) or (before == "date" and _CLOCK.fullmatch(word))):
            kinds.append(before)  # the rest of a version or date: v2.1, 2026-03-05, exp-3
        else:
            return None
    return next(kind for kind in ("experiment", "date", "version", "revision") if kind in kinds)
