"""Elementary scores: numbers, arrays and series alike; the energy score of one target is its CRPS."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from momostream.distributions import scores


@pytest.mark.parametrize("kind", [float, np.array, pd.Series])
def test_errors_and_intervals_of_numbers_arrays_and_series(kind):
    y, mean, lower, upper = (kind(value if kind is float else [value]) for value in (1.0, 3.0, 1.0, 2.0))
    found = scores.squared_error(y, mean), scores.absolute_error(y, mean), scores.is_inside(y, lower, upper)
    assert [type(value) for value in found[:2]] == [type(y)] * 2
    assert [float(np.ravel(value)[0]) for value in found] == [4.0, 2.0, 1.0]


def test_nan_is_never_inside():
    nan = np.full(2, np.nan)
    assert not scores.is_inside(nan, np.zeros(2), np.ones(2)).any()
    assert not scores.is_inside(np.zeros(2), nan, np.ones(2)).any()


def test_the_energy_score_of_one_target_is_its_crps():
    draws = np.random.default_rng(0).normal(size=(4000, 1))
    # CRPS of a standard normal at 0: (sqrt(2) - 1) / sqrt(pi).
    assert scores.energy_score(draws, np.zeros(1)) == pytest.approx((np.sqrt(2.0) - 1.0) / np.sqrt(np.pi), abs=0.02)
