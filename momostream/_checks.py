"""Checks of settings: a table with one constraint for each parameter, and one form of message for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "Constraint",
    "at_least",
    "check",
    "check_array",
    "check_indices",
    "check_settings",
    "flag",
    "instance_of",
    "names",
    "one_of",
    "optional",
    "positive",
    "whole",
]


class Constraint(NamedTuple):
    """Values that a parameter accepts, as a test and in words."""

    accepts: Callable[[Any], bool]
    use: str


def check(name: str, value: Any, constraint: Constraint) -> None:
    """Raise a ValueError that names the parameter, its value and what to use instead.

    Examples
    --------
    >>> check("horizon", 24, whole(1))
    >>> check("horizon", 0, whole(1))
    Traceback (most recent call last):
    ValueError: horizon=0 is not accepted: use a whole number of at least 1
    """
    if not constraint.accepts(value):
        raise ValueError(f"{name}={value!r} is not accepted: use {constraint.use}")


def check_settings(settings: object, constraints: Mapping[str, Constraint]) -> None:
    """Check the attributes of an object, in the order of the table."""
    for name, constraint in constraints.items():
        check(name, getattr(settings, name), constraint)


def one_of(*values: Any) -> Constraint:
    """One of a few values."""
    return Constraint(lambda value: value in values, f"one of {', '.join(map(repr, values))}")


def whole(least: int, most: int | None = None) -> Constraint:
    """A whole number of Python or numpy; True and False are not numbers."""

    def accepts(value: Any) -> bool:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return is_whole and bool(least <= value) and (most is None or bool(value <= most))

    return Constraint(
        accepts, f"a whole number {f'of at least {least}' if most is None else f'from {least} to {most}'}"
    )


def at_least(least: float) -> Constraint:
    """A finite number of at least this."""
    return Constraint(lambda value: _is_number(value) and least <= value < math.inf, f"a number of at least {least:g}")


def positive(most: float) -> Constraint:
    """A number above 0 and at most this."""
    return Constraint(lambda value: _is_number(value) and 0.0 < value <= most, f"a number above 0 and at most {most:g}")


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def flag() -> Constraint:
    """True or False."""
    return Constraint(lambda value: isinstance(value, bool | np.bool_), "True or False")


def names(*examples: str) -> Constraint:
    """A tuple of different names, at least one."""

    def accepts(value: Any) -> bool:
        are_names = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        return are_names and 0 < len(value) == len(set(value))

    return Constraint(accepts, f"a tuple of different names such as {examples!r}")


def instance_of(kind: type, words: str) -> Constraint:
    """An object of a class."""
    return Constraint(lambda value: isinstance(value, kind), words)


def optional(constraint: Constraint) -> Constraint:
    """The same, or None."""
    return Constraint(lambda value: value is None or constraint.accepts(value), f"{constraint.use}, or None")


def check_array(part: str, value: Any, shape: tuple[int | None, ...], dtype: DTypeLike = np.float64) -> None:
    """Raise a ValueError that names a part of a file unless it is an array of this type and shape; None is any length.

    Compiled code checks neither types nor bounds: arrays that were read are checked before it sees them.

    Examples
    --------
    >>> check_array("rows / X", np.zeros((3, 2)), (None, 2))
    >>> check_array("rows / X", np.zeros((3, 2)), (None, 4))
    Traceback (most recent call last):
    ValueError: rows / X is float64 of shape (3, 2), expected float64 of shape (any, 4)
    """
    expected = f"{np.dtype(dtype)} of shape ({', '.join('any' if n is None else str(n) for n in shape)})"
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{part} is a {type(value).__name__}, expected {expected}")
    fits = len(shape) == value.ndim and all(n in (None, size) for n, size in zip(shape, value.shape, strict=True))
    if value.dtype != np.dtype(dtype) or not fits:
        raise ValueError(f"{part} is {value.dtype} of shape {value.shape}, expected {expected}")


def check_indices(part: str, values: Any, start: int, stop: int) -> None:
    """Raise a ValueError that names a part of a file unless all values are whole numbers from start to before stop.

    Examples
    --------
    >>> check_indices("jobs / tree", [0, 1], 0, 2)
    >>> check_indices("jobs / tree", [0, 7], 0, 2)
    Traceback (most recent call last):
    ValueError: jobs / tree is 7, expected a whole number from 0 to 1
    """
    if isinstance(values, np.ndarray):
        check_array(part, values, (None,), np.int64)
        values = values[(values < start) | (values >= stop)][:1].tolist()
    for value in values:
        if type(value) is not int or not start <= value < stop:
            raise ValueError(f"{part} is {value!r}, expected a whole number from {start} to {stop - 1}")
