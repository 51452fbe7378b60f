"""The estimator of scikit-learn: its contract, presets, shapes, tables of weights and lengthscales, learning on."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import momostream
from momostream.batch.nodes import Circuit
from momostream.estimators.presets import PRESETS
from momostream.estimators.table import MOMoGPRegressor
from tests.estimators.tables import INPUTS, TARGETS, quick, toy


@pytest.mark.contract
@parametrize_with_checks(
    [
        MOMoGPRegressor(max_iterations=5),
        MOMoGPRegressor(experts=("matern32",), max_points=20, max_iterations=2),
        MOMoGPRegressor(("residual rbf+linear", "linear"), weights="uniform", memory_budget=1000, max_iterations=2),
        MOMoGPRegressor.from_preset("momogp", max_points=40, max_iterations=2),
    ]
)
def test_contract(estimator, check):
    check(estimator)


# ------------------------------------------------------------------ the family


def test_one_independent_region_is_scikit_learn_s_gaussian_process():
    X, Y = toy(40, n_outputs=1)
    model = quick(experts=("matern32",), coupling="independent", weights="uniform").fit(X, Y[:, 0])
    (region,) = model.model_.experts[0].regions
    variance = region.moments()[0][0, 0] * region.scale[0] ** 2
    kernel = ConstantKernel(variance) * Matern(model.lengthscales().to_numpy()[0], nu=1.5)
    noise = WhiteKernel(variance * model.lengthscales().index.get_level_values("noise")[0])
    other = GaussianProcessRegressor(kernel + noise, optimizer=None).fit(X, Y[:, 0] - Y.mean())
    T = toy(10, seed=1)[0]
    mean, std = model.predict(T, return_std=True)
    expected, expected_std = other.predict(T, return_std=True)
    assert_allclose(mean, expected + Y.mean(), rtol=1e-7, atol=1e-9)
    assert_allclose(std, expected_std, rtol=1e-7)
    assert_allclose(model.predict(T, return_cov=True)[1], other.predict(T, return_cov=True)[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    X, Y = toy(50)
    model = MOMoGPRegressor.from_preset(name, max_iterations=2, max_points=30, random_state=0)
    parameters = model.get_params()
    for key, value in {**PRESETS[name], "max_iterations": 2, "max_points": 30}.items():
        assert parameters[key] == value
    assert model.fit(X, Y).score(X, Y) > 0.8


def test_unknown_preset():
    with pytest.raises(ValueError, match="unknown preset 'gp': use one of 'exact', 'sumgp', 'dsmgp', 'momogp'"):
        MOMoGPRegressor.from_preset("gp")


def test_the_package_exports_what_users_need():
    assert momostream.Circuit is Circuit
    assert momostream.PRESETS is PRESETS
    assert momostream.estimators.table.MOMoGPRegressor is MOMoGPRegressor


def test_better_than_the_mean_and_calibrated_on_new_rows():
    X, Y = toy(150)
    model = MOMoGPRegressor(random_state=0).fit(X, Y)
    T, truth = toy(200, seed=1)
    assert model.score(T, truth) > 0.9
    lower, upper = model.predict_distribution(T).interval(0.9)
    assert 0.82 < np.mean((lower < truth) & (truth < upper)) < 0.97


# ------------------------------------------------------------------ tools around it


def test_pipeline_and_scaler_change_nothing_but_round_off():
    X, Y = toy()
    plain = quick(max_iterations=0).fit(X, Y)
    pipeline = make_pipeline(StandardScaler(), quick(max_iterations=0)).fit(X, Y)
    mean, std = pipeline.predict(X[:9], return_std=True)
    assert_allclose(mean, plain.predict(X[:9]), rtol=1e-6, atol=1e-8)
    assert std.shape == (9, 2)


def test_grid_search():
    X, Y = toy(60)
    grid = {"experts": [("matern32",), ("linear",)], "max_points": [None, 30]}
    search = GridSearchCV(quick(), grid, cv=3).fit(X, Y)
    assert search.best_params_["experts"] == ("matern32",)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(X[:2]).shape == (2, 2)


def test_cross_validation():
    X, Y = toy(80)
    scores = cross_val_score(quick(), X, Y, cv=4)
    assert scores.shape == (4,)
    assert scores.min() > 0.8


def test_score_is_the_mean_coefficient_of_determination():
    X, Y = toy()
    model = quick().fit(X, Y)
    T, truth = toy(30, seed=1)
    each = 1 - ((truth - model.predict(T)) ** 2).sum(axis=0) / ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    assert_allclose(model.score(T, truth), each.mean())


def test_clone_copies_parameters_only():
    structure = Circuit()
    structure.add_region(0, [0, 1])
    model = quick(max_points=17, experts=["rbf"], structure=structure).fit(*toy())
    twin = clone(model)
    assert not hasattr(twin, "model_")
    assert {**twin.get_params(), "structure": None} == {**model.get_params(), "structure": None}
    assert twin.structure.describe() == structure.describe()
    assert_array_equal(twin.fit(*toy()).predict(toy()[0]), model.predict(toy()[0]))


@pytest.mark.parametrize("parameters", [{}, {"max_points": 20, "memory_budget": 5000}])
def test_pickle_keeps_every_bit(parameters):
    X, Y = toy()
    model = quick(**parameters).fit(X[:50], Y[:50])
    twin = pickle.loads(pickle.dumps(model))
    for each in (model, twin):
        each.partial_fit(X[50:], Y[50:])
    for first, second in zip(model.predict(X, return_std=True), twin.predict(X, return_std=True), strict=True):
        assert_array_equal(first, second)
    assert_array_equal(model.sample_y(X[:3], 5), twin.sample_y(X[:3], 5))


def test_random_state_may_be_a_generator_or_none():
    X, Y = toy(30)
    one, two = (
        quick(random_state=np.random.RandomState(7), n_groups=2, max_points=12).fit(X, Y).predict(X) for _ in range(2)
    )
    assert_array_equal(one, two)
    assert np.isfinite(quick(random_state=None).fit(X, Y).predict(X)).all()
    with pytest.raises(ValueError, match="seed"):
        quick(random_state="seven").fit(X, Y)


# ------------------------------------------------------------------ shapes


@pytest.mark.parametrize("weights", ["stacking", "uniform"])
def test_one_dimensional_targets_give_one_dimensional_answers(weights):
    X, Y = toy()
    flat, column = quick(weights=weights).fit(X, Y[:, 0]), quick(weights=weights).fit(X, Y[:, :1])
    assert flat.predict(X[:9]).shape == (9,)
    assert column.predict(X[:9]).shape == (9, 1)
    for options in ({"return_std": True}, {"return_cov": True}):
        for one, two in zip(flat.predict(X[:9], **options), column.predict(X[:9], **options), strict=True):
            assert_array_equal(one, two[..., 0])
    assert flat.sample_y(X[:9], 4).shape == (9, 4)
    assert column.sample_y(X[:9], 4).shape == (9, 1, 4)
    assert_array_equal(flat.sample_y(X[:9], 4), column.sample_y(X[:9], 4)[:, 0])
    flat.partial_fit(X[:3], Y[:3, 0])
    assert flat.predict(X[:9]).shape == (9,)


@pytest.mark.parametrize("parameters", [{}, {"max_points": 25, "weights": "uniform"}, {"experts": ("linear",)}])
def test_std_and_cov_agree(parameters):
    X, Y = toy()
    model = quick(**parameters).fit(X, Y)
    T = toy(12, seed=1)[0]
    mean, std = model.predict(T, return_std=True)
    mean_again, cov = model.predict(T, return_cov=True)
    assert mean.shape == std.shape == (12, 2)
    assert cov.shape == (12, 12, 2)
    assert_allclose(model.predict(T), mean, rtol=1e-9, atol=1e-12)
    assert_allclose(mean_again, mean)
    for p in range(2):
        assert_allclose(np.diag(cov[:, :, p]), std[:, p] ** 2)
        assert np.linalg.eigvalsh(cov[:, :, p])[0] > 0
    distribution = model.predict_distribution(T)
    assert_array_equal(distribution.mean, mean)
    assert_array_equal(distribution.std, std)
    assert distribution.cov.shape == (12, 2, 2)
    assert_allclose(np.diagonal(distribution.cov, axis1=1, axis2=2), std**2)


def test_rows_that_are_near_each_other_covary():
    X, Y = toy(30)
    model = quick(experts=("matern32",)).fit(X, Y[:, 0])
    T = np.array([[8.0, 0, 0], [8.1, 0, 0], [-8.0, 0, 0]])
    _, cov = model.predict(T, return_cov=True)
    correlation = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert correlation[0, 1] > 0.8
    assert abs(correlation[0, 2]) < 0.2


def test_std_and_cov_at_once_are_refused():
    model = quick().fit(*toy(20))
    with pytest.raises(RuntimeError, match="at most one of return_std and return_cov"):
        model.predict(toy()[0], return_std=True, return_cov=True)


@pytest.mark.parametrize("weights", ["stacking", "uniform"])
def test_samples_have_the_moments_of_the_law(weights):
    X, Y = toy(80)
    model = quick(weights=weights).fit(X, Y)
    T = toy(3, seed=1)[0]
    drawn = model.sample_y(T, 20_000, random_state=0)
    assert drawn.shape == (3, 2, 20_000)
    distribution = model.predict_distribution(T)
    assert_allclose(drawn.mean(axis=2), distribution.mean, atol=0.02)
    for q in (0.05, 0.5, 0.95):
        assert_allclose(distribution.cdf(np.quantile(drawn, q, axis=2)), q, atol=0.01)
    for i in range(3):
        expected = distribution.cov[i, 0, 1] / np.sqrt(distribution.cov[i, 0, 0] * distribution.cov[i, 1, 1])
        assert_allclose(np.corrcoef(drawn[i])[0, 1], expected, atol=0.06)


def test_samples_follow_their_seed():
    X, Y = toy(30)
    model = quick().fit(X, Y)
    assert model.sample_y(X[:4]).shape == (4, 2, 1)
    assert_array_equal(model.sample_y(X[:4], 3, random_state=5), model.sample_y(X[:4], 3, random_state=5))
    assert np.abs(model.sample_y(X[:4], 3, random_state=5) - model.sample_y(X[:4], 3, random_state=6)).max() > 0


def test_read_only_and_fortran_ordered_arrays():
    X, Y = toy()
    expected = quick(max_points=30).fit(X, Y).predict(X)
    X2, Y2 = np.asfortranarray(X), np.asfortranarray(Y)
    X2.flags.writeable = Y2.flags.writeable = False
    assert_array_equal(quick(max_points=30).fit(X2, Y2).predict(X2), expected)


def test_fit_does_not_touch_the_data():
    X, Y = toy()
    X[3, 0], Y[4, 1] = np.nan, np.nan
    before = X.copy(), Y.copy()
    model = quick(max_points=30).fit(X, Y)
    model.partial_fit(X[:5], Y[:5])
    model.predict(X)
    assert_array_equal(X, before[0])
    assert_array_equal(Y, before[1])
    # Nor does the model change when the caller's arrays do.
    first = model.predict(before[0][10:20])
    X[:], Y[:] = 0.0, 0.0
    assert_array_equal(model.predict(before[0][10:20]), first)


# ------------------------------------------------------------------ looking


def test_weights_are_a_table():
    X, Y = toy()
    for weights in ("stacking", "uniform"):
        table = quick(weights=weights).fit(X, Y).weights_
        assert list(table.index) == ["matern32", "warped matern12", "linear"]
        assert list(table.columns) == ["y0", "y1"]
        assert_allclose(table.sum(axis=0), 1)
    assert_allclose(table.to_numpy(), 1 / 3)


def test_describe():
    X, Y = toy()
    text = quick(max_points=40, experts=("matern32", "linear")).fit(pd.DataFrame(X, columns=INPUTS), Y).describe()
    lines = text.split("\n")
    assert lines[0] == "sum"
    assert lines[1].endswith(": matern32: sum")
    assert lines[-1].endswith(": linear")
    assert sum("region" in line for line in lines) == 4
    assert "(30 rows)" in text
    assert any(f"gate {name} at" in text for name in INPUTS)


def test_lengthscales_are_a_table():
    X, Y = toy()
    frame = pd.DataFrame(X * [1.0, 100.0, 1.0], columns=INPUTS)
    model = quick(experts=("matern32", "linear", "warped rbf"), coupling="independent", max_iterations=30)
    table = model.fit(frame, pd.DataFrame(Y, columns=TARGETS)).lengthscales()
    assert table.index.names == ["expert", "region", "targets", "rows", "noise"]
    assert (table.index.get_level_values("rows") == 60).all() and (table.index.get_level_values("noise") > 0).all()
    table = table.droplevel(["rows", "noise"])
    assert list(table.index) == [
        ("matern32", 0, "power"),
        ("matern32", 1, "load"),
        ("warped rbf", 0, "power"),
        ("warped rbf", 1, "load"),
    ]
    assert list(table.columns) == INPUTS
    assert (table.to_numpy() > 0).all()
    # The third covariate does not matter, the second one is in units of a hundredth.
    assert table.loc[("matern32", 0, "power"), "yaw"] > 3 * table.loc[("matern32", 0, "power"), "wind"]
    assert table.loc[("matern32", 0, "power"), "pitch"] > 50
    assert table.loc[("warped rbf", 0, "power"), "pitch"] < 50


def test_lengthscales_without_circuits():
    assert len(quick(experts=("linear",)).fit(*toy(20)).lengthscales()) == 0


@pytest.mark.parametrize("ask", ["describe", "lengthscales", lambda m: m.weights_, lambda m: m.sample_y(toy()[0])])
def test_nothing_to_say_before_fit(ask):
    with pytest.raises(NotFittedError):
        getattr(quick(), ask)() if isinstance(ask, str) else ask(quick())


# ------------------------------------------------------------------ learning on


def test_the_first_partial_fit_is_fit():
    X, Y = toy()
    assert_array_equal(quick().partial_fit(X, Y).predict(X), quick().fit(X, Y).predict(X))


def test_partial_fit_goes_on_and_fit_starts_afresh():
    X, Y = toy(80)
    model = quick(max_points=50).fit(X[:40], Y[:40])
    T, truth = toy(100, seed=1)
    before = model.score(T, truth)
    assert model.partial_fit(X[40:], Y[40:]) is model
    assert model.score(T, truth) > before
    assert model.model_.n_rows == 80
    assert_array_equal(model.fit(X, Y).predict(T), quick(max_points=50).fit(X, Y).predict(T))


def test_partial_fit_after_a_frame():
    X, Y = toy()
    frame, targets = pd.DataFrame(X, columns=INPUTS), pd.DataFrame(Y, columns=TARGETS)
    model = quick().fit(frame[:50], targets[:50]).partial_fit(frame[50:], targets[50:])
    assert model.target_names_ == tuple(TARGETS)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[INPUTS[::-1]], targets)


def test_missing_values_everywhere():
    X, Y = toy()
    X[5, 1] = X[7, 2] = Y[9, 0] = np.nan
    Y[11] = np.nan
    model = quick(max_points=40).fit(X[:50], Y[:50])
    model.partial_fit(X[50:], np.where(np.arange(2) == 0, np.nan, Y[50:]))
    mean, std = model.predict(np.full((1, 3), np.nan), return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert_array_equal(mean, model.predict(model.model_.input_means[None], return_std=True)[0])
