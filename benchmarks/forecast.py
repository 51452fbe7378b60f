"""Forecasts: momostream beside online rivals and statsforecast, many steps ahead, row by row.

    python -m benchmarks.forecast [feed ...] [--half choosing] [--horizons 6 ...] [--models momostream ridge ...]
                                  [--rows N] [--cap 300] [--quick]

Feeds, series, horizons and rows are those of `benchmarks.data.FORECASTS` (the data are found through
``MOMOSTREAM_DATA``). Row t is learnt, then the rows t + 1 to t + H are forecast. Origins from row 600 on are scored, as
long as all that they forecast is in the series and something is known in their own row. Every run has a process of its
own with one BLAS thread, and ends when its calls have used ``--cap`` CPU seconds. Results are appended to
``results/forecast.jsonl``; ``results/forecast.md`` is written from the newest result of each kind. A full run takes
about 10 minutes, without that of statsforecast.

The models of statsforecast are scored from forecasts that `benchmarks.tools.forecast_peers` has made before, and left
out where it has made none. ``--quick`` is a small run that keeps nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import FORECASTS, HALVES, Series, half_of, series
from benchmarks.harness import (
    carry_out,
    options_unless_task,
)
from benchmarks.tools.forecast_peers import PEERS, kept
from benchmarks.tools.forecast_report import MODELS, report
from benchmarks.tools.forecast_rivals import RIVALS, Replayed, Size, WithResiduals
from benchmarks.tools.forecast_scores import STRIDE, UNSCORED, Multivariate, Record
from benchmarks.tools.stream_report import Result

Array = NDArray[np.float64]

# Distributions that wait to be scored.
BATCH = 200
QUICK = {"feeds": ["windturbine", "etth1"], "horizons": [6, 10], "models": ["momostream", "last_value", "ridge"]}


# ---------------------------------------------------------------------- models with one interface


class Model(Protocol):
    """The methods that a run needs; only ``learn`` and ``forecast`` are timed."""

    def rows(self, Y: Array) -> Iterable[Any]:
        """Rows as the model takes them; a missing value is NaN in ``Y``."""

    def learn(self, y: Any) -> None:
        """Take in the next row."""

    def forecast(self) -> Any:
        """The model's answer for the H rows to come."""

    def distribution(self, answer: Any) -> Multivariate | None:
        """The answer as distributions, None if the model makes no forecast here."""


class Momostream:
    """momostream's forecaster with its defaults, with the time and the inputs of each row where they are known.

    A row in which nothing is known does not come where there are times: the model sees the gap in the times.
    """

    def __init__(self, feed: Series, horizon: int, seed: int, **settings: Any) -> None:
        from momostream import MOMoGPForecaster

        time = None if feed.times is None else "time"
        self.model = MOMoGPForecaster(horizon=horizon, time=time, seed=seed, **settings)
        self.names, self.horizon, self.times = feed.names, horizon, feed.times
        self.inputs = [dict(zip(feed.inputs, x, strict=True)) for x in feed.X.tolist()] if feed.inputs else None
        self.came, self.ahead = False, None if self.inputs is None else self.inputs[:0]

    def rows(self, Y: Array) -> Iterator[tuple[int, dict[str, float], dict[str, Any] | None]]:
        """Number of the row, known values, inputs and time."""
        for row, y in enumerate(Y.tolist()):
            known = {name: value for name, value in zip(self.names, y, strict=True) if value == value}
            x = {} if self.inputs is None else dict(self.inputs[row])
            if self.times is not None:
                x["time"] = self.times[row].to_pydatetime()
            yield row, known, x or None

    def learn(self, row: tuple[int, dict[str, float], dict[str, Any] | None]) -> None:
        """Learn the row if it comes."""
        number, y, x = row
        self.came = bool(y) or self.times is None
        if self.came:
            self.model.learn_one(y, x)
        if self.inputs is not None:
            self.ahead = self.inputs[number + 1 : number + 1 + self.horizon]

    def forecast(self) -> Any:
        """The distribution as momostream gives it, None where no row came."""
        return self.model.forecast(self.horizon, self.ahead, with_dist=True) if self.came else None

    def distribution(self, answer: Any) -> Multivariate | None:
        """None before all series have been seen."""
        return InOrder(answer, self.names) if answer and len(answer.series) == len(self.names) else None


class InOrder:
    """A forecast as arrays, the series in the order of the feed."""

    def __init__(self, forecast: Any, names: list[str]) -> None:
        self._arrays, series = forecast.arrays, list(forecast.series)
        self._there = [series.index(name) for name in names]
        self._here = [names.index(name) for name in series]

    @property
    def mean(self) -> Array:
        """Mean of each value."""
        return np.asarray(self._arrays.mean[:, self._there])

    def log_pdf(self, y: Array) -> Array:
        """Log density of each value."""
        return np.asarray(self._arrays.log_pdf(y[:, self._here])[:, self._there])

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        return np.asarray(self._arrays.cdf(y[:, self._here])[:, self._there])

    def crps(self, y: Array) -> Array:
        """Ranked score of each value."""
        return np.asarray(self._arrays.crps(y[:, self._here])[:, self._there])


def there(feed: str, model: str) -> str | None:
    """Why a model cannot be run on a feed, None if it can."""
    if model == "seasonal_last" and FORECASTS[feed].season is None:
        return "no season"
    if model in PEERS and kept(feed, model) is None:
        return "no forecasts: run benchmarks.tools.forecast_peers"
    return None


# ---------------------------------------------------------------------- one run, in a process of its own


def measure(task: Result) -> Result:
    """Run one model over one feed."""
    feed = series(task["feed"], task["rows"])
    Y = feed.Y
    if task["model"] == "momostream":
        model = Momostream(feed, task["horizon"], task["seed"])
        record, done = run(model, Y, task["horizon"], cap=task["cap"])
        return {**task, **figures(record, done, 1)}
    size = Size(task["horizon"], len(feed.names), FORECASTS[task["feed"]].season)
    if task["model"] in PEERS:
        return {**task, **measure_peer(task, Y, size)}
    rival = WithResiduals(RIVALS[task["model"]](size), size)
    record, done = run(rival, Y, task["horizon"], cap=task["cap"])
    return {**task, **figures(record, done, 1), "replaced": rival.replaced}


def measure_peer(task: Result, Y: Array, size: Size) -> Result:
    """Score what `forecast_peers` has made; the CPU time is that of making it, up to the longest horizon."""
    made = kept(task["feed"], task["model"])
    assert made is not None, "the forecasts were there when the run was planned"
    reached = min(int(made.origins[-1]) + STRIDE, len(Y))
    rival = WithResiduals(Replayed(made, size), size)
    record, _ = run(rival, Y[:reached], size.horizon, stride=STRIDE)
    found = figures(record, reached, STRIDE)
    found["capped"] = reached < len(Y)
    return {
        **found,
        "done": reached,
        "replaced": rival.replaced,
        "us": {"mean": made.cpu_seconds / len(made.mean) * 1e6},
    }


def figures(record: Record, done: int, stride: int) -> Result:
    """Scores at the origins with forecasts and at every `STRIDE`-th, and cost."""
    answer: Result = {"done": done, "capped": done < len(record.Y)}
    if done <= UNSCORED:
        return answer
    answer["every_fifth"] = record.accuracy(record.origins(done, STRIDE))
    if stride == 1:
        answer["scores"] = record.accuracy(record.origins(done, 1))
    return {**answer, "us": record.cost(done)}


def run(model: Model, Y: Array, horizon: int, cap: float = np.inf, stride: int = 1) -> tuple[Record, int]:
    """Learn each row, then forecast, until the calls have used ``cap`` CPU seconds.

    Parameters
    ----------
    stride
        Origins from one that is scored to the next.

    Returns
    -------
    record
        Scores of each origin and CPU times of each row.
    done
        How many rows were done.
    """
    record, left, clock = Record(Y, horizon), cap * 1e9, time.thread_time_ns
    scored = set(record.origins(len(Y), stride).tolist())
    waiting: list[tuple[int, Multivariate]] = []
    for row, y in enumerate(model.rows(Y)):
        start = clock()
        model.learn(y)
        answer = model.forecast()
        record.ns[row] = clock() - start
        if row in scored:
            distribution = model.distribution(answer)
            if distribution is None:
                raise RuntimeError(f"row {row}: no forecast")
            waiting.append((row, distribution))
            if len(waiting) == 1:
                record.score(row, distribution)
            elif len(waiting) == BATCH:
                _score(record, waiting)
        left -= record.ns[row]
        if left < 0.0:
            _score(record, waiting)
            return record, row + 1
    _score(record, waiting)
    return record, len(Y)


def _score(record: Record, waiting: list[tuple[int, Multivariate]]) -> None:
    """Score the distributions that wait, and forget them.

    In batches, so that scoring does not drive the model out of the processor's caches row by row. That is honest only
    if a distribution does not change when rows are learnt, which the first shows: it was scored when it was made.
    """
    if waiting:
        first = waiting[0][0]
        before = record.nlpd[first].copy()
        for origin, distribution in waiting:
            record.score(origin, distribution)
        if not np.array_equal(before, record.nlpd[first], equal_nan=True):
            raise RuntimeError(f"row {first}: the forecast changed when rows were learnt")
        waiting.clear()


# ---------------------------------------------------------------------- which runs


def tasks(options: argparse.Namespace) -> list[Result]:
    """All runs of an invocation, feed by feed."""
    listed = []
    for feed in options.feeds or FORECASTS:
        plan = FORECASTS[feed]
        if options.half not in (None, half_of(feed)):
            continue
        for model in options.models:
            reason = there(feed, model)
            if reason is not None:
                print(f"{feed}, {model}: left out, {reason}", file=sys.stderr)
                continue
            listed += [
                {
                    "feed": feed,
                    "horizon": horizon,
                    "model": model,
                    "rows": min(options.rows or plan.rows, plan.rows),
                    "seed": 0,
                    "cap": options.cap,
                }
                for horizon in plan.horizons
                if not options.horizons or horizon in options.horizons
            ]
    return listed


def title(task: Result) -> str:
    """One line about a run."""
    return f"{task['feed']}, H = {task['horizon']}, {task['model']}"


def main() -> None:
    """Run what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feeds", nargs="*", help="by default all")
    parser.add_argument("--half", choices=list(HALVES), help="only these feeds; defaults are chosen on the first half")
    parser.add_argument("--horizons", nargs="+", type=int, help="only these; by default all of each feed")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, help="most rows of each feed (default: all)")
    parser.add_argument("--cap", type=float, default=300.0, help="CPU seconds of a run")
    parser.add_argument("--quick", action="store_true", help="two feeds, 900 rows, three models; nothing is kept")
    options = options_unless_task(parser, measure)
    if options.quick:
        parser.set_defaults(**QUICK, rows=900)
        options = parser.parse_args()
    unknown = set(options.feeds) - set(FORECASTS)
    if unknown:
        parser.error(f"unknown feed {', '.join(sorted(unknown))}; the feeds are {', '.join(FORECASTS)}")
    carry_out("forecast", tasks(options), title, report, keep=not options.quick)


if __name__ == "__main__":
    main()
