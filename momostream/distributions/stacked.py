"""The prediction of a stack of experts: a mixture per target, joined by a copula."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momostream.distributions import tabulated
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import Distribution
from momostream.distributions.limited import GIVES_WAY, AnyMarginals, UserUnits
from momostream.distributions.marginals import Marginals, finite_crps
from momostream.distributions.quantiles import in_order, interval_ends
from momostream.distributions.student import SMALLEST_TAIL

__all__ = ["EachTarget", "StackedDistribution", "Wrap", "joint_distribution"]

Array = NDArray[np.float64]

#: Turns marginals into those of the user's units.
Wrap = Callable[[Marginals], AnyMarginals]

# Limits of no target.
_NONE = np.empty((4, 0))


# Not frozen, which would take twice as long to make: there is one for each row.
@dataclass(slots=True)
class StackedDistribution:
    """The prediction of one row before its targets are joined, which a call does.

    Attributes
    ----------
    planes
        Shape ``(5, n_experts, n_targets)``, see `momostream.distributions.planes`.
    correlation, dof
        Of the copula.
    wrap
        Turns marginals into those of the user's units; None where they are the same.
    """

    planes: Array
    correlation: Array
    dof: float
    wrap: Wrap | None

    def __call__(self) -> Distribution:
        """The joint distribution."""
        return joint_distribution(self.planes[None], self.correlation, self.dof, self.wrap, None)

    @property
    def each(self) -> EachTarget:
        """The targets, each on its own."""
        marginals = Marginals.from_planes(self.planes[:, np.newaxis])
        return EachTarget(marginals if self.wrap is None else self.wrap(marginals))

    def interval(self, level: float) -> Array:
        """Lower and upper ends of central intervals, shape (2, n_targets): as those of `each`, in one compiled call."""
        tails, limits = _tails_of(level), self._limits
        if limits is not None:
            ends = tabulated.interval(*tails, self.planes, limits, GIVES_WAY)
            if ends is not None:
                return in_order(ends)
        return self.each.interval(level)[:, 0]

    @property
    def _limits(self) -> Array | None:
        """Limits for compiled code, of no target where there are none; None if it cannot find intervals."""
        if self.planes.shape[1] < 2:
            return None
        if self.wrap is None:
            return _NONE
        return self.wrap.limits if isinstance(self.wrap, UserUnits) and self.wrap.targets is None else None

    @staticmethod
    def intervals(distributions: Sequence[StackedDistribution], level: float) -> list[Array]:
        """`interval` of each distribution, found together: that takes half of the time."""
        tails = _tails_of(level)
        together: dict[tuple[tuple[int, ...], ...], list[tuple[int, Array, Array]]] = {}
        for n, distribution in enumerate(distributions):
            planes, limits = distribution.planes, distribution._limits
            if limits is not None:
                together.setdefault((planes.shape, limits.shape), []).append((n, planes, limits))
        found: list[Array | None] = [None] * len(distributions)
        for group in together.values():
            numbers, each_planes, each_limits = zip(*group, strict=True)
            planes, limits = np.stack(each_planes), np.stack(each_limits)
            ends = tabulated.intervals(*tails, planes, limits, GIVES_WAY)
            if ends is not None:
                for n, ends_of_one in zip(numbers, in_order(ends, axis=1), strict=True):
                    found[n] = ends_of_one
        return [
            distribution.interval(level) if ends is None else ends
            for distribution, ends in zip(distributions, found, strict=True)
        ]


def _tails_of(level: float) -> tuple[float, float]:
    """Probabilities below and above the central interval of this level."""
    lower, upper = interval_ends(level)
    return max(lower, SMALLEST_TAIL), max(1.0 - upper, SMALLEST_TAIL)


class EachTarget:
    """The targets of rows, each on its own: the part of `Distribution` that needs no copula, at a fraction of its cost.

    Parameters
    ----------
    marginals : Marginals, BoundedMarginals or LimitedMarginals
        The distributions.

    Examples
    --------
    >>> each = EachTarget(Marginals([[[0.5], [0.5]]], [[[0.0], [4.0]]], [[[1.0]]], np.inf))
    >>> lower, upper = each.interval(0.9)
    >>> each.cdf(upper).round(6), each.std.round(3)
    (array([[0.95]]), array([[2.236]]))
    """

    def __init__(self, marginals: AnyMarginals) -> None:
        self._marginals = marginals

    @property
    def std(self) -> Array:
        """Standard deviations, shape (n_rows, n_targets); as `Distribution.std`."""
        return np.sqrt(self._marginals.variance)

    def interval(self, level: float) -> Array:
        """Lower and upper ends of central intervals, shape (2, n_rows, n_targets)."""
        return in_order(self.levels(interval_ends(level)))

    def levels(self, q: Sequence[float]) -> Array:
        """Quantiles of these probabilities: shape (n_levels, n_rows, n_targets)."""
        shape = (len(q), self._marginals.n_rows, self._marginals.n_targets)
        p, upper = np.empty(shape), np.empty(shape, dtype=np.bool_)
        for i, level in enumerate(q):
            upper[i] = level > 0.5
            p[i] = 1.0 - level if level > 0.5 else level
        return self._marginals.tail_quantile(p, upper)

    def log_pdf_each(self, Y: Array) -> Array:
        """Log density of each value of `Y` (n_rows, n_targets); 0 where it is NaN."""
        return self._marginals.log_pdf(Y)

    def cdf(self, Y: Array) -> Array:
        """Probability of at most `Y` (n_rows, n_targets)."""
        return self._marginals.cdf(Y)

    def crps(self, Y: Array) -> Array:
        """Continuous ranked probability score of `Y` (n_rows, n_targets)."""
        return finite_crps(self._marginals.crps, Y)


def joint_distribution(
    plane_rows: Array, correlation: Array, dof: float, wrap: Wrap | None, names: tuple[Hashable, ...] | None
) -> Distribution:
    """The distribution of rows from their planes, shape ``(n_rows, 5, n_experts, n_targets)``."""
    marginals = Marginals.from_planes(plane_rows.swapaxes(0, 1))
    return CopulaDistribution(marginals if wrap is None else wrap(marginals), correlation, dof, names)
