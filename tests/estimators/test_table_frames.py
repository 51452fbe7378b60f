"""Frames in and out of the estimator of scikit-learn: names, order and types of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.estimators.tables import INPUTS, TARGETS, quick, toy


def test_pandas_names_are_kept():
    X, Y = toy()
    model = quick(max_points=40).fit(pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS))
    frame = pd.DataFrame(X[:9], columns=INPUTS, index=range(100, 109))
    assert list(model.feature_names_in_) == INPUTS
    assert model.target_names_ == tuple(TARGETS)
    distribution = model.predict_distribution(frame)
    assert distribution.targets == tuple(TARGETS)
    assert distribution.condition({"load": Y[:9, 1]}).targets == ("power",)
    assert_array_equal(model.predict(frame), quick(max_points=40).fit(X, Y).predict(X[:9]))
    assert list(model.weights_.columns) == TARGETS
    assert any(f"gate {name} at" in model.describe() for name in INPUTS)


def test_columns_in_another_order_are_refused():
    X, Y = toy()
    model = quick().fit(pd.DataFrame(X, columns=INPUTS), Y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X, columns=INPUTS[::-1]))


def test_pandas_series_as_target():
    X, Y = toy()
    model = quick().fit(pd.DataFrame(X, columns=INPUTS), pd.Series(Y[:, 0], name="power"))
    assert model.target_names_ == ("power",)
    assert model.predict(pd.DataFrame(X[:9], columns=INPUTS)).shape == (9,)
    assert model.predict_distribution(pd.DataFrame(X[:9], columns=INPUTS)).targets == ("power",)


def test_nullable_and_integer_columns():
    X, Y = toy(20)
    frame = pd.DataFrame({"a": pd.array([*range(19), None], dtype="Int64"), "b": X[:, 0].astype("float32")})
    targets = pd.DataFrame({"y": pd.array([None, *range(19)], dtype="Float64"), "z": np.arange(20)})
    model = quick().fit(frame, targets)
    assert_allclose(model.model_.input_means[0], 9.0)
    assert np.isfinite(model.predict(frame)).all()


def test_polars_frames():
    pl = pytest.importorskip("polars")
    X, Y = toy()
    model = quick().fit(pl.DataFrame(X, schema=INPUTS), pl.DataFrame(Y, schema=TARGETS))
    assert list(model.feature_names_in_) == INPUTS
    assert model.target_names_ == tuple(TARGETS)
    plain = quick().fit(X, Y)
    frame = pl.DataFrame(X[:9], schema=INPUTS)
    assert_array_equal(model.predict(frame), plain.predict(X[:9]))
    assert model.predict_distribution(frame).targets == tuple(TARGETS)
    model.partial_fit(frame, pl.DataFrame(Y[:9], schema=TARGETS))
    assert_array_equal(model.predict(frame), plain.partial_fit(X[:9], Y[:9]).predict(X[:9]))


def test_polars_series_and_nulls():
    pl = pytest.importorskip("polars")
    X, Y = toy(20)
    frame = pl.DataFrame({"a": [None, *X[1:, 0]], "b": X[:, 1]})
    model = quick().fit(frame, pl.Series("power", [*Y[:-1, 0], None]))
    assert model.target_names_ == ("power",)
    assert model.predict(frame).shape == (20,)
    # The last row has no target and does not count.
    assert_allclose(model.model_.input_means[0], X[1:-1, 0].mean())
    assert model.model_.n_rows == 19
    assert quick().fit(frame, pl.Series(Y[:, 0])).target_names_ is None


def test_arrays_have_no_names():
    X, Y = toy()
    model = quick().fit(X.tolist(), Y.tolist())
    assert model.target_names_ is None
    assert not hasattr(model, "feature_names_in_")
    assert model.predict_distribution(X[:2]).targets is None
    assert list(model.weights_.columns) == ["y0", "y1"]
    assert model.n_features_in_ == 3


def test_names_of_an_earlier_fit_are_forgotten():
    X, Y = toy()
    model = quick().fit(pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS)).fit(X, Y)
    assert model.target_names_ is None
    assert not hasattr(model, "feature_names_in_")


# ------------------------------------------------------------------ names and types of columns


def test_integer_names_of_targets_are_names_not_positions():
    X, Y = toy(30)
    frame = pd.DataFrame({1: Y[:, 0], 0: Y[:, 1]})
    distribution = quick(max_iterations=1).fit(X, frame).predict_distribution(X)
    assert distribution.targets == (1, 0)
    assert distribution.condition({0: Y[:, 1]}).targets == (1,)
    plain = quick(max_iterations=1).fit(X, Y).predict_distribution(X)
    assert_array_equal(distribution.condition({0: Y[:, 1]}).mean, plain.condition({1: Y[:, 1]}).mean)


def test_frames_of_targets_are_read_by_name():
    X, Y = toy(30)
    frame = pd.DataFrame(Y, columns=TARGETS)
    model = quick(max_iterations=1).fit(X, frame)
    distribution = model.predict_distribution(X)
    assert_array_equal(distribution.log_pdf(frame[TARGETS[::-1]]), distribution.log_pdf(Y))
    with pytest.raises(ValueError, match="expected the columns"):
        distribution.log_pdf(frame.rename(columns={TARGETS[0]: "other"}))
    first = model.predict(X)
    with pytest.raises(ValueError, match="y has the columns"):
        model.partial_fit(X, frame[TARGETS[::-1]])
    assert_array_equal(model.predict(X), first)


def test_a_covariate_may_be_called_like_a_level_of_the_table():
    X, Y = toy(30)
    table = quick(max_iterations=1).fit(pd.DataFrame(X, columns=["noise", "rows", "region"]), Y).lengthscales()
    assert list(table.columns) == ["noise", "rows", "region"]
    assert (table.index.get_level_values("rows") == 30).all()


@pytest.mark.parametrize("when", [pd.Timestamp("2020-01-01"), pd.NaT])
def test_dates_are_refused(when):
    X, Y = toy(10)
    frame = pd.DataFrame(X, columns=INPUTS)
    frame["when"] = pd.Series([when] * 10, dtype="datetime64[ns]")
    with pytest.raises(TypeError, match="X holds the date or duration .* at row 0, column 'when'"):
        quick().fit(frame, Y)
    with pytest.raises(TypeError, match="X holds dates or durations"):
        quick().fit(frame[["when"]], Y)


def test_intervals_and_quantiles_are_frames():
    X, Y = toy()
    model = quick().fit(pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS))
    frame = pd.DataFrame(X[:9], columns=INPUTS, index=range(100, 109))
    interval, quantiles = model.predict_interval(frame, 0.8), model.predict_quantiles(frame, [0.1, 0.5, 0.9])
    lower, upper = model.predict_distribution(frame).interval(0.8)
    for j, name in enumerate(TARGETS):
        assert_allclose(interval[name], np.column_stack([lower[:, j], upper[:, j]]), rtol=1e-6)
        assert_allclose(quantiles[name][[0.1, 0.9]], interval[name], rtol=1e-6)
    assert interval.index.equals(frame.index)
    assert quick().fit(X, Y[:, 0]).predict_interval(X[:3]).shape == (3, 2)


def test_text_gets_advice():
    X, Y = toy(3)
    with pytest.raises(ValueError, match="text 'idle' at row 1, column 'mode': .* for example with OneHotEncoder"):
        quick().fit(pd.DataFrame({"mode": ["1", "idle", "2"]}), Y)
