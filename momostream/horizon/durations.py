"""Spans of time as people write and say them: ``"6h"``, "6 hours"."""

from __future__ import annotations

import math
import re

__all__ = ["duration_words", "n_steps_of", "parse_duration", "spoken_steps"]

# Microseconds.
SECOND = 1e6
UNITS = {"second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND, "day": 86400 * SECOND, "week": 604800 * SECOND}
_SHORT = {
    "s": "second", "sec": "second", "secs": "second", "min": "minute", "mins": "minute", "m": "minute", "t": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week",
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([a-zA-Z]+)\s*")
# A span this little above a whole number of steps counts as that number.
NEAR = 0.04


def parse_duration(text: str) -> float:
    """Read a span such as ``"6h"``, ``"90 min"``, ``"1d 12h"`` or ``"2 weeks"``, in microseconds.

    Examples
    --------
    >>> parse_duration("1h 30min") / 60e6, parse_duration("2 days") / 3600e6
    (90.0, 48.0)
    >>> parse_duration("soon")
    Traceback (most recent call last):
    ValueError: 'soon' is not a span of time: write a number and a unit (s, min, h, d, w), for example '6h'
    """
    total, at = 0.0, 0
    while at < len(text):
        found = _PART.match(text, at)
        unit = None if found is None else _unit(found[2])
        if found is None or unit is None:
            total = 0.0
            break
        total += float(found[1] or 1) * UNITS[unit]
        at = found.end()
    if not total > 0.0:
        raise ValueError(
            f"{text!r} is not a span of time: write a number and a unit (s, min, h, d, w), for example '6h'"
        )
    return total


def _unit(word: str) -> str | None:
    short = word.lower()
    return _SHORT.get(short) or next((unit for unit in UNITS if short in (unit, unit + "s")), None)


def n_steps_of(text: str, step: float) -> int:
    """Steps of a feed, one each ``step`` microseconds, that cover a span.

    Examples
    --------
    >>> n_steps_of("6h", 600e6), n_steps_of("1h", 2400e6), n_steps_of("1h", 3599e6)
    (36, 2, 1)
    """
    return max(1, math.ceil(parse_duration(text) / step - NEAR))


def duration_words(span: float) -> str:
    """A span in the largest unit that says it in a short number.

    Examples
    --------
    >>> duration_words(6 * 3600e6), duration_words(600e6), duration_words(5400e6), duration_words(86400e6)
    ('6 hours', '10 minutes', '1.5 hours', '1 day')
    """
    for unit in ("week", "day", "hour", "minute", "second"):
        n = span / UNITS[unit]
        if n >= 1.0 and (abs(2.0 * n - round(2.0 * n)) < NEAR or unit == "second"):
            text = f"{round(2.0 * n) / 2.0:g}"
            return f"{text} {unit}" if text == "1" else f"{text} {unit}s"
    return f"{span / SECOND:g} seconds"


def spoken_steps(n: int, step: float | None) -> str:
    """How far ahead ``n`` steps are: "6 hours", or "36 steps" if the step of the feed is not a span of time.

    Examples
    --------
    >>> spoken_steps(36, 600e6), spoken_steps(1, None), spoken_steps(3, None)
    ('6 hours', '1 step', '3 steps')
    """
    if step is not None:
        return duration_words(n * step)
    return "1 step" if n == 1 else f"{n} steps"
