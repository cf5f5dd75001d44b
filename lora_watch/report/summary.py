"""The week in five lines: what happened, what it cost, who, what to do, and how far all this can be trusted. Pure."""

from collections.abc import Iterator, Sequence

from lora_watch.diagnose.words import count, listed, named
from lora_watch.recommend.advice import Verdict
from lora_watch.report.weekly import (
    Advised,
    Head,
    Incidents,
    Lost,
    Offender,
    Offenders,
    Outcome,
    PoolWeek,
    Promise,
    Quality,
)
from lora_watch.report.words import big, change, hours, interval, lasted, money, ratio, when

THIN = 0.95
"""A report about less of the week than this says so in its first lines."""
LEAST_SHARE = 0.005
"""Who took less of the loads is not named first."""
FAMILY_SHARE = 0.1
"""A family that took so much of the loads is named before single adapters."""


def summary(
    head: Head,
    pools: Sequence[PoolWeek],
    incidents: Incidents,
    lost: Sequence[Lost],
    offenders: Offenders,
    advice: Sequence[Advised],
    promises: Sequence[Promise],
    quality: Quality,
) -> tuple[str, ...]:
    """Five sentences or pairs of them, in this order; each says what is unknown."""
    return (
        _happened(head, pools, incidents),
        _cost(lost),
        _who(offenders),
        _do(advice),
        _trust(head, promises, quality),
    )


def _happened(head: Head, pools: Sequence[PoolWeek], incidents: Incidents) -> str:
    if not incidents.told:
        looked = incidents.looked is not None and incidents.looked >= head.week.window.start
        begin = "Nothing was found" if looked else "No service looked for incidents"
        bad = [one for one in incidents.standing if one.state not in ("healthy", "unknown")]
        if bad:
            what = "; ".join(f"{one.pool} stands at {one.state} ({_first(one.findings, one.sentence)})" for one in bad[:2])
            return f"{begin}; at the end of the data {what}."
        states = listed(list(dict.fromkeys(one.state for one in incidents.standing)))
        return f"{begin}; at the end of the data pools are: {states}."
    grave = incidents.found[0]
    harm = sum(one.harm_seconds for one in incidents.found)
    total = count(len(incidents.found), "incident")
    felt = f", {lasted(harm)} of harm" if harm else ", none of harm"
    whose = f"{grave.pool}, " if len(pools) > 1 else ""
    which = "From" if len(incidents.found) == 1 else "The gravest, from"
    what = (grave.cause if harm else "") or grave.title  # the title of a harm is the harm, which is said already
    return f"{total}{felt}. {which} {whose}{when(grave.start)} on: {what.rstrip('.')}."


def _first(findings: Sequence[str], otherwise: str) -> str:
    return (findings[0] if findings else otherwise).rstrip(".")


def _cost(lost: Sequence[Lost]) -> str:
    if not lost:
        return "What loads cost is unknown: no engine's events are held."
    gone, whole = sum(one.gpu_hours_lost for one in lost), sum(one.gpu_hours or 0.0 for one in lost)
    least = "at least " if any(one.unknown_loads for one in lost) else ""
    share = f", {ratio(gone / whole)} of all" if whole else ""
    priced = [one for one in lost if one.money_lost is not None]
    price = f" ({money(sum(one.money_lost or 0.0 for one in priced), priced[0].currency)})" if priced else ""
    return f"{big(sum(one.loads for one in lost))} loads took {least}{hours(gone)} GPU hours{share}{price}."


def _who(offenders: Offenders) -> str:
    several = len({one.pool for one in offenders.adapters}) > 1  # shares are of the pool's own requests and loads
    family = next((one for one in offenders.families if (one.load_share or 0) >= FAMILY_SHARE), None)
    if family is not None:
        if several:
            shares = f"{ratio(family.request_share)} of its requests, {ratio(family.load_share)} of its loads"
            return f"{named(family.name)}, {count(family.members, 'adapter')} of {named(family.pool)}: {shares}."
        shares = f"{ratio(family.request_share)} of the requests, {ratio(family.load_share)} of the loads"
        return f"{named(family.name)}, {count(family.members, 'adapter')}: {shares}."
    worst: list[Offender] = [one for one in offenders.adapters if (one.load_share or 0.0) >= LEAST_SHARE][:3]
    if not worst:
        return (
            "No adapter stands out."
            if any(one.loads for one in offenders.adapters)
            else "No adapter was loaded, as far as is told."
        )
    if several:
        told = [f"{named(one.name)} of {named(one.pool)} ({ratio(one.load_share)})" for one in worst]
        return f"Loaded most, with the share of their pool's loads: {', '.join(told)}."
    told = [f"{named(one.name)} ({ratio(one.load_share)})" for one in worst]
    return f"Loaded most: {', '.join(told)} of the loads."


def _do(advice: Sequence[Advised]) -> str:
    told = [one for one in advice if one.recommendation is not None]
    if not told:
        return f"No advice: {_first([one.why for one in advice if one.why], 'nothing could be replayed')}."
    parts = []
    for one in told[:2]:
        assert one.recommendation is not None
        best = next((each for each in one.recommendation.advice if each.verdict is Verdict.ADVISED), None)
        text = one.recommendation.sentence
        if not text and best is not None:
            low, high = best.effect.sure
            text = f"{best.what}: {change(best.effect.removed)} {best.effect.of} ({interval(low, high)})."
        text = text or "change nothing: no change is proven to help."
        parts.append(f"{one.pool}: {text}" if len(told) > 1 else f"{text[:1].upper()}{text[1:]}")
    return " ".join(parts)


def _trust(head: Head, promises: Sequence[Promise], quality: Quality) -> str:
    return " ".join(_trusted(head, promises, quality))


def _promised(well: int, all_: int) -> str:
    if all_ == 1:
        return f"What was promised a week ago {'held' if well else 'did not hold'}."
    return f"{well} of {all_} promises of a week ago held."


def _trusted(head: Head, promises: Sequence[Promise], quality: Quality) -> Iterator[str]:
    mine: list[Outcome] = [one for each in promises for one in each.outcomes if one.mine]
    kept = [one for one in mine if one.kept is not None]
    if kept:
        well = sum(bool(one.kept) for one in kept)
        yield _promised(well, len(kept))
    elif mine and mine[0].removed is not None:
        yield f"Last week's advice would have changed swaps by {change(mine[0].removed)}."
    else:
        yield "Nothing was promised last week that could be held against this one."
    if not head.complete:
        yield "The week has not ended yet."
    if quality.held_ratio < THIN:
        yield f"Only {ratio(quality.held_ratio)} of the week is held."
    missing = sum(one.records for one in quality.missing)
    lost = f"{big(missing)} records were lost" if missing else "no records were lost"
    yield f"Known by: {quality.provenance or 'nobody'}; {lost}."
