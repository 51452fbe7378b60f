"""The paper's circuit on a stream, beside the default model and that with the paper's inputs only.

    python -m benchmarks.circuits [--rows 3000] [--quick]

`momostream.STREAM_PRESETS["momogp"]` with smaller and larger leaves, sums weighted by their posterior or uniformly, on
the first rows of windturbine (found through ``MOMOSTREAM_DATA``, see `benchmarks.data`): predict, then learn, row by
row. The first 200 rows are not scored. Every run has a process of its own. Writes ``results/circuits.md``.
A full run takes about 4 minutes; ``--quick`` is a small run that writes nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import stream
from benchmarks.harness import about, in_own_process, in_this_process, options_unless_task, origin, table, write_results
from benchmarks.stream import Momostream, run
from benchmarks.tools.stream_scores import LEVELS, UNSCORED
from momostream import STREAM_PRESETS, MOMoGPRegressor
from momostream.stream.leaf import Leaf
from momostream.stream.tree import Bundle, Gate, Node

Array = NDArray[np.float64]

FEED = "windturbine"
NAMES = {"default": "default", "one circuit": "default without clock and lags"}
WEIGHTS = ("posterior", "uniform")
# Newest rows that are sent through the finished circuit to count what they reach.
COUNTED = 200

NOTE = """RMSE, MAE and joint NLPD (nats per row) of standardised columns. Leaves are those at the end; leaves and
induced trees per row are what one of the newest rows reaches there, over all circuits. Leaves that do not see the time
hold half as many points more than `max_points` says. The distribution of a momogp is made when a row is predicted, and
its cost
is counted; the default model makes its distribution when it is asked for more than means."""


def parameters(model: str, max_points: int) -> dict[str, Any]:
    """Of the default model, of that with one circuit on the inputs, or of the paper's with weights of this name."""
    if model == "default":
        return {}
    if model == "one circuit":
        return {"experts": STREAM_PRESETS["momogp"]["experts"]}
    return {**STREAM_PRESETS["momogp"], "weights": model, "max_points": max_points}


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Run one model over the feed."""
    feed = stream(FEED, task["rows"])
    model = Momostream(feed.Y.shape[1], seed=0)
    model.model = MOMoGPRegressor(**parameters(task["model"], task["max_points"]), seed=0)
    record, done = run(model, feed, feed.Y)
    return {
        **task,
        **record.accuracy(UNSCORED, done),
        **record.cost(UNSCORED, done),
        "leaves": len(model.model.hyperparameters),
        **reached(model.model),
    }


def reached(model: MOMoGPRegressor) -> dict[str, float]:
    """Leaves and induced trees that one of the newest rows reaches, on average, summed over the circuits."""
    core = model._model
    assert core is not None, "rows have been learnt"
    points = [core.rows.point(number) for number in range(core.rows.stop - COUNTED, core.rows.stop)]
    ways = [[(tree, point[tree.start :]) for tree in core.trees] for point in points]
    return {
        "leaves_reached": float(np.mean([sum(len(tree.reached(x)) for tree, x in way) for way in ways])),
        "induced_trees": float(np.mean([sum(induced_trees(tree.root, x) for tree, x in way) for way in ways])),
    }


def induced_trees(node: Node, x: Array) -> int:
    """How many induced trees a row reaches: sums add up those of their children, products multiply them."""
    if isinstance(node, Leaf):
        return 1
    if isinstance(node, Gate):
        return induced_trees(node.children[bisect_left(node.cuts, x[node.column])], x)
    counts = [induced_trees(child, x) for child in node.children]
    return math.prod(counts) if isinstance(node, Bundle) else sum(counts)


def figures(result: dict[str, Any]) -> list[str]:
    """One line of the table."""
    model = result["model"]
    return [
        f"momogp, {result['max_points']} points, {model}" if model in WEIGHTS else NAMES[model],
        *(f"{result[score]:.4f}" for score in ("rmse", "mae")),
        f"{result['nlpd']:.2f}",
        f"{result['coverage'][LEVELS.index(0.9)]:.3f}",
        f"{result['rows_per_s']:,.0f}",
        *(f"{result[count]:,.0f}" for count in ("leaves", "leaves_reached", "induced_trees")),
    ]


def main() -> None:
    """Run the models one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--quick", action="store_true", help="300 rows and small leaves; nothing is written")
    options = options_unless_task(parser, measure)
    measured = in_this_process if options.quick else in_own_process
    rows, sizes, kinds = (300, (100,), WEIGHTS[:1]) if options.quick else (options.rows, (200, 500), WEIGHTS)
    if rows <= UNSCORED:
        parser.error(f"the first {UNSCORED} rows are not scored: --rows must be larger")
    wanted = [*((model, 0) for model in NAMES), *((weights, size) for size in sizes for weights in kinds)]
    lines = []
    for model, size in wanted:
        task = {"rows": rows, "model": model, "max_points": size}
        lines.append(figures(measured("benchmarks.circuits", task)))
        print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
    header = ["model", "RMSE", "MAE", "NLPD", "covers 90 %", "rows per CPU s"]
    header += ["leaves", "leaves per row", "induced trees per row"]
    title = f"# The paper's circuit on the first {rows:,} rows of {FEED}"
    text = "\n\n".join([title, origin("circuits", [about()]), table(header, lines), NOTE])
    print(text)
    if not options.quick:
        write_results("circuits", text)


if __name__ == "__main__":
    main()
