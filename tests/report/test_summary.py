"""The five lines that a report begins with."""

from dataclasses import replace

from report.examples import report

from lora_watch.report.summary import summary
from lora_watch.report.weekly import Offender, Offenders


def who(*adapters: Offender, families: tuple[Offender, ...] = ()) -> str:
    told = report()
    parts = (
        told.head,
        told.pools,
        told.incidents,
        told.lost,
        Offenders(adapters, families),
        told.advice,
        told.promises,
        told.quality,
    )
    return summary(*parts)[2]


def loaded(name: str, pool: str, share: float) -> Offender:
    return Offender(name, pool, 1, 10, 0.5, 10, share, 1.0, 0.1)


def test_shares_of_one_pools_loads_are_of_the_loads():
    assert who(loaded("a", "p", 0.6), loaded("b", "p", 0.4)) == "Loaded most: a (60 %), b (40 %) of the loads."


def test_of_several_pools_each_share_says_whose_loads_it_is_of():
    text = who(loaded("a", "p", 0.6), loaded("a", "q", 0.9))
    assert text == "Loaded most, with the share of their pool's loads: a of p (60 %), a of q (90 %)."


def test_a_family_says_its_pool_where_there_are_several():
    family = replace(loaded("*-experiment", "p", 0.6), members=3)
    text = who(loaded("a", "p", 0.6), loaded("a", "q", 0.9), families=(family,))
    assert text == "*-experiment, 3 adapters of p: 50 % of its requests, 60 % of its loads."
