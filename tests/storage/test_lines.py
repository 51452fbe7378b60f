"""Numbered lines of a store: numbers continue, and lines are read by pages."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.storage import lines
from momostream.storage.container import FileFormatError
from momostream.storage.lines import Page
from momostream.storage.store import DeadLetter, Output, Store


def test_lines_are_numbered_on_and_read_by_pages(path, monkeypatch):
    monkeypatch.setattr(lines, "PAGE_LINES", 3)
    letters = [DeadLetter("farm", n, None if n % 2 else n, "why", str(n)) for n in range(6)]
    with Store(path) as opened:
        assert list(opened.outputs()) == []
        opened.commit({}, outputs=(Output("a", n, str(n)) for n in range(4)), dead=letters[:1])
        opened.commit({}, outputs=[Output(("b", 1), np.int64(4), "4")], dead=letters[1:])
        assert [(n, line.text) for n, line in opened.outputs()] == [(n + 1, str(n)) for n in range(5)]
        assert list(opened.outputs(after=4)) == [(5, Output(("b", 1), 4, "4"))]
        assert list(opened.outputs(after=5)) == list(opened.outputs(after=99)) == []
        assert list(opened.dead()) == list(enumerate(letters, 1))


def test_outputs_may_come_from_the_store_itself(path):
    with Store(path) as opened:
        opened.commit({}, outputs=[Output("a", 1, "x")])
        opened.commit({}, outputs=(line for _, line in opened.outputs()))
        assert [n for n, _ in opened.outputs()] == [1, 2]


def test_lines_that_have_arrived_are_forgotten_and_keep_their_numbers(path):
    with Store(path) as opened:
        opened.commit(outputs=[Output("T01", n, f"power {n}") for n in range(5)], alarms=[Output("T01", 3, "hot")])
        opened.forget("outputs", 3)
        opened.forget("alarms", 99)
        opened.forget("outputs", 2)
        assert list(opened.alarms()) == []
        opened.commit(outputs=[Output("T01", 9, "power 9")], alarms=[Output("T01", 9, "cold")])
    with Store(path, read_only=True) as opened:
        assert [number for number, _ in opened.outputs()] == [4, 5, 6]
        assert [number for number, _ in opened.outputs(5)] == [6]
        assert list(opened.alarms()) == [(2, Output("T01", 9, "cold"))]
        assert [opened.count(table) for table in lines.LINES] == [6, 2, 0]


def test_a_page_too_large_for_the_memory_is_refused_in_words(monkeypatch):
    # Seeds 89 and 71 of changed stores ended in a MemoryError.
    class Unpacker:
        def decompress(self, data, most):
            raise MemoryError("Unable to allocate output buffer.")

    page = Page.of(1, [["a", 1, "text"]])
    monkeypatch.setattr("momostream.storage.lines.zlib.decompressobj", Unpacker)
    with pytest.raises(FileFormatError, match="more than there is memory for"):
        list(page.lines())
