"""Stores for the tests: an empty path, and a store with something in it."""

from __future__ import annotations

import pytest

from momostream.storage.store import DeadLetter, Output, Position, Store
from tests.storage.stores import small


@pytest.fixture
def path(tmp_path):
    return tmp_path / "farm.store"


@pytest.fixture
def filled(path):
    outputs = [Output("T01", 10 * n, f"power {n}") for n in range(20)]
    dead = [DeadLetter("farm", 7, None, "no key", "a,b"), DeadLetter("farm", 9, ("T", 1), "too large", "1e99")]
    with Store(path, block_bytes=1024) as opened:
        models = {"T01": small(60), ("T", 1): small(30, 1)}
        opened.commit(models, Position("farm", 200, 90, 2, {"track": [1, None]}), outputs, dead, {"kin": [1.5]})
    return path
