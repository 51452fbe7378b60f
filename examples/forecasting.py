"""Forecast a wind turbine ten seconds ahead, again and again, while its readings come in.

A simulated turbine stands in for a feed: twice a second it reports wind, power, and how a blade bends at its root,
flapwise by the wind and edgewise by its own weight as it turns. The rotation can be foreseen, gusts cannot; and after
one turn, some thirteen rows, a blade is back where it was, so that there the last value is hard to beat. After each row
the model knows the joint distribution of the next twenty rows of all four. Run it with ``python
examples/forecasting.py``; it saves figures into the folder given as its argument, by default
``momostream-forecasting`` in the current directory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from momostream import MOMoGPForecaster
from momostream.datasets import WindTurbine
from momostream.distributions.forecast import Forecast

N_ROWS, HORIZON = 2000, 20
SERIES = ["wind_speed", "power", "flap_1", "edge_1"]
# Forecasts that are scored, one every ten seconds, once there is something to learn from.
ORIGINS = range(400, N_ROWS - HORIZON + 1, HORIZON)
LEVELS = (0.5, 0.9)


def scores_of(forecast: Forecast, came: pd.DataFrame, last: pd.Series) -> pd.DataFrame:
    """Scores of one forecast: a line for each step and series."""
    actual = came[list(forecast.series)].set_axis(forecast.index)
    columns = {
        "error": (forecast.mean - actual).abs(),
        "error of last value": (actual - last[list(forecast.series)]).abs(),
        "CRPS": forecast.crps(actual),
    }
    for level in LEVELS:
        sides = forecast.interval(level)
        lower, upper = sides.xs("lower", axis=1, level=1), sides.xs("upper", axis=1, level=1)
        columns[f"inside {level:.0%}"] = ((lower <= actual) & (actual <= upper)).astype(float)
    table = pd.concat({name: values.set_axis(forecast.steps).stack() for name, values in columns.items()}, axis=1)
    return table.rename_axis(["step", "series"])


def draw_weights(history: pd.DataFrame) -> Figure:
    """Weights of the experts over time, one panel for each series."""
    figure = Figure(figsize=(8.0, 7.0), layout="constrained", dpi=120)
    names = history["series"].unique()
    axes = figure.subplots(len(names), 1, sharex=True)
    for ax, name in zip(axes, names, strict=True):
        weights = history[history["series"] == name].pivot(index="row", columns="expert", values="weight")
        ax.stackplot(weights.index, weights.to_numpy().T, labels=weights.columns)
        ax.set(ylabel=name, ylim=(0.0, 1.0))
        ax.margins(x=0.0)
    axes[-1].set_xlabel("row")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def draw_errors(table: pd.DataFrame) -> Figure:
    """Error by step, in units of that of the last value."""
    figure = Figure(figsize=(6.0, 3.5), layout="constrained", dpi=120)
    ax = figure.subplots()
    means = table.groupby(level=["step", "series"]).mean()
    shares = (means["error"] / means["error of last value"]).unstack("series")
    for name in shares:
        ax.plot(shares.index, shares[name], marker="o", label=name)
    ax.axhline(1.0, color="black", lw=0.8)
    ax.set(xlabel="steps ahead", ylabel="error / error of the last value", ylim=(0.0, None), xticks=shares.index[::2])
    ax.legend()
    return figure


def main() -> None:
    """Learn row by row, forecast every ten seconds, score, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-forecasting"), help="for figures")
    folder = parser.parse_args().folder

    readings = WindTurbine(seed=0, rate=2).frame(N_ROWS)[SERIES]
    model = MOMoGPForecaster(HORIZON, time="time", seed=0)
    found = []
    print(f"Learning {N_ROWS:,} rows of {', '.join(SERIES)}; a forecast of {HORIZON} steps every {HORIZON} rows ...")
    started = time.perf_counter()
    for number, (moment, row) in enumerate(readings.iterrows()):
        if number in ORIGINS:
            forecast = model.forecast(HORIZON, with_dist=True)
            last, came = readings.iloc[number - 1], readings.iloc[number : number + HORIZON]
            found.append(scores_of(forecast, came, last))
        model.learn_one(row.to_dict(), {"time": moment})
    print(f"done in {time.perf_counter() - started:.0f} s, scores included\n")

    table = pd.concat(found)
    print(f"Means over {len(found)} forecasts and all their steps")
    print(table.groupby(level="series").mean().loc[SERIES].map("{:.3g}".format).to_string())
    print("\nThe same for power alone, by steps ahead")
    print(table.xs("power", level="series").groupby(level="step").mean().loc[[1, 5, 10, 20]].round(2).to_string())

    print("\nThe next ten seconds, mean and standard deviation")
    forecast = model.forecast(HORIZON, with_dist=True)
    print(forecast)
    highest = forecast.sample(2000, seed=0)[:, :, forecast.series.index("flap_1")].max(axis=1)
    low, high = np.quantile(highest, [0.05, 0.95])
    before = readings["flap_1"][-HORIZON:].max()
    print("\nSteps are forecast jointly, so questions about the whole stretch have answers:")
    print(f"  the highest flapwise moment will be between {low:,.0f} and {high:,.0f} kN m nine times out of ten")
    print(f"  higher than in the last ten seconds: {np.mean(highest > before):.0%}")

    print("\nWeights of the experts now, means over the steps")
    print(model.weights[SERIES].round(2).to_string())

    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "fan.png": forecast.plot(history=readings[-60:], levels=LEVELS),
        "weights.png": draw_weights(model.weights_history),
        "errors.png": draw_errors(table),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name)
    print(f"\nFigures saved into {folder}: {', '.join(figures)}")


if __name__ == "__main__":
    main()
