"""A row at the door of a model, in one call each way: doubted before it is predicted, screened before it is learnt.

What columns have shown comes by address, see `momostream.kernels.book`, in the lines named below.
"""

from __future__ import annotations

from momostream.kernels._compile import i8, kernel, ro, rw, void
from momostream.kernels.book import matrix, vector
from momostream.kernels.limits import show_rows
from momostream.kernels.readings import doubt_row, screen_rows

__all__ = ["doubt_inputs", "screen_row"]

# Codes of missing readings; states of inputs and targets; how many columns move far in the row; verdicts on its
# readings, and what they were; what the targets have shown; scratch for one state.
(
    CODES, INPUT_STATES, TARGET_STATES, COMPANY, INPUT_VERDICTS, TARGET_VERDICTS, INPUTS_GIVEN, TARGETS_GIVEN, SHOWN,
    SCRATCH,
) = range(10)  # fmt: skip


@kernel(void(rw(1), ro(2, i8)))
def doubt_inputs(x, book):
    """Make inputs of a row NaN that would be set aside; nothing is remembered."""
    company = matrix(book, COMPANY)[0]
    company[0] = 0.0
    company[1] = 0.0
    doubt_row(vector(book, CODES), matrix(book, INPUT_STATES), company, vector(book, SCRATCH), x)


@kernel(i8(rw(2), rw(2), ro(2, i8)))
def screen_row(x, y, book):
    """Make gross errors of the inputs and targets of one row NaN, and show its targets; returns how many are not good.

    Sets verdicts and what the readings were, all of shape ``(1, columns)``.
    """
    company = matrix(book, COMPANY)
    company[0, 0] = 0.0
    company[0, 1] = 0.0
    x_given = matrix(book, INPUTS_GIVEN)
    for j in range(x.shape[1]):
        x_given[0, j] = x[0, j]
    y_given = matrix(book, TARGETS_GIVEN)
    for j in range(y.shape[1]):
        y_given[0, j] = y[0, j]
    codes = vector(book, CODES)
    n_bad = screen_rows(codes, x, matrix(book, INPUT_STATES), company, matrix(book, INPUT_VERDICTS))
    n_bad += screen_rows(codes, y, matrix(book, TARGET_STATES), company, matrix(book, TARGET_VERDICTS))
    show_rows(y, matrix(book, SHOWN))
    return n_bad
