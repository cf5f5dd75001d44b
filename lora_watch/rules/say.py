"""Pieces of annotations: numbers and names as Prometheus' templates look them up when an alert is evaluated."""

from lora_watch import names

BY_POOL = ("cluster", "pool", "role")
FIRST = 3
"""Adapters that are named."""
LONGEST = 60
"""Characters of a name that are shown; names are the users' and may be of any length."""


def chosen(series: str, by: tuple[str, ...] = BY_POOL, **labels: str) -> str:
    """
    A template's pipeline that yields a selector for the alert's own labels; whatever they hold, they are quoted.

    >>> chosen("x", ("pool",))
    'printf "x{pool=%q}" $labels.pool'
    """
    matchers = [*(f"{name}=%q" for name in by), *(f"{name}={_quoted(value)}" for name, value in labels.items())]
    arguments = "".join(f" $labels.{name}" for name in by)
    return f'printf "{series}{{{",".join(matchers)}}}"{arguments}' if matchers else f'"{series}"'


def percent(series: str, by: tuple[str, ...] = BY_POOL) -> str:
    """The value of a recorded series, as a whole percentage."""
    return _shown(f"100 * {series}", 'printf "%.0f %%"', by)


def number(series: str, digits: int, by: tuple[str, ...] = BY_POOL) -> str:
    """The value of a recorded series with so many digits behind the point."""
    return _shown(series, f'printf "%.{digits}f"', by)


def count(series: str, by: tuple[str, ...] = BY_POOL) -> str:
    """The value of a recorded series that counts something."""
    return _shown(series, "humanize", by)


def length(series: str, by: tuple[str, ...] = BY_POOL) -> str:
    """The value of a recorded series in seconds, as people say it."""
    return _shown(series, "humanizeDuration", by)


def top(count: int = FIRST) -> str:
    """The pool's busiest adapters with their rates, the busiest first; `unknown` without a router."""
    matchers = ",".join(f"{name}=%q" for name in BY_POOL)
    arguments = "".join(f" $labels.{name}" for name in BY_POOL)
    query = f'printf "topk({count}, {names.ADAPTER_REQUESTS_RECORD}{{{matchers}}})"{arguments} | query'
    plain = f'reReplaceAll "[[:cntrl:]]+" " " | reReplaceAll "^(.{{{LONGEST}}}).+$" "$1…"'
    each = f'{{{{ if $i }}}}, {{{{ end }}}}{{{{ $one.Labels.adapter | {plain} }}}} {{{{ $one.Value | printf "%.2f" }}}}/s'
    return f"{{{{ with {query} }}}}{{{{ range $i, $one := . }}}}{each}{{{{ end }}}}{{{{ else }}}}unknown{{{{ end }}}}"


def finding(kinds: tuple[str, ...], *labels: str) -> str:
    """
    Labels of the pool's open finding of the first of these kinds that there is, one sentence after the other: words of the
    service, as fresh as its last look. Nothing where none is open.
    """
    arguments = "".join(f" $labels.{name}" for name in BY_POOL)
    matchers = ",".join(f"{name}=%q" for name in BY_POOL)
    first = f'{{{{ . | first | label "{labels[0]}" }}}}'
    said = first + "".join(f'{{{{ with . | first | label "{label}" }}}}. {{{{ . }}}}{{{{ end }}}}' for label in labels[1:])
    text = ""
    for kind in reversed(kinds):
        query = f'printf "{names.FINDING_INFO}{{kind=\\"{kind}\\",{matchers}}}"{arguments} | query | sortByLabel "finding"'
        text = f"{{{{ with {query} }}}}{said}{{{{ else }}}}{text}{{{{ end }}}}"
    return text


def _shown(series: str, function: str, by: tuple[str, ...]) -> str:
    """Of the alert's own labels, through a function of the template; `unknown` where there is no sample."""
    return (
        f"{{{{ with {chosen(series, by)} | query }}}}{{{{ . | first | value | {function} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
    )


def _quoted(value: str) -> str:
    return f'\\"{value}\\"'
