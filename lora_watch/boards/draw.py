"""Boards as Grafana's SDK builds them, and the JSON of it. The one file that knows the SDK of boards."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from lora_watch.boards import scope, uids
from lora_watch.boards.annotations import ANNOTATIONS
from lora_watch.boards.panel import Board, Choice, Kind, Panel, Place, Row, Step, placed, stable_id

Drawn = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel | statetimeline.Panel
SOURCE = kinds.DataSourceRef(type_val="prometheus", uid=scope.DATASOURCE)
TAG = "lora-watch"
UNKNOWN = "unknown"
"""Shown where there is no number: not 0."""
PLAIN = (Step(None, "text"),)


def text(board: Board) -> str:
    """The file of a board: classic JSON, which Grafana 10 to 13 read."""
    built = json.loads(json.dumps(_dashboard(board).build(), cls=JSONEncoder))
    return json.dumps(without_ballast(built), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def without_ballast(board: dict[str, Any]) -> dict[str, Any]:
    """
    The board without what the SDK always writes and Grafana's types no longer have, or have for other kinds of things.

    Links and annotations would be put into a menu; they are to stay in sight.
    """
    return {
        **board,
        "links": [_without(link, "placement") for link in board["links"]],
        "annotations": {"list": [_without(one, "placement") for one in board["annotations"]["list"]]},
        "templating": {"list": [_without(one, "auto", "auto_count", "auto_min") for one in board["templating"]["list"]]},
        "panels": [_plain(panel) for panel in board["panels"]],
    }


def _plain(panel: dict[str, Any]) -> dict[str, Any]:
    if panel["type"] == "row":
        return {**panel, "panels": [_plain(inside) for inside in panel["panels"]]}
    links = [_without(link, "placement") for link in panel["links"]]
    return {**panel, "links": links, "options": _without(panel["options"], "footer")}


def _without(told: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in keys}


def _dashboard(board: Board) -> dashboard.Dashboard:
    drawn = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .time(f"now-{board.hours}h", "now")
        .refresh("1m")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .variables(_variables(board))
        .annotations([_annotation(*told) for told in ANNOTATIONS])
        .links(
            [
                dashboard.DashboardLink("Boards")
                .type(models.DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .as_dropdown(True)
                .include_vars(True)
                .keep_time(True)
                .icon("external link"),
                _explore(board).icon("external link"),
            ]
        )
    )
    y = _panels(drawn, board, board.first, 0)
    for row in board.rows:
        y = _row(drawn, board, row, y)
    return drawn


def _panels(drawn: dashboard.Dashboard | dashboard.Row, board: Board, panels: tuple[Panel, ...], y: int) -> int:
    places, end = placed(panels, y)
    for panel, place in zip(panels, places, strict=True):
        drawn.with_panel(_panel(board, panel, place))
    return end


def _row(drawn: dashboard.Dashboard, board: Board, row: Row, y: int) -> int:
    """The row's heading and panels; the first free line after them. Panels of a collapsed row lie inside it."""
    heading = dashboard.Row(row.title).id(stable_id(board.uid, f"row {row.title}")).grid_pos(models.GridPos(x=0, y=y, w=24, h=1))
    if row.repeat:
        heading = heading.repeat(row.repeat)
    if row.collapsed:
        _panels(heading, board, row.panels, y + 1)
        drawn.with_row(heading.collapsed(True))
        return y + 1
    drawn.with_row(heading.collapsed(False))
    return _panels(drawn, board, row.panels, y + 1)


def _variables(board: Board) -> list[Builder[models.VariableModel]]:
    found: list[Builder[models.VariableModel]] = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    ]
    for name, variable in scope.chosen(board.variables):
        query: dict[str, object] = {"query": variable.query, "refId": f"{name} values"}
        one = (
            dashboard.QueryVariable(name)
            .label(variable.title)
            .description(variable.description)
            .datasource(SOURCE)
            .query(query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.NATURAL_ASC)
            .multi(True)
        )
        if name in board.several:
            one = one.include_all(True).all_value(scope.WHOLE).current(models.VariableOption(True, ["All"], ["$__all"]))
        found.append(one)
    for name, (title, first, description) in scope.TEXTS.items():
        found.append(dashboard.TextBoxVariable(name).label(title).default_value(first).description(description))
    return found


def _annotation(name: str, colour: str, expr: str, title: str, words: str) -> dashboard.AnnotationQuery:
    target = prometheus.Dataquery().ref_id("Anno").expr(expr).interval("60s").range().datasource(SOURCE)
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(colour)
        .target(target)
        .title_format(title)
        .text_format(words)
        .tag_keys("severity,pool,role")
    )


def _explore(board: Board, **instead: str) -> dashboard.DashboardLink:
    url = scope.explorer_link(board.variables, **instead)
    return dashboard.DashboardLink("Open in the explorer").type(models.DashboardLinkType.LINK).url(url).target_blank(True)


def _panel(board: Board, panel: Panel, place: Place) -> Drawn:
    drawn = _of_kind(panel)
    drawn = (
        drawn.title(panel.title)
        .description(panel.description)
        .id(stable_id(board.uid, panel.title))
        .datasource(SOURCE)
        .grid_pos(models.GridPos(x=place.x, y=place.y, w=place.width, h=place.height))
        .unit(panel.unit)
        .no_value(UNKNOWN)
        .links([_explore(board)])
        .targets([_target(panel, number) for number in range(len(panel.queries))])
        .thresholds(_thresholds(panel.steps or PLAIN))
    )
    if panel.decimals is not None:
        drawn = drawn.decimals(panel.decimals)
    if panel.bottom is not None:
        drawn = drawn.min(panel.bottom)
    if panel.top is not None:
        drawn = drawn.max(panel.top)
    if panel.choices:
        drawn = drawn.mappings([_mapping(panel.choices)])
    if panel.by_pod and panel.kind is not Kind.TABLE:
        drawn = drawn.data_links(_series_links(board))
    return drawn


def _of_kind(panel: Panel) -> Drawn:
    match panel.kind:
        case Kind.LINES:
            return _lines(panel)
        case Kind.NUMBERS:
            return (
                stat.Panel()
                .reduce_options(_last())
                .text_mode(kinds.BigValueTextMode.VALUE_AND_NAME)
                .color_mode(kinds.BigValueColorMode.VALUE)
                .graph_mode(kinds.BigValueGraphMode.NONE)
                .justify_mode(kinds.BigValueJustifyMode.AUTO)
                .orientation(kinds.VizOrientation.AUTO)
                .color_scheme(_by_threshold())
            )
        case Kind.BARS:
            return (
                bargauge.Panel()
                .reduce_options(_last())
                .display_mode(kinds.BarGaugeDisplayMode.BASIC)
                .value_mode(kinds.BarGaugeValueMode.COLOR)
                .orientation(kinds.VizOrientation.HORIZONTAL)
                .show_unfilled(True)
                .color_scheme(_by_threshold())
            )
        case Kind.STATES:
            return (
                statetimeline.Panel()
                .show_value(kinds.VisibilityMode.NEVER)
                .merge_values(True)
                .row_height(0.8)
                .fill_opacity(80)
                .legend(_legend(show=False))
                .color_scheme(_by_threshold())
            )
        case Kind.TABLE:
            return _table(panel)


def _lines(panel: Panel) -> timeseries.Panel:
    """Lines with a legend; a gap stays a gap."""
    drawn = (
        timeseries.Panel()
        .legend(_legend(show=True))
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .draw_style(kinds.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 0)
        .span_nulls(False)
        .show_points(kinds.VisibilityMode.NEVER)
        .axis_soft_min(0)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.stacked:
        drawn = drawn.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    if panel.steps:
        drawn = drawn.thresholds_style(common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED))
    return drawn


def _table(panel: Panel) -> table.Panel:
    """One row for each combination of labels, with the labels' columns first and then those of the queries."""
    titles = {column.label: column.title for column in panel.columns}
    values = {_value_column(number): query.name for number, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        values["Value"] = panel.queries[0].name
    order = [*titles, *values]
    organize = {
        "excludeByName": {"Time": True, "__name__": True},
        "includeByName": dict.fromkeys(order, True),
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": {**titles, **values},
    }
    drawn = table.Panel().transformations(
        [
            models.DataTransformerConfig(id_val="merge", options={}),
            models.DataTransformerConfig(id_val="organize", options=organize),
        ]
    )
    drawn = drawn.cell_height(kinds.TableCellHeight.SM).filterable(True).color_scheme(_by_threshold())
    for column in panel.columns:
        own = [models.DynamicConfigValue("custom.width", column.width)] if column.width else []
        if column.link:
            own.append(models.DynamicConfigValue("links", [{"title": f"Open {column.title.lower()}", "url": column.link}]))
        if own:
            drawn = drawn.override_by_name(column.title, own)
    for query in panel.queries:
        if own := _own(query.unit, query.steps, query.choices):
            drawn = drawn.override_by_name(query.name, own)
    if panel.sort:
        name, greatest_first = panel.sort
        drawn = drawn.sort_by([common.TableSortByFieldState().display_name(name).desc(greatest_first)])
    return drawn


def _own(unit: str | None, steps: Sequence[Step], choices: Sequence[tuple[str, Choice]]) -> list[models.DynamicConfigValue]:
    """What a column has of its own."""
    found = [] if unit is None else [models.DynamicConfigValue("unit", unit)]
    if steps:
        found.append(models.DynamicConfigValue("thresholds", _thresholds(steps).build()))
    if choices:
        found.append(models.DynamicConfigValue("mappings", [_mapping(choices)]))
    if steps or choices:
        found.append(models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return found


def _value_column(number: int) -> str:
    """What Grafana calls the values of a table's query."""
    return f"Value #{_ref(number)}"


def _ref(number: int) -> str:
    return chr(ord("A") + number)


def _target(panel: Panel, number: int) -> prometheus.Dataquery:
    query = panel.queries[number]
    target = prometheus.Dataquery().ref_id(_ref(number)).expr(query.expr).datasource(SOURCE)
    if panel.kind is Kind.TABLE:
        return target.instant().format(PromQueryFormat.TABLE)
    target = target.legend_format(query.name).format(PromQueryFormat.TIME_SERIES)
    return target.range() if panel.kind in (Kind.LINES, Kind.STATES) else target.instant()


def _series_links(board: Board) -> list[Builder[models.DashboardLink]]:
    """Where a click on a series of one pod leads."""
    pod = scope.series_label("pod")
    board_of_pod = dashboard.DashboardLink("This pod's board").url(scope.board_link(uids.POD, {"pod": pod}))
    return [board_of_pod, _explore(board, pod=scope.exactly(pod)).title("This pod in the explorer")]


def _mapping(choices: Iterable[tuple[str, Choice]]) -> models.ValueMap:
    return models.ValueMap(
        {
            value: models.ValueMappingResult(text=choice.text, color=choice.colour, index=index)
            for index, (value, choice) in enumerate(choices)
        }
    )


def _thresholds(steps: Sequence[Step]) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=step.at, color=step.colour) for step in steps])
    )


def _by_threshold() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")


def _legend(*, show: bool) -> common.VizLegendOptions:
    placement = kinds.LegendPlacement.BOTTOM
    return common.VizLegendOptions().show_legend(show).display_mode(kinds.LegendDisplayMode.LIST).placement(placement).calcs([])
