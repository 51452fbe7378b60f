"""`CopulaDistribution`: the distribution of stacked experts, mixtures of Student-t's joined by one t-copula."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import fdtr, gammainc

from momostream.distributions import copula_moments
from momostream.distributions.joint import Distribution, Names
from momostream.distributions.limited import AnyMarginals
from momostream.distributions.marginals import row_chunks
from momostream.distributions.mixtures import StudentT
from momostream.distributions.student import (
    BoolArray,
    FloatArray,
    IntArray,
    correlation_of,
    regularise,
    t_cdf,
    t_log_pdf,
    t_quantile,
)

__all__ = ["CopulaDistribution"]


class CopulaDistribution(Distribution):
    """Mixtures of Student-t's per target, joined by one t-copula.

    A latent Student-t vector z has the given correlation and degrees of freedom; target p is the value that
    has, under its own mixture, the probability that z_p has under its own Student-t. Conditioning on targets
    conditions z, which stays a Student-t: the result is of this class again.

    Parameters
    ----------
    marginals : Marginals
        Distribution of each target.
    correlation : array of shape (n_targets, n_targets) or (n_rows, n_targets, n_targets)
        Correlation of the copula. One that is only semi-definite (collinear targets) gets a relative jitter
        of 1e-10, once.
    dof : float or array of shape (n_rows,)
        Degrees of freedom of the copula; infinite for a Gaussian copula.
    targets : sequence, optional
        Names of the targets.

    Notes
    -----
    Tail probabilities are followed down to 1e-300 on both sides. Beyond, a target keeps the latent value of
    that probability, so that its density decreases as its own mixture says and the copula adds nothing
    further.

    Mean and standard deviation come straight from the marginals; of a conditioned distribution by quadrature, with
    tails cut at a probability of 1e-17. Covariances come from quadrature as well: given the scale that all z
    share they are those of a Gaussian copula, whose Hermite expansion sum_k rho^k a_k b_k takes one quadrature per
    target, not per pair, and keeps the result positive semi-definite. Second moments and samples
    are cut where tails rule them, as `Distribution.std` says.

    Examples
    --------
    >>> import numpy as np
    >>> from momostream.distributions.marginals import Marginals
    >>> m = Marginals(1.0, np.zeros((1, 1, 2)), [[[1.0, 2.0]]], np.inf)
    >>> d = CopulaDistribution(m, [[1.0, 0.5], [0.5, 1.0]], np.inf, targets=("a", "b"))
    >>> d.cov.round(6)
    array([[[1., 1.],
            [1., 4.]]])
    >>> given = d.condition({"a": 2.0})
    >>> given.targets, given.mean.round(6), given.std.round(6)
    (('b',), array([[2.]]), array([[1.732051]]))
    """

    def __init__(
        self,
        marginals: AnyMarginals,
        correlation: npt.ArrayLike,
        dof: npt.ArrayLike,
        targets: Sequence[Hashable] | None = None,
    ) -> None:
        n, p = marginals.n_rows, marginals.n_targets
        R = np.asarray(correlation, dtype=np.float64)
        if R.shape not in {(p, p), (n, p, p)}:
            raise ValueError(f"correlation of shape {R.shape} does not fit {n} rows and {p} targets")
        diagonal = np.diagonal(R, axis1=-2, axis2=-1)
        # Written so that NaN fails.
        symmetric = (np.abs(R - np.swapaxes(R, -1, -2)) <= 1e-6).all()
        if not (symmetric and (np.abs(diagonal - 1.0) <= 1e-6).all()):
            raise ValueError("a correlation matrix is symmetric and finite, with ones on its diagonal")
        R, _ = regularise(R)
        R = correlation_of(R)
        dof = np.asarray(dof, dtype=np.float64)
        if dof.shape not in {(), (n,)} or not (dof > 0.0).all():
            raise ValueError("dof must be one positive number, or one per row")
        self._set(marginals, StudentT(np.zeros((n, p)), R, dof), np.broadcast_to(dof, (n,)), False, targets)

    def _set(
        # Fills an object that did not come from __init__ as well: slices and conditioned distributions.
        self,
        marginals: AnyMarginals,
        latent: StudentT,
        dof: FloatArray,
        conditioned: bool,
        targets: Sequence[Hashable] | None,
    ) -> Self:
        super().__init__(marginals.n_rows, marginals.n_targets, targets)
        # The distribution of each target before any conditioning.
        self._marginals = marginals
        self._latent = latent
        self._dof = dof
        self._conditioned = conditioned
        return self

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        # The variance of a distribution within limits is a quadrature, which a mean does not need.
        return self._moments[0] if self._conditioned else self._marginals.mean

    @property
    def std(self) -> FloatArray:
        """Standard deviation of y, noise included, shape (n_rows, n_targets)."""
        return self._moments[1]

    @property
    def cut(self) -> FloatArray:
        """Probability on either side without which second moments and samples are, shape (n_rows, n_targets)."""
        return self._moments[2]

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        if not self._conditioned:
            return self._marginals.mean, np.sqrt(self._marginals.variance), self._marginals.cut
        return copula_moments.conditioned_moments(self)

    @cached_property
    def cov(self) -> FloatArray:
        """Covariance between targets, noise included, shape (n_rows, n_targets, n_targets)."""
        return copula_moments.covariance(self)

    def _log_pdf(self, Y: FloatArray) -> FloatArray:
        z = self._scores(*self._marginals.tails(Y))
        log_ratio = np.where(np.isnan(Y), 0.0, self._marginals.log_pdf(Y) - t_log_pdf(z, self._dof[:, np.newaxis]))
        return np.asarray(log_ratio.sum(axis=1) + self._latent.log_pdf(z))

    def _log_pdf_each(self, Y: FloatArray) -> FloatArray:
        log_pdf = self._marginals.log_pdf(Y)
        if not self._conditioned:
            return log_pdf
        z = self._scores(*self._marginals.tails(Y))
        scales = self._latent.scales
        after = t_log_pdf((z - self._latent.mean) / scales, self._latent.dof[:, np.newaxis]) - np.log(scales)
        return np.where(np.isnan(Y), 0.0, log_pdf + after - t_log_pdf(z, self._dof[:, np.newaxis]))

    def _surprise(self, Y: FloatArray, seen: IntArray) -> float:
        """By the distance of the latent Student-t vector from its centre, which has an F distribution."""
        z = (self._scores(*self._marginals.tails(Y)) - self._latent.mean)[0, seen]
        scale = (
            self._latent.factor[0] * np.atleast_3d(self._latent.scale).reshape(-1, self.n_targets, self.n_targets)[0]
        )
        square = float(z @ np.linalg.solve(scale[np.ix_(seen, seen)], z))
        dof = float(self._latent.dof[0])
        n = float(seen.size)
        return float(gammainc(0.5 * n, 0.5 * square) if np.isinf(dof) else fdtr(n, dof, square / n))

    def _cdf(self, Y: FloatArray) -> FloatArray:
        return self._tails(Y)[0] if self._conditioned else self._marginals.cdf(Y)

    def _crps(self, Y: FloatArray) -> FloatArray:
        if not self._conditioned:
            return self._marginals.crps(Y)
        crps = np.empty(Y.shape)
        for rows in row_chunks(self.n_rows, 100 * self.n_targets * self._marginals.n_components**2):
            crps[rows] = super(CopulaDistribution, self[rows])._crps(Y[rows])
        return np.where((copula_moments.tail_index(self) <= 1.0) & ~np.isnan(Y), np.inf, crps)

    def _cell_edges(self) -> FloatArray:
        # Quantiles alone step over components that are narrow and far apart.
        return np.concatenate([super()._cell_edges(), self._marginals.cell_edges()])

    def _tails(self, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probabilities of `Y` (..., n_rows, n_targets)."""
        z = (self._scores(*self._marginals.tails(Y)) - self._latent.mean) / self._latent.scales
        dof = self._latent.dof[:, np.newaxis]
        return t_cdf(z, dof), t_cdf(-z, dof)

    def _tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        if not self._conditioned:
            return self._marginals.tail_quantile(p, upper)
        t = t_quantile(p, self._latent.dof[:, np.newaxis])
        return self._from_scores(self._latent.mean + self._latent.scales * np.where(upper, -t, t))

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        z = self._latent.sample(size, rng)
        is_cut = self.cut > 0.0
        if is_cut.any():
            reach = self._latent.scales * -t_quantile(np.where(is_cut, self.cut, 0.5), self._latent.dof[:, np.newaxis])
            z = np.where(is_cut, np.clip(z, self._latent.mean - reach, self._latent.mean + reach), z)
        return self._from_scores(z)

    def _scores(self, lower: FloatArray, upper: FloatArray) -> FloatArray:
        """Latent values of tail probabilities under the marginals, (..., n_rows, n_targets)."""
        z = t_quantile(np.minimum(lower, upper), self._dof[:, np.newaxis])
        return np.where(lower <= upper, z, -z)

    def _from_scores(self, z: FloatArray) -> FloatArray:
        """Values of the targets for latent values `z`, (..., n_rows, n_targets)."""
        p = t_cdf(-np.abs(z), self._dof[:, np.newaxis])
        return self._marginals.tail_quantile(p, z > 0.0)

    def _condition(self, Y: FloatArray, known: BoolArray, targets: Names | None) -> CopulaDistribution:
        z = np.where(known, self._scores(*self._marginals.tails(Y)), np.nan)
        base = self._marginals.select(np.flatnonzero(~known))
        latent = self._latent.condition(z, known)
        return object.__new__(CopulaDistribution)._set(base, latent, self._dof, True, targets)

    def _take(self, rows: IntArray) -> Self:
        new = object.__new__(type(self))
        return new._set(
            self._marginals.take(rows), self._latent.take(rows), self._dof[rows], self._conditioned, self.targets
        )
