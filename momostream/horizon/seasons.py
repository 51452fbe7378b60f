"""The season of a feed: after how many rows it repeats itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_season"]

Array = NDArray[np.float64]

# Least rows of a season, least number of whole seasons seen, least correlation with the season before.
SHORTEST, N_SEEN, LEAST_CORRELATION = 3, 4, 0.2
# The correlation at a season exceeds the lowest one at any shorter lag by more than this.
PROMINENCE = 0.1


def find_season(Y: Array) -> int | None:
    """Length in rows of the season that explains most of the variation, None if there is no clear one.

    The first peak of the autocorrelation of changes, averaged over series, that comes close to the highest one.

    Parameters
    ----------
    Y
        Values without gaps, shape ``(n_rows, n_series)``.

    Examples
    --------
    >>> t = np.arange(200.0)
    >>> find_season(np.sin(2 * np.pi * t / 24)[:, None] + 0.05 * np.cos(t)[:, None])
    24
    >>> find_season(np.random.default_rng(0).normal(size=(200, 3)).cumsum(axis=0)) is None
    True
    """
    changes = np.diff(Y, axis=0)
    n = len(changes)
    longest = n // N_SEEN
    if longest < SHORTEST + 1:
        return None
    # A series that moves by round-off only does not move.
    changes = changes[:, changes.std(axis=0) > 1e-9 * np.abs(Y).max(axis=0)]
    if not changes.shape[1]:
        return None
    # One jump is not a season, and must not hide one. It is cut in passes, since the deviation contains the jump, too.
    for _ in range(8):
        changes = changes - changes.mean(axis=0)
        reach = 4.0 * changes.std(axis=0)
        changes = np.clip(changes, -reach, reach)
    spectrum = np.abs(np.fft.rfft(changes, 2 * n, axis=0)) ** 2
    shared = np.fft.irfft(spectrum, axis=0)[: longest + 2] / np.arange(n, n - longest - 2, -1)[:, None]
    correlation = (shared / shared[0]).mean(axis=1)
    lags = np.arange(SHORTEST, longest + 1)
    at = correlation[lags]
    # Few rows of noise correlate by chance.
    least = max(LEAST_CORRELATION, 4.0 / np.sqrt(n))
    is_peak = (at > correlation[lags - 1]) & (at >= correlation[lags + 1]) & (at > least)
    # Slow waves have a hump around every lag: before a season there is a valley.
    valley = np.minimum.accumulate(correlation)[lags]
    is_peak &= at - valley > PROMINENCE
    if not is_peak.any():
        return None
    highest = at[is_peak].max()
    return int(lags[is_peak & (at > 0.75 * highest)][0])
