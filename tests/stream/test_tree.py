"""Growing circuits: every row is in the leaf that it routes to, whatever has happened before."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.covariance import Covariance
from momostream.stream.leaf import Leaf
from momostream.stream.nodes import Bundle, Gate, Sum
from momostream.stream.rows import RowStore
from momostream.stream.settings import StreamSettings
from momostream.stream.tokens import next_token
from momostream.stream.tree import Tree

CONFIGURATIONS = {
    "plain": {},
    "sum": {"n_components": 2},
    "sum, two levels": {"n_components": 2, "mixture_depth": 2},
    "sum, all levels": {"n_components": 2, "mixture_depth": None},
    "sum, posterior": {"n_components": 2, "mixture_depth": 2, "weights": "posterior"},
    "sum, uniform": {"n_components": 3, "weights": "uniform"},
    "groups": {"n_groups": 2},
    "groups by independence": {"n_groups": 2, "group_by": "independence"},
    "sum and groups": {"n_components": 2, "n_groups": 2, "mixture_depth": 2},
    "independent": {"coupling": "independent"},
    "independent sum and groups": {"coupling": "independent", "n_components": 2, "n_groups": 2},
    "variance": {"split_by": "variance"},
}
each_configuration = pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())


class Stream:
    """A tree with its rows, fed one row after the other; splits are done at once."""

    def __init__(self, n_inputs=2, n_targets=3, start=0, seed=0, **options):
        options = {"max_points": 12, "tuning_evaluations": 0, **options}
        self.rows = RowStore(n_inputs, n_targets)
        growth = StreamSettings(**options).growth(0)
        self.tree = Tree(self.rows, start, Covariance.parse("matern32"), growth, np.random.default_rng(seed))
        self.splits = 0

    def predict(self, point):
        location, std = np.empty((2, self.rows.n_targets))
        self.token = next_token()
        self.tree.predict(np.ascontiguousarray(point[self.tree.start :]), location, std, self.token)
        return np.array([location, std])

    def learn(self, point, y):
        distribution = self.predict(point)
        number = self.rows.append(point, y)
        self.tree.learn(self.token, number, y)
        self.work()
        return distribution

    def work(self):
        while self.tree.due:
            kind, node = self.tree.due.popleft()
            if kind == "split":
                self.splits += 1
                self.tree.split(node)

    def drop(self):
        self.tree.drop(self.rows.first)
        self.rows.drop_before(self.rows.first + 1)

    def widen(self, fill, n_more):
        self.rows.add_inputs(fill)
        self.rows.add_targets(n_more)
        self.tree.widen()


def random_row(rng, time, n_inputs, n_targets, gaps=0.0):
    point = np.concatenate([[float(time)], rng.normal(size=n_inputs).round(1)])
    y = point[1:].sum() + np.sin(0.1 * time) + np.arange(n_targets) + 0.1 * rng.normal(size=n_targets)
    missing = rng.random(n_targets) < gaps
    if not missing.all():
        y[missing] = np.nan
    return point, y


def fill_up(stream, n_rows, rng, gaps=0.0):
    for _ in range(n_rows):
        point, y = random_row(rng, stream.rows.stop, len(stream.rows.fill) - 1, stream.rows.n_targets, gaps)
        stream.learn(point, y)


def induced_leaves(node, x):
    """Leaves that ``x`` reaches in each induced tree: a list of lists, cells found by comparing with all cuts."""
    if isinstance(node, Leaf):
        return [[node]]
    if isinstance(node, Gate):
        cell = sum(x[node.column] > cut for cut in node.cuts)
        return induced_leaves(node.children[cell], x)
    parts = [induced_leaves(child, x) for child in node.children]
    if isinstance(node, Sum):
        return [leaves for part in parts for leaves in part]
    found = [[]]
    for part in parts:
        found = [before + leaves for before in found for leaves in part]
    return found


def check_structure(tree):
    """Parents, cuts and shapes fit together."""
    assert tree.root.parent is None
    stack = [(tree.root, np.arange(tree.rows.n_targets))]
    while stack:
        node, targets = stack.pop()
        if isinstance(node, Leaf):
            assert_array_equal(node.targets, targets)
            continue
        assert len(node.children) > 1 or isinstance(node, Bundle)
        assert all(child.parent is node for child in node.children)
        parts = [targets] * len(node.children)
        if isinstance(node, Gate):
            assert len(node.cuts) == len(node.children) - 1
            assert all(low < high for low, high in zip(node.cuts, node.cuts[1:], strict=False))
        elif isinstance(node, Sum):
            assert node.log_weights.shape == (len(node.children), len(targets))
            assert_allclose(np.exp(node.log_weights).sum(axis=0), 1.0)
        else:
            assert_array_equal(np.sort(np.concatenate(node.positions)), np.arange(len(targets)))
            parts = [targets[positions] for positions in node.positions]
        stack.extend(zip(node.children, parts, strict=True))


def check_rows(stream, dropped=frozenset()):
    """Each stored row is, in each induced tree and for each of its targets, in the leaf it routes to; nowhere else."""
    tree, rows = stream.tree, stream.rows
    numbers = np.arange(rows.first, rows.stop)
    X, Y = rows.gather(numbers)
    homes = {leaf: set() for leaf in tree.leaves()}
    assert tree.n_leaves == len(homes)
    for number, x, y in zip(numbers.tolist(), X[:, tree.start :], Y, strict=True):
        for leaves in induced_leaves(tree.root, x):
            owned = np.concatenate([leaf.targets for leaf in leaves])
            assert_array_equal(np.sort(owned), np.arange(rows.n_targets))
            for leaf in leaves:
                if not np.isnan(y[leaf.targets]).all():
                    homes[leaf].add(number)
    for leaf, home in homes.items():
        held = leaf.numbers.tolist()
        assert held == sorted(set(held))
        # A row whose targets came later as columns, or are all missing, may be held or not.
        Y = rows.gather(leaf.numbers)[1][:, leaf.targets]
        known = {n for n, y in zip(held, Y, strict=True) if not np.isnan(y).all()}
        assert known == home


def all_rows_reach(stream):
    """`reached` agrees with brute force."""
    tree = stream.tree
    X = stream.rows.gather(np.arange(stream.rows.first, stream.rows.stop))[0][:, tree.start :]
    for x in X:
        expected = {leaf for leaves in induced_leaves(tree.root, x) for leaf in leaves}
        assert set(tree.reached(x)) == expected


# Growing


@each_configuration
@pytest.mark.parametrize(("gaps", "start"), [(0.0, 0), (0.4, 1)])
def test_every_row_is_where_it_routes_to(options, gaps, start):
    stream = Stream(start=start, **options)
    fill_up(stream, 50 if options.get("mixture_depth", 1) is None else 90, np.random.default_rng(1), gaps)
    assert stream.splits > 3
    check_structure(stream.tree)
    check_rows(stream)
    all_rows_reach(stream)


@each_configuration
def test_leaves_stay_small_and_are_not_empty(options):
    stream = Stream(**options)
    fill_up(stream, 50, np.random.default_rng(2))
    sizes = [leaf.n_rows for leaf in stream.tree.leaves()]
    assert min(sizes) > 0
    assert max(sizes) <= 12


@pytest.mark.parametrize("missing", [0, 1])
def test_independent_outputs_split_though_one_is_never_seen(missing):
    stream = Stream(n_targets=2, coupling="independent")
    rng = np.random.default_rng(3)
    for t in range(60):
        point, y = random_row(rng, t, 2, 2)
        y[missing] = np.nan
        stream.learn(point, y)
    check_rows(stream)
    assert max(leaf.n_rows for leaf in stream.tree.leaves()) <= 12
    assert stream.splits < 12


def test_independent_outputs_seen_in_different_boxes():
    stream = Stream(n_inputs=1, n_targets=2, start=1, coupling="independent")
    for t in range(100):
        side = t % 20 == 0
        point = np.array([t, 0.01 * (t * 7 % 100) + 5.0 * side])
        stream.learn(point, np.array([1.0, np.nan]) if side else np.array([np.nan, 2.0]))
    check_rows(stream)
    assert max(leaf.n_rows for leaf in stream.tree.leaves()) <= 12
    assert stream.splits < 20


@pytest.mark.parametrize("options", [{}, {"n_components": 2}, {"n_groups": 2}, {"coupling": "independent"}])
@pytest.mark.parametrize("kind", ["no inputs", "constant", "two values", "one odd value", "many ties"])
def test_rows_that_can_hardly_be_told_apart(options, kind):
    n_rows = 120
    stream = Stream(n_inputs=0 if kind == "no inputs" else 2, start=1, **options)
    rng = np.random.default_rng(4)
    for t in range(n_rows):
        x = {
            "no inputs": [], "constant": [1e6, -3.0], "two values": [t % 2, 1.0], "one odd value": [t == 7, 0.0],
            "many ties": [rng.integers(3), rng.integers(2)],
        }[kind]  # fmt: skip
        distribution = stream.learn(np.array([float(t), *map(float, x)]), rng.normal(size=3))
        assert np.isfinite(distribution).all()
        assert (distribution[1] > 0.0).all()
        assert max(leaf.n_rows for leaf in stream.tree.leaves()) <= 13
    check_structure(stream.tree)
    assert min(leaf.n_rows for leaf in stream.tree.leaves()) > 0
    # A region that cannot be cut gives up half of its rows; it is not looked at with every row.
    assert stream.splits < n_rows / 2


@pytest.mark.parametrize("options", [{}, {"n_groups": 2}, {"coupling": "independent"}, {"n_components": 2}])
@pytest.mark.parametrize("window", [None, 60])
def test_a_drifting_stream_makes_one_gate(options, window):
    stream = Stream(n_inputs=0, n_targets=2, max_points=10, **options)
    for t in range(400):
        stream.learn(np.array([float(t)]), np.array([math.sin(t), 0.01 * t]))
        if window and len(stream.rows) > window:
            stream.drop()
    # Groups of outputs are cut on their own, below the first gate.
    assert stream.tree.depth == 1 + (options.get("coupling") == "independent") or "n_groups" in options
    assert stream.tree.depth <= 3
    n_leaves = len(list(stream.tree.leaves()))
    assert n_leaves <= 40 if window else n_leaves >= 40
    check_structure(stream.tree)
    check_rows(stream)


def test_cuts_of_other_covariates_nest():
    stream = Stream(n_inputs=2, start=1, split_by="variance", max_points=10)
    rng = np.random.default_rng(0)
    for t in range(200):
        x = rng.uniform(-1.0, 1.0, 2) * [3.0, 2.0]
        stream.learn(np.array([t, *x]), np.zeros(3))
    gates = [stream.tree.root, *stream.tree.root.children]
    assert {gate.column for gate in gates if isinstance(gate, Gate)} == {0, 1}
    for gate in gates[1:]:
        if isinstance(gate, Gate):
            assert gate.column != stream.tree.root.column
    assert stream.tree.depth < 8


def test_depth_limits_the_sums():
    for depth in (0, 1, 2):
        stream = Stream(n_components=2, mixture_depth=depth)
        fill_up(stream, 150, np.random.default_rng(5))

        def sums(node):
            if isinstance(node, Leaf):
                return 0
            return isinstance(node, Sum) + max(map(sums, node.children))

        assert sums(stream.tree.root) == depth


def test_children_take_what_their_parent_has_learnt():
    stream = Stream(n_inputs=1, max_points=12)
    fill_up(stream, 12, np.random.default_rng(0))
    theta = np.array([0.3, -0.2, -1.0])
    stream.tree.root.condition(theta)
    fill_up(stream, 1, np.random.default_rng(1))
    assert isinstance(stream.tree.root, Gate)
    for leaf in stream.tree.leaves():
        assert_array_equal(leaf.theta, theta)
        assert_array_equal(leaf.prior_theta, theta)


def test_inputs_that_drift_together_make_no_chain():
    stream = Stream(n_inputs=3, n_targets=1, max_points=8)
    rng = np.random.default_rng(0)
    for t in range(1200):
        point = np.array([t, t + rng.normal(), 2 * t + rng.normal(), 0.5 * t + rng.normal()])
        stream.learn(point, np.array([np.sin(t / 50)]))
    assert sum(1 for _ in stream.tree.leaves()) > 150
    assert stream.tree.depth <= 12


def test_what_was_split_is_let_go():
    stream = Stream(n_inputs=1, max_points=10)
    fill_up(stream, 300, np.random.default_rng(0))
    assert stream.splits > 20
    living = set(stream.tree.leaves())
    assert set(stream.tree._built) <= living
    assert len(stream.tree._built) <= len(living)
    assert set(stream.tree.built()) == {leaf for leaf in living if leaf.built}


# Sums


def sum_of_two(weights):
    """A tree whose root is a sum over gates on two covariates, the targets depend on the first alone."""
    stream = Stream(n_inputs=2, n_targets=1, start=1, n_components=2, weights=weights, max_points=40)
    rng = np.random.default_rng(0)
    for t in range(120):
        x = rng.normal(size=2)
        stream.learn(np.array([t, *x]), np.array([5.0 * np.sign(x[0]) + 0.01 * rng.normal()]))
    assert isinstance(stream.tree.root, Sum)
    return stream


def test_uniform_weights_stay():
    assert_allclose(np.exp(sum_of_two("uniform").tree.root.log_weights), 0.5)


@pytest.mark.parametrize("weights", ["posterior", "stacking"])
def test_weights_find_the_gate_that_matters(weights):
    root = sum_of_two(weights).tree.root
    better = next(k for k, gate in enumerate(root.children) if gate.column == 0)
    assert root.log_weights[better, 0] > math.log(0.6)


def test_a_sum_is_matched_by_its_first_two_moments():
    stream = sum_of_two("stacking")
    point = np.array([0.0, 0.2, -0.1])
    location, std = stream.predict(point)
    root = stream.tree.root
    parts = []
    for child in root.children:
        part = np.empty((2, 1))
        stream.tree._predict(child, point[1:], part[0], part[1], next_token())
        parts.append(part[:, 0])
    weights = np.exp(root.log_weights[:, 0])
    means, deviations = np.array(parts).T
    mean = weights @ means
    assert_allclose(location, mean)
    assert_allclose(std**2, weights @ (deviations**2 + means**2) - mean**2, rtol=1e-9)


@each_configuration
def test_the_distribution_has_the_mean_that_is_predicted(options):
    options = {**options, "weights": "posterior" if options.get("weights") != "uniform" else "uniform"}
    stream = Stream(**options)
    rng = np.random.default_rng(6)
    fill_up(stream, 60, rng)
    stream.widen([], 1)
    fill_up(stream, 20, rng)
    point, _ = random_row(rng, 80, 2, 4)
    location, _ = stream.predict(point)
    distribution = stream.tree.distribution(stream.tree.root, np.ascontiguousarray(point), 4, next_token())
    assert_allclose(distribution.mean[0], location, rtol=1e-9)


# Forgetting


@each_configuration
@pytest.mark.parametrize("gaps", [0.3])
def test_dropped_rows_are_gone_everywhere(options, gaps):
    stream = Stream(**options)
    rng = np.random.default_rng(7)
    fill_up(stream, 50, rng, gaps)
    for _ in range(30):
        for _ in range(int(rng.integers(3))):
            if len(stream.rows) > 1:
                stream.drop()
        fill_up(stream, 1, rng, gaps)
        assert min((leaf.numbers[0] for leaf in stream.tree.leaves() if leaf.n_rows), default=0) >= stream.rows.first
    check_structure(stream.tree)
    check_rows(stream)
    point, _ = random_row(rng, 200, 2, 3)
    assert np.isfinite(stream.predict(point)).all()


@each_configuration
def test_all_rows_may_go(options):
    stream = Stream(**options)
    rng = np.random.default_rng(8)
    fill_up(stream, 50, rng)
    while len(stream.rows):
        stream.drop()
    check_structure(stream.tree)
    assert sum(leaf.n_rows for leaf in stream.tree.leaves()) == 0
    fill_up(stream, 40, rng)
    check_rows(stream)


@each_configuration
def test_empty_cells_are_pruned(options):
    """A windowed stream that drifts must not pile up cells that nothing is in."""
    stream = Stream(n_inputs=1, **options)
    rng = np.random.default_rng(9)
    n_rows = 60 if options.get("mixture_depth", 1) is None else 200
    for t in range(n_rows):
        x = 0.1 * t + rng.normal()
        stream.learn(np.array([0.1 * t, x]), rng.normal(size=3))
        if len(stream.rows) > 40:
            stream.drop()
    sizes = [leaf.n_rows for leaf in stream.tree.leaves()]
    assert min(sizes) > 0
    assert set(stream.tree._built) <= set(stream.tree.leaves())
    check_structure(stream.tree)
    check_rows(stream)


@pytest.mark.parametrize("n_rows", [5, 60])
def test_a_leaf_whose_rows_are_gone_is_not_split(n_rows):
    """Rows may leave the window while the split waits for its turn."""
    stream = Stream()
    rng = np.random.default_rng(3)
    fill_up(stream, n_rows, rng)
    leaf = next(iter(stream.tree.leaves()))
    stream.tree.set_busy(leaf, "split")
    while len(stream.rows):
        stream.drop()
    assert "no rows left" in stream.tree.split(leaf)
    # An empty cell goes; the root stays.
    assert (leaf in set(stream.tree.leaves())) == (leaf is stream.tree.root)
    check_structure(stream.tree)
    fill_up(stream, 40, rng)
    check_rows(stream)


def test_restart_keeps_the_newest_rows():
    stream = Stream()
    fill_up(stream, 80, np.random.default_rng(10))
    newest = np.arange(70, 80)
    stream.tree.restart(newest)
    stream.rows.drop_before(70)
    check_structure(stream.tree)
    check_rows(stream)
    assert set(stream.tree._built) <= set(stream.tree.leaves())


# Columns that come later


@each_configuration
@pytest.mark.parametrize("seed", range(2))
def test_columns_may_come_at_any_time(options, seed):
    rng = np.random.default_rng(seed)
    stream = Stream(n_inputs=1, n_targets=2, **options)
    for _ in range(4):
        fill_up(stream, int(rng.integers(0, 25)), rng, gaps=0.2)
        before = stream.rows.n_targets
        stream.widen(list(rng.normal(size=int(rng.integers(0, 3)))), int(rng.integers(0, 3)))
        check_structure(stream.tree)
        point, _ = random_row(rng, 1, len(stream.rows.fill) - 1, stream.rows.n_targets)
        distribution = stream.predict(point)
        assert np.isfinite(distribution).all()
        assert (distribution[1] > 0.0).all()
        assert distribution.shape == (2, stream.rows.n_targets)
        assert before <= stream.rows.n_targets
    fill_up(stream, 30, rng, gaps=0.2)
    check_structure(stream.tree)
    check_rows(stream)


def test_a_new_output_is_learnt():
    for options in CONFIGURATIONS.values():
        stream = Stream(n_inputs=1, n_targets=2, max_points=30, **options)
        rng = np.random.default_rng(0)
        fill_up(stream, 40, rng)
        stream.widen([], 1)
        for t in range(40, 80):
            stream.learn(np.array([float(t), rng.normal()]), np.array([0.0, 1.0, 50.0 + rng.normal()]))
        location, std = stream.predict(np.array([80.0, 0.0]))
        assert abs(location[2] - 50.0) < 4.0
        assert 0.1 < std[2] < 20.0


# Blocks


@each_configuration
def test_blocks_of_rows_are_learnt_as_one_by_one(options, monkeypatch):
    monkeypatch.setattr("momostream.stream.leaf.SINGLE", math.inf)
    rng = np.random.default_rng(11)
    one, many = (Stream(max_points=200, first_tuning=8, **options) for _ in range(2))
    fill_up(one, 40, np.random.default_rng(1))
    fill_up(many, 40, np.random.default_rng(1))
    points, Y = map(np.array, zip(*(random_row(rng, 40 + i, 2, 3) for i in range(30)), strict=True))
    expected = np.array([one.learn(point, y) for point, y in zip(points, Y, strict=True)])
    numbers = many.rows.extend(points, Y)
    location, std = np.empty((2, 30, 3))
    many.tree.learn_rows(numbers, points, Y, location, std)
    assert_allclose(location, expected[:, 0], rtol=1e-8, atol=1e-8)
    assert_allclose(std, expected[:, 1], rtol=1e-8)
    check_rows(many)
    X = np.ascontiguousarray(points[:10] + 0.1)
    many.tree.predict_rows(X, location[:10], std[:10])
    for i, x in enumerate(X):
        assert_allclose([location[i], std[i]], one.predict(x), rtol=1e-8, atol=1e-8)


# As plain data


@each_configuration
@pytest.mark.parametrize("window", [None, 40])
def test_a_restored_tree_goes_on_bit_for_bit(options, window):
    stream = Stream(**options)
    rng = np.random.default_rng(12)
    for _ in range(70):
        fill_up(stream, 1, rng, gaps=0.2)
        if window and len(stream.rows) > window:
            stream.drop()
    again = Stream(**options)
    kept = stream.rows.state()
    again.rows = again.tree.rows = RowStore.from_state(kept)
    again.tree.rng.bit_generator.state = stream.tree.rng.bit_generator.state
    state = stream.tree.state(drops=True)
    again.tree.restore(state)
    check_structure(again.tree)
    check_rows(again)
    for t in range(70, 90):
        point, y = random_row(rng, t, 2, 3, gaps=0.2)
        assert_array_equal(stream.learn(point, y), again.learn(point, y))
        if window and len(stream.rows) > window:
            stream.drop()
            again.drop()
    # What was taken is a picture of its time.
    assert_array_equal(_flat(state), _flat(_restored(options, state, RowStore.from_state(kept)).state(drops=True)))


def _restored(options, state, rows):
    tree = Stream(**options).tree
    tree.rows = rows
    tree.restore(state)
    return tree


def _flat(state):
    """All numbers in a nest of plain data."""
    if isinstance(state, dict):
        state = list(state.values())
    if isinstance(state, list | tuple):
        return np.concatenate([np.zeros(0), *map(_flat, state)])
    return np.zeros(0) if state is None or isinstance(state, str) else np.ravel(np.asarray(state, dtype=np.float64))


@pytest.mark.parametrize("kind", ["split", "tune"])
def test_work_that_is_due_is_part_of_the_state(kind):
    options = {"max_points": 40, "tuning_evaluations": 5 if kind == "tune" else 0}
    stream = Stream(**options)
    rng = np.random.default_rng(0)
    while not stream.tree.due:
        point, y = random_row(rng, stream.rows.stop, 2, 3)
        stream.predict(point)
        stream.tree.learn(stream.token, stream.rows.append(point, y), y)
    again = Stream(**options)
    again.rows = again.tree.rows = stream.rows
    again.tree.restore(stream.tree.state(drops=True))
    assert [k for k, _ in again.tree.due] == [kind]
    assert again.tree.due[0][1] in list(again.tree.leaves())
    assert [leaf.busy for leaf in again.tree.leaves()] == [leaf.busy for leaf in stream.tree.leaves()]
