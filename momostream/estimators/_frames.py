"""Columns of pandas frames as numbers, with errors that name the row and the column."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import LARGEST, as_number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_frame", "first_known", "matrix", "numeric_columns", "row_named"]

Array = NDArray[np.float64]


def check_frame(frame: pd.DataFrame, what: str) -> None:
    """Raise an error if this is not a frame, or if two of its columns have the same name."""
    columns = getattr(frame, "columns", None)
    if columns is None or not hasattr(columns, "is_unique"):
        raise TypeError(f"{what} must be a pandas DataFrame, got {type(frame).__name__}")
    if not columns.is_unique:
        raise ValueError(f"{what} has two columns {columns[columns.duplicated()][0]!r}")


@contextmanager
def row_named(frame: pd.DataFrame, i: int, what: str) -> Iterator[None]:
    """Name the row in errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"row {frame.index[i]!r} of {what}: {error}") from None


def numeric_columns(frame: pd.DataFrame, what: str) -> dict[Hashable, Array]:
    """Columns of a frame as numbers; a value that is not a number is an error that names its row and column."""
    check_frame(frame, what)
    if all(dtype.kind in "fiub" for dtype in frame.dtypes):
        # At once: looking at columns one by one costs more than predicting a row.
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        if not (np.abs(values) > LARGEST).any():
            return dict(zip(frame.columns, values.T, strict=True))
    return {name: _numbers(frame, name, what) for name in frame.columns}


def _numbers(frame: pd.DataFrame, name: Hashable, what: str) -> Array:
    column = frame[name]
    if column.dtype.kind in "fiub":
        numbers: Array = column.to_numpy(dtype=np.float64, na_value=np.nan)
        to_check = np.flatnonzero(np.abs(numbers) > LARGEST)[:1]
    else:
        numbers = np.empty(len(frame))
        to_check = np.arange(len(frame))
    for i in to_check:
        with row_named(frame, i, what):
            numbers[i] = as_number(name, column.iloc[i])
    return numbers


def matrix(columns: Mapping[Hashable, Array], names: tuple[Hashable, ...], n_rows: int) -> Array:
    """Columns in this order; NaN for a name without a column."""
    out = np.full((n_rows, len(names)), np.nan)
    for j, name in enumerate(names):
        if name in columns:
            out[:, j] = columns[name]
    return out


def first_known(values: Array) -> float:
    """The first value that is not missing; NaN if all are."""
    known = values[~np.isnan(values)]
    return float(known[0]) if len(known) else math.nan
