"""Weights, tails and the copula: optima against scipy, known distributions recovered from samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, multivariate_t, norm, t

from momostream.batch import weights
from momostream.batch.weights import (
    COPULA_BLENDS,
    COPULA_STRENGTHS,
    LEAST_WEIGHT,
    Copula,
    Tail,
    log_copula,
    posterior_log_weights,
    residual_correlation,
    stacking_weights,
)

# ---------------------------------------------------------------------------------------------- posterior


def test_posterior_weights_are_bayes_rule():
    evidence, prior = np.array([-3.0, -1.0, -2.0]), np.array([0.5, 0.2, 0.3])
    expected = prior * np.exp(evidence) / np.sum(prior * np.exp(evidence))
    assert_allclose(np.exp(posterior_log_weights(evidence, np.log(prior))), expected, rtol=1e-12)
    assert_allclose(
        posterior_log_weights(evidence), posterior_log_weights(evidence, np.log(np.ones(3) / 3)), rtol=1e-12
    )


@pytest.mark.parametrize("shift", [0.0, -1e6, 1e6])
def test_posterior_weights_are_normalised_however_large_the_evidence(shift):
    log_weights = posterior_log_weights(np.array([-5000.0, 0.0, -1.0]) + shift)
    assert np.exp(log_weights).sum() == pytest.approx(1.0, abs=1e-9)
    assert_allclose(log_weights - log_weights[1], [-5000.0, 0.0, -1.0], atol=1e-9)


def test_an_impossible_child_has_no_posterior_weight():
    assert_array_equal(np.exp(posterior_log_weights(np.array([-np.inf, -3.0]))), [0.0, 1.0])
    assert_array_equal(posterior_log_weights(np.array([-700.0])), [0.0])


# ---------------------------------------------------------------------------------------------- stacking


def densities(n_children=3, n_rows=200, n_targets=2, seed=0):
    """Log densities of normal children with different locations and scales at draws from a mixture of them."""
    rng = np.random.default_rng(seed)
    locations, scales = rng.normal(size=(n_children, n_targets)), rng.uniform(0.3, 2.0, size=(n_children, n_targets))
    owner = rng.integers(n_children, size=(n_rows, n_targets))
    columns = np.arange(n_targets)
    y = locations[owner, columns] + scales[owner, columns] * rng.normal(size=(n_rows, n_targets))
    return norm.logpdf(y, locations[:, None], scales[:, None])


def mean_score(w, log_density):
    return np.log(w @ np.exp(log_density)).mean()


def optimum(log_density):
    """The best mean log density over the simplex, by a general-purpose optimiser."""
    n_children = len(log_density)
    found = minimize(
        lambda w: -mean_score(np.maximum(w, 1e-12), log_density),
        np.full(n_children, 1 / n_children),
        bounds=[(0, 1)] * n_children,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    return -found.fun


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_children", [2, 3, 6])
def test_stacking_finds_the_best_mixture(n_children, seed):
    log_density = densities(n_children, seed=seed)
    w = stacking_weights(log_density)
    assert w.shape == (n_children, 2)
    assert_allclose(w.sum(axis=0), 1.0, rtol=1e-12)
    for p in range(2):
        assert mean_score(w[:, p], log_density[:, :, p]) > optimum(log_density[:, :, p]) - 5e-4
        uniform = np.full(n_children, 1 / n_children)
        assert mean_score(w[:, p], log_density[:, :, p]) >= mean_score(uniform, log_density[:, :, p])


def test_stacking_of_complements_beats_the_best_child():
    # Each child is right in half of the rows: the posterior would pick one, stacking takes both.
    log_density = np.full((2, 100, 1), -10.0)
    log_density[0, :50] = log_density[1, 50:] = 0.0
    assert_allclose(stacking_weights(log_density)[:, 0], 0.5, atol=1e-6)


def test_no_child_is_switched_off_for_good():
    log_density = np.stack([np.zeros((50, 1)), np.full((50, 1), -800.0), np.full((50, 1), -np.inf)])
    w = stacking_weights(log_density)[:, 0]
    assert_allclose(w[1:], LEAST_WEIGHT, rtol=1e-3)
    assert w.sum() == pytest.approx(1.0)


def test_rows_with_a_missing_density_are_left_out():
    log_density = densities()
    whole = stacking_weights(log_density)
    holes = np.concatenate([log_density, np.full((3, 5, 2), 4.0)], axis=1)
    holes[0, 200:] = np.nan  # one child does not answer
    assert_array_equal(stacking_weights(holes), whole)
    only_one = log_density.copy()
    only_one[:, :50, 1] = np.nan
    assert_array_equal(stacking_weights(only_one)[:, 0], whole[:, 0])
    assert_array_equal(stacking_weights(only_one)[:, 1], stacking_weights(log_density[:, 50:])[:, 1])


def test_nothing_known_means_equal_weights():
    log_density = densities()
    log_density[:, :, 1] = np.nan
    assert_array_equal(stacking_weights(log_density)[:, 1], 1 / 3)
    assert_array_equal(stacking_weights(log_density[:, :0]), 1 / 3)


def test_an_only_child_has_all_the_weight():
    assert_array_equal(stacking_weights(np.full((1, 4, 2), np.nan)), 1.0)


def test_stacking_does_not_depend_on_units_or_order():
    log_density = densities()
    w = stacking_weights(log_density)
    assert_allclose(stacking_weights(log_density - 300.0), w, atol=1e-9)
    assert_allclose(stacking_weights(log_density[:, ::-1]), w, atol=1e-9)
    assert_allclose(stacking_weights(log_density[::-1]), w[::-1], atol=1e-9)
    assert_array_equal(stacking_weights(log_density[:, :, ::-1]), w[:, ::-1])


def test_stacking_looks_at_rows_of_the_whole_range(monkeypatch):
    log_density = densities(n_rows=3000)
    monkeypatch.setattr(weights, "MAX_STACKING_ROWS", 1000)
    w = stacking_weights(log_density)
    for p in range(2):
        assert mean_score(w[:, p], log_density[:, :, p]) > optimum(log_density[:, :, p]) - 5e-3
    drift = np.zeros((2, 3000, 1))
    drift[0, :1500] = drift[1, 1500:] = -5.0
    assert_allclose(stacking_weights(drift), 0.5, atol=0.01)


# ---------------------------------------------------------------------------------------------- tails


@pytest.mark.parametrize(
    ("dof", "accepted"), [(3.0, (3.0, 4.0)), (5.0, (4.0, 5.0, 7.0)), (np.inf, (25.0, 50.0, np.inf))], ids=str
)
@pytest.mark.parametrize("factor", [0.3, 1.0, 40.0])
def test_known_tails_are_recovered(dof, accepted, factor):
    distribution = norm() if np.isinf(dof) else t(dof)
    z = factor * distribution.rvs(size=5000, random_state=0)
    tail = Tail.fit([z])
    assert tail.dof[0] in accepted
    assert tail.factor[0] == pytest.approx(factor, rel=0.06)


def test_the_tail_is_the_best_of_its_grid():
    z = 1.7 * t.rvs(5.0, size=300, random_state=1)
    tail = Tail.fit([z])
    ours = t.logpdf(z, tail.dof[0], scale=tail.factor[0]).mean()
    for dof in weights.TAIL_DOFS:
        for factor in tail.factor[0] * np.linspace(0.7, 1.4, 15):
            assert t.logpdf(z, dof, scale=factor).mean() <= ours + 1e-6


def test_each_target_has_its_own_tail():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=900), 3.0 * t.rvs(3.0, size=500, random_state=1)]
    both = Tail.fit(scores)
    for p in range(2):
        alone = Tail.fit([scores[p]])
        assert both.dof[p] == alone.dof[0] and both.factor[p] == alone.factor[0]


def test_missing_scores_and_order_do_not_matter():
    z = np.random.default_rng(0).normal(size=200)
    holes = np.insert(z[::-1], [3, 50, 120], np.nan)
    assert Tail.fit([holes]).dof[0] == Tail.fit([z]).dof[0]
    assert Tail.fit([holes]).factor[0] == pytest.approx(Tail.fit([z]).factor[0], rel=1e-9)


@pytest.mark.parametrize("z", [[], [1.0] * 7, [np.nan] * 20])
def test_too_few_scores_keep_the_scale(z):
    tail = Tail.fit([np.array(z)])
    assert tail.dof[0] == 5.0 and tail.factor[0] == 1.0


def test_odd_scores_have_the_heaviest_tail_and_a_sound_scale():
    still = [np.zeros(50), np.r_[np.zeros(49), 1e6], np.full(50, 1e-9)]
    tail = Tail.fit([*still, np.r_[1e9, np.ones(20)]])
    assert_array_equal(tail.dof, min(weights.TAIL_DOFS))
    # Scores of nothing but zeros leave the least scale; one outlier hardly moves that of the others.
    assert_array_equal(tail.factor[:3], weights.LEAST_FACTOR)
    assert 1.0 < tail.factor[3] < 1.2


# ---------------------------------------------------------------------------------------------- the copula


def sample_copula(correlation, dof, n, seed=0):
    if np.isinf(dof):
        z = multivariate_normal(cov=correlation).rvs(n, random_state=seed)
        return norm.cdf(z)
    return t.cdf(multivariate_t(shape=correlation, df=dof).rvs(n, random_state=seed), dof)


def experts(correlation, n):
    return np.broadcast_to(correlation, (n, *np.shape(correlation)))


def stretches(n, n_folds=5):
    return np.arange(n) * n_folds // n


PAIR = np.array([[1.0, 0.7], [0.7, 1.0]])
TRIPLE = np.array([[1.0, 0.7, -0.3], [0.7, 1.0, 0.1], [-0.3, 0.1, 1.0]])


@pytest.mark.parametrize("correlation", [PAIR, TRIPLE], ids=["pair", "triple"])
@pytest.mark.parametrize(
    ("dof", "accepted"), [(4.0, (4.0, 6.0)), (6.0, (4.0, 6.0, 10.0)), (np.inf, (20.0, 50.0, np.inf))], ids=str
)
def test_known_copulas_are_recovered(correlation, dof, accepted):
    P = len(correlation)
    U = sample_copula(correlation, dof, 3000)
    copula = Copula.fit(U, experts(np.eye(P), len(U)), stretches(len(U)))
    assert copula.dof in accepted
    # These experts know of no correlation.
    assert copula.blend == 1.0 and copula.strength >= 0.9
    assert_allclose(copula.residual, correlation, atol=0.06)
    assert_allclose(copula.correlation(experts(np.eye(P), 2))[1], correlation, atol=0.1)


def test_experts_that_know_the_correlation_of_each_row_are_believed():
    # Two kinds of rows with opposite correlations: over all rows the residuals seem unrelated.
    U = np.vstack([sample_copula(PAIR, 6.0, 1000), sample_copula(2 * np.eye(2) - PAIR, 6.0, 1000, seed=1)])
    known = np.concatenate([experts(PAIR, 1000), experts(2 * np.eye(2) - PAIR, 1000)])
    copula = Copula.fit(U, known, np.arange(2000) % 5)
    assert copula.blend <= 0.25 and copula.strength >= 0.9
    assert copula.dof in (4.0, 6.0, 10.0)
    assert_allclose(copula.correlation(known)[[0, -1]], known[[0, -1]], atol=0.2)


def test_what_does_not_carry_over_is_not_believed():
    # Each stretch of rows has a correlation of its own, with either sign: the others say nothing about it.
    parts = [sample_copula(R, 6.0, 300, seed) for seed, R in enumerate([PAIR, 2 * np.eye(2) - PAIR])]
    copula = Copula.fit(np.vstack(parts), experts(np.eye(2), 600), stretches(600, n_folds=2))
    assert abs(copula.correlation(np.eye(2))[0, 1]) < 0.1
    # With few rows per output, chance makes correlations that the same rows would confirm.
    chance = np.random.default_rng(0).uniform(size=(40, 8))
    believed = [
        np.abs(Copula.fit(chance, experts(np.eye(8), 40), folds).correlation(np.eye(8)) - np.eye(8)).max()
        for folds in (stretches(40), np.zeros(40, dtype=np.intp))
    ]
    assert believed[0] < 0.1 < 0.3 < believed[1]
    # Experts that are sure of what is not so lose their say, too.
    wrong = np.array([[1.0, -0.9], [-0.9, 1.0]])
    copula = Copula.fit(sample_copula(np.eye(2), np.inf, 600), experts(wrong, 600), stretches(600))
    assert abs(copula.correlation(wrong)[0, 1]) < 0.2


def test_the_copula_is_the_best_of_its_grid():
    # With a single fold, rows are scored with the residual correlation that is returned.
    U = sample_copula(PAIR, 6.0, 400)
    known = experts(np.array([[1.0, 0.3], [0.3, 1.0]]), 400)
    copula = Copula.fit(U, known, np.zeros(400, dtype=np.intp))

    def score(dof, blend, strength):
        R = strength * ((1 - blend) * known[0] + blend * copula.residual) + (1 - strength) * np.eye(2)
        z = t.ppf(U, dof)
        return (multivariate_t(shape=R, df=dof).logpdf(z) - t.logpdf(z, dof).sum(axis=1)).mean()

    best = score(copula.dof, copula.blend, copula.strength)
    for dof in (4.0, 6.0, 10.0, 20.0, 50.0):
        for blend in COPULA_BLENDS:
            for strength in COPULA_STRENGTHS:
                assert score(dof, blend, strength) <= best + 1e-3


def test_incomplete_rows_do_not_count():
    U = sample_copula(TRIPLE, 6.0, 300)
    known = experts(np.eye(3), 300).copy()
    whole = Copula.fit(U, known, stretches(300))
    holes = np.insert(U, [10, 200], [0.5, np.nan, 0.1], axis=0)
    around = np.insert(known, [10, 200], np.full((3, 3), np.nan), axis=0)
    found = Copula.fit(holes, around, np.insert(stretches(300), [10, 200], 77))
    assert (found.dof, found.blend, found.strength) == (whole.dof, whole.blend, whole.strength)
    assert_array_equal(found.residual, whole.residual)


def test_one_target_or_few_rows_need_no_copula():
    one = Copula.fit(np.random.default_rng(0).uniform(size=(50, 1)), np.ones((50, 1, 1)), stretches(50))
    assert one.blend == 0.0
    assert_array_equal(one.correlation(np.ones((2, 1, 1))), np.ones((2, 1, 1)))
    few = Copula.fit(sample_copula(PAIR, 6.0, 5), experts(PAIR, 5), stretches(5))
    assert few.blend == 0.0
    assert_array_equal(few.correlation(experts(PAIR, 5)), experts(PAIR, 5))


def test_certain_transforms_hardly_move_the_copula():
    U = sample_copula(PAIR, 6.0, 100)
    without = Copula.fit(U[3:], experts(PAIR, 97), stretches(97))
    U[:3] = [[0.0, 1.0], [1.0, 1.0], [0.5, 0.0]]
    copula = Copula.fit(U, experts(PAIR, 100), stretches(100))
    assert copula.dof <= without.dof
    assert_allclose(copula.residual, without.residual, atol=0.02)
    assert np.linalg.eigvalsh(copula.residual)[0] > 0


def test_identical_outputs_keep_a_proper_correlation():
    u = np.random.default_rng(0).uniform(size=(200, 1))
    copula = Copula.fit(np.hstack([u, u, 1 - u]), experts(np.eye(3), 200), stretches(200))
    assert copula.blend == 1.0 and copula.residual[0, 1] > 0.95 and copula.residual[0, 2] < -0.95
    assert np.linalg.eigvalsh(copula.correlation(np.eye(3)))[0] > 0


def test_many_rows_are_thinned(monkeypatch):
    U = sample_copula(PAIR, 6.0, 3000)
    whole = Copula.fit(U, experts(np.eye(2), 3000), stretches(3000))
    monkeypatch.setattr(weights, "MAX_COPULA_ROWS", 800)
    thin = Copula.fit(U, experts(np.eye(2), 3000), stretches(3000))
    assert thin.blend == whole.blend and thin.dof in (4.0, 6.0, 10.0)
    assert_array_equal(thin.residual, whole.residual)


@pytest.mark.parametrize("dof", [4.0, 20.0, np.inf])
def test_the_density_of_the_copula(dof):
    z = np.array([[0.3, -1.2, 0.5], [2.0, 2.5, -0.1], [-8.0, 0.0, 3.0]])
    factor = np.broadcast_to(np.linalg.cholesky(TRIPLE), (3, 3, 3))
    if np.isinf(dof):
        expected = multivariate_normal(cov=TRIPLE).logpdf(z) - norm.logpdf(z).sum(axis=1)
    else:
        expected = multivariate_t(shape=TRIPLE, df=dof).logpdf(z) - t.logpdf(z, dof).sum(axis=1)
    assert_allclose(log_copula(z, factor, dof), expected, rtol=1e-9)


def test_residual_correlation_is_robust():
    z = multivariate_normal(cov=TRIPLE).rvs(1000, random_state=0)
    assert_allclose(residual_correlation(z), TRIPLE, atol=0.06)
    z[:10] = [30.0, -30.0, 0.0]  # one in a hundred says the opposite, loudly
    assert_allclose(residual_correlation(z), TRIPLE, atol=0.12)
    assert np.corrcoef(z.T)[0, 1] < 0.0


def test_few_rows_give_cautious_correlations():
    rng = np.random.default_rng(0)
    R = residual_correlation(rng.normal(size=(12, 10)))
    assert_allclose(np.diag(R), 1.0, rtol=1e-12)
    assert np.linalg.eigvalsh(R)[0] > 0.05
