"""The report as a browser would read it: parsed, not searched for strings."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from momostream import MOMoGPForecaster, MOMoGPRegressor, __version__
from momostream.distributions.predicted import PredictedValues
from momostream.runs.lookback import DAY
from momostream.runs.scores import Track
from momostream.show import plots, report
from momostream.show.report import write_report

VOID = {"meta", "img", "br", "link", "hr", "input"}
NASTY = "<script>alert('x')</script> & \"quoted\""


class Page(HTMLParser):
    """Tables, images, texts and every address of a page."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.images, self.addresses, self.tags, self.open = [], [], [], [], []
        self.texts = {}
        self.feed(text)
        self.close()
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.addresses += [attrs[name] for name in ("src", "href", "srcset", "action", "data") if name in attrs]
        if tag == "img":
            self.images.append(attrs)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if self.open and self.open[-1] in ("th", "td"):
            self.tables[-1][-1][-1] += data


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def run_regressor(n_rows=80, targets=("power", "load")):
    rng = np.random.default_rng(0)
    model, track = MOMoGPRegressor(max_points=32, tuning_evaluations=0, seed=0), Track(targets)
    for row in range(1, n_rows + 1):
        x = {"wind": rng.uniform(0.0, 9.0)}
        y = {name: (k + 1) * x["wind"] + rng.normal() for k, name in enumerate(targets)}
        distribution = model.predict_one(x, with_dist=True)
        if distribution:
            track.expect(PredictedValues.of(distribution, track.targets, track.level))
        track.observe(row, y)
        model.learn_one(x, y)
    return track, model, distribution


def run_forecaster(targets=("power",), n_rows=70, horizon=3):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n_rows, len(targets))).cumsum(axis=0), columns=list(targets))
    model = MOMoGPForecaster(horizon, experts=("last value", "own lags", "matern32"), seed=0)
    track = Track(targets, horizon)
    for row, y in enumerate(frame.to_dict("records"), 1):
        if row > 20:
            track.expect(PredictedValues.of(model.forecast(horizon, with_dist=True), track.targets, track.level))
        track.observe(row, y)
        model.learn_one(y)
    return track, model, model.forecast(horizon, with_dist=True), frame


@pytest.fixture(scope="module")
def regression():
    track, model, distribution = run_regressor()
    track._shares = [(32, {"wind": 0.4, "clock": 0.6}), (64, {"wind": 0.7, "clock": 0.3})]
    return track, model, distribution


@pytest.fixture(scope="module")
def forecasts():
    return run_forecaster()


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without pictures, which take most of the time."""
    monkeypatch.setattr(report, "_drawn", lambda *given: {})


def number(text):
    return float(text.replace("−", "-").replace(",", "").removesuffix(" %"))


def test_pictures_are_inside_and_can_be_seen(regression, tmp_path):
    track, model, distribution = regression
    page = read(write_report(tmp_path / "report.html", track, model, forecast=distribution))
    assert len(page.images) == 6
    for attrs in page.images:
        kind, data = attrs["src"].split(",")
        assert kind == "data:image/png;base64"
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        image.load()
        assert image.format == "PNG" and image.size[0] > 300
        # Not a blank sheet.
        assert len(image.convert("RGB").getcolors(1 << 20)) > 20
        ratio = int(attrs["width"]) / int(attrs["height"])
        assert ratio == pytest.approx(image.size[0] / image.size[1], rel=0.01)
        assert len(attrs["alt"]) > 20
    captions = page.texts["figcaption"]
    assert len(captions) == 6 and all(len(caption) > 60 for caption in captions)
    assert len({attrs["alt"] for attrs in page.images}) == 6


def test_nothing_is_loaded_and_only_our_scripts_run(regression, tmp_path):
    path = write_report(tmp_path / "report.html", *regression[:2], command="momostream run")
    page, text = read(path), path.read_text(encoding="utf-8")
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not {"link", "iframe", "object", "form"} & set(page.tags)
    assert "url(" not in text and "@import" not in text
    # The notice of uPlot's licence.
    assert re.findall(r"https?://[^ ]+", text) == ["https://github.com/leeoniya/uPlot"]
    assert path.stat().st_size < 1_500_000
    policy = re.search('script-src ([^;"]+)', text)[1].split()
    data, *codes = re.findall("<script[^>]*>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in codes]
    assert policy == [f"'sha256-{digest}'" for digest in digests] and len(codes) == 2
    assert [target["name"] for target in json.loads(data)["targets"]] == ["power", "load"]


def test_names_cannot_end_the_script_of_the_charts(tmp_path):
    track, model, _ = run_regressor(40, ("</script><script>alert(1)</script>",))
    page = write_report(tmp_path / "r.html", track, model).read_text(encoding="utf-8")
    assert "<script>alert" not in page and page.count("<script") == 3


def test_report_without_comparisons_allows_no_script(tmp_path):
    page = write_report(tmp_path / "r.html", Track(["power"]), MOMoGPRegressor()).read_text(encoding="utf-8")
    assert "script-src 'none'" in page and "<script" not in page


def test_table_of_targets_has_the_numbers_of_the_track(regression, tmp_path, undrawn):
    track, model, _ = regression
    header, *rows = read(write_report(tmp_path / "r.html", track, model)).tables[0]
    assert header == ["target", "RMSE", "RMSE, last value", "against last value", "MAE", "NLPD", "coverage"]
    assert [row[0] for row in rows] == ["power", "load"]
    for row, (_, line) in zip(rows, track.summary.iterrows(), strict=True):
        rmse, naive, change, mae, nlpd, coverage = map(number, row[1:])
        assert [rmse, naive, mae, nlpd] == pytest.approx([*line[["rmse", "naive", "mae", "nlpd"]]], rel=1e-3)
        assert change == pytest.approx(100 * (line["rmse"] / line["naive"] - 1), abs=0.06)
        assert coverage == pytest.approx(100 * line["coverage"], abs=0.06)


def test_table_of_steps_of_one_target(forecasts, tmp_path, undrawn):
    track, model, *_ = forecasts
    header, *rows = read(write_report(tmp_path / "r.html", track, model)).tables[1]
    assert header[0] == "step" and [row[0] for row in rows] == ["1", "2", "3"]
    for row, (_, line) in zip(rows, track.by_step.iterrows(), strict=True):
        assert number(row[1]) == pytest.approx(line["rmse", "power"], rel=1e-3)
        assert number(row[2]) == pytest.approx(line["naive", "power"], rel=1e-3)
        assert number(row[4]) == pytest.approx(line["mae", "power"], rel=1e-3)
        assert number(row[5]) == pytest.approx(line["nlpd", "power"], rel=1e-3)
        assert number(row[6]) == pytest.approx(100 * line["coverage", "power"], abs=0.06)


def test_table_of_steps_of_several_targets_has_means_of_what_has_no_unit(tmp_path):
    track, model, forecast, history = run_forecaster(("a", "b", "c"), 50)
    page = read(write_report(tmp_path / "r.html", track, model, forecast=forecast, history=history))
    header, *rows = page.tables[1]
    assert header == ["step", "against last value", "NLPD", "coverage"]
    for row, (_, line) in zip(rows, track.by_step.iterrows(), strict=True):
        change, nlpd, coverage = map(number, row[1:])
        assert change == pytest.approx(100 * (np.exp(np.log(line["rmse"] / line["naive"]).mean()) - 1), abs=0.06)
        assert nlpd == pytest.approx(line["nlpd"].mean(), rel=1e-3)
        assert coverage == pytest.approx(100 * line["coverage"].mean(), abs=0.06)
    assert len(page.images) == 7  # lookback, scores, calibration, steps, forecast, correlation, circuit


def test_tiles(regression, tmp_path, undrawn):
    track, model, _ = regression
    facts = {"Rows per second": "612", "Feed": "a file with quite a long name.csv", "Rows learnt": "81"}
    page = read(write_report(tmp_path / "r.html", track, model, facts=facts))
    tiles = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    ratio = track.summary["rmse"] / track.summary["naive"]
    assert tiles == {
        "Rows learnt": "81",
        "Predictions scored": "79",
        "Error against the last value": f"{100 * (np.sqrt(ratio.prod()) - 1):+.0f} %".replace("-", "−"),
        "Inside the 90 % interval": f"{100 * track.summary['coverage'].mean():.1f} %",
        "Rows per second": "612",
    }
    assert ["Feed", "a file with quite a long name.csv"] in [row for table in page.tables for row in table]
    plain = read(write_report(tmp_path / "r.html", track, model))
    assert dict(zip(plain.texts["dt"], plain.texts["dd"], strict=True))["Rows learnt"] == "80"


def test_model_settings_versions_and_command(regression, tmp_path, undrawn):
    track, model, _ = regression
    settings = {"horizon": None, "targets": ("a", "b"), "level": 0.9}
    page = read(write_report(tmp_path / "r.html", track, model, settings=settings, command="momostream run 'a b.csv'"))
    pairs = {row[0]: row[1] for table in page.tables for row in table if len(row) == 2}
    assert (pairs["horizon"], pairs["targets"], pairs["level"]) == ("none", "a, b", "0.9")
    assert pairs["momostream"] == __version__ and pairs["numpy"] == np.__version__
    assert page.texts["pre"] == [model.describe(), "momostream run 'a b.csv'"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", page.texts["time"][0])
    own = read(write_report(tmp_path / "r.html", track, model))
    pairs = {row[0]: row[1] for table in own.tables for row in table if len(row) == 2}
    assert pairs["max_points"] == "32"
    assert own.texts["pre"] == [model.describe()]


def test_everything_is_escaped(tmp_path):
    track, model, distribution = run_regressor(20, (NASTY, 3))
    page = read(
        write_report(
            tmp_path / "r.html", track, model, forecast=distribution, title=NASTY,
            facts={NASTY: NASTY}, settings={NASTY: NASTY},
            command=NASTY,
        )
    )  # fmt: skip
    assert page.tags.count("script") == 3
    assert page.texts["h1"] == [NASTY] and page.texts["title"] == [NASTY]
    assert page.tables[0][1][0] == NASTY and page.tables[0][2][0] == "3"
    assert page.texts["pre"][-1] == NASTY


def test_forecast_comes_with_the_newest_rows(forecasts, tmp_path, monkeypatch):
    from momostream.show import plots

    track, model, forecast, history = forecasts
    drawn = []
    draw = plots.plot_forecast
    monkeypatch.setattr(plots, "plot_forecast", lambda f, past: drawn.append(past) or draw(f, past))
    write_report(tmp_path / "r.html", track, model, forecast=forecast, history=history)
    write_report(tmp_path / "r.html", track, model, forecast=forecast)
    pd.testing.assert_frame_equal(drawn[0], history[-30:])
    assert drawn[1] is None


def test_figures_are_saved_as_well(forecasts, tmp_path):
    track, model, forecast, history = forecasts
    folder = tmp_path / "deep" / "figures"
    page = read(write_report(tmp_path / "r.html", track, model, forecast=forecast, history=history, figures=folder))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(files) == {"lookback.png", "scores.png", "calibration.png", "steps.png", "forecast.png", "circuit.png"}
    inside = {base64.b64decode(attrs["src"].split(",")[1]) for attrs in page.images}
    assert inside == set(files.values())


def test_run_without_scores_and_without_rows(tmp_path):
    page = read(write_report(tmp_path / "r.html", Track(["power"]), MOMoGPRegressor()))
    assert page.images == []
    assert dict(zip(page.texts["dt"], page.texts["dd"], strict=True)) == {"Rows learnt": "0"}
    assert any("Nothing has been scored yet" in text for text in page.texts["p"])


def test_scores_that_are_not_there(tmp_path):
    # The last value is always right on a constant target.
    model, track = MOMoGPRegressor(experts=("lags",), seed=0), Track(["a", "constant", "never"])
    for row in range(1, 31):
        distribution = model.predict_one({}, with_dist=True)
        if distribution:
            track.expect(PredictedValues.of(distribution, track.targets, track.level))
        y = {"a": np.sin(row), "constant": 2.0}
        track.observe(row, y)
        model.learn_one({}, y)
    page = read(write_report(tmp_path / "r.html", track, model))
    _, _, constant, never = page.tables[0]
    assert constant[3] == "–"
    assert never[1:] == ["–"] * 6


def test_an_old_report_survives_what_goes_wrong(regression, tmp_path, undrawn, monkeypatch):
    track, model, _ = regression
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(source, target):
        raise OSError("disk full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr(os, "replace", fail)
        write_report(path, track, model)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert write_report(str(path), track, model) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_alarms_and_worst_days_are_listed(tmp_path, undrawn):
    track, model, *_ = run_forecaster(n_rows=40)
    lookback = track.lookback
    lookback.note_alarms([
        '{"row": 7, "time": "2024-03-01T00:00:00", "target": "power", "value": 48.0, "lower": null, "upper": 42.0}',
        '{"row": 9, "time": "2024-03-01T02:00:00", "event": 8, "open": false, "begin": "2024-03-01T01:00:00", '
        '"n_rows": 31, "columns": {"power": {"observed": 0.0, "expected": 912.5, "deviations": -9.5}}}',
        '{"row": 9, "time": "2024-03-01T02:00:00", "event": 8, "open": true, "begin": "2024-03-01T02:00:00", '
        '"alarm": "power < 200 within 6h", "probability": 0.718}',
    ])  # fmt: skip
    for day, error in enumerate([1.0, 2.0, 4.0], 19_783):
        lookback.score(day * DAY, np.array([error**2]), np.array([1.0]), np.array([1.0]))
    page = read(write_report(tmp_path / "r.html", track, model))
    alarms, _, days = page.tables[:3]
    assert alarms[1:] == [
        ["2024-03-01T02:00:00", "9", "power < 200 within 6h", "", "probability 72%"],
        ["2024-03-01T01:00:00", "9", "power (31 rows)", "0.000", "912.5"],
        ["2024-03-01T00:00:00", "7", "power", "48.00", "– to 42.00"],
    ]
    assert [row[0] for row in days[1:]] == ["2024-03-03", "2024-03-02"]
    assert [row[2] for row in days[1:]] == ["+300 %", "+100 %"]


def test_series_have_the_order_of_the_user_and_times_are_said_in_hours(tmp_path, monkeypatch):
    track, model, forecast, history = run_forecaster(("wind", "power"), 50)
    track.step = 3600e6
    shown = {}
    monkeypatch.setattr(plots, "plot_forecast", lambda given, history: shown.update(names=given.series) or Figure())
    page = read(write_report(tmp_path / "r.html", track, model, forecast=forecast, history=history))
    assert shown["names"] == ("wind", "power")
    assert "up to 3 hours ahead" in page.texts["header"][0]
