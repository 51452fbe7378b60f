"""The book beside a store: newest rows, alarms and acknowledgements, so that the page is there again after a restart.

The store alone decides which rows were learnt. The book is written before each commit of the store; rows that a run
learns again after a crash are already in it, and are written once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from momostream.serve.alarms import MOST_RECORDS, AlarmRecord
from momostream.serve.machines import machine_id

__all__ = ["Book"]

FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS machines (id TEXT PRIMARY KEY, key TEXT, about TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (id TEXT, number INTEGER, row BLOB, PRIMARY KEY (id, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alarms (id TEXT PRIMARY KEY, begin REAL, record TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at REAL, name TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sent (url TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
"""

# The inbox shows the newest; twice as many are kept.
_NOT_SHOWN = "DELETE FROM alarms WHERE id NOT IN (SELECT id FROM alarms ORDER BY begin DESC LIMIT ?)"


class Book:
    """What the page shows, in a file.

    Parameters
    ----------
    path
        Of the file; None keeps everything in memory.

    Examples
    --------
    >>> book = Book(None)
    >>> book.acknowledge("a1", at=100.0, by="Ann")
    >>> book.seen()
    {'a1': (100.0, 'Ann')}
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", [FORMAT])
            (version,) = self._db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise ValueError(f"{path}: cannot be used ({error}): move it away, the page then begins afresh") from error
        if version != FORMAT:
            self._db.close()
            raise ValueError(f"{path}: written in format {version}: update momostream, or move the file away")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # ------------------------------------------------------------------ writing

    def write(
        self,
        rows: Iterable[tuple[str, int, bytes]],
        machines: Iterable[tuple[str, Any, dict[str, Any], int]],
        alarms: Iterable[AlarmRecord],
    ) -> None:
        """Write rows, what is kept beside them, and alarms, in one transaction.

        Parameters
        ----------
        rows
            Machine, number and bytes of each.
        machines
            Id, key, what is kept, and the number of the oldest row to keep.
        alarms
            New ones and those that have changed.
        """
        records = [(each.id, each.begin, json.dumps(each.plain())) for each in alarms]
        about = [(id, json.dumps(key), json.dumps(kept), oldest) for id, key, kept, oldest in machines]
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", rows)
                self._db.executemany("INSERT OR REPLACE INTO machines VALUES (?, ?, ?)", [each[:3] for each in about])
                self._db.executemany(
                    "DELETE FROM history WHERE id = ? AND number < ?", [(each[0], each[3]) for each in about]
                )
                self._db.executemany("INSERT OR REPLACE INTO alarms VALUES (?, ?, ?)", records)
                if records:
                    self._db.execute(_NOT_SHOWN, [2 * MOST_RECORDS])
                    self._db.execute("DELETE FROM seen WHERE id NOT IN (SELECT id FROM alarms)")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def acknowledge(self, id: str, at: float, by: str) -> None:
        """Keep that an alarm was acknowledged; the first one counts."""
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (id, at, by))

    def note_sent(self, url: str, number: int) -> None:
        """Keep up to which line of the store an address has got the alarms."""
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO sent VALUES (?, ?)", (url, number))

    def forget(self, key: Any) -> None:
        """Remove a machine, its rows and its alarms."""
        id = machine_id(key)
        with self._lock:
            for table in ("machines", "history"):
                self._db.execute(f"DELETE FROM {table} WHERE id = ?", [id])
            records = self._db.execute("SELECT id, record FROM alarms").fetchall()
            gone = [(alarm,) for alarm, record in records if json.loads(record)["machine"] == id]
            self._db.executemany("DELETE FROM alarms WHERE id = ?", gone)

    # ------------------------------------------------------------------ reading

    def machines(self) -> list[tuple[Any, dict[str, Any], list[bytes]]]:
        """Key, what was kept, and rows in order, of each machine."""
        with self._lock:
            found = self._db.execute("SELECT id, key, about FROM machines").fetchall()
            query = "SELECT row FROM history WHERE id = ? ORDER BY number"
            return [
                (json.loads(key), json.loads(about), [row for (row,) in self._db.execute(query, [id])])
                for id, key, about in found
            ]

    def alarms(self, n: int) -> list[AlarmRecord]:
        """The newest alarms, oldest first."""
        with self._lock:
            found = self._db.execute("SELECT record FROM alarms ORDER BY begin DESC LIMIT ?", [n]).fetchall()
        return [AlarmRecord(**json.loads(record)) for (record,) in reversed(found)]

    def seen(self) -> dict[str, tuple[float, str]]:
        """Acknowledgements by alarm: when, and by whom."""
        with self._lock:
            return {id: (at, name) for id, at, name in self._db.execute("SELECT id, at, name FROM seen")}

    def sent(self, url: str) -> int:
        """The last line of the store that an address has got; 0 if it has none."""
        with self._lock:
            row = self._db.execute("SELECT number FROM sent WHERE url = ?", [url]).fetchone()
        return 0 if row is None else int(row[0])
