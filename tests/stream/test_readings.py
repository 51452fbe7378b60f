"""Gross errors are set aside, changes of level are taken up, and clean readings pass."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from momostream import MOMoGPForecaster, MOMoGPRegressor, load
from momostream.stream.readings import Readings


def walk(n=400, seed=0, level=50.0):
    rng = np.random.default_rng(seed)
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = 0.9 * y[t - 1] + rng.normal()
    return level + y


def set_aside(values):
    """Which readings of one column are set aside."""
    rows = np.array(values, dtype=float)[:, None]
    Readings(1).screen(rows)
    return np.flatnonzero(np.isnan(rows[:, 0]) & ~np.isnan(values))


def test_clean_readings_pass():
    for seed in range(20):
        assert set_aside(walk(seed=seed)).size == 0
    assert set_aside(np.where(np.random.default_rng(0).random(500) < 0.05, 1.0, 0.0)).size == 0


@pytest.mark.parametrize("value", [5000.0, -300.0, -9999.0, 9999.0, 0.05])
def test_a_single_error_is_set_aside_and_the_next_reading_is_not(value):
    y = walk()
    y[300] = value
    assert_array_equal(set_aside(y), [300])


def test_repeated_codes_stay_missing():
    y = walk()
    y[[150, 220, 221, 222, 223, 224, 225, 226, 300]] = -200.0
    assert_array_equal(set_aside(y), np.flatnonzero(y == -200.0))


def test_a_change_of_level_is_taken_up_within_a_few_rows():
    y = walk()
    y[250:] += 40.0
    found = set_aside(y)
    assert 1 <= found.size <= 10
    assert_array_equal(found, np.arange(250, 250 + found.size))


def test_units_that_are_swapped_for_a_while_are_not_taken_up():
    y = walk()
    y[250:262] *= 1000.0
    assert_array_equal(set_aside(y), np.arange(250, 262))


@pytest.mark.parametrize("factor", [3.6, 1.0 / 3.6, 1000.0, 0.001, 100.0])
def test_other_units_are_told_from_a_change_of_level_by_their_changes(factor):
    y = walk()
    y[250:279] *= factor
    assert_array_equal(set_aside(y), np.arange(250, 279))


def test_other_units_for_good_are_taken_up_within_tens_of_rows():
    y = walk(seed=3)
    y[250:] *= 3.6
    assert 20 <= set_aside(y).size <= 60


def test_a_series_that_changes_its_level_again_and_again_is_believed_sooner():
    y = walk(4000, seed=4)
    y[1000:] += 100.0
    y[2000:] += 200.0
    y[3000:] += 400.0
    found = set_aside(y)
    counts = [((found >= start) & (found < start + 500)).sum() for start in (1000, 2000, 3000)]
    assert counts[0] > counts[1] >= counts[2] >= 1


def test_columns_that_jump_together_are_believed_at_once():
    rows = np.column_stack([walk(seed=seed) for seed in range(6)])
    rows[250:, :3] += 200.0
    Readings(6).screen(rows)
    assert_array_equal(np.unique(np.argwhere(np.isnan(rows))[:, 0]), [250])


def test_the_first_moves_of_a_column_at_rest_are_held_for_a_reading():
    flag = np.zeros(600)
    flag[[300, 330, 360]] = 1.0
    flag[400:] = 1.0
    assert_array_equal(set_aside(flag), [300])
    flag[300] = 5000.0
    assert_array_equal(set_aside(flag), [300])


def test_a_peak_of_rain_is_believed_if_other_columns_move_with_it():
    """A column of a heavy tail may exceed all that it has shown, in a row in which others move far."""
    rows = np.column_stack([walk(600, seed) for seed in range(4)])
    rows[:, 3] = 0.0
    rows[[220, 230, 260, 270, 300, 305, 310], 3] = [1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 1.0]
    rows[400:402, 3] = [40.0, 25.0]
    alone, company = rows.copy(), rows.copy()
    company[400:, :2] += 5.0
    Readings(4).screen(alone)
    assert np.isnan(alone[400]).tolist() == [False, False, False, True]
    Readings(4).screen(company)
    assert not np.isnan(company[400:, 3]).any()
    # Columns without a heavy tail are judged as before, and so are values beyond belief.
    company[400, 2:] += [300.0, 1e5]
    Readings(4).screen(company)
    assert np.isnan(company[400]).tolist() == [False, False, True, True]


def test_an_excursion_that_is_announced_is_believed():
    y = walk(600)
    y[400:405] = y[399] + np.array([4.5, 25.0, 27.0, 24.0, 5.0])
    assert set_aside(y).size == 0
    y[400] = y[399]
    assert_array_equal(set_aside(y)[:1], [401])
    # One step does not announce a change in the other direction, nor one beyond belief.
    y[400:402] = y[399] + np.array([4.5, -25.0])
    assert 401 in set_aside(y)
    y[400:402] = y[399] + np.array([4.5, 300.0])
    assert 401 in set_aside(y)


def test_targets_have_the_company_of_inputs():
    model = MOMoGPRegressor(experts=("lags",), seed=0)
    rows = np.column_stack([walk(600, seed) for seed in range(3)])
    rain = np.zeros(600)
    rain[[220, 230, 260, 270, 300, 305, 310, 400]] = [1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 1.0, 40.0]
    rows[400:, :2] += 5.0
    for row, value in zip(rows, rain, strict=True):
        model.learn_one({"pressure": row[0], "wind": row[1], "light": row[2]}, {"rain": value})
    assert "rain" not in model.rejected_readings or model.rejected_readings["rain"]["row"] < 400


def test_the_first_events_of_a_column_at_rest_are_taken_up_at_once_after_one():
    rain = np.zeros(500)
    rain[300:304] = [1.2, 1.9, 0.6, 0.2]
    assert_array_equal(set_aside(rain), [300])


def test_an_angle_that_wraps_loses_one_reading_at_first():
    angle = np.arange(0.0, 9.0 * 360.0, 3.0) % 360.0
    found = set_aside(angle)
    assert found.size <= 4 and (angle[found] < 3.0).all()


def test_a_stuck_sensor():
    y = walk()
    y[200:240] = y[200]
    assert set_aside(y).size == 0
    readings = Readings(1)
    readings.screen(y[:, None].copy())
    assert readings.stuck(["power"])["power"] == 25


def test_a_machine_that_rests_is_not_stuck():
    rows = np.column_stack([walk(seed=seed) for seed in range(4)])
    rows[200:240] = rows[200]
    readings = Readings(4)
    readings.screen(rows.copy())
    assert readings.stuck("abcd") == {} == readings.rejected("abcd")


def test_the_first_sunrise_is_taken_up():
    rng = np.random.default_rng(0)
    hours = np.arange(432) / 6.0
    y = 600.0 * np.maximum(np.sin((hours - 6.0) * np.pi / 12.0), 0.0) + 0.05 * rng.random(432)
    assert set_aside(y).size <= 12


def test_an_error_among_the_first_readings_does_not_hide_the_next():
    y = walk()
    y[[10, 300]] = 5000.0
    assert_array_equal(set_aside(y), [300])


def test_row_by_row_as_in_blocks_and_after_a_restart():
    rng = np.random.default_rng(1)
    rows = np.column_stack([walk(seed=1), walk(seed=2)])
    rows[rng.random(rows.shape) < 0.02] = 1e4
    whole, single = rows.copy(), rows.copy()
    readings, one = Readings(2), Readings(2)
    readings.screen(whole)
    for t in range(len(rows)):
        one.screen(single[t : t + 1])
        if t == 200:
            one = Readings.from_state(one.state(), one.n_columns)
    assert_array_equal(whole, single)
    assert readings.rejected("ab") == one.rejected("ab")
    assert readings.rejected("ab")["a"]["jump"] == int((whole[:, 0] != rows[:, 0]).sum())


def test_forecasts_do_not_see_an_error(tmp_path):
    y = walk(300)
    clean, spoiled, blind = (
        MOMoGPForecaster(horizon=3, experts=("own lags",), seed=0, screen=s) for s in (True, True, False)
    )
    for t, value in enumerate(y):
        clean.learn_one({"power": value} if t != 280 else {})
        for model in (spoiled, blind):
            model.learn_one({"power": value if t != 280 else 1e5})
    assert spoiled.forecast(3) == clean.forecast(3) != blind.forecast(3)
    assert spoiled.rejected_readings["power"]["row"] == 280 and blind.rejected_readings == {}
    assert "power: 1 readings set aside, the last one 100000 in row 280 (jump)" in spoiled.describe()
    spoiled.save(tmp_path / "model.momo")
    assert load(tmp_path / "model.momo").rejected_readings == spoiled.rejected_readings


def test_regressors_set_inputs_and_targets_aside():
    model = MOMoGPRegressor(experts=("lags",), seed=0)
    for t, (wind, power) in enumerate(zip(walk(200, 1), walk(200, 2), strict=True)):
        model.learn_one({"wind": 1e5 if t == 150 else wind}, {"power": -9999.0 if t == 160 else power, "load": power})
    found = model.rejected_readings
    assert (found["wind"]["row"], found["power"]["row"], found["power"]["reason"]) == (150, 160, "code")


def test_values_beyond_bounds_are_clipped_and_counted():
    for estimator, learn in (
        (MOMoGPForecaster(horizon=1, bounds={"level": (48.0, None)}), lambda m, y: m.learn_one({"level": y})),
        (MOMoGPRegressor(bounds={"level": (48.0, None)}), lambda m, y: m.learn_one({"x": 1.0}, {"level": y})),
    ):
        y = walk(60)
        for value in y:
            learn(estimator, float(value))
        assert estimator.clipped_readings == {"level": int((y < 48.0).sum())}
        assert "values clipped to the bounds" in estimator.describe()


def test_a_spike_after_a_long_rest_is_set_aside_and_a_pegged_rate_set_anew_is_not():
    rain = np.zeros(400)
    rain[20:220:25] = [0.1, 0.3, 0.2, 0.1, 0.4, 0.2, 0.1, 0.3]
    rain[300] = 60.0
    assert_array_equal(set_aside(rain), [300])
    rate = 8.2765 + 1e-4 * (rain > 0.0)
    rate[300:] = 8.11
    assert set_aside(rate).size == 0


def test_a_run_in_other_units_is_not_a_change_of_level():
    y = 50.0 + walk()
    y[300:329] *= 1000.0
    assert_array_equal(set_aside(y), np.arange(300, 329))


def test_an_input_that_would_be_set_aside_is_guessed_unless_the_question_is_what_if():
    models = [MOMoGPRegressor(experts=("matern32", "lags"), seed=0, screen=screen) for screen in (True, True, False)]
    wind = walk(300, 1)
    for model in models:
        for value in wind:
            model.learn_one({"wind": value}, {"power": 2.0 * value})
    screened, twin, blind = models
    guess = screened.predict_one({})
    assert screened.predict_one({"wind": 1e4}) == guess
    assert screened.predict_one({"wind": wind[-1] + 0.1}) != guess
    assert screened.predict_one({"wind": 1e4}, what_if=True) == blind.predict_one({"wind": 1e4}) != guess
    frame = pd.DataFrame({"wind": [1e4]})
    assert screened.predict_many(frame)["power"][0] == blind.predict_many(frame)["power"][0]
    # A question is not a reading: nothing was remembered, and the row itself is judged as it comes.
    assert screened.rejected_readings == {}
    for model in (screened, twin):
        model.learn_one({"wind": 1e4}, {"power": 100.0})
    assert screened.rejected_readings == twin.rejected_readings
    assert screened.predict_one({"wind": 50.0}) == twin.predict_one({"wind": 50.0})
