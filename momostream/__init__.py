"""Online forecasts of multivariate sensor feeds with honest joint uncertainty.

The model is MOMoGP [1]_: a probabilistic circuit of sums, gates on inputs and splits of the targets over Gaussian
processes. `MOMoGPForecaster` and `MOMoGPRegressor` learn from a stream and follow the interfaces of river, and so does
`MOMoGPMonitor`, which watches a feed for faults;
`momostream.sklearn.MOMoGPRegressor` is the estimator for tables.

Importing the package is cheap: exported names are loaded at first use.

References
----------
.. [1] Yu et al., "Leveraging Probabilistic Circuits for Nonparametric Multi-Output Regression", UAI 2021.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import metrics as metrics
    from . import sklearn as sklearn
    from .batch.nodes import Circuit
    from .estimators.backtest import backtest
    from .estimators.forecaster import MOMoGPForecaster
    from .estimators.monitor import MOMoGPMonitor
    from .estimators.presets import PRESETS, STREAM_PRESETS
    from .estimators.regressor import MOMoGPRegressor
    from .storage.models import load

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "STREAM_PRESETS",
    "Circuit",
    "MOMoGPForecaster",
    "MOMoGPMonitor",
    "MOMoGPRegressor",
    "__version__",
    "backtest",
    "load",
]

_HOMES = {
    "PRESETS": "momostream.estimators.presets",
    "STREAM_PRESETS": "momostream.estimators.presets",
    "Circuit": "momostream.batch.nodes",
    "MOMoGPForecaster": "momostream.estimators.forecaster",
    "MOMoGPMonitor": "momostream.estimators.monitor",
    "MOMoGPRegressor": "momostream.estimators.regressor",
    "backtest": "momostream.estimators.backtest",
    "load": "momostream.storage.models",
}
# Not in __all__: a star import must not load scikit-learn.
_MODULES = ("metrics", "sklearn")


# object, not Any: type checkers then report a misspelt name.
def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
