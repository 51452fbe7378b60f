"""momostream with long format: one line for each series and time, under the names ``unique_id``, ``ds`` and ``y``.

The powers of three turbines in one weather. One model learns all series together, so that sums of them have a
distribution; the rival is river's ``SNARIMAX``, a model for each series. Run it with ``python
examples/with_long_format.py``.
"""

from __future__ import annotations

import pandas as pd
from river import linear_model, preprocessing, time_series

from momostream import MOMoGPForecaster, backtest
from momostream.datasets import WindFarm


def autoregression() -> time_series.SNARIMAX:
    """An autoregression on twelve values, learnt row by row."""
    scaled = preprocessing.StandardScaler() | linear_model.BayesianLinearRegression(smoothing=0.999)
    return time_series.SNARIMAX(12, 0, 0, regressor=preprocessing.TargetStandardScaler(scaled))


def main() -> None:
    """Fit, forecast each series and their sum, compare."""
    farm = WindFarm(3, seed=3, rate=1 / 600)
    wide = pd.DataFrame({key: farm[key].frame(900)["power"] for key in farm.keys})
    lines = wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")
    print("What comes in\n")
    print(lines.head(3).to_string(index=False))

    model = MOMoGPForecaster(horizon="3h", seed=0).fit(lines)
    forecast = model.forecast("3h", with_dist=True)
    print("\nWhat comes out: the end of it\n")
    print(forecast.to_frame(levels=[0.9]).tail(3).to_string(index=False, float_format="{:.1f}".format))
    sides = forecast.aggregate({"farm": list(forecast.series)}).interval(0.9)["farm"].iloc[-1]
    alone = forecast.interval(0.9).iloc[-1]
    print(f"\nThe whole farm in three hours: {sides['lower']:,.0f} to {sides['upper']:,.0f} kW nine times out of ten;")
    lower, upper = (alone.xs(side, level=1).sum() for side in ("lower", "upper"))
    print(f"the ends of the single intervals add up to {lower:,.0f} and {upper:,.0f}")

    print("\nSix steps ahead over the last rows: scores in units of the mean change from row to row (MASE)\n")
    where = {"start": 600, "step": 6, "progress": False}
    ours = backtest(MOMoGPForecaster(horizon=6, seed=0), lines, **where)
    table = pd.DataFrame({"momostream": ours.summary["MASE"]})
    for key, series in lines.groupby("unique_id"):
        theirs = backtest(autoregression(), series.set_index("ds")["y"], 6, **where)
        table.loc[key, "SNARIMAX"] = theirs.summary["MASE"].iloc[0]
    table.loc["all series", "SNARIMAX"] = table["SNARIMAX"].mean()
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
