"""Spans of time on the command line: --horizon 6h, --every 1h, --start, --last."""

from __future__ import annotations

import csv
import math
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from momostream.feeds import Feed, FeedError
from momostream.feeds.extent import Extent
from momostream.runs.scores import Track
from momostream.serve.config import ConfigError, read_config_text
from tests.cli.commands import call, models_in, read, rows_of

BEGIN = datetime(2024, 3, 1)


def write_feed(name, n, first=0, zone=""):
    """Ten-minute rows of one turbine."""
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "power"])
        for t in range(first, first + n):
            at = (BEGIN + timedelta(minutes=10 * t)).isoformat() + zone
            writer.writerow([at, round(500 + 100 * math.sin(t / 9) + t % 7, 2)])


@pytest.fixture
def feed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_feed("turbine.csv", 75)
    return "turbine.csv"


def made_at(text):
    """Rows at which forecasts were made, and how many steps each has."""
    return Counter(int(row["row"]) for row in rows_of(text))


def test_a_span_is_as_many_rows(feed):
    """One hour of ten-minute rows is six rows; forecasts begin when the step is known."""
    spans = call("run", feed, "-t", "power", "--horizon", "1h", "-q")[0]
    numbers = call("run", feed, "-t", "power", "--horizon", "6", "-q")[0]
    assert set(made_at(spans).values()) == {6}
    # The first rows come before the step of the feed is known.
    assert numbers.endswith("\n".join(spans.splitlines()[1:]) + "\n")
    assert set(made_at(numbers)) - set(made_at(spans)) <= set(range(1, 5))


def test_once_an_hour_and_the_newest_row(feed):
    """Forecasts are made at full hours; the newest row gets one, too."""
    out = made_at(call("run", feed, "-t", "power", "--horizon", "6", "--every", "1h", "-q")[0])
    assert list(out) == [*range(1, 75, 6), 75]
    by_rows = made_at(call("run", feed, "-t", "power", "--horizon", "6", "--every", "10", "-q")[0])
    assert list(by_rows) == [*range(1, 75, 10), 75]


def test_resumed_runs_predict_at_the_same_rows(tmp_path, monkeypatch):
    """Two runs into a store learn what one does; the first one's newest row has a forecast of its own."""
    monkeypatch.chdir(tmp_path)
    options = ("-t", "power", "--horizon", "1h", "--every", "1h", "-q")
    write_feed("turbine.csv", 40)
    call("run", "turbine.csv", *options, "--store", "parts.db")
    write_feed("turbine.csv", 75)
    call("run", "turbine.csv", *options, "--store", "parts.db")
    call("run", "turbine.csv", *options, "--store", "whole.db")
    assert models_in("parts.db") == models_in("whole.db")
    parts, whole = ({line["row"]: line for line in read(name)} for name in ("parts.db", "whole.db"))
    assert parts.keys() - whole.keys() == {40}
    assert all(parts[row] == line for row, line in whole.items())


@pytest.mark.parametrize(
    ("options", "n"),
    [
        (("--start", "2024-03-01T06:00"), 39),
        (("--last", "2h"), 12),
        (("--last", "20"), 20),
        (("--start", "2024-03-01"), 75),
    ],
    ids=["start", "span", "rows", "all"],
)
def test_part_of_a_feed(feed, options, n):
    _, said = call("fit", feed, "-t", "power", "--horizon", "3", "--save", "model.momo", *options)
    assert f"{n} rows learnt" in said
    assert made_at(call("forecast", "model.momo", "--horizon", "20min")[0]) == {n: 2}


def test_a_resumed_run_leaves_out_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("-t", "power", "--horizon", "3", "--last", "10", "--store", "run.db")
    write_feed("turbine.csv", 30)
    assert "10 rows learnt" in call("run", "turbine.csv", *options)[1]
    write_feed("turbine.csv", 60)
    assert "40 rows learnt" in call("run", "turbine.csv", *options)[1]


def test_start_in_the_zone_of_the_rows(tmp_path):
    path = tmp_path / "zone.csv"
    write_feed(path, 30, zone="+02:00")
    with Feed(str(path), ["power"], "time") as opened:
        rows = list(Extent(opened, start=datetime(2024, 3, 1, 4)).events())
    assert len(rows) == 6


def test_start_of_another_kind(tmp_path):
    path = tmp_path / "plain.csv"
    write_feed(path, 5)
    with Feed(str(path), ["power"], "time") as opened, pytest.raises(FeedError, match="need a date as start"):
        list(Extent(opened, start=3.0).events())


@pytest.mark.parametrize("option", ["--horizon", "--every", "--last"])
@pytest.mark.parametrize("text", ["soon", "0", "-3", "6x"])
def test_wrong_spans(feed, option, text):
    said = call("run", feed, "-t", "power", option, text, code=2)[1]
    assert "expected a whole number of rows" in " ".join(said.replace("│", " ").split())


def test_spans_need_times(feed):
    assert "rows have no times" in call("run", feed, "-t", "power", "--horizon", "6h", "--time", "none", code=1)[1]
    assert "is not a time" in call("run", feed, "-t", "power", "--horizon", "6", "--start", "noon", code=1)[1]


def test_the_last_rows_of_a_pipe(feed):
    assert (
        "only files and folders" in call("run", "mqtt://host/rows", "-t", "power", "-n", "3", "--last", "5", code=1)[1]
    )


def test_keys_of_a_configuration():
    text = '[feeds.north]\nsource = "a.csv"\ntargets = ["power"]\nhorizon = "6h"\n'
    text += 'every = "1h"\nlast = "30d"\nstart = "2024-03-01"'
    feed = read_config_text(text).feeds[0]
    assert (feed.horizon, feed.every, feed.last, feed.start) == ("6h", "1h", "30d", "2024-03-01")
    with pytest.raises(ConfigError, match=r"line 4: feeds.north.horizon: expected a whole number of rows"):
        read_config_text(text.replace("6h", "6x"))
    with pytest.raises(ConfigError, match="pushed are all taken"):
        read_config_text(text.replace("a.csv", "http"))
    with pytest.raises(ConfigError, match="a text with a date"):
        read_config_text(text.replace("2024-03-01", "noon"))


def test_track_grows():
    """Scores of steps that come later are kept beside the first ones."""
    track = Track(["power"], 1)
    track._grow(3)
    assert track.n_steps == 3
    assert list(track.by_step.index) == [1, 2, 3]
    assert Track.from_state(track.state()).n_steps == 3


def test_init_writes_spans(feed):
    call("init", feed, "--horizon", "6h")
    assert read_config_text(Path("farm.toml").read_text()).feeds[0].horizon == "6h"
