"""Moments of a copula by quadrature: mean, standard deviation and cut given some targets, and covariances.

Tails are cut where samples are, see `momostream.distributions.moments`; for covariances all others, too, at a
probability of 1e-9, where they have no more weight: the values beyond, up to 1e66, would drown all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtr

from momostream.distributions.marginals import row_chunks
from momostream.distributions.moments import CUT, LEAST_INDEX, MOST_KURTOSIS, Moments, cut_score, settled
from momostream.distributions.quantiles import QuantileTable, normal_scores
from momostream.distributions.student import FloatArray, IntArray, correlation_of, t_cdf, t_quantile

if TYPE_CHECKING:
    from momostream.distributions.copula import CopulaDistribution

__all__ = ["conditioned_moments", "covariance", "tail_index"]

# Normal scores reach tail probabilities of 1e-17.
_REACH = 8.5
# Cells for the moments of a conditioned distribution, and Gauss-Legendre points inside each of them.
_EDGES = np.linspace(-_REACH, _REACH, 129)
_INNER, _INNER_WEIGHTS = np.polynomial.legendre.leggauss(3)
# Scores of the scale that all latent values of a t-copula share.
_SCALE_SCORES = np.linspace(-4.5, 4.5, 17)
# Where tails that are otherwise not cut are cut for covariances.
_FAR = 1e-9
# Nodes and terms of the Hermite expansion; a Gaussian copula has one scale only and can afford more nodes.
_N_NODES, _N_NODES_GAUSSIAN = 129, 513
_N_TERMS = 32
# Even orders that stand for those beyond: equally likely under a density of k^-1.5.
_LEFT_OUT = [2 * int(0.5 * _N_TERMS / u**2 + 0.5) for u in (np.arange(12) + 0.5) / 12]


def _normal_weights(scores: FloatArray) -> FloatArray:
    """Weights of the trapezoidal rule for expectations under the standard normal."""
    density = np.exp(-0.5 * scores**2)
    return np.asarray(density / density.sum())


def conditioned_moments(d: CopulaDistribution) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, standard deviation and cut by integrating tail probabilities over y.

    E y = c + int_c^inf P(Y > y) dy - int_-inf^c P(Y < y) dy for any centre c, and likewise for higher
    moments. Over y and not over scores, because quantiles may jump.
    """
    mean, std, cut = np.empty((3, d.n_rows, d.n_targets))
    for rows in row_chunks(d.n_rows, _EDGES.size * d.n_targets * d._marginals.n_components):
        mean[rows], std[rows], cut[rows] = _settled_by_quadrature(d[rows])
    return mean, std, cut


def _settled_by_quadrature(d: CopulaDistribution) -> tuple[FloatArray, FloatArray, FloatArray]:
    heavy = _raised(d, d._marginals.tail_index) < LEAST_INDEX
    cut = np.where(heavy, CUT, 0.0)
    mean, variance, kurtosis = _moments_by_quadrature(d, cut)
    ruled = kurtosis > MOST_KURTOSIS
    rows = np.flatnonzero(ruled.any(axis=1))
    if rows.size:
        part = d[rows]
        for j in np.flatnonzero(ruled.any(axis=0)):

            def moments_at(some: IntArray, p: float, part: CopulaDistribution = part, j: int = int(j)) -> Moments:
                found = _moments_by_quadrature(part[some], np.full((some.size, part.n_targets), p))
                return Moments(*(moment[:, j] for moment in found))

            found = settled(rows.size, moments_at)
            at = ruled[rows, j]
            variance[rows[at], j], cut[rows[at], j] = (array[at] for array in found)
    return mean, np.sqrt(variance), cut


def _moments_by_quadrature(d: CopulaDistribution, cut: FloatArray) -> Moments:
    """Moments (n_rows, n_targets) after a cut of the same shape."""
    # The edges only have to be near quantiles, so that a table does.
    # Integrals of tails that end at the cut are those of the cut distribution.
    reach = cut_score(cut)[..., np.newaxis]
    t = t_quantile(ndtr(-np.minimum(np.abs(_EDGES), reach)), d._latent.dof[:, np.newaxis, np.newaxis])
    z = d._latent.mean[..., np.newaxis] + d._latent.scales[..., np.newaxis] * np.where(_EDGES > 0.0, -t, t)
    edges = np.moveaxis(QuantileTable(d._marginals).lines(_base_scores(z, d._dof[:, np.newaxis, np.newaxis])), 2, 0)
    half = 0.5 * np.diff(edges, axis=0)
    middle = _EDGES.size // 2
    centre = edges[middle]
    below = (np.arange(_EDGES.size - 1) < middle)[:, np.newaxis, np.newaxis]
    first, second, third, fourth = np.zeros((4, d.n_rows, d.n_targets))
    for x, weight in zip(_INNER, _INNER_WEIGHTS, strict=True):
        y = edges[:-1] + half * (1.0 + x)
        lower, upper = d._tails(y)
        mass = weight * half * np.where(below, -lower, upper)
        first += mass.sum(axis=0)
        away = y - centre
        second += 2.0 * (mass * away).sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            third += 3.0 * (mass * away**2).sum(axis=0)
            fourth += 4.0 * (mass * away**3).sum(axis=0)
    variance = np.maximum(second - first**2, 0.0)
    with np.errstate(all="ignore"):
        kurtosis = (fourth - 4.0 * first * third + 6.0 * first**2 * second - 3.0 * first**4) / variance**2
    return Moments(centre + first, variance, kurtosis)


def tail_index(d: CopulaDistribution) -> FloatArray:
    """Moments of a conditioned distribution exist up to this order: that of the marginals, raised by what is known."""
    return _raised(d, d._marginals.tail_index)


def _raised(d: CopulaDistribution, index: FloatArray) -> FloatArray:
    finite = np.isfinite(d._dof)
    raised = np.where(finite, d._latent.dof, 1.0) / np.where(finite, d._dof, 1.0)
    factor = np.where(finite[:, np.newaxis], raised[:, np.newaxis], d._latent.scales**-2.0)
    return np.asarray(index * factor)


def covariance(d: CopulaDistribution) -> FloatArray:
    """Covariance of the targets of a copula, shape (n_rows, n_targets, n_targets)."""
    found = np.empty((d.n_rows, d.n_targets, d.n_targets))
    gaussian = np.isinf(d._latent.dof)
    # Apart, so that a row is treated in the same way whatever the others are.
    for group in (np.flatnonzero(gaussian), np.flatnonzero(~gaussian)):
        for part in row_chunks(group.size, _SCALE_SCORES.size * _N_NODES * d.n_targets):
            found[group[part]] = _covariance_by_quadrature(d[group[part]])
    # Only the shape of the dependence is left to quadrature: variances are those of the marginals.
    std = d.std
    diagonal = np.arange(d.n_targets)
    root = np.sqrt(found[:, diagonal, diagonal])
    stretch = std / np.where(root > 0.0, root, 1.0)
    found *= stretch[:, :, np.newaxis] * stretch[:, np.newaxis]
    found[:, diagonal, diagonal] = std**2
    return found


def _covariance_by_quadrature(d: CopulaDistribution) -> FloatArray:
    """Covariance up to the cut tails. Degrees of freedom are finite in all rows, or in none."""
    scales, scale_weights = _shared_scales(d._latent.dof)
    n_nodes = _N_NODES_GAUSSIAN if scale_weights.size == 1 else _N_NODES
    nodes = np.linspace(-_REACH, _REACH, n_nodes)
    y = _values_at(d, scales, nodes)
    latent = np.broadcast_to(d._latent.scale, (d.n_rows, d.n_targets, d.n_targets))
    return _expansion(y, correlation_of(latent), nodes, scale_weights)


def _values_at(d: CopulaDistribution, scales: FloatArray, nodes: FloatArray) -> FloatArray:
    """Targets, less their means, where the latent values are `scales` times `nodes`.

    `scales` has shape (n_rows, n_scales), the values (n_rows, n_targets, n_scales, n_nodes).
    """
    cut = np.where(d.cut > 0.0, d.cut, _FAR)
    if d._conditioned:
        reach = -t_quantile(cut, d._latent.dof[:, np.newaxis])[..., np.newaxis, np.newaxis]
        z = np.clip(scales[:, np.newaxis, :, np.newaxis] * nodes, -reach, reach)
        z = d._latent.mean[..., np.newaxis, np.newaxis] + d._latent.scales[..., np.newaxis, np.newaxis] * z
        scores = _base_scores(z, d._dof[:, np.newaxis, np.newaxis, np.newaxis])
    else:
        # Not worth repeating for rows of the same degrees of freedom.
        dofs, first, same = np.unique(d._dof, return_index=True, return_inverse=True)
        z = scales[first, np.newaxis, :, np.newaxis] * nodes
        scores = _base_scores(z, dofs[:, np.newaxis, np.newaxis, np.newaxis])[same.ravel()]
        reach = cut_score(cut)[..., np.newaxis, np.newaxis]
        scores = np.clip(scores, -reach, reach)
    scores = np.broadcast_to(scores, (d.n_rows, d.n_targets, *scores.shape[2:]))
    y = QuantileTable(d._marginals).lines(scores)
    y -= y.mean(axis=(2, 3), keepdims=True)
    return y


def _expansion(y: FloatArray, correlation: FloatArray, nodes: FloatArray, scale_weights: FloatArray) -> FloatArray:
    """Covariance of values `y` (n_rows, n_targets, n_scales, n_nodes) under latent correlations.

    Given the shared scale the copula is Gaussian: E y_i y_j = sum_k rho_ij^k a_ik a_jk, a_ik = E y_i h_k.
    """
    n_rows, n_targets = y.shape[:2]
    node_weights = _normal_weights(nodes)
    h = _hermite(nodes, _N_TERMS)
    a = y @ (h * node_weights).T  # (n_rows, n_targets, n_scales, n_terms)
    residual = y - a @ h
    a[..., 0] -= (scale_weights * a[..., 0]).sum(axis=2, keepdims=True)
    root = np.sqrt(scale_weights)
    power = np.ones_like(correlation)
    total = np.zeros_like(correlation)
    for k in range(_N_TERMS):
        b = a[..., k] * root
        total += power * (b @ np.swapaxes(b, 1, 2))
        power *= correlation
    # The expansion leaves out what is due to jumps, whose terms fall off as k^-1.5, even and odd ones apart.
    # They get an average of powers of the correlation: that keeps the matrix semi-definite, and is exact
    # for correlations of 0, 1 and -1.
    root_weights = 0.5 * root[:, np.newaxis] * np.sqrt(node_weights)
    for odd, part in enumerate((residual + residual[..., ::-1], residual - residual[..., ::-1])):
        b = (part * root_weights).reshape(n_rows, n_targets, -1)
        power = np.mean([correlation ** (k + odd) for k in _LEFT_OUT], axis=0)
        total += power * (b @ np.swapaxes(b, 1, 2))
    return np.asarray(0.5 * (total + np.swapaxes(total, 1, 2)))


def _shared_scales(dof: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes (n_rows, n_scales) and weights (n_scales,) of sqrt(dof / chi2(dof)), shared by all z."""
    if np.isinf(dof).all():
        return np.ones((dof.size, 1)), np.ones(1)
    half = 0.5 * dof[:, np.newaxis]
    tail = ndtr(-np.abs(_SCALE_SCORES))
    gamma = np.where(_SCALE_SCORES < 0.0, gammaincinv(half, tail), gammainccinv(half, tail))
    return np.sqrt(half / np.maximum(gamma, 1e-100)), _normal_weights(_SCALE_SCORES)


def _hermite(x: FloatArray, n_terms: int) -> FloatArray:
    """Return Hermite polynomials at `x`, orthonormal under the standard normal: (n_terms, x.size)."""
    h = np.ones((n_terms, x.size))
    h[1] = x
    for k in range(2, n_terms):
        h[k] = (x * h[k - 1] - np.sqrt(k - 1.0) * h[k - 2]) / np.sqrt(k)
    return h


def _base_scores(z: FloatArray, dof: FloatArray) -> FloatArray:
    """Return the normal scores of latent values before any conditioning."""
    return normal_scores(t_cdf(-np.abs(z), dof), z > 0.0)
