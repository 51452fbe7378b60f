"""Hyper-parameters: values and gradients against scikit-learn and differences, and what a job promises."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from momostream.batch.region import NU0, SCALE0, Region
from momostream.gp import tuning
from momostream.gp.covariance import KERNELS, LEAST_NOISE, Covariance, input_std
from momostream.gp.scaling import standardisation
from momostream.gp.tuning import ResumableTuner, TuningJob, log_likelihood, tune
from tests import naive

TEXTS = [*KERNELS, *(f"{name}+linear" for name in KERNELS)]


def problem(n=25, n_inputs=2, n_targets=1, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs)) * [1.0, 5.0, 0.2][:n_inputs]
    wave = np.sin(2.0 * X[:, :1] + np.arange(n_targets)) if n_inputs else np.zeros((n, n_targets))
    return X, wave + noise * rng.normal(size=(n, n_targets))


def draw(X, Y, kernel="matern32", start=None, seed=0, **options):
    options = {"max_rows": 1000, "max_iterations": 100, "restarts": 0, "random_start": False} | options
    return TuningJob.draw(Covariance.parse(kernel), X, Y, start, seed=np.random.SeedSequence(seed), **options)


def objective_of(job, theta):
    """Negative log posterior on the rows of a complete job, as the optimiser should see it."""
    offset, scale = standardisation(job.Y)
    value, _ = log_likelihood(job.covariance, theta, job.X - job.X.mean(axis=0), (job.Y - offset) / scale)
    away = (theta - job.prior.centre) / job.prior.width
    return 0.5 * away @ away - value


# ---------------------------------------------------------------------------------------------- the objective


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("noise", [1e-6, 0.05, 2.0])
def test_value_and_gradient_are_those_of_scikit_learn(kernel, noise):
    X, R = problem(n_inputs=3)
    lengths, signal = np.array([0.8, 4.0, 0.5]), 1.7
    theta = np.log(np.r_[lengths, noise])
    shape = RBF(lengths) if kernel == "rbf" else Matern(lengths, nu={"1": 0.5, "3": 1.5, "5": 2.5}[kernel[-2]])
    whole = ConstantKernel(signal) * shape + WhiteKernel(signal * (noise + LEAST_NOISE))
    regressor = GaussianProcessRegressor(whole, alpha=0.0, optimizer=None).fit(X, R[:, 0])
    theirs, slope = regressor.log_marginal_likelihood(whole.theta, eval_gradient=True)
    ours, gradient = log_likelihood(Covariance(kernel), theta, X, R, np.array([signal]))
    by_signal, by_lengths, by_noise = slope[0], slope[1:4], slope[4]
    # Their noise is a variance, ours a ratio to the signal: a larger signal means more noise, too.
    expected = np.r_[by_lengths, by_noise * noise / (noise + LEAST_NOISE), by_signal + by_noise]
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_outputs_with_their_own_signals_add_up():
    X, R = problem(n_targets=3)
    theta, signal = np.log([0.8, 4.0, 0.05]), np.array([0.5, 1.0, 3.0])
    value, gradient = log_likelihood(Covariance("rbf"), theta, X, R, signal)
    parts = [log_likelihood(Covariance("rbf"), theta, X, R[:, [p]], signal[[p]]) for p in range(3)]
    assert value == pytest.approx(sum(part[0] for part in parts), rel=1e-12)
    assert_allclose(gradient[:3], sum(part[1][:3] for part in parts), rtol=1e-9)
    assert_allclose(gradient[3:], [part[1][3] for part in parts], rtol=1e-9)


@pytest.mark.parametrize("text", TEXTS)
def test_value_is_that_of_dense_algebra(text):
    covariance = Covariance.parse(text)
    X, R = problem(n=12)
    theta = np.log(np.r_[0.8, 4.0, 0.05, [0.4] * covariance.linear])
    K = naive.gram(
        covariance.code, covariance.linear_variance(theta), covariance.noise(theta), X / covariance.lengthscales(theta)
    )
    dense = -0.5 * R[:, 0] @ np.linalg.solve(1.7 * K, R[:, 0]) - 0.5 * np.linalg.slogdet(2 * np.pi * 1.7 * K)[1]
    assert log_likelihood(covariance, theta, X, R, np.array([1.7]))[0] == pytest.approx(dense, rel=1e-10)


def test_profiled_signals_are_the_best_ones():
    # Log density of the targets plus log prior of each signal variance, at its maximum.
    X, R = problem(n_targets=2)
    covariance = Covariance("matern32")

    def best(theta):
        def loss(log_signal, p):
            value, _ = log_likelihood(covariance, theta, X, R[:, [p]], np.exp([log_signal]))
            return -value + 0.5 * NU0 * log_signal + 0.5 * NU0 * SCALE0 * np.exp(-log_signal)

        return -sum(minimize_scalar(loss, bounds=(-6, 6), args=(p,), method="bounded").fun for p in range(2))

    first, second = np.log([0.8, 4.0, 0.05]), np.log([2.0, 1.0, 0.3])
    ours = log_likelihood(covariance, first, X, R)[0] - log_likelihood(covariance, second, X, R)[0]
    assert ours == pytest.approx(best(first) - best(second), abs=1e-6)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("profiled", [True, False])
@pytest.mark.parametrize("n_targets", [1, 4])
def test_gradient_is_that_of_differences(text, profiled, n_targets):
    covariance = Covariance.parse(text)
    X, R = problem(n_targets=n_targets)
    X[7] = X[3]  # where rows coincide, the slope of Matern-1/2 has no limit
    theta = np.log(np.r_[0.8, 4.0, 0.05, [0.4] * covariance.linear])
    signal = None if profiled else np.exp(np.linspace(-1, 1, n_targets))
    packed = theta if signal is None else np.r_[theta, np.log(signal)]

    def value(packed):
        own = None if signal is None else np.exp(packed[len(theta) :])
        return log_likelihood(covariance, packed[: len(theta)], X, R, own)[0]

    _, gradient = log_likelihood(covariance, theta, X, R, signal)
    expected = naive.finite_difference_gradient(value, packed)
    assert gradient.shape == packed.shape
    assert_allclose(gradient, expected, rtol=2e-6, atol=1e-6)


def test_the_likelihood_changes_nothing():
    X, R = problem()
    theta, before = np.log([0.8, 4.0, 0.05]), (X.copy(), R.copy())
    X.flags.writeable = R.flags.writeable = theta.flags.writeable = False
    log_likelihood(Covariance("rbf"), theta, X, R)
    assert_array_equal(X, before[0])
    assert_array_equal(R, before[1])


def test_a_covariance_that_is_not_positive_definite_is_an_error():
    X, R = problem()
    X[0, 0] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        log_likelihood(Covariance("rbf"), np.log([0.8, 4.0, 0.05]), X, R)


# ---------------------------------------------------------------------------------------------- the optimiser


@pytest.mark.parametrize("text", ["matern12", "rbf+linear"])
def test_tuning_improves_and_ends_where_the_gradient_vanishes(text):
    X, Y = problem(n=40, n_targets=2)
    job = draw(X, Y, text)
    theta = job.run()
    assert objective_of(job, theta) < objective_of(job, job.prior.centre) - 5.0
    slope = naive.finite_difference_gradient(lambda at: objective_of(job, at), theta)
    inside = (theta > job.prior.lower + 1e-6) & (theta < job.prior.upper - 1e-6)
    assert inside.all() and np.abs(slope).max() < 0.02


def test_tuning_returns_its_objective():
    X, Y = problem(n=20)
    job = draw(X, Y)
    offset, scale = standardisation(Y)
    theta, objective = tune(job.covariance, job.prior.centre, X - X.mean(axis=0), (Y - offset) / scale, job.prior, 50)
    assert objective == pytest.approx(objective_of(job, theta), rel=1e-10)


def test_more_iterations_are_no_worse():
    X, Y = problem(n=40)
    ends = [objective_of(job, job.run()) for job in (draw(X, Y, max_iterations=k) for k in (0, 1, 3, 10, 100))]
    assert all(later <= earlier for earlier, later in zip(ends, ends[1:], strict=False))
    assert ends[-1] < ends[0]


def test_no_iterations_keep_the_start():
    X, Y = problem(n=20)
    assert_array_equal(draw(X, Y, max_iterations=0, start=np.array([0.1, 0.2, -1.0])).run(), [0.1, 0.2, -1.0])
    job = draw(X, Y, max_iterations=0, restarts=5)
    assert objective_of(job, job.run()) <= objective_of(job, job.prior.centre)


def test_the_input_that_matters_gets_the_short_lengthscale():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 100.0, 1e-3]
    Y = np.sin(3.0 * X[:, :1]) + 0.05 * rng.normal(size=(120, 1))
    theta = draw(X, Y).run()
    relative = np.exp(theta[:3]) / input_std(X)
    assert relative[0] < 2.0 and relative[1:].min() > 5.0 * relative[0]
    assert 1e-4 < Covariance("matern32").noise(theta) < 0.05


def test_pure_noise_is_called_noise():
    X, Y = np.random.default_rng(0).normal(size=(2, 150, 1))
    theta = draw(X, Y).run()
    answer = Region(Covariance("matern32"), theta, X, Y).predict(X)
    assert np.abs(answer.mean).max() < 0.7
    assert 0.7 < np.median(answer.scale) / Y.std() < 1.3


def test_a_start_out_of_bounds_is_moved_inside():
    X, Y = problem(n=20)
    job = draw(X, Y, start=np.array([50.0, -50.0, 90.0]))
    theta = job.run()
    assert np.all(theta >= job.prior.lower) and np.all(theta <= job.prior.upper)


def test_hopeless_hyper_parameters_end_the_tuning_without_an_error(monkeypatch):
    def refuse(*args):
        raise np.linalg.LinAlgError("the covariance is not positive definite")

    X, Y = problem(n=20)
    job = draw(X, Y)
    monkeypatch.setattr(tuning, "log_likelihood", refuse)
    assert_array_equal(job.run(), job.prior.centre)


def test_a_line_search_steps_back_from_hopeless_hyper_parameters(monkeypatch):
    def refuse_half(covariance, theta, X, R):
        if theta[0] < 0.3:
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        return log_likelihood(covariance, theta, X, R)

    X, Y = problem(n=40)
    job = draw(X, Y)
    monkeypatch.setattr(tuning, "log_likelihood", refuse_half)
    theta = job.run()
    assert theta[0] >= 0.3
    assert objective_of(job, theta) <= objective_of(job, job.prior.centre)


# ---------------------------------------------------------------------------------------------- jobs


@pytest.mark.parametrize("options", [{}, {"restarts": 3}, {"random_start": True}, {"max_rows": 15}], ids=str)
def test_same_seed_same_floats(options):
    X, Y = problem(n=30, n_targets=2)
    first, second = draw(X, Y, **options), draw(X, Y, **options)
    theta = first.run()
    assert_array_equal(second.run(), theta)
    assert_array_equal(first.run(), theta)  # running is not a change
    assert_array_equal(deepcopy(first).run(), theta)


def test_another_seed_chooses_other_rows_and_starts():
    X, Y = problem(n=30)
    assert not np.array_equal(draw(X, Y, max_rows=10).X, draw(X, Y, max_rows=10, seed=1).X)
    random = [draw(X, Y, random_start=True, seed=seed).start for seed in (0, 1)]
    assert not np.array_equal(*random)


def test_rows_are_drawn_without_replacement_and_kept_in_order():
    X, Y = np.arange(30.0)[:, None], np.arange(30.0)[:, None] * 2
    job = draw(X, Y, max_rows=12)
    assert len(job.X) == 12 and np.all(np.diff(job.X[:, 0]) > 0)
    assert_array_equal(job.Y, 2 * job.X)
    # The prior is that of all rows, so that regions of the same rows agree.
    assert_array_equal(job.prior.centre, Covariance("matern32").prior(input_std(X)).centre)


@pytest.mark.parametrize("seed", range(5))
def test_restarts_are_never_worse(seed):
    X, Y = problem(n=15, noise=0.5, seed=seed)
    few, many = draw(X, Y, seed=seed), draw(X, Y, restarts=4, seed=seed)
    assert objective_of(many, many.run()) <= objective_of(few, few.run())


def test_restarts_find_what_one_start_misses():
    X, Y = problem(n=25)
    poor = Covariance("matern32").prior(input_std(X)).upper
    stuck, rescued = draw(X, Y, start=poor, max_iterations=2), draw(X, Y, start=poor, max_iterations=2, restarts=10)
    assert objective_of(rescued, rescued.run()) < objective_of(stuck, stuck.run()) - 1.0


def test_units_of_targets_do_not_move_a_bit():
    X, Y = problem(n=30, n_targets=2)
    assert_array_equal(draw(X, Y * [2.0**-20, 2.0**30]).run(), draw(X, Y).run())


def test_units_of_inputs_shift_the_lengthscales():
    # Not bit for bit: the logarithm of a lengthscale is itself rounded.
    X, Y = problem(n=30, n_targets=2)
    units = np.array([2.0**12, 2.0**-7])
    theta, moved = draw(X, Y, "rbf+linear").run(), draw(X * units, Y, "rbf+linear").run()
    assert_allclose(moved, theta + np.r_[np.log(units), 0.0, 0.0], rtol=0, atol=1e-6)
    level = draw(X + [1000.0, -3.0], Y, "rbf+linear").run()
    assert_allclose(level, theta, rtol=0, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 2), (1, 2)])
def test_next_to_no_rows_keep_the_start(shape):
    X, Y = np.full(shape, 3.0), np.full((shape[0], 1), 3.0)
    assert_array_equal(draw(X, Y, start=np.array([1.0, 2.0, -3.0])).run(), [1.0, 2.0, -3.0])
    job = draw(X, Y)
    assert_array_equal(job.run(), job.prior.centre)


def test_rows_without_a_target_say_nothing():
    X, Y = problem(n=40)
    gap = np.arange(40) % 3 == 0
    exact = draw(X[~gap], Y[~gap]).run()
    Y[gap] = np.nan
    job = draw(X, Y)
    theta = TuningJob(**{**vars(job), "prior": draw(X[~gap], Y[~gap]).prior}).run()
    assert_array_equal(theta, exact)
    Y[:] = np.nan
    assert_array_equal(draw(X, Y).run(), draw(X, Y).prior.centre)


def test_few_missing_targets_change_little():
    X, Y = problem(n=80, n_targets=2)
    whole = draw(X, Y).run()
    Y[[5, 17, 40], 1] = np.nan
    theta = draw(X, Y).run()
    assert_allclose(theta[0], whole[0], atol=0.3)
    assert np.isfinite(theta).all()


@pytest.mark.parametrize("text", ["matern12", "matern32", "rbf+linear"])
@pytest.mark.parametrize(
    "case",
    [
        "constant inputs",
        "no inputs",
        "constant target",
        "two rows",
        "duplicates",
        "more outputs than rows",
        "collinear outputs",
        "an outlier",
        "an output without targets",
    ],
)
def test_hard_cases_end_within_the_bounds(text, case):
    X, Y = problem(n=24, n_targets=2)
    if case == "constant inputs":
        X[:] = 3.0
    elif case == "no inputs":
        X = X[:, :0]
    elif case == "constant target":
        Y[:] = 1e6
    elif case == "two rows":
        X, Y = X[:2], Y[:2]
    elif case == "duplicates":
        X = np.repeat(X[:3], 8, axis=0)
    elif case == "more outputs than rows":
        X, Y = X[:3], np.random.default_rng(0).normal(size=(3, 9))
    elif case == "collinear outputs":
        Y = Y[:, :1] * [1.0, 2.0]
    elif case == "an outlier":
        Y[3] = 1e12
    else:
        Y[:, 1] = np.nan
    job = draw(X, Y, text, restarts=1)
    theta = job.run()
    assert theta.shape == (job.covariance.n_parameters(X.shape[1]),)
    assert np.all(theta >= job.prior.lower) and np.all(theta <= job.prior.upper)
    assert np.isfinite(Region(job.covariance, theta, X, Y).predict(X).mean).all()


def test_a_constant_input_keeps_its_prior():
    X, Y = problem(n=30)
    X[:, 1] = 7.0
    job = draw(X, Y)
    assert job.run()[1] == pytest.approx(job.prior.centre[1], abs=1e-6)


@pytest.mark.parametrize("name", ["rbf", "matern32+linear"])
def test_a_step_of_a_search_takes_the_objective_of_all(name):
    """Few rows in one compiled call: the same objective and gradient."""
    covariance, rng = Covariance.parse(name), np.random.default_rng(0)
    X, R = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    prior = covariance.prior(np.ones(3))
    theta = prior.centre + 0.3 * rng.normal(size=len(prior.centre))
    found = ResumableTuner(covariance, X, R, prior, theta, 5)._evaluate(theta)
    expected = tuning._objective(covariance, theta, X, R, prior)
    assert_allclose(found[0], expected[0], rtol=1e-12)
    assert_allclose(found[1], expected[1], rtol=1e-10, atol=1e-12)
