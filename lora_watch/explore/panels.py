"""A diagnosis as HTML: the state of each pool with its margins, a card for each finding, what can't be told."""

from collections.abc import Iterable, Sequence

from lora_watch.diagnose.diagnosis import Gap, PoolState, State
from lora_watch.diagnose.finding import Finding, Possible, Remedy
from lora_watch.diagnose.words import listed, named
from lora_watch.explore.cards import effect
from lora_watch.explore.colours import SEVERITIES, STATES
from lora_watch.explore.markup import Markup, badge, tag, together
from lora_watch.explore.view import moment

WORDS = {State.HEALTHY: "healthy", State.WATCH: "watch", State.HARM: "harm", State.UNKNOWN: "unknown"}
LONGEST_METHOD = 40
"""Characters of a method that stand in a line; the rest where the pointer rests."""


def pool_title(cluster: str | None, pool: str | None, role: str | None) -> str:
    """What a pool is called."""
    return " / ".join(named(part) for part in (cluster, pool, role) if part) or "pool"


def state(pool: PoolState) -> Markup:
    """One word and one sentence about a pool, and its margins folded below."""
    return tag(
        "div",
        tag(
            "div",
            tag("span", WORDS[pool.state], class_="lw-state", style=f"background:{STATES[pool.state]}"),
            tag("span", prose(pool.sentence)),
            class_="lw-pool-head",
        ),
        _margins(pool),
        class_="lw-pool",
    )


def finding(told: Finding, end: int, note: str = "") -> Markup:
    """A card: what, since when, why, by which evidence, what to do with its predicted effect, what not, what is unknown."""
    colour = SEVERITIES[told.severity]
    head = tag(
        "div",
        tag("span", str(told.severity), class_="lw-state", style=f"background:{colour}"),
        tag("span", told.kind, class_="lw-kind"),
        tag("span", " · ".join(filter(None, (since(told, end), note))), class_="lw-when"),
        tag("span", f"{told.confidence} confidence", class_="lw-when"),
        badge(told.provenance),
        class_="lw-card-head",
    )
    return tag(
        "div",
        head,
        tag("div", prose(told.summary), class_="lw-summary"),
        tag("div", prose(told.cause), class_="lw-cause"),
        tag("div", _seen(told), _remedies(told.remedies), class_="lw-card-body"),
        _list("What not to do", told.avoid, "lw-avoid"),
        _list("Unknown", told.unknown, "lw-unknown"),
        class_="lw-card",
        style=f"border-left-color:{colour}",
    )


def since(told: Finding, end: int) -> str:
    """Its span; of what is so at the end of the window, and nobody knows since when: as of then."""
    if told.until is not None:
        return f"{moment(told.since)} … {moment(told.until)} UTC"
    return f"{'as of' if told.since >= end else 'since'} {moment(told.since)} UTC"


def prose(text: str) -> Markup:
    """A sentence in which what stands between backticks is code, as in a terminal; nothing else in it means anything."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one without its partner
        return together(text)
    return together(*(tag("code", part) if at % 2 else part for at, part in enumerate(parts)))


def gaps(found: Sequence[Gap]) -> Markup:
    """What can't be told, why, and what would tell it."""
    rows = [
        tag(
            "tr",
            tag("td", f"{gap.what} ({listed(gap.pods, 3)})" if gap.pods else gap.what),
            tag("td", gap.why),
            tag("td", prose(gap.how)),
        )
        for gap in found
    ]
    head = tag("tr", (tag("th", text) for text in ("not known", "since", "what would tell it")))
    return tag("table", head, rows, class_="lw-table")


def _margins(pool: PoolState) -> Markup:
    known = [margin for margin in pool.margins if margin.value is not None]
    rows = [
        tag(
            "tr",
            tag("td", margin.text),
            tag("td", margin.over),
            tag("td", margin.trouble),
            tag("td", badge(margin.provenance), " ", _method(margin.method)),
        )
        for margin in known
    ]
    unknown = [
        tag("li", margin.text.removesuffix(": unknown"), f": unknown, since {margin.why}")
        for margin in pool.margins
        if margin.value is None
    ]
    if not rows and not unknown:
        return Markup("")
    table = tag("table", rows, class_="lw-table") if rows else Markup("")
    below = tag("ul", unknown, class_="lw-unknown") if unknown else Markup("")
    return tag("details", tag("summary", "Margins: how far each number is from trouble"), table, below, class_="lw-fold")


def _method(method: str) -> Markup:
    short = method.partition(": ")[0] if len(method) > LONGEST_METHOD else method
    return tag("span", short, class_="lw-method", title=method if short != method else None) if method else Markup("")


def _seen(told: Finding) -> Markup:
    lines = [tag("li", prose(one.text), " ", badge(one.provenance), " ", _method(one.method)) for one in told.evidence]
    return tag("div", tag("h5", "Evidence"), tag("ul", lines)) if lines else Markup("")


def _remedies(remedies: Iterable[Remedy]) -> Markup:
    lines = [_remedy(one) for one in remedies]
    return tag("div", tag("h5", "What to do, what helps most first"), tag("ol", lines)) if lines else Markup("")


def _remedy(one: Remedy) -> Markup:
    takes = one.possible.takes if one.possible is not Possible.NOW else "can be done now"
    told = [tag("div", prose(one.text), class_="lw-remedy")]
    if one.effect is not None:
        share = min(abs(one.effect), 1.0)
        worse = " lw-worse" if one.effect < 0 else ""
        told.append(
            tag(
                "div",
                tag("div", tag("div", class_=f"lw-effect-bar{worse}", style=f"width:{100 * share:.0f}%"), class_="lw-effect"),
                tag("span", effect(one)),
                class_="lw-effect-row",
            )
        )
    rest = " · ".join(filter(None, (takes, one.why)))
    told.append(tag("div", rest, " " if one.method else "", _method(one.method), class_="lw-takes"))
    return tag("li", told, class_="lw-not-here" if one.possible is Possible.NOT_HERE else None)


def _list(title: str, lines: Sequence[str], kind: str) -> Markup:
    if not lines:
        return Markup("")
    return tag("div", tag("h5", title), tag("ul", (tag("li", prose(line)) for line in lines)), class_=kind)
