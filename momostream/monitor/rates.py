"""Rates of false alarms: a share of rows, or a text such as ``"1 per week"``."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

__all__ = ["Rate"]

SECONDS = {
    "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "month": 30.4375 * 86400.0,
    "year": 365.25 * 86400.0,
}  # fmt: skip
NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
TEXT = re.compile(rf"\s*({NUMBER})\s+per\s+(?:({NUMBER})\s+)?([a-z]+?)s?\s*", re.IGNORECASE)
USE = "a share of rows such as 0.001, or a text such as '1 per week', '2 per day' or '1 per 5000 rows'"


class Rate(NamedTuple):
    """So many ``per_row``, or so many ``per_second``; the other is None.

    Examples
    --------
    >>> Rate.read("1 per 5000 rows")
    Rate(per_row=0.0002, per_second=None)
    >>> Rate.read("2 per day").threshold(step_seconds=60.0)
    2.857...
    >>> Rate.read("often")
    Traceback (most recent call last):
    ValueError: false_alarms='often' is not accepted: use a share of rows such as 0.001, or a text such as ...
    """

    per_row: float | None
    per_second: float | None

    @classmethod
    def read(cls, value: Any) -> Rate:
        """Read the parameter ``false_alarms``."""
        wrong = ValueError(f"false_alarms={value!r} is not accepted: use {USE}")
        if isinstance(value, str):
            found = TEXT.fullmatch(value)
            if found is None:
                raise wrong
            count, several, unit = float(found[1]), float(found[2] or 1.0), found[3].lower()
            if count <= 0.0 or several <= 0.0:
                raise wrong
            if unit == "row":
                value = count / several
            elif unit in SECONDS:
                return cls(None, count / (several * SECONDS[unit]))
        if not isinstance(value, float | int) or isinstance(value, bool) or not 0.0 < value < 1.0:
            raise wrong
        return cls(float(value), None)

    def threshold(self, step_seconds: float | None) -> float:
        """Minus the decimal logarithm of the rate per row; infinite as long as the step between rows is not known."""
        per_row = self.per_row
        if per_row is None:
            assert self.per_second is not None
            if step_seconds is None:
                return math.inf
            per_row = self.per_second * step_seconds
        # Several alarms per row cannot be had: every row that is stranger than most is one then.
        return -math.log10(min(per_row, 0.5))
