"""Series for tests of the forecaster, and models that have learnt them."""

from __future__ import annotations

import hashlib
from datetime import datetime
from random import Random

from momostream import MOMoGPForecaster
from momostream.storage import container

LINEAR = ("last value", "season", "own lags")
SMALL = {"horizon": 4, "experts": LINEAR, "seed": 0}
START = datetime(2024, 3, 1)


def feed(n, seed=0):
    """Two series that go together, one of which follows an input."""
    random = Random(seed)
    wind = 8.0
    for _ in range(n):
        wind += 0.2 * (8.0 - wind) + random.gauss(0.0, 0.5)
        pitch = random.random()
        yield {"pitch": pitch}, {"wind": wind, "power": 60.0 * wind - 100.0 * pitch + random.gauss(0.0, 5.0)}


def trained(n=60, seed=0, **settings):
    model = MOMoGPForecaster(**{**SMALL, **settings})
    for x, y in feed(n, seed):
        model.learn_one(y, x)
    return model


def timed(model, times, value=float):
    for t, time in enumerate(times):
        model.learn_one({"y": value(t)}, {"at": time})
    return model


def checksum(model):
    return hashlib.sha256(container.dumps("state", model._state())).hexdigest()
