import re
from pathlib import Path

import pytest

from lora_watch import errors, names
from lora_watch.exporter import ADAPTER_SERIES, POD_SERIES
from lora_watch.render import FILES, section

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FILES)
def test_what_is_generated_is_fresh(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert FILES[name](text) == text, f"stale: {name}; run `make render`"


def test_a_text_without_markers_is_refused():
    with pytest.raises(ValueError, match="no part between"):
        section("x", str)("text")


def test_every_published_metric_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [one.name for one in (*POD_SERIES, *ADAPTER_SERIES) if f"`{one.name}`" not in text]
    assert missing == []


def test_the_drawn_tree_of_errors_is_the_tree():
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"( *)[*x-] (\w+)", line):
            depth, name = len(match[1]), match[2]
            path = [entry for entry in path if entry[0] < depth]
            drawn[name] = path[-1][1] if path else "Exception"
            path.append((depth, name))
    real = {name: kind.__base__.__name__ for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert drawn == real


def test_no_metric_has_two_names_in_the_code():
    values = [value for name, value in vars(names).items() if isinstance(value, str) and not name.startswith("__")]
    assert len(values) == len(set(values))


def test_metric_names_are_spelled_in_one_file_only():
    pattern = re.compile(r"""["'](?:vllm:|lora_watch_)[a-z_]+["']""")
    found = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "lora_watch").rglob("*.py")
        if file.name != "names.py" and pattern.search(file.read_text(encoding="utf-8"))
    }
    assert found == set()
