"""How the times of a feed were given, so that those of forecasts look the same: zone, periods, months."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.calendar import AWARE, DAY, NUMBER, Clock, as_time
from momostream.horizon.durations import n_steps_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TimeLabels", "counted_steps", "day_number", "frame_times", "zone_name"]


def counted_steps(horizon: int | str, step: float | None) -> int:
    """Steps of a horizon, which may be a span; ``step`` is that of the feed in microseconds, None if not known."""
    if not isinstance(horizon, str):
        return horizon
    if step is None:
        raise ValueError(
            f"horizon={horizon!r} cannot be counted in steps: the step of the feed is not known yet, or its times are "
            "not dates"
        )
    return n_steps_of(horizon, step)


class TimeLabels(NamedTuple):
    """Time zone, frequency of periods, and frequency of months or years between times; None where there is none."""

    zone: str | None = None
    period: str | None = None
    offset: str | None = None

    def ahead(self, clock: Clock, n: int) -> tuple[NDArray[Any] | None, str | None]:
        """Times of the next ``n`` rows, in UTC if they have a zone, and the zone; None if the step is not known."""
        if clock.step is None:
            return None, None
        if clock.kind == NUMBER:
            return clock.ahead(n), None
        zone = (self.zone or "UTC") if clock.kind == AWARE else None
        times = clock.ahead(n).round().astype("datetime64[us]")
        is_local = zone not in (None, "UTC") and clock.step % DAY == 0.0
        if self.period is None and self.offset is None and not is_local:
            return times, zone
        return self._by_calendar(clock, n, times, zone), zone

    def _by_calendar(self, clock: Clock, n: int, times: NDArray[Any], zone: str | None) -> NDArray[Any]:
        """Times that are not equally far apart: months, or days in a zone with summer time."""
        import pandas as pd

        last = pd.Timestamp(round(clock.last), unit="us")
        last = last if zone is None else last.tz_localize("UTC").tz_convert(zone).tz_localize(None)
        if self.period is not None:
            first = pd.Period(last, freq=self.period) + 1
            ahead = pd.period_range(first, periods=n, freq=self.period).to_timestamp()
        elif self.offset is not None:
            offset = pd.tseries.frequencies.to_offset(self.offset)
            if offset is None or not offset.is_on_offset(last):
                return times
            ahead = pd.date_range(last, periods=n + 1, freq=offset)[1:]
        else:
            assert clock.step is not None
            ahead = pd.DatetimeIndex(last + np.arange(1, n + 1) * pd.Timedelta(clock.step, unit="us"))
        if zone is not None:
            is_summer = np.ones(n, dtype=np.bool_)
            ahead = ahead.tz_localize(zone, ambiguous=is_summer, nonexistent="shift_forward").tz_convert("UTC")
        return ahead.tz_localize(None).to_numpy().astype("datetime64[us]")


def zone_name(value: Any) -> str | None:
    """Name of the time zone of a timestamp; None if it has none.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta, timezone
    >>> zone_name(datetime(2024, 1, 1)), zone_name(datetime(2024, 1, 1, tzinfo=UTC))
    (None, 'UTC')
    >>> zone_name(datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    'UTC+02:00'
    """
    tz = getattr(value, "tzinfo", None)
    if tz is None:
        return None
    # Of zoneinfo and of pytz; others write their names, or something that is none.
    name = getattr(tz, "key", None) or getattr(tz, "zone", None) or str(tz)
    return str(name) if name.startswith("UTC") or "/" in name and "(" not in name else "UTC"


def frame_times(index: pd.Index[Any]) -> tuple[list[Any] | None, TimeLabels]:
    """Times in an index as timestamps, None if it has none, and how they were given.

    Examples
    --------
    >>> import pandas as pd
    >>> times, labels = frame_times(pd.period_range("2024-01", periods=2, freq="M"))
    >>> times[1], labels
    (Timestamp('2024-02-01 00:00:00'), TimeLabels(zone=None, period='M', offset=None))
    """
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return list(index.to_timestamp()), TimeLabels(period=index.freqstr)
    if not isinstance(index, pd.DatetimeIndex):
        return None, TimeLabels()
    return list(index), TimeLabels(zone_name(index[0]) if len(index) else None, None, _months(index))


def _months(index: pd.DatetimeIndex) -> str | None:
    """Frequency of times that are a number of months apart, at their beginning or their end; None for others."""
    months = (12 * index.year + index.month).to_numpy()
    steps = np.diff(months)
    if len(steps) < 3 or not (steps == steps[0]).all() or steps[0] < 1 or (index.normalize() != index).any():
        return None
    if (index.day == 1).all():
        return f"{steps[0]}MS"
    return f"{steps[0]}ME" if index.is_month_end.all() else None


def day_number(day: Any) -> int:
    """Days since 1970-01-01."""
    found = None if isinstance(day, str) else as_time("holidays", day)
    if found is None or found[1] == NUMBER:
        raise TypeError(f"holidays must be dates, got {day!r}")
    return int(found[0] // DAY)
