"""Targets with bounds and targets modelled on another scale, as one distribution in the user's units.

The model works on `z`, the user sees `y`. A `TargetMap` takes values from one to the other, target by target.
`BoundedMarginals` is the distribution of `y`: that of `z`, restricted to what the bounds allow and carried along the
increasing map. A copula on top of it sees the probabilities that it would see without bounds, so that quantiles,
samples, means and covariances all belong to one distribution, which gives nothing to values outside the bounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from momostream.distributions.marginals import Marginals, row_chunks
from momostream.distributions.moments import (
    LEAST_INDEX,
    MOST_KURTOSIS,
    QUADRATURE_VALUES,
    Moments,
    cut_moments,
    mixture_moments,
    settled,
)
from momostream.distributions.student import BoolArray, FloatArray, IntArray, t_quantile

__all__ = ["BoundedMarginals", "Target", "TargetMap", "Transform"]

Transform = Literal["log", "sqrt", "logit"]

# Values of unbounded transforms are not followed beyond this; squares of it stay finite.
_LARGEST = 1e100


@dataclass(frozen=True)
class Target:
    """Bounds of one target, and the scale on which it is modelled.

    Parameters
    ----------
    lower, upper : float, optional
        Bounds. A value may lie on a bound, but see `offset`.
    transform : {"log", "sqrt", "logit"}, optional
        The model sees ``log(y - lower + offset)``, ``sqrt(y - lower + offset)``, or the log odds of y between
        ``lower - offset`` and ``upper + offset``. The first two take 0 for a lower bound that is not given; the log
        odds need both.
    offset : float
        Distance from the bounds to the points where the transform or its slope is infinite. With 0, values on these
        bounds are rejected. If they occur (rain, power at standstill), give an offset: about the
        difference that no longer matters.

    Notes
    -----
    On a log scale without an upper bound a Student-t has no mean, whatever its degrees of freedom: the median
    replaces it, and the variance is that of the distribution with its tails cut, see
    `momostream.distributions.moments`. Quantiles and intervals are not affected. With an upper bound, however generous,
    all moments exist.

    Examples
    --------
    >>> rain = Target(lower=0.0, transform="log", offset=0.1)
    >>> z = rain.to_model(np.array([0.0, 0.9, 9.9]))
    >>> z.round(2)
    array([-2.3,  0. ,  2.3])
    >>> rain.to_user(z).round(6)
    array([0. , 0.9, 9.9])
    """

    lower: float | None = None
    upper: float | None = None
    transform: Transform | None = None
    offset: float = 0.0

    def __post_init__(self) -> None:
        if self.transform not in {None, "log", "sqrt", "logit"}:
            raise ValueError(f"transform must be 'log', 'sqrt', 'logit' or None, got {self.transform!r}")
        if not (np.isfinite(self.offset) and self.offset >= 0.0):
            raise ValueError(f"offset must be finite and not negative, got {self.offset}")
        if self.transform is None and self.offset:
            raise ValueError("an offset needs a transform")
        if self.transform == "logit" and (self.lower is None or self.upper is None):
            raise ValueError("transform 'logit' needs a lower and an upper bound")
        if not all(np.isfinite(bound) for bound in (self.lower, self.upper) if bound is not None):
            raise ValueError("bounds must be finite; leave out those that do not exist")
        if not self.low < self.high:
            raise ValueError(f"the lower bound {self.low} is not below the upper bound {self.high}")

    @classmethod
    def named(cls, name: Hashable, bounds: Mapping[Any, Any] | None, transforms: Mapping[Any, Any] | None) -> Target:
        """The target that users describe by ``{name: (lower, upper)}`` and ``{name: kind or (kind, offset)}``."""
        limits = (bounds or {}).get(name, (None, None))
        if not (isinstance(limits, tuple | list) and len(limits) == 2):
            raise ValueError(f"bounds of {name!r} must be a pair (lower, upper), got {limits!r}")
        transform = (transforms or {}).get(name)
        kind, offset = transform if isinstance(transform, tuple | list) else (transform, 0.0)
        return cls(limits[0], limits[1], kind, offset)

    @property
    def low(self) -> float:
        """Lower bound, infinite if there is none."""
        if self.lower is None:
            return 0.0 if self.transform in {"log", "sqrt"} else -np.inf
        return float(self.lower)

    @property
    def high(self) -> float:
        """Upper bound, infinite if there is none."""
        return np.inf if self.upper is None else float(self.upper)

    @property
    def closed(self) -> tuple[float, float]:
        """The bounds as far as values may lie on them."""
        open_ = self.transform is not None and self.offset == 0.0
        low = -np.inf if open_ else self.low
        return low, np.inf if open_ and self.transform == "logit" else self.high

    @property
    def is_plain(self) -> bool:
        """Whether the model sees the values as they are, and any value is possible."""
        return self.transform is None and self.low == -np.inf and self.high == np.inf

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The bounds on the scale of the model."""
        with np.errstate(divide="ignore"):
            low, high = self.to_model(np.array([self.low, self.high]))
        return float(low), float(high)

    def to_model(self, y: FloatArray) -> FloatArray:
        """Values on the scale of the model; `y` must lie within the bounds."""
        if self.transform == "log":
            return np.log(y - self.low + self.offset)
        if self.transform == "sqrt":
            return np.sqrt(y - self.low + self.offset)
        if self.transform == "logit":
            return np.asarray(np.log(y - self.low + self.offset) - np.log(self.high - y + self.offset))
        return y

    def to_user(self, z: FloatArray) -> FloatArray:
        """Values in the user's units, the nearest possible ones where `z` lies outside the limits."""
        z = np.clip(z, *self.limits)
        if self.transform == "log":
            y = self.low - self.offset + np.exp(np.minimum(z, np.log(_LARGEST)))
        elif self.transform == "sqrt":
            y = self.low - self.offset + np.minimum(z, np.sqrt(_LARGEST)) ** 2
        elif self.transform == "logit":
            y = self.low - self.offset + (self.high - self.low + 2.0 * self.offset) * expit(z)
        else:
            return z
        return np.asarray(np.clip(y, self.low, self.high))

    def log_slope(self, y: FloatArray) -> FloatArray:
        """Log of dz/dy, for values within the bounds."""
        if self.transform is None:
            return np.zeros_like(y)
        log_x = np.log(y - self.low + self.offset)
        if self.transform == "log":
            return np.asarray(-log_x)
        if self.transform == "sqrt":
            return np.asarray(-np.log(2.0) - 0.5 * log_x)
        width = self.high - self.low + 2.0 * self.offset
        return np.asarray(np.log(width) - log_x - np.log(self.high - y + self.offset))

    def is_possible(self, y: FloatArray) -> BoolArray:
        """Whether values have a counterpart on the scale of the model; False for NaN."""
        open_ = self.transform is not None and self.offset == 0.0
        above = y > self.low if open_ else y >= self.low
        below = y < self.high if open_ and self.transform == "logit" else y <= self.high
        return np.asarray(above & below)

    def tail_index(self, dof: FloatArray) -> FloatArray:
        """Order up to which y has moments, when z has Student-t tails of these degrees of freedom."""
        if self.high < np.inf and self.low > -np.inf:
            return np.full_like(dof, np.inf)
        if self.transform == "log":
            return np.where(np.isinf(dof), np.inf, 0.0)
        return 0.5 * dof if self.transform == "sqrt" else dof


class TargetMap:
    """From the user's units to those of the model and back, for all targets.

    Parameters
    ----------
    targets : sequence of Target
        One per target.
    names : sequence, optional
        Names of the targets, for messages.

    Examples
    --------
    >>> m = TargetMap([Target(lower=0.0, transform="sqrt"), Target()], names=("power", "pitch"))
    >>> m.forward([[4.0, 4.0], [9.0, np.nan]])
    array([[ 2.,  4.],
           [ 3., nan]])
    >>> m.forward([[-1.0, 4.0]])
    Traceback (most recent call last):
        ...
    ValueError: target 'power' is -1.0, below its lower bound 0.0
    """

    def __init__(self, targets: Sequence[Target], names: Sequence[Hashable] | None = None) -> None:
        self.targets = tuple(targets)
        self.names: tuple[Hashable, ...] = tuple(range(len(self.targets)) if names is None else names)
        if len(self.names) != len(self.targets):
            raise ValueError(f"got {len(self.names)} names for {len(self.targets)} targets")
        #: Which targets are not plain, and their positions.
        self.is_changed: BoolArray = np.array([not target.is_plain for target in self.targets], dtype=np.bool_)
        self.changed: IntArray = np.flatnonzero(self.is_changed)
        #: Bounds on the scale of the model, each of shape (n_targets,).
        limits = np.reshape([target.limits for target in self.targets], (-1, 2))
        self.z_low: FloatArray = limits[:, 0]
        self.z_high: FloatArray = limits[:, 1]
        #: Bounds in the user's units that values may lie on; infinite where there is none, or the transform is there.
        self.closed: FloatArray = np.array([target.closed for target in self.targets]).reshape(-1, 2).T

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.targets)

    @property
    def is_plain(self) -> bool:
        """Whether no target has bounds or a transform."""
        return self.changed.size == 0

    def forward(self, Y: npt.ArrayLike) -> FloatArray:
        """Values on the scale of the model, (..., n_targets); NaN stays NaN.

        Raises
        ------
        ValueError
            When a value lies outside the bounds of its target, or on one where its transform is infinite.
        """
        Y = np.asarray(Y, dtype=np.float64)
        for name, target, y in self._columns(Y):
            bad = ~(target.is_possible(y) | np.isnan(y))
            if bad.any():
                raise ValueError(f"target {name!r} is {_complaint(target, float(y[bad][0]))}")
        return self.to_model(Y)

    def backward(self, Z: npt.ArrayLike) -> FloatArray:
        """Values in the user's units, (..., n_targets); always within the bounds."""
        Z = np.array(Z, dtype=np.float64)
        for j in self.changed:
            Z[..., j] = self.targets[j].to_user(Z[..., j])
        return Z

    def to_model(self, Y: FloatArray) -> FloatArray:
        """As `forward`, with values outside the bounds taken to the nearest one."""
        Z = np.array(Y, dtype=np.float64)
        with np.errstate(divide="ignore"):
            for j in self.changed:
                target = self.targets[j]
                Z[..., j] = target.to_model(np.clip(Z[..., j], target.low, target.high))
        return Z

    def log_slope(self, Y: FloatArray) -> FloatArray:
        """Log of dz/dy, (..., n_targets); -inf where `Y` is not possible."""
        slopes = np.zeros_like(Y)
        for j in self.changed:
            target, y = self.targets[j], Y[..., j]
            possible = target.is_possible(y)
            slopes[..., j][possible] = target.log_slope(y[possible])
            slopes[..., j][~possible] = -np.inf
        return slopes

    def wrap(self, marginals: Marginals) -> Marginals | BoundedMarginals:
        """Carry marginals from the model's units to the user's."""
        return marginals if self.is_plain else BoundedMarginals(marginals, self)

    def select(self, positions: IntArray) -> TargetMap:
        """Return the map of these targets, in this order."""
        return TargetMap([self.targets[j] for j in positions], [self.names[j] for j in positions])

    def _columns(self, Y: FloatArray) -> Iterator[tuple[Hashable, Target, FloatArray]]:
        return ((self.names[j], self.targets[j], Y[..., j]) for j in self.changed)


def _complaint(target: Target, y: float) -> str:
    if y < target.low:
        return f"{y}, below its lower bound {target.low}"
    if y > target.high:
        return f"{y}, above its upper bound {target.high}"
    return f"{y}, where transform {target.transform!r} is infinite or infinitely steep: give it an offset"


# -----------------------------------------------------------------------------------------------------------
# The distribution

# Probabilities are differences of tails of the wider distribution: below this they have no digits left, and values on a
# bound keep a score that a copula can use.
_SMALLEST_DIFFERENCE = 1e-16
# A component with less than about this share between the bounds is moved until it has that share.
_SMALLEST_SHARE = 1e-8
# Largest width of a component, in distances between the bounds: wider ones are uniform there anyway.
_WIDEST = 1e6


class BoundedMarginals:
    """Distribution of each target in the user's units, with the interface of `Marginals` that a copula needs.

    Parameters
    ----------
    base : Marginals
        Distribution on the scale of the model.
    targets : TargetMap
        Bounds and transforms. Targets without any keep the distribution of `base`, to the last bit.

    Notes
    -----
    The distribution is that of `base`, given that the value lies within the bounds. Components that hardly reach into
    them are moved towards them, until a share of about 1e-8 lies inside. If experts see the target far out of
    bounds, all of them on one side or each on another, it remains a distribution, with probabilities to about 1e-6.

    Examples
    --------
    >>> base = Marginals(1.0, [[[-1.0, 0.0]]], [[[1.0, 0.5]]], np.inf)
    >>> m = BoundedMarginals(base, TargetMap([Target(lower=0.0), Target(transform="log")]))
    >>> m.mean.round(4), np.sqrt(m.variance).round(4)
    (array([[0.5251, 1.1331]]), array([[0.4462, 0.6039]]))
    >>> m.cdf([[0.0, 1.0]])
    array([[0. , 0.5]])
    >>> m.log_pdf([[-0.1, 1.0]]).round(4)
    array([[   -inf, -0.2258]])
    """

    def __init__(self, base: Marginals, targets: TargetMap) -> None:
        if base.n_targets != targets.n_targets:
            raise ValueError(f"got a map of {targets.n_targets} targets for a distribution of {base.n_targets}")
        self.base = base
        self.targets = targets
        self._truncated: BoolArray = np.isfinite(targets.z_low) | np.isfinite(targets.z_high)
        # On the scale of the model: `base`, with components within reach of the bounds.
        self._model = _within_reach(base, targets.z_low, targets.z_high) if self._truncated.any() else base
        # Tail probabilities at both bounds, and what is left between them.
        self._below, self._from_low = self._model.tails(targets.z_low)
        self._to_high, self._above = self._model.tails(targets.z_high)
        mass = np.where(self._below < 0.5, self._to_high - self._below, self._from_low - self._above)
        wide = (self._below < 0.5) & (self._above < 0.5)
        self._mass: FloatArray = np.where(wide, 1.0 - self._below - self._above, mass)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.base.n_rows

    @property
    def n_components(self) -> int:
        """Number of components of the distribution on the scale of the model."""
        return self.base.n_components

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.base.n_targets

    @property
    def mean(self) -> FloatArray:
        """Mean, shape (n_rows, n_targets); the median where there is no mean."""
        return self._moments[0]

    @property
    def variance(self) -> FloatArray:
        """Variance, shape (n_rows, n_targets): that of the distribution cut at `cut`."""
        return self._moments[1]

    @property
    def cut(self) -> FloatArray:
        """Probability on either side without which second moments are, as that of `Marginals`."""
        return self._moments[2]

    @cached_property
    def tail_index(self) -> FloatArray:
        """Order up to which moments exist, shape (n_rows, n_targets)."""
        index = self.base.tail_index
        for j in self.targets.changed:
            index[:, j] = self.targets.targets[j].tail_index(index[:, j])
        return index

    def log_pdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Log density of each value of `Y` (..., n_rows, n_targets); 0 where `Y` is NaN, -inf out of bounds."""
        Y = np.asarray(Y, dtype=np.float64)
        log_pdf = self._model.log_pdf(self.targets.to_model(Y)) - np.log(self._mass) + self.targets.log_slope(Y)
        return np.where(np.isnan(Y), 0.0, log_pdf)

    def tails(self, Y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probability of `Y` (..., n_rows, n_targets); at least 1e-16 on the side of a bound."""
        lower, upper = self._tails(self.targets.to_model(np.asarray(Y, dtype=np.float64)))
        lower = np.where(np.isfinite(self.targets.z_low), np.maximum(lower, _SMALLEST_DIFFERENCE), lower)
        upper = np.where(np.isfinite(self.targets.z_high), np.maximum(upper, _SMALLEST_DIFFERENCE), upper)
        return lower, upper

    def cdf(self, Y: npt.ArrayLike) -> FloatArray:
        """Probability of at most `Y` (..., n_rows, n_targets); NaN where `Y` is."""
        return self._tails(self.targets.to_model(np.asarray(Y, dtype=np.float64)))[0]

    def tail_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """Value with tail probability `p` below it, or above it where `upper`; both (..., n_rows, n_targets)."""
        return self.targets.backward(self._model_quantile(p, upper))

    def cell_edges(self) -> FloatArray:
        """Return values between which the distribution is smooth, in no order: shape (n_edges, n_rows, n_targets)."""
        return self.targets.backward(self._cover.cell_edges())

    def knots(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values that cover the distribution, ascending, with their lower and upper tail probabilities.

        Shapes (n_knots, n_rows, n_targets).
        """
        y = self.targets.backward(self._cover.knots()[0])
        return y, *self.tails(y)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw `size` values per row and target, targets independent: shape (size, n_rows, n_targets)."""
        z = self._model.sample(size, rng)
        truncated = np.flatnonzero(self._truncated)
        if truncated.size:
            u = rng.random((size, self.n_rows, truncated.size))
            z[..., truncated] = self.select(truncated)._model_quantile(np.minimum(u, 1.0 - u), u > 0.5)
        return self.targets.backward(z)

    def crps(self, Y: npt.ArrayLike) -> FloatArray:
        """Continuous ranked probability score of `Y` (n_rows, n_targets), infinite where there is no mean."""
        Y = np.asarray(Y, dtype=np.float64)
        crps = self.base.crps(Y)
        changed = self.targets.changed
        part = self.select(changed)
        for rows in row_chunks(self.n_rows, 512 * changed.size * self.n_components):
            at = np.ix_(rows, changed)
            crps[at] = _crps(part.take(rows), Y[at])
        return np.where((self.tail_index <= 1.0) & ~np.isnan(Y), np.inf, crps)

    def take(self, rows: IntArray) -> BoundedMarginals:
        """Return the distribution of these rows, in this order."""
        return BoundedMarginals(self.base.take(rows), self.targets)

    def select(self, targets: IntArray) -> BoundedMarginals:
        """Return the distribution of these targets, in this order."""
        return BoundedMarginals(self.base.select(targets), self.targets.select(targets))

    @cached_property
    def _cover(self) -> Marginals:
        """A distribution that is wide where this one is wide: its quantiles cover this one."""
        if not self._truncated.any():
            return self._model
        w, m, s, v = self._model.arrays
        nearest = np.clip(m, self.targets.z_low, self.targets.z_high)
        # Out in its tail a density falls over this length.
        z = np.abs(m - nearest) / s
        s = np.minimum(s * (1.0 + z * z / v) / (1.0 + z), self.targets.z_high - self.targets.z_low)
        return Marginals(w, nearest, s, v)

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        mean, variance, cut = self.base.mean, self.base.variance.copy(), self.base.cut.copy()
        # Also where bounds are: by what would be without them.
        heavy = np.minimum(self.tail_index, self.base.tail_index) < LEAST_INDEX
        for j in self.targets.changed:
            target = self.targets.targets[j]
            w, m, s, v = (a[:, :, j] for a in self._model.arrays)
            low, high = np.asarray(target.limits[0]), np.asarray(target.limits[1])
            for rows in row_chunks(self.n_rows, QUADRATURE_VALUES * self.n_components):
                parts = w[rows], m[rows], s[rows], v[rows]
                mean[rows, j], variance[rows, j], kurtosis = mixture_moments(target, parts, low, high)
                heavy[rows, j] |= kurtosis > MOST_KURTOSIS
        without_mean = self.targets.is_changed & (self.tail_index <= 1.0)
        if without_mean.any():
            half = np.full((self.n_rows, self.n_targets), 0.5)
            mean = np.where(without_mean, self.tail_quantile(half, half > 0.5), mean)
        cut[:, self.targets.is_changed] = 0.0
        for j in self.targets.changed:
            rows = np.flatnonzero(heavy[:, j])
            if rows.size:
                one = self.take(rows).select(np.array([j]))
                variance[rows, j], cut[rows, j] = settled(rows.size, one._cut_moments)
        return mean, variance, cut

    def _cut_moments(self, rows: IntArray, cut: float) -> Moments:
        """Moments of the only target after a cut."""
        one, p = self.take(rows), np.full((rows.size, 1), cut)
        low, high = (one._model_quantile(p, p < side)[:, 0] for side in (0.0, 1.0))
        w, m, s, v = (a[:, :, 0] for a in one._model.arrays)
        return cut_moments(self.targets.targets[0], (w, m, s, v), low, high, cut)

    def _tails(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper tail probabilities of values on the scale of the model, within the bounds."""
        lower, upper = self._model.tails(z)
        # Differences are taken between the smaller tails.
        low = np.where(self._below < 0.5, lower - self._below, self._from_low - upper) / self._mass
        high = np.where(self._above < 0.5, upper - self._above, self._to_high - lower) / self._mass
        low = np.where(self._truncated, np.clip(low, 0.0, 1.0), lower)
        high = np.where(self._truncated, np.clip(high, 0.0, 1.0), upper)
        return low, high

    def _model_quantile(self, p: FloatArray, upper: BoolArray) -> FloatArray:
        """As `tail_quantile`, on the scale of the model."""
        # Both tails of the wider distribution are sums, so that the smaller one has all its digits.
        lower_tail = self._below + self._mass * np.where(upper, 1.0 - p, p)
        upper_tail = self._above + self._mass * np.where(upper, p, 1.0 - p)
        p = np.where(self._truncated, np.minimum(lower_tail, upper_tail), p)
        upper = np.where(self._truncated, upper_tail < lower_tail, upper)
        return np.clip(self._model.tail_quantile(p, upper), self.targets.z_low, self.targets.z_high)

    def __repr__(self) -> str:
        """Sizes only."""
        return f"BoundedMarginals({self.n_rows} rows, {self.n_components} components, {self.n_targets} targets)"


def _within_reach(base: Marginals, low: FloatArray, high: FloatArray) -> Marginals:
    """Return `base` with its components moved until each has a small share at least between the bounds."""
    width = high - low
    s = np.minimum(base.scales, _WIDEST * width)
    # A narrower component keeps its distance to the bounds, in units of its scale.
    nearest = np.clip(base.means, low, high)
    m = nearest - (nearest - base.means) * (s / base.scales)
    # Of a tail that is wider than the distance between the bounds, only a part lies between them.
    furthest = -s * t_quantile(_SMALLEST_SHARE * np.maximum(1.0, s / width), base.dofs)
    return Marginals(base.weights, np.clip(m, low - furthest, high + furthest), s, base.dofs)


# -----------------------------------------------------------------------------------------------------------
# Quadrature

# In a cell of a score: (n_nodes, 1, 1, 1).
_CELL_NODES, _CELL_WEIGHTS = np.reshape(np.polynomial.legendre.leggauss(6), (2, -1, 1, 1, 1))


def _crps(distribution: BoundedMarginals, Y: FloatArray) -> FloatArray:
    """Integrate the squared lower tail below `Y`, and the squared upper tail above."""
    knots, _, _ = distribution.knots()
    edges = np.sort(np.concatenate([knots[::2], Y[np.newaxis]]), axis=0)
    half = 0.5 * np.diff(edges, axis=0)
    y = edges[:-1] + half * (1.0 + _CELL_NODES)
    lower, upper = distribution.tails(y)
    return np.asarray((_CELL_WEIGHTS * half * np.where(y > Y, upper, lower) ** 2).sum(axis=(0, 1)))
