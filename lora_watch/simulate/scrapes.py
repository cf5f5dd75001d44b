"""What a scrape finds of simulated engines: requests running and waiting, slots, and the adapters in flight."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lora_watch import names
from lora_watch.model import PodId, Provenance, Window
from lora_watch.simulate.engines import Life
from lora_watch.sources.series import labels_json, series_id

_ENGINE = {"engine": "0", "model_name": "simulated"}


class Scrapes:
    """Samples of engines. Remembers the names of series, which take longer to make than their samples."""

    def __init__(self, adapters: tuple[str, ...]) -> None:
        self._adapters = adapters
        self._series: dict[tuple[PodId, str, str, int], str] = {}

    def of(self, life: Life, where: PodId, window: Window) -> pl.DataFrame:
        """
        The samples of one life in the window: columns at, value, series, adapter, metric, labels, provenance.

        Adapters in flight are those of the stock gauge's newest series, as activity; nobody in flight is a row without adapter.
        """
        pace = life.pace
        inside = slice(*np.searchsorted(pace.sampled_at, [window.start, window.end]))
        at = pace.sampled_at[inside]
        running, capacity, deferred = pace.running[inside], pace.capacity[inside], pace.deferred[inside]
        said = [
            (at, names.REQUESTS_RUNNING, _ENGINE, running),
            (at, names.REQUESTS_WAITING, _ENGINE, capacity + deferred),
            (at, names.WAITING_BY_REASON, {**_ENGINE, "reason": "capacity"}, capacity),
            (at, names.WAITING_BY_REASON, {**_ENGINE, "reason": "deferred"}, deferred),
            (at, names.SAMPLE_MAX_LORA, {"engine": "0"}, np.full(len(at), life.pool.slots)),
        ]
        frames = [
            self._sampled(where, times, metric, labels, values, np.full(len(times), -1)) for times, metric, labels, values in said
        ]
        from_, to = np.searchsorted(at, life.ready[life.opens]), np.searchsorted(at, life.closes)
        seen = np.flatnonzero(to > from_)
        widths = (to - from_)[seen]
        looks = np.repeat(from_[seen], widths) + np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
        code = np.repeat(life.adapter[life.opens[seen]].astype(np.int64), widths)
        empty = np.flatnonzero(np.bincount(looks, minlength=len(at)) == 0)
        looks, code = np.concatenate([looks, empty]), np.concatenate([code, np.full(len(empty), -1)])
        value = (code >= 0).astype(np.float64)
        frames.append(self._sampled(where, at[looks], names.SAMPLE_IN_FLIGHT, {"engine": "0"}, value, code))
        return pl.concat(frames)

    def _sampled(
        self,
        where: PodId,
        at: NDArray[np.int64],
        metric: str,
        labels: Mapping[str, str],
        value: NDArray[np.generic],
        code: NDArray[np.int64],
    ) -> pl.DataFrame:
        text = labels_json(labels)
        codes, place = np.unique(code, return_inverse=True)
        series = [self._series_of(where, metric, text, int(one)) for one in codes]
        adapters = [self._adapters[one] if one >= 0 else None for one in codes]
        provenance = Provenance.ACTIVITY if metric == names.SAMPLE_IN_FLIGHT else Provenance.OBSERVED
        return pl.DataFrame(
            {
                "at": at,
                "value": value.astype(np.float64),
                "series": pl.Series(series, dtype=pl.String).gather(place),
                "adapter": pl.Series(adapters, dtype=pl.String).gather(place),
            }
        ).with_columns(metric=pl.lit(metric), labels=pl.lit(text), provenance=pl.lit(str(provenance)))

    def _series_of(self, where: PodId, metric: str, labels: str, code: int) -> str:
        key = (where, metric, labels, code)
        if key not in self._series:
            adapter = self._adapters[code] if code >= 0 else None
            self._series[key] = series_id(where.cluster, where.pod, metric, labels, adapter)
        return self._series[key]
