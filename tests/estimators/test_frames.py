"""Frames in and out of `MOMoGPRegressor`."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from momostream import MOMoGPRegressor
from tests.estimators.rows import SMALL, X, feed, frames, state, trained


def test_learn_many_is_about_learn_one():
    frame, targets = frames(200)
    # Not in the first rows: a column that joins later is another column.
    targets.iloc[4::7, 0] = np.nan
    frame.iloc[4::11, 1] = np.nan
    targets.iloc[50] = np.nan
    one = MOMoGPRegressor(**{**SMALL, "tuning_evaluations": 0, "max_points": 400})
    many = one.clone()
    for x, y in zip(frame.to_dict("records"), targets.to_dict("records"), strict=True):
        one.learn_one(x, y)
    many.learn_many(frame, targets)
    assert many.n_rows == one.n_rows == 199
    a, b = one.predict_one(X, with_dist=True), many.predict_one(X, with_dist=True)
    for name in ("power", "load"):
        assert b.mean[name] == pytest.approx(a.mean[name], abs=0.05 * a.std[name])
        assert b.std[name] == pytest.approx(a.std[name], rel=0.02)


def test_frames_in_any_shape():
    frame, targets = frames(80)
    model = MOMoGPRegressor(**SMALL)
    model.learn_many(frame[:40], targets[:40])
    again = model.clone()
    again.learn_many(frame[["pitch", "wind"]][:40], targets[["load", "power"]][:40])
    assert state(again) == state(model)

    wider = frame[40:60].assign(new=1.0)
    model.learn_many(wider.drop(columns="wind"), targets[40:60].assign(third=3.0))
    assert set(model.predict_one(X)) == {"power", "load", "third"}
    before = state(model)
    model.learn_many(frame[:0], targets[:0])
    model.learn_many(pd.DataFrame(), pd.DataFrame())
    assert state(model) == before


def test_predict_many_keeps_the_index_and_says_what_predict_one_says():
    model = trained()
    frame, _ = frames(12, seed=3)
    frame.index = pd.date_range("2024-01-01", periods=12, freq="h")
    frame.iloc[3, 0] = np.nan
    means = model.predict_many(frame)
    assert means.index.equals(frame.index) and list(means.columns) == ["load", "power"]
    for (_, row), (_, mean) in zip(frame.iterrows(), means.iterrows(), strict=True):
        expected = model.predict_one(row.to_dict())
        assert mean.to_dict() == pytest.approx(expected, rel=1e-9)
    distribution = model.predict_many(frame, with_dist=True)
    lower, upper = distribution.interval(0.9)
    expected = model.predict_one(frame.iloc[5].to_dict(), with_dist=True).interval(0.9)["power"]
    np.testing.assert_allclose([lower[5, 1], upper[5, 1]], expected, rtol=1e-6)
    assert model.predict_many(frame[[]]).shape == (12, 2)


@pytest.mark.parametrize("settings", [{}, {"weights": "uniform"}, {"bounds": {"power": (0.0, None)}}])
def test_predict_many_of_no_rows(settings):
    model = trained(**settings)
    assert model.predict_many(pd.DataFrame({"wind": [], "pitch": []})).shape == (0, 2)


@pytest.mark.parametrize("value", ["fast", 1j, math.inf, 1e60, datetime(2024, 1, 1)])
def test_bad_cells_are_named_and_change_nothing(value):
    model = trained(20)
    before = state(model)
    dtype = object if isinstance(value, complex) else None
    frame = pd.DataFrame({"wind": pd.Series([1.0, value], ["a", "b"], dtype), "new": 1.0})
    good = pd.DataFrame({"power": [1.0, 2.0], "other": 1.0}, index=["a", "b"])
    for call in (
        lambda: model.learn_many(frame, good),
        lambda: model.learn_many(good, frame),
        lambda: model.predict_many(frame),
        lambda: model.fit(frame, good),
    ):
        with pytest.raises((TypeError, ValueError), match="row 'b' of [XY]: .*'wind'"):
            call()
        assert state(model) == before


def test_frames_that_do_not_fit():
    model = trained(20)
    frame, targets = frames(5)
    with pytest.raises(ValueError, match="5 rows and Y 4"):
        model.learn_many(frame, targets[:4])
    with pytest.raises(TypeError, match="X must be a pandas DataFrame or Series, .* got int"):
        model.predict_many(3)
    with pytest.raises(TypeError, match="Y must be a pandas DataFrame or Series, .* got dict"):
        model.learn_many(frame, {"power": 1.0})
    twice = pd.concat([frame, frame[["wind"]]], axis=1)
    with pytest.raises(ValueError, match="X has two columns 'wind'"):
        model.learn_many(twice, targets)


def test_columns_of_all_types():
    model = trained(20)
    frame = pd.DataFrame({"wind": pd.array([8, None], dtype="Int64"), "pitch": pd.array([True, None], "boolean")})
    targets = pd.DataFrame({"power": pd.array([24.0, None], "Float64"), "load": np.array([8, 9], dtype=np.int8)})
    model.learn_many(frame, targets)
    assert model.n_rows == 22


def test_fit_starts_afresh_and_streams_on():
    frame, targets = frames(150)
    model = trained(30, rows=[({"z": 1.0}, {"old": 5.0})] * 30)
    assert model.fit(frame, targets) is model
    assert model.n_rows == 150 and set(model.predict_one(X)) == {"power", "load"}
    other = MOMoGPRegressor(**SMALL).fit(frame, targets)
    assert other.predict_one(X) == model.predict_one(X)
    for x, y in feed(20, seed=4):
        model.learn_one(x, y)
    assert model.n_rows == 170
    assert model.predict_one(X)["power"] == pytest.approx(24.0, abs=1.0)


# ------------------------------------------------------------------ other tables


def test_tables_of_other_libraries():
    frame, targets = frames(60)
    expected = state(MOMoGPRegressor(**SMALL).fit(frame, targets))
    tables = {
        "polars": (pl.from_pandas(frame), pl.from_pandas(targets)),
        "dicts": (frame.to_dict("records"), targets.to_dict("records")),
    }
    for name, (inputs, outputs) in tables.items():
        assert state(MOMoGPRegressor(**SMALL).fit(inputs, outputs)) == expected, name
    arrays = MOMoGPRegressor(**SMALL).fit(frame.to_numpy(), targets["power"].to_numpy())
    assert set(arrays.inputs) == {"x0", "x1"} and arrays.targets == ("y",)
    series = MOMoGPRegressor(**SMALL).fit(frame, targets["power"])
    assert series.targets == ("power",)
    with pytest.raises(ValueError, match="X has no names, and the model has learnt the columns 'pitch', 'wind'"):
        series.predict(frame.to_numpy())


def test_predict_and_its_quantiles():
    model = trained()
    frame, _ = frames(6, seed=3)
    pd.testing.assert_frame_equal(model.predict(frame), model.predict_many(frame))
    pd.testing.assert_frame_equal(model.predict(pl.from_pandas(frame)), model.predict_many(frame))
    quantiles, interval = model.predict_quantiles(frame, [0.05, 0.95]), model.predict_interval(frame, 0.9)
    for i, x in enumerate(frame.to_dict("records")):
        for name, sides in model.predict_one(x, with_dist=True).interval(0.9).items():
            assert tuple(interval[name].iloc[i]) == pytest.approx(sides, rel=1e-6)
            assert tuple(quantiles[name].iloc[i]) == pytest.approx(sides, rel=1e-6)
    assert list(interval.columns) == [(name, side) for name in model.targets for side in ("lower", "upper")]
    assert model.predict_interval(frame[:0]).shape == (0, 4)
    for call in (model.clone().predict_interval, model.clone().predict_quantiles):
        with pytest.raises(ValueError, match="has learnt no row yet"):
            call(frame)
    with pytest.raises(ValueError):
        model.predict_quantiles(frame, [1.5])


def test_update_is_learn_many():
    frame, targets = frames(60)
    model, other = trained(20), trained(20)
    model.learn_many(frame, targets)
    assert other.update(frame, targets) is other and state(other) == state(model)


def test_categories_as_inputs():
    rng = np.random.default_rng(0)
    modes = rng.choice(["idle", "run", "test"], 300)
    level = {"idle": 1.0, "run": 10.0, "test": 4.0}
    X = pd.DataFrame({"wind": rng.normal(size=300), "mode": modes})
    Y = pd.DataFrame({"power": [level[mode] for mode in modes] + 0.1 * rng.normal(size=300)})
    many = MOMoGPRegressor(**SMALL, categories=("mode",)).fit(X, Y)
    one = MOMoGPRegressor(**SMALL, categories=("mode",))
    for x, y in zip(X.to_dict("records"), Y.to_dict("records"), strict=True):
        one.learn_one(x, y)
    for model in (one, many):
        assert set(model.inputs) == {"wind", "mode=idle", "mode=run", "mode=test"}
        for mode, power in level.items():
            assert model.predict_one({"wind": 0.0, "mode": mode})["power"] == pytest.approx(power, abs=1.0)
            row = pd.DataFrame({"wind": [0.0], "mode": [mode]})
            assert model.predict(row)["power"].iloc[0] == pytest.approx(power, abs=1.0)
        assert 0.0 < model.predict_one({"wind": 0.0, "mode": "unknown"})["power"] < 11.0
        assert 0.0 < model.predict_one({"wind": 0.0, "mode": None})["power"] < 11.0
    with pytest.raises(
        TypeError, match="row 0 of X: the value of 'mode' is a str, not a number: name it in categories"
    ):
        MOMoGPRegressor(**SMALL).fit(X, Y)
