"""Pins that nobody asks for any more: each holds a slot that others need."""

from collections.abc import Iterator

import numpy as np

from lora_watch.model import DAY
from lora_watch.recommend.advice import Advice, Kind, Place, Setup
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Trial

IDLE = 3 * DAY
"""A pinned adapter without a request for so long is a ghost."""


def advise_unpin(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    What it would save to take out the pins of ghosts, and all pins where there are others. None where nothing is pinned.

    In a history shorter than ``IDLE`` nobody is a ghost: that nobody asked is not known.
    """
    history = trial.history
    recent = history.trace.adapter[np.searchsorted(history.trace.at, history.window.end - IDLE) :]
    asked = np.bincount(recent[recent >= 0], minlength=history.trace.adapters)
    known = history.window.end - history.window.start >= IDLE
    ghosts = tuple(pin for pin in history.pinned if not asked[pin[1]]) if known else ()
    for gone, what, why in (
        (ghosts, "ghosts", f"nobody asked for them in the last {IDLE // DAY} days"),
        (history.pinned if ghosts != history.pinned else (), "all pins", "LRU may use their slots better"),
    ):
        if not gone:
            continue
        pods = len({pod for pod, _ in gone})
        kept = tuple(pin for pin in history.pinned if pin not in gone)
        told = trial.count(fleet=trial.part.fleet(pins=kept))
        can, how = means(Kind.UNPIN, setup)
        yield trial.advice(
            Kind.UNPIN,
            told,
            what=f"unpin {what} ({len(gone)} on {pods} {'pod' if pods == 1 else 'pods'})",
            why=why,
            cost="nothing",
            risk="the first request after a pause waits for a load",
            can=can,
            how=how,
            amount=len(gone),
            adapters=sorted({history.names[adapter] for _, adapter in gone}),
            places=[Place(history.names[adapter], history.pods[pod]) for pod, adapter in gone],
        )
