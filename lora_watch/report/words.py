"""Numbers as the report writes them: one form each, so that a column of them can be read down."""

from datetime import UTC, datetime, timedelta

from lora_watch.diagnose.words import percent, span
from lora_watch.model import SECOND

UNKNOWN = "unknown"
MINUS = "−"


def big(number: float) -> str:
    """
    A count that is read at a glance.

    >>> big(950), big(12_345), big(3_183_340), big(2_500_000_000)
    ('950', '12,345', '3.18 M', '2,500 M')
    """
    if number < 1_000_000:
        return f"{number:,.0f}"
    millions = number / 1e6
    return f"{millions:,.0f} M" if millions >= 100 else f"{millions:.3g} M"


def hours(number: float) -> str:
    """
    GPU hours.

    >>> hours(0.0), hours(0.004), hours(1.234), hours(32.17), hours(1234.4)
    ('0', '< 0.01', '1.23', '32.2', '1,234')
    """
    if number == 0:
        return "0"
    if number < 0.01:
        return "< 0.01"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def money(amount: float | None, currency: str | None) -> str:
    """
    An amount with what it is in.

    >>> money(80.4, "USD"), money(1234.6, "EUR"), money(None, None)
    ('80.40 USD', '1,235 EUR', 'no price set')
    """
    if amount is None:
        return "no price set"
    return f"{amount:,.2f} {currency or ''}".rstrip() if amount < 1000 else f"{amount:,.0f} {currency or ''}".rstrip()


def ratio(value: float | None) -> str:
    """A share in percent; unknown says so."""
    return UNKNOWN if value is None else percent(value)


def change(value: float | None) -> str:
    """
    A share of something that is gone, as what becomes of it.

    >>> change(0.58), change(-0.031), change(0.0), change(None)
    ('−58 %', '+3.1 %', '±0 %', 'unknown')
    """
    if value is None:
        return UNKNOWN
    if abs(value) < 0.0005:
        return "±0 %"
    return f"{MINUS if value > 0 else '+'}{percent(abs(value))}"


def interval(low: float | None, high: float | None) -> str:
    """
    The bounds of such a share, the larger gain last.

    >>> interval(0.52, 0.63), interval(-0.02, 0.1), interval(None, 0.1)
    ('−52 % … −63 %', '+2.0 % … −10 %', '')
    """
    return "" if low is None or high is None else f"{change(low)} … {change(high)}"


def seconds(value: float | None) -> str:
    """A length of time; unknown says so."""
    return UNKNOWN if value is None else f"{MINUS}{span(-value)}" if value < 0 else span(value)


def lasted(value: float) -> str:
    """
    A length of time in hours and minutes.

    >>> lasted(40), lasted(1500), lasted(14_940), lasted(200_000)
    ('40 s', '25 min', '4 h 09 min', '2 d 7 h')
    """
    if value < 60:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 2 * 1440:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def when(at: int) -> str:
    """
    A moment with its day of the week, UTC.

    >>> when(1_772_705_700_000_000)
    'Thu 5 Mar 10:15'
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at // SECOND)
    return f"{moment:%a} {moment.day} {moment:%b %H:%M}"
