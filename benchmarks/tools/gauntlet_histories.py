"""Random histories of estimators: hostile values, bad calls, and twins that must stay the same to the bit.

A history is a sequence of calls on one estimator, all drawn from one seed. At random moments a *twin* is made of the
estimator by one of the ways in which a model leaves memory and comes back (file, pickle, compressed, blocks of a
store). From there on both get the same calls and must give the same answers and hold the same state, to the bit. A call
with good values must not fail; a call with a bad value must fail in words and change nothing; a prediction changes
nothing.

Most histories are short, since most of what goes wrong does so in first rows. A *life* is a history of tens of
thousands of calls on one estimator, whose values change their nature on the way. Its twin leaves memory again and
again, while the estimator itself never does; answers are compared at each call.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tools.gauntlet_calls import LONG, History
from benchmarks.tools.gauntlet_tables import TableHistory, TableLife
from benchmarks.tools.gauntlet_twins import HistoryError, check, checksum, numbers, plain
from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor

__all__ = ["CALLS", "ESTIMATORS", "LIFE", "LONG_CALLS", "HistoryError", "checksum", "history", "life"]

# Calls of most histories, so that first rows are tried as often as later ones, and of some.
CALLS, LONG_CALLS = 60, 400
# Calls of a life.
LIFE = 20_000
INPUTS: list[Any] = ["wind", "pitch", 3, ("a", 1), "late"]
TARGETS: list[Any] = ["power", "load", ("level", 2)]
BAD_VALUES = [
    math.inf, -math.inf, "text", b"bytes", [1.0], [[1.0], [1.0, 2.0]], np.zeros(3), np.zeros((2, 2)), {"a": 1}, 1 + 2j,
    1e60, -1e308, 10**400, datetime(2024, 1, 1), timedelta(1), object(), np.float64("inf"), np.datetime64("2024"), (),
]  # fmt: skip
BAD_ROWS = [3.0, "row", [("wind", 1.0)], {1, 2}, b"row", np.zeros(2)]
BAD_KEYS = [None, b"key", math.nan, frozenset({1}), datetime(2024, 1, 1)]


class RegressorHistory(History):
    """Calls on the row estimator."""

    calls = {
        "learn": 36, "predict": 14, "distribution": 10, "score": 4, "pending": 3, "later": 3, "many": 3,
        "predict_many": 3, "explain": 2, "control": 3, "hyperparameters": 2, "text": 2,
    }  # fmt: skip
    life_calls = {
        "learn": 60, "predict": 20, "distribution": 3, "score": 6, "pending": 3, "later": 3, "many": 0.5,
        "predict_many": 0.5, "explain": 0.3, "control": 0.2, "hyperparameters": 0.02, "text": 0.1,
    }  # fmt: skip
    pure = {"predict", "distribution", "score", "predict_many", "explain", "text"}

    def make(self) -> Any:
        r = self.random
        self.clock = r.choice([True, True, False, "t"])
        self.time, self.ids = datetime(2024, 1, 1), 0
        weights = r.choices(["stacking", "uniform", "posterior"], [6, 1, 1])[0]
        self.bounds = (
            {"power": (0.0, None), ("level", 2): (0.0, 1.0)} if weights == "stacking" and r.random() < 0.1 else None
        )
        circuits = ["clock matern32", "matern32", "matern52", "rbf", "clock rbf", "matern12", "rbf+linear"]
        circuits += ["matern52+linear", "clock matern32+linear"]
        experts = r.choice(
            [("clock matern32", "matern32", "lags"), ("lags",), tuple(r.sample(circuits, r.randint(1, 3)))]
        )
        if len(experts) < 4 and "lags" not in experts and r.random() < 0.5:
            experts = (*experts, "lags")
        if self.clock is False and all(name.startswith("clock") for name in experts):
            experts = ("matern32", "lags")
        return MOMoGPRegressor(
            experts=experts, clock=self.clock, weights=weights, max_points=r.choice([8, 16, 24, 40]),
            n_components=r.choice([1, 1, 2]), mixture_depth=r.choice([1, None]), n_groups=r.choice([1, 1, 2]),
            group_by=r.choice(["random", "independence"]), coupling=r.choice(["shared", "shared", "independent"]),
            tuning_points=20, tuning_evaluations=r.choice([0, 4, 10]), tuning_interval=r.choice([1, 32]),
            first_tuning=8, window=r.choice([None, None, 1, 12, 40]), memory_budget=r.choice([None, None, 0, 20000]),
            split_by=r.choice(["relevance", "variance"]), seed=0, bounds=self.bounds,
            transforms={("level", 2): "logit"} if self.bounds else None,
        )  # fmt: skip

    def x(self) -> dict[Any, Any]:
        """Inputs of a row."""
        r = self.random
        row = {key: self.value() for key in r.sample(INPUTS, r.choice([0, 1, 2, 3, 4, 5]))}
        if self.clock == "t" and r.random() < 0.9:
            seconds = r.choice([1.0, 1.0, 0.1, 3600.0, 0.0, -5.0, 1e8])
            # In thousands of calls, jumps of three years would lead beyond all dates.
            self.time += timedelta(seconds=seconds if self.time.year < 9900 else min(seconds, 1.0))
            extreme = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(9999, 12, 31, tzinfo=UTC)]
            times = [self.time, pd.Timestamp(self.time), np.datetime64(self.time), self.time.timestamp(), None, pd.NaT]
            row["t"] = r.choice(extreme) if r.random() < 0.03 else r.choice(times)
        return row

    def y(self) -> dict[Any, Any]:
        """Targets of a row."""
        r = self.random
        row = {name: self.value() for name in r.sample(TARGETS, r.choice([0, 1, 2, 2, 3]))}
        for name in self.bounds or {}:
            if name in row and not pd.isna(row[name]):
                row[name] = 0.05 + 0.9 / (1.0 + abs(float(row[name])))
        return row

    def frame(self, rows: list[dict[Any, Any]]) -> pd.DataFrame:
        """Rows as a frame; tuples among the names must stay names."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = pd.Index(names, dtype=object, tupleize_cols=False)
        return pd.DataFrame([[row.get(name) for name in names] for row in rows], columns=columns, dtype=object)

    def learn(self) -> Callable[[Any], Any]:
        x, y = self.x(), self.y()
        return lambda model: model.learn_one(x, y)

    def predict(self) -> Callable[[Any], Any]:
        x = self.x()
        return lambda model: model.predict_one(x)

    def distribution(self) -> Callable[[Any], Any]:
        x = self.x()

        def call(model: Any) -> Any:
            found = model.predict_one(x, with_dist=True)
            if not found:
                return []
            interval = found.interval(0.9)
            check(all(low <= high for low, high in interval.values()), f"the interval {interval} is upside down")
            answer = [found.mean, interval, found.quantile(0.3), found.sample(2, seed=0)]
            check(bool(np.isfinite(numbers(plain(answer))).all()), f"{answer} is not finite")
            # Of tails that are too heavy for one, the deviation is infinite.
            check(not np.isnan(list(found.std.values())).any(), f"{found.std} has NaN")
            return answer

        return call

    def score(self) -> Callable[[Any], Any]:
        x, y = self.x(), self.y()
        return lambda model: model.score_one(x, y)

    def pending(self) -> Callable[[Any], Any]:
        self.ids += 1
        x, number = self.x(), self.ids
        return lambda model: model.predict_one(x, id=number)

    def later(self) -> Callable[[Any], Any]:
        y = self.y()
        if not self.model.n_pending:
            return lambda model: None
        number = self.random.choice(list(self.model._pending))
        return lambda model: model.learn_later(number, y)

    def many(self) -> Callable[[Any], Any]:
        rows = [
            (self.x(), self.y())
            for _ in range(self.random.choice([0, 1, 3, 10] if self.is_life else [0, 1, 3, 30, 90]))
        ]
        X, Y = self.frame([x for x, _ in rows]), self.frame([y for _, y in rows])
        return lambda model: model.learn_many(X, Y)

    def predict_many(self) -> Callable[[Any], Any]:
        X = self.frame([self.x() for _ in range(self.random.choice([0, 1, 5, 8] if self.is_life else [0, 1, 5, 30]))])
        return lambda model: model.predict_many(X)

    def explain(self) -> Callable[[Any], Any]:
        x, n = self.x(), self.random.randrange(4)
        return lambda model: model.explain_one(x, n)["experts"]

    def control(self) -> Callable[[Any], Any]:
        name = self.random.choice(["retune", "unfreeze", "freeze", "unfreeze"])
        return lambda model: getattr(model, name)()

    def hyperparameters(self) -> Callable[[Any], Any]:
        r = self.random
        if not self.model.n_rows:
            return lambda model: None
        lengths = {name: 10.0 ** r.uniform(-24, 24) for name in self.model.inputs if r.random() < 0.5}
        noise = r.choice([None, 1e-24, 1e-9, 0.1, 1e24])
        return lambda model: model.set_hyperparameters(lengths, noise)

    def text(self) -> Callable[[Any], Any]:
        def call(model: Any) -> Any:
            words = model.describe() + model._repr_html_() + repr(model.expert_weights) + repr(model.hyperparameters)
            check("nan" not in words, f"a text has nan in it: {words}")
            # The bytes of the factors in memory, which a loaded model has not built yet, are left out.
            return repr(model.expert_weights) + repr(model.hyperparameters)

        return call

    def bad(self) -> tuple[str, Callable[[], Any]]:
        r, model = self.random, self.model
        value, key = r.choice(BAD_VALUES), r.choice(BAD_KEYS)
        x, y = self.x(), {**self.y(), "power": 0.5}
        inputs, targets = {**x, r.choice(INPUTS): value}, {**y, r.choice([*TARGETS, "new"]): value}
        frame = self.frame([x, inputs, x])
        model.unfreeze()
        if self.twin is not None:
            self.twin.unfreeze()
        cases: dict[str, Callable[[], Any]] = {
            f"learn_one of input {value!r}": lambda: model.learn_one(inputs, y),
            f"learn_one of target {value!r}": lambda: model.learn_one(x, targets),
            f"predict_one of input {value!r}": lambda: model.predict_one(inputs, with_dist=True, id="bad"),
            "learn_one of a row": lambda: model.learn_one(r.choice(BAD_ROWS), y),
            "learn_one of targets": lambda: model.learn_one(x, r.choice(BAD_ROWS)),
            f"input named {key!r}": lambda: model.learn_one({**x, key: 1.0}, y),
            f"target named {key!r}": lambda: model.learn_one(x, {**y, key: 1.0}),
            "learn_later": lambda: model.learn_later("nobody", y),
            "id": lambda: model.predict_one(x, id=b"id"),
            f"learn_many of {value!r}": lambda: model.learn_many(frame, self.frame([y] * 3)),
            f"predict_many of {value!r}": lambda: model.predict_many(frame),
            "learn_many of too few": lambda: model.learn_many(self.frame([x] * 2), self.frame([y] * 3)),
            "set_hyperparameters": lambda: model.set_hyperparameters({"no such input": 1.0}),
            "score_one": lambda: model.score_one(x, r.choice(BAD_ROWS)),
        }
        name = r.choice(list(cases))
        return name, cases[name]


class ForecasterHistory(History):
    """Calls on the forecaster."""

    calls = {
        "learn": 60, "forecast": 10, "distribution": 8, "control": 2, "text": 2, "skip": 2,
    }  # fmt: skip
    life_calls = {"learn": 70, "forecast": 20, "distribution": 2, "control": 0.2, "text": 0.1, "skip": 2}
    pure = {"forecast", "distribution", "text"}

    def make(self) -> Any:
        r = self.random
        self.strategy = r.choices(["direct", "recursive"], [5, 1])[0]
        self.horizon = r.choice([1, 2, 5, 30]) if self.strategy == "direct" else 3
        self.single = r.random() < 0.2
        self.timed = r.random() < 0.5
        self.time: Any = datetime(2024, 1, 1)
        self.n_steps = 0
        circuits = r.choice([(), (), ("matern32",), ("rbf+linear", "residual matern32"), ("clock matern32",)])
        linear = ("last value", "season", "own lags", "wide lags")
        self.bounds = {"a": (0.0, None)} if r.random() < 0.1 and not self.single else None
        return MOMoGPForecaster(
            horizon=self.horizon, strategy=self.strategy, lags=r.choice([None, 1, 3]), time="t" if self.timed else None,
            seasons=r.choice([None, None, 4, (3, 7)]), experts=(*linear, *circuits), bounds=self.bounds,
            conformal=self.strategy == "direct" and r.random() < 0.3, max_points=r.choice([8, 24]),
            window=r.choice([None, 12, 40]), memory_budget=r.choice([None, None, 0, 50000]), seed=0,
        )  # fmt: skip

    def row(self) -> tuple[Any, dict[Any, Any]]:
        """Values of the series and inputs of the next row."""
        r = self.random
        y: Any = {name: self.value() for name in r.sample(["a", "b", ("c", 1)], r.choice([0, 1, 2, 3, 3]))}
        if self.bounds and not pd.isna(y.get("a")):
            y["a"] = abs(float(y["a"])) + 0.01
        x = {name: self.value() for name in ("u", "v") if r.random() < 0.5}
        if self.timed:
            self.time += timedelta(minutes=10) * r.choice([1, 1, 1, 1, 1, 1, 3, 200])
            x["t"] = self.time
        return (self.value() if self.single else y), x

    def learn(self) -> Callable[[Any], Any]:
        y, x = self.row()
        return lambda model: model.learn_one(y, x)

    def skip(self) -> Callable[[Any], Any]:
        _, x = self.row()
        return lambda model: model.learn_one(None, x)

    def _future(self) -> tuple[int, Any]:
        n = self.random.randint(1, self.horizon)
        return n, [self.row()[1] for _ in range(n)] if self.random.random() < 0.3 else None

    def forecast(self) -> Callable[[Any], Any]:
        time = self.time
        n, xs = self._future()
        self.time = time
        # A forecaster without any value says so.
        return lambda model: model.forecast(n, xs) if model.series else None

    def distribution(self) -> Callable[[Any], Any]:
        time = self.time
        n, xs = self._future()
        self.time = time

        def call(model: Any) -> Any:
            if not model.series:
                return None
            found = model.forecast(n, xs, with_dist=True)
            interval = found.interval(0.9).to_numpy().reshape(n, -1, 2)
            check(bool((interval[:, :, 0] <= interval[:, :, 1]).all()), f"the interval {interval} is upside down")
            answer = [found.mean, interval, found.quantile([0.3, 0.6]), found.sample(2, seed=0)]
            check(bool(np.isfinite(numbers(plain(answer))).all()), f"{answer} is not finite")
            check(not np.isnan(found.std.to_numpy()).any(), f"{found.std} has NaN")
            return answer

        return call

    def control(self) -> Callable[[Any], Any]:
        name = self.random.choice(["unfreeze", "freeze", "unfreeze"])
        return lambda model: getattr(model, name)()

    def text(self) -> Callable[[Any], Any]:
        def call(model: Any) -> Any:
            words = model.describe() + model._repr_html_() + model.weights.to_string()
            check("nan" not in words.lower(), f"a text has nan in it: {words}")
            return model.weights

        return call

    def bad(self) -> tuple[str, Callable[[], Any]]:
        r, model = self.random, self.model
        time = self.time
        value, key = r.choice(BAD_VALUES), r.choice(BAD_KEYS)
        y, x = self.row()
        self.time = time
        good: Any = 1.0 if self.single else {"a": 1.0}
        values: Any = value if self.single else {**y, r.choice(["a", "new"]): value}
        if isinstance(values, dict) and self.single:
            values = [values]
        cases: dict[str, Callable[[], Any]] = {
            f"learn_one of {value!r}": lambda: model.learn_one(values, x),
            f"learn_one of input {value!r}": lambda: model.learn_one(good, {**x, "u": value}),
            f"input named {key!r}": lambda: model.learn_one(good, {**x, key: 1.0}),
            "too far": lambda: model.forecast(0),
            "x of another kind": lambda: model.learn_one(good, r.choice(BAD_ROWS)),
            f"future of {value!r}": lambda: model.forecast(1, [{"u": value}]),
        }
        if not self.single:
            cases[f"series named {key!r}"] = lambda: model.learn_one({"a": 1.0, key: 1.0}, x)
        name = r.choice(list(cases))
        return name, cases[name]


class MonitorHistory(History):
    """Calls on the monitor."""

    calls = {"learn": 60, "score": 12, "release": 1, "control": 2, "text": 3}
    life_calls = {"learn": 60, "score": 20, "release": 0.2, "control": 0.1, "text": 1}
    pure = {"score", "text"}

    def make(self) -> Any:
        r = self.random
        self.timed, self.time = r.random() < 0.5, datetime(2024, 1, 1)
        rate = r.choice(["1 per 20 rows", 0.01, "1 per 100 rows"])
        return MOMoGPMonitor(
            rate, time="t" if self.timed else None, warm_up=r.choice([20, 30]), window=r.choice([50, 80]),
            quiet_rows=r.choice([1, 5]), release_after=r.choice([None, 10]),
        )  # fmt: skip

    def row(self) -> dict[Any, Any]:
        """Columns of a row."""
        r = self.random
        row = {name: self.value() for name in r.sample(["a", "b", ("c", 1), 4], r.choice([0, 1, 2, 3, 4, 4]))}
        if self.timed:
            self.time += timedelta(minutes=10) * r.choice([1, 1, 1, 1, 1, 3, 200])
            row["t"] = self.time
        return row

    def learn(self) -> Callable[[Any], Any]:
        row = self.row()
        return lambda model: model.learn_one(row)

    def score(self) -> Callable[[Any], Any]:
        row = self.row()
        return lambda model: model.score_one(row)

    def release(self) -> Callable[[Any], Any]:
        return lambda model: model.release()

    def control(self) -> Callable[[Any], Any]:
        name = self.random.choice(["freeze", "unfreeze", "unfreeze"])
        return lambda model: getattr(model, name)()

    def text(self) -> Callable[[Any], Any]:
        return lambda model: [model.describe(), repr(model.events), model.threshold]

    def bad(self) -> tuple[str, Callable[[], Any]]:
        r, model = self.random, self.model
        value, key, time = r.choice(BAD_VALUES), r.choice(BAD_KEYS), self.time
        row = self.row()
        self.time = time
        cases: dict[str, Callable[[], Any]] = {
            f"learn_one of {value!r}": lambda: model.learn_one({**row, "a": value}),
            f"score_one of {value!r}": lambda: model.score_one({**row, "a": value}),
            f"column named {key!r}": lambda: model.learn_one({**row, key: 1.0}),
            "learn_one of a row": lambda: model.learn_one(r.choice(BAD_ROWS)),
        }
        name = r.choice(list(cases))
        return name, cases[name]


ESTIMATORS: dict[str, Any] = {
    "regressor": RegressorHistory,
    "forecaster": ForecasterHistory,
    "monitor": MonitorHistory,
    "table": TableHistory,
}


LIVES: dict[str, Any] = {**ESTIMATORS, "table": TableLife}


def history(kind: str, seed: int, n_calls: int = CALLS) -> int:
    """Live through one history; returns the number of calls.

    Raises
    ------
    HistoryError
        With what went wrong and how to repeat it.
    """
    return _lived(kind, seed, ESTIMATORS[kind](seed, n_calls))


def life(kind: str, seed: int, n_calls: int = LIFE) -> int:
    """The same with many calls on one estimator."""
    return _lived(kind, seed, LIVES[kind](seed, n_calls, LONG))


def _lived(kind: str, seed: int, found: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            calls: int = found.run()
        except Exception as error:
            words = f"{kind} {seed}, call {found.n_done} ({found.last}): {type(error).__name__}: {error}"
            raise HistoryError(words) from error
    return calls
