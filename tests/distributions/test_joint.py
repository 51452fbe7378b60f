"""Promises that every joint distribution keeps, mixture or copula, conditioned or not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import Distribution, MixtureDistribution
from momostream.distributions.mixtures import StudentT
from tests.distributions.drawn import nested_distribution, random_correlation, with_gaps

NAMES = ("wind", "power", ("temperature", 1))


def both() -> list[Distribution]:
    distribution = nested_distribution()
    R = random_correlation(np.random.default_rng(0), 3, 4)
    return [MixtureDistribution(distribution, NAMES), CopulaDistribution(distribution.marginals(), R, 7.0, NAMES)]


@pytest.fixture(params=["mixture", "copula", "conditioned mixture", "conditioned copula"])
def dist(request):
    mixture, copula = both()
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


def test_known_targets_by_name_position_or_array():
    for d in both():
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


def test_wrong_arguments_are_rejected(dist):
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
    with pytest.raises(ValueError, match="2 target names for 3 targets"):
        MixtureDistribution(nested_distribution(), ("a", "b"))
    assert MixtureDistribution(nested_distribution()).condition({0: 1.0}).targets is None


def test_repr_shows_the_first_rows_and_targets():
    rng = np.random.default_rng(0)
    distribution = StudentT(rng.normal(size=(9, 8)), np.eye(8), np.inf)
    text = repr(MixtureDistribution(distribution))
    assert text.startswith("MixtureDistribution: 9 rows, 8 targets")
    assert text.count("±") == 1 + 5 * 6 and text.endswith("...")
    text = repr(MixtureDistribution(StudentT([[1.5]], [[4.0]], np.inf), ["power"]))
    assert text == "MixtureDistribution: 1 row, 1 target, mean ± std\n    power\n  1.5 ± 2"
    assert repr(distribution) == "StudentT(9 rows, 8 targets)"
    assert repr(distribution.marginals()) == "Marginals(9 rows, 1 components, 8 targets)"


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
