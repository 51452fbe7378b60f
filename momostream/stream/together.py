"""Many rows predicted by the leaves that they go to, in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.block import TILE, predict_leaves
from momostream.stream.leaf import Leaf
from momostream.stream.tokens import NO_TOKEN

__all__ = ["predict_together"]

Array = NDArray[np.float64]


def predict_together(
    leaves: Sequence[Leaf], parts: Sequence[NDArray[np.intp]], X: Array, location: Array, std: Array
) -> None:
    """Set location and standard deviation ``(n, n_targets)`` of rows ``X``: each leaf predicts the rows of its part.

    The leaves have factors (`Leaf.lend`). What they keep of a prediction is then about none of these rows: tokens
    become stale.
    """
    table = np.empty((len(leaves), 2), dtype=np.int64)
    for k, leaf in enumerate(leaves):
        leaf.token = NO_TOKEN
        table[k] = leaf.book.address, leaf.n_rows
    ends = np.cumsum([len(part) for part in parts])
    scratch = np.empty((X.shape[1] + 2 * location.shape[1] + 1, TILE))
    most = int(table[:, 1].max())
    V, W = np.empty((most, TILE)), np.empty((most, TILE), dtype=np.float32)
    predict_leaves(X, np.concatenate(parts), ends, table, scratch, V, W, location, std)
