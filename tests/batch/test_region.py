"""Regions: the same answers as dense algebra on the same rows, after any history."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import invgamma, invwishart, multivariate_normal, t
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from momostream.batch.region import NU0, SCALE0, SHRINKAGE, Region
from momostream.distributions.mixtures import StudentT
from momostream.gp.covariance import KERNELS, Covariance
from momostream.gp.scaling import standardisation
from momostream.gp.tuning import TuningJob, log_likelihood
from momostream.kernels.covariance import MATERN32, gram
from tests import naive

PRIOR = NU0 * SCALE0
ARD = np.array([0.7, 1.6, 3.0])


def parameters(covariance, n_inputs=2, noise=0.05, linear=0.3):
    return np.log(np.r_[ARD[:n_inputs], noise, [linear] * covariance.linear])


def problem(n=30, n_inputs=2, n_targets=2, seed=0):
    """Smooth correlated targets, each with its own level and size."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs)) + 2.0
    wave = np.sin(X @ rng.normal(size=(n_inputs, n_targets)) + rng.normal(size=n_targets))
    noise = rng.normal(size=(n, n_targets)) @ rng.normal(size=(n_targets, n_targets))
    return X, (wave + 0.2 * noise) * 10.0 ** np.arange(n_targets) + np.arange(n_targets)


def make_region(X, Y, kernel="matern32", noise=0.05, **options):
    covariance = Covariance.parse(kernel)
    return Region(covariance, parameters(covariance, X.shape[1], noise), X, Y, **options)


def as_law(posterior):
    return StudentT(posterior.mean, posterior.S, posterior.dof, posterior.variance)


def same_bits(a, b):
    for field in ("mean", "variance", "S", "dof"):
        assert_array_equal(getattr(a, field), getattr(b, field))


def naive_arguments(region):
    """What the dense formulas need to know: the rows and hyper-parameters of a region, not its cache."""
    covariance, theta = region.covariance, region.theta
    S = (region.X - region.centre) / covariance.lengthscales(theta)
    return covariance.code, covariance.linear_variance(theta), covariance.noise(theta), S, region.R


def scaled(region, x):
    return (x - region.centre) / region.covariance.lengthscales(region.theta)


# ---------------------------------------------------------------------------------------------- reference values


def reference(region, kernel):
    """The same model in scikit-learn, on centred coordinates in units of the lengthscales."""
    covariance, theta = region.covariance, region.theta
    signal = float(region.moments()[0][0, 0])
    shape = RBF() if kernel == "rbf" else Matern(nu={"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[kernel])
    if covariance.linear:
        shape = shape + ConstantKernel(covariance.linear_variance(theta)) * DotProduct(0.0, sigma_0_bounds="fixed")
    whole = ConstantKernel(signal) * shape + WhiteKernel(signal * covariance.noise(theta))
    regressor = GaussianProcessRegressor(whole, alpha=0.0, optimizer=None)
    return regressor.fit(scaled(region, region.X), region.Y[:, 0]), signal


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("linear", ["", "+linear"])
def test_a_gaussian_region_is_the_gaussian_process_of_scikit_learn(kernel, linear):
    X, Y = problem(n_inputs=3, n_targets=1)
    region = make_region(X, Y, kernel + linear, gaussian=True, offset=[0.0], scale=[1.0])
    regressor, signal = reference(region, kernel)
    new = np.random.default_rng(1).normal(size=(7, 3)) + 2.0
    mean, std = regressor.predict(scaled(region, new), return_std=True)
    _, cov = regressor.predict(scaled(region, new), return_cov=True)
    answer = region.predict(new)
    assert answer.dof == np.inf
    assert_allclose(answer.mean[:, 0], mean, rtol=1e-9)
    assert_allclose(answer.scale[:, 0], std, rtol=1e-9)
    assert_allclose(signal * region.posterior_covariance(new), cov, rtol=1e-8, atol=1e-12)
    evidence = regressor.log_marginal_likelihood()
    assert region.log_evidence() == pytest.approx(evidence, rel=1e-10)
    value, _ = log_likelihood(region.covariance, region.theta, X - region.centre, region.R, np.array([signal]))
    assert value == pytest.approx(evidence, rel=1e-10)


def test_gaussian_outputs_do_not_know_each_other():
    X, Y = problem(n_targets=3)
    together = make_region(X, Y, gaussian=True).predict(X[:5] + 0.1)
    for p in range(3):
        alone = make_region(X, Y[:, [p]], gaussian=True).predict(X[:5] + 0.1)
        assert_allclose(together.mean[:, p], alone.mean[:, 0], rtol=1e-10)
        assert_allclose(together.scale[:, p], alone.scale[:, 0], rtol=1e-10)
    assert_array_equal(together.S, np.diag(np.diag(together.S)))


# ---------------------------------------------------------------------------------------------- the Student-t
# distribution


@pytest.mark.parametrize("kernel", ["matern12", "rbf+linear"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_the_law_of_a_new_row_is_that_of_dense_algebra(kernel, discount, n_targets):
    X, Y = problem(n_targets=n_targets)
    region = make_region(X, Y, kernel, discount=discount)
    new = X[:3] + 0.3
    answer = region.predict(new)
    for i, x in enumerate(new):
        mean, scale, dof = naive.matrix_t_predict(
            *naive_arguments(region), scaled(region, x), nu0=NU0, prior=PRIOR, discount=discount
        )
        assert_allclose(answer.mean[i], mean * region.scale + region.offset, rtol=1e-9)
        # Exact but for correlations, which are shrunk a little: exactly collinear outputs keep a density.
        shrunk = np.where(np.eye(n_targets, dtype=bool), scale, (1 - SHRINKAGE) * scale)
        size = np.sqrt(np.outer(np.diag(scale), np.diag(scale)))
        ours = answer.variance[i] * answer.S / np.outer(region.scale, region.scale)
        assert_allclose(ours / size, shrunk / size, rtol=0, atol=1e-9)
        assert answer.dof == pytest.approx(dof, rel=1e-12)


def test_one_output_is_the_integral_over_its_variance():
    X, Y = problem(n=6, n_targets=1)
    region = make_region(X[:5], Y[:5])
    K = naive.gram(*naive_arguments(region)[:4])
    prior = invgamma(NU0 / 2, scale=PRIOR / 2)

    def evidence_of(variance):
        return multivariate_normal.pdf(region.R[:, 0], cov=variance * K) * prior.pdf(variance)

    def points(function):
        return quad(function, 0, 1)[0] + quad(function, 1, np.inf)[0]

    evidence = points(evidence_of)
    assert region.log_evidence() == pytest.approx(np.log(evidence) - 5 * np.log(region.scale[0]), abs=1e-7)
    answer = region.predict(X[5:])
    mean, c = (answer.mean[0, 0] - region.offset[0]) / region.scale[0], answer.variance[0]
    for r in (-2.0, 0.1, 3.0):
        density = points(lambda v, r=r: evidence_of(v) * np.exp(-((r - mean) ** 2) / (2 * c * v)) / np.sqrt(c * v))
        density /= evidence * np.sqrt(2 * np.pi) * region.scale[0]
        ours = as_law(answer).log_pdf(np.array([[r * region.scale[0] + region.offset[0]]]))
        assert_allclose(ours, np.log(density), atol=1e-7)


def test_several_outputs_are_the_average_over_their_covariance():
    n, P = 12, 2
    X, Y = problem(n=n, n_targets=P)
    region = make_region(X, Y, offset=np.zeros(P), scale=np.ones(P))
    K = naive.gram(*naive_arguments(region)[:4])
    scatter = PRIOR * np.eye(P) + Y.T @ np.linalg.solve(K, Y)
    draws = invwishart(NU0 + P - 1 + n, scatter).rvs(40_000, random_state=0)
    answer = region.predict(X[:1] + 0.4)
    distribution = as_law(answer)
    for step in (0.0, 1.5, -2.5):
        y = answer.mean + step * answer.scale * [1.0, -0.5]
        away = (y - answer.mean)[0]
        cov = answer.variance[0] * draws
        distance = np.einsum("i,nij,j->n", away, np.linalg.inv(cov), away)
        densities = np.exp(-0.5 * distance) / (2 * np.pi * np.sqrt(np.linalg.det(cov)))
        error = densities.std() / np.sqrt(len(densities))
        assert abs(np.exp(distribution.log_pdf(y)[0]) - densities.mean()) < 4 * error


@pytest.mark.parametrize("kernel", ["matern32", "matern52+linear"])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_evidence_is_the_sum_of_one_step_ahead_densities(kernel, n_targets):
    X, Y = problem(n=25, n_targets=n_targets)
    offset, scale = standardisation(Y)
    batch = make_region(X, Y, kernel)
    stream = make_region(X[:0], Y[:0], kernel, offset=offset, scale=scale)
    stream.centre = batch.centre
    total = 0.0
    for x, y in zip(X, Y, strict=True):
        total += as_law(stream.predict(x[None])).log_pdf(y[None])[0]
        stream.append(x, y)
    K = naive.gram(*naive_arguments(batch)[:4])
    closed = naive.matrix_t_log_density(K, batch.R, nu=NU0 + n_targets - 1, prior=PRIOR)
    closed -= len(X) * np.log(scale).sum()
    assert batch.log_evidence() == pytest.approx(closed, rel=1e-10)
    assert stream.log_evidence() == pytest.approx(closed, rel=1e-9)
    # The density of each step is that of slightly shrunk correlations.
    assert total == pytest.approx(closed, abs=1e-9 if n_targets == 1 else 0.02)


def test_evidence_of_no_rows_is_zero():
    X, Y = problem(n=0)
    assert make_region(X, Y).log_evidence() == 0.0


# ---------------------------------------------------------------------------------------------- random histories

HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9)),
        st.tuples(st.just("drop"), st.just(0)),
        st.tuples(st.just("evict"), st.just(0)),
        st.tuples(st.just("predict"), st.just(0)),
    ),
    max_size=24,
)
# Ten rows to draw from, so that the same one often comes twice.
POOL = problem(n=10, n_targets=2, seed=3)
PROBE = np.array([[1.7, 2.4]])


def replay(history, n_first, kernel="matern32", **options):
    """Rows by hand next to a region that lives through the history."""
    X, Y = POOL
    region = make_region(X[:n_first], Y[:n_first], kernel, noise=1e-4, offset=[0.5, 0.0], scale=[1.0, 8.0], **options)
    rows = list(range(n_first))
    for verb, i in history:
        if verb == "append":
            region.append(X[i], Y[i])
            rows.append(i)
        elif verb == "drop" and rows:
            region.drop_oldest()
            del rows[0]
        elif verb == "evict":
            region.evict()
        elif verb == "predict":
            region.predict(PROBE)
    return region, rows


@settings(max_examples=60)
@given(HISTORIES, st.integers(0, 6), st.sampled_from(["rbf", "matern32+linear"]), st.sampled_from([1.0, 0.9]))
def test_any_history_predicts_like_dense_algebra_on_the_same_rows(history, n_first, kernel, discount):
    region, rows = replay(history, n_first, kernel, discount=discount)
    X, Y = POOL
    assert_array_equal(region.X, X[rows])
    assert_array_equal(region.Y, Y[rows])
    assert_allclose(region.R, (Y[rows] - region.offset) / region.scale, rtol=1e-15)
    mean, scale, dof = naive.matrix_t_predict(
        *naive_arguments(region), scaled(region, PROBE[0]), nu0=NU0, prior=PRIOR, discount=discount
    )
    answer = region.predict(PROBE)
    size = np.abs(region.R).max(initial=1.0)
    assert_allclose((answer.mean[0] - region.offset) / region.scale, mean, rtol=1e-8, atol=1e-8 * size)
    assert_allclose(answer.scale[0] / region.scale, np.sqrt(np.diag(scale)), rtol=1e-8)
    assert answer.dof == pytest.approx(dof, rel=1e-12)


@settings(max_examples=60)
@given(HISTORIES, st.integers(0, 6), st.booleans())
def test_eviction_leaves_no_trace(history, n_first, gaussian):
    # Deletions rotate the factor, and a rebuild then differs in the last bits.
    history = [step for step in history if step[0] != "drop"]
    region, _ = replay(history, n_first, gaussian=gaussian)
    before, evidence, own = region.predict(PROBE), region.log_evidence(), region.held_out()
    region.evict()
    assert region.nbytes == 0
    same_bits(region.predict(PROBE), before)
    assert region.nbytes > 0 or region.n_rows == 0
    assert region.log_evidence() == evidence
    assert_array_equal(region.held_out().scale, own.scale)


@settings(max_examples=40)
@given(HISTORIES, st.integers(0, 6))
def test_eviction_after_deletions_moves_last_bits_only(history, n_first):
    region, _ = replay([*history, ("append", 2), ("drop", 0)], n_first)
    before = region.predict(PROBE)
    region.evict()
    after = region.predict(PROBE)
    assert_allclose(after.mean, before.mean, rtol=1e-10, atol=1e-10)
    assert_allclose(after.scale, before.scale, rtol=1e-10)


@pytest.mark.parametrize("kernel", ["matern32", "rbf+linear"])
@pytest.mark.parametrize("n_first", [0, 1, 20])
@pytest.mark.parametrize("gap", [False, True])
def test_an_appended_factor_is_rebuilt_bit_for_bit(kernel, n_first, gap):
    X, Y = problem(n=70, n_targets=3)
    if gap:
        Y[40:50, 1] = Y[5:8, 0] = np.nan
    region = make_region(X[:n_first], Y[:n_first], kernel, offset=np.zeros(3), scale=np.ones(3))
    for x, y in zip(X[n_first:], Y[n_first:], strict=True):
        region.append(x, y)
    assert region.n_blocked == n_first < region.n_rows
    grown, before = region._cache(), region.predict(X[:9] + 0.1)
    region.evict()
    rebuilt = region._cache()
    assert rebuilt is not grown
    assert_array_equal(rebuilt.L[: 70 * 71 // 2], grown.L[: 70 * 71 // 2])
    assert_array_equal(rebuilt.Z[:70], grown.Z[:70])
    same_bits(region.predict(X[:9] + 0.1), before)
    whole = make_region(X, Y, kernel, offset=np.zeros(3), scale=np.ones(3))
    whole.centre = region.centre
    if not gap:
        assert_allclose(whole.predict(X[:9] + 0.1).mean, before.mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("evict", [False, True])
def test_prediction_changes_nothing(evict):
    X, Y = problem(n=40)
    silent, asked = make_region(X[:30], Y[:30]), make_region(X[:30], Y[:30])
    for x, y in zip(X[30:], Y[30:], strict=True):
        for region in (silent, asked):
            if evict:
                region.evict()
        first = asked.predict(X[:4] + 0.2)
        same_bits(asked.predict(X[:4] + 0.2), first)
        asked.predict(x[None])
        asked.posterior_covariance(X[:3])
        asked.held_out()
        asked.log_evidence()
        asked.append(x, y)
        silent.append(x, y)
    same_bits(silent.predict(X[:4] + 0.2), asked.predict(X[:4] + 0.2))


def test_prediction_in_chunks(monkeypatch):
    X, Y = problem(n=20)
    region = make_region(X, Y)
    whole = region.predict(X + 0.1)
    monkeypatch.setattr("momostream.batch.region.CHUNK", 60)
    parts = region.predict(X + 0.1)
    assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    assert_allclose(parts.variance, whole.variance, rtol=1e-10)


def test_a_window_slides_for_long():
    X, Y = problem(n=600)
    region = make_region(X[:40], Y[:40], "rbf", noise=1e-4)
    for x, y in zip(X[40:], Y[40:], strict=True):
        region.append(x, y)
        region.drop_oldest()
    assert region.n_rows == 40 and region.n_blocked == 0
    assert len(region._X) < 100  # room is used again
    fresh = make_region(X[-40:], Y[-40:], "rbf", noise=1e-4, offset=region.offset, scale=region.scale)
    assert_allclose(region.predict(PROBE).mean, fresh.predict(PROBE).mean, rtol=1e-8)
    assert_allclose(region.predict(PROBE).scale, fresh.predict(PROBE).scale, rtol=1e-8)


def test_the_rows_of_the_caller_are_left_alone():
    X, Y = problem(n=8)
    before = X.copy(), Y.copy()
    region = make_region(X, Y)
    region.drop_oldest()
    region.append(X[0] + 1.0, Y[0] + 1.0)
    assert_array_equal(X, before[0])
    assert_array_equal(Y, before[1])


def test_read_only_rows_are_enough():
    X, Y = problem(n=8)
    X.flags.writeable = Y.flags.writeable = False
    region = make_region(X, Y)
    region.drop_oldest()
    region.append(X[0], Y[0])
    assert np.isfinite(region.predict(X).mean).all()


@pytest.mark.parametrize(
    ("x", "y"),
    [([np.inf, 0.0], [0.0, 0.0]), ([np.nan, 0.0], [0.0, 0.0]), ([0.0, 0.0], [np.inf, 0.0]), ([0.0], [0.0] * 3)],
)
def test_a_failed_append_leaves_the_region_as_it_was(x, y):
    X, Y = problem(n=12)
    region, untouched = make_region(X, Y), make_region(X, Y)
    before = region.predict(X + 0.1)
    with pytest.raises(ValueError):
        region.append(np.array(x), np.array(y))
    assert region.n_rows == 12
    same_bits(region.predict(X + 0.1), before)
    for each in (region, untouched):
        each.append(X[0] + 0.5, Y[0])
    same_bits(region.predict(X + 0.1), untouched.predict(X + 0.1))


def test_an_empty_region_has_nothing_to_drop():
    X, Y = problem(n=1)
    region = make_region(X, Y)
    region.drop_oldest()
    with pytest.raises(IndexError, match="no rows"):
        region.drop_oldest()
    assert region.n_rows == 0
    assert np.isfinite(region.predict(X).mean).all()


def test_rows_that_overflow_are_refused_in_words():
    X, Y = problem(n=5)
    X[2, 0] = 1e308
    region = make_region(X[:2], Y[:2])
    region._X, region.n_rows = X, 5
    region._Y, region._targets = Y, np.zeros_like(Y)
    region.theta = np.log([1e-5, 1.0, 0.1])
    region.evict()
    with np.errstate(over="ignore"), pytest.raises(np.linalg.LinAlgError, match="not finite"):
        region.predict(X[:1])


def test_new_hyper_parameters_take_effect():
    X, Y = problem(n=20)
    region = make_region(X, Y)
    region.predict(X)
    theta = region.theta + 0.4
    region.condition(theta)
    same_bits(region.predict(X + 0.1), Region(region.covariance, theta, X, Y).predict(X + 0.1))
    theta += 100.0
    assert np.all(region.theta < 10.0)  # a copy, not the caller's array


# ---------------------------------------------------------------------------------------------- held-out answers


def refit(region, kept, asked):
    """Brute force: a region of the other rows, with the same hyper-parameters, is asked."""
    options = {"gaussian": region.gaussian, "offset": region.offset, "scale": region.scale}
    other = Region(region.covariance, region.theta, region.X[kept], region.Y[kept], **options)
    # The linear term is about the middle of all rows, as it was.
    other.centre = region.centre
    other.evict()
    return other.predict(region.X[asked])


BLOCKS = {
    "one by one": None,
    "equal": np.repeat(np.arange(5), 4),
    "unequal": np.array([7] * 2 + [-1] * 7 + [7] * 4 + [99] + [2] * 6),
}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("kernel", ["matern32", "matern52+linear"])
def test_held_out_is_refitting_without_these_rows(blocks, gaussian, gap, kernel):
    X, Y = problem(n=20, n_targets=3)
    if gap:
        Y[4:12, 1] = Y[[2, 9, 18], 2] = np.nan
    region = make_region(X, Y, kernel, gaussian=gaussian)
    answer = region.held_out(blocks)
    names = np.arange(20) if blocks is None else blocks
    for name in np.unique(names):
        inside = names == name
        other = refit(region, ~inside, inside)
        seen = ~np.isnan(Y[inside])
        assert_allclose(answer.mean[inside][seen], other.mean[seen], rtol=1e-8)
        assert_allclose(answer.scale[inside][seen], other.scale[seen], rtol=1e-8)
    assert_array_equal(np.isnan(answer.mean), np.isnan(Y))
    assert np.isfinite(answer.scale).all() and np.all(answer.scale > 0)


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_held_out_with_the_scatter_of_all_rows(blocks):
    X, Y = problem(n=20)
    region = make_region(X, Y)
    answer = region.held_out(blocks, own_scatter=True)
    assert_array_equal(answer.mean, region.held_out(blocks).mean)
    inverse = np.linalg.inv(naive.gram(*naive_arguments(region)[:4]))
    names = np.arange(20) if blocks is None else blocks
    for name in np.unique(names):
        inside = np.flatnonzero(names == name)
        spread = np.diag(np.linalg.inv(inverse[np.ix_(inside, inside)]))
        expected = np.sqrt(np.outer(spread, np.diag(region.moments()[0]))) * region.scale
        assert_allclose(answer.scale[inside], expected, rtol=1e-9)


def test_held_out_with_a_discount_keeps_the_means():
    X, Y = problem(n=20)
    blocks = BLOCKS["equal"]
    plain, forgetting = make_region(X, Y), make_region(X, Y, discount=0.9)
    for each in (None, blocks):
        assert_array_equal(forgetting.held_out(each).mean, plain.held_out(each).mean)
        assert np.all(forgetting.held_out(each).scale > 0)


def test_all_rows_in_one_block_leave_the_prior():
    X, Y = problem(n=15)
    region = make_region(X, Y)
    answer = region.held_out(np.zeros(15, dtype=np.intp))
    assert_allclose(answer.mean, np.broadcast_to(region.offset, Y.shape), rtol=1e-9, atol=1e-9)
    assert_allclose(answer.scale, np.sqrt((1 + 0.05) * SCALE0) * np.broadcast_to(region.scale, Y.shape), rtol=1e-6)


def test_held_out_rows_are_covered():
    # Targets drawn from the model itself: the scores of held-out rows follow the distribution that was promised.
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 12, size=(400, 1))
    K = np.empty((400, 400))
    gram(MATERN32, 0.0, 0.1, X / 0.7, K)
    Y = np.linalg.cholesky(K) @ rng.normal(size=(400, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    answer = make_region(X, Y, noise=0.1).held_out()
    inside = np.abs(Y - answer.mean) < t.ppf(0.95, answer.dof) * answer.scale
    assert np.all(np.abs(inside.mean(axis=0) - 0.9) < 0.04)


# ---------------------------------------------------------------------------------------------- missing targets


def with_gaps(n=60, seed=0):
    X, Y = problem(n=n, n_targets=3, seed=seed)
    Y[10:25, 1] = Y[20:40:3, 2] = np.nan
    return X, Y


@pytest.mark.parametrize("kernel", ["matern32", "rbf"])
@pytest.mark.parametrize("gaussian", [False, True])
def test_means_and_variances_come_from_the_observed_rows_alone(kernel, gaussian):
    X, Y = with_gaps()
    region = make_region(X, Y, kernel, gaussian=gaussian)
    answer = region.predict(X + 0.05)
    for p in range(3):
        seen = ~np.isnan(Y[:, p])
        alone = make_region(X[seen], Y[seen][:, [p]], kernel, gaussian=gaussian)
        assert_allclose(answer.mean[:, p], alone.predict(X + 0.05).mean[:, 0], rtol=1e-8, atol=1e-8)
        # The variance of the output, without that of the row.
        assert region.moments()[0][p, p] == pytest.approx(alone.moments()[0][0, 0], rel=1e-8)


def test_filled_values_are_conditional_means_and_pull_at_nothing():
    X, Y = with_gaps()
    region = make_region(X, Y)
    K = naive.gram(*naive_arguments(region)[:4])
    pull = np.linalg.solve(K, region.R)
    assert np.abs(pull[np.isnan(Y)]).max() < 1e-9 < np.abs(pull[~np.isnan(Y)]).min()
    assert_array_equal(np.isnan(region.Y), np.isnan(Y))


def test_missing_targets_of_appended_rows_are_filled_by_all_that_is_known():
    X, Y = with_gaps()
    whole = make_region(X, Y)
    grown = make_region(X[:5], Y[:5], offset=whole.offset, scale=whole.scale)
    for x, y in zip(X[5:], Y[5:], strict=True):
        grown.append(x, y)
    assert_allclose(grown.R, whole.R, rtol=1e-8, atol=1e-9)
    first, second = grown.predict(X + 0.05), whole.predict(X + 0.05)
    assert_allclose(first.mean, second.mean, rtol=1e-8, atol=1e-9)
    assert_allclose(first.scale, second.scale, rtol=1e-8)
    before = grown.predict(X).mean
    grown.evict()
    assert_array_equal(grown.predict(X).mean, before)


def test_gaps_that_are_filled_later_do_not_linger():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(-1, 0, (40, 1)), rng.uniform(0.5, 1.5, (60, 1))])
    Y = np.concatenate([np.zeros((40, 2)), np.column_stack([np.zeros(30), np.full(30, np.nan)]), np.full((30, 2), 5.0)])
    region = make_region(X[:40], Y[:40] + 1e-3 * rng.normal(size=(40, 2)), scale=np.ones(2))
    for x, y in zip(X[40:], Y[40:], strict=True):
        region.append(x, y)
    assert_allclose(region.predict(np.array([[1.0]])).mean[0, 1], 5.0, atol=0.1)


def test_a_floor_bounds_what_is_predicted():
    X = np.linspace(0.0, 1.0, 60)[:, None]
    Y = np.column_stack([np.full(60, 3.0), np.sin(5 * X[:, 0])])
    for gaussian in (False, True):
        region = make_region(X, Y, gaussian=gaussian, floor=np.array([0.2, 0.0]))
        bare = make_region(X, Y, gaussian=gaussian)
        assert (region.predict(X).scale[:, 0] >= 0.2 * (1 - 1e-9)).all()
        assert_allclose(region.predict(X).scale[:, 1], bare.predict(X).scale[:, 1])
        assert (bare.predict(X).scale[:, 0] < 0.2).all()


@pytest.mark.parametrize("way", ["at once", "row by row"])
def test_filled_values_do_not_count_as_data(way):
    # One output is seen in every tenth row only. What is filled in fits the model perfectly, and counting it as data
    # made the deviation several times too small.
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(0, 50, size=(300, 1)), rng.normal(size=(300, 2))
    Y[np.arange(300) % 10 > 0, 1] = np.nan
    options = {"offset": np.zeros(2), "scale": np.ones(2)}
    first = 300 if way == "at once" else 0
    region = make_region(X[:first], Y[:first], noise=5.0, **options)
    for x, y in zip(X[first:], Y[first:], strict=True):
        region.append(x, y)
    S, dof = region.moments()
    assert 0.5 < S[1, 1] / S[0, 0] < 2.0
    assert dof == pytest.approx(NU0 + (300 + 30) / 2)


def test_correlation_comes_from_pairs_only():
    # The outputs correlate where both are seen. Rows with one of them, however wild, must not change that.
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(0, 500, size=(300, 1)), rng.normal(size=(300, 2))
    Y[:100, 1] = 0.9 * Y[:100, 0] + np.sqrt(1 - 0.9**2) * Y[:100, 1]
    Y[100:200, 1] = np.nan
    Y[200:, 0] = np.nan
    Y[100:] *= 3.0

    def correlation(Y):
        S = make_region(X[: len(Y)], Y, noise=1.0).moments()[0]
        return S[0, 1] / np.sqrt(S[0, 0] * S[1, 1])

    assert correlation(Y[:100]) == pytest.approx(0.9, abs=0.05)
    assert correlation(Y) == pytest.approx(correlation(Y[:100]), abs=0.05)


def test_outputs_that_never_meet_are_uncorrelated():
    X, Y = problem(n=40)
    Y[:20, 0] = Y[20:, 1] = np.nan
    S, _ = make_region(X, Y).moments()
    assert abs(S[0, 1]) < 1e-12 * np.sqrt(S[0, 0] * S[1, 1])


@pytest.mark.parametrize("gaussian", [False, True])
def test_an_output_without_any_target(gaussian):
    X, Y = problem(n=20)
    Y[:, 1] = np.nan
    region = make_region(X, Y, gaussian=gaussian)
    answer, own = region.predict(X), region.held_out()
    assert_array_equal(answer.mean[:, 1], 0.0)
    assert np.isfinite(answer.scale).all() and np.isfinite(as_law(answer).log_pdf(np.zeros((20, 2)))).all()
    assert np.isnan(own.mean[:, 1]).all() and np.isfinite(own.mean[:, 0]).all()
    assert np.isfinite(region.log_evidence())


def coverage_in_a_gap(own_factor):
    """Share of the values of one output inside the 90 % intervals where 150 of its 400 values were lost."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, size=(400, 1)), axis=0)
    wave = np.sin(1.5 * X[:, 0]) + 0.5 * np.cos(4.0 * X[:, 0])
    Y = np.stack([wave, 0.5 * wave], axis=1) + 0.1 * rng.normal(size=(400, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    gap = slice(125, 275)
    truth = Y[gap, 1].copy()
    Y[gap, 1] = np.nan
    covariance = Covariance("matern32")
    job = {"max_rows": 400, "max_iterations": 100, "restarts": 0, "random_start": False}
    theta = TuningJob.draw(covariance, X, Y, None, seed=np.random.SeedSequence(0), **job).run()
    if own_factor:
        seen = ~np.isnan(Y[:, 1])
        X_seen, Y_seen = X[seen], Y[seen][:, 1:]
        answer = Region(covariance, theta, X_seen, Y_seen).predict(X[gap])
    else:
        answer = Region(covariance, theta, X, Y).predict(X[gap])
    inside = np.abs(truth - answer.mean[:, -1]) < t.ppf(0.95, answer.dof) * answer.scale[:, -1]
    return inside.mean()


def test_intervals_inside_a_gap_hold_with_a_factor_of_its_own():
    assert coverage_in_a_gap(own_factor=True) >= 0.8


def test_intervals_inside_a_gap_hold_with_a_shared_factor():
    assert coverage_in_a_gap(own_factor=False) >= 0.8


# ---------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("kernel", ["matern12", "rbf+linear"])
@pytest.mark.parametrize("gaussian", [False, True])
def test_units_do_not_matter(kernel, gaussian):
    X, Y = problem(n=20, n_targets=3)
    a, b = np.array([1000.0, -0.03]), np.array([50.0, -7.0])
    c, d = np.array([1e-4, -20.0, 3.0]), np.array([5.0, 0.0, -1000.0])
    covariance = Covariance.parse(kernel)
    theta = parameters(covariance)
    moved = theta.copy()
    moved[:2] += np.log(np.abs(a))
    before = Region(covariance, theta, X, Y, gaussian=gaussian)
    after = Region(covariance, moved, a * X + b, c * Y + d, gaussian=gaussian)
    x = X[:6] + 0.2
    first, second = before.predict(x), after.predict(a * x + b)
    assert_allclose(second.mean, c * first.mean + d, rtol=1e-8)
    assert_allclose(second.variance, first.variance, rtol=1e-8)
    assert_allclose(second.S, first.S * np.outer(c, c), rtol=1e-7, atol=0)
    assert second.dof == first.dof
    shift = -20 * np.log(np.abs(c)).sum()
    assert after.log_evidence() - before.log_evidence() == pytest.approx(shift, abs=1e-7)
    for blocks in (None, BLOCKS["equal"]):
        assert_allclose(after.held_out(blocks).mean, c * before.held_out(blocks).mean + d, rtol=1e-7)
        assert_allclose(after.held_out(blocks).scale, np.abs(c) * before.held_out(blocks).scale, rtol=1e-7)


# ---------------------------------------------------------------------------------------------- hard cases


def hard_cases():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    yield "collinear outputs", X, np.hstack([y, 2 * y])
    yield "opposite outputs and their sum", X, np.hstack([y, -y, 0 * y])
    yield "constant target", X, np.hstack([y, np.full((40, 1), 7.0)])
    yield "nothing but constants", X, np.full((40, 3), -3e5)
    yield "nothing but zeros", X, np.zeros((40, 2))
    yield "more outputs than rows", X[:5], rng.normal(size=(5, 12))
    yield "one row", X[:1], y[:1]
    yield "one row, many outputs", X[:1], rng.normal(size=(1, 6))
    yield "no row", X[:0], np.empty((0, 2))
    yield "one covariate", X[:, :1], np.hstack([y, y**2])
    yield "no covariate", X[:, :0], np.hstack([y, y**2])
    yield "duplicates", np.repeat(X[:4], 10, axis=0), np.hstack([y, y**2])
    yield "contradicting duplicates only", np.ones((40, 2)), np.hstack([y, y**2])
    yield "constant covariate", np.hstack([X[:, :1], np.full((40, 1), 3.0)]), y
    yield "huge and tiny targets", X, np.hstack([y * 1e150, y * 1e-150])
    yield "one outlier", X, np.vstack([y[1:], [[1e9]]])
    gap = np.hstack([y, y])
    gap[5:, 1] = np.nan
    yield "collinear and mostly missing", X, gap


@pytest.mark.parametrize("options", [{}, {"gaussian": True}, {"discount": 0.97}], ids=str)
@pytest.mark.parametrize(("kernel", "noise"), [("rbf", 1e-12), ("matern32+linear", 0.1)])
@pytest.mark.parametrize("case", list(hard_cases()), ids=lambda case: case[0])
def test_hard_cases_have_finite_densities(case, kernel, noise, options):
    _, X, Y = case
    region = make_region(X, Y, kernel, noise, **options)
    for _ in range(2):
        answer = region.predict(np.vstack([X[:5], X[:1] + 3.0, np.zeros((1, X.shape[1]))]))
        assert np.isfinite(answer.mean).all() and np.isfinite(answer.S).all()
        assert np.all(answer.variance > 0) and np.all(np.linalg.eigvalsh(correlation_of(answer.S)) > 0)
        distribution = as_law(answer)
        for asked in (answer.mean, answer.mean + 3 * answer.scale, answer.mean + [1.0] * Y.shape[1]):
            assert np.isfinite(distribution.log_pdf(asked)).all()
        assert np.isfinite(region.log_evidence())
        own = region.held_out()
        assert_array_equal(np.isnan(own.mean), np.isnan(region.Y))
        assert np.all(own.scale > 0) and np.isfinite(own.scale).all()
        region.append(np.full(X.shape[1], 0.5), np.nan_to_num(answer.mean[-1]))


def correlation_of(S):
    size = np.sqrt(np.diag(S))
    return S / np.outer(size, size)


def jump_after_quiet(discount, kind, noise):
    """Joint negative log density of a jump by a few units after 150 rows within a thousandth of one."""
    rng = np.random.default_rng(0)
    P, n = 6, 250
    clock, Y = np.arange(n + 1.0)[:, None], rng.normal(size=(n + 1, P))
    if kind == "quiet from the start":
        Y *= 1e-3
    elif kind == "quiet, collinear":
        Y = 1e-3 * Y[:, :1] * np.arange(1.0, P + 1.0)
    elif kind == "constant":
        Y[:] = 5.0
    else:
        Y[100:] *= 1e-3
    Y[n] = 3.0 * rng.normal(size=P)
    covariance = Covariance("matern32")
    region = Region(covariance, np.log([10.0, noise]), clock[:100], Y[:100], discount=discount)
    for x, y in zip(clock[100:n], Y[100:n], strict=True):
        region.append(x, y)
    nats = -as_law(region.predict(clock[n:])).log_pdf(Y[n:])[0]
    region.append(clock[n], Y[n])
    after = as_law(region.predict(clock[n:] + 1.0))
    assert np.isfinite(after.mean).all() and np.isfinite(after.log_pdf(Y[n:])).all()
    return nats


@pytest.mark.parametrize("noise", [0.1, 1e-2, 1e-4])
def test_a_jump_after_a_quiet_stretch_costs_little(noise):
    assert jump_after_quiet(0.97, "lively, then quiet", noise) < 100.0
    # Three thousand deviations in all six outputs at once, without ever having seen one.
    surprise = jump_after_quiet(0.97, "quiet from the start", noise)
    assert surprise < 300.0
    assert surprise < 0.25 * jump_after_quiet(1.0, "quiet from the start", noise)


@pytest.mark.parametrize("kind", ["quiet, collinear", "constant"])
def test_a_jump_that_should_be_impossible_has_a_density(kind):
    assert jump_after_quiet(0.97, kind, 1e-2) < 800.0


def test_a_copy_lives_on_its_own():
    X, Y = problem(n=10)
    region = make_region(X, Y)
    before = region.predict(X)
    deepcopy(region).append(X[0], Y[0])
    same_bits(region.predict(X), before)


@pytest.mark.parametrize("gap", [False, True])
def test_means_alone_are_those_of_dense_algebra_after_any_history(gap):
    X, Y = problem(40)
    if gap:
        Y[3, 0] = Y[36, 1] = np.nan
    region, new = make_region(X[:30], Y[:30], "matern32+linear"), problem(seed=1)[0][:5]

    def check():
        kind, linear, noise, S, R = naive_arguments(region)
        dense = [naive.predict(kind, linear, noise, S, R, scaled(region, x))[0] for x in new]
        assert_allclose(region.means(new), np.array(dense) * region.scale + region.offset, rtol=1e-9)
        assert_allclose(region.means(new), region.predict(new).mean, rtol=1e-9)

    check()
    for x, y in zip(X[30:], Y[30:], strict=True):
        region.append(x, y)
    check()
    region.drop_oldest()
    check()
    held = region.means(new)
    region.evict()
    assert region.nbytes == 0
    region.predict(new)
    before = region.nbytes
    assert_allclose(region.means(new), held, rtol=1e-9)
    assert region.nbytes == before + 8 * region.n_rows * region.n_targets
    region.condition(region.theta + 0.1)
    check()


def test_means_of_a_region_without_rows_are_its_offset():
    region = make_region(np.empty((0, 2)), np.empty((0, 2)), offset=[1.0, 2.0], scale=[1.0, 1.0])
    assert_array_equal(region.means(np.zeros((3, 2))), [[1.0, 2.0]] * 3)
