"""Forecasts of statsforecast's automatic models, which `benchmarks.forecast` and `benchmarks.peers` score.

statsforecast asks for an older pandas than momostream has, so that it needs an environment of its own:

    python -m venv peers && peers/bin/python -m pip install statsforecast
    peers/bin/python -m benchmarks.tools.forecast_peers [feed ...] [--methods auto_arima ...] [--cap 600]

One model per series, refitted every 500 rows on at most the last 1,000; in between the parameters stay and the state
moves along with the rows. A season of more than 48 rows is too long for them: they then know none. Gaps are filled
forward. Forecasts are made at every fifth origin only, as far ahead as the longest horizon of the feed, and kept in
``results/.peers`` or ``--folder``. A method that has used ``--cap`` CPU seconds on a feed ends before its next fit, and
what it has is kept.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.data import FORECASTS, ROOT, forward_filled, series
from benchmarks.tools.forecast_scores import STRIDE, UNSCORED

Array = NDArray[np.float64]

FOLDER = ROOT / "benchmarks" / "results" / ".peers"
PEERS = ("auto_arima", "auto_ets", "auto_theta")
REFIT, HISTORY, LONGEST_SEASON = 500, 1000, 48


class Forecasts(NamedTuple):
    """Points of shape (n_origins, H, P) from the rows ``origins`` on, and the CPU seconds they took with all fits.

    ``deviation`` is that of the normal distribution whose central 90 % is the interval which the model gives.
    """

    origins: NDArray[np.int64]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]
    cpu_seconds: float


def keep(feed: str, method: str, found: Forecasts, folder: Path | None = None) -> None:
    """Write to the folder of the peers."""
    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{feed}-{method}.npz", **found._asdict())


def kept(feed: str, method: str, folder: Path | None = None) -> Forecasts | None:
    """The forecasts that were written, or None; deviations are NaN in files from before they were kept."""
    path = (folder or FOLDER) / f"{feed}-{method}.npz"
    if not path.is_file():
        return None
    with np.load(path) as file:
        mean = file["mean"]
        deviation = file["deviation"] if "deviation" in file else np.full_like(mean, np.nan)
        return Forecasts(file["origins"], mean, deviation, float(file["cpu_seconds"]))


def short(season: int | None) -> int | None:
    """A season that seasonal models which keep all of its phases can take; None for a longer one."""
    return season if season is not None and season <= LONGEST_SEASON else None


def new_model(method: str, season: int | None) -> Any:
    """An unfitted model of one series.  Seasonal ARIMA models are searched by approximation: else it takes minutes."""
    from statsforecast.models import AutoARIMA, AutoETS, AutoTheta  # type: ignore[import-not-found]

    length = short(season) or 1
    if method == "auto_arima":
        return AutoARIMA(season_length=length, approximation=length > 1)
    return {"auto_ets": AutoETS, "auto_theta": AutoTheta}[method](season_length=length)


def forecasts(Y: Array, method: str, season: int | None, horizon: int, cap: float) -> Forecasts:
    """Forecast the columns of ``Y``, complete rows, in blocks of `REFIT` rows until ``cap`` CPU seconds are used."""
    start, done, blocks = time.thread_time(), UNSCORED, []
    while done < len(Y) and time.thread_time() - start < cap:
        origins = np.arange(done, min(done + REFIT, len(Y)), STRIDE)
        blocks.append(np.stack([block(y, origins, new_model(method, season), horizon) for y in Y.T], axis=3))
        done += REFIT
    mean, deviation = np.concatenate(blocks, axis=1)
    return Forecasts(UNSCORED + STRIDE * np.arange(len(mean)), mean, deviation, time.thread_time() - start)


def block(y: Array, origins: NDArray[np.int64], model: Any, horizon: int) -> NDArray[np.float32]:
    """Means and deviations, (2, n_origins, H), of one series by a model fitted at the first origin."""
    first = max(origins[0] + 1 - HISTORY, 0)
    window = y[first : origins[0] + 1]
    # Centred, no series is positive, and all stay additive: a multiplicative one could meet a negative value later.
    level = window.mean()
    model.fit(window - level)
    found = np.empty((2, len(origins), horizon), dtype=np.float32)
    for number, origin in enumerate(origins):
        ahead = model.forward(y[first : origin + 1] - level, horizon, level=[90])
        found[0, number] = level + ahead["mean"]
        found[1, number] = (np.asarray(ahead["hi-90"]) - np.asarray(ahead["lo-90"])) / (2.0 * ndtri(0.95))
    return found


def main() -> None:
    """Make and keep the forecasts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feeds", nargs="*", help="by default all")
    parser.add_argument("--methods", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rows", type=int, help="at most so many rows; by default as many as each feed has")
    parser.add_argument("--horizon", type=int, help="by default the longest of each feed")
    parser.add_argument("--cap", type=float, default=600.0, help="CPU seconds of a method on a feed")
    parser.add_argument("--folder", type=Path, help="where the forecasts are kept")
    options = parser.parse_args()
    # Searches for a model step on ones that cannot be estimated, and say so.
    warnings.simplefilter("ignore")
    for feed in options.feeds or FORECASTS:
        plan = FORECASTS[feed]
        Y = forward_filled(series(feed, options.rows or plan.rows).Y)
        for method in options.methods:
            found = forecasts(Y, method, plan.season, options.horizon or max(plan.horizons), options.cap)
            keep(feed, method, found, options.folder)
            print(f"{feed}, {method}: rows to {found.origins[-1]}, {found.cpu_seconds:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
