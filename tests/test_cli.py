"""The command line as a user meets it: what it says, what it writes, how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import momostream
from momostream import cli, demo, inspection, live

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "momostream"]
QUICK = ["--set", "experts=('last value', 'own lags')"]
FORECAST = ["-t", "power", "-t", "wind", "--horizon", "3", *QUICK]


def feed_text(n, seed=0):
    rng = np.random.default_rng(seed)
    wind, lines = 8.0, ["time,wind,pitch,power,state"]
    for t in range(n):
        wind += 0.2 * (8.0 - wind) + 0.5 * rng.normal()
        stamp = f"2024-03-{1 + t // 144:02d} {t // 6 % 24:02d}:{10 * (t % 6):02d}"
        lines.append(f"{stamp},{wind:.3f},{rng.uniform(0, 4):.2f},{wind**3 + rng.normal():.2f},on")
    return "\n".join(lines) + "\n"


@pytest.fixture
def turbine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("turbine.csv").write_text(feed_text(80))
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


# ---------------------------------------------------------------------- run


def test_run_forecasts(turbine):
    out, told = call("run", "turbine.csv", *FORECAST)
    rows = rows_of(out)
    assert len(rows) == 80 * 3 and list(rows[0])[:4] == ["row", "step", "time", "power"]
    assert rows[-1]["time"] == "2024-03-01T13:40:00" and rows[-1]["row"] == "80"
    assert all(float(row["wind lower"]) <= float(row["wind"]) <= float(row["wind upper"]) for row in rows)
    assert "80 rows learnt, 77 predictions scored" in told and re.search(r"power: RMSE [\d.]+ \(last value", told)


def test_run_predicts_from_all_other_numbers(turbine):
    call("run", "turbine.csv", "-t", "power", "-o", "out.jsonl", "--save", "model.momo")
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [record["row"] for record in records] == list(range(2, 81))
    assert set(records[-1]["power"]) == {"mean", "lower", "upper"} and records[-1]["time"] == "2024-03-01T13:10:00"
    model = momostream.load("model.momo")
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
    call("run", "turbine.csv", *FORECAST, "-o", "whole.csv", "--save", "whole.momo")
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo", "--limit", "33")
    with Path("out.csv").open("a") as file:
        file.write("34,1,rows that were written, but not saved\n")
    _, told = call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo", "--resume")
    assert "going on behind row 33 of turbine.csv" in told
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("model.momo").read_bytes() == Path("whole.momo").read_bytes()


def test_resume_without_a_save_begins(turbine):
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo", "--resume")
    assert len(rows_of(Path("out.csv").read_text())) == 240


def test_a_save_is_not_overwritten_by_mistake(turbine):
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo"]
    call(*command)
    before = Path("out.csv").read_bytes()
    _, told = call(*command, code=1)
    assert told == "momostream: model.momo: holds a run up to row 80: add --resume or --overwrite\n"
    assert Path("out.csv").read_bytes() == before
    call(*command, "--overwrite")


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
    assert "has '9,123' a decimal comma?" in call("run", "german.csv", "-n", "2", code=1)[1]


def test_nested_objects_have_columns_of_their_own(turbine):
    lines = [json.dumps({"time": 60 * t, "ok": True, "sensor": {"wind": 8 + t % 5}}) for t in range(30)]
    Path("nested.jsonl").write_text("\n".join(lines) + "\n")
    rows = rows_of(call("run", "nested.jsonl", "-n", "1", *QUICK)[0])
    assert "sensor.wind" in rows[0] and "ok" not in rows[0] and rows[-1]["time"] == "1800"


def test_a_full_disk_is_named(turbine, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("momostream.container.os.fsync", full)
    told = call("run", "turbine.csv", *FORECAST, "--save", "model.momo", code=1)[1]
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
        (["run", ".", "-t", "power"], ".: is a folder"),
        (["run", "turbine.csv"], "name what to predict with --target, or how far to forecast with --horizon"),
        (["run", "turbine.csv", "-t", "powr"], "turbine.csv: column 'powr' does not exist: did you mean 'power'?"),
        (["run", "turbine.csv", "-t", "state"], "turbine.csv: column 'state' holds no numbers in the first rows"),
        (["run", "turbine.csv", "-t", "power", "-i", "power"], "column 'power' is named as target and as input"),
        (["run", "turbine.csv", "-t", "power", "--time", "at"], "turbine.csv: column 'at': does not exist; there are"),
        (["run", "turbine.csv", "-t", "power", "--level", "2"], "level=2.0 is not accepted"),
        (["run", "turbine.csv", "-t", "power", "--resume"], "--resume needs --save"),
        (["run", "turbine.csv", "-t", "power", "-o", "no/out.csv"], "no/out.csv: there is no such folder"),
        (["run", "turbine.csv", "-t", "power", "--save", "no/m.momo"], "no/m.momo: there is no such folder"),
        (["run", "turbine.csv", "-t", "power", "--save", "/dev/null"], "/dev/null: is not a file, as --save must be"),
        (["run", "turbine.csv", "-t", "power", "-o", "/dev/full"], "/dev/full: No space left on device"),
        (["run", "turbine.csv", "-t", "power", "--overwrite"], "--overwrite needs --save"),
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
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(turbine, arguments, message):
    _, told = call(*arguments, code=1)
    assert message in told and told.startswith("momostream: ") and told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "turbine.csv"], "turbine.csv: is named as FEED and as --output"),
        (["-o", "out.csv", "--save", "out.csv"], "out.csv: is named as --output and as --save"),
        (["-o", "out.csv", "--save", "./turbine.csv"], "turbine.csv: is named as FEED and as --save"),
    ],
)
def test_nothing_is_written_over_what_is_read(turbine, options, message):
    before = Path("turbine.csv").read_bytes()
    _, told = call("run", "turbine.csv", *FORECAST, *options, code=1)
    assert message in told and Path("turbine.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "other.csv"], "other.csv: is not the file that was written before"),
        (["-o", "out.csv", "--format", "jsonl"], "cannot go on: the format was 'csv', now it is 'jsonl'"),
        (["-o", "out.csv", "--seed", "5"], "cannot go on: seed was 0, now it is 5"),
        (["-o", "out.csv", "--set", "lags=3"], "cannot go on: lags was None, now it is 3"),
        (["-o", "out.csv", "--set", "lag=3"], "did you mean lags?"),
    ],
)
def test_a_run_goes_on_only_as_it_was(turbine, options, message):
    command = ["run", "turbine.csv", *FORECAST, "--save", "model.momo"]
    call(*command, "-o", "out.csv", "--limit", "30")
    Path("other.csv").write_text("precious\n" * 2000)
    before = {name: Path(name).read_bytes() for name in ("other.csv", "out.csv", "model.momo")}
    assert message in call(*command, *options, "--resume", code=1)[1]
    assert all(Path(name).read_bytes() == content for name, content in before.items())


def test_another_feed_does_not_cost_the_output(turbine):
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo"]
    call(*command, "--limit", "30")
    before = Path("out.csv").read_bytes()
    Path("turbine.csv").write_text(feed_text(80, seed=3))
    told = call(*command, "--resume", code=1)[1]
    assert told.startswith("momostream: turbine.csv: ") and Path("out.csv").read_bytes() == before


def test_overwriting_leaves_nothing_to_resume_from(turbine, monkeypatch):
    command = ["run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo"]
    call(*command)
    monkeypatch.setattr("momostream.running.Run.run", lambda *args: (_ for _ in ()).throw(OSError("killed")))
    call(*command, "--overwrite", code=1)
    assert not Path("model.momo").exists()


def test_a_line_in_the_making(turbine):
    lines = [line.removesuffix(",on") for line in feed_text(80).replace(",state", "").splitlines()]
    Path("turbine.csv").write_text("\n".join(lines)[:-2])
    _, told = call("run", "turbine.csv", "-t", "power", "-i", "wind", "-o", "out.csv", "--save", "model.momo")
    assert "the last line has no newline yet: row 80 is not in model.momo, and is read again" in told


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
    command = ["run", "gone.csv", "-t", "power", "--horizon", "2", "-o", "out.csv", "--save", "m.momo"]
    call(*command, "--report", "report.html")
    assert "has learnt no value of a target yet" in call("forecast", "m.momo", code=1)[1]
    assert "no values yet" in call("inspect", "m.momo")[0]


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


def test_another_plan_does_not_go_on(turbine):
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "model.momo")
    before = Path("out.csv").read_bytes()
    other = ["-t", "power", "-t", "wind", "--horizon", "4"]
    _, told = call("run", "turbine.csv", *other, "-o", "out.csv", "--save", "model.momo", "--resume", code=1)
    assert told == "momostream: cannot go on: horizon was 3, now it is 4\n"
    assert Path("out.csv").read_bytes() == before


# ---------------------------------------------------------------------- fit, forecast, inspect


def test_fit_then_forecast(turbine):
    _, told = call("fit", "turbine.csv", *FORECAST, "--save", "model.momo")
    assert "80 rows learnt, saved in model.momo" in told
    out, _ = call("forecast", "model.momo")
    rows = rows_of(out)
    assert [row["step"] for row in rows] == ["1", "2", "3"] and rows[0]["time"] == "2024-03-01T13:20:00"
    law = momostream.load("model.momo").forecast(3, with_dist=True)
    np.testing.assert_allclose([float(row["wind"]) for row in rows], law.mean["wind"], rtol=1e-8)
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
    call("run", "turbine.csv", "-t", "power", "-o", "out.csv", "--save", "regressor.momo")
    out, _ = call("inspect", "regressor.momo", "--plot", "circuit.png")
    for word in ("matern32", "lengthscales", "wind", "relevance", "80 rows", "rmse", "coverage"):
        assert word in out, word
    assert Path("circuit.png").stat().st_size > 5000
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--save", "forecaster.momo")
    out, _ = call("inspect", "forecaster.momo")
    assert "own lags" in out and "horizon" in out and "3 steps ahead" in out


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
def test_ctrl_c_saves_and_says_so(turbine, number):
    """While it waits for a row that does not come."""
    command = ["run", "-", "-t", "power", "-i", "wind", "-o", "out.csv", "--save", "model.momo"]
    process = start(*command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(feed_text(40).encode())
    process.stdin.flush()
    wait_for(lambda: Path("out.csv").exists())
    time.sleep(1.0)
    process.send_signal(number)
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "stopped behind row 40; saved in model.momo, go on with --resume" in told
    assert momostream.load("model.momo").n_rows == 40 and len(rows_of(Path("out.csv").read_text())) == 39


def test_killed_and_resumed(turbine):
    """By SIGKILL, while it works."""
    Path("long.csv").write_text(feed_text(1500))
    command = ["run", "long.csv", "-t", "power", "-i", "wind", "--commit-every", "100", "-q", "--resume"]
    process = start(*command, "-o", "out.csv", "--save", "model.momo")
    wait_for(lambda: Path("model.momo").exists() and Path("out.csv").stat().st_size > 20_000)
    process.kill()
    process.wait()
    assert 0 < len(rows_of(Path("out.csv").read_text())) < 1490
    call(*command, "-o", "out.csv", "--save", "model.momo")
    call(*command, "-o", "whole.csv", "--save", "whole.momo")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("model.momo").read_bytes() == Path("whole.momo").read_bytes()


def wait_for(happens, seconds=60.0):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys, time; from momostream import cli\n"
        "from typer.testing import CliRunner\n"
        "assert 'forecast' in CliRunner().invoke(cli.app, ['--help']).output\n"
        "print([m for m in ('numpy', 'numba', 'pandas', 'river', 'matplotlib') if m in sys.modules])\n"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy, seconds = done.stdout.splitlines()
    assert heavy == "[]" and float(seconds) < 1.0


def test_every_command_has_a_help():
    for command in ("demo", "run", "fit", "forecast", "inspect"):
        out, _ = call(command, "--help")
        assert "Usage" in out
    assert "is not the data set of the paper" in " ".join(call("demo", "--help")[0].split())
    assert call("--version")[0].strip() == f"momostream {momostream.__version__}"


def test_missing_packages_are_named(monkeypatch):
    from momostream import __main__

    monkeypatch.setitem(sys.modules, "momostream.cli", None)
    monkeypatch.delattr(momostream, "cli", raising=False)
    monkeypatch.delitem(sys.modules, "momostream.cli")
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

    from momostream.running import Plan, Run, make_model

    plan = Plan(demo.SERIES, (), "time", 5)
    run = Run(
        demo.TurbineFeed(demo.WindTurbine(seed=0, rate=4.0)), make_model(plan, {"experts": ("last value",)}), plan
    )
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
