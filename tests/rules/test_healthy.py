"""The rules over healthy simulated days: ours are silent, the article's never stop."""

from pathlib import Path

import pytest

from lora_watch.explore.calibration import calibrated
from lora_watch.model import DAY, Window
from lora_watch.rules.calibrate import WANTED, Judged, Verdict
from lora_watch.rules.rule import Profile, Tier
from lora_watch.simulate.scenario import load
from lora_watch.simulate.write import simulate
from lora_watch.store.tables import Store

pytestmark = pytest.mark.slow
DAYS = 2.0


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Window]:
    """Two days of the scenario, with a quarter of its traffic on a quarter of its pods."""
    folder: Path = tmp_path_factory.mktemp("healthy")
    whole = load("healthy")
    (pool,) = whole.pools
    scenario = whole.model_copy(
        update={
            "days": DAYS,
            "pools": (pool.model_copy(update={"pods": 2}),),
            "traffic": whole.traffic.model_copy(update={"requests_per_second": 2.0, "adapters": 10}),
        }
    )
    return Store(folder), simulate(scenario, DAYS, 1, folder).window


def told(healthy: tuple[Store, Window], profile: Profile) -> dict[str, Judged]:
    store, window = healthy
    judged, held = calibrated(store, window, profile, WANTED)
    assert held.end - held.start > 0.99 * DAYS * DAY
    return {one.alert.name: one for one in judged}


def test_the_default_profile_says_nothing(healthy: tuple[Store, Window]):
    judged = told(healthy, Profile.DEFAULT)
    assert {name for name, one in judged.items() if one.episodes} == set()
    known = {one.alert.tier for one in judged.values() if one.verdict is not Verdict.UNKNOWN}
    assert {Tier.HARM, Tier.CAUSE, Tier.CONFIGURATION} <= known


def test_the_articles_limits_of_adapters_and_of_stays_never_stop(healthy: tuple[Store, Window]):
    judged = told(healthy, Profile.ARTICLE)
    always = {name for name, one in judged.items() if one.verdict is Verdict.ALWAYS}
    assert {"LoraArticleActiveAdapters", "LoraArticleResidency"} <= always
