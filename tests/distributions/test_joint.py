"""Predictive distributions against scipy, brute-force expansion, numerical integration and their own samples."""

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
from momostream.distributions.joint import Distribution, MixtureDistribution
from momostream.distributions.marginals import Marginals
from momostream.distributions.mixtures import Mixture, Multivariate, Product, Routed, StudentT
from momostream.distributions.student import regularise

# -----------------------------------------------------------------------------------------------------------
# Random distributions


def random_scale(rng, n_targets, n_rows=None):
    shape = (n_targets, n_targets + 1) if n_rows is None else (n_rows, n_targets, n_targets + 1)
    A = rng.normal(size=shape)
    return A @ np.swapaxes(A, -1, -2)


def random_correlation(rng, n_targets, n_rows=None):
    S = random_scale(rng, n_targets, n_rows)
    d = np.sqrt(np.diagonal(S, axis1=-2, axis2=-1))
    return S / (d[..., :, np.newaxis] * d[..., np.newaxis, :])


def random_dofs(rng, size, least=4.5):
    return np.where(rng.random(size) < 0.25, np.inf, least + rng.exponential(8.0, size))


def random_leaf(rng, n_rows, n_targets):
    per_row = bool(rng.integers(2))
    return StudentT(
        rng.normal(size=(n_rows, n_targets)),
        random_scale(rng, n_targets, n_rows if per_row else None),
        random_dofs(rng, n_rows),
        rng.uniform(0.5, 2.0, n_rows),
    )


def random_law(rng, n_rows, n_targets, depth):
    """A nested structure of all kinds of nodes."""
    kind = rng.integers(4) if depth else 0
    if kind == 1 and n_targets > 1:
        order = rng.permutation(n_targets)
        cut = int(rng.integers(1, n_targets))
        outputs = [order[:cut], order[cut:]]
        return Product([random_law(rng, n_rows, o.size, depth - 1) for o in outputs], outputs)
    if kind == 2:
        n_children = int(rng.integers(1, 4))
        log_weights = rng.normal(size=(n_rows, n_children) if rng.integers(2) else n_children)
        children = [random_law(rng, n_rows, n_targets, depth - 1) for _ in range(n_children)]
        return Mixture(log_weights, children)
    if kind == 3:
        index = rng.integers(0, 3, n_rows)
        sizes = np.bincount(index, minlength=3)
        return Routed(index, [random_law(rng, int(size), n_targets, depth - 1) for size in sizes])
    return random_leaf(rng, n_rows, n_targets)


def random_marginals(rng, n_rows, n_components, n_targets, spread=2.0, least_dof=4.5):
    shape = (n_rows, n_components, n_targets)
    weights = rng.dirichlet(np.ones(n_components), size=(n_rows, n_targets)).transpose(0, 2, 1)
    return Marginals(
        weights,
        spread * rng.normal(size=shape),
        np.exp(0.5 * rng.normal(size=shape)),
        random_dofs(rng, shape, least_dof),
    )


def nested_law():
    """A root sum over a leaf, a product of a sum and a leaf, and a gate over both: 4 rows, 3 outputs."""
    rng = np.random.default_rng(3)
    pair = Mixture([0.3, -0.4], [random_leaf(rng, 4, 2), random_leaf(rng, 4, 2)])
    product = Product([pair, random_leaf(rng, 4, 1)], [[2, 0], [1]])
    gate = Routed([1, 0, 1, 1], [random_law(rng, 1, 3, 1), random_leaf(rng, 3, 3)])
    log_weights = np.log([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8], [1.0, 1e-9, 0.5]])
    return Mixture(log_weights, [random_leaf(rng, 4, 3), product, gate])


# -----------------------------------------------------------------------------------------------------------
# The slow, obvious version: all induced components of one row


class Component:
    """A weight, and independent multivariate t's on blocks of outputs."""

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
    for child, at in zip(distribution.children, distribution.outputs, strict=True):
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


def with_gaps(rng, Y, share=0.3):
    return np.where(rng.random(Y.shape) < share, np.nan, Y)


# -----------------------------------------------------------------------------------------------------------
# One Student-t against scipy


@pytest.mark.parametrize("dof", [1.5, 3.0, 40.0, 1e7, np.inf])
@pytest.mark.parametrize("per_row", [False, True])
def test_student_t_density_is_that_of_scipy(dof, per_row):
    rng = np.random.default_rng(0)
    mean, factor = rng.normal(size=(5, 3)), rng.uniform(0.1, 3.0, 5)
    S = random_scale(rng, 3, 5 if per_row else None)
    distribution = StudentT(mean, S, dof, factor)
    Y = rng.normal(size=(5, 3)) * 3
    for i in range(5):
        scale = factor[i] * (S[i] if per_row else S)
        expected = stats.multivariate_t(mean[i], scale, dof).logpdf(Y[i])
        # scipy loses digits in differences of gammaln for large degrees of freedom.
        assert_allclose(distribution.log_pdf(Y)[i], expected, rtol=1e-11 if dof < 1e6 else 1e-7)


def test_normaliser_keeps_its_digits_between_student_and_gauss():
    Y, S = np.array([[0.3, -0.2]]), np.eye(2)
    gauss = StudentT(np.zeros((1, 2)), S, np.inf).log_pdf(Y)
    for dof in 10.0 ** np.arange(8, 300, 20):
        assert_allclose(StudentT(np.zeros((1, 2)), S, dof).log_pdf(Y), gauss, rtol=1e-7)
    assert_allclose(StudentT(np.zeros((1, 2)), S, 1e14).log_pdf(Y), gauss, rtol=1e-13)


def test_moments_of_heavy_tails():
    distribution = StudentT(np.zeros((2, 2)), np.eye(2), [2.0, 3.0])
    assert_array_equal(distribution.covariance[0], [[np.inf, np.nan], [np.nan, np.inf]])
    assert_allclose(distribution.covariance[1], 3.0 * np.eye(2))
    assert_array_equal(distribution.marginals().variance, [[np.inf, np.inf], [3.0, 3.0]])
    # Weight zero silences an infinite variance.
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


# -----------------------------------------------------------------------------------------------------------
# Nested distributions against their expansion


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_nested_law_matches_its_expansion(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_law() if seed == 0 else random_law(rng, 4, 3, 3)
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
def test_marginals_belong_to_the_joint_law(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_law() if seed == 0 else random_law(rng, 4, 3, 3)
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
@pytest.mark.parametrize("known", [[0], [2], [0, 1], [1, 2]])
def test_conditioning_is_the_ratio_of_joint_and_marginal(seed, known):
    rng = np.random.default_rng(seed)
    distribution = nested_law() if seed == 0 else random_law(rng, 4, 3, 3)
    Y = rng.normal(size=(4, 3)) * 2
    given_part = np.where(np.isin(np.arange(3), known), Y, np.nan)
    rest = np.delete(Y, known, axis=1)
    conditioned = distribution.condition(given_part)
    assert conditioned.n_targets == 3 - len(known)
    ratio = distribution.log_pdf(Y) - distribution.log_pdf(given_part)
    assert_allclose(conditioned.log_pdf(rest), ratio, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_do_not_see_each_other(seed):
    rng = np.random.default_rng(seed)
    distribution = nested_law() if seed == 0 else random_law(rng, 4, 3, 3)
    Y = with_gaps(rng, rng.normal(size=(4, 3)))
    rows = np.array([2, 0, 2])
    taken = distribution.take(rows)
    assert_allclose(taken.log_pdf(Y[rows]), distribution.log_pdf(Y)[rows], rtol=1e-12)
    assert_allclose(taken.covariance, distribution.covariance[rows], rtol=1e-12)
    assert_allclose(taken.marginals().quantile(0.3), distribution.marginals().quantile(0.3)[rows], rtol=1e-11)


def test_samples_of_a_nested_law_pass_ks():
    distribution = nested_law()
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
    distribution = Mixture([0.0, 1.0], [random_leaf(rng, 1, 2), Product([random_leaf(rng, 1, 1)] * 2, [[1], [0]])])
    assert_allclose(_integral(MixtureDistribution(distribution)), 1.0, atol=2e-3)


def test_laws_reject_what_does_not_fit():
    leaf = StudentT(np.zeros((2, 2)), np.eye(2), 3.0)
    with pytest.raises(ValueError, match="does not fit"):
        StudentT(np.zeros((2, 2)), np.eye(3), 3.0)
    with pytest.raises(ValueError, match="n_rows, n_targets"):
        StudentT(np.zeros(2), np.eye(2), 3.0)
    with pytest.raises(ValueError, match="disjoint"):
        Product([leaf, leaf], [[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="one position per output"):
        Product([leaf], [[0]])
    with pytest.raises(ValueError, match="do not fit"):
        Mixture(np.zeros(3), [leaf, leaf])
    with pytest.raises(ValueError, match="finite log weight"):
        Mixture([-np.inf, -np.inf], [leaf, leaf])
    with pytest.raises(ValueError, match="finite log weight"):
        Mixture([np.nan, 0.0], [leaf, leaf])
    with pytest.raises(ValueError, match="same rows"):
        Mixture([0.0, 0.0], [leaf, leaf.take(np.array([0]))])
    with pytest.raises(ValueError, match="same outputs"):
        Mixture([0.0, 0.0], [leaf, StudentT(np.zeros((2, 1)), np.eye(1), 3.0)])
    with pytest.raises(ValueError, match="same outputs"):
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


# -----------------------------------------------------------------------------------------------------------
# Marginals


@st.composite
def mixtures(draw):
    """One row, one output, any mixture."""
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
    assert_allclose(m.cdf(Y), (m.weights * frozen.cdf(Y[:, np.newaxis])).sum(axis=1), rtol=1e-12)
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


def test_marginals_reject_what_does_not_fit():
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


# -----------------------------------------------------------------------------------------------------------
# The copula


def _copula(seed=0, n_rows=2, n_components=3, n_targets=3, dof=6.0, spread=1.0, per_row=False, least_dof=4.5):
    rng = np.random.default_rng(seed)
    m = random_marginals(rng, n_rows, n_components, n_targets, spread, least_dof)
    return CopulaDistribution(m, random_correlation(rng, n_targets, n_rows if per_row else None), dof), m


def _integral(d, row=0, n=241):
    """Integral of the joint density of two outputs over a grid of quantiles."""
    one = d[row]
    q = stats.norm.cdf(np.linspace(-6.5, 6.5, n))
    y = one.quantile(q)[:, 0]
    a, b = np.meshgrid(y[:, 0], y[:, 1], indexing="ij")
    many = d[np.full(a.size, row)]
    density = np.exp(many.log_pdf(np.stack([a.ravel(), b.ravel()], axis=1))).reshape(a.shape)
    return np.trapezoid(np.trapezoid(density, y[:, 1], axis=1), y[:, 0])


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_density_of_a_copula_integrates_to_one(dof):
    d, _ = _copula(seed=1, n_targets=2, dof=dof)
    assert_allclose(_integral(d), 1.0, atol=2e-3)
    d, _ = _copula(seed=2, n_targets=3, dof=dof)
    assert_allclose(_integral(d.condition({1: 0.5})), 1.0, atol=2e-3)


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
    _, m = _copula()
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
    d, m = _copula(seed=3, n_rows=3, n_targets=4, dof=dof, per_row=True)
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
    d, m = _copula(seed=6, dof=dof, spread=spread)
    c = d.condition({1: m.quantile(0.85)[:, 1]})
    scores = np.linspace(-7.5, 7.5, 3001)
    weights = stats.norm.pdf(scores) / stats.norm.pdf(scores).sum()
    y = c.quantile(stats.norm.cdf(scores))
    mean = np.tensordot(weights, y, axes=1)
    std = np.sqrt(np.tensordot(weights, (y - mean) ** 2, axes=1))
    assert_allclose(c.mean / std, mean / std, rtol=0, atol=3e-3)
    assert_allclose(c.std, std, rtol=5e-3)


def test_infinite_variances_of_a_copula():
    m = Marginals(1.0, np.zeros((1, 1, 3)), 1.0, [[[1.5, 1.9, 5.0]]])
    d = CopulaDistribution(m, random_correlation(np.random.default_rng(0), 3), 4.0)
    assert_array_equal(np.isinf(d.std), [[True, True, False]])
    assert_array_equal(np.isnan(d.cov[0]), ~np.eye(3, dtype=bool))
    # Each known output adds to the tail index: 1.5 * 5 / 4 < 2 < 1.9 * 5 / 4.
    assert_array_equal(np.isinf(d.condition({2: 0.0}).std), [[True, False]])


@pytest.mark.parametrize("dof", [5.0, np.inf])
def test_covariance_of_a_copula_agrees_with_its_samples(dof):
    d, _ = _copula(seed=8, n_targets=4, dof=dof, spread=2.0, least_dof=6.0)
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


def test_covariance_between_jumping_outputs():
    """Two signs of correlated normals have covariance 2 / pi * arcsin(rho)."""
    m = Marginals(0.5, np.broadcast_to([[[-1.0], [1.0]]], (1, 2, 2)), 1e-6, np.inf)
    for rho in (-0.99, -0.5, 0.0, 0.2, 0.9, 1.0):
        d = CopulaDistribution(m, [[1.0, rho], [rho, 1.0]], np.inf)
        assert_allclose(d.cov[0, 0, 1], 2.0 / np.pi * np.arcsin(rho), atol=0.01)


@pytest.mark.parametrize("dof", [5.0, np.inf])
def test_covariance_is_symmetric_and_semi_definite(dof):
    d, _ = _copula(seed=9, n_rows=20, n_components=2, n_targets=5, dof=dof, spread=5.0, per_row=True)
    assert_array_equal(d.cov, np.swapaxes(d.cov, 1, 2))
    assert np.linalg.eigvalsh(d.cov / np.trace(d.cov, axis1=1, axis2=2)[:, None, None]).min() > -1e-13
    # Perfectly correlated copies of one output.
    m = random_marginals(np.random.default_rng(0), 1, 2, 1).select(np.zeros(3, dtype=int))
    d = CopulaDistribution(m, np.ones((3, 3)), dof)
    assert_allclose(d.cov, np.full((1, 3, 3), d.std[0, 0] ** 2), rtol=1e-6)
    assert np.linalg.eigvalsh(d.cov).min() > -1e-12 * d.cov.max()


def test_independent_gaussian_copula_has_a_diagonal_covariance():
    d, m = _copula(dof=np.inf)
    d = CopulaDistribution(m, np.eye(3), np.inf)
    assert_array_equal(d.cov, np.eye(3) * d.std[:, np.newaxis] ** 2)
    Y = m.quantile(0.3)
    assert_allclose(d.log_pdf(Y), m.log_pdf(Y).sum(axis=1), rtol=1e-12)
    assert_allclose(d.condition({0: 1.0}).mean, m.mean[:, 1:], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_samples_of_a_copula_pass_ks(dof):
    d, m = _copula(seed=5, dof=dof, spread=3.0)
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
    d, m = _copula(n_targets=3)
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


def test_copula_rejects_what_does_not_fit():
    _, m = _copula()
    for R in (np.eye(2), np.ones(3), np.stack([np.eye(3)] * 3)):
        with pytest.raises(ValueError, match="does not fit"):
            CopulaDistribution(m, R, 5.0)
    for R in (2.0 * np.eye(3), np.full((3, 3), np.nan), np.eye(3) + np.triu(np.full((3, 3), 0.1), 1)):
        with pytest.raises(ValueError, match="correlation matrix"):
            CopulaDistribution(m, R, 5.0)
    for dof in (0.0, -1.0, np.nan, np.ones(5)):
        with pytest.raises(ValueError, match="dof"):
            CopulaDistribution(m, np.eye(3), dof)


def test_one_output_is_its_marginal():
    d, m = _copula(n_targets=1)
    Y = np.array([[0.3], [-2.0]])
    assert_allclose(d.log_pdf(Y), m.log_pdf(Y)[:, 0], rtol=1e-12)
    assert_array_equal(d.cov, d.std[:, :, np.newaxis] ** 2)
    assert d.sample(3, seed=0).shape == (3, 2, 1)


def test_degrees_of_freedom_may_differ_between_rows():
    _, m = _copula(n_rows=3)
    R = random_correlation(np.random.default_rng(1), 3)
    dofs = np.array([3.0, np.inf, 10.0])
    d = CopulaDistribution(m, R, dofs)
    Y = m.quantile(0.2)
    for i, dof in enumerate(dofs):
        alone = CopulaDistribution(m.take(np.array([i])), R, dof)
        assert_allclose(d.log_pdf(Y)[i], alone.log_pdf(Y[[i]])[0], rtol=1e-11)
        assert_allclose(d.cov[i], alone.cov[0], rtol=1e-11)
        assert_allclose(d[i].condition({0: 1.0}).std, alone.condition({0: 1.0}).std, rtol=1e-11)


# -----------------------------------------------------------------------------------------------------------
# What both have in common


NAMES = ("wind", "power", ("temperature", 1))


def _both() -> list[Distribution]:
    distribution = nested_law()
    R = random_correlation(np.random.default_rng(0), 3, 4)
    return [MixtureDistribution(distribution, NAMES), CopulaDistribution(distribution.marginals(), R, 7.0, NAMES)]


@pytest.fixture(params=["mixture", "copula", "conditioned mixture", "conditioned copula"])
def dist(request):
    mixture, copula = _both()
    d = mixture if "mixture" in request.param else copula
    return d.condition({"power": [0.1, 0.2, -0.3, 1.0]}) if "conditioned" in request.param else d


def test_cdf_and_quantile_are_inverse(dist):
    levels = [1e-6, 0.05, 0.5, 0.9, 1 - 1e-6]
    y = dist.quantile(levels)
    assert y.shape == (5, dist.n_rows, dist.n_targets)
    for level, values in zip(levels, y, strict=True):
        assert_allclose(dist.cdf(values), level, rtol=1e-9)
        assert_array_equal(dist.quantile(level), values)
    assert (np.diff(y, axis=0) > 0).all()


def test_interval_is_made_of_quantiles(dist):
    lower, upper = dist.interval(0.8)
    assert_allclose(lower, dist.quantile(0.1), rtol=1e-12)
    assert_allclose(upper, dist.quantile(0.9), rtol=1e-12)
    for level in (0.0, 1.0, 1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match="level"):
            dist.interval(level)


def test_cdf_is_the_integral_of_the_density(dist):
    row = dist[1]
    y = row.quantile(0.7)

    def density(t, p):
        return np.exp(row.log_pdf_each(np.full((1, row.n_targets), t))[0, p])

    for p in range(dist.n_targets):
        assert_allclose(quad(density, -np.inf, y[0, p], args=(p,), limit=300)[0], 0.7, rtol=1e-5)


def test_moments_and_samples_agree(dist):
    draws = dist.sample(30_000, seed=0)
    assert draws.shape == (30_000, dist.n_rows, dist.n_targets)
    assert_allclose(draws.mean(axis=0), dist.mean, atol=0.04 * dist.std.max())
    assert_allclose(np.sqrt(np.diagonal(dist.cov, axis1=1, axis2=2)), dist.std, rtol=1e-9)
    # Quantiles, which exist whatever the tails are.
    inside = (draws <= dist.quantile(0.25)).mean(axis=0)
    assert_allclose(inside, 0.25, atol=0.015)
    assert_array_equal(dist.sample(2, seed=5), dist.sample(2, seed=np.random.default_rng(5)))


def test_rows_are_sliced(dist):
    Y = with_gaps(np.random.default_rng(0), dist.quantile(0.4))
    assert len(dist) == 4
    for rows in (slice(1, 3), [3, 0], np.array([True, False, False, True]), slice(None, None, -1), -1, 2):
        part = dist[rows]
        at = np.atleast_1d(np.arange(4)[rows])
        assert type(part) is type(dist) and part.targets == dist.targets and len(part) == at.size
        assert_allclose(part.log_pdf(Y[at]), dist.log_pdf(Y)[at], rtol=1e-11, atol=1e-12)
        assert_allclose(part.log_pdf_each(Y[at]), dist.log_pdf_each(Y)[at], rtol=1e-11, atol=1e-12)
        assert_allclose(part.mean, dist.mean[at], rtol=1e-10, atol=1e-12)
        assert_allclose(part.std, dist.std[at], rtol=1e-10)
        assert_allclose(part.cov, dist.cov[at], rtol=1e-9, atol=1e-10)
        assert_allclose(part.quantile([0.1, 0.7]), dist.quantile([0.1, 0.7])[:, at], rtol=1e-9, atol=1e-12)
    assert [len(row) for row in dist] == [1, 1, 1, 1]
    with pytest.raises(IndexError):
        dist[4]
    with pytest.raises(IndexError, match="only rows"):
        dist[np.zeros((2, 2), dtype=int)]


def test_nothing_observed_has_density_one(dist):
    nothing = np.full((dist.n_rows, dist.n_targets), np.nan)
    assert_allclose(dist.log_pdf(nothing), 0.0, atol=1e-15)
    assert_array_equal(dist.log_pdf_each(nothing), 0.0)
    assert np.isnan(dist.cdf(nothing)).all()
    assert dist.condition(nothing) is dist


def test_no_rows(dist):
    empty = dist[:0]
    P = dist.n_targets
    nothing = np.zeros((0, P))
    assert len(empty) == 0 and empty.mean.shape == empty.std.shape == (0, P) and empty.cov.shape == (0, P, P)
    assert empty.log_pdf(nothing).shape == (0,) and empty.log_pdf_each(nothing).shape == (0, P)
    assert empty.cdf(nothing).shape == (0, P) and empty.quantile([0.1, 0.2]).shape == (2, 0, P)
    assert empty.sample(3, seed=0).shape == (3, 0, P) and empty.sample(100, seed=0).shape == (100, 0, P)
    assert empty.interval(0.5)[0].shape == (0, P)
    conditioned = empty.condition({0: 1.0})
    assert conditioned.mean.shape == (0, P - 1) and conditioned.cov.shape == (0, P - 1, P - 1)
    assert "0 rows" in repr(empty)
    assert dist.sample(0).shape == (0, 4, P) and dist.quantile([]).shape == (0, 4, P)


def test_known_outputs_by_name_position_or_array():
    for d in _both():
        value = np.array([0.1, -0.5, 0.0, 2.0])
        array = np.full((4, 3), np.nan)
        array[:, 1] = value
        variants = [d.condition({"power": value}), d.condition({1: value}), d.condition(array)]
        for c in variants:
            assert c.targets == ("wind", ("temperature", 1))
            assert_array_equal(c.quantile(0.3), variants[0].quantile(0.3))
        last = d.condition({("temperature", 1): 0.5, "wind": 0.0})
        assert last.targets == ("power",)
        assert_allclose(last.mean, d.condition({0: np.zeros(4), 2: np.full(4, 0.5)}).mean)


def test_distributions_reject_what_does_not_fit(dist):
    P = dist.n_targets
    for method in (dist.log_pdf, dist.log_pdf_each, dist.cdf):
        for shape in ((4,), (3, P), (4, P + 1), (1, 4, P)):
            with pytest.raises(ValueError, match="shape"):
                method(np.zeros(shape))
    for q in (0.0, 1.0, -0.5, np.nan, [0.5, 1.0]):
        with pytest.raises(ValueError, match="inside"):
            dist.quantile(q)
    with pytest.raises(ValueError, match="sequence"):
        dist.quantile(np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="negative"):
        dist.sample(-1)
    for key in ("unknown", 7, -1, True, None):
        with pytest.raises(ValueError, match="unknown target"):
            dist.condition({key: 1.0})
    with pytest.raises(ValueError, match="need shape"):
        dist.condition({"wind": [1.0, 2.0]})
    with pytest.raises(ValueError, match="contain NaN"):
        dist.condition({"wind": [1.0, 2.0, np.nan, 3.0]})
    with pytest.raises(ValueError, match="finite"):
        dist.condition({"wind": np.inf})
    with pytest.raises(ValueError, match="nothing is left"):
        dist.condition(np.zeros((4, P)))
    mixed = np.zeros((4, P))
    mixed[0, 0] = np.nan
    mixed[1:, 1] = np.nan
    with pytest.raises(ValueError, match="all rows"):
        dist.condition(mixed)


def test_targets_must_fit():
    with pytest.raises(ValueError, match="2 target names for 3 outputs"):
        MixtureDistribution(nested_law(), ("a", "b"))
    assert MixtureDistribution(nested_law()).condition({0: 1.0}).targets is None


def test_repr_shows_the_first_rows_and_outputs():
    rng = np.random.default_rng(0)
    distribution = StudentT(rng.normal(size=(9, 8)), np.eye(8), np.inf)
    text = repr(MixtureDistribution(distribution))
    assert text.startswith("MixtureDistribution: 9 rows, 8 outputs")
    assert text.count("±") == 1 + 5 * 6 and text.endswith("...")
    text = repr(MixtureDistribution(StudentT([[1.5]], [[4.0]], np.inf), ["power"]))
    assert text == "MixtureDistribution: 1 row, 1 output, mean ± std\n    power\n  1.5 ± 2"
    assert repr(distribution) == "StudentT(9 rows, 8 outputs)"
    assert repr(distribution.marginals()) == "Marginals(9 rows, 1 components, 8 outputs)"


def test_a_law_of_any_kind_is_a_law():
    assert all(issubclass(kind, Multivariate) for kind in (StudentT, Product, Mixture, Routed))


# -----------------------------------------------------------------------------------------------------------
# Continuous ranked probability score


def mean_distance(y, dof):
    """E|T - y| of a standard Student-t, in closed form."""
    distribution = stats.norm if np.isinf(dof) else stats.t(dof)
    stretch = 1.0 if np.isinf(dof) else (dof + y**2) / (dof - 1.0)
    return y * (2.0 * distribution.cdf(y) - 1.0) + 2.0 * distribution.pdf(y) * stretch


def expected_crps(m, y, row=0, target=0):
    """E|Y - y| - E|Y - Y'| / 2, pair by pair of components; the narrower one is integrated over."""
    w, mean, scale, dof = (a[row, :, target] for a in m._arrays)

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
    padded = Marginals(*(np.concatenate([a, b], axis=1) for a, b in zip(m._arrays, padding, strict=True)))
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


def test_crps_is_twice_the_mean_pinball_loss(dist):
    Y = with_gaps(np.random.default_rng(0), dist.quantile(0.35))
    scores = np.linspace(-7.0, 7.0, 2001)
    q = stats.norm.cdf(scores)
    weights = stats.norm.pdf(scores) * (scores[1] - scores[0])
    gap = Y - dist.quantile(q)
    pinball = np.maximum(q[:, np.newaxis, np.newaxis] * gap, (q - 1.0)[:, np.newaxis, np.newaxis] * gap)
    expected = 2.0 * np.tensordot(weights, pinball, 1)
    crps = dist.crps(Y)
    assert_allclose(crps, expected, rtol=2e-5)
    assert_array_equal(np.isnan(crps), np.isnan(Y))
    # What distributions inherit that know no better way.
    assert_allclose(Distribution._crps(dist, Y), expected, rtol=2e-5)


def test_crps_of_infinite_values_and_of_no_rows(dist):
    assert np.isposinf(dist.crps(np.full((4, dist.n_targets), -np.inf))).all()
    assert dist[:0].crps(np.zeros((0, dist.n_targets))).shape == (0, dist.n_targets)
    with pytest.raises(ValueError, match="shape"):
        dist.crps(np.zeros(4))


def test_crps_of_a_conditioned_law_that_jumps():
    rng = np.random.default_rng(4)
    m = random_marginals(rng, 2, 4, 2, spread=300.0)
    given = CopulaDistribution(m, [[1.0, 0.9], [0.9, 1.0]], 6.0).condition({0: m.mean[:, 0]})
    y = given.quantile(0.2)
    q = stats.norm.cdf(np.linspace(-8.0, 8.0, 8001))[:, np.newaxis, np.newaxis]
    edges = np.sort(np.concatenate([given.quantile(q.ravel()), y[np.newaxis]]), axis=0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    missed = np.array([given.cdf(x) for x in middle]) - (middle > y)
    assert_allclose(given.crps(y), (np.diff(edges, axis=0) * missed**2).sum(axis=0), rtol=1e-4)
