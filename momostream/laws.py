"""Laws of the nodes of a circuit, evaluated at a batch of rows.

A law spans ``n_rows`` rows and its own ``n_targets`` outputs; rows are independent of each other, outputs are
not. Four kinds nest freely:

* `StudentT`, a multivariate Student-t (Gaussian for infinite degrees of freedom): the leaf;
* `Product`, children that own disjoint outputs and are independent;
* `Mixture`, children over the same outputs, with weights;
* `Routed`, children that own disjoint rows (what gates decide).

Each of them is closed under what is asked of it: moments, densities, marginals, samples and conditioning are
exact and recursive, so that a product of mixtures is never expanded into its exponentially many components.

`Marginals` is the flat form that a single output takes: a finite mixture of univariate Student-t's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import betaln, gammaln, ndtr, ndtri, stdtr, stdtrit

__all__ = ["Law", "Marginals", "Mixture", "Product", "Routed", "StudentT"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]
FourArrays = tuple[FloatArray, FloatArray, FloatArray, FloatArray]

#: What a (nearly) singular matrix gets on its diagonal, once, relative to that diagonal.
RELATIVE_JITTER = 1e-10
#: Tail probabilities are not followed below this.
SMALLEST_TAIL = 1e-300

# Stands for infinite degrees of freedom in densities: the limit is exact to all digits, without a branch.
_GAUSSIAN_DOF = 1e300
# Squares of these stay finite.
_LARGEST_SCORE = 1e150
_LARGEST_T = 1e100
_LARGEST_SQUARE = 1e300
# Values times components that are held at once while quantiles are solved: bounds memory, about 100 MB.
_CHUNK = 1 << 19
# Normal scores of the knots of a table of one output: dense to tail probabilities of 1e-17, sparse to 1e-300.
_OUTER_KNOTS = np.linspace(9.0, 37.0, 12)
_KNOTS = np.concatenate([-_OUTER_KNOTS[::-1], np.linspace(-8.5, 8.5, 129), _OUTER_KNOTS])
# So many quantiles per row and output pay for a table of the law.
_TABLE_PAYS = 64


# -----------------------------------------------------------------------------------------------------------
# The standard Student-t, with infinite degrees of freedom for the Gaussian


def t_log_pdf(z: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    """Log density of the standard Student-t; finite for every `z`.

    Examples
    --------
    >>> t_log_pdf([0.0, 0.0], [1.0, np.inf]).round(3).tolist()
    [-1.145, -0.919]
    """
    return np.asarray(_t_log_norm(dof) + _t_log_shape(z, dof))


def _t_log_norm(dof: npt.ArrayLike) -> FloatArray:
    v = np.minimum(dof, _GAUSSIAN_DOF)
    # betaln instead of a difference of gammaln, which loses all digits for large v.
    return np.asarray(-betaln(0.5 * v, 0.5) - 0.5 * np.log(v))


def _t_log_shape(z: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    v = np.minimum(dof, _GAUSSIAN_DOF)
    z = np.minimum(np.abs(z), _LARGEST_SCORE)
    return np.asarray(-0.5 * (v + 1.0) * np.log1p(z * z / v))


def t_cdf(z: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    """Distribution function of the standard Student-t; small lower tails keep their digits."""
    return np.asarray(stdtr(dof, z))


def t_quantile(p: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    """Quantile of the standard Student-t for `p` up to 0.5; at least ``-1e100``.

    Examples
    --------
    >>> t_quantile([0.025, 0.025], [np.inf, 4.0]).round(4).tolist()
    [-1.96, -2.7764]
    """
    p = np.maximum(p, SMALLEST_TAIL)
    dof = np.asarray(dof, dtype=np.float64)
    x = np.asarray(stdtrit(dof, p))
    far = np.abs(x) > 1e12
    if far.any():
        # stdtrit overflows there, to either side; the tail is a power law: F(-x) = k v^((v - 1) / 2) x^-v.
        v = np.where(far, dof, 1.0)
        log_k = -betaln(0.5 * v, 0.5) - 0.5 * np.log(v)
        log_x = (log_k + 0.5 * (v - 1.0) * np.log(v) - np.log(p)) / v
        x = np.where(far, -np.exp(np.minimum(log_x, np.log(_LARGEST_T))), x)
    return np.asarray(np.maximum(x, -_LARGEST_T))


def t_variance(dof: npt.ArrayLike) -> FloatArray:
    """Variance of the standard Student-t; infinite for 2 degrees of freedom or fewer."""
    dof = np.asarray(dof, dtype=np.float64)
    heavy = dof <= 2.0
    return np.where(heavy, np.inf, 1.0 + 2.0 / np.where(heavy, 1.0, dof - 2.0))


def mvt_log_pdf(squares: FloatArray, log_det: FloatArray, dof: FloatArray, n_targets: int) -> FloatArray:
    """Log density of a multivariate Student-t from its squared Mahalanobis distances and log determinants."""
    squares = np.minimum(squares, _LARGEST_SQUARE)
    v = np.minimum(dof, _GAUSSIAN_DOF)
    half = 0.5 * n_targets
    log_norm = gammaln(half) - betaln(0.5 * v, half) - half * np.log(v * np.pi)
    return np.asarray(log_norm - 0.5 * log_det - (0.5 * v + half) * np.log1p(squares / v))


# -----------------------------------------------------------------------------------------------------------
# Matrices: one for all rows (p, p), or one per row (n, p, p)


def regularise(A: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `A`, made positive definite if it is only semi-definite, and its Cholesky factor.

    A matrix with a pivot below half of `RELATIVE_JITTER`, relative to its diagonal, gets `RELATIVE_JITTER`
    times its diagonal added, once. Each matrix of a stack is judged on its own.

    Parameters
    ----------
    A : array of shape (p, p) or (n, p, p)
        Symmetric with positive diagonals.

    Raises
    ------
    ValueError
        When a matrix is not positive semi-definite.

    Examples
    --------
    >>> A, L = regularise(np.ones((2, 2)))
    >>> bool(np.allclose(L @ L.T, 1.0)), float(L[1, 1]) > 1e-6
    (True, True)
    """
    if A.ndim == 2:
        B, L = regularise(A[np.newaxis])
        return B[0], L[0]
    diagonal = np.diagonal(A, axis1=1, axis2=2)
    if not (diagonal > 0.0).all():
        raise ValueError("a scale or correlation matrix needs a positive diagonal")
    L, ok = _factor(A)
    if ok.all():
        return A, L
    bad = np.flatnonzero(~ok)
    B = A.copy()
    at = np.arange(A.shape[1])
    B[bad[:, np.newaxis], at, at] += RELATIVE_JITTER * diagonal[bad]
    L[bad], ok = _factor(B[bad])
    if not np.isfinite(L[bad]).all():
        raise ValueError("a scale or correlation matrix is not positive semi-definite")
    return B, L


def _factor(A: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Cholesky factors of a stack (NaN where there is none), and which of them have no tiny pivot."""
    try:
        L = cholesky(A)
    except np.linalg.LinAlgError:
        # LAPACK does not say which matrix of the stack failed.
        L = np.full(A.shape, np.nan)
        for i, matrix in enumerate(A):
            try:
                L[i] = cholesky(matrix)
            except np.linalg.LinAlgError:
                continue
    pivots = np.diagonal(L, axis1=1, axis2=2) ** 2
    ok = pivots >= 0.5 * RELATIVE_JITTER * np.diagonal(A, axis1=1, axis2=2)
    return L, np.asarray(ok.all(axis=1))


def cholesky(A: FloatArray) -> FloatArray:
    """Return the lower Cholesky factors of a matrix or a stack of them."""
    return np.asarray(np.linalg.cholesky(A), dtype=np.float64)


def _solve_lower(L: FloatArray, B: FloatArray) -> FloatArray:
    """Solve L x = b for each row b of `B` (n, p), with `L` (p, p) or (n, p, p)."""
    if L.ndim == 2:
        return np.asarray(solve_triangular(L, B.T, lower=True, check_finite=False).T)
    return np.asarray(np.linalg.solve(L, B[..., np.newaxis])[..., 0])


def _block(A: FloatArray, rows: IntArray, columns: IntArray) -> FloatArray:
    return A[..., rows[:, np.newaxis], columns]


# -----------------------------------------------------------------------------------------------------------
# One output at a time


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

    def quantile(self, q: npt.ArrayLike) -> FloatArray:
        """Quantiles to about 1e-10, relative to the scale of the law there.

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

    def knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values that cover the law, ascending, with their lower and upper tail probabilities.

        Shapes (n_knots, n_rows, n_targets). They are quantiles of the components, so that straight lines
        between them follow the law even where it jumps from one narrow component to the next.
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
        return np.asarray(m + s * rng.standard_normal(shape) * _t_stretch(v, rng))

    def take(self, rows: IntArray) -> Marginals:
        """Return the law of these rows, in this order."""
        return Marginals(*(a[rows] for a in self._arrays))

    def select(self, targets: IntArray) -> Marginals:
        """Return the law of these outputs, in this order."""
        return Marginals(*(a[:, :, targets] for a in self._arrays))

    @property
    def _arrays(self) -> FourArrays:
        return self.weights, self.means, self.scales, self.dofs

    def __repr__(self) -> str:
        """Sizes only."""
        return f"Marginals({self.n_rows} rows, {self.n_components} components, {self.n_targets} outputs)"


def _t_stretch(dof: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw the factors that turn standard normals into Student-t's, in the shape of `dof`."""
    finite = np.isfinite(dof)
    v = np.where(finite, dof, 1.0)
    return np.asarray(np.where(finite, np.sqrt(v / rng.chisquare(v)), 1.0))


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
    log_w = np.where(used, np.log(np.where(used, w, 1.0)) - np.log(s) + _t_log_norm(v), -np.inf)
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
        each = np.exp(log_w + _t_log_shape(z, v))
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


def _brackets(p: FloatArray, w: FloatArray, m: FloatArray, s: FloatArray, v: FloatArray) -> FourArrays:
    """Return bounds of the quantile and two guesses, each of shape (lines,)."""
    p = p[:, np.newaxis]
    used = w > 0.0
    each = m + s * t_quantile(p, v)
    # The quantile of a mixture lies between those of its components ...
    low = np.where(used, each, np.inf).min(axis=1)
    high = np.where(used, each, -np.inf).max(axis=1)
    # ... and F(x) >= w_c F_c(x), a bound that is close in the tails.
    raised = p / np.maximum(w, p)
    bound = np.where(raised <= 0.5, m + s * t_quantile(np.minimum(raised, 0.5), v), np.inf).min(axis=1)
    high = np.maximum(low, np.minimum(high, bound))
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


# -----------------------------------------------------------------------------------------------------------
# Node laws


class Law(ABC):
    """Predictive law of `n_rows` independent rows over `n_targets` outputs."""

    n_rows: int
    n_targets: int

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""

    @property
    @abstractmethod
    def covariance(self) -> FloatArray:
        """Covariance between outputs, shape (n_rows, n_targets, n_targets).

        Where a variance is infinite (dof <= 2) the covariances of that output are NaN.
        """

    @abstractmethod
    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row of `Y` (n_rows, n_targets); NaN entries are marginalised out."""

    @abstractmethod
    def marginals(self) -> Marginals:
        """Return the law of each output on its own, flattened to a mixture of Student-t's."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""

    @abstractmethod
    def take(self, rows: IntArray) -> Law:
        """Return the law of these rows, in this order."""

    @abstractmethod
    def _condition(self, Y: FloatArray, known: BoolArray) -> Law:
        """Condition on the `known` columns of `Y`; at least one column is not known."""

    def condition(self, Y: FloatArray, known: BoolArray | None = None) -> Law:
        """Return the law of the other outputs, given some of them.

        Parameters
        ----------
        Y : array of shape (n_rows, n_targets)
            Known values, NaN for outputs that are not known: the same ones in every row.
        known : bool array of shape (n_targets,), optional
            Which outputs are known; read off `Y` when not given.

        Returns
        -------
        Law
            Over the outputs that are not known, in their order.
        """
        Y = np.asarray(Y, dtype=np.float64)
        if Y.shape != (self.n_rows, self.n_targets):
            raise ValueError(f"expected values of shape {(self.n_rows, self.n_targets)}, got {Y.shape}")
        given = ~np.isnan(Y)
        if known is None:
            known = given[0] if self.n_rows else np.zeros(self.n_targets, dtype=np.bool_)
        if not (given == known).all():
            raise ValueError("the same outputs must be known in all rows")
        if known.all():
            raise ValueError("all outputs are known: nothing is left to predict")
        return self._condition(Y, known) if known.any() else self

    def __repr__(self) -> str:
        """Sizes only."""
        return f"{type(self).__name__}({self.n_rows} rows, {self.n_targets} outputs)"


class StudentT(Law):
    """Multivariate Student-t, Gaussian for infinite degrees of freedom.

    The scale matrix of row i is ``factor[i] * scale`` (one matrix for all rows) or ``factor[i] * scale[i]``.

    Parameters
    ----------
    mean : array of shape (n_rows, n_targets)
        Locations.
    scale : array of shape (n_targets, n_targets) or (n_rows, n_targets, n_targets)
        Symmetric, positive semi-definite, with positive diagonals. A singular one gets a relative jitter
        once, see `regularise`.
    dof : float or array of shape (n_rows,)
        Degrees of freedom.
    factor : float or array of shape (n_rows,), default 1
        Multiplies `scale` row by row.

    Examples
    --------
    >>> law = StudentT(np.zeros((1, 2)), np.array([[1.0, 0.5], [0.5, 1.0]]), 4.0)
    >>> law.covariance
    array([[[2., 1.],
            [1., 2.]]])
    >>> law.condition(np.array([[2.0, np.nan]])).mean
    array([[1.]])
    """

    def __init__(
        self, mean: npt.ArrayLike, scale: npt.ArrayLike, dof: npt.ArrayLike, factor: npt.ArrayLike = 1.0
    ) -> None:
        self._mean = np.asarray(mean, dtype=np.float64)
        if self._mean.ndim != 2:
            raise ValueError(f"expected means of shape (n_rows, n_targets), got {self._mean.shape}")
        self.n_rows, self.n_targets = self._mean.shape
        p = self.n_targets
        self.scale: FloatArray = np.asarray(scale, dtype=np.float64)
        if self.scale.shape not in {(p, p), (self.n_rows, p, p)}:
            raise ValueError(f"scale of shape {self.scale.shape} does not fit means {self._mean.shape}")
        self.dof: FloatArray = np.broadcast_to(np.asarray(dof, dtype=np.float64), (self.n_rows,))
        self.factor: FloatArray = np.broadcast_to(np.asarray(factor, dtype=np.float64), (self.n_rows,))

    @property
    def mean(self) -> FloatArray:
        """Locations, shape (n_rows, n_targets)."""
        return self._mean

    @property
    def spread(self) -> FloatArray:
        """Square roots of the diagonals of the scale matrices, shape (n_rows, n_targets)."""
        diagonal = np.diagonal(self.scale, axis1=-2, axis2=-1)
        return np.asarray(np.sqrt(self.factor[:, np.newaxis] * diagonal))

    @property
    def covariance(self) -> FloatArray:
        """Covariance between outputs, shape (n_rows, n_targets, n_targets)."""
        heavy = self.dof <= 2.0
        ratio = np.where(heavy, 1.0, t_variance(self.dof))
        covariance = (self.factor * ratio)[:, np.newaxis, np.newaxis] * self.scale
        if heavy.any():
            covariance[heavy] = np.where(np.eye(self.n_targets, dtype=np.bool_), np.inf, np.nan)
        return np.asarray(covariance)

    @cached_property
    def _regular(self) -> tuple[FloatArray, FloatArray]:
        return regularise(self.scale)

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        observed = ~np.isnan(Y)
        if observed.all():
            return self._log_pdf_of(Y, None, np.arange(self.n_targets))
        log_pdf = np.zeros(self.n_rows)
        patterns, which = np.unique(observed, axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            if pattern.any():
                rows = np.flatnonzero(which.ravel() == k)
                log_pdf[rows] = self._log_pdf_of(Y, rows, np.flatnonzero(pattern))
        return log_pdf

    def _log_pdf_of(self, Y: FloatArray, rows: IntArray | None, targets: IntArray) -> FloatArray:
        """Log density of some outputs of some rows (None: all of both)."""
        scale, L = self._regular
        deviations, factor, dof = Y - self._mean, self.factor, self.dof
        if rows is not None:
            deviations = deviations[rows][:, targets]
            factor, dof = factor[rows], dof[rows]
            if scale.ndim == 3:
                scale = scale[rows]
            L = cholesky(_block(scale, targets, targets))
        p = targets.size
        with np.errstate(over="ignore"):
            squares = (_solve_lower(L, deviations) ** 2).sum(axis=1) / factor
        log_det = 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1) + p * np.log(factor)
        return mvt_log_pdf(squares, log_det, dof, p)

    def marginals(self) -> Marginals:
        """Return each output's own Student-t: one component."""
        return Marginals(
            np.ones((1, 1, 1)),
            self._mean[:, np.newaxis],
            self.spread[:, np.newaxis],
            self.dof[:, np.newaxis, np.newaxis],
        )

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        z = rng.standard_normal((size, self.n_rows, self.n_targets))
        _, L = self._regular
        z = z @ L.T if L.ndim == 2 else (L @ z[..., np.newaxis])[..., 0]
        stretch = np.sqrt(self.factor) * _t_stretch(np.broadcast_to(self.dof, z.shape[:2]), rng)
        return np.asarray(self._mean + stretch[..., np.newaxis] * z)

    def take(self, rows: IntArray) -> StudentT:
        """Return the law of these rows, in this order."""
        scale = self.scale if self.scale.ndim == 2 else self.scale[rows]
        return StudentT(self._mean[rows], scale, self.dof[rows], self.factor[rows])

    def condition(self, Y: FloatArray, known: BoolArray | None = None) -> StudentT:
        """Return the Student-t of the other outputs, given some of them; see `Law.condition`."""
        law = super().condition(Y, known)
        assert isinstance(law, StudentT)
        return law

    def _condition(self, Y: FloatArray, known: BoolArray) -> StudentT:
        scale, _ = self._regular
        k, u = np.flatnonzero(known), np.flatnonzero(~known)
        L = cholesky(_block(scale, k, k))
        W = np.linalg.solve(L, _block(scale, k, u))
        e = _solve_lower(L, Y[:, k] - self._mean[:, k])
        shift = e @ W if W.ndim == 2 else (e[:, np.newaxis] @ W)[:, 0]
        schur = _block(scale, u, u) - np.swapaxes(W, -1, -2) @ W
        with np.errstate(over="ignore"):
            squares = np.minimum((e * e).sum(axis=1) / self.factor, _LARGEST_SQUARE)
        finite = np.isfinite(self.dof)
        v = np.where(finite, self.dof, 1.0)
        stretch = np.where(finite, (v + squares) / (v + k.size), 1.0)
        return StudentT(self._mean[:, u] + shift, schur, self.dof + k.size, self.factor * stretch)


class Product(Law):
    """Independent children that own disjoint outputs.

    Parameters
    ----------
    children : sequence of Law
        All over the same rows.
    outputs : sequence of int arrays
        ``outputs[k]`` are the positions of child k's outputs among those of this law, in the child's order.

    Examples
    --------
    >>> a = StudentT(np.array([[1.0]]), np.eye(1), np.inf)
    >>> b = StudentT(np.array([[2.0, 3.0]]), np.eye(2), np.inf)
    >>> Product([a, b], [[1], [0, 2]]).mean
    array([[2., 1., 3.]])
    """

    def __init__(self, children: Sequence[Law], outputs: Sequence[npt.ArrayLike]) -> None:
        self.children = tuple(children)
        self.outputs: tuple[IntArray, ...] = tuple(np.asarray(o, dtype=np.intp) for o in outputs)
        self.n_rows = _common_rows(self.children)
        if [o.size for o in self.outputs] != [child.n_targets for child in self.children]:
            raise ValueError("each child of a product needs one position per output")
        positions = np.concatenate(self.outputs)
        self.n_targets = positions.size
        if not np.array_equal(np.sort(positions), np.arange(self.n_targets)):
            raise ValueError("the outputs of a product's children must be disjoint and cover all positions")

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        mean = np.empty((self.n_rows, self.n_targets))
        for child, at in zip(self.children, self.outputs, strict=True):
            mean[:, at] = child.mean
        return mean

    @property
    def covariance(self) -> FloatArray:
        """Covariance between outputs: zero between children."""
        covariance = np.zeros((self.n_rows, self.n_targets, self.n_targets))
        for child, at in zip(self.children, self.outputs, strict=True):
            covariance[:, at[:, np.newaxis], at] = child.covariance
        return covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        log_pdf = np.zeros(self.n_rows)
        for child, at in zip(self.children, self.outputs, strict=True):
            log_pdf += child.log_pdf(Y[:, at])
        return log_pdf

    def marginals(self) -> Marginals:
        """Return the children's marginals side by side, padded to the same number of components."""
        parts = [child.marginals() for child in self.children]
        arrays = _padding(self.n_rows, max(part.n_components for part in parts), self.n_targets)
        for part, at in zip(parts, self.outputs, strict=True):
            for array, values in zip(arrays, part._arrays, strict=True):
                array[:, : part.n_components, at] = values
        return Marginals(*arrays)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        draws = np.empty((size, self.n_rows, self.n_targets))
        for child, at in zip(self.children, self.outputs, strict=True):
            draws[:, :, at] = child.sample(size, rng)
        return draws

    def take(self, rows: IntArray) -> Product:
        """Return the law of these rows, in this order."""
        return Product([child.take(rows) for child in self.children], self.outputs)

    def _condition(self, Y: FloatArray, known: BoolArray) -> Law:
        # Where an old position ends up among those that are left.
        position = np.cumsum(~known) - 1
        children: list[Law] = []
        outputs: list[IntArray] = []
        for child, at in zip(self.children, self.outputs, strict=True):
            if not known[at].all():
                children.append(child.condition(Y[:, at], known[at]))
                outputs.append(position[at[~known[at]]])
        return Product(children, outputs)


class Mixture(Law):
    """Children over the same rows and outputs, of which one at a time is true.

    Parameters
    ----------
    log_weights : array of shape (n_children,) or (n_rows, n_children)
        Up to a constant (per row); minus infinity is weight zero.
    children : sequence of Law
        All over the same rows and outputs.

    Examples
    --------
    >>> left, right = (StudentT(np.array([[m]]), np.eye(1), np.inf) for m in (-1.0, 1.0))
    >>> law = Mixture(np.log([0.5, 0.5]), [left, right])
    >>> law.mean, law.covariance
    (array([[0.]]), array([[[2.]]]))
    """

    def __init__(self, log_weights: npt.ArrayLike, children: Sequence[Law]) -> None:
        self.children = tuple(children)
        self.n_rows = _common_rows(self.children)
        self.n_targets = _common_targets(self.children)
        log_weights = np.asarray(log_weights, dtype=np.float64)
        if log_weights.ndim == 1:
            log_weights = log_weights[np.newaxis]
        if log_weights.shape not in {(1, len(self.children)), (self.n_rows, len(self.children))}:
            raise ValueError(f"log_weights {log_weights.shape} do not fit {len(self.children)} children")
        top = log_weights.max(axis=1)
        if not np.isfinite(top).all():
            raise ValueError("a mixture needs one finite log weight per row, and none that is NaN or +inf")
        log_weights = log_weights - _log_sum(log_weights)[:, np.newaxis]
        self.log_weights: FloatArray = np.broadcast_to(log_weights, (self.n_rows, len(self.children)))

    @property
    def weights(self) -> FloatArray:
        """Weights, shape (n_rows, n_children); they sum to one."""
        return np.asarray(np.exp(self.log_weights))

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        mean = np.zeros((self.n_rows, self.n_targets))
        for weight, child in zip(self.weights.T, self.children, strict=True):
            mean += weight[:, np.newaxis] * child.mean
        return mean

    @property
    def covariance(self) -> FloatArray:
        """Covariance within children plus the covariance of their means."""
        mean = self.mean
        covariance = np.zeros((self.n_rows, self.n_targets, self.n_targets))
        for weight, child in zip(self.weights.T, self.children, strict=True):
            delta = child.mean - mean
            second = child.covariance + delta[:, :, np.newaxis] * delta[:, np.newaxis]
            # Weight zero times an infinite variance is zero here.
            used = weight > 0.0
            covariance[used] += weight[used, np.newaxis, np.newaxis] * second[used]
        return covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        return _log_sum(self._log_joint(Y))

    def _log_joint(self, Y: FloatArray) -> FloatArray:
        return self.log_weights + np.stack([child.log_pdf(Y) for child in self.children], axis=1)

    def marginals(self) -> Marginals:
        """Return the components of all children, with the product of the weights along their paths."""
        parts = [child.marginals() for child in self.children]
        shares = self.weights.T[..., np.newaxis, np.newaxis]
        return Marginals(
            np.concatenate([part.weights * w for part, w in zip(parts, shares, strict=True)], axis=1),
            np.concatenate([part.means for part in parts], axis=1),
            np.concatenate([part.scales for part in parts], axis=1),
            np.concatenate([part.dofs for part in parts], axis=1),
        )

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        edges = np.cumsum(self.weights, axis=1)
        u = rng.random((size, self.n_rows)) * edges[:, -1]
        chosen = (u[..., np.newaxis] >= edges[:, :-1]).sum(axis=2)
        draws = np.empty((size, self.n_rows, self.n_targets))
        for k, child in enumerate(self.children):
            mine = chosen == k
            # As many draws as the row that asks for most; a row takes its first ones.
            nth = np.cumsum(mine, axis=0) - 1
            needed = int(nth.max(initial=-1)) + 1
            if needed:
                at, rows = np.nonzero(mine)
                draws[at, rows] = child.sample(needed, rng)[nth[at, rows], rows]
        return draws

    def take(self, rows: IntArray) -> Mixture:
        """Return the law of these rows, in this order."""
        return Mixture(self.log_weights[rows], [child.take(rows) for child in self.children])

    def _condition(self, Y: FloatArray, known: BoolArray) -> Law:
        log_weights = self._log_joint(np.where(known, Y, np.nan))
        return Mixture(log_weights, [child.condition(Y, known) for child in self.children])


class Routed(Law):
    """Children that own disjoint rows.

    Parameters
    ----------
    index : int array of shape (n_rows,)
        Which child owns each row.
    children : sequence of Law
        Child k spans exactly the rows with ``index == k``, in their order; it may have none.

    Examples
    --------
    >>> a = StudentT(np.array([[1.0], [3.0]]), np.eye(1), np.inf)
    >>> b = StudentT(np.array([[2.0]]), np.eye(1), np.inf)
    >>> Routed([0, 1, 0], [a, b]).mean.ravel()
    array([1., 2., 3.])
    """

    def __init__(self, index: npt.ArrayLike, children: Sequence[Law]) -> None:
        self.index: IntArray = np.asarray(index, dtype=np.intp)
        self.children = tuple(children)
        self.n_rows = self.index.size
        self.n_targets = _common_targets(self.children)
        self._rows = [np.flatnonzero(self.index == k) for k in range(len(self.children))]
        if sum(rows.size for rows in self._rows) != self.n_rows:
            raise ValueError(f"index must lie in 0, ..., {len(self.children) - 1}")
        if [rows.size for rows in self._rows] != [child.n_rows for child in self.children]:
            raise ValueError("each child must span exactly the rows that the index gives it")

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        mean = np.empty((self.n_rows, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            mean[rows] = child.mean
        return mean

    @property
    def covariance(self) -> FloatArray:
        """Covariance between outputs, shape (n_rows, n_targets, n_targets)."""
        covariance = np.empty((self.n_rows, self.n_targets, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            covariance[rows] = child.covariance
        return covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        log_pdf = np.empty(self.n_rows)
        for child, rows in zip(self.children, self._rows, strict=True):
            log_pdf[rows] = child.log_pdf(Y[rows])
        return log_pdf

    def marginals(self) -> Marginals:
        """Return the children's marginals row by row, padded to the same number of components."""
        parts = [child.marginals() for child in self.children]
        arrays = _padding(self.n_rows, max(part.n_components for part in parts), self.n_targets)
        for part, rows in zip(parts, self._rows, strict=True):
            for array, values in zip(arrays, part._arrays, strict=True):
                array[rows, : part.n_components] = values
        return Marginals(*arrays)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        draws = np.empty((size, self.n_rows, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            draws[:, rows] = child.sample(size, rng)
        return draws

    def take(self, rows: IntArray) -> Routed:
        """Return the law of these rows, in this order."""
        within = np.empty(self.n_rows, dtype=np.intp)
        for mine in self._rows:
            within[mine] = np.arange(mine.size)
        index, within = self.index[rows], within[rows]
        return Routed(index, [child.take(within[index == k]) for k, child in enumerate(self.children)])

    def _condition(self, Y: FloatArray, known: BoolArray) -> Law:
        own = zip(self.children, self._rows, strict=True)
        return Routed(self.index, [child.condition(Y[rows], known) for child, rows in own])


def _log_sum(terms: FloatArray) -> FloatArray:
    """Log of the sum of exponentials over axis 1; some term of each row is finite."""
    top = terms.max(axis=1)
    return np.asarray(top + np.log(np.exp(terms - top[:, np.newaxis]).sum(axis=1)))


def _padding(n_rows: int, n_components: int, n_targets: int) -> FourArrays:
    """Return weights, means, scales and dofs of components that do not count."""
    shape = (n_rows, n_components, n_targets)
    return np.zeros(shape), np.zeros(shape), np.ones(shape), np.full(shape, np.inf)


def _common_rows(children: Sequence[Law]) -> int:
    sizes = {child.n_rows for child in children}
    if len(sizes) != 1:
        raise ValueError("children must span the same rows, and there must be one at least")
    return sizes.pop()


def _common_targets(children: Sequence[Law]) -> int:
    sizes = {child.n_targets for child in children}
    if len(sizes) != 1:
        raise ValueError("children must span the same outputs, and there must be one at least")
    return sizes.pop()
