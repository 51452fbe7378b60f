"""Rows: numbers, times and whole tables read back, from CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from momostream.feeds import Feed, Row
from tests.feeds.reading import error_of, read, skipping, times, values, write_csv


def test_rows_say_where_they_end():
    data = b"time,a,b\r\n0,1.5,x\r\n\r\n1,,\r\n2,-2e3,y"
    rows = read(data)
    assert rows == [Row(1, 19, 0.0, {"a": 1.5}), Row(2, 26, 1.0, {}), Row(3, 34, 2.0, {"a": -2000.0})]
    assert [data[row.offset - 2 : row.offset] for row in rows] == [b"\r\n", b"\r\n", b",y"]


def test_columns_are_read_in_the_order_asked_for():
    (row,) = values("a,b,c\n1,x,3\n", ["c", "a", "c"])
    assert [*row.items()] == [("c", 3.0), ("a", 1.0)]
    assert values("a,b\n1,2\n", []) == [{}]


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


def test_a_line_of_tabs_is_a_row_of_empty_cells():
    assert [row.number for row in read("a\tb\n1\t2\n\t\n  \n3\t4\n")] == [1, 2, 3]


def test_quoted_cells_hold_delimiters_quotes_and_newlines():
    data = b'a,text,b\n1,"x, ""y""\n\n",2\n"3",5" pipe,"4"\n'
    rows = read(data)
    assert [row.values for row in rows] == [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]
    assert [row.offset for row in rows] == [data.index(b'"3"'), len(data)]


def test_json_lines():
    data = '{"t": 1, "a": 2, "b": true, "c": "on", "d": {"e": 1}}\n\n{"b": false, "a": null}\n{"a": NaN, "new": 1}'
    with Feed(io.BytesIO(data.encode()), time=None) as feed:
        assert (feed.columns, feed.readings) == (("t", "a", "b", "c", "d.e"), ("t", "a", "d.e"))
        assert [row.values for row in feed] == [{"t": 1.0, "a": 2.0, "d.e": 1.0}, {}, {}]


def test_yes_and_no_are_read_where_they_are_asked_for():
    assert values('{"b": true}\n{"b": false}\n', ["b"]) == [{"b": 1.0}, {"b": 0.0}]


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
    problem = f"feed: row 1, column 't': {text!r} is not a time (other forms than ISO 8601 need a time_format)"
    assert error_of(f"t,a\n{text},1\n", time="t") == problem
    assert skipping(f"t,a\n0,1\n{text},1\n", time="t")[0] == [1]


@pytest.mark.parametrize("data", ["t,a\n,1\n", "t,a\nnan,1\n", '{"t": null, "a": 1}', '{"a": 1}\n{"t": 1}\n'])
def test_a_row_needs_its_time(data):
    assert error_of(data, time="t") == "feed: row 1, column 't': the time is missing"


@pytest.mark.parametrize("text", ["inf", "-nan", "1_000"])
def test_numbers_that_are_not_times(text):
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
