"""Rivals of the forecast benchmark that are fitted now and then: against slow twins, and blind to what comes later."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks import data, forecast
from benchmarks.tools import forecast_batch
from benchmarks.tools.forecast_batch import (
    BATCH,
    PENALTIES,
    Autoregression,
    Features,
    Fit,
    Problem,
    blocks,
    fitted_var,
    held_out,
    mean_of,
    problem,
    ridge_changes,
    ridge_fits,
    ridge_weights,
    var_deviations,
)
from benchmarks.tools.forecast_scores import QUANTILES, Quantiles
from benchmarks.tools.peers_models import Normals


@pytest.fixture(autouse=True)
def few_trees(monkeypatch, tmp_path):
    monkeypatch.setattr(forecast_batch, "TREES", 5)
    monkeypatch.setattr(forecast_batch, "FOLDER", tmp_path / "peers")


def feed(rng, n_rows=800, n_series=2, n_inputs=1, dated=True):
    Y = np.cumsum(rng.normal(size=(n_rows, n_series)), axis=0) / 5.0
    times = pd.date_range("2024-03-01", periods=n_rows, freq="h") if dated else None
    names = [f"y{series}" for series in range(n_series)]
    return data.Series(names, Y, times, [f"x{i}" for i in range(n_inputs)], rng.normal(size=(n_rows, n_inputs)))


@pytest.mark.parametrize("season", [None, 24])
@pytest.mark.parametrize("n_inputs", [0, 2])
def test_features_match_naive(rng, season, n_inputs):
    H, P = 3, 2
    rows = feed(rng, 400, P, n_inputs, dated=season is not None)
    asked = problem(rows, H, season)
    features, F = Features(asked), rows.Y
    for t in (5, 36, 170, 396, 398):
        shared = [*F[t]]
        for lag in range(1, 6):
            shared += [*(F[t] - F[max(t - lag, 0)])]
        shared += [*(F[t] - F[max(t - 35, 0) : t + 1].mean(axis=0))]
        if season:
            angle = 2.0 * np.pi * rows.times[t].hour / 24.0
            shared += [*(F[max(t - season, 0)] - F[t])]
            shared += [np.sin(angle), np.cos(angle), np.sin(2.0 * angle), np.cos(2.0 * angle)]
        shared += [*rows.X[t]]
        assert_allclose(features.X[t] * scale_of(asked), shared, atol=1e-12)
        for h in range(1, H + 1):
            for p in range(P):
                k = (h - 1) * P + p
                own = []
                for back in (24, 168) if season else ():
                    own.append(F[t + h - back, p] - F[t, p] if t + h >= back else 0.0)
                if t + h < len(F):
                    if season:
                        own.append(float(rows.times[t + h].day_of_week >= 5))
                    assert_allclose(features.Q[t, k], [*own, *rows.X[t + h]])
                    assert_allclose(features.T[t, k], F[t + h, p] - F[t, p])
                else:
                    assert np.isnan(features.T[t, k])


def scale_of(asked):
    """Deviations of the shared features over the first 600 rows."""
    F = asked.F
    row = np.arange(len(F))
    parts = [F, *(F - F[np.maximum(row - lag, 0)] for lag in range(1, 6))]
    parts.append(F - pd.DataFrame(F).rolling(36, min_periods=1).mean().to_numpy())
    if asked.season:
        parts.append(F[np.maximum(row - asked.season, 0)] - F)
        angle = 2.0 * np.pi * asked.hour[:, None] / 24.0
        parts += [np.sin(angle), np.cos(angle), np.sin(2.0 * angle), np.cos(2.0 * angle)]
    return np.hstack([*parts, asked.inputs])[:600].std(axis=0)


@pytest.mark.parametrize("n_inputs", [0, 1])
@pytest.mark.parametrize("dated", [False, True])
def test_ridge_is_the_closed_form_of_each_step_and_series(rng, n_inputs, dated):
    asked = problem(feed(rng, 300, 2, n_inputs, dated), 2, 24 if dated else None)
    features = Features(asked)
    first, stop = 40, 250
    found = ridge_weights(features, first, stop)
    rows = np.arange(first, stop)
    for penalty, weights in zip(PENALTIES, found, strict=True):
        changes = ridge_changes(features, weights, rows)
        for k in range(4):
            X = np.column_stack([np.ones(len(rows)), features.X[rows], features.Q[rows, k]])
            diagonal = np.full(X.shape[1], penalty)
            diagonal[0] = 1e-3
            expected = np.linalg.solve(X.T @ X + np.diag(diagonal), X.T @ features.T[rows, k])
            assert_allclose(changes[:, k], X @ expected, atol=1e-9)


def test_ridge_takes_the_penalty_that_is_best_on_the_last_fifth(rng):
    asked = problem(feed(rng, 900), 2, 24)
    features, origins = Features(asked), np.arange(600, 898)
    fit = next(ridge_fits(asked, origins))
    assert_array_equal(fit.origins, np.arange(600, 700))
    known, start = 600 - 2 + 1, 24
    cut = start + int(0.8 * (known - start))
    tried, all_rows = ridge_weights(features, start, cut - 2), ridge_weights(features, start, known)
    held = np.arange(cut, known)
    for k in range(4):
        errors = [features.T[held, k] - ridge_changes(features, weights, held)[:, k] for weights in tried]
        best = int(np.argmin([np.mean(error**2) for error in errors]))
        change = ridge_changes(features, all_rows[best], fit.origins)[:, k]
        h, p = divmod(k, 2)
        assert_allclose(fit.points[:, h, p], asked.F[fit.origins, p] + change)
        assert_allclose(fit.errors[:, h, p], np.quantile(errors[best], QUANTILES))


def test_held_out_rows_share_no_target_with_the_others(rng):
    features = Features(problem(feed(rng), 6, 24))
    stop, held = held_out(features, 700)
    assert held[-1] + 6 == 700 and stop - 1 + 6 < held[0]
    assert len(held) == pytest.approx((700 - 24) / 5, abs=3)


@pytest.mark.parametrize("model", BATCH)
def test_nothing_after_the_first_origin_of_a_fit_counts(rng, model):
    rows, origins = feed(rng), np.arange(600, 790)
    asked = problem(rows, 3, 24)
    later = asked.F.copy()
    # From the last origin that is looked at on; a fit is made at the first one of a block.
    later[701:] += 100.0
    before = {
        int(o): p for block in BATCH[model](asked, origins) for o, p in zip(block.origins, block.points, strict=True)
    }
    after = {}
    for block in BATCH[model](asked._replace(F=later), origins):
        after |= dict(zip(block.origins.tolist(), block.points, strict=True))
    assert list(before) == origins.tolist() == list(after)
    for origin in (600, 650, 700):
        assert_allclose(before[origin], after[origin], atol=1e-9)
    assert np.abs(before[705] - after[705]).max() > 50.0


def test_trees_are_read_from_the_file_they_were_kept_in(rng, monkeypatch):
    asked, origins = problem(feed(rng), 2, 24), np.arange(600, 700)
    made = list(forecast_batch.lightgbm_fits(asked, origins))
    monkeypatch.setattr(forecast_batch, "_trees", None)
    again = list(forecast_batch.lightgbm_fits(asked, origins))
    assert len(made) == len(again) == 1
    assert_allclose(again[0].points, made[0].points, rtol=1e-6)
    assert_allclose(again[0].errors, made[0].errors, rtol=1e-6, atol=1e-6)
    assert made[0].seconds == 0.0 and again[0].seconds > 0.0
    monkeypatch.setattr(forecast_batch, "TREES", 6)
    with pytest.raises(TypeError):
        next(forecast_batch.lightgbm_fits(asked, origins))


def test_mean_of_two_has_the_fits_of_both(rng):
    def fits(edges, seconds):
        for first, stop in edges:
            yield Fit(
                np.arange(first, stop), rng.normal(size=(stop - first, 1, 1)), rng.normal(size=(99, 1, 1)), seconds
            )

    often, seldom = list(fits(((6, 8), (8, 10), (10, 12)), 0.0)), list(fits(((6, 10), (10, 12)), 3.0))
    found = list(mean_of(iter(often), iter(seldom)))
    assert_allclose(found[1].points, (often[1].points + seldom[0].points[2:]) / 2.0)
    assert_allclose(found[2].errors, (often[2].errors + seldom[1].errors) / 2.0)
    assert [fit.seconds for fit in found] == [3.0, 0.0, 3.0]


def test_blocks_start_at_multiples():
    assert [block[0] for block in blocks(np.arange(600, 1700), 500)] == [600, 1000, 1500]


def simulated_var(rng, n_rows):
    A1, A2 = np.array([[0.5, 0.2], [0.0, 0.4]]), np.array([[0.3, 0.0], [0.1, -0.4]])
    F = np.zeros((n_rows, 2))
    for t in range(2, n_rows):
        F[t] = [1.0, -0.5] + A1 @ F[t - 1] + A2 @ F[t - 2] + rng.normal(size=2) * [1.0, 0.5]
    return F, A1, A2


def test_var_finds_order_and_weights(rng):
    F, A1, A2 = simulated_var(rng, 6000)
    found = fitted_var(F)
    assert found.order == 2
    assert_allclose(found.A[1:3].T, A1, atol=0.1)
    assert_allclose(found.A[3:5].T, A2, atol=0.1)
    assert_allclose(found.S, np.diag([1.0, 0.25]), atol=0.05)


def test_var_deviations_are_those_of_the_companion_form(rng):
    A = np.vstack([np.zeros(2), rng.normal(size=(6, 2)) / 4.0])
    model = Autoregression(A, np.array([[1.0, 0.3], [0.3, 0.5]]), 3)
    companion = np.zeros((6, 6))
    companion[:2] = A[1:].T
    companion[2:, :4] = np.eye(4)
    noise = np.zeros((6, 6))
    noise[:2, :2] = model.S
    total = np.zeros((6, 6))
    for deviations in var_deviations(model, 5):
        total = companion @ total @ companion.T + noise
        assert_allclose(deviations, np.sqrt(np.diag(total))[:2])


def test_var_is_iterated_from_each_origin(rng):
    F, _, _ = simulated_var(rng, 700)
    asked = Problem(F, 4, None, np.zeros((700, 0)), None, None)
    block = next(BATCH["var"](asked, np.arange(600, 690)))
    model = fitted_var((F + 1e-4 * np.random.default_rng(0).normal(size=F.shape))[:500])
    for number in (0, 89):
        past = F[: 600 + number + 1].copy()
        for step in range(4):
            lagged = np.concatenate([past[-1 - lag] for lag in range(model.order)])
            past = np.vstack([past, model.A[0] + lagged @ model.A[1:]])
            assert_allclose(block.points[number, step], past[-1], atol=2e-3)
    assert isinstance(block.around(block.points[0]), Normals)


@pytest.mark.parametrize("model", BATCH)
def test_measured_run(data_dir, model):
    task = {"feed": "etth1", "horizon": 2, "model": model, "rows": 660, "seed": 0, "cap": 100.0}
    found = forecast.measure(task)
    assert found["done"] == 660 and not found["capped"] and found["replaced"] == 0
    assert 0.0 < found["scores"]["crps"] < found["scores"]["rmse"] < 3.0
    assert ("nlpd" in found["scores"]) == (model == "var")
    assert found["us"]["mean"] > 0.0
    assert forecast.measure({**task, "cap": 0.0}) == {
        **task,
        "cap": 0.0,
        "done": 0,
        "capped": True,
        "replaced": 0,
        "us": {"mean": 0.0},
    }


def test_far_points_are_replaced_by_the_last_value(rng, monkeypatch, data_dir):
    def broken(asked, origins):
        points = np.full((len(origins), 2, 7), np.nan)
        points[:, 0] = 5.0
        around = forecast_batch._block(Fit(origins, points, np.zeros((99, 2, 7)))).around
        yield forecast_batch.Block(origins, points, around)

    monkeypatch.setitem(BATCH, "var", broken)
    task = {"feed": "etth1", "horizon": 2, "model": "var", "rows": 640, "seed": 0, "cap": 100.0}
    found = forecast.measure(task)
    assert found["replaced"] == 38 * 7
    Y = data.series("etth1", 640).Y
    expected = np.sqrt(np.mean((Y[602:640] - Y[600:638]) ** 2, axis=0)).mean()
    assert_allclose(found["scores"]["by_step"]["rmse"][1], expected)


def test_quantiles_move_with_the_point():
    fit = Fit(np.arange(2), np.zeros((2, 1, 1)), QUANTILES[:, None, None])
    found = forecast_batch._block(fit).around(np.ones((1, 1)))
    assert isinstance(found, Quantiles)
    assert_allclose(found.quantiles[:, 0, 0], 1.0 + QUANTILES)
