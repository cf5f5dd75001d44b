"""Latency with and without an eviction shortly before, which misleads when it stands alone: always three figures side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_watch.derive.bootstrap import Floats, Interval, block_weights, interval, quantiles, standardised

WARNING = "understates under queueing"
"""What stands beside the three figures wherever they are shown."""
LEVEL = 0.95
BINS = 250
"""Bins of equal size for the upper half of each side: a P95 is right to a five-hundredth of its requests."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """
    P95 of hits with an eviction on their engine that began in the last second, minus P95 of those without: three figures, in
    seconds.

    * ``raw``: as it is. Two errors of either sign are in it: evictions come when an engine is busy (or is idle and may load),
      and a queue that a load left behind is still there when the next second has none;
    * ``placebo``: the same with evictions of the *next* second, which cannot have been the cause. What is not 0 here is not an
      effect there;
    * ``stratified``: raw among requests of one engine that came upon as many others and as many arrivals in the last second.
      Where loads take no time it is 0; where they do, the queue they left behind is held fixed with the rest.

    Each with its 95 % interval. ``warning`` goes with them: under queueing all three understate what loads cost, since
    requests without an eviction just before wait for the loads of before. None: fewer than 20 requests on one side.
    """

    raw: float | None
    raw_interval: Interval
    placebo: float | None
    placebo_interval: Interval
    stratified: float | None
    stratified_interval: Interval
    warning: str = WARNING


FEWEST = 20
"""Requests below which a P95 is the greatest of them."""


def contrast(
    latency: Floats,
    *,
    exposed: NDArray[np.bool_],
    exposed_next: NDArray[np.bool_],
    stratum: NDArray[np.int64],
    block: NDArray[np.int64],
    weights: Floats | None = None,
) -> Contrast:
    """The three figures of requests given as arrays: seconds, exposure by last and by next second, stratum and block numbers."""
    blocks = int(block.max(initial=-1)) + 1
    drawn = block_weights(blocks) if weights is None and blocks else weights
    if drawn is None:
        drawn = np.ones((1, 1))
    all_once = np.vstack([np.ones(drawn.shape[1]), drawn])  # the first replicate is the data as they are

    def figure(which: NDArray[np.bool_], levels: NDArray[np.int64]) -> tuple[float | None, Interval]:
        edges = tail_edges(latency[which], latency[~which])
        histograms = standardised(all_once, block=block, stratum=levels, exposed=which, place=places(edges, latency))
        without, with_one = quantiles(histograms[:, 0], edges, LEVEL), quantiles(histograms[:, 1], edges, LEVEL)
        enough = min(which.sum(), (~which).sum()) >= FEWEST
        difference = with_one - without
        if not enough or np.isnan(difference[0]):
            return None, Interval(None, None)
        return float(difference[0]), interval(difference[1:], blocks=drawn.shape[1])

    alone = np.zeros(len(latency), dtype=np.int64)
    return Contrast(*figure(exposed, alone), *figure(exposed_next, alone), *figure(exposed, stratum))


def tail_edges(*sides: Floats) -> Floats:
    """Upper edges of bins that are narrow where a P95 of any side may lie: ``BINS`` quantiles of each from its median up."""
    levels = np.linspace(0.5, 1, BINS + 1)
    parts = [np.quantile(side, levels, method="higher") for side in sides if len(side)]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(1)


def places(edges: Floats, values: Floats) -> NDArray[np.int64]:
    """The bin of each value: the first whose edge is not below it."""
    return np.asarray(np.searchsorted(edges, values, side="left"))
