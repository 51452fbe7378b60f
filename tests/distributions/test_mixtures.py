"""Student-t's and nested distributions against scipy and a brute-force expansion into components."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.mixtures import Mixture, Product, Routed, StudentT
from momostream.distributions.student import regularise
from tests import naive
from tests.distributions.drawn import (
    integral,
    nested_distribution,
    random_distribution,
    random_scale,
    random_student,
    with_gaps,
)


class Component:
    """A weight, and independent multivariate t's on blocks of targets."""

    def __init__(self, weight, blocks):
        self.weight = weight
        self.blocks = blocks  # (positions, mean, scale, dof)

    def log_pdf(self, y):
        total = 0.0
        for at, mean, scale, dof in self.blocks:
            seen = ~np.isnan(y[at])
            if seen.any():
                S = scale[np.ix_(seen, seen)]
                distribution = (
                    stats.multivariate_normal(mean[seen], S)
                    if np.isinf(dof)
                    else stats.multivariate_t(mean[seen], S, dof)
                )
                total += distribution.logpdf(y[at][seen])
        return total

    def moments(self, n_targets):
        mean, covariance = np.zeros(n_targets), np.zeros((n_targets, n_targets))
        for at, location, scale, dof in self.blocks:
            mean[at] = location
            covariance[np.ix_(at, at)] = scale * (1.0 if np.isinf(dof) else dof / (dof - 2.0))
        return mean, covariance


def expand(distribution, row):
    """Every induced component of one row of a distribution."""
    if isinstance(distribution, StudentT):
        scale = distribution.factor[row] * (
            distribution.scale if distribution.scale.ndim == 2 else distribution.scale[row]
        )
        return [
            Component(1.0, [(np.arange(distribution.n_targets), distribution.mean[row], scale, distribution.dof[row])])
        ]
    if isinstance(distribution, Routed):
        owner = distribution.index[row]
        return expand(distribution.children[owner], int((distribution.index[:row] == owner).sum()))
    if isinstance(distribution, Mixture):
        return [
            Component(weight * c.weight, c.blocks)
            for weight, child in zip(distribution.weights[row], distribution.children, strict=True)
            for c in expand(child, row)
        ]
    components = [Component(1.0, [])]
    for child, at in zip(distribution.children, distribution.positions, strict=True):
        components = [
            Component(a.weight * b.weight, a.blocks + [(at[p], m, S, v) for p, m, S, v in b.blocks])
            for a in components
            for b in expand(child, row)
        ]
    return components


def expanded_log_pdf(distribution, Y):
    log_pdf = np.empty(len(Y))
    for i, y in enumerate(Y):
        log_pdf[i] = np.logaddexp.reduce([np.log(c.weight) + c.log_pdf(y) for c in expand(distribution, i)])
    return log_pdf


def expanded_moments(distribution, row):
    components = expand(distribution, row)
    weights = np.array([c.weight for c in components])
    means, covariances = zip(*(c.moments(distribution.n_targets) for c in components), strict=True)
    mean = weights @ np.array(means)
    second = sum(w * (C + np.outer(m, m)) for w, m, C in zip(weights, means, covariances, strict=True))
    return mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("per_row", [False, True])
def test_student_t_density_is_that_of_scipy(per_row):
    rng = np.random.default_rng(0)
    mean, factor = rng.normal(size=(5, 3)), rng.uniform(0.1, 3.0, 5)
    S = random_scale(rng, 3, 5 if per_row else None)
    Y = rng.normal(size=(5, 3)) * 3
    for dof in (1.5, 3.0, 40.0, 1e7, np.inf):
        found = StudentT(mean, S, dof, factor).log_pdf(Y)
        for i in range(5):
            scale = factor[i] * (S[i] if per_row else S)
            expected = stats.multivariate_t(mean[i], scale, dof).logpdf(Y[i])
            # scipy loses digits in differences of gammaln for large degrees of freedom.
            assert_allclose(found[i], expected, rtol=1e-11 if dof < 1e6 else 1e-7)


def test_normaliser_keeps_its_digits_between_student_and_gauss():
    Y, S = np.array([[0.3, -0.2]]), np.eye(2)
    gauss = StudentT(np.zeros((1, 2)), S, np.inf).log_pdf(Y)
    for dof in 10.0 ** np.arange(8, 300, 20):
        assert_allclose(StudentT(np.zeros((1, 2)), S, dof).log_pdf(Y), gauss, rtol=1e-7)
    assert_allclose(StudentT(np.zeros((1, 2)), S, 1e14).log_pdf(Y), gauss, rtol=1e-13)


def test_moments_of_heavy_tails():
    distribution = StudentT(np.zeros((2, 2)), np.eye(2), [2.5, 3.0])
    cut = naive.cut_variance(distribution.marginals())[0]
    assert_allclose(distribution.covariance[0], np.diag(cut), rtol=1e-4)
    assert_allclose(distribution.covariance[1], 3.0 * np.eye(2))
    assert_allclose(distribution.marginals().variance, [cut, [3.0, 3.0]], rtol=1e-4)
    # Weight zero silences heavy tails.
    light = StudentT(np.ones((2, 2)), np.eye(2), np.inf)
    mixed = Mixture([[-np.inf, 0.0], [0.0, 0.0]], [distribution, light])
    assert_allclose(mixed.covariance[0], np.eye(2))
    assert_allclose(mixed.marginals().variance[0], 1.0)
    assert_allclose(np.diagonal(mixed.covariance[1]), mixed.marginals().variance[1])


def test_singular_scale_gets_one_jitter_and_its_neighbours_none():
    good, bad = np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones((2, 2))
    both, L = regularise(np.stack([good, bad]))
    assert_array_equal(both[0], good)
    assert_allclose(both[1], bad + 1e-10 * np.eye(2), rtol=0, atol=1e-15)
    assert_allclose(L @ np.swapaxes(L, 1, 2), both, atol=1e-15)
    distribution = StudentT(np.zeros((2, 2)), np.stack([good, bad]), 5.0)
    alone = StudentT(np.zeros((1, 2)), good, 5.0)
    assert_allclose(distribution.log_pdf(np.ones((2, 2)))[0], alone.log_pdf(np.ones((1, 2)))[0], rtol=1e-14)
    assert np.isfinite(distribution.log_pdf(np.array([[1.0, 2.0], [1.0, 2.0]]))).all()
    # The chain rule holds for the jittered distribution as for any other.
    Y = np.array([[1.0, 1.2], [1.0, 1.2]])
    known = np.array([[1.0, np.nan], [1.0, np.nan]])
    assert_allclose(
        distribution.log_pdf(Y),
        distribution.log_pdf(known) + distribution.condition(known).log_pdf(Y[:, 1:]),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="semi-definite"):
        regularise(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="positive diagonal"):
        regularise(np.zeros((2, 2)))


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_nested_distribution_matches_its_expansion(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_distribution() if seed == 0 else random_distribution(rng, 4, 3, 3)
    Y = rng.normal(size=(4, 3)) * 2
    assert_allclose(distribution.log_pdf(Y), expanded_log_pdf(distribution, Y), rtol=1e-10)
    Y = with_gaps(rng, Y)
    assert_allclose(distribution.log_pdf(Y), expanded_log_pdf(distribution, Y), rtol=1e-10, atol=1e-12)
    mean, covariance = distribution.mean, distribution.covariance
    for i in range(4):
        expected_mean, expected_covariance = expanded_moments(distribution, i)
        assert_allclose(mean[i], expected_mean, rtol=1e-10, atol=1e-12)
        assert_allclose(covariance[i], expected_covariance, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_belong_to_the_joint_distribution(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_distribution() if seed == 0 else random_distribution(rng, 4, 3, 3)
    marginals = distribution.marginals()
    assert_allclose(marginals.weights.sum(axis=1), 1.0)
    assert_allclose(marginals.mean, distribution.mean, rtol=1e-10, atol=1e-12)
    assert_allclose(marginals.variance, np.diagonal(distribution.covariance, axis1=1, axis2=2), rtol=1e-9)
    Y = rng.normal(size=(4, 3)) * 3
    for p in range(3):
        only = np.where(np.arange(3) == p, Y, np.nan)
        assert_allclose(marginals.log_pdf(only)[:, p], distribution.log_pdf(only), rtol=1e-10)
        assert_array_equal(np.delete(marginals.log_pdf(only), p, axis=1), 0.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_conditioning_is_the_ratio_of_joint_and_marginal(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_distribution() if seed == 0 else random_distribution(rng, 4, 3, 3)
    Y = rng.normal(size=(4, 3)) * 2
    for known in ([0], [2], [0, 1], [1, 2]):
        given_part = np.where(np.isin(np.arange(3), known), Y, np.nan)
        rest = np.delete(Y, known, axis=1)
        conditioned = distribution.condition(given_part)
        assert conditioned.n_targets == 3 - len(known)
        ratio = distribution.log_pdf(Y) - distribution.log_pdf(given_part)
        assert_allclose(conditioned.log_pdf(rest), ratio, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_do_not_see_each_other(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_distribution() if seed == 0 else random_distribution(rng, 4, 3, 3)
    Y = with_gaps(rng, rng.normal(size=(4, 3)))
    rows = np.array([2, 0, 2])
    taken = distribution.take(rows)
    assert_allclose(taken.log_pdf(Y[rows]), distribution.log_pdf(Y)[rows], rtol=1e-12)
    assert_allclose(taken.covariance, distribution.covariance[rows], rtol=1e-12)
    assert_allclose(taken.marginals().quantile(0.3), distribution.marginals().quantile(0.3)[rows], rtol=1e-11)


def test_samples_of_a_nested_distribution_pass_ks():
    distribution = nested_distribution()
    draws = distribution.sample(4000, np.random.default_rng(1))
    marginals = distribution.marginals()
    u = marginals.cdf(draws)
    for i in range(4):
        for p in range(3):
            assert stats.kstest(u[:, i, p], "uniform").pvalue > 1e-4
    # Jointly: the density of a draw, ranked among densities of draws by an independent route (expansion).
    other = np.empty((4000, 3))
    rng = np.random.default_rng(2)
    components = expand(distribution, 0)
    chosen = rng.choice(len(components), size=4000, p=[c.weight for c in components])
    for k, component in enumerate(components):
        mine = np.flatnonzero(chosen == k)
        for at, mean, scale, dof in component.blocks:
            z = rng.multivariate_normal(np.zeros(at.size), scale, size=mine.size)
            stretch = 1.0 if np.isinf(dof) else np.sqrt(dof / rng.chisquare(dof, mine.size))[:, np.newaxis]
            other[np.ix_(mine, at)] = mean + z * stretch
    for direction in np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.5], [0.0, 1.0, -1.0]]):
        assert stats.ks_2samp(draws[:, 0] @ direction, other @ direction).pvalue > 1e-4


def test_density_of_a_mixture_integrates_to_one():
    rng = np.random.default_rng(5)
    pair, product = random_student(rng, 1, 2), Product([random_student(rng, 1, 1)] * 2, [[1], [0]])
    distribution = Mixture([0.0, 1.0], [pair, product])
    assert_allclose(integral(MixtureDistribution(distribution)), 1.0, atol=2e-3)


def test_wrong_shapes_and_weights_are_rejected():
    leaf = StudentT(np.zeros((2, 2)), np.eye(2), 3.0)
    with pytest.raises(ValueError, match="does not fit"):
        StudentT(np.zeros((2, 2)), np.eye(3), 3.0)
    with pytest.raises(ValueError, match="n_rows, n_targets"):
        StudentT(np.zeros(2), np.eye(2), 3.0)
    with pytest.raises(ValueError, match="disjoint"):
        Product([leaf, leaf], [[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="one position per target"):
        Product([leaf], [[0]])
    with pytest.raises(ValueError, match="do not fit"):
        Mixture(np.zeros(3), [leaf, leaf])
    with pytest.raises(ValueError, match="finite log weight"):
        Mixture([-np.inf, -np.inf], [leaf, leaf])
    with pytest.raises(ValueError, match="finite log weight"):
        Mixture([np.nan, 0.0], [leaf, leaf])
    with pytest.raises(ValueError, match="same rows"):
        Mixture([0.0, 0.0], [leaf, leaf.take(np.array([0]))])
    with pytest.raises(ValueError, match="same targets"):
        Mixture([0.0, 0.0], [leaf, StudentT(np.zeros((2, 1)), np.eye(1), 3.0)])
    with pytest.raises(ValueError, match="same targets"):
        Routed([], [])
    with pytest.raises(ValueError, match="index"):
        Routed([0, 7], [leaf])
    with pytest.raises(ValueError, match="exactly the rows"):
        Routed([0, 1], [leaf, leaf])
    with pytest.raises(ValueError, match="all rows"):
        leaf.condition(np.array([[1.0, np.nan], [np.nan, 1.0]]))
    with pytest.raises(ValueError, match="nothing is left"):
        leaf.condition(np.ones((2, 2)))
    with pytest.raises(ValueError, match="shape"):
        leaf.condition(np.ones((1, 2)))
    assert leaf.condition(np.full((2, 2), np.nan)) is leaf
