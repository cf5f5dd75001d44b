"""Advice on the pages: what the service stored, ranked, and what works it out where there is none."""

from pathlib import Path

import pytest
from dashboards.opening import html, opened
from histories import drawn, history
from lru_pod import Pod
from stored import stored

from lora_watch.explore.advice import Advised
from lora_watch.explore.stored_advice import rows
from lora_watch.model import DAY, HOUR, SECOND
from lora_watch.recommend.advice import Setup
from lora_watch.recommend.recommend import recommend
from lora_watch.schema import ADVICE, Batch

END = 20_000 * DAY + 12 * HOUR


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters in turn on two slots, and what the service made of it an hour ago."""
    folder = tmp_path_factory.mktemp("advised")
    made = Pod(slots=2, load=0.001).start(END - HOUR)
    for number in range(300):
        made.ask(END - 300 * SECOND + number * SECOND, "abc"[number % 3], hold=0.2)
    requests = made.request_rows()
    store = stored(folder, events=made.event_rows(), requests=requests)
    pool = requests.select("cluster", "pool", "role").row(0)
    told = recommend(history(drawn("abcdef", 3000), days=16), Setup("/".join(filter(None, pool)), engine="vllm", slots=2))
    store.ledger(ADVICE).append(Batch(rows([Advised(pool, told, {})], END - HOUR), {"advice": 1}), at=1)
    return folder


def frame(test, column: str):
    (found,) = [one.value for one in test.dataframe if column in one.value.columns]
    return found


def test_capacity_ranks_what_was_advised(advised: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(advised, "capacity", monkeypatch)
    assert "per pod: −" in html(test)
    assert frame(test, "verdict")["verdict"].tolist()[0] == "advised"


def test_adapters_show_pins_beside_the_articles_rule(advised: Path, monkeypatch: pytest.MonkeyPatch):
    test = opened(advised, "adapters", monkeypatch)
    assert "article" in frame(test, "verdict")["what"].tolist()[-1]


def test_without_stored_advice_the_page_says_what_works_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Pod(slots=2).start(END - HOUR)
    made.ask(END - SECOND, "a")
    stored(tmp_path, events=made.event_rows(), requests=made.request_rows())
    assert "<code>lora-watch recommend</code> works it out" in html(opened(tmp_path, "capacity", monkeypatch))
