"""A row of the stream in one call to predict it and one to learn it: leaves, lags and stack, each by its own kernel.

Arrays come by address, see `momostream.kernels.book`. A leaf has a book with the lines named `LEAF_...`, the model one
with all others. ``leaves`` (trees, 2) has, for each tree, the address of the book of the leaf that the row goes to, and
the rows in that leaf. Readings are screened by the book of `momostream.kernels.door`.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.book import cube, cubes, lines, matrix, singles, vector
from momostream.kernels.door import screen_row
from momostream.kernels.lags import learn_lags, learn_moments, predict_lags, short_width
from momostream.kernels.leaf import condition_leaf, learn_leaf, predict_leaf
from momostream.kernels.stack import stack_learn_rows, stack_predict_rows

__all__ = [
    "GAPS",
    "REFRESHED",
    "SCREENED",
    "SPOILT",
    "learn_leaf_at",
    "learn_point_at",
    "learn_row",
    "predict_leaf_at",
    "predict_row",
]

# Lines of the book of a leaf: arrays as in `momostream.kernels.leaf`, and its numbers.
LEAF_INPUTS, LEAF_OUTPUTS, LEAF_S, LEAF_L, LEAF_Z, LEAF_GAPS, LEAF_V, LEAF_WORK, LEAF_FACTS = range(9)
N_LEAF = 9
# Entries of `LEAF_FACTS`: kind and linear term of the covariance, noise, discount, whether L and v are singles, and the
# first column of the points that the leaf sees.
KIND, LINEAR, NOISE, DISCOUNT, SINGLE, START = range(6)

# Lines of the book of a model. Moments of the inputs, the planes of all experts, and the stacked mean:
MOMENTS, PLANES, MEANS = range(3)
# lags, as in `momostream.kernels.lags`;
PAST_X, PAST_Y, UNITS, P, B, RESIDUALS, ECHO, PATTERN, CLOCK, FITS, F, GAINS, EXPECTED, C, ERROR, FEATURES, CHANGES = (
    range(3, 20)
)  # fmt: skip
# stack, as in `momostream.kernels.stack`;
(
    RATES, CANDIDATES, CDF, DISCOUNTS, DOFS, NORMS, QUANTILES, MIXING, TAILS, OUTPUTS, BLEND, ERRORS, TOLD, PULLS,
    LIKELIHOOD, SCORES, R, FACTORS, LOG_DETS, PAIR_MOMENTS, PAIRS, FIT, WORK,
) = range(20, 43)  # fmt: skip
# numbers of both: forgetting and discount of the lags, sharpness, discount of the copula's scores, its prior and
# floor, memory and caution of the blend, rows between two refreshes of the correlations;
NUMBERS = 43
FORGETTING, LAG_DISCOUNT, SHARPNESS, SCORE_DISCOUNT, PRIOR, FLOOR, MEMORY, CAUTION, EVERY = range(9)
# the point that was predicted last, and the newest rows of the store.
POINT, NEWEST_X, NEWEST_Y = range(44, 47)
# The planes that the experts write.
LOCATION, STD = 0, 1
# Answers of `learn_row`: nothing was learnt, or what is to be done.
GAPS, SCREENED = -1, -2
REFRESHED, SPOILT = 1, 2


@kernel(void(i8, i8, ro(1), rw(1), rw(1)))
def predict_leaf_at(address, n, x, location, std):
    """Predict a row by the leaf whose book lies at an address."""
    leaf = lines(address, N_LEAF)
    facts = vector(leaf, LEAF_FACTS)
    kind = int(facts[KIND])
    inputs = matrix(leaf, LEAF_INPUTS)
    outputs = matrix(leaf, LEAF_OUTPUTS)
    S = matrix(leaf, LEAF_S)
    Z = matrix(leaf, LEAF_Z)
    gaps = matrix(leaf, LEAF_GAPS)
    work = vector(leaf, LEAF_WORK)
    if facts[SINGLE] > 0.0:
        predict_leaf(
            kind, facts[LINEAR], facts[NOISE], n, x, inputs, outputs, S, singles(leaf, LEAF_L), Z, gaps,
            singles(leaf, LEAF_V), work, location, std,
        )  # fmt: skip
    else:
        predict_leaf(
            kind, facts[LINEAR], facts[NOISE], n, x, inputs, outputs, S, vector(leaf, LEAF_L), Z, gaps,
            vector(leaf, LEAF_V), work, location, std,
        )  # fmt: skip


@kernel(i8(i8, i8, ro(1)))
def learn_leaf_at(address, n, y):
    """Learn a row by the leaf whose book lies at an address; returns whether its variance was finite."""
    leaf = lines(address, N_LEAF)
    facts = vector(leaf, LEAF_FACTS)
    outputs = matrix(leaf, LEAF_OUTPUTS)
    S = matrix(leaf, LEAF_S)
    Z = matrix(leaf, LEAF_Z)
    work = vector(leaf, LEAF_WORK)
    is_finite = abs(work[0]) < math.inf
    if facts[SINGLE] > 0.0:
        learn_leaf(n, facts[DISCOUNT], y, singles(leaf, LEAF_V), work, outputs, S, Z, singles(leaf, LEAF_L))
    else:
        learn_leaf(n, facts[DISCOUNT], y, vector(leaf, LEAF_V), work, outputs, S, Z, vector(leaf, LEAF_L))
    return is_finite


@kernel(i8(i8, i8, ro(1), ro(1)))
def learn_point_at(address, n, point, y):
    """Predict a point, time included, and learn it, by the leaf whose book lies at an address; returns as above."""
    leaf = lines(address, N_LEAF)
    facts = vector(leaf, LEAF_FACTS)
    x = point[int(facts[START]) :]
    inputs = matrix(leaf, LEAF_INPUTS)
    S = matrix(leaf, LEAF_S)
    Z = matrix(leaf, LEAF_Z)
    gaps = matrix(leaf, LEAF_GAPS)
    work = vector(leaf, LEAF_WORK)
    kind = int(facts[KIND])
    if facts[SINGLE] > 0.0:
        condition_leaf(
            kind, facts[LINEAR], facts[NOISE], n, x, inputs, S, singles(leaf, LEAF_L), Z, gaps, singles(leaf, LEAF_V),
            work,
        )  # fmt: skip
    else:
        condition_leaf(
            kind, facts[LINEAR], facts[NOISE], n, x, inputs, S, vector(leaf, LEAF_L), Z, gaps, vector(leaf, LEAF_V),
            work,
        )  # fmt: skip
    return learn_leaf_at(address, n, y)


@kernel(i8(f8, ro(1), f8, ro(2, i8), ro(2, i8)))
def predict_row(time, x, clip, leaves, book):
    """Predict the point of a time and inputs by all experts and stack them; returns how many leaves have gaps.

    Sets the point, the planes and the mean in the book of the model. `clip` is that of
    `momostream.kernels.lags.predict_lags`.
    """
    point = vector(book, POINT)
    point[0] = time
    for k in range(x.shape[0]):
        point[1 + k] = x[k]
    planes = cubes(book, PLANES)
    n_trees = leaves.shape[0]
    with_gaps = 0
    for k in range(n_trees):
        leaf = lines(leaves[k, 0], N_LEAF)
        with_gaps += matrix(leaf, LEAF_GAPS).shape[0] > 0
        start = int(vector(leaf, LEAF_FACTS)[START])
        predict_leaf_at(leaves[k, 0], leaves[k, 1], point[start:], planes[0, LOCATION, k], planes[0, STD, k])
    past_y = matrix(book, PAST_Y)
    predict_lags(
        x, matrix(book, PAST_X), past_y, matrix(book, UNITS), clip, short_width(x, past_y[0]), cube(book, P),
        cube(book, B), matrix(book, RESIDUALS), cube(book, PATTERN), vector(book, CLOCK), cube(book, FITS),
        vector(book, F), matrix(book, GAINS), matrix(book, EXPECTED), vector(book, C),
        planes[0, LOCATION, n_trees:], planes[0, STD, n_trees:],
    )  # fmt: skip
    stack_predict_rows(
        vector(book, NUMBERS)[SHARPNESS], matrix(book, CANDIDATES), cube(book, MIXING), cubes(book, TAILS),
        matrix(book, OUTPUTS), matrix(book, BLEND), planes, matrix(book, TOLD), matrix(book, MEANS),
    )  # fmt: skip
    return with_gaps


@kernel(i8(rw(1), rw(1), i8, i8, i8, i8, ro(2, i8), ro(2, i8), ro(2, i8)))
def learn_row(x, y, at, done, ready, position, leaves, book, door):
    """Screen the row that `predict_row` was last called for and learn it, if there is nothing to set aside.

    `x` are the inputs, NaN where missing, `y` the targets. ``door`` is the table of `momostream.kernels.door`, without
    lines if nothing is screened. Features go to line `at` of those that wait, the row to line `position` of the newest
    rows; `done` and `ready` are those of `momostream.kernels.stack.stack_learn_rows`.

    Returns `GAPS` if a target is missing: nothing is changed then. Or `SCREENED`, where some reading is not good:
    nothing is learnt. Or, as bits, what there is to do after the row was learnt: `REFRESHED` if the correlations are
    new, and times `SPOILT` the trees in whose leaf it had no finite variance.
    """
    for p in range(y.shape[0]):
        if math.isnan(y[p]):
            return GAPS
    rows_x = x.reshape(1, x.shape[0])
    rows_y = y.reshape(1, y.shape[0])
    if door.shape[0] > 0 and screen_row(rows_x, rows_y, door) > 0:
        return SCREENED
    numbers = vector(book, NUMBERS)
    done_now = stack_learn_rows(
        numbers[SHARPNESS], vector(book, RATES), done, int(numbers[EVERY]), ready, rows_y, matrix(book, CANDIDATES),
        matrix(book, CDF), vector(book, DISCOUNTS), numbers[SCORE_DISCOUNT], vector(book, DOFS), matrix(book, NORMS),
        matrix(book, QUANTILES), numbers[PRIOR], numbers[FLOOR], numbers[MEMORY], numbers[CAUTION], cube(book, MIXING),
        cubes(book, TAILS), matrix(book, OUTPUTS), matrix(book, BLEND), cube(book, ERRORS), cubes(book, PLANES),
        matrix(book, TOLD), matrix(book, PULLS), matrix(book, MEANS), vector(book, LIKELIHOOD), vector(book, SCORES),
        cube(book, R), cube(book, FACTORS), vector(book, LOG_DETS), cube(book, PAIR_MOMENTS), cube(book, PAIRS),
        matrix(book, FIT), matrix(book, WORK),
    )  # fmt: skip
    point = vector(book, POINT)
    learn_lags(
        point[1:], y, numbers[FORGETTING], numbers[LAG_DISCOUNT], short_width(x, y), matrix(book, GAINS),
        matrix(book, EXPECTED), vector(book, C), vector(book, F), matrix(book, PAST_X), matrix(book, PAST_Y),
        vector(book, ERROR), cube(book, P), cube(book, B), matrix(book, RESIDUALS), vector(book, ECHO),
        cube(book, PATTERN), vector(book, CLOCK), cube(book, FITS), matrix(book, FEATURES)[at],
        matrix(book, CHANGES)[at],
    )  # fmt: skip
    learn_moments(rows_x, matrix(book, MOMENTS))
    due = REFRESHED if done_now > 0 else 0
    for k in range(leaves.shape[0]):
        if not learn_leaf_at(leaves[k, 0], leaves[k, 1], y):
            due |= SPOILT << k
    newest_x = matrix(book, NEWEST_X)[position]
    for k in range(point.shape[0]):
        newest_x[k] = point[k]
    newest_y = matrix(book, NEWEST_Y)[position]
    for p in range(y.shape[0]):
        newest_y[p] = y[p]
    return due
