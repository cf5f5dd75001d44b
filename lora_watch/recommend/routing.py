"""Another scorer in the router."""

from collections.abc import Iterator
from typing import NamedTuple

from lora_watch.recommend.advice import Advice, Kind, Setup
from lora_watch.recommend.present import ROUTERS
from lora_watch.recommend.trial import Trial


class _Scorer(NamedTuple):
    what: str
    can: bool | None
    how: str


SCORERS = {
    "llm-d's lora-affinity-scorer": _Scorer(
        "routing by llm-d's lora-affinity-scorer",
        None,
        "where llm-d routes: `lora-affinity-scorer` in the EndpointPickerConfig, weight 4 beside the queue and KV scorers",
    ),
    "llm-d's residency scorer": _Scorer(
        "routing by residency (llm-d's proposed scorer)",
        False,
        "llm-d's lora-load-state-scorer is proposed, not released; it reads residency gauges, which the agent's page has",
    ),
}
"""Scorers that exist or are proposed, by their names in ``ROUTERS``."""


def advise_routing(trial: Trial, _setup: Setup) -> Iterator[Advice]:
    """
    One advice for each scorer that is not the present one. None where no router stands for the present one: then nothing can be
    compared.
    """
    if trial.present.router is None:
        return
    for name, scorer in SCORERS.items():
        if name == trial.present.name:
            continue
        yield trial.advice(
            Kind.ROUTING,
            trial.count(router=ROUTERS[name]),
            what=scorer.what,
            why=f"what is routed now is most like {trial.present.name}",
            cost="no restart of engines",
            risk="requests for one adapter gather on few pods: watch the busiest",
            can=scorer.can,
            how=scorer.how,
            method=f"{trial.method} against {name}",
        )
