"""What the first lines show: delimiters, headers, columns of numbers, the column of times."""

from __future__ import annotations

import csv
import gzip
import io
import time

import pytest

from momostream.feeds import Feed, FeedError, Row
from momostream.feeds.files import LOOK_AHEAD
from momostream.feeds.lines import MAX_LINE
from tests.feeds.reading import error_of, read, skipping, values, write_csv


def test_a_header_without_rows():
    with Feed(io.BytesIO(b"time,a")) as feed:
        assert (feed.columns, feed.readings, list(feed)) == (("time", "a"), (), [])
    assert read("time,a\n", ["a"]) == []


def test_columns_of_numbers_are_found():
    data = "id,a,b,c,d\nT_1,,5,,\nT_2,1,x,NaN,\n"
    with Feed(io.BytesIO(data.encode()), bad_rows="skip") as feed:
        # d never has a value, b is a number at first.
        assert feed.readings == ("a", "b")
        assert [row.values for row in feed] == [{"b": 5.0}]


def test_columns_are_not_looked_for_beyond_the_first_rows():
    late = "a,b\n" + "1,\n" * LOOK_AHEAD + "1,1\n"
    assert all(list(row) == ["a"] for row in values(late))
    in_time = "a,b\n" + "1,\n" * (LOOK_AHEAD - 1) + "1,1\n"
    assert values(in_time)[-1] == {"a": 1.0, "b": 1.0}


def test_no_column_of_numbers():
    assert error_of("a,b\nx,y\n") == "feed: no column holds numbers in the first row"


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
        ("a,b,a", "header, column 'a': the name occurs twice"),
        ("a, a", "header, column 'a': the name occurs twice"),
        (",,", "header: no column has a name"),
        ("1.5,2,3", "header: '1.5' is a number, not the name of a column: the feed has no header"),
        ("a,b\r1,2\r3,4", "header: there is a carriage return inside the row"),
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
    assert error_of(data, ["xyz"]) == "feed: column 'xyz': does not exist; the columns are 'Wind Speed, power'"
    assert error_of(data, ["power"], time="tme").startswith("feed: column 'tme': does not exist")


def test_json_columns_may_come_late():
    late = '{"a": 1}\n{"a": 2, "b": 3}\n'
    assert values(late, ["b"]) == [{}, {"b": 3.0}]
    assert values('{"a": 1, "b": null}\n{"b": 3}\n') == [{"a": 1.0}, {"b": 3.0}]


def test_json_that_is_bad_from_the_start():
    data = '{\n  "a": 1\n}\n'
    assert error_of(data).startswith("feed: row 1: is not JSON: ")
    assert skipping(data)[0] == []
    assert len(skipping(data)[1]) == 3
    # A file of something else is not skipped row by row.
    message = error_of("{\n" * LOOK_AHEAD, bad_rows="skip")
    assert message.startswith("feed: row 1: is not JSON")
    assert message.endswith("; none of the rows up to 100 can be read")


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


def test_a_column_that_is_asked_for_is_not_a_time():
    with Feed(io.BytesIO(b"time,a\n1,2\n"), ["time"]) as feed:
        assert feed.time is None
        assert [row.values for row in feed] == [{"time": 1.0}]


def test_a_feed_of_bad_rows_only():
    assert skipping("time,a\n1\n2\n") == (
        [],
        [f"feed: row {n}, column 'a': there are 1 cells instead of 2" for n in (1, 2)],
    )
    message = error_of("time,a\n" + "1\n" * LOOK_AHEAD, bad_rows="skip")
    assert message == "feed: row 1: there are 1 cells instead of 2; none of the rows up to 100 can be read"


def test_the_extension_decides(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'{a,"b"\n1,2\n')
    with Feed(path) as feed:
        assert feed.columns == ("{a", "b")
    with Feed(path, format="jsonl") as feed, pytest.raises(FeedError, match="row 1: is not JSON"):
        list(feed)


def test_a_header_of_very_many_names_takes_no_longer_than_a_line():
    """A search for each name among all would take a quarter of an hour."""
    names = ["time", "power", *(f"c{n}" for n in range(120_000))]
    data = ",".join(names) + "\n2024-03-01," + ",".join(["1"] * (len(names) - 1)) + "\n"
    assert len(data) < 2 * MAX_LINE
    began = time.process_time()
    (row,) = read(data)
    assert len(row.values) == len(names) - 1 and time.process_time() - began < 20.0
    with pytest.raises(FeedError, match="'c7': the name occurs twice"):
        read(data.replace("c99999", "c7"))
