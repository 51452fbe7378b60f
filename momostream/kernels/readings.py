"""Gross errors of sensors: which readings no way of the series explains."""

from __future__ import annotations

import math

import numpy as np

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void

__all__ = ["CODE", "GOOD", "JUMP", "N_STATE", "STUCK", "judge_reading", "screen_rows"]

# Verdicts.
GOOD, JUMP, CODE, STUCK = 0, 1, 2, 3

# State of a column: readings taken, the last of them, rows since then, length of the run of equal readings, readings
# equal to the one before, readings that differ from it; held readings in a row, the last of them, how many make a
# change of level; rows since the last change of level.
N, LAST, GAP, RUN, REPEATS, MOVES, HELD, HELD_AT, NEED, SINCE = range(10)
# The three largest changes, highest and lowest readings, the same before the last change of level, longest runs.
CHANGES, HIGH, LOW, BEFORE, RUNS = 10, 13, 16, 19, 28
N_STATE = 31

# Nothing is judged before this many moves; criteria are stricter, by a part of so many moves, while there are few. A
# column that has rested through so many readings is judged after fewer moves, if the jump is so many times the last
# reading: a pegged rate that is set anew jumps by less.
LEAST_MOVES, YOUNG, MATURE, MATURE_MOVES, RESTING_JUMP = 30.0, 100.0, 200.0, 5.0, 2.0
# A reading out of range by this part of the range, after a jump of so many of the largest usual changes. A column that
# rests in this share of its readings, such as a pegged rate, has shown little of its range: more is asked of it.
OUTSIDE, FAR_JUMP, RESTING, RESTING_OUTSIDE = 0.5, 2.0, 0.3, 4.0
# The largest change over the third largest, at most: heavy tails make the criteria stricter.
HEAVIEST = 4.0
# Held readings after which a change of level is taken up: for a jump that is just too far (a turbine that leaves its
# rated power after days) and up to so many doublings of it, more for each further doubling, at
# most, for equal readings of a series that otherwise moves, for codes of missing readings. A column with fewer readings
# than `MATURE` has not shown its range yet (radiation before the first sunrise): a few readings are enough.
FIRST_NEED, NEED_PER_DOUBLING, MOST_NEED, EQUAL_NEED, CODE_NEED = 2.0, 6.0, 50.0, 24.0, 200.0
YOUNG_NEED, FREE_DOUBLINGS = 2.0, 2.0
# A code counts if it is out of range by this part of the range.
CODE_OUTSIDE = 0.02
# A level that a series left so many rows ago is known.
KNOWN_LEVEL = 300.0
# A run of equal readings is a fault below this log probability, if it is longer than these and twice the third longest;
# after so many rows it is the way of the series.
LOG_STUCK, LEAST_RUN, LONGEST_STUCK = -40.0, 8.0, 60.0
# Sensors get stuck alone: where a larger share of the columns repeat their readings, the machine rests.
MOST_STUCK = 0.2
# Largest changes fade.
FADE = 1.0 - 1.0 / 5000.0
NEVER = 1e9


@kernel(void(rw(1), i8, f8, f8))
def _keep_largest(state, at, value, sign):
    """Put a value among the three largest from `at` on; the smallest for a negative sign."""
    for k in range(at, at + 3):
        if sign * value > sign * state[k]:
            state[k], value = value, state[k]


@kernel(i8(f8, ro(1), f8, f8, f8))
def _suspicion(y, state, jump, outside, size):
    """Whether a reading is a jump too far; `size` is the largest usual change, widened for what is not known."""
    reach = state[HIGH + 2] - state[LOW + 2]
    has_rested = state[N] >= MATURE and jump > RESTING_JUMP * abs(state[LAST])
    least = MATURE_MOVES if has_rested else LEAST_MOVES
    if state[MOVES] < least or reach <= 0.0 or size <= 0.0:
        return GOOD
    widened = OUTSIDE * (1.0 + YOUNG / state[MOVES]) * reach
    if state[REPEATS] > RESTING * state[N]:
        widened = max(widened, RESTING_OUTSIDE * reach)
    return JUMP if outside > widened and jump > FAR_JUMP * size else GOOD


@kernel(i8(f8, rw(1)))
def _is_stuck(y, state):
    """Whether one more equal reading is too many; extremes and zero, where series rest, never are."""
    if state[MOVES] < LEAST_MOVES or y == 0.0 or y >= state[HIGH] or y <= state[LOW]:
        return 0
    log_share = math.log((state[REPEATS] + 1.0) / (state[N] + 2.0))
    longest = max(LOG_STUCK / log_share, LEAST_RUN + 2.0 * state[RUNS + 2])
    return 1 if state[RUN] > longest and state[RUN] < LONGEST_STUCK else 0


@kernel(i8(f8, f8, f8, f8, i8, rw(1)))
def _hold(y, jump, outside, size, verdict, state):
    """Hold a suspicious reading back; 1 when so many agree that the level has changed."""
    usual = state[CHANGES + 2]
    reach = state[HIGH + 2] - state[LOW + 2]
    within = outside <= OUTSIDE * (1.0 + YOUNG / max(state[MOVES], 1.0)) * reach
    step = abs(y - state[HELD_AT])
    if state[HELD] > 0.0 and step <= max(2.0 * usual, 0.5 * abs(state[HELD_AT] - state[LAST])):
        state[HELD] += 1.0
    else:
        state[HELD] = 1.0
        state[NEED] = EQUAL_NEED
        if within:
            state[NEED] = FIRST_NEED
        elif size > 0.0:
            doublings = max(math.log2(jump / (FAR_JUMP * size)) - FREE_DOUBLINGS, 0.0)
            most = MOST_NEED if state[N] >= MATURE else YOUNG_NEED
            state[NEED] = min(FIRST_NEED + NEED_PER_DOUBLING * doublings, most)
    need = state[NEED]
    if verdict == CODE:
        need = CODE_NEED
    elif step == 0.0 and state[REPEATS] < 0.2 * state[N] and y != 0.0:
        need = max(need, EQUAL_NEED)
    state[HELD_AT] = y
    if state[HELD] < need:
        return 0
    for k in range(9):
        state[BEFORE + k] = state[CHANGES + k]
    state[SINCE] = 0.0
    # A jump within the range is a way of the series; beyond it, the steps at the new level are.
    change = jump if within else step
    for _ in range(1 if within else 3):
        _keep_largest(state, CHANGES, change, 1.0)
    return 1


@kernel(i8(ro(1), f8, i8, rw(1)))
def judge_reading(codes, y, alone, state):
    """Verdict on the next reading of a column, NaN if it is missing; the state moves on.

    `codes` are values that stand for missing readings; `alone` is 0 if many columns repeat their readings in this row.
    A reading that is not `GOOD` is not taken into the state, until so many in a row agree that it is a change of level.
    """
    if math.isnan(y):
        state[GAP] += 1.0
        return GOOD
    first = state[N] == 0.0
    if first:
        for k in range(3):
            state[HIGH + k], state[LOW + k] = -np.inf, np.inf
        state[SINCE] = NEVER
    jump = 0.0 if first else abs(y - state[LAST])
    same = not first and jump == 0.0
    apart = math.sqrt(1.0 + state[GAP])
    verdict = GOOD
    outside = 0.0
    size = 0.0
    if state[N] >= 8.0 and state[MOVES] >= 3.0 and not same:
        usual = state[CHANGES + 2]
        outside = max(y - state[HIGH + 2], state[LOW + 2] - y, 0.0)
        heavy = math.sqrt(min(state[CHANGES] / usual, HEAVIEST)) if usual > 0.0 else 1.0
        size = usual * apart * heavy * (1.0 + YOUNG / state[MOVES])
        verdict = _suspicion(y, state, jump, outside, size)
        if verdict == JUMP or (outside > CODE_OUTSIDE * (state[HIGH + 2] - state[LOW + 2]) and jump > usual):
            for k in range(codes.shape[0]):
                if y == codes[k]:
                    verdict = CODE
        if verdict == JUMP and state[SINCE] < KNOWN_LEVEL:
            # Back at the level of before.
            high, low = state[BEFORE + 5], state[BEFORE + 8]
            if low - OUTSIDE * (high - low) <= y <= high + OUTSIDE * (high - low):
                for k in range(9):
                    state[CHANGES + k] = state[BEFORE + k]
                state[SINCE] = NEVER
                verdict = GOOD
                jump = 0.0
    state[SINCE] += 1.0
    if same:
        state[RUN] += 1.0
        if alone and _is_stuck(y, state):
            state[GAP] += 1.0
            return STUCK
    else:
        if state[RUN] > 0.0:
            _keep_largest(state, RUNS, state[RUN], 1.0)
        state[RUN] = 0.0
    if verdict != GOOD:
        if _hold(y, jump, outside, size, verdict, state) == 0:
            state[GAP] += 1.0
            return verdict
        jump = 0.0
    state[HELD] = 0.0
    if same:
        state[REPEATS] += 1.0
    elif not first:
        state[MOVES] += 1.0
        _keep_largest(state, CHANGES, jump / apart, 1.0)
    _keep_largest(state, HIGH, y, 1.0)
    _keep_largest(state, LOW, y, -1.0)
    for k in range(CHANGES, CHANGES + 3):
        state[k] *= FADE
    state[N] += 1.0
    state[LAST] = y
    state[GAP] = 0.0
    return GOOD


@kernel(i8(ro(1), rw(2), rw(2), rw(2)))
def screen_rows(codes, rows, states, verdicts):
    """Judge rows in order and make jumps and codes NaN; `states` (columns, N_STATE) move on.

    A stuck reading lies within what its column has shown, and stays. Returns how many readings are not good; `verdicts`
    has the shape of `rows`.
    """
    n_bad = 0
    for i in range(rows.shape[0]):
        n_same = 0
        for j in range(rows.shape[1]):
            if states[j, N] > 0.0 and rows[i, j] == states[j, LAST]:
                n_same += 1
        alone = 1 if n_same <= max(MOST_STUCK * rows.shape[1], 1.0) else 0
        for j in range(rows.shape[1]):
            verdict = judge_reading(codes, rows[i, j], alone, states[j])
            verdicts[i, j] = verdict
            if verdict != GOOD:
                n_bad += 1
                if verdict != STUCK:
                    rows[i, j] = math.nan
    return n_bad
