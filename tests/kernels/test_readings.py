"""The compiled rules about readings against lists of all readings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.kernels.readings import N_STATE, STUCK, screen_rows
from momostream.stream.readings import CODES
from tests.naive import screened


def history(kind, n=420):
    """Rows of three columns with errors of one kind."""
    rng = np.random.default_rng(len(kind))
    rows = np.cumsum(rng.normal(size=(n, 3)), axis=0) * 0.3 + rng.normal(size=(n, 3))
    where = rng.random(rows.shape) < 0.03
    if kind == "spikes":
        rows[where] += 10.0 ** rng.uniform(1.0, 3.0, where.sum())
    elif kind == "codes":
        rows[where] = -9999.0
        rows[300:380, 1] = 999.0
    elif kind == "stuck":
        rows[200:280, 0] = rows[200, 0]
        rows[300:330] = rows[300]
    elif kind == "levels":
        rows[150:, 0] += 300.0
        rows[250:300, 1] += 60.0
        rows[260:, 2] *= 1000.0
        rows[330:, 2] /= 1000.0
    elif kind == "resting":
        rows = np.round(np.where(where, rows, 0.0))
        rows[350, 0] = 1e6
    elif kind == "company":
        # A column that mostly rests has a peak as others move: the first is real, the second beyond all.
        rows[:, 2] = np.where(np.arange(n) % 40 < 3, rng.random(n), 0.0)
        rows[[300, 380], :2] += 4.0
        rows[200:204, 0] += [5.0, 18.0, 20.0, 9.0]
        rows[[300, 340, 380], 2] = [25.0, 25.0, 4000.0]
    elif kind == "gaps":
        rows[rng.random(rows.shape) < 0.4] = np.nan
        rows[where] = 500.0
    return rows


@pytest.mark.parametrize("kind", ["clean", "spikes", "codes", "stuck", "levels", "resting", "company", "gaps"])
def test_verdicts_are_those_of_lists(kind):
    rows = history(kind)
    found, verdicts = rows.copy(), np.zeros(rows.shape)
    n_bad = screen_rows(CODES, found, np.zeros((3, N_STATE)), np.zeros((len(rows), 2)), verdicts)
    expected = screened(rows, CODES.tolist())
    assert_array_equal(verdicts, expected)
    assert_array_equal(found, np.where((expected > 0.0) & (expected != STUCK), np.nan, rows))
    assert n_bad == (expected > 0.0).sum()
    assert (n_bad == 0) == (kind == "clean")
