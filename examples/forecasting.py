"""Forecast a wind turbine two hours ahead, again and again, while its readings come in.

A small simulated turbine stands in for a feed: every ten minutes it reports wind, rotor speed, power and the motion of
its tower. Wind picks up in the afternoon and comes in gusts; power ends at what the machine is rated for. After each
row the model knows the joint law of the next twelve rows of all four. Run it with ``python examples/forecasting.py``;
figures are saved into the folder that is named behind it, by default ``momostream-forecasting`` in the current
directory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from momostream import MOMoGPForecaster
from momostream.forecast import Forecast

N_ROWS, HORIZON = 2016, 12
DAY = 144
# Forecasts that are scored, one every two hours, from the fourth day on.
ORIGINS = range(3 * DAY, N_ROWS - HORIZON + 1, HORIZON)
RATED = 5000.0
LEVELS = (0.5, 0.9)


def turbine(n_rows: int, seed: int = 0) -> pd.DataFrame:
    """Readings every ten minutes, under their times."""
    rng = np.random.default_rng(seed)
    times = pd.date_range("2024-03-01", periods=n_rows, freq="10min", name="time")
    weather, gust, rotor = 0.0, 0.0, 9.0
    rows = []
    for t in range(n_rows):
        weather = 0.99 * weather + 0.25 * rng.normal()
        gust = 0.6 * gust + 0.5 * rng.standard_t(5)
        afternoon = -2.0 * np.cos(2 * np.pi * (t - 18) / DAY)
        wind = max(8.5 + afternoon + weather + gust, 0.5)
        # Inertia: the rotor follows the wind with a delay.
        rotor += 0.7 * (np.clip(1.06 * wind, 4.0, 12.1) - rotor)
        power = float(np.clip(RATED * (wind / 11.4) ** 3 * rotor / 12.1, 0.0, RATED))
        sway = 0.02 * wind**2 * (1.0 + 2.0 * np.exp(-(((rotor - 9.6) / 0.6) ** 2))) * np.exp(0.15 * rng.normal())
        rows.append({"wind": wind + 0.1 * rng.normal(), "rotor": rotor, "power": power, "sway": sway})
    return pd.DataFrame(rows, index=times)


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
    ax.set(xlabel="steps ahead", ylabel="error / error of the last value", ylim=(0.0, None))
    ax.legend()
    return figure


def main() -> None:
    """Learn row by row, forecast every two hours, score, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-forecasting"), help="for figures")
    folder = parser.parse_args().folder

    readings = turbine(N_ROWS)
    names = list(readings.columns)
    model = MOMoGPForecaster(HORIZON, time="time", seed=0)
    found = []
    print(f"Learning {N_ROWS:,} rows of {', '.join(names)}; a forecast of {HORIZON} steps every {HORIZON} rows ...")
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
    print(table.groupby(level="series").mean().loc[names].map("{:.3g}".format).to_string())
    print("\nThe same for power alone, by steps ahead")
    print(table.xs("power", level="series").groupby(level="step").mean().iloc[[0, 2, 5, 11]].round(2).to_string())

    print("\nThe next two hours, mean and standard deviation")
    forecast = model.forecast(HORIZON, with_dist=True)
    print(forecast)
    paths = forecast.sample(2000, seed=0)
    power = paths[:, :, forecast.series.index("power")]
    print("\nSteps go together, so questions about the whole stretch have answers:")
    print(f"  energy of these two hours between {' and '.join(energy_text(power))} MWh nine times out of ten")
    print(f"  power below 1 MW at some time: {np.mean(power.min(axis=1) < 1000.0):.0%}")

    print("\nWho forecasts? Weights of the experts now, means over the steps")
    print(model.weights[names].round(2).to_string())

    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "fan.png": forecast.plot(history=readings[-DAY:], levels=LEVELS),
        "weights.png": draw_weights(model.weights_history),
        "errors.png": draw_errors(table),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name)
    print(f"\nFigures saved into {folder}: {', '.join(figures)}")


def energy_text(power: np.ndarray) -> list[str]:
    """Limits of the energy of paths of ten-minute powers in kW."""
    energy = power.sum(axis=1) / 6.0 / 1000.0
    return [f"{limit:.1f}" for limit in np.quantile(energy, [0.05, 0.95])]


if __name__ == "__main__":
    main()
