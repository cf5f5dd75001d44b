"""What several panels say in the same words: provenance, colours, legends."""

from lora_watch.boards.panel import Choice, Step

RECORDED = (
    "recorded by the rules over ten minutes: the exporter's figure where it is scraped (as well known as the worst of what it "
    "was "
    "made from), else from what agents, engines and router count (observed)."
)
EXPORTED = "derived by the service over the last hour; the label provenance says how well it is known, the worst of its parts."
AGENT = "counted by the agent inside the engine (observed)."
ENGINE = "the engine's own metrics (observed)."
ROUTED = "per-adapter counts of the router (observed); absent where there is none."
WATCHED = "the service about itself."

POOL = "{{cluster}} {{pool}} {{role}}"
"""The legend of a pool's line."""
POD = "{{pod}}"

GREEN, YELLOW, RED, BLUE = "green", "orange", "red", "blue"
HEALTHY = (("0", Choice("healthy", GREEN)), ("1", Choice("warning", YELLOW)), ("2", Choice("harm", RED)))
RESIDENT = (("1", Choice("resident", BLUE)),)


def rising(warn: float, harm: float | None = None) -> tuple[Step, ...]:
    """Colours of a figure that is worse when it is greater."""
    steps = (Step(None, GREEN), Step(warn, YELLOW))
    return steps if harm is None else (*steps, Step(harm, RED))


def falling(harm: float, warn: float) -> tuple[Step, ...]:
    """Colours of a figure that is worse when it is smaller."""
    return (Step(None, RED), Step(harm, YELLOW), Step(warn, GREEN))
