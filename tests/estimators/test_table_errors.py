"""Wrong data and parameters of the estimator of scikit-learn: errors say where, and leave the model as it was."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import momostream
from momostream.estimators.table import MOMoGPRegressor
from tests.estimators.tables import INPUTS, TARGETS, quick, toy


def broken(X, Y, kind):
    """Data with one thing wrong, and what must be said about it."""
    X, Y = pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS)
    if kind == "infinite input":
        X.loc[3, "pitch"] = -np.inf
        return X, Y, "X contains infinity at row 3, column 'pitch'"
    if kind == "infinite target":
        Y.loc[4, "load"] = np.inf
        return X, Y, "y contains infinity at row 4, column 'load'"
    if kind == "infinite input without names":
        X = X.to_numpy().copy()
        X[5, 2] = np.inf
        return X, Y, "X contains infinity at row 5, column 2"
    if kind == "infinite input among objects":
        X = X.astype(object)
        X.loc[3, "pitch"] = np.inf
        return X, Y, "X contains infinity at row 3, column 'pitch'"
    if kind == "text in inputs":
        X = X.astype(object)
        X.loc[2, "yaw"] = "north"
        return X, Y, "X holds the text 'north' at row 2, column 'yaw'.*could not convert string to float"
    if kind == "text in targets":
        Y = Y.astype(object)
        Y.loc[1, "power"] = "off"
        return X, Y, "y holds the text 'off' at row 1, column 'power'"
    if kind == "text in lists":
        return [[1.0, 2.0, "three"]], [[1.0, 2.0]], "X holds the text 'three' at row 0, column 2"
    if kind == "text in a string column":
        return X.assign(yaw=["north"] + ["1"] * (len(X) - 1)), Y, "X holds the text 'north' at row 0, column 'yaw'"
    if kind == "fewer targets than rows":
        return X, Y[:-1], "inconsistent numbers of samples"
    if kind == "no rows":
        return X[:0], Y[:0], "0 sample"
    if kind == "three-dimensional targets":
        return X, np.zeros((len(X), 2, 2)), "y must have shape .* not \\(20, 2, 2\\)"
    if kind == "no targets":
        return X, Y[[]], "y must have shape .* not \\(20, 0\\)"
    if kind == "y is None":
        return X, None, "requires y to be passed"
    raise ValueError(kind)


KINDS = [
    "infinite input",
    "infinite target",
    "infinite input without names",
    "infinite input among objects",
    "text in inputs",
    "text in targets",
    "text in lists",
    "text in a string column",
    "fewer targets than rows",
    "no rows",
    "three-dimensional targets",
    "no targets",
    "y is None",
]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_data_is_named_and_leaves_the_model_as_it_was(kind):
    X, Y = toy(20)
    frame, targets = pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS)
    model = quick(max_iterations=1, max_points=15).fit(frame, targets)
    first = model.predict(frame, return_std=True)
    wrong_X, wrong_Y, words = broken(X, Y, kind)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=words):
            learn(wrong_X, wrong_Y)
        for before, after in zip(first, model.predict(frame, return_std=True), strict=True):
            assert_array_equal(before, after)
        assert list(model.feature_names_in_) == INPUTS
        assert model.target_names_ == tuple(TARGETS)
        assert model.model_.n_rows == 20
    with pytest.raises(ValueError, match=words):
        quick().fit(wrong_X, wrong_Y)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda X, Y: (X[:, :2], np.full_like(Y, np.nan)), "every value of Y is missing"),
        (lambda X, Y: (X[:, :2], np.where(Y > 0, np.inf, Y)), "y contains infinity"),
        (lambda X, Y: (np.hstack([X, X]), Y[:5]), "inconsistent"),
    ],
)
def test_a_failed_fit_of_another_width_leaves_the_model_as_it_was(wrong, words):
    X, Y = toy(20)
    model = quick(max_iterations=1).fit(X, Y)
    first = model.predict(X)
    with pytest.raises(ValueError, match=words):
        model.fit(*wrong(X, Y))
    assert_array_equal(model.predict(X), first)
    assert model.n_features_in_ == 3


def test_wrong_widths_in_partial_fit_and_predict():
    X, Y = toy(20)
    model = quick(max_iterations=1).fit(X, Y)
    first = model.predict(X)
    with pytest.raises(ValueError, match="X has 2 features, but MOMoGPRegressor is expecting 3"):
        model.partial_fit(X[:, :2], Y)
    with pytest.raises(ValueError, match="y has 1 columns, but the model was fitted with 2"):
        model.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="X has 2 features, but MOMoGPRegressor is expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="X contains infinity at row 1, column 0"):
        model.predict([[0.0, 0.0, 0.0], [np.inf, 0.0, 0.0]])
    with pytest.raises(ValueError, match="y contains -1e\\+60, which is too large, at row 2, column 1"):
        model.partial_fit(X[:3], np.array([[0.0, 0.0], [0.0, 0.0], [0.0, -1e60]]))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])
    with pytest.raises(ValueError, match="X holds the text 'a' at row 0, column 1"):
        model.predict([[0.0, "a", 0.0]])
    assert_array_equal(model.predict(X), first)


@pytest.mark.parametrize("wrap", [np.asarray, list, pd.Series])
def test_one_dimensional_inputs_are_refused(wrap):
    X, Y = toy(20)
    with pytest.raises(ValueError, match="2D|2-dimensional"):
        quick().fit(wrap(X[:, 0]), Y)


def test_ragged_and_three_dimensional_lists_of_targets():
    X, _ = toy(2)
    for wrong in ([[1.0], [1.0, 2.0]], [[[1.0]], [[2.0]]], [[], []]):
        with pytest.raises(ValueError, match="inhomogeneous|shape|dim 3|0 feature"):
            quick().fit(X, wrong)


def test_infinity_in_a_one_dimensional_target_names_its_row():
    X, Y = toy(20)
    y = Y[:, 0].copy()
    y[6] = np.inf
    with pytest.raises(ValueError, match="y contains infinity at row 6:"):
        quick().fit(X, y)
    with pytest.raises(ValueError, match="y contains infinity at row 6:"):
        quick().fit(X, list(y))


def test_numbers_written_as_text_are_numbers():
    X, Y = toy(20)
    text = pd.DataFrame(X, columns=INPUTS).astype(object)
    text["yaw"] = [repr(float(value)) for value in X[:, 2]]
    assert_array_equal(quick().fit(text, Y).predict(text), quick().fit(X, Y).predict(X))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("experts", "linear"),
        ("experts", None),
        ("experts", ()),
        ("experts", ["matern99"]),
        ("max_points", 1),
        ("max_points", 2.5),
        ("n_components", 0),
        ("n_cells", 0),
        ("n_groups", "two"),
        ("mixture_depth", -1),
        ("split_by", "size"),
        ("group_by", "size"),
        ("outputs", 2),
        ("coupling", "none"),
        ("hyperparameters", "fixed"),
        ("weights", "equal"),
        ("stacking", "cv"),
        ("n_blocks", 1),
        ("discount", 0.0),
        ("tuning_points", 1),
        ("max_iterations", -1),
        ("start", "zero"),
        ("restarts", 0.5),
        ("memory_budget", "1GB"),
        ("structure", "gate"),
        ("n_jobs", "many"),
        ("n_jobs", 0),
        ("verbose", "loud"),
    ],
)
def test_bad_parameters_are_named_at_fit_and_leave_the_model_as_it_was(name, value):
    X, Y = toy(12)
    model = quick(max_iterations=0, experts=("rbf",)).fit(X, Y)
    first = model.predict(X)
    model.set_params(**{name: value})
    with pytest.raises((ValueError, TypeError), match=name):
        model.fit(X, Y)
    assert_array_equal(model.predict(X), first)


def test_every_parameter_reaches_the_model():
    """A parameter of the face that the core does not know, or the other way round, would go unnoticed for long."""
    face = set(MOMoGPRegressor().get_params()) - {"random_state"}
    core = {name for name, field in momostream.batch.model.Settings.__dataclass_fields__.items() if field.init} - {
        "seed"
    }
    assert face == core
    for name in face:
        assert getattr(MOMoGPRegressor(), name) == momostream.batch.model.Settings.__dataclass_fields__[name].default
