"""A row of the stream in one call to predict it and one to learn it: leaves, lags and stack, each by its own kernel.

Arrays come by address, see `momostream.kernels.book`. A leaf has a book with the lines named `LEAF_...`, the model one
with all others. ``leaves`` (trees, 2) has, for each tree, the address of the book of the leaf that the row goes to, and
the rows in that leaf.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void, whole
from momostream.kernels.book import cube, cubes, lines, matrix, singles, vector
from momostream.kernels.lags import learn_lags, learn_moments, predict_lags
from momostream.kernels.leaf import learn_leaf, predict_leaf
from momostream.kernels.stack import stack_learn_rows, stack_predict_rows

__all__ = ["learn_leaf_at", "learn_row", "predict_leaf_at", "predict_row"]

# Lines of the book of a leaf: arrays as in `momostream.kernels.leaf`, and its numbers.
LEAF_INPUTS, LEAF_OUTPUTS, LEAF_S, LEAF_L, LEAF_Z, LEAF_GAPS, LEAF_V, LEAF_WORK, LEAF_FACTS = range(9)
N_LEAF = 9
# Entries of `LEAF_FACTS`: kind and linear term of the covariance, noise, discount, and whether L and v are singles.
KIND, LINEAR, NOISE, DISCOUNT, SINGLE = range(5)

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
# and numbers of both: forgetting and discount of the lags, sharpness, discount of the copula's scores, its prior and
# floor, memory and caution of the blend.
NUMBERS = 43
FORGETTING, LAG_DISCOUNT, SHARPNESS, SCORE_DISCOUNT, PRIOR, FLOOR, MEMORY, CAUTION = range(8)
# The planes that the experts write.
LOCATION, STD = 0, 1


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


@kernel(void(ro(1), whole, i8, f8, ro(2, i8), ro(2, i8)))
def predict_row(point, starts, short, clip, leaves, book):
    """Predict a row by all experts and stack them: sets the planes and the mean in the book of the model.

    ``starts`` (trees) is the first column of the point that each tree sees; `short` and `clip` are those of
    `momostream.kernels.lags.predict_lags`.
    """
    planes = cubes(book, PLANES)
    n_trees = leaves.shape[0]
    for k in range(n_trees):
        predict_leaf_at(leaves[k, 0], leaves[k, 1], point[starts[k] :], planes[0, LOCATION, k], planes[0, STD, k])
    predict_lags(
        point[1:], matrix(book, PAST_X), matrix(book, PAST_Y), matrix(book, UNITS), clip, short, cube(book, P),
        cube(book, B), matrix(book, RESIDUALS), cube(book, PATTERN), vector(book, CLOCK), cube(book, FITS),
        vector(book, F), matrix(book, GAINS), matrix(book, EXPECTED), vector(book, C),
        planes[0, LOCATION, n_trees:], planes[0, STD, n_trees:],
    )  # fmt: skip
    stack_predict_rows(
        vector(book, NUMBERS)[SHARPNESS], matrix(book, CANDIDATES), cube(book, MIXING), cubes(book, TAILS),
        matrix(book, OUTPUTS), matrix(book, BLEND), planes, matrix(book, TOLD), matrix(book, MEANS),
    )  # fmt: skip


@kernel(i8(ro(2), ro(1), ro(2), i8, i8, i8, i8, i8, ro(2, i8), ro(2, i8)))
def learn_row(x, point, y, short, at, done, every, ready, leaves, book):
    """Learn the row that `predict_row` was last called for; no target is missing, and no leaf has gaps.

    `x` and `y` (1, columns) are inputs, NaN where missing, and targets. Features go to line `at` of those that wait;
    `done`, `every` and `ready` are those of `momostream.kernels.stack.stack_learn_rows`. Returns the trees, as bits,
    in whose leaf the row had no finite variance.
    """
    numbers = vector(book, NUMBERS)
    stack_learn_rows(
        numbers[SHARPNESS], vector(book, RATES), done, every, ready, y, matrix(book, CANDIDATES), matrix(book, CDF),
        vector(book, DISCOUNTS), numbers[SCORE_DISCOUNT], vector(book, DOFS), matrix(book, NORMS),
        matrix(book, QUANTILES), numbers[PRIOR], numbers[FLOOR], numbers[MEMORY], numbers[CAUTION], cube(book, MIXING),
        cubes(book, TAILS), matrix(book, OUTPUTS), matrix(book, BLEND), cube(book, ERRORS), cubes(book, PLANES),
        matrix(book, TOLD), matrix(book, PULLS), matrix(book, MEANS), vector(book, LIKELIHOOD), vector(book, SCORES),
        cube(book, R), cube(book, FACTORS), vector(book, LOG_DETS), cube(book, PAIR_MOMENTS), cube(book, PAIRS),
        matrix(book, FIT), matrix(book, WORK),
    )  # fmt: skip
    learn_lags(
        point[1:], y[0], numbers[FORGETTING], numbers[LAG_DISCOUNT], short, matrix(book, GAINS), matrix(book, EXPECTED),
        vector(book, C), vector(book, F), matrix(book, PAST_X), matrix(book, PAST_Y), vector(book, ERROR),
        cube(book, P), cube(book, B), matrix(book, RESIDUALS), vector(book, ECHO), cube(book, PATTERN),
        vector(book, CLOCK), cube(book, FITS), matrix(book, FEATURES)[at], matrix(book, CHANGES)[at],
    )  # fmt: skip
    learn_moments(x, matrix(book, MOMENTS))
    spoilt = 0
    for k in range(leaves.shape[0]):
        if not learn_leaf_at(leaves[k, 0], leaves[k, 1], y[0]):
            spoilt |= 1 << k
    return spoilt
