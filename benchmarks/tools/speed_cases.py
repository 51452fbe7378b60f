"""One case of `benchmarks.speed before`, run as a file so that ``PYTHONPATH`` decides which momostream is measured.

    PYTHONPATH=CHECKOUT python benchmarks/tools/speed_cases.py CASE ROWS

Prints CPU figures as JSON: microseconds of a row (median, mean, mean of the first 100), or of one call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "FORECASTS", "feed", "measure"]

Array = NDArray[np.float64]
Figures = dict[str, float]

# Series and steps.
FORECASTS = ((3, 12), (7, 24), (14, 10), (15, 36))
FIRST = 100
# Rows that are predicted at once, and how often.
N_PREDICTED, N_REPEATS = 1000, 5


def feed(n_rows: int, n_inputs: int, n_targets: int) -> tuple[Array, Array]:
    """Inputs that wander, and targets that are a smooth function of them with noise that they share."""
    rng = np.random.default_rng(0)
    steps = np.sqrt(1.0 - 0.95**2) * rng.normal(size=(n_rows, n_inputs))
    X = np.empty_like(steps)
    x = rng.normal(size=n_inputs)
    for i, step in enumerate(steps):
        X[i] = x = 0.95 * x + step
    mixing, loading = rng.normal(size=(n_inputs, 20)) / np.sqrt(n_inputs), rng.normal(size=(20, n_targets)) / 3.0
    noise = rng.normal(size=(n_targets, n_targets)) / np.sqrt(n_targets)
    return X, np.sin(X @ mixing) @ loading + 0.5 * rng.normal(size=(n_rows, n_targets)) @ noise


def dicts(letter: str, rows: Array) -> list[dict[str, float]]:
    """Rows by name."""
    names = [f"{letter}{k}" for k in range(rows.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


def timed(calls: Iterator[Callable[[], Any]]) -> Array:
    """CPU microseconds of each call."""
    spent = []
    for call in calls:
        start = time.thread_time_ns()
        call()
        spent.append(time.thread_time_ns() - start)
    return np.array(spent) / 1e3


def of_rows(spent: Array) -> Figures:
    """Median and mean after the first third, and the mean of the first rows."""
    late = spent[len(spent) // 3 :]
    return {"median": float(np.median(late)), "mean": float(late.mean()), "first": float(spent[:FIRST].mean())}


def regressor(n_rows: int, with_interval: bool) -> Figures:
    """Rows that are predicted, with intervals if wanted, and learnt: 8 inputs, 6 targets."""
    from momostream import MOMoGPRegressor

    model = MOMoGPRegressor(seed=0)

    def serve(x: dict[str, float], y: dict[str, float]) -> None:
        found: Any = model.predict_one(x, with_dist=with_interval)
        if with_interval and found:
            found.interval(0.9)
        model.learn_one(x, y)

    X, Y = feed(n_rows, 8, 6)
    pairs = zip(dicts("x", X), dicts("y", Y), strict=True)
    return of_rows(timed(lambda x=x, y=y: serve(x, y) for x, y in pairs))  # type: ignore[misc]


def forecaster(n_rows: int, n_series: int, horizon: int) -> Figures:
    """Rows that are learnt and forecast from; at the end, the interval of a forecast."""
    from momostream import MOMoGPForecaster

    model = MOMoGPForecaster(horizon=horizon, seed=0)

    def serve(y: dict[str, float]) -> None:
        model.learn_one(y)
        model.forecast(horizon, with_dist=True)

    rows = dicts("y", feed(n_rows, 4, n_series)[1])
    found = of_rows(timed(lambda y=y: serve(y) for y in rows))  # type: ignore[misc]
    forecasts = [model.forecast(horizon, with_dist=True) for _ in range(30)]
    found["interval"] = float(np.median(timed(forecast.interval for forecast in forecasts)))
    return found


def means(n_rows: int) -> Figures:
    """Means of many rows by the model of a table, at the second call."""
    from momostream.sklearn import MOMoGPRegressor

    X, Y = feed(n_rows + N_PREDICTED, 8, 6)
    model = MOMoGPRegressor(random_state=0, max_iterations=5).fit(X[:n_rows], Y[:n_rows])
    calls = timed((lambda: model.predict(X[n_rows:])) for _ in range(1 + N_REPEATS))
    return {"median": float(np.median(calls[1:]))}


CASES: dict[str, Callable[[int], Figures]] = {
    "regressor": lambda n: regressor(n, False),
    "regressor, interval": lambda n: regressor(n, True),
    **{f"{P} x {H}": lambda n, P=P, H=H: forecaster(n, P, H) for P, H in FORECASTS},  # type: ignore[misc]
    "means": means,
}


def measure(case: str, n_rows: int) -> Figures:
    """Figures of one case."""
    return CASES[case](n_rows)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
