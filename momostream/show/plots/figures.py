"""Figures, colours, axes and texts that all plots share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from numpy.typing import NDArray

__all__ = [
    "GREY",
    "GRID",
    "MOST_CELLS",
    "MOST_PANELS",
    "PALETTE",
    "SLANTED",
    "Array",
    "by_pyplot",
    "figure_of",
    "format_times",
    "left_out",
    "legend_above",
    "new_axes",
    "new_panels",
    "percent_text",
    "tick_text",
    "write_cells",
]

Array = NDArray[np.float64]

#: Most columns of a heat map with numbers in its cells, and most panels of a figure.
MOST_CELLS, MOST_PANELS = 16, 12

#: Okabe and Ito's colours, which people with colour blindness can distinguish.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#999999"]
GREY, GRID = "#666666", "#dddddd"
#: Style of long labels below an axis.
SLANTED: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}


_BY_PYPLOT: ContextVar[bool] = ContextVar("by_pyplot", default=False)


@contextmanager
def by_pyplot() -> Iterator[None]:
    """Make new figures by pyplot, so that ``plt.savefig`` and ``plt.show`` know them."""
    token = _BY_PYPLOT.set(True)
    try:
        yield
    finally:
        _BY_PYPLOT.reset(token)


def _new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches."""
    settings: dict[str, Any] = {"figsize": (width, height), "layout": "constrained", "dpi": 150}
    if _BY_PYPLOT.get():
        from matplotlib import pyplot

        return pyplot.figure(**settings)
    # By default not by pyplot: it would keep the figure alive until someone closes it.
    return Figure(**settings)


def new_axes(width: float, height: float) -> Axes:
    """Axes of a new figure of this size in inches."""
    return _new_figure(width, height).add_subplot()


def new_panels(n: int, n_columns: int, width: float, height: float, note: str = "") -> list[Axes]:
    """Axes of a new figure, in rows of this height in inches, with a note below them."""
    n_rows = -(-n // n_columns)
    figure = _new_figure(width, 0.8 + height * n_rows)
    grid = list(figure.subplots(n_rows, n_columns, sharex=True, squeeze=False).ravel())
    for spare in grid[n:]:
        spare.remove()
    for lowest in grid[max(n - n_columns, 0) : n]:
        lowest.tick_params(labelbottom=True)
    if note:
        figure.supxlabel(note, size=8, color=GREY)
    return grid[:n]


def figure_of(ax: Axes) -> Figure:
    """The whole figure, even if the axes belong to a subfigure."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def left_out(n: int, what: str) -> str:
    """A note about panels that are not drawn; empty if all are."""
    return f"{n - MOST_PANELS} more {what} are not shown" if n > MOST_PANELS else ""


def legend_above(ax: Axes, most_columns: int = 8) -> None:
    """Put the legend in lines above the axes."""
    n_columns = min(len(ax.get_legend_handles_labels()[1]), most_columns)
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=n_columns, frameon=False, fontsize=8, columnspacing=1.2
    )


def format_times(ax: Axes, x: NDArray[Any], zone: tzinfo | None = None) -> None:
    """Write short dates that do not overlap, if ``x`` holds times, by the clock of the zone; None writes UTC."""
    if x.dtype.kind in "MO":
        zone = UTC if zone is None else zone
        locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]


def write_cells(ax: Axes, values: Array, texts: list[list[str]], image: Any) -> None:
    """Write a text into each cell of a heat map, in a colour that contrasts with the cell."""
    for (i, j), value in np.ndenumerate(values):
        if not texts[i][j]:
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
        ax.text(j, i, texts[i][j], ha="center", va="center", size=8, color="white" if dark else "black")


def percent_text(value: float, position: int | None = None) -> str:
    """A share as text of an axis."""
    return f"{100 * value:.4g} %"


def tick_text(value: float, position: int | None = None) -> str:
    """A number as text of an axis."""
    return f"{value:g}"
