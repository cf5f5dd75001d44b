"""Rank and bytes of adapters from the headers of their files."""

import json
import os
import struct

import pytest

from lora_watch.sources.adapter_files import read, read_all


def adapter(folder, rank=16, *, tensors=((16, 64), (32, 16)), pad=0, **config):
    """A folder with an adapter of BF16 tensors of these shapes; ``pad`` cuts or adds bytes at the end."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "target_modules": ["v_proj", "q_proj"], **config}))
    entries, end = {"__metadata__": {"format": "pt"}}, 0
    for number, (rows, columns) in enumerate(tensors):
        size = 2 * rows * columns
        entries[f"t{number}"] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end + pad))
    return folder


def test_bytes_are_those_of_the_tensors(tmp_path):
    one = read(adapter(tmp_path / "legal"))
    assert (one.name, one.rank, one.bytes) == ("legal", 16, 2 * (16 * 64 + 32 * 16))


def test_modules_and_types_are_told(tmp_path):
    one = read(adapter(tmp_path / "legal"))
    assert (one.modules, one.dtypes) == (("q_proj", "v_proj"), ("BF16",))


def test_a_rank_pattern_can_raise_the_rank(tmp_path):
    assert read(adapter(tmp_path / "x", 8, rank_pattern={"q_proj": 64})).rank == 64


def test_bytes_are_unknown_where_weights_are_in_another_format(tmp_path):
    folder = adapter(tmp_path / "x")
    (folder / "adapter_model.safetensors").unlink()
    assert read(folder).bytes is None


def test_a_broken_adapter_does_not_stop_the_others(tmp_path):
    adapter(tmp_path / "deep" / "good")
    adapter(tmp_path / "bad", rank="sixteen")
    adapters, problems = read_all(tmp_path)
    assert [one.name for one in adapters] == ["good"]
    assert "'sixteen'" in problems[0]


def test_what_did_not_change_is_not_read_again_and_what_did_is(tmp_path):
    kept = {}
    for name in "ab":
        adapter(tmp_path / name)
    first, _ = read_all(tmp_path, kept)
    again, _ = read_all(tmp_path, kept)
    assert all(one is other for one, other in zip(first, again, strict=True))
    config = tmp_path / "b" / "adapter_config.json"
    config.write_text(config.read_text().replace("16", "64"))
    os.utime(config, ns=(1, 1))
    after, _ = read_all(tmp_path, kept)
    assert [one.rank for one in after] == [16, 64]
    assert after[0] is first[0]


def test_an_adapter_that_broke_is_a_problem_though_it_was_read_before(tmp_path):
    kept = {}
    adapter(tmp_path / "a")
    read_all(tmp_path, kept)
    (tmp_path / "a" / "adapter_config.json").write_text("{")
    assert [len(part) for part in read_all(tmp_path, kept)] == [0, 1]


def test_a_folder_that_is_gone_is_told_no_more(tmp_path):
    kept = {}
    for name in "ab":
        adapter(tmp_path / name)
    read_all(tmp_path, kept)
    (tmp_path / "b" / "adapter_config.json").unlink()
    assert [one.name for one in read_all(tmp_path, kept)[0]] == ["a"]


def test_an_empty_folder_is_said(tmp_path):
    assert read_all(tmp_path) == ([], [f"{tmp_path} holds no adapter_config.json, at any depth"])


def test_links_are_followed_and_a_ring_of_them_ends(tmp_path):
    adapter(tmp_path / "stored" / "legal")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "legal").symlink_to(tmp_path / "stored" / "legal")
    (mount / "again").symlink_to(mount)
    (mount / "alias").symlink_to(tmp_path / "stored")
    adapters, problems = read_all(mount)
    assert ([one.name for one in adapters], problems) == (["legal"], [])


def test_a_pipe_instead_of_a_file_is_a_problem_and_nobody_waits_for_it(tmp_path):
    adapter(tmp_path / "a")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "adapter_config.json")
    os.mkfifo(tmp_path / "a" / "more.safetensors")
    adapters, problems = read_all(tmp_path)
    assert not adapters
    assert all("is no file" in problem for problem in problems)


def test_a_file_that_was_not_copied_whole_is_refused(tmp_path):
    with pytest.raises(ValueError, match="ends early"):
        read(adapter(tmp_path / "x", pad=-1))


@pytest.mark.parametrize(
    "raw", [b"", b"abc", struct.pack("<Q", 1 << 60), struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 3) + b"{,}"]
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, raw):
    folder = adapter(tmp_path / "x")
    (folder / "adapter_model.safetensors").write_bytes(raw)
    with pytest.raises(ValueError, match="safetensors"):
        read(folder)


def test_a_tensor_without_offsets_is_refused(tmp_path):
    folder = adapter(tmp_path / "x")
    text = json.dumps({"t": {"dtype": "F16"}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ValueError, match="no data_offsets"):
        read(folder)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rank_pattern": [1]}, "rank_pattern maps modules to ranks"),
        ({"rank_pattern": 5}, "rank_pattern maps modules to ranks"),
        ({"rank_pattern": {"q_proj": [2]}}, "a rank is a whole number"),
        ({"target_modules": 5}, "target_modules is a name or a list"),
        ({"target_modules": True}, "target_modules is a name or a list"),
    ],
)
def test_a_configuration_of_other_types_is_a_problem_of_its_adapter_alone(tmp_path, config, said):
    adapter(tmp_path / "good")
    adapter(tmp_path / "wrong", **config)
    adapters, problems = read_all(tmp_path)
    assert [one.name for one in adapters] == ["good"]
    assert [said in problem for problem in problems] == [True]
