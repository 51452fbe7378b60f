"""Kernels of a leaf: dense algebra, compiled or interpreted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from momostream.gp.covariance import Covariance
from momostream.stream.leaf import Leaf
from momostream.stream.rows import RowStore
from momostream.stream.tokens import next_token
from tests import naive

# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("text", ["matern12", "matern52+linear"])
@pytest.mark.parametrize(("noise", "rtol"), [(0.02, 1e-5), (2e-4, 1e-8)], ids=["single", "double"])
def test_leaf_kernels_are_dense_algebra(text, missing, noise, rtol):
    """One history through all of them; tests/stream/test_leaf.py has many."""
    rng = np.random.default_rng(15)
    covariance, theta = Covariance.parse(text), np.array([0.2, -0.1, math.log(noise), -1.0])[: 3 + ("+" in text)]
    rows = RowStore(1, 2)
    leaf = Leaf(rows, 0, np.arange(2), covariance, theta, 0.9, np.empty(0, dtype=np.int64))
    twin = naive.StreamLeaf(
        covariance.code, covariance.linear_variance(theta), leaf.noise, covariance.lengthscales(theta), 0.9, n_targets=2
    )
    location, std = np.empty((2, 2))

    def check():
        x = rng.normal(size=2)
        leaf.predict(x, location, std, next_token())
        for found, expected in zip((location, std), twin.predict(x), strict=True):
            assert_allclose(found, expected, rtol=rtol, atol=0.1 * rtol)

    X, Y = rng.normal(size=(15, 2)), rng.normal(size=(15, 2))
    Y[:10][rng.random((10, 2)) < missing] = np.nan
    for x, y in zip(X[:10], Y[:10], strict=True):
        token = next_token()
        leaf.predict(x, location, std, token)
        leaf.learn(token, rows.append(x, y), y)
        twin.learn(x, y)
    check()
    leaf.learn_rows(rows.extend(X[10:], Y[10:]), X[10:], Y[10:], *np.empty((2, 5, 2)))
    for x, y in zip(X[10:], Y[10:], strict=True):
        twin.learn(x, y)
    check()
    for _ in range(3):
        leaf.drop_oldest()
        twin.drop()
    check()
    leaf.evict()
    twin.refill()
    check()
