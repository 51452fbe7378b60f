from __future__ import annotations

import doctest
import importlib
import json
from argparse import Namespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad

from benchmarks import data, forecast, peers, stream
from benchmarks.tools import peers_models, peers_report
from benchmarks.tools.forecast_peers import Forecasts
from benchmarks.tools.forecast_rivals import LastValue, Size
from benchmarks.tools.peers_models import FLOOR, REGRESSORS, Normals, Points, Regressor, Row, WindowGP


@pytest.mark.parametrize("module", ["peers", "tools.peers_models", "tools.peers_report", "tools.readme"])
def test_doctests(module):
    found = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert found.attempted and not found.failed


# ---------------------------------------------------------------------- distributions


def test_normal_distributions_are_those_of_scipy(rng):
    mean, deviation, y = rng.normal(size=3), rng.uniform(0.5, 2.0, 3), rng.normal(size=3)
    theirs = stats.norm(mean, deviation)
    distribution = Normals(mean, deviation)
    assert_allclose(distribution.log_pdf(y), theirs.logpdf(y))
    assert_allclose(distribution.cdf(y), theirs.cdf(y))
    assert_allclose(Row(mean, deviation).log_pdf(y), theirs.logpdf(y).sum())


@pytest.mark.parametrize("y", [-4.0, 0.3, 7.0])
def test_crps_is_its_integral(y):
    cdf = stats.norm(0.5, 2.0).cdf
    left, right = quad(lambda z: cdf(z) ** 2, -40.0, y)[0], quad(lambda z: (1.0 - cdf(z)) ** 2, y, 40.0)[0]
    assert_allclose(Normals(np.full(1, 0.5), np.full(1, 2.0)).crps(np.array([y])), [left + right], rtol=1e-6)


# ---------------------------------------------------------------------- regressors


def rows(rng, n, n_outputs=2):
    X = rng.normal(size=(n, 3))
    return X, np.sin(X @ rng.normal(size=(3, n_outputs))) + 0.05 * rng.normal(size=(n, n_outputs))


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_regressors_give_a_distribution_from_the_first_row_on(rng, name, n_outputs):
    model = Regressor(REGRESSORS[name](3, n_outputs, 0))
    for x, y in model.rows(*rows(rng, 120, n_outputs)):
        distribution = model.distribution(model.predict(x))
        assert distribution.mean.shape == distribution.deviation.shape == (n_outputs,)
        assert np.isfinite(distribution.log_pdf(y)) and (distribution.deviation >= FLOOR).all()
        if name not in peers_report.WITH_DISTRIBUTION:
            assert_array_equal(distribution.deviation, 1.0)
        model.learn(x, y)


def test_a_deviation_of_zero_is_lifted_to_the_floor():
    distribution = Regressor(REGRESSORS["last_value"](1, 2, 0)).distribution((np.zeros(2), np.zeros(2)))
    assert_array_equal(distribution.deviation, FLOOR)


def test_bayesian_regressions_are_those_of_river(rng):
    from river.linear_model import BayesianLinearRegression

    X, Y = rows(rng, 50)
    ours, theirs = REGRESSORS["bayesian_linear"](3, 2, 0), [BayesianLinearRegression() for _ in range(2)]
    for x, y in zip(X, Y, strict=True):
        named = dict(enumerate([*x.tolist(), 1.0]))
        distributions = [model.predict_one(named, with_dist=True) for model in theirs]
        assert_allclose(
            ours.predict(x),
            (
                [distribution.mu for distribution in distributions],
                [distribution.sigma for distribution in distributions],
            ),
        )
        ours.learn(x, y)
        for model, value in zip(theirs, y.tolist(), strict=True):
            model.learn_one(named, value)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_process_is_that_of_the_last_rows_with_the_last_tuned_kernel(rng, monkeypatch):
    from sklearn.gaussian_process import GaussianProcessRegressor

    monkeypatch.setattr(WindowGP, "FIRST", 10)
    monkeypatch.setattr(WindowGP, "TUNED", 25)
    X, Y = rows(rng, 40)
    model, kernels = WindowGP(3, 2, 20), []
    for x, y in zip(X[:39], Y[:39], strict=True):
        model.learn(x, y)
        if model.model is not None and model.model.kernel_ not in kernels:
            kernels.append(model.model.kernel_)
    # Tuned at row 10 and at row 25, from the same start.
    tuned = [GaussianProcessRegressor(model.start, normalize_y=True).fit(X[a:b], Y[a:b]) for a, b in ((0, 10), (5, 25))]
    assert kernels == [process.kernel_ for process in tuned]
    theirs = GaussianProcessRegressor(kernels[-1], optimizer=None, normalize_y=True).fit(X[19:39], Y[19:39])
    expected = theirs.predict(X[39:], return_std=True)
    assert_allclose(model.predict(X[39]), [side[0] for side in expected])


def test_the_process_is_the_prior_at_first():
    mean, deviation = WindowGP(3, 2, 20).predict(np.zeros(3))
    assert_array_equal(mean, 0.0)
    assert_array_equal(deviation, 1.0)


def test_rows_are_copies(rng):
    X, Y = rows(rng, 3)
    model = Regressor(REGRESSORS["last_value"](3, 2, 0))
    for x, y in model.rows(X, Y):
        assert x.base is None and y.base is None


# ---------------------------------------------------------------------- forecasters


def test_points_are_those_of_the_rival_with_gaps_filled(rng):
    model = Points(LastValue(Size(2, 2, None)), Size(2, 2, None))
    for y in ([1.0, 2.0], [np.nan, 3.0]):
        model.learn(np.array(y))
    distribution = model.distribution(model.forecast())
    assert_array_equal(distribution.mean, [[1.0, 3.0]] * 2)
    assert_array_equal(distribution.deviation, 1.0)
    assert model.replaced == 0


def test_points_out_of_all_bounds_are_replaced_and_counted():
    model = Points(LastValue(Size(2, 2, None)), Size(2, 2, None))
    model.learn(np.array([1.0, 2.0]))
    distribution = model.distribution(np.array([[np.nan, 5.0], [1e9, np.inf]]))
    assert_array_equal(distribution.mean, [[1.0, 5.0], [1.0, 2.0]])
    assert model.replaced == 3


def test_statsforecast_is_asked_for_in_its_own_interpreter(monkeypatch, tmp_path):
    monkeypatch.setenv("MOMOSTREAM_STATSFORECAST", "some/python")
    ones = np.ones((1, 2, 3), dtype=np.float32)

    def run(command, env, **_):
        assert command[:4] == ["some/python", "-m", "benchmarks.tools.forecast_peers", "etth1"]
        options = dict(zip(command[4::2], command[5::2], strict=True))
        assert options.items() >= {"--methods": "auto_ets", "--rows": "700", "--horizon": "2"}.items()
        assert env["OPENBLAS_NUM_THREADS"] == "1"
        folder = peers_models.Path(options["--folder"])
        np.savez(folder / "etth1-auto_ets.npz", origins=[600], mean=ones, deviation=2 * ones, cpu_seconds=3.0)

    monkeypatch.setattr(peers_models.subprocess, "run", run)
    made = peers_models.statsforecasts("etth1", "auto_ets", 700, 2)
    assert_array_equal(made.deviation, 2 * ones)
    assert made.cpu_seconds == 3.0


def test_an_interpreter_without_statsforecast_has_no_version(monkeypatch, tmp_path):
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    monkeypatch.setenv("MOMOSTREAM_STATSFORECAST", str(path))
    assert peers_models.statsforecast_version() is None
    path.write_text("#!/bin/sh\necho 1.2\n")
    assert peers_models.statsforecast_version() == "1.2"


# ---------------------------------------------------------------------- runs


def test_stream_scores_are_those_of_the_stream_benchmark(data_dir):
    task = {"job": "stream", "feed": "etth1", "rows": 300, "model": "last_value"}
    found = peers.measure(task)
    other = stream.measure({**task, "seed": 0, "missing": 0.0, "frozen": False, "cap": 100.0})
    assert_allclose(found["scores"]["rmse"], other["scores"]["rmse"], rtol=1e-12)
    assert found["us"].keys() == {"median", "mean"} and found["bytes"] > 0
    json.dumps(found)


def forecast_task(model):
    return {"job": "forecast", "feed": "etth1", "horizon": 6, "rows": 640, "model": model}


def test_forecast_scores_are_those_of_the_forecast_benchmark(data_dir):
    found = peers.measure(forecast_task("last_value"))
    other = forecast.measure({**forecast_task("last_value"), "seed": 0, "cap": 100.0})
    assert_allclose(found["scores"]["rmse"], other["every_fifth"]["rmse"], rtol=1e-12)
    assert found["replaced"] == 0
    json.dumps(found)


def test_statsforecast_is_scored_by_its_own_distribution(data_dir, monkeypatch):
    Y = data.series("etth1", 640).Y
    origins = np.arange(600, 640, 5)
    mean = np.repeat(Y[origins, None], 6, axis=1)

    def made(feed, method, n_rows, horizon):
        assert (feed, method, n_rows, horizon) == ("etth1", "auto_ets", 640, 6)
        return Forecasts(origins, mean.astype(np.float32), np.full(mean.shape, 2.0, np.float32), 0.5)

    monkeypatch.setattr(peers, "statsforecasts", made)
    monkeypatch.setattr(peers, "statsforecast_version", lambda: "1.2")
    found, last = peers.measure(forecast_task("auto_ets")), peers.measure(forecast_task("last_value"))
    assert_allclose(found["scores"]["rmse"], last["scores"]["rmse"], rtol=1e-6)
    truth = np.array([Y[origin + 1 : origin + 7] for origin in origins if origin < 634])
    expected = -stats.norm(mean[: len(truth)], 2.0).logpdf(truth).mean()
    assert_allclose(found["scores"]["nlpd"], expected, rtol=1e-6)
    assert_allclose(found["us"]["mean"], 0.5e6 / 40)
    assert found["statsforecast"] == "1.2" and "median" not in found["us"]


def planned(monkeypatch, version="1.2", **options):
    monkeypatch.setattr(peers, "statsforecast_version", lambda: version)
    asked = {"feeds": [], "jobs": ["stream", "forecast"], "models": None, "quick": False} | options
    return peers.tasks(Namespace(**asked))


def test_plan_has_all_models_on_all_feeds(monkeypatch):
    listed = planned(monkeypatch)
    by_job = {job: [task for task in listed if task["job"] == job] for job in ("stream", "forecast")}
    assert len(by_job["stream"]) == len(peers.STREAMS) * len(peers_report.MODELS["stream"])
    # No season, no last season.
    assert len(by_job["forecast"]) == len(peers.HORIZONS) * len(peers_report.MODELS["forecast"]) - 2
    assert all(task["horizon"] in data.FORECASTS[task["feed"]].horizons for task in by_job["forecast"])


def test_plan_leaves_out_statsforecast_where_it_is_not_there(monkeypatch, capsys):
    found = {task["model"] for task in planned(monkeypatch, version=None, feeds=["etth1"])}
    assert found == {*peers_report.MODELS["stream"], *peers_report.MODELS["forecast"]} - {*peers.PEERS}
    assert "left out" in capsys.readouterr().err


def test_plan_can_be_narrowed(monkeypatch):
    listed = planned(monkeypatch, feeds=["etth1"], jobs=["stream"], models=["nearest"], quick=True)
    assert listed == [{"job": "stream", "feed": "etth1", "rows": peers.QUICK_ROWS["stream"], "model": "nearest"}]


def test_unknown_feeds_are_an_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["peers", "nowhere"])
    with pytest.raises(SystemExit):
        peers.main()
    assert "unknown feed nowhere" in capsys.readouterr().err


# ---------------------------------------------------------------------- report


def result(model, feed="etth1", job="stream", rmse=1.0, mean=100.0, **more):
    scores = {"rmse": rmse, "nlpd": rmse, "crps": rmse, "coverage": [0.5, 0.9, 0.99]}
    us = {"mean": mean} if model in peers.PEERS else {"median": mean / 2, "mean": mean}
    extra = {"horizon": 6} if job == "forecast" else {}
    extra |= {"statsforecast": "1.2"} if model in peers.PEERS else {"bytes": 4000}
    return {"job": job, "feed": feed, "model": model, "rows": 3000, "scores": scores, "us": us, **extra, **more}


def line(text, *words):
    [found] = [row for row in text.splitlines() if all(word in row for word in words)]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_summary_has_geometric_means_of_ratios():
    grid = peers_report.newest(
        [
            result("momostream"),
            result("momostream", feed="kin40k", rmse=2.0),
            result("nearest", rmse=4.0, mean=10.0),
            result("nearest", feed="kin40k", rmse=2.0, mean=1000.0),
        ],
        "stream",
    )
    found = peers_report.summary_line(grid, "nearest")
    assert found == ["nearest neighbours", "river", "2.00", "0 of 2", "", "", "100", "4"]


def test_summary_marks_where_a_peer_is_ahead():
    ahead = result("window_gp_100", rmse=0.5, mean=50.0, bytes=2000)
    grid = peers_report.newest([result("momostream"), ahead], "stream")
    found = peers_report.summary_line(grid, "window_gp_100")
    assert found[2:] == ["**0.50**", "**1 of 1**", "**0.50**", "0.90", "**50**", "**2**"]
    ours = peers_report.summary_line(grid, "momostream")
    assert ours == ["**momostream**", "momostream", "1.00", "", "1.00", "0.90", "100", "4"]


def test_report_shows_the_newest_and_bolds_the_best():
    results = [
        result("momostream", rmse=9.0),
        result("momostream"),
        result("nearest", rmse=0.5),
        result("momostream", job="forecast"),
        result("auto_arima", job="forecast", rmse=2.0),
        result("snarimax", job="forecast", rmse=3.0, replaced=7),
        {"job": "stream", "feed": "etth1", "model": "adaptive_tree", "rows": 3000, "failed": True},
    ]
    text = peers_report.report(results)
    streams, forecasts = text.split("## Forecasts")
    streams = streams.split("## Regression on a stream")[1]
    assert line(streams.split("### RMSE")[1].split("###")[0], "etth1")[1:] == ["1.0000", "**0.5000**"]
    density = streams.split("### Joint NLPD")[1].split("###")[0]
    assert "nearest" not in density and line(density, "etth1")[1:] == ["**1.00**"]
    assert "statsforecast 1.2 in an environment" in text
    assert "SNARIMAX on etth1 7" in forecasts
    assert "Failed: adaptive_tree on etth1." in text
    assert line(forecasts.split("### Kilobytes")[1], "etth1")[1:] == ["**4**", "**4**"]


def test_report_without_ours_compares_nothing():
    text = peers_report.report([result("nearest")])
    assert line(text, "nearest neighbours", "river")[3:5] == ["", "0 of 0"]


@pytest.mark.parametrize("jobs", [("stream",), ("stream", "forecast")])
def test_figure_is_drawn(tmp_path, jobs):
    runs = (("momostream", 1.0, 100.0), ("last_value", 3.0, 2.0))
    results = [result(model, job=job, rmse=rmse, mean=mean) for job in jobs for model, rmse, mean in runs]
    results.append(result("nearest", feed="kin40k"))
    path = tmp_path / "peers.png"
    peers_report.draw(results, path)
    assert path.read_bytes().startswith(b"\x89PNG")
