"""Many rows at once: `learn_many`, `update`, `predict`, shapes of tables, long format, categories, reasons."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose

from momostream import MOMoGPForecaster, load
from tests.estimators.series import SMALL, START, checksum, feed, trained


def history(n=120, seed=0, start=START):
    index = pd.date_range(start, periods=n, freq="10min")
    return pd.DataFrame([{**x, **y} for x, y in feed(n, seed)], index=index)


# ------------------------------------------------------------------ more rows


@pytest.mark.parametrize("first", [0, 2, 50])
def test_learning_in_batches_is_learning_row_by_row(first):
    frame = history()
    model = MOMoGPForecaster(**SMALL)
    model.learn_many(frame[:first], inputs=["pitch"])
    assert model.update(frame[first:80], inputs=["pitch"]) is model
    # Columns that have been inputs so far are inputs.
    model.learn_many(frame[80:])
    whole = MOMoGPForecaster(**SMALL).fit(frame, inputs=["pitch"])
    assert model.n_rows == 120 and model.inputs == ("pitch",)
    if first != 2:
        assert checksum(model) == checksum(whole)
    one = MOMoGPForecaster(**SMALL, time="at")
    for (time, row), (x, y) in zip(frame.iterrows(), feed(120), strict=True):
        one.learn_one(y, {**x, "at": time})
        assert row["pitch"] == x["pitch"]
    assert one.forecast(4) == whole.forecast(4)


def test_a_batch_with_an_error_is_not_learnt_at_all():
    frame = history()
    model = MOMoGPForecaster(**SMALL, bounds={"wind": (0.0, None)}, beyond="error").fit(frame[:50], inputs=["pitch"])
    before = checksum(model)
    bad = frame[50:60].copy()
    bad.iloc[7, bad.columns.get_loc("wind")] = -1.0
    with pytest.raises(ValueError, match="row 57: target 'wind' is -1.0, below its lower bound"):
        model.learn_many(bad)
    with pytest.raises(ValueError, match="row 51: time must increase"):
        model.update(frame.iloc[[50, 50]])
    with pytest.raises(ValueError, match="the columns are 'wind'"):
        model.learn_many(frame[["wind"]][50:], inputs=["rain"])
    assert checksum(model) == before
    fresh = MOMoGPForecaster(**SMALL)
    empty = checksum(fresh)
    with pytest.raises(TypeError, match="row 1: the value of 'wind' is a str"):
        fresh.learn_many(pd.DataFrame({"wind": [1.0, "calm"]}, frame.index[:2]))
    assert checksum(fresh) == empty


def test_frozen_models_check_batches_and_ignore_them():
    model = trained(30)
    model.freeze()
    before = checksum(model)
    model.learn_many(history(5).reset_index(drop=True))
    assert checksum(model) == before


def test_numbers_and_series():
    values = pd.Series(np.sin(np.arange(40.0) / 3))
    model = MOMoGPForecaster(**SMALL)
    for value in values[:30]:
        model.learn_one(value)
    model.learn_many(values[30:])
    fitted = MOMoGPForecaster(**SMALL).fit(values)
    assert fitted.series == ("y",)
    assert model.forecast(4) == [row["y"] for row in fitted.forecast(4)]


def test_predict_is_the_mean_as_a_frame():
    model = MOMoGPForecaster(**SMALL).fit(history(), inputs=["pitch"])
    forecast = model.forecast(4, with_dist=True)
    pd.testing.assert_frame_equal(model.predict(), forecast.mean)
    pd.testing.assert_frame_equal(model.predict(2), forecast.mean[:2])
    X = pd.DataFrame({"pitch": [0.1, 0.2, 0.3]})
    pd.testing.assert_frame_equal(model.predict(3, X), model.forecast(3, X.to_dict("records"), True).mean)


# ------------------------------------------------------------------ shapes of tables


def test_tables_of_other_libraries():
    frame = history().rename_axis("at")
    expected = checksum(MOMoGPForecaster(**SMALL, time="at").fit(frame.reset_index(), inputs=["pitch"]))
    tables = {
        "polars": pl.DataFrame({"at": frame.index.to_numpy(), **{name: frame[name].to_numpy() for name in frame}}),
        "dicts": frame.reset_index().to_dict("records"),
    }
    for name, table in tables.items():
        assert checksum(MOMoGPForecaster(**SMALL, time="at").fit(table, inputs=["pitch"])) == expected, name
    values = frame[["power", "wind"]].to_numpy()
    arrays, named = MOMoGPForecaster(**SMALL).fit(values), MOMoGPForecaster(**SMALL)
    named.fit(pd.DataFrame(values, columns=["y0", "y1"]))
    assert checksum(arrays) == checksum(named)
    arrays.learn_many(values[:3])
    assert arrays.n_rows == 123
    one = MOMoGPForecaster(**SMALL).fit(pl.Series("wind", values[:, 1]))
    other = MOMoGPForecaster(**SMALL).fit(frame[["wind"]].reset_index(drop=True))
    assert one.series == ("wind",) and one.forecast(2) == other.forecast(2)


def test_tables_that_do_not_fit():
    model = MOMoGPForecaster(**SMALL).fit(history())
    with pytest.raises(ValueError, match="frame has no names, and the model has learnt the columns 'pitch', 'power'"):
        model.learn_many(np.ones((2, 3)))
    with pytest.raises(TypeError, match="LazyFrame: call its collect"):
        model.fit(pl.DataFrame({"a": [1.0]}).lazy())
    with pytest.raises(ValueError, match="one or two dimensions"):
        model.fit(np.ones((2, 2, 2)))
    with pytest.raises(TypeError, match="the column 'at' holds dates: if it is the time, set time='at'"):
        model.fit(history().rename_axis("at").reset_index())


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "UTC+02:00", None])
def test_the_zone_that_came_in_goes_out(zone, tmp_path):
    frame = history(200)[["wind"]]
    # Over the night in which summer time begins.
    frame.index = pd.date_range("2024-03-30 12:00", periods=200, freq="10min", tz=zone)
    model = MOMoGPForecaster(**SMALL).fit(frame[:-1])
    one = MOMoGPForecaster(**SMALL, time="at")
    for time, row in frame[:-1].iterrows():
        one.learn_one(row.to_dict(), {"at": time})
    column = MOMoGPForecaster(**SMALL, time="at").fit(pl.from_pandas(frame[:-1].rename_axis("at").reset_index()))
    model.save(tmp_path / "model.momo")
    for other in (model, one, column, load(tmp_path / "model.momo")):
        index = other.predict(1).index
        assert index[0] == frame.index[-1] and index.tz_localize(None)[0] == frame.index.tz_localize(None)[-1]


def test_days_in_a_zone_with_summer_time_begin_at_midnight():
    index = pd.date_range("2024-03-01", periods=29, freq="D", tz="Europe/Berlin")
    model = MOMoGPForecaster(**SMALL).fit(pd.Series(range(29), index, dtype=float))
    assert [str(time) for time in model.predict().index[1:3]] == [
        "2024-03-31 00:00:00+01:00",
        "2024-04-01 00:00:00+02:00",
    ]


@pytest.mark.parametrize("freq", ["MS", "ME", "QS", "YS"])
def test_months_stay_months(freq):
    index = pd.date_range("2000-01-01", periods=30, freq=freq)
    model = MOMoGPForecaster(**{**SMALL, "horizon": 12}).fit(pd.Series(range(18), index[:18], dtype=float))
    assert list(model.predict().index) == list(index[18:])
    model.learn_one({"y": 18.0})
    model.learn_one({"y": 19.0})
    assert (model.predict(1).index[0] - index[20]) < timedelta(days=4)


@pytest.mark.parametrize("freq", ["M", "Q-DEC", "h", "D"])
def test_periods_in_periods_out(freq):
    index = pd.period_range("2020-01-01", periods=40, freq=freq)
    model = MOMoGPForecaster(**SMALL).fit(pd.Series(range(36), index[:36], dtype=float))
    assert model.predict().index.equals(index[36:].rename("time"))
    model.update(pd.Series([36.0, 37.0], index[36:38]))
    assert list(model.predict(2).index) == list(index[38:])


# ------------------------------------------------------------------ long format


def long(frame, series=("power", "wind")):
    lines = frame[[*series]].rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")
    return lines.sample(frac=1.0, random_state=0)


def test_long_frames_are_wide_ones():
    frame = history()[["power", "wind"]]
    wide = MOMoGPForecaster(**SMALL).fit(frame[:100])
    model = MOMoGPForecaster(**SMALL).fit(long(frame[:100]))
    assert checksum(model) == checksum(wide)
    model.update(long(frame[100:]))
    wide.update(frame[100:])
    assert checksum(model) == checksum(wide)
    other = long(frame).rename(columns={"unique_id": "sensor", "ds": "at", "y": "value"})
    named = MOMoGPForecaster(**SMALL).fit(other, long=("sensor", "at", "value"))
    assert named.forecast(4) == model.forecast(4)
    polars = MOMoGPForecaster(**SMALL).fit(pl.from_pandas(long(frame)))
    assert polars.forecast(4) == model.forecast(4)


def test_long_frames_with_gaps_and_whole_numbers_as_times():
    lines = pd.DataFrame({"unique_id": "a", "ds": [0, 1, 2, 4, 5, 6, 7, 8], "y": 1.0})
    assert MOMoGPForecaster(**SMALL).fit(lines).n_rows == 9


def test_inputs_in_long_frames():
    frame = history()
    lines = long(frame)
    lines["pitch"] = lines["ds"].map(frame["pitch"])
    shared = MOMoGPForecaster(**SMALL).fit(lines[lines["ds"] < frame.index[100]], inputs=["pitch"])
    assert shared.inputs == ("pitch",)
    assert checksum(shared) == checksum(MOMoGPForecaster(**SMALL).fit(frame[:100], inputs=["pitch"]))
    shared.update(lines[lines["ds"] >= frame.index[100]])
    assert shared.n_rows == 120 and shared.inputs == ("pitch",)
    lines["pitch"] += (lines["unique_id"] == "wind").astype(float)
    with pytest.raises(ValueError, match="input 'pitch' was the same for all series so far"):
        shared.update(lines)
    own = MOMoGPForecaster(**SMALL).fit(lines, inputs=["pitch"])
    assert own.inputs == ("pitch of power", "pitch of wind") and own.series == ("power", "wind")
    ahead = pd.DataFrame({"unique_id": ["power", "wind"] * 2, "ds": [1, 1, 2, 2], "pitch": [0.9, 1.9, 0.1, 1.1]})
    xs = [{"pitch of power": 0.9, "pitch of wind": 1.9}, {"pitch of power": 0.1, "pitch of wind": 1.1}]
    assert own.forecast(2, ahead) == own.forecast(2, xs)


def test_long_frames_with_mistakes():
    lines = long(history(20)).reset_index(drop=True)
    model = MOMoGPForecaster(**SMALL)
    with pytest.raises(ValueError, match="row 40: series 'power' has two values at 2024-03-01"):
        model.fit(pd.concat([lines, lines[lines["unique_id"] == "power"][:1]], ignore_index=True))
    with pytest.raises(ValueError, match="row 3 has no 'unique_id' or no 'ds'"):
        model.fit(lines.assign(ds=lines["ds"].where(lines.index != 3)))
    with pytest.raises(ValueError, match="there is no column 'value'"):
        model.fit(lines, long=("unique_id", "ds", "value"))
    with pytest.raises(ValueError, match="use three columns"):
        model.fit(lines, long="unique_id")


# ------------------------------------------------------------------ categories


def machine(n=200):
    """Power that is low when the machine idles; modes come in blocks."""
    modes = ["idle" if t // 20 % 2 else "run" for t in range(n)]
    level = np.array([5.0 if mode == "idle" else 20.0 for mode in modes])
    return pd.DataFrame({"power": level + np.random.default_rng(0).normal(size=n), "mode": modes})


@pytest.mark.parametrize("kind", [str, "category", pl.DataFrame])
def test_categories_are_inputs_on_request(kind):
    frame = machine()
    table = pl.from_pandas(frame) if kind is pl.DataFrame else frame.astype({"mode": kind})
    model = MOMoGPForecaster(**SMALL, categories=("mode",)).fit(table, inputs=["mode"])
    assert model.inputs == ("mode=idle", "mode=run")
    idle, run = (model.forecast(1, [{"mode": mode}])[0]["power"] for mode in ("idle", "run"))
    assert run - idle > 8.0
    model.update(frame[:3])
    assert model.n_rows == 203 and model.series == ("power",)


def test_categories_row_by_row_join_as_they_come():
    frame = machine()
    one = MOMoGPForecaster(**SMALL, categories=("mode",))
    for row in frame.to_dict("records"):
        one.learn_one({"power": row["power"]}, {"mode": row["mode"]})
    many = MOMoGPForecaster(**SMALL, categories=("mode",)).fit(frame, inputs=["mode"])
    assert set(one.inputs) == {"mode=idle", "mode=run"}
    modes = [{"mode": "idle"}, {"mode": None}, {"mode": "new"}, {}]
    a, b = (np.array([row["power"] for row in model.forecast(4, modes)]) for model in (one, many))
    assert_allclose(a, b, atol=1.0)
    with pytest.raises(ValueError, match="categories"):
        MOMoGPForecaster(categories="mode")


def test_text_without_categories_gets_advice():
    with pytest.raises(TypeError, match="row 0: the value of 'mode' is a str, not a number: name it in categories"):
        MOMoGPForecaster(**SMALL).fit(machine(), inputs=["mode"])


# ------------------------------------------------------------------ reasons


def test_reasons():
    frame = history(300)
    model = MOMoGPForecaster(horizon=4, experts=("own lags", "wide lags", "matern32"), max_points=64, seed=0)
    with pytest.raises(ValueError, match="nothing to explain"):
        model.explain()
    model.fit(frame, inputs=["pitch"])
    before = checksum(model)
    reasons = model.explain(step=3, n_neighbours=4)
    assert checksum(model) == before
    weights = model.weights_at(3)
    forecast = model.forecast(4, with_dist=True)
    for name in ("power", "wind"):
        assert {expert: found[name]["weight"] for expert, found in reasons["experts"].items()} == weights[
            name
        ].to_dict()
    # More pitch, less power: as a forecast with it says, step by step.
    slope = reasons["inputs"]["pitch"]["power"]
    ahead = model.forecast(4, [{"pitch": frame["pitch"].iloc[-1] + 0.01}] * 4, with_dist=True)
    assert slope == pytest.approx((ahead.mean - forecast.mean)["power"].iloc[2] / 0.01, rel=0.05)
    assert slope < -20.0
    assert sum(reasons["relevance"].values()) == pytest.approx(1.0)
    assert {"clock", "power", "wind", "pitch", "sine of the day"} <= set(reasons["relevance"])
    assert len(reasons["neighbours"]) == 4
    for row in reasons["neighbours"]:
        known = frame.loc[pd.Timestamp(row["time"])]
        assert row["y"] == pytest.approx({"power": known["power"], "wind": known["wind"]})
        assert frame.index[-1 - row["rows_ago"]] == pd.Timestamp(row["time"])
    similarities = [row["similarity"] for row in reasons["neighbours"]]
    assert similarities == sorted(similarities, reverse=True) and 0.0 <= similarities[-1] <= 1.0
    for step in (0, 5):
        with pytest.raises(ValueError, match="step"):
            model.explain(step)


def test_reasons_without_circuits():
    reasons = trained(50).explain()
    assert reasons["relevance"] == {} and reasons["neighbours"] == []


# ------------------------------------------------------------------ time as people say it


def test_spans_are_steps():
    frame = history(100)[["wind"]]
    model = MOMoGPForecaster(**{**SMALL, "horizon": "1h"})
    assert model.n_steps is None and model.step is None
    model.fit(frame)
    plain = MOMoGPForecaster(**{**SMALL, "horizon": 6}).fit(frame)
    assert model.n_steps == 6 and model.step == timedelta(minutes=10)
    assert model.forecast(6) == plain.forecast(6) == model.forecast("1h") == plain.forecast("60 min")
    assert model.predict().shape == (6, 1)
    assert len(model.forecast("30min")) == 3
    with pytest.raises(ValueError, match="cannot forecast 12 steps with a model of 6"):
        model.forecast("2h")


def test_spans_row_by_row_and_in_files(tmp_path):
    frame = history(40)[["wind"]]
    model = MOMoGPForecaster(**{**SMALL, "horizon": "40min"}, time="at")
    for n, (time, row) in enumerate(frame.iterrows()):
        model.learn_one(row.to_dict(), {"at": time})
        if n == 0:
            with pytest.raises(ValueError, match="the step of the feed is not known yet"):
                model.forecast("40min")
    assert model.forecast(4) == MOMoGPForecaster(**SMALL, time="at").fit(frame).forecast(4)
    model.save(tmp_path / "model.momo")
    again = load(tmp_path / "model.momo")
    assert again.horizon == "40min" and again.forecast("40min") == model.forecast(4)


def test_spans_need_dates():
    model = MOMoGPForecaster(horizon="6h")
    with pytest.raises(ValueError, match="row 0: horizon='6h' is a span of time, and rows have no times"):
        model.learn_one(1.0)
    with pytest.raises(ValueError, match="row 0: horizon='6h' is a span of time, and times are numbers"):
        MOMoGPForecaster(horizon="6h", time="t").learn_one(1.0, {"t": 3})
    with pytest.raises(ValueError, match="'soon' is not a span of time"):
        MOMoGPForecaster(horizon="soon")
