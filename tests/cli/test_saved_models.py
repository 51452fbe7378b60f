"""The commands fit, forecast and inspect."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import momostream
from tests.cli.commands import FORECAST, call, rows_of


def test_fit_then_forecast(turbine):
    _, told = call("fit", "turbine.csv", *FORECAST, "--save", "model.momo")
    assert "80 rows learnt, saved in model.momo" in told
    out, _ = call("forecast", "model.momo")
    rows = rows_of(out)
    assert [row["step"] for row in rows] == ["1", "2", "3"] and rows[0]["time"] == "2024-03-01T13:20:00"
    distribution = momostream.load("model.momo").forecast(3, with_dist=True)
    np.testing.assert_allclose([float(row["wind"]) for row in rows], distribution.mean["wind"], rtol=1e-8)
    assert len(rows_of(call("forecast", "model.momo", "-n", "2")[0])) == 2
    _, told = call("forecast", "model.momo", "-n", "9", code=1)
    assert "cannot forecast 9 steps with a model of 3" in told
    call("forecast", "model.momo", "-o", "f.csv", "--plot", "f.png")
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")


def test_a_soft_sensor_predicts_a_feed(turbine):
    call("fit", "turbine.csv", "-t", "power", "-i", "wind", "--save", "model.momo")
    Path("today.csv").write_text("time,wind\n2024-03-02 00:00,7\n2024-03-02 00:10,\n")
    rows = rows_of(call("forecast", "model.momo", "today.csv")[0])
    assert [row["row"] for row in rows] == ["1", "2"] and abs(float(rows[0]["power"]) - 343.0) < 60.0
    _, told = call("forecast", "model.momo", code=1)
    assert "needs a FEED with its inputs" in told
    call("fit", "turbine.csv", *FORECAST, "--save", "other.momo")
    assert "takes no FEED" in call("forecast", "other.momo", "today.csv", code=1)[1]


def test_inspect_shows_what_was_learnt(turbine):
    call("run", "turbine.csv", "-t", "power", "-o", "out.csv", "--store", "regressor.db")
    out, _ = call("inspect", "regressor.db", "--plot", "circuit.png")
    for word in ("matern32", "lengthscales", "wind", "relevance", "80 rows", "rmse", "coverage"):
        assert word in out, word
    assert Path("circuit.png").stat().st_size > 5000
    call("fit", "turbine.csv", *FORECAST, "--save", "forecaster.momo")
    out, _ = call("inspect", "forecaster.momo")
    assert "own lags" in out and "horizon" in out and "3 steps ahead" in out
    assert (
        "forecaster.momo: contains one model without a key: omit --key"
        in call("inspect", "forecaster.momo", "--key", "T", code=1)[1]
    )
