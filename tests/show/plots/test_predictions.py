"""What plots of predictions, forecasts and correlations show, read back from the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.mixtures import StudentT
from momostream.distributions.prediction import Prediction
from momostream.estimators.table import MOMoGPRegressor
from momostream.show.plots import plot_correlation, plot_forecast, plot_prediction
from tests.show.plots.figures import OUTPUTS, forecast_of, frames, texts, words


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


def test_hours_are_those_of_the_zone():
    times = pd.date_range("2024-01-01 03:00", periods=6, freq="h", tz="UTC")
    found = {}
    for zone in (None, "UTC", "Asia/Kolkata"):
        figure = plot_forecast(forecast_of(["power"], times.tz_localize(None).to_numpy(), zone))
        figure.draw_without_rendering()
        found[zone] = words(figure.axes[0].get_xticklabels())
    assert "04:00" in found[None] and found[None] == found["UTC"]
    assert "13:00" in found["Asia/Kolkata"] and "13:00" not in found["UTC"]


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
    with pytest.raises(ValueError, match="1 names for 2 targets"):
        plot_correlation(np.eye(2), names=["a"])
    with pytest.raises(IndexError):
        plot_correlation(distribution, row=20)


def test_forecast_with_its_past_in_proportion_and_what_came():
    from matplotlib import pyplot

    from momostream import MOMoGPForecaster

    pyplot.close("all")
    index = pd.date_range("2024-03-01", periods=300, freq="10min")
    frame = pd.DataFrame({"power": np.sin(np.arange(300.0) / 9)}, index=index)
    model = MOMoGPForecaster(horizon=6, experts=("last value", "own lags"), seed=0).fit(frame[:-6])
    for rows, history in ((frame, frame[:-6]), (frame.to_period("10min"), frame[:-6].to_period("10min"))):
        figure = model.forecast(6, with_dist=True).plot(history=history, actual=rows[-6:])
        assert pyplot.gcf() is figure
        _, past, came = figure.axes[0].lines
        assert len(past.get_xdata()) == 18 and past.get_ydata()[-1] == frame["power"].iloc[-7]
        np.testing.assert_array_equal(came.get_ydata(), frame["power"][-6:])
        texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        assert texts == ["90 %", "50 %", "median", "history", "actual"]
    plain = MOMoGPForecaster(horizon=2, experts=("last value",)).fit(frame.reset_index(drop=True))
    figure = plain.forecast(2, with_dist=True).plot(history=frame["power"].to_numpy()[:0], actual=[{"power": 1.0}])
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, 1]
    pyplot.close("all")
