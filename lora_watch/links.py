"""
Where a reader is sent: the explorer at a window, a pool, a pod and an adapter.

The keys of the explorer's query string stand here and nowhere else: boards and alerts write them, the explorer reads them.
``from`` and ``to`` are milliseconds since 1970 UTC, as Grafana has them; without them, ``last`` (such as ``1h``) is so long up to
where the data end, and ``live=1`` follows that end. The others are names; ``{a,b}`` means both, ``=x`` is the name x whatever it
looks like, and ``.*`` or an absent key means every one.
"""

from collections.abc import Mapping

EXPLORER = "http://127.0.0.1:8501"
"""Where the explorer listens unless told."""
RUNBOOKS = "https://example.org/lora-watch/alerts/runbooks"
"""Where runbooks are served unless told: a page for each alert and kind of finding."""
NAMES = ("cluster", "pool", "role", "pod", "adapter")
"""Keys whose values are names."""
KEYS = ("from", "to", *NAMES, "last", "live")


def explorer(base: str, values: Mapping[str, str]) -> str:
    """
    The address of the explorer at ``base`` showing ``values``: key → what is already safe in a query string, or a placeholder
    of the program that will fill it in. ValueError names a key the explorer does not know.

    >>> explorer("http://127.0.0.1:8501", {"from": "1796000000000", "pod": "vllm-0"})
    'http://127.0.0.1:8501/?from=1796000000000&pod=vllm-0'
    """
    if unknown := sorted(set(values) - set(KEYS)):
        raise ValueError(f"the explorer has no {', '.join(map(repr, unknown))}; it knows {', '.join(KEYS)}")
    return f"{base}/?" + "&".join(f"{key}={values[key]}" for key in KEYS if key in values)
