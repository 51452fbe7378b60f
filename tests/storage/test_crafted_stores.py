"""Stores with digests that fit and contents that do not: refused in words, whoever wrote them."""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing

import numpy as np
import pytest

from momostream import MOMoGPRegressor
from momostream.fleet import Fleet
from momostream.storage import container
from momostream.storage.database import checksum, digest_number
from momostream.storage.lines import Page
from momostream.storage.store import Output, Position, Store, StoreError
from tests.storage.stores import small


@pytest.fixture
def crafted(path):
    """Open the database of a small store; all digests are made to fit again before it is read."""
    with Store(path) as store:
        store.commit({"T01": small(30)}, Position("farm", 9, 1), [Output("T01", 1, "{}")], notes={"about": {"a": 1}})

    def change(*statements):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for statement, *values in statements:
                db.execute(statement, values)
            mend(db)
        return path

    return change


def mend(db):
    row = db.execute("SELECT value FROM meta WHERE name = 'totals'").fetchone()
    totals = container.loads(row[0])[1]
    if "mixed" not in totals:
        return
    totals["mixed"] = 0
    for key, *values in db.execute("SELECT key, id, kind, n_rows, contents FROM models").fetchmany(99):
        db.execute("UPDATE models SET checksum = ? WHERE key = ?", [checksum(key, *values), key])
    for query in ("SELECT key, checksum FROM models", "SELECT name, position FROM sources"):
        for row in db.execute(query).fetchmany(99):
            totals["mixed"] ^= digest_number(*row)
    db.execute("UPDATE meta SET value = ? WHERE name = 'totals'", [container.dumps("totals", totals)])


def read_all(path):
    with Store(path, read_only=True) as store:
        return [store.rows(), store.sources(), store.notes, list(store.outputs()), store.load("T01")]


def page_of(path, change):
    """The statement that writes a page of changed lines, with a checksum that fits."""
    with closing(sqlite3.connect(path)) as db:
        page = Page(*db.execute("SELECT * FROM outputs").fetchone())
    new = change(page)
    crc = zlib.crc32(repr(tuple(new[:3])).encode())
    return "UPDATE outputs SET last = ?, n = ?, bytes = ?, crc = ?", *new[:3], crc


def test_what_was_not_changed_is_read(crafted):
    assert len(read_all(crafted())) == 5


def lines(*found):
    return lambda page: page._replace(packed=zlib.compress(json.dumps(found).encode()))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lines(["x"]), "other parts than written"),
        (lines([["str", "T01"], None, "{}"]), "other parts than written"),
        (lines(), "does not have its 1 lines"),
        (lambda page: page._replace(packed=zlib.compress(b"[" * 99_999)), "cannot be read"),
        (lambda page: page._replace(packed=zlib.compress(b" " * (1 << 20) + b"[]", 1)), "unpacks to much more"),
        (lambda page: page._replace(packed=b"xyz"), "incorrect header check"),
        (lambda page: page._replace(n=-1), "missing or altered"),
    ],
)
def test_pages(crafted, path, change, what, monkeypatch):
    monkeypatch.setattr("momostream.storage.lines.MOST_PAGE_BYTES", 1 << 20)
    crafted(page_of(path, change))
    with pytest.raises(StoreError, match=what):
        read_all(path)


@pytest.mark.parametrize(
    ("position", "what"),
    [
        ({"name": "farm"}, "position / offset is missing"),
        ({"name": "farm", "offset": -1, "number": 1, "n_bad": 0, "more": {}}, "position / offset is -1"),
        ({"name": "farm", "offset": 1, "number": 1, "n_bad": 0, "more": {}, "x": 1}, "position / x is unknown"),
        ([], "position is a list"),
    ],
)
def test_positions(crafted, position, what):
    with pytest.raises(StoreError, match=what):
        read_all(crafted(("UPDATE sources SET position = ?", container.dumps("source", position))))


@pytest.mark.parametrize(
    ("notes", "what"),
    [
        ({"about": 7}, "notes / about is 7"),
        ({"kin": [[[], [["str", "a"]], np.zeros(9)]]}, "other numbers than names"),
        ({"kin": [[[], [["moon", "a"]], np.zeros(2)]]}, "moon"),
        ({"kin": [0]}, "an entry of another form"),
        (None, "notes is a NoneType"),
    ],
)
def test_notes_of_a_fleet(crafted, notes, what):
    path = crafted(("UPDATE meta SET value = ? WHERE name = 'notes'", container.dumps("notes", notes)))
    with Store(path, read_only=True) as store, pytest.raises(StoreError, match=what):
        Fleet(MOMoGPRegressor(), store=store)


def test_totals(crafted):
    value = container.dumps("totals", {"next_id": 1})
    with pytest.raises(StoreError, match="totals / mixed is missing"):
        Store(crafted(("UPDATE meta SET value = ? WHERE name = 'totals'", value)), read_only=True)


def test_times_of_lines(crafted):
    value = container.dumps("times", [[1e9, "many", 0, 0]])
    path = crafted(("UPDATE meta SET value = ? WHERE name = 'newest time'", value))
    with Store(path) as store, pytest.raises(StoreError, match="times / outputs is 'many'"):
        store.forget_before(2e9)


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("id", 1 << 62, "model / number"),
        ("id", "one", "model / number"),
        ("contents", b"1234567", "model / contents is cut off"),
        ("contents", 7, "model / contents"),
        ("n_rows", -1, "model / n_rows"),
        ("kind", None, "model / kind"),
    ],
)
def test_rows_of_models(crafted, column, value, what):
    path = crafted((f"UPDATE models SET {column} = ?", value))
    with Store(path, read_only=True) as store, pytest.raises(StoreError, match=what):
        store.load("T01")


@pytest.mark.parametrize(
    "statements",
    [
        [("CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM models; END",)],
        # Reading it would never end.
        [
            ("ALTER TABLE sources RENAME TO s",),
            (
                "CREATE VIEW sources AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) "
                "SELECT name, position FROM s, n",
            ),
        ],
    ],
)
def test_a_store_has_neither_views_nor_triggers(crafted, statements):
    path = crafted()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for (statement,) in statements:
            db.execute(statement)
    with pytest.raises(StoreError, match="it has the (view|trigger)"):
        Store(path, read_only=True)
