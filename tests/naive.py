"""The slow, obvious version of each fast function: dense matrices, `np.linalg`, no shortcuts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

MATERN12, MATERN32, MATERN52, RBF = 0, 1, 2, 3
KINDS = (MATERN12, MATERN32, MATERN52, RBF)


# Covariances of scaled coordinates


def correlation(kind: int, squared_distance: float) -> float:
    r = math.sqrt(squared_distance)
    if kind == MATERN12:
        return math.exp(-r)
    if kind == MATERN32:
        return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    if kind == MATERN52:
        return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)
    if kind == RBF:
        return math.exp(-(r**2) / 2)
    raise ValueError(kind)


def slope(kind: int, squared_distance: float) -> float:
    """-2 d corr / d(d2), from d corr / d r by the chain rule; 0 where points coincide."""
    r = math.sqrt(squared_distance)
    if r == 0.0:
        return 0.0
    if kind == MATERN12:
        by_distance = -math.exp(-r)
    elif kind == MATERN32:
        by_distance = -3 * r * math.exp(-math.sqrt(3) * r)
    elif kind == MATERN52:
        by_distance = -5 / 3 * r * (1 + math.sqrt(5) * r) * math.exp(-math.sqrt(5) * r)
    else:
        by_distance = -r * math.exp(-(r**2) / 2)
    return -by_distance / r


def covariance(kind: int, linear: float, s: np.ndarray, t: np.ndarray) -> float:
    difference = s - t
    return correlation(kind, float(difference @ difference)) + linear * float(s @ t)


def cross_covariance(kind: int, linear: float, S: np.ndarray, T: np.ndarray) -> np.ndarray:
    out = np.zeros((len(S), len(T)))
    for i in range(len(S)):
        for j in range(len(T)):
            out[i, j] = covariance(kind, linear, S[i], T[j])
    return out


def gram(kind: int, linear: float, noise: float, S: np.ndarray) -> np.ndarray:
    return cross_covariance(kind, linear, S, S) + noise * np.eye(len(S))


def slopes(kind: int, S: np.ndarray) -> np.ndarray:
    """Slope of each pair of points; 0 on the diagonal and where points coincide."""
    out = np.zeros((len(S), len(S)))
    for i in range(len(S)):
        for j in range(len(S)):
            difference = S[i] - S[j]
            out[i, j] = slope(kind, float(difference @ difference))
    return out


def gradient_contraction(W: np.ndarray, G: np.ndarray, S: np.ndarray) -> np.ndarray:
    out = np.zeros(S.shape[1])
    for k in range(S.shape[1]):
        difference = S[:, k, None] - S[None, :, k]
        out[k] = 0.5 * np.sum(W * G * difference**2)
    return out


# Packed triangles


def pack(dense: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(0)] + [dense[i, : i + 1] for i in range(len(dense))])


def unpack(L: np.ndarray, n: int) -> np.ndarray:
    dense = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            dense[i, j] = L[i * (i + 1) // 2 + j]
    return dense


# Gaussian-process regression with zero mean and unit signal variance


def factor(kind: int, linear: float, noise: float, S: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(gram(kind, linear, noise, S))


def solved_targets(kind: int, linear: float, noise: float, S: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(factor(kind, linear, noise, S), Y)


def predict(
    kind: int, linear: float, noise: float, S: np.ndarray, Y: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, float]:
    """Mean of each output and latent variance at one point."""
    k = cross_covariance(kind, linear, S, s[None, :])[:, 0]
    K = gram(kind, linear, noise, S)
    mean = Y.T @ np.linalg.solve(K, k) if len(S) else np.zeros(Y.shape[1])
    variance = covariance(kind, linear, s, s) - (k @ np.linalg.solve(K, k) if len(S) else 0.0)
    return mean, float(variance)


def log_marginal_likelihood(
    kind: int, linear: float, noise: float, lengthscales: np.ndarray, X: np.ndarray, y: np.ndarray
) -> float:
    """Log density of one output `y` at unscaled inputs `X`."""
    K = gram(kind, linear, noise, X / lengthscales)
    sign, logdet = np.linalg.slogdet(K)
    assert sign > 0
    return float(-0.5 * y @ np.linalg.solve(K, y) - 0.5 * logdet - 0.5 * len(y) * math.log(2 * math.pi))


def finite_difference_gradient(
    function: Callable[[np.ndarray], float], theta: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Central differences, one coordinate at a time."""
    gradient = np.zeros(len(theta))
    for k in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[k] += step
        down[k] -= step
        gradient[k] = (function(up) - function(down)) / (2 * step)
    return gradient


# Regions: outputs share the covariance of the rows, their own covariance Sigma ~ InverseWishart(nu0 + P - 1, prior I)


def matrix_t_predict(
    kind: int,
    linear: float,
    noise: float,
    S: np.ndarray,
    R: np.ndarray,
    s: np.ndarray,
    *,
    nu0: float,
    prior: float,
    discount: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Location, scale matrix and degrees of freedom of a new row at `s`."""
    n, P = R.shape
    mean, variance = predict(kind, linear, noise, S, R, s)
    Z = solved_targets(kind, linear, noise, S, R) if n else R
    scatter, mass = prior * np.eye(P), nu0
    for i in range(n):
        scatter = scatter + discount ** (n - 1 - i) * np.outer(Z[i], Z[i])
        mass += discount ** (n - 1 - i)
    return mean, (variance + noise) * scatter / mass, mass


def matrix_t_log_density(K: np.ndarray, R: np.ndarray, *, nu: float, prior: float) -> float:
    """Log density of `R` (n, P) with row covariance `K`; ``Sigma ~ InverseWishart(nu, prior I)`` integrated out."""
    n, P = R.shape
    scatter = prior * np.eye(P) + R.T @ np.linalg.inv(K) @ R
    log_gamma_ratio = sum(math.lgamma((nu + n - p) / 2) - math.lgamma((nu - p) / 2) for p in range(P))
    return float(
        log_gamma_ratio
        - n * P / 2 * math.log(math.pi)
        - P / 2 * np.linalg.slogdet(K)[1]
        + nu * P / 2 * math.log(prior)
        - (nu + n) / 2 * np.linalg.slogdet(scatter)[1]
    )


# The linear expert


def linear_fit(Phi: np.ndarray, r: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights, their covariance and the quadratic form of one output, by its covariance between rows."""
    inverse = np.linalg.inv(Phi.T @ Phi + np.diag(precision))
    K = np.eye(len(r)) + Phi @ np.diag(1 / precision) @ Phi.T
    return inverse @ Phi.T @ r, inverse, float(r @ np.linalg.solve(K, r))
