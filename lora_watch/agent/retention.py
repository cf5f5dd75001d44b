"""What of a directory of event logs is kept: so many bytes of segments, and so many processes that have ended."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from lora_watch.agent.lines import SEGMENT

MAX_DEAD = 1_000
"""Processes that ended whose logs are kept: a listing of as many takes 0.1 s. A crash loop makes 600 a day at the most."""


def prune(directory: Path, max_bytes: int, *, only: str | None = None, keep: Iterable[str] = ()) -> int:
    """
    Delete the oldest segments until ``directory`` holds at most ``max_bytes`` of them; returns the bytes deleted.

    Age is the time of the last write. The newest segment of a boot in ``keep`` stays, and so does the newest of ``only``, which
    restricts deletion to that boot (a writer prunes its own; the sidecar prunes all). Headers stay: they are 64 bytes and still
    say how many records there were (see ``forget``).
    """
    segments: list[tuple[float, str, int, Path, int]] = []
    newest: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            if (match := SEGMENT.fullmatch(entry.name)) is None:
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                seq = int(match[2])
                newest[match[1]] = max(newest.get(match[1], 0), seq)
                segments.append((status.st_mtime, match[1], seq, Path(entry.path), status.st_size))
    kept = {*keep, only}
    excess = sum(segment[4] for segment in segments) - max_bytes
    deleted = 0
    for _, boot, seq, path, size in sorted(segments):
        if deleted >= excess:
            break
        if (only is not None and boot != only) or (boot in kept and seq == newest[boot]):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            deleted += size
    return deleted


def forget(directory: Path, dead: Sequence[str], most: int = MAX_DEAD) -> list[str]:
    """
    Delete all that is left of the oldest ``dead`` processes (boots, the oldest first) past ``most``; returns the boots forgotten.

    The header goes last. Until then it tells every reader what was lost with the segments; from then on nothing does, so whoever
    calls this says what was forgotten.
    """
    gone = list(dead[: max(len(dead) - most, 0)])
    if gone:
        for path in list(directory.iterdir()):
            if (match := SEGMENT.fullmatch(path.name)) and match[1] in gone:
                path.unlink(missing_ok=True)
    for boot in gone:
        (directory / f"{boot}.counts").unlink(missing_ok=True)
        (directory / f"{boot}.head").unlink(missing_ok=True)
    return gone
