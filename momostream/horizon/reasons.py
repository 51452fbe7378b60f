"""Reasons for the forecast of the newest row: experts, inputs, and the stored rows that resemble it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.model import HorizonModel
from momostream.stream.circuits import Circuits
from momostream.stream.leaf import Leaf
from momostream.stream.tree import Tree

__all__ = ["Reasons", "reasons_of", "relevance_now"]

Array = NDArray[np.float64]


class Reasons(NamedTuple):
    """What a forecast of one step rests on.

    Attributes
    ----------
    weights, located
        Weight and forecast of each expert, shape ``(n_experts, n_series)``.
    slopes
        Change of the forecast for one unit more of each input, ``(n_inputs, n_series)``.
    relevance
        Share of the number of the row and of each coordinate in distinguishing rows, in the leaves that were used.
    neighbours
        Number of a row, similarity from 0 to 1, and its point, nearest first.
    """

    weights: Array
    located: Array
    slopes: Array
    relevance: Array
    neighbours: list[tuple[int, float, Array]]


def reasons_of(model: HorizonModel, step: int, n_neighbours: int) -> Reasons:
    """Reasons for the forecast of a step, counted from 1; the model stays as it is."""
    made = model._forecast()
    weights = model.weights[:, step - 1]
    point = model.point
    similarity: dict[int, float] = {}
    points: dict[int, Array] = {}
    for _, circuits, tree, leaf, X in _leaves_used(model):
        gathered, _ = circuits.rows.gather(np.asarray(leaf.numbers, dtype=np.int64))
        for row, value in zip(gathered, leaf.similarity(X, point[tree.start :]), strict=True):
            number = round(float(row[0]))
            similarity[number] = max(similarity.get(number, 0.0), float(value))
            points[number] = row
    nearest = sorted(similarity, key=lambda number: -similarity[number])[:n_neighbours]
    now = model.past.inputs[model.past.last, 0, : model.n_inputs]
    return Reasons(
        weights,
        made.located[:, step - 1],
        (made.blend_slope[step - 1] @ model.inputs.slopes(now, model._ahead.terms[step])).T,
        relevance_now(model, weights.mean(axis=1)),
        [(number, similarity[number], points[number]) for number in nearest],
    )


def relevance_now(model: HorizonModel, weights: Array) -> Array:
    """Share of the number of the row and of each coordinate in distinguishing rows, in the leaves that are used now.

    Parameters
    ----------
    model
        It stays as it is.
    weights
        Of each expert.

    Returns
    -------
    array
        Sums to one; zeros without circuits, and while all rows are alike.
    """
    relevance = np.zeros(len(model.point))
    for expert, _, tree, leaf, X in _leaves_used(model):
        # Never zero: circuits that have lost all weight still know which rows are alike.
        relevance[tree.start :] += (weights[expert] + 1e-12) * (X.std(axis=0) * leaf.inputs[1]) ** 2
    total = relevance.sum()
    return relevance / total if total > 0.0 else relevance


def _leaves_used(model: HorizonModel) -> Iterator[tuple[int, Circuits, Tree, Leaf, Array]]:
    """Expert, circuits, tree and rows of each leaf that the newest row belongs to."""
    point = model.point
    for part, circuits in model.experts.circuits.items():
        first = model.experts.at[part].start
        for k, tree in enumerate(circuits.trees):
            for leaf in tree.reached(point[tree.start :]):
                X, _ = leaf.data()
                if len(X):
                    yield first + k, circuits, tree, leaf, X
