import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_shows_the_thrash_in_a_sentence_and_ends_by_itself():
    command = [sys.executable, "-m", "lora_watch.cli", "demo", "--no-stay"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True, stdin=subprocess.DEVNULL)
    assert "12 adapters want 2 slots, where 3 did before" in done.stdout
    assert "adapter-11" in done.stdout
    assert done.stderr == ""
