"""Evidence row by row: the same as from whole matrices, with gaps, and after rows that are out of the ordinary."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from momostream.monitor.model import MonitorModel
from momostream.monitor.normal import CLIP, LAGS, SPEEDS, Normal, NormalRows, conditional_errors
from tests.monitor.feeds import normal_rows


def learnt(X, n_columns, **settings):
    model = MonitorModel(n_columns, **{"warm_up": 50, "window": 500, **settings})
    for y in X:
        model.learn(y, model.evidence(y))
    return model


def naive_scores(normal: Normal, X, first):
    """Raw scores of the rows from `first` on, each mean written out as a sum over all rows since then."""
    Z = (X - normal.centre) / normal.scale
    evidence = []
    for t in range(first, len(X)):
        predicted = normal.weights[0] + np.concatenate([Z[t - 1], Z[t - 2]]) @ normal.weights[1:]
        u = (Z[t] - predicted) / normal.std
        given = [
            (normal.precision[j] @ u) / math.sqrt(normal.precision[j, j]) / normal.given_std[j] for j in range(len(u))
        ]
        size = u @ normal.precision @ u / len(u)
        evidence.append([*u, *given, (math.log(size) - normal.size_centre) / normal.size_std])
    evidence = np.array(evidence)
    raws = []
    for row in range(len(evidence)):
        tails = []
        for s, speed in enumerate(SPEEDS):
            shares = speed * (1.0 - speed) ** np.arange(row, -1, -1)
            seen = evidence[: row + 1] if speed == 1.0 else np.clip(evidence[: row + 1], -CLIP, CLIP)
            t = (shares @ seen) * math.sqrt((2.0 - speed) / speed) / normal.norms[s]
            z = np.sign(t) * np.sqrt(normal.dof[s] * np.log1p(t**2 / normal.dof[s]))
            tails += [2.0 * X.shape[1] * norm.sf(np.abs(z[:-1]).max()), norm.sf(z[-1])]
        raws.append(max(-math.log10(min(tails)), 0.0))
    return np.array(raws)


def test_rows_give_the_same_as_the_sums_written_out():
    X = normal_rows(400, 3)
    model = learnt(X[:300], 3)
    model.calm()
    # Small enough that no lag is clipped.
    rows = X[298:]
    expected = naive_scores(model.normal, rows, LAGS)
    found = []
    for y in rows[LAGS:]:
        evidence = model.evidence(y)
        found.append(evidence.raw)
        model.watch(evidence)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert 0.5 < np.mean(expected) < 1.5


def test_evidence_changes_nothing():
    X = normal_rows(200)
    model = learnt(X[:150], 4)
    before = model.state()
    first = model.evidence(X[150])
    assert model.evidence(X[150]).score == first.score
    assert_allclose(model.state()["means"], before["means"])
    assert_allclose(model.past, before["past"])


def test_scores_are_rates_of_normal_rows():
    X = normal_rows(6000)
    model = learnt(X[:2000], 4, window=2000)
    scores = []
    for y in X[2000:]:
        evidence = model.evidence(y)
        scores.append(evidence.score)
        model.watch(evidence)
    for level in (1.0, 2.0):
        assert 0.5 * 10**-level < np.mean(np.array(scores) > level) < 2.0 * 10**-level


def test_unknown_values_are_judged_given_the_others():
    X = normal_rows(300)
    model = learnt(X, 4)
    precision = model.normal.precision
    u, known = np.array([0.5, 9.9, -1.0, 9.9]), np.array([True, False, True, False])
    conditional_errors(u, known, precision)
    # The size of all errors is that of the known ones alone.
    covariance = np.linalg.inv(precision)
    few = u[known]
    assert u @ precision @ u == pytest.approx(few @ np.linalg.solve(covariance[np.ix_(known, known)], few))
    assert_allclose((precision @ u)[~known], 0.0, atol=1e-12)


def test_a_row_without_values_is_no_evidence():
    model = learnt(normal_rows(200), 4)
    evidence = model.evidence(np.full(4, np.nan))
    assert evidence.score == 0.0
    assert np.isfinite(evidence.filled).all()
    model.watch(evidence)
    assert model.evidence(normal_rows(201)[200]).score < 2.0


def test_a_missing_column_does_not_move_its_means():
    model = learnt(normal_rows(200), 4)
    y = normal_rows(201)[200]
    y[2] = np.nan
    means = model.evidence(y).means
    before = model.state()["means"]
    assert_allclose(means[1:, [2, 6]], before[1:, [2, 6]])
    assert not np.allclose(means[1:, [1, 5]], before[1:, [1, 5]])


def test_the_row_after_a_spike_is_not_strange():
    X = normal_rows(400)
    model = learnt(X[:300], 4)
    spike = X[300].copy()
    spike[1] += 1e4
    evidence = model.evidence(spike)
    assert evidence.score > 6.0
    model.watch(evidence)
    assert model.evidence(X[301]).score < evidence.score / 2


@pytest.mark.parametrize("n_columns", [1, 2])
def test_few_columns_and_constant_ones(n_columns):
    X = np.full((120, n_columns), 7.0)
    model = learnt(X, n_columns)
    assert model.evidence(X[0]).score < 2.0
    assert model.evidence(X[0] + 1.0).score > 3.0


def test_collinear_columns():
    X = normal_rows(300, 2)
    X = np.column_stack([X, X.sum(axis=1)])
    model = learnt(X[:250], 3)
    for y in X[250:]:
        evidence = model.evidence(y)
        assert np.isfinite(evidence.score)
        model.watch(evidence)
    y = X[-1].copy()
    y[2] += 3.0
    assert model.evidence(y).score > 4.0


def test_learnt_spikes_do_not_rule():
    X = normal_rows(300)
    clean = learnt(X, 4).normal
    X[100, 1] = 1e6
    spoilt = learnt(X, 4).normal
    assert spoilt.scale[1] == pytest.approx(clean.scale[1], rel=0.5)


def test_the_window_keeps_the_newest_rows():
    X = np.vstack([normal_rows(300), normal_rows(300, seed=1) + 1000.0])
    model = learnt(X, 4, window=200)
    model.fit()
    assert model.normal.centre.min() > 1000.0
    assert model.nbytes < 200 * 4 * 8 * 5


def test_a_column_joins():
    X = normal_rows(400)
    model = learnt(X[:200, :3], 3)
    model.widen(1)
    for y in X[200:210]:
        model.learn(y, model.evidence(y))
    # Too few values to be judged.
    y = X[210].copy()
    y[3] += 1e3
    assert model.evidence(y).score < 2.0
    for y in X[210:300]:
        model.learn(y, model.evidence(y))
    y = X[300].copy()
    y[3] += 1e3
    assert model.evidence(y).score > 3.0


def test_alarms_count_in_the_rates():
    X = normal_rows(400)
    rows = NormalRows(np.stack([X[1:-1], X[:-2]], axis=1), X[2:], np.ones((398, 4), dtype=bool))
    without, with_alarms = Normal.fit(rows), Normal.fit(rows, np.full(20, 6.0))
    assert with_alarms.score(6.0) < without.score(6.0)
    for normal in (without, with_alarms):
        assert normal.score(normal.raw(3.0)) == pytest.approx(3.0)


def test_state_restores_everything():
    X = normal_rows(300)
    model = learnt(X[:180], 4)
    again = MonitorModel.from_state(model.state(), model.n_columns, model.warm_up, model.window)
    for y in X[180:]:
        ours, theirs = model.evidence(y), again.evidence(y)
        assert ours.score == theirs.score
        model.learn(y, ours)
        again.learn(y, theirs)
    assert_allclose(model.normal.weights, again.normal.weights, rtol=0.0, atol=0.0)


def test_the_column_at_fault_is_isolated():
    X = normal_rows(500)
    model = learnt(X[:400], 4, window=400)
    for column in range(4):
        y = X[400].copy()
        y[column] += 8.0 * (column + 1)
        errors = model.errors(y, model.past)
        found = model.isolate(errors, 1)
        assert np.flatnonzero(found).tolist() == [column]
        assert found[column] > 3.0
        # What the others say about it is near what it was.
        expected = model.expected(y, model.past, found != 0.0)
        assert abs(expected[column] - X[400, column]) < 2.5 * (column + 1)
