"""Where a backtest forecasts: after how many rows, said in rows, spans or times."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd

from momostream._checks import check, whole
from momostream.horizon.durations import parse_duration

__all__ = ["origins"]


def origins(times: pd.Index[Any], start: Any, step: Any, horizon: int) -> list[int]:
    """Numbers of rows that are learnt before each forecast.

    Parameters
    ----------
    times
        Of the rows; anything but dates if they have none.
    start
        Rows before the first forecast, the span that they cover, or the time of the first row that is forecast; None
        is a fifth of all rows, and at least two horizons.
    step
        Rows from one forecast to the next, or a span.
    horizon
        Rows of each forecast.

    Examples
    --------
    >>> times = pd.date_range("2024-01-01", periods=72, freq="1h")
    >>> origins(times, "1d", "12h", 24), origins(times, "2024-01-02 06:00", 10, 24)
    ([24, 36, 48], [30, 40])
    """
    first = max(len(times) // 5, 2 * horizon) if start is None else _first(times, start)
    stop = len(times) - horizon + 1
    if first >= stop:
        raise ValueError(
            f"frame has {len(times)} rows, too few for {first} before the first forecast and {horizon} to score it"
        )
    span = _span("step", step)
    if span is None:
        check("step", step, whole(1))
        return list(range(first, stop, step))
    dates = _dates("step", step, times)
    marks = pd.date_range(dates[first], dates[-1], freq=span)
    # After a gap, several marks fall on one row.
    found = np.unique(dates.searchsorted(marks, side="left"))
    return [int(n) for n in found if n < stop]


def _first(times: pd.Index[Any], start: Any) -> int:
    span = None if isinstance(start, date | np.datetime64) else _span("start", start, or_time=True)
    if span is None and not isinstance(start, str | date | np.datetime64):
        check("start", start, whole(1))
        return int(start)
    dates = _dates("start", start, times)
    first = dates[0] + span if span is not None else _moment(start, dates)
    found = int(dates.searchsorted(first, side="left"))
    if not found:
        raise ValueError(f"start={start!r} is not accepted: no row is earlier, the first one is at {dates[0]}")
    return found


def _span(name: str, value: Any, or_time: bool = False) -> pd.Timedelta | None:
    """A span of time; None if it is something else."""
    if isinstance(value, timedelta | np.timedelta64):
        found = pd.Timedelta(value)
        if not found > pd.Timedelta(0):
            raise ValueError(f"{name}={value!r} is not accepted: use a span above zero")
        return found
    if not isinstance(value, str):
        return None
    try:
        return pd.Timedelta(parse_duration(value), "us")
    except ValueError:
        if or_time:
            return None
        raise ValueError(f"{name}={value!r} is not accepted: use a number of rows, or a span such as '6h'") from None


def _moment(start: Any, dates: pd.DatetimeIndex) -> pd.Timestamp:
    try:
        found = pd.to_datetime(start)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, pd.Timestamp):
        raise ValueError(f"start={start!r} is not accepted: use a number of rows, a span such as '7d', or a time")
    if dates.tz is not None:
        return found.tz_localize(dates.tz) if found.tz is None else found.tz_convert(dates.tz)
    if found.tz is not None:
        raise ValueError(f"start={start!r} has a time zone, and the times of frame have none")
    return found


def _dates(name: str, value: Any, times: pd.Index[Any]) -> pd.DatetimeIndex:
    if not isinstance(times, pd.DatetimeIndex) or times.hasnans:
        raise ValueError(f"{name}={value!r} needs times, and the rows of frame have none: use a number of rows")
    return times
