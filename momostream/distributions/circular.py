"""Series that are angles: values on a circle, turns, and the way between both.

A model sees an angle as a line without jumps: each reading is taken at the turn that is nearest to the last one. What
it says about this line comes back to the circle, and values are compared the shorter way round.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["CIRCULAR", "NO_CIRCLES", "Circle", "Circles", "is_circular"]

Array = NDArray[np.float64]

#: The third part of the bounds of an angle.
CIRCULAR = "circular"


def is_circular(limits: Any) -> bool:
    """Whether bounds of a series say that it is an angle."""
    return isinstance(limits, tuple | list) and len(limits) == 3 and limits[2] == CIRCULAR


class Circle(NamedTuple):
    """The range of an angle: its lowest value, and the length of a turn."""

    low: float
    period: float

    @classmethod
    def read(cls, name: Hashable, limits: Sequence[Any]) -> Circle:
        """Read bounds such as ``(0, 360, "circular")``.

        Examples
        --------
        >>> Circle.read("direction", (-180, 180, "circular"))
        Circle(low=-180.0, period=360.0)
        >>> Circle.read("direction", (360, 0, "circular"))
        Traceback (most recent call last):
        ValueError: bounds of 'direction': a circle needs two finite numbers, the lower first, got (360, 0, 'circular')
        """
        numbers = [isinstance(end, int | float | np.number) and not isinstance(end, bool) for end in limits[:2]]
        if not all(numbers) or not math.isfinite(limits[1] - limits[0]) or not limits[0] < limits[1]:
            raise ValueError(
                f"bounds of {name!r}: a circle needs two finite numbers, the lower first, got {tuple(limits)!r}"
            )
        return cls(float(limits[0]), float(limits[1]) - float(limits[0]))


class Circles:
    """Which series are angles, and their ranges; all others stay as they are.

    Parameters
    ----------
    ranges
        Lowest value and length of a turn of each angle, by the position of the series.

    Examples
    --------
    >>> circles = Circles({0: (0.0, 360.0)})
    >>> circles.wrap(np.array([[725.0, 725.0], [-10.0, -10.0]]))
    array([[  5., 725.],
           [350., -10.]])
    >>> circles.nearest(np.array([5.0, 5.0]), np.array([350.0, 350.0]))
    array([365.,   5.])
    >>> lower, upper = circles.interval(np.array([350.0, 350.0]), np.array([370.0, 370.0]))
    >>> lower, upper
    (array([350., 350.]), array([ 10., 370.]))
    >>> circles.is_inside(np.array([5.0, 5.0]), lower, upper)
    array([ True, False])
    """

    def __init__(self, ranges: Mapping[int, Sequence[float]] | None = None) -> None:
        self.ranges = {column: Circle(*ranges[column]) for column in sorted(ranges or {})} if ranges else {}
        self.columns = np.array([*self.ranges], dtype=np.intp)
        self.low: Array = np.array([circle.low for circle in self.ranges.values()])
        self.period: Array = np.array([circle.period for circle in self.ranges.values()])

    @classmethod
    def of(cls, names: Sequence[Hashable], bounds: Any) -> Self:
        """The angles among these series, as the bounds of a forecaster name them."""
        given = bounds if isinstance(bounds, Mapping) else {}
        return cls(
            {
                column: Circle.read(name, given[name])
                for column, name in enumerate(names)
                if name in given and is_circular(given[name])
            }
        )

    def __bool__(self) -> bool:
        """Whether any series is an angle."""
        return bool(self.ranges)

    def select(self, columns: Sequence[int | None]) -> Circles:
        """The angles among these series, in this order; None is a series that is not known."""
        if not self:
            return self
        return Circles({j: self.ranges[column] for j, column in enumerate(columns) if column in self.ranges})

    # ------------------------------------------------------------------ values, the last axis being the series

    def wrap(self, values: Array) -> Array:
        """Values within their ranges, the upper end left out."""
        if not self:
            return values
        wrapped = np.array(values, dtype=np.float64)
        turned = np.mod(wrapped[..., self.columns] - self.low, self.period)
        # Of a tiny negative number, the remainder rounds to the period itself.
        wrapped[..., self.columns] = self.low + np.where(turned < self.period, turned, 0.0)
        return wrapped

    def nearest(self, values: Array, centre: Array) -> Array:
        """Values at the turns nearest to a centre; as they are where that is not known."""
        if not self:
            return values
        moved = np.array(np.broadcast_to(values, np.broadcast_shapes(values.shape, centre.shape)))
        at, around = moved[..., self.columns], np.broadcast_to(centre, moved.shape)[..., self.columns]
        turns = np.rint((around - at) / self.period)
        moved[..., self.columns] = at + self.period * np.where(np.isnan(turns), 0.0, turns)
        return moved

    def interval(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Ends of intervals within the ranges: the lower is above the upper where an interval crosses their ends.

        An interval of a turn or more is the whole range, its upper end included.
        """
        if not self:
            return lower, upper
        whole = (upper - lower)[..., self.columns] >= self.period
        lower, upper = self.wrap(lower), self.wrap(upper)
        for ends, limit in ((lower, self.low), (upper, self.low + self.period)):
            ends[..., self.columns] = np.where(whole, limit, ends[..., self.columns])
        return lower, upper

    def is_inside(self, values: Array, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether values lie inside intervals as `interval` gives them, ends included; False for NaN."""
        inside: NDArray[np.bool_] = (lower <= values) & (values <= upper)
        if self:
            low, high, value = (part[..., self.columns] for part in np.broadcast_arrays(lower, upper, values))
            width = np.where(high - low >= self.period, self.period, np.mod(high - low, self.period))
            inside[..., self.columns] = np.mod(value - low, self.period) <= width
        return inside

    def is_reading(self, values: Array) -> NDArray[np.bool_]:
        """Whether values are angles: readings farther than one turn from their range are not. True for NaN."""
        found = np.ones(values.shape, dtype=np.bool_)
        if self:
            at = values[..., self.columns]
            off = (at < self.low - self.period) | (at > self.low + 2.0 * self.period)
            found[..., self.columns] = ~off
        return found

    # ------------------------------------------------------------------ as plain data

    def state(self) -> list[Any]:
        """Positions and ranges, as plain data."""
        return [[column, *circle] for column, circle in self.ranges.items()]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> Self:
        """Restore from `state`."""
        return cls({column: circle for column, *circle in state})


#: No series is an angle.
NO_CIRCLES = Circles()
