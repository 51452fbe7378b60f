"""Plots of circuits, of table models and of those that learn from a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from momostream.batch.model import Model
from momostream.show.outline import Box, outline
from momostream.show.plots.figures import figure_of, new_axes

if TYPE_CHECKING:
    from momostream.estimators.forecaster import MOMoGPForecaster
    from momostream.estimators.regressor import MOMoGPRegressor as StreamRegressor
    from momostream.estimators.table import MOMoGPRegressor

__all__ = ["plot_circuit"]

COLOURS = {"sum": "#fde7c8", "gate": "#d6e6f5", "outputs": "#e6dcf2", "region": "#dcefd9", "more": "#f0f0f0"}
LINE = "#555555"

FONT_SIZE = 9.0
# Inches of a letter at that size, of the frame and the gap between two boxes, and from one level to the next.
LETTER_WIDTH, GAP_WIDTH, LEVEL_HEIGHT = 0.072, 0.25, 0.95
# Inches of a line of text, and of the frame and the gap between two boxes that stand below each other.
LINE_HEIGHT, GAP_HEIGHT = 0.16, 0.24


def plot_circuit(
    model: MOMoGPRegressor | StreamRegressor | MOMoGPForecaster | Model,
    expert: str | int | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    ax: Axes | None = None,
    max_nodes: int = 40,
    sideways: bool = False,
) -> Figure:
    """Draw the circuit of a model from the top down, or from left to right.

    Sums are circles with a plus and their weights on the edges (the mean over the targets, if each has its own);
    gates are boxes with the name of the covariate and the cuts on the edges; splits of the targets are circles with a
    cross and the names of the targets on the edges; regions show their number of rows. Models that learn from a stream
    are drawn in their current state.

    Parameters
    ----------
    model
        A fitted `momostream.estimators.table.MOMoGPRegressor` or its core model, a `momostream.MOMoGPRegressor` or a
        `momostream.MOMoGPForecaster`.
    expert
        Name or position of one expert; None draws all of them below the root sum.
    inputs, outputs
        Names to use instead of those of the data. For models on a stream, ``inputs`` starts with the clock.
    ax
        Axes to draw into; None makes a figure that fits the circuit.
    max_nodes
        Most nodes to draw, upper levels first; nodes with an ellipsis count the rest.
    sideways
        Draw from left to right: leaves stand below each other, so that wide circuits fit a page.

    Returns
    -------
    matplotlib.figure.Figure
        The figure that holds the drawing.

    Examples
    --------
    >>> import numpy as np
    >>> from momostream.estimators.table import MOMoGPRegressor
    >>> x = np.linspace(0, 6, 40)
    >>> model = MOMoGPRegressor(("matern32",), n_components=1, max_points=20, random_state=0).fit(x[:, None], x**2)
    >>> figure = plot_circuit(model, inputs=["wind"])
    >>> print([text.get_text().replace(chr(10), ", ") for text in figure.axes[0].texts])
    ['wind', '≤ 3', '> 3', 'region 0, 20 rows', 'region 1, 20 rows']
    >>> figure.savefig("circuit.png")  # doctest: +SKIP
    """
    root = outline(model, expert, inputs, outputs, max_nodes)
    boxes = _lay_out_sideways(root) if sideways else _lay_out(root)
    left, right = min(box.left for box in boxes), max(box.right for box in boxes)
    bottom, top = min(box.y for box in boxes) - 0.45 * LEVEL_HEIGHT, max(box.y for box in boxes) + 0.3 * LEVEL_HEIGHT
    shrink = 1.0
    if ax is None:
        ax = new_axes(max(right - left, 2.0), max(top - bottom, 1.0))
    else:
        # Letters shrink with the available room, so that neighbours do not overlap.
        room = ax.get_position().size * figure_of(ax).get_size_inches()
        shrink = min(1.0, room[0] / (right - left), room[1] / (top - bottom))
    ax.set_axis_off()
    ax.set(xlim=(left, right), ylim=(bottom, top))
    _draw(ax, boxes, FONT_SIZE * shrink, _turned_edge if sideways else _edge)
    return figure_of(ax)


@dataclass
class _PlacedBox:
    """A box of the outline with its level and its position."""

    box: Box
    level: int
    children: list[_PlacedBox] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Inches that the texts need, with a gap to the next box."""
        return _text_width(f"{self.box.text}\n{self.box.edge}") + GAP_WIDTH

    @property
    def height(self) -> float:
        """Inches that the lines of text need, with a gap to the next box."""
        lines = max(self.box.text.count("\n"), self.box.edge.count("\n")) + 1
        return LINE_HEIGHT * lines + GAP_HEIGHT

    @property
    def left(self) -> float:
        return self.x - 0.5 * self.width

    @property
    def right(self) -> float:
        return self.x + 0.5 * self.width


def _text_width(text: str) -> float:
    return LETTER_WIDTH * max(map(len, text.split("\n")))


def _levels(root: Box) -> list[_PlacedBox]:
    """All boxes, level by level, without positions."""

    def place(box: Box, level: int) -> _PlacedBox:
        return _PlacedBox(box, level, [place(child, level + 1) for child in box.children])

    boxes = [place(root, 0)]
    for parent in boxes:
        boxes.extend(parent.children)
    return boxes


def _spread(boxes: list[_PlacedBox], axis: str, size: str) -> None:
    """Place boxes along an axis, in inches: leaves side by side, parents in the middle of their children."""
    end = 0.0

    def place(box: _PlacedBox) -> None:
        nonlocal end
        for child in box.children:
            place(child)
        if box.children:
            setattr(box, axis, 0.5 * (getattr(box.children[0], axis) + getattr(box.children[-1], axis)))
        else:
            setattr(box, axis, end + 0.5 * getattr(box, size))
            end += getattr(box, size)

    place(boxes[0])
    # A factor of all positions such that no two neighbours on a level overlap.
    neighbours = [pair for pair in pairwise(boxes) if pair[0].level == pair[1].level]
    overlaps = (
        0.5 * (getattr(a, size) + getattr(b, size)) / (getattr(b, axis) - getattr(a, axis)) for a, b in neighbours
    )
    unit = max(overlaps, default=1.0)
    for box in boxes:
        setattr(box, axis, unit * getattr(box, axis))


def _lay_out(root: Box) -> list[_PlacedBox]:
    """Place all boxes, in inches: the root at the top, leaves side by side."""
    boxes = _levels(root)
    _spread(boxes, "x", "width")
    for box in boxes:
        box.y = -LEVEL_HEIGHT * box.level
    return boxes


def _lay_out_sideways(root: Box) -> list[_PlacedBox]:
    """Place all boxes, in inches: the root at the left, leaves below each other."""
    boxes = _levels(root)
    _spread(boxes, "y", "height")
    right = 0.0
    for _, level in groupby(boxes, lambda box: box.level):
        column = list(level)
        wide = max(_text_width(box.box.text) for box in column)
        # Labels of edges stand before their boxes.
        right += max(_text_width(box.box.edge) for box in column) + 2.0 * GAP_WIDTH
        for box in column:
            box.x, box.y = right + 0.5 * _text_width(box.box.text), -box.y
        right += wide
    return boxes


# Corners of an edge along both axes, and the position of its label.
_Edge = tuple[list[float], list[float], tuple[float, float]]


def _edge(parent: _PlacedBox, child: _PlacedBox) -> _Edge:
    """Corners of the edge to a child below, and the position of its label."""
    # Bent edges: labels stand above their child, as far from each other as the children are.
    turn = parent.y - 0.38 * LEVEL_HEIGHT
    corners = [parent.x, parent.x, child.x, child.x], [parent.y, turn, turn, child.y]
    return *corners, (child.x, child.y + 0.43 * LEVEL_HEIGHT)


def _turned_edge(parent: _PlacedBox, child: _PlacedBox) -> _Edge:
    """Corners of the edge to a child on the right, and the position of its label."""
    own, label = 0.5 * _text_width(child.box.text), 0.5 * _text_width(child.box.edge)
    turn = parent.x + 0.5 * _text_width(parent.box.text) + 0.6 * GAP_WIDTH
    corners = [parent.x, turn, turn, child.x], [parent.y, parent.y, child.y, child.y]
    return *corners, (child.x - own - label - 0.8 * GAP_WIDTH, child.y)


def _draw(ax: Axes, boxes: list[_PlacedBox], font_size: float, edge: Callable[[_PlacedBox, _PlacedBox], _Edge]) -> None:
    text: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.15}
    for parent in boxes:
        symbol = parent.box.text in ("+", "×")
        colour, style = COLOURS[parent.box.kind], "circle,pad=0.2" if symbol else "round,pad=0.35"
        frame = {"boxstyle": style, "fc": colour, "ec": LINE, "lw": 0.8}
        ax.text(parent.x, parent.y, parent.box.text, size=1.3 * font_size if symbol else font_size, bbox=frame, **text)
        for child in parent.children:
            x, y, label = edge(parent, child)
            ax.plot(x, y, color=LINE, lw=0.8)
            if child.box.edge:
                blank = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
                ax.text(label[0], label[1], child.box.edge, size=0.9 * font_size, bbox=blank, **text)
