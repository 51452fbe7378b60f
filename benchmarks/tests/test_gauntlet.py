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
        [{"part": "bytes", "seconds": 0.0, "cpu": 0.0, **gauntlet.about(), **result}]
    )


def test_sums_are_held_against_what_must_be_reached():
    def batch(kind: str, first: int, n: int, wrong: dict[int, str] | None = None) -> dict[str, object]:
        found = {"part": "kills", "kind": kind, "seeds": [first, first], "counts": {"kills": n}, "wrong": wrong or {}}
        return {**found, "seconds": 1800.0, "cpu": 900.0, **gauntlet.about()}

    kept = [batch("memory", 0, 700, {0: "different"}), batch("memory", 0, 800), batch("no memory", 0, 100)]
    assert "* 900 kills, at least 1,000: MISS" in gauntlet.report(kept)
    text = gauntlet.report([*kept, batch("no memory, double", 0, 100)])
    # The first batch was repeated: neither its kills nor its failure count.
    assert "* 1,000 kills, at least 1,000: PASS" in text
    assert "* 200 kills with memory pressure, at least 200: PASS" in text
    assert "* 0 random calls, at least 1,000,000: MISS" in text
    assert "* 0 failures in all parts, none allowed: PASS" in text
    assert "1.50 hours, 0.75 of CPU" in text
