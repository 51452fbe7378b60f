"""Weights of the table model: posterior against brute force, uniform, stacking."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from momostream.batch.experts import CircuitExpert
from momostream.batch.nodes import REGION, SUM, Circuit
from momostream.distributions.student import t_variance
from momostream.estimators.presets import PRESETS
from tests import naive
from tests.batch.fitting import circuits, fitted, sums, toy
from tests.batch.test_passes import induced_trees, regions_of


def naive_evidence(region):
    """Log density of the targets of a Gaussian region, from its hyper-parameters and dense matrices."""
    lengths, noise = region.covariance.lengthscales(region.theta), region.covariance.noise(region.theta)
    K = naive.gram(naive.MATERN32, 0.0, noise, region.X / lengths)
    variance = region.moments()[0][0, 0] * region.scale[0] ** 2
    offset = np.full(region.n_rows, region.offset[0])
    return float(multivariate_normal(offset, variance * K).logpdf(region.Y[:, 0]))


def brute_posterior(expert):
    """Log evidence of a circuit and the posterior of each induced tree, by enumeration."""
    circuit = expert.circuit
    each = {
        number: naive_evidence(expert.regions[node.region]) for number, node in circuit.walk() if node.kind == REGION
    }
    numbers = {id(node): number for number, node in circuit.walk()}
    trees = induced_trees(circuit)
    joint = []
    for tree in trees:
        prior = -sum(np.log(len(circuit[number].children)) for number in tree)
        joint.append(prior + sum(each[numbers[id(node)]] for node in regions_of(circuit, tree)))
    evidence = logsumexp(joint)
    return evidence, trees, np.array(joint) - evidence


@pytest.mark.parametrize("learnt", [False, True])
def test_posterior_weights_are_those_of_brute_force(learnt):
    X, Y = toy(26, n_outputs=2)
    settings = {**PRESETS["momogp"], "max_points": 14, "experts": ("matern32",)}
    model = fitted(X[:20], Y[:20], **settings) if learnt else fitted(X, Y, **settings)
    if learnt:
        model.learn(X[20:], Y[20:])
    (expert,) = model.experts
    _, trees, log_posterior = brute_posterior(expert)
    assert len(trees) >= 2
    for number, node in expert.circuit.walk():
        if node.kind != SUM:
            continue
        within = [tree.get(number) for tree in trees]
        total = logsumexp(log_posterior[[k is not None for k in within]])
        for k in range(len(node.children)):
            expected = logsumexp(log_posterior[[found == k for found in within]]) - total
            assert_allclose(node.log_weights[k], expected, rtol=1e-6, atol=1e-6)


def test_the_root_s_posterior_weights_compare_whole_circuits():
    X, Y = toy(24, n_outputs=2)
    settings = {**PRESETS["momogp"], "max_points": 14}
    model = fitted(X, Y, **{**settings, "experts": ("matern32", "warped matern32")})
    evidence = np.array([brute_posterior(expert)[0] for expert in circuits(model)])
    assert_allclose(model.log_weights, evidence - logsumexp(evidence), rtol=1e-6, atol=1e-6)


def test_a_posterior_model_predicts_the_mixture_of_its_induced_trees():
    X, Y = toy(24, n_outputs=2)
    model = fitted(X, Y, **{**PRESETS["momogp"], "max_points": 14})
    (expert,) = model.experts
    circuit = expert.circuit
    T = toy(5, seed=1)[0]
    expected = np.zeros((5, 2))
    for tree in induced_trees(circuit):
        weight = np.exp(sum(circuit[number].log_weights[k] for number, k in tree.items()))
        for i, x in enumerate(T):
            for node in regions_of(circuit, tree, x):
                expected[i, node.outputs] += weight * expert.regions[node.region].predict(x[None]).mean[0]
    assert_allclose(model.predict(T).mean, expected)


def test_uniform_weights():
    X, Y = toy()
    model = fitted(X, Y, weights="uniform", max_points=20)
    assert_allclose(np.exp(model.log_weights), 1 / 3)
    inner = [node for expert in circuits(model) for node in sums(expert)]
    assert inner
    for node in inner:
        assert_allclose(np.exp(node.log_weights), 1 / 2)
    T = toy(9, seed=1)[0]
    each = [expert.distribution(T).mean for expert in model.experts]
    assert_allclose(model.predict(T).mean, np.mean(each, axis=0))


@pytest.mark.parametrize("stacking", ["loo", "blocks"])
def test_stacking_weights_sum_to_one(stacking):
    X, Y = toy()
    model = fitted(X, Y, max_points=25, stacking=stacking)
    assert model.log_weights.shape == (3, 2)
    assert_allclose(np.exp(model.log_weights).sum(axis=0), 1)
    inner = [node for expert in circuits(model) for node in sums(expert)]
    assert inner
    for node in inner:
        assert node.log_weights.shape == (2, 2)
        assert_allclose(np.exp(node.log_weights).sum(axis=0), 1)
        assert np.exp(node.log_weights).min() > 1e-5


def test_stacking_weighs_each_target_by_what_predicts_it():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(150, 1))
    Y = np.column_stack([2 * X[:, 0], np.sin(4 * X[:, 0])]) + 0.1 * rng.normal(size=(150, 2))
    model = fitted(X, Y, experts=("matern32", "linear"), max_iterations=20)
    weights = np.exp(model.log_weights)
    assert weights[1, 0] > 0.5
    assert weights[0, 1] > 0.95


@pytest.mark.parametrize("gate_first", [True, False])
def test_stacking_weighs_the_children_of_inner_sums(gate_first):
    """The target jumps where the gate of one child cuts, and nothing else happens."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(80, 2))
    Y = np.where(X[:, :1] > 0, 5.0, -5.0) + 0.1 * rng.normal(size=(80, 1))
    circuit = Circuit()
    gate = circuit.add_gate(0, [0.0], [circuit.add_region(0, [0]), circuit.add_region(0, [0])])
    plain = circuit.add_region(0, [0])
    circuit.add_sum([gate, plain] if gate_first else [plain, gate])
    model = fitted(X, Y, experts=("rbf",), structure=circuit)
    (node,) = sums(circuits(model)[0])
    assert np.exp(node.log_weights[0 if gate_first else 1, 0]) > 0.9


@pytest.mark.parametrize("stacking", ["loo", "blocks"])
def test_stacking_judges_residual_experts_by_the_targets(stacking):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, size=(100, 1))
    Y = 30 * X + np.sin(3 * X) + 0.05 * rng.normal(size=X.shape)
    model = fitted(X, Y, experts=("linear", "residual matern32"), stacking=stacking, max_iterations=10)
    assert np.exp(model.log_weights[1, 0]) > 0.9


def test_blocks_hold_out_stretches_of_rows():
    """A wave on a trend over the row number: neighbours know the wave, from another stretch only the trend is left."""
    time = np.arange(120.0)[:, None]
    Y = 0.05 * time + np.sin(time / 3) + 0.1 * np.random.default_rng(0).normal(size=time.shape)
    settings = {"experts": ("matern32", "linear"), "n_blocks": 4, "max_iterations": 10}
    loo, blocks = (np.exp(fitted(time, Y, stacking=stacking, **settings).log_weights) for stacking in ("loo", "blocks"))
    assert loo[0, 0] > 0.95
    assert blocks[1, 0] > 0.8


def test_blocks_are_stretches_of_all_rows_also_of_those_without_targets(monkeypatch):
    X, Y = toy(40)
    Y[5:25] = np.nan
    given = []
    weigh = CircuitExpert.weigh_by_stacking

    def spy(self, X, Y, blocks):
        given.append(blocks)
        return weigh(self, X, Y, blocks)

    monkeypatch.setattr(CircuitExpert, "weigh_by_stacking", spy)
    fitted(X, Y, experts=("matern32",), stacking="blocks", n_blocks=4)
    # Rows 0 to 4 are what is left of the first two stretches of ten, 25 to 29 of the third.
    assert_array_equal(given[0], [0] * 5 + [2] * 5 + [3] * 10)


def test_held_out_answers_belong_to_the_rows_that_have_the_target():
    X, Y = toy(40)
    Y[:15, 1] = np.nan
    model = fitted(X, Y, experts=("matern32",), coupling="independent")
    (expert,) = model.experts
    held_out = expert.weigh_by_stacking(X, Y, None)
    assert_array_equal(held_out.means[:, 0, 0], expert.regions[0].held_out(own_scatter=True).mean[:, 0])
    assert np.isnan(held_out.means[:15, 0, 1]).all()
    assert_array_equal(held_out.means[15:, 0, 1], expert.regions[1].held_out(own_scatter=True).mean[:, 0])


@pytest.mark.parametrize("name", ["matern32", "linear"])
def test_stacked_predictions_have_the_learnt_tails(name):
    X, Y = toy()
    model = fitted(X, Y, experts=(name,))
    (expert,) = model.experts
    T = toy(9, seed=1)[0]
    answer = (expert.regression if name == "linear" else expert.regions[0]).predict(T)
    assert np.abs(expert.tail.factor - 1).min() > 1e-3
    expected = answer.scale * expert.tail.factor * np.sqrt(t_variance(expert.tail.dof))
    assert_allclose(model.predict(T).std, expected)


def test_posterior_weights_of_coupled_targets_need_complete_rows():
    X, Y = toy(30)
    Y[4, 1] = np.nan
    with pytest.raises(ValueError, match="needs complete targets, but one is missing in row 4"):
        fitted(X, Y, weights="posterior", experts=("matern32",))
    fitted(X, Y, weights="posterior", experts=("matern32",), coupling="independent")
