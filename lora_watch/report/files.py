"""Files that are there whole, or not at all."""

import os
import tempfile
from pathlib import Path

from lora_watch.errors import LoraWatchError


def write(file: Path, text: str) -> None:
    """
    Write a file in one step: who reads it sees the old one or the new one. Its folder is made if need be. LoraWatchError, with
    the reason, where it can't be. A link stays one, and what is no file (a pipe, a device) is written to as it is.
    """
    try:
        file = file.resolve()
        if file.exists() and not file.is_file() and not file.is_dir():
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}-", suffix=".part")
        part = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as opened:
                opened.write(text)
            part.chmod(0o644)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise LoraWatchError(f"cannot write {file}: {error.strerror or error}") from error
