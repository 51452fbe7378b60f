"""Records: a bad row spoils only itself, and its message names it."""

from __future__ import annotations

import io
import math
import random
import tracemalloc

import pytest

from momostream.feeds import Feed, FeedError
from momostream.feeds.lines import MAX_LINE
from momostream.feeds.records import MAX_ROW_LINES
from tests.feeds.reading import error_of, read, skipping, values

GOOD = b"1,2\n"

BAD_ROWS = {
    "text": (b"1,x\n", ", column 'b': 'x' is not a number"),
    "too few cells": (b"1\n", ", column 'b': there are 1 cells instead of 2"),
    "too many cells": (b"1,2,\n", ": 3 cells instead of 2"),
    "encoding": (b"1,\xff2\n", ", column 'b': byte 10, 0xff, is not utf-8"),
    "NUL": (b"1,\x002\n", ": byte 10 is NUL"),
    "carriage return": (b"1,2\r3,4\n", ": there is a carriage return inside the row"),
    "quote inside": (b'1,"2"3\n', ": is not CSV: ',' expected after '\"'"),
    "long": (b"1," + b"9" * 10 * MAX_LINE + b"\n", ": the line is longer than 1048576 bytes"),
    "just too long": (b"1," + b"9" * (MAX_LINE - 2) + b"\n", ": the line is longer than 1048576 bytes"),
    "quote": (b'1,"2\n', ": a quoted cell is not closed"),
    "quote and long": (b'1,"2\n' + b"9" * 2 * MAX_LINE + b"\n", ": a quoted cell is not closed"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
@pytest.mark.parametrize("n_after", [0, 3])
def test_a_bad_row_spoils_itself_only(kind, n_after):
    line, problem = BAD_ROWS[kind]
    data = b"a,b\n" + GOOD + line + n_after * GOOD
    message = f"feed: row 2{problem}"
    for columns in (None, ["a", "b"]):
        assert error_of(data, columns) == message
        numbers, messages = skipping(data, columns)
        n_bad = len(messages)
        assert numbers == [1, *range(2 + n_bad, 2 + n_bad + n_after)]
        assert messages[0] == message
        assert n_bad == (2 if kind == "quote and long" else 1)


@pytest.mark.parametrize("last", [b"1,", b"1", b'1,"2', b"1,\xff"])
def test_a_last_row_that_is_cut_off(last):
    data = b"a,b\n" + GOOD + last
    assert [row.number for row in read(b"a,b\n" + GOOD + b"3,4")] == [1, 2]
    if last == b"1,":
        assert values(data)[-1] == {"a": 1.0}
    else:
        assert error_of(data).startswith("feed: row 2")


def test_an_open_quote_does_not_swallow_the_feed():
    numbers, messages = skipping(b"a,b\n" + GOOD + b'1,"2\n' + 5000 * GOOD, ["a"])
    assert numbers == [1, *range(3, 5003)]
    assert messages == ["feed: row 2: a quoted cell is not closed"]


def test_rows_between_two_stray_quotes_are_read():
    numbers, messages = skipping(b"a,b\n" + GOOD + b'1,"2\n' + 5 * GOOD + b'1,"2"\n' + GOOD, ["a"])
    assert numbers == [1, *range(3, 10)]
    assert messages == ["feed: row 2: is not CSV: ',' expected after '\"'"]


def test_rows_of_many_lines_have_an_end():
    text = "\n" * (MAX_ROW_LINES - 1)
    assert values(f'a,b\n1,"{text}"\n', ["a"]) == [{"a": 1.0}]
    assert "not closed" in error_of(f'a,b\n1,"{text}\n"\n', ["a"])


def test_open_quotes_in_all_rows_take_time_by_the_row():
    # Each line closes the quote of the one before and opens another one.
    numbers, messages = skipping(b"a,b\n" + 1000 * b'x","\n', ["a"])
    assert (numbers, len(messages)) == ([], 1000)


class Endless(io.RawIOBase):
    """A header, a line of `size` bytes, and a row."""

    def __init__(self, size):
        self._parts = [b"a,b\n", *[b"9" * (1 << 16)] * (size >> 16), b"\n3,4\n"]

    def readable(self):
        return True

    def read(self, size=-1):
        return self._parts.pop(0) if self._parts else b""


def test_long_lines_are_not_held_in_memory():
    tracemalloc.start()
    with Feed(Endless(100 * MAX_LINE), ["a"], bad_rows="skip") as feed:
        assert [row.number for row in feed] == [2]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * MAX_LINE


def test_a_line_of_the_longest_size():
    line = b"1,2" + b" " * (MAX_LINE - 4) + b"\n"
    assert len(line) == MAX_LINE
    assert values(b"a,b\n" + line) == [{"a": 1.0, "b": 2.0}]


def test_messages_are_short_and_of_one_line():
    data = 'a,"b\nc"\n1,"x\n\x1b\x85\u2028' + "y" * 1000 + '"\n'
    message = error_of(data, ["a", "b\nc"])
    assert message == "feed: row 1, column 'b\\nc': 'x\\n\\x1b\\x85\\u2028" + "y" * 32 + "...' is not a number"
    assert message.isprintable()


def test_reading_resumes_after_an_error():
    with Feed(io.BytesIO(b"a\n1\nx\n3\n"), ["a"]) as feed:
        with pytest.raises(FeedError, match="row 2"):
            list(feed)
        assert [row.number for row in feed] == [3]
        assert feed.n_bad == 0


def test_skipping_without_a_listener():
    with Feed(io.BytesIO(b"a\nx\n3\n"), ["a"], bad_rows="skip") as feed:
        assert ([row.number for row in feed], feed.n_bad) == ([2], 1)


def test_other_encodings():
    data = "name,gr\u00f6\u00dfe\nx,1\n".encode("latin-1")
    assert values(data, ["gr\u00f6\u00dfe"], encoding="latin-1") == [{"gr\u00f6\u00dfe": 1.0}]
    assert error_of(data) == "feed: header: byte 7, 0xf6, is not utf-8"
    # The second byte of this character is a bar.
    assert values("\u30dd|a\nx|1\n".encode("shift_jis"), encoding="shift_jis", delimiter="|") == [{"a": 1.0}]


def test_objects_that_are_nested_too_deeply_are_rejected():
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    with Feed(io.BytesIO(f'{{"a": 1}}\n{deep}\n'.encode()), ["a"], None) as feed:
        first, second = feed.events()
    assert first.values == {"a": 1.0} and second.reason == "is nested too deeply"


def test_a_rejected_row_is_reported_in_its_own_encoding():
    with Feed(io.BytesIO("a,place\nx,Köln 5°\n".encode("latin-1")), ["a"], None, encoding="latin-1") as feed:
        (rejected,) = feed.events()
    assert rejected.text == "x,Köln 5°"


def test_random_bytes_are_read_or_named():
    rng = random.Random(1)
    alphabet = [b"1", b"2.5", b",", b"\n", b'"', b"\r", b"x", b"\xff", b"\0", b"{", b"}", b'"a": ', b" ", b"-"]
    for _ in range(2000):
        data = b"a,b\n" + b"".join(rng.choices(alphabet, k=rng.randrange(30)))
        with Feed(io.BytesIO(data), ["a", "b"], bad_rows="skip") as feed:
            rows = list(feed)
        assert all(math.isfinite(value) for row in rows for value in row.values.values())
        assert [row.number for row in rows] == sorted({row.number for row in rows})
        assert all(row.offset <= len(data) for row in rows)
