"""The distribution that a stack of experts writes down for a row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.joint import CopulaDistribution, Distribution
from momostream.distributions.marginals import Marginals

__all__ = ["StackedDistribution", "Wrap", "joint_distribution"]

Array = NDArray[np.float64]

#: Turns marginals into those of the user's units.
Wrap = Callable[[Marginals], Any]


@dataclass(frozen=True, slots=True)
class StackedDistribution:
    """The planes ``(5, n_experts, n_targets)`` that the stack wrote down for a row; calling it joins the targets."""

    planes: Array
    correlation: Array
    dof: float
    wrap: Wrap | None

    def __call__(self) -> Distribution:
        """The joint distribution."""
        return joint_distribution(self.planes[None], self.correlation, self.dof, self.wrap, None)

    @staticmethod
    def quantiles(distributions: Sequence[StackedDistribution], q: Sequence[float]) -> Array:
        """Quantiles ``(n_quantiles, n_distributions, n_targets)`` of distributions of one shape, in the model's units.

        Found together, which takes a tenth of the time that one after the other takes.
        """
        marginals = _marginals(np.stack([distribution.planes for distribution in distributions]))
        levels = np.asarray(q)[:, np.newaxis, np.newaxis]
        return marginals.quantile(np.broadcast_to(levels, (len(q), marginals.n_rows, marginals.n_targets)))


def _marginals(plane_rows: Array) -> Marginals:
    location, _, scale, dofs, weight = plane_rows.swapaxes(0, 1)
    return Marginals(weight, location, scale, dofs)


def joint_distribution(
    plane_rows: Array, correlation: Array, dof: float, wrap: Wrap | None, names: tuple[Hashable, ...] | None
) -> Distribution:
    """The distribution of rows from what the stack wrote down, ``(n, 5, n_experts, n_targets)``."""
    marginals = _marginals(plane_rows)
    return CopulaDistribution(marginals if wrap is None else wrap(marginals), correlation, dof, names)
