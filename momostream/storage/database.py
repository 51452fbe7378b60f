"""The SQLite file of a store: creation, the lock of its one writer, transactions, and errors in words."""

from __future__ import annotations

import os
import sqlite3
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from momostream import __version__
from momostream.storage import container
from momostream.storage.blocks import digest
from momostream.storage.lines import LINES
from momostream.storage.restoring import check_totals

__all__ = ["Database", "StoreError", "as_bytes", "checksum", "digest_number"]

# 2: blocks begin with a byte that says whether they are compressed.
FORMAT_VERSION = 2
# Most arrays of a model are small and change with every row. In pages of 4096 bytes, a turbine of 1,000 rows took a
# quarter more room, and a commit wrote a quarter more.
PAGE_BYTES = 512
# With 2,000, SQLite's own, 1,000 keys wrote a sixth more to the disk and took a seventh longer.
CACHE_KILOBYTES = 65_536

# No table has an index beside it: a corrupted index would hide a row that a scan of the table still finds.
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
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNREACHABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM}


class StoreError(OSError):
    """A store cannot be used as asked: corrupted, locked, of a newer format, or on a full disk."""


class Database:
    """The file of a store, its lock and its transactions.

    Parameters
    ----------
    path, read_only, timeout
        As in `momostream.store.Store`.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool, timeout: float) -> None:
        # Without symbolic links: two names of one store must have one lock.
        self.path = Path(os.path.realpath(path))
        self.read_only, self.timeout = read_only, timeout
        # Of the open transaction: totals so far (empty if none is open), bytes of models, and how many were put.
        self._open_totals: dict[str, int] = {}
        self._written = self._n_put = 0
        self._format = FORMAT_VERSION
        # Whether models that had been put were lost with their transaction.
        self._is_lost = False
        self._db: sqlite3.Connection | None = None
        self._lock: sqlite3.Connection | None = None
        try:
            with self._errors():
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.read_only:
            if not self.path.exists():
                raise StoreError(f"{self.path}: there is no such store")
        else:
            self._lock_out_others()
            if not self.path.exists():
                self._create()
        if not self.path.stat().st_size:
            raise self._corrupted("the file is empty")
        self._db = self._connect(self.path, "ro" if self.read_only else "rw")
        self._check()
        if not self.read_only:
            self._db.execute("PRAGMA synchronous=FULL")
            if not self._meta("identity"):
                # A store of an earlier version.
                self._db.execute("INSERT INTO meta VALUES ('identity', ?)", [uuid.uuid4().hex])
            # A commit of thousands of models touches the same pages again and again.
            self._db.execute(f"PRAGMA cache_size=-{CACHE_KILOBYTES}")

    def _connect(self, path: Path, mode: str) -> sqlite3.Connection:
        db = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=self.timeout, isolation_level=None)
        db.execute("PRAGMA cell_size_check=ON")
        # Whatever else the file defines may not call functions that reach beyond it.
        db.execute("PRAGMA trusted_schema=OFF")
        return db

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    def _lock_out_others(self) -> None:
        """Begin a transaction on the file of the lock; others can still read there which process has it."""
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
                f"{self.path}: {who} has it open for writing, and only one writer is possible: "
                "end that process, or open the store with read_only=True"
            ) from error

    def _create(self) -> None:
        """Make an empty store, which gets its name once it is complete."""
        if self._beside("-wal").exists():
            raise self._corrupted(f"it is missing, but {self._beside('-wal').name} is there")
        new = self._beside("-new")
        new.unlink(missing_ok=True)
        db = self._connect(new, "rwc")
        try:
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.executescript(_SCHEMA)
            meta = {
                "format": FORMAT_VERSION,
                "written_by": f"momostream {__version__}",
                "identity": uuid.uuid4().hex,
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
        # The name must be on the disk before the journal is. Some file systems cannot synchronise folders.
        with suppress(OSError):
            container.sync_folder(os.fspath(self.path.parent))

    def _check(self) -> None:
        """Raise an error for files that are not stores, are of a newer format, or lack a model."""
        try:
            version = self._meta("format")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            version = None
        if not isinstance(version, int) or version < 1:
            raise self._corrupted("it is another kind of database")
        if version > FORMAT_VERSION:
            raise StoreError(
                f"{self.path}: written in format {version} by {self._meta('written_by')}, newer than {FORMAT_VERSION}: "
                "update momostream"
            )
        self._format = version
        mixed = 0
        with self._snapshot() as db:
            # A view may never end, and a trigger changes what was not asked for.
            others = db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()
            if others is not None:
                raise self._corrupted("it has the {} {!r}".format(*others))
            for query in ("SELECT key, checksum FROM models", "SELECT name, position FROM sources"):
                for row in db.execute(query):
                    mixed ^= digest_number(*row)
            if mixed != self._totals()["mixed"]:
                raise self._corrupted("models or sources are missing or altered")

    def close(self) -> None:
        """Release the lock; changes that were not committed are dropped."""
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

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The open transaction, which the next commit ends; an error undoes all of it."""
        if self.read_only:
            raise StoreError(f"{self.path}: opened with read_only=True, so nothing can be written to it")
        with self._errors():
            db = self._connection
            if self._is_lost:
                raise StoreError(
                    f"{self.path}: an error rolled back models that had left memory since the last commit: "
                    "open the store again, and resume from its last commit"
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

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several queries of one state of the store, whatever is committed meanwhile."""
        db = self._connection
        if db.in_transaction:
            yield db
            return
        db.execute("BEGIN")
        try:
            yield db
        finally:
            db.execute("ROLLBACK")

    @property
    def is_current(self) -> bool:
        """Whether the file has the format that this version writes; `migrate` brings it there."""
        return self._format == FORMAT_VERSION

    @property
    def has_uncommitted(self) -> bool:
        """Whether something was written that waits for the next commit."""
        return self._connection.in_transaction

    def _meta(self, name: str) -> Any:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone()
        return None if row is None else row[0]

    @property
    def identity(self) -> str:
        """A name that no other store has, but for copies of this one; empty if it was written by an earlier version."""
        with self._errors():
            return str(self._meta("identity") or "")

    def _set_meta(self, db: sqlite3.Connection, name: str, value: bytes | int | str) -> None:
        db.execute("UPDATE meta SET value = ? WHERE name = ?", [value, name])

    def _totals(self) -> dict[str, int]:
        """Number of the next model, one digest of models and sources, last and last removed line of each table."""
        if self._open_totals:
            return self._open_totals
        return check_totals(container.loads(as_bytes(self._meta("totals")), "totals")[1])

    def _corrupted(self, what: str) -> StoreError:
        return StoreError(f"{self.path}: corrupted, or not a momostream store: {what}; restore it from a copy")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in words what to do about an error of the database, or about data that cannot be read."""
        try:
            yield
        except StoreError:
            raise
        except sqlite3.Error as error:
            # The last byte: the bytes above it are special cases.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                what = (
                    f"locked for more than {self.timeout:g} s by another process, such as a database browser or a "
                    "backup: close it and try again"
                )
            elif code == sqlite3.SQLITE_FULL:
                what = "the disk is full; the store is as it was at the last commit: make room and try again"
            elif code in _UNREACHABLE:
                what = f"cannot be read or written ({error}): check the folder, its permissions and its disk"
            elif isinstance(error, sqlite3.ProgrammingError):
                what = str(error)
            else:
                raise self._corrupted(str(error)) from error
            raise StoreError(f"{self.path}: {what}") from error
        # `sqlite3` raises the second for names that are not valid text any more.
        except (container.FileFormatError, UnicodeDecodeError, struct.error, zlib.error) as error:
            raise self._corrupted(str(error)) from error


def checksum(*fields: Any) -> bytes:
    """A digest of these fields."""
    # By `repr`: in a corrupted file a text may have become a number.
    return digest(repr(fields).encode())


def digest_number(*fields: Any) -> int:
    """A digest of these fields as an integer, to be combined with others."""
    return int.from_bytes(checksum(*fields), "little") >> 1


def as_bytes(value: Any) -> bytes:
    """The value, if it is still bytes; an error if corruption has changed its type."""
    if not isinstance(value, bytes):
        raise container.FileFormatError(f"a {type(value).__name__} where bytes should be")
    return value
