"""The distribution that a stack of experts writes down for a row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.joint import CopulaDistribution, Distribution
from momostream.distributions.marginals import Marginals

__all__ = ["StackedLaw", "Wrap", "joint_law"]

Array = NDArray[np.float64]

#: Turns marginals into those of the user's units.
Wrap = Callable[[Marginals], Any]


@dataclass(frozen=True, slots=True)
class StackedLaw:
    """The law of a row as the stack wrote it down, ``(5, n_experts, n_targets)``, until more than that is asked for."""

    law: Array
    correlation: Array
    dof: float
    wrap: Wrap | None

    def __call__(self) -> Distribution:
        """The joint law."""
        return joint_law(self.law[None], self.correlation, self.dof, self.wrap, None)

    @staticmethod
    def quantiles(laws: Sequence[StackedLaw], q: Sequence[float]) -> Array:
        """Quantiles of many laws of one shape and without units of their own: ``(n_quantiles, n_laws, n_targets)``.

        Found together, which takes a tenth of the time that one after the other takes.
        """
        marginals = _marginals(np.stack([law.law for law in laws]))
        levels = np.asarray(q)[:, np.newaxis, np.newaxis]
        return marginals.quantile(np.broadcast_to(levels, (len(q), marginals.n_rows, marginals.n_targets)))


def _marginals(laws: Array) -> Marginals:
    location, _, scale, dofs, weight = laws.swapaxes(0, 1)
    return Marginals(weight, location, scale, dofs)


def joint_law(
    laws: Array, correlation: Array, dof: float, wrap: Wrap | None, names: tuple[Hashable, ...] | None
) -> Distribution:
    """The law of rows from what the stack wrote down, ``(n, 5, n_experts, n_targets)``."""
    marginals = _marginals(laws)
    return CopulaDistribution(marginals if wrap is None else wrap(marginals), correlation, dof, names)
