"""Every limit of every alert and why it is what it is; those that findings have too are the same numbers."""

from dataclasses import dataclass
from datetime import timedelta

from lora_watch.derive.hysteresis import Limits
from lora_watch.derive.slow_loads import FEWEST, FLAGGED_RATIO, FLAGGED_SECONDS
from lora_watch.derive.warning import LIMITS, SPAN
from lora_watch.diagnose.new_adapters import LEAST_MISSES
from lora_watch.diagnose.saturation import LOADS_SHARE
from lora_watch.diagnose.thrash import HARM_SHARE
from lora_watch.model import SECOND


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit, and why it is there."""

    value: float
    reason: str


SETTLES = timedelta(minutes=1)
"""No alert waits less: two looks at everything, at the usual 15 to 30 s."""
LASTS = timedelta(minutes=10)
"""Rates are over ten minutes, so what is over is over only then."""

RHO_PEAK = Threshold(LIMITS["rho_peak"].enter, "below it no queue stood in any simulated minute, above it in two of three")
LOADING_HARM = Threshold(HARM_SHARE, "a third of a pod's time in loads: requests take half as long again, at any rate")
LOADING_CAUSES = Threshold(
    LOADS_SHARE, "from here it is loads that make requests long, so that more adapters are in flight than slots"
)
LOADING_HIDDEN = Threshold(0.2, "a fifth of the time in loads is more than any batch of prompts explains")
GPU_BUSY = Threshold(0.7, "what a person, or an autoscaler at its usual 80 %, takes for a pod that works")
INFERENCE_LOW = Threshold(0.5, "less than half of the time in inference while the GPU reads busy: the dashboard is wrong by half")
IN_FLIGHT = Threshold(
    LIMITS["hard_cliff"].enter, "adapters in flight can't be evicted: with the last slot taken the next one waits"
)
NEWMASS = Threshold(LIMITS["newmass"].enter, "fewer requests are somebody trying something")
OVER_SLOTS = Threshold(1.0, "up to here every adapter in use has a slot, however many are new")
PREDICTED = Threshold(
    LIMITS["predicted_miss_ratio"].enter, "a fifth of requests: the least that hurts, and the most that no pool should live with"
)
SLOWDOWN = Threshold(FLAGGED_RATIO, "five times the usual: no noise of a mean over ten minutes")
SLOW_SECONDS = Threshold(FLAGGED_SECONDS, "a load that takes 6 ms instead of 2 is nobody's trouble")
LOADS_COLD = Threshold(0.95, "with a CPU cache some loads come from it; without one, none but those that come twice at once")
LOADS_MANY = Threshold(FEWEST / (SPAN / SECOND), "fewer than five loads in ten minutes say nothing of where loads come from")
MISSES_MATTER = Threshold(LEAST_MISSES, "more adapters than slots is no trouble where hardly a request misses")
PHANTOMS = Threshold(0, "a slot whose adapter nobody can ask for")
BLIND_PODS = Threshold(0, "a pod that serves requests and tells nothing of its slots")
SILENT = Threshold(0, "1 where nothing is told at all")
LAG_SECONDS = Threshold(120, "eight looks at the usual 15 s: what is shown is not what is")
LOOKS = Threshold(1, "ten looks are due in ten minutes at the usual interval, three at the longest there can be")
LOOKS_OFTEN = Threshold(1.5, "two looks in ten minutes: what they measured is of now, and about what agents tell")
LOST = Threshold(0, "every figure is too low by what was lost")


def holding(limits: Limits) -> tuple[timedelta, timedelta]:
    """``for`` and ``keep_firing_for`` of limits with hysteresis: the first never below ``SETTLES``."""
    return max(timedelta(microseconds=limits.for_), SETTLES), timedelta(microseconds=limits.keep)
