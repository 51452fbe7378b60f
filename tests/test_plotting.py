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

from momostream import Circuit
from momostream.forecast import Forecast
from momostream.model import Model, Settings
from momostream.nodes import GATE, REGION, SUM
from momostream.plotting import plot_circuit, plot_correlation, plot_forecast, plot_lengthscales, plot_prediction
from momostream.sklearn import MOMoGPRegressor

ROOT = Path(__file__).resolve().parents[1]
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
def law(gated):
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


def test_linear_expert_has_no_lengthscales():
    with pytest.raises(ValueError, match="no lengthscales"):
        plot_lengthscales(fitted(experts=("linear",)))


# ------------------------------------------------------------------ predictions


def band_of(patch):
    """Lower and upper edge of a fill_between with one value each per row."""
    vertices = patch.get_paths()[0].vertices
    n_rows = (len(vertices) - 3) // 2
    return vertices[1 : n_rows + 1, 1], vertices[n_rows + 2 : -1, 1][::-1]


def test_prediction_draws_intervals_median_and_truth(law):
    Y = frames()[1][:20]
    ax = plot_prediction(law, Y, target="rotor", levels=(0.5, 0.99, 0.9)).axes[0]
    assert words(ax.get_legend().get_texts()) == ["99 %", "90 %", "50 %", "median", "truth"]
    for patch, level in zip(ax.collections, (0.99, 0.9, 0.5), strict=True):
        for drawn, wanted in zip(band_of(patch), law.interval(level), strict=True):
            assert_allclose(drawn, wanted[:, 1])
    median, truth = ax.lines
    assert_allclose(median.get_ydata(), law.quantile(0.5)[:, 1])
    assert_allclose(truth.get_ydata(), Y["rotor"])
    assert_allclose(truth.get_xdata(), np.arange(20))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("row", "rotor")


def test_prediction_without_truth_at_given_places(law):
    times = pd.date_range("2024-01-01", periods=20, freq="h", name="time")
    ax = plot_prediction(law, target=2, x=times).axes[0]
    assert len(ax.lines) == 1
    assert ax.get_xlabel() == "time"
    assert ax.get_ylabel() == "moment"
    assert ax.lines[0].get_xdata()[0] == np.datetime64("2024-01-01")


def test_prediction_follows_the_axis_whatever_the_order_of_the_rows(law):
    places = np.arange(law.n_rows)[::-1]
    ax = plot_prediction(law, x=places).axes[0]
    assert_allclose(ax.lines[0].get_xdata(), np.arange(law.n_rows))
    assert_allclose(ax.lines[0].get_ydata(), law.quantile(0.5)[::-1, 0])
    lower, _ = band_of(ax.collections[0])
    assert_allclose(lower, law.interval(0.9)[0][::-1, 0])


def test_prediction_takes_the_truth_of_one_output(law):
    y = np.full(20, np.nan)
    y[3] = 1.0
    ax = plot_prediction(law, y, target="power").axes[0]
    assert_allclose(ax.lines[1].get_ydata(), y)


def test_prediction_of_a_nameless_law():
    X, Y = (frame.to_numpy() for frame in frames(30))
    model = MOMoGPRegressor(("rbf",), max_iterations=0).fit(X, Y)
    assert plot_prediction(model.predict_distribution(X), target=1).axes[0].get_ylabel() == "y1"


def test_prediction_mistakes_are_named(law):
    with pytest.raises(ValueError, match="unknown target 'torque'"):
        plot_prediction(law, target="torque")
    with pytest.raises(ValueError, match=r"x must have shape \(20,\)"):
        plot_prediction(law, x=np.arange(3))
    with pytest.raises(ValueError, match=r"y must have shape \(20,\) or \(20, 3\)"):
        plot_prediction(law, y=np.ones((20, 2)))
    with pytest.raises(ValueError, match="levels is empty"):
        plot_prediction(law, levels=())


# ------------------------------------------------------------------ forecasts


def forecast_of(names, times=None, zone=None):
    law = np.ones((5, 1, 6, len(names)))
    law[0] = np.arange(6.0)[:, None] + 10.0 * np.arange(len(names))
    law[3] = 5.0
    joint = SimpleNamespace(law=law, between_steps=np.eye(6), between_series=np.eye(len(names)))
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


# ------------------------------------------------------------------ correlations


def test_correlation_of_a_row(law):
    ax, bar = plot_correlation(law, row=4).axes
    spread = np.sqrt(np.diag(law.cov[4]))
    wanted = law.cov[4] / np.outer(spread, spread)
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


def test_correlation_mistakes_are_named(law):
    with pytest.raises(ValueError, match="shape"):
        plot_correlation(np.ones((2, 3)))
    with pytest.raises(ValueError, match="1 names for 2 outputs"):
        plot_correlation(np.eye(2), names=["a"])
    with pytest.raises(IndexError):
        plot_correlation(law, row=20)


# ------------------------------------------------------------------ what all share


DRAWINGS = {
    "circuit": lambda model, law, ax=None: plot_circuit(model, ax=ax),
    "lengthscales": lambda model, law, ax=None: plot_lengthscales(model, ax=ax),
    "prediction": lambda model, law, ax=None: plot_prediction(law, ax=ax),
    "forecast": lambda model, law, ax=None: plot_forecast(forecast_of(["power"]), ax=ax),
    "correlation": lambda model, law, ax=None: plot_correlation(law, ax=ax),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_figure_can_be_saved(draw, gated, law, tmp_path):
    figure = draw(gated, law)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_given_axes_are_drawn_into(draw, gated, law):
    ax = Figure().add_subplot()
    assert draw(gated, law, ax) is ax.figure
    assert ax.has_data()


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_global_settings_are_left_alone(draw, gated, law):
    before = dict(matplotlib.rcParams)
    draw(gated, law)
    assert dict(matplotlib.rcParams) == before


def test_axes_of_a_subfigure(gated):
    outer = Figure()
    left, _ = outer.subfigures(1, 2)
    assert plot_circuit(gated, ax=left.add_subplot()) is outer


def test_pyplot_is_left_alone():
    code = "import sys, momostream.plotting; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
