"""Limits of targets as people write them: ``power=0:2050``, ``level=0:``, ``direction=0:360:circular``."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Limits", "read_limits"]

Limits = tuple[float | None, float | None] | tuple[float, float, str]


def read_limits(texts: Sequence[str]) -> dict[str, Limits] | str | None:
    """Limits of targets, or one word for all.

    Examples
    --------
    >>> read_limits(["auto"]), read_limits(["none"]), read_limits(["power=0:"])
    ('auto', None, {'power': (0.0, None)})
    >>> read_limits(["none", "power=0:"])
    Traceback (most recent call last):
    ValueError: none stands alone
    """
    texts = [text for text in texts if text != "auto"]
    if "none" in texts:
        if len(texts) > 1:
            raise ValueError("none stands alone")
        return None
    return dict(map(_read, texts)) or "auto"


def _read(text: str) -> tuple[str, Limits]:
    """The target and its limits, None where a side has none; or the range of an angle.

    Examples
    --------
    >>> _read("power=0:2050"), _read("level=-1.5:")
    (('power', (0.0, 2050.0)), ('level', (-1.5, None)))
    >>> _read("direction=0:360:circular")
    ('direction', (0.0, 360.0, 'circular'))
    >>> _read("power=5:1")
    Traceback (most recent call last):
    ValueError: power=5:1: the lower limit must be below the upper one
    """
    name, equals, limits = text.rpartition("=")
    limits, round_mark, kind = limits.partition(":circular")
    low, colon, high = limits.partition(":")
    try:
        ends = [float(end) if end.strip() else None for end in (low, high)]
    except ValueError:
        ends = [None, None]
    has_limits = ends != [None, None] and all(map(math.isfinite, filter(None, ends)))
    if not (name and equals and colon and has_limits) or kind or (round_mark and None in ends):
        raise ValueError(
            f"{text}: expected NAME=LOW:HIGH, such as power=0:2050, power=0: or power=:2050, or for an angle "
            "direction=0:360:circular, or auto, or none"
        )
    if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]:
        raise ValueError(f"{text}: the lower limit must be below the upper one")
    if round_mark and ends[0] is not None and ends[1] is not None:
        return name, (ends[0], ends[1], "circular")
    return name, (ends[0], ends[1])
