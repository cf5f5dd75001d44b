"""The picker's own configuration, as a file or inside a ConfigMap."""

import json

import pytest

from lora_watch.errors import ConfigError
from lora_watch.sources.router_setup import DEFAULT_SCORERS, read

TEXT = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: lora-affinity-scorer, name: ours}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: queue-scorer, weight: 2}]
- name: decode
  plugins: [{pluginRef: ours, weight: 4}, {pluginRef: queue-scorer}]
"""


def written(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return file


def test_each_profile_has_the_types_of_its_plugins_with_their_weights(tmp_path):
    assert read(written(tmp_path, TEXT)).profiles == {
        "prefill": {"queue-scorer": 2.0},
        "decode": {"lora-affinity-scorer": 4.0, "queue-scorer": 1.0},
    }


def test_a_config_map_is_unwrapped(tmp_path):
    wrapped = json.dumps({"kind": "ConfigMap", "data": {"other": "a: [", "plugins.yaml": TEXT}})
    assert set(read(written(tmp_path, wrapped)).profiles) == {"prefill", "decode"}


def test_without_profiles_all_plugins_run_in_one(tmp_path):
    text = TEXT.partition("schedulingProfiles")[0]
    assert read(written(tmp_path, text)).profiles == {"default": {"queue-scorer": 1.0, "lora-affinity-scorer": 1.0}}


def test_without_plugins_the_pickers_own_defaults_run(tmp_path):
    assert read(written(tmp_path, "kind: EndpointPickerConfig")).profiles == {"default": dict(DEFAULT_SCORERS)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("kind: Deployment", "holds no EndpointPickerConfig"),
        ("[1, 2]", "holds no EndpointPickerConfig"),
        ("kind: EndpointPickerConfig\nplugins: 3", "plugins is a list"),
        ("kind: EndpointPickerConfig\nplugins: [{name: x}]", "has no type"),
        (TEXT.replace("pluginRef: ours", "pluginRef: theirs"), "'theirs' names no entry"),
        (TEXT.replace("weight: 4", "weight: much"), "no number: 'much'"),
        (TEXT.replace("weight: 4", "weight: .nan"), "no number: nan"),
        (TEXT.replace("weight: 4", f"weight: {'9' * 400}"), "no number: 999"),
        (TEXT.replace("weight: 4", f"weight: {'9' * 5000}"), "not YAML"),
        ("kind: EndpointPickerConfig\nsince: 2026-13-45", "not YAML"),
        ('kind: EndpointPickerConfig\nsince: !!bool "a"', "not YAML"),
        ('kind: EndpointPickerConfig\nsince: !!timestamp "a"', "not YAML"),
        ('kind: ConfigMap\ndata: {x: "since: 2026-13-45"}', "holds no EndpointPickerConfig"),
        (TEXT.replace("pluginRef: ours", "pluginRef: [ours]"), "names no entry"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        read(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        read(tmp_path / "nowhere.yaml")
