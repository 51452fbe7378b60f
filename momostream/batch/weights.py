"""Weights of the children of a sum, posterior or stacked; the tails and the copula that stacking is scored with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from momostream.distributions.student import correlation_of, mvt_log_pdf, solve_lower, t_log_pdf, t_quantile
from momostream.gp.scaling import nearest_correlation

__all__ = ["Copula", "Tail", "posterior_log_weights", "stacking_weights", "updated_log_weights"]

Array = NDArray[np.float64]

# No child is ever switched off for good: the feed may change.
LEAST_WEIGHT = 1e-4

TAIL_DOFS = (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0, 50.0, np.inf)
# Held-out residuals never make a scale smaller than by this factor.
LEAST_FACTOR = 0.05
COPULA_DOFS = (3.0, 4.0, 6.0, 10.0, 20.0, 50.0, np.inf)
COPULA_BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)
COPULA_STRENGTHS = (0.25, 0.5, 0.75, 0.9, 1.0)

# Most rows that stacking weights count for when more rows arrive.
WEIGHT_MEMORY = 1000
# Rows beyond these say nothing new about a handful of weights.
MAX_STACKING_ROWS, MAX_COPULA_ROWS = 20_000, 4_000


def posterior_log_weights(log_evidence: Array, log_prior: Array | None = None) -> Array:
    """Exact Bayes: log of ``prior * exp(evidence)``, renormalised (eq. of the paper's sum node)."""
    joint = np.asarray(log_evidence, dtype=float) + (0.0 if log_prior is None else log_prior)
    return np.asarray(joint - logsumexp(joint), dtype=float)


def stacking_weights(log_densities: Array) -> Array:
    """Weights of the mixture with the best mean log density, per target.

    Parameters
    ----------
    log_densities
        Held-out log density of each child, row and target, shape ``(n_children, n_rows, n_targets)``; NaN where
        the target is missing.

    Returns
    -------
    weights
        Shape ``(n_children, n_targets)``, at least `LEAST_WEIGHT`, columns sum to 1.

    Examples
    --------
    >>> likely, unlikely = np.full((10, 1), -1.0), np.full((10, 1), -9.0)
    >>> stacking_weights(np.stack([likely, unlikely])).round(3)
    array([[1.],
           [0.]])
    """
    n_children, n_rows, n_targets = log_densities.shape
    if n_rows > MAX_STACKING_ROWS:
        log_densities = log_densities[:, np.linspace(0, n_rows - 1, MAX_STACKING_ROWS).round().astype(np.intp)]
    if n_children == 1:
        return np.ones((1, n_targets))
    weights = np.column_stack([_best_mixture(log_densities[:, :, p]) for p in range(n_targets)])
    return _with_floor(weights)


def updated_log_weights(log_weights: Array, log_densities: Array, n_rows: int) -> Array:
    """Stacking weights after more rows: one step of expectation maximisation, in which the past counts as `n_rows`.

    Parameters
    ----------
    log_weights
        Shape ``(n_children, n_targets)``.
    log_densities
        Of each child, new row and target, shape ``(n_children, n_new_rows, n_targets)``; NaN where the target is
        missing.
    n_rows
        Rows that the weights were learnt from.
    """
    joint = log_weights[:, None, :] + log_densities
    share = np.exp(joint - np.nanmax(joint, axis=0, initial=-np.inf, where=~np.isnan(joint)))
    share /= share.sum(axis=0)
    seen = ~np.isnan(share[0])
    before = min(n_rows, WEIGHT_MEMORY)
    total = before * np.exp(log_weights) + np.nansum(share, axis=1)
    return np.log(_with_floor(total / (before + seen.sum(axis=0))))


def _with_floor(weights: Array) -> Array:
    """Weights of at least about `LEAST_WEIGHT`, columns sum to 1."""
    weights = np.maximum(weights, LEAST_WEIGHT)
    return weights / weights.sum(axis=0)


def _best_mixture(log_densities: Array) -> Array:
    """Expectation maximisation of the weights of children (rows) over values (columns); the problem is concave."""
    weights = np.full(len(log_densities), 1.0 / len(log_densities))
    known = log_densities[:, ~np.isnan(log_densities).any(axis=0)]
    if not known.shape[1]:
        return weights
    density = np.exp(known - known.max(axis=0))
    for _ in range(300):
        share = weights[:, None] * density
        share /= share.sum(axis=0)
        updated = share.mean(axis=1)
        done = np.abs(updated - weights).max() < 1e-7
        weights = updated
        if done:
            break
    return weights


@dataclass(frozen=True)
class Tail:
    """Degrees of freedom and scale factor of each target, shapes ``(n_targets,)``."""

    dof: Array
    factor: Array

    @classmethod
    def fit(cls, scores: list[Array]) -> Tail:
        """Best Student-t for held-out residuals in units of their predicted scale.

        Parameters
        ----------
        scores
            The residuals of each target, in any order; NaN counts as missing.
        """
        found = [_best_tail(each[~np.isnan(each)]) for each in scores]
        return cls(np.array([dof for dof, _ in found]), np.array([factor for _, factor in found]))


def _best_tail(z: Array) -> tuple[float, float]:
    if len(z) < 8:
        return 5.0, 1.0
    best, best_score = (5.0, 1.0), -np.inf
    square = z * z
    if np.median(square) < LEAST_FACTOR**2:
        # A target that did not vary says nothing about its size when it moves.
        return TAIL_DOFS[0], LEAST_FACTOR
    variance = max(float(np.median(square)) / 0.455, 1e-12)
    for dof in reversed(TAIL_DOFS):
        # Maximum likelihood of the scale: iteratively reweighted mean square.
        for _ in range(60):
            weight = 1.0 if np.isinf(dof) else (dof + 1.0) / (dof + square / variance)
            updated = max(float((weight * square).mean()), 1e-12)
            done = abs(updated - variance) < 1e-6 * variance
            variance = updated
            if done:
                break
        score = float(t_log_pdf(z / np.sqrt(variance), dof).mean()) - 0.5 * np.log(variance)
        if score > best_score:
            best, best_score = (dof, max(float(np.sqrt(variance)), LEAST_FACTOR)), score
    return best


@dataclass(frozen=True)
class Copula:
    """The t-copula that joins the stacked marginals.

    Attributes
    ----------
    dof
        Degrees of freedom.
    blend
        Share of `residual` in the correlation of a row; the rest is the experts' own correlation there.
    strength
        Factor on all correlations: 1 trusts them, 0 makes the targets independent.
    residual
        Correlation of the normal scores of held-out residuals, shape ``(n_targets, n_targets)``.
    """

    dof: float
    blend: float
    strength: float
    residual: Array

    @classmethod
    def fit(cls, U: Array, correlation: Array, folds: NDArray[np.intp]) -> Copula:
        """Choose degrees of freedom, blend and strength by the held-out log density.

        The residual correlation that a row is scored with comes from the other folds, so that only correlations
        that carry over from one stretch of rows to the next are believed.

        Parameters
        ----------
        U
            Held-out probability integral transforms, shape ``(n_rows, n_targets)``, NaN where missing.
        correlation
            The experts' correlation at each row, shape ``(n_rows, n_targets, n_targets)``.
        folds
            Fold of each row, shape ``(n_rows,)``.
        """
        n_targets = U.shape[1]
        complete = np.flatnonzero(~np.isnan(U).any(axis=1))
        if n_targets == 1 or len(complete) < 3 * n_targets:
            return cls(10.0, 0.0, 1.0, np.eye(n_targets))
        U = np.clip(U[complete], 1e-15, 1.0 - 1e-15)
        folds, scores = folds[complete], ndtri(U)
        kept = np.linspace(0, len(U) - 1, min(len(U), MAX_COPULA_ROWS)).round().astype(np.intp)
        U, experts = U[kept], correlation[complete[kept]]
        elsewhere = np.empty_like(experts)
        for fold in np.unique(folds):
            others = scores[folds != fold]
            elsewhere[folds[kept] == fold] = residual_correlation(others if len(others) > n_targets else scores)
        latent = {dof: t_quantile(U, dof) for dof in COPULA_DOFS}

        def score(dof: float, blend: float, strength: float) -> float:
            factor = np.linalg.cholesky(_blended(experts, elsewhere, blend, strength))
            return float(log_copula(latent[dof], np.asarray(factor, dtype=float), dof).mean())

        # One parameter after the other, twice: they hardly interact.
        best = {"dof": 10.0, "blend": 0.5, "strength": 1.0}
        grids = {"blend": COPULA_BLENDS, "strength": COPULA_STRENGTHS, "dof": COPULA_DOFS}
        for name, grid in (*grids.items(), *grids.items()):
            best[name] = max(grid, key=lambda value, name=name: score(**{**best, name: value}))  # type: ignore[misc]
        return cls(**best, residual=residual_correlation(scores))

    def correlation(self, experts: Array) -> Array:
        """Correlation of each row given the experts' own, shape as ``experts``."""
        return _blended(experts, self.residual, self.blend, self.strength)


def _blended(experts: Array, residual: Array, blend: float, strength: float) -> Array:
    mixed = (1.0 - blend) * experts + blend * residual
    return strength * mixed + (1.0 - strength) * np.eye(experts.shape[-1])


def residual_correlation(scores: Array) -> Array:
    """Correlation of normal scores, shrunk by the number of targets per row, robust to outliers.

    A multivariate t of 4 degrees of freedom is fitted by iteratively reweighted moments.
    """
    n, P = scores.shape
    weight = np.ones(n)
    for _ in range(10):
        moments = (scores * weight[:, None]).T @ scores / n + 1e-9 * np.eye(P)
        shrunk = correlation_of(moments) * (n / (n + P)) + np.eye(P) * (P / (n + P))
        distance = np.einsum("ij,ij->i", scores, np.linalg.solve(shrunk, scores.T).T)
        weight = (4.0 + P) / (4.0 + distance)
    return nearest_correlation(shrunk)


def log_copula(z: Array, factor: Array, dof: float) -> Array:
    """Log density of the t-copula at latent scores ``z`` (n, P) with Cholesky factors (n, P, P)."""
    white = solve_lower(factor, z)
    squares = np.einsum("ij,ij->i", white, white)
    log_det = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    joint = mvt_log_pdf(squares, log_det, np.full(len(z), dof), z.shape[1])
    return joint - t_log_pdf(z, dof).sum(axis=1)
