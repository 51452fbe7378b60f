"""What goes out as lines: predictions and alarms as text, how a file is cut back, what a pipe sees."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPForecaster
from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row
from momostream.feeds.outputs import PredictionLines, Sink, Written, alarm_texts, format_for


def outlook(*means):
    mean = np.array([means], dtype=float)
    return PredictedValues(mean, mean - 1.0, mean + 1.0, None, None)


def row(number, time=None, key=None, **values):
    return Row(number, 10 * number, time, values, key)


def forecast(zone=None, time="at"):
    model = MOMoGPForecaster(horizon=2, experts=("last value",), time=time, seed=0)
    for t in range(8):
        x = {} if time is None else {"at": datetime(2024, 3, 1, tzinfo=zone) + timedelta(minutes=10 * t)}
        model.learn_one({"power": float(t % 3), "wind": 8.0}, x)
    return model.forecast(2, with_dist=True)


def cells(lines, *texts):
    """Cells of a CSV by its header, as a reader of CSV sees them."""
    return list(csv.DictReader(io.StringIO("\n".join([lines.header, *texts]) + "\n")))


# ---------------------------------------------------------------------- predictions as text


def test_csv_of_rows():
    lines = PredictionLines(["power", "load, total"], stepwise=False)
    texts = [
        lines.text(row(3, datetime(2024, 3, 1, 12)), outlook(1 / 3, np.nan)),
        lines.text(row(4, 17.5), outlook(1e9, 2.0)),
    ]
    header, *rows = csv.reader(io.StringIO("\n".join([lines.header, *texts])))
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
    distribution, lines = forecast(zone), PredictionLines(["wind", "power"], stepwise=True)
    rows = cells(lines, lines.text(row(8), PredictedValues.of(distribution, ["wind", "power"], 0.9)))
    assert [(line["row"], line["step"], line["time"]) for line in rows] == [
        ("8", "1", f"2024-03-01T01:20:00{ending}"),
        ("8", "2", f"2024-03-01T01:30:00{ending}"),
    ]
    interval = distribution.interval(0.9)
    for i, line in enumerate(rows):
        assert float(line["power"]) == pytest.approx(distribution.mean["power"].iloc[i], rel=1e-8)
        assert float(line["power lower"]) == pytest.approx(interval[("power", "lower")].iloc[i], rel=1e-7)
        assert float(line["power upper"]) == pytest.approx(interval[("power", "upper")].iloc[i], rel=1e-7)


def test_forecasts_without_times():
    distribution, lines = forecast(time=None), PredictionLines(["wind"], stepwise=True)
    assert [
        line["time"] for line in cells(lines, lines.text(row(8), PredictedValues.of(distribution, ["wind"], 0.9)))
    ] == [
        "",
        "",
    ]


def test_json_lines():
    stepwise = PredictionLines(["power"], stepwise=True, format="jsonl")
    plain = PredictionLines(["power"], stepwise=False, format="jsonl")
    assert stepwise.header is None and plain.header is None
    first = json.loads(stepwise.text(row(8), PredictedValues.of(forecast(), ["power"], 0.9)))
    second = json.loads(plain.text(row(9), outlook(np.nan)))
    assert first["row"] == 8 and [step["time"] for step in first["steps"]][0] == "2024-03-01T01:20:00"
    assert set(first["steps"][0]["power"]) == {"mean", "lower", "upper"}
    assert second == {"row": 9, "time": None, "power": {"mean": None, "lower": None, "upper": None}}


def test_a_text_is_one_line_for_each_row_of_the_file():
    """The file ends each with a newline: a text has none at its end, and JSON none at all."""
    distribution = PredictedValues.of(forecast(), ["power"], 0.9)
    assert PredictionLines(["power"], stepwise=True).text(row(8), distribution).count("\n") == 1
    assert "\n" not in PredictionLines(["power"], stepwise=True, format="jsonl").text(row(8), distribution)


def test_the_extension_decides_the_format(tmp_path):
    for name, format in [("a.csv", "csv"), ("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a", "csv"), ("-", "csv")]:
        assert format_for(name) == format and format_for(tmp_path / name) == format
    assert format_for(io.BytesIO()) == "csv"
    with pytest.raises(ValueError, match="format='xml'"):
        PredictionLines(["power"], stepwise=False, format="xml")


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_infinite_bounds_are_unknown(format):
    mean = np.zeros((1, 1))
    text = PredictionLines(["power"], stepwise=False, format=format).text(
        row(1), PredictedValues(mean, mean - np.inf, mean, None, None)
    )
    assert text == (
        "1,,0,,0" if format == "csv" else '{"row": 1, "time": null, "power": {"mean": 0, "lower": null, "upper": 0}}'
    )


# ---------------------------------------------------------------------- keys


def test_csv_begins_with_the_key():
    lines = PredictionLines(["power"], stepwise=False, key="turbine")
    texts = [lines.text(row(n, key=key), outlook(n)) for n, key in ((1, "T01"), (2, 17), (3, 'north, "old"'))]
    rows = cells(lines, *texts)
    assert list(rows[0])[:3] == ["turbine", "row", "time"]
    assert [(line["turbine"], line["row"], line["power"]) for line in rows] == [
        ("T01", "1", "1"),
        ("17", "2", "2"),
        ('north, "old"', "3", "3"),
    ]


def test_every_step_of_a_forecast_has_the_key():
    lines, distribution = (
        PredictionLines(["power"], stepwise=True, key="turbine"),
        PredictedValues.of(forecast(), ["power"], 0.9),
    )
    rows = cells(lines, lines.text(row(8, key="T01"), distribution))
    assert list(rows[0])[:4] == ["turbine", "row", "step", "time"]
    assert [(line["turbine"], line["step"]) for line in rows] == [("T01", "1"), ("T01", "2")]


@pytest.mark.parametrize("key", ["T01", 17, 0, "Süd"])
@pytest.mark.parametrize("stepwise", [False, True])
def test_json_lines_begin_with_the_key(key, stepwise):
    distribution = PredictedValues.of(forecast(), ["power"], 0.9) if stepwise else outlook(1.0)
    text = PredictionLines(["power"], stepwise, "jsonl", "turbine").text(row(8, key=key), distribution)
    assert list(json.loads(text))[:2] == ["turbine", "row"] and json.loads(text)["turbine"] == key
    assert str(key) in text, "texts other than ASCII stay readable"


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("format", "targets"),
    [("csv", ["power", "power lower"]), ("csv", ["row"]), ("jsonl", ["row"]), ("jsonl", ["steps"])],
)
def test_names_that_would_hide_each_other(format, targets):
    with pytest.raises(ValueError, match=f"target .* cannot be written as {format}"):
        PredictionLines(targets, stepwise=True, format=format)


@pytest.mark.parametrize(
    ("format", "key"), [("csv", "row"), ("csv", "time"), ("csv", "power upper"), ("jsonl", "row"), ("jsonl", "time")]
)
def test_a_key_that_would_hide_another_field(format, key):
    with pytest.raises(ValueError, match=f"key '{key}' cannot be written as {format}: another field has that name"):
        PredictionLines(["power"], stepwise=True, format=format, key=key)


def test_a_name_that_only_csv_needs():
    assert PredictionLines(["power"], stepwise=True, format="jsonl", key="power upper").key == "power upper"


# ---------------------------------------------------------------------- alarms


def alarms(at, targets, level=0.99, mean=(40.0, 1.0)):
    return [json.loads(text) for text in alarm_texts(at, outlook(*mean), targets, level)]


def test_values_outside_of_their_interval_are_alarms():
    at = row(7, datetime(2024, 3, 1), "T01", power=48.0, load=1.5)
    assert alarms(at, ["power", "load"]) == [
        {
            "key": "T01",
            "row": 7,
            "time": "2024-03-01T00:00:00",
            "target": "power",
            "value": 48.0,
            "lower": 39.0,
            "upper": 41.0,
            "level": 0.99,
        }
    ]


def test_each_target_has_an_alarm_of_its_own():
    found = alarms(row(7, 12.0, power=30.0, load=2.5), ["power", "load"])
    assert [(alarm["target"], alarm["value"]) for alarm in found] == [("power", 30.0), ("load", 2.5)]
    assert all("key" not in alarm and alarm["time"] == 12 for alarm in found)


@pytest.mark.parametrize(
    ("values", "mean"),
    [({}, (40.0,)), ({"power": 41.0}, (40.0,)), ({"power": 39.0}, (40.0,)), ({"power": 5.0}, (np.nan,))],
    ids=["no value", "upper end", "lower end", "nothing expected"],
)
def test_values_without_an_alarm(values, mean):
    assert alarms(row(1, **values), ["power"], mean=mean) == []


# ---------------------------------------------------------------------- files and pipes


def test_a_new_file_begins_with_the_header(tmp_path):
    for header, content in [("row,power", "row,power\n1,5\n"), (None, "1,5\n")]:
        with Sink(tmp_path / "out.csv", header) as sink:
            sink.write("1,5")
        assert (tmp_path / "out.csv").read_text() == content


def test_a_file_is_cut_back(tmp_path):
    path, lines = tmp_path / "out.csv", PredictionLines(["power"], stepwise=False)
    with Sink(path, lines.header) as sink:
        sink.write(lines.text(row(1), outlook(1.0)))
        after = sink.commit()
        sink.write(lines.text(row(2), outlook(2.0)))
    with Sink(path, lines.header, after) as sink:
        sink.write(lines.text(row(2), outlook(7.0)))
        assert sink.commit().position == path.stat().st_size
    texts = path.read_text().splitlines()
    assert [text.split(",")[0] for text in texts] == ["row", "1", "2"] and texts[2].startswith("2,,7")


def test_a_commit_brings_all_lines_to_the_disk(tmp_path, monkeypatch):
    path, synchronised, fsync = tmp_path / "out.csv", [], os.fsync

    def note(descriptor):
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        synchronised.append(path.read_text())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with Sink(path, "row,power") as sink:
        sink.write("1,5")
        sink.commit()
        sink.write("2,6")
        sink.commit()
    assert synchronised == ["row,power\n1,5\n", "row,power\n1,5\n2,6\n"]


@pytest.mark.parametrize("content", [None, b"row\n", b"x" * 1000], ids=["gone", "too short", "another"])
def test_another_file_is_not_continued(tmp_path, content):
    path = tmp_path / "out.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"out.csv: is (missing|not the file)"):
        Sink(path, "row,time,power", Written(100, b"7,,1\n"))
    assert path.read_bytes() == content if content is not None else not path.exists()


def test_a_pipe_gets_each_row_at_once():
    class Pipe(io.BytesIO):
        flushed = b""

        def flush(self):
            self.flushed = self.getvalue()

    pipe = Pipe()
    sink = Sink(pipe, "row,power")
    sink.write("1,5")
    assert pipe.flushed == pipe.getvalue() == b"row,power\n1,5\n" and sink.commit() is None
    sink.close()
    assert not pipe.closed


def test_no_cell_of_a_csv_is_a_formula():
    at = np.array([[-1.5]])
    lines = PredictionLines(["=power", "t"], stepwise=False, format="csv", key="@id")
    values = PredictedValues(np.array([[-1.5, 2.0]]), np.array([[-2.0, 1.0]]), np.array([[-1.0, 3.0]]), None, None)
    for key in ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"):
        cells = next(csv.reader([lines.text(Row(7, 0, -3.0, {}, key), values)]))
        assert cells == [f"'{key}", "7", "-3", "-1.5", "-2", "-1", "2", "1", "3"]
        as_json = PredictionLines(["t"], stepwise=False, format="jsonl", key="id")
        text = as_json.text(Row(7, 0, -3.0, {}, key), PredictedValues(at, at, at, None, None))
        assert json.loads(text)["id"] == key
    assert next(csv.reader([lines.header]))[:4] == ["'@id", "row", "time", "'=power"]
    assert next(csv.reader([lines.text(Row(7, 0, None, {}, -5), values)]))[0] == "-5"
