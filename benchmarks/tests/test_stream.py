"""The streaming benchmark: its rivals against dense algebra, its scores against scipy, its protocol and its tables."""

from __future__ import annotations

import argparse
import doctest
import importlib
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import approx_fprime

import momostream
from benchmarks import data, harness, stream
from benchmarks.tools import stream_report
from benchmarks.tools import stream_rivals as rivals
from benchmarks.tools import stream_scores as scores
from benchmarks.tools.stream_rivals import (
    RIVALS,
    Boosted,
    Kernel,
    LastValue,
    Nearest,
    Residuals,
    Ridge,
    RidgeOnLags,
    Tracker,
    TunedTracker,
    WindowGP,
)
from benchmarks.tools.stream_scores import Record, Student


@pytest.mark.parametrize("module", ["harness", "tools.stream_rivals", "tools.stream_scores", "tools.stream_report"])
def test_doctests(module):
    found = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert found.attempted and not found.failed


def smooth(rng, n, n_inputs=3, n_outputs=2):
    X = rng.normal(size=(n, n_inputs))
    return X, np.sin(X @ rng.normal(size=(n_inputs, n_outputs))) + 0.1 * rng.normal(size=(n, n_outputs))


def exact_gp(covariance, noise, cross, Y):
    """Mean and variance of a new value (noise included), plain inverse, unit prior variance."""
    inverse = np.linalg.inv(covariance + noise * np.eye(len(Y)))
    return cross @ inverse @ Y, 1.0 + noise - cross @ inverse @ cross


# ---------------------------------------------------------------------- distributions and scores


@pytest.fixture
def distribution(rng):
    A = rng.normal(size=(3, 3))
    return Student(rng.normal(size=3), A @ A.T + 0.1 * np.eye(3), 4.5)


def test_student_density_and_distribution_are_those_of_scipy(distribution, rng):
    y = 3.0 * rng.normal(size=3)
    assert_allclose(
        distribution.log_pdf(y),
        stats.multivariate_t(distribution.mean, distribution.scale, df=distribution.dof).logpdf(y),
    )
    each = stats.t(distribution.dof, distribution.mean, np.sqrt(np.diag(distribution.scale)))
    assert_allclose(distribution.cdf(y), each.cdf(y))


@pytest.mark.parametrize("dof", [1.5, 2.0, 5.0, 33.3, 1000.0])
def test_crps_is_its_integral(dof):
    y, mean, width = np.array([-4.0, 0.3, 7.0]), 0.5, 2.0
    found = Student(np.full(3, mean), width**2 * np.eye(3), dof).crps(y)
    cdf = stats.t(dof, mean, width).cdf
    for value, expected in zip(y, found, strict=True):
        below = quad(lambda z: cdf(z) ** 2, -np.inf, value)[0]
        above = quad(lambda z: (1.0 - cdf(z)) ** 2, value, np.inf)[0]
        assert_allclose(below + above, expected, rtol=1e-5)


def test_accuracy_is_the_mean_over_outputs_and_rows_in_range():
    Y = np.array([[9.0, 9.0], [1.0, 0.0], [3.0, 0.5], [9.0, 9.0]])
    record = Record(Y)
    for row in range(4):
        record.score(row, Student(np.zeros(2), np.eye(2), 30.0))
    found = record.accuracy(1, 3)
    assert_allclose(found["rmse"], (np.sqrt(5.0) + np.sqrt(0.125)) / 2)
    assert_allclose(found["mae"], 4.5 / 4)
    assert_allclose(found["nlpd"], -stats.multivariate_t(np.zeros(2), np.eye(2), df=30.0).logpdf(Y[1:3]).mean())


def test_rows_without_prediction_are_left_out():
    record = Record(np.array([[1.0], [2.0], [3.0]]))
    record.score(2, Student(np.array([1.0]), np.eye(1), 30.0))
    assert_allclose(record.accuracy(0, 3)["rmse"], 2.0)


def test_nan_is_not_scored_silently():
    with pytest.raises(ValueError, match="row 1: a score is NaN"):
        Record(np.array([[1.0], [2.0]])).score(1, Student(np.array([np.nan]), np.eye(1), 30.0))


def test_coverage_of_the_true_distribution(rng):
    Y = stats.t(5.0).rvs((4000, 1), random_state=rng)
    record = Record(Y)
    for row in range(len(Y)):
        record.score(row, Student(np.zeros(1), np.eye(1), 5.0))
    assert_allclose(record.accuracy(0, len(Y))["coverage"], scores.LEVELS, atol=0.02)


def test_atom_of_a_stuck_sensor_has_uniform_transform():
    """A distribution much narrower than the resolution knows the reading, not where in the cell the value is."""
    Y = np.zeros((4000, 1))
    Y[0] = 1.0
    record = Record(Y)
    for row in range(1, len(Y)):
        record.score(row, Student(np.full(1, 1e-4), 1e-8 * np.eye(1), 30.0))
    assert_allclose(record.accuracy(0, len(Y))["coverage"], scores.LEVELS, atol=0.02)


def test_resolution_ignores_repeats():
    found = scores.shown_resolution(np.array([[0.3, 1.0], [0.1, 1.0], [0.1, 1.5], [0.2, 1.5]]))
    assert_allclose(found, [[0.0, 0.0], [0.2, 0.0], [0.2, 0.5], [0.1, 0.5]])


def test_a_series_at_rest_is_covered_as_promised_and_plainly_more():
    """A lump that is likely as it is predicted to be: a closed interval around it holds more than its level."""
    rng = np.random.default_rng(1)
    Y = np.where(rng.random(4000) < 0.8, 0.0, rng.normal(size=4000))[:, None]

    class Lump:
        mean = np.zeros(1)
        log_pdf = staticmethod(lambda y: 0.0)
        crps = staticmethod(np.zeros_like)
        cdf = staticmethod(lambda y: 0.2 * stats.norm.cdf(y) + 0.8 * (y >= 0.0))

    record = Record(Y)
    for row in range(50, len(Y)):
        record.score(row, Lump())
    found = record.accuracy(50, len(Y))
    assert_allclose(found["coverage"], scores.LEVELS, atol=0.02)
    assert found["plain"][0] > 0.7


def test_cost_counts_both_calls():
    record = Record(np.arange(4.0)[:, None])
    record.predict_ns[:], record.learn_ns[:] = [9e9, 1e3, 2e3, 3e3], [9e9, 4e3, 4e3, 4e3]
    found = record.cost(1, 4)
    assert_allclose(found["rows_per_s"], 3 / 18e-6)
    assert (found["predict_us"]["median"], found["predict_us"]["max"], found["learn_us"]["p99"]) == (2.0, 3.0, 4.0)


# ---------------------------------------------------------------------- residuals


def test_residuals_are_discounted_sums(rng):
    Z = rng.normal(size=(50, 2))
    residuals = Residuals(2)
    for z in Z:
        residuals.learn(z)
    weights = 0.97 ** np.arange(49, -1, -1)
    mass = 2.0 * 0.97**50 + weights.sum()
    scale, dof = residuals.distribution(c=0.5)
    assert_allclose(dof, mass)
    assert_allclose(scale, 0.5 * (0.6 * 0.97**50 * np.eye(2) + (Z.T * weights) @ Z) / mass, atol=1e-9)


def test_gaps_do_not_shrink_the_residuals(rng):
    covariance = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.01]])
    Z = rng.multivariate_normal(np.zeros(3), covariance, size=4000)
    complete = Z[500:].T @ Z[500:] / 3500
    Z[rng.random(Z.shape) < 0.3] = np.nan
    residuals, scales = Residuals(3), []
    for z in Z:
        residuals.learn(z)
        scales.append(residuals.distribution(1.0)[0])
    assert_allclose(np.mean(scales[500:], axis=0), complete, atol=0.03)


def test_a_row_of_gaps_tells_nothing():
    residuals = Residuals(2)
    before = residuals.distribution(1.0)
    residuals.learn(np.full(2, np.nan))
    assert_array_equal(before[0], residuals.distribution(1.0)[0])
    assert before[1] == residuals.distribution(1.0)[1]


def test_distribution_of_collinear_and_stuck_outputs_has_a_density():
    residuals = Residuals(4)
    for z in np.linspace(-1e5, 1e5, 2000):
        residuals.learn(np.array([z, 3.0 * z, 0.7 * z, 0.0]))
    for c in (1e-9, 1.0):
        assert np.isfinite(Student(np.zeros(4), *residuals.distribution(c)).log_pdf(np.ones(4)))


# ---------------------------------------------------------------------- rivals


def test_last_value_is_kept_when_its_row_changes(rng):
    model = LastValue(2)
    assert_array_equal(model.predict(np.zeros(1))[0], np.zeros(2))
    model.learn(np.zeros(1), np.array([1.0, 2.0]))
    assert_array_equal(model.predict(np.ones(1))[0], [1.0, 2.0])


def test_ridge_is_the_weighted_closed_form(rng):
    X, Y = smooth(rng, 40)
    model = Ridge(3, 2, forgetting=0.9, penalty=0.5)
    for x, y in zip(X, Y, strict=True):
        model.learn(x, y)
    # Least squares with rows scaled by the root of their weight, and the penalty as more rows.
    root = np.sqrt(0.9 ** np.arange(39, -1, -1))[:, None]
    A = np.vstack([root * np.c_[X, np.ones(40)], np.sqrt(0.5) * np.eye(4)])
    weights = np.linalg.lstsq(A, np.vstack([root * Y, np.zeros((4, 2))]))[0]
    x = rng.normal(size=3)
    assert_allclose(model.predict(x)[0], np.append(x, 1.0) @ weights)


def test_nearest_is_the_mean_of_five_weighted_by_distance(rng):
    X, Y = smooth(rng, 30)
    model = Nearest(2)
    assert_array_equal(model.predict(X[0])[0], np.zeros(2))
    for x, y in zip(X, Y, strict=True):
        model.learn(x, y)
    x = rng.normal(size=3)
    distance = np.linalg.norm(X - x, axis=1)
    near = np.argsort(distance)[:5]
    assert_allclose(model.predict(x)[0], (Y[near] / distance[near, None]).sum(0) / (1.0 / distance[near]).sum())


def test_evidence_is_the_dense_formula_and_its_gradient_the_difference_quotient(rng):
    X, Y = smooth(rng, 25)
    theta = np.array([0.2, 0.9, -0.3, -2.0])
    kernel = Kernel(np.exp(theta[:3]), np.exp(theta[3]))
    covariance = kernel(X, X) + kernel.noise * np.eye(25)
    squares = np.diag(Y.T @ np.linalg.inv(covariance) @ Y) + 0.6
    centre, width = np.log([np.sqrt(3.0)] * 3 + [0.05]), np.array([1.5, 1.5, 1.5, 3.0])
    expected = np.linalg.slogdet(covariance)[1] + 0.5 * 27 * np.log(squares).sum()
    value, gradient = rivals.evidence(theta, X, Y)
    assert_allclose(value, expected + 0.5 * (((theta - centre) / width) ** 2).sum())
    assert_allclose(gradient, approx_fprime(theta, lambda t: rivals.evidence(t, X, Y)[0]), rtol=1e-4, atol=1e-4)


def test_kernel_is_matern(rng):
    x, t = rng.normal(size=(2, 3))
    r = np.sqrt(3.0 * (((x - t) / [1.0, 2.0, 3.0]) ** 2).sum())
    assert_allclose(Kernel(np.array([1.0, 2.0, 3.0]), 0.1)(x[None], t[None]), [[(1.0 + r) * np.exp(-r)]])


@pytest.mark.parametrize("n_rows", [1, 20, 80])
def test_window_gp_is_the_exact_gp_of_its_window(rng, n_rows):
    X, Y = smooth(rng, 80)
    model = WindowGP(3, 2, size=30)
    assert_array_equal(model.predict(X[0])[0], np.zeros(2))
    for x, y in zip(X[:n_rows], Y[:n_rows], strict=True):
        model.learn(x, y)
    window = slice(max(n_rows - 30, 0), n_rows)
    x, kernel, offset = rng.normal(size=3), model.kernel, Y[window].mean(axis=0)
    mean, c = exact_gp(kernel(X[window], X[window]), kernel.noise, kernel(x[None], X[window])[0], Y[window] - offset)
    assert_allclose(model.predict(x)[0], offset + mean, rtol=1e-8)
    assert_allclose(model.predict(x)[1], c, rtol=1e-8)


def test_window_gp_tunes_itself(rng):
    X, Y = smooth(rng, 60)
    model = WindowGP(3, 2, size=30)
    for x, y in zip(X, Y, strict=True):
        model.learn(x, y)
    start = np.log(np.append(Kernel.default(3).lengths, Kernel.default(3).noise))
    found = np.log(np.append(model.kernel.lengths, model.kernel.noise))
    Y = Y[30:] - Y[30:].mean(axis=0)
    assert rivals.evidence(found, X[30:], Y)[0] < rivals.evidence(start, X[30:], Y)[0]


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_tracker_with_room_is_an_exact_gp(rng, forgetting):
    """Forgetting back to the prior is a covariance that decays with the square root of the factor per step."""
    X, Y = smooth(rng, 40)
    kernel = Kernel(np.array([1.0, 1.5, 2.0]), 0.05)
    tracker = Tracker(kernel, 2, budget=100, forgetting=forgetting)
    time = np.arange(41)
    for row in range(41):
        x = X[row] if row < 40 else rng.normal(size=3)
        decay = np.sqrt(forgetting) ** np.abs(time[:row, None] - time[:row])
        cross = kernel(x[None], X[:row])[0] * np.sqrt(forgetting) ** (row - time[:row])
        mean, variance = exact_gp(kernel(X[:row], X[:row]) * decay, 0.05, cross, Y[:row])
        assert_allclose(tracker.predict(x)[0], mean, atol=1e-8)
        assert_allclose(tracker.predict(x)[1], variance, rtol=1e-8)
        if row < 40:
            tracker.learn(x, Y[row])


def test_tracker_keeps_its_budget_and_its_inverse(rng):
    X, Y = smooth(rng, 200, n_inputs=1, n_outputs=2)
    kernel = Kernel(np.array([1.0]), 0.05)
    tracker, roomy = Tracker(kernel, 2, budget=12, forgetting=1.0), Tracker(kernel, 2, budget=300, forgetting=1.0)
    for x, y in zip(X, Y, strict=True):
        tracker.learn(x, y)
        roomy.learn(x, y)
    assert len(tracker.basis) == len(tracker.mu) == 12
    assert_allclose(tracker.K, kernel(tracker.basis, tracker.basis), atol=1e-12)
    assert_allclose(tracker.Q @ tracker.K, np.eye(12), atol=1e-8)
    # One smooth function of one input: twelve rows hold nearly all of it.
    for x in np.linspace(-1.5, 1.5, 7)[:, None]:
        assert_allclose(tracker.predict(x)[0], roomy.predict(x)[0], atol=0.1)


def test_tracker_drops_the_row_that_the_others_explain_best(rng):
    X, Y = smooth(rng, 9)
    kernel = Kernel(np.ones(3), 0.05)
    roomy, tracker = (Tracker(kernel, 2, budget=budget, forgetting=1.0) for budget in (9, 8))
    for x, y in zip(X, Y, strict=True):
        roomy.learn(x, y)
        tracker.learn(x, y)
    change = []
    for row in range(9):
        rest = np.delete(np.arange(9), row)
        explained = roomy.K[row, rest] @ np.linalg.inv(roomy.K[np.ix_(rest, rest)]) @ roomy.mu[rest]
        change.append(((roomy.mu[row] - explained) ** 2).sum())
    rest = np.delete(np.arange(9), np.argmin(change))
    assert_array_equal(tracker.basis, X[rest])
    assert_allclose(tracker.mu, roomy.mu[rest])
    assert_allclose(tracker.Q, np.linalg.inv(roomy.K[np.ix_(rest, rest)]), atol=1e-8)


def test_tracker_learns_from_repeated_inputs_without_keeping_them(rng):
    kernel = Kernel(np.ones(1), 0.5)
    tracker = Tracker(kernel, 1, budget=10, forgetting=1.0)
    Y = rng.normal(size=(6, 1))
    for y in Y:
        tracker.learn(np.zeros(1), y)
    assert len(tracker.basis) == 1
    mean, variance = exact_gp(np.ones((6, 6)), 0.5, np.ones(6), Y)
    assert_allclose(tracker.predict(np.zeros(1))[0], mean)
    assert_allclose(tracker.predict(np.zeros(1))[1], variance)


def test_tuned_tracker_is_a_tracker_that_learnt_the_kept_rows(rng):
    X, Y = smooth(rng, 60)
    model = TunedTracker(3, 2)
    for x, y in zip(X, Y, strict=True):
        model.learn(x, y)
    kernel, offset = model.tracker.kernel, Y[:50].mean(axis=0)  # tuned last after 50 rows
    assert kernel.noise != Kernel.default(3).noise
    again = Tracker(kernel, 2, budget=100, forgetting=0.999)
    for x, y in zip(X, Y, strict=True):
        again.learn(x, y - offset)
    assert_allclose(model.predict(X[0])[0], again.predict(X[0])[0] + offset)


def with_lags(X, Y, row):
    """Inputs of a row and all columns of the two rows before it, zero where there are none."""
    past = np.hstack([X, Y])
    zero = np.zeros(past.shape[1])
    return np.r_[X[row], past[row - 1] if row > 0 else zero, past[row - 2] if row > 1 else zero]


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_ridge_on_lags_is_a_ridge_on_all_columns_of_two_rows(rng, forgetting):
    X, Y = smooth(rng, 40, n_outputs=2)
    model, plain = RidgeOnLags(3, 2, forgetting), Ridge(13, 2, forgetting)
    for row in range(40):
        f = with_lags(X, Y, row)
        assert_allclose(model.predict(X[row])[0], plain.predict(f)[0])
        model.learn(X[row], Y[row])
        plain.learn(f, Y[row])


def test_boosted_trees_are_those_of_lightgbm_on_all_rows_so_far(rng):
    lightgbm = pytest.importorskip("lightgbm")
    # The first target wanders, the second does not.
    X, Y = smooth(rng, 110, n_outputs=2)
    Y[:, 0], Y[:, 1] = rng.normal(size=110).cumsum(), np.sign(X[:, 0])
    model = Boosted(3, 2, 0)
    for row in range(100):
        assert_array_equal(model.predict(X[row])[0], Y[row - 1] if row else np.zeros(2))
        model.learn(X[row], Y[row])
    assert model.changes.tolist() == [1.0, 0.0]
    F = np.array([with_lags(X, Y, row) for row in range(101)])
    settings = {"n_jobs": 1, "random_state": 0, "deterministic": True, "verbose": -1}
    change = lightgbm.LGBMRegressor(**settings).fit(F[:100], np.r_[Y[0, 0], np.diff(Y[:100, 0])])
    value = lightgbm.LGBMRegressor(**settings).fit(F[:100], Y[:100, 1])
    expected = [Y[99, 0] + change.booster_.predict(F[100:])[0], value.booster_.predict(F[100:])[0]]
    assert_allclose(model.predict(X[100])[0], expected)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_rival_in_a_stream(rng, name, n_outputs):
    n_rows = 25 if name == "adaptive_forest" else 120
    X, Y = smooth(rng, n_rows, n_outputs=n_outputs)
    X[n_rows // 2 :] = X[n_rows // 2]  # inputs may be stuck
    model = RIVALS[name](3, n_outputs, 0)
    for x, y in zip(X, Y, strict=True):
        mean, c = model.predict(x)
        again, _ = model.predict(x)
        assert mean.shape == (n_outputs,) and np.isfinite(mean).all() and c > 0.0
        assert_array_equal(mean, again)
        model.learn(x, y)


# ---------------------------------------------------------------------- feeds


def test_feeds_are_those_of_the_yardstick(data_dir):
    yardstick = stream.yardstick()
    if yardstick is None:
        pytest.skip("no yardstick")
    for name in data.about():
        X, Y = yardstick.load(data_dir, name, 300)
        feed = data.stream(name, 300)
        assert_array_equal(feed.X, X, err_msg=name)
        assert_array_equal(feed.Y, Y, err_msg=name)


def test_lagged_feed(data_dir):
    frame, _, targets = data.read("etth1")
    feed, values = data.stream("etth1_lags", 300), frame[targets].to_numpy(float)
    assert feed.X.shape == (276, 16) and feed.Y.shape == (276, 7)
    for row in (0, 100, 275):
        seen = np.r_[values[row + 23], values[row]]
        past = np.c_[values[23:299], values[:276]]
        assert_allclose(feed.X[row, :14], (seen - past.mean(axis=0)) / past.std(axis=0))
        assert_allclose(feed.Y[row], (values[row + 24] - values[24:300].mean(axis=0)) / values[24:300].std(axis=0))
    # The file starts at midnight, and so does the feed a day later: sine 0, cosine 1, a whole number of days long.
    assert str(frame["date"][0]).endswith("00:00:00")
    angle = 2.0 * np.pi * (np.arange(276) % 24) / 24
    assert_allclose(np.corrcoef(feed.X[:, 14], np.sin(angle))[0, 1], 1.0)
    assert_allclose(np.corrcoef(feed.X[:, 15], np.cos(angle))[0, 1], 1.0)


def test_feeds_are_standardised_and_listed(data_dir):
    assert data.feeds()["etth1_lags"] == data.feeds()["etth1"] == 17420
    feed = data.stream("gas_turbine", 250)
    assert_allclose(feed.Y.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(feed.X.std(axis=0), 1.0)


def test_without_data_the_benchmark_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MOMOSTREAM_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["stream", "--quick"])
    with pytest.raises(SystemExit, match="no data sets in .*MOMOSTREAM_DATA"):
        stream.main()


# ---------------------------------------------------------------------- runs


@pytest.fixture
def feed(rng):
    return data.Feed(*smooth(rng, 260))


def test_run_predicts_before_it_learns(feed):
    model = stream.WithResiduals("last_value", 3, 2, 0)
    record, done = stream.run(model, feed, feed.Y)
    assert done == 260
    assert_array_equal(record.error[1:], np.diff(feed.Y, axis=0))
    assert (record.predict_ns > 0).all() and (record.learn_ns > 0).all()


def test_rival_takes_its_own_prediction_for_gaps(feed):
    seen = feed.Y.copy()
    seen[100:, 1] = np.nan
    record, _ = stream.run(stream.WithResiduals("last_value", 3, 2, 0), feed, seen)
    assert_array_equal(record.error[100:, 1], feed.Y[100:, 1] - feed.Y[99, 1])
    assert_array_equal(record.error[100:, 0], np.diff(feed.Y[99:, 0]))


def test_run_ends_at_its_cap(feed):
    class Slow(stream.WithResiduals):
        def learn(self, x, y):
            sum(range(100_000))
            super().learn(x, y)

    record, done = stream.run(Slow("last_value", 3, 2, 0), feed, feed.Y, cap=0.02)
    assert 1 < done < 100
    assert (record.predict_ns + record.learn_ns)[: done - 1].sum() <= 2e7 < (record.predict_ns + record.learn_ns).sum()


def test_distribution_that_changes_with_its_row_is_refused(feed):
    class Leaky(stream.WithResiduals):
        def predict(self, x):
            self.answer = super().predict(x)
            self.answer = (self.answer[0].copy(), *self.answer[1:])
            return self.answer

        def learn(self, x, y):
            super().learn(x, y)
            self.answer[0][:] = y

    with pytest.raises(RuntimeError, match="row 0: the predicted distribution changed"):
        stream.run(Leaky("last_value", 3, 2, 0), feed, feed.Y)


def test_model_that_stops_predicting_is_refused(feed):
    class Silent(stream.WithResiduals):
        def distribution(self, answer):
            return None

    with pytest.raises(RuntimeError, match="row 200: no prediction"):
        stream.run(Silent("last_value", 3, 2, 0), feed, feed.Y)


class NamedLaw:
    def __init__(self, distribution, names):
        self._distribution, self._names = distribution, names
        self.mean = dict(zip(names, distribution.mean.tolist(), strict=True))

    def log_pdf(self, y):
        return self._distribution.log_pdf(np.array([y[name] for name in self._names]))

    def cdf(self, y):
        return dict(zip(self._names, self._distribution.cdf(np.array([y[name] for name in self._names])), strict=True))

    def crps(self, y):
        return dict(zip(self._names, self._distribution.crps(np.array([y[name] for name in self._names])), strict=True))


class FakeRegressor:
    """The last known value of each target, behind the face of momostream."""

    def __init__(self, seed=None):
        self.last, self.inputs = {}, None

    def predict_one(self, x, with_dist=False):
        assert with_dist
        names = sorted(self.last, reverse=True)  # any order
        mean = np.array([self.last[name] for name in names])
        return NamedLaw(Student(mean, np.eye(len(mean)), 5.0), names) if names else None

    def learn_one(self, x, y):
        self.inputs = set(x)
        self.last |= y


def test_momostream_behind_the_same_face(feed, monkeypatch):
    monkeypatch.setattr(momostream, "MOMoGPRegressor", FakeRegressor, raising=False)
    seen = feed.Y.copy()
    seen[:3, 1] = np.nan
    seen[100:, 1] = np.nan
    model = stream.Momostream(2, seed=0)
    record, _ = stream.run(model, feed, seen)
    assert model.model.inputs == {"x0", "x1", "x2"}
    # Nothing is predicted before both targets are known.
    assert np.isnan(record.nlpd[:4]).all() and not np.isnan(record.nlpd[4:]).any()
    assert_array_equal(record.error[4:, 0], np.diff(feed.Y[3:, 0]))
    assert_array_equal(record.error[100:, 1], feed.Y[100:, 1] - feed.Y[99, 1])
    expected = Student(np.array([feed.Y[258, 0], feed.Y[99, 1]]), np.eye(2), 5.0)
    assert_allclose(record.nlpd[259], -expected.log_pdf(feed.Y[259]))
    assert_allclose(record.crps[259], expected.crps(feed.Y[259]))


@pytest.mark.parametrize("cap", [100.0, 0.0])
def test_measured_run(data_dir, cap):
    task = {"feed": "windturbine", "model": "ridge", "rows": 260, "seed": 0, "missing": 0.2, "frozen": False}
    found = stream.measure({**task, "cap": cap})
    assert found["feed"] == "windturbine" and found["bytes"] > 81 * 8
    if cap:
        assert found["done"] == 260 and not found["capped"]
        assert 0.0 < found["scores"]["rmse"] < 1.0 and 0.0 < found["early"]["rmse"] < 1.0
    else:
        assert found["done"] == 1 and found["capped"] and "scores" not in found


def test_bytes_are_counted_once():
    array = np.zeros(10_000)
    assert 80_000 <= harness.bytes_held({"a": array, "b": [array, array[:10]]}) < 81_000


def test_results_are_kept_line_by_line(tmp_path):
    path = tmp_path / "results" / "stream.jsonl"
    assert harness.kept_results(path) == []
    for number in range(2):
        harness.keep_result(path, {"number": number})
    assert harness.kept_results(path) == [{"number": 0}, {"number": 1}]


def options(**changes):
    given = {"feeds": [], "models": ["ridge", "yardstick", "momostream"], "rows": 3000, "seeds": 1, "missing": 0.0}
    return argparse.Namespace(**{**given, "frozen": False, "cap": 300.0, **changes})


def test_tasks(data_dir, monkeypatch, capsys):
    monkeypatch.setattr(stream, "yardstick", lambda: sys)
    assert len(stream.tasks(options())) == 3 * len(stream_report.CHOOSING + stream_report.REPORTING)
    seeds = stream.tasks(options(feeds=["kin40k"], seeds=3))
    assert [(task["model"], task["seed"]) for task in seeds if task["seed"]] == [("momostream", 1), ("momostream", 2)]
    long = {task["feed"] for task in stream.tasks(options(rows=30_000))}
    assert "kin40k" in long and "windturbine" not in long
    assert "windturbine has only" in capsys.readouterr().err
    assert {task["model"] for task in stream.tasks(options(missing=0.2))} == {"ridge", "momostream"}
    monkeypatch.setattr(stream, "yardstick", lambda: None)
    assert {task["model"] for task in stream.tasks(options())} == {"ridge", "momostream"}


# ---------------------------------------------------------------------- tables


def result(feed="windturbine", model="momostream", rmse=0.05, nlpd=-18.0, **changes):
    figures = {"rmse": rmse, "mae": rmse, "nlpd": nlpd, "crps": rmse, "coverage": [0.5, 0.9, 0.99]}
    times = {"median": 10.0, "p99": 20.0, "p99.9": 30.0, "max": 40.0}
    found = {"feed": feed, "model": model, "rows": 3000, "seed": 0, "missing": 0.0, "frozen": False, "date": "today"}
    found |= {"done": 3000, "capped": False, "bytes": 2000, "scores": figures, "early": figures}
    return {**found, "rows_per_s": 300.0, "predict_us": times, "learn_us": times, "slowest_us": 40.0, **changes}


def lines(results, words):
    return [line for line in stream_report.verdicts(results).splitlines() if words in line]


def test_verdicts_pass():
    results = [
        result(),
        result(model="yardstick", rmse=0.06, nlpd=-15.0, rows_per_s=100.0),
        result(model="ridge", rmse=0.06, nlpd=-15.0),
    ]
    text = stream_report.verdicts(results)
    assert "MISS" not in text and "not measured" not in text
    assert text.count("PASS") == 13
    (line,) = lines([result(slowest_us=10_001.0)], "slowest learn_one")
    assert line.endswith("windturbine 10.0 ms")


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"rmse": 0.061}, "RMSE at most the yardstick's"),
        ({"nlpd": -14.9}, "NLPD at most the yardstick's"),
        ({"rmse": 0.0585}, "RMSE 3 % below"),
        ({"rows_per_s": 299.0}, "rows per second"),
        ({"rmse": 0.0565}, "RMSE at most every rival's"),
        ({"nlpd": -16.0}, "NLPD below every rival's"),
        ({"rmse": 0.0521}, "windturbine: RMSE"),
        ({"nlpd": -17.4}, "windturbine: NLPD"),
        ({"capped": True}, "every feed to its end"),
        ({"failed": True}, "every feed to its end"),
    ],
)
def test_verdicts_miss(ours, words):
    others = [
        result(model="yardstick", rmse=0.06, nlpd=-15.0, rows_per_s=100.0),
        result(model="krls_t", rmse=0.0559, nlpd=-16.0),
    ]
    (line,) = lines([result(**ours), *others], words)
    assert line.startswith("- MISS")


@pytest.mark.parametrize(("place", "share"), [(0, 0.525), (1, 0.875), (2, 0.975)])
def test_coverage_verdicts_miss(place, share):
    found = result()
    found["scores"]["coverage"][place] = share
    missed = [line.startswith("- MISS") for line in lines([found], "coverage")]
    assert missed == [place == 0, place == 1, place == 2]


def test_speed_is_compared_within_one_invocation_only():
    results = [result(), result(model="yardstick", rows_per_s=100.0, date="yesterday")]
    assert lines(results, "rows per second")[0].startswith("- not measured")


def test_newest_result_counts():
    results = [result(rmse=0.9), result(rmse=0.05)]
    assert lines(results, "windturbine: RMSE")[0].startswith("- PASS")


def test_unfinished_rivals_are_not_compared():
    cut = result(model="adaptive_forest", rmse=0.01, capped=True, done=1234)
    hopeless = {key: value for key, value in cut.items() if key not in ("scores", "early")} | {"model": "nearest"}
    broken = {"feed": "windturbine", "model": "isoup_tree", "rows": 3000, "seed": 0, "missing": 0.0, "frozen": False}
    broken |= {"failed": True, "date": "today"}
    results = [result(), cut, hopeless, broken, result(model="ridge", rmse=0.06)]
    assert lines(results, "RMSE at most every rival's")[0].startswith("- PASS")
    text = stream_report.report(results)
    (row,) = [line for line in text.split("### RMSE\n")[1].split("###")[0].splitlines() if line.startswith("| wind")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["windturbine", "**0.0500**", "0.0600", "failed", "0.0100 (1,234 rows)", "(1,234 rows)"]


def test_report_has_a_table_for_each_question():
    yardstick = result(model="yardstick", rows_per_s=100.0)
    del yardstick["scores"]["crps"], yardstick["bytes"]
    yardstick["predict_us"] = yardstick["learn_us"] = {"median": 5.0}
    results = [
        result(),
        result(seed=1, rmse=0.07),
        yardstick,
        result(missing=0.2),
        result(frozen=True),
        result(rows=30_000),
    ]
    text = stream_report.report(results)
    for words in (
        "300 (3.00x)",
        "20% of the targets missing",
        "without garbage collection",
        "## First 30,000 rows",
        "| windturbine | momostream | 2 | 0.0600 ± 0.0100 |",
        "RMSE of the rows 30 to 199",
        "10 / 20 / 30 / 40",
    ):
        assert words in text


def test_halves_are_disjoint_and_known(data_dir):
    feeds = stream_report.CHOOSING + stream_report.REPORTING
    assert len(set(feeds)) == len(feeds) == 19
    assert set(feeds) <= set(data.feeds())


def test_wins_and_ratios_are_those_of_each_half():
    results = []
    for feed, ours, theirs in (
        ("etth1", 1.0, 2.0),
        ("kin40k", 4.0, 2.0),
        ("bike_hourly", 1.0, 1.0),
        ("etth2", 1.0, 4.0),
    ):
        results += [result(feed=feed, rmse=ours), result(feed=feed, model="ridge", rmse=theirs)]
    # A rival that was cut does not count.
    results += [result(feed="scm20d"), result(feed="scm20d", model="ridge", capped=True)]
    text = stream_report.report(results)
    assert "| ridge | 2 of 3 | 1.000 | 1.000 | 1 of 1 | 0.250 | 0.250 |" in text


def test_nothing_measured_is_no_pass():
    assert "PASS" not in stream_report.verdicts([result(model="ridge")])
    assert "PASS" not in stream_report.verdicts([])
