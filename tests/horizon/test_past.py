"""The newest rows of a feed: gaps, first values, room, what is asked of them, state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.past import Past
from tests import naive

NAN = np.nan


def feed(past, Y, X=None):
    X = np.zeros((len(Y), 0)) if X is None else X
    for y, x in zip(Y, X, strict=True):
        past.append(y, x)
    return past


def random_rows(n_rows, n_series=2, n_inputs=2, gaps=0.3, seed=0):
    rng = np.random.default_rng(seed)
    Y, X = rng.normal(size=(n_rows, n_series)).cumsum(axis=0), rng.normal(size=(n_rows, n_inputs))
    Y[rng.random(Y.shape) < gaps] = NAN
    X[rng.random(X.shape) < gaps] = NAN
    return Y, X


def held(past):
    """Rows that are there, and everything else that a row changes."""
    rows = slice(past.first, past.last + 1)
    return [
        past.series[rows], past.inputs[rows], past.observed[rows], past.n_missing, past.is_known, past.knows_input,
        past.input_sizes, past.n_rows,
    ]  # fmt: skip


@pytest.mark.parametrize("gaps", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("n_rows", [1, 2, 40])
def test_rows_are_those_of_a_plain_list(gaps, n_rows):
    Y, X = random_rows(n_rows, gaps=gaps)
    past = feed(Past(2, 2, 50), Y, X)
    rows = slice(past.first, past.last + 1)
    assert_allclose(past.series[rows], naive.kept_rows(Y), rtol=1e-12, atol=1e-12)
    assert_allclose(past.inputs[rows], naive.kept_rows(X)[:, :2], rtol=1e-12, atol=1e-12)
    assert_array_equal(past.observed[rows], Y)


def test_room_that_is_used_again_holds_the_newest_rows_of_a_plain_list():
    Y, X = random_rows(120)
    past = Past(2, 2, 33)
    for i, (y, x) in enumerate(zip(Y, X, strict=True)):
        past.append(y, x)
        n = past.last + 1 - past.first
        assert n >= min(i + 1, 33)
        start = i + 1 - n
        rows = slice(past.first, past.last + 1)
        assert_array_equal(past.observed[rows], Y[start : i + 1])
        assert_allclose(past.series[rows], naive.kept_rows(Y[: i + 1])[start:], rtol=1e-12, atol=1e-12)
        assert_allclose(past.inputs[rows], naive.kept_rows(X[: i + 1])[start:, :2], rtol=1e-12, atol=1e-12)
    assert past.n_rows == 120
    assert len(past.series) == 66


def test_a_series_that_comes_late_has_had_its_first_value_all_along():
    past = feed(Past(2, 1, 4), np.array([[1.0, NAN], [2.0, NAN]]), np.array([[NAN], [NAN]]))
    assert_array_equal(past.values, [2.0, 0.0])
    past.append(np.array([NAN, 7.0]), np.array([3.0]))
    assert_array_equal(past.series[:3, :, 1], 7.0)
    assert_array_equal(past.inputs[:3, :, 0], 3.0)
    assert_array_equal(past.observed[:3, 1], [NAN, NAN, 7.0])
    assert_array_equal(past.values, [2.0, 7.0])
    # Once only: a second value is news.
    past.append(np.array([NAN, 9.0]), np.array([-5.0]))
    assert_array_equal(past.series[:4, 0, 1], [7.0, 7.0, 7.0, 9.0])
    assert_array_equal(past.inputs[:4, 0, 0], [3.0, 3.0, 3.0, -5.0])


def test_a_series_that_comes_after_its_room_was_used_again():
    past = feed(Past(2, 0, 3), np.array([[float(i), NAN] for i in range(8)]))
    past.append(np.array([8.0, 5.0]), np.empty(0))
    rows = slice(past.first, past.last + 1)
    assert_array_equal(past.series[rows, :, 1], 5.0)
    assert_array_equal(past.series[rows, 0, 0], np.arange(9.0)[-len(past.series[rows]) :])


def test_rows_since_the_last_value_are_counted():
    past = Past(2, 0, 4)
    counts = []
    for y in ([NAN, NAN], [1.0, NAN], [NAN, NAN], [NAN, 2.0], [3.0, NAN]):
        past.append(np.array(y), np.empty(0))
        counts.append(past.n_missing.copy())
    assert_array_equal(counts, [[1, 1], [0, 2], [1, 3], [2, 0], [0, 1]])


def test_sizes_of_inputs_are_the_largest_so_far():
    past = feed(Past(1, 2, 3), np.zeros((8, 1)), np.array([[1.0, NAN], [-4.0, NAN], [2.0, 0.5]] + [[0.0, 0.0]] * 5))
    assert_array_equal(past.input_sizes, [4.0, 0.5])


def test_means_of_a_constant_are_the_constant():
    past = feed(Past(1, 1, 40), np.full((100, 1), 0.1), np.full((100, 1), 1e6 + 0.1))
    rows = slice(past.first, past.last + 1)
    assert_array_equal(past.series[rows], 0.1)
    assert_array_equal(past.inputs[rows], 1e6 + 0.1)


def test_the_slow_mean_is_the_mean_at_first_and_forgets_later():
    Y, _ = random_rows(600, n_series=1, gaps=0.0)
    past = feed(Past(1, 0, 700), Y)
    assert_allclose(past.series[[0, 99, 499], 1, 0], [Y[:1].mean(), Y[:100].mean(), Y[:500].mean()], rtol=1e-10)
    step = past.series[599, 1, 0] - past.series[598, 1, 0]
    assert step == pytest.approx(0.002 * (Y[599, 0] - past.series[598, 1, 0]), rel=1e-9)


def test_earlier_values_and_the_newest_where_there_are_none():
    past = feed(Past(2, 0, 8), np.array([[1.0, 10.0], [2.0, NAN], [3.0, 30.0]]))
    expected = [[3.0, 30.0], [2.0, 10.0], [1.0, 10.0], [3.0, 30.0]]
    assert_array_equal(past.earlier(np.array([0, 1, 2, 3])), expected)
    assert past.earlier(np.array([], dtype=np.int64)).shape == (0, 2)


def test_targets_are_changes_from_the_filled_origin():
    past = feed(Past(2, 0, 3), np.array([[1.0, 10.0], [NAN, 20.0], [3.0, NAN], [5.0, 50.0]]))
    assert_array_equal(past.targets(2), [[2.0, NAN], [4.0, 30.0]])
    assert_array_equal(past.targets(3), [[NAN, 10.0], [2.0, NAN], [4.0, 40.0]])


def test_targets_after_the_room_was_used_again():
    Y, _ = random_rows(50, gaps=0.2)
    past = Past(2, 0, 6)
    for i, y in enumerate(Y):
        past.append(y, np.empty(0))
        if i >= 5:
            origin = naive.kept_rows(Y[: i + 1])[i - 5, 0]
            assert_allclose(past.targets(5), Y[i - 4 : i + 1] - origin, rtol=1e-12)


@pytest.mark.parametrize("n_rows", [0, 1, 9, 20, 21, 47])
def test_a_restored_past_resumes_bit_for_bit(n_rows):
    Y, X = random_rows(80)
    past = feed(Past(2, 2, 10), Y[:n_rows], X[:n_rows])
    state = past.state()
    copy = Past(2, 2, 10)
    copy.restore(state)
    for rows in (slice(0, 0), slice(n_rows, None)):
        feed(past, Y[rows], X[rows])
        feed(copy, Y[rows], X[rows])
        for mine, other in zip(held(past), held(copy), strict=True):
            assert_array_equal(mine, other)
    # The state is a picture of its time.
    again = Past(2, 2, 10)
    again.restore(state)
    assert again.n_rows == n_rows
    for name, value in again.state().items():
        assert_array_equal(value, state[name])


def test_no_series_and_no_inputs():
    past = feed(Past(0, 0, 2), np.zeros((5, 0)))
    assert past.values.shape == (0,)
    assert past.n_rows == 5
