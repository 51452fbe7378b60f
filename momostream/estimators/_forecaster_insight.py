"""The part of `MOMoGPForecaster` that shows what was learnt: weights of experts, reasons, and the model as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check, whole
from momostream.estimators._base import StreamingEstimator
from momostream.horizon.calendar import NUMBER, Calendar, Clock
from momostream.horizon.model import HorizonModel
from momostream.horizon.reasons import reasons_of, relevance_now
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
    _clock: Clock
    _calendar: Calendar | None
    _step: float | None

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
        with self._lock:
            check("step", step, whole(1, (self._settings if self._model is None else self._model.settings).horizon))
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

    @property
    def relevance(self) -> dict[Hashable, float]:
        """Share of each feature in distinguishing rows, in the leaves of the circuits that are used now; sums to one.

        Empty without circuits, and before they have two different rows. Each circuit counts by its weight, the mean
        over steps and series.
        """
        with self._lock:
            model = self._model
            if model is None or not model.n_rows:
                return {}
            found = relevance_now(model, model.weights.mean(axis=(1, 2)))
            return dict(zip(self._point_names(model), found.tolist(), strict=True)) if found.any() else {}

    def explain(self, step: int = 1, n_neighbours: int = 5) -> dict[str, Any]:
        """Reasons for the forecast of a step, counted from 1: experts, inputs and rows like the newest one.

        Returns
        -------
        dict
            ``"experts"``: weight and forecast of each expert, by series. ``"inputs"``: change of the forecast for one
            unit more of each input, by series, those of the calendar included. ``"relevance"``: share of each feature
            in distinguishing rows, in the leaves of the circuits that were used; empty without circuits.
            ``"neighbours"``: earlier rows that the circuits take to be most like the newest one, with how many rows ago
            they came, their time if there is one, similarity (0 to 1), and values. Forecasts and changes are on the
            scale of the model where a series has a transform.

        Examples
        --------
        >>> from momostream import MOMoGPForecaster
        >>> model = MOMoGPForecaster(horizon=2, experts=("last value", "own lags"), seed=0)
        >>> for t in range(60):
        ...     model.learn_one({"power": float(t % 2)}, {"valve": float(t % 2)})
        >>> reasons = model.explain(step=1)
        >>> sorted(reasons)
        ['experts', 'inputs', 'neighbours', 'relevance']
        >>> max(reasons["experts"], key=lambda name: reasons["experts"][name]["power"]["weight"])
        'own lags, light'
        """
        with self._lock:
            model = self._model
            if model is None:
                raise ValueError(f"this {type(self).__name__} has learnt no value yet: there is nothing to explain")
            check("step", step, whole(1, model.settings.horizon))
            check("n_neighbours", n_neighbours, whole(0))
            found = reasons_of(model, step, n_neighbours)
            names, wrap = self._point_names(model), self._circles.wrap
            located = wrap(found.located)
            values_at = slice(1, 1 + len(self.series))
            return {
                "experts": {
                    expert: {
                        name: {"weight": float(weight), "forecast": float(value)}
                        for name, weight, value in zip(self.series, weights, values, strict=True)
                    }
                    for expert, weights, values in zip(model.expert_names, found.weights, located, strict=True)
                },
                "inputs": {
                    name: dict(zip(self.series, slopes.tolist(), strict=True))
                    for name, slopes in zip(self._inputs.keys, found.slopes, strict=True)
                },
                "relevance": dict(zip(names, found.relevance.tolist(), strict=True)) if found.relevance.any() else {},
                "neighbours": [
                    {
                        **self._when(model.n_rows - 1 - number),
                        "similarity": similarity,
                        "y": dict(zip(self.series, wrap(self._map.backward(point[values_at])).tolist(), strict=True)),
                    }
                    for number, similarity, point in found.neighbours
                ],
            }

    def _point_names(self, model: HorizonModel) -> list[Hashable]:
        """Names of the coordinates that circuits see."""
        waves = [f"wave {k + 1} of the season" for k in range(model.n_terms)]
        terms = waves if self._calendar is None else self._calendar.names
        return model.features.point_names(self.series, list(self._inputs.keys), terms)

    def _when(self, rows_ago: int) -> dict[str, Any]:
        """How many rows ago a row came, and its time if the feed has times."""
        clock = self._clock
        if clock.step is None:
            return {"rows_ago": rows_ago}
        time = clock.last - rows_ago * clock.step
        return {"rows_ago": rows_ago, "time": time if clock.kind == NUMBER else np.datetime64(round(time), "us")}

    def describe(self) -> str:
        """The model in a few lines: rows, series, season, experts with their weights, memory."""
        with self._lock:
            model = self._model
            if model is None:
                return f"{type(self).__name__}: no values yet"
            seasons = ", ".join(map(str, model.seasons)) or "none found"
            lines = [
                f"{type(self).__name__}: {self._n_rows} rows learnt; {len(self.series)} series, "
                f"{len(self.inputs)} inputs, {model.settings.horizon} steps ahead",
                f"  seasons in rows: {seasons}",
            ]
            weights = model.weights.mean(axis=(1, 2))
            lines += [f"  {name:>20s}  weight {w:.3f}" for name, w in zip(model.expert_names, weights, strict=True)]
            return "\n".join([*lines, *self._describe_readings(), f"  {model.nbytes / 1e6:.1f} MB"])
