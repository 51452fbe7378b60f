"""How momostream compares with what people would use instead, in quality and speed.

    python -m benchmarks.peers [feed ...] [--jobs stream forecast] [--models momostream nearest ...] [--quick]

Two jobs. In ``stream`` a row of targets is predicted from its inputs, then learnt, as in `benchmarks.stream`: river's
models, and scikit-learn's Gaussian process refitted at each row on the last 100 or 300. In ``forecast`` a row is
learnt, then the next rows are forecast, as in `benchmarks.forecast`: river's forecasters, and statsforecast's automatic
models refitted every 500 rows. These need an environment of their own (`benchmarks.tools.forecast_peers` says how);
the environment variable ``MOMOSTREAM_STATSFORECAST`` names its Python, and they are left out where it has none. The
data are found through ``MOMOSTREAM_DATA``. All columns come standardised, so that no peer needs a scaler.

Every run has a process of its own with one BLAS thread. CPU time counts prediction, learning and all fits, and nothing
that is done for the scores. Results are appended to ``results/peers.jsonl``; ``results/peers.md`` and
``results/peers.png`` show the newest of each kind. A full run takes about 15 minutes; ``--quick`` is a small run that
keeps nothing.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import forecast, stream
from benchmarks.data import FORECASTS, series
from benchmarks.data import stream as feed_of
from benchmarks.harness import RESULTS, bytes_held, carry_out, kept_results, options_unless_task
from benchmarks.tools import forecast_scores, stream_scores
from benchmarks.tools.forecast_peers import PEERS
from benchmarks.tools.forecast_rivals import RIVALS, Size
from benchmarks.tools.forecast_scores import STRIDE
from benchmarks.tools.peers_models import (
    FLOOR,
    REGRESSORS,
    Normals,
    Points,
    Regressor,
    statsforecast_version,
    statsforecasts,
)
from benchmarks.tools.peers_report import MODELS, OURS, draw, report

Array = NDArray[np.float64]
Result = dict[str, Any]

STREAM_ROWS, FORECAST_ROWS = 3000, 1600
STREAMS = (
    "windturbine",
    "etth1",
    "turkey_wind_scada",
    "gas_turbine",
    "tetouan_power",
    "kin40k",
    "skab_valve1",
    "powerplant",
)
# One of the horizons that each feed has in `benchmarks.forecast`.
HORIZONS = {
    "windturbine": 10,
    "etth1": 24,
    "turkey_wind_scada": 36,
    "tetouan_power": 144,
    "openfast_5mw_land_wturb": 20,
    "beijing_pm25_12sites": 6,
}
QUICK: dict[str, Any] = {
    "feeds": ["etth1"],
    "models": [OURS, "linear_sgd", "window_gp_100", "holt_winters"],
}
QUICK_ROWS = {"stream": 300, "forecast": 700}


# ---------------------------------------------------------------------- one run, in a process of its own


def measure(task: Result) -> Result:
    """Run one model over one feed."""
    return {**task, **(measure_stream(task) if task["job"] == "stream" else measure_forecast(task))}


def measure_stream(task: Result) -> Result:
    """Predict, then learn."""
    feed = feed_of(task["feed"], task["rows"])
    n_inputs, n_outputs = feed.X.shape[1], feed.Y.shape[1]
    model: stream.Model
    if task["model"] == OURS:
        model = stream.Momostream(n_outputs, seed=0)
    else:
        model = Regressor(REGRESSORS[task["model"]](n_inputs, n_outputs, 0))
    record, done = stream.run(model, feed, feed.Y)
    first = stream_scores.UNSCORED
    return {
        "scores": record.accuracy(first, done),
        "us": spent((record.predict_ns + record.learn_ns)[first:done]),
        "bytes": bytes_held(model),
    }


def measure_forecast(task: Result) -> Result:
    """Learn, then forecast; every fifth origin is scored."""
    feed = series(task["feed"], task["rows"])
    names, Y = feed.names, feed.Y
    horizon, first = task["horizon"], forecast_scores.UNSCORED
    if task["model"] in PEERS:
        made = statsforecasts(task["feed"], task["model"], task["rows"], horizon)
        record = forecast_scores.Record(Y, horizon)
        origins = record.origins(len(Y), STRIDE)
        for origin in origins:
            number = (origin - first) // STRIDE
            deviation = np.maximum(made.deviation[number].astype(float), FLOOR)
            record.score(int(origin), Normals(made.mean[number].astype(float), deviation))
        return {
            "scores": record.accuracy(origins),
            "us": {"mean": made.cpu_seconds / (len(Y) - first) * 1e6},
            "statsforecast": statsforecast_version(),
        }
    model: forecast.Model
    if task["model"] == OURS:
        model = forecast.Momostream(feed, horizon, 0)
    else:
        size = Size(horizon, len(names), FORECASTS[task["feed"]].season)
        model = Points(RIVALS[task["model"]](size), size)
    record, done = forecast.run(model, Y, horizon, stride=STRIDE)
    return {
        "scores": record.accuracy(record.origins(done, STRIDE)),
        "us": spent(record.ns[first:done]),
        "bytes": bytes_held(model.rival if isinstance(model, Points) else model),
        "replaced": model.replaced if isinstance(model, Points) else 0,
    }


def spent(nanoseconds: Array) -> dict[str, float]:
    """Median and mean CPU microseconds of a row.

    Examples
    --------
    >>> spent(np.array([1e3, 1e3, 4e3]))
    {'median': 1.0, 'mean': 2.0}
    """
    return {"median": float(np.median(nanoseconds)) / 1e3, "mean": float(nanoseconds.mean()) / 1e3}


# ---------------------------------------------------------------------- which runs


def tasks(options: argparse.Namespace) -> list[Result]:
    """All runs of an invocation, feed by feed, so that what is compared is measured one after the other."""
    rows = QUICK_ROWS if options.quick else {"stream": STREAM_ROWS, "forecast": FORECAST_ROWS}
    listed: list[Result] = []
    models = {job: [model for model in MODELS[job] if model in (options.models or MODELS[job])] for job in MODELS}
    if set(models["forecast"]) & set(PEERS) and statsforecast_version() is None:
        print("statsforecast is not installed where MOMOSTREAM_STATSFORECAST points: left out", file=sys.stderr)
        models["forecast"] = [model for model in models["forecast"] if model not in PEERS]
    if "stream" in options.jobs:
        listed += [
            {"job": "stream", "feed": feed, "rows": rows["stream"], "model": model}
            for feed in STREAMS
            if feed in (options.feeds or STREAMS)
            for model in models["stream"]
        ]
    if "forecast" in options.jobs:
        listed += [
            {"job": "forecast", "feed": feed, "horizon": horizon, "rows": rows["forecast"], "model": model}
            for feed, horizon in HORIZONS.items()
            if feed in (options.feeds or HORIZONS)
            for model in models["forecast"]
            if model != "seasonal_last" or FORECASTS[feed].season is not None
        ]
    return listed


def main() -> None:
    """Run what is asked for, print the tables, draw the figure."""
    known = list(dict.fromkeys([*STREAMS, *HORIZONS]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feeds", nargs="*", help="by default all")
    parser.add_argument("--jobs", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--models", nargs="+", choices=list(dict.fromkeys([*MODELS["stream"], *MODELS["forecast"]])))
    parser.add_argument("--quick", action="store_true", help="one feed, few rows, some models; nothing is kept")
    options = options_unless_task(parser, measure)
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args()
    unknown = set(options.feeds) - set(known)
    if unknown:
        parser.error(f"unknown feed {', '.join(sorted(unknown))}; the feeds are {', '.join(known)}")
    keep = not options.quick
    carry_out("peers", tasks(options), lambda task: f"{task['job']}, {task['feed']}, {task['model']}", report, keep)
    if keep:
        draw(kept_results(RESULTS / "peers.jsonl"), RESULTS / "peers.png")


if __name__ == "__main__":
    main()
