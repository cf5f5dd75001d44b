"""A small report whose numbers fit the head, and one that is all hostile names."""

from dataclasses import replace

from lora_watch.model import DAY, HOUR, Window
from lora_watch.recommend.advice import Advice, Effect, Kind, Place, Recommendation, Setup, Verdict
from lora_watch.report.summary import summary
from lora_watch.report.weekly import (
    AddsUp,
    Advised,
    Evicted,
    Happened,
    Head,
    Hour,
    Incidents,
    Lost,
    Missing,
    Offender,
    Offenders,
    Outcome,
    Policies,
    PoolWeek,
    Promise,
    Quality,
    Quiet,
    Rows,
    Ruled,
    Standing,
    WeekBefore,
    WeeklyReport,
)
from lora_watch.report.weeks import week_named

WEEK = week_named("2026-W10")
START = WEEK.window.start
BEFORE = Window(START - 23 * DAY, START)
POOL = "prod / chat"
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "a|b`c`[x](http://evil.example/)*_~",
    "two\r\nBcc: victim@example.com",
    "\u202egnp.exe \u2066 ]]>",
    "مرحبا-v2",
    "\ud800half",
    "{{7*7}} ${jndi:ldap://x} =1+1",
    "<!channel> @everyone https://evil.example/",
    "n" * 10_000,
)
"""Names that somebody may have typed."""


def slots(verdict: Verdict = Verdict.ADVISED) -> Advice:
    """One slot more, proven on the week."""
    return Advice(
        Kind.SLOTS,
        verdict,
        "+1 slot per pod",
        "6 of 10 swaps bring back who left for want of one slot.",
        Effect(0.58, 0.52, 0.63, 420, 1000, 0.2, 12.5),
        WEEK.window,
        None,
        "replay with round robin",
        "3,100 KV-cache tokens a pod",
        "a rolling restart",
        True,
        "--max-loras 5",
        amount=1,
        provenance="observed",
    )


def pins(verdict: Verdict = Verdict.NOT_WORTH) -> Advice:
    """Two pins that gain nothing for sure."""
    return Advice(
        Kind.PINS,
        verdict,
        "pin 2 adapters",
        "The lower bound is below zero.",
        Effect(0.01, -0.02, 0.03, 990, 1000),
        WEEK.window,
        BEFORE,
        "replay with round robin",
        "two slots",
        "",
        False,
        "vLLM has no pin over HTTP",
        amount=2,
        adapters=("legal-v2", "sales-v2"),
        places=(Place("legal-v2", "vllm-0"), Place("sales-v2", "vllm-1")),
        provenance="observed",
    )


def article() -> Advice:
    """The usual rule, which makes it worse."""
    return replace(
        pins(Verdict.HARMFUL),
        what="pin the top 5",
        adapters=("legal-v2", "sales-v2", "hr-v2", "code-v2", "search-v2"),
        effect=Effect(-0.11, -0.15, -0.08, 1110, 1000),
    )


def report() -> WeeklyReport:
    """A week with an incident on Thursday, of which all but an hour is held."""
    hours = tuple(
        Hour(START + at * HOUR, 3600.0, 2, 3600 + 36 * at, 40 + at, 36 + at, 40 + at, 3600, 0.2 + at / 100) for at in range(3)
    )
    pool = PoolWeek(POOL, 2, 6, 10_908, 123, 111, 123, 10_800, 0.08, 1.25, 7 * 86_400.0, "observed", hours)
    head = Head(WEEK, WEEK.window.end + 6 * HOUR, Window(START, WEEK.window.end - HOUR), None, complete=True)
    incident = Happened(
        "20260305-1015-3fa9c1",
        POOL,
        "harm",
        "closed",
        START + 3 * DAY + 10 * HOUR + 15 * 60_000_000,
        START + 3 * DAY + 14 * HOUR,
        13_500.0,
        7200.0,
        "20 new adapters (`*-experiment`) carry 42 % of requests",
        "an A/B test that nobody announced",
        "one more slot per pod: removes 33 % of the swaps",
        ("new-adapters", "thrash"),
    )
    incidents = Incidents(told=True, found=(incident,))
    lost = (Lost(POOL, 123, 0, 32.15, 336.0, 80.38, "USD", "observed"),)
    offenders = Offenders(
        (
            Offender("legal-v2", POOL, 1, 6000, 0.55, 70, 0.57, 18.0, 0.01, new=False),
            Offender("legal-v2-experiment", POOL, 1, 3000, 0.275, 53, 0.43, 14.15, 0.02, new=True),
        ),
        (Offender("*-experiment", POOL, 3, 3000, 0.275, 53, 0.43, 14.15, 0.02),),
    )
    recommendation = Recommendation(
        Setup(POOL, "vllm", "0.32.0", 2, 4),
        Window(START - 23 * DAY, WEEK.window.end),
        "Pin nothing; add 1 slot per pod: −58 % swaps (52 … 63 %), for 3,100 KV-cache tokens a pod.",
        (slots(), pins()),
        article(),
        {"pooled Belady": 0.7, "hindsight-static pins": 0.02},
        "round robin",
        START - 10 * DAY,
        "observed",
        ("one pod is gone since",),
    )
    advice = (Advised(POOL, recommendation),)
    promises = (
        Promise(
            POOL,
            WEEK.window,
            (
                Outcome("ours: pins", "pin nothing", None, None, None, 0.0, mine=True),
                Outcome("ours: slots", "+1 slot per pod", 0.55, 0.48, 0.61, 0.58, mine=True),
                Outcome("top 5 of 30 days", "", None, None, None, -0.11),
                Outcome("pooled Belady", "", None, None, None, 0.7, "loads", bound=True),
            ),
            1000,
        ),
    )
    ruled = (Ruled(POOL, article(), pins()),)
    policies = (
        Policies(
            POOL,
            10_908,
            (
                Evicted("LRU", 1000, 1000, "replay with round robin"),
                Evicted("LFU", 950, 1000, "replay with round robin"),
                Evicted("time-weighted", 1020, 1000, "replay with round robin"),
                Evicted("Belady's MIN", 600, 1010, "replay on the recorded pods", bound=True),
            ),
        ),
    )
    quality = Quality(
        167 / 168,
        3600.0,
        "observed",
        (Quiet(POOL, 3, START + DAY, START + DAY + 2 * HOUR),),
        (Missing(POOL, "vllm-0", "disk full", 120),),
        (Rows("adapter_events", "observed", 246), Rows("requests", "observed", 10_908)),
        (AddsUp(POOL, 0.0, 108, 10_908),),
    )
    pools = (pool,)
    return WeeklyReport(
        head,
        summary(head, pools, incidents, lost, offenders, advice, promises, quality),
        pools,
        incidents,
        lost,
        offenders,
        advice,
        promises,
        ruled,
        policies,
        quality,
        WeekBefore(9000, 100, 120, 1.5),
    )


def empty() -> WeeklyReport:
    """A week of which next to nothing is known."""
    whole = report()
    head = replace(whole.head, held=Window(START, START + HOUR), complete=False, pool="", made_at=START + DAY)
    quality = Quality(1 / 24, 82_800.0, None)
    standing = Incidents(told=False, standing=(Standing("pool", "unknown", "nothing tells of it"),))
    advice = (Advised("", None, "no pool has requests"),)
    nothing = Offenders()
    return WeeklyReport(
        head,
        summary(head, (), standing, (), nothing, advice, (), quality),
        (),
        standing,
        (),
        nothing,
        advice,
        (Promise("", None, why="no pool has requests"),),
        (Ruled("", None, None, "no pool has requests"),),
        (Policies("", 0, (), "no pool has requests"),),
        quality,
    )


def hostile() -> WeeklyReport:
    """Every text that anybody may have chosen is an attack."""
    whole = report()
    every = "".join(HOSTILE)
    text = f"{every[:400]} and the rest"
    pools = tuple(replace(whole.pools[0], pool=name) for name in HOSTILE)
    found = tuple(
        replace(whole.incidents.found[0], pool=name, title=f"60 adapters ({name})", cause=name, remedy=name, id=name)
        for name in HOSTILE
    )
    offenders = Offenders(
        tuple(replace(whole.offenders.adapters[0], name=name, pool=name) for name in HOSTILE),
        tuple(replace(whole.offenders.families[0], name=f"*{name}", pool=name) for name in HOSTILE),
    )
    made = whole.advice[0].recommendation
    assert made is not None
    advice = tuple(
        replace(one, what=name, why=name, cost=name, risk=name, how=name, adapters=HOSTILE)
        for name in HOSTILE
        for one in made.advice
    )
    return replace(
        whole,
        head=replace(whole.head, pool=HOSTILE[0]),
        summary=tuple(f"{name} {text}" for name in HOSTILE[:5]),
        pools=pools,
        incidents=Incidents(told=True, found=found),
        lost=tuple(replace(whole.lost[0], pool=name, currency=name) for name in HOSTILE),
        offenders=offenders,
        advice=tuple(Advised(name, replace(made, sentence=name, advice=advice, gaps=HOSTILE)) for name in HOSTILE[:2]),
        promises=tuple(
            replace(whole.promises[0], pool=name, outcomes=(Outcome(name, name, 0.1, 0.0, 0.2, 0.1, mine=True),))
            for name in HOSTILE
        ),
        article=tuple(Ruled(name, replace(article(), adapters=HOSTILE), None, name) for name in HOSTILE),
        policies=tuple(replace(whole.policies[0], pool=name) for name in HOSTILE),
        quality=replace(
            whole.quality,
            quiet=tuple(replace(whole.quality.quiet[0], pool=name) for name in HOSTILE),
            missing=tuple(Missing(name, name, name, 1) for name in HOSTILE),
            adds_up=tuple(AddsUp(name, None, 0, 0) for name in HOSTILE),
        ),
    )
