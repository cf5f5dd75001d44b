"""The past: out of a real Prometheus, and out of files in the form of our own tables."""

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from builders import events, requests
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sources.conftest import DATA, Reply
from typer.testing import CliRunner, Result

from lora_watch import names
from lora_watch.cli import app
from lora_watch.config import PrometheusSettings, Settings
from lora_watch.errors import LoraWatchError, SchemaMismatch, SourceRejected
from lora_watch.import_history import (
    Imported,
    bar,
    begun,
    from_event_logs,
    from_prometheus,
    from_request_logs,
    from_tables,
    reader_of,
    server_of,
    span,
)
from lora_watch.model import DAY, HOUR, MINUTE, SECOND, PodId, Provenance, Window
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES, Batch
from lora_watch.sources.history import HistoryOf
from lora_watch.sources.history_tables import Filling, TableFile
from lora_watch.sources.series import sample_frame, sample_row
from lora_watch.store.tables import Store

START = 1_795_900_000
"""Seconds UTC; a scrape every 15 s from here."""
NOW = (START + 90_000) * SECOND
VOUCHED = Filling("c", Provenance.OBSERVED)


def clock() -> int:
    return NOW


# --- a Prometheus that takes samples by remote write ---------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def series(labels: Mapping[str, str], samples: Sequence[tuple[float, float]]) -> bytes:
    """A `TimeSeries` of (seconds, value)."""
    body = b"".join(field(1, field(1, name.encode()) + field(2, text.encode())) for name, text in sorted(labels.items()))
    points = []
    for at, value in samples:
        point = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(round(at * 1000))
        points.append(b"\x12" + varint(len(point)) + point)
    return field(1, body + b"".join(points))


def snappy(body: bytes) -> bytes:
    """Snappy's form of literals alone: nothing is made shorter."""
    parts = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    return varint(len(body)) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)


class Real:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def write(self, *parts: bytes) -> None:
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        ask = urllib.request.Request(f"{self.url}/api/v1/write", snappy(b"".join(parts)), headers, method="POST")
        with urllib.request.urlopen(ask, timeout=60) as answer:
            assert answer.status == 204


@pytest.fixture
def real(tmp_path) -> Iterator[Real]:
    (tmp_path / "prometheus.yml").write_text("storage: {tsdb: {out_of_order_time_window: 40d}}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    options += [
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=100y",
        "--web.enable-remote-write-receiver",
    ]
    with subprocess.Popen(["prometheus", *options], stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "ready to receive web requests" in line:
                break
        yield Real(f"http://127.0.0.1:{port}")
        process.send_signal(signal.SIGKILL)
        process.stderr.read()


def pod_engine(pod: int, engine: int, metric: str = names.REQUESTS_RUNNING) -> dict[str, str]:
    return {"__name__": metric, "pod": f"vllm-{pod}", "engine": str(engine), "instance": f"vllm-{pod}:8000"}


def lay(real: Real, *, pods: int, engines: int, hours: int, every: int = 15) -> pl.DataFrame:
    """Write that much history, an hour at a time; what was written."""
    kinds = [(pod, engine) for pod in range(pods) for engine in range(engines)]
    for hour in range(hours):
        times = range(START + 3600 * hour, START + 3600 * (hour + 1), every)
        real.write(*(series(pod_engine(*kind), [(at, value(kind, at)) for at in times]) for kind in kinds))
    times = pl.DataFrame({"at": range(START, START + 3600 * hours, every)})
    made = pl.DataFrame(kinds, schema=["pod", "engine"], orient="row").join(times, how="cross")
    known = made.with_columns(value=(pl.col("pod") * 1000 + pl.col("engine") + (pl.col("at") - START) / 4096).cast(pl.Float64))
    return known.select(
        pod=pl.format("vllm-{}", "pod"), engine=pl.col("engine").cast(pl.String), at=pl.col("at") * SECOND, value="value"
    )


def value(kind: tuple[int, int], at: int) -> float:
    return kind[0] * 1000 + kind[1] + (at - START) / 4096


def stored(folder: Path, table=SAMPLES) -> pl.DataFrame:
    return Store(folder).scan(table).collect(engine="streaming")


def assert_same(folder: Path, expected: pl.DataFrame) -> None:
    """Exactly these samples are stored, each once."""
    rows = stored(folder)
    assert rows.height == expected.height
    assert rows.select("series", "at").is_unique().all()
    order = ["pod", "engine", "at"]
    assert rows.select(*order, "value").sort(order).equals(expected.select(*order, "value").sort(order))


def bring(url: str, folder: Path, window: Window, show=lambda *_: None, systems=("vllm",)) -> Imported:
    server = PrometheusSettings(name="p", url=url, systems=systems)
    return from_prometheus(Settings(), server, window, Store(folder), clock, show)


class Interrupted(Exception):
    """What a test stops an import with."""


def once_stored(folder: Path):
    """Stop an import as soon as it has stored something."""

    def show(*_: object) -> None:
        if list(folder.rglob("*.parquet")):
            raise Interrupted

    return show


def test_an_import_stores_exactly_the_samples_of_its_span(real, tmp_path):
    expected = lay(real, pods=2, engines=3, hours=2)
    begin, end = (START + 600) * SECOND, (START + 6600) * SECOND
    done = bring(real.url, tmp_path / "store", Window(begin, end))
    assert (done.complete, done.late, list(done.problems)) == (True, 0, [])
    assert_same(tmp_path / "store", expected.filter(pl.col("at").is_between(begin, end, closed="left")))


def test_the_same_command_again_stores_nothing_twice(real, tmp_path):
    expected = lay(real, pods=1, engines=2, hours=1)
    window = Window(START * SECOND, (START + 3600) * SECOND)
    assert bring(real.url, tmp_path / "store", window).rows == expected.height
    again = bring(real.url, tmp_path / "store", window)
    assert (again.rows, again.repeated, again.complete) == (0, expected.height, True)


def test_an_interrupted_import_goes_on_and_takes_what_came_late_in_between_once(real, tmp_path):
    expected = lay(real, pods=1, engines=2, hours=3)
    window = Window(START * SECOND, (START + 3 * 3600) * SECOND)
    with pytest.raises(Interrupted):
        bring(real.url, tmp_path / "store", window, once_stored(tmp_path / "store"))
    assert 0 < stored(tmp_path / "store").height < expected.height
    late = [(START + 7, 1.0), (START + 3607, 2.0), (START + 3 * 3600 - 8, 3.0)]
    real.write(series(pod_engine(0, 0), late))
    bring(real.url, tmp_path / "store", window)
    bring(real.url, tmp_path / "store", window)
    more = pl.DataFrame([("vllm-0", "0", at * SECOND, v) for at, v in late], schema=expected.schema, orient="row")
    assert_same(tmp_path / "store", pl.concat([expected, more]))


def test_late_samples_are_told_apart_from_those_that_are_merely_new(real, tmp_path):
    lay(real, pods=1, engines=1, hours=1)
    bring(real.url, tmp_path / "store", Window(START * SECOND, (START + 1800) * SECOND))
    real.write(series(pod_engine(0, 0), [(START + 7, 1.0)]))
    done = bring(real.url, tmp_path / "store", Window(START * SECOND, (START + 3600) * SECOND))
    assert (done.rows, done.late) == (121, 1)


def test_routers_and_gpus_are_imported_where_they_are_asked_for(real, tmp_path):
    attempts = {"endpoint_name": "vllm-0", "target_model_name": "a", "pod": "epp-0"}
    gpu = {"gpu": "0", "Hostname": "n", "exported_pod": "vllm-0", "pod": "dcgm-exporter-1"}
    real.write(
        series({"__name__": names.EPP_ATTEMPTS[0], **attempts}, [(START, 5.0)]),
        series({"__name__": names.EPP_ATTEMPTS[-1], **attempts}, [(START, 5.0), (START + 15, 6.0)]),
        series({"__name__": names.GPU_UTIL, **gpu}, [(START, 94.0)]),
    )
    window = Window(START * SECOND, (START + 60) * SECOND)
    bring(real.url, tmp_path / "store", window, systems=("vllm", "router", "gpu"))
    rows = stored(tmp_path / "store").sort("metric", "at")
    assert rows.select("metric", "pod", "adapter", "value").rows() == [
        (names.GPU_UTIL, "vllm-0", None, 94.0),
        (names.EPP_ATTEMPTS[0], "vllm-0", "a", 5.0),
        (names.EPP_ATTEMPTS[0], "vllm-0", "a", 6.0),
    ]


class Sparse:
    """A source with one sample in years, and a note of what it was asked for."""

    name, table = "p", SAMPLES

    def __init__(self, at: int) -> None:
        self.at = at
        self.asked: list[tuple[int, int]] = []

    def read(self, positions: Mapping[str, int], until: int) -> Batch:
        (begin,) = positions.values()
        self.asked.append((begin, until))
        there = [sample_row(PodId("c", "v"), self.at, "m", 1.0, {}, "p")] if begin <= self.at < until else []
        return Batch(sample_frame(there), {"prom/p/m": until})


def test_months_without_a_sample_are_read_without_gaps_and_cost_few_commits():
    window = Window(START * SECOND - 100 * DAY, START * SECOND + DAY)
    sparse = Sparse(START * SECOND)
    history = HistoryOf(sparse, ["m"], window)
    positions: dict[str, int] = {}
    batches = []
    while history.done(positions) < history.whole:
        batches.append(history.read(positions, NOW))
        positions |= batches[-1].positions
    assert sum(batch.rows.height for batch in batches) == 1
    assert len(batches) < 10
    assert [end for _, end in sparse.asked] == [*(begin for begin, _ in sparse.asked[1:]), window.end]
    assert max(end - begin for begin, end in sparse.asked) == DAY


def test_an_import_ends_by_default_where_the_service_began_to_read(tmp_path):
    server = PrometheusSettings(name="p", url="http://x", systems=("vllm", "router"))
    store = Store(tmp_path)
    assert begun(store, server, NOW) == NOW
    found = [sample_row(PodId("c", "v"), START * SECOND + n, "m", 1.0, {}, name) for n, name in enumerate(("q", "p-router", "p"))]
    store.ledger(SAMPLES).append(Batch(sample_frame(found)), at=NOW)
    assert begun(store, server, NOW) == START * SECOND + 1


def test_a_server_that_is_gone_ends_the_import_and_says_so(closed_port, tmp_path):
    done = bring(closed_port, tmp_path / "store", Window(START * SECOND, (START + 60) * SECOND))
    assert not done.complete
    assert len(done.problems) == 1


def test_a_metric_that_is_refused_stops_no_other(serve, tmp_path):
    def answer(request) -> Reply:
        if b"num_requests_running" in request.body:
            return Reply(json.dumps({"status": "error", "errorType": "bad_data", "error": "not today"}).encode(), 400)
        result = [{"metric": {"pod": "v"}, "values": [[START + 1, "1"]]}] if b"kv_cache_usage" in request.body else []
        return Reply(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode())

    done = bring(serve(answer).url, tmp_path / "store", Window(START * SECOND, (START + 60) * SECOND))
    assert not done.complete
    assert stored(tmp_path / "store")["metric"].to_list() == [names.KV_CACHE_USAGE]


KILLED = f"""
import os, signal, sys
from pathlib import Path
from lora_watch.cli import app
from lora_watch.config import PrometheusSettings, Settings
from lora_watch.import_history import from_prometheus
from lora_watch.model import DAY, Window
from lora_watch.sources.series import sample_frame, sample_row
from lora_watch.store.tables import Store

def show(*_):
    if len(list(Path(sys.argv[2]).rglob("*.parquet"))) >= 4:
        os.kill(os.getpid(), signal.SIGKILL)

server = PrometheusSettings(name="p", url=sys.argv[1])
begin = {START * SECOND}
from_prometheus(Settings(), server, Window(begin, begin + DAY), Store(sys.argv[2]), lambda: {NOW}, show)
"""
"""An import that is killed without notice between two steps, once the store holds four files."""


@pytest.mark.slow
def test_a_day_of_480_series_is_stored_exactly_through_a_kill_and_late_samples(real, tmp_path):
    expected = lay(real, pods=8, engines=60, hours=24)
    begin, end = "2026-11-28T21:06:40Z", "2026-11-29T21:06:40Z"
    window = span(begin, end, NOW)
    assert window == Window(START * SECOND, START * SECOND + DAY)
    command = [sys.executable, "-m", "lora_watch.cli", "import", "prometheus", "--url", real.url, "--server", "p"]
    command += ["--from", begin, "--to", end, "--data", str(tmp_path / "store")]
    part = subprocess.run([sys.executable, "-c", KILLED, real.url, str(tmp_path / "store")], check=False)
    assert part.returncode == -signal.SIGKILL
    before = stored(tmp_path / "store").height
    assert 0 < before < expected.height
    late = [(START + 3600 * hour + 7, float(hour)) for hour in range(24)]
    real.write(series(pod_engine(3, 7), late))
    whole = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "not everything" not in whole.stdout
    more = pl.DataFrame([("vllm-3", "7", at * SECOND, v) for at, v in late], schema=expected.schema, orient="row")
    assert_same(tmp_path / "store", pl.concat([expected, more]))
    again = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "stored 0 new rows" in again.stdout


# --- files in the form of our own tables ---------------------------------------------------------------------------------------


def put(folder: Path, rows: pl.DataFrame, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        rows.write_parquet(path)
    elif kind == "csv":
        rows.write_csv(path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.iter_rows(named=True)))
    return path


def take(folder: Path, path: Path, table, filling: Filling = VOUCHED) -> Imported:
    return from_tables([path], table, filling, Store(folder / "store"), clock)


YEAR_2026 = START * SECOND


def shifted(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the builders, which begin in 1970, in 2026."""
    times = [name for name in ("at", "arrived", "queued", "scheduled", "first_token", "finished") if name in rows.columns]
    return rows.with_columns(pl.col(times) + YEAR_2026)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("table", [ADAPTER_EVENTS, REQUESTS], ids=lambda table: table.name)
def test_rows_come_back_as_they_were_once(tmp_path, kind, table):
    rows = shifted(events("a:0-30 b!:10-") if table is ADAPTER_EVENTS else requests("a:10/12/13/20 b:1/2/3/4"))
    path = put(tmp_path, rows, kind)
    first, second = take(tmp_path, path, table), take(tmp_path, path, table)
    assert (first.rows, first.problems, second.rows) == (rows.height, {}, 0)
    back = stored(tmp_path / "store", table).sort("stream", "seq")
    kept = [name for name in rows.columns if name not in ("date", "bucket")]
    assert back.select(kept).equals(rows.sort("stream", "seq").select(kept))


def test_a_request_needs_little(tmp_path):
    (tmp_path / "r.csv").write_text(f"pod,adapter,arrived,finished\nvllm-0,a,{YEAR_2026},{YEAR_2026 + SECOND}\n")
    assert take(tmp_path, tmp_path / "r.csv", REQUESTS).rows == 1
    row = stored(tmp_path / "store", REQUESTS).row(0, named=True)
    assert (row["at"], row["cluster"], row["provenance"], row["source"]) == (YEAR_2026 + SECOND, "c", "observed", "import")
    assert row["stream"].startswith("file/")


def test_a_sample_gets_the_series_that_a_source_would_give_it(tmp_path):
    line = {"at": YEAR_2026, "pod": "v", "metric": "m", "value": 1, "labels": {"b": "1", "a": "é"}, "adapter": "x"}
    (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
    take(tmp_path, tmp_path / "s.jsonl", SAMPLES)
    row = stored(tmp_path / "store").row(0, named=True)
    assert row["labels"] == '{"a":"é","b":"1"}'
    assert re.fullmatch("[0-9a-f]{24}", row["series"])


def test_rows_that_do_not_fit_are_counted_by_reason_with_the_first_ones_number(tmp_path):
    good = {"at": YEAR_2026, "pod": "v", "metric": "m", "value": 1}
    bad = [{**good, "at": "soon"}, {**good, "value": "NaN"}, {**good, "at": 7}, {**good, "pod": None}, {**good, "at": "later"}]
    lines = [json.dumps(row) for row in [good, *bad]] + ["{", ""]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    done = take(tmp_path, tmp_path / "s.jsonl", SAMPLES)
    assert done.rows == 1
    assert {problem.partition("jsonl: ")[2] for problem in done.problems} == {
        "1 row left out (the first is row 4): at is not between 2000 and 2100 (µs UTC)",
        "1 row left out (the first is row 3): value is not finite",
        "1 row left out (the first is row 5): pod is empty",
        "1 row left out (the first is row 7): not a JSON object",
        "2 rows left out (the first is row 2): at is no whole number",
    }


def test_whole_numbers_may_be_floats_in_a_file_but_no_times_of_another_kind(tmp_path):
    frame = pl.DataFrame({"pod": ["v", "v"], "finished": [float(YEAR_2026), 0.5], "prompt_tokens": [7.0, 7.0]})
    frame.write_parquet(tmp_path / "r.parquet")
    source = TableFile(tmp_path / "r.parquet", REQUESTS, VOUCHED)
    assert (source.height, len(source.problems)) == (1, 1)
    frame.with_columns(pl.from_epoch(pl.col("finished").cast(pl.Int64), time_unit="us")).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(SchemaMismatch, match="times are µs since 1970"):
        TableFile(tmp_path / "t.parquet", REQUESTS, VOUCHED)


def test_a_line_too_long_to_be_a_row_is_counted_and_the_next_one_read(tmp_path):
    good = json.dumps({"pod": "v", "finished": YEAR_2026})
    (tmp_path / "r.jsonl").write_text(good + "\n" + '{"x":"' + "y" * (9 << 20) + '"}\n' + good + "\n")
    source = TableFile(tmp_path / "r.jsonl", REQUESTS, VOUCHED)
    assert source.height == 2
    assert source.problems[0].endswith("1 row left out (the first is row 2): not a JSON object")


@given(
    st.dictionaries(
        st.sampled_from(["at", "pod", "metric", "value", "labels", "adapter", "series", "cluster", "provenance"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2),
    )
)
@settings(deadline=None)
def test_no_cell_is_too_strange(tmp_path_factory, row):
    path = tmp_path_factory.mktemp("odd") / "s.jsonl"
    good = {"at": YEAR_2026, "pod": "v", "metric": "m", "value": 1}
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **row}) + "\n")
    source = TableFile(path, SAMPLES, VOUCHED)
    assert source.height + len(source.problems) == 2


def test_rows_of_unknown_provenance_are_refused_until_somebody_vouches_for_them(tmp_path):
    (tmp_path / "s.jsonl").write_text(json.dumps({"at": YEAR_2026, "pod": "v", "metric": "m", "value": 1}) + "\n")
    done = take(tmp_path, tmp_path / "s.jsonl", SAMPLES, Filling())
    assert done.rows == 0
    assert "--provenance vouches" in next(iter(done.problems))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "pod,finished,color\nv,1,red\n", "has no column 'color'"),
        ("a.csv", "pod,stream,finished\nv,s,1\n", "has 'stream' alone"),
        ("a.csv", "finished\n1\n", "needs column 'pod'"),
        ("a.csv", "", "is empty"),
        ("a.txt", "x", "what is read ends in .parquet, .csv"),
        ("a.parquet", "x", "is not Parquet"),
    ],
)
def test_a_file_that_is_no_table_says_why(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises((SchemaMismatch, SourceRejected), match=re.escape(message)):
        TableFile(tmp_path / name, REQUESTS, VOUCHED)


def test_one_bad_file_stops_no_other_and_makes_the_import_incomplete(tmp_path):
    (tmp_path / "a.csv").write_text("x\n")
    (tmp_path / "b.csv").write_text(f"pod,finished\nv,{YEAR_2026}\n")
    done = from_tables(
        [tmp_path / "gone.csv", tmp_path / "a.csv", tmp_path / "b.csv"], REQUESTS, VOUCHED, Store(tmp_path / "s"), clock
    )
    assert (done.rows, done.complete, len(done.problems)) == (1, False, 2)


def test_a_large_file_comes_in_steps_that_lose_nothing_when_they_are_cut_off(tmp_path):
    rows = shifted(requests(" ".join(f"a:{n}/{n}/{n}/{n}" for n in range(1, 11)))).sample(fraction=1, shuffle=True, seed=1)
    path = put(tmp_path, rows, "parquet")
    store = Store(tmp_path / "store")
    ledger = store.ledger(REQUESTS)
    cut = TableFile(path, REQUESTS, VOUCHED, rows_a_step=3)
    ledger.append(cut.read(ledger.refresh(), NOW), at=NOW)
    cut.taken()
    ledger.append(cut.read(ledger.refresh(), NOW), at=NOW)
    done = take(tmp_path, path, REQUESTS)
    assert (done.rows, done.repeated) == (4, 6)
    assert stored(tmp_path / "store", REQUESTS)["seq"].sort().to_list() == list(range(1, 11))


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5))
@settings(deadline=None, max_examples=25)
def test_adapters_of_any_name_come_back_whole(tmp_path_factory, adapters):
    folder = tmp_path_factory.mktemp("names")
    lines = [json.dumps({"pod": "v", "finished": YEAR_2026 + n, "adapter": name}) for n, name in enumerate(adapters)]
    (folder / "r.jsonl").write_text("\n".join(lines) + "\n")
    take(folder, folder / "r.jsonl", REQUESTS)
    assert stored(folder / "store", REQUESTS).sort("seq")["adapter"].to_list() == adapters


# --- logs ----------------------------------------------------------------------------------------------------------------------


def test_an_event_log_feeds_both_tables_once(tmp_path):
    boot = "0b0e4a11-2222-4333-8444-555555555555"
    records = [
        {"v": 1, "boot": boot, "seq": n, "at": YEAR_2026 + n, "kind": kind, "engine": "0", "finished": YEAR_2026 + n}
        for n, kind in enumerate(("start", "request", "use"), 1)
    ]
    log = tmp_path / f"{boot}.000000000001.jsonl"
    log.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    store = Store(tmp_path / "store")
    first = from_event_logs([log], PodId("c", "v"), store, clock)
    again = from_event_logs([log], PodId("c", "v"), store, clock)
    assert (first.rows, again.rows) == (3, 0)
    assert stored(tmp_path / "store", REQUESTS).height == 1


def test_request_logs_are_read_to_their_end_once_and_what_is_no_request_is_told(tmp_path):
    reader = reader_of(Settings(), "openai", PodId("c", "gateway"))
    store = Store(tmp_path / "store")
    files = [str(DATA / "requests-openai.jsonl")]
    first, again = (from_request_logs(files, reader, store, clock) for _ in range(2))
    assert (first.rows, again.rows) == (2, 0)
    assert "names no model" in next(iter(first.problems))


# --- what is asked for ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end", "length"),
    [
        ("2026-11-28", "2026-11-29", DAY),
        ("2026-11-28T10:00:00Z", "2026-11-28T12:00:00+01:00", HOUR),
        ("2026-11-29T22:05:40Z", None, MINUTE),
    ],
)
def test_a_span_is_dates_or_moments(begin, end, length):
    window = span(begin, end, NOW)
    assert window.end - window.start == length


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        ("yesterday", None, "is no date"),
        ("2026-11-28T10:00:00", None, "has no time zone"),
        ("2026-11-28", "2026-11-28", "before it begins"),
        ("1969-01-01", None, "before 1970"),
    ],
)
def test_a_span_that_is_none_says_why(begin, end, message):
    with pytest.raises(LoraWatchError, match=message):
        span(begin, end, NOW)


def test_a_server_is_the_only_one_the_one_named_or_one_at_an_address():
    one, two = (PrometheusSettings(name=name, url="http://x") for name in ("one", "two"))
    assert server_of(Settings(prometheus=(one,)), None, None).name == "one"
    assert server_of(Settings(prometheus=(one, two)), "two", None).name == "two"
    assert server_of(Settings(), None, "http://prom:9090/x").name == "prom-9090-x"
    for known, name, message in (((), None, "names none"), ((one, two), None, "names several"), ((one,), "three", "none called")):
        with pytest.raises(LoraWatchError, match=message):
            server_of(Settings(prometheus=known), name, None)


# --- the command ---------------------------------------------------------------------------------------------------------------


def command(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["import", *arguments, "--data", str(folder / "store")])


def test_the_command_says_what_it_stored_and_what_it_left_out(tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps({"pod": "v", "finished": YEAR_2026}) + "\n{\n")
    said = command(tmp_path, "table", str(tmp_path / "r.jsonl"), "--table", "requests", "--provenance", "observed")
    assert said.exit_code == 0
    assert "stored 1 new rows; 0 were stored already" in said.stdout
    assert "1 row left out (the first is row 2): not a JSON object" in said.stdout


def test_the_command_reads_request_logs_and_event_logs(tmp_path):
    said = command(tmp_path, "requests", str(DATA / "requests-litellm.jsonl"), "--format", "litellm", "--pod", "gateway")
    assert (said.exit_code, stored(tmp_path / "store", REQUESTS)["adapter"].to_list()) == (0, ["legal-v2", "sql"])
    said = command(tmp_path, "events", str(tmp_path / "gone"), "--pod", "v")
    assert said.exit_code == 1
    assert "no event log can be read" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "x.csv", "--table", "request"], "there is no table 'request'; there are adapter_events, requests, samples"),
        (["table", "x.csv", "--table", "requests", "--provenance", "sure"], "'sure' is no provenance"),
        (["requests", "x", "--format", "nginx", "--pod", "p"], "format 'nginx' is not known"),
        (["prometheus", "--from", "2026-11-28"], "which Prometheus?"),
        (["prometheus", "--from", "soon", "--url", "http://x"], "'soon' is no date"),
    ],
)
def test_a_command_that_makes_no_sense_says_why(tmp_path, arguments, message):
    said = command(tmp_path, *arguments)
    assert said.exit_code == 2
    assert message in said.stderr


def test_a_terminal_sees_how_much_is_done_and_a_file_sees_nothing():
    seen, unseen = StringIO(), StringIO()
    for out, terminal in ((seen, True), (unseen, False)):
        with bar(Console(file=out, force_terminal=terminal, width=120)) as show:
            show("p 2026-11-28 21:06\x1b[2J", 1, 4)
    assert "25%" in seen.getvalue()
    assert "\x1b[2J" not in seen.getvalue()
    assert unseen.getvalue().strip() == ""


def test_names_from_files_cannot_move_a_terminals_cursor(tmp_path):
    (tmp_path / "a\x1b[2J.csv").write_text("x\n")
    said = command(tmp_path, "table", str(tmp_path / "a\x1b[2J.csv"), "--table", "requests")
    assert "\x1b" not in said.stdout
