"""Bounded and transformed targets against scipy, numerical integration, changes of variables and samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import cumulative_trapezoid, quad
from scipy.special import expit, ndtr

from momostream.distributions.bounded import BoundedMarginals, Target, TargetMap
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.marginals import Marginals
from momostream.distributions.moments import mixture_moments
from tests import naive
from tests.distributions.drawn import EVERY, TARGETS


def mixture(rng, n_rows=1, n_components=3, n_targets=1, least_dof=6.0, spread=1.0):
    """A distribution on the scale of the model."""
    shape = (n_rows, n_components, n_targets)
    weights = rng.dirichlet(np.ones(n_components), size=(n_rows, n_targets)).transpose(0, 2, 1)
    dofs = np.where(rng.random(shape) < 0.3, np.inf, least_dof + rng.exponential(8.0, shape))
    return Marginals(weights, spread * rng.normal(size=shape), 0.5 * np.exp(0.5 * rng.normal(size=shape)), dofs)


def one(target, mean, scale=1.0, dof=np.inf):
    """The distribution of one row and one target with one component."""
    return BoundedMarginals(Marginals(1.0, [[[mean]]], scale, dof), TargetMap([target]))


def model_pdf(base, z):
    """Density of the first row and target, by scipy."""
    w, m, s, v = (a[0, :, 0] for a in (base.weights, base.means, base.scales, base.dofs))
    return sum(
        wk * (stats.norm.pdf(z, mk, sk) if np.isinf(vk) else stats.t.pdf(z, vk, mk, sk))
        for wk, mk, sk, vk in zip(w, m, s, v, strict=True)
    )


def expectation(base, target, function):
    """E function(y) of the first row and target, by integrating over the scale of the model."""
    z = np.sinh(np.linspace(*np.arcsinh(np.clip(target.limits, -1e5, 1e5)), 400_001))
    density = model_pdf(base, z)
    return np.trapezoid(function(target.to_user(z)) * density, z) / np.trapezoid(density, z)


def both_sides(n_rows, n_targets, scores):
    """Tail probabilities and sides of normal scores, for every row and target."""
    scores = np.broadcast_to(np.reshape(scores, (-1, 1, 1)), (np.size(scores), n_rows, n_targets))
    return ndtr(-np.abs(scores)), scores > 0.0


def test_plain_maps_need_no_wrapper(rng):
    base = mixture(rng, n_targets=2)
    assert TargetMap([Target(), Target()]).wrap(base) is base
    assert isinstance(TargetMap([Target(), Target(lower=0.0)]).wrap(base), BoundedMarginals)
    with pytest.raises(ValueError, match="a map of 1 targets for a distribution of 2"):
        BoundedMarginals(base, TargetMap([Target()]))


# -----------------------------------------------------------------------------------------------------------
# One target


def test_truncated_normal():
    distribution, reference = one(Target(0.0, 3.0), -1.0, 2.0), stats.truncnorm(0.5, 2.0, -1.0, 2.0)
    y = np.array([0.0, 0.3, 1.0, 2.9, 3.0]).reshape(-1, 1, 1)
    assert_allclose(distribution.log_pdf(y), reference.logpdf(y), atol=1e-12)
    assert_allclose(distribution.cdf(y), reference.cdf(y), atol=1e-14)
    assert_allclose(distribution.mean, reference.mean(), rtol=1e-12)
    assert_allclose(distribution.variance, reference.var(), rtol=1e-10)
    for q in (0.01, 0.5):
        p = np.array([[q]])
        assert_allclose(distribution.tail_quantile(p, p < 0), reference.ppf(q), rtol=1e-11)
        assert_allclose(distribution.tail_quantile(p, p > 0), reference.isf(q), rtol=1e-11)


def test_lognormal():
    distribution, reference = one(Target(lower=2.0, transform="log"), 0.3, 0.8), stats.lognorm(0.8, 2.0, np.exp(0.3))
    y = np.array([2.001, 2.5, 4.0, 40.0]).reshape(-1, 1, 1)
    assert_allclose(distribution.log_pdf(y), reference.logpdf(y), rtol=1e-12)
    assert_allclose(distribution.tails(y), [reference.cdf(y), reference.sf(y)], rtol=1e-11)
    assert_allclose(distribution.mean, reference.mean(), rtol=1e-12)
    assert_allclose(distribution.variance, reference.var(), rtol=1e-9)


def whole_variance(distribution):
    """Variance of the only target before any cut."""
    components = tuple(part[:, :, 0] for part in distribution._model.arrays)
    (target,) = distribution.targets.targets
    return mixture_moments(target, components, *np.array(target.limits)).variance[:, np.newaxis]


@EVERY
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_moments_against_integration(rng, target, spread):
    base = mixture(rng, spread=spread)
    distribution = BoundedMarginals(base, TargetMap([target]))
    mean = expectation(base, target, lambda y: y)
    assert_allclose(distribution.mean, mean, rtol=1e-5)
    assert_allclose(whole_variance(distribution), expectation(base, target, lambda y: (y - mean) ** 2), rtol=1e-4)
    expected = naive.cut_variance(distribution) if distribution.cut[0, 0] > 0.0 else whole_variance(distribution)
    assert_allclose(distribution.variance, expected, rtol=1e-4)


def test_moments_that_are_hard_to_integrate():
    wide = one(Target(transform="log"), 0.3, 3.0)
    reference = stats.lognorm(3.0, 0.0, np.exp(0.3))
    assert_allclose(wide.mean, reference.mean(), rtol=1e-9)
    assert_allclose(whole_variance(wide), reference.var(), rtol=1e-6)
    # Moments of z up to the fourth, of which there are only 6.
    heavy = one(Target(transform="sqrt"), 0.0, 1.0, 6.0)
    assert_allclose(heavy.mean, 6.0 / 4.0, rtol=1e-5)
    assert_allclose(whole_variance(heavy), 3.0 * 6.0**2 / (4.0 * 2.0) - (6.0 / 4.0) ** 2, rtol=1e-4)
    # A step, seen from far away.
    step = Target(1.0, 3.0, "logit")
    distribution = one(step, -8.5, 0.3, 3.0)
    assert_allclose(
        whole_variance(distribution),
        expectation(distribution.base, step, lambda y: (y - distribution.mean[0, 0]) ** 2),
        rtol=1e-5,
    )
    # The mean is made by the values just below the bound.
    bound = Target(upper=1e6, transform="log")
    distribution = one(bound, 0.0, 1.0, 3.0)
    assert_allclose(distribution.mean, expectation(distribution.base, bound, lambda y: y), rtol=1e-5)


@EVERY
def test_density_is_the_derivative_of_the_probabilities(rng, target):
    base = mixture(rng)
    distribution = BoundedMarginals(base, TargetMap([target]))
    y = distribution.tail_quantile(*both_sides(1, 1, np.linspace(-3.0, 3.0, 9)))
    step = 1e-4 * np.minimum(1.0, np.minimum(y - target.low, target.high - y))
    slope = (distribution.cdf(y + step) - distribution.cdf(y - step)) / (2.0 * step)
    assert_allclose(np.exp(distribution.log_pdf(y)), slope, rtol=1e-4)


@EVERY
def test_density_integrates_to_one(rng, target):
    base = mixture(rng)
    distribution = BoundedMarginals(base, TargetMap([target]))
    edges = distribution.tail_quantile(*both_sides(1, 1, np.linspace(-7.0, 7.0, 141)))[:, 0, 0]
    edges = np.unique(np.concatenate([edges, [b for b in (target.lower, target.upper) if b is not None]]))
    x, w = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(edges)
    y = edges[:-1] + half * (1.0 + x[:, np.newaxis])
    density = np.exp(distribution.log_pdf(y.reshape(-1, 1, 1)).reshape(y.shape))
    assert_allclose((w[:, np.newaxis] * half * density).sum(), 1.0, atol=1e-5)


@EVERY
def test_quantiles_and_probabilities_are_inverse(rng, target):
    base = mixture(rng, n_rows=4)
    distribution = BoundedMarginals(base, TargetMap([target]))
    p, upper = both_sides(4, 1, np.linspace(-5.0, 5.0, 31))
    y = distribution.tail_quantile(p, upper)
    assert (np.diff(y, axis=0) > 0.0).all()
    assert ((y >= target.low) & (y <= target.high)).all()
    below, above = distribution.tails(y)
    assert_allclose(np.where(upper, above, below), p, rtol=1e-7, atol=1e-13)
    assert_allclose(below + above, 1.0, atol=1e-12)


def test_open_tails_keep_their_digits():
    """A bound on one side does not cost digits on the other."""
    p = np.array([[1e-250]])
    bounded, plain = one(Target(lower=-3.0), 0.0), Marginals(1.0, [[[0.0]]], 1.0, np.inf)
    inside = stats.norm.sf(-3.0)
    assert_allclose(bounded.tail_quantile(p, p > 0.0), plain.tail_quantile(inside * p, p > 0.0), rtol=1e-12)
    y = bounded.tail_quantile(p, p > 0.0)
    assert_allclose(bounded.tails(y)[1], p, rtol=1e-9)
    mirrored = one(Target(upper=3.0), 0.0)
    assert_allclose(mirrored.tail_quantile(p, p < 0.0), -y, rtol=1e-14)
    assert_allclose(mirrored.tails(-y)[0], p, rtol=1e-9)


@EVERY
def test_nothing_outside_the_bounds(target):
    distribution = one(target, 0.7, dof=5.0)
    for bound, probability in ((target.low, 0.0), (target.high, 1.0)):
        if np.isfinite(bound):
            outside = np.array(
                [bound - 1e-6 if probability == 0.0 else bound + 1e-6, -1e9 if probability == 0.0 else 1e9]
            )
            assert_array_equal(distribution.log_pdf(outside.reshape(-1, 1, 1)), -np.inf)
            assert_array_equal(distribution.cdf(np.append(outside, bound).reshape(-1, 1, 1)), probability)
    assert_array_equal(distribution.log_pdf([[np.nan]]), 0.0)
    assert np.isnan(distribution.cdf([[np.nan]])).all() and np.isnan(distribution.tails([[np.nan]])).all()


def test_values_where_a_density_is_infinite_count_as_outside():
    assert one(Target(transform="sqrt"), 0.7).log_pdf([[0.0]]) == -np.inf
    assert one(Target(transform="log"), 0.7).log_pdf([[0.0]]) == -np.inf
    assert np.isfinite(one(Target(transform="sqrt", offset=0.1), 0.7).log_pdf([[0.0]]))


def test_values_on_a_bound_keep_finite_scores():
    """Latent values of 1e-300 would make one value at the bound cost hundreds of nats."""
    distribution = one(Target(0.0, 1.0), 0.5)
    assert_array_equal(distribution.tails([[0.0]]), [[[1e-16]], [[1.0]]])
    assert_array_equal(distribution.tails([[1.0]]), [[[1.0]], [[1e-16]]])


def test_moments_that_do_not_exist():
    heavy, light = one(Target(transform="log"), 0.3, 0.5, 50.0), one(Target(transform="log"), 0.3, 0.5)
    assert_allclose(heavy.mean, np.exp(0.3))
    assert_allclose(heavy.variance, naive.cut_variance(heavy), rtol=1e-4)
    assert_array_equal(heavy.crps([[1.0]]), np.inf)
    assert np.isfinite(light.variance).all()
    limited = one(Target(transform="log", upper=1e3), 0.3, 0.5, 50.0)
    assert_allclose(limited.mean, light.mean, rtol=0.02)
    assert_allclose(limited.variance, light.variance, rtol=0.2)
    cases = [(Target(lower=0.0), 2.0), (Target(transform="sqrt"), 4.0), (Target(upper=3.0), 2.0)]
    for target, dof in cases:
        heavy = one(target, 1.0, 1.0, dof)
        assert_allclose(heavy.variance, naive.cut_variance(heavy), rtol=1e-4)
        assert np.isfinite(heavy.mean).all()
    assert np.isfinite(one(Target(0.0, 1.0), 1.0, 1.0, 0.5).variance).all()
    # No mean either: the median.
    cauchy = one(Target(lower=0.0), 0.0, 1.0, 1.0)
    assert_allclose(cauchy.mean, 1.0)
    assert_allclose(one(Target(lower=0.0), 0.0, 1.0, 2.0).mean, np.sqrt(2.0), rtol=1e-5)


@pytest.mark.parametrize("dof", [3.0, 30.0, np.inf])
@pytest.mark.parametrize("distance", [5.0, 25.0, 40.0, 1e4])
def test_distributions_far_outside_the_bounds(distance, dof):
    distribution, mirrored = one(Target(lower=0.0), -distance, dof=dof), one(Target(upper=0.0), distance, dof=dof)
    p, upper = both_sides(1, 1, np.linspace(-4.0, 4.0, 17))
    y = distribution.tail_quantile(p, upper)
    assert (np.diff(y, axis=0) > 0.0).all() and (y > 0.0).all()
    assert_allclose(np.where(upper, *distribution.tails(y)[::-1]), p, rtol=1e-6, atol=1e-12)
    assert_allclose(mirrored.tail_quantile(p, ~upper), -y, rtol=1e-9)
    # Not further than where 1e-8 of it lie inside.
    reference = stats.t(min(dof, 1e12))
    distance = min(distance, reference.isf(1e-8))
    assert_allclose(
        distribution.tail_quantile(p, upper),
        reference.isf((1.0 - distribution.cdf(y)) * reference.sf(distance)) - distance,
    )
    mean = quad(reference.sf, distance, 2.0 * distance)[0] + quad(reference.sf, 2.0 * distance, np.inf)[0]
    assert_allclose(distribution.mean, mean / reference.sf(distance), rtol=1e-4)
    assert_allclose(mirrored.mean, -distribution.mean, rtol=1e-9)
    # Knots and cells cover the distribution.
    probabilities = np.unique(distribution.cdf(distribution.knots()[0]))
    assert np.diff(probabilities).max() < 0.15
    assert np.diff(np.unique(distribution.cdf(distribution.cell_edges()))).max() < 0.8


@pytest.mark.parametrize("distance", [3.0, 10.0, 1e3])
@pytest.mark.parametrize("dof", [4.0, np.inf])
def test_experts_on_either_side_of_the_bounds(distance, dof):
    base = Marginals(0.5, [[[-distance], [1.0 + distance]]], 1.0, dof)
    distribution = BoundedMarginals(base, TargetMap([Target(0.0, 1.0)]))
    assert_allclose(distribution.mean, 0.5, atol=1e-7)
    p, upper = both_sides(1, 1, np.linspace(-3.0, 3.0, 13))
    y = distribution.tail_quantile(p, upper)
    assert (np.diff(y, axis=0) > 0.0).all()
    assert_allclose(y + y[::-1], 1.0, atol=1e-6)
    assert_allclose(distribution.cdf(y), np.where(upper, 1.0 - p, p), atol=1e-6)
    if distance == 3.0:
        assert_allclose(distribution.variance, expectation(base, Target(0.0, 1.0), lambda y: (y - 0.5) ** 2), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e20])
@pytest.mark.parametrize(("distance", "dof"), [(0.5, 4.0), (50.0, np.inf)])
def test_distributions_much_wider_than_the_bounds_are_uniform(scale, distance, dof):
    distribution = one(Target(2.0, 3.0), distance * scale, scale, dof)
    tolerance = 1e-6 if scale > 1e6 else 5e-3
    assert_allclose(distribution.mean, 2.5, atol=tolerance)
    assert_allclose(distribution.variance, 1.0 / 12.0, rtol=tolerance)
    y = np.linspace(2.0, 3.0, 5).reshape(-1, 1, 1)
    assert_allclose(distribution.cdf(y), y - 2.0, atol=tolerance)
    assert_allclose(distribution.log_pdf(y), 0.0, atol=2.0 * tolerance)
    p, upper = both_sides(1, 1, [-1.0, 0.0, 1.0])
    assert_allclose(distribution.tail_quantile(p, upper), 2.0 + np.where(upper, 1.0 - p, p), atol=tolerance)


def test_narrow_components_are_not_missed():
    base = Marginals([[[0.3], [0.7]]], [[[-1.0], [0.5]]], [[[2.0], [1e-7]]], np.inf)
    for target in (Target(lower=0.0), Target(-5.0, 5.0, "logit"), Target(transform="log")):
        distribution = BoundedMarginals(base, TargetMap([target]))
        spike = target.to_user(np.array(0.5))
        wide = BoundedMarginals(base.take(np.array([0])), TargetMap([target]))
        broad = one(target, -1.0, 2.0)
        share = 0.3 * (stats.norm.sf(0.5) if target.transform is None else 1.0)
        assert_allclose(distribution.mean, (0.7 * spike + share * broad.mean) / (0.7 + share), rtol=1e-6)
        assert_allclose(wide.mean, distribution.mean)


def test_crps_of_known_distributions():
    y = np.array([0.05, 0.6, 2.0, 9.0])
    uniform = BoundedMarginals(Marginals(1.0, np.zeros((4, 1, 1)), 1e9, 5.0), TargetMap([Target(0.0, 10.0)]))
    assert_allclose(uniform.crps(y[:, np.newaxis])[:, 0], (y**3 + (10.0 - y) ** 3) / 300.0, rtol=1e-6)
    m, s = 0.3, 0.8
    lognormal = BoundedMarginals(Marginals(1.0, np.full((4, 1, 1), m), s, np.inf), TargetMap([Target(transform="log")]))
    z = (np.log(y) - m) / s
    exact = y * (2.0 * ndtr(z) - 1.0) - 2.0 * np.exp(m + 0.5 * s**2) * (ndtr(z - s) + ndtr(s / np.sqrt(2.0)) - 1.0)
    assert_allclose(lognormal.crps(y[:, np.newaxis])[:, 0], exact, rtol=1e-7)
    # Six decades of y, all of them in the far tail of the component.
    target = Target(upper=1e4, transform="log", offset=0.1)
    distribution = one(target, -10.4, 0.1, 3.0)
    z = np.linspace(*target.limits, 400_001)
    F = cumulative_trapezoid(model_pdf(distribution.base, z), z, initial=0.0)
    values = target.to_user(z)
    exact = np.trapezoid((F / F[-1] - (values >= 0.2)) ** 2, values)
    assert_allclose(distribution.crps([[0.2]]), exact, rtol=1e-3)


@EVERY
def test_crps_against_the_energy_form(rng, target):
    base = mixture(rng)
    distribution = BoundedMarginals(base, TargetMap([target]))
    n = 4000
    u = (np.arange(n) + 0.5) / n
    draws = distribution.tail_quantile(np.minimum(u, 1.0 - u).reshape(-1, 1, 1), (u > 0.5).reshape(-1, 1, 1))[:, 0, 0]
    for y in (draws[100], draws[2000], draws[3900], target.low - 1.0 if target.low > -np.inf else -9.0):
        # E|Y - y| - E|Y - Y'| / 2, the second from the order of the draws.
        energy = np.abs(draws - y).mean() - (draws * (2.0 * np.arange(n) + 1.0 - n)).sum() / n**2
        assert_allclose(distribution.crps([[y]]), energy, rtol=5e-3)
    assert np.isnan(distribution.crps([[np.nan]])).all()


@EVERY
def test_samples_follow_the_distribution(rng, target):
    base = mixture(rng, n_rows=2)
    distribution = BoundedMarginals(base, TargetMap([target]))
    n = 20_000
    draws = distribution.sample(n, rng)
    assert draws.shape == (n, 2, 1)
    assert ((draws >= target.low) & (draws <= target.high)).all()
    for q in (0.05, 0.3, 0.7, 0.95):
        p = np.full((2, 1), min(q, 1.0 - q))
        found = (draws < distribution.tail_quantile(p, np.full((2, 1), q > 0.5))).mean(axis=0)
        assert_allclose(found, q, atol=4.0 * np.sqrt(q * (1.0 - q) / n))


# -----------------------------------------------------------------------------------------------------------
# Several rows and targets


def test_plain_targets_are_untouched(rng):
    """To the last bit, whatever happens to the others."""
    base = mixture(rng, n_rows=3, n_targets=4, spread=2.0)
    distribution = BoundedMarginals(
        base, TargetMap([Target(), Target(lower=0.5), Target(), Target(transform="log", upper=9.0)])
    )
    plain = [0, 2]
    Y = rng.normal(size=(5, 3, 4))
    p, upper = both_sides(3, 4, np.linspace(-6.0, 6.0, 7))
    few, many = both_sides(3, 4, 0.0), both_sides(3, 4, np.linspace(-6.0, 6.0, 100))
    pairs = [
        (distribution.mean, base.mean),
        (distribution.variance, base.variance),
        (distribution.log_pdf(Y), base.log_pdf(Y)),
        (distribution.cdf(Y), base.cdf(Y)),
        (distribution.crps(Y[0]), base.crps(Y[0])),
        (distribution.cell_edges(), base.cell_edges()),
        (distribution.sample(4, np.random.default_rng(3)), base.sample(4, np.random.default_rng(3))),
        *zip(distribution.tails(Y), base.tails(Y), strict=True),
        *zip(distribution.knots(), base.knots(), strict=True),
        *(
            (distribution.tail_quantile(*level), base.tail_quantile(*level))
            for level in ((p, upper), (p, ~upper), few, many)
        ),
    ]
    for ours, theirs in pairs:
        assert_array_equal(ours[..., plain], theirs[..., plain])
        assert (ours[..., [1, 3]] != theirs[..., [1, 3]]).any()


def test_rows_and_targets_are_treated_one_by_one(rng):
    base = mixture(rng, n_rows=5, n_targets=len(TARGETS), spread=3.0)
    distribution = BoundedMarginals(base, TargetMap(TARGETS))
    rows, positions = np.array([4, 1]), np.array([7, 0, 3])
    part = distribution.take(rows).select(positions)
    at = np.ix_(rows, positions)
    Y = distribution.tail_quantile(*both_sides(5, len(TARGETS), 0.4))[0]
    assert_array_equal(part.mean, distribution.mean[at])
    assert_array_equal(part.variance, distribution.variance[at])
    assert_array_equal(part.cdf(Y[at]), distribution.cdf(Y)[at])
    assert_array_equal(part.log_pdf(Y[at]), distribution.log_pdf(Y)[at])
    assert_allclose(part.crps(Y[at]), distribution.crps(Y)[at], rtol=1e-12)
    assert repr(part) == "BoundedMarginals(2 rows, 3 components, 3 targets)"


def test_no_rows():
    distribution = BoundedMarginals(
        Marginals(1.0, np.zeros((0, 1, 2)), 1.0, 5.0), TargetMap([Target(lower=0.0), Target()])
    )
    assert distribution.mean.shape == distribution.variance.shape == distribution.crps(np.zeros((0, 2))).shape == (0, 2)
    assert distribution.sample(3, np.random.default_rng(0)).shape == (3, 0, 2)


@given(
    means=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
    log_scales=st.lists(st.floats(-20.0, 20.0), min_size=2, max_size=2),
    dofs=st.lists(st.sampled_from([1.5, 2.0, 3.0, 40.0, np.inf]), min_size=2, max_size=2),
    target=st.sampled_from(TARGETS),
)
def test_any_distribution_stays_within_its_bounds(means, log_scales, dofs, target):
    arrays = (np.reshape(a, (1, 2, 1)) for a in ([0.5, 0.5], means, np.exp(log_scales), dofs))
    distribution = BoundedMarginals(Marginals(*arrays), TargetMap([target]))
    y = distribution.tail_quantile(*both_sides(1, 1, np.linspace(-8.0, 8.0, 17)))
    assert (np.diff(y, axis=0) >= 0.0).all()
    assert ((y >= target.low) & (y <= target.high)).all()
    assert ((distribution.mean >= target.low) & (distribution.mean <= target.high)).all()
    assert (distribution.variance >= 0.0).all()
    knots, lower, upper = distribution.knots()
    assert (np.diff(knots, axis=0) >= 0.0).all()
    assert (np.diff(lower, axis=0) >= -1e-9).all() and (np.diff(upper, axis=0) <= 1e-9).all()
    assert not np.isnan(distribution.log_pdf(y)).any()


# -----------------------------------------------------------------------------------------------------------
# With a copula on top

R = np.array([[1.0, 0.7, -0.4], [0.7, 1.0, 0.1], [-0.4, 0.1, 1.0]])


def copulas(base, targets, dof=7.0):
    """The distribution on the scale of the model, and that in the user's units."""
    return CopulaDistribution(base, R, dof), CopulaDistribution(BoundedMarginals(base, TargetMap(targets)), R, dof)


def test_monotone_maps_carry_the_whole_distribution_along(rng):
    """Without truncation every quantity follows from that of the model by a change of variables."""
    base = mixture(rng, n_rows=2, n_targets=3)
    model, user = copulas(base, [Target(transform="log"), Target(), Target(0.0, 1.0, "logit")])
    z = rng.normal(size=(2, 3))

    def carry(z):
        return np.stack([np.exp(z[..., 0]), z[..., 1], expit(z[..., 2])], axis=-1)

    y = carry(z)
    log_slope = -z[:, 0] - np.log(expit(z[:, 2]) * expit(-z[:, 2]))
    assert_allclose(user.log_pdf(y), model.log_pdf(z) + log_slope, rtol=1e-9)
    assert_allclose(user.cdf(y), model.cdf(z), rtol=1e-10)
    assert_allclose(user.quantile([0.01, 0.5, 0.9]), carry(model.quantile([0.01, 0.5, 0.9])), rtol=1e-12)
    assert_allclose(user.sample(50, seed=1), carry(model.sample(50, seed=1)), rtol=1e-12)
    given_user, given_model = user.condition({0: y[:, 0]}), model.condition({0: z[:, 0]})
    expected = given_model.quantile([0.05, 0.5, 0.95])
    assert_allclose(given_user.quantile([0.05, 0.5, 0.95])[..., 0], expected[..., 0], rtol=1e-8)
    assert_allclose(given_user.quantile([0.05, 0.5, 0.95])[..., 1], expit(expected[..., 1]), rtol=1e-8)


def test_the_copula_sees_the_same_probabilities(rng):
    base = mixture(rng, n_rows=2, n_targets=3)
    model, user = copulas(base, [Target(lower=0.5), Target(upper=1.0, transform="log"), Target(0.0, 1.0)])
    u_model = base.cdf(model.sample(200, seed=1))
    u_user = user._marginals.cdf(user.sample(200, seed=1))
    assert_allclose(u_user, u_model, atol=1e-9)


@pytest.mark.parametrize("dof", [7.0, np.inf])
def test_one_distribution_with_a_copula(dof):
    rng = np.random.default_rng(5)
    base = mixture(rng, n_rows=2, n_targets=3, least_dof=9.0, spread=0.5)
    targets = [Target(lower=0.2), Target(upper=20.0, transform="log"), Target(-1.0, 1.0)]
    _, user = copulas(base, targets, dof)
    n = 100_000
    draws = user.sample(n, seed=2)
    lower, upper = user.interval(0.9)
    for j, target in enumerate(targets):
        for values in (draws[..., j], lower[:, j], upper[:, j], user.mean[:, j]):
            assert ((values >= target.low) & (values <= target.high)).all()
    assert_allclose(((draws > lower) & (draws < upper)).mean(axis=0), 0.9, atol=4e-3)
    assert_allclose(user.mean, draws.mean(axis=0), atol=5.0 * user.std.max() / np.sqrt(n))
    for i in range(2):
        sampled = np.cov(draws[:, i].T)
        scale = np.sqrt(np.outer(np.diag(sampled), np.diag(sampled)))
        assert_allclose(user.cov[i] / scale, sampled / scale, atol=0.04)
        assert (np.linalg.eigvalsh(user.cov[i]) > 0.0).all()

    # Given the first target: draws near it.
    at = np.median(draws[:, :, 0], axis=0)
    rest = user.condition({0: at})
    for i in range(2):
        near = draws[np.argsort(np.abs(draws[:, i, 0] - at[i]))[:4000], i, 1:]
        error = near.std(axis=0) / np.sqrt(4000)
        assert (np.abs(rest.mean[i] - near.mean(axis=0)) < 5.0 * error).all()
        assert_allclose(rest.std[i], near.std(axis=0), rtol=0.15)
        assert_allclose((near < rest.quantile(0.3)[i]).mean(axis=0), 0.3, atol=0.03)
    assert (rest.mean <= [20.0, 1.0]).all() and np.isfinite(rest.cov).all()
    assert np.isfinite(rest.crps(rest.mean)).all()


def test_joint_density_integrates_to_one():
    rng = np.random.default_rng(1)
    base = mixture(rng, n_targets=2, n_components=2)
    distribution = BoundedMarginals(base, TargetMap([Target(0.0, 1.5), Target(0.0, 2.0, "sqrt", 0.1)]))
    joint = CopulaDistribution(distribution, R[:2, :2], 5.0)
    x, w = np.polynomial.legendre.leggauss(80)
    a, b = np.meshgrid(0.75 * (1.0 + x), 1.0 + x, indexing="ij")
    rows = np.zeros(a.size, dtype=np.intp)
    density = np.exp(joint[rows].log_pdf(np.stack([a.ravel(), b.ravel()], axis=1)))
    assert_allclose((np.outer(0.75 * w, w).ravel() * density).sum(), 1.0, atol=2e-3)
    outside = joint.log_pdf([[1.6, 1.0]])
    assert_array_equal(outside, -np.inf)
    assert np.isfinite(joint.log_pdf([[0.0, np.nan]])).all()
    assert np.isfinite(joint.log_pdf([[0.0, 2.0]])).all()


def test_targets_without_moments_do_not_spoil_the_others(rng):
    base = mixture(rng, n_targets=3)
    heavy = Marginals(base.weights, base.means, base.scales, 8.0)
    model, user = copulas(heavy, [Target(), Target(), Target(transform="log")])
    assert_array_equal(user.mean[:, :2], model.mean[:, :2])
    assert_allclose(user.cov[:, :2, :2], model.cov[:, :2, :2], rtol=1e-9)
    assert_allclose(user.std[:, 2] ** 2, naive.cut_variance(user._marginals)[:, 2], rtol=1e-4)
    assert np.isfinite(user.cov).all()
    assert_allclose(user.mean[:, 2], user.quantile(0.5)[:, 2])
