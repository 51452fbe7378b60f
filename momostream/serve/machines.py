"""What the page shows of one machine: its newest rows, forecasts and scores, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import math
import time as clock
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.circular import NO_CIRCLES
from momostream.distributions.forecast import Forecast
from momostream.distributions.predicted import PredictedValues
from momostream.distributions.prediction import Prediction
from momostream.feeds.formats import Row
from momostream.horizon.calendar import NUMBER, as_time
from momostream.runs.plan import Plan, relevance_of, weights_of
from momostream.serve.shares import Shares

__all__ = ["Machine", "RowRing", "machine_id"]

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

# Forecasts of a machine that wait for the values that they forecast.
N_WAITING = 12
# Rows over which scores are averaged: earlier ones count less and less.
SCORE_ROWS = 100
# Rows after which a model knows enough for alarms; as `WATCH_ROWS` of `momostream.runs.plan`.
LEARNING_ROWS = 32
# Rows from one look at experts and inputs to the next; more, the more rows there were: all of a model is looked at.
SHARE_ROWS, N_LOOKS = 16, 120


@lru_cache(10_000, typed=True)
def machine_id(key: Any) -> str:
    """A short name of a key for addresses, whatever the key is.

    Examples
    --------
    >>> machine_id("T01"), machine_id(7) != machine_id("7")
    ('30dac64f25aa', True)
    """
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]


class RowRing:
    """The newest rows of some columns; memory grows up to the capacity and no further.

    Examples
    --------
    >>> ring = RowRing(capacity=3, n_columns=1)
    >>> for value in range(5):
    ...     ring.append([value])
    >>> ring.rows()[:, 0]
    array([2., 3., 4.], dtype=float32)
    """

    def __init__(self, capacity: int, n_columns: int, dtype: Any = np.float32) -> None:
        self.capacity = capacity
        self._rows = np.empty((min(capacity, 32), n_columns), dtype)
        self._start = self._n = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n

    def append(self, row: Any) -> None:
        """Add a row; beyond the capacity, the oldest one leaves."""
        size = len(self._rows)
        if self._n == size and size < self.capacity:
            grown = np.empty((min(2 * size, self.capacity), self._rows.shape[1]), self._rows.dtype)
            grown[:size] = self._rows
            self._rows, size = grown, len(grown)
        if self._n < size:
            self._rows[self._n] = row
            self._n += 1
        else:
            self._rows[self._start] = row
            self._start = (self._start + 1) % size

    @property
    def newest(self) -> NDArray[Any]:
        """The newest row."""
        return np.asarray(self._rows[(self._start + self._n - 1) % len(self._rows)])

    def rows(self, n: int | None = None) -> NDArray[Any]:
        """The rows in order, or the last ``n``; a copy."""
        start = 0 if n is None else max(self._n - n, 0)
        return self._rows[(self._start + np.arange(start, self._n)) % len(self._rows)]


class Machine:
    """The newest rows of one key, its forecast and its scores.

    Parameters
    ----------
    key
        Of the rows; None if the feed has no keys.
    plan
        Of the run.
    n_history
        Rows that are kept.
    """

    def __init__(self, key: Any, plan: Plan, n_history: int) -> None:
        self.key, self.plan = key, plan
        self.id, self.name = machine_id(key), str(key)
        self.n_rows = self.n_known = 0
        self.version = 0
        self.time_kind: str | None = None
        self.last_number = 0
        self.last_time = math.nan
        # When the last row came, by the wall clock, and the usual time between two.
        self.arrived, self.gap = 0.0, 0.0
        n_targets = len(plan.targets)
        # Number and time; then values, and mean, lower and upper end of what was predicted for the row; then rolling
        # error of the model and of the last value, and coverage.
        self.stamps = RowRing(n_history, 2, np.float64)
        self.values = RowRing(n_history, 7 * n_targets)
        self.predicted: PredictedValues | None = None
        self.forecast_at, self.forecast_row = math.nan, 0
        self.stored_forecast: dict[str, Any] | None = None
        # Weights of experts and relevance of inputs, and how often these were noted.
        self.weights, self.relevance, self.n_looks = Shares(), Shares(), 0
        self._last = np.full(n_targets, np.nan)
        self._sums = np.zeros((4, n_targets))
        # Usual time between two rows; that between two steps of the newest forecast.
        self._step: float | None = None
        self._interval: float | None = None
        self._make_slots(plan.horizon if isinstance(plan.horizon, int) else 0)

    def _make_slots(self, n_steps: int) -> None:
        """Make room for forecasts of this length."""
        n_targets = len(self.plan.targets)
        # One more: a forecast stays until the row after its last step.
        self._slots = min(N_WAITING, n_steps) + 1
        self._waiting: Array32 = np.empty((0, 3, n_steps, n_targets), np.float32)
        self._origins = np.empty((0, 2 + n_targets))
        self._next_slot, self._kept_at = 0, math.nan

    # ------------------------------------------------------------------ rows

    def add(self, row: Row, predicted: PredictedValues | None, has_alarm: bool = False) -> None:
        """Note a row, and what was predicted at it."""
        now = clock.time()
        if self.arrived:
            self.gap += 0.2 * (now - self.arrived - self.gap) if self.gap else now - self.arrived
        self.arrived = now
        self.n_rows += 1
        at = self._seconds(row)
        is_known = row.number <= self.last_number
        values = np.array([row.values.get(name, np.nan) for name in self.plan.targets])
        if not is_known:
            own = predicted if self.plan.horizon is None else None
            n_targets = len(values)
            shown = np.empty((7, n_targets))
            shown[0], shown[1:4] = values, self._expected(at) if own is None else self._of_step(own, 0)
            self._score(at, values, own)
            shown[4:] = self._rolling()
            self.stamps.append((row.number, at))
            self.values.append(shown.ravel())
            self.last_number = row.number
        self._step = at - self.last_time if at > self.last_time else self._step
        self.last_time = at
        self._last = np.where(np.isnan(values), self._last, values)
        if predicted is not None:
            self.predicted, self.forecast_at, self.forecast_row = predicted, at, row.number
            self.stored_forecast, self._interval = None, None
            if self.plan.horizon is not None:
                self._interval = self._interval_of(predicted)
                self._wait(at, predicted)

    def _seconds(self, row: Row) -> float:
        """The time of a row: seconds since 1970, the feed's own unit, or its number."""
        found = None if self.plan.time is None else as_time("time", row.time)
        self.time_kind = "rows" if found is None else found[1]
        return self.seconds(None if found is None else row.time, self.n_rows + self.n_known - 1)

    @staticmethod
    def seconds(time: Any, row: int) -> float:
        """A time as the page has it; without one, the number of a row, which is counted from 0."""
        found = as_time("time", time)
        if found is None:
            return row + 1.0
        return found[0] if found[1] == NUMBER else found[0] * 1e-6

    def _expected(self, at: float) -> Array:
        """Mean and interval that the newest forecast had for this row; NaN if it is about another one."""
        predicted = self.predicted
        if predicted is not None and self.plan.horizon is not None:
            step = round((at - self.forecast_at) / (self._interval or 1.0))
            if 1 <= step <= len(predicted.mean):
                return self._of_step(predicted, step - 1)
        return np.full((3, len(self.plan.targets)), np.nan)

    @staticmethod
    def _of_step(predicted: PredictedValues, step: int) -> Array:
        """Mean and interval of a step, counted from 0."""
        return np.array([predicted.mean[step], predicted.lower[step], predicted.upper[step]])

    def _interval_of(self, predicted: PredictedValues) -> float | None:
        """Time between two steps; None if it is not known yet."""
        if self.time_kind == "rows":
            return 1.0
        if predicted.times is None:
            return self._step
        return float(seconds_of(predicted.times[:1])[0]) - self.forecast_at

    # ------------------------------------------------------------------ scores

    def _wait(self, at: float, predicted: PredictedValues) -> None:
        """Keep some forecasts until their values have come."""
        interval = self._interval
        if len(predicted.mean) != self._waiting.shape[2]:
            # A span of time is known in steps once the step of the feed is, which may change.
            self._make_slots(len(predicted.mean))
        every = -(-len(predicted.mean) // (self._slots - 1))
        if not interval or interval <= 0.0:
            return
        # By time, not by rows: forecasts need not be made at every row.
        if -0.5 < (at - self._kept_at) / interval < every - 0.5:
            return
        self._kept_at = at
        if len(self._origins) < self._slots:
            self._waiting = np.concatenate([self._waiting, np.empty((1, *self._waiting.shape[1:]), np.float32)])
            self._origins = np.concatenate([self._origins, np.empty((1, self._origins.shape[1]))])
        slot = self._next_slot
        self._next_slot = (slot + 1) % self._slots
        self._waiting[slot] = predicted.mean, predicted.lower, predicted.upper
        self._origins[slot, 0], self._origins[slot, 1], self._origins[slot, 2:] = at, interval, self._last

    def _score(self, at: float, values: Array, own: PredictedValues | None) -> None:
        """Compare a row with what was forecast for it and with the last value before that."""
        if own is not None:
            mean, lower, upper, last = own.mean[:1], own.lower[:1], own.upper[:1], self._last[np.newaxis]
        elif len(self._origins):
            steps = np.rint((at - self._origins[:, 0]) / self._origins[:, 1])
            due = np.flatnonzero((steps >= 1) & (steps <= self._waiting.shape[2]))
            if not len(due):
                return
            found = self._waiting[due, :, steps[due].astype(np.intp) - 1].astype(np.float64)
            mean, lower, upper, last = found[:, 0], found[:, 1], found[:, 2], self._origins[due, 2:]
        else:
            return
        made = self.predicted if own is None else own
        circles = NO_CIRCLES if made is None else made.circles(self.plan.targets)
        known = np.isfinite(values + mean + last)
        near, level = circles.nearest(values, mean), circles.nearest(values, last)
        parts = np.empty((3, *known.shape))
        parts[0], parts[1], parts[2] = near - mean, level - last, circles.is_inside(values, lower, upper)
        parts[:2] *= parts[:2]
        if not known.all():
            parts[:, ~known] = 0.0
        counts = np.add.reduce(known, axis=0, dtype=np.float64)
        # The mean over the forecasts of one row counts as one value.
        seen = counts > 0.0
        self._sums *= np.where(seen, 1.0 - 1.0 / SCORE_ROWS, 1.0)
        self._sums[:3] += np.add.reduce(parts, axis=1) / np.maximum(counts, 1.0)
        self._sums[3] += seen

    def _rolling(self) -> Array:
        """Root mean square errors of the model and of the last value, and coverage, over the last rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            means = self._sums[:3] / self._sums[3]
        means[:2] = np.sqrt(means[:2])
        return means

    @property
    def least_coverage(self) -> float:
        """Rolling coverage of the target where it is least; NaN while there is none."""
        # Without arrays: all machines are asked, twice a second.
        hits, counts = self._sums[2].tolist(), self._sums[3].tolist()
        return min((hit / count for hit, count in zip(hits, counts, strict=True) if count), default=math.nan)

    @property
    def scores(self) -> dict[str, dict[str, float | None]]:
        """Rolling scores by target."""
        error, naive, coverage = self._rolling().tolist()
        return {
            name: {"rmse": plain(error[i]), "naive": plain(naive[i]), "coverage": plain(coverage[i])}
            for i, name in enumerate(self.plan.targets)
        }

    @property
    def is_look_due(self) -> bool:
        """Whether the model should be looked at after this row."""
        n_rows = self.n_rows + self.n_known
        every = SHARE_ROWS
        while n_rows > N_LOOKS * every:
            every *= 2
        return n_rows % every == 1

    def look(self, model: Any) -> None:
        """Keep the weights of the experts and the relevance of the inputs of a model at this row."""
        self.weights.note(self.last_time, weights_of(model))
        self.relevance.note(self.last_time, relevance_of(model))
        self.n_looks += 1

    # ------------------------------------------------------------------ what is shown

    @property
    def is_learning(self) -> bool:
        """Whether the model has too few rows to judge values by it."""
        return self.n_rows + self.n_known < LEARNING_ROWS

    def history(self, n: int | None = None) -> dict[str, Any]:
        """The newest rows by column, as plain data."""
        stamps, values = self.stamps.rows(n), self.values.rows(n).astype(np.float64)
        n_targets = len(self.plan.targets)
        parts = values.reshape(len(values), 7, n_targets)
        names = "value", "mean", "lower", "upper", "rmse", "naive", "coverage"
        return {
            "row": stamps[:, 0].astype(np.int64).tolist(),
            "time": stamps[:, 1].tolist(),
            "targets": {
                target: {name: plain_list(parts[:, k, i]) for k, name in enumerate(names)}
                for i, target in enumerate(self.plan.targets)
            },
        }

    def forecast(self, levels: Sequence[float] = ()) -> dict[str, Any] | None:
        """The newest forecast as plain data, with further quantiles if asked for; None if there is none."""
        predicted = self.predicted
        if predicted is None:
            return self.stored_forecast
        names = "mean", "lower", "upper"
        parts = {name: np.asarray(getattr(predicted, name), dtype=np.float64) for name in names}
        quantiles = self._quantiles(predicted.prediction, levels)
        targets = {
            target: {name: plain_list(parts[name][:, i]) for name in names}
            | {"quantiles": [plain_list(quantiles[k][:, i]) for k in range(len(levels))]}
            for i, target in enumerate(self.plan.targets)
        }
        return {
            "row": self.forecast_row, "made": self.forecast_at, "time": self._step_times(predicted),
            "level": self.plan.level, "levels": list(levels), "targets": targets,
        }  # fmt: skip

    def _step_times(self, predicted: PredictedValues) -> list[float]:
        if self.plan.horizon is None:
            return [self.forecast_at]
        if predicted.times is not None and self.time_kind != "rows":
            return seconds_of(predicted.times).tolist()
        step = self._interval or 1.0
        return (self.forecast_at + step * np.arange(1, len(predicted.mean) + 1)).tolist()

    def _quantiles(self, prediction: Forecast | Prediction, levels: Sequence[float]) -> list[Array]:
        if not levels:
            return []
        if isinstance(prediction, Forecast):
            found, names = prediction.arrays.quantiles(levels), list(prediction.series)
        else:
            frame = [prediction.quantile(level) for level in levels]
            names = list(prediction.targets)
            found = np.array([[[each[name] for name in names]] for each in frame])
        full = np.full((*found.shape[:2], len(self.plan.targets)), np.nan)
        for i, target in enumerate(self.plan.targets):
            if target in names:
                full[:, :, i] = found[:, :, names.index(target)]
        return list(full)

    def earlier(self) -> dict[str, Any] | None:
        """The forecast that was made longest ago whose values have not all come: what was expected by now."""
        if not len(self._origins) or math.isnan(self.last_time):
            return None
        steps = np.rint((self.last_time - self._origins[:, 0]) / self._origins[:, 1])
        horizon = self._waiting.shape[2]
        age = np.where(steps <= horizon, steps, -1.0)
        slot = int(np.argmax(age))
        if age[slot] < 1:
            return None
        made, interval = self._origins[slot, :2].tolist()
        mean, lower, upper = self._waiting[slot].astype(np.float64)
        return {
            "made": made,
            "time": (made + interval * np.arange(1, horizon + 1)).tolist(),
            "targets": {
                target: {
                    "mean": plain_list(mean[:, i]), "lower": plain_list(lower[:, i]), "upper": plain_list(upper[:, i]),
                }
                for i, target in enumerate(self.plan.targets)
            },
        }  # fmt: skip

    # ------------------------------------------------------------------ in a file

    def newest_row(self) -> tuple[int, bytes]:
        """Number and bytes of the newest row, for the book."""
        return self.last_number, self.stamps.newest.tobytes() + self.values.newest.tobytes()

    def restore(self, rows: Sequence[bytes], about: dict[str, Any]) -> None:
        """Continue with rows of an earlier process."""
        n_targets = len(self.plan.targets)
        # Earlier versions did not say; a sensor that was added since has no values, one that was dropped is left out.
        before = about.get("targets", list(self.plan.targets))
        columns = [before.index(name) if name in before else -1 for name in self.plan.targets]
        for data in rows:
            stamp, parts = np.frombuffer(data[:16]), np.frombuffer(data[16:], np.float32)
            if len(parts) != 7 * len(before):
                continue
            parts = np.pad(parts.reshape(7, len(before)), ((0, 0), (0, 1)), constant_values=np.nan)
            values = parts[:, columns].ravel()
            self.stamps.append(stamp)
            self.values.append(values)
            self.last_number, self.last_time = int(stamp[0]), float(stamp[1])
            self._last = np.where(np.isnan(values[:n_targets]), self._last, values[:n_targets])
        self.n_known, self.time_kind = about["n_rows"], about["time_kind"]
        self._restore_forecast(about.get("forecast"))
        if "weights" in about:
            self.weights, self.relevance = Shares.unpacked(about["weights"]), Shares.unpacked(about["relevance"])
        # Earlier versions kept those of a forecaster's experts, or of a regressor's inputs.
        for at, shares in about.get("shares", []):
            (self.relevance if self.plan.horizon is None else self.weights).note(at, shares)
        if len(self.values):
            rolling = self.values.rows(1)[0, 4 * n_targets :].reshape(3, n_targets).astype(np.float64)
            seen = ~np.isnan(rolling[0])
            means = np.nan_to_num(rolling * np.array([rolling[0], rolling[1], np.ones(n_targets)]))
            weight = min(self.n_known, SCORE_ROWS)
            self._sums = np.concatenate([means * weight, [weight * seen]])

    def _restore_forecast(self, kept: dict[str, Any] | None) -> None:
        """Show the newest forecast of an earlier process, if it is about these targets."""
        if kept is None or not set(self.plan.targets) <= set(kept["targets"]):
            return
        self.stored_forecast = kept
        # Earlier versions kept numbers as text.
        if "parts" in kept:
            names = kept["targets"]
            parts = np.frombuffer(b64decode(kept["parts"]), np.float32).reshape(3, -1, len(names)).astype(np.float64)
            sides = ("mean", "lower", "upper")
            targets = {
                name: {side: plain_list(parts[k, :, i]) for k, side in enumerate(sides)} | {"quantiles": []}
                for i, name in enumerate(names)
            }
            self.stored_forecast = {name: value for name, value in kept.items() if name != "parts"}
            self.stored_forecast |= {"levels": [], "targets": targets}

    def _packed_forecast(self) -> dict[str, Any] | None:
        """The newest forecast, for the book."""
        predicted = self.predicted
        if predicted is None:
            return self.stored_forecast
        parts = np.array([predicted.mean, predicted.lower, predicted.upper], np.float32)
        return {
            "row": self.forecast_row, "made": self.forecast_at, "time": self._step_times(predicted),
            "level": self.plan.level, "targets": list(self.plan.targets), "parts": b64encode(parts.tobytes()).decode(),
        }  # fmt: skip

    def about(self) -> dict[str, Any]:
        """What is kept beside the rows."""
        return {
            "n_rows": self.n_rows + self.n_known, "time_kind": self.time_kind, "forecast": self._packed_forecast(),
            "weights": self.weights.packed(), "relevance": self.relevance.packed(), "targets": list(self.plan.targets),
        }  # fmt: skip


def seconds_of(times: NDArray[Any]) -> Array:
    """Times of steps as numbers: seconds since 1970 for dates."""
    if times.dtype.kind == "M":
        return np.asarray(times.astype("datetime64[us]").astype(np.int64) * 1e-6, dtype=np.float64)
    return times.astype(np.float64)


def plain(value: float) -> float | None:
    """A number for JSON, with seven digits; None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def plain_list(values: Array) -> list[float | None]:
    """Numbers for JSON; None where they are not finite."""
    return [plain(value) for value in values.tolist()]
