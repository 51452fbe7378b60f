"""Stores: what they contain, who may write them, damage."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from momostream.storage.store import Store
from tests.cli.commands import BY_TURBINE, FORECAST, MACHINES, SOFT, call, rows_of


def test_read_starts_after_a_line(farm):
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db", "-q")
    lines = call("read", "run.db", "outputs")[0].splitlines()
    assert len(lines) == 57 and json.loads(lines[-1])["row"] == 60
    assert call("read", "run.db", "--after", "54")[0].splitlines() == lines[54:]
    numbered = call("read", "run.db", "--after", "54", "--numbers")[0].splitlines()
    assert numbered == [f"{n}\t{line}" for n, line in enumerate(lines, 1)][54:]
    assert call("read", "run.db", "--after", "57") == call("read", "run.db", "alarms") == ("", "")


def test_a_store_of_one_model(turbine):
    call("run", "turbine.csv", *FORECAST, "--store", "run.db", "-q")
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", "-q")
    forecast = call("forecast", "run.db")[0]
    assert forecast.splitlines()[0].startswith("row,step,time,power,power lower,power upper,wind")
    assert rows_of(forecast) == [
        {name: row[name] for name in rows_of(forecast)[0]} for row in rows_of(call("forecast", "model.momo")[0])
    ]
    out = call("inspect", "run.db")[0]
    for word in ("run.db", "3 steps ahead", "turbine.csv: read up to row 80: 80 rows learnt, 0 bad", "coverage"):
        assert word in out, word


def test_a_store_of_many_models(farm):
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "--store", "run.db", "-q")
    out = " ".join(call("inspect", "run.db")[0].split())
    assert "3 models, 60 rows" in out and "T02 │ 20" in out and "farm.csv: read up to row 60" in out
    assert "60 predictions, 0 alarms, 0 rejected rows" in out
    assert "MOMoGPForecaster: 20 rows learnt" in call("inspect", "run.db", "--key", "T02")[0]
    every = call("forecast", "run.db")[0]
    assert [row["turbine"] for row in rows_of(every)] == [name for name in MACHINES for _ in range(3)]
    one = call("forecast", "run.db", "--key", "T02")[0]
    assert rows_of(one) == [row for row in rows_of(every) if row["turbine"] == "T02"]
    call("forecast", "run.db", "-o", "all.csv")
    assert Path("all.csv").read_text() == every
    (record,) = map(json.loads, call("forecast", "run.db", "--key", "T02", "--format", "jsonl")[0].splitlines())
    assert record["turbine"] == "T02" and len(record["steps"]) == 3
    call("forecast", "run.db", "--key", "T02", "-o", "f.csv", "--plot", "f.png")
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["forecast", "run.db", "--key", "T1"], "run.db: no model for key 'T1': did you mean 'T01'?"),
        (["inspect", "run.db", "--key", "west"], "run.db: no model for key 'west'\n"),
        (["inspect", "run.db", "--plot", "p.png"], "run.db: contains several models: choose one with --key to plot it"),
        (
            ["forecast", "run.db", "--plot", "p.png"],
            "run.db: contains several models: choose one with --key to plot it",
        ),
        (["forecast", "run.db", "farm.csv", "--key", "T01"], "takes no FEED: it continues after its last row"),
        (["forecast", "run.db", "-n", "9"], "cannot forecast 9 steps with a model of 3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_about_stores_are_one_line(farm, arguments, message):
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "--store", "run.db", "-q")
    out, told = call(*arguments, code=1)
    assert out == "" and message in told and told.startswith("momostream: ") and told.count("\n") == 1


def test_soft_sensors_of_many_machines(farm):
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db", "-q")
    Path("today.csv").write_text("time,wind\n2024-03-02 00:00,7\n2024-03-02 00:10,8\n")
    first, second = (call("forecast", "run.db", "today.csv", "--key", key)[0] for key in ("T01", "T02"))
    assert len(rows_of(first)) == len(rows_of(second)) == 2 and first != second
    out, told = call("forecast", "run.db", "today.csv", code=1)
    assert out == "" and told == "momostream: run.db: contains several models: choose one with --key\n"


def test_a_store_without_models(turbine):
    Store("run.db").close()
    assert "run.db: contains no model yet" in call("forecast", "run.db", code=1)[1]
    assert "0 models, 0 rows" in call("inspect", "run.db")[0] and call("read", "run.db") == ("", "")


def test_there_is_one_writer(turbine, monkeypatch):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db", "-o", "out.csv"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
    monkeypatch.setattr("momostream.storage.store.Store", partial(Store, timeout=0.05))
    with Store("run.db"):
        _, told = call(*command, code=1)
        assert f"run.db: process {os.getpid()} has it open for writing" in told and told.count("\n") == 1
        # Readers need not wait.
        assert len(rows_of(call("forecast", "run.db")[0])) == 3
    assert Path("out.csv").read_bytes() == before
    call(*command)


def flip_one_byte(data):
    """Flip a byte in the middle, where something is written."""
    at = next(i for i in range(len(data) // 2, len(data)) if 0 not in data[i - 24 : i + 24])
    return data[:at] + bytes([255 - data[at]]) + data[at + 1 :]


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "flipped": lambda data: data[: len(data) // 3] + bytes(255 - byte for byte in data[len(data) // 3 :]),
    "zeros": lambda data: data[:1000] + bytes(len(data) - 1000),
    "one byte": flip_one_byte,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupted_store_is_reported(turbine, damage):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db", "-o", "out.csv"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
    # Pages that are free hold what nobody reads.
    with closing(sqlite3.connect("run.db")) as db:
        db.execute("VACUUM")
    Path("run.db").write_bytes(DAMAGES[damage](Path("run.db").read_bytes()))
    for arguments in (command, ["inspect", "run.db"], ["forecast", "run.db"]):
        _, told = call(*arguments, code=1)
        assert "run.db: corrupted, or not a momostream store: " in told and "restore it from a copy" in told
        assert told.startswith("momostream: ") and told.count("\n") == 1
    assert Path("out.csv").read_bytes() == before


def test_a_store_of_a_newer_format(turbine):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    call(*command, "--limit", "30")
    with closing(sqlite3.connect("run.db")) as db, db:
        db.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
    for arguments in (command, ["inspect", "run.db"], ["forecast", "run.db"], ["read", "run.db"]):
        _, told = call(*arguments, code=1)
        assert "run.db: written in format 99 by momostream" in told and "update momostream" in told
        assert told.startswith("momostream: ") and told.count("\n") == 1


def test_a_run_over_parquet_resumes_and_is_that_over_csv(turbine):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.read_csv("turbine.csv", parse_dates=["time"]).to_parquet("turbine.parquet", row_group_size=17)
    command = ["run", "turbine.parquet", *FORECAST, "--store", "run.db", "-o", "parts.csv"]
    call(*command, "--limit", "40")
    assert "resuming after row 40" in call(*command)[1]
    call("run", "turbine.csv", *FORECAST, "-o", "whole.csv")
    assert Path("parts.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert "cannot be followed" in call("run", "turbine.parquet", *FORECAST, "--follow", code=1)[1]
