"""
One line of vLLM's log, JSON or plain text: when, which process, and what it said, if it is a line about adapters.

Plain text is believed only where the whole header fits: level, source file, and the message to its end. A served name may
hold anything, so a message inside a name must not pass for one; it can't, since vLLM repeats the header of a line in which a
name breaks, what it says of names is INFO, and what it does to adapters is DEBUG.
"""

import calendar
import json
import re
import time
from typing import NamedTuple

LONGEST_LINE = 1 << 20
"""Characters of a line that are looked at; longer ones are not vLLM's."""

_WORKER_LOGGERS = frozenset({"vllm.lora.model_manager", "vllm.lora.models", "vllm.adapter_commons.models"})
_API_LOGGERS = ("vllm.entrypoints.",)
_WORKER_FILES = frozenset({"model_manager.py", "models.py"})
_API_FILES = frozenset({"serving.py", "serving_models.py", "api_utils.py", "utils.py"})

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COLLECTOR = re.compile(r"^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\s+(?:std(?:out|err)\s+[FP]\s+)?")
_HEADER = re.compile(
    r"(?:\((?P<process>[^()]*?) pid=(?P<pid>\d+)\) )?(?P<level>DEBUG|INFO|WARNING) "
    r"(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d) \[(?P<file>[^\]\s]*?):\d+\] (?P<message>.*)",
    re.DOTALL,
)


class Line(NamedTuple):
    """One log line that matters: when (µs UTC), by which process, and what it says."""

    at: int
    pid: int
    process: str
    worker: bool
    message: str


def parse(line: str, *, now: int, utc_offset_seconds: int = 0) -> Line | None:
    """
    What a line of either form says, None where it is not one of ours: garbage, half a line, another module, another level.

    Plain text has no year and no zone: the year is the last that does not lie more than a day after ``now`` (µs UTC), the zone is
    ``utc_offset_seconds`` east of Greenwich. A time put in front by a log collector (RFC 3339) is preferred.

    >>> parse("(Worker pid=7) DEBUG 11-30 08:20:32 [lora/model_manager.py:366] Removing adapter int id: 3", now=1796030000000000)
    Line(at=1796026832000000, pid=7, process='Worker', worker=True, message='Removing adapter int id: 3')
    """
    line = line.rstrip("\n")
    if len(line) > LONGEST_LINE:
        return None
    return _parse_json(line) if line.startswith("{") else _parse_text(line, now, utc_offset_seconds)


def has_header(text: str) -> bool:
    """Does a log line begin here, one of ours or not? False: it continues the line before."""
    return text.startswith("{") or _HEADER.search(_COLOUR.sub("", text[:LONGEST_LINE])) is not None


def _parse_json(line: str) -> Line | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    created, pid, message = fields.get("created"), fields.get("process"), fields.get("message")
    logger, level = str(fields.get("name")), fields.get("levelname")
    worker = logger in _WORKER_LOGGERS and level == "DEBUG"
    api = logger.startswith(_API_LOGGERS) and level in ("INFO", "WARNING")
    if not isinstance(created, int | float) or isinstance(created, bool) or not 0 <= created < 1e11:
        return None
    if not (worker or api) or type(pid) is not int or not isinstance(message, str):
        return None
    return Line(round(created * 1e6), pid, str(fields.get("processName", "")), worker, message)


def _parse_text(line: str, now: int, utc_offset_seconds: int) -> Line | None:
    line = _COLOUR.sub("", line)
    collected = _COLLECTOR.match(line)
    header = _HEADER.search(line, collected.end() if collected else 0)
    if header is None:
        return None
    file = header["file"].rpartition("/")[2]
    worker = file in _WORKER_FILES and header["level"] == "DEBUG"
    if not worker and not (file in _API_FILES and header["level"] in ("INFO", "WARNING")):
        return None
    at = _collected_at(collected) if collected else _text_at(header, now, utc_offset_seconds)
    if at is None:
        return None
    return Line(at, int(header["pid"] or 0), header["process"] or "", worker, header["message"])


def _collected_at(match: re.Match[str]) -> int | None:
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    zone = match[8]
    offset = 0 if zone == "Z" else (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * (-1 if zone[0] == "-" else 1)
    fraction = round(float(match[7] or 0) * 1e6)
    return (calendar.timegm((year, month, day, hour, minute, second)) - offset) * 1_000_000 + fraction


def _text_at(header: re.Match[str], now: int, utc_offset_seconds: int) -> int | None:
    month, day, hour, minute, second = (int(header[name]) for name in ("month", "day", "hour", "minute", "second"))
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    latest = now // 1_000_000 + 86_400
    this_year = time.gmtime(latest).tm_year
    for year in (this_year, this_year - 1):
        seconds = calendar.timegm((year, month, day, hour, minute, second)) - utc_offset_seconds
        if seconds <= latest:
            return seconds * 1_000_000
    return None
