"""Mixtures with outputs innermost: the same as the stack's, output by output."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.kernels.mixture import mix, mix_learn, mix_rows
from momostream.kernels.scalar import UNKNOWN
from momostream.kernels.stack import EXACT, stack_learn, stack_predict
from momostream.stream.stack import TAILS, cdf_tables, tail_candidates

M, G = 5, len(TAILS)
RATES = np.array([0.02, 0.005, 0.003, 0.998, 0.01, 0.02])


def start(Q):
    mixing, tails, outputs = np.full((3, M, Q), 1.0 / M), np.zeros((2, M, Q, G)), np.zeros((4, Q))
    mixing[1], mixing[2], tails[0] = UNKNOWN, 2.0, 1.0
    return mixing, tails, outputs


def located(rng, Q):
    """Planes with locations and deviations; of some components, of some outputs of all components, none are known."""
    planes = np.full((5, M, Q), np.nan)
    planes[0], planes[1] = 0.1 * rng.normal(size=(M, Q)), rng.uniform(1.0, 1.5, size=(M, Q))
    planes[1][rng.random((M, Q)) < 0.1] = np.inf
    planes[1][:, rng.random(Q) < 0.1] = 0.0
    planes[0][rng.random((M, Q)) < 0.05] = 1e130
    return planes


@pytest.mark.parametrize("Q", [1, 3, 50])
@pytest.mark.parametrize("n_exact", [0, 1])
def test_rows_are_those_of_the_stack(Q, n_exact):
    rng = np.random.default_rng(Q)
    slow, fast = start(Q), start(Q)
    for mixing, *_ in (slow, fast):
        mixing[2, 3, : n_exact * (Q // 2 + 1)] = EXACT
    work, scores, wanted_scores = np.empty((mix_rows(M, G), Q)), np.empty(Q), np.empty(Q)
    for _ in range(60):
        planes = located(rng, Q)
        wanted, y = planes.copy(), np.where(np.arange(Q) % 2, rng.normal(size=Q), rng.standard_t(2.0, Q))
        y[rng.random(Q) < 0.1] = np.nan
        stack_predict(0.0, tail_candidates(), *slow, wanted, np.empty(Q))
        mix(tail_candidates(), *fast, planes, work[:3])
        assert_allclose(planes, wanted, rtol=1e-10)
        stack_learn(RATES, y, tail_candidates(), cdf_tables(), *slow, wanted, np.empty(M), wanted_scores)
        mix_learn(RATES, y, tail_candidates(), cdf_tables(), *fast, planes, np.empty(M), work, scores)
        assert_allclose(scores, wanted_scores, rtol=1e-8, atol=1e-9)
        for found, expected in zip(fast, slow, strict=True):
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert Q == 1 or len(np.unique(slow[0][2])) > 1


def test_missing_targets_teach_nothing():
    rng = np.random.default_rng(0)
    learnt, planes, scores = start(4), located(rng, 4), np.empty(4)
    work = np.empty((mix_rows(M, G), 4))
    mix(tail_candidates(), *learnt, planes, work[:3])
    before = [array.copy() for array in learnt]
    mix_learn(RATES, np.full(4, np.nan), tail_candidates(), cdf_tables(), *learnt, planes, np.empty(M), work, scores)
    assert np.isnan(scores).all()
    for found, expected in zip(learnt, before, strict=True):
        assert_array_equal(found, expected)
