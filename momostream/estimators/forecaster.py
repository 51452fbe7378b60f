"""`MOMoGPForecaster`: rows of a feed in, forecasts of all series for many steps out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, replace
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import Constraint, check, check_settings, field_name, flag, one_of, optional, whole
from momostream._numbers import known_numbers
from momostream.distributions.forecast import Forecast
from momostream.estimators._base import AUTO, BOUNDS, Bounds
from momostream.estimators._categories import CATEGORIES, is_level, spread_row
from momostream.estimators._first_rows import CheckedRow, FirstRows, row_as_state, row_of_state
from momostream.estimators._forecaster_batches import SINGLE, ForecasterBatches
from momostream.estimators._forecaster_insight import ForecasterInsight
from momostream.estimators._frames import padded
from momostream.estimators._restoring import check_learnt
from momostream.estimators._river import Forecaster
from momostream.estimators._screening import BEYOND, Screening
from momostream.estimators._times import TimeLabels, counted_steps, day_number, zone_name
from momostream.estimators.vocabulary import check_keys
from momostream.horizon.blend import JointForecast
from momostream.horizon.calendar import AWARE, NEAR, NUMBER, Ahead, Calendar, Clock, as_time, day_seasons
from momostream.horizon.durations import n_steps_of, parse_duration
from momostream.horizon.model import HorizonModel
from momostream.horizon.restoring import checked_past
from momostream.horizon.settings import SEASON, SEASONS, HorizonSettings

__all__ = ["MOMoGPForecaster"]

Array = NDArray[np.float64]

CONSTRAINTS: dict[str, Constraint] = {
    "categories": optional(CATEGORIES), "screen": flag(), "beyond": BEYOND, "bounds": BOUNDS,
    "strategy": one_of("direct", "recursive"), "time": optional(field_name()),
    "seasons": optional(
        Constraint(
            lambda seasons: SEASON.accepts(seasons) or SEASONS.accepts(seasons),
            f"{SEASON.use}, or a tuple of them",
        )
    ),
}  # fmt: skip
# Steps of a forecast, and paths simulated for a recursive one.
STEPS = whole(1)
N_PATHS = 160
# Rows between two entries of the history of weights, and entries kept.
HISTORY_EVERY, HISTORY_LENGTH = 64, 1000
# The step of the feed is checked again after this many rows, and whenever their number has doubled.
FIRST_LOOK = 8


class MOMoGPForecaster(ForecasterBatches, ForecasterInsight, Forecaster):
    """Forecasts several series for many steps ahead, with one joint distribution, learnt row by row.

    The experts forecast all steps: the last value, the last season, regressions on the past of each series and on
    that of all series, direct and iterated, and circuits of Gaussian processes. They are blended for each step and
    series by how well they have forecast so far. Variances, tails and the dependence between steps and series are
    learnt from past forecasts. Series and inputs need neither scaling nor imputation nor resampling.

    Parameters
    ----------
    horizon
        Steps ahead that are learnt and can be forecast: a number, or a span such as ``"6h"``, ``"90min"`` or ``"1d"``,
        which becomes a number once the step of the feed is known. A span requires times that are dates.
    strategy
        ``"direct"``: all steps are learnt. ``"recursive"``: one step is learnt, and paths of any length are simulated;
        ``horizon`` then has no effect.
    lags
        Number of past changes of each series that the regressions use; None: as many as the number of series allows.
    seasons
        Rows after which the feed repeats itself: a tuple of whole numbers; one whole number stands for itself and its
        double; ``()`` for none. None: the day and the week if timestamps are dates, else found in the values.
    time
        Name of the field of ``x`` that holds the timestamp: a datetime, date, numpy or pandas timestamp, or a number
        of any unit. See Notes.
    holidays
        Dates of days that are like those of a weekend, past and to come.
    experts
        Names: ``"last value"``, ``"season"``, ``"own lags"``, ``"wide lags"``, ``"iterated lags"``, ``"curved lags"``,
        and kernels as in `momostream.MOMoGPRegressor`, each also with ``"residual "`` before it, for a circuit on the
        residuals of ``"wide lags"``. The first two always take part. Inputs that are known in advance act through
        ``"own lags"``, with their squares and their products with the waves of the day.
    conformal
        Whether quantiles, intervals and medians are corrected by their errors in recent forecasts. Requires
        ``strategy="direct"``.
    bounds
        ``"auto"``: as in `momostream.MOMoGPRegressor`, limits that a series has kept to. ``{series: (lower, upper)}``
        with None for no bound sets those of some, others are found. None: no limits. See `describe`.
        ``{series: (0, 360, "circular")}`` is an angle, see `momostream.distributions.forecast.Forecast`.
    transforms
        ``{series: "log" | "sqrt" | "logit"}``: the scale on which a series is modelled; ``("log", 0.1)`` adds an offset
        first.
    categories
        Inputs whose values are names, such as ``("mode",)``: each value becomes an input of zeros and ones, such as
        ``"mode=idle"``.
    max_points, window, memory_budget
        Of each circuit, as in `momostream.MOMoGPRegressor`. Without a window all rows are kept, and each row has
        ``horizon`` values per series.
    seed
        Seed of everything random. The same seed and rows give the same floats.
    screen
        Whether gross errors of sensors (spikes, codes such as -9999) are set aside: a reading that nothing in the past
        of its column explains counts as missing, until the readings stay at the new level. See `rejected_readings` and
        `stuck_readings`.
    beyond
        ``"clip"``: a value beyond the bounds counts as lying on them; see `clipped_readings`. ``"error"``: its row is
        rejected with an error.

    Attributes
    ----------
    n_rows : int
        Rows learnt.
    series, inputs : tuple
        Names seen so far.

    Notes
    -----
    A series or an input may join later. The model is then rebuilt and learns the rows that it remembers again, which
    takes as long as that many calls of `learn_one`.

    Timestamps must increase. After three steps, the median of the newest 32 steps is the step of the feed. A gap of
    up to 1,000 steps is filled with missing rows, so that lags and seasons keep their meaning. Deviations of less
    than half a step are jitter, and longer gaps are not filled. A row without a timestamp comes one step after the
    one before. Dates add the time of day and the kind of day, weekend or not, or the day of the week if steps are
    long, as inputs that are known in advance; dates with a time zone are converted to UTC, and forecasts have the
    times of the zone that came in last.

    Inputs whose future is not given to `forecast` keep their last values. Calls from several threads wait for each
    other. An error leaves the model as it was.

    Examples
    --------
    A turbine reports wind and power every ten minutes; the wind picks up in the afternoon.

    >>> from datetime import datetime, timedelta
    >>> rng = np.random.default_rng(0)
    >>> start = datetime(2024, 3, 1)
    >>> def turbine(n):
    ...     gust = 0.0
    ...     for t in range(n):
    ...         gust = 0.8 * gust + 0.2 * rng.normal()
    ...         wind = 8.0 - 3.0 * np.cos(2 * np.pi * t / 144) + gust
    ...         yield {"at": start + timedelta(minutes=10 * t)}, {"wind": wind, "power": 60.0 * wind}
    >>> model = MOMoGPForecaster(horizon=12, time="at", experts=("last value", "season", "own lags"), seed=0)
    >>> for x, y in turbine(500):
    ...     model.learn_one(y, x)

    Forecasts are lists of dicts, or come with their joint distribution:

    >>> round(model.forecast(3)[0]["wind"])
    11
    >>> forecast = model.forecast(12, with_dist=True)
    >>> forecast.mean[["wind"]].round().iloc[[0, -1]]  # doctest: +NORMALIZE_WHITESPACE
                         wind
    time
    2024-03-04 11:20:00  11.0
    2024-03-04 13:10:00  11.0
    >>> width = forecast.interval(0.9)["wind"].diff(axis=1)["upper"]
    >>> bool(width.iloc[0] < width.iloc[-1] < 4.0)
    True

    Paths are drawn jointly over steps and series: does the power fall below 600 at any time within these two hours?

    >>> paths = forecast.sample(1000, seed=0)
    >>> power = paths[:, :, forecast.series.index("power")]
    >>> bool((power < 600).any(axis=1).mean() < 0.3)
    True
    """

    _TARGETS_KEY = "series"
    _TAKES_ANGLES = True
    _model: HorizonModel | None

    def __init__(
        self,
        horizon: int | str = 24,
        strategy: str = "direct",
        lags: int | None = None,
        seasons: int | tuple[int, ...] | None = None,
        time: str | None = None,
        holidays: tuple[Any, ...] | None = None,
        experts: tuple[str, ...] = HorizonSettings.experts,
        conformal: bool = False,
        bounds: Bounds = AUTO,
        transforms: dict[Any, str | tuple[str, float]] | None = None,
        max_points: int = HorizonSettings.max_points,
        window: int | None = None,
        memory_budget: int | None = None,
        seed: int | None = None,
        categories: tuple[str, ...] | None = None,
        screen: bool = True,
        beyond: str = "clip",
    ) -> None:
        self.categories, self.screen, self.beyond = categories, screen, beyond
        self.horizon, self.strategy, self.lags, self.seasons, self.time = horizon, strategy, lags, seasons, time
        self.holidays = holidays
        self._holidays = frozenset(map(day_number, holidays or ()))
        self.experts, self.conformal, self.bounds, self.transforms = experts, conformal, bounds, transforms
        self.max_points, self.window, self.memory_budget, self.seed = max_points, window, memory_budget, seed
        check_settings(self, CONSTRAINTS)
        self._settings = self._read_settings()
        if conformal and strategy != "direct":
            raise ValueError(f"conformal=True requires strategy='direct', got strategy={strategy!r}")
        self._start()

    def _start(self) -> None:
        super()._start()
        # Whether rows are plain numbers; None before the first.
        self._single: bool | None = None
        self._clock = Clock()
        # Rows that wait until the step of the feed is known; None if none wait.
        self._early: list[CheckedRow] | None = None if self.time is None else []
        # The step on which the calendar of the model is based.
        self._step: float | None = None
        self._calendar: Calendar | None = None
        self._look, self._n_rows = FIRST_LOOK, 0
        # Without a seed, learning them again would draw other numbers.
        self._first_rows = FirstRows(is_complete=self.seed is not None)
        # How times were given, for those of forecasts.
        self._labels = TimeLabels()
        self._history: deque[tuple[int, Array]] = deque(maxlen=HISTORY_LENGTH)

    def _read_settings(self) -> HorizonSettings:
        given = {field.name: getattr(self, field.name) for field in fields(HorizonSettings) if field.init}
        if isinstance(self.horizon, str):
            parse_duration(self.horizon)
            # Until the step of the feed is known.
            given["horizon"] = 1
        # As for seasons that are found: a feed that repeats itself after one season does so after two.
        if isinstance(self.seasons, int | np.integer):
            given["seasons"] = (self.seasons, 2 * self.seasons)
        settings = HorizonSettings(**given)
        return replace(settings, horizon=1) if self.strategy == "recursive" else settings

    # ------------------------------------------------------------------ one row

    def learn_one(self, y: float | Mapping[Any, Any] | None, x: Mapping[Any, Any] | None = None) -> None:
        """Learn the next row.

        Parameters
        ----------
        y
            Values by name of the series, or a number if there is only one series. Absent, None or NaN is missing, and
            ``{}`` or None is a row that did not come.
        x
            Inputs by name, and the timestamp.
        """
        with self._lock:
            row = self._read(y, x)
            if not self._frozen:
                if row.time is not None and row.time[1] == AWARE and x is not None:
                    self._labels = self._labels._replace(zone=zone_name(x.get(self.time)) or self._labels.zone)
                self._take(row, None if _is_empty(y) else type(y) is not dict and not isinstance(y, Mapping))

    def _read(self, y: Any, x: Mapping[Any, Any] | None, time: Any = None) -> CheckedRow:
        """Check a row; the model stays as it is."""
        try:
            row = CheckedRow(self._read_series(y), *self._read_inputs({} if x is None else x, time))
            self._check_bounds(row.y)
            if row.time is not None:
                self._clock.check(*row.time)
        except (TypeError, ValueError) as error:
            raise type(error)(f"row {self._n_rows}: {error}") from None
        return row

    def _read_series(self, y: Any) -> dict[Hashable, float]:
        if _is_empty(y):
            return {}
        is_dict = isinstance(y, Mapping)
        if self._single is not None and self._single == is_dict:
            before, now = ("numbers", "dict") if self._single else ("dicts", type(y).__name__)
            raise TypeError(f"y was given as {before} so far, now it is a {now}")
        values = known_numbers(y if is_dict else {SINGLE: y})
        if not self._targets.has_all(values):
            check_keys(name for name in values if name not in self._targets)
        return values

    def _read_inputs(self, x: Any, time: Any) -> tuple[dict[Hashable, float], tuple[float, str] | None]:
        """Inputs and time of a row; without a timestamp, one step after the last row."""
        inputs = {} if type(x) is dict and not x else known_numbers(self._without_time(x))
        if isinstance(self.horizon, str) and self.time is None and time is None and self._clock.kind is None:
            raise ValueError(
                f"horizon={self.horizon!r} is a span of time, and rows have no times: set time, or a number"
            )
        if not self._inputs.has_all(inputs):
            check_keys(name for name in inputs if name not in self._inputs)
        if self.time is None and self._early is None and self._clock.kind is None:
            return inputs, None
        name = "time" if self.time is None else self.time
        found = as_time(name, x.get(name) if time is None and self.time is not None else time)
        step, kind = self._clock.step, self._clock.kind
        if found is not None and found[1] == NUMBER and isinstance(self.horizon, str):
            raise ValueError(
                f"horizon={self.horizon!r} is a span of time, and times are numbers: use a number of steps"
            )
        if found is not None:
            return inputs, found
        if step is None or kind is None:
            raise ValueError(f"there is no timestamp {name!r}, and the step of the feed is not known yet")
        return inputs, (self._clock.last + step, kind)

    def is_next(self, time: Any) -> bool:
        """Whether a timestamp follows the last row learnt without a gap; True if the step is not known yet."""
        found = None if self.time is None else as_time(self.time, time)
        return found is None or self._clock.step is None or not self._clock.n_missing(found[0] - self._clock.last)

    def _without_time(self, x: Any) -> Mapping[Any, Any]:
        if not isinstance(x, Mapping):
            raise TypeError(f"expected x to be a dict, got {type(x).__name__}")
        for name, value in x.items():
            if name != self.time and isinstance(value, date | np.datetime64):
                raise TypeError(
                    f"the value of {name!r} is a {type(value).__name__}: if it is the time, set time={name!r}"
                )
        kept = {name: value for name, value in x.items() if self.time is None or name != self.time}
        return spread_row(kept, self.categories, self._inputs.keys) if self.categories else kept

    def _take(self, row: CheckedRow, single: bool | None) -> None:
        """Learn a row that has been checked; ``single`` is None if the row does not show whether rows are numbers."""
        self._first_rows.add(row, single)
        self._single = self._single if single is None else single
        self._n_rows += 1
        n_missing = 0
        if row.time is not None:
            n_missing = self._clock.n_missing(row.time[0] - self._clock.last)
            self._clock.advance(*row.time)
        if self._early is not None:
            self._early.append(row)
            if self._clock.step is not None:
                self._begin(self._early)
                return
        self._learn(row, n_missing)
        if self._n_rows == self._look:
            self._check_step()
        if self._model is not None and self._n_rows % HISTORY_EVERY == 0:
            self._history.append((self._n_rows, self._model.weights.mean(axis=1)))

    def _begin(self, rows: list[CheckedRow]) -> None:
        """Start again now that the step is known, with its calendar and with gaps filled."""
        self._early, self._model = None, None
        # These rows have been screened before.
        self._screening = Screening()
        self._screening.widen(len(self._inputs), len(self._targets))
        self._step = None if self._clock.kind == NUMBER else self._clock.step
        for before, row in pairwise([rows[0], *rows]):
            assert before.time is not None and row.time is not None
            self._learn(row, self._clock.n_missing(row.time[0] - before.time[0]))

    def _learn(self, row: CheckedRow, n_missing: int) -> None:
        """Learn this many missing rows, and then a row."""
        time = math.nan if row.time is None else row.time[0]
        if self._model is None or not (self._targets.has_all(row.y) and self._inputs.has_all(row.x)):
            series = [name for name in row.y if name not in self._targets]
            if not (series or len(self._targets)):
                return
            inputs = [name for name in row.x if name not in self._inputs]
            self._rebuild(series, inputs, time - (1 + n_missing) * (self._step or 0.0))
        assert self._model is not None
        if n_missing:
            times = np.asarray(time + (self._step or 0.0) * np.arange(-n_missing, 0), dtype=np.float64)
            self._model.skip(np.zeros((n_missing, 0)) if self._calendar is None else self._calendar.terms(times))
        y, x = np.empty(len(self._targets)), np.empty(len(self._inputs))
        self._targets.encode(row.y, y)
        self._inputs.encode(row.x, x)
        y = self._screened_row(x, y)
        self._model.learn(y, x, self._ahead(time, self._model.settings.horizon))

    def _rebuild(self, series: Iterable[Hashable], inputs: Iterable[Hashable], last: float) -> None:
        """Build a model with columns for these too; it learns what the old one remembers again, up to time ``last``."""
        Y, X = np.empty((0, len(self._targets))), np.empty((0, len(self._inputs)))
        experts = None
        if self._model is not None:
            past, experts = self._model.past, self._model.expert_names
            rows = slice(past.first, past.last + 1)
            Y, X = past.observed[rows], past.inputs[rows, 0, : len(self._inputs)]
        n_before = len(self._inputs)
        self._add_columns(inputs, series)
        self._calendar = self._new_calendar()
        self._model = HorizonModel(
            self._model_settings(), len(self._targets), len(self._inputs), *_calendar_shape(self._calendar)
        )
        if self._model.expert_names != experts:
            self._history.clear()
        X = padded(X, len(self._inputs))
        for j, name in enumerate(self._inputs.keys[n_before:], n_before):
            # A category that comes for the first time was not there before.
            X[:, j] = 0.0 if is_level(name, self.categories or ()) else np.nan
        self._teach(padded(Y, len(self._targets)), X, last)

    def _teach(self, Y: Array, X: Array, last: float) -> None:
        """Learn rows on the scale of the model; ``last`` is the time of the newest."""
        assert self._model is not None
        step, n = self._step or 0.0, len(Y)
        for i in range(n):
            self._model.learn(Y[i], X[i], self._ahead(last - step * (n - 1.0 - i), self._model.settings.horizon))

    def _new_calendar(self) -> Calendar | None:
        return None if self._step is None else Calendar(self._step, self._holidays)

    def _ahead(self, time: float, n_steps: int) -> Ahead | None:
        """The calendar of a row and of the steps after it; None without dates."""
        return None if self._calendar is None else self._calendar.ahead(time, n_steps)

    def _model_settings(self) -> HorizonSettings:
        settings = self._settings
        if self._step is not None and isinstance(self.horizon, str) and self.strategy == "direct":
            settings = replace(settings, horizon=n_steps_of(self.horizon, self._step))
        if self._step is None or self.seasons is not None:
            return settings
        return replace(settings, seasons=day_seasons(self._step))

    def _check_step(self) -> None:
        """Rebuild the model if the step of the feed has changed, or was not what the first rows suggested."""
        self._look *= 2
        step = self._clock.step
        if self._model is None or self._step is None or step is None or abs(step / self._step - 1.0) <= NEAR:
            return
        self._step = step
        self._rebuild((), (), self._clock.last)

    # ------------------------------------------------------------------ forecasts

    def forecast(
        self,
        horizon: int | str | None = None,
        xs: Iterable[Mapping[Any, Any] | None] | None = None,
        with_dist: bool = False,
    ) -> Any:
        """Forecast the next rows; the model stays as it is.

        Parameters
        ----------
        horizon
            Number of steps, or a span such as ``"6h"``; None takes the ``horizon`` of the model, which is also the
            most with ``strategy="direct"``.
        xs
            Inputs of each step as far as they are known, as a list of dicts or a frame; others keep their last value.
            Timestamps in here are ignored: the steps follow the last row.
        with_dist
            Return a `momostream.distributions.forecast.Forecast`, the joint distribution, instead of the means.

        Returns
        -------
        list or Forecast
            A dict of means for each step, or a number if the series was given as numbers.

        Raises
        ------
        ValueError
            Before the first value has been learnt.
        """
        with self._lock:
            n = self._count_steps(self._default_steps(horizon))
            X = self._read_future(n, xs)
            if self._model is None:
                raise self._no_value_yet()
            joint = self._joint(self._model, n, X)
            targets = None if self._scales.is_plain else self._scales
            conformal = self._model.conformal
            snapshot = None if conformal is None else conformal.snapshot()
            times, zone = self._labels.ahead(self._clock, n)
            labels = times, zone, targets, snapshot, self._labels.period
            forecast = Forecast(joint, self._targets.keys, n, *labels, self._limits(), self._circles)
        if with_dist:
            return forecast
        rows = forecast.to_dicts()
        return [row[SINGLE] for row in rows] if self._single else rows

    @property
    def _range_rows(self) -> float:
        # The further a forecast looks, the further a young series may leave the range that it has shown.
        return min(50.0 * (self.n_steps or 1), 2000.0)

    @property
    def n_steps(self) -> int | None:
        """Steps that can be forecast; None if ``horizon`` is a span and the step of the feed is not known yet."""
        if not isinstance(self.horizon, str):
            return self.horizon
        return None if self._step is None else n_steps_of(self.horizon, self._step)

    @property
    def step(self) -> timedelta | None:
        """Step of the feed; None as long as it is not known, and if times are not dates."""
        return None if self._step is None else timedelta(microseconds=self._step)

    def _count_steps(self, horizon: int | str) -> int:
        """Number of steps of a forecast."""
        if isinstance(horizon, str):
            parse_duration(horizon)
        if self._model is None and str in (type(horizon), type(self.horizon)):
            raise self._no_value_yet()
        horizon = counted_steps(horizon, self._step)
        check("horizon", horizon, STEPS)
        most = self.n_steps or 1
        if self.strategy == "direct" and horizon > most:
            raise ValueError(
                f"cannot forecast {horizon} steps with a model of {most}: set a larger horizon for the model, "
                "or strategy='recursive'"
            )
        return int(horizon)

    def _read_future(self, horizon: int, xs: Iterable[Mapping[Any, Any] | None] | None) -> Array:
        """Inputs of the steps, one row each; NaN if not known."""
        n_steps = (self.n_steps or 1) if self.strategy == "direct" else horizon
        X = np.full((n_steps, len(self._inputs)), np.nan)
        if xs is None:
            return X
        rows = self._future_rows(xs)
        if len(rows) < horizon:
            raise ValueError(f"xs has {len(rows)} rows for {horizon} steps")
        for step, x in enumerate(rows[:horizon]):
            try:
                self._inputs.encode(self._without_time({} if x is None else x), X[step])
            except (TypeError, ValueError) as error:
                raise type(error)(f"step {step + 1} of xs: {error}") from None
        return X

    def _joint(self, model: HorizonModel, horizon: int, X: Array) -> JointForecast:
        if self.strategy == "recursive":
            # Seeded by the number of rows: the same forecast can be repeated, and changes nothing.
            rng = np.random.default_rng([self.seed or 0, self._n_rows])
            return model.simulate(N_PATHS, horizon, X, rng, self._ahead(self._clock.last, horizon + 1))
        return model.joint(X)

    # ------------------------------------------------------------------ what was learnt

    @property
    def n_rows(self) -> int:
        """Rows learnt, not counting those that filled gaps."""
        return self._n_rows

    @property
    def series(self) -> tuple[Hashable, ...]:
        """Names of the series seen so far; ``("y",)`` if rows are plain numbers."""
        return self._targets.keys

    # ------------------------------------------------------------------ as files

    def _saved_state(self) -> dict[str, Any]:
        with self._lock:
            few = {"rows": self._first_rows.state(), "labels": list(self._labels), "frozen": self._frozen}
            return few if self._first_rows.is_complete else self._state()

    def _restore(self, state: Mapping[str, Any]) -> None:
        if "rows" not in state:
            self._first_rows.end()
            super()._restore(state)
            return
        for row, single in FirstRows.of_state(state["rows"]):
            if row.time is not None:
                self._clock.check(*row.time)
            self._take(row, single)
        self._labels, self._frozen = TimeLabels(*state["labels"]), state["frozen"]

    def _learnt_state(self) -> dict[str, Any]:
        return {
            "series": self._targets.state(), "inputs": self._inputs.state(), "single": self._single,
            "clock": self._clock.state(), "step": self._step, "look": self._look, "n_rows": self._n_rows,
            "early": None if self._early is None else [row_as_state(row) for row in self._early],
            "history": [[row, weights] for row, weights in self._history], "labels": list(self._labels),
        }  # fmt: skip

    def _restore_learnt(self, state: Mapping[str, Any]) -> None:
        check_learnt(state, len(self._targets))
        self._single, self._clock = state["single"], Clock.from_state(state["clock"])
        self._step, self._look, self._n_rows = state["step"], state["look"], state["n_rows"]
        self._early = None if state["early"] is None else [row_of_state(row) for row in state["early"]]
        self._history = deque(((row, weights) for row, weights in state["history"]), maxlen=HISTORY_LENGTH)
        # Earlier versions wrote none.
        self._labels = TimeLabels(*state.get("labels", ()))

    def _restored_model(self, state: Any) -> HorizonModel:
        self._calendar = self._new_calendar()
        shape = len(self._targets), len(self._inputs), *_calendar_shape(self._calendar)
        if "curved" in state:
            return HorizonModel.from_state(self._model_settings(), state, *shape)
        # Experts of earlier versions are not those of this one, which learn the rows that were remembered.
        self._model = HorizonModel(self._model_settings(), *shape)
        past = checked_past(state["past"], len(self._targets))
        self._teach(past["observed"], past["inputs"][:, 0, : self._model.n_inputs], self._clock.last)
        self._history.clear()
        return self._model


def _calendar_shape(calendar: Calendar | None) -> tuple[int | None, int | None]:
    """Number of columns of a calendar, and which of them is the kind of day."""
    return (None, None) if calendar is None else (len(calendar.names), calendar.kind)


def _is_empty(y: Any) -> bool:
    """Whether a row did not come."""
    return y is None or (isinstance(y, Mapping) and not y)
