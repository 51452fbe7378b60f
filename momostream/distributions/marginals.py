"""One output at a time: per row and output a finite mixture of Student-t's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr

from momostream.distributions.student import (
    SMALLEST_TAIL,
    BoolArray,
    FloatArray,
    IntArray,
    t_cdf,
    t_log_norm,
    t_log_pdf,
    t_log_shape,
    t_quantile,
    t_stretch,
    t_variance,
)

__all__ = ["FourArrays", "Marginals", "integrate_crps", "normal_scores"]

FourArrays = tuple[FloatArray, FloatArray, FloatArray, FloatArray]

# Values times components that are held at once while quantiles are solved: bounds memory, about 100 MB.
_CHUNK = 1 << 19
# Normal scores of the knots of a table of one output: dense to tail probabilities of 1e-17, sparse to 1e-300.
_OUTER_KNOTS = np.linspace(9.0, 37.0, 12)
_KNOTS = np.concatenate([-_OUTER_KNOTS[::-1], np.linspace(-8.5, 8.5, 129), _OUTER_KNOTS])
# Tail probabilities in which components of small weight count.
_FAR_TAIL = 1e-3
# So many quantiles per row and output pay for a table of the distribution.
_TABLE_PAYS = 64

# Gauss-Legendre points in a cell, their weights, and the matrix that integrates from the start of the cell to each.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_ORDERS = np.arange(1, _POINTS.size + 1)
_CUMULATE = (_POINTS[:, np.newaxis] ** _ORDERS - (-1.0) ** _ORDERS) / _ORDERS
_CUMULATE = _CUMULATE @ np.linalg.inv(np.vander(_POINTS, increasing=True))
# Edges of the cells of a component, in normal scores.
_CELL_SCORES = np.linspace(-6.0, 6.0, 13)


class Marginals:
    """Per row and output a finite mixture of Student-t's.

    Parameters
    ----------
    weights, means, scales, dofs : array-like, each broadcastable to (n_rows, n_components, n_targets)
        Weights sum to one over components; a component that only pads has weight zero. Degrees of freedom may
        be infinite (Gaussian).

    Examples
    --------
    One row, one output, two components:

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
        w, m, s, v = (np.broadcast_to(a, shape) for a in arrays)
        if not ((w >= 0.0).all() and (np.abs(w.sum(axis=1) - 1.0) <= 1e-6).all()):
            raise ValueError("weights must be non-negative and sum to one over components")
        if not ((s > 0.0).all() and (v > 0.0).all()):
            raise ValueError("scales and dofs must be positive")
        self.weights: FloatArray = w
        self.means: FloatArray = m
        self.scales: FloatArray = s
        self.dofs: FloatArray = v

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
        """Number of outputs."""
        return int(self.means.shape[2])

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets). A component without a mean (dof <= 1) counts with its location."""
        return np.asarray((self.weights * self.means).sum(axis=1))

    @property
    def variance(self) -> FloatArray:
        """Variance, shape (n_rows, n_targets); infinite where a component has a dof of 2 or less."""
        within = self.scales**2 * t_variance(self.dofs)
        between = (self.means - self.mean[:, np.newaxis]) ** 2
        used = self.weights > 0.0
        return np.asarray((self.weights * np.where(used, within + between, 0.0)).sum(axis=1))

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density of each value of `Y` (..., n_rows, n_targets); 0 where `Y` is NaN."""
        Y = np.asarray(Y, dtype=np.float64)
        z = (Y[..., np.newaxis, :] - self.means) / self.scales
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        terms = log_weights - np.log(self.scales) + t_log_pdf(z, self.dofs)
        top = terms.max(axis=-2, keepdims=True)
        log_pdf = np.log(np.exp(terms - top).sum(axis=-2)) + top[..., 0, :]
        return np.where(np.isnan(Y), 0.0, log_pdf)

    def tails(self, Y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probability of `Y` (..., n_rows, n_targets), both to full precision."""
        z = (np.asarray(Y, dtype=np.float64)[..., np.newaxis, :] - self.means) / self.scales
        small = t_cdf(-np.abs(z), self.dofs)
        large = 1.0 - small
        below = z < 0.0
        lower = (self.weights * np.where(below, small, large)).sum(axis=-2)
        upper = (self.weights * np.where(below, large, small)).sum(axis=-2)
        return lower, upper

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability of at most `Y` (..., n_rows, n_targets); NaN where `Y` is."""
        return self.tails(Y)[0]

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of `Y` (n_rows, n_targets), to about 1e-5; NaN where `Y` is.

        The integral of ``(F(x) - [x >= y])**2`` over x, in the units of the output; the smaller the better. Counted
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
        step = max(1, _CHUNK // max(1, values_per_row))
        for start in range(0, self.n_rows, step):
            part = slice(start, start + step)
            crps[part] = _crps(Y[part], *(a[part] for a in self._arrays))
        heavy = ((self.weights > 0.0) & (self.dofs <= 1.0)).any(axis=1)
        return np.where(heavy & ~np.isnan(Y), np.inf, crps)

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
        if not ((q > 0.0) & (q < 1.0)).all():
            raise ValueError("probabilities must lie inside (0, 1)")
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
        shape = p.shape
        p = np.maximum(p, SMALLEST_TAIL)
        sign = np.where(upper, -1.0, 1.0)
        if self.n_components == 1:
            return np.asarray(self.means[:, 0] + sign * self.scales[:, 0] * t_quantile(p, self.dofs[:, 0]))
        table = p.size >= _TABLE_PAYS * self.n_rows * self.n_targets > 0
        n_together = max(1, _CHUNK // (_KNOTS.size * self.n_components * self.n_targets))
        if table and self.n_rows > n_together:
            parts = np.array_split(np.arange(self.n_rows), -(-self.n_rows // n_together))
            found = [self.take(rows).tail_quantile(p[..., rows, :], upper[..., rows, :]) for rows in parts]
            return np.concatenate(found, axis=-2)
        # One line per value to find, its components along it: (lines, n_components).
        flat = [np.moveaxis(a, 1, 2).reshape(-1, self.n_components) for a in self._arrays]
        lines = np.broadcast_to(np.arange(self.n_rows * self.n_targets).reshape(shape[-2:]), shape).ravel()
        cells = self._cells(p, upper) if table else None
        p, sign = p.ravel(), sign.ravel()
        x = np.empty(p.size)
        step = max(1, _CHUNK // self.n_components)
        for start in range(0, p.size, step):
            part = slice(start, start + step)
            w, m, s, v = (a[lines[part]] for a in flat)
            # The upper tail is the lower tail of the mirror image.
            m = sign[part, np.newaxis] * m
            guesses = None if cells is None else cells[:, part]
            x[part] = sign[part] * _lower_quantile(p[part], w, m, s, v, guesses)
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
        m, s, v = (a[rows, component, columns] for a in self._arrays[1:])
        t = t_quantile(ndtr(-np.abs(scores)), v)
        y = np.sort(m + s * np.where(scores > 0.0, -t, t), axis=0)
        return y, *self.tails(y)

    def _cells(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """Return low, high and guess for many values from one table: (3, p.size), NaN outside the table."""
        y, lower, above = self.knots()
        knot_scores = np.maximum.accumulate(normal_scores(np.minimum(lower, above), lower > above), axis=0)
        # Cubics over normal scores, whose slope is the normal density over that of y.
        slopes = np.exp(np.minimum(t_log_pdf(knot_scores, np.inf) - self.log_pdf(y), 300.0))
        scores = normal_scores(p, upper)
        cells = np.full((3, *p.shape), np.nan)
        for i, j in np.ndindex(self.n_rows, self.n_targets):
            at, knots, values, slope = scores[..., i, j], knot_scores[:, i, j], y[:, i, j], slopes[:, i, j]
            k = np.searchsorted(knots, at, side="right")
            inside = (k > 0) & (k < knots.size)
            k = np.clip(k, 1, knots.size - 1)
            width = np.maximum(knots[k] - knots[k - 1], 1e-300)
            r = np.clip((at - knots[k - 1]) / width, 0.0, 1.0)
            rise = values[k] - values[k - 1]
            bend = (1.0 - r) * (width * slope[k - 1] - rise) - r * (width * slope[k] - rise)
            guess = values[k - 1] + np.clip(r * (rise + (1.0 - r) * bend), 0.0, rise)
            cells[..., i, j] = np.where(inside, [values[k - 1], values[k], guess], np.nan)
        low, high, guess = cells
        return np.where(upper, [-high, -low, -guess], cells).reshape(3, -1)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values per row and output, outputs independent: shape (size, n_rows, n_targets)."""
        shape = (size, self.n_rows, self.n_targets)
        edges = np.cumsum(self.weights, axis=1)
        u = rng.random(shape) * edges[:, -1]
        chosen = np.zeros(shape, dtype=np.intp)
        for k in range(self.n_components - 1):
            chosen += u >= edges[:, k]
        rows, columns = np.arange(self.n_rows)[:, np.newaxis], np.arange(self.n_targets)
        m, s, v = (a[rows, chosen, columns] for a in self._arrays[1:])
        return np.asarray(m + s * rng.standard_normal(shape) * t_stretch(v, rng))

    def take(self, rows: IntArray) -> Marginals:
        """Return the distribution of these rows, in this order."""
        return Marginals(*(a[rows] for a in self._arrays))

    def select(self, targets: IntArray) -> Marginals:
        """Return the distribution of these outputs, in this order."""
        return Marginals(*(a[:, :, targets] for a in self._arrays))

    @property
    def _arrays(self) -> FourArrays:
        return self.weights, self.means, self.scales, self.dofs

    def __repr__(self) -> str:
        """Sizes only."""
        return f"Marginals({self.n_rows} rows, {self.n_components} components, {self.n_targets} outputs)"


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
    # Seen from y, so that components that are narrow and near keep their digits. What is far and narrower than
    # 1e-9 of the way may as well have that width.
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


def normal_scores(p: FloatArray, upper: BoolArray) -> FloatArray:
    """Return the standard normal quantiles of tail probabilities."""
    scores = ndtri(np.maximum(p, SMALLEST_TAIL))
    return np.asarray(np.where(upper, -scores, scores))


def _lower_quantile(
    p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray, cells: FloatArray | None
) -> FloatArray:
    """Solve F(x) = p for p <= 0.5, one mixture per line: `p` (lines,), the others (lines, n_components).

    `cells` (3, lines) holds bounds and a guess where they are known already, NaN elsewhere.

    Halley steps on log F, which is nearly straight in the tails, kept inside a bracket. Where a step leaves
    it or does not halve the one before, a second guess is tried, then bisection.
    """
    used = w > 0.0
    if cells is None:
        low, high, x, other = _brackets(p, w, m, s, v)
    else:
        low, high, x, other = cells[[0, 1, 2, 2]]
        open_ = np.flatnonzero(np.isnan(low))
        found = _brackets(p[open_], w[open_], m[open_], s[open_], v[open_])
        low[open_], high[open_], x[open_], other[open_] = found
        # Across a hundred orders of magnitude the interpolation may round out of its cell.
        x = np.clip(x, low, high)
    log_w = np.where(used, np.log(np.where(used, w, 1.0)) - np.log(s) + t_log_norm(v), -np.inf)
    narrowest = np.where(used, s, np.inf).min(axis=1)
    leftmost = np.where(used, m, np.inf).min(axis=1)
    answer = x.copy()
    todo = np.arange(p.size)
    state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, high - low)
    for _ in range(200):
        if todo.size == 0:
            break
        p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last = state
        z = (x[:, np.newaxis] - m) / s
        F = (w * stdtr(v, z)).sum(axis=1)
        each = np.exp(log_w + t_log_shape(z, v))
        f = each.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Derivative of each log density: -(v + 1) z / (v + z^2) / s.
            slope = -(each * z * (1.0 + 1.0 / v) / ((1.0 + z * z / v) * s)).sum(axis=1)
            gap = np.log(p / F)
            step = gap * F / f
            step /= np.clip(1.0 + 0.5 * gap * (slope * F / (f * f) - 1.0), 0.5, 2.0)
        below = F < p
        low = np.where(below, x, low)
        high = np.where(below, high, x)
        new = x + step
        good = (new >= low) & (new <= high) & (np.abs(step) <= 0.5 * last)
        width = high - low
        # Left of all components by orders of magnitude, where tails are heavy.
        far = np.sqrt(np.maximum(leftmost - low, 0.0) * np.maximum(leftmost - high, 0.0))
        middle = np.where(high < leftmost, leftmost - far, low + 0.5 * width)
        guess = np.where((other > low) & (other < high), other, middle)
        new = np.where(good, new, guess)
        last = np.where(good, np.abs(step), width)
        solved = np.abs(F - p) <= 1e-15 * p
        answer[todo] = np.where(solved, x, new)
        # A step of Halley's leaves an error of the order of its cube, in units of the narrowest component.
        enough = np.where(good, 1e-5, 1e-13) * narrowest + 4e-16 * np.abs(x)
        active = ~(solved | (last <= enough))
        todo = todo[active]
        state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, new, other, last)
        if todo.size < active.size:
            p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last = (a[active] for a in state)
            state = (p, w, m, s, v, log_w, narrowest, leftmost, low, high, x, other, last)
    return np.asarray(answer)


def _t_quantiles(p: FloatArray, v: FloatArray) -> FloatArray:
    """`t_quantile` of each pair once: both ends of an interval have the same, and degrees of freedom repeat."""
    pairs = np.empty(v.shape, dtype=np.complex128)
    pairs.real, pairs.imag = p, v
    unique, places = np.unique(pairs, return_inverse=True)
    return np.asarray(t_quantile(unique.real, unique.imag)[places.reshape(v.shape)])


def _brackets(p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray) -> FourArrays:
    """Return bounds of the quantile and two guesses, each of shape (lines,)."""
    p = p[:, np.newaxis]
    used = w > 0.0
    each = m + s * _t_quantiles(p, v)
    # The quantile of a mixture lies between those of its components ...
    low = np.where(used, each, np.inf).min(axis=1)
    high = np.where(used, each, -np.inf).max(axis=1)
    # ... and F(x) >= w_c F_c(x), a bound that is close in the tails and costs as much as it is worth elsewhere.
    far = np.flatnonzero(p[:, 0] < _FAR_TAIL)
    if far.size:
        raised = p[far] / np.maximum(w[far], p[far])
        at = m[far] + s[far] * t_quantile(np.minimum(raised, 0.5), v[far])
        bound = np.where(raised <= 0.5, at, np.inf).min(axis=1)
        high[far] = np.maximum(low[far], np.minimum(high[far], bound))
    x = np.clip((w * each).sum(axis=1), low, high)
    # As if components did not overlap, which is true of far apart ones: find the one that holds the quantile.
    order = np.argsort(m, axis=1)
    edges = np.cumsum(np.take_along_axis(w, order, axis=1), axis=1)
    nth = np.minimum((edges < p).sum(axis=1, keepdims=True), w.shape[1] - 1)
    holder = np.take_along_axis(order, nth, axis=1)
    weight, centre, spread, dof = (np.take_along_axis(a, holder, axis=1) for a in (w, m, s, v))
    inside = 1.0 - (np.take_along_axis(edges, nth, axis=1) - p) / np.maximum(weight, SMALLEST_TAIL)
    inside = np.clip(inside, 1e-15, 1.0 - 1e-15)
    t = t_quantile(np.minimum(inside, 1.0 - inside), dof)
    other = (centre + spread * np.where(inside < 0.5, t, -t))[:, 0]
    return low, high, x, other
