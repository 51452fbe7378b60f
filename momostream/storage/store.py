"""Many models in one file, committed together with where their source stands and what was predicted.

The file is an SQLite database in WAL mode. One commit is one transaction: the models, the place in the source that they
have learnt up to, predictions and refused rows get there together or not at all, so that whoever goes on from the place
in the store counts no row twice and leaves none out. A commit that has returned survives a loss of power
(``synchronous=FULL``).

A model is cut into the blocks of `momostream.storage.blocks`. A table of contents holds the digest of each block, and
only blocks whose digest has changed are written: rows that were learnt long ago are not written again. All digests are
checked when a model is read, and one over all models and sources when the store is opened, so that a damaged file gives
a `StoreError` and never another model, or one model less.

There is one writer: it holds a lock on a file beside the store for as long as it lives. Readers need none.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from momostream import __version__
from momostream.estimators.vocabulary import Vocabulary
from momostream.storage import container
from momostream.storage.blocks import PLACE_BITS, Parts, digest

if TYPE_CHECKING:
    from momostream.storage.blocks import Model

__all__ = ["LINES", "DeadLetter", "Key", "Output", "Position", "Store", "StoreError", "plain_key"]

#: A text, a whole number, or a tuple of such.
Key: TypeAlias = str | int | tuple[Any, ...]

FORMAT_VERSION = 1
# Blocks are smaller than a part of an array may be, and larger than what comes with each of them.
BLOCK_BYTES = (512, 1 << 20)
# Most arrays of a model are small and change with every row. In pages of 4096 bytes, a turbine of 1,000 rows took a
# quarter more room, and a commit wrote a quarter more.
PAGE_BYTES = 512
# With 2,000, SQLite's own, 1,000 keys wrote a sixth more to the disk and took a seventh longer.
CACHE_KILOBYTES = 65_536
#: Tables of numbered lines.
LINES = ("outputs", "alarms", "dead")
# Lines are kept together, compressed, up to so many: predictions are much alike, and take a fifth of the room so.
PAGE_LINES = 1000

# No table has an index beside it: a damaged one would hide a row that a look through the table still finds.
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE models (
    key TEXT PRIMARY KEY, checksum BLOB, id INTEGER, kind TEXT, n_rows INTEGER, contents BLOB
) WITHOUT ROWID;
CREATE TABLE blocks (place INTEGER PRIMARY KEY, bytes BLOB);
CREATE TABLE sources (name TEXT PRIMARY KEY, position BLOB) WITHOUT ROWID;
CREATE TABLE outputs (last INTEGER PRIMARY KEY, n INTEGER, bytes BLOB, crc INTEGER);
CREATE TABLE alarms (last INTEGER PRIMARY KEY, n INTEGER, bytes BLOB, crc INTEGER);
CREATE TABLE dead (last INTEGER PRIMARY KEY, n INTEGER, bytes BLOB, crc INTEGER);
"""
# A block in the table of contents: place within the model, digest.
_ENTRY = struct.Struct("<q8s")

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNREACHABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}


class StoreError(OSError):
    """A store cannot be used as asked: damaged, locked, of a newer format, or without room on the disk."""


@dataclass(frozen=True)
class Position:
    """Where a source stands.

    Parameters
    ----------
    name
        Of the source.
    offset, number
        Place behind the last row, and its number; as in `momostream.feeds.files.Row`.
    n_bad
        Rows that were refused so far.
    more
        Further plain data, as `momostream.storage.container` takes them.
    """

    name: str
    offset: int
    number: int
    n_bad: int = 0
    more: dict[str, Any] = field(default_factory=dict)


class Output(NamedTuple):
    """A prediction or an alarm: of which model, from which place of the source, and as which text."""

    key: Key
    offset: int
    text: str


class DeadLetter(NamedTuple):
    """A row that was refused: from where, for which model if that is known, why, and the row as text."""

    source: str
    offset: int
    key: Key | None
    reason: str
    row: str


class _ModelRow(NamedTuple):
    """A model in the table: checksum, number, and the digests of its blocks by place within it."""

    checksum: bytes
    number: int
    digests: dict[int, bytes]


class Store:
    """Models by key, sources, predictions, alarms and refused rows in one file.

    Parameters
    ----------
    path
        File to open, or to create unless `read_only`. Files of the same name with ``-wal``, ``-shm`` and ``-lock``
        behind it belong to it.
    block_bytes
        What is written at least where something has changed; may differ from opening to opening.
    read_only
        Only look: any number of readers beside one writer. They see each commit once it is complete.
    timeout
        Seconds to wait for a lock that another process holds, in ever longer steps.

    Attributes
    ----------
    bytes_written : int
        Of models, up to the last commit.

    Raises
    ------
    StoreError
        Also by all methods: the file is damaged or no store, of a newer format, locked, or the disk is full. What was
        committed before is as it was, and the call may be repeated once the reason is gone.

    Notes
    -----
    To be used by the thread that opened it. The lock is a transaction on an SQLite file of its own, which the system
    ends with the process, however that ends; the file may stay.

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
            raise ValueError(f"block_bytes={block_bytes!r} is not accepted: use a whole number from {least} to {most}")
        # Without symbolic links: two names of one store must have one lock.
        self.path = Path(os.path.realpath(path))
        self.block_bytes, self.read_only, self.timeout = block_bytes, read_only, timeout
        self.bytes_written = 0
        # Of the transaction that is open: totals so far, empty if none is, bytes of models, and how many were put.
        self._open_totals: dict[str, int] = {}
        self._written = self._n_put = 0
        # Whether models that had been put are gone with their transaction.
        self._is_lost = False
        self._db: sqlite3.Connection | None = None
        self._lock: sqlite3.Connection | None = None
        try:
            with self._errors():
                self._open()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ opening and closing

    def _open(self) -> None:
        if self.read_only:
            if not self.path.exists():
                raise StoreError(f"{self.path}: there is no such store")
        else:
            self._lock_out_others()
            if not self.path.exists():
                self._create()
        if not self.path.stat().st_size:
            raise self._damage("the file is empty")
        self._db = self._connect(self.path, "ro" if self.read_only else "rw")
        self._check()
        if not self.read_only:
            self._db.execute("PRAGMA synchronous=FULL")
            # A commit of thousands of models touches the same pages again and again.
            self._db.execute(f"PRAGMA cache_size=-{CACHE_KILOBYTES}")

    def _connect(self, path: Path, mode: str) -> sqlite3.Connection:
        db = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=self.timeout, isolation_level=None)
        db.execute("PRAGMA cell_size_check=ON")
        return db

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    def _lock_out_others(self) -> None:
        """Begin a transaction on the file of the lock; others can still read there who has it."""
        self._lock = lock = self._connect(self._beside("-lock"), "rwc")
        try:
            lock.execute("BEGIN IMMEDIATE")
            lock.execute("CREATE TABLE IF NOT EXISTS holder (id INTEGER PRIMARY KEY, pid INTEGER)")
            lock.execute("INSERT OR REPLACE INTO holder VALUES (0, ?)", [os.getpid()])
            lock.execute("COMMIT")
            lock.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY:
                raise
            holder = None
            with suppress(sqlite3.Error):
                holder = lock.execute("SELECT pid FROM holder").fetchone()
            who = "another process" if holder is None else f"process {holder[0]}"
            raise StoreError(
                f"{self.path}: {who} has it open for writing, and there is one writer at a time: "
                "end that one, or open this one with read_only=True"
            ) from error

    def _create(self) -> None:
        """Make an empty store, which gets its name once it is complete."""
        if self._beside("-wal").exists():
            raise self._damage(f"it is missing, though {self._beside('-wal').name} is there")
        new = self._beside("-new")
        new.unlink(missing_ok=True)
        db = self._connect(new, "rwc")
        try:
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.executescript(_SCHEMA)
            meta = {
                "format": FORMAT_VERSION,
                "written_by": f"momostream {__version__}",
                "totals": container.dumps(
                    "totals",
                    {"next_id": 1, "mixed": 0} | {name: 0 for line in LINES for name in (line, f"{line} forgotten")},
                ),
                "notes": container.dumps("notes", {}),
            }
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            db.execute("PRAGMA journal_mode=WAL")
        finally:
            db.close()
        os.replace(new, self.path)
        # The name must be on the disk before the journal is. Some file systems do not let folders be synchronised.
        with suppress(OSError):
            container._sync_folder(os.fspath(self.path.parent))

    def _check(self) -> None:
        """Refuse what is no store, what is of a newer format, and what lacks a model."""
        try:
            version = self._meta("format")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            version = None
        if not isinstance(version, int) or version < 1:
            raise self._damage("it is another kind of database")
        if version > FORMAT_VERSION:
            raise StoreError(
                f"{self.path}: written in format {version} by {self._meta('written_by')}, newer than {FORMAT_VERSION}: "
                "update momostream"
            )
        mixed = 0
        with self._snapshot() as db:
            for query in ("SELECT key, checksum FROM models", "SELECT name, position FROM sources"):
                for row in db.execute(query):
                    mixed ^= _number(*row)
            if mixed != self._totals()["mixed"]:
                raise self._damage("models or sources are missing or altered")

    def close(self) -> None:
        """Give up the lock; what was not committed is not in the store."""
        for connection in (self._db, self._lock):
            if connection is not None:
                connection.close()
        self._db = self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path}: the store has been closed")
        return self._db

    # ------------------------------------------------------------------ writing

    def put(self, key: Key, model: Model) -> None:
        """Write what has changed of a model, to be part of the next commit.

        Until then `load` gives it to this writer only; if the commit fails, or none comes, it is as it was before.
        """
        # Before the transaction: an error there undoes all of it.
        text, parts = _key_text(key), Parts.of(model)
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
        """Write all of this, and what was `put` since the last commit, or nothing.

        Parameters
        ----------
        models
            By key: texts, whole numbers, or tuples of them. Others stay as they are.
        source
            Where the source stands, that the models have learnt up to.
        outputs, dead
            Predictions and refused rows since the last commit; numbered on.
        notes
            Plain data of whoever writes, in place of those before.
        alarms
            Since the last commit; numbered on.
        """
        # All read before the transaction begins: they may come from this store.
        texts = {
            "outputs": [_output_line(output) for output in outputs],
            "alarms": [_output_line(alarm) for alarm in alarms],
            "dead": [_letter_line(letter) for letter in dead],
        }
        with self._transaction() as db:
            for key, model in (models or {}).items():
                self._write(db, _key_text(key), Parts.of(model))
            if source is not None:
                self._write_source(db, source)
            for table, lines in texts.items():
                self._add_lines(db, table, lines)
            if notes is not None:
                self._set_meta(db, "notes", container.dumps("notes", dict(notes)))
            self._set_meta(db, "totals", container.dumps("totals", self._open_totals))
            db.execute("COMMIT")
        self.bytes_written, self._n_put, self._open_totals = self._written, 0, {}

    def forget(self, table: str, number: int) -> None:
        """Remove the lines up to this number, in the next commit; the others keep their numbers."""
        with self._transaction() as db:
            last = min(number, self._open_totals[table])
            self._open_totals[f"{table} forgotten"] = max(last, self._open_totals[f"{table} forgotten"])
            db.execute(f"DELETE FROM {table} WHERE last <= ?", [last])

    def _add_lines(self, db: sqlite3.Connection, table: str, lines: list[list[Any]]) -> None:
        for at in range(0, len(lines), PAGE_LINES):
            page = lines[at : at + PAGE_LINES]
            self._open_totals[table] += len(page)
            # Higher levels take three times as long for a tenth less.
            packed = zlib.compress(json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode(), 1)
            values = self._open_totals[table], len(page), packed
            db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (*values, _crc(values)))

    def _write(self, db: sqlite3.Connection, key: str, parts: Parts) -> None:
        """Write what has changed of a model."""
        totals, row = self._open_totals, self._row(db, key)
        number = totals["next_id"] if row is None else row.number
        try:
            changes = parts.changes({} if row is None else row.digests, self.block_bytes)
        except ValueError as error:
            raise StoreError(f"{self.path}: {error}") from error
        start, _ = _span(number)
        contents = b"".join(_ENTRY.pack(*entry) for entry in changes.digests.items())
        values = number, parts.kind, parts.n_rows, contents
        checksum = _checksum(key, *values)
        if row is None:
            totals["next_id"] += 1
        elif row.checksum == checksum:
            return
        else:
            totals["mixed"] ^= _number(key, row.checksum)
        totals["mixed"] ^= _number(key, checksum)
        written = [(start + place, block) for place, block in changes.write.items()]
        db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?)", written)
        db.executemany("DELETE FROM blocks WHERE place = ?", [(start + place,) for place in changes.remove])
        db.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?, ?)", (key, checksum, *values))
        self._written += sum(map(len, changes.write.values())) + len(contents)

    def _row(self, db: sqlite3.Connection, key: str) -> _ModelRow | None:
        """What is noted about a model, if it is what was written."""
        row = db.execute("SELECT * FROM models WHERE key = ?", [key]).fetchone()
        if row is None:
            return None
        _, checksum, *values = row
        if _checksum(key, *values) != checksum:
            raise self._damage(f"the model of {_key(key)!r} is altered")
        number, _, _, contents = values
        return _ModelRow(checksum, number, dict(_ENTRY.iter_unpack(contents)))

    def _write_source(self, db: sqlite3.Connection, source: Position) -> None:
        totals = self._open_totals
        row = db.execute("SELECT position FROM sources WHERE name = ?", [source.name]).fetchone()
        if row is not None:
            totals["mixed"] ^= _number(source.name, row[0])
        position = container.dumps("source", asdict(source))
        totals["mixed"] ^= _number(source.name, position)
        db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", (source.name, position))

    def delete(self, key: Key) -> None:
        """Remove a model, in the next commit."""
        if key not in self:
            raise KeyError(key)
        text = _key_text(key)
        with self._transaction() as db:
            row = self._row(db, text)
            assert row is not None
            self._open_totals["mixed"] ^= _number(text, row.checksum)
            db.execute("DELETE FROM blocks WHERE place >= ? AND place < ?", _span(row.number))
            db.execute("DELETE FROM models WHERE key = ?", [text])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The transaction that the next commit ends; an error undoes all of it."""
        if self.read_only:
            raise StoreError(f"{self.path}: opened with read_only=True")
        with self._errors():
            db = self._connection
            if self._is_lost:
                raise StoreError(
                    f"{self.path}: models that had left memory since the last commit are lost with it: "
                    "open the store again, and go on from where it stands"
                )
            if not db.in_transaction:
                db.execute("BEGIN IMMEDIATE")
                self._open_totals, self._written = self._totals(), 0
            try:
                yield db
            except BaseException:
                self._is_lost, self._open_totals = self._n_put > 0, {}
                # A full disk may have ended it already.
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    # ------------------------------------------------------------------ reading

    def load(self, key: Key) -> Any:
        """The model of a key, as it was at the last commit; it goes on exactly from there."""
        text = _key_text(key)
        with self._errors(), self._snapshot() as db:
            row = self._row(db, text)
            if row is None:
                raise KeyError(key)
            start, stop = _span(row.number)
            query = "SELECT place, bytes FROM blocks WHERE place >= ? AND place < ? ORDER BY place"
            blocks = {place - start: _bytes(block) for place, block in db.execute(query, (start, stop))}
            if {place: digest(block) for place, block in blocks.items()} != row.digests:
                raise self._damage(f"blocks of the model of {key!r} are missing or altered")
        try:
            return Parts.join(blocks)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StoreError(f"{self.path}: the model of {key!r} does not fit this version ({error})") from error

    def keys(self) -> list[Key]:
        """Keys of all models, sorted by their `repr`."""
        with self._errors():
            return sorted((_key(text) for (text,) in self._connection.execute("SELECT key FROM models")), key=repr)

    def rows(self) -> dict[Key, int]:
        """Rows that each model has learnt, by key, sorted by their `repr`."""
        with self._errors():
            found = {_key(text): n for text, n in self._connection.execute("SELECT key, n_rows FROM models")}
        return {key: found[key] for key in sorted(found, key=repr)}

    def __len__(self) -> int:
        """Return the number of models."""
        with self._errors():
            n: int = self._connection.execute("SELECT count(*) FROM models").fetchone()[0]
            return n

    def __contains__(self, key: object) -> bool:
        """Whether there is a model of this key."""
        text = _key_text(key)
        with self._errors():
            return self._connection.execute("SELECT 1 FROM models WHERE key = ?", [text]).fetchone() is not None

    def source(self, name: str) -> Position | None:
        """Where a source stood at the last commit; None if it is not known."""
        with self._errors():
            row = self._connection.execute("SELECT position FROM sources WHERE name = ?", [name]).fetchone()
            if row is None:
                return None
            return Position(**container.loads(_bytes(row[0]), "source")[1])

    def sources(self) -> list[Position]:
        """Where all sources stood at the last commit, by name."""
        with self._errors():
            names = [name for (name,) in self._connection.execute("SELECT name FROM sources ORDER BY name")]
        return [place for name in names if (place := self.source(name)) is not None]

    def outputs(self, after: int = 0) -> Iterator[tuple[int, Output]]:
        """Predictions in order, with their numbers, from the one behind number ``after`` on."""
        for number, key, *rest in self._lines("outputs", after):
            yield number, Output(_key(key), *rest)

    def alarms(self, after: int = 0) -> Iterator[tuple[int, Output]]:
        """Alarms in order, with their numbers, from the one behind number ``after`` on."""
        for number, key, *rest in self._lines("alarms", after):
            yield number, Output(_key(key), *rest)

    def dead(self, after: int = 0) -> Iterator[tuple[int, DeadLetter]]:
        """Refused rows in order, with their numbers, from the one behind number ``after`` on."""
        for number, source, offset, key, *rest in self._lines("dead", after):
            yield number, DeadLetter(source, offset, None if key is None else _key(key), *rest)

    def count(self, table: str) -> int:
        """How many lines a table of `LINES` has had, those that were forgotten too."""
        with self._errors():
            return self._totals()[table]

    def _lines(self, table: str, after: int) -> Iterator[tuple[Any, ...]]:
        # By pages: a reader that takes its time must not keep the writer from clearing its journal.
        query = f"SELECT * FROM {table} WHERE last > ? ORDER BY last LIMIT 1"
        while True:
            with self._errors(), self._snapshot() as db:
                totals = self._totals()
                after = max(after, totals[f"{table} forgotten"])
                page = db.execute(query, [after]).fetchone()
            if after >= totals[table] and page is None:
                return
            if page is None or page[-1] != _crc(page[:-1]) or page[0] - page[1] > after:
                raise self._damage(f"line {after + 1} of {table} is missing or altered")
            last, n, packed, _ = page
            for number, line in enumerate(json.loads(zlib.decompress(packed)), last - n + 1):
                if number > after:
                    yield number, *line
            after = last

    @property
    def notes(self) -> dict[str, Any]:
        """Plain data that the last commit with notes brought."""
        with self._errors():
            notes: dict[str, Any] = container.loads(_bytes(self._meta("notes")), "notes")[1]
            return notes

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several questions about one state of the store, whatever is committed meanwhile."""
        db = self._connection
        if db.in_transaction:
            yield db
            return
        db.execute("BEGIN")
        try:
            yield db
        finally:
            db.execute("ROLLBACK")

    # ------------------------------------------------------------------ small things

    def _meta(self, name: str) -> Any:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone()
        return None if row is None else row[0]

    def _set_meta(self, db: sqlite3.Connection, name: str, value: bytes) -> None:
        db.execute("UPDATE meta SET value = ? WHERE name = ?", [value, name])

    def _totals(self) -> dict[str, int]:
        """Number of the next model, one digest of models and sources, and of lines the last and the last forgotten."""
        if self._open_totals:
            return self._open_totals
        totals: dict[str, int] = container.loads(_bytes(self._meta("totals")), "totals")[1]
        return totals

    def _damage(self, what: str) -> StoreError:
        return StoreError(f"{self.path}: damaged, or no store of momostream: {what}; restore it from a copy")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what can be done about an error of the database, or about data that make no sense."""
        try:
            yield
        except StoreError:
            raise
        except sqlite3.Error as error:
            # The last byte: what is above it are special cases of it.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                what = (
                    f"locked for more than {self.timeout:g} s by another process, such as a database browser or a "
                    "backup: close it and try again"
                )
            elif code == sqlite3.SQLITE_FULL:
                what = "the disk is full; the store is as it was at the last commit: make room and try again"
            elif code in _UNREACHABLE:
                what = f"cannot be read or written ({error}): look at the folder, its permissions and its disk"
            elif isinstance(error, sqlite3.ProgrammingError):
                what = str(error)
            else:
                raise self._damage(str(error)) from error
            raise StoreError(f"{self.path}: {what}") from error
        # The second is what `sqlite3` makes of names that are no text any more.
        except (container.FileFormatError, UnicodeDecodeError, struct.error) as error:
            raise self._damage(str(error)) from error


def plain_key(key: Any) -> Key:
    """Return a key without numpy.

    Raises
    ------
    TypeError
        For keys other than texts, whole numbers, and tuples of them.

    Examples
    --------
    >>> plain_key(("farm", 3))
    ('farm', 3)
    >>> plain_key(3.5)
    Traceback (most recent call last):
    TypeError: the key 3.5 is a float: use texts, whole numbers, or tuples of them
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    (plain,) = Vocabulary([key]).keys
    if type(plain) is tuple:
        return tuple(map(plain_key, plain))
    if isinstance(plain, str | int) and type(plain) in {str, int}:
        return plain
    raise TypeError(f"the key {key!r} is a {kind.__name__}: use texts, whole numbers, or tuples of them")


def _key_text(key: Any) -> str:
    (state,) = Vocabulary([plain_key(key)]).state()
    return json.dumps(state)


def _key(text: str) -> Key:
    try:
        (key,) = Vocabulary.from_state([json.loads(text)]).keys
        return plain_key(key)
    except (TypeError, ValueError) as error:
        raise container.FileFormatError(f"the key {text!r} makes no sense") from error


def _output_line(output: Output) -> list[Any]:
    return [_key_text(output.key), int(index(output.offset)), _text(output.text, "output")]


def _letter_line(letter: DeadLetter) -> list[Any]:
    key = None if letter.key is None else _key_text(letter.key)
    texts = _text(letter.reason, "reason"), _text(letter.row, "row")
    return [_text(letter.source, "source"), int(index(letter.offset)), key, *texts]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the {what} must be a text, got a {type(value).__name__}")
    return value


def _checksum(*fields: Any) -> bytes:
    # By `repr`: in a damaged file a text may have become a number.
    return digest(repr(fields).encode())


def _crc(values: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(values).encode())


def _number(*fields: Any) -> int:
    return int.from_bytes(_checksum(*fields), "little") >> 1


def _bytes(value: Any) -> bytes:
    """Refuse what damage has made of bytes."""
    if not isinstance(value, bytes):
        raise container.FileFormatError(f"a {type(value).__name__} where bytes should be")
    return value


def _span(number: int) -> tuple[int, int]:
    return number << PLACE_BITS, (number + 1) << PLACE_BITS
