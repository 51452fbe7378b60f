"""What plots of circuits show: texts, boxes and edges, read back from the figures."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure

from momostream import Circuit, MOMoGPForecaster
from momostream import MOMoGPRegressor as StreamRegressor
from momostream.batch.model import Model
from momostream.batch.nodes import GATE, REGION, SUM
from momostream.batch.settings import Settings
from momostream.estimators.table import MOMoGPRegressor
from momostream.show.outline import named
from momostream.show.plots import plot_circuit, plot_lengthscales
from momostream.stream.tree import Gate, Sum
from tests.show.plots.figures import INPUTS, OUTPUTS, fitted, frames, streamed, texts, words


def test_circuit_shows_gates_cuts_weights_and_rows(gated):
    figure = plot_circuit(gated)
    shown = texts(figure)
    for member, weight in zip(gated.model_.experts, gated.weights_.mean(axis=1), strict=True):
        assert f"{member.name}\n{weight:.2f}" in shown
    expert = gated.model_.experts[0]
    for node in expert.circuit.nodes:
        if node.kind == GATE:
            assert INPUTS[node.column] in shown
            assert f"≤ {node.cuts[0]:.4g}" in shown
            assert f"> {node.cuts[0]:.4g}" in shown
        if node.kind == SUM:
            assert {f"{weight:.2f}" for weight in np.exp(node.log_weights).mean(axis=1)} <= set(shown)
        if node.kind == REGION:
            assert f"region {node.region}\n{expert.regions[node.region].n_rows} rows" in shown
    assert "linear\nmodel" in shown


@pytest.mark.parametrize("sideways", [False, True])
def test_circuit_has_one_edge_per_child_and_one_box_per_node(gated, sideways):
    ax = plot_circuit(gated, sideways=sideways).axes[0]
    circuits = [member.circuit for member in gated.model_.experts[:2]]
    n_nodes = 1 + 1 + sum(len(list(circuit.walk())) for circuit in circuits)  # with the root and the linear model
    framed = [text for text in ax.texts if text.get_bbox_patch().get_edgecolor()[3] > 0]
    assert len(framed) == n_nodes
    assert len(ax.lines) == n_nodes - 1


def test_sideways_circuits_are_tall_and_their_boxes_do_not_overlap(gated):
    figure = plot_circuit(gated, sideways=True)
    figure.draw_without_rendering()
    assert figure.get_figheight() > 0.5 * figure.get_figwidth()
    assert figure.get_figwidth() < plot_circuit(gated).get_figwidth()
    framed = [text for text in figure.axes[0].texts if text.get_bbox_patch().get_edgecolor()[3] > 0]
    boxes = [text.get_bbox_patch().get_window_extent() for text in framed]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_circuit_of_one_expert(gated):
    by_name, by_position = plot_circuit(gated, expert="warped matern12"), plot_circuit(gated, expert=1)
    assert texts(by_name) == texts(by_position)
    assert "linear\nmodel" not in texts(by_name)
    # Cuts are shown in the units of the covariate, not as the normal scores in which a warped expert cuts.
    assert [cut for cut in texts(by_name) if cut.startswith("≤")] == [
        f"≤ {node.cuts[0]:.4g}" for _, node in gated.model_.experts[1].described().walk() if node.kind == GATE
    ]
    assert texts(plot_circuit(gated, expert="linear")) == ["linear\nmodel"]


def test_circuit_names_can_be_replaced(gated):
    shown = texts(plot_circuit(gated, expert=0, inputs=["u", "v"]))
    assert "u" in shown
    assert not set(INPUTS) & set(shown)


def test_core_model_has_no_names():
    X, Y = (frame.to_numpy() for frame in frames())
    model = Model(Settings(experts=("matern32",), max_points=60, n_groups=2, max_iterations=0, seed=0)).fit(X, Y)
    shown = texts(plot_circuit(model))
    assert "x0" in shown
    assert words(plot_lengthscales(model).axes[0].get_xticklabels()) == ["x0", "x1"]


def test_output_splits_name_their_outputs():
    model = fitted(experts=("matern32",), coupling="independent", weights="uniform", n_cells=1, n_components=1)
    assert texts(plot_circuit(model)) == ["×", *OUTPUTS] + [f"region {p}\n120 rows" for p in range(3)]
    assert texts(plot_circuit(model, outputs=["a", "b", "c"]))[1:4] == ["a", "b", "c"]


def test_many_outputs_on_an_edge_are_counted():
    structure = Circuit()
    groups = [structure.add_region(0, range(9)), structure.add_region(1, [9])]
    structure.add_outputs(groups)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 1)), rng.normal(size=(20, 10))
    model = MOMoGPRegressor(("rbf",), structure=structure, max_iterations=0).fit(X, Y)
    shown = texts(plot_circuit(model))
    assert [text for text in shown if "9 outputs" in text] == ["y0, y1, y2, y3, …\n9 outputs"]
    assert "y9" in shown


def test_gate_with_three_cells():
    structure = Circuit()
    structure.add_gate(0, [1.0, 3.0], [structure.add_region(k, [0, 1, 2]) for k in range(3)])
    shown = texts(plot_circuit(fitted(experts=("matern32",), structure=structure, max_iterations=0)))
    assert shown[:4] == ["wind", "≤ 1", "1 to\n3", "> 3"]


def test_single_region():
    model = fitted(experts=("matern32",))
    assert texts(plot_circuit(model)) == ["region 0\n120 rows"]


@pytest.mark.parametrize("max_nodes", [1, 2, 5, 11, 15])
def test_large_circuits_are_cut_off(gated, max_nodes):
    whole = plot_circuit(gated).axes[0]
    n_nodes = len(whole.lines) + 1
    ax = plot_circuit(gated, max_nodes=max_nodes).axes[0]
    counted = [text.get_text() for text in ax.texts if text.get_text().startswith("…")]
    hidden = sum(int(text.split()[1]) for text in counted)
    assert hidden == max(n_nodes - max_nodes, 0)
    assert len(ax.lines) + 1 == min(max_nodes, n_nodes) + len(counted)


def test_nothing_overlaps():
    model = fitted(experts=("matern32", "linear"), max_points=20, n_cells=3, n_groups=2, weights="uniform")
    figure = plot_circuit(model, inputs=["a rather long name of a covariate", "b"], max_nodes=100)
    figure.draw_without_rendering()
    boxes = [text.get_bbox_patch().get_window_extent() for text in figure.axes[0].texts]
    touching = [(i, j) for i, a in enumerate(boxes) for j, b in enumerate(boxes[:i]) if a.overlaps(b)]
    assert touching == []
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_letters_shrink_in_a_small_axes(gated):
    small = Figure(figsize=(2, 2)).add_subplot()
    plot_circuit(gated, ax=small)
    own = plot_circuit(gated).axes[0]
    assert small.texts[0].get_fontsize() < 0.5 * own.texts[0].get_fontsize()


def test_circuit_mistakes_are_named(gated):
    with pytest.raises(ValueError, match="unknown expert 'rbf': the experts are 'matern32', 'warped matern12'"):
        plot_circuit(gated, expert="rbf")
    with pytest.raises(ValueError, match="unknown expert 3"):
        plot_circuit(gated, expert=3)
    with pytest.raises(ValueError, match="max_nodes=0"):
        plot_circuit(gated, max_nodes=0)
    with pytest.raises(ValueError, match="not fitted"):
        plot_circuit(MOMoGPRegressor())


def test_circuit_of_a_stream_shows_experts_gates_and_rows(stream):
    shown = texts(plot_circuit(stream, max_nodes=1000))
    weights = {name: np.mean([*row.values()]) for name, row in stream.expert_weights.items()}
    first, second, *others = weights
    assert shown[:3] == ["+", f"{first}\n{weights[first]:.2f}", f"{second}\n{weights[second]:.2f}"]
    assert shown[3 : 3 + len(others)] == [f"{weights[name]:.2f}" for name in others]
    assert {"full lags", "short lags", "last value", "standing still"} <= set(shown)
    columns = ("clock", "pitch", "wind")
    for tree in stream._model.trees:
        gates = [node for node in tree.nodes() if isinstance(node, Gate)]
        assert gates
        for gate in gates:
            assert columns[tree.start + gate.column] in shown
            assert f"≤ {gate.cuts[0]:.4g}" in shown and f"> {gate.cuts[-1]:.4g}" in shown
        assert {f"GP\n{leaf.n_rows} rows" for leaf in tree.leaves()} <= set(shown)


def test_cells_of_a_gate_with_many_are_counted():
    model = StreamRegressor(("clock matern12",), max_points=8, tuning_evaluations=0, seed=0)
    for t in range(300):
        model.learn_one({}, {"power": t % 7})
    gate = model._model.trees[0].root
    assert isinstance(gate, Gate) and len(gate.cuts) > 20
    ax = plot_circuit(model, max_nodes=1000).axes[0]
    shown = [text.get_text() for text in ax.texts]
    n_nodes = len(model._model.trees[0].nodes())
    counted = [int(text.split()[1]) for text in shown if text.startswith("…")]
    framed = [text for text in ax.texts if text.get_bbox_patch().get_edgecolor()[3] > 0]
    assert sum(counted) + len(framed) - len(counted) == n_nodes
    # The newest cells, which matter most, are there.
    assert f"> {gate.cuts[-1]:.4g}" in shown and f"≤ {gate.cuts[0]:.4g}" in shown
    few = [text for text in texts(plot_circuit(model, max_nodes=3)) if text.startswith("…")]
    assert sum(int(text.split()[1]) for text in few) + 3 == n_nodes + (len(few) > 1)


def test_sums_and_output_splits_of_a_stream():
    model = streamed(n_components=2, experts=("matern32",))
    sums = [node for node in model._model.trees[0].nodes() if isinstance(node, Sum)]
    shown = texts(plot_circuit(model, max_nodes=1000))
    assert sums and shown.count("+") == len(sums)
    for weight in np.exp(sums[0].log_weights).mean(axis=1):
        assert f"{weight:.2f}" in shown
    apart = texts(plot_circuit(streamed(20, coupling="independent", experts=("matern32",))))
    assert apart == ["×", "load", "power", "GP\n20 rows", "GP\n20 rows"]
    assert texts(plot_circuit(streamed(20, n_groups=2, experts=("matern32",)), outputs=["u", "v"])) == ["GP\n20 rows"]


def test_circuit_of_one_expert_of_a_stream(stream):
    assert "clock" in texts(plot_circuit(stream, "clock matern32", max_nodes=1000))
    assert "clock" not in texts(plot_circuit(stream, "matern32", max_nodes=1000))
    assert "u" in texts(plot_circuit(stream, "matern32", inputs=["t", "v", "u"], max_nodes=1000))
    assert texts(plot_circuit(stream, "last value")) == ["last value"]
    with pytest.raises(ValueError, match="unknown expert 'rbf': the experts are 'clock matern32'"):
        plot_circuit(stream, "rbf")


def test_circuit_of_a_forecaster(forecaster):
    shown = texts(plot_circuit(forecaster, max_nodes=1000))
    weights = forecaster.weights.mean(axis=1)
    assert shown[1:10] == [f"{weight:.2f}" for weight in weights[:9]]
    assert shown[10] == f"matern32\n{weights['matern32']:.2f}"
    assert shown[11] == f"residual\nmatern32\n{weights['residual matern32']:.2f}"
    assert set(weights.index[:9]) <= {text.replace("\n", " ") for text in shown}
    rows = [leaf.n_rows for tree in forecaster._model.experts.circuits["plain"].trees for leaf in tree.leaves()]
    assert {f"GP\n{n} rows" for n in rows} <= set(shown)


def test_what_a_forecaster_sees_is_named_in_its_order(forecaster):
    ax = plot_lengthscales(forecaster).axes[0]
    model = forecaster._model
    labels = words(ax.get_xticklabels())
    assert len(labels) == model.features.n_coordinates
    wanted = ["power", "wind", *(f"{w} of the {p}" for p in ("day", "half day") for w in ("sine", "cosine"))]
    assert labels[:6] == wanted
    # Values of the columns at the newest row.
    point = dict(zip(labels, model.ring.points[(model.n_rows - 1) % 3][1:], strict=True))
    past = model.past
    assert point["wind"] == past.values[1]
    assert point["change of power"] == pytest.approx(past.values[0] - past.earlier(np.array([1]))[0][0])
    assert point["wind one season ago"] == pytest.approx(past.earlier(np.array([5]))[0][1] - past.values[1])


@pytest.mark.parametrize("model", [StreamRegressor(), MOMoGPForecaster()])
def test_models_without_rows_are_rejected(model):
    for draw in (plot_circuit, plot_lengthscales):
        with pytest.raises(ValueError, match="has learnt no row yet"):
            draw(model)


def test_stream_of_one_row_and_names_that_are_not_text():
    model = StreamRegressor(seed=0)
    model.learn_one({1: 2.0, ("a", 2): 3.0}, {7: 1.0})
    shown = texts(plot_circuit(model))
    assert shown.count("GP\n1 row") == 2
    plot_lengthscales(model).draw_without_rendering()
    odd = streamed(names=("$x", "$y and a rather long name of a covariate that goes on"))
    figure = plot_circuit(odd, max_nodes=30)
    figure.draw_without_rendering()
    boxes = [text.get_bbox_patch().get_window_extent() for text in figure.axes[0].texts]
    assert [(i, j) for i, a in enumerate(boxes) for j, b in enumerate(boxes[:i]) if a.overlaps(b)] == []


def test_names_are_wrapped_cut_off_and_never_formulas():
    assert named("power") == "power"
    assert named(("a", 2)) == "('a', 2)"
    assert named("$x and $y") == r"\$x and \$y"
    long = named("temperature of the bearing at the drive end of the gearbox", 20)
    assert long.endswith("…") and [len(line) for line in long.split("\n")] == [18, 20]
    assert named("abcdefghijkl", 6, 1) == "abcde…"
    assert named("generator_temperature", 20) == "generator_\ntemperature"
    assert named("") == ""
