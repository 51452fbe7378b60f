"""Predictions of the table model do not depend on the order of columns or on units."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.batch.fitting import FAMILY, fitted, toy


@pytest.mark.parametrize("settings", FAMILY)
def test_the_order_of_columns_does_not_matter(settings):
    X, Y = toy(n_inputs=3)
    X *= [1.0, 30.0, 0.2]
    T = X[:9] + 0.01
    settings = {**settings, "max_iterations": 0}
    plain = fitted(X, Y, **settings).predict(T)
    order = [2, 0, 1]
    assert_allclose(fitted(X[:, order], Y, **settings).predict(T[:, order]).mean, plain.mean, rtol=1e-7, atol=1e-9)
    turned = fitted(X, Y[:, ::-1], **settings).predict(T)
    assert_allclose(turned.mean[:, ::-1], plain.mean, rtol=1e-7, atol=1e-9)
    assert_allclose(turned.cov[:, ::-1, ::-1], plain.cov, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("settings", FAMILY)
def test_units_do_not_matter(settings):
    X, Y = toy(n_inputs=3)
    X *= [1.0, 30.0, 0.2]
    T = X[:9] + 0.01
    # Without tuning all covariates are equally relevant and round-off would decide between them.
    settings = {**settings, "max_iterations": 0, "split_by": "variance"}
    plain = fitted(X, Y, **settings).predict(T)
    a = np.full(3, 170.0) if "max_points" in settings else np.array([1e3, 0.017, 7.0])
    b = np.array([500.0, -3.0, 0.0])
    c, d = np.array([1e-4, 3e5]), np.array([2.0, -1e5])
    moved = fitted(X * a + b, Y * c + d, **settings).predict(T * a + b)
    assert_allclose((moved.mean - d) / c, plain.mean, rtol=1e-5, atol=1e-6)
    assert_allclose(moved.std / c, plain.std, rtol=1e-5)
    assert_allclose(moved.cov / np.outer(c, c), plain.cov, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("settings", FAMILY)
def test_units_of_powers_of_two_do_not_matter_while_tuning(settings):
    X, Y = toy(n_inputs=3)
    T = X[:9] + 0.01
    plain = fitted(X, Y, **settings).predict(T)
    a, c = np.array([4.0, 0.125, 1024.0]), np.array([0.5, 2.0**20])
    moved = fitted(X * a, Y * c, **settings).predict(T * a)
    assert_allclose(moved.mean / c, plain.mean, rtol=1e-6, atol=1e-7)
    assert_allclose(moved.std / c, plain.std, rtol=1e-6)


def test_powers_of_two_of_the_targets_are_exact():
    X, Y = toy()
    plain, moved = fitted(X, Y).predict(X[:9]), fitted(X, 1024.0 * Y).predict(X[:9])
    assert_array_equal(moved.mean, 1024.0 * plain.mean)
    assert_array_equal(moved.std, 1024.0 * plain.std)
