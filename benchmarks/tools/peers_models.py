"""The models that people would use instead, with the distributions that they give themselves, or with none.

Points come from the rivals of the other questions; nothing is added to them, so that what is timed is theirs. Where a
peer has no distribution, the one here has unit deviations: only its errors mean something.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.data import ROOT
from benchmarks.harness import one_thread
from benchmarks.tools.forecast_peers import Forecasts, kept
from benchmarks.tools.forecast_rivals import WithResiduals
from benchmarks.tools.stream_rivals import RIVALS, OnePerTarget, Rival, named

Array = NDArray[np.float64]

# Below it a deviation says nothing about series in units of about one.
FLOOR = 1e-5


class Normals(NamedTuple):
    """A normal distribution for each value of an array.

    Examples
    --------
    >>> distribution = Normals(np.zeros(2), np.ones(2))
    >>> [score(np.ones(2)).round(3).tolist() for score in (distribution.log_pdf, distribution.cdf, distribution.crps)]
    [[-1.419, -1.419], [0.841, 0.841], [0.602, 0.602]]
    """

    mean: Array
    deviation: Array

    @property
    def median(self) -> Array:
        """The mean."""
        return self.mean

    def _standardised(self, y: Array) -> Array:
        return (y - self.mean) / self.deviation

    def log_pdf(self, y: Array) -> Any:
        """Log density of each value."""
        return -0.5 * self._standardised(y) ** 2 - np.log(np.sqrt(2.0 * np.pi) * self.deviation)

    def cdf(self, y: Array) -> Array:
        """Distribution function of each value."""
        return np.asarray(ndtr(self._standardised(y)))

    def crps(self, y: Array) -> Array:
        """Closed form of the ranked score of each value."""
        z = self._standardised(y)
        pdf = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        return np.asarray(self.deviation * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * pdf - 1.0 / np.sqrt(np.pi)))


class Row(Normals):
    """Independent normal distributions of the outputs of one row; their density is joint."""

    def log_pdf(self, y: Array) -> float:
        """Joint log density."""
        return float(super().log_pdf(y).sum())


# ---------------------------------------------------------------------- regression


class Regressor:
    """A rival as `benchmarks.stream` runs it, with what it returns beside the mean as deviation."""

    def __init__(self, rival: Rival) -> None:
        self.rival = rival

    def rows(self, X: Array, Y: Array) -> Iterable[tuple[Array, Array]]:
        """Copies: what keeps a row shall not be charged for the whole feed."""
        return ((x.copy(), y.copy()) for x, y in zip(X, Y, strict=True))

    def predict(self, x: Array) -> tuple[Array, Any]:
        """Mean and deviation."""
        return self.rival.predict(x)

    def distribution(self, answer: tuple[Array, Any]) -> Row:
        """The normal distributions."""
        mean, deviation = answer
        return Row(mean, np.maximum(np.broadcast_to(deviation, mean.shape), FLOOR))

    def learn(self, x: Array, y: Array) -> None:
        """Learn the row."""
        self.rival.learn(x, y)


class BayesianLinear(OnePerTarget):
    """River's Bayesian linear regressions with the distributions that they give; they do not learn the noise."""

    def predict(self, x: Array) -> tuple[Array, Any]:
        """Means and deviations."""
        row = named(np.append(x, 1.0))
        distributions = [model.predict_one(row, with_dist=True) for model in self.models]
        return np.array([distribution.mu for distribution in distributions]), np.array(
            [distribution.sigma for distribution in distributions]
        )


class WindowGP:
    """scikit-learn's Gaussian process of the last rows, refitted at each row, with a new kernel every ``TUNED``.

    Fitting it less often is far worse where a feed moves on: the rows since then are not in it.
    """

    FIRST, TUNED = 50, 300

    def __init__(self, n_inputs: int, n_outputs: int, window: int) -> None:
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        # Every search starts here: one that starts where the last ended stays where few rows have misled that.
        self.start: Any = ConstantKernel() * Matern(np.ones(n_inputs), nu=1.5) + WhiteKernel()
        self.model: Any = None
        self.held: deque[tuple[Array, Array]] = deque(maxlen=window)
        self.n_outputs, self.seen = n_outputs, 0

    def predict(self, x: Array) -> tuple[Array, Any]:
        """Means and deviations; the prior before the first fit."""
        if self.model is None:
            return np.zeros(self.n_outputs), np.ones(self.n_outputs)
        mean, deviation = self.model.predict(x[None], return_std=True)
        return mean.ravel(), deviation.ravel()

    def learn(self, x: Array, y: Array) -> None:
        """Keep the row and fit."""
        from sklearn.gaussian_process import GaussianProcessRegressor

        self.held.append((x, y))
        self.seen += 1
        if self.seen < self.FIRST:
            return
        X, Y = (np.array(side) for side in zip(*self.held, strict=True))
        if self.model is None or self.seen % self.TUNED == 0:
            self.model = GaussianProcessRegressor(self.start, normalize_y=True)
        else:
            self.model = GaussianProcessRegressor(self.model.kernel_, optimizer=None, normalize_y=True)
        with warnings.catch_warnings():
            # That a parameter ended at its bound, or that the search stopped early.
            warnings.simplefilter("ignore")
            self.model.fit(X, Y)


def linear_sgd(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's linear regression by stochastic gradients, one per target."""
    from river.linear_model import LinearRegression

    return OnePerTarget(LinearRegression, n_outputs)


def bayesian_linear(n_inputs: int, n_outputs: int, seed: int) -> Rival:
    """River's Bayesian linear regression as it comes, one per target."""
    from river.linear_model import BayesianLinearRegression

    return BayesianLinear(BayesianLinearRegression, n_outputs)


REGRESSORS: dict[str, Callable[[int, int, int], Rival]] = {
    "last_value": RIVALS["last_value"],
    "linear_sgd": linear_sgd,
    "bayesian_linear": bayesian_linear,
    "nearest": RIVALS["nearest"],
    "adaptive_tree": RIVALS["adaptive_tree"],
    "adaptive_forest": RIVALS["adaptive_forest"],
    "window_gp_100": lambda n_inputs, n_outputs, seed: WindowGP(n_inputs, n_outputs, 100),
    "window_gp_300": lambda n_inputs, n_outputs, seed: WindowGP(n_inputs, n_outputs, 300),
}


# ---------------------------------------------------------------------- forecasts


class Points(WithResiduals):
    """A forecaster without the distribution of its residuals, which costs as much as the simple ones themselves."""

    def learn(self, y: Array) -> None:
        """The row with its gaps filled forward."""
        self.last = np.where(np.isnan(y), self.last, y)
        self.rival.learn(self.last)

    def forecast(self) -> Any:
        """Points as they come."""
        return self.rival.forecast()

    def distribution(self, answer: Any) -> Any:
        """Around the points, or the last value where there is no usable one."""
        near = np.abs(answer) <= self.FAR
        self.replaced += near.size - int(near.sum())
        mean = np.where(near, answer, self.last)
        return Normals(mean, np.ones_like(mean))


def interpreter() -> str:
    """The Python that has statsforecast: ``MOMOSTREAM_STATSFORECAST``, by default this one."""
    return os.environ.get("MOMOSTREAM_STATSFORECAST", sys.executable)


def statsforecast_version() -> str | None:
    """Its version, None where it is not installed."""
    command = [interpreter(), "-c", "import importlib.metadata as m; print(m.version('statsforecast'))"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or None


def statsforecasts(feed: str, method: str, rows: int, horizon: int) -> Forecasts:
    """Forecasts of a feed by a method of statsforecast, made now by the Python that has it."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"--methods": method, "--rows": rows, "--horizon": horizon, "--folder": folder}
        command = [interpreter(), "-m", "benchmarks.tools.forecast_peers", feed]
        command += [str(word) for option in options.items() for word in option]
        subprocess.run(command, env=one_thread(), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        made = kept(feed, method, Path(folder))
    assert made is not None, "the command has ended well"
    return made
