import socket
import urllib.request
from dataclasses import dataclass

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lora_watch import names
from lora_watch.exporter import Exporter, bounded

POD = {"cluster": "c", "pool": "p", "role": "", "pod": "pod-0", "provenance": "observed"}


@dataclass(frozen=True)
class Frames:
    pods: pl.DataFrame
    adapters: pl.DataFrame


def adapters(*rows: tuple[str, int | None, int]) -> pl.DataFrame:
    records = [
        {**POD, "adapter": name, "requests": requests, "loads": loads, "p50_seconds": 1.0} for name, requests, loads in rows
    ]
    return pl.DataFrame(records, schema_overrides={"requests": pl.Int64})


def scrape(exporter: Exporter) -> dict[str, list[tuple[dict[str, str], float]]]:
    address, stop = exporter.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
    finally:
        stop()
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_a_figure_is_published_with_its_pod_and_provenance():
    exporter = Exporter(adapters=10)
    pods = pl.DataFrame([{**POD, "swaps_per_second": 0.25, "share_low": 0.1, "share_high": 0.4, "grade": "D"}])
    exporter.publish(Frames(pods, pl.DataFrame()))
    page = scrape(exporter)
    assert page[names.SWAPS_PER_SECOND] == [(POD, 0.25)]
    assert page[names.INFERENCE_SHARE] == [
        ({**POD, "bound": "low", "grade": "D"}, 0.1),
        ({**POD, "bound": "high", "grade": "D"}, 0.4),
    ]


def test_an_unknown_figure_has_no_series():
    exporter = Exporter(adapters=10)
    exporter.publish(Frames(pl.DataFrame([{**POD, "swaps_per_second": None}]), pl.DataFrame()))
    assert scrape(exporter)[names.SWAPS_PER_SECOND] == []


def test_nothing_derived_yet_is_an_answer_with_the_watchers_own_figures():
    exporter = Exporter(adapters=10)
    exporter.source_rows.labels("agent").inc(3)
    page = scrape(exporter)
    assert ({"source": "agent"}, 3.0) in page[names.SOURCE_ROWS.removesuffix("_total")]


def test_a_client_that_sends_nothing_gives_its_thread_back(capfd: pytest.CaptureFixture[str]):
    address, stop = Exporter(adapters=1, idle_seconds=0.1).serve("127.0.0.1", 0)
    port = int(address.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as idle:
        assert idle.recv(1) == b""
    stop()
    assert capfd.readouterr().err == ""


def test_adapters_past_the_cap_become_other_and_their_counts_add_up():
    frame = bounded(adapters(("a", 5, 1), ("b", 9, 1), ("c", 1, 7), ("d", 2, 3)), cap=2)
    assert frame.select("adapter", "requests", "loads", "p50_seconds").rows() == [
        ("a", 5, 1, 1.0),
        ("b", 9, 1, 1.0),
        ("other", 3, 10, None),
    ]


def test_counts_nobody_knows_stay_unknown_in_other():
    frame = bounded(adapters(("a", None, 2), ("b", None, 1)), cap=1)
    assert frame.filter(pl.col("adapter") == "other")["requests"].to_list() == [None]


def test_an_adapter_that_is_called_other_is_counted_with_the_rest():
    assert bounded(adapters(("other", 5, 1), ("b", 1, 1)), cap=5)["adapter"].to_list() == ["b", "other"]


@pytest.mark.parametrize("name", ['"', "a,b", "new\nline", "{}", "</script>", "\\", "x" * 10_000, "ابجد", "🦙"])
def test_a_hostile_name_is_one_label_and_comes_back_whole(name: str):
    exporter = Exporter(adapters=10)
    exporter.publish(Frames(pl.DataFrame(), adapters((name, 1, 1))))
    assert [labels["adapter"] for labels, _ in scrape(exporter)[names.ADAPTER_REQUESTS]] == [name]


def test_a_counter_is_one_series():
    exporter = Exporter(adapters=10)
    exporter.source_rows.labels("agent").inc(3)
    assert not any(name.endswith("_created") for name in scrape(exporter))
