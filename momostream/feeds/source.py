"""The protocol of a source: how a run reads a feed, resumes it, and confirms what it has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, Self

from momostream.feeds.formats import Rejected, Row

__all__ = ["Event", "FeedError", "FileFeed", "Source", "printable", "rejection"]

#: A row, a row that cannot be used, or None: nothing has come for a while.
Event = Row | Rejected | None


class FeedError(ValueError):
    """A feed cannot be read. The message is one line: the feed, the row, the column, and what is wrong there."""


class Source(Protocol):
    """A source of rows, as a run uses it."""

    name: str

    @property
    def is_replayable(self) -> bool:
        """Whether rows can be read again; if not, the rows that come are taken as the next ones."""

    @property
    def is_live(self) -> bool:
        """Whether rows come as they happen, so that none should wait for the next."""

    def events(self) -> Iterator[Event]:
        """Rows in order, rows that cannot be used, and None while there are none."""

    @property
    def position(self) -> dict[str, Any]:
        """Position after the last event, as plain data."""

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a position of an earlier reading."""

    def acknowledge(self) -> None:
        """All events up to the last `position` that was asked for are on the disk, and need not be sent again."""

    def unfinished(self, event: Row | Rejected) -> dict[str, Any] | None:
        """Position before the last event, if someone may still be writing that event; else None."""

    def close(self) -> None:
        """Release the source."""


def rejection(name: str, rejected: Rejected) -> str:
    """One line about a rejected row: the feed, the row, the column, and what is wrong there."""
    separator = ", " if rejected.reason.startswith("column ") else ": "
    return f"{name}: row {rejected.number}{separator}{rejected.reason}"


def printable(name: str) -> str:
    """The name of a file in messages."""
    return name if name.isprintable() else repr(name)[1:-1]


class FileFeed:
    """The common part of feeds of files: iterating over good rows, and what becomes of bad ones.

    Parameters
    ----------
    name
        Of the feed in messages.
    bad_rows, on_bad
        As in `momostream.feeds.Feed`.
    """

    def __init__(self, name: str, bad_rows: str, on_bad: Callable[[str], object] | None) -> None:
        if bad_rows not in ("stop", "skip"):
            raise ValueError(f"bad_rows must be one of ('stop', 'skip'), not {bad_rows!r}")
        self.name, self.n_bad = name, 0
        self._skips, self._on_bad = bad_rows == "skip", on_bad

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Row]:
        for event in self.events():
            if isinstance(event, Rejected):
                self._skip(event)
            elif event is not None:
                yield event

    def events(self) -> Iterator[Event]:
        """Rows in order, rows that cannot be used, and None while there are none."""
        raise NotImplementedError

    def acknowledge(self) -> None:
        """Do nothing: files stay as they are."""

    def close(self) -> None:
        """Close the file."""
        raise NotImplementedError

    def _skip(self, rejected: Rejected) -> None:
        """Count and report a rejected row, or stop at it."""
        message = rejection(self.name, rejected)
        if not self._skips:
            raise FeedError(message)
        self.n_bad += 1
        if self._on_bad is not None:
            self._on_bad(message)
