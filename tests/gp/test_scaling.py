"""Units of targets, and correlations that are proper."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.scaling import nearest_correlation, standardisation


@pytest.mark.parametrize("level", [0.0, 1.0, -1e6, 1e-250])
def test_a_constant_target_has_a_scale(level):
    offset, scale = standardisation(np.full((7, 1), level))
    assert offset[0] == pytest.approx(level, rel=1e-12)
    assert scale[0] > 0 and np.isfinite(scale[0])


def test_round_off_of_a_large_constant_is_not_variation():
    Y = 1e8 + np.array([[0.0], [1.5e-8], [0.0]])
    assert standardisation(Y)[1][0] == pytest.approx(1e5)
    assert standardisation(1e8 + np.array([[0.0], [1.0]]))[1][0] == pytest.approx(0.5)


def test_standardisation_without_targets():
    for Y in (np.empty((0, 2)), np.full((3, 2), np.nan)):
        offset, scale = standardisation(Y)
        assert_array_equal(offset, 0.0)
        assert_array_equal(scale, 1.0)


def test_nearest_correlation():
    good = np.array([[1.0, 0.5], [0.5, 1.0]])
    assert_array_equal(nearest_correlation(good.copy()), good)
    bad = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    found = nearest_correlation(bad)
    assert_allclose(np.diag(found), 1.0, rtol=1e-12)
    assert_allclose(found, found.T, rtol=1e-12)
    assert np.linalg.eigvalsh(found)[0] > 1e-7
    assert np.all(np.sign(found) == np.sign(bad))
