"""Events: begin and end, columns, release, rows that are not learnt."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.monitor.model import MonitorModel
from momostream.monitor.watch import N_EVENTS, Watch
from tests.monitor.feeds import normal_rows

THRESHOLD = 3.0


def watching(X, release_after=None, learn=True, quiet_rows=10):
    watch = Watch(MonitorModel(X.shape[1], warm_up=100, window=400), quiet_rows, release_after)
    for y in X:
        watch.take(y, THRESHOLD, learn)
    return watch


def faulty(n_before=400, n_rows=60, n_after=100, by=12.0, column=1):
    X = normal_rows(n_before + n_rows + n_after)
    X[n_before : n_before + n_rows, column] += by
    return X


def test_a_fault_is_one_event_that_names_its_column():
    watch = watching(faulty())
    assert watch.open is None
    (span,) = [span for span in watch.closed if span.begin >= 400]
    assert 400 <= span.begin <= 402
    # Means over thirty rows take some time to return.
    assert 455 <= span.end <= 485
    column, departure = next(iter(span.departures().items()))
    assert column == 1
    assert departure.observed - departure.expected == pytest.approx(12.0 * 60 / (span.end - span.begin + 1), abs=3.0)
    assert departure.deviations > 3.0


def test_rows_of_an_event_are_not_learnt():
    X = faulty()
    watch = watching(X)
    seen = sum(span.end - span.begin + 1 + watch.quiet_rows for span in watch.closed)
    assert watch.n_seen == len(X)
    assert len(X) - seen - 1 <= watch.model.n_learnt <= len(X) - seen + 1


def test_a_slow_drift_is_found():
    X = normal_rows(1000)
    # A deviation of this column in 40 rows.
    X[600:, 2] += 0.12 * np.arange(400)
    watch = watching(X)
    assert any(600 < span.begin < 700 and 2 in span.departures() for span in [*watch.closed, watch.open] if span)


def test_release_learns_the_rows():
    X = faulty(n_rows=200, n_after=0)
    watch = watching(X[:500])
    assert watch.open is not None
    n_learnt = watch.model.n_learnt
    watch.release()
    assert watch.open is None
    assert watch.closed[-1].released
    assert watch.model.n_learnt > n_learnt + 80
    events = watch.n_events
    for y in X[500:]:
        watch.take(y, THRESHOLD, True)
    assert watch.n_events <= events + 1
    watch.release()


def test_what_lasts_is_released_by_itself():
    watch = watching(faulty(n_rows=300, n_after=0), release_after=50)
    assert watch.open is None
    assert any(span.released for span in watch.closed)
    lasting = watching(faulty(n_rows=300, n_after=0), release_after=10_000)
    assert lasting.open is not None


def test_without_learning_nothing_is_released():
    X = faulty(n_rows=300, n_after=0)
    watch = watching(X[:400])
    n_learnt = watch.model.n_learnt
    watch.release_after = 20
    for y in X[400:]:
        watch.take(y, THRESHOLD, learn=False)
    assert watch.open is not None
    assert watch.model.n_learnt == n_learnt


def test_events_that_ended_are_forgotten_at_last():
    X = normal_rows(400)
    watch = watching(X, quiet_rows=1)
    spike = X[200] + [0.0, 1e3, 0.0, 0.0]
    for _ in range(N_EVENTS + 20):
        for y in (spike, *X[201:241]):
            watch.take(y, THRESHOLD, learn=False)
    assert watch.n_events > N_EVENTS
    assert len(watch.closed) == N_EVENTS


@pytest.mark.parametrize("cut", [300, 420, 440, 520])
def test_state_restores_everything(cut):
    X = faulty()
    watch = watching(X[:cut])
    again = Watch(MonitorModel(4, warm_up=100, window=400), 10, None).restore(watch.state())
    for y in X[cut:]:
        watch.take(y, THRESHOLD, True)
        again.take(y, THRESHOLD, True)
    assert [span.state()["severity"] for span in watch.closed] == [span.state()["severity"] for span in again.closed]
    assert watch.model.n_learnt == again.model.n_learnt
    assert [span.departures() for span in watch.closed] == [span.departures() for span in again.closed]


def test_a_column_joins_during_an_event():
    X = faulty(n_rows=100, n_after=20)
    watch = watching(X[:430, :3])
    assert watch.open is not None
    watch.widen(1)
    for y in X[430:]:
        watch.take(y, THRESHOLD, True)
    assert watch.open is not None or watch.closed
    watch.release()
    assert watch.model.n_columns == 4
