"""The file of a store: one writer, durable, and nothing but a clear error where it is corrupted."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from random import Random

import pytest

from momostream.storage import container
from momostream.storage.store import Store, StoreError
from tests.storage.stores import contents, small


def test_a_reader_cannot_write(filled):
    with Store(filled, read_only=True) as reader:
        with pytest.raises(StoreError, match="read_only"):
            reader.commit({})
        with pytest.raises(StoreError, match="read_only"):
            reader.delete("T01")


def test_a_closed_store_says_so(filled):
    opened = Store(filled)
    opened.close()
    opened.close()
    for call in (opened.keys, opened.__len__, lambda: opened.load("T01"), lambda: opened.commit({})):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_there_is_one_writer(filled):
    with Store(filled):
        with pytest.raises(StoreError, match=f"process {os.getpid()} has it open"):
            Store(filled, timeout=0.05)
        with Store(filled, read_only=True) as reader:
            assert len(reader) == 2
    with Store(filled) as opened:
        assert len(opened) == 2


def test_another_name_of_the_store_has_the_same_lock(filled, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(filled)
    with Store(link), pytest.raises(StoreError, match="open for writing"):
        Store(filled, timeout=0.05)


@pytest.mark.system
def test_the_lock_ends_with_the_process_that_holds_it(filled):
    code = f"import time; from momostream.store import Store; s = Store({str(filled)!r}); print('open', flush=True)\n"
    child = subprocess.Popen([sys.executable, "-c", code + "time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"process {child.pid} has it open"):
            Store(filled, timeout=0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with Store(filled) as opened:
        assert len(opened) == 2


def test_a_store_that_is_locked_is_waited_for(filled):
    other = sqlite3.connect(filled, isolation_level=None)
    with Store(filled, timeout=0.05) as opened:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked for more than 0\.05 s by another process"):
            opened.commit({"T02": small(3)})
        other.execute("ROLLBACK")
        opened.commit({"T02": small(3)})
        assert len(opened) == 3
    other.close()


def test_a_newer_format_is_left_alone(filled):
    with sqlite3.connect(filled) as db:
        db.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
        db.execute("UPDATE meta SET value = 'momostream 9.9' WHERE name = 'written_by'")
    db.close()
    before = filled.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"format 99 by momostream 9\.9, newer than 2: update momostream"):
            Store(filled, read_only=read_only)
    assert filled.read_bytes() == before


def test_other_files_are_rejected(path, tmp_path):
    path.write_text("wind,power\n" * 1000)
    with pytest.raises(StoreError, match="not a momostream store"):
        Store(path)
    assert path.read_text() == "wind,power\n" * 1000
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE meta (name TEXT, value)")
    db.close()
    with pytest.raises(StoreError, match="another kind of database"):
        Store(other)
    for missing in (tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(StoreError, match="cannot be read or written|another"):
            Store(missing)
    with pytest.raises(StoreError, match="no such store"):
        Store(tmp_path / "missing", read_only=True)


def test_a_journal_without_its_store_is_not_taken_for_a_new_store(filled):
    with Store(filled) as opened:
        opened.commit({"T02": small(3)})
        shutil.copy(f"{filled}-wal", f"{filled}.copy")
    shutil.move(f"{filled}.copy", f"{filled}-wal")
    filled.unlink()
    with pytest.raises(StoreError, match="it is missing"):
        Store(filled)


def test_an_unfinished_creation_is_begun_again(path):
    path.with_name("farm.store-new").write_bytes(b"half")
    with Store(path) as opened:
        opened.commit({"T01": small(2)})
    assert list(contents(path)[0]) == ["T01"]


def test_a_store_that_was_cut_off_is_rejected(filled):
    whole = filled.read_bytes()
    for size in [0, 1, 50, 99, 100, 511, *range(512, len(whole), 512)]:
        filled.write_bytes(whole[:size])
        with pytest.raises(StoreError, match="restore it from a copy"):
            Store(filled)


def test_a_store_that_lacks_a_part_of_a_page_gives_nothing_else_silently(filled):
    expected, whole = contents(filled), filled.read_bytes()
    n_caught = 0
    # The database takes what is missing of its last page for zeros, and leaves it to us to notice.
    for size in range(len(whole) - 511, len(whole), 25):
        filled.write_bytes(whole[:size])
        try:
            assert contents(filled) == expected
        except StoreError:
            n_caught += 1
    assert n_caught


def test_a_flipped_bit_never_gives_anything_else_silently(filled):
    expected, whole, random = contents(filled), filled.read_bytes(), Random(0)
    caught = 0
    offsets = {*range(110), *random.sample(range(len(whole)), 500)}
    for offset in sorted(offsets):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << random.randrange(8)
        filled.write_bytes(damaged)
        try:
            found = contents(filled)
        except StoreError as error:
            assert str(filled) in str(error)
            caught += 1
        else:
            assert found == expected, offset
    # Much of a small database is empty.
    assert caught > 0.3 * len(offsets)


def test_a_name_in_the_database_that_is_not_valid_text(filled):
    whole = filled.read_bytes()
    for old, new in [(b"contents BLOB", b"con\x8aents BLOB"), (b"CREATE TABLE dead", b"CR\xf2ATE TABLE dead")]:
        assert whole.count(old) == 1
        filled.write_bytes(whole.replace(old, new))
        with pytest.raises(StoreError, match="corrupted"):
            contents(filled)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM blocks WHERE place = (SELECT max(place) FROM blocks)",
        "DELETE FROM models WHERE n_rows = 60",
        "DELETE FROM sources",
        "DELETE FROM outputs WHERE last = (SELECT min(last) FROM outputs)",
        "DELETE FROM outputs WHERE last = (SELECT max(last) FROM outputs)",
        "DELETE FROM dead",
        "DELETE FROM meta WHERE name = 'totals'",
        "DELETE FROM meta WHERE name = 'notes'",
        "DROP TABLE blocks",
        'UPDATE models SET key = \'["str", "T99"]\' WHERE n_rows = 60',
        "UPDATE models SET n_rows = 61 WHERE n_rows = 60",
        "UPDATE models SET contents = NULL",
        "UPDATE blocks SET bytes = NULL",
        "UPDATE blocks SET bytes = 'text'",
        "UPDATE sources SET position = 3",
        "UPDATE sources SET name = 'other'",
        "UPDATE outputs SET bytes = (SELECT bytes FROM dead)",
        "UPDATE outputs SET n = n - 1",
        "UPDATE dead SET bytes = NULL",
        "UPDATE dead SET last = last + 5",
    ],
)
def test_what_is_missing_or_altered_is_named(filled, damage):
    with sqlite3.connect(filled) as db:
        db.execute(damage)
    db.close()
    with pytest.raises(StoreError, match="corrupted"):
        contents(filled)


def test_a_damaged_model_is_named_and_others_can_be_read(filled):
    with sqlite3.connect(filled) as db:
        db.execute("UPDATE blocks SET bytes = zeroblob(9) WHERE place = (SELECT max(place) FROM blocks)")
    db.close()
    with Store(filled) as opened:
        assert opened.load("T01").n_rows == 60
        with pytest.raises(StoreError, match=r"\('T', 1\).*restore it from a copy"):
            opened.load(("T", 1))
        opened.delete(("T", 1))
        assert opened.keys() == ["T01"]


def test_a_commit_is_on_the_disk_when_it_returns(path):
    with Store(path) as opened:
        assert opened._db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert opened._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_name_of_a_new_store_is_on_the_disk_before_its_first_commit(path, monkeypatch):
    synchronised = []
    monkeypatch.setattr(container, "sync_folder", lambda folder: synchronised.append((folder, path.exists())))
    with Store(path):
        assert synchronised == [(str(path.parent), True)]
    with Store(path):
        assert len(synchronised) == 1, "only a new store has a new name"
