"""`backtest`: scores of the forecasts that a model would have made over a frame of history, row by row."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from momostream.distributions.scores import absolute_error, is_inside, squared_error

__all__ = ["Backtest", "backtest"]

Array = NDArray[np.float64]

# Under this name the times of the index are handed to a model that has no name for them.
TIME = "time of the row"
OVERALL = "all series"


def backtest(
    model: Any,
    frame: pd.DataFrame,
    horizon: int | None = None,
    *,
    inputs: Sequence[Hashable] = (),
    known: Sequence[Hashable] = (),
    start: int | None = None,
    step: int = 1,
    levels: Sequence[float] = (0.5, 0.9),
    progress: bool = True,
) -> Backtest:
    """Learn a frame row by row, forecast on the way, and compare the forecasts with the rows that followed.

    Parameters
    ----------
    model
        `momostream.MOMoGPForecaster`, or any forecaster with river's ``learn_one(y, x)`` and ``forecast(horizon, xs)``;
        these give points only, and get plain numbers if the frame has one series. A copy of the model is used.
    frame
        A column for each series and input, rows in order of time. An index of dates is the time of the rows, unless
        the model names a column for it; forecasts with times are compared with the rows at these times.
    horizon
        Steps of each forecast; that of the model by default.
    inputs
        Columns that are inputs. The model learns them with each row, and does not see those of rows to come.
    known
        Columns that are inputs known in advance, which the model does see.
    start
        Rows learnt before the first forecast; by default a fifth of all, and at least two horizons.
    step
        Rows from one forecast to the next.
    levels
        Probabilities of the intervals.
    progress
        Whether to show a progress bar, on a terminal.

    Examples
    --------
    Anything that forecasts can be scored, such as the last value:

    >>> class LastValue:
    ...     def learn_one(self, y, x=None):
    ...         self.last = y
    ...     def forecast(self, horizon):
    ...         return [self.last] * horizon
    >>> rng = np.random.default_rng(0)
    >>> wind = 8.0 + 2.0 * np.sin(np.arange(300) * 2 * np.pi / 24) + 0.3 * rng.normal(size=300)
    >>> frame = pd.DataFrame({"wind": wind, "power": 60.0 * wind + 5.0 * rng.normal(size=300)})
    >>> last = backtest(LastValue(), frame, horizon=6, step=4)
    >>> last
    Backtest: 59 forecasts of 6 steps, 2 series
                  MAE   RMSE   MASE
    wind        1.160  1.336  2.894
    power       70.55  81.29  3.027
    all series  35.86  41.31  2.961
    >>> last.forecasts.head(2).round(1)
       origin  step  time series   mean  actual
    0      59     1    60   wind    8.3     7.9
    1      59     1    60  power  504.1   465.3

    `MOMoGPForecaster` predicts a distribution of each value, which is scored too:

    >>> from momostream import MOMoGPForecaster
    >>> model = MOMoGPForecaster(horizon=6, seasons=24, experts=("season", "own lags"), seed=0)
    >>> found = backtest(model, frame, step=4)
    >>> list(found.summary.columns)
    ['MAE', 'RMSE', 'MASE', 'CRPS', 'coverage 0.5', 'coverage 0.9']
    >>> bool((found.scores["MAE"] < last.scores["MAE"]).all())
    True
    """
    for given in (inputs, known):
        if isinstance(given, str):
            raise TypeError(f"expected a list of columns, got {given!r}")
    names = tuple(dict.fromkeys((*inputs, *known)))
    _check_frame(frame, names)
    horizon = _check_horizon(model, horizon)
    if not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"levels={levels!r} is not accepted: use probabilities inside (0, 1)")
    first = max(len(frame) // 5, 2 * horizon) if start is None else _whole("start", start)
    origins = range(first, len(frame) - horizon + 1, _whole("step", step))
    if not origins:
        raise ValueError(
            f"frame has {len(frame)} rows, too few for {first} before the first forecast and {horizon} to score it"
        )
    replay = _Replay(model, frame, names, known)
    forecasts = pd.concat(
        [replay.forecast(origin, horizon, levels) for origin in _watched(origins, progress)], ignore_index=True
    )
    if forecasts["actual"].isna().all():
        raise ValueError(
            "no forecast could be compared with the frame: all its values are missing, or the model forecasts rows "
            "after its end"
        )
    scale = pd.DataFrame(replay.values[:first]).diff().abs().mean()
    # A constant series has no unit to measure errors in.
    scale = scale.where(scale > 0.0)
    return Backtest(forecasts, dict(zip(replay.series, scale, strict=True)), levels)


class Backtest:
    """Forecasts on the way through a frame, and their scores.

    Parameters
    ----------
    forecasts
        One line for each forecast value.
    scale
        Errors of each series are measured in units of it for MASE.
    levels
        Probabilities of the intervals.

    Attributes
    ----------
    forecasts : pandas.DataFrame
        One line for each forecast, step and series: ``origin``, the label of the last row learnt; ``step``, from 1;
        ``time``, the label or time of the row that is forecast; ``series``, ``mean``; and for models that give
        distributions ``lower`` and ``upper`` with the level of the interval, and ``CRPS``; ``actual``, NaN for a
        missing value.
    """

    def __init__(self, forecasts: pd.DataFrame, scale: dict[Hashable, float], levels: Sequence[float]) -> None:
        self.forecasts, self.scale, self.levels = forecasts, scale, tuple(levels)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores for each step and series over all forecasts.

        Mean absolute and root mean square error of the means; mean absolute scaled error, in units of the mean change
        from row to row before the first forecast; continuous ranked probability score; share of values inside each
        interval. Missing values are not scored; NaN if all are missing.
        """
        table, actual = self.forecasts, self.forecasts["actual"]
        error = absolute_error(actual, table["mean"])
        units = table["series"].map(self.scale)
        columns = {"MAE": error, "RMSE": squared_error(actual, table["mean"]), "MASE": error / units}
        if "CRPS" in table:
            columns["CRPS"] = table["CRPS"]
            for level in self.levels:
                lower, upper = table[f"lower {level:g}"], table[f"upper {level:g}"]
                is_scored = actual.notna() & lower.notna()
                columns[f"coverage {level:g}"] = is_inside(actual, lower, upper).astype(np.float64).where(is_scored)
        scores = pd.DataFrame(columns).groupby([table["step"], table["series"]], sort=False).mean()
        scores["RMSE"] = np.sqrt(scores["RMSE"])
        return scores

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Means over the steps of each series, and over all series."""
        each = self.scores.groupby(level="series", sort=False).mean()
        return pd.concat([each, each.mean().rename(OVERALL).to_frame().T]).rename_axis(index=None)

    def __repr__(self) -> str:
        """Number of forecasts, steps and series, and the summary."""
        n_steps, n_series = (self.forecasts[name].nunique() for name in ("step", "series"))
        n_forecasts = len(self.forecasts) // max(n_steps * n_series, 1)
        title = f"Backtest: {n_forecasts} forecasts of {n_steps} steps, {n_series} series"
        return f"{title}\n{self.summary.map('{:#.4g}'.format).to_string()}"


class _Replay:
    """A copy of a model on its way through a frame."""

    def __init__(self, model: Any, frame: pd.DataFrame, inputs: Sequence[Hashable], known: Sequence[Hashable]) -> None:
        is_dated = isinstance(frame.index, pd.DatetimeIndex)
        if is_dated and getattr(model, "time", "") is None and getattr(model, "n_rows", None) == 0:
            # As `fit` of the model does: an index of dates is the time.
            self.model = model.clone({"time": TIME})
        else:
            self.model = deepcopy(model)
        time = getattr(self.model, "time", None)
        has_column = time is not None and time in frame.columns
        self.times: pd.Index[Any] = pd.Index(frame[time]) if has_column else frame.index
        self.series: list[Any] = [name for name in frame.columns if name not in inputs and name != time]
        if not self.series:
            raise ValueError("frame has no column that is a series: all are inputs")
        self.frame, self.values = frame, _numbers(frame, self.series)
        self.known = frame[list(known)].to_dict("records") if known else None
        self.gives_distributions = "with_dist" in inspect.signature(model.forecast).parameters
        self._rows = self._read_rows(time if has_column or is_dated else None, list(inputs))
        self._n_learnt = 0

    def _read_rows(self, time: Hashable | None, inputs: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Values and inputs of each row as models take them."""
        given = self.frame[inputs].to_dict("records")
        is_single = len(self.series) == 1 and not self.gives_distributions
        for values, x, moment in zip(self.values.tolist(), given, self.times, strict=True):
            y = values[0] if is_single else dict(zip(self.series, values, strict=True))
            yield y, (x if time is None else {**x, time: moment}) or None

    def forecast(self, n_rows: int, horizon: int, levels: Sequence[float]) -> pd.DataFrame:
        """Learn up to ``n_rows`` rows, forecast those that follow, and compare."""
        for y, x in islice(self._rows, n_rows - self._n_learnt):
            self.model.learn_one(y=y, x=x)
        self._n_learnt = n_rows
        if self.known is None:
            forecast = self._ask(horizon)
            times, rows = self._ahead(forecast, n_rows, horizon)
        else:
            # The rows of the steps depend on their times, which only a forecast has.
            draft = self._ask(horizon) if self.gives_distributions else None
            times, rows = self._ahead(draft, n_rows, horizon)
            forecast = self._ask(horizon, xs=[{} if row < 0 else self.known[row] for row in rows])
        actual = np.where(rows[:, None] < 0, np.nan, self.values[rows])
        if self.gives_distributions and len(forecast):
            columns = _read_distribution(forecast, self.series, actual, levels)
        else:
            columns = {"mean": _read_points(forecast, self.series, horizon)}
        return pd.DataFrame(
            {
                "origin": self.frame.index[[n_rows - 1]].repeat(actual.size),
                "step": np.repeat(np.arange(1, horizon + 1), len(self.series)),
                "time": times.repeat(len(self.series)),
                "series": self.series * horizon,
                **{name: values.ravel() for name, values in columns.items()},
                "actual": actual.ravel(),
            }
        )

    def _ask(self, horizon: int, **known: Any) -> Any:
        if not getattr(self.model, "series", True):
            return []
        return self.model.forecast(horizon, **known, **({"with_dist": True} if self.gives_distributions else {}))

    def _ahead(self, forecast: Any, n_rows: int, horizon: int) -> tuple[pd.Index[Any], NDArray[np.intp]]:
        """Times of the steps and the numbers of their rows, -1 where there is none."""
        times: Any = getattr(forecast, "index", None)
        if getattr(times, "name", None) != "time":
            rows = np.arange(n_rows, n_rows + horizon)
            return self.frame.index[rows], rows
        if isinstance(self.times, pd.DatetimeIndex) and self.times.tz is not None:
            times = times.tz_convert(self.times.tz)
        # Rows may be missing, and others may come a little early or late.
        return times, self.times.get_indexer(times, method="nearest", tolerance=self._half_step)

    @cached_property
    def _half_step(self) -> Any:
        return pd.Series(self.times).diff().median() / 2


def _read_distribution(forecast: Any, series: list[Any], actual: Array, levels: Sequence[float]) -> dict[str, Array]:
    """Means, intervals and scores in the order of the frame; NaN for series that the model has not seen yet."""
    ours = [column for column, name in enumerate(series) if name in forecast.series]
    theirs = [forecast.series.index(series[column]) for column in ours]

    def ordered(values: Array) -> Array:
        found = np.full(actual.shape, np.nan)
        found[:, ours] = values[:, theirs]
        return found

    columns = {"mean": ordered(forecast.mean.to_numpy())}
    for level in levels:
        sides = forecast.interval(level).to_numpy().reshape(len(forecast), -1, 2)
        columns[f"lower {level:g}"], columns[f"upper {level:g}"] = ordered(sides[..., 0]), ordered(sides[..., 1])
    y = np.full((len(forecast), len(forecast.series)), np.nan)
    y[:, theirs] = actual[:, ours]
    return {**columns, "CRPS": ordered(forecast.arrays.crps(y))}


def _read_points(forecast: Sequence[Any], series: list[Any], horizon: int) -> Array:
    """Means from a list of dicts or numbers; NaN for an empty list, of a model that cannot forecast yet."""
    if not len(forecast):
        return np.full((horizon, len(series)), np.nan)
    if len(forecast) != horizon:
        raise ValueError(f"the model forecast {len(forecast)} steps when asked for {horizon}")
    rows = [row if isinstance(row, Mapping) else {series[0]: row} for row in forecast]
    return np.array([[row.get(name, np.nan) for name in series] for row in rows], dtype=np.float64)


def _numbers(frame: pd.DataFrame, names: list[Any]) -> Array:
    """Values of columns; NaN is missing."""
    values = np.empty((len(frame), len(names)))
    for column, name in enumerate(names):
        if pd.api.types.is_datetime64_any_dtype(frame[name]):
            raise TypeError(f"the column {name!r} holds dates: if it is the time, give the model time={name!r}")
        try:
            values[:, column] = frame[name].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the column {name!r} is not a series of numbers: {error}") from None
    return values


def _check_frame(frame: Any, inputs: Sequence[Hashable]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"frame must be a pandas DataFrame, got {type(frame).__name__}")
    if not frame.columns.is_unique:
        raise ValueError(f"frame has two columns {frame.columns[frame.columns.duplicated()][0]!r}")
    for name in inputs:
        if name not in frame.columns:
            raise ValueError(f"there is no input {name!r}; the columns are {', '.join(map(repr, frame.columns))}")
    index = frame.index
    if isinstance(index, pd.DatetimeIndex) or pd.api.types.is_numeric_dtype(index.dtype):
        wrong = np.flatnonzero(~(index[1:] > index[:-1]))
        if len(wrong):
            before, after = index[wrong[0]], index[wrong[0] + 1]
            raise ValueError(f"the index of frame must increase: row {wrong[0] + 1} is {after}, after {before}")


def _check_horizon(model: Any, horizon: int | None) -> int:
    most = getattr(model, "horizon", None)
    if horizon is None and most is None:
        raise ValueError(f"horizon is missing: {type(model).__name__} has none of its own")
    wanted = _whole("horizon", most if horizon is None else horizon)
    if most is not None and wanted > most and getattr(model, "strategy", "direct") == "direct":
        raise ValueError(f"horizon={wanted} is not accepted: the model forecasts {most} steps")
    return wanted


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r} is not accepted: use a whole number of at least 1")
    return int(value)


def _watched(origins: range, progress: bool) -> Iterator[int]:
    from tqdm import tqdm

    yield from tqdm(origins, desc="backtest", unit="forecast", disable=None if progress else True, leave=False)
