"""`Distribution`: one joint distribution of all targets per row, and every quantity that follows from it.

`Distribution` is the class that users see. `MixtureDistribution` wraps a true finite mixture, the prediction of a
circuit with posterior or uniform weights (`momostream.distributions.mixtures`). The prediction of stacked experts is a
`momostream.distributions.copula.CopulaDistribution`: per target a mixture of Student-t's, joined by one t-copula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, ndtr, ndtri

from momostream.distributions.marginals import Marginals, finite_crps, integrate_crps
from momostream.distributions.mixtures import Multivariate
from momostream.distributions.quantiles import check_levels, in_order, interval_ends
from momostream.distributions.student import BoolArray, FloatArray, IntArray
from momostream.distributions.text import aligned, counted, mean_and_std

__all__ = ["Distribution", "MixtureDistribution"]

Names = tuple[Hashable, ...]

# Rows and targets shown by repr.
_SHOWN_ROWS = 5
_SHOWN_TARGETS = 6
# Normal scores of the quantiles between which scores are integrated.
_CELL_SCORES = np.linspace(-7.0, 7.0, 21)


class Distribution(ABC):
    """Predictive distribution of `n_rows` rows over `n_targets` targets.

    Rows are independent of each other; targets are not. NaN in values means that a target was not observed.

    Attributes
    ----------
    targets : tuple or None
        Names of the targets.
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
            raise ValueError(f"got {len(self.targets)} target names for {n_targets} targets")

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets)."""

    @property
    @abstractmethod
    def std(self) -> FloatArray:
        """Standard deviation of y, noise included, shape (n_rows, n_targets).

        A tail of fewer than three degrees of freedom has no third moment, and a component that is far wider than the
        others may rule the standard deviation although hardly any value comes from it. `std`, `cov` and `sample` are
        then those of the distribution whose outermost probability, from 1e-4 to at most 1e-2 on either side, is moved
        to the quantile there: so much that the kurtosis is 80 at most.
        """

    @property
    @abstractmethod
    def cov(self) -> FloatArray:
        """Covariance between targets, noise included, shape (n_rows, n_targets, n_targets).

        The squares of `std` are its diagonal, and samples have the same covariance.
        """

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Joint log density of each row of `Y` (n_rows, n_targets): shape (n_rows,)."""
        return self._log_pdf(self._values(Y))

    def log_pdf_each(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density of each target on its own: shape (n_rows, n_targets), 0 where `Y` is NaN."""
        return self._log_pdf_each(self._values(Y))

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability that a target is at most `Y`: shape (n_rows, n_targets), NaN where `Y` is."""
        return self._cdf(self._values(Y))

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of each target: shape (n_rows, n_targets), NaN where `Y` is.

        In the units of the target; the smaller the better. Infinite where the distribution has no mean.
        """
        return finite_crps(self._crps, self._values(Y))

    def quantile(self, q: float | Sequence[float] | FloatArray) -> FloatArray:
        """Quantiles of each target.

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
        check_levels(levels)
        shape = (*levels.shape, self.n_rows, self.n_targets)
        p = np.broadcast_to(levels[..., np.newaxis, np.newaxis], shape)
        upper = p > 0.5
        return self._tail_quantile(np.where(upper, 1.0 - p, p), upper)

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Central interval of each target: the probability outside is split evenly between both sides.

        Parameters
        ----------
        level : float
            Probability inside, between 0 and 1.

        Returns
        -------
        lower, upper : arrays of shape (n_rows, n_targets)
        """
        lower, upper = in_order(self.quantile(interval_ends(level)))
        return lower, upper

    def surprise(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability that a row is less strange than the one of `Y`, jointly over its targets: shape (n_rows,).

        Uniform on [0, 1] if the distribution is right; near 1 is strange. NaN targets are left out, a row of nothing
        else is 0.
        """
        Y = self._values(Y)
        answer = np.zeros(self.n_rows)
        for i, seen in enumerate(~np.isnan(Y)):
            if seen.any():
                answer[i] = self[i]._surprise(Y[i : i + 1], np.flatnonzero(seen))
        return answer

    def _surprise(self, Y: FloatArray, seen: IntArray) -> float:
        """Surprise of one row, with targets as if they were independent; subclasses may know better."""
        u = np.clip(self._cdf(Y)[0, seen], 1e-300, 1.0 - 1e-16)
        return float(gammainc(0.5 * seen.size, 0.5 * (ndtri(u) ** 2).sum()))

    def sample(self, size: int = 1, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw `size` joint values of every row: shape (size, n_rows, n_targets)."""
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        return self._sample(size, np.random.default_rng(seed))

    def condition(self, known: Mapping[Hashable, npt.ArrayLike] | npt.ArrayLike) -> Distribution:
        """Return the distribution of the other targets, given some of them.

        Parameters
        ----------
        known : mapping or array of shape (n_rows, n_targets)
            A mapping from target names or positions to values, one per row or one for all; or an array with
            NaN for the targets that are not known, the same ones in every row.

        Returns
        -------
        Distribution
            Over the targets that are not known, in their order.
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
            raise ValueError("the same targets must be known in all rows")
        if mask.all():
            raise ValueError("all targets are known: nothing is left to predict")
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
        """Means and standard deviations of the first rows and targets."""
        names = [str(name) for name in self.targets or range(self.n_targets)][:_SHOWN_TARGETS]
        head = self[:_SHOWN_ROWS]
        rows = zip(head.mean[:, : len(names)], head.std[:, : len(names)], strict=True)
        lines = aligned([names, *(mean_and_std(mean, std) for mean, std in rows)])
        if self.n_targets > len(names):
            lines = [f"{line}  ..." for line in lines]
        if self.n_rows > _SHOWN_ROWS:
            lines.append("  ...")
        title = f"{type(self).__name__}: {counted(self.n_rows, 'row')}, {counted(self.n_targets, 'target')}, mean ± std"
        return "\n".join([title, *lines])

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
            positions = {column: position for position, column in enumerate(columns)}
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
    """Predictive distribution that is a finite mixture.

    Parameters
    ----------
    distribution : momostream.distributions.mixtures.Multivariate
        The mixture, over rows and targets.
    targets : sequence, optional
        Names of the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from momostream.distributions.mixtures import Mixture, StudentT
    >>> S = np.array([[1.0, 0.8], [0.8, 1.0]])
    >>> experts = [StudentT(np.array([[m, m]]), S, 10.0) for m in (0.0, 2.0)]
    >>> d = MixtureDistribution(Mixture(np.log([0.5, 0.5]), experts), targets=("wind", "power"))
    >>> d
    MixtureDistribution: 1 row, 2 targets, mean ± std
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
        """Each target on its own: a mixture of Student-t's."""
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
        """Covariance between targets, noise included, shape (n_rows, n_targets, n_targets)."""
        if not self._is_cut.any():
            return self.distribution.covariance
        cov = self.distribution.clipped(*self._ends)[1]
        # Variances of many components together may differ in the last digits.
        stretch = np.sqrt(self.marginals.variance / np.diagonal(cov, axis1=1, axis2=2))
        cov = cov * stretch[:, :, np.newaxis] * stretch[:, np.newaxis]
        diagonal = np.arange(self.n_targets)
        cov[:, diagonal, diagonal] = self.marginals.variance
        return cov

    @property
    def _is_cut(self) -> BoolArray:
        return np.asarray(self.marginals.cut > 0.0)

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Values at which tails are cut, infinite where they are not."""
        p = np.where(self._is_cut, self.marginals.cut, 0.5)
        low, high = (self.marginals.tail_quantile(p, p < side) for side in (0.0, 1.0))
        return np.where(self._is_cut, low, -np.inf), np.where(self._is_cut, high, np.inf)

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
        draws = self.distribution.sample(size, rng)
        return np.clip(draws, *self._ends) if self._is_cut.any() else draws

    def _condition(self, Y: FloatArray, known: BoolArray, targets: Names | None) -> MixtureDistribution:
        return MixtureDistribution(self.distribution.condition(Y, known), targets)

    def _take(self, rows: IntArray) -> Self:
        return type(self)(self.distribution.take(rows), self.targets)
