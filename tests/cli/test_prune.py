"""Retention: `--keep` and `momostream prune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from momostream.serve.book import Book
from momostream.storage import store as storage
from momostream.storage.store import Store
from tests.cli.commands import BY_TURBINE, FORECAST, SOFT, call, farm_text, read

DAY = 86_400.0


@pytest.fixture
def clock(monkeypatch):
    """The time as stores see it."""

    class Clock:
        now = 1_700_000_000.0

        def time(self):
            return self.now

        def __getattr__(self, name):
            import time

            return getattr(time, name)

    found = Clock()
    monkeypatch.setattr(storage, "time", found)
    monkeypatch.setattr("momostream.runs.commits.time", found)
    monkeypatch.setattr("momostream.cli.prune.time", found)
    return found


def run(n, *more):
    Path("farm.csv").write_text("".join(farm_text(40).splitlines(keepends=True)[: 1 + n]))
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db", "-q", *more)


def rows_in_store():
    return [line["row"] for line in read("run.db")]


def test_lines_are_kept_for_as_long_as_asked(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    for n in (30, 60, 90):
        run(n)
        clock.now += DAY
    assert rows_in_store()[-1] == 90
    run(120, "--keep", "36h")
    # Those of the first day are gone, and the others keep their numbers.
    found = rows_in_store()
    assert found[0] > 30 and found[-1] == 120
    with Store("run.db", read_only=True) as store:
        assert store.count("outputs") == 117
        assert next(store.outputs())[0] == 117 - len(found) + 1
    clock.now += 10 * DAY
    call("prune", "run.db", "--keep", "1d")
    assert rows_in_store() == []
    run(120)


def test_lines_for_a_broker_wait_however_old_they_are(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    with Store("run.db") as store:
        store.commit(outputs=[storage.Output("T1", 1, "{}")], alarms=[storage.Output("T1", 1, "{}")])
        clock.now += 100 * DAY
        store.commit()
        store.forget_before(clock.now - DAY, {"alarms"})
        store.commit()
        assert len(list(store.outputs())) == 1 and not list(store.alarms())


def test_models_of_machines_that_are_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = farm_text(40).splitlines(keepends=True)
    # T02 falls silent after ten rows, that is a hundred minutes.
    kept = [line for n, line in enumerate(lines) if not line.startswith("T02") or n < 30]
    Path("farm.csv").write_text("".join(kept))
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "--store", "run.db", "-q")
    book = Book(Path("run.db-page"))
    book.write([], [(key, key, {}, 0) for key in ("x",)], [])
    book.close()
    assert "1 model removed" in call("prune", "run.db", "--silent", "3h")[1]
    with Store("run.db", read_only=True) as store:
        assert store.keys() == ["T01", "T03"]
    assert "no model for key 'T02'" in call("prune", "run.db", "--drop", "T02", code=1)[1]
    call("prune", "run.db", "--drop", "T01", "-q")
    with Store("run.db") as store:
        assert store.keys() == ["T03"]
    assert "nothing to remove" in call("prune", "run.db", code=1)[1]
    assert "farm.csv: is not a store" in call("prune", "farm.csv", "--drop", "T01", code=1)[1]


def test_keep_needs_a_store_and_a_span(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("farm.csv").write_text(farm_text(5))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-q", "-o", "out.csv"]
    assert "--keep removes old lines from a store" in call(*command, "--keep", "1d", code=1)[1]
    assert "is not a span of time" in call(*command, "--keep", "soon", "--store", "run.db", code=1)[1]


def test_the_page_forgets_a_machine():
    from momostream.serve.alarms import AlarmRecord
    from momostream.serve.machines import machine_id

    book = Book(None)
    ids = {key: machine_id(key) for key in ("T1", "T2")}
    fields = {"begin": 1.0, "end": None, "begin_row": 1, "last_row": 1, "severity": "warning", "columns": ["power"]}
    alarms = [
        AlarmRecord(id=f"a{key}", feed="north", machine=id, name=key, why="", n_rows=1, **fields)
        for key, id in ids.items()
    ]
    book.write([(id, 1, b"row") for id in ids.values()], [(id, key, {}, 0) for key, id in ids.items()], alarms)
    book.forget("T1")
    assert [key for key, _, _ in book.machines()] == ["T2"]
    assert [record.name for record in book.alarms(10)] == ["T2"]
    assert json.dumps(book.machines()[0][0]) == '"T2"'
