"""Numbers and names as they stand in a sentence."""

from collections.abc import Sequence

from lora_watch.recommend.words import percent as percent

SHOWN = 5
"""Names that a sentence lists; the rest is a count."""
LONGEST = 60
"""Characters of a name in a sentence."""
PRELOAD = "one short request for it to the pod loads it, and so does /v1/load_lora_adapter for a name that is new there"
"""How an adapter is preloaded, beside a remedy."""


def span(seconds: float) -> str:
    """
    A length of time in the unit that fits.

    >>> span(0.0034), span(2.5), span(90), span(7200), span(200_000)
    ('3.4 ms', '2.5 s', '90 s', '2 h', '2.31 d')
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.3g} ms"


def count(number: float, one: str, many: str = "") -> str:
    """
    A number with its noun.

    >>> count(1, "slot"), count(1234, "request"), count(2, "pod is", "pods are")
    ('1 slot', '1,234 requests', '2 pods are')
    """
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """
    Names in a sentence, the first few of them; each cut to ``LONGEST`` characters, what cannot be printed escaped.

    >>> listed(["a", "b"]), listed(list("abcdefg"), 3)
    ('a and b', 'a, b, c and 4 more')
    """
    clean = [named(name) for name in names[:shown]]
    if len(names) > shown:
        return f"{', '.join(clean)} and {len(names) - shown} more"
    return " and ".join(filter(None, (", ".join(clean[:-1]), clean[-1]))) if clean else "none"


def named(name: str) -> str:
    """
    One name in a sentence: cut to ``LONGEST`` characters, what cannot be printed escaped, no name at all as two quotes.

    >>> named("legal-v2"), named("two\\nlines"), named("")
    ('legal-v2', 'two\\\\nlines', "''")
    """
    return _clean(name) or "''"


def pattern(names: Sequence[str]) -> str | None:
    """
    What many names have in common, as a glob; None where that is next to nothing.

    >>> pattern(["legal-experiment", "sql-experiment"]), pattern(["tenant-7", "tenant-9"]), pattern(["ab", "cd"])
    ('*-experiment', 'tenant-*', None)
    """
    if len(names) < 2:
        return None
    ending = _start([name[::-1] for name in names])[::-1]
    while ending and ending[0].isalnum():  # a part of a word says nothing
        ending = ending[1:]
    beginning = _start(names)
    while beginning and beginning[-1].isalnum():
        beginning = beginning[:-1]
    if len(ending) >= 3 and len(ending) >= len(beginning):
        return f"*{_clean(ending)}"
    return f"{_clean(beginning)}*" if len(beginning) >= 3 else None


def _start(names: Sequence[str]) -> str:
    """What all names begin with: what the first and the last in order share."""
    first, last = min(names), max(names)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def _clean(text: str) -> str:
    shown = text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode()
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
