"""Forecasts of all experts in one array: the same as by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.past import Past
from momostream.kernels.locate import begin_experts, end_experts, expect_wide, smooth_fans

H, P = 4, 3
Q = H * P


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("d", [1, 4, 7])
def test_changes_expected_of_cut_features(rng, d):
    f, largest, W = 3.0 * rng.normal(size=d), rng.uniform(size=d), rng.normal(size=(2, d, Q))
    largest[0] = np.inf
    cut, expected = np.empty(d), np.empty((2, Q))
    expect_wide(f, largest, W, cut, expected)
    assert_array_equal(cut, np.clip(f, -largest, largest))
    assert_allclose(expected, cut @ W, rtol=1e-12, atol=1e-14)


def test_the_last_values_and_those_of_a_season_ago(rng):
    past, back = Past(P, 0, 30), np.array([9, 8, 7, 10])
    for y in rng.normal(size=(10, P)):
        past.append(y, np.empty(0))
    located = np.full((3, H, P), np.nan)
    begin_experts(past.series, past.first, past.last, back, located)
    assert_array_equal(located[0], np.tile(past.values, (H, 1)))
    assert_array_equal(located[1], past.earlier(back))
    assert np.isnan(located[2]).all()


@pytest.mark.parametrize(("n_wide", "n_plain", "n_residual"), [(0, 0, 0), (2, 0, 0), (0, 2, 0), (2, 1, 2)])
def test_changes_become_forecasts_within_reach(rng, n_wide, n_plain, n_residual):
    m = n_plain + n_residual
    values, expected = rng.normal(size=P), rng.normal(size=(n_wide, Q))
    stds, located = np.ones((m, Q)), rng.normal(size=(3 + n_wide + m, H, P))
    stds[:, ::5] = np.inf
    located[1, 0, 0] = np.nan
    wanted = located.copy()
    wanted[3 : 3 + n_wide] = values + expected.reshape(-1, H, P)
    changes = np.where(np.isfinite(stds.reshape(-1, H, P)), located[3 + n_wide :], 0.0)
    wanted[3 + n_wide :] = changes + values
    if n_residual:
        wanted[3 + n_wide + n_plain :] = changes[n_plain:] + wanted[2 + n_wide]
    lowest, highest = values - 1.0, values + 0.5
    end_experts(values, expected, 3, stds, n_plain, lowest, highest, located)
    assert_allclose(located, np.minimum(np.maximum(wanted, lowest), highest), rtol=1e-14)


def test_each_series_has_a_matrix_that_smooths_it(rng):
    matrices, rough = rng.normal(size=(P, H, H)), rng.normal(size=(2, H, P))
    smooth = np.empty_like(rough)
    smooth_fans(matrices, rough, np.empty(H), smooth)
    assert_allclose(smooth, np.einsum("igp,pgh->ihp", rough, matrices), rtol=1e-12, atol=1e-14)
