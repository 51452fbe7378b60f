"""Tables of any library as pandas frames, and their columns as numbers, with errors that name row and column."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import LARGEST, as_number
from momostream.distributions.quantiles import check_levels, in_order

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "as_frame",
    "check_frame",
    "first_known",
    "matrix",
    "numeric_columns",
    "padded",
    "quantile_frame",
    "row_named",
]

Array = NDArray[np.float64]


def as_frame(table: Any, what: str, stem: str, known: Sequence[Hashable] = ()) -> pd.DataFrame:
    """A table as a pandas frame: a frame or Series of pandas or polars, a table of Arrow, an array, a list of dicts.

    Parameters
    ----------
    table
        The table.
    what
        Its name in errors.
    stem
        Name of the column of an array or Series without a name; the columns of a table without names are the stem and
        a number from 0.
    known
        Columns seen so far. If they have other names, a table without names is an error: its order means nothing.

    Examples
    --------
    >>> as_frame(np.array([[1.0, 2.0], [3.0, 4.0]]), "X", "x")
        x0   x1
    0  1.0  2.0
    1  3.0  4.0
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        check_frame(table, what)
        return table
    if isinstance(table, pd.Series):
        return table.to_frame(stem if table.name is None else table.name)
    library = type(table).__module__.partition(".")[0]
    if library == "polars" and hasattr(table, "collect"):
        raise TypeError(f"{what} is a polars LazyFrame: call its collect() first")
    if library == "polars":
        columns = table.get_columns() if hasattr(table, "get_columns") else [table.alias(table.name or stem)]
        return pd.DataFrame({column.name: _from_polars(column) for column in columns})
    if library == "pyarrow" and hasattr(table, "to_pandas"):
        return as_frame(table.to_pandas(), what, stem)
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        return pd.DataFrame(list(table))
    if not isinstance(table, np.ndarray | list | tuple):
        kinds = "a pandas DataFrame or Series, a polars frame, an array or a list of dicts"
        raise TypeError(f"{what} must be {kinds}, got {type(table).__name__}")
    return _from_array(np.asarray(table), what, stem, known)


def _from_array(values: NDArray[Any], what: str, stem: str, known: Sequence[Hashable]) -> pd.DataFrame:
    import pandas as pd

    if values.ndim not in (1, 2):
        raise ValueError(f"{what} must have one or two dimensions, got an array of shape {values.shape}")
    names = [stem] if values.ndim == 1 else [f"{stem}{j}" for j in range(values.shape[1])]
    if known and not {*names} & {*known}:
        columns = ", ".join(map(repr, known))
        raise ValueError(f"{what} has no names, and the model has learnt the columns {columns}: use a frame with them")
    return pd.DataFrame(values.reshape(len(values), len(names)), columns=names)


def _from_polars(column: Any) -> Any:
    """A column of polars with its time zone, which numpy does not have; missing values are NaN or None."""
    import pandas as pd

    zone = getattr(column.dtype, "time_zone", None)
    if type(column.dtype).__name__ in ("Categorical", "Enum") or str(column.dtype) == "String":
        return pd.Series(column.to_list(), dtype=object)
    values = pd.Series(column.to_numpy())
    return values if zone is None else values.dt.tz_localize("UTC").dt.tz_convert(zone)


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


def quantile_frame(
    distribution: Any, levels: Sequence[float], labels: Sequence[Any], targets: Sequence[Hashable], index: Any
) -> pd.DataFrame:
    """Quantiles of a distribution of rows, a pair of target and label for each column; None for no rows."""
    import pandas as pd

    check_levels(np.asarray(levels, dtype=np.float64))
    columns = pd.MultiIndex.from_product([list(targets), list(labels)])
    if distribution is None:
        return pd.DataFrame(index=index, columns=columns, dtype=np.float64)
    values = np.stack([distribution.quantile(float(level)) for level in levels], axis=2)
    if list(levels) == sorted(levels):
        values = in_order(values, axis=2)
    return pd.DataFrame(values.reshape(len(index), -1), index=index, columns=columns)


def first_known(values: Array) -> float:
    """The first value that is not missing; NaN if all are."""
    known = values[~np.isnan(values)]
    return float(known[0]) if len(known) else math.nan


def padded(rows: Array, n_columns: int) -> Array:
    """Rows with further columns of missing values."""
    return np.pad(rows, ((0, 0), (0, n_columns - rows.shape[1])), constant_values=np.nan)
