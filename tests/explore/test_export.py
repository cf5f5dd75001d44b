"""Tables as files: what comes out can be read back, and no spreadsheet runs a name."""

import io
import zipfile

import polars as pl
from diagnose.told import HOSTILE

from lora_watch.explore.export import FORMATS, as_csv, as_excel, as_parquet

FRAME = pl.DataFrame({"adapter": ["legal-v2", None], "swaps": [3, None], "share": [0.5, float("nan")], "pods": [["a", "b"], []]})


def test_parquet_is_exact():
    assert pl.read_parquet(as_parquet(FRAME)).equals(FRAME)


def test_unknown_is_an_empty_cell_of_a_csv():
    assert as_csv(FRAME).decode().splitlines() == ["adapter,swaps,share,pods", 'legal-v2,3,0.5,"a, b"', ',,NaN,""']


def test_a_spreadsheet_that_opens_the_csv_sees_text_not_formulas():
    written = as_csv(pl.DataFrame({"adapter": ["=1+1", "+1", "-x", "@y", "\tz", "safe"]})).decode().splitlines()[1:]
    assert written == ["'=1+1", "'+1", "'-x", "'@y", "'\tz", "safe"]


def test_a_sheet_holds_hostile_names_as_text_and_no_formula():
    book = zipfile.ZipFile(io.BytesIO(as_excel(pl.DataFrame({"adapter": [*HOSTILE, "=1+1", "x" * 50_000]}))))
    sheet = book.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "=1+1" in book.read("xl/sharedStrings.xml").decode()


def test_every_format_writes_an_empty_table():
    for _, _, write in FORMATS.values():
        assert write(FRAME.clear())
