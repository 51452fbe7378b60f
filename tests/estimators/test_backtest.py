"""Rolling origins over a frame: what is learnt when, what is compared with what, and the scores."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from river import time_series
from scipy import stats

from momostream import MOMoGPForecaster
from momostream.estimators.backtest import Backtest, backtest

QUICK = {"experts": ("last value", "own lags"), "seed": 0}


class LastValue:
    """A forecaster that gives points, and remembers what it was told."""

    def __init__(self):
        self.told, self.asked = [], []

    def learn_one(self, y, x=None):
        self.told.append((y, x))

    def forecast(self, horizon, xs=None):
        self.asked.append((len(self.told), xs))
        return [self.told[-1][0]] * horizon


class NormalForecast:
    """What `momostream.distributions.forecast.Forecast` offers, for normal distributions of deviation 1."""

    def __init__(self, mean):
        self.mean, self.series, self.index, self.arrays = mean, tuple(mean.columns), mean.index, self

    def __len__(self):
        return len(self.mean)

    def interval(self, level):
        sides = {"lower": 0.5 - 0.5 * level, "upper": 0.5 + 0.5 * level}
        return pd.DataFrame(
            {(name, side): self.mean[name] + stats.norm.ppf(q) for name in self.series for side, q in sides.items()}
        )

    def crps(self, y):
        # Gneiting's formula for the normal distribution.
        error = y - self.mean.to_numpy()
        return error * (2 * stats.norm.cdf(error) - 1) + 2 * stats.norm.pdf(error) - 1 / np.sqrt(np.pi)


class NormalLaw(LastValue):
    """Normal distributions of deviation 1 around the last value, series in an order of their own."""

    def forecast(self, horizon, xs=None, with_dist=False):
        assert with_dist
        last = self.told[-1][0]
        return NormalForecast(pd.DataFrame([last] * horizon)[sorted(last)].rename_axis("step"))


def walk(n, seed=0, names=("b", "a")):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(n, len(names))).cumsum(axis=0), columns=list(names))


def spied(monkeypatch):
    """The copy that a backtest works with."""
    copies = []
    monkeypatch.setattr("momostream.estimators.backtest.deepcopy", lambda model: copies.append(model) or model)
    return copies


# ---------------------------------------------------------------------- scores


def test_scores_are_those_of_a_loop():
    frame = walk(60)
    found = backtest(NormalLaw(), frame, 3, start=20, step=2, levels=(0.8,))
    scale = frame[:20].diff().abs().mean()
    for step in (1, 2, 3):
        for name in ("a", "b"):
            last, actual = np.array([(frame[name][i - 1], frame[name][i - 1 + step]) for i in range(20, 58, 2)]).T
            error = actual - last
            crps = NormalForecast(pd.DataFrame({"a": last})).crps(actual[:, None]).mean()
            expected = {
                "MAE": np.abs(error).mean(),
                "RMSE": np.sqrt((error**2).mean()),
                "MASE": np.abs(error).mean() / scale[name],
                "CRPS": crps,
                "scaled CRPS": crps / scale[name],
                "coverage 0.8": np.mean(np.abs(error) < stats.norm.ppf(0.9)),
            }
            assert list(found.scores.columns) == list(expected)
            assert_allclose(found.scores.loc[(step, name)], list(expected.values()), rtol=1e-6)
    each = found.scores.groupby(level="series").mean()
    assert_allclose(found.summary.loc[["a", "b"]], each.loc[["a", "b"]])
    # Never a mean over different units.
    overall = each.mean()
    overall[["MAE", "RMSE", "CRPS"]] = np.nan
    assert_allclose(found.summary.loc["all series"], overall)


def test_forecasts_are_listed_one_by_one():
    frame = walk(30)
    table = backtest(NormalLaw(), frame, 2, start=10, step=5).forecasts
    columns = ["origin", "step", "time", "series", "mean"]
    columns += ["lower 0.5", "upper 0.5", "lower 0.9", "upper 0.9", "CRPS", "actual"]
    assert list(table.columns) == columns
    assert table["origin"].unique().tolist() == [9, 14, 19, 24]
    line = table[(table["origin"] == 14) & (table["step"] == 2) & (table["series"] == "a")].iloc[0]
    assert line["time"] == 16
    assert (line["mean"], line["actual"]) == (frame["a"][14], frame["a"][16])
    assert_allclose(line["upper 0.9"] - line["mean"], stats.norm.ppf(0.95))
    assert_allclose(line["mean"] - line["lower 0.5"], stats.norm.ppf(0.75))


def test_what_did_not_come_is_not_scored():
    frame = walk(40)
    frame.loc[25, "a"] = np.nan
    found = backtest(NormalLaw(), frame.ffill().where(frame.notna()), 1, start=20)
    table = found.forecasts[found.forecasts["series"] == "a"].set_index("time")
    assert np.isnan(table.loc[25, "actual"])
    assert np.isnan(table.loc[25, "CRPS"])
    errors = (table["actual"] - table["mean"]).drop([25, 26]).abs()
    # The forecast from the missing value is none, and is not scored either.
    assert len(errors) == 18
    assert_allclose(found.scores.loc[(1, "a"), "MAE"], errors.mean())
    inside = (errors < stats.norm.ppf(0.95)).mean()
    assert_allclose(found.scores.loc[(1, "a"), "coverage 0.9"], inside)


def test_a_series_that_never_comes_has_no_scores():
    frame = walk(40).assign(c=np.nan)
    model = MOMoGPForecaster(horizon=2, **QUICK)
    found = backtest(model, frame, start=30)
    assert found.scores.xs("c", level="series").isna().all(axis=None)
    assert found.scores.xs("a", level="series").notna().all(axis=None)
    assert found.summary.loc["all series", ["MASE", "scaled CRPS", "coverage 0.9"]].notna().all()
    assert "nan" not in repr(found)


def test_a_constant_history_has_no_unit():
    frame = walk(40, names=("a",))
    frame.loc[:19, "a"] = 3.0
    scores = backtest(LastValue(), frame, 1, start=20).scores
    assert np.isnan(scores.loc[(1, "a"), "MASE"])
    assert scores.loc[(1, "a"), "MAE"] > 0.0


def test_points_have_no_laws_to_score():
    found = backtest(LastValue(), walk(30), 2, start=10)
    assert list(found.scores.columns) == ["MAE", "RMSE", "MASE"]
    assert "CRPS" not in found.forecasts


def test_repr_says_what_was_done():
    text = repr(backtest(NormalLaw(), walk(30), 2, start=10, step=3))
    assert text.startswith("Backtest: 7 forecasts of 2 steps, 2 series\n")
    assert "coverage 0.9" in text and "all series" in text


# ---------------------------------------------------------------------- what is learnt when


def test_rows_are_learnt_in_order_and_only_up_to_the_last_forecast(monkeypatch):
    copies = spied(monkeypatch)
    frame = walk(20)
    found = backtest(LastValue(), frame, 3, start=6, step=4)
    (model,) = copies
    assert [n for n, _ in model.asked] == [6, 10, 14]
    assert model.told == [(row, None) for row in frame.to_dict("records")[:14]]
    assert isinstance(found, Backtest)


@pytest.mark.parametrize(("n_rows", "horizon", "first"), [(100, 3, 20), (100, 15, 30)])
def test_the_first_forecast_comes_after_a_fifth_or_two_horizons(n_rows, horizon, first):
    found = backtest(LastValue(), walk(n_rows), horizon, step=50)
    assert found.forecasts["origin"].iloc[0] == first - 1


def test_inputs_to_come_are_seen_only_if_known(monkeypatch):
    copies = spied(monkeypatch)
    frame = walk(12).assign(heat=np.arange(12.0), plan=np.arange(12))
    backtest(LastValue(), frame, 2, inputs=["heat"], known=["plan"], start=8, step=2)
    (model,) = copies
    assert model.told[3] == ({"b": frame["b"][3], "a": frame["a"][3]}, {"heat": 3.0, "plan": 3})
    assert model.asked == [(8, [{"plan": 8}, {"plan": 9}]), (10, [{"plan": 10}, {"plan": 11}])]


def test_one_series_is_given_as_numbers_where_points_are_forecast(monkeypatch):
    copies = spied(monkeypatch)
    frame = walk(12, names=("a",))
    found = backtest(LastValue(), frame, 2, start=8)
    assert copies[0].told[0] == (frame["a"][0], None)
    assert_array_equal(found.forecasts["mean"][:2], frame["a"][7])


def test_the_model_stays_as_it_was():
    model = MOMoGPForecaster(horizon=2, **QUICK)
    for row in walk(10).to_dict("records"):
        model.learn_one(row)
    before = model.forecast(2)
    backtest(model, walk(30, seed=1), start=10)
    assert model.n_rows == 10
    assert model.forecast(2) == before


def test_a_model_goes_on_from_what_it_has_learnt(monkeypatch):
    model = LastValue()
    model.learn_one(1.0)
    copies = []
    monkeypatch.setattr("momostream.estimators.backtest.deepcopy", lambda m: copies.append(m) or m)
    backtest(model, walk(12, names=("a",)), 2, start=8, step=9)
    assert len(copies[0].told) == 9


@pytest.mark.parametrize("model", [time_series.HoltWinters(alpha=0.3), time_series.SNARIMAX(p=2, d=0, q=0)])
def test_forecasters_of_river(model):
    found = backtest(model, walk(60, names=("a",)), 3, start=30, step=5)
    assert found.summary.drop("all series").notna().all(axis=None)


def test_a_forecaster_that_knows_nothing_yet_is_not_scored():
    class Silent(LastValue):
        def forecast(self, horizon, xs=None):
            return super().forecast(horizon, xs) if len(self.told) > 10 else []

    found = backtest(Silent(), walk(20), 1, start=5)
    assert found.forecasts["mean"].isna().sum() == 2 * 6
    assert found.scores["MAE"].notna().all()


# ---------------------------------------------------------------------- our own forecaster


def test_the_loop_by_hand_gives_the_same_forecasts():
    frame = walk(60)
    found = backtest(MOMoGPForecaster(horizon=3, **QUICK), frame, start=30, step=7)
    model = MOMoGPForecaster(horizon=3, **QUICK)
    for i, row in enumerate(frame.to_dict("records")):
        if i >= 30 and (i - 30) % 7 == 0 and i + 3 <= len(frame):
            forecast = model.forecast(3, with_dist=True)
            table = found.forecasts[found.forecasts["origin"] == i - 1]
            for name in ("a", "b"):
                mine = table[table["series"] == name]
                assert_array_equal(mine["mean"], forecast.mean[name])
                assert_array_equal(mine["upper 0.9"], forecast.interval(0.9)[name]["upper"])
                scores = forecast.crps(frame[i : i + 3])
                assert_array_equal(mine["CRPS"], scores[name])
        model.learn_one(row)


def dated(n, step="10min", zone=None, **options):
    frame = walk(n, **options)
    frame.index = pd.date_range("2024-05-01", periods=n, freq=step, tz=zone)
    return frame


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("named", [False, True])
def test_an_index_of_dates_is_the_time(zone, named):
    frame = dated(50, zone=zone)
    # Fifty minutes without a row.
    frame = pd.concat([frame[:40], frame[45:]])
    model = MOMoGPForecaster(horizon=3, time="at" if named else None, **QUICK)
    found = backtest(model, frame, start=38, step=1)
    table = found.forecasts[found.forecasts["series"] == "a"]
    assert (table["time"] > table["origin"]).all()
    assert table["time"].dtype == table["origin"].dtype
    at_gap = table[table["origin"] == frame.index[38]]
    assert_array_equal(at_gap["actual"].isna(), [False, True, True])
    assert at_gap["actual"].iloc[0] == frame["a"].iloc[39]
    before = table[table["origin"] == frame.index[37]]
    assert_array_equal(before["actual"].isna(), [False, False, True])


def test_times_may_jitter():
    frame = dated(40)
    rng = np.random.default_rng(0)
    frame.index += pd.to_timedelta(rng.uniform(-120, 120, size=40), unit="s")
    for horizon in (1, 4):
        found = backtest(MOMoGPForecaster(horizon=horizon, **QUICK), frame, start=20)
        assert found.forecasts["actual"].notna().all()
        first = found.forecasts.iloc[0]
        assert first["actual"] == frame["b"].iloc[20]


def test_a_column_may_be_the_time():
    frame = walk(40).assign(at=np.arange(40) * 5.0)
    frame = frame.drop(index=30)
    found = backtest(MOMoGPForecaster(horizon=2, time="at", **QUICK), frame, start=28)
    table = found.forecasts
    assert set(table["series"]) == {"a", "b"}
    assert_array_equal(np.unique(table.loc[table["actual"].isna(), "time"]), [150.0])


def test_inputs_known_in_advance_go_with_the_times_of_the_steps():
    frame = dated(40, names=("a", "plan"))
    frame = frame.drop(frame.index[35])
    asked = []

    class Asked(MOMoGPForecaster):
        def forecast(self, horizon, xs=None, with_dist=False):
            asked.append(xs)
            return super().forecast(horizon, xs, with_dist)

    found = backtest(Asked(horizon=4, **QUICK), frame, known=["plan"], start=33, step=9)
    plan = frame["plan"]
    assert asked == [None, [{"plan": plan.iloc[33]}, {"plan": plan.iloc[34]}, {}, {"plan": plan.iloc[35]}]]
    assert_array_equal(found.forecasts["actual"].isna(), [False, False, True, False])


def test_a_model_fitted_on_dates_goes_on_without_being_told():
    frame = dated(60)
    model = MOMoGPForecaster(horizon=2, **QUICK).fit(frame[:30])
    found = backtest(model, frame[30:], start=10)
    assert found.forecasts["actual"].notna().all()


def test_a_model_that_has_learnt_the_rows_is_not_tested_on_them():
    frame = dated(60, zone="Europe/Berlin")
    model = MOMoGPForecaster(horizon=2, **QUICK).fit(frame)
    with pytest.raises(ValueError, match=r"learnt rows up to 2024-05-01 09:50:00\+02:00.*use model.clone\(\)"):
        backtest(model, frame)
    assert backtest(model.clone(), frame, start=20).forecasts["actual"].notna().all()


# ---------------------------------------------------------------------- time as people say it


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"start": "6h", "step": "1h"}, [36, 42, 48]),
        ({"start": "1d"}, []),
        ({"start": timedelta(hours=8), "step": 3}, [48, 51]),
        ({"start": "2024-05-01 06:00", "step": "90min"}, [36, 45]),
        ({"start": "2024-05-01 05:55", "step": "90min"}, [36, 45]),
        ({"start": pd.Timestamp("2024-05-01 08:00"), "step": pd.Timedelta("20min")}, [48, 50, 52]),
        ({"start": datetime(2024, 5, 1, 7), "step": np.timedelta64(1, "h")}, [42, 48]),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("named", [False, True])
def test_start_and_step_in_spans_and_times(change, rows, zone, named):
    frame, column = dated(54, zone=zone), {}
    if named:
        frame, column = frame.reset_index(names="at"), {"time": "at"}
    model = MOMoGPForecaster(horizon=2, **QUICK, **column)
    if not rows:
        with pytest.raises(ValueError, match="54 rows, too few for 54 before"):
            backtest(model, frame, **change)
        return
    found = backtest(model, frame, **change).forecasts
    assert list(found["origin"].unique()) == list(frame.index[[n - 1 for n in rows]])


def test_steps_in_time_are_longer_in_rows_before_a_gap_than_after():
    frame = dated(60)
    frame = frame.drop(frame.index[30:42])
    found = backtest(MOMoGPForecaster(horizon=1, **QUICK), frame, start="4h", step="1h").forecasts
    # At 04:00 and each hour later; the rows of 05:00 and 06:00 are missing.
    assert list(found["origin"].dt.strftime("%H:%M").unique()) == ["03:50", "04:50", "07:50", "08:50"]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("soon", "use a number of rows, a span such as '7d', or a time"),
        ("2024-04-01", "no row is earlier, the first one is at 2024-05-01"),
        ("2024-05-01", "no row is earlier"),
        ("2024-05-01 05:00Z", "has a time zone, and the times of frame have none"),
        (timedelta(0), "above zero"),
        (pd.NaT, "use a number of rows, a span such as '7d', or a time"),
    ],
)
def test_starts_that_cannot_be_found(start, words):
    with pytest.raises(ValueError, match=words):
        backtest(MOMoGPForecaster(horizon=2, **QUICK), dated(40), start=start)


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"inputs": ["heat"]}, ValueError, "no input 'heat'; the columns are 'b', 'a'"),
        ({"known": ["plan"]}, ValueError, "no input 'plan'"),
        ({"inputs": "a"}, TypeError, "list of columns, got 'a'"),
        ({"inputs": ["a", "b"]}, ValueError, "all are inputs"),
        ({"horizon": 5}, ValueError, "horizon=5 is not accepted: the model forecasts 4 steps"),
        ({"horizon": 0}, ValueError, "horizon=0"),
        ({"horizon": 2.0}, ValueError, "horizon=2.0"),
        ({"start": 27}, ValueError, "30 rows, too few for 27 before the first forecast and 4"),
        ({"start": 0}, ValueError, "start=0"),
        ({"step": True}, ValueError, "step=True"),
        ({"step": "often"}, ValueError, "step='often' is not accepted: use a number of rows, or a span such as '6h'"),
        ({"step": "1h"}, ValueError, "step='1h' needs times, and the rows of frame have none"),
        ({"start": "7d"}, ValueError, "start='7d' needs times"),
        ({"start": 2.5}, ValueError, "start=2.5"),
        ({"levels": (0.5, 1.0)}, ValueError, "levels"),
    ],
)
def test_errors_say_what_is_wrong(change, error, words):
    with pytest.raises(error, match=words):
        backtest(MOMoGPForecaster(horizon=4, **QUICK), walk(30), **change)


def test_a_recursive_model_has_no_longest_horizon():
    model = MOMoGPForecaster(horizon=4, strategy="recursive", **QUICK)
    assert len(backtest(model, walk(30), 6, start=24).forecasts) == 12


def test_a_forecaster_that_stops_short_is_found_out():
    class Short(LastValue):
        def forecast(self, horizon, xs=None):
            return super().forecast(horizon - 1, xs)

    with pytest.raises(ValueError, match="forecast 2 steps when asked for 3"):
        backtest(Short(), walk(30), 3)


def test_a_forecaster_without_a_horizon_needs_one():
    with pytest.raises(ValueError, match="horizon is missing: LastValue has none"):
        backtest(LastValue(), walk(30))


@pytest.mark.parametrize("index", ["dates", "numbers"])
@pytest.mark.parametrize("order", ["swapped", "repeated"])
def test_rows_out_of_order_are_refused(index, order):
    frame = dated(30) if index == "dates" else walk(30)
    rows = [*range(10), 11, 10 if order == "swapped" else 11, *range(12, 30)]
    with pytest.raises(ValueError, match="must increase: row 11 is"):
        backtest(LastValue(), frame.iloc[rows], 2)


def test_what_is_no_frame_of_numbers_is_refused():
    with pytest.raises(TypeError, match="got dict"):
        backtest(LastValue(), {"a": [1.0]}, 2)
    with pytest.raises(TypeError, match="the column 'c' is not a series of numbers"):
        backtest(LastValue(), walk(30).assign(c="x"), 2)
    with pytest.raises(ValueError, match="two columns 'a'"):
        backtest(LastValue(), walk(30, names=("a", "a")), 2)


def test_missing_values_of_every_kind():
    frame = walk(30).astype({"a": "Float64"}).astype({"b": object})
    frame.loc[3, "a"] = pd.NA
    frame.loc[4, "b"] = None
    found = backtest(MOMoGPForecaster(horizon=2, **QUICK), frame, start=20)
    assert found.summary.drop("all series").notna().all(axis=None)


def test_frames_may_have_any_index():
    frame = walk(30)
    frame.index = [f"row {i}" for i in range(30)]
    found = backtest(LastValue(), frame, 2, start=20)
    assert found.forecasts["time"].iloc[0] == "row 20"


def test_inputs_as_a_deque_or_tuple():
    frame = walk(30).assign(u=1.0)
    for inputs in (("u",), deque(["u"])):
        assert len(backtest(LastValue(), frame, 2, start=28, inputs=inputs).forecasts) == 4


def test_dates_that_no_model_knows_of_are_no_series():
    frame = pd.DataFrame({"at": pd.date_range("2024-01-01", periods=60, freq="h"), "a": np.arange(60.0)})
    with pytest.raises(TypeError, match="the column 'at' holds dates: if it is the time, give the model time='at'"):
        backtest(MOMoGPForecaster(horizon=2, experts=("last value",)), frame, progress=False)


# ------------------------------------------------------------------ other tables, spans, comparisons, plots


def test_other_tables_are_frames():
    frame = walk(60)[["a", "b"]]
    frame.index = pd.date_range("2024-01-01", periods=60, freq="h")
    expected = backtest(MOMoGPForecaster(horizon=2, **QUICK), frame, step=9)
    lines = frame.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")
    periods = frame.set_axis(frame.index.to_period("h"), axis=0)
    for table in (lines, periods):
        found = backtest(MOMoGPForecaster(horizon=2, **QUICK), table, "2h", step=9)
        pd.testing.assert_frame_equal(found.scores, expected.scores)
    assert backtest(LastValue(), frame["a"], 2, step=9).summary.index.tolist() == ["a", "all series"]
    assert backtest(LastValue(), frame["a"].to_numpy(), 2, step=9).summary.index.tolist() == ["y", "all series"]
    with pytest.raises(ValueError, match="horizon='2h' is a span of time, and the rows of frame have no times"):
        backtest(LastValue(), walk(60), "2h")


def test_comparisons_are_of_the_same_values():
    frame = walk(60)
    mine, other = backtest(NormalLaw(), frame, 2, start=20, step=4), backtest(LastValue(), frame, 2, start=20, step=4)
    found = mine.compare(other, ("normal", "last"))
    # Both forecast the last value.
    assert (found["ratio"] == 1.0).all() and (found["better"] == 0.0).all()
    assert_allclose(found.loc["all series", "normal"], mine.summary.loc["all series", "MASE"])
    worse = backtest(LastValue(), frame, 2, start=20, step=4)
    worse.forecasts["mean"] += 100.0
    found = mine.compare(worse)
    assert (found["ratio"] < 0.1).all() and (found["better"] == 1.0).all()
    assert_allclose(mine.compare(mine)["this"], mine.summary["scaled CRPS"])
    with pytest.raises(ValueError, match="no forecast in common"):
        mine.compare(backtest(LastValue(), frame, 2, start=21, step=4))
    with pytest.raises(ValueError, match="score='MAE' is not accepted"):
        mine.compare(other, score="MAE")


def test_plots_are_known_to_pyplot():
    from matplotlib import pyplot

    pyplot.close("all")
    found = backtest(NormalLaw(), walk(60), 2, start=20, step=4)
    assert pyplot.figure(found.plot().number) is pyplot.gcf()
    assert [len(ax.lines) for ax in pyplot.gcf().axes] == [2, 3]
    with pytest.raises(ValueError, match="score='MAE' is not accepted: use one of 'MASE', 'scaled CRPS'"):
        found.plot("MAE")
    pyplot.close("all")


@pytest.mark.parametrize(
    ("index", "words", "last"),
    [
        (pd.date_range("2024-01-01", periods=90, freq="10min"), "minutes ahead", 60.0),
        (pd.date_range("2024-01-01", periods=90, freq="h", tz="Europe/Berlin"), "hours ahead", 6.0),
        (pd.RangeIndex(90), "steps ahead", 6.0),
    ],
)
def test_plots_say_how_far_ahead_in_units_of_time(index, words, last):
    frame = pd.DataFrame({"power": np.sin(np.arange(90.0) / 5)}, index=index)
    figure = backtest(MOMoGPForecaster(horizon=6, experts=("last value",)), frame, step=30, progress=False).plot()
    axes = figure.axes
    assert (axes[-1].get_xlabel(), axes[0].lines[0].get_xdata()[-1]) == (words, pytest.approx(last))
