"""The part of `MOMoGPForecaster` that takes many rows at once: frames of history, and frames of forecasts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from momostream.estimators._base import StreamingEstimator
from momostream.estimators._categories import spread_frame
from momostream.estimators._first_rows import FirstRows
from momostream.estimators._frames import as_frame
from momostream.estimators._long import LongNames, long_names, to_wide, wide_inputs
from momostream.estimators._times import TimeLabels, frame_times
from momostream.horizon.calendar import Clock

if TYPE_CHECKING:
    import pandas as pd

    from momostream.distributions.forecast import Forecast

__all__ = ["SINGLE", "ForecasterBatches"]

# Name of the series of a feed of plain numbers.
SINGLE = "y"


class _Batch(NamedTuple):
    """A frame with a column for each series and input, the inputs among them, and its times."""

    frame: pd.DataFrame
    inputs: list[Hashable]
    times: list[Any] | None
    labels: TimeLabels


class ForecasterBatches(StreamingEstimator):
    """Rows of a frame, learnt one after the other by the methods of the forecaster for one row."""

    time: str | None
    categories: tuple[str, ...] | None
    _clock: Clock
    _early: list[Any] | None
    _first_rows: FirstRows
    _labels: TimeLabels
    _single: bool | None
    _n_rows: int

    def _read(self, y: Any, x: Mapping[Any, Any] | None, time: Any = None) -> Any:
        """Check a row; the model stays as it is."""
        raise NotImplementedError

    def _take(self, row: Any, single: bool | None) -> None:
        """Learn a row that has been checked."""
        raise NotImplementedError

    def forecast(self, horizon: Any = None, xs: Any = None, with_dist: bool = False) -> Any:
        """Forecast the next rows."""
        raise NotImplementedError

    @property
    def n_steps(self) -> int | None:
        """Steps that can be forecast."""
        raise NotImplementedError

    # ------------------------------------------------------------------ history

    def fit(
        self,
        frame: Any,
        inputs: Sequence[Hashable] = (),
        verbose: bool = False,
        long: bool | Sequence[Hashable] | None = None,
    ) -> Self:
        """Start afresh from history; continue with `learn_one`, `learn_many` or `update`.

        Parameters
        ----------
        frame
            A column for each series and input: a frame or Series of pandas or polars, an array, or a list of dicts.
            Times come from the column that ``time`` names, or from an index of dates or periods; rows that are learnt
            later without a timestamp then follow at the same step.
        inputs
            Columns that are inputs; all others are series.
        verbose
            Whether to show a progress bar.
        long
            Whether the frame has one line for each series and time instead: None if it has the columns ``unique_id``,
            ``ds`` and ``y``, or the three names of these columns. Inputs that differ between series become one for
            each, such as ``"price of a"``.

        Examples
        --------
        >>> import pandas as pd
        >>> from momostream import MOMoGPForecaster
        >>> index = pd.period_range("2020-01", periods=36, freq="M")
        >>> sales = pd.Series(range(36), index, dtype=float, name="sales")
        >>> model = MOMoGPForecaster(horizon=2, experts=("last value", "own lags")).fit(sales)
        >>> model.predict()
                   sales
        time
        2023-01  36.0...
        2023-02  37.0...
        """
        with self._lock:
            fresh = self.clone()
            fresh._learn_frame(frame, inputs, verbose, long)
            if self.time is None and fresh._clock.step is None:
                # The step is not known after so few rows: later rows have no times.
                fresh._early, fresh._clock = None, Clock()
            self._replace_by(fresh)
        return self

    def learn_many(
        self, frame: Any, inputs: Sequence[Hashable] | None = None, long: bool | Sequence[Hashable] | None = None
    ) -> None:
        """Learn the rows of a frame in order, as `learn_one` does; if one of them has an error, none is learnt.

        Parameters
        ----------
        frame
            As in `fit`.
        inputs
            Columns that are inputs; None: those that have been inputs so far.
        long
            As in `fit`.
        """
        with self._lock:
            self._learn_frame(frame, inputs, False, long)

    def update(
        self, frame: Any, inputs: Sequence[Hashable] | None = None, long: bool | Sequence[Hashable] | None = None
    ) -> Self:
        """Do what `learn_many` does, and return the model."""
        self.learn_many(frame, inputs, long)
        return self

    def _learn_frame(self, table: Any, inputs: Sequence[Hashable] | None, verbose: bool, long: Any) -> None:
        batch = self._read_batch(table, inputs, long)
        has_begun = self._n_rows > 0
        if batch.times is not None and not has_begun:
            self._early = []
        try:
            rows = self._check_rows(batch)
        except (TypeError, ValueError):
            if not has_begun and self.time is None:
                self._early = None
            raise
        if self._frozen:
            return
        self._labels = TimeLabels(*(new or old for new, old in zip(batch.labels, self._labels, strict=True)))
        # Frames may bring times to a model that has no column for them.
        self._first_rows.end()
        for i in _progress(len(rows), verbose):
            self._take(rows[i], self._single if self._single else False)

    def _check_rows(self, batch: _Batch) -> list[Any]:
        """Check all rows of a frame, each as the one after the row before; the model stays as it is."""
        names = [name for name in batch.frame.columns if name != self.time]
        columns: dict[Hashable, list[Any]] = {name: batch.frame[name].tolist() for name in names}
        clock, n_rows, rows = self._clock, self._n_rows, []
        try:
            self._clock = Clock.from_state(clock.state())
            for i in range(len(batch.frame)):
                x = {name: columns[name][i] for name in batch.inputs}
                y: Any = {name: columns[name][i] for name in names if name not in x}
                if self._single:
                    y = y.get(SINGLE)
                row = self._read(y, x, None if batch.times is None else batch.times[i])
                if row.time is not None:
                    self._clock.advance(*row.time)
                self._n_rows += 1
                rows.append(row)
        finally:
            self._clock, self._n_rows = clock, n_rows
        return rows

    def _read_batch(self, table: Any, inputs: Sequence[Hashable] | None, long: Any) -> _Batch:
        """A table as a frame with a column for each series and input."""
        frame = as_frame(table, "frame", SINGLE, self._targets.keys)
        if isinstance(inputs, str):
            raise ValueError(f"inputs={inputs!r} is not accepted: use a list of column names")
        if inputs is None:
            inputs = [name for name in frame.columns if name in self._inputs or name in (self.categories or ())]
        names = long_names(frame, long)
        if names is not None:
            frame, inputs = self._from_long(frame, names, inputs)
        unknown = [name for name in inputs if name not in frame.columns]
        if unknown:
            columns = ", ".join(map(repr, frame.columns))
            raise ValueError(
                f"inputs={list(inputs)!r} is not accepted: use a list of column names; the columns are {columns}"
            )
        for name in frame.columns:
            if name != self.time and frame[name].dtype.kind == "M":
                raise TypeError(f"the column {name!r} holds dates: if it is the time, set time={name!r}")
        labels = TimeLabels()
        if self.time in frame.columns:
            times: list[Any] | None = frame[self.time].tolist()
            if frame[self.time].dtype.kind == "M" and frame[self.time].notna().all():
                import pandas as pd

                _, labels = frame_times(pd.DatetimeIndex(frame[self.time]))
        else:
            times, labels = frame_times(frame.index)
        if self.categories:
            before = [*frame.columns]
            frame = spread_frame(frame, self.categories, self._inputs.keys)
            kept = [name for name in inputs if name in frame.columns]
            inputs = [*kept, *(name for name in frame.columns if name not in before)]
        return _Batch(frame, list(inputs), times, labels)

    def _from_long(
        self, frame: pd.DataFrame, names: LongNames, inputs: Sequence[Hashable]
    ) -> tuple[pd.DataFrame, list[Hashable]]:
        """A column for each series, and for each input as far as series differ in it."""
        import pandas as pd

        ours = [name for name in inputs if name not in names]
        if not ours:
            # Inputs learnt one for each series have other names here.
            ours = [
                name
                for name in frame.columns
                if name not in names and any(str(one).startswith(f"{name} of ") for one in self._inputs.keys)
            ]
        wide, x = to_wide(frame, names), wide_inputs(frame, names, ours, self._inputs.keys)
        return pd.concat([wide, x], axis=1), list(x.columns)

    # ------------------------------------------------------------------ forecasts as frames

    def predict(self, horizon: int | str | None = None, X: Any = None) -> pd.DataFrame:
        """Means of the next rows: one row for each step, one column for each series.

        Parameters
        ----------
        horizon
            Number of steps, or a span such as ``"6h"``; by default that of the model.
        X
            Inputs of the steps as far as they are known, as a frame or a list of dicts.
        """
        forecast: Forecast = self.forecast(horizon, X, with_dist=True)
        return forecast.mean

    def _default_steps(self, horizon: int | str | None) -> Any:
        if horizon is not None:
            return horizon
        # Without any row, `forecast` says what is missing.
        return self.n_steps or 1

    def _no_value_yet(self) -> ValueError:
        return ValueError(f"this {type(self).__name__} has learnt no value yet: call fit, update or learn_one first")

    def _future_rows(self, xs: Any) -> list[Any]:
        """Inputs of the steps as dicts."""
        if isinstance(xs, Mapping):
            raise TypeError(f"xs must be a frame or a list with a dict for each step, got a {type(xs).__name__}")
        if hasattr(xs, "columns"):
            frame = as_frame(xs, "xs", "x")
            names = long_names(frame, None if "y" in frame.columns else False)
            if names is None and {"unique_id", "ds"} <= {*frame.columns}:
                names = LongNames("unique_id", "ds", "y")
            if names is not None:
                frame = wide_inputs(frame, names, [c for c in frame.columns if c not in names], self._inputs.keys)
            return frame.to_dict("records")
        return list(xs)


def _progress(n: int, verbose: bool) -> Iterable[int]:
    if not verbose:
        return range(n)
    from tqdm import trange

    bar: Iterable[int] = trange(n, desc="learning", unit="row")
    return bar
