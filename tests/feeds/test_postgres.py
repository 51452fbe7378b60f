"""Predictions, alarms and dead letters in PostgreSQL, against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest

from benchmarks.tools.postgres import PASSWORD, USER, Postgres, missing_postgres
from momostream.feeds.outlets import is_outlet, open_outlet
from momostream.feeds.postgres import PostgresOutlet, _read_url
from momostream.feeds.source import FeedError
from momostream.runs.channels import Channel
from momostream.storage.store import Output, Position, Store

pytestmark = pytest.mark.system
needs_postgres = pytest.mark.skipif(bool(missing_postgres()), reason=str(missing_postgres()))


@pytest.fixture(scope="module")
def server():
    with Postgres() as found:
        yield found


@pytest.fixture
def table(request):
    """Of this test only."""
    return request.node.name.replace("[", "_").replace("]", "").replace("-", "_").lower()[:60]


def line(number, key="T1", steps=2):
    ahead = [
        {
            "time": f"2024-03-01T00:{10 * step:02d}:00",
            "power": {"mean": number + step / 10, "lower": 0.5, "upper": None},
        }
        for step in range(1, steps + 1)
    ]
    return number, key, json.dumps({"turbine": key, "row": 100 + number, "steps": ahead})


def numbers(server, table):
    return [number for (number,) in server.rows(f"SELECT number FROM {table} ORDER BY number, step")]


@needs_postgres
def test_forecasts_become_rows(server, table, opened):
    outlet = opened(PostgresOutlet(server.url(table=table), "outputs", "store-a"))
    assert outlet.send([line(1), line(2, "T2")]) == 2
    assert outlet.name == f"postgresql://127.0.0.1:{server.port}/postgres"
    found = server.rows(
        "SELECT store, number, key, row, step, time AT TIME ZONE 'UTC', time_number, target, mean, lower, upper "
        f"FROM {table} ORDER BY number, step"
    )
    at = [datetime(2024, 3, 1, 0, 10), datetime(2024, 3, 1, 0, 20)]
    assert found == [
        ("store-a", number, key, 100 + number, step, at[step - 1], None, "power", number + step / 10, 0.5, None)
        for number, key in ((1, "T1"), (2, "T2"))
        for step in (1, 2)
    ]


@needs_postgres
def test_lines_that_are_sent_again_are_there_once(server, table, opened):
    url = server.url(table=table)
    outlet = opened(PostgresOutlet(url, "outputs", f"store {table}"))
    assert outlet.send(line(number, steps=1) for number in range(1, 2501)) == 2500
    again = opened(PostgresOutlet(url, "outputs", f"store {table}"))
    assert again.send(line(number, steps=1) for number in range(1500, 3001)) == 3000
    assert numbers(server, table) == list(range(1, 3001))
    # Another store has numbers of its own.
    other = opened(PostgresOutlet(url, "outputs", f"other {table}"))
    assert other.send([line(1, steps=1)]) == 1 and len(numbers(server, table)) == 3001


@needs_postgres
def test_two_writers_of_one_store_do_not_double(server, table):
    def write():
        outlet = PostgresOutlet(server.url(table=table), "outputs", f"store {table}")
        for start in range(1, 400, 20):
            assert outlet.send(line(number, steps=1) for number in range(start, start + 20))
        outlet.close()

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert numbers(server, table) == list(range(1, 401))


@needs_postgres
def test_alarms_and_dead_letters(server, table, opened):
    alarm = {"key": "T1", "row": 5, "time": "2024-03-01T00:10:00+01:00", "target": "po\u0000wer", "value": 9.0}
    event = {"row": 6, "time": 17.5, "event": 3, "open": True, "columns": {"power": {"observed": 1}}}
    outlet = opened(PostgresOutlet(server.url(table=table), "alarms", "a"))
    assert outlet.send([(1, "T1", json.dumps(alarm)), (2, "model", json.dumps(event))]) == 2
    first, second = server.rows(
        f"SELECT key, row, time, time_number, target, value, alarm FROM {table} ORDER BY number"
    )
    assert first[:-1] == ("T1", 5, datetime(2024, 2, 29, 23, 10, tzinfo=UTC), None, "po\ufffdwer", 9.0)
    assert second == (None, 6, None, 17.5, None, None, event)
    letter = {"source": "farm.csv", "offset": 5, "key": None, "reason": "\ud800 is not a number", "row": "a,\t\\N,\n"}
    dead = opened(PostgresOutlet(server.url(table=f"{table}_dead"), "dead", "a"))
    assert dead.send([(1, None, json.dumps(letter))]) == 1
    ((source, reason, found),) = server.rows(f"SELECT source, reason, letter FROM {table}_dead")
    assert (source, reason, found["row"]) == ("farm.csv", "? is not a number", "a,\t\\N,\n")


@needs_postgres
def test_predictions_without_steps_and_with_numbers_as_times(server, table, opened):
    outlet = opened(PostgresOutlet(server.url(table=table), "outputs", "a"))
    texts = [
        {
            "row": 7,
            "time": 41,
            "power": {"mean": 1.5, "lower": 1, "upper": 2},
            "load": {"mean": 3, "lower": 2, "upper": 4},
        },
        {"key": 12, "row": 8, "time": None, "power": {"mean": None, "lower": None, "upper": None}},
    ]
    outlet.send((number, "model", json.dumps(text)) for number, text in enumerate(texts, 1))
    assert server.rows(
        f"SELECT key, row, step, time, time_number, target, mean FROM {table} ORDER BY number, target"
    ) == [
        (None, 7, None, None, 41.0, "load", 3.0),
        (None, 7, None, None, 41.0, "power", 1.5),
        ("12", 8, None, None, None, "power", None),
    ]


@needs_postgres
def test_a_server_that_is_killed(table, opened):
    troubles = []
    with Postgres() as server:
        outlet = opened(PostgresOutlet(server.url(table=table), "outputs", "a", on_trouble=troubles.append))
        assert outlet.send([line(1)]) == 1
        server.kill()
        assert outlet.send([line(2)]) == 0 and outlet.send([line(2)]) == 0
        assert len(troubles) == 1 and "the database cannot be reached" in troubles[0] and PASSWORD not in troubles[0]
        server.start()
        for _ in range(100):
            if outlet.send([line(2), line(3)]) == 3:
                break
            threading.Event().wait(0.1)
        assert numbers(server, table) == [1, 1, 2, 2, 3, 3]


@needs_postgres
def test_what_does_not_pass_is_an_error(server, table, opened, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-password")
    for url, what in [
        (server.url(password_file=str(wrong)), "password authentication failed"),
        (server.url().replace("/postgres?", "/nowhere?"), 'database "nowhere" does not exist'),
        (server.url(table="nowhere.forecasts"), 'schema "nowhere" does not exist'),
    ]:
        with pytest.raises(FeedError, match=what) as error:
            opened(PostgresOutlet(url, "outputs", "a")).send([line(1)])
        assert "not-the-password" not in str(error.value)
    with server.connect() as connection:
        connection.execute(f"CREATE TABLE {table} (number integer)")
    with pytest.raises(FeedError, match="column .* does not exist"):
        opened(PostgresOutlet(server.url(table=table), "outputs", f"s {table}")).send([line(1)])


@needs_postgres
def test_a_full_disk_is_waited_for(server, table, opened):
    troubles = []
    outlet = opened(PostgresOutlet(server.url(table=table), "outputs", f"s {table}", on_trouble=troubles.append))
    assert outlet.send([line(1)]) == 1
    with server.connect() as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql"
        )
        connection.execute(f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()")
        assert outlet.send([line(2)]) == 0
        assert troubles == [f"{outlet.name}: the disk of the database is full; trying again"]
        connection.execute(f"DROP TRIGGER full_disk ON {table}")
    for _ in range(100):
        if outlet.send([line(2)]) == 2:
            break
        threading.Event().wait(0.1)
    assert numbers(server, table) == [1, 1, 2, 2]


def test_urls_are_checked_and_do_not_show_their_secrets(monkeypatch):
    pytest.importorskip("psycopg")
    assert is_outlet("postgresql://h/d") and is_outlet("POSTGRES://h/d") and not is_outlet("http:x")
    for url, what in [
        ("postgresql://h", "has the form"),
        ("postgresql:///d", "has the form"),
        ("postgresql://ann:secret@h:port/d", "has the form"),
        ("postgresql://ann:secret@h/d?tabel=x", "unknown setting tabel"),
        ("postgresql://ann:secret@h/d?table=x;drop", "is not the name of a table"),
        ("postgresql://ann:secret@h/d?ca=/nowhere.pem", "the file that ca names does not exist"),
    ]:
        with pytest.raises(ValueError, match=what) as error:
            open_outlet(url, "outputs", "a")
        assert "secret" not in str(error.value)
    # Not on this machine: only with a certificate that is checked.
    options = _read_url("postgresql://ann@db.example/d", 10)[1]
    assert (options["sslmode"], options["sslrootcert"]) == ("verify-full", "system")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"pip install 'momostream\[postgres\]'"):
        open_outlet("postgresql://h/d", "outputs", "a")


@needs_postgres
def test_a_run_into_a_database_resumes(server, table, tmp_path):
    rows = "".join(f"{n},{(7 * n) % 5 if n != 45 else 900}\n" for n in range(60))
    (tmp_path / "turbine.csv").write_text("time,power\n" + rows + "60,x\n")

    def run(*options):
        command = [sys.executable, "-m", "momostream", "run", "turbine.csv", "-t", "power", "--horizon", "2", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    into = [
        *("-o", server.url(table=table), "--alarms", server.url(table=f"{table}_a"), "--store", "run.db"),
        *("--dead-letters", server.url(table=f"{table}_d"), "--set", "experts=('last value', 'own lags')"),
    ]
    for limit in (["--limit", "20"], []):
        done = run(*into, *limit)
        assert done.returncode == 0 and PASSWORD not in done.stderr, done.stderr
    done = run("-o", "whole.jsonl", "--bad-rows", "skip", "--set", "experts=('last value', 'own lags')")
    assert done.returncode == 0, done.stderr
    whole = [json.loads(text) for text in (tmp_path / "whole.jsonl").read_text().splitlines()]
    expected = [
        (record["row"], step, ahead["power"]["mean"])
        for record in whole
        for step, ahead in enumerate(record["steps"], 1)
    ]
    # Row 20 was the end of a feed once, and got its forecast as any other.
    assert server.rows(f"SELECT row, step, mean FROM {table} ORDER BY number, step") == expected
    assert server.rows(f"SELECT row FROM {table}_a WHERE row = 46") == [(46,)]
    assert server.rows(f"SELECT reason FROM {table}_d") == [("column 'power': 'x' is not a number",)]
    assert PASSWORD.encode() not in (tmp_path / "run.db").read_bytes()
    assert "cannot be written as csv" in run(*into, "--format", "csv").stderr
    asked = run("-o", f"postgresql://{USER}:{PASSWORD}@localhost/d", "--store", "other.db")
    assert asked.returncode and "contains a password" in asked.stderr and PASSWORD not in asked.stderr


@needs_postgres
def test_alarms_that_others_read_stay_in_the_store(server, table, tmp_path, opened):
    def add(store, numbers):
        texts = [json.dumps({"row": number, "target": "power", "value": 1.0}) for number in numbers]
        store.commit({}, source=Position("a", 1, 1), alarms=[Output("T1", 1, text) for text in texts])

    with Store(tmp_path / "a.db") as store:
        outlet = opened(open_outlet(server.url(table=table), "alarms", store.identity))
        channel = Channel("alarms", outlet, keeps=True)
        for numbers in (range(1, 4), range(4, 9)):
            add(store, numbers)
            assert not channel.deliver(store)
        # After a restart the database knows what it has.
        add(store, [9])
        Channel("alarms", opened(open_outlet(server.url(table=table), "alarms", store.identity)), True).deliver(store)
        assert len(list(store.alarms())) == 9
    assert server.rows(f"SELECT number, row FROM {table} ORDER BY number") == [(n, n) for n in range(1, 10)]
