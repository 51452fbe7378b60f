"""The store: what comes back, what is written, and nothing but a clear error from a file that is damaged."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from random import Random

import numpy as np
import pytest

from momostream import MOMoGPRegressor
from momostream.storage import blocks, store
from momostream.storage.blocks import Parts
from momostream.storage.store import DeadLetter, Output, Position, Store, StoreError, plain_key

SMALL = {"experts": ("matern32",), "max_points": 32, "tuning_evaluations": 4, "seed": 0}


def learn(model, n, seed=0):
    random = Random(seed)
    for _ in range(n):
        wind = random.gauss(8.0, 2.0)
        model.learn_one({"wind": wind, "pitch": random.random()}, {"power": wind**2, ("load", 1): wind})
    return model


def small(n, seed=0, **settings):
    return learn(MOMoGPRegressor(**SMALL | settings), n, seed)


def state(model):
    """A model to the bit."""
    return Parts.of(model)


def contents(path):
    """Everything that a store says."""
    with Store(path, read_only=True) as opened:
        return (
            {key: state(opened.load(key)) for key in opened.keys()},
            opened.source("farm"),
            list(opened.outputs()),
            list(opened.dead()),
            opened.notes,
        )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "farm.store"


@pytest.fixture
def filled(path):
    outputs = [Output("T01", 10 * n, f"power {n}") for n in range(20)]
    dead = [DeadLetter("farm", 7, None, "no key", "a,b"), DeadLetter("farm", 9, ("T", 1), "too large", "1e99")]
    with Store(path, block_bytes=1024) as opened:
        models = {"T01": small(60), ("T", 1): small(30, 1)}
        opened.commit(models, Position("farm", 200, 90, 2, {"track": [1, None]}), outputs, dead, {"kin": [1.5]})
    return path


# ---------------------------------------------------------------------- what goes in comes out


@pytest.mark.parametrize(
    "settings", [{}, {"window": 20}, {"bounds": {"power": (0.0, None), ("load", 1): (None, 99.0)}}]
)
def test_a_model_comes_back_to_the_bit_and_goes_on_the_same(path, settings):
    model = small(70, **settings)
    with Store(path) as opened:
        opened.commit({"T01": model})
        again = opened.load("T01")
    assert state(again) == state(model)
    assert state(learn(again, 40, 5)) == state(learn(model, 40, 5))


def test_a_forecaster_comes_back(path):
    from momostream import MOMoGPForecaster

    model = MOMoGPForecaster(horizon=3, seed=0)
    for t in range(50):
        model.learn_one({"power": float(t % 7), "load": float(t % 5)})
    with Store(path) as opened:
        opened.commit({"T01": model, "empty": MOMoGPForecaster(horizon=2)})
        assert opened.load("T01").forecast(3) == model.forecast(3)
        assert opened.load("empty").forecast(2) == []


def test_a_model_without_rows_comes_back(path):
    with Store(path) as opened:
        opened.commit({"T01": MOMoGPRegressor(**SMALL)})
        assert opened.load("T01").predict_one({"wind": 1.0}) == {}


@pytest.mark.parametrize("key", ["T01", "", "é\n'\"\ud800", 0, -7, 1 << 70, ("farm", 3), (("a", 1), "b"), ("1",), (1,)])
def test_keys_come_back_as_they_are(path, key):
    with Store(path) as opened:
        opened.commit({key: small(2)})
        assert opened.keys() == [key]
        assert type(opened.keys()[0]) is type(key)
        assert key in opened
        assert opened.load(key).n_rows == 2


@pytest.mark.parametrize("key", [3.5, 1.0, True, None, b"T01", ("a", 2.5), ("a", (True,)), ["a"], frozenset("a")])
def test_other_keys_are_refused(path, key):
    with Store(path) as opened:
        for call in (opened.load, opened.delete, opened.__contains__, plain_key):
            with pytest.raises(TypeError):
                call(key)
        with pytest.raises(TypeError):
            opened.commit({"T01": small(2)}, outputs=[Output(key, 1, "")])
        assert opened.keys() == []


def test_numbers_of_numpy_are_numbers(path):
    with Store(path) as opened:
        opened.commit({np.int64(3): small(2)})
        assert opened.keys() == [3]
        assert 3 in opened
        assert "3" not in opened


def test_a_text_and_a_number_are_two_keys(path):
    with Store(path) as opened:
        opened.commit({"1": small(3), 1: small(4)})
        assert [opened.load("1").n_rows, opened.load(1).n_rows, len(opened)] == [3, 4, 2]


def test_lines_are_numbered_on_and_read_by_pages(path, monkeypatch):
    monkeypatch.setattr(store, "PAGE_LINES", 3)
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


def test_sources_are_kept_by_name(path):
    first, second = Position("a", 1, 2), Position("b", 3, 4, 5, {"plan": ("x", None)})
    with Store(path) as opened:
        assert opened.source("a") is None
        opened.commit({}, first)
        opened.commit({}, second)
        opened.commit({}, Position("a", 6, 7))
    with Store(path) as opened:
        assert [opened.source("a"), opened.source("b")] == [Position("a", 6, 7), second]


def test_a_deleted_model_leaves_nothing(path):
    with Store(path) as opened:
        opened.commit({"a": small(40), "b": small(20)})
        opened.delete("a")
        with pytest.raises(KeyError):
            opened.delete("a")
        with pytest.raises(KeyError):
            opened.load("a")
        opened.commit({"c": small(10)})
    with Store(path) as opened:
        assert opened.keys() == ["b", "c"]
        assert state(opened.load("b")) == state(small(20))
        opened.delete("b")
        opened.delete("c")
        opened.commit()
        assert opened._db.execute("SELECT count(*) FROM blocks").fetchone() == (0,)


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
        assert [opened.count(table) for table in store.LINES] == [6, 2, 0]


def test_what_was_put_is_seen_by_others_with_the_commit_only(path):
    with Store(path) as opened, Store(path, read_only=True) as reader:
        opened.put("T01", small(40))
        assert opened.load("T01").n_rows == 40 and "T01" not in reader
        opened.commit()
        assert reader.load("T01").n_rows == 40
        opened.put("T01", small(50))
    with Store(path) as opened:
        assert opened.rows() == {"T01": 40}


# ---------------------------------------------------------------------- what is written


def test_only_what_has_changed_is_written(path):
    model = small(2000, tuning_evaluations=0)
    with Store(path) as opened:
        opened.commit({"T01": model})
        whole = opened.bytes_written
        opened.commit({"T01": model})
        nothing = opened.bytes_written
        learn(model, 1, 3)
        opened.commit({"T01": model})
        assert nothing == 0
        assert 0 < opened.bytes_written < 0.5 * whole
        assert state(opened.load("T01")) == state(model)


def test_a_smaller_model_leaves_no_old_blocks(path):
    with Store(path, block_bytes=512) as opened:
        opened.commit({"T01": small(300)})
        opened.commit({"T01": small(3)})
        assert state(opened.load("T01")) == state(small(3))
        opened.delete("T01")
        assert opened._db.execute("SELECT count(*) FROM blocks").fetchone() == (0,)


def test_the_size_of_blocks_may_change(path):
    model = small(100)
    for size in (512, 4096, 777, 1 << 20):
        learn(model, 5, size)
        with Store(path, block_bytes=size) as opened:
            opened.commit({"T01": model})
            assert state(opened.load("T01")) == state(model)


@pytest.mark.parametrize("size", [0, 511, 1 << 21, 4096.0, None])
def test_sizes_of_blocks_that_make_no_sense_are_refused(path, size):
    with pytest.raises(ValueError, match="block_bytes"):
        Store(path, block_bytes=size)
    assert not path.exists()


def test_a_model_that_is_too_large_is_refused(path, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_BITS", 2)
    with Store(path, block_bytes=512) as opened, pytest.raises(StoreError, match="larger block_bytes"):
        opened.commit({"T01": small(200)})


# ---------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"outputs": [Output("T01", 1, b"x")]}, TypeError),
        ({"outputs": [Output("T01", 1.5, "x")]}, TypeError),
        ({"dead": [DeadLetter("farm", 1, None, None, "x")]}, TypeError),
        ({"source": Position("farm", 1, 1, more={"x": object()})}, TypeError),
        ({"notes": {"x": {1, 2}}}, TypeError),
    ],
)
def test_a_commit_that_fails_changes_nothing(filled, bad, error):
    before = contents(filled)
    given = {"source": Position("farm", 999, 999), "outputs": [Output("T01", 1, "new")]} | bad
    with Store(filled) as opened, pytest.raises(error):
        opened.commit({"T01": small(61), "new": small(5)}, **given)
    assert contents(filled) == before


def test_a_full_disk_leaves_the_last_commit_and_the_next_one_works(filled):
    before = contents(filled)
    with Store(filled) as opened:
        (n_pages,) = opened._db.execute("PRAGMA page_count").fetchone()
        opened._db.execute(f"PRAGMA max_page_count={n_pages + 2}")
        larger = {"T02": small(400), "T03": small(400)}
        for _ in range(2):
            with pytest.raises(StoreError, match="disk is full.*last commit"):
                opened.commit(larger, Position("farm", 999, 999))
            assert opened.source("farm") == before[1]
            assert state(opened.load("T01")) == before[0]["T01"]
        assert contents(filled) == before
        opened._db.execute("PRAGMA max_page_count=100000")
        opened.commit(larger, Position("farm", 999, 999))
    assert contents(filled)[0].keys() == {"T01", ("T", 1), "T02", "T03"}


def test_readers_see_whole_commits(filled):
    with Store(filled) as writer, Store(filled, read_only=True) as reader:
        writer.commit({"T01": small(61)}, Position("farm", 300, 91))
        assert (reader.load("T01").n_rows, reader.source("farm").offset) == (61, 300)
        writer._db.execute("BEGIN IMMEDIATE")
        writer._db.execute("DELETE FROM models")
        assert (len(reader), reader.load("T01").n_rows) == (2, 61)
        writer._db.execute("ROLLBACK")


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


# ---------------------------------------------------------------------- locks


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


# ---------------------------------------------------------------------- files that are not what they should be


def test_a_newer_format_is_left_alone(filled):
    with sqlite3.connect(filled) as db:
        db.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
        db.execute("UPDATE meta SET value = 'momostream 9.9' WHERE name = 'written_by'")
    db.close()
    before = filled.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"format 99 by momostream 9\.9, newer than 1: update momostream"):
            Store(filled, read_only=read_only)
    assert filled.read_bytes() == before


def test_what_is_no_store_is_refused(path, tmp_path):
    path.write_text("wind,power\n" * 1000)
    with pytest.raises(StoreError, match="no store of momostream"):
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


def test_a_store_that_was_cut_off_is_refused(filled):
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
    places = {*range(110), *random.sample(range(len(whole)), 500)}
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randrange(8)
        filled.write_bytes(damaged)
        try:
            found = contents(filled)
        except StoreError as error:
            assert str(filled) in str(error)
            caught += 1
        else:
            assert found == expected, place
    # Much of a small database is empty.
    assert caught > 0.3 * len(places)


def test_a_name_in_the_database_that_is_no_text_any_more(filled):
    whole = filled.read_bytes()
    for old, new in [(b"contents BLOB", b"con\x8aents BLOB"), (b"CREATE TABLE dead", b"CR\xf2ATE TABLE dead")]:
        assert whole.count(old) == 1
        filled.write_bytes(whole.replace(old, new))
        with pytest.raises(StoreError, match="damaged"):
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
    with pytest.raises(StoreError, match="damaged"):
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


def test_what_does_not_fit_this_version_is_an_error_of_the_store(path, monkeypatch):
    monkeypatch.setattr(MOMoGPRegressor, "_state", lambda self: {"future": 1})
    with Store(path) as opened:
        opened.commit({"T01": MOMoGPRegressor(**SMALL)})
        with pytest.raises(StoreError, match="'T01' does not fit this version"):
            opened.load("T01")
