"""Which pods are read: fixed, and out of files that people edit while we run."""

import os

from lora_watch.sources.http import Credentials
from lora_watch.sources.targets import Target, TargetFiles, Targets

GOOD = '[{"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"pool": "chat", "role": "decode", "job": "x"}}]'


def test_a_json_file_gives_a_target_per_address_named_by_it(tmp_path):
    (tmp_path / "t.json").write_text(GOOD)
    targets, problems = Targets(files=[TargetFiles([str(tmp_path / "t.json")], cluster="eu", agent_port=9465)]).read()
    assert problems == ()
    assert targets[1] == Target("eu", "10.0.0.2:8000", "chat", "decode", "http://10.0.0.2:8000/metrics", "http://10.0.0.2:9465")


def test_a_yaml_file_and_every_label_we_read(tmp_path):
    (tmp_path / "t.yml").write_text(
        "- targets: ['h:1']\n  labels:\n    cluster: eu\n    pod: vllm-0\n    agent_url: http://h:2\n"
        "    __scheme__: https\n    __metrics_path__: /m\n"
    )
    credentials = Credentials(bearer_env="X")
    targets, _ = Targets(files=[TargetFiles([str(tmp_path / "*.yml")], credentials=credentials)]).read()
    assert targets == (Target("eu", "vllm-0", "", "", "https://h:1/m", "http://h:2", credentials),)


def test_a_changed_file_is_read_again_and_a_new_one_is_found(tmp_path):
    targets = Targets(files=[TargetFiles([str(tmp_path / "*.json")])])
    assert "no target file matches" in targets.read()[1][0]
    (tmp_path / "a.json").write_text(GOOD)
    assert len(targets.read()[0]) == 2
    (tmp_path / "a.json").write_text('[{"targets": ["h:1"]}]')
    assert [target.pod for target in targets.read()[0]] == ["h:1"]


def test_a_file_gone_bad_keeps_its_last_good_targets_and_is_a_problem_until_it_is_right(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(GOOD)
    targets = Targets(files=[TargetFiles([str(file)])])
    targets.read()
    for bad in ("[{", '{"targets": []}', '[{"targets": ["h:1"], "labels": {"pool": 1}}]', '[{"targets": ["http://h:1/x"]}]'):
        file.write_text(bad)
        for _ in range(2):
            found, problems = targets.read()
            assert len(found) == 2
            assert "the last good targets (2) stay" in problems[0]
    file.unlink()
    assert len(targets.read()[0]) == 2
    file.write_text('[{"targets": ["h:1"]}]')
    assert targets.read()[1] == ()


def test_an_emptied_file_means_no_targets(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text("")
    assert Targets(files=[TargetFiles([str(file)])]).read() == ((), ())


def test_a_file_written_within_the_same_second_is_still_seen_to_have_changed(tmp_path):
    file = tmp_path / "t.json"
    targets = Targets(files=[TargetFiles([str(file)])])
    for name in ("a", "b"):
        (tmp_path / "new").write_text(f'[{{"targets": ["{name}:1"]}}]')
        os.replace(tmp_path / "new", file)
        os.utime(file, (1, 1))
        assert [target.pod for target in targets.read()[0]] == [f"{name}:1"]


def test_the_second_of_two_equal_pods_is_refused_and_both_places_are_named(tmp_path):
    (tmp_path / "t.json").write_text(
        '[{"targets": ["h:1"], "labels": {"pod": "x"}}, {"targets": ["h:2", "h:3"], "labels": {"pod": "x"}}]'
    )
    fixed = Target("default", "x", metrics_url="http://first/")
    targets, problems = Targets([fixed], [TargetFiles([str(tmp_path / "t.json")])]).read()
    assert targets == (fixed,)
    assert len(problems) == 3
    assert "fixed target 1" in problems[0]
    assert "t.json entry 1" in problems[0]


def test_the_same_pod_in_two_clusters_is_two_pods():
    assert len(Targets([Target("a", "x"), Target("b", "x")]).read()[0]) == 2
