"""Rows of a Parquet file, through pyarrow, which is imported when a file is opened."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from momostream.feeds.detection import ColumnChoice
from momostream.feeds.formats import BadRow, Json, Rejected, Row, RowReader
from momostream.feeds.lines import feed_error
from momostream.feeds.source import Event, FeedError, FileFeed, printable

__all__ = ["ParquetFeed", "is_complete", "is_parquet"]

EXTENSIONS = (".parquet", ".pq")
# A complete file begins and ends with it.
MAGIC = b"PAR1"
# Rows that are made at once, and rows that are looked at to find which columns hold numbers.
BATCH, LOOK_AHEAD = 1024, 100


def is_parquet(name: str) -> bool:
    """Whether a file is a Parquet file, by its name."""
    return name.lower().endswith(EXTENSIONS)


def is_complete(path: Path) -> bool:
    """Whether a Parquet file has its end, which is written last."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size >= 3 * len(MAGIC):
            file.seek(-len(MAGIC), os.SEEK_END)
            return file.read() == MAGIC
    return False


class ParquetFeed(FileFeed):
    """Rows of a Parquet file.

    Columns inside structures are called ``"sensor.wind"``. A file is read row group by row group and never as a whole,
    and resumed in the row group in which the last reading stopped.

    Parameters
    ----------
    source : path
        Of the file.
    columns, time, bad_rows, on_bad, time_format, key
        As in `momostream.feeds.Feed`.

    Attributes
    ----------
    name, columns, readings, time, unread_time, n_bad, size
        As in `momostream.feeds.Feed`.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pd.DataFrame({"power": [4.5, None]}).to_parquet(f"{folder}/turbine.parquet")
    ...     with ParquetFeed(f"{folder}/turbine.parquet") as feed:
    ...         print([(row.number, row.values) for row in feed])
    [(1, {'power': 4.5}), (2, {})]
    """

    is_replayable, is_live = True, False

    def __init__(
        self,
        source: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        time: str | None = "auto",
        *,
        bad_rows: Literal["stop", "skip"] = "stop",
        on_bad: Callable[[str], object] | None = None,
        time_format: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(printable(os.fspath(source)), bad_rows, on_bad)
        if isinstance(columns, str):
            raise TypeError(f"columns must be a sequence of names, not the string {columns!r}")
        self._arrow = _import_pyarrow()
        self.key = key
        self._number, self._check = 0, 0
        # Columns of the file that are read; None: all.
        self._read: list[str] | None = None
        self._file: Any = None
        try:
            self._open(Path(source))
            self._choose_columns(columns, time, time_format)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            self.size = path.stat().st_size
            if not is_complete(path):
                raise FeedError(f"{self.name}: is not a Parquet file, or not a complete one")
            self._file = self._arrow.parquet.ParquetFile(path)
        except (OSError, self._arrow.ArrowException) as error:
            raise self._error(None, error) from error
        groups = (self._file.metadata.row_group(group) for group in range(self._file.metadata.num_row_groups))
        # Rows up to the end of each row group.
        self._ends: list[int] = []
        for group in groups:
            self._ends.append(group.num_rows + (self._ends[-1] if self._ends else 0))

    def _choose_columns(self, columns: Sequence[str] | None, time: str | None, time_format: str | None) -> None:
        format = Json()
        format.columns = self.columns = tuple(self._names(self._file.schema_arrow))
        choice = ColumnChoice(format, columns, time, self.key, time_format)
        n_rows = 0
        for cells in islice(self._cells(0), LOOK_AHEAD):
            n_rows += 1
            choice.look_at(cells)
            if choice.is_settled:
                break
        try:
            choice.check_asked()
            choice.choose_time(n_rows)
            self.readings = choice.choose_readings(n_rows) if n_rows else tuple(columns or ())
        except BadRow as error:
            raise feed_error(self.name, None, error) from error
        self.time, self.unread_time = choice.time, choice.unread_time
        self._read = [name for name in self.columns if name in {*self.readings, self.time, self.key}]
        self._reader = RowReader(format, self.readings, self.time, self.key, time_format)

    def events(self) -> Iterator[Event]:
        """Rows, and rows that cannot be used."""
        for cells in self._cells(self._number):
            self._number += 1
            text = repr(cells).encode()
            self._check = zlib.crc32(text)
            yield self._reader.event(self._number, self._number, cells, text)

    @property
    def n_read(self) -> int:
        """Bytes of the rows read so far, on average."""
        return self.size * self._number // max(1, self._ends[-1] if self._ends else 1)

    @property
    def position(self) -> dict[str, Any]:
        """Position after the last event; the last row is recognised by its values."""
        return {"number": self._number, "crc": self._check}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after a `position` of an earlier reading of the same file."""
        number = position["number"]
        if number:
            cells = next(self._cells(number - 1), None)
            if cells is None or zlib.crc32(repr(cells).encode()) != position["crc"]:
                raise FeedError(
                    f"{self.name}: is not the file that was read before: row {number} differs from the last run"
                )
        self._number, self._check = number, position["crc"]

    def finish(self) -> None:
        """Do nothing: nothing is written to a Parquet file that has an end."""

    def unfinished(self, event: Row | Rejected) -> None:
        """Return None: rows of a complete file are complete."""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _cells(self, start: int) -> Iterator[dict[str, Any]]:
        """Cells of the rows after the first ``start`` ones, by column."""
        number = start
        try:
            for group, end in enumerate(self._ends):
                begin = self._ends[group - 1] if group else 0
                if end <= start:
                    continue
                for batch in self._file.iter_batches(BATCH, [group], columns=self._read):
                    skipped = min(max(0, start - begin), batch.num_rows)
                    begin += batch.num_rows
                    for cells in self._plain(batch.slice(skipped)).to_pylist():
                        yield cells
                        number += 1
        except (OSError, self._arrow.ArrowException) as error:
            raise self._error(number + 1, error) from error

    def _names(self, schema: Any) -> list[str]:
        names: list[str] = schema.empty_table().flatten().column_names
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise FeedError(f"{self.name}: column {twice[0]!r}: the name occurs twice")
        return names

    def _plain(self, batch: Any) -> Any:
        """A batch with columns of plain numbers, texts and dates."""
        arrow = self._arrow
        table = arrow.Table.from_batches([batch]).flatten()
        for index, field in enumerate(table.schema):
            kind = arrow.types
            wanted = None
            if kind.is_decimal(field.type) or kind.is_float16(field.type):
                wanted = arrow.float64()
            elif kind.is_date(field.type):
                wanted = arrow.timestamp("us")
            elif kind.is_timestamp(field.type) and field.type.unit == "ns":
                # Python's dates have no nanoseconds.
                wanted = arrow.timestamp("us", field.type.tz)
            if wanted is not None:
                column = table.column(index).cast(wanted, safe=False)
                table = table.set_column(index, field.name, column)
        return table

    def _error(self, row: int | None, error: Exception) -> FeedError:
        if isinstance(error, OSError) and error.strerror:
            return feed_error(self.name, None, error)
        where = "" if row is None else f"row {row}: "
        what = " ".join(str(error).split())
        return FeedError(f"{self.name}: {where}cannot be read as Parquet: {what[:200]}")


def _import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ValueError("Parquet needs pyarrow: pip install 'momostream[parquet]'") from None
    return pyarrow
