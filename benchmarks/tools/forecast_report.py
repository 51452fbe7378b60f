"""Tables and verdicts of the forecast benchmark, from the results that `benchmarks.forecast` keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.data import FORECASTS
from benchmarks.harness import origin, table
from benchmarks.tools.forecast_peers import PEERS
from benchmarks.tools.forecast_rivals import RIVALS
from benchmarks.tools.forecast_scores import STRIDE
from benchmarks.tools.stream_report import (
    COVERAGE_WITHIN,
    Result,
    best_of,
    cell,
    coverage,
    coverage_loss,
    figure,
    finished,
    side_by_side,
    verdict,
)
from benchmarks.tools.stream_scores import LEVELS

# Feed, horizon, rows.
Case = tuple[str, int, int]
Grid = dict[Case, dict[str, Result]]

OURS = "momostream"
MODELS = (OURS, *RIVALS, *PEERS)
ERRORS = (("rmse", "RMSE", 4), ("rmse_pooled", "RMSE pooled over steps", 4))
SCORES = (*ERRORS, ("mae", "MAE", 4), ("mase", "MASE", 3), ("crps", "CRPS", 4), ("nlpd", "NLPD", 3))
# Columns of the short table.
SHORT = {
    OURS: (OURS,),
    "best of statsforecast's three": PEERS,
    "best of river's two": ("snarimax", "holt_winters"),
    "ridge on lags": ("ridge",),
    "last season": ("seasonal_last",),
    "last value": ("last_value",),
}
# Steps with a row in the tables by step.
STEPS = (1, 2, 3, 6, 10, 20, 24, 36, 72, 144)

# Targets of momostream that do not depend on its rivals.
LIMITS = {("etth1", 6, 4000): 0.605, ("windturbine", 10, 3000): 0.425, ("windturbine", 10, 3600): 0.425}


def newest(results: list[Result]) -> Grid:
    """By case and model the last result, in the order of the plans."""
    grid: Grid = {}
    order = list(FORECASTS)
    cases = {(result["feed"], result["horizon"], result["rows"]) for result in results}
    for case in sorted(cases, key=lambda case: (order.index(case[0]), *case[1:])):
        grid[case] = {}
    for result in results:
        grid[result["feed"], result["horizon"], result["rows"]][result["model"]] = result
    return grid


def label(case: Case) -> str:
    """How a case is called; rows are named where they are not those of the plan.

    Examples
    --------
    >>> label(("etth1", 6, 4000)), label(("etth1", 6, 900))
    ('etth1 6', 'etth1 6 (900 rows)')
    """
    feed, horizon, rows = case
    return f"{feed} {horizon}" + (f" ({rows:,} rows)" if rows != FORECASTS[feed].rows else "")


# ---------------------------------------------------------------------- tables


def report(results: list[Result]) -> str:
    """All tables as markdown."""
    grid = newest(results)
    online = {case: {model: run for model, run in runs.items() if model not in PEERS} for case, runs in grid.items()}
    shown = [run for runs in grid.values() for run in runs.values()]
    parts = ["# Forecasts", origin("forecast", shown), verdicts(grid)]
    if any(finished(run) for run in shown):
        parts += [f"## In short: RMSE / NLPD at every {STRIDE}th origin", short_table(grid)]
    parts += ["## All origins", *score_tables(online)]
    if any(model in PEERS for runs in grid.values() for model in runs):
        parts += [f"## Every {STRIDE}th origin, with the models of statsforecast", *score_tables(every_fifth(grid))]
    parts += ["## Cost and failures", *cost_tables(grid)]
    parts += ["## By step: RMSE / MAE", *step_tables(online)]
    parts.append(
        "Rows are feed and horizon. RMSE: mean over steps and series. NLPD: nats per value. The best of each "
        "row is bold; "
        "runs that were cut at their CPU limit show the rows they did and are not compared. The distributions "
        f"of statsforecast's points learn from every {STRIDE}th residual only. That moves their CRPS and NLPD "
        f"either way "
        "(the NLPD of the last value by -.24 to +.16), not their RMSE and MAE."
    )
    return "\n\n".join(parts)


def short_table(grid: Grid) -> str:
    """Error and density of all cases of the plans, libraries by the best figure of any of their models."""
    rows = {}
    for case, runs in every_fifth(grid).items():
        if case[2] == FORECASTS[case[0]].rows:
            ended = {model: run["scores"] for model, run in runs.items() if finished(run)}
            rows[f"{case[0]}, {case[1]}"] = [best_of(ended, models) for models in SHORT.values()]
    return side_by_side("feed, steps", list(SHORT), rows)


def every_fifth(grid: Grid) -> Grid:
    """The same results with the scores at these origins instead of those at all origins."""
    return {
        case: {
            model: run | ({"scores": run["every_fifth"]} if "every_fifth" in run else {}) for model, run in runs.items()
        }
        for case, runs in grid.items()
    }


def compared(grid: Grid, show: Callable[[Result], str], loss: Callable[[Result], float]) -> str:
    """Cases down, models across; the least loss among the runs that reached the end is bold."""
    models = present(grid.values())
    rows = []
    for case, runs in grid.items():
        best = min((loss(run) for run in runs.values() if finished(run)), default=np.inf)
        rows.append([label(case), *(cell(runs.get(model), show, loss, best) for model in models)])
    return table(["feed", *models], rows)


def present(runs: Iterable[dict[str, Result]]) -> list[str]:
    """Models that were run, in the order of `MODELS`."""
    found = {model for by_model in runs for model in by_model}
    return [model for model in MODELS if model in found]


def score_tables(grid: Grid) -> list[str]:
    """Accuracy and calibration."""
    parts = []
    for name, words, digits in SCORES:
        parts += [f"### {words}", compared(grid, *figure("scores", name, digits))]
    return [*parts, "### Coverage of the central 50 / 90 / 99 %", compared(grid, coverage, coverage_loss)]


def cost_tables(grid: Grid) -> list[str]:
    """CPU time, and points that had to be replaced."""

    def spent(run: Result) -> str:
        return " / ".join(f"{run['us'][name]:,.0f}" for name in ("median", "p99", "mean") if name in run["us"])

    def mean(run: Result) -> float:
        return float(run["us"]["mean"])

    # Peers have no scores at all origins, but a cost.
    costs = every_fifth(grid)
    replaced = [
        [label(case), model, f"{run['replaced']:,}"]
        for case, runs in grid.items()
        for model, run in runs.items()
        if run.get("replaced")
    ]
    return [
        "### CPU microseconds of a row, learnt and forecast from: median / 99 % / mean",
        compared(costs, spent, mean),
        "For the models of statsforecast: mean of an origin, fits included.",
        "### Points not finite or beyond 1,000 deviations, replaced by the last value",
        table(["feed", "model", "points"], replaced) if replaced else "None.",
    ]


def step_tables(grid: Grid) -> list[str]:
    """Errors at some steps of each case with several."""
    parts = []
    for case, runs in grid.items():
        ended = {model: run["scores"]["by_step"] for model, run in runs.items() if finished(run)}
        models, steps = present([ended]), [step for step in STEPS if step <= case[1]]
        if len(steps) > 1 and ended:
            rows = [[str(step), *(both_errors(ended[model], step) for model in models)] for step in steps]
            parts += [f"### {label(case)}", table(["step", *models], rows)]
    return parts


def both_errors(by_step: Result, step: int) -> str:
    """RMSE and MAE of one step."""
    return " / ".join(f"{by_step[name][step - 1]:.4f}" for name in ("rmse", "mae"))


# ---------------------------------------------------------------------- targets


def verdicts(grid: Grid) -> str:
    """PASS or MISS for each promise, with the cases that miss it."""
    planned = {case: runs for case, runs in grid.items() if case[2] == FORECASTS[case[0]].rows and OURS in runs}
    if not planned:
        return "No targets: momostream was not run on all rows of a feed."
    ended = {case: runs for case, runs in planned.items() if finished(runs[OURS])}
    lines = [verdict("every feed to its end", {label(case): "" for case in planned if case not in ended}, len(planned))]
    lines += against_rivals(ended)
    for case, limit in LIMITS.items():
        run = grid.get(case, {}).get(OURS)
        if finished(run):
            # Both, because the prototypes that the limits come from were scored by the pooled one.
            for name, words, _ in ERRORS:
                error = run["scores"][name]
                misses = {label(case): f"{error:.4f}"} if error > limit else {}
                lines.append(verdict(f"{case[0]} {case[1]}, {case[2]:,} rows: {words} at most {limit}", misses, 1))
    for number, (level, within) in enumerate(zip(LEVELS, COVERAGE_WITHIN, strict=True)):
        shares = {label(case): runs[OURS]["scores"]["coverage"][number] for case, runs in ended.items()}
        misses = {name: f"{share:.3f}" for name, share in shares.items() if abs(share - level) > within}
        lines.append(verdict(f"coverage of {level:.0%} within {within}", misses, len(ended)))
    return "\n".join(lines)


def against_rivals(ended: Grid) -> list[str]:
    """Scores beside the hardest rival of each case, at the origins where that rival has forecasts."""
    worst: dict[str, dict[str, tuple[float, str]]] = {}
    for case, runs in ended.items():
        rivals = {model: run for model, run in runs.items() if model != OURS and finished(run)}
        if rivals:
            worst[label(case)] = {name: hardest(name, runs[OURS], rivals) for name in ("mae", "rmse", "crps", "nlpd")}
    lines = []
    for name in ("mae", "rmse"):
        misses = {case: f"{by[name][0]:.3f}x {by[name][1]}" for case, by in worst.items() if by[name][0] > 1.02}
        lines.append(verdict(f"{name.upper()} at most 1.02x the best rival's", misses, len(worst)))
    for name in ("crps", "nlpd"):
        misses = {case: f"{by[name][0]:+.4f} {by[name][1]}" for case, by in worst.items() if by[name][0] >= 0.0}
        lines.append(verdict(f"{name.upper()} below every rival's", misses, len(worst)))
    worse = {case: f"{by['mae'][0]:.3f}x {by['mae'][1]}" for case, by in worst.items() if by["mae"][0] >= 1.0}
    few = worse if 3 * len(worse) > len(worst) else {}
    return [*lines, verdict("MAE below every rival's on 2/3 of the feeds and horizons", few, len(worst))]


def hardest(name: str, ours: Result, rivals: dict[str, Result]) -> tuple[float, str]:
    """The rival that we look worst beside: ratio of errors, difference of CRPS or NLPD, and its name.

    Examples
    --------
    >>> ours = {"scores": {"mae": 3.0}, "every_fifth": {"mae": 2.0}}
    >>> hardest("mae", ours, {"ridge": {"scores": {"mae": 4.0}}, "auto_ets": {"every_fifth": {"mae": 2.0}}})
    (1.0, 'auto_ets')
    """
    found = []
    for model, run in rivals.items():
        part = "scores" if "scores" in run else "every_fifth"
        mine, theirs = ours[part][name], run[part][name]
        found.append((mine / theirs if name in ("mae", "rmse") else mine - theirs, model))
    return max(found)
