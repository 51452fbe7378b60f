"""Bayesian linear regression in weight space: no stored rows, O(n_inputs^2) per row.

``R = Phi B + noise`` with ``Phi = [1, (X - centre) / std]``, a ridge prior on the slopes and a nearly flat one on
the intercept; the covariance of the targets is integrated out as in `momostream.batch.region`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from momostream.batch.region import SHRINKAGE, HeldOut, Posterior
from momostream.distributions.student import correlation_of
from momostream.gp.covariance import input_std
from momostream.gp.scaling import nearest_correlation, standardisation
from momostream.kernels.scalar import NU0, SCALE0

__all__ = ["LinearRegression"]

Array = NDArray[np.float64]

# Prior precisions (in rows of noise) of the slopes among which the evidence chooses.
RIDGES = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
INTERCEPT_RIDGE = 1e-6
# Certainty that a row keeps to itself where it hides all others, and the prior, in round-off.
HIDDEN = 1e-12


class LinearRegression:
    """Bayesian linear regression of all targets on all covariates.

    Examples
    --------
    >>> X = np.arange(8.0)[:, None]
    >>> regression = LinearRegression.fit(X, 3.0 * X - 1.0)
    >>> print(regression.predict(np.array([[10.0]])).mean.round(2))
    [[29.]]
    """

    def __init__(self, centre: Array, std: Array, offset: Array, scale: Array) -> None:
        self.centre, self.std, self.offset, self.scale = centre, std, offset, scale
        width, P = len(centre) + 1, len(offset)
        self.ridge = 1.0
        self.n_rows = 0
        # Sufficient statistics, of the observed rows of each target.
        self.gram = np.zeros((P, width, width))
        self.cross = np.zeros((width, P))
        self.squares = np.zeros((P, P))
        self.pairs = np.zeros((P, P))
        # The same of the rows without a missing target, for the correlation of the targets.
        self.whole_gram = np.zeros((width, width))
        self.whole_cross = np.zeros((width, P))
        self.whole_squares = np.zeros((P, P))
        self.n_whole = 0
        self._solution: tuple[Array, Array, Array, float] | None = None

    @classmethod
    def fit(cls, X: Array, Y: Array, blocks: NDArray[np.intp] | None = None) -> LinearRegression:
        """Learn from rows ``X`` and targets ``Y`` (NaN = missing) and choose the ridge.

        The evidence chooses it, or the squared error on ``blocks`` of held-out rows where these are given: thousands
        of rows that resemble their neighbours are not evidence about the next stretch.
        """
        regression = cls(X.mean(axis=0), input_std(X), *standardisation(Y))
        regression.learn(X, Y)

        def held_out_error(ridge: float) -> float:
            regression.ridge, regression._solution = ridge, None
            return float(np.nansum(((regression.held_out(X, Y, blocks).mean - Y) / regression.scale) ** 2))

        best = max(RIDGES, key=regression.log_evidence) if blocks is None else min(RIDGES, key=held_out_error)
        regression.ridge, regression._solution = best, None
        return regression

    def learn(self, X: Array, Y: Array) -> None:
        """Add rows; the result does not depend on how they were cut into calls, up to round-off."""
        Phi, R = self._features(X), (Y - self.offset) / self.scale
        observed = ~np.isnan(R)
        R = np.where(observed, R, 0.0)
        if observed.all():
            self.gram += Phi.T @ Phi
        else:
            self.gram += np.stack([Phi[seen].T @ Phi[seen] for seen in observed.T])
        self.cross += Phi.T @ R
        self.squares += R.T @ R
        self.pairs += observed.T.astype(float) @ observed
        whole = observed.all(axis=1)
        self.whole_gram += Phi[whole].T @ Phi[whole]
        self.whole_cross += Phi[whole].T @ R[whole]
        self.whole_squares += R[whole].T @ R[whole]
        self.n_whole += int(whole.sum())
        self.n_rows += len(X)
        self._solution = None

    def _features(self, X: Array) -> Array:
        return np.column_stack([np.ones(len(X)), (X - self.centre) / self.std])

    def _prior(self, ridge: float) -> Array:
        return np.r_[INTERCEPT_RIDGE, np.full(len(self.centre), ridge)]

    def _solve(self) -> tuple[Array, Array, Array, float]:
        """Weights (width, P), inverse precision (P, width, width), covariance ``S`` (P, P), degrees of freedom."""
        if self._solution is None:
            inverse = _inverses(self.gram + np.diag(self._prior(self.ridge)))
            B = np.einsum("pij,jp->ip", inverse, self.cross)
            mass = np.diag(self.pairs)
            # Quadratic form of the residuals plus that of the weights under their prior.
            scatter = np.diag(self.squares) - np.einsum("ip,ip->p", B, self.cross)
            variance = (NU0 * SCALE0 + np.maximum(scatter, 0.0)) / (NU0 + mass)
            correlation = nearest_correlation((1.0 - SHRINKAGE) * self._residual_correlation(B))
            S = correlation * np.sqrt(np.outer(variance, variance))
            self._solution = B, inverse, S, NU0 + float(mass.mean())
        return self._solution

    def _residual_correlation(self, B: Array) -> Array:
        """Correlation of the residuals; with missing targets from the rows that have all, shrunk by their number."""
        if self.n_whole == self.n_rows:
            moments, trust = self.squares - B.T @ self.cross, 1.0
        else:
            mixed = B.T @ self.whole_cross
            moments = self.whole_squares - mixed - mixed.T + B.T @ self.whole_gram @ B
            trust = self.n_whole / (self.n_whole + B.shape[1])
        size = np.sqrt(np.maximum(np.diag(moments), 1e-300))
        # Residuals of nothing but round-off can seem to correlate by more than 1, or by more than any number.
        with np.errstate(over="ignore"):
            return trust * np.clip(moments / size / size[:, None], -1.0, 1.0)

    def _best_seen(self) -> int:
        """The target that was observed in most rows."""
        return int(np.argmax(np.diag(self.pairs)))

    def log_evidence(self, ridge: float | None = None) -> float:
        """Log density of the targets with the weights and target scales integrated out, one target at a time."""
        prior = self._prior(self.ridge if ridge is None else ridge)
        precision = self.gram + np.diag(prior)
        B = np.linalg.solve(precision, self.cross.T[:, :, None])[:, :, 0]
        counts = np.diag(self.pairs)
        log_det = np.linalg.slogdet(precision)[1] - np.log(prior).sum()
        quadratic = np.maximum(np.diag(self.squares) - np.einsum("pi,ip->p", B, self.cross), 0.0)
        nu, scatter = NU0, NU0 * SCALE0
        each = (
            -0.5 * counts * math.log(math.pi)
            + gammaln(0.5 * (nu + counts))
            - gammaln(0.5 * nu)
            + 0.5 * nu * math.log(scatter)
            - 0.5 * (nu + counts) * np.log(scatter + quadratic)
            - 0.5 * log_det
            - counts * np.log(self.scale)
        )
        return float(each.sum())

    def means(self, X: Array) -> Array:
        """Means of new rows ``X``, shape ``(n_rows, n_targets)``."""
        return self._features(X) @ self._solve()[0] * self.scale + self.offset

    def predict(self, X: Array) -> Posterior:
        """Predictive distribution of new rows ``X``, shape ``(n_rows, n_inputs)``."""
        B, inverse, S, dof = self._solve()
        Phi = self._features(X)
        # Variances, in units of the variance of the noise.
        # Far away, round-off of the inverse can make the quadratic form negative.
        c = 1.0 + np.maximum(np.einsum("ij,jk,ik->i", Phi, inverse[self._best_seen()], Phi), 0.0)
        extra = None
        if self.n_whole < self.n_rows:
            extra = 1.0 + np.maximum(np.einsum("ij,pjk,ik->ip", Phi, inverse, Phi), 0.0) - c[:, None]
        return Posterior(Phi @ B * self.scale + self.offset, c, S * np.outer(self.scale, self.scale), dof, extra)

    def held_out(
        self, X: Array, Y: Array, blocks: NDArray[np.intp] | None = None, *, own_scatter: bool = False
    ) -> HeldOut:
        """Predictions of rows that were learnt, as if without each row's block (or the row).

        As in `momostream.batch.region.Region.held_out`.
        """
        B, inverse, S, dof = self._solve()
        Phi, R = self._features(X), (Y - self.offset) / self.scale
        # Means, and variances in units of the variance of the noise.
        mean, c = np.full_like(R, np.nan), np.ones_like(R)
        # Share of a row's block in the scatter of the targets, and number of its targets.
        own, count = np.zeros_like(R), np.ones_like(R)
        targets = np.arange(R.shape[1])
        # Targets without gaps share one precision.
        for group in [targets] if self.n_whole == self.n_rows else np.split(targets, len(targets)):
            A = inverse[group[0]]
            seen = np.flatnonzero(~np.isnan(R[:, group[0]]))
            residual = R[np.ix_(seen, group)] - Phi[seen] @ B[:, group]
            if blocks is None:
                at = np.ix_(seen, group)
                left = np.maximum(1.0 - np.einsum("ij,jk,ik->i", Phi[seen], A, Phi[seen]), 1e-6)[:, None]
                mean[at], c[at] = R[at] - residual / left, 1.0 / left
                own[at] = residual**2 / left
                continue
            for block in np.unique(blocks[seen]):
                inside = np.flatnonzero(blocks[seen] == block)
                at, rows = np.ix_(seen[inside], group), Phi[seen[inside]]
                within = np.linalg.inv(np.eye(len(inside)) - rows @ A @ rows.T)
                held = within @ residual[inside]
                mean[at], c[at] = R[at] - held, np.diag(within)[:, None]
                own[at], count[at] = np.einsum("ij,ij->j", residual[inside], held), len(inside)
        mass = NU0 + np.diag(self.pairs)
        if own_scatter:
            own[:], count[:] = 0.0, 0.0
        variance = np.maximum(np.diag(S) * mass - own, NU0 * SCALE0) / np.maximum(mass - count, NU0)
        return HeldOut(mean * self.scale + self.offset, np.sqrt(c * variance) * self.scale, dof)

    def posterior_covariance(self, X: Array) -> Array:
        """Covariance between rows for a target of unit scale, noise included, shape ``(len(X), len(X))``."""
        inverse, Phi = self._solve()[1], self._features(X)
        return Phi @ inverse[self._best_seen()] @ Phi.T + np.eye(len(X))

    def correlation(self) -> Array:
        """Correlation of the targets, shape ``(n_targets, n_targets)``."""
        return correlation_of(self._solve()[2])


def _inverses(precision: Array) -> Array:
    """Inverses of precisions ``(P, width, width)``, also of those that a row far beyond all others makes singular."""
    try:
        return np.asarray(np.linalg.inv(precision), dtype=np.float64)
    except np.linalg.LinAlgError:
        size = np.sqrt(np.diagonal(precision, axis1=1, axis2=2))
        sizes = size[:, :, None] * size[:, None, :]
        return np.asarray(np.linalg.inv(precision / sizes + HIDDEN * np.eye(size.shape[1])) / sizes, dtype=np.float64)
