"""momostream for people who live in pandas: frames in, frames out, times as an index with a zone.

Ten-minute means of a simulated turbine; the rival is made of pandas: exponentially weighted means, ``ewm``. Run it with
``python examples/with_pandas.py``.
"""

from __future__ import annotations

import pandas as pd

from momostream import MOMoGPForecaster, backtest
from momostream.datasets import WindTurbine

SERIES = ["wind_speed", "power", "generator_temperature"]


class ExponentialMean:
    """The last value of ``ewm(halflife=...).mean()`` for all steps, with the methods that `backtest` calls."""

    def __init__(self, halflife: float) -> None:
        self.halflife = halflife
        self.rows: list[dict[str, float]] = []

    def learn_one(self, y: dict[str, float], x: object = None) -> None:
        """Keep a row; those of long ago have no weight left."""
        self.rows = [*self.rows[-50:], y]

    def forecast(self, horizon: int, xs: object = None) -> list[dict[str, float]]:
        """The mean of now, for every step."""
        now = pd.DataFrame(self.rows).ewm(halflife=self.halflife).mean().iloc[-1]
        return [now.to_dict()] * horizon


def main() -> None:
    """Fit, update, forecast, ask, compare."""
    frame = WindTurbine(seed=3, rate=1 / 600).frame(900)[SERIES].tz_localize("Europe/Berlin")
    yesterday, today = frame[:-144], frame[-144:]

    model = MOMoGPForecaster(horizon="3h", seed=0).fit(yesterday)
    model.update(today)  # 144 rows at once; learn_one takes them one by one
    print("The next half hour; the zone that came in goes out\n")
    print(model.predict("30min").round(1))

    forecast = model.forecast("3h", with_dist=True)
    print("\nOne series as a frame, with an interval of 90 %\n")
    print(forecast["power"].to_frame(levels=[0.9]).tail(3).to_string(index=False, float_format="{:.1f}".format))
    print("\nProbability of less than 1,000 kW after three hours:", end=" ")
    print(f"{forecast.probability('power < 1000').iloc[-1]:.0%}, at any time until then:", end=" ")
    print(f"{forecast.probability('power < 1000', over='any'):.0%}")
    print(f"Energy of these three hours, expected: {forecast.mean['power'].sum() / 6:,.0f} kWh")

    print("\nSix steps ahead over the last rows: scores in units of the mean change from row to row (MASE)\n")
    ours = backtest(MOMoGPForecaster(horizon=6, seed=0), frame, start=600, step=6, progress=False)
    for halflife in (0.5, 3.0):
        theirs = backtest(ExponentialMean(halflife), frame, 6, start=600, step=6, progress=False)
        print(ours.compare(theirs, ("momostream", f"ewm, half-life {halflife:g}")).round(2).to_string(), "\n")


if __name__ == "__main__":
    main()
