"""Streams: momostream beside the yardstick and rivals, predict then learn, row by row.

    python -m benchmarks.stream [feed ...] [--rows 3000] [--models momostream ridge ...] [--cap 300] [--seeds 1]
                                [--missing 0] [--frozen] [--quick]

The first rows of each file in file order (`benchmarks.data.stream`; the data are found through ``MOMOSTREAM_DATA``).
The first 200 rows are not scored, but the rows 30 to 199 have a table of their own. Every run has a process of its own
with one BLAS thread, and ends when its calls have used ``--cap`` CPU seconds. Results are appended to
``results/stream.jsonl``; ``results/stream.md`` is written from the newest result of each kind. A full run takes about
an hour.

The feeds are cut into two halves: defaults are chosen on the choosing half only, and the reporting half is looked at
for the results. LightGBM comes with the extra ``benchmarks``.

``--missing`` hides that share of the target values from learning; all are scored. ``--frozen`` runs without garbage
collection. The yardstick is a file of its own, which ``MOMOSTREAM_YARDSTICK`` names (by default
``../shared/yardstick/yardstick.py`` beside the repository); it is run as it is, scored by its own numbers, and left
out where it is not there. ``--quick`` is a small run that keeps nothing.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import ROOT, Feed, feeds, stream
from benchmarks.harness import (
    bytes_held,
    carry_out,
    options_unless_task,
)
from benchmarks.tools.stream_report import CHOOSING, MODELS, REPORTING, TARGET_ROWS, Result, report
from benchmarks.tools.stream_rivals import RIVALS, Residuals
from benchmarks.tools.stream_scores import EARLY, UNSCORED, Multivariate, Record, Student

# Distributions that wait to be scored.
BATCH = 500

Array = NDArray[np.float64]

# Only these draw random numbers: several seeds of the others would be the same run again.
SEEDED = ("momostream", "adaptive_tree", "adaptive_forest")
QUICK = {"feeds": ["windturbine", "gas_turbine"], "models": ["momostream", "yardstick", "last_value", "ridge"]}


# ---------------------------------------------------------------------- models with one interface


class Model(Protocol):
    """The methods that a run needs; only ``predict`` and ``learn`` are timed."""

    def rows(self, X: Array, Y: Array) -> Iterable[tuple[Any, Any]]:
        """Inputs and targets as the model takes them; a missing target is NaN in ``Y``."""

    def predict(self, x: Any) -> Any:
        """The model's answer for one row."""

    def distribution(self, answer: Any) -> Multivariate | None:
        """The answer as a distribution, None if the model has none yet."""

    def learn(self, x: Any, y: Any) -> None:
        """Take in a row that was just predicted."""


class WithResiduals:
    """A rival with the Student-t that its residuals give it. It takes its own prediction for what is missing."""

    def __init__(self, name: str, n_inputs: int, n_outputs: int, seed: int) -> None:
        self.rival, self.residuals = RIVALS[name](n_inputs, n_outputs, seed), Residuals(n_outputs)
        self.mean, self.c = np.zeros(n_outputs), 1.0

    def rows(self, X: Array, Y: Array) -> Iterable[tuple[Array, Array]]:
        """Arrays as they are."""
        return zip(X, Y, strict=True)

    def predict(self, x: Array) -> tuple[Array, Array, float]:
        """Mean, scale matrix, degrees of freedom."""
        self.mean, self.c = self.rival.predict(x)
        return self.mean, *self.residuals.distribution(self.c)

    def distribution(self, answer: tuple[Array, Array, float]) -> Multivariate:
        """The Student-t."""
        return Student(*answer)

    def learn(self, x: Array, y: Array) -> None:
        """First the residuals of the last prediction, then the row."""
        self.residuals.learn((y - self.mean) / np.sqrt(self.c))
        self.rival.learn(x, np.where(np.isnan(y), self.mean, y))


class Momostream:
    """The river face of momostream with its defaults; a missing target is an absent key."""

    def __init__(self, n_outputs: int, seed: int) -> None:
        from momostream import MOMoGPRegressor

        self.model = MOMoGPRegressor(seed=seed)
        self.targets = [f"y{output}" for output in range(n_outputs)]

    def rows(self, X: Array, Y: Array) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
        """Dicts."""
        inputs = [f"x{number}" for number in range(X.shape[1])]
        for x, y in zip(X.tolist(), Y.tolist(), strict=True):
            known = {target: value for target, value in zip(self.targets, y, strict=True) if value == value}
            yield dict(zip(inputs, x, strict=True)), known

    def predict(self, x: dict[str, float]) -> Any:
        """The distribution as momostream gives it."""
        return self.model.predict_one(x, with_dist=True)

    def distribution(self, answer: Any) -> Multivariate | None:
        """None before all targets have been seen."""
        return ByName(answer, self.targets) if answer and len(answer.mean) == len(self.targets) else None

    def learn(self, x: dict[str, float], y: dict[str, float]) -> None:
        """Learn the row."""
        self.model.learn_one(x, y)


class ByName:
    """A distribution whose outputs have names, as arrays."""

    def __init__(self, distribution: Any, names: list[str]) -> None:
        self._distribution, self._names = distribution, names

    def _named(self, y: Array) -> dict[str, float]:
        return dict(zip(self._names, y.tolist(), strict=True))

    def _array(self, values: dict[str, float]) -> Array:
        return np.array([values[name] for name in self._names])

    @property
    def mean(self) -> Array:
        """Mean of each output."""
        return self._array(self._distribution.mean)

    def log_pdf(self, y: Array) -> float:
        """Joint log density."""
        return float(self._distribution.log_pdf(self._named(y)))

    def cdf(self, y: Array) -> Array:
        """Distribution function of each output."""
        return self._array(self._distribution.cdf(self._named(y)))

    def crps(self, y: Array) -> Array:
        """Ranked score of each output."""
        return self._array(self._distribution.crps(self._named(y)))


def yardstick() -> ModuleType | None:
    """The yardstick's own file as a module, None where it is not there.

    Its compiled code is kept in a folder of our own: its folder, and the user's, may be for reading only.
    """
    path = Path(os.environ.get("MOMOSTREAM_YARDSTICK", ROOT.parent / "shared" / "yardstick" / "yardstick.py"))
    spec = importlib.util.spec_from_file_location("yardstick", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _cache_of_yardstick().name
    try:
        spec.loader.exec_module(module)
    finally:
        numba.config.CACHE_DIR = before
    return module


@functools.cache
def _cache_of_yardstick() -> tempfile.TemporaryDirectory[str]:
    """A folder that lasts as long as this process."""
    return tempfile.TemporaryDirectory(prefix="yardstick-")


# ---------------------------------------------------------------------- one run, in a process of its own


def measure(task: Result) -> Result:
    """Run one model over one feed."""
    feed = stream(task["feed"], task["rows"])
    if task["frozen"]:
        gc.freeze()
        gc.disable()
    if task["model"] == "yardstick":
        return {**task, **run_yardstick(feed)}
    n_inputs, n_outputs, seed = feed.X.shape[1], feed.Y.shape[1], task["seed"]
    model: Model
    if task["model"] == "momostream":
        model = Momostream(n_outputs, seed)
    else:
        model = WithResiduals(task["model"], n_inputs, n_outputs, seed)
    hidden = np.random.default_rng((seed, 1)).random(feed.Y.shape) < task["missing"]
    record, done = run(model, feed, np.where(hidden, np.nan, feed.Y), task["cap"])
    answer = {"done": done, "capped": done < len(feed.Y), "bytes": bytes_held(model)}
    if done <= UNSCORED:
        return {**task, **answer}
    return {
        **task,
        **answer,
        "scores": record.accuracy(UNSCORED, done),
        "early": record.accuracy(EARLY, UNSCORED),
        **record.cost(UNSCORED, done),
    }


def run(model: Model, feed: Feed, seen: Array, cap: float = np.inf) -> tuple[Record, int]:
    """Predict, then learn what is seen of each row, until the calls have used ``cap`` CPU seconds.

    Returns
    -------
    record
        Scores and CPU times of each row.
    done
        How many rows were done.
    """
    record, left, clock = Record(feed.Y), cap * 1e9, time.thread_time_ns
    waiting: list[tuple[int, Multivariate]] = []
    for row, (x, y) in enumerate(model.rows(feed.X, seen)):
        start = clock()
        answer = model.predict(x)
        record.predict_ns[row] = clock() - start
        distribution, scored = model.distribution(answer), row >= UNSCORED
        if distribution is not None and not scored:
            record.score(row, distribution)
        start = clock()
        model.learn(x, y)
        record.learn_ns[row] = clock() - start
        # Scored in batches, so that the work of scoring does not drive the model out of the processor's caches row by
        # row. That is honest only if the distribution does not change when its row is learnt, which the unscored rows
        # show.
        if scored:
            if distribution is None:
                raise RuntimeError(f"row {row}: no prediction")
            waiting.append((row, distribution))
            if len(waiting) == BATCH:
                _score(record, waiting)
        elif distribution is not None and record.nlpd[row] != -distribution.log_pdf(feed.Y[row]):
            raise RuntimeError(f"row {row}: the predicted distribution changed when the row was learnt")
        left -= record.predict_ns[row] + record.learn_ns[row]
        if left < 0.0:
            _score(record, waiting)
            return record, row + 1
    _score(record, waiting)
    return record, len(feed.Y)


def _score(record: Record, waiting: list[tuple[int, Multivariate]]) -> None:
    """Score the distributions that wait, and forget them."""
    for row, distribution in waiting:
        record.score(row, distribution)
    waiting.clear()


def run_yardstick(feed: Feed) -> Result:
    """The yardstick's own loop and scores."""
    module = yardstick()
    assert module is not None, "the yardstick was there when the run was planned"
    early = module.stream(feed.X[:UNSCORED], feed.Y[:UNSCORED], 400, unscored=EARLY)
    found = module.stream(feed.X, feed.Y, 400, unscored=UNSCORED)
    figures: Result = {"done": len(feed.Y), "capped": False, "rows_per_s": float(found["rows_per_s"])}
    for call in ("predict_us", "learn_us"):
        figures[call] = {"median": float(found[call])}
    for part, numbers in (("scores", found), ("early", early)):
        figures[part] = {name: float(numbers[name]) for name in ("rmse", "mae", "nlpd")}
        figures[part]["coverage"] = numbers["coverage"].tolist()
    return figures


# ---------------------------------------------------------------------- which runs


def tasks(options: argparse.Namespace) -> list[Result]:
    """All runs of an invocation, feed by feed."""
    lengths = feeds()
    listed = []
    for feed in options.feeds or (*CHOOSING, *REPORTING):
        if lengths[feed] < options.rows:
            print(f"{feed} has only {lengths[feed]} rows: left out", file=sys.stderr)
            continue
        for model in options.models:
            if model == "yardstick" and (options.missing or yardstick() is None):
                print("the yardstick is missing, or does not support --missing: left out", file=sys.stderr)
                continue
            listed += [
                {
                    "feed": feed,
                    "model": model,
                    "rows": options.rows,
                    "seed": seed,
                    "missing": options.missing,
                    "frozen": options.frozen,
                    "cap": options.cap,
                }
                for seed in range(options.seeds if model in SEEDED else 1)
            ]
    return listed


def main() -> None:
    """Run what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feeds", nargs="*", help="by default those of both halves")
    parser.add_argument("--rows", type=int, default=TARGET_ROWS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--cap", type=float, default=300.0, help="CPU seconds of a run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--missing", type=float, default=0.0, help="share of the target values that are not learnt")
    parser.add_argument("--frozen", action="store_true", help="no garbage collection")
    parser.add_argument("--quick", action="store_true", help="two feeds, 600 rows, four models; nothing is kept")
    options = options_unless_task(parser, measure)
    if options.quick:
        parser.set_defaults(**QUICK, rows=600)
        options = parser.parse_args()
    if options.rows <= UNSCORED:
        parser.error(f"the first {UNSCORED} rows are not scored: --rows must be larger")
    unknown = set(options.feeds) - set(feeds())
    if unknown:
        parser.error(f"unknown feed {', '.join(sorted(unknown))}; the feeds are {', '.join(feeds())}")
    carry_out("stream", tasks(options), lambda task: f"{task['feed']}, {task['model']}", report, keep=not options.quick)


if __name__ == "__main__":
    main()
