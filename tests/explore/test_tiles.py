"""Tiles and bars: what is drawn is what is known."""

import re
from typing import Any

from lora_watch.explore.tiles import bars, share_bar, tile


def share(**known: Any) -> str:
    columns = ("share_low", "share_high", "busy_ratio", "adapter_share", "grade", "inference_share_provenance")
    return share_bar({**dict.fromkeys(columns), **known})


def widths(drawn: str) -> list[tuple[str, float]]:
    return [(kind, float(width)) for kind, width in re.findall(r'<div class="lw-(\w+)" style="width:([\d.]+)%"', drawn)]


def test_an_unknown_value_leaves_a_gap_and_zero_a_thin_bar():
    assert re.findall(r"height:([\d.]+)", bars([1.0, None, 0.0])) == ["92.6", "0", "2.0"]


def test_a_course_without_a_value_is_not_drawn():
    assert bars([None, None]) == ""
    assert bars([]) == ""


def test_the_limit_is_among_the_values_even_above_them():
    assert "bottom:92.6%" in bars([0.5], limit=1.0)


def test_the_lie_of_a_busy_gpu_is_visible():
    drawn = share(share_low=0.15, share_high=0.15, adapter_share=0.7, busy_ratio=0.94, grade="A")
    assert widths(drawn) == [("inference", 15.0), ("perhaps", 0.0), ("lost", 70.0), ("rest", 9.0)]
    assert "read busy <b>94 %</b>" in drawn


def test_what_lies_between_the_bounds_of_a_share_is_drawn_as_not_known():
    assert widths(share(share_low=0.2, share_high=0.5, grade="C"))[:2] == [("inference", 20.0), ("perhaps", 30.0)]


def test_what_gpus_read_is_said_to_be_unknown_without_an_exporter():
    assert "read: unknown" in share(share_low=0.6, share_high=0.6, grade="A")


def test_without_any_share_there_is_no_bar():
    assert share(busy_ratio=0.94) == ""


def test_a_value_of_a_tile_is_only_text():
    assert "<script" not in tile("<script>", "<script>", note="<script>", provenance="<script>", limit_text="<script>")
