"""Rivals that are fitted again and again on all rows so far: a validated ridge, a VAR, LightGBM, and a mean of two.

Each is a generator of `Block`s: forecasts of some origins by one fit, to which no row after the first of these origins
has contributed. Gaps are filled forward before. A model of ``K = H * P`` values has one regression for each step and
series, of the change from the origin; `Features` is what it sees.

* ``validated_ridge``: fitted every 100 rows, the penalty the best of four on the last fifth, for each step and series.
  Quantiles are those of the errors there.
* ``var``: a vector autoregression of the order up to six with the least AIC, fitted every 250 rows and iterated. Its
  distribution is Gaussian. It knows neither calendar nor inputs.
* ``lightgbm``: on the features of the ridge, fitted every 500 rows. Quantiles are those of the errors on the last fifth
  of a first fit that did not see it. `TREES` and `LIGHTGBM` are its settings.
* ``ridge_lightgbm``: the mean of the points and of the quantiles of the two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from benchmarks.data import Series, forward_filled
from benchmarks.tools.forecast_peers import FOLDER
from benchmarks.tools.forecast_scores import QUANTILES, UNSCORED, Multivariate, Quantiles
from benchmarks.tools.peers_models import FLOOR, Normals

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Rows between two fits.
RIDGE_EVERY, VAR_EVERY, LIGHTGBM_EVERY = 100, 250, 500
PENALTIES = (3.0, 30.0, 300.0, 3000.0)
CONSTANT_PENALTY = 1e-3
LONGEST_ORDER = 6
# Modest, so that thousands of fits stay affordable.
TREES = 60
LIGHTGBM = {
    "objective": "regression",
    "learning_rate": 0.08,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "lambda_l2": 1.0,
    "feature_fraction": 0.5,
    "max_bin": 63,
    "num_threads": 1,
    "force_col_wise": True,
    "deterministic": True,
    "seed": 0,
    "verbosity": -1,
}
# 36 series of 20 steps: 720 models of 288 inputs for each fit.
TOO_MANY = ("openfast_5mw_land_wturb",)
# The first rows have no past to be regressed on: those of a season, at most this many.
LONGEST_START, MEAN_ROWS, CHANGES = 300, 36, 5


class Problem(NamedTuple):
    """Complete series ``F`` of shape (n, P) to be forecast ``horizon`` steps ahead, and all that is known of them.

    ``inputs`` (n, D) are known in advance, ``hour`` and ``weekend`` (n,) are those of each row, None without dates.
    """

    F: Array
    horizon: int
    season: int | None
    inputs: Array
    hour: Array | None
    weekend: Array | None


def problem(feed: Series, horizon: int, season: int | None) -> Problem:
    """The problem of a feed: gaps filled forward, hour of the day with fractions, Saturdays and Sundays."""
    hour = weekend = None
    if feed.times is not None:
        hour = (feed.times.hour + feed.times.minute / 60.0).to_numpy(float)
        weekend = (feed.times.day_of_week >= 5).astype(float)
    return Problem(forward_filled(feed.Y), horizon, season, feed.X, hour, weekend)


class Block(NamedTuple):
    """Points (n_origins, H, P) from ``origins`` on; ``around`` makes the distribution of one forecast of its points.

    ``seconds`` is the CPU time that was spent earlier, for what was read from a file.
    """

    origins: Rows
    points: Array
    around: Callable[[Array], Multivariate]
    seconds: float = 0.0


class Fit(NamedTuple):
    """A block whose distributions are points plus the quantiles ``errors`` (99, H, P)."""

    origins: Rows
    points: Array
    errors: Array
    seconds: float = 0.0


def _block(fit: Fit) -> Block:
    return Block(fit.origins, fit.points, lambda point: Quantiles(point, point + fit.errors), fit.seconds)


def blocks(origins: Rows, every: int) -> Iterator[Rows]:
    """Origins by the fit that they share: a fit at the first of all, then one at each multiple of ``every``.

    Examples
    --------
    >>> [block.tolist() for block in blocks(np.arange(7, 13), 5)]
    [[7, 8, 9], [10, 11, 12]]
    """
    number = origins // every
    for one in np.unique(number):
        yield origins[number == one]


# ---------------------------------------------------------------------- what regressions see


class Features:
    """Inputs and targets of the regressions, for all rows as origins.

    ``X`` (n, d) is shared: all series, their five last changes, their distance from the mean of 36 rows; with a season
    their distance from a season ago; with dates two waves of the hour; the inputs now. ``Q`` (n, K, q) belongs to a
    step and a series: with a season the change to its own value one and two seasons before the target row (days of 24
    hours: one and seven), as far as that is known; with dates whether the target row lies at a weekend; the inputs of
    the target row. ``T`` (n, K) are the changes to be learnt, NaN beyond the end.
    """

    def __init__(self, asked: Problem) -> None:
        F, H = asked.F, asked.horizon
        n, P = F.shape
        self.F, self.horizon = F, H
        self.start = min(asked.season or MEAN_ROWS, LONGEST_START)
        self.X = self._shared(asked)
        steps = np.arange(1, H + 1)
        ahead = np.minimum(np.arange(n)[:, None] + steps, n - 1)
        own: list[Array] = []
        for seasons in _seasons(asked.season, H):
            at = np.arange(n)[:, None] + steps - seasons
            own.append(np.where((at >= 0)[:, :, None], F[np.maximum(at, 0)] - F[:, None], 0.0))
        per_row = list(asked.inputs.T) if asked.weekend is None else [asked.weekend, *asked.inputs.T]
        own += [np.repeat(known[ahead][:, :, None], P, axis=2) for known in per_row]
        self.Q = np.stack(own, axis=3).reshape(n, H * P, -1) if own else np.zeros((n, H * P, 0))
        T = F[ahead] - F[:, None]
        T[np.arange(n)[:, None] + steps >= n] = np.nan
        self.T = T.reshape(n, H * P)

    @staticmethod
    def _shared(asked: Problem) -> Array:
        F = asked.F
        n, P = F.shape
        row = np.arange(n)

        def before(rows: int) -> Array:
            return F[np.maximum(row - rows, 0)]

        sums = np.vstack([np.zeros(P), np.cumsum(F, axis=0)])
        oldest = np.maximum(row - MEAN_ROWS + 1, 0)
        mean = (sums[1:] - sums[oldest]) / (row + 1 - oldest)[:, None]
        parts = [F, *(F - before(rows) for rows in range(1, CHANGES + 1)), F - mean]
        if asked.season is not None:
            parts.append(before(asked.season) - F)
        if asked.hour is not None:
            angle = 2.0 * np.pi * asked.hour[:, None] / 24.0
            parts += [np.sin(angle), np.cos(angle), np.sin(2.0 * angle), np.cos(2.0 * angle)]
        X = np.hstack([*parts, asked.inputs])
        scale = X[:UNSCORED].std(axis=0)
        return X / np.where(scale > 1e-6, scale, 1.0)


def _seasons(season: int | None, horizon: int) -> list[int]:
    """How many rows before the target row the own values lie: known at the origin of the last step.

    Examples
    --------
    >>> _seasons(24, 24), _seasons(144, 36), _seasons(4, 10), _seasons(None, 3)
    ([24, 168], [144, 288], [12], [])
    """
    if season is None:
        return []
    wanted = [number * season for number in ((1, 7) if season == 24 else (1, 2))]
    return [rows for rows in wanted if rows >= horizon] or [-(-horizon // season) * season]


# ---------------------------------------------------------------------- ridge


class Weights(NamedTuple):
    """Of K regressions: ``shared`` (1 + d, K) with the constant first, ``own`` (K, q)."""

    shared: Array
    own: Array


def ridge_weights(features: Features, first: int, stop: int) -> list[Weights]:
    """Ridge regressions on the origins ``first`` to ``stop - 1``, for each of `PENALTIES`.

    The normal equations of a step and series have a large block that all share. Its Cholesky factor is computed once a
    penalty, and the own features follow by the Schur complement.
    """
    x = np.column_stack([np.ones(stop - first), features.X[first:stop]])
    q, t = features.Q[first:stop], features.T[first:stop]
    K, width = q.shape[1:]
    G, C, b = x.T @ x, x.T @ q.reshape(len(q), -1), x.T @ t
    qq, qt = np.einsum("nki,nkj->kij", q, q, optimize=True), np.einsum("nki,nk->ki", q, t, optimize=True)
    C = C.reshape(len(G), K, width)
    found = []
    for penalty in PENALTIES:
        diagonal = np.full(len(G), penalty)
        diagonal[0] = CONSTANT_PENALTY
        factor = cho_factor(G + np.diag(diagonal), lower=True)
        solved_b = cho_solve(factor, b)
        if width == 0:
            found.append(Weights(solved_b, np.zeros((K, 0))))
            continue
        solved_C = cho_solve(factor, C.reshape(len(G), -1)).reshape(C.shape)
        schur = qq + penalty * np.eye(width) - np.einsum("dki,dkj->kij", C, solved_C)
        rest = qt - np.einsum("dki,dk->ki", C, solved_b)
        own = np.linalg.solve(schur, rest[:, :, None])[:, :, 0]
        found.append(Weights(solved_b - np.einsum("dki,ki->dk", solved_C, own), own))
    return found


def ridge_changes(features: Features, weights: Weights, rows: Rows) -> Array:
    """Changes (n_rows, K) that the regressions predict."""
    shared = features.X[rows] @ weights.shared[1:] + weights.shared[0]
    return shared + np.einsum("nki,ki->nk", features.Q[rows], weights.own)


def held_out(features: Features, origin: int) -> tuple[int, Rows]:
    """Where the training rows of a validation end, and the last fifth of the rows whose targets the origin knows.

    No target of a training row lies in the rows that are held out.
    """
    known = origin - features.horizon + 1
    cut = features.start + int(0.8 * (known - features.start))
    return cut - features.horizon, np.arange(cut, known)


def ridge_fits(asked: Problem, origins: Rows) -> Iterator[Fit]:
    """Fits of the ridge, each with the penalties that its validation has chosen."""
    features = Features(asked)
    shape = (asked.horizon, asked.F.shape[1])
    for block in blocks(origins, RIDGE_EVERY):
        stop, held = held_out(features, int(block[0]))
        tried = ridge_weights(features, features.start, stop)
        errors = np.stack([features.T[held] - ridge_changes(features, weights, held) for weights in tried])
        best = (errors**2).mean(axis=1).argmin(axis=0)
        each = np.arange(len(best))
        all_rows = ridge_weights(features, features.start, int(held[-1]) + 1)
        shared, own = (np.stack([weights[part] for weights in all_rows]) for part in (0, 1))
        weights = Weights(shared[best, :, each].T, own[best, each])
        held_errors = np.quantile(errors[best, :, each].T, QUANTILES, axis=0)
        points = asked.F[block][:, None] + ridge_changes(features, weights, block).reshape(-1, *shape)
        yield Fit(block, points, held_errors.reshape(-1, *shape))


def validated_ridge(asked: Problem, origins: Rows) -> Iterator[Block]:
    """The ridge whose penalty is validated."""
    return map(_block, ridge_fits(asked, origins))


# ---------------------------------------------------------------------- LightGBM


def lightgbm_fits(asked: Problem, origins: Rows) -> Iterator[Fit]:
    """Fits of LightGBM, read from the folder of the peers where they were made before with the same settings."""
    path = FOLDER / f"lightgbm-{_key(asked, origins)}.npz"
    if path.is_file():
        with np.load(path) as file:
            for number, block in enumerate(blocks(origins, LIGHTGBM_EVERY)):
                parts = (file[f"{part}{number}"].astype(float) for part in ("points", "errors"))
                yield Fit(block, *parts, float(file["seconds"][number]))
        return
    made: dict[str, NDArray[Any]] = {}
    seconds: list[float] = []
    start = time.thread_time()
    for number, fit in enumerate(_fitted_trees(asked, origins)):
        seconds.append(time.thread_time() - start)
        made |= {f"points{number}": fit.points.astype(np.float32), f"errors{number}": fit.errors.astype(np.float32)}
        yield fit
        start = time.thread_time()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, seconds=np.array(seconds), **made)


def _key(asked: Problem, origins: Rows) -> str:
    """A text that differs where the data or the settings differ."""
    key = sha256(json.dumps([asked.horizon, asked.season, TREES, LIGHTGBM, LIGHTGBM_EVERY]).encode())
    for part in (asked.F, origins, asked.inputs, asked.hour, asked.weekend):
        key.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
    return key.hexdigest()[:16]


def _fitted_trees(asked: Problem, origins: Rows) -> Iterator[Fit]:
    features = Features(asked)
    shape = (asked.horizon, asked.F.shape[1])
    for block in blocks(origins, LIGHTGBM_EVERY):
        stop, held = held_out(features, int(block[0]))
        points = np.empty((len(block), features.T.shape[1]))
        errors = np.empty((len(QUANTILES), features.T.shape[1]))
        for k in range(features.T.shape[1]):
            first = _trees(features, k, features.start, stop)
            error = features.T[held, k] - first.predict(_inputs(features, k, held), num_threads=1)
            errors[:, k] = np.quantile(error, QUANTILES)
            last = _trees(features, k, features.start, int(held[-1]) + 1)
            points[:, k] = last.predict(_inputs(features, k, block), num_threads=1)
        yield Fit(block, asked.F[block][:, None] + points.reshape(-1, *shape), errors.reshape(-1, *shape))


def _inputs(features: Features, k: int, rows: Rows) -> Array:
    return np.hstack([features.X[rows], features.Q[rows, k]])


def _trees(features: Features, k: int, first: int, stop: int) -> Any:
    """Boosted trees of one step and series, learnt from these origins."""
    import lightgbm

    rows = np.arange(first, stop)
    # float32: as precise as 63 bins need.
    inputs = lightgbm.Dataset(_inputs(features, k, rows).astype(np.float32), features.T[rows, k], params=LIGHTGBM)
    return lightgbm.train(LIGHTGBM, inputs, TREES)


def lightgbm(asked: Problem, origins: Rows) -> Iterator[Block]:
    """Boosted trees."""
    return map(_block, lightgbm_fits(asked, origins))


# ---------------------------------------------------------------------- vector autoregression


class Autoregression(NamedTuple):
    """``A`` (1 + order P, P) with the constant first, and ``S`` (P, P), the covariance of its errors."""

    A: Array
    S: Array
    order: int


def fitted_var(F: Array) -> Autoregression:
    """The order with the least AIC, all compared on the same rows."""
    n, P = F.shape
    target = F[LONGEST_ORDER:]
    best: tuple[float, Autoregression] | None = None
    for order in range(1, LONGEST_ORDER + 1):
        past = [F[LONGEST_ORDER - lag : n - lag] for lag in range(1, order + 1)]
        X = np.hstack([np.ones((len(target), 1)), *past])
        A = np.linalg.lstsq(X, target, rcond=None)[0]
        S = np.cov((target - X @ A).T).reshape(P, P)
        aic = float(np.linalg.slogdet(S)[1]) + 2.0 * A.size / len(target)
        if best is None or aic < best[0]:
            best = aic, Autoregression(A, S, order)
    assert best is not None
    return best[1]


def var_deviations(model: Autoregression, horizon: int) -> Array:
    """Standard deviations (H, P) of the forecasts, from the moving-average form of the autoregression."""
    P = len(model.S)
    lagged = [model.A[1 + lag * P : 1 + (lag + 1) * P].T for lag in range(model.order)]
    moving, total, found = [np.eye(P)], np.zeros((P, P)), []
    for step in range(horizon):
        total = total + moving[step] @ model.S @ moving[step].T
        found.append(np.sqrt(np.diag(total)))
        moving.append(sum(lagged[lag] @ moving[step - lag] for lag in range(min(model.order, step + 1))))
    return np.array(found)


def var(asked: Problem, origins: Rows) -> Iterator[Block]:
    """The autoregression, iterated from each origin. Noise of 1e-4 keeps the covariance of a standing feed regular."""
    F = asked.F + 1e-4 * np.random.default_rng(0).normal(size=asked.F.shape)
    for block in blocks(origins, VAR_EVERY):
        model = fitted_var(F[: block[0] // VAR_EVERY * VAR_EVERY])
        deviation = np.maximum(var_deviations(model, asked.horizon), FLOOR)
        past = [F[block - lag] for lag in range(model.order)]
        points = []
        for _ in range(asked.horizon):
            points.append(model.A[0] + np.hstack(past) @ model.A[1:])
            past = [points[-1], *past[:-1]]
        yield Block(block, np.stack(points, axis=1), lambda point, deviation=deviation: Normals(point, deviation))


# ---------------------------------------------------------------------- the mean of two


def ridge_lightgbm(asked: Problem, origins: Rows) -> Iterator[Block]:
    """The mean of the points and of the quantiles of `validated_ridge` and `lightgbm`."""
    return map(_block, mean_of(ridge_fits(asked, origins), lightgbm_fits(asked, origins)))


def mean_of(often: Iterator[Fit], seldom: Iterator[Fit]) -> Iterator[Fit]:
    """Means of the fits of two models; the origins of a fit of the first lie within those of one of the second."""
    other = next(seldom)
    seconds = other.seconds
    for fit in often:
        while fit.origins[0] > other.origins[-1]:
            other = next(seldom)
            seconds = other.seconds
        points = (fit.points + other.points[np.searchsorted(other.origins, fit.origins)]) / 2.0
        yield Fit(fit.origins, points, (fit.errors + other.errors) / 2.0, fit.seconds + seconds)
        seconds = 0.0


BATCH: dict[str, Callable[[Problem, Rows], Iterator[Block]]] = {
    "validated_ridge": validated_ridge,
    "var": var,
    "lightgbm": lightgbm,
    "ridge_lightgbm": ridge_lightgbm,
}
