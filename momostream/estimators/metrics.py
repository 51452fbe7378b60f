"""Scores of predictive distributions, as river metrics.

They score the result of ``predict_one(x, with_dist=True)``, a `momostream.distributions.prediction.Prediction`, or
river's ``proba.MultivariateGaussian``. Targets that were not observed (left out, None or NaN), or that the model did
not know yet, are not scored; nor is the empty prediction of a model before its first row. The elementary scores are
those of `momostream.distributions.scores`.

river's progressive validation cannot ask a model for its distribution. `WithDist` asks on its behalf::

    evaluate.progressive_val_score(feed, WithDist(model), NLPD() + CRPS() + Coverage(0.9))

Examples
--------
A loop, here with the distribution of the past rows as prediction:

>>> from random import Random
>>> from river import proba
>>> random = Random(0)
>>> distribution = proba.MultivariateGaussian()
>>> scores = NLPD() + CRPS() + Coverage(0.9)
>>> for _ in range(200):
...     wind = random.gauss(8.0, 1.0)
...     y = {"wind": wind, "power": random.gauss(60.0 * wind, 20.0)}
...     scores.update(y, distribution if distribution.n_samples > 2 else None)
...     distribution.update(y)
>>> scores
NLPD: 6.00
CRPS: 17.34
Coverage: 90.4%
>>> {target: round(score, 2) for target, score in scores[1].each.items()}
{'power': 34.12, 'wind': 0.55}
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from river import base, proba
from river.metrics.base import Metric, Metrics
from river.metrics.multioutput.base import MultiOutputRegressionMetric

from momostream._numbers import as_number
from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.mixtures import StudentT
from momostream.distributions.prediction import Prediction
from momostream.distributions.scores import energy_score, is_inside

__all__ = ["CRPS", "NLPD", "Coverage", "EnergyScore", "Width", "WithDist"]


class _DistributionMetric(MultiOutputRegressionMetric):
    """Running mean of a score of predictive distributions."""

    _fmt = ",.6f"

    def __init__(self) -> None:
        # Sums of scores and of weights, by target; scores of all targets together are under None. Sums and not
        # running means, in which one infinite score would turn into NaN.
        self._sums: dict[Hashable, tuple[float, float]] = {}

    @abstractmethod
    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        """Scores of observed values `y`, which are in the order of the distribution's targets."""

    def update(self, y_true: Mapping[Any, Any], y_pred: Any, w: float = 1.0) -> None:
        """Add a row: observed values, and the distribution that was predicted for them."""
        self._add(y_true, y_pred, w)

    def revert(self, y_true: Mapping[Any, Any], y_pred: Any, w: float = 1.0) -> None:
        """Remove a row."""
        self._add(y_true, y_pred, -w)

    def _add(self, y_true: Mapping[Any, Any], y_pred: Any, w: float) -> None:
        if not y_pred:
            return
        distribution = self._distribution(y_pred)
        numbers = {target: as_number(target, y_true.get(target)) for target in distribution.targets}
        observed = {target: number for target, number in numbers.items() if not math.isnan(number)}
        if not observed:
            return
        for target, score in self._scores(observed, distribution).items():
            total, weight = self._sums.get(target, (0.0, 0.0))
            if weight + w > 0.0:
                self._sums[target] = total + w * score, weight + w
            else:
                self._sums.pop(target, None)

    def _distribution(self, y_pred: Any) -> Prediction:
        if isinstance(y_pred, Prediction):
            return y_pred
        if not isinstance(y_pred, proba.MultivariateGaussian):
            name = type(self).__name__
            raise TypeError(
                f"{name} scores predictive distributions, got a {type(y_pred).__name__}: predict with with_dist=True, "
                f"or wrap the model as WithDist(model)"
            )
        means = y_pred.mu
        mean = np.array([*means.values()])
        distribution = StudentT(mean[np.newaxis], y_pred.var.to_numpy(), np.inf)
        return Prediction(tuple(means), mean, MixtureDistribution(distribution))

    def get(self) -> float:
        """Return the mean over rows, and over targets if they are scored one by one; 0 before the first row."""
        means = _means(self._sums)
        return sum(means.values()) / len(means) if means else 0.0

    def __add__(self, other: Metric) -> Metrics:
        if not isinstance(other, _DistributionMetric):
            raise ValueError(f"{type(self).__name__} and {type(other).__name__} metrics are not compatible")
        return Metrics([self, other])  # type: ignore[no-untyped-call]


class _TargetMetric(_DistributionMetric):
    """A score of one target at a time."""

    @property
    def each(self) -> dict[Hashable, float]:
        """Mean over rows for each target."""
        return _means(self._sums)


def _means(sums: dict[Hashable, tuple[float, float]]) -> dict[Hashable, float]:
    return {target: total / weight for target, (total, weight) in sums.items()}


class NLPD(_DistributionMetric):
    """Negative log predictive density, joint over the targets, in nats per row.

    Examples
    --------
    >>> from river import proba
    >>> distribution = proba.MultivariateGaussian()
    >>> for y in ({"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 0.0}, {"a": 2.0, "b": 2.0}):
    ...     distribution.update(y)
    >>> metric = NLPD()
    >>> metric.update({"a": 1.0, "b": 1.0}, distribution)
    >>> metric
    NLPD: 1.694036
    """

    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        return {None: -distribution.log_pdf(y)}


class CRPS(_TargetMetric):
    """Continuous ranked probability score: the mean over targets, each in its own units; `each` lists them."""

    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        return distribution.crps(y)


class EnergyScore(_DistributionMetric):
    """Energy score, the continuous ranked probability score of the joint distribution: E|Y - y| - E|Y - Y'| / 2.

    By Monte Carlo, without bias. Targets of large units dominate it.

    Parameters
    ----------
    n_samples
        Draws per row.
    seed
        Seed of the draws. The draws of a row depend only on the seed and on the observed values, so that a row can be
        removed again.
    """

    def __init__(self, n_samples: int = 100, seed: int = 0) -> None:
        if n_samples < 2:
            raise ValueError(f"n_samples must be at least 2, got {n_samples}")
        super().__init__()
        self.n_samples = n_samples
        self.seed = seed

    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        values = np.array([*y.values()])
        rng = np.random.default_rng([self.seed, *values.view(np.uint64).tolist()])
        draws = distribution.sample(self.n_samples, rng)[:, [target in y for target in distribution.targets]]
        return {None: energy_score(draws, values)}


class _IntervalMetric(_TargetMetric):
    def __init__(self, level: float = 0.9) -> None:
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie inside (0, 1), got {level}")
        super().__init__()
        self.level = level


class Coverage(_IntervalMetric):
    """Share of values inside central intervals: the mean over targets; `each` lists them.

    It should be `level`: of two of these metrics the one nearer to its level is better.

    Parameters
    ----------
    level
        Probability of the intervals.
    """

    _fmt = ".2%"

    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        interval = distribution.interval(self.level)
        return {target: float(is_inside(value, *interval[target])) for target, value in y.items()}

    @property
    def bigger_is_better(self) -> bool:
        """Up to the level."""
        return True

    def is_better_than(self, other: Coverage) -> bool:
        """Whether this one is nearer to its level."""
        return abs(self.get() - self.level) < abs(other.get() - other.level)


class Width(_IntervalMetric):
    """Width of central intervals: the mean over targets, each in its own units; `each` lists them.

    Among models that cover equally well the narrowest intervals are best.

    Parameters
    ----------
    level
        Probability of the intervals.
    """

    def _scores(self, y: dict[Hashable, float], distribution: Prediction) -> dict[Any, float]:
        interval = distribution.interval(self.level)
        return {target: interval[target][1] - interval[target][0] for target in y}


class WithDist(base.Wrapper[Any], base.MultiTargetRegressor):
    """A regressor that predicts distributions without ``with_dist=True``, for river's progressive validation.

    Parameters
    ----------
    model
        Regressor, or pipeline that ends with one, whose ``predict_one`` knows ``with_dist``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def _wrapped_model(self) -> Any:
        return self.model

    def learn_one(self, x: dict[Any, Any], y: dict[Any, Any], **kwargs: Any) -> None:
        """Learn a row."""
        self.model.learn_one(x, y, **kwargs)

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Return the predictive distribution of a row."""
        return self.model.predict_one(x, with_dist=True, **kwargs)
