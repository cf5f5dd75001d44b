"""The README's example for a notebook prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from lora_watch.cli import app

README = Path(__file__).parents[2] / "README.md"


def test_the_example_for_a_notebook_prints_what_stands_below_it(tmp_path: Path):
    text = README.read_text(encoding="utf-8")
    shown = re.search(
        r"```\nlora-watch (simulate [^#\n]+?) --out small\b.*?```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL
    )
    assert shown is not None
    laid = CliRunner().invoke(app, [*shown[1].split(), "--out", str(tmp_path / "small")])
    assert laid.exit_code == 0, laid.output
    done = subprocess.run([sys.executable, "-c", shown[2]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, shown[3]), f"stale: the example prints\n{done.stdout}{done.stderr}"
