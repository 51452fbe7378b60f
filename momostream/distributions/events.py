"""Conditions on the series of a forecast as people write them, such as ``"power < 200 and wind >= 4"``."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clause", "holds", "read_condition"]

Array = NDArray[np.float64]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CLAUSE = re.compile(
    rf"^(?:(?P<first>{_NUMBER})\s*(?P<before><=?|>=?)\s*)?(?P<name>.+?)(?:\s*(?P<after><=?|>=?)\s*(?P<last>{_NUMBER}))?$"
)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Clause(NamedTuple):
    """A series inside an interval; both ends belong to it."""

    column: int
    lower: float
    upper: float


def read_condition(condition: str, series: Sequence[Hashable]) -> list[list[Clause]]:
    """Read a condition: the outer list is joined by "or", each inner one by "and".

    Examples
    --------
    >>> for part in read_condition("power >= 200 and wind <= 5 or 20 <= wind <= 30", ["power", "wind"]):
    ...     print(part)
    [Clause(column=0, lower=200.0, upper=inf), Clause(column=1, lower=-inf, upper=5.0)]
    [Clause(column=1, lower=20.0, upper=30.0)]
    """
    return [
        [_read_clause(clause.strip(), condition, series) for clause in re.split(r"\s+and\s+", part)]
        for part in re.split(r"\s+or\s+", condition)
    ]


def _read_clause(text: str, condition: str, series: Sequence[Hashable]) -> Clause:
    found = _CLAUSE.match(text)
    if found is None or not (found["before"] or found["after"]):
        raise ValueError(
            f"{text!r} in the condition {condition!r} is not a comparison: write a series, < <= > or >= and a number"
        )
    names = [str(name) for name in series]
    if names.count(found["name"]) != 1:
        raise ValueError(
            f"unknown series {found['name']!r} in the condition {condition!r}; the series are {', '.join(names)}"
        )
    lower, upper = -math.inf, math.inf
    for sign, number in ((_TURNED.get(found["before"] or ""), found["first"]), (found["after"], found["last"])):
        if sign is None:
            continue
        value = float(number)
        # Strictly below a number is at most the float before it, which matters where a bound has a probability.
        if sign in ("<", "<="):
            upper = min(upper, value if sign == "<=" else float(np.nextafter(value, -np.inf)))
        else:
            lower = max(lower, value if sign == ">=" else float(np.nextafter(value, np.inf)))
    return Clause(names.index(found["name"]), lower, upper)


def holds(condition: Sequence[Sequence[Clause]], values: Array) -> NDArray[np.bool_]:
    """Whether a condition holds for values of shape ``(..., n_series)``."""
    met = np.zeros(values.shape[:-1], dtype=np.bool_)
    for part in condition:
        all_of_it = np.ones(values.shape[:-1], dtype=np.bool_)
        for column, lower, upper in part:
            all_of_it &= (values[..., column] >= lower) & (values[..., column] <= upper)
        met |= all_of_it
    return met
