"""`MOMoGPRegressor` on a stream: rows, bad input, times, late targets, distributions."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from momostream import MOMoGPRegressor
from momostream.distributions.prediction import Prediction
from momostream.storage import container
from tests.estimators.rows import SMALL, X, feed, frames, state, trained

# ------------------------------------------------------------------ river's conventions


def test_nothing_before_the_first_row():
    model = MOMoGPRegressor()
    assert model.predict_one(X) == {}
    assert model.predict_one(X, with_dist=True) == {}
    assert model.score_one(X, {"power": 1.0}) == 0.0
    assert model.explain_one(X) == {"experts": {}, "relevance": {}, "neighbours": []}
    assert (model.hyperparameters, model.expert_weights, model.n_rows, model.nbytes) == ([], {}, 0, 0)
    assert model.relevance == {}
    assert "no rows" in model.describe()
    model.retune()
    model.predict_many(pd.DataFrame([X]))


def test_plain_floats_by_target():
    prediction = trained().predict_one(X)
    assert set(prediction) == {"power", "load"}
    assert all(type(value) is float for value in prediction.values())
    assert prediction["power"] == pytest.approx(24.0, abs=1.5)


def test_prediction_changes_nothing_that_is_predicted():
    model, watched = trained(), trained()
    for x, y in feed(30, seed=1):
        watched.predict_one({"wind": 3.0}, with_dist=True).interval()
        watched.predict_many(pd.DataFrame([X] * 3))
        watched.score_one(x, {"power": 3.0})
        watched.explain_one(X)
        assert watched.predict_one(x) == model.predict_one(x)
        model.learn_one(x, y)
        watched.learn_one(x, y)


def test_inputs_come_and_go():
    random = Random(0)
    model = MOMoGPRegressor(**SMALL)
    for t, (x, y) in enumerate(feed(120)):
        if t > 40:
            x["late"] = random.random()
        if t > 80:
            del x["wind"]
        prediction = model.predict_one(x)
        assert all(map(math.isfinite, prediction.values()))
        model.learn_one(x, y)
    assert model.predict_one({"never": 1.0}) == model.predict_one({})


def test_a_target_that_joins_is_learnt():
    model = MOMoGPRegressor(**SMALL)
    for t, (x, y) in enumerate(feed(160)):
        if t >= 80:
            y["late"] = 100.0 + 2.0 * x["wind"]
        model.learn_one(x, y)
        if t == 80:
            distribution = model.predict_one(x, with_dist=True)
            assert np.isfinite([distribution.mean["late"], *distribution.interval(0.9)["late"]]).all()
    assert model.predict_one(X)["late"] == pytest.approx(116.0, abs=1.0)
    assert model.predict_one(X)["power"] == pytest.approx(24.0, abs=1.5)


def test_no_inputs_at_all():
    model = trained(rows=[({}, {"level": 5.0 + (t % 2)}) for t in range(40)])
    assert 4.5 < model.predict_one({})["level"] < 6.5


@pytest.mark.parametrize("y", [{}, {"power": None}, {"power": math.nan, "load": None}, {"new": None}])
@pytest.mark.parametrize("x", [X, {"unheard": 1.0}, {}])
def test_a_row_without_targets_changes_nothing(x, y):
    model, fresh = trained(), MOMoGPRegressor(**SMALL)
    before, empty = state(model), state(fresh)
    model.learn_one(x, y)
    fresh.learn_one(x, y)
    model.learn_many(pd.DataFrame([x]), pd.DataFrame([y], dtype=float))
    assert state(model) == before and state(fresh) == empty


# ------------------------------------------------------------------ bad input


def test_numbers_of_all_types_predict_the_same():
    same = [8, 8.0, np.float32(8), np.int64(8), Decimal(8), Fraction(8)]
    model = trained()
    assert len({model.predict_one({"wind": value, "pitch": True})["power"] for value in same}) == 1


@pytest.mark.parametrize("value", [math.inf, "fast", [8.0], 1e60, datetime(2024, 1, 1)])
def test_a_bad_input_is_named_and_not_kept(value):
    for model in (trained(20), MOMoGPRegressor(**SMALL)):
        before = state(model)
        with pytest.raises((TypeError, ValueError), match="'wind'"):
            model.predict_one({"wind": value}, id=1)
        assert state(model) == before


@pytest.mark.parametrize("row", [None, 5.0, "row", [1.0], {1.0}])
def test_rows_are_dicts(row):
    model = trained(20)
    before = state(model)
    for call in (
        lambda: model.learn_one(row, {"power": 1.0}),
        lambda: model.learn_one(X, row),
        lambda: model.predict_one(row),
        lambda: model.score_one(X, row),
        lambda: model.explain_one(row),
    ):
        with pytest.raises(TypeError, match="expected a dict"):
            call()
    assert state(model) == before


def test_values_beyond_bounds_are_rejected_in_frames_and_late():
    model = MOMoGPRegressor(**SMALL, bounds={"level": (0.0, 1.0)}, beyond="error")
    for t in range(20):
        model.learn_one({"x": t % 4}, {"level": 0.2 + 0.1 * (t % 4)})
    model.predict_one({"x": 1.0}, id="a")
    before = state(model)
    for y in ({"level": 1.5}, {"level": -0.1, "new": 1.0}):
        with pytest.raises(ValueError, match="'level'"):
            model.learn_many(pd.DataFrame([{"x": 1.0, "unheard": 2.0}]), pd.DataFrame([y]))
        with pytest.raises(ValueError, match="'level'"):
            model.learn_later("a", y)
        assert state(model) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"on_drift": "panic"}, "on_drift='panic' is not accepted: use one of 'retune', 'widen', 'forget'"),
        ({"drift_detector": "ADWIN"}, "drift_detector='ADWIN' is not accepted: use a detector of river.drift, or None"),
        ({"clock": None}, "clock=None is not accepted: use True, False or the name of a field"),
        ({"experts": ("clock rbf",), "clock": False}, r"experts=\(\)"),
        ({"weights": "equal"}, "weights='equal'"),
        ({"eta": 0.0}, "eta=0.0"),
        ({"bounds": {"level": (0.0, 1.0)}, "weights": "uniform"}, "require weights='stacking'"),
    ],
)
def test_parameters_are_checked_at_once(settings, words):
    with pytest.raises(ValueError, match=words):
        MOMoGPRegressor(**settings)


@pytest.mark.parametrize("size", [1e5, 1e9, 1.7e12, 1e30])
@pytest.mark.parametrize("at", [0, 1, 2, 5, 30])
@pytest.mark.parametrize("field", ["x", "p"])
def test_a_glitch_of_any_size_at_any_time_is_survived(field, at, size):
    model = MOMoGPRegressor(**SMALL)
    for t in range(40):
        row = {"x": float(t % 3), "p": float(t % 5), "q": float(t % 2), **({field: size} if t == at else {})}
        distribution = model.predict_one({"x": row.pop("x")}, with_dist=True)
        if distribution:
            assert np.isfinite([*distribution.mean.values(), *distribution.interval(0.9)["q"]]).all()
        model.learn_one({"x": size if (field, t) == ("x", at) else float(t % 3)}, row)
    assert abs(model.predict_one({"x": 1.0})["q"]) < 3.0


@pytest.mark.parametrize("gap", [{0}, {0, 1, 2, 3}, {1}, {5, 6, 7, 8}, set(range(0, 80, 7))])
def test_gaps_in_one_target_leave_all_experts_at_work(gap):
    model = MOMoGPRegressor(**SMALL)
    for t, (x, y) in enumerate(feed(90)):
        if t in gap:
            y["power"] = None
        model.learn_one(x, y)
    model.predict_one(X)
    # All but the last one, which speaks after repetitions only.
    assert np.isfinite(model._model.stack.planes[:, :-1]).all()


@pytest.mark.parametrize("offset", [1e6, 1.7e12, -1e20])
def test_inputs_and_targets_far_from_zero(offset):
    model = MOMoGPRegressor(**SMALL)
    unit = abs(offset) * 1e-6
    for t in range(60):
        x = offset + unit * math.sin(t)
        model.learn_one({"x": x}, {"y": 3.0 * x})
    x = offset + 0.5 * unit
    assert model.predict_one({"x": x})["y"] == pytest.approx(3.0 * x, abs=unit)


# ------------------------------------------------------------------ time


STAMPS = {
    "number": lambda seconds: seconds,
    "datetime": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    "naive": lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None),
    "numpy": lambda seconds: np.datetime64(int(seconds * 1000), "ms"),
    "pandas": lambda seconds: pd.Timestamp(seconds, unit="s"),
}


@pytest.mark.parametrize("kind", STAMPS)
def test_timestamps_of_all_kinds_say_the_same(kind):
    random = Random(0)
    seconds, rows = 1.7e9, []
    for x, y in feed(40):
        # Irregular, and now and then backwards.
        seconds += random.choice([1.0, 1.0, 60.0, 0.5, -30.0])
        rows.append((seconds, x, y))
    reference = trained(rows=[({"t": s, **x}, y) for s, x, y in rows], clock="t")
    model = trained(rows=[({"t": STAMPS[kind](s), **x}, y) for s, x, y in rows], clock="t")
    assert state(model) == state(reference)
    assert model._inputs.keys == ("pitch", "wind")
    frame = pd.DataFrame([{"t": STAMPS[kind](s), **x} for s, x, _ in rows])
    expected = [model.predict_one({"t": s, **x})["power"] for s, x, _ in rows]
    np.testing.assert_allclose(model.predict_many(frame)["power"], expected, rtol=1e-6)


def test_dates_and_centuries():
    model = MOMoGPRegressor(**SMALL, clock="t")
    for t in (date(2024, 1, 1), datetime(1820, 5, 5), np.datetime64("2500-01-01"), datetime(9000, 1, 1)):
        model.learn_one({"t": t}, {"y": 1.0})
    assert model._time == datetime(9000, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("missing", [None, math.nan, pd.NaT, np.datetime64("NaT"), pd.NA])
def test_a_missing_timestamp_is_the_last_one(missing):
    model = trained(rows=[({"t": float(t), **x}, y) for t, (x, y) in enumerate(feed(20))], clock="t")
    assert model.predict_one({"t": missing, **X}) == model.predict_one({"t": 19.0, **X}) == model.predict_one(X)
    model.learn_many(pd.DataFrame([{"t": 30.0, **X}, {"t": missing, **X}]), pd.DataFrame([{"power": 1.0}] * 2))
    assert model._time == 30.0
    assert model.predict_one(X) == model.predict_one({"t": 30.0, **X})


def test_bad_timestamps_of_frames_are_named():
    model = trained(rows=[({"t": float(t), **x}, y) for t, (x, y) in enumerate(feed(20))], clock="t")
    before = state(model)
    for value in ("noon", math.inf, 1j):
        with pytest.raises((TypeError, ValueError), match="row 'b' of X: .*'t'"):
            frame = pd.DataFrame({"t": [1.0, value], "new": 1.0}, index=["a", "b"], dtype=object)
            model.learn_many(frame, pd.DataFrame({"power": [1.0, 2.0]}))
        assert state(model) == before


def test_time_matters_to_the_clock_only():
    rows = [({"t": float(t), **x}, y) for t, (x, y) in enumerate(feed(40))]
    model = trained(rows=rows, clock="t", experts=("matern32",))
    assert model.predict_one({"t": 0.0, **X}) == model.predict_one({"t": 1e6, **X})
    model = trained(rows=rows, clock="t")
    assert model.predict_one({"t": 39.0, **X}) != model.predict_one({"t": 1e6, **X})


def test_a_clock_that_jumps():
    """A clock that stands still, jumps a year and goes back gives finite distributions."""
    model = MOMoGPRegressor(**SMALL, clock="at")
    now = datetime(2024, 1, 1)
    for t, (x, y) in enumerate(feed(60)):
        now += [timedelta(0), timedelta(days=365), timedelta(seconds=1), -timedelta(days=364)][t % 4]
        distribution = model.predict_one({"at": now, **x}, with_dist=True)
        if distribution:
            assert np.isfinite(list(distribution.interval(0.9).values())).all()
        model.learn_one({"at": now, **x}, y)


# ------------------------------------------------------------------ late targets


def test_late_labels_are_learnt_with_the_inputs_of_their_time():
    prompt = trained()
    late = trained()
    rows = list(feed(20, seed=7))
    for x, y in rows:
        prompt.learn_one(x, y)
        late.predict_one(x, id="now")
        late.learn_later("now", y)
    assert state(late) == state(prompt)


def test_labels_of_the_first_row_may_be_late():
    late, prompt = MOMoGPRegressor(**SMALL), MOMoGPRegressor(**SMALL)
    assert late.predict_one(X, id=1) == {}
    late.learn_later(1, {"power": 24.0})
    prompt.learn_one(X, {"power": 24.0})
    assert state(late) == state(prompt)


def test_ids():
    model = trained()
    with pytest.raises(KeyError, match="'nobody'"):
        model.learn_later("nobody", {"power": 1.0})
    model.predict_one({"wind": 1.0}, id="a")
    model.predict_one({"wind": 9.0, "new": 5.0}, id="a")
    assert model.n_pending == 1
    model.learn_one({"other": 1.0, **X}, {"power": 24.0, "third": 1.0})
    model.learn_later("a", {"power": 27.0, "load": 9.0, "fourth": 1.0})
    assert model.n_pending == 0
    with pytest.raises(KeyError):
        model.learn_later("a", {"power": 1.0})
    points, targets = model._model.rows.gather(np.array([61]))
    assert dict(zip(model._inputs.keys, points[0, 1:], strict=True))["wind"] == 9.0
    assert dict(zip(model._inputs.keys, points[0, 1:], strict=True))["new"] == 5.0
    assert dict(zip(model._targets.keys, targets[0], strict=True))["fourth"] == 1.0
    with pytest.raises(TypeError):
        model.predict_one(X, id=[])
    with pytest.raises(TypeError, match="'power'"):
        model.predict_one(X, id=2)
        model.learn_later(2, {"power": "strong"})
    assert model.n_pending == 1


def test_late_labels_keep_their_timestamp():
    model = MOMoGPRegressor(**SMALL, clock="t")
    model.predict_one({"t": 5.0, **X}, id=1)
    model.learn_one({"t": 9.0, **X}, {"power": 1.0})
    model.learn_later(1, {"power": 2.0})
    assert model._model.rows.gather(np.array([0, 1]))[0][:, 0].tolist() == [9.0, 5.0]


# ------------------------------------------------------------------ freezing


def test_a_frozen_model_learns_neither_frames_nor_late_targets():
    model = trained()
    model.predict_one(X, id=1)
    before = container.dumps("state", {**model._state(), "pending": []})
    model.freeze()
    model.learn_many(*frames(10))
    model.learn_later(1, {"power": 0.0})
    model.unfreeze()
    assert model.n_rows == 60 and state(model) == before


# ------------------------------------------------------------------ distributions


def test_scores_are_uniform_on_honest_data_and_near_one_on_outliers():
    model = MOMoGPRegressor(**{**SMALL, "max_points": 200})
    scores = []
    for t, (x, y) in enumerate(feed(500)):
        if t >= 100:
            scores.append(model.score_one(x, y))
        model.learn_one(x, y)
    assert 0.0 <= min(scores) and max(scores) <= 1.0
    assert stats.kstest(scores, "uniform").statistic < 0.15
    truth = {"power": 24.0, "load": 8.0}
    assert model.score_one(X, truth) < 0.9
    assert model.score_one(X, {**truth, "power": 40.0}) > 0.99
    assert model.score_one(X, {"power": 40.0}) > 0.99
    assert model.score_one(X, {}) == model.score_one(X, {"unheard": 5.0}) == 0.0


# Fails for "uniform": the parts of the mixture are views of the stack's distribution.
def test_distributions_survive_later_learning():
    for settings in ({}, {"weights": "uniform"}, {"bounds": {"power": (-1e3, None)}}):
        model = trained(**settings)
        distribution = model.predict_one(X, with_dist=True)
        eager = model.predict_one(X, with_dist=True)
        expected = (eager.interval(0.9), eager.sample(3, seed=0).tolist(), eager.log_pdf({"power": 25.0}))
        for x, y in feed(30, seed=9, slope=-7.0):
            model.predict_one(x)
            model.learn_one(x, y)
        assert isinstance(distribution, Prediction)
        assert (
            distribution.interval(0.9),
            distribution.sample(3, seed=0).tolist(),
            distribution.log_pdf({"power": 25.0}),
        ) == expected, settings


def test_bounds_and_transforms_hold():
    random = Random(0)
    bounds = {"level": (0.0, 1.0), "power": (0.0, None), "plain": (-5.0, 5.0)}
    model = MOMoGPRegressor(**SMALL, bounds=bounds, transforms={"level": "logit", "power": "sqrt"})
    for t in range(150):
        x = random.gauss(0.0, 2.0)
        level = 1.0 / (1.0 + math.exp(-2.0 * x + random.gauss(0.0, 0.5)))
        y = {"level": min(max(level, 1e-6), 1 - 1e-6), "power": abs(x), "plain": max(min(4 * x, 5.0), -5.0), "free": x}
        model.learn_one({"x": x}, y)
        if t % 10 == 9:
            for where in (-6.0, 0.0, 6.0, 100.0):
                distribution = model.predict_one({"x": where}, with_dist=True)
                samples = dict(zip(distribution.targets, distribution.sample(50, seed=t).T, strict=True))
                for name, (low, high) in bounds.items():
                    high = math.inf if high is None else high
                    values = [
                        distribution.mean[name],
                        *distribution.interval(0.99)[name],
                        *distribution.quantile([1e-6, 0.5, 1 - 1e-6])[name],
                    ]
                    assert min(*values, *samples[name]) >= low and max(*values, *samples[name]) <= high, (name, where)
    assert model.predict_one({"x": 2.0})["level"] > 0.9
    assert model.predict_one({"x": -2.0})["level"] < 0.1
    assert model.predict_one({"x": 1.0})["free"] == pytest.approx(1.0, abs=0.1)


def test_interval_covers_after_a_long_gap():
    model = MOMoGPRegressor(**{**SMALL, "max_points": 200})
    inside = total = 0
    for t, (x, y) in enumerate(feed(550)):
        truth = y["load"]
        if 250 <= t < 400:
            del y["load"]
        if t >= 400:
            low, high = model.predict_one(x, with_dist=True).interval(0.9)["load"]
            inside += low <= truth <= high
            total += 1
        model.learn_one(x, y)
    assert 0.8 <= inside / total <= 0.99
