"""Keys of dicts as columns of arrays.

The rows of a feed are dicts whose keys come in any order, go missing and join later; the core models know columns only.
A `Vocabulary` translates between them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from momostream._numbers import LARGEST, USUAL, as_number

__all__ = ["Vocabulary", "check_keys", "row_from_state", "row_state"]

_KEY_TYPES: dict[str, type] = {kind.__name__: kind for kind in (str, int, float, bool)}


class Vocabulary:
    """Columns of the keys of a feed, in an order that does not depend on the order of the dicts.

    Parameters
    ----------
    keys : iterable, optional
        Keys of the first columns, in this order.

    Examples
    --------
    >>> inputs = Vocabulary()
    >>> inputs.columns({"wind": 7.5, "pitch": 0.2})
    [1, 0]
    >>> inputs
    Vocabulary('pitch', 'wind')
    >>> values = np.empty(len(inputs))
    >>> inputs.encode({"wind": 7, "pitch": None}, values)
    ()
    >>> values
    array([nan,  7.])

    `encode` returns keys without a column; `columns` gives them one, at the end:

    >>> new = inputs.encode({"wind": 8.0, "air": 1.2}, values)
    >>> new, inputs.columns(new), inputs.keys
    (('air',), [2], ('pitch', 'wind', 'air'))
    """

    def __init__(self, keys: Iterable[Hashable] = ()) -> None:
        given = [_plain(key) for key in keys]
        self._set(given)
        if len(self) != len(given):
            raise ValueError("a key has two columns")

    def _set(self, keys: Iterable[Hashable]) -> None:
        self._columns = {key: column for column, key in enumerate(keys)}
        self._keys = tuple(self._columns)
        n = len(self._keys)
        # An itemgetter of one key returns its value, not a tuple.
        self._pick = itemgetter(*self._columns) if n > 1 else lambda row: tuple(row[key] for key in self._columns)
        self._write: Callable[..., None] = struct.Struct(f"{n}d").pack_into

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Keys in the order of their columns."""
        return self._keys

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a key has a column."""
        return key in self._columns

    def has_all(self, row: Mapping[Hashable, Any]) -> bool:
        """Whether all keys of a row have columns."""
        return self._columns.keys() >= row.keys()

    def columns(self, keys: Iterable[Hashable]) -> list[int]:
        """Return the column of each key; new keys get the next ones.

        New keys are sorted by their `repr`, so that the order does not depend on that of the caller's dict.
        """
        keys = [_plain(key) for key in keys]
        new = sorted({key for key in keys if key not in self._columns}, key=repr)
        if new:
            self._set([*self._columns, *new])
        return [self._columns[key] for key in keys]

    def encode(self, row: Mapping[Any, Any], out: npt.NDArray[np.float64]) -> tuple[Hashable, ...]:
        """Write the values of a row into their columns.

        Parameters
        ----------
        row : mapping
            Numbers by key. None and NaN are missing values.
        out : float64 array of shape (n_columns,), contiguous
            Filled in the order of the columns, with NaN where a value is missing.

        Returns
        -------
        tuple
            Keys that have a value but no column, normally none. They are not registered.

        Raises
        ------
        TypeError, ValueError
            For a value that is not a number, or too large; see `as_number`. For a new key that could not be saved; see
            `check_keys`. `out` then stays as it was.
        """
        if type(row) is dict and len(row) == len(self._columns) == len(out):
            try:
                values = self._pick(row)
                # False for NaN as well.
                if USUAL.issuperset(map(type, values)) and math.hypot(*values) <= LARGEST:
                    self._write(out, 0, *values)
                    return ()
            except (KeyError, OverflowError):
                pass
        return self._encode_any(row, out)

    def _encode_any(self, row: Mapping[Any, Any], out: npt.NDArray[np.float64]) -> tuple[Hashable, ...]:
        if not isinstance(row, Mapping):
            raise TypeError(f"expected a dict, got {type(row).__name__}")
        if len(out) != len(self):
            raise ValueError(f"expected room for {len(self)} columns, got {len(out)}")
        numbers = {key: as_number(key, value) for key, value in row.items()}
        new = tuple(key for key, number in numbers.items() if key not in self._columns and not math.isnan(number))
        check_keys(new)
        out[:] = [numbers.get(key, math.nan) for key in self._columns]
        return new

    def state(self) -> list[Any]:
        """Return the keys as JSON: pairs of a type and a value.

        Raises
        ------
        TypeError
            For keys other than strings, finite numbers, and tuples of them.

        Examples
        --------
        >>> Vocabulary(["power", ("wind", 2)]).state()
        [['str', 'power'], ['tuple', [['str', 'wind'], ['int', 2]]]]
        """
        return [_key_state(key) for key in self._columns]

    @classmethod
    def from_state(cls, state: Iterable[Any]) -> Vocabulary:
        """Return the vocabulary with this `state`."""
        return cls(_key_from_state(*pair) for pair in state)

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled format of `struct` does not pickle.
        return type(self), (self.keys,)

    def __repr__(self) -> str:
        return f"Vocabulary({', '.join(map(repr, self._columns))})"


def check_keys(keys: Iterable[Hashable]) -> None:
    """Raise a TypeError for a key that no file could hold, before any row of it is learnt.

    Examples
    --------
    >>> check_keys(["wind", ("farm", 3)])
    >>> check_keys([None])
    Traceback (most recent call last):
    TypeError: cannot save the key None of type NoneType: use strings, finite numbers, or tuples of them as keys
    """
    for key in keys:
        _key_state(_plain(key))


def row_state(row: Mapping[Hashable, float]) -> list[Any]:
    """Return a row as plain data: its keys and its numbers."""
    return [Vocabulary(row).state(), np.array([*row.values()], dtype=np.float64)]


def row_from_state(keys: Iterable[Any], values: npt.NDArray[np.float64]) -> dict[Hashable, float]:
    """Return the row with this `row_state`."""
    return dict(zip(Vocabulary.from_state(keys).keys, values.tolist(), strict=True))


def _plain(key: Hashable) -> Hashable:
    """Return a key without numpy: equal to it, but with the `repr` of Python."""
    if isinstance(key, np.str_ | np.integer | np.floating | np.bool_) and not isinstance(key, np.timedelta64):
        plain: Hashable = key.item()
        return plain
    return tuple(map(_plain, key)) if type(key) is tuple else key


def _key_state(key: Hashable) -> list[Any]:
    name = type(key).__name__
    if type(key) is tuple:
        return [name, [_key_state(part) for part in key]]
    if _KEY_TYPES.get(name) is not type(key) or (isinstance(key, float) and not math.isfinite(key)):
        raise TypeError(
            f"cannot save the key {key!r} of type {name}: use strings, finite numbers, or tuples of them as keys"
        )
    return [name, key]


def _key_from_state(kind: str, value: Any) -> Hashable:
    if kind == "tuple":
        return tuple(_key_from_state(*pair) for pair in value)
    if kind not in _KEY_TYPES:
        raise ValueError(f"unknown type of key: {kind!r}")
    key: Hashable = _KEY_TYPES[kind](value)
    return key
