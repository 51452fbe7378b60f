"""Sums do not depend on where arrays lie: loops that add and write vectorise only where they are far enough apart."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.kernels.likelihood import search_direction
from momostream.kernels.stack import tilt_to_blend


def direction_of(n, rng):
    """Arguments of the first step of a search, the last of which is written."""
    far, none = np.full(n, 9.0), np.empty((0, n))
    return [-far, far, rng.normal(size=n), rng.normal(size=n), none, none, 2.0, np.empty(0), np.zeros(n)]


def tilted(n, rng):
    planes = np.abs(rng.normal(size=(5, n, 1))) + 0.1
    planes[4] /= planes[4].sum()
    blend, told = rng.random((1, n + 1)), np.zeros((2 * n + 1, 1))
    return [blend, np.zeros((3, n, 1)), np.full((4, 1), 1e3), planes, np.full(1, 0.3), told]


def call_tilt(weights, mixing, outputs, planes, mean, told):
    tilt_to_blend(weights, mixing, outputs, planes, told, mean)


def placed(arguments, near, gap):
    """Copies of arguments in one array, the last of them so many numbers after the end of another one."""
    arrays = [k for k, argument in enumerate(arguments) if isinstance(argument, np.ndarray)]
    room, at, found = np.zeros(20_000), 0, list(arguments)
    for k in [*(k for k in arrays[:-1] if k != near), near, arrays[-1]]:
        at += gap if k == arrays[-1] else 64
        found[k] = room[at : at + arguments[k].size].reshape(arguments[k].shape)
        found[k][...] = arguments[k]
        at += arguments[k].size
    return found


def numbers_by_place(kernel, arguments):
    """All that a kernel leaves, for many places of the array that it writes."""
    found = set()
    for near in [k for k, argument in enumerate(arguments[:-1]) if isinstance(argument, np.ndarray)]:
        for gap in (*range(0, 40, 2), 5000):
            given = placed(arguments, near, gap)
            kernel(*given)
            found.add(b"".join(array.tobytes() for array in given if isinstance(array, np.ndarray)))
    return found


@pytest.mark.skipif(not hasattr(search_direction, "signatures"), reason="kernels are not compiled")
@pytest.mark.parametrize("n", [8, 10, 13, 24])
@pytest.mark.parametrize(("kernel", "draw"), [(search_direction, direction_of), (call_tilt, tilted)])
def test_neighbours_in_memory_give_the_same_bits(kernel, draw, n):
    rng = np.random.default_rng(0)
    for _ in range(10):
        assert len(numbers_by_place(kernel, draw(n, rng))) == 1
