"""What a prediction is: one joint distribution of all outputs per row, and every quantity from that distribution.

`Distribution` is what users see. `MixtureDistribution` wraps a true finite mixture, the distribution of a circuit
with posterior or uniform weights (`momostream.distributions.mixtures`). `CopulaDistribution` is the distribution of
stacked experts: per output a mixture of Student-t's, joined by one t-copula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import fdtr, gammainc, gammainccinv, gammaincinv, ndtr, ndtri

from momostream.distributions.marginals import Marginals, integrate_crps, normal_scores
from momostream.distributions.mixtures import Multivariate, StudentT
from momostream.distributions.student import BoolArray, FloatArray, IntArray, regularise, t_cdf, t_log_pdf, t_quantile

__all__ = ["CopulaDistribution", "Distribution", "MixtureDistribution"]

Names = tuple[Hashable, ...]

# Rows and outputs shown by repr.
_SHOWN_ROWS = 5
_SHOWN_TARGETS = 6
# Normal scores of the quantiles between which scores are integrated.
_CELL_SCORES = np.linspace(-7.0, 7.0, 21)


class Distribution(ABC):
    """Predictive distribution of `n_rows` rows over `n_targets` outputs.

    Rows are independent of each other; outputs are not. NaN in values means that an output was not observed.

    Attributes
    ----------
    targets : tuple or None
        Names of the outputs.
    n_rows, n_targets : int
        Size of the distribution.
    """

    targets: Names | None
    n_rows: int
    n_targets: int

    def __init__(self, n_rows: int, n_targets: int, targets: Sequence[Hashable] | None) -> None:
        self.n_rows = n_rows
        self.n_targets = n_targets
        self.targets = None if targets is None else tuple(targets)
        if self.targets is not None and len(self.targets) != n_targets:
            raise ValueError(f"got {len(self.targets)} target names for {n_targets} outputs")

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""

    @property
    @abstractmethod
    def std(self) -> FloatArray:
        """Standard deviation of y, noise included, shape (n_rows, n_targets)."""

    @property
    @abstractmethod
    def cov(self) -> FloatArray:
        """Covariance between outputs, noise included, shape (n_rows, n_targets, n_targets).

        Covariances with an output of infinite variance are NaN.
        """

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Joint log density of each row of `Y` (n_rows, n_targets): shape (n_rows,)."""
        return self._log_pdf(self._values(Y))

    def log_pdf_each(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density of each output on its own: shape (n_rows, n_targets), 0 where `Y` is NaN."""
        return self._log_pdf_each(self._values(Y))

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability that an output is at most `Y`: shape (n_rows, n_targets), NaN where `Y` is."""
        return self._cdf(self._values(Y))

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of each output: shape (n_rows, n_targets), NaN where `Y` is.

        In the units of the output; the smaller the better. Infinite where the distribution has no mean.
        """
        Y = self._values(Y)
        infinite = np.isinf(Y)
        return np.where(infinite, np.inf, self._crps(np.where(infinite, np.nan, Y)))

    def quantile(self, q: float | Sequence[float] | FloatArray) -> FloatArray:
        """Quantiles of each output.

        Parameters
        ----------
        q : float or sequence of k floats
            Probabilities inside (0, 1).

        Returns
        -------
        array of shape (n_rows, n_targets), or (k, n_rows, n_targets) for a sequence
        """
        levels = np.asarray(q, dtype=np.float64)
        if levels.ndim > 1:
            raise ValueError(f"q must be a number or a sequence of numbers, got shape {levels.shape}")
        if not ((levels > 0.0) & (levels < 1.0)).all():
            raise ValueError("quantile levels must lie inside (0, 1)")
        shape = (*levels.shape, self.n_rows, self.n_targets)
        p = np.broadcast_to(levels[..., np.newaxis, np.newaxis], shape)
        upper = p > 0.5
        return self._tail_quantile(np.where(upper, 1.0 - p, p), upper)

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Central interval of each output: what lies outside is split evenly between both sides.

        Parameters
        ----------
        level : float
            Probability inside, between 0 and 1.

        Returns
        -------
        lower, upper : arrays of shape (n_rows, n_targets)
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie inside (0, 1), got {level}")
        lower, upper = self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        return lower, upper

    def surprise(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability that a row is less strange than the one of `Y`, jointly over its outputs: shape (n_rows,).

        Uniform on [0, 1] if the distribution is right; near 1 is strange. NaN outputs are left out, a row of nothing
        else is 0.
        """
        Y = self._values(Y)
        answer = np.zeros(self.n_rows)
        for i, seen in enumerate(~np.isnan(Y)):
            if seen.any():
                answer[i] = self[i]._surprise(Y[i : i + 1], np.flatnonzero(seen))
        return answer

    def _surprise(self, Y: FloatArray, seen: IntArray) -> float:
        """Of one row: outputs count as independent, which is all that is known of a distribution in general."""
        u = np.clip(self._cdf(Y)[0, seen], 1e-300, 1.0 - 1e-16)
        return float(gammainc(0.5 * seen.size, 0.5 * (ndtri(u) ** 2).sum()))

    def sample(self, size: int = 1, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw `size` joint values of every row: shape (size, n_rows, n_targets)."""
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        return self._sample(size, np.random.default_rng(seed))

    def condition(self, known: Mapping[Hashable, npt.ArrayLike] | npt.ArrayLike) -> Distribution:
        """Return the distribution of the other outputs, given some of them.

        Parameters
        ----------
        known : mapping or array of shape (n_rows, n_targets)
            A mapping from target names or positions to values, one per row or one for all; or an array with
            NaN for the outputs that are not known, the same ones in every row.

        Returns
        -------
        Distribution
            Over the outputs that are not known, in their order.
        """
        Y = self._known_values(known) if isinstance(known, Mapping) else self._values(known)
        given = ~np.isnan(Y)
        if isinstance(known, Mapping):
            mask: BoolArray = np.zeros(self.n_targets, dtype=np.bool_)
            mask[[self._position(key) for key in known]] = True
        else:
            mask = np.asarray(given.any(axis=0))
        if not np.isfinite(Y[given]).all():
            raise ValueError("known values must be finite")
        if not (given == mask).all():
            raise ValueError("the same outputs must be known in all rows")
        if mask.all():
            raise ValueError("all outputs are known: nothing is left to predict")
        if not mask.any():
            return self
        rest = None
        if self.targets is not None:
            rest = tuple(name for name, is_known in zip(self.targets, mask, strict=True) if not is_known)
        return self._condition(Y, mask, rest)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def __getitem__(self, rows: int | slice | Sequence[int] | IntArray | BoolArray) -> Self:
        """Distribution of some rows; one row stays a batch of one."""
        picked = np.atleast_1d(np.arange(self.n_rows)[rows])
        if picked.ndim != 1:
            raise IndexError("only rows can be selected, by one index")
        return self._take(picked)

    def __iter__(self) -> Iterator[Self]:
        """Rows one after the other."""
        return (self[i] for i in range(self.n_rows))

    def __repr__(self) -> str:
        """Means and standard deviations of the first rows and outputs."""
        names = [str(name) for name in self.targets or range(self.n_targets)][:_SHOWN_TARGETS]
        head = self[:_SHOWN_ROWS]
        mean, std = head.mean, head.std
        cells = [names] + [
            [f"{m:.4g} ± {s:.3g}" for m, s in zip(*pair, strict=True)]
            for pair in zip(mean[:, : len(names)], std[:, : len(names)], strict=True)
        ]
        widths = [max(len(row[j]) for row in cells) for j in range(len(names))]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in cells]
        if self.n_targets > len(names):
            lines = [f"{line}  ..." for line in lines]
        if self.n_rows > _SHOWN_ROWS:
            lines.append("...")
        sizes = ", ".join(
            f"{size} {noun}{'' if size == 1 else 's'}"
            for size, noun in ((self.n_rows, "row"), (self.n_targets, "output"))
        )
        title = f"{type(self).__name__}: {sizes}, mean ± std"
        return "\n".join([title, *(f"  {line}" for line in lines)])

    @abstractmethod
    def _log_pdf(self, Y: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _log_pdf_each(self, Y: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _cdf(self, Y: FloatArray) -> FloatArray: ...

    def _crps(self, Y: FloatArray) -> FloatArray:
        return integrate_crps(self._cell_edges(), Y, lambda x, half: self._cdf(x))

    def _cell_edges(self) -> FloatArray:
        """Values between which distribution functions are smooth: (n_edges, n_rows, n_targets)."""
        shape = (_CELL_SCORES.size, self.n_rows, self.n_targets)
        scores = np.broadcast_to(_CELL_SCORES[:, np.newaxis, np.newaxis], shape)
        return self._tail_quantile(ndtr(-np.abs(scores)), scores > 0.0)

    @abstractmethod
    def _tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray: ...

    @abstractmethod
    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def _condition(self, Y: FloatArray, known: BoolArray, targets: Names | None) -> Distribution: ...

    @abstractmethod
    def _take(self, rows: IntArray) -> Self: ...

    def _values(self, Y: npt.ArrayLike) -> FloatArray:
        columns = getattr(Y, "columns", None)
        if columns is not None and self.targets is not None:
            # A frame is read by name, whatever the order of its columns.
            positions = {column: place for place, column in enumerate(columns)}
            unknown = [name for name in positions if name not in self.targets]
            if unknown or len(positions) != self.n_targets:
                raise ValueError(f"expected the columns {self.targets}, got {tuple(columns)}")
            Y = np.asarray(Y, dtype=np.float64)[:, [positions[name] for name in self.targets]]
        Y = np.asarray(Y, dtype=np.float64)
        if Y.shape != (self.n_rows, self.n_targets):
            raise ValueError(f"expected values of shape {(self.n_rows, self.n_targets)}, got {Y.shape}")
        return Y

    def _known_values(self, known: Mapping[Hashable, npt.ArrayLike]) -> FloatArray:
        Y = np.full((self.n_rows, self.n_targets), np.nan)
        for key, values in known.items():
            column = np.asarray(values, dtype=np.float64)
            if column.shape not in {(), (self.n_rows,)}:
                raise ValueError(f"known values of {key!r} need shape ({self.n_rows},), got {column.shape}")
            if np.isnan(column).any():
                raise ValueError(f"known values of {key!r} contain NaN")
            Y[:, self._position(key)] = column
        return Y

    def _position(self, key: Hashable) -> int:
        if self.targets is not None and key in self.targets:
            return self.targets.index(key)
        if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < self.n_targets:
            return int(key)
        known = range(self.n_targets) if self.targets is None else self.targets
        raise ValueError(f"unknown target {key!r}; the targets are {', '.join(map(repr, known))}")


class MixtureDistribution(Distribution):
    """Predictive distribution that is a finite mixture, given as a distribution of `momostream.distributions.mixtures`.

    Parameters
    ----------
    distribution : Distribution
        Over rows and outputs.
    targets : sequence, optional
        Names of the outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from momostream.distributions.mixtures import Mixture, StudentT
    >>> S = np.array([[1.0, 0.8], [0.8, 1.0]])
    >>> experts = [StudentT(np.array([[m, m]]), S, 10.0) for m in (0.0, 2.0)]
    >>> d = MixtureDistribution(Mixture(np.log([0.5, 0.5]), experts), targets=("wind", "power"))
    >>> d
    MixtureDistribution: 1 row, 2 outputs, mean ± std
         wind    power
      1 ± 1.5  1 ± 1.5
    >>> d.cov.round(2)
    array([[[2.25, 2.  ],
            [2.  , 2.25]]])
    >>> d.condition({"wind": 2.0}).quantile([0.05, 0.5, 0.95]).ravel().round(2)
    array([0.85, 1.96, 3.01])
    """

    def __init__(self, distribution: Multivariate, targets: Sequence[Hashable] | None = None) -> None:
        super().__init__(distribution.n_rows, distribution.n_targets, targets)
        self.distribution = distribution

    @cached_property
    def marginals(self) -> Marginals:
        """Each output on its own: a mixture of Student-t's."""
        return self.distribution.marginals()

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        return self.distribution.mean

    @property
    def std(self) -> FloatArray:
        """Standard deviation of y, noise included, shape (n_rows, n_targets)."""
        return np.asarray(np.sqrt(self.marginals.variance))

    @property
    def cov(self) -> FloatArray:
        """Covariance between outputs, noise included, shape (n_rows, n_targets, n_targets)."""
        return self.distribution.covariance

    def _log_pdf(self, Y: FloatArray) -> FloatArray:
        return self.distribution.log_pdf(Y)

    def _log_pdf_each(self, Y: FloatArray) -> FloatArray:
        return self.marginals.log_pdf(Y)

    def _cdf(self, Y: FloatArray) -> FloatArray:
        return self.marginals.cdf(Y)

    def _crps(self, Y: FloatArray) -> FloatArray:
        return self.marginals.crps(Y)

    def _tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        return self.marginals.tail_quantile(p, upper)

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.distribution.sample(size, rng)

    def _condition(self, Y: FloatArray, known: BoolArray, targets: Names | None) -> MixtureDistribution:
        return MixtureDistribution(self.distribution.condition(Y, known), targets)

    def _take(self, rows: IntArray) -> Self:
        return type(self)(self.distribution.take(rows), self.targets)


class CopulaDistribution(Distribution):
    """Mixtures of Student-t's per output, joined by one t-copula.

    A latent Student-t vector z has the given correlation and degrees of freedom; output p is the value that
    has, under its own mixture, the probability that z_p has under its own Student-t. Conditioning on outputs
    conditions z, which stays a Student-t: the result is of this class again.

    Parameters
    ----------
    marginals : Marginals
        Distribution of each output.
    correlation : array of shape (n_targets, n_targets) or (n_rows, n_targets, n_targets)
        Correlation of the copula. One that is only semi-definite (collinear outputs) gets a relative jitter
        of 1e-10, once.
    dof : float or array of shape (n_rows,)
        Degrees of freedom of the copula; infinite for a Gaussian copula.
    targets : sequence, optional
        Names of the outputs.

    Notes
    -----
    Tail probabilities are followed down to 1e-300 on both sides. Beyond, an output keeps the latent value of
    that probability, so that its density decreases as its own mixture says and the copula adds nothing
    further.

    Mean and standard deviation come straight from the marginals; of a conditioned distribution by quadrature, with
    tails cut at a probability of 1e-17. Covariances come from quadrature as well: given the scale that all z
    share they are those of a Gaussian copula, whose Hermite expansion sum_k rho^k a_k b_k keeps the result
    positive semi-definite.

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
        marginals: Marginals,
        correlation: npt.ArrayLike,
        dof: npt.ArrayLike,
        targets: Sequence[Hashable] | None = None,
    ) -> None:
        n, p = marginals.n_rows, marginals.n_targets
        R = np.asarray(correlation, dtype=np.float64)
        if R.shape not in {(p, p), (n, p, p)}:
            raise ValueError(f"correlation of shape {R.shape} does not fit {n} rows and {p} outputs")
        diagonal = np.diagonal(R, axis1=-2, axis2=-1)
        # Written so that NaN fails.
        symmetric = (np.abs(R - np.swapaxes(R, -1, -2)) <= 1e-6).all()
        if not (symmetric and (np.abs(diagonal - 1.0) <= 1e-6).all()):
            raise ValueError("a correlation matrix is symmetric and finite, with ones on its diagonal")
        R, _ = regularise(R)
        spread = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1))
        R = R / (spread[..., :, np.newaxis] * spread[..., np.newaxis, :])
        dof = np.asarray(dof, dtype=np.float64)
        if dof.shape not in {(), (n,)} or not (dof > 0.0).all():
            raise ValueError("dof must be one positive number, or one per row")
        self._set(marginals, StudentT(np.zeros((n, p)), R, dof), np.broadcast_to(dof, (n,)), False, targets)

    def _set(
        # Fills an object that did not come from __init__ as well: slices and conditioned distributions.
        self,
        marginals: Marginals,
        latent: StudentT,
        dof: FloatArray,
        conditioned: bool,
        targets: Sequence[Hashable] | None,
    ) -> Self:
        super().__init__(marginals.n_rows, marginals.n_targets, targets)
        # The distribution of each output before any conditioning.
        self._base = marginals
        self._latent = latent
        self._dof = dof
        self._conditioned = conditioned
        return self

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""
        return self._moments[0]

    @property
    def std(self) -> FloatArray:
        """Standard deviation of y, noise included, shape (n_rows, n_targets)."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray]:
        if not self._conditioned:
            return self._base.mean, np.sqrt(self._base.variance)
        return _conditioned_moments(self)

    @cached_property
    def cov(self) -> FloatArray:
        """Covariance between outputs, noise included, shape (n_rows, n_targets, n_targets)."""
        return _copula_covariance(self)

    def _log_pdf(self, Y: FloatArray) -> FloatArray:
        z = self._scores(*self._base.tails(Y))
        log_ratio = np.where(np.isnan(Y), 0.0, self._base.log_pdf(Y) - t_log_pdf(z, self._dof[:, np.newaxis]))
        return np.asarray(log_ratio.sum(axis=1) + self._latent.log_pdf(z))

    def _log_pdf_each(self, Y: FloatArray) -> FloatArray:
        log_pdf = self._base.log_pdf(Y)
        if not self._conditioned:
            return log_pdf
        z = self._scores(*self._base.tails(Y))
        spread = self._latent.spread
        after = t_log_pdf((z - self._latent.mean) / spread, self._latent.dof[:, np.newaxis]) - np.log(spread)
        return np.where(np.isnan(Y), 0.0, log_pdf + after - t_log_pdf(z, self._dof[:, np.newaxis]))

    def _surprise(self, Y: FloatArray, seen: IntArray) -> float:
        """By the distance of the latent Student-t vector from its centre, which has an F distribution."""
        z = (self._scores(*self._base.tails(Y)) - self._latent.mean)[0, seen]
        scale = (
            self._latent.factor[0] * np.atleast_3d(self._latent.scale).reshape(-1, self.n_targets, self.n_targets)[0]
        )
        square = float(z @ np.linalg.solve(scale[np.ix_(seen, seen)], z))
        dof = float(self._latent.dof[0])
        n = float(seen.size)
        return float(gammainc(0.5 * n, 0.5 * square) if np.isinf(dof) else fdtr(n, dof, square / n))

    def _cdf(self, Y: FloatArray) -> FloatArray:
        return self._tails(Y)[0] if self._conditioned else self._base.cdf(Y)

    def _crps(self, Y: FloatArray) -> FloatArray:
        if not self._conditioned:
            return self._base.crps(Y)
        crps = np.empty(Y.shape)
        for rows in _chunks(self.n_rows, 100 * self.n_targets * self._base.n_components**2):
            crps[rows] = super(CopulaDistribution, self[rows])._crps(Y[rows])
        return np.where((_tail_index(self) <= 1.0) & ~np.isnan(Y), np.inf, crps)

    def _cell_edges(self) -> FloatArray:
        # Quantiles alone step over components that are narrow and far apart.
        return np.concatenate([super()._cell_edges(), self._base.cell_edges()])

    def _tails(self, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probabilities of `Y` (..., n_rows, n_targets)."""
        z = (self._scores(*self._base.tails(Y)) - self._latent.mean) / self._latent.spread
        dof = self._latent.dof[:, np.newaxis]
        return t_cdf(z, dof), t_cdf(-z, dof)

    def _tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        if not self._conditioned:
            return self._base.tail_quantile(p, upper)
        t = t_quantile(p, self._latent.dof[:, np.newaxis])
        return self._from_scores(self._latent.mean + self._latent.spread * np.where(upper, -t, t))

    def _sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self._from_scores(self._latent.sample(size, rng))

    def _scores(self, lower: FloatArray, upper: FloatArray) -> FloatArray:
        """Latent values of tail probabilities under the marginals, (..., n_rows, n_targets)."""
        z = t_quantile(np.minimum(lower, upper), self._dof[:, np.newaxis])
        return np.where(lower <= upper, z, -z)

    def _from_scores(self, z: FloatArray) -> FloatArray:
        """Values of the outputs for latent values `z`, (..., n_rows, n_targets)."""
        p = t_cdf(-np.abs(z), self._dof[:, np.newaxis])
        return self._base.tail_quantile(p, z > 0.0)

    def _condition(self, Y: FloatArray, known: BoolArray, targets: Names | None) -> CopulaDistribution:
        z = np.where(known, self._scores(*self._base.tails(Y)), np.nan)
        base = self._base.select(np.flatnonzero(~known))
        latent = self._latent.condition(z, known)
        return object.__new__(CopulaDistribution)._set(base, latent, self._dof, True, targets)

    def _take(self, rows: IntArray) -> Self:
        new = object.__new__(type(self))
        return new._set(
            self._base.take(rows), self._latent.take(rows), self._dof[rows], self._conditioned, self.targets
        )


# -----------------------------------------------------------------------------------------------------------
# Quadrature for the copula

# Normal scores reach tail probabilities of 1e-17.
_REACH = 8.5
# Cells for the moments of a conditioned distribution, and Gauss-Legendre points inside each of them.
_EDGES = np.linspace(-_REACH, _REACH, 129)
_INNER, _INNER_WEIGHTS = np.polynomial.legendre.leggauss(3)
# Scores of the scale that all latent values of a t-copula share.
_SCALE_SCORES = np.linspace(-8.0, 8.0, 33)
# Nodes and terms of the Hermite expansion; a Gaussian copula has one scale only and can afford more nodes.
_N_NODES, _N_NODES_GAUSSIAN = 129, 513
_N_TERMS = 32
# Even orders that stand for those beyond: equally likely under a density of k^-1.5.
_LEFT_OUT = [2 * int(0.5 * _N_TERMS / u**2 + 0.5) for u in (np.arange(12) + 0.5) / 12]
# Values held at once.
_CHUNK = 1 << 21


def _normal_weights(scores: FloatArray) -> FloatArray:
    """Weights of the trapezoidal rule for expectations under the standard normal."""
    density = np.exp(-0.5 * scores**2)
    return np.asarray(density / density.sum())


def _conditioned_moments(d: CopulaDistribution) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation by integrating tail probabilities over y.

    E y = c + int_c^inf P(Y > y) dy - int_-inf^c P(Y < y) dy for any centre c, and likewise for the second
    moment. Over y and not over scores, because quantiles may jump.
    """
    mean, std = np.empty((2, d.n_rows, d.n_targets))
    for rows in _chunks(d.n_rows, _EDGES.size * d.n_targets * d._base.n_components):
        mean[rows], std[rows] = _moments_by_quadrature(d[rows])
    return mean, std


def _moments_by_quadrature(d: CopulaDistribution) -> tuple[FloatArray, FloatArray]:
    # The edges only have to be near quantiles, so that a table does.
    t = t_quantile(ndtr(-np.abs(_EDGES)), d._latent.dof[:, np.newaxis, np.newaxis])
    z = d._latent.mean[..., np.newaxis] + d._latent.spread[..., np.newaxis] * np.where(_EDGES > 0.0, -t, t)
    edges = np.moveaxis(_look_up(d, _base_scores(z, d._dof[:, np.newaxis, np.newaxis])), 2, 0)
    half = 0.5 * np.diff(edges, axis=0)
    middle = _EDGES.size // 2
    centre = edges[middle]
    below = (np.arange(_EDGES.size - 1) < middle)[:, np.newaxis, np.newaxis]
    first, second = np.zeros((2, d.n_rows, d.n_targets))
    for x, weight in zip(_INNER, _INNER_WEIGHTS, strict=True):
        y = edges[:-1] + half * (1.0 + x)
        lower, upper = d._tails(y)
        mass = weight * half * np.where(below, -lower, upper)
        first += mass.sum(axis=0)
        second += 2.0 * (mass * (y - centre)).sum(axis=0)
    variance = np.where(_tail_index(d) <= 2.0, np.inf, np.maximum(second - first**2, 0.0))
    return centre + first, np.sqrt(variance)


def _tail_index(d: CopulaDistribution) -> FloatArray:
    """Moments of a conditioned distribution exist up to this order: that of the marginals, raised by what is known."""
    marginal = np.where(d._base.weights > 0.0, d._base.dofs, np.inf).min(axis=1)
    finite = np.isfinite(d._dof)
    raised = np.where(finite, d._latent.dof, 1.0) / np.where(finite, d._dof, 1.0)
    factor = np.where(finite[:, np.newaxis], raised[:, np.newaxis], d._latent.spread**-2.0)
    return np.asarray(marginal * factor)


def _copula_covariance(d: CopulaDistribution) -> FloatArray:
    """Covariance of the outputs of a copula, shape (n_rows, n_targets, n_targets)."""
    covariance = np.empty((d.n_rows, d.n_targets, d.n_targets))
    gaussian = np.isinf(d._latent.dof)
    # Apart, so that a row is treated in the same way whatever the others are.
    for group in (np.flatnonzero(gaussian), np.flatnonzero(~gaussian)):
        for part in _chunks(group.size, _SCALE_SCORES.size * _N_NODES * d.n_targets):
            covariance[group[part]] = _covariance_by_quadrature(d[group[part]])
    # Only the shape of the dependence is left to quadrature: variances are those of the marginals.
    std = d.std
    diagonal = np.arange(d.n_targets)
    spread = np.sqrt(covariance[:, diagonal, diagonal])
    stretch = np.where(np.isfinite(std), std, np.nan) / np.where(spread > 0.0, spread, 1.0)
    covariance *= stretch[:, :, np.newaxis] * stretch[:, np.newaxis]
    covariance[:, diagonal, diagonal] = std**2
    return covariance


def _covariance_by_quadrature(d: CopulaDistribution) -> FloatArray:
    """Covariance up to the cut tails. Degrees of freedom are finite in all rows, or in none."""
    scales, scale_weights = _shared_scales(d._latent.dof)
    n_nodes = _N_NODES_GAUSSIAN if scale_weights.size == 1 else _N_NODES
    nodes = np.linspace(-_REACH, _REACH, n_nodes)
    node_weights = _normal_weights(nodes)
    if d._conditioned:
        z = d._latent.spread[..., np.newaxis, np.newaxis] * scales[:, np.newaxis, :, np.newaxis] * nodes
        z += d._latent.mean[..., np.newaxis, np.newaxis]
        scores = _base_scores(z, d._dof[:, np.newaxis, np.newaxis, np.newaxis])
    else:
        # Not worth repeating for rows of the same degrees of freedom.
        dofs, first, same = np.unique(d._dof, return_index=True, return_inverse=True)
        z = scales[first, np.newaxis, :, np.newaxis] * nodes
        scores = _base_scores(z, dofs[:, np.newaxis, np.newaxis, np.newaxis])[same.ravel()]
    y = _look_up(d, np.broadcast_to(scores, (d.n_rows, d.n_targets, *scores.shape[2:])))
    y -= y.mean(axis=(2, 3), keepdims=True)
    correlation = np.broadcast_to(d._latent.scale, (d.n_rows, d.n_targets, d.n_targets))
    spread = np.sqrt(np.diagonal(correlation, axis1=1, axis2=2))
    correlation = correlation / (spread[:, :, np.newaxis] * spread[:, np.newaxis])

    # Given the shared scale the copula is Gaussian: E y_i y_j = sum_k rho_ij^k a_ik a_jk, a_ik = E y_i h_k.
    h = _hermite(nodes, _N_TERMS)
    a = y @ (h * node_weights).T  # (n_rows, n_targets, n_scales, n_terms)
    residual = y - a @ h
    a[..., 0] -= (scale_weights * a[..., 0]).sum(axis=2, keepdims=True)
    root = np.sqrt(scale_weights)
    power = np.ones_like(correlation)
    covariance = np.zeros_like(correlation)
    for k in range(_N_TERMS):
        b = a[..., k] * root
        covariance += power * (b @ np.swapaxes(b, 1, 2))
        power *= correlation
    # What the expansion leaves out is due to jumps, whose terms fall off as k^-1.5, even and odd ones apart.
    # It is given an average of powers of the correlation: that keeps the matrix semi-definite, and is exact
    # for correlations of 0, 1 and -1.
    root_weights = 0.5 * root[:, np.newaxis] * np.sqrt(node_weights)
    for odd, part in enumerate((residual + residual[..., ::-1], residual - residual[..., ::-1])):
        b = (part * root_weights).reshape(d.n_rows, d.n_targets, -1)
        power = np.mean([correlation ** (k + odd) for k in _LEFT_OUT], axis=0)
        covariance += power * (b @ np.swapaxes(b, 1, 2))
    return np.asarray(0.5 * (covariance + np.swapaxes(covariance, 1, 2)))


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


def _look_up(d: CopulaDistribution, scores: FloatArray) -> FloatArray:
    """Interpolate outputs at normal scores of their marginals, (n_rows, n_targets, ...)."""
    y, lower, upper = d._base.knots()
    knots = normal_scores(np.minimum(lower, upper), lower > upper)
    # Rounding must not break the order.
    knots = np.maximum.accumulate(knots, axis=0)
    found = np.empty(scores.shape)
    for i, j in np.ndindex(d.n_rows, d.n_targets):
        found[i, j] = np.interp(scores[i, j], knots[:, i, j], y[:, i, j])
    return found


def _chunks(n_rows: int, values_per_row: int) -> Iterator[IntArray]:
    step = max(1, _CHUNK // values_per_row)
    for start in range(0, n_rows, step):
        yield np.arange(start, min(start + step, n_rows))
