"""
HTML that nothing in it can escape from: text becomes an element only here, and every character that means something is escaped.

Names of adapters are whatever somebody typed. So pages build what they show of these values, never of strings with tags in them.
"""

import html
from collections.abc import Iterable

from lora_watch.explore.colours import GREY, PROVENANCES

VOID = frozenset({"br", "hr", "img", "meta"})
LONGEST = 200
"""Characters of one name in a page; the whole of it stands in its title and in tables."""

MEANINGS = {
    "observed": "the agent, residency gauges or engine logs said so",
    "inferred": "worked out from what was used, under the engine's policy",
    "activity": "only requests in flight were seen: a lower bound",
    "registry": "the list of served names",
    "desired": "what a configuration asks for",
}
"""What each provenance means, for who rests the pointer on it."""


class Markup(str):
    """Text that is HTML already. Only this module makes it of anything else than a constant."""

    __slots__ = ()


def tag(name: str, *inside: "str | Markup | Iterable[str | Markup]", **attributes: str | float | None) -> Markup:
    """
    An element: text in it is escaped, ``Markup`` is not; attributes that are None are left out, ``class_`` is ``class`` and an
    underscore a hyphen.

    >>> tag("b", "<i>", class_="x")
    '<b class="x">&lt;i&gt;</b>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(shown(str(value)), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{told}>" if name in VOID else f"<{name}{told}>{together(*inside)}</{name}>")


def together(*parts: "str | Markup | Iterable[str | Markup]") -> Markup:
    """Parts behind one another, text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else _text(part) for part in parts))


def name(text: str) -> Markup:
    """A name as an element that can be selected, whole in its title where it is cut."""
    clean = shown(text)
    cut = clean if len(clean) <= LONGEST else f"{clean[: LONGEST - 1]}…"
    return tag("span", cut or "''", class_="lw-name", title=clean[:2000] if cut != clean else None)


def badge(provenance: str | None) -> Markup:
    """How a number is known, as a small word in its colour; nothing where it is not known at all."""
    if not provenance:
        return Markup("")
    colour = PROVENANCES.get(provenance, GREY)
    return tag("span", provenance, class_="lw-badge", style=f"color:{colour}", title=MEANINGS.get(provenance))


def shown(text: str) -> str:
    """
    The text with what cannot be printed escaped: no line ends, no reversed writing, no half characters.

    >>> shown("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii") for char in text
    )


def _text(part: "str | Iterable[str | Markup]") -> str:
    return html.escape(shown(part), quote=False) if isinstance(part, str) else together(*part)
