"""A region: the rows of one box of the covariate space, the outputs of one group, and one Cholesky factor.

The rows and the hyper-parameters are the truth; the factor and everything solved with it are a cache that can be
dropped (`Region.evict`) and rebuilt at any time without a visible trace.

Letters are those of `momostream.gp.factor`; ``c`` is the conditional variance of a new row. Targets follow

    R | X ~ MatrixNormal(0, K + noise I, Sigma),   Sigma ~ InverseWishart(NU0 + P - 1, NU0 SCALE0 I),

so that a new row has the multivariate Student-t distribution with location ``Z'v``, scale matrix ``c S`` and ``NU0 +
mass`` degrees of freedom, where ``S = (NU0 SCALE0 I + scatter) / (NU0 + mass)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import multigammaln

from momostream.gp.covariance import Covariance
from momostream.gp.factor import Factor, grown
from momostream.gp.scaling import nearest_correlation, standardisation
from momostream.kernels.covariance import gram
from momostream.kernels.scalar import NU0, SCALE0

__all__ = ["HeldOut", "Posterior", "Region"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Correlations are shrunk by this much: exactly collinear outputs keep a proper density, and the day they part
# costs tens of nats, not thousands.
SHRINKAGE = 1e-5

# Elements of the largest scratch matrix of a many-row prediction (128 MB).
CHUNK = 1 << 24


@dataclass(frozen=True)
class Posterior:
    """Predictive Student-t distribution of a batch of rows, in the units of the targets.

    Attributes
    ----------
    mean
        Shape ``(n_rows, n_targets)``.
    variance
        Conditional variance ``c`` of each row, shape ``(n_rows,)``; the scale matrix of row i is ``variance[i] * S``.
    S
        Shape ``(n_targets, n_targets)``.
    dof
        Degrees of freedom; infinite for a Gaussian region.
    extra
        Variance that an output's missing targets add, shape ``(n_rows, n_targets)``; None where none are missing.
    """

    mean: Array
    variance: Array
    S: Array
    dof: float
    extra: Array | None = None

    @property
    def scale(self) -> Array:
        """Scale of each value, shape ``(n_rows, n_targets)``."""
        variance = self.variance[:, None] if self.extra is None else self.variance[:, None] + self.extra
        return np.sqrt(variance * np.diag(self.S))


@dataclass(frozen=True)
class HeldOut:
    """Predictions of a region's own rows, each made without it: location, scale, degrees of freedom."""

    mean: Array
    scale: Array
    dof: float


class Region:
    """Rows, hyper-parameters and the factor that follows from them.

    Parameters
    ----------
    covariance, theta
        The covariance function and its packed log-parameters.
    X
        Rows, shape ``(n_rows, n_inputs)``, finite.
    Y
        Targets, shape ``(n_rows, n_targets)``; NaN is a missing target.
    discount
        Weight of a row's residual relative to the next newer one in the covariance of the outputs: 1 is exact
        Bayes, less forgets.
    gaussian
        If true, the output scales are point estimates, outputs are independent and tails are Gaussian (the paper's
        leaves). Otherwise they are integrated out.
    offset, scale
        Standardisation of the targets, shape ``(n_targets,)``; by default mean and deviation of the rows.
    floor
        Least scale of a prediction of each output, in its units, shape ``(n_targets,)``: a sensor that was constant
        or saturated in all rows of the region may move later. None sets no floor.

    Examples
    --------
    >>> covariance = Covariance.parse("rbf")
    >>> X = np.linspace(0.0, 3.0, 20)[:, None]
    >>> region = Region(covariance, np.log([1.0, 1e-3]), X, np.sin(X))
    >>> print(region.predict(np.array([[1.5]])).mean.round(2))
    [[1.]]
    """

    def __init__(
        self,
        covariance: Covariance,
        theta: Array,
        X: Array,
        Y: Array,
        *,
        discount: float = 1.0,
        gaussian: bool = False,
        offset: Array | None = None,
        scale: Array | None = None,
        floor: Array | None = None,
    ) -> None:
        self.floor = np.zeros(Y.shape[1]) if floor is None else floor
        self.covariance, self.discount, self.gaussian = covariance, discount, gaussian
        self.n_rows = len(X)
        # Copies: rows are moved in place when the oldest is dropped.
        self._X = np.array(X, dtype=np.float64, order="C")
        self._Y = np.array(Y, dtype=np.float64, order="C")
        self._targets = np.empty_like(self._Y)
        self._factor: Factor | None = None
        self._moments: tuple[Array, float] | None = None
        # (K + noise I)^-1 R; None until it is needed.
        self._weights: Array | None = None
        # Rows and matrices of missing targets; None until these are filled from all rows that are there now.
        self._gaps: dict[int, tuple[Rows, Array]] | None = None
        self.condition(theta, offset, scale)

    # ------------------------------------------------------------------ the truth

    @property
    def X(self) -> Array:
        """Rows in order of arrival, shape ``(n_rows, n_inputs)``."""
        return self._X[: self.n_rows]

    @property
    def Y(self) -> Array:
        """Targets in order of arrival, NaN where missing, shape ``(n_rows, n_targets)``."""
        return self._Y[: self.n_rows]

    @property
    def R(self) -> Array:
        """Standardised targets, missing ones filled by their conditional mean, shape ``(n_rows, n_targets)``."""
        self._cache()
        return self._targets[: self.n_rows]

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Which targets are not missing."""
        return ~np.isnan(self.Y)

    @property
    def n_targets(self) -> int:
        """Number of outputs."""
        return self._Y.shape[1]

    def condition(self, theta: Array, offset: Array | None = None, scale: Array | None = None) -> None:
        """Take new hyper-parameters; the factor is rebuilt from the rows when it is next needed."""
        self.theta = np.array(theta, dtype=np.float64)
        self.offset, self.scale = standardisation(self.Y)
        if offset is not None:
            self.offset = np.array(offset, dtype=np.float64)
        if scale is not None:
            self.scale = np.array(scale, dtype=np.float64)
        # The linear term is about the middle of the rows; stationary kernels do not care.
        self.centre = self.X.mean(axis=0) if self.n_rows else np.zeros(self._X.shape[1])
        # How many rows are factorised in one blocked call; later ones are appended. Part of the truth, because the
        # two ways differ in the last bits and a rebuild must repeat them.
        self.n_blocked = self.n_rows
        self.noise = self.covariance.noise(self.theta)
        standardised = (self.Y - self.offset) / self.scale
        self._targets[: self.n_rows] = np.where(np.isnan(standardised), 0.0, standardised)
        self.evict()

    def _fill_missing(self, factor: Factor, gaps: dict[int, tuple[Rows, Array]]) -> None:
        """Set missing targets to their conditional mean given the observed ones of the same output.

        With the filled values, ``K^-1 R`` vanishes there, so means and quadratic forms are those of the observed
        rows alone.
        """
        n = self.n_rows
        R = self._targets[:n]
        for p, (gap, within) in gaps.items():
            R[gap, p] = 0.0
            whitened = factor.solve(np.ascontiguousarray(R[:, p : p + 1]))
            R[gap, p] = -within @ factor.solve_transposed(whitened)[gap, 0]
        factor.Z[:n] = factor.solve(np.ascontiguousarray(R))

    # ------------------------------------------------------------------ the cache

    def evict(self) -> None:
        """Drop everything that can be rebuilt."""
        self._factor = None
        self._forget()

    def _forget(self) -> None:
        """Drop what was worked out from the factor and the rows."""
        self._moments = None
        self._weights = None
        self._gaps = None

    @property
    def nbytes(self) -> int:
        """Bytes held by the cache."""
        factor = self._factor
        if factor is None:
            return 0
        gaps = sum(within.nbytes for _, within in (self._gaps or {}).values())
        return factor.nbytes + gaps + (0 if self._weights is None else self._weights.nbytes)

    def _cache(self) -> Factor:
        """The factor, with missing targets filled from all rows that are there now."""
        factor = self._built()
        if self._gaps is None:
            self._gaps = self._find_gaps(factor)
            if self._gaps:
                self._fill_missing(factor, self._gaps)
        return factor

    def _built(self) -> Factor:
        """The factor, with missing targets filled as they were last."""
        if self._factor is None:
            n = self.n_rows
            inputs = np.vstack([self.centre, self.covariance.inverse_lengths(self.theta)])
            factor = Factor(self.covariance, self.theta, inputs, self.n_targets, n)
            factor.build(self.X, self._targets[:n], self.n_blocked)
            self._factor = factor
        return self._factor

    # ------------------------------------------------------------------ learning

    def append(self, x: Array, y: Array) -> None:
        """Learn one row in O(n_rows^2); NaN in ``y`` is a missing target, filled by its conditional mean.

        Raises
        ------
        ValueError
            The row or a target is not finite; nothing is learnt then.
        """
        factor, n = self._room_for_one(), self.n_rows
        s, mean = factor.scaled(x), np.empty(self.n_targets)
        explained = factor.project(s, mean)
        pivot = math.sqrt(max(self.noise + explained, self.noise))
        r = (y - self.offset) / self.scale
        r = np.where(np.isnan(r), mean, r)
        if not (math.isfinite(explained) and np.isfinite(r).all()):
            raise ValueError("a row and its targets must be finite; only a target may be missing (NaN)")
        factor.append(s, pivot, r - mean)
        self._X[n], self._Y[n], self._targets[n] = x, y, r
        self.n_rows = n + 1
        self._forget()

    def drop_oldest(self) -> None:
        """Forget the oldest row by a stable update of the factor, O(n_rows^2)."""
        n, factor = self.n_rows, self._cache()
        if n == 0:
            raise IndexError("the region has no rows to drop")
        factor.drop_oldest()
        for array in (self._X, self._Y, self._targets):
            array[: n - 1] = array[1:n]
        self.n_rows, self.n_blocked = n - 1, max(self.n_blocked - 1, 0)
        self._forget()

    def _room_for_one(self) -> Factor:
        """Grow rows and cache by half when they are full."""
        n, factor = self.n_rows, self._built()
        capacity = n + 1 if n < len(self._X) else n + n // 2 + 16
        if n >= len(self._X):
            self._X, self._Y, self._targets = (grown(array, capacity) for array in (self._X, self._Y, self._targets))
        if n >= factor.capacity:
            factor.grow(len(self._X))
        return factor

    # ------------------------------------------------------------------ what follows from it

    def moments(self) -> tuple[Array, float]:
        """Covariance ``S`` of the standardised outputs and the degrees of freedom.

        Variances and correlations come from observed entries only: counting filled values as data would make the
        region sure of what it never saw.
        """
        if self._moments is None:
            self._moments = self._measure()
        return self._moments

    def _measure(self) -> tuple[Array, float]:
        n = self.n_rows
        Z, observed = self._cache().Z[:n], self.observed
        age = self.discount ** np.arange(n - 1, -1, -1.0)
        mass = age @ observed
        scatter = age @ (Z * Z)
        variance = (NU0 * SCALE0 + scatter) / (NU0 + mass)
        # No row varies less than the noise.
        least = (self.floor / self.scale) ** 2 / self.noise
        if self.gaussian:
            return np.diag(np.maximum(variance, least)), math.inf
        if observed.all():
            S = (NU0 * SCALE0 * np.eye(self.n_targets) + (Z * age[:, None]).T @ Z) / (NU0 + mass)
        else:
            seen = Z * observed
            paired = (seen * seen * age[:, None]).T @ observed
            prior = NU0 * SCALE0
            correlation = (seen * age[:, None]).T @ seen / np.sqrt((paired + prior) * (paired.T + prior))
            S = nearest_correlation(correlation) * np.sqrt(np.outer(variance, variance))
        diagonal = np.diag(S).copy()
        S = (1.0 - SHRINKAGE) * S
        S[np.diag_indices(self.n_targets)] = diagonal
        raised = np.sqrt(np.maximum(least / diagonal, 1.0))
        return S * np.outer(raised, raised), NU0 + float(mass.mean())

    def means(self, X: Array) -> Array:
        """Means of new rows ``X`` alone, O(n_rows) for each, shape ``(n_rows, n_targets)``."""
        factor = self._cache()
        if self._weights is None:
            self._weights = factor.solve_transposed(np.ascontiguousarray(factor.Z[: self.n_rows]))
        mean = np.empty((len(X), self.n_targets))
        step = max(1, CHUNK // max(self.n_rows, 1))
        for start in range(0, len(X), step):
            part = slice(start, start + step)
            mean[part] = factor.covariances(factor.scaled(X[part])).T @ self._weights
        return mean * self.scale + self.offset

    def predict(self, X: Array) -> Posterior:
        """Predictive distribution of new rows ``X``, shape ``(n_rows, n_inputs)``."""
        n, factor = self.n_rows, self._cache()
        mean, variance = np.empty((len(X), self.n_targets)), np.empty(len(X))
        gaps = self._gaps or {}
        extra = np.zeros_like(mean) if gaps else None
        step = max(1, CHUNK // max(n, 1))
        for start in range(0, len(X), step):
            part = slice(start, start + step)
            _, V, prior = factor.project_rows(X[part])
            mean[part] = V.T @ factor.Z[:n]
            variance[part] = prior - np.einsum("ij,ij->j", V, V)
            if extra is not None:
                # Without the rows of a gap, k'A k falls by w_g' A_gg^-1 w_g, where w = A k and A = (K + noise I)^-1.
                w = factor.solve_transposed(V)
                for p, (gap, within) in gaps.items():
                    extra[part, p] = np.maximum(np.einsum("ij,ij->j", w[gap], within @ w[gap]), 0.0)
        np.maximum(variance + self.noise, self.noise, out=variance)
        S, dof = self.moments()
        return Posterior(mean * self.scale + self.offset, variance, S * np.outer(self.scale, self.scale), dof, extra)

    def _find_gaps(self, factor: Factor) -> dict[int, tuple[Rows, Array]]:
        """For each output with missing targets: their rows g and ``A_gg^-1``, where ``A = (K + noise I)^-1``."""
        missing, n = ~self.observed, self.n_rows
        found = {}
        for p in np.flatnonzero(missing.any(axis=0)):
            gap = np.flatnonzero(missing[:, p])
            columns = np.zeros((n, len(gap)))
            columns[gap, np.arange(len(gap))] = 1.0
            half = factor.solve(columns)
            found[int(p)] = gap, np.asarray(np.linalg.inv(half.T @ half), dtype=np.float64)
        return found

    def posterior_covariance(self, X: Array) -> Array:
        """Covariance between rows for an output of unit scale, noise included, shape ``(len(X), len(X))``."""
        factor = self._cache()
        S, V, _ = factor.project_rows(X)
        K = np.empty((len(X), len(X)))
        gram(factor.kind, factor.linear, factor.noise, S, K)
        return K - V.T @ V

    def held_out(self, blocks: Rows | None = None, *, own_scatter: bool = False) -> HeldOut:
        """Closed-form predictions of the region's own rows, each made without it and its block.

        Parameters
        ----------
        blocks
            Block number of each row; by default each row is a block of its own (leave-one-out).
        own_scatter
            Leave in what a block added to the scatter of the outputs: right where a tail is learnt on top of the
            scales, which are then those of the predictions.

        Returns
        -------
        HeldOut
            NaN where the target is missing.

        Notes
        -----
        With ``A = (K + noise I)^-1``, the residuals of a block B given all other rows are ``A_BB^-1 (A R)_B`` with
        covariance ``A_BB^-1``. The share of the block in the scatter of the outputs is taken out as well (exact for
        ``discount=1``, otherwise left in).
        """
        n, R, observed = self.n_rows, self.R, self.observed
        factor = self._cache()
        alpha = factor.solve_transposed(np.ascontiguousarray(factor.Z[:n]))
        gaps = np.flatnonzero(~observed.all(axis=0))
        if blocks is None and not len(gaps):
            conditional = 1.0 / factor.inverse_diagonal()[:, None]
            residual = alpha * conditional
            own = alpha * residual
        else:
            inverse = factor.inverse()
            alone, residual, own = _left_out(inverse, alpha, blocks)
            conditional = np.repeat(alone[:, None], self.n_targets, axis=1)
            for p in gaps:
                # The filled values know the targets that are held out; only the observed ones may be asked.
                seen = observed[:, p]
                among = _marginal(inverse, seen)
                alone, held, added = _left_out(among, alpha[seen, p : p + 1], None if blocks is None else blocks[seen])
                conditional[seen, p], residual[seen, p], own[seen, p] = alone, held[:, 0], added[:, 0]
        S, dof = self.moments()
        variance = np.broadcast_to(np.diag(S), R.shape)
        if self.discount == 1.0 and not own_scatter:
            mass = NU0 + observed.sum(axis=0)
            left = mass - (1 if blocks is None else _block_sums(blocks, observed))
            variance = np.maximum(variance * mass - own, NU0 * SCALE0) / np.maximum(left, NU0)
        mean = np.where(observed, (R - residual) * self.scale + self.offset, np.nan)
        return HeldOut(mean, np.sqrt(conditional * variance) * self.scale, dof)

    def log_evidence(self) -> float:
        """Log density of the targets given the rows and hyper-parameters: for ``discount=1`` and no missing targets."""
        n, P = self.n_rows, self.n_targets
        factor, observed = self._cache(), self.observed
        if n == 0:
            return 0.0
        log_det, counts = float(np.log(factor.pivots).sum()), observed.sum(axis=0)
        units = float(counts @ np.log(self.scale))
        Z = factor.Z[:n]
        if self.gaussian:
            variance = np.diag(self.moments()[0])
            quadratic = float((np.square(Z).sum(axis=0) / variance).sum())
            return -0.5 * quadratic - 0.5 * float(counts @ np.log(2 * np.pi * variance)) - P * log_det - units
        nu, prior = NU0 + P - 1.0, NU0 * SCALE0
        scatter = prior * np.eye(P) + Z.T @ Z
        return float(
            -0.5 * n * P * math.log(math.pi)
            + multigammaln(0.5 * (nu + n), P)
            - multigammaln(0.5 * nu, P)
            + 0.5 * nu * P * math.log(prior)
            - 0.5 * (nu + n) * np.linalg.slogdet(scatter)[1]
            - P * log_det
            - units
        )


def _left_out(inverse: Array, alpha: Array, blocks: Rows | None) -> tuple[Array, Array, Array]:
    """Variance and residuals of rows given the other blocks, and what each row's block adds to the scatter.

    ``inverse`` is that of the covariance of the rows, ``alpha`` its product with the targets ``(n, n_targets)``.
    """
    if blocks is None:
        variance = 1.0 / np.diag(inverse)
        residual = alpha * variance[:, None]
        return variance, residual, alpha * residual
    variance, residual, own = np.empty(len(alpha)), np.empty_like(alpha), np.empty_like(alpha)
    for block in np.unique(blocks):
        inside = np.flatnonzero(blocks == block)
        within = np.linalg.inv(inverse[np.ix_(inside, inside)])
        residual[inside] = within @ alpha[inside]
        variance[inside] = np.diag(within)
        own[inside] = (alpha[inside] * residual[inside]).sum(axis=0)
    return variance, residual, own


def _marginal(inverse: Array, kept: NDArray[np.bool_]) -> Array:
    """Inverse of the covariance of the kept rows, from the inverse of that of all rows."""
    gone = ~kept
    away = np.linalg.solve(inverse[np.ix_(gone, gone)], inverse[np.ix_(gone, kept)])
    return np.asarray(inverse[np.ix_(kept, kept)] - inverse[np.ix_(kept, gone)] @ away, dtype=np.float64)


def _block_sums(blocks: Rows, values: NDArray[np.bool_]) -> Array:
    """Sum of the values of each row's block, shape as ``values``."""
    names, number = np.unique(blocks, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, number, values)
    return sums[number]
