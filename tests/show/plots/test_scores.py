"""What plots of scores and calibration show, read back from the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from momostream.runs.scores import SCORES, Track
from momostream.show.plots import plot_calibration, plot_relevance, plot_scores, plot_steps
from tests.show.plots.figures import words


class Told(Track):
    """A track that says what it is told."""

    def __init__(self, targets, blocks, n_steps=1, times=None, rows=None):
        super().__init__(targets, n_steps)
        rows = 10 * np.arange(1, len(blocks) + 1) if rows is None else rows
        columns = pd.MultiIndex.from_tuples([(score, name) for score in SCORES for name in targets])
        self.blocks = pd.DataFrame(blocks.reshape(len(blocks), -1), pd.Index(rows, name="row"), columns)
        self.times = times
        self.n_scored = len(blocks)

    by_block = property(lambda self: self.blocks)
    by_step = property(lambda self: self.blocks.set_axis(pd.RangeIndex(1, self.n_steps + 1, name="step")))
    block_times = property(lambda self: self.times)


def told(targets, n_blocks=6, **settings):
    blocks = np.random.default_rng(0).uniform(0.5, 1.0, size=(n_blocks, len(SCORES), len(targets)))
    return Told(targets, blocks, **settings)


def scores_of(track, score):
    return track.blocks[[score]].to_numpy()


def test_scores_of_one_target_are_in_its_units():
    track = told(["power"])
    error, coverage = plot_scores(track).axes
    own, naive = error.lines
    assert_allclose(own.get_xdata(), [10, 20, 30, 40, 50, 60])
    assert_allclose(own.get_ydata(), scores_of(track, "rmse")[:, 0])
    assert_allclose(naive.get_ydata(), scores_of(track, "naive")[:, 0])
    assert_allclose(coverage.lines[0].get_ydata(), scores_of(track, "coverage")[:, 0])
    assert set(coverage.lines[1].get_ydata()) == {0.9}
    assert words(error.get_legend().get_texts()) == ["power", "last value"]
    assert (error.get_ylabel(), coverage.get_xlabel()) == ("root mean square error", "row")
    assert error.get_ylim()[0] == 0.0


def test_scores_of_several_targets_are_relative_to_the_last_value():
    track = told(["power", 7, ("a", 1), "_load", "$x$"])
    error, coverage = plot_scores(track).axes
    assert_allclose(
        np.array([line.get_ydata() for line in error.lines[:5]]).T, scores_of(track, "rmse") / scores_of(track, "naive")
    )
    assert set(error.lines[5].get_ydata()) == {1.0}
    assert len({line.get_color() for line in error.lines}) == 6
    assert [a.get_color() for a in error.lines[:5]] == [b.get_color() for b in coverage.lines[:5]]
    assert words(error.get_legend().get_texts())[-1] == "last value"
    assert {"power", "7", "('a', 1)"} <= set(words(error.get_legend().get_texts()))


def test_scores_of_many_targets_show_their_mean():
    track = told([f"series {k}" for k in range(30)])
    error, coverage = plot_scores(track).axes
    assert words(error.get_legend().get_texts()) == ["each target", "mean of 30 targets", "last value"]
    ratio = scores_of(track, "rmse") / scores_of(track, "naive")
    assert_allclose(error.lines[30].get_ydata(), ratio.mean(axis=1))
    assert_allclose(coverage.lines[30].get_ydata(), scores_of(track, "coverage").mean(axis=1))
    error.figure.draw_without_rendering()


@pytest.mark.parametrize("n_targets", [1, 3, 9])
def test_gaps_in_scores(n_targets):
    track = told([f"s{k}" for k in range(n_targets)])
    track.blocks.iloc[2] = np.nan
    figure = plot_scores(track)
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert all(np.isnan(line.get_ydata()[2]) for line in ax.lines if len(line.get_ydata()) == 6)
    track.blocks[:] = np.nan
    plot_scores(track).draw_without_rendering()
    one = told([f"s{k}" for k in range(n_targets)], 1)
    assert plot_scores(one).axes[0].lines[-2].get_marker() == "o"
    one.blocks.loc[:, "naive"] = 0.0
    plot_scores(one).draw_without_rendering()


@pytest.mark.parametrize(("zone", "label"), [(None, "time"), ("UTC", "time (UTC)")])
def test_scores_over_time(zone, label):
    times = pd.date_range("2024-01-01", periods=6, freq="h", tz=zone)
    track = told(["power"], times=times.delete(3).insert(3, pd.NaT))
    figure = plot_scores(track)
    figure.draw_without_rendering()
    assert figure.axes[1].get_xlabel() == label
    assert figure.axes[0].lines[0].get_xdata()[-1] == np.datetime64("2024-01-01T05")
    numbers = told(["power"], times=pd.Index(np.arange(6) / 2))
    assert_allclose(plot_scores(numbers).axes[0].lines[0].get_xdata(), np.arange(6) / 2)


def test_large_errors_do_not_hide_the_others():
    track = told(["power"])
    track.blocks.loc[30, "rmse"] = 100.0
    assert plot_scores(track).axes[0].get_yscale() == "log"
    assert plot_scores(told(["power"])).axes[0].get_yscale() == "linear"


def test_a_block_that_has_only_begun_is_left_out():
    begun = told(["power"], 4, rows=[10, 20, 30, 33])
    assert_allclose(plot_scores(begun).axes[0].lines[0].get_xdata(), [10, 20, 30])
    half = told(["power"], 4, rows=[10, 20, 30, 35])
    assert_allclose(plot_scores(half).axes[0].lines[0].get_xdata(), [10, 20, 30, 35])


def test_steps():
    track = told(["power", "wind"], n_steps=6)
    error, coverage = plot_steps(track).axes
    assert_allclose(error.lines[0].get_xdata(), np.arange(1, 7))
    assert_allclose(error.lines[1].get_ydata(), (scores_of(track, "rmse") / scores_of(track, "naive"))[:, 1])
    assert_allclose(coverage.lines[1].get_ydata(), scores_of(track, "coverage")[:, 1])
    assert coverage.get_xlabel() == "steps ahead"


def test_tracks_without_scores_are_rejected():
    for draw in (plot_scores, plot_steps):
        with pytest.raises(ValueError, match="nothing has been scored yet"):
            draw(Track(["power"], 2))
    with pytest.raises(ValueError, match="one step ahead"):
        plot_steps(told(["power"]))
    with pytest.raises(ValueError, match="no values yet"):
        plot_calibration(Track(["power"]))
    with pytest.raises(ValueError, match="no shares"):
        plot_relevance(Track(["power"]))


def bars_of(ax):
    return [patch.get_height() for patch in ax.patches if patch.get_width() < 0.1]


def band_on(ax):
    (band,) = [patch for patch in ax.patches if patch.get_width() > 0.5]
    return band.get_y(), band.get_y() + band.get_height()


def test_calibration_counts_probabilities():
    pit = np.concatenate([np.full(30, 0.01), np.linspace(0.0, 1.0, 71), [np.nan]])
    ax = plot_calibration(pit).axes[0]
    counts = np.histogram(pit[:-1], 20, (0.0, 1.0))[0]
    assert_allclose(bars_of(ax), counts / (101 / 20))
    assert ax.get_title() == "101 values"
    low, high = band_on(ax)
    assert 0.0 <= low < 1.0 < high


def test_the_band_holds_what_chance_makes():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(20):
        ax = plot_calibration(rng.uniform(size=2000)).axes[0]
        low, high = band_on(ax)
        inside += [low <= height <= high for height in bars_of(ax)]
    assert 0.92 < np.mean(inside) < 0.98


def test_calibration_of_frames_and_tracks():
    counts = pd.DataFrame({"power": np.arange(20), 3: np.full(20, 5), "never": np.zeros(20)})
    figure = plot_calibration(counts)
    power, three, never = figure.axes
    assert_allclose(bars_of(power), np.arange(20) / 9.5)
    assert_allclose(bars_of(three), 1.0)
    assert [ax.get_title() for ax in figure.axes] == ["power\n190 values", "3\n100 values", "never\n0 values"]
    assert [text.get_text() for text in never.texts] == ["no values"]
    track = Track(["power", "wind"])
    track._pit[:, 0] = np.arange(20)
    drawn = plot_calibration(track).axes
    assert_allclose(bars_of(drawn[0]), np.arange(20) / 9.5)
    assert drawn[1].get_title() == "wind\n0 values"


def test_calibration_of_many_targets():
    figure = plot_calibration(np.random.default_rng(0).uniform(size=(50, 30)))
    assert len(figure.axes) == 12
    assert figure.get_supxlabel() == "18 more targets are not shown"
    assert figure.axes[4].get_title() == "y4\n50 values"
    figure.draw_without_rendering()


def test_calibration_mistakes_are_named():
    for wrong in ([0.5, 1.2], [-0.1], np.zeros((2, 2, 2)), 0.5):
        with pytest.raises(ValueError, match="expected probabilities"):
            plot_calibration(wrong)
    with pytest.raises(ValueError, match="counts"):
        plot_calibration(pd.DataFrame({"power": [0.5, 0.2]}))
    with pytest.raises(ValueError, match="no values yet"):
        plot_calibration([np.nan])
    with pytest.raises(ValueError, match="one axes for 2 targets"):
        plot_calibration(np.full((4, 2), 0.5), ax=Figure().add_subplot())
