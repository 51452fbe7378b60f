"""What the pictures show: texts, lines, patches and colours, read back from the figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from momostream import Circuit, MOMoGPForecaster
from momostream import MOMoGPRegressor as StreamRegressor
from momostream.batch.model import Model
from momostream.batch.nodes import GATE, REGION, SUM
from momostream.batch.settings import Settings
from momostream.distributions.forecast import Forecast
from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.mixtures import StudentT
from momostream.distributions.prediction import Prediction
from momostream.estimators.table import MOMoGPRegressor
from momostream.runs.scores import SCORES, Track
from momostream.show.outline import named
from momostream.show.plots import (
    plot_calibration,
    plot_circuit,
    plot_correlation,
    plot_forecast,
    plot_lengthscales,
    plot_prediction,
    plot_relevance,
    plot_scores,
    plot_steps,
)
from momostream.stream.tree import Gate, Sum

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ["wind", "pitch"]
OUTPUTS = ["power", "rotor", "moment"]


def frames(n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, size=(n_rows, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0], np.sin(2 * X[:, 0]) + X[:, 1]])
    return pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y + 0.05 * rng.normal(size=Y.shape), columns=OUTPUTS)


def fitted(**settings):
    return MOMoGPRegressor(**{"max_iterations": 5, "random_state": 0, **settings}).fit(*frames())


@pytest.fixture(scope="module")
def gated():
    return fitted(max_points=60)


@pytest.fixture(scope="module")
def distribution(gated):
    return gated.predict_distribution(frames()[0][:20])


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def words(labels):
    return [label.get_text() for label in labels]


# ------------------------------------------------------------------ circuits


def test_circuit_shows_gates_cuts_weights_and_rows(gated):
    figure = plot_circuit(gated)
    shown = texts(figure)
    for member, weight in zip(gated.model_.members, gated.weights_.mean(axis=1), strict=True):
        assert f"{member.name}\n{weight:.2f}" in shown
    expert = gated.model_.members[0]
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


def test_circuit_has_one_edge_per_child_and_one_box_per_node(gated):
    ax = plot_circuit(gated).axes[0]
    circuits = [member.circuit for member in gated.model_.members[:2]]
    n_nodes = 1 + 1 + sum(len(list(circuit.walk())) for circuit in circuits)  # with the root and the linear model
    framed = [text for text in ax.texts if text.get_bbox_patch().get_edgecolor()[3] > 0]
    assert len(framed) == n_nodes
    assert len(ax.lines) == n_nodes - 1


def test_circuit_of_one_expert(gated):
    by_name, by_position = plot_circuit(gated, expert="warped matern12"), plot_circuit(gated, expert=1)
    assert texts(by_name) == texts(by_position)
    assert "linear\nmodel" not in texts(by_name)
    # Cuts are shown in the units of the covariate, not as the normal scores in which a warped expert cuts.
    assert [cut for cut in texts(by_name) if cut.startswith("≤")] == [
        f"≤ {node.cuts[0]:.4g}" for _, node in gated.model_.members[1].described().walk() if node.kind == GATE
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


# ------------------------------------------------------------------ circuits of models on streams


def streamed(n_rows=200, names=("wind", "pitch"), **settings):
    rng = np.random.default_rng(0)
    model = StreamRegressor(**{"max_points": 32, "tuning_evaluations": 0, "seed": 0, **settings})
    for _ in range(n_rows):
        wind, pitch = rng.uniform(0.0, 9.0, size=2)
        model.learn_one(dict(zip(names, (wind, pitch), strict=True)), {"power": wind**2, "load": wind + pitch})
    return model


@pytest.fixture(scope="module")
def stream():
    return streamed()


@pytest.fixture(scope="module")
def forecaster():
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-03-01", periods=260, freq="10min")
    frame = pd.DataFrame(rng.normal(size=(260, 2)).cumsum(axis=0), times, ["wind", "power"])
    return MOMoGPForecaster(horizon=3, max_points=24, seasons=(5,), seed=0).fit(frame)


def test_circuit_of_a_stream_shows_experts_gates_and_rows(stream):
    shown = texts(plot_circuit(stream, max_nodes=1000))
    weights = {name: np.mean([*row.values()]) for name, row in stream.expert_weights.items()}
    first, second, *others = weights
    assert shown[:3] == ["+", f"{first}\n{weights[first]:.2f}", f"{second}\n{weights[second]:.2f}"]
    assert shown[3:6] == [f"{weights[name]:.2f}" for name in others]
    assert {"full lags", "short lags", "last value"} <= set(shown)
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
    assert shown[1:7] == [f"{weight:.2f}" for weight in weights[:6]]
    assert shown[7] == f"matern32\n{weights['matern32']:.2f}"
    assert shown[8] == f"residual\nmatern32\n{weights['residual matern32']:.2f}"
    assert set(weights.index[:6]) <= set(shown)
    rows = [leaf.n_rows for tree in forecaster._model.plain.trees for leaf in tree.leaves()]
    assert {f"GP\n{n} rows" for n in rows} <= set(shown)


def test_what_a_forecaster_sees_is_named_in_its_order(forecaster):
    ax = plot_lengthscales(forecaster).axes[0]
    model = forecaster._model
    labels = words(ax.get_xticklabels())
    assert len(labels) == model.circuit_width
    wanted = ["power", "wind", *(f"{w} of the {p}" for p in ("day", "half day") for w in ("sine", "cosine"))]
    assert labels[:6] == wanted
    # What the columns hold at the newest row.
    point = dict(zip(labels, model._points[(model.n_rows - 1) % 3][1:], strict=True))
    past = model.past
    assert point["wind"] == past.values[1]
    assert point["change of power"] == pytest.approx(past.changes(1)[0][0])
    assert point["wind one season ago"] == pytest.approx(past.earlier(np.array([5]))[0][1] - past.values[1])


@pytest.mark.parametrize("model", [StreamRegressor(), MOMoGPForecaster()])
def test_models_without_rows_are_refused(model):
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
    assert named("") == ""


# ------------------------------------------------------------------ lengthscales


def test_lengthscales_show_spread_over_lengthscale(gated):
    ax, bar = plot_lengthscales(gated).axes
    table = gated.lengthscales()
    shown = ax.images[0].get_array()
    assert shown.shape == (len(table), 2)
    region = gated.model_.members[0].regions[0]
    assert_allclose(shown[0], region.X.std(axis=0) / table[INPUTS].to_numpy()[0])
    assert words(ax.get_xticklabels()) == INPUTS
    assert words(ax.get_yticklabels()) == [f"{expert}, region {number}" for expert, number, *_ in table.index]
    assert [text.get_text() for text in ax.texts] == [f"{value:.2g}" for value in shown.ravel()]
    assert bar.get_ylabel() == "spread / lengthscale"
    assert len(ax.lines) == 1  # between the two experts


def test_lengthscales_name_the_outputs_of_a_region():
    model = fitted(experts=("matern32",), coupling="independent", weights="uniform")
    labels = words(plot_lengthscales(model).axes[0].get_yticklabels())
    assert labels == [f"matern32, region {p} ({name})" for p, name in enumerate(OUTPUTS)]


def test_lengthscale_of_a_constant_covariate_is_left_out():
    X, Y = frames()
    model = MOMoGPRegressor(("matern32",), max_iterations=2, random_state=0).fit(X.assign(pitch=3.0), Y)
    ax = plot_lengthscales(model).axes[0]
    assert ax.images[0].get_array().mask.tolist() == [[False, True]]
    assert len(texts(ax.figure)) == 1
    all_constant = MOMoGPRegressor(("matern32",), max_iterations=2).fit(X.assign(pitch=3.0, wind=1.0), Y)
    figure = plot_lengthscales(all_constant)
    figure.draw_without_rendering()
    assert texts(figure) == []


def test_many_regions_are_labelled_by_expert():
    model = fitted(experts=("matern32",), max_points=8, mixture_depth=None, max_iterations=0)
    n_regions = len(model.model_.members[0].regions)
    assert n_regions > 40
    ax = plot_lengthscales(model).axes[0]
    assert words(ax.get_yticklabels()) == [f"matern32\n{n_regions} regions"]
    assert not ax.texts


def test_lengthscales_of_a_stream(stream):
    ax = plot_lengthscales(stream).axes[0]
    shown = ax.images[0].get_array()
    entries = stream.hyperparameters
    assert words(ax.get_xticklabels()) == ["clock", "pitch", "wind"]
    assert shown.shape == (len(entries), 3)
    leaves = [leaf for tree in stream._model.trees for leaf in tree.leaves()]
    for row, entry, leaf in zip(shown, entries, leaves, strict=True):
        spread = stream._model.rows.gather(leaf.numbers)[0].std(axis=0)
        lengths = [entry["lengthscales"].get(name, np.nan) for name in ("clock", "pitch", "wind")]
        assert_allclose(np.ma.filled(row, np.nan), spread / lengths)
    without = plot_lengthscales(streamed(40, clock=False)).axes[0]
    assert words(without.get_xticklabels()) == ["pitch", "wind"]
    with pytest.raises(ValueError, match="no lengthscales"):
        plot_lengthscales(streamed(20, experts=("lags",)))


def test_linear_expert_has_no_lengthscales():
    with pytest.raises(ValueError, match="no lengthscales"):
        plot_lengthscales(fitted(experts=("linear",)))


# ------------------------------------------------------------------ predictions


def band_of(patch):
    """Lower and upper edge of a fill_between with one value each per row."""
    vertices = patch.get_paths()[0].vertices
    n_rows = (len(vertices) - 3) // 2
    return vertices[1 : n_rows + 1, 1], vertices[n_rows + 2 : -1, 1][::-1]


def test_prediction_draws_intervals_median_and_truth(distribution):
    Y = frames()[1][:20]
    ax = plot_prediction(distribution, Y, target="rotor", levels=(0.5, 0.99, 0.9)).axes[0]
    assert words(ax.get_legend().get_texts()) == ["99 %", "90 %", "50 %", "median", "truth"]
    for patch, level in zip(ax.collections, (0.99, 0.9, 0.5), strict=True):
        for drawn, wanted in zip(band_of(patch), distribution.interval(level), strict=True):
            assert_allclose(drawn, wanted[:, 1])
    median, truth = ax.lines
    assert_allclose(median.get_ydata(), distribution.quantile(0.5)[:, 1])
    assert_allclose(truth.get_ydata(), Y["rotor"])
    assert_allclose(truth.get_xdata(), np.arange(20))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("row", "rotor")


def test_prediction_without_truth_at_given_places(distribution):
    times = pd.date_range("2024-01-01", periods=20, freq="h", name="time")
    ax = plot_prediction(distribution, target=2, x=times).axes[0]
    assert len(ax.lines) == 1
    assert ax.get_xlabel() == "time"
    assert ax.get_ylabel() == "moment"
    assert ax.lines[0].get_xdata()[0] == np.datetime64("2024-01-01")


def test_prediction_follows_the_axis_whatever_the_order_of_the_rows(distribution):
    places = np.arange(distribution.n_rows)[::-1]
    ax = plot_prediction(distribution, x=places).axes[0]
    assert_allclose(ax.lines[0].get_xdata(), np.arange(distribution.n_rows))
    assert_allclose(ax.lines[0].get_ydata(), distribution.quantile(0.5)[::-1, 0])
    lower, _ = band_of(ax.collections[0])
    assert_allclose(lower, distribution.interval(0.9)[0][::-1, 0])


def test_prediction_takes_the_truth_of_one_output(distribution):
    y = np.full(20, np.nan)
    y[3] = 1.0
    ax = plot_prediction(distribution, y, target="power").axes[0]
    assert_allclose(ax.lines[1].get_ydata(), y)


def test_prediction_of_a_nameless_law():
    X, Y = (frame.to_numpy() for frame in frames(30))
    model = MOMoGPRegressor(("rbf",), max_iterations=0).fit(X, Y)
    assert plot_prediction(model.predict_distribution(X), target=1).axes[0].get_ylabel() == "y1"


def test_prediction_mistakes_are_named(distribution):
    with pytest.raises(ValueError, match="unknown target 'torque'"):
        plot_prediction(distribution, target="torque")
    with pytest.raises(ValueError, match=r"x must have shape \(20,\)"):
        plot_prediction(distribution, x=np.arange(3))
    with pytest.raises(ValueError, match=r"y must have shape \(20,\) or \(20, 3\)"):
        plot_prediction(distribution, y=np.ones((20, 2)))
    with pytest.raises(ValueError, match="levels is empty"):
        plot_prediction(distribution, levels=())


# ------------------------------------------------------------------ forecasts


def forecast_of(names, times=None, zone=None):
    distribution = np.ones((5, 1, 6, len(names)))
    distribution[0] = np.arange(6.0)[:, None] + 10.0 * np.arange(len(names))
    distribution[3] = 5.0
    joint = SimpleNamespace(planes=distribution, between_steps=np.eye(6), between_series=np.eye(len(names)))
    return Forecast(joint, names, times=times, zone=zone)


def test_forecast_draws_a_fan_for_each_series():
    forecast = forecast_of(["power", "wind"])
    history = pd.DataFrame({"wind": np.arange(10.0), "other": 0.0})
    figure = forecast.plot(history=history, levels=(0.9, 0.5, 0.99))
    power, wind = figure.axes
    assert (power.get_ylabel(), wind.get_ylabel(), wind.get_xlabel()) == ("power", "wind", "step")
    assert words(power.get_legend().get_texts()) == ["99 %", "90 %", "50 %", "median"]
    assert wind.get_legend() is None
    assert_allclose(wind.lines[0].get_xdata(), np.arange(1, 7))
    assert_allclose(wind.lines[0].get_ydata(), forecast.median["wind"])
    assert_allclose(wind.lines[1].get_xdata(), np.arange(-9, 1))
    assert_allclose(wind.lines[1].get_ydata(), history["wind"])
    assert len(power.lines) == 1
    for band, level in zip(wind.collections, (0.99, 0.9, 0.5), strict=True):
        lower, upper = band_of(band)
        assert_allclose(lower, forecast.interval(level)["wind"]["lower"])
        assert_allclose(upper, forecast.interval(level)["wind"]["upper"])


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_forecast_over_time(zone, tmp_path):
    times = pd.date_range("2024-01-01", periods=16, freq="h", tz=zone)
    forecast = forecast_of(["power"], times[10:].tz_localize(None).to_numpy(), zone)
    figure = plot_forecast(forecast, pd.DataFrame({"power": np.zeros(10)}, index=times[:10]))
    ax = figure.axes[0]
    assert ax.get_xlabel() == "time"
    assert pd.Timestamp(ax.lines[0].get_xdata()[0]) == times[10]
    assert pd.Timestamp(ax.lines[1].get_xdata()[-1]) == times[9]
    figure.savefig(tmp_path / "figure.png")


def test_forecast_draws_into_the_axes_that_are_given():
    axes = Figure().subplots(2)
    assert plot_forecast(forecast_of(["power", "wind"]), ax=axes) is axes[0].figure
    assert all(ax.has_data() for ax in axes)
    with pytest.raises(ValueError, match="1 axes for 2 series"):
        plot_forecast(forecast_of(["power", "wind"]), ax=axes[0])
    with pytest.raises(ValueError, match="levels is empty"):
        plot_forecast(forecast_of(["power"]), levels=())


@pytest.mark.parametrize(("n", "n_shown", "note"), [(4, 4, ""), (5, 5, ""), (30, 12, "18 more series are not shown")])
def test_forecast_of_many_series(n, n_shown, note):
    figure = plot_forecast(forecast_of([f"a long name of a sensor in the gearbox, number {k}" for k in range(n)]))
    figure.draw_without_rendering()
    assert len(figure.axes) == n_shown
    assert figure.get_supxlabel() == note
    n_columns = 1 if n <= 4 else 2
    assert [bool(ax.get_xlabel()) for ax in figure.axes] == [False] * (n_shown - n_columns) + [True] * n_columns
    labels = [ax.yaxis.label.get_window_extent() for ax in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(labels) for b in labels[:i])


# ------------------------------------------------------------------ correlations


def test_correlation_of_a_row(distribution):
    ax, bar = plot_correlation(distribution, row=4).axes
    spread = np.sqrt(np.diag(distribution.cov[4]))
    wanted = distribution.cov[4] / np.outer(spread, spread)
    assert_allclose(ax.images[0].get_array(), wanted, atol=1e-9)
    assert ax.images[0].get_clim() == (-1.0, 1.0)
    assert words(ax.get_xticklabels()) == words(ax.get_yticklabels()) == OUTPUTS
    assert texts(ax.figure) == [f"{np.round(value, 2) + 0.0:.2f}" for value in wanted.ravel()]
    assert ax.get_title() == "row 4"
    assert bar.get_ylabel() == "correlation"


def test_correlation_of_matrices():
    covariance = np.array([[4.0, -1.0], [-1.0, 1.0]])
    assert texts(plot_correlation(covariance)) == ["1.00", "-0.50", "-0.50", "1.00"]
    assert texts(plot_correlation(np.stack([np.eye(2), covariance]), row=1))[1] == "-0.50"
    frame = pd.DataFrame(covariance, columns=["a", "b"])
    assert words(plot_correlation(frame).axes[0].get_xticklabels()) == ["a", "b"]
    assert words(plot_correlation(frame, names=["u", "v"]).axes[0].get_xticklabels()) == ["u", "v"]


def test_correlation_that_does_not_exist():
    shown = texts(plot_correlation([[0.0, 0.0], [0.0, 2.0]]))
    assert shown == ["–", "–", "–", "1.00"]
    shown = texts(plot_correlation([[np.inf, np.nan], [np.nan, 2.0]]))
    assert shown == ["–", "–", "–", "1.00"]


def test_correlation_of_a_prediction():
    covariance = np.array([[4.0, 1.0], [1.0, 1.0]])
    distribution = StudentT(np.zeros((1, 2)), covariance, np.inf)
    ax = plot_correlation(Prediction(("wind", 7), np.zeros(2), MixtureDistribution(distribution))).axes[0]
    assert words(ax.get_xticklabels()) == ["wind", "7"]
    assert texts(ax.figure) == ["1.00", "0.50", "0.50", "1.00"]
    assert ax.get_title() == ""


def test_correlation_of_a_step_of_a_forecast(forecaster):
    forecast = forecaster.forecast(3, with_dist=True)
    for step in range(3):
        ax = plot_correlation(forecast, step).axes[0]
        block = forecast.correlation[2 * step : 2 * step + 2, 2 * step : 2 * step + 2]
        assert_allclose(ax.images[0].get_array(), block, atol=1e-9)
        assert ax.get_title() == f"step {step + 1}"
        assert words(ax.get_xticklabels()) == ["power", "wind"]
    with pytest.raises(IndexError):
        plot_correlation(forecast, 3)


def test_correlation_of_many_outputs_has_no_numbers():
    figure = plot_correlation(np.eye(30))
    assert texts(figure) == []
    assert max(figure.get_size_inches()) < 13


def test_correlation_mistakes_are_named(distribution):
    with pytest.raises(ValueError, match="shape"):
        plot_correlation(np.ones((2, 3)))
    with pytest.raises(ValueError, match="1 names for 2 outputs"):
        plot_correlation(np.eye(2), names=["a"])
    with pytest.raises(IndexError):
        plot_correlation(distribution, row=20)


# ------------------------------------------------------------------ scores of a run


class Told(Track):
    """A track that says what it is told."""

    def __init__(self, targets, blocks, n_steps=1, times=None, rows=None):
        super().__init__(targets, n_steps)
        rows = 10 * np.arange(1, len(blocks) + 1) if rows is None else rows
        columns = pd.MultiIndex.from_tuples([(score, name) for score in SCORES for name in targets])
        self.blocks = pd.DataFrame(blocks.reshape(len(blocks), -1), pd.Index(rows, name="row"), columns)
        self.times = times
        self.n_scored = len(blocks)

    by_block = property(lambda self: self.blocks)
    by_step = property(lambda self: self.blocks.set_axis(pd.RangeIndex(1, self.n_steps + 1, name="step")))
    block_times = property(lambda self: self.times)


def told(targets, n_blocks=6, **settings):
    blocks = np.random.default_rng(0).uniform(0.5, 1.0, size=(n_blocks, len(SCORES), len(targets)))
    return Told(targets, blocks, **settings)


def scores_of(track, score):
    return track.blocks[[score]].to_numpy()


def test_scores_of_one_target_are_in_its_units():
    track = told(["power"])
    error, coverage = plot_scores(track).axes
    own, naive = error.lines
    assert_allclose(own.get_xdata(), [10, 20, 30, 40, 50, 60])
    assert_allclose(own.get_ydata(), scores_of(track, "rmse")[:, 0])
    assert_allclose(naive.get_ydata(), scores_of(track, "naive")[:, 0])
    assert_allclose(coverage.lines[0].get_ydata(), scores_of(track, "coverage")[:, 0])
    assert set(coverage.lines[1].get_ydata()) == {0.9}
    assert words(error.get_legend().get_texts()) == ["power", "last value"]
    assert (error.get_ylabel(), coverage.get_xlabel()) == ("root mean square error", "row")
    assert error.get_ylim()[0] == 0.0


def test_scores_of_several_targets_are_relative_to_the_last_value():
    track = told(["power", 7, ("a", 1), "_load", "$x$"])
    error, coverage = plot_scores(track).axes
    assert_allclose(
        np.array([line.get_ydata() for line in error.lines[:5]]).T, scores_of(track, "rmse") / scores_of(track, "naive")
    )
    assert set(error.lines[5].get_ydata()) == {1.0}
    assert len({line.get_color() for line in error.lines}) == 6
    assert [a.get_color() for a in error.lines[:5]] == [b.get_color() for b in coverage.lines[:5]]
    assert words(error.get_legend().get_texts())[-1] == "last value"
    assert {"power", "7", "('a', 1)"} <= set(words(error.get_legend().get_texts()))


def test_scores_of_many_targets_show_their_mean():
    track = told([f"series {k}" for k in range(30)])
    error, coverage = plot_scores(track).axes
    assert words(error.get_legend().get_texts()) == ["each target", "mean of 30 targets", "last value"]
    ratio = scores_of(track, "rmse") / scores_of(track, "naive")
    assert_allclose(error.lines[30].get_ydata(), ratio.mean(axis=1))
    assert_allclose(coverage.lines[30].get_ydata(), scores_of(track, "coverage").mean(axis=1))
    error.figure.draw_without_rendering()


@pytest.mark.parametrize("n_targets", [1, 3, 9])
def test_gaps_in_scores(n_targets):
    track = told([f"s{k}" for k in range(n_targets)])
    track.blocks.iloc[2] = np.nan
    figure = plot_scores(track)
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert all(np.isnan(line.get_ydata()[2]) for line in ax.lines if len(line.get_ydata()) == 6)
    track.blocks[:] = np.nan
    plot_scores(track).draw_without_rendering()
    one = told([f"s{k}" for k in range(n_targets)], 1)
    assert plot_scores(one).axes[0].lines[-2].get_marker() == "o"
    one.blocks.loc[:, "naive"] = 0.0
    plot_scores(one).draw_without_rendering()


@pytest.mark.parametrize(("zone", "label"), [(None, "time"), ("UTC", "time (UTC)")])
def test_scores_over_time(zone, label):
    times = pd.date_range("2024-01-01", periods=6, freq="h", tz=zone)
    track = told(["power"], times=times.delete(3).insert(3, pd.NaT))
    figure = plot_scores(track)
    figure.draw_without_rendering()
    assert figure.axes[1].get_xlabel() == label
    assert figure.axes[0].lines[0].get_xdata()[-1] == np.datetime64("2024-01-01T05")
    numbers = told(["power"], times=pd.Index(np.arange(6) / 2))
    assert_allclose(plot_scores(numbers).axes[0].lines[0].get_xdata(), np.arange(6) / 2)


def test_large_errors_do_not_hide_the_others():
    track = told(["power"])
    track.blocks.loc[30, "rmse"] = 100.0
    assert plot_scores(track).axes[0].get_yscale() == "log"
    assert plot_scores(told(["power"])).axes[0].get_yscale() == "linear"


def test_a_block_that_has_only_begun_is_left_out():
    begun = told(["power"], 4, rows=[10, 20, 30, 33])
    assert_allclose(plot_scores(begun).axes[0].lines[0].get_xdata(), [10, 20, 30])
    half = told(["power"], 4, rows=[10, 20, 30, 35])
    assert_allclose(plot_scores(half).axes[0].lines[0].get_xdata(), [10, 20, 30, 35])


def test_steps():
    track = told(["power", "wind"], n_steps=6)
    error, coverage = plot_steps(track).axes
    assert_allclose(error.lines[0].get_xdata(), np.arange(1, 7))
    assert_allclose(error.lines[1].get_ydata(), (scores_of(track, "rmse") / scores_of(track, "naive"))[:, 1])
    assert_allclose(coverage.lines[1].get_ydata(), scores_of(track, "coverage")[:, 1])
    assert coverage.get_xlabel() == "steps ahead"


def test_tracks_without_scores_are_refused():
    for draw in (plot_scores, plot_steps):
        with pytest.raises(ValueError, match="nothing has been scored yet"):
            draw(Track(["power"], 2))
    with pytest.raises(ValueError, match="one step ahead"):
        plot_steps(told(["power"]))
    with pytest.raises(ValueError, match="no values yet"):
        plot_calibration(Track(["power"]))
    with pytest.raises(ValueError, match="no shares"):
        plot_relevance(Track(["power"]))


# ------------------------------------------------------------------ calibration


def bars_of(ax):
    return [patch.get_height() for patch in ax.patches if patch.get_width() < 0.1]


def band_on(ax):
    (band,) = [patch for patch in ax.patches if patch.get_width() > 0.5]
    return band.get_y(), band.get_y() + band.get_height()


def test_calibration_counts_probabilities():
    pit = np.concatenate([np.full(30, 0.01), np.linspace(0.0, 1.0, 71), [np.nan]])
    ax = plot_calibration(pit).axes[0]
    counts = np.histogram(pit[:-1], 20, (0.0, 1.0))[0]
    assert_allclose(bars_of(ax), counts / (101 / 20))
    assert ax.get_title() == "101 values"
    low, high = band_on(ax)
    assert 0.0 <= low < 1.0 < high


def test_the_band_holds_what_chance_makes():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(20):
        ax = plot_calibration(rng.uniform(size=2000)).axes[0]
        low, high = band_on(ax)
        inside += [low <= height <= high for height in bars_of(ax)]
    assert 0.92 < np.mean(inside) < 0.98


def test_calibration_of_frames_and_tracks():
    counts = pd.DataFrame({"power": np.arange(20), 3: np.full(20, 5), "never": np.zeros(20)})
    figure = plot_calibration(counts)
    power, three, never = figure.axes
    assert_allclose(bars_of(power), np.arange(20) / 9.5)
    assert_allclose(bars_of(three), 1.0)
    assert [ax.get_title() for ax in figure.axes] == ["power\n190 values", "3\n100 values", "never\n0 values"]
    assert [text.get_text() for text in never.texts] == ["no values"]
    track = Track(["power", "wind"])
    track._pit[:, 0] = np.arange(20)
    drawn = plot_calibration(track).axes
    assert_allclose(bars_of(drawn[0]), np.arange(20) / 9.5)
    assert drawn[1].get_title() == "wind\n0 values"


def test_calibration_of_many_targets():
    figure = plot_calibration(np.random.default_rng(0).uniform(size=(50, 30)))
    assert len(figure.axes) == 12
    assert figure.get_supxlabel() == "18 more targets are not shown"
    assert figure.axes[4].get_title() == "y4\n50 values"
    figure.draw_without_rendering()


def test_calibration_mistakes_are_named():
    for wrong in ([0.5, 1.2], [-0.1], np.zeros((2, 2, 2)), 0.5):
        with pytest.raises(ValueError, match="expected probabilities"):
            plot_calibration(wrong)
    with pytest.raises(ValueError, match="counts"):
        plot_calibration(pd.DataFrame({"power": [0.5, 0.2]}))
    with pytest.raises(ValueError, match="no values yet"):
        plot_calibration([np.nan])
    with pytest.raises(ValueError, match="one axes for 2 targets"):
        plot_calibration(np.full((4, 2), 0.5), ax=Figure().add_subplot())


# ------------------------------------------------------------------ relevance


def heights_of(ax):
    """Upper edges of the areas at the last place, from the bottom up."""
    tops = []
    for area in ax.collections:
        vertices = area.get_paths()[0].vertices
        tops.append(vertices[vertices[:, 0] == vertices[:, 0].max(), 1].max())
    return tops


def test_relevance_is_stacked_largest_first():
    shares = pd.DataFrame({"pitch": [0.1, 0.2], 3: [0.6, 0.5], "clock": [0.3, np.nan]}, pd.Index([64, 128], name="row"))
    ax = plot_relevance(shares).axes[0]
    assert words(ax.get_legend().get_texts()) == ["pitch", "clock", "3"]
    assert_allclose(heights_of(ax), [0.5, 0.5, 0.7])
    assert (ax.get_xlabel(), ax.get_xlim()) == ("row", (64, 128))


def test_small_shares_are_summed_up():
    values = np.tile(np.arange(30.0, 0.0, -1.0) / 465, (3, 1))
    ax = plot_relevance(pd.DataFrame(values, columns=[f"x{k}" for k in range(30)])).axes[0]
    assert words(ax.get_legend().get_texts())[:2] == ["23 others", "x6"]
    assert_allclose(heights_of(ax)[-1], 1.0)
    assert_allclose(heights_of(ax)[-2], values[0, :7].sum())


def test_relevance_of_a_track_and_of_a_single_row():
    track = Track(["power"])
    track._shares = [(64, {"wind": 0.25, "clock": 0.75})]
    ax = plot_relevance(track).axes[0]
    assert_allclose(heights_of(ax), [0.75, 1.0])
    assert ax.get_xlim() == (63.5, 64.5)


def test_relevance_of_a_history_of_weights(forecaster):
    history = forecaster.weights_history
    ax = plot_relevance(history).axes[0]
    last = history[history["row"] == history["row"].max()].groupby("expert")["weight"].mean()
    order = history.groupby("expert")["weight"].mean().sort_values(ascending=False).index
    assert_allclose(heights_of(ax), np.cumsum(last[order]))
    assert words(ax.get_legend().get_texts())[::-1] == list(order)


# ------------------------------------------------------------------ what all share


DRAWINGS = {
    "circuit": lambda model, distribution, ax=None: plot_circuit(model, ax=ax),
    "lengthscales": lambda model, distribution, ax=None: plot_lengthscales(model, ax=ax),
    "prediction": lambda model, distribution, ax=None: plot_prediction(distribution, ax=ax),
    "forecast": lambda model, distribution, ax=None: plot_forecast(forecast_of(["power"]), ax=ax),
    "correlation": lambda model, distribution, ax=None: plot_correlation(distribution, ax=ax),
    "calibration": lambda model, distribution, ax=None: plot_calibration([0.1, 0.7], ax=ax),
    "relevance": lambda model, distribution, ax=None: plot_relevance(pd.DataFrame({"wind": [0.5, 1.0]}), ax=ax),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_figure_can_be_saved(draw, gated, distribution, tmp_path):
    figure = draw(gated, distribution)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_given_axes_are_drawn_into(draw, gated, distribution):
    ax = Figure().add_subplot()
    assert draw(gated, distribution, ax) is ax.figure
    assert ax.has_data()


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_global_settings_are_left_alone(draw, gated, distribution):
    before = dict(matplotlib.rcParams)
    draw(gated, distribution)
    assert dict(matplotlib.rcParams) == before


def test_axes_of_a_subfigure(gated):
    outer = Figure()
    left, _ = outer.subfigures(1, 2)
    assert plot_circuit(gated, ax=left.add_subplot()) is outer


def test_pyplot_is_left_alone():
    code = "import sys, momostream.show.plots; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
