"""Arrays by address: a kernel that needs many of them takes one table instead, as each array in a call costs .075 us.

An `AddressBook` has a line for each array, its address and its lengths, and keeps the arrays alive. Inside a kernel,
`vector`, `matrix`, `cube` and `cubes` turn lines into arrays again. A book does not follow an owner that replaces an
array: the owner makes a new book.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numba import types
from numba.core import config
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from momostream.kernels._code import extensions

__all__ = ["AddressBook", "cube", "cubes", "lines", "matrix", "singles", "vector"]

# An address and up to four lengths.
WIDTH = 5


class AddressBook:
    """Addresses and lengths of arrays, one line each.

    Attributes
    ----------
    table
        The lines, for kernels.
    address
        Where the table lies, for kernels that are given several books.

    Examples
    --------
    >>> book = AddressBook(np.arange(3.0), np.zeros((2, 4)))
    >>> book.table[:, 1:].tolist()
    [[3, 0, 0, 0], [2, 4, 0, 0]]
    """

    __slots__ = ("_arrays", "address", "table")

    def __init__(self, *arrays: Any) -> None:
        self._arrays = arrays
        self.table = np.array([_line(array) for array in arrays], dtype=np.int64)
        self.address = _address(self.table)

    def replace(self, line: int, array: Any) -> None:
        """Write another array of as many dimensions into a line."""
        arrays = list(self._arrays)
        arrays[line] = array
        self._arrays = tuple(arrays)
        self.table[line] = _line(array)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is about the copies of the arrays.
        return AddressBook, self._arrays


def _line(array: Any) -> tuple[int, ...]:
    if not array.flags.c_contiguous:
        raise ValueError("only arrays in C order can be found again by their address")
    return (_address(array), *array.shape, *(0,) * (WIDTH - 1 - array.ndim))


def _address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


# ---------------------------------------------------------------------- inside kernels


def _reader(number: Any, n_dimensions: int) -> Any:
    """A function of a table and a number `k` that gives the array in line `k`, which has these dimensions."""
    if config.DISABLE_JIT:
        return lambda table, k: _at(table[k, 0], table[k, 1 : 1 + n_dimensions], number)
    array = types.Array(number, n_dimensions, "C")

    @intrinsic
    def read(_, table, k):
        def generate(context, builder, signature, arguments):
            entries = context.make_array(table)(context, builder, arguments[0]).data
            line = builder.mul(arguments[1], context.get_constant(types.int64, WIDTH))

            def entry(j):
                return builder.load(builder.gep(entries, [builder.add(line, context.get_constant(types.int64, j))]))

            return _made(context, builder, array, entry(0), [entry(1 + j) for j in range(n_dimensions)])

        return array(table, types.int64), generate

    return read


def _line_reader() -> Any:
    """A function of an address and a number `n` that gives the first `n` lines of the book there."""
    if config.DISABLE_JIT:
        return lambda address, n: _at(address, (n, WIDTH), types.int64)
    array = types.Array(types.int64, 2, "C")

    @intrinsic
    def read(_, address, n):
        def generate(context, builder, signature, arguments):
            width = context.get_constant(types.int64, WIDTH)
            return _made(context, builder, array, arguments[0], [arguments[1], width])

        return array(types.int64, types.int64), generate

    return read


def _made(context: Any, builder: Any, array: Any, address: Any, lengths: list[Any]) -> Any:
    """Code that makes an array of an address and its lengths."""
    size = context.get_constant(types.int64, array.dtype.bitwidth // 8)
    strides = [size]
    for length in lengths[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    made = context.make_array(array)(context, builder)
    populate_array(
        made,
        data=builder.inttoptr(address, made.data.type),
        shape=lengths,
        strides=strides,
        itemsize=size,
        meminfo=None,
    )
    return made._getvalue()


def _at(address: int, shape: Any, number: Any) -> Any:
    """An array by address, in interpreted kernels."""
    shape = [int(length) for length in shape]
    cells = np.ctypeslib.as_ctypes_type(str(number)) * math.prod(shape)
    return np.ctypeslib.as_array(cells.from_address(int(address))).reshape(shape)


#: Arrays of one to four dimensions, and one of single precision, by table and line; lines by address and number.
vector, matrix, cube, cubes = (_reader(types.float64, n_dimensions) for n_dimensions in range(1, WIDTH))
singles = _reader(types.float32, 1)
lines = _line_reader()

# Kernels that use them are compiled again after any change of this file.
_text = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
extensions.update(dict.fromkeys((vector, matrix, cube, cubes, singles, lines), _text))
