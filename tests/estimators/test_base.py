"""Both streaming estimators: rows, errors, bounds, freezing, copies and files, threads."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor, load
from momostream.storage import container
from tests.estimators import rows, series
from tests.estimators.rows import X, feed, state


class Kind(NamedTuple):
    """One of the two estimators: its arguments come in another order, and it answers another question."""

    estimator: type
    small: dict[str, Any]
    #: Name of the parameter that says which field of the inputs is the time.
    time: str
    learn: Callable[[Any, Any, Any], None]
    #: Its predictions now, to the last bit.
    answer: Callable[[Any], Any]
    #: Reads and calls that need the lock.
    look: Callable[[Any], Any]

    def new(self, **settings):
        return self.estimator(**{**self.small, **settings})

    def trained(self, n=60, seed=0, **settings):
        model = self.new(**settings)
        for x, y in feed(n, seed):
            self.learn(model, x, y)
        return model


KINDS = {
    "regressor": Kind(
        MOMoGPRegressor,
        rows.SMALL,
        "clock",
        lambda model, x, y: model.learn_one(x, y),
        lambda model: model.predict_one(X),
        lambda model: (
            model.hyperparameters,
            model.relevance,
            model.expert_weights,
            model.explain_one(X),
            model.retune(),
        ),
    ),
    "forecaster": Kind(
        MOMoGPForecaster,
        series.SMALL,
        "time",
        lambda model, x, y: model.learn_one(y, x),
        lambda model: model.forecast(3) if model.series else [],
        lambda model: (
            model.weights,
            model.weights_at(1),
            model.weights_history,
            model.forecast(3, with_dist=True).cov,
        ),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def saved(model, folder):
    model.save(folder / "model.momo")
    return load(folder / "model.momo")


# ------------------------------------------------------------------ rows


def test_before_the_first_row(kind):
    model = kind.new()
    assert not kind.answer(model)
    assert (model.n_rows, model.nbytes, model.inputs) == (0, 0, ())
    assert model.describe().startswith(f"{kind.estimator.__name__}: no ")


def test_learning_returns_none_and_leaves_its_arguments(kind):
    model = kind.new(**{kind.time: "t"})
    x, y = {"t": 1.0, **X}, {"power": 1.0, "load": None}
    assert kind.learn(model, x, y) is None
    kind.answer(model)
    assert x == {"t": 1.0, **X} and y == {"power": 1.0, "load": None}


def test_the_order_of_keys_does_not_matter(kind):
    def shuffled(row):
        return dict(random.sample(list(row.items()), len(row)))

    random = Random(5)
    rows = [({**x, "b": t % 3, "a": t % 5} if t > 20 else x, y) for t, (x, y) in enumerate(feed(60))]
    one, other = kind.new(), kind.new()
    for x, y in rows:
        kind.learn(one, x, y)
        kind.learn(other, shuffled(x), shuffled(y))
    assert one.inputs == ("pitch", "wind", "a", "b") and state(one) == state(other)


def test_numbers_of_all_types(kind):
    plain, mixed = kind.trained(20), kind.trained(20)
    for value in (8, np.float32(8), np.int64(8), Decimal(8), Fraction(8)):
        kind.learn(plain, {"wind": 8.0, "pitch": 0.0}, {"power": 8.0, "load": 1.0})
        kind.learn(mixed, {"wind": value, "pitch": False}, {"power": value, "load": True})
    assert mixed.n_rows == 25 and state(mixed) == state(plain)


def test_text(kind):
    model = kind.trained(100)
    text = model.describe()
    assert text.startswith(f"{kind.estimator.__name__}: 100 rows learnt") and "2 inputs" in text and " MB" in text
    assert model._repr_html_() == f"<pre>{text}</pre>"
    assert repr(model).startswith(kind.estimator.__name__)
    assert model.nbytes > 1000


# ------------------------------------------------------------------ bad input

BAD = {
    "infinity": math.inf,
    "text": "fast",
    "bytes": b"8",
    "nested": {"a": 1.0},
    "list": [8.0],
    "array": np.ones(2),
    "complex": 8 + 1j,
    "huge": 1e60,
    "huge integer": 10**400,
    "datetime": datetime(2024, 1, 1),
    "duration": np.timedelta64(1, "s"),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_bad_values_are_named_and_change_nothing(kind, value):
    for model in (kind.trained(20), kind.new()):
        before = state(model)
        for x, y in [({"new": 1.0, "wind": value}, {"power": 1.0}), ({"new": 1.0}, {"other": 1.0, "wind": value})]:
            with pytest.raises((TypeError, ValueError), match="'wind'"):
                kind.learn(model, x, y)
            assert state(model) == before


@pytest.mark.parametrize("row", [5.0, "row", [1.0], {1.0}])
def test_rows_are_dicts(kind, row):
    model = kind.trained(20)
    before = state(model)
    with pytest.raises(TypeError, match=r"expected (x to be )?a dict, got"):
        kind.learn(model, row, {"power": 1.0})
    with pytest.raises(TypeError, match="expected a dict|given as dicts"):
        kind.learn(model, X, row)
    assert state(model) == before


def test_bad_timestamps_are_named_and_change_nothing(kind):
    model = kind.new(**{kind.time: "t"})
    for t, (x, y) in enumerate(feed(20)):
        kind.learn(model, {"t": float(t), **x}, y)
    before = state(model)
    for value in ("noon", math.inf, 1j):
        with pytest.raises((TypeError, ValueError), match="'t'"):
            kind.learn(model, {"t": value, "new": 1.0}, {"power": 1.0})
        assert state(model) == before


@pytest.mark.parametrize("missing", [None, math.nan, pd.NaT, np.datetime64("NaT"), pd.NA])
def test_a_missing_timestamp_is_no_timestamp(kind, missing):
    models = [kind.new(**{kind.time: "t"}) for _ in range(2)]
    for t, (x, y) in enumerate(feed(20)):
        kind.learn(models[0], {"t": float(t), **x} if t < 15 else {"t": missing, **x}, y)
        kind.learn(models[1], {"t": float(t), **x} if t < 15 else x, y)
    assert state(models[0]) == state(models[1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"experts": ()}, r"experts=\(\) is not accepted: use a tuple of different names"),
        ({"experts": ["matern32"]}, "use a tuple of different names"),
        ({"experts": ("matern32", "matern32")}, "use a tuple of different names"),
        ({"experts": ("spline",)}, "unknown expert 'spline'"),
        ({"max_points": 1}, "max_points=1 is not accepted: use a whole number of at least 8"),
        ({"max_points": 20.0}, r"max_points=20\.0"),
        ({"window": 0}, "window=0 is not accepted: use a whole number of at least 1, or None"),
        ({"memory_budget": -1}, "memory_budget=-1"),
        ({"seed": "now"}, "seed='now'"),
        ({"seed": True}, "seed=True"),
        ({"bounds": {"level": (1.0, 0.0)}}, "lower bound"),
        ({"bounds": {"level": 3.0}}, "pair"),
        ({"transforms": {"level": "cube"}}, "cube"),
        ({"transforms": {"level": "logit"}}, "logit"),
    ],
)
def test_parameters_are_checked_at_once(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        kind.new(**settings)


# ------------------------------------------------------------------ bounds


def test_values_beyond_bounds_change_nothing(kind):
    model = kind.new(bounds={"level": (0.0, 1.0)}, transforms={"flow": "log"}, beyond="error")
    for t in range(20):
        kind.learn(model, {"x": t % 4}, {"level": 0.2 + 0.1 * (t % 4), "flow": 1.0 + t % 3})
    before = state(model)
    for y in ({"level": 1.5}, {"level": -0.1, "new": 1.0}, {"flow": 0.0, "new": 1.0}):
        for x in ({"x": 1.0}, {"x": 1.0, "unheard": 2.0}):
            with pytest.raises(ValueError, match="'level'|'flow'"):
                kind.learn(model, x, y)
            assert state(model) == before
    fresh = kind.new(bounds={"level": (0.0, 1.0)}, beyond="error")
    with pytest.raises(ValueError, match="'level'"):
        kind.learn(fresh, {"x": 1.0}, {"level": 2.0})
    assert fresh.n_rows == 0 and fresh.inputs == ()


# ------------------------------------------------------------------ freezing


def test_a_frozen_model_checks_rows_and_learns_nothing(kind):
    model = kind.trained()
    model.freeze()
    before = state(model)
    kind.learn(model, X, {"power": 0.0})
    kind.learn(model, {**X, "new": 1.0}, {"power": 0.0, "third": 1.0})
    with pytest.raises(ValueError, match="infinite"):
        kind.learn(model, X, {"power": math.inf})
    assert state(model) == before
    model.unfreeze()
    kind.learn(model, X, {"power": 24.0})
    assert model.n_rows == 61


def test_freezing_before_the_first_row(kind):
    model = kind.new()
    model.freeze()
    kind.learn(model, X, {"power": 1.0})
    assert model.n_rows == 0 and not kind.answer(model)
    model.unfreeze()
    kind.learn(model, X, {"power": 1.0})
    assert model.n_rows == 1


# ------------------------------------------------------------------ copies and files

TWINS = {
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "file": saved,
}
BOUNDS = {"bounds": {"load": (-50.0, None)}, "transforms": {"power": ("sqrt", 1e4)}}
COPIED = {
    "regressor": {
        "default": {"max_points": 256, "tuning_points": 128, "tuning_evaluations": 20},
        "small": {},
        "time": {"clock": "at"},
        "no clock": {"clock": False},
        "window": {"window": 50},
        "uniform": {"weights": "uniform"},
        "posterior": {"weights": "posterior"},
        "mixture": {"coupling": "independent", "n_components": 2, "tuning_evaluations": 2},
        "bounds": BOUNDS,
    },
    "forecaster": {
        "default": {"horizon": 3, "max_points": 16, "experts": MOMoGPForecaster().experts},
        "small": {},
        "time": {"time": "at"},
        "conformal": {"conformal": True},
        "bounds": BOUNDS,
    },
}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("n", [0, 2, 75])
@pytest.mark.parametrize(("name", "case"), [(name, case) for name in COPIED for case in COPIED[name]])
def test_copies_continue_bit_for_bit(name, case, n, twin, tmp_path):
    kind = KINDS[name]
    model, other = kind.new(**COPIED[name][case]), None
    for t, (x, y) in enumerate(feed(n + 30)):
        if case == "time":
            x["at"] = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(hours=t)
        if t == n:
            other = TWINS[twin](model, tmp_path)
            assert state(other) == state(model)
        kind.learn(model, x, y)
        if other is not None:
            kind.learn(other, x, y)
            assert kind.answer(other) == kind.answer(model)
    assert state(other) == state(model)
    assert other._get_params() == model._get_params()


def test_a_copy_leaves_the_original_alone(kind):
    model = kind.trained()
    before = state(model)
    twin = copy.deepcopy(model)
    for x, y in feed(20, seed=9):
        kind.learn(twin, x, y)
    assert state(model) == before != state(twin)


def test_a_copy_on_its_way_does_not_learn_with_the_original(kind):
    model = kind.trained()
    before, on_its_way = state(model), model.__getstate__()
    for x, y in feed(20, seed=9):
        kind.learn(model, x, y)
    twin = kind.new()
    twin.__setstate__(on_its_way)
    assert state(twin) == before


def test_a_clone_starts_afresh_and_gives_the_same_floats(kind):
    model = kind.trained()
    clone = model.clone()
    assert clone.n_rows == 0 and not kind.answer(clone)
    for x, y in feed(60):
        kind.learn(clone, x, y)
    assert state(clone) == state(model)


def test_a_file_keeps_the_model_frozen(kind, tmp_path):
    model = kind.trained(30)
    model.freeze()
    again = saved(model, tmp_path)
    assert type(again) is kind.estimator
    kind.learn(again, X, {"power": 1.0})
    assert again.n_rows == 30
    again.unfreeze()
    kind.learn(again, X, {"power": 1.0})
    assert again.n_rows == 31


def test_names_that_cannot_be_saved_are_refused_at_the_first_row(kind, tmp_path):
    odd = kind.new()
    with pytest.raises(TypeError, match="frozenset"):
        kind.learn(odd, X, {frozenset(): 1.0})
    assert odd.n_rows == 0
    odd.save(tmp_path / "model.momo")


def test_a_file_without_a_part_is_rejected(kind, tmp_path):
    model = kind.trained(20)
    model.save(tmp_path / "model.momo")
    name, tree = container.read(tmp_path / "model.momo")
    # A young forecaster is saved as its rows.
    for part in ("inputs", "frozen", "model") if "model" in tree["state"] else ("rows", "labels", "frozen"):
        state = {key: value for key, value in tree["state"].items() if key != part}
        container.write(tmp_path / "part.momo", name, {**tree, "state": state})
        with pytest.raises(container.FileFormatError, match="do not fit"):
            load(tmp_path / "part.momo")


# ------------------------------------------------------------------ threads


def test_threads_wait_for_each_other(kind):
    model, errors = kind.trained(30), []

    def run(work):
        try:
            for x, y in feed(60, seed=1):
                work(x, y)
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread reports it
            errors.append(error)

    works = [
        lambda x, y: kind.learn(model, x, y),
        lambda x, y: kind.learn(model, x, y),
        lambda x, y: (kind.answer(model), kind.look(model), model.describe(), model.nbytes),
        lambda x, y: (state(model), copy.deepcopy(model), model.clone()),
    ]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and model.n_rows == 150
