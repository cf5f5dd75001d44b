"""Where figures change their colour: at the limits of alerts and findings, which say why, and at nothing else."""

from lora_watch.boards.panel import Choice, Step
from lora_watch.derive.kv_pressure import TIERS
from lora_watch.derive.residency import SHORT_SECONDS
from lora_watch.derive.warning import LIMITS
from lora_watch.diagnose.finding import Severity
from lora_watch.rules.thresholds import LAG_SECONDS, LOST, NEWMASS, OVER_SLOTS, PREDICTED, RHO_PEAK

GREEN, YELLOW, RED, BLUE = "green", "orange", "red", "blue"


def rising(warn: float, harm: float | None = None) -> tuple[Step, ...]:
    """Of a figure that is worse when it is greater."""
    steps = (Step(None, GREEN), Step(warn, YELLOW))
    return steps if harm is None else (*steps, Step(harm, RED))


RHO = rising(LIMITS["rho_peak"].leave, RHO_PEAK.value)
MISSES = rising(PREDICTED.value)
NEW = rising(NEWMASS.value)
SLOTS = rising(OVER_SLOTS.value)
KV = rising(TIERS[0], TIERS[-1])
LAG = rising(LAG_SECONDS.value)
GONE = rising(LOST.value + 1)
"""Of counts that should be 0."""
STAY = (Step(None, RED), *(Step(seconds, colour) for (_, seconds), colour in zip(SHORT_SECONDS, (YELLOW, GREEN), strict=True)))
"""The two lengths under which stays are counted as short."""
STATE = rising(1, 2)

HEALTHY = (("0", Choice("healthy", GREEN)), ("1", Choice("warning", YELLOW)), ("2", Choice("harm", RED)))
SEVERITIES = tuple(
    (str(severity.rank), Choice(str(severity), colour)) for severity, colour in zip(Severity, (BLUE, YELLOW, RED), strict=True)
)
"""The number that stands for a severity, so that a table can be sorted by it."""
RESIDENT = (("1", Choice("resident", BLUE)),)
