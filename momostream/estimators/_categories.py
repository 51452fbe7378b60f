"""Inputs that are names, such as a mode of operation: one column of zeros and ones for each name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from momostream._checks import Constraint

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CATEGORIES", "is_level", "spread_frame", "spread_row"]

CATEGORIES = Constraint(
    lambda names: isinstance(names, tuple | list) and all(isinstance(name, str) for name in names),
    "a tuple of names of inputs",
)


def _level(name: Hashable, value: Any) -> str:
    return f"{name}={value}"


def is_level(column: Hashable, categories: Iterable[str]) -> bool:
    """Whether a column is one of a category.

    Examples
    --------
    >>> is_level("mode=idle", ("mode",)), is_level("wind", ("mode",))
    (True, False)
    """
    return isinstance(column, str) and any(column.startswith(f"{name}=") for name in categories)


def _is_missing(value: Any) -> bool:
    return value is None or value != value or type(value).__name__ == "NAType"


def spread_row(x: Mapping[Any, Any], categories: Sequence[str], known: Iterable[Hashable]) -> dict[Any, Any]:
    """A row with a one for each category's value, and zeros for its other values that are known.

    Examples
    --------
    >>> spread_row({"wind": 5.0, "mode": "idle"}, ("mode",), ("mode=run", "wind"))
    {'wind': 5.0, 'mode=run': 0.0, 'mode=idle': 1.0}
    """
    spread = {name: value for name, value in x.items() if name not in categories}
    for name in categories:
        if name in x and not _is_missing(x[name]):
            spread |= {column: 0.0 for column in known if is_level(column, (name,))}
            spread[_level(name, x[name])] = 1.0
    return spread


def spread_frame(frame: pd.DataFrame, categories: Sequence[str], known: Iterable[Hashable]) -> pd.DataFrame:
    """A frame with a column of zeros and ones for each value of each category; missing values are missing in all.

    Examples
    --------
    >>> import pandas as pd
    >>> spread_frame(pd.DataFrame({"mode": ["idle", None, "run"]}), ("mode",), ())
       mode=idle  mode=run
    0        1.0       0.0
    1        NaN       NaN
    2        0.0       1.0
    """
    for name in categories:
        if name not in frame.columns:
            continue
        values = frame[name].tolist()
        missing = np.array([_is_missing(value) for value in values], dtype=np.bool_)
        found = [None if gone else _level(name, value) for value, gone in zip(values, missing, strict=True)]
        levels = dict.fromkeys([*(column for column in known if is_level(column, (name,))), *sorted({*found} - {None})])  # type: ignore[type-var]
        columns = {
            level: np.where(missing, np.nan, [1.0 if one == level else 0.0 for one in found]) for level in levels
        }
        frame = frame.drop(columns=[name]).assign(**columns)  # type: ignore[arg-type]
    return frame
