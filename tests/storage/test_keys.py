"""Keys of models: they come back as they are, and others are rejected."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.storage.store import Output, Store, plain_key
from tests.storage.stores import small


@pytest.mark.parametrize("key", ["T01", "", "é\n'\"\ud800", 0, -7, 1 << 70, ("farm", 3), (("a", 1), "b"), ("1",), (1,)])
def test_keys_come_back_as_they_are(path, key):
    with Store(path) as opened:
        opened.commit({key: small(2)})
        assert opened.keys() == [key]
        assert type(opened.keys()[0]) is type(key)
        assert key in opened
        assert opened.load(key).n_rows == 2


@pytest.mark.parametrize("key", [3.5, 1.0, True, None, b"T01", ("a", 2.5), ("a", (True,)), ["a"], frozenset("a")])
def test_other_keys_are_rejected(path, key):
    with Store(path) as opened:
        for call in (opened.load, opened.delete, opened.__contains__, plain_key):
            with pytest.raises(TypeError):
                call(key)
        with pytest.raises(TypeError):
            opened.commit({"T01": small(2)}, outputs=[Output(key, 1, "")])
        assert opened.keys() == []


def test_numbers_of_numpy_are_numbers(path):
    with Store(path) as opened:
        opened.commit({np.int64(3): small(2)})
        assert opened.keys() == [3]
        assert 3 in opened
        assert "3" not in opened


def test_a_text_and_a_number_are_two_keys(path):
    with Store(path) as opened:
        opened.commit({"1": small(3), 1: small(4)})
        assert [opened.load("1").n_rows, opened.load(1).n_rows, len(opened)] == [3, 4, 2]
