"""The report as Markdown and JSON: golden files, and names that mean nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.examples import HOSTILE, empty, hostile, report

from lora_watch.model import HOUR, Window
from lora_watch.recommend.advice import Kind
from lora_watch.report.blocks import Cell, Column, Grid
from lora_watch.report.markdown import markdown, table
from lora_watch.report.written import FORMS

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("form", ["md", "json"])
def test_the_report_is_written_as_the_golden_file_has_it(form: str):
    """Rewrite them with ``python -m report.golden`` from ``tests``, and read the difference."""
    assert FORMS[form](report()) == (GOLDEN / f"week.{form}").read_text(encoding="utf-8")


def test_json_is_ascii_with_times_in_utc_and_unknown_as_null():
    text = FORMS["json"](empty())
    told = json.loads(text)
    assert text.isascii()
    assert told["head"]["week"] == {"name": "2026-W10", "start": "2026-03-02T00:00:00Z", "end": "2026-03-09T00:00:00Z"}
    assert told["quality"]["provenance"] is None
    assert told["head"]["complete"] is False


def test_json_holds_hostile_names_whole_and_as_text():
    told = json.loads(FORMS["json"](hostile()))
    assert [one["name"] for one in told["offenders"]["adapters"]] == list(HOSTILE)


def test_a_week_of_little_says_so_in_every_form():
    text = FORMS["md"](empty())
    assert "Only 4.2 % of the week is held" in text
    assert "The week has not ended yet" in text
    assert "No advice: no pool has requests" in text
    assert "Only 4.2 % of the week is held" in FORMS["html"](empty())


def test_changes_that_are_judged_on_a_part_of_the_time_are_counted():
    made = report()
    (one, *others) = made.advice
    assert one.recommendation is not None
    first = one.recommendation.advice[0]
    assert first.judged is not None
    short = replace(first, kind=Kind.CAP, judged=Window(first.judged.end - HOUR, first.judged.end))
    told = replace(one.recommendation, advice=(short, *one.recommendation.advice))
    text = FORMS["md"](replace(made, advice=(replace(one, recommendation=told), *others)))
    assert "Judged on 2026-03-02 00:00 … 2026-03-09 00:00 UTC by replay with round robin, 1 of them on a part of it;" in text


def test_hostile_names_stay_within_their_line_and_cell_of_markdown():
    text = markdown(hostile())
    assert all(line.isprintable() for line in text.splitlines())
    assert "<script" not in re.sub(r"\\<", "", text)
    assert not re.search(r"(?<!\\)\]\(", text)
    assert max(map(len, text.splitlines())) < 60_000
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(cells) == 1, block[:200]


@given(st.lists(st.lists(st.text(max_size=40), min_size=2, max_size=2), max_size=4))
def test_a_table_of_any_texts_has_a_line_a_row_and_the_same_cells_in_each(rows: list[list[str]]):
    grid = Grid("t", (Column("a"), Column("b", number=True)), tuple(tuple(map(Cell, row)) for row in rows))
    lines = [line for line in "\n".join(table(grid)).split("\n") if line.startswith("|")]
    assert len(lines) == 2 + len(rows)
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {3}
