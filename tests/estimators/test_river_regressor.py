"""River's own contract checks, and its evaluation, on `MOMoGPRegressor`."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import pytest
from river import checks, evaluate, metrics, preprocessing

from momostream import MOMoGPRegressor
from momostream.estimators.metrics import CRPS, NLPD, Coverage, WithDist

SMALL = {"max_points": 48, "tuning_points": 40, "tuning_evaluations": 5, "seed": 0}
SETTINGS = {
    "default": {"seed": 0},
    "no clock": {**SMALL, "clock": False},
    "field": {**SMALL, "clock": "t"},
    "window": {**SMALL, "window": 50},
    "uniform": {**SMALL, "weights": "uniform"},
    "mixture": {**SMALL, "coupling": "independent", "n_components": 2, "tuning_evaluations": 2},
    "bounds": {**SMALL, "bounds": {0: (-1e9, None), "power": (-100.0, 100.0)}},
}
MODELS = {
    **{name: MOMoGPRegressor(**settings) for name, settings in SETTINGS.items()},
    "pipeline": preprocessing.StandardScaler() | MOMoGPRegressor(**SMALL).clone(),
}


def _cases():
    for name, model in MODELS.items():
        for check in checks.yield_checks(model):
            yield pytest.param(model, check, id=f"{name}-{getattr(check, '__name__', check)}")


@pytest.mark.parametrize(("model", "check"), list(_cases()))
def test_river_check(model, check):
    check(model.clone())


def turbine(n, seed=0):
    random = Random(seed)
    wind = 8.0
    for _ in range(n):
        wind += 0.1 * (8.0 - wind) + random.gauss(0.0, 0.5)
        noise = random.gauss(0.0, 0.5)
        yield {"wind": wind, "pitch": random.random()}, {"power": 3 * wind + noise, "load": wind + 0.5 * noise}


def test_progressive_validation():
    feed = list(turbine(300))
    mean = metrics.multioutput.MicroAverage(metrics.MAE())
    evaluate.progressive_val_score(feed, MOMoGPRegressor(**SMALL), mean)
    # The noise alone has mean absolute errors of .4 and .2.
    assert 0.25 < mean.get() < 0.6
    macro = metrics.multioutput.MacroAverage(metrics.RMSE())
    evaluate.progressive_val_score(feed, preprocessing.StandardScaler() | MOMoGPRegressor(**SMALL), macro)
    assert 0.2 < macro.get() < 1.0


def test_progressive_validation_of_distributions():
    scores = NLPD() + CRPS() + Coverage(0.9)
    evaluate.progressive_val_score(turbine(300), WithDist(MOMoGPRegressor(**SMALL)), scores)
    nlpd, crps, coverage = scores
    assert 0.84 < coverage.get() < 0.96
    assert 0.1 < crps.get() < 0.5
    assert nlpd.get() < 1.5


def test_delayed_labels_of_river():
    start = datetime(2024, 1, 1)
    feed = [({"at": start + timedelta(minutes=t), **x}, y) for t, (x, y) in enumerate(turbine(120))]
    model = MOMoGPRegressor(**SMALL, clock="at")
    metric = metrics.multioutput.MicroAverage(metrics.MAE())
    steps = list(
        evaluate.iter_progressive_val_score(
            feed, model, metric, moment="at", delay=timedelta(minutes=5), step=20, yield_predictions=True
        )
    )
    assert steps
    # Labels come in the end all the same.
    assert model.n_rows >= 110
    assert metric.get() < 1.5
