"""Reports of `MOMoGPRegressor` about itself: hyper-parameters, weights, relevance, reasons, drift."""

from __future__ import annotations

import logging
import math

import numpy as np
import pandas as pd
import pytest
from river import base, drift

from momostream import MOMoGPRegressor
from tests.estimators.rows import SMALL, X, feed, frames, state, trained

# ------------------------------------------------------------------ what it has learnt


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


# ------------------------------------------------------------------ drift


class Alarm(base.DriftDetector):
    """Fires on a single row that is off by more than three deviations."""

    def update(self, x):
        self._drift_detected = x > 9.0


# Fails for "uniform": the stack learns nothing there, and its scores are memory that nobody wrote.
@pytest.mark.parametrize("weights", ["stacking", "uniform"])
@pytest.mark.parametrize("on_drift", ["retune", "widen", "forget"])
def test_drift_is_seen_logged_and_answered(on_drift, weights, caplog):
    settings = {**SMALL, "experts": ("matern32",), "weights": weights, "screen": False}
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
