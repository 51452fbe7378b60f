"""Angles: turns are counted on the way in, forecasts and scores come back to the circle."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor, load
from momostream.distributions.circular import Circles
from momostream.distributions.predicted import PredictedValues
from momostream.estimators.backtest import backtest
from momostream.feeds.formats import Row
from momostream.feeds.outputs import alarm_texts
from momostream.runs.scores import Track
from momostream.storage import container

EXPERTS = ("last value", "season", "own lags")
COMPASS = {"direction": (0, 360, "circular")}


def forecaster(bounds=COMPASS, **options):
    return MOMoGPForecaster(**{"horizon": 6, "experts": EXPERTS, "seed": 0, "bounds": bounds} | options)


def vane(n, seed=0, low=0.0, speed=7.0):
    """A vane that turns steadily, and a wind speed beside it."""
    rng = np.random.default_rng(seed)
    for t in range(n):
        yield {"direction": float((speed * t + rng.normal() - low) % 360.0 + low), "wind": 8.0 + float(rng.normal())}


def taught(rows, **options):
    model = forecaster(**options)
    for row in rows:
        model.learn_one(row)
    return model


def around(a, b):
    return np.abs((np.asarray(a) - b + 180.0) % 360.0 - 180.0)


def naive_turns(readings):
    """The readings with their turns, one by one."""
    last, found = None, []
    for reading in readings:
        if reading is None:
            found.append(np.nan)
            continue
        best = reading
        if last is not None:
            # In exact steps of a turn, as far as needed.
            while best - last > 180.0:
                best -= 360.0
            while best - last < -180.0:
                best += 360.0
        last = best
        found.append(best)
    return np.array(found)


def test_turns_are_counted_over_many_rounds_and_gaps():
    rng = np.random.default_rng(3)
    line = np.cumsum(rng.normal(20.0, 40.0, 600))
    readings = [float(value) for value in line % 360.0]
    for gap in (5, 6, 7, 200, 599):
        readings[gap] = None
    model = forecaster(screen=False)
    for reading in readings:
        model.learn_one({"direction": reading, "wind": 1.0})
    past = model._model.past
    column = model.series.index("direction")
    seen = past.observed[past.first : past.last + 1, column]
    expected = naive_turns(readings)[-len(seen) :]
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    assert np.nanmax(expected) > 10 * 360.0


@pytest.mark.parametrize("low", [0.0, -180.0])
def test_a_turning_vane_is_forecast_across_the_end_of_its_range(low):
    bounds = {"direction": (low, low + 360.0, "circular")}
    # Row 411 is the last before north: 7 * 411 = 2877 = 8 * 360 - 3.
    rows = list(vane(420, low=low))
    model = taught(rows[:409], bounds=bounds)
    forecast = model.forecast(with_dist=True)
    mean = forecast.mean["direction"].to_numpy()
    actual = np.array([7.0 * t for t in range(409, 415)])
    assert around(mean, actual).max() < 3.0
    assert ((mean >= low) & (mean < low + 360.0)).all()
    for values in (forecast.median["direction"], forecast.quantile(0.05)["direction"], forecast.sample(50, 0)[..., 0]):
        assert ((np.asarray(values) >= low) & (np.asarray(values) < low + 360.0)).all()
    assert (around(forecast.sample(200, seed=0)[..., 0], actual) < 20.0).all()
    assert model.forecast() == forecast.to_dicts()


def test_an_interval_that_crosses_north_covers():
    model, inside, crossed = forecaster(), [], 0
    for t, row in enumerate(vane(500)):
        if t > 100:
            forecast = model.forecast(1, with_dist=True)
            lower, upper = forecast.interval(0.9)["direction"].to_numpy()[0]
            assert 0.0 <= lower < 360.0 and 0.0 <= upper <= 360.0
            if lower > upper:
                crossed += 1
                inside.append(lower <= row["direction"] or row["direction"] <= upper)
            predicted = PredictedValues.of(forecast, ("direction",), 0.999)
            assert around(forecast.cdf([row])["direction"].iloc[0], 0.5) <= 0.5
            assert forecast.crps([row])["direction"].iloc[0] < 6.0
            raised = alarm_texts(Row(t, t, None, row), predicted, ("direction",), 0.999)
            lower, upper = predicted.lower[0, 0], predicted.upper[0, 0]
            covered = lower <= row["direction"] <= upper
            if lower > upper:
                covered = row["direction"] >= lower or row["direction"] <= upper
            assert bool(raised) != bool(covered)
        model.learn_one(row)
    assert crossed >= 5
    assert np.mean(inside) > 0.7


def test_densities_and_events_know_the_circle():
    model = taught(list(vane(411)))
    forecast = model.forecast(1, with_dist=True)
    near = [forecast.log_pdf([{"direction": value}]) for value in (357.0, -3.0, 717.0)]
    np.testing.assert_allclose(near, near[0])
    # The mean is about 357.
    assert forecast.probability("direction > 340").iloc[0] > 0.9
    assert forecast.probability("direction < 340", "any") < 0.2
    with pytest.raises(ValueError, match="'direction' is an angle"):
        forecast.aggregate({"both": ["direction", "wind"]})
    assert len(forecast["direction"].circles.ranges) == 1
    assert not forecast["wind"].circles


def test_whole_and_crossing_intervals():
    circles = Circles({0: (0.0, 360.0)})
    lower, upper = circles.interval(np.array([[-400.0], [-10.0]]), np.array([[400.0], [10.0]]))
    assert lower.tolist() == [[0.0], [350.0]]
    assert upper.tolist() == [[360.0], [10.0]]
    found = circles.is_inside(np.array([[180.0], [180.0]]), lower, upper)
    assert found.tolist() == [[True], [False]]
    assert circles.wrap(np.array([-1e-20])).tolist() == [0.0]
    assert Circles.from_state(circles.state()).ranges == circles.ranges


def test_scores_are_measured_around_the_circle():
    rows = list(vane(400))
    model, track = forecaster(), Track(["wind", "direction"], 6)
    for t, row in enumerate(rows):
        if t >= 60:
            forecast = model.forecast(with_dist=True)
            track.expect(PredictedValues.of(forecast, track.targets, track.level))
        if t == 200:
            # Saved in the middle.
            state = container.loads(container.dumps("track", track.state()))[1]
            track = Track.from_state(state)
        track.observe(t, row)
        model.learn_one(row)
    scores = track.summary.loc["direction"]
    assert scores["rmse"] < 4.0
    assert scores["mae"] < 3.0
    assert scores["coverage"] > 0.8
    assert 25.0 < scores["naive"] < 30.0


def test_backtests_measure_around_the_circle():
    import pandas as pd

    found = backtest(forecaster(), pd.DataFrame(list(vane(300))), horizon=3, step=3, progress=False)
    scores = found.summary.loc["direction"]
    assert scores["MAE"] < 4.0
    assert scores["RMSE"] < 6.0
    assert scores["coverage 0.9"] > 0.75
    # In units of the mean change of 7 degrees.
    np.testing.assert_allclose(scores["MASE"] * 7.0, scores["MAE"], rtol=0.1)
    assert found.compare(found)["ratio"].loc["direction"] == 1.0


def test_copies_continue_alike(tmp_path):
    rows = list(vane(260))
    # Few rows are saved as rows, many as a model.
    for n in (20, 200):
        model = taught(rows[:n])
        model.save(tmp_path / "model.momo")
        for again in (load(tmp_path / "model.momo"), pickle.loads(pickle.dumps(model))):
            twin = taught(rows[:n])
            for row in rows[n : n + 40]:
                assert again.forecast() == twin.forecast()
                again.learn_one(row)
                twin.learn_one(row)
    assert "direction: an angle from 0 to 360" in model.describe()
    assert "circular" in repr(model)


def test_where_the_counting_began_does_not_matter():
    rows = list(vane(300))
    # A hundred thousand turns on.
    turns = 36e6
    near = taught(rows)
    far = taught(
        [row | {"direction": row["direction"] + turns} for row in rows],
        bounds={"direction": (turns, turns + 360.0, "circular")},
    )
    for one, other in zip(near.forecast(), far.forecast(), strict=True):
        assert around(one["direction"], other["direction"]) < 0.01


def test_what_is_no_angle_is_missing_and_counted():
    rows = list(vane(200))
    model, clean = forecaster(), forecaster()
    for t, row in enumerate(rows):
        spoiled = t in (150, 170)
        model.learn_one(row | {"direction": -9999.0} if spoiled else row)
        clean.learn_one(row | {"direction": None} if spoiled else row)
    assert model.clipped_readings == {"direction": 2}
    assert model.forecast() == clean.forecast()
    strict = forecaster(beyond="error")
    strict.learn_one(rows[0])
    with pytest.raises(ValueError, match=r"row 1: target 'direction' is -9999.0, more than a turn"):
        strict.learn_one({"direction": -9999.0, "wind": 1.0})
    assert strict.n_rows == 1


def test_explanations_are_on_the_circle():
    model = taught(list(vane(200)), experts=(*EXPERTS, "matern32"))
    found = model.explain()
    for expert in found["experts"].values():
        assert 0.0 <= expert["direction"]["forecast"] < 360.0
    assert found["neighbours"]
    for neighbour in found["neighbours"]:
        assert 0.0 <= neighbour["y"]["direction"] < 360.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": {"direction": (0, 360, "round")}}, "bounds of 'direction' must be a pair"),
        ({"bounds": {"direction": (0, 0, "circular")}}, "'direction': a circle needs two finite numbers"),
        ({"bounds": {"direction": (None, 360, "circular")}}, "'direction': a circle needs two finite numbers"),
        ({"bounds": {"direction": (0, np.inf, "circular")}}, "'direction': a circle needs two finite numbers"),
        ({"transforms": {"direction": "sqrt"}}, "'direction' is an angle, which takes no transform"),
    ],
)
def test_wrong_angles_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        forecaster(**options)


def test_only_forecasters_know_angles():
    with pytest.raises(ValueError, match="bounds of 'direction': MOMoGPRegressor knows no angles"):
        MOMoGPRegressor(bounds=COMPASS)


def test_a_fan_across_north_is_drawn_in_two_parts():
    model = taught(list(vane(408, speed=1.0)))
    for row in vane(360, seed=1, speed=1.0):
        model.learn_one(row)
    forecast = model.forecast(with_dist=True)
    ends = forecast["direction"].interval(0.9).to_numpy()
    assert (ends[:, 0] > ends[:, 1]).any()
    axis = forecast["direction"].plot(levels=(0.9,)).axes[0]
    assert len(axis.collections) == 2
    for band in axis.collections:
        for path in band.get_paths():
            assert path.vertices[:, 1].min() >= 0.0
            assert path.vertices[:, 1].max() <= 360.0
