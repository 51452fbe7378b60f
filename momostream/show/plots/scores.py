"""Plots of scores: errors and coverage of a run, by block of rows and by step, and calibration."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from momostream.horizon.durations import UNITS
from momostream.runs.scores import N_BINS, Track
from momostream.show.outline import counted, named
from momostream.show.plots.figures import (
    GREY,
    GRID,
    MOST_PANELS,
    PALETTE,
    Array,
    figure_of,
    format_times,
    left_out,
    legend_above,
    new_panels,
    percent_text,
    tick_text,
)

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["ahead", "plot_calibration", "plot_scores", "plot_steps"]

# Lines of a drawing at most, before their mean is drawn instead.
MOST_LINES = 6
# Errors this many times above their median call for a log scale.
STEEP = 10.0
# An axis of spans of time is at least this many of its units long.
LEAST_UNITS = 3.0

NOTHING_SCORED = "nothing has been scored yet: a prediction is scored when the rows that it predicts have arrived"


def plot_scores(track: Track) -> Figure:
    """Draw the error of a run's predictions and the coverage of their intervals over time.

    With one target, the root mean square error is drawn in its units, with that of the last value for comparison. With
    several, each error is divided by that of the last value: below 1 is better than a forecast of no change. With more
    than six, their mean is emphasised.

    Parameters
    ----------
    track
        Scores of the run.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: errors above, coverages below, one point for each block of rows; an incomplete last
        block is left out.

    Examples
    --------
    >>> from momostream.distributions.predicted import PredictedValues
    >>> from momostream import MOMoGPRegressor
    >>> model, track = MOMoGPRegressor(experts=("lags",), seed=0), Track(["power"])
    >>> for row in range(1, 101):
    ...     distribution = model.predict_one({}, with_dist=True)
    ...     if distribution:
    ...         track.expect(PredictedValues.of(distribution, track.targets, track.level))
    ...     y = {"power": np.sin(row / 5)}
    ...     _ = track.observe(row, y)
    ...     model.learn_one({}, y)
    >>> error, coverage = plot_scores(track).axes
    >>> print([text.get_text() for text in error.get_legend().get_texts()])
    ['power', 'last value']
    """
    blocks, times = track.by_block, track.block_times
    if not track.n_scored or not len(blocks):
        raise ValueError(NOTHING_SCORED)
    sizes = np.diff(blocks.index, prepend=0)
    if len(blocks) > 2 and 2 * sizes[-1] < sizes[-2]:
        blocks, times = blocks[:-1], None if times is None else times[:-1]
    if times is None:
        return _draw_scores(track, blocks, np.asarray(blocks.index), "row")
    zone = getattr(times, "tz", None)
    x = np.asarray(times) if zone is None else np.asarray(times, dtype="datetime64[us]")
    return _draw_scores(track, blocks, x, "time" if zone is None else f"time ({zone})")


def plot_steps(track: Track) -> Figure:
    """Draw the error of forecasts and the coverage of their intervals by the number of steps ahead.

    Parameters
    ----------
    track
        Scores of a run of forecasts of more than one step.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: errors above, coverages below, as in `plot_scores`.
    """
    if track.n_steps < 2:
        raise ValueError("the predictions of this track look one step ahead: there are no steps to compare")
    if not track.n_scored:
        raise ValueError(NOTHING_SCORED)
    steps = np.asarray(track.by_step.index)
    return _draw_scores(track, track.by_step, *ahead(steps, track.step))


def ahead(steps: NDArray[Any], step: float | None) -> tuple[NDArray[Any], str]:
    """How far ahead steps are, in the largest unit that divides the axis, and the words for it."""
    if step is None:
        return steps, "steps ahead"
    fitting = [unit for unit, size in UNITS.items() if steps[-1] * step >= LEAST_UNITS * size]
    unit = fitting[-1] if fitting else "second"
    return steps * (step / UNITS[unit]), f"{unit}s ahead"


def _draw_scores(track: Track, scores: pd.DataFrame, x: NDArray[Any], x_label: str) -> Figure:
    names = [named(name, 24, 1) for name in track.targets]
    upper, lower = new_panels(2, 1, 8.0, 2.2)
    error, naive, coverage = (scores[[score]].droplevel(0, axis=1) for score in ("rmse", "naive", "coverage"))
    if len(names) == 1:
        _draw_lines(upper, x, error, names)
        upper.plot(x, naive, color=GREY, ls="--", lw=1.2, marker=_marker(x), ms=3, label="last value")
        upper.set_ylabel("root mean square error")
        _fit_scale(upper, [error, naive])
    else:
        ratio = error / naive.where(naive > 0.0)
        _draw_lines(upper, x, ratio, names)
        upper.axhline(1.0, color=GREY, ls="--", lw=1.2, label="last value")
        upper.set_ylabel("error relative to\nthe last value's")
        _fit_scale(upper, [ratio])
    _draw_lines(lower, x, coverage, names)
    lower.axhline(track.level, color=GREY, ls="--", lw=1.2)
    lower.set_ylim(min(track.level - 0.1, coverage.min().min()) - 0.03, 1.02)
    lower.yaxis.set_major_formatter(FuncFormatter(percent_text))
    lower.set_ylabel(f"values inside the\n{100 * track.level:.4g} % interval")
    lower.set_xlabel(x_label)
    for ax in (upper, lower):
        ax.margins(x=0.02)
        ax.grid(axis="y", color=GRID, lw=0.6)
        ax.set_axisbelow(True)
    format_times(lower, x)
    legend_above(upper, 4)
    return figure_of(upper)


def _draw_lines(ax: Axes, x: NDArray[Any], values: pd.DataFrame, names: list[str]) -> None:
    """Draw one line per target; if there are many, draw their mean over thin lines."""
    marker = _marker(x)
    if len(names) <= MOST_LINES:
        for (_, line), name, colour in zip(values.items(), names, PALETTE, strict=False):
            ax.plot(x, line, color=colour, lw=1.5, marker=marker, ms=4, label=name)
        return
    for k, (_, line) in enumerate(values.items()):
        ax.plot(x, line, color=PALETTE[0], lw=0.6, alpha=0.35, label="" if k else "each target")
    ax.plot(x, values.mean(axis=1), color=PALETTE[0], lw=2, marker=marker, ms=4, label=f"mean of {len(names)} targets")


def _marker(x: NDArray[Any]) -> str:
    """Mark points if there are few: a point between two gaps has no line."""
    return "o" if len(x) <= 40 else ""


def _fit_scale(ax: Axes, values: Sequence[pd.DataFrame]) -> None:
    """Start at zero, or use a log scale if a few large values would press all others down."""
    known = np.concatenate([frame.to_numpy().ravel() for frame in values])
    known = known[np.isfinite(known) & (known > 0.0)]
    if len(known) and known.max() > STEEP * np.median(known):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(tick_text))
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_ylim(bottom=0.0)


def plot_calibration(source: Track | pd.DataFrame | ArrayLike, ax: Axes | None = None) -> Figure:
    """Draw how often values fell into each twentieth of their predicted distributions.

    If predictions are calibrated, all bars have the same height, up to chance. A hump in the middle: the distributions
    are too wide; a trough: too narrow; a slope: biased. The band contains 95 of 100 bars of a calibrated forecaster
    with independent errors; forecasts of many steps overlap, and so do their errors.

    Parameters
    ----------
    source
        Scores of a run; or counts, a row for each of equal bins and a column for each target; or values of the
        predicted distribution functions at the observed values (``distribution.cdf(y)``), shape (n,) or
        (n, n_targets), NaN if none was observed.
    ax
        Axes to draw into, for one target; None makes a figure of at most 12 targets.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> figure = plot_calibration(np.random.default_rng(0).uniform(size=1000))
    >>> heights = [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() < 0.1]
    >>> print(len(heights), round(sum(heights) / 20, 6))
    20 1.0
    """
    names, counts = _pit_counts(source)
    if not counts.sum():
        raise ValueError("there are no values yet: nothing has been predicted and observed")
    if ax is not None and len(names) > 1:
        raise ValueError(f"got one axes for {len(names)} targets")
    shown = names[:MOST_PANELS]
    n_columns = min(len(shown), 3)
    width, height = ((5.0, 2.6), (7.0, 2.3), (9.0, 2.0))[n_columns - 1]
    axes = [ax] if ax is not None else new_panels(len(shown), n_columns, width, height, left_out(len(names), "targets"))
    for axis, name, column in zip(axes, shown, counts.T, strict=False):
        _draw_histogram(axis, column)
        title = [named(name, 26, 1), counted(int(column.sum()), "value")]
        axis.set_title("\n".join(filter(None, title)), size=8.5)
    for axis in axes[-n_columns:]:
        axis.set_xlabel("probability below the value" if n_columns > 1 else "predicted probability below the value")
    for axis in axes[::n_columns]:
        axis.set_ylabel("relative frequency")
    return figure_of(axes[0])


def _pit_counts(source: Any) -> tuple[list[Hashable], Array]:
    """Names of targets, and counts ``(n_bins, n_targets)``."""
    if isinstance(source, Track):
        return list(source.targets), source.pit.to_numpy(dtype=np.float64)
    if hasattr(source, "columns"):
        counts = source.to_numpy(dtype=np.float64)
        if not (counts >= 0.0).all() or not (counts == np.round(counts)).all():
            raise ValueError("a frame must hold counts: whole numbers of at least 0")
        return list(source.columns), counts
    values = np.asarray(source, dtype=np.float64)
    if values.ndim not in (1, 2) or (np.abs(values - 0.5) > 0.5).any():
        raise ValueError(f"expected probabilities of shape (n,) or (n, n_targets), got shape {values.shape}")
    columns = values[:, np.newaxis] if values.ndim == 1 else values
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    counts = np.stack([np.histogram(column[~np.isnan(column)], edges)[0] for column in columns.T], axis=1)
    return [""] if values.ndim == 1 else [f"y{p}" for p in range(columns.shape[1])], counts.astype(np.float64)


def _draw_histogram(ax: Axes, counts: Array) -> None:
    n_bins, total = len(counts), counts.sum()
    ax.set(xlim=(0.0, 1.0), xticks=(0.0, 0.5, 1.0))
    if not total:
        ax.text(0.5, 0.5, "no values", ha="center", va="center", transform=ax.transAxes, color=GREY)
        return
    expected = total / n_bins
    low, high = binom.ppf([0.025, 0.975], total, 1.0 / n_bins) / expected
    middles = (np.arange(n_bins) + 0.5) / n_bins
    ax.bar(middles, counts / expected, width=0.9 / n_bins, color=PALETTE[0], alpha=0.7)
    # On top of the bars, which would hide its lower half.
    ax.axhspan(low, high, color=GREY, alpha=0.3, lw=0, zorder=3)
    ax.axhline(1.0, color=GREY, lw=1, ls="--", zorder=3)
