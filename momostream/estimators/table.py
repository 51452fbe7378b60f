"""`MOMoGPRegressor` for scikit-learn: the order of rows has no meaning, and `fit` starts afresh."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import date, timedelta
from os import PathLike
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from momostream._numbers import LARGEST, SMALLEST
from momostream.batch.experts import CircuitExpert
from momostream.batch.model import Model
from momostream.batch.nodes import Circuit
from momostream.batch.settings import Settings
from momostream.distributions.joint import Distribution
from momostream.distributions.quantiles import interval_ends
from momostream.estimators._frames import quantile_frame
from momostream.estimators.presets import PRESETS

__all__ = ["MOMoGPRegressor"]

Array = NDArray[np.float64]


class MOMoGPRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Predicts several targets of a table with a mixture of Gaussian processes.

    The root of the mixture is a sum over experts. An expert is a probabilistic circuit (sums, gates on inputs, splits
    of the targets) with Gaussian processes on regions of the rows at the bottom, or a Bayesian linear model. By
    default, each circuit is one exact Gaussian process for all targets up to 8,192 rows, and a circuit of local ones
    above that. Inputs and targets need no scaling. NaN in ``X`` or ``y`` is a missing value.

    Parameters
    ----------
    experts
        Children of the root sum: ``"linear"``, or a kernel (``"matern12"``, ``"matern32"``, ``"matern52"``,
        ``"rbf"``, each optionally followed by ``"+linear"``) for a circuit of Gaussian processes. ``"warped KERNEL"``
        sees the inputs through their quantiles, ``"residual KERNEL"`` learns the residuals of the linear expert.
    max_points
        M: gates split a region with more rows than this. None: 8,192 if all rows of `fit` fit into one region of that
        size, else 1,024.
    n_components
        K_S: children of a sum inside a circuit.
    n_cells
        K_Px: cells of a gate; 1 means no gates (``max_points`` then has no effect).
    n_groups
        K_Py: groups of a split of the targets; 1 means no such splits.
    mixture_depth
        Levels of gates at which sums mix; None mixes at all levels.
    split_by
        Inputs that gates cut first, by ``"relevance"`` (variance over squared lengthscale) or ``"variance"``.
    group_by
        Rule by which targets are split: at ``"random"`` or by ``"independence"`` (conditional independence test).
    outputs
        ``"joint"``: one circuit for all targets. ``"separate"``: one for each.
    coupling
        ``"shared"``: the targets of a region share one factor, with full covariance between them and Student-t
        tails. ``"independent"``: one Gaussian process per target and region.
    hyperparameters
        ``"own"`` for each region, or ``"tied"``: one set per expert (per target with ``coupling="independent"``).
    weights
        ``"stacking"``: the mixture with the best held-out density, per target. ``"posterior"``: exact Bayes.
        ``"uniform"``.
    stacking
        Rows that are held out: ``"loo"``, one at a time (if the order of rows has no meaning), or ``"blocks"``,
        stretches of rows (if rows are in order of time and the model predicts a new stretch).
    n_blocks
        Number of stretches for ``stacking="blocks"``.
    discount
        Weight of a row relative to the next newer one in the covariance of the targets; 1 is exact Bayes.
    tuning_points
        Rows per gradient of the marginal likelihood at most.
    max_iterations
        L-BFGS iterations per region at most; 0 keeps the starting hyper-parameters.
    start
        Starting point of the tuning of a region: ``"prior"`` (its centre, or the result for all rows) or ``"random"``.
    restarts
        Further random starts per region; the best result is kept.
    memory_budget
        Bytes of Cholesky factors kept at most, beside the one in use. Others are rebuilt when needed, which takes time
        but does not change any float. None keeps all.
    structure
        A `momostream.Circuit` to use instead of learning one, for every expert that is a circuit. Its regions are never
        split; ``weights="uniform"`` keeps its weights.
    n_jobs
        Processes for tuning, as in joblib; the result does not depend on it.
    verbose
        1: progress bars on a terminal, 2: anywhere, 0: none.
    random_state
        Seed of sampled rows, random splits of targets and restarts.

    Attributes
    ----------
    model_
        The fitted core model.
    weights_
        Data frame of the root's weights, one row per expert, one column per target.
    n_features_in_, feature_names_in_, target_names_
        Shape and names of the training data; ``target_names_`` is None when targets had no names.

    References
    ----------
    .. [1] Yu et al., "Leveraging Probabilistic Circuits for Nonparametric Multi-Output Regression", UAI 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(150, 1))
    >>> Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])]) + 0.1 * rng.normal(size=(150, 2))
    >>> model = MOMoGPRegressor(random_state=0).fit(X, Y)
    >>> mean, std = model.predict([[2.0]], return_std=True)
    >>> print(mean.round(1), std.round(1))
    [[ 0.9 -0.4]] [[0.1 0.1]]
    >>> distribution = model.predict_distribution([[2.0]])
    >>> lower, upper = distribution.interval(0.9)
    >>> print(bool((lower < mean).all() and (mean < upper).all()))
    True
    """

    def __init__(
        self,
        experts: tuple[str, ...] = ("matern32", "warped matern12", "linear"),
        *,
        max_points: int | None = None,
        n_components: int = 2,
        n_cells: int = 2,
        n_groups: int = 1,
        mixture_depth: int | None = 1,
        split_by: str = "relevance",
        group_by: str = "random",
        outputs: str = "joint",
        coupling: str = "shared",
        hyperparameters: str = "own",
        weights: str = "stacking",
        stacking: str = "loo",
        n_blocks: int = 15,
        discount: float = 1.0,
        tuning_points: int = 1000,
        max_iterations: int = 40,
        start: str = "prior",
        restarts: int = 0,
        memory_budget: int | None = 2_000_000_000,
        structure: Circuit | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.experts = experts
        self.max_points = max_points
        self.n_components = n_components
        self.n_cells = n_cells
        self.n_groups = n_groups
        self.mixture_depth = mixture_depth
        self.split_by = split_by
        self.group_by = group_by
        self.outputs = outputs
        self.coupling = coupling
        self.hyperparameters = hyperparameters
        self.weights = weights
        self.stacking = stacking
        self.n_blocks = n_blocks
        self.discount = discount
        self.tuning_points = tuning_points
        self.max_iterations = max_iterations
        self.start = start
        self.restarts = restarts
        self.memory_budget = memory_budget
        self.structure = structure
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """A model of the family by name: ``"exact"``, ``"sumgp"``, ``"dsmgp"`` or ``"momogp"``.

        Parameters
        ----------
        name
            Name of the preset.
        **changes
            Parameters that differ from it.

        Examples
        --------
        >>> MOMoGPRegressor.from_preset("momogp", max_points=1000).weights
        'posterior'
        """
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}: use one of {', '.join(map(repr, PRESETS))}")
        return cls(**{**PRESETS[name], **changes})

    # ------------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn structure, hyper-parameters and weights.

        Parameters
        ----------
        X
            Shape (n_samples, n_features): array or data frame of numbers; NaN is a missing input.
        y
            Shape (n_samples,) or (n_samples, n_targets); NaN is a missing target.

        Returns
        -------
        self
            The fitted estimator.
        """
        settings, before = self._settings(), dict(vars(self))
        try:
            rows, targets = self._checked(X, y, reset=True)
            model = Model(settings).fit(rows, _two_dimensional(targets))
        except BaseException:
            # scikit-learn has stored the width and names of these columns already: an earlier fit must not see them.
            self.__dict__ = before
            raise
        self.model_, self._one_target = model, targets.ndim == 1
        self.target_names_ = _column_names(y)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows without tuning again; the first call is `fit`.

        Rows are appended to the regions into which they fall, and regions above M rows are split. Stacking weights
        follow how well each expert predicted the new rows before learning them. Hyper-parameters, tails, the
        correlation of residuals and all parameters of the estimator stay as `fit` left them.

        Parameters
        ----------
        X, y
            As in `fit`, of the same widths.

        Returns
        -------
        self
            The estimator.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        rows, targets = self._checked(X, y, reset=False)
        targets = _two_dimensional(targets)
        n_targets = self.model_.n_targets
        if targets.shape[1] != n_targets:
            raise ValueError(f"y has {targets.shape[1]} columns, but the model was fitted with {n_targets}")
        names = _column_names(y)
        if None not in (names, self.target_names_) and names != self.target_names_:
            raise ValueError(f"y has the columns {names}, but the model was fitted with {self.target_names_}")
        self.model_.learn(rows, targets)
        return self

    def _settings(self) -> Settings:
        parameters = self.get_params(deep=False)
        random_state = check_random_state(parameters.pop("random_state"))
        if isinstance(parameters["experts"], list | np.ndarray):
            parameters["experts"] = tuple(parameters["experts"])
        return Settings(**parameters, seed=int(random_state.randint(np.iinfo(np.int32).max)))

    def _checked(self, X: ArrayLike, y: ArrayLike, reset: bool) -> tuple[Array, Array]:
        _check_values(X, "X")
        rows = validate_data(
            self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite="allow-nan", ensure_min_samples=1
        )
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        shape = getattr(y, "shape", (1,))
        if len(shape) not in (1, 2) or shape[-1] == 0:
            raise ValueError(f"y must have shape (n_samples,) or (n_samples, n_targets), not {tuple(shape)}")
        _check_values(y, "y")
        targets = check_array(
            y, dtype=np.float64, order="C", ensure_2d=False, ensure_all_finite="allow-nan", input_name="y"
        )
        check_consistent_length(rows, targets)
        if targets.ndim not in (1, 2) or 0 in targets.shape:
            raise ValueError(f"y must have shape (n_samples,) or (n_samples, n_targets), not {targets.shape}")
        # A constant sets the unit of its target: later values in units of nothing are no numbers.
        return rows, np.where(np.abs(targets) < SMALLEST, 0.0, targets)

    # ------------------------------------------------------------------ predicting

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """Predictive mean, optionally with standard deviation or covariance between rows.

        Means alone take about a tenth of the time; they agree with the others up to rounding.

        Parameters
        ----------
        X
            Shape (n_samples, n_features).
        return_std
            Also return the standard deviation of each value, noise included.
        return_cov
            Also return the covariance between the rows for each target, noise included. For the covariance between
            targets see `predict_distribution`.

        Returns
        -------
        mean
            Shape (n_samples,) or (n_samples, n_targets), as ``y`` was.
        std or cov
            Shape of ``mean``; or (n_samples, n_samples) with ``n_targets`` as last axis if there are several.
        """
        if return_std and return_cov:
            raise RuntimeError("use at most one of return_std and return_cov")
        rows = self._rows(X)
        if return_cov:
            mean, cov = self.model_.covariance_between_rows(rows)
            return (mean[:, 0], cov[:, :, 0]) if self._one_target else (mean, cov)
        if not return_std:
            return self._shaped(self.model_.means(rows))
        distribution = self.model_.predict(rows)
        return self._shaped(distribution.mean), self._shaped(distribution.std)

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        """The predictive distribution of all rows: densities, quantiles, samples, covariance between targets.

        Parameters
        ----------
        X
            Shape (n_samples, n_features).

        Returns
        -------
        Distribution
            ``.mean`` and ``.std`` of shape (n_samples, n_targets), ``.cov`` (n_samples, n_targets, n_targets),
            ``.log_pdf(Y)``, ``.quantile(q)``, ``.interval(level)``, ``.sample(size, seed)``, ``.condition(known)``;
            row ``i`` by indexing.
        """
        rows = self._rows(X)
        return self.model_.predict(rows, self.target_names_)

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Quantiles as a frame: a column for each target and level, with the index of ``X`` if it has one."""
        distribution = self.predict_distribution(X)
        return quantile_frame(distribution, levels, list(levels), self._target_names(), _labels(X, distribution.n_rows))

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> pd.DataFrame:
        """Central intervals as a frame: ``lower`` and ``upper`` for each target.

        Examples
        --------
        >>> X = np.linspace(0.0, 6.0, 60)[:, None]
        >>> model = MOMoGPRegressor(("matern32",), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> interval = model.predict_interval(X[:2])
        >>> print(list(interval.columns))
        [('y0', 'lower'), ('y0', 'upper')]
        """
        distribution = self.predict_distribution(X)
        labels = _labels(X, distribution.n_rows)
        return quantile_frame(distribution, interval_ends(level), ["lower", "upper"], self._target_names(), labels)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a file without pickle that `momostream.load` reads."""
        from momostream.storage.tables import save_table

        check_is_fitted(self, "model_")
        save_table(self, path)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Array:
        """Draw targets from the predictive distribution, noise included.

        Values of one row are drawn jointly over the targets; rows are drawn independently of each other.

        Parameters
        ----------
        X
            Shape (n_rows, n_features).
        n_samples
            Draws per row.
        random_state
            Seed.

        Returns
        -------
        samples
            Shape (n_rows, n_samples), or (n_rows, n_targets, n_samples) if there are several targets.
        """
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        rows = self._rows(X)
        drawn = np.moveaxis(self.model_.predict(rows).sample(n_samples, seed), 0, -1)
        return drawn[:, 0] if self._one_target else drawn

    def _rows(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "model_")
        _check_values(X, "X")
        rows: Array = validate_data(self, X, reset=False, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        return rows

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self._one_target else values

    # ------------------------------------------------------------------ looking

    @property
    def weights_(self) -> pd.DataFrame:
        """Weights of the root sum: one row per expert, one column per target."""
        check_is_fitted(self, "model_")
        model = self.model_
        names = [expert.name for expert in model.experts]
        log_weights = np.broadcast_to(model.log_weights.reshape(len(names), -1), (len(names), model.n_targets))
        return pd.DataFrame(np.exp(log_weights), index=names, columns=self._target_names())

    def describe(self) -> str:
        """The circuits as text: gates with names and cuts, weights, rows per region."""
        check_is_fitted(self, "model_")
        return self.model_.describe(self._input_names(), self._target_names())

    def lengthscales(self) -> pd.DataFrame:
        """Lengthscales as a table: one column per input; expert, region, targets, rows and noise are the index.

        Those of warped experts are in units of normal scores, the others in the units of the inputs.
        """
        check_is_fitted(self, "model_")
        labels, lengths, names = [], [], self._target_names()
        for expert in self.model_.experts:
            if not isinstance(expert, CircuitExpert):
                continue
            for number, (region, outputs) in enumerate(zip(expert.regions, expert.outputs, strict=True)):
                targets = ", ".join(names[p] for p in outputs)
                noise = region.covariance.noise(region.theta)
                labels.append((expert.name, number, targets, region.n_rows, noise))
                lengths.append(region.covariance.lengthscales(region.theta))
        # In the index, so that an input may have the same name.
        levels = ["expert", "region", "targets", "rows", "noise"]
        index = pd.MultiIndex.from_arrays(list(zip(*labels, strict=True)) or [[]] * len(levels), names=levels)
        table = np.reshape(lengths, (len(labels), self.n_features_in_))
        return pd.DataFrame(table, index=index, columns=self._input_names())

    def _input_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _target_names(self) -> list[str]:
        names = self.target_names_
        return [f"y{p}" for p in range(self.model_.n_targets)] if names is None else [str(name) for name in names]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _labels(X: Any, n_rows: int) -> pd.Index[Any]:
    """The index of a pandas frame, else numbers."""
    return X.index if isinstance(X, pd.DataFrame | pd.Series) else pd.RangeIndex(n_rows)


def _two_dimensional(targets: Array) -> Array:
    return targets.reshape(len(targets), -1)


def _plain(y: Any) -> Any:
    """Values as something that numpy understands; a polars frame knows how to become an array."""
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _column_names(y: Any) -> tuple[Hashable, ...] | None:
    columns = getattr(y, "columns", None)
    if columns is None:
        # A polars series without a name is called "".
        name = getattr(y, "name", None)
        return None if name is None or name == "" else (str(name),)
    return tuple(columns)


def _check_values(values: Any, what: str) -> None:
    """Raise an error that names the first row and column with a value that is infinite, too large or not a number."""
    if not (hasattr(values, "shape") or isinstance(values, list | tuple)):
        return
    columns = _column_names(values)
    try:
        table = np.asarray(_plain(values))
    except ValueError:
        return  # ragged: the message of scikit-learn is clear
    if table.dtype.kind in "mM":
        raise TypeError(
            f"{what} holds dates or durations, first at {_position((0,) * table.ndim, columns)}: use numbers"
        )
    if table.dtype.kind not in "OfiubUS" or table.ndim not in (1, 2):
        return
    if table.dtype.kind in "OUS":
        _check_objects(table, what, columns)
        return
    # As float64: the bound does not fit into smaller floats.
    large = np.abs(table) > np.float64(LARGEST) if table.dtype.kind == "f" else np.zeros(table.shape, dtype=bool)
    unusable = np.argwhere(large)
    if len(unusable):
        raise _unusable(what, float(table[tuple(unusable[0])]), unusable[0], columns)


def _check_objects(table: NDArray[Any], what: str, columns: tuple[Hashable, ...] | None) -> None:
    """The same for columns of mixed types, value by value."""
    for index, value in np.ndenumerate(table):
        if isinstance(value, date | timedelta | np.datetime64 | np.timedelta64) or value is pd.NaT:
            raise TypeError(f"{what} holds the date or duration {value} at {_position(index, columns)}: use numbers")
        if not isinstance(value, str | bytes | float):
            continue
        try:
            number = float(value)
        except ValueError:
            text = value if isinstance(value, bytes) else str(value)
            raise ValueError(
                f"{what} holds the text {text!r} at {_position(index, columns)}: could not convert string to float; "
                "use numbers, or NaN for missing values; encode categories first, for example with OneHotEncoder"
            ) from None
        if abs(number) > LARGEST:
            raise _unusable(what, number, index, columns)


def _unusable(what: str, number: float, index: Any, columns: tuple[Hashable, ...] | None) -> ValueError:
    words = "infinity" if np.isinf(number) else f"{number:g}, which is too large,"
    return ValueError(
        f"{what} contains {words} at {_position(index, columns)}: "
        f"use finite numbers up to {LARGEST:g} in size, or NaN for missing values"
    )


def _position(index: Any, columns: tuple[Hashable, ...] | None) -> str:
    row = f"row {int(index[0])}"
    if len(index) == 1:
        return row
    column = int(index[1])
    return f"{row}, column {column if columns is None else columns[column]!r}"
