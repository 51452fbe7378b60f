"""River's own contract checks, and its evaluation, on `MOMoGPForecaster`."""

from __future__ import annotations

import math
import statistics
from collections import deque
from random import Random

import pytest
from river import checks, datasets, evaluate, metrics, time_series

from momostream import MOMoGPForecaster

SMALL = {"horizon": 4, "max_points": 16, "seed": 0}
MODELS = {
    "default": MOMoGPForecaster(),
    "seeded": MOMoGPForecaster(seed=0),
    "linear": MOMoGPForecaster(horizon=3, experts=("last value", "own lags"), lags=2, seasons=4),
    "time": MOMoGPForecaster(**SMALL, time="time"),
    "recursive": MOMoGPForecaster(strategy="recursive", experts=("last value", "own lags"), seed=0),
    "bounds": MOMoGPForecaster(**SMALL, bounds={"y": (0.0, None)}, transforms={"y": "sqrt"}),
}


def _cases():
    for name, model in MODELS.items():
        assert not model._unit_test_skips()
        for check in checks.yield_checks(model):
            yield pytest.param(model, check, id=f"{name}-{getattr(check, '__name__', check)}")


@pytest.mark.parametrize(("model", "check"), list(_cases()))
def test_river_check(model, check):
    check(model.clone())


def test_evaluation_of_numbers():
    settings = {"experts": ("last value", "season", "own lags"), "seed": 0}
    # Months are 28 to 31 days apart: that is one step each.
    model = MOMoGPForecaster(horizon=12, time="month", seasons=12, transforms={"y": "log"}, **settings)
    found = evaluate.evaluate(datasets.AirlinePassengers(), model, metrics.MAE(), horizon=12)
    rival = evaluate.evaluate(
        datasets.AirlinePassengers(), time_series.HoltWinters(alpha=0.3, beta=0.1, gamma=0.6, seasonality=12,
        multiplicative=True), metrics.MAE(), horizon=12,
    )  # fmt: skip
    print(f"MAE {statistics.mean(found.get()):.1f}, Holt-Winters {statistics.mean(rival.get()):.1f}")
    assert len(found.get()) == 12
    assert statistics.mean(found.get()) < 40.0
    assert model.n_rows == 144 - 12


def test_steps_of_an_evaluation():
    model = MOMoGPForecaster(**SMALL)
    rows = [({"x": float(t)}, math.sin(t / 2)) for t in range(40)]
    steps = list(evaluate.iter_evaluate(rows, model, metrics.MAE(), 3, agg_func=statistics.mean))
    for x, y, y_pred, _ in steps:
        assert set(x) == {"x"} and type(y) is float
        assert len(y_pred) == 3 and all(type(value) is float for value in y_pred)
    assert 0.0 < steps[-1][-1].get() < 1.0


def test_evaluation_of_several_series():
    # River hands rows of dicts on as they are: metrics of several outputs can take them, others cannot.
    random = Random(0)
    rows = [({}, {"a": random.gauss(0.0, 1.0), "b": random.gauss(5.0, 1.0)}) for _ in range(60)]
    metric = evaluate.evaluate(rows, MOMoGPForecaster(**SMALL), metrics.multioutput.MicroAverage(metrics.MAE()), 2)
    assert all(0.5 < value < 1.5 for value in metric.get())
    with pytest.raises(TypeError):
        evaluate.evaluate(rows, MOMoGPForecaster(**SMALL), metrics.MAE(), 2)


def test_inputs_may_come_as_a_deque():
    model = MOMoGPForecaster(**SMALL)
    for t in range(20):
        model.learn_one(y=float(t % 3), x={"phase": t % 3})
    xs = deque([{"phase": 2}, {"phase": 0}, {"phase": 1}], maxlen=3)
    assert model.forecast(horizon=3, xs=xs) == model.forecast(3, list(xs))
    assert len(xs) == 3
