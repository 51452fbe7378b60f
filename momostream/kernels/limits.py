"""Limits of sensors: what a series has kept to so far."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, kernel, ro, rw, void

__all__ = ["AT_HIGH", "AT_LOW", "HIGH", "LOW", "N", "N_SHOWN", "find_limits", "hold_means", "show_rows"]

# What a column has shown: readings, lowest and highest, and how many readings are equal to these.
N, LOW, HIGH, AT_LOW, AT_HIGH = range(5)
N_SHOWN = 5

# An extreme is a limit if this many readings, and this share of all, are equal to it.
TOUCHES, TOUCHING = 10.0, 0.02
# A column of so many readings, none of them negative, never is; one of so many has shown its range.
LEAST_SIGN, LEAST_RANGE = 10.0, 100.0
# Values may leave the range shown by this part of it.
ROOM = 0.045
# Ceilings of shares and percentages, of which a column must have shown at least half.
ONE, HUNDRED = 1.0, 100.0


@kernel(void(ro(2), rw(2)))
def show_rows(rows, shown):
    """Take rows into what columns have shown, (columns, N_SHOWN); NaN is missing."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            y = rows[i, j]
            if math.isnan(y):
                continue
            state = shown[j]
            if state[N] == 0.0 or y < state[LOW]:
                state[LOW] = y
                state[AT_LOW] = 0.0
            if state[N] == 0.0 or y > state[HIGH]:
                state[HIGH] = y
                state[AT_HIGH] = 0.0
            if y == state[LOW]:
                state[AT_LOW] += 1.0
            if y == state[HIGH]:
                state[AT_HIGH] += 1.0
            state[N] += 1.0


@kernel(void(f8, ro(2), rw(2)))
def find_limits(range_rows, shown, limits):
    """Lower and upper limits of columns, and how much of each is room beyond what was shown, into (4, columns).

    A limit that was touched often, zero for a column that was never negative, and the ceiling of shares and
    percentages have no room. Infinite where nothing is known yet. A column of n readings, fewer than `range_rows`, has
    `range_rows` / n times the room.
    """
    for j in range(shown.shape[0]):
        n, low, high, at_low, at_high = shown[j]
        limits[0, j], limits[1, j], limits[2, j], limits[3, j] = -math.inf, math.inf, 0.0, 0.0
        if n == 0.0 or not high > low:
            # A constant shows no range.
            continue
        room = ROOM * max(range_rows / n, 1.0) * (high - low)
        if n >= LEAST_RANGE:
            limits[0, j], limits[1, j], limits[2, j], limits[3, j] = low - room, high + room, room, room
        if n >= LEAST_SIGN and low >= 0.0 and limits[0, j] < 0.0:
            limits[0, j], limits[2, j] = 0.0, 0.0
        if n >= LEAST_RANGE and low >= 0.0:
            for cap in (ONE, HUNDRED):
                if high <= cap < limits[1, j] and high - low >= 0.5 * cap:
                    limits[1, j], limits[3, j] = cap, 0.0
        if at_low >= TOUCHES and at_low >= TOUCHING * n:
            limits[0, j], limits[2, j] = low, 0.0
        if at_high >= TOUCHES and at_high >= TOUCHING * n:
            limits[1, j], limits[3, j] = high, 0.0


@kernel(void(f8, ro(2), ro(1), rw(2), rw(1)))
def hold_means(range_rows, shown, means, limits, held):
    """Set `held` to `means` within the limits of their columns that have no room; the others give way to a mean.

    `range_rows` and `limits`, which is set, are those of `find_limits`.
    """
    find_limits(range_rows, shown, limits)
    for j in range(means.shape[0]):
        held[j] = means[j]
        if means[j] < limits[0, j] and limits[2, j] == 0.0:
            held[j] = limits[0, j]
        if means[j] > limits[1, j] and limits[3, j] == 0.0:
            held[j] = limits[1, j]
