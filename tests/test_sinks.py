"""Predictions as lines: what is written, how a file is cut back, what a pipe sees."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPForecaster
from momostream.sinks import Sink, Written
from momostream.tracking import Outlook


def outlook(*means):
    mean = np.array([means], dtype=float)
    return Outlook(mean, mean - 1.0, mean + 1.0, None, None)


def forecast(zone=None, time="at"):
    model = MOMoGPForecaster(horizon=2, experts=("last value",), time=time, seed=0)
    for t in range(8):
        x = {} if time is None else {"at": datetime(2024, 3, 1, tzinfo=zone) + timedelta(minutes=10 * t)}
        model.learn_one({"power": float(t % 3), "wind": 8.0}, x)
    return model.forecast(2, with_dist=True)


def test_csv_of_rows():
    stream = io.BytesIO()
    sink = Sink(stream, ["power", "load, total"], stepwise=False)
    sink.write(3, datetime(2024, 3, 1, 12), outlook(1 / 3, np.nan))
    sink.write(4, 17.5, outlook(1e9, 2.0))
    header, *rows = csv.reader(io.StringIO(stream.getvalue().decode()))
    names = [
        "row",
        "time",
        "power",
        "power lower",
        "power upper",
        "load, total",
        "load, total lower",
        "load, total upper",
    ]
    assert header == names
    assert rows[0] == ["3", "2024-03-01T12:00:00", "0.333333333", "-0.666666667", "1.33333333", "", "", ""]
    assert rows[1] == ["4", "17.5", "1e+09", "999999999", "1e+09", "2", "1", "3"]


@pytest.mark.parametrize(("zone", "ending"), [(None, ""), (UTC, "+00:00")])
def test_csv_of_forecasts(zone, ending):
    stream, law = io.BytesIO(), forecast(zone)
    Sink(stream, ["wind", "power"], stepwise=True).write(8, None, Outlook.of(law, ["wind", "power"], 0.9))
    rows = list(csv.DictReader(io.StringIO(stream.getvalue().decode())))
    assert [(row["row"], row["step"], row["time"]) for row in rows] == [
        ("8", "1", f"2024-03-01T01:20:00{ending}"),
        ("8", "2", f"2024-03-01T01:30:00{ending}"),
    ]
    interval = law.interval(0.9)
    for i, row in enumerate(rows):
        assert float(row["power"]) == pytest.approx(law.mean["power"].iloc[i], rel=1e-8)
        assert float(row["power lower"]) == pytest.approx(interval[("power", "lower")].iloc[i], rel=1e-7)
        assert float(row["power upper"]) == pytest.approx(interval[("power", "upper")].iloc[i], rel=1e-7)


def test_forecasts_without_times():
    stream, law = io.BytesIO(), forecast(time=None)
    Sink(stream, ["wind"], stepwise=True).write(8, None, Outlook.of(law, ["wind"], 0.9))
    assert [row["time"] for row in csv.DictReader(io.StringIO(stream.getvalue().decode()))] == ["", ""]


def test_json_lines():
    stream, law = io.BytesIO(), forecast()
    Sink(stream, ["power"], stepwise=True, format="jsonl").write(8, None, Outlook.of(law, ["power"], 0.9))
    Sink(stream, ["power"], stepwise=False, format="jsonl").write(9, None, outlook(np.nan))
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["row"] == 8 and [step["time"] for step in first["steps"]][0] == "2024-03-01T01:20:00"
    assert set(first["steps"][0]["power"]) == {"mean", "lower", "upper"}
    assert second == {"row": 9, "time": None, "power": {"mean": None, "lower": None, "upper": None}}


def test_the_name_of_the_file_tells_the_format(tmp_path):
    for name, format in [("a.csv", "csv"), ("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a", "csv")]:
        with Sink(tmp_path / name, ["power"], stepwise=False) as sink:
            assert sink.format == format
    with pytest.raises(ValueError, match="format='xml'"):
        Sink(tmp_path / "a", ["power"], stepwise=False, format="xml")


def test_a_file_is_cut_back(tmp_path):
    path = tmp_path / "out.csv"
    with Sink(path, ["power"], stepwise=False) as sink:
        sink.write(1, None, outlook(1.0))
        after = sink.commit()
        sink.write(2, None, outlook(2.0))
    with Sink(path, ["power"], stepwise=False, after=after) as sink:
        sink.write(2, None, outlook(7.0))
        assert sink.commit().position == path.stat().st_size
    lines = path.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["row", "1", "2"] and lines[2].startswith("2,,7")


@pytest.mark.parametrize("content", [None, b"row\n", b"x" * 1000], ids=["gone", "too short", "another"])
def test_another_file_is_not_continued(tmp_path, content):
    path = tmp_path / "out.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"out.csv: is (gone|not the file)"):
        Sink(path, ["power"], stepwise=False, after=Written(100, b"7,,1\n"))
    assert path.read_bytes() == content if content is not None else not path.exists()


@pytest.mark.parametrize(
    ("format", "targets"),
    [("csv", ["power", "power lower"]), ("csv", ["row"]), ("jsonl", ["row"]), ("jsonl", ["steps"])],
)
def test_names_that_would_hide_each_other(format, targets):
    with pytest.raises(ValueError, match=f"cannot be written as {format}"):
        Sink(io.BytesIO(), targets, stepwise=True, format=format)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_infinite_bounds_are_unknown(format):
    stream = io.BytesIO()
    mean = np.zeros((1, 1))
    Sink(stream, ["power"], stepwise=False, format=format).write(
        1, None, Outlook(mean, mean - np.inf, mean, None, None)
    )
    last = stream.getvalue().decode().splitlines()[-1]
    assert last == (
        "1,,0,,0"
        if format == "csv"
        else '{"row": 1, "time": null, "power": {"mean": 0.0, "lower": null, "upper": 0.0}}'
    )


def test_a_pipe_gets_each_row_at_once():
    class Pipe(io.BytesIO):
        flushed = b""

        def flush(self):
            self.flushed = self.getvalue()

    pipe = Pipe()
    sink = Sink(pipe, ["power"], stepwise=False)
    sink.write(1, None, outlook(1.0))
    assert pipe.flushed == pipe.getvalue() and sink.commit() is None
    sink.close()
    assert not pipe.closed
