"""The figure of the timeline as a value: bars or cells, who is followed, what is marked, and that names stay names."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from builders import events, requests
from diagnose.told import HOSTILE
from lru_pod import Pod
from numpy.typing import NDArray
from stored import stored

from lora_watch.explore import colours
from lora_watch.explore.figures import moments
from lora_watch.explore.timeline import LANE, Part, part
from lora_watch.explore.timeline_figures import GAP, MOST_LANES, PALE, lanes, timeline_figure
from lora_watch.model import DAY, MINUTE, SECOND, Window

AT = 20_000 * DAY
WINDOW = Window(AT, AT + MINUTE)


def shown(folder: Path, text: str, **more: object) -> Part:
    happened = events(" ".join(_moved(word) for word in text.split()), start_at=AT // SECOND - 1, **more)
    asked = requests("/".join((f"a:{AT // SECOND}", *(str(AT // SECOND + at) for at in (1, 2, 3)))))
    return part(WINDOW, stored(folder, events=happened, requests=asked), DAY, SECOND, 10 * SECOND)


def _moved(word: str) -> str:
    name, _, span = word.partition(":")
    ends = [str(AT // SECOND + int(end)) if end else "" for end in span.split("-")]
    return f"{name}:{'-'.join(ends)}"


def busy(folder: Path) -> Part:
    """More stays than are drawn one by one."""
    made = Pod(slots=2, load=0.001).start(AT - SECOND)
    for number in range(2_500):
        made.ask(AT + number * MINUTE // 2_500, f"a{number % 5}", hold=0.001)
    return part(WINDOW, stored(folder, events=made.event_rows(), requests=made.request_rows()), DAY, SECOND, 10 * SECOND)


def traces(drawn: go.Figure, kind: str) -> list[dict[str, Any]]:
    return [trace for trace in drawn.to_plotly_json()["data"] if trace["type"] == kind]


def raster(drawn: go.Figure) -> NDArray[np.float64]:
    (found,) = [trace for trace in drawn.data if trace.type == "heatmap"]
    return np.asarray(found.z, dtype=np.float64)


def test_few_stays_are_bars_in_the_colours_of_their_adapters(tmp_path: Path):
    bars, _ = traces(timeline_figure(shown(tmp_path, "a:0-30 b:30-"), WINDOW, 10 * SECOND), "bar")
    assert bars["marker"]["color"] == [colours.colour_of("a"), colours.colour_of("b")]
    assert bars["x"] == [30_000.0, 30_000.0]


def test_who_is_not_followed_turns_pale(tmp_path: Path):
    bars, _ = traces(timeline_figure(shown(tmp_path, "a:0-30 b:30-"), WINDOW, 10 * SECOND, followed=["b"]), "bar")
    assert bars["marker"]["color"] == [PALE, colours.colour_of("b")]


def test_a_load_is_marked_before_its_stay(tmp_path: Path):
    _, loads = traces(timeline_figure(shown(tmp_path, "a:5-30"), WINDOW, 10 * SECOND), "bar")
    assert loads["x"] == [pytest.approx(10.0)]
    assert [text.startswith("load of a") for text in loads["hovertext"]] == [True]


def test_an_eviction_and_a_start_are_marked(tmp_path: Path):
    told = part(
        Window(AT - 2 * SECOND, AT + MINUTE),
        stored(tmp_path, events=events(_moved("a:5-30"), start_at=AT // SECOND - 1)),
        DAY,
        SECOND,
        10 * SECOND,
    )
    marks = [
        text for trace in traces(timeline_figure(told, told.window, SECOND), "scatter") for text in trace.get("hovertext") or ()
    ]
    assert marks == ["evicted: a", "start of pod-0"]


def test_many_stays_are_one_picture_of_cells_whose_size_does_not_grow_with_them(tmp_path: Path):
    drawn = timeline_figure(busy(tmp_path), WINDOW, 10 * SECOND)
    assert not traces(drawn, "bar")
    shades = raster(drawn)
    assert shades.shape == (2, 60)
    assert set(np.unique(shades[~np.isnan(shades)])) <= {
        float(colours.PALETTE.index(colours.colour_of(f"a{n}"))) for n in range(5)
    }


def test_cells_of_who_is_not_followed_have_the_pale_shade(tmp_path: Path):
    shades = raster(timeline_figure(busy(tmp_path), WINDOW, 10 * SECOND, followed=["a0"]))
    assert set(np.unique(shades)) <= {float(len(colours.PALETTE)), float(colours.PALETTE.index(colours.colour_of("a0")))}


def test_more_cells_than_can_be_named_are_a_picture_that_lies_where_they_would(tmp_path: Path):
    keys = [("c", "p", "", f"pod-{number}", "", slot) for number in range(50) for slot in (0, 1)]
    first, columns = WINDOW.start // (MINUTE // 360), 360
    cells = pl.DataFrame(
        [(*key, first + column, "a0" if column < 10 else "a1", 1.0, 1) for key in keys for column in range(columns)],
        schema={**dict.fromkeys(LANE, pl.String), "slot": pl.Int64, "cell": pl.Int64}
        | {"adapter": pl.String, "filled": pl.Float64, "adapters": pl.Int64},
        orient="row",
    )
    told = replace(busy(tmp_path), step=MINUTE // 360, cells=cells)
    drawn = timeline_figure(told, Window(first * told.step, (first + columns) * told.step), 10 * SECOND)
    (picture,) = drawn.layout.images
    assert not traces(drawn, "heatmap")
    assert (picture.x, picture.y, picture.xref, picture.yref) == (moments([first * told.step])[0], 0, "x", "y")
    assert picture.sizey == pytest.approx(50 * 2 + 49 * GAP)
    assert drawn.layout.yaxis.range == (pytest.approx(picture.sizey), 0)
    assert picture.sizex == pytest.approx(columns * told.step / 1000)
    assert len(picture.source) < 20_000


def test_all_rows_share_one_axis_of_time_and_a_span_is_marked_on_it(tmp_path: Path):
    drawn = timeline_figure(shown(tmp_path, "a:0-30"), WINDOW, 10 * SECOND)
    assert {trace.xaxis for trace in drawn.data} <= {None, "x"}
    assert (drawn.layout.dragmode, drawn.layout.selectdirection) == ("select", "h")


def test_rows_do_not_overlap(tmp_path: Path):
    layout = timeline_figure(shown(tmp_path, "a:0-30"), WINDOW, 10 * SECOND).layout
    domains = [layout[name].domain for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4")]
    assert all(above[0] > below[1] for above, below in pairwise(domains))
    assert domains[-1][0] >= 0


def test_a_band_is_cut_at_the_window_and_one_outside_is_not_drawn(tmp_path: Path):
    bands = [(AT - MINUTE, AT + 10 * SECOND, "#ff0000"), (AT - 2 * MINUTE, AT - MINUTE, "#00ff00")]
    inside, strip = timeline_figure(shown(tmp_path, "a:0-30"), WINDOW, 10 * SECOND, bands=bands).layout.shapes
    assert (inside.fillcolor, strip.fillcolor) == ("#ff0000", "#ff0000")
    assert (inside.yref, inside.y0, inside.y1, strip.y0) == ("paper", 0, 1, 1)


def test_a_bin_of_which_nothing_is_known_is_a_gap(tmp_path: Path):
    drawn = timeline_figure(shown(tmp_path, "a:0-30 b:55-"), WINDOW, 5 * SECOND)
    (requests_line,) = [trace for trace in drawn.data if trace.yaxis == "y4"]
    assert None in list(requests_line.y)


def test_hostile_names_are_inert_in_bars_and_cells(tmp_path: Path):
    made = Pod(slots=4, load=0.1).start(AT - SECOND)
    for number, name in enumerate(HOSTILE):
        made.ask(AT + number * SECOND, name, hold=0.2)
    told = part(WINDOW, stored(tmp_path, events=made.event_rows(), requests=made.request_rows()), DAY, SECOND, 10 * SECOND)
    text = timeline_figure(told, WINDOW, 10 * SECOND).to_json()
    for raw in ("<script", "</script", "<b> |", "\x1b", "\u202e"):
        assert raw not in text


def test_more_slots_than_can_be_drawn_are_counted(tmp_path: Path):
    many = " ".join(f"a{number}:0-" for number in range(MOST_LANES + 5))
    placed = lanes(shown(tmp_path, many, slots=MOST_LANES + 5))
    assert (len(placed.middle), placed.left_out) == (MOST_LANES, 5)
