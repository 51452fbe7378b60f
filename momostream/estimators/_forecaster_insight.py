"""The part of `MOMoGPForecaster` that shows what was learnt: weights of experts, and the model as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check, whole
from momostream.estimators._base import StreamingEstimator
from momostream.horizon.model import HorizonModel
from momostream.horizon.settings import HorizonSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ForecasterInsight"]

Array = NDArray[np.float64]


class ForecasterInsight(StreamingEstimator):
    """Weights of the experts now and on the way, and a description."""

    _model: HorizonModel | None
    _settings: HorizonSettings
    _history: deque[tuple[int, Array]]
    _n_rows: int

    @property
    def series(self) -> tuple[Hashable, ...]:
        """Names of the series seen so far."""
        raise NotImplementedError

    @property
    def weights(self) -> pd.DataFrame:
        """Weight of each expert in the blend of each series now, the mean over the steps."""
        with self._lock:
            return self._weight_frame(None if self._model is None else self._model.weights.mean(axis=1))

    def weights_at(self, step: int) -> pd.DataFrame:
        """Weight of each expert in the blend of each series for one step ahead, counted from 1."""
        check("step", step, whole(1, self._settings.horizon))
        with self._lock:
            return self._weight_frame(None if self._model is None else self._model.weights[:, step - 1])

    def _weight_frame(self, weights: Array | None) -> pd.DataFrame:
        import pandas as pd

        experts = () if self._model is None else self._model.expert_names
        index = pd.Index(experts, name="expert", dtype=object)
        columns = pd.Index(list(self.series), tupleize_cols=False)
        return pd.DataFrame(weights, index=index, columns=columns, dtype=np.float64)

    @property
    def weights_history(self) -> pd.DataFrame:
        """Weights after every 64th row, the mean over the steps: one line for each row, expert and series.

        The newest 1,000 of these rows are kept; a new series that changes the experts starts the history again.
        """
        import pandas as pd

        with self._lock:
            experts = () if self._model is None else self._model.expert_names
            lines = [
                (row, expert, name, weight)
                for row, weights in self._history
                for expert, line in zip(experts, weights.tolist(), strict=True)
                for name, weight in zip(self.series, line, strict=False)
            ]
        return pd.DataFrame(lines, columns=["row", "expert", "series", "weight"])

    def describe(self) -> str:
        """The model in a few lines: rows, series, season, experts with their weights, memory."""
        with self._lock:
            model = self._model
            if model is None:
                return f"{type(self).__name__}: no values yet"
            seasons = ", ".join(map(str, model.seasons)) or "none found"
            lines = [
                f"{type(self).__name__}: {self._n_rows} rows learnt; {len(self.series)} series, "
                f"{len(self.inputs)} inputs, {self._settings.horizon} steps ahead",
                f"  seasons in rows: {seasons}",
            ]
            weights = model.weights.mean(axis=(1, 2))
            lines += [f"  {name:>20s}  weight {w:.3f}" for name, w in zip(model.expert_names, weights, strict=True)]
            return "\n".join([*lines, f"  {model.nbytes / 1e6:.1f} MB"])
