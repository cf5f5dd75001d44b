"""Request logs: what their fields mean, and that each line is read once whatever happens to the file."""

import gzip
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources.conftest import DATA

from lora_watch.config import parse
from lora_watch.errors import ConfigError, SourceUnavailable
from lora_watch.model import SECOND, PodId
from lora_watch.schema import REQUESTS
from lora_watch.sources.base import parse_stream
from lora_watch.sources.configured import request_logs_of
from lora_watch.sources.request_log import Reader, load_formats
from lora_watch.sources.request_log_files import RequestLog, RequestLogs
from lora_watch.store.tables import Store

QUARTER = int(datetime(2026, 11, 30, 10, 15, tzinfo=UTC).timestamp()) * SECOND
POD = PodId("c", "gateway", "chat")
UNTIL = QUARTER + 60 * SECOND


def reader(name: str, **more) -> Reader:
    return Reader(load_formats()[name], POD, "logs", **more)


def read(name: str, **more):
    path = DATA / f"requests-{name}.jsonl"
    return RequestLogs("logs", [RequestLog(str(path), reader(name, **more))]).read({}, UNTIL)


def line(number: int, adapter: str = "a", **more) -> str:
    body = {"request_id": str(number), "model": adapter, "timestamp": "2026-11-30T10:15:02Z", "duration_ms": number, **more}
    return json.dumps(body) + "\n"


def logs(*paths: Path, **more) -> RequestLogs:
    return RequestLogs("logs", [RequestLog(str(path), reader("openai")) for path in paths], **more)


class Tail:
    """Reads logs tick by tick into a store, as the service does."""

    def __init__(self, folder: Path, *paths: Path, **more) -> None:
        self.source = logs(*paths, **more)
        self.store = Store(folder / "store")
        self.ledger = self.store.ledger(REQUESTS)

    def tick(self) -> tuple[str, ...]:
        batch = self.source.read(self.ledger.refresh(), UNTIL)
        self.ledger.append(batch, at=UNTIL)
        return batch.problems

    def ids(self) -> list[str]:
        return sorted(self.store.scan(REQUESTS).collect(engine="streaming")["request_id"], key=int)


def test_an_openai_line_gives_times_tokens_and_the_pod_it_names():
    row = read("openai").rows.filter(request_id="r1").row(0, named=True)
    assert (row["adapter"], row["pod"], row["pool"], row["finish_reason"]) == ("legal-v2", "vllm-0", "chat", "stop")
    assert (row["arrived"], row["first_token"], row["finished"]) == (
        QUARTER + 1_000_000,
        QUARTER + 1_080_000,
        QUARTER + 2_500_000,
    )
    assert (row["prompt_tokens"], row["generated_tokens"], row["cached_tokens"]) == (12, 30, 8)
    assert (row["at"], row["scheduled"], row["provenance"]) == (row["finished"], None, "observed")


def test_a_count_that_is_none_is_unknown_and_a_length_may_be_text():
    row = read("openai").rows.filter(request_id="r2").row(0, named=True)
    assert (row["prompt_tokens"], row["finished"] - row["arrived"], row["pod"]) == (None, 250_000, "gateway")


def test_a_base_model_is_no_adapter():
    assert read("openai", base_models={"llama"}).rows.filter(request_id="r2")["adapter"].to_list() == [None]


def test_litellm_times_are_seconds_or_iso_and_its_provider_is_no_part_of_the_name():
    rows = read("litellm", pods={"http://10.0.0.7:8000/v1": "vllm-0"}).rows
    assert rows.select("adapter", "pod", "finish_reason").rows() == [
        ("legal-v2", "vllm-0", "success"),
        ("sql", "gateway", "failure"),
    ]
    assert rows["first_token"].to_list() == [QUARTER + 500_000, None]
    assert rows["finished"].to_list() == [QUARTER + 2 * SECOND, QUARTER + 1_125_000]


def test_envoy_lines_without_a_model_are_no_requests():
    batch = read("envoy")
    assert batch.rows.select("request_id", "adapter", "pod").rows() == [
        ("e1", "legal-v2", "10.0.0.7:8000"),
        ("e3", "sql", "gateway"),
    ]
    assert batch.rows["finished"].to_list() == [QUARTER + 2 * SECOND, QUARTER + 412_000]
    assert batch.problems == ()


def test_the_first_byte_of_an_answer_is_not_taken_for_its_first_token():
    assert read("envoy").rows["first_token"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"model": "a"}', "it has no time at which it finished"),
        ('{"model": "a", "timestamp": "2026-11-30T10:15:02"}', "timestamp is '2026-11-30T10:15:02', no time in iso"),
        ('{"model": "a", "timestamp": "yesterday"}', "timestamp is 'yesterday', no time in iso"),
        ('{"model": "a", "timestamp": "0001-01-01T00:00:00Z"}', "finished is not between 2000 and 2100: is the unit right?"),
        (
            '{"model": "a", "created": 1796033700000, "duration_ms": 1}',
            "arrived is not between 2000 and 2100: is the unit right?",
        ),
        ('{"model": "a", "started_at": "2026-11-30T10:15:02Z", "duration_ms": -1}', "duration_ms is '-1', no length in ms"),
        ('{"model": "a", "created": 1796033700, "finished_at": "2026-11-30T10:14:59Z"}', "finished lies before arrived"),
        ('{"model": {"x": 1}, "timestamp": "2026-11-30T10:15:02Z"}', "the model's name is \"{'x': 1}\""),
        ('{"model": "a", "created": 1e400, "duration_ms": 1}', "created is 'inf', no time in s"),
        ('{"model": "a", "created": true, "duration_ms": 1}', "created is 'True', no time in s"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(text: str, reason: str):
    assert reader("openai").row(text.encode()) == reason


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"model": value, "created": value, "duration_ms": value, "usage": value}).encode()
    )
)
@settings(deadline=None)
def test_no_line_is_too_strange(text: bytes):
    row = reader("openai").row(text)
    assert row is None or isinstance(row, (str, dict))


@given(st.text(min_size=1).filter(lambda name: name != "-"))
@settings(deadline=None)
def test_an_adapters_name_passes_whole(name: str):
    text = json.dumps({"model": name, "timestamp": "2026-11-30T10:15:02Z"})
    row = reader("openai").row(text.encode())
    assert isinstance(row, dict)
    assert row["adapter"] == name


def test_unreadable_lines_are_counted_by_reason_with_the_place_of_the_first(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(1) + "{\n" + "}\n" + '{"model": "a"}\n' + line(2))
    batch = logs(tmp_path / "a.log").read({}, UNTIL)
    first = len(line(1))
    assert batch.rows.height == 2
    assert [problem.partition("a.log: ")[2] for problem in batch.problems] == [
        f"2 lines were left out, the first at byte {first}: not a JSON object",
        f"the line at byte {first + 4} was left out: it has no time at which it finished",
    ]


def test_half_a_line_waits_until_it_is_whole(tmp_path: Path):
    path, whole = tmp_path / "a.log", line(2)
    tail = Tail(tmp_path, path)
    path.write_text(line(1) + whole[:20])
    tail.tick()
    assert tail.ids() == ["1"]
    with path.open("a") as more:
        more.write(whole[20:])
    assert tail.tick() == ()
    assert tail.ids() == ["1", "2"]


def test_half_a_first_line_is_no_stream_yet(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(1)[:20])
    assert logs(tmp_path / "a.log").read({}, UNTIL).positions == {}


def test_a_file_that_is_renamed_is_read_to_its_end_and_its_successor_from_the_beginning(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1))
    tail.tick()
    with path.open("a") as more:
        more.write(line(2))
    path.rename(tmp_path / "a.log.1")
    path.write_text(line(3))
    tail.tick()
    tail.tick()
    assert tail.ids() == ["1", "2", "3"]


def test_a_file_that_is_copied_and_truncated_loses_and_repeats_nothing(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1) + line(2))
    tail.tick()
    with path.open("a") as more:
        more.write(line(3))
    shutil.copy(path, tmp_path / "a.log.1")
    tail.tick()
    os.truncate(path, 0)
    with path.open("a") as more:
        more.write(line(4))
    tail.tick()
    assert tail.ids() == ["1", "2", "3", "4"]


def test_a_file_that_is_compressed_is_read_on(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1))
    tail.tick()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress((line(1) + line(2)).encode()))
    path.unlink()
    path.write_text(line(3))
    tail.tick()
    assert tail.ids() == ["1", "2", "3"]


def test_a_short_copy_beside_a_log_does_not_hide_it(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1) + line(2))
    tail.tick()
    (tmp_path / "a.log.bak").write_text(line(1))
    with path.open("a") as more:
        more.write(line(3))
    assert tail.tick() == ()
    assert tail.ids() == ["1", "2", "3"]


def test_old_files_that_nobody_had_begun_are_left_alone(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(2))
    (tmp_path / "a.log.1").write_text(line(1))
    assert logs(tmp_path / "a.log").read({}, UNTIL).rows["request_id"].to_list() == ["2"]
    assert sorted(logs(tmp_path / "a.log*").read({}, UNTIL).rows["request_id"]) == ["1", "2"]


def test_two_files_with_one_banner_are_two_streams(tmp_path: Path):
    banner = 'serving\n{"message": "hello", "version": 1}\n'
    for number in (1, 2):
        (tmp_path / f"{number}.log").write_text(banner + line(number))
    batch = logs(tmp_path / "*.log").read({}, UNTIL)
    assert len(batch.positions) == 2
    assert all(parse_stream(name)[0] == "file" for name in batch.positions)


def test_a_file_whose_end_was_cut_off_is_said_and_nothing_is_repeated(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1) + line(2) + line(3))
    tail.tick()
    os.truncate(path, len(line(1)))
    assert "shorter than what was read" in tail.tick()[0]
    assert tail.ids() == ["1", "2", "3"]


def test_a_file_that_was_changed_before_where_it_was_read_is_said_and_read_on_at_the_next_line(tmp_path: Path):
    path = tmp_path / "a.log"
    tail = Tail(tmp_path, path)
    path.write_text(line(1) + line(2))
    tail.tick()
    path.write_text(line(1) + line(22222) + line(3))
    assert "it is not where a line begins" in tail.tick()[0]
    assert tail.ids() == ["1", "2", "3"]


def test_an_archive_that_breaks_off_gives_what_can_be_read_of_none(tmp_path: Path):
    whole = gzip.compress(line(1).encode() + os.urandom(300_000).hex().encode() + b"\n")
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b.log").write_text(line(2))
    batch = logs(tmp_path / "*").read({}, UNTIL)
    assert batch.rows["request_id"].to_list() == ["2"]
    assert "a.log.gz" in batch.problems[0]


def test_a_line_of_megabytes_is_passed_over_and_counted(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text(line(1) + "x" * (9 << 20) + "\n" + line(2))
    batch = logs(path).read({}, UNTIL)
    assert batch.rows["request_id"].to_list() == ["1", "2"]
    assert "longer than" in batch.problems[0]


def test_at_most_so_many_lines_are_read_at_once_and_the_rest_next_time(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text("".join(map(line, range(1, 8))))
    tail = Tail(tmp_path, path, lines_per_stream=3)
    for _ in range(4):
        tail.tick()
    assert tail.ids() == [str(number) for number in range(1, 8)]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8))
@settings(deadline=None, max_examples=25)
def test_however_it_grows_each_line_comes_once_and_in_order(tmp_path_factory, growth):
    folder = tmp_path_factory.mktemp("log")
    whole = "".join(map(line, range(1, 40)))
    tail = Tail(folder, folder / "a.log")
    written = 0
    for size, rotate in growth:
        with (folder / "a.log").open("a") as more:
            more.write(whole[written : written + 37 * size])
        written += 37 * size
        tail.tick()
        if rotate:
            tail.tick()
    assert tail.ids() == [str(number) for number in range(1, whole[:written].count("\n") + 1)]


def test_one_file_that_is_gone_is_a_problem_and_none_at_all_is_unavailable(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(1))
    batch = logs(tmp_path / "gone.log", tmp_path / "a.log").read({}, UNTIL)
    assert batch.rows.height == 1
    assert "No such file" in batch.problems[0]
    with pytest.raises(SourceUnavailable, match=r"gone\.log"):
        logs(tmp_path / "gone.log").read({}, UNTIL)


def test_a_broken_archive_is_a_problem_of_its_own(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(1))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(line(2).encode() * 100)[:40])
    batch = logs(tmp_path / "*.log*").read({}, UNTIL)
    assert batch.rows["request_id"].to_list() == ["1"]
    assert len(batch.problems) == 1


def test_lines_that_are_no_requests_are_told_where_asked_for(tmp_path: Path):
    (tmp_path / "a.log").write_text(line(1) + '{"message": "hi"}\n')
    assert logs(tmp_path / "a.log").read({}, UNTIL).problems == ()
    assert "names no model" in logs(tmp_path / "a.log", tell_passed=True).read({}, UNTIL).problems[0]


def test_a_file_of_formats_adds_to_ours_and_replaces_by_name(tmp_path: Path):
    mine = tmp_path / "formats.yaml"
    mine.write_text("mine: {adapter: [m], times: {finished: [{field: t, unit: us}]}}\n")
    formats = load_formats(mine)
    assert set(formats) == {"openai", "litellm", "envoy", "mine"}
    row = Reader(formats["mine"], POD, "logs").row(f'{{"m": "a", "t": {QUARTER}}}'.encode())
    assert isinstance(row, dict)
    assert row["finished"] == QUARTER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {adapter: [m]}", "format 'a': times: Field required"),
        ("a: {adapter: [m], times: {arrived: [{field: t, unit: s}]}}", "times.finished is required"),
        ("a: {adapter: [m], times: {finished: [{field: t, unit: min}]}}", "times.finished.0.unit: Input should be 'iso'"),
        ("a: {adapter: [m], times: {finished: [{field: t, unit: iso, after: arrived}]}}", "a length is a number"),
        ("- a", "holds no mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_file_of_formats_says_what_is_wrong(tmp_path: Path, text: str, message: str):
    (tmp_path / "formats.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_formats(tmp_path / "formats.yaml")
    assert message in str(caught.value)


def test_a_format_that_nobody_knows_is_refused_with_those_there_are():
    wrong = parse("request_logs: [{files: [a.log], format: litelm, pod: p}]")
    with pytest.raises(ConfigError, match=r"request_logs\[0\].format 'litelm' is not known; known here: openai, litellm, envoy"):
        request_logs_of(wrong)
