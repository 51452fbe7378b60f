"""Intervals of one row in one compiled call are those of its marginals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.limited import UserUnits, no_limits
from momostream.distributions.planes import DOF, LOCATION, SCALE, STD, WEIGHT
from momostream.distributions.prediction import Prediction, intervals
from momostream.distributions.stacked import StackedDistribution

N_TARGETS = 5


def planes_of(n_experts, dofs, seed=0):
    rng = np.random.default_rng(seed)
    planes = np.empty((5, n_experts, N_TARGETS))
    planes[LOCATION] = rng.normal(size=(n_experts, N_TARGETS))
    planes[STD] = planes[SCALE] = np.exp(2.0 * rng.normal(size=(n_experts, N_TARGETS)))
    planes[DOF] = rng.choice(dofs, size=(n_experts, N_TARGETS))
    planes[WEIGHT] = rng.dirichlet(np.ones(n_experts), N_TARGETS).T
    return planes


def limits_of(kind):
    """None, wide ones, narrow and firm ones, and narrow ones with room, which give way to means."""
    limits = no_limits(N_TARGETS)
    if kind != "infinite":
        limits[0], limits[1] = (-0.1, 0.1) if kind != "wide" else (-3.0, 3.0)
        limits[2:, ::2] = 0.05 if kind == "room" else 0.0
    return limits


@pytest.mark.parametrize("kind", ["none", "infinite", "wide", "firm", "room"])
@pytest.mark.parametrize(
    ("n_experts", "dofs"), [(6, (2.5, 4.0, 8.0, 100.0)), (2, (8.0,)), (1, (4.0,)), (3, (4.0, 7.0))]
)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_an_interval_is_that_of_each_target(kind, n_experts, dofs, level):
    wrap = None if kind == "none" else UserUnits(None, limits_of(kind))
    stacked = StackedDistribution(planes_of(n_experts, dofs), np.eye(N_TARGETS), 8.0, wrap)
    assert_allclose(stacked.interval(level), stacked.each.interval(level)[:, 0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5])
def test_a_level_that_is_none(level):
    stacked = StackedDistribution(planes_of(2, (8.0,)), np.eye(N_TARGETS), 8.0, None)
    with pytest.raises(ValueError, match="level"):
        stacked.interval(level)


def test_experts_that_are_not_valid_are_an_error():
    planes = planes_of(2, (8.0,))
    planes[SCALE, 0, 0] = np.nan
    with pytest.raises(ValueError, match="scale"):
        StackedDistribution(planes, np.eye(N_TARGETS), 8.0, None).interval(0.9)


def test_ends_of_an_interval_narrower_than_its_last_digit_are_in_order():
    rng = np.random.default_rng(0)
    planes = planes_of(3, (2.5, 4.0))
    for _ in range(200):
        planes[LOCATION] = 1e56 * (1.0 + 1e-15 * rng.normal(size=planes[LOCATION].shape))
        planes[STD] = planes[SCALE] = 1e39
        stacked = StackedDistribution(planes, np.eye(N_TARGETS), 8.0, None)
        prediction = Prediction(tuple("abcde"), stacked.each.levels([0.5])[0, 0], stacked)
        for low, high in (stacked.interval(0.9), stacked.each.interval(0.9)[:, 0], *intervals([prediction])):
            assert (low <= high).all()
        low, high = stacked().interval(0.9)
        assert (low <= high).all()


def test_intervals_of_many_are_those_of_each():
    """Also where they have other limits, other sizes, one expert only, or tails without a table."""
    found = [
        StackedDistribution(planes_of(n_experts, dofs), np.eye(N_TARGETS), 8.0, wrap)
        for n_experts, dofs in ((3, (2.5, 4.0)), (2, (8.0,)), (1, (8.0,)), (3, (5.0, 8.0)))
        for wrap in (None, UserUnits(None, limits_of("firm")), UserUnits(None, limits_of("room")))
    ]
    for stacked, ends in zip(found, StackedDistribution.intervals(found, 0.8), strict=True):
        assert_array_equal(ends, stacked.interval(0.8))
