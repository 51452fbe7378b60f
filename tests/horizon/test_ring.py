"""Forecasts as they were made: which are kept, where, and how they are saved."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.horizon.ring import MadeForecast, Ring

SIZES = {
    "horizon": 3, "n_series": 2, "n_inputs": 1, "n_experts": 4, "n_components": 5, "n_coordinates": 6, "n_features": 7,
    "n_wide": 2,
}  # fmt: skip


def a_forecast(seed=0, rests=(0.0, 0.0)):
    rng = np.random.default_rng(seed)
    parts = (rng.normal(size=shape) for shape in [(4, 3, 2), (2, 3, 2, 1), (5, 5, 6), (3, 2, 1), (3, 2)])
    return MadeForecast(*parts, np.array(rests))


def test_a_forecast_lies_in_the_slot_of_its_row():
    ring, made = Ring(**SIZES, every=1), a_forecast(rests=(1.0, 0.0))
    ring.keep(7, made)
    for step in range(3):
        assert_array_equal(ring.located[1, step], made.located[:, step])
        assert_array_equal(ring.slopes[1, step], made.slopes[:, step])
        assert_array_equal(ring.planes[1, step], made.planes[:, :, 2 * step : 2 * step + 2])
    assert_array_equal(ring.blend_slope[1], made.blend_slope)
    assert not ring.located[[0, 2]].any()
    assert_array_equal(ring.kept, [-1, 7, -1])
    # Of the row after it, made one row ago.
    assert_array_equal(ring.rests_of(8)[0], [1.0, 0.0])


@pytest.mark.parametrize(("every", "kept"), [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 3, 5, 6])])
def test_which_rows_are_kept_changes_with_every_round(every, kept):
    ring = Ring(**SIZES, every=every)
    assert [row for row in range(7) if ring.is_kept(row)] == kept


def test_scores_go_to_the_forecasts_of_the_row():
    ring = Ring(**SIZES, every=1)
    scores = np.arange(6.0).reshape(3, 2)
    ring.add_scores(1, scores)
    assert_array_equal(ring.scores[0, 0], scores[0])
    assert np.isfinite(ring.scores).sum() == 2
    ring.add_scores(5, scores)
    # Made one, two and three rows ago.
    for step, slot in enumerate([1, 0, 2]):
        assert_array_equal(ring.scores[slot, step], scores[step])


def test_a_state_keeps_the_keys_of_older_files():
    ring = Ring(**SIZES, every=1)
    ring.keep(1, a_forecast())
    state = ring.state(2)
    keys = ["located", "sloped", "blend_slope", "laws", "scores", "points", "features", "expected", "rests",
            "kept", "seen"]  # fmt: skip
    assert list(state) == keys
    assert ring.nbytes == sum(array.nbytes for array in state.values())
    copy = Ring(**SIZES, every=1)
    copy.restore(state)
    ring.keep(1, a_forecast(1, rests=(1.0, 1.0)))
    for key, array in copy.state(2).items():
        assert_array_equal(array, state[key])


def test_a_state_holds_only_distributions_whose_values_have_not_come():
    ring = Ring(**SIZES, every=1)
    for row in range(7):
        ring.keep(row, a_forecast(row))
    state = ring.state(7)
    horizon = ring.horizon
    for slot in range(horizon):
        for step in range(horizon):
            has_come = ring.kept[slot] + 1 + step <= 6
            expected = 0.0 * ring.planes[slot, step] if has_come else ring.planes[slot, step]
            assert_array_equal(state["laws"][slot, step], expected)
    # Forecasts of experts are read again when their last value has come.
    assert_array_equal(state["located"], ring.located)
    assert ring.planes.all()
