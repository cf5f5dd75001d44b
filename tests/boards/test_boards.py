"""The committed boards keep the rules of boards: ours, and those that Grafana's linter of dashboards has."""

import json
import re
from collections import Counter
from itertools import combinations

import promql_parser
import pytest
from boards.committed import COMMITTED, expressions, filled_in, panels
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from lora_watch import links, names
from lora_watch.boards.draw import without_ballast
from lora_watch.boards.files import BOARDS
from lora_watch.boards.panel import GRID, Install, Kind, stable_id

register_default_plugins()
WHERE = {"cluster": "$cluster", "pool": "$pool", "role": "$role"}
OF_THE_SERVICE = {
    names.SOURCE_LAG,
    names.SOURCE_LAST_SUCCESS,
    names.SOURCE_ROWS,
    names.SOURCE_ERRORS,
    names.SOURCE_LOST,
    names.SOURCE_LATE,
    names.JOB_RUNS,
    names.JOB_LAST_SUCCESS,
    f"{names.JOB_SECONDS}_bucket",
    names.WATCH_LOOKS_RECORD,
}
"""Series about the service itself: of no cluster and pool."""
KNOWN = {
    spelled
    for name, value in vars(names).items()
    if not name.startswith("_")
    for one in (value if isinstance(value, tuple) else (value,))
    for spelled in (one, f"{one}_bucket", f"{one}_sum", f"{one}_count")
}
UNITS = {"short", "none", "s", "bytes", "percentunit", "reqps", "suffix:/s", "suffix:×"}
BOARD = pytest.mark.parametrize("board", COMMITTED.values(), ids=COMMITTED)


def selectors(node) -> list:
    """Every selector in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    if isinstance(node, promql_parser.Call):
        return [one for argument in node.args for one in selectors(argument)]
    inner = [getattr(node, name) for name in ("lhs", "rhs", "expr", "vector_selector", "param") if getattr(node, name, None)]
    return [one for part in inner for one in selectors(part)]


def read(expr: str) -> list:
    """The selectors of an expression with Grafana's variables kept as values."""
    return selectors(promql_parser.parse(re.sub(r"\[\$__\w+", "[5m", expr)))


@BOARD
def test_the_sdk_reads_a_board_and_writes_the_same(board: dict):
    again = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    assert without_ballast(again) == board


@BOARD
def test_every_panel_says_what_it_shows_and_how_it_is_known(board: dict):
    for panel in panels(board):
        definition, _, provenance = panel["description"].partition("\n\nProvenance: ")
        assert panel["title"]
        assert len(definition) > 40
        assert provenance


@BOARD
def test_every_panel_and_every_column_of_numbers_has_a_unit(board: dict):
    for panel in panels(board):
        told = [panel["fieldConfig"]["defaults"]["unit"]]
        told += [p["value"] for one in panel["fieldConfig"]["overrides"] for p in one["properties"] if p["id"] == "unit"]
        assert set(told) <= UNITS, panel["title"]


@BOARD
def test_ids_are_there_different_and_stay(board: dict):
    every = [panel["id"] for panel in board["panels"]] + [
        inside["id"] for row in board["panels"] for inside in row.get("panels", [])
    ]
    assert len(set(every)) == len(every)
    assert all(panel["id"] == stable_id(board["uid"], panel["title"]) for panel in panels(board))


@BOARD
def test_panels_lie_in_the_grid_and_on_no_other(board: dict):
    opened = [panel["gridPos"] for panel in board["panels"]]
    for inside in [opened, *([one["gridPos"] for one in row["panels"]] for row in board["panels"] if row.get("panels"))]:
        assert all(at["x"] >= 0 and at["w"] > 0 and at["h"] > 0 and at["x"] + at["w"] <= GRID for at in inside)
        for one, other in combinations(inside, 2):
            apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


@BOARD
def test_every_line_of_panels_is_full(board: dict):
    widths: Counter[int] = Counter()
    for panel in panels(board):
        widths[panel["gridPos"]["y"]] += panel["gridPos"]["w"]
    assert set(widths.values()) == {GRID}


@BOARD
def test_every_panel_query_and_mark_is_of_the_chosen_data_source(board: dict):
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(board):
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])
    assert all(mark["datasource"] == mark["target"]["datasource"] == chosen for mark in board["annotations"]["list"])
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")


@BOARD
def test_every_panel_has_a_query_and_tables_and_numbers_ask_once(board: dict):
    for panel in panels(board):
        assert panel["targets"]
        instant = panel["type"] in (Kind.TABLE, Kind.NUMBERS, Kind.BARS)
        assert all(
            target.get("instant", False) is instant and target.get("range", False) is not instant for target in panel["targets"]
        )
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@BOARD
def test_variables_are_chained_and_asked_anew_with_the_window(board: dict):
    asked = [one for one in board["templating"]["list"] if one["type"] == "query"]
    for number, variable in enumerate(asked):
        assert variable["refresh"] == 2
        used = set(re.findall(r"\$(\w+)", variable["query"]["query"]))
        before = {one["name"] for one in asked[:number]}
        assert used == before & {"cluster", "pool", "role"}


@BOARD
def test_every_used_variable_is_there(board: dict):
    has = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(board)))
    assert used - has == {"1"} & used
    assert has - used == set() or has - used <= {"runbooks"}


@BOARD
def test_a_pod_or_adapter_must_be_picked_so_that_nobody_repeats_two_hundred_rows(board: dict):
    for variable in board["templating"]["list"]:
        if variable["name"] in ("pod", "adapter"):
            assert not variable["includeAll"]
        elif variable["type"] == "query":
            assert variable["allValue"] == ".*"


@BOARD
def test_every_expression_reads_known_metrics_of_the_chosen_pools(board: dict):
    for what, expr in expressions(board):
        for selector in read(expr):
            assert selector.name in KNOWN, what
            if selector.name in OF_THE_SERVICE or what.startswith("variable"):
                continue
            matchers = {one.name: one.value for one in selector.matchers.matchers}
            assert WHERE.items() <= matchers.items(), f"{what}: {expr}"


@BOARD
def test_counters_are_read_as_rates_over_an_interval_that_fits_the_scrape(board: dict):
    for what, expr in expressions(board):
        for metric in re.findall(r"[\w:]+(?:_total|_bucket)\b", expr):
            assert re.search(rf"rate\({metric}(\{{[^}}]*\}})?\[\$__rate_interval\]", expr), what
        assert set(re.findall(r"\[([^]]+)\]", expr)) <= {"$__rate_interval", "$__range", "$__range:1m"}, what


@BOARD
def test_no_expression_averages(board: dict):
    for what, expr in expressions(board):
        assert not re.search(r"\bavg(_over_time)?\b", expr), what


@BOARD
def test_sums_keep_prefill_and_decode_apart(board: dict):
    for what, expr in expressions(board):
        for kept in re.findall(r"\b(?:sum|min|max|count) by \(([^)]*)\)", expr):
            assert "role" in kept or kept.split(", ")[0] in ("source", "job", "finding"), what


@BOARD
def test_every_panel_leads_to_the_explorer_at_the_same_window_and_choice(board: dict):
    has = {one["name"] for one in board["templating"]["list"]}
    for panel in panels(board):
        (link,) = panel["links"]
        base, _, query = link["url"].partition("/?")
        told = dict(pair.split("=") for pair in query.split("&"))
        assert base == "${explorer}"
        assert told == {"from": "${__from}", "to": "${__to}"} | {
            key: f"${{{key}:percentencode}}" for key in ("cluster", "pool", "role", "pod", "adapter") if key in has
        }
        assert set(told) <= set(links.KEYS)


@BOARD
def test_a_board_has_a_fixed_address_and_is_not_edited_by_hand(board: dict):
    assert re.fullmatch(r"lora-watch-[a-z]+", board["uid"])
    assert board["editable"] is False
    assert board["tags"] == ["lora-watch"]
    assert "id" not in board


def test_links_between_boards_lead_to_boards():
    for board in COMMITTED.values():
        for uid in re.findall(r'"/d/([\w-]+)\?', json.dumps(board)):
            assert uid in COMMITTED


def test_only_panels_that_say_so_need_the_exporter():
    for board in BOARDS:
        for panel in (*board.first, *(panel for row in board.rows for panel in row.panels)):
            assert (panel.installs == (Install.FULL,)) == ("empty in the raw install" in panel.description)


def test_variables_are_filled_in():
    assert filled_in('a{pod=~"$pod",x="${explorer}"}[$__range]', pod="p") == 'a{pod=~"p",x=".*"}[1h]'
