"""Colours: one for each adapter, the same on every page and every day; and those that mean something."""

import colorsys
import hashlib
from collections.abc import Sequence

from lora_watch.diagnose.diagnosis import State
from lora_watch.diagnose.finding import Severity
from lora_watch.model import Provenance

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7a5cc2")
"""Eight colours that people with any usual colour vision can tell apart, on white and on black."""
LIGHTNESS = (1.0, 0.78, 1.22)
"""Factors of the lightness of a hue: the second and third adapter of a hue are darker and lighter."""
PALETTE = tuple(
    "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(h, min(lightness * factor, 0.82), s))
    for factor in LIGHTNESS
    for h, lightness, s in (colorsys.rgb_to_hls(*(int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5))) for hue in HUES)
)
"""What adapters are coloured with."""
GREY = "#8a8f98"
"""Of what has no name: the base model, an empty slot, all others."""
STATES = {State.HEALTHY: "#1a9850", State.WATCH: "#d98200", State.HARM: "#d7301f", State.UNKNOWN: "#7a5cc2"}
SEVERITIES = {Severity.HARM: "#d7301f", Severity.WARN: "#d98200", Severity.INFORMATION: "#3182bd"}
PROVENANCES = {
    str(Provenance.OBSERVED): "#1a9850",
    str(Provenance.INFERRED): "#3182bd",
    str(Provenance.ACTIVITY): "#d98200",
    str(Provenance.REGISTRY): GREY,
    str(Provenance.DESIRED): GREY,
}
INFERENCE = "#009e73"
LOADING = "#d55e00"
LINE = "#0072b2"
"""Of a single line, which stands for no adapter."""
LIMIT = "#d7301f"
"""Of the value from which on it is trouble."""


def colour_of(adapter: str | None) -> str:
    """
    The colour of an adapter, ``#rrggbb``: a hash of its name chooses it, so nobody else's coming or going changes it.

    Two of many adapters have the same colour now and then (there are ``len(PALETTE)``): what matters is written beside it.
    """
    if adapter is None:
        return GREY
    digest = hashlib.sha256(adapter.encode("utf-8", "surrogatepass")).digest()
    return PALETTE[int.from_bytes(digest[:4], "big") % len(PALETTE)]


def colours_of(adapters: Sequence[str]) -> dict[str, str]:
    """The colour of each."""
    return {name: colour_of(name) for name in adapters}
