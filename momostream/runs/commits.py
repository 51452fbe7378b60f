"""The position of a run in its feed, and its commits: when and how.

A commit is one transaction of the fleet's store: all models that have changed, the position in the feed, predictions,
alarms and dead letters since the last commit, and how far files have been written. However a run ends, the next one
starts at the last commit.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from momostream.feeds import Source
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.outputs import Written
from momostream.runs.channels import Channels
from momostream.runs.fleet import Fleet
from momostream.storage.store import LINES, Position

__all__ = ["Commits", "source_name"]

# Rows from one commit to the next: this many for each key, which makes writing its model worthwhile, within bounds.
ROWS_PER_KEY, COMMIT_ROWS = 200, (5000, 100_000)
# Others may look at a file that is being written.
FLUSH_SECONDS = 2.0
# From one look for old lines to the next.
PRUNE_SECONDS = 600.0
# Commits in parts take at most this share of the time: one of hundreds of models takes seconds, while rows come.
COMMIT_SHARE = 0.2
# From one attempt to send to a broker to the next.
DELIVER_SECONDS = 1.0


def source_name(feed: Source) -> str:
    """The name under which a store keeps the position of a feed, without folder or host: files and brokers may move.

    Examples
    --------
    >>> from types import SimpleNamespace as Named
    >>> source_name(Named(name="data/farm.csv")), source_name(Named(name="mqtt://localhost:1883/farm/+/rows"))
    ('farm.csv', 'mqtt:farm/+/rows')
    """
    scheme, mark, rest = feed.name.partition("://")
    # With or without TLS, it is the same feed.
    return f"{scheme.replace('mqtts', 'mqtt')}:{rest.partition('/')[2]}" if mark else Path(feed.name).name


class Commits:
    """The position of a run, and its commits.

    Parameters
    ----------
    feed, fleet, channels
        Of the run.
    every, seconds
        Rows and seconds from one commit to the next, as in `momostream.runs.run.Run`.
    keep
        Seconds after which lines of the store are removed; None keeps them.

    Attributes
    ----------
    name : str
        Under which the store keeps the position of the feed.
    resumed : Position or None
        The last commit of an earlier run, if there is one.
    files : dict
        By table, how far each file had been written at the last commit; None for a pipe.
    """

    def __init__(
        self,
        feed: Source,
        fleet: Fleet,
        channels: Channels,
        every: int | None,
        seconds: float,
        keep: float | None = None,
    ) -> None:
        self.feed, self.fleet, self.channels = feed, fleet, channels
        self.every, self.seconds, self.keep = every, seconds, keep
        self.name = source_name(feed)
        self.resumed = None if fleet.store is None else fleet.store.source(self.name)
        self.files: dict[str, Written | None] = {}
        # The last event that was taken, and the position of the feed after it.
        self._last: Row | Rejected | None = None
        self._after: dict[str, Any] = {}
        self._n_open = 0
        self._pruned_at = -math.inf
        #: Whether a commit was begun and is not complete.
        self.is_under_way = False
        self._committed_at = self._flushed_at = self._delivered_at = time.monotonic()
        # Least seconds until the next commit, after one that took long.
        self._pause = 0.0

    def count(self) -> None:
        """Count an event that is not committed yet."""
        self._n_open += 1

    def mark(self, last: Row | Rejected | None, after: dict[str, Any]) -> None:
        """Note the last event that the next commit includes, and the position of the feed after it."""
        self._last, self._after = last, after

    # ------------------------------------------------------------------ when

    @property
    def has_enough_rows(self) -> bool:
        """Whether enough events have come for a commit."""
        if self.every is not None:
            return self._n_open >= self.every
        least, most = COMMIT_ROWS
        return self._n_open >= max(least, min(ROWS_PER_KEY * len(self.fleet), most))

    def is_due(self, seconds: float) -> bool:
        """Whether to commit now: enough rows have come, or some and the last commit is `seconds` old.

        After a commit in parts that took long, the next one comes later: see `COMMIT_SHARE`.
        """
        since = time.monotonic() - self._committed_at
        return self.has_enough_rows or (self._n_open > 0 and since > max(seconds, self._pause))

    def keep_up(self) -> None:
        """Between commits: show what was written to files, and try again to send to brokers."""
        now = time.monotonic()
        if not self._n_open and not self.is_under_way and now - self._delivered_at > DELIVER_SECONDS:
            # Also when no row comes. Not while there are rows to commit: models that have left memory since the last
            # commit must not get into the store without the position of the feed.
            self._deliver()
        elif now - self._flushed_at > FLUSH_SECONDS:
            self.flush()

    # ------------------------------------------------------------------ how

    def commit(self, n_bad: int, more: dict[str, Any]) -> None:
        """Bring files to the disk, commit everything up to the marked event, then send to brokers.

        Parameters
        ----------
        n_bad
            Rows rejected so far.
        more
            Further state of the run, as plain data.
        """
        if self.is_under_way:
            self.fleet.finish_commit()
            self._complete()
        self.files = self.channels.sync()
        if self.fleet.store is not None:
            self._prune()
            position = self._position(n_bad, more)
            outputs, alarms = (self.channels.waiting(table) for table in ("outputs", "alarms"))
            self.fleet.commit(position, outputs, self.channels.letters, alarms)
            self.channels.clear()
        self._n_open = 0
        self._complete()

    def begin(self, n_bad: int, more: dict[str, Any]) -> None:
        """As `commit`, but models are written by `advance`, between rows."""
        self.files = self.channels.sync()
        self._prune()
        position = self._position(n_bad, more)
        outputs, alarms = (self.channels.waiting(table) for table in ("outputs", "alarms"))
        self.fleet.begin_commit(position, outputs, self.channels.letters, alarms)
        self.channels.clear()
        self._n_open, self.is_under_way = 0, True

    def _prune(self) -> None:
        """Remove old lines, as part of the commit; not those that wait for a broker: they go once it has them."""
        store, now = self.fleet.store, time.monotonic()
        if self.keep is None or store is None or now - self._pruned_at < PRUNE_SECONDS:
            return
        self._pruned_at = now
        waiting = {channel.table for channel in self.channels if channel.outlet is not None}
        store.forget_before(time.time() - self.keep, set(LINES) - waiting)

    def advance(self, seconds: float) -> None:
        """Write models of the commit that is under way for so long, and end it once all are written."""
        if self.fleet.continue_commit(seconds):
            self._complete()
            self._pause = (1.0 / COMMIT_SHARE - 1.0) * self.fleet.commit_seconds

    def _complete(self) -> None:
        """After a commit: nothing up to the marked event need be sent again, and others may get it."""
        self.is_under_way = False
        self.feed.acknowledge()
        self._deliver()
        self._committed_at = self._flushed_at = time.monotonic()

    def _position(self, n_bad: int, more: dict[str, Any]) -> Position:
        lines = self.channels.lines
        more = {
            "feed": self._after, **more,
            "files": {name: None if file is None else list(file) for name, file in self.files.items()},
            "format": None if lines is None else lines.format,
            "targets": None if lines is None else list(lines.targets),
        }  # fmt: skip
        # Before the first row of this run, that of the last commit.
        last = self._last or self.resumed
        offset, number = (0, 0) if last is None else (last.offset, last.number)
        return Position(self.name, offset, number, n_bad, more)

    def flush(self) -> None:
        """Let others see what was written to files."""
        self.channels.flush()
        self._flushed_at = time.monotonic()

    def _deliver(self) -> None:
        # Not while models wait for their commit in the store, which would get there without the position of the feed.
        if self.fleet.store is not None and not self.fleet.store.has_uncommitted:
            self.channels.deliver(self.fleet.store)
        self._delivered_at = time.monotonic()
