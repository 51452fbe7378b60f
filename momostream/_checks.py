"""Checks of settings and states: a table with one constraint for each entry, and one form of message for all of them.

A state is what was read from a file or a store. A checksum shows that a file is what somebody wrote, not that this
package wrote it, and compiled code checks no bounds: everything that is used as an index, a count, a shape or a type is
checked against the arrays that it points into, before anything of that size is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "MOST_ROWS",
    "Constraint",
    "Shape",
    "Table",
    "at_least",
    "check",
    "check_array",
    "check_finite",
    "check_indices",
    "check_settings",
    "check_state",
    "check_whole",
    "count",
    "field_name",
    "flag",
    "instance_of",
    "like",
    "names",
    "number",
    "one_of",
    "optional",
    "positive",
    "whole",
]

# Numbers of rows stay below this, so that sums of two of them are whole numbers of 64 bits.
MOST_ROWS = 1 << 62


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


def field_name() -> Constraint:
    """The name of a field of a row: anything that a dict takes as a key, except None."""

    def accepts(value: Any) -> bool:
        try:
            hash(value)
        except TypeError:
            return False
        return value is not None

    return Constraint(accepts, "the name of a field")


def instance_of(kind: type, words: str) -> Constraint:
    """An object of a class."""
    return Constraint(lambda value: isinstance(value, kind), words)


def optional(constraint: Constraint) -> Constraint:
    """The same, or None."""
    return Constraint(lambda value: value is None or constraint.accepts(value), f"{constraint.use}, or None")


# ---------------------------------------------------------------------- states


def count(stop: int = MOST_ROWS, start: int = 0) -> Constraint:
    """A whole number of Python from start to before stop, such as a number of rows or an index."""
    return Constraint(
        lambda value: type(value) is int and start <= value < stop, f"a whole number from {start} to {stop - 1}"
    )


def number() -> Constraint:
    """A number, also infinite or NaN."""
    return Constraint(_is_number, "a number")


class Shape(NamedTuple):
    """The shape of an array in a state, its type and, for whole numbers, the range of its values.

    A length is a number, None for any, or a name: one of the sizes that `check_state` is given, or a size that the
    first array with this name sets for all others.
    """

    lengths: tuple[int | str | None, ...]
    dtype: DTypeLike = np.float64
    range: tuple[int, int] | None = None


#: Of each entry of a state, what it must be.
Table: TypeAlias = Mapping[str, Constraint | Shape]


def check_state(part: str, state: Any, table: Table, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """Check the entries of a state in the order of the table; a ValueError names the part. Returns all sizes.

    Examples
    --------
    >>> table = {"X": Shape(("rows", "inputs")), "Y": Shape(("rows", None)), "first": count()}
    >>> check_state("rows", {"X": np.zeros((3, 2)), "Y": np.zeros((3, 1)), "first": 0}, table, {"inputs": 2})
    {'inputs': 2, 'rows': 3}
    >>> check_state("rows", {"X": np.zeros((3, 2)), "Y": np.zeros((4, 1)), "first": 0}, table)
    Traceback (most recent call last):
    ValueError: rows / Y is float64 of shape (4, 1), expected float64 of shape (3, any)
    """
    known = dict(sizes or {})
    if not isinstance(state, Mapping):
        raise ValueError(f"{part} is a {type(state).__name__}, expected a dict")
    for name, field in table.items():
        where = f"{part} / {name}"
        if name not in state:
            raise ValueError(f"{where} is missing")
        value = state[name]
        if isinstance(field, Constraint):
            if not field.accepts(value):
                raise ValueError(f"{where} is {repr(value)[:80]}, expected {field.use}")
            continue
        lengths = tuple(known.get(n) if isinstance(n, str) else n for n in field.lengths)
        check_array(where, value, lengths, field.dtype)
        known |= {name: size for name, size in zip(field.lengths, value.shape, strict=True) if isinstance(name, str)}
        if field.range is not None:
            check_indices(where, value.reshape(-1), *field.range)
    return known


def like(state: Mapping[str, Any], **others: Constraint | Shape) -> dict[str, Constraint | Shape]:
    """The table of states that look like this one, usually that of a fresh object: types, shapes, counts, numbers.

    Entries of ``others`` replace those of the same name; entries of other kinds are left out.

    Examples
    --------
    >>> table = like({"weights": np.ones(2), "n_rows": 0})
    >>> check_state("blend", {"weights": np.ones(2), "n_rows": -1}, table)
    Traceback (most recent call last):
    ValueError: blend / n_rows is -1, expected a whole number from 0 to 4611686018427387903
    """
    table: dict[str, Constraint | Shape] = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            table[name] = Shape(value.shape, value.dtype)
        elif isinstance(value, bool):
            table[name] = flag()
        elif isinstance(value, int):
            table[name] = count()
        elif isinstance(value, float):
            table[name] = number()
    return table | others


def check_whole(part: str, values: Any, start: int, stop: int) -> None:
    """Raise a ValueError that names a part of a file unless all floats are whole numbers from start to before stop.

    Examples
    --------
    >>> check_whole("lags / clock", np.array([24.0, np.nan]), 0, 100)
    Traceback (most recent call last):
    ValueError: lags / clock is nan, expected a whole number from 0 to 99
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        wrong = values[~((values >= start) & (values < stop) & (np.floor(values) == values))]
    if len(wrong):
        raise ValueError(f"{part} is {wrong[0]}, expected a whole number from {start} to {stop - 1}")


def check_finite(part: str, values: Any) -> None:
    """Raise a ValueError that names a part of a file unless all its numbers are finite."""
    wrong = np.extract(~np.isfinite(values), values)
    if len(wrong):
        raise ValueError(f"{part} is {wrong[0]}, expected finite numbers")


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
    if isinstance(value, np.ndarray):
        # Words only where they are needed: a model has a hundred arrays.
        if value.dtype == dtype and len(shape) == value.ndim and all(map(_fits, shape, value.shape)):
            return
        found = f"{value.dtype} of shape {value.shape}"
    else:
        found = f"a {type(value).__name__}"
    lengths = ", ".join("any" if n is None else str(n) for n in shape)
    raise ValueError(f"{part} is {found}, expected {np.dtype(dtype)} of shape ({lengths})")


def _fits(length: int | None, size: int) -> bool:
    return length is None or length == size


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
