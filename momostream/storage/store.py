"""Many models in one file, committed together with the position of their source and with their predictions.

The file is an SQLite database in WAL mode. One commit is one transaction: the models, the position in the source that
they have learnt up to, predictions and rejected rows get there together or not at all, so that a run that resumes from
the position in the store counts no row twice and leaves none out. A commit that has returned survives a loss of power
(``synchronous=FULL``).

A model is cut into the blocks of `momostream.storage.blocks`. A table of contents holds the digest of each block, and
only blocks whose digest has changed are written: rows that were learnt long ago are not written again. All digests are
checked when a model is read, and one over all models and sources when the store is opened, so that a corrupted file
gives a `StoreError` and never another model, or one model less.

There is one writer: it holds a lock on a file beside the store for as long as it lives. Readers need none.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from momostream import __version__
from momostream.storage import container
from momostream.storage.blocks import MOST_BYTES, POSITION_BITS, Parts, digest, packed, unpacked
from momostream.storage.database import FORMAT_VERSION, Database, StoreError, as_bytes, checksum, digest_number
from momostream.storage.keys import Key, is_side_key, key_from_text, key_text, plain_key
from momostream.storage.lines import (
    LINES,
    DeadLetter,
    Output,
    Page,
    letter_from_line,
    letter_line,
    output_from_line,
    output_line,
    pages,
)
from momostream.storage.restoring import ENTRY_BYTES, check_contents, check_notes, check_position, check_times

if TYPE_CHECKING:
    from momostream.storage.blocks import Model

__all__ = ["LINES", "DeadLetter", "Key", "Output", "Position", "Store", "StoreError", "plain_key"]

T = TypeVar("T")
# Limits of a block: smaller than a part of an array may be, larger than the data stored beside each block.
BLOCK_BYTES = (512, MOST_BYTES)
# Seconds from one note of the number of lines to the next, and notes that are kept: those of five years.
NOTE_SECONDS, MOST_NOTES = 3600.0, 50_000
# A block in the table of contents: position within the model, digest.
_ENTRY = struct.Struct("<q8s")
assert _ENTRY.size == ENTRY_BYTES


@dataclass(frozen=True)
class Position:
    """Position of a source.

    Parameters
    ----------
    name
        Of the source.
    offset, number
        Offset after the last row, and its number; as in `momostream.feeds.Row`.
    n_bad
        Rows that were rejected so far.
    more
        Further plain data, as `momostream.storage.container` takes them.
    """

    name: str
    offset: int
    number: int
    n_bad: int = 0
    more: dict[str, Any] = field(default_factory=dict)


class _ModelRow(NamedTuple):
    """A model in the table: checksum, number, and the digests of its blocks by position."""

    checksum: bytes
    number: int
    digests: dict[int, bytes]


class _Staged(NamedTuple):
    """What a commit writes beside models."""

    source: Position | None
    lines: dict[str, list[list[Any]]]
    notes: bytes | None

    @classmethod
    def of(cls, source: Any, outputs: Any, dead: Any, notes: Any, alarms: Any) -> _Staged:
        lines = {
            "outputs": [output_line(output) for output in outputs],
            "alarms": [output_line(alarm) for alarm in alarms],
            "dead": [letter_line(letter) for letter in dead],
        }
        return cls(source, lines, None if notes is None else container.dumps("notes", dict(notes)))


class Store(Database):
    """Models by key, sources, predictions, alarms and rejected rows in one file.

    Parameters
    ----------
    path
        File to open, or to create unless `read_only`. Files of the same name followed by ``-wal``, ``-shm`` and
        ``-lock`` belong to it.
    block_bytes
        Size of the blocks in which changes are written; may differ from opening to opening.
    read_only
        Only read: any number of readers beside one writer. They see each commit once it is complete.
    timeout
        Seconds to wait for a lock that another process holds, in ever longer steps.

    Attributes
    ----------
    bytes_written : int
        Of models, up to the last commit.

    Raises
    ------
    StoreError
        Also by all methods: the file is corrupted or not a store, of a newer format, locked, or the disk is full.
        Earlier commits are unchanged, and the call may be repeated once the reason is removed.

    Notes
    -----
    Only the thread that opened a store may use it. The lock is a transaction on an SQLite file of its own, which the
    system ends with the process, however that ends; the file may stay.

    Examples
    --------
    >>> import tempfile
    >>> from momostream import MOMoGPRegressor
    >>> model = MOMoGPRegressor(seed=0)
    >>> model.learn_one({"wind": 8.0}, {"power": 500.0})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store(f"{folder}/farm.store") as store:
    ...         store.commit({"T01": model}, source=Position("farm.csv", offset=120, number=1))
    ...     with Store(f"{folder}/farm.store", read_only=True) as store:
    ...         print(store.keys(), store.source("farm.csv").offset)
    ...         again = store.load("T01")
    ['T01'] 120
    >>> again.predict_one({"wind": 8.0}) == model.predict_one({"wind": 8.0})
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        block_bytes: int = 4096,
        read_only: bool = False,
        timeout: float = 10.0,
    ) -> None:
        least, most = BLOCK_BYTES
        if not isinstance(block_bytes, int) or not least <= block_bytes <= most:
            raise ValueError(f"block_bytes={block_bytes!r} is not accepted: use an integer from {least} to {most}")
        self.block_bytes = block_bytes
        self.bytes_written = 0
        super().__init__(path, read_only, timeout)

    # ------------------------------------------------------------------ writing

    def put(self, key: Key, model: Model | Parts) -> None:
        """Write the changes of a model, whole or taken apart, to be part of the next commit.

        Until then only this writer sees them; if the commit fails, or none comes, the model in the store is unchanged.
        """
        # Before the transaction: an error inside it would undo all of it.
        text, parts = key_text(key), model if isinstance(model, Parts) else Parts.of(model)
        with self._transaction() as db:
            self._write(db, text, parts)
        self._n_put += 1

    def commit(
        self,
        models: Mapping[Any, Model] | None = None,
        source: Position | None = None,
        outputs: Iterable[Output] = (),
        dead: Iterable[DeadLetter] = (),
        notes: Mapping[str, Any] | None = None,
        alarms: Iterable[Output] = (),
    ) -> None:
        """Write all of this, and all models that were `put` since the last commit, or nothing.

        Parameters
        ----------
        models
            By key: strings, integers, or tuples of them. Others stay as they are.
        source
            Position of the source that the models have learnt up to.
        outputs, dead
            Predictions and rejected rows since the last commit; they continue the numbering.
        notes
            Plain data of the caller; they replace earlier notes.
        alarms
            Since the last commit; they continue the numbering.
        """
        # Before the transaction begins: they may come from this store.
        staged = _Staged.of(source, outputs, dead, notes, alarms)
        with self._transaction() as db:
            for key, model in (models or {}).items():
                self._write(db, key_text(key), Parts.of(model))
            self._stage(db, staged)
            self._set_meta(db, "totals", container.dumps("totals", self._open_totals))
            db.execute("COMMIT")
            # Pages are cached for the commit alone. Kept, they would grow up to the limit within an hour, which looks
            # like a leak.
            db.execute("PRAGMA shrink_memory")
        self.bytes_written, self._n_put, self._open_totals = self._written, 0, {}

    def stage(
        self,
        source: Position | None = None,
        outputs: Iterable[Output] = (),
        dead: Iterable[DeadLetter] = (),
        notes: Mapping[str, Any] | None = None,
        alarms: Iterable[Output] = (),
    ) -> None:
        """Write all of this, to be part of the next commit; as `put` does for a model."""
        staged = _Staged.of(source, outputs, dead, notes, alarms)
        with self._transaction() as db:
            self._stage(db, staged)
        self._n_put += 1

    def _stage(self, db: sqlite3.Connection, staged: _Staged) -> None:
        if staged.source is not None:
            self._write_source(db, staged.source)
        for table, lines in staged.lines.items():
            self._add_lines(db, table, lines)
        if staged.notes is not None:
            self._set_meta(db, "notes", staged.notes)
        self._note_time(db)

    def _note_time(self, db: sqlite3.Connection) -> None:
        """Note when lines came, so that old ones can be removed: now, and once an hour to be kept."""
        now = [time.time(), *(self._open_totals[table] for table in LINES)]
        notes = {"newest time": [now]}
        times = self._line_times("times")
        if not times or now[0] - times[-1][0] >= NOTE_SECONDS:
            notes["times"] = [*times, now][-MOST_NOTES:]
        for name, found in notes.items():
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, container.dumps("times", found)])

    def _line_times(self, name: str) -> list[list[float]]:
        """By time, the number of lines of each table; stores of earlier versions have no such entry."""
        found = self._meta(name)
        return [] if found is None else check_times(container.loads(as_bytes(found), "times")[1])

    def forget_before(self, at: float, tables: Collection[str] = LINES) -> None:
        """Remove lines that were committed before a time, in seconds since 1970, in the next commit.

        Times are kept once an hour: lines stay for an hour longer at most.
        """
        with self._errors():
            noted = [*self._line_times("times"), *self._line_times("newest time")]
        known = [counts for when, *counts in noted if when <= at]
        for table, number in zip(LINES, known[-1] if known else (), strict=False):
            if table in tables and number > self._totals()[f"{table} forgotten"]:
                self.forget(table, int(number))

    def forget(self, table: str, number: int) -> None:
        """Remove the lines up to this number, in the next commit; the others keep their numbers."""
        with self._transaction() as db:
            last = min(number, self._open_totals[table])
            self._open_totals[f"{table} forgotten"] = max(last, self._open_totals[f"{table} forgotten"])
            db.execute(f"DELETE FROM {table} WHERE last <= ?", [last])

    def _add_lines(self, db: sqlite3.Connection, table: str, lines: list[list[Any]]) -> None:
        db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", pages(self._open_totals[table], lines))
        self._open_totals[table] += len(lines)

    def _write(self, db: sqlite3.Connection, key: str, parts: Parts) -> None:
        """Write the changes of a model."""
        totals, row = self._open_totals, self._row(db, key)
        number = totals["next_id"] if row is None else row.number
        try:
            changes = parts.changes({} if row is None else row.digests, self.block_bytes)
        except ValueError as error:
            raise StoreError(f"{self.path}: {error}") from error
        start, _ = _span(number)
        contents = b"".join(_ENTRY.pack(*entry) for entry in changes.digests.items())
        values = number, parts.kind, parts.n_rows, contents
        new_checksum = checksum(key, *values)
        if row is None:
            totals["next_id"] += 1
        elif row.checksum == new_checksum:
            return
        else:
            totals["mixed"] ^= digest_number(key, row.checksum)
        totals["mixed"] ^= digest_number(key, new_checksum)
        written = [(start + position, self._packed(block)) for position, block in changes.write.items()]
        db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?)", written)
        db.executemany("DELETE FROM blocks WHERE place = ?", [(start + position,) for position in changes.remove])
        db.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?, ?)", (key, new_checksum, *values))
        self._written += sum(len(block) for _, block in written) + len(contents)

    def _packed(self, block: bytes) -> bytes:
        return block if self._format == 1 else packed(block)

    def _unpacked(self, block: bytes) -> bytes:
        return block if self._format == 1 else unpacked(block)

    def migrate(self) -> None:
        """Write all models in the form of this version, in one transaction.

        A store of an older format can be used as it is; afterwards it is smaller, and older versions cannot read it.
        """
        before = self._format
        try:
            with self._transaction() as db:
                if not self.is_current:
                    self._pack_blocks(db)
                    self._set_meta(db, "format", FORMAT_VERSION)
                    self._format = FORMAT_VERSION
                self._set_meta(db, "written_by", f"momostream {__version__}")
            for key in self.keys(side=True):
                self.put(key, self.load(key))
            self.commit()
        except BaseException:
            self._format = before
            raise
        self.compact()

    def compact(self) -> None:
        """Give room that is not used back to the disk; takes as much of it for a while."""
        with self._errors():
            self._connection.execute("VACUUM")

    def _pack_blocks(self, db: sqlite3.Connection) -> None:
        query, last = "SELECT place, bytes FROM blocks WHERE place > ? ORDER BY place LIMIT 1000", -1
        while rows := db.execute(query, [last]).fetchall():
            last = rows[-1][0]
            new = [(packed(self._unpacked(as_bytes(block))), place) for place, block in rows]
            db.executemany("UPDATE blocks SET bytes = ? WHERE place = ?", new)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store as of its last commit to a new file, while a run may be writing it.

        The copy gets its name once it is complete and on the disk.
        """
        target = Path(path)
        if target.exists():
            raise StoreError(f"{target}: already exists")
        new = target.with_name(f"{target.name}-new")
        new.unlink(missing_ok=True)
        with self._errors():
            try:
                # As one query: whatever is committed meanwhile is not in it. Without unused pages.
                self._connection.execute("VACUUM INTO ?", [os.fspath(new)])
                copy = self._connect(new.resolve(), "rw")
                copy.execute("PRAGMA journal_mode=WAL")
                copy.close()
                with new.open("rb+") as file:
                    os.fsync(file.fileno())
                os.replace(new, target)
            finally:
                new.unlink(missing_ok=True)
        with suppress(OSError):
            container.sync_folder(os.fspath(target.resolve().parent))

    def _row(self, db: sqlite3.Connection, key: str) -> _ModelRow | None:
        """The row of a model, None if there is none; an error if it was altered."""
        row = db.execute("SELECT * FROM models WHERE key = ?", [key]).fetchone()
        if row is None:
            return None
        _, found, *values = row
        if checksum(key, *values) != found:
            raise self._corrupted(f"the model of {key_from_text(key)!r} is altered")
        check_contents(values)
        number, _, _, contents = values
        return _ModelRow(found, number, dict(_ENTRY.iter_unpack(contents)))

    def _write_source(self, db: sqlite3.Connection, source: Position) -> None:
        totals = self._open_totals
        row = db.execute("SELECT position FROM sources WHERE name = ?", [source.name]).fetchone()
        if row is not None:
            totals["mixed"] ^= digest_number(source.name, row[0])
        position = container.dumps("source", asdict(source))
        totals["mixed"] ^= digest_number(source.name, position)
        db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (source.name, position))

    def delete(self, key: Key) -> None:
        """Remove a model, in the next commit."""
        if key not in self:
            raise KeyError(key)
        text = key_text(key)
        with self._transaction() as db:
            row = self._row(db, text)
            assert row is not None
            self._open_totals["mixed"] ^= digest_number(text, row.checksum)
            db.execute("DELETE FROM blocks WHERE place >= ? AND place < ?", _span(row.number))
            db.execute("DELETE FROM models WHERE key = ?", [text])

    # ------------------------------------------------------------------ reading

    def load(self, key: Key) -> Any:
        """The model of a key, as it was at the last commit; it resumes exactly from there."""
        blocks = self.blocks(key)
        # Here: a store can be read without the models and their compiled code.
        from momostream.storage.models import MISFITS, misfit

        try:
            return Parts.join(blocks)
        except (*MISFITS, zlib.error) as error:
            raise StoreError(
                f"{self.path}: the model of {key!r} does not fit this version ({misfit(error)})"
            ) from error

    def blocks(self, key: Key) -> dict[int, bytes]:
        """The blocks of the model of a key by position, see `momostream.storage.blocks.Parts.join`."""
        text = key_text(key)
        with self._errors(), self._snapshot() as db:
            row = self._row(db, text)
            if row is None:
                raise KeyError(key)
            start, stop = _span(row.number)
            query = "SELECT place, bytes FROM blocks WHERE place >= ? AND place < ? ORDER BY place"
            found = db.execute(query, (start, stop))
            blocks = {place - start: self._unpacked(as_bytes(block)) for place, block in found}
            if {position: digest(block) for position, block in blocks.items()} != row.digests:
                raise self._corrupted(f"blocks of the model of {key!r} are missing or altered")
        return blocks

    def keys(self, side: bool = False) -> list[Key]:
        """Keys of all models, sorted by their `repr`; with ``side`` also those of the monitors beside them."""
        with self._errors():
            found = [key_from_text(text) for (text,) in self._connection.execute("SELECT key FROM models")]
        return sorted((key for key in found if side or not is_side_key(key)), key=repr)

    def rows(self) -> dict[Key, int]:
        """Rows that each model has learnt, by key, sorted by their `repr`."""
        with self._errors():
            found = {key_from_text(text): n for text, n in self._connection.execute("SELECT key, n_rows FROM models")}
        return {key: found[key] for key in sorted(found, key=repr) if not is_side_key(key)}

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.keys())

    def __contains__(self, key: object) -> bool:
        """Whether there is a model of this key."""
        text = key_text(key)
        with self._errors():
            return self._connection.execute("SELECT 1 FROM models WHERE key = ?", [text]).fetchone() is not None

    def source(self, name: str) -> Position | None:
        """Position of a source at the last commit; None if the source is unknown."""
        with self._errors():
            row = self._connection.execute("SELECT position FROM sources WHERE name = ?", [name]).fetchone()
            if row is None:
                return None
            return Position(**check_position(container.loads(as_bytes(row[0]), "source")[1]))

    def sources(self) -> list[Position]:
        """Positions of all sources at the last commit, by name."""
        with self._errors():
            names = [name for (name,) in self._connection.execute("SELECT name FROM sources ORDER BY name")]
        return [position for name in names if (position := self.source(name)) is not None]

    def outputs(self, after: int = 0) -> Iterator[tuple[int, Output]]:
        """Predictions in order, with their numbers, from the first one after number ``after``."""
        yield from self._lines("outputs", after, output_from_line)

    def alarms(self, after: int = 0) -> Iterator[tuple[int, Output]]:
        """Alarms in order, with their numbers, from the first one after number ``after``."""
        yield from self._lines("alarms", after, output_from_line)

    def dead(self, after: int = 0) -> Iterator[tuple[int, DeadLetter]]:
        """Rejected rows in order, with their numbers, from the first one after number ``after``."""
        yield from self._lines("dead", after, letter_from_line)

    def count(self, table: str) -> int:
        """Number of lines that a table of `LINES` has had, including those that were removed."""
        with self._errors():
            return self._totals()[table]

    def _lines(self, table: str, after: int, read: Callable[[Any], T]) -> Iterator[tuple[int, T]]:
        # By pages: a reader that takes its time must not keep the writer from clearing its journal.
        query = f"SELECT * FROM {table} WHERE last > ? ORDER BY last LIMIT 1"
        while True:
            with self._errors(), self._snapshot() as db:
                totals = self._totals()
                after = max(after, totals[f"{table} forgotten"])
                row = db.execute(query, [after]).fetchone()
            if after >= totals[table] and row is None:
                return
            if row is None or not (page := Page(*row)).is_next_after(after):
                raise self._corrupted(f"line {after + 1} of {table} is missing or altered")
            with self._errors():
                lines = [(number, read(line)) for number, line in page.lines() if number > after]
            yield from lines
            after = page.last

    @property
    def notes(self) -> dict[str, Any]:
        """Plain data of the last commit that had notes."""
        with self._errors():
            return check_notes(container.loads(as_bytes(self._meta("notes")), "notes")[1])


def _span(number: int) -> tuple[int, int]:
    return number << POSITION_BITS, (number + 1) << POSITION_BITS
