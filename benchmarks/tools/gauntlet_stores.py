"""Stores that somebody has changed and given digests that fit: refused in words, or they work.

What a run has left is changed in one place: a model (as `benchmarks.tools.gauntlet_files` changes those of files, cut
into blocks with digests that fit), what belongs to all models (position, totals, notes, times of lines), pages of
lines, a column of a table, the schema, or bytes of the file. All of the store is then read, models are used, the run
resumes with more rows, and a copy is made, in a process of its own with little memory.
"""

from __future__ import annotations

import io
import json
import sqlite3
import zlib
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.tools.fleet_kills import scratch, start, wait
from benchmarks.tools.gauntlet_files import FAULTS, HOSTILE, change_tree, in_forks, is_said, where
from momostream.cli.app import app
from momostream.storage import container
from momostream.storage.blocks import Parts, packed
from momostream.storage.database import checksum, digest_number
from momostream.storage.lines import Page
from momostream.storage.store import _ENTRY, Store, StoreError, _span

__all__ = ["KINDS", "read_stores"]

KINDS = ("regression", "forecasts")
ROWS, MORE_ROWS = 90, 12
_OPTIONS = ["run", "--key", "turbine", "--quiet", "-t", "power", "--set", "max_points=16", "--alarms", "store"]
_OF_KIND = {
    "regression": ["-i", "wind", "--set", "tuning_evaluations=0", "--warm-start"],
    "forecasts": ["-i", "wind", "--horizon", "2", "--set", "experts=('last value', 'own lags', 'matern32')"],
}
SCHEMAS = (
    "CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM models; END",
    "ALTER TABLE sources RENAME TO s; CREATE VIEW sources AS SELECT * FROM s",
    "ALTER TABLE models RENAME TO m; CREATE VIEW models AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) "
    "SELECT * FROM m, n",
    "DROP TABLE alarms",
    "ALTER TABLE models ADD COLUMN more",
    "ALTER TABLE meta DROP COLUMN value",
    "DELETE FROM meta WHERE name = 'totals'",
)


@cache
def bomb() -> bytes:
    """A few megabytes that unpack to a thousand times as many."""
    packer, zeros = zlib.compressobj(1), bytes(1 << 20)
    return b"".join([*(packer.compress(zeros) for _ in range(1024)), packer.flush()])


def rows(n_rows: int, first: int = 0) -> str:
    """Rows of two turbines, with a bad one among them."""
    random, lines = Random(0), []
    for number in range(n_rows):
        wind = random.gauss(8.0, 2.0)
        row = {"turbine": f"T{number % 2}", "time": f"2024-01-01T{number // 60:02d}:{number % 60:02d}:00"}
        power: Any = "broken" if number % 41 == 40 else round(wind**2, 2)
        lines.append(json.dumps({**row, "wind": round(wind, 2), "power": power}))
    return "".join(f"{line}\n" for line in lines[first:])


@cache
def base(kind: str) -> bytes:
    """A store that this version writes."""
    with scratch() as folder:
        (folder / "farm.jsonl").write_text(rows(ROWS))
        if wait(start(command(kind, folder), folder / "log")):
            raise RuntimeError((folder / "log").read_text()[-2000:])
        with sqlite3.connect(folder / "farm.db") as db:
            db.execute("PRAGMA journal_mode=DELETE")
        db.close()
        return (folder / "farm.db").read_bytes()


def command(kind: str, folder: Path) -> list[str]:
    """The run that writes, or resumes, the store of a folder."""
    return [*_OPTIONS, *_OF_KIND[kind], str(folder / "farm.jsonl"), "--store", str(folder / "farm.db")]


def change(path: Path, random: Random) -> None:
    """Change one thing in a store, and all digests with it."""
    chance = random.random()
    if chance < 0.1:
        data = bytearray(path.read_bytes())
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        path.write_bytes(data)
        return
    db = sqlite3.connect(path, isolation_level=None)
    try:
        if chance < 0.4:
            change_model(db, random)
        elif chance < 0.65:
            change_meta(db, random)
        elif chance < 0.8:
            change_page(db, random)
        elif chance < 0.95:
            change_column(db, random)
        else:
            # Some cannot be read to the end.
            db.executescript(random.choice(SCHEMAS))
            return
        _mix(db)
    finally:
        db.close()


def _mix(db: sqlite3.Connection) -> None:
    """Make the digest of all models and sources fit again, if there still is something to be made to fit."""
    try:
        row = db.execute("SELECT value FROM meta WHERE name = 'totals'").fetchone()
        totals = container.loads(row[0], "totals")[1]
        mixed = 0
        for key, *values in db.execute("SELECT key, id, kind, n_rows, contents FROM models").fetchmany(1000):
            db.execute("UPDATE models SET checksum = ? WHERE key = ?", [checksum(key, *values), key])
        for query in ("SELECT key, checksum FROM models", "SELECT name, position FROM sources"):
            for row in db.execute(query).fetchmany(1000):
                mixed ^= digest_number(*row)
        totals["mixed"] = mixed
        db.execute("UPDATE meta SET value = ? WHERE name = 'totals'", [container.dumps("totals", totals)])
    except (sqlite3.Error, TypeError, ValueError, LookupError, OverflowError):
        return


def change_model(db: sqlite3.Connection, random: Random) -> None:
    """Change one entry of a model, or its blocks."""
    key, number = random.choice(db.execute("SELECT key, id FROM models ORDER BY key").fetchall())
    start, stop = _span(number)
    query = "SELECT place, bytes FROM blocks WHERE place >= ? AND place < ? ORDER BY place"
    blocks = {place - start: block for place, block in db.execute(query, [start, stop])}
    if random.random() < 0.2:
        position = random.choice(list(blocks))
        blocks[position] = random.choice([b"", b"\x02x", b"\x01x", b"\x01" + zlib.compress(bytes(1 << 24)), b"\x00"])
    else:
        model = _loaded(blocks)
        header = zlib.decompress(model.chunks[0])
        kind, tree = container.assemble(header, b"".join(model.chunks[1:]))
        for _ in range(random.choice([1, 1, 2])):
            change_tree(tree, random)
        try:
            head, arrays = container.take_apart(kind, tree)
        except (TypeError, ValueError):
            return
        parts = Parts(kind, 45, [zlib.compress(head, 1), *map(bytes, arrays)])
        blocks = {position: packed(block) for position, block in parts.changes({}, 4096).write.items()}
    _put(db, key, start, stop, blocks)


def _loaded(blocks: dict[int, bytes]) -> Parts:
    """The parts of a model, from the blocks of a store."""
    from momostream.storage.blocks import unpacked

    chunks: dict[int, bytes] = {}
    for position in sorted(blocks):
        part = position >> 20
        chunks[part] = chunks.get(part, b"") + unpacked(blocks[position])
    return Parts("", 0, [chunks[part] for part in sorted(chunks)])


def _put(db: sqlite3.Connection, key: str, start: int, stop: int, blocks: dict[int, bytes]) -> None:
    from momostream.storage.blocks import digest, unpacked

    db.execute("DELETE FROM blocks WHERE place >= ? AND place < ?", [start, stop])
    entries = []
    for position, block in blocks.items():
        db.execute("INSERT INTO blocks VALUES (?, ?)", [start + position, block])
        try:
            entries.append(_ENTRY.pack(position, digest(unpacked(block))))
        except (ValueError, zlib.error):
            entries.append(_ENTRY.pack(position, bytes(8)))
    db.execute("UPDATE models SET contents = ? WHERE key = ?", [b"".join(entries), key])


def change_meta(db: sqlite3.Connection, random: Random) -> None:
    """Change an entry of what belongs to all models."""
    found = db.execute("SELECT 'meta', name, value FROM meta UNION ALL SELECT 'sources', name, position FROM sources")
    held = [row for row in found.fetchall() if isinstance(row[2], bytes)]
    table, name, value = random.choice(held)
    kind, tree = container.loads(value)
    whole = {"tree": tree}
    change_tree(whole, random)
    try:
        value = container.dumps(kind, whole["tree"])
    except (TypeError, ValueError, KeyError):
        value = b""
    column = "value" if table == "meta" else "position"
    db.execute(f"UPDATE {table} SET {column} = ? WHERE name = ?", [value, name])


def change_page(db: sqlite3.Connection, random: Random) -> None:
    """Change the lines of a page, or what it says of them."""
    table = random.choice(["outputs", "outputs", "dead"])
    row = db.execute(f"SELECT * FROM {table}").fetchone()
    if row is None:
        return
    page = Page(*row)
    lines = json.loads(zlib.decompress(page.packed))
    last = page.last
    what = random.randrange(5)
    if what == 0:
        random.choice(lines)[random.randrange(3)] = random.choice([None, [], {}, 1e999, -1, "x", 1 << 70])
    elif what == 1:
        lines[random.randrange(len(lines))] = random.choice([None, [], {}, "x", [1], [1] * 9])
    elif what == 2:
        last = random.choice([0, 1, last + 1, 1 << 62])
    new = Page.of(last, lines)
    if what == 3:
        new = new._replace(packed=random.choice([b"", b"x", bomb(), zlib.compress(b"[" * 9999)]))
    elif what == 4:
        new = new._replace(n=random.choice([-1, 0, 1 << 40]))
    new = new._replace(crc=zlib.crc32(repr(tuple(new[:3])).encode()))
    db.execute(f"UPDATE {table} SET last = ?, n = ?, bytes = ?, crc = ? WHERE last = ?", [*new, page.last])


def change_column(db: sqlite3.Connection, random: Random) -> None:
    """Set a cell to something else, of any type that SQLite knows."""
    table = random.choice(["meta", "models", "models", "blocks", "sources", "outputs", "dead"])
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    found = db.execute(f"SELECT * FROM {table}").fetchall()
    if not found:
        return
    row, column = random.choice(found), random.choice(columns)
    value = random.choice([v for v in HOSTILE if isinstance(v, int | float | str | bytes | None) and v != 1 << 70])
    try:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {columns[0]} = ?", [value, row[0]])
    except (sqlite3.Error, OverflowError):
        return


def use(path: Path, kind: str) -> None:
    """Read all that a store has, use its models, copy it, and let the run resume."""
    with Store(path, read_only=True, timeout=1.0) as store:
        found = [store.keys(), store.rows(), store.sources(), store.notes, store.identity, store.is_current]
        found += [list(store.outputs()), list(store.alarms()), list(store.dead())]
        for key in store.keys(side=True):
            model = store.load(key)
            model.describe()
        store.backup(path.with_name("copy.db"))
    path.with_name("farm.jsonl").write_text(rows(ROWS + MORE_ROWS))
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            app(command(kind, path.parent), prog_name="momostream", standalone_mode=False)
    except SystemExit:
        # A run that ends with words on what is wrong.
        if "Traceback" in said.getvalue():
            raise AssertionError(said.getvalue()[-400:]) from None


def read_store(kind: str, seed: int, folder: Path) -> str:
    """Change and use a store: "refused", "works", "fails in words", or what is wrong."""
    path = folder / "farm.db"
    for old in folder.iterdir():
        old.unlink()
    path.write_bytes(base(kind))
    change(path, Random(f"{kind} {seed}"))
    try:
        use(path, kind)
    except StoreError as error:
        if isinstance(error.__cause__, MemoryError):
            return "asked for much more memory than its size"
        return "refused" if len(str(error)) > len(str(path)) + 10 else f"refused without words: {error!r}"
    except FAULTS as error:
        return "fails in words" if is_said(error) else f"failed: {error!r} {where(error)}"
    except Exception as error:
        return "fails in words" if is_said(error) else f"failed: {error!r} {where(error)}"
    return "works"


def read_stores(kind: str, seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """Read changed stores in forked processes; counts, and failures by seed."""
    base(kind)
    return in_forks(lambda seed, folder: read_store(kind, seed, folder), seeds)
