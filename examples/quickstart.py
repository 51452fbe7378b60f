"""Forecast four sensors of a wind turbine ten seconds ahead, with honest joint uncertainty.

A small simulated turbine stands in for a data set: turbulent wind, a lidar that sees it coming, a rotor that follows
slowly, a controller that pitches the blades in strong wind. From eight readings now we predict power, rotor speed,
blade moment and tower acceleration of the next step, all together. Run it with ``python examples/quickstart.py``;
it saves figures into the folder given as its argument, by default ``momostream-quickstart`` in the current
directory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import multivariate_normal
from sklearn.linear_model import LinearRegression

from momostream.plotting import plot_circuit, plot_correlation, plot_lengthscales, plot_prediction
from momostream.sklearn import MOMoGPRegressor

INPUTS = ["lidar", "wind", "turbulence", "yaw", "density", "rotor", "pitch", "power"]
TARGETS = ["power", "rotor", "moment", "acceleration"]
UNITS = ["kW", "rpm", "kNm", "mg"]
N_TRAINING, N_HELD_OUT = 1000, 300


def autoregression(n_steps: int, memory: float, std: float, rng: np.random.Generator) -> np.ndarray:
    """A wandering series around zero with this standard deviation."""
    values = std * rng.normal(size=n_steps)
    for t in range(1, n_steps):
        values[t] = memory * values[t - 1] + np.sqrt(1 - memory**2) * values[t]
    return values


def simulate_turbine(n_steps: int, seed: int = 0) -> pd.DataFrame:
    """Readings of a turbine every ten seconds, one row per step."""
    rng = np.random.default_rng(seed)

    def noise(size: float) -> np.ndarray:
        return size * rng.normal(size=n_steps)

    turbulence = 0.1 * np.exp(autoregression(n_steps, 0.95, 0.4, rng))
    wind = 10.5 + autoregression(n_steps, 0.97, 2.0, rng)
    wind = np.maximum(wind * (1 + turbulence * autoregression(n_steps, 0.8, 1.0, rng)), 3.0)
    yaw = autoregression(n_steps, 0.95, 8.0, rng)  # degrees off the wind
    density = 1.225 + autoregression(n_steps, 0.98, 0.03, rng)

    rotor = np.clip(1.06 * wind, 6.9, 12.1)  # what the controller wants; inertia delays the rotor
    for t in range(1, n_steps):
        rotor[t] = 0.4 * rotor[t - 1] + 0.6 * rotor[t]
    facing = wind * np.cos(np.radians(yaw))
    pitch = 4.5 * np.sqrt(np.maximum(facing - 11.4, 0.0))  # blades turn away above rated wind
    power = 5000 * np.minimum(density / 1.225 * (facing / 11.4) ** 2 * rotor / 12.1, 1.0)
    thrust = density * facing**2 * np.exp(-0.11 * pitch)
    resonance = 1 + 2 * np.exp(-(((rotor - 9.6) / 0.6) ** 2))  # the tower sways most near 9.6 rpm

    return pd.DataFrame(
        {
            "lidar": np.append(wind[1:], wind[-1]) + noise(0.4),  # looks one step ahead, but not sharply
            "wind": wind + noise(0.3),
            "turbulence": turbulence,
            "yaw": yaw,
            "density": density,
            "rotor": rotor + noise(0.05),
            "pitch": pitch,
            "power": power * (1 + noise(0.01)),
            "moment": 55 * thrust * (1 + noise(0.03)),
            "acceleration": (1 + 0.25 * thrust * turbulence) * resonance * np.exp(noise(0.1)),
        }
    )


def rmse(prediction: np.ndarray | pd.DataFrame, truth: pd.DataFrame) -> np.ndarray:
    """Root mean squared error of each target."""
    return np.asarray(np.sqrt(np.mean((np.asarray(prediction) - truth.to_numpy()) ** 2, axis=0)))


def line(title: str, cells: Sequence[object]) -> str:
    """One line of a table."""
    return f"{title:<34}" + "".join(f"{cell:>14}" for cell in cells)


def table(rows: dict[str, np.ndarray], units: bool = True) -> str:
    """Lines of numbers under the names of the targets; NaN is a value that is known."""
    lines = [line("", TARGETS)] + ([line("", UNITS)] if units else [])
    for title, values in rows.items():
        lines.append(line(title, ["known" if np.isnan(value) else f"{value:.3g}" for value in values]))
    return "\n".join(lines)


def main() -> None:
    """Fit, score, look inside, condition, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-quickstart"), help="for figures")
    folder = parser.parse_args().folder

    readings = simulate_turbine(N_TRAINING + N_HELD_OUT + 1)
    X, Y, latest = readings[INPUTS].iloc[:-1], readings[TARGETS].iloc[1:], readings[TARGETS].iloc[:-1]
    X_new, Y_new, latest = X[N_TRAINING:], Y[N_TRAINING:], latest[N_TRAINING:]
    X, Y = X[:N_TRAINING], Y[:N_TRAINING]

    print(f"Fitting {len(X):,} rows, {len(INPUTS)} inputs, {len(TARGETS)} targets ...")
    started = time.perf_counter()
    # At most 500 rows per region, so that there are gates to look at. By default, so few rows would be one region.
    model = MOMoGPRegressor(max_points=500, random_state=0).fit(X, Y)
    print(f"done in {time.perf_counter() - started:.0f} s\n")

    # One joint distribution of the four targets for each of the later rows, none of which the model has seen.
    distribution = model.predict_distribution(X_new)
    linear = LinearRegression().fit(X, Y)
    straight = linear.predict(X_new)

    print(f"Root mean squared error on the {len(X_new)} rows that follow")
    errors = {"momostream": rmse(distribution.mean, Y_new), "linear regression": rmse(straight, Y_new)}
    print(table({**errors, "last value": rmse(latest, Y_new)}))

    print("\nShare of these rows inside the intervals")
    coverage = {}
    for level in (0.5, 0.9, 0.99):
        lower, upper = distribution.interval(level)
        coverage[f"{100 * level:.0f} % interval"] = np.mean((lower <= Y_new) & (Y_new <= upper), axis=0)
    print(table(coverage, units=False))

    print("\nNegative log density of all four targets together, mean per row (lower is better)")
    residual_covariance = np.cov((Y - linear.predict(X)).T)
    gaussian = multivariate_normal(cov=residual_covariance).logpdf(Y_new - straight)
    print(line("momostream", [f"{-distribution.log_pdf(Y_new).mean():.2f}"]))
    print(line("  as if targets were independent", [f"{-distribution.log_pdf_each(Y_new).sum(axis=1).mean():.2f}"]))
    print(line("linear regression, Gaussian", [f"{-gaussian.mean():.2f}"]))

    print("\nOnce the power of a row is known, its other targets are known better")
    given = distribution.condition({"power": Y_new["power"]})
    known = np.array([np.nan])
    rows = {
        "predicted deviation": distribution.std.mean(axis=0),
        "predicted deviation, given power": np.append(known, given.std.mean(axis=0)),
        "error": errors["momostream"],
        "error, given power": np.append(known, rmse(given.mean, Y_new[TARGETS[1:]])),
    }
    print(table(rows))

    print("\nThe circuit: weights of sums, cuts of gates, rows of regions")
    print(model.describe())
    print("\nWeights of the experts for each target")
    print(model.weights_.round(3).to_string())

    folder.mkdir(parents=True, exist_ok=True)
    seconds = pd.Index(np.arange(0, 1200, 10), name="seconds")
    figures = {
        "power.png": plot_prediction(distribution[:120], Y_new[:120], target="power", x=seconds),
        "correlation.png": plot_correlation(distribution, row=0),
        "circuit.png": plot_circuit(model),
        "lengthscales.png": plot_lengthscales(model),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name)
    print(f"\nFigures saved into {folder}: {', '.join(figures)}")


if __name__ == "__main__":
    main()
