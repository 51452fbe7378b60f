"""Columns that are made once: the same names, and nothing of another frame."""

from __future__ import annotations

import pandas as pd

from momostream.distributions.columns import paired_columns, series_columns


def test_same_as_made_each_time():
    for series in (("a", "b"), (1, 2), (("a", 1), ("b", 2)), (1, "a")):
        expected = pd.MultiIndex.from_product([list(series), [0.1, 0.9]])
        pd.testing.assert_index_equal(paired_columns(series, [0.1, 0.9]), expected)
        plain = pd.Index(list(series), tupleize_cols=False)
        pd.testing.assert_index_equal(series_columns(series), plain)
        # From memory.
        pd.testing.assert_index_equal(paired_columns(series, [0.1, 0.9]), expected)


def test_equal_names_of_other_types_are_other_columns():
    for names in ((1, 2), (1.0, 2.0), (True, 2), ((1,), (2,)), ((1.0,), (2,))):
        assert [type(name) for name in series_columns(names)] == [type(name) for name in names]
        firsts = [pair[0] for pair in paired_columns(names, ["lower"])]
        assert repr(firsts) == repr([pair[0] for pair in pd.MultiIndex.from_product([list(names), ["lower"]])])


def test_names_given_to_columns_of_a_frame_do_not_come_back():
    columns = paired_columns(("a", "b"), ["lower", "upper"])
    columns.names = ["series", "side"]
    assert list(paired_columns(("a", "b"), ["lower", "upper"]).names) == [None, None]
    plain = series_columns(("a", "b"))
    plain.name = "series"
    assert series_columns(("a", "b")).name is None


def test_tuples_of_different_lengths_are_names():
    series = (("level", 2), ("a", 1, "x"), "plain")
    assert list(paired_columns(series, ["lower"])) == [(name, "lower") for name in series]
    assert list(series_columns(series)) == list(series)
