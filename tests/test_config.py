from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.config import EXAMPLE, Settings, load, parse, parse_duration, reference, show_duration
from lora_watch.errors import ConfigError


def test_an_empty_file_is_the_defaults():
    settings = parse("")
    assert (settings.exporter.host, settings.exporter.port) == ("127.0.0.1", 9466)
    assert settings.store.folder == Path("lora-watch-data")


def test_the_example_is_valid():
    assert parse(EXAMPLE).targets[0].pod == "vllm-0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targts: []", "targts: no such key; did you mean `targets`?"),
        ("collect: {intervall: 5s}", "collect.intervall: no such key; did you mean `interval`?"),
        ("targets: [{metrics: http://x/metrics, agnet: http://y}]", r"targets[0].agnet: no such key; did you mean `agent`?"),
        ("credentials: {a: {beerer_env: X}}", "credentials.a.beerer_env: no such key; did you mean `bearer_env`?"),
        ("log: {zzzzzz: 1}", "log.zzzzzz: no such key; known here: format, level"),
        ("collect: {interval: soon}", "collect.interval: 'soon' is not a length of time; write it like 15s"),
        ("collect: {interval: 0s}", "collect.interval: a length of time here is more than nothing"),
        ("exporter: {port: 99999}", "exporter.port: "),
        ("cost: {gpu_hour_price: -1}", "cost.gpu_hour_price: "),
        ("cost: {gpu_hour_price: .inf}", "cost.gpu_hour_price: "),
        ("cost: {gpus_per_pod: 0}", "cost.gpus_per_pod: "),
        ("cost: {price: 2}", "cost.price: no such key; did you mean `gpu_hour_price`?"),
        ("targets: [{pod: a}]", "a target needs `metrics`, `agent` or both"),
        ("targets: [{agent: http://x, credentials: c}]", "targets[0].credentials names 'c', which `credentials` lacks"),
        ("targets: [{agent: http://x, pod: a}, {agent: http://y, pod: a}]", "pod 'a' stands there twice"),
        ("credentials: {a: {bearer_env: X, bearer_file: y}}", "bearer_env or bearer_file, not both"),
        ("credentials: {a: {basic_user: u}}", "basic authentication needs"),
        ("credentials: {a: {key_file: u}}", "key_file needs cert_file"),
        ("credentials: {a: {bearer_env: X, basic_user: u, basic_password_env: P}}", "a bearer token or basic"),
        ("prometheus: [{name: x}]", "prometheus[0].url: is required"),
        ("- 1", "holds a list, not a mapping"),
        ("a: [", "is not YAML"),
        ("cluster: ''", "cluster: "),
        ("collect: {interval: 999999999999999d}", "collect.interval: '999999999999999d' is longer than time itself"),
        ("collect: {interval: .inf}", "collect.interval: 'inf' is longer than time itself"),
        ("routers: [{metrics: http://x, credentials: c}]", "routers[0].credentials names 'c', which `credentials` lacks"),
        ("gpus: {exporters: [{metrics: http://x, credentials: c}]}", "gpus.exporters[0].credentials names 'c'"),
        ("gpus: {pods: [{host: n, gpu: 0, pod: a}, {host: n, gpu: '0', pod: b}]}", "GPU '0 of host n' stands there twice"),
        ("routers: [{pod: a, metrics: http://x}, {pod: a, metrics: http://y}]", "router 'a' stands there twice"),
        ("prometheus: [{url: http://x, systems: [epp]}]", "prometheus[0].systems[0]: Input should be 'vllm', 'router' or 'gpu'"),
        ("request_logs: [{files: [a], format: openai}]", "request_logs[0].pod: is required"),
        ("prometheus: [{name: pods, url: 'http://x'}]", "prometheus name 'pods' is one of our own"),
        ("targets: [{metrics: 'x:8000'}]", "targets[0].metrics: an address begins with http:// or https://"),
        ("targets: [{agent: 'http://'}]", "targets[0].agent: an address begins with http://"),
        ("prometheus: [{url: 'ftp://x'}]", "prometheus[0].url: an address begins with http://"),
        ("cluster: a\ncluster: b", "'cluster' stands there twice"),
        ("collect: {threads: 1, threads: 2}", "'threads' stands there twice"),
        ("routers: [{metrics: 'x:9090'}]", "routers[0].metrics: an address begins with http://"),
        ("gpus: {exporters: [{metrics: 'x:9400'}]}", "gpus.exporters[0].metrics: an address begins with http://"),
    ],
)
def test_a_wrong_file_says_where_and_what_would_be_right(text: str, message: str):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_several_mistakes_are_all_said():
    with pytest.raises(ConfigError) as caught:
        parse("a: 1\nb: 2")
    assert len(str(caught.value).splitlines()) == 3


def test_a_line_that_is_no_yaml_is_named_and_not_quoted():
    with pytest.raises(ConfigError) as caught:
        parse("cluster: c\ncredentials: {a: {headers: {X-Token: 'hunter2}}}\n")
    assert str(caught.value).startswith("configuration, line 3, column 1 is not YAML: ")
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_never_repeated_in_an_error():
    with pytest.raises(ConfigError) as caught:
        parse("credentials: {a: {bearer_token: hunter2}}")
    assert "hunter2" not in str(caught.value)


def test_no_file_says_how_to_get_one(tmp_path: Path):
    with pytest.raises(ConfigError, match="config example"):
        load(tmp_path / "lora-watch.yaml")


def test_relative_folders_are_relative_to_the_file(tmp_path: Path):
    file = tmp_path / "lora-watch.yaml"
    file.write_text("store: {folder: data}\nevent_logs: [{folder: logs, pod: p}]\ntarget_files: [{files: [t/*.json]}]\n")
    settings = load(file)
    assert settings.store.folder == tmp_path / "data"
    assert settings.event_logs[0].folder == tmp_path / "logs"
    assert settings.target_files[0].files == (str(tmp_path / "t/*.json"),)


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        parse("").cluster = "other"  # type: ignore[misc]


@given(st.integers(1, 10**9))
def test_a_duration_reads_as_it_was_shown(milliseconds: int):
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(show_duration(value)) == value


def test_every_key_is_in_the_reference():
    text = reference()
    assert all(f"`{name}" in text for name in Settings.model_fields)
    assert "| `collect.interval` | `15s` |" in text
    assert "None" not in text


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        parse("targets: [{agent: 'http://user:hunter2@x:1'}]")
    assert "credentials" in str(caught.value)
    assert "hunter2" not in str(caught.value)
