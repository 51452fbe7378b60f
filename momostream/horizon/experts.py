"""The experts whose forecasts are blended.  A new expert is built, named and asked here, and in `Paths`."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.calendar import Ahead
from momostream.horizon.curved import CurvedLags
from momostream.horizon.features import FeatureMap
from momostream.horizon.iterated import IteratedLags
from momostream.horizon.past import Past
from momostream.horizon.regressions import OwnLags, WideLags
from momostream.horizon.settings import CURVED, RESIDUAL, HorizonSettings
from momostream.kernels.horizon import ENOUGH_TO_CUT
from momostream.kernels.locate import begin_experts, end_experts
from momostream.stream.circuits import Circuits
from momostream.stream.tree import Tree

__all__ = ["Experts"]

Array = NDArray[np.float64]

# A wider regression is left out: it would need more rows than feeds have.
TOO_WIDE = 400


class Experts:
    """All experts of a model; the last value and the last season always take part.

    Parameters
    ----------
    settings
        Parameters of the model.
    features
        Map from rows to features.
    n_series, n_inputs, n_terms
        Columns: series, inputs and those made of them, and those of the calendar.

    Attributes
    ----------
    own, wide
        Regressions on the past of a series and on that of all series, each with two penalties; None if not wanted.
    curved
        Regression of each series on what the heavy one of its own lags leaves; None if not wanted.
    iterated
        Regressions of one step on all series and on the series itself; None if not wanted.
    circuits
        ``"plain"`` ones on changes, and ``"residual"`` ones on what the wide regression with the heavy penalty leaves,
        as far as they are wanted.
    names
        Of all experts, in the order of the blend.
    at
        Which of these are ``"last"``, ``"season"``, ``"own"``, ``"curved"``, ``"wide"``, ``"iterated"``, ``"plain"``
        and ``"residual"``.
    """

    def __init__(
        self, settings: HorizonSettings, features: FeatureMap, n_series: int, n_inputs: int, n_terms: int
    ) -> None:
        self.horizon, self.n_series, self.n_inputs = settings.horizon, n_series, n_inputs
        self._settings, self._features = settings, features
        self._steps, n_outputs = np.arange(1, settings.horizon + 1), settings.horizon * n_series
        # The last season that was asked for, and what `_back` has found.
        self._season, self._rows_back = 0, 0 * self._steps
        self.own: OwnLags | None = None
        self.curved: CurvedLags | None = None
        self.wide: WideLags | None = None
        self.iterated: IteratedLags | None = None
        self.circuits: dict[str, Circuits] = {}
        names = {"last": ["last value"], "season": ["season"]}
        if "own lags" in settings.experts:
            self.own = OwnLags(settings.horizon, n_series, n_inputs, n_terms, features.n_inputs)
            names["own"] = ["own lags, light", "own lags, heavy"]
        if CURVED in settings.experts:
            n_raw = features.n_inputs
            self.curved = CurvedLags(settings.horizon, n_series, n_raw, features.n_bends, features.n_shown)
            names["curved"] = [CURVED]
        if "wide lags" in settings.experts and features.n_features <= TOO_WIDE:
            least_rows = np.where(features.is_late, ENOUGH_TO_CUT + 2.0 * settings.horizon, 0.0)
            self.wide = WideLags(features.n_features, n_outputs, least_rows)
            names["wide"] = ["wide lags, light", "wide lags, heavy"]
        if "iterated lags" in settings.experts:
            self.iterated = IteratedLags(n_series, n_terms)
            names["iterated"] = ["iterated lags, all", "iterated lags, own"]
        self.start_circuits()
        if settings.plain is not None:
            names["plain"] = list(settings.plain.experts)
        if "residual" in self.circuits and settings.residual is not None:
            names["residual"] = [RESIDUAL + name for name in settings.residual.experts]
        self.names = tuple(name for part in names.values() for name in part)
        self._n_plain, self._n_residual = (len(names.get(part, ())) for part in ("plain", "residual"))
        ends = accumulate((len(part) for part in names.values()), initial=0)
        self.at = {part: slice(*both) for part, both in zip(names, pairwise(ends), strict=True)}
        self._at_wide = self.at["wide"].start if "wide" in self.at else 0

    @property
    def moving(self) -> slice:
        """The experts that move with the inputs: regressions on own lags, and the curved one, which corrects them."""
        if self.own is None:
            return slice(0, 0)
        return slice(self.at["own"].start, self.at["own"].stop + (self.curved is not None))

    @property
    def of_circuits(self) -> slice:
        """The experts that are circuits: the last ones."""
        return slice(len(self.names) - self._n_plain - self._n_residual, None)

    def start_circuits(self) -> None:
        """Start the circuits, or start them again when their points have become others."""
        for part, settings in (("plain", self._settings.plain), ("residual", self._settings.residual)):
            if settings is not None and (part == "plain" or self.wide is not None):
                self.circuits[part] = Circuits(settings, self._features.n_coordinates, self.horizon * self.n_series)

    @property
    def trees(self) -> dict[str, Tree]:
        """The tree of each expert that has one, by its name."""
        return {
            name: tree
            for part, circuits in self.circuits.items()
            for name, tree in zip(self.names[self.at[part]], circuits.trees, strict=True)
        }

    def base(self, part: str, last: Array, located: Array) -> Array:
        """The forecast that circuits add their changes to: the last value, or the wide regression."""
        return last if part == "plain" else np.asarray(located[self.at["wide"].stop - 1])

    # ------------------------------------------------------------------ learning

    def learn(self, past: Past, ahead: Ahead) -> None:
        """Learn the newest row, in the experts that take each step on its own."""
        if self.own is not None:
            self.own.learn(past, int(ahead.alike[0]))
            self.own.work()
        if self.iterated is not None:
            self.iterated.learn(past, ahead)

    def learn_origin(self, f: Array, point: Array, expected: Array, changes: Array, with_circuits: bool) -> None:
        """Learn the changes after a row, in the experts that take all steps together.

        Parameters
        ----------
        f, point
            Features and point of the row.
        expected
            Changes that the wide regressions predicted at that row.
        changes
            From its values to those of the next ``horizon`` rows, one after the other; NaN is missing.
        with_circuits
            Whether circuits learn, too.
        """
        if self.wide is not None:
            changes = self.wide.learn(f, changes)
            self.wide.work()
        if not with_circuits:
            return
        for part, circuits in self.circuits.items():
            circuits.learn_row(point, changes if part == "plain" else changes - expected[-1])
        # One step of the expensive work in a row, not one for each part; who may begin takes turns.
        waiting = list(self.circuits.values())
        if waiting and waiting[0].n_learnt % 2:
            waiting.reverse()
        any(circuits.work() for circuits in waiting)

    # ------------------------------------------------------------------ forecasting

    def locate(
        self, past: Past, ahead: Ahead, seasons: tuple[int, ...], point: Array, expected: Array
    ) -> tuple[Array, Array]:
        """Forecasts of all experts ``(n_experts, horizon, n_series)``, and slopes of the regressions on own lags.

        No forecast lies far beyond the range that a series has shown.
        """
        H, P = self.horizon, self.n_series
        located = np.empty((len(self.names), H, P))
        # The last value and the last season come first.
        begin_experts(past.series, past.first, past.last, self._back(seasons), located)
        slopes = np.zeros((2, H, P, self.n_inputs))
        if self.own is not None:
            self.own.predict(past, ahead, located[self.at["own"]], slopes)
        if self.curved is not None:
            located[self.at["curved"]] = located[self.at["own"]][-1]
            self._correct(past, expected, located[self.at["curved"]][0])
        if self.iterated is not None:
            self.iterated.predict(past, ahead, located[self.at["iterated"]])
        # Circuits come last, the plain ones before the others.
        stds = np.empty((self._n_plain + self._n_residual, H * P))
        changes, at = located[len(located) - len(stds) :].reshape(len(stds), H * P), 0
        for circuits in self.circuits.values():
            own = slice(at, at + len(circuits.trees))
            circuits.predict_trees(point, changes[own], stds[own])
            at = own.stop
        end_experts(past.values, expected, self._at_wide, stds, self._n_plain, *past.reach(), located)
        return located, slopes

    def _correct(self, past: Past, expected: Array, location: Array) -> None:
        """Add the curved corrections to forecasts ``(horizon, n_series)`` of the heavy regression on own lags."""
        assert self.curved is not None
        if self.curved.kept == past.n_rows - 1:
            self.curved.correct_again(location)
            return
        own_end = location[-1] - past.values
        wide_end = np.zeros(self.n_series) if self.wide is None else expected[-1, -self.n_series :]
        self.curved.correct(
            past.series, past.inputs, past.first, past.last, self._features.seasonal_lags, own_end, wide_end, location
        )

    def _back(self, seasons: tuple[int, ...]) -> NDArray[np.int64]:
        """How many rows ago each step had its phase in the last season; none for all steps, where there is none."""
        season = seasons[0] if seasons else 0
        if season != self._season:
            self._season = season
            self._rows_back = season * -(-self._steps // season) - self._steps if season else 0 * self._steps
        return self._rows_back

    # ------------------------------------------------------------------ as plain data

    def _parts(self) -> dict[str, Any]:
        """All that learns, by its key in a state; None for experts that are not wanted."""
        circuits = {part: self.circuits.get(part) for part in ("plain", "residual")}
        return {"own": self.own, "curved": self.curved, "wide": self.wide, "iterated": self.iterated, **circuits}

    @property
    def nbytes(self) -> int:
        """Bytes of what was learnt."""
        return int(sum(part.nbytes for part in self._parts().values() if part is not None))

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {key: None if part is None else part.state() for key, part in self._parts().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from `state`."""
        for key, part in self._parts().items():
            if (part is None) is not (state[key] is None):
                raise ValueError(f"{key} does not belong to the experts of these settings, or is missing")
            if part is not None:
                part.restore(state[key])
