"""Warps: increasing, blind to increasing maps of the covariate, and harmless where there is little to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from momostream.batch.warp import N_KNOTS, Warp

SIZES = [2, 3, 20, 129, 1000]
MAPS = {
    "affine": lambda x: 1e6 * x - 3.0,
    "exponential": lambda x: np.exp(3.0 * x),
    "cubic": lambda x: x**3,
    "saturating": np.tanh,
}


def column(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 1))


def grid_step(n):
    return 2.0 * norm.ppf(1 - 0.5 / n) / (N_KNOTS - 1)


@pytest.mark.parametrize("n", SIZES)
def test_scores_are_normal_scores_of_the_ranks(n):
    x = column(n)
    z = Warp.fit(x)(x)[:, 0]
    ranks = x[:, 0].argsort().argsort()
    assert_allclose(z, norm.ppf((ranks + 0.5) / n), rtol=0, atol=grid_step(n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", MAPS)
def test_increasing_maps_of_the_covariate_do_not_matter(n, name):
    x = column(n)
    mapped = MAPS[name](x)
    plain, other = Warp.fit(x), Warp.fit(mapped)
    # Between rows a knot lies on a straight line, which a bent map does not keep: one step of the grid at most.
    assert_allclose(other(mapped), plain(x), rtol=0, atol=1e-9 if name == "affine" else grid_step(n))
    assert_array_equal(other.scores[0], plain.scores[0])
    ends = np.array([[x.min()], [x.max()]])
    assert_array_equal(plain(ends), other(MAPS[name](ends)))
    assert_array_equal(plain(ends)[:, 0], plain.scores[0][[0, -1]])


def test_exact_at_the_knots():
    warp = Warp.fit(np.exp(column(500)))
    knots = warp.knots[0]
    assert len(knots) == N_KNOTS
    assert_array_equal(warp(knots[:, None])[:, 0], warp.scores[0])
    assert_array_equal(warp.unwarp(0, warp.scores[0]), knots)


def test_columns_do_not_know_each_other():
    X = np.hstack([column(100), np.exp(column(100, seed=1)), np.full((100, 1), 2.0)])
    together = Warp.fit(X)(X)
    for j in range(3):
        assert_array_equal(together[:, [j]], Warp.fit(X[:, [j]])(X[:, [j]]))


def test_no_columns():
    X = np.empty((5, 0))
    assert Warp.fit(X)(X).shape == (5, 0)


@settings(max_examples=100)
@given(arrays(float, st.integers(1, 40), elements=st.floats(-1e6, 1e6)), st.integers(0, 3))
def test_always_increasing(values, digits):
    # Rounded, so that ties are common; subnormal gaps between rows would overflow their slope.
    x = np.round(values, digits)[:, None]
    warp = Warp.fit(x)
    low, high = x.min(), x.max()
    asked = np.sort(np.concatenate([x[:, 0], np.linspace(low - 10.0, high + 10.0, 301)]))
    z = warp(asked[:, None])[:, 0]
    assert np.isfinite(z).all()
    assert np.all(np.diff(z) >= -1e-9 * np.abs(z).max())
    assert np.all(np.diff(warp.knots[0]) > 0) and np.all(np.diff(warp.scores[0]) > 0)


@pytest.mark.parametrize("n", SIZES)
def test_extrapolation_continues_without_a_jump(n):
    x = np.exp(column(n))
    warp = Warp.fit(x)
    low, high = x.min(), x.max()
    reach = high - low
    beyond = np.array([low - 5 * reach, low - reach, low - 1e-9 * reach, low])[:, None]
    z = warp(beyond)[:, 0]
    assert np.all(np.diff(z) > 0) and z[3] - z[2] < 1e-6
    beyond = np.array([high, high + 1e-9 * reach, high + reach, high + 5 * reach])[:, None]
    z = warp(beyond)[:, 0]
    assert np.all(np.diff(z) > 0) and z[1] - z[0] < 1e-6
    # A straight line: twice as far is twice the score.
    assert z[3] - z[0] == pytest.approx(5 * (z[2] - z[0]), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_a_constant_covariate(rows):
    warp = Warp.fit(np.full((rows, 1), 4.2))
    assert_array_equal(warp(np.array([[4.2], [5.0], [-1e9], [np.nan]]))[:, 0], [0.0, 1.0, -1.0, np.nan])
    assert_array_equal(warp.unwarp(0, np.array([-1.0, 0.0, 2.0])), 4.2)


def test_ties_share_the_middle_of_their_scores():
    x = np.repeat([0.0, 1.0, 5.0], [50, 30, 20])[:, None]
    z = Warp.fit(x)(np.array([[0.0], [1.0], [5.0]]))[:, 0]
    assert np.all(np.diff(z) > 0)
    for score, (first, last) in zip(z, [(0.0, 0.5), (0.5, 0.8), (0.8, 1.0)], strict=True):
        assert max(norm.ppf(first), norm.ppf(0.005)) <= score <= min(norm.ppf(last), norm.ppf(0.995))
    # Half of the rows are zero: their score is symmetric to that of the other half.
    both = Warp.fit(np.repeat([3.0, 4.0], 50)[:, None])(np.array([[3.0], [4.0]]))[:, 0]
    assert both[0] == pytest.approx(-both[1], abs=1e-9)


def test_missing_values_stay_missing():
    x = column(50)
    asked = np.array([[0.1], [np.nan], [99.0]])
    assert_array_equal(np.isnan(Warp.fit(x)(asked))[:, 0], [False, True, False])


@pytest.mark.parametrize("n", SIZES)
def test_unwarp_is_the_inverse(n):
    x = np.exp(column(n))
    warp = Warp.fit(np.hstack([column(n, seed=1), x]))
    inside = np.linspace(x.min(), x.max(), 57)
    z = warp(np.column_stack([np.zeros(57), inside]))[:, 1]
    assert_allclose(warp.unwarp(1, z), inside, rtol=1e-9)


def test_warping_leaves_its_argument_alone():
    x = column(30)
    x.flags.writeable = False
    before = x.copy()
    z = Warp.fit(x)(x)
    assert z is not x
    assert_array_equal(x, before)
