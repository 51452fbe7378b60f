"""The model as a whole: weights, invariances, learning on, missing values, and every parameter that can be wrong."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from momostream.batch.experts import CircuitExpert, ExpertSpec, FactorBudget, LinearMember
from momostream.batch.model import Model
from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit
from momostream.batch.settings import EXACT_ROWS, LOCAL_ROWS, Settings
from momostream.batch.weights import LEAST_WEIGHT
from momostream.distributions.joint import CopulaDistribution, MixtureDistribution
from momostream.distributions.student import t_variance
from momostream.estimators.presets import PRESETS
from tests import naive
from tests.batch.test_passes import induced_trees, leaves_of

DEFAULT = ("matern32", "warped matern12", "linear")


def toy(n=60, n_inputs=2, n_outputs=2, seed=0, noise=0.1):
    """Smooth functions of the first covariates, with noise that the outputs share in part."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, n_inputs))
    common = rng.normal(size=(n, 1))
    phase = np.arange(n_outputs)
    Y = np.sin(X[:, :1] * 1.5 + phase) + 0.5 * X[:, -1:] * phase + noise * (common + rng.normal(size=(n, n_outputs)))
    return X, Y


def fitted(X, Y, **settings):
    return Model(Settings(**{"seed": 0, "max_iterations": 3, **settings})).fit(X, Y)


def answers(model, X):
    """Everything that a prediction says about its marginals and joint distribution, as one array."""
    distribution = model.predict(X)
    parts = [
        distribution.mean,
        distribution.std,
        distribution.quantile(0.05),
        distribution.log_pdf_each(distribution.mean),
        distribution.cov.reshape(len(X), -1),
    ]
    return np.column_stack([*parts, distribution.log_pdf(distribution.mean + 0.5 * distribution.std)])


def circuits(model):
    return [member for member in model.members if isinstance(member, CircuitExpert)]


def sums(expert):
    return [node for _, node in expert.circuit.walk() if node.kind == SUM]


# ---------------------------------------------------------------------------------------------------- one region


@pytest.mark.parametrize("weights", ["uniform", "posterior"])
def test_one_expert_with_one_region_predicts_as_the_region(weights):
    X, Y = toy()
    model = fitted(X, Y, experts=("matern52",), weights=weights)
    (expert,) = model.members
    (region,) = expert.regions
    assert_array_equal(region.X, X)
    assert_array_equal(region.Y, Y)
    T = toy(9, seed=1)[0]
    distribution, answer = model.predict(T), region.predict(T)
    assert_array_equal(distribution.mean, answer.mean)
    assert_allclose(distribution.cov, answer.variance[:, None, None] * answer.S * t_variance(answer.dof))
    mean, cov = model.covariance_between_rows(T)
    assert_allclose(mean, answer.mean)
    variance = np.diag(answer.S) * t_variance(answer.dof)
    assert_allclose(cov, region.posterior_covariance(T)[:, :, None] * variance)


def test_independent_coupling_is_one_gaussian_region_per_output():
    X, Y = toy(n_outputs=3)
    model = fitted(X, Y, experts=("rbf",), weights="uniform", coupling="independent")
    (expert,) = model.members
    T = toy(9, seed=1)[0]
    distribution = model.predict(T)
    assert [list(outputs) for outputs in expert.outputs] == [[0], [1], [2]]
    for p, region in enumerate(expert.regions):
        answer = region.predict(T)
        assert answer.dof == np.inf
        assert_array_equal(distribution.mean[:, p], answer.mean[:, 0])
        assert_allclose(distribution.std[:, p], answer.scale[:, 0])
    assert_array_equal(distribution.cov, distribution.cov * np.eye(3))


def test_stacking_one_expert_leaves_it_all_the_weight_and_the_region_s_mean():
    X, Y = toy()
    model = fitted(X, Y, experts=("matern32",))
    assert_array_equal(model.log_weights, np.zeros((1, 2)))
    T = toy(9, seed=1)[0]
    assert_allclose(model.predict(T).mean, circuits(model)[0].regions[0].predict(T).mean)


def test_which_law_comes_out():
    X, Y = toy(30)
    assert isinstance(fitted(X, Y).predict(X), CopulaDistribution)
    assert isinstance(fitted(X, Y, weights="uniform").predict(X), MixtureDistribution)
    distribution = fitted(X, Y).predict(X[:4], targets=["a", "b"])
    assert distribution.targets == ("a", "b")


def test_no_iterations_keep_the_centre_of_the_prior():
    X, Y = toy()
    model = fitted(X, Y, experts=("matern32",), max_iterations=0)
    (region,) = circuits(model)[0].regions
    assert_allclose(region.covariance.lengthscales(region.theta), X.std(axis=0) * np.sqrt(2))


@pytest.mark.parametrize("settings", [{"coupling": "independent"}, {"n_cells": 1, "n_components": 2}])
def test_regions_start_at_a_prior_that_knows_the_units(settings):
    """Also where several regions share all rows, so that no hyper-parameters of a root are found first."""
    X, Y = toy()
    model = fitted(X * [1e6, 1e-6], Y, experts=("matern32",), weights="uniform", max_iterations=0, **settings)
    assert len(circuits(model)[0].regions) > 1
    for region in circuits(model)[0].regions:
        assert_allclose(region.covariance.lengthscales(region.theta), X.std(axis=0) * [1e6, 1e-6] * np.sqrt(2))


# ---------------------------------------------------------------------------------------------------- weights


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
        joint.append(prior + sum(each[numbers[id(node)]] for node in leaves_of(circuit, tree)))
    evidence = logsumexp(joint)
    return evidence, trees, np.array(joint) - evidence


@pytest.mark.parametrize("learnt", [False, True])
def test_posterior_weights_are_those_of_brute_force(learnt):
    X, Y = toy(26, n_outputs=2)
    settings = {**PRESETS["momogp"], "max_points": 14, "experts": ("matern32",)}
    model = fitted(X[:20], Y[:20], **settings) if learnt else fitted(X, Y, **settings)
    if learnt:
        model.learn(X[20:], Y[20:])
    (expert,) = model.members
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


def test_the_law_of_a_posterior_model_is_the_mixture_of_its_induced_trees():
    X, Y = toy(24, n_outputs=2)
    model = fitted(X, Y, **{**PRESETS["momogp"], "max_points": 14})
    (expert,) = model.members
    circuit = expert.circuit
    T = toy(5, seed=1)[0]
    expected = np.zeros((5, 2))
    for tree in induced_trees(circuit):
        weight = np.exp(sum(circuit[number].log_weights[k] for number, k in tree.items()))
        for i, x in enumerate(T):
            for node in leaves_of(circuit, tree, x):
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
    each = [member.distribution(T).mean for member in model.members]
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


def test_stacking_weighs_each_output_by_what_predicts_it():
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
    (expert,) = model.members
    held_out = expert.weigh_by_stacking(X, Y, None)
    assert_array_equal(held_out.means[:, 0, 0], expert.regions[0].held_out(own_scatter=True).mean[:, 0])
    assert np.isnan(held_out.means[:15, 0, 1]).all()
    assert_array_equal(held_out.means[15:, 0, 1], expert.regions[1].held_out(own_scatter=True).mean[:, 0])


@pytest.mark.parametrize("name", ["matern32", "linear"])
def test_stacked_predictions_have_the_learnt_tails(name):
    X, Y = toy()
    model = fitted(X, Y, experts=(name,))
    (member,) = model.members
    T = toy(9, seed=1)[0]
    answer = (member.expert if name == "linear" else member.regions[0]).predict(T)
    assert np.abs(member.tail.factor - 1).min() > 1e-3
    expected = answer.scale * member.tail.factor * np.sqrt(t_variance(member.tail.dof))
    assert_allclose(model.predict(T).std, expected)


# ---------------------------------------------------------------------------------------------------- same floats

STRUCTURED = {"max_points": 25, "n_groups": 2, "start": "random", "restarts": 1, "tuning_points": 15}


@pytest.mark.parametrize("settings", [{}, STRUCTURED, {**PRESETS["momogp"], "max_points": 20}])
def test_same_seed_same_floats(settings):
    X, Y = toy(n_outputs=3)
    first, again = (answers(fitted(X, Y, **settings), X[:9]) for _ in range(2))
    assert_array_equal(first, again)


def test_another_seed_other_floats():
    X, Y = toy(n_outputs=3)
    first, other = (fitted(X, Y, **STRUCTURED, seed=seed).predict(X[:9]).mean for seed in (0, 1))
    assert np.abs(first - other).max() > 1e-9


def test_the_number_of_jobs_does_not_change_a_bit():
    X, Y = toy(80)
    one, two = (answers(fitted(X, Y, max_points=30, n_jobs=n_jobs, max_iterations=5), X[:9]) for n_jobs in (1, 2))
    assert_array_equal(one, two)


def test_fit_forgets_what_was_fitted_before():
    X, Y = toy()
    model = fitted(*toy(40, n_inputs=3, n_outputs=1, seed=5))
    model.learn(*toy(4, n_inputs=3, n_outputs=1, seed=6))
    assert_array_equal(answers(model.fit(X, Y), X[:9]), answers(fitted(X, Y), X[:9]))


def test_predicting_leaves_no_trace():
    X, Y = toy()
    model = fitted(X, Y, max_points=25)
    first = answers(model, X[:9])
    model.predict(X[3:])
    model.covariance_between_rows(X[:4])
    assert_array_equal(answers(model, X[:9]), first)


def test_a_row_s_answer_does_not_depend_on_its_company():
    X, Y = toy()
    model = fitted(X, Y, max_points=25)
    T = toy(12, seed=1)[0]
    together = answers(model, T)
    assert_allclose(np.vstack([answers(model, T[i : i + 1]) for i in range(len(T))]), together, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("settings", [{}, {"max_points": 15, "experts": ("matern32", "residual matern32", "linear")}])
def test_a_small_memory_budget_does_not_change_a_bit(settings):
    X, Y = toy(70)
    Y[5, 0] = np.nan
    T = toy(9, seed=1)[0]
    found = []
    for budget in (None, 0, 3000):
        model = fitted(X[:50], Y[:50], memory_budget=budget, **settings)
        before = answers(model, T)
        model.learn(X[50:], Y[50:])
        found.append(np.vstack([before, answers(model, T)]))
        if budget is not None:
            held = [region.nbytes for expert in circuits(model) for region in expert.regions]
            # The region in use is never evicted.
            assert sum(held) - max(held) <= budget
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])


def test_the_budget_evicts_the_coldest_factor():
    X, Y = toy(30)
    model = fitted(X, Y, experts=("matern32",), weights="uniform", max_points=12, mixture_depth=0)
    a, b, c = circuits(model)[0].regions[:3]
    for region in (a, b, c):
        region.evict()
        region.predict(X[:1])
    budget = FactorBudget(a.nbytes + b.nbytes + c.nbytes - 1)
    for region in (a, b, a, c):
        assert budget.touch(region) is region
    assert a.nbytes > 0
    assert b.nbytes == 0
    assert c.nbytes > 0


def test_a_copied_budget_counts_each_region_once():
    X, Y = toy(30)
    model = fitted(X, Y, experts=("matern32",), weights="uniform", max_points=12, mixture_depth=0, memory_budget=10**9)
    model.predict(X)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        (expert,) = circuits(twin)
        expert.budget.limit = sum(region.nbytes for region in expert.regions)
        twin.predict(X)
        assert all(region.nbytes > 0 for region in expert.regions)


def test_a_budget_lets_go_of_regions_that_were_split():
    X, Y = toy(60)
    model = fitted(X[:20], Y[:20], experts=("matern32",), weights="uniform", max_points=20, memory_budget=10**9)
    gone = weakref.ref(circuits(model)[0].regions[0])
    model.predict(X)
    model.learn(X[20:], Y[20:])
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "settings", [{}, {"max_points": 25, "weights": "uniform"}, {**PRESETS["momogp"], "max_points": 20}]
)
def test_pickle_and_copy_keep_every_bit_and_go_on_alike(settings):
    X, Y = toy(70)
    model = fitted(X[:50], Y[:50], **settings)
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    first = answers(model, X[:9])
    for twin in twins:
        assert_array_equal(answers(twin, X[:9]), first)
        twin.learn(X[50:], Y[50:])
    assert_array_equal(answers(model, X[:9]), first)
    model.learn(X[50:], Y[50:])
    for twin in twins:
        assert_array_equal(answers(twin, X[:9]), answers(model, X[:9]))


def test_factors_are_rebuilt_from_unpickled_rows():
    """Arrays that were pickled are easily taken for copies, and then overwritten by the solves of a rebuild."""
    X, Y = toy(50)
    model = fitted(X, Y)
    twin = pickle.loads(pickle.dumps(model))
    for _ in range(2):
        for expert in circuits(twin):
            for region in expert.regions:
                region.evict()
        assert_array_equal(answers(twin, X[:9]), answers(model, X[:9]))
    assert_array_equal(circuits(twin)[0].regions[0].R, circuits(model)[0].regions[0].R)


# ---------------------------------------------------------------------------------------------------- invariance

FAMILY = [
    pytest.param({}, id="default"),
    pytest.param({"max_points": 25}, id="gates"),
    pytest.param({"max_points": 25, "weights": "uniform", "experts": ("rbf+linear", "residual matern32")}, id="linear"),
    # Not by variance while units change: which covariate varies most is a matter of units.
    pytest.param({**PRESETS["momogp"], "max_points": 25, "n_groups": 1, "split_by": "relevance"}, id="posterior"),
    pytest.param({"coupling": "independent", "stacking": "blocks", "max_points": 25}, id="blocks"),
]


@pytest.mark.parametrize("settings", FAMILY)
def test_the_order_of_columns_does_not_matter(settings):
    X, Y = toy(n_inputs=3)
    X *= [1.0, 30.0, 0.2]
    T = X[:9] + 0.01
    settings = {**settings, "max_iterations": 0}
    plain = fitted(X, Y, **settings).predict(T)
    order = [2, 0, 1]
    assert_allclose(fitted(X[:, order], Y, **settings).predict(T[:, order]).mean, plain.mean, rtol=1e-7, atol=1e-9)
    turned = fitted(X, Y[:, ::-1], **settings).predict(T)
    assert_allclose(turned.mean[:, ::-1], plain.mean, rtol=1e-7, atol=1e-9)
    assert_allclose(turned.cov[:, ::-1, ::-1], plain.cov, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("settings", FAMILY)
def test_units_do_not_matter(settings):
    X, Y = toy(n_inputs=3)
    X *= [1.0, 30.0, 0.2]
    T = X[:9] + 0.01
    # Without tuning all covariates are equally relevant and round-off would decide between them.
    settings = {**settings, "max_iterations": 0, "split_by": "variance"}
    plain = fitted(X, Y, **settings).predict(T)
    a = np.full(3, 170.0) if "max_points" in settings else np.array([1e3, 0.017, 7.0])
    b = np.array([500.0, -3.0, 0.0])
    c, d = np.array([1e-4, 3e5]), np.array([2.0, -1e5])
    moved = fitted(X * a + b, Y * c + d, **settings).predict(T * a + b)
    assert_allclose((moved.mean - d) / c, plain.mean, rtol=1e-5, atol=1e-6)
    assert_allclose(moved.std / c, plain.std, rtol=1e-5)
    assert_allclose(moved.cov / np.outer(c, c), plain.cov, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("settings", FAMILY)
def test_units_of_powers_of_two_do_not_matter_while_tuning(settings):
    X, Y = toy(n_inputs=3)
    T = X[:9] + 0.01
    plain = fitted(X, Y, **settings).predict(T)
    a, c = np.array([4.0, 0.125, 1024.0]), np.array([0.5, 2.0**20])
    moved = fitted(X * a, Y * c, **settings).predict(T * a)
    assert_allclose(moved.mean / c, plain.mean, rtol=1e-6, atol=1e-7)
    assert_allclose(moved.std / c, plain.std, rtol=1e-6)


def test_powers_of_two_of_the_targets_are_exact():
    X, Y = toy()
    plain, moved = fitted(X, Y).predict(X[:9]), fitted(X, 1024.0 * Y).predict(X[:9])
    assert_array_equal(moved.mean, 1024.0 * plain.mean)
    assert_array_equal(moved.std, 1024.0 * plain.std)


# ---------------------------------------------------------------------------------------------------- learning on


@pytest.mark.parametrize("settings", [{}, {"max_points": 50}])
def test_learning_appends_rows_to_the_regions_they_fall_into(settings):
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60], experts=("matern32", "warped rbf"), weights="uniform", **settings)
    twins = copy.deepcopy(circuits(model))
    model.learn(X[60:], Y[60:])
    for expert, twin in zip(circuits(model), twins, strict=True):
        assert len(expert.regions) == len(twin.regions) == (1 if not settings else 4)
        for x, y in zip(twin.view(X[60:]), Y[60:], strict=True):
            for tree in induced_trees(twin.circuit):
                for node in leaves_of(twin.circuit, tree, x):
                    # Both trees of the sum; a gate below reaches one region.
                    region = twin.regions[node.region]
                    if not any((row == x).all() for row in region.X):
                        region.append(x, y[node.outputs])
        for region, expected in zip(expert.regions, twin.regions, strict=True):
            assert_array_equal(region.X, expected.X)
            assert_array_equal(region.theta, expected.theta)
            assert_array_equal(region.predict(X[:5]).mean, expected.predict(X[:5]).mean)
    assert model.n_rows == 70


def test_calls_of_learn_can_be_cut_anywhere():
    X, Y = toy(80)
    models = [fitted(X[:50], Y[:50], experts=("matern32", "rbf"), weights="uniform") for _ in range(2)]
    models[0].learn(X[50:], Y[50:])
    for start, stop in ((50, 51), (51, 51), (51, 67), (67, 80)):
        models[1].learn(X[start:stop], Y[start:stop])
    assert_array_equal(answers(models[0], X[:9]), answers(models[1], X[:9]))


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_learning_equals_fitting_where_offsets_and_hyper_parameters_are_the_same(coupling):
    """Promised for one region without tuning only: the mirror image of all rows keeps their mean and deviation."""
    X, Y = toy(30)
    X2, Y2 = 2 * X.mean(axis=0) - X, 2 * Y.mean(axis=0) - Y
    settings = {"experts": ("matern32",), "weights": "uniform", "max_iterations": 0, "coupling": coupling}
    at_once = fitted(np.vstack([X, X2]), np.vstack([Y, Y2]), **settings)
    in_turn = fitted(X, Y, **settings)
    in_turn.learn(X2, Y2)
    T = toy(9, seed=1)[0]
    assert_allclose(answers(in_turn, T), answers(at_once, T), rtol=1e-7, atol=1e-9)


def test_regions_above_m_rows_are_split_as_they_grow(caplog):
    X, Y = toy(200)
    model = fitted(X[:15], Y[:15], max_points=20, experts=("matern32", "linear"), max_iterations=1)
    (expert,) = circuits(model)
    assert expert.circuit.describe() == "region 0"
    with caplog.at_level(logging.INFO, logger="momostream"):
        for start in range(15, 200, 10):
            model.learn(X[start : start + 10], Y[start : start + 10])
            distribution = model.predict(X)
            assert np.isfinite(distribution.mean).all()
            assert np.isfinite(distribution.std).all()
            assert max(region.n_rows for region in expert.regions) <= 20
    assert "was split" in caplog.text
    # The first split mixes, deeper ones are single gates.
    assert expert.circuit.count(SUM) == 1
    assert expert.circuit[expert.circuit.root].kind == SUM
    for tree in induced_trees(expert.circuit):
        rows = np.vstack([expert.regions[node.region].X for node in leaves_of(expert.circuit, tree)])
        assert_array_equal(np.unique(rows, axis=0), np.unique(X, axis=0))
        assert len(rows) == 200
        for x in X[:20]:
            (node,) = leaves_of(expert.circuit, tree, x)
            assert (expert.regions[node.region].X == x).all(axis=1).any()
    assert len({node.region for _, node in expert.circuit.walk() if node.kind == REGION}) == len(expert.regions)
    # What was learnt is used: errors are of the size of the noise.
    assert np.sqrt(np.mean((model.predict(X).mean - Y) ** 2)) < 0.3


def test_children_of_a_split_inherit_the_hyper_parameters():
    X, Y = toy(60)
    model = fitted(X[:30], Y[:30], max_points=30, experts=("matern32",), weights="uniform")
    theta = circuits(model)[0].regions[0].theta
    model.learn(X[30:], Y[30:])
    assert len(circuits(model)[0].regions) > 2
    for region in circuits(model)[0].regions:
        assert_array_equal(region.theta, theta)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_learn_on_through_splits(name):
    X, Y = toy(70, n_outputs=3)
    model = fitted(X[:30], Y[:30], **{**PRESETS[name], "max_points": 20, "max_iterations": 1})
    for start in range(30, 70, 20):
        model.learn(X[start : start + 20], Y[start : start + 20])
    distribution = model.predict(X)
    assert np.isfinite(distribution.mean).all()
    assert np.isfinite(distribution.std).all()
    assert_allclose(np.exp(model.log_weights).sum(), 1)
    assert np.sqrt(np.mean((distribution.mean - Y) ** 2)) < 0.5 * Y.std()


def test_equal_rows_above_m_do_not_split_for_ever():
    X, Y = np.ones((10, 2)), np.arange(10.0)[:, None]
    model = fitted(X, Y, max_points=10, experts=("matern32",), weights="uniform")
    for _ in range(5):
        model.learn(X, Y)
    (expert,) = circuits(model)
    assert [region.n_rows for region in expert.regions] == [10]
    assert expert.circuit.describe() == "region 0"
    assert_allclose(model.predict(X[:1]).mean, 4.5, atol=0.6)


def test_stacking_weights_follow_the_shares_of_new_rows():
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60])
    log_weights = model.log_weights
    each = np.stack([member.components(X[60:]).marginals().log_pdf(Y[60:]) for member in model.members])
    joint = np.exp(log_weights[:, None] + each)
    share = joint / joint.sum(axis=0)
    model.learn(X[60:], Y[60:])
    expected = np.maximum((60 * np.exp(log_weights) + share.sum(axis=1)) / 70, LEAST_WEIGHT)
    assert_allclose(np.exp(model.log_weights), expected / expected.sum(axis=0))
    assert_allclose(np.exp(model.log_weights).sum(axis=0), 1)


def test_missing_targets_do_not_move_stacking_weights():
    X, Y = toy(70)
    model = fitted(X[:60], Y[:60])
    before = model.log_weights
    gap = Y[60:].copy()
    gap[:, 1] = np.nan
    model.learn(X[60:], gap)
    # Up to the floor, which is applied after the weights were made to sum to one.
    assert_allclose(np.exp(model.log_weights[:, 1]), np.exp(before[:, 1]), atol=2 * LEAST_WEIGHT**2)
    assert np.abs(model.log_weights[:, 0] - before[:, 0]).max() > 1e-6


def test_weights_move_to_the_expert_that_predicts_better():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(40, 1))
    model = fitted(X, 2 * X + 0.1 * rng.normal(size=X.shape), experts=("matern32", "linear"))
    far = rng.uniform(3, 6, size=(60, 1))
    model.log_weights = np.log([[0.5], [0.5]])
    model.learn(far, 2 * far + 0.1 * rng.normal(size=far.shape))
    # 40 rows count for the old weights, 60 for the new ones.
    assert_allclose(np.exp(model.log_weights[1, 0]), 0.8, atol=0.05)


def test_rows_without_targets_teach_nothing():
    X, Y = toy()
    model = fitted(X, Y)
    before = answers(model, X[:9])
    model.learn(X[:5], np.full((5, 2), np.nan))
    model.learn(X[:0], Y[:0])
    assert_array_equal(answers(model, X[:9]), before)
    assert model.n_rows == 60


def test_residual_circuits_learn_what_the_linear_expert_left_before_it_learnt():
    X, Y = toy(70)
    for experts in (("residual matern32",), ("linear", "residual matern32")):
        model = fitted(X[:60], Y[:60], experts=experts, weights="uniform")
        (expert,) = circuits(model)
        left = Y[60:] - expert.base.predict(X[60:]).mean
        model.learn(X[60:], Y[60:])
        assert_array_equal(expert.regions[0].Y[60:], left)
        assert expert.base.n_rows == 70


# ---------------------------------------------------------------------------------------------------- residuals


def test_residual_expert_is_trained_on_held_out_residuals_and_adds_the_linear_mean():
    X, Y = toy()
    model = fitted(X, Y, experts=("residual matern32",), weights="uniform")
    (expert,) = circuits(model)
    assert_allclose(expert.regions[0].Y, Y - expert.base.held_out(X, Y).mean)
    T = toy(9, seed=1)[0]
    assert_allclose(model.predict(T).mean, expert.base.predict(T).mean + expert.regions[0].predict(T).mean)


def test_residual_expert_extrapolates_a_trend():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, size=(80, 1))
    Y = 3 * X + np.sin(3 * X) + 0.05 * rng.normal(size=X.shape)
    far = np.array([[12.0]])
    residual = fitted(X, Y, experts=("residual matern32",)).predict(far)
    plain = fitted(X, Y, experts=("matern32",)).predict(far)
    assert abs(residual.mean[0, 0] - 36) < 3
    assert abs(plain.mean[0, 0] - 36) > 6


# ---------------------------------------------------------------------------------------------------- structure


def by_hand(cut=0.5, n_outputs=2):
    circuit = Circuit()
    outputs = list(range(n_outputs))
    circuit.add_gate(1, [cut], [circuit.add_region(5, outputs), circuit.add_region(5, outputs)])
    return circuit


@pytest.mark.parametrize("experts", [("matern32",), ("warped matern32",), DEFAULT])
def test_a_structure_by_hand_is_used(experts):
    X, Y = toy()
    X[0, 1] = 0.5
    structure = by_hand()
    model = fitted(X, Y, experts=experts, structure=structure)
    low = X[:, 1] <= 0.5
    for expert in circuits(model):
        assert [KIND.kind for KIND in expert.circuit.nodes] == [REGION, REGION, GATE]
        assert_array_equal(expert.regions[0].X, expert.view(X[low]))
        assert_array_equal(expert.regions[1].Y, Y[~low])
        assert "x1 <= 0.5: region 0" in expert.described().describe()
    # It was copied, and hyper-parameters are found per region.
    assert [node.region for node in structure.nodes] == [5, 5, -1]
    first, second = (region.theta for region in circuits(model)[0].regions)
    assert np.abs(first - second).max() > 1e-6


def test_gates_by_hand_cut_the_prediction():
    X, Y = toy()
    jump = Y + 10.0 * (X[:, 1:] > 0.5)
    model = fitted(X, jump, experts=("matern32",), weights="uniform", structure=by_hand())
    edge = np.array([[0.0, 0.5], [0.0, np.nextafter(0.5, 1)]])
    low, high = model.predict(edge).mean
    assert (high - low > 8).all()
    for region, row in zip(circuits(model)[0].regions, edge, strict=True):
        assert_allclose(model.predict(row[None]).mean, region.predict(row[None]).mean)


def test_sums_and_outputs_by_hand():
    X, Y = toy(n_outputs=3)
    circuit = Circuit()
    split = circuit.add_outputs([circuit.add_region(0, [2, 0]), circuit.add_region(0, [1])])
    circuit.add_sum([split, circuit.add_region(0, [0, 1, 2])], [0.25, 0.75])
    model = fitted(X, Y, experts=("matern32",), weights="uniform", structure=circuit)
    (expert,) = model.members
    assert [list(outputs) for outputs in expert.outputs] == [[0, 2], [1], [0, 1, 2]]
    T = toy(9, seed=1)[0]
    pair, single, whole = (region.predict(T).mean for region in expert.regions)
    parts = np.column_stack([pair[:, 0], single[:, 0], pair[:, 1]])
    assert_allclose(model.predict(T).mean, 0.25 * parts + 0.75 * whole)


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        (Circuit(), "structure has no nodes"),
        (by_hand(n_outputs=1), "structure must own all 2 outputs at its root, but it owns 0"),
        (by_hand(n_outputs=3), "structure must own all 2 outputs at its root, but it owns 0, 1, 2"),
    ],
)
def test_a_structure_that_does_not_fit_is_refused_in_words(structure, words):
    X, Y = toy(20)
    with pytest.raises(ValueError, match=words):
        fitted(X, Y, structure=structure)


def test_a_structure_over_other_columns_is_refused_in_words():
    X, Y = toy(20)
    with pytest.raises(ValueError, match="structure has a gate on column 1, but there are 1 covariates"):
        fitted(X[:, :1], Y, structure=by_hand())


def test_a_structure_that_is_no_tree_is_refused_in_words():
    X, Y = toy(20)
    circuit = Circuit()
    region = circuit.add_region(0, [0, 1])
    circuit.add_gate(0, [0.0], [region, region])
    with pytest.raises(ValueError, match="structure must be a tree, but node 0 has more than one parent"):
        fitted(X, Y, structure=circuit)


@pytest.mark.parametrize("weights", ["uniform", "stacking"])
def test_a_region_without_rows_answers_with_all_rows_offset_and_scale(weights):
    X, Y = toy()
    Y = 1e5 + 1e3 * Y
    model = fitted(X, Y, experts=("matern32",), weights=weights, structure=by_hand(cut=50.0))
    distribution = model.predict(np.array([[0.0, 60.0]]))
    assert_allclose(distribution.mean, Y.mean(axis=0)[None])
    lower, upper = distribution.interval(0.9)
    assert (upper - lower > Y.std(axis=0)).all()
    assert (upper - lower < 20 * Y.std(axis=0)).all()


def test_max_points_none_keeps_moderate_data_whole():
    settings = Settings()
    assert settings.plan(EXACT_ROWS).max_points == EXACT_ROWS
    assert settings.plan(EXACT_ROWS + 1).max_points == LOCAL_ROWS
    assert Settings(max_points=77).plan(10**6).max_points == 77


def test_tied_hyper_parameters():
    X, Y = toy()
    tied = fitted(X, Y, experts=("matern32",), max_points=20, hyperparameters="tied")
    own = fitted(X, Y, experts=("matern32",), max_points=20)
    for model, n_distinct in ((tied, 1), (own, len(circuits(own)[0].regions))):
        assert len({region.theta.tobytes() for region in circuits(model)[0].regions}) == n_distinct
    assert n_distinct > 2


def test_separate_outputs_are_a_product_of_circuits():
    X, Y = toy()
    model = fitted(X, Y, experts=("matern32",), outputs="separate", max_points=25, weights="uniform")
    (expert,) = model.members
    root = expert.circuit[expert.circuit.root]
    assert root.kind == OUTPUTS
    assert [list(expert.circuit[child].outputs) for child in root.children] == [[0], [1]]
    assert {expert.circuit[child].kind for child in root.children} == {SUM}
    assert_array_equal(model.predict(X[:5]).cov[:, 0, 1], np.zeros(5))


def test_relevance_splits_cut_what_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) * [10.0, 1.0]
    Y = np.sin(3 * X[:, 1:]) + 0.05 * rng.normal(size=(80, 1))
    columns = {}
    for split_by in ("relevance", "variance"):
        model = fitted(X, Y, experts=("matern32",), max_points=50, n_components=1, split_by=split_by, max_iterations=20)
        circuit = circuits(model)[0].circuit
        columns[split_by] = circuit[circuit.root].column
    assert columns == {"relevance": 1, "variance": 0}


# ---------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fit_and_predict(name):
    X, Y = toy(80, n_outputs=3)
    model = fitted(
        X, Y, **{**PRESETS[name], "max_iterations": 10, **({"max_points": 30} if "max_points" in PRESETS[name] else {})}
    )
    T, truth = toy(50, n_outputs=3, seed=1)
    distribution = model.predict(T)
    assert np.sqrt(np.mean((distribution.mean - truth) ** 2)) < 0.5 * truth.std()
    lower, upper = distribution.interval(0.9)
    assert 0.7 < np.mean((lower < truth) & (truth < upper)) <= 1
    (expert,) = model.members
    count = {kind: expert.circuit.count(kind) for kind in (SUM, GATE, OUTPUTS)}
    assert (count[SUM] > 0) == (name != "exact")
    assert (count[GATE] > 0) == (name in ("dsmgp", "momogp"))
    assert count[OUTPUTS] > 0
    assert all(region.gaussian and region.n_targets == 1 for region in expert.regions)


def test_presets_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        PRESETS["exact"] = {}


# ---------------------------------------------------------------------------------------------------- missing values


def test_missing_inputs_are_replaced_by_the_mean_of_their_column():
    X, Y = toy()
    gaps = X.copy()
    gaps[3, 0] = gaps[7, 1] = np.nan
    filled = gaps.copy()
    filled[3, 0], filled[7, 1] = np.nanmean(gaps[:, 0]), np.nanmean(gaps[:, 1])
    model = fitted(gaps, Y)
    assert_allclose(model.input_means, np.nanmean(gaps, axis=0))
    assert_allclose(answers(model, X[:9]), answers(fitted(filled, Y), X[:9]), rtol=1e-6, atol=1e-8)
    asked = np.array([[np.nan, 0.3]])
    assert_array_equal(model.predict(asked).mean, model.predict(np.array([[model.input_means[0], 0.3]])).mean)
    model.learn(asked, Y[:1])
    assert_array_equal(circuits(model)[0].regions[0].X[-1], [model.input_means[0], 0.3])


def test_a_column_that_is_never_there():
    X, Y = toy()
    X[:, 1] = np.nan
    model = fitted(X, Y)
    assert np.isfinite(model.predict(X).mean).all()
    assert model.input_means[1] == 0.0


def test_rows_without_any_target_are_left_out():
    X, Y = toy()
    more_X, more_Y = np.vstack([X, X[:4] + 9]), np.vstack([Y, np.full((4, 2), np.nan)])
    assert_array_equal(answers(fitted(more_X, more_Y), X[:9]), answers(fitted(X, Y), X[:9]))


def test_no_target_at_all_is_refused_in_words():
    X, Y = toy(5)
    with pytest.raises(ValueError, match="no row has a target"):
        fitted(X, np.full_like(Y, np.nan))


@pytest.mark.parametrize("settings", FAMILY)
def test_missing_targets_are_left_out_of_their_output(settings):
    X, Y = toy(n_inputs=3)
    gaps = Y.copy()
    gaps[::3, 1] = np.nan
    distribution = fitted(X, gaps, **settings).predict(X)
    assert np.isfinite(distribution.mean).all()
    assert np.isfinite(distribution.std).all()
    assert np.sqrt(np.mean((distribution.mean[:, 1] - Y[:, 1]) ** 2)) < 0.7 * Y[:, 1].std()


def test_independent_regions_hold_only_rows_with_their_target():
    X, Y = toy()
    gaps = Y.copy()
    gaps[10:30, 1] = np.nan
    settings = {"experts": ("matern32",), "coupling": "independent", "weights": "uniform", "max_iterations": 100}
    model = fitted(X, gaps, **settings)
    (expert,) = model.members
    assert [region.n_rows for region in expert.regions] == [60, 40]
    seen = ~np.isnan(gaps[:, 1])
    alone = fitted(X[seen], Y[seen, 1:], **settings)
    assert_allclose(model.predict(X[:9]).mean[:, 1:], alone.predict(X[:9]).mean, atol=1e-3)


def test_rows_without_a_target_teach_nothing_about_it():
    X, Y = toy()
    far_X, far_Y = toy(40, seed=1)
    far_X += 6.0
    model = fitted(X, Y, experts=("matern32",))
    before = model.predict(far_X)
    gap = np.column_stack([far_Y[:, 0], np.full(40, np.nan)])
    model.learn(far_X, gap)
    at_once = fitted(np.vstack([X, far_X]), np.vstack([Y, gap]), experts=("matern32",)).predict(far_X)
    after = model.predict(far_X)
    assert_allclose(after.mean[:, 1], before.mean[:, 1], rtol=1e-6)
    assert_allclose(after.std[:, 1], before.std[:, 1], rtol=1e-6)
    for distribution in (after, at_once):
        assert (distribution.std[:, 0] < 0.6 * before.std[:, 0]).all()
        assert (distribution.std[:, 1] > 0.7 * before.std[:, 1]).all()


@pytest.mark.parametrize("coupling", ["shared", "independent"])
def test_an_output_that_a_cell_never_saw_is_predicted_in_its_own_units(coupling):
    X, Y = toy()
    Y[:, 1] = 1e6 + 1e3 * Y[:, 1]
    Y[X[:, 1] > 0.5, 1] = np.nan
    known = Y[~np.isnan(Y[:, 1]), 1]
    model = fitted(X, Y, experts=("matern32",), coupling=coupling, weights="uniform", structure=by_hand())
    distribution = model.predict(np.array([[0.0, 1.5]]))
    assert_allclose(distribution.mean[0, 1], known.mean())
    lower, upper = distribution.interval(0.9)
    assert known.std() < upper[0, 1] - lower[0, 1] < 20 * known.std()


# ---------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    "settings", [{}, {"max_points": 2}, {"weights": "uniform"}, *(dict(p) for p in PRESETS.values())]
)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_hardly_any_rows(n, settings):
    X, Y = toy(n)
    distribution = fitted(X, Y, **settings).predict(X)
    assert np.isfinite(distribution.mean).all()
    assert_allclose(distribution.mean, Y, atol=3 * np.abs(Y).max())
    assert (distribution.quantile(0.9) > distribution.quantile(0.1)).all()


@pytest.mark.parametrize(
    "settings", [{}, {"max_points": 20}, {"weights": "uniform"}, *(dict(p) for p in PRESETS.values())]
)
def test_constant_targets_and_covariates(settings):
    X, Y = toy(50)
    X[:, 1] = 7.0
    Y[:, 0] = 1e6
    model = fitted(X, Y, **settings)
    distribution = model.predict(X[:9])
    assert_allclose(distribution.mean[:, 0], 1e6, rtol=1e-6)
    # It may move one day: about a thousandth of its size, not less and not much more.
    assert ((distribution.std[:, 0] > 10) & (distribution.std[:, 0] < 2000)).all()
    assert (distribution.log_pdf_each(distribution.mean + [5000.0, 0.0])[:, 0] > -100).all()
    model.learn(X[:5], Y[:5])
    assert np.isfinite(model.predict(X[:9]).mean).all()


@pytest.mark.parametrize("settings", [{}, {"max_points": 20}, {"weights": "uniform"}])
def test_all_rows_equal(settings):
    X, Y = np.full((40, 2), 3.0), np.arange(80.0).reshape(40, 2)
    distribution = fitted(X, Y, **settings).predict(X[:1])
    assert_allclose(distribution.mean[0], Y.mean(axis=0), rtol=0.1)
    assert_allclose(distribution.std[0], Y.std(axis=0), rtol=0.35)


@pytest.mark.parametrize("settings", [{}, {"max_points": 20}, {"weights": "uniform"}])
def test_collinear_outputs(settings):
    X, Y = toy(50)
    Y = np.column_stack([Y, 2 * Y[:, 0], Y.sum(axis=1)])
    distribution = fitted(X, Y, **settings).predict(X[:9])
    assert np.isfinite(distribution.log_pdf(distribution.mean)).all()
    assert (np.linalg.eigvalsh(distribution.cov) > -1e-9).all()
    assert_allclose(distribution.mean[:, 2], 2 * distribution.mean[:, 0], atol=0.05)


def test_no_covariates():
    Y = toy(30)[1]
    distribution = fitted(np.empty((30, 0)), Y).predict(np.empty((2, 0)))
    assert_allclose(distribution.mean, np.tile(Y.mean(axis=0), (2, 1)), atol=0.1)
    assert_allclose(distribution.std, np.tile(Y.std(axis=0), (2, 1)), rtol=0.3)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("settings", FAMILY)
def test_covariance_between_rows_agrees_with_the_law(settings, gaps):
    X, Y = toy(n_inputs=3)
    if gaps:
        Y[::4, 1] = np.nan
    model = fitted(X, Y, **settings)
    T = toy(12, n_inputs=3, seed=1)[0]
    distribution = model.predict(T)
    mean, cov = model.covariance_between_rows(T)
    assert cov.shape == (12, 12, 2)
    assert_allclose(mean, distribution.mean)
    for p in range(2):
        assert_allclose(cov[:, :, p], cov[:, :, p].T, atol=1e-12)
        assert_allclose(np.diag(cov[:, :, p]), distribution.std[:, p] ** 2)
        assert np.linalg.eigvalsh(cov[:, :, p])[0] > -1e-9


# ---------------------------------------------------------------------------------------------------- words


def test_describe():
    X, Y = toy(40)
    model = fitted(X, Y, experts=("matern32", "linear"), weights="uniform", structure=by_hand())
    low = int((X[:, 1] <= 0.5).sum())
    assert model.describe(["wind", "pitch"], ["power", "load"]).split("\n") == [
        "sum",
        "├─ 0.500: matern32: gate pitch at 0.5",
        f"│  ├─ pitch <= 0.5: region 0 ({low} rows)",
        f"│  └─ pitch > 0.5: region 1 ({40 - low} rows)",
        "└─ 0.500: linear",
    ]


def test_describe_shows_the_cuts_of_warped_experts_in_units_of_the_covariates():
    X, Y = toy(60)
    X[:, 0] = np.exp(3 * X[:, 0])
    model = fitted(X, Y, experts=("warped matern32",), n_components=1, max_points=40, split_by="variance")
    (expert,) = model.members
    shown = expert.described()
    node, inner = shown[shown.root], expert.circuit[expert.circuit.root]
    assert node.kind == GATE
    left = expert.circuit[inner.children[0]].region
    # Halfway between two rows in normal scores lies between the same rows in their own units.
    assert (X[expert.rows[left], node.column] <= node.cuts[0]).all()
    assert int((X[:, node.column] <= node.cuts[0]).sum()) == expert.regions[left].n_rows
    assert_allclose(expert.warp(np.full((1, 2), node.cuts[0]))[0, node.column], inner.cuts[0])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("coupling", ["", None, "Shared", 1]),
        ("hyperparameters", ["none"]),
        ("outputs", ["both"]),
        ("split_by", ["random"]),
        ("group_by", ["relevance"]),
        ("weights", ["bayes", None]),
        ("stacking", ["kfold"]),
        ("start", ["centre"]),
        ("max_points", [1, 0, -5, 10.0, "10", True, np.nan]),
        ("n_components", [0, None, 1.5, "2", False]),
        ("n_cells", [0, None, 2.0]),
        ("n_groups", [0, None]),
        ("mixture_depth", [-1, 0.5, "all"]),
        ("n_blocks", [1, None]),
        ("tuning_points", [1, None, 1e3]),
        ("max_iterations", [-1, None, 2.5]),
        ("restarts", [-1, None]),
        ("memory_budget", [-1, 1e6]),
        ("discount", [0.0, -0.5, 1.1, np.nan, np.inf, None, "1", True]),
        ("verbose", ["yes", 3, None]),
        ("structure", ["gate", 3]),
        (
            "experts",
            [
                "linear",
                (),
                None,
                3,
                (3,),
                (None,),
                ("matern99",),
                ("linear", "linear"),
                ("warped linear",),
                ("odd rbf",),
                ("warped warped rbf",),
                ("rbf+cubic",),
                ("",),
            ],
        ),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_parameter(name, values):
    for value in values:
        with pytest.raises((ValueError, TypeError), match=name):
            Settings(**{name: value})


@pytest.mark.parametrize("changes", [{"experts": ("linear",)}, {"experts": ("residual rbf",)}, {"discount": 0.9}])
def test_posterior_weights_are_refused_where_there_is_no_evidence(changes):
    with pytest.raises(ValueError, match="weights='posterior' needs"):
        Settings(**{"experts": ("rbf",), "weights": "posterior", **changes})


def test_good_values_at_the_edge_are_accepted():
    Settings(
        max_points=2,
        n_components=1,
        n_cells=1,
        mixture_depth=0,
        n_blocks=2,
        max_iterations=0,
        memory_budget=0,
        discount=1,
        verbose=True,
        n_groups=np.int64(2),
    )


def test_experts_are_parsed():
    both = ExpertSpec.parse("warped residual matern52+linear")
    assert (both.warped, both.residual, str(both.covariance)) == (True, True, "matern52+linear")
    assert ExpertSpec.parse("linear").covariance is None


def test_warped_residual_and_linear_term_work_together():
    X, Y = toy()
    model = fitted(X, Y, experts=("warped residual matern52+linear", "rbf+linear", "linear"), max_points=40)
    assert [type(member) for member in model.members] == [CircuitExpert, CircuitExpert, LinearMember]
    assert np.sqrt(np.mean((model.predict(X).mean - Y) ** 2)) < 0.3


def test_a_discount_makes_the_last_rows_count_most():
    """The noise grows fourfold over the rows; the predicted deviation follows the end with a discount only."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    Y = np.linspace(0.1, 2.0, 200)[:, None] ** 2 * rng.normal(size=(200, 1))
    wide, narrow = (
        fitted(X, Y, experts=("rbf",), weights="uniform", discount=discount).predict(X[:20]).std.mean()
        for discount in (0.95, 1.0)
    )
    assert wide > 1.4 * narrow


def test_progress_bars_when_asked(capsys):
    X, Y = toy(20)
    fitted(X, Y, experts=("matern32",), max_points=12, max_iterations=1, verbose=2)
    shown = capsys.readouterr().err
    assert "tuning regions" in shown
    assert "held-out densities" in shown
    fitted(X, Y, experts=("matern32",), max_points=12, max_iterations=1)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------ targets that stand still or are hardly ever there


def test_a_target_that_is_never_there_does_not_touch_the_others():
    X, Y = toy(80)
    alone = fitted(X, Y).predict(X[:9])
    beside = fitted(X, np.column_stack([Y, np.full(80, np.nan)])).predict(X[:9])
    assert_allclose(beside.std[:, :2], alone.std, rtol=0.2)
    assert np.isfinite(beside.mean).all()


@pytest.mark.parametrize("settings", [{}, {"weights": "uniform"}, {"coupling": "independent", "weights": "uniform"}])
def test_a_target_that_saturates_in_one_cell_does_not_explode(settings):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, size=(400, 1))
    Y = np.minimum(X, 0.4)
    model = fitted(X, Y, max_points=100, experts=("matern32",), max_iterations=10, **settings)
    new = rng.uniform(0, 1, size=(200, 1))
    density = model.predict(new).log_pdf(np.minimum(new, 0.4))
    assert density.mean() > 2.0
    assert density.min() > -300.0


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_a_constant_target_may_move(level):
    X, _ = toy(60)
    model = fitted(X, np.full((60, 1), level))
    assert (model.predict(X[:5]).log_pdf(np.full((5, 1), level + 0.1)) > -200).all()


def test_posterior_weights_of_coupled_outputs_need_complete_targets():
    X, Y = toy(30)
    Y[4, 1] = np.nan
    with pytest.raises(ValueError, match="needs complete targets, but one is missing in row 4"):
        fitted(X, Y, weights="posterior", experts=("matern32",))
    fitted(X, Y, weights="posterior", experts=("matern32",), coupling="independent")


def test_a_structure_given_by_hand_is_never_split():
    X, Y = toy(40)
    structure = Circuit()
    structure.add_region(0, [0, 1])
    model = fitted(X, Y, structure=structure, max_points=10, experts=("matern32",))
    model.learn(X[:5], Y[:5])
    (expert,) = circuits(model)
    assert [region.n_rows for region in expert.regions] == [45]


def test_the_budget_holds_for_posterior_weights():
    X, Y = toy(200)
    settings = {"experts": ("matern32",), "weights": "posterior", "max_points": 30, "mixture_depth": 1}
    free, tight = fitted(X, Y, **settings), fitted(X, Y, memory_budget=20_000, **settings)
    (expert,), (budgeted,) = circuits(free), circuits(tight)
    assert sum(region.nbytes for region in budgeted.regions) < 30_000 < sum(r.nbytes for r in expert.regions)
    assert np.array_equal(free.log_weights, tight.log_weights)


def test_a_cell_without_rows_has_a_deviation():
    X, Y = toy(30)
    structure = Circuit()
    children = [structure.add_region(0, [0, 1]), structure.add_region(1, [0, 1])]
    structure.add_gate(0, [1e3], children)
    model = fitted(X, Y, structure=structure, experts=("matern32",), weights="uniform")
    assert np.isfinite(model.predict(np.array([[2e3] * X.shape[1]])).std).all()


def test_missing_inputs_follow_the_running_mean():
    X, Y = toy(40)
    model = fitted(X[:20], Y[:20])
    model.learn(X[20:] + 3.0, Y[20:])
    mean = np.concatenate([X[:20], X[20:] + 3.0]).mean(axis=0)
    assert_allclose(model.input_means, mean)
    asked = X[:1].copy()
    asked[0, 1] = np.nan
    filled = X[:1].copy()
    filled[0, 1] = mean[1]
    assert_allclose(model.predict(asked).mean, model.predict(filled).mean, rtol=1e-9)
