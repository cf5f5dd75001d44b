"""Models and adapters on disk: what is read of them exactly, and what is refused."""

import json
import os
import struct
from pathlib import Path

import pytest
from adapter_folders import write_adapter, write_header, write_model, write_tensors
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.errors import SourceRejected
from lora_watch.sources.model_files import read_adapter, read_model


def test_dimensions_are_those_of_the_configuration(tmp_path):
    told = read_model(write_model(tmp_path / "tiny"))
    assert (told.name, told.layers, told.hidden, told.heads, told.kv_heads, told.head_dim) == ("tiny", 2, 256, 4, 2, 64)
    assert (told.intermediate, told.vocab, told.bits, told.embedded, told.assumed) == (512, 512, 16, True, ())


def test_the_file_may_be_named_itself(tmp_path):
    assert read_model(write_model(tmp_path / "tiny") / "config.json").name == "tiny"


def test_without_a_head_dim_heads_share_the_hidden_size(tmp_path):
    assert read_model(write_model(tmp_path / "m", head_dim=None)).head_dim == 64


def test_without_key_value_heads_every_head_has_its_own(tmp_path):
    assert read_model(write_model(tmp_path / "m", num_key_value_heads=None)).kv_heads == 4


def test_a_model_that_also_sees_is_read_by_its_text_part(tmp_path):
    folder = write_model(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({"model_type": "mllama", "text_config": _tree(folder)}))
    assert read_model(folder).hidden == 256


@pytest.mark.parametrize(
    ("quantization", "bits"), [({"quant_method": "awq", "bits": 4}, 4), ({"quant_method": "fp8"}, 8), ({"quant_method": "x"}, 16)]
)
def test_bits_of_a_quantized_model_are_those_it_says(tmp_path, quantization, bits):
    assert read_model(write_model(tmp_path / "m", quantization_config=quantization)).bits == bits


def test_bytes_of_the_weights_are_those_of_all_files(tmp_path):
    folder = write_model(tmp_path / "m")
    write_tensors(folder / "model-1.safetensors", {"a": (3, 5)})
    write_tensors(folder / "model-2.safetensors", {"b": (7,)}, "F32", 4)
    assert read_model(folder).weight_bytes == 3 * 5 * 2 + 7 * 4


def test_a_type_that_nobody_said_is_assumed_and_told(tmp_path):
    told = read_model(write_model(tmp_path / "m", dtype=None))
    assert told.bits == 16
    assert "16 bits a weight" in told.assumed[0]


def test_without_files_bytes_of_the_weights_are_unknown(tmp_path):
    assert read_model(write_model(tmp_path / "m")).weight_bytes is None


def test_a_family_that_is_not_known_is_assumed_to_be_like_llama_and_says_so(tmp_path):
    assert "model_type 'novel'" in read_model(write_model(tmp_path / "m", model_type="novel")).assumed[0]


@pytest.mark.parametrize("family", [["llama"], {"a": 1}, 7, None])
def test_a_family_that_is_no_name_is_not_known(tmp_path, family):
    assert read_model(write_model(tmp_path / "m", model_type=family)).assumed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"num_hidden_layers": 0}, "whole number"),
        ({"hidden_size": True}, "whole number"),
        ({"hidden_size": "4096"}, "whole number"),
        ({"vocab_size": 10**40}, "whole number"),
        ({"num_key_value_heads": 3}, "can't share"),
        ({"head_dim": None, "num_attention_heads": 3, "num_key_value_heads": 3}, "no multiple"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"tie_word_embeddings": "no"}, "true or false"),
    ],
)
def test_a_model_whose_sizes_cannot_be_told_is_refused(tmp_path, changes, said):
    with pytest.raises(SourceRejected, match=said):
        read_model(write_model(tmp_path / "m", **changes))


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", "[" * 100_000, '{"hidden_size": 1e999}', "nul", '{"hidden_size": ' + "9" * 5000 + "}"]
)
def test_a_configuration_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SourceRejected, match=str(tmp_path)):
        read_model(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceRejected, match=r"config\.json is not UTF-8"):
        read_model(tmp_path)


def test_what_never_ends_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(SourceRejected, match="is no file"):
        read_model(tmp_path)
    with pytest.raises(SourceRejected, match="is no file"):
        read_model(Path("/dev/zero"))


def test_a_configuration_as_large_as_weights_is_refused_unread(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SourceRejected, match="no configuration"):
        read_model(tmp_path)


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SourceRejected, match="No such file"):
        read_model(tmp_path / "absent")


@pytest.mark.parametrize(("dtype", "size"), [("BF16", 2), ("F32", 4), ("F8_E4M3", 1)])
def test_an_adapters_bytes_and_parameters_are_exactly_its_tensors(tmp_path, dtype, size):
    told = read_adapter(write_adapter(tmp_path / "legal", 8, dtype=dtype, size=size))
    parameters = 2 * 8 * ((256 + 256) + (256 + 128))
    assert (told.parameters, told.bytes, told.tensors, told.dtypes) == (parameters, parameters * size, 8, (dtype,))


def test_an_adapters_modules_are_those_of_its_tensors(tmp_path):
    told = read_adapter(write_adapter(tmp_path / "legal", target_modules="all-linear"))
    assert told.modules == ("q_proj", "v_proj")


def test_the_rank_of_tensors_counts_where_a_pattern_raised_it_unsaid(tmp_path):
    folder = write_adapter(tmp_path / "legal", 8)
    write_tensors(folder / "adapter_model.safetensors", {"layers.0.q_proj.lora_A.weight": (64, 256)})
    assert read_adapter(folder).rank == 64


def test_without_a_safetensors_file_bytes_are_unknown(tmp_path):
    folder = write_adapter(tmp_path / "legal")
    (folder / "adapter_model.safetensors").unlink()
    told = read_adapter(folder)
    assert (told.bytes, told.parameters, told.modules) == (None, None, ("q_proj", "v_proj"))


@pytest.mark.parametrize(
    ("config", "said"),
    [({"modules_to_save": ["lm_head"]}, "whole modules"), ({"use_dora": True}, "DoRA"), ({"bias": "all"}, "biases")],
)
def test_what_the_engine_will_not_load_is_told(tmp_path, config, said):
    (reason,) = read_adapter(write_adapter(tmp_path / "legal", **config)).refused
    assert said in reason


def test_modules_to_save_are_told(tmp_path):
    assert read_adapter(write_adapter(tmp_path / "legal", modules_to_save=["score"])).saved == ("score",)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 80]}}, "has 80 bytes"),
        ({"a": {"dtype": "F16", "shape": [-4], "data_offsets": [0, 8]}}, "shape"),
        ({"a": {"dtype": "F16", "shape": "4", "data_offsets": [0, 8]}}, "shape"),
        ({"a": {"dtype": "F16", "shape": [2**39] * 17, "data_offsets": [0, 8]}}, "shape"),
        ({"a": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]}}, "begins at 8"),
        ({n: {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]} for n in "ab"}, "begins at 0"),
        ({"a": {"dtype": "F16", "shape": [4], "data_offsets": [8, 0]}}, "data_offsets"),
        ({"a": []}, "no data_offsets"),
        ([], "not an object"),
        ({"a": {"dtype": "F16", "shape": [1 << 39], "data_offsets": [0, 1 << 40]}}, "ends early"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, entries, said):
    folder = write_adapter(tmp_path / "legal")
    write_header(folder / "adapter_model.safetensors", entries, 100)
    with pytest.raises(SourceRejected, match=said):
        read_adapter(folder)


@pytest.mark.parametrize(
    "raw", [b"", b"\x01", struct.pack("<Q", 1 << 63), struct.pack("<Q", 99) + b"{", struct.pack("<Q", 2) + b"\xff{"]
)
def test_a_file_that_is_cut_off_or_lies_about_its_header_is_refused(tmp_path, raw):
    folder = write_adapter(tmp_path / "legal")
    (folder / "adapter_model.safetensors").write_bytes(raw)
    with pytest.raises(SourceRejected, match="legal"):
        read_adapter(folder)


def test_an_adapter_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SourceRejected, match="No such file"):
        read_adapter(tmp_path / "absent")


def test_a_rank_that_no_engine_holds_is_told(tmp_path):
    (reason,) = read_adapter(write_adapter(tmp_path / "a", 1024)).refused
    assert "above 512" in reason


def test_modules_to_save_that_are_no_names_are_refused(tmp_path):
    with pytest.raises(SourceRejected, match="list of names"):
        read_adapter(write_adapter(tmp_path / "a", modules_to_save={"x": 1}))


def test_tensors_that_are_no_part_of_lora_count_in_bytes_and_name_no_module(tmp_path):
    folder = write_adapter(tmp_path / "a")
    write_tensors(folder / "adapter_model.safetensors", {"base_model.model.score.weight": (3, 4)})
    told = read_adapter(folder)
    assert (told.bytes, told.modules) == (24, ("q_proj", "v_proj"))


@given(raw=st.binary(max_size=64))
def test_no_bytes_make_anything_but_an_answer_or_a_refusal(tmp_path_factory, raw):
    folder = write_adapter(tmp_path_factory.mktemp("x") / "legal")
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(SourceRejected):
        read_adapter(folder)


def _tree(folder):
    return json.loads((folder / "config.json").read_text())
