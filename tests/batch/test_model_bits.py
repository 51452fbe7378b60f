"""The same floats again: seeds, jobs, memory budgets, copies."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.experts import FactorBudget
from momostream.estimators.presets import PRESETS
from tests.batch.fitting import answers, circuits, fitted, toy

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
def test_pickle_and_copy_keep_every_bit_and_learn_alike(settings):
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


def test_the_budget_holds_for_posterior_weights():
    X, Y = toy(200)
    settings = {"experts": ("matern32",), "weights": "posterior", "max_points": 30, "mixture_depth": 1}
    free, tight = fitted(X, Y, **settings), fitted(X, Y, memory_budget=20_000, **settings)
    (expert,), (budgeted,) = circuits(free), circuits(tight)
    assert sum(region.nbytes for region in budgeted.regions) < 30_000 < sum(r.nbytes for r in expert.regions)
    assert np.array_equal(free.log_weights, tight.log_weights)
