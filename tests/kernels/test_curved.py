"""The curved regression: the same columns, features and moments as its slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels import curved
from tests import naive

P, H, N_SHOWN, N_WAVES = 3, 4, 2, 5
D = curved.N_OWN + N_SHOWN


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(("seasons", "now"), [([], 6), ([5, 3], 6), ([5, 3], 4), ([5, 3], 0)])
def test_columns(rng, seasons, now):
    past, inputs, own, wide = (rng.normal(size=size) for size in ((9, 4, P), (9, 2, 6), P, P))
    seasons, Z = np.array(seasons, dtype=np.int64), np.full((P, D), np.nan)
    curved.curved_columns(past, inputs, 0, now, seasons, 1, 3, N_SHOWN, own, wide, Z)
    assert_allclose(Z, naive.curved_columns(past, inputs[now, 0, [0, 4]], now, seasons, own, wide), rtol=1e-14)


def test_columns_are_standardised_by_all_rows_so_far(rng):
    rows = 5.0 + rng.normal(size=(20, P, D))
    # A column that does not vary, but for round-off, says nothing; one far out is cut.
    rows[:, :, 2], rows[-1, 0, 3] = 1e9, 1e5
    rows[::2, :, 2] += 1e-4
    means, squares = np.zeros((2, P, D))
    for n, Z in enumerate(rows[:-1], start=1):
        curved.curved_note(n, Z, means, squares)
    assert_allclose(means, rows[:-1].mean(axis=0))
    frequencies, phases, F = rng.normal(size=(D, N_WAVES)), rng.uniform(size=N_WAVES), np.empty((P, 1 + D + N_WAVES))
    curved.curved_features(19, rows[-1], means, squares, frequencies, phases, F)
    assert_allclose(F, naive.curved_features(rows[:-1], rows[-1], frequencies, phases), rtol=1e-9, atol=1e-9)
    assert_array_equal(F[:, 3], 0.0)
    assert F[0, 4] == 4.0


def test_moments_and_predictions(rng):
    w, forgetting = 6, 0.95
    W, A, C = rng.normal(size=(P, w, H)), np.zeros((P, w, w)), np.zeros((P, w, H))
    squares, masses = np.zeros((2, H, P))
    features, targets = rng.normal(size=(60, P, w)), rng.normal(size=(60, H, P))
    targets[rng.random(targets.shape) < 0.2] = np.nan
    targets[50, 1, 0] = 1e6
    for F, T in zip(features, targets, strict=True):
        curved.curved_learn(forgetting, 6.0, F, T, W, np.empty(H), squares, masses, A, C)
    wanted = naive.curved_moments(features, targets, W, forgetting, 6.0)
    assert_allclose(A, np.tril(wanted[0]), rtol=1e-10, atol=1e-10)
    assert_allclose(C, wanted[1], rtol=1e-10, atol=1e-10)
    location = rng.normal(size=(H, P))
    corrected = location.copy()
    curved.curved_predict(features[0], W, corrected)
    assert_allclose(corrected, location + np.einsum("pw,pwh->hp", features[0], W))
