"""``python -m report.golden`` from ``tests``: writes the golden files anew. Read what has changed before it is committed."""

from pathlib import Path

from report.examples import report

from lora_watch.report.written import FORMS

if __name__ == "__main__":
    for form in ("md", "json"):
        (Path(__file__).parent / "golden" / f"week.{form}").write_text(FORMS[form](report()), encoding="utf-8")
