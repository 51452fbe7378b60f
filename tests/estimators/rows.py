"""Rows for tests of the streaming regressor, and models that have learnt them."""

from __future__ import annotations

from random import Random

import pandas as pd

from momostream import MOMoGPRegressor
from momostream.storage import container

SMALL = {"max_points": 48, "tuning_points": 40, "tuning_evaluations": 5, "seed": 0}
X = {"wind": 8.0, "pitch": 0.5}


def feed(n, seed=0, slope=3.0):
    random = Random(seed)
    wind = 8.0
    for _ in range(n):
        wind += 0.1 * (8.0 - wind) + random.gauss(0.0, 0.5)
        noise = random.gauss(0.0, 0.5)
        x = {"wind": wind, "pitch": random.random()}
        yield x, {"power": slope * wind + noise, "load": wind + 0.4 * noise + random.gauss(0.0, 0.3)}


def trained(n=60, rows=None, **settings):
    model = MOMoGPRegressor(**{**SMALL, **settings})
    for x, y in feed(n) if rows is None else rows:
        model.learn_one(x, y)
    return model


def state(model):
    return container.dumps("state", model._state())


def frames(n, **kwargs):
    rows = list(feed(n, **kwargs))
    return pd.DataFrame([x for x, _ in rows]), pd.DataFrame([y for _, y in rows])
