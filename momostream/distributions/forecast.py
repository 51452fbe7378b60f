"""`Forecast`: the joint distribution of all steps and series ahead, by their names and times."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from momostream._numbers import as_number
from momostream.distributions.bounded import TargetMap
from momostream.distributions.circular import NO_CIRCLES, Circles
from momostream.distributions.columns import paired_columns, series_columns
from momostream.distributions.combined import JointArrays, PartOfQuantiles, joint_of_paths, read_groups
from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.events import holds, read_condition
from momostream.distributions.limited import AnyMarginals, carried, limits_at
from momostream.distributions.marginals import Marginals, finite_crps
from momostream.distributions.moments import cut_score
from momostream.distributions.quantiles import QuantileTable, check_levels, in_order, interval_ends
from momostream.distributions.student import correlation_of, regularise, t_cdf, t_stretch
from momostream.distributions.text import aligned, counted, html_table, mean_and_std

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Forecast", "ForecastArrays"]

Array = NDArray[np.float64]

# Degrees of freedom of the copula: large errors come together a little more often than a Gaussian one says.
COPULA_DOF = 20.0
# Steps and series shown by repr.
SHOWN_STEPS, SHOWN_SERIES = 6, 6
# Latent values and their normal scores: a table of a function that is expensive to compute.
_LATENT = np.linspace(0.0, 60.0, 6001)
_LATENT_SCORES = -ndtri(t_cdf(-_LATENT, COPULA_DOF))


class JointPlanes(Protocol):
    """The arrays that a forecast is made from; `momostream.horizon.blend.JointForecast` has them."""

    @property
    def planes(self) -> Array:
        """The planes of `momostream.distributions.planes`, shape ``(5, n_components, n_steps, n_series)``."""

    @property
    def between_steps(self) -> Array:
        """Correlation of the steps; that of two values is its entry times that of `between_series`."""

    @property
    def between_series(self) -> Array:
        """Correlation of the series."""

    @property
    def means(self) -> Array | None:
        """Forecasts of least squared error, shape ``(n_steps, n_series)``; None: the means of the mixtures."""


class Quantiles(Protocol):
    """The part of conformal quantiles that a forecast needs."""

    def scores(self, q: float) -> Array:
        """Normal scores to use instead of that of ``q``, shape ``(horizon, n_series)``."""


class Forecast:
    """The joint distribution of the next steps of several series.

    Observed values come as a frame (its columns are the series), a list of dicts, one per step, or an array of shape
    ``(n_steps, n_series)``; a value that is left out, None or NaN is not observed. Frames have one row per step, in
    order.

    Parameters
    ----------
    joint
        Mixtures and correlations as arrays.
    series
        Names.
    n_steps
        Steps that are looked at, the first ones; None: all.
    times
        Times of the steps, numbers or ``datetime64``; None numbers them from 1.
    zone
        Time zone in which the times are shown; ``times`` are then in UTC.
    targets
        Scales of the series; None where there are none.
    conformal
        Corrects quantiles, intervals and medians, and nothing else; None leaves them to the distribution.
    period
        Frequency of pandas, if steps are periods such as months; ``times`` are then their beginnings.
    limits
        Limits of the series, shape ``(4, n_series)``, see `momostream.distributions.limited`; None: no limits.
    circles
        Which series are angles; None: none. See Notes.

    Notes
    -----
    Of an angle, means, quantiles and samples lie within its range; an interval whose lower end is above its upper one
    crosses the end of the range, as 350 to 10 degrees crosses north. Values are compared with the distribution at the
    turn nearest to its mean. `cov`, `distribution` and `each_step` are those of the angle with its turns counted.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from momostream.distributions.planes import DOF, LOCATION
    >>> planes = np.ones((5, 1, 2, 1))
    >>> planes[LOCATION, 0], planes[DOF] = [[5.0], [6.0]], np.inf
    >>> steps, series = np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones((1, 1))
    >>> joint = SimpleNamespace(planes=planes, between_steps=steps, between_series=series, means=None)
    >>> forecast = Forecast(joint, ["power"])
    >>> forecast
    Forecast: 2 steps of 1 series, mean ± std
      step  power
         1  5 ± 1
         2  6 ± 1
    >>> forecast.interval(0.9).round(2)
         power
         lower upper
    step
    1     3.36  6.64
    2     4.36  7.64
    >>> forecast.crps([{"power": 5.0}, {"power": None}]).round(3)
          power
    step
    1     0.234
    2       NaN

    Steps are correlated, in samples as in densities:

    >>> paths = forecast.sample(2000, seed=0)
    >>> paths.shape, float(np.corrcoef(paths[:, :, 0].T)[0, 1].round(1))
    ((2000, 2, 1), 0.5)

    So are events over several steps:

    >>> forecast.probability("power > 6").round(2).tolist(), round(forecast.probability("power > 6", "any"), 1)
    ([0.16, 0.5], 0.5)
    """

    # Neither steps nor series: say which.
    __iter__ = None

    def __init__(
        self,
        joint: JointPlanes,
        series: Sequence[Hashable],
        n_steps: int | None = None,
        times: NDArray[Any] | None = None,
        zone: str | None = None,
        targets: TargetMap | None = None,
        conformal: Quantiles | None = None,
        period: str | None = None,
        limits: Array | None = None,
        circles: Circles | None = None,
    ) -> None:
        self.series: tuple[Hashable, ...] = tuple(series)
        self._joint, self._planes = joint, joint.planes[:, :, :n_steps]
        if len(self.series) != self._planes.shape[3]:
            raise ValueError(f"got {len(self.series)} names for {self._planes.shape[3]} series")
        if times is not None and len(times) != len(self):
            raise ValueError(f"got {len(times)} times for {len(self)} steps")
        self._times, self.zone, self.period = times, zone, period
        self.targets, self._conformal, self.limits = targets, conformal, limits
        self.circles = NO_CIRCLES if circles is None else circles

    # ------------------------------------------------------------------ the distribution as arrays

    @property
    def _between_steps(self) -> Array:
        return self._joint.between_steps[: len(self), : len(self)]

    @cached_property
    def _marginals(self) -> AnyMarginals:
        """The distributions of single values: steps are rows, series are targets."""
        return carried(self.targets, self.limits, self._of_model)

    @cached_property
    def _of_model(self) -> Marginals:
        """The distributions of single values in the units of the model, without limits."""
        return Marginals.from_planes(self._planes.swapaxes(1, 2))

    @property
    def _means(self) -> Array:
        """Forecasts of least squared error, within the limits; means of the distribution where they are transformed."""
        if self.targets is not None:
            return self._marginals.mean
        means = self._of_model.mean if self._joint.means is None else self._joint.means[: len(self)]
        if self.limits is None or not ((means < self.limits[0]) | (means > self.limits[1])).any():
            return means
        # Limits give way to the distribution, not to these.
        return np.clip(means, *limits_at(self.limits, self._of_model.mean))

    @property
    def each_step(self) -> CopulaDistribution:
        """The distributions of the steps, each on its own: its rows are the steps, its targets the series."""
        return _copula(self._marginals, self._joint.between_series)

    @cached_property
    def distribution(self) -> CopulaDistribution:
        """The distribution of all values together: one row, targets in the order of steps, then series."""
        planes = self._planes.reshape(*self._planes.shape[:2], -1)[:, np.newaxis]
        marginals = Marginals.from_planes(planes)
        targets = None if self.targets is None else TargetMap(len(self) * self.targets.targets)
        limits = None if self.limits is None else np.tile(self.limits, len(self))
        correlation = np.kron(self._between_steps, self._joint.between_series).astype(np.float64, copy=False)
        return _copula(carried(targets, limits, marginals), correlation)

    @property
    def arrays(self) -> ForecastArrays:
        """The distributions of single values, as arrays without names."""
        return ForecastArrays(self)

    @property
    def planes(self) -> Array:
        """The components of the mixtures by step and series: the planes of `momostream.distributions.planes`."""
        return self._planes

    @property
    def law(self) -> Array:
        """Former name of `planes`."""
        return self._planes

    @property
    def times(self) -> NDArray[Any] | None:
        """Times of the steps as an array; None where they have none."""
        return self._times

    @property
    def cov(self) -> Array:
        """Covariance of all values, steps before series, shape ``(n_steps * n_series, n_steps * n_series)``.

        That of samples; its diagonal holds the squares of `std`.
        """
        return self.distribution.cov[0]

    @property
    def correlation(self) -> Array:
        """Correlation of all values, in the order of `cov`."""
        return correlation_of(self.cov)

    def sample(self, n: int = 1, seed: int | np.random.Generator | None = None) -> Array:
        """Draw ``n`` paths: shape ``(n, n_steps, n_series)``."""
        return self.circles.wrap(self._paths(n, seed))

    def _paths(self, n: int, seed: int | np.random.Generator | None) -> Array:
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        rng = np.random.default_rng(seed)
        steps, series = (regularise(R)[1] for R in (self._between_steps, self._joint.between_series))
        # The factor of a Kronecker product is that of the factors.
        z = steps @ rng.standard_normal((n, len(steps), len(series))) @ series.T
        # One stretch per path: that makes the copula of all its values a Student-t's.
        z *= t_stretch(np.full((n, 1, 1), COPULA_DOF), rng)
        scores = np.copysign(np.interp(np.abs(z), _LATENT, _LATENT_SCORES), z)
        reach = cut_score(self._marginals.cut)
        scores = np.clip(scores, -reach, reach)
        # From a table: solving for 168,000 quantiles of mixtures takes half a second.
        return QuantileTable(self._marginals).cubics(scores)[2]

    # ------------------------------------------------------------------ some series, sums of series, events

    def __getitem__(self, series: Any) -> Forecast:
        """The forecast of one series, or of a list of them."""
        names = series if isinstance(series, list) else [series]
        for name in names:
            if name not in self.series:
                raise KeyError(f"unknown series {name!r}; the series are {', '.join(map(repr, self.series))}")
        columns = [self.series.index(name) for name in names]
        means = None if self._joint.means is None else self._joint.means[: len(self), columns]
        between_series = self._joint.between_series[np.ix_(columns, columns)]
        joint = JointArrays(self._planes[..., columns], self._between_steps, between_series, means)
        targets = None if self.targets is None else TargetMap([self.targets.targets[j] for j in columns], names)
        conformal = None if self._conformal is None else PartOfQuantiles(self._conformal, columns)
        limits = None if self.limits is None else self.limits[:, columns]
        labels = self._times, self.zone, targets, conformal, self.period
        return Forecast(joint, names, None, *labels, limits, self.circles.select(columns))

    def aggregate(
        self, groups: Mapping[Hashable, Any], how: str = "sum", n_paths: int = 4096, seed: int = 0
    ) -> Forecast:
        """The forecast of sums or means of series, from the joint distribution.

        Parameters
        ----------
        groups
            ``{"farm": ["T01", "T02"]}``, or with weights ``{"difference": {"T01": 1, "T02": -1}}``.
        how
            ``"sum"`` or ``"mean"`` of a list of series.
        n_paths, seed
            Paths that are drawn; means are exact, all else is as exact as so many paths are.

        Returns
        -------
        Forecast
            One series for each group. Its distribution follows the model without conformal corrections.
        """
        weights = read_groups(groups, self.series, how)
        for j in self.circles.columns[weights[self.circles.columns].any(axis=1)].tolist():
            raise ValueError(f"{self.series[j]!r} is an angle, which has no sum or mean over series")
        paths = self.sample(max(n_paths, 1024), seed) @ weights
        joint = joint_of_paths(paths, self._marginals.mean @ weights)._replace(means=self._means @ weights)
        return Forecast(joint, list(groups), None, self._times, self.zone, period=self.period)

    def probability(
        self, condition: str, over: str = "each", n_paths: int = 4096, seed: int = 0, steps: int | None = None
    ) -> Any:
        """Probability of a condition on the series, such as ``"power < 200"`` or ``"4 <= wind <= 25 and power > 0"``.

        Parameters
        ----------
        condition
            Comparisons of a series with a number, joined by "and" and "or"; "and" binds tighter.
        over
            ``"each"`` step on its own, ``"any"`` step, or ``"all"`` of them.
        n_paths, seed
            Paths that are drawn where several values take part; one comparison at each step is exact.
        steps
            Number of steps that count, the first ones; None: all.

        Returns
        -------
        pandas.Series or float
            A series over the steps for ``"each"``, else a number.
        """
        import pandas as pd

        if over not in ("each", "any", "all"):
            raise ValueError(f"over={over!r} is not accepted: use 'each', 'any' or 'all'")
        clauses = read_condition(condition, self.series)
        on_line = not any(clause.column in self.circles.ranges for part in clauses for clause in part)
        if over == "each" and len(clauses) == len(clauses[0]) == 1 and on_line:
            column, lower, upper = clauses[0][0]
            ends = np.zeros((2, len(self), len(self.series)))
            ends[0, :, column], ends[1, :, column] = np.nextafter(lower, -np.inf), upper
            below, upto = (self.arrays.cdf(end)[:, column] for end in ends)
            return pd.Series(np.maximum(upto - below, 0.0), self.index, name=condition)[:steps]
        met = holds(clauses, self.sample(n_paths, seed))[:, :steps]
        if over == "each":
            return pd.Series(met.mean(axis=0), self.index[:steps], name=condition)
        return float((met.any(axis=1) if over == "any" else met.all(axis=1)).mean())

    # ------------------------------------------------------------------ frames

    @cached_property
    def index(self) -> pd.Index[Any]:
        """Times of the steps, or their numbers from 1."""
        import pandas as pd

        if self._times is None:
            return pd.RangeIndex(1, len(self) + 1, name="step")
        index = pd.Index(self._times, name="time")
        if self.period is not None:
            return pd.DatetimeIndex(index).to_period(self.period)
        if isinstance(index, pd.DatetimeIndex) and self.zone is not None:
            return index.tz_localize("UTC").tz_convert(self.zone)
        return index

    @property
    def steps(self) -> range:
        """Numbers of the steps, from 1."""
        return range(1, len(self) + 1)

    @property
    def mean(self) -> pd.DataFrame:
        """The forecast of least squared error: a row for each step, a column for each series.

        It lies between the mean of the distribution and the blend of all experts, where squared errors have been least;
        it differs most from the mean of samples for a series that rests now and then. Forecasts of paths
        (``strategy="recursive"``) and of transformed targets have the mean of their distribution.
        """
        return self._frame(self.circles.wrap(self._means))

    @property
    def std(self) -> pd.DataFrame:
        """Standard deviations; heavy tails are cut as in `momostream.distributions.joint.Distribution.std`."""
        return self._frame(np.sqrt(self._marginals.variance))

    @property
    def median(self) -> pd.DataFrame:
        """The forecast of least absolute error, the median of the distribution."""
        return self._frame(self.arrays.quantiles([0.5])[0])

    def quantile(self, q: float | Sequence[float]) -> pd.DataFrame:
        """Quantiles; columns are series, or pairs of a series and a probability where there are several."""
        if np.ndim(q) == 0:
            return self._frame(self.arrays.quantiles([float(q)])[0])  # type: ignore[arg-type]
        levels = [float(level) for level in q]  # type: ignore[union-attr]
        return self._wide(self.arrays.quantiles(levels), levels)

    def interval(self, level: float = 0.9) -> pd.DataFrame:
        """Central intervals that hold each value with this probability: a column for each series and side."""
        ends = in_order(self._quantiles(interval_ends(level)))
        return self._wide(np.stack(self.circles.interval(*ends)), ["lower", "upper"])

    def to_dicts(self) -> list[dict[Hashable, float]]:
        """Means: a dict for each step."""
        return [dict(zip(self.series, row, strict=True)) for row in self.circles.wrap(self._means).tolist()]

    def to_frame(self, levels: Sequence[float] = (0.5, 0.9), shape: str = "long") -> pd.DataFrame:
        """Mean, standard deviation, and quantiles of intervals of these levels, as a table.

        Parameters
        ----------
        levels
            Probabilities of the intervals.
        shape
            ``"long"``: one line for each step and series. ``"wide"``: one line for each step, columns are pairs of a
            series and a figure.
        """
        import pandas as pd

        if shape not in ("long", "wide"):
            raise ValueError(f"shape={shape!r} is not accepted: use 'long' or 'wide'")

        probabilities = sorted({0.5, *(0.5 + side * level for level in levels for side in (-0.5, 0.5))})
        columns = {"mean": self.mean, "std": self.std}
        columns |= {f"q{round(q, 6):g}": self.quantile(q) for q in probabilities}
        if shape == "wide":
            return self._wide(np.stack([frame.to_numpy() for frame in columns.values()]), list(columns))
        lines = pd.DataFrame({name: frame.to_numpy().ravel() for name, frame in columns.items()})
        lines.insert(0, "series", list(self.series) * len(self))
        lines.insert(0, str(self.index.name), self.index.repeat(len(self.series)))
        return lines

    def _quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of shape ``(n_levels, n_steps, n_series)``; all together, which takes hardly longer than one."""
        check_levels(np.asarray(levels, dtype=np.float64))
        scores = np.empty((len(levels), len(self), len(self.series)))
        for found, q in zip(scores, levels, strict=True):
            found[:] = ndtri(q) if self._conformal is None else self._conformal.scores(q)[: len(self)]
        return self._marginals.tail_quantile(ndtr(-np.abs(scores)), scores > 0.0)

    def _frame(self, values: Array) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(values, index=self.index, columns=series_columns(self.series))

    def _wide(self, values: Array, labels: Sequence[Any]) -> pd.DataFrame:
        import pandas as pd

        columns = paired_columns(self.series, labels)
        return pd.DataFrame(np.moveaxis(values, 0, 2).reshape(len(self), -1), index=self.index, columns=columns)

    # ------------------------------------------------------------------ observed values

    def log_pdf(self, y: Any) -> float:
        """Joint log density of the observed values; 0 if there are none."""
        values = self.circles.nearest(self._values(y), self._marginals.mean)
        return float(self.distribution.log_pdf(values.reshape(1, -1))[0])

    def log_pdf_each(self, y: Any) -> pd.DataFrame:
        """Log density of each observed value on its own; NaN for the others."""
        return self._frame(self.arrays.log_pdf(self._values(y)))

    def cdf(self, y: Any) -> pd.DataFrame:
        """Probability of at most the observed value."""
        return self._frame(self.arrays.cdf(self._values(y)))

    def crps(self, y: Any) -> pd.DataFrame:
        """Continuous ranked probability score of each value, in its units; the smaller the better."""
        return self._frame(self.arrays.crps(self._values(y)))

    def _values(self, y: Any) -> Array:
        """Observed values in the order of steps and series."""
        if hasattr(y, "columns"):
            rows = [dict(zip(y.columns, row, strict=True)) for row in y.to_numpy().tolist()]
        elif isinstance(y, list | tuple) and any(isinstance(row, Mapping) for row in y):
            rows = list(y)
        else:
            values = np.asarray(y, dtype=np.float64)
            values = values[:, np.newaxis] if values.ndim == 1 and len(self.series) == 1 else values
            if values.shape != (len(self), len(self.series)):
                raise ValueError(f"expected values of shape {(len(self), len(self.series))}, got {values.shape}")
            return values
        if len(rows) != len(self):
            raise ValueError(f"expected {len(self)} rows, one for each step, got {len(rows)}")
        unknown = [name for row in rows for name in row if name not in self.series]
        if unknown:
            raise ValueError(f"unknown series {unknown[0]!r}; the series are {', '.join(map(repr, self.series))}")
        return np.array([[as_number(name, row.get(name)) for name in self.series] for row in rows])

    # ------------------------------------------------------------------ pictures and text

    def plot(
        self,
        ax: Axes | Sequence[Axes] | None = None,
        history: pd.DataFrame | None = None,
        levels: Sequence[float] = (0.5, 0.9),
        actual: pd.DataFrame | None = None,
    ) -> Figure:
        """Draw a fan for each series; see `momostream.show.plots.plot_forecast`.

        A new figure is made by pyplot: ``plt.savefig`` and ``plt.show`` know it.
        """
        from momostream.show import plots
        from momostream.show.plots.figures import by_pyplot

        with by_pyplot():
            return plots.plot_forecast(self, history, levels, ax, actual)

    def __len__(self) -> int:
        """Return the number of steps."""
        return int(self._planes.shape[2])

    @property
    def _title(self) -> str:
        return f"{counted(len(self), 'step')} of {len(self.series)} series"

    def _cells(self, n_steps: int) -> list[list[str]]:
        """Header and first steps as texts."""
        names = self.series[:SHOWN_SERIES]
        cells = [[str(self.index.name), *map(str, names)]]
        mean, std = self.arrays.mean, np.sqrt(self._marginals.variance)
        for label, *pair in zip(self.index[:n_steps], mean, std, strict=False):
            cells.append([str(label), *mean_and_std(*pair)[: len(names)]])
        return cells

    def __repr__(self) -> str:
        """Means and standard deviations of the first steps and series."""
        more = "  ..." if len(self.series) > SHOWN_SERIES else ""
        lines = [line + more for line in aligned(self._cells(SHOWN_STEPS))]
        lines += ["  ..."] if len(self) > SHOWN_STEPS else []
        return "\n".join([f"Forecast: {self._title}, mean ± std", *lines])

    def _repr_html_(self) -> str:
        """Table of means and standard deviations, for notebooks."""
        header, *rows = self._cells(len(self))
        return html_table(header, rows, caption=f"{self._title}, mean ± std")


class ForecastArrays:
    """The distributions of single values, as arrays of shape ``(n_steps, n_series)``; NaN is not observed."""

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast

    @property
    def mean(self) -> Array:
        """Forecasts of least squared error."""
        return self._forecast.circles.wrap(self._forecast._means)

    def log_pdf(self, y: ArrayLike) -> Array:
        """Log density of each value."""
        Y = self._near(y)
        return np.where(np.isnan(Y), np.nan, self._forecast._marginals.log_pdf(Y))

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of these levels, along the first axis."""
        return self._forecast.circles.wrap(self._forecast._quantiles(levels))

    def ends(self, level: float) -> tuple[Array, Array]:
        """Ends of central intervals of this level."""
        q = 0.5 - 0.5 * level
        lower, upper = self._forecast._quantiles([q, 1.0 - q])
        return self._forecast.circles.interval(lower, upper)

    def cdf(self, y: ArrayLike) -> Array:
        """Probability of at most each value."""
        return self._forecast._marginals.cdf(self._near(y))

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of each value."""
        return finite_crps(self._forecast._marginals.crps, self._near(y))

    def _near(self, y: ArrayLike) -> Array:
        return self._forecast.circles.nearest(np.asarray(y, dtype=np.float64), self._forecast._marginals.mean)


def _copula(marginals: AnyMarginals, correlation: Array) -> CopulaDistribution:
    return CopulaDistribution(marginals, correlation, COPULA_DOF)
