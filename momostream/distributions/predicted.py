"""A prediction as plain arrays: means and interval ends of the steps and targets that a run asks for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.circular import NO_CIRCLES, Circles
from momostream.distributions.forecast import Forecast
from momostream.distributions.prediction import Prediction, intervals

__all__ = ["PredictedValues"]

Array = NDArray[np.float64]


class PredictedValues(NamedTuple):
    """A prediction as arrays of shape ``(n_steps, n_targets)``, NaN where a target has not been seen yet."""

    mean: Array
    lower: Array
    upper: Array
    # Times of the steps; None where they have none.
    times: NDArray[Any] | None
    prediction: Forecast | Prediction

    @classmethod
    def of(cls, prediction: Forecast | Prediction, targets: Sequence[Hashable], level: float) -> PredictedValues:
        """The predicted values of these targets, with central intervals of this level."""
        return cls.many([prediction], targets, level)[0]

    @classmethod
    def many(
        cls, predictions: Sequence[Forecast | Prediction], targets: Sequence[Hashable], level: float
    ) -> list[PredictedValues]:
        """`of` for many predictions; the ends of the intervals of predictions are found together."""
        ends = iter(intervals([prediction for prediction in predictions if isinstance(prediction, Prediction)], level))
        return [
            cls._of_forecast(prediction, targets, level)
            if isinstance(prediction, Forecast)
            else cls._of(prediction, targets, *next(ends))
            for prediction in predictions
        ]

    @classmethod
    def _of(cls, prediction: Prediction, targets: Sequence[Hashable], lower: Array, upper: Array) -> PredictedValues:
        if tuple(prediction.targets) == tuple(targets):
            # The common case.
            return cls(prediction._mean[np.newaxis], lower[np.newaxis], upper[np.newaxis], None, prediction)
        mean, lower, upper = _ordered(
            np.stack([prediction._mean, lower, upper])[:, np.newaxis], prediction.targets, targets
        )
        return cls(mean, lower, upper, None, prediction)

    @classmethod
    def _of_forecast(cls, prediction: Forecast, targets: Sequence[Hashable], level: float) -> PredictedValues:
        arrays = prediction.arrays
        values = np.stack([arrays.mean, *arrays.ends(level)])
        mean, lower, upper = _ordered(values, prediction.series, targets)
        return cls(mean, lower, upper, prediction.times, prediction)

    def circles(self, targets: Sequence[Hashable]) -> Circles:
        """Which of these targets are angles; prefer it to plain comparisons of values, means and ends."""
        if not isinstance(self.prediction, Forecast) or not self.prediction.circles:
            return NO_CIRCLES
        columns = {name: column for column, name in enumerate(self.prediction.series)}
        return self.prediction.circles.select([columns.get(name) for name in targets])

    def judge(self, Y: Array, targets: Sequence[Hashable]) -> tuple[Array, Array]:
        """Probability below, and log density, of each observed value."""
        prediction = self.prediction
        names = prediction.series if isinstance(prediction, Forecast) else prediction.targets
        Z = _ordered(Y[np.newaxis], targets, names)[0]
        if isinstance(prediction, Forecast):
            found = [prediction.arrays.cdf(Z), prediction.arrays.log_pdf(Z)]
        else:
            found = [prediction.each.cdf(Z), prediction.each.log_pdf_each(Z)]
        judged = np.where(np.isnan(Z), np.nan, np.stack(found))
        pit, log_density = _ordered(judged, names, targets)
        return pit, log_density


def _ordered(values: Array, names: Sequence[Hashable], wanted: Sequence[Hashable]) -> Array:
    """Columns, the last axis, under these names in the wanted order; NaN where there is none."""
    if tuple(names) == tuple(wanted):
        return values
    positions = {name: position for position, name in enumerate(names)}
    found = np.full((*values.shape[:-1], len(wanted)), np.nan)
    for j, name in enumerate(wanted):
        if name in positions:
            found[..., j] = values[..., positions[name]]
    return found
