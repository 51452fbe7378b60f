"""`Forecast` against the distribution that it is made from, and against itself: samples, quantiles, densities."""

from __future__ import annotations

import copy
import pickle
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import ndtri

from momostream.distributions.bounded import Target, TargetMap
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.forecast import COPULA_DOF, Forecast
from momostream.distributions.marginals import Marginals
from momostream.distributions.planes import DOF, LOCATION, SCALE, STD, WEIGHT
from momostream.distributions.quantiles import QuantileTable

SERIES = ("wind", ("power", 1), 3)


class Joint(NamedTuple):
    planes: np.ndarray
    between_steps: np.ndarray
    between_series: np.ndarray
    means: np.ndarray | None = None


def joint(n_steps=4, n_series=3, n_experts=2, dof=8.0, seed=0):
    rng = np.random.default_rng(seed)
    planes = np.empty((5, n_experts, n_steps, n_series))
    planes[LOCATION] = rng.normal(size=(n_experts, n_steps, n_series)) + np.arange(n_series)
    planes[STD] = planes[SCALE] = rng.uniform(0.5, 2.0, size=planes.shape[1:])
    planes[DOF] = dof
    planes[WEIGHT] = rng.dirichlet(np.ones(n_experts), size=(n_steps, n_series)).transpose(2, 0, 1)
    near = np.abs(np.subtract.outer(np.arange(n_steps), np.arange(n_steps)))
    return Joint(planes, 0.7**near, np.full((n_series, n_series), 0.4) + 0.6 * np.eye(n_series))


@pytest.fixture
def distribution():
    return joint()


@pytest.fixture
def forecast(distribution):
    return Forecast(distribution, SERIES)


def marginal(distribution, step, series):
    one = distribution.planes[:, :, step, series]
    return Marginals(*(one[part][None, :, None] for part in (WEIGHT, LOCATION, SCALE, DOF)))


def test_values_are_those_of_the_distribution(forecast, distribution):
    y = np.arange(12.0).reshape(4, 3) / 4
    y[2, 1] = np.nan
    scores = {name: getattr(forecast, name)(y).to_numpy() for name in ("log_pdf_each", "cdf", "crps")}
    for step, series in np.ndindex(4, 3):
        one = marginal(distribution, step, series)
        assert_allclose(forecast.mean.iloc[step, series], one.mean[0, 0])
        assert_allclose(forecast.std.iloc[step, series], np.sqrt(one.variance[0, 0]))
        assert_allclose(forecast.median.iloc[step, series], one.quantile(0.5)[0, 0], rtol=1e-8)
        assert_allclose(forecast.quantile(0.9).iloc[step, series], one.quantile(0.9)[0, 0], rtol=1e-8)
        if (step, series) == (2, 1):
            assert all(np.isnan(score[step, series]) for score in scores.values())
        else:
            value = [[y[step, series]]]
            assert_allclose(scores["log_pdf_each"][step, series], one.log_pdf(value)[0, 0])
            assert_allclose(scores["cdf"][step, series], one.cdf(value)[0, 0])
            assert_allclose(scores["crps"][step, series], one.crps(value)[0, 0])


def test_frames(forecast):
    for frame in (forecast.mean, forecast.std, forecast.median, forecast.quantile(0.2)):
        assert list(frame.columns) == list(SERIES)
        assert list(frame.index) == [1, 2, 3, 4] and frame.index.name == "step"
    several = forecast.quantile([0.1, 0.5])
    assert several.columns.nlevels == 2
    assert list(several.columns) == [(name, q) for name in SERIES for q in (0.1, 0.5)]
    assert_array_equal(several.xs(0.5, axis=1, level=1), forecast.median)
    assert_array_equal(several[("power", 1), 0.1], forecast.quantile(0.1).iloc[:, 1])
    interval = forecast.interval(0.8)
    assert list(interval.columns) == [(name, side) for name in SERIES for side in ("lower", "upper")]
    assert_allclose(interval["wind"]["lower"], forecast.quantile(0.1)["wind"])
    assert (interval["wind"]["lower"] < interval["wind"]["upper"]).all()
    assert len(forecast) == 4 and list(forecast.steps) == [1, 2, 3, 4]
    assert forecast.to_dicts() == [dict(zip(SERIES, row, strict=True)) for row in forecast.mean.to_numpy().tolist()]


def test_means_alone_are_held_like_all_others(forecast, distribution):
    mean = forecast.mean.to_numpy()
    firm, far = np.quantile(mean, [0.4, 0.6], axis=0), mean.max(axis=0) - mean.min(axis=0)
    for room in (0.0 * far, 0.1 * far):
        limits = np.array([*firm, room, room])
        limited = Forecast(distribution, SERIES, limits=limits)
        dicts = limited.to_dicts()
        assert dicts == [dict(zip(SERIES, row, strict=True)) for row in limited._marginals.mean.tolist()]
        assert (dicts == forecast.to_dicts()) == bool(room.any())


def test_the_first_steps_of_a_distribution(forecast, distribution):
    part = Forecast(distribution, SERIES, 2)
    assert len(part) == 2
    pd.testing.assert_frame_equal(part.interval(), forecast.interval()[:2])
    assert_allclose(part.cov, forecast.cov[:6, :6], rtol=1e-6)
    assert part.sample(3, 0).shape == (3, 2, 3)


def test_one_series_has_the_same_frames():
    forecast = Forecast(joint(n_series=1), ["y"])
    assert list(forecast.interval().columns) == [("y", "lower"), ("y", "upper")]
    assert forecast.mean.shape == (4, 1)
    y = np.arange(4.0)
    assert_array_equal(forecast.crps(y), forecast.crps(y[:, None]))


def test_tidy_frame(forecast):
    lines = forecast.to_frame(levels=(0.5, 0.9))
    assert list(lines.columns) == ["step", "series", "mean", "std", "q0.05", "q0.25", "q0.5", "q0.75", "q0.95"]
    assert len(lines) == 12
    assert list(lines["series"][:3]) == list(SERIES) and list(lines["step"][:4]) == [1, 1, 1, 2]
    assert_allclose(lines["q0.95"].to_numpy().reshape(4, 3), forecast.quantile(0.95))
    assert_allclose(lines["mean"].to_numpy().reshape(4, 3), forecast.mean)


def test_times():
    times = np.array(["2024-01-01T00:00", "2024-01-01T01:00"], dtype="datetime64[us]")
    forecast = Forecast(joint(2), SERIES, times=times)
    assert forecast.mean.index.name == "time" and forecast.mean.index[1] == pd.Timestamp("2024-01-01 01:00")
    assert forecast.to_frame()["time"].iloc[-1] == pd.Timestamp("2024-01-01 01:00")
    assert Forecast(joint(2), SERIES, times=times, zone="UTC").index[0] == pd.Timestamp("2024-01-01", tz="UTC")
    assert list(Forecast(joint(2), SERIES, times=np.array([5.0, 5.5])).index) == [5.0, 5.5]
    assert "2024-01-01 01:00:00" in repr(forecast)


def test_observed_values_in_any_form(forecast):
    y = np.random.default_rng(1).normal(size=(4, 3))
    y[1, 0] = np.nan
    expected = forecast.crps(y)
    # Columns by name, in any order; keys that are left out are not observed.
    frame = pd.DataFrame(y[:, ::-1], columns=pd.Index(list(SERIES[::-1]), tupleize_cols=False), index=list("abcd"))
    dicts = [{name: row[j] for j, name in enumerate(SERIES) if row[j] == row[j]} for row in y]
    for given in (frame, dicts, tuple(dicts), y.tolist()):
        pd.testing.assert_frame_equal(forecast.crps(given), expected)
        assert forecast.log_pdf(given) == forecast.log_pdf(y)
    assert np.isnan(forecast.cdf([{}, {}, {}, {"wind": None}])).all(axis=None)
    assert forecast.log_pdf(np.full((4, 3), np.nan)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros((3, 3)), "shape"),
        (np.zeros(4), "shape"),
        ([{}] * 3, "4 rows"),
        ([{"wind": 1.0, "rain": 2.0}, {}, {}, {}], "unknown series 'rain'"),
        ([{"wind": np.inf}, {}, {}, {}], "'wind' is infinite"),
    ],
)
def test_wrong_values_are_named(forecast, y, words):
    with pytest.raises(ValueError, match=words):
        forecast.crps(y)


def test_wrong_levels_and_sizes_are_named(forecast, distribution):
    for q in (0.0, 1.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="quantile levels"):
            forecast.quantile(q)
        with pytest.raises(ValueError, match="level"):
            forecast.interval(q)
    with pytest.raises(ValueError, match="2 names for 3 series"):
        Forecast(distribution, ("a", "b"))
    with pytest.raises(ValueError, match="1 times for 4 steps"):
        Forecast(distribution, SERIES, times=np.zeros(1))
    with pytest.raises(ValueError, match="negative"):
        forecast.sample(-1)


# ------------------------------------------------------------------ all values together


def test_joint_density_is_that_of_the_copula(forecast, distribution):
    y = np.random.default_rng(1).normal(size=(4, 3))
    marginals = Marginals(*(distribution.planes[part].reshape(1, 2, 12) for part in (WEIGHT, LOCATION, SCALE, DOF)))
    copula = CopulaDistribution(marginals, np.kron(distribution.between_steps, distribution.between_series), COPULA_DOF)
    assert_allclose(forecast.log_pdf(y), copula.log_pdf(y.reshape(1, -1))[0])
    # What is not observed is left out.
    y[1:] = np.nan
    first = CopulaDistribution(
        Marginals(*(a[0, :, 0] for a in stepwise(distribution))), distribution.between_series, COPULA_DOF
    )
    assert_allclose(forecast.log_pdf(y), first.log_pdf(y[:1])[0])
    assert_allclose(forecast.cov, copula.cov[0])
    assert_allclose(np.sqrt(np.diag(forecast.cov)).reshape(4, 3), forecast.std)
    assert_allclose(np.diag(forecast.correlation), 1.0)
    assert_allclose(forecast.correlation * np.outer(*2 * [forecast.std.to_numpy().ravel()]), forecast.cov)


def stepwise(distribution):
    """Weights, locations, scales and degrees of freedom of each step as a distribution of one row."""
    return [np.moveaxis(distribution.planes[part], 0, 1)[None, None] for part in (WEIGHT, LOCATION, SCALE, DOF)]


def test_gaussian_forecast_has_the_covariance_of_its_parts():
    distribution = joint(n_experts=1, dof=np.inf)
    forecast = Forecast(distribution, SERIES)
    std = distribution.planes[SCALE, 0].ravel()
    expected = np.kron(distribution.between_steps, distribution.between_series) * np.outer(std, std)
    # The copula is a Student-t's, which bends it a little.
    assert_allclose(forecast.cov, expected, rtol=0.03)


@pytest.mark.parametrize("n_experts", [1, 3])
def test_samples_have_the_distributions_of_the_values(n_experts):
    forecast = Forecast(joint(n_experts=n_experts, dof=5.0), SERIES)
    paths = forecast.sample(20_000, seed=0)
    assert paths.shape == (20_000, 4, 3)
    assert_allclose(paths.mean(axis=0), forecast.mean, atol=0.06)
    for q in (0.001, 0.05, 0.5, 0.9, 0.999):
        below = (paths < forecast.quantile(q).to_numpy()).mean(axis=0)
        assert_allclose(below, q, atol=4.5 * np.sqrt(q * (1 - q) / 20_000))
    for step, series in ((0, 0), (3, 2)):
        column = paths[:, step, series]
        assert stats.kstest(column, lambda x: forecast_cdf(forecast, x, step, series)).pvalue > 1e-3  # noqa: B023


def forecast_cdf(forecast, x, step, series):
    return marginal(forecast._joint, step, series).cdf(x[:, None, None])[:, 0, 0]


def test_samples_go_together_as_the_distribution_says():
    forecast = Forecast(joint(dof=8.0), SERIES)
    paths = forecast.sample(40_000, seed=1).reshape(40_000, -1)
    assert_allclose(np.corrcoef(paths.T), forecast.correlation, atol=0.04)
    # Ranks know nothing of the marginals: those of Student-t's with this correlation.
    ranks = stats.spearmanr(paths[:, :4]).statistic
    R = np.kron(forecast._joint.between_steps, forecast._joint.between_series)[:4, :4]
    assert_allclose(ranks, 6 / np.pi * np.arcsin(R / 2), atol=0.03)


def test_samples_are_quantiles_of_the_distribution():
    # The table that samples are looked up in against the equation that it stands for.
    distribution = joint(n_experts=5, dof=2.5, seed=3)
    distribution.planes[SCALE] *= 10.0 ** np.linspace(-2, 1, 5)[:, None, None]
    forecast = Forecast(distribution, SERIES)
    scores = np.random.default_rng(0).normal(size=(300, 4, 3)) * 2.0
    exact = forecast._marginals.tail_quantile(stats.norm.cdf(-np.abs(scores)), scores > 0.0)
    low, high, found = QuantileTable(forecast._marginals).cubics(scores)
    assert np.abs((found - exact) / np.maximum(forecast.std.to_numpy(), np.abs(exact))).max() < 0.01
    assert ((low <= found) & (found <= high)).all()


def test_seeds():
    forecast = Forecast(joint(), SERIES)
    assert_array_equal(forecast.sample(5, 3), forecast.sample(5, np.random.default_rng(3)))
    assert not np.array_equal(forecast.sample(5, 3), forecast.sample(5, 4))
    assert forecast.sample(0).shape == (0, 4, 3) and forecast.sample().shape == (1, 4, 3)


def test_sampling_is_fast():
    forecast = Forecast(joint(24, 7, 5, dof=4.0), list("abcdefg"))
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        forecast.sample(1000, seed=0)
        best = min(best, time.process_time() - start)
    print(f"{1e3 * best:.0f} ms for 1,000 paths of 24 steps of 7 series")
    # Solving for the quantiles takes 700 ms.
    assert best < 0.3


# ------------------------------------------------------------------ bounds and conformal quantiles


def test_bounds_hold_everywhere():
    distribution = joint(dof=3.0)
    names = ("level", "power", "free")
    targets = TargetMap([Target(0.0, 1.0, "logit"), Target(0.0), Target()], names)
    forecast = Forecast(distribution, names, targets=targets)
    paths = forecast.sample(2000, seed=0)
    assert 0.0 <= paths[..., 0].min() and paths[..., 0].max() <= 1.0 and paths[..., 1].min() >= 0.0
    assert paths[..., 2].min() < -1.0
    assert forecast.interval(0.999)["level"].to_numpy().max() < 1.0
    assert_allclose(paths.mean(axis=0)[:, :2], forecast.mean.iloc[:, :2], atol=0.12)
    for q in (0.05, 0.5, 0.95):
        assert_allclose((paths < forecast.quantile(q).to_numpy()).mean(axis=0), q, atol=0.025)
    assert np.isneginf(forecast.log_pdf_each(np.full((4, 3), -0.5)).iloc[:, :2]).all(axis=None)
    y = np.full((4, 3), 0.5)
    assert np.isfinite(forecast.log_pdf(y)) and np.isfinite(forecast.crps(y)).all(axis=None)
    assert np.isfinite(forecast.cov).all()
    assert_allclose(np.sqrt(np.diag(forecast.cov)).reshape(4, 3), forecast.std)
    assert np.isneginf(forecast.log_pdf(np.full((4, 3), -0.5)))
    # The series without bounds does not notice.
    assert_array_equal(forecast.mean["free"], Forecast(distribution, names).mean["free"])


class Wider:
    """Quantiles of scores, twice those of the distribution for the first series, at more steps than are forecast."""

    def scores(self, q):
        scores = np.full((6, 3), ndtri(q))
        scores[:, 0] *= 2.0
        return scores


def test_conformal_moves_quantiles_only(distribution):
    plain, moved = Forecast(distribution, SERIES), Forecast(distribution, SERIES, conformal=Wider())
    assert_allclose(moved.interval(0.9).iloc[:, 2:], plain.interval(0.9).iloc[:, 2:])
    twice = stats.norm.cdf(2 * ndtri(0.95))
    assert_allclose(moved.quantile(0.95)["wind"], plain.quantile(twice)["wind"])
    assert_allclose(moved.median, plain.median, atol=1e-9)
    assert_array_equal(moved.mean, plain.mean)
    y = np.zeros((4, 3))
    assert_array_equal(moved.cdf(y), plain.cdf(y))
    assert_array_equal(moved.sample(3, 0), plain.sample(3, 0))
    assert moved.log_pdf(y) == plain.log_pdf(y)


# ------------------------------------------------------------------ as arrays, text and copies


def test_arrays(forecast):
    y = np.random.default_rng(0).normal(size=(4, 3))
    y[0, 0] = np.nan
    arrays = forecast.arrays
    assert_array_equal(arrays.mean, forecast.mean)
    assert_array_equal(arrays.log_pdf(y), forecast.log_pdf_each(y))
    assert_array_equal(arrays.cdf(y), forecast.cdf(y))
    assert_array_equal(arrays.crps(y), forecast.crps(y))
    assert np.isnan(arrays.log_pdf(y)[0, 0])
    assert forecast.law is forecast.planes


def test_text():
    forecast = Forecast(joint(9, 8), [f"<{k}>" for k in range(8)])
    text = repr(forecast)
    assert text.startswith("Forecast: 9 steps of 8 series, mean ± std")
    assert len(text.splitlines()) == 9 and text.splitlines()[-1].strip() == "..."
    assert "<5>" in text and "<6>" not in text
    page = forecast._repr_html_()
    assert page.count("<tr>") == 10 and "&lt;0&gt;" in page and "<0>" not in page
    assert repr(Forecast(joint(1, 1), "y")).splitlines()[0] == "Forecast: 1 step of 1 series, mean ± std"


def test_copies(forecast):
    for again in (copy.deepcopy(forecast), pickle.loads(pickle.dumps(forecast))):
        assert_array_equal(again.mean, forecast.mean)
        assert_array_equal(again.sample(3, 0), forecast.sample(3, 0))
        assert again.series == SERIES
