"""A forecaster of few rows is saved as its rows, and is the same to the bit when it is loaded."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from momostream import MOMoGPForecaster, load
from momostream.estimators._first_rows import MOST_ROWS, MOST_VALUES
from momostream.storage import container, models
from momostream.storage.blocks import Parts


def rows(n, n_series=2, seed=0):
    """A feed with inputs, missing values, missing rows, and a series that comes late."""
    rng = np.random.default_rng(seed)
    for t in range(n):
        at = datetime(2024, 3, 1) + timedelta(minutes=10 * (t if t < 30 else t + 3))
        y = {f"s{j}": float(np.sin(t / 9 + j) + 0.1 * rng.normal()) for j in range(n_series)}
        if t % 7 == 3:
            y.popitem()
        if t == 12:
            y = {}
        if t > 20:
            y["late"] = float(rng.normal())
        yield y, {"at": at, "temp": float(t % 5)}


def learnt(n, **settings):
    model = MOMoGPForecaster(horizon=4, time="at", seed=0, **settings)
    for y, x in rows(n):
        model.learn_one(y, x)
    return model


def whole(model):
    return container.dumps("state", model._state())


@pytest.mark.parametrize("n", [0, 1, 2, 8, 25, 40, MOST_ROWS, MOST_ROWS + 1])
def test_a_loaded_model_is_the_same_to_the_bit(n, tmp_path):
    model = learnt(n)
    assert ("rows" in model._saved_state()) == (n <= MOST_ROWS)
    model.save(tmp_path / "model.momo")
    again = load(tmp_path / "model.momo")
    assert whole(again) == whole(model)
    for y, x in list(rows(n + 40))[n:]:
        for each in (model, again):
            each.learn_one(y, x)
    assert whole(again) == whole(model)


def test_it_is_small():
    model = MOMoGPForecaster(horizon=36, time="at", seed=0)
    for y, x in rows(40):
        model.learn_one(y, {"at": x["at"]})
    assert sum(map(len, Parts.of(model).chunks)) < 10_000
    assert len(whole(model)) > 1_000_000


def test_rejected_rows_and_frozen_models_leave_nothing(tmp_path):
    model = learnt(10)
    with pytest.raises(ValueError, match="time must increase"):
        model.learn_one({"s0": 1.0}, {"at": datetime(2024, 3, 1)})
    model.freeze()
    model.learn_one({"s0": 1.0}, {"at": datetime(2024, 3, 2)})
    model.save(tmp_path / "model.momo")
    again = load(tmp_path / "model.momo")
    assert whole(again) == whole(model) and again.n_rows == 10
    again.unfreeze()
    again.learn_one({"s0": 1.0}, {"at": datetime(2024, 3, 2)})
    assert again.n_rows == 11


@pytest.mark.parametrize("y", [[1.0, 2.0, 3.0], [None, 2.0, 3.0]])
def test_plain_numbers(y, tmp_path):
    model = MOMoGPForecaster(horizon=2, seed=0)
    for value in y:
        model.learn_one(value)
    model.save(tmp_path / "model.momo")
    assert whole(load(tmp_path / "model.momo")) == whole(model)


def test_other_ways_to_learn_are_saved_in_full(tmp_path):
    index = pd.date_range("2024-03-01", periods=20, freq="h")
    frame = pd.DataFrame({"power": np.arange(20.0)}, index)
    fitted = MOMoGPForecaster(horizon=2, seed=0).fit(frame)
    updated = MOMoGPForecaster(horizon=2, time="at", seed=0)
    updated.learn_one({"power": 0.0}, {"at": datetime(2024, 2, 29)})
    updated.learn_many(frame)
    unseeded = MOMoGPForecaster(horizon=2)
    unseeded.learn_one({"power": 1.0})
    for model in (fitted, updated, unseeded):
        assert "rows" not in model._saved_state()
        model.save(tmp_path / "model.momo")
        assert whole(load(tmp_path / "model.momo")) == whole(model)


def test_wide_rows_are_fewer():
    model = MOMoGPForecaster(horizon=2, seed=0, experts=("last value",))
    n = 0
    while "rows" in model._saved_state():
        model.learn_one({f"s{j}": 1.0 * n for j in range(100)})
        n += 1
    assert n == MOST_VALUES // 100 + 1


@pytest.mark.parametrize(
    "alter",
    [
        lambda rows: rows[3][0][1].fill(np.inf),
        lambda rows: rows[3].__setitem__(2, [rows[2][2][0], "date and time"]),
        lambda rows: rows[3].__setitem__(2, [float("nan"), "date and time"]),
        lambda rows: rows[3].__setitem__(2, [1.0, "tide"]),
        lambda rows: rows[3].pop(),
    ],
)
def test_altered_rows_are_refused(alter, tmp_path):
    model = learnt(10)
    tree = {"parameters": models._plain_parameters(model), "state": model._saved_state()}
    alter(tree["state"]["rows"])
    container.write(tmp_path / "model.momo", "forecaster", tree)
    with pytest.raises(container.FileFormatError, match="do not fit"):
        load(tmp_path / "model.momo")
