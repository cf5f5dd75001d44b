import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("lora_watch", deadline=None, max_examples=50)  # a busy machine is no failure
settings.load_profile("lora_watch")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MiB that can be filled: a tmpfs of our own, in a mount of our own (needs root, as CI has)."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], capture_output=True, text=True, check=False
    )
    assert mounted.returncode == 0, f"a tmpfs is needed for this test and could not be mounted: {mounted.stderr}"
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
