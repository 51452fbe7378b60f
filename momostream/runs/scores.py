"""`Track`: how well the predictions of a run have done so far, in bounded memory.

A prediction is kept as `PredictedValues` when it is made, and scored once all the rows that it predicts have come. The
elementary scores are those of `momostream.distributions.scores`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream._numbers import as_number
from momostream.distributions.bounded import TargetMap
from momostream.distributions.circular import Circles
from momostream.distributions.forecast import Forecast
from momostream.distributions.predicted import PredictedValues
from momostream.distributions.scores import absolute_error, error_ratio, means, pit_bins, squared_error
from momostream.estimators.vocabulary import Vocabulary
from momostream.horizon.calendar import AWARE, NUMBER, as_time
from momostream.runs.lookback import ComparedRow, Lookback

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCORES", "Track"]

Array = NDArray[np.float64]

SCORES = ("rmse", "mae", "nlpd", "coverage", "naive")
# Scores that are roots of means.
_ROOTS = (0, 4)
_NAIVE = SCORES.index("naive")
# Rows of the first blocks, and most blocks: beyond that they are merged in pairs.
FIRST_BLOCK, MAX_BLOCKS = 32, 256
N_BINS = 20


class _PendingPrediction(NamedTuple):
    """A prediction, the values that have come since, and the state of the feed when it was made."""

    predicted: PredictedValues
    Y: Array
    last: Array
    row: int
    time: float | None
    # Between the steps, in the unit of the time; None if rows are counted.
    interval: float | None


class _ScoreBlock(NamedTuple):
    """Sums over steps and rows, and how many they are, both of shape ``(n_scores, n_targets)``, up to a row."""

    sums: Array
    counts: Array
    row: int
    time: float


_NO_CORRELATION = np.empty((0, 0))


class _SingleValues(NamedTuple):
    """The planes of a forecast without the correlations, which are large and not scored.

    Its means are kept in `PredictedValues`.
    """

    planes: Array
    between_steps: Array = _NO_CORRELATION
    between_series: Array = _NO_CORRELATION
    means: None = None


class Track:
    """Scores of the predictions of a run: in all, by step, and over time.

    Call `expect` with each prediction and `observe` with each row, in the order in which they happen. A forecast is
    scored when its last row has come; steps whose row never came do not count. Over time, scores are kept in blocks of
    rows, which grow as the run does.

    Parameters
    ----------
    targets
        Names of the targets.
    n_steps
        Steps that every prediction looks ahead; more, once a longer prediction has come.
    level
        Of the intervals whose coverage is counted.

    Attributes
    ----------
    n_rows, n_scored : int
        Rows observed, predictions scored.
    step : float or None
        Microseconds from one step to the next; None if times are not dates.
    lookback : Lookback
        The newest rows beside their forecasts, the worst days, the newest alarms.

    Notes
    -----
    ``nlpd`` is the mean negative log density of single values; ``naive`` the root mean square error of the last value
    before the prediction.

    Examples
    --------
    >>> from momostream import MOMoGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> model, track = MOMoGPRegressor(seed=0), Track(["power"])
    >>> for row in range(1, 301):
    ...     wind = rng.uniform(4, 12)
    ...     x, y = {"wind": wind}, {"power": wind**3 + rng.normal()}
    ...     if prediction := model.predict_one(x, with_dist=True):
    ...         track.expect(PredictedValues.of(prediction, track.targets, track.level))
    ...     _ = track.observe(row, y)
    ...     model.learn_one(x, y)
    >>> track.n_scored, bool(track.summary.loc["power", "rmse"] < 0.2 * track.summary.loc["power", "naive"])
    (299, True)
    >>> track.by_block["coverage"].shape
    (10, 1)
    """

    def __init__(self, targets: Sequence[Hashable], n_steps: int = 1, level: float = 0.9) -> None:
        self.targets, self.n_steps, self.level = tuple(targets), n_steps, level
        self.n_rows = self.n_scored = 0
        shape = len(SCORES), n_steps, len(self.targets)
        self._sums, self._counts = np.zeros(shape), np.zeros(shape)
        self._pit = np.zeros((N_BINS, len(self.targets)))
        self._waiting: deque[_PendingPrediction] = deque()
        self._blocks: list[_ScoreBlock] = []
        self._open = self._empty_block()
        self._block_rows = FIRST_BLOCK
        self._shares: list[tuple[int, dict[str, float]]] = []
        self._last = np.full(len(self.targets), np.nan)
        self._time: float | None = None
        self._kind: str | None = None
        self.step: float | None = None
        self.lookback = Lookback(len(self.targets))

    def _empty_block(self) -> _ScoreBlock:
        shape = len(SCORES), len(self.targets)
        return _ScoreBlock(np.zeros(shape), np.zeros(shape), 0, np.nan)

    # ------------------------------------------------------------------ the run

    def expect(self, predicted: PredictedValues) -> None:
        """Note a prediction of the rows that come next."""
        interval = None
        if predicted.times is not None and self._time is not None:
            first = as_time("time", predicted.times[0])
            interval = None if first is None else first[0] - self._time
        if interval is not None and self._kind != NUMBER:
            self.step = interval
        self._grow(len(predicted.mean))
        Y = np.full(predicted.mean.shape, np.nan)
        self._waiting.append(
            _PendingPrediction(_slim(predicted), Y, self._last.copy(), self.n_rows, self._time, interval)
        )

    def _grow(self, n_steps: int) -> None:
        """Make room for the scores of further steps."""
        more = n_steps - self.n_steps
        if more > 0:
            self.n_steps = n_steps
            self._sums, self._counts = (
                np.pad(each, ((0, 0), (0, more), (0, 0))) for each in (self._sums, self._counts)
            )

    def observe(self, row: int, y: Mapping[Any, Any], time: Any = None) -> bool:
        """Note a row: its number, its values, and its time if the rows of the feed have times.

        Returns whether a block of rows is complete: the moment for `note`.
        """
        values = np.array([as_number(name, y.get(name)) for name in self.targets])
        self._time, kind = as_time("time", time) or (None, None)
        self._kind = kind or self._kind
        self.n_rows += 1
        for waiting in self._waiting:
            self._enter(waiting, values)
        while self._waiting and self._is_over(self._waiting[0]):
            self._score(self._waiting.popleft(), row)
        self._last = np.where(np.isnan(values), self._last, values)
        self._open = self._open._replace(row=row, time=np.nan if self._time is None else self._time)
        complete = self.n_rows % self._block_rows == 0
        if complete:
            self._close_block()
        return complete

    def note(self, shares: Mapping[Any, float]) -> None:
        """Keep the shares of a model's inputs, or of its experts, at this row."""
        self._shares.append((self._blocks[-1].row, {str(name): float(share) for name, share in shares.items()}))

    def _step(self, waiting: _PendingPrediction) -> int:
        """Steps from the row at which a prediction was made to the newest row."""
        if waiting.interval is None or waiting.time is None or self._time is None:
            return self.n_rows - waiting.row
        return round((self._time - waiting.time) / waiting.interval)

    def _is_over(self, waiting: _PendingPrediction) -> bool:
        n_steps = len(waiting.Y)
        # By rows as well: if a feed changes to much shorter steps, the time of a long one may never come.
        return self._step(waiting) >= n_steps or self.n_rows - waiting.row >= 2 * n_steps

    def _enter(self, waiting: _PendingPrediction, values: Array) -> None:
        step = self._step(waiting)
        if 1 <= step <= len(waiting.Y):
            waiting.Y[step - 1] = values

    def _score(self, waiting: _PendingPrediction, row: int) -> None:
        predicted, Y = waiting.predicted, waiting.Y
        pit, log_density = predicted.judge(Y, self.targets)
        circles = predicted.circles(self.targets)
        inside = np.where(np.isnan(pit), np.nan, circles.is_inside(Y, predicted.lower, predicted.upper))
        near = circles.nearest(Y, predicted.mean)
        errors = squared_error(near, predicted.mean), absolute_error(near, predicted.mean)
        naive = squared_error(circles.nearest(Y, waiting.last), waiting.last)
        scores = np.stack([*errors, -log_density, inside, naive])
        known = ~np.isnan(scores)
        scores[~known] = 0.0
        self._sums[:, : len(Y)] += scores
        self._counts[:, : len(Y)] += known
        self._open.sums[:] += scores.sum(axis=1)
        self._open.counts[:] += known.sum(axis=1)
        steps, targets = np.nonzero(~np.isnan(pit))
        np.add.at(self._pit, (pit_bins(pit[steps, targets], N_BINS), targets), 1.0)
        self.n_scored += 1
        if self._step(waiting) == len(Y):
            last = (part[-1] for part in (Y, predicted.mean, predicted.lower, predicted.upper))
            self.lookback.compare(ComparedRow(row, np.nan if self._time is None else self._time, *last))
        squares, naive = scores[0].sum(axis=0), scores[_NAIVE].sum(axis=0)
        self.lookback.score(self._time if self.has_dates else None, squares, naive, known[0].sum(axis=0))

    def _close_block(self) -> None:
        self._blocks.append(self._open)
        self._open = self._empty_block()
        if len(self._blocks) == MAX_BLOCKS:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [_ScoreBlock(a.sums + b.sums, a.counts + b.counts, b.row, b.time) for a, b in pairs]
            self._shares = self._shares[1::2]
            self._block_rows *= 2

    # ------------------------------------------------------------------ scores

    @property
    def summary(self) -> pd.DataFrame:
        """Scores in all: a line for each target."""
        import pandas as pd

        values = _means(self._sums.sum(axis=1), self._counts.sum(axis=1))
        return pd.DataFrame(values.T, index=self._names("target"), columns=list(SCORES))

    @property
    def error_ratio(self) -> float:
        """Error of the model over that of the last value: the geometric mean over the targets; NaN without any."""
        rmse, naive = _means(self._sums.sum(axis=1), self._counts.sum(axis=1))[_ROOTS,]
        return error_ratio(rmse, naive)

    @property
    def by_step(self) -> pd.DataFrame:
        """Scores of each step ahead, by score and target."""
        import pandas as pd

        return self._wide(_means(self._sums, self._counts), pd.RangeIndex(1, self.n_steps + 1, name="step"))

    @property
    def by_block(self) -> pd.DataFrame:
        """Scores over time, by score and target: a line for each block of rows, named after its last row."""
        import pandas as pd

        blocks = self._all_blocks
        if not blocks:
            return self._wide(np.empty((len(SCORES), 0, len(self.targets))), pd.Index([], name="row", dtype=np.int64))
        sums, counts = (np.stack(parts, axis=1) for parts in list(zip(*blocks, strict=True))[:2])
        return self._wide(_means(sums, counts), pd.Index([block.row for block in blocks], name="row"))

    @property
    def block_times(self) -> pd.Index[Any] | None:
        """Times of the last rows of the blocks; None if rows have none."""
        return self.as_index(np.array([block.time for block in self._all_blocks]))

    @property
    def has_dates(self) -> bool:
        """Whether rows have times that are dates."""
        return self._kind is not None and self._kind != NUMBER

    def as_index(self, times: Array) -> pd.Index[Any] | None:
        """Times of rows, as they are kept here, as an index; None if rows have none."""
        import pandas as pd

        if self._kind is None:
            return None
        if self._kind == NUMBER:
            return pd.Index(times, name="time")
        stamps = np.where(np.isnan(times), np.datetime64("NaT", "us"), np.nan_to_num(times).astype("datetime64[us]"))
        return pd.DatetimeIndex(stamps, name="time", tz="UTC" if self._kind == AWARE else None)

    @property
    def pit(self) -> pd.DataFrame:
        """Counts of values by the probability below them, uniform if the predictions are calibrated."""
        import pandas as pd

        edges = pd.Index(np.arange(N_BINS) / N_BINS, name="probability")
        return pd.DataFrame(self._pit.astype(np.int64), index=edges, columns=self._names())

    @property
    def relevance(self) -> pd.DataFrame:
        """Shares that were noted: a line for each block of rows, a column for each name."""
        import pandas as pd

        frame = pd.DataFrame([shares for _, shares in self._shares], dtype=np.float64)
        return frame.set_axis(pd.Index([row for row, _ in self._shares], name="row", dtype=np.int64)).fillna(0.0)

    @property
    def _all_blocks(self) -> list[_ScoreBlock]:
        return [*self._blocks, self._open] if self._open.counts.any() else self._blocks

    def _names(self, name: str | None = None) -> pd.Index[Any]:
        import pandas as pd

        return pd.Index(list(self.targets), tupleize_cols=False, name=name)

    def _wide(self, values: Array, index: pd.Index[Any]) -> pd.DataFrame:
        import pandas as pd

        columns = pd.MultiIndex.from_tuples([(score, name) for score in SCORES for name in self.targets])
        return pd.DataFrame(np.moveaxis(values, 0, 1).reshape(len(index), len(columns)), index=index, columns=columns)

    # ------------------------------------------------------------------ as plain data

    def state(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "targets": Vocabulary(self.targets).state(), "n_steps": self.n_steps, "level": self.level,
            "n_rows": self.n_rows, "n_scored": self.n_scored, "sums": self._sums, "counts": self._counts,
            "pit": self._pit, "blocks": [list(block) for block in self._blocks], "open": list(self._open),
            "block_rows": self._block_rows, "shares": [list(pair) for pair in self._shares],
            "last": self._last, "time": self._time, "kind": self._kind, "step": self.step,
            "waiting": [_waiting_state(waiting) for waiting in self._waiting], "lookback": self.lookback.state(),
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any], scales: TargetMap | None = None) -> Track:
        """The track with this state; ``scales`` are those of the model whose forecasts wait."""
        track = cls(Vocabulary.from_state(state["targets"]).keys, state["n_steps"], state["level"])
        track.n_rows, track.n_scored = state["n_rows"], state["n_scored"]
        track._sums, track._counts, track._pit = (state[name].copy() for name in ("sums", "counts", "pit"))
        track._blocks = [_ScoreBlock(*parts) for parts in state["blocks"]]
        sums, counts, row, time = state["open"]
        track._open = _ScoreBlock(sums.copy(), counts.copy(), row, time)
        track._block_rows, track._shares = state["block_rows"], [(row, shares) for row, shares in state["shares"]]
        track._last, track._time, track._kind = state["last"], state["time"], state["kind"]
        # Earlier versions wrote neither.
        track.step = state.get("step")
        if "lookback" in state:
            track.lookback = Lookback.from_state(state["lookback"])
        track._waiting.extend(_waiting_from_state(waiting, scales) for waiting in state["waiting"])
        return track


def _means(sums: Array, counts: Array) -> Array:
    """Means of the scores, along the first axis; NaN if nothing was counted."""
    found = means(sums, counts)
    found[_ROOTS,] = np.sqrt(found[_ROOTS,])
    return found


# Stores name the planes of a distribution "law".
def _waiting_state(waiting: _PendingPrediction) -> dict[str, Any]:
    predicted = waiting.predicted
    if not isinstance(predicted.prediction, Forecast):
        raise TypeError("a prediction still waits for its row: save between rows")
    return {
        "mean": predicted.mean, "lower": predicted.lower, "upper": predicted.upper, "law": predicted.prediction.planes,
        "series": Vocabulary(predicted.prediction.series).state(), "Y": waiting.Y, "last": waiting.last,
        "row": waiting.row, "time": waiting.time, "interval": waiting.interval,
        "limits": predicted.prediction.limits, "circles": predicted.prediction.circles.state(),
    }  # fmt: skip


def _waiting_from_state(state: Mapping[str, Any], scales: TargetMap | None) -> _PendingPrediction:
    series = Vocabulary.from_state(state["series"]).keys
    targets = None
    if scales is not None:
        # Other series may have come since.
        known = dict(zip(scales.names, scales.targets, strict=True))
        targets = TargetMap([known[name] for name in series], series)
    # Earlier versions wrote neither limits nor circles.
    circles = Circles.from_state(state.get("circles", ()))
    forecast = Forecast(
        _SingleValues(state["law"]), series, targets=targets, limits=state.get("limits"), circles=circles
    )
    predicted = PredictedValues(state["mean"], state["lower"], state["upper"], None, forecast)
    parts = (state[name] for name in ("last", "row", "time", "interval"))
    return _PendingPrediction(predicted, state["Y"].copy(), *parts)


def _slim(predicted: PredictedValues) -> PredictedValues:
    """The same without the correlations of a forecast."""
    prediction = predicted.prediction
    if not isinstance(prediction, Forecast):
        return predicted
    single = Forecast(
        _SingleValues(prediction.planes), prediction.series, targets=prediction.targets, limits=prediction.limits,
        circles=prediction.circles,
    )  # fmt: skip
    return predicted._replace(prediction=single)
