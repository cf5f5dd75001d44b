import socket
import urllib.request
from dataclasses import dataclass, field

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lora_watch import names
from lora_watch.diagnose.finding import Confidence, Evidence, Finding, Remedy, Severity
from lora_watch.diagnose.life import Change, Phase, State
from lora_watch.exporter import CUT, FINDINGS_SHOWN, Exporter, bounded

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


@dataclass(frozen=True)
class Measured:
    """What a look for findings measured."""

    pods: pl.DataFrame = field(default_factory=pl.DataFrame)
    pools: pl.DataFrame = field(default_factory=pl.DataFrame)
    working_set: pl.DataFrame = field(default_factory=pl.DataFrame)
    load_seconds: pl.DataFrame = field(default_factory=pl.DataFrame)


POOL = {"cluster": "c", "pool": "p", "role": "", "provenance": "observed"}


def told(number: int = 0, **changed: object) -> State:
    """A finding that is open."""
    finding = Finding(
        **{
            "kind": "thrash",
            "severity": Severity.WARN,
            "cluster": "c",
            "pool": "p",
            "role": "",
            "since": 0,
            "summary": "Thrash",
            "cause": "too many",
            "confidence": Confidence.HIGH,
            "weight": 1.0,
            "scope": str(number),
            **changed,
        }
    )
    return State(number, f"f{number}", Phase.OPEN, Change.OPENED, number, number, None, None, 1.0, finding)


def with_findings(*states: State) -> dict[str, list[tuple[dict[str, str], float]]]:
    exporter = Exporter(adapters=1, explorer="https://lora.example/")
    exporter.publish_signals(Measured())
    exporter.publish_findings(states)
    return scrape(exporter)


def test_what_a_look_measured_is_published_by_pod_pool_span_and_phase():
    exporter = Exporter(adapters=1)
    exporter.publish_signals(
        Measured(
            pl.DataFrame([{**POD, "stall_share": 0.25, "kv_cache": None}]),
            pl.DataFrame([{**POOL, "predicted_miss_ratio": 0.26}]),
            pl.DataFrame([{**POOL, "seconds": "0.625", "adapters": 3.5}]),
            pl.DataFrame([{**POOL, "phase": "disk", "load_seconds": 1.5}]),
        )
    )
    page = scrape(exporter)
    assert page[names.RECENT_STALL_SHARE] == [(POD, 0.25)]
    assert page[names.RECENT_KV_CACHE] == []
    assert page[names.PREDICTED_MISS_RATIO] == [(POOL, 0.26)]
    assert page[names.WORKING_SET] == [({**POOL, "seconds": "0.625"}, 3.5)]
    assert page[names.POOL_LOAD_SECONDS] == [({**POOL, "phase": "disk"}, 1.5)]


def test_an_open_finding_has_a_small_series_and_one_with_its_words():
    remedy = Remedy("slots", "+1 slot per pod", effect=0.33)
    page = with_findings(
        told(evidence=(Evidence("a", "x", 1.0, "", "observed"), Evidence("b", "y", 1.0, "", "observed")), remedies=(remedy,))
    )
    who = {"finding": "f0", "kind": "thrash", "cluster": "c", "pool": "p", "role": ""}
    assert page[names.OPEN_FINDING] == [({**who, "severity": "warn"}, 1.0)]
    ((labels, _),) = page[names.FINDING_INFO]
    assert labels == {
        **who,
        "summary": "Thrash",
        "cause": "too many",
        "evidence": "a; b",
        "remedy": "+1 slot per pod (33 % of the swaps less)",
        "explorer": "https://lora.example/?cluster=c&pool=p&last=1h",
        "provenance": "observed",
    }


def test_of_many_open_findings_the_gravest_are_shown():
    warned = [told(number) for number in range(FINDINGS_SHOWN)]
    page = with_findings(*warned, told(1000, severity=Severity.HARM))
    shown = [labels["finding"] for labels, _ in page[names.OPEN_FINDING]]
    assert len(shown) == FINDINGS_SHOWN
    assert shown[0] == "f1000"
    assert "f0" not in shown


@pytest.mark.parametrize("text", ['"', "a,b", "new\nline", "\x1b[31m", "</script>", "\\", "x" * 10_000, "ابجد", "🦙", "\ud800"])
def test_hostile_words_become_labels_of_one_line_that_are_not_too_long(text: str):
    ((labels, _),) = with_findings(told(summary=text, pool=text))[names.FINDING_INFO]
    assert len(labels["summary"]) <= CUT
    assert labels["summary"].isprintable()
    assert "\n" not in labels["explorer"]


@pytest.mark.parametrize(
    "pool", ["a\nb", "\x1b[31m", "family \U0001f469\u200d\U0001f467", "\u202eright to left", "x" * 3000, "\\", "a\tb"]
)
def test_a_finding_bears_the_name_of_its_pool_as_every_series_has_it(pool: str):
    exporter = Exporter(adapters=1)
    exporter.publish_signals(Measured(pools=pl.DataFrame([{**POOL, "pool": pool, "rho_peak": 1.0}])))
    exporter.publish_findings([told(pool=pool)])
    page = scrape(exporter)
    names_of = {
        name: {labels["pool"] for labels, _ in page[name]} for name in (names.RHO_PEAK, names.OPEN_FINDING, names.FINDING_INFO)
    }
    assert set(map(frozenset, names_of.values())) == {frozenset({pool})}


def test_a_name_too_long_for_an_address_is_left_out_of_it_and_not_cut():
    ((labels, _),) = with_findings(told(pool="日" * 60))[names.FINDING_INFO]
    assert labels["explorer"] == "https://lora.example/?cluster=c&last=1h"


def test_a_finding_that_is_over_has_no_series():
    assert with_findings()[names.OPEN_FINDING] == []
