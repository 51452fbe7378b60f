"""The command line as a user meets it: what it says, what it writes, how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import momostream
from momostream.cli import demo
from momostream.cli import main as cli
from momostream.show import inspection
from momostream.show import terminal as live
from momostream.storage import container
from momostream.storage.models import to_tree
from momostream.storage.store import Store

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "momostream"]
QUICK = ["--set", "experts=('last value', 'own lags')"]
FORECAST = ["-t", "power", "-t", "wind", "--horizon", "3", *QUICK]
SOFT = ["-t", "power", "-i", "wind"]
BY_TURBINE = ["--key", "turbine"]


def feed_text(n, seed=0):
    rng = np.random.default_rng(seed)
    wind, lines = 8.0, ["time,wind,pitch,power,state"]
    for t in range(n):
        wind += 0.2 * (8.0 - wind) + 0.5 * rng.normal()
        stamp = f"2024-03-{1 + t // 144:02d} {t // 6 % 24:02d}:{10 * (t % 6):02d}"
        lines.append(f"{stamp},{wind:.3f},{rng.uniform(0, 4):.2f},{wind**3 + rng.normal():.2f},on")
    return "\n".join(lines) + "\n"


MACHINES = ("T01", "T02", "T03")


def farm_text(n, machines=MACHINES):
    """Rows of several machines in turn."""
    header, *_ = feed_text(1).splitlines()
    columns = [[f"{name},{line}" for line in feed_text(n, seed).splitlines()[1:]] for seed, name in enumerate(machines)]
    return "\n".join([f"turbine,{header}", *(line for lines in zip(*columns, strict=True) for line in lines)]) + "\n"


def without_last_column(text):
    return "".join(line.rsplit(",", 1)[0] + "\n" for line in text.splitlines())


def as_json_lines(text):
    """A CSV as JSON lines, numbers as numbers."""
    records = []
    for row in rows_of(text):
        numbers = {name: float(row[name]) for name in ("wind", "pitch", "power")}
        records.append(json.dumps({name: row[name] for name in ("turbine", "time")} | numbers))
    return "\n".join(records) + "\n"


@pytest.fixture
def turbine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("turbine.csv").write_text(feed_text(80))
    return tmp_path


@pytest.fixture
def farm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("farm.csv").write_text(farm_text(20))
    return tmp_path


def call(*arguments, code=0):
    """Run a command in this process; standard output and standard error."""
    done = CliRunner().invoke(cli.app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], env=environment, **options)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def lines_of(name):
    return Path(name).read_text().splitlines()


def models_in(name):
    """All models of a store by key, as bytes."""
    with Store(name, read_only=True) as store:
        return {key: container.dumps(*to_tree(store.load(key))) for key in store.keys()}


def load_from(name, key="model"):
    with Store(name, read_only=True) as store:
        return store.load(key)


def read(*arguments):
    """What a store keeps, as objects."""
    return [json.loads(line) for line in call("read", *arguments)[0].splitlines()]


# ---------------------------------------------------------------------- run


def test_run_forecasts(turbine):
    out, told = call("run", "turbine.csv", *FORECAST)
    rows = rows_of(out)
    assert len(rows) == 80 * 3 and list(rows[0])[:4] == ["row", "step", "time", "power"]
    assert rows[-1]["time"] == "2024-03-01T13:40:00" and rows[-1]["row"] == "80"
    assert all(float(row["wind lower"]) <= float(row["wind"]) <= float(row["wind upper"]) for row in rows)
    assert "80 rows learnt, 77 predictions scored" in told and re.search(r"power: RMSE [\d.]+ \(last value", told)


def test_run_predicts_from_all_other_numbers(turbine):
    call("run", "turbine.csv", "-t", "power", "-o", "out.jsonl", "--store", "run.db")
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [record["row"] for record in records] == list(range(2, 81))
    assert set(records[-1]["power"]) == {"mean", "lower", "upper"} and records[-1]["time"] == "2024-03-01T13:10:00"
    model = load_from("run.db")
    assert set(model._inputs.keys) == {"wind", "pitch"} and model.clock == "time"


def test_run_without_targets_forecasts_all_numbers(turbine):
    out, _ = call("run", "turbine.csv", "--horizon", "1", *QUICK)
    assert {"wind", "pitch", "power"} <= set(rows_of(out)[0]) and "state" not in rows_of(out)[0]


def test_run_without_times(turbine):
    out, _ = call("run", "turbine.csv", *FORECAST, "--time", "none")
    assert {row["time"] for row in rows_of(out)} == {""}


def test_quiet_says_nothing(turbine):
    assert call("run", "turbine.csv", *FORECAST, "-q", "-o", "out.csv") == ("", "")


def test_a_stopped_run_goes_on_exactly(turbine):
    """By the same command, whatever was written behind the last commit."""
    call("run", "turbine.csv", *FORECAST, "-o", "whole.csv", "--store", "whole.db")
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--store", "run.db"]
    call(*command, "--limit", "33")
    with Path("out.csv").open("a") as file:
        file.write("34,1,rows that were written, but not committed\n")
    _, told = call(*command)
    assert "going on behind row 33 of turbine.csv" in told and "80 rows learnt, 77 predictions scored" in told
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")
    # Once more: there is nothing left to do.
    assert "going on behind row 80" in call(*command)[1]
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_predictions_stay_in_the_store(turbine):
    """Where no other place is named."""
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    assert call(*command, "--limit", "33")[0] == ""
    call(*command)
    call("run", "turbine.csv", *FORECAST, "-o", "whole.jsonl")
    assert call("read", "run.db")[0] == Path("whole.jsonl").read_text()


def test_a_run_goes_on_when_rows_have_come(turbine):
    command = ["run", "turbine.csv", *SOFT, "-o", "out.csv", "--store", "run.db", "-q"]
    Path("turbine.csv").write_text(feed_text(30))
    call(*command)
    Path("turbine.csv").write_text(feed_text(80))
    call(*command)
    call("run", "turbine.csv", *SOFT, "-o", "whole.csv", "-q")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_a_report_is_written(turbine, monkeypatch):
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--report", "report.html"]
    monkeypatch.setattr(sys, "argv", ["momostream", *command])
    _, told = call(*command)
    page = Path("report.html").read_text()
    assert "report: report.html" in told and "turbine.csv" in page and "--horizon 3" in page
    assert page.count("data:image/png;base64,") >= 4


def test_bad_rows_are_skipped_and_told(turbine):
    text = Path("turbine.csv").read_text().splitlines()
    text[10] = text[10].replace(",on", ",on,off")
    text[20] = "2024-03-01 03:10,fast,1.0,500,on"
    Path("turbine.csv").write_text("\n".join(text))
    _, told = call("run", "turbine.csv", *FORECAST, "-o", "out.csv", code=1)
    assert told == "momostream: turbine.csv: row 10: 6 cells instead of 5\n"
    _, told = call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--bad-rows", "skip")
    assert "momostream: turbine.csv: row 20, column 'wind': 'fast' is not a number\n" in told
    assert "78 rows learnt" in told and "2 bad rows skipped" in told


def test_times_that_are_not_read_are_told(turbine):
    text = Path("turbine.csv").read_text()
    Path("dayfirst.csv").write_text(re.sub(r"2024-03-(\d\d) ", r"\1.03.2024 ", text).replace("time,", "Zeit,"))
    rows = rows_of(call("run", "dayfirst.csv", *FORECAST, "--time-format", "%d.%m.%Y %H:%M")[0])
    assert rows[-1]["time"] == "2024-03-01T13:40:00"
    Path("dayfirst.csv").write_text(re.sub(r"2024-03-(\d\d) ", r"\1.03.2024 ", text))
    told = call("run", "dayfirst.csv", *FORECAST)[1]
    assert "dayfirst.csv: column 'time' is not read as times, rows are counted: see --time-format" in told


def test_files_with_nothing_to_read(turbine):
    Path("header.csv").write_text("time,wind,power\n")
    assert call("run", "header.csv", "-n", "2", code=1)[1] == "momostream: header.csv: has no rows\n"
    Path("german.csv").write_text("Zeit;Wind\n1;9,123\n".replace("1;", "x;"))
    assert "does '9,123' have a decimal comma?" in call("run", "german.csv", "-n", "2", code=1)[1]


def test_nested_objects_have_columns_of_their_own(turbine):
    lines = [json.dumps({"time": 60 * t, "ok": True, "sensor": {"wind": 8 + t % 5}}) for t in range(30)]
    Path("nested.jsonl").write_text("\n".join(lines) + "\n")
    rows = rows_of(call("run", "nested.jsonl", "-n", "1", *QUICK)[0])
    assert "sensor.wind" in rows[0] and "ok" not in rows[0] and rows[-1]["time"] == "1800"


def test_a_full_disk_is_named(turbine, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("momostream.storage.container.os.fsync", full)
    told = call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", code=1)[1]
    assert "model.momo: No space left on device" in told and not Path("model.momo").exists()


def test_decimal_commas(turbine):
    text = Path("turbine.csv").read_text().replace(",", ";").replace(".", ",")
    Path("comma.csv").write_text(text)
    out, _ = call("run", "comma.csv", *FORECAST, "--decimal", ",")
    assert out == call("run", "turbine.csv", *FORECAST)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.csv", "-t", "power"], "nowhere.csv: does not exist"),
        (["run", "empty", "-t", "power"], "empty: there is no CSV or JSON lines file in this folder"),
        (["run", "turbine.csv"], "name what to predict with --target, or how far to forecast with --horizon"),
        (["run", "turbine.csv", "-t", "powr"], "turbine.csv: column 'powr' does not exist: did you mean 'power'?"),
        (["run", "turbine.csv", "-t", "state"], "turbine.csv: column 'state' holds no numbers in the first rows"),
        (["run", "turbine.csv", "-t", "power", "-i", "power"], "column 'power' is named as target and as input"),
        (
            ["run", "turbine.csv", "-t", "power", "--time", "at"],
            "turbine.csv: column 'at': does not exist; the column",
        ),
        (["run", "turbine.csv", "-t", "power", "--level", "2"], "level=2.0 is not accepted"),
        (["run", "turbine.csv", "-t", "power", "-o", "no/out.csv"], "no/out.csv: there is no such folder"),
        (["run", "turbine.csv", "-t", "power", "--store", "no/run.db"], "no/run.db: there is no such folder"),
        (["run", "turbine.csv", "-t", "power", "--store", "/dev/null"], "/dev/null: is not a file, as --store must be"),
        (["run", "turbine.csv", "-t", "power", "--store", "turbine.db", "--alarms", "no/a"], "no/a: there is no such"),
        (["fit", "turbine.csv", "-n", "2", "--save", "no/m.momo"], "no/m.momo: there is no such folder"),
        (["run", "turbine.csv", "-t", "power", "-o", "/dev/full"], "/dev/full: No space left on device"),
        (["run", "turbine.csv", "-t", "power", "-o", "store"], "--output store needs --store"),
        (["run", "turbine.csv", "-t", "power", "-o", "mqtt://host/topic"], "--output mqtt://host/topic needs --store"),
        (["run", "turbine.csv", "-t", "power", "--alarms", "kafka://host/topic"], "--alarms kafka://host/topic needs"),
        (["run", "turbine.csv", "-t", "power", "--alarms", "store"], "--alarms store needs --store"),
        (
            ["run", "turbine.csv", "-t", "power", "-o", "mqtt://me:secret@host/t"],
            "--output mqtt://host/t needs --store",
        ),
        (["run", "turbine.csv", "-t", "power", "-o", "kafka://h/t?sasl.password=x"], "--output kafka://h/t needs"),
        (["run", "turbine.csv", "-t", "power", "-n", "2", "--kin"], "--kin is for predictions from other columns"),
        (["run", "turbine.csv", "-t", "power", "--alarm-level", "1"], "alarm_level=1.0 is not accepted"),
        (["run", "turbine.csv", "-t", "power", "--share", "1/2"], "--share divides keys: it needs --key"),
        (["run", "turbine.csv", "-t", "power", "--sequence", "n"], "--sequence is for feeds of mqtt://"),
        (["run", "turbine.csv", "-t", "power", "--key", "states"], "column 'states': does not exist; did you mean"),
        (["run", "turbine.csv", "-n", "2", "-t", "power", "--key", "power"], "column 'power' is the key: it cannot be"),
        (["run", "turbine.csv", "-t", "power", "--key", "time"], "key 'time' cannot be written as csv"),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--share", "3/2"], "write it as K/N, such as 1/2"),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--share", "half"], "write it as K/N, such as 1/2"),
        (
            ["run", "turbine.csv", "-t", "power", "--key", "state", "--report", "r.html"],
            "--report is about one machine",
        ),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--live"], "--live is about one machine"),
        (
            ["run", "turbine.csv", "-n", "2", "--time-format", "%d/%m/%Y"],
            "no column holds times of the form '%d/%m/%Y'",
        ),
        (["run", "turbine.csv", "-n", "2", "--set", "horizon=3"], "horizon is part of the plan"),
        (["run", "turbine.csv", "-n", "2", "--set", "conformal=maybe"], "conformal='maybe' is not accepted"),
        (["run", "turbine.csv", "-n", "2", "--set", "bounds={'nope': (0, 1)}"], "for 'nope', which is no target"),
        (["run", "turbine.csv", "-t", "power", "--set", "max_point=5"], "did you mean max_points?"),
        (["run", "turbine.csv", "-t", "power", "--set", "max_points"], "write it as NAME=VALUE"),
        (["run", "turbine.csv", "-t", "power", "--set", "weights=none"], "weights='none' is not accepted"),
        (["run", "turbine.csv", "-t", "power", "--encoding", "klingon"], "klingon"),
        (["inspect", "turbine.csv"], "not a momostream file"),
        (["forecast", "nowhere.momo"], "nowhere.momo: No such file or directory"),
        (["read", "nowhere.db"], "nowhere.db: there is no such store"),
        (["read", "turbine.csv"], "turbine.csv: corrupted, or not a momostream store"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(turbine, arguments, message):
    Path("empty").mkdir()
    _, told = call(*arguments, code=1)
    assert message in told and told.startswith("momostream: ") and told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "turbine.csv"], "turbine.csv: is named as FEED and as --output"),
        (["-o", "out.csv", "--store", "out.csv"], "out.csv: is named as --store and as --output"),
        (["-o", "out.csv", "--store", "./turbine.csv"], "turbine.csv: is named as FEED and as --store"),
        (["--alarms", "turbine.csv"], "turbine.csv: is named as FEED and as --alarms"),
        (["--dead-letters", "turbine.csv"], "turbine.csv: is named as FEED and as --dead-letters"),
        (["--report", "turbine.csv"], "turbine.csv: is named as FEED and as --report"),
        (["--alarms", "both", "--dead-letters", "both"], "both: is named as --alarms and as --dead-letters"),
    ],
)
def test_nothing_is_written_over_what_is_read(turbine, options, message):
    before = Path("turbine.csv").read_bytes()
    _, told = call("run", "turbine.csv", *FORECAST, *options, code=1)
    assert message in told and Path("turbine.csv").read_bytes() == before


def test_nothing_is_written_into_the_folder_that_is_read(turbine):
    Path("rows").mkdir()
    Path("turbine.csv").rename("rows/monday.csv")
    told = call("run", "rows", *SOFT, "-o", "rows/out.csv", code=1)[1]
    assert told.startswith("momostream: rows/out.csv: ") and not Path("rows/out.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "other.csv"], "other.csv: is not the file that the last run wrote"),
        (["-o", "out.csv", "--format", "jsonl"], "cannot go on: format was 'csv', now it is 'jsonl'"),
        (["-o", "out.csv", "--seed", "5"], "cannot go on: seed was 0, now it is 5"),
        (["-o", "out.csv", "--set", "lags=3"], "cannot go on: lags was not set, now it is 3"),
        (["-o", "out.csv", "--set", "lag=3"], "did you mean lags?"),
        (["-o", "out.csv", "--set", "experts=('last value',)"], "cannot go on: experts was ('last value', 'own lags')"),
        (["-o", "out.csv", "--level", "0.5"], "cannot go on: level was 0.9, now it is 0.5"),
        (["-o", "out.csv", "--every", "2"], "cannot go on: every was 1, now it is 2"),
        (["-o", "out.csv", "--horizon", "4"], "cannot go on: horizon was 3, now it is 4"),
        (["-o", "out.csv", "-t", "pitch"], "cannot go on: targets was ('power', 'wind'), now it is"),
        (["-o", "out.csv", "--key", "state"], "cannot go on: key was None, now it is 'state'"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) else "",
)
def test_a_run_goes_on_only_as_it_was(turbine, options, message):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    call(*command, "-o", "out.csv", "--limit", "30")
    Path("other.csv").write_text("precious\n" * 2000)
    before = {name: Path(name).read_bytes() for name in ("other.csv", "out.csv")}, models_in("run.db")
    told = call(*command, *options, code=1)[1]
    assert message in told and told.splitlines()[-1].startswith("momostream: ")
    assert before == ({name: Path(name).read_bytes() for name in before[0]}, models_in("run.db"))


def test_settings_are_remembered(turbine):
    """A run goes on with what it was begun with, also where that is not said again."""
    call("run", "turbine.csv", *FORECAST, "--seed", "5", "--store", "run.db", "-o", "out.csv", "--limit", "30")
    plain = ["run", "turbine.csv", "-t", "power", "-t", "wind", "--horizon", "3", "--store", "run.db"]
    call(*plain, "-o", "out.csv")
    call("run", "turbine.csv", *FORECAST, "--seed", "5", "-o", "whole.csv")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_another_output_is_refused_where_there_was_none(turbine):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    call(*command, "--limit", "30")
    Path("out.csv").write_text("precious\n")
    told = call(*command, "-o", "out.csv", code=1)[1]
    assert "out.csv: exists, but was not written by the run so far: name another file" in told
    assert Path("out.csv").read_text() == "precious\n"
    call(*command, "-o", "new.csv")
    assert rows_of(Path("new.csv").read_text())[0]["row"] == "31"


def test_another_feed_does_not_cost_the_output(turbine):
    """The same name, and other rows."""
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--store", "run.db"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
    Path("turbine.csv").write_text(feed_text(80, seed=3))
    told = call(*command, code=1)[1]
    assert told == "momostream: turbine.csv: is not the feed that was read before: row 30 differs from the last run\n"
    assert Path("out.csv").read_bytes() == before
    Path("turbine.csv").write_text(feed_text(20))
    told = call(*command, code=1)[1]
    assert told.startswith("momostream: turbine.csv: ") and Path("out.csv").read_bytes() == before


def test_one_feed_after_the_other(turbine):
    """The models of a store go on with another feed; what was predicted of the first is not lost."""
    both = feed_text(80).splitlines(keepends=True)
    Path("monday.csv").write_text("".join(both[:41]))
    Path("tuesday.csv").write_text("".join([both[0], *both[41:]]))
    call("run", "monday.csv", *SOFT, "-o", "out.csv", "--store", "run.db")
    before = Path("out.csv").read_text()
    assert "out.csv: exists" in call("run", "tuesday.csv", *SOFT, "-o", "out.csv", "--store", "run.db", code=1)[1]
    assert Path("out.csv").read_text() == before
    call("run", "tuesday.csv", *SOFT, "-o", "tuesday.out.csv", "--store", "run.db")
    call("run", "turbine.csv", *SOFT, "--store", "whole.db")
    assert models_in("run.db") == models_in("whole.db")


@pytest.mark.parametrize("cut", [2, 12], ids=["in the last number", "in the middle"])
@pytest.mark.parametrize("key", [[], BY_TURBINE], ids=["one", "many"])
def test_a_line_in_the_making(turbine, key, cut):
    """Is read again when it is complete, whatever it looked like before."""
    text = without_last_column(farm_text(20) if key else feed_text(60))
    Path("rows.csv").write_text(text.removesuffix("\n")[:-cut])
    command = ["run", "rows.csv", *key, *SOFT, "-o", "out.csv", "--store", "run.db"]
    _, told = call(*command)
    assert "the last line has no newline yet: row 60 is not in run.db, and is read again" in told
    Path("rows.csv").write_text(text)
    assert "going on behind row 59 of rows.csv" in call(*command)[1]
    call("run", "rows.csv", *key, *SOFT, "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db") and read("run.db", "dead") == []


def test_a_run_that_stopped_at_a_bad_row_stops_there_again(turbine):
    lines = feed_text(80).splitlines()
    good = lines[20]
    lines[20] = good.replace(",on", ",on,off")
    Path("turbine.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "turbine.csv", *SOFT, "-o", "out.csv", "--store", "run.db", "--bad-rows", "stop"]
    for _ in range(2):
        assert "turbine.csv: row 20: 6 cells instead of 5" in call(*command, code=1)[1]
        assert len(lines_of("out.csv")) == 19
    lines[20] = good
    Path("turbine.csv").write_text("\n".join(lines) + "\n")
    call(*command)
    call("run", "turbine.csv", *SOFT, "-o", "whole.csv")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_fit_keeps_what_exists_and_says_when_there_is_nothing(turbine):
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo")
    before = Path("model.momo").read_bytes()
    assert (
        "model.momo: exists: add --overwrite"
        in call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", code=1)[1]
    )
    assert Path("model.momo").read_bytes() == before
    Path("empty.csv").write_text("time,wind,power\n")
    told = call("fit", "empty.csv", *FORECAST, "--save", "empty.momo", code=1)[1]
    assert (
        told == "momostream: empty.csv: has no rows, so there is nothing to save\n" and not Path("empty.momo").exists()
    )


def test_a_target_that_never_came(turbine):
    lines = [line.rsplit(",", 2)[0] + ",," for line in feed_text(40).splitlines()[1:]]
    Path("gone.csv").write_text("time,wind,pitch,power,state\n" + "\n".join(lines) + "\n")
    command = ["run", "gone.csv", "-t", "power", "--horizon", "2", "-o", "out.csv", "--store", "run.db"]
    call(*command, "--report", "report.html")
    assert "has learnt no value of a target yet" in call("forecast", "run.db", code=1)[1]
    assert "no values yet" in call("inspect", "run.db")[0]


@pytest.mark.parametrize("setting", ["bounds=5", "transforms=3", "bounds={'wind': ('a', 1)}", "experts=7"])
def test_settings_that_make_no_sense(turbine, setting):
    told = call("run", "turbine.csv", "-t", "wind", "--horizon", "2", "--set", setting, code=1)[1]
    assert told.startswith("momostream: ") and told.count("\n") == 1


def test_rows_that_a_regressor_refuses_are_bad_rows(turbine):
    call("fit", "turbine.csv", "-t", "power", "-i", "wind", "--save", "model.momo")
    Path("today.csv").write_text("time,wind\n2024-03-02 00:00,7\n2024-03-02 00:10,1e200\n2024-03-02 00:20,8\n")
    assert "today.csv: row 2: " in call("forecast", "model.momo", "today.csv", code=1)[1]
    assert len(rows_of(call("forecast", "model.momo", "today.csv", "--bad-rows", "skip")[0])) == 2
    assert "--horizon and --plot" in call("forecast", "model.momo", "today.csv", "-n", "3", code=1)[1]


# ---------------------------------------------------------------------- many machines


def alone(machine, *options):
    """What a run says about one machine, on a feed of its rows alone, line by line without the number of the row."""
    header, *lines = lines_of("farm.csv")
    Path("alone.csv").write_text("\n".join([header, *(line for line in lines if line.startswith(machine))]) + "\n")
    call("run", "alone.csv", *options, "-o", "alone.out.csv", "-q")
    return [{**row, "row": None} for row in rows_of(Path("alone.out.csv").read_text())]


@pytest.mark.parametrize("plan", [SOFT, FORECAST], ids=["soft", "forecast"])
@pytest.mark.parametrize("feed", ["farm.csv", "farm.jsonl"])
def test_each_machine_has_a_model_of_its_own(farm, feed, plan):
    """It sees the rows of its machine and no others."""
    Path("farm.jsonl").write_text(as_json_lines(farm_text(20)))
    _, told = call("run", feed, *BY_TURBINE, *plan, "-o", "out.csv", "--store", "run.db")
    assert told == "momostream: 60 rows of 3 keys learnt\n"
    rows = rows_of(Path("out.csv").read_text())
    assert list(rows[0])[:2] == ["turbine", "row"] and [int(row["row"]) for row in rows] == sorted(
        int(row["row"]) for row in rows
    )
    for machine in MACHINES:
        ours = [{**row, "row": None} for row in rows if row["turbine"] == machine]
        assert [{k: v for k, v in row.items() if k != "turbine"} for row in ours] == alone(machine, *plan)
    assert list(models_in("run.db")) == list(MACHINES)


def test_json_lines_tell_the_machine(farm):
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.jsonl", "-q")
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.csv", "-q")
    records = [json.loads(line) for line in lines_of("out.jsonl")]
    assert [(record["turbine"], record["row"]) for record in records[-3:]] == [("T01", 58), ("T02", 59), ("T03", 60)]
    steps = [(r["turbine"], r["row"], step["time"], step["power"]["mean"]) for r in records for step in r["steps"]]
    rows = rows_of(Path("out.csv").read_text())
    # The step from one row to the next is not known behind the first.
    assert steps == [(row["turbine"], int(row["row"]), row["time"] or None, float(row["power"])) for row in rows]


def test_keys_may_be_whole_numbers(farm):
    rows = [{"time": 60 * t, "unit": unit, "wind": 8 + t % 5, "power": unit * t} for t in range(12) for unit in (0, 7)]
    Path("units.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    call("run", "units.jsonl", "--key", "unit", *SOFT, "--store", "run.db", "-q")
    assert list(models_in("run.db")) == [0, 7] and {record["unit"] for record in read("run.db")} == {0, 7}
    with Store("run.db", read_only=True) as store:
        assert {output.key for _, output in store.outputs()} == {0, 7}
    assert "MOMoGPRegressor: 12 rows" in call("inspect", "run.db", "--key", "7")[0]


@pytest.mark.parametrize("memory", ["1024", "0"])
def test_a_run_over_many_machines_goes_on_exactly(farm, memory):
    """Whether models stay in memory or rest in the store."""
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "--memory", memory, "--commit-every", "7", "-q"]
    for limit in (["--limit", "25"], ["--limit", "1"], []):
        call(*command, "-o", "out.csv", "--store", "run.db", *limit)
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "-q", "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")


def spoil(text):
    """Four rows that cannot be used: without a key, with a cell too many, with a bad number, with a time of before."""
    lines = text.splitlines()
    lines[10] = lines[10].removeprefix("T01")
    lines[20] += ",off"
    lines[30] = "T03,2024-03-01 01:30,fast,0.4,272,on"
    lines[40] = lines[37]
    return "\n".join(lines) + "\n"


DEAD = [
    (None, "column 'turbine': the key is missing"),
    (None, "7 cells instead of 6"),
    ("T03", "column 'wind': 'fast' is not a number"),
    ("T01", "time must increase"),
]


def test_rows_that_cannot_be_used_become_dead_letters(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *FORECAST, "-o", "out.csv", "--store", "run.db"]
    _, told = call(*command, "--dead-letters", "dead.jsonl")
    assert "momostream: farm.csv: row 10, column 'turbine': the key is missing\n" in told
    assert "momostream: 56 rows of 3 keys learnt, 4 bad rows skipped\n" in told
    letters = read("run.db", "dead")
    assert [(letter["key"], letter["reason"].split(": 2024")[0]) for letter in letters] == DEAD
    assert list(letters[0]) == ["source", "offset", "key", "reason", "row"] and letters[0]["source"] == "farm.csv"
    text = Path("farm.csv").read_text()
    for letter in letters[:3]:
        # The bytes of the row, which ends at its offset.
        assert text[: letter["offset"]].endswith("\n" + letter["row"] + "\n")
    assert lines_of("dead.jsonl") == call("read", "run.db", "dead")[0].splitlines()
    assert {row["row"] for row in rows_of(Path("out.csv").read_text())} == {
        str(n) for n in range(1, 61) if n not in (10, 20, 30, 40)
    }
    assert "56 rows learnt, 4 bad" in call("inspect", "run.db")[0]


def test_dead_letters_without_a_store_and_stopped(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv"]
    call(*command, "--dead-letters", "dead.jsonl", "-q")
    assert [json.loads(line)["key"] for line in lines_of("dead.jsonl")] == [key for key, _ in DEAD]
    stop = [*command, "--bad-rows", "stop"]
    assert call(*stop, code=1)[1] == "momostream: farm.csv: row 10, column 'turbine': the key is missing\n"


def test_dead_letters_go_on_exactly(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv", "-q", "--commit-every", "7"]
    call(*command, "--store", "whole.db", "--dead-letters", "whole.jsonl")
    Path("out.csv").unlink()
    for limit in (["--limit", "24"], []):
        call(*command, "--store", "run.db", "--dead-letters", "dead.jsonl", *limit)
    assert Path("dead.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert read("run.db", "dead") == read("whole.db", "dead")


def test_many_bad_rows_are_told_sparingly(turbine):
    lines = [line.replace(",on", ",on,off") for line in feed_text(130).splitlines()]
    Path("turbine.csv").write_text("\n".join([feed_text(1).strip(), *lines[2:]]) + "\n")
    _, told = call("run", "turbine.csv", *SOFT, "-o", "out.csv", "--store", "run.db")
    assert told.count("6 cells instead of 5") == 11 and "6 cells instead of 5 (100 so far)" in told
    assert "1 row learnt" in told and "129 bad rows skipped" in told


def test_a_value_out_of_the_ordinary_is_an_alarm(farm):
    lines = farm_text(40).splitlines()
    strange = lines[110].split(",")
    strange[4] = "99999"
    lines[110] = ",".join(strange)
    Path("farm.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "out.csv", "-q", "--alarm-level", "0.9999"]
    call(*command, "--store", "run.db", "--alarms", "store")
    alarms = read("run.db", "alarms")
    (found,) = [alarm for alarm in alarms if alarm["row"] == 110]
    assert found["key"] == strange[0] and found["target"] == "power" and found["value"] == 99999.0
    assert found["lower"] < found["upper"] < 99999.0 and found["level"] == 0.9999
    assert found["time"] == strange[1].replace(" ", "T") + ":00"
    call(*command, "--alarms", "alarms.jsonl")
    assert [json.loads(line) for line in lines_of("alarms.jsonl")] == alarms
    # What is watched for is not predicted otherwise.
    before = Path("out.csv").read_bytes()
    call(*command)
    assert Path("out.csv").read_bytes() == before


def test_alarms_of_forecasts_go_on_exactly(turbine):
    lines = feed_text(60).splitlines()
    lines[50] = "2024-03-01 08:10,8.0,1.0,99999,on"
    Path("turbine.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "turbine.csv", *FORECAST, "-q", "-o", "out.csv"]
    call(*command, "--alarms", "whole.jsonl")
    assert (50, "power") in [(alarm["row"], alarm["target"]) for alarm in map(json.loads, lines_of("whole.jsonl"))]
    Path("out.csv").unlink()
    for limit in (["--limit", "49"], []):
        call(*command, "--alarms", "alarms.jsonl", "--store", "run.db", *limit)
    assert Path("alarms.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_parts_are_together_the_whole(farm):
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT]
    for part in "12":
        call(*command, "--share", f"{part}/2", "-o", f"part{part}.csv", "--store", f"part{part}.db", "--limit", "7")
        call(*command, "--share", f"{part}/2", "-o", f"part{part}.csv", "--store", f"part{part}.db")
    call(*command, "-o", "whole.csv", "--store", "whole.db")
    first, second = models_in("part1.db"), models_in("part2.db")
    assert first and second and not first.keys() & second.keys() and first | second == models_in("whole.db")
    parts = [row for part in "12" for row in rows_of(Path(f"part{part}.csv").read_text())]
    assert sorted(parts, key=lambda row: int(row["row"])) == rows_of(Path("whole.csv").read_text())


def test_each_bad_row_falls_to_one_part(farm):
    Path("farm.csv").write_text(spoil(farm_text(20)))
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "-q"]
    call(*command, "--store", "whole.db")
    for part in "12":
        call(*command, "--share", f"{part}/2", "--store", f"part{part}.db")
    dead = read("part1.db", "dead") + read("part2.db", "dead")
    assert sorted(dead, key=lambda letter: letter["offset"]) == read("whole.db", "dead")


def test_another_part_does_not_go_on(farm):
    """Rows of other machines before that place would be lost."""
    command = ["run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db"]
    call(*command, "--share", "1/2", "--limit", "10")
    for share in (["--share", "2/2"], ["--share", "1/3"], []):
        assert "cannot go on: share was" in call(*command, *share, code=1)[1]


# ---------------------------------------------------------------------- folders


def test_a_folder_is_one_feed(farm):
    header, *lines = lines_of("farm.csv")
    Path("days").mkdir()
    for name, part in (("monday.csv", lines[:25]), ("tuesday.csv", lines[25:40]), ("notes.md", ["not a feed"])):
        Path("days", name).write_text("\n".join([header, *part]) + "\n")
    command = ["run", "days", *BY_TURBINE, *SOFT, "-o", "out.csv", "--store", "run.db"]
    call(*command, "--limit", "30")
    call(*command)
    Path("days", "wednesday.csv").write_text("\n".join([header, *lines[40:]]) + "\n")
    _, told = call(*command)
    assert "going on behind row 40 of days" in told and "60 rows of 3 keys learnt" in told
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")


# ---------------------------------------------------------------------- stores


def test_read_begins_behind_a_line(farm):
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
    for word in ("run.db", "3 steps ahead", "turbine.csv: stands behind row 80: 80 rows learnt, 0 bad", "coverage"):
        assert word in out, word


def test_a_store_of_many_models(farm):
    call("run", "farm.csv", *BY_TURBINE, *FORECAST, "--store", "run.db", "-q")
    out = " ".join(call("inspect", "run.db")[0].split())
    assert "3 models, 60 rows" in out and "T02 │ 20" in out and "farm.csv: stands behind row 60" in out
    assert "60 predictions, 0 alarms, 0 refused rows" in out
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
        (["forecast", "run.db", "--key", "T1"], "run.db: there is no model of 'T1': did you mean 'T01'?"),
        (["inspect", "run.db", "--key", "west"], "run.db: there is no model of 'west'\n"),
        (["inspect", "run.db", "--plot", "p.png"], "run.db: holds many models: name one with --key to draw it"),
        (["forecast", "run.db", "--plot", "p.png"], "run.db: holds many models: name one with --key to draw it"),
        (["forecast", "run.db", "farm.csv", "--key", "T01"], "takes no FEED: it goes on from its last row"),
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
    assert out == "" and told == "momostream: run.db: holds many models: name one with --key\n"


def test_a_store_without_models(turbine):
    Store("run.db").close()
    assert "run.db: holds no model yet" in call("forecast", "run.db", code=1)[1]
    assert "0 models, 0 rows" in call("inspect", "run.db")[0] and call("read", "run.db") == ("", "")


def test_there_is_one_writer(turbine, monkeypatch):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db", "-o", "out.csv"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
    monkeypatch.setattr("momostream.storage.store.Store", partial(Store, timeout=0.05))
    with Store("run.db"):
        _, told = call(*command, code=1)
        assert f"run.db: process {os.getpid()} has it open for writing" in told and told.count("\n") == 1
        # Who only looks need not wait.
        assert len(rows_of(call("forecast", "run.db")[0])) == 3
    assert Path("out.csv").read_bytes() == before
    call(*command)


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "flipped": lambda data: data[: len(data) // 3] + bytes(255 - byte for byte in data[len(data) // 3 :]),
    "zeros": lambda data: data[:1000] + bytes(len(data) - 1000),
    "one byte": lambda data: data[: len(data) // 2] + bytes([255 - data[len(data) // 2]]) + data[len(data) // 2 + 1 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_told(turbine, damage):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db", "-o", "out.csv"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
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


# ---------------------------------------------------------------------- fit, forecast, inspect


def test_fit_then_forecast(turbine):
    _, told = call("fit", "turbine.csv", *FORECAST, "--save", "model.momo")
    assert "80 rows learnt, saved in model.momo" in told
    out, _ = call("forecast", "model.momo")
    rows = rows_of(out)
    assert [row["step"] for row in rows] == ["1", "2", "3"] and rows[0]["time"] == "2024-03-01T13:20:00"
    distribution = momostream.load("model.momo").forecast(3, with_dist=True)
    np.testing.assert_allclose([float(row["wind"]) for row in rows], distribution.mean["wind"], rtol=1e-8)
    assert len(rows_of(call("forecast", "model.momo", "-n", "2")[0])) == 2
    _, told = call("forecast", "model.momo", "-n", "9", code=1)
    assert "cannot forecast 9 steps with a model of 3" in told
    call("forecast", "model.momo", "-o", "f.csv", "--plot", "f.png")
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")


def test_a_soft_sensor_predicts_a_feed(turbine):
    call("fit", "turbine.csv", "-t", "power", "-i", "wind", "--save", "model.momo")
    Path("today.csv").write_text("time,wind\n2024-03-02 00:00,7\n2024-03-02 00:10,\n")
    rows = rows_of(call("forecast", "model.momo", "today.csv")[0])
    assert [row["row"] for row in rows] == ["1", "2"] and abs(float(rows[0]["power"]) - 343.0) < 60.0
    _, told = call("forecast", "model.momo", code=1)
    assert "needs a FEED with its inputs" in told
    call("fit", "turbine.csv", *FORECAST, "--save", "other.momo")
    assert "takes no FEED" in call("forecast", "other.momo", "today.csv", code=1)[1]


def test_inspect_shows_what_was_learnt(turbine):
    call("run", "turbine.csv", "-t", "power", "-o", "out.csv", "--store", "regressor.db")
    out, _ = call("inspect", "regressor.db", "--plot", "circuit.png")
    for word in ("matern32", "lengthscales", "wind", "relevance", "80 rows", "rmse", "coverage"):
        assert word in out, word
    assert Path("circuit.png").stat().st_size > 5000
    call("fit", "turbine.csv", *FORECAST, "--save", "forecaster.momo")
    out, _ = call("inspect", "forecaster.momo")
    assert "own lags" in out and "horizon" in out and "3 steps ahead" in out
    assert (
        "forecaster.momo: holds one model, without a key" in call("inspect", "forecaster.momo", "--key", "T", code=1)[1]
    )


# ---------------------------------------------------------------------- as a process: signals, pipes, time


def test_a_pipe_that_closes_is_no_error(turbine):
    text = feed_text(3000)
    process = start(
        "run", "-", "-t", "power", "-i", "wind", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(text[: len(text) // 4].encode())
    process.stdin.flush()
    first = [process.stdout.readline() for _ in range(3)]
    process.stdout.close()
    with suppress(BrokenPipeError):
        process.stdin.write(text[len(text) // 4 :].encode())
    with suppress(BrokenPipeError):
        process.stdin.close()
    told = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0
    assert first[1].startswith(b"2,2024-03-01T00:10:00,") and "Traceback" not in told and "Error" not in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_commits_and_says_so(turbine, number):
    """While it waits for a row that does not come."""
    command = ["run", "-", *SOFT, "-o", "out.csv", "--store", "run.db"]
    process = start(*command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(feed_text(40).encode())
    process.stdin.flush()
    # Where nothing comes, what has come is committed soon.
    wait_for(lambda: Path("out.csv").exists() and len(lines_of("out.csv")) == 40)
    process.send_signal(number)
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "stopped behind row 40; kept in run.db, the same command goes on" in told
    assert load_from("run.db").n_rows == 40 and len(rows_of(Path("out.csv").read_text())) == 39


@pytest.mark.parametrize("key", [[], BY_TURBINE], ids=["one", "many"])
def test_killed_and_gone_on(turbine, key):
    """By SIGKILL, while it works."""
    Path("long.csv").write_text(farm_text(100) if key else feed_text(300))
    command = ["run", "long.csv", *key, *FORECAST, "--commit-every", "30", "-q"]
    process = start(*command, "-o", "out.csv", "--store", "run.db")
    wait_for(lambda: Path("out.csv").exists() and Path("out.csv").stat().st_size > 20_000)
    process.kill()
    process.wait()
    with Store("run.db", read_only=True) as store:
        assert 0 < store.source("long.csv").number < 300
    call(*command, "-o", "out.csv", "--store", "run.db")
    call(*command, "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")


def test_a_file_that_grows_is_followed(turbine):
    text = feed_text(60).encode()
    lines = text.splitlines(keepends=True)
    Path("growing.csv").write_bytes(b"".join(lines[:31]))
    command = ["run", "growing.csv", *SOFT, "-o", "out.csv", "--store", "run.db"]
    process = start(*command, "--follow", stderr=subprocess.PIPE)
    wait_for(lambda: Path("out.csv").exists() and len(lines_of("out.csv")) == 30)
    with Path("growing.csv").open("ab") as file:
        # Half a line is not a row yet.
        file.write(b"".join(lines[31:51]) + lines[51][:20])
    wait_for(lambda: len(lines_of("out.csv")) == 50)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "stopped behind row 50; kept in run.db" in told
    Path("growing.csv").write_bytes(text)
    assert "going on behind row 50" in call(*command)[1]
    call("run", "growing.csv", *SOFT, "-o", "whole.csv")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def wait_for(happens, seconds=60.0):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, time; from momostream.cli import main as cli\n"
        "from typer.testing import CliRunner\n"
        "assert 'forecast' in CliRunner().invoke(cli.app, ['--help']).output\n"
        "print([m for m in ('numpy', 'numba', 'pandas', 'river', 'matplotlib') if m in sys.modules])\n"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy, seconds = done.stdout.splitlines()
    assert heavy == "[]" and float(seconds) < 1.0


def test_every_command_has_a_help():
    for command in ("demo", "run", "fit", "forecast", "inspect", "read"):
        out, _ = call(command, "--help")
        assert "Usage" in out
    assert "is not the data set of the paper" in " ".join(call("demo", "--help")[0].split())
    assert call("--version")[0].strip() == f"momostream {momostream.__version__}"


def test_missing_packages_are_named(monkeypatch):
    from momostream import __main__

    monkeypatch.delitem(sys.modules, "momostream.cli.main")
    monkeypatch.delattr("momostream.cli.main")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'momostream\[cli\]'"):
        __main__.main()


def test_reports_need_matplotlib(turbine, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _, told = call("run", "turbine.csv", *FORECAST, "--report", "r.html", code=1)
    assert told == "momostream: --report needs matplotlib: pip install 'momostream[plot]'\n"


# ---------------------------------------------------------------------- the demo and the view


def test_demo(tmp_path):
    out, _ = call("demo", "--folder", tmp_path / "demo", "--rows", "240", "--horizon", "6")
    assert out.strip() == f"report: {tmp_path / 'demo' / 'report.html'}"
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "simulated wind turbine" in page and "momostream demo --rows 240 --horizon 6 --seed 0" in page
    assert len(list((tmp_path / "demo").glob("*.png"))) >= 5


def test_the_live_view_draws_forecasts():
    from rich.console import Console

    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan, make_model
    from momostream.runs.run import Run

    plan = Plan(demo.SERIES, (), "time", 5)
    fleet = Fleet(make_model(plan, {"experts": ("last value",)}))
    run = Run(demo.TurbineFeed(demo.WindTurbine(seed=0, rate=4.0)), fleet, plan)
    view = live.LiveView("turbine", 60, {"power": "kW"})
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    view._live.console = console
    with view:
        run.run(60, view.update)
        view.show(run)
    text = console.file.getvalue()
    for part in (
        "60 of 60 rows",
        "rows/s",
        "of the last value's",
        "90% intervals hold",
        "power",
        "kW",
        live.MEAN,
        live.BAND,
        live.HISTORY,
    ):
        assert part in text, part


def test_charts_of_missing_and_constant_values():
    nothing = np.array([np.nan])
    assert str(live.chart(nothing, nothing, nothing, nothing, 2)).strip() == ""
    ones = np.ones(3)
    assert str(live.chart(ones, ones, ones, ones, 1)) == "•••━━━"


def test_inspection_has_room_for_many_columns():
    import pandas as pd

    table = inspection._table("wide", pd.DataFrame(np.zeros((2, 30))))
    assert len(table.columns) == inspection.MAX_COLUMNS + 1 and "18 more" in str(table.caption)
