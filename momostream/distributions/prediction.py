"""`Prediction`: the distribution of one row of a feed, by the names of its targets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from momostream._numbers import as_number
from momostream.distributions.joint import Distribution
from momostream.distributions.stacked import EachTarget, StackedDistribution
from momostream.distributions.student import FloatArray
from momostream.distributions.text import counted, html_table, mean_and_std

__all__ = ["Prediction", "intervals"]

# Targets shown by repr.
_SHOWN = 12


class Prediction:
    """Joint predictive distribution of the targets of one row.

    Observed values come as a mapping from targets to numbers; a target that is left out, None or NaN is not observed.

    Parameters
    ----------
    targets : sequence
        Names of the targets.
    mean : array of shape (n_targets,)
        Their means.
    distribution : Distribution of one row, or callable that returns it
        A callable is called when more than the mean is asked for, and once. That may be long after the prediction
        was made: it must not read what learning changes.

    Examples
    --------
    >>> from momostream.distributions.joint import MixtureDistribution
    >>> from momostream.distributions.mixtures import StudentT
    >>> mean = np.array([8.0, 500.0])
    >>> distribution = StudentT(mean[np.newaxis], np.array([[1.0, 90.0], [90.0, 1e4]]), np.inf)
    >>> p = Prediction(("wind", "power"), mean, MixtureDistribution(distribution))
    >>> p
    Prediction: 2 targets, mean ± std
       wind  8 ± 1
      power  500 ± 100
    >>> p.mean["power"]
    500.0
    >>> {name: (round(low, 1), round(high, 1)) for name, (low, high) in p.interval(0.9).items()}
    {'wind': (6.4, 9.6), 'power': (335.5, 664.5)}
    >>> p.condition({"wind": 10.0})
    Prediction: 1 target, mean ± std
      power  680 ± 43.6
    >>> round(p.log_pdf({"wind": 10.0, "power": 700.0}), 2), round(p.log_pdf({"wind": 10.0}), 2)
    (-7.72, -2.92)
    >>> {name: round(score, 2) for name, score in p.crps({"wind": 10.0, "power": None}).items()}
    {'wind': 1.45}
    """

    def __init__(
        self, targets: Sequence[Hashable], mean: FloatArray, distribution: Distribution | Callable[[], Distribution]
    ) -> None:
        self.targets: tuple[Hashable, ...] = tuple(targets)
        if len(mean) != len(self.targets):
            raise ValueError(f"got {len(mean)} means for {len(self.targets)} targets")
        self._mean = mean
        self._distribution = distribution

    @property
    def distribution(self) -> Distribution:
        """The joint distribution as arrays, with one row."""
        distribution = self._distribution
        if isinstance(distribution, Distribution):
            return distribution
        distribution = distribution()
        if (distribution.n_rows, distribution.n_targets) != (1, len(self.targets)):
            raise ValueError(
                f"expected a distribution of one row and {len(self.targets)} targets, "
                f"got {distribution.n_rows} rows and {distribution.n_targets} targets"
            )
        self._distribution = distribution
        return distribution

    @cached_property
    def each(self) -> Distribution | EachTarget:
        """The distribution of each target on its own, as arrays with one row; the joint one if it is there already."""
        distribution = self._distribution
        return distribution.each if isinstance(distribution, StackedDistribution) else self.distribution

    @cached_property
    def mean(self) -> dict[Hashable, float]:
        """Means."""
        return self._named(self._mean)

    @cached_property
    def std(self) -> dict[Hashable, float]:
        """Standard deviations, noise included."""
        return self._named(self.each.std[0])

    @property
    def cov(self) -> FloatArray:
        """Covariance, noise included, of shape (n_targets, n_targets) in the order of `targets`."""
        return self.distribution.cov[0]

    def interval(self, level: float = 0.9) -> dict[Hashable, tuple[float, float]]:
        """Central intervals that hold each target with probability `level`."""
        lower, upper = self._ends(level)
        return dict(zip(self.targets, zip(lower.tolist(), upper.tolist(), strict=True), strict=True))

    def _ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of `interval`, in the order of `targets`."""
        distribution = self._distribution
        if isinstance(distribution, StackedDistribution):
            lower, upper = distribution.interval(level)
        else:
            lower, upper = (end[0] for end in self.each.interval(level))
        return lower, upper

    def quantile(self, q: float | Sequence[float] | FloatArray) -> dict[Hashable, Any]:
        """Quantiles of each target: a float, or an array for a sequence of probabilities."""
        values = self.distribution.quantile(q)
        if values.ndim == 2:
            return self._named(values[0])
        return dict(zip(self.targets, np.ascontiguousarray(values[:, 0].T), strict=True))

    def log_pdf(self, y: Mapping[Any, Any]) -> float:
        """Joint log density of the observed targets; 0 if there are none."""
        return float(self.distribution.log_pdf(self._row(y))[0])

    def log_pdf_each(self, y: Mapping[Any, Any]) -> dict[Hashable, float]:
        """Log density of each observed target on its own."""
        return self._each(self.each.log_pdf_each, y)

    def cdf(self, y: Mapping[Any, Any]) -> dict[Hashable, float]:
        """Probability of at most the observed value, for each observed target."""
        return self._each(self.each.cdf, y)

    def crps(self, y: Mapping[Any, Any]) -> dict[Hashable, float]:
        """Continuous ranked probability score of each observed target, in its units; the smaller the better."""
        return self._each(self.each.crps, y)

    def surprise(self, y: Mapping[Any, Any]) -> float:
        """Probability that a row is less strange than this one, jointly; near 1 is strange."""
        return float(self.distribution.surprise(self._row(y))[0])

    def sample(self, n: int = 1, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw `n` joint values: shape (n, n_targets), in the order of `targets`."""
        return self.distribution.sample(n, seed)[:, 0]

    def condition(self, known: Mapping[Any, Any]) -> Prediction:
        """Return the distribution of the other targets, given the observed ones."""
        row = self._row(known)
        rest = tuple(name for name, is_open in zip(self.targets, np.isnan(row[0]), strict=True) if is_open)
        if rest == self.targets:
            return self
        distribution = self.distribution.condition(row)
        return Prediction(rest, distribution.mean[0], distribution)

    def to_gaussian(self) -> Any:
        """Return river's `proba.MultivariateGaussian` with this mean and covariance.

        river sorts the targets, so that their names have to be comparable.
        """
        from river.proba import MultivariateGaussian

        cov = self.cov
        pairs = {
            (a, b): float(cov[i, j]) for i, a in enumerate(self.targets) for j, b in enumerate(self.targets) if i <= j
        }
        # As river's own regressors do it: one sample, no correction for the mean.
        return MultivariateGaussian._from_state(  # type: ignore[no-untyped-call]
            n=1, mean=self.mean, cov=pairs, ddof=0
        )

    def _row(self, y: Mapping[Any, Any]) -> FloatArray:
        unknown = [key for key in y if key not in self.mean]
        if unknown:
            raise ValueError(
                f"unknown targets {', '.join(map(repr, unknown))}; the targets are {', '.join(map(repr, self.targets))}"
            )
        return np.array([[as_number(name, y.get(name)) for name in self.targets]])

    def _each(self, score: Callable[[FloatArray], FloatArray], y: Mapping[Any, Any]) -> dict[Hashable, float]:
        row = self._row(y)
        scores = self._named(score(row)[0])
        return {name: scores[name] for name, missing in zip(self.targets, np.isnan(row[0]), strict=True) if not missing}

    def _named(self, values: FloatArray) -> dict[Hashable, float]:
        return dict(zip(self.targets, values.tolist(), strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        # The callable that computes the distribution may hold a whole model, or not pickle at all.
        return type(self), (self.targets, self._mean, self.distribution)

    @property
    def _title(self) -> str:
        return counted(len(self.targets), "target")

    def __repr__(self) -> str:
        """Means and standard deviations of the first targets."""
        names = [str(name) for name in self.targets[:_SHOWN]]
        width = max(map(len, names), default=0)
        cells = mean_and_std(self.mean.values(), self.std.values())
        lines = [f"  {name:>{width}}  {cell}" for name, cell in zip(names, cells, strict=False)]
        if len(self.targets) > _SHOWN:
            lines.append("  ...")
        return "\n".join([f"Prediction: {self._title}, mean ± std", *lines])

    def _repr_html_(self) -> str:
        """Table of means, standard deviations and intervals, for notebooks."""
        interval = self.interval(0.9)
        rows = [
            [name, *(f"{value:.4g}" for value in (self.mean[name], self.std[name], *interval[name]))]
            for name in self.targets
        ]
        return html_table([self._title, "mean", "std", "5 %", "95 %"], rows)


def intervals(predictions: Sequence[Prediction], level: float = 0.9) -> list[tuple[FloatArray, FloatArray]]:
    """Lower and upper ends of `Prediction.interval` for many predictions, each an array in the order of its targets.

    Twice as fast as one after the other, where predictions come straight from a stream.

    Examples
    --------
    >>> from momostream import MOMoGPRegressor
    >>> model = MOMoGPRegressor(seed=0)
    >>> for t in range(20):
    ...     model.learn_one({"x": t % 5}, {"y": 2.0 * (t % 5)})
    >>> predictions = [model.predict_one({"x": x}, with_dist=True) for x in range(5)]
    >>> [(low, high) for ((low,), (high,)) in intervals(predictions)] == [p.interval(0.9)["y"] for p in predictions]
    True
    """
    stacked = [p._distribution for p in predictions if isinstance(p._distribution, StackedDistribution)]
    together = iter(StackedDistribution.intervals(stacked, level))
    found = []
    for prediction in predictions:
        is_stacked = isinstance(prediction._distribution, StackedDistribution)
        lower, upper = next(together) if is_stacked else prediction._ends(level)
        found.append((lower, upper))
    return found
