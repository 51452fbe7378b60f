"""All files of a folder as one feed."""

from __future__ import annotations

import os
import stat
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from momostream.feeds.detection import FORMATS, extension_of, without_gz
from momostream.feeds.files import PAUSE, Feed
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.lines import BUFFER_SIZE, feed_error
from momostream.feeds.parquet import ParquetFeed, is_complete, is_parquet
from momostream.feeds.source import Event, FeedError, printable

__all__ = ["Folder", "open_parquet"]


def open_parquet(
    path: Path, columns: Sequence[str] | None, time: str | None, key: str | None, options: dict[str, Any]
) -> ParquetFeed:
    """Open a Parquet file with the options of a `Feed`; those of text do not concern it."""
    known = {name: options[name] for name in ("bad_rows", "on_bad", "time_format") if name in options}
    return ParquetFeed(path, columns, time, key=key, **known)


class _LaterFile(Feed):
    """A later file of a folder: columns are known, and it may lack some of them, whose readings are then missing."""

    _may_lack_columns = True


class Folder:
    r"""All files of a folder, in the order of their names, as one feed.

    Files are CSV, JSON lines or line protocol, plain or gzip, or Parquet, by their extension; others, and those whose
    name begins with a dot, are ignored. The columns are those of the first; a later file need not have all of them, and
    readings that it lacks are missing.

    Parameters
    ----------
    path : path
        Of the folder.
    columns, time, key, follow, **options
        As in `Feed`. A folder that is followed may get new files; their names must sort after those that are there.
        When one comes, the file before it is taken as complete. A Parquet file is read once it is complete.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day, power in (("monday", 4.5), ("tuesday", 4.7)):
    ...         _ = Path(folder, f"{day}.csv").write_text(f"power\n{power}\n")
    ...     with Folder(folder) as feed:
    ...         print([(row.number, row.values) for row in feed.events()], feed.position["file"])
    [(1, {'power': 4.5}), (2, {'power': 4.7})] tuesday.csv
    """

    is_replayable = True

    @property
    def is_live(self) -> bool:
        """Whether new files are waited for."""
        return self.follow

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        time: str | None = "auto",
        *,
        key: str | None = None,
        follow: bool = False,
        **options: Any,
    ) -> None:
        self.path, self.name, self.follow = Path(path), printable(os.fspath(path)), follow
        self.key, self._options = key, options
        first = self._next("")
        if first is None:
            raise FeedError(f"{self.name}: there is no CSV, JSON lines, line protocol or Parquet file in this folder")
        self._rows_before = self._bytes_before = 0
        self._feed, self._file = self._open(first, columns, time, Feed), first
        self.columns, self.readings, self.time = self._feed.columns, self._feed.readings, self._feed.time
        self.unread_time = self._feed.unread_time

    def _open(
        self, name: str, columns: Sequence[str] | None, time: str | None, kind: type[Feed] = _LaterFile
    ) -> Feed | ParquetFeed:
        if is_parquet(name):
            return open_parquet(self.path / name, columns, time, self.key, self._options)
        follow = self.follow and without_gz(name) == name
        return kind(self.path / name, columns, time, key=self.key, follow=follow, **self._options)

    def _names(self) -> list[str]:
        """Names of the files that are not empty, in order."""
        try:
            found = os.listdir(self.path)
        except OSError as error:
            raise feed_error(self.name, None, error) from error
        known = (name for name in found if extension_of(name) in FORMATS or is_parquet(name))
        named = [name for name in known if not name.startswith(".")]
        return sorted((name for name in named if self._size_of(name)), key=lambda name: (without_gz(name), name))

    def _size_of(self, name: str) -> int:
        """Bytes of a file; 0 where it does not exist, or is not a regular file."""
        try:
            about = (self.path / name).stat()
        except FileNotFoundError:
            return 0
        return about.st_size if stat.S_ISREG(about.st_mode) else 0

    def _next(self, name: str) -> str | None:
        # A file that was compressed in the meantime is still the same file.
        found = next((other for other in self._names() if without_gz(other) > without_gz(name)), None)
        # A file that is followed counts once its first line is complete.
        return found if found is None or not self.follow or self._has_begun(found) else None

    def _has_begun(self, name: str) -> bool:
        if is_parquet(name):
            return is_complete(self.path / name)
        try:
            with (self.path / name).open("rb") as file:
                return without_gz(name) != name or b"\n" in file.read(BUFFER_SIZE)
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def events(self) -> Iterator[Event]:
        """Rows of all files, rows that cannot be read, and None while nothing comes."""
        while True:
            for event in self._feed.events():
                if event is None:
                    if self._next(self._file) is not None:
                        self._feed.finish()
                    yield None
                elif self._rows_before:
                    yield event._replace(number=event.number + self._rows_before)
                else:
                    yield event
            following = self._next(self._file)
            while following is None:
                if not self.follow:
                    return
                yield None
                clock.sleep(PAUSE)
                following = self._next(self._file)
            # All at once, and only if it can be opened: an error leaves the position as it was.
            feed, before = self._open(following, self.readings, self.time), self._feed
            self._rows_before += before.position["number"]
            self._bytes_before += before.size or 0
            self._feed, self._file = feed, following
            before.close()

    @property
    def size(self) -> int:
        """Bytes of all files on disk."""
        return sum(map(self._size_of, self._names()))

    @property
    def n_read(self) -> int:
        """Bytes read: `size` when all is read."""
        return self._bytes_before + self._feed.n_read

    @property
    def position(self) -> dict[str, Any]:
        """Position after the last event: file, position in it, and rows before it."""
        return self._in_file(self._feed.position)

    def _in_file(self, position: dict[str, Any]) -> dict[str, Any]:
        return position | {"file": self._file, "rows_before": self._rows_before}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading."""
        names = self._names()
        # It may have been compressed since.
        wanted = position.get("file", "")
        name = next((name for name in names if without_gz(name) == without_gz(wanted)), None)
        if name is None:
            raise FeedError(
                f"{self.name}: the file in which the last run stopped is missing: {wanted or 'its name is unknown'}"
            )
        self._feed.close()
        self._feed, self._file = self._open(name, self.readings, self.time), name
        if self._next(name) is not None:
            # Nothing more will be written to it, nor was when its last line was read.
            self._feed.finish()
        self._feed.seek(position)
        self._rows_before = position["rows_before"]
        self._bytes_before = sum(self._size_of(other) for other in names if without_gz(other) < without_gz(name))

    def acknowledge(self) -> None:
        """Do nothing: files stay as they are."""

    def unfinished(self, event: Row | Rejected) -> dict[str, Any] | None:
        """Position before the last event, if that has no newline: someone may still be writing it."""
        before = self._feed.unfinished(event)
        return None if before is None or self._next(self._file) is not None else self._in_file(before)

    def close(self) -> None:
        """Close the current file."""
        self._feed.close()
