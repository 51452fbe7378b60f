"""Files of InfluxDB's line protocol."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest

from momostream.feeds import Feed, FeedError, Rejected
from momostream.feeds.line_protocol import read_line_protocol

AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
TEXT = (
    "# written by telegraf\n"
    "farm,turbine=T1 power=2.5,n=3i,state=\"on, or so\" 1700000000000000000\n"
    "\n"
    "farm,turbine=T2 power=2.75 1700000000000000000\n"
    "# in between\n"
    "farm,turbine=T1 power=3 1700000600000000000\n"
)  # fmt: skip


@pytest.mark.parametrize("name", ["rows.lp", "rows.influx", "rows.lp.gz"])
def test_rows(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(TEXT.encode()) if name.endswith(".gz") else TEXT.encode())
    with Feed(path, ["power"], key="turbine") as feed:
        rows = list(feed)
        assert feed.time == "time"
    assert [(row.number, row.key, row.values) for row in rows] == [
        (1, "T1", {"power": 2.5}), (2, "T2", {"power": 2.75}), (3, "T1", {"power": 3.0}),
    ]  # fmt: skip
    assert rows[0].time == AT
    with Feed(path, ["power"], key="turbine") as feed:
        feed.resume_after(rows[0].offset, 1)
        assert list(feed) == rows[1:]


def test_columns_are_found(tmp_path):
    path = tmp_path / "rows.lp"
    path.write_text(TEXT)
    with Feed(path, key="turbine") as feed:
        assert feed.readings == ("power", "n")


def test_units_of_times(tmp_path):
    path = tmp_path / "rows.lp"
    path.write_text("".join(f"farm power=1 17{'0' * zeros}\n" for zeros in (8, 11, 14, 17)))
    with Feed(path) as feed:
        assert [row.time for row in feed] == [AT] * 4


def test_bad_lines(tmp_path):
    path = tmp_path / "rows.lp"
    path.write_text("farm power=1 1700000000000000000\nfarm\nfarm power=x 1\nfarm power=1 soon\n, power=1\n")
    with Feed(path, ["power"]) as feed:
        first, *rejected = feed.events()
    assert first.values == {"power": 1.0} and all(isinstance(event, Rejected) for event in rejected)
    assert [event.reason for event in rejected] == [
        "is not line protocol: expected a measurement with tags, fields, and a timestamp",
        "column 'power': 'x' is not a value",
        "'soon' is not a timestamp",
        "the measurement is missing",
    ]


def test_a_file_of_comments_is_empty(tmp_path):
    path = tmp_path / "rows.lp"
    path.write_text("# nothing\n")
    with Feed(path, ["power"]) as feed:
        assert list(feed) == []


def test_a_parquet_file_under_another_name(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"PAR1....")
    with pytest.raises(FeedError, match="is a Parquet file: let its name end in .parquet"):
        Feed(path)


def test_the_parser_is_that_of_pushed_rows():
    from momostream.serve import push

    assert push.read_line_protocol is read_line_protocol


@pytest.mark.parametrize("stamp", ["9" * 400, "-" + "9" * 400, "9" * 30])
def test_a_timestamp_beyond_all_floats_is_a_bad_row(tmp_path, stamp):
    path = tmp_path / "rows.lp"
    path.write_text(f"farm power=1 1700000000000000000\nfarm power=1 {stamp}\n")
    with Feed(path, ["power"]) as feed:
        _, rejected = feed.events()
    assert isinstance(rejected, Rejected) and "is not a time since 1970" in rejected.reason
