"""Circuits as nested boxes, each with a text and a label of the edge to it: for figures and for text.

Table models and models that learn from a stream have the same outline.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.batch.experts import CircuitExpert, LinearExpert
from momostream.batch.model import Model
from momostream.batch.nodes import GATE, KINDS, OUTPUTS, REGION, SUM, Circuit
from momostream.horizon.model import HorizonModel
from momostream.stream.leaf import Leaf
from momostream.stream.model import StreamModel
from momostream.stream.tree import Bundle, Gate, Sum, Tree

__all__ = [
    "Box",
    "Stream",
    "change_text",
    "core_of",
    "counted",
    "has_learnt",
    "lock_of",
    "named",
    "names_of",
    "outline",
]

Array = NDArray[np.float64]

# Most letters of a name in one line on an edge or in a box.
EDGE_LETTERS = 16
# Python breaks lines after hyphens, and names of columns have underscores in these places.
HYPHENS = str.maketrans("_-", "-_")
# Cells of a gate that are shown at its two ends: a feed that drifts is cut along time again and again.
FIRST_CELLS, LAST_CELLS = 2, 4


@dataclass
class Box:
    """A node: its text, and the label of the edge that leads to it."""

    kind: str
    text: str
    edge: str = ""
    children: list[Box] = field(default_factory=list)
    # Number of nodes of the circuit that it represents.
    n_nodes: int = 1

    def walk(self) -> list[Box]:
        """Return this box and all below it, upper levels first."""
        found, queue = [], deque([self])
        while queue:
            box = queue.popleft()
            found.append(box)
            queue.extend(box.children)
        return found


def outline(
    model: Any,
    expert: str | int | None = None,
    inputs: Sequence[Hashable] | None = None,
    outputs: Sequence[Hashable] | None = None,
    max_nodes: int = 40,
) -> Box:
    """The circuit of a model, or of one of its experts, from the top down; see `momostream.show.plots.plot_circuit`."""
    if max_nodes < 1:
        raise ValueError(f"max_nodes={max_nodes!r} is not accepted: use a whole number of at least 1")
    with lock_of(model):
        tree = _chosen(_trees(model, inputs, outputs), expert)
    return _cut_off(_shorten(tree), max_nodes)


class _Expert(NamedTuple):
    """An expert below the root sum."""

    name: str
    weight: float
    tree: Box
    # Label of the edge to it: its weight, and its name unless the box shows it.
    edge: str


def _trees(model: Any, inputs: Sequence[Hashable] | None, outputs: Sequence[Hashable] | None) -> list[_Expert]:
    stream = Stream.of(model)
    if stream is not None:
        return _stream_trees(
            stream, stream.inputs if inputs is None else inputs, stream.outputs if outputs is None else outputs
        )
    core = core_of(model)
    inputs = names_of(model, "_input_names") if inputs is None else inputs
    outputs = names_of(model, "_target_names") if outputs is None else outputs
    weights = np.exp(core.log_weights).reshape(len(core.experts), -1).mean(axis=1)
    return [
        _Expert(expert.name, weight, _expert_tree(expert, inputs, outputs), f"{expert.name}\n{weight:.2f}")
        for expert, weight in zip(core.experts, weights.tolist(), strict=True)
    ]


def _chosen(experts: list[_Expert], which: str | int | None) -> Box:
    """The tree of one expert, or all below a root sum."""
    names = [expert.name for expert in experts]
    if which is None and len(experts) == 1:
        return experts[0].tree
    if which is None:
        root = Box("sum", "+")
        for expert in experts:
            expert.tree.edge = expert.edge
            root.children.append(expert.tree)
        return root
    if which in names:
        return experts[names.index(str(which))].tree
    if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(names):
        return experts[which].tree
    raise ValueError(f"unknown expert {which!r}: the experts are {', '.join(map(repr, names))}")


def _expert_tree(
    expert: CircuitExpert | LinearExpert, inputs: Sequence[Hashable] | None, outputs: Sequence[Hashable] | None
) -> Box:
    if isinstance(expert, LinearExpert):
        return Box("region", "linear\nmodel")
    circuit, rows = expert.described(), [region.n_rows for region in expert.regions]

    def box_of(number: int) -> Box:
        node = circuit[number]
        box = Box(KINDS[node.kind], "")
        if node.kind == REGION:
            box.text = f"region {node.region}\n{counted(rows[node.region], 'row')}"
        elif node.kind == GATE:
            box.text = f"x{node.column}" if inputs is None else named(inputs[node.column], EDGE_LETTERS)
        else:
            box.text = "+" if node.kind == SUM else "×"
        for k, child in enumerate(node.children):
            below = box_of(child)
            below.edge = _edge_text(circuit, number, k, outputs)
            box.children.append(below)
        return box

    return box_of(circuit.root)


def _edge_text(circuit: Circuit, number: int, k: int, outputs: Sequence[Hashable] | None) -> str:
    """Label of the edge to child k; a cut needs no name, because its gate names the covariate."""
    node = circuit[number]
    if node.kind == SUM:
        assert node.log_weights is not None
        return f"{float(np.exp(node.log_weights[k]).mean()):.2f}"
    if node.kind == OUTPUTS:
        return _outputs_text(circuit[node.children[k]].outputs, outputs)
    return _cell_text(list(node.cuts), k)


def _outputs_text(owned: Iterable[int], outputs: Sequence[Hashable] | None) -> str:
    names = [f"y{p}" if outputs is None else named(outputs[p]) for p in owned]
    lines = textwrap.wrap(", ".join(names), EDGE_LETTERS)
    return "\n".join(lines if len(lines) <= 2 else [f"{lines[0]} …", counted(len(names), "output")])


def _cell_text(cuts: Sequence[float], k: int) -> str:
    """The values that belong to cell k of a gate."""
    texts = [_cut_text(cut) for cut in cuts]
    if k == 0:
        return f"≤ {texts[0]}"
    return f"> {texts[-1]}" if k == len(texts) else f"{texts[k - 1]} to\n{texts[k]}"


def _cut_text(cut: float) -> str:
    size = abs(cut)
    # Times are large numbers that differ in their last digits; a sine misses zero by rounding.
    return f"{cut:,.0f}" if 1e4 <= size < 1e12 else "0" if size < 1e-15 else f"{cut:.4g}"


def _stream_trees(stream: Stream, inputs: Sequence[Hashable], outputs: Sequence[Hashable]) -> list[_Expert]:
    found = []
    for name, weight in zip(stream.experts, stream.weights.tolist(), strict=True):
        tree = stream.trees.get(name)
        if tree is None:
            found.append(_Expert(name, weight, Box("region", named(name, EDGE_LETTERS)), f"{weight:.2f}"))
        else:
            box = _stream_box(tree.root, inputs[tree.start :], outputs)
            found.append(_Expert(name, weight, box, f"{named(name, EDGE_LETTERS)}\n{weight:.2f}"))
    return found


def _stream_box(node: Leaf | Gate | Sum | Bundle, inputs: Sequence[Hashable], outputs: Sequence[Hashable]) -> Box:
    if isinstance(node, Leaf):
        return Box("region", f"GP\n{counted(node.n_rows, 'row')}")
    children = [_stream_box(child, inputs, outputs) for child in node.children]
    if isinstance(node, Gate):
        box, edges = (
            Box("gate", named(inputs[node.column], EDGE_LETTERS)),
            [_cell_text(node.cuts, k) for k in range(len(children))],
        )
    elif isinstance(node, Sum):
        box, edges = Box("sum", "+"), [f"{weight:.2f}" for weight in np.exp(node.log_weights).mean(axis=1)]
    else:
        box, edges = Box("outputs", "×"), [_outputs_text(_owned(child), outputs) for child in node.children]
    for child, edge in zip(children, edges, strict=True):
        child.edge = edge
    box.children = children
    return box


def _owned(node: Leaf | Gate | Sum | Bundle) -> list[int]:
    """Positions of the targets of a node."""
    if isinstance(node, Leaf):
        return node.targets.tolist()
    if isinstance(node, Bundle):
        return sorted(p for child in node.children for p in _owned(child))
    return _owned(node.children[0])


def _shorten(root: Box) -> Box:
    """Keep only the outer cells of gates with many cells."""
    for box in root.walk():
        if box.kind == "gate" and len(box.children) > FIRST_CELLS + LAST_CELLS + 1:
            hidden = box.children[FIRST_CELLS:-LAST_CELLS]
            box.children[FIRST_CELLS:-LAST_CELLS] = [_more(hidden)]
    return root


def _more(hidden: list[Box]) -> Box:
    """One box that replaces several boxes and everything below them."""
    n_nodes = sum(box.n_nodes for child in hidden for box in child.walk())
    return Box("more", f"…\n{n_nodes} more", n_nodes=n_nodes)


def _cut_off(root: Box, max_nodes: int) -> Box:
    """Keep the first boxes, upper levels first; hidden children of a box become one box that counts them."""
    every = root.walk()
    kept = {id(box) for box in every[:max_nodes]}
    for box in every[:max_nodes]:
        hidden = [child for child in box.children if id(child) not in kept]
        if hidden:
            box.children = [child for child in box.children if id(child) in kept] + [_more(hidden)]
    return root


class Stream(NamedTuple):
    """The parts of a streaming model that an outline shows."""

    experts: tuple[str, ...]
    # The mean over the targets.
    weights: Array
    # By expert; experts without a circuit have none.
    trees: dict[str, Tree]
    # Names of the columns of the points, the clock first, and of the targets of the trees.
    inputs: list[Hashable]
    outputs: list[Hashable]

    @classmethod
    def of(cls, model: Any) -> Stream | None:
        """The parts of a model; None if it is a table model."""
        if not hasattr(model, "learn_one"):
            return None
        core = model._model
        if isinstance(core, StreamModel):
            experts = core.settings.expert_names
            trees = dict(zip(experts, core.trees, strict=False))
            names: list[Hashable] = ["clock", *model._inputs.keys]
            return cls(experts, core.root_weights().mean(axis=1), trees, names, list(model._targets.keys))
        if isinstance(core, HorizonModel):
            outputs: list[Hashable] = [
                f"{name}, step {step}" for step in range(1, core.settings.horizon + 1) for name in model.series
            ]
            names = model._point_names(core)
            return cls(core.expert_names, core.weights.mean(axis=(1, 2)), core.experts.trees, names, outputs)
        raise ValueError(f"this {type(model).__name__} has learnt no row yet")


def has_learnt(model: Any) -> bool:
    """Whether a streaming model has a circuit yet: it has none before the first value of a target."""
    return model._model is not None


def lock_of(model: Any) -> AbstractContextManager[Any]:
    """Hold this while reading the model: another thread may be learning."""
    lock: AbstractContextManager[Any] = getattr(model, "_lock", nullcontext())
    return lock


def core_of(model: Any) -> Model:
    """The fitted core model of a table estimator, or the model itself."""
    core = getattr(model, "model_", model)
    if not isinstance(core, Model) or not core.experts:
        raise ValueError(f"this {type(model).__name__} is not fitted: call fit first")
    return core


def names_of(model: Any, getter: str) -> list[str] | None:
    """Names that the estimator knows; the core model has none."""
    names: list[str] | None = getattr(model, getter)() if hasattr(model, getter) else None
    return names


def named(name: Hashable, width: int = 60, n_lines: int = 2) -> str:
    """A name as text of a figure: at most ``n_lines`` lines of ``width`` letters, cut off if it is longer.

    >>> print(named("bearing temperature of the gearbox, drive end", 20))
    bearing temperature
    of the gearbox, dri…
    >>> print(named("generator_temperature", 20))
    generator_
    temperature
    """
    text = str(name)
    swapped = HYPHENS if "_" in text else {}
    lines = [line.translate(swapped) for line in textwrap.wrap(text.translate(swapped), width)] or [""]
    if len(lines) > n_lines:
        rest = " ".join(lines[n_lines - 1 :])
        lines = [*lines[: n_lines - 1], f"{rest[: width - 1]}…"]
    # Matplotlib reads a pair of dollar signs as a formula.
    return "\n".join(lines).replace("$", r"\$")


def counted(number: int, what: str) -> str:
    """A number with its noun, in the plural if needed.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def change_text(ratio: float, digits: int = 0) -> str:
    """A ratio as a change in per cent.

    >>> change_text(0.58), change_text(1.034, 1), change_text(float("nan"))
    ('−42 %', '+3.4 %', '–')
    """
    return "–" if ratio != ratio else f"{100.0 * (ratio - 1.0):+.{digits}f} %".replace("-", "−")
