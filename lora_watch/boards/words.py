"""What several panels say in the same words: provenance and legends."""

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
