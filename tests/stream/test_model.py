"""The row model: what must hold after any history."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.tuning import ResumableTuner
from momostream.stream.leaf import Leaf
from momostream.stream.model import StreamModel
from momostream.stream.settings import StreamSettings
from momostream.stream.tokens import next_token
from momostream.stream.tree import Tree

SMALL = {"max_points": 24, "tuning_points": 24, "tuning_evaluations": 4, "first_tuning": 8, "seed": 0}

CONFIGURATIONS = {
    "default": {},
    "sum": {"n_components": 2},
    "sum, all levels": {"n_components": 2, "mixture_depth": None, "max_points": 40},
    "groups": {"n_groups": 2},
    "independent": {"coupling": "independent"},
    "posterior": {"weights": "posterior", "n_components": 2},
    "uniform": {"weights": "uniform"},
    "posterior, independent": {"weights": "posterior", "coupling": "independent"},
    "no lags": {"experts": ("matern52+linear",)},
    "lags only": {"experts": ("lags",)},
    "no tuning": {"tuning_evaluations": 0},
}
each_configuration = pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())


def new_model(n_inputs=2, n_targets=2, **options):
    return StreamModel(StreamSettings(**{**SMALL, **options}), n_inputs, n_targets)


def series(n_rows, n_inputs=2, n_targets=2, seed=0, gaps=0.0, input_gaps=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_inputs))
    t = np.arange(n_rows)[:, None]
    Y = np.sin(0.15 * t + np.arange(n_targets)) + 0.1 * rng.normal(size=(n_rows, n_targets))
    Y += np.tanh(X).sum(axis=1, keepdims=True)
    Y[rng.random(Y.shape) < gaps] = np.nan
    X[rng.random(X.shape) < input_gaps] = np.nan
    return X, Y


def run(model, X, Y, start=0):
    """Predict and learn each row; returns the means."""
    means = np.empty(Y.shape)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        means[i] = model.predict(x, float(start + i))
        model.learn(x, y, float(start + i))
    return means


def shown(model, x, time):
    """Everything that a prediction can show."""
    mean = model.predict(x, time).copy()
    distribution = model.distribution()()
    return np.concatenate(
        [mean, distribution.std.ravel(), distribution.cov.ravel(), distribution.log_pdf(mean[None] + 0.1).ravel()]
    )


def again(model):
    return StreamModel.from_state(model.settings, model.state(), model.n_inputs, model.n_targets)


# Purity and determinism


@each_configuration
def test_prediction_changes_nothing(options):
    X, Y = series(90, gaps=0.1, input_gaps=0.1)
    quiet, asked = new_model(**options), new_model(**options)
    rng = np.random.default_rng(1)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        for _ in range(int(rng.integers(3))):
            asked.predict(rng.normal(size=2), float(i + rng.normal()))
        if i % 10 == 3:
            asked.distribution()
            asked.predict_many(X[:5], np.arange(5.0))
            asked.explain(3)
        quiet.learn(x, y, float(i))
        asked.learn(x, y, float(i))
    assert_array_equal(shown(quiet, X[3], 95.0), shown(asked, X[3], 95.0))


@each_configuration
def test_the_same_seed_gives_the_same_floats(options):
    X, Y = series(80, gaps=0.1)
    first, second = (run(new_model(**options), X, Y) for _ in range(2))
    assert_array_equal(first, second)
    assert np.isfinite(first).all()


@each_configuration
@pytest.mark.parametrize("window", [None, 45])
def test_nothing_but_numbers_comes_out(options, window):
    X, Y = series(110, gaps=0.3, input_gaps=0.2, seed=5)
    model = new_model(window=window, **options)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        assert np.isfinite(model.predict(x, float(i))).all()
        if i % 9 == 0:
            assert np.isfinite(shown(model, x, float(i))).all()
        model.learn(x, y, float(i))
    distribution = model.predict_many(X[:7], np.arange(110.0, 117.0))
    assert np.isfinite(distribution.mean).all()
    assert (distribution.std > 0.0).all()


@pytest.mark.parametrize("kind", ["constant target", "constant input", "no inputs", "huge offset", "tiny", "repeats"])
def test_degenerate_streams(kind):
    n_inputs = 0 if kind == "no inputs" else 2
    X, Y = series(100, n_inputs=n_inputs)
    if kind == "constant target":
        Y[:, 1] = 7.0
    elif kind == "constant input":
        X[:, 0] = 1e9
    elif kind == "huge offset":
        X, Y = X + 1e8, Y + 1e8
    elif kind == "tiny":
        X, Y = X * 1e-12, Y * 1e-12
    elif kind == "repeats":
        X[:], Y[:] = X[0], Y[0]
    means = run(new_model(n_inputs), X, Y)
    assert np.isfinite(means).all()
    spread = np.nanstd(Y, axis=0)
    away = np.abs(means - Y)[60:].mean(axis=0)
    assert (away <= 1.2 * spread + 1e-6 * np.abs(Y).mean()).all()


# Evicting and saving


@each_configuration
def test_evicting_changes_nothing(options):
    X, Y = series(130, gaps=0.1)
    free, tight = new_model(**options), new_model(memory_budget=0, **options)
    assert_array_equal(run(free, X, Y), run(tight, X, Y))


def test_the_budget_is_kept():
    X, Y = series(300)
    budget = 60_000
    model = new_model(memory_budget=budget, tuning_evaluations=0)
    run(model, X, Y)
    held = sum(leaf.nbytes for tree in model.trees for leaf in tree.leaves())
    most = max(leaf.nbytes for tree in model.trees for leaf in tree.leaves())
    # Budgets are looked at now and then, and what was just used stays.
    assert held <= budget + 8 * most


@each_configuration
@pytest.mark.parametrize("window", [None, 40])
def test_a_restored_model_resumes_bit_for_bit(options, window):
    X, Y = series(110, gaps=0.1, input_gaps=0.05)
    model = new_model(window=window, **options)
    kinds = set()
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.learn(x, y, float(i))
        kinds.update(model.jobs)
        if i % 13 == 5:
            copy = again(model)
            assert copy.jobs == model.jobs
            assert_array_equal(shown(copy, X[0], i + 1.0), shown(model, X[0], i + 1.0))
            model, old = copy, model
            for j in range(i + 1, min(i + 7, len(X))):
                old.learn(X[j], Y[j], float(j))
            ahead = again(model)
            for j in range(i + 1, min(i + 7, len(X))):
                ahead.learn(X[j], Y[j], float(j))
            assert_array_equal(shown(ahead, X[0], i + 9.0), shown(old, X[0], i + 9.0))
    if model.trees and model.settings.tuning_evaluations:
        assert "tune" in kinds


def test_a_state_may_be_taken_at_any_time():
    # Tuning of a leaf may end just before it is cut.
    X, Y = series(160, n_inputs=1)
    model = new_model(1, max_points=20, tuning_evaluations=3)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.learn(x, y, float(i))
        assert again(model).jobs == model.jobs


def test_a_state_is_a_picture_of_its_time():
    X, Y = series(80)
    model = new_model()
    run(model, X[:50], Y[:50])
    state = model.state()
    expected = shown(StreamModel.from_state(model.settings, state, model.n_inputs, model.n_targets), X[0], 51.0)
    run(model, X[50:], Y[50:], start=50)
    assert_array_equal(
        shown(StreamModel.from_state(model.settings, state, model.n_inputs, model.n_targets), X[0], 51.0), expected
    )


def test_retuning_that_waits_is_saved():
    X, Y = series(60)
    model = new_model()
    run(model, X[:40], Y[:40])
    model.circuits.finish()
    model.retune()
    copy = again(model)
    assert_array_equal(run(copy, X[40:], Y[40:], 40), run(model, X[40:], Y[40:], 40))


# Many rows at once


@pytest.mark.parametrize("gaps", [0.0, 0.2])
@pytest.mark.parametrize("sizes", [[200], [3] * 70, [64, 5, 4, 64, 63]])
@pytest.mark.parametrize("options", [{}, {"coupling": "independent"}, {"weights": "posterior"}])
def test_many_rows_are_learnt_as_one_by_one(gaps, sizes, options):
    X, Y = series(sum(sizes), gaps=gaps, input_gaps=gaps / 2)
    options = {**options, "max_points": 300, "tuning_evaluations": 0}
    one, many = new_model(**options), new_model(**options)
    known = ~np.isnan(Y).all(axis=1)
    for i in np.flatnonzero(known):
        one.learn(X[i], Y[i], float(i))
    at = 0
    for size in sizes:
        rows = slice(at, at + size)
        many.learn_many(X[rows], Y[rows], np.arange(at, at + size, dtype=float))
        at += size
    assert many.n_learnt == one.n_learnt
    assert_allclose(many.inputs.mean, one.inputs.mean)
    for x in X[~np.isnan(X).any(axis=1)][:10]:
        assert_allclose(many.predict(x, at + 1.0), one.predict(x, at + 1.0), rtol=1e-6, atol=1e-6)


def test_small_batches_do_the_work_too():
    X, Y = series(400)
    model = new_model()
    for at in range(0, 400, 4):
        model.learn_many(X[at : at + 4], Y[at : at + 4], None)
    # Leaves are not left to grow without end.
    assert max(leaf.n_rows for tree in model.trees for leaf in tree.leaves()) < 100
    assert model.n_learnt == 400


def test_small_batches_in_the_long_run():
    X, Y = series(3400)
    model = new_model(experts=("lags",))
    model.learn_many(X[:2600], Y[:2600], None)
    for at in range(2600, 3400, 4):
        model.learn_many(X[at : at + 4], Y[at : at + 4], None)
    assert model.n_learnt == 3400


@each_configuration
def test_many_predictions_are_those_of_single_rows(options):
    X, Y = series(90, input_gaps=0.1)
    model = new_model(**options)
    run(model, X[:80], Y[:80])
    times = np.arange(80.0, 90.0)
    distribution = model.predict_many(X[80:], times)
    for i, (x, time) in enumerate(zip(X[80:], times, strict=True)):
        assert_allclose(distribution.mean[i], model.predict(x, time), rtol=1e-8, atol=1e-10)
        assert_allclose(distribution.std[i], model.distribution()().std[0], rtol=1e-7)


# Bounded work, bounded rows


@each_configuration
def test_a_row_never_does_two_things(options, monkeypatch):
    counts = {"advance": 0, "split": 0, "build": 0}

    def counted(cls, name):
        original = getattr(cls, name)

        def wrapper(self, *args):
            counts[name] += 1
            return original(self, *args)

        monkeypatch.setattr(cls, name, wrapper)

    counted(ResumableTuner, "advance")
    counted(Tree, "split")
    counted(Leaf, "build")
    X, Y = series(150, gaps=0.1)
    model = new_model(**options)
    total = dict.fromkeys(counts, 0)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.predict(x, float(i))
        counts.update(dict.fromkeys(counts, 0))
        model.learn(x, y, float(i))
        assert sum(counts.values()) <= 1
        total = {name: total[name] + counts[name] for name in total}
    if model.trees:
        assert total["split"] > 0
        assert total["advance"] > 0 or not model.settings.tuning_evaluations


@each_configuration
@pytest.mark.parametrize("window", [1, 7, 40])
def test_the_window_is_kept(options, window):
    X, Y = series(130, gaps=0.1)
    model = new_model(window=window, **options)
    for i, (x, y) in enumerate(zip(X[:70], Y[:70], strict=True)):
        assert np.isfinite(model.predict(x, float(i))).all()
        model.learn(x, y, float(i))
        assert len(model.rows) <= window
        for tree in model.trees:
            assert all(leaf.n_rows <= window for leaf in tree.leaves())
    model.learn_many(X[70:], Y[70:], np.arange(70.0, 130.0))
    assert len(model.rows) <= window
    assert np.isfinite(model.predict(X[0], 130.0)).all()


@pytest.mark.parametrize("action", ["retune", "widen", "forget"])
def test_drift_may_be_answered_at_any_time(action):
    X, Y = series(90)
    model = new_model()
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.predict(x, float(i))
        # Between the prediction and the learning of a row, too.
        if i % 17 == 11:
            model.react(action)
        model.learn(x, y, float(i))
    assert np.isfinite(shown(model, X[0], 90.0)).all()


CHANGES = {
    "tuning": lambda model: model.circuits.finish(),
    "hyper-parameters": lambda model: model.set_hyperparameters({}, 0.2),
    "forget": lambda model: model.react("forget"),
    "widen": lambda model: model.react("widen"),
    "columns": lambda model: model.widen(np.empty(0), 0),
    "eviction": lambda model: [leaf.evict() for tree in model.trees for leaf in tree.leaves()],
    "few predictions": lambda model: model.predict_many(np.ones((3, 2)), np.arange(3.0)),
    "many predictions": lambda model: model.predict_many(np.ones((40, 2)), np.arange(40.0)),
}


@each_configuration
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_row_is_predicted_again_before_it_is_learnt_where_the_model_has_changed(options, change):
    X, Y = series(60)
    asked, quiet = new_model(**options), new_model(**options)
    for model in (asked, quiet):
        run(model, X[:50], Y[:50])
    asked.predict(X[50], 50.0)
    for model in (asked, quiet):
        change(model)
    for model in (asked, quiet):
        model.learn(X[50], Y[50], 50.0)
    assert_array_equal(shown(asked, X[51], 51.0), shown(quiet, X[51], 51.0))


# Units and order of columns


@pytest.mark.parametrize("scale", [2.0**20, 2.0**-30])
@pytest.mark.parametrize("options", [{}, {"weights": "posterior"}, {"experts": ("lags",)}, {"experts": ("matern32",)}])
def test_units_of_targets_do_not_matter(scale, options):
    X, Y = series(120)
    options = {**options, "tuning_evaluations": 0}
    means = run(new_model(**options), X, Y)
    scaled = run(new_model(**options), X, scale * Y)
    assert_allclose(scaled[20:] / scale, means[20:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"experts": ("lags",)}, {"experts": ("matern32",)}])
def test_units_of_inputs_do_not_matter(options):
    X, Y = series(120)
    means = run(new_model(**options), X, Y)
    scaled = run(new_model(**options), 2.0**20 * X, Y)
    assert_allclose(scaled[60:], means[60:], atol=0.3)


@pytest.mark.parametrize("options", [{}, {"weights": "posterior"}, {"coupling": "independent"}])
def test_order_of_columns_does_not_matter(options):
    X, Y = series(100, n_inputs=3, n_targets=3)
    options = {**options, "tuning_evaluations": 0, "max_points": 40}
    means = run(new_model(3, 3, **options), X, Y)
    turned = run(new_model(3, 3, **options), np.ascontiguousarray(X[:, ::-1]), np.ascontiguousarray(Y[:, ::-1]))
    assert_allclose(turned[:, ::-1], means, rtol=1e-6, atol=1e-8)


# Distributions


@pytest.mark.parametrize("options", [{}, {"weights": "posterior", "n_components": 2}, {"weights": "uniform"}])
def test_densities_integrate_to_one_and_have_the_mean(options):
    X, Y = series(80, n_targets=1)
    model = new_model(2, 1, **options)
    run(model, X[:70], Y[:70])
    mean = model.predict(X[75], 75.0).copy()
    distribution = model.distribution()()
    assert_allclose(distribution.mean[0], mean, rtol=1e-9, atol=1e-12)
    # Tails are heavy: a grid in the inverse of a hyperbolic sine.
    u = np.linspace(-16.0, 16.0, 1001)
    y = mean[0] + distribution.std[0, 0] * np.sinh(u)
    density = np.exp([distribution.log_pdf([[value]])[0] for value in y])
    assert_allclose(np.trapezoid(density, y), 1.0, atol=2e-3)


@each_configuration
def test_the_distribution_has_the_mean_of_the_prediction(options):
    X, Y = series(70)
    model = new_model(**options)
    run(model, X, Y)
    mean = model.predict(X[0] + 0.1, 70.0).copy()
    assert_allclose(model.distribution()().mean[0], mean, rtol=1e-9, atol=1e-12)


@each_configuration
def test_a_distribution_that_was_handed_out_does_not_change(options):
    X, Y = series(70)
    model = new_model(**options)
    run(model, X[:50], Y[:50])
    model.predict(X[50], 50.0)
    distribution = model.distribution()
    mean = model.predict(X[50], 50.0).copy()
    run(model, X[50:], Y[50:], 50)
    assert_allclose(distribution().mean[0], mean, rtol=1e-9, atol=1e-12)


# Columns that come later


@each_configuration
@pytest.mark.parametrize("seed", range(2))
def test_random_histories(options, seed):
    """Widen, drop, save, learn in blocks, in any order: always numbers, and the same after a round trip."""
    rng = np.random.default_rng(seed)
    model = new_model(1, 1, window=60 if seed else None, memory_budget=0, **options)
    for _ in range(14):
        n = int(rng.integers(1, 14))
        X, Y = series(n, model.n_inputs, model.n_targets, int(rng.integers(1000)), gaps=0.2, input_gaps=0.1)
        kind = rng.integers(5)
        if kind == 0 and model.n_inputs + model.n_targets < 7:
            model.widen(rng.normal(size=int(rng.integers(0, 2))), int(rng.integers(0, 2)))
        elif kind == 1:
            model.learn_many(X, Y, None)
        elif kind == 2:
            model = again(model)
        else:
            for x, y in zip(X, Y, strict=True):
                model.learn(x, y, float(model.n_learnt))
        x = rng.normal(size=model.n_inputs)
        numbers = shown(model, x, float(model.n_learnt))
        assert np.isfinite(numbers).all()
        assert_array_equal(model.predict(x, float(model.n_learnt)), numbers[: model.n_targets])


def test_a_new_target_leaves_the_old_ones_alone():
    X, Y = series(160, n_targets=1)
    plain, wide = new_model(2, 1), new_model(2, 1)
    run(plain, X[:80], Y[:80])
    run(wide, X[:80], Y[:80])
    wide.widen(np.zeros(0), 1)
    both = np.column_stack([Y, 1e6 + 1e3 * Y])
    both[:95, 1] = np.nan
    before = run(plain, X[80:], Y[80:], 80)
    after = run(wide, X[80:], both[80:], 80)
    old, new = (np.abs(before - Y[80:])).mean(), (np.abs(after[:, :1] - Y[80:])).mean()
    assert new < 1.3 * old
    assert np.abs(after[50:, 1] - both[130:, 1]).mean() < 1.5e3


# Against another implementation


def test_one_leaf_is_a_gaussian_process(monkeypatch):
    monkeypatch.setattr("momostream.stream.leaf.SINGLE", np.inf)
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    kernels = gaussian_process.kernels
    X, Y = series(40, n_targets=1)
    model = new_model(
        2, 1, experts=("matern32",), coupling="independent", discount=1.0, tuning_evaluations=0, max_points=100
    )
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        model.learn(x, y, float(i))
    lengths, noise = [1.3, 0.7], 0.05
    model.set_hyperparameters({1: lengths[0], 2: lengths[1]}, noise)
    model.predict(X[0], 40.0)
    leaf = next(model.trees[0].leaves())
    offset, scale = leaf.outputs[0, 0], leaf.outputs[1, 0]
    reference = gaussian_process.GaussianProcessRegressor(
        kernels.Matern(lengths, nu=1.5) + kernels.WhiteKernel(noise + 1e-8), alpha=0.0, optimizer=None
    ).fit(X, (Y[:, 0] - offset) / scale)
    for x in np.random.default_rng(9).normal(size=(8, 2)):
        mean, deviation = reference.predict(x[None], return_std=True)
        assert_allclose(model.predict(x, 99.0), offset + scale * mean, rtol=1e-8)
        location, std = np.empty((2, 1))
        leaf.predict(x, location, std, next_token())
        square = leaf.outputs[2] / leaf.outputs[3]
        assert_allclose(std, scale * deviation * np.sqrt(square), rtol=1e-8)
