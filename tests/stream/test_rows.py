"""The rows of a stream: what went in comes out, whatever has been added or forgotten since."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from momostream.stream.rows import BLOCK, RowStore


class Plain:
    """A list of rows, each as wide as the columns were when it came."""

    def __init__(self, n_inputs, n_targets):
        self.fill = [0.0] * (1 + n_inputs)
        self.n_targets = n_targets
        self.rows = []
        self.first = 0

    def read(self, numbers):
        X, Y = np.full((len(numbers), len(self.fill)), np.nan), np.full((len(numbers), self.n_targets), np.nan)
        for i, number in enumerate(numbers):
            x, y = self.rows[number]
            X[i] = [*x, *self.fill[len(x) :]]
            Y[i, : len(y)] = y
        return X, Y


def check(rows, plain, numbers):
    X, Y = rows.gather(np.asarray(numbers, dtype=np.int64))
    expected = plain.read(numbers)
    assert X.shape == expected[0].shape and Y.shape == expected[1].shape
    assert_array_equal(X, expected[0])
    assert_array_equal(Y, expected[1])


def draw(rng, store, n):
    points, Y = rng.normal(size=(n, len(store.fill))), rng.normal(size=(n, store.n_targets))
    Y[rng.random(Y.shape) < 0.1] = np.nan
    return points, Y


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "extend", "extend", "inputs", "targets", "drop", "reload"]),
        st.integers(0, BLOCK + 40),
    ),
    max_size=20,
)


@settings(max_examples=60)
@given(steps=STEPS, n_inputs=st.integers(0, 2), n_targets=st.integers(1, 2), seed=st.integers(0, 2**32 - 1))
def test_any_history_reads_as_a_list_of_rows(steps, n_inputs, n_targets, seed):
    rng = np.random.default_rng(seed)
    rows, plain = RowStore(n_inputs, n_targets), Plain(n_inputs, n_targets)
    for step, size in steps:
        if step == "append":
            for x, y in zip(*draw(rng, rows, size % 5), strict=True):
                assert rows.append(x, y) == len(plain.rows)
                plain.rows.append((x, y))
        elif step == "extend":
            points, Y = draw(rng, rows, size)
            numbers = rows.extend(points, Y)
            assert_array_equal(numbers, len(plain.rows) + np.arange(size))
            plain.rows.extend(zip(points, Y, strict=True))
        elif step == "inputs":
            fill = rng.normal(size=size % 3)
            rows.add_inputs(fill)
            plain.fill.extend(fill)
        elif step == "targets":
            rows.add_targets(size % 3)
            plain.n_targets += size % 3
        elif step == "drop":
            plain.first = min(plain.first + size, len(plain.rows))
            rows.drop_before(plain.first)
        else:
            rows = RowStore.from_state(rows.state())
        assert (rows.first, rows.stop) == (plain.first, len(plain.rows))
        assert len(rows) == len(plain.rows) - plain.first
    alive = np.arange(rows.first, rows.stop)
    check(rows, plain, alive)
    check(rows, plain, rng.permutation(alive))
    check(rows, plain, rng.choice(alive, 30) if len(alive) else alive)


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("before", [0, 5, BLOCK])
def test_extend_is_many_appends(n, before):
    rng = np.random.default_rng(n)
    one, many = RowStore(2, 2), RowStore(2, 2)
    points, Y = draw(rng, one, before + n)
    for store in (one, many):
        for x, y in zip(points[:before], Y[:before], strict=True):
            store.append(x, y)
    numbers = [one.append(x, y) for x, y in zip(points[before:], Y[before:], strict=True)]
    assert_array_equal(many.extend(points[before:], Y[before:]), numbers)
    for ours, theirs in zip(many.gather(np.arange(many.stop)), one.gather(np.arange(one.stop)), strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("place", [0, 7, BLOCK - 1])
def test_columns_that_come_in_the_middle_of_a_block(place):
    rows = RowStore(1, 1)
    for i in range(place):
        rows.append(np.array([i, 10.0 + i]), np.array([-i]))
    rows.add_inputs([5.0, 6.0])
    rows.add_targets(1)
    if place:
        # Before the first wide row, too.
        X, Y = rows.gather(np.array([place - 1]))
        assert_array_equal(X, [[place - 1, 9.0 + place, 5.0, 6.0]])
        assert_array_equal(Y, [[1 - place, np.nan]])
    rows.append(np.array([1.0, 2.0, 3.0, 4.0]), np.array([7.0, 8.0]))
    X, Y = rows.gather(np.arange(place + 1))
    assert_array_equal(X[-1], [1.0, 2.0, 3.0, 4.0])
    assert_array_equal(Y[-1], [7.0, 8.0])
    assert_array_equal(X[:-1, 2:], np.tile([5.0, 6.0], (place, 1)))
    assert np.isnan(Y[:-1, 1]).all()


def test_what_is_read_is_a_copy():
    rows = RowStore(0, 1)
    point, y = np.array([1.0]), np.array([2.0])
    rows.append(point, y)
    point[:], y[:] = 9.0, 9.0
    X, Y = rows.gather(np.array([0]))
    assert (X[0, 0], Y[0, 0]) == (1.0, 2.0)
    X[:], Y[:] = 9.0, 9.0
    assert rows.gather(np.array([0]))[0][0, 0] == 1.0


def test_a_state_does_not_change_when_the_stream_goes_on():
    rows = RowStore(1, 1)
    rows.extend(np.ones((3, 2)), np.ones((3, 1)))
    state = rows.state()
    rows.append(np.zeros(2), np.zeros(1))
    rows.add_inputs([4.0])
    rows.drop_before(2)
    again = RowStore.from_state(state)
    assert (again.first, again.stop, len(again.fill)) == (0, 3, 2)
    again.append(np.zeros(2), np.zeros(1))
    assert RowStore.from_state(state).stop == 3


def test_memory_stays_bounded_in_a_window():
    rows = RowStore(3, 2)
    most = 0
    for i in range(8 * BLOCK):
        rows.append(np.zeros(4), np.zeros(2))
        rows.drop_before(i - 99)
        most = max(most, rows.nbytes)
    # A hundred rows lie in at most two blocks.
    assert most <= 2 * BLOCK * 6 * 8
    assert len(rows) == 100


def test_all_rows_may_be_dropped():
    rows = RowStore(0, 1)
    for n in (3, BLOCK - 3, 5):
        rows.extend(np.ones((n, 1)), np.ones((n, 1)))
        rows.drop_before(rows.stop)
        assert len(rows) == 0
        rows = RowStore.from_state(rows.state())
    assert rows.append(np.array([4.0]), np.array([5.0])) == BLOCK + 5
    X, Y = rows.gather(np.array([BLOCK + 5]))
    assert (X[0, 0], Y[0, 0]) == (4.0, 5.0)


def test_dropping_again_does_not_bring_rows_back():
    rows = RowStore(0, 1)
    rows.extend(np.arange(10.0)[:, None], np.zeros((10, 1)))
    rows.drop_before(6)
    rows.drop_before(2)
    assert (rows.first, len(rows)) == (6, 4)
