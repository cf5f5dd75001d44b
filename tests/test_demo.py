from pathlib import Path

import pytest

from lora_watch.demo import run
from lora_watch.errors import ConfigError, LoraWatchError, StoreError


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"speed": 0.5}, LoraWatchError, "runs 1 to 3600 times as fast"),
        ({"speed": float("nan")}, LoraWatchError, "runs 1 to 3600 times as fast"),
        ({"days": -1}, LoraWatchError, "has 0 to 366 days"),
        ({"scenario": "wednesday"}, ConfigError, "there is no scenario 'wednesday'"),
        ({"scenario": "/nowhere/mine.yaml"}, ConfigError, "cannot read the scenario"),
    ],
)
def test_what_cannot_be_played_is_said_in_a_sentence(asked: dict[str, object], kind: type[LoraWatchError], words: str):
    options: dict[str, object] = {"scenario": "thursday", "speed": 60.0, "days": 0}
    with pytest.raises(kind, match=words):
        run(None, stay=False, **{**options, **asked})


def test_a_folder_that_holds_tables_is_left_alone(tmp_path: Path):
    (tmp_path / "requests").mkdir()
    with pytest.raises(StoreError, match="holds tables already"):
        run(tmp_path, scenario="thursday", speed=60.0, days=0, stay=False)
    assert [path.name for path in tmp_path.iterdir()] == ["requests"]
