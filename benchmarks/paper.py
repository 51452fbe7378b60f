"""The paper's experiments: our presets and our default beside its published figures, and what fits cost.

    python -m benchmarks.paper [--quick] [--seeds 5] [--parts split time cost]

WindTurbine, Parkinsons and scm20d with the paper's splits (part ``split``), WindTurbine cut in time (``time``), and
simulated sets of the shape of Energy and usFlight (``cost``). The data sets are found through ``MOMOSTREAM_DATA``, see
`benchmarks.data`. Every fit runs in a process of its own; its figures are kept in ``results/paper.jsonl`` as they
come, and those already there are not measured again (``--afresh`` forgets them). A full run takes about an hour.
``--quick`` keeps and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.data import Split, folder, paper_split, simulated, time_split
from benchmarks.harness import (
    RESULTS,
    about,
    cpu_seconds,
    in_own_process,
    in_this_process,
    keep_result,
    kept_results,
    mean_and_deviation,
    options_unless_task,
    origin,
    peak_gigabytes,
    scores,
    table,
    write_results,
)

KEPT = RESULTS / "paper.jsonl"

# Table 2 of the paper: RMSE, MAE, NLPD.
PUBLISHED = {
    "windturbine": {
        "LR": (0.391, 0.311, 1.435),
        "GP": (0.133, 0.074, -2.649),
        "MOGP": (0.139, 0.080, 2.594),
        "MOSVGP": (0.302, 0.236, 0.104),
        "DSMGP": (0.143, 0.073, -8.749),
        "sumGP": (0.133, 0.074, -2.627),
        "MOMoGP": (0.143, 0.073, -7.467),
    },
    "parkinsons": {
        "LR": (0.974, 0.816, 2.787),
        "GP": (0.783, 0.610, 2.389),
        "MOGP": (0.793, 0.603, 1.766),
        "MOSVGP": (0.864, 0.708, 2.515),
        "DSMGP": (0.774, 0.604, 2.319),
        "sumGP": (0.784, 0.610, 2.388),
        "MOMoGP": (0.775, 0.605, 2.208),
    },
    "scm20d": {
        "LR": (0.680, 0.503, 16.568),
        "GP": (0.332, 0.195, 0.543),
        "MOGP": (0.307, 0.180, 6.882),
        "MOSVGP": (0.491, 0.352, 8.682),
        "DSMGP": (0.323, 0.188, 1.341),
        "sumGP": (0.322, 0.187, 8.097),
        "MOMoGP": (0.324, 0.187, -0.201),
    },
}

# RMSE, MAE and NLPD of the default at most, and its coverage of 90 %.
TARGETS = {
    "windturbine": (0.132, 0.067, -11.2),
    "parkinsons": (0.775, 0.605, 1.20),
    "scm20d": (0.315, 0.185, 1.5),
}
COVERAGE = (0.88, 0.93)
FIT_SECONDS = {"windturbine": 15.0, "scm20d": 90.0}

MODELS = ("default", "momogp", "dsmgp", "sumgp", "exact")
# Hundreds of regions with 30 lengthscales each, or 32 factors of 200 MB: cap what a seed may cost.
CAPS: dict[tuple[str, str], dict[str, Any]] = {
    ("scm20d", "momogp"): {"tuning_points": 300, "max_points": 1000},
    ("scm20d", "dsmgp"): {"tuning_points": 300, "max_points": 1000},
    ("scm20d", "sumgp"): {"memory_budget": 3_000_000_000},
}
# Presets on scm20d take tens of minutes a seed.
ONE_SEED = {("scm20d", "momogp"), ("scm20d", "dsmgp"), ("scm20d", "sumgp"), ("scm20d", "exact")}

SHAPES: dict[str, dict[str, Any]] = {
    "energy": {"n_rows": 57_598, "n_inputs": 32, "n_targets": 17, "parameters": {}},
    "flight-50k": {"n_rows": 50_000, "n_inputs": 8, "n_targets": 2, "parameters": {"max_points": 500}},
    "flight-500k": {"n_rows": 500_000, "n_inputs": 8, "n_targets": 2, "parameters": {"max_points": 500}},
}


# ---------------------------------------------------------------------- one fit, in a process of its own


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Fit one model and score it; ``scores`` holds one entry per weighting that the fit serves."""
    from momostream.estimators.table import MOMoGPRegressor

    split = load(task)
    # Compilation is not part of the cost.
    MOMoGPRegressor(max_iterations=1).fit(split.X[:50], split.Y[:50]).predict_distribution(split.X[:2]).log_pdf(
        split.Y[:2]
    )
    parameters = {**task["parameters"], "random_state": task["seed"], "n_jobs": task.get("n_jobs", 1)}
    model = (
        MOMoGPRegressor(**parameters)
        if task["model"] == "default"
        else MOMoGPRegressor.from_preset(task["model"], **parameters)
    )
    start = cpu_seconds()
    model.fit(split.X, split.Y)
    shut_down_workers()
    answer: dict[str, Any] = {**task, "seconds": cpu_seconds() - start}
    distribution = model.predict_distribution(split.X_test)
    answer["scores"] = {"posterior" if task["model"] != "default" else "stacking": scores(distribution, split.Y_test)}
    if task["model"] in ("momogp", "dsmgp", "sumgp"):
        make_uniform(model.model_)
        answer["scores"]["uniform"] = scores(model.predict_distribution(split.X_test), split.Y_test)
    answer["regions"] = sum(len(expert.regions) for expert in model.model_.experts if hasattr(expert, "regions"))
    answer["gigabytes"] = peak_gigabytes()
    return answer


def load(task: dict[str, Any]) -> Split:
    """The data of a task."""
    name = task["set"]
    if task["part"] == "cost":
        shape = SHAPES[name]
        return simulated(shape["n_rows"], shape["n_inputs"], shape["n_targets"])
    split = time_split("windturbine", name) if task["part"] == "time" else paper_split(name)
    if "rows" in task:
        kept = np.linspace(0, len(split.X) - 1, task["rows"]).round().astype(int)
        split = split._replace(X=split.X[kept], Y=split.Y[kept])
    return split


def make_uniform(model: Any) -> None:
    """Set the weights of all sums to uniform: the published code's weights are nearly so."""
    for expert in model.experts:
        for node in expert.circuit.nodes:
            if node.log_weights is not None:
                node.log_weights = np.full(len(node.children), -np.log(len(node.children)))


def shut_down_workers() -> None:
    """End joblib's workers, so that their CPU time is known."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


# ---------------------------------------------------------------------- what to run, and the tables


def tasks(parts: list[str], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """All fits of a run, the most informative first."""
    if quick:
        small: dict[str, Any] = {"part": "split", "set": "windturbine", "seed": 0, "rows": 600}
        return [
            {**small, "model": "default", "parameters": {}},
            {**small, "model": "momogp", "parameters": {"max_points": 200, "max_iterations": 5}},
        ]
    listed: list[dict[str, Any]] = []
    if "split" in parts:
        listed += [
            {"part": "split", "set": name, "model": model, "seed": seed, "parameters": CAPS.get((name, model), {})}
            for model in MODELS
            for name in PUBLISHED
            for seed in range(1 if (name, model) in ONE_SEED else seeds)
        ]
    if "time" in parts:
        blocks = {"stacking": "blocks"}
        listed += [
            {"part": "time", "set": kind, "model": "default", "seed": seed, "parameters": blocks}
            for kind in ("gaps", "end")
            for seed in range(seeds)
        ]
    if "cost" in parts:
        listed += [
            {"part": "cost", "set": name, "model": "default", "seed": 0, "n_jobs": 2, "parameters": shape["parameters"]}
            for name, shape in SHAPES.items()
        ]
    return listed


def key(task: dict[str, Any]) -> str:
    """The fields that identify a measurement."""
    return json.dumps([task[name] for name in ("part", "set", "model", "seed", "parameters")])


def report(results: list[dict[str, Any]]) -> str:
    """All tables as markdown."""
    parts = ["# The paper's experiments", origin("paper", results)]
    ours = [result for result in results if result["part"] == "split" and result["model"] == "default"]
    if ours:
        parts += ["## In short: the default beside the best published figures", short_table(ours)]
    for name in PUBLISHED:
        found = [result for result in results if result["part"] == "split" and result["set"] == name]
        if found:
            parts += [f"## {name}", split_table(name, found)]
    timed = [result for result in results if result["part"] == "time"]
    if timed:
        parts += ["## windturbine, cut in time", time_table(timed)]
    costly = [result for result in results if result["part"] == "cost"]
    if costly:
        parts += ["## cost", cost_table(costly)]
    parts.append(
        "NLPD counts every test row under the model's own distribution; *by the code* it is that of the moment-matched "
        "Gaussian with densities below 1e-10 counted as 0, as in the published code. CPU seconds after compilation."
    )
    return "\n\n".join(parts)


def short_table(results: list[dict[str, Any]]) -> str:
    """Means over the seeds of our default, and the best figure that any of the paper's models has."""
    figures = {"RMSE": ("rmse", 3), "MAE": ("mae", 3), "NLPD": ("nlpd", 2)}
    header = ["data", *(word for figure in figures for word in (figure, "best published")), "fit CPU s", "seeds"]
    rows = []
    for name, published in PUBLISHED.items():
        group = [result for result in results if result["set"] == name]
        if not group:
            continue
        line = [name]
        for number, (figure, digits) in enumerate(figures.values()):
            ours = float(np.mean([result["scores"]["stacking"][figure] for result in group]))
            pair = (ours, min(row[number] for row in published.values()))
            line += [f"**{value:.{digits}f}**" if value == min(pair) else f"{value:.{digits}f}" for value in pair]
        rows.append([*line, f"{np.mean([result['seconds'] for result in group]):.0f}", str(len(group))])
    return table(header, rows)


def split_table(name: str, results: list[dict[str, Any]]) -> str:
    """Published rows, then ours."""
    header = ["model", "RMSE", "MAE", "NLPD", "NLPD by the code", "covers 90 %", "fit CPU s", "GB", "seeds", "target"]
    rows = [
        [f"{model} (published)", f"{rmse:.3f}", f"{mae:.3f}", "", f"{nlpd:.3f}", "", "", "", "", ""]
        for model, (rmse, mae, nlpd) in PUBLISHED[name].items()
    ]
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for weights in result["scores"]:
            grouped[result["model"], weights].append(result)
    for (model, weights), group in grouped.items():
        each = {
            figure: [result["scores"][weights][figure] for result in group] for figure in group[0]["scores"][weights]
        }
        seconds, gigabytes = [result["seconds"] for result in group], [result["gigabytes"] for result in group]
        rows.append(
            [
                "**default**" if model == "default" else f"{model}, {weights} weights",
                mean_and_deviation(each["rmse"], 4),
                mean_and_deviation(each["mae"], 4),
                mean_and_deviation(each["nlpd"], 2),
                mean_and_deviation(each["lenient"], 2),
                mean_and_deviation(each["coverage"], 3),
                f"{np.mean(seconds):.0f}",
                f"{np.max(gigabytes):.1f}",
                str(len(group)),
                verdict(name, model, weights, {k: float(np.mean(v)) for k, v in each.items()}, float(np.mean(seconds))),
            ]
        )
    return table(header, rows)


def verdict(name: str, model: str, weights: str, mean: dict[str, float], seconds: float) -> str:
    """PASS, or what was missed; empty where nothing was promised."""
    limits: dict[str, float] = {}
    if model == "default":
        limits = dict(zip(("rmse", "mae", "nlpd"), TARGETS[name], strict=True))
    elif model == "momogp" and name != "scm20d":
        rmse, mae, _ = PUBLISHED[name]["MOMoGP"]
        if weights == "uniform":
            limits = {"rmse": 1.05 * rmse, "mae": 1.05 * mae} | ({"nlpd": -9.4} if name == "windturbine" else {})
        elif name == "windturbine":
            limits = {"rmse": 0.16, "nlpd": -8.6}
    if not limits:
        return ""
    missed = [figure for figure, limit in limits.items() if mean[figure] > limit]
    if model == "default":
        if not COVERAGE[0] <= mean["coverage"] <= COVERAGE[1]:
            missed.append("coverage")
        if seconds > FIT_SECONDS.get(name, np.inf):
            missed.append("seconds")
    return "PASS" if not missed else "MISS: " + ", ".join(missed)


def time_table(results: list[dict[str, Any]]) -> str:
    """Ours beside linear regression with the covariance of its training residuals."""
    header = ["held out", "model", "RMSE", "NLPD", "covers 90 %", "target"]
    rows = []
    for kind, words in (("gaps", "every fifth block of 250 rows"), ("end", "the last fifth")):
        group = [result["scores"]["stacking"] for result in results if result["set"] == kind]
        if not group:
            continue
        rmse, nlpd = linear_regression(time_split("windturbine", kind))
        rows.append([words, "linear regression", f"{rmse:.4f}", f"{nlpd:.3f}", "", ""])
        ours = {figure: [each[figure] for each in group] for figure in ("rmse", "nlpd", "coverage")}
        missed = []
        if np.mean(ours["rmse"]) > 1.02 * rmse:
            missed.append("rmse")
        if np.mean(ours["nlpd"]) >= nlpd:
            missed.append("nlpd")
        rows.append(
            [
                words,
                '**default**, `stacking="blocks"`',
                mean_and_deviation(ours["rmse"], 4),
                mean_and_deviation(ours["nlpd"], 3),
                mean_and_deviation(ours["coverage"], 3),
                "PASS" if not missed else "MISS: " + ", ".join(missed),
            ]
        )
    return table(header, rows)


def linear_regression(split: Split) -> tuple[float, float]:
    """RMSE and Gaussian NLPD of ordinary least squares."""
    A, B = (np.column_stack([X, np.ones(len(X))]) for X in (split.X, split.X_test))
    weights = np.linalg.lstsq(A, split.Y, rcond=None)[0]
    train, test = split.Y - A @ weights, split.Y_test - B @ weights
    covariance = train.T @ train / len(train)
    distance = np.einsum("ij,jk,ik->i", test, np.linalg.inv(covariance), test)
    nlpd = 0.5 * distance.mean() + 0.5 * np.linalg.slogdet(2.0 * np.pi * covariance)[1]
    return float(np.sqrt((test**2).mean(axis=0)).mean()), float(nlpd)


def cost_table(results: list[dict[str, Any]]) -> str:
    """CPU and memory of fits of simulated sets on two processes."""
    header = ["shape", "rows", "inputs -> targets", "regions", "fit CPU s", "CPU ms per row", "GB", "RMSE", "target"]
    per_row = {result["set"]: result["seconds"] / SHAPES[result["set"]]["n_rows"] for result in results}
    rows = []
    for result in results:
        name, shape = result["set"], SHAPES[result["set"]]
        word = ""
        if name == "flight-500k":
            missed = []
            if result["seconds"] > 2 * 30 * 60:
                missed.append("time")
            if result["gigabytes"] > 6.0:
                missed.append("memory")
            if per_row[name] > 1.5 * per_row.get("flight-50k", np.inf):
                missed.append("growth")
            word = "PASS" if not missed else "MISS: " + ", ".join(missed)
        rows.append(
            [
                name,
                f"{shape['n_rows']:,}",
                f"{shape['n_inputs']} -> {shape['n_targets']}",
                str(result["regions"]),
                f"{result['seconds']:.0f}",
                f"{1e3 * per_row[name]:.2f}",
                f"{result['gigabytes']:.1f}",
                f"{result['scores']['stacking']['rmse']:.4f}",
                word,
            ]
        )
    return table(header, rows)


def main() -> None:
    """Run what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small fits, nothing is kept")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=("split", "time", "cost"), default=["split", "time", "cost"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sets", nargs="+", default=[*PUBLISHED, "gaps", "end", *SHAPES])
    parser.add_argument("--afresh", action="store_true", help="forget what was measured before")
    options = options_unless_task(parser, measure)
    folder()
    if options.afresh:
        KEPT.unlink(missing_ok=True)
    results = [] if options.quick else kept_results(KEPT)
    measured = in_this_process if options.quick else in_own_process
    done = {key(result) for result in results}
    wanted = [
        task
        for task in tasks(options.parts, options.seeds, options.quick)
        if task["model"] in options.models and task["set"] in options.sets and key(task) not in done
    ]
    where = about()
    for number, task in enumerate(wanted, 1):
        print(
            f"{number}/{len(wanted)}: {task['set']}, {task['model']}, seed {task['seed']}", file=sys.stderr, flush=True
        )
        results.append({**measured("benchmarks.paper", task), **where})
        if not options.quick:
            keep_result(KEPT, results[-1])
    order = {key(task): number for number, task in enumerate(tasks(["split", "time", "cost"], 99, options.quick))}
    results.sort(key=lambda result: order.get(key(result), len(order)))
    text = report(results)
    print(text)
    if not options.quick:
        write_results("paper", text)


if __name__ == "__main__":
    main()
