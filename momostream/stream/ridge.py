"""Ridge regression with forgetting: the part that both regressions on the rows before have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from momostream.stream.restoring import check_lags

__all__ = ["DiscountedRidge"]

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class DiscountedRidge:
    """Several regressions of the same targets on the same features, each with a penalty of its own.

    Discounted moments of the features and targets hold all that was learnt. The weights follow from them at a refresh,
    with the whole penalty: forgetting the data never forgets the penalty, and round-off never grows. In between,
    recursive least squares (`momostream.kernels.lags.learn_linear`) moves the weights at every row, and rows wait until
    the next refresh adds up their moments.

    Parameters
    ----------
    width, n_targets
        Number of features, the first of which is 1, and of targets.
    n_penalties
        Number of regressions.
    forgetting
        Weight of a row relative to the next newer one.
    batch
        Rows that may wait.

    Attributes
    ----------
    A, C
        Moments of the features ``(width, width)``, and of features and targets ``(width, n_targets)``.
    P, W
        Of each regression: inverse of the penalised moments ``(n_penalties, width, width)``, and weights
        ``(n_penalties, width, n_targets)``.
    n_rows, n_waiting
        Rows learnt so far, and those of them that wait for the next refresh.
    """

    #: Attributes that a state holds as they are, and their keys.
    _ARRAYS: ClassVar[dict[str, str]] = {"A": "A", "C": "C", "P": "P", "W": "W"}
    #: Name in messages about files.
    _PART: ClassVar[str] = "wide"
    #: Key of the targets of the rows that wait.
    _TARGETS: ClassVar[str] = "targets"

    def __init__(self, width: int, n_targets: int, n_penalties: int, forgetting: float, batch: int) -> None:
        self.forgetting, self._n_penalties, self._batch = forgetting, n_penalties, batch
        self.n_rows = 0
        self._allocate(width, n_targets)

    def _allocate(self, width: int, n_targets: int) -> None:
        """Moments and weights of zero, and no row that waits."""
        K = self._n_penalties
        self.width = width
        self.A, self.C = np.zeros((width, width)), np.zeros((width, n_targets))
        self.P, self.W = np.zeros((K, width, width)), np.zeros((K, width, n_targets))
        self._features, self._targets = np.zeros((self._batch, width)), np.zeros((self._batch, n_targets))
        self.n_waiting = 0

    def _add_up(self) -> None:
        """Add the rows that wait to the moments."""
        n = self.n_waiting
        F, T = self._features[:n], self._targets[:n]
        decayed = F * self.forgetting ** np.arange(n - 1, -1, -1.0)[:, None]
        self.A = self.forgetting**n * self.A + decayed.T @ F
        self.C = self.forgetting**n * self.C + decayed.T @ T
        self.n_waiting = 0

    def _solve(self, k: int, still: BoolArray, *penalties: Array) -> None:
        """Set the weights of regression ``k`` on its first ``len(still)`` features.  O(width^3).

        The penalties are tried in turn until the moments with that penalty on their diagonal can be factorised.
        """
        width = len(still)
        for penalty in penalties:
            U, failed = lapack.dpotrf(self.A[:width, :width] + np.diag(penalty))
            if not failed:
                break
        else:
            raise np.linalg.LinAlgError("the moments of the lags are not finite")
        inverse, _ = lapack.dpotri(U)
        inverse = np.triu(inverse) + np.triu(inverse, 1).T
        if not np.isfinite(inverse).all():
            raise np.linalg.LinAlgError("the moments of the lags are not finite")
        # The units of a feature that has not varied are not known: it has no weight until it varies.
        inverse[still], inverse[:, still] = 0.0, 0.0
        self.P[k, :width, :width] = inverse
        self.W[k, :width] = inverse @ self.C[:width]

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return sum(getattr(self, name).nbytes for name in self._ARRAYS)

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        n = self.n_waiting
        return {
            **{key: getattr(self, name).copy() for name, key in self._ARRAYS.items()}, "n_rows": self.n_rows,
            "features": self._features[:n].copy(), self._TARGETS: self._targets[:n].copy(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`, which must have the sizes of this regression."""
        check_lags(self._PART, state, self.state(), self._TARGETS, self._batch)
        self._allocate(*state["C"].shape)
        for name, key in self._ARRAYS.items():
            setattr(self, name, state[key].copy())
        self.n_rows, self.n_waiting = state["n_rows"], len(state["features"])
        self._features[: self.n_waiting], self._targets[: self.n_waiting] = state["features"], state[self._TARGETS]
