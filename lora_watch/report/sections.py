"""The report in words: each field of the value as one section. Pure; HTML and Markdown are both written from this."""

from collections.abc import Iterator, Sequence

from lora_watch.diagnose.words import count, listed, percent
from lora_watch.explore.view import moment
from lora_watch.model import SECOND
from lora_watch.recommend.advice import Advice, Kind, Recommendation, Verdict
from lora_watch.report.blocks import (
    Cell,
    Column,
    Course,
    Document,
    Estimates,
    Grid,
    Line,
    Mark,
    Section,
    Tile,
    Tone,
)
from lora_watch.report.weekly import (
    Advised,
    Evicted,
    Happened,
    Lost,
    Offender,
    Outcome,
    Policies,
    PoolWeek,
    Promise,
    Ruled,
    WeeklyReport,
    served,
)
from lora_watch.report.words import UNKNOWN, big, change, hours, interval, lasted, money, ratio, seconds, when

QUESTIONS = ("What happened", "What it cost", "Who", "What to do", "How sure")
"""What each of the five lines answers."""
DRAWN = 4
"""Pools whose course is drawn, the busiest; every one is in the tables."""
LISTED = 12
"""Incidents told one by one."""
_TONES = {"harm": Tone.BAD, "warn": Tone.WARN, "healthy": Tone.GOOD, "watch": Tone.WARN}
_VERDICTS = {
    Verdict.ADVISED: ("proven to help", Tone.GOOD),
    Verdict.NOT_WORTH: ("not worth it", Tone.DIM),
    Verdict.UNPROVEN: ("can't be judged", Tone.DIM),
    Verdict.HARMFUL: ("makes it worse", Tone.BAD),
}
FAR = 1.5
"""A replay of the present with so many times the measured swaps, or so few, is said to be off."""
COVERED = 0.9
"""So much of the judged time must have been measured for that."""
PRESENT_SHARE = "share of the present that is gone; left of the line: it adds some"


def document(report: WeeklyReport) -> Document:
    """The whole report, section by section, in the order in which it is read."""
    head = report.head
    scope = f"pool {head.pool or repr('')}" if head.pool is not None else "all pools"
    state = "" if head.complete else " · not ended yet"
    return Document(
        f"LoRA adapters, week {head.week.name}",
        f"{head.week.words}, UTC · {scope}{state}",
        tuple(zip(QUESTIONS, report.summary, strict=True)),
        tuple(_tiles(report)),
        (
            _week(report),
            _incidents(report),
            _cost(report),
            _offenders(report),
            *(_advice(one, report) for one in report.advice),
            _promises(report),
            _article(report),
            _policies(report),
            _quality(report),
        ),
        f"Made {moment(head.made_at)} UTC by lora_watch, which reads and never changes a cluster. Shares are of what is "
        "named beside "
        "them; unknown is never zero.",
    )


def _tiles(report: WeeklyReport) -> Iterator[Tile]:
    pools, before = report.pools, report.before
    asked, swaps = served(pools, "requests"), sum(one.swaps for one in pools)
    adapters = count(served(pools, "adapters"), "adapter")
    yield Tile("Requests for adapters", big(asked), note=adapters + _beside(asked, None if before is None else before.requests))
    harm = sum(one.harm_seconds for one in report.incidents.found)
    if report.incidents.told:
        yield Tile(
            "Time in harm",
            lasted(harm) if harm else "none",
            note=count(len(report.incidents.found), "incident"),
            tone=Tone.BAD if harm else Tone.GOOD,
        )
    known, missed = sum(one.known for one in pools), sum(one.missed for one in pools)
    ratio_told = f"{percent(missed / known)} of requests found no slot" if known else "misses unknown"
    yield Tile("Swaps", big(swaps), note=ratio_told + _beside(swaps, None if before is None else before.swaps))
    gone, least = sum(one.gpu_hours_lost for one in report.lost), any(one.unknown_loads for one in report.lost)
    whole = sum(one.gpu_hours or 0.0 for one in report.lost)
    priced = [one for one in report.lost if one.money_lost is not None]
    price = f" · {money(sum(one.money_lost or 0.0 for one in priced), priced[0].currency)}" if priced else ""
    yield Tile(
        "GPU hours lost to loads",
        f"{'> ' if least else ''}{hours(gone)}" if report.lost else UNKNOWN,
        note=(f"{percent(gone / whole)} of {big(whole)}" if whole else "of how many is unknown") + price,
    )
    slowest = max((one for one in pools if one.p95_seconds is not None), key=lambda one: one.p95_seconds or 0.0, default=None)
    median = "" if slowest is None else f"median {seconds(slowest.p50_seconds)}"
    was = f" · {seconds(before.p95_seconds)} the week before" if before and before.p95_seconds is not None else ""
    whose = f", {slowest.pool}" if slowest is not None and len(pools) > 1 else ""
    yield Tile("P95 to the first token", UNKNOWN if slowest is None else seconds(slowest.p95_seconds), note=median + whose + was)


def _beside(now: int, before: int | None) -> str:
    """
    How a count stands beside that of the week before.

    >>> _beside(110, 100), _beside(90, 100), _beside(5, 0), _beside(5, None)
    (' · +10 % on the week before', ' · −10 % on the week before', ' · none the week before', '')
    """
    if before is None:
        return ""
    return f" · {change((before - now) / before)} on the week before" if before else " · none the week before"


def _week(report: WeeklyReport) -> Section:
    window = report.head.week.window
    bands = tuple(
        (since := max(one.start, window.start), since + round(one.seconds * SECOND), one.severity) for one in _banded(report)
    )
    charts = tuple(_course(one, report, bands) for one in report.pools[:DRAWN])
    rows = tuple(
        (
            Cell(one.pool),
            Cell(str(one.pods)),
            Cell(str(one.adapters)),
            Cell(big(one.requests)),
            Cell(big(one.swaps)),
            Cell("–" if one.swaps_per_second is None else f"{one.swaps_per_second:.3f}"),
            Cell(ratio(one.miss_ratio)),
            Cell(seconds(one.p50_seconds)),
            Cell(seconds(one.p95_seconds)),
            Cell(one.provenance or UNKNOWN, Tone.DIM),
        )
        for one in report.pools
    )
    columns = (
        Column("Pool", name=True),
        *(
            Column(title, number=True)
            for title in ("Pods", "Adapters", "Requests", "Swaps", "Swaps/s a pod", "Misses", "TTFT p50", "TTFT p95")
        ),
        Column("Known"),
    )
    return Section(
        "week",
        "The week, hour by hour",
        charts=charts,
        grids=(Grid("Each pool over what is held of the week", columns, rows),),
        notes=(
            (
                "A swap is an eviction that makes room for a load. Misses are requests that found their adapter in no slot, "
                "of those of "
                "which it is known. TTFT: time from arrival to the first token."
            ),
        ),
    )


def _course(pool: PoolWeek, report: WeeklyReport, bands: tuple[tuple[int, int, str], ...]) -> Course:
    window = report.head.week.window
    mine = tuple(band for band, one in zip(bands, _banded(report), strict=True) if (pool.whole or pool.pool) == one.pool)
    peak = max(pool.hours, key=lambda hour: hour.swaps, default=None)
    about = f"{pool.pool}: requests, swaps and P95 to the first token by hour."
    if peak is not None and peak.swaps:
        about += f" Most swaps in the hour from {when(peak.at)}: {big(peak.swaps)}."
    lines = (
        Line("requests a second", tuple((hour.at, hour.requests / hour.seconds) for hour in pool.hours), "/s", "area"),
        Line(
            "swaps a second and pod",
            tuple((hour.at, hour.swaps / hour.seconds / max(hour.pods, 1)) for hour in pool.hours),
            "/s",
            "bad",
        ),
        Line("P95 to the first token", tuple((hour.at, hour.p95_seconds) for hour in pool.hours), " s", "slow"),
    )
    return Course(pool.pool, about, window, report.head.held, lines, mine)


def _banded(report: WeeklyReport) -> list[Happened]:
    return [one for one in report.incidents.found if one.severity != "information"]


def _incidents(report: WeeklyReport) -> Section:
    told = report.incidents
    if not told.told:
        stood = tuple(
            (
                Cell(one.pool),
                Cell(one.state, _TONES.get(one.state, Tone.PLAIN)),
                Cell(
                    ". ".join(
                        (one.sentence.rstrip("."), *(each.rstrip(".") for each in one.findings if each not in one.sentence))
                    )
                ),
            )
            for one in told.standing
        )
        looked = report.incidents.looked
        if looked is not None and looked >= report.head.week.window.start:
            lead = (
                f"None is stored: as far as a service looked (last {when(looked)}), nothing was found. One look at "
                "the end of the data says:"
            )
        else:
            lead = (
                "No finding is stored for this week: what was wrong in it, and for how long, is unknown unless a "
                "service looked. One look "
                "at the end of the data says:"
            )
        return Section(
            "incidents",
            "Incidents",
            lead,
            grids=(Grid("How each pool stood then", (Column("Pool", name=True), Column("State"), Column("In words")), stood),),
            notes=("`lora-watch serve` looks every minute and stores what it finds.",),
        )
    harm = [one for one in told.found if one.harm_seconds]
    lead = (
        (
            f"{count(len(told.found), 'incident')}, {len(harm)} with harm to users "
            f"({lasted(sum(one.harm_seconds for one in harm))} in all)."
        )
        if harm
        else f"{count(len(told.found), 'incident')}; none harmed users, as far as is known."
    )
    rows = tuple(_incident(one) for one in told.found[:LISTED])
    columns = (
        Column("Began"),
        Column("Pool", name=True),
        Column("Severity"),
        Column("Lasted", number=True),
        Column("Harm", number=True),
        Column("What, and why", name=True),
        Column("What helps most"),
    )
    more = len(told.found) - LISTED
    notes = (f"{more} more: `lora-watch incidents` lists all.",) if more > 0 else ()
    return Section(
        "incidents",
        "Incidents",
        lead,
        grids=(Grid("The gravest first", columns, rows),),
        notes=(
            *notes,
            "`lora-watch incidents show ID --format md` drafts the post-mortem of one. Predicted effects are replays.",
        ),
    )


def _incident(one: Happened) -> tuple[Cell, ...]:
    goes_on = {"open": "goes on", "unknown": "end unknown"}.get(one.status)
    return (
        Cell(when(one.start), sub=one.id),
        Cell(one.pool),
        Cell(one.severity, _TONES.get(one.severity, Tone.PLAIN)),
        Cell(lasted(one.seconds), sub=goes_on or ""),
        Cell(lasted(one.harm_seconds) if one.harm_seconds else "–", Tone.BAD if one.harm_seconds else Tone.DIM),
        Cell(f"{one.title.rstrip('.')}.", sub=f"{one.cause.rstrip('.')}." if one.cause else "No cause is known."),
        Cell(one.remedy or "nothing is predicted to"),
    )


def _cost(report: WeeklyReport) -> Section:
    columns = (
        Column("Pool", name=True),
        *(Column(title, number=True) for title in ("Loads", "GPU hours lost", "of GPU hours", "Share", "Money")),
        Column("Known"),
    )
    rows = tuple(_lost(one) for one in report.lost)
    priced = any(one.money_lost is not None for one in report.lost)
    notes = [
        (
            "While an engine loads an adapter, all of its GPUs stand still: that time is counted, the longer queues behind "
            "it are not."
        )
    ]
    if not priced:
        notes.append("Set `cost.gpu_hour_price` in the configuration to have it in money.")
    if any(one.unknown_loads for one in report.lost):
        notes.append("“>”: some loads did not say how long they took, so it was more.")
    return Section(
        "cost",
        "GPU hours and money lost to loads",
        report.summary[1],
        grids=(Grid("By pool", columns, rows),),
        notes=tuple(notes),
    )


def _lost(one: Lost) -> tuple[Cell, ...]:
    least = "> " if one.unknown_loads else ""
    return (
        Cell(one.pool),
        Cell(big(one.loads)),
        Cell(f"{least}{hours(one.gpu_hours_lost)}"),
        Cell(UNKNOWN if one.gpu_hours is None else big(one.gpu_hours)),
        Cell(ratio(one.lost_ratio)),
        Cell(least + money(one.money_lost, one.currency) if one.money_lost is not None else "–"),
        Cell(one.provenance or UNKNOWN, Tone.DIM),
    )


def _offenders(report: WeeklyReport) -> Section:
    several = len(report.pools) > 1
    columns = (
        Column("Adapter", name=True),
        *((Column("Pool", name=True),) if several else ()),
        *(Column(title, number=True) for title in ("Requests", "of requests", "Loads", "of loads", "Misses", "GPU hours lost")),
        Column(""),
    )
    grids = [
        Grid(
            "Adapters, by the GPU time that their loads took",
            columns,
            _offending(report.offenders.adapters, several=several),
        )
    ]
    if report.offenders.families:
        family = (Column("Family", name=True), *columns[1:])
        grids.append(
            Grid(
                "Families, by names that belong together",
                family,
                _offending(report.offenders.families, several=several),
            )
        )
    return Section(
        "offenders",
        "Who was loaded most",
        report.summary[2],
        grids=tuple(grids),
        notes=(
            (
                "An adapter that is loaded often is not at fault: it is asked for often enough to come back, not often "
                "enough to stay."
            ),
        ),
    )


def _offending(told: Sequence[Offender], *, several: bool) -> tuple[tuple[Cell, ...], ...]:
    """Their rows; bars are drawn beside the largest of their column, where there are others to be held against."""
    shares = [[getattr(one, name) or 0.0 for one in told] for name in ("request_share", "load_share")]
    most = [max(column) if len(column) > 1 else 0.0 for column in shares]
    return tuple(_offender(one, *most, several=several) for one in told)


def _offender(one: Offender, requests: float, loads: float, *, several: bool) -> tuple[Cell, ...]:
    note = "new this week" if one.new else count(one.members, "adapter") if one.members > 1 else ""
    return (
        Cell(one.name),
        *((Cell(one.pool),) if several else ()),
        Cell(big(one.requests)),
        Cell(ratio(one.request_share), bar=_of(one.request_share, requests)),
        Cell(big(one.loads)),
        Cell(ratio(one.load_share), bar=_of(one.load_share, loads)),
        Cell(ratio(one.miss_ratio)),
        Cell(hours(one.gpu_hours_lost)),
        Cell(note, Tone.WARN if one.new else Tone.DIM),
    )


def _of(share: float | None, most: float) -> float | None:
    return None if share is None or not most else share / most


def _advice(one: Advised, report: WeeklyReport) -> Section:
    heading = f"What to do: {one.pool}" if one.pool else "What to do"
    made = one.recommendation
    if made is None:
        return Section("advice", heading, f"No advice: {one.why}")
    columns = (
        Column("Change", name=True),
        Column("Verdict"),
        Column("What hurts", number=True),
        Column("GPU hours saved a month", number=True),
        Column("Costs", name=True),
        Column("How", name=True),
    )
    rows = tuple(_advised(*each) for each in _reasons(made.advice))
    marks = tuple(
        Mark(each.what, each.effect.removed, *each.effect.sure, _VERDICTS[each.verdict][1], each.effect.of)
        for each in made.advice
        if each.effect.removed is not None
    )
    chart = Estimates("What each change would have removed in this week", f"{one.pool}: {PRESENT_SHARE}.", marks, PRESENT_SHARE)
    return Section(
        "advice",
        heading,
        made.sentence or _best(made),
        charts=(chart,) if marks else (),
        grids=(Grid("Every change that was tried", columns, rows),),
        notes=(*_evidence(made), *_doubts(one, report)),
    )


def _best(made: Recommendation) -> str:
    best = next((one for one in made.advice if one.verdict is Verdict.ADVISED), None)
    return (
        "Change nothing: no change is proven to help." if best is None else f"{best.what[:1].upper()}{best.what[1:]}: {best.why}"
    )


def _reasons(advice: Sequence[Advice]) -> Iterator[tuple[Advice, str, str]]:
    """Each with its reason and its risk, those that were not given before."""
    given: set[str] = set()
    for one in advice:
        why, risk = ("" if text in given else text for text in (one.why, one.risk))
        yield one, why, risk
        given |= {one.why, one.risk}


def _advised(one: Advice, why: str, risk: str) -> tuple[Cell, ...]:
    word, tone = _VERDICTS[one.verdict]
    whom = listed(one.adapters) if one.adapters else ""
    why = f"{why[:1].upper()}{why[1:].rstrip('.')}." if why else ""
    saved = one.effect.gpu_hours_saved
    if one.can is False and one.verdict is Verdict.ADVISED:
        word, tone = "helps, not possible here", Tone.DIM
    return (
        Cell(one.what, sub=" ".join(filter(None, (f"{whom}." if whom else "", why)))),
        Cell(word, tone),
        Cell(
            change(one.effect.removed) + ("" if one.effect.removed is None else f" {one.effect.of}"),
            sub=interval(*one.effect.sure),
        ),
        Cell(UNKNOWN if saved is None else hours(saved) if saved >= 0 else f"−{hours(-saved)}"),
        Cell(one.cost or "–", sub=risk if risk != one.cost else ""),
        Cell(one.how or UNKNOWN),
    )


def _evidence(made: Recommendation) -> Iterator[str]:
    every = [one for one in made.advice if one.judged is not None]
    told = [one for one in every if one.kind is not Kind.PINS] or every  # pins are judged on weeks of their own, and say so
    longest = max(told, key=lambda one: 0.0 if one.judged is None else one.judged.seconds, default=None)
    if longest is not None and longest.judged is not None:
        judged, method = longest.judged, longest.method
        shorter = sum(one.judged != judged for one in told)
        yield (
            f"Judged on {moment(judged.start)} … {moment(judged.end)} UTC by {method or 'replay'}"
            f"{f', {shorter} of them on a part of it' if shorter else ''}; provenance: {made.provenance or 'unknown'}."
        )
    if made.bounds:
        bounds = ", ".join(f"{name} {percent(share)}" for name, share in made.bounds.items())
        yield f"Bounds without more slots, which know what is to come: {bounds} of the loads."
    if made.learning_cut is not None:
        yield f"Nothing from before {moment(made.learning_cut)} UTC was learned from: the mix of adapters changed then."
    yield from made.gaps


def _doubts(one: Advised, report: WeeklyReport) -> Iterator[str]:
    """Where the replay of the present is far from what was measured, its shares are worth less than their intervals say."""
    made = one.recommendation
    mine = next((each for each in report.pools if each.pool == one.pool), None)
    judged = next((each for each in made.advice if each.judged is not None and each.effect.base_swaps), None) if made else None
    if mine is None or judged is None or judged.judged is None or not judged.effect.base_swaps:
        return
    inside = [hour for hour in mine.hours if judged.judged.start <= hour.at < judged.judged.end]
    measured = sum(hour.swaps for hour in inside)
    covered = sum(hour.seconds for hour in inside) >= COVERED * judged.judged.seconds
    if covered and measured and not 1 / FAR <= judged.effect.base_swaps / measured <= FAR:
        yield (
            f"The replay of the present makes {big(judged.effect.base_swaps)} swaps where {big(measured)} were measured: "
            "its shares are "
            "less sure than their intervals say."
        )


def _promises(report: WeeklyReport) -> Section:
    heading = "Last week's advice: promised, and what it would have done"
    told = [one for one in report.promises if one.outcomes]
    if not told:
        why = next((one.why for one in report.promises if one.why), "nothing was advised before this week")
        return Section("promises", heading, f"Nothing to hold against this week: {why}.".replace("..", "."))
    columns = (
        Column("Rule", name=True),
        Column("Meant", name=True),
        *(Column(title, number=True) for title in ("Promised", "95 % interval", "Would have done")),
        Column(""),
    )
    grids, charts = [], []
    for one in told:
        grids.append(
            Grid(f"{one.pool}: learned before the week, judged on it", columns, tuple(_outcome(each) for each in one.outcomes))
        )
        charts.append(
            Estimates(
                f"{one.pool}: what each rule would have done in this week; the line is what was promised",
                f"{one.pool}: {PRESENT_SHARE}.",
                tuple(
                    Mark(
                        f"{each.rule} ({each.what})" if each.mine else each.rule,
                        each.removed,
                        each.low,
                        each.high,
                        Tone.GOOD if each.mine else Tone.DIM if each.bound else Tone.PLAIN,
                    )
                    for each in one.outcomes
                ),
                PRESENT_SHARE,
            )
        )
    mine = [each for one in told for each in one.outcomes if each.mine]
    return Section(
        "promises",
        heading,
        _held(told, mine),
        charts=tuple(charts),
        grids=tuple(grids),
        notes=(
            (
                "Shares of the swaps of plain LRU in the same replay. The rule saw nothing of the week that it is judged "
                "on; rules that know "
                "the week (hindsight, Belady) are bounds that nobody can reach."
            ),
        ),
    )


def _held(told: Sequence[Promise], mine: Sequence[Outcome]) -> str:
    if not mine:
        return f"{count(len(told), 'pool')} judged."
    kept = [one.kept for one in mine if one.kept is not None]
    first = mine[0]
    first = max((one for one in mine if one.promised is not None), key=lambda one: one.promised or 0.0, default=first)
    text = f"Advised a week ago: {first.what.rstrip('.')}."
    if first.promised is not None and first.removed is not None:
        text += f" Promised {change(first.promised)} {first.of}, would have done {change(first.removed)}"
        text += {True: ", inside its interval.", False: ", outside its interval.", None: "."}[first.kept]
    elif first.removed is not None:
        text += f" It would have changed swaps by {change(first.removed)}."
    return f"{text} {sum(kept)} of {len(kept)} promises held." if len(kept) > 1 else text


def _outcome(one: Outcome) -> tuple[Cell, ...]:
    word, tone = {True: ("kept", Tone.GOOD), False: ("not kept", Tone.BAD), None: ("", Tone.DIM)}[one.kept]
    return (
        Cell(one.rule, Tone.GOOD if one.mine else Tone.PLAIN),
        Cell(one.what or "–"),
        Cell("–" if one.promised is None else change(one.promised)),
        Cell(interval(one.low, one.high) or "–"),
        Cell(change(one.removed) + ("" if one.removed is None else f" {one.of}")),
        Cell("a bound" if one.bound else word, tone),
    )


def _article(report: WeeklyReport) -> Section:
    heading = "The usual rule, beside ours"
    lead = (
        "Pin the 5 adapters with most requests in 30 days, as an article on this trouble has it: replayed on the "
        "same week as our advice."
    )
    columns = (
        Column("Pool", name=True),
        Column("Rule"),
        Column("Pins", name=True),
        *(Column(title, number=True) for title in ("Swaps", "95 % interval")),
        Column("Verdict"),
    )
    rows = tuple(row for one in report.article for row in _ruled(one))
    if not rows:
        why = next((one.why for one in report.article if one.why), "nothing could be replayed")
        return Section("article", heading, f"{lead} This week it can't be: {why}.".replace("..", "."))
    return Section("article", heading, lead, grids=(Grid("Both rules, judged alike", columns, rows),))


def _ruled(one: Ruled) -> Iterator[tuple[Cell, ...]]:
    for rule, advice in (("top 5 by 30-day count", one.article), ("ours", one.ours)):
        if advice is None:
            yield (Cell(one.pool), Cell(rule), Cell(one.why or "no pins were tried", Tone.DIM), Cell("–"), Cell("–"), Cell(""))
            continue
        word, tone = _VERDICTS[advice.verdict]
        yield (
            Cell(one.pool),
            Cell(rule),
            Cell(listed(advice.adapters, 10) if advice.adapters else "none"),
            Cell(change(advice.effect.swaps_removed)),
            Cell(interval(advice.effect.low, advice.effect.high) or "–"),
            Cell(word, tone),
        )


def _policies(report: WeeklyReport) -> Section:
    heading = "Other eviction policies, on your own log"
    told = [one for one in report.policies if one.rows]
    if not told:
        why = next((one.why for one in report.policies if one.why), "nothing could be replayed")
        return Section("policies", heading, f"Not compared: {why}.".replace("..", "."))
    columns = (
        Column("Policy"),
        *(Column(title, number=True) for title in ("Loads", "Beside LRU")),
        Column("How"),
    )
    charts = tuple(
        Estimates(
            f"{one.pool}: loads beside LRU",
            f"{one.pool}: {PRESENT_SHARE}.",
            tuple(
                Mark(each.policy, each.removed, tone=Tone.DIM if each.bound else Tone.PLAIN)
                for each in one.rows
                if each.policy != "LRU"
            ),
            "share of LRU's loads that is gone; left of the line: it adds some",
        )
        for one in told
    )
    grids = tuple(
        Grid(f"{one.pool}: {big(one.requests)} requests replayed", columns, tuple(_policy(each) for each in one.rows))
        for one in told
    )
    return Section(
        "policies",
        heading,
        _better(told),
        charts=charts,
        grids=grids,
        notes=(
            (
                "Engines evict the least recently used (LRU). LFU forgets over ten minutes; the time-weighted score is the "
                "article's. "
                "Belady's MIN knows every request that is to come: a bound, not a policy, and beside an LRU on the same terms."
            ),
        ),
    )


def _better(told: Sequence[Policies]) -> str:
    parts = []
    for one in told:
        rows = [each for each in one.rows if not each.bound and each.policy != "LRU"]
        best = max(rows, key=lambda each: each.removed or 0.0, default=None)
        bound = next((each for each in one.rows if each.bound), None)
        if best is not None and (best.removed or 0.0) > 0.01:
            text = f"{best.policy} would have changed loads by {change(best.removed)}"
        else:
            text = "none of them is better than LRU by more than 1 %"
        if bound is not None:
            text += f"; whoever knew the future, on these slots: {change(bound.removed)}"
        parts.append(f"{one.pool}: {text}." if len(told) > 1 else f"{text[:1].upper()}{text[1:]}.")
    return " ".join(parts)


def _policy(one: Evicted) -> tuple[Cell, ...]:
    return (
        Cell(one.policy, Tone.DIM if one.bound else Tone.PLAIN),
        Cell(big(one.loads)),
        Cell("the engines' own" if one.policy == "LRU" else change(one.removed)),
        Cell(one.method, Tone.DIM),
    )


def _quality(report: WeeklyReport) -> Section:
    told, head = report.quality, report.head
    bullets = []
    if head.held is not None:
        bullets.append(
            f"Held: {when(head.held.start)} … {when(head.held.end)} UTC, {percent(told.held_ratio)} of the week"
            + ("." if told.late_seconds < 120 else f"; the newest row lies {lasted(told.late_seconds)} before its end.")
        )
    silent = sum(one.hours for one in told.quiet)
    bullets.append(
        "No hour in between is without rows." if not silent else f"{count(silent, 'hour')} in between without any row:"
    )
    bullets += [
        f"{one.pool}: {count(one.hours, 'hour')}, the longest stretch {when(one.start)} … {when(one.end)}" for one in told.quiet
    ]
    records = sum(one.records for one in told.missing)
    bullets.append(
        f"{big(records)} records were lost before anyone could read them." if records else "No record is told as lost."
    )
    for one in told.adds_up:
        residual = "unknown" if one.residual_ratio is None else percent(one.residual_ratio)
        lookups = f"{percent(one.unknown_lookups / one.requests)} of requests" if one.requests else "no request"
        bullets.append(
            f"{one.pool}: slot-time that records don't explain (Little's law): {residual}; where it found its adapter is "
            f"unknown of {lookups}."
        )
    grids = [
        Grid(
            "Rows by how they are known",
            (Column("Table"), Column("Known by"), Column("Rows", number=True)),
            tuple((Cell(one.table), Cell(one.provenance or UNKNOWN), Cell(big(one.rows))) for one in told.rows),
        )
    ]
    if told.missing:
        grids.append(
            Grid(
                "Lost records",
                (
                    Column("Pool", name=True),
                    Column("Pod", name=True),
                    Column("Reason", name=True),
                    Column("Records", number=True),
                ),
                tuple(
                    (Cell(one.pool), Cell(one.pod), Cell(one.reason or "not said"), Cell(big(one.records)))
                    for one in told.missing
                ),
            )
        )
    return Section(
        "quality",
        "How good the data are",
        "",
        tuple(bullets),
        grids=tuple(grids),
        notes=(
            (
                "observed: the agent, residency gauges or engine logs said so · inferred: worked out from what was used · "
                "activity: only requests "
                "in flight were seen, a lower bound · registry, desired: what is served or asked for."
            ),
        ),
    )
