"""Parquet files and folders."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from momostream.feeds import FeedError, Folder, Row
from momostream.feeds.parquet import ParquetFeed, is_complete

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

START = datetime(2024, 3, 1, tzinfo=UTC)


def write(path, n_rows=100, start=0, group=16, **more):
    columns = {
        "time": [START + timedelta(minutes=10 * n) for n in range(start, start + n_rows)],
        "turbine": [f"T{n % 3}" for n in range(start, start + n_rows)],
        "power": np.arange(start, start + n_rows, dtype=float),
        "state": ["on"] * n_rows,
    }
    pq.write_table(pa.table(columns | more), path, row_group_size=group)
    return path


def test_rows_times_and_keys(tmp_path):
    with ParquetFeed(write(tmp_path / "a.parquet"), key="turbine") as feed:
        rows = list(feed)
        assert feed.columns == ("time", "turbine", "power", "state")
        assert (feed.readings, feed.time, feed.n_bad, feed.n_read) == (("power",), "time", 0, feed.size)
    assert len(rows) == 100
    assert rows[41] == Row(42, 42, START + timedelta(minutes=410), {"power": 41.0}, "T2")


@pytest.mark.parametrize("stop", [0, 1, 15, 16, 17, 50, 99, 100])
def test_resumes_within_any_row_group(tmp_path, stop):
    path = write(tmp_path / "a.parquet")
    with ParquetFeed(path) as feed:
        events = feed.events()
        for _ in range(stop):
            next(events)
        position = json.loads(json.dumps(feed.position))
    with ParquetFeed(path) as feed:
        feed.seek(position)
        assert [row.number for row in feed] == list(range(stop + 1, 101))


def test_another_file_is_not_resumed(tmp_path):
    with ParquetFeed(write(tmp_path / "a.parquet")) as feed:
        _ = [next(feed.events()) for _ in range(3)]
        position = feed.position
    with ParquetFeed(write(tmp_path / "b.parquet", start=7)) as feed, pytest.raises(FeedError, match="row 3 differs"):
        feed.seek(position)
    with ParquetFeed(write(tmp_path / "c.parquet", n_rows=2)) as feed, pytest.raises(FeedError, match="row 3 differs"):
        feed.seek(position)


def test_types(tmp_path):
    columns = {
        "at": pa.array([date(2024, 3, 1), date(2024, 3, 2)]),
        "whole": pa.array([1, None], pa.int32()),
        "money": pa.array([Decimal("1.25"), None], pa.decimal128(6, 2)),
        "half": pa.array(np.array([0.5, np.nan], np.float16)),
        "sensor": pa.array([{"wind": 8.5, "name": "a"}, {"wind": None, "name": "b"}]),
        "which": pa.array(["x", "y"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.pq")
    with ParquetFeed(tmp_path / "a.pq", key="which") as feed:
        first, second = feed
    assert first == Row(1, 1, datetime(2024, 3, 1), {"whole": 1, "money": 1.25, "half": 0.5, "sensor.wind": 8.5}, "x")
    assert (second.values, second.key) == ({}, "y")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_units_and_zones_of_times(tmp_path, unit, zone):
    times = pa.array([1_700_000_000 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]], pa.int64())
    pq.write_table(pa.table({"ts": times.cast(pa.timestamp(unit, zone)), "power": [1.0]}), tmp_path / "a.parquet")
    with ParquetFeed(tmp_path / "a.parquet") as feed:
        (row,) = feed
    expected = datetime(2023, 11, 14, 22, 13, 20, tzinfo=None if zone is None else UTC)
    assert row.time == expected and (row.time.tzinfo is None) == (zone is None)


def test_numbers_that_count_from_1970(tmp_path):
    pq.write_table(pa.table({"ts": [1_700_000_000_000], "power": [1.0]}), tmp_path / "a.parquet")
    with ParquetFeed(tmp_path / "a.parquet", time_format="epoch") as feed:
        assert next(iter(feed)).time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_bad_rows_are_named(tmp_path):
    path = write(tmp_path / "a.parquet", n_rows=3, power=[1.0, float("inf"), 3.0])
    with ParquetFeed(path) as feed, pytest.raises(FeedError, match="row 2, column 'power': inf is not finite"):
        list(feed)
    told = []
    with ParquetFeed(path, bad_rows="skip", on_bad=told.append) as feed:
        assert [row.number for row in feed] == [1, 3] and feed.n_bad == 1
    assert told == [f"{path}: row 2, column 'power': inf is not finite"]
    with ParquetFeed(path, ["state"]) as feed, pytest.raises(FeedError, match="'on' is text, not a number"):
        list(feed)
    with pytest.raises(FeedError, match="column 'pwer': does not exist; did you mean 'power'"):
        ParquetFeed(path, ["pwer"])


def test_files_that_are_not_parquet(tmp_path):
    whole = write(tmp_path / "a.parquet").read_bytes()
    damaged = bytearray(whole)
    damaged[10:200] = bytes(190)
    for name, content, what in [
        ("cut", whole[:-100], "not a complete one"),
        ("text", b"time,power\n1,2\n3,4\n", "not a complete one"),
        ("empty", b"", "not a complete one"),
        ("damaged", bytes(damaged), "cannot be read as Parquet"),
        ("faked", b"PAR1" + bytes(50) + b"PAR1", "cannot be read as Parquet"),
    ]:
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(content)
        with pytest.raises(FeedError, match=what) as error, ParquetFeed(path) as feed:
            list(feed)
        assert "\n" not in str(error.value)
    with pytest.raises(FeedError, match="does not exist"):
        ParquetFeed(tmp_path / "nothing.parquet")


def test_folders_may_mix_formats(tmp_path):
    write(tmp_path / "1.parquet", n_rows=20)
    lines = [f"{(START + timedelta(minutes=10 * n)).isoformat()},T{n % 3},{n},on\n" for n in range(20, 30)]
    (tmp_path / "2.csv").write_text("time,turbine,power,state\n" + "".join(lines))
    write(tmp_path / "3.parquet", n_rows=20, start=30)
    with Folder(tmp_path, key="turbine") as folder:
        events, found, positions = folder.events(), [], []
        for event in events:
            found.append(event.values["power"])
            positions.append(json.loads(json.dumps(folder.position)))
        assert folder.n_read == folder.size
    assert found == list(range(50))
    for stop in (5, 20, 25, 30, 49):
        with Folder(tmp_path, key="turbine") as folder:
            folder.seek(positions[stop - 1])
            assert [(row.number, row.values["power"]) for row in folder.events()] == [
                (n + 1, n) for n in range(stop, 50)
            ]


def test_a_followed_folder_waits_until_a_file_is_complete(tmp_path):
    write(tmp_path / "1.parquet", n_rows=5)
    whole = write(tmp_path / ".later", n_rows=5, start=5).read_bytes()

    def deliver():
        with (tmp_path / "2.parquet").open("wb") as file:
            for part in (whole[:400], whole[400:-4], whole[-4:]):
                file.write(part)
                file.flush()
                time.sleep(0.3)

    writer = threading.Thread(target=deliver)
    with Folder(tmp_path, follow=True) as folder:
        found = []
        writer.start()
        for event in folder.events():
            if event is not None:
                found.append(event.values["power"])
            if len(found) == 10:
                break
    writer.join()
    assert found == list(range(10)) and is_complete(tmp_path / "2.parquet")
