"""Values that are held within limits: the probability beyond a limit is a lump at the limit.

Limits are arrays of shape ``(4, n_targets)``: lower and upper limits, and how much of each is *room* beyond what a
target has shown. A limit without room is firm. One with room gives way where the mean itself comes near: a forecast of
a counter that grows, or of inputs never seen, is not cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from momostream.distributions.bounded import BoundedMarginals, TargetMap
from momostream.distributions.marginals import Marginals, integrate_crps, row_chunks
from momostream.distributions.moments import (
    LEAST_INDEX,
    MOST_KURTOSIS,
    PLAIN,
    QUADRATURE_VALUES,
    Moments,
    mixture_moments,
    settled,
)
from momostream.distributions.student import BoolArray, FloatArray, IntArray

__all__ = ["GIVES_WAY", "AnyMarginals", "LimitedMarginals", "UserUnits", "carried", "held", "limits_at", "no_limits"]

# A limit with room lies at least this many times as far beyond what was shown as the mean does.
GIVES_WAY = 1.5
# Moments and scores of distributions with less than this beyond their limits are those without limits.
_NEGLIGIBLE = 1e-7


def no_limits(n_targets: int) -> FloatArray:
    """Limits of targets that have none."""
    return np.repeat([[-np.inf], [np.inf], [0.0], [0.0]], n_targets, axis=1)


def limits_at(limits: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper limits of distributions with these means (n_rows, n_targets), in the shape of `mean`.

    Examples
    --------
    Of two series between 0 and 100, the first has touched 100 often, the second may rise to 105:

    >>> limits = np.array([[0.0, 0.0], [100.0, 105.0], [0.0, 0.0], [0.0, 5.0]])
    >>> limits_at(limits, np.array([[50.0, 50.0], [104.0, 104.0]]))[1]
    array([[100., 105.],
           [100., 106.]])
    """
    low, high, low_room, high_room = limits
    with np.errstate(invalid="ignore"):
        lowest, highest = low + low_room, high - high_room
        far_low, far_high = lowest + GIVES_WAY * (mean - lowest), highest + GIVES_WAY * (mean - highest)
    return (
        np.where(low_room > 0.0, np.minimum(low, far_low), low),
        np.where(high_room > 0.0, np.maximum(high, far_high), high),
    )


def held(limits: FloatArray, mean: FloatArray) -> FloatArray:
    """Means (..., n_targets), within firm limits; others give way to a mean.

    Examples
    --------
    >>> held(np.array([[0.0, 0.0], [100.0, 105.0], [0.0, 0.0], [0.0, 5.0]]), np.array([104.0, 106.0]))
    array([100., 106.])
    """
    low, high, low_room, high_room = limits
    # Most means lie within, and a look costs half as much as a clip. NaN stays.
    if not ((mean < low) | (mean > high)).any():
        return mean
    return np.clip(mean, np.where(low_room > 0.0, -np.inf, low), np.where(high_room > 0.0, np.inf, high))


def carried(targets: TargetMap | None, limits: FloatArray | None, marginals: Marginals) -> AnyMarginals:
    """Carry marginals from the model's units to the user's, and hold them within limits (4, n_targets), if any."""
    carried = marginals if targets is None else targets.wrap(marginals)
    if limits is None or not np.isfinite(limits[:2]).any():
        return carried
    return LimitedMarginals(carried, *limits_at(limits, carried.mean))


@dataclass(slots=True)
class UserUnits:
    """From the marginals of a model to those of its user: `carried` with all but the marginals.

    Attributes
    ----------
    targets
        Transforms of targets, None if there are none.
    limits
        Limits (4, n_targets), None if there are none.
    """

    targets: TargetMap | None
    limits: FloatArray | None

    def __call__(self, marginals: Marginals) -> AnyMarginals:
        """The marginals in the user's units."""
        return carried(self.targets, self.limits, marginals)


class LimitedMarginals:
    """Distribution of each target, held within limits, with the interface of `Marginals` that a copula needs.

    Parameters
    ----------
    base : Marginals or BoundedMarginals
        Distribution without limits. Limits are given only for targets without bounds or a transform of their own.
    low, high : arrays of shape (n_rows, n_targets)
        Limits, infinite where there are none.

    Notes
    -----
    Quantiles, samples, probabilities, standard deviations and scores are those of the distribution with its lumps. The
    mean is that of `base`, moved to the nearest limit where it lies beyond: the mean forecasts squared errors best, and
    that of the lumps would be drawn inwards. Densities, and the probabilities that a copula sees, are those of
    `base`: a lump has no density, and a value beyond a limit is unlikely, not impossible.

    Examples
    --------
    >>> base = Marginals(1.0, [[[-1.0, 5.0]]], [[[1.0, 1.0]]], np.inf)
    >>> m = LimitedMarginals(base, np.array([[0.0, 0.0]]), np.array([[np.inf, np.inf]]))
    >>> m.mean, np.sqrt(m.variance).round(4)
    (array([[0., 5.]]), array([[0.2615, 1.    ]]))
    >>> m.cdf([[0.0, 5.0]]).round(4), m.cdf([[-0.1, 5.0]]).round(4)
    (array([[0.8413, 0.5   ]]), array([[0. , 0.5]]))
    """

    def __init__(self, base: Marginals | BoundedMarginals, low: FloatArray, high: FloatArray) -> None:
        shape = (base.n_rows, base.n_targets)
        if low.shape != shape or high.shape != shape:
            raise ValueError(f"expected limits of shape {shape}, got {low.shape} and {high.shape}")
        self.base, self.low, self.high = base, low, high

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.base.n_rows

    @property
    def n_components(self) -> int:
        """Number of components of the distribution without limits."""
        return self.base.n_components

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.base.n_targets

    @cached_property
    def lumps(self) -> tuple[FloatArray, FloatArray]:
        """Probabilities that lie at the lower and at the upper limit, each of shape (n_rows, n_targets)."""
        return self.base.tails(self.low)[0], self.base.tails(self.high)[1]

    @cached_property
    def _matters(self) -> BoolArray:
        """Where limits change moments and scores."""
        return np.maximum(*self.lumps) > _NEGLIGIBLE

    @property
    def mean(self) -> FloatArray:
        """Mean without limits, moved to the nearest limit where it lies beyond, shape (n_rows, n_targets)."""
        return np.clip(self.base.mean, self.low, self.high)

    @property
    def variance(self) -> FloatArray:
        """Variance, shape (n_rows, n_targets): that of the distribution cut at `cut`."""
        return self._settled[0]

    @property
    def cut(self) -> FloatArray:
        """Probability on either side without which second moments are, as that of `Marginals`."""
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[FloatArray, FloatArray]:
        variance, cut = self.base.variance.copy(), self.base.cut.copy()
        rows, columns = np.nonzero(self._matters)
        for part in row_chunks(rows.size, QUADRATURE_VALUES * self.n_components):
            at = rows[part], columns[part]
            variance[at], cut[at] = self._line_settled(*self._lines(*at))
        return variance, cut

    @staticmethod
    def _line_settled(lines: Marginals, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        def moments_at(rows: IntArray, cut: float) -> Moments:
            some, p = lines.take(rows), np.full((rows.size, 1), cut)
            ends = low[rows], high[rows]
            if cut > 0.0:
                lowest, highest = (some.tail_quantile(p, p < side) for side in (0.0, 1.0))
                ends = np.clip(lowest, *ends), np.clip(highest, *ends)
            w, m, s, v = (a[:, :, 0] for a in some.arrays)
            lumps = some.tails(ends[0])[0][:, 0], some.tails(ends[1])[1][:, 0]
            return mixture_moments(PLAIN, (w, m, s, v), *ends, lumps)

        whole = moments_at(np.arange(lines.n_rows), 0.0)
        variance, cut = whole.variance, np.zeros(lines.n_rows)
        ruled = np.flatnonzero((lines.tail_index[:, 0] < LEAST_INDEX) | (whole.kurtosis > MOST_KURTOSIS))
        if ruled.size:
            variance[ruled], cut[ruled] = settled(ruled.size, lambda part, p: moments_at(ruled[part], p))
        return variance, cut

    def _lines(self, rows: IntArray, columns: IntArray) -> tuple[Marginals, FloatArray, FloatArray]:
        """Some targets of some rows as the only target of a row each, and their limits (n_lines, 1)."""
        plain = self.base.base if isinstance(self.base, BoundedMarginals) else self.base
        w, m, s, v = (a[rows, :, columns][:, :, np.newaxis] for a in plain.arrays)
        low, high = (limit[rows, columns][:, np.newaxis] for limit in (self.low, self.high))
        return Marginals(w, m, s, v), low, high

    @cached_property
    def tail_index(self) -> FloatArray:
        """Order up to which moments exist, shape (n_rows, n_targets)."""
        return np.where(np.isfinite(self.low) & np.isfinite(self.high), np.inf, self.base.tail_index)

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density without limits of each value of `Y` (..., n_rows, n_targets); 0 where `Y` is NaN."""
        return self.base.log_pdf(Y)

    def tails(self, Y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probability without limits of `Y` (..., n_rows, n_targets)."""
        return self.base.tails(Y)

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability of at most `Y` (..., n_rows, n_targets); NaN where `Y` is."""
        Y = np.asarray(Y, dtype=np.float64)
        return np.where(Y >= self.high, 1.0, np.where(Y < self.low, 0.0, self.base.cdf(Y)))

    def tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """Value with tail probability `p` below it, or above it where `upper`; both (..., n_rows, n_targets)."""
        return np.clip(self.base.tail_quantile(p, upper), self.low, self.high)

    def cell_edges(self) -> FloatArray:
        """Return values between which the distribution is smooth, in no order: shape (n_edges, n_rows, n_targets)."""
        return np.clip(self.base.cell_edges(), self.low, self.high)

    def knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values that cover the distribution, ascending, with their tail probabilities without limits.

        Shapes (n_knots, n_rows, n_targets).
        """
        y = self.base.knots()[0]
        ends = np.clip(np.stack([self.low, self.high]), y[0], y[-1])
        y = np.sort(np.concatenate([y, ends]), axis=0)
        return np.clip(y, self.low, self.high), *self.base.tails(y)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values per row and target, targets independent: shape (size, n_rows, n_targets)."""
        return np.clip(self.base.sample(size, rng), self.low, self.high)

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of `Y` (n_rows, n_targets), infinite where there is no mean."""
        Y = np.asarray(Y, dtype=np.float64)
        inside = np.clip(Y, self.low, self.high)
        crps = self.base.crps(inside)
        rows, columns = np.nonzero(self._matters)
        for part in row_chunks(rows.size, 512 * self.n_components):
            at = rows[part], columns[part]
            lines, low, high = self._lines(*at)
            edges = np.clip(lines.cell_edges(), low, high)
            crps[at] = integrate_crps(edges, inside[at][:, np.newaxis], partial(_cdf, lines))[:, 0]
        return np.where((self.tail_index <= 1.0) & ~np.isnan(Y), np.inf, crps + np.abs(Y - inside))

    def take(self, rows: IntArray) -> LimitedMarginals:
        """Return the distribution of these rows, in this order."""
        return LimitedMarginals(self.base.take(rows), self.low[rows], self.high[rows])

    def select(self, targets: IntArray) -> LimitedMarginals:
        """Return the distribution of these targets, in this order."""
        return LimitedMarginals(self.base.select(targets), self.low[:, targets], self.high[:, targets])

    def __repr__(self) -> str:
        """Sizes only."""
        return f"LimitedMarginals({self.n_rows} rows, {self.n_components} components, {self.n_targets} targets)"


def _cdf(lines: Marginals, x: FloatArray, _: FloatArray) -> FloatArray:
    return lines.cdf(x)


AnyMarginals = Marginals | BoundedMarginals | LimitedMarginals
