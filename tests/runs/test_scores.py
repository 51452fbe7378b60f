"""Scores of a run: against the sums written out, with gaps in time, and after being saved in the middle."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.distributions.predicted import PredictedValues
from momostream.runs import scores
from momostream.runs.scores import Track
from momostream.storage import container

START = datetime(2024, 3, 1)


def feed(n, seed=0):
    rng = np.random.default_rng(seed)
    level = 0.0
    for t in range(n):
        level = 0.9 * level + rng.normal()
        yield t, {"wind": level + 8.0, "power": 3.0 * level + 0.1 * rng.normal()}


def forecaster(**options):
    return MOMoGPForecaster(horizon=3, experts=("last value", "own lags"), seed=0, **options)


def test_regression_scores_are_those_of_the_rows():
    model, track = MOMoGPRegressor(seed=0), Track(["power", "wind"], level=0.8)
    distributions, rows = [], []
    for t, y in feed(120):
        distribution = model.predict_one({"t": t % 7}, with_dist=True)
        if distribution:
            track.expect(PredictedValues.of(distribution, track.targets, track.level))
            distributions.append(distribution)
            rows.append(y)
        track.observe(t + 1, y)
        model.learn_one({"t": t % 7}, y)
    assert track.n_scored == len(rows) == 119
    for name in ("power", "wind"):
        errors = np.array(
            [y[name] - distribution.mean[name] for distribution, y in zip(distributions, rows, strict=True)]
        )
        inside = [
            low <= y[name] <= high
            for distribution, y in zip(distributions, rows, strict=True)
            for low, high in [distribution.interval(0.8)[name]]
        ]
        density = [-distribution.log_pdf_each(y)[name] for distribution, y in zip(distributions, rows, strict=True)]
        found = track.summary.loc[name]
        np.testing.assert_allclose(found["rmse"], np.sqrt((errors**2).mean()))
        np.testing.assert_allclose(found["mae"], np.abs(errors).mean())
        np.testing.assert_allclose(found["coverage"], np.mean(inside))
        np.testing.assert_allclose(found["nlpd"], np.mean(density))
        values = np.array([y[name] for _, y in feed(120)])
        np.testing.assert_allclose(found["naive"], np.sqrt((np.diff(values) ** 2).mean()))
        pits = [distribution.cdf(y)[name] for distribution, y in zip(distributions, rows, strict=True)]
        np.testing.assert_array_equal(track.pit[name], np.histogram(pits, 20, (0.0, 1.0))[0])


def test_forecasts_are_scored_step_by_step():
    model, track = forecaster(), Track(["wind", "power"], n_steps=3)
    made = {}
    values = dict(feed(80))
    for t, y in values.items():
        track.observe(t + 1, y)
        model.learn_one(y)
        if distribution := model.forecast(3, with_dist=True):
            made[t] = distribution
            track.expect(PredictedValues.of(distribution, track.targets, track.level))
    complete = [t for t in made if t + 3 in values]
    assert track.n_scored == len(complete)
    for step in (1, 2, 3):
        for name in ("wind", "power"):
            errors = [values[t + step][name] - made[t].mean[name].iloc[step - 1] for t in complete]
            naive = [values[t + step][name] - values[t][name] for t in complete]
            np.testing.assert_allclose(track.by_step.loc[step, ("rmse", name)], np.sqrt(np.mean(np.square(errors))))
            np.testing.assert_allclose(track.by_step.loc[step, ("naive", name)], np.sqrt(np.mean(np.square(naive))))


def test_a_gap_in_time_is_not_the_next_step():
    model, track = forecaster(time="at"), Track(["wind", "power"], n_steps=3)
    kept = [t for t in range(60) if t not in (40, 41)]
    values = dict(feed(60))
    for t in kept:
        at = START + timedelta(minutes=10 * t)
        track.observe(t + 1, values[t], at)
        model.learn_one(values[t], {"at": at})
        if t == 39:
            made = model.forecast(3, with_dist=True)
            alone = Track(track.targets, 3)
            alone.observe(40, values[39], at)
            alone.expect(PredictedValues.of(made, track.targets, 0.9))
    for t in (42, 43):
        alone.observe(t + 1, values[t], START + timedelta(minutes=10 * t))
    assert alone.n_scored == 1
    assert alone.by_step["rmse"]["wind"].isna().tolist() == [True, True, False]
    np.testing.assert_allclose(
        alone.by_step.loc[3, ("rmse", "wind")], abs(values[42]["wind"] - made.mean["wind"].iloc[2])
    )


def test_forecasts_end_when_their_time_is_over():
    track = Track(["wind", "power"], n_steps=3)
    model = forecaster(time="at")
    for t, y in feed(20):
        at = START + timedelta(minutes=10 * t)
        track.observe(t + 1, y, at)
        model.learn_one(y, {"at": at})
        if distribution := model.forecast(3, with_dist=True):
            track.expect(PredictedValues.of(distribution, track.targets, 0.9))
    track.observe(21, {"wind": 8.0}, START + timedelta(days=9))
    assert len(track._waiting) == 0


def test_forecasts_do_not_pile_up_when_steps_become_shorter():
    model, track = forecaster(time="at"), Track(["wind", "power"], n_steps=3)
    at = START
    for t, y in feed(300):
        at += timedelta(hours=1) if t < 50 else timedelta(seconds=1)
        track.observe(t + 1, y, at)
        model.learn_one(y, {"at": at})
        if distribution := model.forecast(3, with_dist=True):
            track.expect(PredictedValues.of(distribution, track.targets, 0.9))
        assert len(track._waiting) <= 6
    assert track.n_scored >= 290


def run_both(cut, **options):
    """A track that went on in one piece, and one that was saved and restored after ``cut`` rows."""
    model, whole = forecaster(**options), Track(["wind", "power"], n_steps=3)
    parted = Track(whole.targets, 3)
    for t, y in feed(90):
        at = START + timedelta(minutes=10 * t)
        for track in (whole, parted):
            track.observe(t + 1, y, at)
        model.learn_one(y, {"at": at})
        if distribution := model.forecast(3, with_dist=True):
            for track in (whole, parted):
                track.expect(PredictedValues.of(distribution, track.targets, 0.9))
        if t == cut:
            _, state = container.loads(container.dumps("track", parted.state()))
            scales = model._scales
            parted = Track.from_state(state, None if scales.is_plain else scales)
    return whole, parted


@pytest.mark.parametrize(
    "options", [{"time": "at"}, {"time": "at", "bounds": {"wind": (-20.0, 40.0)}}], ids=["plain", "bounds"]
)
def test_a_restored_track_continues_exactly(options):
    whole, parted = run_both(50, **options)
    for name in ("summary", "by_step", "by_block", "pit"):
        assert getattr(whole, name).equals(getattr(parted, name)), name
    assert whole.block_times.equals(parted.block_times)


def test_blocks_are_merged_and_lose_nothing(monkeypatch):
    monkeypatch.setattr(scores, "MAX_BLOCKS", 8)
    monkeypatch.setattr(scores, "FIRST_BLOCK", 4)
    model, track = MOMoGPRegressor(seed=0), Track(["power"])
    for t, y in feed(203):
        distribution = model.predict_one({}, with_dist=True)
        if distribution:
            track.expect(PredictedValues.of(distribution, track.targets, 0.9))
        if track.observe(t + 1, y):
            track.note({"wind": 1.0})
        model.learn_one({}, {"power": y["power"]})
    assert len(track.by_block) <= 8
    rows = np.diff([0, *track.by_block.index])
    assert (rows[1:-1] == rows[1]).all() and track.by_block.index[-1] == 203
    scored = rows.astype(float)
    scored[0] -= 1.0  # nothing was predicted before the first row
    mean = np.average(track.by_block[("mae", "power")], weights=scored)
    np.testing.assert_allclose(mean, track.summary.loc["power", "mae"])
    assert list(track.relevance.index) == list(track.by_block.index[: len(track.relevance)])
    assert len(track.relevance) >= 4 and (track.relevance["wind"] == 1.0).all()


def track_of(rows, targets):
    """A track of a regressor without inputs."""
    model, track = MOMoGPRegressor(seed=0), Track(targets)
    for number, y in enumerate(rows, 1):
        if distribution := model.predict_one({}, with_dist=True):
            track.expect(PredictedValues.of(distribution, track.targets, 0.9))
        track.observe(number, y)
        model.learn_one({}, y)
    return track


def test_missing_values_are_not_scored():
    rows = [{**y, "wind": None if t % 2 else y["wind"]} for t, y in feed(50)]
    assert track_of(rows, ["power", "wind"]).pit.sum().to_dict() == {"power": 49, "wind": 24}


def test_a_target_that_comes_late():
    rows = [{"power": y["power"]} | ({"late": y["wind"]} if t >= 20 else {}) for t, y in feed(30)]
    assert track_of(rows, ["power", "late"]).pit.sum().to_dict() == {"power": 29, "late": 9}


def test_an_empty_track_has_frames():
    track = Track(["power"], 2)
    assert track.summary["rmse"].isna().all() and track.by_block.empty and track.relevance.empty
    assert track.block_times is None and track.pit.to_numpy().sum() == 0


def test_times_of_blocks():
    track = Track(["power"])
    for t, y in feed(64):
        track.expect(PredictedValues(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), None, _Law()))
        track.observe(t + 1, y, START + timedelta(minutes=t))
    assert track.block_times.tolist() == [START + timedelta(minutes=31), START + timedelta(minutes=63)]


class _Law:
    """The least that a distribution must do."""

    targets = ("power",)

    @property
    def each(self):
        return self

    def cdf(self, Y):
        return np.full(Y.shape, 0.5)

    def log_pdf_each(self, Y):
        return np.zeros(Y.shape)
