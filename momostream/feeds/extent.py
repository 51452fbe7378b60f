"""`Extent`: the part of a feed from a time on, or its last rows or hours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from momostream.feeds.formats import Row
from momostream.feeds.source import Event, FeedError, Source
from momostream.horizon.calendar import AWARE, NUMBER, as_time
from momostream.horizon.durations import parse_duration

__all__ = ["Extent", "read_start"]


def read_start(text: str) -> datetime | float:
    """Read the time of ``--start``: a date, a date with a time, or a number.

    Examples
    --------
    >>> read_start("2024-03-01"), read_start("12.5")
    (datetime.datetime(2024, 3, 1, 0, 0), 12.5)
    >>> read_start("yesterday")
    Traceback (most recent call last):
    ValueError: 'yesterday' is not a time: write a date such as 2024-03-01 or 2024-03-01T06:00, or a number
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write a date such as 2024-03-01 or 2024-03-01T06:00, or a number"
        ) from None


class Extent:
    """A source without the rows before a time, and of the rest only the last part.

    Rejected rows among those that are left out are left out, too.

    Parameters
    ----------
    feed
        The source; all but its events is taken from it.
    start
        Rows before this time are left out. A date without a time zone is in that of the rows.
    last
        Number of rows, or a span such as ``"7d"``: only the last ones are taken. A run that resumes takes all rows
        after those that it knows.
    again
        Opens the same feed once more, to find its end; required by ``last``.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rows = [Row(n, n, datetime(2024, 3, 1, n), {"power": 1.0 * n}) for n in range(1, 6)]
    >>> class Rows(SimpleNamespace):
    ...     def events(self):
    ...         yield from rows
    ...     def close(self):
    ...         pass
    >>> feed = Rows(name="rows")
    >>> [row.number for row in Extent(feed, start=datetime(2024, 3, 1, 4)).events()]
    [4, 5]
    >>> [row.number for row in Extent(feed, last="2h", again=lambda: feed).events()]
    [4, 5]
    >>> [row.number for row in Extent(feed, last=3, again=lambda: feed).events()]
    [3, 4, 5]
    """

    def __init__(
        self,
        feed: Source,
        start: datetime | float | None = None,
        last: int | str | None = None,
        again: Callable[[], Source] | None = None,
    ) -> None:
        self._feed, self._start, self._last, self._again = feed, start, last, again

    def __getattr__(self, name: str) -> Any:
        """Look up an attribute of the source."""
        return getattr(self._feed, name)

    def __enter__(self) -> Self:
        """Return the source."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the source."""
        self._feed.close()

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a position of an earlier reading."""
        self._last = None
        self._feed.seek(position)

    def events(self) -> Iterator[Event]:
        """Rows that are not left out, rejected rows among them, and None while there are none."""
        is_left_out = self._lower_end()
        left_out = True
        for event in self._feed.events():
            if isinstance(event, Row):
                left_out = is_left_out(event)
            if event is None or not left_out:
                yield event

    def _lower_end(self) -> Callable[[Row], bool]:
        """Whether a row comes before the first one that is taken."""
        number, time = (None, None) if self._last is None else self._find_end()

        def is_left_out(row: Row) -> bool:
            if number is not None and row.number < number:
                return True
            if time is None and self._start is None:
                return False
            found = as_time("time", row.time)
            if found is None:
                raise FeedError(
                    f"{self._feed.name}: row {row.number} has no time: --start and spans of --last need one"
                )
            return (time is not None and found[0] <= time) or (
                self._start is not None and found[0] < self._start_for(row, found[1])
            )

        return is_left_out

    def _start_for(self, row: Row, kind: str) -> float:
        """The start on the scale of a row's time."""
        start = self._start
        if isinstance(start, float) and kind == NUMBER:
            return start
        if not isinstance(start, datetime) or kind == NUMBER:
            expected = "a number" if kind == NUMBER else "a date"
            raise FeedError(f"{self._feed.name}: the times of the rows need {expected} as start, not {start}")
        begin: datetime = start
        if kind != AWARE and begin.tzinfo is not None:
            raise FeedError(f"{self._feed.name}: the times of the rows have no zone: use a start without one")
        if kind == AWARE and begin.tzinfo is None:
            assert isinstance(row.time, datetime), "only dates have a zone"
            begin = begin.replace(tzinfo=row.time.tzinfo)
        found = as_time("start", begin)
        assert found is not None, "a date is a time"
        return found[0]

    def _find_end(self) -> tuple[int | None, float | None]:
        """Number of the first row, or the time before it, of the last part of the feed."""
        assert self._again is not None and self._last is not None
        feed = self._again()
        try:
            rows = (event for event in feed.events() if isinstance(event, Row))
            if isinstance(self._last, int):
                numbers = deque((row.number for row in rows), maxlen=self._last)
                return (numbers[0] if numbers else 0), None
            times = [found for row in rows if (found := as_time("time", row.time)) is not None]
        finally:
            feed.close()
        if times and times[0][1] == NUMBER:
            raise FeedError(f"{self._feed.name}: times are numbers: --last needs a number of rows")
        if not times:
            raise FeedError(f"{self._feed.name}: rows have no times: --last needs a number of rows")
        return None, max(time for time, _ in times) - parse_duration(self._last)
