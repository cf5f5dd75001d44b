"""Prefix-cache reuse that a split into variants costs: a KV cache belongs to its adapter, so variants share none."""

import polars as pl

from lora_watch.derive.found import names_of, structures
from lora_watch.derive.groups import POOL, once, ranked_provenance
from lora_watch.model import Window

FEWEST = 50
"""Requests on either side of the split below which shares say nothing."""
FLAGGED_LOSS = 0.05
"""Of the prompt tokens: a prefill that is a twentieth longer."""


def prefix_reuse(requests: pl.LazyFrame, families: pl.LazyFrame, window: Window, *, stored: bool = False) -> pl.LazyFrame:
    """
    The share of prompt tokens found in the prefix cache, of each parent before its first variant came and of the family since,
    one row per pool and parent.

    ``families`` is :func:`~lora_watch.derive.families.families` of the same rows and window. Columns, between the head (adapters:
    parent and its variants; start: the first request of a variant) and provenance: ``parent``, ``variants``, ``requests_before``,
    ``requests_after``, ``prompt_tokens_after``, ``cached_share_before``, ``cached_share_after``, ``lost_share`` (before −
    after, not below 0) and ``recomputed_tokens`` (``lost_share × prompt_tokens_after``: what is prefilled again for the split).

    Formula: ``Σ cached_tokens ÷ Σ prompt_tokens`` over the parent's requests in the window before the split, and over parent
    and variants from it on.

    Flagged: 50 requests or more on either side and a loss of 0.05 or more. A cache that is smaller since, or other prompts, look
    the same: the split is when it began, not proof of why.

    Edge cases. Requests without token counts are left out; no prompt tokens before or after makes the share null, and the loss
    too. A variant that was there in the window's first minute leaves no before: null. Nested variants belong to their
    nearest parent's family. Rows said twice count once; ``stored`` requests are unique as they are.
    """
    members = families.filter(pl.col("parent").is_not_null()).select(*POOL, "parent", "variant", first="start").collect().lazy()
    split = members.group_by(*POOL, "parent").agg(start=pl.col("first").min(), variants=pl.col("variant").unique().sort())
    of_family = (
        pl.concat(
            [
                members.select(*POOL, "parent", adapter="variant"),
                members.select(*POOL, "parent", adapter="parent"),
            ]
        )
        .unique()
        .join(split.select(*POOL, "parent", "start"), on=[*POOL, "parent"], nulls_equal=True)
    )
    related = of_family.select(pl.col("adapter").unique().sort()).collect()["adapter"]
    came = pl.coalesce("arrived", "queued", "at")
    prompt, cached = pl.col("prompt_tokens"), pl.col("cached_tokens")
    before, parents = came < pl.col("start"), pl.col("adapter") == pl.col("parent")
    inside = pl.col("at").is_between(window.start, window.end, closed="left")
    told = requests.filter(inside & pl.col("adapter").is_in(related.implode()) & (prompt > 0) & cached.is_not_null())
    by_side = (
        once(told, stored=stored)
        .join(of_family, on=[*POOL, "adapter"], nulls_equal=True)
        .group_by(*POOL, "parent", "pod", first=before & parents, since=~before)
        .agg(requests=pl.len().cast(pl.Int64), prompt=prompt.sum(), cached=cached.sum(), provenance=ranked_provenance().max())
        .collect(engine="streaming")
        .lazy()
    )

    def summed(column: str, side: str) -> pl.Expr:
        return pl.col(column).filter(pl.col(side)).sum()

    sums = (
        by_side.group_by(*POOL, "parent")
        .agg(
            pods=names_of("pod"),
            requests_before=summed("requests", "first"),
            requests_after=summed("requests", "since"),
            prompt_before=summed("prompt", "first"),
            prompt_tokens_after=summed("prompt", "since"),
            cached_before=summed("cached", "first"),
            cached_after=summed("cached", "since"),
            provenance=pl.col("provenance").max().cast(pl.String),
        )
        .join(split, on=[*POOL, "parent"], nulls_equal=True)
    )
    lost = (pl.col("cached_share_before") - pl.col("cached_share_after")).clip(lower_bound=0)
    enough = (pl.col("requests_before") >= FEWEST) & (pl.col("requests_after") >= FEWEST)
    return structures(
        sums.with_columns(
            cached_share_before=pl.when(pl.col("prompt_before") > 0).then(pl.col("cached_before") / pl.col("prompt_before")),
            cached_share_after=pl.when(pl.col("prompt_tokens_after") > 0).then(
                pl.col("cached_after") / pl.col("prompt_tokens_after")
            ),
        )
        .with_columns(lost_share=lost)
        .with_columns(
            adapters=pl.concat_list(pl.concat_list("parent"), "variants"),
            end=pl.lit(window.end),
            recomputed_tokens=pl.col("lost_share") * pl.col("prompt_tokens_after"),
            flagged=enough & (pl.col("lost_share") >= FLAGGED_LOSS),
        ),
        (
            "parent",
            "variants",
            "requests_before",
            "requests_after",
            "prompt_tokens_after",
            "cached_share_before",
            "cached_share_after",
            "lost_share",
            "recomputed_tokens",
        ),
        by=("parent",),
    )
