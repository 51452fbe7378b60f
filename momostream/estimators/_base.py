"""The common part of both streaming estimators: names, bounds, the lock, freezing, copies and files."""

from __future__ import annotations

import html
import threading
from collections.abc import Hashable, Mapping
from copy import deepcopy
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from momostream._checks import Constraint, check_state, flag
from momostream.distributions.bounded import Target, TargetMap
from momostream.distributions.circular import Circles, is_circular
from momostream.distributions.limited import UserUnits, held
from momostream.distributions.stacked import Wrap
from momostream.estimators._screening import Screening
from momostream.estimators.vocabulary import Vocabulary

__all__ = ["AUTO", "BOUNDS", "Bounds", "StreamingEstimator"]

Array = NDArray[np.float64]

# A target without bounds and transform.
PLAIN = Target()
#: Limits are found in what targets have shown.
AUTO = "auto"
Bounds = dict[Any, tuple[float | None, float | None] | tuple[float, float, str]] | str | None
BOUNDS = Constraint(
    lambda bounds: bounds is None or bounds == AUTO or isinstance(bounds, Mapping),
    "'auto', a dict such as {'power': (0, 2050)}, or None",
)


class StreamingEstimator:
    """Names, bounds, a lock, copies and files around a core model, which knows arrays only.

    The constructor of a subclass stores and checks its parameters and then calls `_start`. The subclass says how to
    take what it has learnt apart (`_learnt_state`, `_restore_learnt`) and how to restore its core model.
    """

    bounds: Bounds
    transforms: dict[Any, str | tuple[str, float]] | None
    screen: bool
    beyond: str

    # Whether targets may be angles.
    _TAKES_ANGLES = False
    # Key of the names of the targets in saved files.
    _TARGETS_KEY = "targets"
    # Attributes that no copy needs.
    _SCRATCH: tuple[str, ...] = ()

    _model: Any

    if TYPE_CHECKING:

        def clone(self, new_params: dict[Any, Any] | None = None, include_attributes: bool = False) -> Self:
            """A copy that has learnt nothing; the base classes of river have it."""

    def _start(self) -> None:
        """Attributes of an estimator that has seen no row."""
        self._lock = threading.RLock()
        self._frozen = False
        self._inputs, self._targets = Vocabulary(), Vocabulary()
        self._model = None
        self._screening = Screening()
        # Read before the first row, so that a mistake in bounds or transforms is an error of the constructor.
        bounds = self.bounds if isinstance(self.bounds, Mapping) else {}
        self._check_angles(bounds)
        # An angle is a line without limits once its turns are counted.
        bounds = {name: (None, None) if is_circular(limits) else limits for name, limits in bounds.items()}
        limited = {**bounds, **(self.transforms or {})}
        self._limited = {name: Target.named(name, bounds, self.transforms) for name in limited}
        self._columns_changed()

    def _check_angles(self, bounds: Mapping[Any, Any]) -> None:
        """Raise a ValueError for an angle that this estimator cannot predict."""
        for name in filter(lambda name: is_circular(bounds[name]), bounds):
            if not self._TAKES_ANGLES:
                raise ValueError(f"bounds of {name!r}: {type(self).__name__} knows no angles, a forecaster does")
            if name in (self.transforms or {}):
                raise ValueError(f"{name!r} is an angle, which takes no transform")
            Circles.of([name], bounds)

    # ------------------------------------------------------------------ names and bounds

    @property
    def inputs(self) -> tuple[Hashable, ...]:
        """Names of the inputs seen so far."""
        return self._inputs.keys

    def _add_columns(self, inputs: Any, targets: Any) -> None:
        """Give new names their columns."""
        self._inputs.columns(inputs)
        self._targets.columns(targets)
        self._columns_changed()

    def _columns_changed(self) -> None:
        names = self._targets.keys
        targets = [self._limited.get(name, PLAIN) for name in names]
        #: What targets are held to when they are learnt, and the scales of those that have a transform.
        self._map = TargetMap(targets, names)
        self._scales = TargetMap([target if target.transform else PLAIN for target in targets], names)
        self._circles = Circles.of(names, self.bounds)
        self._screening.widen(len(self._inputs), len(names))

    def _check_bounds(self, targets: Mapping[Hashable, float | Array]) -> None:
        """Raise a ValueError for a value that its target cannot have, before anything is registered."""
        for name, values in targets.items() if self._limited else ():
            if name in self._limited:
                limits = TargetMap([self._limited[name]], [name])
                column = np.reshape(np.asarray(values, dtype=np.float64), (-1, 1))
                limits.forward(np.clip(column, *limits.closed) if self.beyond == "clip" else column)
                if self.beyond != "clip" and not Circles.of([name], self.bounds).is_reading(column).all():
                    raise ValueError(f"target {name!r} is {column.item()}, more than a turn away from its range")

    def _screened(self, X: Array, Y: Array) -> Array:
        """Set gross errors of rows aside, in place, and clip; returns the targets on the scale of the model."""
        if not self._map.is_plain:
            # An error comes before anything has changed.
            self._map.forward(np.clip(Y, *self._map.closed) if self.beyond == "clip" else Y)
        if self._circles:
            self._screening.unwrap(Y, self._circles)
        if self.screen:
            self._screening.screen(X, Y)
        if self._circles:
            self._screening.keep_angles(Y, self._circles)
        if not self._map.is_plain:
            Y = self._screening.clip(Y, self._map)
        self._screening.shown.show(Y)
        return Y if self._map.is_plain else self._map.forward(Y)

    def _screened_row(self, x: Array, y: Array) -> Array:
        """As `_screened`, for one row."""
        if self.screen and self._map.is_plain and not self._circles:
            self._screening.screen_row(x, y)
            return y
        return self._screened(x[None], y[None])[0]

    @property
    def _range_rows(self) -> float:
        """Readings after which a series has shown its range, see `ShownLimits.limits`."""
        return 0.0

    def _limits(self) -> Array | None:
        """Limits of the targets, see `momostream.distributions.limited`; None if there are none."""
        if self.bounds is None:
            return None
        limits = self._screening.shown.limits(self._range_rows)
        for j in self._map.changed:
            target = self._map.targets[j]
            # A transform has limits of its own.
            limits[:2, j] = (-np.inf, np.inf) if target.transform else (target.low, target.high)
            limits[2:, j] = 0.0
        if self._circles:
            limits[:2, self._circles.columns], limits[2:, self._circles.columns] = [[-np.inf], [np.inf]], 0.0
        return limits

    def _wrap(self, limits: Array | None) -> Wrap | None:
        """From the distribution of the model to the user's; None if they are the same."""
        if limits is None and self._scales.is_plain:
            return None
        return UserUnits(None if self._scales.is_plain else self._scales, limits)

    @staticmethod
    def _held(limits: Array | None, mean: Array) -> Array:
        return mean if limits is None else held(limits, mean)

    @property
    def rejected_readings(self) -> dict[Hashable, dict[str, Any]]:
        """Readings that were set aside as gross errors, by column: their number, by reason, and the newest of them.

        Reasons are ``"jump"`` and ``"code"`` (a code for a missing reading, such as -9999). Rows are counted from 0,
        rows that filled gaps included.
        """
        with self._lock:
            return self._screening.rejected(self._inputs.keys, self._targets.keys)

    @property
    def stuck_readings(self) -> dict[Hashable, int]:
        """How many readings of each column repeat the one before far longer than usual, while other columns move.

        They are learnt: a sensor that is stuck shows nothing unseen, and some machines rest.
        """
        with self._lock:
            return self._screening.stuck(self._inputs.keys, self._targets.keys)

    @property
    def clipped_readings(self) -> dict[Hashable, int]:
        """How many values of each target were beyond its ``bounds`` and counted as lying on them.

        Of an angle: more than a turn away from its range, and counted as missing.
        """
        with self._lock:
            return self._screening.clipped(self._targets.keys)

    def _describe_readings(self) -> list[str]:
        """Lines about readings that were set aside or clipped."""
        lines = [
            f"  {name}: {found['count']} readings set aside, the last one {found['value']:g} in row {found['row']} "
            f"({found['reason']})"
            for name, found in self._screening.rejected(self._inputs.keys, self._targets.keys).items()
        ]
        stuck = self._screening.stuck(self._inputs.keys, self._targets.keys)
        lines += [f"  {name}: {n} readings of a sensor that seems stuck" for name, n in stuck.items()]
        clipped = self._screening.clipped(self._targets.keys)
        lines += [f"  {name}: {n} values clipped to the bounds" for name, n in clipped.items()]
        lines += [
            f"  {self._targets.keys[j]}: an angle from {circle.low:g} to {circle.low + circle.period:g}"
            for j, circle in self._circles.ranges.items()
        ]
        if self.bounds is None:
            return lines
        found = self._screening.shown.describe(self._targets.keys)
        return lines + [f"  {line}" for name, line in found.items() if name not in self._limited]

    # ------------------------------------------------------------------ control

    def freeze(self) -> None:
        """Stop learning: rows are checked and then ignored until `unfreeze`.

        The last values that experts on lags start from stay as they are, too.
        """
        self._frozen = True

    def unfreeze(self) -> None:
        """Learn again."""
        self._frozen = False

    @property
    def nbytes(self) -> int:
        """Bytes of rows, factors and statistics."""
        with self._lock:
            return 0 if self._model is None else int(self._model.nbytes)

    def describe(self) -> str:
        """The model in a few lines of text."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.describe())}</pre>"

    def _replace_by(self, fresh: Self) -> None:
        """Take over all that another estimator has learnt; threads that wait for the lock see it complete."""
        self.__dict__.update({name: value for name, value in fresh.__dict__.items() if name != "_lock"})

    # ------------------------------------------------------------------ copies and files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that `momostream.load` reads; see `momostream.storage.models`."""
        from momostream.storage import models

        models.save(self, path)  # type: ignore[arg-type]

    def _state(self) -> dict[str, Any]:
        """All that was learnt as plain data."""
        with self._lock:
            return {
                **self._learnt_state(), "frozen": self._frozen, "model": self._model_state(),
                "screening": self._screening.state(),
            }  # fmt: skip

    def _saved_state(self) -> dict[str, Any]:
        """What a file holds: `_state`, or less if that is enough to restore it."""
        return self._state()

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore from `_state` or `_saved_state`."""
        self._inputs = Vocabulary.from_state(state["inputs"])
        self._targets = Vocabulary.from_state(state[self._TARGETS_KEY])
        check_state("state", state, {"frozen": flag()})
        self._frozen = state["frozen"]
        # Earlier versions had none.
        if "screening" in state:
            self._screening.restore(state["screening"], len(self._inputs), len(self._targets))
        self._columns_changed()
        self._restore_learnt(state)
        if state["model"] is not None:
            self._model = self._restored_model(state["model"])

    def _model_state(self) -> Any:
        return None if self._model is None else self._model.state()

    def _learnt_state(self) -> dict[str, Any]:
        """The part of `_state` that only this kind of estimator has, with the names of inputs and targets."""
        raise NotImplementedError

    def _restore_learnt(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _restored_model(self, state: Any) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Parameters, and what was learnt as plain data: arrays that share memory do not survive copying."""
        left_out = {"_lock", "_map", "_scales", "_circles", "_model", *self._SCRATCH}
        with self._lock:
            kept = {name: value for name, value in self.__dict__.items() if name not in left_out}
            # Deep: the original may learn on, in this or another thread, before this is written or restored.
            return deepcopy({**kept, "_model": self._model_state()})

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state.pop("_model")
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._columns_changed()
        self._model = None if model is None else self._restored_model(model)
