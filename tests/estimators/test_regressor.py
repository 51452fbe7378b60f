"""`MOMoGPRegressor` on a stream: rows, times, frames, late targets, hyper-parameters, distributions, drift."""

from __future__ import annotations

import logging
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pandas as pd
import pytest
from river import base, drift
from scipy import stats

from momostream import MOMoGPRegressor
from momostream.distributions.prediction import Prediction
from momostream.storage import container

SMALL = {"max_points": 48, "tuning_points": 40, "tuning_evaluations": 5, "seed": 0}


def feed(n, seed=0, slope=3.0):
    random = Random(seed)
    wind = 8.0
    for _ in range(n):
        wind += 0.1 * (8.0 - wind) + random.gauss(0.0, 0.5)
        noise = random.gauss(0.0, 0.5)
        x = {"wind": wind, "pitch": random.random()}
        yield x, {"power": slope * wind + noise, "load": wind + 0.4 * noise + random.gauss(0.0, 0.3)}


def trained(n=60, rows=None, **settings):
    model = MOMoGPRegressor(**{**SMALL, **settings})
    for x, y in feed(n) if rows is None else rows:
        model.learn_one(x, y)
    return model


def state(model):
    return container.dumps("state", model._state())


X = {"wind": 8.0, "pitch": 0.5}


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
    model = MOMoGPRegressor(**SMALL, bounds={"level": (0.0, 1.0)})
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


@pytest.mark.parametrize("size", [1e5, 1e9, 1.7e12, 1e50])
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
    assert np.isfinite(model._model.stack.planes).all()


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


# ------------------------------------------------------------------ frames


def frames(n, **kwargs):
    rows = list(feed(n, **kwargs))
    return pd.DataFrame([x for x, _ in rows]), pd.DataFrame([y for _, y in rows])


def test_learn_many_is_about_learn_one():
    frame, targets = frames(200)
    # Not in the first rows: a column that joins later is another column.
    targets.iloc[4::7, 0] = np.nan
    frame.iloc[4::11, 1] = np.nan
    targets.iloc[50] = np.nan
    one = MOMoGPRegressor(**{**SMALL, "tuning_evaluations": 0, "max_points": 400})
    many = one.clone()
    for x, y in zip(frame.to_dict("records"), targets.to_dict("records"), strict=True):
        one.learn_one(x, y)
    many.learn_many(frame, targets)
    assert many.n_rows == one.n_rows == 199
    a, b = one.predict_one(X, with_dist=True), many.predict_one(X, with_dist=True)
    for name in ("power", "load"):
        assert b.mean[name] == pytest.approx(a.mean[name], abs=0.05 * a.std[name])
        assert b.std[name] == pytest.approx(a.std[name], rel=0.02)


def test_frames_in_any_shape():
    frame, targets = frames(80)
    model = MOMoGPRegressor(**SMALL)
    model.learn_many(frame[:40], targets[:40])
    again = model.clone()
    again.learn_many(frame[["pitch", "wind"]][:40], targets[["load", "power"]][:40])
    assert state(again) == state(model)

    wider = frame[40:60].assign(new=1.0)
    model.learn_many(wider.drop(columns="wind"), targets[40:60].assign(third=3.0))
    assert set(model.predict_one(X)) == {"power", "load", "third"}
    before = state(model)
    model.learn_many(frame[:0], targets[:0])
    model.learn_many(pd.DataFrame(), pd.DataFrame())
    assert state(model) == before


def test_predict_many_keeps_the_index_and_says_what_predict_one_says():
    model = trained()
    frame, _ = frames(12, seed=3)
    frame.index = pd.date_range("2024-01-01", periods=12, freq="h")
    frame.iloc[3, 0] = np.nan
    means = model.predict_many(frame)
    assert means.index.equals(frame.index) and list(means.columns) == ["load", "power"]
    for (_, row), (_, mean) in zip(frame.iterrows(), means.iterrows(), strict=True):
        expected = model.predict_one(row.to_dict())
        assert mean.to_dict() == pytest.approx(expected, rel=1e-9)
    distribution = model.predict_many(frame, with_dist=True)
    lower, upper = distribution.interval(0.9)
    expected = model.predict_one(frame.iloc[5].to_dict(), with_dist=True).interval(0.9)["power"]
    np.testing.assert_allclose([lower[5, 1], upper[5, 1]], expected, rtol=1e-6)
    assert model.predict_many(frame[[]]).shape == (12, 2)


@pytest.mark.parametrize("settings", [{}, {"weights": "uniform"}, {"bounds": {"power": (0.0, None)}}])
def test_predict_many_of_no_rows(settings):
    model = trained(**settings)
    assert model.predict_many(pd.DataFrame({"wind": [], "pitch": []})).shape == (0, 2)


@pytest.mark.parametrize("value", ["fast", 1j, math.inf, 1e60, datetime(2024, 1, 1)])
def test_bad_cells_are_named_and_change_nothing(value):
    model = trained(20)
    before = state(model)
    dtype = object if isinstance(value, complex) else None
    frame = pd.DataFrame({"wind": pd.Series([1.0, value], ["a", "b"], dtype), "new": 1.0})
    good = pd.DataFrame({"power": [1.0, 2.0], "other": 1.0}, index=["a", "b"])
    for call in (
        lambda: model.learn_many(frame, good),
        lambda: model.learn_many(good, frame),
        lambda: model.predict_many(frame),
        lambda: model.fit(frame, good),
    ):
        with pytest.raises((TypeError, ValueError), match="row 'b' of [XY]: .*'wind'"):
            call()
        assert state(model) == before


def test_frames_that_do_not_fit():
    model = trained(20)
    frame, targets = frames(5)
    with pytest.raises(ValueError, match="5 rows and Y 4"):
        model.learn_many(frame, targets[:4])
    with pytest.raises(TypeError, match="X must be a pandas DataFrame"):
        model.predict_many([X])
    with pytest.raises(TypeError, match="Y must be a pandas DataFrame"):
        model.learn_many(frame, targets["power"])
    twice = pd.concat([frame, frame[["wind"]]], axis=1)
    with pytest.raises(ValueError, match="X has two columns 'wind'"):
        model.learn_many(twice, targets)


def test_columns_of_all_types():
    model = trained(20)
    frame = pd.DataFrame({"wind": pd.array([8, None], dtype="Int64"), "pitch": pd.array([True, None], "boolean")})
    targets = pd.DataFrame({"power": pd.array([24.0, None], "Float64"), "load": np.array([8, 9], dtype=np.int8)})
    model.learn_many(frame, targets)
    assert model.n_rows == 22


def test_fit_starts_afresh_and_streams_on():
    frame, targets = frames(150)
    model = trained(30, rows=[({"z": 1.0}, {"old": 5.0})] * 30)
    assert model.fit(frame, targets) is model
    assert model.n_rows == 150 and set(model.predict_one(X)) == {"power", "load"}
    other = MOMoGPRegressor(**SMALL).fit(frame, targets)
    assert other.predict_one(X) == model.predict_one(X)
    for x, y in feed(20, seed=4):
        model.learn_one(x, y)
    assert model.n_rows == 170
    assert model.predict_one(X)["power"] == pytest.approx(24.0, abs=1.0)


# ------------------------------------------------------------------ late labels


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


# ------------------------------------------------------------------ control


def test_a_frozen_model_learns_neither_frames_nor_late_targets():
    model = trained()
    model.predict_one(X, id=1)
    before = container.dumps("state", {**model._state(), "pending": []})
    model.freeze()
    model.learn_many(*frames(10))
    model.learn_later(1, {"power": 0.0})
    model.unfreeze()
    assert model.n_rows == 60 and state(model) == before


def test_hyperparameters():
    model = trained(tuning_evaluations=0)
    entries = model.hyperparameters
    assert {entry["expert"] for entry in entries} == {"clock matern32", "matern32"}
    assert set(entries[0]["lengthscales"]) == {"clock", "pitch", "wind"}
    assert entries[0]["targets"] == ["load", "power"]
    before = model.predict_one({"wind": 6.0, "pitch": 0.1})
    model.set_hyperparameters({"wind": 2.5, "clock": 77.0}, noise=0.25)
    for entry in model.hyperparameters:
        assert entry["lengthscales"]["wind"] == pytest.approx(2.5)
        assert entry["noise"] == pytest.approx(0.25, rel=1e-3)
        assert entry["lengthscales"].get("clock", 77.0) == pytest.approx(77.0)
    assert model.predict_one({"wind": 6.0, "pitch": 0.1}) != before


@pytest.mark.parametrize(
    ("lengths", "noise"),
    [
        ({"wing": 1.0}, None),
        ({"noise": 1.0}, None),
        ({"wind": -1.0}, 0.1),
        ({}, 0.0),
        *(({"wind": value}, None) for value in (0.0, None, math.nan, math.inf, "long", 1e-300)),
    ],
)
def test_bad_hyperparameters_are_rejected(lengths, noise):
    model = trained(20)
    before = state(model)
    with pytest.raises((TypeError, ValueError), match="wing|wind|noise"):
        model.set_hyperparameters(lengths, noise)
    assert state(model) == before


def test_retuning_goes_step_by_step():
    model = trained(tuning_evaluations=8, max_points=400)
    before = [entry["lengthscales"] for entry in model.hyperparameters]
    model.retune()
    for x, y in feed(60, seed=2):
        model.learn_one(x, y)
    assert [entry["lengthscales"] for entry in model.hyperparameters] != before


@pytest.mark.parametrize("weights", ["stacking", "posterior", "uniform"])
def test_weights_and_shares_sum_to_one(weights):
    model = trained(weights=weights)
    table = pd.DataFrame(model.expert_weights)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-6)
    shares = pd.DataFrame(model.explain_one(X)["experts"])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-9)
    assert (shares >= 0.0).all(axis=None)


def test_explain_one():
    rows = list(feed(45))
    model = trained(rows=rows, experts=("matern32",))
    why = model.explain_one(rows[17][0], n_neighbours=3)
    assert [neighbour["row"] for neighbour in why["neighbours"]][0] == 17
    first = why["neighbours"][0]
    assert first["similarity"] == pytest.approx(1.0)
    assert first["x"] == pytest.approx(rows[17][0]) and first["y"] == pytest.approx(rows[17][1])
    similarities = [neighbour["similarity"] for neighbour in why["neighbours"]]
    assert similarities == sorted(similarities, reverse=True) and len(similarities) == 3
    assert sum(why["relevance"].values()) == pytest.approx(1.0)
    # Pitch has no influence.
    assert why["relevance"]["wind"] > why["relevance"]["pitch"]
    assert model.explain_one(X, 0)["neighbours"] == []
    with pytest.raises(ValueError, match="n_neighbours"):
        model.explain_one(X, -1)


def test_relevance_of_one_expert_is_what_it_explains():
    model = trained(40, experts=("matern32",))
    shares = model.relevance
    assert set(shares) == {"wind", "pitch"} and sum(shares.values()) == pytest.approx(1.0)
    explained = model.explain_one(X)["relevance"]
    assert shares == pytest.approx({name: explained[name] for name in shares})
    assert shares["wind"] > shares["pitch"]


@pytest.mark.parametrize("settings", [{}, {"coupling": "independent"}, {"weights": "posterior"}])
def test_relevance_is_a_mean_over_leaves_by_rows_and_weights(settings):
    rows = list(feed(150))
    model = trained(rows=rows, **settings)
    weights, wanted = model.expert_weights, {"clock": 0.0, "pitch": 0.0, "wind": 0.0}
    trees = zip(model.hyperparameters, [leaf for tree in model._model.trees for leaf in tree.leaves()], strict=True)
    for entry, leaf in trees:
        spread = dict(
            zip(("clock", "pitch", "wind"), model._model.rows.gather(leaf.numbers)[0].std(axis=0), strict=True)
        )
        squares = {name: (spread[name] / length) ** 2 for name, length in entry["lengthscales"].items()}
        share = entry["rows"] * sum(weights[entry["expert"]][target] + 1e-12 for target in entry["targets"])
        for name, square in squares.items():
            wanted[name] += share * square / sum(squares.values())
    total = sum(wanted.values())
    assert len({entry["rows"] for entry in model.hyperparameters}) > 1
    assert model.relevance == pytest.approx({name: value / total for name, value in wanted.items()})


def test_relevance_where_there_is_little_to_tell():
    assert trained(10, experts=("lags",)).relevance == {}
    same = trained(rows=[({"wind": 0.1}, {"power": 1.0})] * 9, experts=("matern32",))
    assert same.relevance == {}
    assert trained(rows=[({"wind": 0.1}, {"power": 1.0})] * 9).relevance == {"clock": 1.0, "wind": 0.0}
    assert trained(rows=[({}, {"power": float(t)}) for t in range(9)]).relevance == {"clock": 1.0}
    assert set(trained(30, clock=False).relevance) == {"pitch", "wind"}


def test_explain_one_in_the_units_of_the_user():
    rows = [({"x": t % 7}, {"level": 0.05 + 0.1 * (t % 7)}) for t in range(30)]
    model = trained(rows=rows, bounds={"level": (0.0, 1.0)}, transforms={"level": "logit"}, experts=("matern32",))
    for neighbour in model.explain_one({"x": 3.0})["neighbours"][:2]:
        assert neighbour["y"]["level"] == pytest.approx(0.35)


def test_describe_names_experts_and_leaves():
    text = trained(120).describe()
    assert "2 inputs, 2 targets" in text and "clock matern32" in text and "leaves of at most" in text
    assert text.endswith(" jobs waiting, 0 drifts")


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


# ------------------------------------------------------------------ drift


class Alarm(base.DriftDetector):
    """Fires on a single row that is off by more than three deviations."""

    def update(self, x):
        self._drift_detected = x > 9.0


# Fails for "uniform": the stack learns nothing there, and its scores are memory that nobody wrote.
@pytest.mark.parametrize("weights", ["stacking", "uniform"])
@pytest.mark.parametrize("on_drift", ["retune", "widen", "forget"])
def test_drift_is_seen_logged_and_answered(on_drift, weights, caplog):
    settings = {**SMALL, "experts": ("matern32",), "weights": weights}
    model = MOMoGPRegressor(**settings, drift_detector=Alarm(), on_drift=on_drift)
    with caplog.at_level(logging.INFO, logger="momostream"):
        for x, y in feed(150):
            model.learn_one(x, y)
        assert model.drift_events == []
        for x, y in feed(60, seed=1, slope=-9.0):
            model.learn_one(x, y)
    assert model.drift_events[0] == 151
    assert any(f"row 151: drift, {on_drift}" in record.message for record in caplog.records)
    assert "0 drifts" not in model.describe()
    assert np.isfinite(list(model.predict_one(X).values())).all()
    if on_drift == "forget":
        assert len(model._model.rows) < 120


def test_adwin_is_shown_every_row_but_the_first_ones():
    settings = {"clock": 1, "delta": 0.05, "grace_period": 5, "min_window_length": 3}
    model = MOMoGPRegressor(**{**SMALL, "experts": ("matern32",)}, drift_detector=drift.ADWIN(**settings))
    twin, expected = drift.ADWIN(**settings), []
    for x, y in [*feed(150), *feed(40, seed=1, slope=-9.0), *feed(150, seed=2, slope=40.0)]:
        model.learn_one(x, y)
        if model.n_rows > 16:
            twin.update(model._model.stack.surprise)
            if twin.drift_detected:
                expected.append(model.n_rows)
    assert model.drift_events == expected


def test_frames_show_the_detector_every_row():
    model = MOMoGPRegressor(**{**SMALL, "experts": ("matern32",)}, drift_detector=Alarm(), on_drift="widen")
    one = model.clone()
    for frame, targets in (frames(150), frames(60, seed=1, slope=-9.0)):
        model.learn_many(frame, targets)
        for x, y in zip(frame.to_dict("records"), targets.to_dict("records"), strict=True):
            one.learn_one(x, y)
    assert model.drift_events == one.drift_events != []


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
