"""Marginals against scipy, integration and their own samples: quantiles, tails and scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad
from scipy.special import beta

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.marginals import Marginals
from tests.distributions.drawn import random_correlation, random_marginals


@st.composite
def mixtures(draw):
    """One row, one target, any mixture."""
    n = draw(st.integers(1, 6))
    spread = 10.0 ** draw(st.integers(-3, 7))
    numbers = st.floats(-1.0, 1.0)
    weights = np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n))) ** 4
    weights[draw(st.integers(0, n - 1))] += 0.1
    means = spread * np.array(draw(st.lists(numbers, min_size=n, max_size=n)))
    scales = 10.0 ** (3.0 * np.array(draw(st.lists(numbers, min_size=n, max_size=n))))
    dofs = draw(st.lists(st.sampled_from([0.7, 1.0, 2.0, 3.3, 12.0, 1e5, np.inf]), min_size=n, max_size=n))
    shape = (1, n, 1)
    arrays = (weights / weights.sum(), means, scales, np.array(dofs))
    return Marginals(*(np.reshape(a, shape) for a in arrays))


# Values are followed up to 1e100 scales, which is a probability of 1e-70 for 0.7 degrees of freedom.
LEVELS = st.one_of(st.floats(1e-12, 1.0 - 1e-12), st.floats(-65.0, -12.0).map(lambda e: 10.0**e))


@settings(max_examples=120, deadline=None)
@given(mixtures(), LEVELS)
def test_quantile_inverts_cdf(m, q):
    y = m.quantile(q)
    # The value is between two numbers that the distribution function puts on both sides of q.
    slack = 1e-10 * m.scales[m.weights > 0].min() + 4e-15 * np.abs(y)
    assert m.cdf(y - slack).item() <= q * (1 + 1e-13)
    assert m.cdf(y + slack).item() >= q * (1 - 1e-13)


@settings(max_examples=60, deadline=None)
@given(mixtures(), st.floats(-200.0, -0.5))
def test_tails_mirror_each_other(m, log10_p):
    p = np.full((1, 1), 10.0**log10_p)
    mirror = Marginals(m.weights, -m.means, m.scales, m.dofs)
    lower = m.tail_quantile(p, np.array([[False]]))
    assert_array_equal(mirror.tail_quantile(p, np.array([[True]])), -lower)
    for a, b in zip(m.tails(lower), mirror.tails(-lower)[::-1], strict=True):
        assert_allclose(a, b, rtol=1e-14)


@settings(max_examples=20, deadline=None)
@given(mixtures(), st.integers(0, 2**31))
def test_many_quantiles_at_once_are_the_same(m, seed):
    """A table gives the first guesses when there are many; each is still solved."""
    q = np.concatenate([[1e-60, 1e-30], np.random.default_rng(seed).random(70), [1 - 1e-15]])
    many = m.quantile(np.reshape(q, (-1, 1, 1)))[:, 0, 0]
    one_by_one = np.array([m.quantile(level).item() for level in q])
    lower, upper = m.tails(many.reshape(-1, 1, 1))
    # Where the distribution function is flat to its last digits, quantiles are free to differ; scipy's stdtr
    # is good to 1e-12 close to zero.
    flat = np.abs(m.tails(one_by_one.reshape(-1, 1, 1))[0] - lower) <= 4e-12 * np.minimum(lower, upper)
    same = np.isclose(many, one_by_one, rtol=1e-12, atol=1e-10 * m.scales[m.weights > 0].min())
    assert (same | flat[:, 0, 0]).all()


def test_many_quantiles_of_many_rows_are_solved_in_parts(monkeypatch):
    m = random_marginals(np.random.default_rng(0), 7, 3, 2)
    q = np.random.default_rng(1).random((100, 7, 2))
    together = m.quantile(q)
    monkeypatch.setattr("momostream.distributions.marginals._CHUNK", 2000)
    assert_allclose(m.quantile(q), together, rtol=1e-11)


def test_far_apart_narrow_components():
    m = Marginals(
        np.reshape([0.3, 0.3, 0.4], (1, 3, 1)),
        np.reshape([-1e6, 0.0, 1e9], (1, 3, 1)),
        np.reshape([1e-3, 1e-6, 1e-2], (1, 3, 1)),
        np.inf,
    )
    assert_allclose(m.quantile(0.15), -1e6, rtol=1e-9)
    assert_allclose(m.quantile(0.45), 0.0, atol=1e-12)
    assert_allclose(m.quantile(0.8), 1e9, rtol=1e-12)
    z = stats.norm.ppf(0.1 / 0.3)
    assert_allclose(m.quantile(0.4), 1e-6 * z, rtol=1e-9)
    assert_allclose(m.cdf(m.quantile([[[0.3]], [[0.6]]])).ravel(), [0.3, 0.6], rtol=1e-12)


@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_marginals_against_scipy_and_integration(n_components):
    rng = np.random.default_rng(n_components)
    m = random_marginals(rng, 2, n_components, 2)
    frozen = stats.t(m.dofs, m.means, m.scales)
    Y = 3.0 * rng.normal(size=(2, 2))
    assert_allclose(m.cdf(Y), (m.weights * frozen.cdf(Y[:, np.newaxis])).sum(axis=1), rtol=1e-11)
    assert_allclose(np.exp(m.log_pdf(Y)), (m.weights * frozen.pdf(Y[:, np.newaxis])).sum(axis=1), rtol=1e-11)
    one = m.take(np.array([1])).select(np.array([0]))

    def density(y, power):
        return y**power * np.exp(one.log_pdf(np.array([[y]]))).item()

    moments = [quad(density, -np.inf, np.inf, args=(k,), limit=200)[0] for k in range(3)]
    assert_allclose(moments[0], 1.0, rtol=1e-7)
    assert_allclose(moments[1], m.mean[1, 0], rtol=1e-6, atol=1e-8)
    assert_allclose(moments[2] - moments[1] ** 2, m.variance[1, 0], rtol=1e-5)


def test_samples_of_marginals_pass_ks():
    m = random_marginals(np.random.default_rng(0), 2, 3, 2, least_dof=0.5)
    draws = m.sample(5000, np.random.default_rng(1))
    u = m.cdf(draws)
    for i in range(2):
        for p in range(2):
            assert stats.kstest(u[:, i, p], "uniform").pvalue > 1e-4


def test_padding_changes_nothing():
    rng = np.random.default_rng(7)
    m = random_marginals(rng, 3, 2, 2)
    pad = np.zeros((3, 2, 2))
    padded = Marginals(
        np.concatenate([m.weights, pad], axis=1),
        np.concatenate([m.means, pad + 1e9], axis=1),
        np.concatenate([m.scales, pad + 1e-9], axis=1),
        np.concatenate([m.dofs, pad + 1.0], axis=1),
    )
    Y = rng.normal(size=(3, 2))
    for name in ("log_pdf", "cdf"):
        assert_array_equal(getattr(padded, name)(Y), getattr(m, name)(Y))
    assert_allclose(padded.mean, m.mean)
    assert_allclose(padded.variance, m.variance)
    assert_allclose(padded.quantile(0.2), m.quantile(0.2), rtol=1e-11)
    for a, b in zip(padded.knots(), m.knots(), strict=True):
        assert_array_equal(a, b)
    R = random_correlation(rng, 2)
    d, e = CopulaDistribution(m, R, 6.0), CopulaDistribution(padded, R, 6.0)
    assert_allclose(e.cov, d.cov, rtol=1e-12)
    assert_allclose(e.condition({0: 0.1}).std, d.condition({0: 0.1}).std, rtol=1e-12)


def test_wrong_arrays_are_rejected():
    ones = np.ones((1, 2, 1))
    with pytest.raises(ValueError, match="sum to one"):
        Marginals(ones, ones, ones, ones)
    with pytest.raises(ValueError, match="sum to one"):
        Marginals(np.full((1, 2, 1), np.nan), ones, ones, ones)
    with pytest.raises(ValueError, match="positive"):
        Marginals(0.5 * ones, ones, 0.0 * ones, ones)
    with pytest.raises(ValueError, match="broadcast"):
        Marginals(0.5 * ones, np.ones((1, 3, 1)), ones, ones)
    with pytest.raises(ValueError, match="n_components"):
        Marginals(1.0, 0.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="at least one component"):
        Marginals(np.ones((1, 0, 1)), 0.0, 1.0, 3.0)
    m = Marginals(0.5 * ones, ones, ones, ones)
    for q in (0.0, 1.0, np.nan, -1.0):
        with pytest.raises(ValueError, match="inside"):
            m.quantile(q)
    with pytest.raises(ValueError, match="do not fit"):
        m.quantile(np.full((3, 2), 0.5))


def mean_distance(y, dof):
    """E|T - y| of a standard Student-t, in closed form."""
    distribution = stats.norm if np.isinf(dof) else stats.t(dof)
    stretch = 1.0 if np.isinf(dof) else (dof + y**2) / (dof - 1.0)
    return y * (2.0 * distribution.cdf(y) - 1.0) + 2.0 * distribution.pdf(y) * stretch


def expected_crps(m, y, row=0, target=0):
    """E|Y - y| - E|Y - Y'| / 2, pair by pair of components; the narrower one is integrated over."""
    w, mean, scale, dof = (a[row, :, target] for a in m.arrays)

    # Tanh-sinh quadrature over the real line.
    u = np.linspace(-4.0, 4.0, 1601)
    x = np.sinh(0.5 * np.pi * np.sinh(u))
    slope = (u[1] - u[0]) * 0.5 * np.pi * np.cosh(u) * np.cosh(0.5 * np.pi * np.sinh(u))

    def pair(i, j):
        i, j = (i, j) if scale[i] >= scale[j] else (j, i)
        distribution = stats.norm if np.isinf(dof[j]) else stats.t(dof[j])
        at = (mean[j] + scale[j] * x - mean[i]) / scale[i]
        return (slope * distribution.pdf(x) * scale[i] * mean_distance(at, dof[i])).sum()

    K = range(w.size)
    to_y = sum(w[k] * scale[k] * mean_distance((y - mean[k]) / scale[k], dof[k]) for k in K)
    return to_y - 0.5 * sum(w[i] * w[j] * pair(i, j) for i in K for j in K if w[i] * w[j] > 0.0)


@pytest.mark.parametrize("dof", [1.2, 2.0, 3.0, 30.0, 1e6, np.inf])
def test_crps_of_a_student_t_is_the_closed_form(dof):
    z = np.array([0.0, 0.1, -1.0, 3.0, -20.0, 1e6, -1e30])
    m = Marginals(1.0, np.full((1, 1, z.size), 5.0), 2.0, dof)
    spread = mean_distance(0.0, np.inf) * np.sqrt(2.0)
    if np.isfinite(dof):
        spread = 4.0 * np.sqrt(dof) / (dof - 1.0) * beta(0.5, dof - 0.5) / beta(0.5, 0.5 * dof) ** 2
    expected = 2.0 * (mean_distance(z, dof) - 0.5 * spread)
    assert_allclose(m.crps([5.0 + 2.0 * z])[0], expected, rtol=5e-5 if dof < 2.0 else 2e-5)


@pytest.mark.parametrize(
    ("spread", "log_scale", "dofs"),
    [
        (2.0, 0.5, [3.0, 8.0, np.inf]),
        (3.0, 2.0, [2.5, 30.0, np.inf]),
        (1e3, 0.5, [4.0, np.inf]),
        (2.0, 1.0, [1.5, 4.0]),
    ],
)
def test_crps_of_a_mixture_is_that_of_all_pairs(spread, log_scale, dofs):
    rng = np.random.default_rng(0)
    shape = (1, 3, 2)
    weights = rng.dirichlet(np.ones(3), size=(1, 2)).transpose(0, 2, 1)
    m = Marginals(
        weights, spread * rng.normal(size=shape), np.exp(log_scale * rng.normal(size=shape)), rng.choice(dofs, shape)
    )
    for y in (m.quantile(0.5), m.quantile(0.03), m.quantile(0.9999), m.mean + 100.0 * spread):
        expected = [expected_crps(m, y[0, p], 0, p) for p in range(2)]
        assert_allclose(m.crps(y)[0], expected, rtol=3e-5)


def test_crps_of_points():
    # Narrower than the spacing of floats around their means.
    m = Marginals([[[0.25], [0.75]]], [[[1e6], [1e6 + 4.0]]], 1e-15, 5.0)
    # E|Y - y| - E|Y - Y'| / 2 = 3 - 0.75, 1 - 0.75 and 6 - 0.75.
    for y, expected in ((1e6, 2.25), (1e6 + 4.0, 0.25), (1e6 - 3.0, 5.25)):
        assert_allclose(m.crps([[y]]), expected, rtol=1e-6)
    assert_allclose(Marginals(1.0, [[[1.0]]], 1e-20, np.inf).crps([[1.0]]), 0.233695e-20, rtol=1e-5)


def test_crps_does_not_care_about_units_or_padding():
    m = random_marginals(np.random.default_rng(1), 3, 3, 2)
    Y = m.quantile(0.3)
    scaled = Marginals(m.weights, 7.0 - 1e-3 * m.means, 1e-3 * m.scales, m.dofs)
    assert_allclose(scaled.crps(7.0 - 1e-3 * Y), 1e-3 * m.crps(Y), rtol=1e-6)
    padding = [np.zeros((3, 2, 2)), np.full((3, 2, 2), 50.0), np.ones((3, 2, 2)), np.full((3, 2, 2), 0.5)]
    padded = Marginals(*(np.concatenate([a, b], axis=1) for a, b in zip(m.arrays, padding, strict=True)))
    assert_allclose(padded.crps(Y), m.crps(Y), rtol=1e-5)


def test_crps_of_no_mean_is_infinite():
    m = Marginals([[[0.5, 0.5], [0.5, 0.5]]], 0.0, 1.0, [[[1.0, 3.0], [5.0, 3.0]]])
    crps = m.crps([[0.0, 0.0]])
    assert np.isinf(crps[0, 0]) and np.isfinite(crps[0, 1])
    assert np.isnan(m.crps([[np.nan, np.nan]])).all()
    given = CopulaDistribution(m, [[1.0, 0.2], [0.2, 1.0]], np.inf).condition({1: 0.0})
    # What is known makes the tails lighter by 1 / 0.96.
    assert np.isfinite(given.crps([[0.0]]))
    m = Marginals(1.0, np.zeros((1, 1, 2)), 1.0, [[[0.9, 3.0]]])
    given = CopulaDistribution(m, [[1.0, 0.2], [0.2, 1.0]], np.inf).condition({1: 0.0})
    assert np.isinf(given.crps([[0.0]])) and np.isnan(given.crps([[np.nan]]))


def test_crps_of_many_rows_is_found_in_parts(monkeypatch):
    m = random_marginals(np.random.default_rng(2), 7, 2, 2)
    Y = m.quantile(0.8)
    whole = m.crps(Y)
    monkeypatch.setattr("momostream.distributions.marginals._CHUNK", 3 * 2 * 4 * 78)
    assert_array_equal(m.crps(Y), whole)
