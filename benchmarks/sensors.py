"""Sensors: how much bad readings cost, and how far intervals reach beyond what a series has shown.

    python -m benchmarks.sensors [feed ...] [--models regressor forecaster] [--rows 1500] [--quick]

Feeds of `benchmarks.data` (found through ``MOMOSTREAM_DATA``) with a share of their readings spoiled: spikes of 10 to
1,000 deviations, runs of stuck values, codes such as -9999, runs in other units. The regressor sees spoiled inputs and
targets, the forecaster spoiled series; both are scored on clean targets, beside the same run without spoiled readings.
Results are appended to ``results/sensors.jsonl``; ``results/sensors.md`` is written from the newest result of each
feed. A full run takes about 10 minutes; ``--quick`` is a small run that keeps nothing.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import series, stream
from benchmarks.harness import carry_out, options_unless_task, origin, table

Array = NDArray[np.float64]

Flags = NDArray[np.bool_]

SHARES = (0.001, 0.01)
CODES = (-9999.0, 9999.0, -200.0, 999.0)
KINDS = ("spike", "stuck", "code", "units")
# Lengths of stuck runs and of runs in other units, and factors of other units.
RUN, UNITS = (5, 30), (1000.0, 0.001, 3.6, 100.0)
# Standardised feeds have lost their units: readings as if they had these.
LEVEL, DEVIATION = 50.0, 5.0
# Rows before the first score and before the first bad reading.
FIRST = 300
# Steps ahead, and origins: each so many rows.
HORIZON, EVERY = 3, 5
STREAMS = (
    "windturbine", "parkinsons", "etth1", "turkey_wind_scada", "openfast_5mw_land_wturb", "gas_turbine",
    "tetouan_power", "kin40k", "schunk_robot_arm", "beijing_pm25_12sites", "skab_valve1", "powerplant",
    "jena_weather", "etth2", "air_quality", "exchange_rate",
)  # fmt: skip
SERIES = (
    "etth1", "etth2", "turkey_wind_scada", "tetouan_power", "jena_weather", "air_quality", "exchange_rate",
    "skab_valve1",
)  # fmt: skip
# Accepted: losses at the two shares, interval ends beyond the range, and how far is beyond, in ranges.
MOST_LOSS, MOST_BEYOND, BEYOND = (0.01, 0.03), 0.01, 0.05


def spoiled(rows: Array, share: float, seed: int) -> Array:
    """Rows with about this share of their readings spoiled, a quarter by each kind, from row `FIRST` on.

    Rows are standardised: codes and other units are those of readings around `LEVEL` with a deviation of `DEVIATION`.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(3000, 4))
    >>> bad = spoiled(rows, 0.01, 0) != rows
    >>> bool(bad[:FIRST].any()), bool(0.005 < bad.mean() < 0.015)
    (False, True)
    """
    rng, found = np.random.default_rng(seed), rows.copy()
    deviation = np.nanstd(rows, axis=0)
    for kind in KINDS:
        n_left = round(share * rows[FIRST:].size / len(KINDS))
        while n_left > 0:
            at, column = rng.integers(FIRST, len(rows)), rng.integers(rows.shape[1])
            length = min(int(rng.integers(*RUN)) if kind in ("stuck", "units") else 1, n_left, len(rows) - at)
            part = found[at : at + length, column]
            if kind == "spike":
                part += rng.choice([-1.0, 1.0]) * deviation[column] * 10.0 ** rng.uniform(1.0, 3.0)
            elif kind == "stuck":
                part[:] = found[at - 1, column]
            elif kind == "code":
                part[:] = (rng.choice(CODES) - LEVEL) / DEVIATION
            else:
                part[:] = ((LEVEL + DEVIATION * part) * rng.choice(UNITS) - LEVEL) / DEVIATION
            n_left -= length
    found[np.isnan(rows)] = np.nan
    return found


def named(row: Array, letter: str) -> dict[str, float]:
    """A row as a dict."""
    return {f"{letter}{column}": value for column, value in enumerate(row.tolist())}


class Tally:
    """Squared errors, CRPS, hits and ends of intervals beyond the range, by prediction and target."""

    def __init__(self, first: Array) -> None:
        self.low, self.high = np.nanmin(first, axis=0), np.nanmax(first, axis=0)
        self.rows: list[Array] = []

    def show(self, y: Array) -> None:
        """Take a clean row into the range."""
        self.low, self.high = np.fmin(self.low, y), np.fmax(self.high, y)

    def score(self, y: Array, mean: Array, crps: Array, lower: Array, upper: Array) -> None:
        """Score a prediction of clean values, NaN where there is none."""
        room = BEYOND * (self.high - self.low)
        # A series that has shown one value has no range.
        beyond = 0.5 * (room > 0.0) * ((lower < self.low - room) + 1.0 * (upper > self.high + room))
        inside = (lower <= y) & (y <= upper)
        self.rows.append(np.array([(y - mean) ** 2, crps, inside, beyond, ~np.isnan(y)], dtype=float))

    def means(self, which: Flags | None = None) -> dict[str, float]:
        """Means over targets of the scores of these predictions; the RMSE of each target first."""
        rows = np.array(
            self.rows if which is None else [row for row, used in zip(self.rows, which, strict=True) if used]
        )
        known = rows[:, 4:] == 1.0
        n = np.maximum(known.sum(axis=0)[0], 1)
        squares, crps, inside, beyond = np.where(known, rows[:, :4], 0.0).sum(axis=0)
        return {
            "rmse": float(np.sqrt(squares / n).mean()), "crps": float((crps / n).mean()),
            "coverage": float(inside.sum() / n.sum()), "beyond": float(beyond.sum() / n.sum()),
        }  # fmt: skip


class Done(NamedTuple):
    """Scores of a run, whether the inputs of each scored row were clean, and readings set aside."""

    tally: Tally
    is_clean: Flags
    n_rejected: int


def run_regressor(name: str, rows: int, share: float, screen: bool) -> Done:
    """Predict each row, then learn it."""
    from momostream import MOMoGPRegressor

    X, Y = stream(name, rows)
    X_read, Y_read = spoiled(X, share, 1), spoiled(Y, share, 2)
    model, tally = MOMoGPRegressor(seed=0, screen=screen), Tally(Y[:FIRST])
    for t in range(len(Y)):
        x = named(X_read[t], "x")
        if t >= FIRST:
            joint = model.predict_one(x, with_dist=True)
            order = [joint.targets.index(f"y{column}") for column in range(Y.shape[1])]
            ends = np.array(list(joint.interval(0.9).values()))[order].T
            crps = joint.crps(named(np.where(np.isnan(Y[t]), 0.0, Y[t]), "y"))
            means = np.array([joint.mean[f"y{column}"] for column in range(Y.shape[1])])
            tally.score(Y[t], means, np.array([crps[f"y{column}"] for column in range(Y.shape[1])]), *ends)
        model.learn_one(x, named(Y_read[t], "y"))
        tally.show(Y[t])
    return Done(tally, (X_read == X).all(axis=1)[FIRST:], n_rejected(model))


def run_forecaster(name: str, rows: int, share: float, screen: bool) -> Done:
    """Learn each row, then forecast `HORIZON` steps from each `EVERY` rows."""
    from momostream import MOMoGPForecaster

    Y = series(name, rows).Y
    Y_read = spoiled(Y, share, 2)
    model, tally = MOMoGPForecaster(horizon=HORIZON, seed=0, screen=screen), Tally(Y[:FIRST])
    for t in range(len(Y) - HORIZON):
        model.learn_one(named(Y_read[t], "y"))
        tally.show(Y[t])
        if t >= FIRST and t % EVERY == 0:
            arrays, ahead = (found := model.forecast(HORIZON, with_dist=True)).arrays, Y[t + 1 : t + 1 + HORIZON]
            order = [list(found.series).index(f"y{column}") for column in range(Y.shape[1])]
            back = np.argsort(order)
            crps = arrays.crps(np.nan_to_num(ahead)[:, back])
            lower, upper = arrays.quantiles((0.05, 0.95))
            for step in range(HORIZON):
                parts = (arrays.mean, crps, lower, upper)
                tally.score(ahead[step], *(np.asarray(part)[step][order] for part in parts))
    return Done(tally, np.ones(len(tally.rows), dtype=bool), n_rejected(model))


def n_rejected(model: Any) -> int:
    """Readings that were set aside."""
    return sum(one["count"] for one in model.rejected_readings.values())


RUNS = {"regressor": run_regressor, "forecaster": run_forecaster}
FEEDS = {"regressor": STREAMS, "forecaster": SERIES}


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Losses of one feed against the run without spoiled readings on the same rows, with and without screening."""
    run = RUNS[task["model"]]
    clean = run(task["feed"], task["rows"], 0.0, True)
    blind = run(task["feed"], task["rows"], 0.0, False)
    found: dict[str, Any] = {**task, **clean.tally.means(), "rejected": clean.n_rejected, "losses": {}}
    found["clean loss"] = {kind: found[kind] / blind.tally.means()[kind] - 1.0 for kind in ("rmse", "crps")}
    for share in SHARES:
        for screen in (True, False):
            done = run(task["feed"], task["rows"], share, screen)
            which = done.is_clean
            reference, now = clean.tally.means(which), done.tally.means(which)
            found["losses"][f"{share} {screen}"] = {
                **{kind: now[kind] / reference[kind] - 1.0 for kind in ("rmse", "crps")},
                "coverage": now["coverage"], "rejected": done.n_rejected,
            }  # fmt: skip
    return found


NOTE = f"""Loss: RMSE and CRPS over those of the run without spoiled readings, on the same rows, against clean values.
Readings of inputs and targets are spoiled from row {FIRST} on, a quarter of them each by spikes of 10 to 1,000
deviations, runs of {RUN[0]} to {RUN[1] - 1} stuck readings, codes ({", ".join(f"{code:g}" for code in CODES)}) and
runs in other units. The regressor is scored on rows whose inputs were not spoiled, the forecaster at all origins.
"Without" is `screen=False`. Aim: at most 1 % at a share of .001, 3 % at .01. "Screening" is the loss of the run without
spoiled readings by screening itself. "Ends beyond" is the share of the ends of the central 90 % that lie more than 5 %
of the range beyond all that the series has shown, without `bounds`, where it has shown more than one value; aim: below
1 %."""


def report(results: list[dict[str, Any]]) -> str:
    """Two tables, what was missed, and what was done; of the newest result of each feed."""
    newest = {(one["model"], one["feed"]): one for one in results if "failed" not in one}
    places = [(model, feed) for model, feeds in FEEDS.items() for feed in feeds]
    results = [newest[place] for place in places if place in newest]
    parts = ["# Bad readings", origin("sensors", results)]
    for model in dict.fromkeys(one["model"] for one in results):
        header = ["feed", "rows", "screening: RMSE", "rejected"]
        header += [
            f"{share}: {kind}{how}" for share in SHARES for how in ("", ", without") for kind in ("RMSE", "CRPS")
        ]
        lines = []
        for one in (result for result in results if result["model"] == model):
            line = [one["feed"], f"{one['rows']:,}", f"{one['clean loss']['rmse']:+.1%}", str(one["rejected"])]
            for share in SHARES:
                for screen in (True, False):
                    loss = one["losses"][f"{share} {screen}"]
                    line += [f"{loss['rmse']:+.1%}", f"{loss['crps']:+.1%}"]
            lines.append([*line, f"{one['beyond']:.1%}", f"{one['coverage']:.3f}"])
        parts += [f"## {model.capitalize()}", table([*header, "ends beyond", "coverage of 90 %"], lines)]
        parts.append(missed([result for result in results if result["model"] == model]))
    return "\n\n".join([*parts, NOTE])


def missed(results: list[dict[str, Any]]) -> str:
    """How many feeds keep each aim."""
    texts = []
    for share, most in zip(SHARES, MOST_LOSS, strict=True):
        losses = [result["losses"][f"{share} True"] for result in results]
        n = sum(max(loss["rmse"], loss["crps"]) <= most for loss in losses)
        texts.append(f"at most {most:.0%} at a share of {share}: {n} of {len(losses)} feeds")
    n = sum(result["beyond"] < MOST_BEYOND for result in results)
    return f"Aims kept: {'; '.join(texts)}; ends beyond: {n} of {len(results)} feeds."


def main() -> None:
    """Run what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feeds", nargs="*", help="by default all")
    parser.add_argument("--models", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--quick", action="store_true", help="one feed of 400 rows for each model, nothing is kept")
    options = options_unless_task(parser, measure)
    unknown = set(options.feeds) - {*STREAMS, *SERIES}
    if unknown:
        parser.error(f"unknown feed {', '.join(sorted(unknown))}; the feeds are {', '.join(STREAMS)}")
    if options.quick:
        options.feeds, options.rows = ["skab_valve1"], 400
    tasks = [
        {"model": model, "feed": feed, "rows": options.rows}
        for model in options.models
        for feed in FEEDS[model]
        if not options.feeds or feed in options.feeds
    ]
    carry_out("sensors", tasks, lambda task: f"{task['model']}, {task['feed']}", report, keep=not options.quick)


if __name__ == "__main__":
    main()
