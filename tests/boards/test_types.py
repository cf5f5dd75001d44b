"""The boards against the types that Grafana publishes: `tsc` over `@grafana/schema`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from boards.committed import COMMITTED, ROOT, panels

PACKAGE = Path(__file__).parent / "schema" / "package.json"
FOLDER = ROOT / ".venv" / "grafana-schema"
OPTIONS = {
    "timeseries": ("timeseries", "TimeSeries"),
    "stat": ("stat", "Stat"),
    "bargauge": ("bargauge", "BarGauge"),
    "table": ("table", "Table"),
    "state-timeline": ("statetimeline", "StateTimeline"),
}
"""Panel type → where the schema has its options."""
COMPOSABLE = "@grafana/schema/dist/esm/raw/composable"
NO_FIELDS = {"Stat", "BarGauge"}
"""Panels that have no settings of their own for a field."""
EVEN = """
type Even<T> = T extends (infer I)[] ? Even<I>[] : T extends object ? { [K in keyof T]: Even<T[K]> }
  : T extends string ? `${T}` | T : T;
"""
"""JSON has an enumeration's value where the types want its name."""


@pytest.fixture(scope="module")
def schema() -> Path:
    """The schema and the compiler, installed once by npm; no npm, or no registry, is a failure."""
    npm = shutil.which("npm")
    assert npm, "npm is missing: install Debian's nodejs and npm"
    if not (FOLDER / "done").exists() or (FOLDER / "package.json").read_text() != PACKAGE.read_text():
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE, FOLDER / "package.json")
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(FOLDER)]
        done = subprocess.run([npm, "install", *options], capture_output=True, text=True, cwd=FOLDER)
        assert done.returncode == 0, done.stderr
        (FOLDER / "done").touch()
    return FOLDER


def without_queries_words(board: dict) -> dict:
    """The schema knows no data source, so what annotations say to Prometheus' is left out here; the SDK's types have it."""
    theirs = {"titleFormat", "textFormat", "tagKeys"}
    marks = [
        {key: value for key, value in one.items() if key not in theirs} | {"target": {"refId": one["target"]["refId"]}}
        for one in board["annotations"]["list"]
    ]
    return {**board, "annotations": {"list": marks}}


def source(board: dict) -> str:
    """A program that is right if the board is of the schema's types, and each panel of those of its kind."""
    lines = ["import type { Dashboard, FieldConfig } from '@grafana/schema';"]
    for folder, name in OPTIONS.values():
        lines.append(f"import type * as {name} from '{COMPOSABLE}/{folder}/panelcfg/x/{name}PanelCfg_types.gen';")
    lines.append(EVEN)
    lines.append(f"export const board: Even<Dashboard> = {json.dumps(without_queries_words(board))};")
    for panel in panels(board):
        folder, name = OPTIONS[panel["type"]]
        custom = "object" if name in NO_FIELDS else f"Partial<{name}.FieldConfig>"
        lines.append(f"// {panel['title']}")
        lines.append(f"export const options{panel['id']}: Even<Partial<{name}.Options>> = {json.dumps(panel['options'])};")
        lines.append(
            f"export const field{panel['id']}: Even<FieldConfig<{custom}>> = {json.dumps(panel['fieldConfig']['defaults'])};"
        )
    return "\n".join(lines) + "\n"


def complaints(schema: Path, name: str, text: str) -> list[str]:
    """What the compiler says."""
    (schema / f"{name}.ts").write_text(text, encoding="utf-8")
    options = [
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "nodenext",
        "--moduleResolution",
        "nodenext",
        "--target",
        "es2022",
    ]
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", *options, "--pretty", "false", f"{name}.ts"],
        cwd=schema,
        capture_output=True,
        text=True,
    )
    return re.split(r"\n(?=\S)", done.stdout.strip()) if done.stdout.strip() else []


@pytest.mark.slow
@pytest.mark.parametrize("uid", COMMITTED)
def test_a_board_is_of_the_types_that_grafana_publishes(uid: str, schema: Path):
    assert complaints(schema, uid, source(COMMITTED[uid])) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "key", "value"),
    [((), "refrehs", "1m"), (("options",), "graphMode", "areas"), (("fieldConfig", "defaults"), "unti", "s")],
)
def test_the_compiler_finds_what_is_wrong_in_a_board(place: tuple[str, ...], key: str, value: str, schema: Path):
    board = json.loads(json.dumps(COMMITTED["lora-watch-watcher"]))
    at = next(panels(board)) if place else board
    for step in place:
        at = at[step]
    at[key] = value
    found = complaints(schema, f"seeded-{key}", source(board))
    assert any(f'"{value}"' in one or f'"{key}"' in one for one in found)
