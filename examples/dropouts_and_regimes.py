"""Forecast a feed with gaps: rows that never came, a sensor that falls silent, and one day three times the variance.

A simulated pump station reports flow, pressure and vibration every minute. Single rows are lost, and once half an hour
of them; the flow meter drops out for a hundred rows; later the water comes in stronger surges, a new regime, unlike any
past row. Intervals must widen while the meter is silent. Those of a second model, with ``conformal=True``, are shifted
so that their recent coverage would have been right. Run it with
``python examples/dropouts_and_regimes.py``; no files are written.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from momostream import MOMoGPForecaster, backtest

N_ROWS, HORIZON = 2200, 10
LOST, SILENT, SURGES = range(700, 730), range(1000, 1100), 1500
START, STEP = 400, 5
PHASES = {
    "all is well": range(START, SILENT.start),
    "flow meter silent": SILENT,
    "after the gap": range(SILENT.stop, SURGES),
    "surges, first rows": range(SURGES, SURGES + 100),
    "surges, later": range(SURGES + 100, N_ROWS),
}


def pump_station(n_rows: int, seed: int = 0) -> pd.DataFrame:
    """The true values, every minute."""
    rng = np.random.default_rng(seed)
    flow = surge = 0.0
    rows = []
    for t in range(n_rows):
        # Three times the variance.
        size = np.sqrt(3.0) if t >= SURGES else 1.0
        surge = 0.7 * surge + size * rng.normal()
        flow = 0.95 * flow + surge
        pressure = 30.0 - 0.4 * flow + 2.0 * np.sin(2 * np.pi * t / 60) + 0.3 * rng.normal()
        vibration = 1.0 + 0.002 * flow**2 + 0.1 * rng.gamma(2.0)
        rows.append({"flow": 50.0 + flow, "pressure": pressure, "vibration": vibration})
    return pd.DataFrame(rows, index=pd.date_range("2024-06-01", periods=n_rows, freq="1min"))


def as_reported(truth: pd.DataFrame, seed: int = 1) -> pd.DataFrame:
    """The rows and readings that arrive."""
    reported = truth.copy()
    reported.iloc[SILENT, reported.columns.get_loc("flow")] = np.nan
    is_lost = np.random.default_rng(seed).random(len(truth)) < 0.02
    is_lost[LOST] = True
    return reported[~is_lost]


def with_truth(forecasts: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """Forecasts beside what really happened, reported or not."""
    actual = truth.stack().rename("truth").rename_axis(["time", "series"])
    table = forecasts.join(actual, on=["time", "series"])
    table["inside"] = table["truth"].between(table["lower 0.9"], table["upper 0.9"]).astype(float)
    table["width"] = table["upper 0.9"] - table["lower 0.9"]
    minutes = (table["time"] - truth.index[0]) // pd.Timedelta("1min")
    table["phase"] = pd.cut(minutes, [r.start for r in PHASES.values()] + [N_ROWS], right=False, labels=list(PHASES))
    table["silent for"] = (table["origin"] - truth.index[SILENT.start]) // pd.Timedelta("1min") + 1
    return table


def main() -> None:
    """Two models on the same rows; coverage and width of their intervals."""
    truth = pump_station(N_ROWS)
    reported = as_reported(truth)
    print(f"{len(reported):,} of {N_ROWS:,} rows arrive; a forecast of {HORIZON} minutes every {STEP} rows\n")

    plain, conformal = (
        backtest(MOMoGPForecaster(HORIZON, conformal=is_moved, seed=0), reported, start=START, step=STEP)
        for is_moved in (False, True)
    )
    print(f"Scores of the values that arrived\n{plain}\n")

    print("Share of the true values inside the 90 % intervals, silent sensors included, and mean width for the flow")
    tables = {"plain": with_truth(plain.forecasts, truth), "conformal": with_truth(conformal.forecasts, truth)}
    columns = {}
    for name, table in tables.items():
        columns[f"inside, {name}"] = table.groupby("phase", observed=True)["inside"].mean().map("{:.0%}".format)
        flow = table[table["series"] == "flow"]
        columns[f"flow, {name}"] = flow.groupby("phase", observed=True)["inside"].mean().map("{:.0%}".format)
        columns[f"width, {name}"] = flow.groupby("phase", observed=True)["width"].mean().round(1)
    print(pd.DataFrame(columns).to_string())

    print("\nWidth of the interval of the flow in a minute, while the meter is silent")
    table = tables["conformal"]
    is_next = (table["series"] == "flow") & (table["step"] == 1)
    for _, line in table[is_next & table["silent for"].between(-10, len(SILENT) + 10)].iloc[::2].iterrows():
        rows = line["silent for"]
        when = f"silent for {rows:3d} rows" if 1 <= rows <= len(SILENT) else "reporting"
        print(f"  {line['origin']:%H:%M}  {when:>20}  {line['width']:6.1f}  {'=' * round(line['width'])}")


if __name__ == "__main__":
    main()
