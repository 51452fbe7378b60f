"""Online forecasters to compare with, each a small class.

``learn(y)`` takes a complete row (P,), ``forecast()`` gives the points (H, P) of the next H rows. Series are expected
in units of about one. `WithResiduals` makes distributions of the points, in the same way for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.tools.forecast_peers import Forecasts, short
from benchmarks.tools.forecast_scores import Students
from benchmarks.tools.stream_rivals import Residuals, Ridge

Array = NDArray[np.float64]


class Size(NamedTuple):
    """The size of a forecast: ``horizon`` steps of ``n_series`` series, and the rows of a season if one is known."""

    horizon: int
    n_series: int
    season: int | None


class Rival(Protocol):
    """The methods that the benchmark needs of a rival."""

    def learn(self, y: Array) -> None:
        """Take in one complete row."""

    def forecast(self) -> Array | None:
        """Points (H, P) from the last row on, None if none are made there."""


# ---------------------------------------------------------------------- the distribution of what a rival leaves
# unexplained


class ValueResiduals:
    """Width and degrees of freedom of a Student-t for each value: `Residuals` without correlations.

    Examples
    --------
    >>> residuals = ValueResiduals((1,))
    >>> for z in (1.0, np.nan, -2.0, 1.0):
    ...     residuals.learn(np.array([z]))
    >>> width, dof = residuals.distribution()
    >>> round(width.item() ** 2, 2), round(dof.item(), 2)
    (1.34, 4.74)
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mass = np.full(shape, Residuals.NU0)
        self.scatter = self.mass * Residuals.SCALE0

    def distribution(self) -> tuple[Array, Array]:
        """Width and degrees of freedom."""
        return np.sqrt(self.scatter / self.mass + Residuals.FLOOR), self.mass

    def learn(self, z: Array) -> None:
        """Take in residuals; NaN where one is not known."""
        known = ~np.isnan(z)
        self.scatter = np.where(known, Residuals.DISCOUNT * self.scatter + z**2, self.scatter)
        self.mass = np.where(known, Residuals.DISCOUNT * self.mass + 1.0, self.mass)


class WithResiduals:
    """A rival with the Student-t's that its residuals give it: that of step h is known h rows after its origin.

    The rival gets rows whose gaps are filled forward. Points that are not finite or beyond ``FAR`` are replaced by the
    last value, and counted in ``replaced``.
    """

    FAR = 1e3

    def __init__(self, rival: Rival, size: Size) -> None:
        H, P = size.horizon, size.n_series
        self.rival, self.residuals, self.replaced = rival, ValueResiduals((H, P)), 0
        self.seen, self.last = 0, np.zeros(P)
        # Forecasts of the last H origins, that of row t at t modulo H.
        self.pending = np.full((H, H, P), np.nan)

    def rows(self, Y: Array) -> Iterable[Array]:
        """Arrays as they are."""
        return Y

    def learn(self, y: Array) -> None:
        """First the residuals that the row makes known, then the row."""
        steps = np.arange(len(self.pending))
        self.residuals.learn(y - self.pending[(self.seen - 1 - steps) % len(steps), steps])
        self.last = np.where(np.isnan(y), self.last, y)
        self.rival.learn(self.last)
        self.seen += 1

    def forecast(self) -> tuple[Array, Array, Array] | None:
        """Means, widths, degrees of freedom."""
        points = self.rival.forecast()
        slot = (self.seen - 1) % len(self.pending)
        if points is None:
            self.pending[slot] = np.nan
            return None
        near = np.abs(points) <= self.FAR
        self.replaced += near.size - int(near.sum())
        self.pending[slot] = mean = np.where(near, points, self.last)
        return mean, *self.residuals.distribution()

    def distribution(self, answer: tuple[Array, Array, Array] | None) -> Students | None:
        """The Student-t's."""
        return None if answer is None else Students(*answer)


# ---------------------------------------------------------------------- simple rules


class LastValue:
    """The last row, as often as asked for."""

    def __init__(self, size: Size) -> None:
        self.y, self.horizon = np.zeros(size.n_series), size.horizon

    def learn(self, y: Array) -> None:
        """Keep the row."""
        self.y = y

    def forecast(self) -> Array:
        """The last row."""
        return np.tile(self.y, (self.horizon, 1))


class SeasonalLast:
    """The last row of the same phase; the last row of all before a season has passed."""

    def __init__(self, size: Size) -> None:
        assert size.season is not None
        self.season, self.horizon = size.season, size.horizon
        self.rows: deque[Array] = deque(maxlen=size.season)

    def learn(self, y: Array) -> None:
        """Keep the row."""
        self.rows.append(y)

    def forecast(self) -> Array:
        """The last season over and over."""
        if len(self.rows) < self.season:
            return np.tile(self.rows[-1], (self.horizon, 1))
        return np.array([self.rows[step % self.season] for step in range(self.horizon)])


class OneSolve(Ridge):
    """`Ridge` for many outputs: the matrix is symmetric, so that one right-hand side is enough."""

    def predict(self, x: Array) -> tuple[Array, float]:
        """Solve the normal equations for the input."""
        x = np.append(x, 1.0)
        return np.linalg.solve(self.A + self.penalty * np.eye(len(self.A)), x) @ self.B, 1.0


class DirectRidge:
    """Linear regression of all changes from the last row, with forgetting.

    Inputs are the last row of all series, its differences to the three rows before, and where there is a season its
    differences to the rows one season before the origin and one before the last step. An origin is learnt when the last
    row of its forecast is there.
    """

    LAGS = (1, 2, 3)

    def __init__(self, size: Size) -> None:
        self.horizon = size.horizon
        seasonal = (size.season, size.season - size.horizon) if size.season is not None else ()
        self.lags = (*self.LAGS, *seasonal)
        self.past = max(self.lags)
        self.rows: deque[Array] = deque(maxlen=self.past + size.horizon + 1)
        self.ridge = OneSolve((1 + len(self.lags)) * size.n_series, size.horizon * size.n_series)

    def _inputs(self, origin: int) -> Array:
        y = self.rows[origin]
        return np.concatenate([y, *(y - self.rows[origin - lag] for lag in self.lags)])

    def learn(self, y: Array) -> None:
        """Keep the row, and learn the origin whose forecast it ends."""
        self.rows.append(y)
        if len(self.rows) == self.rows.maxlen:
            origin = self.past
            changes = np.array([self.rows[origin + 1 + step] - self.rows[origin] for step in range(self.horizon)])
            self.ridge.learn(self._inputs(origin), changes.ravel())

    def forecast(self) -> Array:
        """The last row before there are rows for all lags."""
        now, last = len(self.rows) - 1, self.rows[-1]
        if now < self.past:
            return np.tile(last, (self.horizon, 1))
        return last + self.ridge.predict(self._inputs(now))[0].reshape(self.horizon, -1)


# ---------------------------------------------------------------------- river


class OnePerSeries:
    """River forecasters, one per series, of values plus ``shift``; the last row before they have seen ``wait`` rows."""

    def __init__(self, make: Callable[[], Any], size: Size, wait: int, shift: float = 0.0) -> None:
        self.models = [make() for _ in range(size.n_series)]
        self.early, self.horizon, self.wait, self.shift = LastValue(size), size.horizon, wait, shift

    def learn(self, y: Array) -> None:
        """One value each."""
        self.early.learn(y)
        self.wait -= 1
        for model, value in zip(self.models, (y + self.shift).tolist(), strict=True):
            model.learn_one(value)

    def forecast(self) -> Array:
        """One path each."""
        if self.wait > 0:
            return self.early.forecast()
        return np.array([model.forecast(self.horizon) for model in self.models]).T - self.shift


# Seasonal settings of river's models: the best of four and of six tried on 2,000 rows of etth1, 6 steps ahead.


def snarimax(size: Size) -> Rival:
    """River's SNARIMAX of orders 3, 1, 1, where there is a season with seasonal orders 1, 1, 1."""
    from river.time_series import SNARIMAX

    season = short(size.season)
    seasonal: dict[str, Any] = {} if season is None else {"m": season, "sp": 1, "sd": 1, "sq": 1}
    return OnePerSeries(partial(SNARIMAX, p=3, d=1, q=1, **seasonal), size, wait=1)


def holt_winters(size: Size) -> Rival:
    """River's Holt-Winters, additive, with .3 for the level, .1 for the trend, .1 for the season.

    It starts the season with ratios to the level, which explode for a level near zero: hence the shift.
    """
    from river.time_series import HoltWinters

    season = short(size.season)
    seasonal: dict[str, Any] = {} if season is None else {"gamma": 0.1, "seasonality": season}
    return OnePerSeries(partial(HoltWinters, alpha=0.3, beta=0.1, **seasonal), size, wait=season or 2, shift=10.0)


# ---------------------------------------------------------------------- forecasts made elsewhere


class Replayed:
    """Forecasts that were made before, at some origins only.

    Examples
    --------
    >>> made = Forecasts(np.array([1]), *np.ones((2, 1, 3, 2), dtype=np.float32), 0.0)
    >>> rival = Replayed(made, Size(2, 2, None))
    >>> for _ in range(2):
    ...     rival.learn(np.zeros(2))
    ...     print(rival.forecast())
    None
    [[1. 1.]
     [1. 1.]]
    """

    def __init__(self, made: Forecasts, size: Size) -> None:
        self.mean, self.horizon = made.mean.astype(float), size.horizon
        self.number = {int(origin): number for number, origin in enumerate(made.origins)}
        self.row = -1

    def learn(self, y: Array) -> None:
        """Count the row."""
        self.row += 1

    def forecast(self) -> Array | None:
        """The first steps of what was made here."""
        number = self.number.get(self.row)
        return None if number is None else self.mean[number, : self.horizon]


RIVALS: dict[str, Callable[[Size], Rival]] = {
    "last_value": LastValue,
    "seasonal_last": SeasonalLast,
    "ridge": DirectRidge,
    "snarimax": snarimax,
    "holt_winters": holt_winters,
}
