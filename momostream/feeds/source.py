"""The protocol of a source: how a run reads a feed, resumes it, and confirms what it has committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from momostream.feeds.formats import Rejected, Row

__all__ = ["Event", "FeedError", "Source", "rejection"]

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
