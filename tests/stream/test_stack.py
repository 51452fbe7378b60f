"""The root of a stream: weights, tails, copula."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.marginals import Marginals
from momostream.stream.stack import Stack


def ask(stack, location, spread):
    stack.planes[0], stack.planes[1] = location, spread
    return stack.predict()


def law_of(stack):
    """The distribution of the row that was asked last."""
    location, _, scale, dof, weight = stack.planes[:, None]
    return CopulaDistribution(Marginals(weight, location, scale, dof), *stack.copula)


def feed(stack, rng, n_rows, errors, spreads):
    """Experts whose errors and spreads are given; returns the targets' probabilities and the means' errors."""
    levels, away = [], []
    for _ in range(n_rows):
        y = 10.0 * rng.normal(size=stack.planes.shape[2])
        mean = ask(stack, y - errors(rng), spreads).copy()
        levels.append(law_of(stack).cdf(y[None])[0])
        away.append(mean - y)
        stack.learn(y)
    return np.array(levels), np.array(away)


def test_weights_find_the_better_expert_of_each_output():
    stack = Stack(2, 2)
    size = np.array([[0.1, 3.0], [3.0, 0.1]])
    _, away = feed(stack, np.random.default_rng(0), 300, lambda rng: size * rng.normal(size=(2, 2)), size)
    assert stack.weights[0, 0] > 0.8
    assert stack.weights[1, 1] > 0.8
    assert_allclose(stack.weights.sum(axis=0), 1.0)
    assert np.abs(away[100:]).mean() < 0.3


@pytest.mark.parametrize("wrong", [0.05, 20.0])
@pytest.mark.parametrize("dof", [2.5, 100.0])
@pytest.mark.parametrize("n_experts", [1, 2])
def test_intervals_cover_what_they_promise(wrong, dof, n_experts):
    """Experts whose spreads are wrong by a factor, with heavy tails."""
    stack = Stack(n_experts, 1)
    size = np.array([[1.0], [1.5]])[:n_experts]
    levels, _ = feed(
        stack, np.random.default_rng(1), 1500, lambda rng: size * rng.standard_t(dof, size=size.shape), wrong * size
    )
    tail = levels[300:, 0]
    # Experts whose errors are independent are better together than their mixture can say.
    spare = 0.05 if n_experts == 1 else 0.11
    for level in (0.5, 0.8, 0.95):
        assert -0.035 < np.mean(np.abs(tail - 0.5) < 0.5 * level) - level < spare


def test_the_density_integrates_to_one():
    stack = Stack(3, 1)
    size = np.array([[0.3], [1.0], [4.0]])
    feed(stack, np.random.default_rng(2), 200, lambda rng: size * rng.standard_t(4.0, size=(3, 1)), size)
    ask(stack, np.array([[0.0], [0.5], [-1.0]]), size)
    # Tails are heavy: a grid in the inverse of a hyperbolic sine.
    y = np.sinh(np.linspace(-16.0, 16.0, 4001))
    planes = law_of(stack)
    density = np.exp([planes.log_pdf([[value]])[0] for value in y])
    assert_allclose(np.trapezoid(density, y), 1.0, atol=1e-3)


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.9])
def test_the_copula_recovers_a_known_correlation(correlation):
    stack = Stack(1, 2)
    factor = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]])
    feed(stack, np.random.default_rng(3), 2000, lambda rng: factor @ rng.normal(size=2), np.ones((1, 2)))
    R, _ = stack.copula
    assert_allclose(R[0, 1], correlation, atol=0.12)
    assert_array_equal(np.diag(R), 1.0)


def test_the_copula_with_gaps_has_a_factor():
    stack = Stack(1, 6)
    rng = np.random.default_rng(4)
    for _ in range(400):
        y = np.full(6, rng.normal())
        y[1::2] *= -1.0
        y[rng.random(6) < 0.6] = np.nan
        ask(stack, np.zeros((1, 6)), np.ones((1, 6)))
        stack.learn(y)
    R, _ = stack.copula
    assert np.linalg.eigvalsh(R)[0] > 0.0
    assert np.isfinite(law_of(stack).log_pdf(np.zeros((1, 6)))).all()


def test_experts_without_a_spread_have_no_say():
    stack = Stack(3, 1)
    for spread in (np.inf, 0.0, np.nan):
        mean = ask(stack, np.array([[5.0], [np.nan], [3.0]]), np.array([[1.0], [spread], [spread]]))
        assert_allclose(mean, 5.0)
        stack.learn(np.array([5.1]))
        assert np.isfinite(stack.weights).all()


def test_a_stack_without_any_opinion_is_finite():
    stack = Stack(2, 2)
    mean = ask(stack, np.full((2, 2), np.nan), np.full((2, 2), np.inf))
    assert np.isfinite(mean).all()
    stack.learn(np.array([1e9, -1e9]))
    stack.learn(np.array([np.nan, 1.0]))
    assert np.isfinite(ask(stack, np.zeros((2, 2)), np.ones((2, 2)))).all()


def test_rows_without_opinions_teach_nothing():
    """What nobody predicted says nothing about scales, in whatever units."""
    stack = Stack(2, 2)
    ask(stack, np.full((2, 2), np.nan), np.full((2, 2), np.inf))
    stack.learn(np.array([1e9, -1e9]))
    assert_array_equal(stack.outputs[0], 0.0)
    assert_allclose(stack.weights, 0.5)


@pytest.mark.parametrize("value", [7.0, 0.0, 1e12])
def test_a_constant_target(value):
    stack = Stack(2, 1)
    for _ in range(300):
        mean = ask(stack, np.array([[value], [value + 1.0]]), np.array([[1e-12], [1.0]]))
        assert np.isfinite(stack.planes).all()
        stack.learn(np.array([value]))
    assert_allclose(mean, value, atol=0.1)


def run(stack, rng, n_rows):
    means = []
    for _ in range(n_rows):
        y = rng.normal(size=2)
        means.append(ask(stack, y + rng.normal(size=(2, 2)), np.array([[1.0, 0.5], [2.0, 1.0]])).copy())
        y[rng.random(2) < 0.1] = np.nan
        stack.learn(y)
    return np.array(means)


@pytest.mark.parametrize("stop", [0, 1, 37, 300])
def test_a_restored_stack_goes_on_bit_for_bit(stop):
    stack = Stack(2, 2)
    run(stack, np.random.default_rng(5), stop)
    state = stack.state()
    again = Stack(2, 2)
    again.restore(state)
    for name in ("_R", "_factors", "_log_dets"):
        assert_array_equal(getattr(again, name), getattr(stack, name))
    assert_array_equal(run(again, np.random.default_rng(6), 50), run(stack, np.random.default_rng(6), 50))
    for name in Stack._ARRAYS:
        assert_array_equal(getattr(again, name), getattr(stack, name))
    assert_array_equal(again.copula[0], stack.copula[0])


def test_a_state_is_a_picture_of_its_time():
    stack = Stack(2, 2)
    run(stack, np.random.default_rng(5), 50)
    state = stack.state()
    before = {name: np.array(state[name]) for name in Stack._ARRAYS}
    run(stack, np.random.default_rng(6), 50)
    for name, value in before.items():
        assert_array_equal(state[name], value)


def test_a_law_that_was_handed_out_does_not_change():
    stack = Stack(2, 2)
    run(stack, np.random.default_rng(5), 50)
    R, _ = stack.copula
    kept = R.copy()
    run(stack, np.random.default_rng(6), 50)
    assert_array_equal(R, kept)


def test_wider_stacks_keep_what_they_know():
    stack = Stack(2, 2)
    rng = np.random.default_rng(7)
    factor = np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]])
    feed(stack, rng, 400, lambda rng: (factor @ rng.normal(size=2)) * [[1.0], [3.0]], np.array([[1.0], [3.0]]))
    weights, tails, R = stack.weights.copy(), stack.tails.copy(), stack.copula[0]
    mean = ask(stack, np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2))).copy()
    stack.widen(3)
    assert_array_equal(stack.weights[:, :2], weights)
    assert_allclose(stack.weights[:, 2], 0.5)
    assert_array_equal(stack.tails[:, :, :2], tails)
    assert_allclose(stack.copula[0][:2, :2], R, atol=0.05)
    assert_array_equal(stack.copula[0][2], [0.0, 0.0, 1.0])
    wide = ask(stack, np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]), np.ones((2, 3)))
    assert_array_equal(wide[:2], mean)
    for _ in range(50):
        ask(stack, np.zeros((2, 3)), np.ones((2, 3)))
        stack.learn(rng.normal(size=3))
    assert np.isfinite(stack.copula[0]).all()


def test_units_do_not_matter():
    plain, scaled = Stack(2, 1), Stack(2, 1)
    rng = np.random.default_rng(8)
    for _ in range(200):
        y, errors = rng.normal(size=1), rng.normal(size=(2, 1))
        mean = ask(plain, y + errors, np.array([[1.0], [2.0]])).copy()
        big = ask(scaled, 2.0**30 * (y + errors), 2.0**30 * np.array([[1.0], [2.0]])).copy()
        assert_allclose(big / 2.0**30, mean, rtol=1e-9)
        plain.learn(y)
        scaled.learn(2.0**30 * y)
    assert_allclose(scaled.planes[2] / 2.0**30, plain.planes[2], rtol=1e-9)


def test_tails_learn_how_heavy_they_are():
    found = []
    for dof in (3.0, 1000.0):
        stack = Stack(1, 1)
        errors = stats.t(dof).rvs(3000, random_state=9)
        for error in errors:
            ask(stack, np.zeros((1, 1)), np.ones((1, 1)))
            stack.learn(np.array([error]))
        ask(stack, np.zeros((1, 1)), np.ones((1, 1)))
        found.append(stack.planes[3, 0, 0])
    assert found[0] <= 5.0 < 10.0 <= found[1]
