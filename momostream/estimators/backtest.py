"""`backtest`: scores of the forecasts that a model would have made over a frame of history, row by row."""

from __future__ import annotations

import inspect
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import date, timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from momostream._checks import check, whole
from momostream.distributions.circular import NO_CIRCLES, Circle, Circles
from momostream.distributions.scores import absolute_error, squared_error
from momostream.estimators._frames import as_frame
from momostream.estimators._long import long_names, to_wide, wide_inputs
from momostream.estimators._origins import origins
from momostream.horizon.calendar import NUMBER
from momostream.horizon.durations import n_steps_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Backtest", "backtest"]

Array = NDArray[np.float64]

# Under this name the times of the index are handed to a model that has no name for them.
TIME = "time of the row"
OVERALL = "all series"
# Scores in the units of a series: their mean over several series has none.
IN_UNITS = ("MAE", "RMSE", "CRPS")


def backtest(
    model: Any,
    frame: Any,
    horizon: int | str | None = None,
    *,
    inputs: Sequence[Hashable] = (),
    known: Sequence[Hashable] = (),
    start: int | str | date | timedelta | None = None,
    step: int | str | timedelta = 1,
    levels: Sequence[float] = (0.5, 0.9),
    progress: bool = True,
    long: bool | Sequence[Hashable] | None = None,
) -> Backtest:
    """Learn a frame row by row, forecast on the way, and compare the forecasts with the rows that followed.

    Parameters
    ----------
    model
        `momostream.MOMoGPForecaster`, or any forecaster with river's ``learn_one(y, x)`` and ``forecast(horizon, xs)``;
        these give points only, and get plain numbers if the frame has one series. A copy of the model is used.
    frame
        A column for each series and input, rows in order of time: a frame or Series of pandas or polars, or an array.
        An index of dates or periods is the time of the rows, unless the model names a column for it; forecasts with
        times are compared with the rows at these times.
    horizon
        Steps of each forecast, or a span such as ``"6h"``; that of the model by default.
    inputs
        Columns that are inputs. The model learns them with each row, and does not see those of rows to come.
    known
        Columns that are inputs known in advance, which the model does see.
    start
        Rows learnt before the first forecast, a span that they cover, such as ``"7d"``, or the time of the first row
        that is forecast, such as ``"2024-03-01"``; by default a fifth of all rows, and at least two horizons.
    step
        Rows from one forecast to the next, or a span such as ``"6h"``.
    levels
        Probabilities of the intervals.
    progress
        Whether to show a progress bar, on a terminal.
    long
        Whether the frame has one line for each series and time; as in `momostream.MOMoGPForecaster.fit`.

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
    all series                2.961
    >>> last.forecasts.head(2).round(1)
       origin  step  time series   mean  actual
    0      59     1    60   wind    8.3     7.9
    1      59     1    60  power  504.1   465.3

    `MOMoGPForecaster` predicts a distribution of each value, which is scored too:

    >>> from momostream import MOMoGPForecaster
    >>> model = MOMoGPForecaster(horizon=6, seasons=24, experts=("season", "own lags"), seed=0)
    >>> found = backtest(model, frame, step=4)
    >>> list(found.summary.columns)
    ['MAE', 'RMSE', 'MASE', 'CRPS', 'scaled CRPS', 'coverage 0.5', 'coverage 0.9']
    >>> print(found.compare(last, ("momostream", "last value"))["ratio"].round(1).to_string())
    wind          0.2
    power         0.2
    all series    0.2
    """
    for given in (inputs, known):
        if isinstance(given, str):
            raise TypeError(f"expected a list of columns, got {given!r}")
    names = tuple(dict.fromkeys((*inputs, *known)))
    frame = _read_table(frame, long, names)
    _check_frame(frame, names)
    horizon = _check_horizon(model, horizon, frame)
    if not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"levels={levels!r} is not accepted: use probabilities inside (0, 1)")
    replay = _Replay(model, frame, names, known)
    rows = origins(replay.times, start, step, horizon)
    forecasts = pd.concat(
        [replay.forecast(n_rows, horizon, levels) for n_rows in _watched(rows, progress)], ignore_index=True
    )
    if forecasts["actual"].isna().all():
        raise ValueError(
            "no forecast could be compared with the frame: all its values are missing, or the model forecasts rows "
            "after its end"
        )
    circles = Circles.of(replay.series, getattr(model, "bounds", None))
    changes = circles.nearest(np.diff(replay.values[: rows[0]], axis=0), np.zeros(len(replay.series)))
    scale = pd.DataFrame(changes).abs().mean()
    # A constant series has no unit to measure errors in.
    scale = scale.where(scale > 0.0)
    angles = {replay.series[j]: circle for j, circle in circles.ranges.items()}
    return Backtest(forecasts, dict(zip(replay.series, scale, strict=True)), levels, angles)


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
    angles
        Series that are angles, with their ranges; their errors are measured the shorter way round.

    Attributes
    ----------
    forecasts : pandas.DataFrame
        One line for each forecast, step and series: ``origin``, the label of the last row learnt; ``step``, from 1;
        ``time``, the label or time of the row that is forecast; ``series``, ``mean``; and for models that give
        distributions ``lower`` and ``upper`` with the level of the interval, and ``CRPS``; ``actual``, NaN for a
        missing value.
    """

    def __init__(
        self,
        forecasts: pd.DataFrame,
        scale: dict[Hashable, float],
        levels: Sequence[float],
        angles: Mapping[Hashable, Circle] | None = None,
    ) -> None:
        self.forecasts, self.scale, self.levels, self.angles = forecasts, scale, tuple(levels), dict(angles or {})

    @cached_property
    def _angles(self) -> list[tuple[NDArray[np.intp], Circles]]:
        """The lines of each angle."""
        names = self.forecasts["series"]
        return [(np.flatnonzero(names == name), Circles({0: circle})) for name, circle in self.angles.items()]

    @cached_property
    def _near(self) -> pd.Series[float]:
        """Actual values, those of angles at the turn nearest to the mean."""
        near, mean = (self.forecasts[name].to_numpy(np.float64, copy=True) for name in ("actual", "mean"))
        for lines, circles in self._angles:
            near[lines] = circles.nearest(near[lines, np.newaxis], mean[lines, np.newaxis])[:, 0]
        return pd.Series(near, self.forecasts.index)

    def _covered(self, level: float) -> pd.Series[float]:
        """Whether actual values lie inside their intervals; NaN where that is not known."""
        parts = (f"lower {level:g}", f"upper {level:g}")
        y, lower, upper = (self.forecasts[name].to_numpy(np.float64)[:, np.newaxis] for name in ("actual", *parts))
        inside = NO_CIRCLES.is_inside(y, lower, upper)
        for lines, circles in self._angles:
            inside[lines] = circles.is_inside(y[lines], lower[lines], upper[lines])
        is_scored = ~(np.isnan(y) | np.isnan(lower))
        return pd.Series(np.where(is_scored, inside, np.nan)[:, 0], self.forecasts.index)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores for each step and series over all forecasts.

        Mean absolute and root mean square error of the means; mean absolute scaled error, in units of the mean change
        from row to row before the first forecast; continuous ranked probability score, in units of the series and
        scaled in the same way; share of values inside each interval. Missing values are not scored; NaN if all are
        missing.
        """
        table, actual = self.forecasts, self._near
        error = absolute_error(actual, table["mean"])
        units = table["series"].map(self.scale)
        columns = {"MAE": error, "RMSE": squared_error(actual, table["mean"]), "MASE": error / units}
        if "CRPS" in table:
            columns["CRPS"], columns["scaled CRPS"] = table["CRPS"], table["CRPS"] / units
            for level in self.levels:
                columns[f"coverage {level:g}"] = self._covered(level)
        scores = pd.DataFrame(columns).groupby([table["step"], table["series"]], sort=False).mean()
        scores["RMSE"] = np.sqrt(scores["RMSE"])
        return scores

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Means over the steps of each series, and over all series; NaN where these have different units."""
        each = self.scores.groupby(level="series", sort=False).mean()
        mean = each.mean()
        if len(each) > 1:
            mean[[name for name in IN_UNITS if name in mean.index]] = np.nan
        return pd.concat([each, mean.rename(OVERALL).to_frame().T]).rename_axis(index=None)

    def compare(
        self, other: Backtest, names: tuple[str, str] = ("this", "other"), score: str | None = None
    ) -> pd.DataFrame:
        """Scores of two backtests over the same frame, beside each other, by series.

        Parameters
        ----------
        other
            Backtest of another model with forecasts of the same values. Values that one of them lacks are left out.
        names
            Names of the two.
        score
            ``"MASE"`` or ``"scaled CRPS"``; by default the latter if both give distributions, else the former.

        Returns
        -------
        pandas.DataFrame
            Both scores, their ratio (below 1: the first is better), and ``better``, the share of forecasts, each over
            all its steps, in which the first had the smaller error.
        """
        keys = ["origin", "step", "series"]
        if score is None:
            score = "scaled CRPS" if "CRPS" in self.forecasts and "CRPS" in other.forecasts else "MASE"
        if score not in ("MASE", "scaled CRPS"):
            raise ValueError(f"score={score!r} is not accepted: use 'MASE' or 'scaled CRPS'")
        tables = []
        for each in (self, other):
            table = each.forecasts
            errors = absolute_error(each._near, table["mean"]) if score == "MASE" else table["CRPS"]
            # In the units of the first: both must be measured alike.
            tables.append(table[keys].assign(score=errors / table["series"].map(self.scale)))
        both = tables[0].merge(tables[1], on=keys, suffixes=("", " other")).dropna()
        if not len(both):
            raise ValueError("the two backtests have no forecast in common: use the same frame, start and step")
        order = [name for name in self.summary.index if name in set(both["series"])]
        means = both.groupby("series", sort=False)[["score", "score other"]].mean().loc[order]
        runs = both.groupby(["series", "origin"], sort=False)[["score", "score other"]].mean()
        better = (runs["score"] < runs["score other"]).groupby(level="series").mean().loc[order]
        found = means.set_axis(list(names), axis=1).assign(better=better)
        found.loc[OVERALL] = found.mean()
        found.insert(2, "ratio", found[names[0]] / found[names[1]])
        return found.rename_axis(index=None)

    def plot(self, score: str = "MASE") -> Figure:
        """Draw a score and the coverage of the widest interval over the steps.

        See `momostream.show.plots.plot_backtest`. The figure is made by pyplot: ``plt.savefig`` and ``plt.show`` know
        it.
        """
        from momostream.show import plots
        from momostream.show.plots.figures import by_pyplot

        with by_pyplot():
            return plots.plot_backtest(self, score)

    def __repr__(self) -> str:
        """Number of forecasts, steps and series, and the summary."""
        n_steps, n_series = (self.forecasts[name].nunique() for name in ("step", "series"))
        n_forecasts = len(self.forecasts) // max(n_steps * n_series, 1)
        title = f"Backtest: {n_forecasts} forecasts of {n_steps} steps, {n_series} series"
        texts = self.summary.map(lambda value: "" if np.isnan(value) else f"{value:#.4g}")
        return f"{title}\n{texts.to_string()}"


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
        _check_news(self.model, self.times)
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
        # Without columns, pandas 2 has no records at all.
        given = self.frame[inputs].to_dict("records") if inputs else [{}] * len(self.frame)
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
        if isinstance(self.times, pd.DatetimeIndex):
            times = times.as_unit(self.times.unit)
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


def _read_table(table: Any, long: bool | Sequence[Hashable] | None, inputs: Sequence[Hashable]) -> pd.DataFrame:
    """A table with a column for each series and input, and times in its index if it has periods."""
    frame = as_frame(table, "frame", "y")
    names = long_names(frame, long)
    if names is not None:
        frame = pd.concat([to_wide(frame, names), wide_inputs(frame, names, inputs, inputs)], axis=1)
    return frame.to_timestamp() if isinstance(frame.index, pd.PeriodIndex) else frame


def _check_frame(frame: Any, inputs: Sequence[Hashable]) -> None:
    for name in inputs:
        if name not in frame.columns:
            raise ValueError(f"there is no input {name!r}; the columns are {', '.join(map(repr, frame.columns))}")
    index = frame.index
    if isinstance(index, pd.DatetimeIndex) or pd.api.types.is_numeric_dtype(index.dtype):
        wrong = np.flatnonzero(~(index[1:] > index[:-1]))
        if len(wrong):
            before, after = index[wrong[0]], index[wrong[0] + 1]
            raise ValueError(f"the index of frame must increase: row {wrong[0] + 1} is {after}, after {before}")


def _check_news(model: Any, times: pd.Index[Any]) -> None:
    """Reject rows that a model has learnt already: it would be tested on what it knows."""
    last = getattr(getattr(model, "_clock", None), "last", math.nan)
    if not isinstance(times, pd.DatetimeIndex) or not len(times) or math.isnan(last) or pd.isna(times[0]):
        return
    newest = pd.Timestamp(last, unit="us", tz="UTC")
    first = times[0] if times.tz is not None else times[0].tz_localize("UTC")
    if first <= newest and model._clock.kind != NUMBER:
        raise ValueError(
            f"the model has learnt rows up to {newest.tz_convert(times.tz)}, and frame begins at {times[0]}: use "
            "model.clone() for a model that has learnt nothing"
        )


def _check_horizon(model: Any, horizon: int | str | None, frame: pd.DataFrame) -> int:
    most: Any = getattr(model, "horizon", None)
    horizon, most = (_steps(span, model, frame) if isinstance(span, str) else span for span in (horizon, most))
    if horizon is None and most is None:
        raise ValueError(f"horizon is missing: {type(model).__name__} has none of its own")
    wanted: Any = most if horizon is None else horizon
    check("horizon", wanted, whole(1))
    if most is not None and wanted > most and getattr(model, "strategy", "direct") == "direct":
        raise ValueError(f"horizon={wanted} is not accepted: the model forecasts {most} steps")
    return int(wanted)


def _steps(span: str, model: Any, frame: pd.DataFrame) -> int:
    """A span in rows of the frame."""
    time = getattr(model, "time", None)
    times = pd.Series(frame[time]) if time in frame.columns else frame.index.to_series()
    step = times.diff().median()
    if not isinstance(step, pd.Timedelta) or pd.isna(step):
        raise ValueError(
            f"horizon={span!r} is a span of time, and the rows of frame have no times: use a number of steps"
        )
    return n_steps_of(span, step.total_seconds() * 1e6)


def _watched(origins: list[int], progress: bool) -> Iterator[int]:
    from tqdm import tqdm

    yield from tqdm(origins, desc="backtest", unit="forecast", disable=None if progress else True, leave=False)
