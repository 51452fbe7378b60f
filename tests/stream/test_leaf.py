"""Leaves: the same answers as dense algebra on their rows, after any history."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.gp.covariance import Covariance
from momostream.gp.tuning import tune
from momostream.kernels.block import FEW, TILE
from momostream.kernels.scalar import SCALE0
from momostream.stream import leaf
from momostream.stream.leaf import MOST_UPDATES, Leaf
from momostream.stream.rows import RowStore
from momostream.stream.together import predict_together
from momostream.stream.tokens import NO_TOKEN, StaleTokenError, next_token
from tests import naive

PRECISIONS = pytest.mark.parametrize("precision", ["double", "single"], indirect=True)
TEXTS = ("matern12", "matern32", "matern52", "rbf", "matern32+linear")


@pytest.fixture(autouse=True)
def precision(request, monkeypatch):
    """All leaves in double precision, so that they can be held to it, where a test does not ask for another."""
    name = getattr(request, "param", "double")
    monkeypatch.setattr(leaf, "SINGLE", 0.0 if name == "single" else math.inf)
    return name


def theta_of(text, n_inputs, noise=0.01, lengths=None):
    lengths = np.linspace(0.8, 1.6, n_inputs) if lengths is None else lengths
    linear = [math.log(0.2)] if text.endswith("+linear") else []
    return np.concatenate([np.log(lengths), [math.log(noise)], linear])


def predict_alone(leaf, X, location, std):
    """Predict rows by one leaf."""
    leaf.lend()
    predict_together([leaf], [np.arange(len(X))], X, location, std)


class Twins:
    """A leaf in its store, and its slow twin, taken through the same history."""

    def __init__(self, text="matern32", n_inputs=2, n_targets=2, noise=0.01, discount=0.95, start=0):
        # Other outputs of the store are no business of the leaf.
        self.rows = RowStore(n_inputs - 1 + start, n_targets + 1)
        self.targets = np.arange(n_targets) + 1
        covariance = Covariance.parse(text)
        theta = theta_of(text, n_inputs, noise)
        self.leaf = Leaf(self.rows, start, self.targets, covariance, theta, discount, np.empty(0, dtype=np.int64))
        self.twin = naive.StreamLeaf(
            covariance.code, covariance.linear_variance(theta), covariance.noise(theta),
            covariance.lengthscales(theta), discount, n_targets,
        )  # fmt: skip
        self.location, self.std = np.empty((2, n_targets))

    @property
    def n_inputs(self):
        return self.leaf.inputs.shape[1]

    def store(self, x, y):
        point = np.concatenate([np.full(self.leaf.start, 99.0), x])
        return self.rows.append(point, np.concatenate([[-99.0], y]))

    def learn(self, x, y):
        token = next_token()
        self.leaf.predict(x, self.location, self.std, token)
        self.leaf.learn(token, self.store(x, y), y)
        self.twin.learn(x, y)

    def learn_rows(self, X, Y):
        numbers = np.array([self.store(x, y) for x, y in zip(X, Y, strict=True)])
        location, std = np.full((2, *Y.shape), np.nan)
        if not self.leaf.built:
            self.build()
        self.leaf.learn_rows(numbers, X, Y, location, std)
        for x, y in zip(X, Y, strict=True):
            self.twin.learn(x, y)
        return location, std

    def drop(self):
        self.leaf.drop_oldest()
        self.twin.drop()
        if not self.leaf.built:
            self.twin.refill()

    def build(self):
        self.leaf.evict()
        self.leaf.build()
        self.twin.refill()

    def condition(self):
        self.leaf.condition(self.leaf.theta)
        self.leaf.build()
        self.adopt_units()

    def adopt_units(self):
        self.twin.centre = self.leaf.inputs[0].copy()
        self.twin.offset, self.twin.scale = self.leaf.outputs[:2].copy()
        self.twin.refill()

    def check(self, x, rtol=1e-7):
        self.leaf.predict(x, self.location, self.std, next_token())
        location, std = self.twin.predict(x)
        assert_allclose(self.std, std, rtol=rtol)
        assert_allclose(self.location, location, rtol=rtol, atol=rtol * np.max(self.twin.scale))
        assert_array_equal(self.leaf.numbers, np.sort(self.leaf.numbers))
        assert self.leaf.n_rows == len(self.twin.X)
        if self.leaf.n_rows:
            X, Y = self.leaf.data()
            assert_array_equal(X, self.twin.X)
            assert_array_equal(Y, self.twin.Y)


def draw(rng, n_inputs, n_targets, missing=0.0):
    x, y = rng.normal(size=n_inputs), rng.normal(size=n_targets) + 3.0
    y[rng.random(n_targets) < missing] = np.nan
    return x, y


@PRECISIONS
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(4))
def test_any_history_matches_dense_algebra(seed, text, missing, precision):
    noises, rtol = ([0.002, 0.05], 2e-4) if precision == "single" else ([1e-4, 0.05], 1e-6)
    rng = np.random.default_rng(seed)
    n_inputs, n_targets = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    twins = Twins(text, n_inputs, n_targets, noise=float(rng.choice(noises)), start=int(rng.integers(2)))
    for _ in range(45):
        step = rng.choice(["learn", "twice", "drop", "evict", "build", "condition", "block", "check"], p=_SHARES)
        x, y = draw(rng, n_inputs, n_targets, missing)
        if step == "learn":
            twins.learn(x, y)
        elif step == "twice" and twins.twin.X:
            twins.learn(twins.twin.X[rng.integers(len(twins.twin.X))], y)
        elif step == "drop" and twins.leaf.n_rows:
            twins.drop()
        elif step == "evict":
            twins.leaf.evict()
            twins.twin.refill()
        elif step == "build":
            twins.build()
        elif step == "condition" and twins.leaf.n_rows:
            twins.condition()
        elif step == "block" and twins.leaf.n_rows < 25:
            # Blocks are for rows without gaps, but the leaf may have some.
            pairs = [draw(rng, n_inputs, n_targets) for _ in range(int(rng.integers(1, 6)))]
            twins.learn_rows(*(np.array(part) for part in zip(*pairs, strict=True)))
        elif step == "check":
            twins.check(x, rtol)
    twins.check(rng.normal(size=n_inputs), rtol)
    assert twins.leaf.factor.L.dtype == (np.float32 if precision == "single" and "+" not in text else np.float64)


_SHARES = [0.5, 0.06, 0.14, 0.04, 0.04, 0.06, 0.06, 0.1]


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("n_inputs", [0, 1, 5])
def test_growing_past_the_room_matches_dense_algebra(n_inputs, missing):
    rng = np.random.default_rng(1)
    twins = Twins("matern52", n_inputs, 2, start=1)
    for _ in range(70):
        twins.learn(*draw(rng, n_inputs, 2, missing))
    assert len(twins.leaf.factor.S) > 70 > 32
    twins.check(rng.normal(size=n_inputs))


def test_without_any_row_the_prior_speaks():
    twins = Twins()
    twins.check(np.zeros(2))
    assert_array_equal(twins.location, 0.0)
    twins.learn(np.zeros(2), np.ones(2))
    twins.drop()
    twins.check(np.zeros(2))
    assert_array_equal(twins.location, 0.0)


def test_offset_scale_and_centre_are_those_of_the_rows_seen(rng):
    twins = Twins(n_targets=3)
    for i in range(20):
        x, y = draw(rng, 2, 3, missing=0.3)
        y[2] = 5.0 if i % 2 else np.nan
        twins.learn(x, y)
    twins.condition()
    X, Y = twins.leaf.data()
    assert_allclose(twins.leaf.inputs[0], X.mean(axis=0), rtol=1e-12)
    assert_allclose(twins.leaf.outputs[0], np.nanmean(Y, axis=0), rtol=1e-12)
    assert_allclose(twins.leaf.outputs[1, :2], np.nanstd(Y[:, :2], axis=0), rtol=1e-12)
    assert 0.0 < twins.leaf.outputs[1, 2] < 5.0
    twins.check(np.zeros(2))


@pytest.mark.parametrize("noise", [1e-4, 0.01])
def test_much_noise_allows_single_precision(noise, monkeypatch):
    monkeypatch.undo()
    twins = Twins(noise=noise)
    twins.build()
    assert twins.leaf.factor.L.dtype == twins.leaf.factor.v.dtype == (np.float32 if noise == 0.01 else np.float64)


@PRECISIONS
def test_far_rows_cost_no_denormal_numbers(precision):
    """Correlations that single precision can hardly hold are zero, alone and in products."""
    twins = Twins("matern12", 1, 1)
    for x in np.linspace(0.0, 3000.0, 60):
        twins.learn(np.array([x]), np.array([1.0]))
    twins.condition()
    twins.leaf.predict(np.array([1500.0]), twins.location, twins.std, next_token())
    n = twins.leaf.n_rows
    smallest = np.finfo(twins.leaf.factor.L.dtype).tiny
    for values in (twins.leaf.factor.L[: n * (n + 1) // 2], twins.leaf.factor.v[:n]):
        assert (values != 0.0).any()
        assert np.abs(values[values != 0.0]).min() > math.sqrt(smallest)


@PRECISIONS
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("shape", [(0, 1), (1, 3), (4, 7)])
def test_rebuilt_equals_appended_bit_for_bit(text, shape, missing):
    rng = np.random.default_rng(2)
    twins = Twins(text, *shape, noise=1e-4, start=1)
    leaf = twins.leaf
    for _ in range(90):
        x, y = draw(rng, *shape, missing)
        token = next_token()
        leaf.predict(x, twins.location, twins.std, token)
        leaf.learn(token, twins.store(x, y), y)
    x = rng.normal(size=shape[0])
    leaf.predict(x, twins.location, twins.std, next_token())
    n = leaf.n_rows
    before = [
        a.copy()
        for a in (leaf.factor.S[:n], leaf.factor.Z[:n], leaf.factor.L[: n * (n + 1) // 2], leaf.outputs, twins.location)
    ]
    before.append(twins.std.copy())
    leaf.evict()
    assert leaf.nbytes == 0
    leaf.predict(x, twins.location, twins.std, next_token())
    after = (
        leaf.factor.S[:n],
        leaf.factor.Z[:n],
        leaf.factor.L[: n * (n + 1) // 2],
        leaf.outputs,
        twins.location,
        twins.std,
    )
    for old, new in zip(before, after, strict=True):
        assert_array_equal(new, old)


def singly(text, n_inputs, n_targets, X, Y, **options):
    twins = Twins(text, n_inputs, n_targets, **options)
    location, std = np.empty((2, *Y.shape))
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        twins.learn(x, y)
        location[i], std[i] = twins.location, twins.std
    return twins, location, std


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("sizes", [(1, 40), (40, 1), (20, 30, 25)])
@pytest.mark.parametrize("noise", [1e-8, 0.01])
def test_a_block_is_learnt_as_its_rows_would_be(text, sizes, noise):
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(sum(sizes), 2)), rng.normal(size=(sum(sizes), 2)) + 3.0
    one, location, std = singly(text, 2, 2, X, Y, noise=noise)
    many = Twins(text, 2, 2, noise=noise)
    parts = [many.learn_rows(x, y) for x, y in zip(*(np.split(a, np.cumsum(sizes)[:-1]) for a in (X, Y)), strict=True)]
    rtol = 1e-9 if noise > 1e-4 else 1e-5
    assert_allclose(np.vstack([part[0] for part in parts]), location, rtol=rtol, atol=rtol)
    assert_allclose(np.vstack([part[1] for part in parts]), std, rtol=rtol)
    assert_array_equal(many.leaf.numbers, one.leaf.numbers)
    x = rng.normal(size=2)
    for twins in (one, many):
        twins.leaf.predict(x, twins.location, twins.std, next_token())
    assert_allclose(many.location, one.location, rtol=rtol)
    assert_allclose(many.std, one.std, rtol=rtol)


@pytest.mark.parametrize("text", TEXTS)
def test_a_factor_that_starts_afresh_is_that_of_single_rows(text):
    rng = np.random.default_rng(3)
    twins = Twins(text, 2, 2)
    for _ in range(40):
        twins.learn(*draw(rng, 2, 2))
    twins.condition()
    assert twins.leaf.blocks == [(0, 40)]
    twins.check(rng.normal(size=2))
    twins.learn(*draw(rng, 2, 2))
    x = rng.normal(size=2)
    twins.leaf.predict(x, twins.location, twins.std, next_token())
    before = twins.location.copy(), twins.std.copy()
    twins.leaf.evict()
    twins.leaf.predict(x, twins.location, twins.std, next_token())
    assert_array_equal((twins.location, twins.std), before)


def test_a_leaf_that_waits_to_drop_a_row_can_be_saved():
    rng = np.random.default_rng(3)
    twins = Twins("matern32", 2, 2)
    for _ in range(40):
        twins.learn(*draw(rng, 2, 2))
    twins.condition()
    leaf = twins.leaf
    leaf.predict(rng.normal(size=2), twins.location, twins.std, next_token())
    leaf.drop_oldest()
    state = leaf.state()
    assert state["factor"]["n_pending"] == 1 and state["blocks"] == []
    again = Leaf.from_state(state, leaf.rows, leaf.start, leaf.covariance, leaf.discount)
    # As earlier versions wrote it.
    earlier = Leaf.from_state({**state, "blocks": [(0, 40)]}, leaf.rows, leaf.start, leaf.covariance, leaf.discount)
    assert again.blocks == earlier.blocks == []


def test_round_off_beyond_the_noise_is_no_obstacle():
    rng = np.random.default_rng(3)
    twins = Twins("matern32+linear", 2, 1, noise=1e-12)
    X = np.repeat(1e4 * rng.normal(size=(20, 2)), 3, axis=0)
    for x in X:
        twins.store(x, rng.normal(size=1))
    twins.leaf.numbers_, twins.leaf.n_rows = np.arange(60), 60
    twins.leaf.predict(X[0], twins.location, twins.std, next_token())
    assert twins.leaf.blocks == []
    assert np.isfinite([twins.location, twins.std]).all()


def test_a_block_after_a_gap_is_learnt_as_its_rows_would_be():
    rng = np.random.default_rng(4)
    X, Y = np.linspace(0.0, 8.0, 40)[:, None], rng.normal(size=(40, 2)).cumsum(axis=0)
    Y[5:25, 1] = np.nan
    one, location, std = singly("matern32", 1, 2, X, Y)
    many = Twins("matern32", 1, 2)
    for x, y in zip(X[:25], Y[:25], strict=True):
        many.learn(x, y)
    part = many.learn_rows(X[25:], Y[25:])
    assert_allclose(part[0], location[25:], rtol=1e-8, atol=1e-9)
    assert_allclose(part[1], std[25:], rtol=1e-8)
    many.check(np.array([8.2]))
    many.learn(np.array([8.4]), np.array([1.0, np.nan]))
    many.check(np.array([8.6]))


@PRECISIONS
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n", [0, 1, 50])
def test_many_predictions_are_those_one_by_one(text, n, missing, precision):
    rng = np.random.default_rng(5)
    twins = Twins(text, 3, 2)
    for _ in range(n):
        twins.learn(*draw(rng, 3, 2, missing))
    twins.build()
    # Two tiles, the second with columns to spare, and a tile followed by single rows.
    for n_rows in (2 * TILE - 3, TILE + FEW - 1):
        X = rng.normal(size=(n_rows, 3))
        X[4, 0] = np.nan
        location, std = np.full((2, n_rows, 2), np.nan)
        predict_alone(twins.leaf, X, location, std)
        rtol = 1e-9 if twins.leaf.factor.L.dtype == np.float64 else 3e-4
        for i, x in enumerate(X):
            twins.leaf.predict(x, twins.location, twins.std, next_token())
            assert_allclose(location[i], twins.location, rtol=rtol, atol=rtol)
            assert_allclose(std[i], twins.std, rtol=rtol)
    assert twins.leaf.n_rows == n


def test_predictions_in_between_change_nothing(rng):
    one, other = Twins(), Twins()
    for _ in range(30):
        x, y = draw(rng, 2, 2, 0.2)
        other.leaf.predict(rng.normal(size=2), other.location, other.std, next_token())
        for twins in (one, other):
            twins.learn(x, y)
        block = rng.normal(size=(3, 2))
        predict_alone(other.leaf, block, *np.empty((2, 3, 2)))
    for twins in (one, other):
        twins.leaf.predict(np.ones(2), twins.location, twins.std, next_token())
    assert_array_equal(one.location, other.location)
    assert_array_equal(one.std, other.std)


# ---------------------------------------------------------------------------------------------- tokens


CHANGES = {
    "another prediction": lambda twins: twins.check(np.zeros(2)),
    "predictions of rows": lambda twins: predict_alone(twins.leaf, np.zeros((1, 2)), *np.empty((2, 1, 2))),
    "a row": lambda twins: twins.learn(np.zeros(2), np.ones(2)),
    "rows": lambda twins: twins.learn_rows(np.zeros((1, 2)), np.ones((1, 2))),
    "a dropped row": lambda twins: twins.drop(),
    "eviction": lambda twins: twins.leaf.evict(),
    "a new factor": lambda twins: twins.build(),
    "hyper-parameters": lambda twins: twins.leaf.condition(twins.leaf.theta),
    "new units": lambda twins: twins.leaf.take_units_again(),
    "fewer rows": lambda twins: twins.leaf.keep_newest(5),
    "columns": lambda twins: twins.leaf.widen(None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_row_is_learnt_only_from_its_own_prediction(change):
    rng = np.random.default_rng(13)
    twins = Twins()
    for _ in range(20):
        twins.learn(*draw(rng, 2, 2))
    token = next_token()
    twins.leaf.predict(np.ones(2), twins.location, twins.std, token)
    change(twins)
    n_rows, outputs = twins.leaf.n_rows, twins.leaf.outputs.copy()
    for stale in (token, NO_TOKEN, next_token()):
        with pytest.raises(StaleTokenError, match="predict the row again"):
            twins.leaf.learn(stale, 99, np.ones(2))
    assert twins.leaf.n_rows == n_rows
    assert_array_equal(twins.leaf.outputs, outputs)


def test_a_leaf_does_not_take_the_token_of_another_one():
    one, other = Twins(), Twins()
    for twins in (one, other):
        twins.leaf.predict(np.ones(2), twins.location, twins.std, next_token())
    with pytest.raises(StaleTokenError):
        one.leaf.learn(other.leaf.token, 0, np.ones(2))


# ---------------------------------------------------------------------------------------------- missing targets


def test_a_missing_target_says_nothing(rng):
    """An output is predicted as by a leaf that never saw the rows where it was missing."""
    whole, only = Twins("matern52", 1, 2, discount=1.0), Twins("matern52", 1, 1, discount=1.0)
    for i in range(40):
        x = np.array([0.2 * i])
        y = np.array([math.sin(x[0]), math.cos(x[0])]) + 0.1 * rng.normal(size=2)
        if 15 <= i < 20:
            whole.learn(x, np.array([y[0], np.nan]))
        else:
            whole.learn(x, y)
            only.learn(x, y[1:])
    # The mean, at a place that the gap does not lie next to, and the squares by construction.
    for place in (8.0, 1.0):
        for twins in (whole, only):
            twins.leaf.predict(np.array([place]), twins.location, twins.std, next_token())
        assert whole.location[1] == pytest.approx(only.location[0], abs=0.03)
        assert whole.std[1] == pytest.approx(only.std[0], rel=0.1)


@pytest.mark.parametrize("first", [True, False])
def test_an_output_that_is_always_missing(first):
    rng = np.random.default_rng(6)
    twins = Twins()
    for _ in range(20):
        x, y = draw(rng, 2, 2)
        y[0 if first else 1] = np.nan
        twins.learn(x, y)
        twins.condition()
    twins.check(rng.normal(size=2))
    never = 0 if first else 1
    assert twins.location[never] == 0.0
    # Nothing is known: the prior of the variance, and all that the rows seem to explain is given back.
    assert twins.std[never] == pytest.approx(math.sqrt(SCALE0 * (1.0 + twins.twin.noise)), rel=1e-9)


def test_in_a_gap_an_output_is_predicted_from_the_rows_where_it_was_seen(rng):
    whole, only = Twins("matern52", 1, 2), Twins("matern52", 1, 1)
    for i in range(40):
        x, y = np.array([0.2 * i]), rng.normal(size=2)
        gap = i >= 25
        whole.learn(x, np.where([False, gap], np.nan, y))
        if not gap:
            only.learn(x, y[1:])
        for twins in (whole, only):
            twins.leaf.predict(x + 0.3, twins.location, twins.std, next_token())
        assert_allclose(whole.location[1], only.location[0], rtol=1e-8, atol=1e-9)
        assert_allclose(whole.std[1], only.std[0], rtol=1e-8)


@pytest.mark.parametrize("window", [None, 250])
def test_a_gap_of_150_rows_is_covered(window):
    """While one output is missing its intervals widen, and they hold during and after the gap."""
    inside = {"before": [], "gap": [], "after": []}
    growth = []
    covariance = Covariance.parse("matern32")
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, times = 400, np.arange(400.0)
        # Slow waves that do not repeat, with noise.
        waves = [np.sin(2.0 * np.pi * (times[:, None] / period + rng.random(2))) for period in rng.uniform(60, 200, 3)]
        Y = 0.5 * sum(waves) + 0.1 * rng.normal(size=(n, 2))
        head = Y[:200] - Y[:200].mean(axis=0)
        prior = covariance.prior(np.array([100.0]))
        theta, _ = tune(covariance, prior.centre, times[:200, None], head / head.std(axis=0), prior, 30)
        rows = RowStore(0, 2)
        numbers = rows.extend(times[:50, None], Y[:50])
        leaf = Leaf(rows, 0, np.arange(2), covariance, theta, 0.99, numbers)
        location, std = np.empty((2, 2))
        deviations = np.empty(n)
        for t in range(50, n):
            x, y = times[t : t + 1], Y[t].copy()
            part = "before" if t < 200 else "gap" if t < 350 else "after"
            if part == "gap":
                y[1] = np.nan
            token = next_token()
            leaf.predict(x, location, std, token)
            deviations[t] = std[1]
            inside[part].append(abs(Y[t, 1] - location[1]) <= stats.t.ppf(0.95, 30.0) * std[1])
            leaf.learn(token, rows.append(x, y), y)
            if window is not None and leaf.n_rows > window:
                leaf.drop_oldest()
            if t in (99, 199):
                leaf.condition(theta)
        if window is None:
            # Without the output only the distance from the last row that was seen changes.
            assert np.all(np.diff(deviations[200:350]) > -1e-9)
        growth.append(deviations[349] / deviations[200])
    for part, hits in inside.items():
        assert np.mean(hits) >= 0.8, part
    assert min(growth) > 1.5 and np.median(growth) > 3.0


def test_the_first_rows_may_be_missing(rng):
    twins = Twins()
    for i in range(12):
        x, y = draw(rng, 2, 2)
        twins.learn(x, y if i > 4 else np.array([y[0], np.nan]))
        twins.check(rng.normal(size=2))


def test_a_young_leaf_is_due_when_an_output_has_so_many_rows():
    twins = Twins()
    due = []
    for i in range(40):
        y = np.array([1.0 * i, 2.0 * i if i % 2 else np.nan])
        twins.learn(np.array([i, 0.0]), y)
        if twins.leaf.is_young():
            due.append(i + 1)
    assert {2, 4, 8, 16, 32} <= set(due)
    assert len(due) <= 8


# ---------------------------------------------------------------------------------------------- forgetting


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_window_that_slides_past_the_renewal_of_the_factor(missing):
    rng = np.random.default_rng(7)
    twins = Twins("matern32", 1, 2, noise=1e-3)
    size, since = 15, 0
    for i in range(MOST_UPDATES + 40):
        twins.leaf.predict(np.array([0.1 * i]), twins.location, twins.std, next_token())
        if since > MOST_UPDATES:
            # The factor is rebuilt inside `predict`.
            assert twins.leaf.factor.n_dropped == 0
            twins.twin.refill()
            since = 0
        x, y = np.array([0.1 * i]), rng.normal(size=2)
        y[rng.random(2) < missing] = np.nan
        twins.learn(x, y)
        if twins.leaf.n_rows > size:
            twins.drop()
            since += 1
        if i % 20 == 0:
            twins.check(np.array([0.1 * i + 0.05]), rtol=1e-6)
    twins.check(np.array([0.0]), rtol=1e-6)


def test_drop_without_a_factor(rng):
    twins = Twins()
    for _ in range(10):
        twins.learn(*draw(rng, 2, 2))
    twins.leaf.evict()
    for _ in range(4):
        twins.drop()
    assert not twins.leaf.built
    twins.check(np.zeros(2))
    assert_array_equal(twins.leaf.numbers, np.arange(4, 10))


# ---------------------------------------------------------------------------------------------- as plain data


@PRECISIONS
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("drops", [0, 1, 9])
@pytest.mark.parametrize("conditioned", [True, False])
def test_a_leaf_resumes_from_its_state_bit_for_bit(drops, missing, conditioned):
    rng = np.random.default_rng(8)
    twins = Twins("matern32+linear", 2, 2)
    leaf = twins.leaf
    for i in range(30):
        twins.learn(*draw(rng, 2, 2, missing))
        if conditioned and i in (4, 11):
            twins.condition()
    for _ in range(drops):
        twins.drop()
    leaf.prior_theta, leaf.next_tuning, leaf.touched = leaf.theta + 0.1, 77, 5
    state = leaf.state()
    later = [draw(rng, 2, 2, missing) for _ in range(40)]

    def resume(leaf, rows):
        found = []
        for x, y in later:
            location, std = np.empty((2, 2))
            token = next_token()
            leaf.predict(x, location, std, token)
            leaf.learn(token, rows.append(np.array(x), np.concatenate([[-99.0], y])), y)
            if leaf.n_rows > 45:
                leaf.drop_oldest()
            found.append([location, std])
        return np.array(found)

    rows = RowStore.from_state(twins.rows.state())
    twins.rows = RowStore.from_state(rows.state())
    again = Leaf.from_state(state, rows, leaf.start, leaf.covariance, leaf.discount)
    assert (again.next_tuning, again.touched) == (77, 5)
    assert_array_equal(again.prior_theta, leaf.prior_theta)
    assert_array_equal(again.targets, leaf.targets)
    assert_array_equal(resume(again, rows), resume(leaf, leaf.rows))


def test_a_state_does_not_change_when_the_leaf_learns(rng):
    twins = Twins()
    for _ in range(20):
        twins.learn(*draw(rng, 2, 2))
    twins.drop()
    state = twins.leaf.state()
    factor = {name: np.copy(value) for name, value in state["factor"].items()}
    numbers = state["numbers"].copy()
    for _ in range(3):
        twins.learn(*draw(rng, 2, 2))
        twins.drop()
    assert_array_equal(state["numbers"], numbers)
    for name, value in factor.items():
        assert_array_equal(state["factor"][name], value)


# ---------------------------------------------------------------------------------------------- columns that come later


def wide_twin(twins):
    """A twin made afresh from what the leaf says it is."""
    leaf = twins.leaf
    twins.twin = naive.StreamLeaf(
        leaf.covariance.code, leaf.covariance.linear_variance(leaf.theta), leaf.noise,
        leaf.covariance.lengthscales(leaf.theta), leaf.discount, len(leaf.targets),
    )  # fmt: skip
    X, Y = leaf.data()
    twins.twin.X, twins.twin.Y = list(X), list(Y)
    twins.location, twins.std = np.empty((2, len(leaf.targets)))
    twins.adopt_units()


@pytest.mark.parametrize("text", ["matern32", "matern32+linear"])
@pytest.mark.parametrize("n", [0, 12])
@pytest.mark.parametrize("what", ["inputs", "targets", "both"])
def test_columns_that_come_later(text, n, what):
    rng = np.random.default_rng(9)
    twins = Twins(text, 2, 2)
    leaf = twins.leaf
    for _ in range(n):
        twins.learn(*draw(rng, 2, 2, 0.2))
    leaf.prior_theta = leaf.theta.copy()
    noise, linear, lengths = (
        leaf.noise,
        leaf.covariance.linear_variance(leaf.theta),
        leaf.covariance.lengthscales(leaf.theta),
    )
    n_inputs, n_targets, targets = 2, 2, None
    if what != "targets":
        twins.rows.add_inputs([4.0, 5.0])
        n_inputs = 4
    if what != "inputs":
        twins.rows.add_targets(1)
        twins.targets = targets = np.array([1, 2, 3])
        n_targets = 3
    leaf.widen(targets)
    leaf.build()
    wide_twin(twins)
    assert (leaf.noise, leaf.covariance.linear_variance(leaf.theta)) == (noise, linear)
    assert_array_equal(leaf.covariance.lengthscales(leaf.theta)[:2], lengths)
    assert leaf.prior_theta.shape == leaf.theta.shape == (leaf.covariance.n_parameters(n_inputs),)
    if n_inputs == 4:
        # They have not varied yet, and no say until the next tuning.
        assert (leaf.covariance.lengthscales(leaf.theta)[2:] > 1e20).all()
        assert leaf.next_tuning <= leaf.n_seen + 32
    for _ in range(12):
        twins.learn(*draw(rng, n_inputs, n_targets, 0.2))
        twins.check(rng.normal(size=n_inputs))
    assert leaf.n_rows == n + 12


def test_new_inputs_leave_predictions_at_their_fill_alone(rng):
    twins = Twins("matern52", 2, 2)
    for _ in range(20):
        twins.learn(*draw(rng, 2, 2))
    twins.condition()
    twins.leaf.predict(np.array([0.3, 0.4]), twins.location, twins.std, next_token())
    location, std = twins.location.copy(), twins.std.copy()
    twins.rows.add_inputs([4.0])
    twins.leaf.widen(None)
    twins.leaf.predict(np.array([0.3, 0.4, 4.0]), twins.location, twins.std, next_token())
    assert_allclose(twins.location, location, rtol=1e-10)
    assert_allclose(twins.std, std, rtol=1e-10)


# ---------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("value", [0.0, 5.0, -1e9, 1e-9])
@pytest.mark.parametrize("block", [False, True])
def test_constant_targets(value, block):
    twins = Twins("matern32", 1, 1)
    X, Y = np.arange(40.0)[:, None], np.full((40, 1), value)
    for x, y in zip(X[:20], Y[:20], strict=True):
        twins.learn(x, y)
        if twins.leaf.is_young():
            twins.condition()
    if block:
        twins.learn_rows(X[20:], Y[20:])
    twins.leaf.predict(np.array([40.0]), twins.location, twins.std, next_token())
    assert twins.location[0] == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert 0.0 < twins.std[0] < max(abs(value), 1.0)


@pytest.mark.parametrize("noise", [1e-12, 1e-8, 1e-2])
@pytest.mark.parametrize("text", TEXTS)
def test_duplicate_rows(text, noise):
    rng = np.random.default_rng(10)
    twins = Twins(text, 1, 1, noise=noise, discount=1.0)
    values = rng.normal(size=40)
    for value in values[:30]:
        twins.learn(np.array([0.7]), np.array([value]))
    twins.learn_rows(np.full((10, 1), 0.7), values[30:, None])
    twins.leaf.predict(np.array([0.7]), twins.location, twins.std, next_token())
    shrunk = values.sum() / (40.0 + twins.twin.noise / (1.0 + twins.twin.linear * (0.7 / twins.twin.lengths[0]) ** 2))
    assert twins.location[0] == pytest.approx(shrunk, rel=1e-5, abs=1e-6)
    # The residuals are far larger than so little noise says, and the std learns it.
    if noise == 1e-2:
        assert twins.std[0] == pytest.approx(values.std(), rel=0.5)
    for _ in range(20):
        twins.drop()
    twins.leaf.predict(np.array([0.7]), twins.location, twins.std, next_token())
    assert twins.location[0] == pytest.approx(values[20:].mean(), rel=1e-2, abs=1e-3)
    assert np.isfinite(twins.std).all()


@pytest.mark.parametrize("n_targets", [1, 3])
def test_no_inputs(n_targets):
    rng = np.random.default_rng(11)
    twins = Twins("matern32", 0, n_targets, noise=0.5, start=1)
    for _ in range(20):
        twins.learn(np.empty(0), rng.normal(size=n_targets))
    twins.check(np.empty(0))
    twins.drop()
    twins.condition()
    twins.learn_rows(np.empty((5, 0)), rng.normal(size=(5, n_targets)))
    twins.check(np.empty(0))


@pytest.mark.parametrize("text", TEXTS)
def test_hardly_any_noise(text):
    rng = np.random.default_rng(12)
    twins = Twins(text, 2, 2, noise=1e-8)
    for _ in range(25):
        twins.learn(*draw(rng, 2, 2, 0.1))
    twins.check(rng.normal(size=2), rtol=1e-4)
    for _ in range(5):
        twins.drop()
    twins.check(rng.normal(size=2), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_rows_that_are_not_finite_are_reported():
    twins = Twins()
    for i in range(4):
        twins.store(np.array([np.nan if i == 2 else 1.0 * i, 0.0]), np.ones(2))
    twins.leaf.numbers_, twins.leaf.n_rows = np.arange(4), 4
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        twins.leaf.build()
    assert not twins.leaf.built and twins.leaf.nbytes == 0


def test_similarity_is_the_correlation_with_each_row(rng):
    twins = Twins("matern32+linear", 2, 1)
    for _ in range(10):
        twins.learn(*draw(rng, 2, 1))
    X, _ = twins.leaf.data()
    values = twins.leaf.similarity(X, X[3])
    S = X / twins.twin.lengths
    assert_allclose(values, naive.cross_covariance(twins.twin.kind, 0.0, S, S[3:4])[:, 0], rtol=1e-12)
    assert values[3] == 1.0


def far_leaf(n, size, text="rbf+linear", n_targets=1):
    """A leaf with short lengthscales, and rows that lie so many of them apart."""
    covariance, rows = Covariance.parse(text), RowStore(1, n_targets)
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(float(n)), size * rng.normal(size=n)])
    rows.extend(X, rng.normal(size=(n, n_targets)))
    theta = np.zeros(covariance.n_parameters(1))
    return Leaf(rows, 1, np.arange(n_targets), covariance, theta, 0.99, np.arange(n)), X


def test_points_too_far_for_numbers_are_unknown_one_by_one_and_together():
    leaf, _ = far_leaf(30, 1.0)
    X = np.array([[0.5], [1e30], [1e100], [1e160], [1e300]] * 8)
    together, alone = np.empty((2, 2, len(X), 1))
    leaf.lend()
    predict_together([leaf], [np.arange(len(X))], X, *together)
    for i in range(len(X)):
        leaf.predict(X[i], alone[0, i], alone[1, i], next_token())
    known = (together[1] < 1e120) & (np.abs(together[0]) < 1e120)
    assert np.array_equal(known, (alone[1] < 1e120) & (np.abs(alone[0]) < 1e120))
    assert known[:2].all() and not known[3:5].any()
    assert_allclose(together[:, known], alone[:, known], rtol=1e-6)


def test_a_factor_that_overflows_when_a_row_is_dropped_is_built_again():
    leaf, _ = far_leaf(6, 1.0)
    factor = leaf.settle()
    # Its square is no number.
    factor.L[6:10] = 1e200
    leaf.drop_oldest()
    again = leaf.settle()
    assert again is not factor and np.isfinite(again.pivots).all() and np.isfinite(leaf.outputs).all()


def test_residuals_beside_ratios_whose_squares_are_no_numbers():
    leaf, X = far_leaf(4, 1.0)
    factor = leaf.settle()
    factor.open_gaps()
    factor.gaps[0] = 1.0
    factor.L[6:9] = 1e200
    residuals = factor.own_residuals()
    assert np.isfinite(residuals).all() and abs(residuals[3, 0]) < 1e-100


def test_a_row_that_explains_more_than_a_number_holds_is_unknown():
    leaf, _ = far_leaf(4, 1.0)
    factor, location, std = leaf.settle(), np.empty(1), np.empty(1)
    factor.L[:1] = 1e-200
    leaf.predict(np.array([0.0]), location, std, next_token())
    assert std[0] == math.inf
