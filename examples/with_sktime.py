"""momostream in sktime: `momostream.sktime.MOMoGPForecaster` beside sktime's own forecasters, in its ``evaluate``.

Ten-minute means of a simulated turbine. sktime needs a pandas below 3.1, so that it often has an environment of its
own: ``pip install "momostream[sktime]"``. Run it with ``python examples/with_sktime.py``.
"""

from __future__ import annotations

import sys

from momostream.datasets import WindTurbine

try:
    from sktime.forecasting.compose import make_reduction
    from sktime.forecasting.model_evaluation import evaluate
    from sktime.forecasting.naive import NaiveForecaster
    from sktime.performance_metrics.forecasting import MeanAbsoluteError
    from sktime.performance_metrics.forecasting.probabilistic import PinballLoss
    from sktime.split import ExpandingWindowSplitter
except ModuleNotFoundError as error:
    print(f'skipped: this example needs {error.name} (pip install "momostream[sktime]")')
    sys.exit()

from sklearn.linear_model import Ridge

from momostream.sktime import MOMoGPForecaster

HORIZON = [1, 2, 3, 4, 5, 6]


def main() -> None:
    """Fit, update, predict; then sktime's own evaluation."""
    # Periods: with timestamps, the last value of sktime 1.2 is not the last one.
    frame = WindTurbine(seed=3, rate=1 / 600).frame(900)[["wind_speed", "power"]].to_period("10min")

    forecaster = MOMoGPForecaster(seed=0).fit(frame[:-6], fh=HORIZON)
    forecaster.update(frame[-6:])
    print("The next rows, and intervals of 90 % of power\n")
    print(forecaster.predict().round(1).tail(2), "\n")
    print(forecaster.predict_interval(coverage=0.9)["power"].round(1).tail(2), "\n")

    power = frame[["power"]]
    windows = ExpandingWindowSplitter(fh=HORIZON, initial_window=600, step_length=24)
    rivals = {
        "momostream": MOMoGPForecaster(seed=0),
        "last value": NaiveForecaster("last"),
        "ridge on 12 lags": make_reduction(Ridge(), window_length=12, strategy="direct"),
    }
    print(f"Power, one hour ahead, {windows.get_n_splits(power)} windows, fitted afresh for each")
    for name, model in rivals.items():
        scores = [MeanAbsoluteError()]
        if model.get_tag("capability:pred_int"):
            scores.append(PinballLoss(alpha=[0.05, 0.5, 0.95]))
        found = evaluate(model, windows, power, strategy="refit", scoring=scores, backend=None)
        means = found[[column for column in found if column.startswith("test_")]].mean()
        print(f"{name:>18}", ", ".join(f"{score.removeprefix('test_')} {value:.1f}" for score, value in means.items()))


if __name__ == "__main__":
    main()
