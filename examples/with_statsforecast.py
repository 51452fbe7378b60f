"""momostream in StatsForecast: `momostream.nixtla.MOMoGP` among its models, in its ``cross_validation``.

The powers of three simulated turbines, ten-minute means in long format. Run it with ``python
examples/with_statsforecast.py``.
"""

from __future__ import annotations

import sys
import time

import pandas as pd

from momostream.datasets import WindFarm
from momostream.nixtla import MOMoGP

try:
    from statsforecast import StatsForecast
    from statsforecast.models import AutoARIMA, AutoETS, Naive
except ModuleNotFoundError as error:
    print(f'skipped: this example needs {error.name} (pip install "momostream[nixtla]")')
    sys.exit()

HORIZON, WINDOWS = 6, 8


def main() -> None:
    """Forecast with intervals, then cross-validate all models."""
    farm = WindFarm(3, seed=3, rate=1 / 600)
    wide = pd.DataFrame({key: farm[key].frame(900)["power"] for key in farm.keys})
    lines = wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")

    library = StatsForecast(models=[MOMoGP(seed=0), Naive()], freq="10min")
    print("The next hour of each turbine: the end of it\n")
    print(
        library.forecast(df=lines, h=HORIZON, level=[90]).groupby("unique_id").tail(1).round(0).to_string(index=False)
    )

    print(f"\nOne hour ahead, {WINDOWS} windows of three turbines: mean absolute error in kW, seconds of CPU")
    for model in (MOMoGP(seed=0), Naive(), AutoETS(), AutoARIMA()):
        began = time.process_time()
        found = StatsForecast(models=[model], freq="10min").cross_validation(
            df=lines, h=HORIZON, n_windows=WINDOWS, step_size=36, refit=False
        )
        error = (found["y"] - found[repr(model)]).abs().mean()
        print(f"{model!r:>12} {error:6.0f} {time.process_time() - began:6.1f}")


if __name__ == "__main__":
    main()
