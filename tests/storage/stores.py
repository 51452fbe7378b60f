"""Small models for stores, and everything that a store holds."""

from __future__ import annotations

from random import Random

from momostream import MOMoGPRegressor
from momostream.storage.blocks import Parts
from momostream.storage.store import Store

SMALL = {"experts": ("matern32",), "max_points": 32, "tuning_evaluations": 4, "seed": 0}


def learn(model, n, seed=0):
    random = Random(seed)
    for _ in range(n):
        wind = random.gauss(8.0, 2.0)
        model.learn_one({"wind": wind, "pitch": random.random()}, {"power": wind**2, ("load", 1): wind})
    return model


def small(n, seed=0, **settings):
    return learn(MOMoGPRegressor(**SMALL | settings), n, seed)


def state(model):
    """A model to the bit."""
    return Parts.of(model)


def contents(path):
    """Everything that a store says."""
    with Store(path, read_only=True) as opened:
        return (
            {key: state(opened.load(key)) for key in opened.keys()},
            opened.source("farm"),
            list(opened.outputs()),
            list(opened.dead()),
            opened.notes,
        )
