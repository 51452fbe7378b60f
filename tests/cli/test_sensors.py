"""Sensors that are added to, or dropped from, a store; files of a folder without a column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import BY_TURBINE, QUICK, call, farm_text, feed_text, load_from, read

ONE = ["--horizon", "3", *QUICK, "-t", "power"]
TWO = [*ONE, "-t", "wind"]


def put(n, name="farm.csv"):
    """The first rows of a farm of two machines."""
    Path(name).write_text("".join(farm_text(40, ("T01", "T02")).splitlines(keepends=True)[: 1 + 2 * n]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("events", [[], ["--alarms", "store", "--false-alarms", "1 per week"]])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_sensor_is_added_and_another_dropped(folder, keyed, events):
    options = [*(BY_TURBINE if keyed else []), *events, "--store", "run.db", "-q"]
    whole = farm_text(40, ("T01", "T02")) if keyed else feed_text(80)
    lines = whole.splitlines(keepends=True)
    for stop, targets in ((31, ONE), (61, TWO), (81, [*ONE[:-2], "-t", "wind"])):
        Path("farm.csv").write_text("".join(lines[:stop]))
        call("run", "farm.csv", *targets, *options)
    model = load_from("run.db", "T01" if keyed else "model")
    assert set(model.series) == {"power", "wind"} and model.n_rows == (40 if keyed else 80)
    found = read("run.db")
    assert len(found) == 80 and [line["row"] for line in found] == list(range(1, 81))
    assert {*found[29]["steps"][0]} - {"time"} == {"power"}
    assert {*found[45]["steps"][0]} - {"time"} == {"power", "wind"}
    assert {*found[-1]["steps"][0]} - {"time"} == {"wind"}


def test_inputs_may_be_added_to_a_soft_sensor(folder):
    put(15)
    call("run", "farm.csv", *BY_TURBINE, "-t", "power", "-i", "wind", "--store", "run.db", "-q")
    put(30)
    call("run", "farm.csv", *BY_TURBINE, "-t", "power", "-i", "wind", "-i", "pitch", "--store", "run.db", "-q")
    assert set(load_from("run.db", "T01").inputs) == {"wind", "pitch"}


def test_a_column_does_not_change_sides(folder):
    put(15)
    call("run", "farm.csv", *BY_TURBINE, *TWO, "--store", "run.db", "-q")
    message = call("run", "farm.csv", *BY_TURBINE, *ONE, "-i", "wind", "--store", "run.db", "-q", code=1)[1]
    assert "cannot resume: targets was ('power', 'wind'), now it is ('power',)" in message


def test_a_csv_of_other_columns_is_not_continued(folder):
    put(15)
    call("run", "farm.csv", *BY_TURBINE, *ONE, "--store", "run.db", "-o", "out.csv", "-q")
    before = Path("out.csv").read_bytes()
    put(30)
    command = ["run", "farm.csv", *BY_TURBINE, *TWO, "--store", "run.db", "-q"]
    assert (
        "out.csv: already exists: add --overwrite, or choose another file" in call(*command, "-o", "out.csv", code=1)[1]
    )
    assert Path("out.csv").read_bytes() == before
    call(*command, "-o", "new.csv")
    assert "wind" in Path("new.csv").read_text().splitlines()[0]


def test_one_file_without_a_column_does_not_stop_the_others(folder):
    lines = feed_text(60).splitlines()
    Path("days").mkdir()
    for day, part in enumerate((lines[1:21], lines[21:41], lines[41:61])):
        rows = [lines[0], *part]
        if day == 1:
            # Neither wind nor power.
            rows = [",".join(cells[:1] + cells[2:3]) for cells in (row.split(",") for row in rows)]
        Path(f"days/{day}.csv").write_text("\n".join(rows) + "\n")
    call("run", "days", *TWO, "--store", "run.db", "-q")
    model = load_from("run.db")
    assert model.n_rows == 60
    assert len(read("run.db")) == 60 and not read("run.db", "dead")
