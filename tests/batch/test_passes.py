"""Upward passes against brute force: enumerate all induced trees, mix them, no recursion over distributions.

An induced tree takes one child at every sum and all children elsewhere. A circuit is the mixture of its induced trees,
each weighted by the product of its weights; within a tree, a row reaches one region per group of outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal, multivariate_t

from momostream.batch import passes
from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit
from momostream.batch.passes import Components
from momostream.batch.region import Posterior

N_INPUTS, N_OUTPUTS, N_ROWS = 2, 4, 7
SEEDS = range(16)


# ---------------------------------------------------------------------------------------------------- random circuits


def evidence_of(regions):
    return lambda number: regions[number].log_evidence()


@dataclass
class FakeRegion:
    """A region whose answers are random functions of the row; nothing is learnt."""

    slopes: np.ndarray
    S: np.ndarray
    dof: float
    evidence: float

    def mean(self, X):
        return X @ self.slopes

    def spread(self, X):
        return 0.5 + np.abs(np.sin(X.sum(axis=1)))

    def log_evidence(self):
        return self.evidence

    def between_rows(self, X):
        distance = ((X[:, None] - X) ** 2).sum(axis=2)
        return np.exp(-distance)[:, :, None] * np.diag(self.S)


def random_circuit(seed, per_output=False):
    """Sums, gates and output splits in random order, with random weights, above random regions."""
    rng = np.random.default_rng(seed)
    circuit, regions = Circuit(), []

    def build(outputs, depth):
        kinds = [REGION] if depth == 0 else [SUM, GATE, SUM, GATE, REGION]
        if depth > 0 and len(outputs) > 1:
            kinds += [OUTPUTS, OUTPUTS]
        kind = SUM if depth == 4 else kinds[rng.integers(len(kinds))]
        if kind == REGION:
            A = rng.normal(size=(len(outputs), len(outputs) + 2))
            slopes = 2 * rng.normal(size=(N_INPUTS, len(outputs)))
            dof = [np.inf, 3.5, 12.0][rng.integers(3)]
            regions.append(FakeRegion(slopes, A @ A.T / 4, dof, 3 * rng.normal()))
            return circuit.add_region(len(regions) - 1, outputs)
        if kind == OUTPUTS:
            order = rng.permutation(outputs)
            cut = rng.integers(1, len(outputs))
            return circuit.add_outputs([build(np.sort(part), depth - 1) for part in (order[:cut], order[cut:])])
        n_children = rng.integers(2, 4) if depth == 4 else 2
        children = [build(outputs, depth - 1) for _ in range(n_children)]
        if kind == GATE:
            cuts = np.sort(rng.normal(size=len(children) - 1))
            return circuit.add_gate(rng.integers(N_INPUTS), cuts, children)
        shape = (len(children), len(outputs)) if per_output else len(children)
        return circuit.add_sum(children, rng.uniform(0.2, 2.0, size=shape))

    build(np.arange(N_OUTPUTS), 4)
    X = np.random.default_rng(seed + 1000).normal(size=(N_ROWS, N_INPUTS))
    # One row lies on a cut.
    gates = [node for _, node in circuit.walk() if node.kind == GATE]
    if gates:
        X[0, gates[0].column] = gates[0].cuts[0]
    return circuit, regions, X


def posterior_of(regions, X):
    def of_region(number, rows):
        region = regions[number]
        return Posterior(region.mean(X[rows]), region.spread(X[rows]), region.S, region.dof)

    return of_region


def between_rows_of(regions, X):
    return lambda number, rows: (regions[number].mean(X[rows]), regions[number].between_rows(X[rows]))


def components_of(regions, X):
    def of_region(number, rows):
        region = regions[number]
        size = np.sqrt(np.diag(region.S))
        scale = np.sqrt(region.spread(X[rows]))[:, None] * size
        return Components.single(region.mean(X[rows]), scale, region.dof, region.S / np.outer(size, size))

    return of_region


# ---------------------------------------------------------------------------------------------------- brute force


def induced_trees(circuit, number=None):
    """All choices {sum: position of the child taken} of the sums that a tree holds."""
    number = circuit.root if number is None else number
    node = circuit[number]
    if node.kind == REGION:
        return [{}]
    below = [induced_trees(circuit, child) for child in node.children]
    if node.kind == SUM:
        return [{number: k, **tree} for k, trees in enumerate(below) for tree in trees]
    return [{key: value for part in parts for key, value in part.items()} for parts in product(*below)]


def regions_of(circuit, tree, x=None):
    """Region nodes of an induced tree; with a row ``x``, those that it reaches."""
    found, todo = [], [circuit.root]
    while todo:
        number = todo.pop()
        node = circuit[number]
        if node.kind == REGION:
            found.append(node)
        elif node.kind == SUM:
            todo.append(node.children[tree[number]])
        elif node.kind == GATE and x is not None:
            edges = [-np.inf, *node.cuts, np.inf]
            inside = [k for k in range(len(edges) - 1) if edges[k] < x[node.column] <= edges[k + 1]]
            todo.append(node.children[inside[0]])
        else:
            todo += node.children
    return found


def log_weight(circuit, tree, output=None):
    """Product of the weights along the tree, of one output where weights are per output."""
    total = 0.0
    for number, k in tree.items():
        node = circuit[number]
        if node.log_weights.ndim == 1:
            total += node.log_weights[k]
        elif output in node.outputs:
            total += node.log_weights[k, list(node.outputs).index(output)]
        else:
            # This sum says nothing about the output: its choices must not multiply the trees.
            total -= np.log(len(node.children))
    return total


def trees_at(circuit, regions, x, output=None):
    """Per induced tree: log weight, and mean, scale matrix and degrees of freedom of each leaf with its outputs."""
    found = []
    for tree in induced_trees(circuit):
        leaves = []
        for node in regions_of(circuit, tree, x):
            region = regions[node.region]
            scale = region.spread(x[None])[0] * region.S
            leaves.append((node.outputs, region.mean(x[None])[0], scale, region.dof))
        found.append((log_weight(circuit, tree, output), leaves))
    return found


def t_log_pdf(y, mean, scale, dof):
    n, deviation = len(mean), np.asarray(y) - mean
    square = deviation @ np.linalg.solve(scale, deviation)
    if np.isinf(dof):
        return -0.5 * (square + np.linalg.slogdet(2 * np.pi * scale)[1])
    norm = gammaln((dof + n) / 2) - gammaln(dof / 2) - 0.5 * np.linalg.slogdet(dof * np.pi * scale)[1]
    return norm - 0.5 * (dof + n) * np.log(1 + square / dof)


def tree_log_pdf(leaves, y, known):
    """Log density of the known outputs of ``y``: those that are not are left out of mean and scale."""
    total = 0.0
    for outputs, mean, scale, dof in leaves:
        at = np.flatnonzero(known[outputs])
        if len(at):
            total += t_log_pdf(y[outputs[at]], mean[at], scale[np.ix_(at, at)], dof)
    return total


def brute_log_pdf(circuit, regions, x, y, known=None):
    known = np.ones(N_OUTPUTS, dtype=bool) if known is None else known
    return logsumexp([w + tree_log_pdf(leaves, y, known) for w, leaves in trees_at(circuit, regions, x)])


def tree_moments(leaves):
    mean, cov = np.zeros(N_OUTPUTS), np.zeros((N_OUTPUTS, N_OUTPUTS))
    for outputs, m, scale, dof in leaves:
        mean[outputs] = m
        cov[np.ix_(outputs, outputs)] = scale if np.isinf(dof) else scale * dof / (dof - 2)
    return mean, cov


def brute_moments(circuit, regions, x):
    """E y and E (y - E y)(y - E y)' from second moments about zero."""
    first, second = np.zeros(N_OUTPUTS), np.zeros((N_OUTPUTS, N_OUTPUTS))
    for w, leaves in trees_at(circuit, regions, x):
        mean, cov = tree_moments(leaves)
        first += np.exp(w) * mean
        second += np.exp(w) * (cov + np.outer(mean, mean))
    return first, second - np.outer(first, first)


def brute_conditional_mean(circuit, regions, x, y, known):
    """Per tree the conditional mean of its leaves; trees weighted by how well they explain what is known."""
    logs, means = [], []
    for w, leaves in trees_at(circuit, regions, x):
        mean = np.zeros(N_OUTPUTS)
        for outputs, m, scale, _ in leaves:
            k, u = np.flatnonzero(known[outputs]), np.flatnonzero(~known[outputs])
            pull = scale[np.ix_(u, k)] @ np.linalg.inv(scale[np.ix_(k, k)]) @ (y[outputs[k]] - m[k])
            mean[outputs[u]] = m[u] + pull
        logs.append(w + tree_log_pdf(leaves, y, known))
        means.append(mean[~known])
    weights = np.exp(logs - logsumexp(logs))
    return weights @ np.array(means)


# ---------------------------------------------------------------------------------------------------- the tests


def test_the_density_of_the_brute_force():
    y, mean, scale = np.array([1.0, -2.0]), np.array([0.5, 0.0]), np.array([[2.0, 0.7], [0.7, 1.0]])
    assert_allclose(t_log_pdf(y, mean, scale, 3.5), multivariate_t(mean, scale, 3.5).logpdf(y))
    assert_allclose(t_log_pdf(y, mean, scale, np.inf), multivariate_normal(mean, scale).logpdf(y))


def test_the_circuits_are_not_trivial():
    n_trees = [len(induced_trees(random_circuit(seed)[0])) for seed in SEEDS]
    kinds = {node.kind for seed in SEEDS for _, node in random_circuit(seed)[0].walk()}
    assert max(n_trees) > 12
    assert np.median(n_trees) >= 4
    assert kinds == {SUM, GATE, OUTPUTS, REGION}
    for seed in SEEDS:
        circuit = random_circuit(seed)[0]
        assert_allclose(logsumexp([log_weight(circuit, tree) for tree in induced_trees(circuit)]), 0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_distribution_is_the_mixture_of_induced_trees(seed):
    circuit, regions, X = random_circuit(seed)
    distribution = passes.distribution(circuit, X, posterior_of(regions, X))
    Y = 2 * np.random.default_rng(seed).normal(size=(N_ROWS, N_OUTPUTS))
    assert (distribution.n_rows, distribution.n_targets) == Y.shape
    assert_allclose(distribution.log_pdf(Y), [brute_log_pdf(circuit, regions, x, y) for x, y in zip(X, Y, strict=True)])
    for i, x in enumerate(X):
        mean, cov = brute_moments(circuit, regions, x)
        assert_allclose(distribution.mean[i], mean, atol=1e-12)
        assert_allclose(distribution.covariance[i], cov, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_of_the_distribution(seed):
    circuit, regions, X = random_circuit(seed)
    distribution = passes.distribution(circuit, X, posterior_of(regions, X))
    Y = 2 * np.random.default_rng(seed).normal(size=(N_ROWS, N_OUTPUTS))
    each = distribution.marginals().log_pdf(Y)
    for p in range(N_OUTPUTS):
        alone = np.arange(N_OUTPUTS) == p
        expected = [brute_log_pdf(circuit, regions, x, y, alone) for x, y in zip(X, Y, strict=True)]
        assert_allclose(each[:, p], expected)
        # The same by leaving the others out of the joint density.
        assert_allclose(distribution.log_pdf(np.where(alone, Y, np.nan)), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_conditioning(seed):
    circuit, regions, X = random_circuit(seed)
    distribution = passes.distribution(circuit, X, posterior_of(regions, X))
    rng = np.random.default_rng(seed)
    Y = 2 * rng.normal(size=(N_ROWS, N_OUTPUTS))
    known = np.zeros(N_OUTPUTS, dtype=bool)
    known[rng.choice(N_OUTPUTS, rng.integers(1, N_OUTPUTS), replace=False)] = True
    given = distribution.condition(np.where(known, Y, np.nan))
    expected = [
        brute_log_pdf(circuit, regions, x, y) - brute_log_pdf(circuit, regions, x, y, known)
        for x, y in zip(X, Y, strict=True)
    ]
    assert_allclose(given.log_pdf(Y[:, ~known]), expected, rtol=1e-8, atol=1e-8)
    means = [brute_conditional_mean(circuit, regions, x, y, known) for x, y in zip(X, Y, strict=True)]
    assert_allclose(given.mean, means, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_components_are_those_of_the_induced_trees(seed):
    for per_output in (False, True):
        circuit, regions, X = random_circuit(seed, per_output)
        parts = passes.components(circuit, X, components_of(regions, X))
        assert_allclose(parts.weights.sum(axis=1), 1.0)
        Y = 2 * np.random.default_rng(seed).normal(size=(N_ROWS, N_OUTPUTS))
        each = parts.marginals().log_pdf(Y)
        for p in range(N_OUTPUTS):
            alone = np.arange(N_OUTPUTS) == p
            for i, x in enumerate(X):
                terms = [w + tree_log_pdf(leaves, Y[i], alone) for w, leaves in trees_at(circuit, regions, x, p)]
                assert_allclose(each[i, p], logsumexp(terms))


@pytest.mark.parametrize("seed", SEEDS)
def test_correlation_is_that_of_the_trees_averaged(seed):
    circuit, regions, X = random_circuit(seed)
    parts = passes.components(circuit, X, components_of(regions, X))
    for i, x in enumerate(X):
        expected = np.zeros((N_OUTPUTS, N_OUTPUTS))
        for w, leaves in trees_at(circuit, regions, x):
            scale = np.zeros((N_OUTPUTS, N_OUTPUTS))
            for outputs, _, S, _ in leaves:
                scale[np.ix_(outputs, outputs)] = S
            size = np.sqrt(np.diag(scale))
            expected += np.exp(w) * scale / np.outer(size, size)
        assert_allclose(parts.correlation[i], expected, atol=1e-12)
        assert np.linalg.eigvalsh(parts.correlation[i])[0] > 0


def test_correlation_under_weights_per_output_uses_their_mean():
    one = Components.single(np.zeros((1, 2)), np.ones((1, 2)), np.inf, np.array([[1, 0.8], [0.8, 1]]))
    other = Components.single(np.zeros((1, 2)), np.ones((1, 2)), np.inf, np.eye(2))
    mixed = Components.mix(np.log([[0.9, 0.3], [0.1, 0.7]]), [one, other])
    assert_allclose(mixed.correlation[0], [[1, 0.6 * 0.8], [0.6 * 0.8, 1]])
    assert_allclose(mixed.weights[0], [[0.9, 0.3], [0.1, 0.7]])


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_can_be_set_on_the_way_up(seed):
    """Stacking learns the weights of a sum from its children's answers: children before parents, all rows there."""
    circuit, regions, X = random_circuit(seed, per_output=True)
    of_region, asked = components_of(regions, X), []

    def weigh(number, children, rows):
        node = circuit[number]
        assert len(children) == len(node.children)
        assert all(
            child.means.shape[0] == len(rows) and child.means.shape[2] == len(node.outputs) for child in children
        )
        asked.append(number)
        node.log_weights = np.log(np.full((len(children), len(node.outputs)), 1 / len(children)))
        return node.log_weights

    found = passes.components(circuit, X, of_region, weigh)
    sums = {number for number, node in circuit.walk() if node.kind == SUM}
    assert set(asked) <= sums
    assert len(set(asked)) == len(asked)
    assert_array_equal(found.weights, passes.components(circuit, X, of_region).weights)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariance_between_rows(seed):
    """A sum is one draw for all rows; rows in different regions of a tree are independent."""
    for per_output in (False, True):
        circuit, regions, X = random_circuit(seed, per_output)

        mean, cov = passes.covariance_between_rows(circuit, X, between_rows_of(regions, X))
        assert cov.shape == (N_ROWS, N_ROWS, N_OUTPUTS)
        for p in range(N_OUTPUTS):
            first, second = np.zeros(N_ROWS), np.zeros((N_ROWS, N_ROWS))
            for tree in induced_trees(circuit):
                at = [next(n for n in regions_of(circuit, tree, x) if p in n.outputs) for x in X]
                columns = [list(node.outputs).index(p) for node in at]
                m = np.array([regions[n.region].mean(x[None])[0, c] for n, x, c in zip(at, X, columns, strict=True)])
                C = np.zeros((N_ROWS, N_ROWS))
                for i in range(N_ROWS):
                    for j in range(N_ROWS):
                        if at[i] is at[j]:
                            C[i, j] = regions[at[i].region].between_rows(X[[i, j]])[0, 1, columns[i]]
                w = np.exp(log_weight(circuit, tree, p))
                first += w * m
                second += w * (C + np.outer(m, m))
            assert_allclose(mean[:, p], first, atol=1e-12)
            assert_allclose(cov[:, :, p], second - np.outer(first, first), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_evidence_and_posterior_weights(seed):
    circuit, regions, _ = random_circuit(seed)
    trees = induced_trees(circuit)

    def log_joint(tree):
        """Uniform prior over the children of each sum, times the evidence of all regions of the tree."""
        prior = -sum(np.log(len(circuit[number].children)) for number in tree)
        return prior + sum(regions[node.region].evidence for node in regions_of(circuit, tree))

    before = [None if node.log_weights is None else node.log_weights.copy() for node in circuit.nodes]
    evidence = logsumexp([log_joint(tree) for tree in trees])
    assert_allclose(passes.log_evidence(circuit, evidence_of(regions)), evidence)
    for node, weights in zip(circuit.nodes, before, strict=True):
        assert weights is None or np.array_equal(node.log_weights, weights)

    # The prior is uniform whatever the weights are now: asking twice changes nothing.
    for _ in range(2):
        assert_allclose(passes.log_evidence(circuit, evidence_of(regions), set_weights=True), evidence)
    for number, node in circuit.walk():
        if node.kind != SUM:
            continue
        within = [tree for tree in trees if number in tree]
        total = logsumexp([log_joint(tree) for tree in within])
        for k in range(len(node.children)):
            with_child = [log_joint(tree) for tree in within if tree[number] == k]
            assert_allclose(node.log_weights[k], logsumexp(with_child) - total)


def test_evidence_far_below_the_smallest_float():
    circuit = Circuit()
    circuit.add_sum([circuit.add_region(0, [0]), circuit.add_region(1, [0])])
    regions = [FakeRegion(np.zeros((1, 1)), np.eye(1), np.inf, evidence) for evidence in (-1e6, -1e6 - 1.0)]
    assert_allclose(
        passes.log_evidence(circuit, evidence_of(regions), set_weights=True), -1e6 + np.log((1 + np.exp(-1)) / 2)
    )
    assert_allclose(np.exp(circuit[circuit.root].log_weights), [1 / (1 + np.exp(-1)), 1 / (1 + np.e)])


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_assigned_as_in_each_induced_tree(seed):
    circuit, _, X = random_circuit(seed)
    owned = passes.assign_rows(circuit, X)
    numbers = {id(node): number for number, node in circuit.walk()}
    expected = {number: set() for number, node in circuit.walk() if node.kind == REGION}
    for tree in induced_trees(circuit):
        for i, x in enumerate(X):
            for node in regions_of(circuit, tree, x):
                expected[numbers[id(node)]].add(i)
    assert {number: set(rows.tolist()) for number, rows in owned.items()} == expected
    assert all((np.diff(rows) > 0).all() for rows in owned.values())


@pytest.mark.parametrize("value", [-5.0, 5.0])
def test_a_gate_that_no_row_passes_on_one_side(value):
    circuit = Circuit()
    circuit.add_gate(0, [0.0], [circuit.add_region(0, [0, 1]), circuit.add_region(1, [0, 1])])
    regions = [FakeRegion(np.full((1, 2), slope), np.eye(2), 5.0, 0.0) for slope in (1.0, 2.0)]
    X = np.full((3, 1), value)
    expected = value * (1.0 if value < 0 else 2.0)
    distribution = passes.distribution(circuit, X, posterior_of(regions, X))
    assert_array_equal(distribution.mean, np.full((3, 2), expected))
    parts = passes.components(circuit, X, components_of(regions, X))
    assert_array_equal(parts.means, np.full((3, 1, 2), expected))
    mean, cov = passes.covariance_between_rows(
        circuit, X, lambda k, rows: (regions[k].mean(X[rows]), np.ones((3, 3, 2)))
    )
    assert_array_equal(mean, np.full((3, 2), expected))
    assert_array_equal(cov, np.ones((3, 3, 2)))


def test_rows_with_fewer_components_are_padded_with_weight_zero():
    circuit = Circuit()
    left = circuit.add_sum([circuit.add_region(0, [0]), circuit.add_region(1, [0])], [1.0, 3.0])
    circuit.add_gate(0, [0.0], [left, circuit.add_region(2, [0])])
    regions = [FakeRegion(np.full((1, 1), k + 1.0), np.eye(1), 5.0, 0.0) for k in range(3)]
    X = np.array([[-1.0], [1.0]])
    parts = passes.components(circuit, X, components_of(regions, X))
    assert_allclose(parts.weights[:, :, 0], [[0.25, 0.75], [1.0, 0.0]])
    assert_allclose(parts.means[0, :, 0], [-1.0, -2.0])
    assert_allclose(parts.marginals().mean[:, 0], [-1.75, 3.0])


def test_student_scales_the_matrix_row_by_row():
    S = np.array([[2.0, 0.5], [0.5, 1.0]])
    distribution = passes.student(Posterior(np.zeros((2, 2)), np.array([1.0, 3.0]), S, 4.0))
    assert_allclose(distribution.covariance, [2 * S, 6 * S])
    assert_allclose(distribution.log_pdf(np.ones((2, 2))), [t_log_pdf([1, 1], [0, 0], c * S, 4.0) for c in (1.0, 3.0)])
