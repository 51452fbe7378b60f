"""`momostream backup` and `momostream migrate`."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from momostream.storage.store import Store, StoreError
from tests.cli.commands import BY_TURBINE, FORECAST, SOFT, call, farm_text, models_in

OLD = Path(__file__).parents[1] / "storage" / "written_by_0.1"


def run_farm(*more):
    return call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "run.db", "-q", *more)


def test_a_backup_resumes_like_the_store(farm):
    run_farm("--limit", "30")
    call("backup", "run.db", "copy.db", "--check")
    assert models_in("copy.db") == models_in("run.db")
    run_farm()
    call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", "copy.db", "-q")
    assert models_in("copy.db") == models_in("run.db")
    assert call("read", "copy.db") == call("read", "run.db")


def test_a_backup_beside_a_writer_has_the_last_commit(farm):
    run_farm("--limit", "30")
    with Store("run.db") as store:
        model = store.load("T01")
        store.put("T04", model)
        call("backup", "run.db", "copy.db")
        store.commit()
        assert len(store) == 4
    with Store("copy.db", read_only=True) as copy:
        assert len(copy) == 3
    db = sqlite3.connect("copy.db")
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


@pytest.mark.parametrize(
    ("source", "to", "message"),
    [
        ("run.db", "farm.csv", "farm.csv: already exists"),
        ("none.db", "copy.db", "none.db: does not exist"),
        ("farm.csv", "copy.db", "farm.csv: is not a store"),
        ("run.db", "nowhere/copy.db", "nowhere/copy.db: the folder does not exist"),
    ],
)
def test_backups_that_are_rejected(farm, source, to, message):
    run_farm()
    before = Path("farm.csv").read_bytes()
    assert message in call("backup", source, to, code=1)[1]
    assert Path("farm.csv").read_bytes() == before
    assert not Path("copy.db").exists() and not Path("copy.db-new").exists()


def test_a_backup_of_a_farm(farm):
    for name in ("north", "south"):
        call("run", "farm.csv", *BY_TURBINE, *SOFT, "--store", f"{name}.db", "-q")
    sqlite3.connect("north.db-page").executescript("CREATE TABLE seen (id TEXT)")
    table = 'source = "farm.csv"\nkey = "turbine"\ntargets = ["power"]\n'
    Path("farm.toml").write_text(f"[feeds.north]\n{table}[feeds.south]\n{table}[feeds.west]\n{table}")
    said = call("backup", "farm.toml", "kept/monday")[1]
    assert "west.db: does not exist yet" in said and "backup: kept/monday" in said
    found = sorted(path.name for path in Path("kept/monday").iterdir() if not path.name.endswith(("-shm", "-wal")))
    assert found == ["farm.toml", "north.db", "north.db-page", "south.db"]
    assert models_in("kept/monday/south.db") == models_in("south.db")
    assert "already exists: choose a new folder" in call("backup", "farm.toml", "kept/monday", code=1)[1]


@pytest.mark.parametrize("name", ["fleet.store", "single.store"])
def test_a_store_of_an_earlier_version_is_migrated(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(OLD / name, tmp_path)
    with Store(name) as store:
        assert not store.is_current
        before_lines = repr((list(store.outputs()), store.rows(), store.sources()))
        # Models of both formats can be written.
        store.put(store.keys()[0], store.load(store.keys()[0]))
        store.commit()
    before = models_in(name)
    assert "MB before" in call("migrate", name)[1]
    assert models_in(name) == before
    with Store(name) as store:
        assert store.is_current
        assert repr((list(store.outputs()), store.rows(), store.sources())) == before_lines
    call("migrate", name, "-q")
    assert models_in(name) == before


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(OLD / "fleet.store", tmp_path)
    before = models_in("fleet.store")
    with Store("fleet.store") as store:
        loads = store.load

        def fails(key):
            if key == "B":
                raise StoreError("no room")
            return loads(key)

        monkeypatch.setattr(store, "load", fails)
        with pytest.raises(StoreError, match="no room"):
            store.migrate()
    with Store("fleet.store") as store:
        assert not store.is_current
    assert models_in("fleet.store") == before


def test_a_model_is_migrated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(OLD / "regressor.momo", tmp_path)
    call("migrate", "regressor.momo")
    assert "60 rows learnt" in call("inspect", "regressor.momo")[0]
    assert "none.db: does not exist" in call("migrate", "none.db", code=1)[1]


def test_stores_of_young_forecasters_are_small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("farm.csv").write_text(farm_text(40, [f"T{n:02d}" for n in range(10)]))
    options = ["-t", "power", "-t", "wind", "--horizon", "36"]
    call("run", "farm.csv", *BY_TURBINE, *options, "--store", "run.db", "-q", "-o", "forecasts.csv")
    assert Path("run.db").stat().st_size < 10 * 15_000


def test_nothing_is_overwritten_without_being_asked_to(turbine):
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "-q")
    before = Path("out.csv").read_bytes()
    message = "out.csv: already exists: add --overwrite, or choose another file"
    for more in ([], ["--store", "run.db"]):
        assert message in call("run", "turbine.csv", *FORECAST, "-o", "out.csv", *more, "-q", code=1)[1]
        assert Path("out.csv").read_bytes() == before
    assert message in call("run", "turbine.csv", *SOFT, "-o", "new.csv", "--alarms", "out.csv", "-q", code=1)[1]
    call("run", "turbine.csv", *FORECAST, "-o", "out.csv", "--overwrite", "-q", "--limit", "5")
    assert len(Path("out.csv").read_bytes()) < len(before)
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", "-q")
    assert message in call("forecast", "model.momo", "-o", "out.csv", code=1)[1]
    call("forecast", "model.momo", "-o", "out.csv", "--overwrite")
    # An empty file, as mktemp makes it, holds nothing to lose.
    Path("empty.csv").touch()
    call("run", "turbine.csv", *FORECAST, "-o", "empty.csv", "-q", "--limit", "5")


def test_a_fit_that_fails_leaves_no_model(turbine):
    lines = Path("turbine.csv").read_text().splitlines()
    lines[50] += ",one,too,many"
    Path("turbine.csv").write_text("\n".join(lines) + "\n")
    assert "row 50" in call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", "-q", code=1)[1]
    assert not Path("model.momo").exists()
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", "--bad-rows", "skip", "-q")
    before = Path("model.momo").read_bytes()
    call("fit", "turbine.csv", *FORECAST, "--save", "model.momo", "--overwrite", "-q", code=1)
    assert Path("model.momo").read_bytes() == before
