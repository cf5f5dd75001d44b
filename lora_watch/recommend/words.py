"""Shares as every part of the product writes them."""


def percent(ratio: float) -> str:
    """
    A ratio in percent, with a digit behind the point below ten. What would be told as less than nothing by rounding is 0.

    >>> percent(0.42), percent(0.034), percent(1.0), percent(0.0999), percent(-0.0002)
    ('42 %', '3.4 %', '100 %', '10 %', '0 %')
    """
    value = round(100 * ratio, 1)
    if abs(value) >= 10:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value or ratio > 0 else "0 %"
