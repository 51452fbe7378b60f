"""Feeds: every table reads back, every row tells where it ends, and nothing bad passes unnamed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import random
import re
import sys
import tracemalloc
import zlib
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from momostream.feeds import files as feeds
from momostream.feeds.files import MAX_LINE, Feed, FeedError, Row


class Pipe(io.RawIOBase):
    """Bytes that come in small pieces and never again."""

    def __init__(self, data, piece=7):
        self._data, self._piece = io.BytesIO(data), piece

    def readable(self):
        return True

    def readinto(self, buffer):
        chunk = self._data.read(min(len(buffer), self._piece))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def as_bytes(data):
    return data.encode() if isinstance(data, str) else data


def read(data, *args, **options):
    with Feed(io.BytesIO(as_bytes(data)), *args, **options) as feed:
        return list(feed)


def values(data, *args, **options):
    return [row.values for row in read(data, *args, **options)]


def times(data, **options):
    return [row.time for row in read(data, time="t", **options)]


def skipping(data, *args, **options):
    """Numbers of the good rows, and the messages of the bad ones."""
    messages = []
    with Feed(io.BytesIO(as_bytes(data)), *args, bad_rows="skip", on_bad=messages.append, **options) as feed:
        numbers = [row.number for row in feed]
        assert feed.n_bad == len(messages)
    return numbers, messages


def error_of(data, *args, **options):
    with pytest.raises(FeedError) as caught:
        read(data, *args, **options)
    return str(caught.value)


def write_csv(header, rows, **dialect):
    text = io.StringIO()
    writer = csv.writer(text, **dialect)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


# --- CSV ---------------------------------------------------------------------------------------------------------


def test_rows_say_where_they_end():
    data = b"time,a,b\r\n0,1.5,x\r\n\r\n1,,\r\n2,-2e3,y"
    rows = read(data)
    assert rows == [Row(1, 19, 0.0, {"a": 1.5}), Row(2, 26, 1.0, {}), Row(3, 34, 2.0, {"a": -2000.0})]
    assert [data[row.offset - 2 : row.offset] for row in rows] == [b"\r\n", b"\r\n", b",y"]


def test_a_header_without_rows():
    with Feed(io.BytesIO(b"time,a")) as feed:
        assert (feed.columns, feed.readings, list(feed)) == (("time", "a"), (), [])
    assert read("time,a\n", ["a"]) == []


def test_columns_are_read_in_the_order_asked_for():
    (row,) = values("a,b,c\n1,x,3\n", ["c", "a", "c"])
    assert [*row.items()] == [("c", 3.0), ("a", 1.0)]
    assert values("a,b\n1,2\n", []) == [{}]


def test_columns_of_numbers_are_found():
    data = "id,a,b,c,d\nT_1,,5,,\nT_2,1,x,NaN,\n"
    with Feed(io.BytesIO(data.encode()), bad_rows="skip") as feed:
        # d never has a value, b is a number at first.
        assert feed.readings == ("a", "b")
        assert [row.values for row in feed] == [{"b": 5.0}]


def test_columns_are_not_looked_for_beyond_the_first_rows():
    late = "a,b\n" + "1,\n" * feeds.LOOK_AHEAD + "1,1\n"
    assert all(list(row) == ["a"] for row in values(late))
    in_time = "a,b\n" + "1,\n" * (feeds.LOOK_AHEAD - 1) + "1,1\n"
    assert values(in_time)[-1] == {"a": 1.0, "b": 1.0}


def test_no_column_of_numbers():
    assert error_of("a,b\nx,y\n") == "feed: no column holds numbers in the first row"


@pytest.mark.parametrize("text", ["", " ", "NA", "na", "NaN", "nan", "-nan", "null", "NULL", "None", "N/A", "n/a", "-"])
def test_missing_readings_are_left_out(text):
    assert values(f"a,b\n{text},2\n", ["a", "b"]) == [{"b": 2.0}]


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1.0), (" -1.5 ", -1.5), ("+.5e-3", 0.0005), ("1e308", 1e308), ("-0", 0.0)]
)
def test_numbers(text, number):
    # Twice 1e308 has no finite sum, and is as good as any.
    assert values(f"a,b\n{text},{text}\n", ["a", "b"]) == [{"a": number, "b": number}]


@pytest.mark.parametrize("text", ["abc", "1_000", '"1,000"', "1 000", "0x10", "1.2.3", "--1", "true"])
def test_what_is_not_a_number(text):
    shown = text.strip('"')
    assert error_of(f"b,a\n2,{text}\n", ["a", "b"]) == f"feed: row 1, column 'a': {shown!r} is not a number"


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e999"])
def test_infinite_numbers_are_bad(text):
    assert error_of(f"a\n{text}\n", ["a"]) == f"feed: row 1, column 'a': {text!r} is not finite"


def test_decimal_comma():
    assert values("a;b\n1,5;2\n;-3,25e1\n", decimal=",") == [{"a": 1.5, "b": 2.0}, {"b": -32.5}]
    assert values('a,b\n"1,5",2\n', decimal=",", delimiter=",") == [{"a": 1.5, "b": 2.0}]
    for text in ("1.000,5", "1.5", "1,000,5"):
        assert "is not a number" in error_of(f"a;b\n{text};2\n", ["a"], decimal=",")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_in_the_header(delimiter):
    names = ["power, kW; gross|net\tx", "b", "c"]
    rows = write_csv(names, [[1, 2, 3]], delimiter=delimiter, quoting=csv.QUOTE_ALL)
    assert values(rows) == [dict(zip(names, [1.0, 2.0, 3.0], strict=True))]


def test_one_column_has_no_delimiter():
    assert values("a\n1\n\n2\n") == [{"a": 1.0}, {"a": 2.0}]
    assert values('a\n""\n1\n') == [{}, {"a": 1.0}]


def test_tabs_separate_whatever_else_the_header_of_a_tsv_holds(tmp_path):
    (tmp_path / "a.tsv").write_text("a, b, c\td\n1\t2\n")
    with Feed(tmp_path / "a.tsv") as feed:
        assert feed.columns == ("a, b, c", "d")


def test_a_line_of_tabs_is_a_row_of_empty_cells():
    assert [row.number for row in read("a\tb\n1\t2\n\t\n  \n3\t4\n")] == [1, 2, 3]


def test_quoted_cells_hold_delimiters_quotes_and_newlines():
    data = b'a,text,b\n1,"x, ""y""\n\n",2\n"3",5" pipe,"4"\n'
    rows = read(data)
    assert [row.values for row in rows] == [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]
    assert [row.offset for row in rows] == [data.index(b'"3"'), len(data)]


def test_byte_order_mark_and_blank_lines_in_front():
    for start in ("\ufeff", "\n \r\n", "\ufeff\n"):
        data = (start + "a,b\n1,2\n").encode()
        assert read(data) == [Row(1, len(data), None, {"a": 1.0, "b": 2.0})]


def test_names_are_stripped():
    assert values("a, b ,c\n1, 2,3\n") == [{"a": 1.0, "b": 2.0, "c": 3.0}]


@pytest.mark.parametrize("data", ["", "\n", " \r\n\n", "\ufeff", gzip.compress(b"", mtime=0)])
def test_empty_feeds(data):
    assert error_of(data) == "feed: is empty"


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("a,b,a", "header, column 'a': the name comes twice"),
        ("a, a", "header, column 'a': the name comes twice"),
        (",,", "header: no column has a name"),
        ("1.5,2,3", "header: '1.5' is a number, not the name of a column: the feed has no header"),
        ("a,b\r1,2\r3,4", "header: a carriage return stands inside the row"),
        ('a,"b', "header: a quoted cell is not closed"),
        ("a,\0b", "header: byte 2 is NUL"),
        ("a," + "b" * MAX_LINE, "header: the line is longer than 1048576 bytes"),
    ],
)
def test_bad_headers_stop_always(header, problem):
    for bad_rows in ("stop", "skip"):
        assert error_of(header + "\n1,2,3\n", bad_rows=bad_rows) == f"feed: {problem}"


def test_columns_without_a_name_are_left_out():
    data = ",a,\n0,1,2\n"
    assert values(data) == [{"a": 1.0}]
    assert "column '': does not exist" in error_of(data, [""])


def test_columns_named_by_whole_numbers():
    assert values("0,1\n5.5,6.5\n") == [{"0": 5.5, "1": 6.5}]


@pytest.mark.parametrize("data", ["Wind Speed,power\n1,2\n", '{"Wind Speed": 1, "power": 2}\n'])
def test_columns_that_do_not_exist(data):
    assert error_of(data, ["wind speed"]) == "feed: column 'wind speed': does not exist; did you mean 'Wind Speed'?"
    assert error_of(data, ["powr"]) == "feed: column 'powr': does not exist; did you mean 'power'?"
    assert error_of(data, ["xyz"]) == "feed: column 'xyz': does not exist; there are 'Wind Speed, power'"
    assert error_of(data, ["power"], time="tme").startswith("feed: column 'tme': does not exist")


# --- JSON lines --------------------------------------------------------------------------------------------------


def test_json_lines():
    data = '{"t": 1, "a": 2, "b": true, "c": "on", "d": {"e": 1}}\n\n{"b": false, "a": null}\n{"a": NaN, "new": 1}'
    with Feed(io.BytesIO(data.encode()), time=None) as feed:
        assert (feed.columns, feed.readings) == (("t", "a", "b", "c", "d.e"), ("t", "a", "d.e"))
        assert [row.values for row in feed] == [{"t": 1.0, "a": 2.0, "d.e": 1.0}, {}, {}]


def test_yes_and_no_are_read_where_they_are_asked_for():
    assert values('{"b": true}\n{"b": false}\n', ["b"]) == [{"b": 1.0}, {"b": 0.0}]


def test_json_columns_may_come_late():
    late = '{"a": 1}\n{"a": 2, "b": 3}\n'
    assert values(late, ["b"]) == [{}, {"b": 3.0}]
    assert values('{"a": 1, "b": null}\n{"b": 3}\n') == [{"a": 1.0}, {"b": 3.0}]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"a": "3.5"}', ", column 'a': '3.5' is text, not a number"),
        ('{"a": [1]}', ", column 'a': [1] is not a number"),
        ('{"a": Infinity}', ", column 'a': inf is not finite"),
        ('{"a": 1e999}', ", column 'a': inf is not finite"),
        ('{"a": 1' + "0" * 400 + "}", ", column 'a': 1" + "0" * 36 + "... is not finite"),
        ('{"a": 1' + "0" * 5000 + "}", ": is not JSON: "),
        ("[1, 2]", ": [1, 2] is not an object"),
        ('{"a": 1', ": is not JSON: Expecting ',' delimiter at character 9"),
        ("[" * 200_000, ": is nested too deeply"),
    ],
)
def test_bad_json(line, problem):
    data = '{"a": 1}\n' + line + '\n{"a": 3}\n'
    assert error_of(data).startswith(f"feed: row 2{problem}")
    assert skipping(data)[0] == [1, 3]


def test_json_text_for_missing():
    assert values('{"a": 1}\n{"a": "NaN"}\n{"a": ""}\n') == [{"a": 1.0}, {}, {}]


def test_json_that_is_bad_from_the_start():
    data = '{\n  "a": 1\n}\n'
    assert error_of(data).startswith("feed: row 1: is not JSON: ")
    assert skipping(data)[0] == []
    assert len(skipping(data)[1]) == 3
    # A file of something else is not skipped row by row.
    message = error_of("{\n" * feeds.LOOK_AHEAD, bad_rows="skip")
    assert message.startswith("feed: row 1: is not JSON")
    assert message.endswith(", nor can any row up to 100 be read")


# --- times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2018-01-01", datetime(2018, 1, 1)),
        ("2018-01-01 00:10", datetime(2018, 1, 1, 0, 10)),
        ("2018-01-01T00:10:05.25", datetime(2018, 1, 1, 0, 10, 5, 250_000)),
        (" 2018-01-01 00:10 ", datetime(2018, 1, 1, 0, 10)),
        ("2018-01-01T00:10Z", datetime(2018, 1, 1, 0, 10, tzinfo=UTC)),
        ("2018-01-01 00:10+03:00", datetime(2018, 1, 1, 0, 10, tzinfo=timezone(timedelta(hours=3)))),
        ("2018-01-01 00:10:00 UTC", datetime(2018, 1, 1, 0, 10, tzinfo=UTC)),
        ("2018-01-01 00:10:00 +0300", datetime(2018, 1, 1, 0, 10, tzinfo=timezone(timedelta(hours=3)))),
        ("2018/1/2 3:04", datetime(2018, 1, 2, 3, 4)),
        ("2018.01.02", datetime(2018, 1, 2)),
        ("20180101T0010", datetime(2018, 1, 1, 0, 10)),
        # Whatever is a number is one, also where it could be a date.
        ("20180101", 20180101.0),
        ("20180101.05", 20180101.05),
        ("1e-5", 1e-5),
        ("123e-5", 123e-5),
        ("-3.5", -3.5),
    ],
)
def test_times(text, time):
    assert times(f"t;a\n{text};1\n") == [time]
    if isinstance(time, datetime):
        assert times(json.dumps({"t": text, "a": 1})) == [time]


@pytest.mark.parametrize("text", ["01 01 2018 00:10", "01/02/2018", "2018-13-01", "2018-01-01 24:30", "soon", "00:10"])
def test_what_is_not_a_time(text):
    problem = f"feed: row 1, column 't': {text!r} is not a time (forms of its own need a time_format)"
    assert error_of(f"t,a\n{text},1\n", time="t") == problem
    assert skipping(f"t,a\n0,1\n{text},1\n", time="t")[0] == [1]


@pytest.mark.parametrize("data", ["t,a\n,1\n", "t,a\nnan,1\n", '{"t": null, "a": 1}', '{"a": 1}\n{"t": 1}\n'])
def test_a_row_needs_its_time(data):
    assert error_of(data, time="t") == "feed: row 1, column 't': the time is missing"


@pytest.mark.parametrize("text", ["inf", "-nan", "1_000"])
def test_numbers_that_are_no_times(text):
    assert f"{text!r} is not a time" in error_of(f"t,a\n{text},1\n", time="t")


def test_time_format():
    known = {"time_format": "%d %m %Y %H:%M"}
    assert times("t,a\n02 01 2018 00:10,1\n", **known) == [datetime(2018, 1, 2, 0, 10)]
    assert error_of("t,a\n2018-01-01,1\n", time="t", **known) == (
        "feed: row 1, column 't': '2018-01-01' is not a time of the form '%d %m %Y %H:%M'"
    )
    assert times('{"t": 20180102, "a": 1}', time_format="%Y%m%d") == [datetime(2018, 1, 2)]
    # Under a name for times, it is found.
    with Feed(io.BytesIO(b"Date/Time,a\n02 01 2018 00:10,1\n"), **known) as feed:
        assert feed.time == "Date/Time"


def test_numeric_times_with_a_decimal_comma():
    assert times("t;a\n0,5;1\n", decimal=",") == [0.5]


@pytest.mark.parametrize(
    ("header", "row", "found"),
    [
        ("a,Time", "1,0.5", "Time"),
        ("TIMESTAMP,a", "2018-01-01,1", "TIMESTAMP"),
        ("a,Date/Time", "1,2018-01-01", "Date/Time"),
        ("# Date and time,a", "2018-01-01,1", "# Date and time"),
        ("time_stamp,a", "7,1", "time_stamp"),
        ("date,timestamp,a", "2018-01-01,2018-01-01 00:10,1", "timestamp"),
        ("ts,a", "1514764800,1", "ts"),
        ("at,a", "2018-01-01,1", "at"),
        # Ambient temperature, temperature of a surface.
        ("AT,a", "14.5,1", None),
        ("Ts,a", "14.5,1", None),
        ("time,a", "noon,1", None),
        ("time,date,a", "00:10,2018-01-01,1", "date"),
        ("t,a", "2018-01-01,1", None),
        ("timeout,a", "2018-01-01,1", None),
    ],
)
def test_the_column_of_times_is_found(header, row, found):
    for columns in (None, ["a"]):
        with Feed(io.BytesIO(f"{header}\n{row}\n".encode()), columns) as feed:
            assert feed.time == found
            assert found not in feed.readings
    if found is not None:
        with Feed(io.BytesIO(f"{header}\n{row}\n".encode()), ["a"], time=None) as feed:
            assert feed.time is None


def test_the_column_of_times_may_start_late():
    data = "time,a\n,1\n5,2\n"
    assert error_of(data).endswith("column 'time': the time is missing")
    assert skipping(data) == ([2], ["feed: row 1, column 'time': the time is missing"])


def test_a_column_that_is_asked_for_is_no_time():
    with Feed(io.BytesIO(b"time,a\n1,2\n"), ["time"]) as feed:
        assert feed.time is None
        assert [row.values for row in feed] == [{"time": 1.0}]


# --- bad rows ----------------------------------------------------------------------------------------------------

GOOD = b"1,2\n"
BAD_ROWS = {
    "text": (b"1,x\n", ", column 'b': 'x' is not a number"),
    "too few cells": (b"1\n", ", column 'b': there are 1 cells instead of 2"),
    "too many cells": (b"1,2,\n", ": 3 cells instead of 2"),
    "encoding": (b"1,\xff2\n", ", column 'b': byte 10, 0xff, is not utf-8"),
    "NUL": (b"1,\x002\n", ": byte 10 is NUL"),
    "carriage return": (b"1,2\r3,4\n", ": a carriage return stands inside the row"),
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
    text = "\n" * (feeds.MAX_ROW_LINES - 1)
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


def test_reading_goes_on_behind_an_error():
    with Feed(io.BytesIO(b"a\n1\nx\n3\n"), ["a"]) as feed:
        with pytest.raises(FeedError, match="row 2"):
            list(feed)
        assert [row.number for row in feed] == [3]
        assert feed.n_bad == 0


def test_skipping_without_a_listener():
    with Feed(io.BytesIO(b"a\nx\n3\n"), ["a"], bad_rows="skip") as feed:
        assert ([row.number for row in feed], feed.n_bad) == ([2], 1)


def test_a_feed_of_bad_rows_only():
    assert skipping("time,a\n1\n2\n") == (
        [],
        [f"feed: row {n}, column 'a': there are 1 cells instead of 2" for n in (1, 2)],
    )
    message = error_of("time,a\n" + "1\n" * feeds.LOOK_AHEAD, bad_rows="skip")
    assert message == "feed: row 1: there are 1 cells instead of 2, nor can any row up to 100 be read"


def test_other_encodings():
    data = "name,gr\u00f6\u00dfe\nx,1\n".encode("latin-1")
    assert values(data, ["gr\u00f6\u00dfe"], encoding="latin-1") == [{"gr\u00f6\u00dfe": 1.0}]
    assert error_of(data) == "feed: header: byte 7, 0xf6, is not utf-8"
    # The second byte of this character is a bar.
    assert values("\u30dd|a\nx|1\n".encode("shift_jis"), encoding="shift_jis", delimiter="|") == [{"a": 1.0}]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xml"},
        {"bad_rows": "ignore"},
        {"decimal": ";"},
        {"delimiter": "::"},
        {"delimiter": ""},
        {"delimiter": '"'},
        {"encoding": "utf-16"},
        {"encoding": "cp037"},
        {"encoding": "no-such"},
    ],
)
def test_wrong_options(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} must be"):
        Feed(io.BytesIO(b"a\n1\n"), **options)


def test_columns_are_names():
    with pytest.raises(TypeError, match="sequence of names"):
        Feed(io.BytesIO(b"a\n1\n"), "a")


# --- files, pipes, gzip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.CSV.GZ", "a.dat", "a"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(b"a,b\n1,2\n"))
    for source in (path, str(path)):
        with Feed(source) as feed:
            assert (feed.name, feed.size, feed.n_bad) == (str(path), path.stat().st_size, 0)
            assert [row.values for row in feed] == [{"a": 1.0, "b": 2.0}]
            assert feed.n_read == feed.size
    with open(path, "rb") as file:
        with Feed(file) as feed:
            assert feed.name == str(path)
            assert len(list(feed)) == 1
        assert not file.closed


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson.gz", "a.json", "a.dat"])
def test_json_files(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'\n {"a": 1}\n')
    with Feed(path) as feed:
        assert [row.values for row in feed] == [{"a": 1.0}]


def test_the_extension_decides(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'{a,"b"\n1,2\n')
    with Feed(path) as feed:
        assert feed.columns == ("{a", "b")
    with Feed(path, format="jsonl") as feed, pytest.raises(FeedError, match="row 1: is not JSON"):
        list(feed)


def test_a_file_is_read_from_where_it_stands():
    stream = io.BytesIO(b"junk\na\n1\n2\n")
    stream.seek(5)
    with Feed(stream) as feed:
        assert [row.offset for row in feed] == [4, 6]
        feed.go_behind(4, 1)
        assert [row.values for row in feed] == [{"a": 2.0}]


def test_position_grows(tmp_path):
    path = tmp_path / "a.csv.gz"
    rows = "".join(f"{number}\n" for number in np.random.default_rng(0).normal(size=50_000))
    path.write_bytes(gzip.compress(b"a\n" + rows.encode()))
    with Feed(path) as feed:
        seen = [feed.n_read for _ in feed]
    assert seen[0] < 0.3 * feed.size < seen[len(seen) // 2] < 0.8 * feed.size < seen[-1] == feed.size
    assert seen == sorted(seen)


def test_standard_input(monkeypatch):
    for data in (b"a\n1\n", gzip.compress(b"a\n1\n"), b'{"a": 1}\n'):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(Pipe(data, piece=1))))
        with Feed("-") as feed:
            assert (feed.name, feed.size) == ("standard input", None)
            assert [row.values for row in feed] == [{"a": 1.0}]
        assert not sys.stdin.buffer.closed


class Live(io.BufferedIOBase):
    """A pipe into which the test writes; reading more than there is would wait for ever."""

    def __init__(self, *pieces):
        self.pieces = [*pieces]

    def readable(self):
        return True

    def read1(self, size=-1):
        assert self.pieces, "waits for bytes that are not needed"
        return self.pieces.pop(0)


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_rows_of_a_pipe_come_as_they_are_written(columns):
    pipe = Live(b"time,a\n0,1\n")
    with Feed(pipe, columns) as feed:
        rows = iter(feed)
        assert next(rows).values == {"a": 1.0}
        pipe.pieces += [b"1,", b"2\n"]
        assert next(rows).values == {"a": 2.0}


def test_nothing_is_read_behind_a_row_that_stops_the_feed():
    with Feed(Live(b"a,b\n1\n")) as feed, pytest.raises(FeedError, match="row 1, column 'b': there are 1 cells"):
        list(feed)


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    missing = tmp_path / "no\nsuch.csv"
    with pytest.raises(FeedError) as caught:
        Feed(missing)
    assert str(caught.value) == f"{tmp_path}{os.sep}no\\nsuch.csv: does not exist"
    with pytest.raises(FeedError, match=f"^{re.escape(str(tmp_path))}: is a folder$"):
        Feed(tmp_path)

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(FeedError, match=r"^a\.csv: must not be read: no permission$"):
        Feed("a.csv")


def test_a_disk_that_fails():
    class Failing(Pipe):
        def readinto(self, buffer):
            n = super().readinto(buffer)
            if n == 0:
                raise OSError(5, "Input/output error")
            return n

    with Feed(Failing(b"a\n1\n2\n")) as feed, pytest.raises(FeedError) as caught:
        list(feed)
    assert str(caught.value) == "feed: row 3: cannot be read: Input/output error"


def test_the_file_is_closed_when_opening_fails(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,a\n")
    # A file left open would warn, and warnings are errors.
    with pytest.raises(FeedError):
        Feed(tmp_path / "a.csv")


ROWS = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(8000))


@pytest.mark.parametrize("bad_rows", ["stop", "skip"])
def test_gzip_that_is_cut_off(bad_rows):
    packed = gzip.compress(ROWS)
    for size in (len(packed) - 1, len(packed) - 8, len(packed) // 2):
        numbers = []
        with Feed(io.BytesIO(packed[:size]), bad_rows=bad_rows) as feed, pytest.raises(FeedError) as caught:
            for row in feed:
                assert row.values["b"] == row.values["a"] ** 2
                numbers.append(row.number)
        assert numbers == [*range(1, len(numbers) + 1)]
        assert str(caught.value) == f"feed: row {len(numbers) + 1}: the compressed data are cut off"
        # Every row that was there to be read was read.
        there = zlib.decompressobj(wbits=31).decompress(packed[:size])
        assert len(numbers) == there.count(b"\n") - 1 > 2000
    assert error_of(packed[:5]) == "feed: header: the compressed data are cut off"


def test_gzip_that_is_damaged():
    packed = bytearray(gzip.compress(ROWS))
    packed[-6] ^= 1
    assert error_of(bytes(packed)) == "feed: row 8001: the compressed data are damaged"
    packed = bytearray(gzip.compress(ROWS))
    packed[len(packed) // 2 :] = b"\xff" * len(packed)
    assert re.fullmatch(r"feed: row \d+: the compressed data are damaged", error_of(bytes(packed)))


def test_gzip_in_several_parts():
    assert len(read(gzip.compress(ROWS[:1000]) + gzip.compress(ROWS[1000:]))) == 8000


# --- going on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [io.BytesIO, lambda data: Pipe(data, 1000)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek(make, pack):
    rows = read(ROWS)
    for at in (0, 1, 100, 7000, 8000):
        offset, number = (rows[at - 1].offset, rows[at - 1].number) if at else (0, 0)
        for columns in (None, ["a", "b"]):
            with Feed(make(pack(ROWS)), columns) as feed:
                feed.go_behind(offset, number)
                assert list(feed) == rows[at:]


def test_seek_between_rows_that_were_looked_at():
    # The second column starts late: many rows are held when the pipe is asked to go on.
    data = b"a,b\n" + 50 * b"1,\n" + b"1,1\n" + 50 * b"2,2\n"
    rows = read(data)
    for at in (0, 20, 51, 60):
        with Feed(Pipe(data)) as feed:
            feed.go_behind(rows[at].offset, rows[at].number)
            assert list(feed) == rows[at + 1 :]


def test_files_seek_back_and_pipes_do_not():
    rows = read(ROWS)
    for data in (ROWS, gzip.compress(ROWS)):
        with Feed(io.BytesIO(data)) as feed:
            for at in (7000, 10, 7999, 0):
                feed.go_behind(rows[at].offset, rows[at].number)
                assert next(iter(feed)) == rows[at + 1] if at < 7999 else list(feed) == []
        with Feed(Pipe(data, 1000)) as feed:
            feed.go_behind(rows[7000].offset, 7001)
            assert next(iter(feed)) == rows[7001]
            with pytest.raises(FeedError, match="row 11: cannot go back from byte"):
                feed.go_behind(rows[10].offset, 11)


@pytest.mark.parametrize("make", [io.BytesIO, Pipe])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek_beyond_the_end(make, pack):
    with Feed(make(pack(b"a\n1\n"))) as feed:
        with pytest.raises(FeedError) as caught:
            feed.go_behind(9, 3)
    assert str(caught.value) == "feed: row 3: the feed ends before byte 9, where this row ended"


@pytest.mark.parametrize("make", [io.BytesIO, Pipe])
def test_seek_into_a_row(make):
    # The first row was looked at, the others were not.
    for offset, number in [(3, 1), (6, 2)]:
        with Feed(make(b"a\n11\n22\n3\n")) as feed, pytest.raises(FeedError) as caught:
            feed.go_behind(offset, number)
        assert str(caught.value) == f"feed: row {number}: does not end at byte {offset}"


def test_a_file_that_grew_behind_a_row_without_newline():
    assert read(b"a\n1\n2")[-1] == Row(2, 5, None, {"a": 2.0})
    for more, rows in [
        (b"", []),
        (b"\n3\n", [Row(3, 8, None, {"a": 3.0})]),
        (b"\r\n3\n", [Row(3, 9, None, {"a": 3.0})]),
    ]:
        with Feed(io.BytesIO(b"a\n1\n2" + more)) as feed:
            feed.go_behind(5, 2)
            assert list(feed) == rows
    # The row was read while it was being written.
    with Feed(io.BytesIO(b"a\n1\n25\n")) as feed, pytest.raises(FeedError, match="row 2: does not end"):
        feed.go_behind(5, 2)


def test_a_pipe_that_starts_behind_earlier_rows():
    data = b"a,b\n1,\n2,2\nx,3\n4,4\n"
    for columns in (None, ["a"]):
        messages = []
        with Feed(Pipe(data), columns, bad_rows="skip", on_bad=messages.append) as feed:
            feed.seek({"offset": 99, "number": 10, "start": 90, "crc": 1, "replayable": False})
            assert [row.number for row in feed] == [11, 12, 14]
        assert messages == ["feed: row 13, column 'a': 'x' is not a number"]


def test_a_quoted_cell_that_was_open_at_the_end_does_not_stop_the_next_reading(tmp_path):
    path = tmp_path / "feed.csv"
    path.write_text('a,note\n1,x\n2,"half\n')
    with Feed(path, ["a"], None) as feed:
        assert [type(event).__name__ for event in feed.events()] == ["Row", "Refused"]
        place = feed.position
    with path.open("a") as file:
        file.write('of it"\n3,y\n')
    with Feed(path, ["a"], None) as feed:
        feed.seek(place)
        events = list(feed.events())
    # Its second half is no row of its own.
    assert [(event.number, type(event).__name__) for event in events] == [(3, "Refused"), (4, "Row")]
    assert events[1].values == {"a": 3.0}


@pytest.mark.parametrize("n_read", [0, 1, 2])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek_behind_a_mark_of_the_byte_order(tmp_path, n_read, pack):
    path = tmp_path / "feed.jsonl"
    path.write_bytes(pack(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n{"a": 3}\n'))
    with Feed(path, ["a"], None) as feed:
        events = feed.events()
        for _ in range(n_read):
            next(events)
        place = feed.position
    with Feed(path, ["a"], None) as feed:
        feed.seek(place)
        assert [(row.number, row.values["a"]) for row in feed] == [(n, n) for n in range(n_read + 1, 4)]


def test_objects_that_are_nested_too_deeply_are_refused():
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    with Feed(io.BytesIO(f'{{"a": 1}}\n{deep}\n'.encode()), ["a"], None) as feed:
        first, second = feed.events()
    assert first.values == {"a": 1.0} and second.reason == "is nested too deeply"


def test_a_refused_row_is_told_in_its_own_encoding():
    with Feed(io.BytesIO("a,place\nx,Köln 5°\n".encode("latin-1")), ["a"], None, encoding="latin-1") as feed:
        (refused,) = feed.events()
    assert refused.text == "x,Köln 5°"


def test_only_what_seeks_is_replayable():
    for make, is_replayable in [(io.BytesIO, True), (Pipe, False)]:
        for data in (b"a\n1\n", gzip.compress(b"a\n1\n")):
            with Feed(make(data)) as feed:
                assert feed.is_replayable == is_replayable


# --- any table ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
names = texts.map(str.strip).filter(
    lambda name: name and not name.startswith("\ufeff") and not re.match(r"[\d.+-]", name)
)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw):
    columns = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    kinds = [draw(st.sampled_from([numbers, texts])) for _ in columns]
    rows = draw(st.lists(st.tuples(*kinds), max_size=8))
    readings = [column for column, kind in zip(columns, kinds, strict=True) if kind is numbers]
    return columns, readings, rows


def expected(columns, readings, rows):
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    return [{name: row[name] for name in readings if row[name] is not None} for row in records]


@given(
    tables(),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
@example((["a", "b"], ["a"], [(1.0, '"\n\n"\r\n,')]), ",", "\n", csv.QUOTE_MINIMAL)
def test_any_table_reads_back(table, delimiter, newline, quoting):
    columns, readings, rows = table
    data = write_csv(columns, rows, delimiter=delimiter, lineterminator=newline, quoting=quoting)
    # The writer leaves carriage returns bare that do not end its lines; no reader takes them.
    assume(newline == "\r\n" or b"\r" not in data)
    options = {"time": None, "delimiter": delimiter}
    assert values(data, readings, **options) == expected(*table)
    assert [row.offset for row in read(data, readings, **options)][-1:] == ([len(data)] if rows else [])


@given(tables())
def test_any_table_of_json_reads_back(table):
    columns, readings, rows = table
    records = [dict(zip(columns, row, strict=True)) for row in rows] or [dict.fromkeys(columns)]
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    assert values(data, readings, time=None) == (expected(*table) if rows else [{}])


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [b"1,2\n", b"3,\r\n", b'"4","\n5"\n', b"\n", b"x,y\n", b'6,"\n', b"7\n", b'{"a": 8}\n', b"\xff\n"]
        )
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_two_parts_are_the_whole(lines, is_json, is_packed, is_pipe, data):
    head = b'{"a": 0, "b": 0}\n' if is_json else b"a,b\n"
    content = head + b"".join(b'{"a": %d}\n' % len(line) if is_json and line[:1].isdigit() else line for line in lines)
    content = gzip.compress(content) if is_packed else content

    def open_feed():
        stream = Pipe(content) if is_pipe else io.BytesIO(content)
        return Feed(stream, ["a"], bad_rows="skip", on_bad=messages.append)

    messages = []
    with open_feed() as feed:
        whole = [(row, len(messages)) for row in feed]
        all_messages = messages
    for row, n_messages in data.draw(st.lists(st.sampled_from(whole), max_size=3) if whole else st.just([])):
        messages = []
        with open_feed() as feed:
            feed.go_behind(row.offset, row.number)
            assert list(feed) == [later for later, _ in whole if later.number > row.number]
        assert messages == all_messages[n_messages:]


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


# --- real feeds --------------------------------------------------------------------------------------------------


def test_a_real_feed_as_pandas_reads_it(data_dir):
    pd = pytest.importorskip("pandas")
    path = data_dir / "turkey_wind_scada.csv.gz"
    frame = pd.read_csv(path, parse_dates=["timestamp"])
    with Feed(path) as feed:
        rows = list(feed)
        assert feed.n_read == feed.size
    assert (feed.time, feed.columns) == ("timestamp", tuple(frame.columns))
    assert feed.readings == tuple(frame.columns[1:])
    assert len(rows) == len(frame) == 50_530
    assert [row.time for row in rows] == [*frame["timestamp"].dt.to_pydatetime()]
    read = np.array([[row.values.get(name, np.nan) for name in feed.readings] for row in rows])
    # pandas rounds the last digit its own way.
    np.testing.assert_allclose(read, frame[list(feed.readings)].to_numpy(), rtol=1e-15)
    with gzip.open(path) as file:
        assert rows[-1].offset == len(file.read())


def test_all_real_feeds_open(data_dir):
    found = {}
    for path in sorted(data_dir.glob("*.csv.gz")):
        with Feed(path) as feed:
            rows = [row for row, _ in zip(feed, range(500), strict=False)]
        assert len(rows) == 500
        assert any(len(row.values) == len(feed.readings) for row in rows)
        found[path.name.split(".")[0]] = (feed.time, len(feed.readings))
    assert found["etth1"] == ("date", 7)
    assert found["gas_turbine"] == (None, 13)  # AT is the ambient temperature
    assert found["skab_valve1"] == ("timestamp", 11)
