"""Experiments, held to a few adapters or to a few pods."""

from collections.abc import Iterator

import numpy as np

from lora_watch.derive.families import relatives
from lora_watch.model import HOUR
from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.means import means
from lora_watch.recommend.trial import Trial, with_adapters
from lora_watch.recommend.words import percent

PART = 4
"""Experiments are tried on one pod in so many, rounded up."""


def advise_cap(trial: Trial, setup: Setup) -> Iterator[Advice]:
    """
    What experiments cost the pool, and what two limits would save: half of them at a time (the less asked for go back to the
    adapters they are variants of), and all of them on one pod in ``PART``, chosen by name.

    Experiments are the adapters that were announced or are named as such, and were asked for in the judged window; it begins with
    the first of their requests, if that is not within the last hour. Those that are variants of no adapter here can't go back,
    and stay.
    """
    trial = _while_they_ran(trial)
    history, part = trial.history, trial.part
    used = part.trace.adapter[part.trace.at >= trial.judged.start]
    asked = np.bincount(used[used >= 0], minlength=part.trace.adapters)
    running = [int(a) for a in np.argsort(-asked, kind="stable") if history.experiment[a] and asked[a]]
    if not running:
        return
    code = {name: at for at, name in enumerate(history.names)}
    parent = {code[one.name]: code[one.parent] for one in relatives(history.names) if one.parent in code}
    back = [a for a in running if a in parent]
    can, how = means(Kind.CAP, setup)
    share = asked[running].sum() / max(asked.sum(), 1)
    why = f"{len(running)} experiments have {percent(share)} of the requests"
    for kept in sorted({0, len(running) // 2} - {len(running)}):
        stopped = [a for a in running[kept:] if a in parent]
        if not back or not stopped:
            continue
        heir = np.arange(part.trace.adapters, dtype=np.int32)
        for a in stopped:
            heir[a] = parent[a]
        heir = heir[heir]
        yield trial.advice(
            Kind.CAP,
            trial.count(trace=with_adapters(part.trace, heir)),
            what=f"at most {kept} of {len(running)} experiments at a time" if kept else f"end all {len(running)} experiments",
            why=why,
            cost="tests that take longer" if kept else "the experiments",
            risk="what is being tried is tried later",
            can=can,
            how=how,
            amount=kept,
            adapters=[history.names[a] for a in stopped],
        )
    homes = -(-part.trace.pods // PART)
    if trial.present.router is None or homes >= part.trace.pods:
        return
    home = np.full(part.trace.adapters + 1, -1, dtype=np.int32)  # the last entry is the base model's
    for at, a in enumerate(running):
        home[a] = at % homes
    yield trial.advice(
        Kind.CAP,
        trial.count(placed=home[part.trace.adapter]),
        what=f"all {len(running)} experiments on {homes} of {part.trace.pods} pods",
        why=why,
        cost="no restart of engines",
        risk="experiments wait for each other, and what they tell of latency is not what production would see",
        can=None,
        how="a route of their own to those pods",
        amount=homes,
        adapters=[history.names[a] for a in running],
    )


def _while_they_ran(trial: Trial) -> Trial:
    """The trial from the first request for an experiment on."""
    trace = trial.part.trace
    experiments = np.append(trial.history.experiment, [False])[trace.adapter]  # the last entry is the base model's
    first = trace.at[experiments & (trace.at >= trial.judged.start)]
    if not len(first) or not trial.judged.start + trial.block < first[0] <= trial.judged.end - HOUR:
        return trial
    return trial.since(int(first[0]))
