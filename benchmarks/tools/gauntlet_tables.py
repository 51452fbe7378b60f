"""Histories of the table estimator."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tools.gauntlet_calls import History, Values
from benchmarks.tools.gauntlet_twins import TWINS, check
from momostream.sklearn import MOMoGPRegressor as TableRegressor

__all__ = ["TableHistory", "TableLife"]


class TableHistory:
    """Calls on the table estimator: fits of hostile tables, and copies that predict the same."""

    def __init__(self, seed: int, n_calls: int) -> None:
        self.random, self.n_calls, self.n_done, self.last = Random(seed), n_calls, 0, ""
        self.value = Values(self.random)

    def table(self, n: int, d: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A table of numbers without gaps."""
        found = [[self.value() for _ in range(d)] for _ in range(n)]
        return np.array([[0.0 if pd.isna(v) else float(v) for v in row] for row in found]).reshape(n, d)

    def run(self) -> int:
        """Fit, predict and copy; returns the number of calls."""
        r = self.random
        while self.n_done < self.n_calls:
            n, d, p = r.choice([1, 2, 5, 40, 90]), r.choice([1, 2, 4]), r.choice([1, 2, 3])
            X, Y = self.table(n, d), self.table(n, p)
            model = TableRegressor(random_state=0)
            self.last = f"fit of {n} rows, {d} inputs, {p} targets"
            model.fit(X, Y)
            grid = self.table(4, d)
            self.last = "predict"
            mean, std = model.predict(grid, return_std=True)
            check(bool(np.isfinite(mean).all()) and not np.isnan(std).any(), f"predict gave {mean} and {std}")
            self.last = "pickle"
            twin = pickle.loads(pickle.dumps(model))
            check(twin.predict(grid).tobytes() == model.predict(grid).tobytes(), "a pickled copy predicts otherwise")
            self.last = "partial_fit"
            more = self.table(3, d), self.table(3, p)
            for each in (model, twin):
                each.partial_fit(*more)
            check(twin.predict(grid).tobytes() == model.predict(grid).tobytes(), "a pickled copy learns otherwise")
            self.n_done += 7
        return self.n_done


class TableLife(History):
    """Fits of the table estimator, after each many small tables that are learnt."""

    life_calls = {"learn": 50, "predict": 40, "distribution": 8, "quantiles": 3, "sample": 3, "text": 1, "fit": 0.5}
    pure = {"predict", "distribution", "quantiles", "sample", "text"}
    ways = {name: TWINS[name] for name in ("file", "pickle")}
    is_stored = False

    def make(self) -> Any:
        """The estimator, fitted to a small table."""
        r = self.random
        weights = r.choice(["stacking", "stacking", "posterior", "uniform"])
        model = TableRegressor(
            ("matern32", "warped matern12") if weights == "posterior" else ("matern32", "warped matern12", "linear"),
            max_points=r.choice([8, 20, 60]), n_components=r.choice([1, 2]), n_groups=r.choice([1, 2]),
            coupling=r.choice(["shared", "shared", "independent"]), outputs=r.choice(["joint", "joint", "separate"]),
            weights=weights, random_state=0,
            hyperparameters=r.choice(["own", "tied"]), stacking=r.choice(["loo", "blocks"]), n_blocks=3,
            max_iterations=r.choice([0, 5, 40]), memory_budget=r.choice([None, 0, 20_000]),
        )  # fmt: skip
        self.d, self.p = r.choice([1, 2, 4]), r.choice([1, 2, 3])
        # Posterior weights need complete targets.
        self.is_gappy = weights != "posterior"
        return model.fit(self.table(30, self.d), self.table(30, self.p))

    def table(self, n: int, d: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A table of numbers, with gaps where the feed has them."""
        found = [[self.value() for _ in range(d)] for _ in range(n)]
        gap = math.nan if self.is_gappy else 0.0
        return np.array([[gap if pd.isna(v) else float(v) for v in row] for row in found]).reshape(n, d)

    def fit(self) -> Callable[[Any], Any]:
        """Start afresh with a table."""
        n = self.random.choice([2, 12, 40])
        X, Y = self.table(n, self.d), self.table(n, self.p)
        return lambda model: model.fit(X, Y) and None

    def learn(self) -> Callable[[Any], Any]:
        """Learn a few rows more."""
        n = self.random.choice([1, 1, 1, 3])
        X, Y = self.table(n, self.d), self.table(n, self.p)
        return lambda model: model.partial_fit(X, Y) and None

    def predict(self) -> Callable[[Any], Any]:
        """Means of some rows."""
        X = self.table(self.random.choice([1, 2, 4]), self.d)
        return lambda model: model.predict(X)

    def distribution(self) -> Callable[[Any], Any]:
        """Means and deviations."""
        X = self.table(2, self.d)
        return lambda model: list(model.predict(X, return_std=True))

    def quantiles(self) -> Callable[[Any], Any]:
        """Quantiles and an interval."""
        X = self.table(2, self.d)
        return lambda model: [model.predict_quantiles(X), model.predict_interval(X, 0.9)]

    def sample(self) -> Callable[[Any], Any]:
        """Samples of the joint distribution."""
        X = self.table(2, self.d)
        return lambda model: model.sample_y(X, 2, random_state=0)

    def text(self) -> Callable[[Any], Any]:
        """Words about the model."""
        return lambda model: [model.describe(), model.weights_]

    def bad(self) -> tuple[str, Callable[[], Any]]:
        """A call that must fail."""
        r, model = self.random, self.model
        X, Y = self.table(2, self.d), self.table(2, self.p)
        value = r.choice([math.inf, -math.inf, "text", b"bytes", 1 + 2j, 1e60, -1e308, object(), [1.0, 2.0]])
        spoiled = X.astype(object)
        spoiled[1, 0] = value
        wrong = Y.astype(object)
        wrong[1, 0] = value
        cases: dict[str, Callable[[], Any]] = {
            f"partial_fit of input {value!r}": lambda: model.partial_fit(spoiled, Y),
            f"partial_fit of target {value!r}": lambda: model.partial_fit(X, wrong),
            f"predict of {value!r}": lambda: model.predict(spoiled),
            "predict of more columns": lambda: model.predict(self.table(2, self.d + 1)),
            "partial_fit of more targets": lambda: model.partial_fit(X, self.table(2, self.p + 1)),
            "partial_fit of fewer rows": lambda: model.partial_fit(X, Y[:1]),
        }
        name = r.choice(list(cases))
        return name, cases[name]
