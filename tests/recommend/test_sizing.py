"""Sizes and prices: the article's figures, what vLLM allocates, and laws that hold for any model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_watch.recommend.sizing import (
    EMBEDDING,
    GB,
    LAYER,
    PRESETS,
    Memory,
    adapter_bytes,
    adapter_parameters,
    expected_misses,
    fewest_gpus,
    kv_bytes_per_token,
    load_phases,
    load_seconds,
    load_seconds_article,
    memory,
    model_parameters,
    module_names,
    monthly_bill,
    separate_pods,
    slot_bytes,
    slot_modules,
    slot_rank,
    weight_bytes,
    zipf_shares,
)
from lora_watch.sources.model_files import ModelShape

LARGE = PRESETS["llama-3.1-70b"]
TINY = ModelShape("tiny", 2, 256, 512, 4, 2, 64, 512)
SHAPES = st.builds(
    lambda layers, hidden, inner, kv, times, dim, vocab: ModelShape("any", layers, hidden, inner, kv * times, kv, dim, vocab),
    *(st.integers(1, 64) for _ in range(7)),
)


@pytest.mark.parametrize(
    ("rank", "modules", "megabytes"), [(16, ("q", "v"), 65.5), (64, ("q", "k", "v"), 356.5)], ids=["Q+V", "Q+K+V"]
)
def test_the_articles_adapters_have_the_articles_bytes(rank, modules, megabytes):
    assert round(adapter_bytes(LARGE, rank, module_names(modules)) / 1e6, 1) == megabytes


@pytest.mark.parametrize(
    ("modules", "times"), [(("q", "v"), 1.56), (("q", "k", "v"), 2.12), (("qkvo"), 3.12)], ids=["QV", "QKV", "QKVO"]
)
def test_with_grouped_query_attention_modules_do_not_double_the_size(modules, times):
    names = module_names([modules] if isinstance(modules, str) else modules)
    assert round(adapter_bytes(LARGE, 16, names) / adapter_bytes(LARGE, 16, ["q_proj"]), 2) == times


@pytest.mark.parametrize(("name", "parameters"), [("llama-3.1-8b", 8_030_261_248), ("llama-3.1-70b", 70_553_706_496)])
def test_a_presets_parameters_are_the_published_ones(name, parameters):
    assert model_parameters(PRESETS[name]) == parameters


def test_a_slot_is_what_the_real_engine_allocated():
    assert slot_bytes(TINY, 16) == 933_888 // 3


def test_a_slot_with_chosen_modules_is_what_the_real_engine_allocated():
    assert slot_bytes(TINY, 16, only=["q_proj", "v_proj"]) == 163_840 // 2


def test_a_slot_is_larger_than_the_adapter_whose_modules_are_few():
    assert slot_bytes(LARGE, 16) > 6 * adapter_bytes(LARGE, 16, ["q_proj", "v_proj"])


def test_chosen_modules_bring_those_they_are_packed_with():
    assert slot_modules(TINY, ["v_proj", "up_proj"]) == ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


def test_embeddings_take_no_room_in_a_family_without_them():
    assert slot_modules(replace(TINY, embedded=False)) == LAYER


@given(shape=SHAPES, rank=st.integers(1, 64))
def test_an_adapter_of_every_module_fills_a_slot_exactly(shape, rank):
    assert slot_bytes(shape, rank) == adapter_bytes(shape, rank, (*LAYER, *EMBEDDING))


@given(shape=SHAPES, rank=st.integers(1, 64), gpus=st.integers(1, 8))
def test_more_gpus_never_make_a_slot_larger_on_each(shape, rank, gpus):
    assert slot_bytes(shape, rank, tensor_parallel=gpus + 1) <= slot_bytes(shape, rank, tensor_parallel=gpus)


@given(shape=SHAPES, rank=st.integers(1, 64))
def test_parameters_grow_with_the_rank_alone(shape, rank):
    assert adapter_parameters(shape, rank, LAYER) == rank * adapter_parameters(shape, 1, LAYER)


def test_ranks_between_those_of_the_engine_take_the_next():
    assert [slot_rank(rank) for rank in (1, 2, 8, 17, 512)] == [1, 8, 8, 32, 512]


def test_a_rank_above_the_engines_largest_is_refused():
    with pytest.raises(ValueError, match="513"):
        slot_rank(513)


def test_a_module_nobody_knows_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"'w1' is no module.*gate_proj"):
        module_names(["q", "w1"])


def test_weights_are_those_of_the_files_where_there_are_any():
    assert weight_bytes(replace(TINY, weight_bytes=7)) == 7


def test_another_precision_is_worked_out_even_with_files():
    whole = weight_bytes(TINY)
    assert weight_bytes(replace(TINY, weight_bytes=7), 32) == 2 * whole


def test_quantized_weights_leave_the_embedding_and_the_head_at_sixteen_bits():
    assert weight_bytes(LARGE, 4) == (70_553_706_496 - 2 * 128_256 * 8192 - 161 * 8192) // 2 + 2 * (
        2 * 128_256 * 8192 + 161 * 8192
    )


def test_a_token_of_kv_cache_of_the_large_model_has_327680_bytes():
    assert kv_bytes_per_token(LARGE) == 327_680


def test_key_value_heads_that_can_be_cut_no_further_are_there_twice():
    assert kv_bytes_per_token(LARGE, tensor_parallel=16) == kv_bytes_per_token(LARGE, tensor_parallel=8)


def test_slots_and_tokens_share_the_room():
    told = Memory(usable=100, weights=40, workspace=10, slot=5, kv_token=2)
    assert (told.room, told.tokens(0), told.tokens(4), told.tokens(10), told.tokens(99)) == (50, 25, 15, 0, 0)
    assert (told.slots(0.0), told.slots(0.9)) == (10, 1)


def test_a_model_that_does_not_fit_has_no_room_for_tokens_or_slots():
    told = Memory(usable=10, weights=40, workspace=10, slot=5, kv_token=2)
    assert (told.tokens(0), told.slots(0.0)) == (0, 0)


def test_the_large_model_needs_two_gpus_in_int4_no_more_and_four_in_sixteen_bits():
    fits = {bits: fewest_gpus(LARGE, 16, 8, gpu_gb=80, weights=weight_bytes(LARGE, bits)) for bits in (4, 16)}
    assert fits == {4: 1, 16: 4}


def test_what_fits_on_no_number_of_gpus_is_told():
    assert fewest_gpus(LARGE, 16, 2, gpu_gb=24, weights=weight_bytes(LARGE)) is None


def test_a_gpu_counts_decimal_gigabytes_that_the_engine_may_fill():
    assert memory(TINY, 16, gpu_gb=10, tensor_parallel=1, weights=0, utilization=0.5).usable == 5 * GB


def test_a_cold_load_goes_through_disk_and_host_a_warm_one_only_over_the_bus():
    phases = load_phases(50_000_000)
    assert load_seconds(phases, cold=False) == pytest.approx(50 / 17_000)
    assert load_seconds(phases, cold=True) == pytest.approx(50 / 17_000 + 2 * 0.010)


def test_the_articles_phases_come_to_what_they_add_up_to():
    low, high = load_seconds_article(load_phases(200_000_000), cold=True)
    assert low == pytest.approx(0.040 + 0.003125 + 0.075)
    assert high == pytest.approx(0.040 + 0.2 / 17 + 0.125 + 0.5)


def test_shares_of_zipf_fall_as_one_over_the_rank():
    shares = zipf_shares(40, 1.0)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] / shares[9] == pytest.approx(10)


def test_the_articles_incident_misses_as_the_consistent_pair_does():
    """8 pods × 4 slots, 3.7 requests/s, 40 → 60 adapters: hit ratio 92.6 → 73.5 %, 0.034 → 0.129 swaps/s/pod."""
    before = expected_misses(zipf_shares(40, 1.0), 3.7, 8, 4, 40, affinity=True)
    top = zipf_shares(40, 1.0)
    split = np.concatenate([top[:20] / 2, top[20:], top[:20] / 2])
    after = expected_misses(split, 3.7 * 1.05, 8, 4, 60, affinity=True)
    assert before.ratio == pytest.approx(0.074, abs=0.015)
    assert after.ratio == pytest.approx(0.265, abs=0.015)
    assert (before.per_second, after.per_second) == (pytest.approx(0.034, abs=0.008), pytest.approx(0.129, abs=0.01))


@given(count=st.integers(1, 60), alpha=st.floats(0, 2), pods=st.integers(1, 8), slots=st.integers(1, 16), affinity=st.booleans())
def test_more_slots_never_miss_more(count, alpha, pods, slots, affinity):
    shares = zipf_shares(count, alpha)
    few, more = (expected_misses(shares, 5.0, pods, one, 1, affinity=affinity).ratio for one in (slots, slots + 1))
    assert 0 <= more <= few + 1e-9 <= 1 + 2e-9


def test_a_slot_for_every_adapter_leaves_no_misses():
    assert expected_misses(zipf_shares(8, 1.0), 5.0, 2, 4, 4, affinity=True).ratio == 0


def test_with_a_large_host_cache_no_miss_reads_the_disk():
    told = expected_misses(zipf_shares(40, 1.0), 5.0, 1, 4, 40, affinity=False)
    assert told.ratio > 0
    assert told.cold_ratio == 0


def test_without_a_larger_host_cache_every_miss_reads_the_disk():
    told = expected_misses(zipf_shares(40, 1.0), 5.0, 1, 4, 1, affinity=False)
    assert told.cold_ratio == told.ratio


def test_the_articles_twelve_deployments_and_five_shared_pods_cost_what_it_says():
    separate = separate_pods(zipf_shares(12, 0.0), 2400 / 60, 600 / 60)
    assert (separate, monthly_bill(separate + 2, 1, 3.5), monthly_bill(5, 1, 3.5)) == (12, 35_770.0, 12_775.0)


def test_an_adapter_too_busy_for_a_pod_gets_more():
    assert separate_pods(np.array([0.9, 0.1]), 10.0, 4.0) == 3 + 1
