"""`MOMoGPForecaster`: names, errors that change nothing, bounds, strategies and history, against the core model."""

from __future__ import annotations

import copy
import math
from datetime import timedelta
from random import Random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream import MOMoGPForecaster, load
from momostream.distributions.forecast import Forecast
from momostream.horizon.model import HorizonModel
from momostream.horizon.settings import HorizonSettings
from tests.estimators.series import SMALL, START, checksum, feed, trained

# ------------------------------------------------------------------ rows in, forecasts out


def test_is_the_core_model_by_name():
    model, core = MOMoGPForecaster(**SMALL), HorizonModel(HorizonSettings(**SMALL), 2, 1)
    for x, y in feed(50):
        model.learn_one(y, x)
        core.learn(np.array([y["power"], y["wind"]]), np.array([x["pitch"]]))
    assert model.series == ("power", "wind") and model.inputs == ("pitch",) and model.n_rows == 50
    expected = core.joint().means
    forecast = model.forecast(4, with_dist=True)
    assert isinstance(forecast, Forecast) and forecast.series == ("power", "wind")
    assert_allclose(forecast.mean, expected)
    assert model.forecast(4) == forecast.to_dicts()
    assert_allclose([[row["power"], row["wind"]] for row in model.forecast(2)], expected[:2])
    assert_array_equal(forecast._joint.between_series, core.correlation.between_series)
    # Inputs that are known in advance.
    xs = [{"pitch": 0.9}, {}, {"pitch": None, "unknown": 1.0}, {"pitch": 0.1}]
    ahead = model.forecast(4, xs, with_dist=True)
    assert_allclose(ahead.mean, core.joint(np.array([[0.9], [np.nan], [np.nan], [0.1]])).means)
    assert ahead.mean["power"][1] < forecast.mean["power"][1]


def test_shorter_forecasts_are_the_first_steps():
    model = trained()
    whole, part = model.forecast(4, with_dist=True), model.forecast(2, with_dist=True)
    assert len(part) == 2
    pd.testing.assert_frame_equal(part.interval(), whole.interval()[:2])
    assert_allclose(part.cov, whole.cov[:4, :4], rtol=1e-6)


def test_a_feed_of_numbers():
    model = MOMoGPForecaster(**SMALL)
    for t in range(30):
        model.learn_one(2.0 * t)
    assert model.series == ("y",)
    means = model.forecast(3)
    assert all(type(mean) is float for mean in means)
    assert_allclose(means, [60.0, 62.0, 64.0], atol=3.0)
    assert list(model.forecast(3, with_dist=True).mean["y"]) == means
    for missing in (None, math.nan):
        model.learn_one(missing)
    assert model.n_rows == 32
    with pytest.raises(TypeError, match="row 32: y was given as numbers so far, now it is a dict"):
        model.learn_one({"y": 1.0})
    with pytest.raises(TypeError, match="row 60: y was given as dicts so far, now it is a float"):
        trained().learn_one(1.0)


def test_before_the_first_value():
    model = MOMoGPForecaster(**SMALL)
    for with_dist in (False, True):
        with pytest.raises(ValueError, match="has learnt no value yet: call fit, update or learn_one first"):
            model.forecast(4, with_dist=with_dist)
    model.learn_one({})
    model.learn_one({"power": None}, {"pitch": 1.0})
    with pytest.raises(ValueError, match="has learnt no value yet"):
        model.predict()
    assert model.n_rows == 2 and model.series == model.inputs == ()
    assert "no values" in model.describe() and model.weights.empty and model.weights_history.empty
    model.learn_one({"power": 5.0})
    assert [row["power"] for row in model.forecast(2)] == pytest.approx([5.0, 5.0])
    # Nothing is known of it yet.
    assert (model.forecast(2, with_dist=True).std > 1.0).all(axis=None)


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**30])
def test_units_do_not_matter(factor):
    model, other = trained(80), MOMoGPForecaster(**SMALL)
    for x, y in feed(80):
        other.learn_one({"wind": y["wind"], "power": factor * y["power"]}, x)
    mine, theirs = (m.forecast(4, with_dist=True).interval() for m in (model, other))
    assert_allclose(theirs["wind"], mine["wind"], rtol=1e-6)
    assert_allclose(theirs["power"], factor * mine["power"], rtol=1e-6)


def test_missing_values_and_rows():
    model, core = MOMoGPForecaster(**SMALL), HorizonModel(HorizonSettings(**SMALL), 2, 0)
    for t, (_, y) in enumerate(feed(60)):
        gone = t % 7 == 3
        model.learn_one({} if gone else {**y, "power": None if t % 5 == 2 else y["power"]})
        row = np.array([y["power"], y["wind"]])
        row[0] = np.nan if t % 5 == 2 else row[0]
        core.learn(np.full(2, np.nan) if gone else row, np.empty(0))
    assert_allclose(model.forecast(4, with_dist=True).mean, core.joint().means)
    assert model.n_rows == 60


def test_intervals_widen_while_a_series_is_silent():
    model = trained(200, horizon=8)
    before = model.forecast(1, with_dist=True).std["wind"].iloc[0]
    for x, y in feed(6, seed=1):
        model.learn_one({"power": y["power"]}, x)
    assert model.forecast(1, with_dist=True).std["wind"].iloc[0] > 1.5 * before


# ------------------------------------------------------------------ names that come later


def test_new_names_are_learnt_with_the_rows_that_are_remembered():
    model = MOMoGPForecaster(**SMALL)
    rows = list(feed(80))
    for t, (x, y) in enumerate(rows):
        model.learn_one(y if t >= 40 else {"wind": y["wind"]}, x if t >= 60 else None)
    # As if the series and the input had been known, and missing, all along.
    core = HorizonModel(HorizonSettings(**SMALL), 2, 1)
    for t, (x, y) in enumerate(rows):
        power, pitch = y["power"] if t >= 40 else np.nan, x["pitch"] if t >= 60 else np.nan
        core.learn(np.array([y["wind"], power]), np.array([pitch]))
    assert model.series == ("wind", "power") and model.inputs == ("pitch",)
    assert_allclose(model.forecast(4, with_dist=True).mean, core.joint().means)
    assert model.n_rows == 80


def test_a_new_series_is_forecast_at_once():
    model = trained(30)
    model.learn_one({"wind": 8.0, "rain": 3.0})
    assert model.series == ("power", "wind", "rain")
    assert [row["rain"] for row in model.forecast(2)] == pytest.approx([3.0, 3.0], abs=1.0)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize("empty", [None, {}])
def test_rows_that_did_not_come_fit_numbers_and_dicts(empty):
    for y in (1.0, {"a": 1.0}):
        model = MOMoGPForecaster(**SMALL)
        for row in (empty, y, empty, y):
            model.learn_one(row)
        assert model.n_rows == 4 and len(model.forecast(2)) == 2


def test_xs_is_a_list_of_dicts_or_a_frame():
    model = MOMoGPForecaster(**SMALL)
    for t in range(30):
        model.learn_one(float(t % 3), {"u": float(t % 3)})
    with pytest.raises(TypeError, match="xs must be a frame or a list with a dict for each step"):
        model.forecast(2, xs={"u": [1.0, 2.0]})
    assert model.forecast(2, pd.DataFrame({"u": [1.0, 2.0]})) == model.forecast(2, [{"u": 1.0}, {"u": 2.0}])
    with pytest.raises(TypeError, match="step 2 of xs: the value of 'u' is a str"):
        model.forecast(2, pd.DataFrame({"u": [1.0, "high"]}))


@pytest.mark.parametrize(
    ("y", "x", "error", "words"),
    [
        ({"wind": math.inf}, None, ValueError, "row 60: the value of 'wind' is infinite"),
        ({"wind": "calm"}, None, TypeError, "row 60: the value of 'wind' is a str"),
        ({"wind": {"north": 1.0}}, None, TypeError, "'wind' is a dict"),
        ({"wind": 1.0}, {"pitch": [1.0]}, TypeError, "row 60: the value of 'pitch' is a list"),
        ({"wind": 1.0}, 3.0, TypeError, "expected x to be a dict, got float"),
        ({"wind": 1.0, "new": 1e60}, {"newer": 1.0}, ValueError, "'new' is 1e"),
        ([1.0], None, TypeError, "now it is a list"),
    ],
)
def test_errors_name_the_row_and_change_nothing(y, x, error, words):
    model = trained()
    before = checksum(model)
    with pytest.raises(error, match=words):
        model.learn_one(y, x)
    assert checksum(model) == before


@pytest.mark.parametrize(
    ("horizon", "xs", "words"),
    [
        (0, None, "horizon=0"),
        (True, None, "horizon=True"),
        (2.0, None, r"horizon=2\.0"),
        (5, None, "5 steps with a model of 4.*recursive"),
        (3, [{}, {}], "2 rows for 3 steps"),
        (2, [{}, {"pitch": math.inf}], "step 2 of xs: the value of 'pitch' is infinite"),
    ],
)
def test_wrong_forecasts_are_named(horizon, xs, words):
    with pytest.raises(ValueError, match=words):
        trained(10).forecast(horizon, xs)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"horizon": 0}, "horizon=0"),
        ({"strategy": "both"}, "strategy='both'"),
        ({"strategy": "recursive", "conformal": True}, "conformal=True requires"),
        ({"lags": 0}, "lags=0"),
        ({"seasons": 1}, "seasons=1 is not accepted: use a whole number from 2 to 1048576, or a tuple"),
        ({"seasons": [24]}, r"seasons=\[24\] is not accepted"),
        ({"conformal": "maybe"}, "conformal='maybe' is not accepted: use True or False"),
        ({"experts": ("lags",)}, "use 'own lags' or 'wide lags'"),
        ({"experts": ("own lags", "residual rbf")}, "'residual' experts require 'wide lags'"),
    ],
)
def test_wrong_parameters_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        MOMoGPForecaster(**settings)


def test_forecasting_changes_nothing():
    model = trained()
    before = checksum(model)
    for horizon, xs in ((4, None), (2, [{"pitch": 3.0, "new": 1.0}] * 2)):
        distribution = model.forecast(horizon, xs, with_dist=True)
        distribution.sample(3), distribution.interval(), distribution.cov
    assert checksum(model) == before
    # And what was returned stays as it was.
    distribution = model.forecast(4, with_dist=True)
    mean = model.forecast(4)
    for x, y in feed(5, seed=3):
        model.learn_one(y, x)
    assert distribution.to_dicts() == mean


@pytest.mark.parametrize("settings", [{"horizon": 3}, {"horizon": 48}, {"horizon": 48, "window": 60}])
def test_asking_does_not_change_what_is_learnt(settings):
    asked, left_alone = (MOMoGPForecaster(max_points=16, seed=0, **settings) for _ in range(2))
    for x, y in feed(200):
        for model in (asked, left_alone):
            model.learn_one(y, x)
        asked.forecast(2, [{"pitch": 0.3}] * 2)
    assert asked.forecast(3) == left_alone.forecast(3)
    assert checksum(asked) == checksum(left_alone)


BAD = [math.inf, "text", [1.0], {"a": 1}, 1 + 2j, 1e60, object()]


@pytest.mark.parametrize("name", ["plain", "time", "bounds", "circuits", "numbers"])
def test_random_calls(name):
    settings = {
        "plain": {}, "time": {"time": "at"}, "numbers": {},
        "bounds": {"bounds": {"a": (-1e9, None)}, "transforms": {"b": ("sqrt", 1e3)}},
        "circuits": {"experts": ("last value", "own lags", "wide lags", "matern32", "residual rbf"), "max_points": 12},
    }[name]  # fmt: skip
    random, model, now, n_errors = Random(7), None, START, 0
    for call in range(600):
        if call % 150 == 0:
            model = MOMoGPForecaster(**{**SMALL, **settings})
        values = {key: random.gauss(0.0, 3.0) for key in random.sample("abc", random.randrange(4))}
        y = random.choice([1.0, None, random.gauss(0.0, 1.0)]) if name == "numbers" else values
        x = {key: random.gauss(0.0, 1.0) for key in random.sample(["p", ("q", 1)], random.randrange(3))}
        if name == "time":
            now += timedelta(minutes=random.choice([10, 10, 10, 11, 9.5, 45, 0, -10]))
            x["at"] = now
        if random.random() < 0.1:
            if name == "numbers" or random.random() < 0.5:
                x["p"] = random.choice(BAD)
            else:
                y[random.choice("abc")] = random.choice(BAD)
        before = checksum(model)
        try:
            model.learn_one(y, x if x or random.random() < 0.5 else None)
        except (TypeError, ValueError) as error:
            n_errors += 1
            assert str(error).startswith(f"row {model.n_rows}: ")
            assert checksum(model) == before
            if name == "time":
                now = max(now, START) + timedelta(minutes=30)
        if model.series:
            forecast = model.forecast(3, with_dist=True)
            assert np.isfinite(forecast.arrays.mean).all()
            assert call % 8 or np.isfinite(forecast.interval()).all(axis=None)
    assert n_errors > 20


@pytest.mark.parametrize("scale", [1e-30, 1e28])
def test_values_of_any_size(scale):
    model = MOMoGPForecaster(horizon=3, max_points=12, seed=0)
    random = Random(0)
    for _ in range(60):
        model.learn_one({"a": scale * random.gauss(0.0, 1.0), "b": random.gauss(0.0, 1.0)})
    forecast = model.forecast(3, with_dist=True)
    assert np.isfinite(forecast.interval()).all(axis=None) and np.isfinite(forecast.sample(5, 0)).all()


@pytest.mark.parametrize("value", [0.0, 5.0, -1e-9])
def test_constant_series(value):
    model = MOMoGPForecaster(horizon=3, max_points=12, seed=0)
    for _ in range(60):
        model.learn_one(value)
    assert_allclose(model.forecast(3), value, atol=1e-6)
    forecast = model.forecast(3, with_dist=True)
    assert np.isfinite(forecast.interval()).all(axis=None) and np.isfinite(forecast.log_pdf([value] * 3))


# ------------------------------------------------------------------ bounds, strategies


def test_bounds_and_transforms():
    model = MOMoGPForecaster(
        **SMALL, bounds={"level": (0.0, 1.0)}, transforms={"level": "logit", "flow": "log"}, beyond="error"
    )
    random = Random(0)
    for _ in range(80):
        model.learn_one(
            {"level": 1.0 / (1.0 + math.exp(-random.gauss(2.0, 1.0))), "flow": math.exp(random.gauss(0, 1))}
        )
    forecast = model.forecast(4, with_dist=True)
    paths = forecast.sample(500, seed=0)
    level, flow = (paths[..., model.series.index(name)] for name in ("level", "flow"))
    assert 0.0 < level.min() and level.max() < 1.0 and flow.min() > 0.0
    assert 0.75 < forecast.median["level"].iloc[0] < 0.95 and 0.5 < forecast.median["flow"].iloc[0] < 2.0
    before = checksum(model)
    with pytest.raises(ValueError, match="row 80: target 'level' is 1.5, above its upper bound"):
        model.learn_one({"level": 1.5, "flow": 1.0})
    with pytest.raises(ValueError, match="row 80: target 'flow' is 0.0"):
        model.learn_one({"flow": 0.0, "brand new": 1.0})
    assert checksum(model) == before
    # A series of numbers is named y.
    with pytest.raises(ValueError, match="target 'y' is -1.0"):
        MOMoGPForecaster(bounds={"y": (0.0, None)}, beyond="error").learn_one(-1.0)


def test_recursive_forecasts_are_paths_of_the_core(monkeypatch):
    asked = []

    def simulate(self, n_paths, horizon, X, rng, ahead):
        asked.append((n_paths, X.copy(), rng.random()))
        distribution = np.ones((5, 1, horizon, self.n_series))
        steps, series = np.eye(horizon), np.eye(self.n_series)
        return SimpleNamespace(planes=distribution, between_steps=steps, between_series=series, means=None)

    monkeypatch.setattr(HorizonModel, "simulate", simulate, raising=False)
    model = trained(20, strategy="recursive")
    assert model._model.settings.horizon == 1
    assert model.forecast(9) == 9 * [{"power": 1.0, "wind": 1.0}]
    model.forecast(2, [{"pitch": 0.5}, {}])
    assert np.isnan(asked[0][1]).all() and asked[0][1].shape == (9, 1)
    assert_array_equal(asked[1][1], [[0.5], [np.nan]])
    # Randomness belongs to the row: the same forecast can be made again.
    assert asked[0][2] == asked[1][2]
    model.learn_one({"wind": 8.0})
    model.forecast(1)
    assert asked[2][2] != asked[0][2]


def test_conformal_quantiles_are_those_of_the_moment():
    model, plain = trained(60, conformal=True), trained(60).forecast(4, with_dist=True)
    assert not np.allclose(model.forecast(4, with_dist=True).interval(), plain.interval())
    for _ in range(300):
        model._model.conformal.learn(np.full((4, 2), 3.0))
    moved = model.forecast(4, with_dist=True)
    before = moved.median
    assert (before > plain.quantile(0.6)).all(axis=None)
    assert_array_equal(moved.mean, plain.mean)
    for _ in range(300):
        model._model.conformal.learn(np.full((4, 2), -3.0))
    pd.testing.assert_frame_equal(moved.median, before)
    assert (model.forecast(4, with_dist=True).median < plain.median).all(axis=None)
    assert len(model.forecast(2, with_dist=True).interval()) == 2


def test_recursive_forecasts_go_as_far_as_one_likes():
    model = trained(200, strategy="recursive", horizon=4)
    forecast = model.forecast(50, [{"pitch": 0.5}] * 50, with_dist=True)
    assert len(forecast) == 50 and np.isfinite(forecast.interval()).all(axis=None)
    assert 6.0 < forecast.mean["wind"].iloc[-1] < 10.0
    assert forecast.std["wind"].iloc[-1] > forecast.std["wind"].iloc[0]
    assert model.forecast(50) == model.forecast(50) == copy.deepcopy(model).forecast(50)
    assert model.weights_at(1).shape[1] == 2
    before = checksum(model)
    model.forecast(5, with_dist=True).sample(3)
    assert checksum(model) == before


# ------------------------------------------------------------------ history


def history(n=120):
    rows = list(feed(n))
    index = pd.date_range(START, periods=n, freq="10min")
    return pd.DataFrame([{**x, **y} for x, y in rows], index=index)


def test_fit_is_learning_row_by_row():
    frame = history()
    model = trained(7).fit(frame.reset_index(drop=True), inputs=["pitch"])
    assert model.forecast(4) == trained(120).forecast(4)
    assert model.n_rows == 120 and model.inputs == ("pitch",)


def test_fit_takes_times_from_the_index_or_a_column():
    frame = history()
    model = MOMoGPForecaster(**SMALL).fit(frame, inputs=["pitch"])
    assert model._model.seasons == (144, 288, 1008)
    assert model.forecast(1, with_dist=True).index[0] == frame.index[-1] + pd.Timedelta(minutes=10)
    column = MOMoGPForecaster(**SMALL, time="at").fit(frame.rename_axis("at").reset_index(), inputs=["pitch"])
    index = MOMoGPForecaster(**SMALL, time="at").fit(frame, inputs=["pitch"])
    assert column.forecast(4) == index.forecast(4) == model.forecast(4)
    # The stream goes on, with timestamps or without.
    x, y = next(feed(1, seed=5))
    index.learn_one(y, {**x, "at": frame.index[-1] + pd.Timedelta(minutes=10)})
    model.learn_one(y, x)
    assert index.forecast(4) == model.forecast(4)


def test_fit_needs_no_times_if_there_are_too_few():
    model = MOMoGPForecaster(**SMALL).fit(history(3))
    model.learn_one({"wind": 1.0})
    assert model.n_rows == 4 and model.forecast(1, with_dist=True).index.name == "step"
    assert MOMoGPForecaster(**SMALL).fit(history(0)).series == ()


def test_fit_mistakes_are_named_and_change_nothing(capsys):
    model = trained(20)
    before = checksum(model)
    frame = history(10)
    with pytest.raises(TypeError, match="DataFrame or Series, a polars frame, an array or a list of dicts, got int"):
        model.fit(1)
    with pytest.raises(ValueError, match="two columns 'wind'"):
        model.fit(pd.concat([frame, frame[["wind"]]], axis=1))
    for inputs in (["rain"], "wind"):
        with pytest.raises(ValueError, match="inputs="):
            model.fit(frame, inputs=inputs)
    with pytest.raises(ValueError, match="row 3: time must increase"):
        model.fit(frame.iloc[[0, 1, 2, 1]])
    with pytest.raises(TypeError, match="row 1: the value of 'wind' is a str"):
        model.fit(pd.DataFrame({"wind": [1.0, "calm"]}))
    assert checksum(model) == before
    assert capsys.readouterr().err == ""
    model.fit(frame, verbose=True)
    assert "10/10" in capsys.readouterr().err


# ------------------------------------------------------------------ weights, text, control


def test_weights():
    model = trained(200)
    assert model.weights.index.name == "expert" and list(model.weights.columns) == ["power", "wind"]
    assert_allclose(model.weights.sum(), 1.0)
    steps = [model.weights_at(step) for step in range(1, 5)]
    assert_allclose(sum(steps) / 4, model.weights)
    assert "last value" in model.weights.index
    for step in (0, 5, 1.0, True):
        with pytest.raises(ValueError, match="step="):
            model.weights_at(step)
    lines = model.weights_history
    assert list(lines.columns) == ["row", "expert", "series", "weight"]
    assert sorted(set(lines["row"])) == [64, 128, 192]
    assert_allclose(lines.groupby(["row", "series"])["weight"].sum(), 1.0)
    # A new series joins the history; what was before stays.
    model.learn_one({"rain": 1.0})
    for x, y in feed(60, seed=2):
        model.learn_one({**y, "rain": 1.0}, x)
    lines = model.weights_history
    assert set(lines["series"][lines["row"] == 64]) == {"power", "wind"}
    assert set(lines["series"][lines["row"] == 256]) == {"power", "wind", "rain"}


def test_describe_names_series_and_experts():
    text = trained(100).describe()
    assert "100 rows learnt; 2 series, 1 inputs, 4 steps ahead" in text and "last value  weight 0." in text


def test_files_keep_the_history_of_weights(tmp_path):
    model = trained(130)
    model.save(tmp_path / "model.momo")
    again = load(tmp_path / "model.momo")
    assert len(again.weights_history) > 0
    pd.testing.assert_frame_equal(again.weights_history, model.weights_history)


def test_steps_that_have_hardly_been_learnt_do_not_run_away():
    """Far steps are learnt late: a regression on two rows must not be trusted with a third."""
    from momostream.datasets.wind import WindTurbine

    frame = WindTurbine(seed=0, rate=1 / 60, dropouts=0.02).frame(80)[["power", "wind_speed", "flap_1"]]
    lowest, highest = frame.min(), frame.max()
    model = MOMoGPForecaster(horizon=60, time="time", seed=0)
    for time, row in frame.iterrows():
        model.learn_one(row.to_dict(), {"time": time})
        mean = model.forecast(60, with_dist=True).mean
        beyond = pd.concat([mean - highest, lowest - mean]) / (highest - lowest)
        assert beyond.max().max() < 1.0


def test_relevance_is_that_of_the_circuits():
    model = MOMoGPForecaster(horizon=2, experts=("last value", "matern32"), seed=0)
    assert model.relevance == {}
    rng = np.random.default_rng(0)
    for _ in range(300):
        valve = float(rng.normal())
        model.learn_one({"power": valve}, {"valve": valve})
    # With one circuit, weights do not matter: the shares are those of a forecast's reasons.
    assert model.relevance == pytest.approx(model.explain()["relevance"])
    assert sum(model.relevance.values()) == pytest.approx(1.0)
    without = MOMoGPForecaster(horizon=2, experts=("last value", "own lags"), seed=0)
    for n in range(60):
        without.learn_one({"power": float(n % 3)})
    assert without.relevance == {}
