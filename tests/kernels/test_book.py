"""Arrays by address: what a kernel finds in a book is what was put into it."""

from __future__ import annotations

import gc
from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from momostream.kernels._compile import f8, i8, kernel, ro
from momostream.kernels.book import AddressBook, cube, cubes, lines, matrix, singles, vector


@kernel(f8(ro(2, i8), i8))
def total(table, address):
    """Sum of one array of each kind, by the table and by its address, doubled in place."""
    other = lines(address, table.shape[0])
    v = vector(table, 0)
    for i in range(v.shape[0]):
        v[i] *= 2.0
    a = vector(other, 0).sum() + matrix(table, 1).sum() + cube(table, 2).sum() + cubes(table, 3).sum()
    return a + singles(table, 4).sum()


def arrays():
    shapes = (3,), (2, 4), (2, 0, 3), (1, 2, 2, 2)
    return [*(np.ones(shape) for shape in shapes), np.ones(7, np.float32)]


def test_a_kernel_reads_and_writes_the_arrays_of_a_book():
    kept = arrays()
    book = AddressBook(*kept)
    assert total(book.table, book.address) == 6.0 + 8.0 + 0.0 + 8.0 + 7.0
    assert_array_equal(kept[0], 2.0)


def test_a_book_keeps_its_arrays_alive():
    book = AddressBook(*arrays())
    gc.collect()
    assert total(book.table, book.address) == 29.0


def test_a_copy_is_about_copies():
    kept = arrays()
    book, copied = deepcopy((AddressBook(*kept), kept))
    total(book.table, book.address)
    assert_array_equal(copied[0], 2.0)
    assert_array_equal(kept[0], 1.0)


def test_an_array_that_is_not_in_order_has_no_line():
    with pytest.raises(ValueError, match="C order"):
        AddressBook(np.ones((2, 3)).T)


def test_a_line_takes_another_array():
    book = AddressBook(*arrays())
    book.replace(1, np.full((3, 5), 2.0))
    gc.collect()
    assert total(book.table, book.address) == 6.0 + 30.0 + 0.0 + 8.0 + 7.0
    with pytest.raises(ValueError, match="C order"):
        book.replace(1, np.ones((2, 3)).T)
