"""The season of a feed: after how many rows it repeats itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_season"]

Array = NDArray[np.float64]

# Least rows of a season, least number of whole seasons seen, least correlation with the seasons before.
SHORTEST, N_SEEN, LEAST_CORRELATION = 3, 4, 0.2
# The correlation at a season exceeds the lowest one at any shorter lag by more than this.
PROMINENCE = 0.1
# Changes over this many rows are correlated: those over one row are mostly noise where a season is long. A season has
# more than `SPANS_IN_SEASON` times the rows of a change.
SPANS, SPANS_IN_SEASON = (1, 3, 9, 27), 2
# Changes below this part of the largest value, or of changes over fewer rows, are round-off.
ROUND_OFF = 1e-9
# Of more series, some that lie evenly among them are searched.
MOST_SERIES = 12
# The peak of the next season is looked for in this part of a season before and after, to find its length to less than a
# row. That length counts if one season of it is nearly as much alike as the peak: missing rows draw later ones nearer.
PART_AROUND, AS_ALIKE = 8, 0.9


def find_season(Y: Array) -> int | None:
    """Length in rows of the season that explains most of the variation, None if there is no clear one.

    The first peak of the autocorrelation of changes, averaged over series, that comes close to the highest one. Changes
    over one and over more rows count alike, and so do the season before and the one before that.

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
    n = len(Y) - 1
    longest = n // N_SEEN
    if longest < SHORTEST + 1:
        return None
    # A series that moves by round-off only does not move.
    Y = Y[:, np.diff(Y, axis=0).std(axis=0) > ROUND_OFF * np.abs(Y).max(axis=0)]
    if not Y.shape[1]:
        return None
    Y = Y[:, :: -(-Y.shape[1] // MOST_SERIES)]
    both = _correlation(Y, 2 * (longest + 2))
    once = both[: longest + 2]
    twice = both[2 * np.arange(longest + 2)]
    # A slow wave is more alike after one of its humps than after two; a season is as alike.
    correlation = np.minimum(once, 0.5 * (once + twice))
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
    return _refined(int(lags[is_peak & (at > 0.75 * highest)][0]), both)


def _correlation(Y: Array, n_lags: int) -> Array:
    """Autocorrelation of changes at the lags below ``n_lags``, the mean over series and over spans of changes."""
    total, count = np.zeros((2, n_lags))
    largest = np.zeros(Y.shape[1])
    for span in SPANS:
        if SPANS_IN_SEASON * span >= n_lags // 2:
            break
        changes = Y[span:] - Y[:-span]
        # One jump is not a season, and must not hide one. It is cut in passes, since the deviation contains the jump.
        for _ in range(8):
            changes = changes - changes.mean(axis=0)
            reach = 4.0 * changes.std(axis=0)
            changes = np.clip(changes, -reach, reach)
        n = len(changes)
        top = min(n_lags, n)
        spectrum = np.abs(np.fft.rfft(changes, 2 * n, axis=0)) ** 2
        shared = np.fft.irfft(spectrum, axis=0)[:top] / np.arange(n, n - top, -1)[:, None]
        # Changes over a whole season are nothing where each season equals the one before.
        largest = np.maximum(largest, shared[0])
        moves = shared[0] > ROUND_OFF**2 * largest
        if not moves.any():
            continue
        first = SPANS_IN_SEASON * span + 1 if span > 1 else 0
        total[first:top] += ((shared / np.where(moves, shared[0], np.inf)).sum(axis=1) / moves.sum())[first:]
        count[first:top] += 1.0
    return total / count


def _refined(season: int, correlation: Array) -> int:
    """The season, by where later ones are most alike: a peak that is broad for one is narrow for a third of three."""
    at, number, around = season, 1, season // PART_AROUND
    while True:
        first = round(at * (number + 1) / number) - around
        if not around or first + 2 * around >= len(correlation):
            refined = round(at / number)
            return refined if correlation[refined] >= AS_ALIKE * correlation[season] else season
        at, number = first + int(correlation[first : first + 2 * around + 1].argmax()), number + 1
