"""The part of `MOMoGPForecaster` that takes many rows at once: frames of history."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from momostream.estimators._base import StreamingEstimator
from momostream.estimators._frames import check_frame
from momostream.horizon.calendar import Clock

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ForecasterBatches"]


class ForecasterBatches(StreamingEstimator):
    """Rows of a frame, learnt one after the other by the methods of the forecaster for one row."""

    time: str | None
    _clock: Clock
    _early: list[Any] | None

    def _read(self, y: Any, x: Mapping[Any, Any] | None, time: Any = None) -> Any:
        """Check a row; the model stays as it is."""
        raise NotImplementedError

    def _take(self, row: Any, single: bool | None) -> None:
        """Learn a row that has been checked."""
        raise NotImplementedError

    def fit(self, frame: pd.DataFrame, inputs: Sequence[Hashable] = (), verbose: bool = False) -> Self:
        """Start afresh from history; continue with `learn_one`.

        Parameters
        ----------
        frame
            A column for each series and input. Times come from the column that ``time`` names, or from an index of
            dates; rows that are learnt later without a timestamp then follow at the same step.
        inputs
            Columns that are inputs; all others are series.
        verbose
            Whether to show a progress bar.
        """
        times = self._read_frame(frame, inputs)
        with self._lock:
            fresh = self.clone()
            if times is not None:
                fresh._early = []
            names = [name for name in frame.columns if name != self.time]
            columns: dict[Hashable, list[Any]] = {name: frame[name].tolist() for name in names}
            for i in _progress(len(frame), verbose):
                x = {name: columns[name][i] for name in inputs}
                y = {name: columns[name][i] for name in names if name not in x}
                fresh._take(fresh._read(y, x, None if times is None else times[i]), single=False)
            if self.time is None and fresh._clock.step is None:
                # The step is not known after so few rows: later rows have no times.
                fresh._early, fresh._clock = None, Clock()
            self._replace_by(fresh)
        return self

    def _read_frame(self, frame: pd.DataFrame, inputs: Sequence[Hashable]) -> list[Any] | None:
        """Times of the rows of a frame; None if they have none."""
        import pandas as pd

        check_frame(frame, "frame")
        unknown = [name for name in inputs if name not in frame.columns]
        if unknown or isinstance(inputs, str):
            names = ", ".join(map(repr, frame.columns))
            raise ValueError(f"inputs={inputs!r} is not accepted: use a list of column names; the columns are {names}")
        if self.time in frame.columns:
            return frame[self.time].tolist()
        return list(frame.index) if isinstance(frame.index, pd.DatetimeIndex) else None


def _progress(n: int, verbose: bool) -> Iterable[int]:
    if not verbose:
        return range(n)
    from tqdm import trange

    bar: Iterable[int] = trange(n, desc="learning", unit="row")
    return bar
