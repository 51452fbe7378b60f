"""The store: models come back to the bit, only changes are written, and a commit is all or nothing."""

from __future__ import annotations

import pytest

from momostream import MOMoGPRegressor
from momostream.storage import blocks
from momostream.storage.store import DeadLetter, Output, Position, Store, StoreError
from tests.storage.stores import SMALL, contents, learn, small, state


@pytest.mark.parametrize(
    "settings", [{}, {"window": 20}, {"bounds": {"power": (0.0, None), ("load", 1): (None, 99.0)}}]
)
def test_a_model_comes_back_to_the_bit_and_continues_the_same(path, settings):
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
        assert opened.load("empty").series == ()


def test_a_model_without_rows_comes_back(path):
    with Store(path) as opened:
        opened.commit({"T01": MOMoGPRegressor(**SMALL)})
        assert opened.load("T01").predict_one({"wind": 1.0}) == {}


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


def test_what_was_put_is_seen_by_others_with_the_commit_only(path):
    with Store(path) as opened, Store(path, read_only=True) as reader:
        opened.put("T01", small(40))
        assert opened.load("T01").n_rows == 40 and "T01" not in reader
        opened.commit()
        assert reader.load("T01").n_rows == 40
        opened.put("T01", small(50))
    with Store(path) as opened:
        assert opened.rows() == {"T01": 40}


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
def test_sizes_of_blocks_out_of_range_are_rejected(path, size):
    with pytest.raises(ValueError, match="block_bytes"):
        Store(path, block_bytes=size)
    assert not path.exists()


def test_a_model_that_is_too_large_is_rejected(path, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_BITS", 2)
    with Store(path, block_bytes=512) as opened, pytest.raises(StoreError, match="larger block_bytes"):
        opened.commit({"T01": small(200)})


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


def test_what_does_not_fit_this_version_is_an_error_of_the_store(path, monkeypatch):
    monkeypatch.setattr(MOMoGPRegressor, "_state", lambda self: {"future": 1})
    with Store(path) as opened:
        opened.commit({"T01": MOMoGPRegressor(**SMALL)})
        with pytest.raises(StoreError, match="'T01' does not fit this version"):
            opened.load("T01")
