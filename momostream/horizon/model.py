"""The model behind the forecaster: experts for all steps ahead, one blend, one distribution.

Arrays in column order; names, times and frames belong to the facade. NaN is a missing value. At every row the model
makes a forecast of all steps, keeps it, and learns from it when the values come: whatever the user asks for, the
distributions have been tested on the feed itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from momostream.distributions.marginals import Marginals
from momostream.horizon.blend import Blend, Outlook, Ties
from momostream.horizon.conformal import Conformal
from momostream.horizon.past import SLOW_STEP, Past
from momostream.horizon.regressions import OwnLags, WideLags
from momostream.horizon.seasons import find_season
from momostream.horizon.settings import RESIDUAL, HorizonSettings
from momostream.kernels.horizon import LONG, SHORT, recall
from momostream.stream.circuits import Circuits

__all__ = ["HorizonModel", "Joint", "Paths"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")

# Whose residuals these are.
HEAVY = "wide lags, heavy"
# Features of the wide regression, at most, and changes of each series.
MOST_FEATURES, MOST_LAGS = 180, 9
# A wider regression is left out: it would need more rows than feeds have.
TOO_WIDE = 400
# Of forecasts of so many steps every one is learnt from, of longer ones every second, third...
EVERY_STEPS = 24
# Groups of paths whose expectations stand for all in the distribution of a step.
PATH_GROUPS = 12
# Rows looked at for a season, and how often: whenever their number has doubled.
SEASON_ROWS, FIRST_LOOK = 1024, 64


@dataclass(frozen=True)
class Joint:
    """The distribution of all steps and series.

    Attributes
    ----------
    distribution
        Location, spread, scale, degrees of freedom and weight, shape ``(5, n_members, horizon, n_series)``.
    ties
        How they go together.
    """

    planes: Array
    ties: Ties

    @cached_property
    def between_steps(self) -> Array:
        """Correlation of the steps; that of two values is its entry times that of `between_series`."""
        return self.ties.between_steps

    @cached_property
    def between_series(self) -> Array:
        """Correlation of the series."""
        return self.ties.between_series


class _Made(NamedTuple):
    """A forecast as it was made, with inputs that stay: of the experts, of own lags with slopes, and its planes."""

    located: Array
    slopes: Array
    planes: Array
    blend_slope: Array


class HorizonModel:
    """Forecasts of ``horizon`` steps of several series, learnt row by row.

    Parameters
    ----------
    settings
        Parameters.
    n_series, n_inputs
        Columns.

    Attributes
    ----------
    members
        Names of the experts as the blend counts them.
    n_rows
        Rows learnt so far.
    """

    def __init__(self, settings: HorizonSettings, n_series: int, n_inputs: int) -> None:
        self.settings, self.n_series, self.n_inputs = settings, n_series, n_inputs
        H, P, names = settings.horizon, n_series, settings.experts
        self.n_lags = settings.lags or int(np.clip(MOST_FEATURES // max(P, 1) - 1, 1, MOST_LAGS))
        # Where the feed is known to have a season: values of the last one, at the same phase and that of the last step.
        n_seasonal = 2 * P if settings.seasons else 0
        width = 1 + P + n_inputs + n_seasonal + self.n_lags * P
        is_wide = "wide lags" in names and width <= TOO_WIDE
        self.own = OwnLags(H, P, n_inputs) if "own lags" in names else None
        self.wide = WideLags(width, H * P) if is_wide else None
        self.circuit_width = 2 * P + n_inputs + n_seasonal
        self.plain = None if settings.plain is None else Circuits(settings.plain, self.circuit_width, H * P)
        residual = settings.residual if is_wide else None
        self.residual = None if residual is None else Circuits(residual, self.circuit_width, H * P)
        members = ["last value", "season"]
        members += ["own lags, light", "own lags, heavy"] if self.own else []
        members += ["wide lags, light", HEAVY] if is_wide else []
        members += settings.plain.experts if settings.plain else ()
        members += [RESIDUAL + name for name in residual.experts] if residual else []
        self.members = tuple(members)
        # Forecasts that overlap by much have much the same errors: of these, one is enough to learn from.
        self._every = 1 + H // EVERY_STEPS
        self.blend = Blend(len(members), H, P, self._every)
        self.outlook, self.ties = Outlook(H, P, self._every), Ties(H, P)
        self.conformal = Conformal(H, P) if settings.conformal else None
        self.seasons: tuple[int, ...] = ()
        self.past = Past(P, n_inputs, self._capacity(settings.seasons))
        self._look = FIRST_LOOK
        self._seen: tuple[int, ...] = ()
        if settings.seasons:
            self._set_seasons(settings.seasons)
        self._scratch()

    def _capacity(self, seasons: tuple[int, ...] | None) -> int:
        """Rows that features and targets may look back."""
        H = self.settings.horizon
        longest = SEASON_ROWS if seasons is None else max((s * -(-H // s) for s in seasons), default=0)
        return H + max(longest, 64, self.n_lags + 1) + H

    def _scratch(self) -> None:
        """Forecasts as they were made, by number of their row."""
        H, P, D, K = self.settings.horizon, self.n_series, self.n_inputs, len(self.members)
        M = self.outlook.mixing.shape[1]
        self._located = np.zeros((H, H, K, P))
        self._sloped = np.zeros((H, H, 2, P, D))
        self._blend_slope = np.zeros((H, H, P, D))
        self._plane_ring = np.zeros((H, H, 5, M, P))
        self._scores = np.full((H, H, P), np.nan)
        self._points = np.zeros((H, 1 + self.circuit_width))
        width, n_wide = (0, 0) if self.wide is None else (self.wide.width, len(self.wide.penalties))
        self._features, self._expected = np.zeros((H, width)), np.zeros((H, n_wide, H * P))
        self._steps = np.arange(1, H + 1)
        self._values, self._errors, self._planes = np.empty((H, P)), np.empty((K, H, P)), np.empty((5, M, H * P))
        self._made: _Made | None = None

    @property
    def n_rows(self) -> int:
        """Rows learnt so far."""
        return self.past.n_rows

    # ------------------------------------------------------------------ learning

    def learn(self, y: Array, x: Array) -> None:
        """Learn the next row: values of the series and of the inputs; NaN is missing."""
        H, now = self.settings.horizon, self.past.n_rows
        self.past.append(y, x)
        if now:
            self._learn_forecasts(y, now)
        if now >= H:
            self._learn_origin(now - H)
        if self.own is not None:
            self.own.learn(self.past)
            self.own.work()
        if self.settings.seasons is None and self.past.n_rows == self._look:
            self._look_for_season()
        self._look_around(now % H)
        # Made here even if nobody asks, so that asking changes nothing.
        self._made = None
        made = self._forecast()
        if self._is_kept(now):
            self._keep(made, now % H)

    def _learn_forecasts(self, y: Array, now: int) -> None:
        """Compare the value with all forecasts of it, those made one row ago first."""
        H = self.settings.horizon
        recall(
            now, self._every, self.past.last, y, self.past.inputs, 0 if self.own is None else 2,
            self.outlook.stands_still, self._located, self._sloped, self._blend_slope, self._plane_ring, self._values,
            self._errors, self._planes,
        )  # fmt: skip
        self.blend.learn(self._errors)
        scores = self.outlook.learn(self._values, self._planes)
        if self.conformal is not None:
            self.conformal.learn(scores)
        n = min(H, now)
        steps = self._steps[:n]
        self._scores[(now - steps) % H, steps - 1] = scores[:n]
        if now >= H and self._is_kept(now - H):
            self.ties.learn(self._scores[now % H])

    def _learn_origin(self, origin: int) -> None:
        """Learn a row whose last target has just come, in the experts that take all steps together."""
        slot = origin % self.settings.horizon
        changes = self.past.targets(self.settings.horizon).ravel()
        if np.isnan(changes).all():
            return
        if self.wide is not None:
            changes = self.wide.learn(self._features[slot], changes)
            self.wide.work()
        point = self._points[slot]
        if self.settings.seasons and origin < self.settings.seasons[0]:
            # Circuits take the first rows as the measure of what they see, and these have no season behind them.
            return
        if self.plain is not None:
            self.plain.learn_row(point, changes)
        if self.residual is not None:
            self.residual.learn_row(point, changes - self._expected[slot, -1])

    def _look_for_season(self) -> None:
        past = self.past
        self._look *= 2
        season = find_season(past.series[max(past.last + 1 - SEASON_ROWS, past.first) : past.last + 1, 0])
        seasons = () if season is None else (season, 2 * season)
        # Twice the same answer: one look may see what is not there.
        if seasons == self._seen and seasons != self.seasons:
            log.info("row %d: season of %s rows", past.n_rows, season)
            self._set_seasons(seasons)
        self._seen = seasons

    def _set_seasons(self, seasons: tuple[int, ...]) -> None:
        self.seasons = seasons
        if self.own is not None:
            self.own.set_seasons(seasons)

    # ------------------------------------------------------------------ forecasting

    def _forecast(self) -> _Made:
        """The forecast of the newest row, made once."""
        if self._made is None:
            past, slot = self.past, (self.past.n_rows - 1) % self.settings.horizon
            located, slopes = self._locate(slot)
            slope = np.zeros(slopes.shape[1:])
            if self.own is not None and self.n_inputs:
                slope = np.einsum("khpd,hpk->hpd", slopes, self.blend.weights[:, :, 2:4])
            planes = self.outlook.planes(self.blend.mean(located), past.values, past.n_missing)
            self._made = _Made(located, slopes, planes, slope)
        return self._made

    def _is_kept(self, row: int) -> bool:
        """Whether the forecast of a row is learnt from, as `momostream.kernels.recall` has it."""
        return row % self._every == row // self.settings.horizon % self._every

    def _keep(self, made: _Made, slot: int) -> None:
        """Keep a forecast until all its values are there."""
        self._located[slot] = made.located.swapaxes(0, 1)
        self._sloped[slot] = made.slopes.swapaxes(0, 1)
        self._blend_slope[slot] = made.blend_slope
        shape = (*made.planes.shape[:2], self.settings.horizon, self.n_series)
        self._plane_ring[slot] = made.planes.reshape(shape).transpose(2, 0, 1, 3)

    def _look_around(self, slot: int) -> None:
        """Features of the newest row, for the wide regression and for the circuits."""
        past, H = self.past, self.settings.horizon
        values, inputs = past.values, past.inputs[past.last]
        seasonal = np.empty(0)
        if self.settings.seasons:
            season = self.seasons[0]
            back = np.array([season, season - (H - 1) % season - 1])
            seasonal = (past.earlier(back) - values).ravel()
        changes = past.changes(self.n_lags)
        self._points[slot] = np.concatenate([[past.n_rows - 1.0], values, inputs[0], seasonal, changes[0]])
        if self.wide is not None:
            levels = values - past.series[past.last, 1]
            f = np.concatenate([[1.0], levels, inputs[0] - inputs[1], seasonal, changes.ravel()])
            self._features[slot] = self.wide.cut(f)
            self._expected[slot] = self.wide.predict(self._features[slot])

    def _locate(self, slot: int) -> tuple[Array, Array]:
        """Forecasts of all experts ``(n_experts, horizon, n_series)``, and slopes of the regressions on own lags."""
        H, P, past = self.settings.horizon, self.n_series, self.past
        located = np.empty((len(self.members), H, P))
        located[0] = past.values
        located[1] = self._seasonal()
        slopes = np.zeros((2, H, P, self.n_inputs))
        at = 2
        if self.own is not None:
            self.own.predict(past, located[2:4], slopes)
            at = 4
        if self.wide is not None:
            located[at : at + 2] = past.values + self._expected[slot].reshape(-1, H, P)
            at += 2
        for circuits in (self.plain, self.residual):
            if circuits is not None:
                n = len(circuits.trees)
                base = past.values if circuits is self.plain else located[self.members.index(HEAVY)]
                located[at : at + n] = base + self._predict(circuits, self._points[slot])
                at += n
        return located, slopes

    def _predict(self, circuits: Circuits, point: Array) -> Array:
        """Changes that circuits expect, ``(n_trees, horizon, n_series)``; none where they know nothing."""
        n, H, P = len(circuits.trees), self.settings.horizon, self.n_series
        location, spread = np.empty((2, n, H * P))
        circuits.predict_trees(point, location, spread)
        return np.where(np.isfinite(spread), location, 0.0).reshape(n, H, P)

    def _seasonal(self) -> Array:
        """The values of the same phase of the last season; the last values where there is none."""
        if not self.seasons:
            return np.broadcast_to(self.past.values, (self.settings.horizon, self.n_series))
        season = self.seasons[0]
        return self.past.earlier(season * -(-self._steps // season) - self._steps)

    def joint(self, X: Array | None = None) -> Joint:
        """The distribution of the next steps, given their inputs ``(horizon, n_inputs)``; by default they stay."""
        made = self._forecast()
        planes = made.planes.reshape(*made.planes.shape[:2], self.settings.horizon, self.n_series).copy()
        if X is not None and self.n_inputs:
            change = np.where(np.isnan(X), 0.0, X - self.past.inputs[self.past.last, 0])
            moved = np.einsum("hpd,hd->hp", made.blend_slope, change)
            planes[0] += np.where(self.outlook.stands_still[:, None, None] > 0.0, 0.0, moved)
        return Joint(planes, self.ties.copy())

    def simulate(self, n_paths: int, horizon: int, X: Array | None, rng: np.random.Generator) -> Joint:
        """The distribution of any number of steps, by paths that are drawn step by step and fed back.

        Parameters
        ----------
        n_paths
            Paths drawn; the distribution of a step is the mixture of what each path expects there.
        horizon
            Steps ahead.
        X
            Inputs of these steps, shape ``(horizon, n_inputs)``; by default they stay.
        rng
            Where randomness comes from.
        """
        if self.settings.horizon != 1:
            raise ValueError(f"paths are drawn by models of one step, this one has {self.settings.horizon}")
        return Paths(self, n_paths, horizon, X, rng).joint()

    @property
    def weights(self) -> Array:
        """Weight of each expert in the blend, shape ``(n_experts, horizon, n_series)``."""
        return np.moveaxis(self.blend.weights, 2, 0).copy()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        parts: list[Any] = [getattr(self, name) for name in self._PARTS]
        total = sum(part.nbytes for part in parts if part is not None)
        return int(total + sum(getattr(self, name).nbytes for name in self._RINGS))

    # ------------------------------------------------------------------ as plain data

    _RINGS = {
        "_located": "located", "_sloped": "sloped", "_blend_slope": "blend_slope", "_plane_ring": "laws",
        "_scores": "scores", "_points": "points", "_features": "features", "_expected": "expected",
    }  # fmt: skip
    _PARTS = ("past", "own", "wide", "plain", "residual", "blend", "outlook", "ties", "conformal")

    def state(self) -> dict[str, Any]:
        """Everything that cannot be made again, as plain data."""
        parts = {name: getattr(self, name) for name in self._PARTS}
        return {
            "n_series": self.n_series, "n_inputs": self.n_inputs, "look": self._look, "seasons": list(self.seasons),
            "seen": list(self._seen),
            **{name: None if part is None else part.state() for name, part in parts.items()},
            **{key: getattr(self, name).copy() for name, key in self._RINGS.items()},
        }  # fmt: skip

    @classmethod
    def from_state(cls, settings: HorizonSettings, state: dict[str, Any]) -> HorizonModel:
        """The model that `state` was taken from; goes on as it would have."""
        model = cls(settings, state["n_series"], state["n_inputs"])
        model._look, model.seasons = state["look"], tuple(state["seasons"])
        model._seen = tuple(state["seen"])
        for name in cls._PARTS:
            if state[name] is not None:
                getattr(model, name).restore(state[name])
        for name, key in cls._RINGS.items():
            setattr(model, name, state[key].copy())
        return model


class Paths:
    """Futures of a model of one step, drawn together.

    Every path has a past of its own; experts, blend and distribution are those of the model.
    """

    def __init__(
        self, model: HorizonModel, n_paths: int, horizon: int, X: Array | None, rng: np.random.Generator
    ) -> None:
        self.model, self.n_paths, self.horizon, self.rng = model, n_paths, horizon, rng
        past = model.past
        # No further back than anybody looks.
        back = max(LONG, model.n_lags, *model.seasons) + 1
        rows = slice(max(past.first, past.last + 1 - back), past.last + 1)
        self.now = rows.stop - rows.start - 1
        n_rows = self.now + 1 + horizon
        self.series = np.zeros((n_paths, n_rows, 4, model.n_series))
        self.series[:, : self.now + 1] = past.series[rows]
        self.inputs = np.zeros((n_rows, 2, model.n_inputs))
        self.inputs[: self.now + 1] = past.inputs[rows]
        known = np.full((horizon, model.n_inputs), np.nan) if X is None else X
        self.inputs[self.now + 1 :, 0] = np.where(np.isnan(known), past.inputs[past.last, 0], known)
        self.inputs[self.now + 1 :, 1] = past.inputs[past.last, 1]
        self.slow_step = max(SLOW_STEP, 1.0 / past.n_rows)

    def joint(self) -> Joint:
        """Draw the paths and gather their distributions."""
        model, n, P = self.model, self.n_paths, self.model.n_series
        members = model.joint().planes[:, :, 0]
        moving = model.outlook.stands_still[:, None] == 0.0
        tie = np.linalg.cholesky(model.ties.between_series)
        planes = np.empty((5, len(members[0]) * min(PATH_GROUPS, n), self.horizon, P))
        scores = np.empty((n, self.horizon, P))
        for step in range(self.horizon):
            last = self.series[:, self.now, 0]
            blend = self._blend()
            location = np.where(moving, blend[:, None], last[:, None])
            planes[:, :, step] = _grouped(members, location)
            z = self.rng.standard_normal((n, P)) @ tie.T
            marginals = Marginals(members[4], location, members[2], members[3])
            self._append(marginals.quantile(np.clip(ndtr(z), 1e-9, 1.0 - 1e-9)))
            ranks = np.argsort(np.argsort(self.series[:, self.now, 0], axis=0), axis=0)
            scores[:, step] = ndtri((ranks + 0.5) / n)
        ties = Ties(self.horizon, P)
        for path in scores:
            ties.learn(path)
        return Joint(planes, ties)

    def _blend(self) -> Array:
        """What each path expects next, shape ``(n_paths, n_series)``."""
        model, n, P = self.model, self.n_paths, self.model.n_series
        last = self.series[:, self.now, 0]
        located = np.empty((len(model.members), n, P))
        located[0], located[1] = last, last
        if model.seasons and self.now + 1 >= model.seasons[0]:
            located[1] = self.series[:, self.now + 1 - model.seasons[0], 0]
        at = 2
        if model.own is not None:
            change = self.inputs[self.now + 1, 0] - self.inputs[self.now, 0]
            place, slope = np.empty((2, 1, P)), np.empty((2, 1, P, model.n_inputs))
            for path in range(n):
                model.own.predict_at(self.series[path], self.inputs, 0, self.now, place, slope)
                located[2:4, path] = (place + slope @ change)[:, 0]
            at = 4
        features, points = self._features()
        if model.wide is not None:
            located[at : at + 2] = last + model.wide.predict(model.wide.cut(features))
            at += 2
        for circuits in (model.plain, model.residual):
            if circuits is not None:
                base = last if circuits is model.plain else located[model.members.index(HEAVY)]
                for tree in circuits.trees:
                    location, spread = np.empty((2, n, P))
                    tree.predict_rows(np.ascontiguousarray(points[:, tree.start :]), location, spread)
                    located[at] = base + np.where(np.isfinite(spread), location, 0.0)
                    at += 1
        return np.einsum("knp,pk->np", located, model.blend.weights[0])

    def _features(self) -> tuple[Array, Array]:
        """Features for the wide regression and points for the circuits, as `HorizonModel` makes them for one row."""
        model, n, now = self.model, self.n_paths, self.now
        values, inputs = self.series[:, now, 0], self.inputs[now]
        seasonal = np.zeros((n, 0))
        if model.settings.seasons:
            season = model.seasons[0]
            there = self.series[:, [now - season, now - season + 1], 0] if now >= season else values[:, None]
            seasonal = (there - values[:, None] + np.zeros((1, 2, 1))).reshape(n, -1)
        newest = self.series[:, max(now - model.n_lags, 0) : now + 1, 0]
        changes = np.zeros((n, model.n_lags, model.n_series))
        changes[:, : newest.shape[1] - 1] = (newest[:, 1:] - newest[:, :-1])[:, ::-1]
        n_drawn = now - (self.series.shape[1] - 1 - self.horizon)
        ones, time = np.ones((n, 1)), np.full((n, 1), model.n_rows - 1.0 + n_drawn)
        x, away = np.broadcast_to(inputs[0], (n, inputs.shape[1])), inputs[0] - inputs[1]
        points = np.hstack([time, values, x, seasonal, changes[:, 0]])
        levels = values - self.series[:, now, 1]
        features = np.hstack([ones, levels, np.broadcast_to(away, x.shape), seasonal, changes.reshape(n, -1)])
        return features, points

    def _append(self, values: Array) -> None:
        """Put a step behind every path."""
        self.now += 1
        before, row = self.series[:, self.now - 1], self.series[:, self.now]
        row[:, 0] = values
        row[:, 1] = before[:, 1] + self.slow_step * (values - before[:, 1])
        row[:, 2] = self.series[:, max(self.now + 1 - SHORT, 0) : self.now + 1, 0].mean(axis=1)
        row[:, 3] = self.series[:, max(self.now + 1 - LONG, 0) : self.now + 1, 0].mean(axis=1)


def _grouped(members: Array, location: Array) -> Array:
    """The mixture over all paths of planes ``(5, n_members, n_series)``, in a few groups of paths.

    ``location`` has the shape ``(n_paths, n_members, n_series)``. Paths of a group, neighbours in what they expect,
    become one component with the spread that is between them.
    """
    parts = np.array_split(np.sort(location, axis=0), min(PATH_GROUPS, len(location)))
    planes = np.empty((5, len(parts), *members.shape[1:]))
    planes[:] = members[:, None]
    for group, part in enumerate(parts):
        planes[0, group] = part.mean(axis=0)
        planes[1:3, group] = np.sqrt(members[1:3] ** 2 + part.var(axis=0))
        planes[4, group] = members[4] * len(part) / len(location)
    return planes.reshape(5, -1, members.shape[2])
