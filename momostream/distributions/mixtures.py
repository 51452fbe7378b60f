"""Multivariate distributions of the nodes of a circuit, evaluated at a batch of rows.

A distribution spans ``n_rows`` rows and its own ``n_targets`` targets; rows are independent of each other, targets are
not. Four kinds nest freely:

* `StudentT`, a multivariate Student-t (Gaussian for infinite degrees of freedom): the leaf;
* `Product`, children that own disjoint targets and are independent;
* `Mixture`, children over the same targets, with weights;
* `Routed`, children that own disjoint rows (gates decide which).

Each of them is closed under all operations: moments, densities, marginals, samples and conditioning are
exact and recursive, so that a product of mixtures is never expanded into its exponentially many components.

One target alone is flat: `momostream.distributions.marginals.Marginals`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from momostream.distributions.marginals import Marginals, mixed, padding
from momostream.distributions.moments import LEAST_INDEX, PLAIN, cut_t_variance, mixture_moments
from momostream.distributions.student import (
    LARGEST_SQUARE,
    BoolArray,
    FloatArray,
    IntArray,
    block,
    cholesky,
    correlation_of,
    log_sum_exp,
    mvt_log_pdf,
    regularise,
    solve_lower,
    t_cdf,
    t_stretch,
    t_variance,
)

__all__ = ["Multivariate", "Mixture", "Product", "Routed", "StudentT"]

TwoArrays = tuple[FloatArray, FloatArray]


class Multivariate(ABC):
    """Base of the four: the distribution of `n_rows` independent rows over `n_targets` targets."""

    n_rows: int
    n_targets: int

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""

    @property
    @abstractmethod
    def covariance(self) -> FloatArray:
        """Covariance between targets, shape (n_rows, n_targets, n_targets).

        Student-t's of fewer than 3 degrees of freedom count with the variance of the cut distribution, see
        `momostream.distributions.moments`.
        """

    @abstractmethod
    def clipped(self, low: FloatArray, high: FloatArray) -> TwoArrays:
        """Mean and covariance of values that are moved to limits (n_rows, n_targets) if they are beyond.

        Limits may be infinite. Components keep their correlations.
        """

    @abstractmethod
    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row of `Y` (n_rows, n_targets); NaN entries are marginalised out."""

    @abstractmethod
    def marginals(self) -> Marginals:
        """Return the distribution of each target on its own, flattened to a mixture of Student-t's."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""

    @abstractmethod
    def take(self, rows: IntArray) -> Multivariate:
        """Return the distribution of these rows, in this order."""

    @abstractmethod
    def _condition(self, Y: FloatArray, known: BoolArray) -> Multivariate:
        """Condition on the `known` columns of `Y`; at least one column is not known."""

    def condition(self, Y: FloatArray, known: BoolArray | None = None) -> Multivariate:
        """Return the distribution of the other targets, given some of them.

        Parameters
        ----------
        Y : array of shape (n_rows, n_targets)
            Known values, NaN for targets that are not known: the same ones in every row.
        known : bool array of shape (n_targets,), optional
            Which targets are known; read off `Y` when not given.

        Returns
        -------
        Multivariate
            Over the targets that are not known, in their order.
        """
        Y = np.asarray(Y, dtype=np.float64)
        if Y.shape != (self.n_rows, self.n_targets):
            raise ValueError(f"expected values of shape {(self.n_rows, self.n_targets)}, got {Y.shape}")
        given = ~np.isnan(Y)
        if known is None:
            known = given[0] if self.n_rows else np.zeros(self.n_targets, dtype=np.bool_)
        if not (given == known).all():
            raise ValueError("the same targets must be known in all rows")
        if known.all():
            raise ValueError("all targets are known: nothing is left to predict")
        return self._condition(Y, known) if known.any() else self

    def __repr__(self) -> str:
        """Sizes only."""
        return f"{type(self).__name__}({self.n_rows} rows, {self.n_targets} targets)"


class StudentT(Multivariate):
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
    >>> distribution = StudentT(np.zeros((1, 2)), np.array([[1.0, 0.5], [0.5, 1.0]]), 4.0)
    >>> distribution.covariance
    array([[[2., 1.],
            [1., 2.]]])
    >>> distribution.condition(np.array([[2.0, np.nan]])).mean
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
    def scales(self) -> FloatArray:
        """Square roots of the diagonals of the scale matrices, shape (n_rows, n_targets)."""
        diagonal = np.diagonal(self.scale, axis1=-2, axis2=-1)
        return np.asarray(np.sqrt(self.factor[:, np.newaxis] * diagonal))

    @property
    def covariance(self) -> FloatArray:
        """Covariance between targets, shape (n_rows, n_targets, n_targets)."""
        heavy = self.dof < LEAST_INDEX
        ratio = t_variance(np.where(heavy, np.inf, self.dof))
        if heavy.any():
            ratio[heavy] = cut_t_variance(self.dof[heavy])
        return np.asarray((self.factor * ratio)[:, np.newaxis, np.newaxis] * self.scale)

    def clipped(self, low: FloatArray, high: FloatArray) -> TwoArrays:
        """Mean and covariance of values that are moved to limits (n_rows, n_targets) if they are beyond."""
        low, high = (limit.reshape(-1, 1) for limit in (low, high))
        m, s = (part.reshape(-1, 1) for part in (self.mean, self.scales))
        v = np.repeat(self.dof, self.n_targets)[:, np.newaxis]
        lumps = t_cdf((low - m) / s, v)[:, 0], t_cdf((m - high) / s, v)[:, 0]
        found = mixture_moments(PLAIN, (np.ones(m.shape), m, s, v), low, high, lumps)
        std = np.sqrt(found.variance).reshape(self.mean.shape)
        covariance = correlation_of(self.scale) * std[:, :, np.newaxis] * std[:, np.newaxis]
        return found.mean.reshape(self.mean.shape), covariance

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
        """Log density of some targets of some rows (None: all of both)."""
        scale, L = self._regular
        deviations, factor, dof = Y - self._mean, self.factor, self.dof
        if rows is not None:
            deviations = deviations[rows][:, targets]
            factor, dof = factor[rows], dof[rows]
            if scale.ndim == 3:
                scale = scale[rows]
            L = cholesky(block(scale, targets, targets))
        p = targets.size
        with np.errstate(over="ignore"):
            squares = (solve_lower(L, deviations) ** 2).sum(axis=1) / factor
        log_det = 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1) + p * np.log(factor)
        return mvt_log_pdf(squares, log_det, dof, p)

    def marginals(self) -> Marginals:
        """Return each target's own Student-t: one component."""
        return Marginals(
            np.ones((1, 1, 1)),
            self._mean[:, np.newaxis],
            self.scales[:, np.newaxis],
            self.dof[:, np.newaxis, np.newaxis],
        )

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        z = rng.standard_normal((size, self.n_rows, self.n_targets))
        _, L = self._regular
        z = z @ L.T if L.ndim == 2 else (L @ z[..., np.newaxis])[..., 0]
        stretch = np.sqrt(self.factor) * t_stretch(np.broadcast_to(self.dof, z.shape[:2]), rng)
        return np.asarray(self._mean + stretch[..., np.newaxis] * z)

    def take(self, rows: IntArray) -> StudentT:
        """Return the distribution of these rows, in this order."""
        scale = self.scale if self.scale.ndim == 2 else self.scale[rows]
        return StudentT(self._mean[rows], scale, self.dof[rows], self.factor[rows])

    def condition(self, Y: FloatArray, known: BoolArray | None = None) -> StudentT:
        """Return the Student-t of the other targets, given some of them; see `Multivariate.condition`."""
        distribution = super().condition(Y, known)
        assert isinstance(distribution, StudentT)
        return distribution

    def _condition(self, Y: FloatArray, known: BoolArray) -> StudentT:
        scale, _ = self._regular
        k, u = np.flatnonzero(known), np.flatnonzero(~known)
        L = cholesky(block(scale, k, k))
        W = np.linalg.solve(L, block(scale, k, u))
        e = solve_lower(L, Y[:, k] - self._mean[:, k])
        shift = e @ W if W.ndim == 2 else (e[:, np.newaxis] @ W)[:, 0]
        schur = block(scale, u, u) - np.swapaxes(W, -1, -2) @ W
        with np.errstate(over="ignore"):
            squares = np.minimum((e * e).sum(axis=1) / self.factor, LARGEST_SQUARE)
        finite = np.isfinite(self.dof)
        v = np.where(finite, self.dof, 1.0)
        stretch = np.where(finite, (v + squares) / (v + k.size), 1.0)
        return StudentT(self._mean[:, u] + shift, schur, self.dof + k.size, self.factor * stretch)


class Product(Multivariate):
    """Independent children that own disjoint targets.

    Parameters
    ----------
    children : sequence of Multivariate
        All over the same rows.
    positions : sequence of int arrays
        ``positions[k]`` are the positions of child k's targets among those of this distribution, in the child's order.

    Examples
    --------
    >>> a = StudentT(np.array([[1.0]]), np.eye(1), np.inf)
    >>> b = StudentT(np.array([[2.0, 3.0]]), np.eye(2), np.inf)
    >>> Product([a, b], [[1], [0, 2]]).mean
    array([[2., 1., 3.]])
    """

    def __init__(self, children: Sequence[Multivariate], positions: Sequence[npt.ArrayLike]) -> None:
        self.children = tuple(children)
        self.positions: tuple[IntArray, ...] = tuple(np.asarray(at, dtype=np.intp) for at in positions)
        self.n_rows = _common_rows(self.children)
        if [at.size for at in self.positions] != [child.n_targets for child in self.children]:
            raise ValueError("each child of a product needs one position per target")
        own = np.concatenate(self.positions)
        self.n_targets = own.size
        if not np.array_equal(np.sort(own), np.arange(self.n_targets)):
            raise ValueError("the targets of a product's children must be disjoint and cover all positions")

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        mean = np.empty((self.n_rows, self.n_targets))
        for child, at in zip(self.children, self.positions, strict=True):
            mean[:, at] = child.mean
        return mean

    @property
    def covariance(self) -> FloatArray:
        """Covariance between targets: zero between children."""
        covariance = np.zeros((self.n_rows, self.n_targets, self.n_targets))
        for child, at in zip(self.children, self.positions, strict=True):
            covariance[:, at[:, np.newaxis], at] = child.covariance
        return covariance

    def clipped(self, low: FloatArray, high: FloatArray) -> TwoArrays:
        """Mean and covariance of values that are moved to limits (n_rows, n_targets) if they are beyond."""
        mean, covariance = np.empty(low.shape), np.zeros((self.n_rows, self.n_targets, self.n_targets))
        for child, at in zip(self.children, self.positions, strict=True):
            mean[:, at], covariance[:, at[:, np.newaxis], at] = child.clipped(low[:, at], high[:, at])
        return mean, covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        log_pdf = np.zeros(self.n_rows)
        for child, at in zip(self.children, self.positions, strict=True):
            log_pdf += child.log_pdf(Y[:, at])
        return log_pdf

    def marginals(self) -> Marginals:
        """Return the children's marginals side by side, padded to the same number of components."""
        parts = [child.marginals() for child in self.children]
        arrays = padding(self.n_rows, max(part.n_components for part in parts), self.n_targets)
        for part, at in zip(parts, self.positions, strict=True):
            for array, values in zip(arrays, part.arrays, strict=True):
                array[:, : part.n_components, at] = values
        return Marginals(*arrays)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        draws = np.empty((size, self.n_rows, self.n_targets))
        for child, at in zip(self.children, self.positions, strict=True):
            draws[:, :, at] = child.sample(size, rng)
        return draws

    def take(self, rows: IntArray) -> Product:
        """Return the distribution of these rows, in this order."""
        return Product([child.take(rows) for child in self.children], self.positions)

    def _condition(self, Y: FloatArray, known: BoolArray) -> Multivariate:
        # New position of each target among those that are left.
        left = np.cumsum(~known) - 1
        children: list[Multivariate] = []
        positions: list[IntArray] = []
        for child, at in zip(self.children, self.positions, strict=True):
            if not known[at].all():
                children.append(child.condition(Y[:, at], known[at]))
                positions.append(left[at[~known[at]]])
        return Product(children, positions)


class Mixture(Multivariate):
    """Children over the same rows and targets, of which one at a time is true.

    Parameters
    ----------
    log_weights : array of shape (n_children,) or (n_rows, n_children)
        Up to a constant (per row); minus infinity is weight zero.
    children : sequence of Multivariate
        All over the same rows and targets.

    Examples
    --------
    >>> left, right = (StudentT(np.array([[m]]), np.eye(1), np.inf) for m in (-1.0, 1.0))
    >>> distribution = Mixture(np.log([0.5, 0.5]), [left, right])
    >>> distribution.mean, distribution.covariance
    (array([[0.]]), array([[[2.]]]))
    """

    def __init__(self, log_weights: npt.ArrayLike, children: Sequence[Multivariate]) -> None:
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
        log_weights = log_weights - log_sum_exp(log_weights, axis=1)[:, np.newaxis]
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

    def clipped(self, low: FloatArray, high: FloatArray) -> TwoArrays:
        """Mean and covariance of values that are moved to limits (n_rows, n_targets) if they are beyond."""
        parts = [child.clipped(low, high) for child in self.children]
        weights = self.weights.T[..., np.newaxis]
        mean = np.sum([weight * part[0] for weight, part in zip(weights, parts, strict=True)], axis=0)
        covariance = np.zeros((self.n_rows, self.n_targets, self.n_targets))
        for weight, (at, within) in zip(weights, parts, strict=True):
            delta = at - mean
            covariance += weight[..., np.newaxis] * (within + delta[:, :, np.newaxis] * delta[:, np.newaxis])
        return mean, covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        return log_sum_exp(self._log_joint(Y), axis=1)

    def _log_joint(self, Y: FloatArray) -> FloatArray:
        return self.log_weights + np.stack([child.log_pdf(Y) for child in self.children], axis=1)

    def marginals(self) -> Marginals:
        """Return the components of all children, with the product of the weights along their paths."""
        parts = [child.marginals() for child in self.children]
        shares = self.weights.T[..., np.newaxis, np.newaxis]
        return Marginals(*mixed(shares, [part.arrays for part in parts]))

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
        """Return the distribution of these rows, in this order."""
        return Mixture(self.log_weights[rows], [child.take(rows) for child in self.children])

    def _condition(self, Y: FloatArray, known: BoolArray) -> Multivariate:
        log_weights = self._log_joint(np.where(known, Y, np.nan))
        return Mixture(log_weights, [child.condition(Y, known) for child in self.children])


class Routed(Multivariate):
    """Children that own disjoint rows.

    Parameters
    ----------
    index : int array of shape (n_rows,)
        Which child owns each row.
    children : sequence of Multivariate
        Child k spans exactly the rows with ``index == k``, in their order; it may have none.

    Examples
    --------
    >>> a = StudentT(np.array([[1.0], [3.0]]), np.eye(1), np.inf)
    >>> b = StudentT(np.array([[2.0]]), np.eye(1), np.inf)
    >>> Routed([0, 1, 0], [a, b]).mean.ravel()
    array([1., 2., 3.])
    """

    def __init__(self, index: npt.ArrayLike, children: Sequence[Multivariate]) -> None:
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
        """Covariance between targets, shape (n_rows, n_targets, n_targets)."""
        covariance = np.empty((self.n_rows, self.n_targets, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            covariance[rows] = child.covariance
        return covariance

    def clipped(self, low: FloatArray, high: FloatArray) -> TwoArrays:
        """Mean and covariance of values that are moved to limits (n_rows, n_targets) if they are beyond."""
        mean, covariance = np.empty(low.shape), np.empty((self.n_rows, self.n_targets, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            mean[rows], covariance[rows] = child.clipped(low[rows], high[rows])
        return mean, covariance

    def log_pdf(self, Y: FloatArray) -> FloatArray:
        """Joint log density of each row; NaN entries are marginalised out."""
        log_pdf = np.empty(self.n_rows)
        for child, rows in zip(self.children, self._rows, strict=True):
            log_pdf[rows] = child.log_pdf(Y[rows])
        return log_pdf

    def marginals(self) -> Marginals:
        """Return the children's marginals row by row, padded to the same number of components."""
        parts = [child.marginals() for child in self.children]
        arrays = padding(self.n_rows, max(part.n_components for part in parts), self.n_targets)
        for part, rows in zip(parts, self._rows, strict=True):
            for array, values in zip(arrays, part.arrays, strict=True):
                array[rows, : part.n_components] = values
        return Marginals(*arrays)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values of every row: shape (size, n_rows, n_targets)."""
        draws = np.empty((size, self.n_rows, self.n_targets))
        for child, rows in zip(self.children, self._rows, strict=True):
            draws[:, rows] = child.sample(size, rng)
        return draws

    def take(self, rows: IntArray) -> Routed:
        """Return the distribution of these rows, in this order."""
        within = np.empty(self.n_rows, dtype=np.intp)
        for mine in self._rows:
            within[mine] = np.arange(mine.size)
        index, within = self.index[rows], within[rows]
        return Routed(index, [child.take(within[index == k]) for k, child in enumerate(self.children)])

    def _condition(self, Y: FloatArray, known: BoolArray) -> Multivariate:
        own = zip(self.children, self._rows, strict=True)
        return Routed(self.index, [child.condition(Y[rows], known) for child, rows in own])


def _common_rows(children: Sequence[Multivariate]) -> int:
    sizes = {child.n_rows for child in children}
    if len(sizes) != 1:
        raise ValueError("children must span the same rows, and there must be at least one")
    return sizes.pop()


def _common_targets(children: Sequence[Multivariate]) -> int:
    sizes = {child.n_targets for child in children}
    if len(sizes) != 1:
        raise ValueError("children must span the same targets, and there must be at least one")
    return sizes.pop()
