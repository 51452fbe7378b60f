"""Reports on a row model by the names of inputs and targets: hyper-parameters, relevance, reasons, text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.bounded import TargetMap
from momostream.stream.model import StreamModel

__all__ = ["by_expert", "describe_model", "explain_prediction", "leaf_hyperparameters", "relevance_of_inputs"]

Array = NDArray[np.float64]
Names = Sequence[Hashable]


def by_expert(model: StreamModel, values: Array, targets: Names) -> dict[str, dict[Hashable, float]]:
    """Numbers of shape (n_experts, n_targets) by the names of experts and targets."""
    return {
        name: dict(zip(targets, row.tolist(), strict=True))
        for name, row in zip(model.settings.expert_names, values, strict=True)
    }


def leaf_hyperparameters(model: StreamModel, inputs: Names, targets: Names) -> list[dict[str, Any]]:
    """Expert, rows, targets, lengthscales by input, and noise ratio of each leaf."""
    names = ("clock", *inputs)
    return [
        {
            "expert": expert,
            "rows": leaf.n_rows,
            "targets": [targets[p] for p in leaf.targets],
            "lengthscales": dict(
                zip(names[tree.start :], leaf.covariance.lengthscales(leaf.own_theta).tolist(), strict=True)
            ),
            "noise": leaf.covariance.noise(leaf.own_theta),
        }
        for expert, tree in zip(model.settings.expert_names, model.trees, strict=False)
        for leaf in tree.leaves()
    ]


def relevance_of_inputs(model: StreamModel, inputs: Names) -> dict[Hashable, float]:
    """Share of each input in distinguishing rows; empty if nothing varies."""
    if not model.trees:
        return {}
    total = np.zeros(1 + model.n_inputs)
    # Never zero: circuits that have lost all weight still distinguish rows.
    for tree, weights in zip(model.trees, model.root_weights() + 1e-12, strict=False):
        for leaf in tree.leaves():
            X, _ = leaf.data()
            varying = (X != X[:1]).any(axis=0)
            # A leaf in which nothing varies has no say.
            if varying.any():
                squares = np.where(varying, X.std(axis=0) * leaf.covariance.inverse_lengths(leaf.own_theta), 0.0) ** 2
                total[tree.start :] += leaf.n_rows * weights[leaf.targets].sum() * squares / squares.sum()
    if not total.any():
        return {}
    first = min(tree.start for tree in model.trees)
    shares = total[first:] / total.sum()
    return dict(zip(("clock", *inputs)[first:], shares.tolist(), strict=True))


def explain_prediction(
    model: StreamModel, inputs: Names, targets: Names, target_map: TargetMap, n_neighbours: int
) -> dict[str, Any]:
    """Reasons for the last prediction of the model."""
    shares, relevance, neighbours = model.explain(n_neighbours)
    return {
        "experts": by_expert(model, shares, targets),
        "relevance": dict(zip(("clock", *inputs), relevance.tolist(), strict=True)),
        "neighbours": [
            {
                "row": number,
                "similarity": similarity,
                "x": dict(zip(inputs, point[1:].tolist(), strict=True)),
                "y": dict(zip(targets, target_map.backward(y).tolist(), strict=True)),
            }
            for number, similarity, point, y in neighbours
        ],
    }


def describe_model(model: StreamModel) -> list[str]:
    """Lines about rows, experts with their weights, leaves and memory."""
    lines = [
        f"{model.n_learnt} rows learnt, {len(model.rows)} kept; {model.n_inputs} inputs, {model.n_targets} targets"
    ]
    weights = model.root_weights().mean(axis=1)
    for k, name in enumerate(model.settings.expert_names):
        text = f"  {name:>16s}  weight {weights[k]:.3f}"
        if k < len(model.trees):
            tree = model.trees[k]
            sizes = [leaf.n_rows for leaf in tree.leaves()]
            text += f"  {len(sizes)} leaves of at most {max(sizes)} rows, depth {tree.depth}"
        lines.append(text)
    return [*lines, f"  {model.nbytes / 1e6:.1f} MB, {len(model.jobs)} jobs waiting"]
