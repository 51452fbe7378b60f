"""Futures that are drawn step by step: forecasts of any number of steps by a model of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from momostream.distributions.marginals import Marginals
from momostream.distributions.planes import DOF, LOCATION, SCALE, STD, WEIGHT
from momostream.horizon.blend import JointForecast, StepSeriesCorrelation
from momostream.horizon.calendar import Ahead, waves_of
from momostream.horizon.past import SLOW_STEP
from momostream.kernels.horizon import LONG, SHORT

if TYPE_CHECKING:
    from momostream.horizon.model import HorizonModel

__all__ = ["Paths"]

Array = NDArray[np.float64]

# Groups of paths whose expectations stand for all in the distribution of a step.
PATH_GROUPS = 12


class Paths:
    """Futures of a model of one step, drawn together.

    Every path has a past of its own; experts, blend and distribution are those of the model.

    Parameters
    ----------
    model
        Which knows one step; nothing is learnt.
    n_paths, horizon
        Number of paths, and of steps of each.
    X
        Inputs of these steps, shape ``(horizon, n_inputs)``; NaN, or None, for those that stay as they are.
    ahead
        The calendar of the newest row, of these steps, and of one step more; None in a model without one.
    rng
        Source of randomness.
    """

    def __init__(
        self,
        model: HorizonModel,
        n_paths: int,
        horizon: int,
        X: Array | None,
        rng: np.random.Generator,
        ahead: Ahead | None = None,
    ) -> None:
        self.model, self.n_paths, self.horizon, self.rng = model, n_paths, horizon, rng
        past = model.past
        # No further back than any expert looks.
        back = max(LONG, model.features.n_lags, model.features.season or 0, *model.seasons) + 1
        if ahead is not None:
            back = max(back, int(ahead.alike.max()) + 1)
        rows = slice(max(past.first, past.last + 1 - back), past.last + 1)
        self.now = rows.stop - rows.start - 1
        n_rows = self.now + 1 + horizon
        self.series = np.zeros((n_paths, n_rows, 4, model.n_series))
        self.series[:, : self.now + 1] = past.series[rows]
        self.ahead = self._calendar() if ahead is None else ahead
        n_columns = model.inputs.n_columns
        self.inputs = np.zeros((n_rows, 2, n_columns + model.n_terms))
        self.inputs[: self.now + 1] = past.inputs[rows]
        known = np.full((horizon, model.n_inputs), np.nan) if X is None else X
        stays = past.inputs[past.last, 0, : model.n_inputs]
        known, terms = np.where(np.isnan(known), stays, known), self.ahead.terms[1 : 1 + horizon]
        drawn = np.concatenate([known, model.inputs.bend(known, terms), terms], axis=1)
        # As in `Past`: an input without a value yet stays where it is.
        self.inputs[self.now + 1 :, 0] = np.where(np.isnan(drawn), past.inputs[past.last, 0], drawn)
        self.inputs[self.now + 1 :, 1] = past.inputs[past.last, 1]
        self.slow_step = max(SLOW_STEP, 1.0 / past.n_rows)

    def _calendar(self) -> Ahead:
        """The waves of the season, if there is one, in a model without a calendar."""
        model, n = self.model, self.horizon + 2
        terms = np.zeros((n, model.n_terms))
        if model.seasons and model.n_terms:
            terms = waves_of(model.seasons[0], model.n_rows - 1, n)
        return Ahead(terms, np.zeros(n, dtype=np.int64))

    @property
    def _next(self) -> Ahead:
        """The calendar of the newest drawn row and of the one after it."""
        drawn = self.now - (self.series.shape[1] - 1 - self.horizon)
        return Ahead(self.ahead.terms[drawn : drawn + 2], self.ahead.alike[drawn : drawn + 2])

    def joint(self) -> JointForecast:
        """Draw the paths; the distribution of a step is the mixture of those that the paths have there."""
        model, n, P = self.model, self.n_paths, self.model.n_series
        components = model.joint().planes[:, :, 0]
        moving = model.mixture.stands_still[:, None] == 0.0
        rests = model.mixture.rests(model.past.n_repeated)
        root = np.linalg.cholesky(model.correlation.between_series)
        planes = np.empty((5, len(components[LOCATION]) * min(PATH_GROUPS, n), self.horizon, P))
        scores = np.empty((n, self.horizon, P))
        for step in range(self.horizon):
            blend, middle = self._blends()
            # As in `BlendMixture.planes`.
            second = np.where(rests > 0.0, self.series[:, self.now, 0], middle)
            location = np.where(moving, blend[:, None], second[:, None])
            planes[:, :, step] = _grouped(components, location)
            z = self.rng.standard_normal((n, P)) @ root.T
            marginals = Marginals(components[WEIGHT], location, components[SCALE], components[DOF])
            self._append(marginals.quantile(np.clip(ndtr(z), 1e-9, 1.0 - 1e-9)))
            ranks = np.argsort(np.argsort(self.series[:, self.now, 0], axis=0), axis=0)
            scores[:, step] = ndtri((ranks + 0.5) / n)
        correlation = StepSeriesCorrelation(self.horizon, P)
        for path in scores:
            correlation.learn(path)
        return JointForecast(planes, correlation)

    def _blends(self) -> tuple[Array, Array]:
        """The blended forecasts of the next step of each path, shape ``(n_paths, n_series)``: mean and middle."""
        model, experts, n = self.model, self.model.experts, self.n_paths
        last = self.series[:, self.now, 0]
        located = np.empty((len(experts.names), n, model.n_series))
        located[experts.at["last"]] = last
        located[experts.at["season"]] = last
        if model.seasons and self.now + 1 >= model.seasons[0]:
            located[experts.at["season"]] = self.series[:, self.now + 1 - model.seasons[0], 0]
        moved = np.zeros((n, model.n_series))
        if experts.own is not None:
            located[experts.at["own"]], slopes = self._own_lags()
            weights = model.blend.weights[0, :, experts.moving]
            moved = np.einsum("knp,pk->np", slopes[[0, 1, 1][: weights.shape[1]]], weights)
        if experts.iterated is not None:
            located[experts.at["iterated"]] = experts.iterated.predict_next(self.series, self.now, self._next.terms[1])
        features, points = self._features()
        if experts.wide is not None:
            located[experts.at["wide"]] = last + experts.wide.predict(experts.wide.cut(features))
        if experts.curved is not None:
            wide = last if experts.wide is None else located[experts.at["wide"]][-1]
            located[experts.at["curved"]] = self._curved(located[experts.at["own"]][-1], wide)
        for part, circuits in experts.circuits.items():
            base = experts.base(part, last, located)
            for k, tree in enumerate(circuits.trees, experts.at[part].start):
                location, std = np.empty((2, n, model.n_series))
                tree.predict_rows(np.ascontiguousarray(points[:, tree.start :]), location, std)
                located[k] = base + np.where(np.isfinite(std), location, 0.0)
        reach = model.past.reach()
        located = np.clip(located, *reach)
        blend, middle = (np.einsum("knp,pk->np", located, by.weights[0]) for by in (model.blend, model.middle))
        return np.clip(blend + moved, *reach), np.clip(middle + moved, *reach)

    def _own_lags(self) -> tuple[Array, Array]:
        """Forecasts of the regressions on own lags, shape ``(2, n_paths, n_series)``, and how far inputs move them."""
        model, own, P = self.model, self.model.experts.own, self.model.n_series
        assert own is not None
        change = (self.inputs[self.now + 1, 0] - self.inputs[self.now, 0])[: model.inputs.n_columns]
        located, moved = np.empty((2, 2, self.n_paths, P))
        location, slope = np.empty((2, 1, P)), np.empty((2, 1, P, model.inputs.n_columns))
        for path in range(self.n_paths):
            own.predict_at(self.series[path], self.inputs, 0, self.now, self._next, location, slope)
            located[:, path], moved[:, path] = location[:, 0], (slope @ change)[:, 0]
        return located, moved

    def _curved(self, own: Array, wide: Array) -> Array:
        """Forecasts of the curved regression, shape ``(n_paths, n_series)``, from those that it corrects."""
        model, curved = self.model, self.model.experts.curved
        assert curved is not None
        located, last = own.copy(), self.series[:, self.now, 0]
        # Seasons are looked up as in `_features`.
        lags = model.features.seasonal_lags
        lags = lags if len(lags) and self.now >= lags[0] else lags[:0]
        for path in range(self.n_paths):
            curved.correct(
                self.series[path], self.inputs, 0, self.now, lags, own[path] - last[path], wide[path] - last[path],
                located[path : path + 1],
            )  # fmt: skip
        return located

    def _features(self) -> tuple[Array, Array]:
        """Features for the wide regression and points for the circuits."""
        model, now = self.model, self.now
        n_drawn = now - (self.series.shape[1] - 1 - self.horizon)
        lags = model.features.seasonal_lags
        earlier = np.repeat(self.series[:, now : now + 1, 0], len(lags), axis=1)
        # Unlike `Past.earlier`, which takes each of the two rows as soon as it is there.
        if len(lags) and now >= lags[0]:
            earlier = self.series[:, now - lags, 0]
        return model.features.newest(
            model.n_rows - 1.0 + n_drawn, self.series, self.inputs, 0, now, earlier, self._next.terms[1]
        )

    def _append(self, values: Array) -> None:
        """Append a step to every path."""
        self.now += 1
        before, row = self.series[:, self.now - 1], self.series[:, self.now]
        row[:, 0] = values
        row[:, 1] = before[:, 1] + self.slow_step * (values - before[:, 1])
        row[:, 2] = self.series[:, max(self.now + 1 - SHORT, 0) : self.now + 1, 0].mean(axis=1)
        row[:, 3] = self.series[:, max(self.now + 1 - LONG, 0) : self.now + 1, 0].mean(axis=1)


def _grouped(components: Array, location: Array) -> Array:
    """The mixture over all paths of planes ``(5, n_components, n_series)``, in a few groups of paths.

    ``location`` has the shape ``(n_paths, n_components, n_series)``. Paths of a group, neighbours in what they expect,
    become one component, and the variance between them adds to its own.
    """
    parts = np.array_split(np.sort(location, axis=0), min(PATH_GROUPS, len(location)))
    planes = np.empty((5, len(parts), *components.shape[1:]))
    planes[:] = components[:, None]
    for group, part in enumerate(parts):
        planes[LOCATION, group] = part.mean(axis=0)
        for plane in (STD, SCALE):
            planes[plane, group] = np.sqrt(components[plane] ** 2 + part.var(axis=0))
        planes[WEIGHT, group] = components[WEIGHT] * len(part) / len(location)
    return planes.reshape(5, -1, components.shape[2])
