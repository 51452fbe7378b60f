"""The model of the forecaster: experts for all steps ahead, one blend, one distribution.

Arrays in column order; names, times and frames belong to the estimator. NaN is a missing value. At every row the model
makes a forecast of all steps, keeps it, and learns from it when the values come: the distributions have been tested on
the feed itself, whether or not they were asked for.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_array
from momostream.distributions.planes import LOCATION
from momostream.horizon.blend import Blend, BlendMixture, JointForecast, StepSeriesCorrelation
from momostream.horizon.calendar import Ahead, waves_of
from momostream.horizon.conformal import Conformal
from momostream.horizon.experts import Experts
from momostream.horizon.features import FeatureMap
from momostream.horizon.inputs import BentInputs
from momostream.horizon.means import Means
from momostream.horizon.past import Past, least_changes
from momostream.horizon.paths import Paths
from momostream.horizon.restoring import check_ahead, check_model, check_part, check_tails
from momostream.horizon.ring import MadeForecast, Ring
from momostream.horizon.seasons import find_season
from momostream.horizon.settings import HorizonSettings
from momostream.horizon.smoothing import Smoothing
from momostream.kernels.forecasts import tempered_errors
from momostream.kernels.horizon import ALIKE
from momostream.stream.stack import TAILS

__all__ = ["HorizonModel"]

Array = NDArray[np.float64]
log = logging.getLogger("momostream")

# Longest forecasts that are all learnt from, in steps; of longer ones every second, third...
EVERY_STEPS = 24
# Rows that are searched for a season, the row of the first search, and by how much their number has grown at the next.
SEASON_ROWS, FIRST_SEARCH, SEARCH_GROWTH = 1024, 64, 1.5
# Circuits with more of the blend than this do not start again for a season.
LEAD = 0.5
# Waves of a season that is not that of a calendar.
N_WAVES = 4


class HorizonModel:
    """Forecasts of ``horizon`` steps of several series, learnt row by row.

    Parameters
    ----------
    settings
        Parameters.
    n_series, n_inputs
        Columns.
    n_terms, kind
        Columns of the calendar, and which of them is the kind of day; None if there is no calendar. A model without
        one has the waves of the season, once it is known.

    Attributes
    ----------
    past
        The newest rows.
    features
        Map from rows to the features that the experts see.
    experts, blend, smoothing, mixture, correlation, conformal
        From the forecasts of the experts to the distribution of all steps and series.
    means
        The forecast of least squared error.
    ring
        The newest forecasts.
    seasons
        Seasons that were set or found, in rows.
    """

    def __init__(
        self,
        settings: HorizonSettings,
        n_series: int,
        n_inputs: int,
        n_terms: int | None = None,
        kind: int | None = None,
    ) -> None:
        self.settings, self.n_series, self.n_inputs = settings, n_series, n_inputs
        self.has_calendar = n_terms is not None
        n_terms = (0 if settings.seasons == () else N_WAVES) if n_terms is None else n_terms
        self.n_terms = n_terms
        H, every = settings.horizon, 1 + settings.horizon // EVERY_STEPS
        self.inputs = BentInputs(n_inputs, n_terms)
        n_columns = self.inputs.n_columns
        self.features = FeatureMap(settings, n_series, n_inputs, n_terms, kind, self.inputs.n_bends)
        self.past = Past(n_series, n_columns + n_terms, self._capacity())
        self.experts = Experts(settings, self.features, n_series, n_columns, n_terms)
        self.blend = Blend(len(self.expert_names), H, n_series, every)
        self.middle = Blend(len(self.expert_names), H, n_series, every)
        self.smoothing = Smoothing(H, n_series)
        self.mixture, self.means = BlendMixture(H, n_series, every), Means(H, n_series)
        self.correlation = StepSeriesCorrelation(H, n_series)
        self.conformal = Conformal(H, n_series) if settings.conformal else None
        wide = self.experts.wide
        self.ring = Ring(
            horizon=H, n_series=n_series, n_inputs=n_columns, n_experts=len(self.expert_names),
            n_components=self.mixture.n_components, n_coordinates=self.features.most_coordinates,
            n_features=0 if wide is None else wide.width, n_wide=0 if wide is None else len(wide.penalties),
            every=every,
        )  # fmt: skip
        self.seasons: tuple[int, ...] = ()
        # The row of the next search for a season, and the result of the last one.
        self._next_search = FIRST_SEARCH
        self._found: tuple[int, ...] = ()
        if settings.seasons:
            self._set_seasons(settings.seasons)
        # Zeros; the calendar of the newest row, and its forecast; None until it is made.
        self._no_calendar = Ahead(np.zeros((1 + H, n_terms)), np.zeros(1 + H, dtype=np.int64))
        self._ahead = self._own_calendar(0)
        self._made: MadeForecast | None = None

    def _capacity(self) -> int:
        """Rows that features and targets may look back."""
        H, seasons = self.settings.horizon, self.settings.seasons
        longest = SEASON_ROWS if seasons is None else max((s * -(-H // s) for s in seasons), default=0)
        if self.has_calendar and seasons:
            # Days of a kind come again within a week.
            longest = max(longest, 7 * seasons[0] * -(-H // (7 * seasons[0])))
        return H + max(longest, 64, self.features.n_lags + 1) + H

    @property
    def n_rows(self) -> int:
        """Rows learnt so far."""
        return self.past.n_rows

    @property
    def expert_names(self) -> tuple[str, ...]:
        """Names of the experts in the order of the blend."""
        return self.experts.names

    # ------------------------------------------------------------------ learning

    def learn(self, y: Array, x: Array, ahead: Ahead | None = None) -> None:
        """Learn the next row: values of series and inputs, NaN if missing, and the calendar if there is one."""
        H, now = self.settings.horizon, self.past.n_rows
        self._ahead = self._own_calendar(now) if ahead is None else ahead
        # A product with itself is the cheapest way to find a NaN.
        if math.isnan(y.dot(y)) and np.isnan(y).all() and np.isnan(x).all():
            self.skip(self._ahead.terms[:1])
            self._see(now % H)
            self.ring.seen[now % H] = -1
            return
        self.inputs.see(x)
        terms = self._ahead.terms[0]
        # Forecasts of this row knew no more than the rows before.
        reach = self.past.reach() if now else None
        self.past.append(y, np.concatenate([x, self.inputs.bend(x, terms), terms]) if x.size else terms)
        if reach is not None:
            self._learn_forecasts(y, now, reach)
        if now >= H and self.ring.seen[now % H] == now - H:
            self._learn_origin(now - H)
        self.experts.learn(self.past, self._ahead)
        if self.settings.seasons is None and self.past.n_rows >= self._next_search:
            self._search_season()
        self.mixture.count_rests(self.past.n_repeated)
        self.mixture.levels.look(self.past)
        self._see(now % H)
        # Made here even if it is not asked for, so that asking changes nothing.
        self._made = None
        made = self._forecast()
        if self.experts.curved is not None:
            self.experts.curved.keep(now)
        if self.ring.is_kept(now):
            self.ring.keep(now, made)
            self.smoothing.kept[now % H] = made.rough

    def skip(self, X: Array) -> None:
        """Take rows that did not come, of which only the terms of the calendar are known, ``(n_rows, n_terms)``.

        Forecasts from them are not learnt from: that would teach little, and take as long as rows with values.
        """
        nothing, no_inputs = np.full(self.n_series, np.nan), np.full(self.inputs.n_columns, np.nan)
        for terms in X:
            if not self.has_calendar:
                terms = self._own_calendar(self.past.n_rows).terms[0]
            self.past.append(nothing, np.concatenate([no_inputs, terms]))
        self._made = None

    def _own_calendar(self, row: int) -> Ahead:
        """The calendar of a row in a model that has none: the waves of the season, zero until it is known."""
        n = 1 + self.settings.horizon
        if self.seasons and not self.has_calendar:
            return Ahead(waves_of(self.seasons[0], row, n), self._no_calendar.alike)
        return self._no_calendar

    def _learn_forecasts(self, y: Array, now: int, reach: tuple[Array, Array]) -> None:
        """Compare the values of a row with all forecasts of them, which lie in the reach of the rows before."""
        values, errors, planes = self.ring.recall(
            now, y, self.past, reach, self.experts.moving, self.mixture.stands_still
        )
        self.blend.learn(errors)
        tempered = np.empty_like(errors)
        tempered_errors(values, errors, planes, tempered)
        self.middle.learn(tempered)
        rests = self.ring.rests_of(now)
        self.means.learn(values, planes, rests)
        scores = self.mixture.learn(values, planes, rests)
        if self.conformal is not None:
            self.conformal.learn(scores)
        self.ring.add_scores(now, scores)
        H = self.settings.horizon
        if now >= H and self.ring.kept[now % H] == now - H:
            self.correlation.learn(self.ring.scores[now % H])
            if self.smoothing.is_due():
                values = self.past.observed[self.past.last + 1 - H : self.past.last + 1]
                self.smoothing.learn(self.smoothing.kept[now % H], values)

    def _learn_origin(self, origin: int) -> None:
        """Learn the changes after a row whose last target has just come."""
        slot, seasons = origin % self.settings.horizon, self.settings.seasons
        changes = self.past.targets(self.settings.horizon).ravel()
        if math.isnan(changes.dot(changes)) and np.isnan(changes).all():
            return
        # Circuits take their units from the first rows they learn, which must have a whole season before them.
        with_circuits = not seasons or origin >= seasons[0]
        ring, point = self.ring, self.ring.points[slot, : 1 + self.features.n_coordinates]
        self.experts.learn_origin(ring.features[slot], point, ring.expected[slot], changes, with_circuits)
        curved = self.experts.curved
        if curved is not None:
            if ring.kept[slot] == origin:
                curved.learn(origin, self._left(slot))
            curved.work()

    def _left(self, slot: int) -> Array:
        """What the heavy regression on own lags has left of the newest ``horizon`` rows, given their inputs."""
        H, past, D = self.settings.horizon, self.past, self.inputs.n_columns
        rows = slice(past.last + 1 - H, past.last + 1)
        located = self.ring.located[slot, :, self.experts.at["own"].stop - 1]
        if D:
            change = past.inputs[rows, 0, :D] - past.inputs[past.last - H, 0, :D]
            located = np.clip(located + np.einsum("hpd,hd->hp", self.ring.slopes[slot, :, 1], change), *past.reach())
        return past.observed[rows] - located

    def _search_season(self) -> None:
        past = self.past
        self._next_search = int(SEARCH_GROWTH * self._next_search)
        season = find_season(past.series[max(past.last + 1 - SEASON_ROWS, past.first) : past.last + 1, 0])
        found = () if season is None else (season, 2 * season)
        # One search may find a season by chance: it counts when the next one finds it, too.
        if found == self._found and found != self.seasons:
            log.info("row %d: season of %s rows", past.n_rows, season)
            self._set_seasons(found)
        elif self.features.season != self._season:
            # Circuits that led the blend may no longer do so.
            self._show_season()
        self._found = found

    def _set_seasons(self, seasons: tuple[int, ...]) -> None:
        self.seasons = seasons
        if self.experts.own is not None:
            self.experts.own.set_seasons((*seasons, ALIKE) if self.has_calendar else seasons)
        if self.settings.seasons is None:
            if not self.has_calendar:
                self._fill_waves()
            self._show_season()

    @property
    def _season(self) -> int | None:
        """The shortest season in rows; None if there is none."""
        return self.seasons[0] if self.seasons else None

    def _show_season(self) -> None:
        """Put the season among features; circuits learn again with it, so not while they have most of the blend.

        A feed that swings without a clock, like a pendulum, seems to have a season now and then. Circuits that forecast
        it better than all others must not begin again for that.
        """
        if self.blend.weights[:, :, self.experts.of_circuits].sum(axis=2).mean() > LEAD:
            return
        self.features.set_season(self._season)
        self.experts.start_circuits()
        self.ring.seen[:] = -1

    def _fill_waves(self) -> None:
        """Give the remembered rows the waves of a season just found, none if it is gone, and learn from them again."""
        past = self.past
        n = past.last + 1 - past.first
        waves = waves_of(self.seasons[0], past.n_rows - n, n) if self.seasons else 0.0
        past.inputs[past.first : past.last + 1, 0, -self.n_terms :] = waves
        self._ahead = self._own_calendar(past.n_rows - 1)
        if self.experts.iterated is not None:
            self.experts.iterated.learn_again(past)

    # ------------------------------------------------------------------ forecasting

    def _see(self, slot: int) -> None:
        """Put features and point of the newest row into a slot of the ring, and what the wide regression expects."""
        past, ring, wide = self.past, self.ring, self.experts.wide
        f, point = self.features.of_row(
            past.n_rows - 1.0, past.series, past.inputs, past.first, past.last, self._ahead.terms[-1]
        )
        ring.points[slot, : len(point)] = point
        ring.seen[slot] = past.n_rows - 1
        if wide is not None:
            wide.expect(f, ring.features[slot], ring.expected[slot])

    @property
    def point(self) -> Array:
        """The point of the newest row, as the circuits see it."""
        slot = (self.past.n_rows - 1) % self.settings.horizon
        return self.ring.points[slot, : 1 + self.features.n_coordinates]

    def _forecast(self) -> MadeForecast:
        """The forecast of the newest row, made once."""
        if self._made is None:
            past, slot = self.past, (self.past.n_rows - 1) % self.settings.horizon
            located, slopes = self.experts.locate(past, self._ahead, self.seasons, self.point, self.ring.expected[slot])
            slope = np.zeros(slopes.shape[1:])
            if self.experts.own is not None and self.n_inputs:
                weights = self.blend.weights[:, :, self.experts.moving]
                slope = np.einsum("khpd,hpk->hpd", slopes[[0, 1, 1][: weights.shape[2]]], weights)
            rests = self.mixture.rests(past.n_repeated)
            rough = self.blend.mean(located)
            blend, middle = self.smoothing.smooth(rough, self.middle.mean(located))
            planes = self.mixture.planes(blend, middle, past.values, past.n_missing, rests, past.least_change)
            self._made = MadeForecast(located, slopes, planes, slope, rough, rests)
        return self._made

    def joint(self, X: Array | None = None) -> JointForecast:
        """The distribution of the next steps, given their inputs ``(horizon, n_inputs)``; by default they stay."""
        made = self._forecast()
        planes = made.planes.copy()
        if self.n_inputs:
            now, D = self.past.inputs[self.past.last, 0, : self.inputs.n_columns], self.n_inputs
            X = np.tile(now[:D], (self.settings.horizon, 1)) if X is None else np.where(np.isnan(X), now[:D], X)
            # An input that stays acts differently at another time of the day.
            change = np.nan_to_num(np.concatenate([X, self.inputs.bend(X, self._ahead.terms[1:])], axis=1) - now)
            moved = np.einsum("hpd,hd->hp", made.blend_slope, change)
            stays = self.mixture.stands_still[:, None, None] * made.rests > 0.0
            locations = self._by_step(planes)[LOCATION]
            locations[:] = np.where(stays, locations, np.clip(locations + moved, *self.past.reach()))
        return JointForecast(self._by_step(planes), self.correlation.copy(), self.means.between(planes, made.rests))

    def _by_step(self, planes: Array) -> Array:
        return planes.reshape(*planes.shape[:2], self.settings.horizon, self.n_series)

    def simulate(
        self, n_paths: int, horizon: int, X: Array | None, rng: np.random.Generator, ahead: Ahead | None = None
    ) -> JointForecast:
        """The distribution of any number of steps, by paths that are drawn step by step and fed back; see `Paths`."""
        if self.settings.horizon != 1:
            raise ValueError(f"only models of one step draw paths, this one has {self.settings.horizon} steps")
        return Paths(self, n_paths, horizon, X, rng, ahead).joint()

    @property
    def weights(self) -> Array:
        """Weight of each expert in the blend, shape ``(n_experts, horizon, n_series)``."""
        return np.moveaxis(self.blend.weights, 2, 0).copy()

    # ------------------------------------------------------------------ as plain data

    def _parts(self) -> dict[str, Any]:
        """All parts but experts and ring, by their keys in a state."""
        return {
            "past": self.past, "blend": self.blend, "middle": self.middle, "outlook": self.mixture,
            "levels": self.mixture.levels, "ties": self.correlation, "smoothing": self.smoothing, "means": self.means,
            "conformal": self.conformal,
        }  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        total = sum(part.nbytes for part in self._parts().values() if part is not None)
        return int(total + self.experts.nbytes + self.ring.nbytes)

    def state(self) -> dict[str, Any]:
        """Everything that cannot be computed again, as plain data."""
        return {
            "n_series": self.n_series, "n_inputs": self.n_inputs, "look": self._next_search,
            "ahead": list(self._ahead), "centre": self.inputs.centre.copy(),
            "seasons": list(self.seasons), "seen": list(self._found), "shown": self.features.season,
            **{key: None if part is None else part.state() for key, part in self._parts().items()},
            **self.experts.state(), "ring": self.ring.state(self.past.n_rows),
        }  # fmt: skip

    @classmethod
    def from_state(
        cls,
        settings: HorizonSettings,
        state: dict[str, Any],
        n_series: int,
        n_inputs: int,
        n_terms: int | None = None,
        kind: int | None = None,
    ) -> HorizonModel:
        """Restore a model of these columns from `state`; the calendar as when it was made."""
        check_model(state, settings.horizon, n_series, n_inputs)
        model = cls(settings, n_series, n_inputs, n_terms, kind)
        model._next_search, model.seasons = state["look"], tuple(state["seasons"])
        check_ahead(state["ahead"], settings.horizon, model.n_terms)
        check_array("model / centre", state["centre"], model.inputs.centre.shape)
        model._found, model.inputs.centre = tuple(state["seen"]), state["centre"].copy()
        model._ahead = Ahead(*(part.copy() for part in state["ahead"]))
        # Earlier versions showed every season to the circuits.
        shown = state.get("shown", model._season)
        if settings.seasons is None and shown is not None:
            model.features.set_season(shown)
            model.experts.start_circuits()
        sizes = {"series": n_series, "horizon": settings.horizon}
        for key, part in model._parts().items():
            # Earlier versions neither smoothed nor learnt means.
            if part is not None and (key not in ("smoothing", "means") or state.get(key) is not None):
                # Nor did they have weights that all experts had found, beside those that count, or least changes.
                found = {"found": state[key]["weights"]} if key in ("blend", "middle") else {}
                if key == "past":
                    found = {"least_change": least_changes(state[key]["observed"])}
                check_part(key, {**found, **state[key]}, part.state(), sizes)
                part.restore({**found, **state[key]})
        check_part("ring", state["ring"], model.ring.state(0), sizes)
        model.ring.restore(state["ring"])
        check_tails("outlook / mixing", model.mixture.learnt_tails, len(TAILS))
        model.experts.restore(state)
        newest = model.n_rows - 1
        if model.experts.curved is not None and model.ring.seen[newest % settings.horizon] == newest:
            model.experts.curved.kept = newest
        return model
