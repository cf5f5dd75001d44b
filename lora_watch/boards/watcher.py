"""Can the other boards be believed? What is read, how late, what got lost, and whether the service does its jobs."""

from lora_watch import names
from lora_watch.boards import colours, uids
from lora_watch.boards.overview_rows import TOP
from lora_watch.boards.panel import FULL_ONLY, Board, Column, Kind, Panel, Query, Row
from lora_watch.boards.scope import BY_POOL, of
from lora_watch.boards.words import AGENT, EXPORTED, POD, POOL, RECORDED, WATCHED

RATE = "$__rate_interval"


LOST = f"{of(names.POOL_LOST_RECORD)} or 0 * max by ({BY_POOL}) ({of(names.AGENT_LOG_BYTES)})"
"""Lost records of each pool: 0 where agents are scraped that have never lost one, absent where there are none."""


def _source(metric: str) -> str:
    return f"sum by (source) (rate({metric}[{RATE}]))"


def _job(expr: str, function: str, by: str = "job") -> str:
    """By job of the service, whose label Prometheus calls ``exported_job`` unless it honours labels."""
    return f'{function} by ({by}) (label_replace({expr}, "job", "$1", "exported_job", "(.+)"))'


FIRST = (
    Panel(
        "Pods nobody hears of",
        Kind.NUMBERS,
        "none",
        "Pods of a pool whose engine is there and whose agent tells nothing: what they do is not in any figure.",
        RECORDED,
        (Query(f"topk(4, {of(names.POOL_BLIND_PODS_RECORD)})", POOL),),
        width=6,
        height=5,
        steps=colours.GONE,
    ),
    Panel(
        "Records lost",
        Kind.NUMBERS,
        "none",
        "Records that agents could not keep within the last ten minutes: figures over that time are lower bounds.",
        AGENT,
        (Query(f"topk(4, {LOST})", POOL),),
        width=6,
        height=5,
        steps=colours.GONE,
    ),
    Panel(
        "Latest source",
        Kind.NUMBERS,
        "s",
        "How far behind now the last complete read of a source is, the four that are furthest behind.",
        WATCHED,
        (Query(f"topk(4, max by (source) ({names.SOURCE_LAG}))", "{{source}}"),),
        width=6,
        height=5,
        installs=FULL_ONLY,
        steps=colours.LAG,
    ),
    Panel(
        "Looks for findings",
        Kind.NUMBERS,
        "none",
        "How often the service looked for findings within the last ten minutes; 0 is a watcher that is blind.",
        WATCHED,
        (Query(names.WATCH_LOOKS_RECORD, "looks"),),
        width=6,
        height=5,
        installs=FULL_ONLY,
    ),
    Panel(
        "Sources",
        Kind.TABLE,
        "short",
        "One row a source: how far behind it is, rows stored per second, what failed, got lost or came too late per second.",
        WATCHED,
        (
            Query(f"max by (source) ({names.SOURCE_LAG})", "Behind", "s", colours.LAG),
            Query(f"max by (source) (time() - {names.SOURCE_LAST_SUCCESS})", "Read before", "s", colours.LAG),
            Query(_source(names.SOURCE_ROWS), "Rows", "suffix:/s"),
            Query(_source(names.SOURCE_ERRORS), "Errors", "suffix:/s"),
            Query(_source(names.SOURCE_LOST), "Lost", "suffix:/s"),
            Query(_source(names.SOURCE_LATE), "Late", "suffix:/s"),
        ),
        width=12,
        height=8,
        installs=FULL_ONLY,
        columns=(Column("source", "Source"),),
        sort=("Behind", True),
    ),
    Panel(
        "Jobs",
        Kind.TABLE,
        "short",
        "One row a job of the service: when it last ended well, how long 95 % of its runs took at most in the window, and its "
        "runs "
        "per second.",
        WATCHED,
        (
            Query(_job(f"time() - {names.JOB_LAST_SUCCESS}", "max"), "Ended well before", "s", colours.LAG),
            Query(
                f"histogram_quantile(0.95, {_job(f'rate({names.JOB_SECONDS}_bucket[{RATE}])', 'sum', 'job, le')})",
                "p95 of a run",
                "s",
            ),
            Query(_job(f"rate({names.JOB_RUNS}[{RATE}])", "sum"), "Runs", "suffix:/s"),
            Query(_job(f'rate({names.JOB_RUNS}{{outcome!="succeeded"}}[{RATE}])', "sum"), "Not well", "suffix:/s"),
        ),
        width=12,
        height=8,
        installs=FULL_ONLY,
        columns=(Column("job", "Job"),),
    ),
)
OVER_TIME = Row(
    "Sources over time",
    (
        Panel(
            "How far behind",
            Kind.LINES,
            "s",
            "How far behind now the last complete read of a source is.",
            WATCHED,
            (Query(f"max by (source) ({names.SOURCE_LAG})", "{{source}}"),),
            installs=FULL_ONLY,
            bottom=0,
        ),
        Panel(
            "Rows stored",
            Kind.LINES,
            "suffix:/s",
            "Rows that a source brought and that were new, per second.",
            WATCHED,
            (Query(_source(names.SOURCE_ROWS), "{{source}}"),),
            installs=FULL_ONLY,
            bottom=0,
        ),
        Panel(
            "Errors, losses, late rows",
            Kind.LINES,
            "suffix:/s",
            "Per second: reads that failed and problems of single pods; records dropped before they could be read; rows that "
            "came "
            "after their time had been read (they are stored).",
            WATCHED,
            tuple(
                Query(_source(metric), f"{{{{source}}}}: {name}")
                for metric, name in ((names.SOURCE_ERRORS, "errors"), (names.SOURCE_LOST, "lost"), (names.SOURCE_LATE, "late"))
            ),
            installs=FULL_ONLY,
            bottom=0,
        ),
    ),
)
AGENTS = Row(
    "Agents",
    (
        Panel(
            "Records lost over time",
            Kind.LINES,
            "none",
            "Records that agents could not keep, within ten minutes each.",
            AGENT,
            (Query(f"topk({TOP}, {LOST})", POOL),),
            bottom=0,
        ),
        Panel(
            "Largest event logs",
            Kind.BARS,
            "bytes",
            f"Bytes of event log on a pod's disk, the {TOP} with the most; a cap deletes the oldest.",
            AGENT,
            (Query(f"topk({TOP}, {of(names.AGENT_LOG_BYTES)})", POD),),
            bottom=0,
            by_pod=True,
        ),
        Panel(
            "Gap in Little's law",
            Kind.BARS,
            "percentunit",
            f"How far occupied slots are from load rate times mean stay, the {TOP} pods with the widest gap. 0 on complete "
            "data: a "
            "wide gap says that events are missing.",
            EXPORTED,
            (Query(f"topk({TOP}, abs({of(names.LITTLE_RESIDUAL)}))", POD),),
            installs=FULL_ONLY,
            bottom=0,
            by_pod=True,
        ),
    ),
)
BOARD = Board(
    uids.WATCHER,
    "lora_watch / Watcher",
    "Whether the other boards can be believed: sources, how late they are, what was lost, and the jobs of the service.",
    FIRST,
    (OVER_TIME, AGENTS),
    ("cluster", "pool", "role"),
    several=("cluster", "pool", "role"),
)
