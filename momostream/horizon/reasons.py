"""Reasons for the forecast of the newest row: experts, inputs, and the stored rows that resemble it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream.horizon.model import HorizonModel

__all__ = ["Reasons", "reasons_of"]

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
    relevance = np.zeros(len(point))
    similarity: dict[int, float] = {}
    points: dict[int, Array] = {}
    for part, circuits in model.experts.circuits.items():
        first = model.experts.at[part].start
        for k, tree in enumerate(circuits.trees):
            view = point[tree.start :]
            # Never zero: circuits that have lost all weight still know which rows are alike.
            weight = weights[first + k].mean() + 1e-12
            for leaf in tree.reached(view):
                X, _ = leaf.data()
                if not len(X):
                    continue
                relevance[tree.start :] += weight * (X.std(axis=0) * leaf.inputs[1]) ** 2
                gathered, _ = circuits.rows.gather(np.asarray(leaf.numbers, dtype=np.int64))
                for row, value in zip(gathered, leaf.similarity(X, view), strict=True):
                    number = round(float(row[0]))
                    similarity[number] = max(similarity.get(number, 0.0), float(value))
                    points[number] = row
    nearest = sorted(similarity, key=lambda number: -similarity[number])[:n_neighbours]
    total = relevance.sum()
    now = model.past.inputs[model.past.last, 0, : model.n_inputs]
    return Reasons(
        weights,
        made.located[:, step - 1],
        (made.blend_slope[step - 1] @ model.inputs.slopes(now, model._ahead.terms[step])).T,
        relevance / total if total > 0.0 else relevance,
        [(number, similarity[number], points[number]) for number in nearest],
    )
