from pathlib import Path

import pytest

from lora_watch.errors import ConfigError
from lora_watch.simulate.scenario import load, parse, shipped

LEAST = "name: x\nabout: y\ntruth: {}\n"


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_is_right_and_says_what_it_is_for(name: str):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.about.endswith(".")
    assert scenario.truth.must_say or scenario.truth.must_not_say


def test_the_scenarios_are_those():
    assert set(shipped()) == {
        *("healthy", "thursday", "stampede", "convoy", "cascade", "slow-load", "reload-loop", "one-slot-short", "hard-cliff"),
        *("no-warm-tier", "phantom", "imbalance", "prefill-decode-mismatch", "ghost-pins", "batch-scan", "benign-growth"),
        *("night-shift", "tenant-onboarding"),
    }


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigError, match="no scenario 'mars'; there are batch-scan, "):
        load("mars")


def test_a_scenario_of_ones_own_is_read_from_its_file(tmp_path: Path):
    file = tmp_path / "own.yaml"
    file.write_text(LEAST)
    assert load(str(file)).name == "x"
    with pytest.raises(ConfigError, match="cannot read the scenario"):
        load(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "is not YAML"),
        ("- a", "holds a list"),
        (LEAST + "colour: red", "colour: Extra inputs"),
        (LEAST + "traffic: {adapters: 0}", "traffic.adapters: "),
        (LEAST + "traffic: {adapters: 3, weights: [1, 2]}", "weights are one for each of 3"),
        (LEAST + "pools: [{role: decode}, {role: prefill}]", "two pools are one for prefill"),
        (LEAST + "pools: [{slots: 4, cpu_capacity: 3}]", "3 places cannot hold 4 slots"),
        (LEAST + "pools: [{pods: 2, pins: [{adapter: 1, pods: [2]}]}]", "a pin is on pods 0 … 1"),
        (LEAST + "pools: [{slots: 1, pins: [{adapter: 1}]}]", "needs a slot without a pin"),
        (LEAST + "pools: [{role: prefill}, {role: decode}]", "names of their own"),
        (
            LEAST + "traffic: {adapters: 5000}\nevents: [{kind: onboard, start: 1, adapters: 5000}, {kind: split, start: 2}]",
            "10020",
        ),
        (LEAST + "traffic: {requests_per_second: .inf}", "requests_per_second"),
        (LEAST + "loads: {warm_seconds: .nan}", "warm_seconds"),
        (LEAST + "events: [{kind: retire, start: 1, adapters: [-1]}]", "greater than or equal to 0"),
        (LEAST + "events: [{kind: split, start: 1, top: 41}]", "there are 40 adapters, not 41"),
        (LEAST + "events: [{kind: split, start: 1}, {kind: split, start: 2}]", "is used twice"),
        (LEAST + "events: [{kind: retire, start: 1, adapters: [40]}]", "numbered 0 … 39, got 40"),
        (LEAST + "events: [{kind: restart, start: 1, pod: 8}]", "no pod 8 in pool 0"),
        (LEAST + "events: [{kind: restart, start: 0, pod: 1}]", "can't start anew"),
        (LEAST + "events: [{kind: reload, start: 1, pod: 0, adapter: 40}]", "got 40"),
        (LEAST + "events: [{kind: slow-disk, start: 2, end: 1}]", "before it starts"),
        (LEAST + "events: [{kind: flood, start: 2}]", "flood"),
    ],
)
def test_a_wrong_scenario_is_refused_in_a_sentence(text: str, complaint: str):
    with pytest.raises(ConfigError, match="scenario") as raised:
        parse(text)
    assert complaint in str(raised.value)
