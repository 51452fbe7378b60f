"""Saved models: exact continuation, small files, and nothing but a clear error from a file that is not one."""

from __future__ import annotations

import os
import pickletools
import threading
from random import Random

import numpy as np
import pytest
from river import base, drift

from momostream import MOMoGPRegressor, load
from momostream.storage import container

SMALL = {"max_points": 32, "tuning_points": 24, "tuning_evaluations": 6, "first_tuning": 8, "seed": 0}
SETTINGS = {
    "default": {"seed": 3},
    "small": SMALL,
    "no clock": {**SMALL, "clock": False},
    "field": {**SMALL, "clock": "t"},
    "window": {**SMALL, "window": 45},
    "budget": {**SMALL, "memory_budget": 0},
    "uniform": {**SMALL, "weights": "uniform"},
    "posterior": {**SMALL, "weights": "posterior"},
    "mixture": {**SMALL, "coupling": "independent", "n_components": 2, "n_groups": 2, "mixture_depth": None},
    "groups": {**SMALL, "n_groups": 2, "group_by": "independence", "n_components": 2, "window": 60},
    "bounds": {
        **SMALL,
        "bounds": {"power": (-200.0, np.float64(500.0)), ("a", 1): (0.0, None)},
        "transforms": {("a", 1): "log"},
    },
    "numpy parameters": {**SMALL, "max_points": np.int64(32), "eta": np.float64(0.2), "seed": np.int64(4)},
    "linear": {**SMALL, "experts": ("matern52+linear", "clock rbf")},
}


def feed(n, seed=0):
    random = Random(seed)
    wind = 8.0
    for t in range(n):
        wind += 0.1 * (8.0 - wind) + random.gauss(0.0, 0.5)
        x = {"wind": wind, "pitch": random.random(), "t": 60.0 * t}
        y = {
            "power": 3 * wind + random.gauss(0.0, 0.5),
            "load": wind if t % 9 else None,
            ("a", 1): random.random() + 0.1,
        }
        yield x, y


def trained(n, **settings):
    model = MOMoGPRegressor(**settings)
    for x, y in feed(n):
        model.learn_one(x, y)
    return model


def saved(model, tmp_path):
    path = tmp_path / "model.momo"
    model.save(path)
    return load(path)


# Fails for "groups": taking the state changes it.
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("n", [0, 9, 70])
def test_continuation_bit_for_bit(name, n, tmp_path):
    model = trained(n, **SETTINGS[name])
    again = saved(model, tmp_path)
    assert again._get_params() == model._get_params()
    for t, (x, y) in enumerate(feed(100, seed=1)):
        if t > 50:
            x["new"] = float(t % 3)
        assert again.predict_one(x) == model.predict_one(x)
        if t % 25 == 24:
            a, b = model.predict_one(x, with_dist=True), again.predict_one(x, with_dist=True)
            assert a.interval(0.9) == b.interval(0.9)
        model.learn_one(x, y)
        again.learn_one(x, y)
    # The last line is about memory, of which a loaded model sets less aside.
    assert again.describe().splitlines()[:-1] == model.describe().splitlines()[:-1]
    assert again.expert_weights == model.expert_weights


def test_jobs_on_their_way_are_saved(tmp_path):
    # Long tunings of several leaves, saved in the middle of them.
    settings = {**SMALL, "tuning_evaluations": 30, "max_points": 100}
    model = MOMoGPRegressor(**settings)
    seen = set()
    for t, (x, y) in enumerate(feed(160)):
        model.learn_one(x, y)
        seen.update(model._model.jobs)
        if t % 13 == 12:
            assert saved(model, tmp_path)._model.jobs == model._model.jobs
            model = saved(model, tmp_path)
    straight = trained(160, **settings)
    assert "tune" in seen
    assert model.predict_one({"wind": 8.0}) == straight.predict_one({"wind": 8.0})


def test_what_retune_asked_for_is_saved(tmp_path):
    model = trained(60, **SMALL)
    model.retune()
    again = saved(model, tmp_path)
    for x, y in feed(60, seed=2):
        model.learn_one(x, y)
        again.learn_one(x, y)
        assert again.predict_one(x) == model.predict_one(x)


def test_after_set_hyperparameters_fit_and_freeze(tmp_path):
    model = trained(60, **SMALL)
    model.set_hyperparameters({"wind": 2.0}, noise=0.3)
    model.freeze()
    again = saved(model, tmp_path)
    assert again.hyperparameters == model.hyperparameters
    again.learn_one({"wind": 1.0}, {"power": 0.0})
    assert again.n_rows == 60
    again.unfreeze()
    again.learn_one({"wind": 8.0}, {"power": 24.0})
    assert again.n_rows == 61


def test_pending_labels_are_saved(tmp_path):
    model = trained(30, **SMALL, clock="t")
    ids = ["a", 7, ("turbine", 3), 2.5, True]
    for k, (x, _) in enumerate(feed(5, seed=1)):
        model.predict_one({**x, f"extra {k}": 1.0}, id=ids[k])
    again = saved(model, tmp_path)
    assert again.n_pending == 5
    for name, (_, y) in zip(reversed(ids), feed(5, seed=1), strict=True):
        model.learn_later(name, y)
        again.learn_later(name, y)
    x = {"wind": 8.0, "extra 1": 1.0, "t": 500.0}
    assert again.predict_one(x) == model.predict_one(x)
    assert again.n_pending == 0


def test_a_detector_starts_afresh(tmp_path):
    model = trained(60, **SMALL, drift_detector=drift.ADWIN(delta=0.01), on_drift="widen")
    model.drift_events.append(17)
    again = saved(model, tmp_path)
    assert isinstance(again.drift_detector, drift.ADWIN) and again.drift_detector.delta == 0.01
    assert again.drift_events == [17] and again.on_drift == "widen"


class Mine(base.DriftDetector):
    def update(self, x):
        pass


def test_what_cannot_be_saved_says_so_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.momo"
    trained(5, **SMALL).save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="drift detector"):
        trained(5, **SMALL, drift_detector=Mine()).save(path)
    with pytest.raises(TypeError, match="frozenset"):
        trained(5, **SMALL).predict_one({"wind": 1.0}, id=frozenset())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.momo"]


def test_saving_replaces_and_does_not_touch_the_model(tmp_path):
    model = trained(40, **SMALL)
    state = container.dumps("state", model._state())
    path = tmp_path / "model.momo"
    path.write_bytes(b"old")
    model.save(path)
    model.save(str(path))
    assert container.dumps("state", model._state()) == state
    assert os.listdir(tmp_path) == ["model.momo"]
    assert load(path).n_rows == 40


def test_files_are_small(tmp_path):
    rng = np.random.default_rng(0)
    model = MOMoGPRegressor(seed=0, max_points=200)
    n, n_inputs, n_targets = 1000, 6, 3
    for row in rng.normal(size=(n, n_inputs)):
        model.learn_one(dict(enumerate(row)), {p: row[p] + 0.1 * rng.normal() for p in range(n_targets)})
    path = tmp_path / "model.momo"
    model.save(path)
    rows = 8 * n * (1 + n_inputs + n_targets)
    size = path.stat().st_size
    print(f"{size} bytes, of which {rows} are rows; in memory {model.nbytes}")
    # Numbers of rows in the leaves of two circuits, statistics of the lags with the rows that wait for them, structure.
    assert rows < size < 2.5 * rows + 60_000
    assert size < model.nbytes / 3


def test_nothing_in_a_file_is_a_pickle(tmp_path):
    path = tmp_path / "model.momo"
    trained(40, **SMALL).save(path)
    data = path.read_bytes()
    with pytest.raises(ValueError):
        for _ in pickletools.genops(data):
            pass
    _, tree = container.loads(data, "regressor")
    assert set(tree) == {"parameters", "state"}


@pytest.fixture(scope="module")
def good():
    model = trained(40, **SMALL, drift_detector=drift.ADWIN())
    return container.dumps("regressor", _tree(model))


def _tree(model):
    from momostream.storage import models

    return {"parameters": models._plain_parameters(model), "state": model._state()}


def test_cut_files(good, tmp_path):
    path = tmp_path / "model.momo"
    for n in [0, 1, 7, 8, 27, 28, 100, len(good) // 2, len(good) - 33, len(good) - 1]:
        path.write_bytes(good[:n])
        with pytest.raises(container.FileFormatError):
            load(path)


def test_altered_files(good, tmp_path):
    random = Random(0)
    path = tmp_path / "model.momo"
    for _ in range(60):
        offset = random.randrange(len(good))
        data = bytearray(good)
        data[offset] ^= 1 << random.randrange(8)
        path.write_bytes(data)
        with pytest.raises(container.FileFormatError):
            load(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(container.FileFormatError):
        load(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "model.momo"
    for data in (b"\x80\x05]q\x00.", b"{}", b"PK\x03\x04", os.urandom(500)):
        path.write_bytes(data)
        with pytest.raises(container.FileFormatError):
            load(path)
    container.write(path, "something else", {})
    with pytest.raises(container.FileFormatError, match="something else"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.momo")


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.pop("parameters"),
        lambda tree: tree.pop("state"),
        lambda tree: tree["parameters"].update(unheard=1),
        lambda tree: tree["parameters"].update(max_points=-4),
        lambda tree: tree["parameters"].update(drift_detector=["os.system", {"command": "true"}]),
        lambda tree: tree["parameters"].update(drift_detector=["DriftRetrainingClassifier", {}]),
        lambda tree: tree["parameters"].update(drift_detector=5),
        lambda tree: tree["state"].pop("model"),
        lambda tree: tree["state"]["model"].pop("stack"),
        lambda tree: tree["state"]["model"].update(rows=None),
        lambda tree: tree["state"].update(pending=[[1, 2]]),
        lambda tree: tree["state"].update(inputs=[["module", "os"]]),
        lambda tree: tree["state"]["model"].update(trees=[]),
    ],
)
def test_well_formed_files_of_nonsense(good, change, tmp_path):
    _, tree = container.loads(good)
    change(tree)
    container.write(tmp_path / "model.momo", "regressor", tree)
    with pytest.raises(container.FileFormatError):
        load(tmp_path / "model.momo")


def test_saving_while_another_thread_learns(tmp_path):
    model = trained(40, **SMALL)
    path = tmp_path / "model.momo"
    stop = threading.Event()
    errors = []

    def learn():
        try:
            for x, y in feed(2000, seed=5):
                model.learn_one(x, y)
                if stop.is_set():
                    return
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        for _ in range(20):
            model.save(path)
            again = load(path)
            # A row more than the model thinks it has would be half a row.
            assert len(again._model.rows) == again.n_rows == again._model.stack.n_rows
    finally:
        stop.set()
        thread.join()
    assert errors == []
