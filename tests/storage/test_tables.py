"""Files of the table estimator: the same answers, also after more rows; nothing else is read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from momostream import load
from momostream.sklearn import MOMoGPRegressor
from momostream.storage import container
from momostream.storage.tables import table_to_tree
from tests.estimators.tables import INPUTS, TARGETS, quick, toy

CASES = {
    "default": {},
    "local": {"max_points": 20, "n_groups": 2},
    "residual": {"experts": ("residual rbf", "warped matern12")},
    "independent": {"experts": ("rbf", "matern12"), "coupling": "independent", "weights": "posterior"},
    "uniform": {"weights": "uniform", "memory_budget": 0},
}


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_table_answers_and_learns_as_the_saved_one(name, tmp_path):
    X, Y = toy(80)
    model = quick(**CASES[name]).fit(X[:60], Y[:60])
    model.save(tmp_path / "table.momo")
    again = load(tmp_path / "table.momo")
    assert type(again) is MOMoGPRegressor and again.get_params() == model.get_params()
    for _ in range(2):
        assert_array_equal(again.predict(X[60:]), model.predict(X[60:]))
        assert_array_equal(again.predict_interval(X[60:]), model.predict_interval(X[60:]))
        assert again.describe() == model.describe()
        for each in (model, again):
            each.partial_fit(X[60:], Y[60:])


def test_gaps_names_and_one_target(tmp_path):
    X, Y = toy(60)
    Y[3:9, 0], X[5, 1] = np.nan, np.nan
    frames = pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS)
    model = quick().fit(*frames)
    model.save(tmp_path / "table.momo")
    again = load(tmp_path / "table.momo")
    assert list(again.feature_names_in_) == INPUTS and again.target_names_ == tuple(TARGETS)
    assert_array_equal(again.predict(frames[0]), model.predict(frames[0]))
    single = quick().fit(X, Y[:, 1])
    single.save(tmp_path / "table.momo")
    assert load(tmp_path / "table.momo").predict(X).shape == (60,)
    # Factors are not in the file.
    assert (tmp_path / "table.momo").stat().st_size < 30_000


def test_structures_and_presets(tmp_path):
    X, Y = toy(60)
    model = MOMoGPRegressor.from_preset("momogp", max_points=30, max_iterations=3, random_state=0).fit(X, Y)
    structure = model.model_.experts[0].circuit
    given = quick(structure=structure, experts=("rbf",)).fit(X, Y)
    for each in (model, given):
        each.save(tmp_path / "table.momo")
        assert_array_equal(load(tmp_path / "table.momo").predict(X), each.predict(X))


def test_what_cannot_be_saved_or_read(tmp_path):
    X, Y = toy(20)
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "table.momo")
    with pytest.raises(TypeError, match="random_state is a generator"):
        quick(random_state=np.random.RandomState(0)).fit(X, Y).save(tmp_path / "table.momo")
    tree = table_to_tree(quick().fit(X, Y))
    for number, spoil in enumerate(
        [
            lambda tree: tree["objects"].__setitem__(0, ["Popen", {}]),
            lambda tree: tree["fitted"].__setitem__("predict", None),
            lambda tree: tree["parameters"].__setitem__("weights", ["call", []]),
        ]
    ):
        wrong = table_to_tree(quick().fit(X, Y))
        spoil(wrong)
        path = tmp_path / f"{number}.momo"
        container.write(path, "table", wrong)
        with pytest.raises(container.FileFormatError, match="do not fit this version"):
            load(path)
    assert container.dumps("table", tree) == container.dumps("table", table_to_tree(quick().fit(X, Y)))
