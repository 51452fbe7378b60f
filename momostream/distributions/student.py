"""The Student-t, univariate and multivariate, and the small matrices it is written with.

Infinite degrees of freedom are the Gaussian throughout. Everything stays finite far out in the tails.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import betaln, gammaln, stdtr, stdtrit

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "block",
    "cholesky",
    "correlation_of",
    "log_sum_exp",
    "mvt_log_pdf",
    "regularise",
    "solve_lower",
    "t_cdf",
    "t_log_norm",
    "t_log_pdf",
    "t_log_shape",
    "t_quantile",
    "t_stretch",
    "t_variance",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

#: Added to the diagonal of a (nearly) singular matrix, once, relative to that diagonal.
RELATIVE_JITTER = 1e-10
#: Tail probabilities are not followed below this.
SMALLEST_TAIL = 1e-300

# Stands for infinite degrees of freedom in densities: the limit is exact to all digits, without a branch.
_GAUSSIAN_DOF = 1e300
# Squares of these stay finite.
_LARGEST_SCORE = 1e150
_LARGEST_T = 1e100
#: Squared distances are not followed beyond this.
LARGEST_SQUARE = 1e300

# -----------------------------------------------------------------------------------------------------------
# The standard Student-t, with infinite degrees of freedom for the Gaussian


def t_log_pdf(z: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    """Log density of the standard Student-t; finite for every `z`.

    Examples
    --------
    >>> t_log_pdf([0.0, 0.0], [1.0, np.inf]).round(3).tolist()
    [-1.145, -0.919]
    """
    return np.asarray(t_log_norm(dof) + t_log_shape(z, dof))


def t_log_norm(dof: npt.ArrayLike) -> FloatArray:
    """Log density of the standard Student-t at 0."""
    v = np.minimum(dof, _GAUSSIAN_DOF)
    # betaln instead of a difference of gammaln, which loses all digits for large v.
    return np.asarray(-betaln(0.5 * v, 0.5) - 0.5 * np.log(v))


def t_log_shape(z: npt.ArrayLike, dof: npt.ArrayLike) -> FloatArray:
    """Log density of the standard Student-t relative to that at 0."""
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
        # stdtrit overflows there, to either side; the tail is a power of x: F(-x) = k v^((v - 1) / 2) x^-v.
        v = np.where(far, dof, 1.0)
        log_x = (t_log_norm(v) + 0.5 * (v - 1.0) * np.log(v) - np.log(p)) / v
        x = np.where(far, -np.exp(np.minimum(log_x, np.log(_LARGEST_T))), x)
    return np.asarray(np.maximum(x, -_LARGEST_T))


def t_variance(dof: npt.ArrayLike) -> FloatArray:
    """Variance of the standard Student-t; infinite for 2 degrees of freedom or fewer."""
    dof = np.asarray(dof, dtype=np.float64)
    heavy = dof <= 2.0
    return np.where(heavy, np.inf, 1.0 + 2.0 / np.where(heavy, 1.0, dof - 2.0))


def mvt_log_pdf(squares: FloatArray, log_det: FloatArray, dof: FloatArray, n_targets: int) -> FloatArray:
    """Log density of a multivariate Student-t from its squared Mahalanobis distances and log determinants."""
    squares = np.minimum(squares, LARGEST_SQUARE)
    v = np.minimum(dof, _GAUSSIAN_DOF)
    half = 0.5 * n_targets
    log_norm = gammaln(half) - betaln(0.5 * v, half) - half * np.log(v * np.pi)
    return np.asarray(log_norm - 0.5 * log_det - (0.5 * v + half) * np.log1p(squares / v))


def log_sum_exp(terms: FloatArray, axis: int) -> FloatArray:
    """Log of the sum of exponentials along an axis, in which one term at least is finite."""
    top = terms.max(axis=axis, keepdims=True)
    return np.asarray(np.log(np.exp(terms - top).sum(axis=axis)) + top.squeeze(axis))


def t_stretch(dof: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw the factors that turn standard normals into Student-t's, in the shape of `dof`."""
    finite = np.isfinite(dof)
    v = np.where(finite, dof, 1.0)
    return np.asarray(np.where(finite, np.sqrt(v / rng.chisquare(v)), 1.0))


# -----------------------------------------------------------------------------------------------------------
# Matrices: one for all rows (p, p), or one per row (n, p, p)


def regularise(A: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `A`, made positive definite if it is only semi-definite, and its Cholesky factor.

    A matrix with a pivot below half of `RELATIVE_JITTER`, relative to its diagonal, gets `RELATIVE_JITTER`
    times its diagonal added, once. Each matrix of a stack is judged on its own.

    This is not the repair of estimated correlations, which may be indefinite by any amount and whose eigenvalues
    `momostream.gp.scaling.nearest_correlation` raises. Matrices that come here belong to a distribution already, with
    variances on their diagonals: they are right up to round-off, and a regular one must come back bit for bit.

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


def correlation_of(A: FloatArray) -> FloatArray:
    """Return covariance or scale matrices, divided by the square roots of their diagonals."""
    size = np.sqrt(np.diagonal(A, axis1=-2, axis2=-1))
    return np.asarray(A / (size[..., :, np.newaxis] * size[..., np.newaxis, :]))


def cholesky(A: FloatArray) -> FloatArray:
    """Return the lower Cholesky factors of a matrix or a stack of them."""
    return np.asarray(np.linalg.cholesky(A), dtype=np.float64)


def solve_lower(L: FloatArray, B: FloatArray) -> FloatArray:
    """Solve L x = b for each row b of `B` (n, p), with `L` (p, p) or (n, p, p)."""
    if L.ndim == 2:
        return np.asarray(solve_triangular(L, B.T, lower=True, check_finite=False).T)
    return np.asarray(np.linalg.solve(L, B[..., np.newaxis])[..., 0])


def block(A: FloatArray, rows: IntArray, columns: IntArray) -> FloatArray:
    """Rows and columns of each matrix."""
    return A[..., rows[:, np.newaxis], columns]
