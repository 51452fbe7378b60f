"""Measurements behind the defaults: experts, tuning rows and block counts on the paper's sets.

    python -m benchmarks.choices [--quick] [--questions experts rows blocks]

The data sets are found through ``MOMOSTREAM_DATA``, see `benchmarks.data`. A full run takes about half an hour.
It writes ``results/choices.md``.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.data import folder, paper_split, time_split
from benchmarks.harness import (
    about,
    cpu_seconds,
    in_own_process,
    options_unless_task,
    origin,
    scores,
    table,
    write_results,
)

SETS = ("windturbine", "parkinsons", "scm20d")
EXPERTS = (
    ("matern32",),
    ("matern12",),
    ("warped matern32",),
    ("warped matern12",),
    ("matern32", "warped matern12"),
    ("matern32", "warped matern12", "linear"),
    ("matern32", "warped matern12", "linear", "residual matern32"),
)
ROWS = (500, 700, 1000, 1500)
BLOCKS = (5, 10, 15, 20, 30)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Fit and score one choice."""
    from momostream.estimators.table import MOMoGPRegressor

    split = time_split("windturbine", task["set"]) if task["set"] in ("gaps", "end") else paper_split(task["set"])
    if task["few"]:
        split = split._replace(X=split.X[::16], Y=split.Y[::16])
    start = cpu_seconds()
    model = MOMoGPRegressor(**task["parameters"], random_state=0).fit(split.X, split.Y)
    seconds = cpu_seconds() - start
    return {**task, **scores(model.predict_distribution(split.X_test), split.Y_test), "seconds": seconds}


def choices(questions: list[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Question, data set and parameters of each fit."""
    listed: list[tuple[str, str, dict[str, Any]]] = []
    if "experts" in questions:
        listed += [("experts", name, {"experts": experts}) for name in SETS for experts in EXPERTS]
    if "rows" in questions:
        listed += [("rows", name, {"tuning_points": rows}) for name in SETS for rows in ROWS]
    if "blocks" in questions:
        listed += [("blocks", name, {"stacking": "blocks", "n_blocks": n}) for name in ("gaps", "end") for n in BLOCKS]
    return listed


def main() -> None:
    """Run what is asked for and print one table per question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small fit, nothing is written")
    parser.add_argument("--questions", nargs="+", choices=("experts", "rows", "blocks"))
    options = options_unless_task(parser, measure)
    folder()
    listed = choices(options.questions or ["experts", "rows", "blocks"])
    listed = listed[:1] if options.quick else listed
    rows: dict[str, list[list[str]]] = {}
    for question, name, parameters in listed:
        task = {"set": name, "parameters": parameters, "few": options.quick}
        found = in_own_process("benchmarks.choices", task)
        words = ", ".join(str(value) for value in parameters.values())
        figures = [f"{found[figure]:.4f}" for figure in ("rmse", "mae")]
        figures += [f"{found['nlpd']:.2f}", f"{found['coverage']:.3f}", f"{found['seconds']:.0f}"]
        rows.setdefault(question, []).append([name, words, *figures])
        print(" | ".join(rows[question][-1]), flush=True)
    header = ["set", "choice", "RMSE", "MAE", "NLPD", "covers 90 %", "fit CPU s"]
    parts = [f"## {question}\n\n{table(header, each)}" for question, each in rows.items()]
    text = "\n\n".join(["# Measurements behind the defaults", origin("choices", [about()]), *parts])
    print(text)
    if not options.quick:
        write_results("choices", text)


if __name__ == "__main__":
    main()
