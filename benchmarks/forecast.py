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
import gc
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import FORECASTS, HALVES, Series, forward_filled, half_of, series
from benchmarks.harness import RESULTS, carry_out, kept_results, options_unless_task
from benchmarks.tools.forecast_batch import BATCH, TOO_MANY, problem
from benchmarks.tools.forecast_peers import PEERS, kept
from benchmarks.tools.forecast_report import MODELS, OURS, hardest, newest, report
from benchmarks.tools.forecast_rivals import RIVALS, Replayed, Size, WithResiduals
from benchmarks.tools.forecast_scores import STRIDE, UNSCORED, YOUNG, Multivariate, Record
from benchmarks.tools.stream_report import Result

Array = NDArray[np.float64]

# Distributions that wait to be scored.
WAITING = 200
# Of the choosing half: momostream meets the other for the results file only.
QUICK = {"feeds": ["skab_valve1", "etth1"], "horizons": [6, 10], "models": ["momostream", "last_value", "var"]}
# The case for which momostream is also run without timestamps.
UNTIMED = "etth1"


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
            # Nothing is known of rows after the last; forecasts of them are not scored.
            known = self.inputs[number + 1 : number + 1 + self.horizon]
            self.ahead = known + [{}] * (self.horizon - len(known))

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

    @property
    def median(self) -> Array:
        """Median of each value."""
        return np.asarray(self._arrays.quantiles((0.5,))[0][:, self._there])

    def log_pdf(self, y: Array) -> Array:
        """Log density of each value."""
        return np.asarray(self._arrays.log_pdf(y[:, self._here])[:, self._there])

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        return np.asarray(self._arrays.cdf(y[:, self._here])[:, self._there])

    def crps(self, y: Array) -> Array:
        """Ranked score of each value."""
        return np.asarray(self._arrays.crps(y[:, self._here])[:, self._there])


def ours(feed: Series, model: str, horizon: int, seed: int, **settings: Any) -> Momostream:
    """The model of this name: momostream with its defaults, without Gaussian processes, or without timestamps."""
    if model == "momostream_linear":
        from momostream.horizon.settings import LINEAR

        return Momostream(feed, horizon, seed, experts=LINEAR, **settings)
    if model == "momostream_untimed":
        feed = feed._replace(times=None)
    return Momostream(feed, horizon, seed, **settings)


def there(feed: str, model: str) -> str | None:
    """Why a model cannot be run on a feed, None if it can."""
    if model == "seasonal_last" and FORECASTS[feed].season is None:
        return "no season"
    if model == "momostream_untimed" and feed != UNTIMED:
        return f"only {UNTIMED} is run without timestamps"
    if model in ("lightgbm", "ridge_lightgbm") and feed in TOO_MANY:
        return "too many models"
    if model in PEERS and kept(feed, model) is None:
        return "no forecasts: run benchmarks.tools.forecast_peers"
    return None


# ---------------------------------------------------------------------- one run, in a process of its own


def measure(task: Result) -> Result:
    """Run one model over one feed."""
    feed = series(task["feed"], task["rows"])
    if task["model"] in OURS:
        model = ours(feed, task["model"], task["horizon"], task["seed"])
        record, done = run(model, feed.Y, task["horizon"], cap=task["cap"], first=YOUNG[0][0])
        found = figures(record, done, 1)
        if done > UNSCORED:
            found |= {"young": record.young(done), "slowest": record.slowest(done)}
        return {**task, **found}
    if task["model"] in BATCH:
        return {**task, **measure_batch(task, feed)}
    size = Size(task["horizon"], len(feed.names), FORECASTS[task["feed"]].season)
    if task["model"] in PEERS:
        return {**task, **measure_peer(task, feed.Y, size)}
    rival = WithResiduals(RIVALS[task["model"]](size), size)
    record, done = run(rival, feed.Y, task["horizon"], cap=task["cap"])
    return {**task, **figures(record, done, 1), "replaced": rival.replaced}


def measure_batch(task: Result, feed: Series) -> Result:
    """Score a rival that is fitted now and then on all rows; its CPU time is counted by origin, fits included.

    Points not finite or beyond `WithResiduals.FAR` are replaced by the last value, and counted.
    """
    record, last = Record(feed.Y, task["horizon"]), forward_filled(feed.Y)
    origins = record.origins(len(feed.Y), 1)
    asked = problem(feed, task["horizon"], FORECASTS[task["feed"]].season)
    made = BATCH[task["model"]](asked, origins)
    spent, replaced, done = 0.0, 0, 0
    while spent < task["cap"]:
        start = time.thread_time()
        block = next(made, None)
        spent += time.thread_time() - start
        if block is None:
            done = len(feed.Y)
            break
        spent += block.seconds
        for origin, point in zip(block.origins, block.points, strict=True):
            near = np.abs(point) <= WithResiduals.FAR
            replaced += near.size - int(near.sum())
            record.score(int(origin), block.around(np.where(near, point, last[origin])))
            done = int(origin) + 1
    found = figures(record, done, 1)
    return {**found, "replaced": replaced, "us": {"mean": spent / max(done - UNSCORED, 1) * 1e6}}


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


def run(
    model: Model,
    Y: Array,
    horizon: int,
    cap: float = np.inf,
    stride: int = 1,
    first: int = UNSCORED,
    sparse: bool = False,
) -> tuple[Record, int]:
    """Learn each row, then forecast, until the calls have used ``cap`` CPU seconds.

    Parameters
    ----------
    stride
        Origins from one that is scored to the next.
    first
        First origin that is scored. Before `UNSCORED` a model may make no forecast.
    sparse
        Forecast only where it is scored.

    Returns
    -------
    record
        Scores of each origin and CPU times of each row.
    done
        How many rows were done.
    """
    record, left, clock = Record(Y, horizon), cap * 1e9, time.thread_time_ns
    scored = set(record.origins(len(Y), stride, first).tolist())
    waiting: list[tuple[int, Multivariate]] = []
    # One of Python's full collections visits all objects of imported modules: 50 ms in a row, not the model's.
    gc.collect()
    gc.freeze()
    for row, y in enumerate(model.rows(Y)):
        start = clock()
        model.learn(y)
        record.learn_ns[row] = clock() - start
        answer = None if sparse and row not in scored else model.forecast()
        record.ns[row] = clock() - start
        distribution = model.distribution(answer) if row in scored else None
        if distribution is None and row in scored and row >= UNSCORED:
            raise RuntimeError(f"row {row}: no forecast")
        if distribution is not None:
            waiting.append((row, distribution))
            if len(waiting) == 1:
                record.score(row, distribution)
            elif len(waiting) == WAITING:
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


def quick_scores(
    feed: str, horizon: int | None = None, model: str = "momostream", every: int = STRIDE, **settings: Any
) -> Result:
    """Scores of momostream on one case, in this process and kept nowhere, beside the best kept rival of each.

    Parameters
    ----------
    feed, horizon
        A case of `benchmarks.data.FORECASTS`; by default its first horizon.
    model
        One of momostream's: with defaults, without Gaussian processes or without timestamps.
    every
        1: all origins are scored, with those of young models and the slowest rows. `STRIDE`: every fifth is forecast
        and scored, as are the rivals it is compared with.
    settings
        Of `momostream.MOMoGPForecaster`.

    Returns
    -------
    dict
        Scores, and in ``ratios`` for RMSE, MAE and CRPS the ratio to the best rival with its name.
    """
    plan = FORECASTS[feed]
    horizon = plan.horizons[0] if horizon is None else horizon
    rows = series(feed, plan.rows)
    built = ours(rows, model, horizon, 0, **settings)
    first = YOUNG[0][0] if every == 1 else UNSCORED
    record, done = run(built, rows.Y, horizon, stride=every, first=first, sparse=every > 1)
    found = figures(record, done, every)
    part = "scores" if every == 1 else "every_fifth"
    answer = {name: found[part][name] for name in ("rmse", "mae", "crps", "nlpd", "coverage")}
    answer |= {"us": found["us"]["mean"], "slowest": record.slowest(done, 1)[0]}
    if every == 1:
        answer["young"] = record.young(done)
    runs = newest(kept_results(RESULTS / "forecast.jsonl")).get((feed, horizon, plan.rows), {})
    rivals = {
        name: {key: run[key] for key in (part, "every_fifth") if key in run}
        for name, run in runs.items()
        if name not in OURS and "every_fifth" in run and not run["capped"]
    }
    answer["ratios"] = {name: hardest(name, found, rivals) for name in ("rmse", "mae", "crps")} if rivals else {}
    return answer


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
    parser.add_argument("--quick", action="store_true", help="two feeds, 900 rows, three models; nothing kept")
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
