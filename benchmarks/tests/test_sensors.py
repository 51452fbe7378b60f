"""Readings are spoiled as named, and losses are over the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import sensors


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01])
def test_about_this_share_is_spoiled_and_nothing_before_the_first_row(share):
    rows = np.random.default_rng(0).normal(size=(4000, 5))
    rows[::7, 2] = np.nan
    bad = sensors.spoiled(rows, share, 0)
    differs = (bad != rows) & ~np.isnan(rows)
    assert not differs[: sensors.FIRST].any() and np.isnan(bad[::7, 2]).all()
    assert 0.7 * share <= differs[sensors.FIRST :].mean() <= 1.1 * share


def test_all_kinds_occur():
    rows = np.random.default_rng(0).normal(size=(4000, 3))
    bad = sensors.spoiled(rows, 0.01, 0)
    read = (sensors.LEVEL + sensors.DEVIATION * bad)[bad != rows]
    assert np.isclose(read[:, None], sensors.CODES).any(axis=0).all()
    assert (np.diff(bad, axis=0) == 0.0).sum() > 10
    assert (np.abs(bad[bad != rows]) > 9.0).sum() > 30


def test_means_are_over_known_values_of_the_rows_asked_for():
    tally = sensors.Tally(np.array([[0.0, 0.0], [1.0, 10.0]]))
    for y in ([1.0, 3.0], [np.nan, 5.0], [100.0, 100.0]):
        tally.score(
            np.array(y), np.array([0.0, 1.0]), np.array([2.0, 4.0]), np.array([-0.01, -1.0]), np.array([2.0, 3.0])
        )
    found = tally.means(np.array([True, True, False]))
    assert found["rmse"] == pytest.approx((1.0 + np.sqrt((4.0 + 16.0) / 2.0)) / 2.0)
    assert found["crps"] == pytest.approx(3.0) and found["coverage"] == pytest.approx(2.0 / 3.0)
    assert found["beyond"] == pytest.approx((0.5 + 2 * 0.5) / 3.0)
