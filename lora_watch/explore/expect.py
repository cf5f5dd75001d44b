"""What ``lora-watch expect`` does: one announced experiment more in the file that the diagnosis reads."""

import fcntl
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from lora_watch.derive.expected import Expected, append, parse
from lora_watch.errors import ConfigError, LoraWatchError

WITHOUT_CONFIGURATION = (
    "There is no configuration here. `lora-watch check` reads this file when it runs in this folder; for a service, write to the "
    "file that its `diagnose.expected` names: run this with its --config, or with --file."
)
"""What is said beside an announcement in the file that is read where there is no configuration."""


def announcement(adapters: Sequence[str], start: str, end: str, note: str = "") -> Expected:
    """An announcement from what a person wrote; times are ISO 8601 with a zone. LoraWatchError says what is wrong with it."""
    try:
        return Expected(start=datetime.fromisoformat(start), end=datetime.fromisoformat(end), adapters=tuple(adapters), note=note)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors())
        raise LoraWatchError(f"cannot announce this: {wrong}; write times like 2026-11-30T10:15:00Z") from None
    except ValueError as error:
        raise LoraWatchError(f"cannot read a time: {error}; write times like 2026-11-30T10:15:00Z") from None


def announce(file: Path, expected: Expected) -> int:
    """
    Append an announcement to the file, which is made if need be; returns how many it has then.

    What stands there stays as it is. The file is replaced whole, so a reader sees the old one or the new one; two that append at
    once wait for each other. Raises ConfigError where what stands there is wrong, LoraWatchError where it can't be written.
    """
    try:
        with (file.parent / f".{file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = append(_text(file), expected, str(file))
            new = file.parent / f".{file.name}.new"
            new.write_text(text, encoding="utf-8")
            if file.exists():
                new.chmod(file.stat().st_mode & 0o777)
            os.replace(new, file)
    except OSError as error:
        raise LoraWatchError(f"cannot write {file}: {error.strerror or error}") from error
    return len(parse(text, str(file)))


def announced_in(file: Path) -> tuple[Expected, ...]:
    """The announcements of a file, none where there is none. ConfigError: it is wrong; LoraWatchError: it can't be read."""
    return parse(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error}") from None
    except OSError as error:
        raise LoraWatchError(f"cannot read {file}: {error.strerror or error}") from error
