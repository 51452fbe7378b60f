"""River's own contract checks, and its filters, on `MOMoGPMonitor`."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from river import anomaly, checks, datasets, preprocessing

from momostream import MOMoGPMonitor
from tests.monitor.feeds import as_dict, normal_rows

MODELS = {
    "default": MOMoGPMonitor(),
    "small": MOMoGPMonitor(false_alarms="1 per 200 rows", warm_up=20, window=60, quiet_rows=2, release_after=30),
    "pipeline": preprocessing.StandardScaler() | MOMoGPMonitor(warm_up=50, window=200),
}


class Transactions:
    """Rows in place of river's credit cards, which have to be downloaded: the same columns, a few frauds."""

    def __iter__(self):
        rng = np.random.default_rng(0)
        while True:
            fraud = bool(rng.random() < 0.005)
            values = rng.normal(size=28) * np.linspace(2.0, 0.3, 28) + (4.0 * fraud) * rng.normal(size=28)
            yield {f"V{n}": value for n, value in enumerate(values.tolist(), 1)} | {"Amount": rng.exponential()}, fraud

    def take(self, n):
        return islice(self, n)


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", Transactions)


def _cases():
    for name, model in MODELS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets, "CreditCard", Transactions)
            for check in checks.yield_checks(model):
                yield pytest.param(model, check, id=f"{name}-{getattr(check, '__name__', check)}")


@pytest.mark.parametrize(("model", "check"), list(_cases()))
def test_river_check(model, check):
    check(model.clone())


def test_filters_of_river():
    monitor = MOMoGPMonitor()
    filtered = anomaly.ThresholdFilter(monitor, threshold=3.0)
    X = normal_rows(300)
    for row in X[:-1]:
        filtered.learn_one(as_dict(row))
    assert not filtered.classify(filtered.score_one(as_dict(X[-1])))
    assert filtered.classify(filtered.score_one(as_dict(X[-1] + [50.0, 0.0, 0.0, 0.0])))
