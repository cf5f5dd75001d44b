"""
The one parser of the text exposition: Prometheus text 0.0.4 and OpenMetrics, in pieces as they arrive, only the names that are
wanted.

A line is picked by name in one pass over the bytes; only what was picked goes through prometheus_client's parser, line by line,
so that a page of 50 MB costs little and one bad line costs itself. Explicit time stamps and exemplars are ignored: a scrape has
one time.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO

from prometheus_client.parser import text_fd_to_metric_families

from lora_watch.errors import SourceUnavailable
from lora_watch.sources.base import MAX_PROBLEMS, printable

_MAX_LINE_BYTES = 4 << 20
_MAX_WORK = 2_000_000_000
"""
Bytes that prometheus_client may copy for one page: it copies a label value once per escaped quote in it, so a hostile value costs
length × quotes. Two names of 10,000 quotes cost 0.8e9 (about 0.1 s); an honest page costs nothing.
"""
_LABELLED = rb"[a-zA-Z_:][a-zA-Z0-9_:]*[{ \t]"


@dataclass(frozen=True, slots=True)
class Sample:
    """
    One sample of a page: full name (with ``_total``, ``_bucket``, …), labels unescaped, value (NaN and infinities as they are).
    """

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What a page said of the wanted names, in its order, and what in it could not be read."""

    samples: tuple[Sample, ...]
    problems: tuple[str, ...] = ()


def parse_page(
    chunks: Iterable[bytes],
    wanted: Collection[str],
    *,
    newest: Mapping[str, Callable[[float], float | None]] | None = None,
    content_type: str = "",
) -> Page:
    """
    The samples named in ``wanted``, of a page that comes in ``chunks``.

    ``newest`` names families whose value is a time stamp and of which only the latest series counts: the function turns a value
    into its time, or None if it is none; only the sample with the greatest time is parsed and returned, however many there are.

    A wanted line that does not parse, a line that is no sample at all and the second sample of one series are one problem each
    (past MAX_PROBLEMS counted together); the rest is kept. A page without its final newline, or OpenMetrics without ``# EOF``,
    was cut in the middle and is refused whole: SourceUnavailable. An empty page has no samples.

    >>> parse_page([b'a{x="1"} 2\\nb 3\\n'], {"a"}).samples
    (Sample(name='a', labels={'x': '1'}, value=2.0),)
    """
    reader = _Reader(wanted, newest or {})
    rest = b""
    for chunk in chunks:
        block = rest + chunk if rest else chunk
        whole, newline, rest = block.rpartition(b"\n")
        if newline:
            reader.read(whole + newline)
        elif len(rest) > _MAX_LINE_BYTES:
            raise SourceUnavailable(f"the page has a line of more than {_MAX_LINE_BYTES} bytes and was given up")
    if rest == b"# EOF":
        reader.read(rest + b"\n")
    elif rest:
        raise SourceUnavailable(
            f"the page ends in the middle of a line ({printable(_text(rest[-40:]))}): cut off, and refused whole"
        )
    if "openmetrics" in content_type.lower() and not reader.ended:
        raise SourceUnavailable("the OpenMetrics page has no '# EOF' at its end: cut off, and refused whole")
    return reader.page()


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


class _Reader:
    """Collects the samples of a page from blocks of whole lines."""

    def __init__(self, wanted: Collection[str], newest: Mapping[str, Callable[[float], float | None]]) -> None:
        names = b"|".join(re.escape(name.encode()) for name in sorted(wanted, reverse=True)) or rb"(?!)"
        # Either a wanted sample, or a line that is neither comment, blank nor a sample (in braces: a quoted name, not ours).
        self._pick = re.compile(
            rb"^[ \t]*+(?:(?P<wanted>" + names + rb")(?=[{ \t])[^\n]*"
            rb"|(?P<bad>(?!#|" + _LABELLED + rb"|\{\"|[ \t\r]*$)[^\n]+))$",
            re.MULTILINE,
        )
        self._newest = {name.encode(): time_of for name, time_of in newest.items()}
        self._latest: dict[bytes, tuple[float, bytes]] = {}
        self._samples: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
        self._problems: list[str] = []
        self._more = 0
        self._no_times: dict[bytes, int] = {}
        self._work = 0
        self.ended = False

    def read(self, block: bytes) -> None:
        """Take in whole lines."""
        for match in self._pick.finditer(block):
            line = match[0]
            if match["bad"] is not None:
                self._problem(f"not a sample: {printable(_text(line[:200]))}")
            elif match["wanted"] in self._newest:
                self._consider(match["wanted"], line)
            else:
                self._add(line)
        self.ended = block.endswith(b"# EOF\n")

    def page(self) -> Page:
        """All that was read."""
        for _, line in self._latest.values():
            self._add(line)
        for name, count in self._no_times.items():
            self._problem(f"{name.decode()}: {count} values are no time stamps near ours; is the pod's clock right?")
        more = (f"{self._more} more lines could not be read",) if self._more else ()
        return Page(tuple(self._samples.values()), (*self._problems, *more))

    def _consider(self, name: bytes, line: bytes) -> None:
        """Keep the line if its time is the latest of its family so far; read nothing of it but the value."""
        head, brace, tail = line.rpartition(b"}")
        words = (tail if brace else head or tail).split()
        try:
            time = self._newest[name](float(words[0 if brace else 1]))
        except (ValueError, IndexError):
            self._problem(f"not a sample: {printable(_text(line[:200]))}")
            return
        if time is None:
            self._no_times[name] = self._no_times.get(name, 0) + 1
        elif name not in self._latest or time >= self._latest[name][0]:
            self._latest[name] = (time, line)

    def _add(self, line: bytes) -> None:
        work = self._work + len(line) * line.count(b'\\"')
        if work > _MAX_WORK or len(line) > _MAX_LINE_BYTES:
            self._problem(f"labels too long to be read: {printable(_text(line[:200]))}")
            return
        self._work = work
        try:
            samples = [sample for family in text_fd_to_metric_families(StringIO(_text(line))) for sample in family.samples]
            sample = Sample(samples[0].name, samples[0].labels, float(samples[0].value))
        except (ValueError, IndexError, OverflowError):
            self._problem(f"cannot be parsed: {printable(_text(line[:200]))}")
            return
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if key in self._samples:
            self._problem(f"the same series twice, the first one counts: {printable(_text(line[:200]))}")
            return
        self._samples[key] = sample

    def _problem(self, text: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(text)
        else:
            self._more += 1
