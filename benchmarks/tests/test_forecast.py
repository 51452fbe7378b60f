"""The forecast benchmark: its scores and rivals against slow twins, its protocol, its peers and its tables."""

from __future__ import annotations

import argparse
import doctest
import importlib
import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad

import momostream
from benchmarks import data, forecast
from benchmarks.tools import forecast_peers, forecast_quick, forecast_report
from benchmarks.tools.forecast_rivals import (
    RIVALS,
    DirectRidge,
    LastValue,
    Replayed,
    SeasonalLast,
    Size,
    ValueResiduals,
    WithResiduals,
)
from benchmarks.tools.forecast_scores import (
    QUANTILES,
    STRIDE,
    UNSCORED,
    YOUNG,
    Quantiles,
    Record,
    Students,
    naive_error,
)
from benchmarks.tools.peers_models import Normals
from benchmarks.tools.stream_scores import LEVELS, shown_resolution


@pytest.mark.parametrize(
    "module", ["data", *(f"tools.forecast_{part}" for part in ("batch", "quick", "rivals", "scores", "report"))]
)
def test_doctests(module):
    found = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert found.attempted and not found.failed


def walks(rng, n_rows, n_series=2, gaps=0.0):
    Y = np.cumsum(rng.normal(size=(n_rows, n_series)), axis=0) / 5.0
    return np.where(rng.random(Y.shape) < gaps, np.nan, Y)


def students(mean, width=1.0, dof=30.0):
    return Students(mean, np.full(mean.shape, width), np.full(mean.shape, dof))


# ---------------------------------------------------------------------- series


@pytest.fixture
def small_file(tmp_path, monkeypatch):
    """A file with a constant column, one that is constant at first, one with gaps, and one that no plan wants."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(1400, 5)), columns=["a", "stuck", "late", "gaps", "other"])
    frame["stuck"] = 0.1
    frame.loc[:1100, "late"] = 0.1
    frame.loc[::7, "gaps"] = np.nan
    frame.to_csv(tmp_path / "small.csv.gz", index=False)
    about = {"file": "small.csv.gz", "rows": 1400, "inputs": ["a", "stuck", "other"], "targets": ["late", "gaps"]}
    (tmp_path / "columns.json").write_text(json.dumps({"small": about}))
    plan = data.Case(("inputs", "targets"), (2,), None, 700, without=("other",), first=3, step=2)
    monkeypatch.setenv("MOMOSTREAM_DATA", str(tmp_path))
    monkeypatch.setitem(data.FORECASTS, "small", plan)
    return frame


def test_series_are_scaled_by_the_first_known_values(small_file):
    names, Y, times, inputs, X = data.series("small", 650)
    assert times is None and inputs == [] and X.shape == (650, 0)
    assert names == ["a", "late", "gaps"] and Y.shape == (650, 3)
    raw = small_file[names].to_numpy()[3:1303:2]
    for place in (0, 2):
        known = raw[:500, place][~np.isnan(raw[:500, place])]
        assert_allclose(Y[:, place], (raw[:, place] - known.mean()) / known.std())
    assert_array_equal(np.isnan(Y), np.isnan(raw))
    # Constant in the first 500 rows: by all rows, from where it stood.
    assert_allclose(Y[:, 1], (raw[:, 1] - 0.1) / raw[:, 1].std(), atol=1e-12)


def test_a_series_that_stays_constant_is_left_out(small_file):
    assert data.series("small", 500).names == ["a", "gaps"]


@pytest.mark.parametrize(
    ("feed", "n_series"),
    [("windturbine", 14), ("turkey_wind_scada", 3), ("etth1", 7), ("jena_weather_spring", 8), ("bike_hourly", 2)],
)
def test_plans(data_dir, feed, n_series):
    plan = data.FORECASTS[feed]
    names, Y, times, inputs, X = data.series(feed, plan.rows)
    assert (times is None) == (plan.season is None)
    assert times is None or (len(times) == len(Y) and len(set(np.diff(times))) == 1)
    assert Y.shape == (plan.rows, n_series) == (plan.rows, len(names))
    assert tuple(inputs) == plan.known and X.shape == (plan.rows, len(inputs)) and not np.isnan(X).any()
    assert_allclose(np.nanmean(Y[:500], axis=0), 0.0, atol=1e-9)
    assert_allclose(np.nanstd(Y[:500], axis=0), 1.0)


def test_halves_split_feeds_not_cases(data_dir):
    files = {case: plan.file or case for case, plan in data.FORECASTS.items()}
    assert sorted(file for half in data.HALVES.values() for file in half) == sorted(set(files.values()))
    described = data.about()
    for half in data.HALVES:
        cases = [
            (case, horizon) for case in files if data.half_of(case) == half for horizon in data.FORECASTS[case].horizons
        ]
        assert len(cases) >= 11 and {1, 6, 24} <= {horizon for _, horizon in cases}
    for case, plan in data.FORECASTS.items():
        columns = {*described[files[case]]["inputs"], *described[files[case]]["targets"]}
        assert columns >= {*plan.columns, *plan.known, *plan.without} and not {*plan.columns} & {*plan.known}


def test_rows_that_the_file_does_not_have_are_missing(data_dir):
    _, Y, times, inputs, X = data.series("bike_hourly", 4000)
    frame, _, targets = data.read("bike_hourly")
    there = pd.DatetimeIndex(pd.to_datetime(frame["timestamp"]))
    absent = ~times.isin(there)
    assert absent.any()
    assert_array_equal(np.isnan(Y).all(axis=1), absent)
    # Inputs keep their last value there.
    first = np.flatnonzero(absent)[0]
    assert_array_equal(X[first], X[first - 1])
    row = np.flatnonzero(there == times[-1])[0]
    raw = frame[targets].to_numpy(float)
    assert_allclose(np.argsort(Y[[-1, 0]], axis=0), np.argsort(raw[[row, 2500]], axis=0))


def test_gaps_stay_gaps(data_dir):
    assert np.isnan(data.series("beijing_pm25_12sites", 4000).Y).any()


# ---------------------------------------------------------------------- scores


def test_quantiles_are_those_of_the_distribution_they_come_from(rng):
    levels = np.append(QUANTILES, 0.999)
    exact = stats.norm(1.0, 2.0)
    distribution = Quantiles(np.full((2, 3), 1.0), np.broadcast_to(exact.ppf(QUANTILES)[:, None, None], (99, 2, 3)))
    y = np.array([[-3.0, 0.9, 1.0], [1.1, 4.0, 7.0]])
    assert_allclose(distribution.cdf(y), exact.cdf(y), atol=2e-3)
    assert_allclose(distribution.cdf(np.full((2, 3), exact.ppf(levels[-1]))), levels[-1], atol=2e-3)
    assert distribution.log_pdf(y) is None
    assert_allclose(distribution.crps(y), Normals(np.full((2, 3), 1.0), np.full((2, 3), 2.0)).crps(y), rtol=5e-3)
    assert_array_equal(distribution.median, distribution.mean)


def test_quantiles_that_coincide_have_a_distribution_function():
    standing = Quantiles(np.zeros(3), np.zeros((99, 3)))
    assert_allclose(standing.cdf(np.array([-1.0, 0.0, 1.0])), [0.0, 0.99, 1.0])


def test_students_are_those_of_scipy(rng):
    distribution = Students(rng.normal(size=(4, 3)), rng.uniform(0.1, 3.0, (4, 3)), rng.uniform(1.5, 40.0, (4, 3)))
    y = 3.0 * rng.normal(size=(4, 3))
    each = stats.t(distribution.dof, distribution.mean, distribution.width)
    assert_allclose(distribution.log_pdf(y), each.logpdf(y))
    assert_allclose(distribution.cdf(y), each.cdf(y))


@pytest.mark.parametrize("dof", [1.5, 2.0, 5.0, 33.3])
def test_crps_is_its_integral(dof):
    y = np.array([[-4.0, 0.3], [0.5, 7.0]])
    found = students(np.full((2, 2), 0.5), 2.0, dof).crps(y)
    cdf = stats.t(dof, 0.5, 2.0).cdf
    for value, expected in zip(y.ravel(), found.ravel(), strict=True):
        below = quad(lambda z: cdf(z) ** 2, -np.inf, value)[0]
        above = quad(lambda z: (1.0 - cdf(z)) ** 2, value, np.inf)[0]
        assert_allclose(below + above, expected, rtol=1e-5)


def naive_accuracy(Y, distributions, seed=0):
    """Value by value over all origins, steps and series that are known."""
    H, P = distributions[0].mean.shape
    draws = np.random.default_rng(seed).random((len(Y), H, P))
    errors, rest, inside = {}, {"nlpd": [], "crps": []}, []
    touched = []
    for origin, distribution in distributions.items():
        for step in range(H):
            for series in range(P):
                y = Y[origin + 1 + step, series]
                if np.isnan(y):
                    continue
                at = (step, series)
                one = stats.t(distribution.dof[at], distribution.mean[at], distribution.width[at])
                errors.setdefault(at, []).append(y - distribution.mean[at])
                rest["nlpd"].append(-one.logpdf(y))
                rest["crps"].append(
                    Students(*(np.array([part[at]]) for part in distribution)).crps(np.array([y])).item()
                )
                half = shown_resolution(Y[: origin + 1])[-1, series] / 2.0
                low, high = one.cdf(y - half), one.cdf(y + half)
                touched.append([low <= 0.5 + level / 2 and high >= 0.5 - level / 2 for level in LEVELS])
                inside.append(abs(low + draws[origin, step, series] * (high - low) - 0.5))
    sizes = {at: np.abs(found) for at, found in errors.items()}
    pooled = [np.concatenate([sizes[step, series] for step in range(H)]) ** 2 for series in range(P)]
    scale = naive_error(Y)
    by_series = [
        np.concatenate([sizes[step, series] for step in range(H)]).mean() / scale[series] for series in range(P)
    ]
    return {
        "rmse": np.mean([np.sqrt(np.mean(np.square(found))) for found in errors.values()]),
        "rmse_pooled": np.mean([np.sqrt(np.mean(squares)) for squares in pooled]),
        "mae": np.concatenate(list(sizes.values())).mean(),
        "mase": np.mean(by_series),
        "nlpd": np.mean(rest["nlpd"]),
        "crps": np.mean(rest["crps"]),
        "coverage": [np.mean(np.array(inside) < level / 2) for level in LEVELS],
        "plain": np.mean(touched, axis=0).tolist(),
        "by_step": {
            "rmse": [np.mean([np.sqrt(np.mean(errors[h, p] ** np.array(2))) for p in range(P)]) for h in range(H)],
            "mae": [np.concatenate([sizes[h, p] for p in range(P)]).mean() for h in range(H)],
        },
    }


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_accuracy_matches_naive(rng, gaps):
    Y = walks(rng, 60, gaps=gaps).round(1)
    record = Record(Y, horizon=3)
    distributions = {
        origin: Students(rng.normal(size=(3, 2)), rng.uniform(0.1, 2.0, (3, 2)), rng.uniform(2.0, 30.0, (3, 2)))
        for origin in range(0, 57)
    }
    for origin, distribution in distributions.items():
        record.score(origin, distribution)
    found, expected = record.accuracy(np.arange(57)), naive_accuracy(Y, distributions)
    assert found.keys() == expected.keys()
    for name in found:
        if name == "by_step":
            assert_allclose(found[name]["rmse"], expected[name]["rmse"])
            assert_allclose(found[name]["mae"], expected[name]["mae"])
        else:
            assert_allclose(found[name], expected[name], err_msg=name)


def test_nan_is_not_scored_silently_but_a_gap_is_no_score():
    record = Record(np.array([[1.0], [2.0], [np.nan]]), horizon=1)
    with pytest.raises(ValueError, match="origin 0: a score is NaN"):
        record.score(0, students(np.full((1, 1), np.nan)))
    record.score(1, students(np.full((1, 1), 5.0)))
    assert np.isnan(record.error[1]).all() and np.isnan(record.nlpd[1]).all()


def test_coverage_of_the_true_distribution_and_of_a_stuck_sensor(rng):
    Y = np.column_stack([stats.t(5.0).rvs(4000, random_state=rng), np.eye(4000)[0]])
    record, mean = Record(Y, horizon=1), np.array([[0.0, 1e-4]])
    for origin in range(3999):
        record.score(origin, Students(mean, np.array([[1.0, 1e-4]]), np.array([[5.0, 30.0]])))
    for series in range(2):
        distance = np.abs(record.u[:-1, 0, series] - 0.5)
        assert_allclose([(distance < level / 2).mean() for level in LEVELS], LEVELS, atol=0.02)


def test_origins_end_where_the_series_ends():
    record = Record(np.zeros((700, 1)) + np.arange(700.0)[:, None], horizon=10)
    assert_array_equal(record.origins(700, 1), np.arange(UNSCORED, 690))
    assert_array_equal(record.origins(620, STRIDE), [600, 605, 610, 615])


def test_naive_error_of_a_sensor_stuck_at_first():
    Y = np.zeros((1001, 2))
    Y[:, 0] = np.arange(1001.0)
    Y[501:, 1] = 1.0
    assert_allclose(naive_error(Y), [1.0, 1e-3])


def test_cost_counts_both_calls():
    record = Record(np.arange(604.0)[:, None], horizon=1)
    record.ns[UNSCORED - 1 :] = [9e9, 1e3, 2e3, 6e3, 9e9]
    found = record.cost(603)
    assert (found["median"], found["mean"]) == (2.0, 3.0)


# ---------------------------------------------------------------------- from points to distributions


def test_value_residuals_are_discounted_sums_of_what_is_known(rng):
    Z = np.where(rng.random((50, 2, 3)) < 0.3, np.nan, rng.normal(size=(50, 2, 3)))
    residuals = ValueResiduals((2, 3))
    for z in Z:
        residuals.learn(z)
    width, dof = residuals.distribution()
    for at in np.ndindex(2, 3):
        known = Z[:, *at][~np.isnan(Z[:, *at])]
        weights = 0.97 ** np.arange(len(known) - 1, -1, -1)
        mass = 2.0 * 0.97 ** len(known) + weights.sum()
        assert_allclose(dof[at], mass)
        assert_allclose(width[at] ** 2, (0.6 * 0.97 ** len(known) + weights @ known**2) / mass, atol=1e-9)


@pytest.mark.parametrize("every", [1, 2])
def test_residuals_of_a_step_are_learnt_when_its_row_comes(rng, every):
    """Twin: at each row, all pairs of an origin and a step whose row has come, from the first origin on."""
    H, P, n_rows = 3, 2, 30
    Y = walks(rng, n_rows, gaps=0.2)
    origins = np.arange(0, n_rows, every)
    mean = rng.normal(size=(len(origins), H, P)).astype(np.float32)
    made = forecast_peers.Forecasts(origins, mean, np.ones_like(mean), 0.0)
    size = Size(H, P, None)
    model = WithResiduals(Replayed(made, size), size)
    for row, y in enumerate(Y):
        model.learn(y)
        answer = model.forecast()
        assert (answer is None) == (row % every > 0)
        if answer is None:
            continue
        expected = ValueResiduals((H, P))
        for known in range(row + 1):
            for step in range(H):
                z = np.full((H, P), np.nan)
                if known - step - 1 in origins:
                    z[step] = Y[known] - made.mean[(known - step - 1) // every, step]
                expected.learn(z)
        assert_allclose(answer[1], expected.distribution()[0], rtol=1e-6)
        assert_allclose(answer[2], expected.distribution()[1])


def test_far_points_are_replaced_and_counted():
    class Broken:
        def learn(self, y):
            self.y = y

        def forecast(self):
            return np.array([[np.nan, np.inf], [1e4, 999.0]])

    model = WithResiduals(Broken(), Size(2, 2, None))
    model.learn(np.array([3.0, 4.0]))
    model.learn(np.array([5.0, np.nan]))
    assert_array_equal(model.rival.y, [5.0, 4.0])  # gaps are filled forward
    assert_array_equal(model.forecast()[0], [[5.0, 4.0], [5.0, 999.0]])
    assert model.replaced == 3


# ---------------------------------------------------------------------- rivals


@pytest.mark.parametrize("horizon", [1, 4, 5, 11])
def test_seasonal_last_is_the_row_of_the_same_phase(rng, horizon):
    S, Y = 5, walks(rng, 23)
    model = SeasonalLast(Size(horizon, 2, S))
    for t, y in enumerate(Y):
        model.learn(y)
        found = model.forecast()
        for h in range(1, horizon + 1):
            same = t + h - S * int(np.ceil(h / S))
            assert_array_equal(found[h - 1], Y[same] if t >= S - 1 else Y[t])


def test_last_value_repeats_the_row(rng):
    model = LastValue(Size(3, 2, None))
    model.learn(np.array([1.0, 2.0]))
    assert_array_equal(model.forecast(), [[1.0, 2.0]] * 3)


@pytest.mark.parametrize(("season", "horizon"), [(None, 1), (None, 4), (6, 4), (6, 6)])
def test_ridge_is_the_weighted_closed_form_of_what_has_come(rng, season, horizon):
    Y, P = walks(rng, 60), 2
    lags = [1, 2, 3] if season is None else [1, 2, 3, season, season - horizon]
    model = DirectRidge(Size(horizon, P, season))

    def inputs(t):
        return np.concatenate([Y[t], *(Y[t] - Y[t - lag] for lag in lags), [1.0]])

    for t, y in enumerate(Y):
        model.learn(y)
        found = model.forecast()
        origins = np.arange(max(lags), t - horizon + 1)
        if len(origins) == 0:
            assert_array_equal(found, np.tile(y, (horizon, 1)))
            continue
        X = np.array([inputs(origin) for origin in origins])
        labels = np.array([(Y[origin + 1 : origin + 1 + horizon] - Y[origin]).ravel() for origin in origins])
        weights = 0.998 ** np.arange(len(origins) - 1, -1, -1)
        A = (X.T * weights) @ X + np.eye(X.shape[1])
        expected = inputs(t) @ np.linalg.inv(A) @ (X.T * weights) @ labels
        assert_allclose(found, y + expected.reshape(horizon, P), atol=1e-9)


@pytest.mark.parametrize("season", [None, 12, 144])
@pytest.mark.parametrize("name", ["snarimax", "holt_winters"])
def test_river_forecasters_go_one_by_one_and_see_short_seasons_only(rng, name, season):
    Y = walks(rng, 60, n_series=3)
    both, alone = RIVALS[name](Size(4, 3, season)), RIVALS[name](Size(4, 1, season))
    for y in Y:
        both.learn(y)
        alone.learn(y[1:2])
        assert both.forecast().shape == (4, 3)
    assert_array_equal(both.forecast()[:, 1], alone.forecast()[:, 0])
    blind = RIVALS[name](Size(4, 3, None))
    for y in Y:
        blind.learn(y)
    assert np.array_equal(blind.forecast(), both.forecast()) == (season != 12)


def test_holt_winters_starts_a_season_around_zero(rng):
    """River's own start divides by the level: about zero, it needs hundreds of rows to recover."""
    wave = np.sin(2.0 * np.pi * np.arange(121) / 24.0)[:, None]
    model = RIVALS["holt_winters"](Size(1, 1, 24))
    for y in wave[:-1]:
        model.learn(y)
    assert abs(model.forecast().item()) < 1.5


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_do_not_peek(rng, name):
    size, Y = Size(4, 2, 6), walks(rng, 80, gaps=0.1)
    other = Y.copy()
    other[50:] += rng.normal(size=(30, 2))
    answers = []
    for seen in (Y, other):
        model, found = WithResiduals(RIVALS[name](size), size), []
        for y in seen:
            model.learn(y)
            found.append(np.concatenate(model.forecast()))
        answers.append(np.array(found))
    assert_array_equal(answers[0][:50], answers[1][:50])
    assert not np.array_equal(answers[0][50], answers[1][50])


# ---------------------------------------------------------------------- peers


class Spy:
    """In place of a model of statsforecast: forecasts count up from the last value by a slope that is fitted."""

    windows: list[np.ndarray]

    def __init__(self):
        self.windows = []

    def fit(self, y):
        self.windows.append(y)
        self.slope = y[-1] - y[-2]

    def forward(self, y, h, level):
        self.windows.append(y)
        assert level == [90]
        mean = y[-1] + self.slope * np.arange(1, h + 1)
        return {"mean": mean, "lo-90": mean - 1.645 * np.arange(h), "hi-90": mean + 1.645 * np.arange(h)}


def test_peers_are_fitted_at_the_first_origin_and_move_along(rng):
    y, model = walks(rng, 1700, 1)[:, 0], Spy()
    origins = np.array([1600, 1605])
    found, deviation = forecast_peers.block(y, origins, model, 3)
    slope = y[1600] - y[1599]
    assert_allclose(deviation, [[0.0, 1.0, 2.0]] * 2, rtol=1e-3)
    assert_allclose(found, [[y[t] + slope * h for h in (1, 2, 3)] for t in origins], rtol=1e-6)
    assert [len(window) for window in model.windows] == [1000, 1000, 1005]
    assert_allclose(model.windows[2] - model.windows[2][0], y[601:1606] - y[601], atol=1e-12)
    assert model.windows[0].min() < 0.0


def test_peers_forecast_in_blocks_until_their_cap(rng, monkeypatch):
    Y = walks(rng, 1304)
    made = []
    monkeypatch.setattr(forecast_peers, "new_model", lambda method, season: made.append(method) or Spy())
    found = forecast_peers.forecasts(Y, "auto_ets", None, 2, cap=100.0)
    assert_array_equal(found.origins, np.arange(600, 1304, 5))
    assert found.mean.shape == found.deviation.shape == (141, 2, 2) and len(made) == 4
    for place, refitted in ((50, 600), (100, 1100), (101, 1100)):
        slope = Y[refitted] - Y[refitted - 1]
        assert_allclose(found.mean[place, 1], Y[600 + 5 * place] + 2 * slope, rtol=1e-5, atol=1e-5)
    clock = iter(np.arange(0.0, 1e4, 60.0))
    monkeypatch.setattr(forecast_peers.time, "thread_time", lambda: next(clock))
    cut = forecast_peers.forecasts(Y, "auto_ets", None, 2, cap=100.0)
    assert cut.origins[-1] == 1095 and len(cut.mean) == 100


def test_peers_do_not_peek(rng, monkeypatch):
    Y = walks(rng, 1300)
    monkeypatch.setattr(forecast_peers, "new_model", lambda method, season: Spy())
    other = Y.copy()
    other[1001:] += 1.0
    before, after = (forecast_peers.forecasts(seen, "auto_ets", None, 2, cap=100.0).mean for seen in (Y, other))
    last = (1000 - 600) // 5
    assert_array_equal(before[: last + 1], after[: last + 1])
    assert not np.array_equal(before[last + 1], after[last + 1])


@pytest.fixture
def peers_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast_peers, "FOLDER", tmp_path / "peers")


def test_forecasts_of_peers_are_kept(peers_folder):
    ones = np.ones((2, 3, 4), dtype=np.float32)
    made = forecast_peers.Forecasts(np.array([600, 605]), ones, 2 * ones, 1.5)
    assert forecast_peers.kept("etth1", "auto_ets") is None
    forecast_peers.keep("etth1", "auto_ets", made)
    found = forecast_peers.kept("etth1", "auto_ets")
    assert_array_equal(found.origins, made.origins)
    assert_array_equal(found.mean, made.mean)
    assert_array_equal(found.deviation, made.deviation)
    assert found.cpu_seconds == 1.5


def test_forecasts_kept_without_deviations_are_still_read(peers_folder):
    ones = np.ones((2, 3, 4), dtype=np.float32)
    forecast_peers.FOLDER.mkdir()
    np.savez(forecast_peers.FOLDER / "etth1-auto_ets.npz", origins=np.array([600, 605]), mean=ones, cpu_seconds=1.5)
    found = forecast_peers.kept("etth1", "auto_ets")
    assert_array_equal(found.mean, ones)
    assert np.isnan(found.deviation).all()


def test_long_seasons_are_none_for_models_that_keep_all_phases():
    assert [forecast_peers.short(season) for season in (None, 24, 48, 144)] == [None, 24, 48, None]


# ---------------------------------------------------------------------- runs


class Walk:
    """Knows that the series are walks; its distributions can be made to change behind the scorer's back."""

    def __init__(self, horizon, changing=False, silent=False):
        self.horizon, self.changing, self.silent, self.learnt = horizon, changing, silent, []

    def rows(self, Y):
        return Y

    def learn(self, y):
        self.learnt.append(y)
        if self.changing and len(self.learnt) > 1:
            self.made += 1.0

    def forecast(self):
        self.made = np.tile(self.learnt[-1], (self.horizon, 1))
        return self.made

    def distribution(self, answer):
        return None if self.silent else students(answer)


def test_origins_are_scored_against_the_rows_after_them(rng):
    Y = walks(rng, 1010)
    record, done = forecast.run(Walk(3), Y, 3)
    assert done == 1010
    for origin in (600, 601, 799, 800, 1006):
        assert_allclose(record.error[origin], Y[origin + 1 : origin + 4] - Y[origin])
    assert np.isnan(record.error[:600]).all() and np.isnan(record.error[1007:]).all()
    assert (record.ns > 0.0).all()


def test_a_run_ends_at_its_cap(rng):
    record, done = forecast.run(Walk(3), walks(rng, 700), 3, cap=0.0)
    assert done == 1 and np.isnan(record.error).all()
    assert forecast.figures(record, done, 1) == {"done": 1, "capped": True}


def test_a_distribution_that_changes_is_refused(rng):
    with pytest.raises(RuntimeError, match="row 600: the forecast changed"):
        forecast.run(Walk(3, changing=True), walks(rng, 700), 3)


def test_a_model_must_forecast_where_it_is_scored(rng):
    for first in (600, 10):
        with pytest.raises(RuntimeError, match="row 600: no forecast"):
            forecast.run(Walk(3, silent=True), walks(rng, 700), 3, first=first)


def test_young_models_are_compared_with_the_last_value(rng):
    Y = walks(rng, 700, gaps=0.1)
    Y[40:45] = np.nan
    model = Walk(3)
    # Half of each change from the last known row.
    model.distribution = lambda answer: students(np.where(np.isnan(answer), 0.0, answer) / 2.0, 0.3)
    record, done = forecast.run(model, Y, 3, first=10)
    found, last = record.young(done), data.forward_filled(Y)
    for (first, stop), ratio in zip(YOUNG, found["ratios"], strict=True):
        errors = {"ours": {}, "naive": {}}
        for origin in range(first, stop):
            if np.isnan(Y[origin]).all():
                continue
            for at in np.ndindex(3, 2):
                y = Y[origin + 1 + at[0], at[1]]
                if not np.isnan(y):
                    mean = 0.0 if np.isnan(Y[origin, at[1]]) else Y[origin, at[1]] / 2.0
                    errors["ours"].setdefault(at, []).append(y - mean)
                    errors["naive"].setdefault(at, []).append(y - last[origin, at[1]])
        ours, naive = (np.mean([np.sqrt(np.mean(np.square(e))) for e in by.values()]) for by in errors.values())
        assert_allclose(ratio, ours / naive)
    inside = np.abs(record.u[30:600] - 0.5)
    inside = inside[~np.isnan(inside)]
    assert_allclose(found["coverage"], [(inside < level / 2).mean() for level in LEVELS])
    assert found["whole"] != found["coverage"]


def test_sparse_runs_forecast_where_they_are_scored(rng):
    Y, asked = walks(rng, 700), []

    class Asked(Walk):
        def forecast(self):
            asked.append(len(self.learnt) - 1)
            return super().forecast()

    forecast.run(Asked(3), Y, 3, stride=STRIDE, sparse=True)
    assert asked == list(range(600, 697, STRIDE))


def test_every_fifth_origin_has_scores_of_its_own(rng):
    record, done = forecast.run(Walk(2), walks(rng, 700), 2)
    found = forecast.figures(record, done, 1)
    assert found["every_fifth"] == record.accuracy(np.arange(600, 698, 5))
    assert found["scores"] == record.accuracy(np.arange(600, 698))
    assert "scores" not in forecast.figures(record, done, STRIDE)


def task(**changes):
    return {"feed": "etth1", "horizon": 6, "model": "ridge", "rows": 640, "seed": 0, "cap": 100.0, **changes}


@pytest.mark.parametrize("model", RIVALS)
def test_measured_run(data_dir, model):
    found = forecast.measure(task(model=model))
    assert found["done"] == 640 and not found["capped"] and found["replaced"] == 0
    assert 0.0 < found["scores"]["rmse"] < 3.0 and len(found["scores"]["by_step"]["mae"]) == 6
    assert found["us"]["mean"] > 0.0
    json.dumps(found)


@pytest.mark.parametrize(("reached", "capped"), [(640, False), (620, True)])
def test_measured_peer_is_a_rival_at_its_origins(data_dir, peers_folder, reached, capped):
    Y = data.series("etth1", 640).Y
    origins = np.arange(UNSCORED, reached, STRIDE)
    last = np.repeat(Y[origins, None], 24, axis=1).astype(np.float32)
    forecast_peers.keep("etth1", "auto_ets", forecast_peers.Forecasts(origins, last, np.ones_like(last), 2.0))
    found, expected = forecast.measure(task(model="auto_ets")), forecast.measure(task(model="last_value"))
    assert found["capped"] == capped and found["done"] == reached and "scores" not in found
    assert found["us"] == {"mean": 2e6 / len(origins)}
    if not capped:
        assert_allclose(found["every_fifth"]["rmse"], expected["every_fifth"]["rmse"], rtol=1e-6)
        assert_allclose(found["every_fifth"]["mase"], expected["every_fifth"]["mase"], rtol=1e-6)


class Sorted:
    """In place of momostream's forecast: arrays whose columns are in an order of their own."""

    def __init__(self, distribution, names):
        self.series = tuple(sorted(names))
        self._distribution, self._order = distribution, [names.index(name) for name in self.series]
        self._back = [self.series.index(name) for name in names]

    @property
    def arrays(self):
        return self

    @property
    def mean(self):
        return self._distribution.mean[:, self._order]

    def quantiles(self, levels):
        assert levels == (0.5,)
        return (self._distribution.median + 0.25)[None, :, self._order]

    def __getattr__(self, name):
        score = getattr(self._distribution, name)
        return lambda y: score(y[:, self._back])[:, self._order]


class LastKnown:
    """In place of momostream's forecaster."""

    def __init__(self, horizon, time, seed, **settings):
        self.horizon, self.time, self.settings = horizon, time, settings
        self.known, self.learnt = {}, []

    def learn_one(self, y, x):
        assert all(value == value for value in y.values())
        self.known.update(y)
        self.learnt.append(x)

    def forecast(self, horizon, xs, with_dist):
        assert horizon == self.horizon and with_dist
        self.xs = xs
        return Sorted(students(np.tile(list(self.known.values()), (horizon, 1))), list(self.known))


def test_momostream_gets_what_is_known_and_its_series_keep_their_order(rng, monkeypatch):
    monkeypatch.setattr(momostream, "MOMoGPForecaster", LastKnown, raising=False)
    assert forecast.there("etth1", "momostream") is None
    Y = walks(rng, 640, gaps=0.2)
    feed = data.Series(["z", "a"], Y, None, [], np.zeros((640, 0)))
    model = forecast.Momostream(feed, horizon=3, seed=0)
    first = Y[0].copy()
    first[1] = np.nan
    model.learn(next(iter(model.rows(first[None]))))
    assert model.distribution(model.forecast()) is None
    model = forecast.Momostream(feed, horizon=3, seed=0)
    record, _ = forecast.run(model, Y, 3)
    assert model.model.learnt == [None] * 640
    last = data.forward_filled(Y)
    for origin in (600, 636):
        if np.isnan(Y[origin]).all():
            continue
        assert_allclose(record.error[origin], Y[origin + 1 : origin + 4] - last[origin])
        assert_allclose(record.absolute[origin], np.abs(Y[origin + 1 : origin + 4] - last[origin] - 0.25))
        known = ~np.isnan(record.error[origin])
        expected = students(np.tile(last[origin], (3, 1)))
        truth = np.where(known, Y[origin + 1 : origin + 4], 0.0)
        assert_allclose(record.nlpd[origin][known], -expected.log_pdf(truth)[known])
        assert_allclose(record.crps[origin][known], expected.crps(truth)[known])


def test_momostream_sees_gaps_in_the_times_and_inputs_ahead(rng, monkeypatch):
    monkeypatch.setattr(momostream, "MOMoGPForecaster", LastKnown, raising=False)
    Y, X = walks(rng, 640), rng.normal(size=(640, 1))
    Y[610:613] = np.nan
    times = pd.date_range("2024-03-01", periods=640, freq="h")
    model = forecast.Momostream(data.Series(["z", "a"], Y, times, ["known"], X), horizon=3, seed=0)
    for number, row in enumerate(model.rows(Y[:620])):
        model.learn(row)
        found = model.forecast()
        assert (found is None) == (number in (610, 611, 612))
        if found is not None:
            assert [x["known"] for x in model.model.xs] == X[number + 1 : number + 4, 0].tolist()
            assert model.model.learnt[-1] == {"time": times[number].to_pydatetime(), "known": X[number, 0]}
    assert len(model.model.learnt) == 617
    record, _ = forecast.run(forecast.Momostream(data.Series(["z", "a"], Y, times, [], X[:, :0]), 3, 0), Y, 3)
    assert np.isnan(record.error[610:613]).all()
    assert 611 not in record.origins(640, 1) and 613 in record.origins(640, 1)


def test_circuits_and_timestamps_can_be_left_out(rng, monkeypatch):
    from momostream.horizon.settings import LINEAR

    monkeypatch.setattr(momostream, "MOMoGPForecaster", LastKnown, raising=False)
    Y = walks(rng, 20)
    Y[3] = np.nan
    feed = data.Series(["z", "a"], Y, pd.date_range("2024-03-01", periods=20, freq="h"), [], np.zeros((20, 0)))
    plain, linear, untimed = (forecast.ours(feed, model, 3, 0) for model in forecast_report.OURS)
    assert (plain.model.settings, linear.model.settings) == ({}, {"experts": LINEAR})
    assert (linear.model.time, untimed.model.time) == ("time", None)
    for model in (plain, untimed):
        for row in model.rows(Y):
            model.learn(row)
    # Without timestamps the model must be given the row that did not come.
    assert (len(plain.model.learnt), len(untimed.model.learnt)) == (19, 20)


def test_measured_momostream_has_young_scores_and_slowest_rows(data_dir, monkeypatch):
    monkeypatch.setattr(momostream, "MOMoGPForecaster", LastKnown, raising=False)
    found = forecast.measure(task(model="momostream"))
    assert_allclose(found["young"]["ratios"], 1.0)
    assert len(found["young"]["whole"]) == 3 and found["slowest"][0]["ms"] > 0.0
    assert all(worst["row"] >= 50 for worst in found["slowest"])
    json.dumps(found)


def test_quick_scores_are_beside_the_best_kept_rival(data_dir, monkeypatch, tmp_path):
    monkeypatch.setattr(momostream, "MOMoGPForecaster", LastKnown, raising=False)
    monkeypatch.setattr(forecast, "RESULTS", tmp_path)
    monkeypatch.setitem(data.FORECASTS, "etth1", data.FORECASTS["etth1"]._replace(rows=640))
    assert forecast.quick_scores("etth1", 6)["ratios"] == {}
    kept = [forecast.measure(task(model=model)) for model in ("last_value", "seasonal_last")]
    (tmp_path / "forecast.jsonl").write_text("".join(json.dumps(run) + "\n" for run in kept))
    for every, part in ((STRIDE, "every_fifth"), (1, "scores")):
        found = forecast.quick_scores("etth1", 6, every=every)
        assert_allclose(found["rmse"], kept[0][part]["rmse"])
        assert found["ratios"]["rmse"] == (pytest.approx(1.0), "last_value")
        assert found["ratios"]["crps"][0] == pytest.approx(found["crps"] / kept[0][part]["crps"])
        assert ("young" in found) == (every == 1)


def test_quick_lines_are_of_the_choosing_half(monkeypatch, capsys):
    scores = {"rmse": 0.5, "mae": 0.4, "crps": 0.3, "coverage": [0.5, 0.9, 0.99], "us": 12.0}
    scores |= {
        "slowest": {"ms": 1.5, "row": 77, "gap": 0},
        "ratios": dict.fromkeys(("rmse", "mae", "crps"), (0.9, "var")),
    }
    monkeypatch.setattr(forecast_quick, "quick_scores", lambda *case: scores)
    monkeypatch.setattr("sys.argv", ["forecast_quick"])
    forecast_quick.main()
    *said, means = capsys.readouterr().out.splitlines()
    plans = {case: plan for case, plan in data.FORECASTS.items() if data.half_of(case) == "choosing"}
    assert len(said) == sum(len(plan.horizons) for plan in plans.values())
    assert "RMSE 0.5000  0.900x var" in said[0] and "worst 1.5 ms at 77" in said[0] and "'CRPS': 0.9" in means
    monkeypatch.setattr("sys.argv", ["forecast_quick", "etth2"])
    with pytest.raises(SystemExit):
        forecast_quick.main()
    assert "etth2: not in the choosing half" in capsys.readouterr().err


def options(**changes):
    given = {
        "feeds": [],
        "half": None,
        "horizons": None,
        "models": ["ridge", "seasonal_last", "auto_ets"],
        "rows": None,
    }
    return argparse.Namespace(**{**given, "cap": 300.0, **changes})


def test_tasks(peers_folder, capsys):
    found = [(task["feed"], task["horizon"], task["model"]) for task in forecast.tasks(options())]
    cases = [(feed, horizon) for feed, plan in data.FORECASTS.items() for horizon in plan.horizons]
    assert [(feed, horizon) for feed, horizon, model in found if model == "ridge"] == cases
    assert ("windturbine", 10, "seasonal_last") not in found and ("etth1", 24, "seasonal_last") in found
    assert "auto_ets" not in {model for _, _, model in found}
    said = capsys.readouterr().err
    assert "windturbine, seasonal_last: left out, no season" in said and "etth1, auto_ets: left out" in said
    some = forecast.tasks(options(horizons=[6], rows=900, models=["ridge"]))
    assert {task["horizon"] for task in some} == {6} and {task["rows"] for task in some} == {900}
    chosen = {task["feed"] for task in forecast.tasks(options(half="choosing"))}
    assert chosen == {case for case in data.FORECASTS if data.half_of(case) == "choosing"}
    assert {task["rows"] for task in forecast.tasks(options(rows=10**6, feeds=["etth1"]))} == {4000}
