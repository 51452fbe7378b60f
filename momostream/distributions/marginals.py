"""One target at a time: `Marginals`, a finite mixture of Student-t's per row and target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from momostream.distributions import tabulated
from momostream.distributions.moments import (
    LEAST_INDEX,
    MOST_KURTOSIS,
    PLAIN,
    QUADRATURE_VALUES,
    Moments,
    cut_moments,
    settled,
)
from momostream.distributions.planes import DOF, LOCATION, SCALE, WEIGHT
from momostream.distributions.quantiles import FourArrays, QuantileTable, check_levels, lower_quantile
from momostream.distributions.student import (
    SMALLEST_TAIL,
    BoolArray,
    FloatArray,
    IntArray,
    log_sum_exp,
    t_cdf,
    t_log_pdf,
    t_quantile,
    t_stretch,
    t_variance,
)

__all__ = ["Marginals", "finite_crps", "integrate_crps", "mixed", "padding", "row_chunks"]

# Values times components that are held at once while quantiles are solved: bounds memory, about 100 MB.
_CHUNK = 1 << 19
# Normal scores of the knots of a table of one target: dense to tail probabilities of 1e-17, sparse to 1e-300.
_OUTER_KNOTS = np.linspace(9.0, 37.0, 12)
_KNOTS = np.concatenate([-_OUTER_KNOTS[::-1], np.linspace(-8.5, 8.5, 129), _OUTER_KNOTS])
# Quantiles per row and target from which on a table of the distribution is cheaper.
_TABLE_PAYS = 64

# Gauss-Legendre points in a cell, their weights, and the matrix that integrates from the start of the cell to each.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_ORDERS = np.arange(1, _POINTS.size + 1)
_CUMULATE = (_POINTS[:, np.newaxis] ** _ORDERS - (-1.0) ** _ORDERS) / _ORDERS
_CUMULATE = _CUMULATE @ np.linalg.inv(np.vander(_POINTS, increasing=True))
# Edges of the cells of a component, in normal scores.
_CELL_SCORES = np.linspace(-6.0, 6.0, 13)


class Marginals:
    """Per row and target a finite mixture of Student-t's.

    Parameters
    ----------
    weights, means, scales, dofs : array-like, each broadcastable to (n_rows, n_components, n_targets)
        Weights sum to one over components; a component that only pads has weight zero. Degrees of freedom may
        be infinite (Gaussian).

    Examples
    --------
    One row, one target, two components:

    >>> m = Marginals([[[0.25], [0.75]]], [[[0.0], [4.0]]], [[[1.0]]], np.inf)
    >>> m.mean, m.variance
    (array([[3.]]), array([[4.]]))
    >>> m.quantile(0.5).round(3)
    array([[3.57]])
    >>> m.cdf(m.quantile(0.9)).round(6)
    array([[0.9]])
    """

    def __init__(
        self, weights: npt.ArrayLike, means: npt.ArrayLike, scales: npt.ArrayLike, dofs: npt.ArrayLike
    ) -> None:
        arrays = [np.asarray(a, dtype=np.float64) for a in (weights, means, scales, dofs)]
        try:
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        except ValueError as error:
            shapes = ", ".join(str(a.shape) for a in arrays)
            raise ValueError(f"weights, means, scales and dofs do not broadcast: {shapes}") from error
        if len(shape) != 3:
            raise ValueError(f"expected arrays of shape (n_rows, n_components, n_targets), got {shape}")
        if shape[1] < 1:
            raise ValueError("a mixture needs at least one component")
        self._set(*(np.broadcast_to(a, shape) for a in arrays))
        self._check()

    def _set(self, weights: FloatArray, means: FloatArray, scales: FloatArray, dofs: FloatArray) -> None:
        self.weights, self.means, self.scales, self.dofs = weights, means, scales, dofs

    def _check(self) -> None:
        # Written so that NaN fails.
        if not ((self.weights >= 0.0).all() and (np.abs(self.weights.sum(axis=1) - 1.0) <= 1e-6).all()):
            raise ValueError("weights must be non-negative and sum to one over components")
        if not ((self.scales > 0.0).all() and (self.dofs > 0.0).all()):
            raise ValueError("scales and dofs must be positive")

    @classmethod
    def from_planes(cls, planes: FloatArray) -> Marginals:
        """The mixtures of stacked experts; `planes` has shape (5, n_rows, n_components, n_targets).

        They are checked only when the compiled code cannot use them: a stack has written them, and checks take longer
        than quantiles.
        """
        marginals = object.__new__(cls)
        marginals._set(planes[WEIGHT], planes[LOCATION], planes[SCALE], planes[DOF])
        return marginals

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.means.shape[0])

    @property
    def n_components(self) -> int:
        """Number of components, padding included."""
        return int(self.means.shape[1])

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return int(self.means.shape[2])

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets). A component without a mean (dof <= 1) counts with its location."""
        return np.asarray((self.weights * self.means).sum(axis=1))

    @property
    def variance(self) -> FloatArray:
        """Variance, shape (n_rows, n_targets): that of the distribution cut at `cut`."""
        return self._settled[0]

    @property
    def cut(self) -> FloatArray:
        """Probability on either side without which second moments are, shape (n_rows, n_targets); zero for most.

        See `momostream.distributions.moments`.
        """
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[FloatArray, FloatArray]:
        heavy = self.tail_index < LEAST_INDEX
        within = self.scales**2 * t_variance(np.where(heavy[:, np.newaxis], np.inf, self.dofs))
        between = (self.means - self.mean[:, np.newaxis]) ** 2
        used = self.weights > 0.0
        variance = np.asarray((self.weights * np.where(used, within + between, 0.0)).sum(axis=1))
        cut = np.zeros(variance.shape)
        with np.errstate(all="ignore"):
            within, between = within / variance[:, np.newaxis], between / variance[:, np.newaxis]
            fourth = within * (_t_kurtosis(self.dofs) * within + 6.0 * between) + between**2
            ruled = heavy | ((self.weights * np.where(used, fourth, 0.0)).sum(axis=1) > MOST_KURTOSIS)
        if ruled.any():
            rows, columns = np.nonzero(ruled)
            for part in row_chunks(rows.size, QUADRATURE_VALUES * self.n_components):
                at = rows[part], columns[part]
                variance[at], cut[at] = settled(part.size, partial(self._cut_moments, *at))
        return variance, cut

    def _cut_moments(self, rows: IntArray, columns: IntArray, part: IntArray, cut: float) -> Moments:
        w, m, s, v = (a[rows[part], :, columns[part]] for a in self.arrays)
        lines = Marginals(*(a[:, :, np.newaxis] for a in (w, m, s, v)))
        p = np.full((part.size, 1), cut)
        low, high = (lines.tail_quantile(p, p < side)[:, 0] for side in (0.0, 1.0))
        return cut_moments(PLAIN, (w, m, s, v), low, high, cut)

    @property
    def tail_index(self) -> FloatArray:
        """Order up to which moments exist, shape (n_rows, n_targets): the least dof of a component that counts."""
        return np.asarray(np.where(self.weights > 0.0, self.dofs, np.inf).min(axis=1))

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density of each value of `Y` (..., n_rows, n_targets); 0 where `Y` is NaN."""
        Y = self._broadcast(Y)
        log_pdf, n_missed = tabulated.log_pdf(Y, self.arrays)
        return self._completed(log_pdf, self._log_pdf, Y) if n_missed else log_pdf

    def _log_pdf(self, Y: FloatArray) -> FloatArray:
        z = (Y[..., np.newaxis, :] - self.means) / self.scales
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        terms = log_weights - np.log(self.scales) + t_log_pdf(z, self.dofs)
        return np.where(np.isnan(Y), 0.0, log_sum_exp(terms, axis=-2))

    def tails(self, Y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probability of `Y` (..., n_rows, n_targets), both to full precision."""
        Y = self._broadcast(Y)
        lower, upper, n_missed = tabulated.tails(Y, self.arrays)
        if not n_missed:
            return lower, upper
        lower, upper = self._completed(np.stack([lower, upper]), self._tails, Y)
        return lower, upper

    def _tails(self, Y: FloatArray) -> FloatArray:
        z = (Y[..., np.newaxis, :] - self.means) / self.scales
        small = t_cdf(-np.abs(z), self.dofs)
        large = 1.0 - small
        below = z < 0.0
        lower = (self.weights * np.where(below, small, large)).sum(axis=-2)
        upper = (self.weights * np.where(below, large, small)).sum(axis=-2)
        return np.stack([lower, upper])

    def _broadcast(self, Y: npt.ArrayLike) -> FloatArray:
        """Values for each row and target: shape (..., n_rows, n_targets)."""
        Y = np.asarray(Y, dtype=np.float64)
        shape = (self.n_rows, self.n_targets)
        return Y if Y.shape[-2:] == shape else np.broadcast_to(Y, np.broadcast_shapes(Y.shape, shape))

    def _completed(
        self, found: FloatArray, exact: Callable[..., FloatArray], *arguments: FloatArray | BoolArray
    ) -> FloatArray:
        """Fill in what the compiled code has left NaN, by the code for any degrees of freedom."""
        self._check()
        return np.where(np.isnan(found), exact(*arguments), found)

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability of at most `Y` (..., n_rows, n_targets); NaN where `Y` is."""
        return self.tails(Y)[0]

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of `Y` (n_rows, n_targets), to about 1e-5; NaN where `Y` is.

        The integral of ``(F(x) - [x >= y])**2`` over x, in the units of the target; the smaller the better. Counted
        as infinite where a component has a dof of 1 or less, and so no mean.

        Examples
        --------
        >>> m = Marginals(1.0, [[[0.0, 0.0]]], [[[1.0, 5.0]]], np.inf)
        >>> m.crps([[0.0, 0.0]]).round(4)
        array([[0.2337, 1.1685]])
        """
        Y = np.asarray(Y, dtype=np.float64)
        crps = np.empty((self.n_rows, self.n_targets))
        values_per_row = self.n_targets * self.n_components**2 * _CELL_SCORES.size * _POINTS.size
        for rows in row_chunks(self.n_rows, values_per_row, _CHUNK):
            crps[rows] = _crps(Y[rows], *(a[rows] for a in self.arrays))
        return np.where((self.tail_index <= 1.0) & ~np.isnan(Y), np.inf, crps)

    def quantile(self, q: npt.ArrayLike) -> FloatArray:
        """Quantiles to about 1e-10, relative to the scale of the distribution there.

        Parameters
        ----------
        q : float, or array of shape (n_rows, n_targets) or (k, n_rows, n_targets)
            Probabilities inside (0, 1).

        Returns
        -------
        array of shape (n_rows, n_targets) or (k, n_rows, n_targets)
        """
        q = np.asarray(q, dtype=np.float64)
        check_levels(q)
        shape = (*q.shape[:-2], self.n_rows, self.n_targets)
        try:
            q = np.broadcast_to(q, shape)
        except ValueError as error:
            raise ValueError(f"probabilities of shape {q.shape} do not fit {shape}") from error
        upper = q > 0.5
        return self.tail_quantile(np.where(upper, 1.0 - q, q), upper)

    def tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """Value with tail probability `p` below it, or above it where `upper`.

        Both of shape (..., n_rows, n_targets). Values far out in the upper tail keep their digits this way.
        """
        p = np.maximum(p, SMALLEST_TAIL)
        sign = np.where(upper, -1.0, 1.0)
        if self.n_components == 1:
            return np.asarray(self.means[:, 0] + sign * self.scales[:, 0] * t_quantile(p, self.dofs[:, 0]))
        found, n_missed = tabulated.quantiles(p, sign, self.arrays)
        return self._completed(found, self._tail_quantile, p, upper) if n_missed else found

    def _tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """As `tail_quantile`, for mixtures of any degrees of freedom."""
        shape = p.shape
        sign = np.where(upper, -1.0, 1.0)
        table = p.size >= _TABLE_PAYS * self.n_rows * self.n_targets > 0
        n_together = max(1, _CHUNK // (_KNOTS.size * self.n_components * self.n_targets))
        if table and self.n_rows > n_together:
            parts = np.array_split(np.arange(self.n_rows), -(-self.n_rows // n_together))
            found = [self.take(rows)._tail_quantile(p[..., rows, :], upper[..., rows, :]) for rows in parts]
            return np.concatenate(found, axis=-2)
        # One line per value to find, its components along it: (lines, n_components).
        flat = [np.moveaxis(a, 1, 2).reshape(-1, self.n_components) for a in self.arrays]
        lines = np.broadcast_to(np.arange(self.n_rows * self.n_targets).reshape(shape[-2:]), shape).ravel()
        cells = QuantileTable(self).tail_cells(p, upper) if table else None
        p, sign = p.ravel(), sign.ravel()
        x = np.empty(p.size)
        step = max(1, _CHUNK // self.n_components)
        for start in range(0, p.size, step):
            part = slice(start, start + step)
            w, m, s, v = (a[lines[part]] for a in flat)
            # The upper tail is the lower tail of the mirror image.
            m = sign[part, np.newaxis] * m
            guesses = None if cells is None else cells[:, part]
            x[part] = sign[part] * lower_quantile(p[part], w, m, s, v, guesses)
        return x.reshape(shape)

    def cell_edges(self) -> FloatArray:
        """Return values between which the distribution is smooth, in no order: shape (n_edges, n_rows, n_targets)."""
        return _cell_edges(self.means, self.scales, self.dofs)

    def knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values that cover the distribution, ascending, with their lower and upper tail probabilities.

        Shapes (n_knots, n_rows, n_targets). They are quantiles of the components, so that straight lines
        between them follow the distribution even where it jumps from one narrow component to the next.
        """
        used = self.weights > 0.0
        n_used = used.sum(axis=1)
        # The components that count take turns along the scores, so that a row has the same knots however far
        # other rows made it be padded.
        slot = np.arange(_KNOTS.size)[:, np.newaxis, np.newaxis]
        scores = _KNOTS[:, np.newaxis, np.newaxis]
        rows, columns = np.arange(self.n_rows)[:, np.newaxis], np.arange(self.n_targets)
        component = np.argsort(~used, axis=1, kind="stable")[rows, slot % n_used, columns]
        m, s, v = (a[rows, component, columns] for a in self.arrays[1:])
        t = t_quantile(ndtr(-np.abs(scores)), v)
        y = np.sort(m + s * np.where(scores > 0.0, -t, t), axis=0)
        return y, *self.tails(y)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values per row and target, targets independent: shape (size, n_rows, n_targets)."""
        shape = (size, self.n_rows, self.n_targets)
        edges = np.cumsum(self.weights, axis=1)
        u = rng.random(shape) * edges[:, -1]
        chosen = np.zeros(shape, dtype=np.intp)
        for k in range(self.n_components - 1):
            chosen += u >= edges[:, k]
        rows, columns = np.arange(self.n_rows)[:, np.newaxis], np.arange(self.n_targets)
        m, s, v = (a[rows, chosen, columns] for a in self.arrays[1:])
        return np.asarray(m + s * rng.standard_normal(shape) * t_stretch(v, rng))

    def take(self, rows: IntArray) -> Marginals:
        """Return the distribution of these rows, in this order."""
        return Marginals(*(a[rows] for a in self.arrays))

    def select(self, targets: IntArray) -> Marginals:
        """Return the distribution of these targets, in this order."""
        return Marginals(*(a[:, :, targets] for a in self.arrays))

    @property
    def arrays(self) -> FourArrays:
        """Weights, means, scales and dofs."""
        return self.weights, self.means, self.scales, self.dofs

    def __repr__(self) -> str:
        """Sizes only."""
        return f"Marginals({self.n_rows} rows, {self.n_components} components, {self.n_targets} targets)"


def _t_kurtosis(dof: FloatArray) -> FloatArray:
    """Kurtosis of Student-t's, that of 4.5 degrees of freedom for fewer: tails alone are not what is looked for."""
    return np.asarray(3.0 + 6.0 / (np.maximum(dof, 4.5) - 4.0))


def row_chunks(n_rows: int, values_per_row: int, n_values: int = 1 << 21) -> Iterator[IntArray]:
    """Rows in chunks that hold no more than `n_values` values at once."""
    step = max(1, n_values // max(values_per_row, 1))
    for start in range(0, n_rows, step):
        yield np.arange(start, min(start + step, n_rows))


def padding(n_rows: int, n_components: int, n_targets: int) -> FourArrays:
    """Return weights, means, scales and dofs of components that do not count, to be written over."""
    shape = (n_rows, n_components, n_targets)
    return np.zeros(shape), np.zeros(shape), np.ones(shape), np.full(shape, np.inf)


def mixed(shares: Iterable[FloatArray], parts: Sequence[FourArrays]) -> FourArrays:
    """Return weights, means, scales and dofs of a mixture of mixtures, whose parts have these shares."""
    weights, *others = zip(*parts, strict=True)
    means, scales, dofs = (np.concatenate(arrays, axis=1) for arrays in others)
    scaled = [weight * share for weight, share in zip(weights, shares, strict=True)]
    return np.concatenate(scaled, axis=1), means, scales, dofs


def finite_crps(crps: Callable[[FloatArray], FloatArray], Y: FloatArray) -> FloatArray:
    """Score `Y` by `crps`, which need not know infinite values: their score is infinite."""
    infinite = np.isinf(Y)
    return np.where(infinite, np.inf, crps(np.where(infinite, np.nan, Y)))


def integrate_crps(edges: FloatArray, Y: FloatArray, cdf: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """Integrate the continuous ranked probability score of `Y` (n_rows, n_targets) over cells.

    Parameters
    ----------
    edges : array of shape (n_edges, n_rows, n_targets)
        Edges of the cells in any order; they should cover the distribution and sit where it jumps.
    Y : array of shape (n_rows, n_targets)
        Observed values. They become edges, too.
    cdf : callable
        Probabilities of at most `x`, given `x` (n_points, n_cells, n_rows, n_targets), Gauss-Legendre points that
        ascend in each cell, and half the widths of the cells.
    """
    edges = np.sort(np.concatenate([edges, Y[np.newaxis]]), axis=0)
    half = 0.5 * np.diff(edges, axis=0)
    x = edges[:-1] + half * (1.0 + _POINTS[:, np.newaxis, np.newaxis, np.newaxis])
    missed = cdf(x, half) - (x > Y)
    return np.asarray(np.tensordot(_WEIGHTS, half * missed**2, 1).sum(axis=0))


def _crps(Y: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray) -> FloatArray:
    # Seen from y, so that components that are narrow and near keep their digits. A component that is far away and
    # narrower than 1e-9 of the distance may as well have that width.
    m = m - Y[:, np.newaxis]
    s = np.maximum(s, 1e-9 * np.abs(m))

    def cdf(x: FloatArray, half: FloatArray) -> FloatArray:
        # From densities, which cost a tenth of distribution functions.
        z = (x[..., np.newaxis, :] - m) / s
        mass = half * (w / s * np.exp(t_log_pdf(z, v))).sum(axis=-2)
        cells = np.tensordot(_WEIGHTS, mass, 1)
        until = np.cumsum(cells, axis=0)
        return np.asarray((until - cells + np.tensordot(_CUMULATE, mass, 1)) / until[-1])

    return integrate_crps(_cell_edges(m, s, v), np.where(np.isnan(Y), np.nan, 0.0), cdf)


def _cell_edges(m: FloatArray, s: FloatArray, v: FloatArray) -> FloatArray:
    """Return the edges of the cells of all components, given as (n_rows, n_components, n_targets)."""
    # Cells grow in proportion to the distance where tails are heavy.
    root = 0.5 * np.sqrt(np.clip(v, 1.0, 1e10))
    edges = m + s * root * np.sinh(_CELL_SCORES[:, np.newaxis, np.newaxis, np.newaxis] / root)
    return np.moveaxis(edges, 2, 1).reshape(-1, m.shape[0], m.shape[2])
