"""How fast the watched clock runs against Prometheus' own: compressed demos and tests use the same rules."""

from dataclasses import dataclass
from datetime import timedelta

from lora_watch.config import show_duration

SHORTEST = timedelta(seconds=1)
"""Rules are not evaluated more often than this, however fast the watched clock runs."""


@dataclass(frozen=True, slots=True)
class Pace:
    """
    ``time_scale`` seconds of the watched clock pass in one second of Prometheus'; 1 outside of demos.

    Every length of time that Prometheus measures (ranges, offsets, ``for``, intervals) is divided by it, and so is every rate,
    which is then per second of the watched clock: limits, and the seconds in ``exp(-T * rate)``, stay what they are. Counters of
    seconds are taken to count watched seconds. ValueError unless it is at least 1 and finite.
    """

    time_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.time_scale < float("inf"):
            raise ValueError(f"a time scale is 1 or more, got {self.time_scale}")

    def span(self, length: timedelta) -> str:
        """
        A length of watched time as Prometheus writes it, in its own time; never below a millisecond.

        >>> Pace().span(timedelta(minutes=90)), Pace(60).span(timedelta(minutes=10)), Pace(60).span(timedelta(seconds=15))
        ('1h30m', '10s', '250ms')
        """
        return show_duration(max(length / self.time_scale, timedelta(milliseconds=1)))

    def interval(self, length: timedelta) -> str:
        """The same, not below ``SHORTEST``."""
        return show_duration(max(length / self.time_scale, SHORTEST))

    def rate(self, counter: str, length: timedelta) -> str:
        """
        Its rate over a length of watched time, per watched second.

        >>> Pace(60).rate("x_total", timedelta(minutes=10))
        'rate(x_total[10s]) / 60'
        """
        text = f"rate({counter}[{self.span(length)}])"
        return text if self.time_scale == 1 else f"{text} / {self.time_scale:g}"
