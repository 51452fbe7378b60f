"""Tables and verdicts of the forecast benchmark, from the results that `benchmarks.forecast` keeps.

Feeds are split into a half on which defaults are chosen and a half that is only reported; tables of cases have the two
side by side. A ratio is momostream's score divided by that of the best rival of the case, at the origins where that
rival has forecasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

import numpy as np

from benchmarks.data import FORECASTS, HALVES, half_of
from benchmarks.harness import origin, table
from benchmarks.tools.forecast_batch import BATCH, LIGHTGBM, TOO_MANY, TREES
from benchmarks.tools.forecast_peers import PEERS
from benchmarks.tools.forecast_rivals import RIVALS
from benchmarks.tools.forecast_scores import HONEST, STRIDE, UNSCORED, WARM, YOUNG
from benchmarks.tools.stream_report import Result, cell, figure, finished
from benchmarks.tools.stream_scores import LEVELS

# Feed, horizon, rows.
Case = tuple[str, int, int]
Grid = dict[Case, dict[str, Result]]
# What a case misses, or None if it does not miss it.
Judged = dict[Case, str | None]

# momostream with its defaults, without Gaussian processes, without timestamps.
OUR, LINEAR, UNTIMED = OURS = ("momostream", "momostream_linear", "momostream_untimed")
MODELS = (*OURS, *BATCH, *RIVALS, *PEERS)
SCORES = (
    ("rmse", "RMSE", 4),
    ("rmse_pooled", "RMSE pooled over steps", 4),
    ("mae", "MAE", 4),
    ("mase", "MASE", 3),
    ("crps", "CRPS", 4),
    ("nlpd", "NLPD", 3),
)
# Scores that are compared with the best rival's.
COMPARED = {"rmse": "RMSE", "mae": "MAE", "crps": "CRPS"}
COVERAGE_WITHIN, YOUNG_WITHIN = (0.02, 0.02, 0.01), 0.03
PAUSE_MS, BEHIND_LAST_VALUE = 10.0, 1.02

PROTOCOL = (
    "Cases are named by feed and horizon. Defaults are chosen on the feeds of the choosing half; those of the "
    "reporting half are looked at for this file only. Series are standardised by their first 500 rows. Row t is "
    f"learnt, then the rows t + 1 to t + H are forecast; origins from row {UNSCORED} on are scored. A row that a file "
    "with dates does not have is a gap: values missing there are not scored, the row is not an origin, and momostream "
    "does not see it. RMSE is that of the mean and MAE that of the median (rivals: of their point); RMSE is the mean "
    "over steps and series. The CRPS of the validated ridge, of LightGBM and of their mean comes from 99 quantiles; "
    "all others have a closed form or are integrated; these three have no NLPD. "
    f"LightGBM has {TREES} trees of {LIGHTGBM['num_leaves']} leaves with a rate of {LIGHTGBM['learning_rate']}, one "
    f"model for each step and series, and is left out on {' and '.join(TOO_MANY)}: too many models. "
    f"Models of statsforecast are scored at every {STRIDE}th origin, and momostream beside them at the same; they were "
    "run on the oldest cases only. Results of earlier runs on rows without a clock (turkey_wind_scada) or with the "
    "error of the mean as MAE were dropped when the protocol changed. `momostream_linear` has no experts that are "
    "Gaussian processes: neither the two circuits nor the curved lags. Errors by step are in `results/forecast.jsonl`."
)


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


# ---------------------------------------------------------------------- the report


def report(results: list[Result]) -> str:
    """All tables as markdown."""
    grid = newest(results)
    shown = [run for runs in grid.values() for run in runs.values()]
    parts = ["# Forecasts", origin("forecast", shown), PROTOCOL]
    parts += ["## Must show", verdicts(grid, results)]
    ended = {case: runs for case, runs in planned(grid).items() if finished(runs.get(OUR))}
    if ended:
        parts += ["## Shares of wins and geometric means", summary(ended)]
        parts += ["### By rival: geometric mean of ratios, share of wins", by_rival(ended)]
        parts += ratio_tables(ended)
        parts += ["### Coverage of the central 50 / 90 / 99 %", coverage_table(ended)]
        parts += ["### With and without Gaussian processes", circuits_table(ended)]
        parts += ["### Young models", young_table(ended)]
        parts += ["### The slowest row", slowest_table(ended)]
    parts += ["## All models", *score_tables(grid)]
    parts += ["## Cost and failures", *cost_tables(grid)]
    return "\n\n".join(parts)


def planned(grid: Grid) -> Grid:
    """The cases with all of their rows."""
    return {case: runs for case, runs in grid.items() if case[2] == FORECASTS[case[0]].rows}


def halves(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases by half."""
    listed = list(cases)
    return {half: [case for case in listed if half_of(case[0]) == half] for half in HALVES}


# ---------------------------------------------------------------------- beside the best rival


def hardest(name: str, ours: Result, rivals: dict[str, Result]) -> tuple[float, str]:
    """The rival that we look worst beside: ratio of scores, and its name.

    Examples
    --------
    >>> ours = {"scores": {"mae": 3.0}, "every_fifth": {"mae": 2.0}}
    >>> hardest("mae", ours, {"ridge": {"scores": {"mae": 4.0}}, "auto_ets": {"every_fifth": {"mae": 2.0}}})
    (1.0, 'auto_ets')
    """
    return max((ratio(name, ours, run), model) for model, run in rivals.items())


def ratio(name: str, ours: Result, run: Result) -> float:
    """Our score divided by that of a run, at all origins or, if it does not have them, at every fifth."""
    part = "scores" if "scores" in run else "every_fifth"
    return float(ours[part][name] / run[part][name])


def rivals_of(runs: dict[str, Result]) -> dict[str, Result]:
    """The runs of others that reached the end."""
    return {model: run for model, run in runs.items() if model not in OURS and finished(run)}


def ratios(ended: Grid, name: str) -> dict[Case, tuple[float, str]]:
    """Of each case with a rival, the ratio to the best one and its name."""
    return {case: hardest(name, runs[OUR], rivals_of(runs)) for case, runs in ended.items() if rivals_of(runs)}


def geometric(values: Iterable[float]) -> float:
    """Geometric mean.

    Examples
    --------
    >>> round(geometric([0.5, 2.0, 8.0]), 3)
    2.0
    """
    return float(np.exp(np.mean(np.log(list(values)))))


def summary(ended: Grid) -> str:
    """How often no rival is better, and the geometric mean of the ratios to the best rival, by half."""
    rows = []
    for name, words in COMPARED.items():
        found = ratios(ended, name)
        row = [words]
        for cases in [*halves(found).values(), list(found)]:
            values = [found[case][0] for case in cases]
            wins = sum(value <= 1.0 for value in values)
            row += [f"{wins} of {len(values)}", f"{geometric(values):.3f}"] if values else ["", ""]
        rows.append(row)
    header = [f"{side}: {what}" for side in (*HALVES, "both") for what in ("no rival better", "ratio to the best")]
    return table(["score", *header], rows)


def by_rival(ended: Grid) -> str:
    """Of each rival the geometric mean of our score in units of its own, and the share of cases that we win."""
    rows = []
    for model in MODELS:
        row = [model]
        for cases in halves(ended).values():
            runs = [case for case in cases if model in rivals_of(ended[case])]
            for name in COMPARED:
                values = [ratio(name, ended[case][OUR], ended[case][model]) for case in runs]
                wins = sum(value < 1.0 for value in values)
                row.append(f"{geometric(values):.3f}, {wins} of {len(values)}" if values else "")
        if any(row[1:]):
            rows.append(row)
    return table(["rival", *(f"{half}: {words}" for half in HALVES for words in COMPARED.values())], rows)


def ratio_tables(ended: Grid) -> list[str]:
    """Our score, the best rival's, and the ratio, one table for each score that is compared."""
    parts = []
    for name, words in COMPARED.items():
        found = ratios(ended, name)

        def cells(case: Case, name: str = name, found: dict[Case, tuple[float, str]] = found) -> list[str]:
            value, rival = found[case]
            shown = f"{value:.3f}" if value <= 1.0 else f"**{value:.3f}**"
            return [f"{ended[case][OUR]['scores'][name]:.4f}", rival, shown]

        parts += [
            f"### {words} beside the best rival",
            beside(list(found), ["momostream", "best rival", "ratio"], cells),
        ]
    return parts


def beside(cases: Iterable[Case], header: list[str], cells: Callable[[Case], list[str]]) -> str:
    """A table of cases, the choosing half on the left, the reporting half on the right."""
    width = len(header) + 1
    sides = [[[label(case), *cells(case)] for case in listed] for listed in halves(cases).values()]
    rows = [[*left, *right] for left, right in zip_longest(*sides, fillvalue=[""] * width)]
    return table([name for half in HALVES for name in (half, *header)], rows)


# ---------------------------------------------------------------------- of momostream alone


def shares(found: list[float]) -> str:
    """Shares inside the central intervals."""
    return " / ".join(f"{share:.3f}" for share in found)


def coverage_table(ended: Grid) -> str:
    """Coverage over the whole feed, and plain there, and over the origins that are scored."""

    def cells(case: Case) -> list[str]:
        run = ended[case][OUR]
        plain = run["young"].get("plain")
        return [shares(run["young"]["whole"]), shares(plain) if plain else "", shares(run["scores"]["coverage"])]

    words = (
        "A reading stands for the values within half of its series' resolution, which is the least change that the "
        "series has made before the forecast; which of them is meant is drawn. Beside it plain coverage, where every "
        "interval that touches the reading holds it: where a series stands still it is above its level for any "
        "forecast.\n\n"
    )
    headers = [f"from row {HONEST} on", "plain", f"from row {UNSCORED} on"]
    return words + beside(young_runs(ended), headers, cells)


def young_runs(ended: Grid) -> list[Case]:
    """Cases whose first rows were scored as well."""
    return [case for case, runs in ended.items() if "young" in runs[OUR]]


def circuits_table(ended: Grid) -> str:
    """RMSE and CRPS with circuits and curved lags, in units of those without."""
    cases = [case for case, runs in ended.items() if finished(runs.get(LINEAR))]

    def cells(case: Case) -> list[str]:
        runs = ended[case]
        row = []
        for name in ("rmse", "crps"):
            row += [f"{runs[model]['scores'][name]:.4f}" for model in (OUR, LINEAR)]
            row.append(f"{ratio(name, runs[OUR], runs[LINEAR]):.3f}")
        return row

    header = [f"{words} {what}" for words in ("RMSE", "CRPS") for what in ("with", "without", "ratio")]
    return beside(cases, header, cells)


def young_table(ended: Grid) -> str:
    """Errors of the first rows beside those of the last value, and their coverage."""

    def cells(case: Case) -> list[str]:
        young = ended[case][OUR]["young"]
        row = ["" if value is None else f"{value:.3f}" for value in young["ratios"]]
        return [*row, shares(young["coverage"])]

    blocks = [f"{first} to {stop}" for first, stop in YOUNG]
    words = (
        f"RMSE in units of the last value's, by rows; coverage of 50 / 90 / 99 % in rows {HONEST} to {UNSCORED}.\n\n"
    )
    return words + beside(young_runs(ended), [*blocks, "coverage"], cells)


def slowest_table(ended: Grid) -> str:
    """The slowest `learn_one` with what was going on, and the mean cost of a row."""
    cases = [case for case, runs in ended.items() if "slowest" in runs[OUR]]

    def cells(case: Case) -> list[str]:
        run = ended[case][OUR]
        worst = run["slowest"][0]
        return [f"{worst['ms']:.1f}", f"{worst['row']:,}", f"{worst['gap']:,}", f"{run['us']['mean']:,.0f}"]

    words = (
        f"CPU milliseconds of the slowest `learn_one` from row {WARM} on, its row, rows missing before it that had to "
        "be filled; mean CPU microseconds of a row, learnt and forecast from.\n\n"
    )
    return words + beside(cases, ["ms", "row", "gap", "mean us"], cells)


# ---------------------------------------------------------------------- all models


def compared(grid: Grid, show: Callable[[Result], str], loss: Callable[[Result], float]) -> str:
    """Cases down, models across; the least loss among the runs that reached the end is bold."""
    models = present(grid.values())
    rows = []
    for half, cases in halves(grid).items():
        for case in cases:
            runs = grid[case]
            best = min((loss(run) for run in runs.values() if finished(run)), default=np.inf)
            rows.append([half, label(case), *(cell(runs.get(model), show, loss, best) for model in models)])
    return table(["half", "case", *models], rows)


def present(runs: Iterable[dict[str, Result]]) -> list[str]:
    """Models that were run, in the order of `MODELS`."""
    found = {model for by_model in runs for model in by_model}
    return [model for model in MODELS if model in found]


def every_fifth(grid: Grid) -> Grid:
    """Runs without scores at all origins have those at every fifth instead."""
    return {
        case: {
            model: run if "scores" in run or "every_fifth" not in run else run | {"scores": run["every_fifth"]}
            for model, run in runs.items()
        }
        for case, runs in grid.items()
    }


def coverage_loss(run: Result) -> float:
    """Largest deviation from the levels, in units of what is allowed."""
    judged = zip(run["scores"]["coverage"], LEVELS, COVERAGE_WITHIN, strict=True)
    return max(abs(share - level) / within for share, level, within in judged)


def score_tables(grid: Grid) -> list[str]:
    """Accuracy and calibration."""
    parts, grid = [], every_fifth(grid)
    for name, words, digits in SCORES:
        parts += [f"### {words}", compared(grid, *figure("scores", name, digits))]
    show = compared(grid, lambda run: shares(run["scores"]["coverage"]), coverage_loss)
    return [*parts, "### Coverage of the central 50 / 90 / 99 %, all models", show]


def cost_tables(grid: Grid) -> list[str]:
    """CPU time, and points that had to be replaced."""

    def spent(run: Result) -> str:
        return " / ".join(f"{run['us'][name]:,.0f}" for name in ("median", "p99", "mean") if name in run["us"])

    replaced = [
        [label(case), model, f"{run['replaced']:,}"]
        for case, runs in grid.items()
        for model, run in runs.items()
        if run.get("replaced")
    ]
    return [
        "### CPU microseconds of a row, learnt and forecast from: median / 99 % / mean",
        compared(every_fifth(grid), spent, lambda run: float(run["us"]["mean"])),
        "For models that are fitted now and then: mean of an origin, fits included.",
        "### Points not finite or beyond 1,000 deviations, replaced by the last value",
        table(["case", "model", "points"], replaced) if replaced else "None.",
    ]


# ---------------------------------------------------------------------- verdicts


def verdicts(grid: Grid, results: list[Result]) -> str:
    """PASS or MISS for each promise, by half, with the cases that miss it."""
    whole = planned(grid)
    if not any(OUR in runs for runs in whole.values()):
        return "No verdicts: momostream was not run on all rows of a feed."
    ended = {case: runs for case, runs in whole.items() if finished(runs.get(OUR))}
    run_in = {half_of(case[0]) for case, runs in whole.items() if OUR in runs}
    judged: Judged = {case: None if case in ended else "" for case in everything() if half_of(case[0]) in run_in}
    lines = [sentence("all cases to their ends", judged, 1.0)]
    by_score = {name: ratios(ended, name) for name in COMPARED}
    for name, limit, share in (
        ("rmse", 1.0, 0.9),
        ("rmse", 1.02, 1.0),
        ("crps", 0.95, 0.75),
        ("crps", 1.0, 1.0),
        ("mae", 1.01, 1.0),
    ):
        judged = {
            case: f"{value:.3f}x {rival}" if value > limit else None for case, (value, rival) in by_score[name].items()
        }
        lines.append(sentence(f"{COMPARED[name]} at most {limit:.2f} times the best rival's", judged, share))
    lines.append(covered(ended))
    lines += circuit_verdicts(ended)
    lines.append(untimed_verdict(ended))
    lines += young_verdicts(ended)
    lines += cost_verdicts(ended, results)
    return "\n".join(lines)


def everything() -> list[Case]:
    """All cases of the plan."""
    return [(feed, horizon, plan.rows) for feed, plan in FORECASTS.items() for horizon in plan.horizons]


def sentence(words: str, judged: Judged, share: float) -> str:
    """One promise, which a ``share`` of the cases has to keep.

    Examples
    --------
    >>> print(sentence("RMSE low", {("etth1", 6, 4000): None, ("etth2", 24, 4000): "1.1"}, 1.0))
    - MISS: RMSE low; choosing PASS (1 of 1), reporting MISS (0 of 1): etth2 24 1.1
    >>> print(sentence("RMSE low", {("etth1", 6, 4000): None}, 0.9))
    - PASS: RMSE low on at least 0.9 of the cases; choosing PASS (1 of 1), reporting not measured
    >>> print(sentence("RMSE low", {}, 1.0))
    - not measured: RMSE low
    """
    if share < 1.0:
        words += f" on at least {share:g} of the cases"
    if not judged:
        return f"- not measured: {words}"
    parts, passed = [], True
    for half, cases in halves(judged).items():
        kept = sum(judged[case] is None for case in cases)
        enough = kept >= share * len(cases)
        passed &= enough
        parts.append(
            f"{half} {'PASS' if enough else 'MISS'} ({kept} of {len(cases)})" if cases else f"{half} not measured"
        )
    misses = ", ".join(f"{label(case)} {miss}".strip() for case, miss in judged.items() if miss is not None)
    return f"- {'PASS' if passed else 'MISS'}: {words}; {', '.join(parts)}" + (f": {misses}" if misses else "")


def covered(ended: Grid) -> str:
    """Coverage over the whole feed."""
    judged: Judged = {}
    for case in young_runs(ended):
        found = ended[case][OUR]["young"]["whole"]
        off = [abs(share - level) > by for share, level, by in zip(found, LEVELS, COVERAGE_WITHIN, strict=True)]
        judged[case] = shares(found) if any(off) else None
    within = " / ".join(map(str, COVERAGE_WITHIN))
    return sentence(f"coverage of 50 / 90 / 99 % within {within} from row {HONEST} on", judged, 0.9)


def circuit_verdicts(ended: Grid) -> list[str]:
    """What circuits and curved lags are good for."""
    cases = {case: runs for case, runs in ended.items() if finished(runs.get(LINEAR))}
    lines = []
    for name, limit, share, words in (
        ("rmse", 0.98, 0.5, "RMSE with Gaussian processes at least 2 % below that without"),
        ("rmse", 1.005, 1.0, "RMSE with Gaussian processes never more than .5 % above that without"),
        ("crps", 1.005, 1.0, "CRPS with Gaussian processes never more than .5 % above that without"),
    ):
        judged: Judged = {}
        for case, runs in cases.items():
            value = ratio(name, runs[OUR], runs[LINEAR])
            judged[case] = f"{value:.3f}x" if value > limit else None
        lines.append(sentence(words, judged, share))
    return lines


def untimed_verdict(ended: Grid) -> str:
    """A season that was found beside one that was read off a clock."""
    judged: Judged = {}
    for case, runs in ended.items():
        if case[1] == 6 and finished(runs.get(UNTIMED)):
            value = ratio("rmse", runs[UNTIMED], runs[OUR])
            judged[case] = f"{value:.3f}x" if value > 1.02 else None
    return sentence("RMSE without timestamps at most 1.02 times that with them, six steps", judged, 1.0)


def young_verdicts(ended: Grid) -> list[str]:
    """Cold start."""
    errors: Judged = {}
    covered: Judged = {}
    for case in young_runs(ended):
        young = ended[case][OUR]["young"]
        worst = max((value for value in young["ratios"] if value is not None), default=0.0)
        errors[case] = f"{worst:.3f}x" if worst > BEHIND_LAST_VALUE else None
        share = young["coverage"][1]
        covered[case] = f"{share:.3f}" if abs(share - LEVELS[1]) > YOUNG_WITHIN else None
    rows = f"in rows {HONEST} to {UNSCORED}"
    return [
        sentence(f"RMSE at most {BEHIND_LAST_VALUE} times the last value's in each block from row 10 on", errors, 1.0),
        sentence(f"coverage of 90 % within {YOUNG_WITHIN} {rows}", covered, 1.0),
    ]


def cost_verdicts(ended: Grid, results: list[Result]) -> list[str]:
    """Pauses, and the mean cost beside that of the first run that was kept."""
    slow: Judged = {}
    for case, runs in ended.items():
        if "slowest" in runs[OUR]:
            worst = runs[OUR]["slowest"][0]
            slow[case] = f"{worst['ms']:.1f} ms at row {worst['row']:,}" if worst["ms"] > PAUSE_MS else None
    first: dict[Case, Result] = {}
    for run in results:
        if run["model"] == OUR and finished(run):
            first.setdefault((run["feed"], run["horizon"], run["rows"]), run)
    costlier: Judged = {}
    for case, runs in ended.items():
        if first[case] is not runs[OUR]:
            value = runs[OUR]["us"]["mean"] / first[case]["us"]["mean"]
            costlier[case] = f"{value:.2f}x" if value > 1.0 else None
    return [
        sentence(f"slowest learn_one at most {PAUSE_MS:.0f} ms of CPU from row {WARM} on", slow, 1.0),
        sentence("mean CPU of a row not above that of the first run kept", costlier, 1.0),
    ]
