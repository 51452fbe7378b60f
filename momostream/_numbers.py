"""Values of a feed as numbers: missing, too large, or not a number."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["LARGEST", "SMALLEST", "USUAL", "as_number", "known_numbers"]

#: Fourth powers of ratios of such numbers to the smallest ones stay finite. No sensor reads more; a broken one may.
LARGEST = 1e30
#: Fourth powers of `LARGEST` in units of this are numbers: targets of a table that are nearer to zero are zero.
SMALLEST = 1e-45

# Types that are numbers for certain; others are checked one by one.
FLOATS = frozenset({float})
USUAL = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})


def as_number(key: Hashable, value: Any) -> float:
    """Return a value as a float, NaN if it is missing.

    Parameters
    ----------
    key : hashable
        Name of the value in errors.
    value : number or None
        Of Python, numpy or the standard library. None, NaN and pandas' NA are missing values.

    Raises
    ------
    TypeError
        For strings, dates, containers, complex numbers: encode them first.
    ValueError
        For infinity and numbers beyond `LARGEST`.

    Examples
    --------
    >>> as_number("wind", 7), as_number("wind", None)
    (7.0, nan)
    >>> as_number("city", "Oslo")
    Traceback (most recent call last):
    TypeError: the value of 'city' is a str, not a number: name it in categories if it is an input, or encode it...
    """
    if type(value) not in USUAL:
        # By name: numbers must not need pandas.
        if value is None or type(value).__name__ == "NAType":
            return math.nan
        # numpy counts durations as integers.
        if not isinstance(value, Real | Decimal) or isinstance(value, np.timedelta64):
            raise TypeError(
                f"the value of {key!r} is a {type(value).__name__}, not a number: name it in categories if it is an "
                "input, or encode it first, for example with river's OneHotEncoder"
            )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if abs(number) > LARGEST:
        words = "infinite" if math.isinf(number) else f"{number:g}"
        raise ValueError(
            f"the value of {key!r} is {words}: use finite numbers up to {LARGEST:g} in size, or None where missing"
        )
    return number


def known_numbers(row: Mapping[Any, Any]) -> dict[Hashable, float]:
    """Return the numbers of a row without missing values.

    Examples
    --------
    >>> known_numbers({"wind": 7, "pitch": None})
    {'wind': 7.0}
    """
    # Plain floats, none of them NaN: a sum of squares compares as false with it.
    if type(row) is dict and FLOATS.issuperset(map(type, row.values())) and math.hypot(*row.values()) <= LARGEST:
        return dict(row)
    numbers = {key: as_number(key, value) for key, value in row.items()}
    return {key: number for key, number in numbers.items() if not math.isnan(number)}
