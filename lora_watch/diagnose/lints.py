"""
What is wrong with how a pool is set up, before any traffic: facts in, findings out.

Each lint is one function of one row of :func:`lora_watch.derive.setup.setup` that says what is wrong, or None. Pods of a pool
with the same trouble share a finding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Possible, Remedy, Severity
from lora_watch.diagnose.words import count
from lora_watch.model import Provenance
from lora_watch.sources.adapter_files import AdapterFile
from lora_watch.sources.router_setup import RouterSetup

RANK_WASTE = 4.0
"""``max_lora_rank`` of so many times the largest rank in use or more is said: each slot is as large as its rank allows."""
AFFINITY_SCORERS = ("lora-affinity-scorer", "lora-load-state-scorer")
"""Scorers of llm-d's Endpoint Picker that look at adapters: the released one, and the one that its open proposal adds."""


@dataclass(frozen=True, slots=True)
class Lint:
    """
    One thing that is wrong with one pod; ``since`` (µs UTC) None: nobody knows since when.

    Pods with the same ``kind`` and ``scope`` share a finding, which tells of the one with the greatest ``extent``; where theirs
    differ ``what`` begins with "up to".
    """

    kind: str
    severity: Severity
    what: str
    cause: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    scope: str
    avoid: tuple[str, ...] = ()
    confidence: Confidence = Confidence.HIGH
    extent: int = 0
    since: int | None = None


def lints(
    setup: pl.DataFrame, at: int, routers: Iterable[RouterSetup] = (), files: Sequence[AdapterFile] = ()
) -> tuple[Finding, ...]:
    """
    Findings about the pods of ``setup`` and the ``routers``, at ``at`` (µs UTC). What is not known (null) is not judged.

    Where the adapters' ``files`` are given, they say which ranks there are; else the loads that were seen do. A finding is told
    since the first of its pods was set up so, as far as its records go (its worker started, the last name or pin that makes it
    so was told), and since ``at`` where none does.

    Kinds: ``slots-below-adapters`` (slots < adapters it serves; of one slot always, of more only where nobody asked for any in
    the window, for else the misses tell whether it matters), ``no-warm-tier`` (``max_cpu_loras`` = ``max_loras`` while there
    are more adapters than slots), ``pins-fill-slots`` (pins ≥ slots: nothing can be loaded any more; slots − 1: one is left),
    ``rank-waste`` (``max_lora_rank`` far above the ranks in use), ``no-lora-scorer`` (a profile of a router has no scorer that
    looks at adapters, in front of a pool with more adapters than slots).
    """
    if files:
        largest = max(files, key=lambda one: (one.rank, one.bytes or 0))
        setup = setup.with_columns(
            largest_rank=pl.max_horizontal("largest_rank", pl.lit(largest.rank)),
            largest_bytes=pl.when(pl.col("largest_rank").fill_null(0) > largest.rank)
            .then("largest_bytes")
            .otherwise(largest.bytes),
            known=pl.max_horizontal("known", pl.lit(len(files))),
        )
    found: dict[tuple[str, str, str, str, str], list[tuple[str, Lint]]] = {}
    for row in setup.sort("cluster", "pool", "role", "pod").iter_rows(named=True):
        for check in CHECKS:
            if lint := check(row):
                key = (row["cluster"], row["pool"] or "", row["role"] or "", lint.kind, lint.scope)
                found.setdefault(key, []).append((row["pod"], lint))
    findings = [
        Finding(
            kind=kind,
            severity=lint.severity,
            cluster=cluster,
            pool=pool,
            role=role,
            since=min((one.since for _, one in linted if one.since is not None), default=at),
            summary=f"{_pods(pods)}: {'' if len({one.extent for _, one in linted}) == 1 else 'up to '}{lint.what}",
            cause=lint.cause,
            confidence=lint.confidence,
            weight=float(len(pods)),
            evidence=lint.evidence,
            remedies=lint.remedies,
            avoid=lint.avoid,
            pods=tuple(pods),
            scope=scope,
        )
        for (cluster, pool, role, kind, scope), linted in found.items()
        for pods, lint in [([pod for pod, _ in linted], max((one for _, one in linted), key=lambda one: one.extent))]
    ]
    short = setup.filter(pl.col("known") > pl.col("slots"))
    return (*findings, *_routers(routers, short, at))


def _slots_below_adapters(row: Mapping[str, Any]) -> Lint | None:
    slots, known = row["slots"], row["known"]
    if slots is None or known is None or known <= slots or (slots > 1 and row["asked"]):
        return None
    return Lint(
        "slots-below-adapters",
        Severity.WARN if slots == 1 else Severity.INFORMATION,
        f"{known} adapters are served from {count(slots, 'slot')}",
        f"max_loras is {slots}: whenever more than {slots} adapters are wanted at the same time, some must be swapped. vLLM's "
        "default is 1, whatever the number of adapters.",
        (_said(row, "known", f"{known} adapters are known"), _said(row, "slots", f"max_loras = {slots}")),
        (
            Remedy(
                "slots",
                f"raise --max-loras from {slots} towards the adapters in use at a time (at most {known})",
                why="each slot takes GPU memory from the KV cache; the miss-ratio curve says how many pay",
            ),
        ),
        f"{slots} slots",
        ("Pins alone: they help the pinned adapters and take the slots from all others.",),
        extent=known,
        since=_since(row, "known_at", slots),
    )


def _no_warm_tier(row: Mapping[str, Any]) -> Lint | None:
    slots, cpu, known = row["slots"], row["cpu_capacity"], row["known"]
    if None in (slots, cpu, known) or cpu > slots or known <= slots:
        return None
    return Lint(
        "no-warm-tier",
        Severity.WARN,
        f"no warm tier: max_cpu_loras = max_loras = {slots}, so every miss reads the disk",
        f"max_cpu_loras was left at its default, which is max_loras ({slots}): an adapter that leaves its slot leaves CPU "
        "memory, too, and its next load comes from disk.",
        (
            _said(row, "cpu_capacity", f"max_cpu_loras = {cpu}"),
            _said(row, "slots", f"max_loras = {slots}"),
            _said(row, "known", f"{known} adapters are known"),
        ),
        (
            Remedy(
                "cpu-cache",
                f"raise max_cpu_loras (--max-cpu-loras) to {known} or more: a place costs CPU memory, no GPU memory",
                of="reads from disk",
            ),
        ),
        f"{slots} slots",
        ("A faster disk before a warm tier: memory is nearer still.",),
        since=_since(row, "known_at", slots),
    )


def _pins_fill_slots(row: Mapping[str, Any]) -> Lint | None:
    slots, pinned = row["slots"], row["pinned"]
    if not slots or not pinned or pinned < slots - 1 or (pinned < slots and slots == 1):
        return None
    full = pinned >= slots
    left = "none is" if full else "one is"
    return Lint(
        "pins-fill-slots",
        Severity.WARN,
        f"{pinned} of {slots} slots are pinned; {left} left for all other adapters",
        "Pinned adapters are never evicted: "
        + (
            "nothing else can be loaded any more, and the engine says that all items are pinned."
            if full
            else "all others share one slot."
        ),
        (_said(row, "pinned", f"{pinned} pins"), _said(row, "slots", f"max_loras = {slots}")),
        (
            Remedy(
                "unpin",
                "unpin what is asked for least",
                Possible.NOW,
                why="vLLM has no call that unpins: removing the adapter and adding it again does, and so does a restart",
            ),
            Remedy("slots", "raise --max-loras above the number of pins by what the others need"),
        ),
        f"{pinned} of {slots}",
        ("Pinning more adapters: vLLM 0.32 dies of a batch that wants more of them than there are slots without a pin.",),
        since=_since(row, "pinned_at", slots - 1 if full else slots - 2),
    )


def _rank_waste(row: Mapping[str, Any]) -> Lint | None:
    most, largest, size = row["max_rank"], row["largest_rank"], row["largest_bytes"]
    if not most or not largest or most < RANK_WASTE * largest:
        return None
    wasted = None if size is None or row["slots"] is None else size * (most / largest - 1) * row["slots"]
    evidence = [
        _said(row, "max_rank", f"max_lora_rank = {most}"),
        _said(row, "largest_rank", f"the largest rank of an adapter is {largest}"),
    ]
    if wasted is not None:
        evidence.append(
            Evidence(
                f"about {_bytes(wasted)} of GPU memory in {row['slots']} slots is never filled",
                "rank_wasted_bytes",
                wasted,
                "bytes",
                row["provenance"],
                "slot bytes grow with max_lora_rank",
            )
        )
    return Lint(
        "rank-waste",
        Severity.INFORMATION,
        f"max_lora_rank is {most}, the largest adapter in use has {largest}",
        f"Every slot is made for rank {most}, whatever is in it: the memory above rank {largest} holds nothing.",
        tuple(evidence),
        (
            Remedy(
                "configuration", f"lower --max-lora-rank to {largest} and use the memory for more slots or KV cache", of="memory"
            ),
        ),
        f"{most} for {largest}",
        confidence=Confidence.MEDIUM,  # a larger adapter may be known and not loaded yet
        since=row.get("since"),
    )


CHECKS: tuple[Callable[[Mapping[str, Any]], Lint | None], ...] = (
    _slots_below_adapters,
    _no_warm_tier,
    _pins_fill_slots,
    _rank_waste,
)


def _routers(routers: Iterable[RouterSetup], short: pl.DataFrame, at: int) -> Iterator[Finding]:
    """A finding for each router that routes to pods with more adapters than slots without looking at adapters."""
    if short.is_empty():
        return
    first = short.sort("cluster", "pool", "role", "pod").row(0, named=True)
    for router in routers:
        blind = sorted(name for name, scorers in router.profiles.items() if not set(scorers) & set(AFFINITY_SCORERS))
        if not blind:
            continue
        yield Finding(
            kind="no-lora-scorer",
            severity=Severity.WARN,
            cluster=first["cluster"],
            pool=first["pool"] or "",
            role="",
            since=at,  # its file does not say since when it is in force
            summary=f"the router of {router.where} does not look at adapters (profile {', '.join(blind)})",
            cause="No scorer for adapters runs there, so requests for one adapter go to every pod and each pod has to hold it.",
            confidence=Confidence.HIGH,
            weight=float(len(blind)),
            evidence=tuple(
                Evidence(
                    f"profile {name} scores by {', '.join(sorted(router.profiles[name])) or 'nothing'}",
                    "scorers",
                    float(len(router.profiles[name])),
                    "",
                    str(Provenance.DESIRED),
                )
                for name in blind
            ),
            remedies=(
                Remedy(
                    "routing",
                    "add lora-affinity-scorer to each of these profiles, with a weight no prefix hit outvotes (KServe uses 4)",
                    Possible.ROUTER,
                ),
            ),
            scope=router.where,
        )


def _said(row: Mapping[str, Any], name: str, text: str) -> Evidence:
    return Evidence(text, name, float(row[name]), "", row["provenance"])


def _since(row: Mapping[str, Any], column: str, place: int) -> int | None:
    """When the time in that place of a column of times was, or when the worker started, if that was later; None: not told."""
    started: int | None = row.get("since")
    times: Sequence[int] | None = row.get(column)
    if times is None or len(times) <= place:
        return started
    return times[place] if started is None else max(started, times[place])


def _pods(pods: list[str]) -> str:
    return pods[0] if len(pods) == 1 else f"{len(pods)} pods"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
