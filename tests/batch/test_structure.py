"""Algorithm 1 on cases small enough to be done by hand, and the rules it is made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit
from momostream.batch.passes import assign_rows
from momostream.batch.structure import SplitRules, learn_structure
from momostream.gp.cuts import dependence, gate_cuts, split_outputs


def grow(X, plan, n_outputs=1, relevance=None, seed=0, Y=None, **more):
    """Return the circuit, and the rows and outputs that each region was made for."""
    X = np.asarray(X, dtype=float)
    Y = np.zeros((len(X), n_outputs)) if Y is None else Y
    leaves = []

    def make_region(rows, outputs):
        leaves.append((rows, outputs))
        return len(leaves) - 1

    relevance = np.ones(X.shape[1]) if relevance is None else np.asarray(relevance, dtype=float)
    circuit = learn_structure(X, Y, plan, relevance, make_region, np.random.default_rng(seed), **more)
    return circuit, leaves


def counts(circuit):
    return {
        name: circuit.count(kind) for name, kind in zip(("sum", "gate", "outputs", "region"), range(4), strict=True)
    }


def column(*values):
    return np.array(values, dtype=float)[:, None]


# ---------------------------------------------------------------------------------------------------- Algorithm 1


def test_at_most_m_rows_are_one_region():
    circuit, leaves = grow(column(3, 1, 2), SplitRules(max_points=3), n_outputs=2)
    assert circuit.describe() == "region 0"
    assert_array_equal(leaves[0][0], [0, 1, 2])
    assert_array_equal(leaves[0][1], [0, 1])


def test_one_row_more_than_m_is_cut_at_the_median():
    circuit, leaves = grow(column(4, 1, 3, 2), SplitRules(max_points=3, n_components=1))
    assert circuit.describe().split("\n") == ["gate x0 at 2.5", "├─ x0 <= 2.5: region 0", "└─ x0 > 2.5: region 1"]
    assert [list(rows) for rows, _ in leaves] == [[1, 3], [0, 2]]


def test_child_k_of_a_sum_cuts_the_covariate_of_kth_largest_variance():
    # Variances 1.25, 125 and 20.
    X = np.column_stack([[1, 2, 3, 4], [10, 20, 30, 40], [0, 4, 8, 12]])
    circuit, _ = grow(X, SplitRules(max_points=3, n_components=3))
    gates = [circuit[child] for child in circuit[circuit.root].children]
    assert [(gate.column, list(gate.cuts)) for gate in gates] == [(1, [25.0]), (2, [6.0]), (0, [2.5])]
    assert_allclose(np.exp(circuit[circuit.root].log_weights), 1 / 3)


def test_relevance_changes_the_rank():
    X = np.column_stack([[1, 2, 3, 4], [10, 20, 30, 40], [0, 4, 8, 12]])
    circuit, _ = grow(X, SplitRules(max_points=3, n_components=2), relevance=[1000.0, 1.0, 0.01])
    assert [circuit[child].column for child in circuit[circuit.root].children] == [0, 1]


def test_variances_are_those_of_the_rows_of_the_node():
    # Column 0 varies most overall, but below its cut it is nearly constant and column 1 takes over.
    X = np.array([[0.0, 1], [0.1, 3], [0.2, 2], [0.3, 4], [99, 1], [100, 1.1], [101, 1.2], [104, 1.3]])
    circuit, _ = grow(X, SplitRules(max_points=2, n_components=1))
    root = circuit[circuit.root]
    assert (root.column, [circuit[child].column for child in root.children]) == (0, [1, 0])


def test_equal_variances_keep_the_order_of_the_columns():
    X = np.repeat(column(1, 2, 3, 4), 3, axis=1)
    circuit, _ = grow(X, SplitRules(max_points=3, n_components=3))
    assert [circuit[child].column for child in circuit[circuit.root].children] == [0, 1, 2]


def test_k_px_cells():
    circuit, leaves = grow(column(*range(9)), SplitRules(max_points=4, n_components=1, n_cells=3))
    assert_array_equal(circuit[circuit.root].cuts, [2.5, 5.5])
    assert [list(rows) for rows, _ in leaves] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("mixture_depth", "n_sums", "n_gates", "n_regions"),
    [
        (0, 0, 7, 8),  # three levels of single gates
        (1, 1, 2 + 4 + 8, 16),
        (2, 1 + 4, 2 + 8 + 16, 32),
        (3, 1 + 4 + 16, 2 + 8 + 32, 64),
        (None, 1 + 4 + 16, 2 + 8 + 32, 64),
    ],
)
def test_mixture_depth(mixture_depth, n_sums, n_gates, n_regions):
    X = np.random.default_rng(0).normal(size=(16, 2))
    circuit, leaves = grow(X, SplitRules(max_points=2, mixture_depth=mixture_depth))
    assert counts(circuit) == {"sum": n_sums, "gate": n_gates, "outputs": 0, "region": n_regions}
    assert circuit.depth() == 3
    assert all(len(rows) == 2 for rows, _ in leaves)


def test_one_component_never_mixes():
    circuit, _ = grow(column(*range(8)), SplitRules(max_points=2, n_components=1, mixture_depth=None))
    assert counts(circuit) == {"sum": 0, "gate": 3, "outputs": 0, "region": 4}


def test_outputs_are_split_below_gates_while_there_are_more_than_m_rows():
    plan = SplitRules(max_points=2, n_components=1, n_groups=2)
    circuit, leaves = grow(column(*range(8)), plan, n_outputs=3)
    # gate -> 2 cells of 4 rows: outputs (2 | 1) -> gates -> cells of 2 rows.
    assert counts(circuit) == {"sum": 0, "gate": 1 + 4, "outputs": 2, "region": 8}
    assert circuit[circuit.root].kind == GATE
    for child in circuit[circuit.root].children:
        assert circuit[child].kind == OUTPUTS
        parts = [circuit[part].outputs for part in circuit[child].children]
        assert sorted(len(part) for part in parts) == [1, 2]
        assert_array_equal(np.sort(np.concatenate(parts)), [0, 1, 2])
    assert all(len(rows) == 2 for rows, _ in leaves)


def test_single_outputs_give_each_leaf_one_region_per_output():
    plan = SplitRules(max_points=2, n_components=1, n_groups=2, single_outputs=True)
    circuit, leaves = grow(column(*range(8)), plan, n_outputs=3)
    # Per cell of 4 rows: a pair of outputs with 2 leaves of 2 regions, and a single one with 2 leaves of 1.
    assert counts(circuit) == {"sum": 0, "gate": 1 + 4, "outputs": 2 + 4, "region": 12}
    assert all(len(outputs) == 1 for _, outputs in leaves)


def test_without_splits_single_outputs_are_a_product():
    circuit, leaves = grow(column(1, 2), SplitRules(max_points=2, single_outputs=True), n_outputs=2)
    assert circuit.describe().split("\n") == ["outputs", "├─ [y0] region 0", "└─ [y1] region 1"]
    assert [list(outputs) for _, outputs in leaves] == [[0], [1]]


@pytest.mark.parametrize(("n_outputs", "n_groups", "found"), [(1, 2, 1), (2, 4, 2), (3, 3, 3), (5, 2, 2), (5, 4, 4)])
def test_there_are_at_most_as_many_groups_as_outputs(n_outputs, n_groups, found):
    circuit, _ = grow(
        column(*range(8)), SplitRules(max_points=3, n_components=1, n_groups=n_groups), n_outputs=n_outputs
    )
    for child in circuit[circuit.root].children:
        assert (len(circuit[child].children) if circuit[child].kind == OUTPUTS else 1) == found


def test_more_outputs_than_rows():
    circuit, leaves = grow(column(1, 2, 3), SplitRules(max_points=2, n_groups=2), n_outputs=7)
    assert all(len(outputs) == 7 for _, outputs in leaves)
    assert circuit.count(OUTPUTS) == 0


@pytest.mark.parametrize("n_columns", [0, 1, 3])
def test_one_row(n_columns):
    circuit, leaves = grow(np.ones((1, n_columns)), SplitRules(max_points=2, n_groups=2), n_outputs=2)
    assert circuit.describe() == "region 0"
    assert_array_equal(leaves[0][0], [0])


def test_no_covariates():
    circuit, leaves = grow(np.empty((5, 0)), SplitRules(max_points=3))
    assert circuit.describe() == "region 0"
    assert len(leaves[0][0]) == 3


def test_constant_covariates_are_never_cut():
    X = np.column_stack([np.full(8, 1e6), np.arange(8.0), np.zeros(8)])
    circuit, leaves = grow(X, SplitRules(max_points=3, n_components=2), relevance=[1e12, 1.0, 1e12])
    assert {node.column for _, node in circuit.walk() if node.kind == GATE} == {1}
    assert all(0 < len(rows) <= 3 for rows, _ in leaves)


def test_more_than_m_equal_rows_are_thinned_evenly():
    circuit, leaves = grow(np.ones((11, 2)), SplitRules(max_points=3))
    assert circuit.describe() == "region 0"
    assert_array_equal(leaves[0][0], [0, 5, 10])


def test_equal_rows_among_others_end_in_a_thinned_region():
    X = column(*([0.0] * 10), 1, 2)
    circuit, leaves = grow(X, SplitRules(max_points=4, n_components=1))
    assert_array_equal(circuit[circuit.root].cuts, [0.5])
    assert [list(rows) for rows, _ in leaves] == [[0, 3, 6, 9], [10, 11]]


def test_one_covariate_gives_the_children_of_a_sum_different_cuts():
    circuit, _ = grow(column(*range(12)), SplitRules(max_points=6))
    low, high = sorted(circuit[child].cuts[0] for child in circuit[circuit.root].children)
    assert low < high
    assert 5.5 in (low, high)


def test_two_covariates_serve_three_children():
    X = np.column_stack([np.arange(12.0), 10 * np.arange(12.0)])
    circuit, _ = grow(X, SplitRules(max_points=6, n_components=3))
    gates = [circuit[child] for child in circuit[circuit.root].children]
    assert [gate.column for gate in gates] == [1, 0, 1]
    assert len({(gate.column, gate.cuts[0]) for gate in gates}) == 3


def test_the_same_seed_gives_the_same_circuit_and_another_one_does_not():
    X = np.random.default_rng(0).normal(size=(40, 2))
    plan = SplitRules(max_points=5, n_groups=2)
    first, again, other = (grow(X, plan, n_outputs=6, seed=seed)[0].describe() for seed in (1, 1, 2))
    assert first == again != other


def test_a_circuit_given_is_grown_and_its_outputs_are_relabelled():
    circuit = Circuit()
    old = circuit.add_region(17, [1])
    grown, leaves = grow(
        column(1, 2, 3, 4),
        SplitRules(max_points=2, n_components=1, single_outputs=True),
        n_outputs=2,
        circuit=circuit,
        outputs=np.array([0, 4]),
    )
    assert grown is circuit
    assert circuit[old].region == 17
    assert_array_equal(circuit[circuit.root].outputs, [0, 4])
    assert [list(outputs) for _, outputs in leaves] == [[0], [1], [0], [1]]


@settings(max_examples=60)
@given(
    X=hnp.arrays(float, st.tuples(st.integers(1, 40), st.integers(1, 3)), elements=st.integers(0, 6).map(float)),
    max_points=st.integers(2, 8),
    n_components=st.integers(1, 3),
    n_cells=st.integers(2, 4),
    n_groups=st.integers(1, 3),
    mixture_depth=st.sampled_from([0, 1]),
    single=st.booleans(),
)
def test_m_is_respected_and_every_induced_tree_covers_rows_and_outputs(
    X, max_points, n_components, n_cells, n_groups, mixture_depth, single
):
    plan = SplitRules(max_points, n_components, n_cells, n_groups, mixture_depth, single_outputs=single)
    circuit, leaves = grow(X, plan, n_outputs=3)
    _, repeats = np.unique(X, axis=0, return_counts=True)
    routed = assign_rows(circuit, X)
    assert len(routed) == len(leaves)
    for number, arriving in routed.items():
        rows, outputs = leaves[circuit[number].region]
        assert 0 < len(rows) <= max_points
        assert_array_equal(circuit[number].outputs, outputs)
        if repeats.max() <= max_points:
            assert_array_equal(arriving, rows)
        else:
            assert set(rows) <= set(arriving)
    for _, node in circuit.walk():
        if node.kind == GATE:
            assert 2 <= len(node.children) <= n_cells
        if node.kind == SUM:
            assert len(node.children) == n_components > 1
        if node.kind == OUTPUTS:
            parts = np.concatenate([circuit[child].outputs for child in node.children])
            assert_array_equal(np.sort(parts), node.outputs)


# ---------------------------------------------------------------------------------------------------- no gates


def test_exact_corner_is_one_region_whatever_m():
    circuit, leaves = grow(np.random.default_rng(0).normal(size=(50, 2)), SplitRules(2, n_components=1, n_cells=1), 3)
    assert circuit.describe() == "region 0"
    assert len(leaves[0][0]) == 50


def test_sum_corner_splits_outputs_below_the_sum_and_keeps_all_rows():
    plan = SplitRules(2, n_components=2, n_cells=1, n_groups=2, mixture_depth=1, single_outputs=True)
    circuit, leaves = grow(np.random.default_rng(0).normal(size=(50, 2)), plan, 4)
    assert counts(circuit)["gate"] == 0
    root = circuit[circuit.root]
    assert (root.kind, len(root.children)) == (SUM, 2)
    for child in root.children:
        assert circuit[child].kind == OUTPUTS
        assert [len(circuit[group].outputs) for group in circuit[child].children] == [2, 2]
    assert len(leaves) == 8
    assert all(len(rows) == 50 for rows, _ in leaves)


@pytest.mark.parametrize("mixture_depth", [None, 1, 60])
def test_without_gates_sums_end_where_outputs_cannot_be_split_further(mixture_depth):
    circuit, _ = grow(column(1, 2, 3), SplitRules(2, n_cells=1, mixture_depth=mixture_depth))
    assert counts(circuit) == {"sum": 1, "gate": 0, "outputs": 0, "region": 2}


def test_without_gates_sums_and_output_splits_alternate():
    circuit, leaves = grow(column(1, 2, 3), SplitRules(2, n_cells=1, n_groups=2, mixture_depth=None), n_outputs=4)
    # sum -> 2 splits -> 4 sums of two outputs -> 8 splits -> 16 single outputs, which are leaves.
    assert counts(circuit) == {"sum": 5, "gate": 0, "outputs": 10, "region": 16}
    assert all(len(outputs) == 1 for _, outputs in leaves)


# ---------------------------------------------------------------------------------------------------- cuts


def cells(values, cuts):
    return np.bincount(np.searchsorted(cuts, values, side="left"), minlength=len(cuts) + 1)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIED = st.integers(-3, 3).map(float)


@given(
    values=st.lists(FLOATS, min_size=2, max_size=40) | st.lists(TIED, min_size=2, max_size=40),
    n_cells=st.integers(2, 6),
    shift=st.floats(0, 1, exclude_max=True),
)
@example([0.0, 5e-324], 2, 0.0)
@example([-5e-324, 0.0], 2, 0.0)
@example([-1.7e308, 1.7e308], 2, 0.5)
@example([1.0, 1.0 + 2**-52], 3, 0.0)
def test_cuts_ascend_and_leave_no_cell_empty(values, n_cells, shift):
    values = np.array(values)
    n_distinct = len(np.unique(values))
    assume(n_distinct > 1)
    cuts = gate_cuts(values, n_cells, shift)
    assert 1 <= len(cuts) <= min(n_cells, n_distinct) - 1
    assert np.isfinite(cuts).all()
    assert (np.diff(cuts) > 0).all()
    assert (cells(values, cuts) > 0).all()


@given(n=st.integers(2, 60), n_cells=st.integers(2, 6), seed=st.integers(0, 99))
def test_cells_of_distinct_values_have_equal_sizes(n, n_cells, seed):
    assume(n_cells <= n)
    values = np.random.default_rng(seed).normal(size=n)
    sizes = cells(values, gate_cuts(values, n_cells))
    assert len(sizes) == n_cells
    assert np.abs(sizes - n / n_cells).max() <= 1


@given(low=FLOATS, high=FLOATS, n_low=st.integers(1, 5), n_high=st.integers(1, 5), n_cells=st.integers(2, 4))
def test_two_distinct_values_give_one_cut_between_them(low, high, n_low, n_high, n_cells):
    assume(low < high)
    (cut,) = gate_cuts(np.array([high] * n_high + [low] * n_low), n_cells)
    assert low <= cut < high


@given(low=FLOATS.filter(lambda x: abs(x) < 1e308))
def test_adjacent_floats_are_told_apart(low):
    high = np.nextafter(low, np.inf)
    assert_array_equal(cells(np.array([low, high, high]), gate_cuts(np.array([low, high, high]), 2)), [1, 2])


def test_a_cut_lies_halfway_between_neighbours():
    assert_array_equal(gate_cuts(np.array([0.0, 1.0, 5.0, 9.0]), 2), [3.0])


def test_ties_move_a_cut_to_the_nearest_place():
    # Half of the rows would be within the block of threes; after it 7 of 10 rows are below, before it 2.
    values = np.array([1, 2, 3, 3, 3, 3, 3, 8, 9, 10.0])
    assert_array_equal(gate_cuts(values, 2), [5.5])


def test_the_order_of_the_rows_does_not_matter(rng):
    values = rng.integers(0, 8, size=50).astype(float)
    assert_array_equal(gate_cuts(values, 4), gate_cuts(rng.permutation(values), 4))


def test_a_shift_moves_the_cut_down_by_half_a_share_of_a_cell():
    # At a shift of 0.5 the aim is a quarter of a cell below the median: 3 / 8 of the rows.
    assert_array_equal(gate_cuts(np.arange(16.0), 2), [7.5])
    assert_array_equal(gate_cuts(np.arange(16.0), 2, 0.5), [5.5])


# ---------------------------------------------------------------------------------------------------- outputs


@given(n_outputs=st.integers(1, 12), n_groups=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_random_groups_are_a_partition_in_equal_parts(n_outputs, n_groups, seed):
    assume(n_groups <= n_outputs)
    groups = split_outputs(np.empty((3, 1)), np.empty((3, n_outputs)), n_groups, "random", np.random.default_rng(seed))
    assert_array_equal(np.sort(np.concatenate(groups)), np.arange(n_outputs))
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == n_groups
    assert all((np.diff(group) > 0).all() for group in groups)


def test_random_groups_follow_the_seed():
    def split(seed):
        return [
            list(g) for g in split_outputs(np.empty((3, 1)), np.empty((3, 8)), 2, "random", np.random.default_rng(seed))
        ]

    assert split(3) == split(3)
    assert len({str(split(seed)) for seed in range(10)}) > 5


def noisy_outputs(seed, n=400):
    """Four functions of x with noise: outputs 0 and 2 share theirs, so do 1 and 3 (with the other sign)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    first, second = rng.normal(size=(2, n))
    small = 0.05 * rng.normal(size=(4, n))
    curve = np.sin(2 * X[:, 0]) + X[:, 1]
    columns = [curve + first, curve + second, X[:, 0] + first, 3 - second]
    return X, np.column_stack(columns) + small.T


def test_noise_in_common_is_found():
    for seed in range(5):
        X, Y = noisy_outputs(seed)
        _, p = dependence(X, Y, np.random.default_rng(seed))
        assert p[0, 2] < 1e-6
        assert p[1, 3] < 1e-6


def test_what_the_covariates_explain_does_not_count():
    """Outputs 0 and 1 correlate through x only: at a level of 10 % few tests may reject."""
    rejected, strongest = 0, 0.0
    for seed in range(30):
        X, Y = noisy_outputs(seed)
        assert np.corrcoef(Y[:, 0], Y[:, 1])[0, 1] > 0.3
        statistic, p = dependence(X, Y[:, :2], np.random.default_rng(seed))
        rejected += p[0, 1] < 0.1
        strongest = max(strongest, statistic[0, 1])
    assert rejected <= 8  # 3 expected; more than 8 has a probability below 0.001
    assert strongest < 0.05


def test_a_target_plus_small_noise_depends_on_it(rng):
    X = rng.normal(size=(300, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=300)
    Y = np.column_stack([y, y + 0.01 * rng.normal(size=300), np.sin(X[:, 0]) + 0.3 * rng.normal(size=300)])
    statistic, p = dependence(X, Y, rng)
    assert p[0, 1] < 1e-8
    assert p[0, 2] > 0.01
    assert p[1, 2] > 0.01
    assert statistic[0, 1] > 5 * max(statistic[0, 2], statistic[1, 2])


def test_dependence_is_symmetric_seeded_and_unit_free(rng):
    X, Y = noisy_outputs(0)
    statistic, p = dependence(X, Y, np.random.default_rng(5))
    again = dependence(X, Y, np.random.default_rng(5))
    scaled = dependence(1024.0 * X, Y * [2.0, 0.5, 4.0, 8.0], np.random.default_rng(5))
    assert_array_equal(statistic, statistic.T)
    assert_array_equal(p, p.T)
    for other in (again, scaled):
        assert_array_equal(statistic, other[0])
        assert_array_equal(p, other[1])


def test_dependence_leaves_out_rows_with_gaps():
    X, Y = noisy_outputs(0)
    X2, Y2 = np.vstack([X, X[:3]]), np.vstack([Y, np.full((3, 4), np.nan)])
    Y2[-1, 0] = 1e9
    assert_array_equal(dependence(X, Y, np.random.default_rng(5))[0], dependence(X2, Y2, np.random.default_rng(5))[0])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_too_few_rows_show_no_dependence(n, rng):
    statistic, p = dependence(np.zeros((n, 1)), np.zeros((n, 2)), rng)
    assert_array_equal(statistic, np.zeros((2, 2)))
    assert_array_equal(p, np.ones((2, 2)))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3])
@pytest.mark.parametrize("n", [7, 200])
def test_a_constant_output_depends_on_nothing(value, n):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    Y = np.column_stack([np.full(n, value), y, np.full(n, 3 * value)])
    statistic, p = dependence(X, Y, rng)
    assert statistic[0, 1] < 1e-6
    assert p[0, 1] > 0.5
    assert statistic[0, 2] < 1e-6


def test_no_covariates_leave_plain_dependence(rng):
    y = rng.normal(size=200)
    _, p = dependence(np.empty((200, 0)), np.column_stack([y, y**2, rng.normal(size=200)]), rng)
    assert p[0, 1] < 1e-3
    assert p[0, 2] > 0.01


def test_many_rows_are_sampled(rng):
    X, Y = noisy_outputs(0, n=5000)
    statistic, _ = dependence(X, Y, rng, max_rows=300)
    assert statistic[0, 2] > 5 * statistic[0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_independent_groups_keep_dependent_outputs_together(seed):
    X, Y = noisy_outputs(seed)
    groups = split_outputs(X, Y, 2, "independence", np.random.default_rng(seed))
    assert sorted(list(group) for group in groups) == [[0, 2], [1, 3]]


def test_independent_groups_of_one_each(rng):
    X, Y = noisy_outputs(0)
    groups = split_outputs(X, Y, 4, "independence", rng)
    assert sorted(list(group) for group in groups) == [[0], [1], [2], [3]]


def test_algorithm_1_uses_the_independence_test():
    X, Y = noisy_outputs(1)
    plan = SplitRules(max_points=150, n_components=1, n_groups=2, group_by="independence")
    circuit, _ = grow(X, plan, Y=Y)
    splits = [node for _, node in circuit.walk() if node.kind == OUTPUTS]
    assert len(splits) == 2
    for node in splits:
        assert sorted(list(circuit[child].outputs) for child in node.children) == [[0, 2], [1, 3]]
    assert circuit.count(REGION) == 8
