"""The copula against the multivariate t, ratios of densities, integration and its own samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.marginals import Marginals
from momostream.distributions.mixtures import StudentT
from tests import naive
from tests.distributions.drawn import integral, random_correlation, random_marginals, random_scale, with_gaps


def copula(seed=0, n_rows=2, n_components=3, n_targets=3, dof=6.0, spread=1.0, per_row=False, least_dof=4.5):
    rng = np.random.default_rng(seed)
    m = random_marginals(rng, n_rows, n_components, n_targets, spread, least_dof)
    return CopulaDistribution(m, random_correlation(rng, n_targets, n_rows if per_row else None), dof), m


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_density_of_a_copula_integrates_to_one(dof):
    d, _ = copula(seed=1, n_targets=2, dof=dof)
    assert_allclose(integral(d), 1.0, atol=2e-3)
    d, _ = copula(seed=2, n_targets=3, dof=dof)
    assert_allclose(integral(d.condition({1: 0.5})), 1.0, atol=2e-3)


@pytest.mark.parametrize("dof", [4.0, np.inf])
@pytest.mark.parametrize("per_row", [False, True])
def test_copula_of_student_ts_is_a_student_t(dof, per_row):
    """With marginals of the same degrees of freedom the copula is no copula but the multivariate t itself."""
    rng = np.random.default_rng(4)
    n, P = 4, 3
    S = random_scale(rng, P, n if per_row else None)
    distribution = StudentT(rng.normal(size=(n, P)), S, dof, rng.uniform(0.5, 2.0, n))
    std = np.sqrt(np.diagonal(S, axis1=-2, axis2=-1))
    R = S / (std[..., :, np.newaxis] * std[..., np.newaxis, :])
    names = ("a", "b", "c")
    d, e = CopulaDistribution(distribution.marginals(), R, dof, names), MixtureDistribution(distribution, names)
    Y = with_gaps(rng, distribution.mean + 3.0 * rng.normal(size=(n, P)))
    known = {"b": distribution.mean[:, 1] + rng.normal(size=n)}
    for x, y in [(d, e), (d.condition(known), e.condition(known))]:
        values = np.delete(Y, 1, axis=1) if x.n_targets == 2 else Y
        assert x.targets == y.targets
        assert_allclose(x.log_pdf(values), y.log_pdf(values), rtol=1e-9, atol=1e-10)
        assert_allclose(x.log_pdf_each(values), y.log_pdf_each(values), rtol=1e-9, atol=1e-10)
        assert_allclose(x.cdf(values), y.cdf(values), rtol=1e-9)
        assert_allclose(x.quantile([0.01, 0.4, 0.999]), y.quantile([0.01, 0.4, 0.999]), rtol=1e-8)
        assert_allclose(x.mean, y.mean, rtol=1e-6, atol=1e-7)
        assert_allclose(x.std, y.std, rtol=2e-3)
        assert_allclose(x.cov, y.cov, rtol=5e-3, atol=5e-3 * np.abs(y.cov).max())


@pytest.mark.parametrize("dof", [2.5, 30.0, np.inf])
def test_copula_density_is_marginals_times_copula(dof):
    _, m = copula()
    R = random_correlation(np.random.default_rng(1), 3)
    d = CopulaDistribution(m, R, dof)
    Y = np.random.default_rng(0).normal(size=(2, 3))
    u = m.cdf(Y)
    if np.isinf(dof):
        z = stats.norm.ppf(u)
        log_c = stats.multivariate_normal(np.zeros(3), R).logpdf(z) - stats.norm.logpdf(z).sum(axis=1)
    else:
        z = stats.t.ppf(u, dof)
        log_c = stats.multivariate_t(np.zeros(3), R, dof).logpdf(z) - stats.t.logpdf(z, dof).sum(axis=1)
    assert_allclose(d.log_pdf(Y), log_c + m.log_pdf(Y).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("dof", [3.0, np.inf])
@pytest.mark.parametrize("known", [[0], [1, 2], [3, 0]])
def test_conditioned_copula_is_the_ratio_of_densities(dof, known):
    d, m = copula(seed=3, n_rows=3, n_targets=4, dof=dof, per_row=True)
    Y = m.quantile(np.random.default_rng(1).random((3, 4)))
    part = np.where(np.isin(np.arange(4), known), Y, np.nan)
    rest = np.delete(Y, known, axis=1)
    conditioned = d.condition(part)
    assert_allclose(conditioned.log_pdf(rest), d.log_pdf(Y) - d.log_pdf(part), rtol=1e-8, atol=1e-9)
    # One at a time or all at once, in any order.
    step = d
    positions = list(range(4))
    for k in known:
        step = step.condition({positions.index(k): Y[:, k]})
        positions.remove(k)
    assert_allclose(step.log_pdf(rest), conditioned.log_pdf(rest), rtol=1e-8, atol=1e-9)
    assert_allclose(step.quantile(0.9), conditioned.quantile(0.9), rtol=1e-8, atol=1e-9)
    assert_allclose(step.std, conditioned.std, rtol=1e-6)
    # The marginal density is that of the joint distribution with everything else not observed.
    only = np.where(np.arange(rest.shape[1]) == 0, rest, np.nan)
    assert_allclose(conditioned.log_pdf_each(only)[:, 0], conditioned.log_pdf(only), rtol=1e-10)


@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("dof", [5.0, np.inf])
def test_moments_of_a_conditioned_copula(dof, spread):
    """Against integration of its quantiles, on many more nodes; jumps between components included."""
    d, m = copula(seed=6, dof=dof, spread=spread)
    c = d.condition({1: m.quantile(0.85)[:, 1]})
    scores = np.linspace(-7.5, 7.5, 3001)
    weights = stats.norm.pdf(scores) / stats.norm.pdf(scores).sum()
    y = c.quantile(stats.norm.cdf(scores))
    mean = np.tensordot(weights, y, axes=1)
    std = np.sqrt(np.tensordot(weights, (y - mean) ** 2, axes=1))
    assert_allclose(c.mean / std, mean / std, rtol=0, atol=3e-3)
    assert_allclose(c.std, std, rtol=5e-3)


def test_heavy_tails_of_a_copula_are_cut():
    m = Marginals(1.0, np.zeros((1, 1, 3)), 1.0, [[[1.5, 2.7, 5.0]]])
    d = CopulaDistribution(m, random_correlation(np.random.default_rng(0), 3), 4.0)
    assert_allclose(d.std[:, :2] ** 2, naive.cut_variance(m)[:, :2], rtol=1e-4)
    assert_allclose(d.std[0, 2] ** 2, 5.0 / 3.0)
    assert np.isfinite(d.cov).all()
    assert_array_equal(d.cut, [[1e-3, 1e-4, 0.0]])
    far = np.array([stats.t.isf(1e-3, 1.5), stats.t.isf(1e-4, 2.7)])
    assert_allclose(np.abs(d.sample(60_000, seed=0))[..., :2].max(axis=(0, 1)), far, rtol=1e-9)
    # Each known target adds to the tail index.
    given = d.condition({2: 0.0})
    assert_array_equal(given.cut, [[1e-3, 1e-4]])
    scores, y = np.linspace(-7.5, 7.5, 20_001), np.empty((2, 20_001))
    for target, cut in enumerate(given.cut[0]):
        y[target] = given.quantile(np.clip(stats.norm.cdf(scores), cut, 1.0 - cut))[:, 0, target]
    weights = stats.norm.pdf(scores)
    assert_allclose(given.std[0], np.sqrt(np.average(y**2, axis=1, weights=weights)), rtol=2e-3)


@pytest.mark.parametrize("dof", [5.0, np.inf])
def test_covariance_of_a_copula_agrees_with_its_samples(dof):
    d, _ = copula(seed=8, n_targets=4, dof=dof, spread=2.0, least_dof=6.0)
    draws = d.sample(30_000, seed=1)
    scale = d.std[:, :, np.newaxis] * d.std[:, np.newaxis]
    for i in range(2):
        assert_allclose(d.cov[i] / scale[i], np.cov(draws[:, i].T) / scale[i], atol=0.035)
    assert_allclose(np.diagonal(d.cov, axis1=1, axis2=2), d.std**2, rtol=1e-14)
    c = d.condition({3: 0.7})
    draws = c.sample(30_000, seed=2)
    scale = c.std[:, :, np.newaxis] * c.std[:, np.newaxis]
    for i in range(2):
        assert_allclose(c.cov[i] / scale[i], np.cov(draws[:, i].T) / scale[i], atol=0.04)


def test_covariance_between_jumping_targets():
    """Two signs of correlated normals have covariance 2 / pi * arcsin(rho)."""
    m = Marginals(0.5, np.broadcast_to([[[-1.0], [1.0]]], (1, 2, 2)), 1e-6, np.inf)
    for rho in (-0.99, -0.5, 0.0, 0.2, 0.9, 1.0):
        d = CopulaDistribution(m, [[1.0, rho], [rho, 1.0]], np.inf)
        assert_allclose(d.cov[0, 0, 1], 2.0 / np.pi * np.arcsin(rho), atol=0.01)


@pytest.mark.parametrize("dof", [5.0, np.inf])
def test_covariance_is_symmetric_and_semi_definite(dof):
    d, _ = copula(seed=9, n_rows=20, n_components=2, n_targets=5, dof=dof, spread=5.0, per_row=True)
    assert_array_equal(d.cov, np.swapaxes(d.cov, 1, 2))
    assert np.linalg.eigvalsh(d.cov / np.trace(d.cov, axis1=1, axis2=2)[:, None, None]).min() > -1e-13
    # Perfectly correlated copies of one target.
    m = random_marginals(np.random.default_rng(0), 1, 2, 1).select(np.zeros(3, dtype=int))
    d = CopulaDistribution(m, np.ones((3, 3)), dof)
    assert_allclose(d.cov, np.full((1, 3, 3), d.std[0, 0] ** 2), rtol=1e-6)
    assert np.linalg.eigvalsh(d.cov).min() > -1e-12 * d.cov.max()


def test_independent_gaussian_copula_has_a_diagonal_covariance():
    d, m = copula(dof=np.inf)
    d = CopulaDistribution(m, np.eye(3), np.inf)
    assert_array_equal(d.cov, np.eye(3) * d.std[:, np.newaxis] ** 2)
    Y = m.quantile(0.3)
    assert_allclose(d.log_pdf(Y), m.log_pdf(Y).sum(axis=1), rtol=1e-12)
    assert_allclose(d.condition({0: 1.0}).mean, m.mean[:, 1:], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_samples_of_a_copula_pass_ks(dof):
    d, m = copula(seed=5, dof=dof, spread=3.0)
    draws = d.sample(4000, seed=3)
    for distribution, values in [(d, draws), (d.condition({0: 0.2}), d.condition({0: 0.2}).sample(4000, seed=4))]:
        u = np.stack([distribution.cdf(y) for y in values[:1000]])
        for i in range(2):
            for p in range(distribution.n_targets):
                assert stats.kstest(u[:, i, p], "uniform").pvalue > 1e-4
    # The dependence, by the probability integral transform: y_1 given the others is uniform.
    many = d[np.zeros(1000, dtype=int)]
    y = draws[:1000, 0]
    u = many.condition({0: y[:, 0], 2: y[:, 2]}).cdf(y[:, 1:2])
    assert stats.kstest(u[:, 0], "uniform").pvalue > 1e-4


FAR = [1e2, 1e6, 1e12, 1e100, 1e300]


@pytest.mark.parametrize("marginal_dof", [1.0, 3.0, 50.0, np.inf])
@pytest.mark.parametrize("dof", [0.5, 3.0, 50.0, np.inf])
def test_far_tails_stay_finite_and_symmetric(dof, marginal_dof):
    m = Marginals(0.5, np.broadcast_to([[[-1.0], [1.0]]], (1, 2, 2)), 1.0, marginal_dof)
    d = CopulaDistribution(m, [[1.0, 0.999], [0.999, 1.0]], dof)
    last = np.inf
    for y in FAR:
        both = np.array([d.log_pdf([[s * y, t * y]]) for s in (-1, 1) for t in (-1, 1)]).ravel()
        assert np.isfinite(both).all()
        assert_allclose(both, both[[3, 2, 1, 0]], rtol=1e-12)
        alone = d.log_pdf([[y, np.nan]])
        assert_allclose(alone, m.log_pdf([[y, np.nan]])[:, 0], rtol=1e-10, atol=1e-8)
        # Farther out is not likelier, on the diagonal or off it.
        assert both.max() < last
        last = both.max()
        with_near = d.log_pdf([[y, 0.5]])
        assert np.isfinite(with_near).all() and with_near < 0.0
        c = d.condition({0: y})
        for values in (c.mean, c.std, c.quantile([1e-9, 0.5, 1 - 1e-9]), c.log_pdf([[0.0]]), c.cdf([[0.0]])):
            assert not np.isnan(values).any()
        assert np.isfinite(c.sample(100, seed=0)).all()
        assert_allclose(c.quantile(0.3), -d.condition({0: -y}).quantile(0.7), rtol=1e-9, atol=1e-12)


def test_upper_tail_keeps_its_digits():
    m = Marginals(0.5, np.broadcast_to([[[0.0], [0.5]]], (1, 2, 2)), 1.0, np.inf)
    d = CopulaDistribution(m, [[1.0, 0.8], [0.8, 1.0]], 5.0)
    # The mirror image of the distribution about 0.25 is the distribution itself.
    for y in (5.0, 9.0, 20.0):
        assert_allclose(d.log_pdf([[0.25 + y, 0.25 + y]]), d.log_pdf([[0.25 - y, 0.25 - y]]), rtol=1e-10)
        c, e = d.condition({0: 0.25 + y}), d.condition({0: 0.25 - y})
        assert_allclose(c.quantile(0.1) - 0.25, 0.25 - e.quantile(0.9), rtol=1e-9)
        assert_allclose(c.mean - 0.25, 0.25 - e.mean, rtol=1e-3)
        assert_allclose(c.std, e.std, rtol=1e-3)


def test_collinear_correlation_is_accepted():
    d, m = copula(n_targets=3)
    R = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    d = CopulaDistribution(m, R, 5.0)
    Y = m.quantile(0.3)
    assert np.isfinite(d.log_pdf(Y)).all()
    u = m.cdf(d.sample(50, seed=0))
    assert_allclose(u[..., 0], u[..., 1], atol=1e-3)
    c = d.condition({0: Y[:, 0]})
    assert_allclose(c.quantile(0.5)[:, 0], Y[:, 1], atol=1e-3)
    with pytest.raises(ValueError, match="semi-definite"):
        CopulaDistribution(m, [[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]], 5.0)


def test_wrong_correlations_and_dofs_are_rejected():
    _, m = copula()
    for R in (np.eye(2), np.ones(3), np.stack([np.eye(3)] * 3)):
        with pytest.raises(ValueError, match="does not fit"):
            CopulaDistribution(m, R, 5.0)
    for R in (2.0 * np.eye(3), np.full((3, 3), np.nan), np.eye(3) + np.triu(np.full((3, 3), 0.1), 1)):
        with pytest.raises(ValueError, match="correlation matrix"):
            CopulaDistribution(m, R, 5.0)
    for dof in (0.0, -1.0, np.nan, np.ones(5)):
        with pytest.raises(ValueError, match="dof"):
            CopulaDistribution(m, np.eye(3), dof)


def test_one_target_is_its_marginal():
    d, m = copula(n_targets=1)
    Y = np.array([[0.3], [-2.0]])
    assert_allclose(d.log_pdf(Y), m.log_pdf(Y)[:, 0], rtol=1e-12)
    assert_array_equal(d.cov, d.std[:, :, np.newaxis] ** 2)
    assert d.sample(3, seed=0).shape == (3, 2, 1)


def test_degrees_of_freedom_may_differ_between_rows():
    _, m = copula(n_rows=3)
    R = random_correlation(np.random.default_rng(1), 3)
    dofs = np.array([3.0, np.inf, 10.0])
    d = CopulaDistribution(m, R, dofs)
    Y = m.quantile(0.2)
    for i, dof in enumerate(dofs):
        alone = CopulaDistribution(m.take(np.array([i])), R, dof)
        assert_allclose(d.log_pdf(Y)[i], alone.log_pdf(Y[[i]])[0], rtol=1e-11)
        assert_allclose(d.cov[i], alone.cov[0], rtol=1e-11)
        assert_allclose(d[i].condition({0: 1.0}).std, alone.condition({0: 1.0}).std, rtol=1e-11)


def test_crps_of_a_conditioned_copula_that_jumps():
    rng = np.random.default_rng(4)
    m = random_marginals(rng, 2, 4, 2, spread=300.0)
    given = CopulaDistribution(m, [[1.0, 0.9], [0.9, 1.0]], 6.0).condition({0: m.mean[:, 0]})
    y = given.quantile(0.2)
    q = stats.norm.cdf(np.linspace(-8.0, 8.0, 8001))[:, np.newaxis, np.newaxis]
    edges = np.sort(np.concatenate([given.quantile(q.ravel()), y[np.newaxis]]), axis=0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    missed = np.array([given.cdf(x) for x in middle]) - (middle > y)
    assert_allclose(given.crps(y), (np.diff(edges, axis=0) * missed**2).sum(axis=0), rtol=1e-4)
