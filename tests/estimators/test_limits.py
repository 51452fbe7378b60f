"""Physical limits without asking: `bounds="auto"` of forecaster and regressor."""

from __future__ import annotations

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor, load

LINEAR = ("last value", "season", "own lags")


def rain(n: int) -> np.ndarray:
    """A series that stands at zero about half of the time."""
    rng = np.random.default_rng(0)
    level, found = 0.0, []
    for _ in range(n):
        level = 0.9 * level + rng.normal()
        found.append(max(level, 0.0))
    return np.array(found)


def forecaster(**settings: object) -> MOMoGPForecaster:
    return MOMoGPForecaster(horizon=2, experts=LINEAR, seed=0, **settings)


def test_intervals_of_a_series_at_zero_half_of_the_time_hold_what_they_say() -> None:
    model, y, inside, ends = forecaster(), rain(1200), [], []
    for t, value in enumerate(y[:-1]):
        model.learn_one({"rain": value})
        if t >= 400:
            lower, upper = model.forecast(1, with_dist=True).arrays.quantiles((0.05, 0.95))[:, 0, 0]
            inside.append(lower <= y[t + 1] <= upper)
            ends.append(lower)
    assert 0.87 < np.mean(inside) < 0.97
    assert min(ends) == 0.0
    assert "rain: at least 0 (touched" in model.describe()


def test_counts_are_never_negative_without_asking() -> None:
    counts = np.random.default_rng(0).poisson(1.0, 60).astype(float)
    model, regressor = forecaster(), MOMoGPRegressor(seed=0)
    for t, value in enumerate(counts):
        model.learn_one({"n": value})
        regressor.learn_one({"t": float(t % 7)}, {"n": value})
    forecast, prediction = model.forecast(2, with_dist=True), regressor.predict_one({"t": 3.0}, with_dist=True)
    assert forecast.sample(500, seed=0).min() == 0.0
    assert forecast.quantile(0.001).to_numpy().min() == 0.0
    assert prediction.interval(0.999)["n"][0] == 0.0
    assert prediction.mean["n"] == regressor.predict_one({"t": 3.0})["n"] >= 0.0
    assert regressor.predict_interval([{"t": 3.0}], 0.999).to_numpy().min() == 0.0
    assert "n: at least 0" in regressor.describe()


@pytest.mark.parametrize("bounds", [None, {"y": (None, 10.0)}, {"y": (-50.0, None)}])
def test_what_is_set_counts(bounds: dict[str, tuple[float | None, float | None]] | None) -> None:
    model = forecaster(bounds=bounds)
    for value in rain(150):
        model.learn_one({"y": value})
    assert model.forecast(2, with_dist=True).quantile(1e-4).to_numpy().min() < 0.0


def test_a_counter_that_grows_is_not_cut_off() -> None:
    found = []
    for bounds in ("auto", None):
        model = MOMoGPForecaster(horizon=24, experts=LINEAR, seed=0, bounds=bounds)
        for t in range(150):
            model.learn_one({"kWh": 1000.0 + 3.0 * t})
        found.append(model.forecast(24, with_dist=True))
    assert found[0].mean.equals(found[1].mean)
    assert found[0].mean["kWh"].iloc[-1] > 1000.0 + 1.05 * 3.0 * 149
    upper = [forecast.interval(0.9)["kWh"]["upper"] for forecast in found]
    assert (upper[0] > found[0].mean["kWh"]).all()


def test_limits_are_saved_and_explicit_bounds_have_lumps(tmp_path) -> None:
    model = forecaster(bounds={"rain": (0.0, 3.0)})
    for value in rain(300):
        model.learn_one({"rain": value, "other": value})
    model.save(tmp_path / "model.momo")
    again = load(tmp_path / "model.momo")
    one, two = (m.forecast(2, with_dist=True) for m in (model, again))
    assert (one.limits == two.limits).all() and one.interval(0.9).equals(two.interval(0.9))
    assert model.clipped_readings["rain"] > 0
    drawn = one["rain"].sample(4000, seed=0)
    assert drawn.min() == 0.0 and drawn.max() <= 3.0
    assert np.allclose(one.cov, np.cov(one.sample(60_000, seed=1).reshape(60_000, -1).T), atol=0.05 * one.cov.max())


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ValueError, match="bounds='never' is not accepted: use 'auto'"):
        MOMoGPForecaster(bounds="never")
    with pytest.raises(ValueError, match="bounds=3 is not accepted"):
        MOMoGPRegressor(bounds=3)
