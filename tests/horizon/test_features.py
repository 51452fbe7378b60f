"""The features of a row: in order, named, and the same for direct forecasts and for paths."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.features import FeatureMap
from momostream.horizon.model import HorizonModel
from momostream.horizon.past import Past
from momostream.horizon.paths import Paths
from momostream.horizon.settings import LINEAR, HorizonSettings

NAN = np.nan


def past_of(Y, X=None, capacity=40):
    X = np.zeros((len(Y), 0)) if X is None else X
    past = Past(Y.shape[1], X.shape[1], capacity)
    for y, x in zip(Y, X, strict=True):
        past.append(y, x)
    return past


def seen(features, past):
    """Features and point of the newest row."""
    earlier = past.earlier(features.seasonal_lags)
    return features.newest(past.n_rows - 1.0, past.series, past.inputs, past.first, past.last, earlier, np.zeros(0))


def new_map(n_series=1, n_inputs=0, horizon=3, **options):
    return FeatureMap(HorizonSettings(horizon=horizon, **options), n_series, n_inputs)


def test_features_and_points_in_order():
    rng = np.random.default_rng(0)
    Y, X = rng.normal(size=(30, 2)), rng.normal(size=(30, 1))
    past = past_of(Y, X)
    f, point = seen(new_map(2, 1, horizon=3, lags=2, seasons=(5, 10)), past)
    now, changes = Y[-1], [Y[-1] - Y[-2], Y[-2] - Y[-3]]
    # One season ago, and three steps later: where the last step ahead was then.
    seasonal = [Y[-6] - now, Y[-3] - now]
    slow_y, slow_x = past.series[past.last, 1], past.inputs[past.last, 1]
    assert_allclose(point, np.concatenate([[29.0], now, X[-1], *seasonal, changes[0]]), rtol=1e-12)
    assert_allclose(f, np.concatenate([[1.0], now - slow_y, X[-1] - slow_x, *seasonal, *changes]), rtol=1e-12)


@pytest.mark.parametrize(("horizon", "lag"), [(1, 4), (2, 3), (5, 5 - 5), (6, 4), (12, 5 - 2)])
def test_the_season_has_the_phase_of_the_last_step(horizon, lag):
    assert new_map(horizon=horizon, seasons=(5,)).seasonal_lags.tolist() == [5, lag]


def test_a_season_that_has_not_passed_yet_counts_as_no_change():
    _, point = seen(new_map(horizon=1, seasons=(5,)), past_of(np.arange(3.0)[:, None]))
    assert_array_equal(point, [2.0, 2.0, 0.0, 0.0, 1.0])


def test_changes_come_newest_first_and_are_zero_before_the_first_row():
    values = np.array([[1.0], [3.0], [NAN], [10.0]])
    f, point = seen(new_map(lags=5, seasons=()), past_of(values))
    assert_array_equal(f[2:], [7.0, 0.0, 2.0, 0.0, 0.0])
    assert point[-1] == 7.0
    assert_array_equal(seen(new_map(lags=2, seasons=()), past_of(values[:1]))[0][2:], [0.0, 0.0])


@pytest.mark.parametrize("n_rows", [30, 31, 45])
def test_changes_do_not_depend_on_where_the_rows_lie(n_rows):
    Y = np.random.default_rng(0).normal(size=(n_rows, 2))
    # 15 changes need 16 rows.
    f, _ = seen(new_map(2, lags=15, seasons=()), past_of(Y, capacity=16))
    assert_allclose(f[3:], np.diff(Y, axis=0)[::-1][:15].ravel(), rtol=1e-12)


@pytest.mark.parametrize("seasons", [None, (), (4,)])
@pytest.mark.parametrize("n_inputs", [0, 2])
def test_every_column_has_a_name(seasons, n_inputs):
    features = new_map(2, n_inputs, seasons=seasons)
    f, point = seen(features, past_of(np.zeros((3, 2)), np.zeros((3, n_inputs))))
    assert len(f) == features.n_features
    names = features.point_names(["a", "b"], [f"x{k}" for k in range(n_inputs)])
    assert len(names) == len(set(names)) == len(point) == 1 + features.n_coordinates


def test_the_kind_of_day_is_seen_by_circuits_alone():
    features = FeatureMap(HorizonSettings(horizon=2, lags=1, seasons=()), 1, 1, n_terms=5, kind=2)
    past = past_of(np.array([[1.0], [3.0]]), np.array([[7.0, 0.1, 0.2, 1.0, 0.4, 0.5]] * 2))
    f, point = features.newest(1.0, past.series, past.inputs, past.first, past.last, np.zeros((0, 1)), np.arange(5.0))
    assert_allclose(point, [1.0, 3.0, 7.0, 0.1, 0.2, 1.0, 2.0, 2.0])
    # Constant, distance from the slow mean, input and two waves, one change.
    assert len(f) == features.n_features == 6
    names = features.point_names(["y"], ["x"], ["a", "b", "weekend", "c", "d"])
    assert names == ["clock", "y", "x", "a", "b", "weekend", "weekend at the last step", "change of y"]


def test_a_season_that_is_found_has_its_place():
    features = new_map(2, horizon=3)
    assert features.is_late.sum() == 4
    before, width = features.n_coordinates, features.n_features
    features.set_season(6)
    assert features.n_coordinates == features.most_coordinates == before + 4
    assert features.n_features == width


@pytest.mark.parametrize(("n_series", "n_lags"), [(1, 9), (18, 9), (30, 5), (90, 1), (500, 1), (0, 9)])
def test_many_series_have_few_lags(n_series, n_lags):
    assert new_map(n_series).n_lags == n_lags


@pytest.mark.parametrize("seasons", [None, (6, 12)])
def test_paths_see_the_same_as_the_row_they_start_from(seasons):
    rng = np.random.default_rng(0)
    settings = HorizonSettings(horizon=1, experts=LINEAR, seasons=seasons, seed=0)
    model = HorizonModel(settings, 2, 1)
    for y, x in zip(rng.normal(size=(60, 2)), rng.normal(size=(60, 1)), strict=True):
        model.learn(y, x)
    f, points = Paths(model, 3, 4, None, rng)._features()
    assert_array_equal(points, np.tile(model.point, (3, 1)))
    assert_array_equal(model.experts.wide.cut(f), np.tile(model.ring.features[0], (3, 1)))


def test_paths_look_back_as_far_as_the_season_that_circuits_were_shown():
    rng = np.random.default_rng(0)
    model = HorizonModel(HorizonSettings(horizon=1, experts=LINEAR, seed=0), 2, 1)
    # One season was found, another one is in force: circuits that lead were not shown it.
    model.features.set_season(50)
    for y, x in zip(rng.normal(size=(60, 2)), rng.normal(size=(60, 1)), strict=True):
        model.learn(y, x)
    model.seasons = (12, 24)
    _, points = Paths(model, 3, 4, None, rng)._features()
    assert_array_equal(points, np.tile(model.point, (3, 1)))
