"""Random mixtures of good and bad calls: an error says why and changes nothing, and no prediction is NaN or infinite.

2,000 calls by default; ``MOMOSTREAM_FUZZ=100000`` makes a long run of it.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
from datetime import datetime, timedelta
from random import Random

import numpy as np
import pandas as pd
import pytest
from river import drift

from momostream import MOMoGPRegressor, load
from momostream.distributions.prediction import Prediction
from momostream.storage import container

N_CALLS = int(os.environ.get("MOMOSTREAM_FUZZ", "2000"))
# Then a fresh model takes over, so that the first rows of a stream are tried as often as later ones.
LIFE = 250
INPUTS, TARGETS = ["wind", "pitch", 3, ("a", 1), "late"], ["power", "load", "level"]

SMALL = {"max_points": 24, "tuning_points": 20, "tuning_evaluations": 4, "first_tuning": 8, "seed": 0}
SETTINGS = {
    "plain": {},
    "no clock": {"clock": False},
    "field": {"clock": "t"},
    "window": {"window": 30},
    "window of one": {"window": 1},
    "budget": {"memory_budget": 0, "experts": ("matern52+linear", "clock rbf")},
    "uniform": {"weights": "uniform"},
    "posterior": {"weights": "posterior", "n_components": 2},
    "mixture": {"coupling": "independent", "n_components": 2, "n_groups": 2, "mixture_depth": None},
    "groups": {"n_groups": 2, "group_by": "independence", "n_components": 2, "window": 60},
    "bounds": {"bounds": {"level": (0.0, 1.0), "power": (0.0, None)}, "transforms": {"level": "logit"}},
    "drift": {"drift_detector": drift.ADWIN(clock=1, grace_period=5, min_window_length=3), "on_drift": "forget"},
    "lags": {"experts": ("lags",)},
}
BAD_VALUES = [math.inf, -math.inf, "text", b"bytes", [1.0], {"a": 1}, 1 + 2j, 1e60, datetime(2024, 1, 1), object()]
BAD_ROWS = [None, 3.0, "row", [("wind", 1.0)], {1, 2}]


def checksum(model):
    return hashlib.sha256(container.dumps("state", model._state())).hexdigest()


class Fuzzer:
    def __init__(self, name, seed):
        self.name, self.random = name, Random(seed)
        self.model = MOMoGPRegressor(**{**SMALL, **SETTINGS[name]}).clone()
        self.time = datetime(2024, 1, 1)
        self.ids = 0
        # One feed in four has values of any size.
        self.wild = self.random.random() < 0.25

    def number(self):
        r = self.random
        if r.random() < 0.08:
            return r.choice([None, math.nan, pd.NA, 0, True, np.float32(1.5), np.int64(7)])
        if self.wild and r.random() < 0.1:
            return r.choice([-1.0, 1.0]) * 10.0 ** r.uniform(-50, 30)
        return r.choice([r.gauss(8.0, 2.0), r.gauss(8.0, 2.0), float(r.randrange(3))])

    def x(self):
        r = self.random
        keys = r.sample(INPUTS, r.choice([0, 1, 2, 3, 4, 5]))
        row = {key: self.number() for key in keys}
        if self.name == "field" and r.random() < 0.9:
            self.time += timedelta(seconds=r.choice([1.0, 1.0, 0.1, 3600.0, 0.0, -5.0]))
            stamps = [self.time, pd.Timestamp(self.time), np.datetime64(self.time), self.time.timestamp(), None, pd.NaT]
            row["t"] = r.choice(stamps)
        return row

    def y(self):
        r = self.random
        row = {}
        for name in r.sample(TARGETS, r.choice([0, 1, 2, 2, 3])):
            value = self.number()
            if self.name == "bounds" and name in ("level", "power") and not pd.isna(value):
                value = 1.0 / (1.0 + abs(value)) * 0.9 + 0.05
            row[name] = value
        return row

    def bad(self, row, keys):
        """A row with something wrong in it."""
        r = self.random
        if r.random() < 0.2:
            return r.choice(BAD_ROWS)
        row[r.choice(keys)] = r.choice(BAD_VALUES)
        return row

    def frame(self, rows):
        return pd.DataFrame(rows, index=range(len(rows)))

    # ------------------------------------------------------------------ calls

    def good_call(self):
        r, model = self.random, self.model
        kind = r.choices(range(14), [30, 12, 10, 4, 4, 2, 2, 2, 2, 3, 3, 1, 2, 2])[0]
        if kind == 0:
            return model.learn_one(self.x(), self.y())
        if kind == 1:
            return self.look(model.predict_one(self.x()))
        if kind == 2:
            return self.look(model.predict_one(self.x(), with_dist=True))
        if kind == 3:
            self.ids += 1
            return self.look(model.predict_one(self.x(), id=self.ids))
        if kind == 4 and model.n_pending:
            return model.learn_later(r.choice(list(model._pending)), self.y())
        if kind == 5:
            rows = [(self.x(), self.y()) for _ in range(r.choice([0, 1, 3, 90]))]
            return model.learn_many(self.frame([x for x, _ in rows]), self.frame([y for _, y in rows]))
        if kind == 6:
            return self.look_many(model.predict_many(self.frame([self.x() for _ in range(r.choice([0, 1, 5]))])))
        if kind == 7:
            why = model.explain_one(self.x(), r.randrange(4))
            for shares in zip(*(each.values() for each in why["experts"].values()), strict=True):
                assert math.isclose(sum(shares), 1.0, rel_tol=1e-9)
            return None
        if kind == 8:
            self.model = pickle.loads(pickle.dumps(model))
            return None
        if kind == 9:
            score = model.score_one(self.x(), self.y())
            assert 0.0 <= score <= 1.0
            return None
        if kind == 10:
            return r.choice([model.retune, model.unfreeze, model.freeze, model.unfreeze])()
        if kind == 11:
            rows = [(self.x(), self.y()) for _ in range(r.choice([0, 2, 40]))]
            return model.fit(self.frame([x for x, _ in rows]), self.frame([y for _, y in rows]))
        if kind == 12 and model.n_rows:
            lengths = {name: 10.0 ** r.uniform(-3, 3) for name in model._inputs.keys if r.random() < 0.5}
            return model.set_hyperparameters(lengths, r.choice([None, 1e-9, 0.1]))
        text = model.describe() + model._repr_html_() + repr(model.expert_weights) + repr(model.hyperparameters)
        assert "nan" not in text
        return None

    def look(self, prediction):
        if isinstance(prediction, Prediction):
            lower, upper = np.array(list(prediction.interval(0.9).values())).T
            numbers = [*prediction.mean.values(), *lower, *upper, *prediction.sample(2, seed=0).ravel()]
            assert np.all(lower <= upper)
            # Of tails that are too heavy for one, the deviation is infinite.
            assert not np.isnan([*prediction.std.values()]).any()
        else:
            numbers = [*prediction.values()]
        assert np.isfinite(numbers).all(), numbers
        if self.name == "bounds":
            for name, (low, high) in {"level": (0.0, 1.0), "power": (0.0, math.inf)}.items():
                if prediction and name in (getattr(prediction, "targets", prediction)):
                    mean = prediction.mean if isinstance(prediction, Prediction) else prediction
                    assert low <= mean[name] <= high

    def look_many(self, means):
        assert np.isfinite(means.to_numpy(dtype=float)).all()

    def bad_call(self):
        """A call that has to fail."""
        r, model = self.random, self.model
        kind = r.randrange(11)
        if kind == 0:
            return model.learn_one(self.bad(self.x(), INPUTS), self.y())
        if kind == 1:
            return model.learn_one(self.x(), self.bad(self.y(), [*TARGETS, "new"]))
        if kind == 2:
            return model.predict_one(self.bad(self.x(), INPUTS), with_dist=True, id="bad")
        if kind == 3:
            return model.learn_later("nobody", self.y())
        if kind == 4:
            rows = [self.y() for _ in range(4)]
            rows[2] = {**rows[2], "brand new": 1.0, r.choice(TARGETS): r.choice(BAD_VALUES)}
            return model.learn_many(self.frame([self.x() for _ in range(4)]), self.frame(rows))
        if kind == 5:
            rows = [self.x() for _ in range(4)]
            rows[1] = {**rows[1], "brand new": 1.0, r.choice(INPUTS): r.choice(BAD_VALUES)}
            call = r.choice([model.predict_many, lambda X: model.learn_many(X, self.frame([{"power": 0.5}] * 4))])
            return call(self.frame(rows))
        if kind == 6:
            return model.set_hyperparameters({"no such input": 1.0})
        if kind == 7:
            return model.set_hyperparameters({"clock": r.choice([0.0, -1.0, math.nan, "a", 1e60])}, 0.1)
        if kind == 8:
            return model.learn_many(self.frame([self.x()] * 2), self.frame([{"power": 0.5}] * 3))
        if kind == 9:
            return model.score_one(self.x(), r.choice(BAD_ROWS))
        return model.fit(self.frame([{"wind": 1.0}] * 2), self.frame([{"power": 0.5}, {"power": "text"}]))

    def step(self):
        if self.random.random() < 0.7:
            self.good_call()
            return
        before = checksum(self.model)
        with pytest.raises((TypeError, ValueError, KeyError)) as caught:
            self.bad_call()
        assert len(str(caught.value)) > 10
        assert not isinstance(caught.value, np.linalg.LinAlgError)
        assert checksum(self.model) == before, "an error changed the model"


@pytest.mark.parametrize("name", SETTINGS)
def test_random_calls(name, tmp_path):
    n_calls = N_CALLS // len(SETTINGS) + 1
    fuzzer = None
    for k in range(n_calls):
        if k % LIFE == 0:
            fuzzer = Fuzzer(name, seed=1000 + k)
        try:
            fuzzer.step()
        except BaseException as error:
            error.add_note(f"{name!r}, life {k // LIFE}, call {k % LIFE}, seed {1000 + k // LIFE * LIFE}")
            raise
        if k % 50 == 49:
            fuzzer.model.save(tmp_path / "model.momo")
            assert checksum(load(tmp_path / "model.momo")) == checksum(fuzzer.model)


@pytest.mark.parametrize(("name", "seed"), [("budget", 1250), ("uniform", 5000), ("posterior", 5000), ("bounds", 7500)])
def test_calls_that_failed_once(name, seed):
    fuzzer = Fuzzer(name, seed=seed)
    for _ in range(LIFE):
        fuzzer.step()
