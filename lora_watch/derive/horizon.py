"""Until when each pod is known: a pod that nobody could reach any more is no quiet pod."""

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import ENGINE
from lora_watch.derive.step_function import LONGEST_GAP
from lora_watch.model import HOUR, MINUTE, Window

REACH = HOUR
"""How far before the window's end looks at a sidecar are considered."""
GRACE = 3 * MINUTE
"""A sidecar that was out of reach for no longer than this (or ``LONGEST_GAP`` looks) is taken to answer again."""
_POD = ("cluster", "pod")


def unseen(events: pl.LazyFrame, requests: pl.LazyFrame, samples: pl.LazyFrame, window: Window, *, polled: str) -> pl.LazyFrame:
    """
    A made-up `stop` for each log that could not be read up to the window's end, at the last moment its pod was heard of.

    A log that says nothing may belong to an idle engine or to one that is out of reach, deleted or replaced. Which it is the
    looks at its sidecar say: ``samples`` of ``lora_watch:scrape_up{endpoint="agent"}`` over the last ``REACH`` before the
    window's end. Only streams whose rows are of source ``polled`` are judged: other logs (files) come without looks.

    Formula: a pod's horizon is the latest of its good looks (value 1) and its events before the window's end, and of the
    ``requests``. Where it lies more than ``max(GRACE, LONGEST_GAP · median time between looks)`` before that end, each of the
    pod's streams gets one row: kind `stop`, ``at`` the horizon, ``seq`` one past its last. Added to ``events``, it censors the
    stays and ends the boots of that pod: it had no swaps and no residents after the horizon that anybody knows of, so nothing is
    said of that time.

    Edge cases. A boot that had ended before is stopped again, which changes nothing: its first end counts. No looks at all: the
    last record is the horizon.
    """
    before_end = pl.col("at") < window.end
    look = samples.filter(
        before_end
        & (pl.col("at") >= window.end - REACH)
        & (pl.col("metric") == names.SAMPLE_SCRAPE_UP)
        & (pl.col("labels").str.json_path_match("$.endpoint") == "agent").fill_null(value=False)
    )
    looks = look.group_by(_POD).agg(
        seen=pl.col("at").filter(pl.col("value") == 1.0).max(), spacing=pl.col("at").sort().diff().median()
    )
    mine = events.filter(before_end & (pl.col("source") == polled))
    asked = requests.group_by(_POD).agg(asked=pl.col("at").max())
    horizon = (
        mine.group_by(_POD)
        .agg(told=pl.col("at").max())
        .join(looks, on=_POD, how="left", nulls_equal=True)
        .join(asked, on=_POD, how="left", nulls_equal=True)
        .select(
            *_POD,
            horizon=pl.max_horizontal("told", "seen", "asked"),
            grace=pl.max_horizontal(LONGEST_GAP * pl.col("spacing"), pl.lit(float(GRACE))),
        )
        .filter(pl.col("horizon") < window.end - pl.col("grace"))
    )
    columns = events.collect_schema()
    ends = (
        mine.group_by("stream")
        .agg(*(pl.col(column).last() for column in (*ENGINE, "source", "provenance")), seq=pl.col("seq").max() + 1)
        .join(horizon.select(*_POD, at="horizon"), on=_POD, nulls_equal=True)
        .with_columns(kind=pl.lit("stop"))
    )
    given = ends.collect_schema().names()
    return ends.select(
        pl.col(name) if name in given else pl.lit(None, dtype=dtype).alias(name) for name, dtype in columns.items()
    )
