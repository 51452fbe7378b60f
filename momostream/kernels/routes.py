"""Routes of many rows through the gates of a circuit."""

from __future__ import annotations

from momostream.kernels._compile import i8, kernel, ro, rw, void, whole

__all__ = ["route_rows"]


@kernel(void(ro(2), whole, whole, whole, ro(1), whole, rw(1, i8)))
def route_rows(X, columns, starts, below, cuts, children, found):
    """Set ``found[i]`` to the number of the node that row `i` of `X` ends in.  O(log cells) for each gate on its way.

    Gate `g` looks at ``columns[g]``; its cuts begin at ``starts[g]`` and end where those of the next gate begin, its
    children begin at ``below[g]``. A child is a gate if it is not negative, and else the end of number ``-1 - child``.
    """
    for i in range(X.shape[0]):
        node = 0
        while node >= 0:
            value = X[i, columns[node]]
            low = starts[node]
            high = starts[node + 1]
            # The first cut that is not below the value.
            while low < high:
                middle = (low + high) // 2
                if cuts[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            node = children[below[node] + low - starts[node]]
        found[i] = -1 - node
