"""What a worker's snapshots list: the residents of its slots as they were, read back from the log."""

from typing import Any

import msgspec
import polars as pl

from lora_watch.derive.groups import ENGINE, ranked_provenance, said_once

_RESIDENT = {"slot": pl.Int64(), "adapter": pl.String(), "adapter_id": pl.Int64(), "loaded_at": pl.Int64()}
_SAID = pl.Struct({"part": pl.Int64(), "parts": pl.Int64(), "gpu": pl.List(pl.Struct(_RESIDENT))})
_LARGEST = (1 << 63) - 1


class _Detail(msgspec.Struct):
    """The fields of a snapshot that are read; the rest of its JSON is passed over."""

    gpu: list[list[Any]]
    part: int = 1
    parts: int = 1


def of_worker() -> pl.Expr:
    """True for snapshots that list slots: an API server's lists names, and says nothing about them."""
    listed = pl.col("detail").str.contains('"gpu":', literal=True).fill_null(value=False)
    return (pl.col("kind") == "snapshot") & listed


def snapshots(events: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per snapshot of a worker, its parts put together.

    Columns: cluster, pool, role, pod, engine, stream, ``seq`` and ``at`` of its first part (all parts were taken at once),
    ``complete`` (every part is held: who is not listed was in no slot), ``previous_seq`` (of the newest complete snapshot of
    the boot before it; null: none), ``gpu`` (list of structs slot, adapter, adapter_id, loaded_at), ``ranked`` (worst
    provenance of its parts).

    Edge cases. A record whose JSON is not what docs/event-log-v1.md says (no list of lists, ``part`` not in 1 … ``parts``) is
    no snapshot; an entry of it with a wrong type, or with neither id nor name, is nobody. Parts said twice count once; parts
    that disagree on how many they are make no complete snapshot. A ``loaded_at`` below 0 or later than the snapshot is unknown.
    """
    said = pl.col("detail").map_batches(read_details, return_dtype=_SAID, is_elementwise=True).alias("said")
    before = pl.when("complete").then("seq").forward_fill().shift(1).over("stream", order_by="seq")
    return (
        events.filter(of_worker())
        .select(*ENGINE, "stream", "seq", "at", "detail", ranked=ranked_provenance())
        .filter(said_once())
        .with_columns(said)
        .filter(pl.col("said").is_not_null())
        .unnest("said")
        .with_columns(seq=pl.col("seq") - pl.col("part") + 1)
        .group_by("stream", "seq")
        .agg(
            *(pl.col(column).first() for column in ENGINE),
            pl.col("at").min(),
            complete=(pl.col("parts").min() == pl.col("parts").max()) & (pl.col("part").n_unique() == pl.col("parts").max()),
            gpu=pl.col("gpu").sort_by("part").explode(empty_as_null=False, keep_nulls=False),
            ranked=pl.col("ranked").max(),
        )
        .with_columns(previous_seq=before)
        .select(*ENGINE, "stream", "seq", "at", "complete", "previous_seq", "gpu", "ranked")
    )


def listings(taken: pl.LazyFrame) -> pl.LazyFrame:
    """
    One row per adapter that one of the :func:`snapshots` ``taken`` lists.

    Columns: cluster, pool, role, pod, engine, adapter, stream, ``seq``, ``at`` and ``previous_seq`` of the snapshot,
    ``adapter_id``, ``slot``, ``loaded_at`` (µs UTC; null: not said), ``provenance`` (ordered type). Who is listed twice counts
    once: in the lowest of the slots, since the earliest of the times.
    """
    said = pl.col("loaded_at").is_between(0, pl.col("at"))
    who = ("stream", "seq", "adapter_id", "adapter")
    return (
        taken.explode("gpu", empty_as_null=False, keep_nulls=False)
        .unnest("gpu")
        .group_by(who)
        .agg(
            *(pl.col(column).first() for column in (*ENGINE, "at", "previous_seq")),
            slot=pl.col("slot").min(),
            loaded_at=pl.col("loaded_at").filter(said).min(),
            provenance=pl.col("ranked").max(),
        )
        .select(*ENGINE, "adapter", "stream", "seq", "at", "previous_seq", "adapter_id", "slot", "loaded_at", "provenance")
    )


def read_details(details: pl.Series) -> pl.Series:
    """
    The JSON texts as structs of ``part``, ``parts`` and ``gpu`` (see :func:`snapshots`); null where they say no such thing.

    >>> read_details(pl.Series(['{"gpu":[[0,"a",1,5]],"part":1,"parts":2}', "no JSON"])).to_list()
    [{'part': 1, 'parts': 2, 'gpu': [{'slot': 0, 'adapter': 'a', 'adapter_id': 1, 'loaded_at': 5}]}, None]
    """
    return pl.Series(details.name, [_parsed(text) for text in details], dtype=_SAID)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        detail = msgspec.json.decode(text, type=_Detail)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not 1 <= detail.part <= detail.parts < 1 << 31:
        return None
    residents = (entry for entry in (_resident(row) for row in detail.gpu) if entry is not None)
    return {"part": detail.part, "parts": detail.parts, "gpu": list(residents)}


def _resident(row: list[Any]) -> dict[str, Any] | None:
    """An entry ``[slot, adapter, adapter_id, loaded_at]`` by name, longer ones cut; None where it is none."""
    named = dict(zip(_RESIDENT, row, strict=False))
    fits = all(
        value is None or (isinstance(value, str) if name == "adapter" else _is_int(value)) for name, value in named.items()
    )
    known = named.get("adapter") is not None or named.get("adapter_id") is not None
    return {**dict.fromkeys(_RESIDENT), **named} if fits and known else None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
