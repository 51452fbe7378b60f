"""Fleets that take frames in long format: each series is a key with a model of its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from momostream import MOMoGPForecaster
from momostream.runs.fleet import Fleet
from momostream.storage.blocks import Parts

DAYS = pd.date_range("2024-01-01", periods=40, tz="Europe/Berlin")


def small():
    return MOMoGPForecaster(horizon=3, experts=("last value", "own lags"), seed=0)


def lines(days=DAYS, keys=("b", 7), names=("unique_id", "ds", "y")):
    parts = [
        pd.DataFrame({names[0]: key, names[1]: days, names[2]: k + np.sin(np.arange(len(days)) / 3)})
        for k, key in enumerate(keys)
    ]
    return pd.concat(parts).sort_values(names[1], ignore_index=True)


@pytest.mark.parametrize("names", [("unique_id", "ds", "y"), ("machine", "at", "power")])
def test_each_key_learns_its_own_rows(names):
    fleet, frame = Fleet(small()), lines(names=names)
    long = None if names[0] == "unique_id" else names
    fleet.learn_many(frame[:50], long=long)
    fleet.learn_many(frame[50:], long=long)
    for key in ("b", 7):
        alone = small()
        rows = frame[frame[names[0]] == key].set_index(names[1])[[names[2]]]
        alone.learn_many(rows[:25])
        alone.learn_many(rows[25:])
        assert Parts.of(fleet.model(key)) == Parts.of(alone)
    found = fleet.predict("2d", levels=[0.8])
    assert list(found.columns) == [*names[:2], "mean", "std", "q0.1", "q0.5", "q0.9"]
    assert found[names[0]].tolist() == ["b", "b", 7, 7]
    assert found[names[1]].tolist()[:2] == [DAYS[-1] + pd.Timedelta(days=n) for n in (1, 2)]
    expected = alone.forecast("2d", with_dist=True).to_frame([0.8])
    np.testing.assert_array_equal(found[2:][["mean", "std"]], expected[["mean", "std"]])


def test_polars_and_inputs():
    frame = lines(DAYS.tz_localize(None), keys=("a",)).assign(price=np.arange(40.0))
    fleet = Fleet(small())
    fleet.learn_many(pl.from_pandas(frame), inputs=["price"])
    found = fleet.predict(2, levels=(), xs={"a": [{"price": 40.0}, {"price": 41.0}]})
    assert list(fleet.model("a").inputs) == ["price"]
    assert len(found) == 2


def test_a_key_with_a_bad_row_is_named_and_makes_no_model():
    frame = lines()
    frame["y"] = frame["y"].astype(object)
    frame.loc[frame.index[-1], "y"] = "calm"
    fleet = Fleet(small())
    key = frame["unique_id"].iloc[-1]
    with pytest.raises((TypeError, ValueError), match=f"unique_id {key!r}: "):
        fleet.learn_many(frame)
    assert key not in fleet


@pytest.mark.parametrize(
    ("frame", "inputs", "message"),
    [
        (lines().drop(columns="y"), (), "there is no column 'y'"),
        (lines(), ["price"], "there is no input 'price'"),
        (lines().assign(unique_id=None), (), "row 0 has no 'unique_id'"),
    ],
)
def test_frames_that_cannot_be_used(frame, inputs, message):
    with pytest.raises(ValueError, match=message):
        Fleet(small()).learn_many(frame, inputs)
    assert Fleet(small()).predict().empty
