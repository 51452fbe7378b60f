"""Routes of many rows are those of each row, by bisection at each gate."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest

from momostream.stream.nodes import Bundle, Gate
from momostream.stream.routes import Routes


def grown(rng, depth):
    """A random tree of gates over ends that are bundles without children."""
    if depth == 0 or rng.random() < 0.2:
        return Bundle([], [], is_region=False)
    cuts = sorted(rng.normal(size=rng.integers(1, 5)).round(1).tolist())
    return Gate(int(rng.integers(3)), cuts, [grown(rng, depth - 1) for _ in range(len(cuts) + 1)])


def end_of(node, x):
    while isinstance(node, Gate):
        node = node.children[bisect_left(node.cuts, x[node.column])]
    return node


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("n_rows", [0, 1, 200])
def test_each_row_finds_its_end(depth, n_rows):
    rng = np.random.default_rng(depth)
    root = grown(rng, depth)
    # Rounded: many values lie on a cut.
    X = rng.normal(size=(n_rows, 3)).round(1)
    found = Routes(root).find(X)
    assert sorted(np.concatenate([inside for _, inside in found], dtype=int).tolist() if found else []) == [
        *range(n_rows)
    ]
    for node, inside in found:
        assert all(end_of(root, X[i]) is node for i in inside)
        assert list(inside) == sorted(inside)
    # In the order of their first rows.
    assert [inside[0] for _, inside in found] == sorted(inside[0] for _, inside in found)
