"""`MOMoGPRegressor` for river: dicts in, dicts and distributions out, one row at a time."""

from __future__ import annotations

import html
import math
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields
from datetime import UTC, date, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from momostream._numbers import LARGEST, as_number
from momostream.distributions.bounded import Target, TargetMap
from momostream.distributions.prediction import Prediction
from momostream.estimators.vocabulary import Vocabulary
from momostream.stream.model import StreamModel
from momostream.stream.settings import StreamSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOMoGPRegressor"]

Array = NDArray[np.float64]

ACTIONS = ("retune", "widen", "forget")
# A model that knows nothing yet is surprised by everything: the first rows are not shown to the drift detector.
WARM_UP = 16
# Scaled by less, covariates and their squares might overflow.
LEAST_PARAMETER = 1e-25


class MOMoGPRegressor(base.MultiTargetRegressor):
    """Gaussian-process experts on a stream of several targets, with one joint distribution per prediction.

    Two circuits of GP experts, one of which sees the time, two linear regressions on lags with forgetting and the last
    value are stacked per target by how they have predicted so far; a copula, learnt along with them, joins the targets.
    Nothing needs to be scaled or imputed in front of it, and no call does more than one piece of heavy work.

    Parameters
    ----------
    experts
        Names: a kernel (``"matern12"``, ``"matern32"``, ``"matern52"``, ``"rbf"``, each optionally with ``"+linear"``)
        is a circuit of GP experts on the inputs, ``"clock "`` in front of it adds the time as a covariate, ``"lags"``
        brings the two regressions on lags and the last value.
    clock
        True: time is the number of rows learnt. The name of a field of ``x``: time is that field, a number or a
        datetime; steps may be irregular, and time that runs backwards is taken as it is. False: no expert sees the
        time.
    max_points
        Rows that one GP expert keeps at most, half as many more without the clock; a fuller one is cut in two. The cost
        of a row grows with its square.
    n_components, mixture_depth
        A full expert becomes a mixture of cuts along so many covariates, at most so many times on the way down (None:
        always).
    n_groups, group_by
        Groups of targets that part ways at a cut: at ``"random"``, or by a test of their ``"independence"``.
    split_by
        Which covariate is cut: by ``"relevance"`` (spread over lengthscale) or ``"variance"``.
    coupling
        ``"shared"``: targets share lengthscales and one factor. ``"independent"``: one expert per target, as in the
        paper.
    weights
        ``"stacking"``, ``"posterior"`` (by the product of all predictive densities so far) or ``"uniform"``.
    eta
        Step of the stacking weights.
    discount
        Weight of a residual relative to the next newer one in the variance of an expert's predictions.
    forgetting
        The same for the rows behind the regressions on lags.
    tuning_points, tuning_evaluations
        Rows and gradients of one tuning of hyper-parameters; 0 gradients keep them as they are.
    tuning_interval
        Rows that pay for one gradient; the first hundred gradients are free.
    first_tuning, tuning_growth, child_width
        Rows at which the first expert is tuned first, growth after which an expert is tuned again, and how far a child
        may stray from its parent's hyper-parameters, in log units.
    window
        Rows kept at most; the oldest leave first. None keeps all.
    memory_budget
        Bytes of rows, experts and factors; cold factors beyond it are dropped and made again when needed. None keeps
        all.
    bounds
        ``{target: (lower, upper)}`` with None for no bound: predictions, intervals and samples respect them, and a
        learnt value beyond them is refused.
    transforms
        ``{target: "log" | "sqrt" | "logit"}``: the scale on which a target is modelled; ``("log", 0.1)`` adds an offset
        first, for targets that reach their bound. On a log scale give an upper bound as well, or the moments of the
        distribution are infinite.
    drift_detector, on_drift
        A detector of `river.drift` that watches the squared normal scores of the targets, and what to do when it fires:
        ``"retune"``, ``"widen"`` (twice the scales, learnt back if needless) or ``"forget"`` (all but the newest rows).
        Events are kept in `drift_events`.
    seed
        Of everything random. Same seed, same rows, same floats.

    Attributes
    ----------
    n_rows : int
        Rows learnt.
    drift_events : list of int
        Numbers of learnt rows at which drift was seen.

    Notes
    -----
    Calls from several threads are safe: they wait for each other. Missing inputs are replaced by the mean of their
    column so far, missing targets are skipped; keys may come, go and be reordered, and a new target may join. A row
    without any target changes nothing. An error leaves the model as it was.

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
        bounds: dict[Any, tuple[float | None, float | None]] | None = None,
        transforms: dict[Any, str | tuple[str, float]] | None = None,
        drift_detector: base.DriftDetector | None = None,
        on_drift: str = "retune",
        seed: int | None = None,
    ) -> None:
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
        if on_drift not in ACTIONS:
            raise ValueError(f"on_drift={on_drift!r} is not accepted: use one of {', '.join(map(repr, ACTIONS))}")
        if drift_detector is not None and not isinstance(drift_detector, base.DriftDetector):
            raise ValueError(f"drift_detector={drift_detector!r} is not accepted: use a detector of river.drift")
        if clock is None:
            raise ValueError("clock=None is not accepted: use True, False or the name of a field")
        if (bounds or transforms) and weights != "stacking":
            raise ValueError(f"bounds and transforms need weights='stacking', got weights={weights!r}")
        self._settings = self._read_settings()
        self._inputs, self._targets = Vocabulary(), Vocabulary()
        self._model: StreamModel | None = None
        self._map = TargetMap([])
        self._pending: dict[Hashable, tuple[dict[Hashable, float], float]] = {}
        self._time = 0.0
        self._frozen = False
        self.drift_events: list[int] = []
        self._lock = threading.RLock()
        self._buffers()
        # Also a check of bounds and transforms, before any row comes.
        for name in {**(bounds or {}), **(transforms or {})}:
            self._target(name)

    def _read_settings(self) -> StreamSettings:
        names = {field.name for field in fields(StreamSettings) if field.init} - {"experts"}
        experts = self.experts
        if self.clock is False and isinstance(experts, tuple):
            experts = tuple(name for name in experts if not str(name).startswith("clock "))
        return StreamSettings(experts=experts, **{name: getattr(self, name) for name in names})

    def _buffers(self) -> None:
        self._x, self._y = np.empty(len(self._inputs)), np.empty(len(self._targets))

    def _target(self, name: Hashable) -> Target:
        return Target.named(name, self.bounds, self.transforms)

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
            if not new_targets and np.isnan(self._y).all():
                return
            self._check(y)
            self._widen(x, new_inputs, new_targets)
            self._inputs.encode(x, self._x)
            self._targets.encode(y, self._y)
        if self._model is not None:
            self._learn(self._x, self._y if self._map.is_plain else self._map.forward(self._y), time)

    def _learn(self, x: Array, y: Array, time: float | None) -> None:
        """Learn a row whose targets are on the scale of the model."""
        model = self._model
        assert model is not None
        before = model.n_learnt
        model.learn(x, y, self._now(time))
        if model.n_learnt > before:
            if time is not None and not isinstance(self.clock, bool):
                self._time = time
            if self.drift_detector is not None:
                self._watch()

    def _check(self, y: Mapping[Any, Any]) -> None:
        """Refuse a value beyond its bounds before anything is registered."""
        for name in y:
            value = as_number(name, y[name])
            if not math.isnan(value):
                TargetMap([self._target(name)], [name]).forward([[value]])

    def _widen(self, x: Mapping[Any, Any], new_inputs: tuple[Hashable, ...], new_targets: tuple[Hashable, ...]) -> None:
        """Give new keys their columns."""
        n_inputs, n_targets = len(self._inputs), len(self._targets)
        self._inputs.columns(new_inputs)
        self._targets.columns(new_targets)
        self._buffers()
        self._map = TargetMap([self._target(name) for name in self._targets.keys], self._targets.keys)
        self._inputs.encode(x, self._x)
        if self._model is None:
            self._model = StreamModel(self._settings, len(self._inputs), len(self._targets))
            # Rows that miss an input before its first value has come are taken to have had that value.
            self._model.inputs.moments[1] = np.where(np.isnan(self._x), 0.0, self._x)
        else:
            self._model.widen(self._x[n_inputs:].copy(), len(self._targets) - n_targets)

    def predict_one(  # type: ignore[override]
        self, x: Mapping[Any, Any], with_dist: bool = False, id: Hashable | None = None
    ) -> dict[Hashable, float] | Prediction:
        """Predict the targets of one row.

        Parameters
        ----------
        x
            Inputs by name; unknown ones are ignored, missing ones taken at the mean of their column.
        with_dist
            Return a `momostream.distributions.prediction.Prediction`, the joint distribution, instead of the means.
        id
            Keep the row under this name until `learn_later` brings its targets; a second row of that name takes its
            place.

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
                self._pending[id] = (_known(x), now)
            model = self._model
            if model is None:
                return {}
            mean = model.predict(self._x, now)
            names = self._targets.keys
            if not with_dist and self._map.is_plain:
                return dict(zip(names, mean.tolist(), strict=True))
            distribution = model.distribution(None if self._map.is_plain else self._map.wrap)
            if self._map.is_plain:
                return Prediction(names, mean.copy(), distribution)
            joint = distribution()
            prediction = Prediction(names, joint.mean[0], joint)
            return prediction if with_dist else prediction.mean

    def learn_later(self, id: Hashable, y: Mapping[Any, Any]) -> None:
        """Learn the targets of a row that was predicted earlier under this name."""
        with self._lock:
            if id not in self._pending:
                raise KeyError(f"no prediction waits under the id {id!r}")
            x, time = self._pending[id]
            self._learn_row(x, y, time)
            del self._pending[id]

    @property
    def n_pending(self) -> int:
        """Predictions that wait for their targets."""
        return len(self._pending)

    def _split_time(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], float | None]:
        """Take the timestamp out of a row, if it has one."""
        if isinstance(self.clock, bool):
            return x, None
        if not isinstance(x, Mapping):
            raise TypeError(f"expected a dict, got {type(x).__name__}")
        time = _seconds(self.clock, x.get(self.clock))
        return {key: value for key, value in x.items() if key != self.clock}, time

    def is_late(self, time: Any) -> bool:
        """Whether a timestamp is not after that of the last row learnt; never where the clock is not a field."""
        seconds = None if isinstance(self.clock, bool) else _seconds(self.clock, time)
        return seconds is not None and self.n_rows > 0 and seconds <= self._time

    def _now(self, time: float | None) -> float:
        if time is not None:
            return time
        if isinstance(self.clock, bool):
            return 0.0 if self._model is None else float(self._model.n_learnt)
        return self._time

    # ------------------------------------------------------------------ many rows

    def learn_many(self, X: pd.DataFrame, Y: pd.DataFrame) -> None:
        """Learn the rows of two frames in order: as `learn_one` for each, in fewer and larger steps."""
        with self._lock:
            rows = self._read_frames(X, Y)
            if rows is None:
                return
            if self.drift_detector is None:
                self._learn_rows(*rows)
            else:
                # The detector wants to see every row.
                for x, y, time in zip(*rows[:2], [None] * len(rows[0]) if rows[2] is None else rows[2], strict=True):
                    self._learn(x, y, time)

    def _learn_rows(self, points: Array, targets: Array, times: Array | None, thorough: bool = False) -> None:
        assert self._model is not None
        self._model.learn_many(points, targets, times, thorough)
        if times is not None:
            self._time = float(times[-1])

    def predict_many(self, X: pd.DataFrame, with_dist: bool = False) -> Any:
        """Predict the rows of a frame, each as if it were the next one.

        For rows that are alternatives at the present time, not for a stretch of the future: the experts that know the
        order of rows take the last learnt row as the one before each.

        Returns
        -------
        pandas.DataFrame or momostream.distributions.joint.Distribution
            Means with the index of ``X``; or, ``with_dist``, the distribution of all rows.
        """
        import pandas as pd

        with self._lock:
            X, times = self._take_times(X)
            points = _matrix(_columns(X, "X"), self._inputs.keys, len(X))
            if self._model is None or not len(X):
                return pd.DataFrame(index=X.index, columns=list(self._targets.keys), dtype=np.float64)
            if times is None:
                times = np.full(len(points), self._now(None))
            wrap = None if self._map.is_plain else self._map.wrap
            distribution = self._model.predict_many(points, times, self._targets.keys, wrap)
            if with_dist:
                return distribution
            return pd.DataFrame(distribution.mean, index=X.index, columns=list(self._targets.keys))

    def fit(self, X: pd.DataFrame, Y: pd.DataFrame) -> Self:
        """Start afresh from history, with all tuning done; go on with `learn_one`."""
        with self._lock:
            clone = self.clone()
            clone._settings = self._settings
            rows = clone._read_frames(X, Y)
            if rows is not None:
                clone._learn_rows(*rows, thorough=True)
            self.__dict__.update({k: v for k, v in clone.__dict__.items() if k != "_lock"})
        return self

    def _take_times(self, X: pd.DataFrame) -> tuple[pd.DataFrame, Array | None]:
        """Take the timestamps out of a frame; None where time is the number of rows."""
        _check_frame(X, "X")
        if isinstance(self.clock, bool):
            return X, None
        times, time = np.full(len(X), self._time), self._time
        if self.clock in X.columns:
            for i, value in enumerate(X[self.clock]):
                with _row_named(X, i, "X"):
                    seconds = _seconds(self.clock, value)
                times[i] = time = time if seconds is None else seconds
            X = X.drop(columns=[self.clock])
        return X, times

    def _read_frames(self, X: pd.DataFrame, Y: pd.DataFrame) -> tuple[Array, Array, Array | None] | None:
        """Rows that have a target, on the scale of the model, with times; None if there is nothing to learn.

        New columns are registered, after all has been checked.
        """
        X, times = self._take_times(X)
        inputs, targets = _columns(X, "X"), _columns(Y, "Y")
        if len(X) != len(Y):
            raise ValueError(f"X has {len(X)} rows and Y {len(Y)}")
        for name, values in targets.items():
            TargetMap([self._target(name)], [name]).forward(values[:, None])
        rows = ~np.isnan(_matrix(targets, tuple(targets), len(Y))).all(axis=1)
        if self._frozen or not rows.any():
            return None
        inputs = {name: values[rows] for name, values in inputs.items()}
        targets = {name: values[rows] for name, values in targets.items()}
        first = {name: _first(values) for name, values in inputs.items() if name not in self._inputs}
        first = {name: value for name, value in first.items() if not math.isnan(value)}
        new = tuple(n for n in targets if n not in self._targets and not math.isnan(_first(targets[n])))
        if first or new:
            self._widen(first, tuple(first), new)
        n = int(rows.sum())
        points, Z = _matrix(inputs, self._inputs.keys, n), _matrix(targets, self._targets.keys, n)
        return points, self._map.forward(Z), None if times is None else times[rows]

    # ------------------------------------------------------------------ anomalies and reasons

    def score_one(self, x: Mapping[Any, Any], y: Mapping[Any, Any]) -> float:
        """How strange the targets of a row are, from 0 to 1: one minus the probability of anything stranger.

        Strange is what lies far out in the joint distribution of the targets. Uniform on rows that the model predicts
        honestly; 0 before the first row.
        """
        if not isinstance(y, Mapping):
            raise TypeError(f"expected a dict, got {type(y).__name__}")
        prediction = self.predict_one(x, with_dist=True)
        if not isinstance(prediction, Prediction):
            return 0.0
        known = {name: value for name, value in y.items() if name in prediction.targets}
        return prediction.surprise(known)

    def explain_one(self, x: Mapping[Any, Any], n_neighbours: int = 5) -> dict[str, Any]:
        """Why the model predicts what it predicts for this row.

        Returns
        -------
        dict
            ``"experts"``: share of each expert in each target. ``"relevance"``: share of each input (and of the
            ``"clock"``) in telling rows apart, in the GP experts that were asked. ``"neighbours"``: the stored rows
            that resemble this one most, with their number, similarity (0 to 1), inputs and targets.
        """
        if n_neighbours < 0:
            raise ValueError(f"n_neighbours={n_neighbours} is not accepted: use a whole number of at least 0")
        with self._lock:
            if not self.predict_one(x):
                return {"experts": {}, "relevance": {}, "neighbours": []}
            assert self._model is not None
            inputs, targets = self._inputs.keys, self._targets.keys
            shares, relevance, neighbours = self._model.explain(n_neighbours)
            return {
                "experts": {
                    name: dict(zip(targets, row.tolist(), strict=True))
                    for name, row in zip(self._settings.expert_names, shares, strict=True)
                },
                "relevance": dict(zip(("clock", *inputs), relevance.tolist(), strict=True)),
                "neighbours": [
                    {
                        "row": number,
                        "similarity": similarity,
                        "x": dict(zip(inputs, point[1:].tolist(), strict=True)),
                        "y": dict(zip(targets, self._map.backward(y).tolist(), strict=True)),
                    }
                    for number, similarity, point, y in neighbours
                ],
            }

    # ------------------------------------------------------------------ drift

    def _watch(self) -> None:
        """Show the detector how the last row was predicted, and act when it sees drift."""
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
    def inputs(self) -> tuple[Hashable, ...]:
        """Names of the inputs seen so far."""
        return self._inputs.keys

    @property
    def targets(self) -> tuple[Hashable, ...]:
        """Names of the targets seen so far."""
        return self._targets.keys

    @property
    def n_rows(self) -> int:
        """Rows learnt."""
        return 0 if self._model is None else self._model.n_learnt

    def freeze(self) -> None:
        """Stop learning: `learn_one` leaves the model as it is until `unfreeze`.

        That includes the last rows that the experts on lags go by: for long rests choose ``experts`` without them.
        """
        self._frozen = True

    def unfreeze(self) -> None:
        """Learn again."""
        self._frozen = False

    @property
    def hyperparameters(self) -> list[dict[str, Any]]:
        """Of each GP expert: its circuit, rows, targets, lengthscales by input, and noise ratio."""
        found: list[dict[str, Any]] = []
        with self._lock:
            if self._model is None:
                return found
            names = ("clock", *self._inputs.keys)
            for expert, tree in zip(self._model.settings.expert_names, self._model.trees, strict=False):
                for leaf in tree.leaves():
                    lengths = leaf.covariance.lengthscales(leaf.theta)
                    found.append({
                        "expert": expert, "rows": leaf.n_rows,
                        "targets": [self._targets.keys[p] for p in leaf.targets],
                        "lengthscales": dict(zip(names[tree.start :], lengths.tolist(), strict=True)),
                        "noise": leaf.noise,
                    })  # fmt: skip
        return found

    @property
    def relevance(self) -> dict[Hashable, float]:
        """Share of each input (and of the ``"clock"`` where it takes part) in telling rows apart now; sums to one.

        The mean over all GP experts, by their rows and their weights, of variance over squared lengthscale. Empty
        before there are two different rows. Cost: once through all rows that are kept.
        """
        with self._lock:
            model = self._model
            if model is None or not model.trees:
                return {}
            total = np.zeros(1 + model.n_inputs)
            # Never zero: experts that have lost all weight still tell rows apart.
            for tree, weights in zip(model.trees, model.root_weights() + 1e-12, strict=False):
                for leaf in tree.leaves():
                    X, _ = leaf.data()
                    varying = (X != X[:1]).any(axis=0)
                    # An expert in which nothing varies has no say.
                    if varying.any():
                        squares = np.where(varying, X.std(axis=0) * leaf.inputs[1], 0.0) ** 2
                        total[tree.start :] += leaf.n_rows * weights[leaf.targets].sum() * squares / squares.sum()
            first = min(tree.start for tree in model.trees)
            names = ("clock", *self._inputs.keys)[first:]
        shares = total[first:] / (total.sum() or 1.0)
        return dict(zip(names, shares.tolist(), strict=True)) if total.any() else {}

    def set_hyperparameters(self, lengthscales: Mapping[Any, float] | None = None, noise: float | None = None) -> None:
        """Set lengthscales by input (``"clock"`` for the time) and the noise ratio in all GP experts.

        They are tuned from there on, unless ``tuning_evaluations`` is 0. There must have been a row.
        """
        with self._lock:
            self._set_hyperparameters(dict(lengthscales or {}), noise)

    def _set_hyperparameters(self, given: dict[Any, float], noise: float | None) -> None:
        if self._model is None:
            raise ValueError("no row has been learnt yet: there are no experts whose hyper-parameters could be set")
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
        """Tune the GP experts in use anew, step by step as rows come."""
        with self._lock:
            if self._model is not None:
                self._model.retune()

    @property
    def expert_weights(self) -> dict[str, dict[Hashable, float]]:
        """Learnt weight of each expert, by target."""
        with self._lock:
            if self._model is None:
                return {}
            weights, targets = self._model.root_weights().copy(), self._targets.keys
        return {
            name: dict(zip(targets, row.tolist(), strict=True))
            for name, row in zip(self._settings.expert_names, weights, strict=True)
        }

    # ------------------------------------------------------------------ as text and as files

    def describe(self) -> str:
        """The model in a few lines: rows, targets, experts with their weights, leaves, memory."""
        if self._model is None:
            return f"{type(self).__name__}: no rows yet"
        with self._lock:
            return self._describe(self._model)

    def _describe(self, model: StreamModel) -> str:
        lines = [
            f"{type(self).__name__}: {model.n_learnt} rows learnt, {len(model.rows)} kept; "
            f"{model.n_inputs} inputs, {model.n_targets} targets"
        ]
        weights = model.root_weights().mean(axis=1)
        for k, name in enumerate(self._settings.expert_names):
            text = f"  {name:>16s}  weight {weights[k]:.3f}"
            if k < len(model.trees):
                tree = model.trees[k]
                sizes = [leaf.n_rows for leaf in tree.leaves()]
                text += f"  {len(sizes)} experts of at most {max(sizes)} rows, depth {tree.depth}"
            lines.append(text)
        lines.append(f"  {model.nbytes / 1e6:.1f} MB, {len(model.jobs)} jobs waiting, {len(self.drift_events)} drifts")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.describe())}</pre>"

    @property
    def nbytes(self) -> int:
        """Bytes held by rows, factors and statistics."""
        with self._lock:
            return 0 if self._model is None else self._model.nbytes

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that `momostream.load` reads; see `momostream.storage.models`."""
        from momostream.storage import models

        models.save(self, path)

    def _state(self) -> dict[str, Any]:
        """What the model has become, as plain data."""
        with self._lock:
            return {
                "inputs": self._inputs.state(), "targets": self._targets.state(), "time": self._time,
                "pending": [
                    [_key_state(key), Vocabulary(x).state(), np.array([*x.values()], dtype=np.float64), time]
                    for key, (x, time) in self._pending.items()
                ],
                "drift_events": list(self.drift_events), "frozen": self._frozen,
                "model": None if self._model is None else self._model.state(),
            }  # fmt: skip

    def _restore(self, state: dict[str, Any]) -> None:
        self._inputs = Vocabulary.from_state(state["inputs"])
        self._targets = Vocabulary.from_state(state["targets"])
        self._map = TargetMap([self._target(name) for name in self._targets.keys], self._targets.keys)
        self._buffers()
        self._time, self.drift_events = state["time"], list(state["drift_events"])
        self._pending = {
            _key_from_state(key): (dict(zip(Vocabulary.from_state(names).keys, values.tolist(), strict=True)), time)
            for key, names, values, time in state["pending"]
        }
        self._frozen = state["frozen"]
        if state["model"] is not None:
            self._model = StreamModel.from_state(self._settings, state["model"])

    def __getstate__(self) -> dict[str, Any]:
        """Parameters, and what was learnt as plain data: arrays that share memory do not survive copying."""
        with self._lock:
            kept = {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_model", "_x", "_y")}
            # Deep: the original, in this or another thread, may go on learning before this is written or restored.
            return deepcopy({**kept, "_model": None if self._model is None else self._model.state()})

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state.pop("_model")
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._model = None if model is None else StreamModel.from_state(self._settings, model)
        self._buffers()


def _known(x: Mapping[Any, Any]) -> dict[Hashable, float]:
    """The numbers of a row, without those that are missing."""
    numbers = {key: as_number(key, value) for key, value in x.items()}
    return {key: number for key, number in numbers.items() if not math.isnan(number)}


def _seconds(name: Hashable, value: Any) -> float | None:
    """A timestamp as a number; None where it is missing."""
    if isinstance(value, datetime):
        stamp = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        # pandas' NaT is a datetime that differs from itself.
        seconds = stamp.timestamp() if stamp == stamp else math.nan
    elif isinstance(value, np.datetime64):
        seconds = math.nan if np.isnat(value) else float(value.astype("datetime64[us]").astype(np.int64)) / 1e6
    elif isinstance(value, date):
        seconds = datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    else:
        seconds = as_number(name, value)
    return None if math.isnan(seconds) else seconds


def _check_frame(frame: pd.DataFrame, what: str) -> None:
    columns = getattr(frame, "columns", None)
    if columns is None or not hasattr(columns, "is_unique"):
        raise TypeError(f"{what} must be a pandas DataFrame, got {type(frame).__name__}")
    if not columns.is_unique:
        raise ValueError(f"{what} has two columns {columns[columns.duplicated()][0]!r}")


@contextmanager
def _row_named(frame: pd.DataFrame, i: int, what: str) -> Iterator[None]:
    """Say in errors which row it was."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"row {frame.index[i]!r} of {what}: {error}") from None


def _columns(frame: pd.DataFrame, what: str) -> dict[Hashable, Array]:
    """Columns of a frame as numbers; what is no number is refused by row and column."""
    _check_frame(frame, what)
    if all(dtype.kind in "fiub" for dtype in frame.dtypes):
        # At once: looking at columns one by one costs more than predicting a row.
        matrix = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        if not (np.abs(matrix) > LARGEST).any():
            return dict(zip(frame.columns, matrix.T, strict=True))
    columns: dict[Hashable, Array] = {}
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "fiub":
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            bad = np.flatnonzero(np.abs(values) > LARGEST)
            looked_at = bad[:1]
        else:
            values = np.empty(len(frame))
            looked_at = np.arange(len(frame))
        for i in looked_at:
            with _row_named(frame, i, what):
                values[i] = as_number(name, column.iloc[i])
        columns[name] = values
    return columns


def _matrix(columns: Mapping[Hashable, Array], names: tuple[Hashable, ...], n_rows: int) -> Array:
    """Columns in this order; NaN where there is none."""
    out = np.full((n_rows, len(names)), np.nan)
    for j, name in enumerate(names):
        if name in columns:
            out[:, j] = columns[name]
    return out


def _first(values: Array) -> float:
    """The first value that is there; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(known[0]) if len(known) else math.nan


def _key_state(key: Hashable) -> Any:
    return Vocabulary([key]).state()


def _key_from_state(state: Any) -> Hashable:
    return Vocabulary.from_state(state).keys[0]
