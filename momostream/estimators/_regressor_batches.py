"""The part of `MOMoGPRegressor` that takes many rows at once: frames of inputs and targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import known_numbers
from momostream.distributions.joint import Distribution
from momostream.distributions.quantiles import interval_ends
from momostream.estimators._base import StreamingEstimator
from momostream.estimators._categories import spread_frame
from momostream.estimators._frames import as_frame, first_known, matrix, numeric_columns, quantile_frame, row_named
from momostream.estimators.vocabulary import check_keys
from momostream.horizon.calendar import NUMBER, as_time
from momostream.stream.model import StreamModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RegressorBatches", "seconds_of"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Naive dates are in UTC.
EPOCH = datetime(1970, 1, 1)


class RegressorBatches(StreamingEstimator):
    """Frames, checked as a whole and learnt in large steps."""

    clock: bool | str
    categories: tuple[str, ...] | None
    drift_detector: Any
    _model: StreamModel | None
    _time: float

    def _learn(self, x: Array, y: Array, time: float | None, is_spoiled: bool = False) -> None:
        """Learn a row whose targets are on the scale of the model."""
        raise NotImplementedError

    def _widen(self, x: Mapping[Any, Any], new_inputs: tuple[Hashable, ...], new_targets: tuple[Hashable, ...]) -> None:
        """Give new names their columns, also in the model."""
        raise NotImplementedError

    def _now(self, time: float | None) -> float:
        """Return this time, or that of the next row."""
        raise NotImplementedError

    def learn_many(self, X: Any, Y: Any) -> None:
        """Learn the rows of two tables in order, as `learn_one` does, but in fewer and larger steps.

        Parameters
        ----------
        X, Y
            Inputs and targets, as many rows each: frames or Series of pandas or polars, arrays (columns are then called
            ``x0``, ``x1``, ... and ``y0``, ..., or ``y`` if there is one), or lists of dicts.
        """
        with self._lock:
            rows = self._read_frames(X, Y)
            if rows is None:
                return
            if self.drift_detector is None:
                self._learn_rows(*rows)
            else:
                # The detector must see every row.
                points, targets, times, is_spoiled = rows
                for i, (x, y) in enumerate(zip(points, targets, strict=True)):
                    self._learn(x, y, None if times is None else times[i], bool(is_spoiled[i]))

    def _learn_rows(
        self, points: Array, targets: Array, times: Array | None, is_spoiled: Flags, thorough: bool = False
    ) -> None:
        assert self._model is not None
        self._model.learn_many(points, targets, times, thorough, is_spoiled)
        if times is not None:
            self._time = float(times[-1])

    def update(self, X: Any, Y: Any) -> Self:
        """Do what `learn_many` does, and return the model."""
        self.learn_many(X, Y)
        return self

    def predict(self, X: Any) -> pd.DataFrame:
        """Means of the rows of a table; as `predict_many`."""
        means: pd.DataFrame = self.predict_many(X)
        return means

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Quantiles of the rows of a table: a column for each target and level.

        Examples
        --------
        >>> from momostream import MOMoGPRegressor
        >>> t = np.arange(60.0)
        >>> model = MOMoGPRegressor(seed=0).fit(np.sin(t), np.sin(t))
        >>> model.predict_quantiles(np.array([0.5]), [0.5]).round(1)
             y
           0.5
        0  0.5
        """
        distribution, index = self._distribution(X)
        return quantile_frame(distribution, levels, list(levels), self._targets.keys, index)

    def predict_interval(self, X: Any, level: float = 0.9) -> pd.DataFrame:
        """Central intervals of the rows of a table: ``lower`` and ``upper`` for each target."""
        distribution, index = self._distribution(X)
        return quantile_frame(distribution, interval_ends(level), ["lower", "upper"], self._targets.keys, index)

    def _distribution(self, X: Any) -> tuple[Distribution | None, pd.Index[Any]]:
        """The distribution of the rows of a table, None if there are none, and their labels."""
        with self._lock:
            if self._model is None:
                raise ValueError(f"this {type(self).__name__} has learnt no row yet: call fit or learn_one first")
            frame = as_frame(X, "X", "x", self._inputs.keys)
            return self.predict_many(frame, with_dist=True) if len(frame) else None, frame.index

    def predict_many(self, X: Any, with_dist: bool = False) -> Any:
        """Predict the rows of a table, each as if it were the next one.

        For alternatives at the present time, not for a stretch of the future: to the experts on lags, each of these
        rows follows the last row learnt. Means are those of `predict_one` to the round-off of single precision, in
        which leaves with noise solve.

        Returns
        -------
        pandas.DataFrame or momostream.distributions.joint.Distribution
            Means with the index of ``X``; or, with ``with_dist``, the distribution of all rows.
        """
        import pandas as pd

        with self._lock:
            X, times = self._take_times(X)
            points = matrix(numeric_columns(X, "X"), self._inputs.keys, len(X))
            # Tuples among the names are names, not levels.
            columns = pd.Index(list(self._targets.keys), dtype=object, tupleize_cols=False)
            if self._model is None or not len(X):
                return pd.DataFrame(index=X.index, columns=columns, dtype=np.float64)
            if times is None:
                times = np.full(len(points), self._now(None))
            wrap = self._wrap(self._limits())
            distribution = self._model.predict_many(points, times, self._targets.keys, wrap)
            if with_dist:
                return distribution
            return pd.DataFrame(distribution.mean, index=X.index, columns=columns)

    def fit(self, X: Any, Y: Any) -> Self:
        """Start afresh from history, with all tuning done; continue with `learn_one`. Tables as in `learn_many`."""
        with self._lock:
            fresh = self.clone()
            rows = fresh._read_frames(X, Y)
            if rows is not None:
                fresh._learn_rows(*rows, thorough=True)
            self._replace_by(fresh)
        return self

    def _take_times(self, table: Any) -> tuple[pd.DataFrame, Array | None]:
        """A table of inputs as a frame, and its timestamps; None if time is the number of rows."""
        X = as_frame(table, "X", "x", self._inputs.keys)
        if self.categories:
            X = spread_frame(X, self.categories, self._inputs.keys)
        if isinstance(self.clock, bool):
            return X, None
        times, time = np.full(len(X), self._time), self._time
        if self.clock in X.columns:
            for i, value in enumerate(X[self.clock]):
                with row_named(X, i, "X"):
                    seconds = seconds_of(self.clock, value)
                times[i] = time = time if seconds is None else seconds
            X = X.drop(columns=[self.clock])
        return X, times

    def _read_frames(self, X: Any, Y: Any) -> tuple[Array, Array, Array | None, Flags] | None:
        """Inputs, targets (on the scale of the model) and times of the rows that have a target; None if none has.

        Last, which of these rows lost an input that was set aside. New columns are registered after all else has been
        checked.
        """
        X, times = self._take_times(X)
        Y = as_frame(Y, "Y", "y", self._targets.keys)
        inputs, targets = numeric_columns(X, "X"), numeric_columns(Y, "Y")
        if len(X) != len(Y):
            raise ValueError(f"X has {len(X)} rows and Y {len(Y)}")
        self._check_bounds(targets)
        rows = ~np.isnan(matrix(targets, tuple(targets), len(Y))).all(axis=1)
        if self._frozen or not rows.any():
            return None
        inputs, targets = ({name: part[rows] for name, part in columns.items()} for columns in (inputs, targets))
        new_inputs, new_targets = (
            known_numbers({name: first_known(values) for name, values in columns.items() if name not in seen})
            for columns, seen in ((inputs, self._inputs), (targets, self._targets))
        )
        if new_inputs or new_targets:
            check_keys([*new_inputs, *new_targets])
            self._widen(new_inputs, tuple(new_inputs), tuple(new_targets))
        n = int(rows.sum())
        points, Z = matrix(inputs, self._inputs.keys, n), matrix(targets, self._targets.keys, n)
        given = ~np.isnan(points)
        Z = self._screened(points, Z)
        is_spoiled = np.asarray((given & np.isnan(points)).any(axis=1))
        return points, Z, None if times is None else times[rows], is_spoiled


def seconds_of(name: Hashable, value: Any) -> float | None:
    """A timestamp as a number, seconds since 1970 for dates; None if it is missing."""
    if type(value) is datetime and value.tzinfo is None:
        return (value - EPOCH).total_seconds()
    # pandas' NaT is a datetime that differs from itself.
    if isinstance(value, datetime) and value == value:
        # Not by `as_time`, which drops nanoseconds.
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    found = as_time(name, value)
    if found is None:
        return None
    time, kind = found
    return time if kind == NUMBER else time / 1e6
