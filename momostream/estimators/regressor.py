"""`MOMoGPRegressor` for river: dicts in, dicts and distributions out, one row at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from river import base

from momostream._checks import (
    MOST_ROWS,
    Constraint,
    check,
    check_indices,
    check_settings,
    check_state,
    field_name,
    flag,
    instance_of,
    number,
    one_of,
    optional,
    whole,
)
from momostream._numbers import as_number, known_numbers
from momostream.distributions.prediction import Prediction
from momostream.estimators._base import AUTO, BOUNDS, Bounds
from momostream.estimators._categories import CATEGORIES, is_level, spread_row
from momostream.estimators._insight import (
    by_expert,
    describe_model,
    explain_prediction,
    leaf_hyperparameters,
    relevance_of_inputs,
)
from momostream.estimators._regressor_batches import RegressorBatches, seconds_of
from momostream.estimators._screening import BEYOND
from momostream.estimators.vocabulary import Vocabulary, check_keys, row_from_state, row_state
from momostream.stream.fused import ELSEWHERE, SCREENED
from momostream.stream.model import StreamModel
from momostream.stream.settings import StreamSettings

__all__ = ["MOMoGPRegressor"]

Array = NDArray[np.float64]

CONSTRAINTS: dict[str, Constraint] = {
    "categories": optional(CATEGORIES),
    "screen": flag(),
    "beyond": BEYOND,
    "bounds": BOUNDS,
    "clock": field_name()._replace(use="True, False or the name of a field"),
    "drift_detector": optional(instance_of(base.DriftDetector, "a detector of river.drift")),
    "on_drift": one_of("retune", "widen", "forget"),
}
# A new model is surprised by everything: the drift detector does not see the first rows.
WARM_UP = 16
# With a smaller lengthscale or noise, scaled inputs and their squares might overflow.
LEAST_PARAMETER = 1e-25


class MOMoGPRegressor(RegressorBatches, base.MultiTargetRegressor):
    """Predicts several targets of a stream, row by row, with one joint distribution per prediction.

    The experts are two circuits of Gaussian processes, one of which sees the time, two linear regressions on lags with
    forgetting, and the last value. They are stacked for each target by how well they have predicted so far; a copula,
    learnt along with them, joins the targets. Inputs need neither scaling nor imputation, and no call does more than
    one piece of heavy work.

    Parameters
    ----------
    experts
        Names. A kernel (``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rbf"``, each optionally with ``"+linear"``)
        is a circuit of Gaussian processes on the inputs; ``"clock "`` before it adds the time as an input. ``"lags"``
        stands for the two regressions on lags and the last value.
    clock
        True: time is the number of rows learnt. The name of a field of ``x``: time is that field, a number or a
        datetime; steps may be irregular, and time may run backwards. False: no expert sees the time.
    max_points
        Rows that one leaf of a circuit keeps at most, half as many more without the clock; a fuller leaf is split in
        two. The time per row grows with its square.
    n_components, mixture_depth
        A full leaf becomes a mixture of splits along this many inputs, at most this many times on the way down (None:
        always).
    n_groups, group_by
        Groups of targets that separate at a split: at ``"random"``, or by a test of their ``"independence"``.
    split_by
        Input that is split, by ``"relevance"`` (standard deviation over lengthscale) or ``"variance"``.
    coupling
        ``"shared"``: the targets of a leaf share lengthscales and one factor. ``"independent"``: one Gaussian process
        per target, as in the paper.
    weights
        ``"stacking"``, ``"posterior"`` (by the product of all predictive densities so far) or ``"uniform"``.
    eta
        Step size of the stacking weights.
    discount
        Weight of a residual relative to the next newer one in the variance of an expert's predictions.
    forgetting
        Weight of a row relative to the next newer one in the regressions on lags.
    tuning_points, tuning_evaluations
        Rows and gradients of one tuning of hyper-parameters; with 0 gradients hyper-parameters stay as they are.
    tuning_interval
        One tuning step per this many rows; the first hundred steps come at once.
    first_tuning, tuning_growth, child_width
        Rows at which the first leaf is first tuned, growth after which a leaf is tuned again, and how far the
        hyper-parameters of a child may move away from those of its parent, in log units.
    window
        Rows kept at most; the oldest leave first. None keeps all.
    memory_budget
        Bytes of rows, leaves and factors. Factors that were not used lately are dropped beyond it, and rebuilt when
        needed. None keeps all.
    bounds
        ``"auto"``: limits that a target has kept to and touched often, such as zero rain or rated power, zero for one
        that was never negative, and else its range and 4.5 % more, which gives way where a mean comes near; `describe`
        names those found. ``{target: (lower, upper)}`` with None for no bound sets those of some; others are found.
        None: no limits. The probability beyond a limit is a lump at the limit: intervals and samples reach it, and do
        not pass it.
        Limits require ``weights="stacking"``; with others, none are found.
    transforms
        ``{target: "log" | "sqrt" | "logit"}``: the scale on which a target is modelled; ``("log", 0.1)`` adds an offset
        first, for targets that reach their bound. On a log scale give an upper bound as well: without one the
        distribution has no moments.
    categories
        Inputs whose values are names, such as ``("mode",)``: each value becomes an input of zeros and ones, such as
        ``"mode=idle"``.
    drift_detector, on_drift
        A detector of `river.drift` that watches the squared normal scores of the targets, and the reaction to drift:
        ``"retune"``, ``"widen"`` (doubles the scales, which are learnt back if that was needless) or ``"forget"`` (all
        but the newest rows). `drift_events` lists the rows at which it happened.
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
    drift_events : list of int
        Numbers of learnt rows at which drift was detected.

    Notes
    -----
    Calls from several threads are safe: they wait for each other. Missing inputs are replaced by a guess between
    their last value and the mean of their column, as far as values persist; missing targets are skipped; keys may come,
    go and change their order, and a new target may join. A row without any target changes nothing. An error leaves the
    model as it was.

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> rng = np.random.default_rng(0)
    >>> def turbine():
    ...     wind = 8.0
    ...     for _ in range(400):
    ...         wind += 0.1 * (8.0 - wind) + 0.4 * rng.normal()
    ...         yield {"wind": wind}, {"power": wind**3 + 9 * rng.normal(), "load": 5 * wind + rng.normal()}
    >>> model = MOMoGPRegressor(seed=0)
    >>> metric = metrics.multioutput.MicroAverage(metrics.MAE())
    >>> evaluate.progressive_val_score(turbine(), model, metric)
    MicroAverage(MAE): 4...
    >>> prediction = model.predict_one({"wind": 8.0}, with_dist=True)
    >>> {target: round(mean, -1) for target, mean in prediction.mean.items()}
    {'load': 40.0, 'power': 510.0}
    >>> low, high = prediction.interval(0.9)["power"]
    >>> bool(low < 512.0 < high)
    True
    """

    _SCRATCH = ("_x", "_y", "_is_plain")
    _model: StreamModel | None

    def __init__(
        self,
        experts: tuple[str, ...] = ("clock matern32", "matern32", "lags"),
        clock: bool | str = True,
        max_points: int = 256,
        n_components: int = 1,
        mixture_depth: int | None = 1,
        n_groups: int = 1,
        group_by: str = "random",
        split_by: str = "relevance",
        coupling: str = "shared",
        weights: str = "stacking",
        eta: float = 0.1,
        discount: float = 0.97,
        forgetting: float = 0.998,
        tuning_points: int = 128,
        tuning_evaluations: int = 20,
        tuning_interval: int = 32,
        first_tuning: int = 16,
        tuning_growth: float = 1.9,
        child_width: float = 0.5,
        window: int | None = None,
        memory_budget: int | None = None,
        bounds: Bounds = AUTO,
        transforms: dict[Any, str | tuple[str, float]] | None = None,
        drift_detector: base.DriftDetector | None = None,
        on_drift: str = "retune",
        seed: int | None = None,
        categories: tuple[str, ...] | None = None,
        screen: bool = True,
        beyond: str = "clip",
    ) -> None:
        self.categories, self.screen, self.beyond = categories, screen, beyond
        self.experts, self.clock, self.max_points = experts, clock, max_points
        self.n_components, self.mixture_depth = n_components, mixture_depth
        self.n_groups, self.group_by, self.split_by = n_groups, group_by, split_by
        self.coupling, self.weights, self.eta = coupling, weights, eta
        self.discount, self.forgetting = discount, forgetting
        self.tuning_points, self.tuning_evaluations = tuning_points, tuning_evaluations
        self.tuning_interval = tuning_interval
        self.first_tuning, self.tuning_growth, self.child_width = first_tuning, tuning_growth, child_width
        self.window, self.memory_budget = window, memory_budget
        self.bounds, self.transforms = bounds, transforms
        self.drift_detector, self.on_drift = drift_detector, on_drift
        self.seed = seed
        check_settings(self, CONSTRAINTS)
        if (isinstance(bounds, Mapping) and bounds or transforms) and weights != "stacking":
            raise ValueError(f"bounds and transforms require weights='stacking', got weights={weights!r}")
        self._settings = self._read_settings()
        self._start()

    def _start(self) -> None:
        super()._start()
        # Rows that were predicted and wait for their targets: inputs and time by id.
        self._pending: dict[Hashable, tuple[dict[Hashable, float], float]] = {}
        self._time = 0.0
        self.drift_events: list[int] = []

    def _read_settings(self) -> StreamSettings:
        names = {field.name for field in fields(StreamSettings) if field.init} - {"experts"}
        experts = self.experts
        if self.clock is False and isinstance(experts, tuple):
            experts = tuple(name for name in experts if not str(name).startswith("clock "))
        return StreamSettings(experts=experts, **{name: getattr(self, name) for name in names})

    def _columns_changed(self) -> None:
        super()._columns_changed()
        # Each row is read into these.
        self._x, self._y = np.empty(len(self._inputs)), np.empty(len(self._targets))
        # Whether targets are learnt as they are screened.
        self._is_plain = self.screen and self._map.is_plain and not self._circles

    def _limits(self) -> Array | None:
        # Other weights give a mixture of joint distributions, which knows no limits.
        return super()._limits() if self.weights == "stacking" else None

    # ------------------------------------------------------------------ one row

    def learn_one(self, x: Mapping[Any, Any], y: Mapping[Any, Any]) -> None:  # type: ignore[override]
        """Learn one row.

        Parameters
        ----------
        x
            Inputs by name.
        y
            Targets by name; absent, None or NaN is missing.
        """
        with self._lock:
            x, time = self._split_time(x)
            self._learn_row(x, y, time)

    def _learn_row(self, x: Mapping[Any, Any], y: Mapping[Any, Any], time: float | None) -> None:
        new_inputs, new_targets = self._inputs.encode(x, self._x), self._targets.encode(y, self._y)
        if self._frozen:
            return
        if new_inputs or new_targets:
            if not new_targets and _is_missing(self._y):
                return
            self._check_bounds(known_numbers(y))
            self._widen(x, new_inputs, new_targets)
            self._inputs.encode(x, self._x)
            self._targets.encode(y, self._y)
        if self._model is None:
            return
        inputs, targets, found = self._x, self._y, ELSEWHERE
        if self._is_plain:
            # Nearly all rows are those predicted last, and all their readings are good: one compiled call screens and
            # learns them.
            found = self._model.learn_predicted(inputs, targets, self._now(time), self._screening.table)
        if found >= 0:
            self._screening.note_row(False)
            self._note_learnt(time)
        elif found == SCREENED:
            self._screening.note_row(True)
            self._learn(inputs, targets, time, self._is_spoiled(x))
        elif not _is_missing(targets):
            self._learn(inputs, self._screened_row(inputs, targets), time, self._is_spoiled(x))

    def _is_spoiled(self, x: Mapping[Any, Any]) -> bool:
        """Whether an input of the row was set aside."""
        lost = np.isnan(self._x)
        if not lost.any():
            return False
        given = np.empty(lost.size)
        self._inputs.encode(x, given)
        return not np.isnan(given[lost]).all()

    def _learn(self, x: Array, y: Array, time: float | None, is_spoiled: bool = False) -> None:
        """Learn a row whose targets are on the scale of the model."""
        model = self._model
        assert model is not None
        before = model.n_learnt
        model.learn(x, y, self._now(time), is_spoiled)
        if model.n_learnt > before:
            self._note_learnt(time)

    def _note_learnt(self, time: float | None) -> None:
        """Note that the model has learnt a row."""
        if time is not None and not isinstance(self.clock, bool):
            self._time = time
        if self.drift_detector is not None:
            self._watch()

    def _widen(self, x: Mapping[Any, Any], new_inputs: tuple[Hashable, ...], new_targets: tuple[Hashable, ...]) -> None:
        """Give new names their columns, also in the model."""
        n_inputs, n_targets = len(self._inputs), len(self._targets)
        self._add_columns(new_inputs, new_targets)
        # A category that comes for the first time was not there before.
        before = {name: 0.0 for name in new_inputs if is_level(name, self.categories or ())}
        self._inputs.encode({**x, **before}, self._x)
        if self._model is None:
            self._model = StreamModel(self._settings, len(self._inputs), len(self._targets))
            # Rows that miss an input before its first value comes count as having that value.
            self._model.inputs.moments[1] = np.where(np.isnan(self._x), 0.0, self._x)
        else:
            self._model.widen(self._x[n_inputs:].copy(), len(self._targets) - n_targets)

    @overload
    def predict_one(
        self, x: Mapping[Any, Any], with_dist: Literal[False] = False, id: Hashable | None = None, what_if: bool = False
    ) -> dict[Hashable, float]: ...

    @overload
    def predict_one(
        self, x: Mapping[Any, Any], with_dist: Literal[True], id: Hashable | None = None, what_if: bool = False
    ) -> Prediction: ...

    @overload
    def predict_one(
        self, x: Mapping[Any, Any], with_dist: bool = False, id: Hashable | None = None, what_if: bool = False
    ) -> dict[Hashable, float] | Prediction: ...

    def predict_one(
        self, x: Mapping[Any, Any], with_dist: bool = False, id: Hashable | None = None, what_if: bool = False
    ) -> dict[Hashable, float] | Prediction:
        """Predict the targets of one row.

        Parameters
        ----------
        x
            Inputs by name; unknown ones are ignored, missing ones guessed from their last values.
        with_dist
            Return a `momostream.distributions.prediction.Prediction`, the joint distribution, instead of the means.
        id
            Keep the row under this id until `learn_later` brings its targets; a second row of the same id replaces
            it.
        what_if
            Take all inputs as they are. Otherwise ``x`` is the next row of the stream, and an input that `screen` would
            set aside counts as missing. `predict_many` always takes them as they are.

        Returns
        -------
        dict or Prediction
            Empty before the first row has been learnt.
        """
        with self._lock:
            x, time = self._split_time(x)
            self._inputs.encode(x, self._x)
            now = self._now(time)
            if id is not None:
                check_keys([id])
                self._pending[id] = (known_numbers(x), now)
            model = self._model
            if model is None:
                return {}
            if self.screen and not what_if and len(self._x):
                self._screening.doubt(self._x)
            names, mean = self._targets.keys, model.predict(self._x, now)
            if not with_dist and self._scales.is_plain:
                return dict(zip(names, self._held_mean(mean).tolist(), strict=True))
            distribution = model.distribution(self._wrap(self._limits()))
            if self._scales.is_plain:
                return Prediction(names, self._held_mean(mean).copy(), distribution)
            joint = distribution()
            prediction = Prediction(names, joint.mean[0], joint)
            return prediction if with_dist else prediction.mean

    def _held_mean(self, mean: Array) -> Array:
        """The mean of a row within firm limits, without a look at limits that nobody asked for."""
        if self.bounds is None or self.weights != "stacking":
            return mean
        if self._map.is_plain:
            return self._screening.shown.hold(mean, self._range_rows)
        return self._held(self._limits(), mean)

    def learn_later(self, id: Hashable, y: Mapping[Any, Any]) -> None:
        """Learn the targets of a row that was predicted earlier under this id."""
        with self._lock:
            if id not in self._pending:
                raise KeyError(f"no prediction is waiting for targets under the id {id!r}")
            x, time = self._pending[id]
            self._learn_row(x, y, time)
            del self._pending[id]

    @property
    def n_pending(self) -> int:
        """Number of predictions that wait for their targets."""
        return len(self._pending)

    def _split_time(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], float | None]:
        """Take the timestamp out of a row, if it has one."""
        if self.categories and isinstance(x, Mapping):
            x = spread_row(x, self.categories, self._inputs.keys)
        if isinstance(self.clock, bool):
            return x, None
        if not isinstance(x, Mapping):
            raise TypeError(f"expected a dict, got {type(x).__name__}")
        time = seconds_of(self.clock, x.get(self.clock))
        if type(x) is dict:
            others = x.copy()
            others.pop(self.clock, None)
            return others, time
        return {key: value for key, value in x.items() if key != self.clock}, time

    def is_late(self, time: Any) -> bool:
        """Whether a timestamp is not after that of the last row learnt; False if the clock is not a field of ``x``."""
        seconds = None if isinstance(self.clock, bool) else seconds_of(self.clock, time)
        return seconds is not None and self.n_rows > 0 and seconds <= self._time

    def _now(self, time: float | None) -> float:
        if time is not None:
            return time
        if isinstance(self.clock, bool):
            return 0.0 if self._model is None else float(self._model.n_learnt)
        return self._time

    # ------------------------------------------------------------------ anomalies and reasons

    def score_one(self, x: Mapping[Any, Any], y: Mapping[Any, Any]) -> float:
        """How unusual the targets of a row are, from 0 to 1: one minus the probability of anything more unusual.

        Values far out in the joint distribution of the targets are unusual. Scores are uniform on rows whose
        distribution the model predicts correctly; 0 before the first row.
        """
        if not isinstance(y, Mapping):
            raise TypeError(f"expected a dict, got {type(y).__name__}")
        prediction = self.predict_one(x, with_dist=True)
        if not isinstance(prediction, Prediction):
            return 0.0
        known = {name: value for name, value in y.items() if name in prediction.targets}
        return prediction.surprise(known)

    def explain_one(self, x: Mapping[Any, Any], n_neighbours: int = 5) -> dict[str, Any]:
        """Reasons for the prediction of a row: experts, inputs and similar rows.

        Returns
        -------
        dict
            ``"experts"``: share of each expert in each target. ``"relevance"``: share of each input (and of the
            ``"clock"``) in distinguishing rows, in the leaves that were used. ``"neighbours"``: the stored rows that
            resemble this one most, with their number, similarity (0 to 1), inputs and targets.
        """
        check("n_neighbours", n_neighbours, whole(0))
        with self._lock:
            if not self.predict_one(x):
                return {"experts": {}, "relevance": {}, "neighbours": []}
            assert self._model is not None
            return explain_prediction(self._model, self._inputs.keys, self._targets.keys, self._map, n_neighbours)

    # ------------------------------------------------------------------ drift

    def _watch(self) -> None:
        """Show the detector how well the last row was predicted, and react to drift."""
        assert self._model is not None and self.drift_detector is not None
        surprise = self._model.stack.surprise
        if math.isnan(surprise) or self._model.n_learnt <= WARM_UP:
            return
        self.drift_detector.update(surprise)
        if self.drift_detector.drift_detected:
            self.drift_events.append(self._model.n_learnt)
            self._model.react(self.on_drift)

    # ------------------------------------------------------------------ control

    @property
    def targets(self) -> tuple[Hashable, ...]:
        """Names of the targets seen so far."""
        return self._targets.keys

    @property
    def n_rows(self) -> int:
        """Rows learnt."""
        return 0 if self._model is None else self._model.n_learnt

    @property
    def hyperparameters(self) -> list[dict[str, Any]]:
        """Hyper-parameters of each leaf: its expert, rows, targets, lengthscales by input, and noise ratio."""
        with self._lock:
            if self._model is None:
                return []
            return leaf_hyperparameters(self._model, self._inputs.keys, self._targets.keys)

    @property
    def relevance(self) -> dict[Hashable, float]:
        """Share of each input (and of the ``"clock"`` if an expert sees it) in distinguishing rows now; sums to one.

        The mean over all leaves, by their rows and their weights, of variance over squared lengthscale. Empty before
        there are two different rows. Cost: once through all rows that are kept.
        """
        with self._lock:
            return {} if self._model is None else relevance_of_inputs(self._model, self._inputs.keys)

    def set_hyperparameters(self, lengthscales: Mapping[Any, float] | None = None, noise: float | None = None) -> None:
        """Set lengthscales by input (``"clock"`` for the time) and the noise ratio in all leaves.

        Tuning starts from there, unless ``tuning_evaluations`` is 0. At least one row must have been learnt.
        """
        with self._lock:
            self._set_hyperparameters(dict(lengthscales or {}), noise)

    def _set_hyperparameters(self, given: dict[Any, float], noise: float | None) -> None:
        if self._model is None:
            raise ValueError("no row has been learnt yet: learn one before setting hyper-parameters")
        names = ("clock", *self._inputs.keys)
        for name in given:
            if name not in names:
                raise ValueError(f"unknown input {name!r}; the inputs are {', '.join(map(repr, names))}")
        for name, value in [*given.items(), *([] if noise is None else [("noise", noise)])]:
            if not LEAST_PARAMETER <= as_number(name, value) <= 1.0 / LEAST_PARAMETER:
                limits = f"between {LEAST_PARAMETER:g} and {1.0 / LEAST_PARAMETER:g}"
                raise ValueError(f"{name!r} must be positive, {limits}, got {value}")
        columns = {names.index(name): float(value) for name, value in given.items()}
        self._model.set_hyperparameters(columns, noise)

    def retune(self) -> None:
        """Tune the leaves in use again, step by step as rows come."""
        with self._lock:
            if self._model is not None:
                self._model.retune()

    @property
    def expert_weights(self) -> dict[str, dict[Hashable, float]]:
        """Learnt weight of each expert, by target."""
        with self._lock:
            if self._model is None:
                return {}
            return by_expert(self._model, self._model.root_weights(), self._targets.keys)

    # ------------------------------------------------------------------ as text and as files

    def describe(self) -> str:
        """The model in a few lines: rows, targets, experts with their weights, leaves, memory."""
        with self._lock:
            if self._model is None:
                return f"{type(self).__name__}: no rows yet"
            *lines, memory = describe_model(self._model)
            text = "\n".join([*lines, *self._describe_readings(), memory])
            return f"{type(self).__name__}: {text}, {len(self.drift_events)} drifts"

    def _learnt_state(self) -> dict[str, Any]:
        return {
            "inputs": self._inputs.state(), "targets": self._targets.state(), "time": self._time,
            "pending": [
                [Vocabulary([key]).state(), *row_state(x), time]
                for key, (x, time) in self._pending.items()
            ],
            "drift_events": list(self.drift_events),
        }  # fmt: skip

    def _restore_learnt(self, state: Mapping[str, Any]) -> None:
        check_state("state", state, {"time": number()})
        check_indices("state / drift_events", state["drift_events"], 0, MOST_ROWS)
        self._time, self.drift_events = state["time"], list(state["drift_events"])
        self._pending = {
            Vocabulary.from_state(key).keys[0]: (row_from_state(names, values), time)
            for key, names, values, time in state["pending"]
        }

    def _restored_model(self, state: Any) -> StreamModel:
        return StreamModel.from_state(self._settings, state, len(self._inputs), len(self._targets))


def _is_missing(y: Array) -> bool:
    """Whether all targets are missing."""
    # A product with itself is the cheapest way to find a NaN.
    return not len(y) or (math.isnan(y.dot(y)) and bool(np.isnan(y).all()))
