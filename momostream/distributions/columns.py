"""Columns of the frames that forecasts return, made once for the same names: pandas takes longer than quantiles."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["paired_columns", "series_columns"]

# Names of series and labels that are remembered; a forecaster uses a few.
_REMEMBERED = 64

Names = tuple[Hashable, ...]


def series_columns(series: Names) -> pd.Index[Any]:
    """A column for each series.

    Examples
    --------
    >>> series_columns(("wind", "power")).tolist()
    ['wind', 'power']
    """
    # A view: names that a user gives to the columns of one frame must not appear in the next.
    return _series_columns(series, _types(series)).view()


def paired_columns(series: Names, labels: Sequence[Hashable]) -> pd.MultiIndex:
    """A column for each pair of a series and a label.

    Examples
    --------
    >>> paired_columns(("wind",), ["lower", "upper"]).tolist()
    [('wind', 'lower'), ('wind', 'upper')]
    """
    labels = tuple(labels)
    return _paired_columns(series, labels, _types(series), _types(labels)).view()


def _types(names: Names) -> tuple[Any, ...]:
    # Equal names of different types, as 1 and 1.0 and True, are different columns; so are tuples of them.
    return tuple(_types(name) if isinstance(name, tuple) else type(name) for name in names)


@lru_cache(_REMEMBERED)
def _series_columns(series: Names, types: tuple[Any, ...]) -> pd.Index[Any]:
    import pandas as pd

    return pd.Index(list(series), tupleize_cols=False)


@lru_cache(_REMEMBERED)
def _paired_columns(
    series: Names, labels: Names, types: tuple[Any, ...], label_types: tuple[Any, ...]
) -> pd.MultiIndex:
    import pandas as pd

    # From codes: pandas would take names that are tuples for levels.
    levels: list[Any] = [pd.Index(list(series), tupleize_cols=False), pd.Index(list(labels))]
    pairs = [(i, j) for i in range(len(series)) for j in range(len(labels))]
    return pd.MultiIndex(levels, [[i for i, _ in pairs], [j for _, j in pairs]], verify_integrity=False)
