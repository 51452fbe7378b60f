"""Keys to columns: order, growth, what counts as a number, errors that change nothing, JSON and pickle."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections import ChainMap, Counter, OrderedDict, defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from momostream._numbers import LARGEST, as_number
from momostream.estimators.vocabulary import Vocabulary


def encoded(vocabulary, row):
    out = np.full(len(vocabulary), 99.0)
    return vocabulary.encode(row, out), out


def test_columns_do_not_depend_on_the_order_of_keys():
    keys = ["b", "a", ("lag", 2), 10, 9]
    expected = sorted(keys, key=repr)
    for order in permutations(keys):
        vocabulary = Vocabulary()
        columns = vocabulary.columns(order)
        assert vocabulary.keys == tuple(expected)
        assert columns == [expected.index(key) for key in order]


def test_new_keys_come_after_known_ones():
    vocabulary = Vocabulary()
    vocabulary.columns(["m", "z"])
    assert vocabulary.columns(["c", "z", "b", "c"]) == [3, 1, 2, 3]
    assert vocabulary.keys == ("m", "z", "b", "c") and len(vocabulary) == 4
    assert "b" in vocabulary and "x" not in vocabulary
    assert vocabulary.columns([]) == []


@pytest.mark.parametrize("n", [0, 1, 2, 8])
def test_row_is_written_in_column_order(n):
    row = {f"k{i}": float(i) for i in reversed(range(n))}
    vocabulary = Vocabulary()
    vocabulary.columns(row)
    unknown, out = encoded(vocabulary, row)
    assert unknown == ()
    assert_array_equal(out, np.arange(n))


def test_row_of_a_table_is_filled_in_place():
    vocabulary = Vocabulary(["a", "b"])
    table = np.zeros((3, 2))
    vocabulary.encode({"b": 2.0, "a": 1.0}, table[1])
    vocabulary.encode({"b": 4.0}, table[2])
    assert_array_equal(table, [[0.0, 0.0], [1.0, 2.0], [np.nan, 4.0]])


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), Decimal("nan"), pd.NA])
def test_missing_values_are_nan(missing):
    vocabulary = Vocabulary(["a", "b"])
    for row in ({"a": 1.0, "b": missing}, {"a": 1.0}, {"a": 1.0, "b": missing, "new": missing}):
        unknown, out = encoded(vocabulary, row)
        # A key gets a column when it has a value.
        assert unknown == ()
        assert_array_equal(out, [1.0, np.nan])


def test_unknown_keys_are_reported_not_registered():
    vocabulary = Vocabulary(["a", "b"])
    # As many keys as columns, too.
    for row, new in (({"a": 1, "c": 2, "d": None}, ("c",)), ({"c": 1, "d": 2}, ("c", "d")), ({"a": 1, "c": 2}, ("c",))):
        unknown, out = encoded(vocabulary, row)
        assert unknown == new
        assert_array_equal(out, [row.get("a", np.nan), np.nan])
    assert vocabulary.keys == ("a", "b")


@pytest.mark.parametrize(
    "value",
    [3, 3.0, np.int8(3), np.uint64(3), np.float16(3), np.float32(3), np.float64(3), Decimal(3), Fraction(3)],
)
def test_numbers_of_all_kinds(value):
    _, out = encoded(Vocabulary(["a", "b"]), {"a": value, "b": True})
    assert_array_equal(out, [3.0, 1.0])
    _, out = encoded(Vocabulary(["a", "b"]), {"a": value, "b": np.bool_(False)})
    assert_array_equal(out, [3.0, 0.0])


@pytest.mark.parametrize(
    "value",
    [
        "3.0",
        b"3",
        np.str_("3"),
        datetime(2020, 1, 1),
        timedelta(1),
        np.datetime64("2020-01-01"),
        np.timedelta64(3, "ns"),
        np.timedelta64(3),
        pd.NaT,
        1j,
        np.complex128(3.0),
        np.complex64(3.0),
        [3.0],
        (None,),
        {"nested": 3.0},
        np.array([3.0]),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_named(value):
    vocabulary = Vocabulary(["a", "b"])
    for row, name in (({"a": 1.0, "b": value}, "'b'"), ({"a": 1.0, "b": 2.0, ("new", 1): value}, r"\('new', 1\)")):
        out = np.full(2, 99.0)
        with pytest.raises(TypeError, match=rf"{name} is a {type(value).__name__}.*encode it first.*OneHotEncoder"):
            vocabulary.encode(row, out)
        assert_array_equal(out, 99.0)
        assert vocabulary.keys == ("a", "b")


@pytest.mark.parametrize(
    "value", [math.inf, -np.inf, np.float32("inf"), 1.01 * LARGEST, -1e300, 10**400, Decimal("1e60")]
)
@pytest.mark.parametrize("key", ["b", "new"])
def test_what_is_too_large_is_named(key, value):
    vocabulary = Vocabulary(["a", "b"])
    out = np.full(2, 99.0)
    with pytest.raises(ValueError, match=f"'{key}' is .*finite numbers up to 1e\\+30"):
        vocabulary.encode({"a": 1.0, key: value}, out)
    assert_array_equal(out, 99.0)
    assert vocabulary.keys == ("a", "b")


def test_large_numbers_are_accepted_up_to_the_bound():
    # Their norm is beyond the bound, they are not.
    row = {"a": LARGEST, "b": -LARGEST, "c": 1e-320}
    _, out = encoded(Vocabulary(row), row)
    assert_array_equal(out, list(row.values()))


@pytest.mark.parametrize("kind", [OrderedDict, Counter, lambda row: defaultdict(float, row), ChainMap])
def test_other_mappings(kind):
    vocabulary = Vocabulary(["a", "b"])
    row = kind({"a": 1.0, "c": 2.0})
    unknown, out = encoded(vocabulary, row)
    assert unknown == ("c",) and set(row) == {"a", "c"}
    assert_array_equal(out, [1.0, np.nan])


def test_what_is_no_row():
    vocabulary = Vocabulary(["a"])
    for row in ([1.0], pd.Series({"a": 1.0}), 3.0, None):
        with pytest.raises(TypeError, match="expected a dict, got"):
            vocabulary.encode(row, np.empty(1))
    for size in (0, 2):
        with pytest.raises(ValueError, match="room for 1 columns"):
            vocabulary.encode({"a": 1.0}, np.empty(size))


def test_numpy_keys_are_those_of_python():
    vocabulary = Vocabulary()
    vocabulary.columns([np.str_("b"), "a", np.int64(3), ("lag", np.int32(1)), np.bool_(True)])
    assert vocabulary.keys == ("a", "b", ("lag", 1), 3, True)
    assert [type(key) for key in vocabulary.keys] == [str, str, tuple, int, bool]
    assert type(vocabulary.keys[2][1]) is int
    assert vocabulary.columns(["b", 3]) == vocabulary.columns([np.str_("b"), np.int16(3)]) == [1, 3]
    unknown, out = encoded(Vocabulary(["a", "b"]), {np.str_("b"): 2.0, np.str_("a"): 1.0})
    assert unknown == () and out.tolist() == [1.0, 2.0]


KEYS = st.recursive(
    st.one_of(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@given(st.lists(KEYS, unique=True))
def test_state_goes_through_json(keys):
    vocabulary = Vocabulary(keys)
    again = Vocabulary.from_state(json.loads(json.dumps(vocabulary.state(), allow_nan=False)))
    assert repr(again.keys) == repr(vocabulary.keys)


def test_keys_that_cannot_be_saved_are_named_when_saving():
    for key in (None, b"raw", datetime(2020, 1, 1), frozenset({1}), ("a", None), math.inf):
        vocabulary = Vocabulary(["fine", key])
        assert encoded(vocabulary, {"fine": 1.0, key: 2.0})[1].tolist() == [1.0, 2.0]
        with pytest.raises(TypeError, match="cannot save the key"):
            vocabulary.state()
    with pytest.raises(ValueError, match="unknown type of key: 'bytes'"):
        Vocabulary.from_state([["bytes", "raw"]])
    with pytest.raises(ValueError, match="two columns"):
        Vocabulary.from_state([["str", "a"], ["str", "a"]])


def test_copies_grow_on_their_own():
    vocabulary = Vocabulary(["b", "a"])
    for twin in (pickle.loads(pickle.dumps(vocabulary)), copy.deepcopy(vocabulary)):
        assert twin.keys == ("b", "a")
        twin.columns(["c"])
        assert encoded(twin, {"a": 1.0, "b": 2.0, "c": 3.0})[1].tolist() == [2.0, 1.0, 3.0]
    assert len(vocabulary) == 2


def test_number_without_a_vocabulary():
    assert as_number("a", np.float32(0.5)) == 0.5 and type(as_number("a", np.int64(3))) is float
    assert as_number("a", LARGEST) == LARGEST


def test_a_row_of_known_keys():
    inputs = Vocabulary(["wind", "pitch"])
    assert inputs.has_all({})
    assert inputs.has_all({"pitch": 1.0, "wind": None})
    assert not inputs.has_all({"pitch": 1.0, "air": 1.0})
