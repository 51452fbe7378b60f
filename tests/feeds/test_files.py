"""Files and pipes: every row says where it ends, and reading resumes there."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momostream import feeds
from momostream.feeds import Feed, FeedError, Row, outputs
from tests.feeds.reading import Pipe, error_of, read


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


def test_a_file_is_read_from_where_it_stands():
    stream = io.BytesIO(b"junk\na\n1\n2\n")
    stream.seek(5)
    with Feed(stream) as feed:
        assert [row.offset for row in feed] == [4, 6]
        feed.resume_after(4, 1)
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


def test_nothing_is_read_after_a_row_that_stops_the_feed():
    with Feed(Live(b"a,b\n1\n")) as feed, pytest.raises(FeedError, match="row 1, column 'b': there are 1 cells"):
        list(feed)


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    missing = tmp_path / "no\nsuch.csv"
    with pytest.raises(FeedError) as caught:
        Feed(missing)
    assert str(caught.value) == f"{tmp_path}{os.sep}no\\nsuch.csv: does not exist"
    with pytest.raises(FeedError, match=f"^{re.escape(str(tmp_path))}: is a folder$"):
        Feed(tmp_path)

    def deny(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", deny)
    with pytest.raises(FeedError, match=r"^a\.csv: cannot be read: no permission$"):
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
    assert error_of(bytes(packed)) == "feed: row 8001: the compressed data are corrupted"
    packed = bytearray(gzip.compress(ROWS))
    packed[len(packed) // 2 :] = b"\xff" * len(packed)
    assert re.fullmatch(r"feed: row \d+: the compressed data are corrupted", error_of(bytes(packed)))


def test_gzip_in_several_parts():
    assert len(read(gzip.compress(ROWS[:1000]) + gzip.compress(ROWS[1000:]))) == 8000


@pytest.mark.parametrize("make", [io.BytesIO, lambda data: Pipe(data, 1000)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek(make, pack):
    rows = read(ROWS)
    for at in (0, 1, 100, 7000, 8000):
        offset, number = (rows[at - 1].offset, rows[at - 1].number) if at else (0, 0)
        for columns in (None, ["a", "b"]):
            with Feed(make(pack(ROWS)), columns) as feed:
                feed.resume_after(offset, number)
                assert list(feed) == rows[at:]


def test_seek_between_rows_that_were_looked_at():
    # The second column starts late: many rows are held when the pipe is asked to go on.
    data = b"a,b\n" + 50 * b"1,\n" + b"1,1\n" + 50 * b"2,2\n"
    rows = read(data)
    for at in (0, 20, 51, 60):
        with Feed(Pipe(data)) as feed:
            feed.resume_after(rows[at].offset, rows[at].number)
            assert list(feed) == rows[at + 1 :]


def test_files_seek_back_and_pipes_do_not():
    rows = read(ROWS)
    for data in (ROWS, gzip.compress(ROWS)):
        with Feed(io.BytesIO(data)) as feed:
            for at in (7000, 10, 7999, 0):
                feed.resume_after(rows[at].offset, rows[at].number)
                assert next(iter(feed)) == rows[at + 1] if at < 7999 else list(feed) == []
        with Feed(Pipe(data, 1000)) as feed:
            feed.resume_after(rows[7000].offset, 7001)
            assert next(iter(feed)) == rows[7001]
            with pytest.raises(FeedError, match="row 11: a pipe cannot go back from byte"):
                feed.resume_after(rows[10].offset, 11)


@pytest.mark.parametrize("make", [io.BytesIO, Pipe])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek_beyond_the_end(make, pack):
    with Feed(make(pack(b"a\n1\n"))) as feed:
        with pytest.raises(FeedError) as caught:
            feed.resume_after(9, 3)
    assert str(caught.value) == "feed: row 3: the feed ends before byte 9, where this row ended"


@pytest.mark.parametrize("make", [io.BytesIO, Pipe])
def test_seek_into_a_row(make):
    # The first row was looked at, the others were not.
    for offset, number in [(3, 1), (6, 2)]:
        with Feed(make(b"a\n11\n22\n3\n")) as feed, pytest.raises(FeedError) as caught:
            feed.resume_after(offset, number)
        assert str(caught.value) == f"feed: row {number}: does not end at byte {offset}"


def test_a_file_that_grew_after_a_row_without_newline():
    assert read(b"a\n1\n2")[-1] == Row(2, 5, None, {"a": 2.0})
    for more, rows in [
        (b"", []),
        (b"\n3\n", [Row(3, 8, None, {"a": 3.0})]),
        (b"\r\n3\n", [Row(3, 9, None, {"a": 3.0})]),
    ]:
        with Feed(io.BytesIO(b"a\n1\n2" + more)) as feed:
            feed.resume_after(5, 2)
            assert list(feed) == rows
    # The row was read while it was being written.
    with Feed(io.BytesIO(b"a\n1\n25\n")) as feed, pytest.raises(FeedError, match="row 2: does not end"):
        feed.resume_after(5, 2)


def test_a_pipe_that_starts_after_earlier_rows():
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
        assert [type(event).__name__ for event in feed.events()] == ["Row", "Rejected"]
        position = feed.position
    with path.open("a") as file:
        file.write('of it"\n3,y\n')
    with Feed(path, ["a"], None) as feed:
        feed.seek(position)
        events = list(feed.events())
    # Its second half is no row of its own.
    assert [(event.number, type(event).__name__) for event in events] == [(3, "Rejected"), (4, "Row")]
    assert events[1].values == {"a": 3.0}


@pytest.mark.parametrize("n_read", [0, 1, 2])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_seek_after_a_byte_order_mark(tmp_path, n_read, pack):
    path = tmp_path / "feed.jsonl"
    path.write_bytes(pack(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n{"a": 3}\n'))
    with Feed(path, ["a"], None) as feed:
        events = feed.events()
        for _ in range(n_read):
            next(events)
        position = feed.position
    with Feed(path, ["a"], None) as feed:
        feed.seek(position)
        assert [(row.number, row.values["a"]) for row in feed] == [(n, n) for n in range(n_read + 1, 4)]


def test_only_what_seeks_is_replayable():
    for make, is_replayable in [(io.BytesIO, True), (Pipe, False)]:
        for data in (b"a\n1\n", gzip.compress(b"a\n1\n")):
            with Feed(make(data)) as feed:
                assert feed.is_replayable == is_replayable


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
            feed.resume_after(row.offset, row.number)
            assert list(feed) == [later for later, _ in whole if later.number > row.number]
        assert messages == all_messages[n_messages:]


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


# --- earlier names -----------------------------------------------------------------------------------------------


def test_names_of_the_last_version_still_work():
    assert feeds.Refused is feeds.Rejected and feeds.refusal is feeds.rejection
    assert outputs.Lines is outputs.PredictionLines
    assert Feed.go_behind is Feed.resume_after
