"""Random histories that went wrong once, by the seeds of `benchmarks.gauntlet`, and the reasons in small."""

from __future__ import annotations

from datetime import datetime
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.tools.gauntlet_calls import LONG, History
from benchmarks.tools.gauntlet_histories import (
    LIVES,
    HistoryError,
    MonitorHistory,
    RegressorHistory,
    checksum,
    history,
    life,
)
from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor
from momostream.gp.scaling import standardisation
from momostream.storage.blocks import Packed

make_twin = History.make_twin
FAILED_ONCE = {
    "copula chosen when first asked for": ("regressor", 14),
    "copula of independent leaves": ("regressor", 17),
    "order of factors in memory": ("regressor", 9),
    "split that a tuning had cleared": ("regressor", 92),
    "search over rows in Fortran order": ("forecaster", 75),
    "lags of any ratio": ("regressor", 93),
    "scale below all numbers": ("regressor", 84),
    "pivots whose squares overflow": ("regressor", 43),
    "densities of nothing": ("regressor", 0),
    "means whose squares overflow": ("regressor", 41),
    "mixture of infinite children": ("regressor", 51),
    "frames of names that are tuples": ("forecaster", 3),
    "many points too far for numbers": ("regressor", 118),
    "factor that overflows when rows are dropped": ("regressor", 374),
    "ratios to pivots whose squares overflow": ("regressor", 3477),
    "split of a leaf whose rows are gone": ("regressor", 125),
    "tails cut far from a narrow component": ("regressor", 329),
    "scores of experts that are not stacked": ("regressor", 364),
    "interval narrower than its last digit": ("regressor", 3937),
    "table of a constant below all scales": ("table", 5),
    "table of residuals of nothing but round-off": ("table", 6),
    "constant whose last bit is many lengthscales": ("regressor", 1387),
    "leaf whose centre was that of rows that are gone": ("regressor", 1515),
    "regression with a row that hides all others": ("table", 5002),
    "blend of locations below all numbers": ("regressor", 4422),
}


@pytest.mark.parametrize("name", FAILED_ONCE)
def test_history_that_failed_once(name):
    assert history(*FAILED_ONCE[name], 120) >= 120


LIVES_THAT_FAILED_ONCE = {"linear expert far away": ("table", 5, 400)}


@pytest.mark.parametrize("name", LIVES_THAT_FAILED_ONCE)
def test_life_that_failed_once(name):
    kind, seed, n_calls = LIVES_THAT_FAILED_ONCE[name]
    assert life(kind, seed, n_calls) == n_calls


@pytest.mark.parametrize("kind", LIVES)
def test_a_twin_of_a_life_has_left_memory_in_all_ways(kind):
    found = LIVES[kind](0, 200, LONG._replace(twin=0.15, compare=50))
    ways = set()
    with patch.object(type(found), "make_twin", lambda self: make_twin(self) or ways.add(self.way)):
        assert found.run() == 200
    assert ways == ({"file", "pickle"} if kind == "table" else {"file", "pickle", "packed", "blocks", "store"})
    assert not found.shelf.folder.exists()


def test_a_life_whose_twin_differs_is_told(monkeypatch):
    learn_one = MOMoGPMonitor.learn_one

    def forgetful(self, x):
        learn_one(self, {**x, "a": 3.0} if getattr(self, "is_twin", False) else x)

    monkeypatch.setattr(MOMoGPMonitor, "learn_one", forgetful)
    monkeypatch.setattr(MonitorHistory, "make_twin", lambda self: make_twin(self) or vars(self.twin).update(is_twin=1))
    with pytest.raises(HistoryError, match=r"monitor 0, call \d+ .*twin by"):
        life("monitor", 0, 2000)


def test_times_of_a_life_stay_dates():
    found = LIVES["regressor"](1, 10, LONG)
    found.clock, found.time = "t", datetime(9899, 12, 31)
    for _ in range(2000):
        found.x()
    assert found.time.year < 9910


def test_a_constant_of_nothing_has_no_size():
    # A life of the regressor ended in a division by a scale of 1e-3 * 5e-324.
    offset, scale = standardisation(np.array([[5e-324, 1e-44, 0.0], [5e-324, 1e-44, 0.0]]))
    assert scale.tolist() == [1e-3, 1e-47, 1e-3] and np.isfinite(offset / scale).all()


def test_a_history_that_goes_wrong_names_its_seed(monkeypatch):
    monkeypatch.setattr(RegressorHistory, "predict", lambda self: lambda model: {"power": float("nan")})
    with pytest.raises(HistoryError, match=r"regressor 1, call \d+ \(predict\).*NaN"):
        history("regressor", 1)


def learnt(n_rows=60, **settings):
    model = MOMoGPRegressor(max_points=16, tuning_points=12, tuning_evaluations=3, first_tuning=8, seed=0, **settings)
    rng = np.random.default_rng(0)
    for t in range(n_rows):
        wind = float(rng.normal())
        model.learn_one({"wind": wind, "t": t % 7}, {"power": wind**2, "load": wind + float(rng.normal())})
    return model


@pytest.mark.parametrize("settings", [{}, {"window": 30}, {"window": 30, "memory_budget": 0}, {"memory_budget": 0}])
def test_predictions_change_neither_state_nor_what_follows(settings):
    asked, silent = learnt(**settings), learnt(**settings)
    rng = np.random.default_rng(1)
    for _ in range(40):
        before = checksum(asked)
        for _ in range(3):
            x = {"wind": float(3.0 * rng.normal()), "t": int(rng.integers(7))}
            asked.predict_one(x, with_dist=True)
            asked.score_one(x, {"power": 1.0})
            asked.explain_one(x)
        assert checksum(asked) == before
        x, y = {"wind": float(rng.normal()), "t": 3}, {"power": float(rng.normal()), "load": 1.0}
        asked.learn_one(x, y)
        silent.learn_one(x, y)
    assert checksum(asked) == checksum(silent)


def test_the_copula_does_not_depend_on_when_it_was_first_asked_for():
    early, late = learnt(), Packed(learnt()).model()
    rng = np.random.default_rng(2)
    for _ in range(30):
        x, y = {"wind": float(rng.normal())}, {"power": float(rng.normal()), "load": float(rng.normal())}
        early.predict_one(x, with_dist=True).sample(1, seed=0)
        early.learn_one(x, y)
        late.learn_one(x, y)
    for one, other in zip(early._model.stack.copula, late._model.stack.copula, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("key", [None, b"wind", float("nan"), frozenset({1})])
def test_a_key_that_could_not_be_saved_is_refused_at_once(key):
    model, forecaster = MOMoGPRegressor(seed=0), MOMoGPForecaster(horizon=1, seed=0)
    model.learn_one({"x": 1.0}, {"y": 1.0})
    forecaster.learn_one({"y": 1.0})
    states = checksum(model), checksum(forecaster)
    for call in (
        lambda: model.learn_one({"x": 1.0, key: 1.0}, {"y": 1.0}),
        lambda: model.learn_one({"x": 1.0}, {"y": 1.0, key: 1.0}),
        lambda: forecaster.learn_one({"y": 1.0, key: 1.0}),
        lambda: forecaster.learn_one({"y": 1.0}, {key: 1.0}),
    ):
        with pytest.raises(TypeError, match="cannot save the key"):
            call()
    assert (checksum(model), checksum(forecaster)) == states
    with pytest.raises(TypeError, match="cannot save the key"):
        model.predict_one({"x": 1.0}, id=b"id")


@pytest.mark.parametrize("value", [[1.0], [[1.0], [1.0, 2.0]], np.zeros(3), (1.0, 2.0)])
def test_a_list_as_a_value_is_named(value):
    model, forecaster = MOMoGPRegressor(seed=0), MOMoGPForecaster(horizon=1, seed=0)
    with pytest.raises(TypeError, match="the value of 'wind' is a"):
        model.learn_one({"wind": value}, {"y": 1.0})
    with pytest.raises(TypeError, match="the value of 'wind' is a"):
        forecaster.learn_one({"wind": value})


@pytest.mark.parametrize("settings", [{"window": 50}, {"window": 40, "memory_budget": 0}])
def test_a_model_that_rests_after_each_row_continues_to_the_bit(settings):
    """Leaves of more than 32 rows are rebuilt in blocks; rows are dropped while a factor still has them."""
    awake, resting = (
        MOMoGPRegressor(max_points=64, tuning_evaluations=0, experts=("matern32",), seed=0, **settings)
        for _ in range(2)
    )
    rng = np.random.default_rng(0)
    for _ in range(130):
        x, y = {"wind": float(rng.normal())}, {"power": float(rng.normal())}
        resting = Packed(resting).model()
        assert resting.predict_one(x) == awake.predict_one(x)
        for model in (awake, resting):
            model.learn_one(x, y)
    assert checksum(resting) == checksum(awake)
