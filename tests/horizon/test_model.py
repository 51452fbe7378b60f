"""The model of the forecaster: what it learns, what it must not know, what must hold after any history."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.planes import LOCATION, SCALE, WEIGHT
from momostream.horizon import regressions
from momostream.horizon.curved import CurvedLags
from momostream.horizon.model import SEASON_ROWS, HorizonModel
from momostream.horizon.past import Past
from momostream.horizon.regressions import WideLags
from momostream.horizon.settings import LINEAR, HorizonSettings
from momostream.stream.jobs import Jobs
from tests import naive

NAN = np.nan
CIRCUITS = (*LINEAR, "matern32", "clock matern32", "residual matern32")
each_mixture = pytest.mark.parametrize("experts", [LINEAR, CIRCUITS], ids=["linear", "circuits"])


def new_model(n_series=1, n_inputs=0, horizon=3, experts=LINEAR, **options):
    settings = HorizonSettings(horizon=horizon, experts=experts, **{"max_points": 16, "seed": 0, **options})
    return HorizonModel(settings, n_series, n_inputs)


def feed(model, Y, X=None):
    X = np.zeros((len(Y), 0)) if X is None else X
    for y, x in zip(Y, X, strict=True):
        model.learn(y, x)
    return model


def mean(model, X=None):
    """Of each step and series."""
    planes = model.joint(X).planes
    return (planes[WEIGHT] * planes[LOCATION]).sum(axis=0)


def numbers(model, X=None):
    """Everything that a forecast can show."""
    joint = model.joint(X)
    return np.concatenate([joint.planes.ravel(), joint.between_steps.ravel(), joint.between_series.ravel()])


def track(model, Y, X=None):
    """Mean forecasts (rows, horizon, n_series) made at each row."""
    X = np.zeros((len(Y), 0)) if X is None else X
    means = []
    for y, x in zip(Y, X, strict=True):
        model.learn(y, x)
        means.append(mean(model))
    return np.array(means)


def errors_of(means, Y, start):
    """Root mean square error of each step and series, of forecasts made from row `start` on."""
    H = means.shape[1]
    rows = np.arange(start, len(Y) - H)
    return np.array([np.sqrt(np.mean((means[rows, h] - Y[rows + h + 1]) ** 2, axis=0)) for h in range(H)])


def is_distribution(joint):
    planes = joint.planes
    return (
        np.isfinite(planes).all()
        and (planes[2:4] > 0.0).all()
        and (planes[WEIGHT] >= 0.0).all()
        and np.allclose(planes[WEIGHT].sum(axis=0), 1.0)
        and all(np.linalg.eigvalsh(R)[0] > 0.0 for R in (joint.between_steps, joint.between_series))
    )


def autoregression(n_rows, phi=0.8, n_series=1, seed=0):
    rng = np.random.default_rng(seed)
    Y = np.zeros((n_rows, n_series))
    for t in range(1, n_rows):
        Y[t] = phi * Y[t - 1] + rng.normal(size=n_series)
    return Y


def history(n_rows, n_series=2, n_inputs=1, gaps=0.1, seed=0):
    """Series that follow each other, an input and a wave, with gaps."""
    rng = np.random.default_rng(seed)
    Y, X = autoregression(n_rows, 0.9, n_series, seed), rng.normal(size=(n_rows, n_inputs)).cumsum(axis=0)
    Y += np.sin(0.5 * np.arange(n_rows))[:, None] + X.sum(axis=1, keepdims=True)
    Y[rng.random(Y.shape) < gaps] = NAN
    X[rng.random(X.shape) < gaps] = NAN
    return Y, X


# ---------------------------------------------------------------------------------------------- what it learns


def counted(monkeypatch, counts, owner, name, amount):
    """Count what a function does, by its name."""
    function = getattr(owner, name)

    def call(*arguments):
        counts[name] += amount(*arguments)
        return function(*arguments)

    monkeypatch.setattr(owner, name, call)


def test_no_row_does_more_work_than_its_share(monkeypatch):
    """One step of the circuits, one curved and one wide solution, a part of the linear ones, whatever is due."""
    counts, most, total = Counter(), Counter(), Counter()
    counted(monkeypatch, counts, Jobs, "_step", lambda *_: 1)
    counted(monkeypatch, counts, CurvedLags, "_solve", lambda *_: 1)
    counted(monkeypatch, counts, WideLags, "_refresh", lambda *_: 1)
    counted(monkeypatch, counts, regressions, "own_solve", lambda start, stop, *_: stop - start)
    Y, X = history(500, n_series=3)
    model = new_model(3, 1, horizon=8, experts=HorizonSettings.experts)
    for row, (y, x) in enumerate(zip(Y, X, strict=True)):
        counts.clear()
        model.learn(y, x)
        total += counts
        if row >= 50:
            most |= counts
    assert most["_step"] == most["_solve"] == most["_refresh"] == 1
    # Of 24 outputs.
    assert most["own_solve"] <= 4
    # Both parts of the circuits have tuned leaves.
    assert min(circuits.jobs.n_gradients for circuits in model.experts.circuits.values()) > 50
    assert min(total.values()) > 30


@each_mixture
def test_a_linear_autoregression_is_learnt(experts):
    Y = autoregression(500, phi=0.7)
    found = errors_of(track(new_model(experts=experts), Y), Y, 200)[:, 0]
    best = np.sqrt(np.cumsum(0.7 ** (2 * np.arange(3))))
    last = errors_of(np.repeat(Y[:, None], 3, axis=1), Y, 200)[:, 0]
    assert (found < 1.12 * best).all()
    assert (found[1:] < 0.95 * last[1:]).all()


def test_what_one_series_says_about_another_is_learnt():
    rng = np.random.default_rng(0)
    lead = rng.normal(size=600).cumsum()
    Y = np.column_stack([lead, np.r_[0.0, 0.0, lead[:-2]]]) + 0.05 * rng.normal(size=(600, 2))
    found = errors_of(track(new_model(2, horizon=2), Y), Y, 300)
    # The second follows the first two rows later.
    assert (found[:, 1] < 0.3).all()
    assert (found[:, 0] > 0.9).all()


@pytest.mark.parametrize("seasons", [None, (12,)])
def test_a_seasonal_series_is_learnt(seasons):
    rng = np.random.default_rng(0)
    pattern = rng.normal(size=12)
    Y = np.tile(pattern, 45)[:, None] + 0.1 * rng.normal(size=(540, 1))
    model = new_model(horizon=5, seasons=seasons)
    found = errors_of(track(model, Y), Y, 300)
    assert model.seasons[0] == 12
    assert (found < 0.18).all()


def test_a_season_that_is_found_counts_for_the_rows_before():
    Y = np.tile(np.random.default_rng(0).normal(size=12), 20)[:, None] + 0.1 * np.random.default_rng(1).normal(
        size=(240, 1)
    )
    found, told = (new_model(horizon=5, seasons=seasons) for seasons in (None, (12,)))
    for n, y in enumerate(Y):
        before = found.seasons
        feed(found, y[None])
        feed(told, y[None])
        if found.seasons and not before:
            assert n > 60
            assert_array_equal(found._ahead.terms, told._ahead.terms)
            assert_allclose(found.experts.iterated.A, told.experts.iterated.A, rtol=1e-12)
            assert_allclose(mean(found), mean(told), atol=0.8)
    assert found.seasons[0] == 12
    assert_allclose(found.experts.iterated.W, told.experts.iterated.W, atol=0.02)


def test_a_season_that_is_gone_is_forgotten():
    rng = np.random.default_rng(0)
    model = feed(new_model(), np.tile(rng.normal(size=12), 20)[:, None] + 0.1 * rng.normal(size=(240, 1)))
    assert model.seasons == (12, 24) and model._ahead.terms.any()
    # So many rows are searched; a season counts as gone at the second search without it.
    model._found, model._next_search = (), 240 + SEASON_ROWS
    feed(model, rng.normal(size=(SEASON_ROWS, 1)))
    assert model.seasons == () and not model._ahead.terms.any()
    assert not model.past.inputs[model.past.first : model.past.last + 1, 0, -model.n_terms :].any()
    copy = HorizonModel.from_state(model.settings, model.state(), 1, 0)
    y = rng.normal(size=(1, 1))
    assert_array_equal(mean(feed(copy, y)), mean(feed(model, y)))


def pendulum(n):
    """A pendulum that is driven: it swings without a clock."""
    angle, speed, out = 0.5, 0.0, []
    for i in range(20 * n):
        speed += 0.01 * (-0.2 * speed - np.sin(angle) + 1.2 * np.cos(0.67 * 0.01 * i))
        angle += 0.01 * speed
        if i % 20 == 0:
            out.append([np.sin(angle), speed])
    return np.array(out)


def test_circuits_that_lead_outlast_a_season():
    model = feed(new_model(2, experts=CIRCUITS), pendulum(200))
    learnt = {part: circuits.n_learnt for part, circuits in model.experts.circuits.items()}
    model.blend.weights[:] = 0.0
    model.blend.weights[:, :, model.experts.of_circuits.start] = 1.0
    model._set_seasons((12, 24))
    assert model.seasons == (12, 24) and model.features.season is None
    assert {part: circuits.n_learnt for part, circuits in model.experts.circuits.items()} == learnt
    copy = HorizonModel.from_state(model.settings, model.state(), 2, 0)
    y = np.array([[0.1, 0.2]])
    assert_array_equal(numbers(feed(copy, y)), numbers(feed(model, y)))
    # Circuits without the lead learn again at the next search.
    model.blend.weights[:, :, model.experts.of_circuits] = 0.0
    model._found = (10, 20)
    model._search_season()
    assert model.features.season == 12
    assert {circuits.n_learnt for circuits in model.experts.circuits.values()} == {0}


def test_a_season_longer_and_shorter_than_the_horizon():
    for season in (3, 20):
        Y = np.tile(np.random.default_rng(season).normal(size=(season, 1)), (300 // season, 1))
        model = feed(new_model(horizon=8, seasons=(season,)), Y)
        expected = Y[(len(Y) + np.arange(8)) % season]
        assert_allclose(mean(model), expected, atol=0.1)


def test_noise_has_no_season():
    assert feed(new_model(3), np.random.default_rng(0).normal(size=(260, 3))).seasons == ()


def test_seasons_are_not_looked_for_where_there_are_none():
    assert feed(new_model(seasons=()), np.tile([[0.0], [1.0], [5.0], [2.0]], (70, 1))).seasons == ()


@each_mixture
def test_the_distribution_moves_with_an_input_known_in_advance(experts):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)).cumsum(axis=0)
    Y = X @ np.array([[2.0, 0.0], [-1.0, 3.0]]) + 0.1 * rng.normal(size=(400, 2))
    model = feed(new_model(2, 2, experts=experts), Y, X)
    stay = np.tile(X[-1], (3, 1))
    assert_array_equal(model.joint(stay).planes, model.joint().planes)
    for d in range(2):
        moved = stay.copy()
        moved[1, d] += 1.0
        change = mean(model, moved) - mean(model)
        assert_allclose(change[[0, 2]], 0.0, atol=1e-12)
        assert_allclose(change[1], [[2.0, 0.0], [-1.0, 3.0]][d], atol=0.2)


def test_forecasts_are_scored_with_the_inputs_that_came():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    Y = 5.0 * X + 0.1 * rng.normal(size=(400, 1))
    model = feed(new_model(n_inputs=1), Y, X)
    # Scales are those of forecasts that knew the inputs, not of ones that did not.
    planes = model.joint(np.zeros((3, 1))).planes
    assert (planes[SCALE, :3] < 0.6).all()
    assert_allclose(mean(model, np.array([[1.0], [0.0], [-1.0]])), [[5.0], [0.0], [-5.0]], atol=0.5)


def test_an_input_that_is_not_known_stays():
    Y, X = history(100, n_inputs=2, gaps=0.0)
    model = feed(new_model(2, 2), Y, X)
    some = np.array([[1.0, NAN], [NAN, NAN], [NAN, 2.0]])
    filled = np.where(np.isnan(some), X[-1], some)
    assert_array_equal(model.joint(some).planes, model.joint(filled).planes)


@each_mixture
def test_intervals_cover_what_they_promise(experts):
    Y = autoregression(700, phi=0.9, seed=3)
    model = new_model(experts=experts)
    below = []
    for t, y in enumerate(Y[:-3]):
        model.learn(y, np.empty(0))
        if t >= 200:
            location, _, scale, dof, weight = model.joint().planes
            z = (Y[t + 1 : t + 4] - location) / scale
            below.append((weight * stats.t.cdf(z, dof)).sum(axis=0))
    inside = np.abs(np.array(below) - 0.5)[:, :, 0]
    for level in (0.5, 0.8, 0.95):
        assert_allclose(np.mean(inside < 0.5 * level, axis=0), level, atol=0.08)


# ---------------------------------------------------------------------------------------------- what it must not know


def test_the_blend_learns_from_forecasts_as_they_were_made():
    Y, X = history(60)
    model = new_model(2, 1, horizon=4, experts=CIRCUITS)
    n_columns = model.inputs.n_columns
    made, errors, filled = [], [], np.zeros((0, n_columns))
    for now, (y, x) in enumerate(zip(Y, X, strict=True)):
        model.learn(y, x)
        filled = np.vstack([filled, model.past.inputs[model.past.last, 0, :n_columns]])
        row = np.full((len(model.expert_names), 4, 2), NAN)
        for h in range(min(4, now)):
            located, slopes = made[now - h - 1]
            row[:, h] = y - located[:, h]
            row[2:4, h] -= slopes[:, h] @ (filled[now] - filled[now - h - 1])
        if now:
            errors.append(row)
        made.append([model._forecast().located.copy(), model._forecast().slopes.copy()])
    for h, p in np.ndindex(4, 2):
        expected = naive.blend_moments(np.array(errors)[:, :, h, p], model.blend._forgetting, h + 1)
        assert_allclose(model.blend.moments[h, p], expected, rtol=1e-8, atol=1e-10)


def test_residual_circuits_learn_what_they_are_added_to():
    Y, _ = history(120, gaps=0.0)
    Y[80:] += 1000.0
    model = new_model(2, experts=CIRCUITS)
    for now, y in enumerate(Y):
        model.learn(y, np.empty(0))
        base = model._forecast().located[model.expert_names.index("wide lags, heavy")]
        assert_allclose(model.past.values + model.ring.expected[now % 3, -1].reshape(3, 2), base, rtol=1e-12)


@pytest.mark.parametrize("horizon", [1, 3, 20])
def test_a_forecast_keeps_what_it_was_when_more_rows_come(horizon):
    Y, X = history(90)
    model = feed(new_model(2, 1, horizon=horizon, experts=CIRCUITS), Y[:60], X[:60])
    joint, expected = model.joint(), numbers(model)
    feed(model, 1e3 * Y[60:], X[60:])
    # The correlations are looked at only now.
    found = np.concatenate([joint.planes.ravel(), joint.between_steps.ravel(), joint.between_series.ravel()])
    assert_array_equal(found, expected)


@pytest.mark.parametrize("horizon", [1, 3, 20])
@each_mixture
def test_to_ask_changes_nothing(horizon, experts):
    Y, X = history(100)
    quiet, asked = (new_model(2, 1, horizon=horizon, experts=experts, memory_budget=0) for _ in range(2))
    rng = np.random.default_rng(0)
    for y, x in zip(Y, X, strict=True):
        quiet.learn(y, x)
        asked.learn(y, x)
        for _ in range(int(rng.integers(3))):
            joint = asked.joint(rng.normal(size=(horizon, 1)))
            joint.planes[:] = NAN
    assert_array_equal(numbers(quiet), numbers(asked))


def test_the_rows_of_the_caller_are_left_alone():
    Y, X = history(40)
    y, x = np.empty(2), np.empty(1)
    model, other = new_model(2, 1), new_model(2, 1)
    for i in range(40):
        y[:], x[:] = Y[i], X[i]
        model.learn(y, x)
        assert_array_equal(y, Y[i])
        assert_array_equal(x, X[i])
        y[:], x[:] = NAN, NAN
        other.learn(Y[i], X[i])
    assert_array_equal(numbers(model), numbers(other))


# ---------------------------------------------------------------------------------------------- any history


@each_mixture
@pytest.mark.parametrize("horizon", [1, 4, 20])
@pytest.mark.parametrize("gaps", [0.0, 0.5])
def test_nothing_but_numbers_comes_out(experts, horizon, gaps):
    Y, X = history(90, 2, 2, gaps, seed=7)
    Y[30:50], X[40:55] = NAN, NAN
    model = new_model(2, 2, horizon=horizon, experts=experts)
    for i, (y, x) in enumerate(zip(Y, X, strict=True)):
        model.learn(y, x)
        if i < 8 or i % 6 == 0:
            assert is_distribution(model.joint())
            assert is_distribution(model.joint(np.full((horizon, 2), 3.0)))
    assert np.isfinite(model.weights).all()
    assert_allclose(model.weights.sum(axis=0), 1.0)


EXPERTS = [
    ("last value",), ("season",), ("own lags",), ("wide lags",), ("matern32",),
    ("wide lags", "residual matern32"), ("own lags", "clock rbf"),
]  # fmt: skip


@pytest.mark.parametrize("experts", EXPERTS, ids=", ".join)
@pytest.mark.parametrize("n_inputs", [0, 1])
def test_any_experts_will_do(experts, n_inputs):
    Y, X = history(60, 2, n_inputs)
    model = feed(new_model(2, n_inputs, experts=experts), Y, X)
    assert is_distribution(model.joint())
    assert len(model.weights) == len(model.expert_names)


@each_mixture
def test_one_series_and_one_step(experts):
    Y = autoregression(200)
    model = new_model(1, 0, horizon=1, experts=experts)
    found = errors_of(track(model, Y), Y, 60)
    assert model.joint().planes.shape == (5, 5, 1, 1)
    assert found[0, 0] < 1.25


@each_mixture
@pytest.mark.parametrize("value", [0.0, 0.1, -3e6])
def test_a_constant_series(experts, value):
    model = new_model(experts=experts)
    for i in range(80):
        model.learn(np.array([value]), np.empty(0))
        planes = model.joint().planes
        assert np.isfinite(planes).all()
        assert_allclose(mean(model), value, rtol=1e-9, atol=1e-12)
        if i > 5:
            assert (planes[SCALE] <= 1e-6 * (1.0 + abs(value))).all()
    model.learn(np.array([value + 1.0]), np.empty(0))
    assert np.isfinite(model.joint().planes).all()


@each_mixture
def test_a_series_that_stands_still_at_first(experts):
    Y = np.concatenate([np.full((60, 1), 5.0), 5.0 + autoregression(340, phi=0.6)])
    found = errors_of(track(new_model(experts=experts), Y), Y, 200)[:, 0]
    best = np.sqrt(np.cumsum(0.6 ** (2 * np.arange(3))))
    assert (found < 1.15 * best).all()


@each_mixture
def test_a_constant_series_beside_another(experts):
    Y = np.column_stack([autoregression(150)[:, 0], np.full(150, 7.0)])
    model = feed(new_model(2, experts=experts), Y)
    assert is_distribution(model.joint())
    assert_allclose(mean(model)[:, 1], 7.0, atol=1e-3)
    alone = feed(new_model(1, experts=experts), Y[:, :1])
    assert_allclose(mean(model)[:, 0], mean(alone)[:, 0], atol=0.3)


@each_mixture
def test_an_offset_of_a_million_changes_little(experts):
    Y, X = history(200, gaps=0.05)
    plain = track(new_model(2, 1, experts=experts), Y, X)
    moved = track(new_model(2, 1, experts=experts), Y + 1e6, X - 1e6) - 1e6
    tolerance = 2e-5 if experts == LINEAR else 0.3
    assert_allclose(moved[20:], plain[20:], atol=tolerance * np.nanstd(Y))


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_forecasts_scale_with_the_series(unit):
    Y, X = history(200)
    plain = track(new_model(2, 1), Y, X)
    scaled = track(new_model(2, 1), Y * unit, X / unit) / unit
    assert_allclose(scaled[5:], plain[5:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**20])
def test_forecasts_of_circuits_scale_with_the_series(unit):
    Y, X = history(150)
    plain, scaled = new_model(2, 1, experts=CIRCUITS), new_model(2, 1, experts=CIRCUITS)
    for y, x in zip(Y, X, strict=True):
        plain.learn(y, x)
        scaled.learn(y * unit, x / unit)
        assert_allclose(scaled._forecast().located / unit, plain._forecast().located, rtol=1e-9, atol=1e-9)


@each_mixture
def test_the_same_seed_gives_the_same_floats(experts):
    Y, X = history(90)
    first, second = (feed(new_model(2, 1, experts=experts), Y, X) for _ in range(2))
    assert_array_equal(numbers(first), numbers(second))


# ---------------------------------------------------------------------------------------------- gaps and breaks


def test_scales_widen_while_nothing_comes():
    Y = autoregression(300, phi=1.0)
    model = feed(new_model(), Y)
    scale = model.joint().planes[SCALE, :3]
    for _ in range(20):
        model.learn(np.array([NAN]), np.empty(0))
        wider = model.joint().planes[SCALE, :3]
        assert (wider >= 0.999 * scale).all()
        scale = wider
    assert (scale > 2.0 * feed(new_model(), Y).joint().planes[SCALE, :3]).all()


def test_only_missing_rows():
    model = new_model(2, 1, horizon=2, experts=CIRCUITS)
    feed(model, np.full((30, 2), NAN), np.full((30, 1), NAN))
    assert is_distribution(model.joint())
    Y, X = history(60, gaps=0.0)
    assert is_distribution(feed(model, Y, X).joint())


@each_mixture
def test_a_series_that_comes_late(experts):
    Y = autoregression(400, n_series=2) + 50.0
    Y[:120, 1] = NAN
    model = new_model(2, experts=experts)
    means = track(model, Y)
    found = errors_of(means, np.nan_to_num(Y), 200)
    assert (found[0] < 1.4).all()
    assert np.abs(means[121:] - 50.0).max() < 30.0


@pytest.mark.parametrize("horizon", [3, 20])
@pytest.mark.parametrize("phase", [0, 1])
def test_a_sensor_at_half_the_rate(horizon, phase):
    Y = autoregression(300, phi=0.9, n_series=2) + 20.0
    Y[phase::2, 1] = NAN
    model = new_model(2, horizon=horizon)
    for i, y in enumerate(Y):
        model.learn(y, np.empty(0))
        if i > 50 and i % 5 < 2:
            assert is_distribution(model.joint())
            assert np.abs(mean(model) - 20.0).max() < 15.0
    # Every step has a scale that was learnt.
    assert (model.joint().planes[SCALE, 0] < 8.0).all()


@each_mixture
@pytest.mark.parametrize("size", [30.0, 1e6])
def test_a_jump_does_not_explode_the_forecasts(experts, size):
    Y = autoregression(400, phi=0.6)
    Y[200:] += size
    means = track(new_model(experts=experts), Y)
    assert means.min() > -10.0
    assert means.max() < 1.001 * size + 10.0
    assert (errors_of(means, Y, 220) < 2.0).all()


@each_mixture
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_a_spike_is_soon_forgotten(experts, size):
    Y = autoregression(400, phi=0.6)
    Y[200] += size
    means = track(new_model(experts=experts), Y)
    # Circuits hold on to what they have seen.
    assert means.min() > -10.0
    assert means.max() < size + 10.0
    assert (errors_of(means, Y, 220) < 2.0).all()


@each_mixture
def test_a_stuck_sensor(experts):
    Y = autoregression(420, phi=0.8)
    Y[200:320] = Y[199]
    model = new_model(experts=experts)
    means = track(model, Y[:320])
    assert_allclose(means[310:], Y[199, 0], atol=0.3)
    planes = model.joint().planes
    assert (planes[SCALE] > 0.0).all()
    # It was free once and may be again: the distribution is narrow now, but not blind.
    assert planes[SCALE].max() > 1e-3
    means = track(model, Y[320:])
    assert np.isfinite(means).all()
    assert (errors_of(means, Y[320:], 40) < 2.5).all()


# ---------------------------------------------------------------------------------------------- state


@each_mixture
@pytest.mark.parametrize("horizon", [1, 3, 20])
@pytest.mark.parametrize("n_rows", [0, 1, 4, 37, 70, 131])
def test_a_restored_model_resumes_bit_for_bit(experts, horizon, n_rows):
    Y, X = history(160)
    model = feed(new_model(2, 1, horizon=horizon, experts=experts), Y[:n_rows], X[:n_rows])
    copy = HorizonModel.from_state(model.settings, model.state(), model.n_series, model.n_inputs)
    if n_rows:
        assert_array_equal(numbers(copy), numbers(model))
    for y, x in zip(Y[n_rows:][:25], X[n_rows:][:25], strict=True):
        model.learn(y, x)
        copy.learn(y, x)
    assert_array_equal(numbers(copy), numbers(model))
    assert_array_equal(copy.weights, model.weights)


@pytest.mark.parametrize("seasons", [None, (4,)])
@pytest.mark.parametrize("n_rows", [90, 200])
def test_a_model_with_seasons_is_restored(seasons, n_rows):
    Y = np.tile([[0.0], [1.0], [5.0], [2.0]], (70, 1)) + 0.1 * np.random.default_rng(0).normal(size=(280, 1))
    model = feed(new_model(seasons=seasons), Y[:n_rows])
    # Looked for, it is seen after 64 rows and believed after 96.
    assert bool(model.seasons) == (seasons is not None or n_rows == 200)
    copy = HorizonModel.from_state(model.settings, model.state(), model.n_series, model.n_inputs)
    assert_array_equal(numbers(feed(copy, Y[n_rows:])), numbers(feed(model, Y[n_rows:])))
    assert copy.seasons == model.seasons
    assert model.seasons[0] == 4


def test_a_state_is_a_picture_of_its_time():
    Y, X = history(120)
    model = feed(new_model(2, 1, experts=CIRCUITS), Y[:80], X[:80])
    state = model.state()
    expected = numbers(model)
    feed(model, Y[80:], X[80:])
    assert_array_equal(
        numbers(HorizonModel.from_state(model.settings, state, model.n_series, model.n_inputs)), expected
    )


def test_old_rows_leave_and_forecasts_do_not_notice():
    Y, X = history(300)
    model, roomy = (new_model(2, 1, seasons=(7,)) for _ in range(2))
    roomy.past = Past(2, model.past.inputs.shape[2], 1000)
    assert model.past.capacity < 100
    assert_allclose(numbers(feed(model, Y, X)), numbers(feed(roomy, Y, X)), rtol=1e-9, atol=1e-12)


def test_many_lags_have_room():
    Y, _ = history(330, 1)
    model, roomy = (new_model(horizon=1, lags=150, seasons=()) for _ in range(2))
    roomy.past = Past(1, 0, 1000)
    assert_allclose(numbers(feed(model, Y)), numbers(feed(roomy, Y)), rtol=1e-6, atol=1e-9)


def test_a_window_is_kept_and_memory_is_bounded():
    Y, X = history(300)
    model = feed(new_model(2, 1, seasons=(), experts=CIRCUITS, window=40), Y, X)
    for circuits in model.experts.circuits.values():
        assert len(circuits.rows) == 40
    held = model.state()["past"]["series"]
    assert len(held) <= 2 * model.past.capacity < len(Y)


# ---------------------------------------------------------------------------------------------- paths


def paths(model, horizon, n_paths=200, X=None, seed=0):
    return model.simulate(n_paths, horizon, X, np.random.default_rng(seed))


def centre(joint):
    return (joint.planes[WEIGHT] * joint.planes[LOCATION]).sum(axis=0)


@each_mixture
def test_the_first_step_of_paths_is_the_forecast_of_one_step(experts):
    Y, X = history(200)
    model = feed(new_model(2, 1, horizon=1, experts=experts), Y, X)
    for inputs in (None, np.array([[3.0]]), np.array([[NAN]])):
        first = paths(model, 1, X=inputs)
        assert_allclose(centre(first), mean(model, inputs), rtol=1e-8)
        scale = model.joint().planes[SCALE, :, 0]
        assert_allclose(first.planes[SCALE].reshape(-1, 5, 2), np.broadcast_to(scale, (12, 5, 2)), rtol=1e-6)


def test_paths_of_an_autoregression():
    Y = autoregression(800, phi=0.8)
    Y = Y[: 700 + int(Y[700:].argmax()) + 1]
    joint = paths(feed(new_model(horizon=1), Y), 8, n_paths=500)
    assert is_distribution(joint)
    assert joint.planes.shape[2:] == (8, 1)
    assert_allclose(centre(joint)[:, 0], Y[-1] * 0.8 ** np.arange(1, 9), atol=0.7)
    location, _, scale, dof, weight = joint.planes[:, :, :, 0]
    variance = (weight * (scale**2 * dof / (dof - 2.0) + (location - centre(joint)[:, 0]) ** 2)).sum(axis=0)
    assert_allclose(np.sqrt(variance), np.sqrt(np.cumsum(0.8 ** (2.0 * np.arange(8)))), rtol=0.25)
    # Neighbours go together, the more the later they are.
    beside = np.diag(joint.between_steps, 1)
    assert beside[0] > 0.4
    assert beside[5] > 0.65
    assert joint.between_steps[0, 7] < beside[0]


def test_paths_continue_the_season():
    Y = np.tile([[0.0], [4.0], [1.0], [-3.0], [2.0]], (60, 1))
    model = feed(new_model(horizon=1, seasons=(5,)), Y + 0.05 * np.random.default_rng(0).normal(size=Y.shape))
    assert_allclose(centre(paths(model, 12)), Y[np.arange(12) % 5], atol=0.3)


def test_paths_follow_inputs_known_in_advance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1)).cumsum(axis=0)
    Y = 2.0 * X + 0.1 * rng.normal(size=(400, 1))
    model = feed(new_model(1, 1, horizon=1), Y, X)
    ahead = X[-1] + np.array([[1.0], [1.0], [2.0], [NAN], [0.0]])
    moved = centre(paths(model, 5, X=ahead)) - Y[-1]
    assert_allclose(moved[[0, 1, 2, 4], 0], [2.0, 2.0, 4.0, 0.0], atol=0.6)


@pytest.mark.parametrize("n_paths", [1, 5, 30])
@each_mixture
def test_few_paths_are_a_law_as_well(experts, n_paths):
    Y, X = history(60)
    Y[-3:] = NAN
    model = feed(new_model(2, 1, horizon=1, experts=experts), Y, X)
    assert is_distribution(paths(model, 4, n_paths))


def test_paths_from_the_first_row_on():
    model = feed(new_model(2, horizon=1, experts=CIRCUITS), np.array([[1.0, NAN]]))
    assert is_distribution(paths(model, 3, 20))


def test_paths_change_nothing_and_repeat_themselves():
    Y, X = history(120)
    model, quiet = (feed(new_model(2, 1, horizon=1, experts=CIRCUITS), Y[:80], X[:80]) for _ in range(2))
    first, second = paths(model, 4), paths(model, 4)
    assert_array_equal(first.planes, second.planes)
    assert_array_equal(first.between_steps, second.between_steps)
    assert (paths(model, 4, seed=1).planes != first.planes).any()
    assert_array_equal(numbers(feed(model, Y[80:], X[80:])), numbers(feed(quiet, Y[80:], X[80:])))


def test_only_models_of_one_step_draw_paths():
    with pytest.raises(ValueError, match="one step"):
        paths(feed(new_model(horizon=2), np.zeros((3, 1))), 4)


# ---------------------------------------------------------------------------------------------- settings


WRONG = {
    "horizon": [0, -1, 2.0, True, "3"],
    "lags": [0, 1.5, False],
    "seasons": [(1,), (2.5,), 12, [12], (True,)],
    "experts": [(), ("no such kernel",), ("last value", "last value"), "last value", ("residual nothing",)],
    "max_points": [1, None],
    "window": [0],
    "seed": [-1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_settings_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}=|unknown expert"):
        HorizonSettings(**{name: value})


def test_a_feed_that_is_too_wide_goes_without_wide_lags():
    model = feed(new_model(210, experts=(*LINEAR, "residual matern32")), np.zeros((3, 210)))
    assert not any(name.startswith(("wide", "residual")) for name in model.expert_names)
    assert np.isfinite(model.joint().planes).all()


@pytest.mark.parametrize(
    ("experts", "words"),
    [
        (("lags",), "belongs to MOMoGPRegressor"),
        (("own lags", "residual matern32"), "'residual' experts require 'wide lags'"),
    ],
)
def test_experts_that_cannot_be(experts, words):
    with pytest.raises(ValueError, match=words):
        HorizonSettings(experts=experts)
