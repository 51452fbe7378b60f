"""Smooth fans: forecasts of neighbouring steps are related, and do not zigzag where the series does not.

Every step has weights of its own, with a noise of its own. `Smoothing` bends a blended forecast as little as it takes
to be smooth over the steps (penalised least squares). How much is best depends on the series: wind has no corners that
could be foreseen, the bicycles of a city have one at eight in the morning. So each series has the strength that would
have had the least square error so far, and none unless that pays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.locate import smooth_fans

__all__ = ["STRENGTHS", "Smoothing", "smoothing_matrices"]

Array = NDArray[np.float64]

# Penalties of squared second differences; the first is none.
STRENGTHS = (0.0, 0.3, 3.0, 30.0, 300.0)
# Memory of errors, in forecasts; by how much smoothing must pay, as a share of the errors, and further by this over the
# number of forecasts seen.
MEMORY, LEAST_GAIN, CAUTION = 2000.0, 0.0005, 1.0
# After this many forecasts, every fourth is learnt from: neighbours have much the same errors.
SETTLED, EVERY = 256, 4


@lru_cache(maxsize=64)
def smoothing_matrices(horizon: int) -> Array:
    """From a forecast to its smooth versions, shape ``(n_strengths, horizon, horizon)``.

    The forecast of step h counts with weight 1 / h, as the errors of a random walk would have it.
    """
    weights = np.diag(1.0 / np.arange(1.0, horizon + 1.0))
    bends = np.diff(np.eye(horizon), 2, axis=0)
    found = np.stack([np.linalg.solve(weights + strength * bends.T @ bends, weights) for strength in STRENGTHS])
    found[0] = np.eye(horizon)
    found.flags.writeable = False
    return found


class Smoothing:
    """Smooths forecasts of ``horizon`` steps of several series, each as much as has paid so far.

    Attributes
    ----------
    losses
        Discounted square errors of the smooth forecasts, each step relative to its usual one, ``(n_strengths,
        n_series)``.
    squares
        Sums of square errors of each step, and their numbers, ``(2, horizon, n_series)``.
    n_seen
        Forecasts so far.
    chosen
        Index of the strength of each series.
    kept
        Forecasts before they were smoothed, by the slot of their row in a ring, until all their values have come,
        ``(horizon, horizon, n_series)``.

    Examples
    --------
    Forecasts of a straight line, each step with an error of its own:

    >>> rng = np.random.default_rng(0)
    >>> line, smoothing = np.arange(12.0)[:, None], Smoothing(12, 1)
    >>> for _ in range(100):
    ...     if smoothing.is_due():
    ...         smoothing.learn(line + 0.1 * rng.normal(size=(12, 1)), line)
    >>> rough = line + 0.1 * rng.normal(size=(12, 1))
    >>> (smooth,) = smoothing.smooth(rough)
    >>> float(np.abs(smooth - line).mean() / np.abs(rough - line).mean()) < 0.7
    True
    """

    def __init__(self, horizon: int, n_series: int) -> None:
        self.losses = np.zeros((len(STRENGTHS), n_series))
        self.squares = np.zeros((2, horizon, n_series))
        self.kept = np.zeros((horizon, horizon, n_series))
        self.n_seen, self._line = 0, np.empty(horizon)
        self._choose(np.zeros(n_series, dtype=np.int64))

    def _choose(self, chosen: NDArray[np.int64]) -> None:
        self.chosen = chosen
        # Of each series, transposed, (n_series, horizon, horizon); None if none is smoothed.
        matrices = smoothing_matrices(self.squares.shape[1])
        self._matrices = np.ascontiguousarray(matrices[chosen].swapaxes(1, 2)) if chosen.any() else None

    def smooth(self, *forecasts: Array) -> tuple[Array, ...]:
        """Forecasts ``(horizon, n_series)``, smooth over the steps; themselves where that does not pay."""
        if self._matrices is None:
            return forecasts
        rough = np.array(forecasts)
        smooth = np.empty_like(rough)
        smooth_fans(self._matrices, rough, self._line, smooth)
        return tuple(smooth)

    def is_due(self) -> bool:
        """Count a forecast all of whose values have come; whether to learn from it."""
        self.n_seen += 1
        return self.squares.shape[1] > 2 and (self.n_seen <= SETTLED or self.n_seen % EVERY == 0)

    def learn(self, forecast: Array, values: Array) -> None:
        """Learn from a forecast as it was before it was smoothed, and the values that came; NaN is missing."""
        squares = (smoothing_matrices(len(forecast)) @ forecast - values) ** 2
        known = ~np.isnan(values)
        self.squares[0] += np.where(known, squares[0], 0.0)
        self.squares[1] += known
        usual = self.squares[0] / np.maximum(self.squares[1], 1.0)
        relative = np.where(known & (usual > 0.0), squares / np.where(usual > 0.0, usual, 1.0), 0.0)
        self.losses = (1.0 - 1.0 / MEMORY) * self.losses + relative.sum(axis=1)
        handicap = 1.0 - LEAST_GAIN - CAUTION / self.n_seen
        chosen = np.concatenate([handicap * self.losses[:1], self.losses[1:]]).argmin(axis=0)
        if (chosen != self.chosen).any():
            self._choose(chosen)

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return self.losses.nbytes + self.squares.nbytes + self.chosen.nbytes + self.kept.nbytes

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "losses": self.losses.copy(), "squares": self.squares.copy(), "n_seen": self.n_seen,
            "chosen": self.chosen.copy(), "kept": self.kept.copy(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        self.losses, self.squares = state["losses"].copy(), state["squares"].copy()
        self.n_seen, self.kept = state["n_seen"], state["kept"].copy()
        self._choose(state["chosen"].copy())
