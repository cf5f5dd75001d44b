"""The runbooks of findings, which come along: nobody has to find them on a bad morning."""

from pathlib import Path

import lora_watch


def runbook(kind: str) -> str | None:
    """The text of a kind of finding's runbook, Markdown; None where there is none of that name."""
    package = Path(lora_watch.__file__).parent
    if not kind.replace("-", "").isalnum():
        return None
    for place in (package / "runbooks", package.parent / "alerts" / "runbooks"):
        file = place / f"{kind}.md"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return None
