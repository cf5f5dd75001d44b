"""The demo as a user runs it: a small scenario of one's own, much faster than time."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest
from processes import Process

from lora_watch.model import DAY
from lora_watch.schema import ADAPTER_EVENTS, REQUESTS, SAMPLES
from lora_watch.store.tables import Store

SMALL = """\
name: small
about: An A/B test nobody announced.
pools: [{name: vllm, pods: 2, slots: 3}]
traffic: {requests_per_second: 0.5, adapters: 6}
events: [{kind: split, start: 34.25, top: 5, share: 0.5, suffix: -experiment}]
truth: {}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return str(file)


@pytest.mark.slow
def test_the_demo_tells_the_change_in_a_sentence_and_ends_by_itself(tmp_path: Path, scenario: str):
    data = tmp_path / "data"
    asked = ["demo", "--no-stay", "--scenario", scenario, "--speed", "300", "--days", "1", "--data", str(data)]
    done = subprocess.run(
        [sys.executable, "-m", "lora_watch.cli", *asked],
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    words = ("pod", "router", "gpus", "metrics", "data")
    assert [word for word in words if re.search(rf"^{word}\s+\S", done.stdout, re.MULTILINE)] == list(words)
    assert re.search(r"Since \d\d:\d\d: [45] new adapters \(`\*-experiment`\) carry \d\d % of requests; ", done.stdout)
    assert f"lora-watch status --data {data} --last 15m" in done.stdout
    for table in (ADAPTER_EVENTS, REQUESTS):
        rows = Store(data).rows(table)
        live = rows.filter(pl.col("at") >= rows["at"].max() - DAY // 4)
        assert set(live["source"]) == {"simulate", f"agents-{'events' if table is ADAPTER_EVENTS else 'requests'}"}
        assert rows.unique(["stream", "seq"]).height == rows.height
        assert rows.group_by("stream").agg(pl.col("seq").min())["seq"].max() <= 20
    assert {"pods", "routers", "gpus", "agents-status"} <= set(Store(data).rows(SAMPLES)["source"])


@pytest.mark.slow
def test_a_demo_that_is_told_to_end_leaves_no_process_and_no_folder(tmp_path: Path, scenario: str):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("demo", "--stay", "--scenario", scenario, "--speed", "60", "--days", "20")
    with Process(
        "lora_watch.cli", *arguments, word="metrics", log=tmp_path / "log", wait=300, environment={"TMPDIR": str(temporary)}
    ) as demo:
        process = psutil.Process(demo.pid)
        while not process.children():  # the one that lays the history
            assert demo.alive
            os.sched_yield()
        children = process.children()
        assert demo.stop(signal.SIGTERM) == 0
    assert not any(child.is_running() for child in children)
    assert list(temporary.iterdir()) == []
    assert (tmp_path / "log").read_text() == ""
