"""Tables and figure of `benchmarks.peers`, from the results that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import origin, table
from benchmarks.tools.forecast_peers import PEERS, REFIT
from benchmarks.tools.forecast_scores import STRIDE
from benchmarks.tools.forecast_scores import UNSCORED as UNSCORED_ORIGINS
from benchmarks.tools.readme import marked
from benchmarks.tools.stream_scores import LEVELS, UNSCORED

Result = dict[str, Any]
# By feed and model.
Grid = dict[tuple[str, str], Result]

OURS = "momostream"
# Simple rules are not a library.
RULES = "no library"
MODELS = {
    "stream": (
        OURS,
        "last_value",
        "linear_sgd",
        "bayesian_linear",
        "nearest",
        "adaptive_tree",
        "adaptive_forest",
        "window_gp_100",
        "window_gp_300",
    ),
    "forecast": (OURS, "last_value", "seasonal_last", "snarimax", "holt_winters", *PEERS),
}
LIBRARIES = {
    OURS: "momostream",
    "last_value": RULES,
    "seasonal_last": RULES,
    "window_gp_100": "scikit-learn",
    "window_gp_300": "scikit-learn",
} | dict.fromkeys(PEERS, "statsforecast")
NAMES = {
    OURS: "momostream",
    "last_value": "last value",
    "seasonal_last": "last season",
    "linear_sgd": "linear regression, SGD",
    "bayesian_linear": "Bayesian linear regression",
    "nearest": "nearest neighbours",
    "adaptive_tree": "adaptive tree",
    "adaptive_forest": "adaptive random forest",
    "window_gp_100": "Gaussian process, 100 rows",
    "window_gp_300": "Gaussian process, 300 rows",
    "snarimax": "SNARIMAX",
    "holt_winters": "Holt-Winters",
    "auto_arima": "AutoARIMA",
    "auto_ets": "AutoETS",
    "auto_theta": "AutoTheta",
}
BY_FEED = (
    "Feed by feed, RMSE (columns in deviations) and CPU time per row, of each library the model with the least error:"
)
# Models that give a distribution by themselves.
WITH_DISTRIBUTION = {OURS, "bayesian_linear", "window_gp_100", "window_gp_300", *PEERS}
TITLES = {"stream": "Regression on a stream", "forecast": "Forecasts"}
COLOURS = {
    "momostream": "#d62728",
    "river": "#1f77b4",
    "scikit-learn": "#ff7f0e",
    "statsforecast": "#2ca02c",
    RULES: "#7f7f7f",
}
# Offsets and alignment of labels that would lie on others.
LABELS = {
    "adaptive_tree": ((0, -16), "center"),
    "adaptive_forest": ((0, -16), "center"),
    "window_gp_100": ((0, 9), "center"),
    "seasonal_last": ((7, -14), "left"),
}


def library(model: str) -> str:
    """The library of a model."""
    return LIBRARIES.get(model, "river")


def newest(results: list[Result], job: str) -> Grid:
    """The last result of each feed and model that did not fail."""
    return {
        (result["feed"], result["model"]): result
        for result in results
        if result["job"] == job and "failed" not in result
    }


def feeds_of(grid: Grid) -> list[str]:
    """Feeds in the order in which they were run."""
    return list(dict.fromkeys(feed for feed, _ in grid))


def models_of(grid: Grid, job: str) -> list[str]:
    """Models that were run, in the order of `MODELS`."""
    return [model for model in MODELS[job] if any(model == found for _, found in grid)]


# ---------------------------------------------------------------------- figures of one run


def error(result: Result) -> float:
    """RMSE."""
    return float(result["scores"]["rmse"])


def microseconds(result: Result) -> float:
    """CPU microseconds of a row with everything counted."""
    return float(result["us"]["mean"])


def covered(result: Result) -> float:
    """Share of the values within the central 90 %."""
    return float(result["scores"]["coverage"][LEVELS.index(0.9)])


# ---------------------------------------------------------------------- tables


def report(results: list[Result]) -> str:
    """All tables as markdown."""
    grids = {job: grid for job in MODELS if (grid := newest(results, job))}
    shown = [result for grid in grids.values() for result in grid.values()]
    peer = {result["statsforecast"] for result in shown if "statsforecast" in result}
    where = origin("peers", shown)
    if peer:
        where += f" statsforecast {' and '.join(sorted(peer))} in an environment of its own."
    parts = ["# momostream beside what people would use instead", where]
    parts += ["## In short: of each library the model with the least error", marked(brief(grids))]
    parts += ["## All models", summary(grids), note(results), "## Feed by feed", BY_FEED, by_library(grids)]
    for job, grid in grids.items():
        parts += [f"## {TITLES[job]}", about(job, grid), *tables(job, grid)]
    return "\n\n".join(parts)


def brief(grids: dict[str, Grid]) -> str:
    """One line for momostream and one for the best model of each library, in either job; README shows them."""
    header = ["job", "model", "RMSE", "CRPS", "covers 90 %", "CPU us per row", "kB"]
    lines = []
    for job, grid in grids.items():
        ratios = {model: mean_ratio(found) for model in models_of(grid, job) if (found := errors(grid, model))}
        # The last entry of a library stays: that of its least error.
        best = {library(model): model for model in sorted(ratios, key=lambda model: -ratios[model])}
        for source in [name for name in COLOURS if name in best and name != RULES]:
            name, _, error, _, *others = summary_line(grid, best[source])
            lines.append([job, name if source == OURS else f"{name} ({source})", error, *others])
    return table(header, lines)


def summary(grids: dict[str, Grid]) -> str:
    """One line for each model and job: quality and speed over the feeds, beside momostream."""
    header = ["job", "model", "library", "RMSE", "lower on", "CRPS", "covers 90 %", "CPU us per row", "kB"]
    lines = []
    for job, grid in grids.items():
        for model in models_of(grid, job):
            lines.append([job, *summary_line(grid, model)])
    return table(header, lines)


def by_library(grids: dict[str, Grid]) -> str:
    """One line for each feed: momostream, and of each library the model with the smallest error there."""
    names = list(COLOURS)
    lines = []
    for job, grid in grids.items():
        for feed in feeds_of(grid):
            runs = [run for (found, _), run in grid.items() if found == feed]
            best = [
                min((run for run in runs if library(run["model"]) == name), key=error, default=None) for name in names
            ]
            least = min(error(run) for run in best if run is not None)
            lines.append([job, feed, *(feed_cell(run, least) for run in best)])
    return table(["job", "feed", *names], lines)


def feed_cell(run: Result | None, least: float) -> str:
    """RMSE and CPU microseconds per row; empty if a library has no model for the job."""
    return "" if run is None else f"{bold(f'{error(run):.3f}', error(run) == least)}, {microseconds(run):,.0f} us"


def errors(grid: Grid, model: str) -> list[float]:
    """RMSE of a model relative to momostream's, feed by feed."""
    return [
        error(grid[feed, model]) / error(grid[feed, OURS])
        for feed in feeds_of(grid)
        if (feed, model) in grid and (feed, OURS) in grid
    ]


def summary_line(grid: Grid, model: str) -> list[str]:
    """Geometric means over the feeds of ratios to momostream and of costs; bold where a peer is ahead."""
    runs = {feed: grid[feed, model] for feed in feeds_of(grid) if (feed, model) in grid}
    pairs = [(run, grid[feed, OURS]) for feed, run in runs.items() if (feed, OURS) in grid]
    ratios = errors(grid, model)
    lower = sum(ratio < 1.0 for ratio in ratios)
    ranked = [run["scores"]["crps"] / ours["scores"]["crps"] for run, ours in pairs if model in WITH_DISTRIBUTION]
    faster = [microseconds(run) / microseconds(ours) for run, ours in pairs]
    held = [run["bytes"] / 1e3 for run in runs.values() if "bytes" in run]
    smaller = [run["bytes"] / ours["bytes"] for run, ours in pairs if "bytes" in run]
    return [
        f"**{NAMES[model]}**" if model == OURS else NAMES[model],
        library(model),
        mean_cell(ratios, ".2f", ratios),
        bold(f"{lower} of {len(pairs)}", lower > 0) if model != OURS else "",
        mean_cell(ranked, ".2f", ranked),
        f"{np.mean([covered(run) for run in runs.values()]):.2f}" if model in WITH_DISTRIBUTION else "",
        mean_cell([microseconds(run) for run in runs.values()], ",.0f", faster),
        mean_cell(held, ",.0f", smaller),
    ]


def mean_cell(values: list[float], digits: str, ratios: list[float]) -> str:
    """Geometric mean, bold if that of the ratios is below one; empty if there is no value.

    Examples
    --------
    >>> mean_cell([50.0, 200.0], ".0f", [0.5, 1.0]), mean_cell([2.0], ".1f", [2.0]), mean_cell([], ".0f", [])
    ('**100**', '2.0', '')
    """
    if not values:
        return ""
    return bold(format(mean_ratio(values), digits), bool(ratios) and mean_ratio(ratios) < 1.0)


def mean_ratio(values: list[float]) -> float:
    """Geometric mean.

    Examples
    --------
    >>> mean_ratio([0.5, 2.0])
    1.0
    """
    return float(np.exp(np.mean(np.log(values))))


def bold(text: str, is_better: bool) -> str:
    """The text, bold if something is better."""
    return f"**{text}**" if is_better else text


def tables(job: str, grid: Grid) -> list[str]:
    """By feed: errors, distributions, cost."""

    def score(name: str) -> Callable[[Result], float]:
        return lambda run: float(run["scores"][name]) if run["model"] in WITH_DISTRIBUTION else np.inf

    def distance(run: Result) -> float:
        return abs(covered(run) - 0.9) if run["model"] in WITH_DISTRIBUTION else np.inf

    def cost(run: Result) -> str:
        return " / ".join(f"{run['us'][name]:,.0f}" for name in ("median", "mean") if name in run["us"])

    density = "Joint NLPD, nats per row" if job == "stream" else "NLPD, nats per value"
    return [
        "### RMSE",
        by_feed(job, grid, lambda run: f"{error(run):.4f}", error),
        f"### {density}",
        by_feed(job, grid, lambda run: f"{run['scores']['nlpd']:.2f}", score("nlpd")),
        "### CRPS",
        by_feed(job, grid, lambda run: f"{run['scores']['crps']:.4f}", score("crps")),
        "### Coverage of the central 90 %",
        by_feed(job, grid, lambda run: f"{covered(run):.3f}", distance),
        "### CPU microseconds of a row: median / mean",
        by_feed(job, grid, cost, microseconds),
        "### Kilobytes held at the end",
        by_feed(job, grid, lambda run: f"{run['bytes'] / 1e3:,.0f}", lambda run: float(run.get("bytes", np.inf))),
    ]


def by_feed(job: str, grid: Grid, show: Callable[[Result], str], loss: Callable[[Result], float]) -> str:
    """Feeds down, models across; the least loss is bold, a run of infinite loss has nothing to show."""
    models = [
        model
        for model in models_of(grid, job)
        if any(found == model and np.isfinite(loss(run)) for (_, found), run in grid.items())
    ]
    rows = []
    for feed in feeds_of(grid):
        losses = {model: loss(grid[feed, model]) for model in models if (feed, model) in grid}
        best = min(losses.values(), default=np.inf)
        cells = {
            model: bold(show(grid[feed, model]), value == best) for model, value in losses.items() if np.isfinite(value)
        }
        rows.append([feed, *(cells.get(model, "") for model in models)])
    return table(["feed", *(NAMES[model] for model in models)], rows)


def note(results: list[Result]) -> str:
    """How to read the first table."""
    failed = {f"{result['model']} on {result['feed']}" for result in results if "failed" in result}
    text = (
        "RMSE and CRPS are relative to momostream's, geometric means over the feeds: above 1, momostream is better. "
        "CRPS and coverage belong to distributions that a model gives by itself; a cell is empty where a model gives "
        "none, or where memory was not measured. CPU time per row is the mean with all tuning, fits and "
        "growth, and kB what the model holds "
        "at the end, geometric means over the feeds. Bold: a peer is ahead of momostream, which has its defaults. The "
        "settings of the peers are in `benchmarks/tools`; river's models are one per target where they know only one."
    )
    return text + (f" Failed: {', '.join(sorted(failed))}." if failed else "")


def about(job: str, grid: Grid) -> str:
    """Which rows and models were run."""
    rows = " or ".join(f"{rows:,}" for rows in sorted({run["rows"] for run in grid.values()}))
    if job == "stream":
        return (
            f"The first {rows} rows in file order, predict then learn; the first {UNSCORED} rows are not scored. "
            "The best of each row is bold. `stream.md` turns points into distributions by their residuals. The "
            "Gaussian "
            "processes are fitted at each row, with a new kernel every 300. The Bayesian regression is as it comes: it "
            "neither learns the noise nor forgets. Turning a row into what river takes, some 5 us "
            "a call, is counted for its models, not for momostream."
        )
    horizons = {feed: run["horizon"] for (feed, _), run in grid.items()}
    steps = ", ".join(f"{feed} {horizon}" for feed, horizon in horizons.items())
    replaced = {
        f"{NAMES[model]} on {feed} {run['replaced']:,}" for (feed, model), run in grid.items() if run.get("replaced")
    }
    text = (
        f"The first {rows} rows, so many steps ahead: {steps}. Every {STRIDE}th origin from row {UNSCORED_ORIGINS} on "
        "is scored. All learn every row and forecast from it, but those of statsforecast, which are fitted every "
        f"{REFIT} rows, forecast from every {STRIDE}th only; their cost is all CPU time over all rows. Their "
        f"distributions "
        "are normal, with the width of the 90 % interval that they give. Seasons longer than 48 rows, as those of "
        "tetouan_power and turkey_wind_scada, are too long for all but the last season and momostream, which gets "
        "the time of each row. The best of each row is bold. `forecast.md` turns points into distributions by "
        "their residuals."
    )
    if replaced:
        text += f" Points beyond 1,000 deviations, replaced by the last value: {', '.join(sorted(replaced))}."
    return text


# ---------------------------------------------------------------------- figure


def draw(results: list[Result], path: Path) -> None:
    """Error relative to momostream against CPU time: a dot for each feed, a large one for the geometric mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    grids = {job: grid for job in MODELS if (grid := newest(results, job))}
    figure = Figure(figsize=(11.0, 5.0 * len(grids)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(grids), 1, squeeze=False)[:, 0]
    for ax, (job, grid) in zip(axes, grids.items(), strict=True):
        ax.axhline(1.0, color=COLOURS[OURS], linewidth=0.8, zorder=0)
        for model in models_of(grid, job):
            pairs = [
                (microseconds(run), error(run) / error(grid[feed, OURS]))
                for (feed, found), run in grid.items()
                if found == model and (feed, OURS) in grid
            ]
            if not pairs:
                continue
            times, ratios = (list(side) for side in zip(*pairs, strict=True))
            colour, centre = COLOURS[library(model)], (mean_ratio(times), mean_ratio(ratios))
            ax.scatter(times, ratios, s=14, color=colour, alpha=0.35, linewidths=0)
            ax.scatter(*centre, s=90, color=colour, edgecolors="white", zorder=3)
            offset, side = LABELS.get(model, ((7, 7), "left"))
            style = {"textcoords": "offset points", "ha": side, "fontsize": 9, "color": colour, "zorder": 4}
            ax.annotate(NAMES[model], centre, offset, **style)
        ax.set(xscale="log", yscale="log", title=f"{TITLES[job]}, {len(feeds_of(grid))} feeds")
        ax.set(xlabel="CPU microseconds per row, all fits counted", ylabel="RMSE / momostream's")
        low, high = ax.get_ylim()
        ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 30, 50) if low <= tick <= high]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.yaxis.set_minor_locator(NullLocator())
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    for name, colour in COLOURS.items():
        axes[0].scatter([], [], s=60, color=colour, label=name)
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
