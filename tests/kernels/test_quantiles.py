"""Quantiles, tail probabilities and densities of tabulated mixtures equal those of the exact code."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions import tabulated
from momostream.distributions.marginals import Marginals
from momostream.distributions.tabulated import TABULATED
from tests import naive

PROBABILITIES = np.array([1e-200, 1e-100, 1e-12, 1e-4, 0.025, 0.05, 0.25, 0.5])
if tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 17):
    # Earlier versions invert the t distribution wrongly so deep in its tail, so that there is nothing to compare with.
    PROBABILITIES = PROBABILITIES[1:]


def components(kind, n, K, rng):
    w = rng.dirichlet(np.full(K, 0.5), size=n)[:, :, np.newaxis]
    m, s = rng.normal(size=(n, K, 1)), np.exp(rng.normal(size=(n, K, 1)))
    v = rng.choice(TABULATED, size=(n, K, 1))
    if kind in ("far apart", "far apart and narrow"):
        m *= 10.0 ** rng.uniform(0.0, 8.0, size=m.shape)
    if kind in ("narrow and wide", "far apart and narrow"):
        s = 10.0 ** rng.uniform(-8.0, 6.0, size=s.shape)
    if kind == "far from zero":
        m += 1e6
    if kind == "tiny weights":
        w = 10.0 ** rng.uniform(-30.0, 0.0, size=w.shape)
        w /= w.sum(axis=1, keepdims=True)
    if kind == "equal":
        m[:], s[:], v[:] = m[:, :1], s[:, :1], v[:, :1]
    if kind == "padded":
        w[:, 1:] *= rng.random((n, K - 1, 1)) < 0.5
        w /= w.sum(axis=1, keepdims=True)
    return w, m, s, v


KINDS = (
    "usual", "far apart", "narrow and wide", "far apart and narrow", "far from zero", "tiny weights", "equal", "padded",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("K", [2, 5, 9])
def test_quantiles_equal_the_exact_ones(kind, K, rng):
    mixture = components(kind, 12, K, rng)
    exact = Marginals(*mixture)
    p = np.broadcast_to(PROBABILITIES[:, np.newaxis, np.newaxis], (PROBABILITIES.size, 12, 1))
    for sign in (1.0, -1.0):
        found, n_missed = tabulated.quantiles(p, np.full(p.shape, sign), mixture)
        expected = exact._tail_quantile(p, np.full(p.shape, sign < 0.0))
        # The length over which the tail falls, which is the scale of the distribution there; and rounding.
        scale = np.exp(np.log(p) - exact._log_pdf(expected))
        rounding = 1e-15 * (np.abs(expected) + np.abs(mixture[1]).max(axis=1))
        assert n_missed == 0
        assert (np.abs(found - expected) <= 1e-9 * scale + rounding).all()


def test_a_component_of_hardly_any_weight_may_lie_anywhere():
    # Fails while a bracket of 1e122 is halved until it is one of 1e21.
    w, m, s, v = np.array([[9e-25, 1.0], [-5.8e122, -5.1e20], [9.8e64, 1.3e21], [2.5, 2.5]])[
        :, np.newaxis, :, np.newaxis
    ]
    p = np.full((1, 1, 1), 1e-4)
    alone = Marginals(w[:, 1:], m[:, 1:], s[:, 1:], v[:, 1:])
    for sign in (1.0, -1.0):
        found, n_missed = tabulated.quantiles(p, np.full(p.shape, sign), (w, m, s, v))
        assert n_missed == 0
        assert_allclose(found, alone.tail_quantile(p, np.full(p.shape, sign < 0.0)), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_tails_and_densities_equal_the_exact_ones(kind, rng):
    mixture = components(kind, 12, 5, rng)
    exact = Marginals(*mixture)
    # Where the components are, and between them.
    Y = np.stack([mixture[1][:, k] + z * mixture[2][:, k] for k in range(5) for z in (-30.0, -3.0, 0.0, 0.1, 2.0)])
    Y[3, 2] = np.nan
    lower, upper, n_missed = tabulated.tails(Y, mixture)
    assert n_missed == 0
    assert_allclose([lower, upper], naive.mixture_tails(Y, *mixture), rtol=1e-10, atol=1e-290)
    density, n_missed = tabulated.log_pdf(Y, mixture)
    assert n_missed == 0
    assert_allclose(density, exact._log_pdf(Y), rtol=1e-13, atol=1e-13)


def test_infinite_values_have_no_tail(rng):
    mixture = components("usual", 1, 4, rng)
    lower, upper, _ = tabulated.tails(np.array([[[-np.inf]], [[np.inf]]]), mixture)
    assert_allclose(lower.ravel(), [0.0, 1.0], rtol=1e-15)
    assert_allclose(upper.ravel(), [1.0, 0.0], rtol=1e-15)


def test_other_degrees_of_freedom_are_left_to_the_exact_code(rng):
    w, m, s, v = components("usual", 3, 4, rng)
    v[1, 2] = 3.0
    p = np.full((3, 1), 0.1)
    found, n_missed = tabulated.quantiles(p, np.ones((3, 1)), (w, m, s, v))
    assert n_missed == 1
    assert_array_equal(np.isnan(found).ravel(), [False, True, False])
    marginals = Marginals(w, m, s, v)
    whole = marginals.tail_quantile(p, p < 0.0)
    assert_array_equal(whole[[0, 2]], found[[0, 2]])
    assert_allclose(marginals._tails(whole)[0], p, rtol=1e-9)
    assert_allclose(marginals.cdf(whole), p, rtol=1e-9)
    assert_array_equal(marginals.log_pdf(whole)[1], marginals._log_pdf(whole)[1])


def test_components_that_are_not_valid_are_left_alone():
    good = tuple(np.full((1, 2, 1), a) for a in (0.5, 0.0, 1.0, 4.0))
    for which, bad in ((0, -0.5), (0, np.nan), (1, np.nan), (2, -1.0), (2, np.nan), (3, np.nan)):
        mixture = tuple(np.array(a) for a in good)
        mixture[which][0, 1, 0] = bad
        found, n_missed = tabulated.quantiles(np.full((1, 1), 0.1), np.ones((1, 1)), mixture)
        assert n_missed == 1
        assert np.isnan(found).all()


def test_lumps_of_probability():
    # Half of the probability lies at 0 exactly, a quarter at 3, the rest around 0.
    w, m, s, v = (
        np.reshape(a, (1, 3, 1)) for a in ([0.5, 0.25, 0.25], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0], [8.0, 8.0, np.inf])
    )
    levels = np.array([0.1, 0.2, 0.3, 0.5]).reshape(-1, 1, 1)
    below, n_missed = tabulated.quantiles(levels, np.ones(levels.shape), (w, m, s, v))
    above, _ = tabulated.quantiles(levels, -np.ones(levels.shape), (w, m, s, v))
    assert n_missed == 0
    # P(Y < 0) = 0.125, P(Y <= 0) = 0.625; P(Y >= 3) = 0.25 and a little.
    assert_allclose(below.ravel(), [-0.2533471031357997, 0.0, 0.0, 0.0], rtol=1e-9)
    assert_array_equal(above.ravel()[[0, 1, 3]], [3.0, 3.0, 0.0])
    assert 0.0 < above.ravel()[2] < 3.0
    lower, upper, _ = tabulated.tails(np.array([[[-1e-9]], [[0.0]], [[3.0]]]), (w, m, s, v))
    assert_allclose(lower.ravel(), [0.125, 0.625, 0.99966252], rtol=1e-8)
    assert_allclose(lower + upper, 1.0, rtol=1e-15)


def test_only_lumps():
    w, m, s, v = (np.reshape(a, (1, 2, 1)) for a in ([0.3, 0.7], [1.0, 2.0], [0.0, 0.0], [4.0, 4.0]))
    levels = np.array([0.2, 0.3, 0.31, 0.5]).reshape(-1, 1, 1)
    found, _ = tabulated.quantiles(levels, np.ones(levels.shape), (w, m, s, v))
    assert_array_equal(found.ravel(), [1.0, 1.0, 2.0, 2.0])


def test_no_rows():
    empty = tuple(np.ones((0, 2, 3)) for _ in range(4))
    found, n_missed = tabulated.quantiles(np.full((2, 0, 3), 0.1), np.ones((2, 0, 3)), empty)
    assert found.shape == (2, 0, 3)
    assert n_missed == 0
