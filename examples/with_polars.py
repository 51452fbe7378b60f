"""momostream for people who live in polars: its frames go in as they are, and forecasts go back into one.

Ten-minute means of a simulated turbine; the rival is made of polars: exponentially weighted means, ``ewm_mean``. Run it
with ``python examples/with_polars.py``.
"""

from __future__ import annotations

import sys

from momostream import MOMoGPForecaster, backtest
from momostream.datasets import WindTurbine

try:
    import polars as pl
except ModuleNotFoundError:
    print("skipped: this example needs polars (pip install polars)")
    sys.exit()

SERIES = ["wind_speed", "power", "generator_temperature"]


class ExponentialMean:
    """The last value of ``ewm_mean(half_life=...)`` for all steps, with the methods that `backtest` calls."""

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self.rows: list[dict[str, float]] = []

    def learn_one(self, y: dict[str, float], x: object = None) -> None:
        """Keep a row; those of long ago have no weight left."""
        self.rows = [*self.rows[-50:], y]

    def forecast(self, horizon: int, xs: object = None) -> list[dict[str, float]]:
        """The mean of now, for every step."""
        now = pl.DataFrame(self.rows).select(pl.all().ewm_mean(half_life=self.half_life).last())
        return now.to_dicts() * horizon


def main() -> None:
    """Fit, update, forecast, compare."""
    rows = WindTurbine(seed=3, rate=1 / 600).frame(900)[SERIES].reset_index()
    frame = pl.DataFrame({name: rows[name].to_numpy() for name in rows})

    # A frame of polars has no index, so that time= names the column of the times.
    model = MOMoGPForecaster(horizon="3h", time="time", seed=0).fit(frame[:-144])
    model.update(frame[-144:])
    forecast = model.forecast("3h", with_dist=True)
    found = forecast.to_frame(levels=[0.9])
    lines = pl.DataFrame({name: found[name].to_list() for name in found})
    print("Forecasts as a frame of polars: the last of power\n")
    print(lines.filter(pl.col("series") == "power").tail(3))

    print("\nSix steps ahead over the last rows: scores in units of the mean change from row to row (MASE)\n")
    ours = backtest(MOMoGPForecaster(horizon=6, time="time", seed=0), frame, start=600, step=6, progress=False)
    theirs = backtest(ExponentialMean(0.5), frame.drop("time"), 6, start=600, step=6, progress=False)
    print(f"momostream {ours.summary.loc['all series', 'MASE']:.3f}", end=", ")
    print(f"ewm_mean, half-life .5 rows {theirs.summary.loc['all series', 'MASE']:.3f}")


if __name__ == "__main__":
    main()
