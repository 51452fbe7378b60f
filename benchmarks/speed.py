"""The cost of a row: time, pauses, memory and growth of `momostream.MOMoGPRegressor`, against the targets set for them.

    python -m benchmarks.speed [question ...] [--rows N] [--quick]

Each question has a process of its own with one BLAS thread. Times are CPU times of the calling thread, the cost of
looking at the clock subtracted. All feeds but one are simulated (`rows`): a smooth nonlinear map with correlated noise
whose inputs wander and whose phases drift. ``depth`` reads a real one, found through ``MOMOSTREAM_DATA``.

Answers are appended to ``results/speed.jsonl``; ``results/speed.md`` shows the newest one to each question. ``--rows``
replaces the length of the feeds, and what is measured begins earlier or later in proportion. A full run takes about 10
minutes; ``--quick`` is a small run in one process that keeps nothing.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import ROOT, stream
from benchmarks.harness import (
    RESULTS,
    about,
    from_kernel,
    in_own_process,
    in_this_process,
    keep_result,
    kept_results,
    one_thread,
    options_unless_task,
    origin,
    table,
    write_results,
)
from benchmarks.tools.speed_cases import CASES, FORECASTS
from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.kernels.cholesky import solve_lower
from momostream.stream.tree import Gate, Tree

Array = NDArray[np.float64]
Row = tuple[dict[str, float], dict[str, float]]
Answer = dict[str, Any]

KEPT = RESULTS / "speed.jsonl"
N_INPUTS, N_TARGETS, N_HIDDEN = 8, 6, 20
INPUTS, TARGETS = [f"x{k}" for k in range(N_INPUTS)], [f"y{k}" for k in range(N_TARGETS)]
CHUNK = 1024
# Correlation of an input with its next row, and typical rows of one turn of a phase of the map.
PERSISTENCE, ROUND = 0.95, 20_000
FRAME = 256
# Shorter feeds would leave parts without any row or frame to measure.
LEAST_ROWS = 2 * FRAME
TUNING: tuple[tuple[str, dict[str, Any]], ...] = (("on", {}), ("off", {"tuning_evaluations": 0}))

clock = time.thread_time_ns


# ---------------------------------------------------------------------- the feed


def chunks(seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """Inputs and targets of an endless feed, `CHUNK` rows at a time."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(N_INPUTS, N_HIDDEN)) / math.sqrt(N_INPUTS)
    loading = rng.normal(size=(N_HIDDEN, N_TARGETS)) / 3.0
    noise = 0.5 * rng.normal(size=(N_TARGETS, N_TARGETS)) / math.sqrt(N_TARGETS)
    speed = 2.0 * np.pi / ROUND * rng.normal(size=N_HIDDEN)
    x, row = rng.normal(size=N_INPUTS), np.arange(CHUNK)[:, None]
    while True:
        steps = math.sqrt(1.0 - PERSISTENCE**2) * rng.normal(size=(CHUNK, N_INPUTS))
        X = np.empty_like(steps)
        for i, step in enumerate(steps):
            X[i] = x = PERSISTENCE * x + step
        Y = np.sin(X @ mixing + speed * row) @ loading + rng.normal(size=(CHUNK, N_TARGETS)) @ noise
        yield X, Y
        row = row + CHUNK


def rows() -> Iterator[Row]:
    """The feed as dicts, made when they are asked for."""
    return as_dicts(chunks())


def as_dicts(parts: Iterable[tuple[Array, Array]]) -> Iterator[Row]:
    """Rows of arrays as dicts."""
    for X, Y in parts:
        for x, y in zip(X.tolist(), Y.tolist(), strict=True):
            yield dict(zip(INPUTS, x, strict=True)), dict(zip(TARGETS, y, strict=True))


def frames(n_rows: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """The same rows as frames of `FRAME` rows, as many as are full."""
    starts = [(X, Y, start) for X, Y in islice(chunks(), -(-n_rows // CHUNK)) for start in range(0, CHUNK, FRAME)]
    for X, Y, start in starts[: n_rows // FRAME]:
        part = slice(start, start + FRAME)
        yield pd.DataFrame(X[part], columns=INPUTS), pd.DataFrame(Y[part], columns=TARGETS)


# ---------------------------------------------------------------------- the clock


def clock_cost() -> float:
    """Nanoseconds between two looks at the clock with nothing in between."""
    return float(np.median([-clock() + clock() for _ in range(2001)]))


def cpu(function: Callable[..., object], *arguments: Any) -> float:
    """CPU microseconds of a call that is long beside a look at the clock."""
    start = clock()
    function(*arguments)
    return (clock() - start) / 1e3


def for_each(call: Callable[..., object], pairs: list[Any]) -> None:
    """Call with each row."""
    for arguments in pairs:
        call(*arguments)


def calls(model: MOMoGPRegressor, x: dict[str, float], y: dict[str, float]) -> tuple[int, int]:
    """CPU nanoseconds of predicting and of learning a row, each with the cost of one look at the clock."""
    start = clock()
    model.predict_one(x)
    middle = clock()
    model.learn_one(x, y)
    return middle - start, clock() - middle


def serve(models: list[MOMoGPRegressor], feed: Iterable[Row], n_rows: int) -> Array:
    """Let the models take turns on each row; CPU microseconds of both calls, shape ``(n_models, n_rows, 2)``."""
    # One array, as thousands of small objects would be work for the garbage collector whose pauses are looked at.
    times = np.empty((len(models), n_rows, 2))
    for i, (x, y) in enumerate(islice(feed, n_rows)):
        for k, model in enumerate(models):
            times[k, i] = calls(model, x, y)
    return (times - clock_cost()) / 1e3


# ---------------------------------------------------------------------- answers


def at_most(what: str, figure: float, limit: float) -> Answer:
    """A target that asks for little."""
    return {"what": what, "figure": figure, "limit": limit, "sign": "<=", "passed": bool(figure <= limit)}


def at_least(what: str, figure: float, limit: float) -> Answer:
    """A target that asks for much."""
    return {"what": what, "figure": figure, "limit": limit, "sign": ">=", "passed": bool(figure >= limit)}


def answer(header: list[str], lines: list[list[Any]], targets: list[Answer]) -> Answer:
    """Figures as a table, and what was asked of them."""
    return {"header": header, "lines": lines, "targets": targets}


def row(n_rows: int) -> Answer:
    """One row against the triangular solves that it cannot avoid, microseconds.

    256 rows per leaf at most; medians over the rows after the first third. The solves are done on the factors that
    the row has just used, after half of the rows, drawn by lot; the model is timed on the rows that follow none, which
    find nothing in the cache that they would not have found anyway.
    """
    lines: list[list[Any]] = []
    for tuning, settings in TUNING:
        for with_dist in (False, True):
            model = MOMoGPRegressor(max_points=256, seed=0, **settings)
            predict, learn, both, bare = beside_solves(model, n_rows, with_dist)
            lines.append([tuning, "yes" if with_dist else "no", predict, learn, both, bare, 2.0 * bare + 15.0])
    header = ["tuning", "with_dist", "predict", "learn", "both", "bare solves", "2 x bare + 15"]
    return answer(header, lines, [at_most("both calls, defaults", lines[0][4], lines[0][6])])


def beside_solves(model: MOMoGPRegressor, n_rows: int, with_dist: bool) -> list[float]:
    """Median CPU microseconds of predicting, learning, both, and the bare solves."""
    lot = np.random.default_rng(0)
    # A leaf that waits for its split may hold more than `max_points` rows, but never more than there are.
    right = lot.normal(size=n_rows)
    served: list[tuple[int, int]] = []
    solved: list[int] = []
    is_undisturbed = True
    for i, (x, y) in enumerate(islice(rows(), n_rows)):
        start = clock()
        model.predict_one(x, with_dist=with_dist)
        middle = clock()
        # Before learning, which may replace the factors.
        factors = [(leaf.factor.L, leaf.n_rows) for leaf in leaves_in_use(model)]
        begin = clock()
        model.learn_one(x, y)
        end = clock()
        counts = i >= n_rows // 3
        if counts and is_undisturbed:
            served.append((middle - start, end - begin))
        is_undisturbed = bool(lot.random() < 0.5)
        if is_undisturbed or not factors:
            continue
        spent = 0
        for L, n in factors:
            b = right[:n].astype(L.dtype)
            start = clock()
            solve_lower(L, n, b)
            spent += clock() - start
        if counts:
            solved.append(spent)
    cost = clock_cost()
    both = np.array(served) - cost
    medians = [*np.median(both, axis=0), np.median(both.sum(axis=1)), np.median(solved) - len(factors) * cost]
    return [float(median) / 1e3 for median in medians]


def leaves_in_use(model: MOMoGPRegressor) -> list[Any]:
    """The leaf of each tree that predicted the last row."""
    return [tree._leaf for tree in trees(model)]


def pauses(n_rows: int) -> Answer:
    """Slowest calls after the first 50 rows, defaults, microseconds; with the garbage collector, and without."""
    lines: list[list[Any]] = []
    for collector in ("as it comes", "frozen"):
        if collector == "frozen":
            gc.collect()
            gc.freeze()
            gc.disable()
        times = serve([MOMoGPRegressor(seed=0)], rows(), n_rows)[0, 50:]
        for call, spent in zip(("predict_one", "learn_one"), times.T, strict=True):
            quantiles = np.quantile(spent, [0.5, 0.99, 0.999, 1.0]).tolist()
            lines.append([collector, call, *quantiles, 50 + int(spent.argmax())])
    header = ["collector", "call", "median", "99 %", "99.9 %", "slowest", "at row"]
    targets = []
    for line in (lines[1], lines[3]):
        targets.append(at_most(f"slowest learn_one, collector {line[0]}", line[5], 3_000.0))
        targets.append(at_most(f"99.9 % of learn_one, collector {line[0]}", line[4], 4_000.0))
    return answer(header, lines, targets)


def blocks(n_rows: int) -> Answer:
    """Frames of 256 rows, predicted and then learnt, against the same rows one by one; CPU microseconds per row.

    After the first fifth of the rows; both take turns, frame by frame.
    """
    lines, targets = [], []
    for tuning, settings in TUNING:
        singly, at_once = MOMoGPRegressor(seed=0, **settings), MOMoGPRegressor(seed=0, **settings)
        times = []
        for X, Y in frames(n_rows):
            pairs = list(as_dicts([(X.to_numpy(), Y.to_numpy())]))
            times.append([
                cpu(for_each, singly.predict_one, [(x,) for x, _ in pairs]),
                cpu(at_once.predict_many, X),
                cpu(for_each, singly.learn_one, pairs),
                cpu(at_once.learn_many, X, Y),
            ])  # fmt: skip
        means = np.mean(times[len(times) // 5 :], axis=0) / FRAME
        for call, one, many in (("predict", *means[:2].tolist()), ("learn", *means[2:].tolist())):
            lines.append([tuning, call, one, many, one / many])
            wanted = 4.0 if call == "predict" else 3.0
            targets.append(at_least(f"{call}_many, tuning {tuning}: speed-up", one / many, wanted))
    return answer(["tuning", "call", "one by one", "in frames", "speed-up"], lines, targets)


def window(n_rows: int) -> Answer:
    """A window of 1,000 rows against none, CPU microseconds per row after the first three tenths.

    Both models take turns, row by row.
    """
    models = [MOMoGPRegressor(seed=0), MOMoGPRegressor(seed=0, window=1000)]
    times = serve(models, rows(), n_rows)[:, n_rows * 3 // 10 :]
    lines = []
    for name, spent in zip(("none", "1,000 rows"), times, strict=True):
        both = spent.sum(axis=1)
        lines.append([name, *spent.mean(axis=0).tolist(), float(both.mean()), float(np.median(both))])
    ratio = lines[1][3] / lines[0][3]
    return answer(["window", "predict", "learn", "both", "median"], lines, [at_most("ratio of the means", ratio, 1.5)])


def forecast(n_rows: int) -> Answer:
    """A row of the forecaster, learnt and forecast from, against one-step rows, CPU microseconds; and paths.

    Seven series, which are targets and an input of the feed, 24 steps ahead; beside it the forecaster of one step, and
    the regressor that predicts each row from the one before. All take turns, row by row; after the first third.
    """
    names = [*TARGETS, INPUTS[0]]
    models: list[Any] = [
        MOMoGPForecaster(horizon=24, seed=0), MOMoGPForecaster(horizon=1, seed=0), MOMoGPRegressor(seed=0),
    ]  # fmt: skip
    recursive = MOMoGPForecaster(strategy="recursive", seed=0)
    spent, before = np.zeros((3, n_rows)), dict.fromkeys(names, 0.0)
    for number, (x, y) in enumerate(islice(rows(), n_rows)):
        now = {**y, INPUTS[0]: x[INPUTS[0]]}
        for model, cost in zip(models, spent, strict=True):
            start = clock()
            if isinstance(model, MOMoGPForecaster):
                model.learn_one(now)
                model.forecast(model.horizon, with_dist=True)
            else:
                model.predict_one(before, with_dist=True)
                model.learn_one(before, now)
            cost[number] = (clock() - start) / 1e3
        before = now
        recursive.learn_one(now)
    late = spent[:, n_rows // 3 :]
    whole, one_step, regressor = late.mean(axis=1).tolist()
    lines = [
        [name, float(cost.mean()), *np.percentile(cost, (50, 99)).tolist()]
        for name, cost in zip(("24 steps", "1 step", "regressor"), late, strict=True)
    ]
    coming = models[0].forecast(24, with_dist=True)
    direct = cpu(lambda: coming.sample(1000, seed=0)) / 1e3
    paths = cpu(lambda: recursive.forecast(24, with_dist=True).sample(1000, seed=0)) / 1e3
    lines += [["1,000 paths, direct, ms", direct, "", ""], ["1,000 paths, recursive, ms", paths, "", ""]]
    targets = [
        at_most("24 steps over 1 step", whole / one_step, 4.0),
        at_most("24 steps over the regressor", whole / regressor, 4.0),
        at_most("1,000 paths, direct, ms", direct, 150.0),
        at_most("1,000 paths, recursive, ms", paths, 300.0),
    ]
    return answer(["what", "mean", "median", "p99"], lines, targets)


def growth(n_rows: int) -> Answer:
    """Late rows of a long feed that drifts against early ones, with a memory budget of 1 GB.

    CPU microseconds per row and resident megabytes at the end of each twentieth of the rows. Early are the 100,000 rows
    after the first 10,000, late are the last 100,000 (at most a third of the rows each).
    """
    budget, step, start = 10**9, n_rows // 20, resident_megabytes()
    model, feed = MOMoGPRegressor(memory_budget=budget, seed=0), rows()
    spent = np.empty((20, step))
    lines: list[list[Any]] = []
    for k in range(len(spent)):
        spent[k] = serve([model], feed, step)[0].sum(axis=1)
        lines.append([(k + 1) * step, float(spent[k].mean()), resident_megabytes(), *shape(model)])
        print(f"growth: {lines[-1]}", file=sys.stderr, flush=True)
    begin, span = min(10_000, n_rows // 3), min(100_000, n_rows // 3)
    early, late = spent.ravel()[begin : begin + span].mean(), spent.ravel()[-span:].mean()
    resident = [float(line[2]) for line in lines]
    targets = [
        at_most("late over early", float(late / early), 1.5),
        at_most(f"resident megabytes ({start:.0f} before the first row)", max(resident), budget / 1e6 + 200.0),
        at_most("resident megabytes, end over half-way", resident[-1] / resident[9], 1.1),
    ]
    return answer(["rows", "per row", "resident MB", "leaves", "depth"], lines, targets)


def resident_megabytes() -> float:
    """Memory of this process that is in use now."""
    return from_kernel("/proc/self/status", "VmRSS") * 1024 / 1e6


def trees(model: MOMoGPRegressor) -> list[Tree]:
    """The circuits of a model."""
    return [] if model._model is None else model._model.trees


def shape(model: MOMoGPRegressor) -> tuple[str, str]:
    """Leaves and depth of each tree."""
    leaves = ", ".join(f"{sum(1 for _ in tree.leaves()):,}" for tree in trees(model))
    return leaves, ", ".join(str(tree.depth) for tree in trees(model))


def budget(n_rows: int) -> Answer:
    """Whether predictions with a budget of 20 MB equal those without, bit for bit; compared every 1,000 rows."""
    models = [MOMoGPRegressor(seed=0), MOMoGPRegressor(seed=0, memory_budget=20_000_000)]
    digests = [hashlib.sha256(), hashlib.sha256()]
    n_equal = 0
    for i, (x, y) in enumerate(islice(rows(), n_rows)):
        for model, digest in zip(models, digests, strict=True):
            means: Any = model.predict_one(x)
            digest.update(np.array([*means.values()]).tobytes())
            model.learn_one(x, y)
        if (i + 1) % 1000 == 0 or i + 1 == n_rows:
            if digests[0].digest() != digests[1].digest():
                break
            n_equal = i + 1
    lines = [[name, model.nbytes / 1e6] for name, model in zip(("none", "20 MB"), models, strict=True)]
    return answer(["budget", "megabytes held"], lines, [at_least("rows with equal predictions", n_equal, n_rows)])


def depth(n_rows: int) -> Answer:
    """Shape of the circuits after a real feed, ``tetouan_power``."""
    model, feed = MOMoGPRegressor(seed=0), stream("tetouan_power", n_rows)
    for x, y in zip(feed.X.tolist(), feed.Y.tolist(), strict=True):
        model.learn_one(dict(enumerate(x)), dict(enumerate(y)))
    lines, targets = [], []
    for name, tree in zip(model.experts, trees(model), strict=False):
        n_leaves = sum(1 for _ in tree.leaves())
        widest = max((len(node.children) for node in tree.nodes() if isinstance(node, Gate)), default=1)
        lines.append([name, n_leaves, tree.depth, widest])
        targets.append(at_most(f"depth of {name}", tree.depth, 3.0 * math.log2(n_leaves)))
    return answer(["circuit", "leaves", "depth", "cells of the widest gate"], lines, targets)


def memory(n_rows: int) -> Answer:
    """Megabytes of a model and of its file, after a tenth of the rows and after all."""
    model, lines = MOMoGPRegressor(seed=0), []
    for i, (x, y) in enumerate(islice(rows(), n_rows), 1):
        model.learn_one(x, y)
        if i in (n_rows // 10, n_rows):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.momo"
                model.save(path)
                lines.append([i, model.nbytes / 1e6, path.stat().st_size / 1e6])
    return answer(["rows", "model", "file"], lines, [])


COLD_START = """
import json, time
times = [time.process_time()]
from momostream import MOMoGPRegressor
times.append(time.process_time())
model = MOMoGPRegressor(seed=0)
x, y = {"a": 1.0, "b": 2.0}, {"c": 3.0, "d": 4.0}
model.learn_one(x, y)
times.append(time.process_time())
model.predict_one(x)
times.append(time.process_time())
print(json.dumps([after - before for before, after in zip([0.0, *times], times)]))
"""


def cold_start(n_rows: int) -> Answer:
    """CPU seconds of a fresh process up to its first prediction, compiled code in the cache.

    Medians of some processes, after one that fills the cache.
    """
    del n_rows
    command = [sys.executable, "-c", COLD_START]
    runs = [json.loads(subprocess.check_output(command, text=True, cwd=ROOT, env=one_thread())) for _ in range(4)]
    parts = np.median(runs[1:], axis=0).tolist()
    header = ["python", "import", "first learn_one", "first predict_one", "sum"]
    return answer(header, [[*parts, sum(parts)]], [at_most("sum, seconds", sum(parts), 1.2)])


def before(n_rows: int) -> Answer:
    """CPU microseconds of an earlier checkout and of this one, in turns: medians, means and the first 100 rows.

    ``MOMOSTREAM_BEFORE`` names the checkout; without it, this one is compared with itself. Regressor: 8 inputs, 6
    targets, with and without intervals; forecaster: series x steps, learnt and forecast; means of 1,000 rows by the
    model of a table.
    """
    trees = {"before": os.environ.get("MOMOSTREAM_BEFORE", str(ROOT)), "now": str(ROOT)}
    lines: list[list[Any]] = []
    ratio: dict[tuple[str, str], float] = {}
    now: dict[str, dict[str, float]] = {}
    for case in CASES:
        command = [sys.executable, str(ROOT / "benchmarks" / "tools" / "speed_cases.py"), case, str(n_rows)]
        found = {}
        for name, tree in trees.items():
            environment = {**one_thread(), "PYTHONPATH": tree}
            found[name] = json.loads(subprocess.check_output(command, text=True, cwd=tree, env=environment))
        now[case] = found["now"]
        for figure, old in found["before"].items():
            ratio[case, figure] = found["now"][figure] / old
            lines.append([case, figure, old, found["now"][figure], ratio[case, figure]])
    forecasts = [f"{P} x {H}" for P, H in FORECASTS]
    both = now["regressor, interval"]["median"] / now["regressor"]["median"]
    targets = [
        at_most("regressor row, median over before", ratio["regressor", "median"], 0.45),
        at_most("regressor row, mean over before", ratio["regressor", "mean"], 0.5),
        at_most("regressor, first 100 rows over before", ratio["regressor", "first"], 0.4),
        at_most("regressor row with interval over plain row", both, 1.3),
        at_most("interval of a 7 x 24 forecast, ms", now["7 x 24"]["interval"] / 1e3, 0.4),
        *(at_most(f"forecaster row {case}, median over before", ratio[case, "median"], 0.4) for case in forecasts),
        at_least("means of 1,000 rows: speed-up", 1.0 / ratio["means", "median"], 10.0),
    ]
    return answer(["case", "figure", "before", "now", "ratio"], lines, targets)


@dataclass
class Question:
    """How to answer, on how many rows, and on how many in a quick run."""

    ask: Callable[[int], Answer]
    n_rows: int
    n_quick: int


QUESTIONS = {
    "row": Question(row, 6_000, 600),
    "pauses": Question(pauses, 20_000, 600),
    "blocks": Question(blocks, 10_000, 1_536),
    "window": Question(window, 10_000, 1_500),
    "forecast": Question(forecast, 3_000, 600),
    "growth": Question(growth, 1_000_000, 1_000),
    "budget": Question(budget, 100_000, 2_000),
    "depth": Question(depth, 30_000, 1_500),
    "memory": Question(memory, 10_000, 1_000),
    "cold_start": Question(cold_start, 1, 1),
    "before": Question(before, 1_500, 150),
}


# ---------------------------------------------------------------------- which questions, and the report


def measure(task: Answer) -> Answer:
    """Answer one question."""
    return {**task, **QUESTIONS[task["question"]].ask(task["rows"])}


def report(answers: list[Answer]) -> str:
    """The newest answer to each question."""
    newest = {found["question"]: found for found in answers}
    parts = [
        "# The cost of a row",
        origin("speed", list(newest.values())),
        f"{N_INPUTS} inputs, {N_TARGETS} targets where not said otherwise.",
    ]
    for name, question in QUESTIONS.items():
        if name not in newest:
            continue
        found = newest[name]
        words = " ".join((question.ask.__doc__ or "").split())
        parts += [f"## {name}", f"{words} Rows: {found['rows']:,}; revision {found['revision']}."]
        parts.append(table(found["header"], [[cell(value) for value in line] for line in found["lines"]]))
        verdicts = [
            f"* {'PASS' if target['passed'] else 'MISS'}: {target['what']} {cell(target['figure'])} "
            f"(target {target['sign']} {cell(target['limit'])})"
            for target in found["targets"]
        ]
        if verdicts:
            parts.append("\n".join(verdicts))
    return "\n\n".join(parts)


def cell(value: str | float) -> str:
    """Three digits of a number that is not whole; text as it is."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100.0 else f"{value:.3g}"


def main() -> None:
    """Ask, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="question", help=f"by default all: {', '.join(QUESTIONS)}")
    parser.add_argument("--rows", type=int, help="length of the feeds")
    parser.add_argument("--quick", action="store_true", help="short feeds; nothing is kept")
    options = options_unless_task(parser, measure)
    unknown = set(options.questions) - set(QUESTIONS)
    if unknown:
        parser.error(f"unknown question {', '.join(sorted(unknown))}; the questions are {', '.join(QUESTIONS)}")
    if options.rows is not None and options.rows < LEAST_ROWS:
        parser.error(f"--rows must be at least {LEAST_ROWS}")
    where = about()
    answers = []
    measured = in_this_process if options.quick else in_own_process
    for name in options.questions or QUESTIONS:
        question = QUESTIONS[name]
        n_rows = options.rows or (question.n_quick if options.quick else question.n_rows)
        print(name, file=sys.stderr, flush=True)
        answers.append({**measured("benchmarks.speed", {"question": name, "rows": n_rows}), **where})
        if not options.quick:
            keep_result(KEPT, answers[-1])
    text = report(answers if options.quick else kept_results(KEPT))
    print(text)
    if not options.quick:
        write_results("speed", text)


if __name__ == "__main__":
    main()
