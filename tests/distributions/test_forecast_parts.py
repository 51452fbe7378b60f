"""Some series of a forecast, sums of them, and probabilities of conditions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from momostream.distributions.bounded import Target, TargetMap
from momostream.distributions.events import holds, read_condition
from momostream.distributions.forecast import Forecast
from momostream.distributions.planes import DOF, LOCATION

NAMES = ("a", "b", "mean wind")


def joint(n_steps: int = 4, dof: float = np.inf, rho: float = 0.6) -> SimpleNamespace:
    planes = np.ones((5, 1, n_steps, 3))
    planes[LOCATION, 0] = np.arange(3 * n_steps).reshape(n_steps, 3)
    planes[DOF] = dof
    steps = 0.8 ** np.abs(np.subtract.outer(range(n_steps), range(n_steps)))
    series = np.full((3, 3), rho) + (1 - rho) * np.eye(3)
    return SimpleNamespace(planes=planes, between_steps=steps, between_series=series, means=None)


def test_one_series_is_the_column_of_all():
    whole = Forecast(joint(), NAMES, 3, times=np.arange("2024-01", "2024-04", dtype="datetime64[M]").astype("M8[us]"))
    for name in NAMES:
        part = whole[name]
        assert part.series == (name,) and part.index.equals(whole.index) and len(part) == 3
        pd.testing.assert_frame_equal(part.interval(0.8), whole.interval(0.8)[[name]])
        pd.testing.assert_frame_equal(part.mean, whole.mean[[name]])
    pair = whole[["mean wind", "a"]]
    assert pair.series == ("mean wind", "a")
    columns = [3 * step + j for step in range(3) for j in (2, 0)]
    assert_allclose(pair.cov, whole.cov[np.ix_(columns, columns)], rtol=1e-6)
    with pytest.raises(KeyError, match="unknown series 'c'; the series are 'a', 'b', 'mean wind'"):
        whole["c"]
    with pytest.raises(TypeError):
        iter(whole)


def test_bounds_and_conformal_quantiles_follow_their_series():
    targets = TargetMap([Target(lower=0.0), Target(), Target(upper=5.0)], NAMES)
    conformal = SimpleNamespace(scores=lambda q: norm.ppf(q) * np.array([[1.0, 2.0, 3.0]] * 4))
    whole = Forecast(joint(), NAMES, targets=targets, conformal=conformal)
    for name in NAMES:
        pd.testing.assert_frame_equal(whole[name].quantile([0.01, 0.99]), whole.quantile([0.01, 0.99])[[name]])


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_sums_have_the_spread_of_the_joint_distribution(rho):
    whole = Forecast(joint(rho=rho), NAMES)
    found = whole.aggregate({"farm": ["a", "b"], "difference": {"a": 1.0, "b": -1.0}, "alone": ["b"]})
    assert found.series == ("farm", "difference", "alone") and len(found) == 4
    assert_allclose(found.mean["farm"], whole.mean["a"] + whole.mean["b"])
    # A Student-t copula of 20 degrees of freedom with normal marginals: close to a Gaussian one.
    for name, variance in {"farm": 2.0 + 2.0 * rho, "difference": 2.0 - 2.0 * rho, "alone": 1.0}.items():
        assert_allclose(found.std[name], np.sqrt(variance), rtol=0.06)
        half = found.interval(0.9)[name].diff(axis=1)["upper"] / 2
        assert_allclose(half, norm.ppf(0.95) * np.sqrt(variance), rtol=0.09)
    assert_allclose(np.diag(found._between_steps), 1.0)
    assert_allclose(found._between_steps, whole._between_steps, atol=0.05)
    mean = whole.aggregate({"farm": ["a", "b"]}, how="mean")
    assert_allclose(mean.std["farm"], found.std["farm"] / 2, rtol=1e-6)


def test_sums_have_the_quantiles_of_the_paths():
    whole = Forecast(joint(dof=3.0), NAMES)
    found = whole.aggregate({"farm": NAMES}, n_paths=8192)
    paths = whole.sample(200_000, seed=9).sum(axis=2)
    for q in (0.005, 0.05, 0.25, 0.5, 0.9, 0.99):
        # The true probability of the quantile, within what so many paths can show.
        reached = (paths <= found.quantile(q)["farm"].to_numpy()).mean(axis=0)
        assert_allclose(reached, q, atol=4.0 * np.sqrt(q * (1.0 - q) / 8192) + 0.001)
    assert found.probability("farm > 0").iloc[-1] == pytest.approx((paths[:, -1] > 0).mean(), abs=0.02)


def test_constant_sums():
    targets = TargetMap([Target(0.0, 1e-12), Target(), Target()], NAMES)
    found = Forecast(joint(), NAMES, targets=targets).aggregate({"still": ["a"]})
    assert_allclose(found.interval(0.9)["still"], 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("groups", "how", "error", "message"),
    [
        ({"farm": ["a", "x"]}, "sum", ValueError, "group 'farm': unknown series 'x'"),
        ({"farm": "a"}, "sum", TypeError, "group 'farm': expected a list of series"),
        ({"farm": []}, "sum", TypeError, "group 'farm': expected a list of series"),
        (["a"], "sum", TypeError, "expected a dict of names"),
        ({"farm": ["a"]}, "median", ValueError, "how='median' is not accepted"),
    ],
)
def test_wrong_groups(groups, how, error, message):
    with pytest.raises(error, match=message):
        Forecast(joint(), NAMES).aggregate(groups, how)


def test_probabilities_of_one_comparison_are_exact():
    forecast = Forecast(joint(), NAMES)
    means = forecast.mean["mean wind"].to_numpy()
    assert_allclose(forecast.probability("mean wind < 4"), norm.cdf(4 - means), atol=1e-9)
    assert_allclose(forecast.probability("mean wind >= 4"), norm.sf(4 - means), atol=1e-9)
    assert_allclose(
        forecast.probability("1.5 < mean wind <= 4e0"), norm.cdf(4 - means) - norm.cdf(1.5 - means), atol=1e-9
    )
    assert_allclose(forecast.probability("4 > mean wind"), forecast.probability("mean wind < 4"))
    assert forecast.probability("a < -1").name == "a < -1"


def test_probabilities_at_a_bound():
    targets = TargetMap([Target(lower=0.0), Target(), Target()], NAMES)
    forecast = Forecast(joint(), NAMES, targets=targets)
    at_most, below = forecast.probability("a <= 0"), forecast.probability("a < 0")
    assert (below == 0.0).all() and at_most.iloc[0] == pytest.approx(forecast.cdf(np.zeros((4, 3)))["a"].iloc[0])


def test_probabilities_over_steps_and_series_are_those_of_paths():
    forecast = Forecast(joint(), NAMES)
    paths = forecast.sample(4096, seed=0)
    met = (paths[:, :, 0] > 4) & (paths[:, :, 1] < 6) | (paths[:, :, 2] > 9)
    condition = "a > 4 and b < 6 or mean wind > 9"
    assert_array_equal(forecast.probability(condition), met.mean(axis=0))
    assert forecast.probability(condition, "any") == met.any(axis=1).mean()
    assert forecast.probability(condition, "all") == met.all(axis=1).mean()
    assert holds(read_condition("a > 4", NAMES), paths[0]).shape == (4,)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("power < 3", "unknown series 'power' in the condition 'power < 3'; the series are a, b, mean wind"),
        ("a", "'a' in the condition 'a' is not a comparison"),
        ("a < b", "unknown series 'a < b'|is not a comparison"),
        ("a < 1 and", "unknown series|not a comparison"),
    ],
)
def test_wrong_conditions(condition, message):
    with pytest.raises(ValueError, match=message):
        Forecast(joint(), NAMES).probability(condition)
    with pytest.raises(ValueError, match="over='some' is not accepted"):
        Forecast(joint(), NAMES).probability("a < 1", over="some")


def test_tables():
    forecast = Forecast(joint(), NAMES)
    long, wide = forecast.to_frame([0.8]), forecast.to_frame([0.8], shape="wide")
    assert list(long.columns) == ["step", "series", "mean", "std", "q0.1", "q0.5", "q0.9"]
    assert wide.shape == (4, 15) and wide.index.equals(forecast.index)
    for name in NAMES:
        for figure in ("mean", "q0.9"):
            assert_array_equal(wide[name, figure], long.loc[long["series"] == name, figure])
    with pytest.raises(ValueError, match="shape='tall' is not accepted"):
        forecast.to_frame(shape="tall")


def test_times_in_their_zone_and_as_periods():
    times = np.array(["2024-03-30T23:00", "2024-03-31T23:00"], dtype="datetime64[us]")
    index = Forecast(joint(2), NAMES, times=times, zone="Europe/Berlin").index
    # Summer time begins in between.
    assert [str(time) for time in index] == ["2024-03-31 00:00:00+01:00", "2024-04-01 01:00:00+02:00"]
    months = np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[us]")
    index = Forecast(joint(2), NAMES, times=months, period="M").index
    assert index.name == "time" and list(map(str, index)) == ["2024-01", "2024-02"]


def test_forecasts_of_least_squared_error_go_where_the_series_go():
    parts, mixed = joint(), Forecast(joint(), NAMES)
    parts.means = np.arange(12.0).reshape(4, 3) ** 2
    whole = Forecast(parts, NAMES)
    assert_allclose(whole.mean, parts.means)
    assert_allclose(whole.arrays.mean, parts.means)
    assert_allclose(whole[[NAMES[2]]].mean.iloc[:, 0], parts.means[:, 2])
    assert_allclose(Forecast(parts, NAMES, 2).mean, parts.means[:2])
    total = whole.aggregate({"farm": list(NAMES)})
    assert_allclose(total.mean["farm"], parts.means.sum(axis=1))
    # Quantiles are those of the distribution.
    assert_allclose(total.quantile(0.3), mixed.aggregate({"farm": list(NAMES)}).quantile(0.3))


def test_forecasts_of_least_squared_error_stay_within_the_limits():
    parts = joint()
    parts.means = np.full((4, 3), 20.0)
    # The first limit is firm, the second gives way to the distribution, whose means are at most 10.
    limits = np.array([[0.0] * 3, [5.0, 8.0, np.inf], [0.0] * 3, [0.0, 1.0, 0.0]])
    forecast = Forecast(parts, NAMES, limits=limits)
    assert (forecast.mean["a"] == 5.0).all() and (forecast.mean["mean wind"] == 20.0).all()
    assert_array_equal(forecast.mean["b"], forecast._marginals.high[:, 1])
    assert (forecast.mean["b"] < 12.0).all()
