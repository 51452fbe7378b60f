"""BLAS-3 work for fit and many-row prediction, on the packed factor of `kernels`.

A C-ordered lower triangle is, without moving a number, a Fortran-ordered upper triangle. All calls of BLAS
and LAPACK below pass such transposed views, so that nothing is copied on the way. ``L`` is a lower triangle
packed by rows, ``n`` the number of rows in use (``L`` may be longer).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from momostream.kernels.cholesky import pack_lower, unpack_lower, unpack_rows
from momostream.kernels.covariance import mirror_lower

__all__ = ["factorise", "factorise_and_solve", "inverse", "inverse_diagonal", "solve_many", "solve_many_transposed"]

FloatArray = npt.NDArray[np.float64]

# Rows of the packed factor that are unpacked at a time: a solve with n = 8000 then needs 35 MB of scratch,
# not 512. Large enough for the matrix products in between to run at full speed.
PANEL = 512


def _writable(A: npt.ArrayLike, overwrite: bool) -> FloatArray:
    """Return `A` as a C-ordered float64 array to write on: itself if it is one and `overwrite`."""
    array: FloatArray = np.asarray(A, dtype=np.float64, order="C")
    # Not `array is not A`: an array that was pickled comes back as a view, because its dtype is another object.
    fresh = not (isinstance(A, np.ndarray) and np.may_share_memory(array, A))
    # LAPACK would write through a read-only memory map and crash: its wrappers do not look at the flag.
    if array.flags.writeable and (overwrite or fresh):
        return array
    return array.copy()


def _check_definite(diagonal: FloatArray, info: int) -> None:
    """Raise if a factorisation failed; a NaN passes the test for positive pivots of some LAPACKs."""
    if info != 0 or not np.isfinite(diagonal).all():
        raise np.linalg.LinAlgError("the matrix is not positive definite")


def factorise(K: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Cholesky factor of a symmetric matrix, packed.  O(n^3).

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, positive definite; only the lower triangle is read. Overwritten if it is a writable
        C-ordered float64 array.
    out : ndarray, optional
        Where to write the factor; it may be longer than needed.

    Returns
    -------
    ndarray of shape (n * (n + 1) // 2,)
        Lower triangle packed by rows; `out` if that is given.

    Raises
    ------
    numpy.linalg.LinAlgError
        If `K` is not positive definite, or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> factorise(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([2., 1., 2.])
    """
    n = K.shape[0]
    L: FloatArray = np.empty(n * (n + 1) // 2) if out is None else out
    if n == 0:
        return L
    work = _writable(K, overwrite=True)
    factor, info = lapack.dpotrf(work.T, lower=0, clean=0, overwrite_a=1)
    _check_definite(np.diagonal(factor), info)
    pack_lower(factor.T, n, L)
    return L


def factorise_and_solve(K: FloatArray, B: FloatArray) -> None:
    """Overwrite the lower triangle of `K` by its Cholesky factor ``L`` and `B` by ``L^-1 B``.  O(n^2 (n + m)).

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric, positive definite, C-ordered and writable; its upper triangle stays.
    B : ndarray of shape (n, m)
        Right-hand sides, C-ordered and writable.

    Raises
    ------
    numpy.linalg.LinAlgError
        If `K` is not positive definite, or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> K, B = np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([[2.0], [5.0]])
    >>> factorise_and_solve(K, B)
    >>> np.tril(K), B
    (array([[2., 0.],
           [1., 2.]]), array([[1.],
           [2.]]))
    """
    factor, info = lapack.dpotrf(K.T, lower=0, clean=0, overwrite_a=1)
    _check_definite(np.diagonal(factor), info)
    blas.dtrsm(1.0, factor, B.T, side=1, lower=0, overwrite_b=1)


def solve_many(L: FloatArray, n: int, B: FloatArray, *, overwrite: bool = False) -> FloatArray:
    """Solve ``L X = B`` for many right-hand sides.  O(n^2 m).

    Parameters
    ----------
    L : ndarray
        Packed factor.
    n : int
        Rows in use.
    B : ndarray of shape (n, m)
        Right-hand sides.
    overwrite : bool
        Write the answer into `B` (if it is a writable C-ordered float64 array).

    Returns
    -------
    ndarray of shape (n, m)
        ``L^-1 B``.

    Examples
    --------
    >>> import numpy as np
    >>> solve_many(np.array([2.0, 1.0, 2.0]), 2, np.array([[2.0, 4.0], [3.0, 4.0]]))
    array([[1., 2.],
           [1., 1.]])
    """
    X = _writable(B, overwrite)
    if X.size == 0:
        return X
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        left, diagonal = _panel(L, start, stop)
        block = X[start:stop]
        if start > 0:
            # block -= left @ X[:start], transposed.
            blas.dgemm(-1.0, X[:start].T, left.T, beta=1.0, c=block.T, overwrite_c=1)
        # block.T @ inverse of diagonal.T, where diagonal.T is upper triangular in Fortran order.
        blas.dtrsm(1.0, diagonal.T, block.T, side=1, lower=0, overwrite_b=1)
    return X


def solve_many_transposed(L: FloatArray, n: int, B: FloatArray, *, overwrite: bool = False) -> FloatArray:
    """Solve ``L' X = B`` for many right-hand sides.  O(n^2 m).

    Parameters
    ----------
    L : ndarray
        Packed factor.
    n : int
        Rows in use.
    B : ndarray of shape (n, m)
        Right-hand sides.
    overwrite : bool
        Write the answer into `B` (if it is a writable C-ordered float64 array).

    Returns
    -------
    ndarray of shape (n, m)
        ``L^-T B``.

    Examples
    --------
    >>> import numpy as np
    >>> solve_many_transposed(np.array([2.0, 1.0, 2.0]), 2, np.array([[3.0], [2.0]]))
    array([[1.],
           [1.]])
    """
    X = _writable(B, overwrite)
    if X.size == 0:
        return X
    for start in reversed(range(0, n, PANEL)):
        stop = min(start + PANEL, n)
        left, diagonal = _panel(L, start, stop)
        block = X[start:stop]
        blas.dtrsm(1.0, diagonal.T, block.T, side=1, lower=0, trans_a=1, overwrite_b=1)
        if start > 0:
            # X[:start] -= left.T @ block, transposed.
            blas.dgemm(-1.0, block.T, left.T, beta=1.0, c=X[:start].T, trans_b=1, overwrite_c=1)
    return X


def _panel(L: FloatArray, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
    """Unpack rows `start` to `stop - 1`: left of the diagonal block, and the block (lower triangle)."""
    left: FloatArray = np.empty((stop - start, start))
    diagonal: FloatArray = np.empty((stop - start, stop - start))
    unpack_rows(L, start, stop, left, diagonal)
    return left, diagonal


def inverse(L: FloatArray, n: int) -> FloatArray:
    """Inverse of ``L L'``.  O(n^3).

    Parameters
    ----------
    L : ndarray
        Packed factor.
    n : int
        Rows in use.

    Returns
    -------
    ndarray of shape (n, n)
        The symmetric inverse, both triangles.

    Examples
    --------
    >>> import numpy as np
    >>> inverse(np.array([2.0, 1.0, 2.0]), 2)
    array([[ 0.3125, -0.125 ],
           [-0.125 ,  0.25  ]])
    """
    dense: FloatArray = np.empty((n, n))
    if n == 0:
        return dense
    unpack_lower(L, n, dense)
    full, info = lapack.dpotri(dense.T, lower=0, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError("the factor is singular")
    answer: FloatArray = full.T
    mirror_lower(answer)
    return answer


def inverse_diagonal(L: FloatArray, n: int) -> FloatArray:
    """Diagonal of the inverse of ``L L'``.  O(n^3), half of `inverse`.

    Parameters
    ----------
    L : ndarray
        Packed factor.
    n : int
        Rows in use.

    Returns
    -------
    ndarray of shape (n,)
        Leave-one-out variances are its reciprocals.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_diagonal(np.array([2.0, 1.0, 2.0]), 2)
    array([0.3125, 0.25  ])
    """
    if n == 0:
        return np.empty(0)
    dense: FloatArray = np.empty((n, n))
    unpack_lower(L, n, dense)
    triangle, info = lapack.dtrtri(dense.T, lower=0, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError("the factor is singular")
    answer: FloatArray = np.einsum("ij,ij->j", triangle.T, triangle.T)
    return answer
