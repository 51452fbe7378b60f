"""Structures of the table model: given by hand, of presets, described."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.batch.nodes import GATE, OUTPUTS, REGION, SUM, Circuit
from momostream.estimators.presets import PRESETS
from tests.batch.fitting import DEFAULT, by_hand, circuits, fitted, toy


def no_tree():
    """A circuit in which a region has two parents."""
    circuit = Circuit()
    region = circuit.add_region(0, [0, 1])
    circuit.add_gate(0, [0.0], [region, region])
    return circuit


@pytest.mark.parametrize("experts", [("matern32",), ("warped matern32",), DEFAULT])
def test_a_structure_by_hand_is_used(experts):
    X, Y = toy()
    X[0, 1] = 0.5
    structure = by_hand()
    model = fitted(X, Y, experts=experts, structure=structure)
    low = X[:, 1] <= 0.5
    for expert in circuits(model):
        assert [node.kind for node in expert.circuit.nodes] == [REGION, REGION, GATE]
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
    (expert,) = model.experts
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
        (by_hand(column=2), "structure has a gate on column 2, but there are 2 covariates"),
        (no_tree(), "structure must be a tree, but node 0 has more than one parent"),
    ],
)
def test_a_structure_that_does_not_fit_is_rejected(structure, words):
    X, Y = toy(20)
    with pytest.raises(ValueError, match=words):
        fitted(X, Y, structure=structure)


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
    (expert,) = model.experts
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
    (expert,) = model.experts
    count = {kind: expert.circuit.count(kind) for kind in (SUM, GATE, OUTPUTS)}
    assert (count[SUM] > 0) == (name != "exact")
    assert (count[GATE] > 0) == (name in ("dsmgp", "momogp"))
    assert count[OUTPUTS] > 0
    assert all(region.gaussian and region.n_targets == 1 for region in expert.regions)


def test_presets_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        PRESETS["exact"] = {}


def test_a_structure_given_by_hand_is_never_split():
    X, Y = toy(40)
    structure = Circuit()
    structure.add_region(0, [0, 1])
    model = fitted(X, Y, structure=structure, max_points=10, experts=("matern32",))
    model.learn(X[:5], Y[:5])
    (expert,) = circuits(model)
    assert [region.n_rows for region in expert.regions] == [45]


def test_a_cell_without_rows_has_a_deviation():
    X, Y = toy(30)
    structure = Circuit()
    children = [structure.add_region(0, [0, 1]), structure.add_region(1, [0, 1])]
    structure.add_gate(0, [1e3], children)
    model = fitted(X, Y, structure=structure, experts=("matern32",), weights="uniform")
    assert np.isfinite(model.predict(np.array([[2e3] * X.shape[1]])).std).all()


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
    (expert,) = model.experts
    shown = expert.described()
    node, inner = shown[shown.root], expert.circuit[expert.circuit.root]
    assert node.kind == GATE
    left = expert.circuit[inner.children[0]].region
    # Halfway between two rows in normal scores lies between the same rows in their own units.
    assert (X[expert.rows[left], node.column] <= node.cuts[0]).all()
    assert int((X[:, node.column] <= node.cuts[0]).sum()) == expert.regions[left].n_rows
    assert_allclose(expert.warp(np.full((1, 2), node.cuts[0]))[0, node.column], inner.cuts[0])
