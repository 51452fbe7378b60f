"""Long format, one line for each series and time, as libraries of forecasts exchange it; turned into columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LONG", "LongNames", "long_names", "to_wide", "wide_inputs"]


class LongNames(NamedTuple):
    """Columns of a frame in long format: name of the series, time, value."""

    id: Hashable
    time: Hashable
    value: Hashable


LONG = LongNames("unique_id", "ds", "y")


def long_names(frame: pd.DataFrame, long: bool | Sequence[Hashable] | None) -> LongNames | None:
    """The columns of the long format; None for a frame with a column for each series.

    Parameters
    ----------
    frame
        The frame.
    long
        None: by the names ``unique_id``, ``ds`` and ``y``. True: these are required. Three names: those of series, time
        and value. False: the frame is not in long format.
    """
    if long is False or (long is None and not {*LONG} <= {*frame.columns}):
        return None
    if isinstance(long, str) or (not isinstance(long, bool | None) and len(long) != 3):
        raise ValueError(f"long={long!r} is not accepted: use three columns, of the series, the time and the value")
    names = LONG if isinstance(long, bool | None) else LongNames(*long)
    for name in names:
        if name not in frame.columns:
            columns = ", ".join(map(repr, frame.columns))
            raise ValueError(f"long format: there is no column {name!r}; the columns are {columns}")
    return names


def to_wide(frame: pd.DataFrame, names: LongNames) -> pd.DataFrame:
    """A column for each series, in order of time, with the times as index; values that are not there are missing.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"unique_id": ["a", "b", "a"], "ds": [0, 0, 1], "y": [1.0, 5.0, 2.0]})
    >>> to_wide(frame, LONG)
          a    b
    ds
    0   1.0  5.0
    1   2.0  NaN
    """
    missing = frame[[names.id, names.time]].isna().any(axis=1)
    if missing.any():
        row = frame.index[missing.to_numpy()][0]
        raise ValueError(f"row {row!r} has no {names.id!r} or no {names.time!r}")
    twice = frame.duplicated([names.id, names.time])
    if twice.any():
        row = frame.index[twice.to_numpy()][0]
        series, time = (frame[name][twice].iloc[0] for name in (names.id, names.time))
        raise ValueError(f"row {row!r}: series {series!r} has two values at {time}")
    wide = frame.pivot(index=names.time, columns=names.id, values=names.value)
    wide.columns = wide.columns.astype(object)
    wide.columns.name = None
    return _without_holes(wide.sort_index())


def _without_holes(wide: pd.DataFrame) -> pd.DataFrame:
    """Times that are whole numbers have no gaps: rows that are missing get lines of missing values."""
    import pandas as pd

    if wide.index.dtype.kind not in "iu" or len(wide) < 2:
        return wide
    step = int(np.diff(wide.index.to_numpy()).min())
    whole = np.arange(wide.index[0], wide.index[-1] + 1, step)
    return wide.reindex(pd.Index(whole, name=wide.index.name)) if set(wide.index) <= set(whole) else wide


def wide_inputs(frame: pd.DataFrame, names: LongNames, inputs: Sequence[Hashable], known: Any = ()) -> pd.DataFrame:
    """Columns of inputs beside the series: one if all series agree, else one for each series, such as ``"price of a"``.

    Parameters
    ----------
    frame, names
        As in `to_wide`.
    inputs
        Columns that are inputs.
    known
        Names of inputs learnt so far: they decide whether an input is shared.
    """
    import pandas as pd

    columns: dict[Hashable, Any] = {}
    for name in inputs:
        if name not in frame.columns:
            raise ValueError(f"there is no input {name!r}; the columns are {', '.join(map(repr, frame.columns))}")
        wide = to_wide(frame, LongNames(names.id, names.time, name))
        differs = bool((wide.nunique(axis=1) > 1).any())
        own = [f"{name} of {series}" for series in wide.columns]
        if name in known and differs:
            raise ValueError(f"input {name!r} was the same for all series so far, and now it differs")
        if differs or (name not in known and any(one in known for one in own)):
            columns |= dict(zip(own, (wide[series] for series in wide.columns), strict=True))
        else:
            columns[name] = wide.bfill(axis=1).iloc[:, 0]
    return pd.DataFrame(columns)
