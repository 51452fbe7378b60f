"""Rows that are pushed: read as they should be, each of them once, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momostream.feeds import FeedError
from momostream.feeds.formats import BadRow, Rejected, Row
from momostream.runs.plan import Plan
from momostream.serve import journal as journal_module
from momostream.serve.journal import Journal, JournalBusy, JournalFull
from momostream.serve.push import BadBody, PushedRow, RowParser, read_line_protocol

PLAN = Plan(("power",), ("wind",), "time", 3, key="turbine")


def pushed(n, key="T1", sequence=True):
    row = Row(n, n, datetime(2026, 1, 1, n // 60, n % 60), {"power": float(n)}, key)
    return PushedRow(row, n if sequence else None)


@pytest.fixture
def opened():
    made = []

    def open_journal(folder, position=None, **options):
        journal = Journal(folder, "north", ["power"], "time", **options)
        if position is not None:
            journal.seek(position)
        journal.open()
        made.append(journal)
        return journal

    yield open_journal
    for journal in made:
        journal.close()


def read(journal):
    rows = []
    for event in journal.events():
        if event is None:
            return rows
        rows.append(event)
    return rows


def test_rows_come_out_as_they_went_in(opened, tmp_path):
    journal = opened(tmp_path)
    rows = [pushed(1), pushed(2), pushed(1, "T2"), PushedRow(Rejected(4, 4, "T3", "bad", "text"), None)]
    assert journal.append(rows)[:3] == (3, 0, 1)
    events = read(journal)
    assert [(event.number, event.key) for event in events] == [(1, "T1"), (2, "T1"), (3, "T2"), (4, "T3")]
    assert events[0].time == rows[0].event.time and events[0].values == {"power": 1.0}
    assert (events[3].reason, events[3].text) == ("bad", "text")


@pytest.mark.parametrize("sequence", [True, False])
def test_rows_that_come_again_are_dropped(opened, tmp_path, sequence):
    journal = opened(tmp_path)
    rows = [pushed(n, sequence=sequence) for n in (1, 2, 2, 3)]
    assert journal.append(rows)[:2] == (3, 1)
    assert journal.append(rows[:3])[:2] == (0, 3)
    assert len(read(journal)) == 3


def test_rows_without_time_and_sequence_are_all_taken(opened, tmp_path):
    journal = opened(tmp_path)
    row = PushedRow(Row(1, 1, None, {"power": 1.0}), None)
    assert journal.append([row, row])[:2] == (2, 0)


@pytest.mark.parametrize("cut", [0, 5])
def test_a_killed_process_resumes_without_loss(opened, tmp_path, cut):
    journal = opened(tmp_path)
    journal.append([pushed(n) for n in range(1, 6)])
    reader = journal.events()
    for _ in range(2):
        next(reader)
    position = json.loads(json.dumps(journal.position))
    if cut:
        # A line that was not written to its end was never confirmed.
        with next(tmp_path.glob("*.jsonl")).open("ab") as file:
            file.write(b'["row","T1","2026-01')
    again = opened(tmp_path, position)
    assert again.append([pushed(5), pushed(6)])[:2] == (1, 1)
    assert [event.number for event in read(again)] == [3, 4, 5, 6]
    assert again.position["marks"] == [["T1", 6]]


def test_times_are_marks_after_a_restart(opened, tmp_path):
    journal = opened(tmp_path)
    journal.append([pushed(1, sequence=False), pushed(2, sequence=False)])
    read(journal)
    again = opened(tmp_path, json.loads(json.dumps(journal.position)))
    assert again.append([pushed(2, sequence=False), pushed(3, sequence=False)])[:2] == (1, 1)


def test_files_are_removed_once_committed(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "FILE_BYTES", 200)
    journal = opened(tmp_path)
    for n in range(1, 21):
        journal.append([pushed(n)])
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    assert [row.values["power"] for row in read(journal)] == list(range(1, 21))
    assert journal.position
    journal.acknowledge()
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    again = opened(tmp_path, journal.position)
    again.append([pushed(21)])
    assert [row.number for row in read(again)] == [21]


def test_a_full_disk_takes_nothing(opened, tmp_path, monkeypatch):
    journal = opened(tmp_path)
    journal.append([pushed(1)])

    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name):
            return getattr(self.file, name)

    whole, journal._out = journal._out, Full(journal._out)
    with pytest.raises(JournalFull, match="No space"):
        journal.append([pushed(2)])
    journal._out = whole
    assert journal.append([pushed(2)])[:2] == (1, 0)
    assert [row.number for row in read(journal)] == [1, 2]


def test_too_many_rows_have_to_wait(opened, tmp_path):
    journal = opened(tmp_path, max_backlog=100)
    journal.append([pushed(n) for n in range(1, 9)])
    with pytest.raises(JournalBusy, match="too many rows"):
        journal.append([pushed(9)])
    read(journal)
    assert journal.position
    journal.acknowledge()
    assert journal.append([pushed(9)]).accepted == 1
    journal.close()
    with pytest.raises(JournalBusy, match="not running"):
        journal.append([pushed(10)])


def test_journal_and_store_must_belong_together(opened, tmp_path):
    journal = opened(tmp_path)
    journal.append([pushed(1), pushed(2)])
    read(journal)
    position = journal.position
    with pytest.raises(FeedError, match="the store does not know"):
        opened(tmp_path)
    next(tmp_path.glob("*.jsonl")).write_bytes(b"")
    with pytest.raises(FeedError, match="rows after number 2 are missing"):
        opened(tmp_path, position)
    # A store from a backup, without the folder.
    fresh = opened(tmp_path / "new", position)
    assert fresh.append([pushed(2), pushed(3)])[:2] == (1, 1)
    assert [row.number for row in read(fresh)] == [3]


# ---------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "is not JSON"),
        (b"[1]", "is not an object"),
        (b'{"turbine": "T1", "time": 1, "power": "high"}', "column 'power': 'high' is text"),
        (b'{"turbine": "T1", "power": 1}', "column 'time': the time is missing"),
        (b'{"time": 1, "power": 1}', "column 'turbine': the key is missing"),
        (b'{"turbine": "' + b"x" * 600 + b'", "time": 1}', "the key has 600 characters"),
        (b'{"turbine": 1e400, "time": 1}', "invalid key"),
        (b'{"turbine": "T1", "time": 1, "power": 1e999}', "is not finite"),
        (b"[" * 100_000, "is not JSON: nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_bad_rows_are_named(line, reason):
    parser = RowParser(PLAN)
    good = b'{"turbine": "T1", "time": 1, "power": 2}\n'
    try:
        first, second = parser.json_lines(line + b"\n" if line[:1] == b"[" else good + line)
    except BadBody as error:
        assert reason in str(error)
    except ValueError:
        (only,) = parser.json_lines(line)
        assert reason in only.event.reason
    else:
        assert isinstance(first.event, Row) and (second.event.number, reason in second.event.reason) == (2, True)


def test_sequences_are_whole_numbers():
    parser = RowParser(PLAN, sequence="n")
    body = b'{"turbine": "T1", "time": 1, "n": 7}\n{"turbine": "T1", "time": 2, "n": 7.5}\n{"turbine": "T1", "time": 3}'
    good, wrong, missing = parser.json_lines(body)
    assert good.sequence == 7
    assert "column 'n'" in wrong.event.reason and "column 'n'" in missing.event.reason


def test_arrays_are_read_like_lines():
    parser = RowParser(PLAN, max_rows=2)
    rows = [{"turbine": "T1", "time": 1, "power": 2.0}, {"turbine": 7, "time": 2, "power": None}]
    by_line = parser.json_lines("\n".join(map(json.dumps, rows)).encode())
    assert parser.json_lines(json.dumps(rows).encode()) == by_line
    with pytest.raises(BadBody, match="3 rows are more than 2"):
        parser.json_lines(json.dumps([*rows, {}]).encode())


def test_line_protocol():
    parser = RowParser(PLAN, sequence="n")
    body = b"# comment\nfarm,turbine=T1 power=2.5,wind=7i,n=3i 1700000000\nfarm,turbine=T1 power=x 5\nfarm power=1"
    good, bad, short = parser.line_protocol(body, "s")
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert good == PushedRow(Row(1, 1, at, {"power": 2.5, "wind": 7.0}, "T1"), 3)
    assert "column 'power': 'x' is not a value" in bad.event.reason
    assert isinstance(short.event, Rejected)
    with pytest.raises(BadBody, match="precision"):
        parser.line_protocol(b"", "hours")
    far = parser.line_protocol(b"farm,turbine=T1 power=1,n=1i 99999999999999999999", "s")
    assert "is not a time" in far[0].event.reason


def escaped(text, letters):
    return "".join(f"\\{letter}" if letter in letters else letter for letter in text)


LETTERS = st.characters(codec="utf-8", exclude_characters='\\\n\r"#', exclude_categories=["Cc", "Zs", "Zl", "Zp"])
NAMES = st.text(LETTERS, min_size=1, max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(NAMES, st.dictionaries(NAMES, NAMES, max_size=3), st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=3))
def test_line_protocol_reads_what_was_written(measurement, tags, fields):
    names = [f",{escaped(name, ',= ')}={escaped(text, ',= ')}" for name, text in tags.items()]
    values = ",".join(f"{escaped(name, ',= ')}={value!r}" for name, value in fields.items())
    line = f"{escaped(measurement, ', ')}{''.join(names)} {values} 17"
    try:
        assert read_line_protocol(line) == (measurement, tags, fields, 17)
    except BadRow as bad:  # pragma: no cover - says which line failed
        raise AssertionError(line) from bad
