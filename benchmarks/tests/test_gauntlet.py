"""Readers of the gauntlet, with bytes that went wrong once; its short form is among the benchmarks of tests/docs."""

from __future__ import annotations

import pytest

from benchmarks import gauntlet
from benchmarks.tools import gauntlet_bytes

# Those that went wrong once.
BYTES = [("influx", 284), ("influx", 791), ("values", 52), ("values", 308)]


@pytest.mark.parametrize(("reader", "seed"), BYTES)
def test_bytes_that_went_wrong_once(reader, seed):
    gauntlet_bytes.read(reader, seed)


def test_a_reader_that_goes_wrong_is_reported(monkeypatch):
    monkeypatch.setitem(gauntlet_bytes.READERS, "csv", lambda data: [][0])
    (result,) = gauntlet.bytes_(["csv"], range(3), True)
    assert set(result["wrong"]) == {0, 1, 2} and "IndexError" in result["wrong"][0]
    assert "`bytes --kind 'csv' --seed 2`" in gauntlet.report(
        [{"part": "bytes", "seconds": 0.0, **gauntlet.about(), **result}]
    )
