"""Limits that are found in what columns have shown: the same as by looking at all readings again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.limited import held
from momostream.stream.limits import ShownLimits


def naive_limits(readings: list[float], range_rows: float = 0.0) -> list[float]:
    """Lower and upper limit of a column and their rooms, from all its readings."""
    known = [y for y in readings if y == y]
    low, high, low_room, high_room = -np.inf, np.inf, 0.0, 0.0
    if len(set(known)) < 2:
        return [low, high, low_room, high_room]
    least, most, n = min(known), max(known), len(known)
    if n >= 100:
        low_room = high_room = 0.045 * max(range_rows / n, 1.0) * (most - least)
        low, high = least - low_room, most + high_room
    if n >= 10 and least >= 0.0 and low < 0.0:
        low, low_room = 0.0, 0.0
    if n >= 100 and least >= 0.0:
        for ceiling in (1.0, 100.0):
            if most <= ceiling < high and most - least >= ceiling / 2:
                high, high_room = ceiling, 0.0
    if known.count(least) >= max(10, 0.02 * n):
        low, low_room = least, 0.0
    if known.count(most) >= max(10, 0.02 * n):
        high, high_room = most, 0.0
    return [low, high, low_room, high_room]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 40.0, 99.0, 100.0, -1.0, np.nan]), max_size=30),
    st.integers(1, 12),
    st.integers(1, 50),
    st.booleans(),
)
def test_are_those_of_all_readings(some: list[float], times: int, chunk: int, positive: bool) -> None:
    readings = [abs(y) if positive else y for y in some] * times
    shown = ShownLimits(1)
    for start in range(0, len(readings), chunk):
        shown.show(np.array(readings[start : start + chunk]).reshape(-1, 1))
    assert_array_equal(shown.limits()[:, 0], naive_limits(readings))
    assert_allclose(shown.limits(200.0)[:, 0], naive_limits(readings, 200.0), rtol=1e-14)


def test_a_limit_that_is_broken_moves() -> None:
    shown = ShownLimits(1)
    shown.show(np.tile([[0.0], [1.0], [5.0]], (100, 1)))
    assert_array_equal(shown.limits()[:, 0], [0.0, 5.0, 0.0, 0.0])
    shown.show(np.array([[6.0], [-1.0]]))
    low, high, low_room, high_room = shown.limits()[:, 0]
    assert low == -1.0 - low_room and high == 6.0 + high_room and low_room == high_room == 0.045 * 7.0


def test_columns_may_join_and_states_are_kept() -> None:
    shown = ShownLimits(1)
    shown.show(np.tile([[0.0], [1.0]], (60, 1)))
    shown.widen(2)
    assert np.isinf(shown.limits()[:2, 1]).all()
    again = ShownLimits.from_state(shown.state(), shown.n_columns)
    assert_array_equal(again.limits(), shown.limits())
    assert again.describe(["a", "b"]) == {"a": "a: at least 0 (touched 60 times), at most 1 (touched 60 times)"}


@pytest.mark.parametrize("values", [[3.0], [np.nan], []])
def test_a_constant_has_no_limits(values: list[float]) -> None:
    shown = ShownLimits(1)
    shown.show(np.tile(np.reshape(values, (-1, 1)), (200, 1)))
    assert_array_equal(shown.limits()[:, 0], [-np.inf, np.inf, 0.0, 0.0])


def test_means_are_held_as_by_the_limits_themselves() -> None:
    shown = ShownLimits(4)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4))
    rows[:, 1], rows[:, 2] = np.maximum(rows[:, 1], 0.0), np.abs(rows[:, 2])
    rows[:, 3] = np.nan
    for n in (0, 5, 200):
        shown.show(rows[:n])
        for mean in (np.full(4, -9.0), np.full(4, 9.0), np.array([0.5, np.nan, 1.0, 3.0])):
            for range_rows in (0.0, 1000.0):
                assert_array_equal(shown.hold(mean, range_rows), held(shown.limits(range_rows), mean))
