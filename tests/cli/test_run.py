"""A run as a user meets it: what it writes, how it resumes, what it rejects."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import (
    BY_TURBINE,
    FORECAST,
    QUICK,
    SOFT,
    call,
    farm_text,
    feed_text,
    lines_of,
    load_from,
    models_in,
    read,
    rows_of,
    without_last_column,
)


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


def test_quiet_prints_nothing(turbine):
    assert call("run", "turbine.csv", *FORECAST, "-q", "-o", "out.csv") == ("", "")


def test_a_stopped_run_resumes_exactly(turbine):
    """By the same command, whatever was written after the last commit."""
    call("run", "turbine.csv", *FORECAST, "-o", "whole.csv", "--store", "whole.db")
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--store", "run.db"]
    call(*command, "--limit", "33")
    with Path("out.csv").open("a") as file:
        file.write("34,1,rows that were written, but not committed\n")
    _, told = call(*command)
    assert "resuming after row 33 of turbine.csv" in told and "80 rows learnt, 77 predictions scored" in told
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")
    # Once more: there is nothing left to do.
    assert "resuming after row 80" in call(*command)[1]
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_predictions_stay_in_the_store(turbine):
    """If no other destination is named."""
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    assert call(*command, "--limit", "33")[0] == ""
    call(*command)
    call("run", "turbine.csv", *FORECAST, "-o", "whole.jsonl")
    assert call("read", "run.db")[0] == Path("whole.jsonl").read_text()


def test_a_run_resumes_when_rows_have_arrived(turbine):
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


def test_bad_rows_are_skipped_and_reported(turbine):
    text = Path("turbine.csv").read_text().splitlines()
    text[10] = text[10].replace(",on", ",on,off")
    text[20] = "2024-03-01 03:10,fast,1.0,500,on"
    Path("turbine.csv").write_text("\n".join(text))
    _, told = call("run", "turbine.csv", *FORECAST, "-o", "out.csv", code=1)
    assert told == "momostream: turbine.csv: row 10: 6 cells instead of 5\n"
    _, told = call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--overwrite", "--bad-rows", "skip")
    assert "momostream: turbine.csv: row 20, column 'wind': 'fast' is not a number\n" in told
    assert "78 rows learnt" in told and "2 bad rows skipped" in told


def test_times_that_cannot_be_read_are_reported(turbine):
    text = Path("turbine.csv").read_text()
    Path("dayfirst.csv").write_text(re.sub(r"2024-03-(\d\d) ", r"\1.03.2024 ", text).replace("time,", "Zeit,"))
    rows = rows_of(call("run", "dayfirst.csv", *FORECAST, "--time-format", "%d.%m.%Y %H:%M")[0])
    assert rows[-1]["time"] == "2024-03-01T13:40:00"
    Path("dayfirst.csv").write_text(re.sub(r"2024-03-(\d\d) ", r"\1.03.2024 ", text))
    told = call("run", "dayfirst.csv", *FORECAST)[1]
    assert "dayfirst.csv: cannot read the times in column 'time', rows are numbered instead: set --time-format" in told


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
        (
            ["run", "empty", "-t", "power"],
            "empty: there is no CSV, JSON lines, line protocol or Parquet file in this folder",
        ),
        (["run", "turbine.csv"], "nothing to predict: name columns with --target, or rows to forecast with --horizon"),
        (["run", "turbine.csv", "-t", "powr"], "turbine.csv: column 'powr' does not exist: did you mean 'power'?"),
        (["run", "turbine.csv", "-t", "state"], "turbine.csv: column 'state' contains no numbers in the first rows"),
        (["run", "turbine.csv", "-t", "power", "-i", "power"], "column 'power' is named as target and as input"),
        (["run", "turbine.csv", "-t", "power", "--time", "at"], "turbine.csv: column 'at': does not exist; the column"),
        (["run", "turbine.csv", "-t", "power", "--level", "2"], "level=2.0 is not accepted"),
        (["run", "turbine.csv", "-t", "power", "-o", "no/out.csv"], "no/out.csv: the folder does not exist"),
        (["run", "turbine.csv", "-t", "power", "--store", "no/run.db"], "no/run.db: the folder does not exist"),
        (["run", "turbine.csv", "-t", "power", "--store", "/dev/null"], "/dev/null: --store must be a regular file"),
        (
            ["run", "turbine.csv", "-t", "power", "--store", "turbine.db", "--alarms", "no/a"],
            "no/a: the folder does not exist",
        ),
        (["fit", "turbine.csv", "-n", "2", "--save", "no/m.momo"], "no/m.momo: the folder does not exist"),
        (["run", "turbine.csv", "-t", "power", "-o", "/dev/full"], "/dev/full: No space left on device"),
        (["run", "turbine.csv", "-t", "power", "-o", "store"], "--output store needs --store"),
        (["run", "turbine.csv", "-t", "power", "-o", "mqtt://host/topic"], "--output mqtt://host/topic needs --store"),
        (["run", "turbine.csv", "-t", "power", "--alarms", "kafka://host/topic"], "--alarms kafka://host/topic needs"),
        (["run", "turbine.csv", "-t", "power", "--alarms", "store"], "--alarms store needs --store"),
        (["run", "turbine.csv", "-t", "power", "-o", "mqtt://me:secret@host/t"], "--output contains a password"),
        (["run", "turbine.csv", "-t", "power", "-o", "kafka://h/t?sasl.password=x"], "--output contains a password"),
        (["run", "turbine.csv", "-t", "power", "-n", "2", "--warm-start"], "--warm-start cannot be combined with"),
        (["run", "turbine.csv", "-t", "power", "--alarm-level", "1"], "alarm_level=1.0 is not accepted"),
        (["run", "turbine.csv", "-t", "power", "--share", "1/2"], "--share divides the keys: it needs --key"),
        (["run", "turbine.csv", "-t", "power", "--workers", "2"], "--workers divides the keys: it needs --key"),
        (
            ["run", "turbine.csv", "-t", "power", "--key", "state", "--workers", "2", "--warm-start"],
            "--workers cannot be combined with --warm-start",
        ),
        (
            ["run", "turbine.csv", "-t", "power", "--key", "state", "--workers", "2", "--bad-rows", "stop"],
            "--workers cannot be combined with --bad-rows stop",
        ),
        (["run", "turbine.csv", "-t", "power", "--sequence", "n"], "--sequence works with mqtt:// feeds only"),
        (["run", "turbine.csv", "-t", "power", "--key", "states"], "column 'states': does not exist; did you mean"),
        (["run", "turbine.csv", "-n", "2", "-t", "power", "--key", "power"], "column 'power' is the key: it cannot be"),
        (["run", "turbine.csv", "-t", "power", "--key", "time"], "key 'time' cannot be written as csv"),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--share", "3/2"], "expected K/N, such as 1/2"),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--share", "half"], "expected K/N, such as 1/2"),
        (["run", "turbine.csv", "-t", "power", "--key", "state", "--live"], "--live shows one model"),
        (
            ["run", "turbine.csv", "-n", "2", "--time-format", "%d/%m/%Y"],
            "no column holds times of the form '%d/%m/%Y'",
        ),
        (["run", "turbine.csv", "-n", "2", "--set", "horizon=3"], "horizon is part of the plan"),
        (["run", "turbine.csv", "-n", "2", "--set", "conformal=maybe"], "conformal='maybe' is not accepted"),
        (["run", "turbine.csv", "-n", "2", "--set", "bounds={'nope': (0, 1)}"], "for 'nope', which is not a target"),
        (["run", "turbine.csv", "-t", "power", "--set", "max_point=5"], "did you mean 'max_points'?"),
        (["run", "turbine.csv", "-t", "power", "--set", "max_points"], "expected NAME=VALUE"),
        (["run", "turbine.csv", "-t", "power", "--bounds", "power"], "--bounds power: expected NAME=LOW:HIGH"),
        (
            ["run", "turbine.csv", "-t", "power", "--bounds", "none", "--bounds", "power=0:"],
            "--bounds none stands alone",
        ),
        (["run", "turbine.csv", "-t", "power", "--bounds", "power=a:3"], "--bounds power=a:3: expected NAME=LOW:HIGH"),
        (["run", "turbine.csv", "-t", "power", "--bounds", "power=0:3:round"], "=0:3:round: expected NAME=LOW:HIGH"),
        (["run", "turbine.csv", "-t", "power", "--bounds", "power=:3:circular"], "for an angle direction=0:360:circul"),
        (
            ["run", "turbine.csv", "-t", "power", "--bounds", "power=0:3:circular"],
            "bounds of 'power': MOMoGPRegressor knows no angles",
        ),
        (["run", "turbine.csv", "-t", "power", "--bounds", "power=3:1"], "the lower limit must be below the upper one"),
        (
            ["run", "turbine.csv", "-t", "power", "--bounds", "power=0:", "--set", "bounds={'power': (0, 1)}"],
            "use either --bounds or --set bounds=",
        ),
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
        (["-o", "turbine.csv"], "turbine.csv: is used for both FEED and --output"),
        (["-o", "out.csv", "--store", "out.csv"], "out.csv: is used for both --store and --output"),
        (["-o", "out.csv", "--store", "./turbine.csv"], "turbine.csv: is used for both FEED and --store"),
        (["--alarms", "turbine.csv"], "turbine.csv: is used for both FEED and --alarms"),
        (["--dead-letters", "turbine.csv"], "turbine.csv: is used for both FEED and --dead-letters"),
        (["--report", "turbine.csv"], "turbine.csv: is used for both FEED and --report"),
        (["--alarms", "both", "--dead-letters", "both"], "both: is used for both --alarms and --dead-letters"),
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
        (["-o", "out.csv", "--format", "jsonl"], "cannot resume: format was 'csv', now it is 'jsonl'"),
        (["-o", "out.csv", "--seed", "5"], "cannot resume: seed was 0, now it is 5"),
        (["-o", "out.csv", "--set", "lags=3"], "cannot resume: lags was not set, now it is 3"),
        (["-o", "out.csv", "--set", "lag=3"], "did you mean 'lags'?"),
        (
            ["-o", "out.csv", "--set", "experts=('last value',)"],
            "cannot resume: experts was ('last value', 'own lags')",
        ),
        (["-o", "out.csv", "--level", "0.5"], "cannot resume: level was 0.9, now it is 0.5"),
        (["-o", "out.csv", "--every", "2"], "cannot resume: every was 1, now it is 2"),
        (["-o", "out.csv", "--horizon", "4"], "cannot resume: horizon was 3, now it is 4"),
        (["-o", "out.csv", "-t", "pitch"], "out.csv: already exists: add --overwrite, or choose another file"),
        (["-o", "out.csv", "-i", "power"], "column 'power' is named as target and as input"),
        (["-o", "out.csv", "--key", "state"], "cannot resume: key was None, now it is 'state'"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) else "",
)
def test_a_run_resumes_only_with_the_same_options(turbine, options, message):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    call(*command, "-o", "out.csv", "--limit", "30")
    Path("other.csv").write_text("precious\n" * 2000)
    before = {name: Path(name).read_bytes() for name in ("other.csv", "out.csv")}, models_in("run.db")
    told = call(*command, *options, code=1)[1]
    assert message in told and told.splitlines()[-1].startswith("momostream: ")
    assert before == ({name: Path(name).read_bytes() for name in before[0]}, models_in("run.db"))


def test_settings_are_remembered(turbine):
    """A run resumes with its first settings, even if they are not repeated."""
    call("run", "turbine.csv", *FORECAST, "--seed", "5", "--store", "run.db", "-o", "out.csv", "--limit", "30")
    plain = ["run", "turbine.csv", "-t", "power", "-t", "wind", "--horizon", "3", "--store", "run.db"]
    call(*plain, "-o", "out.csv")
    call("run", "turbine.csv", *FORECAST, "--seed", "5", "-o", "whole.csv")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_an_existing_file_is_not_overwritten_by_a_resumed_run(turbine):
    command = ["run", "turbine.csv", *FORECAST, "--store", "run.db"]
    call(*command, "--limit", "30")
    Path("out.csv").write_text("precious\n")
    told = call(*command, "-o", "out.csv", code=1)[1]
    assert "out.csv: already exists: add --overwrite, or choose another file" in told
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
    """The models of a store continue with another feed; predictions of the first are not lost."""
    both = feed_text(80).splitlines(keepends=True)
    Path("monday.csv").write_text("".join(both[:41]))
    Path("tuesday.csv").write_text("".join([both[0], *both[41:]]))
    call("run", "monday.csv", *SOFT, "-o", "out.csv", "--store", "run.db")
    before = Path("out.csv").read_text()
    assert (
        "out.csv: already exists" in call("run", "tuesday.csv", *SOFT, "-o", "out.csv", "--store", "run.db", code=1)[1]
    )
    assert Path("out.csv").read_text() == before
    call("run", "tuesday.csv", *SOFT, "-o", "tuesday.out.csv", "--store", "run.db")
    call("run", "turbine.csv", *SOFT, "--store", "whole.db")
    assert models_in("run.db") == models_in("whole.db")


@pytest.mark.parametrize("cut", [2, 12], ids=["in the last number", "in the middle"])
@pytest.mark.parametrize("key", [[], BY_TURBINE], ids=["one", "many"])
def test_an_incomplete_last_line(turbine, key, cut):
    """Is read again when it is complete, whatever it looked like before."""
    text = without_last_column(farm_text(20) if key else feed_text(60))
    Path("rows.csv").write_text(text.removesuffix("\n")[:-cut])
    command = ["run", "rows.csv", *key, *SOFT, "-o", "out.csv", "--store", "run.db"]
    _, told = call(*command)
    assert "the last line has no newline yet: row 60 is not saved in run.db, the next run reads it again" in told
    Path("rows.csv").write_text(text)
    assert "resuming after row 59 of rows.csv" in call(*command)[1]
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


def test_fit_keeps_existing_files_and_needs_rows(turbine):
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo")
    before = Path("model.momo").read_bytes()
    assert (
        "model.momo: already exists: add --overwrite"
        in call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", code=1)[1]
    )
    assert Path("model.momo").read_bytes() == before
    Path("empty.csv").write_text("time,wind,power\n")
    told = call("fit", "empty.csv", *FORECAST, "--save", "empty.momo", code=1)[1]
    assert told == "momostream: empty.csv: has no rows, nothing to save\n" and not Path("empty.momo").exists()


def test_a_target_without_values(turbine):
    lines = [line.rsplit(",", 2)[0] + ",," for line in feed_text(40).splitlines()[1:]]
    Path("gone.csv").write_text("time,wind,pitch,power,state\n" + "\n".join(lines) + "\n")
    command = ["run", "gone.csv", "-t", "power", "--horizon", "2", "-o", "out.csv", "--store", "run.db"]
    call(*command, "--report", "report.html")
    assert "has not learnt any target value yet" in call("forecast", "run.db", code=1)[1]
    assert "no values yet" in call("inspect", "run.db")[0]


@pytest.mark.parametrize("setting", ["bounds=5", "transforms=3", "bounds={'wind': ('a', 1)}", "experts=7"])
def test_invalid_settings(turbine, setting):
    told = call("run", "turbine.csv", "-t", "wind", "--horizon", "2", "--set", setting, code=1)[1]
    assert told.startswith("momostream: ") and told.count("\n") == 1


def test_rows_that_a_regressor_rejects_are_bad_rows(turbine):
    call("fit", "turbine.csv", "-t", "power", "-i", "wind", "--save", "model.momo")
    Path("today.csv").write_text("time,wind\n2024-03-02 00:00,7\n2024-03-02 00:10,1e200\n2024-03-02 00:20,8\n")
    assert "today.csv: row 2: " in call("forecast", "model.momo", "today.csv", code=1)[1]
    assert len(rows_of(call("forecast", "model.momo", "today.csv", "--bad-rows", "skip")[0])) == 2
    assert "--horizon and --plot" in call("forecast", "model.momo", "today.csv", "-n", "3", code=1)[1]


def test_bounds_keep_intervals_and_clip_values(turbine):
    most = 400.0
    assert any(float(row["power"]) > most for row in rows_of(Path("turbine.csv").read_text()))
    call("run", "turbine.csv", *FORECAST, "--bounds", f"power=0:{most:g}", "-o", "out.csv")
    rows = rows_of(Path("out.csv").read_text())
    assert rows and all(0.0 <= float(row["power lower"]) <= float(row["power upper"]) <= most for row in rows)


def test_angles_are_forecast_within_their_range_and_resumed(turbine):
    rng = np.random.default_rng(0)
    lines = ["direction,wind"]
    lines += [f"{(7 * t + rng.normal()) % 360:.6f},{8 + rng.normal():.6f}" for t in range(160)]
    Path("vane.csv").write_text("\n".join(lines) + "\n")
    command = ["run", "vane.csv", "--horizon", "3", "--bounds", "direction=0:360:circular", "--seed", "0"]
    call(*command, "-o", "out.csv")
    rows = [row for row in rows_of(Path("out.csv").read_text()) if int(row["row"]) > 60]
    ends = [[float(row[f"direction{part}"]) for part in ("", " lower", " upper")] for row in rows]
    assert all(0.0 <= end < 360.0 for line in ends for end in line)
    # Some intervals cross north.
    assert any(lower > upper for _, lower, upper in ends)
    for row, (mean, *_) in zip(rows, ends, strict=True):
        ahead = 7 * (int(row["row"]) - 1 + int(row["step"]))
        assert abs((mean - ahead + 180) % 360 - 180) < 5
    for limit in ("70", "160"):
        call(*command, "-o", "parted.csv", "--store", "vane.db", "--limit", limit)
    assert Path("parted.csv").read_text() == Path("out.csv").read_text()


def test_limits_are_found_unless_switched_off(turbine):
    counts = [(7 * t * t) % 5 for t in range(60)]
    Path("counts.csv").write_text("\n".join(["n", *map(str, counts)]) + "\n")
    lowest = {}
    for word in ("auto", "none"):
        call(
            "run", "counts.csv", "-t", "n", "--horizon", "2", "--bounds", word, "--level", "0.999", "-o", f"{word}.csv"
        )
        lowest[word] = [float(row["n lower"]) for row in rows_of(Path(f"{word}.csv").read_text())][-20:]
    assert min(lowest["none"]) < 0.0 == min(lowest["auto"])


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
    assert "resuming after row 40 of days" in told and "60 rows of 3 keys learnt" in told
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "-o", "whole.csv", "--store", "whole.db")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert models_in("run.db") == models_in("whole.db")
