"""Gross errors of sensors: which readings no way of the series explains."""

from __future__ import annotations

import math

import numpy as np

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void

__all__ = ["CODE", "GOOD", "JUMP", "N_STATE", "STUCK", "doubt_row", "judge_reading", "screen_rows"]

# Verdicts.
GOOD, JUMP, CODE, STUCK = 0, 1, 2, 3

# State of a column: readings taken, the last of them, rows since then, length of the run of equal readings, readings
# equal to the one before, readings that differ from it; held readings in a row, the last of them, how many make a
# change of level; rows since the last change of level.
N, LAST, GAP, RUN, REPEATS, MOVES, HELD, HELD_AT, NEED, SINCE = range(10)
# The three largest changes, highest and lowest readings, the same before the last change of level, longest runs.
CHANGES, HIGH, LOW, BEFORE, RUNS = 10, 13, 16, 19, 28
# Mean change, sum of the changes of held readings, changes of level that were taken up, readings set aside since the
# last one that was taken; the sign of the last change, if it was larger than the third largest before it.
MEAN_CHANGE, HELD_CHANGES, TAKEN, ASIDE, MOVED = 31, 32, 33, 34, 35
N_STATE = 36

# Nothing is judged before this many moves; criteria are stricter, by a part of so many moves, while there are few. A
# column that has rested through so many readings is judged after fewer moves, if the jump is so many times the last
# reading: a pegged rate that is set anew jumps by less.
LEAST_MOVES, YOUNG, MATURE, MATURE_MOVES, RESTING_JUMP = 30.0, 100.0, 200.0, 5.0, 2.0
# Its moves before are held for a reading, if they are so many times the largest.
FIRST_JUMP = 4.0
# A reading out of range by this part of the range, after a jump of so many of the largest usual changes. A column that
# rests in this share of its readings, such as a pegged rate, has shown little of its range: more is asked of it.
OUTSIDE, FAR_JUMP, RESTING, RESTING_OUTSIDE, FAR_OUTSIDE = 0.5, 2.0, 0.3, 4.0, 2.0
# The largest change over the third largest, at most: heavy tails make the criteria stricter.
HEAVIEST = 4.0
# Held readings after which a change of level is taken up. Of a column that jumps alone, so many, and from so many
# doublings of the usual jump on more for each further one, at most; half as many for each change of level that was
# taken up before; fewer if their changes are like those before, within this factor (in other units they are not), or
# if this share of the columns jumps together, as a machine does. For equal readings of a series that otherwise moves,
# and for codes of missing readings. A column with fewer readings than `MATURE` has not shown its range yet (radiation
# before the first sunrise): a few readings are enough.
LONE_NEED, NEED_PER_DOUBLING, MOST_NEED, ALIKE_NEED, ALIKE, FIRST_NEED = 30.0, 6.0, 50.0, 8.0, 1.5, 2.0
FREE_DOUBLINGS, EQUAL_NEED, CODE_NEED, TOGETHER = 3.0, 24.0, 200.0, 0.2
# A column may leave its range so many times further if it already moved far, in the same direction, in the row before;
# and so many times to the power of its tail if it has company: others move by more than their third largest change, and
# not by so many of it that they are errors themselves, in so many times the number of columns that would by chance.
PATIENCE, LEAST_MOVED, MOST_MOVED, BY_CHANCE = 5.0, 2.0, 3.0, 4.0
# Rows of the mean change.
MEMORY = 200.0
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


@kernel(f8(ro(1)))
def _tail(state):
    """How fast the largest changes of a column grow with their number, as a power: about 1/5 in Gaussian noise."""
    if state[CHANGES + 2] <= state[MEAN_CHANGE] or state[MEAN_CHANGE] <= 0.0 or state[N] <= 8.0:
        return 0.0
    return min(math.log(state[CHANGES + 2] / state[MEAN_CHANGE]) / math.log(state[N] / 3.0), 1.0)


@kernel(i8(ro(1), f8, f8, f8, f8))
def _suspicion(state, jump, outside, size, patience):
    """Whether a reading is a jump too far; `size` is the largest usual change, `patience` stretches the criteria."""
    reach = state[HIGH + 2] - state[LOW + 2]
    has_rested = state[N] >= MATURE and jump > RESTING_JUMP * abs(state[LAST])
    if has_rested and state[MOVES] < MATURE_MOVES:
        return JUMP if jump > patience * FIRST_JUMP * state[CHANGES] else GOOD
    if (not has_rested and state[MOVES] < LEAST_MOVES) or reach <= 0.0 or size <= 0.0:
        return GOOD
    young = 1.0 + YOUNG / state[MOVES]
    least = patience * OUTSIDE * young * reach
    if state[MOVES] < MATURE and state[REPEATS] > RESTING * state[N]:
        least = max(least, patience * RESTING_OUTSIDE * reach)
    if outside > least and jump > patience * FAR_JUMP * young * size:
        return JUMP
    return JUMP if outside > FAR_OUTSIDE * least and jump > size else GOOD


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
    # The first events of a column at rest differ in size.
    alike = 0.5 if state[MOVES] >= MATURE_MOVES else 1.5
    if state[HELD] > 0.0 and step <= max(2.0 * usual, alike * abs(state[HELD_AT] - state[LAST])):
        state[HELD] += 1.0
        state[HELD_CHANGES] += step
    else:
        state[HELD] = 1.0
        state[HELD_CHANGES] = 0.0
        state[NEED] = EQUAL_NEED
        if within or state[N] < MATURE or state[MOVES] < MATURE_MOVES:
            state[NEED] = FIRST_NEED
        elif size > 0.0:
            doublings = max(math.log2(jump / (FAR_JUMP * size)) - FREE_DOUBLINGS, 0.0)
            need = min(LONE_NEED + NEED_PER_DOUBLING * doublings, MOST_NEED)
            state[NEED] = max(need * 0.5 ** state[TAKEN], FIRST_NEED)
    need = state[NEED]
    if verdict == CODE:
        need = CODE_NEED
    elif step == 0.0 and state[REPEATS] < 0.2 * state[N] and y != 0.0:
        need = max(need, EQUAL_NEED)
    elif state[HELD] >= ALIKE_NEED and need <= LONE_NEED:
        mean = state[HELD_CHANGES] / (state[HELD] - 1.0)
        if state[MEAN_CHANGE] < ALIKE * mean and mean < ALIKE * state[MEAN_CHANGE]:
            need = min(need, ALIKE_NEED)
    state[HELD_AT] = y
    if state[HELD] < need:
        return 0
    for k in range(9):
        state[BEFORE + k] = state[CHANGES + k]
    state[SINCE] = 0.0
    if verdict == JUMP and state[NEED] > FIRST_NEED:
        state[TAKEN] += 1.0
    # A jump within the range is a way of the series; beyond it, the steps at the new level are.
    change = jump if within else step
    for _ in range(1 if within else 3):
        _keep_largest(state, CHANGES, change, 1.0)
    return 1


@kernel(i8(ro(1), f8, i8, f8, rw(1)))
def judge_reading(codes, y, alone, patience, state):
    """Verdict on the next reading of a column, NaN if it is missing; the state moves on.

    `codes` are values that stand for missing readings; `alone` is 0 if many columns repeat their readings in this row,
    and `patience` how much further than alone it may leave its range.
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
    if state[N] >= 8.0 and (state[MOVES] >= 3.0 or state[N] >= MATURE) and not same:
        usual = state[CHANGES + 2]
        outside = max(y - state[HIGH + 2], state[LOW + 2] - y, 0.0)
        heavy = math.sqrt(min(state[CHANGES] / usual, HEAVIEST)) if usual > 0.0 else 1.0
        # Readings that were set aside do not widen what the next one may be.
        size = usual * heavy * math.sqrt(1.0 + state[GAP] - state[ASIDE])
        is_moving = state[GAP] == 0.0 and state[MOVED] * (y - state[LAST]) > 0.0
        verdict = _suspicion(state, jump, outside, size, PATIENCE if is_moving else patience ** _tail(state))
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
                state[TAKEN] = max(state[TAKEN] - 1.0, 0.0)
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
            state[ASIDE] += 1.0
            return verdict
        jump = 0.0
    elif state[HELD] > 0.0 and state[MOVES] < MATURE_MOVES:
        # The first moves of a column that has always rested are remembered even if they do not last.
        state[MOVES] += 1.0
        _keep_largest(state, CHANGES, abs(state[HELD_AT] - state[LAST]), 1.0)
    state[HELD] = 0.0
    if same:
        state[REPEATS] += 1.0
        state[MOVED] = 0.0
    elif not first:
        moved = jump / apart > state[CHANGES + 2] and jump > 0.0
        state[MOVED] = math.copysign(1.0, y - state[LAST]) if moved else 0.0
        state[MOVES] += 1.0
        _keep_largest(state, CHANGES, jump / apart, 1.0)
    _keep_largest(state, HIGH, y, 1.0)
    _keep_largest(state, LOW, y, -1.0)
    for k in range(CHANGES, CHANGES + 3):
        state[k] *= FADE
    state[N] += 1.0
    state[MEAN_CHANGE] += (jump / apart - state[MEAN_CHANGE]) / min(state[N], MEMORY)
    state[LAST] = y
    state[GAP] = 0.0
    state[ASIDE] = 0.0
    return GOOD


@kernel(void(ro(1), rw(2)))
def _jump_together(verdicts, states):
    """Columns that leave their range in the same row have company: it is the machine that jumps, not a sensor."""
    n_jumps = 0
    for j in range(verdicts.shape[0]):
        if verdicts[j] == JUMP and states[j, HELD] == 1.0:
            n_jumps += 1
    if n_jumps >= max(TOGETHER * verdicts.shape[0], 2.0):
        for j in range(verdicts.shape[0]):
            if verdicts[j] == JUMP and states[j, HELD] == 1.0:
                states[j, NEED] = FIRST_NEED


@kernel(f8(ro(1), ro(2), rw(1)))
def _patience(row, states, company):
    """How much further readings of this row may leave the range of their columns than one that moves alone.

    The columns that move far are added to ``company[0]``, those that would by chance to ``company[1]``.
    """
    for j in range(row.shape[0]):
        size = states[j, CHANGES + 2] * math.sqrt(1.0 + states[j, GAP])
        if size > 0.0 and not math.isnan(row[j]):
            company[1] += 3.0 / states[j, N]
            if size < abs(row[j] - states[j, LAST]) <= MOST_MOVED * size:
                company[0] += 1.0
    return PATIENCE if company[0] >= max(LEAST_MOVED, BY_CHANCE * company[1]) else 1.0


@kernel(i8(ro(1), rw(2), rw(2), rw(2), rw(2)))
def screen_rows(codes, rows, states, company, verdicts):
    """Judge rows in order and make jumps and codes NaN; `states` (columns, N_STATE) move on.

    A stuck reading lies within what its column has shown, and stays. Returns how many readings are not good; `verdicts`
    has the shape of `rows`.
    """
    n_bad = 0
    for i in range(rows.shape[0]):
        before = n_bad
        n_same = 0
        for j in range(rows.shape[1]):
            if states[j, N] > 0.0 and rows[i, j] == states[j, LAST]:
                n_same += 1
        alone = 1 if n_same <= max(MOST_STUCK * rows.shape[1], 1.0) else 0
        patience = _patience(rows[i], states, company[i])
        for j in range(rows.shape[1]):
            verdict = judge_reading(codes, rows[i, j], alone, patience, states[j])
            verdicts[i, j] = verdict
            if verdict != GOOD:
                n_bad += 1
                if verdict != STUCK:
                    rows[i, j] = math.nan
        if n_bad > before:
            _jump_together(verdicts[i], states)
    return n_bad


@kernel(void(ro(1), ro(2), rw(1), rw(1), rw(1)))
def doubt_row(codes, states, company, scratch, row):
    """Make readings of a row NaN that would be set aside; `states` stay as they are, `scratch` is (N_STATE)."""
    patience = _patience(row, states, company)
    for j in range(row.shape[0]):
        for k in range(scratch.shape[0]):
            scratch[k] = states[j, k]
        if judge_reading(codes, row[j], 0, patience, scratch) != GOOD:
            row[j] = math.nan
