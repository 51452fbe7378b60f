"""The Cholesky factor of the covariance of rows, with all that is solved with it.

Table regions and stream leaves share it. It knows nothing of units, scatter or discounts: its owner turns targets into
standardised ones and decides what the solved targets mean. The rows and the hyper-parameters are the truth; a factor is
a cache that its owner may drop and build again.

Letters: ``S`` rows in lengthscales about their centre, ``R`` standardised targets, ``L`` the factor of ``K + noise I``,
packed by rows, ``Z = L^-1 R``, ``v = L^-1 k(S, s)`` for one point ``s``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.gp import linalg
from momostream.gp.covariance import Covariance
from momostream.kernels.book import AddressBook
from momostream.kernels.cholesky import append_row, append_rows, drop_oldest, project, rebuild, unpack_lower
from momostream.kernels.covariance import cross_covariance, gram
from momostream.kernels.scalar import OK

__all__ = ["Factor", "grown", "packed", "scaled"]

Array = NDArray[np.float64]

# Sums of squares of these are numbers. A residual that is so uncertain counts for nothing.
LARGEST_RATIO = 1e150


class Factor:
    """Packed Cholesky factor with room for more rows than are in use.

    Parameters
    ----------
    covariance, theta
        The covariance function and its packed log-parameters.
    inputs
        Centre of the rows and one over the lengthscales, shape ``(2, n_inputs)``. It is not copied.
    n_targets
        Number of outputs.
    capacity
        Rows to make room for.
    precision
        Type of the numbers in ``L`` and ``v``.

    Attributes
    ----------
    n_rows
        Rows in use.
    n_dropped
        Rows that were dropped; each adds some round-off.
    S, Z, L, v
        Arrays as above; ``S`` and ``Z`` have one line for each row. ``v`` belongs to the point that was projected last.
    gaps
        1 where a target is missing and was filled, shape ``(capacity, n_targets)``; no lines until `open_gaps`.
    book
        Addresses of the arrays, kept here by the owner; None once an array has been replaced.

    Examples
    --------
    >>> inputs = np.array([[0.0], [1.0]])
    >>> factor = Factor(Covariance.parse("rbf"), np.log([1.0, 0.5]), inputs, n_targets=1, capacity=2)
    >>> factor.build(np.array([[0.0], [5.0]]), np.array([[1.0], [2.0]]), n_blocked=2)
    >>> factor.solve_transposed(factor.Z).round(2).ravel().tolist()
    [0.67, 1.33]
    """

    __slots__ = ("L", "S", "Z", "book", "gaps", "inputs", "kind", "linear", "n_dropped", "n_rows", "noise", "v")

    def __init__(
        self,
        covariance: Covariance,
        theta: Array,
        inputs: Array,
        n_targets: int,
        capacity: int,
        precision: type[np.floating[Any]] = np.float64,
    ) -> None:
        self.kind, self.inputs = covariance.code, inputs
        self.noise, self.linear = covariance.noise(theta), covariance.linear_variance(theta)
        self.n_rows = self.n_dropped = 0
        self.S, self.Z = np.empty((capacity, inputs.shape[1])), np.empty((capacity, n_targets))
        self.L: NDArray[Any] = np.empty(packed(capacity), precision)
        self.v: NDArray[Any] = np.empty(capacity, precision)
        self.gaps = np.zeros((0, n_targets))
        self.book: AddressBook | None = None

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return len(self.S)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.S.nbytes + self.Z.nbytes + self.L.nbytes + self.v.nbytes + self.gaps.nbytes

    @property
    def pivots(self) -> NDArray[Any]:
        """Diagonal of the factor."""
        return self.L[np.cumsum(np.arange(1, self.n_rows + 1)) - 1]

    # ------------------------------------------------------------------ rows come

    def build(self, X: Array, R: Array, n_blocked: int) -> None:
        """Factorise rows afresh: the first ``n_blocked`` at BLAS-3 speed, the others one by one.  O(n^3).

        The two ways differ in the last bits.

        Raises
        ------
        numpy.linalg.LinAlgError
            The covariance of the rows is not positive definite, or not finite.
        """
        n = len(X)
        self.S[:n] = self.scaled(X)
        if n_blocked:
            K = np.empty((n_blocked, n_blocked))
            gram(self.kind, self.linear, self.noise, self.S[:n_blocked], K)
            linalg.factorise(K, out=self.L)
            self.Z[:n_blocked] = linalg.solve_many(self.L, n_blocked, np.ascontiguousarray(R[:n_blocked]))
        if n > n_blocked:
            mean = np.empty(self.Z.shape[1])
            status = rebuild(self.kind, self.linear, self.noise, n_blocked, n, R, self.v, mean, self.S, self.Z, self.L)
            if status != OK:
                raise np.linalg.LinAlgError("the covariance of the rows is not finite")
        self.n_rows = n

    def grow(self, capacity: int) -> None:
        """Make room for this many rows."""
        self.S, self.Z = grown(self.S, capacity), grown(self.Z, capacity)
        self.L, self.v = grown(self.L, packed(capacity)), grown(self.v, capacity)
        self.book = None
        if len(self.gaps):
            self.open_gaps()

    def copy(self, inputs: Array) -> Factor:
        """A copy that follows other centres and lengthscales, which are the same to begin with."""
        other = Factor.__new__(Factor)
        other.kind, other.noise, other.linear, other.inputs = self.kind, self.noise, self.linear, inputs
        other.n_rows, other.n_dropped = self.n_rows, self.n_dropped
        other.S, other.Z, other.L = self.S.copy(), self.Z.copy(), self.L.copy()
        other.v, other.gaps, other.book = self.v.copy(), self.gaps.copy(), None
        return other

    def append(self, s: Array, pivot: float, residual: Array) -> None:
        """Append the point that was projected last: the root of its variance, and its targets less their means."""
        append_row(self.n_rows, s, self.v, pivot, residual, self.S, self.Z, self.L)
        self.n_rows += 1

    def append_block(self, X: Array, R: Array) -> tuple[Array, Array]:
        """Append many rows at the speed of matrix products; there must be room.  O(b (n + b)^2).

        Parameters
        ----------
        X, R
            Rows and their standardised targets; ``R`` is overwritten.

        Returns
        -------
        pivots
            Standard deviation of each row given those before it, in units of the signal.
        solved
            The new rows of ``Z``.

        Raises
        ------
        numpy.linalg.LinAlgError
            The covariance of the rows is not positive definite; the factor stays as it was.
        """
        n, more = self.n_rows, len(X)
        T, V, _ = self.project_rows(X)
        C = np.empty((more, more))
        gram(self.kind, self.linear, self.noise, T, C)
        if n:
            C -= V.T @ V
            R -= V.T @ self.Z[:n]
            # Round-off must not take a row's variance below its noise.
            C[np.diag_indices(more)] = np.maximum(C.diagonal(), self.noise)
        linalg.factorise_and_solve(C, R)
        append_rows(n, np.ascontiguousarray(V.T), C, R, T, self.S, self.Z, self.L)
        self.n_rows = n + more
        return C.diagonal().copy(), R

    def open_gaps(self) -> None:
        """Make room to note missing targets of all rows."""
        gaps = np.zeros(self.Z.shape)
        gaps[: len(self.gaps)] = self.gaps
        self.gaps, self.book = gaps, None

    # ------------------------------------------------------------------ rows go

    def drop_oldest(self, count: int = 1) -> bool:
        """Take out the oldest rows, a stable update of O(n_rows^2) for each.

        False if some number became too large, so that the factor must be built again from its rows.
        """
        n, is_finite = self.n_rows, True
        work = np.empty(2 * n + self.Z.shape[1])
        for _ in range(count):
            is_finite &= drop_oldest(n, self.S, self.Z, self.L, work) == OK
            n -= 1
        if len(self.gaps):
            self.gaps[:n] = self.gaps[count : n + count]
            self.gaps[n:] = 0.0
        self.n_rows, self.n_dropped = n, self.n_dropped + count
        return is_finite

    # ------------------------------------------------------------------ solves

    def scaled(self, X: Array) -> Array:
        """Points in lengthscales about the centre."""
        return scaled(X, self.inputs)

    def project(self, s: Array, mean: Array) -> float:
        """Condition a scaled point on the rows: sets ``v`` and ``mean``, returns the variance without noise."""
        found: float = project(self.kind, self.linear, self.S, self.L, self.Z, self.n_rows, s, self.v, mean)
        return found

    def covariances(self, T: Array) -> Array:
        """Covariance of the rows with scaled points, shape ``(n_rows, len(T))``."""
        K = np.empty((self.n_rows, len(T)))
        cross_covariance(self.kind, self.linear, self.S[: self.n_rows], T, K)
        return K

    def project_rows(self, X: Array) -> tuple[Array, Array, Array]:
        """Scaled points, ``L^-1 k(rows, X)`` and the prior variance of each point."""
        n, T = self.n_rows, self.scaled(X)
        K = self.covariances(T)
        prior = 1.0 + self.linear * np.einsum("ij,ij->i", T, T)
        return T, (linalg.solve_many(self.L, n, K) if n else K), prior

    def solve(self, B: Array) -> Array:
        """``L^-1 B`` for many right-hand sides ``(n_rows, m)``."""
        return linalg.solve_many(self.L, self.n_rows, B)

    def solve_transposed(self, B: Array) -> Array:
        """``L^-T B`` for many right-hand sides ``(n_rows, m)``."""
        return linalg.solve_many_transposed(self.L, self.n_rows, B)

    def inverse(self) -> Array:
        """Inverse of ``K + noise I``.  O(n_rows^3)."""
        return linalg.inverse(self.L, self.n_rows)

    def inverse_diagonal(self) -> Array:
        """Diagonal of the inverse of ``K + noise I``, at half the cost."""
        return linalg.inverse_diagonal(self.L, self.n_rows)

    def own_residuals(self) -> Array:
        """Residual of each row over its deviation, which is larger for an output with gaps than ``Z`` has it."""
        n = self.n_rows
        if not (len(self.gaps) and self.gaps[:n].any()):
            return self.Z
        L = self.dense()
        # In units of the pivots, whose squares may be too large for a number; so may those of the ratios.
        ratios = np.minimum(np.abs(np.tril(L, -1)) / L.diagonal()[:, None], LARGEST_RATIO)
        variance = 1.0 + ratios**2 @ self.gaps[:n]
        return self.Z[:n] / np.sqrt(variance)

    def dense(self) -> Array:
        """The factor as a matrix, zeros above its diagonal."""
        L = np.empty((self.n_rows, self.n_rows))
        unpack_lower(self.L, self.n_rows, L)
        return L


def scaled(X: Array, inputs: Array) -> Array:
    """Points in lengthscales about the centre; ``inputs`` as in `Factor`."""
    return np.ascontiguousarray((X - inputs[0]) * inputs[1])


def packed(n: int) -> int:
    """Length of a packed triangle of ``n`` rows."""
    return n * (n + 1) // 2


def grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """A copy with room for ``length`` rows."""
    larger = np.empty((length, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
