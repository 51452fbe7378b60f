"""Files and stores that version 0.1 wrote before its modules moved into packages still load, and predict the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from momostream import MOMoGPForecaster, MOMoGPRegressor, load
from momostream.cli.app import app
from momostream.storage.store import Store

FOLDER = Path(__file__).parent / "written_by_0.1"
# Another processor may round otherwise; another model would differ by far more.
close = {"rel": 1e-6}


def test_regressor():
    model = load(FOLDER / "regressor.momo")
    assert isinstance(model, MOMoGPRegressor) and model.n_rows == 60
    found = model.predict_one({"wind": 8.5, "pitch": 1})
    assert found == pytest.approx({"power": 612.8255805440685, "load": 42.47856685772859}, **close)


def test_regressor_with_a_window_and_bounds():
    model = load(FOLDER / "windowed.momo")
    assert model.predict_one({"wind": 8.5}) == pytest.approx({"power": 614.0125677752419}, **close)


def test_forecaster():
    model = load(FOLDER / "forecaster.momo")
    assert isinstance(model, MOMoGPForecaster) and model.n_rows == 60
    first, _, last = model.forecast(3, [{"temp": 8.0}] * 3)
    # Its experts are others now, and have learnt the rows that it remembered.
    assert first == pytest.approx({"power": 483.4773223114914, "wind": 8.058396568675727}, rel=0.05)
    assert last == pytest.approx({"power": 477.4233689186271, "wind": 7.934937889496378}, rel=0.05)
    again = load(FOLDER / "forecaster.momo")
    for one in (model, again):
        one.learn_one({"power": 480.0, "wind": 8.0}, {"temp": 8.0})
    assert model.forecast(3) == again.forecast(3)


def test_store_of_a_fleet(tmp_path):
    shutil.copy(FOLDER / "fleet.store", tmp_path)
    with Store(tmp_path / "fleet.store") as store:
        assert store.rows() == {"A": 40, "B": 40}
        assert store.count("outputs") == 78
        found = [store.load(key).predict_one({"wind": 8.5})["power"] for key in "AB"]
    assert found == pytest.approx([614.0408413213698, 614.1879732693196], **close)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fleet.store", ["--key", "unit", "-t", "power"]),
        ("single.store", ["--horizon", "2", "-t", "power", "-t", "wind"]),
    ],
)
def test_run_resumes_from_a_store(name, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FOLDER / name, tmp_path)
    feed = (FOLDER / "feed.csv").read_bytes()
    Path("feed.csv").write_bytes(feed + b"2024-03-01 13:20:00,A,8.1,531.4\r\n")
    done = CliRunner().invoke(app, ["run", "feed.csv", "--store", name, "--quiet", *options])
    assert done.exit_code == 0, done.output
    with Store(name) as store:
        assert sum(store.rows().values()) == 81
