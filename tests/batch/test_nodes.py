"""The table of nodes: building, refusing, routing and describing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.nodes import GATE, KINDS, OUTPUTS, REGION, SUM, Circuit


def small_circuit() -> Circuit:
    """sum(gate x1 at 0.5 (outputs([0] | [1, 2]), region), region), node numbers in the order of the lines."""
    circuit = Circuit()
    first = circuit.add_region(0, [0])
    pair = circuit.add_region(1, [1, 2])
    split = circuit.add_outputs([first, pair])
    right = circuit.add_region(2, [0, 1, 2])
    gate = circuit.add_gate(1, [0.5], [split, right])
    whole = circuit.add_region(3, [0, 1, 2])
    circuit.add_sum([gate, whole], [3.0, 1.0])
    return circuit


# ---------------------------------------------------------------------------------------------------- building


def test_nodes_hold_what_they_were_built_with():
    circuit = small_circuit()
    assert len(circuit) == 7
    assert [KINDS[node.kind] for node in circuit.nodes] == [
        "region",
        "region",
        "outputs",
        "region",
        "gate",
        "region",
        "sum",
    ]
    assert circuit.root == 6
    assert_array_equal(circuit[2].outputs, [0, 1, 2])
    assert circuit[2].children == (0, 1)
    assert (circuit[4].column, circuit[4].children) == (1, (2, 3))
    assert_array_equal(circuit[4].cuts, [0.5])
    assert [circuit[n].region for n in (0, 1, 3, 5)] == [0, 1, 2, 3]
    assert_allclose(np.exp(circuit[6].log_weights), [0.75, 0.25])


def test_the_node_added_last_is_the_root():
    circuit = Circuit()
    assert circuit.root == -1
    assert circuit.add_region(0, [0]) == circuit.root == 0
    assert circuit.add_region(1, [0]) == circuit.root == 1


def test_outputs_are_kept_ascending():
    circuit = Circuit()
    a, b = circuit.add_region(0, [4, 0]), circuit.add_region(1, np.array([3, 1]))
    assert_array_equal(circuit[a].outputs, [0, 4])
    assert_array_equal(circuit[circuit.add_outputs([b, a])].outputs, [0, 1, 3, 4])


def test_a_sum_is_uniform_by_default():
    circuit = Circuit()
    children = [circuit.add_region(k, [0]) for k in range(4)]
    assert_allclose(np.exp(circuit[circuit.add_sum(children)].log_weights), 0.25)


def test_a_sum_normalises_the_weights_of_each_output():
    circuit = Circuit()
    children = [circuit.add_region(k, [0, 1]) for k in range(2)]
    node = circuit[circuit.add_sum(children, np.array([[1.0, 6.0], [3.0, 2.0]]))]
    assert_allclose(np.exp(node.log_weights), [[0.25, 0.75], [0.75, 0.25]])


# ---------------------------------------------------------------------------------------------------- rejecting


@pytest.fixture
def three():
    circuit = Circuit()
    return circuit, [circuit.add_region(0, [0, 1]), circuit.add_region(1, [0, 1]), circuit.add_region(2, [2])]


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], [1.0, 0.0], [1.0, -1.0], [np.nan, 1.0]])
def test_a_sum_rejects_weights(three, weights):
    circuit, (a, b, _) = three
    with pytest.raises(ValueError, match="one positive weight per child"):
        circuit.add_sum([a, b], weights)


@pytest.mark.parametrize("cuts", [[], [1.0, 2.0], [np.nan], [np.inf]])
def test_a_gate_rejects_cuts(three, cuts):
    circuit, (a, b, _) = three
    with pytest.raises(ValueError, match="ascending cuts and one child more than cuts"):
        circuit.add_gate(0, cuts, [a, b])


@pytest.mark.parametrize("cuts", [[1.0, 1.0], [2.0, 1.0], [np.nan, 1.0], [1.0, np.nan]])
def test_a_gate_rejects_cuts_that_do_not_ascend(three, cuts):
    circuit, (a, b, _) = three
    with pytest.raises(ValueError, match="ascending cuts"):
        circuit.add_gate(0, cuts, [a, b, a])


def test_different_outputs_cannot_be_mixed_or_gated(three):
    circuit, (a, _, c) = three
    with pytest.raises(ValueError, match="children of a sum must own the same outputs"):
        circuit.add_sum([a, c])
    with pytest.raises(ValueError, match="children of a gate must own the same outputs"):
        circuit.add_gate(0, [0.0], [a, c])


def test_overlapping_outputs_cannot_be_split(three):
    circuit, (a, b, c) = three
    with pytest.raises(ValueError, match="disjoint outputs"):
        circuit.add_outputs([a, b])
    circuit.add_outputs([a, c])


@pytest.mark.parametrize("children", [[], [0, 3], [-1, 0]])
def test_children_must_have_been_added_before(three, children):
    circuit, _ = three
    for add, what in ((circuit.add_sum, "a sum"), (circuit.add_outputs, "an output split")):
        with pytest.raises(ValueError, match=f"{what} needs numbers of nodes .* as children"):
            add(children)
    with pytest.raises(ValueError, match="a gate needs numbers of nodes .* as children"):
        circuit.add_gate(0, [0.0], children)


def test_a_gate_needs_a_column(three):
    circuit, (a, b, _) = three
    with pytest.raises(ValueError, match="position of a covariate, not -1"):
        circuit.add_gate(-1, [0.0], [a, b])


@pytest.mark.parametrize("outputs", [[], [0, 0], [-1, 2]])
def test_a_region_needs_distinct_outputs(outputs):
    with pytest.raises(ValueError, match="distinct positions of outputs"):
        Circuit().add_region(0, outputs)


def test_a_rejected_node_leaves_the_table_as_it_was(three):
    circuit, (a, _, c) = three
    for wrong in (lambda: circuit.add_sum([a, c]), lambda: circuit.add_gate(0, [], [a, a])):
        with pytest.raises(ValueError):
            wrong()
    assert (len(circuit), circuit.root) == (3, 2)


# ---------------------------------------------------------------------------------------------------- reading


def test_a_row_on_a_cut_belongs_to_the_lower_child():
    circuit = Circuit()
    children = [circuit.add_region(k, [0]) for k in range(3)]
    gate = circuit.add_gate(1, [0.0, 2.0], children)
    x = np.array([-1.0, 0.0, np.nextafter(0.0, 1.0), 2.0, np.nextafter(2.0, 3.0), 1e300, -np.inf, np.inf])
    X = np.column_stack([np.full(len(x), 100.0), x])
    assert_array_equal(circuit.route(gate, X), [0, 0, 1, 1, 2, 2, 0, 2])


@given(
    cuts=st.lists(st.floats(-10, 10), min_size=1, max_size=6, unique=True).map(sorted),
    x=st.lists(st.floats(-12, 12), min_size=1, max_size=20),
)
def test_routing_follows_its_definition(cuts, x):
    circuit = Circuit()
    gate = circuit.add_gate(0, cuts, [circuit.add_region(k, [0]) for k in range(len(cuts) + 1)])
    edges = [-np.inf, *cuts, np.inf]
    for value, owner in zip(x, circuit.route(gate, np.array(x)[:, None]), strict=True):
        assert edges[owner] < value <= edges[owner + 1]


def test_depth_counts_gates_on_the_longest_way():
    circuit = Circuit()
    assert circuit.depth() == 0
    regions = [circuit.add_region(k, [0]) for k in range(4)]
    assert circuit.depth() == 0
    low = circuit.add_gate(0, [0.0], regions[:2])
    inner = circuit.add_sum([low, low])
    assert circuit.depth() == 1
    circuit.add_gate(0, [1.0, 2.0], [inner, *regions[2:]])
    assert circuit.depth() == 2


def test_walk_goes_parents_first_from_left_to_right_and_skips_what_the_root_does_not_reach():
    circuit = small_circuit()
    root = circuit.root
    circuit.add_region(9, [0])
    circuit.root = root
    assert [number for number, _ in circuit.walk()] == [6, 4, 2, 0, 1, 3, 5]
    assert [circuit.count(kind) for kind in (SUM, GATE, OUTPUTS, REGION)] == [1, 1, 1, 4]
    assert list(Circuit().walk()) == []


def test_describe_draws_the_tree():
    assert small_circuit().describe().split("\n") == [
        "sum",
        "├─ 0.750: gate x1 at 0.5",
        "│  ├─ x1 <= 0.5: outputs",
        "│  │  ├─ [y0] region 0",
        "│  │  └─ [y1, y2] region 1",
        "│  └─ x1 > 0.5: region 2",
        "└─ 0.250: region 3",
    ]


def test_describe_uses_names_and_rows():
    text = small_circuit().describe(["wind", "pitch"], ["power", "torque", "speed"], [10, 20, 30, 40])
    assert text.split("\n") == [
        "sum",
        "├─ 0.750: gate pitch at 0.5",
        "│  ├─ pitch <= 0.5: outputs",
        "│  │  ├─ [power] region 0 (10 rows)",
        "│  │  └─ [torque, speed] region 1 (20 rows)",
        "│  └─ pitch > 0.5: region 2 (30 rows)",
        "└─ 0.250: region 3 (40 rows)",
    ]


def test_describe_shows_inner_cells_as_intervals():
    circuit = Circuit()
    circuit.add_gate(0, [1.0, 2.5, 10.0], [circuit.add_region(k, [0]) for k in range(4)])
    assert circuit.describe(["t"]).split("\n") == [
        "gate t at 1, 2.5, 10",
        "├─ t <= 1: region 0",
        "├─ 1 < t <= 2.5: region 1",
        "├─ 2.5 < t <= 10: region 2",
        "└─ t > 10: region 3",
    ]


def test_describe_shows_the_mean_of_weights_per_output():
    circuit = Circuit()
    children = [circuit.add_region(k, [0, 1]) for k in range(2)]
    circuit.add_sum(children, np.array([[0.2, 0.6], [0.8, 0.4]]))
    assert circuit.describe().split("\n") == ["sum", "├─ 0.400: region 0", "└─ 0.600: region 1"]


def test_copies_and_pickles_are_independent_and_equal():
    circuit = small_circuit()
    for twin in (copy.deepcopy(circuit), pickle.loads(pickle.dumps(circuit))):
        assert twin.describe() == circuit.describe()
        twin[4].cuts[0] = 9.0
        assert circuit[4].cuts[0] == 0.5
