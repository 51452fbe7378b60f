"""Tables and verdicts of the stream benchmark, from the results that `benchmarks.stream` keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from benchmarks import data
from benchmarks.harness import mean_and_deviation, origin, table
from benchmarks.tools.stream_rivals import RIVALS
from benchmarks.tools.stream_scores import EARLY, LEVELS, SETTLED, UNSCORED

Result = dict[str, Any]
# By feed and model.
Grid = dict[tuple[str, str], Result]

MODELS = ("momostream", "yardstick", *RIVALS)

# Defaults are chosen on the first half of the feeds only; the second is looked at for the results. Beside the feeds
# that can be forecast, each half has feeds whose rows have no order.
CHOOSING = (*data.HALVES["choosing"], "etth1_lags", "powerplant", "kin40k")
REPORTING = (*data.HALVES["reporting"], "parkinsons", "scm20d")
HALVES = {"choosing": CHOOSING, "reporting": REPORTING}

# Columns of the short table.
SHORT = {
    "momostream": ("momostream",),
    "least squares on lags": ("rls_lags", "rls_lags_forgetting"),
    "LightGBM": ("lightgbm",),
    "KRLS-T, 100 rows": ("krls_t",),
    "GP on the last 100 rows": ("window_gp",),
    "best of river's five": ("bayesian_linear", "adaptive_tree", "isoup_tree", "adaptive_forest", "nearest"),
    "ridge": ("ridge",),
    "last value": ("last_value",),
}

# Targets of momostream for the first TARGET_ROWS rows.
TARGET_ROWS = 3000
LIMITS = {"windturbine": {"rmse": 0.052, "nlpd": -17.5}, "etth1_lags": {"rmse": 0.345, "nlpd": -1.0}}
SPEED, SPEED_ANYWHERE = {"windturbine": 3.0}, 2.0
COVERAGE_WITHIN = (0.02, 0.02, 0.01)
# Slowest call of learn_one after the first rows, in microseconds.
LONGEST_LEARN = 10_000.0


def newest(results: list[Result], **wanted: Any) -> Grid:
    """By feed and model the last result that has these values."""
    return {
        (result["feed"], result["model"]): result
        for result in results
        if all(result[name] == value for name, value in wanted.items())
    }


# ---------------------------------------------------------------------- tables


def compared(grid: Grid, show: Callable[[Result], str], loss: Callable[[Result], float]) -> str:
    """Feeds down, models across; the least loss among the runs that reached the end is bold."""
    models = [model for model in MODELS if any(model == found for _, found in grid)]
    rows = []
    for feed in dict.fromkeys(feed for feed, _ in grid):
        found = [grid.get((feed, model)) for model in models]
        best = min((loss(result) for result in found if finished(result)), default=np.inf)
        rows.append([feed, *(cell(result, show, loss, best) for result in found)])
    return table(["feed", *models], rows)


def finished(result: Result | None) -> TypeGuard[Result]:
    """Whether a run scored all of its rows."""
    return result is not None and "failed" not in result and not result["capped"]


def cell(result: Result | None, show: Callable[[Result], str], loss: Callable[[Result], float], best: float) -> str:
    """The cell of one run; one that did not reach the end is not compared."""
    if result is None:
        return ""
    if "failed" in result:
        return "failed"
    text = show(result) if "scores" in result else ""
    if result["capped"]:
        return f"{text} ({result['done']:,} rows)".strip()
    return f"**{text}**" if text and loss(result) == best else text


def figure(part: str, name: str, digits: int) -> tuple[Callable[[Result], str], Callable[[Result], float]]:
    """How a score is shown, and the score itself; the yardstick does not know all of them."""

    def loss(result: Result) -> float:
        return float(result[part].get(name, np.inf))

    return lambda result: f"{loss(result):.{digits}f}" if name in result[part] else "", loss


def coverage(result: Result) -> str:
    """Shares inside the central intervals."""
    return " / ".join(f"{share:.3f}" for share in result["scores"]["coverage"])


def plain(grid: Grid) -> str:
    """Plain coverage of the runs that know it."""
    known = {key: result for key, result in grid.items() if "plain" in result.get("scores", {})}
    show = lambda result: " / ".join(f"{share:.3f}" for share in result["scores"]["plain"])  # noqa: E731
    return compared(known, show, lambda _: -np.inf) if known else "Not recorded."


def coverage_loss(result: Result) -> float:
    """Largest deviation from the levels, in units of what is allowed."""
    shares = zip(result["scores"]["coverage"], LEVELS, COVERAGE_WITHIN, strict=True)
    return max(abs(share - level) / within for share, level, within in shares)


def report(results: list[Result]) -> str:
    """All tables as markdown."""
    kinds = ("feed", "model", "rows", "seed", "missing", "frozen")
    shown = {tuple(result[kind] for kind in kinds): result for result in results}
    parts = ["# Streams", origin("stream", list(shown.values())), verdicts(results)]
    grid = newest(results, rows=TARGET_ROWS, seed=0, missing=0.0, frozen=False)
    if grid:
        parts += ["## In short: RMSE / joint NLPD", short_table(grid)]
        parts += ["## momostream beside each rival", halves_table(grid)]
    for rows in sorted({result["rows"] for result in results}):
        parts.append(f"## First {rows:,} rows")
        grid = newest(results, rows=rows, seed=0, missing=0.0, frozen=False)
        if grid:
            parts += plain_tables(grid)
        frozen = newest(results, rows=rows, seed=0, missing=0.0, frozen=True)
        if frozen:
            parts += latency_tables(frozen, ", without garbage collection")
        for share in sorted({result["missing"] for result in results if result["rows"] == rows} - {0.0}):
            gaps = newest(results, rows=rows, seed=0, missing=share, frozen=False)
            for name, words, digits in (("rmse", "RMSE", 4), ("nlpd", "Joint NLPD", 3)):
                parts += [
                    f"### {words}, {share:.0%} of the targets missing",
                    compared(gaps, *figure("scores", name, digits)),
                ]
        parts += seed_tables([result for result in results if result["rows"] == rows])
    parts.append(
        "RMSE: mean over outputs. NLPD: joint over outputs, nats per row. Best of each row bold; runs that were cut at "
        "their CPU limit show the rows they did and are not compared. The yardstick is scored by its own numbers."
    )
    return "\n\n".join(parts)


def short_table(grid: Grid) -> str:
    """Error and density beside the rivals, those of river together by the best figure of any."""
    rows = {}
    for feed in dict.fromkeys(feed for feed, _ in grid):
        runs = {model: grid[feed, model]["scores"] for model in MODELS if finished(grid.get((feed, model)))}
        rows[feed] = [best_of(runs, models) for models in SHORT.values()]
    cut = [f"{model} on {feed}" for (feed, model), run in grid.items() if model in RIVALS and not finished(run)]
    words = f"\n\nNot counted, because cut at their CPU limit: {', '.join(cut)}." if cut else ""
    return side_by_side("feed", list(SHORT), rows) + words


def halves_table(grid: Grid) -> str:
    """For each rival and half of the feeds: share of feeds won, and geometric means of the ratios to its scores.

    A feed is won where momostream's RMSE is at most the rival's. Ratios are momostream's score over the rival's.
    """
    rows = []
    for model in MODELS[1:]:
        cells = []
        for feeds in HALVES.values():
            pairs = [
                (grid[feed, "momostream"]["scores"], grid[feed, model]["scores"])
                for feed in feeds
                if finished(grid.get((feed, "momostream"))) and finished(grid.get((feed, model)))
            ]
            cells += _beside(pairs)
        if any(cells):
            rows.append([model, *cells])
    header = [f"{words}, {half} half" for half in HALVES for words in ("feeds won", "RMSE ratio", "CRPS ratio")]
    names = "; ".join(f"{half} half: {', '.join(feeds)}" for half, feeds in HALVES.items())
    return (
        f"{table(['rival', *header], rows)}\n\n{names}. Ratios are geometric means; below 1 is better than the rival."
    )


def _beside(pairs: list[tuple[Result, Result]]) -> list[str]:
    """Feeds won and mean ratios of pairs of scores, empty where there are none.

    Examples
    --------
    >>> _beside([({"rmse": 1.0, "crps": 1.0}, {"rmse": 2.0, "crps": 1.0}), ({"rmse": 2.0}, {"rmse": 1.0})])
    ['1 of 2', '1.000', '1.000']
    >>> _beside([])
    ['', '', '']
    """
    if not pairs:
        return ["", "", ""]
    cells = [f"{sum(ours['rmse'] <= theirs['rmse'] for ours, theirs in pairs)} of {len(pairs)}"]
    for name in ("rmse", "crps"):
        # The yardstick does not know all scores.
        ratios = [np.log(ours[name] / theirs[name]) for ours, theirs in pairs if name in ours and name in theirs]
        cells.append(f"{np.exp(np.mean(ratios)):.3f}" if ratios else "")
    return cells


def best_of(runs: dict[str, Result], models: tuple[str, ...]) -> tuple[float, float]:
    """Least RMSE and least NLPD of any of these models, infinite where none was run.

    Examples
    --------
    >>> runs = {"a": {"rmse": 1.0, "nlpd": 3.0}, "b": {"rmse": 2.0, "nlpd": 2.0}}
    >>> best_of(runs, ("a", "b")), best_of(runs, ("c",))
    ((1.0, 2.0), (inf, inf))
    """
    found = [runs[model] for model in models if model in runs]
    rmse, nlpd = (min((run[name] for run in found), default=np.inf) for name in ("rmse", "nlpd"))
    return float(rmse), float(nlpd)


def side_by_side(corner: str, columns: list[str], rows: dict[str, list[tuple[float, float]]]) -> str:
    """Two figures in each cell; the least of each row is bold, infinite ones leave the cell empty.

    Examples
    --------
    >>> rows = {"a": [(0.1, 2.0), (0.2, -1.0)], "b": [(0.1, 2.0), (np.inf, np.inf)]}
    >>> print(side_by_side("feed", ["ours", "theirs"], rows))
    | feed | ours | theirs |
    | --- | --- | --- |
    | a | **0.100** / 2.00 | 0.200 / **-1.00** |
    | b | **0.100** / **2.00** |  |
    """
    lines = []
    for name, cells in rows.items():
        best = [min(side) for side in zip(*cells, strict=True)]
        line = [name]
        for pair in cells:
            texts = [f"{value:.{digits}f}" for value, digits in zip(pair, (3, 2), strict=True)]
            texts = [
                f"**{text}**" if value == least else text for text, value, least in zip(texts, pair, best, strict=True)
            ]
            line.append(" / ".join(texts) if np.isfinite(pair).all() else "")
        lines.append(line)
    return table([corner, *columns], lines)


def plain_tables(grid: Grid) -> list[str]:
    """Accuracy, calibration and cost."""
    parts = []
    for part, name, words, digits in (
        ("scores", "rmse", "RMSE", 4),
        ("scores", "mae", "MAE", 4),
        ("scores", "nlpd", "Joint NLPD", 3),
        ("scores", "crps", "CRPS", 4),
        ("early", "rmse", f"RMSE of the rows {EARLY} to {UNSCORED - 1}", 4),
        ("early", "nlpd", f"Joint NLPD of the rows {EARLY} to {UNSCORED - 1}", 3),
    ):
        parts += [f"### {words}", compared(grid, *figure(part, name, digits))]
    parts += ["### Coverage of the central 50 / 90 / 99 %", compared(grid, coverage, coverage_loss)]
    parts += ["### Plain coverage: of closed intervals, more than their level where targets stand still", plain(grid)]

    def speed(result: Result) -> str:
        ratio = speed_ratio(grid, result)
        return f"{result['rows_per_s']:,.0f}" + (f" ({ratio:.2f}x)" if ratio is not None else "")

    parts += [
        "### Rows per CPU second, in brackets over the yardstick of the same invocation",
        compared(grid, speed, lambda result: -float(result["rows_per_s"])),
        *latency_tables(grid, ""),
        "### Kilobytes held at the end",
        compared(
            grid,
            lambda result: f"{result['bytes'] / 1e3:,.0f}" if "bytes" in result else "",
            lambda result: float(result.get("bytes", np.inf)),
        ),
    ]
    return parts


def latency_tables(grid: Grid, words: str) -> list[str]:
    """CPU time of single calls."""
    parts = []
    for call in ("predict", "learn"):

        def show(result: Result, call: str = call) -> str:
            return " / ".join(f"{value:,.0f}" for value in result[f"{call}_us"].values())

        def loss(result: Result, call: str = call) -> float:
            return float(result[f"{call}_us"]["median"])

        title = f"### CPU microseconds of {call}, median / 99 % / 99.9 % / largest{words}"
        parts += [title, compared(grid, show, loss)]
    return parts


def seed_tables(results: list[Result]) -> list[str]:
    """Mean and deviation over the seeds of the last invocation that had several."""
    runs: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if finished(result) and not result["missing"] and not result["frozen"]:
            runs[result["feed"], result["model"]][result["date"]].append(result["scores"])
    rows = []
    for (feed, model), by_date in runs.items():
        several = [scores for scores in by_date.values() if len(scores) > 1]
        if several:
            cells = [
                mean_and_deviation([scores[name] for scores in several[-1]], digits)
                for name, digits in (("rmse", 4), ("nlpd", 3), ("crps", 4))
            ]
            rows.append([feed, model, str(len(several[-1])), *cells])
    return ["### Seeds", table(["feed", "model", "seeds", "RMSE", "joint NLPD", "CRPS"], rows)] if rows else []


def speed_ratio(grid: Grid, result: Result) -> float | None:
    """Speed over that of the yardstick; the machine's mood changes, so only within one invocation."""
    other = grid.get((result["feed"], "yardstick"))
    if not finished(other) or other["date"] != result["date"]:
        return None
    return float(result["rows_per_s"] / other["rows_per_s"])


# ---------------------------------------------------------------------- targets


def verdicts(results: list[Result]) -> str:
    """PASS or MISS for each promise, with the feeds that miss it."""
    grid = newest(results, rows=TARGET_ROWS, seed=0, missing=0.0, frozen=False)
    ran = {feed: result for (feed, model), result in grid.items() if model == "momostream"}
    if not ran:
        return f"No targets: momostream was not run on {TARGET_ROWS:,} rows."
    ours = {feed: result["scores"] for feed, result in ran.items() if finished(result)}
    lines = [verdict("every feed to its end", {feed: "" for feed in ran if feed not in ours}, len(ran))]
    lines += against_yardstick(grid, ours) + against_rivals(grid, ours)
    for feed, limits in LIMITS.items():
        if feed in ours:
            for name, limit in limits.items():
                miss = {feed: f"{ours[feed][name]:.4f}"} if ours[feed][name] > limit else {}
                lines.append(verdict(f"{feed}: {name.upper()} at most {limit}", miss, 1))
    for number, (level, within) in enumerate(zip(LEVELS, COVERAGE_WITHIN, strict=True)):
        shares = {feed: scores["coverage"][number] for feed, scores in ours.items()}
        misses = {feed: f"{share:.3f}" for feed, share in shares.items() if abs(share - level) > within}
        lines.append(verdict(f"coverage of {level:.0%} within {within}", misses, len(ours)))
    slowest = {feed: ran[feed]["slowest_us"] for feed in ours if "slowest_us" in ran[feed]}
    late = {feed: f"{time / 1e3:.1f} ms" for feed, time in slowest.items() if time > LONGEST_LEARN}
    words = f"slowest learn_one after {SETTLED} rows at most {LONGEST_LEARN / 1e3:g} ms"
    lines.append(verdict(words, late, len(slowest)))
    return "\n".join(lines)


def against_yardstick(grid: Grid, ours: dict[str, Result]) -> list[str]:
    """Error, density and speed beside the yardstick."""
    theirs = {feed: grid[feed, "yardstick"] for feed in ours if finished(grid.get((feed, "yardstick")))}
    ratio = {feed: ours[feed]["rmse"] / theirs[feed]["scores"]["rmse"] for feed in theirs}
    gain = {feed: theirs[feed]["scores"]["nlpd"] - ours[feed]["nlpd"] for feed in theirs}
    speed = {feed: speed_ratio(grid, grid[feed, "momostream"]) for feed in theirs}
    timed = {feed: times for feed, times in speed.items() if times is not None}
    lower = [feed for feed in ratio if ratio[feed] <= 0.97]
    few = {} if 2 * len(lower) >= len(ratio) else {"only": ", ".join(lower) or "none"}
    slow = {feed: f"{times:.2f}x" for feed, times in timed.items() if times < SPEED.get(feed, SPEED_ANYWHERE)}
    bounds = ", ".join(f"{times:g}x on {feed}" for feed, times in SPEED.items())
    return [
        verdict("RMSE at most the yardstick's", {f: f"{r:.3f}x" for f, r in ratio.items() if r > 1.0}, len(ratio)),
        verdict("NLPD at most the yardstick's", {f: f"{-g:+.3f}" for f, g in gain.items() if g < 0.0}, len(gain)),
        verdict("RMSE 3 % below the yardstick's on half of the feeds", few, len(ratio)),
        verdict(f"rows per second {SPEED_ANYWHERE:g}x the yardstick's, {bounds}", slow, len(timed)),
    ]


def against_rivals(grid: Grid, ours: dict[str, Result]) -> list[str]:
    """Error and density beside the best rival of each feed."""
    best: dict[str, dict[str, float]] = {}
    for feed in ours:
        theirs = [grid[feed, model]["scores"] for model in RIVALS if finished(grid.get((feed, model)))]
        if theirs:
            best[feed] = {name: min(scores[name] for scores in theirs) for name in ("rmse", "nlpd")}
    ratio = {feed: ours[feed]["rmse"] / best[feed]["rmse"] for feed in best}
    above = {feed: f"{times:.3f}x" for feed, times in ratio.items() if times > 1.0}
    denser = {feed: ours[feed]["nlpd"] - best[feed]["nlpd"] for feed in best}
    return [
        verdict("RMSE at most every rival's", above, len(ratio)),
        verdict("NLPD below every rival's", {f: f"{d:+.3f}" for f, d in denser.items() if d >= 0.0}, len(denser)),
    ]


def verdict(words: str, misses: dict[str, str], n_feeds: int) -> str:
    """One line.

    Examples
    --------
    >>> verdict("RMSE at most 1", {"etth1": "1.2"}, 3)
    '- MISS: RMSE at most 1 (feeds: 3): etth1 1.2'
    >>> verdict("RMSE at most 1", {}, 0)
    '- not measured: RMSE at most 1'
    """
    if n_feeds == 0:
        return f"- not measured: {words}"
    named = ", ".join(f"{feed} {value}".strip() for feed, value in misses.items())
    return f"- MISS: {words} (feeds: {n_feeds}): {named}" if misses else f"- PASS: {words} (feeds: {n_feeds})"
