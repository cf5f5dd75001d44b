"""How full the slots are, and how many adapters want one."""

from collections.abc import Sequence

import polars as pl

from lora_watch import names
from lora_watch.derive.groups import (
    BY_POD,
    ENGINE,
    GROUPS,
    PROVENANCE,
    group_columns,
    overlap_seconds,
    ranked_provenance,
    worst_provenance,
)
from lora_watch.model import Provenance, Window

POD = [column for column in ENGINE if column != "engine"]


def occupancy(
    stays: pl.LazyFrame,
    boots: pl.LazyFrame,
    window: Window,
    by: Sequence[str] = BY_POD,
    *,
    events: pl.LazyFrame | None = None,
    requests: pl.LazyFrame | None = None,
    samples: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """
    Slots, residents and active adapters of the window, one row per group.

    Columns, after the group's:

    * ``slots``: sum over engines of the slots of their newest boot in the window, else of what their page says; null where one is
      not known (``engines_without_slots`` counts them);
    * ``resident_adapters``: sum over engines of ``occupied slot-seconds ÷ observed seconds``; the mean number of adapters in
      slots while the engine was up;
    * ``occupancy_ratio``: ``resident_adapters ÷ slots``. At 1 in any warm pod: it says nothing about trouble;
    * ``active_adapters``: distinct adapters in flight or queued at least once in the window (see below),
      ``active_per_slot_ratio``: ÷ slots, may exceed 1;
    * ``observed_seconds``: sum over engines of the time a boot was up in the window (``engines_observed`` of them were);
      ``occupied_slot_seconds``; ``engines``; ``provenance``.

    An adapter is active if one of its requests was queued or running for a moment of the window (requests still open have no
    row yet), or it has a `use` or a `release` in the window, or its last such record before the window is a `use` in a boot
    that was still up. Only where an engine has none of these rows do samples of adapters in flight count (scraped: adapters
    between two scrapes are missed, so provenance ``activity``). Where nothing could have told (no such rows, and no boot
    whose `start` is held) it is null, else 0.

    Grouped by adapter, ``slots`` and ``observed_seconds`` are those of the group's engines and ``active_adapters`` is 1 or 0.
    Engines without a boot in the window have no row, their samples and requests excepted; requests that name no engine (one API
    server in front of several) are their pod's, and no engine of their own where it has any. Ratios of a group are ratios of
    sums, never means of ratios.
    """
    keys = group_columns(by)
    engine_keys = [key for key in keys if key != "adapter"]
    up_from = pl.coalesce("started_at", "first_at")
    running = boots.filter((up_from < window.end) & (pl.col("ended_at").is_null() | (pl.col("ended_at") > window.start)))
    engines = (
        running.sort(up_from)
        .group_by(ENGINE, maintain_order=True)
        .agg(
            observed_seconds=overlap_seconds(up_from, pl.col("ended_at"), window.start, window.end).sum(),
            slots=pl.col("slots").last(),
            told=(pl.col("started_at").is_not_null() & pl.col("tells_uses")).any(),
            provenance=worst_provenance(),
        )
    )
    occupied = (
        stays.filter((pl.col("resident_from") < window.end) & (pl.col("left_at").is_null() | (pl.col("left_at") > window.start)))
        .group_by(*GROUPS)
        .agg(
            occupied=overlap_seconds(pl.col("resident_from"), pl.col("left_at"), window.start, window.end).sum(),
            stay_provenance=worst_provenance(),
        )
        .join(engines.select(*ENGINE, "observed_seconds"), on=ENGINE, nulls_equal=True)
        .with_columns(resident=pl.when(pl.col("observed_seconds") > 0).then(pl.col("occupied") / pl.col("observed_seconds")))
        .group_by(keys)
        .agg(
            pl.col("occupied").sum(),
            pl.col("resident").sum(),
            ranked_provenance("stay_provenance").max(),
        )
    )
    wanted = _active(running, window, events, requests, samples)
    active = wanted.group_by(keys).agg(
        active=pl.col("adapter").n_unique().cast(pl.Int64), active_provenance=pl.col("ranked").max()
    )
    nobody = pl.col("engine").fill_null("") == ""  # an API server in front of several engines can't say which one it was
    asked = wanted.filter(~nobody), wanted.filter(nobody).join(engines.select(POD), on=POD, how="anti", nulls_equal=True)
    unheard = pl.concat(asked).select(*ENGINE, told=pl.lit(value=False))
    whole = _with_pages(pl.concat([engines, unheard], how="diagonal"), samples, window)
    groups = whole.group_by(engine_keys).agg(
        engines=pl.len().cast(pl.Int64),
        engines_observed=(pl.col("observed_seconds") > 0).sum().cast(pl.Int64),
        observed_seconds=pl.col("observed_seconds").sum(),
        engines_without_slots=pl.col("slots").is_null().sum().cast(pl.Int64),
        slots=pl.when(pl.col("slots").is_not_null().all()).then(pl.col("slots").sum()),
        told=pl.col("told").any(),
        boot_provenance=ranked_provenance().max(),
    )
    if "adapter" in keys:
        named = pl.concat([occupied.select(keys), active.select(keys)]).unique()
        groups = named.join(groups, on=engine_keys, nulls_equal=True)
    provenance = pl.max_horizontal("boot_provenance", "stay_provenance", "active_provenance").cast(pl.String)
    return (
        groups.join(occupied, on=keys, how="left", nulls_equal=True)
        .join(active, on=keys, how="left", nulls_equal=True)
        .with_columns(
            active=pl.when(pl.col("active").is_null() & pl.col("told")).then(0).otherwise("active"),
            resident=pl.when(pl.col("observed_seconds") > 0).then(pl.col("resident").fill_null(0.0)),
            occupied=pl.when(pl.col("observed_seconds") > 0).then(pl.col("occupied").fill_null(0.0)),
        )
        .select(
            *keys,
            "slots",
            pl.col("resident").alias("resident_adapters"),
            pl.when(pl.col("slots") > 0).then(pl.col("resident") / pl.col("slots")).alias("occupancy_ratio"),
            pl.col("active").alias("active_adapters"),
            pl.when(pl.col("slots") > 0).then(pl.col("active") / pl.col("slots")).alias("active_per_slot_ratio"),
            "observed_seconds",
            pl.col("occupied").alias("occupied_slot_seconds"),
            "engines",
            "engines_observed",
            "engines_without_slots",
            provenance.alias("provenance"),
        )
    )


def _with_pages(engines: pl.LazyFrame, samples: pl.LazyFrame | None, window: Window) -> pl.LazyFrame:
    """
    One row per engine, with the slots its page says where no boot told, and the engines that only a page knows.

    A page whose gauge names no engine (one page for several) is about every engine of its pod; alone, it stands for one.
    """
    once = engines.unique(ENGINE, keep="first", maintain_order=True)
    if samples is None:
        return once
    metric, inside = pl.col("metric"), pl.col("at").is_between(window.start, window.end, closed="left")
    slots = metric.is_in([names.SAMPLE_MAX_LORA, names.MAX_GPU_ADAPTERS])
    looked = metric == names.SAMPLE_IN_FLIGHT
    pages = (
        samples.filter(inside & (slots | looked) & pl.col("value").is_finite())
        .group_by(ENGINE)
        .agg(
            page_slots=pl.col("value").filter(slots).sort_by(pl.col("at").filter(slots)).last().cast(pl.Int64), told=looked.any()
        )
        .with_columns(provenance=pl.lit(str(Provenance.ACTIVITY)))
    )
    named, shared = pages.filter(pl.col("engine").is_not_null()), pages.filter(pl.col("engine").is_null())
    known = pl.concat([once, named.drop("page_slots")], how="diagonal").unique(ENGINE, keep="first", maintain_order=True)
    alone = shared.join(known.select(POD), on=POD, how="anti", nulls_equal=True)
    return (
        pl.concat([known, alone.drop("page_slots")], how="diagonal")
        .join(named.select(*ENGINE, "page_slots"), on=ENGINE, how="left", nulls_equal=True)
        .join(shared.select(*POD, shared_slots="page_slots"), on=POD, how="left", nulls_equal=True)
        .with_columns(slots=pl.coalesce("slots", "page_slots", "shared_slots"))
        .drop("page_slots", "shared_slots")
    )


def _active(
    running: pl.LazyFrame,
    window: Window,
    events: pl.LazyFrame | None,
    requests: pl.LazyFrame | None,
    samples: pl.LazyFrame | None,
) -> pl.LazyFrame:
    """Engines and the adapters that were active on them, each with the provenance of what told so; rows may repeat."""
    rows = pl.LazyFrame(schema={**dict.fromkeys(GROUPS, pl.String()), "ranked": PROVENANCE})
    named = pl.col("adapter").is_not_null()
    if requests is not None:
        came = pl.coalesce("queued", "arrived", "scheduled")
        overlapping = (came < window.end) & ((pl.col("finished") > window.start) | (came >= window.start))
        rows = pl.concat([rows, requests.filter(named & overlapping).select(*GROUPS, ranked=ranked_provenance())])
    if events is not None:
        kind = pl.col("kind")
        batches = (
            events.filter(named & kind.is_in(["use", "release"]) & (pl.col("at") < window.end))
            .select(*GROUPS, "stream", "seq", "at", "kind", "provenance")
            .join(running.select("stream"), on="stream", how="semi")
        )
        seen = batches.filter(pl.col("at") >= window.start).select(*GROUPS, "provenance").unique()
        still = (
            batches.filter(pl.col("at") < window.start)
            .group_by(*GROUPS, "stream")
            .agg(newest=kind.sort_by("seq").last(), ranked=ranked_provenance().max())
            .filter(pl.col("newest") == "use")
        )
        rows = pl.concat([rows, seen.select(*GROUPS, ranked=ranked_provenance()), still.select(*GROUPS, "ranked")])
    if samples is not None:
        in_window = pl.col("at").is_between(window.start, window.end, closed="left")
        scraped = samples.filter(named & in_window & (pl.col("metric") == names.SAMPLE_IN_FLIGHT) & (pl.col("value") > 0))
        worse = pl.max_horizontal(ranked_provenance(), pl.lit(str(Provenance.ACTIVITY), dtype=PROVENANCE))
        heard = rows.select(ENGINE).unique()
        unheard = scraped.select(*GROUPS, ranked=worse).join(heard, on=ENGINE, how="anti", nulls_equal=True)
        nobody = pl.col("engine").is_null()  # the stock gauge of a pod with several engines is about all of them
        whole_pods = unheard.filter(nobody).join(heard.select(POD).unique(), on=POD, how="anti", nulls_equal=True)
        rows = pl.concat([rows, unheard.filter(~nobody), whole_pods])
    return rows
