"""Anomalies: how well `MOMoGPMonitor` and scores of rows find labelled faults, beside other detectors.

    python -m benchmarks.anomaly [--rows 18160] [--quick]

Faults that last, in skab_valve1 and tep_faults: `benchmarks.tools.faults` has the protocol. Then areas of `score_one`:
skab_valve1 in file order (found through ``MOMOSTREAM_DATA``, see `benchmarks.data`): 16 runs of a pump, in each of
which a valve is partly shut for some 400 rows. A row is scored, then learnt, with the row before it as input. The
detectors also run with learning stopped: afresh in each run, on its first 400 rows, all of which are normal. Writes
``results/anomaly.md``. A full run takes about 2 minutes; ``--quick`` is a small run that writes nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.data import feeds, read, stream
from benchmarks.harness import about, in_own_process, in_this_process, options_unless_task, origin, table, write_results
from benchmarks.tools.faults import SETS, measure_faults, report_faults

Array = NDArray[np.float64]

FEED = "skab_valve1"
# Rows of each run that a stopped detector learns, and that are not scored in the columns that compare with it.
LEARNT = 400
# Rows of the short mean.
SHORT = 30
# Which rows the areas are over.
PARTS = ("all rows", "later rows", "stopped", "stopped, after")

# Runs of each set in a short form: one to choose on, one to report.
QUICK_RUNS = 2

NOTE = f"""Area under the ROC curve, 0.5 is chance: of a row's own score, then of the mean over the last {SHORT} rows.
"All rows" and "later rows" come from one detector that learns every row. "Stopped" is a new detector in each run that
learns the first {LEARNT} rows only; it is scored on the later rows of each run, as the others are under "later rows".
"Stopped, after" sets the faults against the normal rows after them alone, which came later still.
The score of momostream is `score_one`, averaged as -log(1 - score).

A fault moves levels and lasts. A model that forecasts a row from the one before it and learns every row is surprised
for a moment at most, which is what a forecast is for; a distance from the long-run mean sees the whole fault. Learning
that stops on normal rows distinguishes a fault from what came before it, but takes what comes after it for about as
strange; and the experts on lags then continue from the last row learnt."""


# ---------------------------------------------------------------------- detectors


class Detector(Protocol):
    """Scores a row ``y`` that followed the row ``x``; high is strange."""

    def score(self, x: Array, y: Array) -> float:
        """How strange the row is, on a scale that can be averaged."""

    def learn(self, x: Array, y: Array) -> None:
        """Take in a row that was just scored."""


class Momostream:
    """`MOMoGPRegressor.score_one`, as minus the log of the probability of anything stranger."""

    def __init__(self, **parameters: Any) -> None:
        from momostream import MOMoGPRegressor

        self.model = MOMoGPRegressor(**parameters, seed=0)

    def score(self, x: Array, y: Array) -> float:
        """Finite also where the score is 1."""
        return -math.log(max(1.0 - self.model.score_one(named(x), named(y)), 2.0**-53))

    def learn(self, x: Array, y: Array) -> None:
        """Learn the row."""
        self.model.learn_one(named(x), named(y))


class Distance:
    """Distance of each column from its mean so far, in deviations so far, averaged over the columns.

    Of the change since the row before, or of the row itself.
    """

    def __init__(self, of_change: bool) -> None:
        self.of_change, self.n_rows = of_change, 0
        self.mean: Array | float = 0.0
        self.squares: Array | float = 0.0

    def score(self, x: Array, y: Array) -> float:
        """0 before there is a deviation; a column that has not varied yet does not count."""
        deviation = np.sqrt(self.squares / max(self.n_rows, 1)) * np.ones_like(y)
        away = np.abs((y - x if self.of_change else y) - self.mean)
        return float(np.divide(away, deviation, out=np.zeros_like(y), where=deviation > 0.0).mean())

    def learn(self, x: Array, y: Array) -> None:
        """Update mean and deviation."""
        value = y - x if self.of_change else y
        self.n_rows += 1
        before = value - self.mean
        self.mean = self.mean + before / self.n_rows
        self.squares = self.squares + before * (value - self.mean)


class HalfSpaceTrees:
    """river's detector on the row itself."""

    def __init__(self, window_size: int) -> None:
        from river import anomaly, preprocessing

        trees = anomaly.HalfSpaceTrees(window_size=window_size, seed=0)
        self.model = preprocessing.MinMaxScaler() | trees

    def score(self, x: Array, y: Array) -> float:
        """Between 0 and 1; 0 before the first window is full."""
        return float(self.model.score_one(named(y)))

    def learn(self, x: Array, y: Array) -> None:
        """Learn the row."""
        self.model.learn_one(named(y))


def named(row: Array) -> dict[int, float]:
    """A row as a dict."""
    return dict(enumerate(row.tolist()))


DETECTORS: dict[str, Callable[[], Detector]] = {
    "momostream": Momostream,
    "momostream, one GP without clock and lags": lambda: Momostream(experts=("matern32",)),
    "change since the last row": lambda: Distance(of_change=True),
    "distance from the mean": lambda: Distance(of_change=False),
    # river's default, and one of which two windows fit into what a stopped detector learns.
    "half-space trees, window 250": lambda: HalfSpaceTrees(250),
    "half-space trees, window 200": lambda: HalfSpaceTrees(LEARNT // 2),
}


# ---------------------------------------------------------------------- scores


class Labelled(NamedTuple):
    """The feed with labels, the position of each row in its run, and whether its run has had its fault before it."""

    X: Array
    Y: Array
    is_strange: NDArray[np.bool_]
    position: NDArray[np.integer[Any]]
    is_after: NDArray[np.bool_]


def labelled(rows: int) -> Labelled:
    """The first rows of the file; the very first one is an input only."""
    frame = read(FEED)[0].iloc[1:rows]
    runs, is_strange = frame.groupby("run"), frame["anomaly"].to_numpy() == 1
    is_after = (runs["anomaly"].cummax().to_numpy() == 1) & ~is_strange
    return Labelled(*stream(FEED, rows), is_strange, runs.cumcount().to_numpy(), is_after)


def strangeness(detector: Callable[[], Detector], data: Labelled, stopped: bool) -> Array:
    """Score of each row; a stopped detector starts afresh with each run and learns its first rows."""
    scores = np.empty(len(data.Y))
    current = detector()
    for row, (x, y) in enumerate(zip(data.X, data.Y, strict=True)):
        if stopped and data.position[row] == 0:
            current = detector()
        scores[row] = current.score(x, y)
        if not stopped or data.position[row] < LEARNT:
            current.learn(x, y)
    return scores


def area(scores: Array, is_strange: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: the chance that a strange row scores higher than a normal one, ties counting half.

    NaN where all rows are of one kind.

    Examples
    --------
    >>> area(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    n_strange = int(is_strange.sum())
    n_pairs = n_strange * (len(scores) - n_strange)
    above = rankdata(scores)[is_strange].sum() - n_strange * (n_strange + 1) / 2
    return float(above / n_pairs) if n_pairs else math.nan


def short_mean(scores: Array) -> Array:
    """Mean of each score and those before it, `SHORT` at most.

    Examples
    --------
    >>> short_mean(np.array([1.0, 3.0, 5.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    total = np.concatenate([[0.0], np.cumsum(scores)])
    stop = np.arange(1, len(scores) + 1)
    start = np.maximum(stop - SHORT, 0)
    return (total[stop] - total[start]) / (stop - start)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Faults of a set that is named; else of each detector the areas of the table, then its rows per CPU second."""
    if "set" in task:
        return measure_faults(task["set"], task["runs"])
    data = labelled(task["rows"])
    every, later = np.ones(len(data.Y), dtype=bool), data.position >= LEARNT
    with_after = data.is_strange | data.is_after
    found = {}
    for name, detector in DETECTORS.items():
        start = time.process_time()
        learning = strangeness(detector, data, stopped=False)
        seconds = time.process_time() - start
        stopped = strangeness(detector, data, stopped=True)
        areas = [
            area(kind[part], data.is_strange[part])
            for scores, part in ((learning, every), (learning, later), (stopped, later), (stopped, with_after))
            for kind in (scores, short_mean(scores))
        ]
        found[name] = [*areas, len(data.Y) / seconds]
    return found


def main() -> None:
    """Run the detectors one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=feeds()[FEED])
    parser.add_argument("--quick", action="store_true", help="800 rows, nothing is written")
    options = options_unless_task(parser, measure)
    rows = 800 if options.quick else options.rows
    data = labelled(rows)
    if not 0 < data.is_strange[data.position >= LEARNT].sum() < (data.position >= LEARNT).sum():
        parser.error(f"rows of both kinds are needed after the first {LEARNT} of a run: --rows must be larger")
    measured = in_this_process if options.quick else in_own_process
    runs = QUICK_RUNS if options.quick else sys.maxsize
    faults = {name: measured("benchmarks.anomaly", {"set": name, "runs": runs}) for name in SETS}
    found = measured("benchmarks.anomaly", {"rows": rows})
    lines = [[name, *(f"{value:.3f}" for value in areas), f"{speed:,.0f}"] for name, (*areas, speed) in found.items()]
    header = ["detector"]
    header += [f"{part}: {kind}" for part in PARTS for kind in ("row", "mean")]
    title = f"## Scores of rows: the first {rows:,} of {FEED}, {data.is_strange.mean():.0%} of them labelled"
    areas = [title, table([*header, "rows per CPU s"], lines), NOTE]
    text = "\n\n".join(["# Anomalies", origin("anomaly", [about()]), report_faults(faults), *areas])
    print(text)
    if not options.quick:
        write_results("anomaly", text)


if __name__ == "__main__":
    main()
