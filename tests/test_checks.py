"""Constraints of settings: values that they accept, and messages for all others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from momostream._checks import (
    at_least,
    check,
    check_settings,
    flag,
    instance_of,
    names,
    one_of,
    optional,
    positive,
    whole,
)

CASES = [
    (one_of("a", "b"), ["a", "b"], ["c", None, 1], "one of 'a', 'b'"),
    (whole(2), [2, np.int64(7), 10**30], [1, 2.0, True, "2", None], "a whole number of at least 2"),
    (whole(1, 4), [1, 4], [0, 5, True], "a whole number from 1 to 4"),
    (
        at_least(1.01),
        [1.01, 2, np.float64(3)],
        [1, float("inf"), float("nan"), True, "2", np.float32(3)],
        "a number of at least 1.01",
    ),
    (positive(1.0), [1e-9, 1, np.float64(0.5)], [0.0, 1.1, float("nan"), True], "a number above 0 and at most 1"),
    (flag(), [True, False, np.bool_(True)], [0, 1, "True", None], "True or False"),
    (
        names("rbf", "lags"),
        [("a",), ("a", "b")],
        [(), ["a"], "a", ("a", "a"), ("a", 1)],
        "a tuple of different names such as ('rbf', 'lags')",
    ),
    (instance_of(dict, "a dict"), [{}], [[], None], "a dict"),
    (optional(whole(0)), [None, 0], [-1, False], "a whole number of at least 0, or None"),
]


@pytest.mark.parametrize(("constraint", "accepted", "rejected", "use"), CASES, ids=[case[3] for case in CASES])
def test_constraints(constraint, accepted, rejected, use):
    for value in accepted:
        check("setting", value, constraint)
    for value in rejected:
        with pytest.raises(ValueError) as caught:
            check("setting", value, constraint)
        assert str(caught.value) == f"setting={value!r} is not accepted: use {use}"


def test_a_table_is_checked_in_its_order():
    table = {"second": whole(1), "first": flag()}
    check_settings(SimpleNamespace(first=True, second=1), table)
    with pytest.raises(ValueError, match="second=0"):
        check_settings(SimpleNamespace(first=None, second=0), table)
