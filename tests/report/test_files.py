"""A file is there whole, or not at all; what is no file is written to as it is."""

import os
from pathlib import Path

import pytest

from lora_watch.errors import LoraWatchError
from lora_watch.report.files import write


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path):
    (tmp_path / "week.md").write_text("old")
    write(tmp_path / "week.md", "new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("week.md", "new")]


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "latest.md").symlink_to(tmp_path / "week.md")
    write(tmp_path / "latest.md", "new")
    assert (tmp_path / "latest.md").is_symlink()
    assert (tmp_path / "week.md").read_text() == "new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "new")
        assert (os.read(reader, 9), pipe.is_fifo()) == (b"new", True)
    finally:
        os.close(reader)


def test_a_device_without_space_is_said_and_stays_what_it_is():
    with pytest.raises(LoraWatchError, match="cannot write /dev/full: No space left on device"):
        write(Path("/dev/full"), "new")
    assert Path("/dev/full").is_char_device()


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(LoraWatchError, match="Is a directory"):
        write(tmp_path, "new")
