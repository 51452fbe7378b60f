"""Growing circuits on their own: the same as inside a stream's model; state, window, budget, work that waits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.distributions.planes import LOCATION, STD
from momostream.stream.circuits import Circuits
from momostream.stream.model import StreamModel
from momostream.stream.settings import StreamSettings
from momostream.stream.tokens import NO_TOKEN, StaleTokenError

SMALL = {"max_points": 24, "tuning_points": 24, "tuning_evaluations": 4, "first_tuning": 8, "seed": 0}
CONFIGURATIONS = {
    "inputs": {"experts": ("matern32",)},
    "time": {"experts": ("clock matern32",)},
    "linear": {"experts": ("rbf+linear",)},
    "sum": {"experts": ("matern32",), "n_components": 2},
    "groups": {"experts": ("matern52",), "n_groups": 2},
    "independent": {"experts": ("matern32",), "coupling": "independent"},
    "window": {"experts": ("clock matern32",), "window": 45},
    "no memory": {"experts": ("matern32",), "memory_budget": 0},
    "no tuning": {"experts": ("matern12",), "tuning_evaluations": 0},
}
each_configuration = pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())


def new_circuits(n_inputs=2, n_targets=2, kind=Circuits, **options):
    return kind(StreamSettings(**{**SMALL, **options}), n_inputs, n_targets)


def series(n_rows, gaps=0.1, seed=0):
    """Points, the first column of which is the time, and targets."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.arange(float(n_rows)), rng.normal(size=(n_rows, 2))])
    Y = np.sin(0.15 * X[:, :1] + np.arange(2)) + np.tanh(X[:, 1:]) + 0.1 * rng.normal(size=(n_rows, 2))
    Y[rng.random(Y.shape) < gaps] = np.nan
    return X, Y


def ask(circuits, point):
    distribution = np.full((2, len(circuits.trees), circuits.n_targets), np.nan)
    circuits.predict_trees(point, distribution[0], distribution[1])
    return distribution


def run(circuits, X, Y):
    """Predict and learn each row; returns the distributions."""
    distributions = []
    for point, y in zip(X, Y, strict=True):
        distributions.append(ask(circuits, point))
        circuits.learn_row(point, y)
        circuits.work()
    return np.array(distributions)


def again(circuits):
    copy = Circuits(circuits.settings, circuits.n_inputs, circuits.n_targets)
    copy.restore(circuits.state())
    return copy


@each_configuration
def test_the_same_as_in_a_stream(options):
    X, Y = series(130)
    # A row without any target is not learnt by a stream.
    known = ~np.isnan(Y).all(axis=1)
    X, Y = X[known], Y[known]
    circuits, stream = new_circuits(**options), new_circuits(kind=StreamModel, **options)
    for point, y in zip(X, Y, strict=True):
        stream.predict(point[1:], point[0])
        std = ask(circuits, point)[1]
        assert_array_equal(std, stream.stack.planes[STD])
        if np.isfinite(std).all():
            assert_array_equal(ask(circuits, point)[0], stream.stack.planes[LOCATION])
        circuits.learn_row(point, y)
        circuits.work()
        stream.learn(point[1:], y, point[0])
    assert circuits.jobs.waiting == stream.jobs
    assert circuits.n_learnt == stream.n_learnt == len(X)


def test_each_expert_has_a_tree_that_does_not_know_of_the_others():
    X, Y = series(90)
    # Splits draw from the same random numbers, and tuning has to wait its turn.
    options = {"max_points": 100, "tuning_evaluations": 0}
    both = run(new_circuits(experts=("matern32", "clock rbf"), **options), X, Y)
    for k, name in enumerate(("matern32", "clock rbf")):
        alone = run(new_circuits(experts=(name,), **options), X, Y)
        assert_array_equal(both[3:, :, k], alone[3:, :, 0])


def test_nothing_is_expected_before_the_first_row():
    circuits = new_circuits(experts=("matern32",))
    location, std = ask(circuits, np.zeros(3))
    assert_array_equal(location, 0.0)
    assert (std > 0.0).all()
    X, Y = series(10, gaps=0.0)
    run(circuits, X, Y)
    assert np.isfinite(ask(circuits, np.zeros(3))).all()


@each_configuration
@pytest.mark.parametrize("n_rows", [0, 1, 9, 25, 60, 101])
def test_restored_circuits_resume_bit_for_bit(options, n_rows):
    X, Y = series(130)
    circuits = new_circuits(**options)
    run(circuits, X[:n_rows], Y[:n_rows])
    copy = again(circuits)
    assert copy.jobs.waiting == circuits.jobs.waiting
    assert copy.jobs.n_gradients == circuits.jobs.n_gradients
    rest = slice(n_rows, n_rows + 25)
    assert_array_equal(run(copy, X[rest], Y[rest]), run(circuits, X[rest], Y[rest]))


def test_restored_in_the_middle_of_every_kind_of_work():
    X, Y = series(140)
    circuits = new_circuits(experts=("matern32", "clock matern32"), tuning_interval=2)
    distributions, states, kinds = [], {}, set()
    for i, (point, y) in enumerate(zip(X, Y, strict=True)):
        if circuits.jobs.waiting and i % 4 == 0:
            kinds.update(circuits.jobs.waiting)
            states[i] = circuits.state()
        distributions.append(ask(circuits, point))
        circuits.learn_row(point, y)
        circuits.work()
    assert {"tune", "build"} <= kinds
    for i, state in states.items():
        copy = new_circuits(experts=("matern32", "clock matern32"), tuning_interval=2)
        copy.restore(state)
        rows = slice(i, i + 30)
        assert_array_equal(run(copy, X[rows], Y[rows]), distributions[rows])


def test_a_state_is_a_picture_of_its_time():
    X, Y = series(120)
    circuits = new_circuits(experts=("matern32",))
    run(circuits, X[:70], Y[:70])
    state = circuits.state()
    first, second = (new_circuits(experts=("matern32",)) for _ in range(2))
    first.restore(state)
    distributions = run(first, X[70:], Y[70:])
    run(circuits, X[70:], Y[70:])
    second.restore(state)
    assert_array_equal(run(second, X[70:], Y[70:]), distributions)


def test_the_window_is_kept():
    X, Y = series(120)
    circuits = new_circuits(experts=("clock matern32",), window=30)
    run(circuits, X, Y)
    assert len(circuits.rows) == 30
    assert circuits.rows.first == 90
    assert sum(leaf.n_rows for leaf in circuits.trees[0].leaves()) == 30


def test_a_budget_changes_no_forecast():
    X, Y = series(150)
    free, tight = (run(new_circuits(experts=("matern32",), memory_budget=b), X, Y) for b in (None, 0))
    assert_array_equal(free, tight)


def test_all_work_can_be_finished():
    X, Y = series(100)
    circuits = new_circuits(experts=("matern32", "clock matern32"))
    run(circuits, X, Y)
    circuits.finish()
    assert circuits.jobs.waiting == []
    assert np.isfinite(ask(circuits, X[50])).all()


def test_the_same_seed_gives_the_same_floats():
    X, Y = series(100)
    options = {"experts": ("matern32",), "n_components": 3, "n_groups": 2}
    first, second = (run(new_circuits(**options), X, Y) for _ in range(2))
    assert_array_equal(first, second)
    assert (run(new_circuits(**{**options, "seed": 1}), X, Y) != first).any()


def test_rows_with_no_target_at_all():
    X, Y = series(60)
    Y[20:40] = np.nan
    distributions = run(new_circuits(experts=("matern32",)), X, Y)
    assert np.isfinite(distributions[5:]).all()


def test_bytes_are_counted():
    X, Y = series(40)
    circuits = new_circuits(experts=("matern32",))
    run(circuits, X, Y)
    assert circuits.nbytes > X.nbytes + Y.nbytes


# Tokens


def token_of(circuits, point):
    location, std = np.empty((2, len(circuits.trees), circuits.n_targets))
    return circuits.predict_trees(point, location, std)


CHANGES = {
    "another prediction": lambda circuits, point: token_of(circuits, point + 1.0),
    "the same prediction": token_of,
    "learning": lambda circuits, point: circuits.learn_row(point + 1.0, np.ones(2)),
    "learning rows": lambda circuits, point: circuits.learn_rows(point[None], np.ones((1, 2)), *np.empty((2, 1, 1, 2))),
    "hyper-parameters": lambda circuits, point: circuits.set_hyperparameters({}, 0.1),
    "a new start": lambda circuits, point: circuits.restart(20),
    "new targets": lambda circuits, point: circuits.widen(np.empty(0), 1),
    "new inputs": lambda circuits, point: circuits.widen(np.ones(1), 0),
    "a restored state": lambda circuits, point: circuits.restore(circuits.state()),
    "eviction": lambda circuits, point: [leaf.evict() for leaf in circuits.trees[0].leaves()],
    "predictions of rows": lambda circuits, point: circuits.predict_rows(point[None], *np.empty((2, 1, 1, 2))),
    "a window": lambda circuits, point: [circuits.drop_oldest() for _ in range(len(circuits.rows) - 1)],
}


@each_configuration
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_row_is_not_learnt_from_a_prediction_that_is_gone(options, change):
    X, Y = series(60, gaps=0.0)
    circuits = new_circuits(**options)
    run(circuits, X[:50], Y[:50])
    token = token_of(circuits, X[50])
    assert circuits.holds(token)
    change(circuits, X[50])
    assert not circuits.holds(token)
    before = circuits.n_learnt, circuits.rows.stop, [leaf.n_rows for leaf in circuits.trees[0].leaves()]
    for stale in (token, NO_TOKEN, token + 1_000_000):
        with pytest.raises(StaleTokenError, match="predict the row again"):
            circuits.learn_trees(stale, np.ones(circuits.n_targets))
    assert before == (circuits.n_learnt, circuits.rows.stop, [leaf.n_rows for leaf in circuits.trees[0].leaves()])


@each_configuration
def test_a_token_is_good_for_one_row(options):
    X, Y = series(60, gaps=0.0)
    circuits, plain = new_circuits(**options), new_circuits(**options)
    for point, y in zip(X, Y, strict=True):
        token = token_of(circuits, point)
        circuits.learn_trees(token, y)
        circuits.work()
        plain.learn_row(point, y)
        plain.work()
        with pytest.raises(StaleTokenError):
            circuits.learn_trees(token, y)
    assert_array_equal(ask(circuits, X[0]), ask(plain, X[0]))


def test_trees_without_experts_keep_to_their_tokens():
    """The linear experts alone have no tree that could notice."""
    circuits = new_circuits(experts=("lags",))
    token = token_of(circuits, np.zeros(3))
    circuits.learn_trees(token, np.ones(2))
    with pytest.raises(StaleTokenError):
        circuits.learn_trees(token, np.ones(2))


def test_more_leaves_are_counted_less_often(monkeypatch):
    """So that the count of all of them costs a row the same, however many there are."""
    counted = []
    monkeypatch.setattr("momostream.stream.circuits.BUDGET_EVERY", 4)
    monkeypatch.setattr("momostream.stream.circuits.LEAVES_PER_ROW", 1)
    monkeypatch.setattr(
        Circuits, "_evict", lambda self, budget: counted.append((self.n_learnt, self.trees[0].n_leaves))
    )
    run(new_circuits(experts=("matern32",), memory_budget=10**9), *series(400))
    rows, leaves = np.array(counted).T
    assert leaves[-1] > 8
    assert_array_equal(np.diff(rows), np.maximum(4, leaves[:-1]))
